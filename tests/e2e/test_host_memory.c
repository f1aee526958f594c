/* Pages that move between device and host memory of a real daemon: every page that returns has the
 * bytes that were written. With copies corrupted on purpose some pages are lost, but none returns
 * wrong. The pool has far less room than the data, so all of it passes through the host tier. */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "engine/engine.h"
#include "rig_daemon.h"
#include "testing/test.h"

#define L             64
#define PAGE          4096
#define PAGES         16 /* of a conversation */
#define TOKENS        (PAGES * L)
#define CONVERSATIONS 48 /* 768 pages; the device has 256, the host 1,024 */
#define AWAY          8  /* sessions retracted together */
#define SETTLED_LOOKS 5

static struct daemon rig;
static struct engine e;
static struct tern *admin;
static uint32_t wrong_pages, right_pages, corrupt_answers;

static void start(const char *faults)
{
    struct tern_group kv = {.name = "kv", .page_tokens = L, .page_bytes = PAGE, .units = 4};
    struct tern_layout layout = {
        .groups = &kv, .ngroups = 1, .bytes = 256 * PAGE, .host_bytes = 1024 * PAGE};
    char extra[256];

    /* The first line continues the rig's tenant. */
    snprintf(extra, sizeof extra,
             "    host_memory: 8M\n    host_write_through: true\nlimits:\n  sums_per_page: 4\n%s",
             faults);
    rig_start(&rig, extra, NULL);
    wrong_pages = right_pages = corrupt_answers = 0;
    assert_int_equal(tern_connect(rig.admin, 0, &admin), TERN_OK);
    assert_ok(e.tern, engine_open(&e, rig.socket, "e", &layout, RIG_WAIT_MS));
}

static void stop(void)
{
    engine_close(&e);
    tern_destroy(admin);
    assert_int_equal(rig_stop(&rig), 0);
}

static uint64_t figure(const char *path)
{
    return rig_figure(admin, "status", path);
}

/* Waits until every copy has ended, well or not. The daemon sees a step only after a millisecond or
 * so, and begins then: so no copy must be seen for a while. */
static void copies_settle(void)
{
    uint32_t quiet = 0;

    wait_until((quiet = figure("host_tier.copies") > 0 ? 0 : quiet + 1) > SETTLED_LOOKS);
}

static void copies_reach(uint64_t n)
{
    wait_until(figure("host_tier.host_copies") >= n);
}

/* ---- one conversation ---- */

static void open_talk(struct engine_session *k, uint32_t id)
{
    uint32_t v[TOKENS];

    for (uint32_t i = 0; i < TOKENS; i++)
        v[i] = id * 10000 + i;
    assert_ok(e.tern, engine_begin(k, &e, v, TOKENS));
}

/* Pages on their way to the host keep their device pages until they have arrived. */
static void operation(struct engine_session *k, enum engine_op_kind kind, uint32_t length,
                      uint32_t written)
{
    struct engine_op op = {.kind = kind, .step = e.step, .length = length, .written = written};

    assert_ok(e.tern, engine_do_within(k, op, RIG_WAIT_MS));
}

/* Writes from the end of the table to the end of the conversation, and commits. */
static void write_talk(struct engine_session *k)
{
    uint32_t from = k->len.written;

    operation(k, ENGINE_EXTEND, TOKENS, 0);
    assert_true(table_covers(&k->table, TOKENS));
    engine_write(k, from, TOKENS);
    e.step++;
    operation(k, ENGINE_EXTEND, 0, TOKENS);
    operation(k, ENGINE_COMMIT, TOKENS, 0);
    assert_ok(e.tern, tern_done_step(e.map, e.step));
}

static void compare(const struct engine_session *k, uint32_t tokens)
{
    uint32_t wrong = (uint32_t)((engine_wrong(k, tokens) + PAGE - 1) / PAGE);

    wrong_pages += wrong;
    right_pages += tokens / L - wrong;
}

static void close_talk(struct engine_session *k)
{
    operation(k, ENGINE_CLOSE, 0, 0);
    engine_free(k);
}

/* Matches the conversation, fetches what only the host has, and compares all of it. Returns the
 * depth found. */
static uint32_t visit(uint32_t id)
{
    struct engine_session k;
    uint32_t got;

    open_talk(&k, id);
    got = k.matched;
    if (k.host_depth > got) {
        enum tern_err err = engine_fetch(&k, NULL, 0, RIG_WAIT_MS);

        if (err != TERN_OK && err != TERN_CORRUPT)
            fail_msg("fetch: %s: %s", err_name(err), engine_why(&e));
        if (err == TERN_CORRUPT) {
            corrupt_answers++;
            assert_int_equal(engine_take(&k, &k.last), TERN_OK); /* what arrived before stays */
        }
        got = k.len.committed;
    }
    compare(&k, got);
    close_talk(&k);
    return got;
}

/* Closes no session before the host has its copies; with `all_copied` copies of everything. */
static void write_all(bool all_copied)
{
    for (uint32_t id = 1; id <= CONVERSATIONS; id++) {
        struct engine_session k;

        open_talk(&k, id);
        write_talk(&k);
        if (all_copied)
            copies_reach(id * PAGES);
        else
            copies_settle();
        close_talk(&k);
    }
}

/* Retracts AWAY sessions to the host, lets others take their pages, and recovers them. Returns
 * their number. */
static uint32_t there_and_back(void)
{
    struct engine_session k[AWAY];
    struct tern_retracted gone;
    uint32_t back = 0;

    for (uint32_t i = 0; i < AWAY; i++) {
        open_talk(&k[i], 1000 + i);
        if (k[i].matched < TOKENS)
            write_talk(&k[i]);
        copies_settle();
        assert_ok(e.tern, tern_retract(e.tern, k[i].id, TERN_RETRACT_HOST, e.step, 0, &gone));
        copies_settle();
    }
    for (uint32_t id = 2000; id < 2000 + 2 * 256 / PAGES; id++) {
        struct engine_session other;

        open_talk(&other, id);
        write_talk(&other);
        close_talk(&other);
    }
    for (uint32_t i = 0; i < AWAY; i++) {
        enum tern_err err = engine_recover(&k[i], RIG_WAIT_MS);

        if (err == TERN_OK) {
            assert_int_equal(k[i].len.committed, TOKENS);
            compare(&k[i], TOKENS);
            back++;
        } else if (err == TERN_CORRUPT) {
            corrupt_answers++;
        } else {
            fail_msg("recover: %s: %s", err_name(err), engine_why(&e));
        }
        close_talk(&k[i]);
    }
    return back;
}

/* ---- tests ---- */

TEST(host_memory_gives_back_what_was_written)
{
    start("");
    write_all(true);
    for (uint32_t round = 0; round < 2; round++)
        for (uint32_t id = 1; id <= CONVERSATIONS; id++)
            assert_int_equal(visit(id), TOKENS);
    assert_int_equal(right_pages, 2 * CONVERSATIONS * PAGES);
    assert_int_equal(there_and_back(), AWAY);
    assert_int_equal(wrong_pages, 0);
    assert_int_equal(corrupt_answers, 0);
    assert_int_equal(figure("host_tier.host_copies_failed"), 0);
    /* Two rounds over three times the device's pages: most of them had to be loaded. */
    assert_true(figure("host_tier.host_loads") >= CONVERSATIONS * PAGES);
    printf("host_memory: copies=%" PRIu64 " loads=%" PRIu64 " pages_compared=%u wrong=0\n",
           figure("host_tier.host_copies"), figure("host_tier.host_loads"), right_pages);
    stop();
}

TEST(host_memory_with_spoilt_copies_gives_back_nothing_wrong)
{
    start("faults:\n  copy_corrupt_every: 31\n");
    for (uint32_t round = 0; round < 2; round++) {
        /* In the first round everything is copied to the host: damaged copies are made again. In
         * the second only what was lost since. */
        write_all(round == 0);
        if (round == 0)
            assert_int_equal(figure("host_tier.host_copies_again"), CONVERSATIONS * PAGES / 30);
        for (uint32_t id = 1; id <= CONVERSATIONS; id++)
            visit(id);
        there_and_back();
    }
    assert_int_equal(wrong_pages, 0);
    assert_true(right_pages > CONVERSATIONS * PAGES / 2);
    assert_true(figure("host_tier.host_copies_failed") > 0);
    assert_true(corrupt_answers > 0);
    copies_settle();
    assert_int_equal(figure("memory.copies_corrupt"), figure("memory.copies_spoilt"));
    printf("host_memory: fault=copy_corrupt failed=%" PRIu64 " corrupt_answers=%u "
           "pages_compared=%u wrong=0 daemon_alive=%d\n",
           figure("host_tier.host_copies_failed"), corrupt_answers, right_pages, rig_alive(&rig));
    stop();
}
