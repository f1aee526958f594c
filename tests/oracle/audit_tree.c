/* The audit of the prefix tree: links, the hashes of paths, the heaps of evictable nodes, and each
 * reference counter, which equals the number of its holders. See audit.h. */
#include "oracle/audit.h"

#include <string.h>

#include "core/arena/hashed.h"
#include "core/tree/state.h"

/* Returns the hash of the node's path, from its own stored tokens and keys. */
static uint64_t rehash(const struct core *c, const struct node *n)
{
    static uint32_t tokens[ALIGN_TOKENS_MAX];
    struct extra_key keys[64];
    const struct pool *p = pool_at(c, n->pool);
    uint32_t start = n->depth - p->align, block = n->tokens, nkeys = 0;
    struct token_view w = {
        .c = c, .align = p->align, .base = start, .end = n->depth, .v = tokens, .keys = keys};

    for (uint32_t off = 0; off < p->align; off += TOKEN_BLOCK, block = *block_next(c, block))
        memcpy(tokens + off, block_at(c, block)->v,
               (p->align - off < TOKEN_BLOCK ? p->align - off : TOKEN_BLOCK) * sizeof tokens[0]);
    for (uint32_t k = n->keys; k != NONE && nkeys < 64; k = key_at(c, k)->next)
        keys[nkeys++] = (struct extra_key){
            .position = key_at(c, k)->position, .hi = key_at(c, k)->hi, .lo = key_at(c, k)->lo};
    w.nkeys = nkeys;
    return view_hash(&w, start, hashed_at(c, TABLE_NODES, n->parent)->hash, false).path;
}

static void audit_children(struct audit *a, uint32_t slot)
{
    const struct node *n = node_at(a->c, slot);
    uint32_t count = 0, prev = child_list_last(a->c, &n->children);

    for (uint32_t at = n->children.head; at != NONE; at = child_list_next(a->c, at), count++) {
        const struct node *k = node_at(a->c, at);

        audit_meet(a->node_seen, at, a->c->limits.nodes, "node", "a list of children");
        if (!k->used || k->parent != slot || k->sibling.prev != prev || k->pool != n->pool ||
            k->space != n->space || k->depth != n->depth + pool_at(a->c, n->pool)->align)
            oracle_fail("audit: node %u is no proper child of %u", at, slot);
        if (node_visible(k) && !node_visible(n) && node_on_device(k))
            oracle_fail("audit: node %u is visible below %u, which is not", at, slot);
        prev = at;
    }
    if (count != n->children.n)
        oracle_fail("audit: node %u counts %u children and has %u", slot, n->children.n, count);
}

void audit_nodes(struct audit *a)
{
    const struct core *c = a->c;
    uint32_t roots = 0, nodes = 0, per_pool[POOLS_LIMIT] = {0};

    for (uint32_t i = 0; i < c->limits.nodes; i++) {
        const struct node *n = node_at(c, i);
        const struct pool *p = pool_at(c, n->pool);

        if (!n->used)
            continue;
        nodes++;
        if (p->state == POOL_EMPTY || p->state == POOL_ZEROING)
            oracle_fail("audit: node %u lives in a pool that does not", i);
        audit_children(a, i);
        if (n->depth == 0) {
            roots++;
            if (n->parent != NONE || space_at(c, n->space)->root != i ||
                space_at(c, n->space)->pool != n->pool)
                oracle_fail("audit: root %u is not its namespace's", i);
            continue;
        }
        per_pool[n->pool]++;
        audit_node_pages(a, i);
        audit_chain(a, n->tokens, div_up(p->align, TOKEN_BLOCK), "a node");
        audit_keys(a, n->keys, n->depth - p->align, n->depth, "a node");
        if (hashed_at(c, TABLE_NODES, i)->hash != rehash(c, n))
            oracle_fail("audit: the hash of node %u is not that of its tokens", i);
    }
    for (uint32_t i = 0; i < c->limits.nodes; i++)
        if (node_at(c, i)->used && a->node_seen[i] != (node_at(c, i)->depth > 0))
            oracle_fail("audit: node %u hangs nowhere", i);
    for (uint32_t i = 0; i < c->limits.pools; i++)
        if (pool_at(c, i)->state != POOL_EMPTY && pool_at(c, i)->nodes != per_pool[i])
            oracle_fail("audit: pool %u counts %u nodes and has %u", i, pool_at(c, i)->nodes,
                        per_pool[i]);
    if (nodes + c->free_nodes.n != c->limits.nodes ||
        roots + c->free_spaces.n != c->limits.namespaces)
        oracle_fail("audit: %u nodes, %u of them roots; %u and %u records free", nodes, roots,
                    c->free_nodes.n, c->free_spaces.n);
}

/* --- the heap --- */

static bool in_order(const struct node *a, const struct node *b, uint32_t kind)
{
    if (a->last_use != b->last_use)
        return (a->last_use < b->last_use) == (kind != HEAP_SPARE);
    if (kind == HEAP_STATE && a->depth != b->depth)
        return a->depth > b->depth;
    return a->seq < b->seq;
}

static void audit_heap(struct audit *a, const struct pool *p, uint32_t kind, uint8_t *seen)
{
    const struct core *c = a->c;
    uint32_t *stack = audit_scratch(c->limits.nodes + 1, sizeof *stack), depth = 0,
             top = p->heap[kind];

    if (top != NONE) {
        if (node_at(c, top)->heap[kind].up != NONE)
            oracle_fail("audit: the top of a heap has something above it");
        stack[depth++] = top;
    }
    while (depth > 0) {
        uint32_t slot = stack[--depth], below[2];
        const struct node *n = node_at(c, slot);
        uint32_t rank[2] = {0};

        audit_meet(seen, slot, c->limits.nodes, "node", "a heap");
        if (!n->heap_rank[kind] || !n->used || pool_at(c, n->pool) != p)
            oracle_fail("audit: node %u is in a heap that is not its", slot);
        below[0] = n->heap[kind].left;
        below[1] = n->heap[kind].right;
        for (uint32_t i = 0; i < 2; i++) {
            uint32_t at = below[i];

            if (at == NONE)
                continue;
            rank[i] = node_at(c, at)->heap_rank[kind];
            if (node_at(c, at)->heap[kind].up != slot || in_order(node_at(c, at), n, kind) ||
                depth > c->limits.nodes)
                oracle_fail("audit: node %u is out of order in its heap", at);
            stack[depth++] = at;
        }
        if (rank[0] < rank[1] || n->heap_rank[kind] != rank[1] + 1)
            oracle_fail("audit: node %u has the wrong rank in its heap", slot);
    }
}

/* Nothing waits for the node or works on it. A writeback that does not run does not count if the
 * device's pages are needed. */
static bool at_rest(const struct node *n, bool device)
{
    bool idle = n->work.copy == COPY_NONE ||
                (device && n->work.copy_from == TIER_DEVICE && n->work.copy != COPY_RUNNING);

    return node_visible(n) && !n->state.refilling && idle && n->work.loaders == 0;
}

/* Returns whether a node below keeps its host copy. */
static bool host_below(const struct node *n)
{
    return n->room.kept[TIER_HOST] > n->room.own[TIER_HOST];
}

/* For nodes of a pool whose host tier is written behind the device. */
static bool can_go_behind(const struct core *c, const struct node *n, uint32_t kind)
{
    bool host = node_on_host(n) && n->refs[REF_HOST] == 0 && !host_below(n);

    if (pool_at(c, n->pool)->host_write != HOST_WRITE_BEHIND || !node_on_device(n))
        return false;
    if (kind == HEAP_SPARE)
        return host && !n->reserved;
    return n->reserved && node_on_host(n) && !n->host_corrupt && n->nrefs == 0 &&
           n->children_on[TIER_DEVICE] == 0;
}

static bool can_go(const struct core *c, const struct node *n, uint32_t kind)
{
    if (!n->used || n->depth == 0 || (n->work.stores_due > 0 && kind != HEAP_RESET))
        return false; /* may be evicted from one tier if it is on two; no heap has to list it */
    if (kind == HEAP_STATE)
        return n->state.borrowers == n->state.host_borrowers && audit_state_at_rest(c, n) &&
               state_has(c, n);
    if (!at_rest(n, kind == HEAP_LEAF || kind == HEAP_CLEAN))
        return false;
    switch (kind) {
    case HEAP_LEAF:
        return node_on_device(n) && n->nrefs == 0 && n->children_on[TIER_DEVICE] == 0 &&
               (node_on_host(n) || !host_below(n));
    case HEAP_HOST:
        return node_on_host(n) && n->refs[REF_HOST] == 0 && n->children_on[TIER_HOST] == 0 &&
               !host_below(n) && (node_on_device(n) || n->children.n == 0);
    case HEAP_ALONE: return !node_on_device(n) && n->refs[REF_HOST] == 0 && n->children.n == 0;
    case HEAP_CLEAN:
    case HEAP_SPARE: return can_go_behind(c, n, kind);
    case HEAP_RESET:
        return space_at(c, n->space)->reset && n->nrefs == 0 && n->refs[REF_HOST] == 0 &&
               n->children.n == 0 && c->sweep_left == 0 && !c->left_over;
    default: return false;
    }
}

void audit_heaps(struct audit *a)
{
    const struct core *c = a->c;

    for (uint32_t kind = 0; kind < POOL_HEAPS; kind++) {
        uint8_t *seen = audit_scratch(c->limits.nodes, 1);

        for (uint32_t i = 0; i < c->limits.pools; i++)
            if (pool_at(c, i)->state != POOL_EMPTY)
                audit_heap(a, pool_at(c, i), kind, seen);
        for (uint32_t i = 0; i < c->limits.nodes; i++) {
            const struct node *n = node_at(c, i);

            /* A node that waits to be counted enters its heap then. */
            if (can_go(c, n, kind) && !seen[i] && n->room.changed.prev == NONE)
                oracle_fail("audit: node %u could go and is not in heap %u", i, kind);
            if (n->used && !!n->heap_rank[kind] != seen[i])
                oracle_fail("audit: node %u believes that it is in heap %u", i, kind);
        }
    }
}

/* --- references --- */

typedef uint32_t ref_counts[REF_KINDS];

static void hold_sessions(const struct core *c, ref_counts *held)
{
    for (uint32_t i = 0; i < c->limits.sessions; i++) {
        const struct session *s = session_at(c, i);

        if (s->state == SESSION_EMPTY)
            continue;
        if (s->held >= REF_KINDS)
            oracle_fail("audit: session %u holds its node by a ref of kind %u", i, s->held);
        held[s->node][s->held]++;
        if (s->load.pin != NONE)
            held[s->load.pin][REF_TRANSFER]++;
        if (s->load.host != NONE)
            held[s->load.host][REF_HOST]++;
        if (s->left.node != NONE)
            held[s->left.node][s->left_kind]++;
        held[s->node][REF_HOST] += s->state == SESSION_RETRACTING;
    }
    for (uint32_t i = 0; i < c->limits.engines; i++)
        for (uint32_t at = engine_at(c, i)->state == ENGINE_EMPTY ? NONE
                                                                  : engine_at(c, i)->retires.head;
             at != NONE; at = retire_list_next(c, at))
            if (retire_at(c, at)->pin.node != NONE)
                held[retire_at(c, at)->pin.node][REF_DEVICE]++;
}

static void hold_transfers(const struct core *c, ref_counts *held)
{
    for (uint32_t i = c->disk_stores.head; i != NONE; i = disk_store_list_next(c, i))
        if (disk_store_at(c, i)->state != DISK_STORE_DUE) {
            if (!node_visible(node_at(c, disk_store_at(c, i)->device)))
                oracle_fail("audit: store %u reads node %u, whose step has not passed", i,
                            disk_store_at(c, i)->device);
            held[disk_store_at(c, i)->device][REF_TRANSFER]++;
            if (disk_store_at(c, i)->host != NONE)
                held[disk_store_at(c, i)->host][REF_HOST]++;
        }
    for (uint32_t i = 0; i < c->limits.serves; i++)
        if (serve_at(c, i)->state != SERVE_EMPTY && serve_at(c, i)->node != NONE)
            held[serve_at(c, i)->node][REF_TRANSFER]++;
    for (uint32_t i = 0; i < c->limits.pulls; i++)
        if (pull_at(c, i)->state != PULL_EMPTY && pull_at(c, i)->history_node != NONE)
            held[pull_at(c, i)->history_node][REF_TRANSFER]++;
}

/* Only the node itself knows its pins by operators. */
static void compare_refs(uint32_t slot, const struct node *n, uint32_t *held)
{
    uint32_t device = 0;

    held[REF_ADMIN] = n->refs[REF_ADMIN];
    for (uint32_t k = 0; k < REF_KINDS; k++) {
        device += k == REF_HOST ? 0 : held[k];
        if (held[k] != n->refs[k])
            oracle_fail("audit: node %u counts %u refs of kind %u and has %u holders", slot,
                        n->refs[k], k, held[k]);
    }
    if (n->nrefs != device)
        oracle_fail("audit: node %u counts %u refs on the device and has %u", slot, n->nrefs,
                    device);
    if (n->refs[REF_ADMIN] && !n->admin_ns)
        oracle_fail("audit: node %u was pinned at no time", slot);
}

static uint64_t seal_bytes(const struct core *c, uint32_t node)
{
    const struct pool *p = pool_at(c, node_at(c, node)->pool);
    uint64_t bytes = 0;

    for (uint32_t g = 0; g < p->ngroups; g++)
        bytes += p->group[g].segment * p->group[g].layout.page_bytes * p->transfer_regions;
    return bytes;
}

/* Returns the node of the next seal job: tenants alternate. */
static uint32_t next_sealed(const struct core *c)
{
    for (uint32_t i = 1; i <= c->limits.tenants; i++) {
        const struct tenant *t = tenant_at(c, (c->seal_turn + i) % c->limits.tenants);

        if (t->seals_queued.n > 0)
            return t->seals_queued.head;
    }
    return NONE;
}

/* As many seal jobs run as may, and no more. */
static void audit_seals(const struct core *c, uint32_t running, uint32_t nodes, uint64_t bytes)
{
    const uint32_t next = next_sealed(c);
    uint32_t queued = 0;
    bool room = running < c->limits.seal_jobs;

    if (running != c->seals_running || running > c->limits.seal_jobs)
        oracle_fail("audit: %u seal jobs run, %u counted", running, c->seals_running);
    if (bytes != c->seal_bytes || (nodes > 2 && bytes > SEAL_BYTES_MAX))
        oracle_fail("audit: checksums of %llu bytes are computed, %llu counted",
                    (unsigned long long)bytes, (unsigned long long)c->seal_bytes);
    if (room && next != NONE && running > 1)
        room = bytes + seal_bytes(c, next) <= SEAL_BYTES_MAX;
    if (next != NONE && room && !c->left_over)
        oracle_fail("audit: %u seals wait although a job is free", c->seals_queued);
    for (uint32_t i = 0; i < c->limits.tenants; i++)
        queued += tenant_at(c, i)->seals_queued.n;
    if (queued != c->seals_queued)
        oracle_fail("audit: %u seals wait, %u counted", queued, c->seals_queued);
}

void audit_refs(struct audit *a)
{
    const struct core *c = a->c;
    ref_counts *held = audit_scratch(c->limits.nodes, sizeof *held);
    uint32_t nodes = 0, tickets = 0, pinned = 0;
    uint64_t bytes = 0;

    hold_sessions(c, held);
    hold_transfers(c, held);
    for (uint32_t i = 0; i < c->limits.nodes; i++) {
        const struct node *n = node_at(c, i);

        if (!n->used)
            continue;
        held[i][REF_JOB] += n->work.seal == SEAL_QUEUED || n->work.seal == SEAL_RUNNING;
        held[i][REF_JOB] += n->work.copy == COPY_RUNNING && n->work.copy_from == TIER_DEVICE;
        nodes += n->work.seal == SEAL_RUNNING;
        bytes += n->work.seal == SEAL_RUNNING ? seal_bytes(c, i) : 0;
        pinned += n->refs[REF_ADMIN] > 0;
        compare_refs(i, n, held[i]);
    }
    for (uint32_t i = 0; i < c->limits.sessions; i++)
        tickets += session_at(c, i)->ticket_state == TICKET_SEALING;
    audit_seals(c, nodes + tickets, nodes, bytes);
    if (pinned != c->npinned)
        oracle_fail("audit: operators pinned %u nodes, %u counted", pinned, c->npinned);
}
