/* The disk tier's figures about its troubles, from which operators learn the cause and the file. */
#include "testing/test.h"
#include "unit/rig/rig_spill_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_CAP 160
#define ALL(n)   ((1ull << (n)) - 1)

static struct rig_spill rig;
static struct rig_file file, other;

static void open_rig(void)
{
    rig_spill_init(&rig, NULL);
    rig_spill_fill(&rig, 0, 1);
    rig_spill_fill(&rig, 2, 2);
    assert_int_equal(rig_spill_open(&rig), TERN_OK);
    rig_file_usual(&rig, &file, 0, 0, 4);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
}

FIXTURE(drop_rig)
{
    rig_spill_finish(&rig);
    return 0;
}

TEST_EACH(NULL, drop_rig);

static struct disk_stats stats(void)
{
    struct disk_stats s;

    disk_stats(rig.disk, &s);
    return s;
}

/* A disk that no longer takes writes often still reads. */
TEST(reads_that_work_do_not_end_that_writes_fail)
{
    open_rig();
    assert_int_equal(stats().error, 0);
    rig_spill_close(&rig);
    rig.config.fault_write_every = 1;
    assert_int_equal(rig_spill_open(&rig), TERN_OK);
    rig_file_usual(&rig, &other, 0, 0, 5);
    assert_int_equal(rig_spill_write(&rig, &other), TERN_DISK);
    assert_true(stats().failing);
    assert_int_equal(stats().error, EIO);
    assert_int_equal(rig_spill_read(&rig, &file, 0, 16), ALL(16));
    assert_true(stats().failing);
    rig_spill_close(&rig);
    rig.config.fault_write_every = 0;
    assert_int_equal(rig_spill_open(&rig), TERN_OK);
    assert_int_equal(rig_spill_write(&rig, &other), TERN_OK);
    assert_false(stats().failing);
}

TEST(what_a_read_finds_damaged_is_told_with_its_place)
{
    char path[PATH_CAP], byte = 'x';
    uint64_t extent;
    int fd;

    open_rig();
    extent = file.extent[1].place.offset;
    rig_spill_path(&rig, &file, false, path, sizeof path);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)(extent + DISK_BLOCK + 2)), 1);
    assert_int_equal(fsync(fd), 0);
    close(fd);
    assert_int_equal(stats().bad.n, 0);
    assert_int_equal(rig_spill_read(&rig, &file, 0, 16), ALL(16) & ~(ALL(8) << 6));
    assert_int_equal(stats().bad.n, 1);
    assert_int_equal(stats().bad.at.file, file.write.file);
    assert_int_equal(stats().bad.at.offset, extent);
    assert_int_equal(stats().bad.tenant, 0);
    assert_false(stats().bad.missing);
    assert_int_equal(stats().corrupt, 1);
}

TEST(a_file_that_somebody_removed_is_told_and_is_no_failure_of_the_disk)
{
    char path[PATH_CAP];

    open_rig();
    rig_spill_path(&rig, &file, false, path, sizeof path);
    assert_int_equal(unlink(path), 0);
    rig_spill_ask(&rig, &file, (struct pull_id){2, 1}, 0, 0, 16);
    rig_spill_events(&rig, 2);
    assert_int_equal(rig.got[0].kind, EV_DISK_DROPPED);
    assert_int_equal(rig.got[1].kind, EV_PULLED);
    assert_true(stats().bad.n > 0);
    assert_int_equal(stats().bad.at.file, file.write.file);
    assert_true(stats().bad.missing);
    assert_int_equal(stats().corrupt, 0);
    assert_false(stats().failing);
}
