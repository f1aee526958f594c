/* Blocks: prefixes of one chunk each, which block stores look up by the thousand. An answer names
 * each block's page; nothing is pinned, so a reader verifies what it read. */
#include "core/arena/actions.h"
#include "core/disk/entries.h"
#include "core/disk/stores.h"
#include "core/fetch/asks.h"
#include "core/session/record.h"
#include "core/tree/nodes.h"

static_assert(BLOCKS_MAX <= TABLE_PAGES_MIN, "one answer names all of their pages");

/* The node in memory and the chunk on the disk of a block; NONE: there is none. */
struct block {
    uint32_t node, chunk;
};

static struct page_ref block_place(const struct core *c, struct block b)
{
    const struct node *n = b.node == NONE ? NULL : node_at(c, b.node);

    if (n && node_on_device(n) && node_visible(n))
        return page_ref_of(c, n->group[0].pages[TIER_DEVICE]);
    if (n && node_on_host(n) && !n->host_corrupt)
        return (struct page_ref){0, BLOCK_ON_HOST};
    return (struct page_ref){0, b.chunk == NONE ? BLOCK_NOWHERE : BLOCK_ON_DISK};
}

/* Removes the block from memory and disk. Returns false, with nothing changed, if a session, a job,
 * a store or a fetch uses it. */
static bool block_remove(struct core *c, struct block b)
{
    const struct disk_chunk *k = b.chunk == NONE ? NULL : disk_chunk_at(c, b.chunk);

    if (k && (k->pins > 0 || k->children.n > 0))
        return false;
    if (b.node != NONE && !node_remove(c, b.node))
        return false;
    if (k && disk_is_entry(k))
        disk_entry_end(c, b.chunk);
    return true;
}

/* Keys between two stages of a lookup: the time of so many lookups covers a cache miss. */
#define AHEAD   8u
#define LOOKUPS (AHEAD * (NODE_PREFETCH_STAGES + 1))

/* A request's lookups, of which those ahead are being prefetched. */
struct lookups {
    const struct pool *pool;
    const struct req_blocks *req;
    uint32_t n;
    uint32_t root;          /* of the namespace; NONE: memory has none of its blocks */
    uint64_t hash[LOOKUPS]; /* of key i at i % LOOKUPS */
};

static struct token_view key_view(const struct core *c, const struct lookups *l, uint32_t i)
{
    const uint32_t align = l->pool->align;
    const struct req_tokens one = {.v = l->req->keys.v + (size_t)i * align, .n = align};
    struct token_view w = session_view(c, NULL, 0, &one);

    w.align = align;
    return w;
}

/* Does one stage for each of the keys that follow key i at distances of AHEAD. */
static void look_ahead(const struct core *c, struct lookups *l, uint32_t i)
{
    for (uint32_t stage = 0; l->root != NONE && stage < NODE_PREFETCH_STAGES; stage++) {
        const uint32_t ahead = AHEAD * (NODE_PREFETCH_STAGES - stage), key = i - ahead;
        struct token_view w;

        if (i < ahead || key >= l->n)
            continue;
        if (stage == 0) {
            w = key_view(c, l, key);
            l->hash[key % LOOKUPS] = node_child_hash(c, l->root, &w);
        }
        node_child_prefetch(c, l->root, l->hash[key % LOOKUPS], stage);
    }
}

static uint32_t root_of(const struct core *c, const struct lookups *l)
{
    return space_root(c, pool_slot(c, l->pool), l->req->ns);
}

static struct page_ref block_answer(struct core *c, struct lookups *l, uint32_t i)
{
    const struct pool *p = l->pool;
    const struct req_blocks *r = l->req;
    struct token_view w = key_view(c, l, i);
    struct block b = {NONE, NONE};
    struct page_ref at;

    if (l->root != NONE)
        b.node = node_child_hashed(c, l->root, &w, l->hash[i % LOOKUPS]);
    if (disk_on(c, p) && (r->what == BLOCKS_REMOVE || b.node == NONE))
        b.chunk = disk_reach_anew(c, p, r->ns, &w);
    at = block_place(c, b);
    if (r->what == BLOCKS_TOUCH && b.node != NONE)
        node_use_in_turn(c, b.node);
    if (r->what == BLOCKS_REMOVE) {
        if (!block_remove(c, b))
            return (struct page_ref){0, BLOCK_HELD};
        l->root = root_of(c, l); /* a root without children may be gone */
    }
    return at;
}

static bool may_ask(const struct core *c, struct tenant_peer of)
{
    if (of.peer != PEER_ANY)
        return of.peer < c->limits.peers && ask_reaches(c, of) == of.peer;
    return ask_reaches(c, (struct tenant_peer){of.tenant, 0}) != NONE;
}

/* Asks the peers; asks_flush answers the request. */
static enum tern_err blocks_ask(struct core *c, struct call *call, const struct pool *p,
                                struct reply *ret)
{
    const struct req_blocks *r = &call->req->blocks;
    struct peer_msg *msg;
    struct ask *a;

    if (share_room(c, SHARE_ASKS, call->engine->tenant) == 0)
        return refuse(ret, TERN_BUSY, share_refused(SHARE_ASKS));
    a = asks_open(c, call->out, (struct question){call->engine->tenant, r->host, r->keys.n}, &msg);
    msg->trace_id = call->req->trace_id;
    msg->ns = r->ns;
    msg->layout_hash = p->layout_hash;
    msg->tokens = r->keys.v;
    msg->to = r->keys.n;
    msg->each = p->align;
    asks_send(call->out, a, msg);
    a->reply = call_later(call);
    return TERN_OK;
}

enum tern_err request_blocks(struct core *c, struct call *call, struct reply *ret)
{
    const struct req_blocks *r = &call->req->blocks;
    struct lookups l = {.req = r};
    struct page_ref *refs;
    struct pool *p;
    uint32_t n;

    TRY(session_pool_find(c, call->engine, r->pool, &p, ret));
    n = r->keys.n / p->align;
    if (p->ngroups != 1 || p->nstate > 0 || p->group[0].segment != 1 || n > BLOCKS_MAX ||
        r->keys.n != n * p->align || r->keys.base > 0 || r->keys.nkeys > 0)
        return refuse_numbers(
            ret, TERN_INVALID,
            "blocks need a pool with one HISTORY group whose pages have align_tokens, here #: give "
            "each key that many tokens, and at most # keys",
            p->align, BLOCKS_MAX);
    if (r->what == BLOCKS_REMOVE && disk_on(c, p) && !c->disk_ready)
        return refuse(ret, TERN_BUSY, "the disk is still being read: retry in a moment");
    if (r->what == BLOCKS_ASK && (n > BLOCKS_ASKED_MAX || r->keys.n > ASK_TOKENS_MAX))
        return refuse(
            ret, TERN_INVALID,
            "peers are asked for at most 1,024 keys and 65,536 tokens at a time: give fewer keys");
    if (r->what == BLOCKS_ASK && n > 0 &&
        may_ask(c, (struct tenant_peer){call->engine->tenant, r->host}))
        return blocks_ask(c, call, p, ret);
    refs = run_add(call->out, (struct table_run){.n = n}); /* the answer has no other runs */
    l.pool = p;
    l.n = n;
    l.root = root_of(c, &l);
    /* From the last to the first, so that the first is evicted last (T13). */
    for (uint32_t i = n + LOOKUPS - AHEAD; i-- > 0;) {
        look_ahead(c, &l, i);
        if (i >= n)
            continue;
        refs[i] = block_answer(c, &l, i);
        c->visits++;
    }
    return TERN_OK;
}
