/* The audit of the prefix tree: links, hash chains, the heaps of what can be evicted, and that
 * every reference counter equals the number of its holders. See rig_audit.h. */
#include "rig_audit.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "core/nodes.h"
#include "core/state.h"
#include "core/tokens.h"

/* The chunk's hash, from its own stored tokens and keys. */
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
    return view_hash_chunk(&w, start, hash_mix(n->parent, start));
}

static void audit_node_pages(struct audit *a, uint32_t slot)
{
    const struct node *n = node_at(a->c, slot);
    const struct pool *p = pool_at(a->c, n->pool);

    for (uint32_t g = 0; g < p->ngroups; g++) {
        uint32_t count = 0;

        for (uint32_t at = n->pages[g]; at != NONE; at = page_at(a->c, at)->next, count++) {
            const struct page *page;

            audit_meet(a->page_seen, at, a->c->limits.pages, "page", "a prefix node");
            page = page_at(a->c, at);
            if (page->state != PAGE_COMMITTED || page->owner != slot || page->group != g ||
                page->pool != n->pool)
                rig_fail("audit: page %u of node %u has state %u, owner %u", at, slot, page->state,
                         page->owner);
        }
        if (count != p->group[g].segment &&
            (p->group[g].layout.family == FAMILY_HISTORY || count > 0))
            rig_fail("audit: node %u has %u pages of group %u", slot, count, g);
    }
}

static void audit_children(struct audit *a, uint32_t slot)
{
    const struct node *n = node_at(a->c, slot);
    uint32_t count = 0, prev = NONE;

    for (uint32_t at = n->first_child; at != NONE; at = node_at(a->c, at)->next, count++) {
        const struct node *k = node_at(a->c, at);

        audit_meet(a->node_seen, at, a->c->limits.nodes, "node", "a list of children");
        if (!k->used || k->parent != slot || k->prev != prev || k->pool != n->pool ||
            k->space != n->space || k->depth != n->depth + pool_at(a->c, n->pool)->align)
            rig_fail("audit: node %u is no proper child of %u", at, slot);
        if (node_visible(k) && !node_visible(n))
            rig_fail("audit: node %u is visible below %u, which is not", at, slot);
        prev = at;
    }
    if (count != n->nchildren)
        rig_fail("audit: node %u counts %u children and has %u", slot, n->nchildren, count);
}

/* Hash chains hold every node but the roots, exactly once. */
static uint32_t audit_hash(struct audit *a)
{
    const struct core *c = a->c;
    uint32_t n = 0;

    for (uint32_t i = 0; i <= c->hash_mask; i++)
        for (uint32_t at = *hash_head(c, i); at != NONE; at = node_at(c, at)->hash_next, n++) {
            if (at >= c->limits.nodes || n > c->limits.nodes || !node_at(c, at)->used ||
                !node_at(c, at)->depth)
                rig_fail("audit: node %u has no business in a hash chain", at);
            if ((node_at(c, at)->hash & c->hash_mask) != i)
                rig_fail("audit: node %u is in another's hash chain", at);
        }
    return n;
}

void audit_nodes(struct audit *a)
{
    const struct core *c = a->c;
    uint32_t roots = 0, inner = 0, nodes = 0, per_pool[POOLS_LIMIT] = {0};

    for (uint32_t i = 0; i < c->limits.nodes; i++) {
        const struct node *n = node_at(c, i);
        const struct pool *p = pool_at(c, n->pool);

        if (!n->used)
            continue;
        nodes++;
        if (p->state == POOL_EMPTY || p->state == POOL_ZEROING)
            rig_fail("audit: node %u lives in a pool that does not", i);
        audit_children(a, i);
        if (n->depth == 0) {
            roots++;
            if (n->parent != NONE || space_at(c, n->space)->root != i ||
                space_at(c, n->space)->pool != n->pool)
                rig_fail("audit: root %u is not its namespace's", i);
            continue;
        }
        inner++;
        per_pool[n->pool]++;
        audit_node_pages(a, i);
        audit_chain(a, n->tokens, div_up(p->align, TOKEN_BLOCK), "a node");
        audit_keys(a, n->keys, n->depth - p->align, n->depth, "a node");
        if (n->hash != rehash(c, n))
            rig_fail("audit: the hash of node %u is not that of its tokens", i);
    }
    for (uint32_t i = 0; i < c->limits.nodes; i++)
        if (node_at(c, i)->used && a->node_seen[i] != (node_at(c, i)->depth > 0))
            rig_fail("audit: node %u hangs nowhere", i);
    for (uint32_t i = 0; i < c->limits.pools; i++)
        if (pool_at(c, i)->state != POOL_EMPTY && pool_at(c, i)->nodes != per_pool[i])
            rig_fail("audit: pool %u counts %u nodes and has %u", i, pool_at(c, i)->nodes,
                     per_pool[i]);
    if (audit_hash(a) != inner || nodes + c->free_nodes.n != c->limits.nodes ||
        roots + c->free_spaces.n != c->limits.namespaces)
        rig_fail("audit: %u nodes, %u of them roots; %u and %u records free", nodes, roots,
                 c->free_nodes.n, c->free_spaces.n);
}

/* --- the heap --- */

static bool in_order(const struct node *a, const struct node *b, uint32_t kind)
{
    if (a->last_use != b->last_use)
        return a->last_use < b->last_use;
    if (kind == HEAP_STATE && a->depth != b->depth)
        return a->depth > b->depth;
    return a->seq < b->seq;
}

static void audit_heap(struct audit *a, const struct pool *p, uint32_t kind, uint8_t *seen)
{
    const struct core *c = a->c;
    uint32_t *stack = malloc((c->limits.nodes + 1) * sizeof *stack), depth = 0, top = p->heap[kind];

    if (!stack)
        abort();
    if (top != NONE) {
        if (node_at(c, top)->heap[kind].next != NONE || node_at(c, top)->heap[kind].prev != NONE)
            rig_fail("audit: the top of a heap has neighbours");
        stack[depth++] = top;
    }
    while (depth > 0) {
        uint32_t slot = stack[--depth], prev = slot;
        const struct node *n = node_at(c, slot);

        audit_meet(seen, slot, c->limits.nodes, "node", "a heap");
        if (!n->heap[kind].in || !n->used || pool_at(c, n->pool) != p)
            rig_fail("audit: node %u is in a heap that is not its", slot);
        for (uint32_t at = n->heap[kind].child; at != NONE;
             prev = at, at = node_at(c, at)->heap[kind].next) {
            if (node_at(c, at)->heap[kind].prev != prev || in_order(node_at(c, at), n, kind) ||
                depth > c->limits.nodes)
                rig_fail("audit: node %u is out of order in its heap", at);
            stack[depth++] = at;
        }
    }
    free(stack);
}

/* The host tier of a pool; NULL: it has none. */
static const struct pool *host_of(const struct core *c, const struct pool *p)
{
    const struct pool *other = p->other == NONE ? NULL : pool_at(c, p->other);

    return other && other->tier == TIER_HOST ? other : NULL;
}

static bool can_go(const struct core *c, const struct node *n, uint32_t kind)
{
    if (!n->used || n->depth == 0 || !node_visible(n) || n->state_pending)
        return false;
    if (kind == HEAP_HOST)
        return host_of(c, pool_at(c, n->pool)) && n->host[0] != NONE && n->nhost == 0 &&
               n->refs[REF_HOST] == 0 && n->copy == COPY_NONE;
    if (kind == HEAP_LEAF)
        return n->nrefs == 0 && n->nchildren == 0;
    return n->borrowers == 0 && n->seal != SEAL_QUEUED && n->seal != SEAL_RUNNING &&
           state_has(c, n);
}

void audit_heaps(struct audit *a)
{
    const struct core *c = a->c;

    for (uint32_t kind = 0; kind < HEAPS; kind++) {
        uint8_t *seen = calloc(c->limits.nodes, 1);

        if (!seen)
            abort();
        for (uint32_t i = 0; i < c->limits.pools; i++)
            if (pool_at(c, i)->state != POOL_EMPTY)
                audit_heap(a, pool_at(c, i), kind, seen);
        for (uint32_t i = 0; i < c->limits.nodes; i++) {
            const struct node *n = node_at(c, i);

            if (can_go(c, n, kind) && !seen[i])
                rig_fail("audit: node %u could go and is not in heap %u", i, kind);
            if (n->used && n->heap[kind].in != seen[i])
                rig_fail("audit: node %u believes that it is in heap %u", i, kind);
        }
        free(seen);
    }
}

/* --- references --- */

void audit_refs(struct audit *a)
{
    const struct core *c = a->c;
    uint32_t(*held)[REF_KINDS] = calloc(c->limits.nodes, sizeof *held), running = 0;

    if (!held)
        abort();
    for (uint32_t i = 0; i < c->limits.sessions; i++)
        if (session_at(c, i)->state != SESSION_EMPTY)
            held[session_at(c, i)->node][REF_DEVICE]++;
    for (uint32_t i = 0; i < c->limits.engines; i++)
        for (uint32_t at = engine_at(c, i)->state == ENGINE_EMPTY ? NONE
                                                                  : engine_at(c, i)->retire_head;
             at != NONE; at = retire_at(c, at)->next)
            if (retire_at(c, at)->node != NONE)
                held[retire_at(c, at)->node][REF_DEVICE]++;
    for (uint32_t i = 0; i < c->limits.serves; i++)
        if (serve_at(c, i)->state != SERVE_EMPTY && serve_at(c, i)->node != NONE)
            held[serve_at(c, i)->node][REF_TRANSFER]++;
    for (uint32_t i = 0; i < c->limits.pulls; i++)
        if (pull_at(c, i)->state != PULL_EMPTY && pull_at(c, i)->history_node != NONE)
            held[pull_at(c, i)->history_node][REF_TRANSFER]++;
    for (uint32_t i = 0; i < c->limits.nodes; i++) {
        const struct node *n = node_at(c, i);

        if (!n->used)
            continue;
        held[i][REF_JOB] += n->seal == SEAL_QUEUED || n->seal == SEAL_RUNNING;
        running += n->seal == SEAL_RUNNING;
        if (memcmp(held[i], n->refs, sizeof held[i]) != 0 ||
            n->nrefs != n->refs[0] + n->refs[1] + n->refs[2])
            rig_fail("audit: node %u counts refs %u/%u/%u and has holders %u/%u/%u", i, n->refs[0],
                     n->refs[1], n->refs[2], held[i][0], held[i][1], held[i][2]);
    }
    if (running != c->seal_running || running > c->limits.seal_jobs)
        rig_fail("audit: %u seal jobs run, %u counted", running, c->seal_running);
    free(held);
}
