/* What eviction could bring. See obtain.h. */
#include "core/tree/obtain.h"

#include "core/tree/copies.h"
#include "core/tree/state.h" /* what is inline there */

/* A node that waits for its step stays: a retire record names it. A writeback that does not run
 * gives way to who needs the device's pages. */
static bool held_on_device(const struct node *n)
{
    bool gives_way = n->work.copy == COPY_NONE ||
                     (n->work.copy_from == TIER_DEVICE && n->work.copy != COPY_RUNNING);

    return n->nrefs > 0 || !node_visible(n) || n->state.refilling || n->work.loaders > 0 ||
           !gives_way;
}

static bool held_on_host(const struct node *n)
{
    return n->refs[REF_HOST] > 0 || n->work.copy != COPY_NONE || n->work.loaders > 0;
}

bool node_held(const struct node *n, enum tier tier)
{
    return tier == TIER_DEVICE ? held_on_device(n) : held_on_host(n);
}

bool node_in_tier(const struct node *n, enum tier tier)
{
    return tier == TIER_DEVICE ? node_on_device(n) : node_on_host(n) || copy_goes_to(n, TIER_HOST);
}

bool state_has(const struct core *c, const struct node *n)
{
    const struct pool *p = pool_at(c, n->pool);

    for (uint32_t g = 0; g < p->ngroups; g++)
        if (group_is_state(&p->group[g]) && n->tier[TIER_DEVICE].pages[g] != NONE)
            return true;
    return false;
}

/* Does a copy between the tiers read or write its STATE, or a load need it? */
static bool in_copy(const struct core *c, const struct node *n)
{
    const struct pool *p = pool_at(c, n->pool);

    for (uint32_t g = 0; g < p->ngroups && n->work.copy != COPY_NONE; g++)
        if (group_is_state(&p->group[g]) && n->work.copy_pages[g] != NONE)
            return true;
    return n->work.loaders > 0;
}

bool state_settled(const struct core *c, const struct node *n)
{
    return node_visible(n) && !n->state.refilling && n->work.seal != SEAL_QUEUED &&
           n->work.seal != SEAL_RUNNING && !in_copy(c, n);
}

bool state_droppable(const struct core *c, const struct node *n)
{
    return n->state.borrowers == n->state.host_borrowers && n->depth > 0 && state_settled(c, n) &&
           state_has(c, n);
}

/* --- pages --- */

static void count(struct core *c, uint32_t slot, enum tier tier, uint32_t group, bool in)
{
    struct node *n = node_at(c, slot);
    struct pool *p = pool_at(c, pool_at(c, n->pool)->tiers[tier]);

    n->room.counted[tier] ^= 1u << group;
    for (uint32_t at = n->tier[tier].pages[group]; at != NONE; at = page_list_next(c, at))
        page_obtainable(c, p, at, in);
}

/* Could eviction bring the node's pages of this group? STATE can go without its node. */
static bool may_go(const struct core *c, const struct node *n, enum tier tier, uint32_t group)
{
    const struct pool *p = pool_at(c, n->pool);

    if (n->tier[tier].pages[group] == NONE)
        return false;
    return n->room.kept[tier] == 0 || (tier == TIER_DEVICE && group_is_state(&p->group[group]) &&
                                       p->supersede != SUPERSEDE_OFF && state_droppable(c, n));
}

static void recount(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);
    const struct pool *p = pool_at(c, n->pool);

    for (uint32_t t = 0; t < TIER_COUNT; t++)
        for (uint32_t g = 0; g < p->ngroups && p->tiers[t] != NONE; g++) {
            bool go = may_go(c, n, t, g);

            if (go != !!(n->room.counted[t] & 1u << g))
                count(c, slot, t, g, go);
        }
}

void obtain_forget_group(struct core *c, uint32_t slot, enum tier tier, uint32_t group)
{
    if (node_at(c, slot)->room.counted[tier] & 1u << group)
        count(c, slot, tier, group, false);
}

/* --- what keeps a node --- */

/* Tells the ancestors, where the node is kept now and was not, or the other way round. */
static void pass_on(struct core *c, uint32_t slot, enum tier tier)
{
    for (uint32_t at = slot;;) {
        struct node *n = node_at(c, at);
        bool passes = n->room.in[tier] && n->room.kept[tier] > 0;

        c->visits++;
        recount(c, at);
        if (passes == n->room.passes[tier])
            return;
        n->room.passes[tier] = passes;
        at = n->parent;
        if (at == NONE)
            return;
        node_at(c, at)->room.kept[tier] += passes ? 1 : -1u;
    }
}

static void set_own(struct core *c, uint32_t slot, enum tier tier, bool in, bool held)
{
    struct node_room *r = &node_at(c, slot)->room;

    r->kept[tier] += (uint32_t)held - r->own[tier];
    r->own[tier] = held;
    r->in[tier] = in;
    pass_on(c, slot, tier);
}

static void changed_take(struct core *c, uint32_t slot)
{
    changed_list_remove(c, &pool_at(c, node_at(c, slot)->pool)->changed, slot);
    c->nchanged--;
}

static void settle_node(struct core *c, uint32_t slot)
{
    const struct node *n = node_at(c, slot);
    const struct pool *p = pool_at(c, n->pool);

    changed_take(c, slot);
    for (uint32_t t = 0; t < TIER_COUNT; t++)
        if (p->tiers[t] != NONE)
            set_own(c, slot, t, node_in_tier(n, t), node_in_tier(n, t) && node_held(n, t));
}

bool obtain_settle(struct core *c, struct pool *p)
{
    while (p->changed.n > 0) {
        if (visits_left(c) == 0)
            return false;
        settle_node(c, p->changed.head);
    }
    return true;
}

bool obtain_flush(struct core *c)
{
    uint32_t end = c->visits + PIECE_VISITS_MAX;

    for (uint32_t i = 0; i < c->limits.pools && c->nchanged > CHANGED_MAX; i++)
        while (pool_at(c, i)->changed.n > 0 && c->nchanged > CHANGED_MAX) {
            if (c->visits >= end || visits_left(c) == 0)
                return false;
            settle_node(c, pool_at(c, i)->changed.head);
        }
    return true;
}

static void leave(struct core *c, uint32_t slot, enum tier tier)
{
    const struct node_room *r = &node_at(c, slot)->room;

    if (r->own[tier] || r->in[tier])
        set_own(c, slot, tier, false, false);
}

static void forget_groups(struct core *c, uint32_t slot, enum tier tier)
{
    for (uint32_t g = 0; g < GROUPS_MAX; g++)
        obtain_forget_group(c, slot, tier, g);
}

void obtain_forget_tier(struct core *c, uint32_t slot, enum tier tier)
{
    leave(c, slot, tier);
    forget_groups(c, slot, tier);
}

void obtain_forget(struct core *c, uint32_t slot)
{
    for (uint32_t t = 0; t < TIER_COUNT; t++)
        leave(c, slot, t);
    for (uint32_t t = 0; t < TIER_COUNT; t++)
        forget_groups(c, slot, t); /* after both: what leaves counts anew */
    for (uint32_t t = 0; t < TIER_COUNT; t++)
        check(node_at(c, slot)->room.kept[t] == 0);
    if (node_at(c, slot)->room.changed.prev != NONE)
        changed_take(c, slot);
}
