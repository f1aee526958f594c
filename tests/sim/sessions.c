/* An engine's requests outside a Step, and the required answers: sessions, Peek and Match. Fetches
 * are in fetches.c. */
#include "disk.h"
#include "records.h"
#include "tickets.h"

void request_init(struct sim *w, uint32_t d, struct event *ev, enum op op, uint32_t conn)
{
    ev->kind = EV_REQUEST;
    ev->request.op = op;
    ev->request.conn = conn;
    ev->request.request_id = ++w->d[d].next_request;
    ev->request.trace_id = w->d[d].next_request;
    if (op == OP_STEP)
        ev->request.step = (struct req_step){.n = 0};
}

/* Either half of the id may be the one that differs. */
struct namespace_id namespace_of(uint32_t ns, bool by_hi)
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

uint32_t share_each(const struct sim *w, uint32_t limit)
{
    uint32_t each = limit * w->cfg.reserved / 100 / TENANTS;

    return each == 0 && w->cfg.reserved > 0 && limit >= TENANTS ? 1 : each;
}

bool share_used_up(const struct sim *w, uint32_t limit, const uint32_t used[TENANTS],
                   uint32_t tenant)
{
    uint32_t each = share_each(w, limit), taken = 0;

    for (uint32_t t = 0; t < TENANTS; t++)
        taken += used[t] > each ? used[t] : each;
    return used[tenant] >= each && taken >= limit;
}

void ask_open(struct sim *w, uint32_t d, uint32_t e)
{
    struct daemon *m = &w->d[d];
    struct engine *g = &m->engine[e];
    uint32_t conn = engine_conn(w, d, e), slot, live[TENANTS] = {0}, of_tenant;
    bool sound;
    struct event ev;
    struct session *s;

    if (conn == NO || g->dying || g->pool == NO || g->mapped != (1u << g->nprocs) - 1)
        return;
    for (uint32_t i = 0; i < SESSIONS; i++) {
        live[m->session[i].tenant] += m->session[i].live;
    }
    of_tenant = live[g->tenant];
    for (slot = pick(w, SESSIONS); m->session[slot].live; slot = (slot + 1) % SESSIONS)
        ;
    s = &m->session[slot];
    request_init(w, d, &ev, OP_SESSION_OPEN, conn);
    memset(s, 0, offsetof(struct session, table));
    s->ns = (uint8_t)pick(w, w->cfg.namespaces);
    if (!space_ready(w, d, g->tenant, s->ns))
        return;
    ev.request.session_open = (struct req_session_open){
        .pool = m->pool[g->pool].id, .ns = namespace_of(s->ns, w->cfg.seed_tokens & 1)};
    sound = records_open(w, d, slot, &ev.request.session_open);
    sim_ask(w, d, &ev, "open_answer");
    if (!sound) {
        EXPECT(w->reply->err == TERN_INVALID || w->reply->err == TERN_GONE, "open_unsound",
               "err %u: merging %u, %u blobs kept", w->reply->err, ev.request.session_open.merging,
               ev.request.session_open.blobs_kept);
        return;
    }
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
                   ? share_used_up(w, w->cfg.lim_sessions, live, g->tenant) || m->draining ||
                         !w->ample
               : w->reply->err == TERN_GONE ? m->pool[g->pool].closing
                                            : of_tenant >= w->cfg.sessions_max,
               "open_refused", "err %u %s", w->reply->err, w->reply->text);
        return;
    }
    s->used = s->live = 1;
    s->engine = (uint8_t)e;
    s->tenant = g->tenant;
    s->space = m->space_of[g->tenant][s->ns];
    s->pool = g->pool;
    s->variant = (uint8_t)pick(w, 1 + pick(w, w->cfg.variants)); /* the first ones more often */
    s->turn = TURN_NEW;
    s->id = s->handle = w->reply->session_open.session;
    TRACE("  daemon %u engine %u opens session %u = %u.%u ns %u variant %u\n", d, e, slot,
          s->id.slot, s->id.gen, s->ns, s->variant);
    for (uint32_t i = 0; i < SESSIONS; i++)
        EXPECT(i == slot || !m->session[i].used || !session_id_equal(m->session[i].id, s->id),
               "handle_reused", "session handle %u.%u was handed out before", s->id.slot,
               s->id.gen);
    for (uint32_t i = 0; i < SESSIONS; i++)
        EXPECT(!session_id_equal(m->session[i].old_turn, s->id), "handle_reused",
               "session handle %u.%u was a turn's", s->id.slot, s->id.gen);
}

/* The deepest prefix that a match must find, as far as the model is sure. */
static uint32_t least_depth(struct sim *w, uint32_t d, uint32_t pool, uint32_t space,
                            uint32_t variant, uint32_t n)
{
    uint32_t k = 0;

    while ((k + 1) * w->L <= n) {
        struct chunk *c = chunk_at(w, d, pool, space, variant, k + 1);

        if (!chunk_certain(w, d, pool, c) || !chunk_visible(w, d, c))
            break;
        k++;
    }
    while (k > 0 && w->cfg.nstate && !state_resumes(w, d, pool, space, variant, k))
        k--;
    return k * w->L;
}

static void check_depth(struct sim *w, uint32_t d, uint32_t pool, uint32_t space, uint32_t variant,
                        uint32_t n, uint32_t depth)
{
    uint32_t least = least_depth(w, d, pool, space, variant, n);

    EXPECT(depth % w->L == 0 && depth <= n, "match_boundary", "depth %u of %u tokens, L %u", depth,
           n, w->L);
    EXPECT(depth >= least, "match_too_short",
           "found %u, but %u is committed, visible and cannot have gone", depth, least);
    for (uint32_t k = 1; k * w->L <= depth; k++) {
        struct chunk *c = chunk_at(w, d, pool, space, variant, k);

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
        uint32_t space = w->d[d].space_of[w->d[d].pool[pool].tenant][(ns + 1) % NAMESPACES];
        const struct chunk *c = space == NO_SPACE ? NULL : chunk_at(w, d, pool, space, variant, 1);

        return w->cfg.namespaces > 1 && c && c->present && chunk_visible(w, d, c);
    }
    return w->cfg.keys && w->keys[variant].position < n;
}

static uint32_t pages_for(const struct sim *w, uint32_t d, uint32_t group, uint32_t tokens)
{
    return (tokens + w->page_tokens[d][group] - 1) / w->page_tokens[d][group];
}

/* Borrowed pages of an answer: for each chunk those of the tree, with the bytes of this prefix. */
void take_borrowed(struct sim *w, uint32_t d, struct session *s, uint32_t from, uint32_t to,
                   uint32_t end, const struct table_run *runs, uint32_t nruns)
{
    uint32_t given[GROUPS] = {0}, start = s->deaf ? 0 : from;

    for (uint32_t i = 0; i < nruns; i++) {
        EXPECT(runs[i].group < w->ngroups, "run_group", "group %u", runs[i].group);
        if (runs[i].group >= w->cfg.ngroups)
            continue; /* see state_borrow */
        EXPECT(runs[i].first >= start / w->page_tokens[d][runs[i].group] &&
                   runs[i].first + runs[i].n <= pages_for(w, d, runs[i].group, end),
               "run_range", "group %u pages %u + %u of [%u, %u)", runs[i].group, runs[i].first,
               runs[i].n, start, end);
        given[runs[i].group] += runs[i].n;
    }
    for (uint32_t g = 0; g < w->cfg.ngroups; g++)
        EXPECT(given[g] == pages_for(w, d, g, end) - start / w->page_tokens[d][g], "run_count",
               "group %u: %u pages for [%u, %u)", g, given[g], start, end);
    for (uint32_t k = from / w->L + 1; k * w->L <= to; k++) {
        struct chunk *c = chunk_at(w, d, s->pool, s->space, s->variant, k);

        chunk_publish(w, d, s->pool, c, runs,
                      nruns); /* the model may not know fetched chunks yet */
        for (uint32_t g = 0; g < w->cfg.ngroups; g++)
            for (uint32_t i = 0, per = w->L / w->page_tokens[d][g]; i < per; i++) {
                borrow(w, d, s, g, (k - 1) * per + i, c, i);
                if (chunk_visible(w, d, c))
                    check_page(w, d, s->tenant, c->granule[g][i], g, s->ns, s->variant,
                               (k - 1) * w->L + i * w->page_tokens[d][g], w->page_tokens[d][g],
                               "match_wrong_bytes");
            }
    }
}

static void match_new(struct sim *w, uint32_t d, struct session *s, uint32_t n, uint32_t common)
{
    const struct reply *r = w->reply;
    uint32_t depth = r->match.matched;

    EXPECT(depth == 0 || space_current(w, d, s->tenant, s->space), "reset_matched",
           "depth %u of a namespace that was reset", depth);
    if (space_current(w, d, s->tenant, s->space))
        check_depth(w, d, s->pool, s->space, s->variant, n, depth);
    EXPECT(r->match.lengths.committed == depth && r->match.lengths.written == depth &&
               r->match.lengths.allocated == depth,
           "match_lengths", "committed %u written %u allocated %u for a match of %u",
           r->match.lengths.committed, r->match.lengths.written, r->match.lengths.allocated, depth);
    EXPECT(r->match.tokens == n, "match_tokens", "%u of %u tokens", r->match.tokens, n);
    if (space_current(w, d, s->tenant, s->space))
        check_host_depth(w, d, s->pool, s->space, s->variant, n, depth, r->match.host_depth);
    check_disk_depth(w, d, s->pool, s->space, s->variant, n, depth, r->match.disk_depth);
    take_borrowed(w, d, s, 0, depth, depth, r->runs, r->nruns);
    state_borrow(w, d, s, 0, depth, r->runs, r->nruns);
    s->committed = s->written = s->allocated = s->filled = depth;
    follow_cut(w, d, s, common);
    s->ntokens = n;
    if (s->finished > common)
        s->finished = common;
    s->turn = TURN_OPEN;
    if (depth >= LONG_CHUNKS * w->L)
        MARK(match_long);
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

static void check_repeated_page(struct sim *w, uint32_t d, const struct session *s,
                                const struct table_run *run, uint32_t k)
{
    const struct entry *e = &s->table[run->group][run->first + k];

    EXPECT(run->first + k < s->committed / w->page_tokens[d][run->group] &&
               run->refs[k].gen == e->gen &&
               page_granule(w, d, s->pool, run->group, run->refs[k].index) ==
                   &w->d[d].granule[s->tenant][e->granule],
           "resume_pages", "group %u page %u is not the session's", run->group, run->first + k);
}

/* When only the borrowed part is left, the answer names its pages again: those that the session
 * has. */
static void check_repeated(struct sim *w, uint32_t d, const struct session *s,
                           const struct reply *r, uint32_t base)
{
    uint32_t n = 0, want = 0;

    for (uint32_t i = 0; i < r->nruns; i++)
        for (uint32_t k = 0; k < r->runs[i].n; k++, n++) {
            const struct table_run *run = &r->runs[i];

            if (run->group >= w->cfg.ngroups) { /* of STATE, those of the window */
                n--;
                continue;
            }
            check_repeated_page(w, d, s, run, k);
        }
    for (uint32_t g = 0; s->allocated == s->committed && base < s->committed && g < w->cfg.ngroups;
         g++)
        want += s->committed / w->page_tokens[d][g] - base / w->page_tokens[d][g];
    EXPECT(n == want, "resume_page_count", "%u pages for committed %u from token %u, not %u", n,
           s->committed, base, want);
}

/* S2; a RECURRENT page is the state of C alone: below C the session resumes at T (T21). */
static uint32_t resume_length(const struct sim *w, const struct session *s, uint32_t common)
{
    if (common >= s->written)
        return s->written;
    for (STATE_GROUPS(w, g))
        if (recurrent(w, g))
            return s->committed;
    return common;
}

static void match_again(struct sim *w, uint32_t d, struct session *s, uint32_t variant, uint32_t n,
                        uint32_t common, uint32_t step, uint32_t base)
{
    const struct reply *r = w->reply;
    uint32_t p = resume_length(w, s, common);

    for (uint32_t g = 0; g < w->cfg.ngroups; g++) {
        uint32_t pt = w->page_tokens[d][g];

        give_back(w, d, s, g, (p + pt - 1) / pt, (s->allocated + pt - 1) / pt, step);
    }
    state_trim(w, d, s, p, step);
    if (p < s->written)
        MARK(resume_shorter_than_written);
    if (s->ntokens == n && common == n)
        MARK(match_repeated);
    s->allocated = s->written = p;
    s->filled = p;
    s->variant = (uint8_t)variant;
    if (common < s->ntokens)
        follow_cut(w, d, s, common);
    s->ntokens = n;
    if (s->finished > common)
        s->finished = common;
    s->turn = TURN_OPEN;
    same_lengths(w, s, &r->match.lengths, "resume_lengths");
    EXPECT(r->match.tokens == n && r->match.matched == 0, "resume_answer", "%u tokens, %u matched",
           r->match.tokens, r->match.matched);
    check_repeated(w, d, s, r, base);
    if (s->lame && p == s->committed && state_window_whole(w, d, s, p))
        s->lame = 0; /* the STATE that it could not resume from was released */
}

uint32_t release_step(struct sim *w, uint32_t d, const struct session *s)
{
    const struct engine *g = &w->d[d].engine[s->engine];

    if (s->last_step <= g->min_done && chance(w, 50))
        return 0;
    return chance(w, 70) ? s->last_step : g->step;
}

/* A transfer may have published chunks that the model does not know yet. */
static bool unseen_chunks(const struct sim *w, uint32_t d)
{
    for (uint32_t i = 0; i < PULLS * 2; i++)
        if (w->d[d].pull[i].used)
            return true;
    if (w->d[d].resets) /* prefixes of a reset namespace may remain */
        return true;
    for (uint32_t t = 0; t < w->cfg.tenants; t++)
        for (uint32_t i = 0; i < w->granules; i++)
            if (w->d[d].granule[t][i].own == OWN_ORPHAN)
                return true;
    if (disk_is_on(w, d)) /* stores that wait pin their paths */
        return true;
    return false;
}

/* A fetch under way pins the HISTORY that it found here, so that it need not be moved again (X5).
 * The model does not know which chunks these are. */
static bool fetch_pins(const struct daemon *m, uint32_t pool)
{
    for (uint32_t set = sessions_live(m, 1u << TURN_FETCHING, ENGINES_ALL); set;)
        if (m->session[session_next(&set, 0)].pool == pool)
            return true;
    return false;
}

/* A transfer out pins the path that it serves until the peer reports its end, even if it had
 * nothing to offer. */
static bool serve_pins(const struct daemon *m, uint32_t pool)
{
    for (uint32_t i = 0; i < SERVES * 2; i++)
        if (m->serve[i].used && m->serve[i].pool == pool)
            return true;
    return false;
}

/* The most chunks of a pool that cannot be evicted for this tenant. A pinned chunk pins its
 * ancestors, and so may one on the host, since the model does not see all host pins. Another
 * tenant's chunks are evicted only if that tenant has more than this one. */
static uint32_t chunks_held(struct sim *w, uint32_t d, uint32_t pool, uint32_t tenant)
{
    const struct daemon *m = &w->d[d];
    bool busy = m->pool[pool].tenant != tenant || fetch_pins(m, pool) || serve_pins(m, pool) ||
                path_held_untold(m);
    uint32_t n = 0;

    for (KNOWN_CHUNKS(m, pool, i)) {
        n += m->chunk[pool][i].present || host_has(&m->chunk[pool][i]);
        busy = busy || w->cfg.nstate > 0 || host_has(&m->chunk[pool][i]) ||
               chunk_held(w, d, pool, &m->chunk[pool][i]);
    }
    return busy ? n : 0;
}

/* Chunks wait in a queue that the model does not see, and are pinned there. */
static bool waits_for_checksums(const struct sim *w, uint32_t d)
{
    for (uint32_t i = 0; i < w->d[d].njobs; i++)
        if (w->d[d].job[i].kind == JOB_SEAL)
            return true;
    return false;
}

/* The token store may refuse only what would not fit after evictions: the sum is an upper bound of
 * the other lists in it, the other tenant's reserved part, and the tokens of the request. */
void check_store_full(struct sim *w, uint32_t d, const struct session *asking, uint32_t tokens)
{
    const struct daemon *m = &w->d[d];
    uint32_t blocks[TENANTS] = {0}, keys[TENANTS] = {0}, mine = asking->tenant, other = 1 - mine,
             before = asking->ntokens,
             reserved_blocks = w->limits.token_blocks * w->cfg.reserved / 100,
             reserved_keys = w->limits.extra_keys * w->cfg.reserved / 100;

    blocks[mine] = (tokens - asking->committed + w->L - 1) / w->L;
    keys[mine] = 1;
    for (uint32_t t = 0; t < TENANTS; t++)
        blocks[t] += ticket_blocks(w, d, t);
    for (uint32_t i = 0; i < SESSIONS; i++) {
        const struct session *s = &m->session[i];

        if (s->live && s != asking) {
            blocks[s->tenant] += (s->ntokens - s->committed + w->L - 1) / w->L;
            keys[s->tenant]++;
        }
    }
    /* The former list, or that of earlier pieces of the same Match, and the new list may exist side
     * by side for a moment. */
    if (asking->piece_end > before)
        before = asking->piece_end;
    if (before > asking->committed)
        blocks[mine] += (before - asking->committed + w->L - 1) / w->L + 1, keys[mine]++;
    for (uint32_t p = 0; p < POOLS; p++)
        if (m->pool[p].open) {
            uint32_t n = chunks_held(w, d, p, mine);

            blocks[m->pool[p].tenant] += n;
            keys[m->pool[p].tenant] += n;
        }
    if (unseen_chunks(w, d) || waits_for_checksums(w, d))
        return;
    if (other < TENANTS && blocks[other] < reserved_blocks / TENANTS + 1)
        blocks[other] = reserved_blocks / TENANTS + 1;
    if (other < TENANTS && keys[other] < reserved_keys / TENANTS + 1)
        keys[other] = reserved_keys / TENANTS + 1;
    EXPECT(blocks[0] + blocks[1] > w->limits.token_blocks ||
               keys[0] + keys[1] > w->limits.extra_keys,
           "false_busy",
           "daemon %u: at most %u and %u of %u blocks and %u and %u of %u keys would be in use", d,
           blocks[0], blocks[1], w->limits.token_blocks, keys[0], keys[1], w->limits.extra_keys);
    MARK(token_blocks_full);
}

/* A session that fetches or is away matches nothing; the error shows which of the two it is. */
static bool match_must_wait(struct sim *w, const struct session *s, uint32_t was)
{
    if (was == TURN_FETCHING && s->turn != TURN_FETCHING && w->reply->err == TERN_BUSY)
        return true; /* it ended in this step, behind the Match */
    if (s->turn == TURN_FETCHING)
        EXPECT(w->reply->err == TERN_BUSY || (s->fetch_host && w->reply->err == TERN_INVALID),
               "match_while_fetching", "err %u", w->reply->err);
    if (s->turn == TURN_AWAY || s->turn == TURN_LOADING)
        EXPECT(w->reply->err == (s->turn == TURN_LOADING ? TERN_BUSY : TERN_INVALID),
               "match_while_away", "err %u", w->reply->err);
    return s->turn == TURN_FETCHING || s->turn == TURN_AWAY || s->turn == TURN_LOADING;
}

struct match_asked {
    uint32_t conn, variant, n, common, step;
    bool fresh;
};

/* A table is full, or too many releases wait. The pieces that were accepted before count: those of
 * a new session's Match are aborted, those of a resume have replaced the tokens that differ. */
static void match_busy(struct sim *w, uint32_t d, struct session *s, const struct match_asked *a)
{
    if (a->fresh || a->step <= w->d[d].engine[s->engine].min_done)
        check_store_full(w, d, s, a->n);
    s->piece_holds = s->piece_end > 0;
    if (s->piece_end && a->fresh)
        match_given_up(w, d, s, a->conn);
    else if (s->piece_end > a->common)
        match_again(w, d, s, a->variant, s->piece_end, a->common, a->step, s->committed);
}

/* A resume below the committed length, or beyond the reserve of its STATE. */
static bool resume_refused(struct sim *w, uint32_t d, const struct session *s, uint32_t common)
{
    if (common < s->committed) {
        EXPECT(w->reply->err == TERN_INVALID, "resume_below_t",
               "err %u for %u common tokens, T is %u", w->reply->err, common, s->committed);
        MARK(resume_refused);
        return true;
    }
    if (w->reply->err != TERN_INVALID || !state_may_refuse(w, d, s, resume_length(w, s, common)))
        return false;
    MARK(return_refused);
    return true;
}

void ask_match(struct sim *w, uint32_t d, uint32_t i)
{
    struct session *s = &w->d[d].session[i];
    uint32_t conn = engine_conn(w, d, s->engine), variant = s->variant, n;

    if (!s->live || conn == NO || w->d[d].engine[s->engine].dying || may_be_undone(w, d, s))
        return;
    if (s->deaf && (s->fetch_host || s->turn == TURN_LOADING))
        return;
    if (s->deaf) {
        match_unheard(w, d, s, conn);
        return;
    }
    if (chance(w, 25))
        variant = pick(w, w->cfg.variants);
    n = 1 + pick(w, w->cfg.tokens_max);
    if (s->allocated > 0 && chance(w, 60)) {
        n = s->ntokens + pick(w, 4);
        variant = s->variant;
    }
    match_these(w, d, i, variant, n);
}

/* The first n tokens of that sequence. */
void match_these(struct sim *w, uint32_t d, uint32_t i, uint32_t variant, uint32_t n)
{
    struct session *s = &w->d[d].session[i];
    uint32_t conn = engine_conn(w, d, s->engine), base = 0, step, common, sent;
    bool fresh = s->allocated == 0;
    uint32_t was = s->turn;
    struct event ev;

    if (n > w->span)
        n = w->span;
    common = w->common[variant][s->variant];
    if (common > s->ntokens)
        common = s->ntokens;
    if (chance(w, 60)) /* any part of the common prefix need not be sent again */
        base = pick(w, (common < n ? common : n) + 1);
    if (common > n)
        common = n;
    step = release_step(w, d, s);
    request_init(w, d, &ev, OP_MATCH, conn);
    ev.request.match = (struct req_match){.session = s->handle};
    ev.request.match.tokens = tokens_of(w, variant, base, n);
    ev.request.match.step = step;
    TRACE("  daemon %u match session %u: variant %u, tokens %u from %u, step %u (committed %u "
          "written %u allocated %u)\n",
          d, i, variant, n, base, step, s->committed, s->written, s->allocated);
    s->piece_variant = (uint8_t)variant;
    sent = match_parts(w, d, s, &ev);
    if (sent == n)
        sim_ask(w, d, &ev, "match_answer");
    TRACE("    err %u committed %u written %u allocated %u\n", w->reply->err,
          w->reply->match.lengths.committed, w->reply->match.lengths.written,
          w->reply->match.lengths.allocated);
    if (match_must_wait(w, s, was))
        return;
    if (w->reply->err == TERN_BUSY) {
        match_busy(w, d, s,
                   &(struct match_asked){.conn = conn,
                                         .variant = variant,
                                         .n = n,
                                         .common = common,
                                         .step = step,
                                         .fresh = fresh});
        return;
    }
    if (!fresh && resume_refused(w, d, s, common))
        return;
    EXPECT(w->reply->err == TERN_OK, "match_refused", "err %u %s", w->reply->err, w->reply->text);
    s->variant = (uint8_t)variant;
    if (!fresh && !state_window_whole(w, d, s, resume_length(w, s, common)))
        s->lame = 1; /* it resumed beyond its reserve */
    if (fresh)
        match_new(w, d, s, n, common);
    else
        match_again(w, d, s, variant, n, common, step, base);
}

bool peek_at(struct sim *w, uint32_t d, uint32_t e, uint32_t ns, uint32_t variant, uint32_t n)
{
    struct engine *g = &w->d[d].engine[e];
    uint32_t conn = engine_conn(w, d, e);
    const struct daemon *m = &w->d[d];
    struct event ev;

    if (conn == NO || g->dying || g->pool == NO || g->mapped != (1u << g->nprocs) - 1 ||
        !space_ready(w, d, g->tenant, ns))
        return false;
    request_init(w, d, &ev, OP_PEEK, conn);
    ev.request.peek.pool = w->d[d].pool[g->pool].id;
    ev.request.peek.ns = namespace_of(ns, w->cfg.seed_tokens & 1);
    peek_parts(w, d, &ev, variant, n);
    if (w->d[d].pool[g->pool].closing) {
        EXPECT(w->reply->err == TERN_GONE, "peek_closing", "err %u", w->reply->err);
        return false;
    }
    EXPECT(w->reply->err == TERN_OK, "peek_refused", "err %u %s", w->reply->err, w->reply->text);
    check_depth(w, d, g->pool, m->space_of[g->tenant][ns], variant, n, w->reply->peek.depth);
    EXPECT(w->reply->peek.history_depth >= w->reply->peek.depth &&
               (w->cfg.nstate || w->reply->peek.history_depth == w->reply->peek.depth),
           "peek_history", "%u, but a match finds %u", w->reply->peek.history_depth,
           w->reply->peek.depth);
    check_host_depth(w, d, g->pool, m->space_of[g->tenant][ns], variant, n, w->reply->peek.depth,
                     w->reply->peek.host_depth);
    n = ev.request.peek.tokens.base + ev.request.peek.tokens.n; /* up to the last piece sent */
    check_disk_depth(w, d, g->pool, m->space_of[g->tenant][ns], variant, n, w->reply->peek.depth,
                     w->reply->peek.disk_depth);
    if (w->reply->peek.history_depth > w->reply->peek.depth)
        MARK(match_shallower_for_state);
    return true;
}

void ask_peek(struct sim *w, uint32_t d, uint32_t e)
{
    uint32_t ns = pick(w, w->cfg.namespaces), variant = pick(w, w->cfg.variants);

    peek_at(w, d, e, ns, variant, 1 + pick(w, w->cfg.tokens_max));
}
