/* Engines: who may join as what, and the state after a lost connection or a dead process (E1 to
 * E3). */
#include "unit/rig/rig_pair.h"

/* From the first death on, the engine's requests fail; the name is free when the last process is
 * gone. */
TEST(errors_dying_engine_gone_and_its_name_busy)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 2), again;
    struct pool_id pool = rig_pool_pages(rig, &e, 4, 16);
    struct rig_session *s = rig_session(rig, &e, pool, 1);
    uint32_t late = rig_connect(rig, 0, NULL);

    rig_engine_kill(rig, &e, 1);
    assert_refused(rig, TERN_GONE, rig_match(s, seq1, 8));
    assert_refused(rig, TERN_GONE, rig_pool_close(rig, e.conn[0], pool));
    assert_refused(rig, TERN_BUSY, rig_join(rig, late, "e", ROLE_WORKER, 1, 2));
    rig_engine_kill(rig, &e, 0);
    again = rig_engine(rig, 0, "e", 2);
    assert_false(engine_id_equal(e.id, again.id));
}

TEST(errors_engine_incomplete_busy)
{
    struct rig *rig = rig_create(NULL);
    uint32_t a = rig_connect(rig, 0, NULL), b = rig_connect(rig, 0, NULL);
    struct group_layout group = rig_group(4, 512);
    struct pool_id pool;

    assert_ok(rig_join(rig, a, "e", ROLE_BOTH, 0, 2));
    assert_refused(rig, TERN_BUSY, rig_pool_open(rig, a, &group, 1, 1 << 16, &pool));
    assert_ok(rig_join(rig, b, "e", ROLE_WORKER, 1, 2));
    assert_ok(rig_pool_open(rig, a, &group, 1, 1 << 16, &pool));
}

/* A scheduler that is no rank has a process of its own: the engine ends with that process or after
 * it, never before. */
TEST(errors_scheduler_of_its_own_counts_as_a_process)
{
    struct rig *rig = rig_create(NULL);
    uint32_t sched_proc, rank_proc;
    uint32_t sched = rig_connect(rig, 0, &sched_proc), rank = rig_connect(rig, 0, &rank_proc);
    struct group_layout group = rig_group(4, 512);
    struct rig_session s;
    struct pool_id pool;

    assert_ok(rig_join(rig, sched, "e", ROLE_SCHEDULER, 0, 1));
    assert_ok(rig_join(rig, rank, "e", ROLE_WORKER, 0, 1));
    assert_ok(rig_pool_open(rig, sched, &group, 1, 1 << 16, &pool));
    assert_ok(rig_session_open(rig, sched, pool, 1, &s));
    assert_ok(rig_map(rig, rank, pool));
    rig_disconnect(rig, rank);
    rig_proc_gone(rig, rank_proc);
    assert_int_equal(rig->engines_gone, 0);
    rig_disconnect(rig, sched);
    rig_proc_gone(rig, sched_proc);
    assert_int_equal(rig->engines_gone, 1);
    assert_int_equal(rig_view(rig).sessions, 0);
}

TEST(errors_one_connection_one_engine)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 1);
    uint32_t stranger = rig_connect(rig, 0, NULL);

    assert_refused(rig, TERN_CONFLICT, rig_join(rig, e.conn[0], "other", ROLE_BOTH, 0, 1));
    assert_refused(rig, TERN_INVALID, rig_leave(rig, stranger));
    assert_ok(rig_leave(rig, e.conn[0]));
    assert_int_equal(rig->engines_gone, 1);
    assert_refused(rig, TERN_INVALID, rig_leave(rig, e.conn[0]));
    assert_ok(rig_join(rig, e.conn[0], "other", ROLE_BOTH, 0, 1)); /* it may join again */
}

TEST(limits_engines_full_busy)
{
    struct rig_options options = rig_defaults();
    struct rig *rig;
    struct rig_engine e;
    uint32_t conn;

    options.limits.engines = 1;
    rig = rig_create(&options);
    e = rig_engine(rig, 0, "a", 1);
    conn = rig_connect(rig, 0, NULL);
    assert_err(TERN_BUSY, rig_join(rig, conn, "b", ROLE_BOTH, 0, 1));
    rig_engine_kill(rig, &e, 0);
    assert_ok(rig_join(rig, conn, "b", ROLE_BOTH, 0, 1));
}

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
    assert_int_not_equal(rig_match(s, seq1, 8), TERN_OK);
}

/* E1: every process has its own connection, and the engine ends with the last of them. */
TEST(engine_leave_of_all_frees_everything)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 3);
    struct pool_id pool = rig_pool_pages(rig, &e, 4, 8);
    struct rig_session *s = rig_session(rig, &e, pool, 1);

    computes(s, 1, 32);
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
    struct bench b = bench_start(4, 8);

    computes(b.s, 1, 32);
    rig_disconnect(b.rig, b.e.conn[0]);
    rig_advance(b.rig, 3600000000000u); /* an alarm, but no timer frees pages */
    assert_int_equal(rig_free(b.rig, b.pool), 0);
    assert_int_equal(b.rig->engines_gone, 0);
    rig_proc_gone(b.rig, b.e.proc[0]);
    assert_int_equal(b.rig->engines_gone, 1);
    assert_int_equal(rig_view(b.rig).engines, 0);
}

static const char *maps(struct rig *rig, struct pool_id pool)
{
    static struct engine_view v;

    return core_engine_view(rig->core, rig_pool_view(rig, pool).engine, &v) ? v.name : "-";
}

/* A view names a pool after an engine that maps it. A pool that nobody maps has no engine, even if
 * another engine has the slot of the former one. */
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

/* T8's last clause and E1: a commit whose step never passed goes with its engine. Faults 1 and 2: a
 * prefix is committed as a whole or absent. */
TEST(engine_gone_takes_its_pending_nodes)
{
    struct bench b = bench_start(4, 8);
    struct rig_engine other = second_engine(b.rig, b.pool);
    struct rig_session *like = rig_session(b.rig, &other, b.pool, 1);

    computes_and_commits(b.s, 1, 16, 8, 0);
    assert_ok(rig_commit(b.s, 16, 5));
    assert_int_equal(rig_depth(like, seq1, 16), 8);
    rig_engine_kill(b.rig, &b.e, 0);
    rig_step_done(b.rig, b.e.id, 0, 9);             /* a late store of the dead */
    assert_int_equal(rig_depth(like, seq1, 16), 8); /* P4: what had passed stays */
    assert_int_equal(rig_group_view(b.rig, b.pool, 0).snapshot, 2);
    assert_int_equal(rig_free(b.rig, b.pool), 6);
}

/* Opens another connection for a process that has one. */
static uint32_t connect_again(struct rig *rig, uint32_t proc)
{
    struct event event = {.kind = EV_CONN_OPENED};

    event.conn.conn = rig->next_conn++;
    event.conn.proc = proc;
    rig_event(rig, &event);
    return event.conn.conn;
}

/* A seat has one connection. When that connection is gone, the process may take its seat again. */
TEST(engine_seat_taken_again_by_its_process_alone)
{
    struct bench b = bench_start(4, 8);
    uint32_t again = connect_again(b.rig, b.e.proc[0]), stranger = rig_connect(b.rig, 0, NULL);

    assert_err(TERN_CONFLICT, rig_join(b.rig, again, "e", ROLE_BOTH, 0, 1));
    rig_disconnect(b.rig, b.e.conn[0]);
    assert_err(TERN_CONFLICT, rig_join(b.rig, stranger, "e", ROLE_BOTH, 0, 1));
    assert_ok(rig_join(b.rig, again, "e", ROLE_BOTH, 0, 1));
    assert_true(engine_id_equal(b.rig->last->join.engine, b.e.id));
    b.s->conn = again;
    assert_ok(rig_match(b.s, seq1, 8));
}

/* The engine's processes are gone and one of their connections is still open: it has no seat in the
 * engine that uses the slot now. */
TEST(engine_gone_its_connection_is_nobodys)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 2), next;
    struct pool_id pool = rig_pool_pages(rig, &e, 4, 8);
    struct rig_session s;

    rig_proc_gone(rig, e.proc[1]);
    assert_ok(rig_leave(rig, e.conn[1])); /* the rank leaves before it dies */
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

/* A rank that left may join another engine on the same connection. The end of the first engine does
 * not affect it. */
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

TEST(engines_world_of_more_ranks_than_the_tenant_has_regions_invalid)
{
    struct rig *rig = rig_create(NULL);
    uint32_t regions = rig->options.tenant[0].regions, conn = rig_connect(rig, 0, NULL);

    assert_true(regions < RANKS_MAX);
    assert_err(TERN_INVALID, rig_join(rig, conn, "e", ROLE_BOTH, 0, regions + 1));
    assert_int_equal(rig->last->number[0], regions + 1);
    assert_int_equal(rig->last->number[1], regions);
    assert_int_equal(rig_view(rig).engines, 0);
    assert_ok(rig_join(rig, conn, "e", ROLE_BOTH, 0, regions));
}

/* E9: one region a rank; either all ranks name their devices or none does. */
TEST(engines_ranks_live_in_regions_of_their_own)
{
    struct rig *rig = rig_create(NULL);
    uint32_t regions = rig->options.tenant[0].regions;
    uint32_t first = rig_connect(rig, 0, NULL), second = rig_connect(rig, 0, NULL);

    assert_err(TERN_INVALID, rig_join_at(rig, first, "e", 0, 2, regions));
    assert_int_equal(rig_view(rig).engines, 0);
    assert_ok(rig_join_at(rig, first, "e", 0, 2, 3));
    assert_ok(rig_join_at(rig, first, "e", 0, 2, 3)); /* once more */
    assert_err(TERN_CONFLICT, rig_join_at(rig, first, "e", 0, 2, 1));
    assert_err(TERN_CONFLICT, rig_join_at(rig, first, "e", 0, 2, NONE));
    assert_err(TERN_CONFLICT, rig_join_at(rig, second, "e", 1, 2, 3));
    assert_err(TERN_CONFLICT, rig_join_at(rig, second, "e", 1, 2, NONE));
    assert_ok(rig_join_at(rig, second, "e", 1, 2, 0));
}

TEST(engines_of_64_ranks_join)
{
    struct rig_options o = rig_defaults();
    struct rig *rig;
    struct rig_engine e;
    struct group_layout group = rig_group(4, 512);
    struct pool_id pool;

    o.tenant[0].regions = RANKS_MAX;
    o.limits.conns = RANKS_MAX + 2;
    o.limits.sums_per_page = RANKS_MAX;
    rig = rig_create(&o);
    e = rig_engine(rig, 0, "e", RANKS_MAX);
    assert_ok(rig_pool_open(rig, e.conn[0], &group, 1, 1u << 16, &pool));
    assert_ok(rig_pool_map(rig, e.conn[RANKS_MAX - 1], pool));
    assert_int_equal(rig->last->pool_map.region, RANKS_MAX - 1);
    rig_engine_done(rig, &e, 7);
    rig_destroy(rig);
}
