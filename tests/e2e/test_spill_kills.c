/* A daemon with a disk tier is killed at any instant while it stores, fetches, resets and evicts.
 * After each start every named file is good to its last byte (`ternctl verify`), every acknowledged
 * store is found and fetched, no fetched byte is wrong, and none is from before an acknowledged
 * reset. TERN_FULL=1: 200 kills. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/prng.h"
#include "engine/admin.h"
#include "engine/bytes.h"
#include "engine/engine.h"
#include "engine/json.h"
#include "engine/proc.h"
#include "rig_daemon.h"
#include "testing/test.h"

#define L            64
#define POOL_BYTES   (96 * RIG_PAGE)
#define PAGES_MAX    20 /* of a conversation */
#define TOKENS_MAX   (PAGES_MAX * L)
#define SHARED       (4 * L) /* common prefix of all conversations of a namespace */
#define SPACES       4
#define TALKS        8 /* of a namespace at a time */
#define KILL_MS_MAX  300
#define STORE_MS     20000
#define STALE_LOOKED 4 /* wrong bytes are compared with that many earlier versions */
#define KILLS        6 /* of each layout */
#define KILLS_FULL   100
/* The second tenant's share of the disk, too small for its stores. */
#define SMALL_PART "1M"

enum { ROOMY, SMALL, TENANTS };

/* Everything computed under one name; each reset changes the weights. */
struct space {
    char salt[16];
    uint32_t version;
    bool doubtful; /* a reset was not answered: stored data is of this version, or gone */
};

struct talk {
    uint32_t id, len, acked; /* tokens: its length; length of an acknowledged store */
};

static struct daemon rig;
static struct engine e[TENANTS];
static struct tern *admin;
static char spill[RIG_DIR_BYTES], other[SPAWN_PATH_BYTES];
static struct space space[TENANTS][SPACES];
static struct talk talk[TENANTS][SPACES][TALKS];
static struct prng prng;
static const struct tern_group groups[] = {{.name = "kv", .page_tokens = L, .page_bytes = RIG_PAGE},
                                           {.name = "near",
                                            .page_tokens = L,
                                            .page_bytes = RIG_PAGE,
                                            .family = TERN_WINDOW,
                                            .window = 96,
                                            .reserve = 8}};
static uint32_t ngroups, last_id;
static struct {
    uint64_t acked, checked, lost, wrong, stale, fetched, resets, evicted, unfinished, failed;
} seen;

/* ---- the daemon ---- */

static bool connect_engine(uint32_t tenant, const char *socket)
{
    struct tern_layout layout = {.groups = groups, .ngroups = ngroups, .bytes = POOL_BYTES};

    assert_ok(e[tenant].tern, engine_open(&e[tenant], socket, "e", &layout, RIG_WAIT_MS));
    return true;
}

static void connect_all(void)
{
    admin = rig_connected(rig.admin);
    connect_engine(ROOMY, rig.socket);
    connect_engine(SMALL, other);
}

static void disconnect(void)
{
    for (uint32_t i = 0; i < TENANTS; i++) {
        engine_close(&e[i]);
        e[i] = (struct engine){0};
    }
    tern_destroy(admin);
    admin = NULL;
}

static void again(void)
{
    struct daemon_launch how = {.core = -1, .says_ready = true};
    char why[SPAWN_WHY_BYTES] = "";

    unlink(rig.log);
    if (!daemon_launch(&rig, &how, why))
        fail_msg("%s", why);
    connect_all();
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

/* Verifies every byte of every named file. */
static void verify(void)
{
    char arguments[128];
    json_t *told;

    snprintf(arguments, sizeof arguments, "verify '%s'", spill);
    told = rig_ctl(arguments);
    if (json_array_size(json_at(told, "bad")) > 0)
        fail_msg("%s", json_dumps(told, 0));
    assert_int_equal(json_get_u64(told, "good"), json_get_u64(told, "extents"));
    json_decref(told);
}

/* ---- pages: bytes of the tokens, the name and the version ---- */

static uint64_t seed_of(const struct engine_session *k, uint32_t g, uint32_t i, uint32_t version)
{
    return page_seed(k->table.group[g].prefix[i], i, version);
}

static void fill(const struct engine_session *k, uint32_t from, uint32_t to, uint32_t version)
{
    for (uint32_t g = 0; g < ngroups; g++)
        for (uint32_t i = from / L; i < to / L; i++)
            if (k->table.group[g].index[i])
                page_fill(engine_page(k->engine, g, k->table.group[g].index[i]), RIG_PAGE,
                          seed_of(k, g, i, version));
}

static uint64_t differ(const struct engine_session *k, uint32_t at, uint32_t version)
{
    uint64_t wrong = 0;

    for (uint32_t g = 0; g < ngroups; g++)
        for (uint32_t i = table_window_first(&groups[g], at); i < at / L; i++) {
            uint32_t index = k->table.group[g].index[i];

            wrong += !index ? RIG_PAGE
                            : page_compare(engine_page(k->engine, g, index), RIG_PAGE,
                                           seed_of(k, g, i, version));
        }
    return wrong;
}

static void compare(const struct engine_session *k, const struct space *of)
{
    uint32_t at = k->len.committed;
    uint64_t wrong = at ? differ(k, at, of->version) : 0;

    seen.wrong += wrong;
    for (uint32_t back = 1; wrong && back <= STALE_LOOKED && back <= of->version; back++)
        seen.stale += differ(k, at, of->version - back) == 0;
}

/* ---- actions of an engine: return false if the daemon is gone ---- */

static bool lives(const struct engine *of, const char *what, enum tern_err err)
{
    if (err != TERN_OK && err != TERN_DAEMON_LOST)
        fail_msg("%s: %s: %s", what, err_name(err), tern_error_text(of->tern, NULL));
    return err == TERN_OK;
}

/* Place of a conversation: tenant, namespace, slot. */
struct at {
    uint32_t tenant, space, slot;
};

static struct talk *talk_at(struct at at)
{
    return &talk[at.tenant][at.space][at.slot];
}

static struct space *space_at(struct at at)
{
    return &space[at.tenant][at.space];
}

static bool begin(struct engine_session *k, struct at at, uint32_t len)
{
    uint32_t v[TOKENS_MAX];
    struct engine *of = &e[at.tenant];

    for (uint32_t i = 0; i < len; i++)
        v[i] = (i < SHARED ? at.space + 1 : 100 + talk_at(at)->id) * 10000 + i;
    of->ns.salt = space_at(at)->salt;
    return lives(of, "begin", engine_begin(k, of, v, len));
}

/* Waits while BUSY or POOL_EXHAUSTED: pages being stored are pinned. */
static bool fetch(struct engine_session *k)
{
    uint32_t deep = k->last.disk_depth, had = k->len.committed;
    enum tern_err err = TERN_BUSY;

    if (deep <= had)
        return true;
    for (uint64_t end = rig_now_ms() + RIG_WAIT_MS; rig_now_ms() < end; usleep(500)) {
        err = engine_fetch(k, TERN_PEER_DISK, 0, RIG_WAIT_MS);
        if (err != TERN_BUSY && err != TERN_POOL_EXHAUSTED)
            break;
    }
    if (!lives(k->engine, "fetch", err))
        return false;
    if (k->engine == &e[ROOMY]) /* the other tenant's may have been evicted meanwhile */
        assert_int_equal(k->len.committed, deep);
    seen.fetched += k->len.committed - had;
    return true;
}

static bool compute(struct engine_session *k, uint32_t version)
{
    uint32_t from = k->len.written;
    struct engine_op more = {.kind = ENGINE_EXTEND, .length = k->ntokens, .written = k->ntokens};

    if (!lives(k->engine, "extend", engine_do_within(k, more, RIG_WAIT_MS)))
        return false;
    fill(k, from, k->ntokens, version);
    return lives(k->engine, "publish", engine_publish(k->engine)) &&
           lives(k->engine, "commit", engine_commit(k, k->ntokens));
}

static bool store(struct engine_session *k, struct at at)
{
    uint32_t depth = prng_below(&prng, 2) ? k->ntokens : 0;
    struct tern_stored s;
    enum tern_err err = tern_store(k->engine->tern, k->id, depth, STORE_MS, &s);

    if (err == TERN_INVALID && ngroups > 1) /* no turn ended where the daemon would choose */
        err = tern_store(k->engine->tern, k->id, k->ntokens, STORE_MS, &s);
    if (err == TERN_BUSY || (err == TERN_QUOTA && at.tenant == SMALL))
        return true;
    if (!lives(k->engine, "store", err))
        return false;
    seen.acked++;
    if (s.depth > talk_at(at)->acked)
        talk_at(at)->acked = s.depth;
    return true;
}

static bool end(struct engine_session *k)
{
    return lives(k->engine, "close",
                 engine_do(k, (struct engine_op){.kind = ENGINE_CLOSE, .step = k->engine->step}));
}

/* One more turn of a conversation, or the first turn of a new one. */
static bool turn(struct at at)
{
    struct talk *t = talk_at(at);
    struct engine_session k = {0};
    bool alive;

    if (t->len == 0)
        *t = (struct talk){.id = ++last_id};
    t->len += (1 + prng_below(&prng, 6)) * L;
    t->len = t->len < TOKENS_MAX ? t->len : TOKENS_MAX;
    alive = begin(&k, at, t->len) && fetch(&k);
    if (alive)
        compare(&k, space_at(at));
    alive = alive && compute(&k, space_at(at)->version) &&
            (prng_below(&prng, 3) == 0 || store(&k, at)) && end(&k);
    engine_free(&k);
    return alive;
}

/* Checks how much of it is found, and that it is right. */
static bool look(struct at at, bool all_of_it)
{
    struct talk *t = talk_at(at);
    struct engine_session k = {0};
    uint32_t found;
    bool alive = begin(&k, at, t->len);

    if (alive) {
        found = k.last.disk_depth > k.len.committed ? k.last.disk_depth : k.len.committed;
        if (found < t->acked && at.tenant == ROOMY) {
            printf("lost: %u of %u tokens of conversation %u\n", t->acked - found, t->acked, t->id);
            seen.lost++;
        }
        seen.checked += all_of_it && t->acked > 0;
        alive = fetch(&k);
    }
    if (alive)
        compare(&k, space_at(at));
    alive = alive && end(&k);
    engine_free(&k);
    return alive;
}

/* New weights under the old name. Until the reset is answered, stored data may be found or not. */
static bool reset(struct at at)
{
    struct space *s = space_at(at);
    struct engine *of = &e[at.tenant];

    of->ns.salt = s->salt;
    s->doubtful = true;
    for (uint32_t i = 0; i < TALKS; i++)
        talk[at.tenant][at.space][i].acked = 0;
    if (!lives(of, "reset", tern_namespace_reset(of->tern, &of->ns, RIG_WAIT_MS, NULL, NULL)))
        return false;
    s->doubtful = false;
    s->version++;
    seen.resets++;
    for (uint32_t i = 0; i < TALKS; i++) /* the same tokens, with other weights */
        talk[at.tenant][at.space][i].len = prng_below(&prng, 2) ? SHARED + L : 0;
    return true;
}

static bool is_grown(struct at at)
{
    uint32_t n = 0;

    for (at.slot = 0; at.slot < TALKS; at.slot++)
        n += talk_at(at)->len == TOKENS_MAX;
    return n == TALKS;
}

static bool something(void)
{
    struct at at = {prng_below(&prng, 4) == 0 ? SMALL : ROOMY, prng_below(&prng, SPACES),
                    prng_below(&prng, TALKS)};

    if (is_grown(at) || prng_below(&prng, 200) == 0)
        return reset(at);
    if (talk_at(at)->len == 0 || (talk_at(at)->len < TOKENS_MAX && prng_below(&prng, 2)))
        return turn(at);
    return look(at, false);
}

/* ---- rounds ---- */

static void load_until_killed(void)
{
    uint32_t after_us = prng_below(&prng, KILL_MS_MAX * 1000);
    pid_t killer = proc_fork();
    int status;

    if (killer == 0) {
        usleep(after_us);
        kill(rig.pid, SIGKILL);
        _exit(0);
    }
    while (something())
        ;
    assert_true(proc_wait(&killer, RIG_WAIT_MS, &status));
    assert_true(proc_wait(&rig.pid, RIG_WAIT_MS, &status));
    seen.failed += !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    disconnect();
}

static uint64_t figure(const char *path)
{
    return rig_figure(admin, "status", path);
}

static void look_at_all(void)
{
    struct at at;

    seen.unfinished += figure("spill.recovery.unfinished");
    assert_int_equal(figure("spill.recovery.faults.checksum"), 0);
    for (at.tenant = 0; at.tenant < TENANTS; at.tenant++)
        for (at.space = 0; at.space < SPACES; at.space++) {
            for (at.slot = 0; at.slot < TALKS; at.slot++)
                assert_true(talk_at(at)->len == 0 || look(at, true));
            if (space_at(at)->doubtful)
                assert_true(reset(at));
        }
}

static void kills(uint32_t of_groups)
{
    uint32_t n = getenv("TERN_FULL") ? KILLS_FULL : KILLS;
    char yaml[512];

    ngroups = of_groups;
    memset(&seen, 0, sizeof seen);
    memset(space, 0, sizeof space);
    memset(talk, 0, sizeof talk);
    for (uint32_t t = 0; t < TENANTS; t++)
        for (uint32_t i = 0; i < SPACES; i++)
            snprintf(space[t][i].salt, sizeof space[t][i].salt, "s%u", i);
    prng_init(&prng, (uint64_t)time(NULL) * 100 + of_groups);
    assert_true(tempdir_make(spill, sizeof spill, "tern-spill"));
    snprintf(yaml, sizeof yaml,
             "    spill_bytes: " SMALL_PART "\n"
             "spill: {dir: %s, bytes: 64M, headroom: 0, threads: 2, interval: 512, "
             "align: 256}\n",
             spill);
    rig_start_two(&rig, other, yaml);
    connect_all();
    for (uint32_t i = 0; i < n; i++) {
        load_until_killed();
        verify(); /* as the kill left it */
        again();
        look_at_all();
        seen.evicted += figure("tenants.1.spill.evicted") + figure("tenants.1.spill.pruned");
        verify();
    }
    printf("fault=30 runs=%u injected=%u violations=%" PRIu64 " wrong_bytes=%" PRIu64
           " lost=%" PRIu64 " stale_served=%" PRIu64 " groups=%u acked=%" PRIu64
           " acked_looked_at=%" PRIu64 " fetched_tokens=%" PRIu64 " resets=%" PRIu64
           " unfinished_files=%" PRIu64 "\n",
           n, n, seen.lost + seen.wrong + seen.failed, seen.wrong, seen.lost, seen.stale, ngroups,
           seen.acked, seen.checked, seen.fetched, seen.resets, seen.unfinished);
    assert_int_equal(seen.lost + seen.wrong + seen.stale + seen.failed, 0);
    assert_true(seen.checked > 0 && seen.fetched > 0);
    disconnect();
    assert_int_equal(daemon_end(&rig, RIG_STOP_MS), 0);
    verify();
}

TEST_WITH(spill_is_killed_while_it_stores, NULL, remove_all)
{
    kills(1);
}

TEST_WITH(spill_with_state_is_killed_while_it_stores, NULL, remove_all)
{
    kills(2);
}
