/* The prefix tree. A node is exactly one L-chunk, so a split can only ever be at a multiple of L
 * and there is no code that splits. A pin on a node holds its whole path, since a parent with
 * children is no leaf: pin and unpin are O(1) at any depth. Eviction takes one chunk at a time.
 * Children are found by comparing the newest child's raw tokens first and by a keyed hash of the
 * path after that (arena/hashed.h); a hash alone is never believed. */
#ifndef CORE_NODES_H
#define CORE_NODES_H

#include "core/tree/obtain.h"
#include "core/tree/tokens.h"

/* The root of (pool, namespace); NONE if it is not there. */
uint32_t space_root(const struct core *c, uint32_t pool, struct namespace_id ns);
/* The same, and it is made if it is not there. BUSY with a static text: the tenant's share of the
 * records is used up, and what is cached can't make way. */
enum tern_err space_open(struct core *c, uint32_t pool, struct namespace_id ns, uint32_t *ret_root,
                         const char **ret_text);

uint32_t node_child(const struct core *c, uint32_t parent, struct token_view *w);
/* Deepest node whose whole path is visible and agrees with the view; the root for none. */
uint32_t node_walk(const struct core *c, uint32_t root, struct token_view *w);

/* The deepest node of the path of which something is so that is so of the root, and of whatever is
 * above a node of which it is: in as few hops. */
uint32_t node_first(const struct core *c, uint32_t slot, bool (*is)(const struct node *n));

/* Fresh child of `parent` without tokens and pages, hashed for the chunk at the parent's depth.
 * Evicts if the tenant's share of the records is used up; NONE if even that brings none. The parent
 * must be pinned. */
uint32_t node_create(struct core *c, uint32_t parent, struct token_view *w);
/* Gives the node the first chunk of the buffer's tokens and keys. */
void node_take_chunk(struct core *c, uint32_t slot, struct token_buf *b);
/* A leaf without refs; its pages on both tiers become FREE. Returns how many of the device. */
uint32_t node_destroy(struct core *c, uint32_t slot);
/* A device leaf without refs there, on the host, too: frees its device pages, returns how many. */
uint32_t node_demote(struct core *c, uint32_t slot);
/* A node of the host tier, without refs there, that is on the device or a leaf of the tree: its
 * host pages become FREE, and it goes if it is not on the device. */
void node_leave_host(struct core *c, uint32_t slot);
/* HISTORY was attached to a node that was on the host alone. */
void node_arrive(struct core *c, uint32_t slot);
/* Kills the records of a namespace in the tenant's pools (N1): lookups pass them by, and sessions
 * that are in them run on. A sweep and each pin that ends take their nodes. Returns how many nodes
 * they had. */
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

/* Pages of a whole chunk, all groups together. */
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

/* A namespace in which something is pinned makes way for nobody. */
static inline void space_hold(struct core *c, uint32_t space)
{
    struct space *s = space_at(c, space);

    if (s->held++ == 0 && idle_list_has(c, space))
        idle_list_remove(c, &tenant_at(c, pool_at(c, s->pool)->tenant)->idle, space);
}

/* A store of the path to the node is due, or no longer: as long as one is, the last copy that
 * memory has of the node stays, and what is left of the STATE with which one goes on from there.
 * The end of the node ends that, too. */
void node_due(struct core *c, uint32_t slot, bool due);

/* O(1), also in depth. */
static inline void node_pin(struct core *c, uint32_t slot, enum ref_kind kind)
{
    struct node *n = node_at(c, slot);

    n->refs[kind]++;
    n->nrefs += kind != REF_HOST; /* of the device tier */
    space_hold(c, n->space);
    node_changed(c, slot);
    touch(c);
}

void node_unpin(struct core *c, uint32_t slot, enum ref_kind kind);
/* Marks as used now. Ancestors need no mark: a child that goes hands its last use up. Of the
 * nodes used in one step the one made first is evicted first; behind node_use_in_turn it is the one
 * used first. */
void node_use(struct core *c, uint32_t slot);
void node_use_in_turn(struct core *c, uint32_t slot);
/* Is the pool's host tier written behind the device? */
static inline bool writes_behind(const struct pool *p)
{
    return p->host_write == HOST_WRITE_BEHIND && p->tiers[TIER_HOST] != NONE;
}

/* Why a path to that depth gets no node more: as share_lacks of the path and its root. */
static inline enum tern_err nodes_lack(const struct core *c, const struct pool *p, uint32_t depth,
                                       struct reason *ret)
{
    return share_lacks(c, (struct share_of){SHARE_NODES, p->tenant}, depth / p->align + 1, ret);
}

/* node_changed, for a node that the eviction under way may take next. Others get into the heaps
 * when their change is settled, before anything is evicted. */
void node_offer(struct core *c, uint32_t slot);
/* Removes an unpinned leaf of the device: of the reserve first, then the least recently used one,
 * with what is on the host alone below it, if it has no copy itself (T13). False: there is none. */
bool evict_one(struct core *c, struct pool *p);
/* The leaf that it would take; NONE for none. */
uint32_t evict_next(struct core *c, struct pool *p);
/* The first node of one of the pool's heaps that may go still; those before it leave the heap.
 * NONE: there is none, or the step has visited as many records as it may. */
uint32_t evict_next_of(struct core *c, struct pool *p, enum heap_kind k);
/* The node leaves the device if it is unheld and has nothing below it there. False: it stays. */
bool evict_leaf(struct core *c, uint32_t slot);
/* T12: gives the pool a slab of a HISTORY group back, the one that costs the fewest prefixes.
 * False: none of those that are partly free can be had for as many prefixes as it has pages. */
bool evict_slab(struct core *c, struct pool *p);
/* Removes what is below a node, deepest first, and then the node. False: the piece of work is over,
 * what was removed stays so, and the next call goes on; or something of it is held. */
bool evict_subtree(struct core *c, uint32_t top);
/* Removes a leaf from both tiers if nobody holds it on either. */
bool node_remove(struct core *c, uint32_t slot);
/* Removes such a leaf of the pool, least recently used first. False: there is none, or the step has
 * visited as many records as it may. */
bool evict_record(struct core *c, struct pool *p);
/* The same of the host tier: one that is not on the device goes altogether. */
bool host_evict_one(struct core *c, struct pool *p);
/* Removes a leaf that nobody holds on either tier, from the device first. The host copy of a node
 * that is held on the device stays, where host_evict_one would take it. */
bool evict_unheld(struct core *c, struct pool *p);
/* Goes on freeing the nodes of namespaces that were reset. False: there are more. */
bool reset_flush(struct core *c);
/* Drops STATE alone: superseded first, oldest first, then the least recently used node's (T12). */
bool evict_state(struct core *c, struct pool *p);
/* Puts a node into the heaps that it belongs to. node_offer does that, and tells what may go. */
void evict_offer(struct core *c, uint32_t slot);
/* The next one to join the reserve waits until something about it changes. */
void reserve_skip(struct core *c, uint32_t slot);
/* Frees pages of the host for the reserve. False: what is there is of more use. */
bool host_evict_spare(struct core *c, struct pool *p);
/* The node's copy is on the host, or on its way there, and it makes way on the device before others
 * do. */
void reserve_join(struct core *c, uint32_t slot);
/* Ends that, and that of the ancestors, which are to leave the device after it. */
void reserve_leave(struct core *c, uint32_t slot);
/* Takes a node out of every heap that it is in. */
void evict_forget(struct core *c, uint32_t slot);

/* The path's pages of one group: logical [from, to) of the chain that ends at `slot`, and at to. */
void node_refs(const struct core *c, uint32_t slot, const struct group *g, uint32_t from,
               struct page_ref *refs);

#endif
