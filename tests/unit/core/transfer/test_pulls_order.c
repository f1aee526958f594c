/* The order in which transfers in are served: first in, first out between two hosts within a
 * tenant, and tenants in turn. The limit of bytes in flight is so small that some have to wait. */
#include "unit/rig/rig_pair.h"

#define TOKENS   32 /* 8 pages of 4 tokens: the limit */
#define ARRIVALS 12
#define AT_ONCE  3

static struct pair start(void)
{
    struct rig_options options = rig_defaults();

    options.limits.peer_bytes_in_flight = options.limits.tenant_bytes_in_flight = 8 * 512;
    return pair_with(options, 4, 128, 128);
}

/* X8. Steady arrivals: after each batch one more session asks. None ends before one that asked
 * earlier, and none waits for more than those before it. */
TEST(x8_fetches_end_in_the_order_in_which_they_began)
{
    struct rig_session *d[ARRIVALS];
    struct pair p = start();
    uint32_t asked = 0, done = 0;

    for (uint32_t i = 0; i < ARRIVALS; i++) {
        d[i] = asking_source(&p, 1 + i, TOKENS);
    }
    p.dest->automatic = BY_HAND(RIG_PULL);
    for (; asked < AT_ONCE; asked++)
        rig_fetch(d[asked], 0, 0);
    while (done < ARRIVALS) {
        assert_true(rig_jobs(p.dest, RIG_PULL) > 0);
        rig_complete(p.dest, RIG_PULL);
        if (asked < ARRIVALS) {
            rig_fetch(d[asked], 0, 0);
            asked++;
        }
        while (done < asked && ended(d[done])) {
            assert_leaves_whole(rig_fetched(d[done], d[done]->fetch), d[done], TOKENS);
            done++;
        }
        for (uint32_t i = done; i < asked; i++)
            assert_false(ended(d[i]));
    }
}

/* One tenant has asked for far more than the limit. Another tenant's first fetch gets the next
 * turn, and from then on the tenants take turns. */
TEST(x8_tenants_take_turns)
{
    struct rig_session *d[6];
    struct pair p = start();
    struct rig_session *theirs = another_tenant_asking(&p, 9, TOKENS);

    p.dest->automatic = BY_HAND(RIG_PULL);
    fetch_many(&p, 6, TOKENS, d);
    rig_fetch(theirs, 0, 0);
    last_batch_comes(d[0]); /* of d[0]: its room goes to the other tenant */
    last_batch_comes(theirs);
    for (uint32_t i = 1; i < 6; i++) {
        assert_false(ended(d[i]));
        last_batch_comes(d[i]);
    }
    assert_whole(theirs, TOKENS);
}

/* A page that is larger than the room left waits for more, and no later fetch takes that room. */
TEST(x8_large_page_is_not_overtaken_by_small_ones)
{
    struct group_layout large = rig_group(4, 4 * 512);
    struct rig_session *d[4], *slow;
    struct rig_engine se, de;
    struct pool_id sp, dp;
    struct pair p = start();

    se = rig_engine(p.source, 1, "theirs", 1);
    de = rig_engine(p.dest, 1, "theirs", 1);
    assert_ok(rig_pool_open(p.source, se.conn[0], &large, 1, 64 * 2048, &sp));
    assert_ok(rig_pool_open(p.dest, de.conn[0], &large, 1, 64 * 2048, &dp));
    rig_put(p.source, &se, sp, 9, 4);
    slow = session_with(p.dest, &de, dp, 9, 4);
    for (uint32_t i = 0; i < 4; i++) {
        d[i] = asking_source(&p, 1 + i, 6 * 4);
    }
    p.dest->automatic = BY_HAND(RIG_PULL);
    rig_fetch(d[0], 0, 0); /* 6 of 8 pages */
    rig_fetch(slow, 0, 0); /* needs the room of 4 pages */
    rig_fetch(d[1], 0, 0); /* would take the 2 pages left, again and again */
    assert_int_equal(rig_jobs(p.dest, RIG_PULL), 1);
    last_batch_comes(d[0]);
    last_batch_comes(slow);
    complete_all(p.dest, RIG_PULL);
    assert_leaves_whole(rig_fetched(d[1], d[1]->fetch), slow, 4);
}
