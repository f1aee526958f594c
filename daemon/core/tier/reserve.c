/* The reserve of a pool with write-behind: the nodes that leave the device next, in eviction order,
 * each with a host copy or with one under way. Eviction takes these nodes first and loses nothing.
 * A request that needs more than the reserve waits for copies of the rest (session/room.c). A node
 * that is used leaves the reserve, and its ancestors with it. Invariant: all children on the device
 * of a node in the reserve are in the reserve. */
#include "core/tier/host.h"
#include "core/tree/nodes.h"

/* One in so many nodes of the device is in the reserve. A node in the reserve uses room on both
 * tiers, so a larger reserve costs room on the host. */
#define RESERVE_PART 64

static uint32_t wanted(const struct pool *p)
{
    uint32_t part = p->resident / RESERVE_PART;

    return part > 0 ? part : 1;
}

/* Adds one node, or skips one that cannot be copied now. Returns false if no node can join. */
static bool fill_one(struct core *c, struct pool *p)
{
    uint32_t slot = evict_next_of(c, p, HEAP_NEXT);
    const struct node *n;

    if (slot == NONE)
        return false;
    n = node_at(c, slot);
    if (!node_on_host(n) || n->host_corrupt) {
        if (!writeback_ready(c, slot)) {
            reserve_skip(c, slot);
            return true;
        }
        if (!writeback_if_room(c, slot))
            return false;
    }
    reserve_join(c, slot);
    return true;
}

bool reserve_ahead(struct core *c, struct pool *p, uint32_t nodes)
{
    while (p->reserved < nodes && visits_left(c) > 0 && fill_one(c, p))
        ;
    return p->writebacks > 0;
}

/* Returns true during an operator's eviction, whose nodes must not be copied first. */
static bool evicting(const struct core *c)
{
    for (uint32_t i = 0; i < EVICTIONS_MAX; i++)
        if (c->eviction[i].on)
            return true;
    return false;
}

/* A load needs its pages on both tiers until the copies from the host have ended, and then frees
 * room. The reserve waits for the end of a pool's loads instead of evicting pages that exist only
 * once. A piece is counted in nodes that joined or were skipped. A pool that finds no room on the
 * host uses nothing of the piece, so the pools behind it have their turn. */
bool reserve_flush(struct core *c)
{
    uint32_t most = c->limits.give_back_visits ? c->limits.give_back_visits : RESERVE_NODES_MAX;

    if ((!c->touched && !c->left_over) || evicting(c))
        return true;
    for (uint32_t i = 0; i < c->limits.pools; i++) {
        struct pool *p = pool_at(c, i);

        if (p->state != POOL_OPEN || p->tier != TIER_DEVICE || !writes_behind(p) || p->loads > 0)
            continue;
        while (p->reserved < wanted(p)) {
            if (most == 0 || visits_left(c) == 0)
                return false;
            if (!fill_one(c, p))
                break;
            most--;
        }
    }
    return true;
}
