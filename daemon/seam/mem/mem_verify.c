/* Host memory verifies a page where it lies: each block of 4 KiB is hashed as soon as it is whole.
 * See mem_verify.h. Called by the transfers, on whatever thread brings the page. */
#include "seam/mem/mem_verify.h"

#include "base/check.h"
#include "seam/mem/mem_fault.h"

void mem_verify_begin(struct mem_verify *v, struct mem *mem, uint32_t pool,
                      const struct page_at *page, const uint64_t *sums)
{
    v->mem = mem;
    v->sums = sums;
    v->page = *page;
    v->pool = pool;
    v->regions = mem_transfer_regions(mem, pool);
    v->units = mem_units(mem, pool, page->group);
    v->page_bytes = mem_page_bytes(mem, pool, page->group);
    v->region = v->unit = 0;
    v->hashed = 0;
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
}

void mem_verify_arrived(struct mem_verify *v, uint32_t region, uint64_t to)
{
    const uint8_t *base = mem_page(v->mem, v->pool, region, v->page.group, v->page.index);

    check(region == v->region && to <= v->page_bytes);
    while (v->hashed < to) {
        uint64_t unit_from;
        uint64_t unit_to = checksum_unit_span(v->page_bytes, v->units, v->unit, &unit_from);
        uint64_t end = to < unit_to ? to : unit_to, n = end - v->hashed;

        if (v->hashed == unit_from)
            checksum_begin(&v->sum);
        if (end < unit_to)
            n -= n % CHECKSUM_BLOCK;
        if (n == 0)
            return;
        if (!mem_fault_feed(&v->sum, base + v->hashed, n))
            v->wrong = true;
        v->hashed += n;
        if (v->hashed == unit_to)
            unit_end(v);
    }
    if (v->hashed == v->page_bytes) {
        v->region++;
        v->unit = 0;
        v->hashed = 0;
    }
}

bool mem_verify_landed(struct mem_verify *v)
{
    check(v->region == v->regions);
    return !v->wrong && mem_spread(v->mem, v->pool, &v->page);
}

enum mem_verdict mem_verify_end(bool right, const struct mem_asker *asker)
{
    (void)asker; /* the answer is there */
    return right ? MEM_RIGHT : MEM_CORRUPT;
}

bool mem_sums_known(struct mem *mem, uint32_t record, uint32_t n)
{
    const uint64_t *sums = mem_sums(mem, record);

    for (uint32_t k = 0; k < n; k++)
        if (sums[k] == CHECKSUM_NONE)
            return false;
    return true;
}

struct spoil {
    uint8_t *at;
};

static void spoil_touch(void *ctx)
{
    *((const struct spoil *)ctx)->at ^= 0x20;
}

void mem_verify_spoil(struct mem *mem, uint32_t pool, const struct page_at *page, uint32_t region,
                      uint64_t at)
{
    struct spoil s = {.at = (uint8_t *)mem_page(mem, pool, region, page->group, page->index) + at};

    (void)mem_fault_try(spoil_touch, &s); /* a page that is gone is corrupt without it */
}
