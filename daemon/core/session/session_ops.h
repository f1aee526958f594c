/* The operations of a Step on one session. */
#ifndef CORE_SESSION_OPS_H
#define CORE_SESSION_OPS_H

#include "core/session/call.h"

void session_op(struct core *c, struct actions *out, struct engine *e, const struct step_op *op,
                struct op_result *ret);

#endif
