/* Verifies a page that arrives. A transport, which writes the page's bytes, reports how many have
 * arrived and never reads them; the memory compares them with the checksums that were sent with
 * them. Host memory is hashed piece by piece, while the bytes are in cache, on the thread that
 * receives them: mem_verify_begin to mem_verify_landed may run on a data thread, one thread at a
 * time for a page.
 *
 * Invariant: no byte of the page is written while mem_verify_landed runs, and the page, its record
 * and its pool stay the caller's from mem_verify_begin until then. */
#ifndef SEAM_MEM_VERIFY_H
#define SEAM_MEM_VERIFY_H

#include "seam/mem/checksum.h"
#include "seam/mem/mem.h"

/* A page that is being verified. The struct is the caller's and needs no clean-up. */
struct mem_verify {
    struct mem *mem;           /* borrowed */
    const struct mem_far *far; /* access to its bytes; NULL: by the CPU */
    const uint64_t *sums;      /* borrowed: expected checksums, [region * units + unit] */
    struct page_at page;
    uint32_t pool, regions, units;
    uint32_t region, unit; /* the current ones */
    uint64_t page_bytes;
    uint64_t hashed;  /* bytes, of the current region */
    uint64_t in_unit; /* bytes, of the current unit */
    bool wrong;
    struct checksum sum;
};

void mem_verify_begin(struct mem_verify *v, struct mem *mem, uint32_t pool,
                      const struct page_at *page, const uint64_t *sums);
/* The first `to` bytes of `region` have arrived. Regions arrive whole, in order. */
void mem_verify_arrived(struct mem_verify *v, uint32_t region, uint64_t to);
/* All bytes have arrived. A right page is copied to the regions that transfers do not move, and
 * mem_sums has its checksums now. Returns false if it is corrupt, or a page of memory is gone. */
bool mem_verify_landed(struct mem_verify *v);

/* Returns true if a record's first n checksums are known. An unreadable page has none. */
bool mem_sums_known(struct mem *mem, uint32_t record, uint32_t n);

/* Fault injection: flips a bit of a page that is arriving, before it is verified. */
void mem_verify_spoil(struct mem *mem, uint32_t pool, const struct page_at *page, uint32_t region,
                      uint64_t at);

#endif
