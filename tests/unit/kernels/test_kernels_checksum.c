/* The reference of the checksum kernels against libxxhash, and against the daemon's checksum of
 * each unit (X7). */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <stdlib.h>

#include "base/prng.h"
#include "kernels/reference.h"
#include "seam/mem/checksum.h"
#include "testing/test.h"

#define LENGTHS_MAX (4096 + 1024 + 65)
#define POOL_BYTES  (1 << 20)
#define ROUNDS      300

static uint8_t bytes[POOL_BYTES];

static void fill(struct prng *p)
{
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)prng_u64(p);
}

TEST(reference_xxh3_of_every_length_is_the_library_s)
{
    struct prng p;

    prng_init(&p, 1);
    fill(&p);
    for (size_t n = 0; n <= LENGTHS_MAX; n++) {
        const uint8_t *at = bytes + prng_below(&p, 64);

        if (reference_xxh3(at, n) != XXH3_64bits(at, n))
            fail_msg("of %zu bytes", n);
    }
    for (int round = 0; round < ROUNDS; round++) {
        size_t n = prng_below(&p, POOL_BYTES);

        assert_true(reference_xxh3(bytes, n) == XXH3_64bits(bytes, n));
    }
    assert_int_equal(KERNELS_BLOCK, CHECKSUM_BLOCK);
}

static void sums_compare(const struct kernels_checksum *a, const uint32_t *list,
                         const uint64_t *sums)
{
    for (uint32_t i = 0; i < a->n; i++)
        for (uint32_t k = 0; k < a->units; k++) {
            const uint8_t *page = bytes + list[i] * a->page_bytes;
            uint64_t from, end = checksum_unit_span(a->page_bytes, a->units, k, &from);

            if (sums[i * a->units + k] != checksum_unit(page + from, end - from))
                fail_msg("pages of %zu bytes, %u units: unit %u", (size_t)a->page_bytes, a->units,
                         k);
        }
}

TEST(reference_of_units_is_what_the_daemon_keeps)
{
    struct prng p;

    prng_init(&p, 2);
    fill(&p);
    for (int round = 0; round < ROUNDS; round++) {
        union kernels_args a = {
            .checksum = {.page_bytes = 1 + prng_below(&p, (POOL_BYTES / 2) >> prng_below(&p, 16))}};
        struct kernels_checksum *c = &a.checksum;
        uint32_t pages, list[3];
        struct kernels_launch l;

        c->units = 1 + prng_below(&p, (uint32_t)(c->page_bytes < 100 ? c->page_bytes : 100));
        if (round % 4 == 0)
            c->page_bytes = c->units * CHECKSUM_BLOCK + prng_below(&p, c->units);
        pages = (uint32_t)(POOL_BYTES / c->page_bytes);
        c->n = 3;
        for (uint32_t i = 0; i < c->n; i++)
            list[i] = prng_below(&p, pages);
        c->pool = (uint64_t)(uintptr_t)bytes;
        c->list = (uint64_t)(uintptr_t)list;
        c->blocks = (uint64_t)(uintptr_t)malloc(kernels_checksum_scratch(c));
        c->sums = (uint64_t)(uintptr_t)malloc(sizeof(uint64_t) * c->n * c->units);
        assert_int_equal(kernels_prepare(KERNELS_CHECKSUM_BLOCKS, &a, &l), KERNELS_REFUSED_NONE);
        reference_run(KERNELS_CHECKSUM_BLOCKS, &a);
        assert_int_equal(kernels_prepare(KERNELS_CHECKSUM_UNITS, &a, &l), KERNELS_REFUSED_NONE);
        reference_run(KERNELS_CHECKSUM_UNITS, &a);
        sums_compare(c, list, (const uint64_t *)(uintptr_t)c->sums);
        free((void *)(uintptr_t)c->blocks);
        free((void *)(uintptr_t)c->sums);
    }
}

TEST(units_that_make_no_sense_are_refused)
{
    static const struct {
        struct kernels_checksum a;
        enum kernels_refusal why;
    } rows[] = {
        {{.page_bytes = 7, .n = 1, .units = 7}, KERNELS_REFUSED_NONE},
        {{.page_bytes = 0, .n = 1, .units = 1}, KERNELS_REFUSED_PAGE_BYTES},
        {{.page_bytes = KERNELS_PAGE_BYTES_MAX + 1, .n = 1, .units = 1},
         KERNELS_REFUSED_PAGE_BYTES},
        {{.page_bytes = 7, .n = 1, .units = 0}, KERNELS_REFUSED_UNITS},
        {{.page_bytes = 7, .n = 1, .units = 8}, KERNELS_REFUSED_UNITS},
        {{.page_bytes = 1 << 20, .n = 1, .units = KERNELS_UNITS_MAX + 1}, KERNELS_REFUSED_UNITS},
        {{.page_bytes = 7, .n = 1, .units = 1, .list = 2}, KERNELS_REFUSED_ALIGNED},
        {{.page_bytes = 7, .n = 1, .units = 1, .blocks = 4}, KERNELS_REFUSED_ALIGNED},
        {{.page_bytes = 7, .n = 1, .units = 1, .sums = 4}, KERNELS_REFUSED_ALIGNED},
        {{.page_bytes = 7, .n = 1, .units = 1, .places = 2}, KERNELS_REFUSED_ALIGNED},
        {{.page_bytes = 7, .n = 1, .units = 1, .place_bytes = 4}, KERNELS_REFUSED_ALIGNED},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        union kernels_args a = {.checksum = rows[i].a};
        struct kernels_launch l;

        assert_int_equal(kernels_prepare(KERNELS_CHECKSUM_BLOCKS, &a, &l), rows[i].why);
        assert_int_equal(kernels_prepare(KERNELS_CHECKSUM_UNITS, &a, &l), rows[i].why);
        if (rows[i].why == KERNELS_REFUSED_UNITS)
            assert_int_equal(kernels_checksum_scratch(&a.checksum), 0);
    }
}
