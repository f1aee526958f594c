/* Match and Peek: what of a request's tokens the tree holds (T2, T3), and how a session goes on
 * with tokens of which some are its own already (S2, S3). */

#include <string.h>

#include "core/memory/pages.h"
#include "core/session/record.h"
#include "core/session/retires.h"
#include "core/session/slide.h"
#include "core/tier/host.h"
#include "core/tree/nodes.h"
#include "core/tree/records.h"
#include "core/tree/state.h"
#include "core/tree/tokens.h"

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

enum tern_err session_peek(struct core *c, struct actions *out, struct call *call,
                           struct reply *ret)
{
    const struct req_peek *r = &call->req->peek;
    struct token_view w = session_view(c, NULL, 0, &r->tokens);
    struct pool *p;
    uint32_t root, at;

    (void)out;
    TRY(session_pool_find(c, call->engine, r->pool, &p, ret));
    TRY(tokens_check(&r->tokens, ret));
    if (r->tokens.base != 0)
        return refuse(ret, TERN_INVALID, "a Peek gives all tokens: base is 0");
    w.align = p->align;
    root = space_root(c, pool_slot(c, p), r->ns);
    if (root == NONE)
        return TERN_OK;
    ret->peek.history_depth = node_at(c, node_walk(c, root, &w))->depth;
    at = state_walk(c, root, &w);
    ret->peek.depth = node_at(c, at)->depth;
    ret->peek.host_depth = node_at(c, host_walk(c, at, &w))->depth;
    return TERN_OK;
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
    const char *text;

    node = state_walk(c, root, &w);
    depth = node_at(c, node)->depth;
    /* What the tree holds need not be kept: from `depth` on the tail is the session's own. */
    keep = depth > t->base ? depth - t->base : 0;
    fresh = s->tokens;
    fresh.end = t->base;
    if (depth > t->base)
        tokens_init(&fresh, depth);
    blocks = tokens_blocks_needed(&fresh, t->n - keep);
    node_pin(c, node, REF_DEVICE); /* what was found does not make way for its own tokens */
    if (tokens_room(c, s->pool, (struct token_need){blocks, t->nkeys}, &text) != TERN_OK) {
        node_unpin(c, node, REF_DEVICE);
        return refuse(ret, TERN_BUSY, text);
    }
    ret->match.host_depth = node_at(c, host_walk(c, node, &w))->depth;
    if (s->finished >
        t->base) { /* what differs is replaced: an Abort must not take it for finished */
        uint32_t common = t->base + tokens_common(c, &s->tokens, t->base, t);

        s->finished = s->finished < common ? s->finished : common;
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
    node_unpin(c, s->node, REF_DEVICE);
    s->node = node;
    s->committed = s->written = s->allocated = depth;
    s->state_from = p->nstate ? state_low(c, node) : depth;
    state_hold(c, (struct path){node, s->state_from});
    for (uint32_t g = 0; g < p->ngroups; g++) {
        s->base[g] = depth / p->group[g].layout.page_tokens;
        s->first[g] = window_first(&p->group[g], depth);
    }
    session_state_move(&s->state, SESSION_TURN);
    s->prompt = t->base + t->n;
    session_use(c, s);
    session_path_runs(c, out, s, 0);
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
    const char *text;

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
        return refuse(ret, TERN_BUSY, share_refused(SHARE_RETIRES));
    kept = s->tokens;
    kept.end = common;
    if (tokens_room(
            c, s->pool,
            (struct token_need){tokens_blocks_needed(&kept, t.base + t.n - common), t.nkeys},
            &text) != TERN_OK)
        return refuse(ret, TERN_BUSY, text);
    session_free_tail(c, s, length, &pages);
    retire_release(c, e, m->step, &pages, (struct path){NONE, 0});
    if (s->finished > common)
        s->finished = common;
    tokens_truncate(c, &s->tokens, common);
    tokens_skip_to(&t, common);
    check(tokens_append(c, &s->tokens, t.v, t.n, t.keys, t.nkeys) == TERN_OK);
    s->prompt = s->tokens.end;
    session_state_move(&s->state, SESSION_TURN);
    session_use(c, s);
    /* Perhaps the answer to the import was lost, and the request is its repetition: from base 0. An
     * asker that names what it has needs no more than what lies beyond. */
    if (s->allocated == s->committed)
        session_path_runs(c, out, s, m->tokens.base);
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
    if (session_table_refs(c, s, t->base + t->n) > c->limits.table_pages)
        return refuse(ret, TERN_INVALID,
                      "a session's table has no more pages than an answer of frame_body_max can "
                      "name: give fewer tokens, or raise frame_body_max");
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
