/* See mem_spread in mem.h. */
#include <string.h>

#include "seam/mem/mem_touch.h"

/* A GPU hashes the copy: the bytes came over a bus, by peer access or not. */
bool mem_spread(struct mem *mem, uint32_t pool, const struct page_at *page)
{
    const uint8_t *from = mem_page(mem, pool, 0, page->group, page->index);
    const struct mem_far *far = mem_far_at(mem, from);
    uint64_t *sums = mem_sums(mem, page->record), bytes = mem_page_bytes(mem, pool, page->group);
    uint32_t units = mem_units(mem, pool, page->group);

    for (uint32_t r = mem_place(mem, pool)->transfer_regions; r < mem_place(mem, pool)->regions;
         r++) {
        uint8_t *to = mem_page(mem, pool, r, page->group, page->index);
        uint64_t *theirs = sums + r * units;

        if (!mem_move(mem, to, from, bytes))
            return false;
        if (!far)
            memcpy(theirs, sums, units * sizeof *sums);
        else if (!mem_far_sums(far, to, bytes, units, theirs) ||
                 memcmp(theirs, sums, units * sizeof *sums) != 0)
            return false;
    }
    return true;
}
