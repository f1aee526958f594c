/* STATE segments: who needs them, and what becomes of them when nobody does. See state.h.
 *
 * A segment is superseded when a resume point below is out of its reach (passed), its node is no
 * fork point, nobody borrows it and no other live resume point's window covers it (needed). These
 * can become true in any order; each event that changes one of them calls state_settle. Lazy:
 * superseded segments wait in the pool's reclaim list, oldest first, for whoever needs pages; a
 * match that can still use one takes it back. */
#include "core/tree/state.h"

#include "core/arena/count.h"

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

/* STATE at a length that is no multiple of L, which only a ticket has: what is needed to go on from
 * there, and no more. It is never less than what is behind `from`. */
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

/* The first page of the range that is behind the chunks up to that depth. */
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

static bool group_complete(const struct core *c, const struct group *g, uint32_t slot)
{
    for (uint32_t i = 0; i < g->reach && node_at(c, slot)->depth > 0; i++) {
        if (node_at(c, slot)->group[g->index].pages[TIER_DEVICE] == NONE ||
            node_at(c, slot)->state.refilling & 1u << g->index)
            return false;
        slot = node_at(c, slot)->parent;
    }
    return true;
}

bool state_resumable(const struct core *c, uint32_t slot)
{
    const struct pool *p = pool_at(c, node_at(c, slot)->pool);

    for (uint32_t g = 0; g < p->ngroups && p->nstate > 0; g++)
        if (!group_complete(c, &p->group[g], slot))
            return false;
    return true;
}

uint32_t state_above(const struct core *c, uint32_t slot)
{
    uint32_t at = slot;

    while (node_at(c, at)->depth > 0 && !state_resumable(c, at))
        at = node_at(c, at)->parent;
    return at;
}

uint32_t state_walk(const struct core *c, uint32_t root, struct token_view *w)
{
    return state_above(c, node_walk(c, root, w));
}

/* --- the reclaim list --- */

static void count_reclaimable(const struct core *c, struct pool *p, const struct node *n, bool in)
{
    for (uint32_t g = 0; g < p->ngroups; g++)
        if (group_is_state(&p->group[g]) && n->group[g].pages[TIER_DEVICE] != NONE) {
            if (in)
                p->group[g].reclaimable += p->group[g].segment;
            else
                p->group[g].reclaimable -= p->group[g].segment;
        }
    (void)c;
}

static void reclaim_add(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);
    struct pool *p = pool_at(c, n->pool);

    reclaim_list_push(c, &p->reclaim, slot);
    count_reclaimable(c, p, n, true);
    touch(c);
}

static void reclaim_remove(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);
    struct pool *p = pool_at(c, n->pool);

    if (!state_reclaimable(n))
        return;
    reclaim_list_remove(c, &p->reclaim, slot);
    count_reclaimable(c, p, n, false);
    touch(c);
}

/* --- claims of resume points on the segments of their windows --- */

static void claim(struct core *c, uint32_t slot)
{
    const struct pool *p = pool_at(c, node_at(c, slot)->pool);

    if (node_at(c, slot)->state.claims_window)
        return;
    node_at(c, slot)->state.claims_window = 1;
    for (uint32_t i = 0, at = slot; i < p->reach && node_at(c, at)->depth > 0;
         i++, at = node_at(c, at)->parent)
        node_at(c, at)->state.window_claims++;
}

static void unclaim(struct core *c, uint32_t slot)
{
    const struct pool *p = pool_at(c, node_at(c, slot)->pool);

    if (!node_at(c, slot)->state.claims_window)
        return;
    node_at(c, slot)->state.claims_window = 0;
    for (uint32_t i = 0, at = slot; i < p->reach && node_at(c, at)->depth > 0;
         i++, at = node_at(c, at)->parent)
        node_at(c, at)->state.window_claims--;
}

/* What the window needed below `top` may be superseded now; whoever asks looks above it. */
static void unclaim_to(struct core *c, uint32_t slot, const struct node *top)
{
    bool claimed = node_at(c, slot)->state.claims_window;

    unclaim(c, slot);
    for (uint32_t at = slot; claimed && node_at(c, at) != top; at = node_at(c, at)->parent)
        state_settle(c, at);
}

/* A resume point whose window loses this segment can't be resumed any more. Those that claimed the
 * segment are within reach below it. */
static void unclaim_below(struct core *c, uint32_t slot)
{
    const struct pool *p = pool_at(c, node_at(c, slot)->pool);
    uint32_t level = 0, at = slot;

    unclaim(c, slot);
    while (node_at(c, slot)->state.window_claims > 0) {
        const struct node *n = node_at(c, at);

        if (level + 1 < p->reach && n->children.head != NONE) {
            at = n->children.head;
            level++;
            unclaim_to(c, at, node_at(c, slot));
            continue;
        }
        while (at != slot && child_list_next(c, at) == NONE) {
            at = node_at(c, at)->parent;
            level--;
        }
        if (at == slot)
            return;
        at = child_list_next(c, at);
        unclaim_to(c, at, node_at(c, slot));
    }
}

/* --- superseding --- */

/* Frees the segment of a node; of a superseded one its host copy too, which nobody needs any more.
 */
static uint32_t drop(struct core *c, uint32_t slot, bool is_superseded)
{
    struct node *n = node_at(c, slot);
    const struct pool *p = pool_at(c, n->pool);
    uint32_t freed = 0;

    check(n->state.refilling == 0);
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
    unclaim_below(c, slot);
    count(c, n->space, FIGURE_SUPERSEDED_PAGES, is_superseded ? freed : 0);
    return freed;
}

static bool superseded(const struct core *c, const struct node *n)
{
    const struct pool *p = pool_at(c, n->pool);
    bool unneeded = n->state.successor == SUCCESSOR_BELOW || n->state.resume == RESUME_RELEASED;
    bool fork = n->children.n > 1, borrowed = n->state.borrowers > 0;
    bool in_window = n->state.window_claims > n->state.claims_window;

    return p->supersede != SUPERSEDE_OFF && unneeded && !fork && !borrowed && !in_window &&
           state_settled(c, n) && state_has(c, n);
}

/* Returns true if claims were given up or made, so that the ancestors must be looked at. */
static bool settle_one(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);
    bool claimed = n->state.claims_window || n->state.window_claims > 0;

    if (!superseded(c, n)) {
        if (state_reclaimable(n)) {
            reclaim_remove(c, slot); /* taken back */
            if (n->state.resume == RESUME_POINT && state_resumable(c, slot)) {
                claim(c, slot);
                return true;
            }
        }
        return false;
    }
    if (state_reclaimable(n))
        return false;
    unclaim(c, slot);
    if (pool_at(c, n->pool)->supersede == SUPERSEDE_EAGER)
        drop(c, slot, true);
    else
        reclaim_add(c, slot);
    return claimed;
}

void state_settle(struct core *c, uint32_t slot)
{
    const struct pool *p = pool_at(c, node_at(c, slot)->pool);
    uint32_t left = 1;

    if (p->nstate == 0)
        return;
    for (uint32_t at = slot; left > 0 && node_at(c, at)->depth > 0;
         left--, at = node_at(c, at)->parent) {
        if (settle_one(c, at))
            left = p->reach + 1;
        node_offer(c, at);
    }
}

uint32_t state_drop(struct core *c, uint32_t slot)
{
    uint32_t freed = drop(c, slot, state_reclaimable(node_at(c, slot))), at = slot;

    for (uint32_t i = 0; i < pool_at(c, node_at(c, slot)->pool)->reach && node_at(c, at)->depth > 0;
         i++) {
        at = node_at(c, at)->parent;
        state_settle(c, at);
    }
    return freed;
}

/* Takes the peaks of snapshot pages in use. Reclaimable pages do not count, and while a commit goes
 * on nothing is superseded yet. */
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
    n->work.publish_next = NONE;
    node_changed(c, slot);
    state_settle(c, slot);
    touch(c);
}

void state_hold(struct core *c, struct path path)
{
    bool taken_back = false;

    for (uint32_t at = path.node; node_at(c, at)->depth > path.state_from;
         at = node_at(c, at)->parent) {
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

void state_unhold(struct core *c, struct path path)
{
    for (uint32_t at = path.node; node_at(c, at)->depth > path.state_from;
         at = node_at(c, at)->parent) {
        check(node_at(c, at)->state.borrowers > 0);
        if (--node_at(c, at)->state.borrowers == node_at(c, at)->state.host_borrowers)
            state_settle(c, at);
    }
}

uint32_t state_low(const struct core *c, uint32_t slot)
{
    const struct node *n = node_at(c, slot);
    const struct pool *p = pool_at(c, n->pool);
    uint64_t span = (uint64_t)p->reach * p->align;

    return span < n->depth ? n->depth - (uint32_t)span : 0;
}

/* A commit ends here, for the first time or again: the successors that the node had then may be
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

/* Is nothing of its window missing, while a refill in it waits for its step? */
static bool window_waits(const struct core *c, uint32_t slot)
{
    const struct pool *p = pool_at(c, node_at(c, slot)->pool);
    bool waits = false;

    for (uint32_t g = 0; g < p->ngroups; g++)
        for (uint32_t i = 0, at = slot; i < p->group[g].reach && node_at(c, at)->depth > 0;
             i++, at = node_at(c, at)->parent) {
            if (node_at(c, at)->group[g].pages[TIER_DEVICE] == NONE)
                return false;
            waits = waits || node_at(c, at)->state.refilling & 1u << g;
        }
    return waits;
}

void state_terminal(struct core *c, uint32_t slot)
{
    const struct node *n = node_at(c, slot);
    struct pool *p = pool_at(c, n->pool);
    uint32_t at = n->parent, t = n->depth;

    if (p->nstate == 0 || t == 0)
        return;
    if (!state_resumable(c, slot)) {
        if (window_waits(c, slot))
            make(c, slot); /* state_arrived looks again */
        take_peaks(p);
        return;
    }
    make(c, slot);
    claim(c, slot);
    for (uint32_t i = 0, up = n->parent; i < p->reach && node_at(c, up)->depth > 0;
         i++, up = node_at(c, up)->parent)
        if (state_reclaimable(node_at(c, up)))
            state_settle(c, up);
    /* Upwards from the deepest node with depth + max(W) <= t: where a node has a successor already,
     * those above it have one too, except for nodes that were made resume points anew. */
    while (node_at(c, at)->depth > 0 && node_at(c, at)->depth + p->window_max > t)
        at = node_at(c, at)->parent;
    for (; node_at(c, at)->depth > 0; at = node_at(c, at)->parent)
        if (node_at(c, at)->state.successor != SUCCESSOR_BELOW)
            pass(c, at);
        else if (p->resumed_anew == 0)
            break;
    take_peaks(p);
}

static void arrived(struct core *c, uint32_t slot)
{
    const struct node *n = node_at(c, slot);

    if (n->state.resume == RESUME_POINT && !n->state.claims_window &&
        n->state.successor != SUCCESSOR_BELOW && node_on_device(n) && node_visible(n))
        state_terminal(c, slot);
}

/* The resume points whose windows this segment is in are within reach below it. */
void state_arrived(struct core *c, uint32_t slot)
{
    const struct pool *p = pool_at(c, node_at(c, slot)->pool);
    uint32_t level = 0, at = slot;

    arrived(c, slot);
    while (p->reach > 1) {
        const struct node *n = node_at(c, at);

        if (level + 1 < p->reach && n->children.head != NONE) {
            at = n->children.head;
            level++;
            arrived(c, at);
            continue;
        }
        while (at != slot && child_list_next(c, at) == NONE) {
            at = node_at(c, at)->parent;
            level--;
        }
        if (at == slot)
            break;
        at = child_list_next(c, at);
        arrived(c, at);
    }
    state_settle(c, slot);
}

void state_release(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);

    if (n->depth == 0)
        return;
    resume_state_move(&n->state.resume, RESUME_RELEASED);
    unclaim(c, slot);
    touch(c);
    for (uint32_t at = slot, i = 0; i <= pool_at(c, n->pool)->reach && node_at(c, at)->depth > 0;
         i++, at = node_at(c, at)->parent)
        state_settle(c, at);
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
    reclaim_remove(c, slot);
    unclaim(c, slot);
    check(node_at(c, slot)->state.window_claims == 0);
    check(node_at(c, slot)->state.borrowers == node_at(c, slot)->state.host_borrowers);
}

void state_lend_host(struct core *c, struct path path, bool host)
{
    for (uint32_t at = path.node; node_at(c, at)->depth > path.state_from;
         at = node_at(c, at)->parent) {
        struct node *n = node_at(c, at);

        if (host)
            n->state.host_borrowers++;
        else
            n->state.host_borrowers--;
        check(n->state.host_borrowers <= n->state.borrowers);
        state_settle(c, at);
    }
}
