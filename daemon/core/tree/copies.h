/* A node's copy to the other tier, as far as the tree must know of it: which way it goes, the pages
 * that it writes, and its end where the node leaves the tree or the device. Who makes copies is
 * tier/. What must stay true: the pages of a copy are COPYING, of the host for a writeback and of
 * the device for a load-back, and nobody sees them until the copy is acknowledged and the node's
 * parent is on that tier (T16). */
#ifndef CORE_COPIES_H
#define CORE_COPIES_H

#include "core/arena/arena.h"

static inline bool copy_is_writeback(const struct node *n)
{
    return n->work.copy >= COPY_WRITEBACK_WAITING && n->work.copy <= COPY_WRITEBACK_DONE;
}

static inline bool copy_is_loadback(const struct node *n)
{
    return n->work.copy >= COPY_LOADBACK_QUEUED && n->work.copy <= COPY_LOADBACK_DONE;
}

/* Gives the copy of one group the pages that it will write, of pool `p`. There must be room. */
void copy_pages_take(struct core *c, uint32_t slot, struct pool *p, uint32_t group);
/* The copy's pages become the node's: `heads` are its device or host pages. */
void copy_pages_attach(struct core *c, uint32_t slot, uint32_t *heads);
void copy_pages_free(struct core *c, struct node *n);
/* Ends a copy that no job works on: its node is about to be destroyed or to leave the device. */
void copy_forget(struct core *c, uint32_t slot);

#endif
