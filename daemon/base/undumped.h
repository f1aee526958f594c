/* Memory for what tenants and peers send and keep: token ids, bytes of pages, buffers that receive.
 * A core dump leaves it out. Whatever holds such bytes for longer than a call is taken here; what
 * is left are copies of up to TOKEN_BLOCK token ids on stacks. */
#ifndef BASE_UNDUMPED_H
#define BASE_UNDUMPED_H

#include <stdbool.h>
#include <stddef.h>

/* Zeroed, whole pages. NULL: no memory. `present`: later touches cost no fault and no memory. */
void *undumped_take(size_t bytes, bool present);
size_t undumped_bytes(size_t bytes);       /* that it takes for so many */
void undumped_put(void *at, size_t bytes); /* NULL is fine */

/* The same of memory that was mapped elsewhere, as far as it has pages of its own. False: the
 * kernel refuses. A handler of signals may call it. */
bool undumped(void *at, size_t bytes);

#endif
