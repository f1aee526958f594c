/* Questions to peers how much each has of some tokens: of a fetch that names no peer, and of Blocks
 * (X11). A question goes at once to the peers that share the tenant and waits ASK_MS for answers.
 * It is a PULL_OPEN with `each`, so a peer answers for just those tenants, pools and lengths that
 * it would serve, and pins nothing. Invariant: an answer is a hint. It decides whom a fetch asks,
 * and nothing else. */
#ifndef CORE_ASKS_H
#define CORE_ASKS_H

#include "core/session/call.h"

struct tenant_peer {
    uint32_t tenant, peer;
};
/* The first peer from that one on that may be asked on behalf of the tenant. NONE: there is none.
 */
uint32_t ask_reaches(const struct core *c, struct tenant_peer from);
/* peer: the one that is asked, or PEER_ANY. tokens: that the question is about, ASK_TOKENS_MAX at
 * most; 0: the caller chooses them by the number of peers. */
struct question {
    uint32_t tenant, peer, tokens;
};
/* Opens a question to that peer, or to those that the tenant reaches, one at least, and no more
 * than ASK_TOKENS_SENT allows. *ret_first is the message to the first of them: the caller says in
 * it which namespace, layout and tokens the question is about. The tenant has room in its share,
 * and `out` for ASK_PEERS_MAX actions. */
struct ask *asks_open(struct core *c, struct actions *out, struct question of,
                      struct peer_msg **ret_first);
/* Sends the others the same message. */
void asks_send(struct actions *out, struct ask *a, const struct peer_msg *first);
void asks_close(struct core *c, struct ask *a);
/* Has every peer answered, or one everything, or is the time over? */
bool ask_is_over(const struct core *c, const struct ask *a);
/* The peer that answered with the most tokens, above that many; of several the first. Each is
 * returned once. NONE: there is no other. */
uint32_t ask_best(const struct core *c, struct ask *a, uint32_t above);
/* A peer's answer to a question. */
void ask_heard(struct core *c, uint32_t link, const struct peer_msg *m);
void ask_link_down(struct core *c, uint32_t link);
void ask_conn_closed(struct core *c, uint32_t conn);
/* Answers the Blocks whose questions are over. False: no room. */
bool asks_flush(struct core *c, struct actions *out);
uint64_t ask_deadline(const struct core *c);

#endif
