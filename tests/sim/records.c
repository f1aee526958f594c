/* Turn records (M1 to M4, M8 to M11). Turns in flight prepare records in pages of a simulated
 * record memory, write them, put them, roll back and read. The model keeps by itself the records of
 * each session, the dropped blobs, and the owner of each page, and compares the core's answers and
 * the places of records with these.
 *
 * Every `scale`-th id of a token list is simulated, so that lists are as long as those of the
 * sessions (scale 1), or take several pages (scale 256). The first word of each page of a blob
 * names its owner. The engine's lists are words of the history's own sequences. The outcome of a
 * record that was put is in record_checks.c. */
#include "recs.h"

#include <stdlib.h>

#include "base/check.h"

void records_create(struct sim *w)
{
    for (uint32_t d = 0; d < DAEMONS; d++) {
        w->recs[d] = calloc(1, sizeof *w->recs[d]);
        check(w->recs[d] != NULL);
    }
}

void records_destroy(struct sim *w)
{
    for (uint32_t d = 0; d < DAEMONS; d++)
        free(w->recs[d]);
}

void records_clear(struct sim *w, uint32_t d)
{
    struct recs *m = w->recs[d];

    m->njobs = 0;
    m->last = (struct record_id){0, 0};
    for (uint32_t i = 0; i < REC_SLOTS; i++)
        m->rec[i].state = REC_FREE;
    memset(m->of, 0, sizeof m->of);
    memset(m->owner, 0, sizeof m->owner);
}

/* --- pages --- */

/* The i-th page of a section. */
static uint32_t page_of(const struct record_section *s, uint32_t i)
{
    for (uint32_t run = 0; run < s->nruns; run++) {
        if (i < s->run[run].n)
            return s->run[run].first + i;
        i -= s->run[run].n;
    }
    return NONE;
}

uint32_t *rec_word(struct sim *w, uint32_t d, const struct rec *r, const struct record_section *s,
                   uint32_t word)
{
    uint64_t byte = 4ull * word * r->scale;
    uint32_t page = page_of(s, (uint32_t)(byte / RECORD_PAGE_BYTES));

    EXPECT(page < REC_PAGES, "sim_record", "word %u of a section of %llu bytes", word,
           (unsigned long long)s->bytes);
    return &w->recs[d]->page[r->tenant][page][byte % RECORD_PAGE_BYTES / 4 / r->scale];
}

/* T1, P2: the core allocates these pages. */
static void section_handed_out(struct sim *w, uint32_t d, const struct rec *r,
                               const struct record_section *s, uint64_t bytes)
{
    struct recs *m = w->recs[d];
    uint32_t n = 0;

    EXPECT(s->bytes == bytes && s->nruns <= RECORD_RUNS_MAX, "record_section",
           "%llu bytes in %u runs, not %llu bytes", (unsigned long long)s->bytes, s->nruns,
           (unsigned long long)bytes);
    for (uint32_t i = 0; i < s->nruns; i++)
        for (uint32_t k = 0; k < s->run[i].n; k++, n++) {
            uint32_t page = s->run[i].first + k;

            EXPECT(page < w->cfg.records, "record_page_range", "page %u of %u", page,
                   w->cfg.records);
            EXPECT(m->owner[r->tenant][page] == 0, "record_page_used",
                   "page %u of tenant %u is handed out, but record %u has it, in state %u", page,
                   r->tenant, m->owner[r->tenant][page] - 1u,
                   m->rec[m->owner[r->tenant][page] - 1u].state);
            m->owner[r->tenant][page] = (uint8_t)(1 + (r - m->rec));
        }
    EXPECT(n == section_pages(s), "record_section", "%u pages for %llu bytes", n,
           (unsigned long long)bytes);
    if (s->nruns > 1)
        MARK(record_in_runs);
}

void rec_section_freed(struct sim *w, uint32_t d, const struct rec *r,
                       const struct record_section *s)
{
    for (uint32_t i = 0; i < section_pages(s); i++)
        w->recs[d]->owner[r->tenant][page_of(s, i)] = 0;
}

void rec_free(struct sim *w, uint32_t d, struct rec *r)
{
    uint8_t *owner = w->recs[d]->owner[r->tenant];

    for (uint32_t i = 0; i < REC_PAGES; i++)
        owner[i] = owner[i] == 1 + (r - w->recs[d]->rec) ? 0 : owner[i];
    r->state = REC_FREE;
}

void rec_hold(struct sim *w, struct rec *r)
{
    r->state = REC_HELD;
    r->session = NO;
    MARK(record_held);
}

void records_check(struct sim *w, uint32_t d)
{
    const struct recs *m = w->recs[d];
    struct records_view v;

    if (core_deadline(w->d[d].core) <= w->now)
        return; /* a release may be under way */
    for (uint32_t t = 0; t < w->cfg.tenants; t++) {
        uint32_t used = 0, held = 0, n = 0;

        for (uint32_t i = 0; i < REC_PAGES; i++) {
            used += m->owner[t][i] != 0;
            held += m->owner[t][i] != 0 && m->rec[m->owner[t][i] - 1].state == REC_HELD;
        }
        for (uint32_t i = 0; i < REC_SLOTS; i++)
            n += m->rec[i].state != REC_FREE && m->rec[i].tenant == t;
        v = core_tenant_view(w->d[d].core, t).records;
        EXPECT(v.total == w->cfg.records && v.used == used && v.held == held && v.records == n,
               "record_pages",
               "tenant %u: %u records in %u of %u pages, %u held; the model has %u in %u, %u held",
               t, v.records, v.used, v.total, v.held, n, used, held);
    }
}

/* --- ends --- */

void records_turn_over(struct sim *w, uint32_t d, const struct session *s, bool ended)
{
    struct rec_session *of = recs_of(w, d, s);
    struct rec *r = of->prepared == NO ? NULL : &w->recs[d]->rec[of->prepared];

    if (!w->cfg.records)
        return;
    if (!ended && of->lent && of->n > 0)
        of->exposed = last_of(w->recs[d], of)->body.length;
    of->lent = 0;
    of->prepared = NO;
    if (!r)
        return;
    if (r->state == REC_CHECKING)
        r->state = REC_LEAVING;
    else if (ended)
        rec_free(w, d, r);
    else
        rec_hold(w, r);
}

void records_session_over(struct sim *w, uint32_t d, const struct session *s)
{
    struct rec_session *of = recs_of(w, d, s);

    if (!w->cfg.records)
        return;
    records_turn_over(w, d, s, true);
    for (; of->n > 0; of->n--) {
        struct rec *r = &w->recs[d]->rec[of->list[of->n - 1]];

        if (is_exposed(of, r))
            rec_hold(w, r);
        else
            rec_free(w, d, r);
    }
}

/* Called after the engine's sessions have ended. */
void records_engine_gone(struct sim *w, uint32_t d, uint32_t e)
{
    struct recs *m = w->recs[d];

    for (uint32_t i = 0; i < REC_SLOTS && w->cfg.records; i++)
        if (m->rec[i].state == REC_HELD && m->rec[i].engine == e) {
            rec_free(w, d, &m->rec[i]);
            MARK(record_let_go);
        }
}

void records_conn_closed(struct sim *w, uint32_t d, uint32_t conn)
{
    for (uint32_t i = 0; i < w->recs[d]->njobs; i++)
        if (w->recs[d]->job[i].conn == conn)
            w->recs[d]->job[i].conn = NO;
}

/* The writer of the record does not know that its turn is over. */
void records_write_late(struct sim *w, uint32_t d)
{
    struct recs *m = w->recs[d];

    for (uint32_t i = 0; i < REC_SLOTS; i++) {
        struct rec *r = &m->rec[i];

        if (r->state != REC_HELD || !r->written_late || chance(w, 50))
            continue;
        for (uint32_t p = 0; p < REC_PAGES; p++)
            if (m->owner[r->tenant][p] == 1 + i)
                for (uint32_t k = 0; k < REC_WORDS; k += 1 + pick(w, 40))
                    m->page[r->tenant][p][k] = REC_JUNK;
        MARK(record_written_late);
    }
}

/* --- sessions --- */

bool records_open(struct sim *w, uint32_t d, uint32_t s, struct req_session_open *open)
{
    struct rec_session *of = &w->recs[d]->of[s];

    if (!w->cfg.records)
        return true;
    *of = (struct rec_session){.prepared = NO, .scale = chance(w, 70) ? 1 : 256};
    if (chance(w, 20)) {
        open->merging = true;
        open->blobs_kept = chance(w, 4) ? 1 + pick(w, 3) : 0;
        return open->blobs_kept == 0;
    }
    open->blobs_kept = chance(w, 2) ? BLOBS_KEPT_MAX + 1 : pick(w, 4);
    of->kept = open->blobs_kept ? open->blobs_kept : 2;
    return open->blobs_kept <= BLOBS_KEPT_MAX;
}

/* --- writing --- */

static uint32_t logprob_of(const struct rec *r, uint32_t i)
{
    return 0xbf800000u + (r->uid * 31 + i) % 4096;
}

static uint32_t stamp_of(const struct rec *r, uint32_t blob, uint32_t page)
{
    return r->uid * 0x9e3779b1u ^ blob << 8 ^ page;
}

/* Writes the record as the engine means it. */
static void rec_write(struct sim *w, uint32_t d, struct rec *r)
{
    const struct record_body *b = &r->body;
    uint32_t before = r->kind == RECORD_APPEND ? r->from : r->n;

    for (uint32_t i = 0; i < r->n; i++)
        *(i < before ? rec_word(w, d, r, &b->before, i) : rec_word(w, d, r, &b->own, i - before)) =
            r->words[i];
    for (uint32_t i = 0; i < b->logprobs / r->scale; i++)
        *rec_word(w, d, r, &b->own, r->n - before + i) =
            r->bad == BAD_LOGPROB && i == r->bad_at ? (chance(w, 50) ? 0x7fc00000u : 0xff800000u)
                                                    : logprob_of(r, i);
    for (uint32_t k = 0; k < b->nblobs; k++)
        for (uint32_t i = 0; i < section_pages(&b->blob[k].at); i++)
            w->recs[d]->page[r->tenant][page_of(&b->blob[k].at, i)][0] = stamp_of(r, k, i);
}

/* Most often tokens that continue the session's list; some are from another conversation, and some
 * are no tokens at all. */
static void rec_words(struct sim *w, const struct rec *last, uint32_t variant, struct rec *r)
{
    uint32_t logprobs = r->body.logprobs / r->scale;

    if (chance(w, 15))
        variant = pick(w, w->cfg.variants);
    memcpy(r->words, w->tokens[variant], r->n * sizeof r->words[0]);
    if (last && chance(w, 60))
        memcpy(r->words, last->words, (last->n < r->n ? last->n : r->n) * sizeof r->words[0]);
    r->bad = BAD_NO;
    if (r->n == 0 || !chance(w, 15))
        return;
    r->bad_at = pick(w, r->n);
    r->bad = (uint8_t)(BAD_TOKEN + pick(w, 3));
    if (r->bad == BAD_TOKEN)
        r->words[r->bad_at] = REC_END + pick(w, 2) * 5;
    if (r->bad == BAD_PREFIX)
        r->words[r->bad_at] += 7000;
    if (r->bad == BAD_LOGPROB && logprobs == 0)
        r->bad = BAD_NO;
    else if (r->bad == BAD_LOGPROB)
        r->bad_at %= logprobs;
}

/* --- preparing --- */

static void blobs_choose(struct sim *w, struct req_blobs *b)
{
    b->n = chance(w, 75) ? pick(w, 2) : pick(w, RECORD_BLOBS_MAX + 1);
    for (uint32_t i = 0; i < b->n; i++) {
        b->v[i].name[0] = 'b';
        b->v[i].name[1] = (char)('0' + i);
        b->v[i].bytes = chance(w, 60) ? 1 + pick(w, 20000) : RECORD_PAGE_BYTES * (1 + pick(w, 5));
    }
}

/* Makes the request malformed in one of the possible ways. Returns false if none applied. */
static bool spoil(struct sim *w, struct req_record_prepare *p)
{
    if (p->kind == RECORD_ROLLBACK) {
        p->logprobs = 1;
        return true;
    }
    switch (pick(w, 3)) {
    case 0: p->logprobs = p->length + 1; return true;
    case 1:
        if (p->blobs.n)
            p->blobs.v[0].bytes = 0;
        return p->blobs.n > 0;
    default:
        if (p->blobs.n > 1)
            p->blobs.v[1] = p->blobs.v[0];
        return p->blobs.n > 1;
    }
}

static enum tern_err prepare_choose(struct sim *w, uint32_t d, const struct session *s,
                                    struct req_record_prepare *p)
{
    const struct rec_session *of = recs_of(w, d, s);
    uint32_t from = recorded(w->recs[d], of), to = from + 1 + pick(w, 12), most = w->span;

    *p = (struct req_record_prepare){.session = s->handle};
    if (chance(w, of->n > 1 ? 35 : 10)) {
        p->kind = RECORD_ROLLBACK;
        p->length = chance(w, 15) ? 0 : 1 + pick(w, from + 8 < most ? from + 8 : most);
        if (of->n > 0 && chance(w, 40)) /* repeats one of the last turns */
            p->length = w->recs[d]->rec[of->list[of->n - 1 - pick(w, of->n < 4 ? of->n : 4)]].n;
        p->length *= of->scale;
        return chance(w, 4) && spoil(w, p) ? TERN_MALFORMED : TERN_OK;
    }
    to = to < most ? to : most;
    if (chance(w, 4) || to <= from)
        to = pick(w, from + 1);
    p->length = to * of->scale;
    if (to > from && chance(w, 75))
        p->logprobs = (to - from) * of->scale;
    blobs_choose(w, &p->blobs);
    if (to <= from)
        return TERN_CONFLICT;
    return chance(w, 4) && spoil(w, p) ? TERN_MALFORMED : TERN_OK;
}

/* M11, T22: there is no room for the record itself, or for its pages. */
static void prepare_refused(struct sim *w, uint32_t d, const struct session *s, uint32_t pages)
{
    const struct recs *m = w->recs[d];
    uint32_t used[TENANTS] = {0}, free = 0, runs = 0;

    for (uint32_t i = 0; i < REC_SLOTS; i++)
        used[m->rec[i].tenant] += m->rec[i].state != REC_FREE;
    for (uint32_t i = 0; i < w->cfg.records; i++) {
        free += m->owner[s->tenant][i] == 0;
        runs += m->owner[s->tenant][i] == 0 && (i == 0 || m->owner[s->tenant][i - 1] != 0);
    }
    if (w->reply->err == TERN_BUSY) {
        EXPECT(share_used_up(w, w->limits.turn_records, used, s->tenant), "record_share",
               "tenant %u has %u of %u records", s->tenant, used[s->tenant],
               w->limits.turn_records);
        MARK(record_share_full);
        return;
    }
    /* The last search may have ended within a run of free pages, which splits the run in two. */
    EXPECT(w->reply->err == TERN_QUOTA && (pages > free || runs + 1 > RECORD_RUNS_MAX),
           "record_refused", "err %u %s: %u pages of %u that are free in %u runs", w->reply->err,
           w->reply->text, pages, free, runs);
    MARK(record_no_room);
}

static uint32_t pages_for(uint64_t bytes)
{
    return (uint32_t)((bytes + RECORD_PAGE_BYTES - 1) / RECORD_PAGE_BYTES);
}

static uint32_t prepare_pages(const struct req_record_prepare *p, uint32_t from)
{
    bool append = p->kind == RECORD_APPEND;
    uint32_t n = pages_for(4ull * (append ? from : p->length)) +
                 (append ? pages_for(4ull * (p->length - from + p->logprobs)) : 0);

    for (uint32_t i = 0; i < p->blobs.n; i++)
        n += pages_for(p->blobs.v[i].bytes);
    return n;
}

static struct rec *rec_take(struct sim *w, uint32_t d)
{
    for (uint32_t i = 0; i < REC_SLOTS; i++)
        if (w->recs[d]->rec[i].state == REC_FREE)
            return &w->recs[d]->rec[i];
    violation(w, "record_limit", "more than %u records", REC_SLOTS);
}

/* The pages in the answer are as many as were asked for, and free. */
static void prepared(struct sim *w, uint32_t d, struct session *s,
                     const struct req_record_prepare *p)
{
    struct rec_session *of = recs_of(w, d, s);
    const struct record_body *b = w->reply->record_prepare.body;
    bool append = p->kind == RECORD_APPEND;
    uint32_t from = append ? recorded(w->recs[d], of) : 0;
    struct rec *r = rec_take(w, d);

    EXPECT(b->from == from * of->scale && b->length == p->length && b->logprobs == p->logprobs &&
               b->nblobs == p->blobs.n,
           "record_body", "[%u, %u) of %u log-probabilities and %u blobs", b->from, b->length,
           b->logprobs, b->nblobs);
    *r = (struct rec){.state = REC_PREPARED,
                      .session = (uint8_t)number_of(w, d, s),
                      .engine = s->engine,
                      .tenant = s->tenant,
                      .kind = (uint8_t)p->kind,
                      .written_late = 1,
                      .uid = ++w->recs[d]->uid,
                      .scale = of->scale,
                      .from = from,
                      .n = p->length / of->scale,
                      .body = *b};
    section_handed_out(w, d, r, &b->before, 4ull * (append ? b->from : b->length));
    section_handed_out(w, d, r, &b->own, append ? 4ull * (b->length - b->from + b->logprobs) : 0);
    for (uint32_t i = 0; i < b->nblobs; i++) {
        EXPECT(strcmp(b->blob[i].name, p->blobs.v[i].name) == 0 && !b->blob[i].dropped,
               "record_body", "blob %u is %s", i, b->blob[i].name);
        section_handed_out(w, d, r, &b->blob[i].at, p->blobs.v[i].bytes);
    }
    of->prepared = (uint8_t)(r - w->recs[d]->rec);
    of->lent = 1;
    rec_words(w, last_of(w->recs[d], of), s->variant, r);
    rec_write(w, d, r);
}

static void ask_prepare(struct sim *w, uint32_t d, struct session *s, uint32_t conn)
{
    struct rec_session *of = recs_of(w, d, s);
    struct recs *m = w->recs[d];
    enum tern_err want;
    struct event ev;

    request_init(w, d, &ev, OP_RECORD_PREPARE, conn);
    want = prepare_choose(w, d, s, &ev.request.record_prepare);
    sim_ask(w, d, &ev, "record_answer");
    TRACE("  daemon %u: session %u.%u prepares a record of kind %u and %u tokens: err %u %s\n", d,
          s->id.slot, s->id.gen, ev.request.record_prepare.kind, ev.request.record_prepare.length,
          w->reply->err, w->reply->text);
    if (of->prepared != NO && m->rec[of->prepared].state == REC_CHECKING) {
        EXPECT(w->reply->err == TERN_BUSY, "record_busy", "err %u while it is looked at",
               w->reply->err);
        MARK(record_busy);
        return;
    }
    if (of->prepared != NO)
        rec_free(w, d, &m->rec[of->prepared]);
    of->prepared = NO;
    if (want != TERN_OK) {
        EXPECT(w->reply->err == want, "record_prepare", "err %u, not %u: %s", w->reply->err, want,
               w->reply->text);
        return;
    }
    if (w->reply->err != TERN_OK)
        prepare_refused(w, d, s,
                        prepare_pages(&ev.request.record_prepare, recorded(m, of) * of->scale));
    else
        prepared(w, d, s, &ev.request.record_prepare);
}

/* --- putting --- */

void take_record_check(struct sim *w, uint32_t d, const struct action *act)
{
    struct recs *m = w->recs[d];
    const struct record_job *job = act->record;
    struct rec_job *j = &m->job[m->njobs];

    EXPECT(m->njobs < w->limits.record_jobs, "record_jobs", "%u records are looked at", m->njobs);
    *j = (struct rec_job){.job = *job, .conn = NO};
    EXPECT(job->nat > 0 && job->nat <= BLOBS_KEPT_MAX + 1 && job->at[job->nat - 1] == job->length,
           "record_job", "%u hashes are wanted", job->nat);
    for (uint32_t i = 1; i < job->nat; i++)
        EXPECT(job->at[i - 1] <= job->at[i], "record_job", "hash at %u behind %u", job->at[i],
               job->at[i - 1]);
    m->njobs++;
}

/* T22: how many more records of a tenant workers may look at: the rest of its reserved part, and of
 * the common part. */
static uint32_t looks_left(const struct sim *w, uint32_t d, uint32_t tenant)
{
    const struct core_limits *l = &w->limits;
    uint32_t all = l->record_jobs * l->reserved_percent / 100, rest = l->record_jobs, of = 0,
             each = all >= TENANTS ? all / TENANTS
                                   : l->reserved_percent > 0 && l->record_jobs >= TENANTS;

    for (uint32_t t = 0; t < TENANTS; t++) {
        uint32_t n = 0;

        for (uint32_t i = 0; i < w->recs[d]->njobs; i++)
            n += w->recs[d]->job[i].job.tenant == t;
        rest -= n > each ? n : each;
        of = t == tenant && n < each ? each - n : of;
    }
    return rest + of;
}

static void ask_put(struct sim *w, uint32_t d, struct session *s, uint32_t conn, bool put)
{
    struct recs *m = w->recs[d];
    struct rec *r = recs_of(w, d, s)->prepared == NO ? NULL : &m->rec[recs_of(w, d, s)->prepared];
    uint32_t jobs = m->njobs, left = looks_left(w, d, s->tenant);
    struct rec_job *j;
    struct event ev;

    request_init(w, d, &ev, put ? OP_RECORD_PUT : OP_ROLLBACK, conn);
    if (put)
        ev.request.record_put.session = s->handle;
    else
        ev.request.rollback =
            (struct req_rollback){.session = s->handle, .step = release_step(w, d, s)};
    sim_step(w, d, &ev);
    TRACE("  daemon %u: session %u.%u %s: err %d\n", d, s->id.slot, s->id.gen,
          put ? "puts its record" : "rolls back", w->reply ? (int)w->reply->err : -1);
    if (!r || (r->kind == RECORD_APPEND) != put) {
        EXPECT(w->reply && w->reply->err == TERN_INVALID, "record_unprepared", "err %d",
               w->reply ? (int)w->reply->err : -1);
        return;
    }
    if (r->state == REC_CHECKING || left == 0) {
        EXPECT(w->reply && w->reply->err == TERN_BUSY, "record_busy", "err %d",
               w->reply ? (int)w->reply->err : -1);
        if (r->state != REC_CHECKING)
            MARK(record_jobs_full);
        return;
    }
    j = &m->job[jobs];
    EXPECT(!w->reply && m->njobs == jobs + 1, "record_job", "err %d, %u jobs",
           w->reply ? (int)w->reply->err : -1, m->njobs);
    EXPECT(j->job.tenant == r->tenant && j->job.kind == r->kind && j->job.from == r->body.from &&
               j->job.length == r->body.length && j->job.logprobs == r->body.logprobs &&
               same_section(&j->job.before, &r->body.before) &&
               same_section(&j->job.own, &r->body.own),
           "record_job", "[%u, %u), %u log-probabilities", j->job.from, j->job.length,
           j->job.logprobs);
    j->rec = (uint32_t)(r - m->rec);
    j->conn = conn;
    j->request_id = ev.request.request_id;
    j->step = put ? 0 : (uint32_t)ev.request.rollback.step;
    r->state = REC_CHECKING;
    s->rolling = !put;
}

/* --- reading --- */

static void check_words(struct sim *w, uint32_t d, const struct rec *r)
{
    const struct record_body *b = &r->body;
    uint32_t n = r->n - r->from;

    for (uint32_t i = 0; i < n; i++)
        EXPECT(*rec_word(w, d, r, &b->own, i) == r->words[r->from + i], "record_wrong_bytes",
               "token %u of record %u", r->from + i, r->uid);
    for (uint32_t i = 0; i < b->logprobs / r->scale; i++)
        EXPECT(*rec_word(w, d, r, &b->own, n + i) == logprob_of(r, i), "record_wrong_bytes",
               "log-probability %u of record %u", i, r->uid);
    for (uint32_t k = 0; k < b->nblobs && !r->dropped; k++)
        for (uint32_t i = 0; i < section_pages(&b->blob[k].at); i++)
            EXPECT(w->recs[d]->page[r->tenant][page_of(&b->blob[k].at, i)][0] == stamp_of(r, k, i),
                   "record_wrong_bytes", "page %u of blob %u of record %u", i, k, r->uid);
}

/* M11: the record lies where it was written, and only dropped blobs are gone. */
static void check_told(struct sim *w, uint32_t d, const struct rec *r, const struct record_body *b)
{
    EXPECT(b->from == r->body.from && b->length == r->body.length &&
               b->logprobs == r->body.logprobs && b->nblobs == r->body.nblobs &&
               b->before.nruns == 0 && same_section(&b->own, &r->body.own),
           "record_told", "record %u: [%u, %u) of %u log-probabilities and %u blobs", r->uid,
           b->from, b->length, b->logprobs, b->nblobs);
    for (uint32_t i = 0; i < b->nblobs; i++)
        EXPECT(strcmp(b->blob[i].name, r->body.blob[i].name) == 0 &&
                   b->blob[i].dropped == r->dropped &&
                   (r->dropped ? b->blob[i].at.bytes == 0 && b->blob[i].at.nruns == 0
                               : same_section(&b->blob[i].at, &r->body.blob[i].at)),
               "record_blob", "blob %u of record %u, dropped %u, not %u", i, r->uid,
               b->blob[i].dropped, r->dropped);
    check_words(w, d, r);
}

static void ask_get(struct sim *w, uint32_t d, struct session *s, uint32_t conn)
{
    struct rec_session *of = recs_of(w, d, s);
    uint32_t first = chance(w, 60) ? 0 : pick(w, of->n + 2);
    const struct reply *p;
    struct event ev;

    request_init(w, d, &ev, OP_RECORD_GET, conn);
    ev.request.record_get = (struct req_record_get){.session = s->handle, .first = first};
    sim_ask(w, d, &ev, "record_answer");
    p = w->reply;
    if (first > of->n) {
        EXPECT(p->err == TERN_INVALID, "record_get", "err %u for record %u of %u", p->err, first,
               of->n);
        return;
    }
    EXPECT(p->err == TERN_OK && p->record_get.records == of->n && p->record_get.n == of->n - first,
           "record_get", "err %u, %u of %u records from %u on, the model has %u", p->err,
           p->record_get.n, p->record_get.records, first, of->n);
    of->lent |= first < of->n;
    for (uint32_t i = first; i < of->n; i++)
        check_told(w, d, &w->recs[d]->rec[of->list[i]], &p->record_get.list[i - first]);
    if (of->n > 1)
        MARK(record_read);
}

static void ask_map(struct sim *w, uint32_t d, uint32_t conn)
{
    struct event ev;

    request_init(w, d, &ev, OP_RECORD_MAP, conn);
    sim_ask(w, d, &ev, "record_answer");
    EXPECT(w->reply->err == TERN_OK &&
               w->reply->record_map.bytes == (uint64_t)w->cfg.records * RECORD_PAGE_BYTES,
           "record_map", "err %u, %llu bytes", w->reply->err,
           (unsigned long long)w->reply->record_map.bytes);
}

/* --- requests --- */

/* A request by a handle that must not be used for it: nothing happens. */
static void ask_refused(struct sim *w, uint32_t d, uint32_t conn, struct session_id id,
                        enum tern_err err)
{
    static const enum op ops[] = {OP_RECORD_PREPARE, OP_RECORD_PUT, OP_ROLLBACK, OP_RECORD_GET};
    struct event ev;

    request_init(w, d, &ev, ops[pick(w, 4)], conn);
    switch (ev.request.op) {
    case OP_RECORD_PREPARE:
        ev.request.record_prepare = (struct req_record_prepare){.session = id, .length = 1000};
        break;
    case OP_RECORD_PUT: ev.request.record_put.session = id; break;
    case OP_ROLLBACK: ev.request.rollback = (struct req_rollback){.session = id}; break;
    default: ev.request.record_get = (struct req_record_get){.session = id};
    }
    sim_ask(w, d, &ev, "record_answer");
    EXPECT(w->reply->err == err, err == TERN_GONE ? "record_turn_over" : "record_not_guarded",
           "op %u by %u.%u: err %u, not %u", ev.request.op, id.slot, id.gen, w->reply->err, err);
    if (err == TERN_GONE)
        MARK(record_turn_gone);
}

static void ask_in_turn(struct sim *w, uint32_t d, struct session *s, uint32_t conn)
{
    const struct rec_session *of = recs_of(w, d, s);
    const struct rec *r = of->prepared == NO ? NULL : &w->recs[d]->rec[of->prepared];

    if (chance(w, 20))
        ask_get(w, d, s, conn);
    else if (chance(w, 4))
        ask_put(w, d, s, conn, chance(w, 50));
    else if (!r || (r->state == REC_CHECKING ? chance(w, 30) : chance(w, 10)))
        ask_prepare(w, d, s, conn);
    else
        ask_put(w, d, s, conn, r->kind == RECORD_APPEND);
}

void ask_record(struct sim *w, uint32_t d, uint32_t i)
{
    struct session *s = &w->d[d].session[i];
    const struct engine *g = &w->d[d].engine[s->engine];
    uint32_t conn = any_seat(w, d, s->engine);

    if (conn == NO || g->dying || g->seen != (1u << g->nprocs) - 1)
        return;
    if (chance(w, 3))
        ask_map(w, d, conn);
    if (s->old_turn.gen && chance(w, 8))
        ask_refused(w, d, conn, s->old_turn, TERN_GONE);
    else if (s->gate == GATE_OPEN && chance(w, 5))
        ask_refused(w, d, conn, s->id, TERN_INVALID);
    else if (s->gate != GATE_OPEN && chance(w, 5))
        ask_refused(w, d, conn, s->id, s->gate == GATE_CLAIMED ? TERN_BUSY : TERN_GONE);
    if (s->gate == GATE_OPEN)
        begin_turn(w, d, s, conn);
    ask_in_turn(w, d, s, conn);
    records_check(w, d);
}
