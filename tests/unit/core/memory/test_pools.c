/* Closing a pool, and the zeroing of a range before its next use (T15, P3). */
#include "unit/rig/rig_test.h"

/* T15: the pool's snapshots go before the pool. The pool's range is zeroed before any other use,
 * and not before every process that mapped it is gone. */
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
    assert_ok(rig_match(b.s, seq1, 16)); /* nothing has changed */
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

/* --- regions --- */

#define WHOLE (1u << 20)

/* A tenant with 8 regions, and records for two pools of a whole region each. */
static struct rig *eight_regions(void)
{
    struct rig_options o = rig_defaults();

    o.tenant[0] = (struct tenant_config){
        .memory_bytes = WHOLE, .host_bytes = WHOLE, .regions = 8, .sessions_max = 8};
    o.limits.pages = 8192;
    o.limits.slabs = 8192;
    o.limits.sums_per_page = 8;
    return rig_create(&o);
}

static struct pool_id opened(struct rig *rig, const struct rig_engine *e, enum tern_err want)
{
    struct group_layout group = rig_group(8, 1024);
    struct pool_id pool = {NONE, 0};

    rig->host_bytes = WHOLE;
    assert_err(want, rig_pool_open(rig, e->conn[0], &group, 1, WHOLE, &pool));
    return pool;
}

/* Each rank gets the region in which it lives, and all get the same place in it. */
static void mapped(struct rig *rig, const struct rig_engine *e, struct pool_id pool, uint32_t first)
{
    for (uint32_t r = 0; r < e->world; r++) {
        assert_ok(rig_pool_map(rig, e->conn[r], pool));
        assert_int_equal(rig->last->pool_map.region, first + r);
        assert_int_equal(rig->last->pool_map.offset, 0);
        assert_int_equal(rig->last->pool_map.bytes, rig_pool_view(rig, pool).bytes);
    }
}

/* E9: two pools of whole regions, device and host tier, lie side by side. A third one in the
 * regions of the second finds no room. */
TEST(pool_takes_the_regions_of_its_ranks_and_no_others)
{
    static const uint32_t worlds[] = {1, 4};

    for (uint32_t i = 0; i < 2; i++) {
        struct rig *rig = eight_regions();
        uint32_t world = worlds[i], at = 8 - world;
        struct rig_engine a = rig_engine(rig, 0, "a", world);
        struct rig_engine b = rig_engine_at(rig, 0, "b", world, at);
        struct rig_engine c = rig_engine_at(rig, 0, "c", world, at);
        struct pool_id pa = opened(rig, &a, TERN_OK), pb = opened(rig, &b, TERN_OK);

        mapped(rig, &a, pa, 0);
        mapped(rig, &b, pb, at);
        opened(rig, &c, TERN_QUOTA);
        assert_err(TERN_INVALID, rig_pool_map(rig, a.conn[0], pb)); /* equal world */
        mapped(rig, &c, pb, at);
        rig_destroy(rig);
    }
}

/* A pool that nobody maps stays while it is in nobody's way, and an engine of the same world on
 * other devices does not take it over. */
TEST(pool_that_nobody_maps_makes_way_in_its_own_regions_alone)
{
    struct rig *rig = eight_regions();
    struct rig_engine a = rig_engine_at(rig, 0, "a", 4, 0), b, all;
    struct pool_id pa = opened(rig, &a, TERN_OK), pb;

    rig_engine_kill(rig, &a, 0);
    for (uint32_t r = 1; r < 4; r++)
        rig_engine_kill(rig, &a, r);
    b = rig_engine_at(rig, 0, "b", 4, 4);
    pb = opened(rig, &b, TERN_OK);
    assert_false(pool_id_equal(pa, pb));
    assert_int_equal(rig_view(rig).pools, 2);
    a = rig_engine_at(rig, 0, "a", 4, 0);
    assert_true(pool_id_equal(pa, opened(rig, &a, TERN_OK)));
    for (uint32_t r = 0; r < 4; r++) {
        rig_engine_kill(rig, &a, r);
        rig_engine_kill(rig, &b, r);
    }
    all = rig_engine(rig, 0, "all", 8);
    opened(rig, &all, TERN_BUSY);
    opened(rig, &all, TERN_BUSY);
    mapped(rig, &all, opened(rig, &all, TERN_OK), 0);
    rig_destroy(rig);
}
