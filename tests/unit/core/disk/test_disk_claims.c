/* STATE that several entries need stays as long as one of them does, also if that one is being
 * written, or a start has not found it yet. STATE that nobody may read yet belongs to none. */
#include "unit/rig/rig_disk_bench.h"

#include "core/disk/entries.h"

/* L is 16. The window has STATE in three chunks, a recurrent group in the last one. */
static struct disk_bench bench(bool recurrent)
{
    struct disk_bench b = {.disk = spill_make(), .options = rig_defaults()};

    spill_limits(&b.options, 1u << 24, 4096);
    b.groups[0] = rig_group(16, 512);
    b.groups[1] = rig_window(16, 48, 256);
    b.groups[2] = rig_recurrent(16, 256);
    b.ngroups = recurrent ? 3 : 2;
    b.pool_bytes = 1u << 20;
    b.options.tenant[0].memory_bytes = 4u << 20;
    b.options.limits.slabs = b.options.limits.pages = 4096;
    disk_bench_start(&b);
    return b;
}

/* Sequence 1 up to 96, then the tokens of the branch. */
static const uint32_t *branch(uint32_t which)
{
    static uint32_t tokens[4][144];

    memcpy(tokens[which], rig_tokens(1, 144), sizeof tokens[which]);
    for (uint32_t i = 96; i < 144; i++)
        tokens[which][i] += which;
    return tokens[which];
}

/* Runs to 112, with resume points at 96 and 112. */
static struct rig_session *run(struct disk_bench *b, uint32_t which)
{
    struct rig_session *s = rig_session(b->rig, &b->e, b->pool, 1);

    assert_ok(rig_match(s, branch(which), 112));
    for (uint32_t depth = 96; depth <= 112; depth += 16) {
        if (s->len.committed >= depth)
            continue; /* the node has it already */
        assert_ok(rig_run_to(s, branch(which), depth));
        assert_ok(rig_commit(s, depth, 0));
    }
    return s;
}

static struct rig_session *run_to(struct disk_bench *b, uint32_t depth)
{
    struct rig_session *s = rig_session(b->rig, &b->e, b->pool, 1);

    assert_ok(rig_match(s, rig_tokens(1, depth), depth));
    assert_ok(rig_run_to(s, rig_tokens(1, depth), depth));
    assert_ok(rig_commit(s, depth, 0));
    return s;
}

static void entry_ends(struct disk_bench *b, uint32_t which)
{
    uint32_t at = tenant_at(b->rig->core, 0)->disk_entries.head;

    for (; which > 0; which--)
        at = disk_entry_list_next(b->rig->core, at);
    disk_entry_end(b->rig->core, at);
    rig_advance(b->rig, 1);
}

/* T18: the window of 160 has a chunk at 144, whose recurrent state the store does not need. */
TEST(state_that_waits_for_its_step_is_not_stored_with_the_rest)
{
    struct disk_bench b = bench(true);
    struct rig_session *s = rig_session(b.rig, &b.e, b.pool, 1),
                       *refiller = rig_session(b.rig, &b.e, b.pool, 1);
    uint32_t seen = 0;

    assert_ok(rig_match(s, rig_tokens(1, 160), 160));
    assert_ok(rig_run_to(s, rig_tokens(1, 160), 160));
    assert_ok(rig_commit(s, 160, 0));
    assert_ok(rig_match(refiller, rig_tokens(1, 144), 144));
    assert_ok(rig_run_to(refiller, rig_tokens(1, 144), 144));
    assert_ok(rig_commit(refiller, 144, 5));
    assert_ok(disk_stored(s, 160));
    for (uint32_t i = 0; i < b.disk->nfiles; i++)
        for (uint32_t k = 0; k < b.disk->file[i].n; k++) {
            const struct disk_extent *e = &b.disk->file[i].v[k].e;

            if (e->part != DISK_STATE)
                continue;
            assert_int_equal(e->groups, e->depth == 160 ? 6 : 2);
            seen++;
        }
    assert_int_equal(seen, 3);
    rig_engine_done(b.rig, &b.e, 5);
    disk_bench_end(&b);
}

/* Corrupts the STATE at that depth that the disk has now. */
static void state_rots(struct disk_bench *b, uint32_t depth)
{
    for (uint32_t i = 0; i < b->disk->nfiles; i++)
        for (uint32_t k = 0; k < b->disk->file[i].n; k++) {
            struct spill_extent *x = &b->disk->file[i].v[k];

            if (x->e.part == DISK_STATE && x->e.depth == depth)
                x->rotten = true;
        }
}

/* A store at 144 writes the STATE of its chunk anew, with the recurrent one, while a fetch reads
 * the old place: two wrong reads there do not make the new place bad. */
TEST(state_that_is_written_anew_while_it_is_read_is_not_bad)
{
    struct disk_bench b = bench(true);
    struct rig_session *s;
    uint64_t fetch;

    assert_ok(disk_stored(run_to(&b, 160), 160));
    disk_bench_restart(&b);
    b.rig->automatic = BY_HAND(RIG_PULL | RIG_DISK_DROP);
    s = rig_session(b.rig, &b.e, b.pool, 1);
    assert_ok(rig_match(s, rig_tokens(1, 160), 160));
    fetch = rig_fetch(s, PEER_DISK, 0);
    state_rots(&b, 144);
    rig_complete(b.rig, RIG_PULL); /* it is asked for again, from the same place */
    assert_int_equal(rig_jobs(b.rig, RIG_PULL), 1);
    assert_ok(disk_stored(run_to(&b, 144), 144));
    b.rig->automatic = BY_HAND(RIG_DISK_DROP);
    rig_settle(b.rig);
    assert_err(TERN_CORRUPT, rig_fetched(s, fetch));
    b.rig->automatic = RIG_ALL;
    rig_settle(b.rig);
    assert_int_equal(disk_seen(&b).entries, 2);
    assert_ok(rig_fetched(s, rig_fetch(s, PEER_DISK, 0)));
    assert_int_equal(s->len.committed, 160);
    disk_bench_end(&b);
}

/* The only entry with the STATE of the store's window goes while the store is being written. */
TEST(state_that_an_entry_under_way_needs_stays)
{
    struct disk_bench b = bench(false);
    struct rig_session *s;
    uint64_t store;

    assert_ok(disk_stored(run(&b, 1), 112));
    s = run(&b, 2);
    b.rig->automatic = BY_HAND(RIG_DISK_WRITE);
    store = disk_store(s, 112);
    assert_int_equal(rig_jobs(b.rig, RIG_DISK_WRITE), 1);
    entry_ends(&b, 0);
    rig_complete(b.rig, RIG_DISK_WRITE);
    assert_ok(rig_reply_to(b.rig, store)->err);
    assert_int_equal(disk_seen(&b).used, spill_bytes(b.disk));
    disk_bench_restart(&b);
    assert_int_equal(disk_depth_of(&b, branch(2), 120), 112);
    assert_int_equal(disk_depth_of(&b, branch(1), 120), 0);
    disk_bench_end(&b);
}

/* The same for a store that fails. */
TEST(state_that_only_a_failed_store_needed_goes)
{
    struct disk_bench b = bench(false);
    struct rig_session *s;

    assert_ok(disk_stored(run(&b, 1), 112));
    s = run(&b, 2);
    b.rig->automatic = BY_HAND(RIG_DISK_WRITE);
    disk_store(s, 112);
    entry_ends(&b, 0);
    b.disk->writes_to_fail = 1;
    b.disk->err = TERN_DISK;
    rig_complete(b.rig, RIG_DISK_WRITE);
    assert_int_equal(disk_seen(&b).used, 0);
    assert_int_equal(spill_bytes(b.disk), 0);
    disk_bench_end(&b);
}

/* A crash restores an entry that was dropped and then stored anew, and the start finds the old one
 * first: the STATE that both need is found before the second entry. */
TEST(state_of_an_entry_that_is_found_twice_stays)
{
    struct disk_bench b = bench(false);

    assert_ok(disk_stored(run(&b, 1), 112));
    assert_ok(disk_stored(run(&b, 2), 112)); /* has what both need */
    entry_ends(&b, 0);
    assert_ok(disk_stored(run(&b, 1), 112));
    entry_ends(&b, 0);
    assert_int_equal(disk_seen(&b).entries, 1);
    for (uint32_t k = 0; k < b.disk->file[0].n; k++)
        b.disk->file[0].v[k].hole = false;
    disk_bench_restart(&b);
    assert_int_equal(disk_seen(&b).entries, 1);
    assert_int_equal(disk_seen(&b).used, spill_bytes(b.disk));
    assert_int_equal(disk_depth_of(&b, branch(1), 120), 112);
    disk_bench_end(&b);
}

static struct spill_extent *state_at(const struct disk_bench *b, uint32_t file, uint32_t depth)
{
    for (uint32_t k = 0; k < b->disk->file[file].n; k++)
        if (b->disk->file[file].v[k].e.part == DISK_STATE &&
            b->disk->file[file].v[k].e.depth == depth)
            return &b->disk->file[file].v[k];
    return NULL;
}

/* D8: a start knows how many chunks back an entry needs STATE, but not of which groups. The extent
 * with both groups is corrupt, and a crash has restored the earlier one, which has the window
 * alone: the entry is not offered. */
TEST(an_entry_that_has_back_less_than_it_needs_is_not_offered)
{
    struct disk_bench b = bench(true);
    struct rig_session *s = rig_session(b.rig, &b.e, b.pool, 1);
    const uint32_t *tokens = rig_tokens(1, 170);

    assert_ok(rig_match(s, tokens, 160));
    assert_ok(rig_run_to(s, tokens, 160));
    assert_ok(rig_commit(s, 160, 0));
    assert_ok(disk_stored(s, 160));
    s = rig_session(b.rig, &b.e, b.pool, 1);
    assert_ok(rig_match(s, tokens, 144));
    assert_ok(rig_run_to(s, tokens, 144));
    assert_ok(rig_commit(s, 144, 0));
    assert_ok(disk_stored(s, 144));
    assert_int_equal(state_at(&b, 0, 144)->e.groups, 2);
    assert_true(state_at(&b, 0, 144)->hole);
    assert_int_equal(state_at(&b, 1, 144)->e.groups, 6);
    disk_bench_restart(&b);
    assert_int_equal(disk_depth_of(&b, tokens, 150), 144);
    state_at(&b, 0, 144)->hole = false;
    state_at(&b, 1, 144)->hole = true;
    disk_bench_restart(&b);
    assert_int_equal(disk_depth_of(&b, tokens, 150), 0);
    assert_int_equal(disk_depth_of(&b, tokens, 170), 160);
    disk_bench_end(&b);
}
