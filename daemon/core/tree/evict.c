/* Which leaf is evicted next, and which node loses its STATE alone (T12, T13). Each pool has
 * pairing heaps over (last use, sequence number), threaded through the nodes. A node that is pinned
 * or used while it is in a heap stays there; it is looked at again when it comes to the top. Keys
 * only grow, so a node with a stale key comes to the top too early, never too late. */
#include "core/tree/state.h"

static bool evictable(const struct node *n)
{
    return node_on_device(n) && n->depth > 0 && n->tier[TIER_DEVICE].children == 0 &&
           !node_held(n, TIER_DEVICE);
}

static bool host_evictable(const struct node *n)
{
    return node_on_host(n) && n->depth > 0 && n->tier[TIER_HOST].children == 0 &&
           !node_held(n, TIER_HOST);
}

/* May this node of a namespace that was reset go, on both tiers? */
static bool useless(const struct node *n)
{
    return n->depth > 0 && n->children.n == 0 && !node_held(n, TIER_DEVICE) &&
           !node_held(n, TIER_HOST);
}

static bool before(const struct node *a, const struct node *b, enum heap_kind k)
{
    if (a->last_use != b->last_use)
        return a->last_use < b->last_use;
    if (k == HEAP_STATE && a->depth != b->depth)
        return a->depth > b->depth;
    return a->seq < b->seq;
}

static uint32_t meld(const struct core *c, enum heap_kind k, uint32_t a, uint32_t b)
{
    struct heap_links *la, *lb;

    if (a == NONE || b == NONE)
        return a == NONE ? b : a;
    if (before(node_at(c, b), node_at(c, a), k)) {
        uint32_t t = a;

        a = b;
        b = t;
    }
    la = &node_at(c, a)->heap[k];
    lb = &node_at(c, b)->heap[k];
    lb->next = la->child;
    if (la->child != NONE)
        node_at(c, la->child)->heap[k].prev = b;
    lb->prev = a;
    la->child = b;
    return a;
}

/* The two passes of a pairing heap, without recursion. */
static uint32_t meld_children(const struct core *c, enum heap_kind k, uint32_t first)
{
    uint32_t pairs = NONE, root = NONE;

    while (first != NONE) {
        uint32_t a = first, b = node_at(c, a)->heap[k].next,
                 rest = b == NONE ? NONE : node_at(c, b)->heap[k].next, m;

        m = meld(c, k, a, b); /* the loser's `next` is set there, the winner's here */
        node_at(c, m)->heap[k].next = pairs;
        pairs = m;
        first = rest;
    }
    while (pairs != NONE) {
        uint32_t next = node_at(c, pairs)->heap[k].next;

        node_at(c, pairs)->heap[k].next = NONE;
        root = meld(c, k, root, pairs);
        pairs = next;
    }
    if (root != NONE)
        node_at(c, root)->heap[k].prev = NONE;
    return root;
}

static void heap_remove(const struct core *c, struct pool *p, enum heap_kind k, uint32_t slot)
{
    struct heap_links *l = &node_at(c, slot)->heap[k];
    uint32_t sub = meld_children(c, k, l->child);

    if (p->heap[k] == slot) {
        p->heap[k] = sub;
    } else {
        struct heap_links *prev = &node_at(c, l->prev)->heap[k];

        if (prev->child == slot)
            prev->child = l->next;
        else
            prev->next = l->next;
        if (l->next != NONE)
            node_at(c, l->next)->heap[k].prev = l->prev;
        p->heap[k] = meld(c, k, p->heap[k], sub);
    }
    l->child = l->next = l->prev = NONE;
    l->in = 0;
}

static void heap_insert(const struct core *c, struct pool *p, enum heap_kind k, uint32_t slot)
{
    node_at(c, slot)->heap[k].in = 1; /* its links are NONE as long as it is in no heap */
    p->heap[k] = meld(c, k, p->heap[k], slot);
}

static void offer(struct core *c, uint32_t slot)
{
    const struct node *n = node_at(c, slot);
    struct pool *p = pool_at(c, n->pool);

    if (!n->heap[HEAP_LEAF].in && evictable(n))
        heap_insert(c, p, HEAP_LEAF, slot);
    if (p->nstate > 0 && !n->heap[HEAP_STATE].in && state_droppable(c, n))
        heap_insert(c, p, HEAP_STATE, slot);
    if (p->tiers[TIER_HOST] != NONE && !n->heap[HEAP_HOST].in && host_evictable(n))
        heap_insert(c, p, HEAP_HOST, slot);
    if (p->tiers[TIER_HOST] != NONE && !n->heap[HEAP_ALONE].in && !node_on_device(n) &&
        host_evictable(n))
        heap_insert(c, p, HEAP_ALONE, slot);
    if (space_at(c, n->space)->reset && !n->heap[HEAP_RESET].in && useless(n))
        heap_insert(c, p, HEAP_RESET, slot);
}

void node_offer(struct core *c, uint32_t slot)
{
    node_changed(c, slot);
    offer(c, slot);
}

void evict_forget(struct core *c, uint32_t slot)
{
    const struct node *n = node_at(c, slot);

    for (uint32_t k = 0; k < HEAPS; k++)
        if (n->heap[k].in)
            heap_remove(c, pool_at(c, n->pool), k, slot);
}

void node_use(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);

    evict_forget(c, slot); /* its key changes: out and in again */
    n->last_use = c->changes;
    n->last_use_ns = c->now_ns;
    offer(c, slot);
    touch(c);
}

bool evict_leaf(struct core *c, uint32_t slot)
{
    const struct node *n = node_at(c, slot);

    if (!evictable(n))
        return false;
    c->evicted_nodes++;
    c->evicted_pages += node_on_host(n) ? node_demote(c, slot) : node_destroy(c, slot);
    return true;
}

bool evict_one(struct core *c, struct pool *p)
{
    while (p->heap[HEAP_LEAF] != NONE && visits_left(c) > 0) {
        uint32_t slot = p->heap[HEAP_LEAF];

        c->visits++;
        if (evict_leaf(c, slot))
            return true;
        heap_remove(c, p, HEAP_LEAF, slot);
    }
    return false;
}

static bool host_evict(struct core *c, struct pool *p, enum heap_kind k)
{
    while (p->heap[k] != NONE && visits_left(c) > 0) {
        uint32_t slot = p->heap[k];
        const struct node *n = node_at(c, slot);

        c->visits++;
        heap_remove(c, p, k, slot);
        if (!host_evictable(n) || (k == HEAP_ALONE && node_on_device(n)))
            continue;
        node_leave_host(c, slot);
        return true;
    }
    return false;
}

bool node_remove(struct core *c, uint32_t slot)
{
    const struct node *n = node_at(c, slot);

    c->visits++;
    if (n->children.n > 0 || n->refs[REF_HOST] > 0 ||
        !(evictable(n) || (!node_on_device(n) && host_evictable(n))))
        return false;
    c->evicted_nodes += node_on_device(n);
    c->evicted_host += node_on_host(n);
    c->evicted_pages += node_destroy(c, slot);
    return true;
}

bool evict_record(struct core *c, struct pool *p)
{
    const uint32_t before = c->free_nodes.n;

    while (c->free_nodes.n == before) {
        uint32_t slot = p->heap[HEAP_LEAF];

        if (host_evict(c, p, HEAP_ALONE) || (slot != NONE && node_remove(c, slot)))
            return true;
        if (!evict_one(c, p)) /* a leaf that is held on the host leaves the device alone */
            return false;
    }
    return true;
}

bool host_evict_one(struct core *c, struct pool *p)
{
    return host_evict(c, p, HEAP_HOST);
}

/* Once evict_one finds nothing more, each node that is on the device still is held there, or
 * something below it is. */
bool evict_unheld(struct core *c, struct pool *p)
{
    return evict_one(c, p) || host_evict(c, p, HEAP_ALONE);
}

/* One pass over all nodes puts the leaves into the heap. A node that loses its last child or its
 * last pin later is offered at that time. */
static bool sweep_piece(struct core *c, struct space *s, uint32_t *budget)
{
    while (s->sweep != NONE && *budget > 0) {
        uint32_t slot = s->sweep;

        s->sweep = slot + 1 < c->limits.nodes ? slot + 1 : NONE;
        c->visits++;
        *budget -= 1;
        if (node_at(c, slot)->used && space_at(c, node_at(c, slot)->space) == s)
            node_offer(c, slot);
        touch(c);
    }
    return s->sweep == NONE;
}

bool reset_flush(struct core *c)
{
    uint32_t budget = RESET_NODES_MAX;

    for (uint32_t i = 0; i < c->limits.pools && c->resets > 0; i++) {
        struct pool *p = pool_at(c, i);

        if (p->state == POOL_EMPTY || p->tier != TIER_DEVICE)
            continue;
        for (uint32_t at = p->spaces.head; at != NONE; at = space_list_next(c, at))
            if (space_at(c, at)->reset && !sweep_piece(c, space_at(c, at), &budget))
                return false;
        while (p->heap[HEAP_RESET] != NONE) {
            uint32_t slot = p->heap[HEAP_RESET];

            if (budget-- == 0)
                return false;
            c->visits++;
            heap_remove(c, p, HEAP_RESET, slot);
            if (useless(node_at(c, slot)))
                node_destroy(c, slot);
        }
    }
    return true;
}

bool evict_state(struct core *c, struct pool *p)
{
    if (p->reclaim.n > 0 && visits_left(c) > 0) {
        c->visits++;
        c->evicted_pages += state_drop(c, p->reclaim.head);
        return true;
    }
    if (p->supersede == SUPERSEDE_OFF)
        return false; /* a snapshot is kept whole: its STATE goes with its node */
    while (p->heap[HEAP_STATE] != NONE && visits_left(c) > 0) {
        uint32_t slot = p->heap[HEAP_STATE];

        c->visits++;
        heap_remove(c, p, HEAP_STATE, slot);
        if (!state_droppable(c, node_at(c, slot)))
            continue;
        c->evicted_pages += state_drop(c, slot);
        return true;
    }
    return false;
}
