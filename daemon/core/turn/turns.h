/* Turns: who may use a session, from TurnBegin to TurnEnd (M5 to M7), and the close that waits for
 * the end of one (M12). The requests are declared by core/session/call.h. */
#ifndef CORE_TURNS_H
#define CORE_TURNS_H

#include "core/arena/arena.h"

/* Ends the turns whose time is over. False: there are more. */
bool turns_expire(struct core *c);
/* Closes sessions whose turn ended and whose SessionClose waited for it. False: no room for all. */
bool closes_flush(struct core *c, struct actions *out);
/* When the next turn ends by itself; UINT64_MAX: none does. */
uint64_t turn_deadline(const struct core *c);

/* Turn records: what a turn leaves with its session beside KV (M1 to M4, M8 to M11). The requests
 * are declared by core/session/call.h.
 *
 * A worker has looked at one: it is appended, or the session rolled back, or it is refused. */
void record_checked(struct core *c, struct actions *out, const struct record_checked *found);
/* Who waited for that is told nothing. */
void record_conn_closed(struct core *c, uint32_t conn);

#endif
