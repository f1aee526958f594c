/* Checksums that libtern leaves for the daemon: those that a GPU computes in streams of the engine,
 * and those of blocks. pool.c and blocks_put.c call it. See brought.c. */
#ifndef CLIENT_BROUGHT_H
#define CLIENT_BROUGHT_H

#include "internal.h"
#include "kernels/driver.h"

struct brought; /* memory for the checksums of one mapping */

/* The part of the descriptor that has the entries of the pool, in whole pages of memory. Returns
 * false if the daemon's answer is invalid. */
struct brought_range {
    uint64_t from, bytes;
};
bool brought_range(const struct tern_pool *p, const Tern__Wire__BroughtSums *at,
                   struct brought_range *ret);
/* Takes over `map`, where that part is mapped; brought_end unmaps it. INTERNAL: `map` stays the
 * caller's. */
enum tern_err brought_begin(struct tern_pool *p, const Tern__Wire__BroughtSums *at, uint8_t *map);
/* Queues the kernels behind all work in the stream. The caller has checked that this rank may still
 * publish the step. */
enum tern_err brought_put(struct tern_pool *p, const struct tern_checksums *of, CUstream stream);
/* Leaves the checksum of a page of one unit in the pool. The daemon takes the checksum when it has
 * seen the step, which must be published after this call. Does nothing if the daemon has no memory
 * for checksums. */
void brought_leave(struct tern_pool *p, uint64_t page_bytes, const struct tern_page *page,
                   uint64_t sum, uint64_t step);
/* Call it before the mapping ends: waits for kernels in streams, at most BROUGHT_WAIT_MS. Returns
 * false if the device may still use the pages; then nothing is unmapped. */
bool brought_end(struct tern_pool *p);

#endif
