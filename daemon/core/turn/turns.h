/* Turns: who may use a session, from TurnBegin to TurnEnd (M5 to M7), and closes that wait for the
 * end of a turn (M12). core/session/call.h declares the requests. */
#ifndef CORE_TURNS_H
#define CORE_TURNS_H

#include "core/arena/arena.h"

/* Ends expired turns. Returns false if more are left. */
bool turns_expire(struct core *c);
/* Closes sessions whose SessionClose waited for a turn that ended. Returns false without room. */
bool closes_flush(struct core *c, struct actions *out);
/* Time when the next turn expires; UINT64_MAX: none does. */
uint64_t turn_deadline(const struct core *c);

/* Turn records: what a turn leaves with its session beside KV (M1 to M4, M8 to M11).
 * core/session/call.h declares the requests.
 *
 * A worker checked a record: appends it, rolls the session back, or refuses it. */
void record_checked(struct core *c, struct actions *out, const struct record_checked *found);

#endif
