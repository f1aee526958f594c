/* Leftist heaps, threaded through the nodes: insert and remove take logarithmic time. Internal to
 * tree/. A pool's heaps have its evictable nodes, ordered by last use and sequence number: evict.c
 * takes nodes from them, and obtain.c offers nodes that nothing keeps any more. state.c has heaps
 * of children's claims. Invariant: every evictable node is in its heap; a node in a heap may be
 * held. */
#ifndef CORE_HEAPS_H
#define CORE_HEAPS_H

#include "core/tree/nodes.h"

/* Returns true if it is a device leaf that may leave the device, with or without a host copy. */
bool device_frees(const struct node *n);
/* Returns true if its host pages may be freed, even with nodes below; on the device it stays. */
bool host_frees(const struct node *n);
/* Returns true if this node of a reset namespace may leave both tiers. */
bool tiers_free(const struct node *n);
/* Returns true if it belongs in heap `k`, one of leaves or one that needs a host tier. */
bool heap_fits(const struct node *n, enum heap_kind k);
void heap_insert(const struct core *c, uint32_t *root, enum heap_kind k, uint32_t slot);
void heap_remove(const struct core *c, uint32_t *root, enum heap_kind k, uint32_t slot);

#endif
