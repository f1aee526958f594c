/* A node's copy to the other tier, as far as the tree must know of it: which way it goes, the pages
 * that it writes, and its end where the node leaves the tree or the device. Who makes copies is
 * tier/. What must stay true: the pages of a copy are COPYING, of the host for a writeback and of
 * the device for a load-back, and nobody sees them until the copy is acknowledged and, on the
 * device, the node's parent is there (T16). */
#ifndef CORE_COPIES_H
#define CORE_COPIES_H

#include "core/arena/arena.h"

/* Is there a copy of it that writes that tier, in any state? */
static inline bool copy_goes_to(const struct node *n, enum tier tier)
{
    return n->work.copy != COPY_NONE && n->work.copy_to == (uint32_t)tier;
}

/* Is that acknowledged, and waits for the node's parent? */
static inline bool copy_has_come(const struct node *n, enum tier tier)
{
    return n->work.copy == COPY_DONE && n->work.copy_to == (uint32_t)tier;
}

/* Adds the pages that a copy of a node writes; groups: a bit for each that it copies. */
void copy_pages_count(const struct pool *p, uint32_t groups, uint32_t *need);
/* The same of who has such pages promised: those are not promised any more, and the copy can begin
 * at once. False: it writes more than was promised, and there is no room. */
bool copy_pages_promised(const struct core *c, struct pool *p, uint32_t groups, uint32_t *promised);
/* Gives a copy the pages that it will write. There must be room. QUEUED: nothing has to be waited
 * for, else WAITING. */
void copy_begin(struct core *c, uint32_t slot, enum tier to, uint32_t groups,
                enum copy_state state);
/* The copy's pages become the node's on the tier that was written. */
void copy_pages_attach(struct core *c, uint32_t slot);
void copy_pages_free(struct core *c, struct node *n);
/* Ends a copy that no job works on: its node is about to be destroyed or to leave the device. */
void copy_forget(struct core *c, uint32_t slot);
/* Takes a node that is queued for a job out of its tenant's queue. */
void copy_unqueue(struct core *c, uint32_t slot);

#endif
