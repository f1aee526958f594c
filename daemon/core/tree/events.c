/* See nodes.h. Invariant: numbers increase by one, and a tenant's ring has exactly the last
 * limits.events of its changes, in order. */
#include "core/tree/nodes.h"

#include "base/hash.h"
#include "core/tree/tokens.h"

uint64_t tree_root_chain(struct namespace_id ns)
{
    return hash_mix(ns.hi, ns.lo);
}

uint64_t tree_chain(const struct core *c, uint32_t parent, uint64_t content)
{
    const struct node *p = node_at(c, parent);
    uint64_t before = p->depth > 0 ? p->chain : tree_root_chain(space_at(c, p->space)->ns);

    return hash_mix(before, content);
}

#define STORED 0x80u /* in node.announced, besides the tiers last sent to subscribers */

/* Returns true if the event has to be sent to subscribers, and records that it was. */
static bool is_news(struct node *n, enum tree_event_kind kind, uint32_t tiers)
{
    bool first = kind == TREE_STORED, known = n->announced != 0;

    if (known == first || (kind == TREE_TIER && n->announced == (STORED | tiers)))
        return false;
    n->announced = (uint8_t)(kind == TREE_REMOVED ? 0 : STORED | tiers);
    return true;
}

void tree_event(struct core *c, uint32_t node, enum tree_event_kind kind)
{
    struct node *n = node_at(c, node);
    const struct pool *p = pool_at(c, n->pool);
    uint32_t tiers = kind == TREE_REMOVED ? 0 : n->residency;
    struct tenant *t = tenant_at(c, p->tenant);
    const struct node *parent;
    struct tree_event *at;

    check(n->used && n->depth > 0);
    if (!is_news(n, kind, tiers))
        return;
    parent = node_at(c, n->parent);
    at = event_at(c, p->tenant, t->event_next);
    if (t->event_next > c->limits.events)
        t->event_lost = at->seq;
    *at = (struct tree_event){
        .seq = c->event_next,
        .ns = space_at(c, n->space)->ns,
        .chain = n->chain,
        .parent_chain = parent->depth > 0 ? parent->chain : 0,
        .kind = (uint16_t)kind,
        .tiers = (uint16_t)tiers,
        .pool = n->pool,
        .pool_gen = p->gen,
        .depth = n->depth,
        .node = node,
        .node_gen = n->gen,
    };
    c->event_next++;
    t->event_next++;
    touch(c);
}

void core_event_own_range(const struct core *c, uint32_t tenant, uint64_t *ret_first,
                          uint64_t *ret_next)
{
    uint64_t next = tenant_at(c, tenant)->event_next;

    *ret_next = next;
    *ret_first = next > c->limits.events ? next - c->limits.events : 1;
}

uint64_t core_event_own_at(const struct core *c, uint32_t tenant, uint64_t seq)
{
    uint64_t first, next;

    core_event_own_range(c, tenant, &first, &next);
    while (first < next) {
        uint64_t middle = first + (next - first) / 2;

        if (event_at(c, tenant, middle)->seq < seq)
            first = middle + 1;
        else
            next = middle;
    }
    return first;
}

uint64_t core_event_own_lost(const struct core *c, uint32_t tenant, uint64_t seq)
{
    uint64_t first, next, numbers;

    core_event_own_range(c, tenant, &first, &next);
    if (seq > tenant_at(c, tenant)->event_lost)
        return 0;
    numbers = tenant_at(c, tenant)->event_lost - seq + 1;
    return numbers < first - 1 ? numbers : first - 1;
}

bool core_event_own_view(const struct core *c, uint32_t tenant, uint64_t own,
                         struct tree_event_view *ret)
{
    const struct tree_event *e = event_at(c, tenant, own);
    uint64_t first, next;

    core_event_own_range(c, tenant, &first, &next);
    if (own < first || own >= next)
        return false;
    *ret = (struct tree_event_view){
        .seq = e->seq,
        .kind = (enum tree_event_kind)e->kind,
        .tenant = tenant,
        .pool = e->pool,
        .pool_gen = e->pool_gen,
        .depth = e->depth,
        .node = {.slot = e->node, .gen = e->node_gen},
        .ns = e->ns,
        .chain = e->chain,
        .parent_chain = e->parent_chain,
        .on_device = e->tiers >> TIER_DEVICE & 1,
        .on_host = e->tiers >> TIER_HOST & 1,
    };
    return true;
}

/* Returns the node that a change names; NULL: it no longer exists. */
static const struct node *node_of(const struct core *c, const struct tree_event_view *e)
{
    const struct node *n = node_at(c, e->node.slot);

    return n->used && n->gen == e->node.gen ? n : NULL;
}

bool core_event_chunk_size(const struct core *c, const struct tree_event_view *e,
                           uint32_t *ret_tokens, uint32_t *ret_keys)
{
    const struct node *n = node_of(c, e);

    if (!n)
        return false;
    *ret_tokens = pool_at(c, n->pool)->align;
    *ret_keys = tokens_count_keys(c, n->keys);
    return true;
}

void core_event_chunk(const struct core *c, const struct tree_event_view *e, uint32_t *ret_tokens,
                      struct extra_key *ret_keys)
{
    const struct node *n = node_of(c, e);

    check(n);
    tokens_copy_chunk(c, n, ret_tokens, ret_keys);
}

uint64_t core_event_base(const struct core *c)
{
    return hash_mix(c->incarnation, 1) >> 12;
}

void core_event_range(const struct core *c, uint64_t *ret_first, uint64_t *ret_next)
{
    uint64_t oldest = c->event_next;

    for (uint32_t i = 0; i < c->limits.tenants; i++) {
        uint64_t first, next;

        core_event_own_range(c, i, &first, &next);
        if (first < next && event_at(c, i, first)->seq < oldest)
            oldest = event_at(c, i, first)->seq;
    }
    *ret_first = oldest;
    *ret_next = c->event_next;
}
