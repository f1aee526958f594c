/* Turns: who may use a session, from TurnBegin to TurnEnd (M5 to M7), and the close that waits for
 * the end of one (M12). The requests are declared by core/session/call.h. */
#ifndef CORE_TURNS_H
#define CORE_TURNS_H

#include "core/arena/arena.h"

/* Ends the turns whose time is over. False: there are more. */
bool turns_expire(struct core *c);
/* Closes the sessions whose turn has ended, where a SessionClose waited for that. False: work is
 * left for want of room. */
bool closes_flush(struct core *c, struct actions *out);
/* When the next turn ends by itself; UINT64_MAX: none does. */
uint64_t turn_deadline(const struct core *c);

#endif
