/* Rule X8 and what else can hold a fetch up: bytes in flight per peer and tenant, a busy source, a
 * full destination, a session in the wrong state. */
#include "rig_test.h"

#define TOKENS 64 /* 16 pages of 4 tokens */

static struct pair start_limit(uint64_t peer_bytes)
{
    struct rig_options options = rig_defaults();

    options.limits.peer_bytes_in_flight = peer_bytes;
    return pair_with(options, 4, 128, 64);
}

/* The destination's session with the tokens of sequence `seed`, nothing fetched yet. */
static struct rig_session *asking(struct pair *p, uint32_t seed, uint32_t n)
{
    struct rig_session *d = rig_session(p->dest, &p->de, p->dp, 1);

    assert_ok(rig_match(d, rig_tokens(seed, n), n));
    return d;
}

static void hold_pulls(struct pair *p)
{
    p->dest->automatic = RIG_ALL & ~(uint32_t)RIG_PULL;
}

/* X8: bytes asked for and not yet here, per peer, also where the limit is no multiple of a page. */
static void fetch_bytes_in_flight_stay_within_the_peers_limit(void **state)
{
    struct pair p = start_limit(1300);
    struct rig_session *d[3];
    uint64_t fetch[3];

    (void)state;
    hold_pulls(&p);
    for (uint32_t i = 0; i < 3; i++) {
        rig_put(p.source, &p.se, p.sp, 1 + i, 32);
        d[i] = asking(&p, 1 + i, 32);
        fetch[i] = rig_fetch(d[i], 0, 0);
    }
    while (rig_jobs(p.dest, RIG_PULL))
        rig_complete(p.dest, RIG_PULL);
    assert_true(p.dest->max_pages_in_flight * 512 <= 1300);
    for (uint32_t i = 0; i < 3; i++) {
        assert_ok(rig_fetched(d[i], fetch[i]));
        assert_lengths(d[i], 32, 32, 32);
        assert_int_equal(rig_wrong(d[i], 32), 0);
        rig_session_free(d[i]);
    }
    pair_stop(&p);
}

static void fetch_bytes_in_flight_stay_within_the_tenants_limit(void **state)
{
    struct rig_options options = rig_defaults();
    struct pair p;
    struct rig_session *d[2];
    uint64_t fetch[2];

    (void)state;
    options.limits.tenant_bytes_in_flight = 2000;
    p = pair_with(options, 4, 128, 64);
    hold_pulls(&p);
    for (uint32_t i = 0; i < 2; i++) {
        rig_put(p.source, &p.se, p.sp, 1 + i, 32);
        d[i] = asking(&p, 1 + i, 32);
        fetch[i] = rig_fetch(d[i], 0, 0);
    }
    while (rig_jobs(p.dest, RIG_PULL))
        rig_complete(p.dest, RIG_PULL);
    assert_true(p.dest->max_pages_in_flight * 512 <= 2000);
    for (uint32_t i = 0; i < 2; i++) {
        assert_ok(rig_fetched(d[i], fetch[i]));
        assert_lengths(d[i], 32, 32, 32);
        rig_session_free(d[i]);
    }
    pair_stop(&p);
}

/* A page larger than the limit still moves: alone. */
static void fetch_page_above_the_limit_goes_alone(void **state)
{
    struct pair p = start_limit(100);
    struct rig_session *d = asking(&p, 1, 16);
    uint64_t fetch;

    (void)state;
    rig_put(p.source, &p.se, p.sp, 1, 16);
    fetch = rig_fetch(d, 0, 0);
    assert_ok(rig_fetched(d, fetch));
    assert_lengths(d, 16, 16, 16);
    assert_int_equal(p.dest->max_pages_in_flight, 1);
    rig_session_free(d);
    pair_stop(&p);
}

/* X8: a source that is busy says so and when to come back. */
static void fetch_source_full_answers_busy(void **state)
{
    struct rig_options options = rig_defaults();
    struct pair p;
    struct rig_session *d[2];
    uint64_t fetch[2];

    (void)state;
    options.limits.serves = 1;
    p = pair_with(options, 4, 128, 64);
    hold_pulls(&p);
    for (uint32_t i = 0; i < 2; i++) {
        rig_put(p.source, &p.se, p.sp, 1 + i, 16);
        d[i] = asking(&p, 1 + i, 16);
        fetch[i] = rig_fetch(d[i], 0, 0);
    }
    assert_err(TERN_BUSY, rig_reply_to(p.dest, fetch[1])->err);
    rig_complete(p.dest, RIG_PULL);
    assert_ok(rig_fetched(d[0], fetch[0]));
    p.dest->automatic = RIG_ALL;
    fetch[1] = rig_fetch(d[1], 0, 0);
    assert_ok(rig_fetched(d[1], fetch[1]));
    for (uint32_t i = 0; i < 2; i++) {
        assert_lengths(d[i], 16, 16, 16);
        rig_session_free(d[i]);
    }
    pair_stop(&p);
}

static void fetch_destination_full_pool_exhausted_and_the_source_lets_go(void **state)
{
    struct pair p = start_limit(1 << 20);
    struct rig_session *greedy = rig_session(p.dest, &p.de, p.dp, 2), *d;
    uint64_t fetch;

    (void)state;
    rig_put(p.source, &p.se, p.sp, 1, TOKENS);
    assert_ok(rig_match(greedy, rig_tokens(9, 256), 256));
    assert_ok(rig_run_to(greedy, rig_tokens(9, 256),
                         50 * 4)); /* 14 of 64 pages are left, 16 are needed */
    d = asking(&p, 1, TOKENS);
    fetch = rig_fetch(d, 0, 0);
    assert_err(TERN_POOL_EXHAUSTED, rig_fetched(d, fetch));
    assert_int_equal(rig_reply_to(p.dest, fetch)->shortage.needed, 16);
    assert_int_equal(rig_reply_to(p.dest, fetch)->shortage.free, 14);
    assert_int_equal(rig_view(p.source).serves, 0);
    assert_ok(rig_close(greedy, 0));
    fetch = rig_fetch(d, 0, 0);
    assert_ok(rig_fetched(d, fetch));
    assert_lengths(d, TOKENS, TOKENS, TOKENS);
    rig_session_free(greedy);
    rig_session_free(d);
    pair_stop(&p);
}

static void fetch_wrong_state_refused(void **state)
{
    struct pair p = start_limit(1 << 20);
    struct rig_session *d = rig_session(p.dest, &p.de, p.dp, 1);
    uint64_t fetch;

    (void)state;
    rig_put(p.source, &p.se, p.sp, 1, TOKENS);
    fetch = rig_fetch(d, 0, 0);
    assert_err(TERN_INVALID, rig_reply_to(p.dest, fetch)->err); /* no tokens yet */
    assert_ok(rig_match(d, rig_tokens(1, TOKENS), TOKENS));
    fetch = rig_fetch(d, 9, 0);
    assert_err(TERN_INVALID, rig_reply_to(p.dest, fetch)->err);
    fetch = rig_fetch(d, NONE, 0);
    assert_err(TERN_INVALID, rig_reply_to(p.dest, fetch)->err);
    fetch = rig_fetch(d, 1, 0);
    assert_err(TERN_PEER_LOST, rig_reply_to(p.dest, fetch)->err); /* configured, not connected */
    assert_ok(rig_extend(d, 8, 0, NULL, 0));
    fetch = rig_fetch(d, 0, 0);
    assert_err(TERN_INVALID, rig_reply_to(p.dest, fetch)->err); /* A > T */
    assert_ok(rig_rewind(d, 0, 0)); /* and with it the tokens behind 0 */
    assert_ok(rig_match(d, rig_tokens(1, TOKENS), TOKENS));
    hold_pulls(&p);
    rig_fetch(d, 0, 0);
    fetch = rig_fetch(d, 0, 0);
    assert_err(TERN_BUSY, rig_reply_to(p.dest, fetch)->err);
    assert_err(TERN_BUSY, rig_extend(d, 128, 0, NULL, 0));
    assert_err(TERN_BUSY, rig_match(d, rig_tokens(1, TOKENS), TOKENS));
    rig_session_free(d);
    pair_stop(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(fetch_bytes_in_flight_stay_within_the_peers_limit),
        RIG_TEST(fetch_bytes_in_flight_stay_within_the_tenants_limit),
        RIG_TEST(fetch_page_above_the_limit_goes_alone),
        RIG_TEST(fetch_source_full_answers_busy),
        RIG_TEST(fetch_destination_full_pool_exhausted_and_the_source_lets_go),
        RIG_TEST(fetch_wrong_state_refused),
    };

    return RIG_RUN(tests);
}
