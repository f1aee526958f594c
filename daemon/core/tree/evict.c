/* Chooses the leaf that is evicted next, and the node that loses its STATE alone (T12, T13).
 * heaps.c keeps the candidates in order. With write-behind the device evicts the reserve first,
 * which tier/reserve.c fills. */
#include "core/tree/nodes.h"
#include "core/tree/state.h"

static void use(struct core *c, uint32_t slot, uint64_t seq)
{
    struct node *n = node_at(c, slot);

    reserve_leave(c, slot);
    evict_forget(c, slot); /* its key changes: remove it and insert it again */
    n->seq = seq;
    n->last_use = c->changes;
    n->last_use_ns = c->now_ns;
    evict_offer(c, slot);
    touch(c);
}

void node_use(struct core *c, uint32_t slot)
{
    use(c, slot, node_at(c, slot)->seq);
}

void node_use_in_turn(struct core *c, uint32_t slot)
{
    use(c, slot, ++c->seq);
}

void reserve_join(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);

    check(!n->reserved && node_on_device(n));
    n->reserved = 1;
    node_at(c, n->parent)->reserved_children++;
    pool_at(c, n->pool)->reserved++;
    evict_offer(c, slot);
    evict_offer(c, n->parent);
    touch(c);
}

void reserve_leave(struct core *c, uint32_t slot)
{
    for (uint32_t at = slot; node_at(c, at)->reserved; at = node_at(c, at)->parent) {
        struct node *n = node_at(c, at);

        n->reserved = 0;
        node_at(c, n->parent)->reserved_children--;
        pool_at(c, n->pool)->reserved--;
        c->visits++;
        evict_offer(c, at);
        touch(c);
    }
}

uint32_t evict_next_of(struct core *c, struct pool *p, enum heap_kind k)
{
    while (p->heap[k] != NONE && visits_left(c) > 0) {
        uint32_t slot = p->heap[k];

        c->visits++;
        if (heap_fits(node_at(c, slot), k))
            return slot;
        heap_remove(c, &p->heap[k], k, slot);
        if (k == HEAP_CLEAN)
            reserve_leave(c, slot); /* a held node is in use */
    }
    return NONE;
}

void reserve_skip(struct core *c, uint32_t slot)
{
    heap_remove(c, &node_pool(c, node_at(c, slot))->heap[HEAP_NEXT], HEAP_NEXT, slot);
}

/* Returns where the eviction of the subtree continues: its top, or where the last piece stopped. */
static uint32_t subtree_at(const struct core *c, uint32_t top)
{
    const struct node_id at = node_pool(c, node_at(c, top))->going;
    const struct node *n = node_at(c, at.slot);

    return at.gen > 0 && n->used && n->gen == at.gen &&
                   node_above(c, (struct path){at.slot, node_at(c, top)->depth}) == top
               ? at.slot
               : top;
}

bool evict_subtree(struct core *c, uint32_t top)
{
    struct pool *p = node_pool(c, node_at(c, top));
    uint32_t at = subtree_at(c, top);

    do { /* at least one node, whatever the piece did before */
        const uint32_t parent = node_at(c, at)->parent;

        c->visits++;
        if (node_at(c, at)->children.n > 0) {
            at = node_at(c, at)->children.head;
            continue;
        }
        if (!node_remove(c, at))
            return false;
        if (at == top)
            return true;
        at = parent;
    } while (!piece_over(c));
    p->going = (struct node_id){at, node_at(c, at)->gen};
    touch(c);
    return false;
}

uint32_t evict_next(struct core *c, struct pool *p)
{
    uint32_t slot = evict_next_of(c, p, HEAP_CLEAN);

    return slot != NONE ? slot : evict_next_of(c, p, HEAP_LEAF);
}

/* A node leaves the device; how many pages that frees is known afterwards. */
static void count_node(struct core *c, const struct node *n)
{
    count_figure(c, n->space, FIGURE_EVICTED_NODES, 1);
    count_since(c, LATENCY_EVICTED_AGE, n->last_use_ns);
}

bool evict_leaf(struct core *c, uint32_t slot)
{
    const struct node *n = node_at(c, slot);

    if (!device_frees(n))
        return false;
    if (!node_on_host(n)) {
        c->counts.host_uncopied += node_pool(c, n)->tiers[TIER_HOST] != NONE;
        return evict_subtree(c, slot);
    }
    count_node(c, n);
    count_figure(c, n->space, FIGURE_EVICTED_PAGES, node_demote(c, slot));
    return true;
}

bool evict_one(struct core *c, struct pool *p)
{
    uint32_t slot = evict_next(c, p);

    return slot != NONE && evict_leaf(c, slot);
}

static bool host_evict(struct core *c, struct pool *p, enum heap_kind k)
{
    uint32_t slot = evict_next_of(c, p, k);

    if (slot == NONE)
        return false;
    heap_remove(c, &p->heap[k], k, slot);
    node_leave_host(c, slot);
    return true;
}

bool node_remove(struct core *c, uint32_t slot)
{
    const struct node *n = node_at(c, slot);

    if (n->children.n > 0 || n->refs[REF_HOST] > 0 ||
        !(device_frees(n) || (!node_on_device(n) && host_frees(n))))
        return false;
    if (node_on_device(n))
        count_node(c, n);
    count_figure(c, n->space, FIGURE_EVICTED_PAGES, node_destroy(c, slot));
    return true;
}

bool evict_record(struct core *c, struct pool *p)
{
    const uint32_t before = c->free_nodes.n;

    if (!obtain_settle(c, p))
        return false;
    while (c->free_nodes.n == before) {
        uint32_t slot = p->heap[HEAP_LEAF];

        if (host_evict(c, p, HEAP_ALONE) || (slot != NONE && node_remove(c, slot)))
            return true;
        /* A leaf that is held on the host leaves only the device. */
        if (piece_over(c) || !evict_one(c, p))
            return false;
    }
    return true;
}

bool host_evict_spare(struct core *c, struct pool *p)
{
    return host_evict(c, p, HEAP_SPARE) || host_evict(c, p, HEAP_ALONE);
}

bool host_evict_one(struct core *c, struct pool *p)
{
    return (writes_behind(p) && host_evict_spare(c, p)) || host_evict(c, p, HEAP_HOST);
}

/* Once evict_one finds none, each node on the device is held there or has a held node below it. */
bool evict_unheld(struct core *c, struct pool *p)
{
    return obtain_settle(c, p) && (evict_one(c, p) || host_evict(c, p, HEAP_ALONE));
}

/* One pass over all nodes since the last reset puts the leaves of all reset namespaces into the
 * heaps. A node that loses its last child or its last pin later is offered at that time. */
static void sweep_piece(struct core *c)
{
    for (; c->sweep_left > 0 && !piece_over(c); c->sweep_left--, c->visits++) {
        uint32_t slot = c->sweep_at;
        const struct node *n = node_at(c, slot);

        c->sweep_at = slot + 1 < c->limits.nodes ? slot + 1 : 0;
        if (n->used && space_at(c, n->space)->reset)
            node_offer(c, slot);
        touch(c);
    }
}

bool reset_flush(struct core *c)
{
    if (c->resets == 0)
        c->sweep_left = 0;
    piece_begin(c);
    sweep_piece(c);
    for (uint32_t i = 0; i < c->limits.pools && c->resets > 0; i++) {
        struct pool *p = pool_at(c, i);

        if (p->state == POOL_EMPTY || p->tier != TIER_DEVICE)
            continue;
        if (!obtain_settle(c, p))
            return false;
        while (p->heap[HEAP_RESET] != NONE) {
            uint32_t slot = p->heap[HEAP_RESET];

            if (piece_over(c))
                return false;
            heap_remove(c, &p->heap[HEAP_RESET], HEAP_RESET, slot);
            c->visits++;
            if (tiers_free(node_at(c, slot)))
                node_destroy(c, slot);
        }
    }
    return c->sweep_left == 0;
}

bool evict_state(struct core *c, struct pool *p)
{
    if (p->reclaim.n > 0 && visits_left(c) > 0) {
        c->visits++;
        return state_drop(c, p->reclaim.head) > 0;
    }
    if (p->supersede == SUPERSEDE_OFF)
        return false; /* snapshots are kept whole: STATE is freed with its node */
    while (p->heap[HEAP_STATE] != NONE && !piece_over(c)) {
        uint32_t slot = p->heap[HEAP_STATE], freed;

        c->visits++;
        heap_remove(c, &p->heap[HEAP_STATE], HEAP_STATE, slot);
        if (!state_droppable(c, node_at(c, slot)))
            continue;
        freed = state_drop(c, slot);
        count_figure(c, node_at(c, slot)->space, FIGURE_EVICTED_PAGES, freed);
        if (freed == 0)
            evict_offer(c, slot);
        return freed > 0;
    }
    return false;
}
