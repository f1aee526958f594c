/* The audit of the pages that eviction can free (daemon/core/tree/obtain.h): it recomputes every
 * counter from the nodes. The values of a node that waits in its pool's list may be out of date,
 * but its ancestors agree with those values. See audit.h. */
#include "oracle/audit.h"

#include "core/tree/nodes.h"
#include "core/tree/state.h"

static bool there(const struct node *n, enum tier tier)
{
    return tier == TIER_DEVICE ? node_on_device(n) : node_on_host(n);
}

static bool held(const struct node *n, enum tier tier)
{
    bool writes_back = copy_goes_to(n, TIER_HOST) && n->work.copy != COPY_RUNNING;

    if (tier == TIER_HOST && n->refs[REF_HOST] > 0)
        return true; /* its copy may still be under way */
    if (!there(n, tier))
        return false;
    if (n->work.stores_due > 0 && (node_on_host(n) && !n->host_corrupt) == (tier == TIER_HOST))
        return true; /* D2: a store is due for it */
    if (tier == TIER_HOST)
        return n->work.copy != COPY_NONE || n->work.loaders > 0 || n->pending_engine != NONE;
    return n->nrefs > 0 || n->pending_engine != NONE || n->state.refilling || n->work.loaders > 0 ||
           (n->work.copy != COPY_NONE && !writes_back);
}

/* Returns whether the pages of a group may be evicted, given whether the node is `kept` there. */
static bool can_go(const struct core *c, const struct node *n, enum tier tier, uint32_t group,
                   bool kept)
{
    const struct pool *p = pool_at(c, n->pool);
    bool state = p->group[group].layout.family != FAMILY_HISTORY;

    if (n->group[group].pages[tier] == NONE)
        return false;
    return !kept || (tier == TIER_DEVICE && state && p->supersede != SUPERSEDE_OFF &&
                     n->state.borrowers == n->state.host_borrowers && n->depth > 0 &&
                     n->work.stores_due == 0 && audit_state_at_rest(c, n));
}

static void audit_kept(const struct core *c, uint32_t slot, enum tier tier)
{
    const struct node *n = node_at(c, slot);
    uint32_t kept = n->room.own[tier];
    bool passes = n->room.kept[tier] > 0;

    for (uint32_t at = n->children.head; at != NONE; at = child_list_next(c, at))
        kept += node_at(c, at)->room.passes[tier];
    if (tier == TIER_DEVICE)
        passes =
            n->room.in[tier] && (passes || (!n->room.in[TIER_HOST] && n->room.kept[TIER_HOST] > 0));
    if (kept != n->room.kept[tier] ||
        (n->room.passes[tier] != passes && n->room.changed.prev == NONE))
        oracle_fail("audit: T11: node %u counts %u that keep it on tier %u and has %u", slot,
                    n->room.kept[tier], tier, kept);
    if (n->room.changed.prev == NONE &&
        (n->room.in[tier] != there(n, tier) || n->room.own[tier] != held(n, tier)))
        oracle_fail("audit: T11: node %u, depth %u, on tier %u is known as %u %u and is %u %u; "
                    "%u refs, copy %u, %u loaders",
                    slot, n->depth, tier, n->room.in[tier], n->room.own[tier], there(n, tier),
                    held(n, tier), n->nrefs, n->work.copy, n->work.loaders);
}

/* Adds the node's evictable pages to the counts of their slabs. */
static void add_pages(const struct core *c, uint32_t slot, enum tier tier, uint32_t *of_slab)
{
    const struct node *n = node_at(c, slot);
    const struct pool *p = pool_at(c, n->pool);

    for (uint32_t g = 0; g < c->limits.groups; g++) {
        bool counted = n->room.counted[tier] & 1u << g;
        bool kept = n->room.kept[tier] > 0 ||
                    (tier == TIER_DEVICE && !n->room.in[TIER_HOST] && n->room.kept[TIER_HOST] > 0);
        bool go = g < p->ngroups && can_go(c, n, tier, g, kept);
        uint32_t at = n->group[g].pages[tier];

        if (counted != go && (n->room.changed.prev == NONE || (counted && at == NONE)))
            oracle_fail("audit: T11: node %u, depth %u, tier %u, group %u: its pages are %scounted",
                        slot, n->depth, tier, g, counted ? "" : "not ");
        for (; counted && at != NONE; at = page_list_next(c, at)) {
            const struct page *pg = page_at(c, at);
            const struct pool *own = pool_at(c, pg->pool);

            of_slab[own->slab_base + pg->index / own->group[g].pages_per_slab]++;
        }
    }
}

static void audit_pool_counts(const struct core *c, const struct pool *p, const uint32_t *of_slab)
{
    uint32_t pages[GROUPS_MAX] = {0}, loose[GROUPS_MAX] = {0};

    for (uint32_t i = p->slab_base + 1; i < p->slab_base + p->nslabs; i++) {
        const struct slab *s = slab_at(c, i);

        if (of_slab[i] != s->obtainable || (!s->assigned && s->obtainable > 0))
            oracle_fail("audit: T11: slab %u counts %u pages that may go and has %u", i,
                        s->obtainable, of_slab[i]);
        if (!s->assigned)
            continue;
        pages[s->group] += of_slab[i];
        loose[s->group] += s->nfree + of_slab[i] == p->group[s->group].pages_per_slab;
    }
    for (uint32_t g = 0; g < p->ngroups; g++)
        if (pages[g] != p->group[g].obtainable || loose[g] != p->group[g].loose)
            oracle_fail("audit: T11: pool %u group %u counts %u pages and %u slabs that may go, "
                        "and has %u and %u",
                        pool_slot(c, p), g, p->group[g].obtainable, p->group[g].loose, pages[g],
                        loose[g]);
}

void audit_obtain(struct audit *a)
{
    const struct core *c = a->c;
    uint32_t *of_slab = audit_scratch(c->limits.slabs, sizeof *of_slab), changed = 0, listed = 0;

    for (uint32_t i = 0; i < c->limits.nodes; i++) {
        if (!node_at(c, i)->used)
            continue;
        changed += node_at(c, i)->room.changed.prev != NONE;
        for (uint32_t t = 0; t < TIER_COUNT; t++) {
            if (pool_at(c, node_at(c, i)->pool)->tiers[t] != NONE)
                audit_kept(c, i, t);
            add_pages(c, i, t, of_slab);
        }
    }
    for (uint32_t i = 0; i < c->limits.pools; i++) {
        if (pool_at(c, i)->state == POOL_EMPTY)
            continue;
        listed += pool_at(c, i)->changed.n;
        audit_pool_counts(c, pool_at(c, i), of_slab);
    }
    if (changed != c->nchanged || listed != c->nchanged)
        oracle_fail("audit: %u nodes wait to be counted, %u are listed, %u counted", changed,
                    listed, c->nchanged);
}
