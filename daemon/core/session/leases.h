/* Pages that an engine holds ahead of need (E5): PageLease (call.h), and what becomes of them. */
#ifndef CORE_LEASES_H
#define CORE_LEASES_H

#include "core/arena/arena.h"

/* Are the pages of these runs all leased to the engine, of this pool and those groups, each named
 * once? Then they are its lease's no more, and lie in `ret` of their group, in the order of the
 * runs; no two runs are of one group. Else nothing has changed. */
enum tern_err lease_claim(struct core *c, struct engine *e, const struct pool *p,
                          const struct step_op *op, struct list ret[GROUPS_MAX],
                          const char **ret_text);
/* STEP_UNLEASE. */
void lease_return(struct core *c, struct engine *e, const struct step_op *op,
                  struct op_result *ret);
/* The engine is gone: what it had leased is free, up to `end` visits. False: there is more. */
bool leases_drop(struct core *c, struct engine *e, uint32_t end);

#endif
