/* Pairing heaps of the nodes of a pool that may go, over (last use, sequence number), threaded
 * through the nodes. Internal to tree/: evict.c takes from them, and obtain.c offers what nothing
 * keeps any more. What must stay true: whatever may go is in the heap; what is there may be held.
 */
#ifndef CORE_HEAPS_H
#define CORE_HEAPS_H

#include "core/tree/nodes.h"

/* Is it a leaf of the device that may leave it, whether or not the host has it? */
bool device_frees(const struct node *n);
/* May its host pages go, whatever of it is below? On the device alone it lives on. */
bool host_frees(const struct node *n);
/* May this node of a namespace that was reset go, on both tiers? */
bool tiers_free(const struct node *n);
/* Does it belong into a heap that only a pool with a host tier has? */
bool heap_fits(const struct node *n, enum heap_kind k);
void heap_remove(const struct core *c, struct pool *p, enum heap_kind k, uint32_t slot);

#endif
