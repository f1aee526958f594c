/* See mem_reshard.h. */
#include "seam/mem/mem_reshard.h"

#include <string.h>

#include "reshard/units.h"
#include "seam/mem/checksum.h"
#include "seam/mem/mem_fault.h"
#include "seam/mem/mem_pack.h"
#include "seam/mem/mem_touch.h"

/* Bytes of a unit that are collected at once: whole checksum blocks. */
#define WINDOW_BYTES (4u * CHECKSUM_BLOCK)
/* Rows of a device that are moved together. */
#define FAR_ROWS 256u

struct landing {
    struct mem *mem;
    uint32_t pool;
    const struct page_at *pages;
    const struct mem_reshard *way;
    const uint64_t *sums;
    bool right;
    const struct mem_far *far;                    /* NULL: the CPU reaches the pages */
    bool lost;                                    /* with `far`: some memory is gone */
    struct iovec row[FAR_ROWS], to_row[FAR_ROWS]; /* with `far`: to move next; to_row: spread */
    uint32_t rows;
    uint64_t row_bytes; /* of all rows */
    uint8_t window[WINDOW_BYTES], packed[WINDOW_BYTES];
};

static uint8_t *place_of(const struct landing *l, const struct reshard_end *end)
{
    const struct page_at *page = &l->pages[end->page];

    return (uint8_t *)mem_page(l->mem, l->pool, end->rank, page->group, page->index) + end->at;
}

/* Fetches the collected rows from devices together, and copies each to its place in the window. */
static void runs_fetch(struct landing *l)
{
    const uint8_t *at = l->packed;

    if (l->rows > 0 && !mem_pack(l->mem, l->packed, l->row, l->row_bytes))
        l->lost = true;
    for (uint32_t i = 0; i < l->rows; at += l->row[i++].iov_len)
        memcpy(l->to_row[i].iov_base, at, l->row[i].iov_len);
    l->rows = 0;
    l->row_bytes = 0;
}

static void collect(void *ctx, const struct reshard_unit_run *run)
{
    struct landing *l = ctx;

    if (!l->far) {
        memcpy(l->window + run->in_unit, place_of(l, &run->to), run->bytes);
        return;
    }
    if (l->rows == FAR_ROWS || l->row_bytes + run->bytes > sizeof l->packed)
        runs_fetch(l);
    l->to_row[l->rows].iov_base = l->window + run->in_unit;
    l->row[l->rows++] = (struct iovec){place_of(l, &run->to), run->bytes};
    l->row_bytes += run->bytes;
}

static uint64_t unit_sum(struct landing *l, const struct reshard_unit *whole)
{
    const struct mem_reshard *way = l->way;
    const uint32_t k = whole->page * way->from->ranks * way->from->stages + whole->rank;
    const struct reshard_plan mine = {.v = way->map->v + way->map_of[k],
                                      .n = way->map_of[k + 1] - way->map_of[k]};
    uint64_t at = whole->from, end = at + whole->bytes;
    struct checksum sum;

    checksum_begin(&sum);
    for (uint64_t n; at < end; at += n) {
        struct reshard_unit part = {.rank = whole->rank, .page = whole->page, .from = at};

        part.bytes = n = end - at < WINDOW_BYTES ? end - at : WINDOW_BYTES;
        reshard_unit_runs(&mine, &part, collect, l);
        runs_fetch(l);
        checksum_feed(&sum, l->window, n);
    }
    return checksum_end(&sum);
}

/* Verifies all units of a source page that moved bytes. sums: of that page. */
static bool page_verified(struct landing *l, uint32_t page, const uint64_t *sums)
{
    const struct reshard_layout *from = l->way->from;
    const uint32_t ranks = from->ranks * from->stages;

    for (uint32_t rank = 0, k = 0; rank < ranks; rank++)
        for (uint32_t unit = 0; unit < from->units; unit++, k++) {
            const uint64_t at = reshard_unit_from(from, unit);
            const struct reshard_unit whole = {rank, page, at, reshard_unit_end(from, unit) - at};

            if (!reshard_unit_moves(l->way->held[unit], l->way->turn + page, rank % from->ranks))
                continue;
            if (sums[k] == CHECKSUM_NONE || unit_sum(l, &whole) != sums[k])
                return false;
        }
    return true;
}

static void verify_touch(void *ctx)
{
    struct landing *l = ctx;
    const struct reshard_layout *from = l->way->from;
    const struct reshard_part part = l->way->part;
    const uint32_t each = from->ranks * from->stages * from->units;

    for (uint32_t i = 0; i < part.n; i++)
        if (!page_verified(l, part.first + i, l->sums + i * each))
            return;
    l->right = true;
}

static void rows_spread(struct landing *l)
{
    l->lost = l->lost || !mem_pack(l->mem, l->packed, l->row, l->row_bytes) ||
              !mem_unpack(l->mem, l->to_row, l->packed, l->row_bytes);
    l->rows = 0;
    l->row_bytes = 0;
}

/* Spreads a row that is too long to be packed at once. */
static void row_spread(struct landing *l, uint8_t *there, const uint8_t *here, uint64_t n)
{
    for (uint64_t at = 0; at < n && !l->lost; at += sizeof l->packed) {
        uint64_t bytes = n - at < sizeof l->packed ? n - at : sizeof l->packed;

        l->lost = !mem_get(l->mem, l->packed, here + at, bytes) ||
                  !mem_put(l->mem, there + at, l->packed, bytes);
    }
}

/* Copies through memory of the host, short rows together. The other rank may lie on another device,
 * and no checksum could verify a direct copy between the two. */
static void spread_far(struct landing *l, const struct reshard_piece *p)
{
    uint8_t *to = place_of(l, &p->to), *from = place_of(l, &p->from);
    const uint64_t n = p->shape.row_bytes, rows = strided_rows(&p->shape);

    for (uint64_t i = 0; i < rows && !l->lost; i++) {
        uint8_t *there = to + strided_to(&p->shape, i), *here = from + strided_from(&p->shape, i);

        if (n > sizeof l->packed) {
            row_spread(l, there, here, n);
            continue;
        }
        l->row[l->rows] = (struct iovec){here, n};
        l->to_row[l->rows++] = (struct iovec){there, n};
        l->row_bytes += n;
        if (i + 1 == rows || l->rows == FAR_ROWS || l->row_bytes + n > sizeof l->packed)
            rows_spread(l);
    }
}

static void spread_touch(void *ctx)
{
    struct landing *l = ctx;

    for (uint32_t i = 0; i < l->way->plan->n; i++) {
        const struct reshard_piece *p = &l->way->plan->v[i];

        if (p->kind == PIECE_SPREAD && l->far)
            spread_far(l, p);
        else if (p->kind == PIECE_SPREAD)
            strided_copy(place_of(l, &p->to), place_of(l, &p->from), &p->shape);
    }
}

static void page_seal(struct landing *l, uint32_t i)
{
    const struct page_at *page = &l->pages[i];
    uint64_t *sums = mem_sums(l->mem, page->record);
    const struct group_layout *g = mem_group(l->mem, l->pool, page->group);

    for (uint32_t r = 0; r < mem_place(l->mem, l->pool)->regions; r++, sums += g->units) {
        const struct reshard_end whole = {.rank = r, .page = i};
        const uint8_t *at = place_of(l, &whole);

        if (l->far && !mem_far_sums(l->far, at, g->page_bytes, g->units, sums))
            l->lost = true;
        for (uint32_t unit = 0; !l->far && unit < g->units; unit++) {
            uint64_t from, end = checksum_unit_span(g->page_bytes, g->units, unit, &from);

            sums[unit] = checksum_unit(at + from, end - from);
        }
    }
}

static void seal_touch(void *ctx)
{
    struct landing *l = ctx;

    for (uint32_t i = 0; i < l->way->pages; i++)
        page_seal(l, i);
}

static bool touched(struct landing *l, void (*touch)(void *ctx))
{
    if (!l->far)
        return mem_fault_bytes(touch, l);
    touch(l);
    return !l->lost;
}

bool mem_reshard_landed(struct mem *mem, uint32_t pool, const struct page_at *pages,
                        const struct mem_reshard *way, const uint64_t *sums)
{
    struct landing l;

    l.mem = mem;
    l.pool = pool;
    l.pages = pages;
    l.way = way;
    l.sums = sums;
    l.right = l.lost = false;
    l.rows = 0;
    l.row_bytes = 0;
    l.far = mem_far_at(mem, mem_page(mem, pool, 0, pages[0].group, pages[0].index));
    return touched(&l, verify_touch) && l.right && touched(&l, spread_touch) &&
           touched(&l, seal_touch);
}
