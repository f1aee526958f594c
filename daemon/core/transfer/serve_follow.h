/* Transfers out that follow a session (Y4): the peer's tokens are those of a session that may still
 * run. Its committed chunks are offered as soon as their step has passed and their checksums are
 * known, except the last one: that one follows with the STATE, the pages behind it and the blob,
 * when the session was handed over at exactly that length. Until then the transfer waits for the
 * session, and pins what it has offered. Invariant: a session has at most one follower, and the
 * part of its list that the follower has compared stays unchanged (token_buf.cut). */
#ifndef CORE_SERVE_FOLLOW_H
#define CORE_SERVE_FOLLOW_H

#include "core/arena/arena.h"

/* A peer asks to follow its ticket's session; the message's numbers were checked. */
void serve_follow_open(struct core *c, struct actions *out, uint32_t link,
                       const struct peer_msg *m);
/* More of its tokens arrived. */
void serve_follow_tokens(struct core *c, struct actions *out, struct serve *s,
                         const struct peer_msg *m);
/* Finds how far it may offer now. Ends it if the session broke its promise. */
void serve_follow_look(struct core *c, struct serve *s);
/* Restarts its time: it was offered something, or waits for the session again. */
void serve_follow_time(const struct core *c, struct serve *s, bool waits);

#endif
