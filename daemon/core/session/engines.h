/* Engines: their processes and connections, and the steps that their ranks have finished. step.c
 * calls this with requests and events. */
#ifndef CORE_ENGINES_H
#define CORE_ENGINES_H

#include "core/session/call.h"

void engine_proc_gone(struct core *c, struct actions *out, uint32_t proc);
/* Frees ended engines' records by pieces. Returns false if more is left to do. */
bool engines_flush(struct core *c, struct actions *out);
void engine_conn_closed(struct core *c, uint32_t conn);
/* A rank's done_step was read. */
void engine_step_done(struct core *c, struct engine_id engine, uint32_t rank, uint64_t step);
void engine_attach(struct core *c, struct engine *e, uint32_t pool);

/* Pools: opening, mapping and closing. */
void pool_zeroed(struct core *c, struct pool_id pool);
/* Continues closing pools: removes prefixes as pins end, then zeroes and frees the range. */
bool pool_flush(struct core *c, struct actions *out);

/* Leased pages, which an engine has ahead of need (E5): from PageLease (call.h) to their end. */

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

/* Which steps of an engine are done: what its ranks publish, which of that counts, and who waits
 * for a step (OP_WAIT_PUBLISHED, declared by call.h). */

/* A rank's done_step was read. */
void steps_shown(struct core *c, struct engine *e, uint32_t rank, uint64_t step);
/* Recomputes what counts: a request may have named a step that explains what a rank publishes. */
void steps_count(struct core *c, struct engine *e);
/* Returns true if the rank shows a step that it cannot have reached (E7). */
bool steps_jumped(const struct engine *e, uint32_t rank);
/* A request named the step: named steps bound what ranks may show (E7). */
static inline void step_named(struct core *c, struct engine *e, uint64_t step)
{
    if (step <= e->named)
        return;
    e->named = step;
    waits_look(c, e);
    touch(c);
}

/* Ends the connection's wait without an answer. */
void wait_end(struct core *c, struct conn *cn);
/* The same if it leaves its engine: answers its wait with GONE. Requires room. */
void wait_gone(struct core *c, struct actions *out, struct conn *cn);
bool waits_flush(struct core *c, struct actions *out); /* false: work is left, for want of room */

#endif
