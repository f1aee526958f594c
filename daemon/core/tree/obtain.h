/* What eviction could bring, kept as things change, so that a request for which there is not enough
 * is refused before anything was evicted (T11), and its answer costs no walk (E4).
 *
 * Which counter changes where:
 *
 * - node.room.changed: whoever changes something of a node that decides whether it may go (a pin, a
 *   step that is waited for, a copy, a load, a borrower, pages) calls node_changed afterwards. That
 *   is O(1) at any depth (T20): it puts the node into its pool's list.
 * - node.room.own, in: for each tier, is the node itself held there, and is it there at all? As it
 *   was when the node left that list last.
 * - node.room.kept: for each tier, `own`, and the children that pass on that they are kept. Neither
 *   a node that is kept nor anything above it can be evicted. What is kept on the host, and has no
 *   copy there, is kept on the device.
 * - node.room.passes: for each tier, it is kept, on the device also there, and is so counted by its
 *   parent.
 *   obtain_settle brings all of them up to date, from the node upwards to the first ancestor for
 *   which nothing changes.
 * - node.room.counted: the groups, as bits for each tier, whose pages of the node are among the
 *   three counters below. Pages leave them before they are freed (obtain_forget_group,
 *   obtain_forget_tier).
 * - slab.obtainable: pages of the slab that eviction would free.
 * - group.obtainable: the same of the group: what a shortage calls evictable.
 * - group.loose: slabs that the group would give back if all of that were evicted. page_take and
 *   page_free keep it up, too: see pages.c.
 *
 * Who wants to evict calls obtain_settle first. A list that has grown long is shortened at the end
 * of each step, and worked off where an operator looks (obtain_flush), so nobody finds much to do.
 */
#ifndef CORE_OBTAIN_H
#define CORE_OBTAIN_H

#include "core/memory/pages.h"

/* To be called after each such change; more often does no harm. */
static inline void node_changed(struct core *c, uint32_t slot)
{
    if (node_at(c, slot)->room.changed.prev != NONE)
        return;
    changed_list_push(c, &pool_at(c, node_at(c, slot)->pool)->changed, slot);
    c->nchanged++;
}

/* Does something that works with the node itself hold it on the tier, if it is there? */
bool node_pinned(const struct node *n, enum tier tier);
/* The same, or is that copy kept for a store that is due? */
bool node_held(const struct node *n, enum tier tier);
/* Does something below it keep it there? As obtain_settle has found. */
bool node_kept_below(const struct node *n, enum tier tier);

bool state_has(const struct core *c, const struct node *n); /* of any STATE group */
/* Has its writer passed, so that nobody but a match can read its STATE? */
bool state_settled(const struct core *c, const struct node *n);
/* May its STATE go, while the node stays: does nobody borrow it, and has its writer passed? */
bool state_droppable(const struct core *c, const struct node *n);

/* Could eviction bring so many pages of the group more than the obtainable ones once the checksum
 * jobs and copies that are queued or run have ended, and the stores that are due? These end by
 * themselves. Where they hold more nodes than a refusal looks at, it could: some of them end before
 * the next one. */
bool obtain_later(struct core *c, uint32_t group, const struct pool *p, uint32_t missing);

/* Updates the counters of a device pool and its host tier. False: the step has no visits left. */
bool obtain_settle(struct core *c, struct pool *p);
/* Shortens the lists of all pools to so many nodes together. False: there is more to do. */
bool obtain_flush(struct core *c, uint32_t most);

/* The pages of one group, or all pages of a tier, are about to leave the node. */
void obtain_forget_group(struct core *c, uint32_t slot, enum tier tier, uint32_t group);
void obtain_forget_tier(struct core *c, uint32_t slot, enum tier tier);
/* The node is about to leave the tree. */
void obtain_forget(struct core *c, uint32_t slot);

#endif
