/* Events that subscribers of the tree receive about the host tier and about a reset. */
#include "unit/rig/rig_host.h"

/* The events of one prefix that is copied to the host, leaves the device, and is loaded again. */
TEST(changes_of_tier_are_told)
{
    static const struct {
        enum tree_event_kind kind;
        bool device, host;
    } want[] = {{TREE_STORED, true, false}, {TREE_TIER, true, true},  {TREE_TIER, false, true},
                {TREE_TIER, true, true},    {TREE_TIER, false, true}, {TREE_REMOVED, false, false}};
    struct bench b = host_bench(4, 16, 16);
    struct tree_event_view v;

    put(&b, 1, 4);
    assert_int_equal(evicts(&b, 1), 1);
    assert_ok(rig_match(b.s, seq1, 8));
    assert_ok(fetch_back(b.s));
    assert_ok(rig_abort(b.s, 0));
    assert_int_equal(evicts(&b, 0), 2);
    for (uint32_t i = 0; i < 6; i++) {
        assert_true(rig_event_view(b.rig->core, i + 1, &v));
        assert_int_equal(v.kind, want[i].kind);
        assert_int_equal(v.on_device, want[i].device);
        assert_int_equal(v.on_host, want[i].host);
        assert_int_equal(v.depth, 4);
    }
    assert_false(rig_event_view(b.rig->core, 7, &v));
    bench_ends_clean(&b);
}

/* N1: a node that a session pins is removed when the session unpins it, even if the prefix was
 * stored anew. Each node is stored once and removed once, so a subscriber can count what exists. */
TEST(prefix_held_over_a_reset_is_removed_once)
{
    static const enum tree_event_kind want[] = {TREE_STORED, TREE_STORED, TREE_REMOVED,
                                                TREE_REMOVED};
    struct bench b = bench_start(4, 16);
    struct rig_session *held = rig_committed(b.rig, &b.e, b.pool, 1, 4);
    struct tree_event_view v, first;

    assert_ok(rig_reset(b.rig, b.e.conn[0], 1, NULL));
    put(&b, 1, 4);
    assert_false(rig_event_view(b.rig->core, 3, &v));
    assert_ok(rig_close(held, 0));
    assert_int_equal(rig_depth(b.s, seq1, 4), 4);
    assert_false(rig_event_view(b.rig->core, 4, &v));
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 1), 1);
    for (uint32_t i = 0; i < 4; i++) {
        assert_true(rig_event_view(b.rig->core, i + 1, i == 0 ? &first : &v));
        assert_int_equal((i == 0 ? first : v).kind, want[i]);
        assert_int_equal((i == 0 ? first : v).chain, first.chain);
    }
    bench_ends_clean(&b);
}
