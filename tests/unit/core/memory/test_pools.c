/* Closing a pool, and the zeroing of a range before its next use (T15, P3). */
#include "unit/rig/rig_test.h"

/* T15: the pool's snapshots go before the pool; its range is zeroed before it is used for anything
 * else, and not before everyone who mapped it is gone. */
TEST(pool_close_zeroes_before_reuse_of_its_range)
{
    struct bench b =
        BENCH_LIMITED(tenant[0].memory_bytes = 1u << 20, 4, 16); /* one pool fills the tenant */
    struct group_layout group = rig_group(8, 1024);
    struct pool_id next;
    struct pool_view v;
    struct rig_engine other = rig_engine(b.rig, 0, "o", 1);

    rig_put(b.rig, &b.e, b.pool, 1, 16);
    assert_ok(rig_close(b.s, 0));
    v = rig_pool_view(b.rig, b.pool);
    b.rig->automatic = RIG_ALL & ~(uint32_t)RIG_ZERO;
    assert_err(TERN_QUOTA, rig_pool_open(b.rig, other.conn[0], &group, 1, 1u << 20, &next));
    assert_ok(rig_pool_close(b.rig, b.e.conn[0], b.pool));
    assert_int_equal(rig_jobs(b.rig, RIG_ZERO), 0); /* the engine still maps it */
    assert_int_not_equal(rig_pool_open(b.rig, other.conn[0], &group, 1, 1u << 20, &next), TERN_OK);
    rig_engine_kill(b.rig, &b.e, 0);
    assert_int_equal(rig_jobs(b.rig, RIG_ZERO), 1);
    assert_int_not_equal(rig_pool_open(b.rig, other.conn[0], &group, 1, 1u << 20, &next), TERN_OK);
    rig_complete(b.rig, RIG_ZERO);
    for (uint64_t i = 0; i < v.bytes; i++)
        assert_int_equal(b.rig->bytes[0][v.offset + i], 0);
    assert_ok(rig_pool_open(b.rig, other.conn[0], &group, 1, 1u << 20, &next));
    assert_int_equal(rig_pool_view(b.rig, next).offset, v.offset);
    assert_false(pool_id_equal(next, b.pool));
}

TEST(pool_close_with_open_sessions_conflicts_then_everything_of_it_is_gone)
{
    struct bench b = bench_start(4, 16);
    struct rig_session other;

    rig_put(b.rig, &b.e, b.pool, 2, 16);
    assert_err(TERN_CONFLICT, rig_pool_close(b.rig, b.e.conn[0], b.pool));
    assert_ok(rig_match(b.s, seq1, 16)); /* and nothing has changed */
    assert_ok(rig_close(b.s, 0));
    assert_err(TERN_GONE,
               rig_pool_close(b.rig, b.e.conn[0], (struct pool_id){b.pool.slot, b.pool.gen + 1}));
    assert_ok(rig_pool_close(b.rig, b.e.conn[0], b.pool));
    assert_err(TERN_GONE, rig_pool_close(b.rig, b.e.conn[0], b.pool));
    assert_err(TERN_GONE, rig_session_open(b.rig, b.e.conn[0], b.pool, 1, &other));
    assert_int_equal(rig_view(b.rig).nodes, 0);
    rig_engine_kill(b.rig, &b.e, 0);
    assert_int_equal(rig_view(b.rig).pools, 0);
}
