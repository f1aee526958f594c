/* What changed in the prefix tree, for subscribers: a ring of the last `limits.events` changes,
 * each with a number of its own. A subscriber reads from a number on; one that is older than the
 * ring's tail has been lost. Written by nodes.c, retires.c and host.c through tree_event; read
 * through core_event_view (query.h). */
#ifndef CORE_EVENTS_H
#define CORE_EVENTS_H

#include "core/arena.h"
#include "core/query.h"

/* To be called after the change: STORED when a node can be matched on the device for the first
 * time, TIER when it came to or left a tier and is still on one, REMOVED before its record is given
 * back. A node that was never stored is not removed. */
void tree_event(struct core *c, uint32_t node, enum tree_event_kind kind);

#endif
