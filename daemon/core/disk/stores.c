/* See stores.h. How a store is carried out is in store_files.c. */
#include "core/disk/stores.h"

#include <string.h>

#include "core/arena/actions.h"
#include "core/disk/entries.h"
#include "core/disk/store_files.h"
#include "core/tree/state.h"

/* --- when and where (D1, D2) --- */

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

uint32_t disk_node_at(struct core *c, struct disk_cut cut)
{
    const struct pool *p = node_pool(c, node_at(c, cut.node));
    const struct path below = {cut.node, cut.depth};
    uint32_t at = state_above(c, node_above(c, below)), first;

    c->visits += node_at(c, cut.node)->depth / p->align; /* what the store looks at first, too */
    if (p->nstate == 0 || node_at(c, at)->depth > 0)
        return at;
    first = state_first_below(c, below);
    return first == NONE ? at : first;
}

/* --- beginning --- */

/* Does the disk have it already, as far as that reason asks for? */
static bool is_there(const struct core *c, const struct disk_wanted *w)
{
    uint32_t chunk = disk_of_node(c, w->node);
    const struct disk_chunk *k;

    if (chunk == NONE || disk_above(c, node_pool(c, node_at(c, w->node)), chunk) != chunk)
        return false;
    k = disk_chunk_at(c, chunk);
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

static uint32_t path_of(const struct core *c, uint32_t node)
{
    return node_at(c, node)->depth / node_pool(c, node_at(c, node))->align;
}

bool disk_store_begin(struct core *c, const struct disk_wanted *w)
{
    const struct node *n = node_at(c, w->node);
    const struct pool *p = node_pool(c, n);
    struct disk_store *s;
    uint32_t slot, gen;

    if (w->conn == NONE && path_of(c, w->node) > DISK_PATH_MAX) {
        tenant_at(c, p->tenant)->disk.refused++;
        return true;
    }
    c->visits += w->conn == NONE ? 2 * path_of(c, w->node) : 0;
    if (w->conn == NONE && (is_there(c, w) || is_wanted_already(c, w)))
        return true;
    if (share_room(c, SHARE_DISK_STORES, p->tenant) == 0)
        return false;
    slot = disk_store_slot_take(c);
    share_take(c, SHARE_DISK_STORES, p->tenant);
    s = disk_store_at(c, slot);
    gen = gen_next(s->gen);
    memset(s, 0, offsetof(struct disk_store, coming));
    s->gen = gen;
    s->tenant = p->tenant;
    s->pool = n->pool;
    s->node = w->node;
    s->node_gen = n->gen;
    s->reason = w->reason;
    s->chunk = s->last = s->file = s->awaits = NONE;
    s->session = w->session;
    s->before = w->before;
    s->conn = w->conn;
    s->request_id = w->request_id;
    s->trace_id = w->trace_id;
    s->written = 0;
    disk_store_state_move(&s->state, DISK_STORE_DUE);
    disk_store_list_push(c, &c->disk_stores, slot);
    touch(c);
    return true;
}

bool disk_gives_way(struct core *c, const struct pool *p)
{
    bool any = false;

    for (uint32_t at = c->disk_stores.head, next; at != NONE; at = next) {
        struct disk_store *s = disk_store_at(c, at);

        next = disk_store_list_next(c, at);
        if (pool_at(c, s->pool) != p || s->conn != NONE || s->state == DISK_STORE_DUE)
            continue;
        any = true;
        if (s->state == DISK_STORE_QUEUED && visits_left(c) > 0)
            store_end(c, NULL, s, TERN_BUSY);
    }
    return any;
}

void disk_conn_closed(struct core *c, uint32_t conn)
{
    for (uint32_t at = c->disk_stores.head; at != NONE; at = disk_store_list_next(c, at))
        if (disk_store_at(c, at)->conn == conn)
            disk_store_at(c, at)->conn = NONE;
}

/* --- from DUE to QUEUED --- */

static bool is_reset(const struct core *c, const struct disk_store *s)
{
    return space_at(c, node_at(c, s->node)->space)->reset;
}

/* Its step has passed: what it needs stays on the device until it is written. */
static void due_look(struct core *c, struct actions *out, struct disk_store *s)
{
    const struct node *n = node_at(c, s->node);

    if (!n->used || n->gen != s->node_gen || !node_on_device(n) || is_reset(c, s)) {
        store_end(c, out, s, TERN_GONE);
    } else if (path_of(c, s->node) > DISK_PATH_MAX) {
        store_end(c, out, s, TERN_UNSUPPORTED);
    } else if (node_visible(n) && !state_resumable(c, s->node)) {
        store_end(c, out, s, TERN_GONE);
    } else if (node_visible(n)) {
        node_pin(c, s->node, REF_TRANSFER);
        s->state_from = state_low(c, s->node);
        c->visits += 2 * (n->depth - s->state_from) / node_pool(c, n)->align;
        state_hold(c, (struct path){s->node, s->state_from});
        disk_store_state_move(&s->state, DISK_STORE_QUEUED);
        touch(c);
    }
}

/* --- stores that nobody asks for --- */

static void begin_alone(struct core *c, uint32_t leaf, enum disk_reason reason)
{
    struct disk_wanted w = {.node = state_above(c, leaf), .reason = reason, .conn = NONE};

    c->visits += path_of(c, leaf);
    if (node_at(c, w.node)->depth > 0)
        (void)disk_store_begin(c, &w); /* where there is no record, it goes unstored */
}

/* Where something left memory, what leaves it next is stored. */
static void evicts_flush(struct core *c)
{
    for (uint32_t i = 0; i < c->limits.pools; i++) {
        struct pool *p = pool_at(c, i);
        uint32_t leaf;

        if (!p->left_memory || visits_left(c) == 0)
            continue;
        p->left_memory = 0;
        touch(c);
        if (p->state != POOL_OPEN || !disk_on(c, p))
            continue;
        leaf = evict_next(c, p);
        if (leaf != NONE && node_visible(node_at(c, leaf)))
            begin_alone(c, leaf, DISK_EVICT);
    }
}

bool disk_evicts_left(const struct core *c)
{
    for (uint32_t i = 0; c->limits.disk_chunks > 0 && i < c->limits.pools; i++)
        if (pool_at(c, i)->left_memory)
            return true;
    return false;
}

static bool is_leaf(const struct core *c, uint32_t slot)
{
    const struct node *n = node_at(c, slot);

    return n->used && n->depth > 0 && node_on_device(n) && node_visible(n) &&
           n->tier[TIER_DEVICE].children == 0 && node_pool(c, n)->state == POOL_OPEN &&
           !space_at(c, n->space)->reset && disk_on(c, node_pool(c, n));
}

static bool record_for(const struct core *c, uint32_t slot)
{
    return share_room(c, SHARE_DISK_STORES, node_pool(c, node_at(c, slot))->tenant) > 0;
}

/* It stopped at a leaf for want of a record, and there is one now. */
static bool sweep_may_go_on(const struct core *c)
{
    return c->disk_sweep != NONE && (!is_leaf(c, c->disk_sweep) || record_for(c, c->disk_sweep));
}

/* Leaves of the device, while there are records for stores. */
static bool shutdown_flush(struct core *c)
{
    uint32_t end = piece_begin(c);

    while (c->disk_sweep != NONE) {
        uint32_t slot = c->disk_sweep;

        if (c->visits++ >= end || visits_left(c) == 0)
            return false;
        if (is_leaf(c, slot)) {
            if (!record_for(c, slot))
                return true; /* it goes on when one has ended */
            begin_alone(c, slot, DISK_SHUTDOWN);
        }
        c->disk_sweep = slot + 1 < c->limits.nodes ? slot + 1 : NONE;
        touch(c);
    }
    return true;
}

void disk_shutdown(struct core *c, uint64_t deadline_ns)
{
    if (c->limits.disk_chunks == 0)
        return;
    c->disk_shutdown_ns = deadline_ns ? deadline_ns : 1;
    c->disk_sweep = 0;
    touch(c);
}

static bool over(const struct core *c)
{
    return c->disk_shutdown_ns > 0 && c->now_ns >= c->disk_shutdown_ns;
}

/* --- as there is room --- */

static bool stores_flush(struct core *c, struct actions *out)
{
    for (uint32_t at = c->disk_stores.head, next; at != NONE; at = next) {
        struct disk_store *s = disk_store_at(c, at);

        next = disk_store_list_next(c, at);
        c->visits++;
        if (actions_room(out) < 2 || visits_left(c) == 0)
            return false;
        if (over(c) && s->state != DISK_STORE_WRITING)
            store_end(c, out, s, TERN_BUSY);
        else if (s->state == DISK_STORE_DUE)
            due_look(c, out, s);
        else if (s->state == DISK_STORE_QUEUED && is_reset(c, s))
            store_end(c, out, s, TERN_GONE); /* its chunks would be those of the new content */
    }
    return true;
}

/* Does one wait for what was let go since it was tried? */
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

/* Of each tenant in its turn the oldest that can write. */
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
            if (!store_may_write(out) || tries++ == DISK_TRIES_MAX || visits_left(c) == 0)
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
    bool all;

    if (c->limits.disk_chunks == 0)
        return true;
    if (over(c))
        c->disk_sweep = NONE;
    all = disk_recover_flush(c) && disk_bad_flush(c);
    evicts_flush(c);
    all = shutdown_flush(c) && all;
    all = stores_flush(c, out) && all;
    if (!disk_gone_flush(c, out))
        return false; /* what is written next may need the records */
    if (c->disk_ready && c->now_ns >= c->disk_pause_ns)
        all = writes_flush(c, out) && all;
    /* A reset is answered when nothing of before is left. */
    return disk_gone_flush(c, out) && !c->disk_resets_over && !sweep_may_go_on(c) && all;
}

uint64_t disk_deadline(const struct core *c)
{
    uint64_t first = UINT64_MAX;

    if (c->disk_stores.n > 0 && c->now_ns < c->disk_pause_ns)
        first = c->disk_pause_ns;
    if (c->disk_shutdown_ns > c->now_ns && c->disk_shutdown_ns < first)
        first = c->disk_shutdown_ns;
    return first;
}
