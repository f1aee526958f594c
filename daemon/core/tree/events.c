/* See events.h. What must stay true: numbers go up by one, and the ring holds exactly the last
 * limits.events of them. */
#include "core/tree/events.h"

#include "base/hash.h"

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

#define STORED                                                                                     \
    0x80u /* in node_tiers.announced, beside the tiers that subscribers believe it to be on */

/* Whether subscribers are to be told; notes that they were. */
static bool is_news(struct node *n, enum tree_event_kind kind, uint32_t tiers)
{
    bool first = kind == TREE_STORED, known = n->tiers.announced != 0;

    if (known == first || (kind == TREE_TIER && n->tiers.announced == (STORED | tiers)))
        return false;
    n->tiers.announced = kind == TREE_REMOVED ? 0 : STORED | tiers;
    return true;
}

void tree_event(struct core *c, uint32_t node, enum tree_event_kind kind)
{
    struct node *n = node_at(c, node);
    const struct pool *p = pool_at(c, n->pool);
    uint32_t tiers = kind == TREE_REMOVED ? 0 : n->residency;
    const struct node *parent;

    check(n->used && n->depth > 0);
    if (!is_news(n, kind, tiers))
        return;
    parent = node_at(c, n->parent);
    *event_at(c, (uint32_t)(c->event_next % c->limits.events)) = (struct tree_event){
        .seq = c->event_next,
        .ns = space_at(c, n->space)->ns,
        .chain = n->chain,
        .parent_chain = parent->depth > 0 ? parent->chain : 0,
        .kind = kind,
        .tenant = p->tenant,
        .pool = n->pool,
        .pool_gen = p->gen,
        .depth = n->depth,
        .tiers = tiers,
    };
    c->event_next++;
    touch(c);
}

void core_event_range(const struct core *c, uint64_t *ret_first, uint64_t *ret_next)
{
    *ret_next = c->event_next;
    *ret_first = c->event_next > c->limits.events ? c->event_next - c->limits.events : 1;
}

bool core_event_view(const struct core *c, uint64_t seq, struct tree_event_view *ret)
{
    const struct tree_event *e = event_at(c, (uint32_t)(seq % c->limits.events));

    /* A slot that was never written has the number 0, and one that was used again a later one. */
    if (seq == 0 || e->seq != seq)
        return false;
    *ret = (struct tree_event_view){
        .seq = e->seq,
        .kind = (enum tree_event_kind)e->kind,
        .tenant = e->tenant,
        .pool = e->pool,
        .pool_gen = e->pool_gen,
        .depth = e->depth,
        .ns = e->ns,
        .chain = e->chain,
        .parent_chain = e->parent_chain,
        .on_device = e->tiers >> TIER_DEVICE & 1,
        .on_host = e->tiers >> TIER_HOST & 1,
    };
    return true;
}
