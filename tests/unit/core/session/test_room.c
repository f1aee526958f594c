/* The counts of a shortage: pages that are free, evictable, or waiting for a step (E4). */
#include "unit/rig/rig_tiers.h"

TEST(engine_shortage_counts_free_evictable_and_retiring)
{
    struct bench b = bench_start(4, 12);
    struct rig_session *other = rig_session(b.rig, &b.e, b.pool, 1);

    rig_put(b.rig, &b.e, b.pool, 5, 8); /* 2 evictable pages */
    computes(other, 2, 12);
    assert_ok(rig_close(other, 6)); /* 3 retiring until 6 */
    computes(b.s, 1, 8);            /* 2 in use, 5 free */
    assert_err(TERN_POOL_EXHAUSTED, rig_extend(b.s, 8 + 4 * 9, 0, NULL, 0));
    assert_int_equal(b.rig->res.shortage.needed, 9);
    /* Evicted pages stay evicted (T11), so each of the two counts as free or as evictable, never as
     * both. */
    assert_int_equal(b.rig->res.shortage.free + b.rig->res.shortage.evictable, 7);
    assert_int_equal(b.rig->res.shortage.retiring, 3);
    assert_true(b.rig->res.shortage.until_step == 6);
    assert_lengths(b.s, 0, 8, 8);
}

/* Evictable pages exclude those that are pinned and those of nodes above a pin. */
TEST(engine_shortage_does_not_count_what_pins_hold)
{
    struct bench b = bench_start(4, 20);

    rig_put(b.rig, &b.e, b.pool, 5, 12); /* 3 evictable pages */
    rig_put(b.rig, &b.e, b.pool, 1, 32); /* 8 pages, of which the session below pins 5 */
    session_with(b.rig, &b.e, b.pool, 1, 20);
    computes_and_commits(b.s, 2, 12, 12, 9); /* 3 pages that are pinned until their step */
    assert_err(TERN_POOL_EXHAUSTED, rig_extend(b.s, 12 + 4 * 15, 0, NULL, 0));
    assert_int_equal(b.rig->res.shortage.free, 20 - 3 - 8 - 3);
    assert_int_equal(b.rig->res.shortage.evictable, 3 + 3);
    assert_int_equal(rig_group_view(b.rig, b.pool, 0).evictable, 3 + 3);
    assert_int_equal(b.rig->res.shortage.needed, 15);
    assert_int_equal(rig_view(b.rig).evicted_nodes,
                     0); /* T11: nothing is evicted for a request that does not fit */
}

/* E4: the shortage names the first step after which this pool and group have enough. */
TEST(engine_shortage_names_the_step_that_brings_enough)
{
    struct bench b = bench_start(4, 10);
    struct pool_id elsewhere = rig_pool_pages(b.rig, &b.e, 4, 8);
    struct rig_session *s[3];
    const uint32_t pages[3] = {4, 3, 3};
    const uint64_t steps[3] = {3, 5, 9};

    for (uint32_t i = 0; i < 3; i++) {
        s[i] = rig_session(b.rig, &b.e, i ? b.pool : elsewhere, 1);
        takes_pages(s[i], rig_tokens(i, 4 * pages[i]), 4 * pages[i], 4 * pages[i]);
    }
    takes_pages(b.s, rig_tokens(7, 32), 32, 8);
    rig_put(b.rig, &b.e, b.pool, 9, 4); /* one page is evictable, one is free */
    for (uint32_t i = 0; i < 3; i++)
        assert_ok(rig_close(s[i], steps[i]));
    for (uint32_t missing = 4; missing > 0; missing--) {
        assert_err(TERN_POOL_EXHAUSTED, rig_extend(b.s, 8 + 4 * (2 + missing), 0, NULL, 0));
        assert_int_equal(b.rig->res.shortage.free, 1);
        assert_int_equal(b.rig->res.shortage.evictable, 1);
        assert_int_equal(b.rig->res.shortage.retiring, 6);
        assert_true(b.rig->res.shortage.until_step == (missing > 3 ? 9 : 5));
    }
    rig_engine_done(b.rig, &b.e, 5);
    assert_ok(rig_extend(b.s, 8 + 4 * 5, 0, NULL, 0));
}

/* E4 */
TEST(room_a_shortage_of_state_says_what_there_is)
{
    struct stage st = stage_capped(SUPERSEDE_LAZY, 64, 12);
    struct rig_session *held = stage_committed(&st, 1, 64), *s = stage_session(&st);
    const struct shortage *sh = &st.rig->res.shortage;

    stage_put(&st, 2, 64);                     /* 4 borrowed, 4 evictable, 4 free */
    takes_pages(s, rig_tokens(3, 64), 64, 32); /* 2 of the free ones */
    assert_err(TERN_POOL_EXHAUSTED, rig_extend(s, 144, 0, NULL, 0));
    assert_int_equal(sh->group, 1);
    assert_int_equal(sh->needed, 7);
    assert_int_equal(sh->free + sh->evictable, 6);
    assert_int_equal(sh->until_step, 0);
    assert_ok(rig_close(held, 9));
    assert_err(TERN_POOL_EXHAUSTED, rig_extend(s, 144, 0, NULL, 0));
    assert_int_equal(sh->until_step, 9);
    rig_engine_done(st.rig, &st.e, 9);
    assert_ok(rig_extend(s, 144, 0, NULL, 0));
}

/* T11: eviction could not free enough, so nothing is evicted. Pages above a pin or beside it are
 * counted correctly: the same request with one page less is admitted. */
TEST(t11_a_doomed_extend_evicts_nothing)
{
    struct bench b = bench_start(4, 16);
    struct rig_session *pins = rig_session(b.rig, &b.e, b.pool, 1);
    const struct shortage *sh = &b.rig->res.shortage;

    rig_put(b.rig, &b.e, b.pool, 5, 12); /* 3 evictable pages */
    rig_put(b.rig, &b.e, b.pool, 1, 32); /* 8 pages, of which the session pins 5 */
    assert_ok(rig_match(pins, seq1, 20));
    assert_ok(rig_match(b.s, rig_tokens(7, 64), 64));
    for (uint32_t times = 0; times < 2; times++) {
        assert_err(TERN_POOL_EXHAUSTED, rig_extend(b.s, 4 * 12, 0, NULL, 0));
        assert_int_equal(sh->free, 5);
        assert_int_equal(sh->evictable, 6);
        assert_int_equal(rig_view(b.rig).evicted_nodes, 0);
    }
    assert_int_equal(rig_depth(b.s, rig_tokens(5, 12), 12), 12);
    assert_int_equal(rig_depth(b.s, seq1, 32), 32);
    assert_ok(rig_extend(b.s, 4 * 11, 0, NULL, 0));
    assert_int_equal(rig_view(b.rig).evicted_nodes, 6);
    assert_int_equal(rig_depth(b.s, seq1, 32), 20);
    assert_ok(rig_close(pins, 0));
    bench_ends_clean(&b);
}

/* T11: pages of another group help only as whole slabs. A slab with a session's page in it does
 * not, however many of its pages are evictable. */
TEST(t11_slabs_that_would_not_come_free_are_not_counted)
{
    struct bench b = bench_start(4, 16);
    struct group_layout groups[2] = {rig_group(4, 512), rig_group(4, 1024)};
    struct pool_id pool;
    struct rig_session *holds, *s;

    assert_ok(rig_pool_open(b.rig, b.e.conn[0], groups, 2, 5 * 1024, &pool)); /* 4 slabs */
    holds = rig_session(b.rig, &b.e, pool, 1);
    s = rig_session(b.rig, &b.e, pool, 1);
    rig_put(b.rig, &b.e, pool, 5, 4);
    assert_ok(rig_match(holds, seq1, 64));
    assert_ok(rig_extend(holds, 4, 0, NULL, 0)); /* beside the prefix, and in the third slab */
    assert_ok(rig_match(s, rig_tokens(2, 64), 64));
    assert_err(TERN_POOL_EXHAUSTED, rig_extend(s, 8, 0, NULL, 0));
    assert_int_equal(b.rig->res.shortage.group, 1);
    assert_int_equal(b.rig->res.shortage.free, 1);
    assert_int_equal(b.rig->res.shortage.evictable, 1); /* enough for each group alone */
    assert_int_equal(rig_view(b.rig).evicted_nodes, 0);
    assert_ok(rig_extend(s, 4, 0, NULL, 0));
    assert_int_equal(rig_view(b.rig).evicted_nodes, 1);
}

/* T11, on the host: a retraction for which the host has too little room evicts no copy there. */
TEST(t11_a_doomed_retraction_evicts_nothing_on_the_host)
{
    struct bench b = host_bench(4, 32, 4);
    struct rig_session *s = rig_session(b.rig, &b.e, b.pool, 1);

    put(&b, 2, 8);
    put(&b, 1, 8);
    computes(s, 3, 24);
    assert_ok(rig_match(b.s, seq1, 8));
    assert_ok(rig_retract(b.s, RETRACT_HOST, 0)); /* it holds two of the host's four */
    b.rig->automatic = BY_HAND(RIG_SEAL);
    assert_ok(rig_commit(s, 12, 0));
    assert_err(TERN_POOL_EXHAUSTED, rig_retract(s, RETRACT_HOST, 0));
    assert_true(on_host(&b, 2, 8) && on_host(&b, 1, 8));
    assert_ok(rig_commit(s, 20, 0));
    assert_err(TERN_QUOTA, rig_retract(s, RETRACT_HOST, 0)); /* five pages can never fit */
}

/* E4: pages that only checksum jobs hold come free by themselves. A request that they would satisfy
 * is BUSY, and one that needs more is POOL_EXHAUSTED. */
TEST(e4_pages_that_only_jobs_hold_are_waited_for)
{
    for (uint32_t runs = 0; runs < 2; runs++) { /* the jobs wait, or run */
        struct bench b = BENCH_LIMITED(limits.seal_jobs = runs ? 8 : 1, 4, 16);
        struct rig_session *s = rig_session(b.rig, &b.e, b.pool, 1), *pins;

        b.rig->automatic = BY_HAND(RIG_SEAL);
        computes_and_commits(s, 1, 32, 32, 0); /* 8 of 16 pages, each of a node with a job */
        assert_ok(rig_close(s, 0));
        assert_ok(rig_match(b.s, rig_tokens(2, 64), 64));
        assert_err(TERN_BUSY, rig_extend(b.s, 64, 0, NULL, 0));
        assert_false(b.rig->res.shortage.goes_on);      /* no more eviction would help */
        pins = session_with(b.rig, &b.e, b.pool, 1, 4); /* pins the first node */
        assert_err(TERN_POOL_EXHAUSTED, rig_extend(b.s, 64, 0, NULL, 0));
        assert_err(TERN_BUSY, rig_extend(b.s, 60, 0, NULL, 0));
        assert_ok(rig_close(pins, 0));
        rig_runs_free(b.rig);
        assert_ok(rig_extend(b.s, 64, 0, NULL, 0));
    }
}

/* Pages that wait for checksums of another tenant come free for that tenant alone, however many
 * they are. */
TEST(e4_pages_that_jobs_of_another_tenant_hold_are_not_waited_for)
{
    struct rig_options options = rig_defaults();
    struct rig_engine other;
    struct pool_id pool;
    struct rig_session *s[2];
    struct bench b;

    options.limits.nodes = 4096;
    options.limits.token_blocks = 8192;
    options.limits.seal_jobs = 1;
    b = bench_with(&options, 4, 1200);
    other = rig_engine(b.rig, 1, "other", 1);
    pool = rig_pool_pages(b.rig, &other, 4, 8);
    b.rig->automatic = BY_HAND(RIG_SEAL);
    b.rig->no_audit = true; /* the audit would look at each node after each of 1200 jobs */
    rig_put(b.rig, &b.e, b.pool, 1, 4800);
    for (uint32_t i = 0; i < 2; i++) {
        s[i] = rig_session(b.rig, &other, pool, 1);
        assert_ok(rig_match(s[i], rig_tokens(i, 32), 32));
    }
    assert_ok(rig_extend(s[0], 32, 0, NULL, 0));
    assert_err(TERN_POOL_EXHAUSTED, rig_extend(s[1], 4, 0, NULL, 0));
    complete_all(b.rig, RIG_SEAL);
}

/* The same above a fork whose two branches have jobs. */
TEST(e4_pages_that_jobs_hold_above_a_fork_are_waited_for)
{
    struct bench b = bench_start(4, 16);
    struct rig_session *s = rig_session(b.rig, &b.e, b.pool, 1),
                       *fork = rig_session(b.rig, &b.e, b.pool, 1);
    uint32_t tokens[32];

    memcpy(tokens, rig_tokens(2, 32), sizeof tokens);
    memcpy(tokens, rig_tokens(1, 16), sizeof tokens / 2);
    b.rig->automatic = BY_HAND(RIG_SEAL);
    computes_and_commits(s, 1, 32, 32, 0);
    assert_ok(rig_match(fork, tokens, 32));
    assert_int_equal(fork->len.committed, 16);
    assert_ok(rig_run_to(fork, tokens, 32));
    assert_ok(rig_commit(fork, 32, 0));
    assert_ok(rig_close(s, 0));
    assert_ok(rig_close(fork, 0));
    assert_ok(rig_match(b.s, rig_tokens(3, 64), 64));
    assert_err(TERN_BUSY, rig_extend(b.s, 64, 0, NULL, 0)); /* it needs all 16 pages */
    rig_runs_free(b.rig);
    assert_ok(rig_extend(b.s, 64, 0, NULL, 0));
}

/* E4: what the pool could never have is QUOTA, with both numbers, whatever is evictable and
 * whatever the session has. A request that would fit if others left is POOL_EXHAUSTED. */
TEST(e4_what_never_fits_is_told_apart_from_what_does_not_fit_now)
{
    struct bench b = bench_start(4, 20);
    struct rig_session *other;

    rig_put(b.rig, &b.e, b.pool, 2, 16);
    assert_ok(rig_match(b.s, seq1, 84));
    assert_err(TERN_QUOTA, rig_extend(b.s, 84, 0, NULL, 0));
    assert_int_equal(b.rig->res.shortage.needed, 21);
    assert_int_equal(b.rig->res.shortage.free, 20);
    assert_ok(rig_extend(b.s, 8, 0, NULL, 0));
    assert_err(TERN_QUOTA, rig_extend(b.s, 84, 0, NULL, 0)); /* 19 more, and the two it has */
    assert_int_equal(b.rig->res.shortage.needed, 21);
    assert_int_equal(rig_depth(b.s, rig_tokens(2, 16), 16), 16); /* nothing was evicted */
    other = rig_session(b.rig, &b.e, b.pool, 1);
    assert_ok(rig_match(other, rig_tokens(3, 80), 80));
    assert_err(TERN_POOL_EXHAUSTED, rig_extend(other, 80, 0, NULL, 0)); /* alone, it would */
}

/* T2: a prompt that is repeated, or another one in its place, takes the records that the first one
 * frees, even if others hold all the rest. */
static void told_again(uint32_t committed)
{
    struct bench b = BENCH_LIMITED(limits.token_blocks = 40, 4, 64);
    uint32_t other[64], n = 0;

    memcpy(other, rig_tokens(2, 64), sizeof other);
    memcpy(other, seq1, committed * sizeof *other);
    assert_ok(rig_match(b.s, seq1, 32));
    if (committed) {
        assert_ok(rig_run_to(b.s, seq1, committed));
        assert_ok(rig_commit(b.s, committed, 0));
    }
    while (rig_match(rig_session(b.rig, &b.e, b.pool, 1), rig_tokens(10 + n, 32), 32) == TERN_OK)
        assert_true(++n < 8);
    assert_true(n > 0);
    for (uint32_t i = 0; i < 3; i++)
        assert_ok(rig_match(b.s, i == 1 ? other : seq1, 32));
    assert_err(TERN_BUSY, rig_match(b.s, other, 64));
    assert_ok(rig_match(b.s, other, 32));
}

TEST(t2_a_prompt_told_again_needs_no_more_records)
{
    told_again(0);
}

TEST(t2_the_rest_of_a_prompt_told_again_needs_no_more_records)
{
    told_again(8);
}
