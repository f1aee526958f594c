/* Checksum jobs: as many at a time as there are slots, and every page gets its checksum. */
#include "unit/rig/rig_pair.h"

#include "core/transfer/serves.h"

/* No more jobs at a time than the limit, and in the end every page has its checksum. */
TEST(limits_seal_jobs_bounded_and_none_forgotten)
{
    struct rig_options options = rig_defaults();
    struct bench b;
    uint32_t jobs = 0;

    options.limits.seal_jobs = 3;
    b = bench_with(&options, 4, 64);
    b.rig->automatic = BY_HAND(RIG_SEAL);
    rig_put(b.rig, &b.e, b.pool, 1, 80);
    while (rig_jobs(b.rig, RIG_SEAL)) {
        assert_true(rig_jobs(b.rig, RIG_SEAL) <= 3);
        rig_complete(b.rig, RIG_SEAL);
        jobs++;
    }
    assert_int_equal(jobs, 20);
    for (uint32_t i = 0; i < options.limits.nodes; i++) {
        struct node_view v;

        if (core_node_view(b.rig->core, i, &v) && v.depth)
            assert_true(v.sealed);
    }
}

/* More checksums than one step can ask for: the rest is asked for at once, without another
 * event. */
TEST(seals_beyond_the_actions_of_a_step_follow_at_once)
{
    struct bench b = BENCH_LIMITED(limits.seal_jobs = 2 * ACTIONS_MAX, 4, 2 * ACTIONS_MAX);

    b.rig->automatic = BY_HAND(RIG_SEAL);
    commits(b.s, 1, 4 * (ACTIONS_MAX + 8));
    assert_int_equal(rig_jobs(b.rig, RIG_SEAL), ACTIONS_MAX + 8);
    complete_all(b.rig, RIG_SEAL);
}

/* Few large pages at a time: the first checksums are reported while other pages are read. */
TEST(seals_of_large_pages_are_computed_a_few_at_a_time)
{
    const uint64_t bytes[] = {256u << 10, 768u << 10};
    const uint32_t pages[] = {12, 4}, at_once[] = {8, 2};

    for (uint32_t i = 0; i < 2; i++) {
        struct rig_options options = rig_defaults();
        struct group_layout group = rig_group(4, bytes[i]);
        struct rig_engine e;
        struct pool_id pool;
        struct rig *rig;
        uint32_t left = pages[i];

        options.limits.seal_jobs = 16;
        rig = rig_create(&options);
        e = rig_engine(rig, 0, "e", 1);
        assert_ok(rig_pool_open(rig, e.conn[0], &group, 1, 4u << 20, &pool));
        assert_ok(rig_map(rig, e.conn[0], pool));
        rig->automatic = BY_HAND(RIG_SEAL);
        rig_put(rig, &e, pool, 1, 4 * pages[i]);
        for (; left > 0; left--) {
            assert_int_equal(rig_jobs(rig, RIG_SEAL), left < at_once[i] ? left : at_once[i]);
            rig_complete(rig, RIG_SEAL);
        }
        rig_destroy_all();
    }
}

/* At least two at a time, so that no worker waits for the owner. */
TEST(seals_of_pages_beyond_the_limit_are_computed_two_at_a_time)
{
    struct rig_options options = rig_defaults();
    struct group_layout group = rig_group(4, 3u << 20);
    struct rig_engine e;
    struct pool_id pool;
    struct rig *rig;

    options.tenant[0].memory_bytes = 16u << 20;
    rig = rig_create(&options);
    e = rig_engine(rig, 0, "e", 1);
    assert_ok(rig_pool_open(rig, e.conn[0], &group, 1, 16u << 20, &pool));
    assert_ok(rig_map(rig, e.conn[0], pool));
    rig->automatic = BY_HAND(RIG_SEAL);
    rig_put(rig, &e, pool, 1, 12);
    for (uint32_t left = 3; left > 0; left--) {
        assert_int_equal(rig_jobs(rig, RIG_SEAL), left < 2 ? left : 2);
        rig_complete(rig, RIG_SEAL);
    }
    assert_int_equal(rig_jobs(rig, RIG_SEAL), 0);
}

/* T22: however much one tenant commits, another one's checksums wait for one job only. */
TEST(seals_of_tenants_take_turns)
{
    struct rig_options options = rig_defaults();
    struct rig_engine other;
    struct pool_id pool;
    struct bench b;
    uint32_t jobs = 0, left = 4;

    options.limits.seal_jobs = 1;
    b = bench_with(&options, 4, 64);
    other = rig_engine(b.rig, 1, "other", 1);
    pool = rig_pool_pages(b.rig, &other, 4, 64);
    b.rig->automatic = BY_HAND(RIG_SEAL);
    rig_put(b.rig, &b.e, b.pool, 1, 80);
    rig_put(b.rig, &other, pool, 1, 16);
    for (; left > 0; jobs++) {
        left -= rig_job(b.rig, RIG_SEAL, 0)->pool == pool.slot;
        rig_complete(b.rig, RIG_SEAL);
    }
    assert_int_equal(jobs, 8);
    complete_all(b.rig, RIG_SEAL);
}

/* The step by which an engine may have brought checksums: the one that the commit named, also for a
 * chunk that is published later with the one it continues; none for pages written before. */
TEST(seals_name_the_step_that_the_commit_named)
{
    struct bench b = bench_start(4, 64);

    b.rig->automatic = BY_HAND(RIG_SEAL);
    assert_ok(rig_match(b.s, rig_tokens(1, 16), 16));
    assert_ok(rig_run_to(b.s, rig_tokens(1, 16), 16));
    assert_ok(rig_commit(b.s, 4, 0));
    assert_int_equal(rig_job(b.rig, RIG_SEAL, 0)->pages[0].step, 0);
    rig_complete(b.rig, RIG_SEAL);
    assert_ok(rig_commit(b.s, 8, 5));
    assert_ok(rig_commit(b.s, 16, 3));
    assert_int_equal(rig_jobs(b.rig, RIG_SEAL), 0);
    rig_step_done(b.rig, b.e.id, 0, 5);
    assert_int_equal(rig_jobs(b.rig, RIG_SEAL), 3);
    assert_int_equal(rig_job(b.rig, RIG_SEAL, 0)->pages[0].step, 5);
    assert_int_equal(rig_job(b.rig, RIG_SEAL, 1)->pages[0].step, 3);
    assert_int_equal(rig_job(b.rig, RIG_SEAL, 2)->pages[0].step, 3);
    complete_all(b.rig, RIG_SEAL);
}

/* Commits five chunks below each other. Each goes to the host when its checksums are known. */
static struct bench committed_through(void)
{
    struct bench b = HOST_BENCH_LIMITED(limits.seal_jobs = 4, 4, 64, 64);

    b.rig->automatic = BY_HAND(RIG_SEAL | RIG_COPY);
    commits(b.s, 1, 20);
    assert_int_equal(rig_jobs(b.rig, RIG_SEAL), 4);
    return b;
}

static void assert_same_jobs(struct rig *a, struct rig *b)
{
    assert_int_equal(rig_jobs(a, RIG_SEAL), rig_jobs(b, RIG_SEAL));
    for (uint32_t i = 0; i < rig_jobs(a, RIG_SEAL); i++)
        assert_true(seal_id_equal(rig_job(a, RIG_SEAL, i)->seal, rig_job(b, RIG_SEAL, i)->seal));
    assert_int_equal(rig_jobs(a, RIG_COPY), rig_jobs(b, RIG_COPY));
    for (uint32_t i = 0; i < rig_jobs(a, RIG_COPY); i++)
        assert_true(copy_id_equal(rig_job(a, RIG_COPY, i)->copy, rig_job(b, RIG_COPY, i)->copy));
    for (uint32_t i = 0; i < a->options.limits.nodes; i++) {
        struct node_view v = {.depth = 0}, w = {.depth = 0};

        assert_int_equal(core_node_view(a->core, i, &v), core_node_view(b->core, i, &w));
        assert_true(v.depth == w.depth && v.sealed == w.sealed);
    }
}

/* One event that ends several jobs has the outcome of one event for each. Ends of jobs that have
 * ended, or never began, change nothing. */
TEST(seals_that_end_in_one_event_end_as_one_by_one)
{
    struct bench one = committed_through(), many = committed_through();
    struct event event = {.kind = EV_SEALED, .sealed.n = 3};

    for (uint32_t i = 0; i < 3; i++)
        rig_complete(one.rig, RIG_SEAL);
    rig_complete_seals(many.rig, 3);
    assert_true(rig_jobs(one.rig, RIG_COPY) > 0);
    assert_int_equal(rig_jobs(one.rig, RIG_SEAL), 2);
    assert_same_jobs(one.rig, many.rig);

    event.sealed.job[0] = (struct seal_id){many.rig->options.limits.nodes - 1, 77};
    event.sealed.job[1] = event.sealed.job[2] = rig_job(many.rig, RIG_SEAL, 0)->seal;
    for (uint32_t i = 0; i < 2; i++)
        rig_complete(one.rig, RIG_SEAL);
    rig_complete_seals(many.rig, 2);
    rig_event(many.rig, &event);
    assert_int_equal(rig_jobs(one.rig, RIG_SEAL), 0);
    assert_same_jobs(one.rig, many.rig);
}

/* T20: at the end of a piece the node waits for a job without pages, and the end of that job does
 * the rest. */
TEST(t20_a_seal_behind_the_end_of_a_piece_ends_with_a_job_of_no_pages)
{
    struct bench b = bench_start(4, 64);
    struct event timer = {.kind = EV_TIMER};
    struct seal_id id;
    struct node_view v;

    b.rig->automatic = BY_HAND(RIG_SEAL);
    commits(b.s, 1, 4);
    id = rig_job(b.rig, RIG_SEAL, 0)->seal;
    b.rig->core->piece_end = b.rig->core->visits;
    seal_done(b.rig->core, id);
    assert_true(core_node_view(b.rig->core, id.slot, &v) && !v.sealed);
    rig_event(b.rig, &timer);
    assert_int_equal(rig_jobs(b.rig, RIG_SEAL), 2);
    assert_true(seal_id_equal(rig_job(b.rig, RIG_SEAL, 1)->seal, id));
    assert_int_equal(rig_job(b.rig, RIG_SEAL, 1)->n, 0);
    rig_complete_seals(b.rig, 2);
    assert_true(core_node_view(b.rig->core, id.slot, &v) && v.sealed);
    assert_int_equal(rig_jobs(b.rig, RIG_SEAL), 0);
}
