/* Scenarios of transfers. X-a: aborts while the peer's reads or writes are in flight, with the pool
 * under pressure. Two cores, real bytes: 0 wrong bytes, and quarantine empties only after proof. */
#include "unit/rig/rig_test.h"

#define PAGE_TOKENS 4
#define PREFIX      64 /* tokens of a sequence: 16 pages */
#define DEST_PAGES  24

static struct pair start(uint32_t batch_pages)
{
    return PAIR_LIMITED(limits.peer_bytes_in_flight = (uint64_t)batch_pages * 512, PAGE_TOKENS, 128,
                        DEST_PAGES);
}

/* Writes whatever a receive in flight may write until it is proven quiet. */
static uint32_t scribble(struct rig *rig)
{
    struct rig_job *job;
    uint32_t n = 0;

    for (uint32_t nth = 0; (job = rig_job(rig, RIG_PULL, nth)) != NULL; nth++)
        for (uint32_t i = 0; i < job->n; i++, n++) {
            uint64_t bytes;
            uint8_t *page =
                rig_page(rig, job->pool, job->pages[i].group, job->pages[i].index, &bytes);

            memset(page, 0xee, bytes);
        }
    return n;
}

/* Takes every page that it can get, writes it, and leaves it to the session. */
static void take_all(struct rig_session *s, const uint32_t *tokens)
{
    while (rig_run_to(s, tokens, s->len.allocated + PAGE_TOKENS) == TERN_OK)
        ;
    assert_true(s->rig->res.err == TERN_POOL_EXHAUSTED || s->rig->res.err == TERN_QUOTA);
}

static uint32_t quarantined(const struct pair *p)
{
    return rig_group_view(p->dest, p->dp, 0).quarantine;
}

static void one_round(struct pair *p, uint32_t round)
{
    struct rig_session *d = rig_session(p->dest, &p->de, p->dp, 1), *greedy;
    const uint32_t seed = 1 + round % 4, complete = round % 3;
    uint32_t in_flight, got;

    assert_ok(rig_match(d, rig_tokens(seed, PREFIX), PREFIX));
    p->dest->automatic = RIG_ALL & ~(uint32_t)(RIG_PULL | RIG_PULL_STOP);
    rig_fetch(d, 0, 0);
    for (uint32_t i = 0; i < complete && rig_jobs(p->dest, RIG_PULL); i++)
        rig_complete(p->dest, RIG_PULL);
    in_flight = scribble(p->dest);
    assert_true(in_flight > 0);
    assert_ok(rig_fetch_cancel(d));
    assert_err(TERN_GONE, rig_fetched(d, d->fetch));
    assert_true(quarantined(p) >= in_flight);

    greedy = rig_session(p->dest, &p->de, p->dp, 2);
    assert_ok(rig_match(greedy, rig_tokens(50 + round, 256), 256));
    take_all(greedy, rig_tokens(50 + round, 256));
    got = greedy->len.allocated;
    rig_advance(p->dest, 60000000000u);             /* no timer empties it */
    assert_int_equal(scribble(p->dest), in_flight); /* a late write */
    assert_int_equal(rig_wrong(greedy, got), 0);
    assert_int_equal(rig_wrong(d, d->len.committed), 0);
    assert_true(quarantined(p) >= in_flight);

    rig_complete(p->dest, RIG_PULL_STOP);
    assert_int_equal(quarantined(p), 0);
    take_all(greedy, rig_tokens(50 + round, 256));
    assert_true(greedy->len.allocated >= got + in_flight * PAGE_TOKENS);
    closes_whole(greedy, greedy->len.allocated);
    assert_ok(rig_close(d, 0));
}

TEST(x_a_writes_in_flight_quarantine_until_proof_0_wrong_bytes)
{
    struct pair p = start(4);
    uint32_t admin = rig_connect_admin(p.dest);

    for (uint32_t seed = 1; seed <= 4; seed++)
        rig_put(p.source, &p.se, p.sp, seed, PREFIX);
    for (uint32_t round = 0; round < 24; round++)
        one_round(&p, round);
    rig_evict(p.dest, admin, p.dp, 0);
    assert_int_equal(rig_free(p.dest, p.dp), DEST_PAGES);
    assert_int_equal(rig_view(p.source).serves, 0);
}

/* The other side: the puller ends while the source still sends. The source's pages stay pinned
 * until its own proof. */
TEST(x_a_reads_in_flight_source_keeps_its_pages_until_proof)
{
    struct pair p = start(4);
    uint32_t admin = rig_connect_admin(p.source);
    struct rig_session *d = rig_session(p.dest, &p.de, p.dp, 1), *greedy;

    rig_put(p.source, &p.se, p.sp, 1, PREFIX);
    assert_ok(rig_match(d, seq1, PREFIX));
    p.dest->automatic = RIG_ALL & ~(uint32_t)RIG_PULL;
    p.source->automatic = RIG_ALL & ~(uint32_t)RIG_SERVE_STOP;
    rig_fetch(d, 0, 0);
    assert_true(rig_jobs(p.dest, RIG_PULL) > 0);
    assert_ok(rig_fetch_cancel(d));
    assert_int_equal(rig_jobs(p.source, RIG_SERVE_STOP), 1);
    assert_int_equal(rig_evict(p.source, admin, p.sp, 0), 0);
    greedy = rig_session(p.source, &p.se, p.sp, 2);
    assert_ok(rig_match(greedy, rig_tokens(9, 512), 512));
    take_all(greedy, rig_tokens(9, 512));
    assert_int_equal(greedy->len.allocated, (128 - 16) * PAGE_TOKENS);
    assert_int_equal(rig_depth(greedy, seq1, PREFIX), 0); /* another namespace */
    rig_complete(p.source, RIG_SERVE_STOP);
    assert_int_equal(rig_evict(p.source, admin, p.sp, 0), 16);
    assert_int_equal(rig_free(p.source, p.sp), 16);
}

/* The connection breaks half-way: both ends end the transfer, the destination after its own
 * proof. */
TEST(x_a_link_lost_both_ends_end_and_pages_return)
{
    struct pair p = start(4);
    struct rig_session *d = rig_session(p.dest, &p.de, p.dp, 1);
    uint32_t admin = rig_connect_admin(p.source);

    rig_put(p.source, &p.se, p.sp, 1, PREFIX);
    assert_ok(rig_match(d, seq1, PREFIX));
    p.dest->automatic = RIG_ALL & ~(uint32_t)(RIG_PULL | RIG_PULL_STOP);
    rig_fetch(d, 0, 0);
    rig_complete(p.dest, RIG_PULL);
    rig_link_down(p.dest, 0);
    assert_err(TERN_PEER_LOST, rig_fetched(d, d->fetch));
    assert_true(quarantined(&p) > 0);
    rig_advance(p.dest, 60000000000u);
    assert_true(quarantined(&p) > 0);
    rig_complete(p.dest, RIG_PULL_STOP);
    assert_int_equal(quarantined(&p), 0);
    assert_int_equal(rig_wrong(d, d->len.committed), 0);
    assert_int_equal(rig_view(p.source).serves, 0);
    assert_int_equal(rig_evict(p.source, admin, p.sp, 0), 16);
}

/* S-i */
TEST(s_i_a_fetch_goes_on_from_what_the_session_has)
{
    struct pair p = start(64);
    struct rig_session *s;

    rig_put(p.source, &p.se, p.sp, 1, 8);
    s = session_with(p.dest, &p.de, p.dp, 1, PREFIX);
    run_and_commit(s, seq1, 10, 8, 0);
    s->fetch_step = 5;
    assert_leaves(rig_fetched(s, rig_fetch(s, 0, 0)), s, 8, 10, 10);
    assert_int_equal(rig_wrong(s, 10), 0);
    assert_int_equal(rig_group_view(p.dest, p.dp, 0).retiring, 0);
    rig_put(p.source, &p.se, p.sp, 1, PREFIX);
    assert_leaves_whole(rig_fetched(s, rig_fetch(s, 0, 0)), s, PREFIX);
    rig_engine_done(p.dest, &p.de, 4);
    assert_int_equal(rig_group_view(p.dest, p.dp, 0).retiring, 1);
    rig_engine_done(p.dest, &p.de, 5);
    assert_int_equal(rig_group_view(p.dest, p.dp, 0).retiring, 0);
}
