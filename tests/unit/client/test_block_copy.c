/* Values that are copied to pages and back: pieces of any length, any number of threads, the
 * checksum of the page, and pages that are not a put of that name. */
#include <stdlib.h>
#include <string.h>

#include "client/libtern/block_copy.h"
#include "seam/mem/checksum.h"
#include "testing/test.h"

#define COPIES 5
#define PIECES 7

struct bench {
    uint64_t bytes;
    struct copier *copier;
    struct block_copy copy[COPIES];
    uint8_t *value[COPIES], *page[COPIES];
    struct iovec iov[COPIES][PIECES];
};

/* Cut at odd places; some pieces are empty. */
static void cut(struct bench *b, uint32_t i, uint32_t pieces)
{
    uint64_t from = 0;

    for (uint32_t k = 0; k < pieces; k++) {
        uint64_t to = k + 1 == pieces ? b->bytes : b->bytes * k / pieces + k % 2;

        to = to < from ? from : to > b->bytes ? b->bytes : to;
        b->iov[i][k] = (struct iovec){b->value[i] + from, to - from};
        from = to;
    }
    b->copy[i].iov = b->iov[i];
    b->copy[i].niov = pieces;
}

static struct bench bench_of(uint32_t threads, uint64_t bytes)
{
    struct bench b = {.bytes = bytes};

    assert_int_equal(copier_create(threads, bytes, NULL, &b.copier), TERN_OK);
    for (uint32_t i = 0; i < COPIES; i++) {
        b.value[i] = malloc(bytes);
        b.page[i] = calloc(1, block_page_bytes(bytes));
        for (uint64_t k = 0; k < bytes; k++)
            b.value[i][k] = (uint8_t)(k * (i + 3) + k / 251);
        b.copy[i] = (struct block_copy){
            .name = {.ns = {1, 2}, .key = {i, 0, 0, 9}, .key_bytes = 32}, .page = b.page[i]};
    }
    return b;
}

static void bench_end(struct bench *b)
{
    copier_destroy(b->copier, false);
    for (uint32_t i = 0; i < COPIES; i++) {
        free(b->value[i]);
        free(b->page[i]);
    }
}

static void run(struct bench *b, uint32_t pieces, enum copy_way way)
{
    for (uint32_t i = 0; i < COPIES; i++)
        cut(b, i, pieces);
    assert_true(copier_run(b->copier, b->copy, COPIES, way));
}

TEST(blocks_come_back_as_they_were_put_in_whatever_pieces)
{
    static const uint64_t sizes[] = {8, 13, 4032, 4096, 4097, 8190, 20004, 262144, 524288, 600001};

    for (uint32_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
        for (uint32_t threads = 1; threads <= 3; threads++)
            for (uint32_t pieces = 1; pieces <= PIECES; pieces += 3) {
                struct bench b = bench_of(threads, sizes[k]);

                run(&b, pieces, COPY_TO_PAGES);
                for (uint32_t i = 0; i < COPIES; i++) {
                    assert_memory_equal(b.page[i], b.value[i], sizes[k]);
                    assert_int_equal(b.copy[i].sum,
                                     checksum_unit(b.page[i], block_page_bytes(sizes[k])));
                    memset(b.value[i], 0x55, sizes[k]);
                }
                run(&b, 1 + PIECES - pieces, COPY_FROM_PAGES);
                for (uint32_t i = 0; i < COPIES; i++) {
                    assert_true(b.copy[i].ok);
                    assert_memory_equal(b.page[i], b.value[i], sizes[k]);
                }
                bench_end(&b);
            }
}

/* One wrong bit in the value, the trailer, the requested name, or its length. */
TEST(blocks_of_other_bytes_or_another_name_are_no_hits)
{
    struct bench b = bench_of(2, 20004);

    run(&b, 1, COPY_TO_PAGES);
    b.page[0][9999] ^= 0x10;
    b.page[1][block_trailer_at(20004)] ^= 1;
    b.copy[2].name.key_bytes = 31;
    b.copy[3].name.ns[1] = 3;
    run(&b, 3, COPY_FROM_PAGES);
    for (uint32_t i = 0; i < 4; i++)
        assert_false(b.copy[i].ok);
    assert_true(b.copy[4].ok);
    memset(b.page[4], 0, block_page_bytes(20004)); /* like a page that was never written */
    run(&b, 1, COPY_FROM_PAGES);
    assert_false(b.copy[4].ok);
    bench_end(&b);
}

TEST(blocks_of_a_run_are_as_many_as_fit_64_mib)
{
    struct copier *c;

    assert_int_equal(copier_create(1, TERN_BLOCK_VALUE_MAX, NULL, &c), TERN_OK);
    assert_int_equal(copier_most(c), 1);
    copier_destroy(c, false);
    assert_int_equal(copier_create(1, 1 << 20, NULL, &c), TERN_OK);
    assert_int_equal(copier_most(c), 64);
    copier_destroy(c, false);
    assert_int_equal(copier_create(1, 8, NULL, &c), TERN_OK);
    assert_int_equal(copier_most(c), TERN_BLOCKS_LIST_MAX);
    copier_destroy(c, false);
    copier_destroy(NULL, false);
}
