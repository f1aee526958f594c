/* Fetch and its cancel, as an engine requests them, and what an answer gives the session: borrowed
 * pages of published chunks, and perhaps pages of its own behind them. The pages that it owned
 * before, its tail, are replaced or left unchanged (S11). Also how the model learns the outcome
 * when nobody received the answer. */
#include "causes.h"
#include "disk.h"
#include "tickets.h"

#include "oracle/oracle.h"

/* --- the tail --- */

static bool owns_state(const struct sim *w, const struct session *s)
{
    for (STATE_GROUPS(w, g))
        if (s->top[g] > s->base[g])
            return true;
    return false;
}

static uint32_t verified_pages(const struct sim *w, uint32_t d, const struct session *s)
{
    const struct granule *g = w->d[d].granule[s->tenant];
    uint32_t n = 0;

    for (uint32_t i = 0; i < w->granules; i++)
        n += g[i].own == OWN_PULL && g[i].verified &&
             pull_id_equal(w->d[d].pull[g[i].owner].id, s->fetch_pull);
    return n;
}

struct tail {
    uint32_t pages, owned; /* by the model; those that are still the session's */
};

static void tail_add(const struct sim *w, uint32_t d, const struct session *s, uint32_t group,
                     uint32_t at, struct tail *tail)
{
    const struct entry *e = &s->table[group][at];
    const struct granule *g = &w->d[d].granule[s->tenant][e->granule];

    tail->pages++;
    tail->owned += oracle_session_owns(w->d[d].core, s->id, group,
                                       (struct page_ref){.index = g->index, .gen = e->gen});
}

static struct tail tail_now(const struct sim *w, uint32_t d, const struct session *s)
{
    struct tail tail = {0};

    for (uint32_t g = 0; g < w->cfg.ngroups; g++)
        for (uint32_t pt = w->page_tokens[d][g], i = s->committed / pt; i * pt < s->allocated; i++)
            tail_add(w, d, s, g, i, &tail);
    for (STATE_GROUPS(w, g))
        for (uint32_t i = s->base[g]; i < s->top[g]; i++)
            tail_add(w, d, s, g, i, &tail);
    return tail;
}

/* A fetch that follows takes its pages before its source is asked (Y5). */
static bool following_unasked(const struct sim *w, uint32_t d, const struct session *s)
{
    const struct tfetch *f = &w->tickets[d]->fetch[s - w->d[d].session];

    return w->cfg.early && f->on && f->follow && s->fetch_pull.slot == NONE;
}

/* A fetch by a ticket of this daemon, whose pages replace the tail. */
static bool fetched_here(const struct sim *w, uint32_t d, const struct session *s)
{
    const struct tfetch *f = &w->tickets[d]->fetch[s - w->d[d].session];

    return w->cfg.ticket_ms && f->on && f->local;
}

/* S11: after each step of the core, before its answers. No answer names the moment at which fetched
 * pages replace a tail, and the lengths need not change: chunks that other engines are about to
 * publish become the session's own pages, and may be as long as its tail. The pages show it. */
void fetches_look(struct sim *w, uint32_t d)
{
    for (uint32_t set = sessions_live(&w->d[d], 1u << TURN_FETCHING, ENGINES_ALL); set;) {
        struct session *s = &w->d[d].session[session_next(&set, 0)];
        struct session_view v;
        struct tail tail;

        if (following_unasked(w, d, s))
            w->d[d].pool[s->pool].evictions++; /* it may take its pages in any step */
        if (!s->fetch_tail || s->ending || !core_session_view(w->d[d].core, s->id.slot, &v) ||
            !session_id_equal(v.id, s->id))
            continue;
        tail = tail_now(w, d, s);
        if (tail.owned > 0) {
            EXPECT(tail.owned == tail.pages, "tail_in_part", "%u of %u pages are left", tail.owned,
                   tail.pages);
            same_lengths(w, s, &v.lengths, "tail_kept");
            continue;
        }
        TRACE("    the tail of session %u.%u is replaced, step %u\n", s->id.slot, s->id.gen,
              s->fetch_step);
        EXPECT(s->fetch_host || v.lengths.committed > s->committed || verified_pages(w, d, s) ||
                   fetched_here(w, d, s),
               "tail_for_nothing", "nothing has come");
        trim(w, d, s, s->committed, s->fetch_step);
        state_disown(w, d, s, s->fetch_step);
        s->fetch_tail = 0;
        MARK(fetch_replaces_tail);
        if (s->fetch_step > w->d[d].engine[s->engine].min_done)
            MARK(fetch_tail_waits);
    }
}

/* The answer to a fetch that left the tail in place: nothing has changed. */
void fetch_tail_stays(struct sim *w, const struct session *s, const struct reply *r)
{
    same_lengths(w, s, &r->fetch.lengths, "tail_lengths");
    EXPECT(r->nruns == 0, "tail_runs", "%u runs", r->nruns);
    MARK(fetch_leaves_tail);
}

/* The transfer is over for this session. */
static void session_unfetch(struct sim *w, uint32_t d, const struct session *s)
{
    for (uint32_t i = 0; i < PULLS * 2; i++)
        if (w->d[d].pull[i].used && !w->d[d].pull[i].over &&
            pull_id_equal(w->d[d].pull[i].id, s->fetch_pull))
            pull_over(w, d, &w->d[d].pull[i], s->ending || w->cfg.nstate);
}

/* Nobody received the answer to a fetch: a Match shows how it ended. */
void match_unheard(struct sim *w, uint32_t d, struct session *s, uint32_t conn)
{
    struct event ev;
    uint32_t before = s->committed, step = s->fetch_tail ? release_step(w, d, s) : 0;
    const struct lengths *l;
    bool tail = s->fetch_tail;

    request_init(w, d, &ev, OP_MATCH, conn);
    ev.request.match = (struct req_match){.session = s->handle};
    ev.request.match.tokens = tokens_of(w, s->variant, 0, s->ntokens);
    ev.request.match.step = step;
    TRACE("  daemon %u asks how the fetch of session %u ended\n", d,
          (unsigned)(s - w->d[d].session));
    s->fetch_tail = 0; /* the Match changes the lengths */
    sim_step(w, d, &ev);
    EXPECT(w->reply && (w->reply->err == TERN_OK || w->reply->err == TERN_BUSY), "unheard_match",
           "err %u", w->reply ? w->reply->err : 99);
    s->fetch_tail = tail && w->reply->err == TERN_BUSY;
    if (w->reply->err == TERN_BUSY)
        return;
    l = &w->reply->match.lengths;
    TRACE("    committed %u written %u allocated %u\n", l->committed, l->written, l->allocated);
    if (tail) { /* the Match resumes the session */
        trim(w, d, s, s->written, step);
        same_lengths(w, s, l, "unheard_tail");
        s->turn = TURN_OPEN;
        s->deaf = 0;
        session_unfetch(w, d, s);
        return;
    }
    if (l->allocated != l->committed)
        return; /* pages of its own that no answer named: it can only abort */
    EXPECT(l->committed >= before && l->committed <= s->ntokens, "unheard_lengths",
           "committed %u, was %u", l->committed, before);
    MARK(fetch_answer_unheard);
    if (l->committed > before)
        take_borrowed(w, d, s, before, l->committed, l->committed, w->reply->runs, w->reply->nruns);
    if (l->committed > before) /* no answer names its window again */
        s->lame = w->cfg.nstate != 0;
    s->committed = s->written = s->allocated = s->filled = l->committed;
    s->turn = TURN_OPEN;
    s->deaf = 0;
    session_unfetch(w, d, s);
}

/* Length in whole chunks that a fetch can reach. */
static uint32_t fetch_whole(const struct sim *w, const struct session *s)
{
    uint32_t whole = s->fetch_depth - s->fetch_depth % w->L;

    return whole > s->written ? whole : s->written;
}

/* Chooses at_least, now and then more than can arrive, and how long the fetch waits for it. */
static void choose_at_least(struct sim *w, struct session *s, struct req_fetch *r)
{
    s->fetch_at_least = r->at_least = r->wait_ms = 0;
    if (!w->cfg.awaits || chance(w, 30))
        return;
    s->fetch_at_least = r->at_least = 1 + pick(w, fetch_whole(w, s) + (chance(w, 10) ? 3 : 1));
    r->wait_ms = chance(w, 30) ? 0 : 1 + pick(w, 40);
}

void ask_fetch(struct sim *w, uint32_t d, uint32_t i)
{
    struct daemon *m = &w->d[d];
    struct session *s = &m->session[i];
    uint32_t conn = engine_conn(w, d, s->engine), depth;
    struct event ev;

    if (!s->live || conn == NO || m->engine[s->engine].dying || s->turn == TURN_FETCHING ||
        s->turn == TURN_LOADING || may_be_undone(w, d, s))
        return;
    s->fetch_host = m->pool[s->pool].hgranules ? chance(w, 50) : chance(w, 2);
    s->fetch_disk = w->cfg.disk && (s->ask_disk || chance(w, disk_is_on(w, d) ? 60 : 5));
    s->fetch_host &= !s->fetch_disk;
    if (s->turn == TURN_NEW || s->ntokens / w->L * w->L <= s->written) {
        if (!chance(w, 10))
            return;
    }
    /* The model cannot know the STATE that a lame session owns, nor whether a page of RECURRENT
     * state was replaced that is that of the committed length. */
    if (s->allocated == s->committed ? owns_state(w, s) : s->lame)
        return;
    depth = chance(w, 60) ? 0 : pick(w, s->ntokens + 4);
    request_init(w, d, &ev, OP_FETCH, conn);
    ev.request.fetch.session = s->handle;
    s->fetch_bad_peer = (uint8_t)chance(w, 4);
    ev.request.fetch.peer = s->fetch_bad_peer ? NONE
                            : s->fetch_host   ? PEER_HOST
                            : s->fetch_disk   ? PEER_DISK
                                              : 0;
    ev.request.fetch.depth = depth;
    s->fetch_prefetch = ev.request.fetch.prefetch = chance(w, 30);
    ev.request.fetch.ticket = (struct ticket){0};
    ev.request.fetch.follow = false;
    w->tickets[d]->fetch[i].on = 0;
    TRACE("  daemon %u fetch session %u from %x: depth %u of %u tokens (committed %u allocated "
          "%u)\n",
          d, i, ev.request.fetch.peer, depth, s->ntokens, s->committed, s->allocated);
    s->fetch_depth = depth && depth < s->ntokens ? depth : s->ntokens;
    choose_at_least(w, s, &ev.request.fetch);
    s->fetch_any = ev.request.fetch.peer == 0 && s->fetch_at_least == 0 && chance(w, 30);
    if (s->fetch_any)
        ev.request.fetch.peer = PEER_ANY;
    s->disk_depth = space_current(w, d, s->tenant, s->space)
                        ? disk_depth(w, d, s->pool, s->ns, s->variant, s->fetch_depth, false)
                        : 0;
    fetch_send(w, d, s, &ev, conn);
}

/* A later fetch does not overtake an earlier one of its tenant. */
static bool others_ask(struct sim *w, uint32_t d, const struct session *s)
{
    struct daemon *m = &w->d[d];
    bool any = false;

    for (uint32_t i = 0; i < OPENS; i++)
        any |= m->opened[i].id.slot != NONE && m->opened[i].id.gen && !m->opened[i].disk &&
               m->opened[i].tenant == s->tenant;
    for (uint32_t set = sessions_live(m, 1u << TURN_FETCHING, ENGINES_ALL); set;) {
        struct session *o = &m->session[session_next(&set, 0)];
        bool beside =
            o != s && o->tenant == s->tenant && !o->fetch_host && !o->fetch_disk && !s->fetch_host;

        any |= beside;
        o->fetch_behind |= beside; /* its question may have to be repeated */
    }
    return any;
}

void fetch_send(struct sim *w, uint32_t d, struct session *s, struct event *ev, uint32_t conn)
{
    struct daemon *m = &w->d[d];

    fetch_waits_clear(w, d, (uint32_t)(s - m->session));
    s->fetch_request = ev->request.request_id;
    s->fetch_since = w->now;
    s->fetch_step = release_step(w, d, s);
    ev->request.fetch.step = s->fetch_step;
    s->fetch_wrote = s->written;
    s->fetch_tail = s->turn != TURN_AWAY && s->allocated > s->committed;
    s->fetch_conn = conn;
    s->cancel_sent = 0;
    s->fetch_before = s->turn;
    s->fetch_pull = (struct pull_id){.slot = NONE};
    s->fetch_waited = s->fetch_source_busy = 0;
    s->fetch_asked = 0;
    s->fetch_any &= ev->request.fetch.peer == PEER_ANY;
    m->fetched |= (uint8_t)(1u << s->tenant);
    s->fetch_behind = others_ask(w, d, s);
    s->turn = TURN_FETCHING;
    m->waiting = 1;
    if (s->fetch_host || s->fetch_disk ||
        ev->request.fetch.follow) /* room for all of it is made at once */
        m->pool[s->pool].evictions++;
    sim_step(w, d, ev); /* an immediate answer comes through session_fetched */
    if (s->live && s->turn == TURN_FETCHING)
        s->fetch_before = TURN_OPEN; /* it was admitted: however it ends, a turn is under way */
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
    ev.request.fetch_cancel.session = s->handle;
    if (s->turn == TURN_FETCHING || s->turn == TURN_LOADING)
        s->cancel_sent = 1;
    else if (s->fetch_request)
        MARK(fetch_cancel_loses);
    else if (!chance(w, 30))
        return;
    TRACE("  daemon %u cancels the fetch of session %u\n", d, i);
    sim_ask(w, d, &ev, "cancel_answer");
    EXPECT(w->reply->err == TERN_OK, "cancel_refused", "err %u", w->reply->err);
}

void fetch_marks(struct sim *w, uint32_t d, const struct session *s, const struct reply *r,
                 uint32_t before)
{
    switch (r->err) {
    case TERN_OK:
        if (s->fetch_waited)
            MARK(fetch_awaited);
        if (r->fetch.lengths.committed > before)
            MARK(fetch_publishes);
        else
            MARK(fetch_nothing_there);
        break;
    case TERN_CORRUPT: MARK(fetch_corrupt_fatal); break;
    case TERN_PEER_LOST: MARK(fetch_peer_lost); break;
    case TERN_BUSY:
        if (r->text && strstr(r->text, "can never fit")) { /* QUOTA of records, see full_for_ever */
            EXPECT(!w->ample, "false_never", "%s", r->text);
            break;
        }
        EXPECT(r->fetch.retry_ms > 0, "busy_for_ever", "nobody says when to come back");
        check_busy_fetch(w, d, s, r);
        break;
    case TERN_TIMED_OUT:
        MARK(fetch_timed_out);
        for (uint32_t i = 0; i < PULLS * 2; i++)
            if (w->d[d].pull[i].used && w->d[d].pull[i].silent &&
                pull_id_equal(w->d[d].pull[i].id, s->fetch_pull))
                MARK(path_silent_times_out);
        if (s->fetch_at_least > r->fetch.lengths.written)
            MARK(fetch_fell_short);
        break;
    case TERN_QUOTA:
    case TERN_POOL_EXHAUSTED:
        EXPECT(r->err != TERN_QUOTA || r->shortage.needed > r->shortage.free, "false_never", "%s",
               r->text);
        MARK(fetch_exhausted);
        break;
    case TERN_GONE:
        if (s->cancel_sent)
            MARK(fetch_cancel_wins);
        break;
    default: break;
    }
}

/* Pages of its own behind the committed length, of chunks that another engine will publish. */
void fetch_owned(struct sim *w, uint32_t d, struct session *s, const struct reply *r)
{
    uint32_t from = r->fetch.lengths.committed, to = r->fetch.lengths.allocated;

    if (to > from)
        MARK(fetch_owns_unpublished);
    for (uint32_t i = 0; i < r->nruns; i++) {
        const struct table_run *run = &r->runs[i];
        uint32_t pt = w->page_tokens[d][run->group];

        if (run->group >= w->cfg.ngroups)
            continue; /* see take_state */
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
                g[n].sealed = 0; /* it is written again */
            }
            s->table[run->group][at].granule = (uint16_t)(g - w->d[d].granule[s->tenant]);
            s->table[run->group][at].gen = g->gen;
            check_page(w, d, s->tenant, s->table[run->group][at].granule, run->group, s->ns,
                       s->variant, at * pt, to - at * pt < pt ? to - at * pt : pt,
                       "fetch_wrong_bytes");
        }
    }
}

/* Takes the window of the new committed length, if all of it exists; own pages lie behind it. A
 * session that got HISTORY without the STATE to resume can only end. */
static void take_state(struct sim *w, uint32_t d, struct session *s, uint32_t before, uint32_t t,
                       uint32_t a, const struct table_run *runs, uint32_t nruns)
{
    bool whole = true;

    if (!w->cfg.nstate || a == before)
        return;
    for (STATE_GROUPS(w, g))
        if (!recurrent(w, g) && t > before &&
            !find_page(runs, nruns, g, t / w->page_tokens[d][g] - 1))
            whole = false;
    if (a > t || !whole) {
        s->lame = 1;
        return;
    }
    MARK(fetch_with_state);
    state_borrow(w, d, s, before, t, runs, nruns);
}

void fetch_take(struct sim *w, uint32_t d, struct session *s, const struct reply *r)
{
    const struct lengths *l = &r->fetch.lengths;
    uint32_t before = s->committed;

    if (s->fetch_tail) {
        fetch_tail_stays(w, s, r);
        return;
    }
    EXPECT(w->cfg.nstate || l->allocated >= s->fetch_wrote, "tail_for_less",
           "%u tokens came for %u", l->allocated, s->fetch_wrote);
    EXPECT(l->committed >= before && l->allocated <= s->ntokens && l->committed <= l->allocated &&
               l->written == l->allocated && l->committed % w->L == 0 && l->allocated % w->L == 0,
           "fetch_lengths", "committed %u written %u allocated %u, T was %u, of %u tokens",
           l->committed, l->written, l->allocated, before, s->ntokens);
    for (uint32_t k = before / w->L + 1; k * w->L <= l->committed; k++)
        if (chunk_at(w, d, s->pool, s->space, s->variant, k)->present)
            MARK(fetch_adopts_existing);
    take_borrowed(w, d, s, before, l->committed, l->allocated, r->runs, r->nruns);
    take_state(w, d, s, before, l->committed, l->allocated, r->runs, r->nruns);
    fetch_owned(w, d, s, r);
    if (l->committed - before >= LONG_CHUNKS / 2 * w->L)
        MARK(fetch_long);
    if (l->committed - before >= LONG_CHUNKS / 2 * w->L && w->cfg.offer_pages)
        MARK(fetch_long_in_pieces);
    if (l->committed > before)
        state_fetched(w, d, s, l->committed / w->L);
    s->committed = l->committed;
    s->written = s->allocated = s->filled = l->allocated;
}

/* A fetch that broke off released chunks whose STATE never arrived, and so may one that found other
 * sessions' chunks in their place. If the token store has no room for their tokens, the session's
 * list ends at its committed length; the answer to its next request shows that. */
static void list_cut(struct sim *w, uint32_t d, struct session *s)
{
    uint32_t had = s->ntokens;
    struct session_view v;

    EXPECT(core_session_view(w->d[d].core, s->id.slot, &v), "view_session", "slot %u", s->id.slot);
    if (v.tokens == had)
        return;
    EXPECT(v.tokens >= s->committed && v.tokens < had && v.tokens % w->L == 0, "fetch_tokens",
           "%u tokens of %u, committed %u", v.tokens, had, s->committed);
    s->ntokens = v.tokens;
    follow_cut(w, d, s, v.tokens);
    if (s->finished > s->ntokens)
        s->finished = s->ntokens;
    check_store_full(w, d, s, had);
}

/* T22: transfers in are those of sessions that fetch, and those that are not quiet yet. */
void check_pulls_full(struct sim *w, uint32_t d, uint32_t tenant)
{
    const struct daemon *m = &w->d[d];
    uint32_t used[TENANTS] = {0};

    for (uint32_t set = sessions_live(m, 1u << TURN_FETCHING, ENGINES_ALL); set;) {
        const struct session *s = &m->session[session_next(&set, 0)];

        used[s->tenant] += !s->fetch_host;
    }
    for (uint32_t i = 0; i < PULLS * 2; i++)
        for (uint32_t t = 0; t < TENANTS && m->pull[i].used && m->pull[i].stopping; t++)
            used[t] += m->pull[i].tenant == t || m->pull[i].tenant == TENANTS;
    /* With the disk as a second source there are more holders than records: none is reserved. */
    EXPECT(disk_is_on(w, d) ? used[0] + used[1] >= w->cfg.lim_pulls
                            : share_used_up(w, w->cfg.lim_pulls, used, tenant),
           "fetch_share", "tenant %u is refused a fetch, %u and %u of %u are in use", tenant,
           used[0], used[1], w->cfg.lim_pulls);
}

/* A fetch ended before its peer was asked. */
static void fetch_refused(struct sim *w, uint32_t d, struct session *s, const struct reply *r)
{
    bool idle = s->fetch_before == TURN_NEW || (s->fetch_tail && state_needs_own(w, d, s));

    s->turn = s->fetch_before;
    if (s->fetch_tail)
        fetch_tail_stays(w, s, r);
    switch (r->err) {
    case TERN_INVALID: /* the model does not know the STATE that a lame session owns */
        EXPECT(idle || s->lame || s->fetch_bad_peer || s->fetch_at_least > fetch_whole(w, s),
               "fetch_invalid", "%s", r->text);
        return;
    case TERN_PEER_LOST:
        EXPECT(!w->link[d].up[0], "fetch_peer", "%s", r->text);
        MARK(fetch_peer_lost);
        return;
    case TERN_BUSY: check_busy_fetch(w, d, s, r); return;
    case TERN_GONE:
        EXPECT(s->cancel_sent ||
                   (s->fetch_at_least > s->written && !space_current(w, d, s->tenant, s->space)),
               "fetch_gone", "%s", r->text);
        return;
    case TERN_OK:
        EXPECT(s->turn != TURN_NEW && r->nruns == 0 && s->fetch_at_least <= s->written &&
                   r->fetch.lengths.committed == s->committed,
               "fetch_at_once", "committed %u", s->committed);
        return;
    default: violation(w, "fetch_refused", "err %u %s", r->err, r->text);
    }
}

/* A fetch from the daemon's own host tier, whose bytes are checked as for any match. */
static void fetched_from_host(struct sim *w, uint32_t d, struct session *s, const struct reply *r)
{
    const struct lengths *l = &r->fetch.lengths;
    bool idle = s->fetch_before == TURN_NEW || s->fetch_before == TURN_AWAY ||
                (s->fetch_tail && state_needs_own(w, d, s));

    s->turn = s->fetch_before;
    switch (r->err) {
    case TERN_OK: break;
    case TERN_INVALID:
        EXPECT(idle || s->lame || s->fetch_at_least > s->written, "host_fetch_invalid", "%s",
               r->text);
        return;
    case TERN_UNSUPPORTED:
        EXPECT(!w->d[d].pool[s->pool].hgranules, "host_fetch_unsupported", "%s", r->text);
        return;
    case TERN_GONE: EXPECT(s->cancel_sent, "host_fetch_gone", "%s", r->text); return;
    case TERN_QUOTA:
    case TERN_POOL_EXHAUSTED:
        EXPECT(r->err != TERN_QUOTA || r->shortage.needed > r->shortage.free, "false_never", "%s",
               r->text);
        MARK(host_fetch_no_room);
        return;
    case TERN_CORRUPT: EXPECT(w->d[d].spoilt, "host_fetch_corrupt", "%s", r->text); return;
    case TERN_BUSY: check_busy_fetch(w, d, s, r); return;
    default: violation(w, "host_fetch_refused", "err %u %s", r->err, r->text);
    }
    if (s->fetch_tail) {
        EXPECT(s->fetch_at_least <= s->written, "host_fetch_short", "written %u", s->written);
        fetch_tail_stays(w, s, r);
        return;
    }
    EXPECT(s->fetch_before != TURN_NEW && s->fetch_before != TURN_AWAY, "host_fetch_taken",
           "committed %u allocated %u", s->committed, s->allocated);
    EXPECT(l->committed >= s->committed && l->committed <= s->ntokens &&
               l->committed >= s->fetch_at_least && r->fetch.tokens == s->ntokens &&
               l->written == l->committed && l->allocated == l->committed &&
               l->committed % w->L == 0,
           "host_fetch_lengths", "committed %u written %u allocated %u, T was %u", l->committed,
           l->written, l->allocated, s->committed);
    if (l->committed == s->committed)
        return;
    s->turn = TURN_OPEN;
    check_host_depth(w, d, s->pool, s->space, s->variant, s->fetch_depth, s->committed,
                     l->committed);
    fetch_take(w, d, s, r);
    MARK(host_fetch);
}

/* A fetch from the daemon's own disk: as from a peer, but the answer may come at once. */
static void fetched_from_disk(struct sim *w, uint32_t d, struct session *s, const struct reply *r)
{
    bool refused = r->err == TERN_INVALID || r->err == TERN_UNSUPPORTED ||
                   (r->err == TERN_BUSY && !busy_of_pull(r)) ||
                   (r->err == TERN_OK && r->fetch.lengths.committed == s->committed &&
                    r->fetch.lengths.allocated == s->allocated);

    s->turn = refused ? s->fetch_before : TURN_OPEN;
    check_disk_fetch(w, d, s, r);
    EXPECT(r->err != TERN_OK || r->fetch.lengths.written >= s->fetch_at_least, "fetch_at_least",
           "written %u, at least %u was to come", r->fetch.lengths.written, s->fetch_at_least);
    if (refused && s->fetch_tail)
        fetch_tail_stays(w, s, r);
    if (refused)
        return;
    fetch_take(w, d, s, r);
    fetch_ended(w, d, s, r);
}

void fetch_ended(struct sim *w, uint32_t d, struct session *s, const struct reply *r)
{
    fetch_waits_kept(w, d, s);
    if (w->cfg.nstate)
        list_cut(w, d, s);
    EXPECT(r->fetch.tokens == s->ntokens, "fetch_tokens_told", "%u of %u", r->fetch.tokens,
           s->ntokens);
    session_unfetch(w, d, s);
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
    TRACE("  fetch of session %u answered: err %u committed %u written %u allocated %u %s\n",
          (unsigned)(s - m->session), r->err, r->fetch.lengths.committed, r->fetch.lengths.written,
          r->fetch.lengths.allocated, r->text);
    fetch_waits_end(w, d, s, r);
    if (session_ends(w, d, s)) { /* closed or aborted during the transfer */
        EXPECT(r->err != TERN_OK, "fetch_of_closed", "err %u", r->err);
        s->turn = TURN_OPEN;
        s->untold = s->live;
        if (s->fetch_host)
            MARK(load_aborted);
        else if (s->live)
            session_unfetch(w, d, s);
        return;
    }
    if (ticket_fetched(w, d, s, r))
        return;
    if (s->fetch_host && !s->fetch_bad_peer) {
        fetched_from_host(w, d, s, r);
        return;
    }
    if (s->fetch_disk && !s->fetch_bad_peer) {
        fetched_from_disk(w, d, s, r);
        return;
    }
    if (s->fetch_pull.slot == NONE && !s->fetch_asked) {
        fetch_refused(w, d, s, r);
        return;
    }
    s->turn = TURN_OPEN;
    EXPECT(r->err != TERN_OK || r->fetch.lengths.written >= s->fetch_at_least, "fetch_at_least",
           "written %u, at least %u was to come", r->fetch.lengths.written, s->fetch_at_least);
    fetch_marks(w, d, s, r, s->committed);
    if (s->fetch_any && r->fetch.lengths.committed > s->committed)
        MARK(fetch_of_any_peer);
    fetch_take(w, d, s, r);
    fetch_ended(w, d, s, r);
}
