/* Bodies that are larger than one read: each byte of them is checked, wherever units, pieces and
 * blocks end. */
#include "testing/test.h"
#include "unit/rig/sim_disk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/prng.h"
#include "seam/disk/disk.h"
#include "seam/disk/disk_body.h"

#define NAME  "chat/0000000000000001.tern"
#define TRIES 120

struct big {
    struct disk_head head;
    uint8_t block[DISK_BLOCK];
    uint8_t *bytes; /* owned: of the extent's file */
    struct sim_disk *disk;
    struct disk_body body;
};

static struct big b;

static void add_run(uint32_t pages, uint32_t units, uint32_t regions, uint64_t page_bytes)
{
    struct disk_extent *e = &b.head.extent;

    b.head.run[b.head.nruns++] = (struct disk_run){
        .pages = pages, .units = units, .regions = regions, .page_bytes = page_bytes};
    e->groups = (1u << b.head.nruns) - 1;
    e->npages += pages;
    e->nsums += pages * units * regions;
    e->page_bytes += pages * regions * page_bytes;
}

static void fill(uint8_t *body)
{
    uint64_t *sum = (uint64_t *)(void *)(body + disk_list_bytes(&b.head.extent));
    uint8_t *at = body + disk_meta_bytes(&b.head.extent);
    struct prng p;

    prng_init(&p, 3);
    for (uint8_t *v = at; v + 8 <= at + b.head.extent.page_bytes; v += 8) {
        uint64_t x = prng_u64(&p);

        memcpy(v, &x, sizeof x);
    }
    for (uint32_t i = 0; i < b.head.nruns; i++)
        for (uint32_t n = b.head.run[i].pages * b.head.run[i].regions; n > 0; n--) {
            const struct disk_run *r = &b.head.run[i];

            for (uint32_t u = 0; u < r->units; u++) {
                uint64_t from, to = checksum_unit_span(r->page_bytes, r->units, u, &from);

                *sum++ = checksum_unit(at + from, to - from);
            }
            at += r->page_bytes;
        }
    b.head.seal.meta_sum = checksum_unit(body, disk_meta_bytes(&b.head.extent));
    b.head.seal.list_sum = checksum_unit(body, disk_list_bytes(&b.head.extent));
}

static void seal(uint8_t *body, struct disk_crypt *crypt)
{
    struct disk_seal *s = &b.head.seal;

    if (crypt)
        assert_true(disk_crypt_fresh(crypt, &s->key_id, s->nonce));
    disk_put_extent(b.block, &b.head, "chat");
    if (!crypt)
        return;
    disk_crypt_begin(crypt, DISK_KEY_BODIES, DISK_SEAL, s->nonce, b.block, DISK_ASSOCIATED);
    disk_crypt_update(crypt, body, disk_body_bytes(&b.head.extent));
    assert_true(disk_seal_end(crypt, s->tag));
    disk_put_extent(b.block, &b.head, "chat");
}

/* Units of 1 byte, of blocks and a byte, of more than a piece; sums that fill more than a piece. */
static void make(struct disk_crypt *crypt)
{
    struct disk_extent *e = &b.head.extent;
    uint8_t *file;
    size_t n;

    memset(&b, 0, sizeof b);
    *e = (struct disk_extent){.align = 64, .tokens = 64, .depth = 64, .place = {1, DISK_BLOCK}};
    add_run(150, 1000, 1, 1000);
    add_run(3, 2, 2, 2500001);
    add_run(40, 7, 1, 7 * 4097);
    add_run(5, 1, 1, 4096);
    n = DISK_BLOCK + disk_extent_bytes(e);
    file = aligned_alloc(DISK_BLOCK, n);
    assert_non_null(file);
    memset(file, 0, n);
    fill(file + 2 * DISK_BLOCK);
    seal(file + 2 * DISK_BLOCK, crypt);
    memcpy(file + DISK_BLOCK, b.block, DISK_BLOCK);
    b.disk = sim_disk_make(NULL);
    sim_disk_put(b.disk, NAME, file, n);
    free(file);
    b.bytes = sim_disk_bytes(b.disk, NAME, &n);
    b.body.files = sim_disk_files(b.disk);
    b.body.crypt = crypt;
    assert_int_equal(b.body.files->open(b.body.files->ctx, NAME, &b.body.file, &n), 0);
    assert_true(disk_meta_bytes(e) > DISK_PIECE_BYTES);
    assert_true(disk_body_bytes(e) > 3ull * DISK_BODY_DEPTH * DISK_PIECE_BYTES);
}

static void unmake(void)
{
    b.body.files->close(b.body.files->ctx, b.body.file);
    disk_body_free(&b.body);
    sim_disk_free(b.disk);
}

static enum disk_fault check_body(void)
{
    return disk_body_check(&b.body, &b.head, b.block);
}

static void rot(void)
{
    uint64_t n = disk_body_bytes(&b.head.extent), at;
    uint32_t told = 0;
    struct prng p;

    assert_int_equal(check_body(), DISK_FAULT_NONE);
    prng_init(&p, 8);
    for (uint32_t i = 0; i < TRIES; i++) {
        at = i == 0 ? 0 : i == 1 ? n - 1 : prng_u64(&p) % n;
        b.bytes[2 * DISK_BLOCK + at] ^= 0x20;
        told += check_body() == DISK_FAULT_CHECKSUM;
        b.bytes[2 * DISK_BLOCK + at] ^= 0x20;
    }
    assert_int_equal(check_body(), DISK_FAULT_NONE);
    printf("rot=%d told=%u\n", TRIES, told);
    assert_int_equal(told, TRIES);
}

TEST(rot_is_told_in_a_body_of_many_pieces)
{
    make(NULL);
    rot();
    unmake();
}

TEST(rot_is_told_in_an_encrypted_body_of_many_pieces)
{
    static const uint8_t key[DISK_KEY_BYTES] = {5};
    struct disk_crypt *crypt;
    const char *why;

    assert_int_equal(disk_crypt_create(key, &crypt, &why), TERN_OK);
    make(crypt);
    rot();
    b.body.crypt = NULL;
    assert_int_equal(check_body(), DISK_FAULT_KEY);
    unmake();
    disk_crypt_destroy(crypt);
}

/* No read stays in flight, so the next body can be read. */
TEST(a_body_that_cannot_be_read_is_told)
{
    uint32_t failed = 0;

    make(NULL);
    for (uint32_t i = 0; i < 30; i++) {
        struct sim_disk_faults faults = {.seed = i, .read_eio = 8}, none = {.seed = 0};
        enum disk_fault fault;

        sim_disk_set_faults(b.disk, &faults);
        fault = check_body();
        assert_true(fault == DISK_FAULT_READ || fault == DISK_FAULT_NONE);
        failed += fault == DISK_FAULT_READ;
        sim_disk_set_faults(b.disk, &none);
        assert_int_equal(check_body(), DISK_FAULT_NONE);
    }
    assert_true(failed > 5);
    unmake();
}

/* CHECKSUM_NONE is no checksum: a page that could not be sealed is bad. */
TEST(a_page_without_a_checksum_is_not_good)
{
    uint64_t *sums;

    make(NULL);
    sums = (uint64_t *)(void *)(b.bytes + 2 * DISK_BLOCK + disk_list_bytes(&b.head.extent));
    sums[77] = CHECKSUM_NONE;
    b.head.seal.meta_sum = checksum_unit(b.bytes + 2 * DISK_BLOCK, disk_meta_bytes(&b.head.extent));
    assert_int_equal(check_body(), DISK_FAULT_CHECKSUM);
    unmake();
}
