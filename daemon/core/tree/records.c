/* See nodes.h. */

#include "core/tree/nodes.h"
#include "core/tree/tokens.h"

/* Returns true if nothing holds the node or one below it on either tier, as of obtain_settle. */
static bool unheld(const struct node *n)
{
    return n->room.kept[TIER_DEVICE] == 0 && n->room.kept[TIER_HOST] == 0;
}

/* Removes all nodes of a namespace and, with the last one, its record and its root. */
static bool remove_space(struct core *c, uint32_t space)
{
    uint32_t root = space_at(c, space)->root, left = node_at(c, root)->children.n;

    check(left > 0); /* without children it would have been freed */
    if (!unheld(node_at(c, root)))
        return false;
    for (; left > 0; left--)
        if (!evict_subtree(c, node_at(c, root)->children.head))
            return false;
    return true;
}

/* Evicts the longest unused namespace. One that waits for a step moves to the end of the list. */
static bool evict_space(struct core *c, uint32_t tenant)
{
    struct list *idle = &tenant_at(c, tenant)->idle;

    for (uint32_t left = idle->n; left > 0 && !piece_over(c); left--) {
        uint32_t at = idle->head;

        if (!obtain_settle(c, pool_at(c, space_at(c, at)->pool)))
            return false;
        c->visits++;
        if (remove_space(c, at))
            return true;
        if (piece_over(c))
            return false;
        idle_list_remove(c, idle, at);
        idle_list_push(c, idle, at);
    }
    return false;
}

/* Evicts the oldest node with extra keys, and its descendants. A held one moves to the end of the
 * list. */
static bool evict_keyed(struct core *c, struct pool *p)
{
    if (!obtain_settle(c, p))
        return false;
    for (uint32_t left = p->keyed.n; left > 0 && !piece_over(c); left--, c->visits++) {
        uint32_t at = p->keyed.head;

        if (unheld(node_at(c, at)))
            return evict_subtree(c, at);
        keyed_list_remove(c, &p->keyed, at);
        keyed_list_push(c, &p->keyed, at);
    }
    return false;
}

static bool evict_of_pool(struct core *c, struct pool *p, enum share_table table)
{
    return table == SHARE_EXTRA_KEYS ? evict_keyed(c, p) : evict_record(c, p);
}

/* Starts with pool `first` if it is the tenant's. */
static bool evict_of_tenant(struct core *c, struct share_of of, uint32_t first)
{
    if (of.table == SHARE_NAMESPACES)
        return evict_space(c, of.tenant);
    if (pool_at(c, first)->tenant == of.tenant && evict_of_pool(c, pool_at(c, first), of.table))
        return true;
    for (uint32_t i = 0; i < c->limits.pools; i++) {
        struct pool *p = pool_at(c, i);

        if (p->state != POOL_EMPTY && p->tier == TIER_DEVICE && p->tenant == of.tenant &&
            i != first && evict_of_pool(c, p, of.table))
            return true;
    }
    return false;
}

/* --- whether it can bring enough --- */

/* Returns the records that the tenant's prefixes use: the most that their eviction could free. */
static uint64_t cached(const struct core *c, uint32_t tenant, enum share_table table)
{
    uint64_t n = 0;

    if (table == SHARE_NAMESPACES)
        return tenant_at(c, tenant)->idle.n;
    for (uint32_t i = 0; i < c->limits.pools; i++) {
        const struct pool *p = pool_at(c, i);

        if (p->state == POOL_EMPTY || p->tier != TIER_DEVICE || p->tenant != tenant)
            continue;
        if (table == SHARE_NODES)
            n += p->nodes + p->spaces.n;
        else
            n += table == SHARE_EXTRA_KEYS ? p->node_keys
                                           : (uint64_t)p->nodes * tokens_blocks_per_chunk(p->align);
    }
    return n;
}

static uint32_t common_of(const struct core *c, struct share_of of)
{
    return share_common(share_holder(c, of.table, of.tenant));
}

/* Returns true if `asks` may evict prefixes of `has`: only common records, and only while `has` has
 * more of them. */
static bool makes_way_for(const struct core *c, struct share_of asks, struct share_of has)
{
    return common_of(c, has) > common_of(c, asks);
}

static bool could_bring(const struct core *c, struct share_of asks, uint32_t n)
{
    struct share_of has = {asks.table, 0};
    uint64_t most = share_room(c, asks.table, asks.tenant) + cached(c, asks.tenant, asks.table);

    for (; has.tenant < c->limits.tenants && most < n; has.tenant++)
        if (makes_way_for(c, asks, has)) {
            uint64_t its = cached(c, has.tenant, has.table);

            most += its < common_of(c, has) ? its : common_of(c, has);
        }
    return most >= n;
}

bool records_evict(struct core *c, uint32_t pool, enum share_table table, uint32_t n)
{
    struct share_of asks = {table, pool_at(c, pool)->tenant}, has = {table, 0};

    if (!could_bring(c, asks, n))
        return false;
    while (share_room(c, table, asks.tenant) < n && evict_of_tenant(c, asks, pool) &&
           !piece_over(c))
        ;
    while (share_room(c, table, asks.tenant) < n && !piece_over(c) &&
           has.tenant < c->limits.tenants)
        if (!makes_way_for(c, asks, has) || !evict_of_tenant(c, has, pool))
            has.tenant++;
    return share_room(c, table, asks.tenant) >= n;
}

void token_need_cut(const struct core *c, struct token_need *need, uint32_t end)
{
    const struct token_buf *b = need->list;
    uint32_t blocks, keys = 0;

    if (end >= b->end)
        return;
    blocks = tokens_blocks_of(b, b->end - b->first) - tokens_blocks_of(b, end - b->first);
    for (uint32_t i = need->keys ? b->keys : NONE; i != NONE; i = key_at(c, i)->next)
        keys += key_at(c, i)->position >= end;
    need->blocks -= blocks < need->blocks ? blocks : need->blocks;
    need->keys -= keys < need->keys ? keys : need->keys;
}

enum tern_err tokens_room(struct core *c, uint32_t pool, struct token_need need, struct reason *ret)
{
    const uint32_t tenant = pool_at(c, pool)->tenant;
    const struct share_of keys = {SHARE_EXTRA_KEYS, tenant}, blocks = {SHARE_TOKEN_BLOCKS, tenant};
    bool had =
        share_room(c, SHARE_EXTRA_KEYS, tenant) >= need.keys || could_bring(c, keys, need.keys);

    if (had && !records_room(c, pool, SHARE_TOKEN_BLOCKS, need.blocks)) {
        uint32_t all = need.list ? tokens_blocks_of(need.list, need.end) : 0;

        return share_lacks(c, blocks, all > need.blocks ? all : need.blocks, ret);
    }
    return had && records_room(c, pool, SHARE_EXTRA_KEYS, need.keys)
               ? TERN_OK
               : share_lacks(c, keys, need.keys, ret);
}
