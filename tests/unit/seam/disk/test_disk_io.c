/* The disk tier on a real directory, with O_DIRECT where that has it: what was written comes back,
 * and what is wrong does not; what a write leaves after any error; stops, drops, the lock. */
#include "testing/test.h"
#include "unit/rig/rig_lost.h"
#include "unit/rig/rig_spill_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "seam/disk/disk_footer.h"
#include "seam/disk/file_ops.h"
#include "seam/mem/checksum.h"

#define PATH_CAP 160
#define ALL(n)   ((1ull << (n)) - 1)
#define TMPFS    0x01021994

static struct rig_spill rig;
static struct rig_file file, other;

static void open_rig(void)
{
    rig_spill_init(&rig, NULL);
    rig_spill_fill(&rig, 0, 1);
    rig_spill_fill(&rig, 2, 2);
    assert_int_equal(rig_spill_open(&rig), TERN_OK);
}

static void open_encrypted(void)
{
    if (!disk_crypt_built())
        skip();
    open_rig();
    rig_spill_close(&rig);
    rig.config.encrypt = true;
    assert_int_equal(rig_spill_open(&rig), TERN_OK);
}

FIXTURE(drop_rig)
{
    rig_spill_finish(&rig);
    return 0;
}

TEST_EACH(NULL, drop_rig);

static void reopen(void)
{
    rig_spill_close(&rig);
    assert_int_equal(rig_spill_open(&rig), TERN_OK);
}

/* Pages of the file that agree with what was written, of as many as 64. */
static uint64_t same_pages(const struct rig_file *f)
{
    uint64_t same = 0;

    for (uint32_t i = 0; i < f->write.npages; i++) {
        struct page_at to = f->page[i];

        to.record += RIG_SPILL_GROUPS * RIG_SPILL_PAGES;
        if (rig_spill_same(&rig, f->write.pool, &f->page[i], f->write.pool + 1, &to))
            same |= 1ull << i;
    }
    return same;
}

static struct disk_stats stats(void)
{
    struct disk_stats s;

    disk_stats(rig.disk, &s);
    return s;
}

static void flip(const struct rig_file *f, uint64_t at)
{
    char path[PATH_CAP];
    uint8_t byte;
    int fd;

    rig_spill_path(&rig, f, false, path, sizeof path);
    fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
    assert_int_equal(fsync(fd), 0);
    close(fd);
}

/* The whole file, to be freed. */
static uint8_t *contents(const struct rig_file *f, uint64_t *ret_bytes)
{
    char path[PATH_CAP];
    struct stat st;
    uint8_t *bytes;
    int fd;

    rig_spill_path(&rig, f, false, path, sizeof path);
    fd = open(path, O_RDONLY);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    bytes = malloc((size_t)st.st_size);
    assert_non_null(bytes);
    assert_int_equal(pread(fd, bytes, (size_t)st.st_size, 0), st.st_size);
    close(fd);
    *ret_bytes = (uint64_t)st.st_size;
    return bytes;
}

static bool holds(const uint8_t *bytes, uint64_t n, const void *what, size_t length)
{
    return memmem(bytes, n, what, length) != NULL;
}

/* ------------------------------------------------------------------ there and back */

static void there_and_back(uint32_t tenant, uint32_t pool)
{
    rig_file_usual(&rig, &file, tenant, pool, 4);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    rig_spill_clear(&rig, pool + 1);
    assert_int_equal(same_pages(&file), 0);
    assert_int_equal(rig_spill_read(&rig, &file, 0, file.write.npages), ALL(file.write.npages));
    assert_int_equal(same_pages(&file), ALL(file.write.npages));
    assert_int_equal(rig_spill_files(&rig, tenant), 1);
    assert_true(disk_idle(rig.disk));
}

TEST(what_is_written_comes_back_byte_for_byte)
{
    open_rig();
    there_and_back(0, 0);
    there_and_back(1, 2); /* one region travels, and the other gets its bytes */
    assert_int_equal(stats().files_written, 2);
    assert_int_equal(stats().corrupt, 0);
    assert_false(stats().full || stats().failing);
    reopen(); /* another daemon reads it */
    rig_spill_clear(&rig, 3);
    assert_int_equal(rig_spill_read(&rig, &file, 0, file.write.npages), ALL(file.write.npages));
    assert_int_equal(same_pages(&file), ALL(file.write.npages));
}

TEST(what_is_encrypted_comes_back_and_is_not_to_be_read)
{
    uint8_t nonce[RIG_SPILL_EXTENTS][DISK_NONCE_BYTES];
    uint64_t n;
    uint8_t *bytes;

    open_encrypted();
    there_and_back(1, 2);
    there_and_back(0, 0);
    bytes = contents(&file, &n);
    assert_false(holds(bytes, n, file.token, 32));
    assert_false(holds(bytes, n, mem_page(rig.mem, 0, 0, 0, file.page[0].index), 16));
    assert_false(holds(bytes, n, mem_sums(rig.mem, file.page[0].record), 8));
    for (uint32_t i = 0; i < file.write.nextents; i++) { /* no two bodies have the same nonce */
        struct disk_place at = file.extent[i].place;
        struct disk_head head;

        assert_int_equal(disk_get_extent(bytes + at.offset, at, n, "alpha", &head),
                         DISK_FAULT_NONE);
        for (uint32_t k = 0; k < i; k++)
            assert_memory_not_equal(nonce[k], head.seal.nonce, DISK_NONCE_BYTES);
        memcpy(nonce[i], head.seal.nonce, DISK_NONCE_BYTES);
    }
    free(bytes);
    rig_spill_close(&rig);
    rig.config.encrypt = false;
    assert_int_equal(rig_spill_open(&rig), TERN_OK);
    assert_int_equal(rig_spill_write(&rig, (rig_file_usual(&rig, &other, 0, 0, 9), &other)),
                     TERN_OK);
    bytes = contents(&other, &n); /* what is looked for can be found */
    assert_true(holds(bytes, n, other.token, 32));
    assert_true(holds(bytes, n, mem_page(rig.mem, 0, 0, 0, other.page[0].index), 16));
    assert_true(holds(bytes, n, mem_sums(rig.mem, other.page[0].record), 8));
    free(bytes);
}

/* Each chunk of the file says what the format says: read here by that alone. */
TEST(a_file_lies_as_the_format_says)
{
    uint64_t n, at = DISK_BLOCK;
    struct disk_file_header header;
    struct disk_trailer trailer;
    struct disk_footer_reader footer;
    struct disk_footer_entry entry;
    uint8_t *bytes;
    char path[PATH_CAP];
    struct stat st;

    open_rig();
    rig_file_usual(&rig, &file, 0, 0, 4);
    file.extent[3].served_ns = 123456789;
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    rig_spill_path(&rig, &file, false, path, sizeof path);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    *strrchr(path, '/') = '\0';
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    bytes = contents(&file, &n);
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

    open_rig();
    rig_file_usual(&rig, &file, 0, 0, 4);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    for (uint32_t first = 0; first < file.write.npages; first++) {
        for (uint32_t n = 1; first + n <= file.write.npages; n += 3) {
            rig_spill_clear(&rig, 1);
            assert_int_equal(rig_spill_read(&rig, &file, first, n), ALL(n));
            assert_int_equal(same_pages(&file), ALL(n) << first);
        }
    }
    bytes = stats().bytes_read;
    assert_int_equal(rig_spill_read(&rig, &file, 13, 1), 1); /* and not all of its extent */
    assert_true(stats().bytes_read - bytes < 128u << 10);
    for (uint32_t i = 0; i + 1 < file.write.npages; i += 2) { /* neighbours change places */
        struct page_at page = file.page[i];

        swap = file.place[i];
        file.place[i] = file.place[i + 1];
        file.place[i + 1] = swap;
        file.page[i] = file.page[i + 1];
        file.page[i + 1] = page;
    }
    rig_spill_clear(&rig, 1);
    assert_int_equal(rig_spill_read(&rig, &file, 0, file.write.npages), ALL(file.write.npages));
    assert_int_equal(same_pages(&file), ALL(file.write.npages));
}

TEST(files_are_written_and_read_side_by_side)
{
    static struct rig_file files[4];
    uint64_t seen = 0;

    open_rig();
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
    assert_int_equal(same_pages(&files[0]), ALL(16));
    assert_int_equal(same_pages(&files[1]), ALL(16));
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
    reopen();
    memset(&heard, 0, sizeof heard);
    assert_int_equal(disk_recover(rig.disk, hear, note, NULL, &r, &why), TERN_OK);
    assert_int_equal(heard.found, 4);
    assert_int_equal(heard.ready, 1);
    assert_int_equal(heard.next_file, 5);
    assert_int_equal(heard.noted, 0);
    assert_int_equal(r.extents, 4);
    assert_int_equal(rig_spill_read(&rig, &file, 0, 16), ALL(16)); /* the lane is as it was */
    assert_int_equal(disk_verify(&rig.config, verify, NULL, &why), TERN_OK); /* beside it */
    assert_int_equal(heard.verified, 4);
    assert_int_equal(heard.wrong, 0);
    flip(&file, file.place[9].extent.place.offset + DISK_BLOCK + file.place[9].body_at);
    assert_int_equal(disk_verify(&rig.config, verify, NULL, &why), TERN_OK);
    assert_int_equal(heard.verified, 8);
    assert_int_equal(heard.wrong, 1);
}

TEST(a_start_finds_what_was_written_and_a_verification_agrees)
{
    open_rig();
    start_finds();
}

TEST(a_start_finds_what_was_encrypted_and_a_verification_agrees)
{
    open_encrypted();
    start_finds();
}

/* ------------------------------------------------------------------ what is wrong */

TEST(a_page_that_changed_before_the_write_ends_it)
{
    uint8_t *byte;

    open_rig();
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
    assert_int_equal(stats().corrupt, file.write.npages + 1);
    assert_false(stats().failing || stats().full);
}

/* Fault 40: a touch of memory that is gone costs the page, and not the daemon. */
TEST(memory_that_is_gone_ends_a_write_and_costs_a_read_its_page)
{
    uintptr_t at;
    struct lost lost;

    open_rig();
    rig_file_usual(&rig, &file, 0, 0, 4);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    at = (uintptr_t)mem_page(rig.mem, 1, 1, 0, file.page[1].index) + 8192;
    lost_open(&lost, (void *)(at & ~4095ull), 4096);
    lost_cut(&lost);
    assert_int_equal(rig_spill_read(&rig, &file, 0, file.write.npages),
                     ALL(file.write.npages) & ~2ull);
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

/* Of the extent that a byte is flipped in, by page or as a whole. */
static void flips(bool whole_extent)
{
    const uint32_t n = file.write.npages;

    for (uint32_t i = 0; i < n; i++) {
        const struct disk_page *p = &file.place[i];
        uint32_t first = i < 6 ? 0 : i < 14 ? 6 : 14, pages = i < 6 ? 6 : i < 14 ? 8 : 2;
        uint64_t at = p->extent.place.offset + DISK_BLOCK + p->body_at + 4099 * (i % 4);
        uint64_t wrong = whole_extent ? ALL(pages) << first : 1ull << i;

        flip(&file, at);
        assert_int_equal(rig_spill_read(&rig, &file, 0, n), ALL(n) & ~wrong);
        flip(&file, at);
    }
    assert_int_equal(rig_spill_read(&rig, &file, 0, n), ALL(n));
}

TEST(a_byte_that_rots_costs_the_pages_that_it_may_be_of)
{
    uint64_t second;

    open_rig();
    rig_file_usual(&rig, &file, 0, 0, 4);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    flips(false);
    second = file.extent[1].place.offset;
    flip(&file, second + 40); /* its header */
    assert_int_equal(rig_spill_read(&rig, &file, 0, 16), ALL(16) & ~(ALL(8) << 6));
    flip(&file, second + 40);
    flip(&file, second + DISK_BLOCK + 2); /* its tokens */
    assert_int_equal(rig_spill_read(&rig, &file, 0, 16), ALL(16) & ~(ALL(8) << 6));
    flip(&file, second + DISK_BLOCK + 2);
    flip(&file, second + DISK_BLOCK + file.place[9].body_at - 1); /* of a page's neighbour */
    assert_int_equal(rig_spill_read(&rig, &file, 0, 16), ALL(16) & ~(1ull << 8));
    assert_false(stats().failing);
}

TEST(a_byte_that_rots_in_what_is_encrypted_costs_the_extent)
{
    open_encrypted();
    rig_file_usual(&rig, &file, 0, 0, 4);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    flips(true);
    for (uint32_t i = 0; i < 16; i++) { /* and not the pages asked for alone */
        flip(&file, file.place[13].extent.place.offset + DISK_BLOCK + file.place[13].body_at);
        assert_int_equal(rig_spill_read(&rig, &file, i, 1), i >= 6 && i < 14 ? 0 : 1);
        flip(&file, file.place[13].extent.place.offset + DISK_BLOCK + file.place[13].body_at);
    }
}

/* What stands there is whole, but it is not what was looked for. */
TEST(an_extent_that_is_another_one_is_not_believed)
{
    uint8_t *bytes;
    uint64_t n;
    char path[PATH_CAP];
    int fd;

    open_rig();
    rig_file_usual(&rig, &file, 0, 0, 4);
    rig_file_usual(&rig, &other, 0, 0, 5);
    other.extent[1].chain++;
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    assert_int_equal(rig_spill_write(&rig, &other), TERN_OK);
    file.place[3].extent.chain++;
    assert_int_equal(rig_spill_read(&rig, &file, 3, 1), 0);
    file.place[3].extent.chain--;
    assert_int_equal(rig_spill_read(&rig, &file, 3, 1), 1);
    assert_int_equal(rig_spill_read(&rig, &other, 0, 16), ALL(16) & ~(ALL(8) << 6));
    bytes = contents(&other, &n); /* a misdirected write */
    rig_spill_path(&rig, &file, false, path, sizeof path);
    fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, bytes, (size_t)n, 0), (ssize_t)n);
    close(fd);
    free(bytes);
    assert_int_equal(rig_spill_read(&rig, &file, 0, 16), 0);
    file.place[2].body_at = disk_body_bytes(&file.place[2].extent) - 1000;
    assert_int_equal(rig_spill_read(&rig, &file, 2, 1), 0);
}

TEST(another_key_reads_nothing)
{
    open_encrypted();
    rig_file_usual(&rig, &file, 0, 0, 4);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    rig.config.key[31] ^= 1;
    reopen();
    assert_int_equal(rig_spill_read(&rig, &file, 0, 16), 0);
    rig.config.encrypt = false;
    reopen();
    assert_int_equal(rig_spill_read(&rig, &file, 0, 16), 0);
    rig_file_usual(&rig, &other, 0, 0, 5);
    assert_int_equal(rig_spill_write(&rig, &other), TERN_OK);
    assert_int_equal(rig_spill_read(&rig, &other, 0, 16), ALL(16));
    rig.config.key[31] ^= 1;
    rig.config.encrypt = true;
    reopen();
    assert_int_equal(rig_spill_read(&rig, &other, 0, 16), 0);
    assert_int_equal(rig_spill_read(&rig, &file, 0, 16), ALL(16));
}

TEST(a_file_that_is_cut_or_gone)
{
    char path[PATH_CAP];

    open_rig();
    rig_file_usual(&rig, &file, 0, 0, 4);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    rig_spill_path(&rig, &file, false, path, sizeof path);
    assert_int_equal(truncate(path, (off_t)file.extent[2].place.offset + 100), 0);
    assert_int_equal(rig_spill_read(&rig, &file, 14, 2), 0);
    assert_int_equal(rig_spill_read(&rig, &file, 0, 2), 3);
    assert_int_equal(unlink(path), 0);
    rig_spill_ask(&rig, &file, (struct pull_id){2, 1}, 0, 0, 16);
    rig_spill_events(&rig, 1);
    assert_int_equal(rig.got[0].kind, EV_PULL_BROKEN);
    assert_int_equal(rig.got[0].broken.err, TERN_DISK);
    assert_false(stats().failing); /* it is not the disk's fault */
}

/* ------------------------------------------------------------------ errors of the disk */

TEST(a_full_disk_ends_writes_and_nothing_else)
{
    open_rig();
    rig_file_usual(&rig, &file, 0, 0, 4);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    rig_spill_close(&rig);
    rig.config.fault_full_after = 1;
    assert_int_equal(rig_spill_open(&rig), TERN_OK);
    rig_file_usual(&rig, &other, 0, 0, 5);
    assert_int_equal(rig_spill_write(&rig, &other), TERN_OK);
    assert_false(stats().full);
    rig_file_usual(&rig, &other, 0, 0, 6);
    assert_int_equal(rig_spill_write(&rig, &other), TERN_POOL_EXHAUSTED);
    assert_true(stats().full);
    assert_false(stats().failing);
    assert_int_equal(rig_spill_files(&rig, 0), 2);
    assert_int_equal(rig_spill_read(&rig, &file, 0, 16), ALL(16));
    rig_spill_close(&rig);
    rig.config.fault_full_after = 0;
    rig.config.headroom_bytes = 1ull << 60;
    assert_int_equal(rig_spill_open(&rig), TERN_OK);
    assert_int_equal(rig_spill_write(&rig, &other), TERN_POOL_EXHAUSTED);
    assert_true(stats().full && stats().free_bytes > 0);
    assert_int_equal(rig_spill_files(&rig, 0), 2);
}

TEST(a_write_that_fails_leaves_nothing)
{
    open_rig();
    rig_spill_close(&rig);
    rig.config.fault_write_every = 2;
    assert_int_equal(rig_spill_open(&rig), TERN_OK);
    for (uint32_t i = 1; i <= 4; i++) {
        rig_file_usual(&rig, &file, 0, 0, i);
        assert_int_equal(rig_spill_write(&rig, &file), i % 2 ? TERN_OK : TERN_DISK);
        assert_int_equal(stats().failing, i % 2 == 0);
        assert_int_equal(rig_spill_files(&rig, 0), (i + 1) / 2);
    }
    assert_int_equal(stats().write_errors, 2);
}

/* ---- the file system's calls, watched and failing ---- */

enum call { MAKE, WRITE_BODY, WRITE_HEADER, READ, SYNC, RENAME, SYNC_FOLDER, REMOVE, PUNCH, CALLS };

static struct {
    struct disk_files real, wrapped;
    enum call log[512];
    uint32_t n;
    enum call fail; /* CALLS: none */
    uint32_t fail_at, calls;
    int error;
    bool failed_piece;
    uint64_t failed_token;
    uint32_t reap_us;
    bool headers; /* bodies are durable */
} fs;

static bool fails(enum call call)
{
    assert_true(fs.n < sizeof fs.log / sizeof fs.log[0]);
    fs.log[fs.n++] = call;
    return call == fs.fail && fs.calls++ == fs.fail_at;
}

static int w_make(void *ctx, const char *name, int *ret)
{
    return fails(MAKE) ? fs.error : fs.real.make(fs.real.ctx, name, ret);
    (void)ctx;
}

static int w_submit(void *ctx, uint32_t lane, int at, bool write, const struct disk_piece *piece)
{
    const uint8_t *bytes = piece->memory;

    (void)ctx;
    if (write && !fs.headers) /* no header says anything yet */
        for (uint32_t i = 0; i < file.write.nextents; i++) {
            uint64_t header = file.extent[i].place.offset;

            if (header >= piece->offset && header < piece->offset + piece->bytes)
                for (uint32_t b = 0; b < DISK_BLOCK; b++)
                    assert_int_equal(bytes[header - piece->offset + b], 0);
        }
    if (fails(!write ? READ : fs.headers ? WRITE_HEADER : WRITE_BODY)) {
        fs.failed_piece = true;
        fs.failed_token = piece->token;
    }
    return fs.real.submit(fs.real.ctx, lane, at, write, piece);
}

static int w_reap(void *ctx, uint32_t lane, uint64_t *ret_token)
{
    int r = fs.real.reap(fs.real.ctx, lane, ret_token);

    (void)ctx;
    if (fs.reap_us)
        usleep(fs.reap_us);
    if (fs.failed_piece && *ret_token == fs.failed_token) {
        fs.failed_piece = false;
        return fs.error;
    }
    return r;
}

static int w_sync(void *ctx, int at)
{
    (void)ctx;
    fs.headers = true;
    return fails(SYNC) ? fs.error : fs.real.sync(fs.real.ctx, at);
}

static int w_rename(void *ctx, const char *from, const char *to)
{
    (void)ctx;
    return fails(RENAME) ? fs.error : fs.real.rename(fs.real.ctx, from, to);
}

static int w_sync_folder(void *ctx, const char *name)
{
    (void)ctx;
    return fails(SYNC_FOLDER) ? fs.error : fs.real.sync_folder(fs.real.ctx, name);
}

static int w_remove(void *ctx, const char *name)
{
    (void)ctx;
    return fails(REMOVE) ? fs.error : fs.real.remove(fs.real.ctx, name);
}

static int w_punch(void *ctx, int at, uint64_t offset, uint64_t bytes)
{
    (void)ctx;
    return fails(PUNCH) ? fs.error : fs.real.punch(fs.real.ctx, at, offset, bytes);
}

/* One thread, whose calls go through these; `ops` is the file system. */
static struct file_ops *watch(enum call fail, uint32_t at, int error)
{
    struct file_ops_config c = {.dir = rig.dir, .lanes = 1, .lock = true};
    struct file_ops *ops;
    const char *why;

    rig_spill_close(&rig);
    assert_int_equal(file_ops_create(&c, &ops, &why), TERN_OK);
    memset(&fs, 0, sizeof fs);
    fs.real = fs.wrapped = *file_ops_files(ops);
    fs.wrapped.make = w_make;
    fs.wrapped.submit = w_submit;
    fs.wrapped.reap = w_reap;
    fs.wrapped.sync = w_sync;
    fs.wrapped.rename = w_rename;
    fs.wrapped.sync_folder = w_sync_folder;
    fs.wrapped.remove = w_remove;
    fs.wrapped.punch = w_punch;
    fs.fail = fail;
    fs.fail_at = at;
    fs.error = error;
    rig.config.files = &fs.wrapped;
    rig.config.threads = 1;
    assert_int_equal(rig_spill_open(&rig), TERN_OK);
    return ops;
}

static void unwatch(struct file_ops *ops)
{
    rig_spill_close(&rig);
    file_ops_destroy(ops);
    rig.config.files = NULL;
}

/* D3. */
TEST(a_name_comes_behind_all_that_it_stands_for)
{
    static const enum call order[] = {MAKE, WRITE_BODY, SYNC,       WRITE_HEADER,
                                      SYNC, RENAME,     SYNC_FOLDER};
    struct file_ops *ops;
    uint32_t at = 0;

    open_rig();
    ops = watch(CALLS, 0, 0);
    rig_file_usual(&rig, &file, 0, 0, 4);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    for (uint32_t i = 0; i < fs.n; i++) {
        if (i > 0 && fs.log[i] == fs.log[i - 1])
            continue;
        assert_true(at < sizeof order / sizeof order[0]);
        assert_int_equal(fs.log[i], order[at++]);
    }
    assert_int_equal(at, sizeof order / sizeof order[0]);
    unwatch(ops);
}

/* Each call of a write in turn. */
TEST(whatever_fails_in_a_write_it_leaves_nothing_and_says_so)
{
    static const enum call calls[] = {MAKE, WRITE_BODY, WRITE_HEADER, SYNC, RENAME, SYNC_FOLDER};
    uint32_t failed = 0;

    open_rig();
    rig_file_usual(&rig, &file, 0, 0, 4);
    for (uint32_t i = 0; i < 2 * sizeof calls / sizeof calls[0]; i++) {
        enum call call = calls[i / 2];
        int error = i % 2 ? -EIO : -ENOSPC;

        for (uint32_t at = 0; at < 4; at++) {
            struct file_ops *ops = watch(call, at, error);
            enum tern_err err = rig_spill_write(&rig, &file);
            char path[PATH_CAP];

            if (err == TERN_OK) { /* there are fewer of them */
                assert_true(at > 0);
                rig_spill_path(&rig, &file, false, path, sizeof path);
                assert_int_equal(unlink(path), 0);
                unwatch(ops);
                break;
            }
            failed++;
            assert_int_equal(err, error == -EIO ? TERN_DISK : TERN_POOL_EXHAUSTED);
            assert_int_equal(stats().full, error == -ENOSPC);
            assert_int_equal(stats().failing, error == -EIO);
            assert_int_equal(rig_spill_files(&rig, 0), 0);
            assert_true(disk_idle(rig.disk));
            unwatch(ops);
        }
    }
    printf("a write was made to fail at %u places\n", failed);
    assert_true(failed >= 24);
}

TEST(a_read_that_fails_breaks_its_pull_once)
{
    struct file_ops *ops;
    struct pull_id pull = {0, 5};
    uint32_t asked;

    open_rig();
    rig_file_usual(&rig, &file, 0, 0, 4);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    ops = watch(READ, 2, -EIO);
    for (uint32_t i = 0; i < 8; i++)
        rig_spill_ask(&rig, &file, pull, i, 0, 16);
    rig_spill_events(&rig, 1);
    assert_int_equal(rig.got[0].kind, EV_PULL_BROKEN);
    assert_int_equal(rig.got[0].broken.err, TERN_DISK);
    assert_true(stats().failing);
    rig.ngot = 0;
    rig_spill_quiet_ms(&rig, 50);
    asked = fs.n;
    rig_spill_ask(&rig, &file, pull, 8, 0, 16);
    rig_spill_quiet_ms(&rig, 50);
    assert_int_equal(rig.ngot, 0);
    assert_int_equal(fs.n, asked);
    disk_read_stop(rig.disk, pull);
    rig_spill_events(&rig, 1);
    assert_int_equal(rig.got[0].kind, EV_PULL_QUIET);
    assert_int_equal(rig_spill_read(&rig, &file, 0, 16), ALL(16)); /* another one */
    assert_false(stats().failing);
    unwatch(ops);
}

/* ------------------------------------------------------------------ stops, drops, life */

/* What runs ends, what waits is taken out, and behind the proof nothing is told or written. */
TEST(a_stop_ends_in_quiet)
{
    struct file_ops *ops;

    open_rig();
    rig_file_usual(&rig, &file, 0, 0, 4);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    ops = watch(CALLS, 0, 0);
    fs.reap_us = 2000;
    for (uint32_t round = 0; round < 40; round++) {
        struct pull_id pull = {round % 3, 100 + round};
        uint32_t told = 0;

        fs.n = 0;
        rig_spill_clear(&rig, 1);
        for (uint32_t i = 0; i < 12; i++)
            rig_spill_ask(&rig, &file, pull, i, 0, 16);
        usleep(round * 700);
        disk_read_stop(rig.disk, pull);
        disk_read_stop(rig.disk, pull);
        rig_spill_events(&rig, 1);
        assert_int_equal(rig.got[0].kind, EV_PULL_QUIET);
        assert_true(pull_id_equal(rig.got[0].pull_quiet.pull, pull));
        rig_spill_clear(&rig, 1);
        rig.ngot = 0;
        rig_spill_quiet_ms(&rig, 5);
        assert_int_equal(rig.ngot, told);
        for (uint32_t i = 0; i < 16; i++) {
            const uint8_t *at = mem_page(rig.mem, 1, 0, file.page[i].group, file.page[i].index);

            for (uint32_t b = 0; b < 20000; b += 500)
                assert_int_equal(at[b], 0);
        }
    }
    disk_read_stop(rig.disk, (struct pull_id){3, 9}); /* one that was never asked for */
    rig_spill_events(&rig, 1);
    assert_int_equal(rig.got[0].kind, EV_PULL_QUIET);
    unwatch(ops);
}

/* The proof does not wait for all that was asked for. */
TEST(a_stop_ends_what_runs)
{
    struct file_ops *ops;

    open_rig();
    rig_file_usual(&rig, &file, 0, 0, 4);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    ops = watch(CALLS, 0, 0);
    fs.reap_us = 40000;
    rig_spill_ask(&rig, &file, (struct pull_id){0, 1}, 0, 0, 16); /* of 23 MB */
    usleep(20000);
    disk_read_stop(rig.disk, (struct pull_id){0, 1});
    rig_spill_events(&rig, 1);
    assert_int_equal(rig.got[0].kind, EV_PULL_QUIET);
    assert_true(fs.n <= rig.config.depth + 1);
    unwatch(ops);
}

TEST(other_pulls_go_on_beside_one_that_stops)
{
    uint32_t pulled = 0;

    open_rig();
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
    char path[PATH_CAP];
    struct stat st;

    rig_spill_path(&rig, f, false, path, sizeof path);
    assert_int_equal(stat(path, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

TEST(what_is_dropped_is_given_back)
{
    struct disk_drop drop;
    uint64_t before, bytes;

    open_rig();
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
    assert_int_equal(rig.ngot, 1); /* that of the write: an extent's end is not told */
    assert_true(disk_idle(rig.disk));
    assert_int_equal(stats().punched_bytes, bytes);
    assert_true(blocks_of(&file) <= before - bytes + 2 * DISK_BLOCK);
    assert_int_equal(rig_spill_read(&rig, &file, 0, 16), ALL(6));
    drop = (struct disk_drop){0, 0, {4, 0}};
    disk_drop(rig.disk, &drop);
    rig_spill_events(&rig, 1);
    assert_int_equal(rig.got[0].kind, EV_DISK_DROPPED);
    assert_int_equal(rig.got[0].dropped.file, 4);
    assert_int_equal(rig_spill_files(&rig, 0), 0);
    assert_int_equal(stats().dropped_files, 1);
    disk_drop(rig.disk, &drop); /* it is gone already */
    rig_spill_events(&rig, 1);
    assert_int_equal(rig.got[0].kind, EV_DISK_DROPPED);
}

/* A file that is dropped is durably so before that is told; one that cannot be is not told. */
TEST(a_drop_that_fails_is_not_told)
{
    struct disk_drop drop = {0, 0, {4, 0}};
    struct file_ops *ops;

    open_rig();
    rig_file_usual(&rig, &file, 0, 0, 4);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    ops = watch(SYNC_FOLDER, 0, -EIO);
    disk_drop(rig.disk, &drop);
    for (uint32_t i = 0; i < 5000 && !disk_idle(rig.disk); i++)
        rig_spill_quiet_ms(&rig, 1);
    assert_int_equal(rig.ngot, 0);
    assert_true(disk_idle(rig.disk) && stats().failing);
    assert_int_equal(fs.log[0], REMOVE);
    assert_int_equal(fs.log[1], SYNC_FOLDER);
    unwatch(ops);
}

/* Extents that wait together are given back with one sync behind them. */
TEST(a_hole_is_durable_before_the_disk_is_idle)
{
    struct disk_drop drop = {0, DISK_BLOCK, {4, 0}};
    struct file_ops *ops;

    open_rig();
    rig_file_usual(&rig, &file, 0, 0, 4);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    ops = watch(CALLS, 0, 0);
    fs.reap_us = 20000;
    rig_spill_ask(&rig, &file, (struct pull_id){0, 1}, 0, 0, 16); /* the thread has work */
    for (uint32_t i = 0; i < 3; i++) {
        drop.place.offset = file.extent[i].place.offset;
        disk_drop(rig.disk, &drop);
    }
    for (uint32_t i = 0; i < 5000 && !disk_idle(rig.disk); i++)
        rig_spill_quiet_ms(&rig, 1);
    assert_true(disk_idle(rig.disk) && fs.n >= 4);
    assert_int_equal(fs.log[fs.n - 1], SYNC);
    for (uint32_t i = 2; i <= 4; i++)
        assert_int_equal(fs.log[fs.n - i], PUNCH);
    unwatch(ops);
}

TEST(a_directory_has_one_daemon)
{
    struct rig_spill second;
    const char *why = NULL;
    struct disk *disk;

    open_rig();
    assert_int_equal(disk_create(&rig.config, &disk, &why), TERN_CONFLICT);
    assert_non_null(strstr(why, "another daemon"));
    reopen();
    second.config = rig.config;
    second.config.dir = "/nonexistent/tern";
    assert_int_equal(disk_create(&second.config, &disk, &why), TERN_DISK);
    second.config = rig.config;
    second.config.depth = DISK_LANE_PIECES + 1;
    assert_int_equal(disk_create(&second.config, &disk, &why), TERN_INVALID);
    second.config = rig.config;
    second.config.tenant[1] = "../beta";
    assert_int_equal(disk_create(&second.config, &disk, &why), TERN_INVALID);
}

TEST(a_file_system_without_o_direct_does_and_is_told_of)
{
    struct statfs st;

    if (statfs("/dev/shm", &st) < 0 || st.f_type != TMPFS)
        skip();
    rig_spill_init(&rig, "/dev/shm");
    rig_spill_fill(&rig, 0, 1);
    assert_int_equal(rig_spill_open(&rig), TERN_OK);
    assert_false(stats().direct);
    there_and_back(0, 0);
}

/* Files in work are finished, those that wait are not begun, and nothing hangs. */
TEST(a_disk_that_is_destroyed_leaves_whole_files)
{
    static struct rig_file files[4];

    open_rig();
    for (uint32_t i = 0; i < 4; i++) {
        rig_file_usual(&rig, &files[i], 0, 0, 20 + i);
        disk_write(rig.disk, &files[i].write);
    }
    usleep(2000);
    reopen();
    for (uint32_t i = 0; i < 4; i++) {
        char path[PATH_CAP];

        rig_spill_path(&rig, &files[i], true, path, sizeof path);
        assert_int_equal(access(path, F_OK), -1);
        rig_spill_path(&rig, &files[i], false, path, sizeof path);
        if (access(path, F_OK) == 0)
            assert_int_equal(rig_spill_read(&rig, &files[i], 0, 16), ALL(16));
    }
}

TEST(what_a_disk_takes_is_said_before)
{
    open_rig();
    assert_true(disk_bytes(&rig.config) >
                2ull * 3 * DISK_PIECE_BYTES + 2 * disk_footer_bytes_max());
    assert_true(disk_bytes(&rig.config) < 64u << 20);
}
