/* Checksums that libtern leaves for the daemon: those that a GPU computes in streams of the engine,
 * and those of blocks. See brought.c. pool.c and blocks_put.c use it. */
#ifndef CLIENT_BROUGHT_H
#define CLIENT_BROUGHT_H

#include "internal.h"
#include "kernels/driver.h"

struct brought; /* where they are left, of one mapping */

/* Which part of the descriptor holds the entries of the pool: whole pages of memory. False: what
 * the daemon says makes no sense. */
struct brought_range {
    uint64_t from, bytes;
};
bool brought_range(const struct tern_pool *p, const Tern__Wire__BroughtSums *at,
                   struct brought_range *ret);
/* That part is mapped there, to be unmapped by brought_end; INTERNAL: it is not, and stays the
 * caller's. */
enum tern_err brought_begin(struct tern_pool *p, const Tern__Wire__BroughtSums *at, uint8_t *map);
/* Puts the kernels behind all that is in the stream. The step is one that this rank may do yet. */
enum tern_err brought_put(struct tern_pool *p, const struct tern_checksums *of, CUstream stream);
/* Leaves the checksum of a page of one unit, which lies in the pool. The daemon takes it when it
 * has seen the step, which comes next. Does nothing if the daemon has no place for it. */
void brought_leave(struct tern_pool *p, uint64_t page_bytes, const struct tern_page *page,
                   uint64_t sum, uint64_t step);
/* Before the mapping ends: waits for kernels that are in a stream, for BROUGHT_WAIT_MS at most.
 * False: the device may still be at the pages, and all stays as it is. */
bool brought_end(struct tern_pool *p);

#endif
