/* Transfers with STATE: they move the final window alone, and one that breaks off leaves a usable
 * session (X3, X5). */
#include "unit/rig/rig_state.h"

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

/* Fetches sequence 1 up to 320 with `state_pages` STATE pages; then runs on with right bytes. */
static void fetch_320(struct group_layout state_group, uint32_t state_pages)
{
    struct hosts h = hosts_with(state_group, 1u << 20);
    struct rig_session *s = stage_session(&h.dest);
    const uint32_t *tokens;

    for (uint32_t depth = 64; depth <= 320; depth += 64)
        stage_put(&h.source, 1, depth);
    tokens = seq1;
    assert_ok(rig_match(s, tokens, 400));
    assert_leaves(rig_fetched(s, rig_fetch(s, 0, 0)), s, 320, 320, 320);
    assert_int_equal(h.dest.rig->pulled_pages, 5 + state_pages);
    assert_int_equal(rig_wrong(s, 320), 0);
    assert_int_equal(match_depth(&h.dest, tokens, 400), 320);
    runs_right(s, tokens, 390);
    assert_ok(rig_commit(s, 384, 0));
    closes_whole(s, 390);
}

/* X5 */
TEST(pull_a_transfer_brings_only_the_final_window)
{
    fetch_320(rig_window(16, 40, 64), 3);   /* W < L: its own segment */
    fetch_320(rig_window(16, 64, 64), 4);   /* W = L */
    fetch_320(rig_window(16, 150, 64), 12); /* W > L: those of three chunks */
    fetch_320(rig_recurrent(64, 128), 1);
}

/* X5 */
TEST(pull_history_that_is_there_is_not_moved_again)
{
    struct hosts h = hosts_with(rig_window(16, 64, 64), 1u << 20);
    struct rig_session *s = stage_session(&h.dest);
    const uint32_t *tokens;

    stage_put(&h.source, 1, 256);
    stage_put(&h.dest, 1, 192);
    tokens = seq1;
    for (uint32_t depth = 64; depth <= 192; depth += 64)
        lose_state(&h.dest, tokens, depth);
    matches(s, tokens, 256, 0);
    assert_leaves(rig_fetched(s, rig_fetch(s, 0, 0)), s, 256, 256, 256);
    assert_int_equal(h.dest.rig->pulled_pages, 1 + 4); /* HISTORY of [192, 256), one window */
    assert_int_equal(rig_wrong(s, 256), 0);
    assert_int_equal(match_depth(&h.dest, tokens, 256), 256);
}

/* X3: the published chunks have no STATE yet, so the session does not stay at a length that it
 * cannot resume from. */
TEST(pull_a_transfer_that_breaks_off_leaves_the_session_where_it_was)
{
    struct hosts h = hosts_with(rig_window(16, 64, 64), 1100);
    struct rig_session *s = stage_session(&h.dest);
    const uint32_t *tokens;
    uint64_t request;

    stage_put(&h.source, 1, 256);
    tokens = seq1;
    assert_ok(rig_match(s, tokens, 256));
    h.dest.rig->automatic = RIG_ALL & ~(uint32_t)RIG_PULL;
    request = rig_fetch(s, 0, 0);
    rig_complete(h.dest.rig, RIG_PULL); /* HISTORY of the first chunk, and STATE of the last */
    assert_int_equal(rig_pool_view(h.dest.rig, h.dest.pool).nodes, 1);
    assert_err(TERN_BUSY, rig_fetched(s, request));
    assert_ok(rig_fetch_cancel(s));
    assert_err(TERN_GONE, rig_fetched(s, request));
    assert_lengths(s, 0, 0, 0);
    rig_runs_free(h.dest.rig);
    assert_int_equal(rig_pool_view(h.dest.rig, h.dest.pool).nodes, 1); /* still in the tree */
    assert_ok(rig_match(s, tokens, 256));
    h.dest.rig->pulled_pages = 0;
    assert_leaves(rig_fetched(s, rig_fetch(s, 0, 0)), s, 256, 256, 256);
    assert_int_equal(h.dest.rig->pulled_pages, 3 + 4);
    assert_int_equal(rig_wrong(s, 256), 0);
}

/* X5: the same up to a depth: the transfer ignores chunks that are here beyond it. */
TEST(pull_history_beyond_the_depth_that_is_asked_for)
{
    struct hosts h = hosts_with(rig_window(16, 64, 64), 1u << 20);
    struct rig_session *s = stage_session(&h.dest);
    const uint32_t *tokens;

    for (uint32_t depth = 64; depth <= 256; depth += 64)
        stage_put(&h.source, 1, depth);
    stage_put(&h.dest, 1, 192);
    tokens = seq1;
    for (uint32_t depth = 64; depth <= 192; depth += 64)
        lose_state(&h.dest, tokens, depth);
    assert_ok(rig_match(s, tokens, 256));
    assert_leaves(rig_fetched(s, rig_fetch(s, 0, 128)), s, 128, 128, 128);
    assert_int_equal(h.dest.rig->pulled_pages, 4); /* the window alone */
    assert_int_equal(rig_wrong(s, 128), 0);
}

/* `s` has fetched 320 tokens while another engine is about to publish the first chunk, so all that
 * arrived is the session's own, with the final window's STATE alone. */
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
    ret->tokens = seq1;
    commits_up_to(ret->first, ret->tokens, 64, 64, 9);
    assert_ok(rig_match(ret->s, ret->tokens, 400));
    assert_ok(rig_fetched(ret->s, rig_fetch(ret->s, 0, 0)));
}

/* X5: the session cannot go back to a length that needs more STATE. */
TEST(pull_what_a_transfer_left_out_is_not_gone_back_to)
{
    struct beside b;
    struct rig_session *s;

    fetch_beside(&b);
    s = b.s;
    assert_lengths(s, 0, 320, 320);
    assert_int_equal(rig_wrong(s, 320), 0);
    assert_err(TERN_INVALID, rig_rewind(s, 319, 0)); /* its window begins in the page before */
    assert_err(TERN_INVALID, rig_match(s, b.tokens, 200));
    assert_lengths(s, 0, 320, 320);
    runs_right(s, b.tokens, 340);
    assert_ok(rig_rewind(s, 336, 0)); /* the session has this window */
    assert_int_equal(rig_wrong(s, 336), 0);
    rig_engine_kill(b.h.dest.rig, &b.engine, 0);
    assert_ok(rig_commit(s, 320, 0));
    assert_ok(rig_close(s, 0));
    assert_int_equal(match_depth(&b.h.dest, b.tokens, 400), 320);
}

/* X5: the same session back at T, which needs none of that. */
TEST(pull_what_a_transfer_left_out_is_not_needed_at_t)
{
    struct beside b;
    struct rig_session *s;

    fetch_beside(&b);
    s = b.s;
    assert_leaves(rig_rewind(s, 0, 0), s, 0, 0, 0);
    assert_ok(rig_match(s, b.tokens, 400));
    runs_right(s, b.tokens, 100);
}
