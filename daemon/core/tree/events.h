/* Changes of the prefix tree, for subscribers. Each tenant has a ring of its last `limits.events`
 * changes, so no tenant overwrites another's. A change has two numbers: one counted over all
 * tenants, and one counted from 1 within its tenant. A subscriber reads from a number on; changes
 * that the ring has overwritten since are lost. tree_event writes the rings; core_event_own_view
 * (query.h) reads them. */
#ifndef CORE_EVENTS_H
#define CORE_EVENTS_H

#include "core/arena/arena.h"
#include "core/query.h"

/* Call it after the change: STORED when a node can be matched on the device for the first time,
 * TIER when it arrived on or left a tier and is still on one, REMOVED before its record is freed.
 * Until STORED, a node causes no TIER and no REMOVED event. A second STORED, and a TIER without a
 * change, cause no event. */
void tree_event(struct core *c, uint32_t node, enum tree_event_kind kind);

/* A chain identifies a prefix: its namespace, all its tokens and its extra keys up to the node's
 * end. It depends on nothing of this daemon, so equal prefixes have equal chains in every pool of
 * equal L and on every daemon of the same version. It is a name; no lookup relies on it. */
uint64_t tree_root_chain(struct namespace_id ns);
/* Returns the chain of a chunk under `parent`; content: the public hash of the chunk. */
uint64_t tree_chain(const struct core *c, uint32_t parent, uint64_t content);

#endif
