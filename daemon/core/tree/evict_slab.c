/* Evicting by slab (T12). Where STATE is short and nothing but slabs of HISTORY can help, evicting
 * by age alone takes prefixes of many slabs and empties few. session/room.c asks for a slab first.
 * What must stay true: only what evict_one would take at some time goes, and for one slab no more
 * prefixes than it has pages; the choice depends on the pool's history alone (T13). */
#include "core/memory/pages.h"
#include "core/tree/nodes.h"

/* A slab, and how many prefixes go with it; `most`: as many or more are not counted. */
struct candidate {
    uint32_t slab, nodes, most;
};

/* The node and all below it. */
static void count_below(struct core *c, uint32_t top, struct candidate *s)
{
    uint32_t at = top;

    while (++s->nodes < s->most) {
        c->visits++;
        if (node_at(c, at)->children.n > 0) {
            at = node_at(c, at)->children.head;
            continue;
        }
        while (at != top && child_list_next(c, at) == NONE)
            at = node_at(c, at)->parent;
        if (at == top)
            break;
        at = child_list_next(c, at);
    }
}

static uint32_t first_page(const struct pool *p, uint32_t slab)
{
    return p->page_base + (slab - p->slab_base) * p->pages_per_slab_max;
}

/* Is the parent's page of the group in that slab, too? Then the node was counted below it. */
static bool parent_inside(const struct core *c, const struct node *n, uint32_t slab)
{
    const struct pool *p = pool_at(c, n->pool);
    uint32_t group = slab_at(c, slab)->group, first = first_page(p, slab);
    uint32_t at = node_at(c, n->parent)->group[group].pages[TIER_DEVICE];

    return at != NONE && at >= first && at < first + p->group[group].pages_per_slab;
}

static void count_prefixes(struct core *c, const struct pool *p, struct candidate *s)
{
    uint32_t first = first_page(p, s->slab), last = NONE;
    uint32_t pages = p->group[slab_at(c, s->slab)->group].pages_per_slab;

    for (uint32_t i = 0; i < pages && s->nodes < s->most; i++) {
        const struct page *pg = page_at(c, first + i);

        c->visits++;
        if (pg->state == PAGE_FREE || pg->owner == last ||
            parent_inside(c, node_at(c, pg->owner), s->slab))
            continue;
        last = pg->owner; /* a node's pages lie side by side, most often */
        count_below(c, last, s);
    }
}

/* A slab of very many pages is no candidate: looking at it would be no small piece of work. */
static void look(struct core *c, const struct pool *p, const struct group *g, uint32_t end,
                 struct candidate *best)
{
    uint32_t pages = g->pages_per_slab, looks = 0;

    if (g->layout.family != FAMILY_HISTORY || g->loose == 0 || pages > PIECE_VISITS_MAX)
        return;
    for (uint32_t at = g->partial.head; at != NONE && looks < SLAB_LOOKS_MAX && c->visits < end;
         at = slab_list_next(c, at), looks++) {
        struct candidate s = {.slab = at, .most = best->nodes <= pages ? best->nodes : pages + 1};

        c->visits++;
        if (!slab_loose(slab_at(c, at), g))
            continue;
        count_prefixes(c, p, &s);
        if (s.nodes < s.most)
            *best = s;
    }
}

/* Nothing below the node is held, so some leaf of the device there may go. */
static uint32_t leaf_below(struct core *c, uint32_t slot)
{
    for (; node_at(c, slot)->tier[TIER_DEVICE].children > 0; c->visits++)
        for (slot = node_at(c, slot)->children.head; !node_on_device(node_at(c, slot)); c->visits++)
            slot = child_list_next(c, slot);
    return slot;
}

/* The node and all of the device below it. False: something of it stays. */
static bool evict_from(struct core *c, uint32_t top)
{
    for (uint32_t at = top, parent; visits_left(c) > 0; at = parent) {
        at = leaf_below(c, at);
        parent = node_at(c, at)->parent;
        c->visits++;
        if (!evict_leaf(c, at))
            return false;
        if (at == top)
            return true;
    }
    return false;
}

bool evict_slab(struct core *c, struct pool *p)
{
    const uint64_t before = p->figures.v[FIGURE_EVICTED_NODES];
    uint32_t first, end = c->visits + PIECE_VISITS_MAX;
    struct candidate best = {.slab = NONE, .nodes = NONE};

    for (uint32_t g = 0; g < p->ngroups; g++)
        look(c, p, &p->group[g], end, &best);
    if (best.slab == NONE)
        return false;
    first = first_page(p, best.slab);
    for (uint32_t i = 0; slab_at(c, best.slab)->assigned; i++)
        if (page_at(c, first + i)->state != PAGE_FREE &&
            !evict_from(c, page_at(c, first + i)->owner))
            break;
    return p->figures.v[FIGURE_EVICTED_NODES] > before;
}
