/* Prefixes are stored before they leave memory, and when the daemon ends. */
#include "unit/rig/rig_disk_bench.h"

#define FEW                                                                                        \
    ((struct disk_shape){                                                                          \
        .page_tokens = 4, .pages = 24, .page_bytes = 512, .budget = 1u << 22, .interval = 4096})

static void put(struct disk_bench *b, uint32_t seed, uint32_t n)
{
    struct rig_session *s = rig_session(b->rig, &b->e, b->pool, 1);

    assert_ok(rig_match(s, rig_tokens(seed, n), n));
    assert_ok(rig_run_to(s, rig_tokens(seed, n), n));
    assert_ok(rig_commit(s, n - n % 4, 0));
    assert_int_equal(disk_seen(b).stores, 0);
    disk_store(s, 4); /* an anchor: the rest of the prompt is not stored when it closes */
    assert_ok(rig_close(s, 0));
    rig_session_free(s);
}

TEST(what_is_evicted_next_is_stored_before)
{
    struct disk_bench b = disk_bench(FEW);

    for (uint32_t seed = 1; seed <= 8; seed++)
        put(&b, seed, 24);
    assert_true(disk_seen(&b).counts.stored[DISK_EVICT] >= 3);
    disk_bench_restart(&b);
    for (uint32_t seed = 2; seed <= 4; seed++)
        assert_true(disk_depth_of(&b, rig_tokens(seed, 24), 24) >= 20);
    disk_bench_end(&b);
}

static void shut_down(struct disk_bench *b, uint64_t ns)
{
    struct event ev = {.kind = EV_SHUTDOWN, .shutdown.deadline_ns = b->rig->now_ns + ns};

    rig_event(b->rig, &ev);
}

TEST(at_the_end_all_that_memory_holds_is_stored)
{
    struct disk_bench b = disk_bench(FEW);

    put(&b, 1, 24);
    put(&b, 2, 32);
    put(&b, 3, 12);
    shut_down(&b, 1000000000);
    rig_timers(b.rig);
    assert_true(core_disk_idle(b.rig->core));
    assert_int_equal(disk_seen(&b).counts.stored[DISK_SHUTDOWN], 3);
    disk_bench_restart(&b);
    assert_int_equal(disk_depth_of(&b, rig_tokens(1, 24), 24), 24);
    assert_int_equal(disk_depth_of(&b, rig_tokens(2, 32), 32), 32);
    assert_int_equal(disk_depth_of(&b, rig_tokens(3, 12), 12), 12);
    disk_bench_end(&b);
}

TEST(at_the_end_what_is_not_written_by_the_deadline_is_given_up)
{
    struct disk_bench b = disk_bench(FEW);

    put(&b, 1, 24);
    put(&b, 2, 32);
    b.rig->automatic = BY_HAND(RIG_DISK_WRITE);
    shut_down(&b, 1000000);
    assert_false(core_disk_idle(b.rig->core));
    rig_complete(b.rig, RIG_DISK_WRITE);
    assert_false(core_disk_idle(b.rig->core));
    rig_advance(b.rig, 2000000);
    rig_complete(b.rig, RIG_DISK_WRITE); /* the write that was under way */
    assert_true(core_disk_idle(b.rig->core));
    assert_int_equal(disk_seen(&b).counts.stored[DISK_SHUTDOWN], 2);
    disk_bench_end(&b);
}

/* D6, T22: a tenant whose stores wait for a step that never passes delays its own leaves only. */
TEST(at_the_end_no_tenant_waits_for_the_stores_of_another)
{
    struct disk_bench b = disk_bench(FEW), other;
    struct disk_view seen;
    struct rig_session *s;

    b.options.tenant[1].disk_bytes = b.options.tenant[0].disk_bytes;
    b.options.limits.disk_stores = 2;
    b.options.limits.reserved_percent = 100;
    disk_bench_restart(&b);
    other = b;
    other.e = rig_engine(b.rig, 1, "other", 1);
    assert_ok(
        rig_pool_open(b.rig, other.e.conn[0], b.groups, b.ngroups, b.pool_bytes, &other.pool));
    assert_ok(rig_map(b.rig, other.e.conn[0], other.pool));
    put(&b, 1, 24);
    put(&other, 2, 24);
    s = rig_session(b.rig, &b.e, b.pool, 1);
    assert_ok(rig_match(s, rig_tokens(3, 24), 24));
    assert_ok(rig_run_to(s, rig_tokens(3, 24), 24));
    assert_ok(rig_commit(s, 24, 5));
    disk_store(s, 24);
    shut_down(&b, 1000000);
    rig_timers(b.rig);
    core_disk(b.rig->core, 1, &seen);
    assert_int_equal(seen.counts.stored[DISK_SHUTDOWN], 1);
    assert_int_equal(disk_seen(&b).counts.stored[DISK_SHUTDOWN], 0);
    assert_false(core_disk_idle(b.rig->core));
    rig_engine_done(b.rig, &b.e, 5);
    rig_timers(b.rig);
    assert_int_equal(disk_seen(&b).counts.stored[DISK_SHUTDOWN], 1);
    assert_true(core_disk_idle(b.rig->core));
    disk_bench_end(&b);
}

/* A prompt is stored when its turn ends (D2): not earlier, and not if an anchor is named. */
TEST(a_prompt_is_stored_when_its_turn_ends)
{
    struct disk_bench b = disk_bench((struct disk_shape){
        .page_tokens = 4, .pages = 128, .page_bytes = 512, .budget = 1u << 22, .interval = 32});
    struct rig_session *s = rig_session(b.rig, &b.e, b.pool, 1);
    struct disk_entry_view v;

    b.options.limits.disk_least = 64;
    disk_bench_restart(&b);
    s = rig_session(b.rig, &b.e, b.pool, 1);
    assert_ok(rig_match(s, rig_tokens(1, 150), 150));
    assert_ok(rig_run_to(s, rig_tokens(1, 150), 150));
    assert_ok(rig_commit(s, 148, 0));
    assert_int_equal(disk_seen(&b).counts.stored[DISK_COLD], 0);
    assert_ok(rig_finish(s, 150, 0));
    assert_int_equal(disk_seen(&b).counts.stored[DISK_COLD], 1);
    assert_true(disk_entry(&b, 96, &v)); /* 150 - 32, down to a multiple of 32 */
    assert_int_equal(v.reason, DISK_COLD);
    assert_ok(rig_finish(s, 150, 0));
    assert_int_equal(disk_seen(&b).counts.stored[DISK_COLD], 1);
    disk_bench_end(&b);
}

/* The engine dies before the step that wrote the prefix has passed: no part of it is stored. */
TEST(what_no_step_confirms_is_not_stored)
{
    struct disk_bench b = disk_bench(FEW);
    struct rig_session *s = rig_session(b.rig, &b.e, b.pool, 1);
    uint64_t store;

    assert_ok(rig_match(s, rig_tokens(1, 24), 24));
    assert_ok(rig_run_to(s, rig_tokens(1, 24), 24));
    assert_ok(rig_commit(s, 24, 5));
    store = disk_store(s, 24);
    assert_null(rig_reply_to(b.rig, store));
    assert_int_equal(disk_seen(&b).stores, 1);
    rig_engine_done(b.rig, &b.e, 5);
    assert_ok(rig_reply_to(b.rig, store)->err);
    assert_ok(rig_abort(s, 5));
    assert_ok(rig_match(s, rig_tokens(2, 24), 24));
    assert_ok(rig_run_to(s, rig_tokens(2, 24), 24));
    assert_ok(rig_commit(s, 24, 9));
    disk_store(s, 24);
    rig_engine_kill(b.rig, &b.e, 0);
    rig_timers(b.rig);
    assert_int_equal(disk_seen(&b).stores, 0);
    assert_int_equal(disk_seen(&b).entries, 1);
    disk_bench_end(&b);
}

/* D2, D6: prefixes that are being written or due stay on the device, and who needs their pages
 * waits. While the disk fails, those not yet being written give up their pages and stay due. */
TEST(who_needs_pages_waits_for_what_a_disk_that_works_will_store)
{
    struct disk_shape shape = FEW;
    struct disk_bench b;
    struct rig_session *s;

    shape.interval = 64;
    b = disk_bench(shape);
    b.rig->automatic = BY_HAND(RIG_DISK_WRITE);
    s = rig_committed(b.rig, &b.e, b.pool, 1, 64); /* continued */
    assert_ok(rig_close(s, 0));
    assert_int_equal(rig_jobs(b.rig, RIG_DISK_WRITE), 1);
    s = rig_session(b.rig, &b.e, b.pool, 1);
    assert_ok(rig_match(s, rig_tokens(2, 64), 64));
    while (rig_jobs(b.rig, RIG_DISK_WRITE) > 0) {
        assert_err(TERN_BUSY, rig_run_to(s, rig_tokens(2, 64), 64));
        rig_complete(b.rig, RIG_DISK_WRITE);
    }
    assert_ok(rig_run_to(s, rig_tokens(2, 64), 64));
    assert_ok(rig_abort(s, 0));

    b.disk->writes_to_fail = 1; /* later stores wait for the end of the pause */
    b.disk->err = TERN_DISK;
    s = rig_committed(b.rig, &b.e, b.pool, 3, 64);
    rig_complete(b.rig, RIG_DISK_WRITE);
    assert_ok(rig_abort(s, 0));
    assert_ok(rig_close(rig_committed(b.rig, &b.e, b.pool, 4, 64), 0));
    assert_true(disk_seen(&b).stores > 0);
    s = rig_session(b.rig, &b.e, b.pool, 1);
    assert_ok(rig_match(s, rig_tokens(5, 64), 64));
    assert_err(TERN_BUSY, rig_run_to(s, rig_tokens(5, 64), 64));
    assert_true(disk_seen(&b).stores > 0); /* they are still due, and pin nothing */
    assert_ok(rig_run_to(s, rig_tokens(5, 64), 64));
    disk_bench_end(&b);
}

/* Pages of a running session stay when its store ends, so waiting would not help. */
TEST(who_needs_pages_is_not_told_to_wait_for_a_store_of_what_a_session_has)
{
    struct disk_shape shape = FEW;
    struct disk_bench b;
    struct rig_session *s, *other;

    shape.interval = 64;
    b = disk_bench(shape);
    s = rig_session(b.rig, &b.e, b.pool, 1);
    assert_ok(rig_match(s, rig_tokens(1, 64), 64));
    assert_ok(rig_run_to(s, rig_tokens(1, 64), 64));
    assert_ok(rig_commit(s, 64, 5));
    assert_int_equal(disk_seen(&b).stores, 1);
    other = rig_session(b.rig, &b.e, b.pool, 1);
    assert_ok(rig_match(other, rig_tokens(2, 64), 64));
    assert_err(TERN_POOL_EXHAUSTED, rig_run_to(other, rig_tokens(2, 64), 64));
    assert_int_equal(disk_seen(&b).stores, 1);
    disk_bench_end(&b);
}
