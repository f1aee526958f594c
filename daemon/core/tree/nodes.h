/* The prefix tree. A node is exactly one chunk of L tokens, so splits can only be at multiples of L
 * and no code splits nodes. A pin on a node holds its whole path, since a parent with children is
 * no leaf: pin and unpin are O(1) at any depth. Eviction removes one chunk at a time. A child is
 * found by comparing the newest child's raw tokens first and then by a keyed hash of the path
 * (arena/hashed.h). Invariant: a hash match alone never decides. */
#ifndef CORE_NODES_H
#define CORE_NODES_H

#include "core/tree/obtain.h"
#include "core/tree/tokens.h"

/* Returns the root of (pool, namespace); NONE: it does not exist. */
uint32_t space_root(const struct core *c, uint32_t pool, struct namespace_id ns);
/* The same, but creates it if needed. BUSY: the tenant's share of the records is used up, and not
 * enough can be evicted. */
enum tern_err space_open(struct core *c, uint32_t pool, struct namespace_id ns, uint32_t *ret_root,
                         struct reply *ret);

/* Returns the child of `parent` for the view's next chunk; NONE if there is none. */
uint32_t node_child(const struct core *c, uint32_t parent, struct token_view *w);
/* The same in parts, for lookups of many children of one parent. The view has a chunk there. */
uint64_t node_child_hash(const struct core *c, uint32_t parent, struct token_view *w);
uint32_t node_child_hashed(const struct core *c, uint32_t parent, struct token_view *w,
                           uint64_t hash);
/* Prefetches what node_child_hashed reads: stage 0 the bucket, 1 the node, 2 its tokens and page.
 * Each stage reads what the stage before prefetched. */
#define NODE_PREFETCH_STAGES 3u
void node_child_prefetch(const struct core *c, uint32_t parent, uint64_t hash, uint32_t stage);
/* Returns the deepest node whose whole path is visible and matches the view; the root for none. */
uint32_t node_walk(const struct core *c, uint32_t root, struct token_view *w);

/* Returns the deepest node of the path for which `is` is true, in logarithmically many hops. `is`
 * must be true for the root, and for every ancestor of a node for which it is true. */
uint32_t node_first(const struct core *c, uint32_t slot, bool (*is)(const struct node *n));

/* Creates a child of `parent` without tokens and pages, hashed for the chunk at the parent's depth.
 * Evicts if the tenant's share of the records is used up; NONE if even then no record is free. The
 * parent must be pinned. */
uint32_t node_create(struct core *c, uint32_t parent, struct token_view *w);
/* Moves the first chunk of the buffer's tokens and keys to the node. */
void node_take_chunk(struct core *c, uint32_t slot, struct token_buf *b);
/* Removes a leaf without refs and frees its pages on both tiers. Returns how many on the device. */
uint32_t node_destroy(struct core *c, uint32_t slot);
/* For a device leaf without device refs that is also on the host: frees its device pages and
 * returns how many. */
uint32_t node_demote(struct core *c, uint32_t slot);
/* For a node on the host without host refs, which is on the device or a leaf of the tree: frees its
 * host pages, and removes the node if it is not on the device. */
void node_leave_host(struct core *c, uint32_t slot);
/* HISTORY was attached on the device to a node that was only on the host. */
void node_arrive(struct core *c, uint32_t slot);
/* Marks a namespace in the tenant's pools as reset (N1): lookups skip it, and its sessions
 * continue. A sweep, and each pin that ends, remove its nodes. Returns how many nodes it had. */
uint32_t spaces_reset(struct core *c, uint32_t tenant, struct namespace_id ns);

static inline struct token_heads node_heads(const struct node *n)
{
    return (struct token_heads){n->tokens, n->keys};
}

static inline bool node_visible(const struct node *n)
{
    return n->pending_engine == NONE;
}

static inline struct pool *node_pool(const struct core *c, const struct node *n)
{
    return pool_at(c, n->pool);
}

/* Returns the pages of a whole chunk, over all groups. */
static inline uint32_t chunk_pages(const struct pool *p)
{
    uint32_t n = 0;

    for (uint32_t g = 0; g < p->ngroups; g++)
        n += p->group[g].segment;
    return n;
}

static inline bool node_on_device(const struct node *n)
{
    return n->residency & ON_DEVICE;
}

static inline bool node_on_host(const struct node *n)
{
    return n->residency & ON_HOST;
}

/* A namespace in which a node is pinned is never evicted. */
static inline void space_hold(struct core *c, uint32_t space)
{
    struct space *s = space_at(c, space);

    if (s->held++ == 0 && idle_list_has(c, space))
        idle_list_remove(c, &tenant_at(c, pool_at(c, s->pool)->tenant)->idle, space);
}

/* A store of the path to the node is due, or no longer due. While one is, memory keeps the last
 * copy of the node and the remaining STATE that a resume there needs. The node's end ends that. */
void node_due(struct core *c, uint32_t slot, bool due);

/* O(1) at every depth. */
static inline void node_pin(struct core *c, uint32_t slot, enum ref_kind kind)
{
    struct node *n = node_at(c, slot);

    n->refs[kind]++;
    n->nrefs += kind != REF_HOST; /* nrefs counts refs of the device tier */
    space_hold(c, n->space);
    node_changed(c, slot);
    touch(c);
}

void node_unpin(struct core *c, uint32_t slot, enum ref_kind kind);
/* Marks the node as used now. Ancestors need no mark: a removed child passes its last use up. Of
 * the nodes used in one step the oldest is evicted first; after node_use_in_turn, the one used
 * first. */
void node_use(struct core *c, uint32_t slot);
void node_use_in_turn(struct core *c, uint32_t slot);
/* Returns true if the pool's host tier is written behind the device. */
static inline bool writes_behind(const struct pool *p)
{
    return p->host_write == HOST_WRITE_BEHIND && p->tiers[TIER_HOST] != NONE;
}

/* Returns why a path to that depth gets no further node: share_lacks for the path and its root. */
static inline enum tern_err nodes_lack(const struct core *c, const struct pool *p, uint32_t depth,
                                       struct reason *ret)
{
    return share_lacks(c, (struct share_of){SHARE_NODES, p->tenant}, depth / p->align + 1, ret);
}

/* node_changed, for a node that the running eviction may take next. Other nodes enter the heaps
 * when their change is settled, before anything is evicted. */
void node_offer(struct core *c, uint32_t slot);
/* Removes an unpinned device leaf (T13): from the reserve first, then the least recently used. If
 * it has no host copy, nodes below it on the host go too. Returns false if there is none. */
bool evict_one(struct core *c, struct pool *p);
/* Returns the leaf that evict_one would evict; NONE for none. */
uint32_t evict_next(struct core *c, struct pool *p);
/* Returns the first node of one of the pool's heaps that is still evictable; nodes before it leave
 * the heap. NONE: there is none, or the step has no visits left. */
uint32_t evict_next_of(struct core *c, struct pool *p, enum heap_kind k);
/* Evicts an unheld node without device children from the device. Returns false if it stays. */
bool evict_leaf(struct core *c, uint32_t slot);
/* T12: frees a slab of a HISTORY group for the pool, the one that costs the fewest prefixes.
 * Returns false if each partly free slab would cost more prefixes than it has pages. */
bool evict_slab(struct core *c, struct pool *p);
/* Removes everything below a node, deepest first, then the node. Returns false if a node is held,
 * or if the piece of work is over: the next call continues. */
bool evict_subtree(struct core *c, uint32_t top);
/* Removes a leaf from both tiers if nothing holds it on either. */
bool node_remove(struct core *c, uint32_t slot);
/* Removes such a leaf of the pool, least recently used first. Returns false if there is none, or
 * the step has no visits left. */
bool evict_record(struct core *c, struct pool *p);
/* The same for the host tier: a node that is not on the device is removed entirely. */
bool host_evict_one(struct core *c, struct pool *p);
/* Removes a leaf that nothing holds on either tier, from the device first. Unlike host_evict_one,
 * it keeps the host copy of a node that is held on the device. */
bool evict_unheld(struct core *c, struct pool *p);
/* Continues freeing the nodes of reset namespaces. Returns false if there are more. */
bool reset_flush(struct core *c);
/* Drops STATE alone: superseded first, oldest first, then the least recently used node's (T12). */
bool evict_state(struct core *c, struct pool *p);
/* Puts a node into the heaps that it belongs to. node_offer also calls node_changed. */
void evict_offer(struct core *c, uint32_t slot);
/* The next candidate for the reserve is skipped until its node changes. */
void reserve_skip(struct core *c, uint32_t slot);
/* Frees host pages for the reserve. Returns false if the remaining host pages are of more use. */
bool host_evict_spare(struct core *c, struct pool *p);
/* The node's copy is on the host or under way: the device evicts this node before others. */
void reserve_join(struct core *c, uint32_t slot);
/* Removes the node from the reserve, and its ancestors, which must leave the device after it. */
void reserve_leave(struct core *c, uint32_t slot);
/* Removes a node from all heaps of its pool. */
void evict_forget(struct core *c, uint32_t slot);

/* Fills `refs` with the path's pages of one group: logical [from, to). `to` is the end of
 * `slot`. */
void node_refs(const struct core *c, uint32_t slot, const struct group *g, uint32_t from,
               struct page_ref *refs);

/* Records that tenants share and cached prefixes use (T22): namespaces, prefix nodes, token blocks
 * and extra keys. When a tenant's share is used up, unheld prefixes are evicted: its own first,
 * then those of a tenant that has more common records than it has.
 *
 * Called before records are taken: by nodes.c for nodes and namespaces, and by session requests for
 * their tokens. Invariant: nothing that is pinned, waits for a step or is being copied is evicted,
 * and a step of the core visits no more than STEP_VISITS_MAX records. */

/* Evicts until the pool's tenant may take `n` records. Returns false if it cannot have them; where
 * that is known in advance, nothing is evicted. */
bool records_evict(struct core *c, uint32_t pool, enum share_table table, uint32_t n);

static inline bool records_room(struct core *c, uint32_t pool, enum share_table table, uint32_t n)
{
    return share_room(c, table, pool_at(c, pool)->tenant) >= n || records_evict(c, pool, table, n);
}

/* Records that tokens and their extra keys take of the two stores. */
struct token_need {
    uint32_t blocks, keys;
    const struct token_buf *list; /* they complete its first `end` tokens; NULL: they are all */
    uint32_t end;
};

/* Subtracts the records that become free when the list is first cut to its tokens below `end`. */
void token_need_cut(const struct core *c, struct token_need *need, uint32_t end);

/* Makes room in both stores. BUSY, QUOTA: from share_lacks, for the store that is used up. */
enum tern_err tokens_room(struct core *c, uint32_t pool, struct token_need need,
                          struct reason *ret);

/* Changes of the prefix tree, for subscribers. Each tenant has a ring of its last `limits.events`
 * changes, so no tenant overwrites another's. A change has two numbers: one counted over all
 * tenants, and one counted from 1 within its tenant. A subscriber reads from a number on; changes
 * that the ring has overwritten since are lost. tree_event writes the rings; core_event_own_view
 * (query.h) reads them. */

/* Call it after the change: STORED when a node can be matched on the device for the first time,
 * TIER when it arrived on or left a tier and is still on one, REMOVED before its record is freed.
 * Until STORED, a node causes no TIER and no REMOVED event. A second STORED, and a TIER without a
 * change, cause no event. */
void tree_event(struct core *c, uint32_t node, enum tree_event_kind kind);

/* A chain identifies a prefix: its namespace, all its tokens and its extra keys up to the node's
 * end. It depends on nothing of this daemon, so equal prefixes have equal chains in every pool of
 * equal L and on every daemon of the same version. It is a name; no lookup relies on it. */
uint64_t tree_root_chain(struct namespace_id ns);
/* Returns the chain of a chunk under `parent`; content: the public hash of the chunk. */
uint64_t tree_chain(const struct core *c, uint32_t parent, uint64_t content);

/* A node's copy to the other tier, as far as the tree is concerned: its direction, its destination
 * pages, and its end where the node leaves the tree or the device. tier/ makes the copies.
 * Invariant: the pages of a copy are COPYING, on the host for a writeback and on the device for a
 * load-back, and remain invisible until the copy is acknowledged and, on the device, the node's
 * parent is there (T16). */

/* Returns true if the node has a copy in any state that writes that tier. */
static inline bool copy_goes_to(const struct node *n, enum tier tier)
{
    return n->work.copy != COPY_NONE && n->work.copy_to == (uint32_t)tier;
}

/* Returns true if that copy is acknowledged and waits for the node's parent. */
static inline bool copy_has_come(const struct node *n, enum tier tier)
{
    return n->work.copy == COPY_DONE && n->work.copy_to == (uint32_t)tier;
}

/* Adds the pages that a copy writes to need[]; groups: a bit for each group that it copies. */
void copy_pages_count(const struct pool *p, uint32_t groups, uint32_t *need);
/* Takes these pages out of the caller's promised[], so that its copy can begin at once. Returns
 * false if the copy writes more than was promised and there is no room. */
bool copy_pages_promised(struct pool *p, uint32_t groups, uint32_t *promised);
/* Takes the destination pages of a copy. There must be room. state: QUEUED, or WAITING if the copy
 * has to wait first. */
void copy_begin(struct core *c, uint32_t slot, enum tier to, uint32_t groups,
                enum copy_state state);
/* Makes the copy's pages the node's on the destination tier. */
void copy_pages_attach(struct core *c, uint32_t slot);
void copy_pages_free(struct core *c, struct node *n);
/* Ends a copy without a running job: its node is about to be destroyed or to leave the device. */
void copy_forget(struct core *c, uint32_t slot);
/* Removes a node that is queued for a job from its tenant's queue. */
void copy_unqueue(struct core *c, uint32_t slot);

/* Leftist heaps, threaded through the nodes: insert and remove take logarithmic time. Internal to
 * tree/. A pool's heaps have its evictable nodes, ordered by last use and sequence number: evict.c
 * takes nodes from them, and obtain.c offers nodes that nothing keeps any more. state.c has heaps
 * of children's claims. Invariant: every evictable node is in its heap; a node in a heap may be
 * held. */

/* Returns true if it is a device leaf that may leave the device, with or without a host copy. */
bool device_frees(const struct node *n);
/* Returns true if its host pages may be freed, even with nodes below; on the device it stays. */
bool host_frees(const struct node *n);
/* Returns true if this node of a reset namespace may leave both tiers. */
bool tiers_free(const struct node *n);
/* Returns true if it belongs in heap `k`, one of leaves or one that needs a host tier. */
bool heap_fits(const struct node *n, enum heap_kind k);
void heap_insert(const struct core *c, uint32_t *root, enum heap_kind k, uint32_t slot);
void heap_remove(const struct core *c, uint32_t *root, enum heap_kind k, uint32_t slot);

#endif
