/* A fetch with `at_least` waits until the source has published that many tokens (X10). */
#include "unit/rig/rig_pair.h"

#define TOKENS 16 /* 4 pages of 4 tokens */
#define MS     NS_PER_MS

/* A session of the destination that waits for all TOKENS, of which the source has `n` now. */
static struct rig_session *awaiting(struct pair *p, uint32_t n, uint32_t wait_ms)
{
    struct rig_session *d;

    if (n > 0)
        source_has(p, 1, n);
    d = asking(p, 1, TOKENS);
    d->at_least = TOKENS;
    d->wait_ms = wait_ms;
    rig_fetch(d, 0, 0);
    return d;
}

TEST(x10_fetch_waits_until_enough_is_published)
{
    struct pair p = pair_with(rig_defaults(), 4, 128, 128);
    struct rig_session *d = awaiting(&p, TOKENS / 2, 0);

    for (uint32_t ms = 0; ms < 100; ms++)
        rig_advance(p.dest, MS);
    assert_false(ended(d));
    source_has(&p, 1, TOKENS);
    for (uint32_t ms = 0; ms < PULL_WAIT_MS_MAX; ms++)
        rig_advance(p.dest, MS);
    assert_ok(rig_fetched(d, d->fetch));
    assert_whole(d, TOKENS);
    assert_int_equal(rig_reply_to(p.dest, d->fetch)->fetch.tokens, TOKENS);
}

/* However long it waits, it does not ask too often and holds no other fetch up. */
TEST(x10_fetch_that_waits_holds_nobody_up)
{
    struct pair p = pair_with(rig_defaults(), 4, 128, 128);
    struct rig_session *d = awaiting(&p, 0, 0), *other = asking_source(&p, 2, TOKENS);

    for (uint32_t i = 0; i < 3 * PULL_ASKS_MAX; i++)
        rig_advance(p.dest, PULL_WAIT_MS_MAX * MS);
    assert_ok(fetch_to(other, 0));
    assert_false(ended(d));
    assert_ok(rig_fetch_cancel(d));
    assert_err(TERN_GONE, rig_fetched(d, d->fetch));
    assert_int_equal(rig_view(p.dest).pulls, 0);
}

/* Then it moves what the source has, and ends with an error, since that is not enough. */
TEST(x10_fetch_waits_no_longer_than_it_was_told)
{
    struct pair p = pair_with(rig_defaults(), 4, 128, 128);
    struct rig_session *d = awaiting(&p, TOKENS / 2, 40);

    for (uint32_t ms = 0; ms < 40; ms++) {
        assert_false(ended(d));
        rig_advance(p.dest, MS);
    }
    rig_advance(p.dest, PULL_WAIT_MS_MAX * MS);
    assert_err(TERN_TIMED_OUT, rig_fetched(d, d->fetch));
    assert_whole(d, TOKENS / 2);
}

TEST(x10_fetch_for_more_than_can_come_is_refused_at_once)
{
    struct pair p = pair_with(rig_defaults(), 4, 128, 128);
    struct rig_session *d = asking_source(&p, 1, TOKENS);

    d->at_least = TOKENS + 1;
    assert_err(TERN_INVALID, fetch_to(d, 0));
    d->at_least = TOKENS;
    assert_err(TERN_INVALID, fetch_to(d, TOKENS - 1));
    assert_ok(fetch_to(d, TOKENS));
    assert_whole(d, TOKENS);
}
