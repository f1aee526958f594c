/* X8: a source without room for one more transfer answers when to come back. The destination does
 * so, in the order of its fetches, and gives up in the end. */
#include "unit/rig/rig_pair.h"

#define TOKENS   16 /* 4 pages of 4 tokens */
#define RETRY_MS 10 /* as in rig_defaults */
#define MS       NS_PER_MS

/* The source serves one transfer at a time. */
static struct pair start(void)
{
    struct pair p = PAIR_LIMITED(limits.serves = 1, 4, 128, 128);

    p.dest->automatic = BY_HAND(RIG_PULL);
    return p;
}

/* Starts fetches 0 to n - 1. The first takes the source's only slot. */
static void all_ask(struct pair *p, uint32_t n, struct rig_session **d)
{
    fetch_many(p, n, TOKENS, d);
    assert_int_equal(rig_jobs(p->dest, RIG_PULL), 1);
    for (uint32_t i = 0; i < n; i++)
        assert_false(ended(d[i]));
}

TEST(x8_busy_source_is_asked_again_when_it_said)
{
    struct rig_session *d[2];
    struct pair p = start();

    all_ask(&p, 2, d);
    last_batch_comes(d[0]);
    rig_advance(p.dest, (RETRY_MS - 1) * MS);
    assert_int_equal(rig_jobs(p.dest, RIG_PULL), 0); /* not earlier */
    rig_advance(p.dest, MS);
    assert_int_equal(rig_jobs(p.dest, RIG_PULL), 1);
    rig_complete(p.dest, RIG_PULL);
    assert_leaves_whole(rig_fetched(d[1], d[1]->fetch), d[0], TOKENS);
    assert_whole(d[1], TOKENS);
}

/* Fetches that were put off end in their order. A new one waits behind them even if the source has
 * just become free. */
TEST(x8_busy_source_is_asked_in_the_order_of_the_fetches)
{
    struct rig_session *d[5];
    struct pair p = start();

    d[4] = asking_source(&p, 5, TOKENS);
    all_ask(&p, 4, d);
    last_batch_comes(d[0]);
    rig_fetch(d[4], 0, 0);
    assert_int_equal(rig_jobs(p.dest, RIG_PULL), 0);
    for (uint32_t i = 1; i < 5; i++) {
        rig_advance(p.dest, RETRY_MS * MS);
        assert_int_equal(rig_jobs(p.dest, RIG_PULL), 1);
        rig_complete(p.dest, RIG_PULL);
        for (uint32_t k = i + 1; k < 5; k++)
            assert_false(ended(d[k]));
        assert_leaves_whole(rig_fetched(d[i], d[i]->fetch), d[i], TOKENS);
    }
}

/* The answer names the time to repeat the fetch. Fetches that waited behind it stop asking, too. */
TEST(x8_busy_for_too_long_ends_with_the_time_to_come_back)
{
    struct rig_session *d[3];
    struct pair p = start();

    all_ask(&p, 3, d);
    for (uint32_t ms = 0; ms < PULL_BUSY_MS_MAX; ms += RETRY_MS)
        rig_advance(p.dest, RETRY_MS * MS);
    for (uint32_t i = 1; i < 3; i++) {
        assert_err(TERN_BUSY, rig_fetched(d[i], d[i]->fetch));
        assert_int_equal(rig_reply_to(p.dest, d[i]->fetch)->fetch.retry_ms, RETRY_MS);
        assert_non_null(
            strstr(rig_reply_to(p.dest, d[i]->fetch)->text, "already serves limits.pulls"));
    }
    complete_all(p.dest, RIG_PULL);
    assert_ok(rig_fetched(d[0], d[0]->fetch));
    assert_int_equal(rig_view(p.dest).pulls, 0);
    p.dest->automatic = RIG_ALL;
    assert_ok(fetch_all(d[1]));
}

TEST(x8_busy_source_is_not_asked_more_often_than_so)
{
    struct rig_options options = rig_defaults();
    struct rig_session *d[2];
    struct pair p;

    options.limits.serves = 1;
    options.limits.busy_retry_ms = 1;
    p = pair_with(options, 4, 128, 128);
    p.dest->automatic = BY_HAND(RIG_PULL);
    all_ask(&p, 2, d);
    for (uint32_t i = 1; i < PULL_ASKS_MAX; i++) {
        assert_false(ended(d[1]));
        rig_advance(p.dest, MS);
    }
    assert_err(TERN_BUSY, rig_fetched(d[1], d[1]->fetch));
    assert_int_equal(rig_reply_to(p.dest, d[1]->fetch)->fetch.retry_ms, 1);
}

/* If the first in line is cancelled or its session closes, the next one asks. */
TEST(x8_next_in_line_asks_when_the_first_is_cancelled)
{
    struct rig_session *d[3];
    struct pair p = start();

    all_ask(&p, 3, d);
    assert_ok(rig_fetch_cancel(d[1]));
    assert_err(TERN_GONE, rig_fetched(d[1], d[1]->fetch));
    last_batch_comes(d[0]);
    rig_advance(p.dest, RETRY_MS * MS);
    last_batch_comes(d[2]);
}

/* Fetches of another tenant do not wait behind them. */
TEST(x8_line_is_each_tenants_own)
{
    struct rig_session *d[3];
    struct pair p = start();
    struct rig_session *theirs = another_tenant_asking(&p, 9, TOKENS);

    all_ask(&p, 3, d);
    last_batch_comes(d[0]);
    rig_fetch(theirs, 0, 0);
    last_batch_comes(theirs);
}

TEST(x8_lost_peer_ends_those_that_wait_for_it)
{
    struct rig_session *d[3];
    struct pair p = start();

    all_ask(&p, 3, d);
    rig_link_down(p.dest, 0);
    for (uint32_t i = 1; i < 3; i++)
        assert_err(TERN_PEER_LOST, rig_fetched(d[i], d[i]->fetch));
    assert_int_equal(rig_view(p.dest).pulls, 0);
}
