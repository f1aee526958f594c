/* X11: fetches that name no peer, and Blocks requests that ask peers. */
#include "unit/rig/rig_pair.h"

#define PEERS  3
#define TOKENS 32 /* 8 pages of 4 tokens */
#define ASK_NS (ASK_MS * NS_PER_MS)

/* The destination's link i leads to host i. */
struct hosts {
    struct rig *dest, *host[PEERS];
    struct rig_engine de, e[PEERS];
    struct pool_id dp, pool[PEERS];
    struct rig_session *d; /* with the tokens of sequence 1, nothing fetched yet */
    uint64_t began_ns;
};

static struct rig_options options(void)
{
    struct rig_options o = rig_defaults();

    o.limits.peers = PEERS;
    o.limits.links = 2 * PEERS;
    return o;
}

static struct hosts start_with(struct rig_options o, uint32_t up)
{
    struct hosts h = {.dest = rig_create(&o)};

    h.de = rig_engine(h.dest, 0, "decode", 1);
    h.dp = rig_pool_pages(h.dest, &h.de, 4, 64);
    for (uint32_t i = 0; i < PEERS; i++) {
        o.incarnation = 0x3000 + i;
        h.host[i] = rig_create(&o);
        h.e[i] = rig_engine(h.host[i], 0, "prefill", 1);
        h.pool[i] = rig_pool_pages(h.host[i], &h.e[i], 4, 64);
        if (i < up)
            rig_link_up(h.dest, i, h.host[i], PEERS);
    }
    h.d = session_with(h.dest, &h.de, h.dp, 1, TOKENS);
    h.began_ns = h.dest->now_ns;
    return h;
}

static struct hosts start(void)
{
    return start_with(options(), PEERS);
}

/* The host commits [0, n) of sequence 1. */
static void has(struct hosts *h, uint32_t host, uint32_t n)
{
    rig_put(h->host[host], &h->e[host], h->pool[host], 1, n);
}

static void hold(struct hosts *h, uint32_t host)
{
    h->host[host]->automatic = BY_HAND(RIG_MSG);
}

/* Delivers the next message of the host; the messages behind it wait. */
static void says_it(struct hosts *h, uint32_t host)
{
    rig_complete(h->host[host], RIG_MSG);
}

static uint64_t any(struct hosts *h)
{
    return rig_fetch(h->d, PEER_ANY, 0);
}

static const struct reply *answer_of(struct hosts *h)
{
    return rig_reply_to(h->dest, h->d->fetch);
}

#define comes_from(h, from, n)                                                                     \
    do {                                                                                           \
        assert_leaves_whole(rig_fetched((h)->d, (h)->d->fetch), (h)->d, n);                        \
        assert_int_equal(answer_of(h)->fetch.nhosts, 1);                                           \
        assert_int_equal(answer_of(h)->fetch.hosts[0], from);                                      \
    } while (0)

/* The fetch ended without a token. */
#define brings_nothing(h)                                                                          \
    do {                                                                                           \
        assert_leaves(rig_fetched((h)->d, (h)->d->fetch), (h)->d, 0, 0, 0);                        \
        assert_int_equal(answer_of(h)->fetch.nhosts, 0);                                           \
    } while (0)

static uint32_t served(struct hosts *h)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < PEERS; i++)
        n += h->host[i]->pulled_pages > 0 || rig_view(h->host[i]).serves > 0;
    return n;
}

static void ends_clean(struct hosts *h)
{
    assert_ok(rig_close(h->d, 0));
    assert_int_equal(rig_view(h->dest).pulls, 0);
    assert_int_equal(served(h), 0);
    for (uint32_t i = 0; i < PEERS; i++)
        assert_int_equal(h->host[i]->link_closes + h->dest->link_closes, 0);
}

/* One step copies the tokens for each peer, so a question to many peers has fewer. */
TEST(x11_question_to_many_peers_is_about_fewer_tokens)
{
    enum { MANY = 16 };
    struct rig_options o = options();
    struct hosts h;

    o.limits.peers = MANY;
    o.limits.links = 2 * MANY;
    o.limits.token_blocks = 65536;
    h = start_with(o, 0);
    for (uint32_t i = 0; i < MANY; i++)
        rig_link_up(h.dest, i, h.host[0], MANY + i);
    h.dest->automatic = BY_HAND(RIG_MSG);
    h.d = session_with(h.dest, &h.de, h.dp, 1, ASK_TOKENS_MAX);
    any(&h);
    for (uint32_t i = 0; i < MANY; i++)
        assert_int_equal(rig_job(h.dest, RIG_MSG, i)->msg.to, ASK_TOKENS_SENT / MANY);
}

TEST(x11_any_brings_it_from_the_peer_that_has_most)
{
    struct hosts h = start();

    has(&h, 0, 16);
    has(&h, 1, TOKENS);
    has(&h, 2, 8);
    any(&h);
    comes_from(&h, 1, TOKENS);
    assert_int_equal(h.dest->now_ns, h.began_ns); /* no wait */
    ends_clean(&h);
}

TEST(x11_any_takes_the_first_of_equal_answers)
{
    struct hosts h = start();

    for (uint32_t i = 0; i < PEERS; i++)
        has(&h, i, TOKENS);
    hold(&h, 0);
    hold(&h, 1);
    h.host[2]->automatic = RIG_ALL;
    any(&h);
    comes_from(&h, 2, TOKENS); /* has all, so nobody waits for the others */
    says_it(&h, 0);
    says_it(&h, 1); /* these answers change nothing */
    ends_clean(&h);
}

TEST(x11_peer_that_does_not_answer_costs_the_deadline)
{
    struct hosts h = start();

    has(&h, 0, TOKENS);
    has(&h, 1, 16);
    hold(&h, 0);
    any(&h);
    assert_true(!answer_of(&h));
    assert_int_equal(core_deadline(h.dest->core), h.began_ns + ASK_NS);
    rig_advance(h.dest, ASK_NS - 1);
    assert_true(!answer_of(&h));
    rig_advance(h.dest, 1);
    comes_from(&h, 1, 16);
    says_it(&h, 0); /* late */
    ends_clean(&h);
}

TEST(x11_any_with_nobody_to_ask_answers_at_once)
{
    struct hosts h = start_with(options(), 0);
    struct event up = {.kind = EV_LINK_UP, .link = {.link = 0, .incarnation = 7}};

    any(&h);
    brings_nothing(&h);
    h.dest->link[0].rig = h.host[0];
    rig_event(h.dest, &up); /* a peer that shares no tenant */
    any(&h);
    brings_nothing(&h);
    up.link.incarnation = h.dest->options.incarnation; /* the daemon itself */
    up.link.tenants = 3;
    rig_event(h.dest, &up);
    any(&h);
    brings_nothing(&h);
    h.dest->link[0].rig = NULL; /* host 0 knows no such link */
    ends_clean(&h);
}

TEST(x11_any_of_what_nobody_has_brings_nothing)
{
    struct hosts h = start();

    any(&h);
    brings_nothing(&h);
    assert_int_equal(h.dest->now_ns, h.began_ns);
    ends_clean(&h);
}

/* A question changes nothing at the peer, and neither does an answer. */
TEST(x11_question_changes_nothing_at_the_peer)
{
    struct hosts h = start();
    uint64_t before;

    has(&h, 0, 16);
    hold(&h, 0);
    before = core_changes(h.host[0]->core);
    any(&h);
    assert_int_equal(rig_jobs(h.host[0], RIG_MSG), 1);
    assert_true(core_changes(h.host[0]->core) == before);
    assert_int_equal(rig_view(h.host[0]).serves, 0);
    rig_drop(h.host[0], RIG_MSG);
    assert_ok(rig_fetch_cancel(h.d));
    assert_err(TERN_GONE, rig_fetched(h.d, h.d->fetch));
    ends_clean(&h);
}

/* A peer answers a question in just the cases in which it would offer to a fetch. */
TEST(x11_peer_answers_for_the_tenant_and_namespace_alone)
{
    struct hosts h = start();
    struct rig_engine theirs = rig_engine(h.host[0], 1, "theirs", 1);
    struct rig_session *other;
    struct peer_msg ask;

    rig_put(h.host[0], &theirs, rig_pool_pages(h.host[0], &theirs, 4, 64), 1, TOKENS);
    other = rig_session(h.host[1], &h.e[1], h.pool[1], 2);
    computes(other, 1, TOKENS);
    assert_ok(rig_commit(other, TOKENS, 0));
    assert_ok(rig_close(other, 0));
    h.dest->automatic = BY_HAND(RIG_MSG);
    any(&h);
    ask = rig_job(h.dest, RIG_MSG, 0)->msg;
    for (uint32_t i = 0; i < 2; i++) {
        hold(&h, i);
        says(h.host[i], PEERS, &ask);
        assert_int_equal(rig_job(h.host[i], RIG_MSG, 0)->msg.tokens[0], 0);
        rig_drop(h.host[i], RIG_MSG);
    }
    ask.tenant = NONE; /* the peer's entry does not list the tenant */
    says(h.host[0], PEERS, &ask);
    assert_err(TERN_DENIED, rig_job(h.host[0], RIG_MSG, 0)->msg.err);
    assert_int_equal(rig_job(h.host[0], RIG_MSG, 0)->msg.blob_bytes, 0);
    rig_drop(h.host[0], RIG_MSG);
}

/* The fetch goes to the peer with the next best answer. */
TEST(x11_peer_that_lies_costs_a_fetch_of_nothing)
{
    struct hosts h = start();
    const uint32_t all = TOKENS;
    struct peer_msg lie;

    has(&h, 1, 16);
    hold(&h, 0);
    any(&h);
    lie = rig_job(h.host[0], RIG_MSG, 0)->msg;
    assert_int_equal(lie.each, TOKENS);
    lie.tokens = &all;
    rig_drop(h.host[0], RIG_MSG);
    h.host[0]->automatic = RIG_ALL;
    says(h.dest, 0, &lie);
    comes_from(&h, 1, 16);
    ends_clean(&h);
}

TEST(x11_answer_that_is_none_counts_as_nothing)
{
    static const uint32_t huge[2] = {UINT32_MAX, UINT32_MAX};

    for (uint32_t way = 0; way < 5; way++) {
        struct hosts h = start();
        struct peer_msg m;

        has(&h, 1, 16);
        hold(&h, 0);
        any(&h);
        m = rig_job(h.host[0], RIG_MSG, 0)->msg;
        rig_drop(h.host[0], RIG_MSG);
        switch (way) {
        case 0: m.blob_bytes = 0; break;
        case 1: m.err = TERN_GONE; break;
        case 2: m.tokens = huge; break; /* more than it will offer */
        case 3: m.each = 0; break;      /* a daemon that knows no questions, with nothing */
        default: m.pull.gen++; break;   /* for no question: ends by time */
        }
        h.host[0]->automatic = RIG_ALL;
        says(h.dest, 0, &m);
        says(h.dest, 0, &m); /* a repetition is no answer */
        if (way == 4)
            rig_advance(h.dest, ASK_NS);
        comes_from(&h, 1, 16);
        ends_clean(&h);
    }
}

/* The destination still waits for the peers that have not answered. */
TEST(x11_peer_that_answers_twice_counts_once)
{
    struct hosts h = start();
    struct peer_msg nothing;

    has(&h, 1, 16);
    hold(&h, 0);
    hold(&h, 1);
    any(&h);
    nothing = rig_job(h.host[0], RIG_MSG, 0)->msg;
    says(h.dest, 0, &nothing);
    says(h.dest, 0, &nothing);
    assert_true(!answer_of(&h));
    h.host[1]->automatic = RIG_ALL;
    rig_settle(h.host[1]);
    comes_from(&h, 1, 16);
    ends_clean(&h);
}

/* A peer that knows no questions sends an offer: its transfer is ended, and another one begins. */
TEST(x11_peer_of_an_older_version_offers)
{
    struct hosts h = start();
    struct peer_msg ask;

    has(&h, 0, 16);
    h.dest->automatic = BY_HAND(RIG_MSG);
    any(&h);
    ask = rig_job(h.dest, RIG_MSG, 0)->msg;
    ask.each = 0;
    says(h.host[0], PEERS, &ask); /* as an older daemon reads it */
    assert_int_equal(rig_view(h.host[0]).serves, 1);
    rig_drop(h.dest, RIG_MSG);
    h.dest->automatic = RIG_ALL;
    rig_settle(h.dest);
    comes_from(&h, 0, 16);
    ends_clean(&h);
}

TEST(x11_peer_that_is_lost_is_not_waited_for)
{
    struct hosts h = start();

    has(&h, 1, 16);
    hold(&h, 0);
    any(&h);
    rig_link_down(h.dest, 0);
    comes_from(&h, 1, 16);
    assert_int_equal(h.dest->now_ns, h.began_ns);
    ends_clean(&h);
}

TEST(x11_chosen_peer_that_is_lost_makes_way_for_the_next)
{
    struct hosts h = start();

    has(&h, 0, TOKENS);
    has(&h, 1, 16);
    hold(&h, 0);
    hold(&h, 1);
    any(&h);
    says_it(&h, 1);
    says_it(&h, 0); /* it has all, so the fetch goes there */
    assert_int_equal(rig_jobs(h.host[0], RIG_MSG), 1);
    h.host[1]->automatic = RIG_ALL;
    rig_link_down(h.dest, 0);
    comes_from(&h, 1, 16);
    ends_clean(&h);
}

/* Once pages move, the fetch ends as one from a peer that was named. */
TEST(x11_peer_that_is_lost_while_pages_move_ends_the_fetch)
{
    struct hosts h = start();

    has(&h, 0, TOKENS);
    has(&h, 1, 16);
    h.dest->automatic = BY_HAND(RIG_PULL);
    any(&h);
    rig_link_down(h.dest, 0);
    assert_err(TERN_PEER_LOST, rig_fetched(h.d, h.d->fetch));
    ends_clean(&h);
}

/* A message of the peer that lost the fetch belongs to no fetch any more. */
TEST(x11_messages_of_a_peer_that_lost_the_fetch_are_too_late)
{
    struct hosts h = start();
    struct peer_msg nothing;

    has(&h, 0, TOKENS);
    has(&h, 1, 16);
    hold(&h, 0);
    hold(&h, 1);
    any(&h);
    says_it(&h, 1);
    says_it(&h, 0);
    nothing = rig_job(h.host[0], RIG_MSG, 0)->msg;
    nothing.nruns = nothing.to = nothing.from = 0;
    says(h.dest, 0, &nothing); /* with its serve, which has to end */
    assert_int_equal(rig_view(h.host[0]).serves, 0);
    says_it(&h, 0); /* its offer */
    h.host[1]->automatic = RIG_ALL;
    rig_settle(h.host[1]);
    comes_from(&h, 1, 16);
    ends_clean(&h);
}

TEST(x11_cancel_and_end_of_the_session_take_the_question_along)
{
    struct hosts h = start();

    h.dest->automatic = BY_HAND(RIG_MSG);
    any(&h);
    assert_ok(rig_fetch_cancel(h.d));
    assert_err(TERN_GONE, rig_fetched(h.d, h.d->fetch));
    any(&h);
    assert_ok(rig_abort(h.d, 0));
    assert_err(TERN_GONE, rig_fetched(h.d, h.d->fetch));
    while (rig_jobs(h.dest, RIG_MSG))
        rig_complete(h.dest, RIG_MSG);
    ends_clean(&h);
}

/* T22: questions are limited for each tenant, and in all. */
TEST(x11_questions_are_limited)
{
    struct rig_options o = options();
    struct hosts h;
    struct rig_session *second, *third, *theirs;
    struct rig_engine e;

    o.limits.asks = 3;
    o.limits.reserved_percent = 70; /* one for each tenant */
    h = start_with(o, PEERS);
    second = session_with(h.dest, &h.de, h.dp, 2, TOKENS);
    third = session_with(h.dest, &h.de, h.dp, 3, TOKENS);
    e = rig_engine(h.dest, 1, "theirs", 1);
    theirs = session_with(h.dest, &e, rig_pool_pages(h.dest, &e, 4, 64), 1, TOKENS);
    h.dest->automatic = BY_HAND(RIG_MSG);
    any(&h);
    rig_fetch(second, PEER_ANY, 0);
    rig_fetch(third, PEER_ANY, 0);
    assert_err(TERN_BUSY, rig_fetched(third, third->fetch));
    assert_non_null(strstr(h.dest->last->text, "questions to peers"));
    rig_fetch(theirs, PEER_ANY, 0);
    assert_true(!rig_reply_to(h.dest, theirs->fetch));
    rig_advance(h.dest, ASK_NS);
    assert_ok(rig_fetched(second, second->fetch));
}

TEST(x11_any_waits_for_no_source)
{
    struct hosts h = start();

    h.d->at_least = TOKENS;
    any(&h);
    assert_err(TERN_INVALID, rig_fetched(h.d, h.d->fetch));
    h.d->at_least = 0;
    ends_clean(&h);
}

/* --- blocks --- */

static const struct reply *blocks_ask_in(struct hosts *h, struct pool_id pool, uint32_t host,
                                         struct req_tokens keys)
{
    struct request r = {.op = OP_BLOCKS,
                        .blocks = {.pool = pool,
                                   .ns = {.hi = 1, .lo = 1},
                                   .what = BLOCKS_ASK,
                                   .keys = keys,
                                   .host = host}};
    const struct reply *reply = rig_request(h->dest, h->de.conn[0], &r);

    return reply ? reply : rig_reply_to(h->dest, r.request_id);
}

/* Asks one host about one key. */
static const struct reply *blocks_ask_of(struct hosts *h, uint32_t host)
{
    return blocks_ask_in(h, h->dp, host, (struct req_tokens){.v = rig_tokens(1, 4), .n = 4});
}

static const struct reply *blocks_ask(struct hosts *h, const uint32_t *keys, uint32_t n)
{
    return blocks_ask_in(h, h->dp, PEER_ANY, (struct req_tokens){.v = keys, .n = 4 * n});
}

static uint32_t host_of(const struct reply *r, uint32_t i)
{
    uint32_t k = r->runs[0].refs[i].gen;

    assert_int_equal(r->runs[0].refs[i].index, 0);
    if (k == BLOCK_NOWHERE)
        return NONE;
    assert_true(k >= BLOCK_ELSEWHERE && k - BLOCK_ELSEWHERE < r->blocks.nhosts);
    return r->blocks.hosts[k - BLOCK_ELSEWHERE];
}

TEST(x11_blocks_are_found_at_the_first_peer_that_has_each)
{
    struct hosts h = start();
    uint32_t keys[4 * 4];
    const struct reply *r;

    for (uint32_t i = 0; i < 4; i++)
        memcpy(keys + 4 * i, rig_tokens(1 + i, 4), sizeof(uint32_t[4]));
    rig_put(h.host[0], &h.e[0], h.pool[0], 3, 4);
    rig_put(h.host[2], &h.e[2], h.pool[2], 1, 4);
    rig_put(h.host[2], &h.e[2], h.pool[2], 3, 8);
    r = blocks_ask(&h, keys, 4);
    assert_non_null(r);
    assert_ok(r->err);
    assert_int_equal(r->runs[0].n, 4);
    assert_int_equal(host_of(r, 0), 2);
    assert_int_equal(host_of(r, 1), NONE);
    assert_int_equal(host_of(r, 2), 0);
    assert_int_equal(host_of(r, 3), NONE);
    hold(&h, 0);
    r = blocks_ask(&h, keys, 4);
    assert_null(r);
    rig_advance(h.dest, ASK_NS);
    assert_int_equal(host_of(h.dest->last, 2), 2);
    assert_ok(blocks_ask(&h, keys, 0)->err);
    ends_clean(&h);
}

TEST(x11_blocks_are_asked_for_at_the_host_that_is_named)
{
    struct hosts h = start();
    const struct reply *r;

    for (uint32_t i = 0; i < 2; i++)
        rig_put(h.host[i], &h.e[i], h.pool[i], 1, 4);
    r = blocks_ask_of(&h, 1);
    assert_non_null(r);
    assert_int_equal(host_of(r, 0), 1);
    assert_int_equal(r->blocks.nhosts, 1);
    rig_link_down(h.dest, 1);
    h.dest->automatic = BY_HAND(RIG_MSG);
    r = blocks_ask_of(&h, 1); /* answered at once; no other peer is asked */
    assert_non_null(r);
    assert_int_equal(host_of(r, 0), NONE);
    for (uint32_t i = 0; i < 2; i++) { /* no slot of a peer; no name at all */
        r = blocks_ask_of(&h, i ? NONE : PEER_DISK);
        assert_non_null(r);
        assert_int_equal(host_of(r, 0), NONE);
    }
    assert_int_equal(rig_jobs(h.dest, RIG_MSG), 0);
    ends_clean(&h);
}

TEST(x11_blocks_with_nobody_to_ask_are_nowhere_at_once)
{
    struct hosts h = start_with(options(), 0);
    const struct reply *r = blocks_ask(&h, rig_tokens(1, 8), 2);

    assert_ok(r->err);
    assert_int_equal(r->runs[0].n, 2);
    assert_int_equal(host_of(r, 0), NONE);
    assert_int_equal(host_of(r, 1), NONE);
}

TEST(x11_blocks_of_too_many_keys_are_refused)
{
    struct hosts h = start();

    assert_err(TERN_INVALID,
               blocks_ask(&h, rig_tokens(1, 4 * BLOCKS_ASKED_MAX + 4), BLOCKS_ASKED_MAX + 1)->err);
    assert_ok(blocks_ask(&h, rig_tokens(1, 4 * BLOCKS_ASKED_MAX), BLOCKS_ASKED_MAX)->err);
}

/* The limit is that of a message to a peer, even if the client's frame had room for more. */
TEST(x11_blocks_of_too_many_tokens_are_refused)
{
    static uint32_t tokens[ASK_TOKENS_MAX + 128];
    struct hosts h = start();
    struct pool_id pool = rig_pool_pages(h.dest, &h.de, 128, 64);
    struct req_tokens keys = {.v = tokens, .n = ASK_TOKENS_MAX + 128};

    assert_err(TERN_INVALID, blocks_ask_in(&h, pool, PEER_ANY, keys)->err);
    keys.n = ASK_TOKENS_MAX;
    assert_ok(blocks_ask_in(&h, pool, PEER_ANY, keys)->err);
}

/* One step copies the tokens for each peer: one peer is too many for them. */
TEST(x11_blocks_of_many_tokens_go_to_fewer_peers)
{
    enum { MOST = ASK_TOKENS_SENT / ASK_TOKENS_MAX, MANY = MOST + 1 };
    struct rig_options o = options();
    struct req_tokens keys = {.v = rig_tokens(1, ASK_TOKENS_MAX), .n = ASK_TOKENS_MAX};
    struct hosts h;
    struct pool_id pool;

    o.limits.peers = MANY;
    o.limits.links = 2 * MANY;
    h = start_with(o, 0);
    for (uint32_t i = 0; i < MANY; i++)
        rig_link_up(h.dest, i, h.host[0], MANY + i);
    pool = rig_pool_pages(h.dest, &h.de, 128, 64);
    h.dest->automatic = BY_HAND(RIG_MSG);
    assert_null(blocks_ask_in(&h, pool, PEER_ANY, keys));
    assert_int_equal(rig_jobs(h.dest, RIG_MSG), MOST);
    keys.n = 128;
    assert_null(blocks_ask_in(&h, pool, PEER_ANY, keys));
    assert_int_equal(rig_jobs(h.dest, RIG_MSG), MOST + MANY);
}

/* The connection has ended: no answer is sent, and the record is free. */
TEST(x11_blocks_of_a_connection_that_ends_are_not_answered)
{
    struct rig_options o = options();
    struct hosts h;
    uint32_t replies;

    o.limits.asks = 1;
    h = start_with(o, PEERS);
    h.dest->automatic = BY_HAND(RIG_MSG);
    assert_null(blocks_ask(&h, seq1, 1));
    assert_err(TERN_BUSY, blocks_ask(&h, seq1, 1)->err);
    replies = h.dest->replies_seen;
    rig_disconnect(h.dest, h.de.conn[0]);
    rig_advance(h.dest, ASK_NS);
    assert_int_equal(h.dest->replies_seen, replies);
}
