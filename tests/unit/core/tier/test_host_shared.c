/* The host tier when several sessions need the same copies, or another engine, a worker or a
 * corrupt page interferes: T14, T16 and the rules that they must not break (E3, T8, T10). L = 64
 * and windows of 16-token pages unless a test sets others. */
#include "unit/rig/rig_tiers.h"

/* W = 2 L: a load of 256 needs the superseded STATE of 192, which nobody may reclaim meanwhile.
 * When the load is cancelled that STATE is superseded again. */
TEST(a_load_takes_superseded_state_back_while_it_lasts)
{
    for (uint32_t cancels = 0; cancels < 2; cancels++) {
        struct stage st = stage_64(128, 64);
        struct rig_session *s = stage_session(&st);
        uint32_t admin = rig_connect_admin(st.rig);
        uint64_t request;

        put_all(&st, 1, 320);
        lose_state(&st, seq1, 256);
        lose_state(&st, seq1, 128); /* so the Match below borrows no page of it */
        assert_true(is_reclaimable(&st, seq1, 192));
        matches(s, seq1, 256, 64);
        st.rig->automatic = BY_HAND(RIG_COPY);
        request = rig_fetch(s, PEER_HOST, 0);
        assert_int_equal(rig_jobs(st.rig, RIG_COPY), 1);
        assert_false(is_reclaimable(&st, seq1, 192));
        if (cancels) {
            assert_ok(rig_fetch_cancel(s));
            assert_true(is_reclaimable(&st, seq1, 192));
        }
        rig_complete(st.rig, RIG_COPY);
        st.rig->automatic = RIG_ALL;
        if (!cancels) {
            assert_leaves_whole(rig_fetched(s, request), s, 256);
        }
        rig_evict(st.rig, admin, st.pool, 1);
        closes_whole(s, s->len.written);
        stage_ends(&st);
    }
}

/* One load copies HISTORY of a node, and another one needs its STATE, too. */
TEST(two_loads_of_one_path_that_need_different_state)
{
    for (uint32_t order = 0; order < 2; order++) {
        struct stage st = host_stage(SUPERSEDE_OFF, 64, rig_window(16, 64, 64), 64);
        struct rig_session *deep = stage_session(&st), *flat = stage_session(&st);
        uint64_t a, b;

        put_all(&st, 1, 192);
        demote_pool(st.rig, st.pool);
        assert_ok(rig_match(deep, seq1, 192));
        assert_ok(rig_match(flat, seq1, 64));
        st.rig->automatic = BY_HAND(RIG_COPY);
        a = order ? 0 : rig_fetch(deep, PEER_HOST, 0);
        b = rig_fetch(flat, PEER_HOST, 0);
        a = order ? rig_fetch(deep, PEER_HOST, 0) : a;
        rig_runs_free(st.rig);
        assert_non_null(rig_reply_to(st.rig, a)); /* nobody waits for ever */
        assert_non_null(rig_reply_to(st.rig, b));
        assert_ok(
            rig_fetched(flat, b)); /* pages that the other load does not copy are copied after it */
        assert_leaves(rig_fetched(deep, a), deep, 192, 192, 192);
        assert_lengths(flat, 64, 64, 64);
        assert_int_equal(rig_wrong(deep, 192), 0);
        assert_int_equal(rig_wrong(flat, 64), 0);
        assert_ok(rig_close(deep, 0));
        stage_closes(&st, flat);
    }
}

/* A load copies STATE alone while a commit could fill that segment, at a step that has not passed.
 * The session keeps its own pages: who waits for the load must not get unwritten ones. */
TEST(a_load_and_a_refill_of_one_segment)
{
    struct stage st = stage_64(128, 64);
    struct rig_session *s = stage_session(&st), *other = stage_session(&st);
    uint64_t request;

    put_all(&st, 1, 192);
    lose_state(&st, seq1, 64);
    lose_state(&st, seq1, 128);
    lose_state(&st, seq1, 192);
    matches(s, seq1, 192, 0);
    st.rig->automatic = BY_HAND(RIG_COPY);
    request = rig_fetch(s, PEER_HOST, 0);
    assert_int_equal(rig_jobs(st.rig, RIG_COPY), 2);
    computes_and_commits(other, 1, 192, 192, 7);
    assert_int_equal(rig_wrong(other, 192), 0);
    assert_int_equal(node_in(&st, seq1, 192)->group[1].pages[TIER_DEVICE], NONE);
    rig_runs_free(st.rig);
    assert_int_not_equal(node_in(&st, seq1, 192)->group[1].pages[TIER_DEVICE], NONE);
    assert_int_equal(node_in(&st, seq1, 192)->state.refilling, 0);
    assert_leaves_whole(rig_fetched(s, request), s, 192);
    closes_whole(other, 192);
    stage_closes(&st, s);
}

/* The first load is cancelled while its copies run; another one needs the same before they end. */
TEST(a_cancelled_load_is_taken_up_again)
{
    for (uint32_t depth = 64; depth <= 192; depth += 64) {
        struct stage st = host_stage(SUPERSEDE_OFF, 64, rig_window(16, 64, 64), 64);
        struct rig_session *first = stage_session(&st), *second = stage_session(&st);
        uint64_t request;

        put_all(&st, 1, 192);
        demote_pool(st.rig, st.pool);
        assert_ok(rig_match(first, seq1, 192));
        assert_ok(rig_match(second, seq1, depth));
        st.rig->automatic = BY_HAND(RIG_COPY);
        rig_fetch(first, PEER_HOST, 0);
        assert_ok(rig_abort(first, 0));
        request = rig_fetch(second, PEER_HOST, 0);
        rig_complete_nth(st.rig, RIG_COPY, 1);
        rig_runs_free(st.rig);
        assert_non_null(rig_reply_to(st.rig, request));
        if (rig_fetched(second, request) == TERN_BUSY)
            assert_ok(rig_fetched(second, rig_fetch(second, PEER_HOST, 0)));
        assert_whole(second, depth);
        assert_ok(rig_close(second, 0));
        stage_closes(&st, first);
    }
}

/* T14: another engine computes the retracted prefix again, and its step has not passed: nobody else
 * may use its pages (E3, T8). */
TEST(host_recover_onto_what_another_engine_is_writing)
{
    for (uint32_t dies = 0; dies < 2; dies++) {
        struct bench b = host_bench(4, 32, 32);
        struct rig_engine two = second_engine(b.rig, b.pool);
        struct rig_session *s;
        uint64_t request;
        enum tern_err err;

        assert_ok(rig_match(b.s, seq1, 30));
        run_and_commit(b.s, seq1, 10, 8, 0);
        assert_ok(rig_retract(b.s, RETRACT_HOST, 0));
        assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 0), 2);
        s = rig_session(b.rig, &two, b.pool, 1);
        takes_pages(s, seq1, 30, 12);
        assert_ok(rig_extend(s, 0, 12, NULL, 0)); /* queued, but not computed */
        assert_ok(rig_commit(s, 12, 9));
        request = rig_recover(b.s);
        err = rig_recovered(b.s, request);
        if (err == TERN_OK) /* then its own bytes are right */
            assert_int_equal(rig_wrong(b.s, 8), 0);
        if (dies) {
            rig_engine_kill(b.rig, &two, 0);
        } else {
            rig_write(s, 0, 12);
            rig_engine_done(b.rig, &two, 9);
        }
        if (err != TERN_OK && rig_reply_to(b.rig, request) &&
            rig_recovered(b.s, request) != TERN_OK)
            request = rig_recover(b.s);
        assert_leaves(rig_recovered(b.s, request), b.s, 8, 10, 10);
        assert_int_equal(rig_wrong(b.s, 10), 0);
        run_and_commit(b.s, seq1, 30, 28, 0);
        assert_int_equal(rig_wrong(b.s, 30), 0);
    }
}

/* T14: the session's own engine writes the prefix: the session's next steps follow that step, so
 * the session need not wait. */
TEST(host_recover_onto_what_its_own_engine_is_writing)
{
    struct bench b = host_bench(4, 32, 32);
    struct rig_session *s = rig_session(b.rig, &b.e, b.pool, 1);

    assert_ok(rig_match(b.s, seq1, 30));
    run_and_commit(b.s, seq1, 10, 8, 0);
    assert_ok(rig_retract(b.s, RETRACT_HOST, 0));
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 0), 2);
    commits_up_to(s, seq1, 30, 12, 9);
    assert_leaves(rig_recover_now(b.s), b.s, 8, 10, 10);
    assert_int_equal(rig_wrong(b.s, 10), 0);
    assert_int_equal(b.rig->copies_up, 0);
    rig_engine_kill(b.rig, &b.e, 0); /* both go with the engine, in any order */
    assert_int_equal(rig_free(b.rig, b.pool), 32);
}

/* T16: a node whose host copy lacks STATE is computed again and retracted from, and its engine dies
 * before the step: the copy that waits for the step goes, too. */
TEST(host_a_copy_that_waits_for_a_step_that_never_passes)
{
    for (uint32_t aborts = 0; aborts < 2; aborts++) {
        struct stage st = stage_64(64, 64);
        struct rig_engine two = second_engine(st.rig, st.pool);
        struct rig_session *s;

        st.rig->automatic = BY_HAND(RIG_SEAL);
        stage_put(&st, 1, 64);
        rig_runs_free(st.rig);
        {
            uint32_t at = anywhere(st.rig, st.pool, seq1, 64);

            /* As if it had been superseded when it was copied: both tiers lose it. */
            s = stage_session(&st);
            assert_ok(rig_match(s, seq1, 64));
            assert_ok(rig_snapshot_release(s));
            assert_ok(rig_close(s, 0));
            assert_int_equal(node_at(st.rig->core, at)->state.reclaim.prev != NONE, 1);
            state_drop(st.rig->core, at);
            oracle_audit(st.rig->core);
        }
        assert_int_equal(seen(&st, 1, 64).host_pages, 1); /* HISTORY alone */
        demote_pool(st.rig, st.pool);
        assert_int_equal(seen(&st, 1, 64).on_device, 0);
        s = session_with(st.rig, &two, st.pool, 1, 80);
        commit_to(s, seq1, 64, 9);
        retracts_to("retracting", s, RETRACT_HOST, 0);
        if (aborts)
            assert_ok(rig_abort(s, 0));
        rig_engine_kill(st.rig, &two, 0);
        assert_int_equal(seen(&st, 1, 64).on_device, 0);
        assert_int_equal(rig_view(st.rig).sessions, 0);
        stage_put(&st, 1, 64);
        assert_int_equal(match_depth(&st, seq1, 64), 64);
        stage_ends(&st);
    }
}

/* T14: a host copy is known to be corrupt, and stays since a chunk hangs below it; the chunk is
 * computed again. A session that retracts to the host must not rely on that copy. */
TEST(host_retract_does_not_trust_a_rotten_copy)
{
    struct bench b = host_bench(4, 32, 32);
    const struct core *c = b.rig->core;
    uint32_t at, host = rig_host_view(b.rig, b.pool).id.slot;
    uint64_t bytes;
    uint8_t *page;

    rig_put(b.rig, &b.e, b.pool, 1, 8);
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 2), 2);
    at = anywhere(b.rig, b.pool, seq1, 4);
    page = rig_page(b.rig, host, 0, page_at(c, node_at(c, at)->group[0].pages[TIER_HOST])->index,
                    &bytes);
    page[7] = (uint8_t)~page[7];
    assert_ok(rig_match(b.s, seq1, 30));
    assert_err(TERN_CORRUPT, rig_fetched(b.s, rig_fetch(b.s, PEER_HOST, 0)));
    assert_ok(rig_run_to(b.s, seq1, 14));
    b.rig->automatic = BY_HAND(RIG_COPY);
    assert_ok(rig_commit(b.s, 8, 0));
    assert_int_equal(rig_depth(b.s, seq1, 8), 8);
    retracts_to("retracting", b.s, RETRACT_HOST, 0); /* until the copy is replaced */
    b.rig->copies_to_fail = 1;
    b.rig->copy_err = TERN_INTERNAL;
    rig_complete(b.rig, RIG_COPY);
    if (strcmp(state_of(b.s), "turn") == 0)
        assert_ok(rig_retract(b.s, RETRACT_HOST, 0));
    assert_string_equal(state_of(b.s), "retracting");
    rig_runs_free(b.rig);
    assert_string_equal(state_of(b.s), "retracted");
    rig_evict(b.rig, b.admin, b.pool, 0);
    assert_int_equal(rig_depth(b.s, seq1, 8), 0);
    assert_leaves(rig_recover_now(b.s), b.s, 8, 14, 14); /* the device had the right bytes */
    assert_int_equal(rig_wrong(b.s, 14), 0);
}

/* T14: a corrupt page of HISTORY is replaced from a commit without STATE: the STATE that the
 * retracted session needs must not be lost by that. */
TEST(host_healing_a_copy_does_not_lose_state)
{
    struct stage st = stage_64(64, 64);
    struct rig_session *kept = stage_committed(&st, 1, 64), *other = stage_session(&st);
    const struct core *c = st.rig->core;
    uint32_t at, host = rig_host_view(st.rig, st.pool).id.slot;
    uint64_t bytes;
    uint8_t *page;
    enum tern_err err;

    assert_ok(rig_retract(kept, RETRACT_HOST, 0));
    demote_pool(st.rig, st.pool);
    at = anywhere(st.rig, st.pool, seq1, 64);
    page = rig_page(st.rig, host, 0, page_at(c, node_at(c, at)->group[0].pages[TIER_HOST])->index,
                    &bytes);
    page[7] = (uint8_t)~page[7];
    assert_err(TERN_CORRUPT, rig_recover_now(kept));
    computes(other, 1, 320);
    assert_ok(rig_slide(other, 320, 0));
    assert_ok(rig_commit(other, 64, 0)); /* HISTORY alone */
    assert_int_equal(rig_wrong(other, 320), 0);
    err = rig_recover_now(kept);
    if (err == TERN_OK)
        assert_int_equal(rig_wrong(kept, 64), 0);
    else
        assert_err(TERN_CORRUPT, err);
    assert_ok(rig_close(kept, 0));
    stage_closes(&st, other);
}

/* T14: many sessions retract and recover in turn, on a small device and a small host, with copies
 * that fail. */
TEST(host_many_sessions_in_little_room)
{
    struct bench b = HOST_BENCH_LIMITED(limits.copy_jobs = 2, 4, 40, 40);
    struct rig_session *s[6];
    uint32_t length[6] = {0};

    for (uint32_t i = 0; i < 6; i++) {
        s[i] = session_with(b.rig, &b.e, b.pool, i / 2 + 1, 64);
    }
    for (uint32_t turn = 0; turn < 600; turn++) {
        uint32_t i = turn * 7 % 6, seed = i / 2 + 1, to;
        enum retract_mode mode = turn % 5 == 0 ? RETRACT_DROP : RETRACT_HOST;

        b.rig->copies_to_fail = turn % 9 == 0;
        b.rig->copy_err = TERN_INTERNAL;
        if (rig_recover_now(s[i]) != TERN_OK || strcmp(state_of(s[i]), "turn") != 0) {
            if (strcmp(state_of(s[i]), "retracted") == 0)
                rig_abort(s[i], 0); /* no room, or the copy is lost: begin anew */
        }
        b.rig->copies_to_fail = 0;
        if (strcmp(state_of(s[i]), "open") == 0)
            assert_ok(rig_match(s[i], rig_tokens(seed, 64), 64));
        to = s[i]->len.written + 1 + turn % 7;
        if (to > 56) {
            assert_int_equal(rig_wrong(s[i], s[i]->len.written), 0);
            assert_ok(rig_abort(s[i], 0));
            continue;
        }
        if (rig_run_to(s[i], rig_tokens(seed, 64), to) != TERN_OK)
            rig_abort(s[i], 0);
        else if (rig_commit(s[i], to / 4 * 4, 0) == TERN_OK)
            assert_int_equal(rig_wrong(s[i], to), 0);
        length[i] = to;
        if (strcmp(state_of(s[i]), "turn") == 0)
            rig_retract(s[i], mode, 0);
        if (turn % 50 == 0)
            rig_evict(b.rig, b.admin, b.pool, 2);
    }
    assert_true(rig_view(b.rig).recovers > 100 && length[0] > 0);
    for (uint32_t i = 0; i < 6; i++) {
        assert_ok(rig_close(s[i], 0));
    }
    nothing_stays(b.rig, b.admin, b.pool);
}
