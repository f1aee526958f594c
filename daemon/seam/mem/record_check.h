/* A worker's check of a turn record that an engine has written (M10): token ids are in range,
 * log-probabilities are finite, and the list is hashed at the requested lengths. The check covers
 * the present bytes; the engine can still change them, since the record is its session's. */
#ifndef SEAM_RECORD_CHECK_H
#define SEAM_RECORD_CHECK_H

#include "core/core.h"

#define RECORD_TOKEN_END (1u << 31) /* the first value that is no token id */

/* How to touch watched memory: mem_fault_bytes, or mem_fault_try on the owner. */
typedef bool record_touch(void (*touch)(void *ctx), void *ctx);
/* `memory`: the tenant's, watched. Fills in all of *ret. CORRUPT: a page of the memory was gone. */
void record_check(const struct record_job *job, const uint8_t *memory, record_touch *within,
                  struct record_checked *ret);

#endif
