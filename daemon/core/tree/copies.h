/* A node's copy to the other tier, as far as the tree is concerned: its direction, its destination
 * pages, and its end where the node leaves the tree or the device. tier/ makes the copies.
 * Invariant: the pages of a copy are COPYING, on the host for a writeback and on the device for a
 * load-back, and remain invisible until the copy is acknowledged and, on the device, the node's
 * parent is there (T16). */
#ifndef CORE_COPIES_H
#define CORE_COPIES_H

#include "core/arena/arena.h"

/* Returns true if the node has a copy in any state that writes that tier. */
static inline bool copy_goes_to(const struct node *n, enum tier tier)
{
    return n->work.copy != COPY_NONE && n->work.copy_to == (uint32_t)tier;
}

/* Returns true if that copy is acknowledged and waits for the node's parent. */
static inline bool copy_has_come(const struct node *n, enum tier tier)
{
    return n->work.copy == COPY_DONE && n->work.copy_to == (uint32_t)tier;
}

/* Adds the pages that a copy writes to need[]; groups: a bit for each group that it copies. */
void copy_pages_count(const struct pool *p, uint32_t groups, uint32_t *need);
/* Takes these pages out of the caller's promised[], so that its copy can begin at once. Returns
 * false if the copy writes more than was promised and there is no room. */
bool copy_pages_promised(struct pool *p, uint32_t groups, uint32_t *promised);
/* Takes the destination pages of a copy. There must be room. state: QUEUED, or WAITING if the copy
 * has to wait first. */
void copy_begin(struct core *c, uint32_t slot, enum tier to, uint32_t groups,
                enum copy_state state);
/* Makes the copy's pages the node's on the destination tier. */
void copy_pages_attach(struct core *c, uint32_t slot);
void copy_pages_free(struct core *c, struct node *n);
/* Ends a copy without a running job: its node is about to be destroyed or to leave the device. */
void copy_forget(struct core *c, uint32_t slot);
/* Removes a node that is queued for a job from its tenant's queue. */
void copy_unqueue(struct core *c, uint32_t slot);

#endif
