/* Scenarios D-a and D-f through a real daemon: a prompt of 49,022 tokens is stored as it grows, and
 * at its end as an anchor. One entry is left, it was written once, and a new daemon finds all of it
 * and serves every byte. TERN_FULL=1: with 14 KiB a token as in the scenario, 686 MB; else with an
 * eighth of that. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/admin.h"
#include "engine/engine.h"
#include "engine/json.h"
#include "engine/proc.h"
#include "engine/stats.h"
#include "rig_daemon.h"
#include "testing/test.h"

#define L           64
#define TOKENS      49022u
#define WHOLE       (TOKENS / L * L) /* 48,960 */
#define INTERVAL    10240u           /* the daemon's default */
#define TOKEN_BYTES (14u << 10)
#define CI_PART     8 /* of the bytes of a token */
#define MORE_PAGES  4 /* beyond the prompt's */
#define RATIO_MAX   1.05
#define CALL_MS     300000 /* enough to write 686 MB on any disk */

static struct daemon rig;
static struct engine e;
static struct tern *admin;
static char spill[RIG_DIR_BYTES];
static uint32_t tokens[TOKENS], page_bytes;

static void connect_all(void)
{
    struct tern_group kv = {.name = "kv", .page_tokens = L, .page_bytes = page_bytes};
    struct tern_layout layout = {
        .groups = &kv, .ngroups = 1, .bytes = (uint64_t)(WHOLE / L + MORE_PAGES) * page_bytes};

    admin = rig_connected(rig.admin);
    assert_ok(e.tern, engine_open(&e, rig.socket, "e", &layout, CALL_MS));
}

static void disconnect(void)
{
    engine_close(&e);
    e = (struct engine){0};
    tern_destroy(admin);
    admin = NULL;
}

FIXTURE(make_all)
{
    char yaml[256];

    page_bytes = L * TOKEN_BYTES / (getenv("TERN_FULL") ? 1 : CI_PART);
    rig_memory = (uint64_t)(WHOLE / L + 2 * MORE_PAGES) * page_bytes;
    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = i * 7 % 100003;
    assert_true(tempdir_make(spill, sizeof spill, "tern-spill"));
    snprintf(yaml, sizeof yaml, "spill: {dir: %s, bytes: 1G, headroom: 0}\n", spill);
    rig_start(&rig, yaml, NULL);
    connect_all();
    return 0;
}

FIXTURE(remove_all)
{
    char command[256];

    disconnect();
    if (rig.pid > 0)
        daemon_end(&rig, 0);
    snprintf(command, sizeof command, "rm -rf '%s' '%s'", spill, rig.dir);
    return system(command) == 0 ? 0 : -1;
}

static uint64_t figure(const char *path)
{
    return rig_figure(admin, "status", path);
}

static void again(void)
{
    struct daemon_launch how = {.core = -1, .says_ready = true};
    char why[SPAWN_WHY_BYTES] = "";

    disconnect();
    assert_int_equal(daemon_end(&rig, CALL_MS), 0);
    unlink(rig.log);
    if (!daemon_launch(&rig, &how, why))
        fail_msg("%s", why);
    connect_all();
}

/* Allocates and writes the pages up to there, and commits them with a step. */
static void compute_to(struct engine_session *k, uint32_t depth)
{
    uint32_t from = k->len.written;

    assert_ok(e.tern, engine_extend(k, depth, depth));
    engine_write(k, from, depth);
    assert_ok(e.tern, engine_publish(&e));
    assert_ok(e.tern, engine_commit(k, depth));
}

/* D-a: one entry, and which. */
static void one_entry_is_left(void)
{
    char arguments[256];
    json_t *told, *row;

    snprintf(arguments, sizeof arguments, "--socket '%s' disk", rig.admin);
    told = rig_ctl(arguments);
    assert_int_equal(json_array_size(json_at(told, "disk")), 1);
    row = json_at(told, "disk.0");
    assert_int_equal(json_get_u64(row, "depth"), WHOLE);
    assert_true(json_says(row, "reason", "cold"));
    json_decref(told);
}

static void store_as_it_grows(struct engine_session *k)
{
    struct tern_stored s;
    uint64_t began = clock_ns();

    assert_ok(e.tern, engine_begin(k, &e, tokens, TOKENS));
    for (uint32_t i = 1; i <= TOKENS / INTERVAL; i++) {
        compute_to(k, i * INTERVAL);
        wait_until(figure("tenants.0.spill.stored.continued") == i);
        assert_int_equal(figure("tenants.0.spill.entries"), 1); /* the entry before it is gone */
    }
    compute_to(k, WHOLE);
    assert_ok(e.tern, tern_store(e.tern, k->id, TOKENS - TOKENS % L, CALL_MS, &s));
    assert_int_equal(s.depth, WHOLE);
    printf("stored %.0f MB in %.1f s\n", (double)WHOLE / L * page_bytes / 1e6,
           (double)(clock_ns() - began) / 1e9);
}

/* D-f: `of_pages` counts the bytes of pages alone; the file has more with small pages. */
static void was_written_once(void)
{
    double written = (double)figure("spill.bytes_written"),
           unique = (double)figure("tenants.0.spill.used_bytes"),
           pages = (double)WHOLE / L * page_bytes;

    printf("scenario=D-f written=%.0f unique=%.0f ratio=%.4f of_pages=%.4f\n", written, unique,
           written / unique, written / pages);
    assert_true(written / unique <= RATIO_MAX);
    assert_true(unique >= pages);
    if (getenv("TERN_FULL"))
        assert_true(written / pages <= RATIO_MAX);
}

TEST_WITH(spill_of_a_long_prompt_is_one_entry_that_comes_back, make_all, remove_all)
{
    struct engine_session k;
    uint64_t began;

    store_as_it_grows(&k);
    assert_int_equal(figure("tenants.0.spill.pruned"), TOKENS / INTERVAL);
    was_written_once();
    one_entry_is_left();
    assert_ok(e.tern, engine_end(&k));
    again();
    one_entry_is_left(); /* everything in memory at the end was already stored */
    assert_ok(e.tern, engine_begin(&k, &e, tokens, TOKENS));
    assert_int_equal(k.matched, 0);
    assert_int_equal(k.last.disk_depth, WHOLE);
    began = clock_ns();
    assert_ok(e.tern, engine_fetch(&k, TERN_PEER_DISK, 0, CALL_MS));
    assert_int_equal(k.len.committed, WHOLE);
    printf("scenario=D-a entries=1 disk_depth=%u fetched_s=%.2f\n", k.len.committed,
           (double)(clock_ns() - began) / 1e9);
    assert_int_equal(engine_wrong(&k, WHOLE), 0);
    assert_ok(e.tern, engine_end(&k));
    disconnect();
    assert_int_equal(daemon_end(&rig, CALL_MS), 0);
}
