/* STATE that several sessions use: T17 borrowers, T18 refill, T19 no false claim. */
#include "unit/rig/rig_state.h"

/* T17: superseded before the last borrower leaves, and after it. */
TEST(state_superseded_and_without_borrower_in_either_order)
{
    struct stage st = stage_capped(SUPERSEDE_LAZY, 64, 0);
    struct rig_session *a = stage_session(&st), *b = stage_session(&st);

    commits_up_to(a, seq1, 192, 64, 0);
    assert_ok(rig_match(b, seq1, 192));
    assert_int_equal(node_in(&st, seq1, 64)->state.borrowers, 2);
    commit_to(a, seq1, 128, 0);
    commit_to(a, seq1, 192, 0);
    assert_int_equal(node_in(&st, seq1, 64)->state.successor, SUCCESSOR_BELOW);
    assert_false(is_reclaimable(&st, seq1, 64)); /* b borrows it */
    assert_ok(rig_close(b, 0));
    assert_true(is_reclaimable(&st, seq1, 64));
    stage_put(&st, 2, 64);
    assert_false(
        is_reclaimable(&st, rig_tokens(2, 192), 64)); /* no borrower, but not superseded yet */
    a = stage_session(&st);
    commits_up_to(a, rig_tokens(2, 192), 192, 128, 0);
    assert_ok(rig_close(a, 0));
    assert_true(is_reclaimable(&st, rig_tokens(2, 192), 64));
}

/* T17 */
TEST(state_a_released_resume_point_goes_first_once_nobody_borrows_it)
{
    struct stage st = stage_capped(SUPERSEDE_LAZY, 64, 0);
    struct rig_session *s = stage_committed(&st, 1, 64);

    assert_ok(rig_snapshot_release(s));
    assert_false(is_reclaimable(&st, seq1, 64));
    assert_ok(rig_close(s, 0));
    assert_true(is_reclaimable(&st, seq1, 64));
}

/* HISTORY to 64 is committed, its STATE was lost: `s` computes that again and commits at step 5. */
static struct rig_session *refiller(struct stage *st, const struct rig_engine *e)
{
    struct rig_session *s = rig_session(st->rig, e, st->pool, 1);

    lose_state(st, seq1, 64);
    matches(s, seq1, 64, 0);
    commit_to(s, seq1, 64, 5);
    assert_int_equal(rig_wrong(s, 64), 0);
    return s;
}

/* T18 */
TEST(state_a_refill_is_seen_when_its_step_has_passed)
{
    struct stage st = stage_capped(SUPERSEDE_LAZY, 64, 0);
    uint32_t nodes;

    stage_put(&st, 1, 64);
    nodes = rig_pool_view(st.rig, st.pool).nodes;
    refiller(&st, &st.e);
    assert_int_equal(rig_pool_view(st.rig, st.pool).nodes, nodes); /* adopted */
    assert_true(has_state(&st, seq1, 64));
    assert_int_equal(match_depth(&st, seq1, 64), 0);
    rig_engine_done(st.rig, &st.e, 4);
    assert_int_equal(match_depth(&st, seq1, 64), 0);
    rig_engine_done(st.rig, &st.e, 5);
    assert_int_equal(match_depth(&st, seq1, 64), 64);
}

/* T18 */
TEST(state_a_refill_goes_with_the_engine_that_never_passed_its_step)
{
    struct stage st = stage_capped(SUPERSEDE_LAZY, 64, 0);
    struct rig_engine other = second_engine(st.rig, st.pool);

    stage_put(&st, 1, 64);
    refiller(&st, &other);
    rig_engine_kill(st.rig, &other, 0);
    assert_false(has_state(&st, seq1, 64));
    assert_int_equal(match_depth(&st, seq1, 64), 0);
    stage_put(&st, 1, 64); /* the segment can be refilled again */
    assert_int_equal(match_depth(&st, seq1, 64), 64);
}

/* T18 */
TEST(state_a_present_segment_is_not_overwritten)
{
    struct stage st = stage_capped(SUPERSEDE_LAZY, 64, 0);
    struct rig_session *a = stage_session(&st), *b = stage_session(&st);
    uint32_t first;

    assert_ok(rig_match(a, seq1, 64));
    assert_ok(rig_match(b, seq1, 64));
    commit_to(a, seq1, 64, 0);
    first = node_in(&st, seq1, 64)->group[1].pages[TIER_DEVICE];
    commit_to(b, seq1, 64, 0);
    assert_int_equal(node_in(&st, seq1, 64)->group[1].pages[TIER_DEVICE], first);
    assert_memory_equal(a->table[1], b->table[1], 4 * sizeof a->table[1][0]); /* adopted */
    assert_int_equal(rig_wrong(b, 64), 0);
}

/* T18 */
TEST(state_a_present_recurrent_state_is_not_overwritten)
{
    struct stage st = stage_with(SUPERSEDE_LAZY, 64, rig_recurrent(64, 128));
    struct rig_session *a = stage_session(&st), *b = stage_session(&st);
    uint32_t first, own;

    assert_ok(rig_match(a, seq1, 64));
    assert_ok(rig_match(b, seq1, 64));
    commit_to(a, seq1, 64, 0);
    first = node_in(&st, seq1, 64)->group[1].pages[TIER_DEVICE];
    assert_ok(rig_run_to(b, seq1, 64));
    own = b->table[1][0].index;
    assert_ok(rig_commit(b, 64, 0));
    assert_int_equal(node_in(&st, seq1, 64)->group[1].pages[TIER_DEVICE], first);
    assert_int_equal(b->table[1][0].index, own);
    assert_int_equal(rig_wrong(b, 64), 0);
}

/* T19: W = 3 L: the segment at 64 is in the windows of 64, 128 and 192. */
TEST(state_a_lost_segment_ends_what_needs_it_and_no_more)
{
    struct stage st = stage_capped(SUPERSEDE_OFF, 192, 0);

    for (uint32_t depth = 64; depth <= 320; depth += 64)
        stage_put(&st, 1, depth);
    lose_state(&st, seq1, 64);
    for (uint32_t depth = 64; depth <= 320; depth += 64) {
        bool keeps = depth >= 64 + 192;

        assert_int_equal(node_in(&st, seq1, depth)->state.claims_window, keeps);
        assert_int_equal(match_depth(&st, seq1, depth), keeps ? depth : 0);
    }
}

/* T18: W = 2 L: 192 has passed 64, which 128 needs in its window. A refill of that segment whose
 * step has passed makes 128 a live resume point again. */
TEST(state_a_refill_makes_a_resume_point_live_again)
{
    struct stage st = stage_capped(SUPERSEDE_EAGER, 128, 0);
    struct rig_session *s = stage_session(&st);

    assert_ok(rig_match(s, seq1, 192)); /* nothing is committed yet */
    stage_put(&st, 1, 128);
    stage_put(&st, 1, 192);
    lose_state(&st, seq1, 64);
    assert_int_equal(node_in(&st, seq1, 128)->state.claims_window, 0);
    commit_to(s, seq1, 192, 0);
    assert_int_equal(node_in(&st, seq1, 128)->state.claims_window, 1);
    assert_ok(rig_close(s, 0));
    assert_int_equal(match_depth(&st, seq1, 128), 128);
}

/* Tokens that equal sequence 1 up to `at` and sequence `seed` behind it. */
static const uint32_t *branch(uint32_t seed, uint32_t at, uint32_t *to)
{
    memcpy(to, seq1, 256 * sizeof *to);
    memcpy(to + at, rig_tokens(seed, 256), (256 - at) * sizeof *to);
    return to;
}

/* A session that can resume from nothing computes and commits the tokens up to `depth`. */
static void refill(struct stage *st, const uint32_t *tokens, uint32_t depth)
{
    struct rig_session *s = stage_session(st);

    matches(s, tokens, depth, 0);
    commit_to(s, tokens, depth, 0);
    assert_ok(rig_close(s, 0));
}

/* T19: W = 3 L, with branches at every depth: a lost segment at 64 ends all windows that contain
 * it, in every branch, and its refill restores them. Windows that begin below it stay. */
TEST(state_a_lost_segment_ends_it_in_every_branch)
{
    struct stage st = stage_capped(SUPERSEDE_OFF, 192, 0);
    uint32_t v[6][256];

    for (uint32_t b = 0; b < 6; b++) {
        branch(2 + b, 64 * (b / 2 + 1), v[b]);
        for (uint32_t depth = 64; depth <= 256; depth += 64) {
            struct rig_session *s = stage_session(&st);

            commits_tokens(s, v[b], depth);
            assert_ok(rig_close(s, 0));
        }
    }
    lose_state(&st, v[0], 64);
    for (uint32_t b = 0; b < 6; b++)
        for (uint32_t depth = 64; depth <= 256; depth += 64)
            assert_int_equal(node_in(&st, v[b], depth)->state.claims_window, depth == 256);
    refill(&st, v[0], 64);
    for (uint32_t b = 0; b < 6; b++)
        for (uint32_t depth = 64; depth <= 256; depth += 64)
            assert_int_equal(node_in(&st, v[b], depth)->state.claims_window, 1);
    lose_state(&st, v[2], 128); /* 2 to 5 use it; 0 and 1 have their own */
    for (uint32_t b = 0; b < 6; b++)
        assert_int_equal(node_in(&st, v[b], 256)->state.claims_window, b < 2);
}

/* T18: W = 2 L: a commit ends where two refills wait for its step, and makes a resume point
 * there. */
TEST(state_a_refill_under_way_makes_a_resume_point_when_its_step_has_passed)
{
    struct stage st = stage_capped(SUPERSEDE_LAZY, 128, 0);
    struct rig_session *s = stage_session(&st);

    stage_put(&st, 1, 192); /* one commit: no resume point at 64 or 128 */
    lose_state(&st, seq1, 64);
    lose_state(&st, seq1, 128);
    matches(s, seq1, 128, 0);
    commit_to(s, seq1, 128, 5);
    assert_int_equal(node_in(&st, seq1, 128)->state.claims_window, 0);
    assert_int_equal(match_depth(&st, seq1, 192), 0);
    rig_engine_done(st.rig, &st.e, 5);
    assert_int_equal(node_in(&st, seq1, 128)->state.claims_window, 1);
    assert_int_equal(match_depth(&st, seq1, 192), 192);
}

/* The same for a window that ends below the root, with no STATE above it. */
TEST(state_a_refill_under_way_is_looked_for_in_the_window_alone)
{
    struct stage st = stage_capped(SUPERSEDE_LAZY, 64, 0);
    struct rig_session *s = stage_session(&st);

    stage_put(&st, 1, 192);
    lose_state(&st, seq1, 64);
    lose_state(&st, seq1, 128);
    matches(s, seq1, 128, 0);
    run_and_slide(s, seq1, 128, 128, 0);
    assert_ok(rig_commit(s, 128, 5));
    assert_false(has_state(&st, seq1, 64));
    assert_int_equal(node_in(&st, seq1, 128)->state.claims_window, 0);
    rig_engine_done(st.rig, &st.e, 5);
    assert_int_equal(node_in(&st, seq1, 128)->state.claims_window, 1);
    assert_int_equal(match_depth(&st, seq1, 128), 128);
}

/* T10: passed, lost and computed again: it is a resume point again until it goes. The audit counts
 * them. */
TEST(state_a_resume_point_made_anew_goes)
{
    struct stage st = stage_capped(SUPERSEDE_LAZY, 64, 0);
    uint32_t admin = rig_connect_admin(st.rig);

    stage_put(&st, 1, 64);
    stage_put(&st, 1, 128);
    assert_int_equal(node_in(&st, seq1, 64)->state.successor, SUCCESSOR_BELOW);
    lose_state(&st, seq1, 64);
    refill(&st, seq1, 64);
    assert_int_equal(node_in(&st, seq1, 64)->state.successor, SUCCESSOR_EARLIER);
    assert_int_equal(match_depth(&st, seq1, 64), 64);
    assert_int_equal(rig_evict(st.rig, admin, st.pool, 0), 2);
}

/* T18: W = 2 L: another engine's refill at 64 waits for its step, so the session keeps its own
 * pages from there on, those of 128 included, and its answer names no others. */
TEST(state_beyond_a_refill_under_way_a_session_keeps_its_own)
{
    struct stage st = stage_capped(SUPERSEDE_LAZY, 128, 0);
    struct rig_engine other = second_engine(st.rig, st.pool);
    struct rig_session *a = rig_session(st.rig, &other, st.pool, 1), *b = stage_session(&st);
    struct page_ref own[8];

    stage_put(&st, 1, 128);
    lose_state(&st, seq1, 64);
    commits_up_to(a, seq1, 64, 64, 5);
    matches(b, seq1, 128, 0);
    assert_ok(rig_run_to(b, seq1, 128));
    memcpy(own, b->table[1], sizeof own);
    assert_leaves(rig_commit(b, 128, 0), b, 128, 128, 128);
    assert_memory_equal(b->table[1], own, sizeof own);
    assert_int_equal(rig_wrong(b, 128), 0);
    rig_engine_kill(st.rig, &other, 0); /* the refill goes, the session's pages stay */
    assert_int_equal(rig_wrong(b, 128), 0);
}

/* A pool with a STATE group of W = 2 L and another one. At 64 another engine's refill waits for its
 * step, and 128 and 192 have HISTORY alone. */
static struct stage stage_of_two(struct group_layout beside)
{
    struct group_layout groups[3] = {rig_group(64, 512), beside, rig_window(16, 128, 64)};
    struct stage st = {.rig = rig_create(NULL)};
    struct rig_engine other;
    struct rig_session *s;

    st.e = rig_engine(st.rig, 0, "e", 1);
    assert_ok(rig_pool_open(st.rig, st.e.conn[0], groups, 3, 1u << 20, &st.pool));
    other = second_engine(st.rig, st.pool);
    stage_put(&st, 1, 192);
    for (uint32_t depth = 64; depth <= 192; depth += 64)
        if (has_state(&st, seq1, depth))
            lose_state(&st, seq1, depth);
    s = rig_session(st.rig, &other, st.pool, 1);
    commits_up_to(s, seq1, 64, 64, 5);
    return st;
}

/* T18: a commit gives 128 and 192 the pages of one group as it reaches them, and those of the other
 * group when it reaches 192, whose window no longer contains the refill at 64. Neither waits for
 * the other: both are refills of one commit. */
TEST(state_a_commit_refills_both_groups_of_a_node_one_after_the_other)
{
    const struct group_layout beside[] = {rig_recurrent(64, 128), rig_window(16, 64, 64)};

    for (size_t i = 0; i < sizeof beside / sizeof beside[0]; i++) {
        struct stage st = stage_of_two(beside[i]);
        struct rig_session *s = stage_session(&st);

        matches(s, seq1, 192, 0);
        commit_to(s, seq1, 192, 9);
        assert_int_equal(rig_wrong(s, 192), 0);
        assert_int_equal(match_depth(&st, seq1, 192), 0);
        rig_engine_done(st.rig, &st.e, 9);
        assert_int_equal(match_depth(&st, seq1, 192), 192);
        rig_destroy_all();
    }
}

/* T18: another commit, with a later step, adds nothing to a refill that waits. */
TEST(state_a_refill_under_way_is_not_added_to_by_another_commit)
{
    struct stage st = stage_of_two(rig_window(16, 64, 64));
    struct rig_session *a = stage_session(&st), *b = stage_session(&st);

    matches(a, seq1, 192, 0);
    matches(b, seq1, 192, 0);
    commit_to(a, seq1, 128, 5);
    commit_to(b, seq1, 192, 9);
    assert_int_equal(node_in(&st, seq1, 128)->state.refilling, 1u << 1);
    assert_int_equal(node_in(&st, seq1, 128)->group[2].pages[TIER_DEVICE], NONE);
    assert_int_equal(rig_wrong(b, 192), 0);
}
