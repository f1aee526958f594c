/* A daemon that is killed and started again on the same configuration (fault 30): it starts with
 * nothing, the old connection is lost, its mapping stays, and every handle from before is GONE on a
 * new one, whatever was under way. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "engine/bytes.h"
#include "engine/daemon.h"
#include "engine/proc.h"
#include "rig_daemon.h"
#include "tern.h"
#include "testing/test.h"

#define RUNS    12
#define CALL_MS 10000
#define L       64
#define PAGE    4096
#define PAGES   16
#define TOKENS  (PAGES * L)
#define SEED    11u /* of page i: SEED + i */

/* An engine and what it holds. */
struct engine {
    struct tern *tern;
    struct tern_pool *map;
    uint64_t pool;
    tern_session session;
    uint32_t table[PAGES];
};

static char dir[64];
static struct daemon daemon_here;
static uint32_t tokens[TOKENS];
static const struct tern_tokens list = {.v = tokens, .n = TOKENS};
static const struct tern_namespace ns = {.model = "m"};
static uint32_t asked, not_gone; /* with old handles; answers that were not GONE */

static void daemon_up(void)
{
    const struct daemon_options options = {
        .node = "one", .memory_bytes = 4u << 20, .regions = 1, .page_bytes_min = PAGE, .core = -1};
    char why[SPAWN_WHY_BYTES] = "";

    if (!daemon_start(&daemon_here, dir, &options, why))
        fail_msg("%s", why);
}

FIXTURE(set_up)
{
    daemon_here.pid = -1;
    assert_true(tempdir_make(dir, sizeof dir, "tern-e2e"));
    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = i;
    daemon_up();
    return 0;
}

FIXTURE(tear_down)
{
    proc_end(&daemon_here.pid);
    tempdir_remove(dir);
    return 0;
}

static void take_runs(struct engine *e, const struct tern_result *r)
{
    for (uint32_t i = 0; i < r->nruns; i++)
        for (uint32_t k = 0; k < r->runs[i].n; k++)
            e->table[r->runs[i].first + k] = r->runs[i].pages[k].index;
}

static uint8_t *page_at(const struct engine *e, uint32_t i)
{
    return tern_pool_base(e->map) + (size_t)e->table[i] * PAGE;
}

/* Joined and mapped, in a daemon that knows nothing yet. */
static void engine_open(struct engine *e)
{
    struct tern_group kv = {.name = "kv", .page_tokens = L, .page_bytes = PAGE};
    struct tern_layout layout = {.groups = &kv, .ngroups = 1, .bytes = 2u << 20};
    uint32_t depth = 1;

    assert_int_equal(tern_connect(daemon_here.socket, CALL_MS, &e->tern), TERN_OK);
    assert_ok(e->tern, tern_join(e->tern, "e", TERN_BOTH, 0, 1, CALL_MS));
    assert_ok(e->tern, tern_pool_open(e->tern, &layout, CALL_MS, &e->pool, NULL));
    assert_ok(e->tern, tern_pool_map(e->tern, e->pool, CALL_MS, &e->map));
    assert_ok(e->tern, tern_peek(e->tern, e->pool, &ns, &list, CALL_MS, &depth));
    assert_int_equal(depth, 0);
}

/* Everything is committed, and the session still runs. */
static void engine_works(struct engine *e)
{
    struct tern_op op = {.kind = TERN_EXTEND, .length = TOKENS, .written = TOKENS};
    struct tern_result r;

    assert_ok(e->tern, tern_session_open(e->tern, e->pool, &ns, CALL_MS, &e->session));
    assert_ok(e->tern, tern_match(e->tern, e->session, &list, 0, CALL_MS, &r));
    op.session = e->session;
    assert_ok(e->tern, tern_do(e->tern, &op, CALL_MS, &r));
    take_runs(e, &r);
    for (uint32_t i = 0; i < PAGES; i++)
        page_fill(page_at(e, i), PAGE, SEED + i);
    op.kind = TERN_COMMIT;
    assert_ok(e->tern, tern_do(e->tern, &op, CALL_MS, &r));
}

/* Requests are under way, and the daemon dies; in one run of four nothing was. */
static void kill_daemon(struct engine *e, uint32_t run)
{
    struct tern_op op = {.kind = TERN_REWIND, .session = e->session, .length = TOKENS};
    struct tern_answer a;
    enum tern_err err;

    for (uint32_t i = 0; i < run % 4; i++) {
        assert_ok(e->tern, tern_submit_match(e->tern, e->session, &list, 0, i));
        assert_ok(e->tern, tern_submit_step(e->tern, &op, 1, i));
    }
    usleep(run % 3 * 200);
    proc_end(&daemon_here.pid);
    while ((err = tern_poll(e->tern, &a)) == TERN_BUSY || err == TERN_OK)
        ;
    assert_int_equal(err, TERN_PEER_LOST);
    assert_int_equal(tern_ping(e->tern, CALL_MS), TERN_PEER_LOST);
}

static void gone(enum tern_err err, const char *what)
{
    asked++;
    if (err == TERN_GONE)
        return;
    not_gone++;
    printf("%s with an old handle: %s\n", what, err_name(err));
}

/* Every call that takes a handle. The table that the engine has now is as it was afterwards. */
static void old_handles_are_gone(struct tern *t, const struct engine *old)
{
    struct tern_op op = {.session = old->session, .length = TOKENS};
    struct tern_retracted away;
    struct tern_pool *map = NULL;
    struct tern_result r;
    tern_session s;
    uint32_t depth;

    gone(tern_match(t, old->session, &list, 0, CALL_MS, &r), "match");
    for (enum tern_op_kind kind = TERN_EXTEND; kind <= TERN_SNAPSHOT_RELEASE; kind++) {
        op.kind = kind;
        gone(tern_do(t, &op, CALL_MS, &r), "an operation of a step");
    }
    gone(tern_fetch(t, old->session, NULL, 0, CALL_MS, &r), "fetch");
    gone(tern_fetch_cancel(t, old->session, CALL_MS), "fetch_cancel");
    gone(tern_retract(t, old->session, TERN_RETRACT_DROP, 0, CALL_MS, &away), "retract");
    gone(tern_recover(t, old->session, CALL_MS, &r), "recover");
    gone(tern_session_open(t, old->pool, &ns, CALL_MS, &s), "session_open");
    gone(tern_peek(t, old->pool, &ns, &list, CALL_MS, &depth), "peek");
    gone(tern_pool_map(t, old->pool, CALL_MS, &map), "pool_map");
    gone(tern_pool_close(t, old->pool, CALL_MS), "pool_close");
}

TEST_WITH(restarted_daemon_is_empty_and_old_handles_are_gone, set_up, tear_down)
{
    struct engine old = {0}, now = {0};
    uint32_t wrong = 0;

    engine_open(&old);
    for (uint32_t run = 0; run < RUNS; run++) {
        uint32_t depth;

        engine_works(&old);
        kill_daemon(&old, run);
        daemon_up();
        engine_open(&now);
        assert_true(tern_incarnation(now.tern) != tern_incarnation(old.tern));
        old_handles_are_gone(now.tern, &old); /* no session is there */
        engine_works(&now);
        old_handles_are_gone(now.tern, &old); /* one is, and a prefix */
        assert_ok(now.tern, tern_peek(now.tern, now.pool, &ns, &list, CALL_MS, &depth));
        assert_int_equal(depth, TOKENS);
        for (uint32_t i = 0; i < PAGES; i++) {
            wrong += page_compare(page_at(&now, i), PAGE, SEED + i) != 0;
            wrong += page_compare(page_at(&old, i), PAGE, SEED + i) != 0; /* mapped still */
            memset(page_at(&old, i), 0xee, PAGE); /* a kernel in flight: into memory of its own */
            wrong += page_compare(page_at(&now, i), PAGE, SEED + i) != 0;
        }
        tern_destroy(old.tern);
        old = now;
        now = (struct engine){0};
        /* The session of this run is left to the next one: it is what dies with the daemon. */
    }
    tern_destroy(old.tern);
    assert_int_equal(wrong, 0);
    assert_int_equal(not_gone, 0);
    printf("fault=30 runs=%d injected=%d violations=0 stale_served=0 old_handles_tried=%u\n", RUNS,
           RUNS, asked);
}
