/* X1 to X8 on two cores: what a Fetch moves, when it publishes, and the state after any other
 * end. */
#include "unit/rig/rig_pair.h"

#define TOKENS 64 /* 16 pages of 4 tokens */

TEST(fetch_brings_whole_chunks_and_every_byte)
{
    struct pair p = pair_limited(1 << 20);

    source_has(&p, 1, TOKENS);
    p.d = asking(&p, 1, TOKENS + 3);
    assert_leaves_whole(fetch_all(p.d), p.d, TOKENS);
    assert_int_equal(p.dest->pulled_pages, 16);
    assert_int_equal(rig_depth(p.d, seq1, TOKENS), TOKENS); /* others find it too */
    assert_ok(rig_run_to(p.d, seq1, TOKENS + 3));           /* the session runs on */
    pair_ends_clean(&p, 16, 16);
}

/* X5: the destination's own longest match is subtracted first. */
TEST(fetch_moves_only_the_delta)
{
    struct pair p = pair_limited(1 << 20);

    dest_has(&p, 1, 40);
    pair_offer(&p, TOKENS);
    assert_int_equal(p.d->matched, 40);
    assert_leaves_whole(fetch_all(p.d), p.d, TOKENS);
    assert_int_equal(p.dest->pulled_pages, 6);
}

/* A fetch that moves nothing is not counted. A peer that joins in the same slot begins at zero. */
TEST(fetch_is_counted_with_the_peer_that_it_came_from)
{
    struct pair p = pair_limited(1 << 20);
    const struct peer_figures *figures = core_peer_figures(p.dest->core, 0);
    struct event left = {.kind = EV_PEER_LEFT}, joined = {.kind = EV_PEER_JOINED};

    dest_has(&p, 1, 40);
    pair_offer(&p, TOKENS);
    assert_leaves_whole(fetch_all(p.d), p.d, TOKENS);
    assert_int_equal(figures->tokens, TOKENS - 40);
    assert_int_equal(figures->brought.n, 1);
    assert_int_equal(figures->failed, 0);
    rig_link_down(p.dest, 0);
    rig_event(p.dest, &left);
    rig_event(p.dest, &joined);
    assert_int_equal(figures->tokens + figures->brought.n, 0);
}

TEST(fetch_of_what_is_here_asks_nobody)
{
    struct pair p = pair_limited(1 << 20);

    dest_has(&p, 1, TOKENS);
    p.d = asking(&p, 1, TOKENS);
    assert_ok(fetch_all(p.d));
    assert_int_equal(p.dest->pulled_pages, 0);
    assert_whole(p.d, TOKENS);
}

TEST(fetch_source_has_less_brings_what_there_is)
{
    struct pair p = pair_limited(1 << 20);
    struct rig_session *none = asking(&p, 2, TOKENS);

    source_has(&p, 1, 24);
    p.d = asking(&p, 1, TOKENS);
    assert_leaves_whole(fetch_all(p.d), p.d, 24);
    assert_leaves(fetch_all(none), none, 0, 0, 0);
    assert_int_equal(rig_view(p.source).serves, 0);
}

TEST(fetch_to_a_depth_stops_there)
{
    struct pair p = pair_offered(1 << 20);

    assert_leaves_whole(fetch_to(p.d, 22), p.d, 20);
    assert_leaves_whole(fetch_all(p.d), p.d, TOKENS);
    assert_int_equal(p.dest->pulled_pages, 16);
}

/* X3: a chunk is visible only when all its pages have arrived and are right, and never before the
 * chunk that it continues. */
TEST(fetch_batches_out_of_order_publish_in_order)
{
    struct pair p = pair_offered(4 * 512);
    struct rig_session *other = rig_session(p.dest, &p.de, p.dp, 1);
    uint64_t fetch = fetch_held(&p, RIG_PULL);
    uint32_t first = rig_job(p.dest, RIG_PULL, 0)->n;

    if (rig_jobs(p.dest, RIG_PULL) > 1) {
        rig_complete_nth(p.dest, RIG_PULL, 1);
        assert_int_equal(rig_depth(other, seq1, TOKENS), 0);
    }
    rig_complete(p.dest, RIG_PULL);
    assert_true(rig_depth(other, seq1, TOKENS) >= first * 4);
    assert_true(rig_depth(other, seq1, TOKENS) < TOKENS);
    assert_err(TERN_BUSY, rig_fetched(p.d, fetch));
    complete_all(p.dest, RIG_PULL);
    assert_ok(rig_fetched(p.d, fetch));
    assert_int_equal(rig_wrong(p.d, TOKENS), 0);
}

/* A chunk of two groups waits for the pages of both. */
TEST(fetch_two_groups_publish_together)
{
    struct pair p = PAIR_LIMITED(limits.peer_bytes_in_flight = 512, 4, 8, 8);
    struct group_layout groups[2] = {rig_group(4, 512), rig_group(8, 1024)};
    struct pool_id sp, dp;
    /* With this limit about one page moves at a time. */
    assert_ok(rig_pool_open(p.source, p.se.conn[0], groups, 2, 128 << 10, &sp));
    assert_ok(rig_pool_open(p.dest, p.de.conn[0], groups, 2, 128 << 10, &dp));
    rig_put(p.source, &p.se, sp, 1, TOKENS);
    p.d = session_with(p.dest, &p.de, dp, 1, TOKENS);
    fetch_held(&p, RIG_PULL);
    for (uint32_t pages = 0; rig_jobs(p.dest, RIG_PULL);) {
        pages += rig_job(p.dest, RIG_PULL, 0)->n;
        rig_complete(p.dest, RIG_PULL);
        /* A chunk of 8 tokens has 3 pages: each chunk is visible while the next ones are on their
         * way. */
        assert_int_equal(rig_depth(p.d, seq1, TOKENS), pages / 3 * 8);
    }
    assert_leaves_whole(rig_fetched(p.d, p.d->fetch), p.d, TOKENS);
}

TEST(fetch_corrupt_page_asked_again_once_then_right)
{
    struct pair p = pair_offered(1 << 20);

    p.dest->corrupt_pages = 3; /* distinct pages of the first batch */
    assert_leaves_whole(fetch_all(p.d), p.d, TOKENS);
    assert_int_equal(rig_view(p.dest).corrupt_detected, 3);
    assert_int_equal(p.dest->pulled_pages, 16 + 3);
}

TEST(fetch_corrupt_twice_ends_corrupt_and_publishes_nothing_of_it)
{
    struct pair p = pair_offered(2 * 512);
    uint64_t fetch = fetch_held(&p, RIG_PULL);

    rig_complete(p.dest, RIG_PULL); /* the first arrives */
    p.dest->corrupt_group_index = rig_job(p.dest, RIG_PULL, 0)->pages[0].index;
    p.dest->corrupt_pages = 2;
    complete_all(p.dest, RIG_PULL);
    assert_err(TERN_CORRUPT, rig_fetched(p.d, fetch));
    assert_int_equal(rig_view(p.dest).corrupt_detected, 2);
    assert_true(p.d->len.committed < TOKENS);
    assert_int_equal(rig_wrong(p.d, p.d->len.committed), 0);
    assert_int_equal(rig_depth(p.d, seq1, TOKENS), p.d->len.committed);
    p.dest->automatic = RIG_ALL;
    assert_leaves_whole(fetch_all(p.d), p.d, TOKENS); /* resumes where the first one ended */
    pair_ends_clean(&p, 16, 16);
}

/* Y6 as far as it is built: either the cancel or the completion wins, and repeating either is
 * harmless. */
TEST(fetch_cancel_after_completion_changes_nothing)
{
    struct pair p = pair_offered(1 << 20);
    uint64_t fetch = rig_fetch(p.d, 0, 0);

    assert_ok(rig_fetched(p.d, fetch));
    assert_ok(rig_fetch_cancel(p.d));
    assert_ok(rig_fetch_cancel(p.d));
    assert_leaves(rig_fetched(p.d, fetch), p.d, TOKENS, TOKENS, TOKENS);
}

TEST(fetch_completion_after_cancel_changes_nothing)
{
    struct pair p = pair_offered(1 << 20);
    uint64_t fetch = fetch_held(&p, RIG_PULL | RIG_PULL_STOP);

    assert_ok(rig_fetch_cancel(p.d));
    assert_err(TERN_GONE, rig_fetched(p.d, fetch));
    assert_ok(rig_fetch_cancel(p.d));
    complete_all(p.dest, RIG_PULL); /* it was on its way */
    assert_int_equal(rig_depth(p.d, seq1, TOKENS), 0);
    assert_int_equal(quarantined(&p), 16);
    rig_complete(p.dest, RIG_PULL_STOP);
    pair_ends_clean(&p, 16, 0);
}

/* A cancel before the source has answered: its late offer must leave no pin. */
TEST(fetch_cancel_before_the_offer_the_source_lets_go)
{
    struct pair p = pair_offered(1 << 20);

    p.source->automatic = BY_HAND(RIG_MSG); /* the offer waits */
    rig_fetch(p.d, 0, 0);
    assert_int_equal(rig_jobs(p.source, RIG_MSG), 1);
    assert_ok(rig_fetch_cancel(p.d));
    assert_err(TERN_GONE, rig_fetched(p.d, p.d->fetch));
    rig_runs_free(p.source);
    pair_ends_clean(&p, 16, 0);
}

/* X2: both sides end within the transfer's deadline, with a message of the other side or without.
 * Fault 29: they also do when the last message is lost. */
TEST(fetch_silent_both_sides_end_by_the_deadline)
{
    struct pair p = pair_offered(1 << 20);
    const uint64_t deadline = p.dest->options.limits.transfer_deadline_ns;
    uint64_t fetch = fetch_held(&p, RIG_PULL | RIG_PULL_STOP);

    assert_true(core_deadline(p.dest->core) <= p.dest->now_ns + deadline);
    p.dest->automatic &= ~(uint32_t)RIG_MSG; /* the last message is lost */
    rig_advance(p.dest, deadline - 1);
    assert_err(TERN_BUSY, rig_fetched(p.d, fetch));
    rig_advance(p.dest, 1);
    assert_err(TERN_TIMED_OUT, rig_fetched(p.d, fetch));
    assert_int_equal(quarantined(&p), 16);
    assert_int_equal(rig_view(p.source).serves, 1);
    rig_advance(p.source, deadline);
    assert_int_equal(rig_view(p.source).serves, 0);
    rig_complete(p.dest, RIG_PULL_STOP);
    while (rig_jobs(p.dest, RIG_MSG))
        rig_drop(p.dest, RIG_MSG);
    pair_ends_clean(&p, 16, 0);
}

TEST(fetch_data_path_broken_answers_its_error_and_quarantines)
{
    struct pair p = pair_offered(1 << 20);
    struct event event = {.kind = EV_PULL_BROKEN};
    uint64_t fetch = fetch_held(&p, RIG_PULL | RIG_PULL_STOP);

    event.broken.pull = rig_job(p.dest, RIG_PULL, 0)->pull;
    event.broken.err = TERN_PEER_LOST;
    rig_event(p.dest, &event);
    assert_err(TERN_PEER_LOST, rig_fetched(p.d, fetch));
    assert_int_equal(quarantined(&p), 16);
    assert_int_equal(core_peer_figures(p.dest->core, 0)->failed, 1);
    assert_int_equal(core_peer_figures(p.dest->core, 0)->tokens, 0);
    rig_complete(p.dest, RIG_PULL_STOP);
    pair_ends_clean(&p, 16, 0);
}

/* X6: messages on a connection of another incarnation have no effect. */
TEST(transfer_message_from_before_a_restart_has_no_effect)
{
    struct pair p = pair_offered(1 << 20);
    struct event event = {.kind = EV_PEER_MSG};
    struct pull_id old;
    uint64_t fetch, hash;

    fetch = fetch_held(&p, RIG_PULL);
    old = rig_job(p.dest, RIG_PULL, 0)->pull;
    rig_link_down(p.dest, 0);
    assert_err(TERN_PEER_LOST, rig_fetched(p.d, fetch));
    p.source->options.incarnation++;
    rig_link_up(p.dest, 0, p.source, p.source->options.limits.peers);
    hash = core_changes(p.dest->core);
    event.peer.link = 0;
    event.peer.msg.pull = old;
    event.peer.msg.kind = PEER_PULL_ABORT;
    event.peer.msg.err = TERN_GONE;
    rig_event(p.dest, &event);
    event.peer.msg.kind = PEER_PULL_OFFER;
    event.peer.msg.err = TERN_BUSY;
    rig_event(p.dest, &event);
    assert_true(core_changes(p.dest->core) == hash);
    p.dest->automatic = RIG_ALL;
    assert_leaves_whole(fetch_all(p.d), p.d, TOKENS);
}

/* X1: the session closes while it fetches: its pages stay in quarantine until our own proof, and
 * are free then. */
TEST(fetch_session_closed_meanwhile_pages_return_after_proof)
{
    struct pair p = pair_offered(4 * 512);
    uint64_t fetch = fetch_held(&p, RIG_PULL | RIG_PULL_STOP);

    rig_complete(p.dest, RIG_PULL);
    assert_ok(rig_close(p.d, 0));
    assert_err(TERN_GONE, rig_fetched(p.d, fetch));
    assert_true(quarantined(&p) > 0);
    rig_complete(p.dest, RIG_PULL_STOP);
    assert_nothing_left(&p, 16, 4);
}

TEST(fetch_engine_gone_meanwhile_pages_return_after_proof)
{
    struct pair p = pair_offered(4 * 512);

    fetch_held(&p, RIG_PULL | RIG_PULL_STOP);
    rig_engine_kill(p.dest, &p.de, 0);
    assert_int_equal(p.dest->engines_gone, 1);
    assert_int_equal(quarantined(&p), 16);
    rig_complete(p.dest, RIG_PULL_STOP);
    assert_int_equal(quarantined(&p), 0);
    assert_int_equal(rig_view(p.source).serves, 0);
}

/* The figures of a transfer in the answer, and those that are counted when it fails. */
TEST(fetch_answer_tells_the_bytes_that_came)
{
    struct pair p = pair_offered(1 << 20);
    uint64_t fetch = rig_fetch(p.d, 0, 0);

    assert_ok(rig_fetched(p.d, fetch));
    assert_int_equal(rig_reply_to(p.dest, fetch)->fetch.kib, TOKENS / 4 * 512 / 1024);
}
