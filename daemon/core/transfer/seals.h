/* Checksums of published nodes. */
#ifndef CORE_SEALS_H
#define CORE_SEALS_H

#include "core/arena/arena.h"

void seal_queue(struct core *c, uint32_t node);
void seal_done(struct core *c, struct seal_id job);
bool seal_flush(struct core *c, struct actions *out); /* false: work is left for want of room */

#endif
