/* Ways to restore a prefix from the host tier to the device, except Recover: a commit of the same
 * tokens, a fetch from the host or from a peer, a new engine; and host copies that are corrupt.
 * Pages have 4 tokens and L = 4 unless a test sets others. */
#include "unit/rig/rig_host.h"
#include "unit/rig/rig_pair.h"

TEST(restored_by_a_commit_of_the_same_tokens)
{
    struct bench b = host_bench(4, 64, 16);
    const uint32_t *tokens;
    struct rig_session *other;

    put_away(&b, 1, 12);
    assert_false(on_device(&b, 1, 4));
    tokens = seq1;
    matches(b.s, tokens, 24, 0);
    assert_int_equal(b.rig->last->match.host_depth, 12);
    run_and_commit(b.s, tokens, 18, 8, 7);
    assert_int_equal(rig_wrong(b.s, 18), 0);
    other = rig_session(b.rig, &b.e, b.pool, 1);
    assert_int_equal(rig_depth(other, tokens, 24), 0); /* E3: its step has not passed */
    rig_engine_done(b.rig, &b.e, 7);
    assert_int_equal(rig_depth(other, tokens, 24), 8);
    assert_int_equal(host_depth(other, tokens, 24), 12);
    assert_true(on_device(&b, 1, 8) && on_host(&b, 1, 8));
    assert_false(on_device(&b, 1, 12));
    assert_ok(rig_match(other, seq1, 24));
    assert_int_equal(rig_wrong(other, 8), 0);
    assert_ok(rig_commit(b.s, 16, 8));
    rig_engine_done(b.rig, &b.e, 8);
    assert_true(on_device(&b, 1, 16) && on_host(&b, 1, 16));
    assert_int_equal(b.rig->copies_up, 0);
    assert_ok(rig_close(other, 0));
    bench_ends_clean(&b);
}

TEST(restored_by_a_commit_whose_engine_dies_it_stays_on_the_host)
{
    struct bench b = host_bench(4, 64, 16);
    struct rig_engine two = second_engine(b.rig, b.pool);
    struct rig_session *s;

    put_away(&b, 1, 8);
    s = rig_session(b.rig, &two, b.pool, 1);
    computes_and_commits(s, 1, 12, 12, 9);
    rig_engine_kill(b.rig, &two, 0);
    assert_int_equal(rig_depth(b.s, seq1, 12), 0);
    assert_int_equal(host_depth(b.s, seq1, 12), 8);
    assert_int_equal(rig_free(b.rig, b.pool), 64);
    assert_ok(rig_match(b.s, seq1, 12));
    assert_leaves_whole(fetch_back(b.s), b.s, 8);
    bench_ends_clean(&b);
}

TEST(fetch_from_the_host_tier_brings_the_deeper_prefix)
{
    struct bench b = host_bench(4, 64, 16);
    uint64_t request;

    put(&b, 1, 20);
    assert_int_equal(evicts(&b, 3), 3); /* 12, 16, 20 are only on the host */
    matches(b.s, seq1, 30, 8);
    assert_int_equal(b.rig->last->match.host_depth, 20);
    request = load_held(&b);
    assert_err(TERN_BUSY, rig_fetched(b.s, request));
    assert_string_equal(state_of(b.s), "loading");
    assert_int_equal(rig_jobs(b.rig, RIG_COPY), 3);
    assert_int_equal(rig_depth(b.s, seq1, 20), 8);
    rig_complete_nth(b.rig, RIG_COPY, 2); /* from the end: no chunk is visible before its parent */
    rig_complete_nth(b.rig, RIG_COPY, 1);
    assert_int_equal(rig_depth(b.s, seq1, 20), 8);
    assert_err(TERN_BUSY, rig_fetched(b.s, request));
    rig_complete(b.rig, RIG_COPY);
    assert_leaves_whole(rig_fetched(b.s, request), b.s, 20);
    assert_int_equal(rig_reply_to(b.rig, request)->fetch.kib, 2); /* 3 pages of 512 bytes */
    assert_int_equal(rig_depth(b.s, seq1, 20), 20);
    b.rig->automatic = RIG_ALL;
    run_and_commit(b.s, seq1, 30, 28, 0);
    assert_int_equal(rig_wrong(b.s, 30), 0);
    bench_ends_clean(&b);
}

TEST(fetch_from_the_host_tier_up_to_a_depth)
{
    struct bench b = host_bench(4, 64, 16);

    put_away(&b, 1, 20);
    assert_ok(rig_match(b.s, seq1, 30));
    assert_leaves_whole(rig_fetched(b.s, rig_fetch(b.s, PEER_HOST, 15)), b.s, 12);
    assert_false(on_device(&b, 1, 16));
    assert_int_equal(b.rig->copies_up, 3);
    bench_ends_clean(&b);
}

/* A depth that the device has already copies nothing, and is no error. */
TEST(fetch_from_the_host_tier_below_what_is_here)
{
    struct bench b = host_bench(4, 64, 16);

    put(&b, 1, 20);
    assert_int_equal(evicts(&b, 3), 3);
    matches(b.s, seq1, 30, 8);
    for (uint32_t depth = 1; depth <= 11; depth++) {
        assert_leaves(rig_fetched(b.s, rig_fetch(b.s, PEER_HOST, depth)), b.s, 8, 8, 8);
    }
    assert_int_equal(b.rig->copies_up, 0);
    bench_ends_clean(&b);
}

/* A session computes a chunk that another one loads: it keeps its own pages, and commits when the
 * load has ended. */
TEST(a_load_and_a_commit_of_one_chunk)
{
    struct bench b = host_bench(4, 64, 16);
    struct rig_session *s;
    uint64_t request;

    put_away(&b, 1, 12);
    assert_ok(rig_match(b.s, seq1, 30));
    request = load_held(&b);
    s = rig_session(b.rig, &b.e, b.pool, 1);
    matches(s, seq1, 30, 0);
    assert_ok(rig_run_to(s, seq1, 16));
    rig_commit(s, 16, 0);
    assert_int_equal(s->len.committed, 0);
    assert_int_equal(s->len.written, 16);
    assert_int_equal(rig_wrong(s, 16), 0);
    rig_complete(b.rig, RIG_COPY);
    rig_runs_free(b.rig);
    assert_leaves(rig_fetched(b.s, request), b.s, 12, 12, 12);
    assert_leaves(rig_commit(s, 16, 0), s, 16, 16, 16);
    assert_memory_equal(s->table[0], b.s->table[0], 3 * sizeof s->table[0][0]); /* adopted */
    closes_whole(s, 16);
    bench_ends_clean(&b);
}

/* S11 */
TEST(fetch_from_the_host_tier_replaces_the_tail)
{
    for (uint32_t w = 6; w <= 22; w += 16) {
        struct bench b = host_bench(4, 64, 16);
        bool more = w < 20;

        put_away(&b, 1, 20);
        assert_ok(rig_match(b.s, seq1, 30));
        assert_ok(rig_run_to(b.s, seq1, w));
        b.s->fetch_step = 5;
        assert_leaves(rig_fetched(b.s, rig_fetch(b.s, PEER_HOST, 0)), b.s, more ? 20 : 0,
                      more ? 20 : w, more ? 20 : w);
        assert_int_equal(rig_wrong(b.s, b.s->len.written), 0);
        assert_int_equal(rig_group_view(b.rig, b.pool, 0).retiring, more ? 2 : 0);
        rig_engine_done(b.rig, &b.e, 5);
        runs_right(b.s, seq1, 30);
        assert_ok(rig_close(b.s, 0));
        bench_ends_clean(&b);
    }
}

/* Nothing deeper on the host, no host tier, no room. */
TEST(fetch_from_the_host_tier_that_brings_nothing)
{
    struct bench b = host_bench(4, 8, 16);
    uint64_t request;

    assert_ok(rig_match(b.s, seq1, 30));
    request = rig_fetch(b.s, PEER_HOST, 0);
    assert_non_null(rig_reply_to(b.rig, request));
    assert_lengths(b.s, 0, 0, 0);
    assert_ok(rig_abort(b.s, 0));
    put_away(&b, 1, 20);
    assert_ok(rig_match(b.s, seq1, 30));
    {
        struct rig_session *hog = rig_session(b.rig, &b.e, b.pool, 1);

        takes_pages(hog, rig_tokens(9, 30), 30, 16);
        request = rig_fetch(b.s, PEER_HOST, 0); /* 5 needed, 4 free */
        assert_err(TERN_POOL_EXHAUSTED, rig_reply_to(b.rig, request)->err);
        assert_int_equal(rig_reply_to(b.rig, request)->shortage.needed, 5);
        assert_int_equal(rig_reply_to(b.rig, request)->shortage.free, 4);
        assert_int_equal(rig_jobs(b.rig, RIG_COPY), 0);
        assert_lengths(b.s, 0, 0, 0);
        assert_ok(rig_close(hog, 0));
    }
    assert_leaves(fetch_back(b.s), b.s, 20, 20, 20);
    bench_ends_clean(&b);
    b = bench_start(4, 8);
    assert_ok(rig_match(b.s, seq1, 30));
    request = rig_fetch(b.s, PEER_HOST, 0);
    assert_non_null(rig_reply_to(b.rig, request));
    assert_lengths(b.s, 0, 0, 0);
}

TEST(fetch_from_the_host_tier_cancelled)
{
    struct bench b = host_bench(4, 64, 16);
    uint64_t request;

    put_away(&b, 1, 20);
    assert_ok(rig_match(b.s, seq1, 30));
    request = load_held(&b);
    rig_complete(b.rig, RIG_COPY);
    assert_ok(rig_fetch_cancel(b.s));
    assert_non_null(rig_reply_to(b.rig, request));
    assert_string_equal(state_of(b.s), "turn");
    rig_runs_free(b.rig);
    assert_true(rig_depth(b.s, seq1, 20) <= 4);
    assert_int_equal(host_depth(b.s, seq1, 20), 20);
    run_and_commit(b.s, seq1, 30, 28, 0); /* the session computes them */
    assert_int_equal(rig_wrong(b.s, 30), 0);
    bench_ends_clean(&b);
}

/* A copy fails although its bytes are right: the fetch is BUSY and may be repeated; the daemon does
 * not retry it for ever. */
TEST(fetch_from_the_host_tier_whose_copy_fails_is_busy)
{
    for (uint32_t good = 0; good < 5; good++) {
        struct bench b = host_bench(4, 64, 16);
        uint64_t request;

        put_away(&b, 1, 20);
        assert_ok(rig_match(b.s, seq1, 30));
        request = load_held(&b);
        for (uint32_t i = 0; i < good; i++)
            rig_complete(b.rig, RIG_COPY);
        assert_err(TERN_BUSY, rig_fetched(b.s, request)); /* no answer yet */
        b.rig->copies_to_fail = 1;
        b.rig->copy_err = TERN_INTERNAL;
        rig_complete(b.rig, RIG_COPY);
        assert_non_null(rig_reply_to(b.rig, request));
        assert_err(TERN_BUSY, rig_reply_to(b.rig, request)->err);
        assert_string_equal(state_of(b.s), "turn");
        rig_runs_free(b.rig);
        assert_int_equal(host_depth(b.s, seq1, 20), 20); /* the copies are good */
        assert_leaves_whole(fetch_back(b.s), b.s, 20);
        bench_ends_clean(&b);
    }
}

/* Corrupts a page of the host tier. */
static void spoil_host(struct bench *b, uint32_t seed, uint32_t depth)
{
    uint32_t at = anywhere(b->rig, b->pool, rig_tokens(seed, depth), depth);
    const struct core *c = b->rig->core;
    uint64_t bytes;
    uint8_t *page = rig_page(b->rig, rig_host_view(b->rig, b->pool).id.slot, 0,
                             page_at(c, node_at(c, at)->group[0].pages[TIER_HOST])->index, &bytes);

    page[5] = (uint8_t)~page[5];
}

TEST(a_rotten_host_page_is_corrupt_and_never_matched)
{
    struct bench b = host_bench(4, 64, 16);
    uint64_t request;

    put_away(&b, 1, 20);
    spoil_host(&b, 1, 12);
    assert_ok(rig_match(b.s, seq1, 30));
    request = rig_fetch(b.s, PEER_HOST, 0);
    assert_err(TERN_CORRUPT, rig_reply_to(b.rig, request)->err);
    assert_int_equal(rig_view(b.rig).corrupt_detected, 1);
    assert_true(rig_depth(b.s, seq1, 30) <= 8);
    assert_int_equal(host_depth(b.s, seq1, 30), 8); /* the Peek shows no more */
    assert_string_equal(state_of(b.s), "turn");
    if (b.s->len.allocated == b.s->len.committed)
        assert_ok(rig_run_to(b.s, seq1, 30));
    assert_ok(rig_commit(b.s, 28, 0)); /* computed again: good again */
    assert_int_equal(rig_wrong(b.s, 28), 0);
    assert_int_equal(rig_depth(b.s, seq1, 30), 28);
    assert_ok(rig_close(b.s, 0));
    demote_pool(b.rig, b.pool);
    b.s = session_with(b.rig, &b.e, b.pool, 1, 30);
    request = rig_fetch(b.s, PEER_HOST, 0);
    assert_non_null(rig_reply_to(b.rig, request));
    rig_fetched(b.s, request);
    assert_int_equal(rig_wrong(b.s, b.s->len.written), 0); /* all that came is right */
    bench_ends_clean(&b);
}

static void sees_nothing_left(void *ctx, const struct event *event)
{
    const struct bench *b = ctx;

    (void)event;
    assert_false(session_at(b->rig->core, b->s->id.slot)->releasing);
}

/* Work that fits the piece is not left to a later step: the session may continue as soon as it is
 * answered. */
TEST(a_short_load_that_fails_is_let_go_in_the_step_that_answers)
{
    struct bench b = host_bench(4, 64, 16);

    put_away(&b, 1, 20);
    spoil_host(&b, 1, 12);
    assert_ok(rig_match(b.s, seq1, 30));
    b.rig->on_event = sees_nothing_left;
    b.rig->on_event_ctx = &b;
    assert_err(TERN_CORRUPT, rig_fetched(b.s, rig_fetch(b.s, PEER_HOST, 0)));
    assert_ok(rig_run_to(b.s, seq1, 30));
    b.rig->on_event = NULL;
    bench_ends_clean(&b);
}

#define KEPT_CHUNKS (PIECE_VISITS_TIMER + 64)

/* E4, T20: jobs hold the pages that would make room. To find that takes more than a piece, and
 * another piece would not change it: the load is BUSY, and does not look again by itself. */
TEST(a_load_is_busy_where_jobs_keep_its_room)
{
    struct bench b = HOST_BENCH_LIMITED(limits.nodes = 2 * KEPT_CHUNKS, 4, KEPT_CHUNKS + 4, 16);
    struct rig_session *other = rig_session(b.rig, &b.e, b.pool, 1);

    assert_ok(rig_match(b.s, seq1, 36));
    run_and_commit(b.s, seq1, 36, 36, 0);
    assert_ok(rig_retract(b.s, RETRACT_HOST, 0));
    assert_int_equal(evicts(&b, 0), 9);
    b.rig->automatic = BY_HAND(RIG_SEAL);
    assert_ok(rig_match(other, rig_tokens(2, 4 * KEPT_CHUNKS), 4 * KEPT_CHUNKS));
    assert_ok(rig_run_to(other, rig_tokens(2, 4 * KEPT_CHUNKS), 4 * KEPT_CHUNKS));
    while (other->len.committed < 4 * KEPT_CHUNKS)
        rig_commit(other, 4 * KEPT_CHUNKS, 0);
    assert_ok(rig_close(other, 0));
    b.rig->core->limits.give_back_visits = 1; /* the timer's steps count it */
    assert_err(TERN_BUSY, rig_recover_now(b.s));
    assert_string_equal(state_of(b.s), "retracted");
    b.rig->automatic = RIG_ALL;
    rig_runs_free(b.rig);
    assert_ok(rig_recover_now(b.s));
    bench_ends_clean(&b);
}

/* The corrupt copy goes as soon as the chunk is on the device again and is replaced, or it goes
 * with its node. */
TEST(a_rotten_host_page_goes_when_its_chunk_is_computed_anew)
{
    for (uint32_t again = 0; again < 2; again++) {
        struct bench b = host_bench(4, 64, 16);
        uint32_t at;

        put_away(&b, 1, 20);
        spoil_host(&b, 1, 20);
        at = anywhere(b.rig, b.pool, seq1, 20);
        assert_ok(rig_match(b.s, seq1, 30));
        assert_err(TERN_CORRUPT, rig_fetched(b.s, rig_fetch(b.s, PEER_HOST, 0)));
        assert_int_equal(b.rig->core->host_corrupt, 1);
        b.rig->automatic = BY_HAND(RIG_COPY | RIG_SEAL);
        if (again) {
            if (b.s->len.written < 28)
                assert_ok(rig_run_to(b.s, seq1, 28));
            assert_ok(rig_commit(b.s, 28, 0));
            assert_int_equal(anywhere(b.rig, b.pool, seq1, 20), at);
            assert_false(node_on_host(node_at(b.rig->core, at)));
        } else {
            evict_all(b.rig, b.admin, b.pool);
            assert_false(is_there(&b, 1, 20));
        }
        assert_int_equal(b.rig->core->host_corrupt, 0);
        bench_ends_clean(&b);
    }
}

TEST(a_rotten_host_page_and_a_retracted_session)
{
    struct bench b = host_bench(4, 64, 16);
    uint32_t copies;

    assert_ok(rig_match(b.s, seq1, 30));
    run_and_commit(b.s, seq1, 22, 20, 0);
    assert_ok(rig_retract(b.s, RETRACT_HOST, 0));
    assert_int_equal(evicts(&b, 0), 5);
    spoil_host(&b, 1, 12);
    assert_err(TERN_CORRUPT, rig_recover_now(b.s));
    assert_string_equal(state_of(b.s), "retracted");
    copies = b.rig->copies_up;
    assert_err(TERN_CORRUPT, rig_recover_now(b.s)); /* still so: nothing is copied for it */
    assert_int_equal(b.rig->copies_up, copies);
    assert_ok(rig_abort(b.s, 0));
    assert_ok(rig_match(b.s, seq1, 30));
    assert_true(b.s->matched <= 8);
    run_and_commit(b.s, seq1, 30, 28, 0);
    assert_int_equal(rig_wrong(b.s, 28), 0);
    bench_ends_clean(&b);
}

/* A pull from a peer restores chunks that are only on the host. */
TEST(a_pull_restores_what_is_on_the_host_alone)
{
    struct pair p = pair_with_host(rig_defaults(), 4, 32, 32, 64 * 512, 64 * 512);
    uint32_t admin = rig_connect_admin(p.dest);

    source_has(&p, 1, 20);
    dest_has(&p, 1, 12);
    assert_int_equal(rig_evict(p.dest, admin, p.dp, 2), 2); /* 8 and 12 are only on the host */
    p.d = asking(&p, 1, 24);
    assert_int_equal(p.d->matched, 4);
    assert_leaves_whole(fetch_all(p.d), p.d, 20);
    assert_int_equal(p.dest->copies_up, 0);
    assert_int_equal(rig_depth(p.d, seq1, 24), 20);
    assert_true(node_seen(p.dest, p.dp, seq1, 8).on_device);
    assert_ok(rig_close(p.d, 0));
    nothing_stays(p.dest, admin, p.dp);
}

/* Chunks that were loaded from the host have their checksums, and are served like any others. */
TEST(a_peer_reads_what_was_loaded)
{
    struct pair p = pair_with_host(rig_defaults(), 4, 32, 32, 64 * 512, 0);
    uint32_t admin = rig_connect_admin(p.source);
    struct rig_session *s;

    source_has(&p, 1, 20);
    assert_int_equal(rig_evict(p.source, admin, p.sp, 5), 5);
    p.source->automatic = BY_HAND(RIG_SEAL); /* no checksum is computed */
    s = session_with(p.source, &p.se, p.sp, 1, 20);
    assert_leaves_whole(fetch_back(s), s, 20);
    assert_true(node_seen(p.source, p.sp, seq1, 20).sealed);
    p.d = asking(&p, 1, 20);
    assert_leaves_whole(fetch_all(p.d), p.d, 20);
}

/* A chunk that another engine is computing again is not fetched from the host meanwhile, and
 * neither is what lies below it. */
TEST(fetch_from_the_host_stops_at_what_is_not_written_yet)
{
    struct bench b = host_bench(4, 64, 16);
    struct rig_engine two = second_engine(b.rig, b.pool);
    struct rig_session *s;

    put_away(&b, 1, 20);
    s = rig_session(b.rig, &two, b.pool, 1);
    takes_pages(s, seq1, 30, 12);
    assert_ok(rig_extend(s, 0, 12, NULL, 0));
    assert_ok(rig_commit(s, 12, 9));
    assert_ok(rig_match(b.s, seq1, 30));
    assert_int_equal(b.rig->last->match.host_depth, 0);
    assert_int_equal(host_depth(b.s, seq1, 30), 0);
    assert_non_null(rig_reply_to(b.rig, rig_fetch(b.s, PEER_HOST, 0)));
    assert_lengths(b.s, 0, 0, 0);
    rig_write(s, 0, 12);
    rig_engine_done(b.rig, &two, 9);
    assert_int_equal(host_depth(b.s, seq1, 30), 20);
    assert_ok(rig_abort(b.s, 0));
    matches(b.s, seq1, 30, 12);
    assert_leaves_whole(fetch_back(b.s), b.s, 20);
    assert_ok(rig_close(s, 0));
    bench_ends_clean(&b);
}

/* The source offers only what its device has. */
TEST(a_peer_never_reads_host_pages)
{
    struct pair p = pair_with(rig_defaults(), 4, 32, 32);
    uint32_t admin = rig_connect_admin(p.source);
    struct pool_id pool = {0, 0};
    struct group_layout group = rig_group(4, 512);

    group.cap_pages = 31;
    p.source->host_bytes = 64 * 512;
    assert_ok(rig_pool_open(p.source, p.se.conn[0], &group, 1, 1u << 20, &pool));
    rig_put(p.source, &p.se, pool, 1, 12);
    assert_int_equal(rig_evict(p.source, admin, pool, 2), 2);
    p.d = asking(&p, 1, 24);
    fetch_all(p.d);
    assert_true(p.d->len.committed <= 4);
    assert_int_equal(rig_wrong(p.d, p.d->len.committed), 0);
}

TEST(a_new_engine_finds_what_the_host_has)
{
    struct bench b = host_bench(4, 64, 16);
    struct rig_session *s;

    put_away(&b, 1, 8);
    rig_engine_kill(b.rig, &b.e, 0);
    b.e = rig_engine(b.rig, 0, "again", 1);
    b.pool = rig_pool_pages(b.rig, &b.e, 4, 64);
    s = session_with(b.rig, &b.e, b.pool, 1, 12);
    assert_leaves_whole(fetch_back(s), s, 8);
}

TEST(a_rotten_host_page_is_said_to_be_rotten)
{
    struct bench b = host_bench(4, 64, 16);

    put_away(&b, 1, 20);
    spoil_host(&b, 1, 12);
    assert_ok(rig_match(b.s, seq1, 30));
    assert_err(TERN_CORRUPT, rig_reply_to(b.rig, rig_fetch(b.s, PEER_HOST, 0))->err);
    assert_non_null(strstr(b.rig->last->text, "checksum"));
}
