/* Retraction and fetches from the host tier in pools with STATE: windows and recurrent states that
 * are restored, borrowers that are away, and which pages are copied (T14, T16, T17, T18). L = 64
 * and windows of 16-token pages unless a test sets others. */
#include "unit/rig/rig_tiers.h"

/* --- T14 with STATE --- */

/* T = 192 and C at or above it: the window reaches into the borrowed pages, or does not. */
static void t14_window(uint32_t window, uint32_t c, enum retract_mode mode)
{
    struct stage st = stage_64(window, 64);
    struct rig_session *s = stage_session(&st);
    uint32_t back = mode == RETRACT_HOST ? c : 192;

    commits_up_to(s, seq1, 1024, 192, 0);
    assert_ok(rig_run_to(s, seq1, c));
    assert_ok(rig_extend(s, c + 100, 0, NULL, 0));
    assert_leaves(rig_retract(s, mode, 0), s, 192, back, back);
    demote_pool(st.rig, st.pool);
    assert_int_equal(seen(&st, 1, 192).on_device, mode == RETRACT_DROP);
    assert_leaves(rig_recover_now(s), s, 192, back, back);
    assert_int_equal(rig_wrong(s, back), 0);
    runs_right(s, seq1, 448);
    commit_to(s, seq1, 448, 0);
    assert_int_equal(match_depth(&st, seq1, 448), 448);
    stage_closes(&st, s);
}

/* T14 */
TEST(host_a_window_comes_back_whole)
{
    static const uint32_t windows[] = {16, 32, 64, 80, 128, 256};

    for (uint32_t i = 0; i < 6; i++)
        for (uint32_t c = 192; c <= 384; c += 24) {
            t14_window(windows[i], c, RETRACT_HOST);
            if (c == 192)
                t14_window(windows[i], c, RETRACT_DROP);
        }
}

/* T14: its own window pages have left the table by a slide. */
TEST(host_a_slid_window_comes_back_as_it_was)
{
    struct stage st = stage_64(64, 64);
    struct rig_session *s = stage_session(&st);

    commits_up_to(s, seq1, 1024, 64, 0);
    run_and_slide(s, seq1, 320, 320, 0);
    assert_leaves(rig_retract(s, RETRACT_HOST, 0), s, 64, 320, 320);
    demote_pool(st.rig, st.pool);
    assert_leaves(rig_recover_now(s), s, 64, 320, 320);
    assert_int_equal(rig_wrong(s, 320), 0);
    commit_to(s, seq1, 320, 0);
    assert_int_equal(match_depth(&st, seq1, 320), 320);
    stage_closes(&st, s);
}

/* T14: DROP without the STATE at T: the session could not resume from there. */
TEST(host_drop_does_not_go_where_the_state_is_gone)
{
    struct stage st = stage_64(64, 64);
    struct rig_session *s = stage_session(&st);
    enum tern_err err;

    commits_up_to(s, seq1, 1024, 64, 0);
    run_and_slide(s, seq1, 320, 320, 0);
    err = rig_retract(s, RETRACT_DROP, 0);
    if (err == TERN_OK) {
        demote_pool(st.rig, st.pool);
        assert_ok(rig_recover_now(s));
        assert_int_equal(rig_wrong(s, s->len.written), 0);
    } else {
        assert_err(TERN_INVALID, err);
        assert_string_equal(state_of(s), "turn");
        assert_lengths(s, 64, 320, 320);
    }
    assert_ok(rig_run_to(s, seq1, 384));
    closes_whole(s, 384);
    stage_ends(&st);
}

static void t14_recurrent(uint32_t c, enum retract_mode mode, uint32_t last)
{
    struct stage st = host_stage(SUPERSEDE_LAZY, 64, rig_recurrent(64, 128), 64);
    struct rig_session *s = stage_session(&st);
    uint32_t back = mode == RETRACT_HOST ? c : 128;
    enum tern_err err;

    commits_up_to(s, seq1, 1024, last, 0);
    assert_ok(rig_run_to(s, seq1, c));
    if (last < 128) /* the commit came late: the state at 128 was overwritten */
        assert_ok(rig_commit(s, 128, 0));
    err = rig_retract(s, mode, 0);
    if (err != TERN_OK && last < 128 && mode == RETRACT_DROP) {
        assert_err(TERN_INVALID, err);
        back = c;
    } else {
        assert_leaves(err, s, 128, back, back);
        demote_pool(st.rig, st.pool);
        assert_ok(rig_recover_now(s));
    }
    assert_lengths(s, 128, back, back);
    assert_int_equal(rig_wrong(s, back), 0);
    runs_right(s, seq1, back + 1); /* the answer has the page and what to copy into it */
    commit_to(s, seq1, 256, 0);
    assert_int_equal(match_depth(&st, seq1, 256), 256);
    stage_closes(&st, s);
}

/* T14 */
TEST(host_a_recurrent_state_comes_back)
{
    t14_recurrent(128, RETRACT_HOST, 128);
    t14_recurrent(129, RETRACT_HOST, 128);
    t14_recurrent(200, RETRACT_HOST, 128);
    t14_recurrent(128, RETRACT_DROP, 128);
    t14_recurrent(200, RETRACT_DROP, 128);
    t14_recurrent(200, RETRACT_HOST, 64);
    t14_recurrent(200, RETRACT_DROP, 64);
}

/* --- T17 --- */

/* Another session passes a resume point that a retracted session needs, and STATE is short. */
static void t17_a_retracted_holder(enum retract_mode mode, enum supersede supersede)
{
    struct group_layout window = rig_window(16, 64, 64);
    struct stage st;
    struct rig_session *kept, *runner;

    window.cap_pages = 24;
    st = host_stage(supersede, 64, window, 64);
    kept = stage_committed(&st, 1, 64);
    assert_ok(rig_retract(kept, mode, 0));
    runner = stage_session(&st);
    matches(runner, seq1, 512, 64);
    commit_to(runner, seq1, 128, 0);
    commit_to(runner, seq1, 192, 0);
    assert_int_equal(node_in(&st, seq1, 64)->state.borrowers, 1); /* the session that is away */
    assert_false(is_reclaimable(&st, seq1, 64));
    for (uint32_t seed = 2; seed < 8; seed++) /* other sessions need STATE pages */
        stage_put(&st, seed, 128);
    if (mode == RETRACT_DROP)
        assert_true(has_state(&st, seq1, 64));
    assert_ok(rig_recover_now(kept));
    assert_int_equal(rig_wrong(kept, 64), 0);
    assert_ok(rig_close(runner, 0));
    assert_ok(rig_close(kept, 0));
    if (supersede == SUPERSEDE_LAZY)
        assert_true(is_reclaimable(&st, seq1, 64));
    if (supersede == SUPERSEDE_EAGER)
        assert_false(has_state(&st, seq1, 64));
    stage_ends(&st);
}

/* T17 */
TEST(host_a_retracted_holder_keeps_its_borrow)
{
    t17_a_retracted_holder(RETRACT_DROP, SUPERSEDE_LAZY);
    t17_a_retracted_holder(RETRACT_DROP, SUPERSEDE_EAGER);
    t17_a_retracted_holder(RETRACT_HOST, SUPERSEDE_LAZY);
    t17_a_retracted_holder(RETRACT_HOST, SUPERSEDE_EAGER);
}

/* T17: a session that ends while it is away no longer counts as a borrower. */
TEST(host_a_holder_that_ends_while_it_is_away)
{
    for (uint32_t i = 0; i < 6; i++) {
        struct stage st = stage_64(128, 64);
        struct rig_session *kept = stage_committed(&st, 1, 192);

        assert_ok(rig_retract(kept, i < 3 ? RETRACT_HOST : RETRACT_DROP, 0));
        assert_int_equal(node_in(&st, seq1, 192)->state.borrowers, 1);
        if (i % 3 == 2)
            demote_pool(st.rig, st.pool);
        assert_ok(i % 3 ? rig_close(kept, 0) : rig_abort(kept, 0));
        assert_int_equal(
            node_at(st.rig->core, anywhere(st.rig, st.pool, seq1, 192))->state.borrowers, 0);
        if (i % 3 == 0)
            assert_ok(rig_close(kept, 0));
        stage_ends(&st);
    }
}

/* T17: the device's STATE of a HOST holder may go, since the host has it; the host's may not. */
TEST(host_a_host_holder_keeps_the_host_copy_alone)
{
    struct stage st = stage_64(64, 64);
    struct rig_session *kept = stage_committed(&st, 1, 64);

    assert_ok(rig_retract(kept, RETRACT_HOST, 0));
    assert_int_equal(node_in(&st, seq1, 64)->state.borrowers, 1);
    assert_int_equal(node_in(&st, seq1, 64)->state.host_borrowers, 1);
    assert_true(state_droppable(st.rig->core, node_in(&st, seq1, 64)));
    lose_state(&st, seq1, 64);
    assert_int_equal(match_depth(&st, seq1, 64), 0);
    assert_int_equal(seen(&st, 1, 64).on_device, 1);
    assert_int_equal(host_depth(kept, seq1, 64), 64); /* STATE alone would be copied */
    assert_ok(rig_recover_now(kept));
    assert_int_equal(st.rig->copies_up, 1);
    assert_int_equal(rig_wrong(kept, 64), 0);
    assert_int_equal(node_in(&st, seq1, 64)->state.host_borrowers, 0);
    assert_false(state_droppable(st.rig->core, node_in(&st, seq1, 64)));
    assert_int_equal(match_depth(&st, seq1, 64), 64);
    stage_closes(&st, kept);
}

/* --- Fetch from the host tier, with STATE --- */

/* All HISTORY is copied, and only the STATE of the window. */
static void window_alone(enum supersede supersede)
{
    struct stage st = host_stage(supersede, 64, rig_window(16, 64, 64), 64);
    struct rig_session *s = stage_session(&st);

    put_all(&st, 1, 256);
    demote_pool(st.rig, st.pool);
    matches(s, seq1, 300, 0);
    assert_int_equal(st.rig->last->match.host_depth, 256);
    assert_leaves_whole(rig_fetched(s, rig_fetch(s, PEER_HOST, 0)), s, 256);
    assert_int_equal(rig_group_view(st.rig, st.pool, 0).snapshot, 4);
    assert_int_equal(rig_group_view(st.rig, st.pool, 1).snapshot, 4);
    assert_true(has_state(&st, seq1, 256));
    assert_false(has_state(&st, seq1, 192));
    assert_int_equal(match_depth(&st, seq1, 256), 256);
    assert_int_equal(node_in(&st, seq1, 256)->state.claims_window, 1); /* a resume point again */
    commit_to(s, seq1, 320, 0);
    closes_whole(s, 320);
    stage_ends(&st);
}

TEST(fetch_from_the_host_brings_the_window_alone)
{
    window_alone(SUPERSEDE_LAZY);
    window_alone(SUPERSEDE_EAGER);
    window_alone(SUPERSEDE_OFF);
}

/* Pages that another load does not copy are copied after it, when there may be no room left. */
TEST(fetch_from_the_host_whose_room_is_gone_when_more_is_to_come)
{
    struct group_layout window = rig_window(16, 64, 64);
    struct rig_session *s[2], *other;
    struct stage st;
    uint64_t request;

    window.cap_pages = 24;
    st = host_stage(SUPERSEDE_LAZY, 64, window, 64);
    put_all(&st, 1, 256);
    demote_pool(st.rig, st.pool);
    for (uint32_t i = 0; i < 2; i++) {
        s[i] = stage_session(&st);
        matches(s[i], seq1, 300, 0);
    }
    st.rig->automatic = BY_HAND(RIG_COPY);
    rig_fetch(s[0], PEER_HOST, 256); /* STATE of the last chunk alone */
    request = rig_fetch(s[1], PEER_HOST, 128);
    other = stage_session(&st);
    matches(other, rig_tokens(2, 400), 400, 0);
    assert_ok(rig_run_to(other, rig_tokens(2, 400), 16 * 20));
    while (!rig_reply_to(st.rig, request) && rig_jobs(st.rig, RIG_COPY))
        rig_complete(st.rig, RIG_COPY);
    assert_err(TERN_POOL_EXHAUSTED, rig_fetched(s[1], request));
    assert_non_null(strstr(rig_reply_to(st.rig, request)->text, "close or retract"));
    assert_leaves(rig_commit(s[1], 0, 0), s[1], 0, 0, 0);
}

/* HISTORY is on the device, STATE of that depth on the host. */
TEST(fetch_from_the_host_brings_state_alone)
{
    struct stage st = stage_64(128, 64);
    struct rig_session *s = stage_session(&st);

    put_all(&st, 1, 192);
    lose_state(&st, seq1, 128);
    lose_state(&st, seq1, 192);
    matches(s, seq1, 200, 64);
    assert_int_equal(st.rig->last->match.host_depth, 192);
    st.rig->automatic = BY_HAND(RIG_COPY);
    {
        uint64_t request = rig_fetch(s, PEER_HOST, 0);

        assert_int_equal(rig_jobs(st.rig, RIG_COPY), 2);
        assert_int_equal(rig_job(st.rig, RIG_COPY, 0)->n, 4); /* STATE pages */
        rig_complete_nth(st.rig, RIG_COPY, 1);
        assert_err(TERN_BUSY, rig_fetched(s, request));
        rig_complete(st.rig, RIG_COPY);
        assert_ok(rig_fetched(s, request));
    }
    assert_whole(s, 192);
    assert_int_equal(match_depth(&st, seq1, 192), 192);
    stage_closes(&st, s);
}

/* The host has STATE of the chunk before the target, and nothing of the target, which the device
 * has. The load pins the target there, and nothing on the host (the audit checks that). */
TEST(fetch_from_the_host_whose_target_is_on_the_device_alone)
{
    struct stage st = stage_64(128, 64);
    struct rig_session *s = stage_session(&st);
    uint64_t request;

    put_all(&st, 1, 192);
    lose_state(&st, seq1, 128);
    node_leave_host(st.rig->core, node_of(st.rig, st.pool, seq1, 192));
    matches(s, seq1, 200, 64);
    assert_int_equal(st.rig->last->match.host_depth, 192);
    st.rig->automatic = BY_HAND(RIG_COPY);
    request = rig_fetch(s, PEER_HOST, 0);
    assert_int_equal(rig_jobs(st.rig, RIG_COPY), 1);
    assert_int_equal(seen(&st, 1, 192).on_host, 0);
    assert_int_equal(seen(&st, 1, 192).refs[REF_HOST], 0);
    assert_int_equal(seen(&st, 1, 192).refs[REF_TRANSFER], 1);
    assert_false(evict_leaf(st.rig->core, node_of(st.rig, st.pool, seq1, 192)));
    assert_true(node_held(node_in(&st, seq1, 128), TIER_HOST));
    rig_complete(st.rig, RIG_COPY);
    assert_ok(rig_fetched(s, request));
    st.rig->automatic = RIG_ALL;
    assert_whole(s, 192);
    assert_int_equal(seen(&st, 1, 192).refs[REF_TRANSFER], 0);
    stage_closes(&st, s);
}

/* T14: a Retract repeats copies that failed: HISTORY of all chunks, and the STATE that the session
 * borrows. Superseded STATE is not worth host room. */
TEST(host_superseded_state_is_not_copied)
{
    struct stage st = stage_64(64, 64);
    struct rig_session *s = stage_session(&st);

    st.rig->copies_to_fail = 3;
    st.rig->copy_err = TERN_INTERNAL;
    commits_up_to(s, seq1, 256, 64, 0);
    commit_to(s, seq1, 128, 0);
    commit_to(s, seq1, 192, 0);
    while (st.rig->copies_to_fail > 0) { /* each chunk waits for its parent's copy */
        assert_ok(rig_retract(s, RETRACT_HOST, 0));
        assert_ok(rig_recover_now(s));
    }
    assert_true(is_reclaimable(&st, seq1, 64));
    retracts_to("retracted", s, RETRACT_HOST, 0);
    assert_int_equal(rig_host_view(st.rig, st.pool).group[0].snapshot, 3);
    assert_int_equal(seen(&st, 1, 64).host_pages, 1);
    assert_int_equal(seen(&st, 1, 192).host_pages, 1 + 4);
    demote_pool(st.rig, st.pool);
    assert_ok(rig_recover_now(s));
    closes_whole(s, 192);
    stage_ends(&st);
}

/* A session retracts at 64, where the host has HISTORY alone: STATE is being refilled at step 9. */
static struct rig_session *retracts_on_a_refill(struct stage *st)
{
    struct rig_session *first = stage_session(st), *s;
    uint32_t at;

    commits(first, 1, 64);
    assert_ok(rig_snapshot_release(first));
    assert_ok(rig_close(first, 0));
    at = anywhere(st->rig, st->pool, seq1, 64);
    assert_int_equal(node_at(st->rig->core, at)->state.reclaim.prev != NONE, 1);
    state_drop(st->rig->core, at); /* on both tiers, since no session needs it */
    oracle_audit(st->rig->core);
    assert_int_equal(seen(st, 1, 64).host_pages, 1);
    s = stage_session(st);
    commits_up_to(s, seq1, 80, 64, 9);
    assert_int_equal(host_depth(s, seq1, 80), 0);
    st->rig->automatic = BY_HAND(RIG_COPY);
    assert_ok(rig_retract(s, RETRACT_HOST, 0));
    assert_int_equal(rig_jobs(st->rig, RIG_COPY), 0);
    assert_string_equal(state_of(s), "retracting");
    rig_engine_done(st->rig, &st->e, 9);
    assert_int_equal(rig_jobs(st->rig, RIG_COPY), 1);
    assert_string_equal(state_of(s), "retracting");
    return s;
}

/* T16, T18, E3: STATE that is being refilled is not used before its step has passed, nor copied. */
TEST(host_a_refill_under_way_is_not_copied)
{
    struct stage st = stage_64(64, 64);
    struct rig_session *s = retracts_on_a_refill(&st);

    rig_complete(st.rig, RIG_COPY);
    assert_string_equal(state_of(s), "retracted");
    st.rig->automatic = RIG_ALL;
    demote_pool(st.rig, st.pool);
    assert_ok(rig_recover_now(s));
    closes_whole(s, 64);
    stage_ends(&st);
}

/* T16: STATE alone is copied again as many times as a whole node, and no more. */
TEST(host_a_refill_whose_copy_fails_for_good_undoes_the_retract)
{
    struct stage st = stage_64(64, 64);
    struct rig_session *s = retracts_on_a_refill(&st);

    st.rig->copies_to_fail = COPY_TRIES_MAX;
    st.rig->copy_err = TERN_CORRUPT;
    for (uint32_t i = 0; i < COPY_TRIES_MAX; i++) {
        assert_string_equal(state_of(s), "retracting");
        assert_int_equal(rig_jobs(st.rig, RIG_COPY), 1);
        rig_complete(st.rig, RIG_COPY);
    }
    assert_string_equal(state_of(s), "turn");
    assert_int_equal(rig_jobs(st.rig, RIG_COPY), 0);
    assert_int_equal(rig_view(st.rig).retracts_undone, 1);
    assert_ok(rig_recover_now(s));
    closes_whole(s, 64);
    stage_ends(&st);
}

/* T16: a node's HISTORY is on the host, and one of its two STATE segments is being copied. The
 * other one is refilled meanwhile, the session leaves, and the copy fails. The repeated copy needs
 * room for both segments on a full host, and must not take that of the node itself. */
TEST(host_a_copy_that_is_made_again_leaves_the_node_on_the_host)
{
    struct group_layout groups[3] = {rig_group(64, 512), rig_recurrent(64, 512),
                                     rig_recurrent(64, 512)};
    struct stage st = {.rig = rig_create(NULL)};
    struct rig_engine other;

    st.rig->host_bytes = (1 + 3) * 512;
    st.e = rig_engine(st.rig, 0, "e", 1);
    assert_ok(rig_pool_open(st.rig, st.e.conn[0], groups, 3, 64u << 10, &st.pool));
    retracts_on_a_refill(&st);
    chain_free(st.rig->core,
               &node_at(st.rig->core, anywhere(st.rig, st.pool, seq1, 64))->group[2].copying);
    rig_job(st.rig, RIG_COPY, 0)->n = 1; /* as if begun with one segment alone */
    other = second_engine(st.rig, st.pool);
    rig_engine_kill(st.rig, &st.e, 0);
    st.e = other;
    st.rig->automatic &= ~(uint32_t)RIG_SEAL;
    rig_put(st.rig, &other, st.pool, 2, 128); /* one commit: no STATE at 64 */
    rig_complete_nth(st.rig, RIG_SEAL, 0);
    assert_int_equal(rig_jobs(st.rig, RIG_COPY), 2);
    rig_complete_nth(st.rig, RIG_COPY, 1);
    assert_int_equal(seen(&st, 2, 64).host_pages, 1); /* the last page */
    st.rig->copies_to_fail = 1;
    st.rig->copy_err = TERN_CORRUPT;
    rig_complete(st.rig, RIG_COPY);
    assert_int_equal(rig_view(st.rig).host_copies_again, 1);
    assert_int_equal(seen(&st, 1, 64).on_host, 1);
    assert_int_equal(seen(&st, 2, 64).on_host, 0);
    rig_complete(st.rig, RIG_COPY);
    assert_int_equal(seen(&st, 1, 64).host_pages, 3);
    st.rig->automatic = RIG_ALL;
    stage_ends(&st);
}
