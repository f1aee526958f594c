/* The record of a transfer out: what serves.c and serve_ticket.c both do with it, and what they say
 * of the tokens that a peer sent. */
#ifndef CORE_SERVE_RECORD_H
#define CORE_SERVE_RECORD_H

#include "core/tree/tokens.h"

/* Is there a record for it, and a pair of layouts if the pages of that pool are resharded? A
 * prefetch leaves some records to transfers that a decode waits for. */
bool serve_may_begin(const struct core *c, uint32_t link, const struct peer_msg *m, uint32_t pool);

/* What the tokens of an open led to. */
struct found {
    uint32_t pool, node;
    struct session_id handed;
    bool more;             /* all tokens of the message are there, and others follow */
    uint64_t other_layout; /* of a pool that has them and does not suit; 0: none */
};

/* Pins what the peer's tokens led to up to now. The peer has room in its share. */
struct serve *serve_create(struct core *c, uint32_t link, const struct peer_msg *m,
                           const struct found *f);
/* Nothing reads for it any more. */
void serve_free(struct core *c, struct serve *s);
/* Ends it once there is room for actions, and sends `tell`; OK: nothing. The first call counts. */
void serve_set_ending(struct core *c, struct serve *s, enum tern_err tell);
/* Its pin goes to that node; it holds no STATE yet. */
void serve_move(struct core *c, struct serve *s, uint32_t node);
/* Goes up to the first node whose checksums are missing; NONE when all of [from, to) are there. */
void serve_advance(struct core *c, struct serve *s);

/* A message about it to its peer; there must be room. */
struct peer_msg *serve_msg_add(struct core *c, struct actions *out, const struct serve *s,
                               enum peer_msg_kind kind);
/* All tokens up to where it is are here: the peer is asked for those that follow. */
void serve_ask_more(struct core *c, struct actions *out, const struct serve *s);
/* SEALING: from now on its pages may be asked for. There must be room. */
void serve_start(const struct core *c, struct actions *out, struct serve *s);
/* The answer to an open of which nothing comes. */
struct peer_msg *serve_offer_nothing(struct actions *out, uint32_t link, const struct peer_msg *m,
                                     enum tern_err err, uint32_t retry_ms);

/* Can pages of the pool go to that of who asks, as they are or resharded? */
bool serve_suits(const struct pool *p, const struct peer_msg *m);

/* The tokens of a message, where chunks have that length. */
struct token_view serve_view(const struct core *c, const struct peer_msg *m, uint32_t align);
/* Do the tokens of the message lead to that node, to the last of them, and are there others? */
bool serve_more_follow(const struct core *c, const struct peer_msg *m, uint32_t node);
/* Has to be offered, or nothing is: a chunk at least, and as much as the peer waits for. */
uint32_t serve_least(const struct peer_msg *m);

#endif
