/* A span of pages that came from a pool of another layout, piece by piece (N3, X7): as many tokens
 * as the larger of both pages has. Its bytes lie where they belong when this is called: they are
 * compared with the source's checksums, unit by unit of the source's pages; what several ranks here
 * hold is copied from the one that got it; and each page gets checksums of its own. On a data
 * thread, like mem_verify.h. */
#ifndef SEAM_MEM_RESHARD_H
#define SEAM_MEM_RESHARD_H

#include "reshard/stream.h"
#include "seam/mem/mem.h"

/* What came: by a plan of a span. Borrowed. */
struct mem_reshard {
    const struct reshard_layout *from;
    const struct reshard_plan *plan;
    const struct reshard_plan *map; /* its pieces by the page and rank that they come from */
    const uint32_t *map_of;         /* where those of each page and rank begin (plan.h) */
    const uint8_t *held;            /* what the units of a page of the source hold (units.h) */
    uint64_t turn;                  /* of the first page of the span at the source */
    struct reshard_part part;       /* of the source's pages, what came */
    uint32_t pages;                 /* of ours */
};

/* sums: of the source's pages that came, [page][rank][unit]. False: wrong, or memory is gone. */
bool mem_reshard_landed(struct mem *mem, uint32_t pool, const struct page_at *pages,
                        const struct mem_reshard *way, const uint64_t *sums);

#endif
