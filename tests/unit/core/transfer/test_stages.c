/* A transfer as operators see it: its stage, what it waits for and for how long, and how much has
 * arrived. */
#include "unit/rig/rig_pair.h"

#define TOKENS 64 /* 16 pages of 4 tokens and 512 bytes */
#define MS     NS_PER_MS
#define PAGE   512u

static struct transfer_view in_view(struct rig *rig, uint32_t slot)
{
    struct transfer_view v;

    assert_true(core_pull_view(rig->core, slot, &v));
    return v;
}

static struct transfer_view out_view(struct rig *rig)
{
    struct transfer_view v;

    assert_true(core_serve_view(rig->core, 0, &v));
    return v;
}

static uint64_t stage_ms(struct rig *rig, const struct transfer_view *v, enum transfer_stage stage)
{
    return transfer_stage_ns(&v->times, stage, rig->now_ns) / MS;
}

static uint64_t wait_ms(struct rig *rig, const struct transfer_view *v, enum transfer_wait wait)
{
    return transfer_wait_ns(&v->times, wait, rig->now_ns) / MS;
}

#define assert_is(v, s, w)                                                                         \
    do {                                                                                           \
        assert_int_equal((v).times.stage, STAGE_##s);                                              \
        assert_int_equal((v).times.wait, WAIT_##w);                                                \
    } while (0)

/* The times of all stages add up to the transfer's age. */
static void assert_adds_up(struct rig *rig, const struct transfer_view *v)
{
    uint64_t stages = 0, waits = 0;

    for (uint32_t i = 0; i < TRANSFER_STAGES; i++)
        stages += transfer_stage_ns(&v->times, (enum transfer_stage)i, rig->now_ns);
    for (uint32_t i = 0; i < TRANSFER_WAITS; i++)
        waits += transfer_wait_ns(&v->times, (enum transfer_wait)i, rig->now_ns);
    assert_true(stages == rig->now_ns - v->started_ns);
    assert_true(waits == rig->now_ns - v->started_ns);
}

static void assert_moved(const struct transfer_view *v, uint32_t asked, uint32_t verified,
                         uint32_t published)
{
    assert_int_equal(v->pages_asked, asked);
    assert_int_equal(v->pages_verified, verified);
    assert_int_equal(v->pages_published, published);
    assert_int_equal(v->bytes_asked, asked * PAGE);
    assert_int_equal(v->bytes_verified, verified * PAGE);
    assert_int_equal(v->bytes_published, published * PAGE);
}

/* p.d fetches 16 pages, of which 4 may be on their way at a time. */
static struct pair four_at_a_time(uint64_t *ret_fetch)
{
    struct pair p = pair_limited(4 * PAGE);

    pair_offer(&p, TOKENS);
    p.source->automatic = BY_HAND(RIG_SERVE_STOP);
    *ret_fetch = fetch_held(&p, RIG_PULL | RIG_PULL_STOP | RIG_MSG);
    return p;
}

TEST(stages_of_a_fetch_follow_each_other_and_add_up)
{
    uint64_t fetch;
    struct pair p = four_at_a_time(&fetch);
    struct transfer_view v = in_view(p.dest, 0);

    assert_is(v, QUEUED, SOURCE);
    assert_true(v.tenant == 0 && v.peer == 0 && !v.ticket);
    rig_advance(p.dest, 3 * MS);
    rig_complete(p.dest, RIG_MSG);
    v = in_view(p.dest, 0);
    assert_is(v, WIRE, CREDIT);
    assert_int_equal(v.pages, 16);
    assert_int_equal(v.bytes, 16 * PAGE);
    assert_moved(&v, 4, 0, 0);
    rig_advance(p.dest, 5 * MS);
    rig_complete(p.dest, RIG_PULL);
    v = in_view(p.dest, 0);
    assert_moved(&v, 8, 4, 4);
    rig_advance(p.dest, 7 * MS);
    rig_complete(p.dest, RIG_PULL);
    rig_complete(p.dest, RIG_PULL);
    v = in_view(p.dest, 0);
    assert_is(v, WIRE, NOTHING); /* everything is asked for */
    rig_advance(p.dest, 11 * MS);
    rig_complete(p.dest, RIG_PULL);
    assert_ok(rig_fetched(p.d, fetch));
    rig_advance(p.dest, 2 * MS);
    v = in_view(p.dest, 0);
    assert_is(v, PUBLISHED, PROOF);
    assert_moved(&v, 16, 16, 16);
    assert_int_equal(stage_ms(p.dest, &v, STAGE_QUEUED), 3);
    assert_int_equal(stage_ms(p.dest, &v, STAGE_WIRE), 5 + 7 + 11);
    assert_int_equal(stage_ms(p.dest, &v, STAGE_PUBLISHED), 2);
    assert_int_equal(wait_ms(p.dest, &v, WAIT_SOURCE), 3);
    assert_int_equal(wait_ms(p.dest, &v, WAIT_CREDIT), 5 + 7);
    assert_int_equal(wait_ms(p.dest, &v, WAIT_PROOF), 2);
    assert_adds_up(p.dest, &v);
}

/* A transfer's times and counts do not appear in the next one of its slot. */
TEST(stages_begin_anew_with_each_transfer)
{
    uint64_t fetch;
    struct pair p = four_at_a_time(&fetch);
    struct transfer_view v;

    rig_complete(p.dest, RIG_MSG);
    rig_advance(p.dest, 5 * MS);
    complete_all(p.dest, RIG_PULL);
    assert_ok(rig_fetched(p.d, fetch));
    complete_all(p.dest, RIG_PULL_STOP);
    complete_all(p.dest, RIG_MSG);
    complete_all(p.source, RIG_SERVE_STOP);
    rig_advance(p.dest, 5 * MS);
    rig_fetch(asking_source(&p, 2, TOKENS), 0, 0);
    v = in_view(p.dest, 0);
    assert_is(v, QUEUED, SOURCE);
    assert_moved(&v, 0, 0, 0);
    assert_true(rate_of(v.rate, p.dest->now_ns) == 0);
    assert_adds_up(p.dest, &v);
    assert_int_equal(stage_ms(p.dest, &v, STAGE_WIRE), 0);
}

/* Pages that arrive wrong are asked for again, and count as verified once. */
TEST(stages_count_what_is_asked_for_again)
{
    uint64_t fetch;
    struct pair p = four_at_a_time(&fetch);
    struct transfer_view v;

    rig_complete(p.dest, RIG_MSG);
    p.dest->corrupt_pages = 1;
    rig_complete(p.dest, RIG_PULL);
    v = in_view(p.dest, 0);
    assert_int_equal(v.pages_asked, 8);
    assert_int_equal(v.pages_verified, 3);
    complete_all(p.dest, RIG_PULL);
    assert_ok(rig_fetched(p.d, fetch));
    v = in_view(p.dest, 0);
    assert_moved(&v, 17, 16, 16);
}

/* A cancel with pages on their way: the transfer ends, and nothing more is published. */
TEST(stages_of_a_cancelled_fetch_wait_for_the_proof)
{
    uint64_t fetch;
    struct pair p = four_at_a_time(&fetch);
    struct transfer_view v;

    rig_complete(p.dest, RIG_MSG);
    rig_complete(p.dest, RIG_PULL);
    rig_advance(p.dest, 4 * MS);
    assert_ok(rig_fetch_cancel(p.d));
    rig_advance(p.dest, 6 * MS);
    v = in_view(p.dest, 0);
    assert_is(v, ENDING, PROOF);
    assert_moved(&v, 8, 4, 4);
    assert_int_equal(v.quarantined, 12);
    assert_int_equal(stage_ms(p.dest, &v, STAGE_WIRE), 4);
    assert_int_equal(stage_ms(p.dest, &v, STAGE_ENDING), 6);
    assert_adds_up(p.dest, &v);
}

TEST(stages_tell_a_busy_source_from_one_that_has_not_committed)
{
    struct pair p = PAIR_LIMITED(limits.serves = 1, 4, 128, 128);
    struct rig_session *first = asking_source(&p, 1, 16), *second = asking_source(&p, 2, 16), *d;
    struct transfer_view v;
    uint32_t slot = 0;

    p.dest->automatic = BY_HAND(RIG_PULL);
    rig_fetch(first, 0, 0);
    rig_fetch(second, 0, 0);
    v = in_view(p.dest, 1);
    assert_is(v, QUEUED, BUSY);
    last_batch_comes(first);
    rig_advance(p.dest, 10 * MS); /* the source's time to come back */
    v = in_view(p.dest, 1);
    assert_is(v, WIRE, NOTHING);
    assert_int_equal(wait_ms(p.dest, &v, WAIT_BUSY), 10);
    last_batch_comes(second);

    d = asking(&p, 3, 16);
    d->at_least = 16;
    rig_fetch(d, 0, 0);
    while (!core_pull_view(p.dest->core, slot, &v))
        slot++;
    assert_is(v, QUEUED, COMMIT);
    rig_advance(p.dest, MS / 2);
    v = in_view(p.dest, slot);
    assert_true(transfer_wait_ns(&v.times, WAIT_COMMIT, p.dest->now_ns) == MS / 2);
}

TEST(stages_at_the_source_walk_seal_and_offer)
{
    struct rig_options o = rig_defaults();
    struct transfer_view v;
    struct pair p;

    o.limits.open_tokens = 16; /* tokens a message */
    p = pair_with(o, 4, 64, 64);
    p.source->automatic = BY_HAND(RIG_SEAL | RIG_SERVE_STOP | RIG_MSG);
    p.dest->automatic = BY_HAND(RIG_PULL);
    pair_offer(&p, TOKENS);
    rig_fetch(p.d, 0, 0);
    v = out_view(p.source);
    assert_is(v, WALKING, TOKENS);
    assert_true(v.outgoing && v.tenant == 0 && v.peer == 0);
    rig_advance(p.source, 2 * MS);
    for (uint32_t i = 0; i < 3; i++)
        rig_complete(p.source, RIG_MSG); /* it asks for more tokens */
    v = out_view(p.source);
    assert_is(v, SEALING, SEAL);
    rig_advance(p.source, 3 * MS);
    complete_all(p.source, RIG_SEAL);
    v = out_view(p.source);
    assert_is(v, OFFERED, NOTHING);
    assert_int_equal(v.pages, 16);
    assert_int_equal(v.bytes, 16 * PAGE);
    rig_advance(p.source, 5 * MS);
    complete_all(p.source, RIG_MSG);
    complete_all(p.dest, RIG_PULL);
    assert_ok(rig_fetched(p.d, p.d->fetch));
    rig_advance(p.source, 7 * MS);
    v = out_view(p.source);
    assert_is(v, RELEASED, PROOF);
    assert_int_equal(stage_ms(p.source, &v, STAGE_WALKING), 2);
    assert_int_equal(wait_ms(p.source, &v, WAIT_SEAL), 3);
    assert_int_equal(stage_ms(p.source, &v, STAGE_OFFERED), 5);
    assert_adds_up(p.source, &v);
}

/* The rate is that of the last second: without arrivals it falls to zero. */
TEST(rate_is_of_the_last_second)
{
    struct rate r = {0};
    const uint64_t s = RATE_SPAN_NS;

    assert_true(rate_of(r, 5 * s) == 0);
    rate_add(&r, 5 * s, 600);
    rate_add(&r, 5 * s + s / 2, 400);
    assert_true(rate_of(r, 5 * s + s / 2) == 1000);
    assert_true(rate_of(r, 6 * s) == 1000);
    assert_true(rate_of(r, 6 * s + s / 4) == 750);
    rate_add(&r, 6 * s + s / 2, 100);
    assert_true(rate_of(r, 6 * s + s / 2) == 600);
    assert_true(rate_of(r, 7 * s + s / 2) == 50);
    assert_true(rate_of(r, 8 * s) == 0);
}
