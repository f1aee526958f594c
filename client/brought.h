/* Checksums that a GPU leaves for the daemon, in streams of the engine: see brought.c. pool.c uses
 * it. */
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
/* Before the mapping ends: waits for kernels that are in a stream, for BROUGHT_WAIT_MS at most.
 * False: the device may still be at the pages, and all stays as it is. */
bool brought_end(struct tern_pool *p);

#endif
