/* Transfers out that follow a session (Y4): the peer's tokens are the session's, which may still
 * run. What it has committed is offered as soon as its step has passed and its checksums are known,
 * the last chunk apart: that comes with the STATE, the pages behind it and the blob, when the
 * session was handed over at just that length. Until then the transfer waits for the session, and
 * holds what it has offered. What must stay true: a follower is its session's only one, and what it
 * has compared of the session's list stays as it is (token_buf.cut). */
#ifndef CORE_SERVE_FOLLOW_H
#define CORE_SERVE_FOLLOW_H

#include "core/arena/arena.h"

/* A peer asks to follow what its ticket names; the message's numbers were looked at. */
void serve_follow_open(struct core *c, struct actions *out, uint32_t link,
                       const struct peer_msg *m);
/* More of its tokens have come. */
void serve_follow_tokens(struct core *c, struct actions *out, struct serve *s,
                         const struct peer_msg *m);
/* Looks how far may be offered now. Ends it if the session no longer keeps what it promised. */
void serve_follow_look(struct core *c, struct serve *s);
/* The time begins anew: it was offered something, or waits for the session again. */
void serve_follow_time(const struct core *c, struct serve *s, bool waits);

#endif
