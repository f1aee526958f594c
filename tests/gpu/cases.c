#include "gpu/cases.h"

#include <stdio.h>

#include "gpu/arena.h"

/* Lists n different pages of `pool_pages` in random order, as a scatter needs them. */
static void list_make(uint32_t *list, uint32_t n, uint32_t pool_pages, struct prng *p)
{
    uint32_t left = pool_pages;

    for (uint32_t page = 0, i = 0; i < n; page++, left--)
        if (prng_below(p, left) < n - i)
            list[i++] = page;
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = prng_below(p, i), was = list[i - 1];

        list[i - 1] = list[j];
        list[j] = was;
    }
}

/* A pool with more pages than the list names. */
struct pool_shape {
    uint64_t page_bytes;
    uint32_t pages, n;
    size_t pool, packed, list; /* offsets in the arena */
};

static void pages_run(enum kernels_kind kind, const struct arena *a, const struct pool_shape *s)
{
    union kernels_args args[2];

    for (int device = 0; device < 2; device++)
        args[device].pages = (struct kernels_pages){.pool = arena_address(a, device) + s->pool,
                                                    .packed = arena_address(a, device) + s->packed,
                                                    .list = arena_address(a, device) + s->list,
                                                    .page_bytes = s->page_bytes,
                                                    .n = s->n};
    arena_run(a, kind, &args[0], &args[1]);
}

/* Small pages and large ones, and a list of no page up to all pages of the pool. */
static void pages_case(enum kernels_kind kind, const struct device *d, struct case_size size,
                       struct prng *p, struct case_result *ret)
{
    uint32_t most = (uint32_t)(size.bytes / 4 / KERNELS_VECTOR) >> prng_below(p, 12);
    struct pool_shape s = {.page_bytes = (1 + prng_below(p, most)) * (uint64_t)KERNELS_VECTOR};
    struct arena a;

    s.pages = 1 + prng_below(p, (uint32_t)(size.bytes / 2 / s.page_bytes));
    s.n = prng_below(p, 8) ? prng_below(p, s.pages + 1) : s.pages;
    snprintf(ret->text, sizeof ret->text, "%u of %u pages of %llu bytes", s.n, s.pages,
             (unsigned long long)s.page_bytes);
    arena_begin(&a, d, (s.pages + s.n) * (s.page_bytes + sizeof(uint32_t)) + ARENA_ROOM, p);
    s.pool = arena_take(&a, s.pages * s.page_bytes, KERNELS_VECTOR);
    s.list = arena_take(&a, s.n * sizeof(uint32_t), sizeof(uint32_t));
    s.packed = arena_take(&a, s.n * s.page_bytes, KERNELS_VECTOR);
    list_make((uint32_t *)(a.want + s.list), s.n, s.pages, p);
    arena_put(&a);
    pages_run(kind, &a, &s);
    arena_end(&a, ret);
}

static void case_gather(const struct device *d, struct case_size size, struct prng *p,
                        struct case_result *ret)
{
    pages_case(KERNELS_GATHER, d, size, p, ret);
}

static void case_scatter(const struct device *d, struct case_size size, struct prng *p,
                         struct case_result *ret)
{
    pages_case(KERNELS_SCATTER, d, size, p, ret);
}

static void case_zero(const struct device *d, struct case_size size, struct prng *p,
                      struct case_result *ret)
{
    pages_case(KERNELS_ZERO, d, size, p, ret);
}

/* Units and pages of any length, at any address. Sometimes only the last unit of a page has one
 * sub-block more than the others. */
static void checksum_shape(struct case_size size, struct prng *p, struct kernels_checksum *c,
                           uint32_t *ret_align)
{
    uint32_t most = (uint32_t)(size.bytes / 2) >> prng_below(p, 14);

    *ret_align = prng_below(p, 2) ? 16 : 1u << prng_below(p, 4);
    c->page_bytes = (1 + prng_below(p, most / *ret_align)) * (uint64_t)*ret_align;
    c->units = 1 + prng_below(p, (uint32_t)(c->page_bytes < 64 ? c->page_bytes : 64));
    if (prng_below(p, 4) == 0) {
        *ret_align = 1;
        c->units = 2 + prng_below(p, 6);
        c->page_bytes = c->units * KERNELS_BLOCK + 1 + prng_below(p, c->units - 1);
    }
    c->n = prng_below(p, 8) ? 1 + prng_below(p, (uint32_t)(size.bytes / c->page_bytes) % 64) : 0;
}

static void checksum_run(enum kernels_kind kind, const struct arena *a,
                         const struct kernels_checksum *offsets)
{
    union kernels_args args[2];

    for (int device = 0; device < 2; device++) {
        struct kernels_checksum *c = &args[device].checksum;

        *c = *offsets;
        c->pool += arena_address(a, device);
        c->list += arena_address(a, device);
        c->blocks += arena_address(a, device);
        c->sums += arena_address(a, device);
        c->places += c->place_bytes ? arena_address(a, device) : 0;
    }
    arena_run(a, kind, &args[0], &args[1]);
}

static void case_checksum(const struct device *d, struct case_size size, struct prng *p,
                          struct case_result *ret)
{
    struct kernels_checksum c = {.pool = 0};
    uint32_t align;
    uint64_t scratch, each, sums;
    struct arena a;

    checksum_shape(size, p, &c, &align);
    scratch = kernels_checksum_scratch(&c);
    each = (c.units + prng_below(p, 4)) * sizeof(uint64_t);
    c.place_bytes = prng_below(p, 2) ? each : 0;
    sums = (c.place_bytes ? 2 * c.n : c.n) * each;
    snprintf(ret->text, sizeof ret->text, "%u pages of %llu bytes, %u units, at multiples of %u%s",
             c.n, (unsigned long long)c.page_bytes, c.units, align,
             c.place_bytes ? ", in places" : "");
    arena_begin(&a, d,
                c.n * (2 * c.page_bytes + 2 * sizeof(uint32_t)) + scratch + sums + ARENA_ROOM, p);
    c.pool = arena_take(&a, 2 * c.n * c.page_bytes, align);
    c.list = arena_take(&a, c.n * sizeof(uint32_t), sizeof(uint32_t));
    c.blocks = arena_take(&a, scratch, sizeof(uint64_t));
    c.sums = arena_take(&a, sums, sizeof(uint64_t));
    list_make((uint32_t *)(a.want + c.list), c.n, 2 * c.n, p);
    if (c.place_bytes) {
        c.places = arena_take(&a, c.n * sizeof(uint32_t), sizeof(uint32_t));
        list_make((uint32_t *)(a.want + c.places), c.n, 2 * c.n, p);
    }
    arena_put(&a);
    checksum_run(KERNELS_CHECKSUM_BLOCKS, &a, &c);
    checksum_run(KERNELS_CHECKSUM_UNITS, &a, &c);
    arena_end(&a, ret);
}

static void case_tell(const struct device *d, struct case_size size, struct prng *p,
                      struct case_result *ret)
{
    union kernels_args args[2];
    struct kernels_told *told = &args[0].told;
    struct arena a;
    size_t to;

    (void)size;
    told->n = prng_below(p, 4) ? 1 + prng_below(p, KERNELS_WORDS_MAX) : KERNELS_WORDS_MAX;
    for (uint32_t i = 0; i < KERNELS_WORDS_MAX; i++)
        told->word[i] = (uint32_t)prng_u64(p);
    snprintf(ret->text, sizeof ret->text, "%u words", told->n);
    arena_begin(&a, d, sizeof told->word + ARENA_ROOM, p);
    to = arena_take(&a, told->n * sizeof(uint32_t), sizeof(uint32_t));
    arena_put(&a);
    args[1] = args[0];
    for (int device = 0; device < 2; device++)
        args[device].told.to = arena_address(&a, device) + to;
    arena_run(&a, KERNELS_TELL, &args[0], &args[1]);
    arena_end(&a, ret);
}

const struct case_row case_table[] = {
    {"gather", case_gather},     {"scatter", case_scatter}, {"zero", case_zero},
    {"checksum", case_checksum}, {"reshard", case_reshard}, {"fp8", case_fp8},
    {"tell", case_tell},
};
const size_t case_count = sizeof case_table / sizeof case_table[0];
