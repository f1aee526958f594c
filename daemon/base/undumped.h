/* Memory for data of tenants and peers: token ids, bytes of pages, receive buffers. Core dumps
 * leave it out. Invariant: memory that contains such data for longer than a call is allocated here;
 * the only others are copies of up to TOKEN_BLOCK token ids on stacks. */
#ifndef BASE_UNDUMPED_H
#define BASE_UNDUMPED_H

#include <stdbool.h>
#include <stddef.h>

/* Zeroed, whole pages. NULL: no memory. `present`: later touches cost no fault and no memory. */
void *undumped_take(size_t bytes, bool present);
size_t undumped_bytes(size_t bytes);       /* that undumped_take allocates for that many */
void undumped_put(void *at, size_t bytes); /* NULL is fine */

/* Excludes memory that was mapped elsewhere from core dumps, as far as it has pages of its own.
 * Returns false if the kernel refuses. Safe in a signal handler. */
bool undumped(void *at, size_t bytes);

#endif
