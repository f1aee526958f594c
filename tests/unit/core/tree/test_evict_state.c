/* The order of eviction in a pool with STATE: superseded segments, then leaves (T12). */
#include "unit/rig/rig_state.h"

#include <stdio.h>

/* T12 */
TEST(evict_starved_of_state_drops_state_alone)
{
    struct stage st = stage_capped(SUPERSEDE_LAZY, 64, 12);
    struct rig_session *s = stage_session(&st);

    for (uint32_t seed = 1; seed <= 3; seed++)
        stage_put(&st, seed, 64);
    assert_int_equal(match_depth(&st, seq1, 64), 64); /* so 2 has the oldest use */
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

/* A slab is one page of either group. Sequence 1 to 192 is committed: three pages of HISTORY, and
 * of STATE one in use and two superseded. */
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

/* T12: short of HISTORY, superseded STATE goes before any leaf, since its slabs help. If the group
 * has a cap, they help up to the cap. */
TEST(evict_superseded_state_goes_before_leaves)
{
    for (uint32_t cap = 0; cap <= 5; cap += 5) {
        struct stage st = stage_of_slabs(7, cap);
        struct rig_session *s = stage_session(&st);

        takes_pages(s, rig_tokens(2, 128), 128, 128); /* four slabs; one of them is free */
        assert_int_equal(rig_view(st.rig).evicted_pages, 1);
        assert_int_equal(core_tenant_view(st.rig->core, 0).figures->v[FIGURE_SUPERSEDED_PAGES], 2);
        assert_int_equal(rig_pool_view(st.rig, st.pool).nodes, 3);
        assert_int_equal(rig_depth(s, seq1, 192), 0);
        assert_int_equal(st.rig->last->peek.history_depth, 192);
    }
}

/* T12: at the group's own cap superseded STATE does not help, and stays. */
TEST(evict_at_the_cap_of_history_superseded_state_stays)
{
    struct stage st = stage_of_slabs(15, 3);
    struct rig_session *s = stage_session(&st);

    takes_pages(s, rig_tokens(2, 64), 64, 64);
    assert_int_equal(rig_pool_view(st.rig, st.pool).nodes, 2);
    assert_int_equal(state_view(&st).reclaimable, 2);
    assert_int_equal(match_depth(&st, seq1, 192), 128);
}

/* ---- a load that changes from HISTORY to STATE ---- */

#define SLABS     30 /* of 4096 bytes; the first is never handed out */
#define OF_SLAB   8  /* pages of HISTORY in a slab; one of STATE */
#define ROOM      4  /* slabs: STATE of a prefix while it is computed */
#define PREFIXES  ((SLABS - 1 - ROOM) * OF_SLAB)
#define ONE_TOKEN 16 /* tokens of a page of STATE */

/* Commits a prefix of HISTORY alone, `chunks` chunks deep. */
static void put_history(struct stage *st, uint32_t seed, uint32_t chunks)
{
    for (uint32_t depth = 64; depth <= 64 * chunks; depth += 64) {
        stage_put(st, seed, depth);
        if (depth > 64 && has_state(st, rig_tokens(seed, depth), depth - 64))
            lose_state(st, rig_tokens(seed, depth), depth - 64);
    }
    lose_state(st, rig_tokens(seed, 64 * chunks), 64 * chunks);
}

static struct stage empty_of_slabs(void)
{
    return stage_of(SUPERSEDE_LAZY, 64, rig_window(ONE_TOKEN, 16, 4096), SLABS * 4096, 0);
}

struct loss {
    uint32_t first, most, all; /* prefixes: for the first slab, for one slab, for all */
};

/* A session takes `slabs` slabs of STATE, one after another. */
static struct loss state_takes(struct stage *st, uint32_t slabs)
{
    struct rig_session *s = stage_session(st);
    struct loss loss = {.first = 0};
    uint32_t before = (uint32_t)rig_view(st->rig).evicted_nodes, start = before, now;

    assert_ok(rig_match(s, rig_tokens(9999, 2048), 2048));
    for (uint32_t i = 0; i < slabs + ROOM; i++, before = now) {
        assert_ok(rig_extend(s, (i + 1) * ONE_TOKEN, 0, NULL, 0));
        now = (uint32_t)rig_view(st->rig).evicted_nodes;
        loss.most = now - before > loss.most ? now - before : loss.most;
        loss.first = loss.first ? loss.first : now - start;
        loss.all = now - start;
    }
    printf("state_slabs=%u first=%u most=%u all=%u\n", slabs, loss.first, loss.most, loss.all);
    return loss;
}

/* T12: old and new prefixes lie side by side, since one in eight is used again. STATE takes slab
 * after slab, each at the cost of that slab's prefixes and not of all old ones. */
TEST(t12_state_takes_slab_after_slab_from_scattered_history)
{
    struct stage st = empty_of_slabs();
    struct loss loss;

    for (uint32_t i = 1; i <= PREFIXES; i++)
        put_history(&st, i, 1);
    for (uint32_t i = 1; i <= PREFIXES; i += OF_SLAB)
        node_use(st.rig->core, node_of(st.rig, st.pool, rig_tokens(i, 64), 64));
    loss = state_takes(&st, 16);
    assert_true(loss.first > 0 && loss.most <= OF_SLAB + 1);
    assert_true(loss.all <= 17 * OF_SLAB + 1);
}

/* T12: a slab that would cost more prefixes than it has pages is not taken: a prefix that all
 * others continue is not lost for it. */
TEST(t12_a_slab_that_much_hangs_on_is_left_to_age)
{
    const uint32_t chain = 999, deep = 3 * OF_SLAB - 1;
    struct stage st = empty_of_slabs();

    put_history(&st, 1, 1);
    put_history(&st, chain, deep);
    for (uint32_t i = 2; i <= PREFIXES - deep; i++)
        put_history(&st, i, 1);
    node_use(st.rig->core, node_of(st.rig, st.pool, rig_tokens(chain, 64 * deep), 64 * deep));
    for (uint32_t i = 1; i <= 4; i++) /* beside the chain; and the HISTORY that the session takes */
        assert_true(node_remove(st.rig->core, node_of(st.rig, st.pool, rig_tokens(i, 64), 64)));
    state_takes(&st, 8);
    assert_int_equal(node_in(&st, rig_tokens(chain, 64 * deep), 64 * deep)->depth, 64 * deep);
}
