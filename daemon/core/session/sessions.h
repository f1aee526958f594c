/* Opening and closing sessions. */
#ifndef CORE_SESSIONS_H
#define CORE_SESSIONS_H

#include "core/session/call.h"

/* The turn in flight is over. A SessionClose that waited for that is for closes_flush: it is
 * carried out if the turn was `ended` by who had it. */
void session_turn_over(struct core *c, struct session *s, bool ended);
/* The connection has gone, or has left its engine: its turns are over. */
void session_turns_lost(struct core *c, uint32_t conn);
/* Nothing is left of the turn in flight, nor of a SessionClose that waited for its end. */
void session_gate_leave(struct core *c, struct session *s);
/* Answers the SessionClose that waits for the session's end, if any: OK or BUSY. False: no room. */
bool session_close_told(struct core *c, struct actions *out, struct session *s, enum tern_err err);
/* Nobody finds the session any more. What it holds is for session_give_back, and is free again when
 * `step` has passed, or at once for an engine that is gone. */
void session_close(struct core *c, struct session *s, uint64_t step, bool engine_gone);
/* Are there records for what waits for the step? Many pages take one of their own, beside that of a
 * pin or of a RECURRENT page. */
bool session_tail_ready(const struct core *c, const struct engine *e, uint64_t step,
                        uint32_t pages);
/* S4 for an operation at `step`: at once, or where that are many pages in pieces. The session is
 * `releasing` until then, and only a Close is accepted. */
void session_give_tail(struct core *c, struct session *s, uint32_t p, uint64_t step);
/* The same for what it has beyond its lengths, at the step of its record, and for what is left of a
 * load, and of a path that an Abort ended. */
void session_release(struct core *c, struct session *s);
/* May so many pages be given back at once, in this step of the core? */
bool session_may_give(const struct core *c, uint32_t pages);
/* Gives back what a closed or releasing session has, up to `end` visits. False: there is more. */
bool session_give_back(struct core *c, struct session *s, uint32_t end);
/* The same for all of them. */
bool sessions_flush(struct core *c);

#endif
