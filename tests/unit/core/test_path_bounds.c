/* T20: the cost of a long path. Commits, publishing, eviction and closing look at few records of it
 * in one step of the core, whatever the window, and twice the path costs twice as much. */
#include "unit/rig/rig_host.h"

#include "core/session/record.h"
#include "core/tree/nodes.h"
#include "core/tree/state.h"

#include <stdlib.h>

#define CHUNKS 12000 /* of one token each */
/* A piece, and at its end the claim of a resume point, which visits each of its nodes. */
#define PIECE_MOST (3 * PIECE_VISITS_MAX)

enum phase { COMMIT, PUBLISH, EVICT, CLOSE, OTHER, PHASES };

struct meter {
    struct bench b;
    struct session_id id; /* of the session with the path */
    uint32_t chunks, pieces;
    enum phase phase;
    uint64_t total[PHASES];
    uint32_t most[PHASES];
};

static uint32_t ids[4 * CHUNKS];

static void meter_step(void *ctx, const struct event *event)
{
    struct meter *m = ctx;
    uint32_t visits = m->b.rig->core->visits;

    (void)event;
    m->total[m->phase] += visits;
    if (visits > m->most[m->phase])
        m->most[m->phase] = visits;
    m->b.rig->core->visits = 0; /* counted */
}

static void meter_phase(struct meter *m, enum phase phase)
{
    meter_step(m, NULL);
    m->phase = phase;
}

/* Runs an operation over the bench's connection. */
static struct op_result path_op(struct meter *m, struct session_id id, struct step_op op)
{
    struct request r = {.op = OP_STEP, .step = {.ops = &op, .n = 1, .pieces = true}};
    const struct reply *reply;

    op.session = id;
    reply = rig_request(m->b.rig, m->b.s->conn, &r);
    assert_non_null(reply);
    return reply->step.results[0];
}

/* Opens a session of the namespace, with `chunks` written tokens from `first` on. */
static struct session_id path_session(struct meter *m, uint64_t ns, uint32_t first)
{
    struct rig_session *s = rig_session(m->b.rig, &m->b.e, m->b.pool, ns);
    struct request r = {.op = OP_MATCH};
    struct step_op extend = {.kind = STEP_EXTEND, .length = m->chunks, .written = m->chunks};
    const struct reply *reply;
    struct op_result told;

    for (uint32_t i = 0; i < m->chunks; i++)
        ids[i] = first + i;
    r.match.session = s->id;
    r.match.tokens = (struct req_tokens){.v = ids, .n = m->chunks};
    reply = rig_request(m->b.rig, s->conn, &r);
    assert_non_null(reply);
    assert_err(TERN_OK, reply->err);
    for (uint32_t i = 0; i < 256 && (told = path_op(m, s->id, extend)).err == TERN_BUSY; i++)
        ;
    assert_err(TERN_OK, told.err);
    return s->id;
}

static uint64_t path_host_bytes; /* of pools opened from then on */
static uint32_t path_cap;        /* cap of their WINDOW group; 0: none */

/* Opens a pool for one path, with L = 1. window 0: HISTORY alone. */
static void path_begin(struct meter *m, uint32_t chunks, uint32_t window)
{
    struct group_layout groups[2] = {rig_group(1, 64), rig_window(1, window, 64)};
    uint32_t n = window ? 2 : 1;
    struct rig_options o = rig_defaults();

    groups[1].cap_pages = path_cap;
    *m = (struct meter){.chunks = chunks};
    o.limits.nodes = chunks + 64;
    o.limits.token_blocks = 4 * chunks + 16;
    o.limits.pages = 8 * chunks;
    o.tenant[0].memory_bytes = 512ull * chunks;
    o.tenant[0].host_bytes = path_host_bytes;
    m->b = bench_with(&o, 4, 16);
    m->b.rig->no_audit = true;
    m->b.rig->host_bytes = path_host_bytes;
    assert_ok(rig_close(m->b.s, 0));
    assert_ok(
        rig_pool_open(m->b.rig, m->b.e.conn[0], groups, n, 64ull * n * (chunks + 64), &m->b.pool));
    m->id = path_session(m, 1, 1000);
    m->b.rig->on_event = meter_step;
    m->b.rig->on_event_ctx = m;
    m->b.rig->core->visits = 0;
}

/* Commits piece after piece: each but the last is BUSY, and further than the one before. */
static void path_commit(struct meter *m, uint64_t step)
{
    struct step_op commit = {.kind = STEP_COMMIT, .length = m->chunks, .step = step};
    uint32_t before = 0;
    struct op_result r;

    meter_phase(m, COMMIT);
    for (;; m->pieces++) {
        r = path_op(m, m->id, commit);
        if (r.err == TERN_OK)
            break;
        assert_err(TERN_BUSY, r.err);
        assert_string_equal(r.text, STEP_TOO_MUCH);
        assert_true(r.lengths.committed > before);
        before = r.lengths.committed;
    }
    assert_int_equal(r.lengths.committed, m->chunks);
}

/* The path is committed and published, its session closed, and all of it evicted for another. */
static void path_lives(struct meter *m, uint32_t chunks, uint32_t window)
{
    path_begin(m, chunks, window);
    path_commit(m, 7);
    meter_phase(m, PUBLISH);
    rig_engine_done(m->b.rig, &m->b.e, 7);
    rig_timers(m->b.rig);
    meter_phase(m, CLOSE);
    assert_err(TERN_OK, path_op(m, m->id, (struct step_op){.kind = STEP_CLOSE, .step = 9}).err);
    rig_engine_done(m->b.rig, &m->b.e, 9);
    rig_timers(m->b.rig);
    meter_phase(m, EVICT);
    path_session(m, 2, 1000000);
    rig_timers(m->b.rig);
    meter_phase(m, EVICT);
    m->b.rig->no_audit = false;
    oracle_audit(m->b.rig->core);
}

/* A node that loses STATE ends the claims of all windows that contain it, in one walk. */
static void assert_bounded(const struct meter *m, bool window)
{
    uint32_t claims = window ? 2 * m->chunks : 0;

    for (uint32_t i = 0; i < PHASES; i++)
        assert_true(m->most[i] <= PIECE_MOST + (i == EVICT ? claims : 0));
    assert_true(m->pieces >= m->chunks / (PIECE_VISITS_MAX / NODE_VISITS));
}

static uint64_t all_of(const struct meter *m)
{
    uint64_t visits = 0;

    for (uint32_t i = 0; i < PHASES; i++)
        visits += m->total[i];
    return visits;
}

static void assert_linear(uint32_t window)
{
    struct meter *one = malloc(sizeof *one), *two = malloc(sizeof *two);

    path_lives(one, CHUNKS, window);
    path_lives(two, 2 * CHUNKS, window);
    assert_bounded(one, window > 0);
    assert_bounded(two, window > 0);
    assert_true(all_of(two) <= 22 * all_of(one) / 10);
    free(one);
    free(two);
}

TEST(t20_a_long_path_of_history_costs_what_it_has)
{
    assert_linear(0);
}

TEST(t20_a_long_path_costs_what_it_has_where_the_window_covers_it)
{
    assert_linear(SESSION_TOKENS_MAX);
}

TEST(t20_a_long_path_costs_what_it_has_where_the_window_covers_half_of_it)
{
    assert_linear(CHUNKS / 2);
}

/* --- sessions that open and close --- */

/* One session has the path, written but not committed. */
static void tail_begin(struct meter *m, uint32_t chunks)
{
    path_begin(m, chunks, 0);
    meter_phase(m, OTHER);
}

static uint64_t drop_costs(uint32_t chunks)
{
    struct meter *m = malloc(sizeof *m);
    struct request r = {.op = OP_RETRACT};
    const struct reply *reply;
    uint64_t visits;

    tail_begin(m, chunks);
    r.retract.session = m->id;
    r.retract.mode = RETRACT_DROP;
    r.retract.step = 7;
    reply = rig_request(m->b.rig, m->b.s->conn, &r);
    assert_non_null(reply);
    assert_err(TERN_OK, reply->err);
    meter_phase(m, COMMIT);
    assert_true(m->most[OTHER] <= TAIL_PAGES_MAX + PIECE_MOST);
    visits = m->total[OTHER];
    free(m);
    return visits;
}

TEST(t20_a_retract_counts_the_pages_that_it_drops)
{
    uint64_t one = drop_costs(CHUNKS), two = drop_costs(2 * CHUNKS);

    assert_true(one >= CHUNKS && two >= 2 * CHUNKS && two <= 22 * one / 10);
}

/* All of the path is copied to the host, a node a job; its step passes last. Returns the visits. */
static uint64_t retract_costs(uint32_t chunks)
{
    struct meter *m = malloc(sizeof *m);
    struct request r = {.op = OP_RETRACT};
    const struct reply *reply;
    uint64_t visits;

    path_host_bytes = 64ull * 2 * (chunks + 64);
    path_begin(m, chunks, chunks);
    path_host_bytes = 0;
    path_commit(m, 7);
    m->b.rig->automatic = RIG_ALL & ~(uint32_t)RIG_COPY;
    meter_phase(m, OTHER);
    r.retract.session = m->id;
    r.retract.mode = RETRACT_HOST;
    r.retract.step = 9;
    rig_engine_done(m->b.rig, &m->b.e, 7);
    rig_timers(m->b.rig);
    reply = rig_request(m->b.rig, m->b.s->conn, &r);
    assert_non_null(reply);
    assert_err(TERN_OK, reply->err);
    meter_phase(m, COMMIT);
    meter_phase(m, OTHER);
    rig_runs_free(m->b.rig);
    rig_engine_done(m->b.rig, &m->b.e, 9);
    meter_phase(m, COMMIT);
    assert_int_equal(session_at(m->b.rig->core, m->id.slot)->state, SESSION_RETRACTED);
    assert_true(m->most[OTHER] <= PIECE_MOST && m->most[COMMIT] <= PIECE_MOST);
    visits = m->total[OTHER];
    free(m);
    return visits;
}

TEST(t20_a_session_that_retracts_walks_its_path_once)
{
    uint64_t one = retract_costs(CHUNKS), two = retract_costs(2 * CHUNKS);

    assert_true(one <= 40 * CHUNKS);
    assert_true(two <= 22 * one / 10);
}

/* --- walks up a path --- */

enum walk { ON_BOTH, FIRST_BELOW };

/* The device lacks the windows of the whole path except its end, so only the last nodes can be
 * resumed. Returns the visits of one search. */
static uint64_t walk_costs(uint32_t chunks, enum walk walk, uint32_t below)
{
    struct meter *m = malloc(sizeof *m);
    struct core *c;
    uint32_t node, found;
    uint64_t visits;

    path_begin(m, chunks, chunks / 2);
    path_commit(m, 7);
    rig_engine_done(m->b.rig, &m->b.e, 7);
    rig_timers(m->b.rig);
    c = m->b.rig->core;
    node = session_at(c, m->id.slot)->node;
    assert_int_equal(node_at(c, node)->depth, chunks);
    c->visits = 0;
    for (uint32_t at = node; node_at(c, at)->depth > 0; at = node_at(c, at)->parent)
        node_at(c, at)->state.claims_window = 0;
    node_at(c, node_above(c, (struct path){node, chunks / 4}))->state.refilling = 1u << 1;
    if (walk == ON_BOTH) /* not deeper than half of the path, which is just below it */
        found = state_above_on_both(
            c, (struct path){node_above(c, (struct path){node, chunks / 2}), 0});
    else
        found = state_first_below(c, (struct path){node, 3 * (chunks / 4) - below});
    if (walk == ON_BOTH)
        assert_int_equal(node_at(c, found)->depth, chunks / 4 - 1);
    else if (below <= BELOW_LOOKS_MAX)
        assert_int_equal(node_at(c, found)->depth, 3 * (chunks / 4));
    else
        assert_int_equal(found, NONE);
    visits = c->visits;
    free(m); /* the rig's teardown does not look at the core */
    return visits;
}

static void assert_walks(enum walk walk)
{
    uint64_t one = walk_costs(CHUNKS, walk, BELOW_LOOKS_MAX / 2),
             two = walk_costs(2 * CHUNKS, walk, BELOW_LOOKS_MAX / 2);

    assert_true(one > 0 && one <= 2 * CHUNKS && two <= 22 * one / 10);
}

TEST(t20_what_the_host_could_bring_is_found_in_one_walk)
{
    assert_walks(ON_BOTH);
}

TEST(t20_the_first_that_can_be_resumed_is_found_in_one_walk)
{
    assert_walks(FIRST_BELOW);
}

/* --- STATE that cannot be dropped --- */

static void path_over(struct meter *m, uint32_t chunks, uint64_t step)
{
    path_commit(m, step);
    assert_err(TERN_OK, path_op(m, m->id, (struct step_op){.kind = STEP_CLOSE, .step = step}).err);
    rig_engine_done(m->b.rig, &m->b.e, step);
    rig_timers(m->b.rig);
    m->chunks = chunks;
}

/* A session borrows a path that would have gone before that of another session, which could go.
 * Passing over it is done in pieces, too. */
TEST(t20_state_that_is_borrowed_is_passed_over_in_pieces)
{
    const uint32_t chunks = 2 * CHUNKS;
    struct meter *m = malloc(sizeof *m);
    struct request r = {.op = OP_MATCH};
    struct rig_session *s;

    path_cap = chunks + 52;
    path_begin(m, chunks, chunks);
    path_cap = 0;
    path_over(m, 36, 7);
    m->id = path_session(m, 2, 1000000);
    path_over(m, chunks, 9);
    for (uint32_t i = 0; i < chunks; i++)
        ids[i] = 1000 + i;
    s = rig_session(m->b.rig, &m->b.e, m->b.pool, 1);
    r.match.session = s->id;
    r.match.tokens = (struct req_tokens){.v = ids, .n = chunks};
    assert_err(TERN_OK, rig_request(m->b.rig, s->conn, &r)->err);
    assert_true(session_at(m->b.rig->core, s->id.slot)->committed > chunks - 64);
    m->chunks = 20;
    meter_phase(m, EVICT);
    path_session(m, 3, 2000000);
    meter_phase(m, OTHER);
    assert_true(m->total[EVICT] > PIECE_VISITS_MAX);
    assert_true(m->most[EVICT] <= PIECE_VISITS_MAX + CHUNKS / 10);
    free(m);
}

/* --- sessions that are restored from the host tier --- */

enum come_back { RECOVERED, FETCHED };

static void load_request(struct meter *m, struct session_id id, enum come_back how)
{
    struct request r = {.op = how == RECOVERED ? OP_RECOVER : OP_FETCH};

    if (how == RECOVERED) {
        r.recover.session = id;
    } else {
        r.fetch.session = id;
        r.fetch.peer = PEER_HOST;
    }
    rig_request(m->b.rig, m->b.s->conn, &r);
}

/* The whole path is only on the host, retracted, or committed by a session that was closed; then a
 * session loads it. The first copy ends last, so that all others wait for it. Returns the load's
 * visits. */
static uint64_t load_costs(uint32_t chunks, uint32_t window, enum come_back how)
{
    struct meter *m = malloc(sizeof *m);
    struct session_id id;
    struct request r = {.op = OP_RETRACT};
    uint64_t visits;

    path_host_bytes = 64ull * 2 * (chunks + 64);
    path_begin(m, chunks, window);
    path_host_bytes = 0;
    path_commit(m, 7);
    id = m->id;
    rig_engine_done(m->b.rig, &m->b.e, 7);
    r.retract.session = id;
    r.retract.mode = RETRACT_HOST;
    rig_request(m->b.rig, m->b.s->conn, &r);
    assert_int_equal(session_at(m->b.rig->core, id.slot)->state, SESSION_RETRACTED);
    rig_evict(m->b.rig, m->b.admin, m->b.pool, 0);
    if (how == FETCHED) {
        struct rig_session *s = rig_session(m->b.rig, &m->b.e, m->b.pool, 1);

        assert_err(TERN_OK, path_op(m, id, (struct step_op){.kind = STEP_CLOSE}).err);
        r = (struct request){.op = OP_MATCH};
        r.match.session = id = s->id;
        r.match.tokens = (struct req_tokens){.v = ids, .n = chunks};
        rig_request(m->b.rig, s->conn, &r);
        assert_int_equal(session_at(m->b.rig->core, id.slot)->committed, 0);
    }
    m->b.rig->automatic = RIG_ALL & ~(uint32_t)RIG_COPY;
    meter_phase(m, OTHER);
    load_request(m, id, how);
    assert_int_equal(session_at(m->b.rig->core, id.slot)->state, SESSION_LOADING);
    while (rig_jobs(m->b.rig, RIG_COPY) > 1)
        rig_complete_nth(m->b.rig, RIG_COPY, 1);
    rig_complete(m->b.rig, RIG_COPY);
    rig_runs_free(m->b.rig);
    meter_phase(m, COMMIT);
    assert_int_equal(session_at(m->b.rig->core, id.slot)->state, SESSION_TURN);
    assert_int_equal(session_at(m->b.rig->core, id.slot)->committed, chunks);
    assert_true(m->most[OTHER] <= BATCH_VISITS_MAX + 2 * PIECE_VISITS_MAX &&
                m->most[OTHER] < 3 * chunks);
    visits = m->total[OTHER];
    oracle_audit(m->b.rig->core);
    free(m);
    return visits;
}

static void assert_loads(uint32_t window, enum come_back how)
{
    uint64_t one = load_costs(CHUNKS, window, how), two = load_costs(2 * CHUNKS, window, how);

    assert_true(one >= 2 * CHUNKS && one <= 40 * CHUNKS);
    assert_true(two <= 22 * one / 10);
}

TEST(t20_a_session_comes_back_from_the_host_in_pieces)
{
    assert_loads(0, RECOVERED);
    assert_loads(CHUNKS, RECOVERED);
}

TEST(t20_a_session_fetches_from_the_host_in_pieces)
{
    assert_loads(0, FETCHED);
    assert_loads(CHUNKS, FETCHED);
}

TEST(t20_one_that_can_be_resumed_is_looked_for_only_so_far_below)
{
    /* Up a window, which is half of the path, and then down. */
    assert_true(walk_costs(CHUNKS, FIRST_BELOW, BELOW_LOOKS_MAX + 1) <=
                BELOW_LOOKS_MAX + CHUNKS / 2 + 1);
}

/* ---- long lists of tokens: how a Match and a Peek are divided ---- */

#define LIST (2 * CHUNKS)

/* Sends the list, piece by piece if `pieces`. Returns the answer to the last piece. */
static struct reply list_match(struct meter *m, const struct rig_session *s, bool pieces)
{
    const struct reply *reply;

    for (uint32_t at = 0;; at += reply->match.taken, m->pieces++) {
        struct request r = {.op = OP_MATCH, .match = {.session = s->id, .pieces = pieces}};

        r.match.tokens = (struct req_tokens){.v = ids + at, .base = at, .n = LIST - at};
        r.match.earlier = at;
        reply = rig_request(m->b.rig, s->conn, &r);
        assert_non_null(reply);
        assert_err(TERN_OK, reply->err);
        if (reply->match.taken == 0)
            return *reply;
        assert_true(pieces && reply->match.taken < LIST - at && reply->nruns == 0);
    }
}

static struct reply list_peek(struct meter *m, bool pieces)
{
    struct request r = {.op = OP_PEEK,
                        .peek = {.pool = m->b.pool, .ns = m->b.s->ns, .pieces = pieces}};
    const struct reply *reply;
    uint32_t at = 0;

    for (;; m->pieces++) {
        r.peek.tokens = (struct req_tokens){.v = ids + at, .base = at, .n = LIST - at};
        reply = rig_request(m->b.rig, m->b.e.conn[0], &r);
        assert_non_null(reply);
        assert_err(TERN_OK, reply->err);
        if (reply->peek.taken == 0)
            return *reply;
        assert_int_equal(reply->peek.walked, at + reply->peek.taken);
        at = reply->peek.walked;
        r.peek.from = reply->peek.reached;
    }
}

/* The cost of the last list: each of its chunks was counted, and no piece was too long. */
static void assert_divided(struct meter *m, bool pieces)
{
    const uint32_t all = LIST / NODES_A_VISIT,
                   most = PIECE_VISITS_MAX + LIST / RECORDS_A_VISIT; /* a list may be dropped */

    meter_step(m, NULL);
    assert_true(m->total[OTHER] >= all && m->total[OTHER] <= 2 * all);
    assert_int_equal(m->pieces, pieces ? (all - 1) / PIECE_VISITS_MAX : 0);
    assert_true(pieces ? m->most[OTHER] <= most : m->most[OTHER] >= all);
    m->total[OTHER] = m->most[OTHER] = m->pieces = 0;
}

/* A session matches the list twice, undivided and in pieces: each Match finds the same. */
static void assert_lists(struct meter *m, uint32_t matched)
{
    struct reply told[2], again[2];

    for (uint32_t pieces = 0; pieces < 2; pieces++) {
        struct rig_session *s = rig_session(m->b.rig, &m->b.e, m->b.pool, 1);

        meter_phase(m, OTHER);
        m->total[OTHER] = m->most[OTHER] = m->pieces = 0;
        told[pieces] = list_match(m, s, pieces);
        assert_divided(m, pieces);
        again[pieces] = list_match(m, s, pieces);
        assert_divided(m, pieces);
        assert_int_equal(told[pieces].match.tokens, LIST);
        assert_int_equal(told[pieces].match.matched, matched);
        assert_ok(rig_close(s, 0));
    }
    assert_memory_equal(&told[0].match, &told[1].match, sizeof told[0].match);
    assert_memory_equal(&again[0].match, &again[1].match, sizeof again[0].match);
}

TEST(t20_a_match_or_a_peek_of_many_chunks_goes_in_pieces)
{
    struct meter *m = malloc(sizeof *m);
    struct reply told[2];

    path_begin(m, LIST, 0);
    m->b.s = rig_session(m->b.rig, &m->b.e, m->b.pool, 1);
    assert_lists(m, 0);
    path_commit(m, 7);
    rig_engine_done(m->b.rig, &m->b.e, 7);
    rig_timers(m->b.rig);
    assert_lists(m, LIST);
    for (uint32_t pieces = 0; pieces < 2; pieces++) {
        told[pieces] = list_peek(m, pieces);
        assert_divided(m, pieces);
        assert_int_equal(told[pieces].peek.depth, LIST);
    }
    assert_memory_equal(&told[0].peek, &told[1].peek, sizeof told[0].peek);
    free(m);
}
