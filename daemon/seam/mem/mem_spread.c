/* See mem_spread in mem.h. */
#include <string.h>

#include "seam/mem/mem_touch.h"

/* A GPU hashes the copy: the bytes arrived over a bus, by peer access or not. */
bool mem_spread(struct mem *mem, uint32_t pool, const struct page_at *page)
{
    const struct pool_place *place = mem_place(mem, pool);
    const struct group_layout *g = mem_group(mem, pool, page->group);
    const uint8_t *from = mem_page(mem, pool, 0, page->group, page->index);
    const struct mem_far *far = mem_far_at(mem, from);
    uint64_t *sums = mem_sums(mem, page->record);

    for (uint32_t r = place->transfer_regions; r < place->regions; r++) {
        uint8_t *to = mem_page(mem, pool, r, page->group, page->index);
        uint64_t *theirs = sums + r * g->units;

        if (!mem_move(mem, to, from, g->page_bytes))
            return false;
        if (!far)
            memcpy(theirs, sums, g->units * sizeof *sums);
        else if (!mem_far_sums(far, to, g->page_bytes, g->units, theirs) ||
                 memcmp(theirs, sums, g->units * sizeof *sums) != 0)
            return false;
    }
    return true;
}
