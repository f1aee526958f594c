/* Recovery: what a start finds on the disk. D8: a crash at any instant leaves whole files and
 * leftovers, and never wrong bytes; fault 34: a torn, misdirected or lost write, and rot, cost only
 * the extents that they hit, and the report names the fault of each. */
#include "testing/test.h"
#include "unit/rig/rig_disk_world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/prng.h"
#include "seam/mem/checksum.h"

#define CRASH_SEEDS 8 /* of each crash point: twice each way to lose what was not synced */

static struct world world;
static struct world_found found, again;
static uint32_t syncs_failed; /* in crash_worlds */

static void names_are_whole(struct sim_disk *disk)
{
    const char *name;

    for (uint32_t i = 0; (name = sim_disk_name(disk, i)) != NULL; i++)
        assert_null(strstr(name, ".tmp"));
}

/* At every point of the log, in each of the ways. */
static void crash_everywhere(struct world_tally *tally)
{
    for (size_t at = 0; at <= sim_disk_steps(world.disk); at++) {
        for (uint64_t seed = 0; seed < CRASH_SEEDS; seed++) {
            struct sim_disk *disk = sim_disk_crash(world.disk, at, seed + at * CRASH_SEEDS);

            world_recover(&world, disk, &found);
            assert_int_equal(found.err, TERN_OK);
            assert_int_equal(found.ready, 1);
            names_are_whole(disk);
            world_judge(&world, disk, at, &found, true, tally);
            world_recover(&world, disk, &again);
            assert_int_equal(again.n, found.n);
            assert_memory_equal(again.extent, found.extent, sizeof found.extent);
            assert_int_equal(again.recovery.removed_files + again.recovery.unfinished, 0);
            sim_disk_free(disk);
        }
    }
}

static struct world_tally crash_worlds(uint32_t worlds, bool encrypt, enum rig_disk_wrong wrong,
                                       uint32_t sync_eio)
{
    struct world_tally tally = {.crashes = 0};

    syncs_failed = 0;

    for (uint32_t i = 0; i < worlds; i++) {
        struct sim_disk_faults faults = {.seed = i, .sync_eio = sync_eio};

        world_make(&world, i, encrypt, wrong, &faults);
        crash_everywhere(&tally);
        syncs_failed += sim_disk_hits(world.disk).sync_eio;
        world_free(&world);
    }
    return tally;
}

static void print_tally(const char *what, const struct world_tally *t)
{
    printf("%s: crash_points=%" PRIu64 " found=%" PRIu64 " half_dropped=%" PRIu64
           " wrong_bytes=%" PRIu64 " lost=%" PRIu64 "\n",
           what, t->crashes, t->found, t->half_dropped,
           t->wrong_bytes + t->wrong_lists + t->not_good + t->unnamed, t->lost);
}

static void assert_unhurt(const struct world_tally *t)
{
    assert_int_equal(t->wrong_bytes, 0);
    assert_int_equal(t->wrong_lists, 0);
    assert_int_equal(t->not_good, 0);
    assert_int_equal(t->unnamed, 0);
    assert_int_equal(t->lost, 0);
    assert_true(t->found > t->crashes);
}

TEST(a_crash_at_any_instant_leaves_what_was_written)
{
    struct world_tally t = crash_worlds(10, false, RIG_DISK_RIGHT, 0);

    print_tally("clear", &t);
    assert_unhurt(&t);
    assert_true(t.half_dropped > 0);
}

TEST(a_crash_at_any_instant_leaves_what_was_encrypted)
{
    struct world_tally t;

    t = crash_worlds(4, true, RIG_DISK_RIGHT, 0);
    print_tally("encrypted", &t);
    assert_unhurt(&t);
}

TEST(fault_35_a_sync_that_fails_loses_nothing_that_was_told_as_written)
{
    struct world_tally t = crash_worlds(6, false, RIG_DISK_RIGHT, 4);

    print_tally("syncs that fail", &t);
    assert_unhurt(&t);
    assert_true(syncs_failed > 0);
    printf("fault=35 runs=%" PRIu64 " injected=%u violations=0 acked_after=%" PRIu64 "\n",
           t.crashes, syncs_failed, t.lost);
}

/* The tests above depend on D3's order: each of these writers breaks one part of it. */
TEST(a_writer_that_breaks_the_order_is_found)
{
    struct world_tally headers = crash_worlds(2, false, RIG_DISK_HEADERS_FIRST, 0);
    struct world_tally one = crash_worlds(2, false, RIG_DISK_ONE_SYNC, 0);
    struct world_tally retry = crash_worlds(4, false, RIG_DISK_SYNC_AGAIN, 3);

    print_tally("headers first", &headers);
    print_tally("one sync", &one);
    print_tally("a sync tried again", &retry);
    assert_true(headers.not_good > 0);
    assert_true(one.lost > 0);
    assert_true(retry.lost + retry.not_good > 0);
}

/* ---- faults of the disk ---- */

/* Lost extents are allowed here; those that exist and count as good are right. */
static void suffer(const struct sim_disk_faults *kind, uint32_t worlds, bool encrypt,
                   struct world_tally *tally, struct sim_disk_hits *hits)
{
    for (uint32_t i = 0; i < worlds; i++) {
        struct sim_disk_faults faults = *kind, none = {.seed = i};
        struct sim_disk_hits h;

        faults.seed = i;
        world_make(&world, i, encrypt, RIG_DISK_RIGHT, &faults);
        sim_disk_set_faults(world.disk, &none);
        h = sim_disk_hits(world.disk);
        hits->torn += h.torn;
        hits->misdirected += h.misdirected;
        hits->dropped += h.dropped;
        world_recover(&world, world.disk, &found);
        assert_int_equal(found.err, TERN_OK);
        world_judge(&world, world.disk, sim_disk_steps(world.disk), &found, true, tally);
        world_free(&world);
    }
}

static void suffer_both(const char *what, const struct sim_disk_faults *kind)
{
    struct world_tally t = {.crashes = 0};
    struct sim_disk_hits hits = {.torn = 0};

    suffer(kind, 300, false, &t, &hits);
    suffer(kind, 60, true, &t, &hits);
    printf("fault=34 %s=%u: found=%" PRIu64 " told_by_checksum=%" PRIu64 " not_taken=%" PRIu64
           " wrong_bytes=%" PRIu64 "\n",
           what, hits.torn + hits.misdirected + hits.dropped, t.found, t.not_good, t.lost,
           t.wrong_bytes + t.wrong_lists + t.unnamed);
    assert_true(hits.torn + hits.misdirected + hits.dropped > 100);
    assert_int_equal(t.wrong_bytes, 0);
    assert_int_equal(t.wrong_lists, 0);
    assert_int_equal(t.unnamed, 0);
    assert_true(t.not_good > 0 && t.lost > 0 && t.found > t.not_good);
}

TEST(a_torn_write_is_told_by_its_checksum)
{
    suffer_both("torn", &(struct sim_disk_faults){.torn = 12});
}

TEST(a_write_to_a_wrong_place_is_told)
{
    suffer_both("misdirected", &(struct sim_disk_faults){.misdirected = 12});
}

TEST(a_write_that_never_came_is_told)
{
    suffer_both("dropped", &(struct sim_disk_faults){.dropped = 12});
}

/* ---- one thing that is wrong ---- */

struct scene { /* a copy of a world's disk, and one of its files in it */
    struct sim_disk *disk;
    char name[DISK_NAME_MAX];
    uint8_t *bytes;
    size_t n;
};

static struct scene scene_of(uint32_t file)
{
    struct scene s = {.disk = world_copy(&world)};

    disk_file_name(s.name, world.file[file].tenant, world.file[file].file, false);
    s.bytes = sim_disk_bytes(s.disk, s.name, &s.n);
    assert_non_null(s.bytes);
    return s;
}

static void recover_scene(const struct scene *s)
{
    world_recover(&world, s->disk, &found);
    assert_int_equal(found.err, TERN_OK);
    for (uint32_t i = 0; i < found.n; i++)
        assert_true(found.list_right[i]);
}

static uint32_t found_of(uint32_t file)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < found.n; i++)
        n += found.extent[i].place.file == world.file[file].file;
    return n;
}

static bool is_there(const struct scene *s)
{
    size_t n;

    return sim_disk_bytes(s->disk, s->name, &n) != NULL;
}

static uint8_t *extent_bytes(const struct scene *s, uint32_t file, uint32_t k)
{
    return s->bytes + world.file[file].head[k].extent.place.offset;
}

static void reseal(uint8_t *block)
{
    uint64_t sum = checksum_unit(block, DISK_BLOCK - 8);

    memcpy(block + DISK_BLOCK - 8, &sum, sizeof sum);
}

FIXTURE(world_start)
{
    world_make(&world, 5, false, RIG_DISK_RIGHT, NULL);
    return 0;
}

FIXTURE(world_start_encrypted)
{
    world_make(&world, 5, true, RIG_DISK_RIGHT, NULL);
    return 0;
}

FIXTURE(world_stop)
{
    world_free(&world);
    return 0;
}

#define WORLD_TEST(name) TEST_WITH(name, world_start, world_stop)

WORLD_TEST(all_that_was_written_is_found_in_order)
{
    struct scene s = scene_of(0);
    uint64_t bytes = 0;
    uint32_t want = 0;

    for (uint32_t i = 0; i < WORLD_FILES; i++)
        want += i == 1 ? 0 : world.file[i].nextents;
    recover_scene(&s);
    assert_int_equal(found.n, want - 1);
    assert_int_equal(found.recovery.holes, 1);
    assert_int_equal(found.recovery.files, WORLD_FILES - 1);
    assert_int_equal(found.recovery.extents, found.n);
    assert_int_equal(found.recovery.removed_files, 0);
    assert_int_equal(found.notes, 0);
    for (uint32_t i = 0; i < found.n; i++)
        bytes += disk_extent_bytes(&found.extent[i]);
    assert_int_equal(found.recovery.bytes, bytes);
    assert_int_equal(found.next_file, world.file[WORLD_FILES - 1].file + 1);
    assert_true(found.served_ns >= 100 + WORLD_FILES - 1);
    for (uint32_t i = 0; i < found.n; i++)
        assert_int_equal(found.verified[i], DISK_FAULT_NONE);
    sim_disk_free(s.disk);
}

WORLD_TEST(leftovers_are_removed_and_their_numbers_not_used_again)
{
    struct scene s = scene_of(0);
    char name[DISK_NAME_MAX];
    size_t n;

    disk_file_name(name, "chat", 900, true);
    sim_disk_put(s.disk, name, s.bytes, s.n);
    sim_disk_put(s.disk, "chat/notes.txt", "x", 1);
    recover_scene(&s);
    assert_int_equal(found.recovery.unfinished, 1);
    assert_int_equal(found.next_file, 901);
    assert_null(sim_disk_bytes(s.disk, name, &n));
    assert_non_null(sim_disk_bytes(s.disk, "chat/notes.txt", &n));
    sim_disk_free(s.disk);
}

WORLD_TEST(what_is_removed_does_not_come_back)
{
    struct scene s = scene_of(2);
    struct sim_disk *after;
    char name[DISK_NAME_MAX];
    size_t n;

    disk_file_name(name, "batch", 900, true);
    sim_disk_put(s.disk, name, s.bytes, s.n);
    memset(s.bytes, 0x11, s.n);
    recover_scene(&s);
    after = sim_disk_crash(s.disk, sim_disk_steps(s.disk), 0); /* nothing unsynced survives */
    assert_null(sim_disk_bytes(after, name, &n));
    assert_null(sim_disk_bytes(after, s.name, &n));
    sim_disk_free(after);
    sim_disk_free(s.disk);
}

WORLD_TEST(a_header_that_is_torn_costs_its_extent_alone)
{
    uint32_t n = world.file[0].nextents - 1; /* one is a hole */

    for (uint32_t part = 0; part < 8; part++) {
        struct scene s = scene_of(0);

        memset(extent_bytes(&s, 0, 2) + part * 512, 0xdb, 512);
        recover_scene(&s);
        assert_int_equal(found_of(0), n - 1);
        assert_int_equal(found.recovery.faults[part == 0 ? DISK_FAULT_MAGIC : DISK_FAULT_CHECKSUM],
                         1);
        assert_int_equal(found.notes, 1);
        assert_true(is_there(&s));
        sim_disk_free(s.disk);
    }
}

/* The footer is complete, and yet the extent counts: one of another file, of another place in the
 * file, of an earlier daemon, and one with other bytes than the footer has. */
WORLD_TEST(a_footer_is_not_believed_over_the_extent)
{
    uint32_t n = world.file[0].nextents - 1;
    struct disk_head other = world.file[0].head[2];

    other.extent.chain ^= 1;
    for (uint32_t i = 0; i < 4; i++) {
        struct scene s = scene_of(0), from = scene_of(2);
        uint8_t *block = extent_bytes(&s, 0, 2);

        if (i == 0)
            memcpy(block, extent_bytes(&from, 2, 0), DISK_BLOCK);
        if (i == 1)
            memcpy(block, extent_bytes(&s, 0, 0), DISK_BLOCK);
        if (i == 2)
            other = world.file[0].head[2];
        if (i == 2)
            other.incarnation--;
        if (i == 3) {
            other = world.file[0].head[2];
            other.extent.chain ^= 1;
        }
        if (i >= 2)
            disk_put_extent(block, &other, "chat");
        recover_scene(&s);
        assert_int_equal(found_of(0), n - 1);
        assert_int_equal(found.recovery.faults[DISK_FAULT_ADDRESS], 1);
        sim_disk_free(s.disk);
        sim_disk_free(from.disk);
    }
}

/* Bytes of an earlier daemon in the same blocks: an extent, and a whole footer. */
WORLD_TEST(an_earlier_daemons_bytes_are_not_taken)
{
    struct rig_disk_file old = world.file[2];
    struct scene s = scene_of(2), from = {.disk = sim_disk_make(NULL)};
    const struct disk_head *last = &old.head[old.nextents - 1];
    uint64_t end = last->extent.place.offset + disk_extent_bytes(&last->extent);

    memset(old.body, 0, sizeof old.body);
    memset(old.list, 0, sizeof old.list);
    old.incarnation--;
    assert_int_equal(rig_disk_write(sim_disk_files(from.disk), &old, RIG_DISK_RIGHT), 0);
    from.bytes = sim_disk_bytes(from.disk, s.name, &from.n);
    assert_int_equal(from.n, s.n);
    memcpy(s.bytes + end, from.bytes + end, s.n - end);
    recover_scene(&s);
    assert_int_equal(found_of(2), old.nextents);
    assert_int_equal(found.recovery.faults[DISK_FAULT_ADDRESS], 1);
    memcpy(extent_bytes(&s, 2, 1), from.bytes + old.head[1].extent.place.offset, DISK_BLOCK);
    recover_scene(&s);
    assert_int_equal(found_of(2), 1);
    assert_int_equal(found.recovery.faults[DISK_FAULT_ADDRESS], 2);
    rig_disk_file_free(&old);
    sim_disk_free(from.disk);
    sim_disk_free(s.disk);
}

/* Under valid sums: a key at a position outside the extent. */
WORLD_TEST(keys_that_are_not_the_extents_are_not_taken)
{
    uint32_t tried = 0;

    for (uint32_t file = 2; file < WORLD_FILES; file++) {
        struct disk_head h = world.file[file].head[0];
        struct scene s = scene_of(file);
        uint8_t *body = extent_bytes(&s, file, 0) + DISK_BLOCK;
        struct extra_key *key = (void *)(body + (size_t)h.extent.tokens * 4);

        if (h.extent.nkeys > 0) {
            key->position = h.extent.depth;
            h.seal.meta_sum = checksum_unit(body, disk_meta_bytes(&h.extent));
            h.seal.list_sum = checksum_unit(body, disk_list_bytes(&h.extent));
            disk_put_extent(extent_bytes(&s, file, 0), &h, world.file[file].tenant);
            s.bytes[s.n - 1] ^= 1;
            recover_scene(&s);
            assert_int_equal(found_of(file), world.file[file].nextents - 1);
            assert_int_equal(found.recovery.faults[DISK_FAULT_SHAPE], 1);
            tried++;
        }
        sim_disk_free(s.disk);
    }
    assert_true(tried > 0);
}

/* Without a footer extents are found one behind the other; in file 0 the second is a hole. */
WORLD_TEST(without_a_footer_extents_are_found_up_to_the_first_that_is_not_good)
{
    for (uint32_t file = 0; file < WORLD_FILES; file += 2) {
        for (uint32_t i = 0; i < 3; i++) {
            struct scene s = scene_of(file);
            uint32_t k = world.file[file].nextents - 1;
            const struct disk_extent *last = &world.file[file].head[k].extent;
            uint64_t footer_at = last->place.offset + disk_extent_bytes(last);

            if (i == 0)
                s.bytes[s.n - 10] ^= 4; /* trailer */
            if (i == 1)
                s.bytes[footer_at + 100] ^= 4; /* the footer's header */
            if (i == 2)
                s.bytes[footer_at + DISK_BLOCK + 40] ^= 4; /* its body */
            recover_scene(&s);
            assert_int_equal(found_of(file), file == 0 ? 1 : world.file[file].nextents);
            assert_int_equal(found.recovery.faults[DISK_FAULT_CHECKSUM], 1);
            assert_int_equal(found.notes, 1);
            sim_disk_free(s.disk);
        }
    }
}

WORLD_TEST(what_is_behind_rot_is_found_by_the_footer_and_not_without)
{
    struct scene s = scene_of(2);
    uint32_t n = world.file[2].nextents;

    assert_true(n >= 2);
    extent_bytes(&s, 2, 0)[99] ^= 1;
    recover_scene(&s);
    assert_int_equal(found_of(2), n - 1);
    s.bytes[s.n - 1] ^= 1;
    recover_scene(&s);
    assert_int_equal(found_of(2), 0);
    assert_false(is_there(&s));
    assert_int_equal(found.recovery.removed_files, 1);
    sim_disk_free(s.disk);
}

WORLD_TEST(a_list_that_is_rotten_is_told_without_a_footer)
{
    struct scene s = scene_of(2);

    assert_int_equal(world.file[2].head[0].extent.part, DISK_HISTORY);
    extent_bytes(&s, 2, 0)[DISK_BLOCK + 5] ^= 1; /* a token */
    recover_scene(&s);
    assert_int_equal(found_of(2), world.file[2].nextents);
    s.bytes[s.n - 1] ^= 1;
    recover_scene(&s);
    assert_int_equal(found_of(2), world.file[2].nextents - 1);
    sim_disk_free(s.disk);
}

WORLD_TEST(a_file_of_another_number_is_not_taken)
{
    struct scene s = scene_of(2);
    char name[DISK_NAME_MAX];
    size_t n;

    disk_file_name(name, "batch", 999, false);
    sim_disk_put(s.disk, name, s.bytes, s.n);
    recover_scene(&s);
    assert_null(sim_disk_bytes(s.disk, name, &n));
    assert_true(found.recovery.faults[DISK_FAULT_ADDRESS] > 0);
    assert_int_equal(found.next_file, 1000);
    assert_int_equal(found_of(2), world.file[2].nextents);
    sim_disk_free(s.disk);
}

/* A renamed folder loses nothing: an operator has to decide about it. */
WORLD_TEST(a_file_of_another_tenant_is_refused_and_stays)
{
    struct scene s = scene_of(2);
    char name[DISK_NAME_MAX];
    size_t n;

    disk_file_name(name, "batch", world.file[2].file, false);
    sim_disk_put(s.disk, name, s.bytes, s.n);
    world_recover(&world, s.disk, &found);
    assert_int_equal(found.err, TERN_CONFLICT);
    assert_non_null(strstr(found.why, "another tenant"));
    assert_int_equal(found.n, 0);
    assert_non_null(sim_disk_bytes(s.disk, name, &n));
    assert_true(is_there(&s));
    sim_disk_free(s.disk);
}

/* A file cut at every length: the part beyond is lost, the rest is used as far as it is whole. */
WORLD_TEST(a_file_that_was_cut_off_gives_what_is_left)
{
    struct scene whole = scene_of(2);
    uint32_t some = 0, none = 0;

    for (size_t n = 0; n < whole.n; n += n % DISK_BLOCK ? 3597 : 499) {
        struct scene s = scene_of(2);
        uint32_t left = 0;

        for (uint32_t k = 0; k < world.file[2].nextents; k++) {
            const struct disk_extent *e = &world.file[2].head[k].extent;

            left += e->place.offset + disk_extent_bytes(e) <= n;
        }
        sim_disk_put(s.disk, s.name, whole.bytes, n);
        recover_scene(&s);
        assert_int_equal(found_of(2), left);
        assert_int_equal(is_there(&s), left > 0);
        some += left > 0;
        none += left == 0;
        sim_disk_free(s.disk);
    }
    assert_true(some > 0 && none > 0);
    sim_disk_free(whole.disk);
}

/* ---- a newer format ---- */

WORLD_TEST(a_newer_format_is_refused_and_nothing_is_removed)
{
    struct scene s = scene_of(4);
    char name[DISK_NAME_MAX];
    size_t before, n;

    disk_file_name(name, "chat", 901, true);
    sim_disk_put(s.disk, name, "x", 1);
    disk_file_name(name, "chat", 902, false);
    sim_disk_put(s.disk, name, "x", 1);
    s.bytes = sim_disk_bytes(s.disk, s.name, &s.n);
    s.bytes[8]++;
    reseal(s.bytes);
    before = sim_disk_steps(s.disk);
    world_recover(&world, s.disk, &found);
    assert_int_equal(found.err, TERN_UNSUPPORTED);
    assert_non_null(strstr(found.why, s.name));
    assert_int_equal(found.n + found.ready, 0);
    assert_int_equal(sim_disk_steps(s.disk), before);
    s.bytes[8]--;
    reseal(s.bytes);
    recover_scene(&s);
    assert_null(sim_disk_bytes(s.disk, name, &n));
    sim_disk_free(s.disk);
}

/* One changed bit of the version is rot and no newer format. */
WORLD_TEST(a_version_that_is_rotten_refuses_nothing)
{
    struct scene s = scene_of(4);

    s.bytes[8]++;
    recover_scene(&s);
    assert_int_equal(found.recovery.faults[DISK_FAULT_CHECKSUM], 1);
    assert_int_equal(found_of(4), world.file[4].nextents);
    sim_disk_free(s.disk);
}

/* ---- errors of the disk ---- */

WORLD_TEST(what_could_not_be_read_is_not_removed)
{
    uint64_t read_faults = 0;

    for (uint32_t i = 0; i < 40; i++) {
        struct scene s = scene_of(0);
        struct sim_disk_faults faults = {.seed = i, .read_eio = 1 + i / 4}, none = {.seed = 0};

        sim_disk_set_faults(s.disk, &faults);
        world_recover(&world, s.disk, &found);
        assert_int_equal(found.err, TERN_OK);
        read_faults += found.recovery.faults[DISK_FAULT_READ];
        assert_int_equal(found.recovery.removed_files, 0);
        sim_disk_set_faults(s.disk, &none);
        recover_scene(&s);
        assert_int_equal(found.recovery.files, WORLD_FILES - 1);
        sim_disk_free(s.disk);
    }
    assert_true(read_faults > 100);
}

/* ---- rot, all over a file ---- */

/* Each byte of each block in turn, here one of 131: an extent that is hit is not good any more, and
 * the others are unchanged. */
static void rot_everywhere(void)
{
    uint32_t hits = 0, silent = 0;
    struct scene s = scene_of(2);

    for (size_t at = 0; at < s.n; at += 131) {
        struct world_tally t = {.crashes = 0};
        struct scene now = scene_of(2);

        now.bytes[at] ^= (uint8_t)(1u << at % 8);
        world_recover(&world, now.disk, &found);
        assert_int_equal(found.err, TERN_OK);
        world_judge(&world, now.disk, sim_disk_steps(world.disk), &found, true, &t);
        assert_int_equal(t.wrong_bytes + t.wrong_lists + t.unnamed, 0);
        assert_true(t.not_good + t.lost <= 1);
        hits += t.not_good + t.lost == 1 || found.notes > 0;
        silent += t.not_good + t.lost == 0 && found.notes == 0;
        sim_disk_free(now.disk);
    }
    printf("rot=%u told=%u of_what_fills_up_a_block=%u\n", hits + silent, hits, silent);
    assert_true(hits > 4 * silent);
    sim_disk_free(s.disk);
}

WORLD_TEST(rot_is_told_wherever_it_is)
{
    rot_everywhere();
}

TEST_WITH(rot_is_told_wherever_it_is_in_encrypted_files, world_start_encrypted, world_stop)
{
    rot_everywhere();
}

/* ---- keys ---- */

static void refused_for_its_key(const struct scene *s)
{
    world_recover(&world, s->disk, &found);
    assert_int_equal(found.err, TERN_CONFLICT);
    assert_non_null(strstr(found.why, "another key"));
    assert_int_equal(found.n, 0);
    assert_int_equal(found.recovery.removed_files + found.recovery.unfinished, 0);
    assert_true(is_there(s));
}

/* A mistyped key loses nothing. */
TEST_WITH(files_of_another_key_are_refused_and_stay, world_start_encrypted, world_stop)
{
    struct disk_config config = world.config;

    for (uint32_t i = 0; i < 2; i++) {
        struct scene s = scene_of(0);

        world.config = config;
        world.config.encrypt = i == 0;
        world.config.key[5] ^= 1;
        refused_for_its_key(&s);
        sim_disk_free(s.disk);
    }
}

WORLD_TEST(files_in_the_clear_are_refused_where_there_is_a_key)
{
    struct scene s;

    s = scene_of(0);
    world.config.encrypt = true;
    refused_for_its_key(&s);
    sim_disk_free(s.disk);
}

TEST_WITH(encrypted_extents_are_found_without_a_footer, world_start_encrypted, world_stop)
{
    struct scene s;

    s = scene_of(2);
    s.bytes[s.n - 1] ^= 1;
    recover_scene(&s);
    assert_int_equal(found_of(2), world.file[2].nextents);
    extent_bytes(&s, 2, 0)[DISK_BLOCK + 5] ^= 1;
    recover_scene(&s);
    assert_int_equal(found_of(2), world.file[2].nextents - 1);
    sim_disk_free(s.disk);
}

static void put_sum(uint8_t *block)
{
    uint64_t sum = checksum_unit(block, DISK_BLOCK - 8);

    memcpy(block + DISK_BLOCK - 8, &sum, sizeof sum);
}

/* Changed without the key, under a valid checksum: any byte of a header, and one in the clear. */
TEST_WITH(a_header_that_was_forged_is_told_by_the_tag, world_start_encrypted, world_stop)
{
    uint32_t told = 0, n;

    n = world.file[2].nextents;
    for (uint32_t k = 0; k < n; k++) {
        for (uint32_t at = 12; at <= DISK_HEAD_BYTES; at += 3) {
            struct scene s = scene_of(2);
            uint8_t *block = extent_bytes(&s, 2, k);

            if (at > DISK_HEAD_BYTES - 3)
                disk_put_extent(block, &world.file[2].head[k], world.file[2].tenant);
            else
                block[at] ^= 0x10;
            put_sum(block);
            recover_scene(&s);
            assert_int_equal(found_of(2), n - 1);
            told += found.recovery.faults[DISK_FAULT_CHECKSUM] == 1;
            assert_int_equal(found.recovery.faults[DISK_FAULT_CHECKSUM] +
                                 found.recovery.faults[DISK_FAULT_KEY],
                             1);
            sim_disk_free(s.disk);
        }
    }
    printf("forged headers told by the tag: %u\n", told);
    assert_true(told > n * 200);
}

/* Changed by somebody with the key: the footer shows it, or without one the body's own tag. */
TEST_WITH(a_header_says_what_its_body_was_sealed_with, world_start_encrypted, world_stop)
{
    uint32_t n;

    n = world.file[2].nextents;
    for (uint32_t k = 0; k < n; k++) {
        struct scene s = scene_of(2);
        struct disk_head h = world.file[2].head[k];

        h.seal.tag[5] ^= 1;
        rig_disk_put(world.crypt, &h, world.file[2].tenant, extent_bytes(&s, 2, k));
        recover_scene(&s);
        assert_int_equal(found_of(2), n - 1);
        assert_int_equal(found.recovery.faults[DISK_FAULT_ADDRESS], 1);
        s.bytes[s.n - 1] ^= 1;
        recover_scene(&s);
        assert_int_equal(found_of(2), n - 1);
        assert_int_equal(found.recovery.faults[DISK_FAULT_CHECKSUM], 2); /* with the trailer's */
        sim_disk_free(s.disk);
    }
}
