/* Eviction by slab (T12). Where STATE is short and only slabs of HISTORY can help, evicting by age
 * alone takes prefixes from many slabs and empties few, so session/room.c asks for a slab first.
 * Invariants: it evicts only nodes that evict_one would evict at some time, and for one slab no
 * more prefixes than the slab has pages; the choice depends on the pool's history alone (T13). */
#include "core/memory/pages.h"
#include "core/tree/nodes.h"

/* A slab, and how many prefixes its eviction removes; `most`: counting stops at this number. */
struct candidate {
    uint32_t slab, nodes, most;
};

/* Counts the node and all nodes below it. */
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

/* Returns true if the parent's page is in that slab, too: the node was counted below it. */
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
        last = pg->owner; /* a node's pages are mostly adjacent */
        count_below(c, last, s);
    }
}

/* A slab with very many pages is no candidate: a look at it would exceed a small piece of work. */
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

/* Returns a device leaf in the subtree: nothing below the node is held, so one may be evicted. */
static uint32_t leaf_below(struct core *c, uint32_t slot)
{
    for (; node_at(c, slot)->children_on[TIER_DEVICE] > 0; c->visits++)
        for (slot = node_at(c, slot)->children.head; !node_on_device(node_at(c, slot)); c->visits++)
            slot = child_list_next(c, slot);
    return slot;
}

/* Evicts the node and all below it on the device. Returns false if some of it stays. */
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
