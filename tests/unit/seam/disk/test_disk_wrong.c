/* Wrong data is neither stored nor served: changed pages, lost memory, rotten bytes, wrong extents,
 * files that are cut off. */
#include "testing/test.h"
#include "unit/rig/rig_lost.h"
#include "unit/rig/rig_spill_dir.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "seam/mem/checksum.h"

static struct rig_spill rig;
static struct rig_file file, other;

FIXTURE(drop_rig)
{
    rig_spill_finish(&rig);
    return 0;
}

TEST_EACH(NULL, drop_rig);

TEST(a_page_that_changed_before_the_write_ends_it)
{
    uint8_t *byte;

    rig_spill_start(&rig, false);
    rig_file_usual(&rig, &file, 0, 0, 4);
    for (uint32_t i = 0; i < file.write.npages; i++) {
        byte = (uint8_t *)mem_page(rig.mem, 0, i % 2, file.page[i].group, file.page[i].index) +
               997 * i;
        *byte ^= 1;
        assert_int_equal(rig_spill_write(&rig, &file), TERN_CORRUPT);
        assert_int_equal(rig_spill_files(&rig, 0), 0);
        *byte ^= 1;
    }
    mem_sums(rig.mem, file.page[3].record)[2] = CHECKSUM_NONE;
    assert_int_equal(rig_spill_write(&rig, &file), TERN_CORRUPT);
    assert_int_equal(rig_spill_files(&rig, 0), 0);
    assert_int_equal(rig_spill_stats(&rig).corrupt, file.write.npages + 1);
    assert_false(rig_spill_stats(&rig).failing || rig_spill_stats(&rig).full);
}

/* Fault 40: a touch of lost memory costs the page, and not the daemon. */
TEST(memory_that_is_gone_ends_a_write_and_costs_a_read_its_page)
{
    uintptr_t at;
    struct lost lost;

    rig_spill_start(&rig, false);
    rig_file_usual(&rig, &file, 0, 0, 4);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    at = (uintptr_t)mem_page(rig.mem, 1, 1, 0, file.page[1].index) + 8192;
    lost_open(&lost, (void *)(at & ~4095ull), 4096);
    lost_cut(&lost);
    assert_int_equal(rig_spill_read(&rig, &file, 0, file.write.npages),
                     RIG_SPILL_ALL(file.write.npages) & ~2ull);
    lost_close(&lost);
    at = (uintptr_t)mem_page(rig.mem, 0, 1, 0, file.page[1].index) + 8192;
    lost_open(&lost, (void *)(at & ~4095ull), 4096);
    lost_cut(&lost);
    file.write.file = 5;
    for (uint32_t i = 0; i < file.write.nextents; i++)
        file.extent[i].place.file = 5;
    assert_int_equal(rig_spill_write(&rig, &file), TERN_CORRUPT);
    assert_int_equal(rig_spill_files(&rig, 0), 1);
    lost_close(&lost);
}

/* Flips bytes in an extent, by page or in the extent as a whole. */
static void flips(bool whole_extent)
{
    const uint32_t n = file.write.npages;

    for (uint32_t i = 0; i < n; i++) {
        const struct disk_page *p = &file.place[i];
        uint32_t first = i < 6 ? 0 : i < 14 ? 6 : 14, pages = i < 6 ? 6 : i < 14 ? 8 : 2;
        uint64_t at = p->extent.place.offset + DISK_BLOCK + p->body_at + 4099 * (i % 4);
        uint64_t wrong = whole_extent ? RIG_SPILL_ALL(pages) << first : 1ull << i;

        rig_spill_flip(&rig, &file, at);
        assert_int_equal(rig_spill_read(&rig, &file, 0, n), RIG_SPILL_ALL(n) & ~wrong);
        rig_spill_flip(&rig, &file, at);
    }
    assert_int_equal(rig_spill_read(&rig, &file, 0, n), RIG_SPILL_ALL(n));
}

TEST(a_byte_that_rots_costs_the_pages_that_it_may_be_of)
{
    uint64_t second;

    rig_spill_start(&rig, false);
    rig_file_usual(&rig, &file, 0, 0, 4);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    flips(false);
    second = file.extent[1].place.offset;
    rig_spill_flip(&rig, &file, second + 40); /* its header */
    assert_int_equal(rig_spill_read(&rig, &file, 0, 16),
                     RIG_SPILL_ALL(16) & ~(RIG_SPILL_ALL(8) << 6));
    rig_spill_flip(&rig, &file, second + 40);
    rig_spill_flip(&rig, &file, second + DISK_BLOCK + 2); /* its tokens */
    assert_int_equal(rig_spill_read(&rig, &file, 0, 16),
                     RIG_SPILL_ALL(16) & ~(RIG_SPILL_ALL(8) << 6));
    rig_spill_flip(&rig, &file, second + DISK_BLOCK + 2);
    rig_spill_flip(&rig, &file,
                   second + DISK_BLOCK + file.place[9].body_at - 1); /* of a neighbouring page */
    assert_int_equal(rig_spill_read(&rig, &file, 0, 16), RIG_SPILL_ALL(16) & ~(1ull << 8));
    assert_false(rig_spill_stats(&rig).failing);
}

TEST(a_byte_that_rots_in_what_is_encrypted_costs_the_extent)
{
    rig_spill_start(&rig, true);
    rig_file_usual(&rig, &file, 0, 0, 4);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    flips(true);
    for (uint32_t i = 0; i < 16; i++) { /* all pages, not only those asked for */
        rig_spill_flip(&rig, &file,
                       file.place[13].extent.place.offset + DISK_BLOCK + file.place[13].body_at);
        assert_int_equal(rig_spill_read(&rig, &file, i, 1), i >= 6 && i < 14 ? 0 : 1);
        rig_spill_flip(&rig, &file,
                       file.place[13].extent.place.offset + DISK_BLOCK + file.place[13].body_at);
    }
}

/* The extent at that place is whole, but it is not the one that was looked for. */
TEST(an_extent_that_is_another_one_is_not_believed)
{
    uint8_t *bytes;
    uint64_t n;
    char path[RIG_SPILL_PATH];
    int fd;

    rig_spill_start(&rig, false);
    rig_file_usual(&rig, &file, 0, 0, 4);
    rig_file_usual(&rig, &other, 0, 0, 5);
    other.extent[1].chain++;
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    assert_int_equal(rig_spill_write(&rig, &other), TERN_OK);
    file.place[3].extent.chain++;
    assert_int_equal(rig_spill_read(&rig, &file, 3, 1), 0);
    file.place[3].extent.chain--;
    assert_int_equal(rig_spill_read(&rig, &file, 3, 1), 1);
    assert_int_equal(rig_spill_read(&rig, &other, 0, 16),
                     RIG_SPILL_ALL(16) & ~(RIG_SPILL_ALL(8) << 6));
    bytes = rig_spill_contents(&rig, &other, &n); /* a misdirected write */
    rig_spill_path(&rig, &file, false, path, sizeof path);
    fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, bytes, (size_t)n, 0), (ssize_t)n);
    close(fd);
    free(bytes);
    assert_int_equal(rig_spill_read(&rig, &file, 0, 16), 0);
    file.place[2].body_at = disk_body_bytes(&file.place[2].extent) - 1000;
    assert_int_equal(rig_spill_read(&rig, &file, 2, 1), 0);
}

TEST(a_file_that_is_cut_or_gone)
{
    char path[RIG_SPILL_PATH];

    rig_spill_start(&rig, false);
    rig_file_usual(&rig, &file, 0, 0, 4);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    rig_spill_path(&rig, &file, false, path, sizeof path);
    assert_int_equal(truncate(path, (off_t)file.extent[2].place.offset + 100), 0);
    assert_int_equal(rig_spill_read(&rig, &file, 14, 2), 0);
    assert_int_equal(rig_spill_read(&rig, &file, 0, 2), 3);
    assert_int_equal(unlink(path), 0);
    rig_spill_ask(&rig, &file, (struct pull_id){2, 1}, 0, 0, 16);
    rig_spill_events(&rig, 2);
    assert_int_equal(rig.got[0].kind, EV_DISK_DROPPED);
    assert_int_equal(rig.got[1].pulled.ok[0], 0);
    assert_false(rig_spill_stats(&rig).failing); /* not the disk's fault */
}
