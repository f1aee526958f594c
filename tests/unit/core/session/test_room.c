/* What a shortage says: pages that are free, that eviction could bring, and that wait for a step
 * (E4). */
#include "unit/rig/rig_state.h"

TEST(engine_shortage_counts_free_reclaimable_and_retiring)
{
    struct bench b = bench_start(4, 12);
    struct rig_session *other = rig_session(b.rig, &b.e, b.pool, 1);

    rig_put(b.rig, &b.e, b.pool, 5, 8); /* 2 pages that eviction can bring */
    computes(other, 2, 12);
    assert_ok(rig_close(other, 6)); /* 3 retiring until 6 */
    computes(b.s, 1, 8);            /* 2 in use, 5 free */
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

    rig_put(b.rig, &b.e, b.pool, 5, 12); /* 3 pages that can go */
    rig_put(b.rig, &b.e, b.pool, 1, 32); /* 8 pages, of which the session below pins 5 */
    session_with(b.rig, &b.e, b.pool, 1, 20);
    computes_and_commits(b.s, 2, 12, 12, 9); /* 3 pages that nobody sees yet, pinned */
    assert_err(TERN_POOL_EXHAUSTED, rig_extend(b.s, 12 + 4 * 30, 0, NULL, 0));
    assert_int_equal(b.rig->res.shortage.free, 20 - 3 - 8 - 3);
    assert_int_equal(b.rig->res.shortage.reclaimable, 3 + 3);
    assert_int_equal(b.rig->res.shortage.needed, 30);
    assert_int_equal(rig_view(b.rig).evicted_nodes,
                     0); /* T11: nothing goes for what can never fit */
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
        takes_pages(s[i], rig_tokens(i, 4 * pages[i]), 4 * pages[i], 4 * pages[i]);
    }
    takes_pages(b.s, rig_tokens(7, 32), 32, 8);
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

/* E4 */
TEST(room_a_shortage_of_state_says_what_there_is)
{
    struct stage st = stage_capped(SUPERSEDE_LAZY, 64, 12);
    struct rig_session *held = stage_committed(&st, 1, 64), *s = stage_session(&st);
    const struct shortage *sh = &st.rig->res.shortage;

    stage_put(&st, 2, 64);                     /* 4 borrowed, 4 that can go, 4 free */
    takes_pages(s, rig_tokens(3, 64), 64, 32); /* 2 of the free ones */
    assert_err(TERN_POOL_EXHAUSTED, rig_extend(s, 144, 0, NULL, 0));
    assert_int_equal(sh->group, 1);
    assert_int_equal(sh->needed, 7);
    assert_int_equal(sh->free + sh->reclaimable, 6);
    assert_int_equal(sh->until_step, 0);
    assert_ok(rig_close(held, 9));
    assert_err(TERN_POOL_EXHAUSTED, rig_extend(s, 144, 0, NULL, 0));
    assert_int_equal(sh->until_step, 9);
    rig_engine_done(st.rig, &st.e, 9);
    assert_ok(rig_extend(s, 144, 0, NULL, 0));
}
