/* Sessions: tokens, lengths and the pages that a session owns (S1-S9, T2-T5). The borrowed part of
 * a session's table is the path to its pinned node and is never stored twice. */
#include "core/arena/machine.h"
#include "core/tier/host.h"
#include "core/tree/state.h"

#include <string.h>

struct session *session_find(const struct core *c, struct session_id id)
{
    struct session *s;

    if (id.slot >= c->limits.sessions)
        return NULL;
    s = session_at(c, id.slot);
    return s->state != SESSION_EMPTY && s->gen == id.gen ? s : NULL;
}

struct session *session_of(const struct core *c, const struct engine *e, struct session_id id)
{
    struct session *s = session_find(c, id);

    return s && s->engine == engine_slot(c, e) ? s : NULL;
}

uint32_t session_slot(const struct core *c, const struct session *s)
{
    return (uint32_t)(s - session_at(c, 0));
}

struct pool *session_pool(const struct core *c, const struct session *s)
{
    return pool_at(c, s->pool);
}

struct lengths session_lengths(const struct session *s)
{
    return (struct lengths){
        .committed = s->committed, .written = s->written, .allocated = s->allocated};
}

struct token_view session_view(const struct core *c, const struct session *s, uint32_t base,
                               const struct req_tokens *req)
{
    return (struct token_view){.c = c,
                               .buf = s ? &s->tokens : NULL,
                               .align = s ? session_pool(c, s)->align : 0,
                               .base = base,
                               .end = base + req->n,
                               .v = req->v,
                               .keys = req->keys,
                               .nkeys = req->nkeys,
                               .cursor_block = NONE};
}

static const char token_store_full[] =
    "the token store is full: close sessions, or raise limits.token_blocks or limits.extra_keys";

static enum tern_err tokens_check(const struct req_tokens *t, struct reply *ret)
{
    if (t->n > SESSION_TOKENS_MAX || t->base > SESSION_TOKENS_MAX - t->n ||
        t->nkeys > EXTRA_KEYS_MAX)
        return refuse(ret, TERN_INVALID,
                      "a session has at most 4,194,304 tokens, a request at most 1,024 extra keys");
    if (!keys_in_order(t))
        return refuse(ret, TERN_INVALID,
                      "extra keys have ascending positions among the request's own tokens");
    return TERN_OK;
}

/* --- open, peek --- */

/* A pool that this engine has opened or mapped. */
static enum tern_err pool_for(const struct core *c, const struct engine *e, struct pool_id id,
                              struct pool **ret_pool, struct reply *ret)
{
    struct pool *p = pool_find(c, id);

    if (!p || p->tenant != e->tenant)
        return refuse(ret, TERN_GONE, "no such pool: open or map one with this incarnation");
    if (!(e->pools & 1ull << id.slot))
        return refuse(ret, TERN_INVALID, "this engine has not mapped that pool");
    if (p->state != POOL_OPEN)
        return refuse(ret, TERN_GONE, "the pool is closing");
    *ret_pool = p;
    return TERN_OK;
}

static void session_link(struct core *c, struct engine *e, struct session *s)
{
    session_list_push_front(c, &e->sessions, session_slot(c, s));
    tenant_at(c, e->tenant)->sessions++;
    session_pool(c, s)->sessions++;
}

enum tern_err session_open(struct core *c, struct actions *out, struct call *call,
                           struct reply *ret)
{
    const struct req_session_open *r = &call->req->session_open;
    struct engine *e = call->engine;
    const struct tenant *tenant = tenant_at(c, e->tenant);
    struct pool *p;
    struct session *s;
    uint32_t root, slot;

    (void)out;
    TRY(pool_for(c, e, r->pool, &p, ret));
    if (c->draining)
        return refuse(ret, TERN_BUSY, "the daemon is draining: open sessions elsewhere");
    if (tenant->sessions >= tenant->config.sessions_max)
        return refuse(ret, TERN_QUOTA,
                      "the tenant's limit of open sessions is reached: close some, or raise "
                      "sessions_max");
    if (c->free_sessions.n == 0)
        return refuse(ret, TERN_BUSY,
                      "all session slots are in use: close some, or raise limits.sessions");
    root = space_root(c, pool_slot(c, p), r->ns, true);
    if (root == NONE)
        return refuse(ret, TERN_BUSY,
                      "no namespace or node record is left: close sessions, or raise "
                      "limits.namespaces or limits.nodes");
    slot = session_slot_take(c);
    s = session_at(c, slot);
    s->gen = gen_next(s->gen);
    s->state = SESSION_OPEN;
    s->engine = engine_slot(c, e);
    s->pool = pool_slot(c, p);
    s->space = node_at(c, root)->space;
    s->node = root;
    s->committed = s->written = s->allocated = s->state_from = s->prompt = s->good = 0;
    s->pull = s->load_pin = s->target = NONE;
    s->held = REF_DEVICE;
    s->in_away = (struct list_links){.next = NONE, .prev = NONE};
    s->away_step = s->slid_step = 0;
    s->last_use_ns = s->ref_since_ns = c->now_ns;
    s->tokens.align = p->align;
    tokens_init(&s->tokens, 0);
    for (uint32_t g = 0; g < GROUPS_MAX; g++)
        s->owned[g] = LIST_EMPTY;
    for (uint32_t g = 0; g < GROUPS_MAX; g++)
        s->base[g] = s->first[g] = 0;
    node_pin(c, root,
             REF_DEVICE); /* an empty table pins its root, which pins nothing but the namespace */
    session_link(c, e, s);
    ret->session_open.session = (struct session_id){.slot = slot, .gen = s->gen};
    return TERN_OK;
}

enum tern_err session_peek(struct core *c, struct actions *out, struct call *call,
                           struct reply *ret)
{
    const struct req_peek *r = &call->req->peek;
    struct token_view w = session_view(c, NULL, 0, &r->tokens);
    struct pool *p;
    uint32_t root, at;

    (void)out;
    TRY(pool_for(c, call->engine, r->pool, &p, ret));
    TRY(tokens_check(&r->tokens, ret));
    if (r->tokens.base != 0)
        return refuse(ret, TERN_INVALID, "a Peek gives all tokens: base is 0");
    w.align = p->align;
    root = space_root(c, pool_slot(c, p), r->ns, false);
    if (root == NONE)
        return TERN_OK;
    ret->peek.history_depth = node_at(c, node_walk(c, root, &w))->depth;
    at = state_walk(c, root, &w);
    ret->peek.depth = node_at(c, at)->depth;
    ret->peek.host_depth = node_at(c, host_walk(c, at, &w))->depth;
    return TERN_OK;
}

/* --- giving back --- */

/* S4, the only place: gives back the pages of [ceil_page(p), A) to `list`, then A = p and C =
 * min(C, p). Where a fetch left a gap between T and the window that it owns, the next page is that
 * of p again. */
void session_free_tail(struct core *c, struct session *s, uint32_t p, struct list *list)
{
    const struct pool *pool = session_pool(c, s);

    *list = LIST_EMPTY;
    for (uint32_t g = 0; g < pool->ngroups; g++) {
        const struct group_layout *l = &pool->group[g].layout;
        uint32_t end = div_up(p, l->page_tokens);
        uint32_t keep = end > s->base[g] ? end - s->base[g] : 0;

        if (l->family == FAMILY_RECURRENT)
            keep =
                p < s->written || p == 0 ? 0 : 1; /* its one state is that of the written length */
        while (s->owned[g].n > keep)
            page_list_push(c, list, page_list_pop_last(c, &s->owned[g]));
        if (l->family == FAMILY_WINDOW && s->base[g] > end)
            s->base[g] = end;
    }
    s->allocated = p < s->allocated ? p : s->allocated;
    s->written = s->written < s->allocated ? s->written : s->allocated;
}

void session_use(struct core *c, struct session *s)
{
    s->last_use_ns = c->now_ns;
    if (node_at(c, s->node)->depth > 0)
        node_use(c, s->node);
    touch(c);
}

void session_close(struct core *c, struct session *s, uint64_t step, bool engine_gone)
{
    struct engine *e = engine_at(c, s->engine);
    struct list pages;

    if (s->pull != NONE)
        pull_orphan(c, s->pull);
    pages = LIST_EMPTY;
    for (uint32_t g = 0; g < GROUPS_MAX; g++)
        page_list_append(c, &pages, &s->owned[g]);
    session_let_go(c, s, step, &pages, engine_gone);
    tokens_truncate(c, &s->tokens, s->tokens.first);
    session_list_remove(c, &e->sessions, session_slot(c, s));
    tenant_at(c, e->tenant)->sessions--;
    session_pool(c, s)->sessions--;
    s->state = SESSION_EMPTY;
    s->node = NONE;
    session_slot_put(c, session_slot(c, s));
    touch(c);
}

/* --- match --- */

uint32_t session_table_refs(const struct pool *p, uint32_t tokens)
{
    uint64_t n = 0;

    for (uint32_t g = 0; g < p->ngroups; g++)
        n += p->group[g].layout.family == FAMILY_RECURRENT
                 ? 1
                 : div_up(tokens, p->group[g].layout.page_tokens);
    return n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

/* The deepest node of the session's path whose pages of this group it borrows: further on it has
 * pages of its own, which no node took (T18). */
static uint32_t borrowed_to(const struct core *c, const struct session *s, uint32_t group)
{
    uint32_t at = s->node;

    while (segment_end(&session_pool(c, s)->group[group], node_at(c, at)->depth) > s->base[group])
        at = node_at(c, at)->parent;
    return at;
}

/* The borrowed pages from the one that holds token `from`. */
static void runs_of_path(const struct core *c, struct actions *out, const struct session *s,
                         uint32_t from)
{
    const struct pool *p = session_pool(c, s);

    for (uint32_t g = 0; g < p->ngroups && from < s->committed; g++) {
        uint32_t first = from / p->group[g].layout.page_tokens, at, end;
        struct page_ref *refs;

        if (p->group[g].layout.family == FAMILY_RECURRENT)
            continue; /* the first Extend brings its page, and what to copy into it */
        at = borrowed_to(c, s, g);
        end = segment_end(&p->group[g], node_at(c, at)->depth);
        if (first < window_first(&p->group[g], s->committed))
            first = window_first(&p->group[g], s->committed);
        if (group_is_state(&p->group[g])) { /* what the session has slid over is not its any more */
            if (s->state_from >= s->committed)
                continue;
            if (first < segment_first(p, &p->group[g], s->state_from + p->align))
                first = segment_first(p, &p->group[g], s->state_from + p->align);
        }
        if (first >= end || !state_path_has(c, at, &p->group[g], first))
            continue;
        refs = run_add(out, (struct table_run){.group = g, .first = first, .n = end - first});
        check(refs); /* tokens were limited by table_refs */
        node_refs(c, at, &p->group[g], first, refs);
    }
}

void session_owned_run(const struct core *c, struct actions *out, const struct session *s,
                       uint32_t group)
{
    bool recurrent = session_pool(c, s)->group[group].layout.family == FAMILY_RECURRENT;
    struct page_ref *refs;

    if (s->owned[group].n == 0)
        return;
    refs = run_add(out, (struct table_run){.group = group,
                                           .first = recurrent ? 0 : s->base[group],
                                           .n = s->owned[group].n});
    check(refs); /* who asks has looked that there is room */
    for (uint32_t at = s->owned[group].head; at != NONE; at = page_list_next(c, at), refs++) {
        refs->index = page_at(c, at)->index;
        refs->gen = page_at(c, at)->gen;
    }
}

void session_runs(const struct core *c, struct actions *out, const struct session *s, uint32_t from)
{
    runs_of_path(c, out, s, from);
    for (uint32_t g = 0; g < session_pool(c, s)->ngroups; g++)
        session_owned_run(c, out, s, g);
}

/* An empty array may be given as NULL, and C does not allow arithmetic on that, not even by 0. */
static struct req_tokens anchored(const struct req_tokens *t)
{
    static const uint32_t no_token;
    static const struct extra_key no_key;
    struct req_tokens a = *t;

    if (a.n == 0)
        a.v = &no_token;
    if (a.nkeys == 0)
        a.keys = &no_key;
    return a;
}

static enum tern_err match_import(struct core *c, struct actions *out, struct session *s,
                                  const struct req_tokens *t, struct reply *ret)
{
    const struct pool *p = session_pool(c, s);
    uint32_t root = space_at(c, s->space)->root, node, depth, keep, blocks, i = 0;
    struct token_buf fresh;
    struct token_view w = session_view(c, s, t->base, t);

    node = state_walk(c, root, &w);
    depth = node_at(c, node)->depth;
    ret->match.host_depth = node_at(c, host_walk(c, node, &w))->depth;
    /* What the tree holds need not be kept: from `depth` on the tail is the session's own. */
    keep = depth > t->base ? depth - t->base : 0;
    fresh = s->tokens;
    fresh.end = t->base;
    if (depth > t->base)
        tokens_init(&fresh, depth);
    blocks = tokens_blocks_needed(&fresh, t->n - keep);
    if (blocks > c->free_blocks.n || t->nkeys > c->free_keys.n)
        return refuse(ret, TERN_BUSY, token_store_full);
    if (s->good >
        t->base) { /* what differs is replaced: an Abort must not take it for the good list */
        uint32_t common = t->base + tokens_common(c, &s->tokens, t->base, t);

        s->good = s->good < common ? s->good : common;
    }
    if (depth > t->base) {
        tokens_truncate(c, &s->tokens, s->tokens.first);
        tokens_init(&s->tokens, depth);
    } else {
        tokens_truncate(c, &s->tokens, t->base);
        while (s->tokens.first < depth) {
            tokens_drop_chunk(c, &s->tokens);
        }
    }
    while (i < t->nkeys && t->keys[i].position < depth)
        i++;
    check(tokens_append(c, &s->tokens, t->v + keep, t->n - keep, t->keys + i, t->nkeys - i) ==
          TERN_OK);
    node_pin(c, node, REF_DEVICE);
    node_unpin(c, s->node, REF_DEVICE);
    s->node = node;
    s->committed = s->written = s->allocated = depth;
    s->state_from = p->nstate ? state_low(c, node) : depth;
    state_hold(c, (struct path){node, s->state_from});
    for (uint32_t g = 0; g < p->ngroups; g++) {
        s->base[g] = depth / p->group[g].layout.page_tokens;
        s->first[g] = window_first(&p->group[g], depth);
    }
    s->state = SESSION_TURN;
    s->prompt = t->base + t->n;
    session_use(c, s);
    runs_of_path(c, out, s, 0);
    ret->match.matched = depth;
    return TERN_OK;
}

/* Do the request's tokens from `base` on agree with the committed ones? (base is below their end)
 */
static bool agrees_with_path(const struct core *c, const struct session *s,
                             const struct req_tokens *t)
{
    const uint32_t align = session_pool(c, s)->align;
    uint32_t key = t->nkeys, from = t->base;

    while (key > 0 && t->keys[key - 1].position >= s->committed)
        key--;
    for (uint32_t at = s->node; node_at(c, at)->depth > from; at = node_at(c, at)->parent) {
        const struct node *n = node_at(c, at);
        uint32_t start = n->depth - align, block = n->tokens,
                 skip = start < from ? from - start : 0;
        uint32_t nkeys = 0;

        for (uint32_t off = 0; off < align; off += TOKEN_BLOCK, block = *block_next(c, block)) {
            uint32_t lo = off > skip ? off : skip,
                     hi = off + TOKEN_BLOCK < align ? off + TOKEN_BLOCK : align;

            if (lo < hi && memcmp(block_at(c, block)->v + (lo - off), t->v + (start + lo - from),
                                  (hi - lo) * sizeof(uint32_t)) != 0)
                return false;
        }
        for (uint32_t k = n->keys; k != NONE; k = key_at(c, k)->next)
            nkeys += key_at(c, k)->position >= from;
        if (nkeys > key)
            return false;
        key -= nkeys;
        for (uint32_t k = n->keys, i = key; k != NONE; k = key_at(c, k)->next) {
            const struct key_record *r = key_at(c, k);

            if (r->position < from)
                continue;
            if (r->position != t->keys[i].position || r->hi != t->keys[i].hi ||
                r->lo != t->keys[i].lo)
                return false;
            i++;
        }
    }
    return key == 0;
}

/* What is left of the tokens, and of the keys, from there on. */
static void tokens_skip_to(struct req_tokens *t, uint32_t at)
{
    uint32_t skip = at - t->base;

    check(at >= t->base && skip <= t->n);
    t->v += skip;
    t->n -= skip;
    t->base = at;
    while (t->nkeys > 0 && t->keys[0].position < at) {
        t->keys++;
        t->nkeys--;
    }
}

static enum tern_err match_resume(struct core *c, struct actions *out, struct session *s,
                                  const struct req_match *m, struct reply *ret)
{
    const struct pool *p = session_pool(c, s);
    struct engine *e = engine_at(c, s->engine);
    struct req_tokens t = anchored(&m->tokens);
    struct list pages;
    struct token_buf kept;
    uint32_t common, length;

    if (t.base + t.n < s->committed || (t.base < s->committed && !agrees_with_path(c, s, &t)))
        return refuse(
            ret, TERN_INVALID,
            "a session is append-only: the request has fewer tokens in common than are committed");
    if (t.base < s->committed)
        tokens_skip_to(&t, s->committed); /* what is committed was compared: go on from there */
    common = t.base + tokens_common(c, &s->tokens, t.base, &t);
    length = s->written < common ? s->written : common;
    if (length < s->written && has_recurrent(p))
        length = s->committed; /* its one state is that of the written length: the resume point's is
                                  copied anew */
    if (!session_can_return(c, s, length))
        return refuse(
            ret, TERN_INVALID,
            "the STATE that is needed there has left the table: abort the session and match anew");
    if (!retire_ready(c, e, m->step))
        return refuse(ret, TERN_BUSY,
                      "no retire record is left: wait until a step has passed, or raise "
                      "limits.retires");
    kept = s->tokens;
    kept.end = common;
    if (tokens_blocks_needed(&kept, t.base + t.n - common) > c->free_blocks.n ||
        t.nkeys > c->free_keys.n)
        return refuse(ret, TERN_BUSY, token_store_full);
    session_free_tail(c, s, length, &pages);
    retire_release(c, e, m->step, &pages, (struct path){NONE, 0});
    if (s->good > common)
        s->good = common;
    tokens_truncate(c, &s->tokens, common);
    tokens_skip_to(&t, common);
    check(tokens_append(c, &s->tokens, t.v, t.n, t.keys, t.nkeys) == TERN_OK);
    s->prompt = s->tokens.end;
    s->state = SESSION_TURN;
    session_use(c, s);
    /* Perhaps the answer to the import was lost, and the request is its repetition: from base 0. An
     * asker that names what it has needs no more than what lies beyond. */
    if (s->allocated == s->committed)
        runs_of_path(c, out, s, m->tokens.base);
    return TERN_OK;
}

static enum tern_err match_check(const struct core *c, const struct session *s,
                                 const struct req_tokens *t, struct reply *ret)
{
    TRY(tokens_check(t, ret));
    if (s->state == SESSION_FETCHING || s->state == SESSION_LOADING)
        return refuse(ret, TERN_BUSY,
                      "a fetch is under way in this session: wait for it, or cancel it");
    if (session_away(s))
        return refuse(ret, TERN_INVALID, "the session is retracted: Recover it first");
    if (t->base > s->tokens.end)
        return refuse(ret, TERN_CONFLICT,
                      "base is beyond the tokens that the session has: give them again from there");
    if (session_table_refs(session_pool(c, s), t->base + t->n) > REPLY_REFS_MAX)
        return refuse(ret, TERN_INVALID,
                      "a session's table has at most 65,536 pages: give fewer tokens");
    return TERN_OK;
}

enum tern_err session_match(struct core *c, struct actions *out, struct call *call,
                            struct reply *ret)
{
    const struct req_match *m = &call->req->match;
    const struct req_tokens t = anchored(&m->tokens);
    struct session *s = call->session;

    ret->match.lengths = session_lengths(s); /* of a refusal, too */
    ret->match.tokens = s->tokens.end;
    TRY(match_check(c, s, &m->tokens, ret));
    /* T3: import only into an empty table, before anything is allocated. */
    if (s->allocated == 0 && s->owned[0].n == 0)
        TRY(match_import(c, out, s, &t, ret));
    else
        TRY(match_resume(c, out, s, m, ret));
    ret->match.lengths = session_lengths(s);
    ret->match.tokens = s->tokens.end;
    return TERN_OK;
}
