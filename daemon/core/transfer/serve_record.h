/* The record of a transfer out: what serves.c and serve_ticket.c share, and its answers about the
 * tokens that a peer sent. */
#ifndef CORE_SERVE_RECORD_H
#define CORE_SERVE_RECORD_H

#include "core/tree/tokens.h"

/* INVALID: the lengths are no multiples of L. BUSY: no record is free, or no pair of layouts if the
 * pool's pages are resharded. Prefetches leave some records to transfers that a decode waits for.
 */
enum tern_err serve_may_begin(const struct core *c, uint32_t link, const struct peer_msg *m,
                              uint32_t pool);

/* Result of looking up an open's tokens. */
struct found {
    uint32_t pool, node;
    struct session_id handed;
    bool more;             /* the tree has all tokens of the message, and more follow */
    uint64_t other_layout; /* layout of a pool that has them but does not suit; 0: none */
};

/* Pins what was found of the peer's tokens so far. Requires room in the peer's share. */
struct serve *serve_create(struct core *c, uint32_t link, const struct peer_msg *m,
                           const struct found *f);
/* Frees it: nothing reads for it any more. */
void serve_free(struct core *c, struct serve *s);
/* Ends it once there is room, and sends `tell`; OK: sends nothing. The first call counts. */
void serve_set_ending(struct core *c, struct serve *s, enum tern_err tell);
/* Moves its pin to that node, without STATE. */
void serve_move(struct core *c, struct serve *s, uint32_t node);
/* Moves up to the first node without checksums; NONE if all of [from, to) have them. */
void serve_advance(struct core *c, struct serve *s);

/* Adds a message about it to its peer. Requires room. */
struct peer_msg *serve_msg_add(struct core *c, struct actions *out, const struct serve *s,
                               enum peer_msg_kind kind);
/* All tokens up to its node were found: asks the peer for the following ones. */
void serve_ask_more(struct core *c, struct actions *out, const struct serve *s);
/* SEALING: its pages may be requested from now on. Requires room. */
void serve_start(const struct core *c, struct actions *out, struct serve *s);
/* Answers an open that no transfer follows. */
struct peer_msg *serve_offer_nothing(const struct core *c, struct actions *out, uint32_t link,
                                     const struct peer_msg *m, enum tern_err err);

/* Returns true if the pool's pages can be sent to the asker's pool, unchanged or resharded. */
bool serve_suits(const struct pool *p, const struct peer_msg *m);

/* View of a message's tokens, for chunks of that length. */
struct token_view serve_view(const struct core *c, const struct peer_msg *m, uint32_t align);
/* Returns true if all tokens of the message lead to that node, and others follow. */
bool serve_more_follow(const struct core *c, const struct peer_msg *m, uint32_t node);
/* Returns the least depth that is worth an offer: one chunk, or as much as the peer waits for. */
uint32_t serve_least(const struct peer_msg *m);

/* Transfers out that follow a session (Y4): the peer's tokens are those of a session that may still
 * run. Its committed chunks are offered as soon as their step has passed and their checksums are
 * known, except the last one: that one follows with the STATE, the pages behind it and the blob,
 * when the session was handed over at exactly that length. Until then the transfer waits for the
 * session, and pins what it has offered. Invariant: a session has at most one follower, and the
 * part of its list that the follower has compared stays unchanged (token_buf.cut). */

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
