/* See mem_verify.h. A page is verified in place: each block of 4 KiB is hashed as soon as it is
 * complete, and memory of a device when all of a region has arrived. Called by the transfers, on
 * the thread that receives the page. */
#include "seam/mem/mem_verify.h"

#include <string.h>

#include "base/check.h"
#include "seam/mem/mem_fault.h"
#include "seam/mem/mem_touch.h"

void mem_verify_begin(struct mem_verify *v, struct mem *mem, uint32_t pool,
                      const struct page_at *page, const uint64_t *sums)
{
    const struct group_layout *g = mem_group(mem, pool, page->group);

    v->mem = mem;
    v->far = mem_far_at(mem, mem_page(mem, pool, 0, page->group, page->index));
    v->sums = sums;
    v->page = *page;
    v->pool = pool;
    v->regions = mem_place(mem, pool)->transfer_regions;
    v->units = g->units;
    v->page_bytes = g->page_bytes;
    v->region = v->unit = 0;
    v->hashed = v->in_unit = 0;
    v->wrong = false;
}

static void unit_end(struct mem_verify *v)
{
    uint32_t at = v->region * v->units + v->unit;
    uint64_t sum = checksum_end(&v->sum);

    mem_sums(v->mem, v->page.record)[at] = sum;
    if (sum != v->sums[at])
        v->wrong = true;
    v->unit++;
    v->in_unit = 0;
}

static void region_end(struct mem_verify *v)
{
    v->region++;
    v->unit = 0;
    v->hashed = 0;
}

static void far_arrived(struct mem_verify *v, const uint8_t *base)
{
    const uint64_t *want = v->sums + v->region * v->units;
    uint64_t *stored = mem_sums(v->mem, v->page.record) + v->region * v->units;

    mem_fault_not_owner();
    if (!mem_far_sums(v->far, base, v->page_bytes, v->units, stored) ||
        memcmp(stored, want, v->units * sizeof *stored) != 0)
        v->wrong = true;
    region_end(v);
}

void mem_verify_arrived(struct mem_verify *v, uint32_t region, uint64_t to)
{
    const uint8_t *base = mem_page(v->mem, v->pool, region, v->page.group, v->page.index);

    check(region == v->region && to <= v->page_bytes);
    if (v->far) {
        if (to == v->page_bytes)
            far_arrived(v, base);
        return;
    }
    while (v->hashed < to) {
        uint64_t unit_from;
        uint64_t unit =
            checksum_unit_span(v->page_bytes, v->units, v->unit, &unit_from) - unit_from;
        uint64_t left = unit - v->in_unit, n = to - v->hashed < left ? to - v->hashed : left;

        if (v->in_unit == 0)
            checksum_begin(&v->sum);
        if (n < left)
            n -= n % CHECKSUM_BLOCK;
        if (n == 0)
            return;
        if (!mem_fault_feed(&v->sum, base + unit_from + v->in_unit, n))
            v->wrong = true;
        v->hashed += n;
        v->in_unit += n;
        if (v->in_unit == unit)
            unit_end(v);
    }
    if (v->hashed == v->page_bytes)
        region_end(v);
}

bool mem_verify_landed(struct mem_verify *v)
{
    check(v->region == v->regions);
    return !v->wrong && mem_spread(v->mem, v->pool, &v->page);
}

bool mem_sums_known(struct mem *mem, uint32_t record, uint32_t n)
{
    const uint64_t *sums = mem_sums(mem, record);

    for (uint32_t k = 0; k < n; k++)
        if (sums[k] == CHECKSUM_NONE)
            return false;
    return true;
}

void mem_verify_spoil(struct mem *mem, uint32_t pool, const struct page_at *page, uint32_t region,
                      uint64_t at)
{
    uint8_t *where = (uint8_t *)mem_page(mem, pool, region, page->group, page->index) + at, byte;

    if (!mem_get(mem, &byte, where, 1))
        return; /* a lost page is corrupt anyway */
    byte ^= 0x20;
    (void)mem_put(mem, where, &byte, 1);
}
