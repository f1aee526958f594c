/* See stores.h. store_files.c carries a store out. */
#include "core/disk/stores.h"

#include <string.h>

#include "core/arena/actions.h"
#include "core/tier/host.h"
#include "core/tree/state.h"

uint32_t disk_cold_depth(const struct core_limits *l, const struct pool *p, uint32_t tokens)
{
    uint32_t depth = tokens > l->disk_trim ? tokens - l->disk_trim : 0;

    depth -= depth % l->disk_align;
    if (depth < l->disk_least)
        depth = tokens;
    return depth - depth % p->align;
}

uint32_t disk_boundary(const struct core_limits *l, const struct pool *p, uint32_t length)
{
    uint32_t at = length - length % l->disk_interval;

    return at - at % p->align;
}

/* Returns true if that depth can be stored: without too many chunks, or STATE of too many. */
static bool takes(const struct pool *p, uint32_t depth)
{
    const uint32_t path = depth / p->align;

    return path <= DISK_PATH_MAX && (path <= DISK_WINDOW_MAX || p->reach <= DISK_WINDOW_MAX);
}

uint32_t disk_node_at(struct core *c, struct disk_cut cut)
{
    const struct pool *p = node_pool(c, node_at(c, cut.node));
    const struct path below = {cut.node, cut.depth};
    uint32_t at, first = NONE;

    if (!takes(p, cut.depth))
        return NONE;
    at = state_above_on_both(c, (struct path){node_above(c, below), 0});
    if (p->nstate > 0 && node_at(c, at)->depth == 0)
        first = state_first_below(c, below);
    at = first == NONE ? at : first;
    return takes(p, node_at(c, at)->depth) ? at : NONE;
}

/* Returns true if the disk has it already, as far as the reason requires. */
static bool is_there(struct core *c, const struct disk_wanted *w)
{
    const struct node *n = node_at(c, w->node);
    const struct pool *p = node_pool(c, n);
    uint32_t chunk = disk_of_path(c, w->node, true);
    const struct disk_chunk *k = chunk == NONE ? NULL : disk_chunk_at(c, chunk);

    if (!k || k->depth < n->depth ||
        (p->nstate > 0 && (!disk_is_entry(k) || disk_above(c, p, chunk) != chunk)))
        return false;
    return w->reason != DISK_COLD || (disk_is_entry(k) && k->reason == DISK_COLD);
}

static bool is_wanted_already(const struct core *c, const struct disk_wanted *w)
{
    for (uint32_t at = c->disk_stores.head; at != NONE; at = disk_store_list_next(c, at)) {
        const struct disk_store *s = disk_store_at(c, at);

        if (s->node == w->node && s->node_gen == node_at(c, w->node)->gen &&
            (s->reason == (uint32_t)w->reason || s->reason == DISK_COLD))
            return true;
    }
    return false;
}

bool disk_store_begin(struct core *c, const struct disk_wanted *w)
{
    const struct node *n = node_at(c, w->node);
    const struct pool *p = node_pool(c, n);
    struct disk_store *s;
    uint32_t slot, gen;

    if (w->reply.gen == 0 && (is_there(c, w) || is_wanted_already(c, w)))
        return true;
    if (share_room(c, SHARE_DISK_STORES, p->tenant) == 0)
        return false;
    slot = disk_store_slot_take(c, p->tenant);
    s = disk_store_at(c, slot);
    gen = gen_next(s->gen);
    memset(s, 0, offsetof(struct disk_store, coming));
    s->gen = gen;
    s->tenant = p->tenant;
    s->pool = n->pool;
    s->node = w->node;
    s->node_gen = n->gen;
    s->reason = w->reason;
    s->chunk = s->last = s->file = s->awaits = s->device = s->host = NONE;
    s->session = w->session;
    s->before = w->before;
    s->reply = w->reply;
    s->written = s->keeps = 0;
    s->since_ns = c->now_ns;
    disk_store_state_move(&s->state, DISK_STORE_DUE);
    disk_store_list_push(c, &c->disk_stores, slot);
    store_keep(c, s, !store_late(c, c->now_ns));
    touch(c);
    return true;
}

void disk_store_owe(struct core *c, uint32_t node)
{
    struct node *n = node_at(c, node);

    if (due_list_has(c, node))
        return;
    n->due_ns = c->now_ns > 0 ? c->now_ns : 1;
    due_list_push(c, &tenant_at(c, node_pool(c, n)->tenant)->disk_due, node);
    node_due(c, node, true);
}

/* Removes the first node from the list of nodes whose last copy is kept. */
static void due_pop(struct core *c, struct list *due)
{
    uint32_t node = due_list_pop(c, due);

    node_at(c, node)->due_ns = 0;
    node_due(c, node, false);
}

/* Begins the stores that waited for a record: those with a kept copy first, oldest first. */
static bool due_flush_of(struct core *c, uint32_t tenant)
{
    struct tenant *t = tenant_at(c, tenant);

    while (t->disk_due.n + t->disk_late.n > 0) {
        const bool kept = t->disk_due.n > 0;
        struct disk_wanted w = {.node = kept ? t->disk_due.head : t->disk_late.head,
                                .reason = DISK_COLD};
        const bool begins = share_room(c, SHARE_DISK_STORES, tenant) > 0;

        if (!begins && !(kept && store_late(c, node_at(c, w.node)->due_ns)))
            return true;
        if (piece_over(c))
            return false;
        if (kept)
            due_pop(c, &t->disk_due);
        else
            due_list_remove(c, &t->disk_late, w.node);
        if (!begins)
            due_list_push(c, &t->disk_late, w.node);
        else if (!space_at(c, node_at(c, w.node)->space)->reset)
            (void)disk_store_begin(c, &w); /* a record is free */
        touch(c);
    }
    return true;
}

static bool due_flush(struct core *c)
{
    bool all = true;

    piece_begin(c);
    for (uint32_t i = 0; i < c->limits.tenants && all; i++)
        all = due_flush_of(c, i);
    return all;
}

bool disk_gives_way(struct core *c, const struct pool *p)
{
    bool any = false;

    for (uint32_t at = c->disk_stores.head; at != NONE; at = disk_store_list_next(c, at)) {
        struct disk_store *s = disk_store_at(c, at);

        if (pool_at(c, s->pool) != p || s->state == DISK_STORE_DUE)
            continue;
        any = true;
        if (s->state == DISK_STORE_QUEUED && !reply_waits(c, &s->reply) && !piece_over(c) &&
            (p->tiers[TIER_HOST] != NONE || store_late(c, s->since_ns)))
            store_put_off(c, s);
    }
    return any;
}

static bool is_reset(const struct core *c, const struct disk_store *s)
{
    return space_at(c, node_at(c, s->node)->space)->reset;
}

/* Returns true if the step that wrote the node has passed. A node on the host alone may be below
 * one that was committed again, at a step that has not passed. */
static bool is_written(const struct core *c, uint32_t slot)
{
    return node_visible(node_at(c, node_first(c, slot, node_on_device)));
}

/* Returns the deepest node of the path down to which a store can read: nodes on the device, and
 * below them host copies that match their checksums. */
static uint32_t readable(struct core *c, uint32_t node)
{
    uint32_t at = node, looks = 0;

    for (; c->host_corrupt > 0 && !node_on_device(node_at(c, at)); looks++) {
        bool corrupt = node_at(c, at)->host_corrupt;

        at = node_at(c, at)->parent;
        node = corrupt ? at : node;
    }
    walked(c, looks);
    return state_above_on_both(c, (struct path){node, 0});
}

/* Queues the store: it pins what it reads until that is written. */
static void queue(struct core *c, struct disk_store *s)
{
    s->node_gen = node_at(c, s->node)->gen;
    s->device = node_first(c, s->node, node_on_device);
    s->host = s->device != s->node || !state_resumable(c, s->node)
                  ? host_end(c, (struct path){s->node, 0})
                  : NONE;
    s->state_from = state_low(c, s->node);
    store_hold(c, s);
    disk_store_state_move(&s->state, DISK_STORE_QUEUED);
    touch(c);
}

/* Queues a due store whose step has passed. If the end of its path can no longer be read, the part
 * above is stored, unless the full depth was promised. Returns false if the step has not passed. */
static bool due_look(struct core *c, struct actions *out, struct disk_store *s)
{
    const struct node *n = node_at(c, s->node);
    uint32_t wanted = s->node;

    if (!n->used || n->gen != s->node_gen || is_reset(c, s)) {
        store_end(c, out, s, TERN_GONE, NULL);
        return true;
    }
    if (!is_written(c, s->node))
        return false;
    store_keep(c, s, false); /* this step pins what it can read */
    s->node = readable(c, wanted);
    if (node_at(c, s->node)->depth == 0 ||
        (s->node != wanted && (reply_waits(c, &s->reply) || s->reason == DISK_CONTINUED)))
        store_end(c, out, s, TERN_GONE, NULL);
    else
        queue(c, s);
    return true;
}

/* Returns false if no record is free. */
static bool begin_alone(struct core *c, uint32_t leaf, enum disk_reason reason)
{
    const struct pool *p = node_pool(c, node_at(c, leaf));
    struct disk_wanted w = {.reason = reason};

    /* All ancestors of a visible device node are visible. */
    w.node = readable(c, node_first(c, leaf, node_visible));
    if (takes(p, node_at(c, w.node)->depth))
        return node_at(c, w.node)->depth == 0 || disk_store_begin(c, &w);
    tenant_at(c, p->tenant)->disk.refused++;
    return true;
}

/* Returns true if the tier is nearly full, so that eviction from it is near. */
static bool nearly_full(const struct pool *p)
{
    for (uint32_t g = 0; g < p->ngroups; g++)
        if (!group_is_state(&p->group[g]) &&
            group_free(p, g) < p->group[g].segment + group_total(p, g) / DISK_AHEAD_PART)
            return true;
    return false;
}

/* Returns the leaf that leaves the tier next, if no other tier of memory has it then; NONE. */
static uint32_t leaves_next(struct core *c, struct pool *p, enum tier tier)
{
    const bool host = p->tiers[TIER_HOST] != NONE;
    uint32_t leaf;

    if (host && !nearly_full(pool_at(c, p->tiers[TIER_HOST])))
        return NONE;
    if (tier == TIER_HOST)
        return host ? evict_next_of(c, p, HEAP_ALONE) : NONE;
    leaf = nearly_full(p) ? evict_next(c, p) : NONE;
    return leaf == NONE || node_on_host(node_at(c, leaf)) ? NONE : leaf;
}

/* One such store of a pool at a time: its prefix stays in memory, and others leave before it. */
static bool stores_ahead(const struct core *c, uint32_t pool)
{
    for (uint32_t at = c->disk_stores.head; at != NONE; at = disk_store_list_next(c, at))
        if (disk_store_at(c, at)->pool == pool && disk_store_at(c, at)->reason == DISK_EVICT)
            return true;
    return false;
}

/* D6: stores what leaves memory next while memory still has it. */
static bool evicts_flush(struct core *c)
{
    piece_begin(c);
    for (uint32_t i = 0; (c->touched || c->left_over) && i < c->limits.pools; i++) {
        struct pool *p = pool_at(c, i);

        if (p->state != POOL_OPEN || p->tier != TIER_DEVICE || !disk_on(c, p))
            continue;
        for (uint32_t t = 0; t < TIER_COUNT && !stores_ahead(c, i); t++) {
            uint32_t leaf = leaves_next(c, p, t);

            if (piece_over(c))
                return false;
            if (leaf == NONE || (p->ahead[t] == leaf && p->ahead_gen[t] == node_at(c, leaf)->gen) ||
                !begin_alone(c, leaf, DISK_EVICT))
                continue;
            p->ahead[t] = leaf;
            p->ahead_gen[t] = node_at(c, leaf)->gen;
        }
    }
    return true;
}

static bool is_leaf(const struct core *c, uint32_t slot)
{
    const struct node *n = node_at(c, slot);

    return n->used && n->depth > 0 && n->children.n == 0 && node_pool(c, n)->state == POOL_OPEN &&
           !space_at(c, n->space)->reset && disk_on(c, node_pool(c, n));
}

static bool over(const struct core *c)
{
    return c->disk_shutdown_ns > 0 && c->now_ns >= c->disk_shutdown_ns;
}

/* Sweeps the tenant's leaves in all memory while it has records for stores. A leaf without a record
 * may leave memory; the next event that changes anything continues there. */
static bool sweep_flush(struct core *c, uint32_t tenant)
{
    struct tenant *t = tenant_at(c, tenant);

    if (over(c))
        t->disk_sweep = NONE;
    while ((c->touched || c->left_over) && t->disk_sweep != NONE) {
        uint32_t slot = t->disk_sweep;

        if (piece_over(c))
            return false;
        c->visits++;
        if (is_leaf(c, slot) && node_pool(c, node_at(c, slot))->tenant == tenant) {
            if (share_room(c, SHARE_DISK_STORES, tenant) == 0)
                return true; /* it continues when a store has ended */
            (void)begin_alone(c, slot, DISK_SHUTDOWN);
        }
        t->disk_sweep = slot + 1 < c->limits.nodes ? slot + 1 : NONE;
        touch(c);
    }
    return true;
}

/* Each tenant has its own sweep, so none waits for another's stores (T22). */
static bool shutdown_flush(struct core *c)
{
    bool all = true;

    piece_begin(c);
    for (uint32_t i = 0; c->disk_shutdown_ns > 0 && i < c->limits.tenants && all; i++)
        all = sweep_flush(c, i);
    return all;
}

void disk_shutdown(struct core *c, uint64_t deadline_ns)
{
    if (c->limits.disk_chunks == 0)
        return;
    c->disk_shutdown_ns = deadline_ns ? deadline_ns : 1;
    for (uint32_t i = 0; i < c->limits.tenants; i++)
        if (share_holder(c, SHARE_NODES, i)->used > 0)
            tenant_at(c, i)->disk_sweep = 0;
    touch(c);
}

static bool stores_flush(struct core *c, struct actions *out)
{
    bool moved = false; /* else the same stores would stop every step */

    for (uint32_t at = c->disk_stores.head, next; at != NONE; at = next) {
        struct disk_store *s = disk_store_at(c, at);

        next = disk_store_list_next(c, at);
        c->visits++;
        if (actions_room(out) < 2 || visits_left(c) == 0 || (moved && c->visits >= c->piece_most))
            return false;
        if (s->keeps && store_late(c, s->since_ns))
            store_keep(c, s, false);
        if (over(c) && s->state != DISK_STORE_WRITING)
            store_end(c, out, s, TERN_BUSY, NULL);
        else if (s->state == DISK_STORE_DUE && c->now_ns >= s->after_ns)
            moved |= due_look(c, out, s);
        else if (s->state == DISK_STORE_QUEUED && is_reset(c, s))
            store_end(c, out, s, TERN_GONE, NULL); /* it would store the new content's chunks */
    }
    return true;
}

/* Returns true if a store waits for room, and something was unpinned since its last try. */
static bool may_try_again(const struct core *c)
{
    for (uint32_t at = c->disk_stores.head; at != NONE; at = disk_store_list_next(c, at)) {
        const struct disk_store *s = disk_store_at(c, at);

        if (s->state == DISK_STORE_QUEUED && s->tried != 0 && s->tried != c->disk_let_go &&
            tenant_at(c, s->tenant)->disk_writing == NONE)
            return true;
    }
    return false;
}

/* Writes the oldest store that can write of each tenant in turn. */
static bool writes_flush(struct core *c, struct actions *out)
{
    const uint32_t last = c->disk_turn;
    uint32_t tries = 0;

    for (uint32_t i = 1; c->disk_stores.n > 0 && i <= c->limits.tenants; i++) {
        uint32_t tenant = (last + i) % c->limits.tenants, at = c->disk_stores.head, next;

        for (; at != NONE && tenant_at(c, tenant)->disk_writing == NONE; at = next) {
            struct disk_store *s = disk_store_at(c, at);
            enum store_step step;

            next = disk_store_list_next(c, at);
            c->visits++;
            if (s->tenant != tenant || s->state != DISK_STORE_QUEUED || !store_may_try(c, s))
                continue;
            if (!store_may_write(out) || tries == DISK_TRIES_MAX ||
                (tries++ > 0 && c->visits >= c->piece_most))
                return false;
            step = store_write(c, out, s);
            if (step == STORE_GOES_ON)
                return false;
            if (step != STORE_WAITS)
                c->disk_turn = tenant;
        }
    }
    return !may_try_again(c);
}

bool disk_flush(struct core *c, struct actions *out)
{
    uint32_t records;
    bool all;

    if (c->limits.disk_chunks == 0)
        return true;
    all = disk_bare_flush(c);
    all = disk_recover_flush(c) && disk_bad_flush(c) && all;
    all = due_flush(c) && all;
    all = evicts_flush(c) && all;
    all = shutdown_flush(c) && all;
    records = c->free_disk_stores.n; /* records freed below are for stores that had none */
    all = stores_flush(c, out) && all;
    if (!disk_gone_flush(c, out))
        return false; /* the next writes may need the records */
    /* While lost chunks are being searched, a new file could depend on one of them. */
    if (c->disk_ready && c->disk_bad_left == 0 && c->now_ns >= c->disk_pause_ns)
        all = writes_flush(c, out) && all;
    all = disk_bare_flush(c) && all; /* chunks evicted in this step */
    /* A reset is answered when nothing older than it is left. */
    return disk_gone_flush(c, out) && !c->disk_resets_over && c->free_disk_stores.n <= records &&
           all;
}

/* Returns the earlier of `first` and the time until which a copy is kept since `since_ns`. */
static uint64_t earlier(uint64_t first, uint64_t since_ns)
{
    uint64_t end = since_ns + DISK_KEEP_MS_MAX * NS_PER_MS;

    return end < first ? end : first;
}

uint64_t disk_deadline(const struct core *c)
{
    uint64_t first = UINT64_MAX;

    if (c->disk_stores.n > 0 && c->now_ns < c->disk_pause_ns)
        first = c->disk_pause_ns;
    if (c->disk_shutdown_ns > c->now_ns && c->disk_shutdown_ns < first)
        first = c->disk_shutdown_ns;
    for (uint32_t at = c->disk_stores.head; at != NONE; at = disk_store_list_next(c, at)) {
        const struct disk_store *s = disk_store_at(c, at);

        if (s->after_ns > c->now_ns && s->after_ns < first)
            first = s->after_ns;
        if (s->keeps)
            first = earlier(first, s->since_ns);
    }
    /* A node waits for a record only while stores have all records. */
    for (uint32_t i = 0; i < c->limits.tenants && c->disk_stores.n > 0; i++)
        if (tenant_at(c, i)->disk_due.n > 0)
            first = earlier(first, node_at(c, tenant_at(c, i)->disk_due.head)->due_ns);
    return first;
}
