/* How many pages eviction could free, counted as things change: a request that cannot be met is
 * refused before anything is evicted (T11), and the answer needs no walk (E4).
 *
 * Which counter changes where:
 *
 * - node.room.changed: whoever changes a condition of a node's eviction (a pin, an awaited step, a
 *   copy, a load, a borrower, pages) calls node_changed afterwards. It is O(1) at any depth (T20):
 *   it adds the node to its pool's list.
 * - node.room.own, in: for each tier, whether the node itself is held there, and whether it is on
 *   that tier, as of when the node last left that list.
 * - node.room.kept: for each tier, `own` plus the children that pass on that they are kept. A kept
 *   node and its ancestors cannot be evicted. A node that is kept on the host but has no copy there
 *   is kept on the device.
 * - node.room.passes: for each tier, whether the node is kept (on the device: also present), and so
 *   counted by its parent. obtain_settle updates all of these, from the node up to the first
 *   ancestor for which nothing changes.
 * - node.room.counted: for each tier, bits of the groups whose pages of the node are in the three
 *   counters below. Pages leave these before they are freed (obtain_forget_group,
 *   obtain_forget_tier).
 * - slab.obtainable: pages of the slab that eviction would free.
 * - group.obtainable: the same for the group: what a shortage calls evictable.
 * - group.loose: slabs that the group would release if all of those were evicted. page_take and
 *   page_free update it, too: see pages.c.
 *
 * Call obtain_settle before evicting. obtain_flush shortens long lists at the end of each step, and
 * settles all where an operator looks, so there is never much left to do. */
#ifndef CORE_OBTAIN_H
#define CORE_OBTAIN_H

#include "core/memory/pages.h"

/* Call it after each such change; extra calls do no harm. */
static inline void node_changed(struct core *c, uint32_t slot)
{
    if (node_at(c, slot)->room.changed.prev != NONE)
        return;
    changed_list_push(c, &pool_at(c, node_at(c, slot)->pool)->changed, slot);
    c->nchanged++;
}

/* Returns true if something that uses the node itself holds it on the tier, if it is there. */
bool node_pinned(const struct node *n, enum tier tier);
/* The same; also true if that copy is kept for a due store. */
bool node_held(const struct node *n, enum tier tier);
/* Returns true if a node below keeps it there, as of the last obtain_settle. */
bool node_kept_below(const struct node *n, enum tier tier);

bool state_has(const struct core *c, const struct node *n); /* any STATE group */
/* Returns true if its writer's step has passed: only a match can read its STATE. */
bool state_settled(const struct core *c, const struct node *n);
/* Returns true if its STATE may be freed alone: nobody borrows it, and its writer has passed. */
bool state_droppable(const struct core *c, const struct node *n);

/* Returns true if eviction could free `missing` more pages of the group, beyond the obtainable
 * ones, once the queued and running checksum jobs and copies and the due stores have ended. These
 * end by themselves. Also returns true if they hold more nodes than a refusal looks at: some end
 * before the next one. */
bool obtain_later(struct core *c, uint32_t group, const struct pool *p, uint32_t missing);

/* Updates the counters of a device pool and its host tier. Returns false if the step has no visits
 * left. */
bool obtain_settle(struct core *c, struct pool *p);
/* Shortens the lists of all pools to `most` nodes together. Returns false if work is left. */
bool obtain_flush(struct core *c, uint32_t most);

/* Call before the pages of one group, or all pages of a tier, leave the node. */
void obtain_forget_group(struct core *c, uint32_t slot, enum tier tier, uint32_t group);
void obtain_forget_tier(struct core *c, uint32_t slot, enum tier tier);
/* Call before the node leaves the tree. */
void obtain_forget(struct core *c, uint32_t slot);

/* Admission of pages to a pool of either tier: the only place that decides whether room is made.
 * Invariant: nothing is evicted where enough room cannot be made (T11). The caller chooses what is
 * evicted, and in which order: session/room.c for the device, tier/writeback.c for the host. */

/* Evicts from `p`'s tree because `group` lacks pages of need[]. BUSY: the next victim is copied
 * first, and nothing was freed. POOL_EXHAUSTED: there is nothing to evict. */
typedef enum tern_err evictor(struct core *c, struct pool *p, const uint32_t *need, uint32_t group);

/* Pages of each group: those requested, and those that the requester already has (NULL: none). */
struct page_need {
    const uint32_t *need, *held;
};

/* Makes need[g] pages of each group free in `room`, which is `p` or a tier of it. ret->group is a
 * group that lacks pages and ret->needed its need. QUOTA: `need` and `held` together would not fit
 * even if the pool were empty; ret->free is the number of pages that would. POOL_EXHAUSTED: too
 * little can be evicted, and nothing was. BUSY: it would take more than one step may do, or the
 * evictor returned BUSY; evicted pages stay evicted, and a repetition continues: at once if
 * ret->goes_on. */
enum tern_err pages_admit(struct core *c, struct pool *p, const struct pool *room,
                          struct page_need n, evictor *evict, struct shortage *ret);

#endif
