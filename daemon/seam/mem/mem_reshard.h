/* Verifies a span of pages that arrived from a pool of another layout, piece by piece (N3, X7). A
 * span has as many tokens as the larger of both pages. Its bytes are already in place when this is
 * called. They are compared with the source's checksums, unit by unit of the source's pages; data
 * that several ranks here share is copied from the rank that received it; and each page gets its
 * own checksums. On a data thread, like mem_verify.h. */
#ifndef SEAM_MEM_RESHARD_H
#define SEAM_MEM_RESHARD_H

#include "reshard/stream.h"
#include "seam/mem/mem.h"

/* The data that arrived, by the plan of a span. Borrowed. */
struct mem_reshard {
    const struct reshard_layout *from;
    const struct reshard_plan *plan;
    const struct reshard_plan *map; /* its pieces by the source's page and rank */
    const uint32_t *map_of;         /* where those of each page and rank begin (plan.h) */
    const uint8_t *held;            /* which data the units of a source page have (units.h) */
    uint64_t turn;                  /* of the first page of the span at the source */
    struct reshard_part part;       /* the source's pages that arrived */
    uint32_t pages;                 /* number of our pages */
};

/* sums: of the source's pages, [page][rank][unit]. Returns false if bytes are wrong, or memory is
 * gone. */
bool mem_reshard_landed(struct mem *mem, uint32_t pool, const struct page_at *pages,
                        const struct mem_reshard *way, const uint64_t *sums);

#endif
