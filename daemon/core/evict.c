/* Which leaf goes next: a pairing heap a pool over (last use, sequence number), threaded through
 * the nodes. A node that is pinned or used while it waits there stays where it is; the heap's owner
 * looks again when the node comes to the top. Keys only grow, so a stale key is never too late. */
#include "core/nodes.h"

static bool evictable(const struct node *n)
{
    return n->nrefs == 0 && n->nchildren == 0 && n->depth > 0 && node_visible(n);
}

static bool before(const struct node *a, const struct node *b)
{
    return a->last_use != b->last_use ? a->last_use < b->last_use : a->seq < b->seq;
}

static uint32_t meld(const struct core *c, uint32_t a, uint32_t b)
{
    struct node *na, *nb;

    if (a == NONE || b == NONE)
        return a == NONE ? b : a;
    if (before(node_at(c, b), node_at(c, a))) {
        uint32_t t = a;

        a = b;
        b = t;
    }
    na = node_at(c, a);
    nb = node_at(c, b);
    nb->heap_next = na->heap_child;
    if (na->heap_child != NONE)
        node_at(c, na->heap_child)->heap_prev = b;
    nb->heap_prev = a;
    na->heap_child = b;
    return a;
}

/* The two passes of a pairing heap, without recursion. */
static uint32_t meld_children(const struct core *c, uint32_t first)
{
    uint32_t pairs = NONE, root = NONE;

    while (first != NONE) {
        uint32_t a = first, b = node_at(c, a)->heap_next,
                 rest = b == NONE ? NONE : node_at(c, b)->heap_next, m;

        node_at(c, a)->heap_next = NONE;
        if (b != NONE)
            node_at(c, b)->heap_next = NONE;
        m = meld(c, a, b);
        node_at(c, m)->heap_next = pairs;
        pairs = m;
        first = rest;
    }
    while (pairs != NONE) {
        uint32_t next = node_at(c, pairs)->heap_next;

        node_at(c, pairs)->heap_next = NONE;
        root = meld(c, root, pairs);
        pairs = next;
    }
    if (root != NONE)
        node_at(c, root)->heap_prev = NONE;
    return root;
}

static void heap_remove(const struct core *c, struct pool *p, uint32_t slot)
{
    struct node *n = node_at(c, slot);
    uint32_t sub = meld_children(c, n->heap_child);

    if (p->heap == slot) {
        p->heap = sub;
    } else {
        struct node *prev = node_at(c, n->heap_prev);

        if (prev->heap_child == slot)
            prev->heap_child = n->heap_next;
        else
            prev->heap_next = n->heap_next;
        if (n->heap_next != NONE)
            node_at(c, n->heap_next)->heap_prev = n->heap_prev;
        p->heap = meld(c, p->heap, sub);
    }
    n->heap_child = n->heap_next = n->heap_prev = NONE;
    n->in_heap = 0;
}

void node_offer(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);
    struct pool *p = pool_at(c, n->pool);

    if (n->in_heap || !evictable(n))
        return;
    n->heap_child = n->heap_next = n->heap_prev = NONE;
    n->in_heap = 1;
    p->heap = meld(c, p->heap, slot);
}

void node_use(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);
    struct pool *p = pool_at(c, n->pool);
    bool waiting = n->in_heap;

    if (waiting) /* its key changes: out and in again */
        heap_remove(c, p, slot);
    n->last_use = c->changes;
    n->last_use_ns = c->now_ns;
    if (waiting)
        node_offer(c, slot);
    touch(c);
}

bool evict_one(struct core *c, struct pool *p)
{
    while (p->heap != NONE) {
        uint32_t slot = p->heap;
        struct node *n = node_at(c, slot);

        if (!evictable(n)) {
            heap_remove(c, p, slot);
            continue;
        }
        for (uint32_t g = 0; g < p->ngroups; g++)
            c->evicted_pages += p->align / p->group[g].layout.page_tokens;
        c->evicted_nodes++;
        node_destroy(c, slot);
        return true;
    }
    return false;
}

void evict_forget(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);

    if (n->in_heap)
        heap_remove(c, pool_at(c, n->pool), slot);
}

uint32_t evict_count(struct core *c, struct pool *p, uint32_t group)
{
    uint32_t scan = c->limits.nodes < EVICT_SCAN_MAX ? c->limits.nodes : EVICT_SCAN_MAX, held = 0,
             seen = 0;

    c->mark++;
    for (uint32_t i = 0; i < scan; i++) {
        const struct node *n = node_at(c, i);

        if (!n->used || pool_at(c, n->pool) != p || n->depth == 0)
            continue;
        seen++;
        if (n->nrefs == 0 && node_visible(n))
            continue;
        for (uint32_t at = i; at != NONE && node_at(c, at)->mark != c->mark;
             at = node_at(c, at)->parent) {
            node_at(c, at)->mark = c->mark;
            if (node_at(c, at)->depth > 0)
                held++;
        }
    }
    return seen > held ? (seen - held) * (p->align / p->group[group].layout.page_tokens) : 0;
}
