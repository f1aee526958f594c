/* STATE of prefix nodes: what is needed to go on from a depth, and no more. A node holds the
 * segment that its own commit added; a window is put together along the chain of ancestors. Here:
 * what can be resumed (T9, T19), who still needs a segment (T17), what is superseded (T10). All of
 * it is per node, over all STATE groups of the pool. */
#ifndef CORE_STATE_H
#define CORE_STATE_H

#include "core/tree/nodes.h"

static inline bool group_is_state(const struct group *g)
{
    return g->layout.family != FAMILY_HISTORY;
}

/* Is its STATE superseded, and waits in the pool's reclaim list? */
static inline bool state_reclaimable(const struct node *n)
{
    return n->state.reclaim.prev != NONE;
}

/* First logical page of the segment at `depth`, which ends at depth / page_tokens. RECURRENT: 0. */
uint32_t segment_first(const struct pool *p, const struct group *g, uint32_t depth);
uint32_t segment_end(const struct group *g, uint32_t depth);
/* First logical page that a session at length `at` still reads. */
uint32_t window_first(const struct group *g, uint32_t at);

/* A transfer of tokens [from, to), where HISTORY below `history` is there already. */
struct transfer_span {
    uint32_t from, history, to;
};

/* What it moves of a group: the pages [first, first + n), of the chunks that are deeper than
 * `below`. Both ends compute it. */
struct transfer_range {
    uint32_t first, n, below;
};
struct transfer_range transfer_pages(const struct pool *p, const struct group *g,
                                     struct transfer_span span);
/* Of these, those of the chunks of [at, until): a transfer is offered in such pieces. state_last:
 * all of STATE is in the last one (Y4). */
struct transfer_piece {
    uint32_t at, until;
    bool state_last;
};
struct transfer_range transfer_piece_pages(const struct pool *p, const struct group *g,
                                           struct transfer_span span, struct transfer_piece piece);

/* Has every node of the path its pages of this group, from logical page `from` on? */
bool state_path_has(const struct core *c, uint32_t slot, const struct group *g, uint32_t from);
/* Derived from the chain each time (T19). True for every node of a pool without STATE groups. */
bool state_resumable(const struct core *c, uint32_t slot);
/* The deepest node that can be resumed, of this one and those above it; the root for none. */
uint32_t state_above(struct core *c, uint32_t slot);
/* The deepest node of the path that could be resumed if the host gave what the device lacks; one at
 * or above `state_from` for none. */
uint32_t state_above_on_both(struct core *c, struct path path);
/* The first node of the path that is deeper than `state_from` and can be resumed; NONE. */
uint32_t state_first_below(struct core *c, struct path path);
/* Frees a node's STATE pages; returns how many. 0: the piece is over before all the claims have
 * ended that do first; the next one goes on. */
uint32_t state_drop(struct core *c, uint32_t slot);
/* Frees what a refill brought, because its step will never pass. What was there before stays. */
void state_unfill(struct core *c, uint32_t slot);

/* A holder (session, transfer) of the STATE of the nodes of a path, and its end. */
void state_hold(struct core *c, struct path path);
void state_unhold(struct core *c, struct path path);
/* The end of a holder that has a pin of that kind, too, up to `end` visits; `lent_from`: it borrows
 * the host's copies below that depth. False: there is more to do, and *path is what is held and
 * pinned still. */
bool state_path_end(struct core *c, struct path *path, uint32_t lent_from, enum ref_kind kind,
                    uint32_t end);
/* The `state_from` of a holder that needs what is needed to go on from this node. */
uint32_t state_low(const struct core *c, uint32_t slot);

/* A commit ended here: if it can be resumed it is a resume point (T9), and what it makes needless
 * is superseded (T10). */
void state_terminal(struct core *c, uint32_t slot);
/* The step that wrote this node has passed. state: what it has of STATE came, or may be read only
 * now. *last: the node for which this was called before, or NONE; where that is the parent, nothing
 * above is looked at again. */
void state_arrived(struct core *c, uint32_t slot, bool state, uint32_t *last);
/* SnapshotRelease: this resume point claims nothing any more. */
void state_release(struct core *c, uint32_t slot);
/* The use of this node's STATE changed: looks again, at its ancestors too where that matters. */
void state_settle(struct core *c, uint32_t slot);
/* The node is about to be destroyed. */
void state_forget(struct core *c, uint32_t slot);
/* The node is about to leave the device: nobody can resume there any more. */
void state_leave(struct core *c, uint32_t slot);
/* One borrower of the path's STATE uses the host's copies from now on, or no longer does, from the
 * node upwards, up to `end` visits. Returns the first for which that is not so yet. */
uint32_t state_lend_host(struct core *c, struct path path, bool host, uint32_t end);

#endif
