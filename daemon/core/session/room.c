/* Making room: evicting until every group has what is needed. Where that cannot be, nothing is
 * evicted, and the answer says what is missing (T4, T11, E4). Both are decided by counters: see
 * tree/obtain.h. */
#include "core/session/room.h"

#include "core/memory/pages.h"
#include "core/session/retires.h"
#include "core/tree/nodes.h"
#include "core/tree/state.h"

static enum tern_err shortage_fill(struct core *c, struct engine *e, struct pool *p,
                                   const uint32_t *need, uint32_t group, struct shortage *ret)
{
    ret->group = group;
    ret->needed = need[group];
    ret->free = group_free(c, p, group);
    ret->reclaimable = p->group[group].obtainable;
    ret->retiring = p->group[group].count[PAGE_RETIRING];
    ret->until_step = retire_until(c, e, p, ret);
    return TERN_POOL_EXHAUSTED;
}

/* T12: superseded STATE first, wherever its pages help; a group of STATE takes STATE alone before
 * whole leaves, and a group of HISTORY only where no leaf may go. */
static bool make_some(struct core *c, struct pool *p, const uint32_t *need, uint32_t group)
{
    const struct group *g = &p->group[group];
    uint32_t used = g->held * g->pages_per_slab - g->count[PAGE_FREE];
    bool capped = g->layout.cap_pages && used + need[group] > g->layout.cap_pages;

    if (group_is_state(g))
        return evict_state(c, p) || evict_one(c, p);
    return (p->reclaim.n > 0 && !capped && evict_state(c, p)) || evict_one(c, p) ||
           (!capped && evict_state(c, p));
}

enum tern_err pages_make_room(struct core *c, struct engine *e, struct pool *p,
                              const uint32_t *need, struct shortage *ret)
{
    uint32_t short_of;

    if (pages_fit(c, p, need, &short_of))
        return TERN_OK;
    if (!obtain_settle(c, p))
        return TERN_BUSY;
    if (!pages_obtainable(p, need, &short_of))
        return shortage_fill(c, e, p, need, short_of, ret);
    while (!pages_fit(c, p, need, &short_of)) {
        bool made = make_some(c, p, need, short_of);

        if (visits_left(c) == 0)
            return TERN_BUSY;
        check(made); /* it was counted as obtainable */
    }
    return TERN_OK;
}
