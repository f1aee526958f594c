/* Pools with STATE groups on the disk: an entry has exactly what a session needs to resume from its
 * end. Chunks that several entries need are stored once, and go with the last of them. */
#include "unit/rig/rig_disk_bench.h"

static struct disk_bench with_state(struct group_layout state)
{
    struct disk_bench b = {.disk = spill_make(), .options = rig_defaults()};

    spill_limits(&b.options, 1u << 24, 4096);
    b.groups[0] = rig_group(16, 512);
    b.groups[1] = state;
    b.ngroups = 2;
    b.pool_bytes = 1u << 20;
    b.options.tenant[0].memory_bytes = 4u << 20;
    b.options.limits.slabs = b.options.limits.pages = 4096;
    disk_bench_start(&b);
    return b;
}

static struct rig_session *run(struct disk_bench *b, uint32_t seed, uint32_t depth)
{
    struct rig_session *s = rig_session(b->rig, &b->e, b->pool, 1);

    assert_ok(rig_match(s, rig_tokens(seed, depth), depth));
    assert_ok(rig_run_to(s, rig_tokens(seed, depth), depth));
    assert_ok(rig_commit(s, depth, 0));
    return s;
}

static void comes_back(struct disk_bench *b, uint32_t seed, uint32_t depth)
{
    struct rig_session *s = rig_session(b->rig, &b->e, b->pool, 1);

    assert_ok(rig_match(s, rig_tokens(seed, depth + 8), depth + 8));
    assert_int_equal(s->matched, 0);
    assert_int_equal(b->rig->last->match.disk_depth, depth);
    assert_ok(rig_fetched(s, rig_fetch(s, PEER_DISK, 0)));
    assert_int_equal(s->len.committed, depth);
    assert_int_equal(rig_wrong(s, depth), 0);
    assert_ok(rig_close(s, 0));
    rig_session_free(s);
}

TEST(a_window_comes_back_with_its_prefix)
{
    struct disk_bench b = with_state(rig_window(16, 48, 256));

    assert_ok(disk_stored(run(&b, 1, 160), 160));
    disk_bench_restart(&b);
    comes_back(&b, 1, 160);
    disk_bench_end(&b);
}

TEST(a_recurrent_state_comes_back_with_its_prefix)
{
    struct disk_bench b = with_state(rig_recurrent(16, 256));

    assert_ok(disk_stored(run(&b, 1, 160), 160));
    disk_bench_restart(&b);
    comes_back(&b, 1, 160);
    disk_bench_end(&b);
}

/* A session cannot resume from HISTORY alone: a lookup finds the entry above. */
TEST(a_prompt_that_leaves_between_two_entries_goes_on_from_the_upper_one)
{
    struct disk_bench b = with_state(rig_window(16, 48, 256));
    struct rig_session *s;
    uint32_t tokens[160];

    assert_ok(disk_stored(run(&b, 1, 64), 64));
    assert_ok(disk_stored(run(&b, 1, 160), 160));
    assert_int_equal(disk_seen(&b).entries, 2);
    disk_bench_restart(&b);
    memcpy(tokens, rig_tokens(1, 160), sizeof tokens);
    tokens[120]++;
    assert_int_equal(disk_depth_of(&b, tokens, 160), 64);
    assert_int_equal(disk_depth_of(&b, rig_tokens(1, 160), 159), 64);
    s = rig_session(b.rig, &b.e, b.pool, 1);
    assert_ok(rig_match(s, tokens, 160));
    assert_ok(rig_fetched(s, rig_fetch(s, PEER_DISK, 0)));
    assert_int_equal(s->len.committed, 64);
    assert_int_equal(rig_wrong(s, 64), 0);
    disk_bench_end(&b);
}

/* D9: the windows of the entries at 96 and 112 share two segments. */
TEST(segments_that_two_entries_need_are_there_once_and_go_with_the_last)
{
    struct disk_bench b = with_state(rig_window(16, 48, 256));
    uint64_t one, both;

    assert_ok(disk_stored(run(&b, 1, 96), 96));
    one = disk_seen(&b).used;
    assert_ok(disk_stored(run(&b, 1, 112), 112));
    both = disk_seen(&b).used;
    assert_int_equal(both, spill_bytes(b.disk));
    assert_int_equal(both - one, 8192 + 8192 + 4096); /* HISTORY, one segment, the entry */
    disk_bench_restart(&b);
    assert_int_equal(disk_seen(&b).used, both);
    assert_int_equal(disk_seen(&b).entries, 2);
    comes_back(&b, 1, 112);
    disk_bench_end(&b);
}

/* D5 drops the entry that is a strict prefix, and the STATE that only it needed. */
TEST(a_longer_store_takes_the_state_of_a_continued_one)
{
    struct disk_bench b = with_state(rig_window(16, 48, 256));
    struct disk_entry_view v;

    b.options.limits.disk_interval = b.options.limits.disk_align = 64;
    disk_bench_restart(&b);
    run(&b, 1, 64);
    assert_true(disk_entry(&b, 64, &v));
    assert_ok(disk_stored(run(&b, 1, 160), 160));
    assert_false(disk_entry(&b, 64, &v));
    assert_int_equal(disk_seen(&b).used, 10 * 8192 + 3 * 8192 + 4096);
    assert_int_equal(disk_seen(&b).used, spill_bytes(b.disk));
    disk_bench_restart(&b);
    comes_back(&b, 1, 160);
    disk_bench_end(&b);
}

/* Stores an entry of another prompt and a continued one at 64, and then one at 160. Returns the
 * bytes in use before that one. */
static uint64_t long_after_short(struct disk_bench *b, uint64_t budget)
{
    struct disk_entry_view v;
    struct rig_session *s;
    uint64_t used;

    *b = with_state(rig_window(16, 48, 256));
    b->options.limits.disk_interval = b->options.limits.disk_align = 64;
    b->options.tenant[0].disk_bytes = budget;
    disk_bench_restart(b);
    assert_ok(disk_stored(run(b, 2, 32), 32));
    run(b, 1, 64);
    used = disk_seen(b).used;
    s = run(b, 1, 112);
    b->rig->automatic = BY_HAND(RIG_DISK_WRITE);
    disk_store(s, 112);
    assert_true(disk_entry(b, 64, &v)); /* until the longer one is durable */
    while (rig_jobs(b->rig, RIG_DISK_WRITE) > 0)
        rig_complete(b->rig, RIG_DISK_WRITE);
    assert_true(disk_entry(b, 112, &v));
    assert_false(disk_entry(b, 64, &v));
    return used;
}

/* The entry that the longer store makes needless counts as room, and goes only when the store is
 * durable: another entry stays. */
TEST(what_a_longer_store_makes_needless_counts_as_room)
{
    struct disk_bench b;
    uint64_t before = long_after_short(&b, 1u << 24), incoming = b.disk->written_bytes - before,
             room = before + incoming + incoming / 100;
    struct disk_entry_view v;

    disk_bench_end(&b);
    long_after_short(&b, room - 3 * 8192 - 4096); /* the bytes of the needless entry */
    assert_true(disk_entry(&b, 32, &v));
    assert_int_equal(disk_seen(&b).counts.evicted, 0);
    disk_bench_end(&b);
    long_after_short(&b, room - 3 * 8192 - 4096 - 1);
    assert_false(disk_entry(&b, 32, &v));
    disk_bench_end(&b);
}

/* Stores an entry of another prompt, a continued one at 96, and then a cold one there, which needs
 * another group of STATE at 80. Returns the bytes in use then. */
static uint64_t cold_with_more_state(struct disk_bench *b, uint64_t budget)
{
    struct disk_entry_view v;
    struct rig_session *s;

    *b = with_state(rig_window(16, 48, 256));
    b->groups[2] = rig_recurrent(16, 8192);
    b->ngroups = 3;
    b->options.limits.disk_interval = b->options.limits.disk_align = 96;
    b->options.tenant[0].disk_bytes = budget;
    disk_bench_restart(b);
    assert_ok(disk_stored(run(b, 2, 16), 16));
    s = run(b, 1, 96);
    assert_true(disk_entry(b, 96, &v));
    assert_int_equal(v.reason, DISK_CONTINUED);
    run(b, 1, 80);
    assert_ok(disk_stored(s, 96));
    assert_true(disk_entry(b, 96, &v));
    assert_int_equal(v.reason, DISK_COLD);
    return disk_seen(b).used;
}

/* The entry that the store replaces counts as gone, and goes first if that is not enough: the store
 * must not be refused after another entry went for it. */
TEST(a_store_that_would_fit_alone_is_made)
{
    struct disk_bench b;
    uint64_t other, all = cold_with_more_state(&b, 1u << 24);

    disk_bench_end(&b);
    b = with_state(rig_window(16, 48, 256));
    b.groups[2] = rig_recurrent(16, 8192);
    b.ngroups = 3;
    disk_bench_restart(&b);
    assert_ok(disk_stored(run(&b, 2, 16), 16));
    other = disk_seen(&b).used;
    disk_bench_end(&b);
    all -= other; /* this prompt alone */
    assert_int_equal(cold_with_more_state(&b, all + all / 100 + 1), all);
    disk_bench_end(&b);
}

/* A start does not report corrupt extents: an entry that needs one goes, and one that does not
 * stays. */
TEST(an_entry_whose_state_is_lost_goes_at_the_start)
{
    struct disk_bench b = with_state(rig_window(16, 48, 256));

    assert_ok(disk_stored(run(&b, 1, 64), 64));
    assert_ok(disk_stored(run(&b, 1, 160), 160));
    for (uint32_t i = 0; i < b.disk->nfiles; i++)
        for (uint32_t k = 0; k < b.disk->file[i].n; k++)
            if (b.disk->file[i].v[k].e.part == DISK_STATE && b.disk->file[i].v[k].e.depth == 144)
                b.disk->file[i].v[k].hole = true;
    disk_bench_restart(&b);
    assert_int_equal(disk_seen(&b).entries, 1);
    assert_int_equal(disk_seen(&b).counts.recovered, 1);
    assert_int_equal(disk_seen(&b).used, spill_bytes(b.disk));
    comes_back(&b, 1, 64);
    disk_bench_end(&b);
}

/* No extent of an entry is dropped while a fetch reads the entry. */
TEST(what_a_fetch_reads_stays)
{
    struct disk_bench b = with_state(rig_window(16, 48, 256));
    struct rig_session *s;
    uint64_t fetch, store;

    b.options.tenant[0].disk_bytes = 14 * 8192 + 3 * 4096;
    disk_bench_restart(&b);
    assert_ok(disk_stored(run(&b, 1, 160), 160));
    disk_bench_restart(&b);
    b.rig->automatic = BY_HAND(RIG_PULL);
    s = rig_session(b.rig, &b.e, b.pool, 1);
    assert_ok(rig_match(s, rig_tokens(1, 160), 160));
    fetch = rig_fetch(s, PEER_DISK, 0);
    store = disk_store(run(&b, 2, 160), 160); /* a fetch reads the only entry that could go */
    assert_null(rig_reply_to(b.rig, store));
    assert_int_equal(disk_seen(&b).entries, 1);
    b.rig->automatic = RIG_ALL;
    rig_settle(b.rig);
    assert_ok(rig_fetched(s, fetch));
    assert_int_equal(rig_wrong(s, 160), 0);
    assert_ok(rig_reply_to(b.rig, store)->err);
    disk_bench_end(&b);
}

/* A crash between a new entry and the end of the one that it replaces: a start finds both. */
TEST(what_was_stored_twice_is_kept_once)
{
    struct disk_bench b = with_state(rig_window(16, 48, 256));
    struct rig_session *s;
    struct disk_entry_view v;

    b.options.limits.disk_interval = b.options.limits.disk_align = 64;
    disk_bench_restart(&b);
    b.rig->automatic = BY_HAND(RIG_DISK_DROP); /* no drop is carried out */
    s = run(&b, 1, 64);
    assert_ok(disk_stored(s, 64)); /* cold, in the place of the continued one */
    disk_bench_restart(&b);
    assert_int_equal(disk_seen(&b).entries, 1);
    assert_true(disk_entry(&b, 64, &v));
    assert_int_equal(v.reason, DISK_COLD);
    assert_int_equal(disk_seen(&b).used, spill_bytes(b.disk));
    comes_back(&b, 1, 64);
    disk_bench_end(&b);
}

/* T18, X10: all HISTORY is on the device, and while its STATE is read another session computes
 * that, too, at a step that has not passed, so nobody can resume there yet. */
TEST(a_fetch_whose_state_waits_for_anothers_step_is_busy_where_more_has_to_come)
{
    struct disk_bench b = with_state(rig_recurrent(16, 256));
    struct rig_session *ahead, *other, *s;
    uint64_t fetch;

    assert_ok(disk_stored(run(&b, 1, 144), 144));
    disk_bench_restart(&b);
    ahead = rig_session(b.rig, &b.e, b.pool, 1);
    assert_ok(rig_match(ahead, rig_tokens(1, 160), 160));
    assert_ok(rig_run_to(ahead, rig_tokens(1, 160), 160));
    assert_ok(rig_commit(ahead, 144, 0)); /* the session's one state is that of 160 */
    s = rig_session(b.rig, &b.e, b.pool, 1);
    matches(s, rig_tokens(1, 160), 160, 0);
    b.rig->automatic = BY_HAND(RIG_PULL);
    s->at_least = 100;
    fetch = rig_fetch(s, PEER_DISK, 0);
    other = rig_session(b.rig, &b.e, b.pool, 1);
    matches(other, rig_tokens(1, 144), 144, 0);
    assert_ok(rig_run_to(other, rig_tokens(1, 144), 144));
    assert_ok(rig_commit(other, 144, 5));
    complete_all(b.rig, RIG_PULL);
    assert_err(TERN_BUSY, rig_fetched(s, fetch));
    assert_int_equal(s->len.written, 0);
    rig_engine_done(b.rig, &b.e, 5);
    matches(s, rig_tokens(1, 160), 160, 144);
    assert_ok(rig_fetched(s, rig_fetch(s, PEER_DISK, 0))); /* it has as much as is asked for */
    disk_bench_end(&b);
}

/* Runs to each of these depths and commits there only. */
static struct rig_session *run_by(struct disk_bench *b, uint32_t seed, const uint32_t *depths,
                                  uint32_t n)
{
    struct rig_session *s = rig_session(b->rig, &b->e, b->pool, 1);

    assert_ok(rig_match(s, rig_tokens(seed, depths[n - 1]), depths[n - 1]));
    for (uint32_t i = 0; i < n; i++) {
        assert_ok(rig_run_to(s, rig_tokens(seed, depths[i]), depths[i]));
        assert_ok(rig_commit(s, depths[i], 0));
    }
    return s;
}

static void stored_at(struct rig_session *s, uint32_t wanted, uint32_t depth)
{
    const struct reply *r = rig_reply_to(s->rig, disk_store(s, wanted));

    assert_non_null(r);
    assert_ok(r->err);
    assert_int_equal(r->store.depth, depth);
}

/* D2: a store is made at the deepest resume point at or above the depth, or at the next one. */
TEST(a_store_where_nothing_can_be_resumed_is_made_at_the_first_resume_point_behind_it)
{
    struct disk_bench b = with_state(rig_recurrent(16, 256));
    struct rig_session *s = run_by(&b, 1, (uint32_t[]){96, 160}, 2);

    stored_at(s, 8, 96);
    stored_at(s, 64, 96);
    stored_at(s, 112, 96);
    stored_at(s, 160, 160);
    disk_bench_restart(&b);
    comes_back(&b, 1, 160);
    disk_bench_end(&b);
}

TEST(a_store_is_invalid_where_no_depth_that_is_committed_can_be_resumed)
{
    struct disk_bench b = with_state(rig_recurrent(16, 256));
    struct rig_session *s = rig_session(b.rig, &b.e, b.pool, 1);

    assert_ok(rig_match(s, rig_tokens(1, 160), 160));
    assert_ok(rig_run_to(s, rig_tokens(1, 160), 160));
    assert_ok(rig_commit(s, 144, 0)); /* the session's one state is that of 160 */
    assert_err(TERN_INVALID, disk_stored(s, 64));
    assert_err(TERN_INVALID, disk_stored(s, 144));
    assert_ok(rig_commit(s, 160, 0));
    stored_at(s, 64, 160);
    disk_bench_end(&b);
}

/* D1, D2: the engine commits only at the end of its prompt. */
TEST(a_prompt_with_one_resume_point_at_its_end_is_stored_there_by_itself)
{
    struct disk_bench b = with_state(rig_recurrent(16, 256));
    struct rig_session *s;
    struct disk_entry_view v;

    b.options.limits.disk_interval = b.options.limits.disk_align = 64;
    disk_bench_restart(&b);
    s = run(&b, 1, 160);
    assert_int_equal(disk_seen(&b).counts.stored[DISK_CONTINUED], 1);
    assert_true(disk_entry(&b, 160, &v)); /* the boundary is 128 */
    assert_ok(rig_finish(s, 160, 0));
    assert_int_equal(disk_seen(&b).counts.stored[DISK_COLD], 1);
    assert_true(disk_entry(&b, 160, &v));
    assert_int_equal(v.reason, DISK_COLD);
    assert_int_equal(disk_seen(&b).entries, 1);
    disk_bench_end(&b);
}
