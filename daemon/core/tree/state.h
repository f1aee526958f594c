/* STATE of prefix nodes: the pages needed to resume at a depth. A node has the segment that its own
 * commit added; a window is put together along the chain of ancestors. This file decides what can
 * be resumed (T9, T19), who still needs a segment (T17) and what is superseded (T10), per node and
 * over all STATE groups of the pool. */
#ifndef CORE_STATE_H
#define CORE_STATE_H

#include "core/tree/nodes.h"

static inline bool group_is_state(const struct group *g)
{
    return g->layout.family != FAMILY_HISTORY;
}

/* Returns true if its STATE is superseded and in the pool's reclaim list. */
static inline bool state_reclaimable(const struct node *n)
{
    return n->state.reclaim.prev != NONE;
}

/* Returns the first logical page of the segment that ends at `depth`. RECURRENT: 0. */
uint32_t segment_first(const struct pool *p, const struct group *g, uint32_t depth);
uint32_t segment_end(const struct group *g, uint32_t depth);
/* Returns the first logical page that a session at length `at` still reads. */
uint32_t window_first(const struct group *g, uint32_t at);

/* A transfer of tokens [from, to); HISTORY below `history` is already there. */
struct transfer_span {
    uint32_t from, history, to;
};

/* The pages of a group that the transfer moves: [first, first + n), from the chunks deeper than
 * `below`. Both ends compute it. */
struct transfer_range {
    uint32_t first, n, below;
};
struct transfer_range transfer_pages(const struct pool *p, const struct group *g,
                                     struct transfer_span span);
/* The part of that range in the chunks of [at, until): transfers are offered in such pieces.
 * state_last: all STATE is in the last piece (Y4). */
struct transfer_piece {
    uint32_t at, until;
    bool state_last;
};
struct transfer_range transfer_piece_pages(const struct pool *p, const struct group *g,
                                           struct transfer_span span, struct transfer_piece piece);

/* Returns true if every node of the path has its pages of this group from page `from` on. */
bool state_path_has(const struct core *c, uint32_t slot, const struct group *g, uint32_t from);
/* Returns true if a session can resume at the node, derived from the chain each time (T19); always
 * true in a pool without STATE groups. */
bool state_resumable(const struct core *c, uint32_t slot);
/* Returns the deepest resumable node among this one and its ancestors; the root for none. */
uint32_t state_above(struct core *c, uint32_t slot);
/* Returns the deepest node of the path that would be resumable if the host supplied what the device
 * lacks; a node at or above `state_from` for none. */
uint32_t state_above_on_both(struct core *c, struct path path);
/* Returns the path's first resumable node deeper than `state_from`; NONE. */
uint32_t state_first_below(struct core *c, struct path path);
/* Frees a node's STATE pages and returns how many. 0: the piece is over before the claims that must
 * end first have ended; the next piece continues. */
uint32_t state_drop(struct core *c, uint32_t slot);
/* Frees the pages of a refill whose step will never pass. Older pages stay. */
void state_unfill(struct core *c, uint32_t slot);

/* Begins and ends a holder (session, transfer) of the STATE of a path's nodes. */
void state_hold(struct core *c, struct path path);
void state_unhold(struct core *c, struct path path);
/* Ends a holder that also has a pin of that kind, up to `end` visits; `lent_from`: it borrows the
 * host's copies below that depth. Returns false if there is more to do: *path is then the part
 * still borrowed and pinned. */
bool state_path_end(struct core *c, struct path *path, uint32_t lent_from, enum ref_kind kind,
                    uint32_t end);
/* Returns the `state_from` of a holder that needs the STATE to resume at this node. */
uint32_t state_low(const struct core *c, uint32_t slot);

/* A commit ended here: a resumable node becomes a resume point (T9), and the STATE that it makes
 * needless is superseded (T10). */
void state_terminal(struct core *c, uint32_t slot);
/* The step that wrote this node has passed. state: true if its STATE arrived, or became readable
 * only now. *last: the node of the previous call, or NONE; if that is the parent, nothing above is
 * checked again. */
void state_arrived(struct core *c, uint32_t slot, bool state, uint32_t *last);
/* SnapshotRelease: this resume point no longer claims anything. */
void state_release(struct core *c, uint32_t slot);
/* The use of this node's STATE changed: checks it again, and its ancestors where that matters. */
void state_settle(struct core *c, uint32_t slot);
/* The node is about to be destroyed. */
void state_forget(struct core *c, uint32_t slot);
/* The node is about to leave the device: no session can resume there any more. */
void state_leave(struct core *c, uint32_t slot);
/* One borrower of the path's STATE begins or stops using the host's copies, from the node upwards,
 * up to `end` visits. Returns the first node that is not changed yet. */
uint32_t state_lend_host(struct core *c, struct path path, bool host, uint32_t end);

#endif
