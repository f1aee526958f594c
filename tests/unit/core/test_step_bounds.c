/* T20: no step of the core visits more records than a named count, however large a pool is: what is
 * left over goes on in the next step. core_step checks the sum itself. */
#include "unit/rig/rig_host.h"

#define NODES 20000
#define MANY  100000 /* evicting them visits more records than one step may */

/* A pool that is full of prefixes, committed and with all their checksums. No audit: it would look
 * at all of that after each of some thousand events. */
static struct bench bench_full_of(uint32_t nodes)
{
    struct rig_options o = rig_defaults();
    struct group_layout group = rig_group(4, 512);
    struct bench b;

    o.limits.nodes = nodes + 16;
    o.limits.pages = 2 * nodes;
    o.limits.token_blocks = 2 * nodes + 16;
    o.tenant[0].memory_bytes = (uint64_t)nodes * 1024;
    group.cap_pages = nodes;
    b = bench_with(&o, 4, 16);
    assert_ok(rig_close(b.s, 0));
    assert_ok(rig_pool_open(b.rig, b.e.conn[0], &group, 1, (uint64_t)nodes * 640, &b.pool));
    b.s = rig_session(b.rig, &b.e, b.pool, 1);
    b.rig->no_audit = true;
    for (uint32_t seed = 1; seed <= nodes / 1000; seed++)
        rig_put(b.rig, &b.e, b.pool, seed, 4000);
    assert_int_equal(rig_pool_view(b.rig, b.pool).nodes, nodes);
    assert_int_equal(rig_free(b.rig, b.pool), 0);
    return b;
}

static struct bench full_bench(void)
{
    return bench_full_of(NODES);
}

struct pace {
    const struct core *core;
    uint32_t nodes, steps, most; /* nodes that went in one step */
};

static void note_pace(void *ctx, const struct event *event)
{
    struct pace *pace = ctx;
    uint32_t now = pace->core->limits.nodes - pace->core->free_nodes.n, gone = pace->nodes - now;

    (void)event;
    pace->most = gone > pace->most ? gone : pace->most;
    pace->nodes = now;
    pace->steps++;
}

/* From now on: how much goes in one step. */
static void watch(struct bench *b, struct pace *pace)
{
    *pace = (struct pace){.core = b->rig->core, .nodes = NODES + 1};
    b->rig->on_event = note_pace;
    b->rig->on_event_ctx = pace;
}

static void assert_in_pieces(struct bench *b, struct pace *pace)
{
    rig_runs_free(b->rig);
    note_pace(pace, NULL);
    assert_true(pace->most > 0 && pace->most <= PIECE_VISITS_MAX);
    assert_true(pace->steps >= NODES / PIECE_VISITS_MAX);
    assert_int_equal(rig_view(b->rig).nodes, 0);
}

TEST(step_an_operator_evicts_a_full_pool_in_pieces)
{
    struct bench b = full_bench();
    struct request evict = {.op = OP_EVICT, .evict.pool = {.slot = NONE}};
    const struct reply *r;
    struct pace pace;

    assert_ok(rig_close(b.s, 0));
    watch(&b, &pace);
    rig_request(b.rig, b.admin, &evict);
    assert_in_pieces(&b, &pace);
    r = rig_reply_to(b.rig, evict.request_id);
    assert_non_null(r);
    assert_int_equal(r->evict.nodes, NODES);
    assert_int_equal(r->evict.pages, NODES);
    assert_int_equal(rig_free(b.rig, b.pool), NODES);
}

TEST(step_a_full_pool_closes_in_pieces)
{
    struct bench b = full_bench();
    struct pace pace;

    assert_ok(rig_close(b.s, 0));
    watch(&b, &pace);
    assert_ok(rig_pool_close(b.rig, b.e.conn[0], b.pool));
    assert_in_pieces(&b, &pace);
}

/* E4, T11: the first refusal counts what changed since; after that a refusal looks at nothing. */
TEST(step_a_refused_extend_visits_nothing)
{
    struct bench b = full_bench();

    assert_ok(rig_match(b.s, rig_tokens(1, 4000), 4000)); /* pins 1,000 nodes */
    for (uint32_t times = 0; times < 2; times++) {
        assert_err(TERN_POOL_EXHAUSTED, rig_extend(b.s, 4 * NODES + 4, 0, NULL, 0));
        assert_int_equal(b.rig->res.shortage.reclaimable, NODES - 1000);
        assert_true(times == 0 || b.rig->core->visits == 0);
    }
    assert_int_equal(rig_view(b.rig).evicted_nodes, 0);
}

/* T11: an extend that takes more evictions than a step may make is told BUSY. What went stays gone,
 * and repeated the request goes on from there. */
TEST(step_an_extend_that_evicts_too_much_goes_on_when_repeated)
{
    struct bench b = bench_full_of(MANY);
    const struct request extend = {
        .op = OP_STEP,
        .step = {.ops =
                     &(struct step_op){.kind = STEP_EXTEND, .session = b.s->id, .length = 4 * MANY},
                 .n = 1}};
    enum tern_err err;
    uint32_t gone = 0, busy = 0;

    do {
        struct request r = extend;
        const struct reply *reply = rig_request(b.rig, b.s->conn, &r);

        assert_non_null(reply);
        err = reply->step.results[0].err;
        if (err == TERN_BUSY) {
            assert_string_equal(reply->step.results[0].text,
                                "more has to be evicted than one step does: repeat, it goes on");
            assert_int_equal(reply->step.results[0].lengths.allocated, 0);
            assert_true(rig_view(b.rig).evicted_nodes > gone);
            gone = (uint32_t)rig_view(b.rig).evicted_nodes;
            busy++;
        }
    } while (err == TERN_BUSY && busy < 8);
    assert_ok(err);
    assert_true(busy > 0 && gone < MANY);
    assert_int_equal(rig_view(b.rig).evicted_nodes, MANY);
    assert_int_equal(rig_free(b.rig, b.pool), 0);
}
