/* STATE segments: who needs them, and what happens to those that are not needed. See state.h.
 *
 * A segment is superseded when a resume point below is out of its reach (passed), its node is no
 * fork point, nobody borrows it and no other live resume point's window covers it (needed). These
 * conditions become true in any order; each event that changes one calls state_settle. Lazy:
 * superseded segments wait in the pool's reclaim list, oldest first, until pages are needed; a
 * match that can still use one takes it back.
 *
 * A live resume point claims its window. Each node knows the nearest claim at or below it, and has
 * its children's nearest claims in a heap. The begin or end of a claim is passed up only as far as
 * it is the nearest, however long the window is. Invariant: the window of a claim is whole. */
#include "core/tree/state.h"

#include "core/tree/nodes.h"

uint32_t segment_first(const struct pool *p, const struct group *g, uint32_t depth)
{
    const struct group_layout *l = &g->layout;

    switch (l->family) {
    case FAMILY_HISTORY: break;
    case FAMILY_WINDOW:
        return (depth - (l->window < p->align ? l->window : p->align)) / l->page_tokens;
    case FAMILY_RECURRENT: return 0;
    }
    return (depth - p->align) / l->page_tokens;
}

uint32_t segment_end(const struct group *g, uint32_t depth)
{
    const struct group_layout *l = &g->layout;

    return l->family == FAMILY_RECURRENT ? 1 : div_up(depth, l->page_tokens);
}

uint32_t window_first(const struct group *g, uint32_t at)
{
    const struct group_layout *l = &g->layout;

    if (l->family != FAMILY_WINDOW || at <= l->window)
        return 0;
    return (at - l->window) / l->page_tokens;
}

/* Returns the STATE pages needed to resume at a length that is no multiple of L, which only a
 * ticket has. They include at least the pages behind `from`. */
static struct transfer_range window_pages(const struct pool *p, const struct group *g,
                                          struct transfer_span span)
{
    const uint32_t pt = g->layout.page_tokens, end = segment_end(g, span.to);
    uint32_t first = window_first(g, span.to), last = span.to - span.to % p->align;

    if (g->layout.family == FAMILY_RECURRENT)
        return (struct transfer_range){.first = 0, .n = 1, .below = last};
    if (first < span.from / pt)
        first = span.from / pt;
    return (struct transfer_range){
        .first = first, .n = end - first, .below = first * pt / p->align * p->align};
}

struct transfer_range transfer_pages(const struct pool *p, const struct group *g,
                                     struct transfer_span span)
{
    struct transfer_range range = {.below = span.history > span.from ? span.history : span.from};
    uint64_t window = (uint64_t)g->reach * p->align;

    if (group_is_state(g) && span.to % p->align > 0)
        return window_pages(p, g, span);
    if (group_is_state(g)) {
        range.below = window < span.to ? span.to - (uint32_t)window : 0;
        if (range.below < span.from)
            range.below = span.from;
    }
    if (range.below >= span.to)
        return range;
    range.first = segment_first(p, g, range.below + p->align);
    range.n = segment_end(g, span.to) - range.first;
    return range;
}

/* Returns the first page of the range that is behind the chunks up to that depth. */
static uint32_t range_cut(const struct group *g, struct transfer_range range,
                          struct transfer_span span, uint32_t depth, bool state_last)
{
    uint32_t end = depth >= span.to ? range.first + range.n : segment_end(g, depth);
    bool last = g->layout.family == FAMILY_RECURRENT || (state_last && group_is_state(g));

    if (depth < span.to && (last || end < range.first))
        return range.first;
    return end < range.first + range.n ? end : range.first + range.n;
}

struct transfer_range transfer_piece_pages(const struct pool *p, const struct group *g,
                                           struct transfer_span span, struct transfer_piece piece)
{
    struct transfer_range range = transfer_pages(p, g, span);
    uint32_t first = range_cut(g, range, span, piece.at, piece.state_last),
             end = range_cut(g, range, span, piece.until, piece.state_last);

    return (struct transfer_range){.first = first, .n = end - first, .below = range.below};
}

bool state_path_has(const struct core *c, uint32_t slot, const struct group *g, uint32_t from)
{
    uint32_t end = segment_end(g, node_at(c, slot)->depth);

    if (!group_is_state(g))
        return true; /* every node has its HISTORY */
    for (; node_at(c, slot)->depth > 0 && end > from; slot = node_at(c, slot)->parent) {
        if (node_at(c, slot)->group[g->index].pages[TIER_DEVICE] == NONE)
            return false;
        end -= g->segment;
    }
    return true;
}

/* Returns the tokens of the longest window, in whole chunks. */
static uint32_t window_span(const struct pool *p)
{
    return p->reach * p->align;
}

/* Returns true if the host has the node's pages of the group, not known to be corrupt. */
static bool host_gives(const struct node *n, uint32_t g)
{
    return n->group[g].pages[TIER_HOST] != NONE && !n->host_corrupt;
}

/* Returns the depth down to which nobody can resume below this node: it lacks STATE, or has some
 * that waits for its step; 0: it has all. on_both: the host may supply what the device lacks. */
static inline uint32_t lacks(const struct pool *p, const struct node *n, bool on_both)
{
    uint32_t reach = 0;

    for (uint32_t g = 0; g < p->ngroups; g++)
        if (p->group[g].reach > reach &&
            ((n->group[g].pages[TIER_DEVICE] == NONE && !(on_both && host_gives(n, g))) ||
             n->state.refilling & 1u << g))
            reach = p->group[g].reach;
    return reach > 0 ? n->depth + (reach - 1) * p->align : 0;
}

static uint32_t lacks_to(const struct pool *p, const struct node *n)
{
    return lacks(p, n, false);
}

/* Returns the depth down to which nobody can resume at or below the node because it or an ancestor
 * lacks STATE; 0: none does. Looks up as far as windows reach, or to a claim: that window is whole.
 */
static uint32_t bound_above(const struct core *c, uint32_t slot, uint32_t *visits)
{
    const struct pool *p = pool_at(c, node_at(c, slot)->pool);
    uint32_t bound = 0, looks = 1;

    for (uint32_t at = slot; node_at(c, at)->depth > 0; at = node_at(c, at)->parent, looks++) {
        const struct node *n = node_at(c, at);
        uint32_t to = lacks_to(p, n);

        *visits += looks % NODES_A_VISIT == 0;
        bound = bound > to ? bound : to;
        if (n->state.claims_window || bound >= n->depth + window_span(p) - p->align ||
            node_at(c, slot)->depth - n->depth >= window_span(p))
            break;
    }
    return bound;
}

bool state_resumable(const struct core *c, uint32_t slot)
{
    uint32_t visits = 0, bound = bound_above(c, slot, &visits);

    return bound == 0 || bound < node_at(c, slot)->depth;
}

/* Visits each node once. A node that lacks STATE rules out all candidates within its reach, so its
 * parent is the next one. Goes no further up than `state_from`. */
static uint32_t deepest(struct core *c, struct path path, bool on_both)
{
    const struct pool *p = pool_at(c, node_at(c, path.node)->pool);
    uint32_t found = path.node, at = path.node;

    for (; node_at(c, found)->depth > path.state_from && node_at(c, at)->depth > 0;
         at = node_at(c, at)->parent) {
        const struct node *n = node_at(c, at);

        if (node_at(c, found)->depth - n->depth >= window_span(p) || n->state.claims_window)
            break;
        if (lacks(p, n, on_both) >= node_at(c, found)->depth)
            found = n->parent;
    }
    walked(c, (node_at(c, path.node)->depth - node_at(c, at)->depth) / p->align);
    return found;
}

uint32_t state_above(struct core *c, uint32_t slot)
{
    return deepest(c, (struct path){slot, 0}, false);
}

uint32_t state_above_on_both(struct core *c, struct path path)
{
    return deepest(c, path, true);
}

/* Searches downwards, with the bound of what the nodes so far lack. */
uint32_t state_first_below(struct core *c, struct path path)
{
    const struct pool *p = pool_at(c, node_at(c, path.node)->pool);
    uint32_t above = node_above(c, path), depth = node_at(c, above)->depth;
    uint32_t bound = bound_above(c, above, &c->visits), looks = BELOW_LOOKS_MAX;

    while (depth < node_at(c, path.node)->depth && looks-- > 0) {
        uint32_t at = node_above(c, (struct path){path.node, depth += p->align}), to;

        c->visits++;
        to = lacks_to(p, node_at(c, at));
        bound = bound > to ? bound : to;
        if (bound < depth)
            return at;
    }
    return NONE;
}

/* --- the reclaim list --- */

static void count_reclaimable(struct pool *p, const struct node *n, bool in)
{
    for (uint32_t g = 0; g < p->ngroups; g++)
        if (group_is_state(&p->group[g]) && n->group[g].pages[TIER_DEVICE] != NONE)
            p->group[g].reclaimable += in ? p->group[g].segment : -p->group[g].segment;
}

static void reclaim_add(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);
    struct pool *p = pool_at(c, n->pool);

    reclaim_list_push(c, &p->reclaim, slot);
    count_reclaimable(p, n, true);
    touch(c);
}

static void reclaim_remove(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);
    struct pool *p = pool_at(c, n->pool);

    if (!state_reclaimable(n))
        return;
    reclaim_list_remove(c, &p->reclaim, slot);
    count_reclaimable(p, n, false);
    touch(c);
}

/* --- claims of resume points on the segments of their windows --- */

/* Returns the depth of the nearest claim below whose window has the node's segment; 0: none. */
static uint32_t needed_by(const struct core *c, const struct node *n)
{
    const struct pool *p = pool_at(c, n->pool);
    uint32_t kid = n->state.claims_below, claim = kid == NONE ? 0 : node_at(c, kid)->state.claim;

    return claim > 0 && claim - n->depth < window_span(p) ? claim : 0;
}

/* Passes the nearest claim at or below the node to the parent. Returns false if the parent has it
 * already, or is the root, which needs none. */
static bool claim_told(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot), *up = node_at(c, n->parent);
    uint32_t claim = n->state.claims_window ? n->depth : needed_by(c, n);

    if (claim == n->state.claim || up->depth == 0)
        return false;
    if (n->state.claim > 0)
        heap_remove(c, &up->state.claims_below, HEAP_CLAIM, slot);
    n->state.claim = claim;
    if (claim > 0)
        heap_insert(c, &up->state.claims_below, HEAP_CLAIM, slot);
    c->visits++;
    return true;
}

/* The node's claim has begun or ended: its ancestors may be needed now, or no longer. */
static void claim_changed(struct core *c, uint32_t slot)
{
    touch(c);
    if (claim_told(c, slot))
        state_settle(c, node_at(c, slot)->parent);
}

/* --- superseding --- */

/* Frees a node's segment, and a superseded segment's host copy, which is not needed either. */
static uint32_t drop(struct core *c, uint32_t slot, bool is_superseded)
{
    struct node *n = node_at(c, slot);
    const struct pool *p = pool_at(c, n->pool);
    uint32_t freed = 0;

    check(n->state.refilling == 0 && !n->state.claims_window && needed_by(c, n) == 0);
    reclaim_remove(c, slot);
    for (uint32_t g = 0; g < p->ngroups; g++)
        if (group_is_state(&p->group[g])) {
            obtain_forget_group(c, slot, TIER_DEVICE, g);
            if (is_superseded)
                obtain_forget_group(c, slot, TIER_HOST, g);
            freed += chain_free(c, &n->group[g].pages[TIER_DEVICE]);
            if (is_superseded)
                chain_free(c, &n->group[g].pages[TIER_HOST]);
        }
    count_figure(c, n->space, FIGURE_SUPERSEDED_PAGES, is_superseded ? freed : 0);
    return freed;
}

static bool superseded(const struct core *c, const struct node *n)
{
    const struct pool *p = pool_at(c, n->pool);
    bool unneeded = n->state.successor == SUCCESSOR_BELOW || n->state.resume == RESUME_RELEASED;
    bool fork = n->children.n > 1, borrowed = n->state.borrowers > 0;
    bool in_window = needed_by(c, n) > 0;

    return p->supersede != SUPERSEDE_OFF && unneeded && !fork && !borrowed && !in_window &&
           state_settled(c, n) && state_has(c, n);
}

static void settle_one(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);

    if (!superseded(c, n)) {
        if (!state_reclaimable(n))
            return;
        reclaim_remove(c, slot); /* taken back */
        n->state.claims_window =
            n->state.resume == RESUME_POINT && bound_above(c, slot, &c->visits) < n->depth;
        return;
    }
    if (state_reclaimable(n))
        return;
    n->state.claims_window = 0;
    if (pool_at(c, n->pool)->supersede == SUPERSEDE_EAGER)
        drop(c, slot, true);
    else
        reclaim_add(c, slot);
}

void state_settle(struct core *c, uint32_t slot)
{
    bool told = node_at(c, slot)->depth > 0 && node_pool(c, node_at(c, slot))->nstate > 0;

    for (; told; slot = node_at(c, slot)->parent) {
        settle_one(c, slot);
        node_changed(c, slot);
        told = claim_told(c, slot);
    }
}

/* Ends the claims below the node whose windows cover its segment, deepest first. Returns false if
 * the piece is over; ended claims stay ended. At least one ends, however deep the first one is, and
 * so do those up to a quarter deeper: the next piece walks to the first one anew, and if each piece
 * ended only one, the walks of all pieces would be quadratic in the window. */
static bool unclaim_below(struct core *c, uint32_t slot)
{
    const struct pool *p = node_pool(c, node_at(c, slot));
    const uint32_t begin = c->visits;
    uint32_t end = 0;
    bool all = true;

    for (uint32_t at = slot;;) {
        uint32_t kid = node_at(c, at)->state.claims_below;

        if (kid != NONE &&
            node_at(c, kid)->state.claim - node_at(c, slot)->depth < window_span(p)) {
            if (at != slot && node_at(c, at)->state.claims_window) {
                end = end > 0 ? end : c->visits + (c->visits - begin) / 4;
                all = all && (c->visits < ROOM_VISITS_MAX || c->visits < end || !piece_over(c));
            }
            c->visits++;
            if (all) {
                at = kid;
                continue;
            }
        }
        if (at == slot)
            return all;
        node_at(c, at)->state.claims_window = 0;
        settle_one(c, at);
        node_changed(c, at);
        claim_told(c, at);
        at = node_at(c, at)->parent;
    }
}

uint32_t state_drop(struct core *c, uint32_t slot)
{
    bool was_superseded = state_reclaimable(node_at(c, slot));
    uint32_t freed = 0;

    if (unclaim_below(c, slot)) {
        node_at(c, slot)->state.claims_window = 0;
        freed = drop(c, slot, was_superseded);
    }
    claim_changed(c, slot);
    return freed;
}

/* Updates the peaks of snapshot pages in use. Reclaimable pages do not count, and nothing is
 * superseded yet while a commit runs. */
static void take_peaks(struct pool *p)
{
    for (uint32_t g = 0; g < p->ngroups; g++) {
        struct group *gr = &p->group[g];
        uint32_t used = gr->count[PAGE_COMMITTED] - gr->reclaimable;

        if (group_is_state(gr) && used > gr->peak_committed)
            gr->peak_committed = used;
    }
}

void state_unfill(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);

    for (uint32_t g = 0; g < c->limits.groups; g++)
        if (n->state.refilling & 1u << g) {
            obtain_forget_group(c, slot, TIER_DEVICE, g);
            chain_free(c, &n->group[g].pages[TIER_DEVICE]);
        }
    n->state.refilling = 0;
    n->work.publish_step = 0;
    n->work.publish_next = NONE;
    node_changed(c, slot);
    state_settle(c, slot);
    touch(c);
}

void state_hold(struct core *c, struct path path)
{
    bool taken_back = false;

    for (uint32_t at = path.node; node_at(c, at)->depth > path.state_from;
         at = node_at(c, at)->parent, c->visits++) {
        node_at(c, at)->state.borrowers++;
        node_changed(c, at);
        if (state_reclaimable(node_at(c, at))) {
            taken_back = true;
            state_settle(c, at);
        }
    }
    if (taken_back)
        take_peaks(pool_at(c, node_at(c, path.node)->pool));
}

/* Goes from the node upwards and returns the first node that is still held. */
static uint32_t unhold(struct core *c, uint32_t lent_from, struct path path, uint32_t end)
{
    uint32_t at = path.node;

    for (; node_at(c, at)->depth > path.state_from && c->visits < end;
         at = node_at(c, at)->parent, c->visits++) {
        struct node *n = node_at(c, at);

        check(n->state.borrowers > 0);
        n->state.host_borrowers -= n->depth > lent_from;
        if (--n->state.borrowers == n->state.host_borrowers)
            state_settle(c, at);
    }
    return at;
}

void state_unhold(struct core *c, struct path path)
{
    unhold(c, UINT32_MAX, path, UINT32_MAX);
}

/* Pins the rest before it unpins the node: a pin holds the path above it, too. */
bool state_path_end(struct core *c, struct path *path, uint32_t lent_from, enum ref_kind kind,
                    uint32_t end)
{
    uint32_t left = unhold(c, lent_from, *path, end), node = path->node;
    bool all = node_at(c, left)->depth <= path->state_from;

    path->node = all ? NONE : left;
    if (!all)
        node_pin(c, left, kind);
    node_unpin(c, node, kind);
    return all;
}

uint32_t state_low(const struct core *c, uint32_t slot)
{
    const struct node *n = node_at(c, slot);
    const struct pool *p = pool_at(c, n->pool);
    uint64_t span = (uint64_t)window_span(p);

    return span < n->depth ? n->depth - (uint32_t)span : 0;
}

/* A commit ends here, perhaps not for the first time: successors that the node had before may be
 * gone. */
static void make(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);

    resume_state_move(&n->state.resume, RESUME_POINT);
    if (n->state.successor != SUCCESSOR_BELOW)
        return;
    successor_state_move(&n->state.successor, SUCCESSOR_EARLIER);
    pool_at(c, n->pool)->resumed_anew++;
}

static void pass(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);

    if (n->state.successor == SUCCESSOR_EARLIER)
        pool_at(c, n->pool)->resumed_anew--;
    successor_state_move(&n->state.successor, SUCCESSOR_BELOW);
    state_settle(c, slot);
}

/* Returns true if its window is complete but a refill in it waits for its step. */
static bool window_waits(struct core *c, uint32_t slot)
{
    const struct pool *p = pool_at(c, node_at(c, slot)->pool);
    bool waits = false;

    for (uint32_t i = 0, at = slot; i < p->reach && node_at(c, at)->depth > 0;
         i++, at = node_at(c, at)->parent, c->visits++)
        for (uint32_t g = 0; g < p->ngroups; g++) {
            if (i < p->group[g].reach && node_at(c, at)->group[g].pages[TIER_DEVICE] == NONE)
                return false;
            waits = waits || (i < p->group[g].reach && node_at(c, at)->state.refilling & 1u << g);
        }
    return waits;
}

/* The node can be resumed: it becomes a resume point, which claims its window. */
static void resume_point(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);
    const struct pool *p = pool_at(c, n->pool);
    uint32_t passed = n->depth > p->window_max ? n->depth - p->window_max : 0, end;

    make(c, slot);
    n->state.claims_window = 1;
    claim_changed(c, slot);
    end = c->visits + PIECE_VISITS_MAX;
    /* Upwards from the deepest node with depth + max(W) <= t. Above a node that has a successor,
     * all nodes have one, except those that became resume points again. Nodes beyond the end of the
     * piece keep their STATE until others need the pages. */
    for (uint32_t at = node_above(c, (struct path){n->parent, passed / p->align * p->align});
         node_at(c, at)->depth > 0 && c->visits < end; at = node_at(c, at)->parent, c->visits++)
        if (node_at(c, at)->state.successor != SUCCESSOR_BELOW)
            pass(c, at);
        else if (p->resumed_anew == 0)
            break;
}

void state_terminal(struct core *c, uint32_t slot)
{
    struct pool *p = pool_at(c, node_at(c, slot)->pool);

    if (p->nstate == 0 || node_at(c, slot)->depth == 0)
        return;
    if (bound_above(c, slot, &c->visits) < node_at(c, slot)->depth)
        resume_point(c, slot);
    else if (window_waits(c, slot))
        make(c, slot); /* state_arrived looks again */
    take_peaks(p);
}

/* Returns true if it may be a resume point again. */
static bool may_claim(const struct node *n)
{
    return n->state.resume == RESUME_POINT && !n->state.claims_window &&
           n->state.successor != SUCCESSOR_BELOW && node_on_device(n) && node_visible(n);
}

static void arrived(struct core *c, uint32_t slot)
{
    if (!may_claim(node_at(c, slot)) || node_at(c, slot)->state.bound >= node_at(c, slot)->depth)
        return;
    resume_point(c, slot);
    take_peaks(node_pool(c, node_at(c, slot)));
}

/* Resume points whose windows cover the segment are within its reach; none are below a node whose
 * missing STATE rules them all out. If the step has no visits left, the remaining ones claim
 * nothing until a commit ends there again. */
static void arrived_below(struct core *c, uint32_t slot)
{
    const struct pool *p = pool_at(c, node_at(c, slot)->pool);
    const uint32_t end = node_at(c, slot)->depth + window_span(p) - p->align;

    for (uint32_t at = slot, kid; visits_left(c) > 0; at = kid) {
        const struct node *n = node_at(c, at);

        kid = n->depth < end && n->state.bound < end ? n->children.head : NONE;
        while (kid == NONE && at != slot) {
            kid = child_list_next(c, at);
            at = node_at(c, at)->parent;
        }
        if (kid == NONE)
            return;
        node_at(c, kid)->state.bound = lacks_to(p, node_at(c, kid));
        if (node_at(c, kid)->state.bound < node_at(c, at)->state.bound)
            node_at(c, kid)->state.bound = node_at(c, at)->state.bound;
        arrived(c, kid);
        c->visits++;
    }
}

/* Returns true if some child's missing STATE leaves nodes below it, within reach, resumable. */
static bool leads_down(struct core *c, const struct node *n)
{
    const struct pool *p = pool_at(c, n->pool);
    const uint32_t end = n->depth + window_span(p) - p->align;

    for (uint32_t kid = n->children.head; kid != NONE; kid = child_list_next(c, kid), c->visits++)
        if (lacks_to(p, node_at(c, kid)) < end)
            return true;
    return false;
}

void state_arrived(struct core *c, uint32_t slot, bool state, uint32_t *last)
{
    struct node *n = node_at(c, slot);
    const struct pool *p = pool_at(c, n->pool);

    if (p->nstate == 0)
        return;
    state = state && leads_down(c, n);
    if (n->parent == *last || state || may_claim(n)) {
        uint32_t needs = lacks_to(p, n), above = node_at(c, n->parent)->state.bound;

        n->state.bound = n->parent != *last ? bound_above(c, slot, &c->visits)
                         : needs > above    ? needs
                                            : above;
        *last = slot;
        arrived(c, slot);
    }
    if (state)
        arrived_below(c, slot);
    state_settle(c, slot);
}

void state_release(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);

    if (n->depth == 0)
        return;
    resume_state_move(&n->state.resume, RESUME_RELEASED);
    n->state.claims_window = 0;
    claim_changed(c, slot);
    state_settle(c, slot);
}

void state_forget(struct core *c, uint32_t slot)
{
    const struct pool *p = pool_at(c, node_at(c, slot)->pool);

    if (p->nstate == 0)
        return;
    state_leave(c, slot);
    if (node_at(c, slot)->state.successor == SUCCESSOR_EARLIER)
        pool_at(c, node_at(c, slot)->pool)->resumed_anew--;
    check(node_at(c, slot)->state.borrowers == 0);
}

void state_leave(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);

    reclaim_remove(c, slot);
    check(needed_by(c, n) == 0);
    check(n->state.borrowers == n->state.host_borrowers);
    n->state.claims_window = 0;
    claim_changed(c, slot);
}

uint32_t state_lend_host(struct core *c, struct path path, bool host, uint32_t end)
{
    uint32_t at = path.node;

    for (; node_at(c, at)->depth > path.state_from && c->visits < end;
         at = node_at(c, at)->parent, c->visits++) {
        struct node *n = node_at(c, at);

        if (host)
            n->state.host_borrowers++;
        else
            n->state.host_borrowers--;
        check(n->state.host_borrowers <= n->state.borrowers);
        state_settle(c, at);
    }
    return at;
}
