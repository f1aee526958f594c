/* The operations of a Step on one session. */
#ifndef CORE_SESSION_OPS_H
#define CORE_SESSION_OPS_H

#include "core/session/call.h"

/* Closes it, and answers whoever waits for that. An error, and nothing has changed; `text` says
 * why, where that is not the want of room for the answers. */
enum tern_err session_end(struct core *c, struct actions *out, struct session *s, uint64_t step,
                          const char **ret_text);
/* Gives its table up, as an Abort does, and keeps no more than the first `keep` tokens: a rollback
 * below what is committed. BUSY, and nothing has changed. */
enum tern_err session_table_end(struct core *c, struct actions *out, struct session *s,
                                uint64_t step, uint32_t keep, const char **ret_text);
void session_op(struct core *c, struct actions *out, struct engine *e, const struct step_op *op,
                struct op_result *ret);

#endif
