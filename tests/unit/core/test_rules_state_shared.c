/* Rules about STATE that several hold or bring: T17 borrowers, T18 refill, T19 no false claim, the
 * numbers of a shortage (E4), transfers that carry STATE (X5). */
#include "testing/test.h"
#include "unit/rig/rig_state.h"

static struct stage stage_64(enum supersede supersede, uint32_t window, uint32_t cap)
{
    struct group_layout l = rig_window(16, window, 64);

    l.cap_pages = cap;
    return stage_with(supersede, 64, l);
}

static void commit_to(struct rig_session *s, const uint32_t *tokens, uint32_t depth, uint64_t step)
{
    assert_ok(rig_run_to(s, tokens, depth));
    assert_ok(rig_commit(s, depth, step));
    assert_int_equal(s->len.committed, depth);
}

/* Superseded first, the last borrower leaves later; and the other way round. */
TEST(t17_superseded_and_without_borrower_in_either_order)
{
    struct stage st = stage_64(SUPERSEDE_LAZY, 64, 0);
    struct rig_session *a = stage_session(&st), *b = stage_session(&st);
    const uint32_t *tokens = rig_tokens(1, 192);

    assert_ok(rig_match(a, tokens, 192));
    commit_to(a, tokens, 64, 0);
    assert_ok(rig_match(b, tokens, 192));
    assert_int_equal(node_in(&st, tokens, 64)->state.borrowers, 2);
    commit_to(a, tokens, 128, 0);
    commit_to(a, tokens, 192, 0);
    assert_int_equal(node_in(&st, tokens, 64)->state.successor, SUCCESSOR_BELOW);
    assert_false(is_reclaimable(&st, tokens, 64)); /* b */
    assert_ok(rig_close(b, 0));
    assert_true(is_reclaimable(&st, tokens, 64));
    stage_put(&st, 2, 64);
    tokens = rig_tokens(2, 192);
    assert_false(is_reclaimable(&st, tokens, 64)); /* no borrower, and not superseded yet */
    a = stage_session(&st);
    assert_ok(rig_match(a, tokens, 192));
    commit_to(a, tokens, 128, 0);
    assert_ok(rig_close(a, 0));
    assert_true(is_reclaimable(&st, tokens, 64));
}

TEST(t17_a_released_resume_point_goes_first_once_nobody_borrows_it)
{
    struct stage st = stage_64(SUPERSEDE_LAZY, 64, 0);
    struct rig_session *s = stage_committed(&st, 1, 64);
    const uint32_t *tokens = rig_tokens(1, 64);

    assert_ok(rig_snapshot_release(s));
    assert_false(is_reclaimable(&st, tokens, 64));
    assert_ok(rig_close(s, 0));
    assert_true(is_reclaimable(&st, tokens, 64));
}

/* HISTORY to 64 is there, its STATE was lost: `s` computes it again and commits at step 5. */
static struct rig_session *refiller(struct stage *st, const struct rig_engine *e)
{
    struct rig_session *s = rig_session(st->rig, e, st->pool, 1);
    const uint32_t *tokens = rig_tokens(1, 64);

    lose_state(st, tokens, 64);
    assert_ok(rig_match(s, tokens, 64));
    assert_int_equal(s->matched, 0);
    commit_to(s, tokens, 64, 5);
    assert_int_equal(rig_wrong(s, 64), 0);
    return s;
}

TEST(t18_a_refill_is_seen_when_its_step_has_passed)
{
    struct stage st = stage_64(SUPERSEDE_LAZY, 64, 0);
    const uint32_t *tokens = rig_tokens(1, 64);
    uint32_t nodes;

    stage_put(&st, 1, 64);
    nodes = rig_pool_view(st.rig, st.pool).nodes;
    refiller(&st, &st.e);
    assert_int_equal(rig_pool_view(st.rig, st.pool).nodes, nodes); /* adopted */
    assert_true(has_state(&st, tokens, 64));
    assert_int_equal(match_depth(&st, tokens, 64), 0);
    rig_engine_done(st.rig, &st.e, 4);
    assert_int_equal(match_depth(&st, tokens, 64), 0);
    rig_engine_done(st.rig, &st.e, 5);
    assert_int_equal(match_depth(&st, tokens, 64), 64);
}

TEST(t18_a_refill_goes_with_the_engine_that_never_passed_its_step)
{
    struct stage st = stage_64(SUPERSEDE_LAZY, 64, 0);
    const uint32_t *tokens = rig_tokens(1, 64);
    struct rig_engine other = second_engine(st.rig, st.pool);

    stage_put(&st, 1, 64);
    refiller(&st, &other);
    rig_engine_kill(st.rig, &other, 0);
    assert_false(has_state(&st, tokens, 64));
    assert_int_equal(match_depth(&st, tokens, 64), 0);
    stage_put(&st, 1, 64); /* and can be refilled again */
    assert_int_equal(match_depth(&st, tokens, 64), 64);
}

TEST(t18_a_present_segment_is_not_overwritten)
{
    struct stage st = stage_64(SUPERSEDE_LAZY, 64, 0);
    struct rig_session *a = stage_session(&st), *b = stage_session(&st);
    const uint32_t *tokens = rig_tokens(1, 64);
    uint32_t first;

    assert_ok(rig_match(a, tokens, 64));
    assert_ok(rig_match(b, tokens, 64));
    commit_to(a, tokens, 64, 0);
    first = node_in(&st, tokens, 64)->pages[1];
    commit_to(b, tokens, 64, 0);
    assert_int_equal(node_in(&st, tokens, 64)->pages[1], first);
    assert_memory_equal(a->table[1], b->table[1], 4 * sizeof a->table[1][0]); /* adopted */
    assert_int_equal(rig_wrong(b, 64), 0);
}

TEST(t18_a_present_recurrent_state_is_not_overwritten)
{
    struct stage st = stage_with(SUPERSEDE_LAZY, 64, rig_recurrent(64, 128));
    struct rig_session *a = stage_session(&st), *b = stage_session(&st);
    const uint32_t *tokens = rig_tokens(1, 64);
    uint32_t first, own;

    assert_ok(rig_match(a, tokens, 64));
    assert_ok(rig_match(b, tokens, 64));
    commit_to(a, tokens, 64, 0);
    first = node_in(&st, tokens, 64)->pages[1];
    assert_ok(rig_run_to(b, tokens, 64));
    own = b->table[1][0].index;
    assert_ok(rig_commit(b, 64, 0));
    assert_int_equal(node_in(&st, tokens, 64)->pages[1], first);
    assert_int_equal(b->table[1][0].index, own);
    assert_int_equal(rig_wrong(b, 64), 0);
}

/* W = 3 L: the segment at 64 is in the windows of 64, 128 and 192. */
TEST(t19_a_lost_segment_ends_what_needs_it_and_no_more)
{
    struct stage st = stage_64(SUPERSEDE_OFF, 192, 0);
    const uint32_t *tokens = rig_tokens(1, 320);

    for (uint32_t depth = 64; depth <= 320; depth += 64)
        stage_put(&st, 1, depth);
    lose_state(&st, tokens, 64);
    for (uint32_t depth = 64; depth <= 320; depth += 64) {
        bool keeps = depth >= 64 + 192;

        assert_int_equal(node_in(&st, tokens, depth)->state.claims_window, keeps);
        assert_int_equal(match_depth(&st, tokens, depth), keeps ? depth : 0);
    }
}

/* W = 2 L: 192 has passed 64, which 128 needs in its window. What brings that segment back, with a
 * step that has passed, brings the resume point back. */
TEST(t18_a_refill_makes_a_resume_point_live_again)
{
    struct stage st = stage_64(SUPERSEDE_EAGER, 128, 0);
    struct rig_session *s = stage_session(&st);
    const uint32_t *tokens = rig_tokens(1, 192);

    assert_ok(rig_match(s, tokens, 192)); /* nothing is there yet */
    stage_put(&st, 1, 128);
    stage_put(&st, 1, 192);
    lose_state(&st, tokens, 64);
    assert_int_equal(node_in(&st, tokens, 128)->state.claims_window, 0);
    commit_to(s, tokens, 192, 0);
    assert_int_equal(node_in(&st, tokens, 128)->state.claims_window, 1);
    assert_ok(rig_close(s, 0));
    assert_int_equal(match_depth(&st, tokens, 128), 128);
}

TEST(e4_a_shortage_of_state_says_what_there_is)
{
    struct stage st = stage_64(SUPERSEDE_LAZY, 64, 12);
    struct rig_session *held = stage_committed(&st, 1, 64), *s = stage_session(&st);
    const struct shortage *sh = &st.rig->res.shortage;

    stage_put(&st, 2, 64); /* 4 borrowed, 4 that can go, 4 free */
    assert_ok(rig_match(s, rig_tokens(3, 64), 64));
    assert_ok(rig_extend(s, 32, 0, NULL, 0)); /* 2 of the free ones */
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

/* --- transfers --- */

struct hosts {
    struct stage source, dest;
};

static struct hosts hosts_with(struct group_layout state_group, uint64_t bytes_in_flight)
{
    struct rig_options o = rig_defaults();
    struct group_layout groups[2] = {rig_group(64, 512), state_group};
    struct hosts h;
    struct stage *st[2] = {&h.dest, &h.source};

    o.limits.peer_bytes_in_flight = bytes_in_flight;
    for (uint32_t i = 0; i < 2; i++) {
        o.incarnation += i;
        st[i]->rig = rig_create(&o);
        st[i]->e = rig_engine(st[i]->rig, 0, "e", 1);
        assert_ok(rig_pool_open(st[i]->rig, st[i]->e.conn[0], groups, 2, 1u << 20, &st[i]->pool));
    }
    rig_link_up(h.dest.rig, 0, h.source.rig, o.limits.peers);
    return h;
}

/* Fetches sequence 1 to 320, of `state_pages` STATE pages; then goes on with right bytes. */
static void fetch_320(struct group_layout state_group, uint32_t state_pages)
{
    struct hosts h = hosts_with(state_group, 1u << 20);
    struct rig_session *s = stage_session(&h.dest);
    const uint32_t *tokens;

    for (uint32_t depth = 64; depth <= 320; depth += 64)
        stage_put(&h.source, 1, depth);
    tokens = rig_tokens(1, 400);
    assert_ok(rig_match(s, tokens, 400));
    assert_ok(rig_fetched(s, rig_fetch(s, 0, 0)));
    assert_lengths(s, 320, 320, 320);
    assert_int_equal(h.dest.rig->pulled_pages, 5 + state_pages);
    assert_int_equal(rig_wrong(s, 320), 0);
    assert_int_equal(match_depth(&h.dest, tokens, 400), 320);
    assert_ok(rig_run_to(s, tokens, 390));
    assert_int_equal(rig_wrong(s, 390), 0);
    assert_ok(rig_commit(s, 384, 0));
    assert_int_equal(rig_wrong(s, 390), 0);
    assert_ok(rig_close(s, 0));
}

TEST(x5_a_transfer_brings_only_the_final_window)
{
    fetch_320(rig_window(16, 40, 64), 3);   /* W < L: its own segment */
    fetch_320(rig_window(16, 64, 64), 4);   /* W = L */
    fetch_320(rig_window(16, 150, 64), 12); /* W > L: those of three chunks */
    fetch_320(rig_recurrent(64, 128), 1);
}

TEST(x5_history_that_is_there_is_not_moved_again)
{
    struct hosts h = hosts_with(rig_window(16, 64, 64), 1u << 20);
    struct rig_session *s = stage_session(&h.dest);
    const uint32_t *tokens;

    stage_put(&h.source, 1, 256);
    stage_put(&h.dest, 1, 192);
    tokens = rig_tokens(1, 256);
    for (uint32_t depth = 64; depth <= 192; depth += 64)
        lose_state(&h.dest, tokens, depth);
    assert_ok(rig_match(s, tokens, 256));
    assert_int_equal(s->matched, 0);
    assert_ok(rig_fetched(s, rig_fetch(s, 0, 0)));
    assert_lengths(s, 256, 256, 256);
    assert_int_equal(h.dest.rig->pulled_pages, 1 + 4); /* HISTORY of [192, 256), one window */
    assert_int_equal(rig_wrong(s, 256), 0);
    assert_int_equal(match_depth(&h.dest, tokens, 256), 256);
}

/* What was published has no STATE yet: the session is not left at a length it cannot go on from. */
TEST(x3_a_transfer_that_breaks_off_leaves_the_session_where_it_was)
{
    struct hosts h = hosts_with(rig_window(16, 64, 64), 1100);
    struct rig_session *s = stage_session(&h.dest);
    const uint32_t *tokens;
    uint64_t request;

    stage_put(&h.source, 1, 256);
    tokens = rig_tokens(1, 256);
    assert_ok(rig_match(s, tokens, 256));
    h.dest.rig->automatic = RIG_ALL & ~(uint32_t)RIG_PULL;
    request = rig_fetch(s, 0, 0);
    rig_complete(h.dest.rig, RIG_PULL); /* HISTORY of the first chunk, and STATE of the last */
    assert_int_equal(rig_pool_view(h.dest.rig, h.dest.pool).nodes, 1);
    assert_err(TERN_BUSY, rig_fetched(s, request));
    assert_ok(rig_fetch_cancel(s));
    assert_err(TERN_GONE, rig_fetched(s, request));
    assert_lengths(s, 0, 0, 0);
    h.dest.rig->automatic = RIG_ALL;
    rig_settle(h.dest.rig);
    assert_int_equal(rig_pool_view(h.dest.rig, h.dest.pool).nodes, 1); /* it stays in the tree */
    assert_ok(rig_match(s, tokens, 256));
    h.dest.rig->pulled_pages = 0;
    assert_ok(rig_fetched(s, rig_fetch(s, 0, 0)));
    assert_lengths(s, 256, 256, 256);
    assert_int_equal(h.dest.rig->pulled_pages, 3 + 4);
    assert_int_equal(rig_wrong(s, 256), 0);
}

TEST(x5_a_session_with_pages_of_its_own_does_not_fetch)
{
    struct hosts h = hosts_with(rig_recurrent(64, 128), 1u << 20);
    struct rig_session *s = stage_session(&h.dest);
    const uint32_t *tokens = rig_tokens(1, 128);
    uint64_t request;

    assert_ok(rig_match(s, tokens, 128));
    assert_ok(rig_run_to(s, tokens, 64));
    assert_ok(rig_commit(s, 64, 0));
    request = rig_fetch(s, 0, 0);
    assert_err(TERN_INVALID, rig_fetched(s, request));
}

/* Tokens that leave sequence 1 at `at` for sequence `seed`. */
static const uint32_t *branch(uint32_t seed, uint32_t at, uint32_t *to)
{
    memcpy(to, rig_tokens(1, 256), 256 * sizeof *to);
    memcpy(to + at, rig_tokens(seed, 256), (256 - at) * sizeof *to);
    return to;
}

/* A session that finds nothing to go on from computes and commits the tokens up to `depth`. */
static void refill(struct stage *st, const uint32_t *tokens, uint32_t depth)
{
    struct rig_session *s = stage_session(st);

    assert_ok(rig_match(s, tokens, depth));
    assert_int_equal(s->matched, 0);
    commit_to(s, tokens, depth, 0);
    assert_ok(rig_close(s, 0));
}

/* W = 3 L, and branches at every depth: all windows that have the segment at 64 end, in whatever
 * branch, and come back with it; those that begin below it stay. */
TEST(t19_a_lost_segment_ends_it_in_every_branch)
{
    struct stage st = stage_64(SUPERSEDE_OFF, 192, 0);
    uint32_t v[6][256];

    for (uint32_t b = 0; b < 6; b++) {
        branch(2 + b, 64 * (b / 2 + 1), v[b]);
        for (uint32_t depth = 64; depth <= 256; depth += 64) {
            struct rig_session *s = stage_session(&st);

            assert_ok(rig_match(s, v[b], depth));
            commit_to(s, v[b], depth, 0);
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
    lose_state(&st, v[2], 128); /* branches 2 to 5 have it, 0 and 1 their own */
    for (uint32_t b = 0; b < 6; b++)
        assert_int_equal(node_in(&st, v[b], 256)->state.claims_window, b < 2);
}

/* W = 2 L: a commit ends where two refills wait for its step, with which it is a resume point. */
TEST(t18_a_refill_under_way_makes_a_resume_point_when_its_step_has_passed)
{
    struct stage st = stage_64(SUPERSEDE_LAZY, 128, 0);
    struct rig_session *s = stage_session(&st);
    const uint32_t *tokens = rig_tokens(1, 192);

    stage_put(&st, 1, 192); /* in one commit: 64 and 128 are none */
    lose_state(&st, tokens, 64);
    lose_state(&st, tokens, 128);
    assert_ok(rig_match(s, tokens, 128));
    assert_int_equal(s->matched, 0);
    commit_to(s, tokens, 128, 5);
    assert_int_equal(node_in(&st, tokens, 128)->state.claims_window, 0);
    assert_int_equal(match_depth(&st, tokens, 192), 0);
    rig_engine_done(st.rig, &st.e, 5);
    assert_int_equal(node_in(&st, tokens, 128)->state.claims_window, 1);
    assert_int_equal(match_depth(&st, tokens, 192), 192);
}

/* The same up to a depth: what is here beyond it is not the transfer's business. */
TEST(x5_history_beyond_the_depth_that_is_asked_for)
{
    struct hosts h = hosts_with(rig_window(16, 64, 64), 1u << 20);
    struct rig_session *s = stage_session(&h.dest);
    const uint32_t *tokens;

    for (uint32_t depth = 64; depth <= 256; depth += 64)
        stage_put(&h.source, 1, depth);
    stage_put(&h.dest, 1, 192);
    tokens = rig_tokens(1, 256);
    for (uint32_t depth = 64; depth <= 192; depth += 64)
        lose_state(&h.dest, tokens, depth);
    assert_ok(rig_match(s, tokens, 256));
    assert_ok(rig_fetched(s, rig_fetch(s, 0, 128)));
    assert_lengths(s, 128, 128, 128);
    assert_int_equal(h.dest.rig->pulled_pages, 4); /* the window alone */
    assert_int_equal(rig_wrong(s, 128), 0);
}

/* `s` has fetched 320 tokens while another engine is about to publish the first chunk, so all that
 * arrived is the session's own: of STATE the final window. */
struct beside {
    struct hosts h;
    struct rig_engine engine;
    struct rig_session *first, *s;
    const uint32_t *tokens; /* 400 */
};

static void fetch_beside(struct beside *ret)
{
    ret->h = hosts_with(rig_window(16, 64, 64), 1u << 20);
    ret->engine = second_engine(ret->h.dest.rig, ret->h.dest.pool);
    ret->first = rig_session(ret->h.dest.rig, &ret->engine, ret->h.dest.pool, 1);
    ret->s = stage_session(&ret->h.dest);
    stage_put(&ret->h.source, 1, 320);
    ret->tokens = rig_tokens(1, 400);
    assert_ok(rig_match(ret->first, ret->tokens, 64));
    commit_to(ret->first, ret->tokens, 64, 9);
    assert_ok(rig_match(ret->s, ret->tokens, 400));
    assert_ok(rig_fetched(ret->s, rig_fetch(ret->s, 0, 0)));
}

/* It cannot go back to where it would need more. */
TEST(x5_what_a_transfer_left_out_is_not_gone_back_to)
{
    struct beside b;
    struct rig_session *s;

    fetch_beside(&b);
    s = b.s;
    assert_lengths(s, 0, 320, 320);
    assert_int_equal(rig_wrong(s, 320), 0);
    assert_err(TERN_INVALID, rig_rewind(s, 319, 0)); /* needs a token of the page before */
    assert_err(TERN_INVALID, rig_match(s, b.tokens, 200));
    assert_lengths(s, 0, 320, 320);
    assert_ok(rig_run_to(s, b.tokens, 340));
    assert_int_equal(rig_wrong(s, 340), 0);
    assert_ok(rig_rewind(s, 336, 0)); /* whose window it has */
    assert_int_equal(rig_wrong(s, 336), 0);
    rig_engine_kill(b.h.dest.rig, &b.engine, 0);
    assert_ok(rig_commit(s, 320, 0));
    assert_ok(rig_close(s, 0));
    assert_int_equal(match_depth(&b.h.dest, b.tokens, 400), 320);
}

/* The same session back at its T, where it needs nothing. */
TEST(x5_what_a_transfer_left_out_is_not_needed_at_t)
{
    struct beside b;
    struct rig_session *s;

    fetch_beside(&b);
    s = b.s;
    assert_ok(rig_rewind(s, 0, 0));
    assert_lengths(s, 0, 0, 0);
    assert_ok(rig_match(s, b.tokens, 400));
    assert_ok(rig_run_to(s, b.tokens, 100));
    assert_int_equal(rig_wrong(s, 100), 0);
}

/* Passed, lost, computed anew: it is a resume point again, until it goes. The audit counts such. */
TEST(t10_a_resume_point_made_anew_goes)
{
    struct stage st = stage_64(SUPERSEDE_LAZY, 64, 0);
    uint32_t admin = rig_connect_admin(st.rig);
    const uint32_t *tokens = rig_tokens(1, 128);

    stage_put(&st, 1, 64);
    stage_put(&st, 1, 128);
    assert_int_equal(node_in(&st, tokens, 64)->state.successor, SUCCESSOR_BELOW);
    lose_state(&st, tokens, 64);
    refill(&st, tokens, 64);
    assert_int_equal(node_in(&st, tokens, 64)->state.successor, SUCCESSOR_EARLIER);
    assert_int_equal(match_depth(&st, tokens, 64), 64);
    assert_int_equal(rig_evict(st.rig, admin, st.pool, 0), 2);
}

/* W = 2 L: at 64 another engine's refill waits for its step, so the session keeps its own pages
 * from there on, of 128 too, and its answer names no others. */
TEST(t18_beyond_a_refill_under_way_a_session_keeps_its_own)
{
    struct stage st = stage_64(SUPERSEDE_LAZY, 128, 0);
    struct rig_engine other = second_engine(st.rig, st.pool);
    struct rig_session *a = rig_session(st.rig, &other, st.pool, 1), *b = stage_session(&st);
    const uint32_t *tokens = rig_tokens(1, 128);
    struct page_ref own[8];

    stage_put(&st, 1, 128);
    lose_state(&st, tokens, 64);
    assert_ok(rig_match(a, tokens, 64));
    commit_to(a, tokens, 64, 5);
    assert_ok(rig_match(b, tokens, 128));
    assert_int_equal(b->matched, 0);
    assert_ok(rig_run_to(b, tokens, 128));
    memcpy(own, b->table[1], sizeof own);
    assert_ok(rig_commit(b, 128, 0));
    assert_lengths(b, 128, 128, 128);
    assert_memory_equal(b->table[1], own, sizeof own);
    assert_int_equal(rig_wrong(b, 128), 0);
    rig_engine_kill(st.rig, &other, 0); /* the refill goes, the session's pages do not */
    assert_int_equal(rig_wrong(b, 128), 0);
}
