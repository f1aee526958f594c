/* Faults of the fault table (docs/rules.md) that the core answers for alone: a network that loses
 * messages, time that jumps, pages that an engine still uses, pools and quotas that are full. Each
 * case prints its line when all of its checks have passed. */
#include <stdio.h>

#include "unit/rig/rig_pair.h"

#define TOKENS 64u
#define PAGES  16u /* of TOKENS */

/* ------------------------------------------------------------------ lost messages */

/* The directions between two hosts in which messages are lost. */
struct cut {
    bool to_source, to_dest;
};

/* Delivers or drops one message, or one batch of pages. Returns false if nothing is on its way. */
static bool one_arrives(struct pair *p, struct cut cut)
{
    if (rig_jobs(p->dest, RIG_MSG) > 0) {
        (cut.to_source ? rig_drop : rig_complete)(p->dest, RIG_MSG);
        return true;
    }
    if (rig_jobs(p->source, RIG_MSG) > 0) {
        (cut.to_dest ? rig_drop : rig_complete)(p->source, RIG_MSG);
        return true;
    }
    if (rig_jobs(p->dest, RIG_PULL) == 0 || cut.to_source || cut.to_dest)
        return false; /* pages need both directions */
    rig_complete(p->dest, RIG_PULL);
    return true;
}

static void by_hand(struct pair *p)
{
    p->dest->automatic = BY_HAND(RIG_MSG | RIG_PULL);
    p->source->automatic = BY_HAND(RIG_MSG);
}

/* Advances both hosts beyond the deadline of a transfer. */
static void deadline_passes(struct pair *p, struct cut cut)
{
    for (uint32_t i = 0; i < 2; i++) {
        rig_advance(p->dest, p->dest->options.limits.transfer_deadline_ns);
        rig_advance(p->source, p->source->options.limits.transfer_deadline_ns);
        while (one_arrives(p, cut))
            ;
    }
}

/* Neither side keeps anything of the transfer, and the source has the prefix as before. */
static void assert_source_owns(struct pair *p)
{
    struct rig_session *s = rig_session(p->source, &p->se, p->sp, 1);

    assert_int_equal(rig_view(p->dest).pulls, 0);
    assert_int_equal(rig_view(p->source).serves, 0);
    assert_int_equal(quarantined(p), 0);
    assert_int_equal(rig_group_view(p->dest, p->dp, 0).transfer, 0);
    matches(s, seq1, TOKENS, TOKENS);
    closes_whole(s, TOKENS);
}

/* The cut begins after `before` deliveries of a fetch; then the network is whole again, and the
 * same fetch moves everything. Returns false if the fetch ended before the cut. */
static bool partition_heals(uint32_t before, struct cut cut)
{
    struct pair p = pair_offered(3 * 512); /* several batches */

    by_hand(&p);
    rig_fetch(p.d, 0, 0);
    for (uint32_t i = 0; i < before; i++)
        if (!one_arrives(&p, (struct cut){0}))
            return false;
    deadline_passes(&p, cut);
    assert_non_null(rig_reply_to(p.dest, p.d->fetch));
    rig_fetched(p.d, p.d->fetch);
    assert_int_equal(rig_wrong(p.d, p.d->len.committed), 0);
    assert_source_owns(&p);
    rig_runs_free(p.dest);
    rig_runs_free(p.source);
    assert_leaves_whole(fetch_all(p.d), p.d, TOKENS);
    pair_ends_clean(&p, PAGES, PAGES);
    return true;
}

TEST(fault_28_after_a_partition_the_source_owns_and_the_fetch_can_be_repeated)
{
    static const struct cut cuts[] = {{true, true}, {true, false}, {false, true}};
    uint32_t runs = 0;

    for (uint32_t c = 0; c < sizeof cuts / sizeof cuts[0]; c++)
        for (uint32_t before = 0; partition_heals(before, cuts[c]); before++, runs++)
            rig_destroy_all();
    assert_true(runs >= 3 * 8);
    printf("fault=28 runs=%u injected=%u violations=0 dual_owner=0\n", runs, runs);
}

/* The message that ends a transfer is lost: both sides end all the same. If it arrives late, when
 * the transfer is long over, it changes nothing. Returns how many messages were lost. */
static uint32_t last_message_lost(bool comes_late)
{
    struct pair p = pair_offered(3 * 512);
    uint32_t lost = 0;

    by_hand(&p);
    rig_fetch(p.d, 0, 0);
    while (!rig_reply_to(p.dest, p.d->fetch))
        assert_true(one_arrives(&p, (struct cut){0}));
    assert_ok(rig_fetched(p.d, p.d->fetch));
    lost = rig_jobs(p.dest, RIG_MSG);
    assert_int_equal(rig_view(p.source).serves, 1); /* the source waits for that message */
    if (!comes_late)
        while (rig_jobs(p.dest, RIG_MSG) > 0)
            rig_drop(p.dest, RIG_MSG);
    rig_advance(p.source, p.source->options.limits.transfer_deadline_ns);
    assert_int_equal(rig_view(p.source).serves, 0);
    if (comes_late) {
        struct core_view before = rig_view(p.source), after;

        while (rig_jobs(p.dest, RIG_MSG) > 0)
            rig_complete(p.dest, RIG_MSG);
        after = rig_view(p.source);
        assert_int_equal(after.serves, 0);
        assert_int_equal(after.nodes, before.nodes);
        assert_int_equal(after.pages_served, before.pages_served);
    }
    while (one_arrives(&p, (struct cut){0}))
        ;
    rig_runs_free(p.dest);
    rig_runs_free(p.source);
    assert_source_owns(&p);
    assert_leaves_whole(fetch_all(p.d), p.d, TOKENS); /* repeated: nothing is left to move */
    pair_ends_clean(&p, PAGES, PAGES);
    return lost;
}

TEST(fault_29_the_last_message_of_a_transfer_is_lost_or_late)
{
    uint32_t lost = last_message_lost(false), late = last_message_lost(true);

    assert_true(lost > 0 && late > 0);
    printf("fault=29 runs=2 injected=%u violations=0 orphans=0\n", lost + late);
}

/* ------------------------------------------------------------------ time that jumps */

#define ASLEEP_NS 60000000000u

/* A machine sleeps for a minute while pages arrive and others wait for a step: time alone proves
 * nothing. Returns how many pages came free early. */
static uint32_t asleep(bool dest, bool source)
{
    struct pair p = pair_offered(1 << 20);
    struct rig_session *s = rig_committed(p.dest, &p.de, p.dp, 7, 16);
    uint32_t early = 0;

    computes(s, 7, 32);
    assert_ok(rig_rewind(s, 16, 5)); /* four pages: step 5 still writes them */
    fetch_held(&p, RIG_PULL | RIG_PULL_STOP);
    assert_int_equal(rig_retiring(p.dest, p.dp), 4);
    if (dest)
        rig_advance(p.dest, ASLEEP_NS);
    if (source)
        rig_advance(p.source, ASLEEP_NS);
    early += 4 - rig_retiring(p.dest, p.dp);
    if (dest) {
        assert_err(TERN_TIMED_OUT, rig_fetched(p.d, p.d->fetch));
        early += PAGES - quarantined(&p);
    }
    rig_engine_done(p.dest, &p.de, 5);
    assert_int_equal(rig_retiring(p.dest, p.dp), 0);
    rig_runs_free(p.dest);
    rig_advance(p.source, p.source->options.limits.transfer_deadline_ns);
    rig_advance(p.dest, p.dest->options.limits.transfer_deadline_ns);
    assert_true(rig_fetched(p.d, p.d->fetch) != TERN_BUSY);
    assert_int_equal(rig_wrong(p.d, p.d->len.committed), 0);
    assert_ok(rig_close(s, 0));
    assert_source_owns(&p);
    assert_ok(rig_close(p.d, 0));
    return early;
}

TEST(fault_32_a_minute_asleep_frees_nothing_that_is_not_proven)
{
    uint32_t early = asleep(true, true);

    early += asleep(true, false);
    early += asleep(false, true);
    assert_int_equal(early, 0);
    printf("fault=32 runs=3 injected=3 violations=0 early_reuse=%u\n", early);
}

/* ------------------------------------------------------------------ full tables */

/* Every page is pinned or a running session's. Each request is answered in its own event, pinned
 * pages keep their bytes, and one page that comes free serves the next request. */
TEST(fault_36_exhausted_and_pinned_is_answered_at_once)
{
    struct bench b = bench_start(4, 12);
    struct rig_session *pinned = rig_committed(b.rig, &b.e, b.pool, 1, 16),
                       *running = rig_session(b.rig, &b.e, b.pool, 1);
    uint32_t refused = 0;

    computes(running, 2, 32);
    assert_int_equal(rig_free(b.rig, b.pool), 0);
    assert_ok(rig_match(b.s, rig_tokens(3, 8), 8));
    for (uint32_t i = 0; i < 100; i++) { /* rig_extend fails without an immediate answer */
        assert_err(TERN_POOL_EXHAUSTED, rig_extend(i % 2 ? b.s : pinned, 20, 0, NULL, 0));
        assert_int_equal(b.rig->res.shortage.free, 0);
        assert_int_equal(b.rig->res.shortage.until_step, 0); /* no step would free any */
        refused++;
    }
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 0), 0);
    assert_int_equal(rig_wrong(pinned, 16), 0);
    assert_int_equal(rig_wrong(running, 32), 0);
    assert_ok(rig_rewind(running, 28, 0));
    assert_ok(rig_run_to(b.s, rig_tokens(3, 8), 4));
    assert_ok(rig_close(running, 0));
    assert_ok(rig_run_to(b.s, rig_tokens(3, 8), 8));
    printf("fault=36 runs=1 injected=%u violations=0 refused=%u\n", refused, refused);
}

/* One tenant asks for more than its quota of everything; in between the other one gets all of its
 * own. */
TEST(fault_37_a_quota_is_its_tenants_alone)
{
    struct rig_options options = rig_defaults();
    struct group_layout group = rig_group(4, 128);
    struct rig_engine other;
    struct rig_session *mine;
    struct pool_id pool, more;
    uint32_t refused = 0;
    struct bench b;

    options.tenant[0].sessions_max = 1;
    options.tenant[0].memory_bytes = 1u << 20;
    b = bench_with(&options, 4, 32);
    other = rig_engine(b.rig, 1, "other", 1);
    pool = rig_pool_pages(b.rig, &other, 4, 200);
    for (uint32_t i = 0; i < 20; i++) {
        struct rig_session s;

        assert_err(TERN_QUOTA, rig_session_open(b.rig, b.e.conn[0], b.pool, 1, &s));
        assert_err(TERN_QUOTA, rig_pool_open(b.rig, b.e.conn[0], &group, 1, 1u << 20, &more));
        refused += 2;
        mine = rig_session(b.rig, &other, pool, 1);
        commits(mine, 1 + i, 16);
        closes_whole(mine, 16);
        assert_int_equal(rig_depth(mine, seq1, 16), 16); /* nothing was evicted */
    }
    printf("fault=37 runs=20 injected=%u violations=0 neighbour_failed=0\n", refused);
}

/* ------------------------------------------------------------------ pages that are still in use */

enum { STEP = 3, ROOM = 8 /* pages of the pool */ };

/* A running session returns four pages at STEP, in one of several ways. */
static void gives_back(struct rig_session *s, uint32_t how)
{
    switch (how) {
    case 0: assert_ok(rig_rewind(s, 0, STEP)); break;
    case 1: assert_ok(rig_abort(s, STEP)); break;
    case 2: assert_ok(rig_close(s, STEP)); break;
    case 3: /* the tree has them: the session's own go */ assert_ok(rig_commit(s, 16, STEP)); break;
    default: fail();
    }
}

/* A session takes all pages that it can get. Returns how many of them are among `given`. */
static uint32_t gets_of(struct rig_session *s, const struct page_ref *given, uint32_t n)
{
    uint32_t tokens = s->len.allocated, among = 0;

    while (rig_extend(s, tokens + 4, 0, NULL, 0) == TERN_OK)
        tokens += 4;
    for (uint32_t p = 0; p < tokens / 4; p++)
        for (uint32_t i = 0; i < n; i++)
            among += s->table[0][p].index == given[i].index;
    return among;
}

static uint32_t reused_before_step(uint32_t how)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 2);
    struct pool_id pool = rig_pool_pages(rig, &e, 4, ROOM + (how == 3 ? 4 : 0));
    struct rig_session *s = rig_session(rig, &e, pool, 1), *other = rig_session(rig, &e, pool, 1);
    struct page_ref given[4];
    uint32_t early = 0;

    computes(s, 1, 16);
    memcpy(given, s->table[0], sizeof given);
    if (how == 3)
        rig_put(rig, &e, pool, 1, 16);
    assert_ok(rig_match(other, rig_tokens(2, 64), 64));
    gives_back(s, how);
    early += gets_of(other, given, 4);
    rig_step_done(rig, e.id, 0, STEP);
    early += gets_of(other, given, 4);
    rig_step_done(rig, e.id, 1, STEP - 1);
    early += gets_of(other, given, 4);
    rig_step_done(rig, e.id, 1, STEP);
    assert_int_equal(gets_of(other, given, 4), 4);
    return early;
}

/* A prefix that the session only borrowed is pinned until the step, so nobody evicts it. */
static uint32_t evicted_before_step(void)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 2);
    struct pool_id pool = rig_pool_pages(rig, &e, 4, ROOM);
    struct rig_session *s = rig_committed(rig, &e, pool, 1, 16),
                       *other = rig_session(rig, &e, pool, 1);
    struct page_ref given[4];
    uint32_t early = 0;

    memcpy(given, s->table[0], sizeof given);
    assert_ok(rig_match(other, rig_tokens(2, 64), 64));
    assert_ok(rig_close(s, STEP));
    early += gets_of(other, given, 4);
    rig_step_done(rig, e.id, 0, STEP);
    early += gets_of(other, given, 4);
    rig_step_done(rig, e.id, 1, STEP);
    assert_int_equal(gets_of(other, given, 4), 4);
    return early;
}

TEST(fault_39_pages_and_pins_given_up_are_kept_until_every_rank_has_passed)
{
    uint32_t early = 0;

    for (uint32_t how = 0; how < 4; how++)
        early += reused_before_step(how);
    early += evicted_before_step();
    assert_int_equal(early, 0);
    printf("fault=39 runs=5 injected=20 violations=0 reused_before_step=%u\n", early);
}
