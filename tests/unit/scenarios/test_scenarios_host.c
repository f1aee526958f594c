/* Scenarios of retraction, the host tier and resets: A15, A16, A17, A18, A20, S-f and N-b, each
 * with its name and numbers. */
#include "unit/rig/rig_host.h"

static void settle_all(struct rig *rig)
{
    rig_runs_free(rig);
}

/* --- A15 --- */

TEST(a15_retract_then_abort_frees_nothing_twice)
{
    for (uint32_t mode = RETRACT_HOST; mode <= RETRACT_DROP; mode++)
        for (uint32_t abort_step = 3; abort_step <= 7; abort_step += 2) {
            struct bench b = host_bench(2, 16, 16);

            b.rig->automatic = BY_HAND(RIG_COPY);
            computes_tokens(b.s, seq1, 10);
            assert_ok(rig_commit(b.s, 4, 0));
            assert_ok(rig_extend(b.s, 16, 0, NULL, 0));
            assert_ok(rig_retract(b.s, mode, 5));
            assert_leaves(rig_abort(b.s, abort_step), b.s, 0, 0, 0);
            rig_engine_done(b.rig, &b.e, 5);
            rig_engine_done(b.rig, &b.e, 7);
            assert_int_equal(rig_free(b.rig, b.pool), 16 - 2); /* the tree keeps its own */
            assert_int_equal(rig_retiring(b.rig, b.pool), 0);
            assert_ok(rig_abort(b.s, 0));
            settle_all(b.rig);
            assert_int_equal(rig_free(b.rig, b.pool), 16 - 2);
            assert_ok(rig_close(b.s, 0));
            nothing_stays(b.rig, b.admin, b.pool);
        }
}

/* The session's tokens need 3 pages and it has 1: only that page can leave and come back. */
TEST(a15_retract_after_late_tokens_is_clamped_to_what_is_held)
{
    for (uint32_t mode = RETRACT_HOST; mode <= RETRACT_DROP; mode++)
        for (uint32_t committed = 0; committed <= 4; committed += 4) {
            struct bench b = host_bench(4, 16, 16);
            uint32_t kept = mode == RETRACT_DROP ? committed : 4;

            assert_ok(rig_match(b.s, seq1, 12));
            assert_int_equal(b.s->ntokens, 12);
            assert_ok(rig_run_to(b.s, seq1, 4));
            if (committed)
                assert_ok(rig_commit(b.s, committed, 0));
            assert_leaves(rig_retract(b.s, mode, 0), b.s, committed, kept, kept);
            assert_string_equal(state_of(b.s), "retracted");
            if (mode == RETRACT_HOST)
                assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 0), committed / 4);
            assert_leaves(rig_recover_now(b.s), b.s, committed, kept, kept);
            assert_int_equal(b.s->ntokens, 12);
            assert_int_equal(rig_wrong(b.s, kept), 0);
            commit_to(b.s, seq1, 12, 0);
            closes_whole(b.s, 12);
            nothing_stays(b.rig, b.admin, b.pool);
        }
}

/* --- A16 --- */

TEST(a16_a_writeback_is_seen_when_it_is_acknowledged)
{
    struct bench b = host_bench(4, 16, 4);
    struct node_view v;

    b.rig->automatic = BY_HAND(RIG_COPY);
    rig_put(b.rig, &b.e, b.pool, 1, 4);

    v = node_seen(b.rig, b.pool, seq1, 4); /* pending */
    assert_true(v.on_device && !v.on_host && v.copying);
    assert_int_equal(v.host_pages, 0);
    assert_int_equal(rig_view(b.rig).copies, 1);
    assert_int_equal(rig_view(b.rig).host_copies, 0);
    assert_int_equal(host_free(b.rig, b.pool, 0), 3);
    assert_int_equal(rig_host_view(b.rig, b.pool).group[0].snapshot, 0);
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 0), 0); /* both ends are pinned */

    b.rig->copies_to_fail = 1; /* failed: as before the copy */
    b.rig->copy_err = TERN_CORRUPT;
    rig_complete(b.rig, RIG_COPY);
    v = node_seen(b.rig, b.pool, seq1, 4);
    assert_true(v.on_device && !v.on_host);
    assert_int_equal(v.host_pages, 0);
    assert_int_equal(rig_view(b.rig).host_copies_failed, 1);
    assert_int_equal(rig_view(b.rig).host_copies, 0);
    assert_int_equal(rig_depth(b.s, seq1, 4), 4);
    if (!v.copying) {
        assert_int_equal(host_free(b.rig, b.pool, 0), 4);
        assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 0), 1);
        assert_int_equal(host_depth(b.s, seq1, 4), 0);
    }
    settle_all(b.rig);
    evict_all(b.rig, b.admin, b.pool);

    rig_put(b.rig, &b.e, b.pool, 2, 4); /* acknowledged: visible */
    v = node_seen(b.rig, b.pool, rig_tokens(2, 4), 4);
    assert_true(v.on_device && v.on_host && !v.copying);
    assert_int_equal(v.host_pages, 1);
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 1), 1);
    v = node_seen(b.rig, b.pool, rig_tokens(2, 4), 4);
    assert_true(!v.on_device && v.on_host);
    assert_int_equal(rig_depth(b.s, rig_tokens(2, 4), 4), 0);
    assert_int_equal(host_depth(b.s, rig_tokens(2, 4), 4), 4);
}

/* --- A17 --- */

TEST(a17_a_borrowed_snapshot_on_the_host_is_kept_then_freed)
{
    struct bench b = host_bench(4, 16, 2);

    commits_tokens(b.s, seq1, 8);
    assert_ok(rig_retract(b.s, RETRACT_HOST, 0));
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 0), 2); /* demoted */
    assert_int_equal(rig_free(b.rig, b.pool), 16);
    assert_int_equal(host_free(b.rig, b.pool, 0), 0);
    rig_put(b.rig, &b.e, b.pool, 2, 8); /* needs host room, and gets none */
    assert_int_equal(host_depth(b.s, seq1, 8), 8);
    assert_false(node_seen(b.rig, b.pool, rig_tokens(2, 8), 4).on_host);
    assert_ok(rig_close(b.s, 0));
    b.s = rig_session(b.rig, &b.e, b.pool, 1);
    assert_int_equal(host_depth(b.s, seq1, 8), 8); /* it stays until the room is needed */
    rig_put(b.rig, &b.e, b.pool, 3, 8);
    assert_int_equal(host_depth(b.s, seq1, 8), 0);
    assert_int_equal(anywhere(b.rig, b.pool, seq1, 4), NONE);
    assert_true(node_seen(b.rig, b.pool, rig_tokens(3, 8), 8).on_host);
}

/* --- A18 --- */

/* A session of 10 pages, only on the host, whose Recover has 6 copies running and 4 waiting. */
static struct bench loading_6_and_4(uint64_t *ret_request)
{
    struct bench b = HOST_BENCH_LIMITED(limits.copy_jobs = 6, 4, 16, 16);

    commits(b.s, 1, 40);
    assert_ok(rig_retract(b.s, RETRACT_HOST, 0));
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 0), 10);
    assert_int_equal(rig_free(b.rig, b.pool), 16);
    b.rig->automatic = BY_HAND(RIG_COPY);
    *ret_request = rig_recover(b.s);
    assert_string_equal(state_of(b.s), "loading");
    assert_int_equal(rig_jobs(b.rig, RIG_COPY), 6);
    assert_int_equal(rig_free(b.rig, b.pool), 16 - 10);
    assert_int_equal(rig_view(b.rig).copies, 10);
    return b;
}

static void a18_ends(struct bench *b, bool open)
{
    struct copy_id job = rig_job(b->rig, RIG_COPY, 5)->copy;
    struct event again = {.kind = EV_COPIED};
    uint64_t changes;

    assert_int_equal(rig_free(b->rig, b->pool), 6 + 4); /* at once */
    assert_int_equal(rig_jobs(b->rig, RIG_COPY), 6);
    for (uint32_t i = 1; i <= 6; i++) {
        rig_complete(b->rig, RIG_COPY);
        assert_int_equal(rig_free(b->rig, b->pool), 10 + i); /* on acknowledgement */
    }
    assert_int_equal(rig_jobs(b->rig, RIG_COPY), 0);
    changes = core_changes(b->rig->core);
    again.copied.job = job;
    rig_event(b->rig, &again); /* a second acknowledgement changes nothing */
    assert_true(core_changes(b->rig->core) == changes);
    assert_int_equal(rig_free(b->rig, b->pool), 16);
    if (open) {
        b->rig->automatic = RIG_ALL;
        assert_int_equal(host_depth(b->s, seq1, 40), 40); /* the host still has it */
        assert_ok(rig_close(b->s, 0));
    }
    settle_all(b->rig);
    nothing_stays(b->rig, b->admin, b->pool);
}

TEST(a18_abort_in_the_middle_of_a_load_back)
{
    uint64_t request;
    struct bench b = loading_6_and_4(&request);

    assert_ok(rig_abort(b.s, 0));
    assert_int_not_equal(rig_recovered(b.s, request), TERN_OK);
    assert_non_null(rig_reply_to(b.rig, request)); /* the request is answered */
    assert_lengths(b.s, 0, 0, 0);
    a18_ends(&b, true);
}

TEST(a18_close_in_the_middle_of_a_load_back)
{
    uint64_t request;
    struct bench b = loading_6_and_4(&request);

    assert_ok(rig_close(b.s, 0));
    assert_non_null(rig_reply_to(b.rig, request));
    assert_int_not_equal(rig_reply_to(b.rig, request)->err, TERN_OK);
    a18_ends(&b, false);
}

/* FetchCancel cancels a load, too; the session stays retracted. */
TEST(a18_cancel_in_the_middle_of_a_load_back)
{
    uint64_t request;
    struct bench b = loading_6_and_4(&request);

    assert_ok(rig_fetch_cancel(b.s));
    assert_non_null(rig_reply_to(b.rig, request));
    assert_int_not_equal(rig_recovered(b.s, request), TERN_OK);
    assert_string_equal(state_of(b.s), "retracted");
    assert_int_equal(rig_free(b.rig, b.pool), 6 + 4);
    settle_all(b.rig);
    assert_int_equal(rig_free(b.rig, b.pool), 16);
    assert_leaves_whole(rig_recover_now(b.s), b.s, 40);
}

/* --- A20 --- */

static uint32_t aliased(const struct rig_session *a, const struct rig_session *b, uint32_t from)
{
    uint32_t n = 0;

    for (uint32_t g = 0; g < 2; g++)
        for (uint32_t i = 0; i < 64; i++)
            for (uint32_t k = from / 2; k < 64; k++)
                n += a->table[g][i].index && a->table[g][i].index == b->table[g][k].index;
    return n;
}

/* HISTORY groups of 2 and of 4 tokens a page make L 4; the others have few pages. */
static struct stage a20_stage(enum supersede supersede)
{
    struct group_layout groups[3] = {rig_group(2, 512), rig_window(2, 8, 64), rig_group(4, 512)};
    struct stage st = {.rig = rig_create(NULL)};

    groups[0].cap_pages = groups[1].cap_pages = 40;
    st.rig->supersede = supersede;
    st.rig->host_bytes = 64 * 1024;
    st.e = rig_engine(st.rig, 0, "e", 1);
    assert_ok(rig_pool_open(st.rig, st.e.conn[0], groups, 3, 1u << 17, &st.pool));
    return st;
}

/* A third session takes and commits all that it can get; it shares no page with the runner. */
static void a20_presses(struct stage *st, struct rig_session *runner)
{
    struct rig_session *third = stage_session(st);

    assert_ok(rig_match(third, rig_tokens(3, 64), 64));
    for (uint32_t to = 4; to <= 64 && rig_run_to(third, rig_tokens(3, 64), to) == TERN_OK; to += 4)
        rig_commit(third, to, 0);
    assert_int_equal(rig_wrong(runner, runner->len.written), 0);
    assert_ok(rig_close(third, 0));
}

/* Page 2, L=4, W=8: the retracted session shares [0, 8) with another one that commits past that. */
static void a20(enum retract_mode mode, enum supersede supersede)
{
    struct stage st = a20_stage(supersede);
    struct rig_session *kept, *runner;
    uint32_t tokens[32], admin = rig_connect_admin(st.rig), last;

    memcpy(tokens, seq1, 8 * sizeof tokens[0]);
    for (uint32_t i = 8; i < 32; i++)
        tokens[i] = 7000 + i;

    kept = stage_committed(&st, 1, 8);
    assert_ok(rig_run_to(kept, seq1, 10));
    retracts_to("retracted", kept, mode, 0);
    last = kept->len.written;

    runner = stage_session(&st);
    matches(runner, tokens, 32, 8);
    commit_to(runner, tokens, 16, 0); /* passes 4 and 8 */
    commit_to(runner, tokens, 32, 0);
    a20_presses(&st, runner);
    rig_evict(st.rig, admin, st.pool, 0);

    assert_leaves(rig_recover_now(kept), kept, 8, last, last);
    assert_int_equal(rig_wrong(kept, last), 0); /* its own bytes */
    assert_int_equal(aliased(kept, runner, 8), 0);
    assert_int_equal(rig_wrong(runner, 32), 0);
    commit_to(kept, seq1, 16, 0);
    assert_int_equal(rig_wrong(kept, 16), 0);
    assert_int_equal(match_depth(&st, seq1, 16), 16);
    rig_close(kept, 0);
    rig_close(runner, 0);
    nothing_stays(st.rig, admin, st.pool);
}

TEST(a20_another_commits_past_what_a_retracted_session_shares)
{
    for (uint32_t supersede = SUPERSEDE_LAZY; supersede <= SUPERSEDE_OFF; supersede++) {
        a20(RETRACT_HOST, supersede);
        a20(RETRACT_DROP, supersede);
    }
}

/* --- S-f --- */

/* 1,000 turns with a retract and rejected speculation each, pages of 256 tokens. */
static void s_f(uint32_t host_pages, bool evicts)
{
    struct bench b = host_bench(256, 64, host_pages);
    uint32_t at = 0, away = 0;

    for (uint32_t turn = 0; turn < 1000; turn++) {
        uint32_t to = at + 1 + turn % 15, more = 1 + turn * 37 % 600;
        enum retract_mode mode = host_pages && turn % 3 ? RETRACT_HOST : RETRACT_DROP;
        uint64_t step = turn + 1;
        uint32_t expected;

        computes(b.s, 1, to);
        assert_ok(rig_extend(b.s, to + more, 0, NULL, 0));
        if (to / 256 * 256 > b.s->len.committed)
            assert_ok(rig_commit(b.s, to / 256 * 256, step));
        assert_ok(rig_retract(b.s, mode, step));
        if (turn % 4 != 1)
            rig_engine_done(b.rig, &b.e, step);
        if (evicts && turn % 5 == 0)
            rig_evict(b.rig, b.admin, b.pool, 0);
        assert_ok(rig_recover_now(b.s));
        if (turn % 4 == 1)
            rig_engine_done(b.rig, &b.e, step);
        assert_int_equal(b.s->len.committed, to / 256 * 256);
        assert_int_equal(b.s->len.written, mode == RETRACT_HOST ? to : b.s->len.committed);
        assert_int_equal(b.s->len.allocated, b.s->len.written);
        away += mode == RETRACT_DROP || turn % 4 != 1; /* else it was cancelled */
        expected = (b.s->len.allocated + 255) / 256;
        assert_int_equal(rig_free(b.rig, b.pool), 64 - expected);
        if (turn % 100 == 0)
            assert_int_equal(rig_wrong(b.s, b.s->len.written), 0);
        at = to;
    }
    assert_true(at > 6900);
    closes_whole(b.s, b.s->len.written);
    nothing_stays(b.rig, b.admin, b.pool);
    assert_int_equal(rig_view(b.rig).retracts, 1000);
    assert_int_equal(rig_view(b.rig).recovers, away);
}

TEST(s_f_a_thousand_turns_of_retract_and_speculation)
{
    s_f(0, false);
    s_f(64, false);
    s_f(64, true);
}

/* --- N-b --- */

static void n_b(uint32_t host_pages)
{
    struct bench b = host_bench(4, 32, host_pages);
    struct rig_session *other;
    uint32_t nodes = 0, had;

    rig_put(b.rig, &b.e, b.pool, 2, 16);
    computes_and_commits(b.s, 1, 14, 8, 0);
    if (host_pages)
        rig_evict(b.rig, b.admin, b.pool, 1); /* one is only on the host, if the host has room */
    had = rig_pool_view(b.rig, b.pool).nodes;

    assert_ok(rig_reset(b.rig, b.e.conn[0], 1, &nodes));
    assert_int_equal(nodes, had);
    assert_true(had >= 5);
    assert_int_equal(rig_depth(b.s, rig_tokens(2, 16), 16), 0); /* unmatchable at once */
    assert_int_equal(host_depth(b.s, rig_tokens(2, 16), 16), 0);
    assert_int_equal(rig_depth(b.s, seq1, 8), 0);
    assert_int_equal(rig_free(b.rig, b.pool), 32 - 4); /* only the session's pages are in use */
    if (host_pages)
        assert_true(host_free(b.rig, b.pool, 0) >= host_pages - 2);

    run_and_commit(b.s, seq1, 20, 16, 0); /* the session finishes */
    assert_int_equal(rig_wrong(b.s, 20), 0);
    assert_int_equal(rig_depth(b.s, seq1, 16), 0);
    other = rig_session(b.rig, &b.e, b.pool, 1); /* of the new revision */
    matches(other, seq1, 16, 0);
    commit_to(other, seq1, 16, 0);
    assert_int_equal(rig_depth(b.s, seq1, 16), 16);
    assert_ok(rig_finish(b.s, 20, 0));
    assert_ok(rig_match(b.s, seq1, 24));
    assert_int_equal(b.s->len.written, 20);
    closes_whole(b.s, 20);
    assert_int_equal(rig_free(b.rig, b.pool), 32 - 4); /* all pages are free but those of `other` */
    assert_int_equal(rig_depth(other, seq1, 16), 16);
    closes_whole(other, 16);
    nothing_stays(b.rig, b.admin, b.pool);
}

TEST(n_b_a_reset_while_a_session_runs)
{
    n_b(0);
    n_b(16);
    n_b(3);
}
