/* Opening and closing sessions. */
#ifndef CORE_SESSIONS_H
#define CORE_SESSIONS_H

#include "core/session/call.h"

/* Nobody finds the session any more. What it holds is for session_give_back, and is free again when
 * `step` has passed, or at once for an engine that is gone. */
void session_close(struct core *c, struct session *s, uint64_t step, bool engine_gone);
/* Gives back what a closed session holds, up to `end` visits. False: there is more. */
bool session_give_back(struct core *c, struct session *s, uint32_t end);
/* The same for all that are closed. */
bool sessions_flush(struct core *c);

#endif
