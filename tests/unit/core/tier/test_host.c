/* The host tier: T16 write-back, which copy goes first, and pools with a host tier. Pages have 4
 * tokens and L = 4 unless a test sets others. */
#include "unit/rig/rig_host.h"

/* 16 pages on each tier; copies wait for the test. */
static struct bench copies_held(void)
{
    struct bench b = host_bench(4, 16, 16);

    b.rig->automatic = BY_HAND(RIG_COPY);
    return b;
}

/* --- T16 --- */

/* The parent is on the device, so it need not be on the host. */
TEST(host_acknowledged_before_its_parent_it_is_there_at_once)
{
    struct bench b = copies_held();

    put_slowly(&b, 1, 12);
    assert_int_equal(rig_jobs(b.rig, RIG_COPY), 3);
    rig_complete_nth(b.rig, RIG_COPY, 2);
    assert_true(on_host(&b, 1, 12) && !on_host(&b, 1, 8) && !on_host(&b, 1, 4));
    rig_complete_nth(b.rig, RIG_COPY, 1);
    assert_int_equal(rig_view(b.rig).host_copies, 2);
    rig_complete(b.rig, RIG_COPY);
    assert_true(on_host(&b, 1, 4) && on_host(&b, 1, 8) && on_host(&b, 1, 12));
    assert_int_equal(rig_view(b.rig).host_copies, 3);
    bench_ends_clean(&b);
}

/* T16: copies that have not begun hold no page of a full device. A node that is only on the host
 * stays as long as its parent does. */
TEST(host_a_copy_that_is_not_running_holds_nothing)
{
    struct bench b = copies_held_at(2);

    put_slowly(&b, 1, 16);
    assert_int_equal(rig_jobs(b.rig, RIG_COPY), 2);
    assert_int_equal(evicts(&b, 0), 2); /* 16 and 12 were queued */
    assert_int_equal(rig_view(b.rig).copies, 2);
    rig_complete_nth(b.rig, RIG_COPY, 1); /* the copy of 8 */
    demote_pool(b.rig, b.pool);
    assert_true(on_host(&b, 1, 8) && !on_device(&b, 1, 8) && !on_host(&b, 1, 4));
    rig_complete(b.rig, RIG_COPY);
    assert_true(on_host(&b, 1, 4));
    assert_int_equal(rig_view(b.rig).host_copies, 2);
    bench_ends_clean(&b);
}

/* The nth copy fails its checksum; the one after it may be right. */
static void fail_nth(struct bench *b, uint32_t nth)
{
    b->rig->copies_to_fail = 1;
    b->rig->copy_err = TERN_CORRUPT;
    rig_complete_nth(b->rig, RIG_COPY, nth);
}

/* Fails the oldest copy and each one that replaces it, until the copy is given up. */
static void fail_for_good(struct bench *b)
{
    uint32_t jobs = rig_jobs(b->rig, RIG_COPY);

    fail_nth(b, 0);
    for (uint32_t i = 1; i < COPY_TRIES_MAX; i++) {
        assert_int_equal(rig_jobs(b->rig, RIG_COPY), jobs);
        fail_nth(b, jobs - 1);
    }
    assert_int_equal(rig_jobs(b->rig, RIG_COPY), jobs - 1);
}

/* T16: copies below it on the host, and those acknowledged before it, stay: the device still has
 * the bytes. */
TEST(host_a_failed_copy_is_made_again)
{
    for (uint32_t fails = 1; fails < COPY_TRIES_MAX; fails++) {
        struct bench b = copies_held();
        struct event late = {.kind = EV_COPIED};
        struct page_at first;
        uint64_t changes;

        put_slowly(&b, 1, 12);
        late.copied.job = rig_job(b.rig, RIG_COPY, 0)->copy;
        first = rig_job(b.rig, RIG_COPY, 0)->to[0];
        rig_complete_nth(b.rig, RIG_COPY, 1); /* the copy of 8 */
        fail_nth(&b, 0);
        for (uint32_t i = 1; i < fails; i++)
            fail_nth(&b, 1);
        assert_int_equal(rig_jobs(b.rig, RIG_COPY), 2);
        assert_int_equal(rig_view(b.rig).host_copies_failed, fails);
        assert_int_equal(rig_view(b.rig).host_copies_again, fails);
        assert_true(!on_host(&b, 1, 4) && on_host(&b, 1, 8));
        assert_int_equal(host_free(b.rig, b.pool, 0), 16 - 3); /* no page is held twice */
        assert_true(rig_job(b.rig, RIG_COPY, 1)->to[0].index != first.index ||
                    rig_job(b.rig, RIG_COPY, 1)->to[0].gen != first.gen);
        changes = core_changes(b.rig->core);
        rig_event(b.rig, &late); /* the end of the copy that failed */
        assert_true(core_changes(b.rig->core) == changes);
        rig_complete_nth(b.rig, RIG_COPY, 1);
        assert_true(on_host(&b, 1, 4) && on_host(&b, 1, 8));
        rig_complete(b.rig, RIG_COPY);
        demote_pool(b.rig, b.pool);
        assert_int_equal(host_depth(b.s, seq1, 12), 12);
        assert_ok(rig_match(b.s, seq1, 12));
        b.rig->automatic = RIG_ALL;
        assert_leaves_whole(fetch_back(b.s), b.s, 12);
        bench_ends_clean(&b);
    }
}

/* T16: the host's pages are free again, and the device keeps its copy. */
TEST(host_a_copy_that_fails_for_good_is_given_up)
{
    struct bench b = copies_held();

    put_slowly(&b, 1, 4);
    fail_for_good(&b);
    assert_int_equal(rig_jobs(b.rig, RIG_COPY), 0);
    assert_int_equal(rig_view(b.rig).copies, 0);
    assert_int_equal(rig_view(b.rig).host_copies_failed, COPY_TRIES_MAX);
    assert_int_equal(rig_view(b.rig).host_copies_again, COPY_TRIES_MAX - 1);
    assert_int_equal(host_free(b.rig, b.pool, 0), 16);
    assert_int_equal(rig_depth(b.s, seq1, 4), 4);
    commits(b.s, 1, 4);
    assert_ok(rig_retract(b.s, RETRACT_HOST, 0)); /* a request for it gets tries of its own */
    fail_for_good(&b);
    assert_string_equal(state_of(b.s), "turn");
    assert_ok(rig_retract(b.s, RETRACT_HOST, 0));
    for (uint32_t i = 1; i < COPY_TRIES_MAX; i++)
        fail_nth(&b, 0);
    rig_complete(b.rig, RIG_COPY);
    assert_string_equal(state_of(b.s), "retracted");
    assert_true(on_host(&b, 1, 4));
    bench_ends_clean(&b);
}

/* T16: the namespace is reset meanwhile: nobody needs the copy. */
TEST(host_a_failed_copy_of_a_dead_namespace_is_not_made_again)
{
    struct bench b = copies_held();

    put_slowly(&b, 1, 4);
    assert_ok(rig_reset(b.rig, b.e.conn[0], 1, NULL));
    fail_nth(&b, 0);
    assert_int_equal(rig_jobs(b.rig, RIG_COPY), 0);
    assert_int_equal(rig_view(b.rig).host_copies_again, 0);
    assert_int_equal(rig_free(b.rig, b.pool), 16);
    bench_ends_clean(&b);
}

/* T16: the parent's copy is given up: the children's stay, since the device has the parent. */
TEST(host_a_failed_parent_leaves_what_hangs_on_it)
{
    struct bench b = host_bench(4, 16, 3);

    b.rig->automatic = BY_HAND(RIG_COPY);
    put_slowly(&b, 1, 12);
    rig_complete_nth(b.rig, RIG_COPY, 1);
    fail_for_good(&b);
    rig_runs_free(b.rig);
    assert_true(!on_host(&b, 1, 4) && on_host(&b, 1, 8) && on_host(&b, 1, 12));
    assert_int_equal(rig_view(b.rig).host_copies_failed, COPY_TRIES_MAX);
    demote_pool(b.rig, b.pool); /* without a copy it goes, and its children too */
    assert_false(is_there(&b, 1, 4));
    put(&b, 2, 12); /* nothing is left in the way of others */
    assert_true(on_host(&b, 2, 12));
    bench_ends_clean(&b);
}

/* All tries of the nth copy but the last one fail. */
static void fail_all_but_the_last(struct bench *b, uint32_t nth)
{
    for (uint32_t i = 1; i < COPY_TRIES_MAX; i++)
        fail_nth(b, nth);
    rig_complete_nth(b->rig, RIG_COPY, nth);
    assert_true(on_host(b, 1, 8));
}

/* T16: a good copy ends a row of failures: the next copy has all its tries. */
TEST(host_a_good_copy_ends_a_row_of_bad_ones)
{
    struct bench b = copies_held();

    put_slowly(&b, 1, 8);
    fail_all_but_the_last(&b, 1);
    node_leave_host(b.rig->core, anywhere(b.rig, b.pool, rig_tokens(1, 8), 8));
    rig_complete(b.rig, RIG_COPY);
    commits(b.s, 1, 8);
    assert_ok(rig_retract(b.s, RETRACT_HOST, 0));
    fail_all_but_the_last(&b, 0);
    assert_string_equal(state_of(b.s), "retracted");
    bench_ends_clean(&b);
}

/* T16 */
TEST(host_a_second_acknowledgement_is_ignored)
{
    struct bench b = copies_held();
    struct event again = {.kind = EV_COPIED};
    uint64_t changes;

    put(&b, 1, 4);
    again.copied.job = rig_job(b.rig, RIG_COPY, 0)->copy;
    rig_complete(b.rig, RIG_COPY);
    changes = core_changes(b.rig->core);
    for (int err = 0; err < 2; err++) {
        again.copied.err = err ? TERN_CORRUPT : TERN_OK;
        rig_event(b.rig, &again);
        assert_true(core_changes(b.rig->core) == changes);
        assert_true(on_host(&b, 1, 4));
        assert_int_equal(rig_view(b.rig).host_copies, 1);
        assert_int_equal(rig_view(b.rig).host_copies_failed, 0);
    }
    again.copied.job.slot = 1u << 20; /* the end of a job that never was */
    rig_event(b.rig, &again);
    assert_true(core_changes(b.rig->core) == changes);
    /* The end of an old job while the node is copied the other way. */
    demote_pool(b.rig, b.pool);
    assert_false(on_device(&b, 1, 4));
    again.copied.job = (struct copy_id){0};
    assert_ok(rig_match(b.s, seq1, 8));
    rig_fetch(b.s, PEER_HOST, 0);
    assert_int_equal(rig_jobs(b.rig, RIG_COPY), 1);
    again.copied.job = rig_job(b.rig, RIG_COPY, 0)->copy;
    again.copied.job.gen--;
    again.copied.err = TERN_OK;
    changes = core_changes(b.rig->core);
    rig_event(b.rig, &again);
    assert_true(core_changes(b.rig->core) == changes);
    assert_false(on_device(&b, 1, 4));
    bench_ends_clean(&b);
}

/* T16: the session aborts or closes while its prefix is copied: both ends stay until the copy has
 * ended. */
TEST(host_an_abort_during_the_copy_keeps_both_ends)
{
    for (uint32_t closes = 0; closes < 2; closes++) {
        struct bench b = copies_held();

        commits(b.s, 1, 8);
        assert_ok(rig_retract(b.s, RETRACT_HOST, 0));
        assert_ok(closes ? rig_close(b.s, 0) : rig_abort(b.s, 0));
        assert_int_equal(rig_jobs(b.rig, RIG_COPY), 2);
        assert_int_equal(evicts(&b, 0), 0);
        assert_int_equal(rig_free(b.rig, b.pool), 16 - 2);
        assert_int_equal(host_free(b.rig, b.pool, 0), 16 - 2);
        demote_pool(b.rig, b.pool); /* not under pressure either */
        assert_int_equal(rig_free(b.rig, b.pool), 16 - 2);
        rig_complete(b.rig, RIG_COPY); /* oracle_audit_copy checks both ends */
        rig_complete(b.rig, RIG_COPY);
        assert_true(on_host(&b, 1, 8));
        bench_ends_clean(&b);
    }
}

/* T16: the namespace is reset and the pool's last session closes: pages that a worker reads or
 * writes stay. */
TEST(host_a_reset_during_the_copy_keeps_both_ends)
{
    struct bench b = copies_held();

    put_slowly(&b, 1, 8);
    assert_ok(rig_reset(b.rig, b.e.conn[0], 1, NULL));
    assert_int_equal(rig_jobs(b.rig, RIG_COPY), 2);
    assert_int_equal(rig_free(b.rig, b.pool), 16 - 2);
    rig_complete_nth(b.rig, RIG_COPY, 1);
    rig_complete(b.rig, RIG_COPY);
    assert_int_equal(rig_free(b.rig, b.pool), 16); /* then it goes */
    assert_int_equal(host_free(b.rig, b.pool, 0), 16);
    bench_ends_clean(&b);
}

/* T16: without checksum no copy; a small limit of copies leaves no node out. */
TEST(host_writeback_waits_for_checksums_and_for_a_job)
{
    struct bench b = copies_held_at(2);

    b.rig->automatic = BY_HAND(RIG_COPY | RIG_SEAL);
    put_slowly(&b, 1, 20);
    assert_int_equal(rig_jobs(b.rig, RIG_COPY), 0);
    assert_int_equal(host_free(b.rig, b.pool, 0), 16);
    complete_all(b.rig, RIG_SEAL);
    assert_int_equal(rig_jobs(b.rig, RIG_COPY), 2);
    assert_int_equal(rig_view(b.rig).copies, 5);
    for (uint32_t i = 0; i < 5; i++) {
        assert_true(rig_jobs(b.rig, RIG_COPY) <= 2);
        rig_complete(b.rig, RIG_COPY);
    }
    assert_true(on_host(&b, 1, 20));
    assert_int_equal(b.rig->copies_back, 5);
    bench_ends_clean(&b);
}

/* T22: however much of one tenant is copied, each copy of another waits for one job. */
TEST(host_copies_of_tenants_take_turns)
{
    struct bench b = HOST_BENCH_LIMITED(limits.copy_jobs = 1, 4, 64, 64);
    struct rig_engine other = rig_engine(b.rig, 1, "other", 1);
    struct pool_id pool = rig_pool_pages(b.rig, &other, 4, 64);
    uint32_t jobs = 0, left = 4;

    b.rig->automatic = BY_HAND(RIG_COPY);
    rig_put(b.rig, &b.e, b.pool, 1, 80);
    rig_put(b.rig, &other, pool, 1, 16);
    for (; left > 0; jobs++) {
        left -= rig_job(b.rig, RIG_COPY, 0)->pool == pool.slot;
        rig_complete(b.rig, RIG_COPY);
    }
    assert_int_equal(jobs, 8);
    complete_all(b.rig, RIG_COPY);
}

/* T16: a copy that waits for its turn gives up pages that others need; one that runs does not. */
TEST(host_a_copy_that_does_not_run_gives_way)
{
    struct bench b = copies_held_at(2);

    put_slowly(&b, 1, 20);
    assert_int_equal(rig_view(b.rig).copies, 5);
    rig_complete_nth(b.rig, RIG_COPY, 1); /* 8 has ended; 12 runs in its place */
    assert_int_equal(rig_jobs(b.rig, RIG_COPY), 2);
    assert_int_equal(host_free(b.rig, b.pool, 0), 16 - 5);
    assert_int_equal(evicts(&b, 0), 2); /* 20 and 16 */
    assert_false(is_there(&b, 1, 16));
    assert_true(is_there(&b, 1, 12));
    assert_int_equal(host_free(b.rig, b.pool, 0), 16 - 3);
    rig_complete_nth(b.rig, RIG_COPY, 1);
    assert_int_equal(evicts(&b, 0), 4); /* 12 and 8, from either tier */
    assert_false(is_there(&b, 1, 8));
    assert_int_equal(host_free(b.rig, b.pool, 0), 16 - 1);
    rig_complete(b.rig, RIG_COPY);
    assert_true(on_host(&b, 1, 4));
    bench_ends_clean(&b);
}

/* T16: a copy that a retract waits for is not dropped. */
TEST(host_a_copy_that_a_retract_waits_for_does_not_give_way)
{
    struct bench b = copies_held_at(1);

    commits(b.s, 1, 20);
    assert_ok(rig_retract(b.s, RETRACT_HOST, 0));
    rig_complete(b.rig, RIG_COPY);
    assert_int_equal(evicts(&b, 0), 0);
    rig_runs_free(b.rig);
    assert_string_equal(state_of(b.s), "retracted");
    demote_pool(b.rig, b.pool);
    assert_ok(rig_recover_now(b.s));
    assert_int_equal(rig_wrong(b.s, 20), 0);
    bench_ends_clean(&b);
}

/* T16: the checksums of two chunks are known before their parent's: both are copied after it. */
TEST(host_siblings_follow_their_parent)
{
    struct bench b = host_bench(4, 16, 16);
    uint32_t tokens[8], at;
    struct rig_session *s;

    b.rig->automatic = BY_HAND(RIG_SEAL);
    put_slowly(&b, 1, 8);
    memcpy(tokens, seq1, sizeof tokens);
    tokens[6] = 777;
    s = rig_session(b.rig, &b.e, b.pool, 1);
    commits_tokens(s, tokens, 8);
    assert_ok(rig_close(s, 0));
    assert_int_equal(rig_jobs(b.rig, RIG_SEAL), 3);
    rig_complete_nth(b.rig, RIG_SEAL, 2);
    rig_complete_nth(b.rig, RIG_SEAL, 1);
    assert_int_equal(b.rig->copies_back, 0);
    rig_complete(b.rig, RIG_SEAL);
    assert_int_equal(b.rig->copies_back, 3);
    at = anywhere(b.rig, b.pool, tokens, 8);
    assert_true(on_host(&b, 1, 8) && node_on_host(node_at(b.rig->core, at)));
    bench_ends_clean(&b);
}

/* --- pools --- */

TEST(a_pool_with_a_host_tier_opens_closes_and_is_had_again)
{
    struct bench b = host_bench(4, 16, 16);
    struct pool_id again;
    struct group_layout group = rig_group(4, 512);

    put(&b, 1, 8);
    assert_ok(rig_close(b.s, 0));
    assert_ok(rig_pool_close(b.rig, b.e.conn[0], b.pool));
    assert_int_equal(rig_view(b.rig).pools, 1); /* closing, until its engine is gone */
    rig_engine_kill(b.rig, &b.e, 0);
    assert_int_equal(rig_view(b.rig).pools, 0);
    assert_int_equal(rig_view(b.rig).nodes, 0);
    b.e = rig_engine(b.rig, 0, "e2", 1);
    assert_ok(rig_pool_open(b.rig, b.e.conn[0], &group, 1, 1u << 20, &again));
    b.rig->host_bytes = 2u << 20; /* more than the tenant has */
    assert_err(TERN_QUOTA, rig_pool_open(b.rig, b.e.conn[0], &group, 1, 1u << 20, &again));
    assert_int_equal(rig_view(b.rig).pools, 1);
    b.rig->host_bytes = 512; /* less than two pages */
    assert_err(TERN_INVALID, rig_pool_open(b.rig, b.e.conn[0], &group, 1, 1u << 20, &again));
}

TEST(a_pool_closes_while_copies_run)
{
    for (uint32_t loads = 0; loads < 2; loads++) {
        struct bench b = host_bench(4, 64, 16);

        if (loads) {
            put_away(&b, 1, 8);
            b.rig->automatic = BY_HAND(RIG_COPY);
            assert_ok(rig_match(b.s, seq1, 8));
            rig_fetch(b.s, PEER_HOST, 0);
        } else {
            b.rig->automatic = BY_HAND(RIG_COPY);
            put_slowly(&b, 1, 8);
        }
        assert_int_equal(rig_jobs(b.rig, RIG_COPY), 2);
        assert_ok(rig_close(b.s, 0));
        assert_ok(rig_pool_close(b.rig, b.e.conn[0], b.pool));
        rig_engine_kill(b.rig, &b.e, 0);
        assert_int_equal(rig_view(b.rig).pools, 1); /* a worker still runs */
        rig_complete_nth(b.rig, RIG_COPY, 1);
        assert_int_equal(rig_view(b.rig).pools, 1);
        rig_complete(b.rig, RIG_COPY);
        assert_int_equal(rig_view(b.rig).pools, 0);
    }
}

/* Giving the pool up may be all that happens in that step. */
TEST(a_pool_that_makes_way_while_a_copy_runs_counts_as_a_change)
{
    struct group_layout other = rig_group(8, 1024);
    struct rig_engine next;
    struct pool_id pool;
    struct bench b = HOST_BENCH_LIMITED(tenant[0].memory_bytes = 1 << 20, 4, 64, 16);
    uint64_t before;

    b.rig->automatic = BY_HAND(RIG_COPY);
    rig_put(b.rig, &b.e, b.pool, 1, 4);
    rig_engine_kill(b.rig, &b.e, 0);
    assert_int_equal(rig_jobs(b.rig, RIG_COPY), 1);
    next = rig_engine(b.rig, 0, "next", 1);
    before = core_changes(b.rig->core);
    assert_refused(b.rig, TERN_BUSY, rig_pool_open(b.rig, next.conn[0], &other, 1, 1 << 20, &pool));
    assert_true(core_changes(b.rig->core) > before);
}

/* When node records run out, nodes on the host are evicted after those on the device. */
TEST(node_records_come_from_the_host_tier_too)
{
    struct bench b = HOST_BENCH_LIMITED(limits.nodes = 8, 4, 64, 64);

    for (uint32_t seed = 1; seed <= 40; seed++) {
        put(&b, seed, 12);
        assert_int_equal(rig_depth(b.s, rig_tokens(seed, 12), 12), 12);
    }
    bench_ends_clean(&b);
}
