/* N1: a reset takes effect once at each daemon, and never after a later one of the same daemon.
 * Routes and delays of its messages, and restarts meanwhile, do not matter. */
#include "base/hash.h"
#include "unit/rig/rig_pair.h"

#define TOKENS 32
#define PEERS  2

static uint64_t resets(struct rig *rig, const struct rig_engine *e)
{
    struct request request = {.op = OP_NAMESPACE_RESET};

    request.namespace_reset.ns = (struct namespace_id){.hi = 1, .lo = 1};
    rig_request(rig, e->conn[0], &request);
    return request.request_id;
}

static uint32_t unreached(struct rig *rig, uint64_t reset)
{
    const struct reply *r = rig_reply_to(rig, reset);

    assert_non_null(r);
    assert_ok(r->err);
    return r->namespace_reset.unreached;
}

static struct peer_msg of_reset(uint64_t origin, uint64_t number, uint32_t hops)
{
    return (struct peer_msg){.kind = PEER_RESET,
                             .reset = hash_mix(origin, number),
                             .origin = origin,
                             .number = number,
                             .hops = hops,
                             .ns = {.hi = 1, .lo = 1}};
}

/* --- one daemon, and messages of its peers --- */

#define IN(n) (PEERS + (n)) /* the link of its n-th peer to it */

struct one {
    struct rig *rig;
    struct rig_engine e;
    struct pool_id pool;
};

/* Two peers call the daemon, and it calls all but the last `away` of them. The messages that it
 * sends wait in its jobs. */
static struct one one_start(uint32_t away)
{
    struct rig_options options = OPTIONS_WITH(limits.peers = 2);
    struct one o = {.rig = rig_create(&options)};

    o.e = rig_engine(o.rig, 0, "e", 1);
    o.pool = rig_pool_pages(o.rig, &o.e, 4, 64);
    for (uint32_t p = 0; p < 2; p++) {
        struct rig *peer;

        options.incarnation = 0x9000 + p;
        peer = rig_create(&options);
        rig_link_up(peer, 0, o.rig, IN(p));
        if (p + away < 2)
            rig_link_up(o.rig, p, peer, IN(0));
    }
    o.rig->automatic = BY_HAND(RIG_MSG);
    return o;
}

static void has(const struct one *o)
{
    rig_put(o->rig, &o->e, o->pool, 1, TOKENS);
}

static uint32_t depth(const struct one *o)
{
    return rig_depth(rig_session(o->rig, &o->e, o->pool, 1), seq1, TOKENS);
}

/* The error in the oldest answer that the daemon has sent over `link`. */
static enum tern_err answers(const struct one *o, uint32_t link)
{
    struct rig_job *job = rig_job(o->rig, RIG_MSG, 0);
    enum tern_err err;

    assert_non_null(job);
    assert_int_equal(job->link, link);
    assert_int_equal(job->msg.kind, PEER_RESET_DONE);
    err = job->msg.err;
    rig_drop(o->rig, RIG_MSG);
    return err;
}

/* Peers that received the reset answer with `err` (PEER_LOST: in part). Returns their number. */
static uint32_t peer_says(const struct one *o, enum tern_err err)
{
    uint32_t n = 0;

    for (struct rig_job *job = rig_job(o->rig, RIG_MSG, 0); job && job->msg.kind == PEER_RESET;
         job = rig_job(o->rig, RIG_MSG, 0)) {
        const struct peer_msg done = {.kind = PEER_RESET_DONE, .reset = job->msg.reset, .err = err};
        const uint32_t link = job->link;

        rig_drop(o->rig, RIG_MSG);
        says(o->rig, link, &done);
        n++;
    }
    return n;
}

static uint32_t peer_hears(const struct one *o)
{
    return peer_says(o, TERN_OK);
}

static void hears(const struct one *o, uint32_t peer, const struct peer_msg *m)
{
    says(o->rig, IN(peer), m);
    peer_hears(o);
}

static void told_of(const struct one *o, uint32_t peer, uint64_t number, uint32_t hops)
{
    const struct peer_msg m = of_reset(77, number, hops);

    hears(o, peer, &m);
}

TEST(n1_reset_that_is_told_twice_takes_effect_once)
{
    struct one o = one_start(0);

    has(&o);
    told_of(&o, 0, 5, 0);
    assert_ok(answers(&o, IN(0)));
    assert_int_equal(depth(&o), 0);
    has(&o);
    told_of(&o, 0, 5, 0);
    assert_ok(answers(&o, IN(0)));
    told_of(&o, 1, 5, 1);
    assert_ok(answers(&o, IN(1)));
    assert_int_equal(depth(&o), TOKENS);
}

TEST(n1_reset_takes_no_effect_behind_a_later_one)
{
    struct one o = one_start(0);

    told_of(&o, 0, 5, 0);
    assert_ok(answers(&o, IN(0)));
    has(&o);
    told_of(&o, 1, 4, 3);
    assert_ok(answers(&o, IN(1)));
    assert_int_equal(depth(&o), TOKENS);
    assert_int_equal(rig_view(o.rig).resets_spreading, 0);
    told_of(&o, 1, 6, 3); /* a later one takes effect */
    assert_int_equal(depth(&o), 0);
}

/* The order covers one daemon and one namespace only; a reset without an order takes effect. */
TEST(n1_order_is_that_of_one_daemon_and_one_namespace)
{
    struct one o = one_start(0);
    struct peer_msg m = of_reset(77, 5, 0);

    m.ns.lo = 2;
    hears(&o, 0, &m);
    has(&o);
    told_of(&o, 0, 4, 0);
    assert_int_equal(depth(&o), 0);
    has(&o);
    m = of_reset(78, 3, 0);
    hears(&o, 0, &m);
    assert_int_equal(depth(&o), 0);
    has(&o);
    m = (struct peer_msg){.kind = PEER_RESET, .reset = 9, .ns = {.hi = 1, .lo = 1}};
    hears(&o, 0, &m);
    assert_int_equal(depth(&o), 0);
}

/* The earlier reset is not over: its peer still waits for an answer, which is sent with that of the
 * later one. */
TEST(n1_earlier_reset_is_answered_with_the_later_one)
{
    struct one o = one_start(1);

    told_of(&o, 0, 5, 0);
    assert_err(TERN_PEER_LOST, answers(&o, IN(0))); /* the daemon's own peer is away */
    has(&o);
    told_of(&o, 1, 4, 1);
    assert_err(TERN_PEER_LOST, answers(&o, IN(1)));
    assert_int_equal(depth(&o), TOKENS);
    assert_int_equal(rig_view(o.rig).resets_spreading, 2);
    rig_event(o.rig, &(struct event){.kind = EV_PEER_LEFT, .member.peer = 1});
    assert_int_equal(rig_jobs(o.rig, RIG_MSG), 2);
    for (uint32_t i = 0; i < 2; i++)
        assert_ok(rig_job(o.rig, RIG_MSG, i)->msg.err);
    assert_int_equal(rig_view(o.rig).resets_spreading, 0);
}

/* The daemon's peers have carried out the later reset, and answer the earlier one no more. */
TEST(n1_earlier_reset_is_over_with_the_later_one)
{
    struct one o = one_start(0);
    struct peer_msg m = of_reset(77, 4, 0);

    says(o.rig, IN(0), &m);
    peer_says(&o, TERN_PEER_LOST);
    assert_err(TERN_PEER_LOST, answers(&o, IN(0)));
    told_of(&o, 1, 5, 0);
    assert_ok(answers(&o, IN(1)));
    assert_ok(answers(&o, IN(0)));
    assert_int_equal(rig_view(o.rig).resets_spreading, 0);
}

/* A reset that is only kept for peers that are away is replaced by the later one. */
TEST(n1_later_reset_takes_the_place_of_an_earlier_one)
{
    struct one o = one_start(1);

    told_of(&o, 0, 4, 0);
    rig_link_down(o.rig, IN(0));
    told_of(&o, 1, 5, 0);
    assert_int_equal(rig_view(o.rig).resets_spreading, 1);
}

/* A daemon without room for another reset forgets the oldest. If that one comes again it takes
 * effect, which is the safe side. */
TEST(limits_resets_that_are_remembered)
{
    struct one o = one_start(0);

    told_of(&o, 0, 5, 0);
    for (uint32_t i = 0; i < o.rig->options.limits.resets; i++) {
        struct peer_msg m = of_reset(77, 6 + i, 0);

        has(&o);
        if (i == o.rig->options.limits.resets - 1) {
            told_of(&o, 0, 5, 0);
            assert_int_equal(depth(&o), TOKENS);
        }
        m.ns.lo = 100 + i;
        hears(&o, 0, &m);
    }
    told_of(&o, 0, 5, 0);
    assert_int_equal(depth(&o), 0);
}

/* A peer that is nearer to the reset's origin waits for the whole answer. One that is not may be a
 * peer that this daemon waits for. */
TEST(n1_nearer_peer_is_answered_for_all)
{
    struct one o = one_start(1);

    told_of(&o, 0, 5, 2);
    assert_err(TERN_PEER_LOST, answers(&o, IN(0)));
    told_of(&o, 1, 5, 3);
    assert_ok(answers(&o, IN(1)));
    told_of(&o, 1, 5, 1);
    assert_ok(answers(&o, IN(0)));       /* this one need not wait any more */
    assert_int_equal(peer_hears(&o), 1); /* and may have let a peer not wait that has to wait now */
    assert_err(TERN_PEER_LOST, answers(&o, IN(1)));
}

/* --- two daemons that fetch from each other --- */

struct both {
    struct pair p;
    uint32_t in; /* the link over which each is called */
};

static struct both both_start(void)
{
    struct rig_options options = OPTIONS_WITH(limits.peers = 1);
    struct both b = {.p = pair_with(options, 4, 64, 64), .in = 1};

    return b; /* the destination calls the source, which does not call back yet */
}

static uint32_t depth_at(struct rig *rig, const struct rig_engine *e, struct pool_id pool)
{
    return rig_depth(rig_session(rig, e, pool, 1), seq1, TOKENS);
}

/* The reset was repeated until all peers had carried it out, and only then the peer's message of
 * the first try arrives: it has no effect, and nobody keeps it for the peer's next life. */
TEST(n1_reset_does_not_come_back_to_where_it_began)
{
    struct both b = both_start();
    struct pair *p = &b.p;
    uint64_t first = resets(p->dest, &p->de), second;
    struct rig_options options = p->source->options;

    assert_int_equal(unreached(p->dest, first), 1);
    p->source->automatic = BY_HAND(RIG_MSG);
    rig_link_up(p->source, 0, p->dest, b.in);
    assert_int_equal(rig_jobs(p->source, RIG_MSG), 1); /* of the first try, on its way */
    assert_int_equal(rig_job(p->source, RIG_MSG, 0)->msg.number, 1);
    second = resets(p->dest, &p->de);
    rig_complete_nth(p->source, RIG_MSG, 1); /* of the second try */
    while (rig_jobs(p->source, RIG_MSG) > 1)
        rig_complete_nth(p->source, RIG_MSG, 1);
    assert_int_equal(unreached(p->dest, second), 0);
    dest_has(p, 1, TOKENS);
    rig_complete(p->source, RIG_MSG);
    assert_int_equal(depth_at(p->dest, &p->de, p->dp), TOKENS);
    p->source->automatic = RIG_ALL;
    rig_settle(p->source);
    assert_int_equal(rig_view(p->dest).resets_spreading, 0);
    assert_int_equal(rig_view(p->source).resets_spreading, 0);
    rig_link_down(p->source, 0);
    rig_link_down(p->dest, 0);
    rig_destroy(p->source);
    options.incarnation++;
    p->source = rig_create(&options);
    p->se = rig_engine(p->source, 0, "prefill", 1);
    p->sp = rig_pool_pages(p->source, &p->se, 4, 64);
    source_has(p, 1, TOKENS);
    rig_link_up(p->dest, 0, p->source, b.in);
    rig_link_up(p->source, 0, p->dest, b.in);
    assert_int_equal(depth_at(p->source, &p->se, p->sp), TOKENS);
    assert_int_equal(depth_at(p->dest, &p->de, p->dp), TOKENS);
}

/* The daemon where the reset began was restarted: the new one receives it from its peer and carries
 * it out once, and then nobody keeps it. */
TEST(n1_reset_of_a_former_life_ends)
{
    struct both b = both_start();
    struct pair *p = &b.p;
    struct rig_options options = p->dest->options;

    resets(p->dest, &p->de);
    rig_link_down(p->dest, 0);
    rig_destroy(p->dest);
    options.incarnation++;
    p->dest = rig_create(&options);
    p->de = rig_engine(p->dest, 0, "decode", 1);
    p->dp = rig_pool_pages(p->dest, &p->de, 4, 64);
    rig_link_up(p->dest, 0, p->source, b.in);
    rig_link_up(p->source, 0, p->dest, b.in);
    assert_int_equal(rig_view(p->dest).resets_spreading, 0);
    assert_int_equal(rig_view(p->source).resets_spreading, 0);
    dest_has(p, 1, TOKENS);
    rig_link_down(p->source, 0);
    rig_link_up(p->source, 0, p->dest, b.in);
    assert_int_equal(depth_at(p->dest, &p->de, p->dp), TOKENS);
}

/* --- three --- */

struct trio {
    struct rig *rig[3];
    struct rig_engine e[3];
    struct pool_id pool[3];
};

/* The slot of peer k at daemon i: 0 for the next daemon, 1 for the one after it. */
static uint32_t slot(uint32_t i, uint32_t k)
{
    return (k + 3 - i) % 3 - 1;
}

static void calls(struct trio *t, uint32_t i, uint32_t k)
{
    rig_link_up(t->rig[i], slot(i, k), t->rig[k], IN(slot(k, i)));
}

static void loses(struct trio *t, uint32_t i, uint32_t k)
{
    rig_link_down(t->rig[i], slot(i, k));
}

static void starts(struct trio *t, uint32_t i, uint64_t incarnation)
{
    struct rig_options options = OPTIONS_WITH(limits.peers = 2);

    options.incarnation = incarnation;
    t->rig[i] = rig_create(&options);
    t->e[i] = rig_engine(t->rig[i], 0, "e", 1);
    t->pool[i] = rig_pool_pages(t->rig[i], &t->e[i], 4, 64);
}

static struct trio trio_start(void)
{
    struct trio t;

    for (uint32_t i = 0; i < 3; i++)
        starts(&t, i, 0x1000 * (i + 1));
    return t;
}

static void has_no_peer(struct trio *t, uint32_t i, uint32_t k)
{
    rig_event(t->rig[i], &(struct event){.kind = EV_PEER_LEFT, .member.peer = slot(i, k)});
}

static void all_settle(struct trio *t)
{
    for (uint32_t i = 0; i < 6; i++)
        rig_settle(t->rig[i % 3]);
}

static uint32_t spreading(struct trio *t)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < 3; i++)
        n += rig_view(t->rig[i]).resets_spreading;
    return n;
}

/* Daemon 1 lies between 0 and 2, and the last link comes up late: no two daemons wait for each
 * other for ever, so a restarted one does not receive the reset. */
TEST(n1_reset_over_two_hops_comes_to_rest)
{
    struct trio t = trio_start();
    uint64_t reset;

    has_no_peer(&t, 0, 2);
    has_no_peer(&t, 2, 0);
    calls(&t, 0, 1);
    calls(&t, 1, 0);
    calls(&t, 1, 2);
    rig_put(t.rig[2], &t.e[2], t.pool[2], 1, TOKENS);
    reset = resets(t.rig[0], &t.e[0]);
    all_settle(&t);
    assert_int_equal(unreached(t.rig[0], reset), 1); /* 2 has no link to 1 */
    assert_int_equal(depth_at(t.rig[2], &t.e[2], t.pool[2]), 0);
    rig_put(t.rig[1], &t.e[1], t.pool[1], 1, TOKENS);
    calls(&t, 2, 1);
    all_settle(&t);
    assert_int_equal(spreading(&t), 0);
    assert_int_equal(depth_at(t.rig[1], &t.e[1], t.pool[1]), TOKENS);
}

/* The daemon in the middle is restarted while the last one cannot reach all its peers: the new one
 * receives the reset from the last one first, and the daemon where it began still counts an
 * unreached peer. */
TEST(n1_restarted_daemon_waits_for_those_behind_it)
{
    struct trio t = trio_start();

    calls(&t, 0, 1); /* 0 never calls 2 before the end */
    calls(&t, 1, 0);
    calls(&t, 1, 2);
    calls(&t, 2, 1); /* and 2 not 0 */
    resets(t.rig[0], &t.e[0]);
    all_settle(&t);
    loses(&t, 2, 1);
    loses(&t, 1, 2);
    loses(&t, 1, 0);
    loses(&t, 0, 1);
    rig_destroy(t.rig[1]);
    starts(&t, 1, 0x2001);
    calls(&t, 2, 1);
    calls(&t, 1, 2);
    calls(&t, 1, 0);
    all_settle(&t);
    calls(&t, 0, 1);
    all_settle(&t);
    has_no_peer(&t, 0, 2);
    all_settle(&t);
    assert_int_equal(rig_view(t.rig[0]).resets_spreading, 1); /* 1 waits for 2, and 2 for 0 */
    has_no_peer(&t, 2, 0);
    all_settle(&t);
    assert_int_equal(spreading(&t), 0);
}
