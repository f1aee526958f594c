/* N3: a pool of another layout is a source if what its pages are made of is the same; both data
 * paths hear of the other's layout, and who refuses says of which one. */
#include "unit/rig/rig_follow.h"

#define TOKENS 32 /* 8 pages of 4 tokens */

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

/* The source has a prefix in the one, p.d asks for it in the other. */
static struct pair between(struct shape source, struct shape dest)
{
    struct pair p = pair_with(rig_defaults(), 4, 64, 64);
    struct pool_id sp = open_shape(p.source, &p.se, source), dp = open_shape(p.dest, &p.de, dest);

    rig_put(p.source, &p.se, sp, 1, TOKENS);
    p.d = session_with(p.dest, &p.de, dp, 1, TOKENS);
    return p;
}

/* What the source offers, before the destination has heard it. */
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
    s.shard = SHARD_REPLICATED; /* rank 0 sends all of it anyway */
    p = between(s, s);
    assert_true(offer_of(&p).layout_hash == 0);
    s = (struct shape){.axes_hash = 1, .copies = 1};
    p = between(s, s);
    assert_true(offer_of(&p).layout_hash == 0); /* it does not say of what its pages are */
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

/* The data path finds no plan: the fetch ends, and says between which layouts. */
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

/* Y4: likewise where the source is followed. */
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
