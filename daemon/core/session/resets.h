/* Resets of namespaces, between daemons. */
#ifndef CORE_RESETS_H
#define CORE_RESETS_H

#include "core/session/call.h"

/* Peers have still to be told of a reset over this link: nothing is fetched before. */
bool reset_is_due(const struct core *c, uint32_t link);
/* RESET and RESET_DONE. */
void reset_msg(struct core *c, struct actions *out, uint32_t link, const struct peer_msg *msg);
void reset_link_up(struct core *c, uint32_t link);
void reset_link_down(struct core *c, uint32_t link);
/* The slot of peers is vacant now, or is not any more: who left is waited for no longer, and who
 * joined hears of what still spreads. */
void reset_peer_changed(struct core *c, uint32_t peer);
void reset_conn_closed(struct core *c, uint32_t conn);
uint64_t reset_deadline(const struct core *c); /* when peers have had their time; UINT64_MAX */
bool reset_spread(struct core *c, struct actions *out); /* false: work is left for want of room */

#endif
