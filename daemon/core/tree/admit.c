/* See admit.h. All is decided by counters: see obtain.h. */
#include "core/tree/admit.h"

#include "core/memory/pages.h"
#include "core/tree/obtain.h"

enum tern_err pages_admit(struct core *c, struct pool *p, const struct pool *room,
                          const uint32_t *need, evictor *evict, uint32_t *ret_short)
{
    if (pages_fit(c, room, need, ret_short))
        return TERN_OK;
    if (!obtain_settle(c, p))
        return TERN_BUSY;
    if (!pages_obtainable(room, need, ret_short))
        return TERN_POOL_EXHAUSTED;
    while (!pages_fit(c, room, need, ret_short)) {
        enum tern_err made = evict(c, p, need, *ret_short);

        if (made == TERN_BUSY || (made != TERN_OK && piece_over(c)))
            return TERN_BUSY;
        check(made == TERN_OK); /* it was counted as obtainable */
        if (piece_over(c) && !pages_fit(c, room, need, ret_short))
            return TERN_BUSY;
    }
    return TERN_OK;
}
