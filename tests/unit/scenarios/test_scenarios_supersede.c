/* Scenarios A21, A22, A24, A25 of supersession, each with its name and numbers. */
#include "unit/rig/rig_state.h"

/* Page 2, L=4, W=8. R1 commits 16 and closes. */
static struct stage after_r1(enum supersede supersede)
{
    struct stage st = stage_with(supersede, 4, rig_window(2, 8, 64));

    stage_put(&st, 1, 16);
    return st;
}

/* Tokens that share the first 8 with sequence 1. */
static const uint32_t *r2_tokens(void)
{
    static uint32_t tokens[32];

    memcpy(tokens, seq1, 8 * sizeof tokens[0]);
    for (uint32_t i = 8; i < 32; i++)
        tokens[i] = 7000 + i;
    return tokens;
}

TEST(a21_eager_r2_recomputes_what_r1_superseded_and_matches_32)
{
    struct stage st = after_r1(SUPERSEDE_EAGER);
    const uint32_t *tokens = r2_tokens();
    struct rig_session *s = stage_session(&st);

    assert_false(has_state(&st, seq1, 4));
    assert_false(has_state(&st, seq1, 8));
    assert_true(has_state(&st, seq1, 12));
    matches(s, tokens, 32, 0); /* only HISTORY, to 8 */
    commit_to(s, tokens, 32, 0);
    assert_whole(s, 32);
    assert_int_equal(match_depth(&st, tokens, 32), 32);
    assert_ok(rig_close(s, 0));
    assert_int_equal(match_depth(&st, tokens, 32), 32);
    assert_int_equal(match_depth(&st, seq1, 16), 16);
}

/* At every depth of sequence 1: a node can be resumed if and only if its prefix matches. */
static uint32_t claiming(struct stage *st, uint32_t to)
{
    uint32_t claims = 0;

    for (uint32_t depth = 4; depth <= to; depth += 4) {
        const struct node *n = node_in(st, seq1, depth);
        bool can = state_resumable(st->rig->core, node_of(st->rig, st->pool, seq1, depth));

        assert_int_equal(match_depth(st, seq1, depth) == depth, can);
        assert_true(can || !n->state.claims_window);
        claims |= (uint32_t)can << depth / 4;
    }
    return claims;
}

TEST(a22_what_claims_to_be_resumable_matches)
{
    struct stage st = after_r1(SUPERSEDE_EAGER);

    assert_int_equal(claiming(&st, 16), 1u << 16 / 4); /* not 12, whose window needs segment 8 */
    st = after_r1(SUPERSEDE_LAZY);
    assert_int_equal(claiming(&st, 16), 1u << 1 | 1u << 2 | 1u << 3 | 1u << 4);
}

/* Two turns: a resume point at 64, then one at 128 that supersedes it. */
static struct stage two_turns(enum supersede supersede)
{
    struct group_layout window = rig_window(16, 64, 64);
    struct stage st;
    struct rig_session *s;

    window.cap_pages = 16;
    st = stage_with(supersede, 64, window);
    s = stage_committed(&st, 1, 64);
    commit_to(s, seq1, 128, 0);
    assert_ok(rig_close(s, 0));
    return st;
}

TEST(a24_lazy_the_old_resume_point_matches_until_its_pages_are_needed)
{
    struct stage st = two_turns(SUPERSEDE_LAZY);
    struct rig_session *s = stage_session(&st);

    assert_true(is_reclaimable(&st, seq1, 64));
    assert_int_equal(rig_group_view(st.rig, st.pool, 1).reclaimable, 4);
    assert_int_equal(rig_group_view(st.rig, st.pool, 1).snapshot, 4);
    assert_int_equal(match_depth(&st, seq1, 100), 64); /* before */
    assert_true(is_reclaimable(&st, seq1, 64));
    takes_pages(s, rig_tokens(2, 144), 144, 144);     /* 9 pages: 8 are free */
    assert_int_equal(match_depth(&st, seq1, 100), 0); /* after */
    assert_int_equal(match_depth(&st, seq1, 128), 128);
}

TEST(a24_eager_and_off_for_comparison)
{
    struct stage st = two_turns(SUPERSEDE_EAGER);

    assert_int_equal(match_depth(&st, seq1, 100), 0);
    assert_int_equal(rig_group_view(st.rig, st.pool, 1).free, 12);
    st = two_turns(SUPERSEDE_OFF);
    assert_int_equal(match_depth(&st, seq1, 100), 64);
    assert_int_equal(rig_group_view(st.rig, st.pool, 1).snapshot, 8);
    assert_int_equal(rig_group_view(st.rig, st.pool, 1).reclaimable, 0);
}

static void hangs_off_128(enum supersede supersede)
{
    struct stage st = stage_with(supersede, 64, rig_window(16, 128, 64));
    uint32_t tokens[256];
    struct rig_session *s;

    memcpy(tokens, seq1, 128 * sizeof tokens[0]);
    for (uint32_t i = 128; i < 256; i++)
        tokens[i] = 9000 + i;
    stage_put(&st, 1, 192);
    s = stage_session(&st);
    commits_tokens(s, tokens, 256);
    assert_lengths(s, 256, 256, 256);
    assert_ok(rig_close(s, 0));
    assert_int_equal(match_depth(&st, seq1, 192), 192);
    assert_int_equal(match_depth(&st, tokens, 256), 256);
}

TEST(a25_a_resume_point_at_192_outlives_a_commit_of_256_through_128)
{
    hangs_off_128(SUPERSEDE_LAZY);
    hangs_off_128(SUPERSEDE_EAGER);
}
