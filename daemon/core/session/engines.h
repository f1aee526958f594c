/* Engines: the processes that make one up, their connections and the steps that their ranks have
 * finished. Called by step.c with requests and events. */
#ifndef CORE_ENGINES_H
#define CORE_ENGINES_H

#include "core/session/call.h"

void engine_proc_gone(struct core *c, struct actions *out, uint32_t proc);
/* Takes engines apart whose last process is gone, each by a piece. False: there is more to do. */
bool engines_flush(struct core *c, struct actions *out);
void engine_conn_closed(struct core *c, uint32_t conn);
/* A rank's done_step was read. */
void engine_step_done(struct core *c, struct engine_id engine, uint32_t rank, uint64_t step);
void engine_attach(struct core *c, struct engine *e, uint32_t pool);

/* Opening, mapping and closing pools. */
void pool_zeroed(struct core *c, struct pool_id pool);
/* Continues closing pools: prefixes go as pins end, then the range is zeroed and given back. */
bool pool_flush(struct core *c, struct actions *out);

#endif
