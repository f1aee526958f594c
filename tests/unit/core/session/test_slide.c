/* Pages of a window that leave the table, and requests that go back behind them (T5, T21). */
#include "unit/rig/rig_state.h"

/* T5 */
TEST(slide_own_pages_below_the_window_go_back_with_the_step)
{
    struct group_layout l = rig_window(2, 8, 64);
    struct stage st;
    struct rig_session *s;
    struct group_view before;

    l.reserve = 4;
    st = stage_with(SUPERSEDE_LAZY, 16, l);
    s = stage_session(&st);
    computes(s, 1, 64);
    before = state_view(&st);
    assert_int_equal(before.session, 32);
    assert_leaves(rig_slide(s, 0, 7), s, 0, 64,
                  64); /* min(64, 0 + 16) - 8 - 4 = 4: pages 0 and 1 */
    assert_int_equal(state_view(&st).session, 30);
    assert_int_equal(state_view(&st).retiring, 2);
    assert_int_equal(state_view(&st).free, before.free);
    assert_ok(rig_slide(s, 0, 9)); /* a repeated slide changes nothing */
    assert_int_equal(state_view(&st).session, 30);
    rig_engine_done(st.rig, &st.e, 6);
    assert_int_equal(state_view(&st).retiring, 2);
    rig_engine_done(st.rig, &st.e, 7);
    assert_int_equal(state_view(&st).retiring, 0);
    assert_int_equal(state_view(&st).free, before.free + 2);
    assert_int_equal(rig_wrong(s, 64), 0);
}

/* T5 */
TEST(slide_borrowed_pages_only_lose_the_index)
{
    struct stage st = stage_with(SUPERSEDE_LAZY, 16, rig_window(2, 8, 64));
    struct rig_session *s;
    const struct node *n;

    stage_put(&st, 1, 32);
    s = stage_session(&st);
    assert_ok(rig_match(s, seq1, 64));
    n = node_in(&st, seq1, 32);
    assert_int_equal(n->state.borrowers, 1);
    run_and_slide(s, seq1, 60, 60, 3); /* 60 - 9 = 51: no page below it is read again */
    assert_int_equal(n->state.borrowers, 1);
    assert_int_equal(state_view(&st).snapshot + state_view(&st).reclaimable, 8);
    rig_engine_done(st.rig, &st.e, 3);
    assert_int_equal(n->state.borrowers, 0); /* borrows end with the step */
    assert_int_equal(state_view(&st).snapshot + state_view(&st).reclaimable, 8);
    assert_int_equal(match_depth(&st, seq1, 32), 32);
    assert_err(TERN_INVALID, rig_rewind(s, 34, 0)); /* beyond the reserve: no window */
    assert_ok(rig_rewind(s, 59, 0));
    assert_int_equal(rig_wrong(s, 59), 0);
}

/* T5: borrows are counted by node. One page of the node leaves the table at step 9, the others at
 * step 3. */
TEST(slide_a_borrowed_page_is_held_by_its_step_and_the_rest_with_it)
{
    struct stage st = stage_with(SUPERSEDE_LAZY, 16, rig_window(2, 8, 64));
    struct rig_session *s;
    const struct node *n;

    stage_put(&st, 1, 32);
    s = stage_session(&st);
    assert_ok(rig_match(s, seq1, 64)); /* borrows [24, 32) */
    n = node_in(&st, seq1, 32);
    run_and_slide(s, seq1, 36, 36, 9); /* 36 - 9 = 27: one page */
    assert_int_equal(n->state.borrowers, 1);
    assert_ok(rig_close(s, 3));
    rig_engine_done(st.rig, &st.e, 8);
    assert_int_equal(n->state.borrowers, 1);
    rig_engine_done(st.rig, &st.e, 9);
    assert_int_equal(n->state.borrowers, 0);
    s = stage_session(&st);
    computes_up_to(s, seq1, 64, 60);
    assert_ok(rig_slide(s, 36, 19));
    assert_ok(rig_slide(s, 60, 13)); /* the other pages, at an earlier step */
    rig_engine_done(st.rig, &st.e, 18);
    assert_int_equal(n->state.borrowers, 1);
    assert_ok(rig_close(s, 13));
    rig_engine_done(st.rig, &st.e, 19);
    assert_int_equal(n->state.borrowers, 0);
}

/* T5: pages that a slide took from the table do not come back with a later commit. */
TEST(slide_a_later_commit_does_not_bring_back_what_has_left)
{
    struct stage st = stage_capped(SUPERSEDE_LAZY, 64, 0);
    struct rig_session *s = stage_session(&st);

    computes_up_to(s, seq1, 256, 200);
    assert_ok(rig_slide(s, 200, 0)); /* 200 - 65: eight pages */
    assert_leaves(rig_commit(s, 128, 0), s, 128, 200, 200);
    assert_int_equal(match_depth(&st, seq1, 256), 0);
    assert_err(TERN_INVALID, rig_rewind(s, 128, 0)); /* the table has lost [64, 128) */
    assert_err(TERN_INVALID, rig_match(s, seq1, 128));
    assert_err(TERN_INVALID, rig_rewind(s, 190, 0)); /* the page of [112, 128) has left, too */
    assert_lengths(s, 128, 200, 200);
    assert_ok(rig_rewind(s, 199, 0));
    assert_int_equal(rig_wrong(s, 199), 0);
}

/* T21: after a slide past the resume point the session does not keep that point's state. */
TEST(slide_what_was_slid_past_is_not_gone_back_to)
{
    struct stage st = stage_with(SUPERSEDE_LAZY, 64, rig_recurrent(64, 128));
    struct rig_session *s = stage_session(&st);

    commits_up_to(s, seq1, 256, 64, 0);
    run_and_slide(s, seq1, 200, 192, 0);
    assert_int_equal(node_in(&st, seq1, 64)->state.borrowers, 0);
    assert_err(TERN_INVALID, rig_rewind(s, 64, 0));
    assert_err(TERN_INVALID, rig_match(s, seq1, 199));
    assert_lengths(s, 64, 200, 200);
}
