/* Evictions that an operator asked for: see evictions.c. */
#ifndef CORE_EVICTIONS_H
#define CORE_EVICTIONS_H

#include "core/arena/arena.h"

/* Goes on evicting. False: there is more to do, or no room for an answer. */
bool evictions_flush(struct core *c, struct actions *out);
void eviction_conn_closed(struct core *c, uint32_t conn);

#endif
