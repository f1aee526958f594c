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

#endif
