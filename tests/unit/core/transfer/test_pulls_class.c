/* X8: fetches that a decode waits for go before prefetches, which are never starved; and a tenant's
 * bytes in flight from one peer are limited, so that a slow peer does not hold all of them. */
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

/* A prefetch leaves a quarter of the limit, so a fetch asks at once. The fetch gets room that comes
 * free before prefetches that began long before it. */
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
    assert_int_equal(rig_jobs(p.dest, RIG_PULL), 2); /* 2 of the fetch */
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

/* Fetches follow one another for ever, each larger than the limit: one batch in three is a
 * prefetch's. */
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
        assert_true(asked < 16); /* else the prefetch waited for the end of all fetches */
        rig_complete(p.dest, RIG_PULL);
        for (; done < asked && ended(urgent[done]); done++) {
            rig_fetch(urgent[asked], 0, 0);
            asked++;
        }
    }
    assert_leaves_whole(rig_fetched(pre, pre->fetch), pre, TOKENS);
}

/* Opens pools whose pages are four times as large, for the same tenants, and a session that has
 * nothing yet. */
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

/* A long fetch asks for a page whenever one arrives, so there is never room for a prefetch's larger
 * page beside it. At the prefetch's turn the room that comes free is kept for that page. */
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

/* Prefetches leave records for transfers at both ends. */
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
    assert_false(ended(s)); /* under way */
    p.dest->automatic = RIG_ALL;
    complete_all(p.dest, RIG_PULL);
    assert_leaves_whole(rig_fetched(s, s->fetch), s, 4);
}

/* A tenant's bytes from a peer that does not answer are half of that peer's limit: a fetch of
 * another tenant asks at once. */
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

/* Fetches of one page follow one another for ever. A span of another tenant that is larger than the
 * limit of a flow, or of a tenant, gets its turn beside them. */
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
        assert_true(asked < 16); /* else the span waited for the end of all fetches */
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
