/* X8: fetches that a decode waits for go before prefetches, which always get something; and what a
 * tenant has under way from one peer is limited, so that a slow one does not hold all of it. */
#include "unit/rig/rig_pair.h"

#define TOKENS 32 /* 8 pages of 4 tokens */

static struct pair start(uint64_t pages, uint64_t flow_pages)
{
    struct rig_options options = rig_defaults();

    options.limits.peer_bytes_in_flight = options.limits.tenant_bytes_in_flight = pages * 512;
    options.limits.flow_bytes_in_flight = flow_pages * 512;
    options.limits.prefetch_every = 3;
    options.limits.pulls = options.limits.serves = 64;
    return pair_with(options, 4, 128, 128);
}

static struct rig_session *prefetching(struct pair *p, uint32_t seed, uint32_t tokens)
{
    struct rig_session *s = asking_source(p, seed, tokens);

    s->prefetch = true;
    rig_fetch(s, 0, 0);
    return s;
}

/* A prefetch leaves a quarter of what may be under way, so a fetch asks at once, and gets the room
 * that comes free before prefetches that began long before it. */
TEST(x8_fetch_that_a_decode_waits_for_goes_before_prefetches)
{
    struct rig_session *pre[4], *urgent;
    struct pair p = start(8, 0);

    p.dest->automatic = BY_HAND(RIG_PULL);
    for (uint32_t i = 0; i < 4; i++)
        pre[i] = prefetching(&p, 1 + i, TOKENS);
    assert_int_equal(rig_jobs(p.dest, RIG_PULL), 1); /* 6 pages */
    urgent = asking_source(&p, 9, TOKENS);
    rig_fetch(urgent, 0, 0);
    assert_int_equal(rig_jobs(p.dest, RIG_PULL), 2); /* and 2 of the fetch */
    rig_complete(p.dest, RIG_PULL);
    rig_complete(p.dest, RIG_PULL);
    for (uint32_t i = 0; i < 4; i++)
        assert_false(ended(pre[i]));
    last_batch_comes(urgent);
    complete_all(p.dest, RIG_PULL);
    for (uint32_t i = 0; i < 4; i++)
        assert_leaves_whole(rig_fetched(pre[i], pre[i]->fetch), pre[i], TOKENS);
    assert_whole(urgent, TOKENS);
}

/* Fetches come one after the other for ever, each of more than may be under way: a prefetch gets
 * one batch of three. */
TEST(x8_prefetch_is_not_starved)
{
    struct rig_session *pre, *urgent[16];
    struct pair p = start(4, 0);
    uint32_t asked = 0, done = 0;

    p.dest->automatic = BY_HAND(RIG_PULL);
    for (uint32_t i = 0; i < 16; i++)
        urgent[i] = asking_source(&p, 9 + i, TOKENS);
    for (; asked < 3; asked++)
        rig_fetch(urgent[asked], 0, 0);
    pre = prefetching(&p, 1, TOKENS);
    while (!ended(pre)) {
        assert_true(asked < 16); /* else it waited for the end of all of them */
        rig_complete(p.dest, RIG_PULL);
        for (; done < asked && ended(urgent[done]); done++) {
            rig_fetch(urgent[asked], 0, 0);
            asked++;
        }
    }
    assert_leaves_whole(rig_fetched(pre, pre->fetch), pre, TOKENS);
}

/* A session of the same tenants in pools whose pages are four times as large, that has nothing yet.
 */
static struct rig_session *asking_large(struct pair *p, uint32_t seed, uint32_t tokens)
{
    struct group_layout large = rig_group(4, 4 * 512);
    struct rig_engine se = rig_engine(p->source, 0, "large", 1),
                      de = rig_engine(p->dest, 0, "large", 1);
    struct pool_id sp, dp;

    assert_ok(rig_pool_open(p->source, se.conn[0], &large, 1, 64 * 2048, &sp));
    assert_ok(rig_pool_open(p->dest, de.conn[0], &large, 1, 64 * 2048, &dp));
    rig_put(p->source, &se, sp, seed, tokens);
    return session_with(p->dest, &de, dp, seed, tokens);
}

/* A long fetch asks for a page whenever one has come, and there is never room for the larger page
 * of a prefetch beside those: when its turn has come, the room that comes free is kept for it. */
TEST(x8_prefetch_of_larger_pages_is_not_starved)
{
    struct rig_session *pre, *small[5], *urgent;
    struct pair p = start(5, 0);

    pre = asking_large(&p, 1, 4);
    pre->prefetch = true;
    for (uint32_t i = 0; i < 5; i++)
        small[i] = asking_source(&p, 9 + i, 4);
    urgent = asking_source(&p, 2, 2 * TOKENS);
    p.dest->automatic = BY_HAND(RIG_PULL);
    for (uint32_t i = 0; i < 5; i++)
        rig_fetch(small[i], 0, 0);
    rig_fetch(urgent, 0, 0);
    rig_fetch(pre, 0, 0);
    while (!ended(pre))
        rig_complete(p.dest, RIG_PULL);
    assert_false(ended(urgent));
    complete_all(p.dest, RIG_PULL);
    assert_leaves_whole(rig_fetched(pre, pre->fetch), pre, 4);
    assert_leaves_whole(rig_fetched(urgent, urgent->fetch), urgent, 2 * TOKENS);
    rig_destroy_all();
}

/* The records for transfers at either end. */
TEST(x8_prefetches_leave_records_to_fetches)
{
    struct rig_session *s;
    struct rig_options options = rig_defaults();
    struct pair p;
    uint32_t begun = 0;

    options.limits.pulls = options.limits.serves = 32;
    options.limits.reserved_percent = 50; /* 8 for each of two tenants: a prefetch leaves 2 */
    p = pair_with(options, 4, 128, 128);
    p.dest->automatic = BY_HAND(RIG_PULL);
    for (enum tern_err err = TERN_OK; err == TERN_OK; begun++) {
        s = prefetching(&p, 1 + begun, 4);
        if (ended(s))
            err = rig_fetched(s, s->fetch);
        assert_true(err == TERN_OK || err == TERN_BUSY);
        assert_true(begun < 128);
    }
    s->prefetch = false;
    rig_fetch(s, 0, 0);
    assert_false(ended(s)); /* it is under way */
    p.dest->automatic = RIG_ALL;
    complete_all(p.dest, RIG_PULL);
    assert_leaves_whole(rig_fetched(s, s->fetch), s, 4);
}

/* What a tenant has from a peer that does not answer is half of what that peer may have under way:
 * another tenant's fetch asks at once. */
TEST(x8_tenant_leaves_room_at_a_peer_that_is_slow)
{
    struct rig_session *d[4], *theirs;
    struct pair p = start(8, 4);

    theirs = another_tenant_asking(&p, 20, 16);
    p.dest->automatic = BY_HAND(RIG_PULL);
    fetch_many(&p, 4, TOKENS, d);
    assert_int_equal(rig_jobs(p.dest, RIG_PULL), 1); /* 4 pages */
    rig_fetch(theirs, 0, 0);
    assert_int_equal(rig_jobs(p.dest, RIG_PULL), 2);
    complete_all(p.dest, RIG_PULL);
    assert_true(p.dest->max_pages_in_flight <= 8);
    assert_leaves_whole(rig_fetched(theirs, theirs->fetch), theirs, 16);
    for (uint32_t i = 0; i < 4; i++)
        assert_leaves_whole(rig_fetched(d[i], d[i]->fetch), d[i], TOKENS);
}

/* Fetches of a page come one after the other for ever: a span of another tenant that is larger than
 * what a flow, or a tenant, may have under way gets its turn beside them. */
static void large_span_comes(uint64_t tenant_pages, uint64_t flow_pages)
{
    struct group_layout large = rig_group(4, 4 * 512);
    struct rig_options options = rig_defaults();
    struct rig_session *d[16], *theirs;
    struct rig_engine se, de;
    struct pool_id sp, dp;
    uint32_t asked = 0;
    struct pair p;

    options.limits.peer_bytes_in_flight = 8 * 512;
    options.limits.tenant_bytes_in_flight = tenant_pages * 512;
    options.limits.flow_bytes_in_flight = flow_pages * 512;
    p = pair_with(options, 4, 128, 128);
    se = rig_engine(p.source, 1, "theirs", 1);
    de = rig_engine(p.dest, 1, "theirs", 1);
    assert_ok(rig_pool_open(p.source, se.conn[0], &large, 1, 64 * 2048, &sp));
    assert_ok(rig_pool_open(p.dest, de.conn[0], &large, 1, 64 * 2048, &dp));
    rig_put(p.source, &se, sp, 20, 8);
    theirs = session_with(p.dest, &de, dp, 20, 8);
    for (uint32_t i = 0; i < 16; i++)
        d[i] = asking_source(&p, 1 + i, 4);
    p.dest->automatic = BY_HAND(RIG_PULL);
    for (; asked < 2; asked++)
        rig_fetch(d[asked], 0, 0);
    rig_fetch(theirs, 0, 0);
    while (!ended(theirs)) {
        assert_true(asked < 16); /* else it waited for the end of all of them */
        rig_complete(p.dest, RIG_PULL);
        rig_fetch(d[asked], 0, 0);
        asked++;
    }
    assert_leaves_whole(rig_fetched(theirs, theirs->fetch), theirs, 8);
    rig_destroy_all();
}

TEST(x8_span_larger_than_a_limit_is_not_starved)
{
    large_span_comes(8, 2);
    large_span_comes(3, 0);
}
