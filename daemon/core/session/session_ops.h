/* The operations of a Step on one session. */
#ifndef CORE_SESSION_OPS_H
#define CORE_SESSION_OPS_H

#include "core/session/call.h"

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

#endif
