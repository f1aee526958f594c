/* A daemon is killed and started again on the same configuration (fault 30): it starts empty, the
 * old connection is lost, its mapping stays, and every old handle is GONE on a new connection,
 * whatever was in flight. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine.h"
#include "engine/proc.h"
#include "rig_daemon.h"
#include "testing/test.h"

#define RUNS    12
#define CALL_MS 10000
#define L       64
#define PAGE    4096
#define PAGES   16
#define TOKENS  (PAGES * L)

/* An engine and its session. */
struct held {
    struct engine e;
    struct engine_session s;
    struct tern_ticket ticket;
    uint64_t next; /* number of the next change */
};

static char dir[64];
static struct daemon daemon_here;
static uint32_t tokens[TOKENS];
static const struct tern_tokens list = {.v = tokens, .n = TOKENS};
static uint32_t asked, not_gone; /* calls with old handles; answers that were not GONE */

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

/* Joins and maps, in an empty daemon. */
static void opened(struct engine *e)
{
    struct tern_group kv = {.name = "kv", .page_tokens = L, .page_bytes = PAGE};
    struct tern_layout layout = {.groups = &kv, .ngroups = 1, .bytes = 2u << 20};
    struct tern_depths depths = {.resumable = 1};

    assert_ok(e->tern, engine_open(e, daemon_here.socket, "e", &layout, CALL_MS));
    assert_ok(e->tern, tern_peek(e->tern, e->pool, &e->ns, &list, CALL_MS, &depths));
    assert_int_equal(depths.resumable, 0);
}

/* The change where a subscription begins; 0 with *ret_err if it does not. */
static uint64_t begins_at(struct tern *t, uint64_t from, enum tern_err *ret_err)
{
    struct tern_answer a;
    uint64_t next = 0;

    assert_ok(t, tern_subscribe(t, &(struct tern_subscription){.from = from}, 1));
    assert_ok(t, answer_wait(t, CALL_MS, &a));
    *ret_err = a.err;
    if (a.err == TERN_OK) {
        next = a.events->next;
        assert_ok(t, tern_unsubscribe(t, 1, CALL_MS));
    }
    return next;
}

/* Everything is committed, the session still runs, and the engine keeps what it may resume from. */
static void engine_works(struct held *h)
{
    enum tern_err err;

    engine_free(&h->s);
    assert_ok(h->e.tern, engine_begin(&h->s, &h->e, tokens, TOKENS));
    assert_ok(h->e.tern, engine_run(&h->s));
    assert_ok(h->e.tern, tern_ticket_open(h->e.tern, h->s.id, 0, CALL_MS, &h->ticket));
    h->next = begins_at(h->e.tern, 0, &err);
    assert_err(TERN_OK, err);
}

/* Requests are in flight when the daemon dies; in one run of four none is. */
static void kill_daemon(struct held *h, uint32_t run)
{
    struct engine_op op = {
        .kind = ENGINE_REWIND, .step = TERN_STEP_NONE, .session = h->s.id, .length = TOKENS};
    struct tern_answer a;
    enum tern_err err;

    for (uint32_t i = 0; i < run % 4; i++) {
        assert_ok(h->e.tern, tern_submit_match(h->e.tern, h->s.id, &list, TERN_STEP_NONE, i));
        assert_ok(h->e.tern, op_add(h->e.batch, &op));
        assert_ok(h->e.tern, tern_batch_submit(h->e.batch, i));
    }
    usleep(run % 3 * 200);
    proc_end(&daemon_here.pid);
    while ((err = tern_poll(h->e.tern, &a)) == TERN_BUSY || err == TERN_OK)
        ;
    assert_int_equal(err, TERN_DAEMON_LOST);
    assert_int_equal(tern_ping(h->e.tern, CALL_MS), TERN_DAEMON_LOST);
}

static void gone(enum tern_err err, const char *what)
{
    asked++;
    if (err == TERN_GONE)
        return;
    not_gone++;
    printf("%s with an old handle: %s\n", what, err_name(err));
}

/* Makes every call that takes a handle. The engine's present table must not change. */
static void old_handles_are_gone(struct tern *t, const struct held *old)
{
    struct engine_op op = {.step = TERN_STEP_NONE, .session = old->s.id, .length = TOKENS};
    struct tern_retracted away;
    struct tern_pool *map = NULL;
    struct tern_result r;
    tern_session s;
    struct tern_depths depths;
    uint32_t stands_ms;
    enum tern_err err;

    (void)begins_at(t, old->next, &err);
    gone(err, "subscribe");
    (void)begins_at(t, old->next - 1, &err);
    gone(err, "subscribe");
    gone(tern_ticket_renew(t, old->ticket.text, 0, CALL_MS, &stands_ms), "ticket_renew");
    gone(tern_ticket_drop(t, old->ticket.text, CALL_MS), "ticket_drop");
    gone(tern_match(t, old->s.id, &list, TERN_STEP_NONE, CALL_MS, &r), "match");
    for (enum engine_op_kind kind = ENGINE_EXTEND; kind <= ENGINE_SNAPSHOT_RELEASE; kind++) {
        op.kind = kind;
        gone(op_do(t, &op, CALL_MS, &r), "an operation of a step");
    }
    gone(tern_fetch(t, old->s.id, &(struct tern_fetch){.step = TERN_STEP_NONE}, CALL_MS, &r),
         "fetch");
    gone(tern_fetch_cancel(t, old->s.id, CALL_MS), "fetch_cancel");
    gone(tern_retract(t, old->s.id, TERN_RETRACT_DROP, TERN_STEP_NONE, CALL_MS, &away), "retract");
    gone(tern_recover(t, old->s.id, CALL_MS, &r), "recover");
    gone(tern_session_open(t, old->e.pool, &old->e.ns, NULL, CALL_MS, &s), "session_open");
    gone(tern_peek(t, old->e.pool, &old->e.ns, &list, CALL_MS, &depths), "peek");
    gone(tern_pool_map(t, old->e.pool, CALL_MS, &map), "pool_map");
    gone(tern_pool_close(t, old->e.pool, CALL_MS), "pool_close");
}

TEST_WITH(x6_restarted_daemon_is_empty_and_what_was_kept_of_it_is_gone, set_up, tear_down)
{
    struct held old = {0}, now = {0};
    uint64_t wrong = 0;

    opened(&old.e);
    for (uint32_t run = 0; run < RUNS; run++) {
        struct tern_depths depths;

        engine_works(&old);
        kill_daemon(&old, run);
        daemon_up();
        opened(&now.e);
        assert_true(tern_incarnation(now.e.tern) != tern_incarnation(old.e.tern));
        old_handles_are_gone(now.e.tern, &old); /* the new daemon has no session */
        engine_works(&now);
        old_handles_are_gone(now.e.tern, &old); /* it has one, and a prefix */
        assert_ok(now.e.tern,
                  tern_peek(now.e.tern, now.e.pool, &now.e.ns, &list, CALL_MS, &depths));
        assert_int_equal(depths.resumable, TOKENS);
        old.s.engine = &old.e; /* old and new have been swapped */
        now.s.engine = &now.e;
        wrong += engine_wrong(&now.s, TOKENS) + engine_wrong(&old.s, TOKENS); /* still mapped */
        for (uint32_t i = 0; i < PAGES; i++) /* a kernel in flight: into memory of the old life */
            memset(engine_page(&old.e, 0, old.s.table.group[0].index[i]), 0xee, PAGE);
        wrong += engine_wrong(&now.s, TOKENS);
        engine_free(&old.s);
        engine_close(&old.e);
        old = now;
        now = (struct held){0};
        /* The session of this run is left for the next run: it dies with the daemon. */
    }
    engine_close(&old.e);
    assert_int_equal(wrong, 0);
    assert_int_equal(not_gone, 0);
    printf("fault=30 runs=%d injected=%d violations=0 stale_served=0 old_handles_tried=%u\n", RUNS,
           RUNS, asked);
}
