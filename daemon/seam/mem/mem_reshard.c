/* See mem_reshard.h. */
#include "seam/mem/mem_reshard.h"

#include <string.h>

#include "reshard/units.h"
#include "seam/mem/checksum.h"
#include "seam/mem/mem_fault.h"

/* Bytes of a unit that are collected at once: whole blocks of a checksum. */
#define WINDOW_BYTES (4u * CHECKSUM_BLOCK)

struct landing {
    struct mem *mem;
    uint32_t pool;
    const struct page_at *page;
    const struct mem_reshard *way;
    const uint64_t *sums;
    bool right;
    uint8_t window[WINDOW_BYTES];
};

static uint8_t *place_of(const struct landing *l, const struct reshard_end *end)
{
    return (uint8_t *)mem_page(l->mem, l->pool, end->rank, l->page->group, l->page->index) +
           end->at;
}

/* ---- what came ---- */

static void collect(void *ctx, const struct reshard_unit_run *run)
{
    struct landing *l = ctx;

    memcpy(l->window + run->in_unit, place_of(l, &run->to), run->bytes);
}

static uint64_t unit_sum(struct landing *l, uint32_t rank, uint32_t unit)
{
    const struct mem_reshard *way = l->way;
    const struct reshard_plan mine = {.v = way->map->v + way->map_of[rank],
                                      .n = way->map_of[rank + 1] - way->map_of[rank]};
    uint64_t at = reshard_unit_from(way->from, unit), end = reshard_unit_end(way->from, unit);
    struct checksum sum;

    checksum_begin(&sum);
    for (uint64_t n; at < end; at += n) {
        struct reshard_unit part = {.rank = rank, .from = at};

        part.bytes = n = end - at < WINDOW_BYTES ? end - at : WINDOW_BYTES;
        reshard_unit_runs(&mine, &part, collect, l);
        checksum_feed(&sum, l->window, n);
    }
    return checksum_end(&sum);
}

static void verify_touch(void *ctx)
{
    struct landing *l = ctx;
    const struct reshard_layout *from = l->way->from;
    uint32_t ranks = from->ranks * from->stages;

    for (uint32_t rank = 0, k = 0; rank < ranks; rank++)
        for (uint32_t unit = 0; unit < from->units; unit++, k++) {
            if (!(l->way->moved[k / 64] >> (k % 64) & 1))
                continue;
            if (l->sums[k] == CHECKSUM_NONE || unit_sum(l, rank, unit) != l->sums[k])
                return;
        }
    l->right = true;
}

/* ---- what is made of it ---- */

static void spread_touch(void *ctx)
{
    const struct landing *l = ctx;

    for (uint32_t i = 0; i < l->way->plan->n; i++) {
        const struct reshard_piece *p = &l->way->plan->v[i];

        if (p->kind == PIECE_SPREAD)
            strided_copy(place_of(l, &p->to), place_of(l, &p->from), &p->shape);
    }
}

static void seal_touch(void *ctx)
{
    const struct landing *l = ctx;
    uint64_t *sums = mem_sums(l->mem, l->page->record);
    uint64_t bytes = mem_page_bytes(l->mem, l->pool, l->page->group);
    uint32_t units = mem_units(l->mem, l->pool, l->page->group);

    for (uint32_t r = 0; r < mem_pool_ranks(l->mem, l->pool); r++)
        for (uint32_t unit = 0; unit < units; unit++) {
            uint64_t from, end = checksum_unit_span(bytes, units, unit, &from);
            struct reshard_end at = {.rank = r, .at = from};

            *sums++ = checksum_unit(place_of(l, &at), end - from);
        }
}

bool mem_reshard_landed(struct mem *mem, uint32_t pool, const struct page_at *page,
                        const struct mem_reshard *way, const uint64_t *sums)
{
    struct landing l;

    l.mem = mem;
    l.pool = pool;
    l.page = page;
    l.way = way;
    l.sums = sums;
    l.right = false;
    return mem_fault_bytes(verify_touch, &l) && l.right && mem_fault_bytes(spread_touch, &l) &&
           mem_fault_bytes(seal_touch, &l);
}
