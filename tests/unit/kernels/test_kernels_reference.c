/* The references of kernels against loops over single bytes, and the arguments that are refused. */
#include <stdlib.h>
#include <string.h>

#include "base/prng.h"
#include "kernels/reference.h"
#include "testing/test.h"

#define ROUNDS      200
#define POOL_BYTES  65536
#define POOL_PAGES  64
#define ALIGNED(at) ((uint64_t)(uintptr_t)(at))

static _Alignas(16) uint8_t pool[POOL_BYTES], packed[POOL_BYTES], was[POOL_BYTES],
    was_packed[POOL_BYTES];
static uint32_t list[POOL_PAGES];

static void fill(struct prng *p)
{
    for (size_t i = 0; i < POOL_BYTES; i++) {
        pool[i] = was[i] = (uint8_t)prng_u64(p);
        packed[i] = was_packed[i] = (uint8_t)prng_u64(p);
    }
}

/* Every other page, or every third, from the last one down. */
static union kernels_args pages_make(struct prng *p)
{
    union kernels_args a = {.pages = {.pool = ALIGNED(pool),
                                      .packed = ALIGNED(packed),
                                      .list = ALIGNED(list),
                                      .page_bytes = 16u * (1 + prng_below(p, 64))}};
    uint32_t step = 1 + prng_below(p, 3);

    for (uint32_t page = POOL_PAGES; page >= step; page -= step)
        list[a.pages.n++] = page - step;
    return a;
}

/* Index in the list of the page with byte `at` of the pool; -1: none. */
static int64_t listed(const struct kernels_pages *a, size_t at)
{
    for (uint32_t i = 0; i < a->n; i++)
        if (at / a->page_bytes == list[i])
            return i;
    return -1;
}

static void pages_compare(enum kernels_kind kind, const struct kernels_pages *a)
{
    for (size_t at = 0; at < POOL_BYTES; at++) {
        int64_t i = listed(a, at);
        size_t there = (size_t)i * a->page_bytes + at % a->page_bytes;

        if (i < 0)
            assert_int_equal(pool[at], was[at]);
        else if (kind == KERNELS_GATHER)
            assert_int_equal(packed[there], was[at]);
        else
            assert_int_equal(pool[at], kind == KERNELS_ZERO ? 0 : was_packed[there]);
        if (kind == KERNELS_GATHER)
            assert_int_equal(pool[at], was[at]);
        if (kind != KERNELS_GATHER || at >= a->n * a->page_bytes)
            assert_int_equal(packed[at], was_packed[at]);
    }
}

TEST(references_of_lists_of_pages_are_right)
{
    static const enum kernels_kind kinds[] = {KERNELS_GATHER, KERNELS_SCATTER, KERNELS_ZERO};
    struct prng p;

    prng_init(&p, 1);
    for (int round = 0; round < ROUNDS; round++) {
        enum kernels_kind kind = kinds[round % 3];
        union kernels_args a = pages_make(&p);
        struct kernels_launch l;

        fill(&p);
        assert_int_equal(kernels_prepare(kind, &a, &l), KERNELS_REFUSED_NONE);
        reference_run(kind, &a);
        pages_compare(kind, &a.pages);
    }
}

TEST(divisors_divide)
{
    struct prng p;

    prng_init(&p, 2);
    for (uint32_t i = 0; i < 200000; i++) {
        uint32_t by = i < 70000 ? i + 1 : (uint32_t)(prng_u64(&p) >> (33 + prng_below(&p, 20))) + 1;
        struct kernels_divisor d = kernels_divide_by(by < 1u << 31 ? by : by - 1);

        for (int k = 0; k < 8; k++) {
            uint32_t most = (1u << 31) - 1, n = (uint32_t)(prng_u64(&p) >> 33);

            n = k == 0 ? most : k == 1 ? most / d.by * d.by : k == 2 ? most / d.by * d.by - 1 : n;
            assert_int_equal((uint64_t)n * d.times >> d.shift, n / d.by);
        }
    }
}

TEST(grids_cover_lists_of_any_length)
{
    static const struct {
        uint64_t page_bytes;
        uint32_t n, grid;
    } rows[] = {{16, 0, 0},
                {16, 1, 1},
                {16, KERNELS_TILE, 1},
                {16, KERNELS_TILE + 1, 2},
                {65536, 3, 12},
                {KERNELS_PAGE_BYTES_MAX, UINT32_MAX, KERNELS_GRID_MAX}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        union kernels_args a = {.pages = {.page_bytes = rows[i].page_bytes, .n = rows[i].n}};
        struct kernels_launch l;

        assert_int_equal(kernels_prepare(KERNELS_GATHER, &a, &l), KERNELS_REFUSED_NONE);
        assert_int_equal(l.grid, rows[i].grid);
        assert_int_equal(l.block, KERNELS_THREADS);
        assert_string_equal(l.function, "tern_gather");
    }
}

static void refused(enum kernels_kind kind, union kernels_args a, enum kernels_refusal why)
{
    struct kernels_launch l;

    assert_int_equal(kernels_prepare(kind, &a, &l), why);
    assert_true((kernels_text(why)[0] == '\0') == (why == KERNELS_REFUSED_NONE));
}

static union kernels_args pages_of(uint64_t pool_at, uint64_t packed_at, uint64_t list_at,
                                   uint64_t page_bytes)
{
    return (union kernels_args){.pages = {.pool = pool_at,
                                          .packed = packed_at,
                                          .list = list_at,
                                          .page_bytes = page_bytes,
                                          .n = 1}};
}

TEST(lists_of_pages_that_make_no_sense_are_refused)
{
    refused(KERNELS_GATHER, pages_of(0, 0, 0, 16), KERNELS_REFUSED_NONE);
    refused(KERNELS_GATHER, pages_of(0, 0, 0, 0), KERNELS_REFUSED_PAGE_BYTES);
    refused(KERNELS_SCATTER, pages_of(0, 0, 0, 24), KERNELS_REFUSED_PAGE_BYTES);
    refused(KERNELS_ZERO, pages_of(0, 0, 0, KERNELS_PAGE_BYTES_MAX + 16),
            KERNELS_REFUSED_PAGE_BYTES);
    refused(KERNELS_GATHER, pages_of(8, 0, 0, 16), KERNELS_REFUSED_ALIGNED);
    refused(KERNELS_GATHER, pages_of(0, 8, 0, 16), KERNELS_REFUSED_ALIGNED);
    refused(KERNELS_GATHER, pages_of(0, 0, 2, 16), KERNELS_REFUSED_ALIGNED);
    refused(KERNELS_ZERO, pages_of(0, 8, 0, 16), KERNELS_REFUSED_NONE);
}

TEST(words_that_do_not_fit_a_launch_are_refused)
{
    static const struct {
        struct kernels_told a;
        enum kernels_refusal why;
    } rows[] = {
        {{.n = 1}, KERNELS_REFUSED_NONE},
        {{.n = KERNELS_WORDS_MAX}, KERNELS_REFUSED_NONE},
        {{.n = 0}, KERNELS_REFUSED_WORDS},
        {{.n = KERNELS_WORDS_MAX + 1}, KERNELS_REFUSED_WORDS},
        {{.n = 1, .to = 2}, KERNELS_REFUSED_ALIGNED},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        refused(KERNELS_TELL, (union kernels_args){.told = rows[i].a}, rows[i].why);
    assert_true(sizeof(union kernels_args) <= 4096); /* limit of a launch */
}
