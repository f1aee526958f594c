/* A page that came from a pool of another sharding, piece by piece (N3, X7). Its bytes lie where
 * they belong when this is called: they are compared with the source's checksums, unit by unit of
 * the source's pages; what several ranks here hold is copied from the one that got it; and the page
 * gets checksums of its own. On a data thread, like mem_verify.h. */
#ifndef SEAM_MEM_RESHARD_H
#define SEAM_MEM_RESHARD_H

#include "reshard/plan.h"
#include "seam/mem/mem.h"

/* What came: by a plan of a span of one page at each end. Borrowed. */
struct mem_reshard {
    const struct reshard_layout *from;
    const struct reshard_plan *plan;
    const struct reshard_plan *map; /* its pieces by the rank that they come from */
    const uint32_t *map_of;         /* those of rank r: [map_of[r], map_of[r + 1]) */
    const uint64_t *moved;          /* bit rank * units + unit: the rank has sent some of it */
};

/* sums: of the source's page, [rank][unit]. False: something is not as it was there, or memory of
 * the page is gone. */
bool mem_reshard_landed(struct mem *mem, uint32_t pool, const struct page_at *page,
                        const struct mem_reshard *way, const uint64_t *sums);

#endif
