/* Sessions: opening and closing them, the operations of a Step, and sessions that are away. */
#ifndef CORE_SESSIONS_H
#define CORE_SESSIONS_H

#include "core/session/call.h"

/* The turn in flight ended. closes_flush handles a SessionClose that waited for it: the session is
 * closed only if the turn's owner `ended` it. */
void session_turn_over(struct core *c, struct session *s, bool ended);
/* The connection closed, or left its engine: its turns end. */
void session_turns_lost(struct core *c, uint32_t conn);
/* Ends the turn in flight, and a SessionClose that waited for its end. */
void session_gate_leave(struct core *c, struct session *s);
/* Answers the SessionClose that waits for the session's end, if any. Returns false without room. */
bool session_close_told(struct core *c, struct actions *out, struct session *s, enum tern_err err);
/* Makes the session unreachable. session_give_back frees what it has, reusable when `step` has
 * passed, or at once if its engine is gone. */
void session_close(struct core *c, struct session *s, uint64_t step, bool engine_gone);
/* Returns true if there are retire records for this step. Many pages need their own, beside the one
 * of a pin or of a RECURRENT page. */
bool session_tail_ready(const struct core *c, const struct engine *e, uint64_t step,
                        uint32_t pages);
/* S4 for an operation at `step`: at once, or in pieces if the pages are many. Until then the
 * session is `releasing`, and accepts only a Close. */
void session_give_tail(struct core *c, struct session *s, uint32_t p, uint64_t step);
/* Releases in the same way the pages beyond its lengths (at the step of its record), the rest of a
 * load, and the path that an Abort left. */
void session_release(struct core *c, struct session *s);
/* Returns true if this step of the core may free so many pages at once. */
bool session_may_give(const struct core *c, uint32_t pages);
/* Frees a closed or releasing session, up to `end` visits. Returns false if more is left. */
bool session_give_back(struct core *c, struct session *s, uint32_t end);
/* The same for all of them. */
bool sessions_flush(struct core *c);

/* Closes the session, and answers the request that waits for that. Changes nothing on an error,
 * which has no text if the answers have no room. */
enum tern_err session_end(struct core *c, struct actions *out, struct session *s, uint64_t step,
                          struct op_result *ret);
/* Frees its table, as an Abort does, and keeps at most the first `keep` tokens: a rollback below
 * the committed length. BUSY changes nothing. */
enum tern_err session_table_end(struct core *c, struct actions *out, struct session *s,
                                uint64_t step, uint32_t keep, struct op_result *ret);
void session_op(struct core *c, struct actions *out, struct engine *e, const struct step_op *op,
                struct op_result *ret);

/* Sessions that are away, or wait for the host tier: Retract, Recover and Fetch from the host. */

enum tern_err fetch_from_host(struct core *c, struct call *call, struct reply *ret);
/* Ends a session's load, if any; the asker gets GONE. Requires room for that answer. `stays`: the
 * load was cancelled; the session is not aborted or closed. */
void load_end(struct core *c, struct actions *out, struct session *s, bool stays);
/* Ends the session's work on the host tier: one pin, DEVICE or HOST, is left on its prefix. */
void session_come_back(struct core *c, struct session *s);
/* Releases `pages` and the pin of the session's prefix, at `step`. */
void session_let_go(struct core *c, struct session *s, uint64_t step, struct list *pages);
bool away_flush(struct core *c, struct actions *out); /* false: work is left, for want of room */

#endif
