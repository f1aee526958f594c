/* Verifying a page that arrives. Whoever brings a page's bytes (a transport) says how far they have
 * come and never looks at them; the memory compares them with the checksums that travelled beside
 * them. Host memory does so piece by piece, while the bytes are in cache, on the thread that brings
 * them: mem_verify_begin to mem_verify_landed may run on a data thread, one thread at a time for a
 * page.
 *
 * What must stay true: no byte of the page is written while mem_verify_landed looks at it, and the
 * page, its record and its pool stay the caller's from mem_verify_begin until then. */
#ifndef SEAM_MEM_VERIFY_H
#define SEAM_MEM_VERIFY_H

#include "seam/mem/checksum.h"
#include "seam/mem/mem.h"

/* A page in work. The struct is the caller's and needs no clean-up. */
struct mem_verify {
    struct mem *mem;           /* borrowed */
    const struct mem_far *far; /* how its bytes are reached; NULL: by the CPU */
    const uint64_t *sums; /* borrowed: what the page must agree with, [region * units + unit] */
    struct page_at page;
    uint32_t pool, regions, units;
    uint32_t region, unit; /* in work */
    uint64_t page_bytes;
    uint64_t hashed;  /* bytes, in the region in work */
    uint64_t in_unit; /* and in the unit in work */
    bool wrong;
    struct checksum sum;
};

void mem_verify_begin(struct mem_verify *v, struct mem *mem, uint32_t pool,
                      const struct page_at *page, const uint64_t *sums);
/* The first `to` bytes of that region are there. Regions come whole, in order. */
void mem_verify_arrived(struct mem_verify *v, uint32_t region, uint64_t to);
/* All bytes are there. A page that is right is copied to the regions that transfers do not move,
 * and its checksums are in mem_sums now. False: it is corrupt, or a page of memory is gone. */
bool mem_verify_landed(struct mem_verify *v);

/* Are a record's first n checksums known? A page that could not be read to be sealed has none. */
bool mem_sums_known(struct mem *mem, uint32_t record, uint32_t n);

/* Fault injection: flips a bit of a page that is arriving, before it is verified. */
void mem_verify_spoil(struct mem *mem, uint32_t pool, const struct page_at *page, uint32_t region,
                      uint64_t at);

#endif
