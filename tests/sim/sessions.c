/* What an engine asks for outside a Step, and what the answer must be: sessions, Peek, Match,
 * Fetch, Evict; handles that have passed and requests that make no sense. */
#include "sim.h"

void request_init(struct sim *w, uint32_t d, struct event *ev, enum op op, uint32_t conn)
{
    ev->kind = EV_REQUEST;
    ev->request.op = op;
    ev->request.conn = conn;
    ev->request.request_id = ++w->d[d].next_request;
    ev->request.trace_id = w->d[d].next_request;
}

/* Either half of the id may be what tells two apart. */
static struct namespace_id namespace_of(uint32_t ns, bool by_hi)
{
    return (struct namespace_id){.hi = by_hi ? ns : 7, .lo = by_hi ? 7 : ns};
}

struct req_tokens tokens_of(struct sim *w, uint32_t variant, uint32_t from, uint32_t to)
{
    const struct extra_key *k = &w->keys[variant];
    struct req_tokens t = {.v = w->tokens[variant] + from, .n = to - from, .base = from, .keys = k};

    t.nkeys = k->position != NONE && k->position >= from && k->position < to;
    return t;
}

void ask_open(struct sim *w, uint32_t d, uint32_t e)
{
    struct daemon *m = &w->d[d];
    struct engine *g = &m->engine[e];
    uint32_t conn = engine_conn(w, d, e), slot, live = 0, of_tenant = 0;
    struct event ev;
    struct session *s;

    if (conn == NO || g->dying || g->pool == NO || g->mapped != (1u << g->nprocs) - 1)
        return;
    for (uint32_t i = 0; i < SESSIONS; i++) {
        live += m->session[i].live;
        of_tenant += m->session[i].live && m->session[i].tenant == g->tenant;
    }
    for (slot = pick(w, SESSIONS); m->session[slot].live; slot = (slot + 1) % SESSIONS)
        ;
    s = &m->session[slot];
    request_init(w, d, &ev, OP_SESSION_OPEN, conn);
    memset(s, 0, offsetof(struct session, table));
    s->ns = (uint8_t)pick(w, w->cfg.namespaces);
    ev.request.session_open.pool = m->pool[g->pool].id;
    ev.request.session_open.ns = namespace_of(s->ns, w->cfg.seed_tokens & 1);
    sim_step(w, d, &ev);
    EXPECT(w->reply, "open_answer", "no answer to a session open");
    if (of_tenant >= w->cfg.sessions_max) {
        EXPECT(w->reply->err == TERN_QUOTA || w->reply->err == TERN_BUSY ||
                   m->pool[g->pool].closing,
               "quota_ignored", "session %u of %u", of_tenant + 1, w->cfg.sessions_max);
        MARK(quota_sessions);
    }
    if (m->draining) {
        EXPECT(w->reply->err != TERN_OK, "drain_ignored", "a session opened while draining");
        MARK(drain_refuses);
    }
    if (w->reply->err != TERN_OK) {
        EXPECT(w->reply->err == TERN_BUSY
                   ? live >= w->cfg.lim_sessions || m->draining || w->cfg.tight == 1 ||
                         w->cfg.lim_spaces < w->cfg.namespaces * 2u
               : w->reply->err == TERN_GONE ? m->pool[g->pool].closing
                                            : of_tenant >= w->cfg.sessions_max,
               "open_refused", "err %u %s", w->reply->err, w->reply->text);
        return;
    }
    s->used = s->live = 1;
    s->engine = (uint8_t)e;
    s->tenant = g->tenant;
    s->pool = g->pool;
    s->variant = (uint8_t)pick(w, 1 + pick(w, w->cfg.variants)); /* the first ones more often */
    s->turn = TURN_NEW;
    s->id = w->reply->session_open.session;
    TRACE("  daemon %u engine %u opens session %u = %u.%u ns %u variant %u\n", d, e, slot,
          s->id.slot, s->id.gen, s->ns, s->variant);
    for (uint32_t i = 0; i < SESSIONS; i++)
        EXPECT(i == slot || !m->session[i].used || !id_equal(m->session[i].id, s->id),
               "handle_reused", "session handle %u.%u was handed out before", s->id.slot,
               s->id.gen);
}

/* The deepest prefix that must be found, as far as the model is sure. */
static uint32_t least_depth(struct sim *w, uint32_t d, uint32_t pool, uint32_t ns, uint32_t variant,
                            uint32_t n)
{
    uint32_t k = 0;

    while ((k + 1) * w->L <= n) {
        struct chunk *c = chunk_at(w, d, pool, ns, variant, k + 1);

        if (!chunk_certain(w, d, pool, c) || !chunk_visible(w, d, c))
            break;
        k++;
    }
    return k * w->L;
}

static void check_depth(struct sim *w, uint32_t d, uint32_t pool, uint32_t ns, uint32_t variant,
                        uint32_t n, uint32_t depth)
{
    uint32_t least = least_depth(w, d, pool, ns, variant, n);

    EXPECT(depth % w->L == 0 && depth <= n, "match_boundary", "depth %u of %u tokens, L %u", depth,
           n, w->L);
    EXPECT(depth >= least, "match_too_short",
           "found %u, but %u is committed, visible and cannot have gone", depth, least);
    for (uint32_t k = 1; k * w->L <= depth; k++) {
        struct chunk *c = chunk_at(w, d, pool, ns, variant, k);

        if (c->present)
            EXPECT(chunk_visible(w, d, c), "match_pending",
                   "found %u, but depth %u waits for step %u of engine %u", depth, k * w->L,
                   c->step, c->engine);
    }
}

static bool separates(struct sim *w, uint32_t d, uint32_t pool, uint32_t ns, uint32_t variant,
                      uint32_t n, bool by_key)
{
    if (n < w->L)
        return false;
    if (!by_key) {
        struct chunk *c = chunk_at(w, d, pool, (ns + 1) % NAMESPACES, variant, 1);

        return w->cfg.namespaces > 1 && c->present && chunk_visible(w, d, c);
    }
    return w->cfg.keys && w->keys[variant].position < n;
}

/* Borrowed pages of an answer: chunk by chunk those of the tree, with the bytes of this prefix. */
static void take_borrowed(struct sim *w, uint32_t d, struct session *s, uint32_t from, uint32_t to,
                          uint32_t end, const struct table_run *runs, uint32_t nruns)
{
    uint32_t given[GROUPS] = {0}, start = s->deaf ? 0 : from;

    for (uint32_t i = 0; i < nruns; i++) {
        EXPECT(runs[i].group < w->cfg.ngroups, "run_group", "group %u", runs[i].group);
        EXPECT(runs[i].first >= start / w->page_tokens[runs[i].group] &&
                   runs[i].first + runs[i].n <= end / w->page_tokens[runs[i].group],
               "run_range", "group %u pages %u + %u of [%u, %u)", runs[i].group, runs[i].first,
               runs[i].n, start, end);
        given[runs[i].group] += runs[i].n;
    }
    for (uint32_t g = 0; g < w->cfg.ngroups; g++)
        EXPECT(given[g] == (end - start) / w->page_tokens[g], "run_count",
               "group %u: %u pages for [%u, %u)", g, given[g], start, end);
    for (uint32_t k = from / w->L + 1; k * w->L <= to; k++) {
        struct chunk *c = chunk_at(w, d, s->pool, s->ns, s->variant, k);

        chunk_publish(w, d, s->pool, c, runs,
                      nruns); /* what a transfer brought, the model may not know yet */
        for (uint32_t g = 0; g < w->cfg.ngroups; g++)
            for (uint32_t i = 0, per = w->L / w->page_tokens[g]; i < per; i++) {
                borrow(w, d, s, g, (k - 1) * per + i, c, i);
                if (chunk_visible(w, d, c))
                    check_page(w, d, s->tenant, c->granule[g][i], g, s->ns, s->variant,
                               (k - 1) * w->L + i * w->page_tokens[g], w->page_tokens[g],
                               "match_wrong_bytes");
            }
    }
}

static void match_new(struct sim *w, uint32_t d, struct session *s, uint32_t n, uint32_t common)
{
    const struct reply *r = w->reply;
    uint32_t depth = r->match.matched;

    check_depth(w, d, s->pool, s->ns, s->variant, n, depth);
    EXPECT(r->match.lengths.committed == depth && r->match.lengths.written == depth &&
               r->match.lengths.allocated == depth,
           "match_lengths", "T %u C %u A %u for a match of %u", r->match.lengths.committed,
           r->match.lengths.written, r->match.lengths.allocated, depth);
    EXPECT(r->match.tokens == n, "match_tokens", "%u of %u tokens", r->match.tokens, n);
    take_borrowed(w, d, s, 0, depth, depth, r->runs, r->nruns);
    s->t = s->c = s->a = s->filled = depth;
    s->ntokens = s->prompt = n;
    if (s->good > common)
        s->good = common;
    s->turn = TURN_OPEN;
    if (depth)
        MARK(match_hit);
    else
        MARK(match_miss);
    if (depth == 0 && separates(w, d, s->pool, s->ns, s->variant, n, false))
        MARK(namespace_separates);
    if (depth <= w->keys[s->variant].position &&
        separates(w, d, s->pool, s->ns, s->variant, n, true))
        MARK(extra_key_separates);
}

/* Where nothing but the borrowed part is left, its pages are told again: those that the session
 * has. */
static void check_repeated(struct sim *w, uint32_t d, const struct session *s,
                           const struct reply *r, uint32_t base)
{
    uint32_t n = 0, want = 0;

    for (uint32_t i = 0; i < r->nruns; i++)
        for (uint32_t k = 0; k < r->runs[i].n; k++, n++) {
            const struct table_run *run = &r->runs[i];
            const struct entry *e = &s->table[run->group][run->first + k];

            EXPECT(run->first + k < s->t / w->page_tokens[run->group] &&
                       run->refs[k].gen == e->gen &&
                       page_granule(w, d, s->pool, run->group, run->refs[k].index) ==
                           &w->d[d].granule[s->tenant][e->granule],
                   "resume_pages", "group %u page %u is not the session's", run->group,
                   run->first + k);
        }
    for (uint32_t g = 0; s->a == s->t && base < s->t && g < w->cfg.ngroups; g++)
        want += s->t / w->page_tokens[g] - base / w->page_tokens[g];
    EXPECT(n == want, "resume_page_count", "%u pages for T %u from token %u, not %u", n, s->t, base,
           want);
}

static void match_again(struct sim *w, uint32_t d, struct session *s, uint32_t variant, uint32_t n,
                        uint32_t common, uint32_t step, uint32_t base)
{
    const struct reply *r = w->reply;
    uint32_t p = s->c < common ? s->c : common;

    for (uint32_t g = 0; g < w->cfg.ngroups; g++) {
        uint32_t pt = w->page_tokens[g];

        give_back(w, d, s, g, (p + pt - 1) / pt, (s->a + pt - 1) / pt, step);
    }
    if (p < s->c)
        MARK(resume_shorter_than_written);
    if (s->ntokens == n && common == n)
        MARK(match_repeated);
    s->a = s->c = p;
    s->filled = p;
    s->variant = (uint8_t)variant;
    s->ntokens = s->prompt = n;
    if (s->good > common)
        s->good = common;
    s->turn = TURN_OPEN;
    EXPECT(r->match.lengths.committed == s->t && r->match.lengths.written == p &&
               r->match.lengths.allocated == p,
           "resume_lengths", "T %u C %u A %u, but p is %u and T %u", r->match.lengths.committed,
           r->match.lengths.written, r->match.lengths.allocated, p, s->t);
    EXPECT(r->match.tokens == n && r->match.matched == 0, "resume_answer", "%u tokens, %u matched",
           r->match.tokens, r->match.matched);
    check_repeated(w, d, s, r, base);
}

uint32_t release_step(struct sim *w, uint32_t d, const struct session *s)
{
    const struct engine *g = &w->d[d].engine[s->engine];

    if (s->last_step <= g->min_done && chance(w, 50))
        return 0;
    return chance(w, 70) ? s->last_step : g->step;
}

/* The transfer is over for this session. */
static void session_unfetch(struct sim *w, uint32_t d, const struct session *s)
{
    for (uint32_t i = 0; i < PULLS * 2; i++)
        if (w->d[d].pull[i].used && !w->d[d].pull[i].over &&
            id_equal(w->d[d].pull[i].id, s->fetch_pull))
            pull_over(w, d, &w->d[d].pull[i], s->ending);
}

/* The token store may refuse only what does not fit: an upper bound of what is in it, and what was
 * asked. */
void check_store_full(struct sim *w, uint32_t d, const struct session *asking, uint32_t tokens)
{
    const struct daemon *m = &w->d[d];
    uint32_t blocks = (tokens - asking->t + w->L - 1) / w->L, keys = 1;

    for (uint32_t i = 0; i < SESSIONS; i++)
        if (m->session[i].live && &m->session[i] != asking) {
            blocks += (m->session[i].ntokens - m->session[i].t + w->L - 1) / w->L;
            keys++;
        }
    if (asking->ntokens > asking->t) /* old and new tokens may stand side by side for a moment */
        blocks += (asking->ntokens - asking->t + w->L - 1) / w->L + 1, keys++;
    for (uint32_t p = 0; p < POOLS; p++)
        for (uint32_t i = 0; m->pool[p].open && i < NAMESPACES * VARIANTS * CHUNKS; i++)
            if (m->chunk[p][i].epoch == m->chunk_base[p] && m->chunk[p][i].present) {
                blocks++;
                keys++;
            }
    for (uint32_t i = 0; i < PULLS * 2; i++)
        if (m->pull[i].used) /* it may have published what the model has not seen yet */
            return;
    EXPECT(blocks > w->limits.token_blocks || keys > w->limits.extra_keys, "false_busy",
           "daemon %u: at most %u of %u blocks and %u of %u keys would be in use", d, blocks,
           w->limits.token_blocks, keys, w->limits.extra_keys);
    MARK(token_blocks_full);
}

/* Nobody heard how a fetch ended: a Match tells. */
static void match_unheard(struct sim *w, uint32_t d, struct session *s, uint32_t conn)
{
    struct event ev;
    uint32_t before = s->t;
    const struct lengths *l;

    request_init(w, d, &ev, OP_MATCH, conn);
    ev.request.match.session = s->id;
    ev.request.match.tokens = tokens_of(w, s->variant, 0, s->ntokens);
    ev.request.match.step = 0;
    TRACE("  daemon %u asks how the fetch of session %u ended\n", d,
          (unsigned)(s - w->d[d].session));
    sim_step(w, d, &ev);
    EXPECT(w->reply && (w->reply->err == TERN_OK || w->reply->err == TERN_BUSY), "unheard_match",
           "err %u", w->reply ? w->reply->err : 99);
    if (w->reply->err == TERN_BUSY)
        return;
    l = &w->reply->match.lengths;
    TRACE("    T %u C %u A %u\n", l->committed, l->written, l->allocated);
    if (l->allocated != l->committed)
        return; /* pages of its own that nobody told of: it can only abort */
    EXPECT(l->committed >= before && l->committed <= s->ntokens, "unheard_lengths", "T %u, was %u",
           l->committed, before);
    MARK(fetch_answer_unheard);
    if (l->committed > before)
        take_borrowed(w, d, s, before, l->committed, l->committed, w->reply->runs, w->reply->nruns);
    s->t = s->c = s->a = s->filled = l->committed;
    s->prompt = s->ntokens;
    s->turn = TURN_OPEN;
    s->deaf = 0;
    session_unfetch(w, d, s);
}

/* The same Match and the same Commit again change nothing. */
void ask_again(struct sim *w, uint32_t d, uint32_t i)
{
    struct session *s = &w->d[d].session[i];
    uint32_t conn = engine_conn(w, d, s->engine);
    struct step_op op = {.kind = STEP_COMMIT, .session = s->id, .length = s->t};
    struct event ev;
    const struct op_result *r;

    if (conn == NO || w->d[d].engine[s->engine].dying)
        return;
    op.step = s->last_step;
    request_init(w, d, &ev, OP_STEP, conn);
    ev.request.step.ops = &op;
    ev.request.step.n = 1;
    sim_step(w, d, &ev);
    EXPECT(w->reply && w->reply->step.n == 1, "repeat_answer", "no answer");
    r = &w->reply->step.results[0];
    EXPECT(r->err == TERN_OK && r->nruns == 0 && r->lengths.committed == s->t &&
               r->lengths.written == s->c && r->lengths.allocated == s->a &&
               r->tokens == s->ntokens,
           "commit_repeated", "err %u T %u C %u A %u", r->err, r->lengths.committed,
           r->lengths.written, r->lengths.allocated);
}

void ask_match(struct sim *w, uint32_t d, uint32_t i)
{
    struct session *s = &w->d[d].session[i];
    uint32_t conn = engine_conn(w, d, s->engine), variant = s->variant, n, base = 0, step, common;
    bool fresh = s->a == 0;
    struct event ev;

    if (!s->live || conn == NO || w->d[d].engine[s->engine].dying)
        return;
    if (s->deaf) {
        match_unheard(w, d, s, conn);
        return;
    }
    if (chance(w, 25))
        variant = pick(w, w->cfg.variants);
    n = 1 + pick(w, w->cfg.tokens_max);
    if (!fresh && chance(w, 60)) {
        n = s->ntokens + pick(w, 4);
        variant = s->variant;
    }
    if (n > TOKENS)
        n = TOKENS;
    common = w->common[variant][s->variant];
    if (common > s->ntokens)
        common = s->ntokens;
    if (chance(w, 60)) /* any part of what both agree on need not be sent again */
        base = pick(w, (common < n ? common : n) + 1);
    if (common > n)
        common = n;
    step = release_step(w, d, s);
    request_init(w, d, &ev, OP_MATCH, conn);
    ev.request.match.session = s->id;
    ev.request.match.tokens = tokens_of(w, variant, base, n);
    ev.request.match.step = step;
    TRACE("  daemon %u match session %u: variant %u, tokens %u from %u, step %u (T %u C %u A %u)\n",
          d, i, variant, n, base, step, s->t, s->c, s->a);
    sim_step(w, d, &ev);
    EXPECT(w->reply, "match_answer", "no answer to a match");
    TRACE("    err %u T %u C %u A %u\n", w->reply->err, w->reply->match.lengths.committed,
          w->reply->match.lengths.written, w->reply->match.lengths.allocated);
    if (s->turn == TURN_FETCHING) {
        EXPECT(w->reply->err == TERN_BUSY, "match_while_fetching", "err %u", w->reply->err);
        return;
    }
    if (w->reply->err == TERN_BUSY) {
        if (fresh || step <= w->d[d].engine[s->engine].min_done)
            check_store_full(w, d, s, n);
        return;
    }
    if (!fresh && common < s->t) {
        EXPECT(w->reply->err == TERN_INVALID, "resume_below_t",
               "err %u for %u common tokens, T is %u", w->reply->err, common, s->t);
        MARK(resume_refused);
        return;
    }
    EXPECT(w->reply->err == TERN_OK, "match_refused", "err %u %s", w->reply->err, w->reply->text);
    s->variant = (uint8_t)variant;
    if (fresh)
        match_new(w, d, s, n, common);
    else
        match_again(w, d, s, variant, n, common, step, base);
}

void ask_peek(struct sim *w, uint32_t d, uint32_t e)
{
    struct engine *g = &w->d[d].engine[e];
    uint32_t conn = engine_conn(w, d, e), ns = pick(w, w->cfg.namespaces),
             variant = pick(w, w->cfg.variants);
    uint32_t n = 1 + pick(w, w->cfg.tokens_max);
    uint64_t before = core_changes(w->d[d].core);
    struct event ev;

    if (conn == NO || g->dying || g->pool == NO || g->mapped != (1u << g->nprocs) - 1)
        return;
    request_init(w, d, &ev, OP_PEEK, conn);
    ev.request.peek.pool = w->d[d].pool[g->pool].id;
    ev.request.peek.ns = namespace_of(ns, w->cfg.seed_tokens & 1);
    ev.request.peek.tokens = tokens_of(w, variant, 0, n);
    sim_step(w, d, &ev);
    EXPECT(w->reply, "peek_answer", "no answer to a peek");
    if (w->d[d].pool[g->pool].closing) {
        EXPECT(w->reply->err == TERN_GONE, "peek_closing", "err %u", w->reply->err);
        return;
    }
    EXPECT(w->reply->err == TERN_OK, "peek_refused", "err %u %s", w->reply->err, w->reply->text);
    EXPECT(before == core_changes(w->d[d].core), "peek_changes", "a Peek changed the state");
    check_depth(w, d, g->pool, ns, variant, n, w->reply->peek.depth);
}

/* --- fetch --- */

void ask_fetch(struct sim *w, uint32_t d, uint32_t i)
{
    struct daemon *m = &w->d[d];
    struct session *s = &m->session[i];
    uint32_t conn = engine_conn(w, d, s->engine), depth;
    struct event ev;

    if (!s->live || conn == NO || m->engine[s->engine].dying || s->turn == TURN_FETCHING)
        return;
    if (s->turn == TURN_NEW || s->ntokens < s->t + w->L || s->a != s->t) {
        if (!chance(w, 10))
            return;
    }
    depth = chance(w, 60) ? 0 : pick(w, s->ntokens + 4);
    request_init(w, d, &ev, OP_FETCH, conn);
    ev.request.fetch.session = s->id;
    s->fetch_bad_peer = (uint8_t)chance(w, 4);
    ev.request.fetch.peer = s->fetch_bad_peer ? NONE : 0;
    ev.request.fetch.depth = depth;
    w->opened = (struct id){.slot = NONE};
    TRACE("  daemon %u fetch session %u: depth %u of %u tokens (T %u A %u)\n", d, i, depth,
          s->ntokens, s->t, s->a);
    s->fetch_request = ev.request.request_id;
    s->fetch_since = w->now;
    s->fetch_conn = conn;
    s->cancel_sent = 0;
    s->fetch_before = s->turn;
    s->fetch_pull = w->opened;
    s->turn = TURN_FETCHING;
    sim_step(w, d, &ev); /* an answer at once comes through session_fetched */
    if (s->live && s->turn == TURN_FETCHING)
        s->fetch_pull = w->opened;
}

void ask_cancel(struct sim *w, uint32_t d, uint32_t i)
{
    struct daemon *m = &w->d[d];
    struct session *s = &m->session[i];
    uint32_t conn = engine_conn(w, d, s->engine);
    struct event ev;

    if (!s->live || conn == NO || m->engine[s->engine].dying)
        return;
    request_init(w, d, &ev, OP_FETCH_CANCEL, conn);
    ev.request.fetch_cancel.session = s->id;
    if (s->turn == TURN_FETCHING)
        s->cancel_sent = 1;
    else if (s->fetch_request)
        MARK(fetch_cancel_loses);
    else if (!chance(w, 30))
        return;
    TRACE("  daemon %u cancels the fetch of session %u\n", d, i);
    sim_step(w, d, &ev);
    EXPECT(w->reply, "cancel_answer", "no answer to a cancel");
    EXPECT(w->reply->err == TERN_OK, "cancel_refused", "err %u", w->reply->err);
}

static void fetch_marks(struct sim *w, const struct session *s, const struct reply *r,
                        uint32_t before)
{
    switch (r->err) {
    case TERN_OK:
        if (r->fetch.lengths.committed > before)
            MARK(fetch_publishes);
        else
            MARK(fetch_nothing_there);
        break;
    case TERN_CORRUPT: MARK(fetch_corrupt_fatal); break;
    case TERN_PEER_LOST: MARK(fetch_peer_lost); break;
    case TERN_TIMED_OUT: MARK(fetch_timed_out); break;
    case TERN_POOL_EXHAUSTED: MARK(fetch_exhausted); break;
    case TERN_GONE:
        if (s->cancel_sent)
            MARK(fetch_cancel_wins);
        break;
    default: break;
    }
}

/* Pages of its own behind T: another engine is about to publish the same chunks. */
static void take_owned(struct sim *w, uint32_t d, struct session *s, const struct reply *r)
{
    uint32_t from = r->fetch.lengths.committed, to = r->fetch.lengths.allocated;

    if (to > from)
        MARK(fetch_owns_unpublished);
    for (uint32_t i = 0; i < r->nruns; i++) {
        const struct table_run *run = &r->runs[i];
        uint32_t pt = w->page_tokens[run->group];

        for (uint32_t k = 0; k < run->n; k++) {
            uint32_t at = run->first + k;
            struct granule *g;

            if (at < from / pt)
                continue;
            g = page_granule(w, d, s->pool, run->group, run->refs[k].index);
            EXPECT(g->own == OWN_PULL && g->verified && g->gen == run->refs[k].gen,
                   "fetched_unverified", "group %u index %u is of kind %u, verified %u", run->group,
                   run->refs[k].index, g->own, g->verified);
            for (uint32_t n = 0; n < w->page_granules[run->group]; n++) {
                g[n].own = OWN_SESSION;
                g[n].owner = (uint8_t)(s - w->d[d].session);
                g[n].verified = 0;
            }
            s->table[run->group][at].granule = (uint16_t)(g - w->d[d].granule[s->tenant]);
            s->table[run->group][at].gen = g->gen;
            check_page(w, d, s->tenant, s->table[run->group][at].granule, run->group, s->ns,
                       s->variant, at * pt, pt, "fetch_wrong_bytes");
        }
    }
}

static void fetch_take(struct sim *w, uint32_t d, struct session *s, const struct reply *r)
{
    const struct lengths *l = &r->fetch.lengths;
    uint32_t before = s->t;

    EXPECT(l->committed >= before && l->allocated <= s->ntokens && l->committed <= l->allocated &&
               l->written == l->allocated && l->committed % w->L == 0 && l->allocated % w->L == 0,
           "fetch_lengths", "T %u C %u A %u, T was %u, of %u tokens", l->committed, l->written,
           l->allocated, before, s->ntokens);
    for (uint32_t k = before / w->L + 1; k * w->L <= l->committed; k++)
        if (chunk_at(w, d, s->pool, s->ns, s->variant, k)->present)
            MARK(fetch_adopts_existing);
    take_borrowed(w, d, s, before, l->committed, l->allocated, r->runs, r->nruns);
    take_owned(w, d, s, r);
    s->t = l->committed;
    s->c = s->a = s->filled = l->allocated;
}

/* A fetch ended before its peer was asked. */
static void fetch_refused(struct sim *w, uint32_t d, struct session *s, const struct reply *r)
{
    bool idle = s->fetch_before == TURN_NEW || s->a != s->t;

    s->turn = s->fetch_before;
    switch (r->err) {
    case TERN_INVALID: EXPECT(idle || s->fetch_bad_peer, "fetch_invalid", "%s", r->text); return;
    case TERN_PEER_LOST:
        EXPECT(!w->link[d].up[0], "fetch_peer", "%s", r->text);
        MARK(fetch_peer_lost);
        return;
    case TERN_BUSY: return;
    case TERN_OK:
        EXPECT(!idle && r->nruns == 0 && r->fetch.lengths.committed == s->t, "fetch_at_once",
               "T %u", s->t);
        return;
    default: violation(w, "fetch_refused", "err %u %s", r->err, r->text);
    }
}

void session_fetched(struct sim *w, uint32_t d, const struct reply *r)
{
    struct daemon *m = &w->d[d];
    struct session *s = NULL;

    for (uint32_t i = 0; i < SESSIONS && !s; i++)
        if (m->session[i].used && m->session[i].turn == TURN_FETCHING &&
            m->session[i].fetch_request == r->request_id)
            s = &m->session[i];
    EXPECT(s, "fetch_answered_twice", "an answer to fetch %llu, which is not under way",
           (unsigned long long)r->request_id);
    TRACE("  fetch of session %u answered: err %u T %u C %u A %u %s\n", (unsigned)(s - m->session),
          r->err, r->fetch.lengths.committed, r->fetch.lengths.written, r->fetch.lengths.allocated,
          r->text);
    if (!s->live || s->ending) { /* closed or aborted in mid-transfer */
        EXPECT(r->err != TERN_OK, "fetch_of_closed", "err %u", r->err);
        s->turn = TURN_OPEN;
        if (s->live)
            session_unfetch(w, d, s);
        return;
    }
    if (s->fetch_pull.slot == NONE) {
        fetch_refused(w, d, s, r);
        return;
    }
    s->turn = TURN_OPEN;
    if (r->err == TERN_POOL_EXHAUSTED)
        m->pool[s->pool].evictions++; /* what was evicted stays evicted */
    fetch_marks(w, s, r, s->t);
    fetch_take(w, d, s, r);
    session_unfetch(w, d, s);
}

/* --- the operator, and nonsense --- */

void evict(struct sim *w, uint32_t d, bool all)
{
    struct daemon *m = &w->d[d];
    struct event ev;

    request_init(w, d, &ev, OP_EVICT, 0);
    ev.request.evict.pool = (struct id){.slot = NONE};
    ev.request.evict.nodes = all ? 0 : 1 + pick(w, 4);
    for (uint32_t i = 0; i < POOLS; i++)
        m->pool[i].evictions++;
    sim_step(w, d, &ev);
    EXPECT(w->reply && w->reply->err == TERN_OK, "evict_refused", "err %u",
           w->reply ? w->reply->err : 99);
    EXPECT(all || w->reply->evict.nodes <= ev.request.evict.nodes, "evict_too_many", "%u nodes",
           w->reply->evict.nodes);
    if (w->reply->evict.nodes)
        MARK(evict_on_demand);
}

void drain(struct sim *w, uint32_t d)
{
    struct event ev;

    request_init(w, d, &ev, OP_DRAIN, 0);
    w->d[d].draining = !w->d[d].draining;
    ev.request.drain.on = w->d[d].draining;
    sim_step(w, d, &ev);
    EXPECT(w->reply && w->reply->err == TERN_OK, "drain_refused", "err %u",
           w->reply ? w->reply->err : 99);
}

static uint32_t any_conn(struct sim *w, uint32_t d, uint32_t *ret_engine)
{
    uint32_t e = pick(w, ENGINES);

    for (uint32_t i = 0; i < ENGINES; i++, e = (e + 1) % ENGINES) {
        const struct engine *g = &w->d[d].engine[e];
        uint32_t conn = engine_conn(w, d, e);

        if (conn != NO && !g->dying && g->seen == (1u << g->nprocs) - 1) {
            *ret_engine = e;
            return conn;
        }
    }
    return NO;
}

static void ask_with_handle(struct sim *w, uint32_t d, uint32_t conn, struct id id,
                            const char *what)
{
    struct event ev;
    struct step_op op;

    switch (pick(w, 4)) {
    case 0:
        request_init(w, d, &ev, OP_MATCH, conn);
        ev.request.match.session = id;
        ev.request.match.tokens = tokens_of(w, 0, 0, 1 + pick(w, 8));
        ev.request.match.step = 0;
        break;
    case 1:
        request_init(w, d, &ev, OP_FETCH_CANCEL, conn);
        ev.request.fetch_cancel.session = id;
        break;
    default:
        request_init(w, d, &ev, OP_STEP, conn);
        memset(&op, 0, sizeof op);
        op.kind = chance(w, 50) ? STEP_CLOSE : STEP_EXTEND;
        op.session = id;
        op.length = 4;
        ev.request.step.ops = &op;
        ev.request.step.n = 1;
    }
    sim_step(w, d, &ev);
    EXPECT(w->reply, "stale_answer", "no answer");
    if (ev.request.op == OP_STEP)
        EXPECT(w->reply->step.n == 1 && w->reply->step.results[0].err == TERN_GONE, what,
               "handle %u.%u: err %u", id.slot, id.gen, w->reply->step.results[0].err);
    else
        EXPECT(w->reply->err == TERN_GONE, what, "handle %u.%u: err %u", id.slot, id.gen,
               w->reply->err);
}

void stale_request(struct sim *w, uint32_t d)
{
    struct daemon *m = &w->d[d];
    uint32_t e, conn = any_conn(w, d, &e);
    const struct session *s = &m->session[pick(w, SESSIONS)];
    const struct pool *p = &m->pool[pick(w, POOLS)];
    struct event ev;

    if (conn == NO)
        return;
    if (p->open && p->tenant != m->engine[e].tenant && chance(w, 50)) { /* another tenant's */
        FAULT(stale_handle);
        request_init(w, d, &ev, chance(w, 50) ? OP_POOL_MAP : OP_POOL_CLOSE, conn);
        ev.request.pool_map.pool = p->id;
        sim_step(w, d, &ev);
        EXPECT(w->reply && w->reply->err != TERN_OK, "foreign_pool_used", "op %u", ev.request.op);
        MARK(tenant_separates);
        return;
    }
    if (m->restarts && m->old_session.gen && chance(w, 50)) {
        FAULT(stale_handle);
        ask_with_handle(w, d, conn, m->old_session, "old_session_lives");
        MARK(gone_after_restart);
    } else if (m->restarts && m->old_pool.gen && chance(w, 50)) {
        FAULT(stale_handle);
        request_init(w, d, &ev, OP_POOL_MAP, conn);
        ev.request.pool_map.pool = m->old_pool;
        sim_step(w, d, &ev);
        EXPECT(w->reply && w->reply->err == TERN_GONE, "old_pool_lives", "err %u",
               w->reply ? w->reply->err : 99);
        MARK(gone_after_restart);
    } else if (s->used && (!s->live || s->engine != e)) {
        FAULT(stale_handle);
        ask_with_handle(w, d, conn, s->id,
                        s->live ? "foreign_session_used" : "closed_session_used");
        MARK(gone_after_close);
    }
}

static void bad_op(struct sim *w, const struct session *s, struct step_op *op)
{
    memset(op, 0, sizeof *op);
    op->session = s->id;
    op->kind = STEP_EXTEND;
    switch (pick(w, 6)) {
    case 0: op->length = 0x80000000u + pick(w, 100); break;
    case 1: op->written = s->a + 1 + pick(w, 9); break;
    case 2:
        op->tokens = tokens_of(w, s->variant, s->ntokens > 3 ? s->ntokens - 3 : s->ntokens + 1,
                               s->ntokens + 2);
        break;
    case 3: op->kind = (enum step_op_kind)77; break;
    case 4:
        op->kind = STEP_REWIND;
        op->length = s->a + 1 + pick(w, 3);
        break;
    default: op->written = 0xffffffffu; break;
    }
}

void bad_request(struct sim *w, uint32_t d)
{
    struct daemon *m = &w->d[d];
    const struct session *s = &m->session[pick(w, SESSIONS)];
    uint32_t conn = s->live ? engine_conn(w, d, s->engine) : NO;
    struct extra_key twice[2] = {{.position = 1}, {.position = 1}};
    struct event ev;
    struct step_op op;

    if (conn == NO || m->engine[s->engine].dying || m->pool[s->pool].closing || s->deaf)
        return;
    FAULT(malformed_request);
    if (chance(w, 70)) {
        bad_op(w, s, &op);
        request_init(w, d, &ev, OP_STEP, conn);
        ev.request.step.ops = &op;
        ev.request.step.n = 1;
        sim_step(w, d, &ev);
        EXPECT(w->reply && w->reply->err == TERN_OK && w->reply->step.n == 1 &&
                   w->reply->step.results[0].err != TERN_OK,
               "bad_op_taken", "kind %u length %u written %u", op.kind, op.length, op.written);
        return;
    }
    request_init(w, d, &ev, OP_MATCH, conn);
    ev.request.match.session = s->id;
    ev.request.match.step = 0;
    ev.request.match.tokens = tokens_of(w, s->variant, 0, 4);
    if (chance(w, 50)) {
        ev.request.match.tokens.base = s->ntokens + 1;
    } else {
        ev.request.match.tokens.keys = twice;
        ev.request.match.tokens.nkeys = 2;
    }
    sim_step(w, d, &ev);
    EXPECT(w->reply && w->reply->err != TERN_OK, "bad_match_taken", "session %u.%u", s->id.slot,
           s->id.gen);
}
