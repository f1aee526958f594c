/* What a worker does with a turn record that an engine has written (M10): token ids that are in
 * range, log-probabilities that are finite, and a hash of the list at the lengths that are asked
 * for. What is looked at is what lies there now; that the engine leaves it so is its own affair, as
 * the record is its session's. */
#ifndef SEAM_RECORD_CHECK_H
#define SEAM_RECORD_CHECK_H

#include "core/core.h"

#define RECORD_TOKEN_END (1u << 31) /* of token ids */

/* How watched memory is touched: mem_fault_bytes, or mem_fault_try where the owner does it. */
typedef bool record_touch(void (*touch)(void *ctx), void *ctx);
/* `memory`: the tenant's, watched. Fills in all of *ret. CORRUPT: a page of the memory was gone. */
void record_check(const struct record_job *job, const uint8_t *memory, record_touch *within,
                  struct record_checked *ret);

#endif
