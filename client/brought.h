/* Checksums that a GPU leaves for the daemon, in streams of the engine: see brought.c. pool.c uses
 * it. */
#ifndef CLIENT_BROUGHT_H
#define CLIENT_BROUGHT_H

#include "internal.h"
#include "kernels/driver.h"

struct brought; /* where they are left, of one mapping */

/* Maps the entries of the pool that fd (borrowed) holds. */
enum tern_err brought_map(struct tern_pool *p, int fd, const Tern__Wire__BroughtSums *at);
/* Puts the kernels behind all that is in the stream. The step is one that this rank may do yet. */
enum tern_err brought_put(struct tern_pool *p, const struct tern_checksums *of, CUstream stream);
/* Before the mapping ends: waits for kernels that are in a stream, for BROUGHT_WAIT_MS at most.
 * False: the device may still be at the pages, and all stays as it is. */
bool brought_end(struct tern_pool *p);

#endif
