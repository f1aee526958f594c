/* Checksums that engines compute: an engine writes here the checksums of the pages that a step
 * writes, so that the daemon need not read the pages (X7). The entries lie in host memory that the
 * tenant and the daemon share, one for each place where a page of a pool can begin. For pages on a
 * GPU libtern writes the head once it has submitted the kernels to the engine's stream, and the
 * kernels write the checksums after the head. For blocks libtern writes both
 * (client/libtern/blocks_put.c). The daemon reads both when the step has passed. An entry is valid
 * for one commit alone: for the step and the generation of the page that its head names. */
#ifndef BASE_BROUGHT_H
#define BASE_BROUGHT_H

#include <stdint.h>

struct brought_head {
    uint64_t step; /* the step that the commit names; 0: no checksums. Written last */
    uint32_t gen;  /* of the page */
    uint32_t units;
};

/* Bytes of an entry with room for `units` checksums, which follow the head. */
static inline uint32_t brought_entry_bytes(uint32_t units)
{
    return (uint32_t)(sizeof(struct brought_head) + units * sizeof(uint64_t));
}

/* The number of the entry of a page that begins at `offset` of its pool. No page is shorter than
 * page_bytes_min, so each has its own entry. */
static inline uint64_t brought_entry(uint64_t offset, uint64_t page_bytes_min)
{
    return offset / page_bytes_min;
}

#endif
