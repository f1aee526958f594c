/* What goes first where there is STATE: superseded segments, then leaves (T12). */
#include "unit/rig/rig_state.h"

/* T12 */
TEST(evict_starved_of_state_drops_state_alone)
{
    struct stage st = stage_capped(SUPERSEDE_LAZY, 64, 12);
    struct rig_session *s = stage_session(&st);

    for (uint32_t seed = 1; seed <= 3; seed++)
        stage_put(&st, seed, 64);
    assert_int_equal(match_depth(&st, seq1, 64), 64); /* so 2 is the oldest use */
    takes_pages(s, rig_tokens(4, 64), 64, 64);
    assert_int_equal(rig_pool_view(st.rig, st.pool).nodes, 3);
    assert_int_equal(match_depth(&st, seq1, 64), 64);
    assert_int_equal(match_depth(&st, rig_tokens(3, 64), 64), 64);
    assert_int_equal(match_depth(&st, rig_tokens(2, 64), 64), 0);
    assert_int_equal(rig_depth(s, rig_tokens(2, 64), 64), 0);
    assert_int_equal(st.rig->last->peek.history_depth, 64);
}

/* T12 */
TEST(evict_starved_of_history_takes_whole_snapshots)
{
    struct group_layout groups[2] = {rig_group(64, 512), rig_window(16, 64, 64)};
    struct stage st = {.rig = rig_create(NULL)};
    struct rig_session *s;

    groups[0].cap_pages = 2;
    st.e = rig_engine(st.rig, 0, "e", 1);
    assert_ok(rig_pool_open(st.rig, st.e.conn[0], groups, 2, 1u << 20, &st.pool));
    stage_put(&st, 1, 128);
    s = stage_session(&st);
    takes_pages(s, rig_tokens(2, 64), 64, 64);
    assert_int_equal(rig_pool_view(st.rig, st.pool).nodes, 1);
    assert_int_equal(state_view(&st).snapshot + state_view(&st).reclaimable, 4);
}

/* A slab is one page of either group. Sequence 1 to 192 is there: three pages of HISTORY, of STATE
 * one in use and two superseded. */
static struct stage stage_of_slabs(uint32_t usable, uint32_t history_cap)
{
    struct group_layout groups[2] = {rig_group(64, 512), rig_window(64, 64, 512)};
    struct stage st = {.rig = rig_create(NULL)};

    groups[0].cap_pages = history_cap;
    st.e = rig_engine(st.rig, 0, "e", 1);
    assert_ok(rig_pool_open(st.rig, st.e.conn[0], groups, 2, (1 + usable) * 512, &st.pool));
    for (uint32_t depth = 64; depth <= 192; depth += 64)
        stage_put(&st, 1, depth);
    assert_int_equal(state_view(&st).reclaimable, 2);
    return st;
}

/* T12: starved of HISTORY: superseded STATE goes before any leaf, since its slabs help; where the
 * group has a cap, up to that. */
TEST(evict_superseded_state_goes_before_leaves)
{
    for (uint32_t cap = 0; cap <= 5; cap += 5) {
        struct stage st = stage_of_slabs(7, cap);
        struct rig_session *s = stage_session(&st);

        takes_pages(s, rig_tokens(2, 128), 128, 128); /* four slabs, of which one is free */
        assert_int_equal(rig_view(st.rig).evicted_pages, 3);
        assert_int_equal(rig_pool_view(st.rig, st.pool).nodes, 3);
        assert_int_equal(rig_depth(s, seq1, 192), 0);
        assert_int_equal(st.rig->last->peek.history_depth, 192);
    }
}

/* T12: at the group's own cap they do not help, and stay. */
TEST(evict_at_the_cap_of_history_superseded_state_stays)
{
    struct stage st = stage_of_slabs(15, 3);
    struct rig_session *s = stage_session(&st);

    takes_pages(s, rig_tokens(2, 64), 64, 64);
    assert_int_equal(rig_pool_view(st.rig, st.pool).nodes, 2);
    assert_int_equal(state_view(&st).reclaimable, 2);
    assert_int_equal(match_depth(&st, seq1, 192), 128);
}
