/* Pages that an engine holds ahead of need (E5), and the operations of a Step that assign them to
 * sessions and return them (E6). */
#include "unit/rig/rig_lease.h"

static uint32_t leased(const struct bench *b)
{
    return rig_group_view(b->rig, b->pool, 0).leased;
}

/* E5: a lease takes pages that are free, and they have an owner class of their own (T1). */
TEST(e5_leased_pages_are_free_no_more_and_counted_apart)
{
    struct bench b = bench_start(4, 8);
    struct rig_lease l = rig_lease_of(b.rig, &b.e, b.pool);

    assert_ok(lease_more(&l, 3));
    assert_int_equal(leased(&b), 3);
    assert_int_equal(rig_free(b.rig, b.pool), 5);
    assert_ok(rig_match(b.s, seq1, 32));
    assert_err(TERN_POOL_EXHAUSTED, rig_extend(b.s, 32, 0, NULL, 0));
    assert_ok(rig_extend(b.s, 20, 0, NULL, 0));
    assert_int_equal(rig_free(b.rig, b.pool), 0);
    assert_int_equal(leased(&b), 3);
}

/* A lease gets all of its pages or none, and evicts nothing if that would not be enough (T11). */
TEST(e5_lease_evicts_as_an_extend_does_and_only_if_that_is_enough)
{
    struct bench b = bench_start(4, 8);
    struct rig_lease l = rig_lease_of(b.rig, &b.e, b.pool);

    rig_put(b.rig, &b.e, b.pool, 2, 16);       /* four pages that can go, four that are free */
    assert_err(TERN_QUOTA, lease_more(&l, 9)); /* the pool has 8 */
    assert_ok(lease_more(&l, 1));
    assert_err(TERN_POOL_EXHAUSTED, lease_more(&l, 8));
    assert_int_equal(b.rig->last->shortage.evictable, 4);
    assert_int_equal(b.rig->last->shortage.free, 3);
    assert_int_equal(rig_depth(b.s, rig_tokens(2, 16), 16), 16);
    assert_ok(lease_more(&l, 6));
    assert_int_equal(rig_depth(b.s, rig_tokens(2, 16), 16), 4);
    assert_int_equal(leased(&b), 7);
}

TEST(e5_lease_of_what_is_no_lease_is_refused)
{
    struct bench b = BENCH_LIMITED(limits.lease_pages = 4, 4, 8);
    struct rig_lease l = rig_lease_of(b.rig, &b.e, b.pool);

    assert_err(TERN_INVALID, lease_more(&l, 0));
    l.group = 1;
    assert_err(TERN_INVALID, lease_more(&l, 1));
    l.group = 0;
    assert_err(TERN_QUOTA, lease_more(&l, 5));
    assert_ok(lease_more(&l, 3));
    assert_err(TERN_QUOTA, lease_more(&l, 2));
    assert_ok(lease_more(&l, 1));
    assert_int_equal(b.rig->last->page_lease.leased, 4);
    l.pool.gen++;
    assert_err(TERN_GONE, lease_more(&l, 1));
    assert_int_equal(leased(&b), 4);
}

/* E6: an assign has the effect of an extend, with leased pages in place of new ones. */
TEST(e6_assign_grows_the_session_as_an_extend_would)
{
    struct bench b = bench_start(4, 8);
    struct rig_lease l = rig_lease_of(b.rig, &b.e, b.pool);
    struct page_ref second;

    assert_ok(rig_match(b.s, seq1, 16));
    assert_ok(lease_more(&l, 4));
    second = l.page[1];
    assert_ok(assign(&l, b.s, 2, 4));
    assert_lengths(b.s, 0, 0, 8);
    assert_int_equal(b.s->table[0][1].index, second.index);
    assert_int_equal(b.s->table[0][1].gen, second.gen);
    assert_int_equal(leased(&b), 2);
    assert_int_equal(rig_group_view(b.rig, b.pool, 0).session, 2);
    assert_ok(assign(&l, b.s, 2, 4));
    rig_write(b.s, 0, 16);
    assert_ok(rig_extend(b.s, 0, 16, NULL, 0));
    assert_ok(rig_commit(b.s, 16, 0));
    assert_whole(b.s, 16);
    assert_int_equal(leased(&b), 0);
}

/* One operation carries all that a decode step changes in a session. */
TEST(e6_assign_takes_tokens_and_what_is_written)
{
    struct bench b = bench_start(4, 8);
    struct rig_lease l = rig_lease_of(b.rig, &b.e, b.pool);
    struct table_run run = {.group = 0, .first = 1, .n = 1, .refs = l.page};
    struct step_op op = {.kind = STEP_ASSIGN,
                         .length = 8,
                         .written = 5,
                         .tokens = {.v = seq1 + 4, .n = 2, .base = 4},
                         .nruns = 1,
                         .runs = &run};

    assert_ok(rig_match(b.s, seq1, 4));
    assert_ok(rig_run_to(b.s, seq1, 4));
    assert_ok(lease_more(&l, 1));
    op.tokens.base = 3;
    assert_err(TERN_CONFLICT, rig_op(b.s, op));
    assert_int_equal(leased(&b), 1);
    op.tokens.base = 4;
    assert_ok(rig_op(b.s, op));
    assert_lengths(b.s, 0, 5, 8);
    assert_int_equal(b.rig->res.tokens, 6);
    assert_int_equal(leased(&b), 0);
}

/* Pages that are not leased to this engine: the operation fails and changes nothing. */
TEST(e6_assign_of_pages_that_are_not_leased_to_the_engine)
{
    struct bench b = bench_start(4, 8);
    struct rig_lease l = rig_lease_of(b.rig, &b.e, b.pool), other;
    struct rig_engine second = rig_engine(b.rig, 0, "second", 1);
    struct page_ref pages[2];

    assert_ok(rig_map(b.rig, second.conn[0], b.pool));
    other = rig_lease_of(b.rig, &second, b.pool);
    assert_ok(rig_match(b.s, seq1, 32));
    assert_ok(lease_more(&l, 2));
    assert_ok(lease_more(&other, 1));
    assert_err(TERN_CONFLICT, assign_at(b.s, 0, 0, other.page, 1, 4)); /* another engine's */
    pages[0] = (struct page_ref){.index = l.page[0].index, .gen = l.page[0].gen + 1};
    assert_err(TERN_GONE, assign_at(b.s, 0, 0, pages, 1, 4)); /* stale */
    pages[0] = (struct page_ref){.index = 77, .gen = 1};
    assert_err(TERN_GONE, assign_at(b.s, 0, 0, pages, 1, 4)); /* no such index */
    pages[0] = pages[1] = l.page[0];
    assert_err(TERN_CONFLICT, assign_at(b.s, 0, 0, pages, 2, 8)); /* twice in one operation */
    assert_err(TERN_INVALID, assign_at(b.s, 1, 0, l.page, 1, 4)); /* no such group */
    assert_err(TERN_INVALID, assign_at(b.s, 0, 1, l.page, 1, 4)); /* not where the table ends */
    assert_err(TERN_INVALID, assign_at(b.s, 0, 0, l.page, 2, 4)); /* too many for that length */
    assert_err(TERN_INVALID, assign_at(b.s, 0, 0, l.page, 1, 8)); /* too few */
    assert_err(TERN_INVALID, assign_at(b.s, 0, 0, l.page, 0, 4)); /* none */
    assert_lengths(b.s, 0, 0, 0);
    assert_int_equal(leased(&b), 3);
    pages[0] = l.page[0];
    assert_ok(assign(&l, b.s, 1, 4));
    assert_err(TERN_CONFLICT, assign_at(b.s, 0, 1, pages, 1, 8)); /* a second time */
    assert_lengths(b.s, 0, 0, 4);
    assert_int_equal(leased(&b), 2);
}

/* An assign that fails at its second page changes nothing for the first either. */
TEST(e6_assign_refused_in_the_middle_leaves_every_page_leased)
{
    struct bench b = bench_start(4, 8);
    struct rig_lease l = rig_lease_of(b.rig, &b.e, b.pool);
    struct page_ref pages[3];

    assert_ok(rig_match(b.s, seq1, 32));
    assert_ok(lease_more(&l, 3));
    memcpy(pages, l.page, sizeof pages);
    pages[2].gen++;
    assert_err(TERN_GONE, assign_at(b.s, 0, 0, pages, 3, 12));
    assert_ok(assign(&l, b.s, 3, 4));
    assert_lengths(b.s, 0, 0, 12);
}

/* E2: the engine may have touched the pages that it returns: they wait for the step it named. */
TEST(e5_pages_that_are_given_back_retire_behind_their_step)
{
    struct bench b = bench_start(4, 8);
    struct rig_lease l = rig_lease_of(b.rig, &b.e, b.pool);

    assert_ok(lease_more(&l, 8));
    assert_ok(unlease(&l, l.page, 3, 5));
    assert_int_equal(leased(&b), 5);
    assert_int_equal(rig_retiring(b.rig, b.pool), 3);
    assert_err(TERN_GONE, unlease(&l, (struct page_ref[]){{l.page[0].index, 0}}, 1, 5));
    assert_err(TERN_CONFLICT, unlease(&l, l.page, 1, 5)); /* already returned */
    assert_err(TERN_POOL_EXHAUSTED, lease_more(&l, 1));
    assert_int_equal(b.rig->last->shortage.until_step, 5);
    rig_engine_done(b.rig, &b.e, 4);
    assert_int_equal(rig_free(b.rig, b.pool), 0);
    rig_engine_done(b.rig, &b.e, 5);
    assert_int_equal(rig_free(b.rig, b.pool), 3);
    assert_ok(unlease(&l, l.page + 3, 2, 5)); /* that step has passed */
    assert_int_equal(rig_free(b.rig, b.pool), 5);
    assert_int_equal(leased(&b), 3);
}

TEST(e5_giving_back_needs_a_record_for_its_step)
{
    struct bench b = BENCH_LIMITED(limits.retires = 1, 4, 8);
    struct rig_lease l = rig_lease_of(b.rig, &b.e, b.pool);

    assert_ok(lease_more(&l, 4));
    assert_ok(unlease(&l, l.page, 1, 1));
    assert_err(TERN_BUSY, unlease(&l, l.page + 1, 1, 2));
    assert_int_equal(leased(&b), 3);
    rig_engine_done(b.rig, &b.e, 1);
    assert_ok(unlease(&l, l.page + 1, 1, 2));
}

/* E1: the lease of an engine that died stays its own until the last of its processes is gone. */
TEST(e1_leased_pages_stay_the_engines_until_it_is_gone)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 2);
    struct pool_id pool = rig_pool_pages(rig, &e, 4, 8);
    struct rig_lease l = rig_lease_of(rig, &e, pool);

    assert_ok(lease_more(&l, 6));
    rig_engine_kill(rig, &e, 0);
    assert_int_equal(rig_group_view(rig, pool, 0).leased, 6);
    assert_int_equal(rig_free(rig, pool), 2);
    rig_engine_kill(rig, &e, 1);
    assert_int_equal(rig_group_view(rig, pool, 0).leased, 0);
    assert_int_equal(rig_free(rig, pool), 8);
}

/* T20: the pages are returned in pieces. A request meanwhile is BUSY, not POOL_EXHAUSTED. */
TEST(t20_lease_of_an_engine_that_is_gone_comes_back_in_pieces)
{
    struct rig_options o = OPTIONS_WITH(limits.give_back_visits = 3);
    struct bench b = bench_with(&o, 4, 16);
    struct rig_engine second = rig_engine(b.rig, 0, "second", 1);
    struct rig_lease l = rig_lease_of(b.rig, &b.e, b.pool);

    assert_ok(rig_map(b.rig, second.conn[0], b.pool));
    assert_ok(lease_more(&l, 16));
    rig_proc_gone(b.rig, b.e.proc[0]);
    rig_timers(b.rig);
    assert_int_equal(leased(&b), 0);
    assert_int_equal(rig_free(b.rig, b.pool), 16);
    assert_int_equal(rig_view(b.rig).engines, 1);
}

/* A pool with leased pages is not closed: no step is known that may touch them last. */
TEST(e5_pool_with_leased_pages_is_not_closed)
{
    struct bench b = bench_start(4, 8);
    struct rig_lease l = rig_lease_of(b.rig, &b.e, b.pool);

    assert_ok(lease_more(&l, 2));
    assert_ok(rig_close(b.s, 0));
    assert_err(TERN_CONFLICT, rig_pool_close(b.rig, b.e.conn[0], b.pool));
    assert_ok(unlease(&l, l.page, 2, 0));
    assert_ok(rig_pool_close(b.rig, b.e.conn[0], b.pool));
    assert_err(TERN_GONE, lease_more(&l, 1));
}

/* STATE: pages of a WINDOW group can be leased as those of HISTORY can, pages of a RECURRENT group
 * cannot. An assign adds the pages of all groups or of none. */
TEST(e6_assign_in_a_pool_with_state)
{
    struct group_layout groups[2] = {rig_group(4, 512), rig_window(4, 8, 512)};
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 1);
    struct rig_lease history, window;
    struct rig_session *s;
    struct table_run runs[2];
    struct pool_id pool;

    assert_ok(rig_pool_open(rig, e.conn[0], groups, 2, 32768, &pool));
    assert_ok(rig_map(rig, e.conn[0], pool));
    s = rig_session(rig, &e, pool, 1);
    assert_ok(rig_match(s, seq1, 16));
    history = window = rig_lease_of(rig, &e, pool);
    window.group = 1;
    assert_ok(lease_more(&history, 2));
    assert_ok(lease_more(&window, 2));
    runs[0] = (struct table_run){.group = 0, .n = 2, .refs = history.page};
    runs[1] = (struct table_run){.group = 1, .n = 2, .refs = window.page};
    assert_err(
        TERN_INVALID,
        rig_op(s, (struct step_op){.kind = STEP_ASSIGN, .length = 8, .nruns = 1, .runs = runs}));
    runs[1].refs = history.page; /* of the wrong group */
    assert_int_not_equal(
        rig_op(s, (struct step_op){.kind = STEP_ASSIGN, .length = 8, .nruns = 2, .runs = runs}),
        TERN_OK);
    assert_int_equal(rig_group_view(rig, pool, 0).leased, 2);
    runs[1].refs = window.page;
    assert_ok(
        rig_op(s, (struct step_op){.kind = STEP_ASSIGN, .length = 8, .nruns = 2, .runs = runs}));
    assert_lengths(s, 0, 0, 8);
    assert_int_equal(rig_group_view(rig, pool, 1).leased, 0);
    assert_int_equal(rig_group_view(rig, pool, 1).session, 2);
}

TEST(e6_assign_brings_no_recurrent_page)
{
    struct group_layout groups[2] = {rig_group(4, 512), rig_recurrent(4, 512)};
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 1);
    struct rig_lease l;
    struct rig_session *s;
    struct pool_id pool;

    assert_ok(rig_pool_open(rig, e.conn[0], groups, 2, 32768, &pool));
    assert_ok(rig_map(rig, e.conn[0], pool));
    s = rig_session(rig, &e, pool, 1);
    l = rig_lease_of(rig, &e, pool);
    l.group = 1;
    assert_err(TERN_INVALID, lease_more(&l, 1));
    l.group = 0;
    assert_ok(lease_more(&l, 2));
    assert_ok(rig_match(s, seq1, 16));
    assert_err(TERN_INVALID, assign(&l, s, 1, 4));
    assert_ok(rig_extend(s, 4, 0, NULL, 0)); /* the session has that page now */
    assert_ok(assign(&l, s, 2, 4));
    assert_lengths(s, 0, 0, 12);
}

/* A session state in which Extend fails makes Assign fail too, and the pages stay leased. */
TEST(e6_assign_to_a_session_that_is_away_or_gone)
{
    struct bench b = bench_start(4, 8);
    struct rig_lease l = rig_lease_of(b.rig, &b.e, b.pool);
    struct rig_session *s = rig_committed(b.rig, &b.e, b.pool, 2, 8);

    assert_ok(lease_more(&l, 2));
    assert_ok(rig_retract(s, RETRACT_DROP, 0));
    assert_err(TERN_INVALID, assign_at(s, 0, 2, l.page, 1, 12));
    assert_ok(rig_close(s, 0));
    assert_err(TERN_GONE, assign_at(s, 0, 2, l.page, 1, 12));
    assert_int_equal(leased(&b), 2);
}
