/* Making room: evicting until every group has what is needed, and saying what is missing where it
 * cannot (T4, T11, E4). */
#include "core/session/room.h"

#include "core/memory/pages.h"
#include "core/session/retires.h"
#include "core/tree/nodes.h"
#include "core/tree/state.h"

static void shortage_fill(struct core *c, struct engine *e, struct pool *p, const uint32_t *need,
                          uint32_t group, struct shortage *ret)
{
    ret->group = group;
    ret->needed = need[group];
    ret->free = group_free(c, p, group);
    ret->reclaimable = evict_count(c, p, group);
    ret->retiring = p->group[group].count[PAGE_RETIRING];
    ret->until_step = retire_until(c, e, p, ret);
}

/* What a group could have if every prefix were evicted: a request above it must not cost anyone a
 * prefix (T11). */
static uint32_t most_for_group(const struct pool *p, uint32_t group)
{
    const struct group *g = &p->group[group];
    uint32_t most = (p->nslabs - 1) * g->pages_per_slab;
    uint32_t kept = g->held * g->pages_per_slab - g->count[PAGE_FREE] - g->count[PAGE_COMMITTED];

    if (g->layout.cap_pages && g->layout.cap_pages < most)
        most = g->layout.cap_pages;
    return most > kept ? most - kept : 0;
}

/* T12: superseded STATE first, wherever its pages help; a group of STATE takes STATE alone before
 * whole leaves. */
static bool make_some(struct core *c, struct pool *p, const uint32_t *need, uint32_t group)
{
    const struct group *g = &p->group[group];
    uint32_t used = g->held * g->pages_per_slab - g->count[PAGE_FREE];
    bool capped = g->layout.cap_pages && used + need[group] > g->layout.cap_pages;

    if (group_is_state(g))
        return evict_state(c, p) || evict_one(c, p);
    return (p->reclaim.n > 0 && !capped && evict_state(c, p)) || evict_one(c, p);
}

enum tern_err pages_make_room(struct core *c, struct engine *e, struct pool *p,
                              const uint32_t *need, struct shortage *ret)
{
    uint32_t short_of;

    for (uint32_t g = 0; g < p->ngroups; g++)
        if (need[g] > most_for_group(p, g)) {
            shortage_fill(c, e, p, need, g, ret);
            return TERN_POOL_EXHAUSTED;
        }
    while (!pages_fit(c, p, need, &short_of))
        if (!make_some(c, p, need, short_of)) {
            shortage_fill(c, e, p, need, short_of, ret);
            return TERN_POOL_EXHAUSTED;
        }
    return TERN_OK;
}
