/* Making room on the device: what is evicted for which group, and what the answer says is missing
 * where there is not so much to evict (T4, T12, E4). tree/admit.h decides whether anything is. */
#include "core/session/room.h"

#include "core/memory/pages.h"
#include "core/session/retires.h"
#include "core/tree/admit.h"
#include "core/tree/nodes.h"
#include "core/tree/state.h"

static enum tern_err shortage_fill(struct core *c, struct engine *e, struct pool *p,
                                   const uint32_t *need, uint32_t group, struct shortage *ret)
{
    ret->group = group;
    ret->needed = need[group];
    ret->free = group_free(c, p, group);
    ret->evictable = p->group[group].obtainable;
    ret->retiring = p->group[group].count[PAGE_RETIRING];
    ret->until_step = retire_until(c, e, p, ret);
    return TERN_POOL_EXHAUSTED;
}

/* T12: superseded STATE first, wherever its pages help; a group of STATE takes STATE alone before
 * whole leaves, and those slab by slab, since what HISTORY gives up helps it only as whole slabs; a
 * group of HISTORY takes STATE only where no leaf may go. */
static bool make_some(struct core *c, struct pool *p, const uint32_t *need, uint32_t group)
{
    const struct group *g = &p->group[group];
    uint32_t used = g->held * g->pages_per_slab - g->count[PAGE_FREE];
    bool capped = g->layout.cap_pages && used + need[group] > g->layout.cap_pages;

    if (group_is_state(g))
        return evict_state(c, p) || (!capped && evict_slab(c, p)) || evict_one(c, p);
    return (p->reclaim.n > 0 && !capped && evict_state(c, p)) || evict_one(c, p) ||
           (!capped && evict_state(c, p));
}

enum tern_err pages_make_room(struct core *c, struct engine *e, struct pool *p,
                              const uint32_t *need, struct shortage *ret)
{
    uint32_t short_of;
    enum tern_err err = pages_admit(c, p, p, need, make_some, &short_of);

    if (err != TERN_POOL_EXHAUSTED)
        return err;
    return gives_back(c) ? TERN_BUSY : shortage_fill(c, e, p, need, short_of, ret);
}
