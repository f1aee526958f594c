/* Finds the reasons that keep a node, or its STATE, on a tier. See obtain.h. */
#include "core/tree/state.h" /* its inline functions */

/* A node that waits for its step stays: a retire record names it. A writeback that is not running
 * does not hold the node: a need for device pages ends it. */
static bool held_on_device(const struct node *n)
{
    bool gives_way = n->work.copy == COPY_NONE ||
                     (n->work.copy_from == TIER_DEVICE && n->work.copy != COPY_RUNNING);

    return n->nrefs > 0 || !node_visible(n) || n->state.refilling || n->work.loaders > 0 ||
           !gives_way;
}

/* A HOST ref holds the whole path on the host. A node that waits for its step is removed if its
 * engine dies; nodes that depend on it live on through its copy. */
static bool held_on_host(const struct node *n)
{
    bool used = n->work.copy != COPY_NONE || n->work.loaders > 0 || !node_visible(n);

    return n->refs[REF_HOST] > 0 || (node_on_host(n) && used);
}

bool node_pinned(const struct node *n, enum tier tier)
{
    return tier == TIER_DEVICE ? held_on_device(n) : held_on_host(n);
}

/* Like a HOST ref: it holds the copy on the host if there is one, otherwise the node on the device,
 * so ancestors that are only on the device stay too. */
static bool kept_for_store(const struct node *n, enum tier tier)
{
    bool host = node_on_host(n) && !n->host_corrupt;

    return n->work.stores_due > 0 && host == (tier == TIER_HOST);
}

bool node_held(const struct node *n, enum tier tier)
{
    return node_pinned(n, tier) || kept_for_store(n, tier);
}

bool node_kept_below(const struct node *n, enum tier tier)
{
    return n->room.kept[tier] > n->room.own[tier];
}

bool state_has(const struct core *c, const struct node *n)
{
    const struct pool *p = pool_at(c, n->pool);

    for (uint32_t g = 0; g < p->ngroups; g++)
        if (group_is_state(&p->group[g]) && n->group[g].pages[TIER_DEVICE] != NONE)
            return true;
    return false;
}

/* Returns true if a copy between the tiers reads or writes its STATE, or a load needs it. */
static bool in_copy(const struct core *c, const struct node *n)
{
    const struct pool *p = pool_at(c, n->pool);

    for (uint32_t g = 0; g < p->ngroups && n->work.copy != COPY_NONE; g++)
        if (group_is_state(&p->group[g]) && n->group[g].copying != NONE)
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
    return n->state.borrowers == n->state.host_borrowers && n->depth > 0 &&
           n->work.stores_due == 0 && state_settled(c, n) && state_has(c, n);
}
