/* Which steps of an engine are done: what its ranks publish, which of that counts, and who waits
 * for a step (OP_WAIT_PUBLISHED, declared by call.h). */
#ifndef CORE_STEPS_H
#define CORE_STEPS_H

#include "core/arena/actions.h"

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
