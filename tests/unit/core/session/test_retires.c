/* Pages that are returned at a step, and the records in which they wait (E2). */
#include "unit/rig/rig_pair.h"

/* Retire records: an operation that needs one and finds none is BUSY and changes nothing. Steps
 * that pass free records. */
TEST(limits_retires_full_busy_until_a_step_passes)
{
    struct bench b = BENCH_LIMITED(limits.retires = 2, 4, 64);
    struct req_tokens shorter = {.n = 20};

    shorter.v = seq1;
    computes_up_to(b.s, seq1, 64, 40);
    assert_ok(rig_rewind(b.s, 36, 1));
    assert_ok(rig_rewind(b.s, 32, 2));
    assert_err(TERN_BUSY, rig_rewind(b.s, 28, 3));
    assert_lengths(b.s, 0, 32, 32);
    assert_err(TERN_BUSY, rig_match_full(b.s, &shorter, 3));
    assert_err(TERN_BUSY, rig_finish(b.s, 28, 3));
    assert_err(TERN_BUSY, rig_commit(b.s, 16, 3));
    assert_err(TERN_BUSY, rig_abort(b.s, 3));
    assert_err(TERN_BUSY, rig_close(b.s, 3));
    assert_int_equal(rig_retiring(b.rig, b.pool), 2);
    rig_engine_done(b.rig, &b.e, 1);
    assert_ok(rig_rewind(b.s, 28, 2)); /* one record is free again */
    assert_ok(rig_rewind(b.s, 24, 1)); /* step 1 has passed: no record needed */
    rig_engine_done(b.rig, &b.e, 2);
    assert_int_equal(rig_retiring(b.rig, b.pool), 0);
    assert_int_equal(rig_view(b.rig).retires_free, 2);
    assert_ok(rig_close(b.s, 3));
    rig_engine_done(b.rig, &b.e, 3);
    assert_int_equal(rig_free(b.rig, b.pool), 64);
}

/* A commit at step 0 needs no record until it adopts a pending node of its engine; the chunks
 * behind that node wait with it. */
TEST(limits_retires_full_commit_below_a_pending_node_stops_there)
{
    struct bench b = BENCH_LIMITED(limits.retires = 2, 4, 64);
    struct rig_session *twin = rig_session(b.rig, &b.e, b.pool, 1);

    computes(twin, 1, 16);
    computes_and_commits(b.s, 1, 16, 8, 5); /* one record */
    assert_ok(rig_rewind(b.s, 12, 6));      /* and the other */
    assert_err(TERN_BUSY, rig_commit(twin, 16, 0));
    assert_lengths(twin, 4, 16, 16); /* adopted, but no further */
    rig_engine_done(b.rig, &b.e, 6);
    assert_leaves_whole(rig_commit(twin, 16, 0), twin, 16);
}

/* The same for a transfer whose chunks would hang below a node that waits for its step. */
TEST(limits_retires_full_fetch_below_a_pending_node_busy)
{
    struct pair p = PAIR_LIMITED(limits.retires = 2, 4, 64, 64);

    pair_offer(&p, 32);
    run_and_commit(p.d, seq1, 9, 8, 5);
    assert_ok(rig_rewind(p.d, 8, 5));
    assert_int_equal(rig_view(p.dest).retires_free, 0);
    assert_ok(rig_match(p.d, seq1, 32));
    assert_err(TERN_BUSY, fetch_all(p.d));
    assert_lengths(p.d, 8, 8, 8);
    rig_engine_done(p.dest, &p.de, 5);
    assert_leaves_whole(fetch_all(p.d), p.d, 32);
}

/* Pages that retire for a dead engine are free when it is gone, whatever step they wait for. */
TEST(engine_gone_ends_its_retiring_pages)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 2), other = rig_engine(rig, 0, "o", 2);
    struct pool_id pool = rig_pool_pages(rig, &e, 4, 8);
    struct request map = {.op = OP_POOL_MAP};
    struct rig_session *s = rig_session(rig, &e, pool, 1);

    map.pool_map.pool = pool;
    assert_ok(rig_request(rig, other.conn[0], &map)->err); /* the pool outlives its opener */
    computes(s, 1, 32);
    assert_ok(rig_close(s, 1000));
    assert_int_equal(rig_retiring(rig, pool), 8);
    rig_engine_kill(rig, &e, 0);
    assert_int_equal(rig_retiring(rig, pool), 8);
    rig_engine_kill(rig, &e, 1);
    assert_int_equal(rig_retiring(rig, pool), 0);
    assert_int_equal(rig_free(rig, pool), 8);
    assert_int_equal(rig_view(rig).retires_free, rig->options.limits.retires);
}

/* E2: step numbers never go back. */
TEST(engine_step_that_goes_back_is_refused)
{
    struct bench b = bench_start(4, 8);
    struct engine_view v;

    rig_engine_done(b.rig, &b.e, 10);
    rig_engine_done(b.rig, &b.e, 4);
    assert_true(core_engine_view(b.rig->core, b.e.id.slot, &v));
    assert_true(v.done_step[0] == 10);
    computes(b.s, 1, 16);
    assert_ok(rig_rewind(b.s, 8, 10)); /* passed already: free at once */
    assert_int_equal(rig_free(b.rig, b.pool), 6);
}

/* E7: garbage in a control page proves nothing. When it is repaired, steps count from the value
 * before. */
TEST(engine_step_that_jumps_frees_nothing)
{
    static const uint64_t garbage[] = {7 + STEPS_UNNAMED_MAX + 1, 1ull << 40, UINT64_MAX};
    struct bench b = bench_start(4, 8);
    struct engine_view v;

    computes(b.s, 1, 32);
    assert_ok(rig_rewind(b.s, 16, 7));
    rig_engine_done(b.rig, &b.e, 5);
    for (uint32_t i = 0; i < 3; i++) {
        rig_advance(b.rig, 1000);
        rig_engine_done(b.rig, &b.e, garbage[i]);
        assert_int_equal(rig_retiring(b.rig, b.pool), 4);
        assert_true(core_engine_view(b.rig->core, b.e.id.slot, &v));
        assert_true(v.jumped && v.jumps == i + 1 && v.named == 7 && v.done_step[0] == garbage[i]);
        assert_true(v.waits_since_ns != 0 && v.waits_since_ns < b.rig->now_ns);
    }
    assert_ok(rig_rewind(b.s, 8, 8)); /* pages that are returned meanwhile stay, too */
    rig_engine_done(b.rig, &b.e, 4);  /* refused: 5 was true */
    rig_engine_done(b.rig, &b.e, 6);  /* repaired */
    assert_int_equal(rig_retiring(b.rig, b.pool), 6);
    rig_engine_done(b.rig, &b.e, 7);
    assert_int_equal(rig_retiring(b.rig, b.pool), 2);
    assert_true(core_engine_view(b.rig->core, b.e.id.slot, &v));
    assert_true(!v.jumped && v.jumps == 3 && v.waits_since_ns == b.rig->now_ns);
}

/* A jump over many unnamed steps is no garbage: the next step that is named near it proves that. */
TEST(engine_step_far_ahead_counts_when_one_near_it_is_named)
{
    const uint64_t far = 3ull * STEPS_UNNAMED_MAX;
    struct bench b = bench_start(4, 8);
    struct engine_view v;

    computes(b.s, 1, 32);
    assert_ok(rig_rewind(b.s, 16, 7));
    rig_engine_done(b.rig, &b.e, far);
    assert_int_equal(rig_retiring(b.rig, b.pool), 4);
    assert_ok(rig_rewind(b.s, 8, far - 1));
    assert_int_equal(rig_retiring(b.rig, b.pool), 0);
    assert_true(core_engine_view(b.rig->core, b.e.id.slot, &v));
    assert_true(!v.jumped && v.waits_since_ns == 0);
}

TEST(engine_step_zero_frees_at_once)
{
    struct bench b = bench_start(4, 8);

    computes(b.s, 1, 16);
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
