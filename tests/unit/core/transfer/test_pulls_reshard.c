/* N3: a pool of another layout is a source if its pages have the same fields. Both data paths get
 * the other's layout, and a refusal names the layouts. */
#include "core/transfer/spans.h"
#include "unit/rig/rig_another.h"
#include "unit/rig/rig_follow.h"

#define RETRY_MS 10 /* as in rig_defaults */
#define TOKENS   32 /* 8 pages of 4 tokens */

struct shape {
    uint32_t axes_hash, copies;
    uint64_t fields_hash;
    enum shard_axis shard;
};

static struct pool_id open_shape(struct rig *rig, const struct rig_engine *e, struct shape s)
{
    struct request r = {.op = OP_POOL_OPEN,
                        .pool_open = {.ngroups = 1,
                                      .shard = s.shard,
                                      .axes_hash = s.axes_hash,
                                      .fields_hash = s.fields_hash,
                                      .copies = s.copies,
                                      .bytes = 1 << 16}};
    const struct reply *reply;

    r.pool_open.group[0] = rig_group(4, 512);
    reply = rig_request(rig, e->conn[0], &r);
    assert_ok(reply->err);
    return reply->pool_open.pool;
}

/* The source has a prefix in a pool of one shape, and p.d asks for it in one of the other shape. */
static struct pair between(struct shape source, struct shape dest)
{
    struct pair p = pair_with(rig_defaults(), 4, 64, 64);
    struct pool_id sp = open_shape(p.source, &p.se, source), dp = open_shape(p.dest, &p.de, dest);

    rig_put(p.source, &p.se, sp, 1, TOKENS);
    p.d = session_with(p.dest, &p.de, dp, 1, TOKENS);
    return p;
}

/* Returns the source's offer, before the destination has received it. */
static struct peer_msg offer_of(struct pair *p)
{
    struct peer_msg msg;

    p->source->automatic = BY_HAND(RIG_MSG);
    rig_fetch(p->d, 0, 0);
    msg = rig_job(p->source, RIG_MSG, 0)->msg;
    assert_int_equal(msg.kind, PEER_PULL_OFFER);
    return msg;
}

TEST(n3_pool_of_another_layout_with_the_same_fields_is_a_source)
{
    struct pair p = between((struct shape){.axes_hash = 1, .fields_hash = 9},
                            (struct shape){.axes_hash = 2, .fields_hash = 9});

    assert_leaves_whole(fetch_all(p.d), p.d, TOKENS);
}

TEST(n3_offer_names_the_layout_where_pages_are_resharded)
{
    static const struct shape a = {.axes_hash = 1, .fields_hash = 9},
                              b = {.axes_hash = 2, .fields_hash = 9};
    struct pair p = between(a, b);
    struct peer_msg msg = offer_of(&p);

    assert_ok(msg.err);
    assert_true(msg.layout_hash != 0);
    p = between(a, a);
    msg = offer_of(&p);
    assert_ok(msg.err);
    assert_true(msg.layout_hash == 0);
}

/* X5 */
TEST(x5_pools_of_one_layout_are_resharded_where_several_ranks_hold_the_same)
{
    struct shape s = {.axes_hash = 1, .fields_hash = 9, .copies = 1};
    struct pair p = between(s, s);

    assert_true(offer_of(&p).layout_hash != 0);
    s.shard = SHARD_REPLICATED; /* rank 0 sends all of it */
    p = between(s, s);
    assert_true(offer_of(&p).layout_hash == 0);
    s = (struct shape){.axes_hash = 1, .copies = 1};
    p = between(s, s);
    assert_true(offer_of(&p).layout_hash == 0); /* the pool does not name its fields */
}

TEST(n3_other_fields_or_none_are_refused_and_the_layout_is_named)
{
    static const struct shape cases[][2] = {
        {{.axes_hash = 1, .fields_hash = 9}, {.axes_hash = 2, .fields_hash = 8}},
        {{.axes_hash = 1, .fields_hash = 9}, {.axes_hash = 2}},
        {{.axes_hash = 1}, {.axes_hash = 2, .fields_hash = 9}},
        {{.axes_hash = 1}, {.axes_hash = 2}}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct pair p = between(cases[i][0], cases[i][1]);
        struct peer_msg msg = offer_of(&p);
        const struct reply *r;

        assert_err(TERN_UNSUPPORTED, msg.err);
        assert_true(msg.layout_hash != 0);
        rig_complete(p.source, RIG_MSG);
        r = rig_reply_to(p.dest, p.d->fetch);
        assert_err(TERN_UNSUPPORTED, r->err);
        assert_true(r->fetch.other_hash == msg.layout_hash);
        assert_true(r->fetch.layout_hash != 0 && r->fetch.layout_hash != msg.layout_hash);
    }
}

/* The data path finds no plan: the fetch ends, and its error names both layouts. */
TEST(n3_transfer_without_a_plan_ends_unsupported)
{
    struct pair p = between((struct shape){.axes_hash = 1, .fields_hash = 9},
                            (struct shape){.axes_hash = 2, .fields_hash = 9});
    struct event broken = {.kind = EV_PULL_BROKEN};
    const struct reply *r;

    fetch_held(&p, RIG_PULL);
    broken.broken.pull = rig_job(p.dest, RIG_PULL, 0)->pull;
    broken.broken.err = TERN_UNSUPPORTED;
    rig_event(p.dest, &broken);
    r = rig_reply_to(p.dest, p.d->fetch);
    assert_err(TERN_UNSUPPORTED, r->err);
    assert_true(r->fetch.other_hash != 0 && r->fetch.layout_hash != 0);
}

/* Y4: the same for a source that is followed. */
TEST(n3_session_of_a_pool_with_the_same_fields_is_followed_and_of_another_refused)
{
    for (uint32_t same = 0; same < 2; same++) {
        struct pair p = pair_with(rig_defaults(), 4, 64, 64);
        struct shape a = {.axes_hash = 1, .fields_hash = 9},
                     b = {.axes_hash = 2, .fields_hash = same ? 9 : 8};
        struct pool_id sp = open_shape(p.source, &p.se, a), dp = open_shape(p.dest, &p.de, b);
        struct rig_session *s = session_with(p.source, &p.se, sp, 1, TOKENS + 2);

        p.d = session_with(p.dest, &p.de, dp, 1, TOKENS + 2);
        follow(p.d, ticket_early(s));
        if (!same) {
            assert_err(TERN_UNSUPPORTED, rig_fetched(p.d, p.d->fetch));
            assert_true(rig_reply_to(p.dest, p.d->fetch)->fetch.other_hash != 0);
            continue;
        }
        for (uint32_t to = 4; to <= TOKENS; to += 4) {
            goes_on(s, 1, to, 0);
            assert_int_equal(come_so_far(p.d), to);
        }
        goes_on(s, 1, TOKENS + 2, 0);
        hand_over(s, 0, 0);
        assert_ok(rig_fetched(p.d, p.d->fetch));
        assert_lengths(p.d, TOKENS, TOKENS + 2, TOKENS + 2);
        assert_int_equal(rig_wrong(p.d, TOKENS), 0);
        rig_destroy_all();
    }
}

/* --- pairs of layouts: the data path has plans for a few at a time --- */

/* The source has a prefix for each of 16 fetches, and room for as many transfers. */
static struct pair pair_of_many(struct pool_id *ret_sp)
{
    struct rig_options options = rig_defaults();
    struct pair p;

    options.limits.pools = 12;
    options.limits.pulls = options.limits.serves = 32;
    options.limits.links = 8;
    options.limits.peers = 4;
    p = pair_with(options, 4, 64, 64);
    *ret_sp = open_shape(p.source, &p.se, (struct shape){.axes_hash = 1, .fields_hash = 9});
    for (uint32_t i = 0; i < 16; i++)
        rig_put(p.source, &p.se, *ret_sp, 1 + i, 4);
    return p;
}

/* Fetches sequence `seed` into a pool whose layout has that hash. The pages wait for the test. */
static struct rig_session *fetches(struct rig *dest, struct rig_engine *e, uint32_t axes_hash,
                                   uint32_t seed)
{
    struct shape shape = {.axes_hash = axes_hash, .fields_hash = 9};
    struct rig_session *s = session_with(dest, e, open_shape(dest, e, shape), seed, 4);

    dest->automatic = BY_HAND(RIG_PULL);
    rig_fetch(s, 0, 0);
    return s;
}

/* X8: the source puts off one pair too many. The fetch is repeated, and runs when a pair ended. */
TEST(x8_fetch_between_too_many_layouts_of_a_peer_is_put_off_and_comes)
{
    struct rig_session *d[RESHARD_PEER_PAIRS + 2];
    struct pool_id sp;
    struct pair p = pair_of_many(&sp);

    for (uint32_t i = 0; i < RESHARD_PEER_PAIRS; i++)
        d[i] = fetches(p.dest, &p.de, 2 + i, 1 + i);
    assert_int_equal(rig_jobs(p.dest, RIG_PULL), RESHARD_PEER_PAIRS);
    /* Transfers between layouts that are in use need no further pair. */
    d[RESHARD_PEER_PAIRS] = session_with(p.dest, &p.de, d[0]->pool, 8, 4);
    rig_fetch(d[RESHARD_PEER_PAIRS], 0, 0);
    assert_int_equal(rig_jobs(p.dest, RIG_PULL), RESHARD_PEER_PAIRS + 1);
    d[RESHARD_PEER_PAIRS + 1] = fetches(p.dest, &p.de, 20, 9);
    rig_advance(p.dest, RETRY_MS * NS_PER_MS);
    assert_int_equal(rig_jobs(p.dest, RIG_PULL), RESHARD_PEER_PAIRS + 1);
    assert_false(ended(d[RESHARD_PEER_PAIRS + 1]));
    rig_complete_nth(p.dest, RIG_PULL, 1);
    assert_ok(rig_fetched(d[1], d[1]->fetch));
    rig_advance(p.dest, RETRY_MS * NS_PER_MS);
    for (uint32_t n = rig_jobs(p.dest, RIG_PULL); n > 0; n--)
        rig_complete(p.dest, RIG_PULL);
    for (uint32_t i = 0; i < RESHARD_PEER_PAIRS + 2; i++)
        if (i != 1)
            assert_ok(rig_fetched(d[i], d[i]->fetch));
}

/* The same for the pairs of all peers together. A pair of one peer is shared by another one. */
TEST(x8_pairs_of_layouts_are_bounded_over_all_peers)
{
    struct rig_engine e[2];
    struct rig_session *last, *shares;
    struct pool_id sp;
    struct pair p = pair_of_many(&sp);
    struct rig *b = another_dest(&p, 1, &e[0]), *c = another_dest(&p, 2, &e[1]);

    for (uint32_t i = 0; i < RESHARD_PEER_PAIRS; i++)
        fetches(p.dest, &p.de, 2 + i, 1 + i);
    for (uint32_t i = RESHARD_PEER_PAIRS; i < RESHARD_PAIRS_MAX; i++)
        fetches(b, &e[0], 2 + i, 1 + i);
    assert_int_equal(rig_view(p.source).serves, RESHARD_PAIRS_MAX);
    shares = fetches(c, &e[1], 2, 12);
    assert_int_equal(rig_view(p.source).serves, RESHARD_PAIRS_MAX + 1);
    last = fetches(c, &e[1], 30, 13);
    assert_int_equal(rig_view(p.source).serves, RESHARD_PAIRS_MAX + 1);
    rig_complete(c, RIG_PULL);
    assert_ok(rig_fetched(shares, shares->fetch));
    rig_advance(c, RETRY_MS * NS_PER_MS);
    assert_false(ended(last)); /* the pair that both share is in use */
    rig_complete(b, RIG_PULL);
    rig_advance(c, RETRY_MS * NS_PER_MS);
    rig_complete(c, RIG_PULL);
    assert_ok(rig_fetched(last, last->fetch));
}

/* The source has room for plans and offers, but the destination has none. */
TEST(x8_offer_between_too_many_layouts_is_given_back_and_asked_for_again)
{
    struct shape mine = {.axes_hash = 2, .fields_hash = 9};
    struct rig_session *d[RESHARD_PEER_PAIRS + 1];
    struct pool_id sp, dp;
    struct pair p = pair_of_many(&sp);

    dp = open_shape(p.dest, &p.de, mine);
    p.dest->automatic = BY_HAND(RIG_PULL);
    p.source->automatic = BY_HAND(RIG_MSG);
    for (uint32_t i = 0; i <= RESHARD_PEER_PAIRS; i++) {
        d[i] = session_with(p.dest, &p.de, dp, 1 + i, 4);
        rig_fetch(d[i], 0, 0);
        rig_job(p.source, RIG_MSG, 0)->msg.layout_hash = 100 + i;
        rig_complete(p.source, RIG_MSG);
    }
    assert_int_equal(rig_jobs(p.dest, RIG_PULL), RESHARD_PEER_PAIRS);
    assert_int_equal(rig_view(p.source).serves, RESHARD_PEER_PAIRS);
    p.source->automatic = RIG_ALL;
    rig_complete(p.dest, RIG_PULL);
    assert_ok(rig_fetched(d[0], d[0]->fetch));
    rig_advance(p.dest, RETRY_MS * NS_PER_MS);
    rig_complete_nth(p.dest, RIG_PULL, RESHARD_PEER_PAIRS - 1);
    assert_ok(rig_fetched(d[RESHARD_PEER_PAIRS], d[RESHARD_PEER_PAIRS]->fetch));
}

/* The data path cannot keep the peer's layout: at either end that is BUSY, and is repeated. */
TEST(x8_layout_that_the_data_path_does_not_keep_is_put_off)
{
    struct pool_id sp;
    struct pair p = pair_of_many(&sp);
    struct rig_session *d;

    p.dest->automatic = BY_HAND(RIG_PULL) & BY_HAND(RIG_MSG);
    d = session_with(p.dest, &p.de, open_shape(p.dest, &p.de, (struct shape){2, 0, 9, 0}), 1, 4);
    rig_fetch(d, 0, 0);
    rig_job(p.dest, RIG_MSG, 0)->msg.layout_hash = LAYOUT_NONE;
    p.source->automatic = BY_HAND(RIG_MSG);
    rig_complete(p.dest, RIG_MSG);
    assert_err(TERN_BUSY, rig_job(p.source, RIG_MSG, 0)->msg.err);
    assert_int_equal(rig_view(p.source).serves, 0);
    rig_complete(p.source, RIG_MSG);
    assert_false(ended(d));
    p.dest->automatic = BY_HAND(RIG_PULL);
    rig_advance(p.dest, RETRY_MS * NS_PER_MS);
    rig_job(p.source, RIG_MSG, 0)->msg.layout_hash = LAYOUT_NONE;
    rig_complete(p.source, RIG_MSG);
    assert_int_equal(rig_jobs(p.dest, RIG_PULL), 0);
    assert_false(ended(d));
    p.source->automatic = RIG_ALL;
    rig_advance(p.dest, RETRY_MS * NS_PER_MS);
    rig_complete(p.dest, RIG_PULL);
    assert_ok(rig_fetched(d, d->fetch));
}

/* The offer was returned. A message about it that the source had sent before arrives while the next
 * question is on its way, or before that question. */
TEST(x8_what_crosses_an_offer_that_was_given_back_changes_nothing)
{
    static const enum peer_msg_kind kinds[] = {PEER_PULL_ABORT, PEER_PULL_OFFER, PEER_PULL_MORE};

    for (uint32_t i = 0; i < 6; i++) {
        struct rig_session *d[RESHARD_PEER_PAIRS + 1], *last;
        struct pool_id sp;
        struct pair p = pair_of_many(&sp);
        const struct rig_job *again;
        struct peer_msg late;

        for (uint32_t k = 0; k < RESHARD_PEER_PAIRS; k++)
            d[k] = fetches(p.dest, &p.de, 2 + k, 1 + k);
        p.source->automatic = BY_HAND(RIG_MSG);
        last = session_with(p.dest, &p.de, d[0]->pool, 9, 4);
        rig_fetch(last, 0, 0);
        late = rig_job(p.source, RIG_MSG, 0)->msg;
        rig_job(p.source, RIG_MSG, 0)->msg.layout_hash = 100;
        rig_complete(p.source, RIG_MSG);
        rig_complete(p.dest, RIG_PULL);
        if (i < 3)
            rig_advance(p.dest, RETRY_MS * NS_PER_MS); /* the question is sent again */
        again = rig_job(p.source, RIG_MSG, 0);
        late.kind = kinds[i % 3];
        late.err = late.kind == PEER_PULL_ABORT ? TERN_TIMED_OUT : TERN_OK;
        late.nruns = again ? again->msg.nruns : 0;
        late.runs = again ? again->msg.runs : NULL;
        source_says(&p, &late);
        assert_false(ended(last));
        p.source->automatic = RIG_ALL;
        rig_runs_free(p.source);
        rig_advance(p.dest, RETRY_MS * NS_PER_MS);
        complete_all(p.dest, RIG_PULL);
        assert_leaves_whole(rig_fetched(last, last->fetch), last, 4);
        assert_int_equal(p.dest->link_closes, 0);
        rig_destroy_all();
    }
}

/* A layout that a peer has sent stays as long as a transfer needs it. */
TEST(x8_layout_is_used_from_the_first_message_to_the_end)
{
    struct pool_id sp;
    struct pair p = pair_of_many(&sp);
    struct rig_session *d = fetches(p.dest, &p.de, 2, 1);
    uint64_t ours = rig_pool_view(p.source, sp).layout_hash,
             theirs = rig_pool_view(p.dest, d->pool).layout_hash;

    assert_true(core_layout_used(p.source->core, theirs));
    assert_true(core_layout_used(p.dest->core, ours));
    assert_false(core_layout_used(p.source->core, ours));
    rig_complete(p.dest, RIG_PULL);
    assert_ok(rig_fetched(d, d->fetch));
    assert_false(core_layout_used(p.source->core, theirs));
    assert_false(core_layout_used(p.dest->core, ours));
}
