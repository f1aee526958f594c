/* Counts what eviction could free. See obtain.h. */
#include "core/tree/obtain.h"

#include "core/tree/state.h" /* its inline functions */

/* A node without a host copy stays on the device for nodes below it that are held on the host. */
static bool kept(const struct node_room *r, enum tier tier)
{
    return r->kept[tier] > 0 ||
           (tier == TIER_DEVICE && !r->in[TIER_HOST] && r->kept[TIER_HOST] > 0);
}

static void count(struct core *c, uint32_t slot, enum tier tier, uint32_t group, bool in)
{
    struct node *n = node_at(c, slot);
    struct pool *p = pool_at(c, pool_at(c, n->pool)->tiers[tier]);

    n->room.counted[tier] = (uint16_t)(n->room.counted[tier] ^ 1u << group);
    for (uint32_t at = n->group[group].pages[tier]; at != NONE; at = page_list_next(c, at))
        page_obtainable(c, p, at, in);
}

/* Returns true if eviction could free the node's pages of this group. STATE can be freed without
 * its node. */
static bool may_go(const struct core *c, const struct node *n, enum tier tier, uint32_t group)
{
    const struct pool *p = pool_at(c, n->pool);

    if (n->group[group].pages[tier] == NONE)
        return false;
    return !kept(&n->room, tier) || (tier == TIER_DEVICE && group_is_state(&p->group[group]) &&
                                     p->supersede != SUPERSEDE_OFF && state_droppable(c, n));
}

static void recount(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);
    const struct pool *p = pool_at(c, n->pool);

    for (uint32_t t = 0; t < TIER_COUNT; t++)
        for (uint32_t g = 0; g < p->ngroups && p->tiers[t] != NONE; g++) {
            bool go = may_go(c, n, t, g);

            if (go != !!(n->room.counted[t] & 1u << g))
                count(c, slot, t, g, go);
        }
}

/* Nodes, jobs and stores that one refusal examines at most, so repeated requests cost the owner
 * little. */
#define AFTER_VISITS 1024u

/* Nodes of a pool that checksum jobs, copies or due stores keep. */
struct kept_nodes {
    const struct pool *pool;
    uint32_t looks, n, node[AFTER_VISITS];
};

/* A search for `missing` pages of a group that nothing else keeps. */
struct look {
    uint32_t group, missing, found, left;
};

/* Returns false if no look is left. */
static bool add_kept(struct core *c, struct kept_nodes *k, uint32_t node)
{
    if (k->looks == AFTER_VISITS)
        return false;
    k->looks++;
    c->visits++;
    if (node_pool(c, node_at(c, node)) == k->pool)
        k->node[k->n++] = node;
    return true;
}

/* Returns false if there are more. */
static bool find_kept(struct core *c, struct kept_nodes *k)
{
    const struct tenant *t = tenant_at(c, k->pool->tenant);
    const struct list *seals[] = {&t->seals_queued, &c->seals_out}, *due = &t->disk_due;
    bool all = true;

    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t at = seals[i]->head; at != NONE && all; at = seal_list_next(c, at))
            all = add_kept(c, k, at);
    for (uint32_t at = c->copies_out.head; at != NONE && all; at = copy_list_next(c, at))
        all = add_kept(c, k, at);
    for (uint32_t at = due->head; at != NONE && all; at = due_list_next(c, at))
        all = add_kept(c, k, at);
    for (uint32_t at = c->disk_stores.head; at != NONE && all; at = disk_store_list_next(c, at)) {
        const struct disk_store *s = disk_store_at(c, at);
        const struct node *n = node_at(c, s->node);

        if (s->keeps && n->used && n->gen == s->node_gen)
            all = add_kept(c, k, s->node);
    }
    return all;
}

static bool nothing_else_keeps(const struct node *n)
{
    return n->depth > 0 && !n->room.looked && n->nrefs == n->refs[REF_JOB] && node_visible(n) &&
           !n->state.refilling && n->work.loaders == 0 &&
           (n->work.copy == COPY_NONE || n->work.copy_from == TIER_DEVICE) &&
           n->room.kept[TIER_DEVICE] - n->room.own[TIER_DEVICE] == n->room.looked_below;
}

/* Counts a kept node, and the ancestors that only jobs and stores keep, once everything that these
 * keep below them is counted. */
static void look_held(struct core *c, uint32_t at, struct look *l)
{
    while (l->left > 0 && l->found < l->missing && nothing_else_keeps(node_at(c, at))) {
        struct node *of = node_at(c, at);

        of->room.looked = 1;
        l->left--;
        c->visits++;
        if (of->group[l->group].pages[TIER_DEVICE] != NONE &&
            !(of->room.counted[TIER_DEVICE] & 1u << l->group))
            l->found += pool_at(c, of->pool)->group[l->group].segment;
        at = of->parent;
        node_at(c, at)->room.looked_below++;
    }
}

static void look_over(const struct core *c, uint32_t at)
{
    bool looked = true;

    for (; looked && at != NONE; at = node_at(c, at)->parent) {
        looked = node_at(c, at)->room.looked;
        node_at(c, at)->room.looked = 0;
        node_at(c, at)->room.looked_below = 0;
    }
}

bool obtain_later(struct core *c, uint32_t group, const struct pool *p, uint32_t missing)
{
    struct look l = {.group = group, .missing = missing, .left = AFTER_VISITS};
    struct kept_nodes k;
    bool all;

    k.pool = p;
    k.looks = k.n = 0; /* an initializer would clear the 4 KiB of `node` for each refusal */
    all = find_kept(c, &k);
    for (uint32_t i = 0; i < k.n; i++)
        look_held(c, k.node[i], &l);
    for (uint32_t i = 0; i < k.n; i++)
        look_over(c, k.node[i]);
    return l.found >= missing || l.left == 0 || !all;
}

void obtain_forget_group(struct core *c, uint32_t slot, enum tier tier, uint32_t group)
{
    if (node_at(c, slot)->room.counted[tier] & 1u << group)
        count(c, slot, tier, group, false);
}

/* Updates the parent's count if the node's `passes` has changed. Returns the parent, to continue
 * there; NONE: nothing changed, or there is no parent. */
static uint32_t tell_parent(struct core *c, uint32_t slot, enum tier tier)
{
    struct node *n = node_at(c, slot);
    bool passes =
        tier == TIER_DEVICE ? n->room.in[tier] && kept(&n->room, tier) : n->room.kept[tier] > 0;

    c->visits++;
    recount(c, slot);
    if (passes == n->room.passes[tier])
        return NONE;
    n->room.passes[tier] = passes;
    if (n->parent != NONE)
        node_at(c, n->parent)->room.kept[tier] += passes ? 1 : -1u;
    return n->parent;
}

/* Returns true if the piece of work is over: the remaining ancestors are updated later. */
static bool puts_off(struct core *c, uint32_t at, bool first)
{
    if (first || !piece_over(c))
        return false;
    node_changed(c, at);
    return true;
}

static void pass_on_device(struct core *c, uint32_t slot)
{
    for (uint32_t at = slot; at != NONE && !puts_off(c, at, at == slot);)
        at = tell_parent(c, at, TIER_DEVICE);
}

/* Updates the ancestors after the node became kept or stopped being kept. An ancestor that nothing
 * below keeps any more may be evicted. */
static void pass_on(struct core *c, uint32_t slot, enum tier tier)
{
    for (uint32_t at = slot; at != NONE && !puts_off(c, at, at == slot);) {
        if (tier == TIER_HOST)
            pass_on_device(c, at); /* it may be kept there for nodes on the host */
        if (tier == TIER_HOST && at != slot && !node_kept_below(node_at(c, at), tier))
            evict_offer(c, at);
        at = tell_parent(c, at, tier);
    }
}

static void set_own(struct core *c, uint32_t slot, enum tier tier, bool in, bool held)
{
    struct node_room *r = &node_at(c, slot)->room;

    r->kept[tier] += (uint32_t)held - r->own[tier];
    r->own[tier] = held;
    r->in[tier] = in;
    pass_on(c, slot, tier);
}

/* A HOST ref counts before its copy exists. */
static bool held_as_counted(const struct node *n, enum tier tier)
{
    return (tier == TIER_HOST || node_on_device(n)) && node_held(n, tier);
}

static void changed_take(struct core *c, uint32_t slot)
{
    changed_list_remove(c, &pool_at(c, node_at(c, slot)->pool)->changed, slot);
    c->nchanged--;
}

static void settle_node(struct core *c, uint32_t slot)
{
    const struct node *n = node_at(c, slot);
    const struct pool *p = pool_at(c, n->pool);

    changed_take(c, slot);
    for (uint32_t t = 0; t < TIER_COUNT; t++)
        if (p->tiers[t] != NONE)
            set_own(c, slot, t, n->residency >> t & 1, held_as_counted(n, t));
    evict_offer(c, slot); /* pass_on may have put it off */
}

/* Settles nodes until `most` are left over all pools. */
static bool settle_pool(struct core *c, struct pool *p, uint32_t most)
{
    while (p->changed.n > 0 && c->nchanged > most) {
        if (piece_over(c))
            return false;
        settle_node(c, p->changed.head);
    }
    return true;
}

bool obtain_settle(struct core *c, struct pool *p)
{
    return settle_pool(c, p, 0);
}

bool obtain_flush(struct core *c, uint32_t most)
{
    piece_begin(c);
    for (uint32_t i = 0; i < c->limits.pools && c->nchanged > most; i++)
        if (!settle_pool(c, pool_at(c, i), most))
            return false;
    return true;
}

static void leave(struct core *c, uint32_t slot, enum tier tier)
{
    const struct node_room *r = &node_at(c, slot)->room;

    /* Changes below the node that have not reached the parent yet are passed on now. */
    if (r->own[tier] || r->in[tier] || r->passes[tier])
        set_own(c, slot, tier, false, false);
}

static void forget_groups(struct core *c, uint32_t slot, enum tier tier)
{
    for (uint32_t g = 0; g < c->limits.groups; g++)
        obtain_forget_group(c, slot, tier, g);
}

void obtain_forget_tier(struct core *c, uint32_t slot, enum tier tier)
{
    leave(c, slot, tier);
    forget_groups(c, slot, tier);
}

void obtain_forget(struct core *c, uint32_t slot)
{
    for (uint32_t t = 0; t < TIER_COUNT; t++)
        leave(c, slot, t);
    for (uint32_t t = 0; t < TIER_COUNT; t++)
        forget_groups(c, slot, t); /* after both tiers: leave() recounts */
    for (uint32_t t = 0; t < TIER_COUNT; t++)
        check(node_at(c, slot)->room.kept[t] == 0);
    if (node_at(c, slot)->room.changed.prev != NONE)
        changed_take(c, slot);
}
