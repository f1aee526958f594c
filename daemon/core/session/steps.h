/* Which steps of an engine are done: what its ranks show, what counts of it, and who waits for one
 * (OP_WAIT_PUBLISHED, which call.h declares). */
#ifndef CORE_STEPS_H
#define CORE_STEPS_H

#include "core/arena/actions.h"

/* A rank's done_step was read. */
void steps_shown(struct core *c, struct engine *e, uint32_t rank, uint64_t step);
/* What counts of it, anew: a request may have named a step that explains what a rank shows. */
void steps_count(struct core *c, struct engine *e);
/* Does the rank show a step that it cannot have reached (E7)? */
bool steps_jumped(const struct engine *e, uint32_t rank);
/* A request named the step: what is named is the measure for what ranks may show (E7). */
static inline void step_named(struct core *c, struct engine *e, uint64_t step)
{
    if (step <= e->named)
        return;
    e->named = step;
    waits_look(c, e);
    touch(c);
}

/* The connection waits no more. Nothing is answered. */
void wait_end(struct core *c, struct conn *cn);
/* The same where it leaves its engine: what it waits for is answered GONE. There must be room. */
void wait_gone(struct core *c, struct actions *out, struct conn *cn);
bool waits_flush(struct core *c, struct actions *out); /* false: work is left for want of room */

#endif
