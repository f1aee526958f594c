/* Which steps of an engine are done: what its ranks show, and what counts of it. */
#ifndef CORE_STEPS_H
#define CORE_STEPS_H

#include "core/arena/arena.h"

/* A rank's done_step was read. */
void steps_shown(struct core *c, struct engine *e, uint32_t rank, uint64_t step);
/* What counts of it, anew: a request may have named a step that explains what a rank shows. */
void steps_count(struct core *c, struct engine *e);
/* Does the rank show a step that it cannot have reached (E7)? */
bool steps_jumped(const struct engine *e, uint32_t rank);

#endif
