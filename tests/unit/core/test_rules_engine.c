/* Rules E1, E2, E4 and E6, and what joining may and may not do. */
#include "unit/rig/rig_test.h"

TEST(engine_other_world_conflicts)
{
    struct rig *rig = rig_create(NULL);
    uint32_t a = rig_connect(rig, 0, NULL), b = rig_connect(rig, 0, NULL);

    assert_ok(rig_join(rig, a, "e", ROLE_BOTH, 0, 2));
    assert_err(TERN_CONFLICT, rig_join(rig, b, "e", ROLE_WORKER, 1, 3));
    assert_err(TERN_CONFLICT, rig_join(rig, b, "e", ROLE_WORKER, 0, 2)); /* that rank is taken */
    assert_ok(rig_join(rig, b, "e", ROLE_WORKER, 1, 2));
}

TEST(engine_join_out_of_range_invalid)
{
    struct rig *rig = rig_create(NULL);
    uint32_t a = rig_connect(rig, 0, NULL);

    assert_err(TERN_INVALID, rig_join(rig, a, "e", ROLE_BOTH, 0, 0));
    assert_err(TERN_INVALID, rig_join(rig, a, "e", ROLE_BOTH, 0, RANKS_MAX + 1));
    assert_err(TERN_INVALID, rig_join(rig, a, "e", ROLE_WORKER, 2, 2));
    assert_err(TERN_INVALID, rig_join(rig, a, "", ROLE_BOTH, 0, 1));
    assert_int_equal(rig_view(rig).engines, 0);
}

TEST(engine_join_repeated_by_the_same_process_same_engine)
{
    struct rig *rig = rig_create(NULL);
    uint32_t a = rig_connect(rig, 0, NULL);
    struct engine_id first;

    assert_ok(rig_join(rig, a, "e", ROLE_BOTH, 0, 1));
    first = rig->last->join.engine;
    assert_ok(rig_join(rig, a, "e", ROLE_BOTH, 0, 1));
    assert_true(engine_id_equal(first, rig->last->join.engine));
    assert_int_equal(rig_view(rig).engines, 1);
}

TEST(engine_same_name_of_two_tenants_two_engines)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine a = rig_engine(rig, 0, "e", 1), b = rig_engine(rig, 1, "e", 1);

    assert_false(engine_id_equal(a.id, b.id));
}

TEST(engine_requests_before_join_refused)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 1);
    struct pool_id pool = rig_pool_pages(rig, &e, 4, 8), ignored;
    uint32_t stranger = rig_connect(rig, 0, NULL);
    struct group_layout group = rig_group(4, 512);
    struct rig_session *s = rig_session(rig, &e, pool, 1), other;

    assert_int_not_equal(rig_pool_open(rig, stranger, &group, 1, 1 << 16, &ignored), TERN_OK);
    assert_int_not_equal(rig_session_open(rig, stranger, pool, 1, &other), TERN_OK);
    s->conn = stranger;
    assert_int_not_equal(rig_match(s, rig_tokens(1, 8), 8), TERN_OK);
}

/* E1: every process has its own connection, and the engine ends with the last of them. */
TEST(engine_leave_of_all_frees_everything)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 3);
    struct pool_id pool = rig_pool_pages(rig, &e, 4, 8);
    struct rig_session *s = rig_session(rig, &e, pool, 1);

    assert_ok(rig_match(s, rig_tokens(1, 32), 32));
    assert_ok(rig_run_to(s, rig_tokens(1, 32), 32));
    assert_ok(rig_leave(rig, e.conn[2]));
    assert_ok(rig_leave(rig, e.conn[0]));
    assert_int_equal(rig->engines_gone, 0);
    assert_int_equal(rig_free(rig, pool), 0);
    assert_ok(rig_leave(rig, e.conn[1]));
    assert_int_equal(rig->engines_gone, 1);
    assert_int_equal(rig_view(rig).engines, 0);
    assert_int_equal(rig_view(rig).sessions, 0);
}

/* A broken connection proves nothing about the process behind it. */
TEST(engine_connection_lost_process_alive_keeps_pages)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 1);
    struct pool_id pool = rig_pool_pages(rig, &e, 4, 8);
    struct rig_session *s = rig_session(rig, &e, pool, 1);

    assert_ok(rig_match(s, rig_tokens(1, 32), 32));
    assert_ok(rig_run_to(s, rig_tokens(1, 32), 32));
    rig_disconnect(rig, e.conn[0]);
    rig_advance(rig, 3600000000000u); /* an alarm, never a timer */
    assert_int_equal(rig_free(rig, pool), 0);
    assert_int_equal(rig->engines_gone, 0);
    rig_proc_gone(rig, e.proc[0]);
    assert_int_equal(rig->engines_gone, 1);
    assert_int_equal(rig_view(rig).engines, 0);
}

static const char *maps(struct rig *rig, struct pool_id pool)
{
    static struct engine_view v;

    return core_engine_view(rig->core, rig_pool_view(rig, pool).engine, &v) ? v.name : "-";
}

/* Which engine a pool is said to be of: one that maps it; none when nobody does, whoever has the
 * slot of the one that did. */
TEST(a_pool_is_named_after_who_maps_it)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine first = rig_engine(rig, 0, "first", 1),
                      second = rig_engine(rig, 0, "second", 1), later;
    struct pool_id pool = rig_pool_pages(rig, &first, 4, 8);
    struct request map = {.op = OP_POOL_MAP};

    map.pool_map.pool = pool;
    assert_string_equal(maps(rig, pool), "first");
    assert_ok(rig_request(rig, second.conn[0], &map)->err);
    assert_string_equal(maps(rig, pool), "first");
    rig_engine_kill(rig, &first, 0);
    assert_string_equal(maps(rig, pool), "second");
    rig_engine_kill(rig, &second, 0);
    assert_string_equal(maps(rig, pool), "-");
    later = rig_engine(rig, 0, "later", 1);
    (void)rig_engine(rig, 0, "last", 1);
    assert_string_equal(maps(rig, pool), "-");
    assert_ok(rig_request(rig, later.conn[0], &map)->err);
    assert_string_equal(maps(rig, pool), "later");
}

/* Pages that retire for a dead engine come back with it, whatever step they wait for. */
TEST(engine_gone_ends_its_retiring_pages)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 2), other = rig_engine(rig, 0, "o", 2);
    struct pool_id pool = rig_pool_pages(rig, &e, 4, 8);
    struct request map = {.op = OP_POOL_MAP};
    struct rig_session *s = rig_session(rig, &e, pool, 1);

    map.pool_map.pool = pool;
    assert_ok(rig_request(rig, other.conn[0], &map)->err); /* the pool outlives its opener */
    assert_ok(rig_match(s, rig_tokens(1, 32), 32));
    assert_ok(rig_run_to(s, rig_tokens(1, 32), 32));
    assert_ok(rig_close(s, 1000));
    assert_int_equal(rig_retiring(rig, pool), 8);
    rig_engine_kill(rig, &e, 0);
    assert_int_equal(rig_retiring(rig, pool), 8);
    rig_engine_kill(rig, &e, 1);
    assert_int_equal(rig_retiring(rig, pool), 0);
    assert_int_equal(rig_free(rig, pool), 8);
    assert_int_equal(rig_view(rig).retires_free, rig->options.limits.retires);
}

/* T8's last clause, seen from E1: a commit whose step never passed goes with its engine. Faults 1
 * and 2: a prefix is there or it is not, and never half of it. */
TEST(engine_gone_takes_its_pending_nodes)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 1);
    struct pool_id pool = rig_pool_pages(rig, &e, 4, 8);
    struct rig_engine other = second_engine(rig, pool);
    struct rig_session *s = rig_session(rig, &e, pool, 1);
    struct rig_session *like = rig_session(rig, &other, pool, 1);

    assert_ok(rig_match(s, rig_tokens(1, 16), 16));
    assert_ok(rig_run_to(s, rig_tokens(1, 16), 16));
    assert_ok(rig_commit(s, 8, 0));
    assert_ok(rig_commit(s, 16, 5));
    assert_int_equal(rig_depth(like, rig_tokens(1, 16), 16), 8);
    rig_engine_kill(rig, &e, 0);
    rig_step_done(rig, e.id, 0, 9);                              /* a late store of the dead */
    assert_int_equal(rig_depth(like, rig_tokens(1, 16), 16), 8); /* P4: what had passed stays */
    assert_int_equal(rig_group_view(rig, pool, 0).snapshot, 2);
    assert_int_equal(rig_free(rig, pool), 6);
}

/* E2: numbers never go back. */
TEST(engine_step_that_goes_back_is_refused)
{
    struct bench b = bench_start(4, 8);
    struct engine_view v;

    rig_engine_done(b.rig, &b.e, 10);
    rig_engine_done(b.rig, &b.e, 4);
    assert_true(core_engine_view(b.rig->core, b.e.id.slot, &v));
    assert_true(v.done_step[0] == 10);
    assert_ok(rig_match(b.s, rig_tokens(1, 16), 16));
    assert_ok(rig_run_to(b.s, rig_tokens(1, 16), 16));
    assert_ok(rig_rewind(b.s, 8, 10)); /* passed already: free at once */
    assert_int_equal(rig_free(b.rig, b.pool), 6);
}

TEST(engine_step_zero_frees_at_once)
{
    struct bench b = bench_start(4, 8);

    assert_ok(rig_match(b.s, rig_tokens(1, 16), 16));
    assert_ok(rig_run_to(b.s, rig_tokens(1, 16), 16));
    assert_ok(rig_close(b.s, 0));
    assert_int_equal(rig_free(b.rig, b.pool), 8);
    assert_int_equal(rig_retiring(b.rig, b.pool), 0);
}

/* E2 for pins, and fault 39: a kernel may still read the borrowed pages. */
TEST(engine_pin_given_up_at_a_step_ends_when_all_ranks_passed)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 2);
    struct pool_id pool = rig_pool_pages(rig, &e, 4, 8);
    uint32_t admin = rig_connect_admin(rig);
    struct rig_session *s = rig_committed(rig, &e, pool, 1, 16);

    assert_ok(rig_close(s, 3));
    assert_int_equal(rig_evict(rig, admin, pool, 0), 0);
    rig_step_done(rig, e.id, 0, 3);
    assert_int_equal(rig_evict(rig, admin, pool, 0), 0);
    rig_step_done(rig, e.id, 1, 2);
    assert_int_equal(rig_evict(rig, admin, pool, 0), 0);
    rig_step_done(rig, e.id, 1, 3);
    assert_int_equal(rig_evict(rig, admin, pool, 0), 4);
}

TEST(engine_shortage_counts_free_reclaimable_and_retiring)
{
    struct bench b = bench_start(4, 12);
    struct rig_session *other = rig_session(b.rig, &b.e, b.pool, 1);

    rig_put(b.rig, &b.e, b.pool, 5, 8); /* 2 pages that eviction can bring */
    assert_ok(rig_match(other, rig_tokens(2, 12), 12));
    assert_ok(rig_run_to(other, rig_tokens(2, 12), 12));
    assert_ok(rig_close(other, 6)); /* 3 retiring until 6 */
    assert_ok(rig_match(b.s, rig_tokens(1, 8), 8));
    assert_ok(rig_run_to(b.s, rig_tokens(1, 8), 8)); /* 2 in use, 5 free */
    assert_err(TERN_POOL_EXHAUSTED, rig_extend(b.s, 8 + 4 * 20, 0, NULL, 0));
    assert_int_equal(b.rig->res.shortage.needed, 20);
    /* What was evicted stays evicted (T11), so the two count as free or as reclaimable, never as
     * both. */
    assert_int_equal(b.rig->res.shortage.free + b.rig->res.shortage.reclaimable, 7);
    assert_int_equal(b.rig->res.shortage.retiring, 3);
    assert_true(b.rig->res.shortage.until_step == 6);
    assert_lengths(b.s, 0, 8, 8);
}

/* Reclaimable is what eviction could bring: not what is pinned, nor what a pinned node continues.
 */
TEST(engine_shortage_does_not_count_what_pins_hold)
{
    struct bench b = bench_start(4, 20);
    struct rig_session *pins;

    rig_put(b.rig, &b.e, b.pool, 5, 12); /* 3 pages that can go */
    rig_put(b.rig, &b.e, b.pool, 1, 32); /* 8 pages, of which the session below pins 5 */
    pins = rig_session(b.rig, &b.e, b.pool, 1);
    assert_ok(rig_match(pins, rig_tokens(1, 20), 20));
    assert_ok(rig_match(b.s, rig_tokens(2, 12), 12));
    assert_ok(rig_run_to(b.s, rig_tokens(2, 12), 12));
    assert_ok(rig_commit(b.s, 12, 9)); /* 3 pages that nobody sees yet, pinned */
    assert_err(TERN_POOL_EXHAUSTED, rig_extend(b.s, 12 + 4 * 30, 0, NULL, 0));
    assert_int_equal(b.rig->res.shortage.free, 20 - 3 - 8 - 3);
    assert_int_equal(b.rig->res.shortage.reclaimable, 3 + 3);
    assert_int_equal(b.rig->res.shortage.needed, 30);
    assert_int_equal(rig_view(b.rig).evicted_nodes,
                     0); /* T11: nothing goes for what can never fit */
}

/* E6: each operation is all or nothing with its own result; a failed one does not stop the rest. */
TEST(step_failed_operation_does_not_stop_the_rest)
{
    struct bench b = bench_start(4, 4);
    const struct reply *reply;
    struct step_op ops[3] = {{.kind = STEP_EXTEND, .length = 8},
                             {.kind = STEP_EXTEND, .length = 400},
                             {.kind = STEP_EXTEND, .length = 12}};

    assert_ok(rig_match(b.s, rig_tokens(1, 4), 4));
    for (int i = 0; i < 3; i++)
        ops[i].session = b.s->id;
    reply = rig_step_ops(b.rig, b.e.conn[0], ops, 3);
    assert_ok(reply->err);
    assert_int_equal(reply->step.n, 3);
    assert_ok(reply->step.results[0].err);
    assert_err(TERN_POOL_EXHAUSTED, reply->step.results[1].err);
    assert_int_equal(reply->step.results[1].lengths.allocated, 8);
    assert_ok(reply->step.results[2].err);
    assert_int_equal(reply->step.results[2].lengths.allocated, 12);
    assert_int_equal(rig_free(b.rig, b.pool), 1);
}

TEST(step_failed_barrier_stops_the_rest)
{
    struct bench b = bench_start(4, 4);
    const struct reply *reply;
    struct step_op ops[3] = {{.kind = STEP_EXTEND, .length = 8},
                             {.kind = STEP_EXTEND, .length = 400, .barrier = true},
                             {.kind = STEP_EXTEND, .length = 12}};

    assert_ok(rig_match(b.s, rig_tokens(1, 4), 4));
    for (int i = 0; i < 3; i++)
        ops[i].session = b.s->id;
    reply = rig_step_ops(b.rig, b.e.conn[0], ops, 3);
    assert_ok(reply->err);
    assert_int_equal(reply->step.n, 2); /* n < ops: the barrier stopped it */
    assert_err(TERN_POOL_EXHAUSTED, reply->step.results[1].err);
    assert_int_equal(rig_free(b.rig, b.pool), 2);
    ops[1].length = 8; /* a barrier that succeeds stops nothing */
    reply = rig_step_ops(b.rig, b.e.conn[0], ops, 3);
    assert_int_equal(reply->step.n, 3);
    assert_int_equal(rig_free(b.rig, b.pool), 1);
}

TEST(step_operations_apply_in_order)
{
    struct bench b = bench_start(4, 4);
    const struct reply *reply;
    struct step_op ops[4] = {{.kind = STEP_EXTEND,
                              .length = 16,
                              .written = 16,
                              .tokens = {.v = rig_tokens(1, 16), .n = 16}},
                             {.kind = STEP_COMMIT, .length = 8},
                             {.kind = STEP_REWIND, .length = 12},
                             {.kind = STEP_CLOSE}};

    assert_ok(rig_match(b.s, NULL, 0));
    for (int i = 0; i < 4; i++)
        ops[i].session = b.s->id;
    reply = rig_step_ops(b.rig, b.e.conn[0], ops, 4);
    for (int i = 0; i < 4; i++)
        assert_ok(reply->step.results[i].err);
    assert_int_equal(reply->step.results[1].lengths.committed, 8);
    assert_int_equal(reply->step.results[2].lengths.allocated, 12);
    assert_int_equal(rig_free(b.rig, b.pool), 2);
    assert_int_equal(rig_group_view(b.rig, b.pool, 0).snapshot, 2);
}

/* A session belongs to the engine, not to a connection: another rank's connection may use it,
 * another engine's not. */
TEST(session_of_another_engine_is_not_ours)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 1), other = rig_engine(rig, 0, "o", 1),
                      foreign = rig_engine(rig, 1, "f", 1);
    struct pool_id pool = rig_pool_pages(rig, &e, 4, 8);
    struct rig_session *s = rig_session(rig, &e, pool, 1), mine;

    s->conn = other.conn[0];
    assert_int_not_equal(rig_match(s, rig_tokens(1, 8), 8), TERN_OK);
    s->conn = foreign.conn[0];
    assert_int_not_equal(rig_match(s, rig_tokens(1, 8), 8), TERN_OK);
    assert_int_not_equal(rig_session_open(rig, foreign.conn[0], pool, 1, &mine), TERN_OK);
    s->conn = e.conn[0];
    assert_ok(rig_match(s, rig_tokens(1, 8), 8));
}

/* E4: the first step that brings what is missing, of this pool and group. */
TEST(engine_shortage_names_the_step_that_brings_enough)
{
    struct bench b = bench_start(4, 10);
    struct pool_id elsewhere = rig_pool_pages(b.rig, &b.e, 4, 8);
    struct rig_session *s[3];
    const uint32_t pages[3] = {4, 3, 3};
    const uint64_t steps[3] = {3, 5, 9};

    for (uint32_t i = 0; i < 3; i++) {
        s[i] = rig_session(b.rig, &b.e, i ? b.pool : elsewhere, 1);
        assert_ok(rig_match(s[i], rig_tokens(i, 4 * pages[i]), 4 * pages[i]));
        assert_ok(rig_extend(s[i], 4 * pages[i], 0, NULL, 0));
    }
    assert_ok(rig_match(b.s, rig_tokens(7, 32), 32));
    assert_ok(rig_extend(b.s, 8, 0, NULL, 0));
    rig_put(b.rig, &b.e, b.pool, 9, 4); /* one page can go, one is free */
    for (uint32_t i = 0; i < 3; i++)
        assert_ok(rig_close(s[i], steps[i]));
    for (uint32_t missing = 4; missing > 0; missing--) {
        assert_err(TERN_POOL_EXHAUSTED, rig_extend(b.s, 8 + 4 * (2 + missing), 0, NULL, 0));
        assert_int_equal(b.rig->res.shortage.free, 1);
        assert_int_equal(b.rig->res.shortage.reclaimable, 1);
        assert_int_equal(b.rig->res.shortage.retiring, 6);
        assert_true(b.rig->res.shortage.until_step == (missing > 3 ? 9 : 5));
    }
    rig_engine_done(b.rig, &b.e, 5);
    assert_ok(rig_extend(b.s, 8 + 4 * 5, 0, NULL, 0));
}

/* One more connection of a process that has one. */
static uint32_t connect_again(struct rig *rig, uint32_t proc)
{
    struct event event = {.kind = EV_CONN_OPENED};

    event.conn.conn = rig->next_conn++;
    event.conn.proc = proc;
    rig_event(rig, &event);
    return event.conn.conn;
}

/* One seat, one connection; when that is gone, the process may take its seat again. */
TEST(engine_seat_taken_again_by_its_process_alone)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 1);
    struct pool_id pool = rig_pool_pages(rig, &e, 4, 8);
    uint32_t again = connect_again(rig, e.proc[0]), stranger = rig_connect(rig, 0, NULL);
    struct rig_session *s = rig_session(rig, &e, pool, 1);

    assert_err(TERN_CONFLICT, rig_join(rig, again, "e", ROLE_BOTH, 0, 1));
    rig_disconnect(rig, e.conn[0]);
    assert_err(TERN_CONFLICT, rig_join(rig, stranger, "e", ROLE_BOTH, 0, 1));
    assert_ok(rig_join(rig, again, "e", ROLE_BOTH, 0, 1));
    assert_true(engine_id_equal(rig->last->join.engine, e.id));
    s->conn = again;
    assert_ok(rig_match(s, rig_tokens(1, 8), 8));
}

/* Its processes are gone, a connection of them is still open: it is no seat in whatever engine has
 * the slot by then. */
TEST(engine_gone_its_connection_is_nobodys)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 2), next;
    struct pool_id pool = rig_pool_pages(rig, &e, 4, 8);
    struct rig_session s;

    rig_proc_gone(rig, e.proc[1]);
    assert_ok(rig_leave(rig, e.conn[1])); /* it said so before it died */
    assert_int_equal(rig->engines_gone, 0);
    rig_proc_gone(rig, e.proc[0]);
    assert_int_equal(rig->engines_gone, 1);
    next = rig_engine(rig, 0, "next", 2);
    assert_int_equal(next.id.slot, e.id.slot);
    assert_false(engine_id_equal(next.id, e.id));
    assert_err(TERN_INVALID, rig_session_open(rig, e.conn[0], pool, 1, &s));
    assert_err(TERN_INVALID, rig_leave(rig, e.conn[0]));
    rig_disconnect(rig, e.conn[0]);
    assert_int_equal(rig->engines_gone, 1);
}

/* A rank that left may be one of another engine on the same connection; the end of the first is
 * none of its business. */
TEST(engine_left_its_connection_joins_another)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 2);
    struct group_layout group = rig_group(4, 512);
    struct pool_id pool;

    assert_ok(rig_leave(rig, e.conn[1]));
    assert_ok(rig_join(rig, e.conn[1], "next", ROLE_BOTH, 0, 1));
    assert_ok(rig_leave(rig, e.conn[0]));
    assert_int_equal(rig->engines_gone, 1);
    assert_true(engine_id_equal(rig->engine_gone, e.id));
    assert_ok(rig_pool_open(rig, e.conn[1], &group, 1, 1u << 16, &pool));
}
