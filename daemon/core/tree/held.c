/* What holds a node where it is, or its STATE. See obtain.h. */
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

/* A HOST ref holds the whole path on the host. A node that waits for its step goes if its engine
 * dies; what hangs on it lives on by its copy. */
static bool held_on_host(const struct node *n)
{
    bool used = n->work.copy != COPY_NONE || n->work.loaders > 0 || !node_visible(n);

    return n->refs[REF_HOST] > 0 || (node_on_host(n) && used);
}

bool node_pinned(const struct node *n, enum tier tier)
{
    return tier == TIER_DEVICE ? held_on_device(n) : held_on_host(n);
}

/* As a HOST ref does it: on the host if it has a copy there, else on the device, so that what is
 * above it on the device alone stays too. */
static bool kept_for_store(const struct node *n, enum tier tier)
{
    bool host = node_on_host(n) && !n->tier[TIER_HOST].corrupt;

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

/* Does a copy between the tiers read or write its STATE, or a load need it? */
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
