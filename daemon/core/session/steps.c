/* Which steps of an engine are done. Each rank shows a number in its control page, where anything
 * may be written; requests name the steps that matter. Called with each reading and after each
 * request. What must stay true: a step counts as done only if every rank has shown it, or a later
 * one that is no jump (E2, E7). */
#include "core/session/steps.h"

#include "core/session/retires.h"

bool steps_jumped(const struct engine *e, uint32_t rank)
{
    return e->shown[rank] > e->named && e->shown[rank] - e->named > STEPS_UNNAMED_MAX;
}

/* E7: a reading that jumped proves nothing. Everything that waits has been named, so the jump would
 * free all of it. */
void steps_count(struct core *c, struct engine *e)
{
    uint64_t min = UINT64_MAX;

    for (uint32_t r = 0; r < e->world; r++) {
        if (!steps_jumped(e, r))
            e->done[r] = e->shown[r];
        if (e->done[r] < min)
            min = e->done[r];
    }
    if (min == e->done_min)
        return;
    e->done_min = min;
    e->waits_since_ns = c->now_ns;
    retire_advance(c, e);
}

void steps_shown(struct core *c, struct engine *e, uint32_t rank, uint64_t step)
{
    if (step == e->shown[rank])
        return;
    if (step < e->done[rank]) { /* E2: numbers never go back */
        c->errors[TERN_INVALID]++;
        return;
    }
    e->shown[rank] = step;
    e->jumps += steps_jumped(e, rank);
    touch(c);
    steps_count(c, e);
}
