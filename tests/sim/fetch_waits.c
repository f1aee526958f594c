/* The answers to FetchWait about a fetch under way (Y4, Y5): the length that has arrived, and the
 * pages of the rest. The bytes up to each length in an answer are checked at once. */
#include "disk.h"
#include "tickets.h"

static struct fwait *wait_of(struct sim *w, uint32_t d, const struct session *s)
{
    return &w->tickets[d]->wait[s - w->d[d].session];
}

typedef struct page_ref coming[TABLE];

/* Indexed by group. */
static coming *coming_of(struct sim *w, uint32_t d, const struct session *s)
{
    return w->tickets[d]->coming[s - w->d[d].session];
}

void fetch_waits_clear(struct sim *w, uint32_t d, uint32_t i)
{
    memset(&w->tickets[d]->wait[i], 0, sizeof w->tickets[d]->wait[i]);
}

void fetch_waits_conn_left(struct sim *w, uint32_t d, uint32_t conn)
{
    for (uint32_t i = 0; i < SESSIONS && w->cfg.early; i++) {
        struct fwait *f = &w->tickets[d]->wait[i];

        if (f->conn == conn)
            f->request = f->replaced = 0;
    }
}

void ask_fetch_wait(struct sim *w, uint32_t d, uint32_t i, bool pages)
{
    const struct session *s = &w->d[d].session[i];
    uint32_t conn = engine_conn(w, d, s->engine);
    struct fwait *f = wait_of(w, d, s);
    struct event ev;

    if (!s->live || s->fetch_host || s->fetch_disk || s->deaf || conn == NO ||
        w->d[d].engine[s->engine].dying || (pages && f->request))
        return;          /* such an answer could belong to either request */
    give_back_all(w, d); /* the fetch may end in that */
    request_init(w, d, &ev, OP_FETCH_WAIT, conn);
    ev.request.fetch_wait =
        (struct req_fetch_wait){.session = s->handle,
                                .above = chance(w, 70) ? f->told : pick(w, s->ntokens + 2),
                                .pages = pages};
    TRACE("  daemon %u asks for %s of session %u, above %u\n", d, pages ? "the pages" : "the depth",
          i, ev.request.fetch_wait.above);
    f->replaced = f->request;
    f->pages = pages;
    f->request = ev.request.request_id;
    f->above = ev.request.fetch_wait.above;
    f->conn = conn;
    sim_step(w, d, &ev);
    EXPECT(!pages || f->request == 0, "fetch_wait_pages", "nothing is said of the pages");
    EXPECT(!f->replaced, "fetch_wait_two", "two requests wait for one fetch");
}

/* --- the answers --- */

static void check_page_told(struct sim *w, uint32_t d, const struct session *s, uint32_t g,
                            uint32_t at, uint32_t n, const struct page_ref *ref)
{
    const struct granule *p = page_granule(w, d, s->pool, g, ref->index);
    uint32_t granule = (uint32_t)(p - w->d[d].granule[s->tenant]);

    EXPECT(
        p->gen == ref->gen && !p->writers &&
            (p->own == OWN_CHUNK || (p->verified && (p->own == OWN_PULL || p->own == OWN_ORPHAN))),
        "told_unverified", "group %u page %u (index %u) is of kind %u, verified %u, writers %u", g,
        at, ref->index, p->own, p->verified, p->writers);
    if (p->own == OWN_CHUNK && !chunk_visible(w, d, &w->d[d].chunk[p->pool][p->chunk]))
        return; /* of the same engine: the step that writes it is under way */
    check_page(w, d, s->tenant, granule, g, s->ns, s->variant, at * w->page_tokens[d][g], n,
               "told_wrong_bytes");
}

/* The pages of a chunk that an answer has named do not change. */
static void check_chunks_told(struct sim *w, uint32_t d, const struct session *s, struct fwait *f,
                              const struct reply *r)
{
    for (uint32_t k = 1; k * w->L <= r->fetch_wait.lengths.committed && k < CHUNKS; k++) {
        const struct page_ref *ref =
            find_page(r->runs, r->nruns, 0, (k - 1) * (w->L / w->page_tokens[d][0]));

        if (!ref)
            continue;
        EXPECT(f->gen[k] == 0 || f->gen[k] == ref->gen, "told_other_page",
               "session %u.%u depth %u: other pages than were told before", s->id.slot, s->id.gen,
               k * w->L);
        f->gen[k] = ref->gen;
    }
}

/* At most what the source has named, or what existed here before. */
static void check_depth_told(struct sim *w, uint32_t d, const struct session *s,
                             const struct lengths *l)
{
    const struct asked *a = s->fetch_pull.slot == NONE ? NULL : ticket_asked(w, d, s->fetch_pull);
    uint32_t most = s->fetch_wrote;

    if (!a || !a->follow)
        return;
    if (a->led.history > most)
        most = a->led.history;
    if (a->delivered > most)
        most = a->delivered;
    EXPECT(l->written <= most && l->written <= s->ntokens, "told_beyond",
           "session %u.%u: %u tokens are told, the source has named %u", s->id.slot, s->id.gen,
           l->written, a->delivered);
    MARK(follow_told);
}

static void told(struct sim *w, uint32_t d, const struct session *s, struct fwait *f,
                 const struct reply *r)
{
    const struct lengths *l = &r->fetch_wait.lengths;
    uint32_t from = f->above > s->committed ? f->above : s->committed;

    EXPECT(l->written > f->above && l->written >= f->told, "told_less",
           "%u tokens: above %u was asked for, %u were told", l->written, f->above, f->told);
    if (s->fetch_tail) { /* no page has replaced the tail yet */
        EXPECT(r->nruns == 0, "told_with_tail", "%u runs", r->nruns);
        return;
    }
    EXPECT(l->committed <= l->written && l->written == l->allocated &&
               r->fetch_wait.arriving <= s->ntokens,
           "told_lengths", "committed %u written %u allocated %u, %u arrive", l->committed,
           l->written, l->allocated, r->fetch_wait.arriving);
    check_depth_told(w, d, s, l);
    for (uint32_t g = 0; g < w->cfg.ngroups; g++)
        for (uint32_t pt = w->page_tokens[d][g], at = from / pt; at * pt < l->written; at++) {
            const struct page_ref *ref = find_page(r->runs, r->nruns, g, at);

            EXPECT(ref, "told_incomplete", "group %u: page %u of [%u, %u) is missing", g, at, from,
                   l->written);
            check_page_told(w, d, s, g, at, l->written - at * pt < pt ? l->written - at * pt : pt,
                            ref);
        }
    if (w->cfg.nstate == 0)
        check_chunks_told(w, d, s, f, r);
    f->told = l->written;
    MARK(fetch_told);
}

static void told_pages(struct sim *w, uint32_t d, const struct session *s, struct fwait *f,
                       const struct reply *r)
{
    for (uint32_t i = 0; i < r->nruns; i++) {
        const struct table_run *run = &r->runs[i];
        uint32_t pt = w->page_tokens[d][run->group];

        EXPECT(run->group < w->ngroups &&
                   (run->first + run->n - 1) * pt < r->fetch_wait.arriving + pt,
               "pages_told", "group %u pages %u + %u, %u tokens arrive", run->group, run->first,
               run->n, r->fetch_wait.arriving);
        if (f->ncoming[run->group] == 0)
            memset(coming_of(w, d, s)[run->group], 0, sizeof coming_of(w, d, s)[run->group]);
        for (uint32_t k = 0; k < run->n && run->first + k < TABLE; k++) {
            const struct granule *p = page_granule(w, d, s->pool, run->group, run->refs[k].index);
            const uint32_t at = (run->first + k) * pt, end = r->fetch_wait.lengths.written;
            const bool state = run->group >= w->cfg.ngroups;

            if (!state && !s->fetch_tail && at < end) /* it has arrived */
                check_page_told(w, d, s, run->group, run->first + k, end - at < pt ? end - at : pt,
                                &run->refs[k]);
            else
                EXPECT(p->own != OWN_SESSION && p->own != OWN_LEASE &&
                           (!p->borrows || (state && p->own == OWN_STATE)),
                       "pages_told_twice", "group %u page %u: granule of kind %u", run->group,
                       run->first + k, p->own);
            coming_of(w, d, s)[run->group][run->first + k] = run->refs[k];
        }
        if (run->first + run->n > f->ncoming[run->group])
            f->ncoming[run->group] = run->first + run->n;
    }
    MARK(fetch_pages_told);
}

/* The fetch has ended and is answered next, or there is none. */
static void told_end(struct sim *w, uint32_t d, const struct session *s, struct fwait *f,
                     const struct reply *r)
{
    (void)d;
    EXPECT(r->nruns == 0, "told_at_end", "%u runs", r->nruns);
    if (s->turn != TURN_FETCHING)
        return;
    f->ended = 1;
    f->last = r->fetch_wait.lengths;
    MARK(fetch_wait_ended);
}

static struct session *waiting(struct sim *w, uint32_t d, uint64_t request)
{
    for (uint32_t i = 0; i < SESSIONS; i++)
        if (w->tickets[d]->wait[i].request == request || w->tickets[d]->wait[i].replaced == request)
            return &w->d[d].session[i];
    return NULL;
}

void fetch_wait_answered(struct sim *w, uint32_t d, const struct reply *r)
{
    struct session *s = waiting(w, d, r->request_id);
    struct fwait *f;

    EXPECT(s, "fetch_wait_twice", "an answer to wait %llu, which is not under way",
           (unsigned long long)r->request_id);
    f = wait_of(w, d, s);
    TRACE(
        "  wait for the fetch of session %u answered: err %u committed %u written %u, %u arrive\n",
        (unsigned)(s - w->d[d].session), r->err, r->fetch_wait.lengths.committed,
        r->fetch_wait.lengths.written, r->fetch_wait.arriving);
    if (r->err == TERN_CONFLICT) {
        EXPECT(f->replaced == r->request_id, "fetch_wait_conflict", "no later wait took its place");
        f->replaced = 0;
        MARK(fetch_wait_replaced);
        return;
    }
    EXPECT(f->request == r->request_id, "fetch_wait_order", "a wait that was replaced is answered");
    f->request = 0;
    if (r->err == TERN_GONE) {
        EXPECT(!s->live || s->ending || w->d[d].engine[s->engine].dying, "fetch_wait_gone", "%s",
               r->text);
        MARK(fetch_wait_gone);
        return;
    }
    EXPECT(r->err == TERN_OK || (r->err == TERN_INVALID && s->turn != TURN_FETCHING),
           "fetch_wait_refused", "err %u %s", r->err, r->text);
    if (r->err != TERN_OK)
        MARK(fetch_wait_for_none);
    else if (r->fetch_wait.arriving == 0)
        told_end(w, d, s, f, r);
    else if (f->pages)
        told_pages(w, d, s, f, r);
    else
        told(w, d, s, f, r);
}

/* --- the outcome --- */

void fetch_waits_page(struct sim *w, uint32_t d, struct pull_id pull, uint32_t group,
                      struct page_ref ref)
{
    for (uint32_t i = 0; i < SESSIONS && w->cfg.early; i++) {
        const struct session *s = &w->d[d].session[i];
        const struct fwait *f = &w->tickets[d]->wait[i];
        bool known = f->ncoming[group] == 0;

        if (!s->live || s->turn != TURN_FETCHING || !pull_id_equal(s->fetch_pull, pull))
            continue;
        for (uint32_t k = 0; k < f->ncoming[group] && !known; k++)
            known = coming_of(w, d, s)[group][k].index == ref.index &&
                    coming_of(w, d, s)[group][k].gen == ref.gen;
        EXPECT(known, "page_untold", "session %u.%u group %u index %u: not among the pages told",
               s->id.slot, s->id.gen, group, ref.index);
    }
}

void fetch_waits_end(struct sim *w, uint32_t d, const struct session *s, const struct reply *r)
{
    const struct fwait *f = wait_of(w, d, s);
    const struct lengths *l = &r->fetch.lengths;

    if (!w->cfg.early)
        return;
    EXPECT(f->request == 0 || !s->live || s->ending, "fetch_wait_forgotten",
           "the fetch of session %u.%u is answered, who waits for it is not", s->id.slot,
           s->id.gen);
    EXPECT(!f->ended || memcmp(&f->last, l, sizeof *l) == 0, "fetch_wait_lengths",
           "committed %u written %u, who waited was told %u and %u", l->committed, l->written,
           f->last.committed, f->last.written);
    EXPECT(w->cfg.nstate || s->ending || !s->live || l->written >= f->told, "told_lost",
           "%u tokens were told, %u are left", f->told, l->written);
}

void fetch_waits_kept(struct sim *w, uint32_t d, const struct session *s)
{
    const struct fwait *f = wait_of(w, d, s);

    for (uint32_t k = 1; w->cfg.early && k < CHUNKS && k * w->L <= s->committed; k++)
        EXPECT(f->gen[k] == 0 ||
                   f->gen[k] == s->table[0][(k - 1) * (w->L / w->page_tokens[d][0])].gen,
               "told_other_page", "session %u.%u depth %u: not the pages that were told",
               s->id.slot, s->id.gen, k * w->L);
}
