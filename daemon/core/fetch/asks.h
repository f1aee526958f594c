/* Questions to peers how much each has of some tokens: for a fetch that names no peer, and for
 * Blocks (X11). A question goes at once to the peers that share the tenant and waits ASK_MS for
 * answers. It is a PULL_OPEN with `each`, so a peer answers for exactly those tenants, pools and
 * lengths that it would serve, and pins nothing. Invariant: an answer is a hint, which decides only
 * whom a fetch asks. */
#ifndef CORE_ASKS_H
#define CORE_ASKS_H

#include "core/session/call.h"

struct tenant_peer {
    uint32_t tenant, peer;
};
/* Returns the first peer, from `from` on, that the tenant may ask. NONE: there is none. */
uint32_t ask_reaches(const struct core *c, struct tenant_peer from);
/* peer: the peer to ask, or PEER_ANY. tokens: size of the question, ASK_TOKENS_MAX at most; 0: the
 * caller chooses the tokens by the number of peers. */
struct question {
    uint32_t tenant, peer, tokens;
};
/* Opens a question to that peer, or to those that the tenant reaches: at least one, at most what
 * ASK_TOKENS_SENT allows. *ret_first is the message to the first one: the caller fills in
 * namespace, layout and tokens. Requires room in the tenant's share, and in `out` for ASK_PEERS_MAX
 * actions. */
struct ask *asks_open(struct core *c, struct actions *out, struct question of,
                      struct peer_msg **ret_first);
/* Sends the same message to the other peers. */
void asks_send(struct actions *out, struct ask *a, const struct peer_msg *first);
void asks_close(struct core *c, struct ask *a);
/* Returns true if every peer answered, or the answers cover everything, or the time is over. */
bool ask_is_over(const struct core *c, const struct ask *a);
/* Returns the peer that answered with the most tokens, if more than `above`; of equal peers the
 * first. Returns each peer once. NONE: no other peer is left. */
uint32_t ask_best(const struct core *c, struct ask *a, uint32_t above);
/* A peer's answer to a question. */
void ask_heard(struct core *c, uint32_t link, const struct peer_msg *m);
void ask_link_down(struct core *c, uint32_t link);
/* Answers Blocks whose questions are over. Returns false without room. */
bool asks_flush(struct core *c, struct actions *out);
uint64_t ask_deadline(const struct core *c);

#endif
