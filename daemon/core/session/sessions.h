/* Opening and closing sessions. */
#ifndef CORE_SESSIONS_H
#define CORE_SESSIONS_H

#include "core/session/call.h"

/* Gives everything back: at `step` for a live engine, at once for one that is gone. */
void session_close(struct core *c, struct session *s, uint64_t step, bool engine_gone);

#endif
