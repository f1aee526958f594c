#include "gpu/measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAIRS       21
#define PAIRS_QUICK 3
#define BYTES_MOST  (1ull << 30) /* of a copy: many times the size of a cache */
#define MEMORY_PART 8            /* the copy is at most 1/8 of the free memory */

/* A page is [2 of K and V][tokens][heads][128 elements]. It becomes two pages, each with half of
 * the heads, before its tokens: rows of one head of one token. */
#define RESHARD_ROW    256
#define RESHARD_HEADS  8
#define RESHARD_TOKENS (MEASURE_PAGE_BYTES / 2 / RESHARD_HEADS / RESHARD_ROW)
#define RESHARD_RANKS  2

struct rig {
    struct gpu *gpu;
    CUevent from, to;
    uint64_t pool, packed, list, scratch, sums, tables; /* addresses on the device */
    uint64_t bytes;                                     /* of all pages of the list */
    uint32_t n;                                         /* pages of the list; half the pool's */
    struct prng prng;
};

struct task {
    const char *name;
    double touched; /* bytes read and written for each byte of the pages */
    double least;
    enum kernels_kind kind[2]; /* launched one after the other */
    uint32_t nkinds;
};

static const struct task tasks[] = {
    {"gather", 2, 0.85, {KERNELS_GATHER}, 1},
    {"scatter", 2, 0.85, {KERNELS_SCATTER}, 1},
    {"zero", 1, 0.85, {KERNELS_ZERO}, 1},
    {"checksum", 1, 0.85, {KERNELS_CHECKSUM_BLOCKS, KERNELS_CHECKSUM_UNITS}, 2},
    {"reshard", 2, 0.7, {KERNELS_RESHARD}, 1},
    {"fp8_pack", 2.5, 0, {KERNELS_FP8_PACK}, 1}, /* it reads twice */
    {"fp8_unpack", 1.5, 0, {KERNELS_FP8_UNPACK}, 1},
};

static double event_seconds(struct rig *r)
{
    float ms;

    gpu_must(r->gpu, r->gpu->driver.event_record(r->to, r->gpu->stream), "cuEventRecord");
    gpu_must(r->gpu, r->gpu->driver.event_wait(r->to), "what was measured");
    gpu_must(r->gpu, r->gpu->driver.event_ms(&ms, r->from, r->to), "cuEventElapsedTime");
    return (double)ms / 1e3;
}

static void event_begin(struct rig *r)
{
    gpu_must(r->gpu, r->gpu->driver.event_record(r->from, r->gpu->stream), "cuEventRecord");
}

static double copy_seconds(struct rig *r)
{
    event_begin(r);
    gpu_must(r->gpu, r->gpu->driver.copy_async(r->packed, r->pool, r->bytes, r->gpu->stream),
             "cuMemcpyDtoDAsync");
    return event_seconds(r);
}

/* The plan lies in `tables`: pieces, tiles, then the offsets of pages. */
static struct kernels_reshard reshard_args(struct rig *r)
{
    struct kernels_piece piece[RESHARD_RANKS];
    struct kernels_tile tile[RESHARD_RANKS * MEASURE_PAGE_BYTES / KERNELS_VECTOR / KERNELS_TILE];
    uint64_t rank_bytes = MEASURE_PAGE_BYTES / RESHARD_RANKS, heads = RESHARD_HEADS / RESHARD_RANKS;
    struct kernels_reshard a = {.from = r->pool,
                                .to = r->packed,
                                .pieces = r->tables,
                                .tiles = r->tables + sizeof piece,
                                .from_width = 1,
                                .to_width = RESHARD_RANKS,
                                .npieces = RESHARD_RANKS,
                                .spans = r->n};
    uint64_t *page = malloc(r->n * (1 + RESHARD_RANKS) * sizeof *page);

    if (!page)
        abort();
    for (uint32_t rank = 0; rank < RESHARD_RANKS; rank++) {
        struct strided s = {.row_bytes = RESHARD_ROW,
                            .loop = {{2, MEASURE_PAGE_BYTES / 2, rank_bytes / 2},
                                     {heads, RESHARD_ROW, RESHARD_TOKENS * RESHARD_ROW},
                                     {RESHARD_TOKENS, RESHARD_HEADS * RESHARD_ROW, RESHARD_ROW}}};
        struct kernels_end from = {.page = 0, .at = rank * heads * RESHARD_ROW};
        struct kernels_end to = {.page = rank, .at = 0};

        if (kernels_piece_make(&s, &from, &to, &piece[rank]) != KERNELS_REFUSED_NONE)
            abort();
    }
    a.ntiles = (uint32_t)kernels_tiles(piece, RESHARD_RANKS, tile, sizeof tile / sizeof tile[0]);
    if (a.ntiles > sizeof tile / sizeof tile[0])
        abort();
    a.from_pages = a.tiles + sizeof tile;
    a.to_pages = a.from_pages + r->n * sizeof *page;
    for (uint32_t i = 0; i < r->n; i++) {
        page[i] = 2 * i * (uint64_t)MEASURE_PAGE_BYTES;
        for (uint32_t rank = 0; rank < RESHARD_RANKS; rank++)
            page[r->n + i * RESHARD_RANKS + rank] = (i * RESHARD_RANKS + rank) * rank_bytes;
    }
    r->gpu->ops.put(r->gpu, a.pieces, piece, sizeof piece);
    r->gpu->ops.put(r->gpu, a.tiles, tile, sizeof tile);
    r->gpu->ops.put(r->gpu, a.from_pages, page, r->n * (1 + RESHARD_RANKS) * sizeof *page);
    free(page);
    return a;
}

static union kernels_args args_of(struct rig *r, enum kernels_kind kind)
{
    union kernels_args a;

    memset(&a, 0, sizeof a);
    switch (kind) {
    case KERNELS_CHECKSUM_BLOCKS:
    case KERNELS_CHECKSUM_UNITS:
        a.checksum = (struct kernels_checksum){.pool = r->pool,
                                               .list = r->list,
                                               .page_bytes = MEASURE_PAGE_BYTES,
                                               .n = r->n,
                                               .units = 1,
                                               .blocks = r->scratch,
                                               .sums = r->sums};
        break;
    case KERNELS_RESHARD: a.reshard = reshard_args(r); break;
    case KERNELS_FP8_PACK:
    case KERNELS_FP8_UNPACK:
        a.fp8 = (struct kernels_fp8){.pool = r->pool,
                                     .list = r->list,
                                     .packed = r->packed,
                                     .scales = r->scratch,
                                     .page_bytes = MEASURE_PAGE_BYTES,
                                     .n = r->n,
                                     .heads = RESHARD_HEADS,
                                     .outer = 1,
                                     .rows = 2 * RESHARD_TOKENS,
                                     .row_elements = RESHARD_ROW / 2,
                                     .head_stride = RESHARD_ROW / 2,
                                     .row_stride = RESHARD_HEADS * RESHARD_ROW / 2};
        break;
    default:
        a.pages = (struct kernels_pages){.pool = r->pool,
                                         .packed = r->packed,
                                         .list = r->list,
                                         .page_bytes = MEASURE_PAGE_BYTES,
                                         .n = r->n};
    }
    return a;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *v, uint32_t n)
{
    qsort(v, n, sizeof *v, by_size);
    return v[n / 2];
}

static struct measure_row measure_task(struct rig *r, const struct task *t, uint32_t pairs)
{
    double rate[PAIRS], copy[PAIRS], ratio[PAIRS];
    union kernels_args args[2];
    struct kernels_launch launch[2];

    for (uint32_t k = 0; k < t->nkinds; k++) {
        args[k] = args_of(r, t->kind[k]);
        if (kernels_prepare(t->kind[k], &args[k], &launch[k]) != KERNELS_REFUSED_NONE)
            abort();
    }
    for (uint32_t i = 0; i <= pairs; i++) { /* the first pair does not count */
        uint32_t at = i > 0 ? i - 1 : 0;

        copy[at] = 2 * (double)r->bytes / copy_seconds(r) / 1e9;
        event_begin(r);
        for (uint32_t k = 0; k < t->nkinds; k++)
            r->gpu->ops.launch(r->gpu, t->kind[k], &launch[k], &args[k]);
        rate[at] = t->touched * (double)r->bytes / event_seconds(r) / 1e9;
        ratio[at] = rate[at] / copy[at];
    }
    return (struct measure_row){.name = t->name,
                                .gb_s = median(rate, pairs),
                                .copy_gb_s = median(copy, pairs),
                                .ratio = median(ratio, pairs),
                                .least = t->least};
}

/* Writes a list of half of the pool's pages, in random order. */
static void list_put(struct rig *r)
{
    uint32_t *list = malloc(2 * r->n * sizeof *list);

    if (!list)
        abort();
    for (uint32_t i = 0; i < 2 * r->n; i++)
        list[i] = i;
    for (uint32_t i = 2 * r->n; i > 1; i--) {
        uint32_t j = prng_below(&r->prng, i), was = list[i - 1];

        list[i - 1] = list[j];
        list[j] = was;
    }
    r->gpu->ops.put(r->gpu, r->list, list, r->n * sizeof *list);
    free(list);
}

static void rig_open(struct rig *r, struct gpu *g)
{
    size_t free_bytes, total;

    *r = (struct rig){.gpu = g};
    prng_init(&r->prng, 1);
    gpu_must(g, g->driver.mem_info(&free_bytes, &total), "cuMemGetInfo");
    r->bytes = free_bytes / MEMORY_PART < BYTES_MOST ? free_bytes / MEMORY_PART : BYTES_MOST;
    r->n = (uint32_t)(r->bytes / MEASURE_PAGE_BYTES);
    r->bytes = r->n * (uint64_t)MEASURE_PAGE_BYTES;
    r->pool = g->ops.take(g, 2 * r->bytes);
    r->packed = g->ops.take(g, r->bytes);
    r->list = g->ops.take(g, r->n * sizeof(uint32_t));
    r->scratch = g->ops.take(g, r->bytes / KERNELS_BLOCK * sizeof(uint64_t));
    r->sums = g->ops.take(g, r->n * sizeof(uint64_t));
    r->tables = g->ops.take(g, (r->n * (1 + RESHARD_RANKS) + 1024) * sizeof(uint64_t));
    list_put(r);
    gpu_must(g, g->driver.event_create(&r->from, CU_EVENT_DEFAULT), "cuEventCreate");
    gpu_must(g, g->driver.event_create(&r->to, CU_EVENT_DEFAULT), "cuEventCreate");
}

static void rig_close(struct rig *r)
{
    uint64_t taken[] = {r->pool, r->packed, r->list, r->scratch, r->sums, r->tables};

    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++)
        r->gpu->ops.give(r->gpu, taken[i]);
    gpu_must(r->gpu, r->gpu->driver.event_destroy(r->from), "cuEventDestroy");
    gpu_must(r->gpu, r->gpu->driver.event_destroy(r->to), "cuEventDestroy");
}

void measure_kernels(struct gpu *g, bool quick, struct measure *ret)
{
    struct rig r;

    rig_open(&r, g);
    *ret = (struct measure){.bytes = r.bytes};
    for (size_t i = 0; i < sizeof tasks / sizeof tasks[0]; i++)
        ret->row[ret->n++] = measure_task(&r, &tasks[i], quick ? PAIRS_QUICK : PAIRS);
    rig_close(&r);
}

bool measure_holds(const struct measure *m)
{
    for (size_t i = 0; i < m->n; i++)
        if (m->row[i].ratio < m->row[i].least)
            return false;
    return true;
}
