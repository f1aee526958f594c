/* Leased pages, which an engine has ahead of need (E5): from PageLease (call.h) to their end. */
#ifndef CORE_LEASES_H
#define CORE_LEASES_H

#include "core/arena/arena.h"

/* Checks that the pages of these runs are leased to the engine, of this pool and these groups, each
 * named once, and no two runs of one group. Then moves them from the lease to their group's list,
 * in the order of the runs. Changes nothing on an error. */
enum tern_err lease_claim(struct core *c, struct engine *e, const struct pool *p,
                          const struct step_op *op, struct list ret_pages[GROUPS_MAX],
                          struct op_result *ret);
/* STEP_UNLEASE. */
enum tern_err lease_return(struct core *c, struct engine *e, const struct step_op *op,
                           struct op_result *ret);
/* The engine is gone: frees what it leased, up to `end` visits. Returns false if more is left. */
bool leases_drop(struct core *c, struct engine *e, uint32_t end);

#endif
