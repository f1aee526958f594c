/* Resets of namespaces spread to all daemons that pages could be fetched from (N1). */
#include "unit/rig/rig_pair.h"

#define TOKENS 32

static uint64_t resets(struct rig *rig, uint32_t conn, uint64_t ns)
{
    struct request request = {.op = OP_NAMESPACE_RESET};

    request.namespace_reset.ns = (struct namespace_id){.hi = 1, .lo = ns};
    rig_request(rig, conn, &request);
    return request.request_id;
}

static uint32_t depth_at(struct rig *rig, const struct rig_engine *e, struct pool_id pool)
{
    return rig_depth(rig_session(rig, e, pool, 1), seq1, TOKENS);
}

/* Opens a session at the destination and fetches. Returns its committed length then. */
static uint32_t fetched_now(struct pair *p)
{
    struct rig_session *d = asking(p, 1, TOKENS);

    assert_ok(fetch_all(d));
    return d->len.committed;
}

static struct pair offered(void)
{
    struct pair p = pair_limited(1 << 20);

    source_has(&p, 1, TOKENS);
    return p;
}

/* Two daemons fetch from each other: each sends the reset to the other one. */
TEST(n1_reset_is_answered_when_all_have_heard)
{
    struct pair p = PAIR_LIMITED(limits.peers = 1, 4, 128, 64);
    uint64_t id;

    rig_link_up(p.source, 0, p.dest, 1);
    source_has(&p, 1, TOKENS);
    dest_has(&p, 1, 8);
    p.dest->automatic = BY_HAND(RIG_MSG);
    id = resets(p.dest, p.de.conn[0], 1);
    assert_null(rig_reply_to(p.dest, id));
    assert_int_equal(depth_at(p.source, &p.se, p.sp), TOKENS);
    assert_int_equal(depth_at(p.dest, &p.de, p.dp), 0);
    complete_all(p.dest, RIG_MSG);
    assert_int_equal(rig_reply_to(p.dest, id)->namespace_reset.unreached, 0);
    assert_int_equal(rig_reply_to(p.dest, id)->namespace_reset.nodes, 2);
    assert_int_equal(depth_at(p.source, &p.se, p.sp), 0);
    assert_int_equal(rig_view(p.dest).resets_spreading, 0);
    assert_int_equal(rig_view(p.source).resets_spreading, 0);
    assert_int_equal(rig_view(p.dest).namespaces_reset, 1);
    p.dest->automatic = RIG_ALL;
    assert_int_equal(fetched_now(&p), 0);
}

/* A peer whose own peers are away answers that it waits, and answers again when it is done. */
TEST(n1_peer_that_waits_for_its_own_peers_counts_as_unreached)
{
    struct pair p = PAIR_LIMITED(limits.peers = 1, 4, 128, 64);
    uint64_t id;

    id = resets(p.dest, p.de.conn[0], 1);
    assert_int_equal(rig_reply_to(p.dest, id)->namespace_reset.unreached, 1);
    assert_int_equal(rig_view(p.dest).resets_spreading, 1);
    rig_link_up(p.source, 0, p.dest, 1);
    assert_int_equal(rig_view(p.source).resets_spreading, 0);
    assert_int_equal(rig_view(p.dest).resets_spreading, 0);
}

/* A fetch that follows the reset finds nothing, even before the peer has answered. */
TEST(n1_reset_goes_ahead_of_a_later_fetch)
{
    struct pair p = offered();
    struct rig_session *d;

    p.dest->automatic = BY_HAND(RIG_MSG);
    resets(p.dest, p.de.conn[0], 1);
    d = asking(&p, 1, TOKENS);
    rig_fetch(d, 0, 0);
    complete_all(p.dest, RIG_MSG);
    assert_ok(rig_fetched(d, d->fetch));
    assert_int_equal(d->len.committed, 0);
}

/* The peer is away: it receives the reset when it is back, ahead of any fetch. */
TEST(n1_peer_that_was_away_is_told_when_it_is_back)
{
    struct pair p = offered();
    uint64_t id;

    rig_link_down(p.dest, 0);
    id = resets(p.dest, p.de.conn[0], 1);
    assert_int_equal(rig_reply_to(p.dest, id)->namespace_reset.unreached,
                     p.dest->options.limits.peers);
    assert_int_equal(depth_at(p.source, &p.se, p.sp), TOKENS);
    rig_link_up(p.dest, 0, p.source, p.source->options.limits.peers);
    assert_int_equal(depth_at(p.source, &p.se, p.sp), 0);
    assert_int_equal(fetched_now(&p), 0);
}

/* The answer was lost with the link: the peer receives the reset again; nobody waits for ever. */
TEST(n1_peer_that_is_lost_before_its_answer_is_told_again)
{
    struct pair p = offered();
    uint64_t id;

    p.dest->automatic = BY_HAND(RIG_MSG);
    id = resets(p.dest, p.de.conn[0], 1);
    rig_lose_messages(p.dest, 0);
    rig_link_down(p.dest, 0);
    assert_int_equal(rig_reply_to(p.dest, id)->namespace_reset.unreached,
                     p.dest->options.limits.peers);
    p.dest->automatic = RIG_ALL;
    rig_link_up(p.dest, 0, p.source, p.source->options.limits.peers);
    assert_int_equal(depth_at(p.source, &p.se, p.sp), 0);
}

/* The link is lost while the peer waits for its own peers: it receives the reset again, and the
 * sender waits for the whole answer as before. */
TEST(n1_peer_that_is_told_again_still_waits_for_its_own_peers)
{
    struct pair p = PAIR_LIMITED(limits.peers = 1, 4, 128, 64);

    rig_link_up(p.source, 0, p.dest, 1);
    p.source->automatic = BY_HAND(RIG_MSG);
    resets(p.dest, p.de.conn[0], 1);
    assert_int_equal(rig_jobs(p.source, RIG_MSG), 1); /* the message to its own peer */
    rig_link_down(p.dest, 0);
    rig_link_up(p.dest, 0, p.source, 1);
    assert_int_equal(rig_jobs(p.source, RIG_MSG), 1); /* still that message, and no answer yet */
    assert_int_equal(rig_view(p.dest).resets_spreading, 1);
    complete_all(p.source, RIG_MSG);
    assert_int_equal(rig_view(p.dest).resets_spreading, 0);
    assert_int_equal(rig_view(p.source).resets_spreading, 0);
}

/* A session that runs on with old content gets no new content of the same namespace. */
TEST(n1_session_of_a_namespace_that_was_reset_fetches_nothing)
{
    struct pair p = offered();

    p.d = asking(&p, 1, TOKENS);
    assert_ok(fetch_to(p.d, 8));
    resets(p.dest, p.de.conn[0], 1);
    source_has(&p, 1, TOKENS);
    assert_ok(fetch_all(p.d));
    assert_int_equal(p.d->len.committed, 8);
    assert_int_equal(fetched_now(&p), TOKENS);
}

/* At most 64 resets are kept for a peer that is away. A repeated one takes no further record. */
TEST(limits_resets_that_wait_for_peers)
{
    struct pair p = offered();

    rig_link_down(p.dest, 0);
    for (uint32_t i = 0; i < 2 * 64; i++)
        assert_ok(rig_reply_to(p.dest, resets(p.dest, p.de.conn[0], i / 2))->err);
    assert_err(TERN_BUSY, rig_reply_to(p.dest, resets(p.dest, p.de.conn[0], 1000))->err);
    assert_int_equal(rig_view(p.dest).resets_spreading, 64);
}

/* A peer that does not answer in time counts as unreached, so that nobody waits for ever, even if
 * another peer is lost and returns meanwhile. A late answer still counts. */
TEST(n1_peer_that_does_not_answer_counts_as_unreached_in_time)
{
    struct pair p = PAIR_LIMITED(limits.peers = 1, 4, 128, 64);
    const struct reply *r;
    uint64_t id;

    rig_link_up(p.source, 0, p.dest, 1);
    p.dest->automatic = BY_HAND(RIG_MSG);
    id = resets(p.dest, p.de.conn[0], 1);
    rig_advance(p.dest, (RESET_WAIT_MS_MAX - 1) * NS_PER_MS);
    assert_null(rig_reply_to(p.dest, id));
    assert_int_equal(core_deadline(p.dest->core), p.dest->now_ns + NS_PER_MS);
    rig_advance(p.dest, NS_PER_MS);
    r = rig_reply_to(p.dest, id);
    assert_ok(r->err);
    assert_int_equal(r->namespace_reset.unreached, 1);
    assert_true(core_deadline(p.dest->core) > p.dest->now_ns);
    assert_int_equal(rig_view(p.dest).resets_spreading, 1);
    complete_all(p.dest, RIG_MSG);
    assert_int_equal(rig_view(p.dest).resets_spreading, 0);
}

/* The peer that sent the reset is answered at that time, too. */
TEST(n1_peer_that_told_is_answered_in_time)
{
    struct pair p = PAIR_LIMITED(limits.peers = 1, 4, 128, 64);

    rig_link_up(p.source, 0, p.dest, 1);
    p.source->automatic = BY_HAND(RIG_MSG);
    resets(p.dest, p.de.conn[0], 1);
    assert_int_equal(rig_jobs(p.source, RIG_MSG), 1); /* its peer does not answer */
    rig_lose_messages(p.source, 0);
    rig_advance(p.source, RESET_WAIT_MS_MAX * NS_PER_MS);
    assert_int_equal(rig_jobs(p.source, RIG_MSG), 1);
    assert_int_equal(rig_job(p.source, RIG_MSG, 0)->msg.kind, PEER_RESET_DONE);
    assert_err(TERN_PEER_LOST, rig_job(p.source, RIG_MSG, 0)->msg.err);
}

/* However many resets peers send, a tenant's own resets begin as if peers had sent none. */
TEST(limits_resets_of_peers_refuse_none_of_a_tenant)
{
    struct pair p = offered();
    struct event ev = {.kind = EV_PEER_MSG, .peer.link = p.dest->options.limits.peers};
    uint32_t before;

    rig_link_down(p.dest, 0);
    rig_link_up(p.source, 0, p.dest, p.dest->options.limits.peers);
    rig_link_down(p.dest, 0);
    p.dest->automatic = BY_HAND(RIG_MSG);
    ev.peer.msg.kind = PEER_RESET;
    for (uint32_t i = 0; i < 200; i++) {
        ev.peer.msg.reset = 1000 + i;
        ev.peer.msg.ns = (struct namespace_id){.hi = 2, .lo = i};
        rig_event(p.dest, &ev);
    }
    before = rig_jobs(p.dest, RIG_MSG);
    assert_int_equal(rig_view(p.dest).resets_spreading, 64);
    for (uint32_t i = 0; i < 64; i++)
        assert_ok(rig_reply_to(p.dest, resets(p.dest, p.de.conn[0], i))->err);
    assert_true(rig_jobs(p.dest, RIG_MSG) >= before);
    assert_err(TERN_BUSY, rig_reply_to(p.dest, resets(p.dest, p.de.conn[0], 1000))->err);
}

/* ---- peers that leave and join ---- */

static void member(struct rig *rig, uint32_t peer, bool joined)
{
    struct event ev = {.kind = joined ? EV_PEER_JOINED : EV_PEER_LEFT, .member.peer = peer};

    rig_event(rig, &ev);
}

/* A peer that left is waited for no longer, and a fetch from it fails. */
TEST(n1_reset_does_not_wait_for_a_peer_that_left)
{
    struct pair p = PAIR_LIMITED(limits.peers = 2, 4, 128, 64);
    struct rig_session *d;
    uint64_t id;

    source_has(&p, 1, TOKENS);
    member(p.dest, 0, false); /* its link is up: the peer has not left */
    assert_int_equal(fetched_now(&p), TOKENS);
    rig_link_down(p.dest, 0);
    id = resets(p.dest, p.de.conn[0], 1);
    assert_int_equal(rig_reply_to(p.dest, id)->namespace_reset.unreached, 2);
    assert_int_equal(rig_view(p.dest).resets_spreading, 1);
    member(p.dest, 0, false);
    assert_int_equal(rig_view(p.dest).resets_spreading, 1); /* the other one is away, too */
    member(p.dest, 1, false);
    assert_int_equal(rig_view(p.dest).resets_spreading, 0);
    id = resets(p.dest, p.de.conn[0], 1); /* no peer is left */
    assert_int_equal(rig_reply_to(p.dest, id)->namespace_reset.unreached, 0);
    rig_link_up(p.dest, 0, p.source, p.source->options.limits.peers);
    d = asking(&p, 1, TOKENS);
    rig_fetch(d, 0, 0);
    assert_err(TERN_INVALID, rig_fetched(d, d->fetch));
}

/* A peer that joins receives every reset that still spreads, ahead of any fetch. */
TEST(n1_peer_that_joins_hears_of_what_still_spreads)
{
    struct pair p = PAIR_LIMITED(limits.peers = 2, 4, 128, 64);
    uint64_t id;

    source_has(&p, 1, TOKENS);
    rig_link_down(p.dest, 0);
    member(p.dest, 0, false);
    id = resets(p.dest, p.de.conn[0], 1);
    assert_int_equal(rig_reply_to(p.dest, id)->namespace_reset.unreached, 1);
    member(p.dest, 0, true);
    rig_link_up(p.dest, 0, p.source, p.source->options.limits.peers);
    assert_int_equal(depth_at(p.source, &p.se, p.sp), 0);
    assert_int_equal(fetched_now(&p), 0);
}
