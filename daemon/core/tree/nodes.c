/* The prefix tree. See nodes.h. */
#include "core/tree/nodes.h"
#include "core/arena/actions.h"
#include "core/arena/hashed.h"
#include "core/tree/state.h"

#include <string.h>

/* --- namespaces --- */

static uint32_t space_find(const struct core *c, uint32_t pool, struct namespace_id ns)
{
    uint32_t at = hashed_first(c, TABLE_SPACES, hash_of_space(c, ns), pool);

    for (; at != NONE; at = hashed_at(c, TABLE_SPACES, at)->next) {
        const struct space *s = space_at(c, at);

        if (s->pool == pool && !s->reset && s->ns.hi == ns.hi && s->ns.lo == ns.lo)
            return at;
    }
    return NONE;
}

static uint32_t tenant_of(const struct core *c, uint32_t pool)
{
    return pool_at(c, pool)->tenant;
}

static void space_free(struct core *c, uint32_t slot)
{
    struct space *s = space_at(c, slot);

    space_list_remove(c, &pool_at(c, s->pool)->spaces, slot);
    if (idle_list_has(c, slot))
        idle_list_remove(c, &tenant_at(c, tenant_of(c, s->pool))->idle, slot);
    c->resets -= s->reset;
    hashed_take_out(c, TABLE_SPACES, slot);
    s->used = 0;
    space_slot_put(c, slot, tenant_of(c, s->pool));
}

static uint32_t record_take(struct core *c, uint32_t pool)
{
    const struct list_links nowhere = {.next = NONE, .prev = NONE};
    uint32_t slot = node_slot_take(c, tenant_of(c, pool));
    struct node *n = node_at(c, slot);
    /* Keep copy_gen: a copy of the record's previous node may still be acknowledged. */
    uint32_t gen = gen_next(n->gen), copy_gen = n->work.copy_gen;

    memset(n, 0, offsetof(struct node, heap)); /* the links are not read while it is in no heap */
    n->gen = gen;
    n->work.copy_gen = copy_gen;
    n->used = 1;
    n->pool = (uint16_t)pool;
    n->parent = n->tokens = n->keys = n->pending_engine = NONE;
    n->children = LIST_EMPTY;
    n->sibling = n->keyed = n->due = n->room.changed = nowhere;
    n->work.seal_queue = n->work.copy_queue = n->state.reclaim = nowhere;
    n->work.publish_next = n->state.claims_below = NONE;
    n->jump = slot;
    for (uint32_t g = 0; g < c->limits.groups; g++)
        n->group[g] = (struct node_group){.pages = {NONE, NONE}, .copying = NONE};
    n->last_use = c->changes;
    n->last_use_ns = c->now_ns;
    n->seq = ++c->seq;
    touch(c);
    return slot;
}

static void record_put(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);

    n->used = 0;
    node_slot_put(c, slot, tenant_of(c, n->pool));
    touch(c);
}

uint32_t space_root(const struct core *c, uint32_t pool, struct namespace_id ns)
{
    uint32_t at = space_find(c, pool, ns);

    return at == NONE ? NONE : space_at(c, at)->root;
}

static uint32_t space_make(struct core *c, uint32_t pool, struct namespace_id ns)
{
    uint32_t at = space_slot_take(c, tenant_of(c, pool));
    struct space *s = space_at(c, at);

    s->ns = ns;
    s->pool = pool;
    s->used = 1;
    s->reset = s->nodes = s->held = 0;
    s->figures = (struct figure_counts){0};
    s->idle = (struct list_links){.next = NONE, .prev = NONE};
    space_list_push_front(c, &pool_at(c, pool)->spaces, at);
    s->root = record_take(c, pool);
    node_at(c, s->root)->space = at;
    node_at(c, s->root)->residency = ON_DEVICE | ON_HOST;
    node_at(c, s->root)->chain = tree_root_chain(ns);
    hashed_at(c, TABLE_NODES, s->root)->hash = hash_of_space(c, ns);
    hashed_put(c, TABLE_SPACES, at, hash_of_space(c, ns), pool);
    return s->root;
}

enum tern_err space_open(struct core *c, uint32_t pool, struct namespace_id ns, uint32_t *ret_root,
                         struct reply *ret)
{
    uint32_t root = space_root(c, pool, ns);

    if (root == NONE && !records_room(c, pool, SHARE_NAMESPACES, 1))
        return refuse(ret, TERN_BUSY, share_refused(SHARE_NAMESPACES));
    if (root == NONE && !records_room(c, pool, SHARE_NODES, 1))
        return refuse(ret, TERN_BUSY, share_refused(SHARE_NODES));
    *ret_root = root == NONE ? space_make(c, pool, ns) : root;
    return TERN_OK;
}

/* Frees a root that is no longer needed, and the record of its namespace. */
static void root_release(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);

    if (n->depth > 0 || n->nrefs > 0 || n->refs[REF_HOST] > 0 || n->children.n > 0)
        return;
    obtain_forget(c, slot);
    space_free(c, n->space);
    record_put(c, slot);
}

uint32_t spaces_reset(struct core *c, uint32_t tenant, struct namespace_id ns)
{
    uint32_t nodes = 0;

    c->counts.namespaces_reset++;
    for (uint32_t i = 0; i < c->limits.pools; i++) {
        const struct pool *p = pool_at(c, i);
        uint32_t at = NONE;

        if (p->state != POOL_EMPTY && p->tier == TIER_DEVICE && p->tenant == tenant)
            at = space_find(c, i, ns);
        if (at == NONE)
            continue;
        nodes += space_at(c, at)->nodes;
        space_at(c, at)->reset = 1;
        c->sweep_left = c->limits.nodes;
        c->resets++;
        touch(c);
    }
    return nodes;
}

/* --- finding --- */

/* Returns the hashes of the view's chunk that follows the parent. */
static struct view_hashes hashes(const struct core *c, uint32_t parent, struct token_view *w,
                                 bool content)
{
    return view_hash(w, node_at(c, parent)->depth, hashed_at(c, TABLE_NODES, parent)->hash,
                     content);
}

uint64_t node_child_hash(const struct core *c, uint32_t parent, struct token_view *w)
{
    return hashes(c, parent, w, false).path;
}

uint32_t node_child_hashed(const struct core *c, uint32_t parent, struct token_view *w,
                           uint64_t hash)
{
    for (uint32_t at = hashed_first(c, TABLE_NODES, hash, parent); at != NONE;
         at = hashed_at(c, TABLE_NODES, at)->next)
        if (hashed_at(c, TABLE_NODES, at)->hash == hash && node_at(c, at)->parent == parent &&
            view_equals_chunk(w, node_at(c, parent)->depth, node_heads(node_at(c, at))))
            return at;
    return NONE;
}

void node_child_prefetch(const struct core *c, uint32_t parent, uint64_t hash, uint32_t stage)
{
    uint32_t at;

    if (stage == 0) {
        __builtin_prefetch(bucket_at(c, TABLE_NODES, bucket_of(c, TABLE_NODES, hash, parent)));
        return;
    }
    at = hashed_first(c, TABLE_NODES, hash, parent);
    if (at == NONE)
        return;
    if (stage == 1) {
        __builtin_prefetch(hashed_at(c, TABLE_NODES, at));
        __builtin_prefetch(node_at(c, at));
        __builtin_prefetch(node_at(c, at)->group);
    } else {
        __builtin_prefetch(block_at(c, node_at(c, at)->tokens));
        if (node_on_device(node_at(c, at)))
            __builtin_prefetch(page_at(c, node_at(c, at)->group[0].pages[TIER_DEVICE]));
    }
}

uint32_t node_child(const struct core *c, uint32_t parent, struct token_view *w)
{
    const struct node *p = node_at(c, parent);
    uint32_t at = p->children.head;

    if (at == NONE || w->end - p->depth < w->align)
        return NONE;
    if (view_equals_chunk(w, p->depth, node_heads(node_at(c, at))))
        return at;
    if (p->children.n == 1)
        return NONE;
    return node_child_hashed(c, parent, w, node_child_hash(c, parent, w));
}

/* The common case of a walk: a chunk is one block of tokens without extra keys, and its node is the
 * first child. node_child handles all other cases. */
static uint32_t walk_plain(const struct core *c, uint32_t at, const struct token_view *w)
{
    const struct node *n = node_at(c, at);
    uint32_t depth = n->depth;

    if (w->align != TOKEN_BLOCK || depth < w->base || w->nkeys > 0)
        return at;
    for (; w->end - depth >= TOKEN_BLOCK && n->children.head != NONE; depth += TOKEN_BLOCK) {
        const struct node *child = node_at(c, n->children.head);
        uint32_t next = child->children.head;

        /* With cold caches a walk is a chain of misses: prefetch the next node while this chunk's
         * tokens are compared. */
        if (next != NONE)
            __builtin_prefetch(node_at(c, next));
        if (child->keys != NONE || !node_visible(child) || !node_on_device(child) ||
            memcmp(block_at(c, child->tokens)->v, w->v + (depth - w->base),
                   sizeof(struct token_block)) != 0)
            break;
        at = n->children.head;
        n = child;
    }
    return at;
}

uint32_t node_walk(const struct core *c, uint32_t root, struct token_view *w)
{
    uint32_t at = root, child;

    if (space_at(c, node_at(c, root)->space)->reset)
        return root;
    for (;;) {
        at = walk_plain(c, at, w);
        child = node_child(c, at, w);
        if (child == NONE || !node_visible(node_at(c, child)) || !node_on_device(node_at(c, child)))
            return at;
        at = child;
    }
}

/* --- making and ending --- */

/* Two jumps of equal length combine into a longer one, so a path of jumps and parents leads from
 * any depth to any ancestor in a number of hops that is logarithmic in the depth. */
static uint32_t node_jump(const struct core *c, const struct node *p, uint32_t parent)
{
    const struct node *j = node_at(c, p->jump), *jj = node_at(c, j->jump);

    return p->depth - j->depth == j->depth - jj->depth ? j->jump : parent;
}

uint32_t node_first(const struct core *c, uint32_t slot, bool (*is)(const struct node *n))
{
    for (const struct node *n = node_at(c, slot); !is(n); n = node_at(c, slot))
        slot = is(node_at(c, n->jump)) ? n->parent : n->jump;
    return slot;
}

uint32_t node_create(struct core *c, uint32_t parent, struct token_view *w)
{
    uint32_t slot;
    struct view_hashes hash;
    struct node *n, *p;

    check(node_at(c, parent)->nrefs > 0);
    if (!records_room(c, node_at(c, parent)->pool, SHARE_NODES, 1))
        return NONE;
    slot = record_take(c, node_at(c, parent)->pool);
    n = node_at(c, slot);
    p = node_at(c, parent);
    n->parent = parent;
    n->jump = node_jump(c, p, parent);
    n->space = p->space;
    n->depth = p->depth + w->align;
    child_list_push_front(c, &p->children, slot);
    p->children_on[TIER_DEVICE]++;
    n->residency = ON_DEVICE;
    pool_at(c, n->pool)->resident++;
    reserve_leave(c, parent); /* it stays as long as its child does */
    space_at(c, n->space)->nodes++;
    hash = hashes(c, parent, w, true);
    hashed_put(c, TABLE_NODES, slot, hash.path, parent);
    n->chain = tree_chain(c, parent, hash.content);
    pool_at(c, n->pool)->nodes++;
    node_changed(c, slot);
    state_settle(c, parent); /* it may be a fork point now */
    return slot;
}

void node_take_chunk(struct core *c, uint32_t slot, struct token_buf *b)
{
    struct node *n = node_at(c, slot);
    struct pool *p = pool_at(c, n->pool);

    tokens_take_chunk(c, b, &n->tokens, &n->keys);
    if (n->keys == NONE)
        return;
    keyed_list_push(c, &p->keyed, slot);
    p->node_keys += tokens_count_keys(c, n->keys);
}

static void drop_chunk(struct core *c, uint32_t slot)
{
    const struct node *n = node_at(c, slot);
    struct pool *p = pool_at(c, n->pool);

    if (n->keys != NONE) {
        keyed_list_remove(c, &p->keyed, slot);
        p->node_keys -= tokens_count_keys(c, n->keys);
    }
    tokens_free(c, (struct token_owner){.tenant = (uint16_t)p->tenant}, node_heads(n));
}

/* Using a node does not mark its ancestors: a removed child passes its last use to its parent. */
static void hand_use_up(struct core *c, uint32_t slot)
{
    const struct node *n = node_at(c, slot);
    struct node *p = node_at(c, n->parent);

    if (p->last_use >= n->last_use)
        return;
    evict_forget(c, n->parent); /* its key grows; the node is offered again */
    p->last_use = n->last_use;
    p->last_use_ns = n->last_use_ns;
}

static uint32_t free_pages(struct core *c, struct node *n, enum tier tier)
{
    uint32_t freed = 0;

    for (uint32_t g = 0; g < c->limits.groups; g++)
        freed += chain_free(c, &n->group[g].pages[tier]);
    return freed;
}

/* Counts a node that leaves the device. Its ancestors stay in the reserve, because they are the
 * next to be evicted. */
static void leave_device(struct core *c, struct node *n)
{
    struct node *p = node_at(c, n->parent);

    pool_at(c, n->pool)->resident--;
    pool_at(c, n->pool)->reserved -= n->reserved;
    p->children_on[TIER_DEVICE]--;
    p->reserved_children -= n->reserved;
    n->residency &= ON_HOST;
    n->reserved = 0;
}

void node_due(struct core *c, uint32_t slot, bool due)
{
    const uint32_t low = state_low(c, slot);
    uint32_t at = slot;

    node_pool(c, node_at(c, slot))->stores_due += due ? 1 : -1u;
    do {
        struct node *n = node_at(c, at);

        check(due || n->work.stores_due > 0);
        n->work.stores_due += due ? 1 : -1u;
        c->visits++;
        node_offer(c, at);
        at = n->parent;
    } while (node_at(c, at)->depth > low);
    touch(c);
}

/* Ends the stores that are due for a node that leaves memory. No node is below it, so only its own
 * stores still need it. */
static void due_forget(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);
    struct tenant *t = tenant_at(c, tenant_of(c, n->pool));

    while (n->work.stores_due > 0)
        node_due(c, slot, false);
    if (!due_list_has(c, slot))
        return;
    due_list_remove(c, n->due_ns ? &t->disk_due : &t->disk_late, slot);
    t->disk.failed += !space_at(c, n->space)->reset;
}

/* A node has left the device: its parent may have become a leaf, or is no longer a fork point. */
static void left(struct core *c, uint32_t parent)
{
    state_settle(c, parent);
    node_offer(c, parent);
    root_release(c, parent);
}

uint32_t node_destroy(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot), *p = node_at(c, n->parent);
    uint32_t parent = n->parent, freed;

    check(n->depth > 0 && n->nrefs == 0 && n->refs[REF_HOST] == 0 && n->children.n == 0);
    check(n->work.loaders == 0 && n->state.host_borrowers == 0);
    c->visits += NODE_VISITS;
    due_forget(c, slot);
    copy_forget(c, slot);
    state_forget(c, slot);
    evict_forget(c, slot);
    obtain_forget(c, slot);
    hand_use_up(c, slot);
    if (node_on_device(n))
        leave_device(c, n);
    p->children_on[TIER_HOST] -= node_on_host(n);
    freed = free_pages(c, n, TIER_DEVICE);
    free_pages(c, n, TIER_HOST);
    c->host_corrupt -= n->host_corrupt;
    n->residency = n->host_corrupt = 0;
    tree_event(c, slot, TREE_REMOVED);
    drop_chunk(c, slot);
    hashed_take_out(c, TABLE_NODES, slot);
    child_list_remove(c, &p->children, slot);
    pool_at(c, n->pool)->nodes--;
    space_at(c, n->space)->nodes--;
    record_put(c, slot);
    left(c, parent);
    return freed;
}

uint32_t node_demote(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);
    uint32_t freed;

    check(node_on_host(n) && n->nrefs == 0 && n->children_on[TIER_DEVICE] == 0);
    copy_forget(c, slot);
    state_leave(c, slot);
    evict_forget(c, slot);
    hand_use_up(c, slot);
    obtain_forget_tier(c, slot, TIER_DEVICE);
    freed = free_pages(c, n, TIER_DEVICE);
    leave_device(c, n);
    n->pending_engine = NONE;
    n->work.publish_step = 0;
    if (n->work.seal == SEAL_DONE)
        seal_state_move(&n->work.seal, SEAL_NONE);
    touch(c);
    tree_event(c, slot, TREE_TIER);
    node_offer(c, slot);
    left(c, n->parent);
    return freed;
}

void node_leave_host(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);
    uint32_t parent = n->parent;

    check(node_on_host(n) && n->refs[REF_HOST] == 0 && n->work.copy == COPY_NONE &&
          (node_on_device(n) || n->children.n == 0));
    if (!node_on_device(n)) {
        node_destroy(c, slot);
        return;
    }
    obtain_forget_tier(c, slot, TIER_HOST);
    free_pages(c, n, TIER_HOST);
    c->host_corrupt -= n->host_corrupt;
    n->residency &= ON_DEVICE;
    n->host_corrupt = 0;
    node_at(c, parent)->children_on[TIER_HOST]--;
    touch(c);
    tree_event(c, slot, TREE_TIER);
    reserve_leave(c, slot);
    node_offer(c, slot);
    node_offer(c, parent);
}

void node_arrive(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);

    n->residency |= ON_DEVICE;
    node_at(c, n->parent)->children_on[TIER_DEVICE]++;
    pool_at(c, n->pool)->resident++;
    reserve_leave(c, n->parent);
    node_changed(c, slot);
    touch(c);
}

/* Namespaces are evicted in the order in which they were released. */
static void space_release(struct core *c, uint32_t slot)
{
    struct space *s = space_at(c, slot);

    check(s->held > 0);
    if (--s->held == 0)
        idle_list_push(c, &tenant_at(c, tenant_of(c, s->pool))->idle, slot);
}

void node_unpin(struct core *c, uint32_t slot, enum ref_kind kind)
{
    struct node *n = node_at(c, slot);

    check(n->refs[kind] > 0);
    n->refs[kind]--;
    n->nrefs -= kind != REF_HOST;
    space_release(c, n->space);
    touch(c);
    if (n->nrefs > 0 && (n->refs[REF_HOST] > 0 || pool_at(c, n->pool)->tiers[TIER_HOST] == NONE))
        return;
    if (n->depth > 0) {
        node_offer(c, slot);
        return;
    }
    node_changed(c, slot);
    root_release(c, slot);
}

void node_refs(const struct core *c, uint32_t slot, const struct group *g, uint32_t from,
               struct page_ref *refs)
{
    const struct node *n = node_at(c, slot);
    uint32_t each = g->segment, end = segment_end(g, n->depth);

    /* From the deepest segment upwards, filling `refs` from the end. */
    for (; end > from; n = node_at(c, n->parent)) {
        uint32_t at = n->group[g->index].pages[TIER_DEVICE], start = end - each;

        for (uint32_t i = start; i < end; i++, at = page_list_next(c, at)) {
            check(at != NONE); /* the caller knows that the path has it */
            if (i >= from)
                refs[i - from] = page_ref_of(c, at);
        }
        end = start;
    }
}
