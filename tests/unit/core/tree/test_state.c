/* STATE groups, one session at a time: T2 match, T7 attach, T9 resume points, T10 supersession, T21
 * recurrent state. */
#include "unit/rig/rig_state.h"

/* Commits `depth` tokens of the session's list, with a resume point at each chunk. */
static void commit_each(struct rig_session *s, const uint32_t *tokens, uint32_t depth)
{
    for (uint32_t d = s->len.committed + 64; d <= depth; d += 64) {
        commit_to(s, tokens, d, 0);
        assert_int_equal(s->len.committed, d);
    }
}

/* T2 */
TEST(state_peek_tells_the_deeper_history_and_match_the_window)
{
    struct stage st = stage_with(SUPERSEDE_LAZY, 64, rig_window(16, 40, 64));
    struct rig_session *s = stage_session(&st);

    for (uint32_t depth = 64; depth <= 256; depth += 64)
        stage_put(&st, 1, depth);
    lose_state(&st, seq1, 256);
    assert_int_equal(rig_depth(s, seq1, 256), 192);
    assert_int_equal(st.rig->last->peek.history_depth, 256);
    matches(s, seq1, 256, 192);
    for (uint32_t p = 0; p < 16; p++) /* floor((192 - 40) / 16) = 9 to 192 / 16 = 12 */
        assert_int_equal(s->table[1][p].index != 0, p >= 9 && p < 12);
    assert_leaves_whole(rig_match(s, seq1, 256), s, 192); /* repeated: the same */
}

/* T7 */
TEST(state_a_node_takes_the_window_and_the_rest_goes_back)
{
    struct stage st = stage_with(SUPERSEDE_LAZY, 16, rig_window(2, 6, 64));
    struct rig_session *s = stage_session(&st);
    struct page_ref history, last;

    computes(s, 1, 16);
    assert_int_equal(state_view(&st).session, 8);
    history = s->table[0][0];
    last = s->table[1][7];
    assert_ok(rig_commit(s, 16, 0));
    assert_int_equal(state_view(&st).session, 0);
    assert_int_equal(state_view(&st).snapshot, 3); /* [10, 16) */
    assert_int_equal(rig_group_view(st.rig, st.pool, 0).snapshot, 1);
    assert_memory_equal(&history, &s->table[0][0], sizeof history); /* the ids stay in the table */
    assert_memory_equal(&last, &s->table[1][7], sizeof last);
    assert_int_equal(rig_wrong(s, 16), 0);
}

/* T9 */
TEST(state_only_the_last_target_is_a_resume_point)
{
    struct stage st = stage_capped(SUPERSEDE_OFF, 64, 0);

    stage_put(&st, 1, 192);
    for (uint32_t depth = 64; depth <= 192; depth += 64) {
        assert_int_equal(node_in(&st, seq1, depth)->state.resume == RESUME_POINT, depth == 192);
        assert_int_equal(node_in(&st, seq1, depth)->state.claims_window, depth == 192);
    }
}

/* T10 */
TEST(state_a_borrower_keeps_what_is_passed)
{
    struct stage st = stage_capped(SUPERSEDE_EAGER, 64, 0);
    struct rig_session *s, *holder = stage_session(&st);

    s = stage_committed(&st, 1, 64);
    assert_ok(rig_match(holder, seq1, 64));
    commit_each(s, seq1, 192);
    assert_true(has_state(&st, seq1, 64)); /* because of `holder` */
    assert_false(has_state(&st, seq1, 128) && node_in(&st, seq1, 128)->state.borrowers == 0);
    assert_int_equal(rig_wrong(holder, 64), 0);
    assert_ok(rig_close(holder, 4));
    assert_true(has_state(&st, seq1, 64)); /* a kernel may still read it */
    rig_engine_done(st.rig, &st.e, 4);
    assert_false(has_state(&st, seq1, 64));
}

/* T10 */
TEST(state_a_fork_point_keeps_its_state)
{
    struct stage st = stage_capped(SUPERSEDE_EAGER, 64, 0);
    struct rig_session *a = stage_committed(&st, 1, 128), *b = stage_session(&st);
    uint32_t tokens[192];

    memcpy(tokens, seq1, 128 * sizeof tokens[0]);
    for (uint32_t i = 128; i < 192; i++)
        tokens[i] = 5000 + i;
    matches(b, tokens, 192, 128);
    commit_each(a, seq1, 192);
    commit_each(b, tokens, 192);
    assert_ok(rig_close(a, 0));
    assert_ok(rig_close(b, 0));
    assert_int_equal(node_in(&st, tokens, 128)->state.successor, SUCCESSOR_BELOW);
    assert_int_equal(node_in(&st, tokens, 128)->children.n, 2);
    assert_int_equal(match_depth(&st, tokens, 130), 128);
    assert_int_equal(rig_evict(st.rig, rig_connect_admin(st.rig), st.pool, 1), 1);
    assert_false(has_state(&st, tokens, 128)); /* one child went, so it is no fork point */
}

/* T10: depth + W > t: 64 is in the window of 128, and no later resume point has passed it. */
TEST(state_what_is_in_reach_is_not_passed)
{
    struct stage st = stage_capped(SUPERSEDE_EAGER, 128, 0);

    stage_put(&st, 1, 128);
    lose_state(&st, seq1, 128);
    assert_int_equal(match_depth(&st, seq1, 128), 64);
}

/* T10: W > L: 64 is in the window of the sibling that ends at 192, and is no fork point itself. */
TEST(state_a_siblings_window_needs_the_segment)
{
    struct stage st = stage_capped(SUPERSEDE_EAGER, 192, 0);
    uint32_t tokens[320];
    struct rig_session *s;

    stage_put(&st, 1, 192);
    memcpy(tokens, seq1, 128 * sizeof tokens[0]);
    for (uint32_t i = 128; i < 320; i++)
        tokens[i] = 5000 + i;
    s = stage_session(&st);
    commits_tokens(s, tokens, 320);
    assert_ok(rig_close(s, 0));
    assert_int_equal(node_in(&st, tokens, 64)->children.n, 1);
    assert_int_equal(node_in(&st, tokens, 64)->state.successor, SUCCESSOR_BELOW);
    assert_int_equal(match_depth(&st, seq1, 192), 192);
    lose_state(&st, seq1, 192); /* no window needs 64 now */
    assert_false(has_state(&st, tokens, 64));
    assert_int_equal(match_depth(&st, tokens, 320), 320);
}

/* T10 */
TEST(state_reclaimed_oldest_first_and_taken_back_by_a_match)
{
    struct stage st = stage_capped(SUPERSEDE_LAZY, 64, 20);
    struct rig_session *a = stage_session(&st), *b = stage_session(&st), *c = stage_session(&st);
    struct rig_session *reader = stage_session(&st);

    assert_ok(rig_match(a, seq1, 128));
    commit_each(a, seq1, 128);
    assert_ok(rig_close(a, 0));
    assert_ok(rig_match(b, rig_tokens(2, 128), 128));
    commit_each(b, rig_tokens(2, 128), 128);
    assert_ok(rig_close(b, 0));
    assert_int_equal(state_view(&st).reclaimable, 8);
    assert_int_equal(state_view(&st).snapshot, 8);
    assert_int_equal(match_depth(&st, seq1, 100), 64); /* now the newer of the two */
    takes_pages(c, rig_tokens(3, 128), 128, 128);      /* 8 pages, 4 are free */
    assert_true(has_state(&st, seq1, 64));
    assert_false(has_state(&st, rig_tokens(2, 128), 64));
    matches(reader, seq1, 100, 64);
    assert_int_equal(state_view(&st).reclaimable, 0); /* no longer reclaimable */
    assert_int_equal(state_view(&st).snapshot, 12);
    assert_int_equal(rig_wrong(reader, 64), 0);
}

/* T21 */
TEST(state_only_a_commit_at_c_leaves_a_recurrent_state)
{
    struct stage st = stage_with(SUPERSEDE_LAZY, 64, rig_recurrent(64, 128));
    struct rig_session *s = stage_session(&st);
    uint32_t before;

    assert_ok(rig_match(s, seq1, 256));
    run_and_commit(s, seq1, 70, 64, 0); /* its only state is that of 70 tokens */
    assert_lengths(s, 64, 70, 70);
    assert_int_equal(match_depth(&st, seq1, 64), 0);
    assert_ok(rig_run_to(s, seq1, 128));
    before = s->table[1][0].index;
    assert_ok(rig_commit(s, 128, 0));
    assert_int_not_equal(s->table[1][0].index,
                         before); /* the node has the page, the session a copy */
    assert_int_equal(rig_wrong(s, 128), 0);
    assert_ok(rig_run_to(s, seq1, 140));
    assert_int_equal(match_depth(&st, seq1, 140), 128);
    assert_ok(rig_rewind(s, 128, 0)); /* back at the resume point: a fresh copy */
    runs_right(s, seq1, 129);
    assert_err(TERN_INVALID, rig_rewind(s, 127, 0));
}

/* T21, S2, S6: the session's one state is that of C, so a turn that ends at less goes back to T. */
TEST(state_a_turn_that_ends_below_c_goes_back_to_the_resume_point)
{
    struct stage st = stage_with(SUPERSEDE_LAZY, 64, rig_recurrent(64, 128));
    struct rig_session *s = stage_session(&st);

    commits_up_to(s, seq1, 72, 64, 0);
    assert_ok(rig_run_to(s, seq1, 80));
    for (uint32_t i = 0; i < 2; i++) /* S8: the second one changes nothing */
        assert_leaves(rig_finish(s, 72, 0), s, 64, 64, 64);
    assert_int_equal(s->ntokens, 72);
    assert_ok(rig_match(s, seq1, 100));
    runs_right(s, seq1, 90);
    assert_leaves(rig_match(s, seq1, 89), s, 64, 64, 64); /* one token short */
    runs_right(s, seq1, 100);
    assert_leaves(rig_finish(s, 100, 0), s, 64, 100, 100); /* at C: nothing is lost */
}

TEST(peaks_of_state_stay_when_its_pages_go)
{
    struct stage st = stage_capped(SUPERSEDE_LAZY, 64, 0);
    uint32_t admin = rig_connect_admin(st.rig);

    for (uint32_t seed = 1; seed <= 3; seed++)
        stage_put(&st, seed, 64);
    assert_int_equal(state_view(&st).peak_snapshot, 12);
    rig_evict(st.rig, admin, st.pool, 0);
    stage_put(&st, 4, 64);
    assert_int_equal(state_view(&st).snapshot, 4);
    assert_int_equal(state_view(&st).peak_snapshot, 12);
}
