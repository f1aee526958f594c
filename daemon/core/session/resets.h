/* Resets of namespaces, between daemons. */
#ifndef CORE_RESETS_H
#define CORE_RESETS_H

#include "core/session/call.h"

/* Returns true if a reset must still be sent over this link: no fetch precedes it. */
bool reset_is_due(const struct core *c, uint32_t link);
/* RESET and RESET_DONE. */
void reset_msg(struct core *c, struct actions *out, uint32_t link, const struct peer_msg *msg);
void reset_link_up(struct core *c, uint32_t link);
void reset_link_down(struct core *c, uint32_t link);
/* A peer's slot became vacant, or a peer filled it: resets stop waiting for a peer that left, and a
 * peer that joined receives those that still spread. */
void reset_peer_changed(struct core *c, uint32_t peer);
bool reset_spread(struct core *c, struct actions *out); /* false: work is left, for want of room */

#endif
