/* A page is verified where it lies: each block of 4 KiB is hashed as soon as it is whole, and
 * memory of a device when all of a region has come. See mem_verify.h. Called by the transfers, on
 * whatever thread brings the page. */
#include "seam/mem/mem_verify.h"

#include <string.h>

#include "base/check.h"
#include "seam/mem/mem_fault.h"
#include "seam/mem/mem_touch.h"

#define UNITS_MASKED 64 /* bits of a mask of units */

void mem_verify_begin(struct mem_verify *v, struct mem *mem, uint32_t pool,
                      const struct page_at *page, const uint64_t *sums)
{
    v->mem = mem;
    v->far =
        mem_is_far(mem, mem_page(mem, pool, 0, page->group, page->index)) ? mem_far(mem) : NULL;
    v->sums = sums;
    v->page = *page;
    v->pool = pool;
    v->regions = mem_transfer_regions(mem, pool);
    v->units = mem_units(mem, pool, page->group);
    v->page_bytes = v->region_bytes = mem_page_bytes(mem, pool, page->group);
    v->region = v->unit = 0;
    v->hashed = v->in_unit = v->mask = 0;
    v->masked = v->ahead = v->wrong = false;
}

void mem_verify_units(struct mem_verify *v, uint64_t units, bool ahead)
{
    v->mask = units;
    v->masked = true;
    v->ahead = ahead;
    v->region_bytes = v->page_bytes / v->units * (uint32_t)__builtin_popcountll(units);
}

static void unit_end(struct mem_verify *v)
{
    uint32_t at = v->region * v->units + v->unit;
    uint64_t sum = checksum_end(&v->sum);

    mem_sums(v->mem, v->page.record)[at] = sum;
    if (!v->ahead && sum != v->sums[at])
        v->wrong = true;
    v->unit++;
    v->in_unit = 0;
}

/* Goes past units that do not come: those that came ahead still have to be what they were. */
static void skip_units(struct mem_verify *v)
{
    for (; v->masked && v->unit < v->units && !(v->mask >> v->unit & 1); v->unit++) {
        uint32_t at = v->region * v->units + v->unit;

        if (!v->ahead && mem_sums(v->mem, v->page.record)[at] != v->sums[at])
            v->wrong = true;
    }
}

static void region_end(struct mem_verify *v)
{
    v->region++;
    v->unit = 0;
    v->hashed = 0;
}

/* The units of the region in work that have come, to `stored`: all of them at once. Units that come
 * alone are pages of their own: their shares are equal. */
static bool far_sums(const struct mem_verify *v, const uint8_t *base, uint64_t *stored)
{
    uint32_t list[UNITS_MASKED] = {0};
    uint64_t sums[UNITS_MASKED];
    struct mem_far_pages pages = {
        .base = base, .list = list, .page_bytes = v->page_bytes / v->units, .units = 1};

    mem_fault_not_owner();
    if (!v->masked)
        return mem_far_sums(v->far, base, v->page_bytes, v->units, stored);
    for (uint32_t unit = 0; unit < v->units; unit++)
        if (v->mask >> unit & 1)
            list[pages.n++] = unit;
    if (!v->far->sums(v->far->ctx, &pages, sums))
        return false;
    for (uint32_t k = 0; k < pages.n; k++)
        stored[list[k]] = sums[k];
    return true;
}

static void far_arrived(struct mem_verify *v, const uint8_t *base)
{
    const uint64_t *want = v->sums + v->region * v->units;
    uint64_t *stored = mem_sums(v->mem, v->page.record) + v->region * v->units;

    if (!far_sums(v, base, stored) ||
        (!v->ahead && memcmp(stored, want, v->units * sizeof *stored) != 0))
        v->wrong = true;
    region_end(v);
}

void mem_verify_arrived(struct mem_verify *v, uint32_t region, uint64_t to)
{
    const uint8_t *base = mem_page(v->mem, v->pool, region, v->page.group, v->page.index);

    check(region == v->region && to <= v->region_bytes);
    if (v->far) {
        if (to == v->region_bytes)
            far_arrived(v, base);
        return;
    }
    skip_units(v);
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
        skip_units(v);
    }
    if (v->hashed == v->region_bytes)
        region_end(v);
}

bool mem_verify_landed(struct mem_verify *v)
{
    check(v->region == v->regions);
    return !v->wrong && (v->ahead || mem_spread(v->mem, v->pool, &v->page));
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
        return; /* a page that is gone is corrupt without it */
    byte ^= 0x20;
    (void)mem_put(mem, where, &byte, 1);
}
