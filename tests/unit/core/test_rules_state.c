/* Rules about STATE groups, one session at a time: T2 match, T5 slide, T7 attach, T9 resume points,
 * T10 supersession, T12 prune, T21 recurrent state, and which layouts there are. */
#include "testing/test.h"
#include "unit/rig/rig_state.h"

static struct group_view state_view(struct stage *st)
{
    return rig_group_view(st->rig, st->pool, 1);
}

/* A pool of L=64 with a WINDOW of `window` tokens, 16 a page, at most `cap` pages of it. */
static struct stage stage_64(enum supersede supersede, uint32_t window, uint32_t cap)
{
    struct group_layout l = rig_window(16, window, 64);

    l.cap_pages = cap;
    return stage_with(supersede, 64, l);
}

/* Commits `depth` tokens of what the session runs, with a resume point at each chunk. */
static void commit_each(struct rig_session *s, const uint32_t *tokens, uint32_t depth)
{
    for (uint32_t d = s->len.committed + 64; d <= depth; d += 64) {
        assert_ok(rig_run_to(s, tokens, d));
        assert_ok(rig_commit(s, d, 0));
        assert_int_equal(s->len.committed, d);
    }
}

TEST(t2_peek_tells_the_deeper_history_and_match_the_window)
{
    struct stage st = stage_with(SUPERSEDE_LAZY, 64, rig_window(16, 40, 64));
    struct rig_session *s = stage_session(&st);
    const uint32_t *tokens = rig_tokens(1, 256);

    for (uint32_t depth = 64; depth <= 256; depth += 64)
        stage_put(&st, 1, depth);
    lose_state(&st, tokens, 256);
    assert_int_equal(rig_depth(s, tokens, 256), 192);
    assert_int_equal(st.rig->last->peek.history_depth, 256);
    assert_ok(rig_match(s, tokens, 256));
    assert_int_equal(s->matched, 192);
    for (uint32_t p = 0; p < 16; p++) /* floor((192 - 40) / 16) = 9 to 192 / 16 = 12 */
        assert_int_equal(s->table[1][p].index != 0, p >= 9 && p < 12);
    assert_ok(rig_match(s, tokens, 256)); /* again: the same */
    assert_lengths(s, 192, 192, 192);
    assert_int_equal(rig_wrong(s, 192), 0);
}

TEST(t5_own_pages_below_the_window_go_back_with_the_step)
{
    struct group_layout l = rig_window(2, 8, 64);
    struct stage st;
    struct rig_session *s;
    struct group_view before;

    l.reserve = 4;
    st = stage_with(SUPERSEDE_LAZY, 16, l);
    s = stage_session(&st);
    assert_ok(rig_match(s, rig_tokens(1, 64), 64));
    assert_ok(rig_run_to(s, rig_tokens(1, 64), 64));
    before = state_view(&st);
    assert_int_equal(before.session, 32);
    assert_ok(rig_slide(s, 0, 7)); /* min(64, 0 + 16) - 8 - 4 = 4: pages 0 and 1 */
    assert_lengths(s, 0, 64, 64);
    assert_int_equal(state_view(&st).session, 30);
    assert_int_equal(state_view(&st).retiring, 2);
    assert_int_equal(state_view(&st).free, before.free);
    assert_ok(rig_slide(s, 0, 9)); /* idempotent */
    assert_int_equal(state_view(&st).session, 30);
    rig_engine_done(st.rig, &st.e, 6);
    assert_int_equal(state_view(&st).retiring, 2);
    rig_engine_done(st.rig, &st.e, 7);
    assert_int_equal(state_view(&st).retiring, 0);
    assert_int_equal(state_view(&st).free, before.free + 2);
    assert_int_equal(rig_wrong(s, 64), 0);
}

TEST(t5_borrowed_pages_only_lose_the_index)
{
    struct stage st = stage_with(SUPERSEDE_LAZY, 16, rig_window(2, 8, 64));
    const uint32_t *tokens = rig_tokens(1, 64);
    struct rig_session *s;
    const struct node *n;

    stage_put(&st, 1, 32);
    s = stage_session(&st);
    assert_ok(rig_match(s, tokens, 64));
    n = node_in(&st, tokens, 32);
    assert_int_equal(n->state.borrowers, 1);
    assert_ok(rig_run_to(s, tokens, 60));
    assert_ok(rig_slide(s, 60, 3)); /* 60 - 9 = 51: nothing below it is read again */
    assert_int_equal(n->state.borrowers, 1);
    assert_int_equal(state_view(&st).snapshot + state_view(&st).reclaimable, 8);
    rig_engine_done(st.rig, &st.e, 3);
    assert_int_equal(n->state.borrowers, 0); /* with the step */
    assert_int_equal(state_view(&st).snapshot + state_view(&st).reclaimable, 8);
    assert_int_equal(match_depth(&st, tokens, 32), 32);
    assert_err(TERN_INVALID, rig_rewind(s, 34, 0)); /* beyond the reserve: its window has left */
    assert_ok(rig_rewind(s, 59, 0));
    assert_int_equal(rig_wrong(s, 59), 0);
}

/* Borrows are counted by node: one page of it leaves the table at step 9, the others at step 3. */
TEST(t5_a_borrowed_page_is_held_by_its_step_and_the_rest_with_it)
{
    struct stage st = stage_with(SUPERSEDE_LAZY, 16, rig_window(2, 8, 64));
    const uint32_t *tokens = rig_tokens(1, 64);
    struct rig_session *s;
    const struct node *n;

    stage_put(&st, 1, 32);
    s = stage_session(&st);
    assert_ok(rig_match(s, tokens, 64)); /* borrows [24, 32) */
    n = node_in(&st, tokens, 32);
    assert_ok(rig_run_to(s, tokens, 36));
    assert_ok(rig_slide(s, 36, 9)); /* 36 - 9 = 27: one page */
    assert_int_equal(n->state.borrowers, 1);
    assert_ok(rig_close(s, 3));
    rig_engine_done(st.rig, &st.e, 8);
    assert_int_equal(n->state.borrowers, 1);
    rig_engine_done(st.rig, &st.e, 9);
    assert_int_equal(n->state.borrowers, 0);
    s = stage_session(&st);
    assert_ok(rig_match(s, tokens, 64));
    assert_ok(rig_run_to(s, tokens, 60));
    assert_ok(rig_slide(s, 36, 19));
    assert_ok(rig_slide(s, 60, 13)); /* the rest, at an earlier step */
    rig_engine_done(st.rig, &st.e, 18);
    assert_int_equal(n->state.borrowers, 1);
    assert_ok(rig_close(s, 13));
    rig_engine_done(st.rig, &st.e, 19);
    assert_int_equal(n->state.borrowers, 0);
}

TEST(t7_a_node_takes_the_window_and_the_rest_goes_back)
{
    struct stage st = stage_with(SUPERSEDE_LAZY, 16, rig_window(2, 6, 64));
    struct rig_session *s = stage_session(&st);
    struct page_ref history, last;

    assert_ok(rig_match(s, rig_tokens(1, 16), 16));
    assert_ok(rig_run_to(s, rig_tokens(1, 16), 16));
    assert_int_equal(state_view(&st).session, 8);
    history = s->table[0][0];
    last = s->table[1][7];
    assert_ok(rig_commit(s, 16, 0));
    assert_int_equal(state_view(&st).session, 0);
    assert_int_equal(state_view(&st).snapshot, 3); /* [10, 16) */
    assert_int_equal(rig_group_view(st.rig, st.pool, 0).snapshot, 1);
    assert_memory_equal(&history, &s->table[0][0], sizeof history); /* its ids stay */
    assert_memory_equal(&last, &s->table[1][7], sizeof last);
    assert_int_equal(rig_wrong(s, 16), 0);
}

TEST(t9_only_the_last_target_is_a_resume_point)
{
    struct stage st = stage_64(SUPERSEDE_OFF, 64, 0);
    const uint32_t *tokens = rig_tokens(1, 192);

    stage_put(&st, 1, 192);
    for (uint32_t depth = 64; depth <= 192; depth += 64) {
        assert_int_equal(node_in(&st, tokens, depth)->state.resume == RESUME_POINT, depth == 192);
        assert_int_equal(node_in(&st, tokens, depth)->state.claims_window, depth == 192);
    }
}

TEST(t10_a_borrower_keeps_what_is_passed)
{
    struct stage st = stage_64(SUPERSEDE_EAGER, 64, 0);
    const uint32_t *tokens = rig_tokens(1, 192);
    struct rig_session *s, *holder = stage_session(&st);

    s = stage_committed(&st, 1, 64);
    assert_ok(rig_match(holder, tokens, 64));
    commit_each(s, tokens, 192);
    assert_true(has_state(&st, tokens, 64)); /* holder */
    assert_false(has_state(&st, tokens, 128) && node_in(&st, tokens, 128)->state.borrowers == 0);
    assert_int_equal(rig_wrong(holder, 64), 0);
    assert_ok(rig_close(holder, 4));
    assert_true(has_state(&st, tokens, 64)); /* a kernel may still read it */
    rig_engine_done(st.rig, &st.e, 4);
    assert_false(has_state(&st, tokens, 64));
}

TEST(t10_a_fork_point_keeps_its_state)
{
    struct stage st = stage_64(SUPERSEDE_EAGER, 64, 0);
    struct rig_session *a = stage_committed(&st, 1, 128), *b = stage_session(&st);
    uint32_t tokens[192];

    memcpy(tokens, rig_tokens(1, 128), 128 * sizeof tokens[0]);
    for (uint32_t i = 128; i < 192; i++)
        tokens[i] = 5000 + i;
    assert_ok(rig_match(b, tokens, 192));
    assert_int_equal(b->matched, 128);
    commit_each(a, rig_tokens(1, 192), 192);
    commit_each(b, tokens, 192);
    assert_ok(rig_close(a, 0));
    assert_ok(rig_close(b, 0));
    assert_int_equal(node_in(&st, tokens, 128)->state.successor, SUCCESSOR_BELOW);
    assert_int_equal(node_in(&st, tokens, 128)->children.n, 2);
    assert_int_equal(match_depth(&st, tokens, 130), 128);
    assert_int_equal(rig_evict(st.rig, rig_connect_admin(st.rig), st.pool, 1), 1);
    assert_false(has_state(&st, tokens, 128)); /* one child went: it is no fork point any more */
}

/* depth + W > t: 64 is in reach of 128, and no later one has passed it. */
TEST(t10_what_is_in_reach_is_not_passed)
{
    struct stage st = stage_64(SUPERSEDE_EAGER, 128, 0);
    const uint32_t *tokens = rig_tokens(1, 128);

    stage_put(&st, 1, 128);
    lose_state(&st, tokens, 128);
    assert_int_equal(match_depth(&st, tokens, 128), 64);
}

/* W > L: 64 is in the window of the sibling that ends at 192, and no fork point itself. */
TEST(t10_a_siblings_window_needs_the_segment)
{
    struct stage st = stage_64(SUPERSEDE_EAGER, 192, 0);
    uint32_t tokens[320];
    struct rig_session *s;

    stage_put(&st, 1, 192);
    memcpy(tokens, rig_tokens(1, 128), 128 * sizeof tokens[0]);
    for (uint32_t i = 128; i < 320; i++)
        tokens[i] = 5000 + i;
    s = stage_session(&st);
    assert_ok(rig_match(s, tokens, 320));
    assert_ok(rig_run_to(s, tokens, 320));
    assert_ok(rig_commit(s, 320, 0));
    assert_ok(rig_close(s, 0));
    assert_int_equal(node_in(&st, tokens, 64)->children.n, 1);
    assert_int_equal(node_in(&st, tokens, 64)->state.successor, SUCCESSOR_BELOW);
    assert_int_equal(match_depth(&st, rig_tokens(1, 192), 192), 192);
    lose_state(&st, rig_tokens(1, 192), 192); /* nothing needs 64 any more */
    assert_false(has_state(&st, tokens, 64));
    assert_int_equal(match_depth(&st, tokens, 320), 320);
}

TEST(t10_reclaimed_oldest_first_and_taken_back_by_a_match)
{
    struct stage st = stage_64(SUPERSEDE_LAZY, 64, 20);
    struct rig_session *a = stage_session(&st), *b = stage_session(&st), *c = stage_session(&st);
    struct rig_session *reader = stage_session(&st);

    assert_ok(rig_match(a, rig_tokens(1, 128), 128));
    commit_each(a, rig_tokens(1, 128), 128);
    assert_ok(rig_close(a, 0));
    assert_ok(rig_match(b, rig_tokens(2, 128), 128));
    commit_each(b, rig_tokens(2, 128), 128);
    assert_ok(rig_close(b, 0));
    assert_int_equal(state_view(&st).reclaimable, 8);
    assert_int_equal(state_view(&st).snapshot, 8);
    assert_int_equal(match_depth(&st, rig_tokens(1, 100), 100), 64); /* now the newest of the two */
    assert_ok(rig_match(c, rig_tokens(3, 128), 128));
    assert_ok(rig_extend(c, 128, 0, NULL, 0)); /* 8 pages, 4 are free */
    assert_true(has_state(&st, rig_tokens(1, 128), 64));
    assert_false(has_state(&st, rig_tokens(2, 128), 64));
    assert_ok(rig_match(reader, rig_tokens(1, 100), 100));
    assert_int_equal(reader->matched, 64);
    assert_int_equal(state_view(&st).reclaimable, 0); /* taken back */
    assert_int_equal(state_view(&st).snapshot, 12);
    assert_int_equal(rig_wrong(reader, 64), 0);
}

TEST(t12_starved_of_state_drops_state_alone)
{
    struct stage st = stage_64(SUPERSEDE_LAZY, 64, 12);
    struct rig_session *s = stage_session(&st);

    for (uint32_t seed = 1; seed <= 3; seed++)
        stage_put(&st, seed, 64);
    assert_int_equal(match_depth(&st, rig_tokens(1, 64), 64), 64); /* so 2 is the oldest use */
    assert_ok(rig_match(s, rig_tokens(4, 64), 64));
    assert_ok(rig_extend(s, 64, 0, NULL, 0));
    assert_int_equal(rig_pool_view(st.rig, st.pool).nodes, 3);
    assert_int_equal(match_depth(&st, rig_tokens(1, 64), 64), 64);
    assert_int_equal(match_depth(&st, rig_tokens(3, 64), 64), 64);
    assert_int_equal(match_depth(&st, rig_tokens(2, 64), 64), 0);
    assert_int_equal(rig_depth(s, rig_tokens(2, 64), 64), 0);
    assert_int_equal(st.rig->last->peek.history_depth, 64);
}

TEST(t12_starved_of_history_takes_whole_snapshots)
{
    struct group_layout groups[2] = {rig_group(64, 512), rig_window(16, 64, 64)};
    struct stage st = {.rig = rig_create(NULL)};
    struct rig_session *s;

    groups[0].cap_pages = 2;
    st.e = rig_engine(st.rig, 0, "e", 1);
    assert_ok(rig_pool_open(st.rig, st.e.conn[0], groups, 2, 1u << 20, &st.pool));
    stage_put(&st, 1, 128);
    s = stage_session(&st);
    assert_ok(rig_match(s, rig_tokens(2, 64), 64));
    assert_ok(rig_extend(s, 64, 0, NULL, 0));
    assert_int_equal(rig_pool_view(st.rig, st.pool).nodes, 1);
    assert_int_equal(state_view(&st).snapshot + state_view(&st).reclaimable, 4);
}

TEST(t21_only_a_commit_at_c_leaves_a_recurrent_state)
{
    struct stage st = stage_with(SUPERSEDE_LAZY, 64, rig_recurrent(64, 128));
    struct rig_session *s = stage_session(&st);
    const uint32_t *tokens = rig_tokens(1, 256);
    uint32_t before;

    assert_ok(rig_match(s, tokens, 256));
    assert_ok(rig_run_to(s, tokens, 70));
    assert_ok(rig_commit(s, 64, 0)); /* its one state is that of 70 */
    assert_lengths(s, 64, 70, 70);
    assert_int_equal(match_depth(&st, tokens, 64), 0);
    assert_ok(rig_run_to(s, tokens, 128));
    before = s->table[1][0].index;
    assert_ok(rig_commit(s, 128, 0));
    assert_int_not_equal(s->table[1][0].index,
                         before); /* handed over, and a copy is the session's */
    assert_int_equal(rig_wrong(s, 128), 0);
    assert_ok(rig_run_to(s, tokens, 140));
    assert_int_equal(match_depth(&st, tokens, 140), 128);
    assert_ok(rig_rewind(s, 128, 0)); /* back to the resume point: a fresh copy of it */
    assert_ok(rig_run_to(s, tokens, 129));
    assert_int_equal(rig_wrong(s, 129), 0);
    assert_err(TERN_INVALID, rig_rewind(s, 127, 0));
}

static enum tern_err open_with(struct rig *rig, const struct rig_engine *e, struct group_layout a,
                               struct group_layout b)
{
    struct group_layout groups[2] = {a, b};
    struct pool_id pool;
    enum tern_err err = rig_pool_open(rig, e->conn[0], groups, 2, 1u << 18, &pool);

    if (err == TERN_OK)
        assert_ok(rig_pool_close(rig, e->conn[0], pool));
    return err;
}

TEST(layouts_that_make_no_sense_are_refused)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 1);
    struct group_layout history = rig_group(64, 512), window = rig_window(16, 128, 64), bad;

    assert_ok(open_with(rig, &e, history, window));
    assert_ok(open_with(rig, &e, history, rig_recurrent(64, 128)));
    bad = window;
    bad.window = 0;
    assert_err(TERN_INVALID, open_with(rig, &e, history, bad));
    bad.window = bad.reserve = SESSION_TOKENS_MAX;
    assert_ok(open_with(rig, &e, history, bad));
    bad.window++;
    assert_err(TERN_INVALID, open_with(rig, &e, history, bad));
    bad.window--;
    bad.reserve++;
    assert_err(TERN_INVALID, open_with(rig, &e, history, bad));
    bad = window;
    bad.reserve = 0;
    assert_err(TERN_INVALID, open_with(rig, &e, history, bad));
    bad = window;
    bad.page_tokens = 24; /* does not divide L */
    assert_err(TERN_INVALID, open_with(rig, &e, history, bad));
    bad = history;
    bad.window = 64;
    assert_err(TERN_INVALID, open_with(rig, &e, bad, window));
    bad = rig_recurrent(64, 128);
    bad.window = 64;
    assert_err(TERN_INVALID, open_with(rig, &e, history, bad));
    assert_err(TERN_INVALID, open_with(rig, &e, window, window)); /* no HISTORY: no L */
    bad = window;
    bad.family = (enum family)3;
    assert_err(TERN_UNSUPPORTED, open_with(rig, &e, history, bad));
    rig->supersede = (enum supersede)3;
    assert_err(TERN_INVALID, open_with(rig, &e, history, window));
}

/* S2, S6: its one state is that of C, so whoever goes on from less goes on from T. */
TEST(t21_a_turn_that_ends_below_c_goes_back_to_the_resume_point)
{
    struct stage st = stage_with(SUPERSEDE_LAZY, 64, rig_recurrent(64, 128));
    struct rig_session *s = stage_session(&st);
    const uint32_t *tokens = rig_tokens(1, 256);

    assert_ok(rig_match(s, tokens, 72));
    assert_ok(rig_run_to(s, tokens, 64));
    assert_ok(rig_commit(s, 64, 0));
    assert_ok(rig_run_to(s, tokens, 80));
    assert_ok(rig_finish(s, 0, 0)); /* at 72 */
    assert_lengths(s, 64, 64, 64);
    assert_int_equal(s->ntokens, 72);
    assert_ok(rig_match(s, tokens, 100));
    assert_ok(rig_run_to(s, tokens, 90));
    assert_int_equal(rig_wrong(s, 90), 0);
    assert_ok(rig_match(s, tokens, 89)); /* one token short */
    assert_lengths(s, 64, 64, 64);
    assert_ok(rig_run_to(s, tokens, 100));
    assert_int_equal(rig_wrong(s, 100), 0);
    assert_ok(rig_finish(s, 11, 0)); /* at C: nothing is given up */
    assert_lengths(s, 64, 100, 100);
}

/* A commit behind what has been slid over does not bring it back into the table. */
TEST(t5_a_later_commit_does_not_bring_back_what_has_left)
{
    struct stage st = stage_64(SUPERSEDE_LAZY, 64, 0);
    struct rig_session *s = stage_session(&st);
    const uint32_t *tokens = rig_tokens(1, 256);

    assert_ok(rig_match(s, tokens, 256));
    assert_ok(rig_run_to(s, tokens, 200));
    assert_ok(rig_slide(s, 200, 0)); /* 200 - 65: eight pages */
    assert_ok(rig_commit(s, 128, 0));
    assert_lengths(s, 128, 200, 200);
    assert_int_equal(match_depth(&st, tokens, 256), 0);
    assert_err(TERN_INVALID, rig_rewind(s, 128, 0)); /* [64, 128) is nowhere */
    assert_err(TERN_INVALID, rig_match(s, tokens, 128));
    assert_err(TERN_INVALID, rig_rewind(s, 190, 0)); /* nor is the page of [112, 128) */
    assert_lengths(s, 128, 200, 200);
    assert_ok(rig_rewind(s, 199, 0));
    assert_int_equal(rig_wrong(s, 199), 0);
}

/* Once it has slid past the resume point, that one's state is nobody's to keep. */
TEST(t21_what_was_slid_past_is_not_gone_back_to)
{
    struct stage st = stage_with(SUPERSEDE_LAZY, 64, rig_recurrent(64, 128));
    struct rig_session *s = stage_session(&st);
    const uint32_t *tokens = rig_tokens(1, 256);

    assert_ok(rig_match(s, tokens, 256));
    assert_ok(rig_run_to(s, tokens, 64));
    assert_ok(rig_commit(s, 64, 0));
    assert_ok(rig_run_to(s, tokens, 200));
    assert_ok(rig_slide(s, 192, 0));
    assert_int_equal(node_in(&st, tokens, 64)->state.borrowers, 0);
    assert_err(TERN_INVALID, rig_rewind(s, 64, 0));
    assert_err(TERN_INVALID, rig_match(s, tokens, 199));
    assert_lengths(s, 64, 200, 200);
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

/* Starved of HISTORY: superseded STATE goes before any leaf, since its slabs help; where the group
 * has a cap, up to that. */
TEST(t12_superseded_state_goes_before_leaves)
{
    for (uint32_t cap = 0; cap <= 5; cap += 5) {
        struct stage st = stage_of_slabs(7, cap);
        struct rig_session *s = stage_session(&st);

        assert_ok(rig_match(s, rig_tokens(2, 128), 128));
        assert_ok(rig_extend(s, 128, 0, NULL, 0)); /* four slabs, of which one is free */
        assert_int_equal(rig_view(st.rig).evicted_pages, 3);
        assert_int_equal(rig_pool_view(st.rig, st.pool).nodes, 3);
        assert_int_equal(rig_depth(s, rig_tokens(1, 192), 192), 0);
        assert_int_equal(st.rig->last->peek.history_depth, 192);
    }
}

/* At the group's own cap they do not help, and stay. */
TEST(t12_at_the_cap_of_history_superseded_state_stays)
{
    struct stage st = stage_of_slabs(15, 3);
    struct rig_session *s = stage_session(&st);

    assert_ok(rig_match(s, rig_tokens(2, 64), 64));
    assert_ok(rig_extend(s, 64, 0, NULL, 0));
    assert_int_equal(rig_pool_view(st.rig, st.pool).nodes, 2);
    assert_int_equal(state_view(&st).reclaimable, 2);
    assert_int_equal(match_depth(&st, rig_tokens(1, 192), 192), 128);
}

TEST(peaks_of_state_stay_when_its_pages_go)
{
    struct stage st = stage_64(SUPERSEDE_LAZY, 64, 0);
    uint32_t admin = rig_connect_admin(st.rig);

    for (uint32_t seed = 1; seed <= 3; seed++)
        stage_put(&st, seed, 64);
    assert_int_equal(state_view(&st).peak_snapshot, 12);
    rig_evict(st.rig, admin, st.pool, 0);
    stage_put(&st, 4, 64);
    assert_int_equal(state_view(&st).snapshot, 4);
    assert_int_equal(state_view(&st).peak_snapshot, 12);
}
