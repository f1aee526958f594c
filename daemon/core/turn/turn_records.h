/* Turn records: what a turn leaves with its session beside KV (M1 to M4, M8 to M11). The requests
 * are declared by core/session/call.h. */
#ifndef CORE_TURN_RECORDS_H
#define CORE_TURN_RECORDS_H

#include "core/arena/arena.h"

/* A worker has looked at one: it is appended, or the session rolled back, or it is refused. */
void record_checked(struct core *c, struct actions *out, const struct record_checked *found);
/* Who waited for that is told nothing. */
void record_conn_closed(struct core *c, uint32_t conn);

#endif
