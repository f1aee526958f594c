/* Ends of fetches by ticket that cross other messages, between two cores: cases of Y1 to Y6 that
 * the simulator found. */
#include "unit/rig/rig_another.h"
#include "unit/rig/rig_follow.h"
#include "unit/rig/rig_host.h"

static uint32_t tickets_left(struct pair *p)
{
    struct tickets_view v;

    v = core_tenant_view(p->source->core, 0).tickets;
    return (uint32_t)v.standing;
}

/* The last message that waits for its delivery. */
static struct peer_msg last_said(struct rig *rig)
{
    struct rig_job *job = rig_job(rig, RIG_MSG, rig_jobs(rig, RIG_MSG) - 1);

    assert_non_null(job);
    return job->msg;
}

/* Y6: an offer arrives after its fetch was cancelled: the serve ends, and the ticket stands. */
TEST(y6_offer_behind_a_cancel_is_answered_with_gone)
{
    struct pair p = pair_limited(1 << 20);
    struct ticket t = hand_over(computed(&p), 0, 0);
    struct rig_session *d = asking(&p, 1, LEN);

    p.source->automatic = BY_HAND(RIG_MSG);
    ticket_fetch(d, t);
    assert_int_equal(last_said(p.source).kind, PEER_PULL_OFFER);
    assert_ok(rig_fetch_cancel(d));
    p.dest->automatic = BY_HAND(RIG_MSG);
    rig_complete(p.source, RIG_MSG);
    assert_int_equal(last_said(p.dest).kind, PEER_PULL_DONE);
    assert_err(TERN_GONE, last_said(p.dest).err);
    assert_int_equal(last_said(p.dest).ticket.id.gen, 0);
    p.source->automatic = p.dest->automatic = RIG_ALL;
    rig_runs_free(p.dest);
    assert_int_equal(tickets_left(&p), 1);
    assert_int_equal(rig_view(p.source).serves, 0);
    assert_ok(ticket_fetched(d, t));
}

/* T18: the session's own commit refills STATE that was lost, at a step that has not passed. The
 * session is handed over all the same, and its ticket waits for that step. */
TEST(y1_session_is_handed_over_while_its_own_refill_waits_for_its_step)
{
    struct group_layout groups[2] = {rig_group(8, 512), rig_window(4, 28, 512)};
    struct pair p = pair_limited(1 << 20);
    const uint32_t *tokens = rig_tokens(1, 46);
    struct rig_session *s, *d;
    struct ticket t;

    assert_ok(rig_pool_open(p.source, p.se.conn[0], groups, 2, 1u << 19, &p.sp));
    assert_ok(rig_pool_open(p.dest, p.de.conn[0], groups, 2, 1u << 19, &p.dp));
    rig_put(p.source, &p.se, p.sp, 1, 40);
    for (uint32_t depth = 32; depth <= 40; depth += 8)
        state_drop(p.source->core, node_of(p.source, p.sp, tokens, depth));
    s = rig_session(p.source, &p.se, p.sp, 1);
    assert_ok(rig_match(s, tokens, 46));
    assert_int_equal(s->matched, 24);
    assert_ok(rig_run_to(s, tokens, 46));
    assert_ok(rig_commit(s, 40, 9));
    t = hand_over(s, 0, 0); /* it names no step; the refill's step is later */
    d = rig_session(p.dest, &p.de, p.dp, 1);
    assert_ok(rig_match(d, tokens, 46));
    ticket_fetch(d, t);
    assert_false(ended(d));
    rig_engine_done(p.source, &p.se, 9);
    rig_advance(p.dest, 100 * NS_PER_MS);
    assert_ok(rig_fetched(d, d->fetch));
    assert_lengths(d, 40, 46, 46);
    assert_int_equal(rig_wrong(d, 46), 0);
}

/* Y1, N1: the fetch is due to ask again when the destination's namespace was reset: no more pages
 * arrive, and a ticket whose length is open is not used up. */
TEST(y1_early_ticket_whose_fetch_meets_a_reset_is_gone_and_not_used_up)
{
    for (uint32_t aborts = 0; aborts < 2; aborts++) {
        struct pair p = pair_limited(1 << 20);
        struct rig_session *s = session_with(p.source, &p.se, p.sp, 1, LEN), *d;
        struct event timer = {.kind = EV_TIMER};
        struct ticket t = ticket_early(s);
        struct tickets_view v;
        uint32_t n;

        d = asking(&p, 1, LEN);
        ticket_fetch(d, t); /* its session runs: put off */
        assert_false(ended(d));
        assert_ok(rig_reset(p.dest, p.de.conn[0], 1, &n));
        p.dest->now_ns += 100 * NS_PER_MS;
        if (aborts) { /* between the end and its answer */
            timer.now_ns = p.dest->now_ns;
            core_step(p.dest->core, &timer, p.dest->out);
            assert_int_equal(p.dest->out->n, 0);
            assert_ok(rig_abort(d, 0));
        } else {
            rig_timers(p.dest);
            rig_settle(p.dest);
        }
        assert_err(TERN_GONE, rig_reply_to(p.dest, d->fetch)->err);
        v = core_tenant_view(p.source->core, 0).tickets;
        assert_int_equal(v.taken, 0);
        assert_int_equal(v.standing, 1);
        rig_destroy_all();
    }
}

/* Y2, X9: only HISTORY that was here came, and the STATE waits for a step of another engine. The
 * ticket stands, and the fetch is BUSY. */
TEST(y2_fetch_that_meets_a_refill_of_others_is_busy_and_the_ticket_stands)
{
    struct group_layout groups[2] = {rig_group(8, 512), rig_window(4, 8, 512)};
    struct pair p = pair_limited(1 << 20);
    const uint32_t *tokens = rig_tokens(1, 16);
    struct rig_engine other = rig_engine(p.dest, 0, "other", 1);
    struct rig_session *s, *d;
    struct ticket t;

    assert_ok(rig_pool_open(p.source, p.se.conn[0], groups, 2, 1u << 19, &p.sp));
    assert_ok(rig_pool_open(p.dest, p.de.conn[0], groups, 2, 1u << 19, &p.dp));
    assert_ok(rig_map(p.dest, other.conn[0], p.dp));
    s = session_with(p.source, &p.se, p.sp, 1, 16);
    run_and_commit(s, tokens, 16, 16, 0);
    t = hand_over(s, 0, 0);
    rig_put(p.dest, &p.de, p.dp, 1, 16);
    for (uint32_t depth = 8; depth <= 16; depth += 8)
        state_drop(p.dest->core, node_of(p.dest, p.dp, tokens, depth));
    d = rig_session(p.dest, &p.de, p.dp, 1);
    assert_ok(rig_match(d, tokens, 16));
    assert_int_equal(d->matched, 0);
    p.dest->automatic = BY_HAND(RIG_PULL);
    ticket_fetch(d, t);
    s = rig_session(p.dest, &other, p.dp, 1);
    assert_ok(rig_match(s, tokens, 16));
    assert_ok(rig_run_to(s, tokens, 16));
    assert_ok(rig_commit(s, 16, 9)); /* a step that has not passed */
    p.dest->automatic = RIG_ALL;
    rig_runs_free(p.dest);
    assert_err(TERN_BUSY, rig_fetched(d, d->fetch));
    assert_true(rig_reply_to(p.dest, d->fetch)->fetch.retry_ms > 0);
    assert_int_equal(tickets_left(&p), 1);
    rig_engine_done(p.dest, &other, 9);
    d = rig_session(p.dest, &p.de, p.dp, 1);
    assert_ok(rig_match(d, tokens, 16));
    assert_int_equal(d->matched, 16);
}

/* Y2: two sessions ask for one ticket. The second one's question is on its way when the first has
 * everything. */
TEST(y2_who_asked_behind_the_winner_gets_nothing)
{
    struct pair p = pair_limited(1 << 20);
    struct ticket t = hand_over(computed(&p), 0, 0);
    struct rig_session *d[2] = {asking(&p, 1, LEN), asking(&p, 1, LEN)};

    p.dest->automatic = BY_HAND(RIG_PULL);
    ticket_fetch(d[0], t);
    p.dest->automatic = BY_HAND(RIG_PULL | RIG_MSG);
    ticket_fetch(d[1], t);
    rig_complete(p.dest, RIG_PULL);
    assert_ok(rig_fetched(d[0], d[0]->fetch));
    assert_err(TERN_GONE, rig_fetched(d[1], d[1]->fetch)); /* whatever the source would answer */
    p.source->automatic = BY_HAND(RIG_MSG | RIG_SERVE_STOP);
    rig_advance(p.source, 5000000000u); /* the first serve's deadline */
    p.source->automatic = p.dest->automatic = RIG_ALL;
    rig_runs_free(p.source);
    rig_runs_free(p.dest);
    assert_int_equal(tickets_left(&p), 0);
    assert_lengths(d[1], 0, 0, 0);
}

/* The source has given a transfer up by its own deadline, the transfer's end is on its way, and
 * another daemon asks for the ticket. */
struct crossed {
    struct pair p;
    struct rig_session *first, *second;
    struct rig *other;
    struct ticket t;
};

static struct crossed cross(bool first_has_all)
{
    struct crossed x = {.p = pair_limited(1 << 20)};
    struct rig_engine e;

    x.t = hand_over(computed(&x.p), 0, 0);
    x.first = asking(&x.p, 1, LEN);
    x.p.dest->automatic = BY_HAND(RIG_PULL | RIG_MSG);
    ticket_fetch(x.first, x.t);
    rig_complete(x.p.dest, RIG_MSG);
    if (first_has_all)
        rig_complete(x.p.dest, RIG_PULL);
    assert_int_equal(ended(x.first), first_has_all);
    x.p.source->automatic = BY_HAND(RIG_MSG);
    rig_advance(x.p.source, 5000000000u);
    assert_int_equal(last_said(x.p.source).kind, PEER_PULL_ABORT);
    x.other = another_dest(&x.p, 1, &e);
    x.second = session_with(x.other, &e, rig_pool_pages(x.other, &e, 4, 64), 1, LEN);
    ticket_fetch(x.second, x.t);
    rig_complete_nth(x.p.source, RIG_MSG, 1); /* the answer to the other daemon */
    assert_false(ended(x.second));            /* which asks again */
    return x;
}

/* The other daemon asks again, and all messages are delivered. */
static void goes_on_asking(struct crossed *x)
{
    x->p.source->automatic = x->p.dest->automatic = RIG_ALL;
    rig_runs_free(x->p.source);
    rig_runs_free(x->p.dest);
    rig_advance(x->other, 100 * NS_PER_MS);
}

/* Y2, Y6 */
TEST(y6_ticket_whose_end_is_on_its_way_has_one_winner)
{
    struct crossed x = cross(true);

    assert_ok(rig_fetched(x.first, x.first->fetch));
    goes_on_asking(&x);
    assert_err(TERN_GONE, rig_fetched(x.second, x.second->fetch));
    assert_int_equal(tickets_left(&x.p), 0);
    assert_int_equal(rig_view(x.p.source).serves, 0);
}

/* The first fetch learns that it was given up and confirms that: the ticket stands for the next. */
TEST(y6_ticket_of_a_fetch_that_was_given_up_is_served_again_when_its_peer_agrees)
{
    struct crossed x = cross(false);

    goes_on_asking(&x);
    assert_err(TERN_TIMED_OUT, rig_fetched(x.first, x.first->fetch));
    assert_ok(rig_fetched(x.second, x.second->fetch));
    assert_lengths(x.second, FULL, LEN, LEN);
    assert_int_equal(tickets_left(&x.p), 0);
}

/* The same when the connection ends without an answer. */
TEST(y6_ticket_of_a_fetch_that_was_given_up_is_served_again_when_its_connection_ends)
{
    struct crossed x = cross(false);

    rig_link_down(x.p.dest, 0);
    goes_on_asking(&x);
    assert_err(TERN_PEER_LOST, rig_fetched(x.first, x.first->fetch));
    assert_ok(rig_fetched(x.second, x.second->fetch));
    assert_int_equal(tickets_left(&x.p), 0);
}

/* Y3: a ticket ends at its deadline or when it is dropped, even if a peer never answers how its
 * fetch ended. */
TEST(y3_ticket_ends_while_the_end_of_a_fetch_is_awaited)
{
    for (uint32_t drop = 0; drop < 2; drop++) {
        struct crossed x = cross(false);

        assert_int_equal(rig_view(x.p.source).serves, 1);
        if (drop)
            assert_ok(ticket_ask(x.p.source, x.p.se.conn[0], OP_TICKET_DROP, x.t, 0));
        else
            rig_advance(x.p.source, 20000000000u);
        assert_int_equal(tickets_left(&x.p), 0);
        assert_int_equal(rig_view(x.p.source).serves, 0);
        assert_int_equal(source_pages(&x.p).ticket, 0);
        rig_destroy_all();
    }
}

/* Y6: the connection ended before the source learned of the end. The fetch that is served then ends
 * when a later message names that end. */
TEST(y6_ticket_that_was_used_up_is_served_to_nobody_else)
{
    struct crossed x = cross(true);
    struct peer_msg done = last_said(x.p.dest);

    assert_int_equal(done.kind, PEER_PULL_DONE);
    x.p.dest->automatic = RIG_ALL;
    rig_link_down(x.p.dest, 0);
    x.other->automatic = BY_HAND(RIG_PULL);
    x.p.source->automatic = RIG_ALL;
    rig_runs_free(x.p.source);
    rig_advance(x.other, 100 * NS_PER_MS);
    assert_false(ended(x.second)); /* its pages arrive */
    rig_link_up(x.p.dest, 0, x.p.source, x.p.source->options.limits.peers);
    dest_says(&x.p, &done);
    assert_err(TERN_GONE, rig_fetched(x.second, x.second->fetch));
    assert_int_equal(tickets_left(&x.p), 0);
}

/* T2, Y4: a repeated Match changes nothing, so the session has given up no token. */
TEST(y4_repeated_match_of_a_followed_session_is_no_cut)
{
    for (uint32_t other = 0; other < 2; other++) {
        struct pair p = pair_limited(1 << 20);
        struct rig_session *s = session_with(p.source, &p.se, p.sp, 1, LEN),
                           *d = asking(&p, 1, LEN);
        uint32_t tokens[LEN + 3];

        memcpy(tokens, rig_tokens(1, LEN + 3), sizeof tokens);
        tokens[30] ^= other;
        follow(d, ticket_early(s));
        assert_ok(rig_match(s, tokens, LEN + 3)); /* the source has allocated nothing yet */
        assert_int_equal(ended(d), other);
        if (other) {
            assert_err(TERN_INVALID, rig_fetched(d, d->fetch));
        } else {
            goes_on(s, 1, LEN, 0);
            hand_over(s, 0, 0);
            assert_ok(rig_fetched(d, d->fetch));
            assert_lengths(d, FULL, LEN, LEN);
        }
        rig_destroy_all();
    }
}

/* Y4: chunks that a followed session loads from its host tier are offered in the same step; the rig
 * finds offers that are missing. */
TEST(y4_what_comes_back_from_the_host_is_offered_at_once)
{
    struct rig_options o = OPTIONS_WITH(limits.peer_bytes_in_flight = 1 << 20);
    struct pair p = pair_with_host(o, 4, 64, 64, 512u * 33, 0);
    struct rig_session *s, *d;

    rig_put(p.source, &p.se, p.sp, 1, 20);
    demote_pool(p.source, p.sp);
    s = session_with(p.source, &p.se, p.sp, 1, LEN);
    assert_lengths(s, 0, 0, 0);
    d = asking(&p, 1, LEN);
    follow(d, ticket_early(s));
    assert_int_equal(come_so_far(d), 0);
    assert_ok(rig_fetched(s, rig_fetch(s, PEER_HOST, 0)));
    assert_lengths(s, 20, 20, 20);
    assert_int_equal(come_so_far(d), 20);
}

/* Y1: a forged ticket is DENIED, even if the true one was used up meanwhile. A session without
 * tokens has nothing to fetch. */
TEST(y1_who_shows_another_key_does_not_hear_what_became_of_the_ticket)
{
    struct pair p = pair_limited(1 << 20);
    struct ticket t = hand_over(computed(&p), 0, 0), forged = t;
    struct rig_session *d = asking(&p, 1, LEN), *thief = asking(&p, 1, LEN);

    forged.key[0] ^= 1;
    p.dest->automatic = BY_HAND(RIG_MSG);
    ticket_fetch(d, t);
    ticket_fetch(thief, forged);
    rig_complete(p.dest, RIG_MSG); /* the first one's question: it runs through */
    assert_ok(rig_fetched(d, d->fetch));
    assert_null(rig_reply_to(p.dest, thief->fetch));
    p.dest->automatic = RIG_ALL;
    rig_runs_free(p.dest);
    assert_err(TERN_DENIED, rig_fetched(thief, thief->fetch));
}

TEST(y4_session_without_tokens_follows_nothing)
{
    struct pair p = pair_limited(1 << 20);
    struct rig_session *s = rig_session(p.source, &p.se, p.sp, 1),
                       *d = rig_session(p.dest, &p.de, p.dp, 1);
    struct ticket t;

    assert_ok(rig_match(s, seq1, 16));
    assert_ok(rig_match(d, seq1, 0));
    t = ticket_early(s);
    follow(d, t);
    assert_err(TERN_INVALID, rig_fetched(d, d->fetch));
    assert_int_equal(rig_view(p.source).serves, 0);
    assert_int_equal(rig_view(p.dest).pulls, 0);
}

/* The destination's open, changed to the offer of a source that lies. */
static struct peer_msg forged_offer(const struct pair *p, const struct table_run *run)
{
    struct peer_msg offer = rig_job(p->dest, RIG_MSG, 0)->msg;

    offer.kind = PEER_PULL_OFFER;
    offer.err = TERN_OK;
    offer.serve = (struct serve_id){1, 1};
    offer.runs = run;
    offer.nruns = 1;
    offer.tokens = NULL;
    offer.ticket = (struct ticket){0};
    return offer;
}

/* A peer offers a follower nothing, yet does not mark the offer as the last: pages of its next
 * offer would go to pages that the fetch does not have. */
TEST(y4_offer_of_nothing_that_goes_on_closes_the_link)
{
    struct followed f = begin();
    struct page_ref refs[8] = {{1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}, {6, 1}, {7, 1}, {8, 1}};
    struct table_run run = {.n = 8, .refs = refs};
    struct peer_msg offer;

    goes_on(f.s, 1, 8, 0);
    assert_ok(fetch_to(f.d, 8)); /* tokens that it has before */
    f.p.dest->automatic = BY_HAND(RIG_MSG);
    follow(f.d, f.t);
    offer = forged_offer(&f.p, &run);
    offer.to = offer.from;
    offer.until = 1;
    source_says(&f.p, &offer);
    assert_int_equal(f.p.dest->link_closes, 1);
    assert_err(TERN_PEER_LOST, rig_fetched(f.d, f.d->fetch));
}

/* The same for an offer that names no pages, but tokens that the follower has already: nothing
 * could be published. */
TEST(y4_piece_that_brings_nothing_closes_the_link)
{
    struct followed f = begin();
    struct table_run run = {0};
    struct peer_msg offer;

    assert_ok(rig_run_to(f.d, rig_tokens(1, LEN), LEN)); /* it has all tokens */
    f.p.dest->automatic = BY_HAND(RIG_MSG);
    follow(f.d, f.t);
    offer = forged_offer(&f.p, &run);
    assert_int_equal(offer.from, FULL);
    offer.until = 4;
    source_says(&f.p, &offer);
    assert_int_equal(f.p.dest->link_closes, 1);
    assert_err(TERN_PEER_LOST, rig_fetched(f.d, f.d->fetch));
    assert_lengths(f.d, 0, LEN, LEN);
}
