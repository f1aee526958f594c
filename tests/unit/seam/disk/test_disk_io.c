/* The disk tier on a real directory, with O_DIRECT where the directory supports it: written data is
 * read back, a start finds it, a drop removes it; one daemon a directory. */
#include "testing/test.h"
#include "unit/rig/rig_spill_dir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "seam/disk/disk_footer.h"
#include "seam/mem/checksum.h"

#define TMPFS 0x01021994

static struct rig_spill rig;
static struct rig_file file;

FIXTURE(drop_rig)
{
    rig_spill_finish(&rig);
    return 0;
}

TEST_EACH(NULL, drop_rig);

/* ------------------------------------------------------------------ written and read back */

static void there_and_back(uint32_t tenant, uint32_t pool)
{
    rig_file_usual(&rig, &file, tenant, pool, 4);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    rig_spill_clear(&rig, pool + 1);
    assert_int_equal(rig_spill_alike(&rig, &file), 0);
    assert_int_equal(rig_spill_read(&rig, &file, 0, file.write.npages),
                     RIG_SPILL_ALL(file.write.npages));
    assert_int_equal(rig_spill_alike(&rig, &file), RIG_SPILL_ALL(file.write.npages));
    assert_int_equal(rig_spill_files(&rig, tenant), 1);
    assert_true(disk_idle(rig.disk));
}

TEST(what_is_written_comes_back_byte_for_byte)
{
    rig_spill_start(&rig, false);
    there_and_back(0, 0);
    there_and_back(1, 2); /* one region moves, and the other gets its bytes */
    assert_int_equal(rig_spill_stats(&rig).files_written, 2);
    assert_int_equal(rig_spill_stats(&rig).corrupt, 0);
    assert_false(rig_spill_stats(&rig).full || rig_spill_stats(&rig).failing);
    rig_spill_reopen(&rig); /* another daemon reads it */
    rig_spill_clear(&rig, 3);
    assert_int_equal(rig_spill_read(&rig, &file, 0, file.write.npages),
                     RIG_SPILL_ALL(file.write.npages));
    assert_int_equal(rig_spill_alike(&rig, &file), RIG_SPILL_ALL(file.write.npages));
}

/* Each chunk of the file is as the format defines it: read here by the definition alone. */
TEST(a_file_lies_as_the_format_says)
{
    uint64_t n, at = DISK_BLOCK;
    struct disk_file_header header;
    struct disk_trailer trailer;
    struct disk_footer_reader footer;
    struct disk_footer_entry entry;
    uint8_t *bytes;
    char path[RIG_SPILL_PATH];
    struct stat st;

    rig_spill_start(&rig, false);
    rig_file_usual(&rig, &file, 0, 0, 4);
    file.extent[3].served_ns = 123456789;
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    rig_spill_path(&rig, &file, false, path, sizeof path);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    *strrchr(path, '/') = '\0';
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    bytes = rig_spill_contents(&rig, &file, &n);
    assert_int_equal(disk_get_file_header(bytes, 4, "alpha", &header), DISK_FAULT_NONE);
    assert_int_equal(header.incarnation, 77);
    assert_int_equal(header.served_ns, 123456789);
    for (uint32_t i = 0; i < file.write.nextents; i++) {
        struct disk_head head;
        const struct disk_extent *e = &file.extent[i];

        assert_int_equal(disk_get_extent(bytes + at, (struct disk_place){4, at}, n, "alpha", &head),
                         DISK_FAULT_NONE);
        assert_true(disk_extent_agrees(&head.extent, e));
        assert_int_equal(checksum_unit(bytes + at + DISK_BLOCK, disk_meta_bytes(e)),
                         head.seal.meta_sum);
        at += disk_extent_bytes(e);
    }
    assert_int_equal(disk_get_trailer(bytes + n - DISK_BLOCK, 4, n, &trailer), DISK_FAULT_NONE);
    assert_int_equal(trailer.footer_at, at);
    assert_int_equal(disk_footer_open(&footer, bytes + at, &trailer, "alpha", NULL),
                     DISK_FAULT_NONE);
    for (uint32_t i = 0; i < file.write.nextents; i++) {
        assert_true(disk_footer_next(&footer, &entry));
        assert_true(disk_extent_agrees(&entry.head.extent, &file.extent[i]));
    }
    assert_false(disk_footer_next(&footer, &entry));
    free(bytes);
}

/* Any part of the pages, also out of order, in any number of batches. */
TEST(any_pages_of_a_file_can_be_asked_for)
{
    struct disk_page swap;
    uint64_t bytes;

    rig_spill_start(&rig, false);
    rig_file_usual(&rig, &file, 0, 0, 4);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    for (uint32_t first = 0; first < file.write.npages; first++) {
        for (uint32_t n = 1; first + n <= file.write.npages; n += 3) {
            rig_spill_clear(&rig, 1);
            assert_int_equal(rig_spill_read(&rig, &file, first, n), RIG_SPILL_ALL(n));
            assert_int_equal(rig_spill_alike(&rig, &file), RIG_SPILL_ALL(n) << first);
        }
    }
    bytes = rig_spill_stats(&rig).bytes_read;
    assert_int_equal(rig_spill_read(&rig, &file, 13, 1), 1); /* and not all of its extent */
    assert_true(rig_spill_stats(&rig).bytes_read - bytes < 128u << 10);
    for (uint32_t i = 0; i + 1 < file.write.npages; i += 2) { /* neighbours change places */
        struct page_at page = file.page[i];

        swap = file.place[i];
        file.place[i] = file.place[i + 1];
        file.place[i + 1] = swap;
        file.page[i] = file.page[i + 1];
        file.page[i + 1] = page;
    }
    rig_spill_clear(&rig, 1);
    assert_int_equal(rig_spill_read(&rig, &file, 0, file.write.npages),
                     RIG_SPILL_ALL(file.write.npages));
    assert_int_equal(rig_spill_alike(&rig, &file), RIG_SPILL_ALL(file.write.npages));
}

TEST(files_are_written_and_read_side_by_side)
{
    static struct rig_file files[4];
    uint64_t seen = 0;

    rig_spill_start(&rig, false);
    for (uint32_t i = 0; i < 4; i++) {
        rig_file_usual(&rig, &files[i], i % 2, i % 2 * 2, 10 + i);
        disk_write(rig.disk, &files[i].write);
    }
    assert_false(disk_idle(rig.disk));
    rig_spill_events(&rig, 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(rig.got[i].kind, EV_DISK_WRITTEN);
        assert_int_equal(rig.got[i].written.err, TERN_OK);
        seen |= 1ull << (rig.got[i].written.store.gen - 10);
    }
    assert_int_equal(seen, 15);
    rig_spill_clear(&rig, 1);
    rig_spill_clear(&rig, 3);
    for (uint32_t i = 0; i < 32; i++)
        rig_spill_ask(&rig, &files[i % 2], (struct pull_id){i % 2, 3}, i, i / 2, 1);
    rig_spill_events(&rig, 32);
    for (uint32_t i = 0; i < 32; i++)
        assert_int_equal(rig.got[i].pulled.ok[0], 1);
    assert_int_equal(rig_spill_alike(&rig, &files[0]), RIG_SPILL_ALL(16));
    assert_int_equal(rig_spill_alike(&rig, &files[1]), RIG_SPILL_ALL(16));
}

/* ------------------------------------------------------------------ a start, a verification */

static struct {
    uint32_t found, ready, noted, verified, wrong;
    uint64_t next_file;
} heard;

static void hear(void *ctx, struct event *event)
{
    const struct disk_extent *e = &event->found.extent;

    (void)ctx;
    if (event->kind == EV_DISK_READY) {
        heard.ready++;
        heard.next_file = event->ready.next_file;
        return;
    }
    assert_int_equal(event->kind, EV_DISK_FOUND);
    assert_true(disk_extent_agrees(e, &file.extent[heard.found]));
    assert_int_equal(e->tenant, 0);
    assert_int_equal(e->hits, file.extent[heard.found].hits);
    if (e->tokens)
        assert_memory_equal(event->found.tokens, file.token + heard.found * RIG_SPILL_ALIGN,
                            e->tokens * sizeof *file.token);
    if (e->nkeys)
        assert_memory_equal(event->found.keys, file.key, e->nkeys * sizeof *file.key);
    heard.found++;
}

static void note(void *ctx, const char *name, uint64_t offset, enum disk_fault fault)
{
    (void)ctx, (void)name, (void)offset, (void)fault;
    heard.noted++;
}

static void verify(void *ctx, const struct disk_verified *v)
{
    (void)ctx;
    assert_string_equal(v->tenant, "alpha");
    heard.verified++;
    heard.wrong += v->fault != DISK_FAULT_NONE ? 1 : 0;
}

static void start_finds(void)
{
    struct disk_recovery r;
    const char *why = NULL;

    rig_file_usual(&rig, &file, 0, 0, 4);
    file.extent[3].hits = 12;
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    rig_spill_reopen(&rig);
    memset(&heard, 0, sizeof heard);
    assert_int_equal(disk_recover(rig.disk, hear, note, NULL, &r, &why), TERN_OK);
    assert_int_equal(heard.found, 4);
    assert_int_equal(heard.ready, 1);
    assert_int_equal(heard.next_file, 5);
    assert_int_equal(heard.noted, 0);
    assert_int_equal(r.extents, 4);
    assert_int_equal(rig_spill_read(&rig, &file, 0, 16),
                     RIG_SPILL_ALL(16)); /* the lane is unchanged */
    assert_int_equal(disk_verify(&rig.config, verify, NULL, &why), TERN_OK); /* beside it */
    assert_int_equal(heard.verified, 4);
    assert_int_equal(heard.wrong, 0);
    rig_spill_flip(&rig, &file,
                   file.place[9].extent.place.offset + DISK_BLOCK + file.place[9].body_at);
    assert_int_equal(disk_verify(&rig.config, verify, NULL, &why), TERN_OK);
    assert_int_equal(heard.verified, 8);
    assert_int_equal(heard.wrong, 1);
}

TEST(a_start_finds_what_was_written_and_a_verification_agrees)
{
    rig_spill_start(&rig, false);
    start_finds();
}

TEST(a_start_finds_what_was_encrypted_and_a_verification_agrees)
{
    rig_spill_start(&rig, true);
    start_finds();
}

/* ------------------------------------------------------------------ stops, drops, life */

TEST(other_pulls_go_on_beside_one_that_stops)
{
    uint32_t pulled = 0;

    rig_spill_start(&rig, false);
    rig_file_usual(&rig, &file, 0, 0, 4);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    for (uint32_t i = 0; i < 16; i++)
        rig_spill_ask(&rig, &file, (struct pull_id){i % 2, 7}, i, i, 1);
    disk_read_stop(rig.disk, (struct pull_id){0, 7});
    rig_spill_events(&rig, 9);
    for (uint32_t i = 0; i < 9; i++) {
        if (rig.got[i].kind == EV_PULL_QUIET)
            continue;
        assert_int_equal(rig.got[i].kind, EV_PULLED);
        assert_int_equal(rig.got[i].pulled.pull.slot, 1);
        assert_int_equal(rig.got[i].pulled.ok[0], 1);
        pulled++;
    }
    assert_int_equal(pulled, 8);
}

static uint64_t blocks_of(const struct rig_file *f)
{
    char path[RIG_SPILL_PATH];
    struct stat st;

    rig_spill_path(&rig, f, false, path, sizeof path);
    assert_int_equal(stat(path, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

TEST(what_is_dropped_is_given_back)
{
    struct disk_drop drop;
    uint64_t before, bytes;

    rig_spill_start(&rig, false);
    rig_file_usual(&rig, &file, 0, 0, 4);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    before = blocks_of(&file);
    bytes = disk_extent_bytes(&file.extent[1]) + disk_extent_bytes(&file.extent[2]);
    for (uint32_t i = 1; i < 3; i++) {
        drop = (struct disk_drop){0, disk_extent_bytes(&file.extent[i]), file.extent[i].place};
        disk_drop(rig.disk, &drop);
    }
    assert_false(disk_idle(rig.disk));
    for (uint32_t i = 0; i < 5000 && !disk_idle(rig.disk); i++)
        rig_spill_quiet_ms(&rig, 1);
    assert_int_equal(rig.ngot, 1); /* the write's; the end of an extent is not reported */
    assert_true(disk_idle(rig.disk));
    assert_int_equal(rig_spill_stats(&rig).punched_bytes, bytes);
    assert_true(blocks_of(&file) <= before - bytes + 2 * DISK_BLOCK);
    assert_int_equal(rig_spill_read(&rig, &file, 0, 16), RIG_SPILL_ALL(6));
    drop = (struct disk_drop){0, 0, {4, 0}};
    disk_drop(rig.disk, &drop);
    rig_spill_events(&rig, 1);
    assert_int_equal(rig.got[0].kind, EV_DISK_DROPPED);
    assert_int_equal(rig.got[0].dropped.file, 4);
    assert_int_equal(rig_spill_files(&rig, 0), 0);
    assert_int_equal(rig_spill_stats(&rig).dropped_files, 1);
    disk_drop(rig.disk, &drop); /* it has gone already */
    rig_spill_events(&rig, 1);
    assert_int_equal(rig.got[0].kind, EV_DISK_DROPPED);
}

TEST(a_directory_has_one_daemon)
{
    struct rig_spill second;
    const char *why = NULL;
    struct disk *disk;

    rig_spill_start(&rig, false);
    assert_int_equal(disk_create(&rig.config, &disk, &why), TERN_CONFLICT);
    assert_non_null(strstr(why, "another daemon"));
    rig_spill_reopen(&rig);
    second.config = rig.config;
    second.config.dir = "/nonexistent/tern";
    assert_int_equal(disk_create(&second.config, &disk, &why), TERN_DISK);
}

TEST(a_file_system_without_o_direct_does_and_is_told_of)
{
    struct statfs st;

    if (statfs("/dev/shm", &st) < 0 || st.f_type != TMPFS)
        skip();
    rig_spill_init(&rig, "/dev/shm");
    rig_spill_fill(&rig, 0, 1);
    assert_int_equal(rig_spill_open(&rig), TERN_OK);
    assert_false(rig_spill_stats(&rig).direct);
    there_and_back(0, 0);
}

/* Files in progress are finished, waiting ones are not begun, and nothing hangs. */
TEST(a_disk_that_is_destroyed_leaves_whole_files)
{
    static struct rig_file files[4];

    rig_spill_start(&rig, false);
    for (uint32_t i = 0; i < 4; i++) {
        rig_file_usual(&rig, &files[i], 0, 0, 20 + i);
        disk_write(rig.disk, &files[i].write);
    }
    usleep(2000);
    rig_spill_reopen(&rig);
    for (uint32_t i = 0; i < 4; i++) {
        char path[RIG_SPILL_PATH];

        rig_spill_path(&rig, &files[i], true, path, sizeof path);
        assert_int_equal(access(path, F_OK), -1);
        rig_spill_path(&rig, &files[i], false, path, sizeof path);
        if (access(path, F_OK) == 0)
            assert_int_equal(rig_spill_read(&rig, &files[i], 0, 16), RIG_SPILL_ALL(16));
    }
}

TEST(what_a_disk_takes_is_said_before)
{
    rig_spill_start(&rig, false);
    assert_true(disk_bytes(&rig.config) >
                2ull * 3 * DISK_PIECE_BYTES + 2 * disk_footer_bytes_max());
    assert_true(disk_bytes(&rig.config) < 64u << 20);
}

/* ------------------------------------------------------------------ files that are gone */

static void remove_one(const struct rig_file *f)
{
    char path[RIG_SPILL_PATH];

    rig_spill_path(&rig, f, false, path, sizeof path);
    assert_int_equal(unlink(path), 0);
}

/* The core receives the file's number, ahead of the pages, none of which is right. */
TEST(d4_a_file_that_is_gone_is_told_of)
{
    rig_spill_start(&rig, false);
    rig_file_usual(&rig, &file, 0, 0, 4);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    remove_one(&file);
    rig_spill_ask(&rig, &file, (struct pull_id){1, 1}, 0, 0, file.write.npages);
    rig_spill_events(&rig, 2);
    assert_int_equal(rig.got[0].kind, EV_DISK_DROPPED);
    assert_int_equal(rig.got[0].dropped.file, 4);
    assert_int_equal(rig.got[1].kind, EV_PULLED);
    assert_int_equal(rig.got[1].pulled.ok[0], 0);
    assert_int_equal(rig_spill_stats(&rig).corrupt, 0);
    assert_int_equal(rig_spill_stats(&rig).read_errors, 0);
    assert_true(rig_spill_stats(&rig).bad.missing);
    assert_false(rig_spill_stats(&rig).failing || rig_spill_stats(&rig).gone);
}

/* The folder itself: one write fails, so that it is reported, and the next creates it again. */
TEST(d4_a_folder_that_is_gone_is_told_of_and_made_anew)
{
    char command[RIG_SPILL_PATH + 16];

    rig_spill_start(&rig, false);
    rig_file_usual(&rig, &file, 0, 0, 4);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    snprintf(command, sizeof command, "rm -r %s", rig.dir);
    assert_int_equal(system(command), 0);
    rig_spill_ask(&rig, &file, (struct pull_id){1, 1}, 0, 0, file.write.npages);
    rig_spill_events(&rig, 2);
    assert_int_equal(rig.got[0].kind, EV_DISK_DROPPED);
    assert_int_equal(rig.got[0].dropped.file, 0);
    assert_int_equal(rig.got[1].kind, EV_PULLED);
    assert_true(rig_spill_stats(&rig).failing && rig_spill_stats(&rig).gone);
    rig_file_usual(&rig, &file, 0, 0, 5);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_DISK);
    assert_true(rig_spill_stats(&rig).gone);
    rig_file_usual(&rig, &file, 0, 0, 6);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    assert_false(rig_spill_stats(&rig).failing || rig_spill_stats(&rig).gone);
    assert_int_equal(rig_spill_read(&rig, &file, 0, 16), RIG_SPILL_ALL(16));
    there_and_back(1, 2);
}
