/* Leftist heaps, threaded through the nodes: inserting and removing are logarithmic each time.
 * Internal to tree/. Those of a pool have the nodes that may go, over (last use, sequence number):
 * evict.c takes from them, and obtain.c offers what nothing keeps any more. What must stay true:
 * whatever may go is in the heap; what is there may be held. state.c has the claims of children. */
#ifndef CORE_HEAPS_H
#define CORE_HEAPS_H

#include "core/tree/nodes.h"

/* Is it a leaf of the device that may leave it, whether or not the host has it? */
bool device_frees(const struct node *n);
/* May its host pages go, whatever of it is below? On the device alone it lives on. */
bool host_frees(const struct node *n);
/* May this node of a namespace that was reset go, on both tiers? */
bool tiers_free(const struct node *n);
/* Does it belong into this heap, which is one of leaves or one that only a pool with a host tier
 * has? */
bool heap_fits(const struct node *n, enum heap_kind k);
void heap_insert(const struct core *c, uint32_t *root, enum heap_kind k, uint32_t slot);
void heap_remove(const struct core *c, uint32_t *root, enum heap_kind k, uint32_t slot);

#endif
