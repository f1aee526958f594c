/* Match and Peek: what of a request's tokens the tree holds (T2, T3), and how a session resumes
 * when it already holds some of the tokens (S2, S3).
 *
 * A Match may come in pieces. Between two pieces an empty session is MATCHING: it pins the deepest
 * node that HISTORY alone reaches, has no STATE, and keeps the tokens beyond that node. The last
 * piece finds the resume point, which may lie above what earlier pieces found. So the answer is
 * what one large Match would have found at the time of the last piece. A session with a table
 * compares the pieces with it, and changes at the first that differs. */

#include <string.h>

#include "core/disk/stores.h"
#include "core/session/commits.h"
#include "core/session/record.h"
#include "core/session/sessions.h"
#include "core/tier/host.h"
#include "core/tree/nodes.h"
#include "core/tree/state.h"
#include "core/tree/tokens.h"

static enum tern_err tokens_check(const struct req_tokens *t, struct reply *ret)
{
    struct reason why;

    if (t->n > SESSION_TOKENS_MAX || t->base > SESSION_TOKENS_MAX - t->n)
        return refuse(ret, TERN_INVALID, TOO_MANY_TOKENS);
    if (t->nkeys > EXTRA_KEYS_MAX)
        return refuse(ret, TERN_INVALID, TOO_MANY_KEYS);
    return refuse_why(ret, keys_in_order(t, &why), &why);
}

/* T20: shortens the list to the whole chunks that a piece takes. Returns their tokens; 0: all. */
static uint32_t cut_to_piece(struct core *c, uint32_t align, bool pieces, struct req_tokens *t)
{
    uint32_t chunks, most;

    if (!pieces)
        return 0;
    chunks = (give_back_begin(c) - c->visits) * NODES_A_VISIT / tokens_blocks_per_chunk(align);
    most = (chunks > 0 ? chunks : 1) * align;
    if (t->n <= most)
        return 0;
    while (t->nkeys > 0 && t->keys[t->nkeys - 1].position >= t->base + most)
        t->nkeys--;
    return t->n = most;
}

static void count_tokens(struct core *c, uint32_t align, const struct req_tokens *t)
{
    walked(c, div_up(t->n, align) * tokens_blocks_per_chunk(align));
}

/* The node where a Peek continues: the one that it reached before. *at: in: the root, or NONE. */
static enum tern_err peek_from(const struct core *c, const struct req_peek *r, uint32_t *at,
                               struct reply *ret)
{
    const struct node *n;

    if (r->from.gen == 0 && r->tokens.base != 0)
        return refuse(ret, TERN_INVALID,
                      "a Peek that names no node to continue from needs all tokens, and base 0");
    if (r->from.gen == 0)
        return TERN_OK;
    n = *at != NONE && r->from.slot < c->limits.nodes ? node_at(c, r->from.slot) : NULL;
    if (!n || !n->used || n->gen != r->from.gen || n->space != node_at(c, *at)->space)
        return refuse(ret, TERN_BUSY,
                      "the prefix found by an earlier piece of this Peek was evicted: begin again");
    if (n->depth != r->tokens.base)
        return refuse(ret, TERN_INVALID, "base must be the depth of the node to continue from");
    *at = r->from.slot;
    return TERN_OK;
}

/* Depth of a session with the path to `node` and the view after a fetch from disk; 0: not below
 * `depth`. learns: see disk_of_path; a Peek changes nothing. */
static uint32_t disk_deeper(struct core *c, uint32_t node, struct token_view *w, uint32_t depth,
                            bool learns)
{
    uint32_t chunk;

    if (!disk_on(c, node_pool(c, node_at(c, node))) ||
        space_at(c, node_at(c, node)->space)
            ->reset) /* the disk has only the new content of the name */
        return 0;
    chunk = disk_reach(c, node, w, learns);
    return chunk != NONE && disk_chunk_at(c, chunk)->depth > depth ? disk_chunk_at(c, chunk)->depth
                                                                   : 0;
}

/* The same for a Peek if memory has nothing of the namespace, as after a start. */
static uint32_t disk_alone(struct core *c, const struct pool *p, const struct req_peek *r,
                           struct token_view *w)
{
    uint32_t chunk;

    if (!disk_on(c, p))
        return 0;
    chunk = disk_reach_anew(c, p, r->ns, w);
    return chunk == NONE ? 0 : disk_chunk_at(c, chunk)->depth;
}

/* Other tiers may be deeper than the device. An answer names nodes of all tiers' joined path. */
enum tern_err session_peek(struct core *c, struct call *call, struct reply *ret)
{
    const struct req_peek *r = &call->req->peek;
    struct token_view w = session_view(c, NULL, r->tokens.base, &r->tokens);
    struct req_tokens t = r->tokens;
    uint32_t at, deepest;
    struct pool *p;
    bool all;

    TRY(session_pool_find(c, call->engine, r->pool, &p, ret));
    TRY(tokens_check(&r->tokens, ret));
    w.align = p->align;
    at = space_root(c, pool_slot(c, p), r->ns);
    TRY(peek_from(c, r, &at, ret));
    if (at == NONE) {
        ret->peek.disk_depth = disk_alone(c, p, r, &w);
        return TERN_OK;
    }
    ret->peek.taken = cut_to_piece(c, p->align, r->pieces, &t);
    w.end = t.base + t.n;
    at = node_walk(c, at, &w);
    deepest = host_down(c, at, &w);
    count_tokens(c, p->align, &t);
    all = w.end - node_at(c, deepest)->depth < p->align;
    w.end = t.base + r->tokens.n; /* the disk is searched for all tokens */
    at = node_first(c, at, node_on_device);
    ret->peek.history_depth = node_at(c, at)->depth;
    at = state_above(c, at);
    ret->peek.depth = node_at(c, at)->depth;
    ret->peek.host_depth =
        node_at(c, host_above(c, (struct host_reach){.from = at, .to = deepest}))->depth;
    ret->peek.disk_depth = disk_deeper(c, deepest, &w, ret->peek.depth, false);
    if (all) {
        ret->peek.reached = (struct node_id){deepest, node_at(c, deepest)->gen};
        ret->peek.walked = node_at(c, deepest)->depth;
    }
    return TERN_OK;
}

/* An empty array may be NULL, and C does not allow arithmetic on NULL, not even by 0. */
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

/* Makes the session's table the path to `node`; of a Match with more pieces, only its HISTORY. */
static void import_path(struct core *c, struct session *s, uint32_t node, bool more)
{
    const struct pool *p = session_pool(c, s);
    uint32_t depth = node_at(c, node)->depth;

    node_unpin(c, s->node, REF_DEVICE);
    s->node = node;
    s->committed = s->written = s->allocated = depth;
    s->whole_from = 0;
    s->state_from = p->nstate && !more ? state_low(c, node) : depth;
    state_hold(c, (struct path){node, s->state_from});
    for (uint32_t g = 0; g < p->ngroups; g++) {
        s->base[g] = depth / p->group[g].layout.page_tokens;
        s->first[g] = window_first(&p->group[g], depth);
    }
}

/* Number of a node's extra keys below that position. */
static uint32_t node_keys_below(const struct core *c, const struct node *n, uint32_t position)
{
    uint32_t keys = 0;

    for (uint32_t k = n->keys; k != NONE; k = key_at(c, k)->next)
        keys += key_at(c, k)->position < position;
    return keys;
}

/* A Match repeats its pieces from `base`: moves the pin back up to there. The tokens between that
 * node and `base` lie in the tree only, and are copied. */
static enum tern_err match_back(struct core *c, struct session *s, uint32_t base, struct reply *ret)
{
    uint32_t at = s->node, below = NONE, take;
    struct token_need need;
    struct reason why;

    if (s->state != SESSION_MATCHING || base >= s->tokens.first)
        return TERN_OK;
    for (; node_at(c, at)->depth > base; at = node_at(c, at)->parent)
        below = at;
    take = base - node_at(c, at)->depth;
    tokens_truncate(c, &s->tokens, s->tokens.first);
    s->finished = s->finished < base ? s->finished : base;
    need = (struct token_need){.blocks = div_up(take, TOKEN_BLOCK)};
    if (take > 0)
        need.keys = node_keys_below(c, node_at(c, below), base);
    TRY(refuse_why(ret, tokens_room(c, s->pool, need, &why), &why));
    tokens_init(&s->tokens, node_at(c, at)->depth);
    if (take > 0)
        tokens_prepend(c, &s->tokens, node_at(c, below), take);
    node_pin(c, at, REF_DEVICE);
    import_path(c, s, at, true);
    return TERN_OK;
}

/* Number of the request's extra keys below that depth. */
static uint32_t keys_below(const struct req_tokens *t, uint32_t depth)
{
    uint32_t n = 0;

    while (n < t->nkeys && t->keys[n].position < depth)
        n++;
    return n;
}

/* Room in the token store for a session's buffer from `depth` to the end of the request: the
 * request's tokens, and those of the tree's chunks between `depth` and the present pin. */
static struct token_need import_need(const struct core *c, const struct session *s,
                                     const struct req_tokens *t, uint32_t depth)
{
    struct token_buf fresh = s->tokens;
    struct token_need need = {
        .keys = t->nkeys - keys_below(t, depth), .list = &s->tokens, .end = t->base + t->n};

    fresh.end = t->base;
    if (depth > t->base)
        tokens_init(&fresh, depth);
    need.blocks =
        tokens_blocks_needed(&fresh, t->base + t->n - (depth > t->base ? depth : t->base));
    for (uint32_t at = s->node; node_at(c, at)->depth > depth; at = node_at(c, at)->parent) {
        need.blocks += tokens_blocks_per_chunk(s->tokens.align);
        need.keys += tokens_count_keys(c, node_at(c, at)->keys);
    }
    token_need_cut(c, &need, depth > t->base ? s->tokens.first : t->base);
    return need;
}

/* From `depth` on the session keeps its own tokens; the tree has those above. The caller has
 * checked the room. Tokens of the list that the request repeats do not count as cut off. */
static void import_tokens(struct core *c, struct session *s, const struct req_tokens *t,
                          uint32_t depth)
{
    uint32_t keep = depth > t->base ? depth - t->base : 0, i = keys_below(t, depth);
    uint32_t cut = s->tokens.cut, end = s->tokens.end, common = t->base;

    if (common >= s->tokens.first && common < end)
        common += tokens_common(c, &s->tokens, t->base, t);
    if (depth > t->base) {
        tokens_truncate(c, &s->tokens, s->tokens.first);
        tokens_init(&s->tokens, depth);
    } else {
        tokens_truncate(c, &s->tokens, t->base);
        for (uint32_t at = s->node; node_at(c, at)->depth > depth; at = node_at(c, at)->parent)
            tokens_prepend(c, &s->tokens, node_at(c, at), s->tokens.align);
    }
    check(tokens_append(c, &s->tokens, t->v + keep, t->n - keep, t->keys + i, t->nkeys - i) ==
          TERN_OK);
    s->tokens.cut = common < end && common < cut ? common : cut;
}

/* Returns the depth after a fetch from the host. Marks the found nodes as used: they are about to
 * be fetched, and must not be evicted to make room for themselves. */
static uint32_t found_on_host(struct core *c, struct host_reach reach)
{
    uint32_t slot = host_above(c, reach);

    if (slot != reach.from)
        node_use(c, slot);
    return node_at(c, slot)->depth;
}

/* A repeated Match does not count as a new prompt. */
static void count_prompt(struct core *c, const struct session *s, uint32_t had)
{
    uint32_t fresh = s->tokens.end > had ? s->tokens.end - had : 0;

    count_figure(c, s->space, FIGURE_PROMPTS, fresh > 0);
    count_figure(c, s->space, FIGURE_PROMPT_TOKENS, fresh);
    count_figure(c, s->space, FIGURE_DEVICE, s->committed);
}

static enum tern_err match_import(struct core *c, struct actions *out, struct session *s,
                                  const struct req_match *m, struct reply *ret)
{
    const struct req_tokens tokens = anchored(&m->tokens), *t = &tokens;
    struct token_view w = session_view(c, s, t->base, t);
    uint32_t reached = node_walk(c, s->node, &w),
             node = m->more ? reached : state_above(c, reached), depth = node_at(c, node)->depth;
    uint32_t common = t->base, had = s->state == SESSION_TURN ? s->tokens.end : 0;
    bool kept; /* an earlier turn has all of this piece, and more tokens to compare with the next
                  one */
    enum tern_err err = TERN_OK;
    struct reason why;

    if (s->finished > t->base)
        common += tokens_common(c, &s->tokens, t->base, t);
    kept = m->more && common == t->base + t->n && s->finished > common;
    if (!kept && s->state == SESSION_MATCHING)
        tokens_truncate(c, &s->tokens, t->base); /* a repeated piece frees its own room */
    node_pin(c, node, REF_DEVICE);               /* the match is not evicted for its own tokens */
    if (!kept)
        err = tokens_room(c, s->pool, import_need(c, s, t, depth), &why);
    if (err != TERN_OK) {
        node_unpin(c, node, REF_DEVICE);
        if (s->finished > s->tokens.end)
            s->finished = s->tokens.end;
        return refuse_why(ret, err, &why);
    }
    if (!m->more) {
        uint32_t deepest = host_down(c, reached, &w);

        ret->match.host_depth = found_on_host(c, (struct host_reach){.from = node, .to = deepest});
        ret->match.disk_depth = disk_deeper(c, deepest, &w, depth, true);
    }
    if (!kept && s->finished > common)
        s->finished = common; /* what differs is replaced: an Abort must not treat it as finished */
    if (!kept)
        import_tokens(c, s, t, depth);
    while (s->tokens.first < depth)
        tokens_drop_chunk(c, &s->tokens);
    import_path(c, s, node, m->more);
    session_state_move(&s->state, m->more ? SESSION_MATCHING : SESSION_TURN);
    s->fetched = 0;
    session_use(c, s);
    ret->match.matched = depth;
    if (m->more)
        return TERN_OK;
    count_prompt(c, s, had);
    session_path_runs(c, out, s, 0);
    session_stores_from(c, s);
    return TERN_OK;
}

static enum tern_err match_resume(struct core *c, struct actions *out, struct session *s,
                                  const struct req_match *m, struct reply *ret)
{
    const struct pool *p = session_pool(c, s);
    struct engine *e = engine_at(c, s->engine);
    struct req_tokens t = anchored(&m->tokens);
    struct token_buf kept;
    uint32_t common, length;
    struct token_need need;
    struct reason why;

    common = tokens_list_common(c, s, &t);
    if (m->more && common == t.base + t.n)
        return TERN_OK; /* the next piece decides whether the session changes */
    if (common < s->committed)
        return refuse_numbers(ret, TERN_INVALID,
                              "committed tokens cannot change: # are committed, and only the first "
                              "# of the request are the same: close the session and open another",
                              s->committed, common);
    tokens_skip_to(&t, common); /* the session's tokens need no room */
    length = s->written < common ? s->written : common;
    if (length < s->written && has_recurrent(p))
        length = s->committed; /* its only state is that of the written length: return to the resume
                                  point, whose state is copied again */
    if (!session_can_return(c, s, length))
        return refuse(ret, TERN_INVALID,
                      "the STATE at that length has left the session's table: Abort the session "
                      "and Match again");
    if (!session_tail_ready(c, e, m->step, session_tail_pages(c, s, length)))
        return refuse(ret, TERN_BUSY, share_refused(SHARE_RETIRES));
    kept = s->tokens;
    kept.end = common;
    need = (struct token_need){tokens_blocks_needed(&kept, t.n), t.nkeys, &s->tokens, common + t.n};
    token_need_cut(c, &need, common);
    TRY(refuse_why(ret, tokens_room(c, s->pool, need, &why), &why));
    session_give_tail(c, s, length, m->step);
    if (s->finished > common)
        s->finished = common;
    tokens_truncate(c, &s->tokens, common);
    check(tokens_append(c, &s->tokens, t.v, t.n, t.keys, t.nkeys) == TERN_OK);
    count_figure(c, s->space, FIGURE_PROMPTS, t.n > 0 && !m->more);
    count_figure(c, s->space, FIGURE_PROMPT_TOKENS, t.n);
    session_state_move(&s->state, SESSION_TURN);
    s->fetched = 0;
    session_use(c, s);
    /* This may repeat, from base 0, an import whose answer was lost. A client that names its tokens
     * needs only the runs beyond them. */
    if (s->allocated == s->committed && !m->more)
        session_path_runs(c, out, s, m->tokens.base - m->earlier);
    return TERN_OK;
}

static enum tern_err match_check(const struct core *c, const struct session *s,
                                 const struct req_match *m, struct reply *ret)
{
    const struct req_tokens *t = &m->tokens;
    uint32_t refs;

    TRY(tokens_check(t, ret));
    refs = session_table_refs(c, s, t->base + t->n);
    if (m->earlier > t->base)
        return refuse(ret, TERN_INVALID,
                      "the earlier pieces of a Match cannot have more tokens than base");
    if (s->state == SESSION_FETCHING || s->state == SESSION_LOADING)
        return refuse(ret, TERN_BUSY,
                      "this session has a fetch under way: wait for its end, or cancel it");
    if (session_away(s))
        return refuse(ret, TERN_INVALID, "the session is retracted: Recover it first");
    if (t->base > s->tokens.end)
        return refuse_numbers(ret, TERN_CONFLICT,
                              "base is #, and the session has only # tokens: give base at most "
                              "that number, and the tokens from base on",
                              t->base, s->tokens.end);
    if (refs > c->limits.table_pages)
        return refuse_numbers(ret, TERN_INVALID, TABLE_TOO_LONG, refs, c->limits.table_pages);
    if (session_too_deep(c, s, t->base + t->n))
        return refuse(ret, TERN_INVALID, TABLE_TOO_DEEP);
    return TERN_OK;
}

enum tern_err session_match(struct core *c, struct call *call, struct reply *ret)
{
    struct req_match m = call->req->match;
    struct session *s = call->session;
    enum tern_err err;

    reply_lengths(s, ret); /* for a refusal, too */
    TRY(match_check(c, s, &m, ret));
    TRY(match_back(c, s, m.tokens.base, ret));
    ret->match.taken = cut_to_piece(c, s->tokens.align, m.pieces, &m.tokens);
    m.more |= ret->match.taken > 0;
    /* T3: import only into an empty table, before anything is allocated. If earlier pieces emptied
     * the table, the later ones resume. */
    if (s->state == SESSION_MATCHING || (m.earlier == 0 && s->allocated == 0 && s->owned[0].n == 0))
        err = match_import(c, call->out, s, &m, ret);
    else
        err = match_resume(c, call->out, s, &m, ret);
    count_tokens(c, s->tokens.align, &m.tokens);
    TRY(err);
    reply_lengths(s, ret);
    return TERN_OK;
}
