/* Transfers out. */
#ifndef CORE_SERVES_H
#define CORE_SERVES_H

#include "core/arena/arena.h"

void serve_msg(struct core *c, struct actions *out, uint32_t link, const struct peer_msg *msg);
void serve_proved_quiet(struct core *c, struct serve_id serve);
void serve_link_down(struct core *c, uint32_t link);
void serve_end_pool(struct core *c, uint32_t pool);
bool serve_flush(struct core *c, struct actions *out, bool sealed);
uint64_t serve_deadline(const struct core *c);

/* Stages of transfers, for operators: derived from the records of all transfers after each step
 * that changed something, and their times added up. No decision of the core depends on them. */
void stages_settle(struct core *c);

/* Transfers out by ticket: the peer names a handed-over session, and its tokens must be exactly the
 * session's.
 *
 * A peer asks for what its ticket names; the message's numbers were checked. */
void serve_ticket_open(struct core *c, struct actions *out, uint32_t link,
                       const struct peer_msg *m);
/* The last of its tokens arrived. */
void serve_ticket_tokens(struct core *c, struct actions *out, struct serve *s,
                         const struct peer_msg *m);
/* The session's ticket ends: the unknown end of a fetch of it no longer matters. */
void serve_ticket_ends(struct core *c, const struct session *t);

/* Checksums of published nodes. */
void seal_queue(struct core *c, uint32_t node);
void seal_done(struct core *c, struct seal_id job);
bool seal_flush(struct core *c, struct actions *out); /* false: work is left, for want of room */

#endif
