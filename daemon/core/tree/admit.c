/* See obtain.h. Counters alone decide: see obtain.h. */

#include "core/memory/pages.h"
#include "core/tree/obtain.h"

static bool never_fits(const struct pool *room, struct page_need n, struct shortage *ret)
{
    uint32_t all[GROUPS_MAX], group, most;

    for (uint32_t g = 0; g < room->ngroups; g++)
        all[g] = n.need[g] + (n.held ? n.held[g] : 0);
    if (pages_possible(room, all, &group, &most))
        return false;
    *ret = (struct shortage){.group = group, .needed = all[group], .free = most};
    return true;
}

static enum tern_err busy(const struct core *c, struct shortage *ret)
{
    ret->goes_on = piece_over(c);
    return TERN_BUSY;
}

enum tern_err pages_admit(struct core *c, struct pool *p, const struct pool *room,
                          struct page_need n, evictor *evict, struct shortage *ret)
{
    const uint32_t *need = n.need;
    uint32_t short_of;

    if (pages_fit(room, false, need, &short_of))
        return TERN_OK;
    if (never_fits(room, n, ret))
        return TERN_QUOTA;
    if (!obtain_settle(c, p))
        return busy(c, ret);
    if (!pages_fit(room, true, need, &short_of)) {
        *ret = (struct shortage){.group = short_of, .needed = need[short_of]};
        return TERN_POOL_EXHAUSTED;
    }
    while (!pages_fit(room, false, need, &short_of)) {
        enum tern_err made = evict(c, p, need, short_of);

        if (made == TERN_BUSY || (made != TERN_OK && piece_over(c)))
            return busy(c, ret);
        check(made == TERN_OK); /* it was counted as obtainable */
        if (piece_over(c) && !pages_fit(room, false, need, &short_of))
            return busy(c, ret);
    }
    return TERN_OK;
}
