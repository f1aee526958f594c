/* The heaps of evictable nodes. See nodes.h. A node that is pinned or used while it is in a heap
 * stays in it and is checked again when it reaches the top. */
#include "core/tree/nodes.h"

bool device_frees(const struct node *n)
{
    bool host_needs = !node_on_host(n) && node_kept_below(n, TIER_HOST);

    return node_on_device(n) && n->depth > 0 && n->children_on[TIER_DEVICE] == 0 &&
           !node_held(n, TIER_DEVICE) && !host_needs;
}

bool host_frees(const struct node *n)
{
    return node_on_host(n) && n->depth > 0 && !node_held(n, TIER_HOST) &&
           !node_kept_below(n, TIER_HOST) && (node_on_device(n) || n->children.n == 0);
}

static bool clean(const struct node *n)
{
    return node_on_host(n) && !n->host_corrupt;
}

/* Returns true if it may join the reserve. Nodes below it on the device leave before it. */
static bool may_join(const struct node *n)
{
    return node_on_device(n) && n->depth > 0 && !n->reserved && n->work.copy == COPY_NONE &&
           n->children_on[TIER_DEVICE] == n->reserved_children && !node_held(n, TIER_DEVICE) &&
           (clean(n) || (n->work.seal == SEAL_DONE && n->work.copy_tries < COPY_TRIES_MAX));
}

bool heap_fits(const struct node *n, enum heap_kind k)
{
    switch (k) {
    case HEAP_HOST: return n->children_on[TIER_HOST] == 0 && host_frees(n);
    case HEAP_ALONE: return !node_on_device(n) && host_frees(n);
    case HEAP_CLEAN: return n->reserved && clean(n) && device_frees(n);
    case HEAP_NEXT: return may_join(n);
    case HEAP_SPARE: return node_on_device(n) && !n->reserved && host_frees(n);
    case HEAP_LEAF: return device_frees(n);
    case HEAP_STATE:
    case HEAP_RESET:
    case HEAP_CLAIM:
    case HEAPS: break;
    }
    return false;
}

bool tiers_free(const struct node *n)
{
    return n->depth > 0 && n->children.n == 0 && !node_pinned(n, TIER_DEVICE) &&
           !node_pinned(n, TIER_HOST); /* due stores of a reset namespace are dropped */
}

static bool before(const struct node *a, const struct node *b, enum heap_kind k)
{
    if (k == HEAP_CLAIM && a->state.claim != b->state.claim)
        return a->state.claim < b->state.claim;
    if (k != HEAP_CLAIM && a->last_use != b->last_use)
        return (a->last_use < b->last_use) == (k != HEAP_SPARE);
    if (k == HEAP_STATE && a->depth != b->depth)
        return a->depth > b->depth;
    return a->seq < b->seq;
}

static uint32_t rank_of(const struct core *c, enum heap_kind k, uint32_t slot)
{
    return slot == NONE ? 0 : node_at(c, slot)->heap_rank[k];
}

/* Restores the rank: the left child has the higher one, so a path to the right has logarithmic
 * length. Returns false if the node's rank did not change. */
static bool rank_again(const struct core *c, enum heap_kind k, uint32_t slot)
{
    struct node *n = node_at(c, slot);
    struct heap_links *l = &n->heap[k];
    uint32_t had = n->heap_rank[k], right = l->right;

    if (rank_of(c, k, l->left) < rank_of(c, k, right)) {
        l->right = l->left;
        l->left = right;
    }
    n->heap_rank[k] = (uint8_t)(rank_of(c, k, l->right) + 1);
    return n->heap_rank[k] != had;
}

static void hang(const struct core *c, uint32_t up, enum heap_kind k, uint32_t slot)
{
    if (up != NONE)
        node_at(c, up)->heap[k].right = slot;
    if (slot != NONE)
        node_at(c, slot)->heap[k].up = up;
}

static uint32_t meld(const struct core *c, uint32_t a, enum heap_kind k, uint32_t b)
{
    uint32_t root = NONE, last = NONE;

    while (a != NONE && b != NONE) {
        uint32_t first = before(node_at(c, b), node_at(c, a), k) ? b : a;

        if (first == a)
            a = node_at(c, a)->heap[k].right;
        else
            b = node_at(c, b)->heap[k].right;
        root = root == NONE ? first : root;
        hang(c, last, k, first);
        last = first;
    }
    hang(c, last, k, a == NONE ? b : a);
    for (; last != NONE; last = node_at(c, last)->heap[k].up)
        rank_again(c, k, last);
    return root != NONE ? root : a == NONE ? b : a;
}

void heap_remove(const struct core *c, uint32_t *root, enum heap_kind k, uint32_t slot)
{
    struct heap_links *l = &node_at(c, slot)->heap[k];
    uint32_t up = l->up, sub;

    hang(c, NONE, k, l->left);
    hang(c, NONE, k, l->right);
    sub = meld(c, l->left, k, l->right);
    if (sub != NONE)
        node_at(c, sub)->heap[k].up = up;
    if (up == NONE)
        *root = sub;
    else if (node_at(c, up)->heap[k].left == slot)
        node_at(c, up)->heap[k].left = sub;
    else
        node_at(c, up)->heap[k].right = sub;
    while (up != NONE && rank_again(c, k, up))
        up = node_at(c, up)->heap[k].up;
    node_at(c, slot)->heap_rank[k] = 0;
}

void heap_insert(const struct core *c, uint32_t *root, enum heap_kind k, uint32_t slot)
{
    node_at(c, slot)->heap[k] = (struct heap_links){.left = NONE, .right = NONE, .up = NONE};
    node_at(c, slot)->heap_rank[k] = 1;
    *root = meld(c, *root, k, slot);
}

static void offer_tiers(struct core *c, struct pool *p, uint32_t slot)
{
    static const enum heap_kind kinds[] = {HEAP_HOST, HEAP_ALONE, HEAP_CLEAN, HEAP_NEXT,
                                           HEAP_SPARE};
    const struct node *n = node_at(c, slot);

    for (uint32_t i = 0; i < (writes_behind(p) ? 5 : 2); i++)
        if (!n->heap_rank[kinds[i]] && heap_fits(n, kinds[i]))
            heap_insert(c, &p->heap[kinds[i]], kinds[i], slot);
}

void evict_offer(struct core *c, uint32_t slot)
{
    const struct node *n = node_at(c, slot);
    struct pool *p = pool_at(c, n->pool);

    if (!n->heap_rank[HEAP_LEAF] && device_frees(n))
        heap_insert(c, &p->heap[HEAP_LEAF], HEAP_LEAF, slot);
    if (p->nstate > 0 && !n->heap_rank[HEAP_STATE] && state_droppable(c, n))
        heap_insert(c, &p->heap[HEAP_STATE], HEAP_STATE, slot);
    if (p->tiers[TIER_HOST] != NONE)
        offer_tiers(c, p, slot);
    if (space_at(c, n->space)->reset && !n->heap_rank[HEAP_RESET] && tiers_free(n))
        heap_insert(c, &p->heap[HEAP_RESET], HEAP_RESET, slot);
}

void node_offer(struct core *c, uint32_t slot)
{
    node_changed(c, slot);
    evict_offer(c, slot);
}

void evict_forget(struct core *c, uint32_t slot)
{
    const struct node *n = node_at(c, slot);

    for (uint32_t k = 0; k < POOL_HEAPS; k++)
        if (n->heap_rank[k])
            heap_remove(c, &pool_at(c, n->pool)->heap[k], k, slot);
}
