/* Y4: units of pages that come ahead of their commit, between two cores. */
#include "unit/rig/rig_follow.h"

#define UNITS 4u
#define PAGE  512u

static struct followed begin_units(void)
{
    struct pair p = pair_limited(1 << 20);
    struct group_layout group = rig_group(4, PAGE);

    group.units = UNITS;
    assert_ok(rig_pool_open(p.source, p.se.conn[0], &group, 1, 1u << 20, &p.sp));
    assert_ok(rig_pool_open(p.dest, p.de.conn[0], &group, 1, 1u << 20, &p.dp));
    return begin_with(p);
}

static enum tern_err written(struct rig_session *s, uint32_t first, uint32_t n, uint32_t until,
                             uint64_t step)
{
    return rig_op(
        s,
        (struct step_op){
            .kind = STEP_WRITTEN, .length = until, .unit_first = first, .unit_n = n, .step = step});
}

/* The source has pages up to `to`, whose last `left` units hold garbage: they are not written. */
static void part_of(struct followed *f, uint32_t from, uint32_t to, uint32_t left)
{
    struct rig_session *s = f->s;

    if (to > s->len.allocated)
        assert_ok(rig_extend(s, to, 0, NULL, 0));
    rig_write(s, from, to);
    for (uint32_t i = from / 4; i < (to + 3) / 4; i++) {
        uint64_t n;
        uint8_t *page = rig_page(s->rig, s->pool.slot, 0, s->table[0][i].index, &n);

        memset(page + (UNITS - left) * n / UNITS, 0xcc, left * n / UNITS);
    }
}

static uint64_t ahead(struct followed *f)
{
    return f->p.dest->ahead_pages;
}

static void handed_whole(struct followed *f)
{
    goes_on(f->s, 1, LEN, 0);
    write_last_page(f->s, 0, 0x5a);
    hand_over(f->s, 0, 7);
    assert_ok(rig_fetched(f->d, f->d->fetch));
    assert_lengths(f->d, FULL, LEN, LEN);
    assert_int_equal(rig_wrong(f->d, FULL), 0);
    assert_true(last_page_is(f->d, 0, 0x5a));
    assert_true(blob_came(f->d, 7));
    assert_int_equal(rig_view(f->p.source).serves, 0);
    assert_int_equal(rig_view(f->p.dest).pulls, 0);
    assert_int_equal(rig_group_view(f->p.dest, f->p.dp, 0).transfer, 0);
}

TEST(y4_units_come_ahead_and_with_the_commit_the_rest_alone)
{
    struct followed f = begin_units();

    follow(f.d, f.t);
    part_of(&f, 0, 16, 3);
    assert_ok(written(f.s, 0, 1, 16, 0));
    assert_int_equal(ahead(&f), 4);
    assert_int_equal(f.p.dest->pulled_bytes, 4 * PAGE / UNITS);
    part_of(&f, 0, 16, 1);
    assert_ok(written(f.s, 1, 2, 16, 0));
    assert_int_equal(ahead(&f), 8);
    assert_int_equal(come_so_far(f.d), 0); /* nothing of that is published */
    goes_on(f.s, 1, 16, 0);
    assert_int_equal(come_so_far(f.d), 16);
    assert_int_equal(f.p.dest->pulled_pages, 4);
    assert_int_equal(f.p.dest->pulled_bytes, 4 * PAGE); /* each byte once */
    handed_whole(&f);
    assert_int_equal(f.p.dest->pulled_bytes, 11 * PAGE);
    assert_int_equal(rig_view(f.p.dest).early_again, 0);
}

/* A prompt of one chunk, and one that ends within a page: all of HISTORY is there ahead. */
TEST(y4_all_units_come_ahead_and_of_the_commit_checksums_alone)
{
    struct followed f = begin_units();

    follow(f.d, f.t);
    assert_ok(rig_extend(f.s, LEN, 0, NULL, 0));
    rig_write(f.s, 0, LEN);
    part_of(&f, 0, LEN, 0);
    for (uint32_t u = 0; u < UNITS; u++)
        assert_ok(written(f.s, u, 1, LEN, 0));
    assert_int_equal(ahead(&f), 11 * UNITS);
    assert_int_equal(f.p.dest->pulled_bytes, 11 * PAGE);
    handed_whole(&f);
    assert_int_equal(f.p.dest->pulled_pages, 12); /* the last was written again since */
    assert_int_equal(f.p.dest->pulled_bytes, 12 * PAGE);
    assert_int_equal(rig_view(f.p.dest).early_again, 1);
}

TEST(y4_units_wait_for_the_step_that_writes_them)
{
    struct followed f = begin_units();

    follow(f.d, f.t);
    part_of(&f, 0, 8, 0);
    assert_ok(written(f.s, 0, 2, 8, 3));
    assert_ok(written(f.s, 2, 2, 8, 4));
    assert_int_equal(ahead(&f), 0);
    assert_int_equal(f.p.source->step_wanted, 1); /* its follower waits for the next */
    assert_true(core_waits_for_steps(f.p.source->core));
    rig_engine_done(f.p.source, &f.p.se, 2);
    assert_int_equal(ahead(&f), 0);
    rig_engine_done(f.p.source, &f.p.se, 3);
    assert_int_equal(ahead(&f), 2);
    assert_int_equal(f.p.dest->pulled_bytes, PAGE);
    rig_engine_done(f.p.source, &f.p.se, 4);
    assert_int_equal(ahead(&f), 4);
    assert_false(core_waits_for_steps(f.p.source->core));
    handed_whole(&f);
}

/* E3: an engine commits when it dispatches the step, and says of each part when it is written. */
TEST(y4_units_of_a_commit_that_waits_for_its_step_come_ahead)
{
    struct followed f = begin_units();

    follow(f.d, f.t);
    goes_on(f.s, 1, 16, 8);
    for (uint32_t u = 0; u < UNITS; u++)
        assert_ok(written(f.s, u, 1, 16, 5 + u));
    rig_engine_done(f.p.source, &f.p.se, 7);
    assert_int_equal(ahead(&f), 4);
    assert_int_equal(f.p.dest->pulled_bytes, 3 * PAGE);
    assert_int_equal(come_so_far(f.d), 0);
    rig_engine_done(f.p.source, &f.p.se, 8);
    assert_int_equal(come_so_far(f.d), 16);
    assert_int_equal(f.p.dest->pulled_bytes, 4 * PAGE);
    handed_whole(&f);
}

TEST(y4_unit_that_is_written_again_is_asked_for_again)
{
    for (uint32_t unit = 0; unit < 2; unit++) {
        struct followed f = begin_units();
        uint64_t n;

        follow(f.d, f.t);
        part_of(&f, 0, 16, 2);
        rig_page(f.p.source, f.p.sp.slot, 0, f.s->table[0][2].index, &n)[unit * n / UNITS] ^= 1;
        assert_ok(written(f.s, 0, 2, 16, 0));
        assert_int_equal(ahead(&f), 4);
        goes_on(f.s, 1, 16, 0); /* which writes what is right */
        assert_int_equal(come_so_far(f.d), 16);
        assert_int_equal(rig_view(f.p.dest).early_again, 1);
        assert_int_equal(rig_view(f.p.dest).corrupt_detected, 0); /* nobody's fault */
        handed_whole(&f);
        rig_destroy_all();
    }
}

TEST(y4_units_with_gaps_between_them_are_put_together)
{
    struct followed f = begin_units();

    follow(f.d, f.t);
    part_of(&f, 0, 8, 0);
    assert_ok(written(f.s, 0, 1, 8, 0));
    assert_ok(written(f.s, 3, 1, 8, 0));
    part_of(&f, 8, 20, 0);
    assert_ok(written(f.s, 2, 1, 20, 0));
    assert_int_equal(ahead(&f), 2 + 2 + 5);
    goes_on(f.s, 1, 20, 0);
    assert_int_equal(come_so_far(f.d), 20);
    assert_int_equal(f.p.dest->pulled_bytes, 5 * PAGE);
    handed_whole(&f);
}

/* Nothing else is asked for that writes a page while units of it may still come. */
TEST(y4_rest_of_a_page_waits_until_its_units_are_here)
{
    struct followed f = begin_units();

    follow(f.d, f.t);
    part_of(&f, 0, 8, 0);
    f.p.dest->automatic = BY_HAND(RIG_PULL);
    assert_ok(written(f.s, 0, 1, 8, 0));
    assert_int_equal(rig_jobs(f.p.dest, RIG_PULL), 1);
    goes_on(f.s, 1, 12, 0);
    assert_int_equal(rig_jobs(f.p.dest, RIG_PULL), 1); /* the third chunk waits behind these */
    rig_complete(f.p.dest, RIG_PULL);
    assert_int_equal(rig_jobs(f.p.dest, RIG_PULL), 2);
    assert_int_equal(rig_job(f.p.dest, RIG_PULL, 0)->part, PART_REST);
    assert_int_equal(rig_job(f.p.dest, RIG_PULL, 0)->units, 0xe);
    assert_int_equal(rig_job(f.p.dest, RIG_PULL, 1)->part, PART_WHOLE);
    f.p.dest->automatic = RIG_ALL;
    while (rig_jobs(f.p.dest, RIG_PULL) > 0)
        rig_complete(f.p.dest, RIG_PULL);
    handed_whole(&f);
}

/* One run of pages at a time: the source tells more when the destination has these. */
TEST(y4_source_tells_of_one_run_at_a_time)
{
    struct followed f = begin_units();

    follow(f.d, f.t);
    f.p.dest->automatic = BY_HAND(RIG_PULL);
    part_of(&f, 0, 20, 0);
    rig_engine_done(f.p.source, &f.p.se, UNITS);
    for (uint32_t u = 0; u < UNITS; u++)
        assert_ok(written(f.s, u, 1, 20, 1 + u));
    assert_int_equal(rig_view(f.p.source).early_told, 5);
    assert_int_equal(rig_jobs(f.p.dest, RIG_PULL), 1);
    rig_complete(f.p.dest, RIG_PULL);
    assert_int_equal(rig_view(f.p.source).early_told, 10); /* what waited goes together */
    assert_int_equal(rig_job(f.p.dest, RIG_PULL, 0)->units, 0xe);
    rig_complete(f.p.dest, RIG_PULL);
    assert_int_equal(rig_jobs(f.p.dest, RIG_PULL), 0);
    f.p.dest->automatic = RIG_ALL;
    handed_whole(&f);
}

/* Whoever ends it while units are on their way: pages are quarantined, and come back. */
TEST(y4_transfer_ends_while_units_are_on_their_way)
{
    for (uint32_t how = 0; how < 4; how++) {
        struct followed f = begin_units();
        struct group_view g;

        follow(f.d, f.t);
        part_of(&f, 0, 16, 0);
        assert_ok(written(f.s, 0, 1, 16, 0));
        f.p.dest->automatic = BY_HAND(RIG_PULL | RIG_PULL_STOP);
        assert_ok(written(f.s, 1, 1, 16, 0));
        if (how == 0)
            assert_ok(rig_fetch_cancel(f.d));
        if (how == 1)
            rig_link_down(f.p.dest, 0);
        if (how == 2)
            assert_ok(rig_abort(f.s, 0));
        if (how == 3)
            rig_engine_kill(f.p.source, &f.p.se, 0);
        assert_err(how == 1 ? TERN_PEER_LOST : TERN_GONE, rig_fetched(f.d, f.d->fetch));
        assert_int_equal(rig_group_view(f.p.dest, f.p.dp, 0).quarantine, 11);
        rig_complete(f.p.dest, RIG_PULL_STOP);
        g = rig_group_view(f.p.dest, f.p.dp, 0);
        assert_int_equal(g.quarantine + g.transfer, 0);
        f.p.dest->automatic = RIG_ALL;
        if (how == 1)
            rig_link_up(f.p.dest, 0, f.p.source, f.p.source->options.limits.peers);
        if (how < 2) { /* the ticket stands; what came before is not taken for anything */
            follow(f.d, f.t);
            handed_whole(&f);
        }
        rig_destroy_all();
    }
}

/* The page is another one by now: it is refused, and that breaks nothing. */
TEST(y4_units_of_a_page_that_is_gone_are_refused_and_come_with_the_commit)
{
    struct followed f = begin_units();
    uint32_t record;

    follow(f.d, f.t);
    part_of(&f, 0, LEN, 0);
    f.p.dest->automatic = BY_HAND(RIG_PULL);
    assert_ok(written(f.s, 0, 1, 24, 0));
    rig_job(f.p.dest, RIG_PULL, 0)->refs[3].gen++;
    assert_int_equal(core_serve_units(f.p.source->core, rig_job(f.p.dest, RIG_PULL, 0)->serve, 0,
                                      rig_job(f.p.dest, RIG_PULL, 0)->refs[2], 2, &record),
                     TERN_GONE); /* nor others than were told */
    f.p.dest->automatic = RIG_ALL;
    rig_complete(f.p.dest, RIG_PULL);
    assert_int_equal(ahead(&f), 5);
    assert_int_equal(rig_view(f.p.dest).early_pages, 5);
    handed_whole(&f);
}

/* What was said reaches up to where the session was rewound to. */
TEST(y4_rewind_forgets_what_was_said_of_the_tail)
{
    struct followed f = begin_units();

    follow(f.d, f.t);
    part_of(&f, 0, LEN + 8, 0);
    assert_ok(written(f.s, 0, 1, 8, 3));
    assert_ok(written(f.s, 1, 1, LEN + 8, 3));
    assert_ok(rig_rewind(f.s, LEN - 1, 0));
    rig_engine_done(f.p.source, &f.p.se, 3);
    assert_int_equal(ahead(&f), 0); /* it gave up a token that was compared, and is over */
    assert_err(TERN_INVALID, rig_fetched(f.d, f.d->fetch));
    assert_ok(rig_extend(f.s, LEN, 0, rig_tokens(1, LEN) + LEN - 1, 1));
    follow(f.d, f.t);
    assert_int_equal(ahead(&f), 2 + 10); /* the last page is not whole up to there */
    handed_whole(&f);
}

TEST(y4_units_are_told_to_whoever_follows_next_as_far_as_none_was_told)
{
    struct followed f = begin_units();

    part_of(&f, 0, 16, 0);
    for (uint32_t i = 0; i < 2 * WRITTEN_MAX; i++) /* they are put together */
        assert_ok(written(f.s, i % UNITS, 1, 4 + 4 * (i / UNITS % 4), 0));
    follow(f.d, f.t);
    assert_int_equal(ahead(&f), 4);
    assert_int_equal(f.p.dest->pulled_bytes, 4 * PAGE);
    handed_whole(&f);
    assert_int_equal(rig_view(f.p.dest).early_again, 0);
}

TEST(y4_units_where_whole_pages_are_carried_come_with_the_commit)
{
    struct followed f = begin_units();

    f.p.dest->no_units = true;
    follow(f.d, f.t);
    part_of(&f, 0, 16, 0);
    assert_ok(written(f.s, 0, 1, 16, 0));
    assert_int_equal(rig_view(f.p.source).early_told, 4);
    assert_ok(written(f.s, 1, 1, 16, 0));
    assert_int_equal(rig_view(f.p.source).early_told, 4); /* it was said so once */
    handed_whole(&f);
    assert_int_equal(f.p.dest->pulled_pages, 11);
    assert_int_equal(rig_view(f.p.dest).early_pages, 0);
}

TEST(y4_written_is_refused_with_what_to_do)
{
    struct followed f = begin_units();

    part_of(&f, 0, 8, 0);
    assert_err(TERN_INVALID, written(f.s, 0, 0, 8, 0));
    assert_err(TERN_INVALID, written(f.s, UNITS, 1, 8, 0));
    assert_err(TERN_INVALID, written(f.s, 1, UINT32_MAX, 8, 0));
    assert_err(TERN_INVALID, written(f.s, 3, 2, 8, 0));
    assert_err(TERN_INVALID, written(f.s, 0, 1, 0, 0));
    assert_err(TERN_INVALID, written(f.s, 0, 1, 9, 0));
    assert_non_null(f.s->rig->res.text);
    assert_err(
        TERN_INVALID,
        rig_op(f.s, (struct step_op){.kind = STEP_WRITTEN, .group = 1, .length = 8, .unit_n = 1}));
    assert_ok(written(f.s, 0, 1, 8, 5));
    assert_err(TERN_INVALID, written(f.s, 1, 1, 8, 4));
    for (uint32_t i = 1; i < WRITTEN_MAX; i++)
        assert_ok(written(f.s, 0, 1, 8, 5 + i));
    assert_err(TERN_BUSY, written(f.s, 0, 1, 8, 5 + WRITTEN_MAX));
    rig_engine_done(f.p.source, &f.p.se, 6); /* two are one from then on */
    assert_ok(written(f.s, 1, 1, 8, 5 + WRITTEN_MAX));
    assert_err(TERN_BUSY, written(f.s, 0, 1, 8, 5 + WRITTEN_MAX));
}

/* Units [0, 2) of the first two pages, from the session's table: again, whatever was told before.
 */
static void told_again(struct followed *f)
{
    const struct pull *p = pull_at(f->p.dest->core, f->p.dest->core->pulls_active.head);
    struct event event = {.kind = EV_PEER_MSG, .peer.link = 0};
    struct table_run run = {.n = 2, .refs = f->s->table[0]};

    event.peer.msg = (struct peer_msg){.kind = PEER_PULL_EARLY,
                                       .pull = {f->p.dest->core->pulls_active.head, p->gen},
                                       .serve = p->serve,
                                       .units = 0x3,
                                       .runs = &run,
                                       .nruns = 1};
    rig_event(f->p.dest, &event);
}

/* They may come in part, and what is left of the page then is neither of the two. */
TEST(y4_units_that_are_told_of_again_count_only_when_they_are_here)
{
    struct followed f = begin_units();

    follow(f.d, f.t);
    part_of(&f, 0, 8, 0);
    assert_ok(written(f.s, 0, 1, 8, 0));
    assert_int_equal(ahead(&f), 2);
    f.p.dest->automatic = BY_HAND(RIG_PULL);
    told_again(&f);
    assert_int_equal(rig_jobs(f.p.dest, RIG_PULL), 1);
    for (uint32_t i = 0; i < 2; i++)
        rig_job(f.p.dest, RIG_PULL, 0)->refs[i].gen++; /* none is to be had */
    rig_complete(f.p.dest, RIG_PULL);
    goes_on(f.s, 1, 8, 0);
    f.p.dest->automatic = RIG_ALL;
    while (rig_jobs(f.p.dest, RIG_PULL) > 0) {
        assert_int_equal(rig_job(f.p.dest, RIG_PULL, 0)->part, PART_WHOLE);
        rig_complete(f.p.dest, RIG_PULL);
    }
    assert_int_equal(come_so_far(f.d), 8);
    handed_whole(&f);
}

/* A source that tells of the same over and over keeps no fetch alive. */
TEST(y4_follower_waits_no_longer_for_a_source_that_repeats_itself)
{
    struct followed f = begin_units();
    uint64_t until = 0;
    uint32_t told = 0;

    follow(f.d, f.t);
    part_of(&f, 0, 8, 0);
    assert_ok(written(f.s, 0, 1, 8, 0));
    for (; rig_view(f.p.dest).pulls == 1; told++) {
        const struct pull *p = pull_at(f.p.dest->core, f.p.dest->core->pulls_active.head);

        assert_true(told < 10000);
        assert_true(told > 11 * UNITS / 2 ? p->deadline_ns == until : p->deadline_ns >= until);
        until = p->deadline_ns;
        told_again(&f);
        rig_advance(f.p.dest, 10 * NS_PER_MS);
    }
    assert_err(TERN_TIMED_OUT, rig_fetched(f.d, f.d->fetch));
}

TEST(y4_source_tells_of_units_that_the_destination_lacks)
{
    struct followed f = begin_units();

    follow(f.d, f.t);
    f.p.dest->automatic = BY_HAND(RIG_PULL);
    part_of(&f, 0, 16, 0);
    assert_ok(written(f.s, 0, 1, 8, 0));
    rig_complete(f.p.dest, RIG_PULL);
    assert_ok(written(f.s, 0, 2, 16, 0));
    assert_int_equal(rig_job(f.p.dest, RIG_PULL, 0)->units, 0x2);
    assert_int_equal(rig_job(f.p.dest, RIG_PULL, 0)->n, 2);
    rig_complete(f.p.dest, RIG_PULL);
    assert_int_equal(rig_job(f.p.dest, RIG_PULL, 0)->units, 0x3);
    assert_int_equal(rig_job(f.p.dest, RIG_PULL, 0)->n, 2);
    f.p.dest->automatic = RIG_ALL;
    rig_complete(f.p.dest, RIG_PULL);
    goes_on(f.s, 1, 16, 0);
    assert_int_equal(f.p.dest->pulled_bytes, 4 * PAGE); /* each byte once */
    handed_whole(&f);
}

/* A session that has another's place is nobody's that was told of the other. */
TEST(y4_units_of_a_session_that_is_gone_do_not_leave)
{
    struct followed f = begin_units();
    struct page_ref ref;
    struct serve_id serve;
    uint32_t record;

    follow(f.d, f.t);
    part_of(&f, 0, 8, 0);
    assert_ok(written(f.s, 0, 1, 8, 0));
    ref = f.s->table[0][0];
    serve = pull_at(f.p.dest->core, f.p.dest->core->pulls_active.head)->serve;
    assert_ok(core_serve_units(f.p.source->core, serve, 0, ref, 1, &record));
    session_at(f.p.source->core, f.s->id.slot)->gen++;
    assert_err(TERN_GONE, core_serve_units(f.p.source->core, serve, 0, ref, 1, &record));
    session_at(f.p.source->core, f.s->id.slot)->gen--;
    handed_whole(&f);
}

/* Both ends look at so many pages behind what was offered. */
TEST(y4_pages_far_behind_what_is_offered_come_with_their_chunk)
{
    for (uint32_t most = 3; most < 5; most++) {
        struct followed f = begin_units();

        f.p.source->core->limits.early_pages = 3;
        f.p.dest->core->limits.early_pages = most;
        follow(f.d, f.t);
        part_of(&f, 0, 20, 0);
        assert_ok(written(f.s, 0, 1, 20, 0));
        assert_int_equal(ahead(&f), 3);
        assert_ok(written(f.s, 1, 1, 20, 0));
        assert_int_equal(ahead(&f), 6);
        goes_on(f.s, 1, 8, 0);
        assert_ok(written(f.s, 1, 1, 20, 0));
        assert_int_equal(ahead(&f), 8);
        handed_whole(&f);
        rig_destroy_all();
    }
}

/* What a source may not tell of. */
static void tell(struct followed *f, uint32_t how, struct peer_msg *m, struct table_run *run)
{
    static struct page_ref refs[PULL_BATCH_PAGES + 1];

    for (uint32_t i = 0; i < PULL_BATCH_PAGES + 1; i++)
        refs[i] = (struct page_ref){.index = 1 + i, .gen = 1};
    *run = (struct table_run){.group = 0, .first = 5, .n = 2, .refs = refs};
    m->kind = PEER_PULL_EARLY;
    m->units = 1;
    m->runs = run;
    m->nruns = 1;
    switch (how) {
    case 0: m->units = 0; return;
    case 1: m->units = 1u << UNITS; return;
    case 2: run->n = 0; return;
    case 3: run->n = PULL_BATCH_PAGES + 1; return;
    case 4: run->first = 4; return; /* it was offered */
    case 5: run->first = 10; return;
    case 6: run->first = UINT32_MAX; return;
    case 7: run->group = 1; return;
    case 8: m->nruns = 0; return;
    case 9: refs[1].gen = 0; return;
    case 10: m->serve.gen++; return;
    case 11: m->err = TERN_BUSY; return;
    case 12: f->p.dest->core->limits.early_pages = 1; return; /* too far behind what was offered */
    default: return;                                          /* nothing is wrong with it */
    }
}

TEST(y4_source_that_tells_what_it_may_not_is_cut_off)
{
    for (uint32_t how = 0; how < 15; how++) {
        struct followed f = begin_units();
        struct event event = {.kind = EV_PEER_MSG, .peer.link = 0};
        struct pull *p;
        struct table_run run;

        follow(f.d, f.t);
        goes_on(f.s, 1, 20, 0);
        assert_int_equal(come_so_far(f.d), 20);
        p = pull_at(f.p.dest->core, f.p.dest->core->pulls_active.head);
        event.peer.msg.pull = (struct pull_id){f.p.dest->core->pulls_active.head, p->gen};
        event.peer.msg.serve = p->serve;
        f.p.dest->automatic = BY_HAND(RIG_PULL);
        tell(&f, how, &event.peer.msg, &run);
        rig_event(f.p.dest, &event);
        if (how >= 13) {
            assert_int_equal(f.p.dest->link_closes, 0);
            assert_int_equal(rig_jobs(f.p.dest, RIG_PULL), 1);
            rig_event(f.p.dest, &event); /* a second run before that one is here */
        }
        assert_int_equal(f.p.dest->link_closes, 1);
        rig_destroy_all();
    }
}
