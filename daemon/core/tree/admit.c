/* See admit.h. All is decided by counters: see obtain.h. */
#include "core/tree/admit.h"

#include "core/memory/pages.h"
#include "core/tree/obtain.h"

enum tern_err pages_admit(struct core *c, struct pool *p, const struct pool *room,
                          const uint32_t *need, evictor *evict, uint32_t *ret_short)
{
    const uint32_t end = c->visits + GIVE_BACK_VISITS_MAX;

    if (pages_fit(c, room, need, ret_short))
        return TERN_OK;
    if (!obtain_settle(c, p))
        return TERN_BUSY;
    if (!pages_obtainable(room, need, ret_short))
        return TERN_POOL_EXHAUSTED;
    while (!pages_fit(c, room, need, ret_short)) {
        enum tern_err made = evict(c, p, need, *ret_short);

        if (visits_left(c) == 0 || made == TERN_BUSY)
            return TERN_BUSY;
        check(made == TERN_OK); /* it was counted as obtainable */
        if (c->visits >= end && !pages_fit(c, room, need, ret_short))
            return TERN_BUSY;
    }
    return TERN_OK;
}
