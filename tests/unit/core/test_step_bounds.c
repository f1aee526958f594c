/* T20: no step of the core visits more records than a named count, however large a pool is. The
 * rest continues in the next step, and other requests are answered in between. core_step checks the
 * sum itself. TERN_FULL=1: pools and engines of the largest size. */
#include "unit/rig/rig_host.h"
#include "unit/rig/rig_ticket.h"

#include <stdlib.h>

#define NODES        80000
#define EVICT_FULL   460000
#define CLOSE_FULL   153000
#define SESSIONS_MAX 4096   /* of an engine that dies */
#define MANY         100000 /* their eviction visits more records than one step may */

static uint32_t of_size(uint32_t ordinary, uint32_t full)
{
    return getenv("TERN_FULL") ? full : ordinary;
}

/* Opens a pool for `nodes` nodes of one page. No audit: it would look at all of them after each of
 * some thousand events. */
static struct bench bench_for(uint32_t nodes)
{
    struct rig_options o = rig_defaults();
    struct group_layout group = rig_group(4, 512);
    struct bench b;

    o.limits.nodes = nodes + 64;
    o.limits.seal_jobs = SEALED_JOBS_MAX;
    o.limits.pages = 2 * nodes;
    o.limits.token_blocks = 2 * nodes + 16;
    o.tenant[0].memory_bytes = (uint64_t)nodes * 1024;
    group.cap_pages = nodes;
    b = bench_with(&o, 4, 16);
    assert_ok(rig_close(b.s, 0));
    assert_ok(rig_pool_open(b.rig, b.e.conn[0], &group, 1, (uint64_t)nodes * 640, &b.pool));
    b.s = rig_session(b.rig, &b.e, b.pool, 1);
    b.rig->no_audit = true;
    return b;
}

static void fill(struct bench *b, uint32_t nodes)
{
    for (uint32_t seed = 1; seed <= nodes / 1000; seed++)
        rig_put(b->rig, &b->e, b->pool, seed, 4000);
}

/* A pool full of committed prefixes, with all their checksums known. */
static struct bench bench_full_of(uint32_t nodes)
{
    struct bench b = bench_for(nodes);

    fill(&b, nodes);
    assert_int_equal(rig_pool_view(b.rig, b.pool).nodes, nodes);
    assert_int_equal(rig_free(b.rig, b.pool), 0);
    return b;
}

static struct bench full_bench(void)
{
    return bench_full_of(NODES);
}

/* A request of the engine between two steps: its answer must come at once, as the first action. */
static void answered_between(struct rig *rig, const struct rig_engine *e, struct pool_id pool)
{
    struct event ev = {.kind = EV_REQUEST, .now_ns = rig->now_ns};

    ev.request.op = OP_POOL_MAP;
    ev.request.conn = e->conn[0];
    ev.request.pool_map.pool = pool;
    core_step(rig->core, &ev, rig->out);
    assert_true(rig->out->n >= 1);
    assert_err(TERN_OK, rig->out->v[0].reply.err);
}

struct pace {
    struct bench *b;
    struct rig_engine other;
    struct pool_id pool; /* of the other engine */
    uint32_t full_of, nodes, steps, between;
    uint32_t most, visits; /* nodes freed in one step; visits of one */
};

static void note_pace(void *ctx, const struct event *event)
{
    struct pace *pace = ctx;
    const struct core *core = pace->b->rig->core;
    uint32_t now = core->limits.nodes - core->free_nodes.n, gone = pace->nodes - now;

    (void)event;
    pace->most = gone > pace->most ? gone : pace->most;
    pace->visits = core->visits > pace->visits ? core->visits : pace->visits;
    pace->nodes = now;
    pace->steps++;
    if (gone > 0 && now > 3 * PIECE_VISITS_MAX) { /* the rig completes the last part */
        answered_between(pace->b->rig, &pace->other, pace->pool);
        pace->nodes = core->limits.nodes - core->free_nodes.n;
        pace->most = now - pace->nodes > pace->most ? now - pace->nodes : pace->most;
        pace->between++;
    }
}

/* Measures from now on how much one step frees. */
static void watch(struct bench *b, struct pace *pace, uint32_t nodes)
{
    const struct group_layout group = rig_group(4, 64);

    *pace = (struct pace){.b = b, .full_of = nodes, .nodes = nodes + 1};
    pace->other = rig_engine(b->rig, 1, "other", 1);
    assert_ok(rig_pool_open(b->rig, pace->other.conn[0], &group, 1, 4096, &pace->pool));
    b->rig->on_event = note_pace;
    b->rig->on_event_ctx = pace;
}

static void assert_in_pieces(struct bench *b, struct pace *pace)
{
    rig_runs_free(b->rig);
    note_pace(pace, NULL);
    assert_true(pace->most > 0 && pace->most <= PIECE_VISITS_MAX);
    assert_true(pace->visits > 0 && pace->visits <= 2 * PIECE_VISITS_MAX);
    assert_true(pace->steps + pace->between >= pace->full_of / PIECE_VISITS_MAX);
    assert_true(pace->between > 0);
    assert_int_equal(rig_view(b->rig).nodes, 0);
}

TEST(step_an_operator_evicts_a_full_pool_in_pieces)
{
    uint32_t nodes = of_size(NODES, EVICT_FULL);
    struct bench b = bench_full_of(nodes);
    struct request evict = {.op = OP_EVICT, .evict.pool = {.slot = NONE}};
    const struct reply *r;
    struct pace pace;

    assert_ok(rig_close(b.s, 0));
    watch(&b, &pace, nodes);
    rig_request(b.rig, b.admin, &evict);
    assert_in_pieces(&b, &pace);
    r = rig_reply_to(b.rig, evict.request_id);
    assert_non_null(r);
    assert_int_equal(r->evict.nodes, nodes);
    assert_int_equal(r->evict.pages, nodes);
    assert_int_equal(rig_free(b.rig, b.pool), nodes);
}

TEST(step_a_full_pool_closes_in_pieces)
{
    uint32_t nodes = of_size(NODES, CLOSE_FULL);
    struct bench b = bench_full_of(nodes);
    struct pace pace;

    assert_ok(rig_close(b.s, 0));
    watch(&b, &pace, nodes);
    assert_ok(rig_pool_close(b.rig, b.e.conn[0], b.pool));
    assert_in_pieces(&b, &pace);
}

static void note_total(void *ctx, const struct event *event)
{
    struct pace *pace = ctx;
    uint32_t visits = pace->b->rig->core->visits;

    (void)event;
    pace->visits = visits > pace->visits ? visits : pace->visits;
    pace->most += visits;
    pace->steps++;
}

#define RESETS 16

/* N1: one pass over all nodes serves every namespace that was reset before it began. */
TEST(step_many_resets_are_swept_once_and_in_pieces)
{
    struct bench b = full_bench();
    struct pace pace = {.b = &b};

    assert_ok(rig_close(b.s, 0));
    for (uint32_t ns = 2; ns <= RESETS; ns++) {
        struct rig_session *s = rig_session(b.rig, &b.e, b.pool, ns);

        assert_ok(rig_match(s, rig_tokens(1, 4), 4));
        assert_ok(rig_run_to(s, rig_tokens(1, 4), 4));
        assert_ok(rig_commit(s, 4, 0));
        assert_ok(rig_close(s, 0));
    }
    for (uint32_t ns = 1; ns <= RESETS; ns++) {
        struct event ev = {.kind = EV_REQUEST, .now_ns = b.rig->now_ns};

        ev.request.op = OP_NAMESPACE_RESET;
        ev.request.conn = b.e.conn[0];
        ev.request.namespace_reset.ns = (struct namespace_id){.hi = 1, .lo = ns};
        core_step(b.rig->core, &ev, b.rig->out);
        assert_err(TERN_OK, b.rig->out->v[0].reply.err);
    }
    b.rig->on_event = note_total;
    b.rig->on_event_ctx = &pace;
    rig_timers(b.rig);
    note_total(&pace, NULL);
    assert_int_equal(rig_view(b.rig).nodes, 0);
    assert_true(pace.steps > NODES / PIECE_VISITS_MAX && pace.visits <= 2 * PIECE_VISITS_MAX);
    assert_true(pace.most <= (2 + 2 * NODE_VISITS) * NODES);
}

/* E4, T11: the first refusal counts what changed since the last one; later ones look at nothing. */
TEST(step_a_refused_extend_visits_nothing)
{
    struct bench b = full_bench();
    struct rig_session *other = rig_session(b.rig, &b.e, b.pool, 1);

    assert_ok(rig_match(b.s, rig_tokens(1, 4000), 4000)); /* pins 1,000 nodes */
    assert_ok(rig_match(other, rig_tokens(9, 4), 4));     /* pins one node */
    for (uint32_t times = 0; times < 2; times++) {
        assert_err(TERN_POOL_EXHAUSTED, rig_extend(other, 4 * NODES, 0, NULL, 0));
        assert_int_equal(b.rig->res.shortage.evictable, NODES - 1001);
        assert_true(times == 0 || b.rig->core->visits == 0);
    }
    assert_int_equal(rig_view(b.rig).evicted_nodes, 0);
}

/* E4: a request that checksum jobs hold up is repeated again and again. Each time it looks at few
 * jobs, however many there are. */
TEST(step_a_refusal_looks_at_few_of_many_jobs)
{
    const uint32_t nodes = 20000;
    struct bench b = bench_for(nodes);

    b.rig->automatic = BY_HAND(RIG_SEAL);
    fill(&b, nodes);
    assert_ok(rig_match(b.s, rig_tokens(90, 64), 64));
    for (uint32_t times = 0; times < 3; times++) {
        assert_err(TERN_BUSY, rig_extend(b.s, 4 * nodes, 0, NULL, 0));
        assert_true(times == 0 || b.rig->core->visits <= 2200);
    }
    assert_int_equal(rig_view(b.rig).evicted_nodes, 0);
}

/* T11: an extend that takes more evictions than a step may make is BUSY. The evicted prefixes stay
 * evicted, and a repetition continues from there. */
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
            assert_string_equal(
                reply->step.results[0].text,
                "more pages than one step may handle must first be evicted, copied to the host or "
                "released: retry in a moment, which continues the work");
            assert_int_equal(reply->step.results[0].lengths.allocated, 0);
            assert_true(rig_view(b.rig).evicted_nodes > gone);
            gone = (uint32_t)rig_view(b.rig).evicted_nodes;
            busy++;
        }
    } while (err == TERN_BUSY && busy < 256);
    assert_ok(err);
    assert_true(busy > 0 && gone < MANY);
    assert_int_equal(rig_view(b.rig).evicted_nodes, MANY);
    assert_int_equal(rig_free(b.rig, b.pool), 0);
}

/* ---- pages that are released at once ---- */

#define CROWD      60   /* sessions */
#define OWN_PAGES  1000 /* of each; all are more than a step can return */
#define OWN_TOKENS (4 * OWN_PAGES)

/* Engine "big" has sessions with many pages each; b.e belongs to another tenant. */
struct crowd {
    struct bench b;
    struct rig_engine big;
    struct pool_id pool;
    struct rig_session *s[SESSIONS_MAX];
    uint32_t sessions, own_tokens;       /* of each session */
    uint32_t steps, most, between, gone; /* steps with work left; the most visits of one; answers;
                                            engines that went */
};

static struct crowd crowd_of(uint32_t sessions, uint32_t own_pages)
{
    struct rig_options o = rig_defaults();
    struct group_layout group = rig_group(4, 64);
    struct crowd w = {.sessions = sessions, .own_tokens = 4 * own_pages};

    o.limits.sessions = o.tenant[1].sessions_max = 2 * sessions;
    o.limits.nodes = 4 * own_pages + 16;
    o.limits.pages = 4 * sessions * own_pages;
    o.limits.token_blocks = 4 * sessions * own_pages;
    o.tenant[1].memory_bytes = 128ull * sessions * own_pages;
    w.b = bench_with(&o, 4, 16);
    w.big = rig_engine(w.b.rig, 1, "big", 1);
    w.b.rig->no_audit = true;
    assert_ok(rig_pool_open(w.b.rig, w.big.conn[0], &group, 1, 64 * (sessions * own_pages + 256),
                            &w.pool));
    for (uint32_t i = 0; i < sessions; i++) {
        w.s[i] = rig_session(w.b.rig, &w.big, w.pool, 1);
        assert_ok(rig_run_to(w.s[i], rig_tokens(i + 1, w.own_tokens), w.own_tokens));
    }
    w.b.rig->no_audit = sessions > CROWD;
    return w;
}

static struct crowd crowd(void)
{
    return crowd_of(CROWD, OWN_PAGES);
}

/* Before each step: records the last one, and checks that the other engine is answered. The audit
 * looks at every step, so also at sessions that are half returned. */
static void note_step(void *ctx, const struct event *event)
{
    struct crowd *w = ctx;
    struct rig *rig = w->b.rig;

    (void)event;
    if (rig->core->visits > w->most)
        w->most = rig->core->visits;
    if (!gives_back(rig->core))
        return;
    w->steps++;
    answered_between(rig, &w->b.e, w->b.pool);
    assert_true(rig->out->n == 1 || (rig->out->n == 2 && !gives_back(rig->core)));
    w->between++;
    w->gone += rig->out->n - 1;
}

static void watch_crowd(struct crowd *w)
{
    w->b.rig->on_event = note_step;
    w->b.rig->on_event_ctx = w;
}

static void assert_bounded(struct crowd *w, uint32_t visits)
{
    rig_runs_free(w->b.rig);
    note_step(w, NULL);
    assert_true(w->most <= visits);
    assert_true(w->steps >= 2 && w->between == w->steps);
    assert_false(gives_back(w->b.rig->core));
}

/* Closes all sessions in one Step; each step makes at most `visits` visits until all is
 * returned. */
static void close_all(struct crowd *w, uint64_t step, uint32_t visits)
{
    static struct step_op ops[STEP_OPS_MAX];
    const struct reply *r;

    watch_crowd(w);
    for (uint32_t i = 0; i < w->sessions; i++)
        ops[i] = (struct step_op){.kind = STEP_CLOSE, .session = w->s[i]->id, .step = step};
    r = rig_step_ops(w->b.rig, w->big.conn[0], ops, w->sessions);
    assert_int_equal(r->step.n, w->sessions);
    for (uint32_t i = 0; i < w->sessions; i++)
        assert_err(TERN_OK, r->step.results[i].err);
    assert_bounded(w, visits);
}

/* Each operation has its result at once and nobody finds the sessions any more; their pages come
 * free in pieces. */
TEST(t20_a_step_that_closes_many_sessions_gives_back_in_pieces)
{
    struct crowd w = crowd();
    uint32_t total = rig_pool_view(w.b.rig, w.pool).group[0].total;

    close_all(&w, 0, 2 * PIECE_VISITS_MAX + CROWD * PIECE_VISITS_LEAST); /* each has the least */
    assert_int_equal(rig_free(w.b.rig, w.pool), total);
    assert_int_equal(rig_view(w.b.rig).sessions, 1); /* the other engine's */
    assert_err(TERN_GONE, rig_extend(w.s[CROWD - 1], OWN_TOKENS + 4, 0, NULL, 0));
}

/* The least of a piece for each session would exceed what a Step may do. */
TEST(t20_a_step_full_of_closes_gives_back_in_pieces)
{
    struct crowd w = crowd_of(STEP_OPS_MAX, 2 * GIVE_AT_ONCE_PAGES);
    uint32_t total = rig_pool_view(w.b.rig, w.pool).group[0].total;

    close_all(&w, 0, BATCH_VISITS_MAX + PIECE_VISITS_MAX);
    assert_int_equal(rig_free(w.b.rig, w.pool), total);
}

/* The same behind a step that has to pass: the pages first go into releases, and then come free. */
TEST(t20_a_step_that_passes_frees_in_pieces)
{
    struct crowd w = crowd();
    uint32_t total = rig_pool_view(w.b.rig, w.pool).group[0].total;

    close_all(&w, 7, 2 * PIECE_VISITS_MAX + CROWD * PIECE_VISITS_LEAST);
    assert_int_equal(rig_retiring(w.b.rig, w.pool), CROWD * OWN_PAGES);
    rig_engine_done(w.b.rig, &w.big, 6);
    assert_int_equal(rig_retiring(w.b.rig, w.pool), CROWD * OWN_PAGES);
    w.steps = w.between = 0;
    rig_engine_done(w.b.rig, &w.big, 7);
    assert_bounded(&w, 2 * PIECE_VISITS_MAX + CROWD * PIECE_VISITS_LEAST);
    assert_int_equal(rig_free(w.b.rig, w.pool), total);
}

/* E1: an engine that is gone is taken apart in pieces: sessions that were closed before, open ones,
 * and a commit whose step never passed. The name is free after the last piece. */
TEST(t20_an_engine_that_is_gone_is_taken_apart_in_pieces)
{
    struct crowd w = crowd_of(of_size(CROWD, SESSIONS_MAX), of_size(OWN_PAGES, 60));
    uint32_t total = rig_pool_view(w.b.rig, w.pool).group[0].total;
    uint32_t late = rig_connect(w.b.rig, 1, NULL);

    for (uint32_t i = 0; i < 4; i++)
        assert_ok(rig_commit(w.s[i], w.own_tokens, 9));
    for (uint32_t i = 4; i < 8; i++)
        assert_ok(rig_close(w.s[i], 9));
    watch_crowd(&w);
    rig_engine_kill(w.b.rig, &w.big, 0);
    assert_bounded(&w, 2 * PIECE_VISITS_MAX);
    assert_int_equal(w.gone + w.b.rig->engines_gone, 1);
    assert_int_equal(rig_view(w.b.rig).nodes, 1); /* the root of the other engine's */
    assert_int_equal(rig_free(w.b.rig, w.pool), total);
    assert_ok(rig_join(w.b.rig, late, "big", ROLE_BOTH, 0, 1));
}

/* A join under its name meanwhile is BUSY. */
TEST(e1_the_name_of_an_engine_is_taken_until_all_that_it_held_is_given_back)
{
    struct crowd w = crowd();
    uint32_t late = rig_connect(w.b.rig, 1, NULL);
    struct event gone = {.kind = EV_PROC_GONE, .proc.proc = w.big.proc[0]};
    struct event join = {.kind = EV_REQUEST,
                         .request = {.op = OP_ENGINE_JOIN,
                                     .conn = late,
                                     .join = {.name = "big", .role = ROLE_BOTH, .world = 1}}};

    gone.now_ns = join.now_ns = w.b.rig->now_ns;
    core_step(w.b.rig->core, &gone, w.b.rig->out);
    assert_int_equal(w.b.rig->out->n, 0);
    core_step(w.b.rig->core, &join, w.b.rig->out);
    assert_err(TERN_BUSY, w.b.rig->out->v[0].reply.err);
    rig_timers(w.b.rig);
    assert_int_equal(w.b.rig->engines_gone, 1);
    assert_ok(rig_join(w.b.rig, late, "big", ROLE_BOTH, 0, 1));
}

/* ---- one huge session ---- */

#define HUGE_PAGES 100000
#define HUGE_KEEPS 5 /* tokens */

/* Runs one operation on the bench's session. Returns its result. */
static const struct op_result *huge_op(struct bench *b, struct step_op op)
{
    struct event ev = {.kind = EV_REQUEST, .now_ns = b->rig->now_ns};

    op.session = b->s->id;
    ev.request.op = OP_STEP;
    ev.request.conn = b->s->conn;
    ev.request.step.ops = &op;
    ev.request.step.n = 1;
    ev.request.step.pieces = true;
    core_step(b->rig->core, &ev, b->rig->out);
    assert_err(TERN_OK, b->rig->out->v[0].reply.err);
    return &b->rig->out->v[0].reply.step.results[0];
}

static struct bench huge_bench(struct rig_engine *ret_other, struct pool_id *ret_theirs)
{
    struct rig_options o = rig_defaults();
    struct group_layout group = rig_group(4, 64);
    uint32_t token = 1;
    struct step_op extend = {.kind = STEP_EXTEND,
                             .length = 4 * HUGE_PAGES,
                             .written = 1,
                             .tokens = {.v = &token, .n = 1}};
    struct bench b;

    o.limits.pages = 2 * HUGE_PAGES;
    o.tenant[0].memory_bytes = 128ull * HUGE_PAGES;
    b = bench_with(&o, 4, 16);
    assert_ok(rig_close(b.s, 0));
    assert_ok(rig_pool_open(b.rig, b.e.conn[0], &group, 1, 64 * (HUGE_PAGES + 256), &b.pool));
    b.s = rig_session(b.rig, &b.e, b.pool, 1);
    b.rig->no_audit = true;
    *ret_other = rig_engine(b.rig, 1, "other", 1);
    assert_ok(rig_pool_open(b.rig, ret_other->conn[0], &group, 1, 4096, ret_theirs));
    assert_err(TERN_OK, huge_op(&b, extend)->err);
    return b;
}

/* T20: Rewind, Finish and Abort are answered at once. The pages come free in pieces, the session is
 * BUSY until then, and may continue afterwards. No page is free before the step that was named. */
TEST(t20_one_huge_session_gives_back_in_pieces)
{
    static const enum step_op_kind kinds[] = {STEP_REWIND, STEP_FINISH, STEP_ABORT};

    for (uint32_t i = 0; i < 6; i++) {
        const struct step_op more = {.kind = STEP_EXTEND, .length = 64};
        struct step_op op = {.kind = kinds[i % 3], .length = HUGE_KEEPS, .step = i < 3 ? 0 : 7};
        uint32_t keeps = op.kind == STEP_ABORT ? 0 : HUGE_KEEPS, pieces = 0, total;
        struct rig_engine other;
        struct pool_id theirs;
        struct bench b = huge_bench(&other, &theirs);
        const struct op_result *r = huge_op(&b, op);

        total = rig_pool_view(b.rig, b.pool).group[0].total;
        assert_err(TERN_OK, r->err);
        assert_int_equal(r->lengths.allocated, keeps);
        for (; gives_back(b.rig->core); pieces++) {
            assert_true(b.rig->core->visits <= 2 * PIECE_VISITS_MAX);
            assert_err(TERN_BUSY, huge_op(&b, more)->err);
            answered_between(b.rig, &other, theirs);
        }
        assert_true(pieces > 2);
        assert_int_equal(rig_retiring(b.rig, b.pool), i < 3 ? 0 : HUGE_PAGES - div_up(keeps, 4));
        rig_engine_done(b.rig, &b.e, 7);
        rig_runs_free(b.rig);
        assert_int_equal(rig_free(b.rig, b.pool), total - div_up(keeps, 4));
        r = huge_op(&b, more);
        assert_err(TERN_OK, r->err);
        assert_int_equal(r->lengths.allocated, 64);
        assert_int_equal(r->lengths.written, op.kind != STEP_ABORT);
        b.rig->no_audit = false; /* from here on the audit looks at all of it */
        assert_ok(rig_close(b.s, 0));
        assert_int_equal(rig_free(b.rig, b.pool), total);
        rig_destroy(b.rig);
    }
}

/* T20: the step that returns the last page asks for no other one. */
TEST(t20_one_huge_session_asks_for_steps_until_its_last_page)
{
    struct event timer = {.kind = EV_TIMER};
    struct rig_engine other;
    struct pool_id theirs;
    struct bench b = huge_bench(&other, &theirs);

    timer.now_ns = b.rig->now_ns;
    assert_err(TERN_OK, huge_op(&b, (struct step_op){.kind = STEP_ABORT})->err);
    assert_true(gives_back(b.rig->core));
    while (gives_back(b.rig->core)) {
        assert_int_equal(core_deadline(b.rig->core), 0);
        core_step(b.rig->core, &timer, b.rig->out);
    }
    assert_true(core_deadline(b.rig->core) > b.rig->now_ns);
    assert_int_equal(rig_free(b.rig, b.pool), rig_pool_view(b.rig, b.pool).group[0].total);
    rig_destroy(b.rig);
}

/* T20, E2: a session that is returning pages is closed, or its engine dies. No page comes free
 * before the step of the operation that gave it up, nor before that of a Close meanwhile. */
TEST(t20_a_session_that_gives_back_ends_with_its_engine_or_by_a_close)
{
    static const enum step_op_kind kinds[] = {STEP_REWIND, STEP_ABORT};
    static const uint64_t steps[][2] = {{0, 0}, {7, 7}, {0, 9}, {7, 9}, {7, 0}};

    for (uint32_t i = 0; i < 4 * sizeof steps / sizeof steps[0]; i++) {
        const uint64_t *step = steps[i / 4];
        uint64_t last = step[1] > step[0] ? step[1] : step[0];
        struct step_op op = {.kind = kinds[i % 2], .step = step[0]},
                       end = {.kind = STEP_CLOSE, .step = step[1]};
        bool closes = i & 2;
        struct rig_engine other;
        struct pool_id theirs;
        struct bench b = huge_bench(&other, &theirs);
        uint32_t total = rig_pool_view(b.rig, b.pool).group[0].total;

        assert_err(TERN_OK, huge_op(&b, op)->err);
        assert_true(gives_back(b.rig->core));
        if (closes)
            assert_err(TERN_OK, huge_op(&b, end)->err);
        else
            rig_engine_kill(b.rig, &b.e, 0);
        rig_timers(b.rig);
        if (closes) {
            assert_int_equal(rig_retiring(b.rig, b.pool) > 0, last > 0);
            if (step[0] > 0)
                assert_int_equal(rig_retiring(b.rig, b.pool), HUGE_PAGES);
            rig_engine_done(b.rig, &b.e, last > 0 ? last - 1 : 0);
            rig_runs_free(b.rig);
            assert_int_equal(rig_free(b.rig, b.pool) < total, last > 0);
            rig_engine_done(b.rig, &b.e, last);
            rig_runs_free(b.rig);
        }
        b.rig->no_audit = false;
        assert_int_equal(rig_free(b.rig, b.pool), total);
        assert_int_equal(rig_view(b.rig).sessions, 0);
        rig_destroy(b.rig);
    }
}

/* The visits of an unrelated event beside n tickets whose step does not pass, and n turns. */
static uint32_t visits_beside(uint32_t n)
{
    struct rig_options o = rig_defaults();
    struct event timer = {.kind = EV_TIMER};
    struct request turn = {.op = OP_TURN_BEGIN};
    struct rig_session *s;
    struct bench b;
    uint32_t visits;

    o.limits.sessions = o.tenant[0].sessions_max = 2 * n + 8;
    o.limits.retires = 4 * n + 128;
    o.limits.nodes = o.limits.pages = o.limits.slabs = o.limits.token_blocks = 16 * n + 4096;
    o.tenant[0].memory_bytes = 16u << 20;
    b = bench_with(&o, 4, 2 * n + 16);
    b.rig->no_audit = true;
    for (uint32_t i = 0; i < n; i++) {
        s = rig_committed(b.rig, &b.e, b.pool, 1 + i, 4);
        hand_over(s, 1000000, 0);
        rig_session_free(s);
        s = rig_session(b.rig, &b.e, b.pool, 1);
        turn.turn_begin.session = s->id;
        assert_ok(rig_request(b.rig, b.e.conn[0], &turn)->err);
        rig_session_free(s);
    }
    rig_timers(b.rig);
    timer.now_ns = ++b.rig->now_ns;
    b.rig->no_audit = false;
    rig_event(b.rig, &timer); /* the audit checks the heap of tickets and the lists of turns */
    b.rig->no_audit = true;
    core_step(b.rig->core, &timer, b.rig->out);
    visits = b.rig->core->visits;
    assert_int_equal(b.rig->core->tickets, n);
    timer.now_ns = b.rig->now_ns += o.limits.ticket_deadline_ns;
    rig_event(b.rig, &timer);
    rig_timers(b.rig);
    assert_int_equal(b.rig->core->tickets, 0); /* all, in the order of their times */
    rig_destroy(b.rig);
    return visits;
}

/* T20, Y3, M7. */
TEST(step_an_event_costs_the_same_beside_any_number_of_tickets_and_turns)
{
    assert_int_equal(visits_beside(500), visits_beside(8));
}

/* An operator evicts a full pool, most of which is left over, while another engine's checksums
 * become known in events of `each` jobs. Returns the visits of these steps. */
static uint64_t visits_of_seals(uint32_t each)
{
    const uint32_t nodes = 8000;
    struct bench b = bench_full_of(nodes);
    struct rig_engine other = rig_engine(b.rig, 1, "other", 1);
    struct pool_id pool = rig_pool_pages(b.rig, &other, 4, 64);
    struct event ev = {.kind = EV_REQUEST, .now_ns = b.rig->now_ns};
    uint64_t visits = 0;

    b.rig->automatic = BY_HAND(RIG_SEAL);
    rig_put(b.rig, &other, pool, 1, 4 * SEALED_JOBS_MAX);
    assert_int_equal(rig_jobs(b.rig, RIG_SEAL), SEALED_JOBS_MAX);
    ev.request = (struct request){.op = OP_EVICT, .conn = b.admin, .evict = {.pool = b.pool}};
    core_step(b.rig->core, &ev, b.rig->out);
    for (uint32_t done = 0; done < SEALED_JOBS_MAX; done += each) {
        assert_true(core_deadline(b.rig->core) == 0);
        ev = (struct event){.kind = EV_SEALED, .now_ns = b.rig->now_ns, .sealed.n = each};
        for (uint32_t i = 0; i < each; i++)
            ev.sealed.job[i] = rig_job(b.rig, RIG_SEAL, done + i)->seal;
        core_step(b.rig->core, &ev, b.rig->out);
        visits += b.rig->core->visits;
    }
    assert_true(core_deadline(b.rig->core) == 0);
    rig_destroy_all();
    return visits;
}

/* Each step grants each piece of the rest its least, so the ends of jobs in one event share one
 * step. */
TEST(t20_seals_that_end_in_one_event_share_what_is_left_over)
{
    uint64_t one_by_one = visits_of_seals(1), together = visits_of_seals(SEALED_JOBS_MAX);

    print_message("visits one_by_one=%llu together=%llu\n", (unsigned long long)one_by_one,
                  (unsigned long long)together);
    assert_true(one_by_one >= SEALED_JOBS_MAX * PIECE_VISITS_LEAST);
    assert_true(together <= 4 * PIECE_VISITS_LEAST);
}
