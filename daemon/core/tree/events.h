/* What changed in the prefix tree, for subscribers: of each tenant a ring of its last
 * `limits.events` changes, so that no tenant's changes overwrite another's. Each change has a
 * number, which all tenants count together, and is one of its tenant's own, which are counted
 * from 1. A subscriber reads from a number on; what its tenant's ring has overwritten since is
 * lost. Written by nodes.c, retires.c and host.c through tree_event; read through
 * core_event_own_view (query.h). */
#ifndef CORE_EVENTS_H
#define CORE_EVENTS_H

#include "core/arena/arena.h"
#include "core/query.h"

/* To be called after the change: STORED when a node can be matched on the device for the first
 * time, TIER when it came to or left a tier and is still on one, REMOVED before its record is given
 * back. A node that was never stored is not removed: until STORED the other two are no event. Nor
 * are a second STORED, and a TIER without a change. */
void tree_event(struct core *c, uint32_t node, enum tree_event_kind kind);

/* Identity of a prefix: its namespace, all its tokens and extra keys up to the node's end. Nothing
 * of this daemon is in it, so equal prefixes have equal chains in every pool of equal L and on
 * every daemon of the same version. It names; it is never believed to find. */
uint64_t tree_root_chain(struct namespace_id ns);
/* The chain of a chunk under `parent`; content: the public hash of it. */
uint64_t tree_chain(const struct core *c, uint32_t parent, uint64_t content);

#endif
