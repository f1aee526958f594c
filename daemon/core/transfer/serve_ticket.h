/* Transfers out by ticket: the peer names a session that was handed over, and its tokens have to be
 * just the session's. */
#ifndef CORE_SERVE_TICKET_H
#define CORE_SERVE_TICKET_H

#include "core/arena/arena.h"

/* A peer asks for what its ticket names; the message's numbers were looked at. */
void serve_ticket_open(struct core *c, struct actions *out, uint32_t link,
                       const struct peer_msg *m);
/* The last of its tokens have come. */
void serve_ticket_tokens(struct core *c, struct actions *out, struct serve *s,
                         const struct peer_msg *m);
/* The session's ticket ends: how a fetch of it ended that was given up matters no more. */
void serve_ticket_ends(struct core *c, const struct session *t);

#endif
