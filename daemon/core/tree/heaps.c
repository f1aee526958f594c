/* The heaps of nodes that may go. See heaps.h. A node that is pinned or used while it is in a heap
 * stays there; it is looked at again when it comes to the top. */
#include "core/tree/heaps.h"

#include "core/tree/state.h"

bool device_frees(const struct node *n)
{
    bool host_needs = !node_on_host(n) && node_kept_below(n, TIER_HOST);

    return node_on_device(n) && n->depth > 0 && n->tier[TIER_DEVICE].children == 0 &&
           !node_held(n, TIER_DEVICE) && !host_needs;
}

bool host_frees(const struct node *n)
{
    return node_on_host(n) && n->depth > 0 && !node_held(n, TIER_HOST) &&
           !node_kept_below(n, TIER_HOST) && (node_on_device(n) || n->children.n == 0);
}

static bool host_evictable(const struct node *n)
{
    return n->tier[TIER_HOST].children == 0 && host_frees(n);
}

static bool clean(const struct node *n)
{
    return node_on_host(n) && !n->tier[TIER_HOST].corrupt;
}

/* May it join the reserve? What is below it on the device leaves before it. */
static bool may_join(const struct node *n)
{
    return node_on_device(n) && n->depth > 0 && !n->reserved && n->work.copy == COPY_NONE &&
           n->tier[TIER_DEVICE].children == n->reserved_children && !node_held(n, TIER_DEVICE) &&
           (clean(n) || (n->work.seal == SEAL_DONE && n->work.copy_tries < COPY_TRIES_MAX));
}

bool heap_fits(const struct node *n, enum heap_kind k)
{
    switch (k) {
    case HEAP_HOST: return host_evictable(n);
    case HEAP_ALONE: return !node_on_device(n) && host_frees(n);
    case HEAP_CLEAN: return n->reserved && clean(n) && device_frees(n);
    case HEAP_NEXT: return may_join(n);
    case HEAP_SPARE: return node_on_device(n) && !n->reserved && host_frees(n);
    case HEAP_LEAF:
    case HEAP_STATE:
    case HEAP_RESET:
    case HEAPS: break;
    }
    return false;
}

bool tiers_free(const struct node *n)
{
    return n->depth > 0 && n->children.n == 0 && !node_held(n, TIER_DEVICE) &&
           !node_held(n, TIER_HOST);
}

static bool before(const struct node *a, const struct node *b, enum heap_kind k)
{
    if (a->last_use != b->last_use)
        return (a->last_use < b->last_use) == (k != HEAP_SPARE);
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

void heap_remove(const struct core *c, struct pool *p, enum heap_kind k, uint32_t slot)
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

static void offer_tiers(struct core *c, struct pool *p, uint32_t slot)
{
    static const enum heap_kind kinds[] = {HEAP_HOST, HEAP_ALONE, HEAP_CLEAN, HEAP_NEXT,
                                           HEAP_SPARE};
    const struct node *n = node_at(c, slot);

    for (uint32_t i = 0; i < (writes_behind(p) ? 5 : 2); i++)
        if (!n->heap[kinds[i]].in && heap_fits(n, kinds[i]))
            heap_insert(c, p, kinds[i], slot);
}

void evict_offer(struct core *c, uint32_t slot)
{
    const struct node *n = node_at(c, slot);
    struct pool *p = pool_at(c, n->pool);

    if (!n->heap[HEAP_LEAF].in && device_frees(n))
        heap_insert(c, p, HEAP_LEAF, slot);
    if (p->nstate > 0 && !n->heap[HEAP_STATE].in && state_droppable(c, n))
        heap_insert(c, p, HEAP_STATE, slot);
    if (p->tiers[TIER_HOST] != NONE)
        offer_tiers(c, p, slot);
    if (space_at(c, n->space)->reset && !n->heap[HEAP_RESET].in && tiers_free(n))
        heap_insert(c, p, HEAP_RESET, slot);
}

void node_offer(struct core *c, uint32_t slot)
{
    node_changed(c, slot);
    evict_offer(c, slot);
}

void evict_forget(struct core *c, uint32_t slot)
{
    const struct node *n = node_at(c, slot);

    for (uint32_t k = 0; k < HEAPS; k++)
        if (n->heap[k].in)
            heap_remove(c, pool_at(c, n->pool), k, slot);
}
