/* The outcome of a turn record that was put (M1 to M4, M8, M10): a worker of the simulator reads
 * the record's pages, in its own few lines, and the model knows the required outcome from what the
 * engine meant to write. Answers arrive late and in any order. */
#include "recs.h"

/* --- a worker --- */

static struct list_hash hash_of(const uint32_t *words, uint32_t n)
{
    struct list_hash h = {.hi = n, .lo = 77};

    for (uint32_t i = 0; i < n; i++) {
        h.lo = (h.lo ^ words[i]) * 0x9e3779b97f4a7c15u;
        h.hi += h.lo >> 32;
    }
    return h;
}

/* The worker reads the present contents. */
static void look(struct sim *w, uint32_t d, const struct rec_job *j, struct record_checked *ret)
{
    const struct rec *r = &w->recs[d]->rec[j->rec];
    const struct record_job *job = &j->job;
    uint32_t words[TOKENS + 4], n = job->length / r->scale,
                                before = job->kind == RECORD_APPEND ? job->from / r->scale : n;

    *ret = (struct record_checked){.id = job->id};
    if (chance(w, 2)) {
        ret->err = TERN_CORRUPT;
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        words[i] = i < before ? *rec_word(w, d, r, &job->before, i)
                              : *rec_word(w, d, r, &job->own, i - before);
        if (words[i] >= REC_END) {
            *ret = (struct record_checked){job->id, TERN_MALFORMED, PART_TOKENS, i * r->scale,
                                           0,       {{0, 0}}};
            return;
        }
    }
    for (uint32_t i = 0; i < job->logprobs / r->scale; i++)
        if ((*rec_word(w, d, r, &job->own, n - before + i) & 0x7f800000u) == 0x7f800000u) {
            *ret = (struct record_checked){job->id, TERN_MALFORMED, PART_LOGPROBS, i * r->scale,
                                           0,       {{0, 0}}};
            return;
        }
    for (uint32_t i = 0; i < job->nat; i++)
        ret->hash[ret->nhashes++] = hash_of(words, job->at[i] / r->scale);
}

/* --- the outcome --- */

struct verdict {
    enum tern_err err;
    uint32_t part, index, behind;
    bool ends; /* the table is released */
};

/* M3: the number of records at the end that the rollback takes back. */
static uint32_t behind_prompt(const struct recs *m, const struct rec_session *of,
                              const struct rec *r)
{
    for (uint32_t k = of->n; k > 0; k--) {
        const struct rec *at = &m->rec[of->list[k - 1]];

        if (at->n <= r->n && memcmp(at->words, r->words, at->n * sizeof r->words[0]) == 0)
            return of->n - k;
    }
    return of->n;
}

static uint32_t length_before(const struct recs *m, const struct rec_session *of, uint32_t behind)
{
    return behind < of->n ? m->rec[of->list[of->n - 1 - behind]].n * of->scale : 0;
}

/* M3: has the record that would be last lost its blobs? */
static bool ends_stripped(const struct recs *m, const struct rec_session *of, uint32_t behind)
{
    const struct rec *last = behind < of->n ? &m->rec[of->list[of->n - 1 - behind]] : NULL;

    return last && last->dropped && last->body.nblobs > 0;
}

static struct verdict judge(struct sim *w, uint32_t d, const struct session *s, const struct rec *r,
                            bool corrupt)
{
    const struct recs *m = w->recs[d];
    const struct rec_session *of;
    const struct rec *last;
    struct verdict v = {.err = TERN_OK};
    uint32_t most;

    if (!s)
        return (struct verdict){.err = TERN_GONE};
    if (corrupt)
        return (struct verdict){.err = TERN_CORRUPT};
    if (r->bad == BAD_TOKEN || r->bad == BAD_LOGPROB)
        return (struct verdict){.err = TERN_MALFORMED,
                                .part = r->bad == BAD_TOKEN ? PART_TOKENS : PART_LOGPROBS,
                                .index = r->bad_at * r->scale};
    of = recs_of(w, d, s);
    if (r->kind == RECORD_APPEND) {
        last = last_of(m, of);
        if (last && memcmp(last->words, r->words, last->n * sizeof r->words[0]) != 0)
            v.err = TERN_CONFLICT;
        return v;
    }
    most = (of->kept ? of->kept : BLOBS_KEPT_MAX) - 1;
    v.behind = behind_prompt(m, of, r);
    if ((v.behind > 0 && v.behind + of->rolled > most) || ends_stripped(m, of, v.behind))
        v.err = TERN_INVALID;
    else
        v.ends = s->committed > length_before(m, of, v.behind);
    return v;
}

/* M1 */
static void append(struct sim *w, uint32_t d, struct rec_session *of, struct rec *r)
{
    struct recs *m = w->recs[d];
    struct rec *old;

    rec_section_freed(w, d, r, &r->body.before);
    r->body.before = (struct record_section){0};
    r->state = REC_KEPT;
    of->list[of->n++] = (uint8_t)(r - m->rec);
    of->rolled = 0;
    MARK(record_appended);
    if (of->kept == 0 && of->n > 4)
        MARK(record_merging);
    if (of->kept == 0 || of->n <= of->kept)
        return;
    old = &m->rec[of->list[of->n - 1 - of->kept]];
    if (!old->dropped && old->body.nblobs > 0)
        MARK(record_stripped);
    for (uint32_t i = 0; i < old->body.nblobs && !old->dropped && !is_exposed(of, old); i++)
        rec_section_freed(w, d, old, &old->body.blob[i].at);
    old->dropped = 1;
}

static void roll_back(struct sim *w, uint32_t d, struct session *s, const struct verdict *v,
                      uint32_t step)
{
    struct rec_session *of = recs_of(w, d, s);
    uint32_t keep = length_before(w->recs[d], of, v->behind);

    if (v->ends) {
        table_given_up(w, d, s, step, keep);
        MARK(rollback_below_committed);
    }
    if (v->behind > 0)
        MARK(rollback);
    if (v->behind > 0 && keep == 0)
        MARK(rollback_to_nothing);
    for (uint32_t i = 0; i < v->behind; i++) {
        struct rec *r = &w->recs[d]->rec[of->list[--of->n]];

        if (is_exposed(of, r))
            rec_hold(w, r);
        else
            rec_free(w, d, r);
    }
    if (of->exposed > keep)
        of->exposed = keep;
    of->rolled += v->behind;
}

static void verdict_mark(struct sim *w, const struct verdict *v)
{
    if (v->err == TERN_GONE)
        MARK(record_gone_in_check);
    if (v->err == TERN_MALFORMED)
        MARK(record_malformed);
    if (v->err == TERN_CONFLICT)
        MARK(record_conflict);
    if (v->err == TERN_INVALID)
        MARK(rollback_refused);
}

/* Checks the answer, or the core's state if none is received. A release may find no room. */
static void answered(struct sim *w, uint32_t d, const struct rec_job *j, const struct session *s,
                     const struct rec *r, struct verdict *v)
{
    uint32_t min_done = s ? w->d[d].engine[s->engine].min_done : 0;
    const struct reply *p = w->reply;
    struct session_view view;

    if (j->conn == NO) {
        EXPECT(!p, "record_told_closed", "op %u err %u", p->op, p->err);
        MARK(record_unheard);
        if (v->ends && core_session_view(w->d[d].core, s->id.slot, &view) &&
            view.lengths.committed > 0)
            v->err = TERN_BUSY;
        return;
    }
    EXPECT(p && p->request_id == j->request_id && p->conn == j->conn &&
               p->op == (r->kind == RECORD_APPEND ? OP_RECORD_PUT : OP_ROLLBACK),
           "record_unanswered", "request %llu", (unsigned long long)j->request_id);
    TRACE("  daemon %u: what was put is answered: err %u %s\n", d, p->err, p->text);
    if (p->err == TERN_BUSY && v->ends) {
        EXPECT(late_step(s, j->step) > min_done, "release_busy",
               "BUSY at step %u, all have done %u", late_step(s, j->step), min_done);
        v->err = TERN_BUSY;
        return;
    }
    EXPECT(p->err == v->err, "record_verdict", "err %u, not %u: %s", p->err, v->err, p->text);
    if (v->err == TERN_MALFORMED && r->kind == RECORD_APPEND)
        EXPECT(p->record_put.part == v->part && p->record_put.index == v->index, "record_part",
               "part %u at %u", p->record_put.part, p->record_put.index);
    if (v->err == TERN_MALFORMED && r->kind == RECORD_ROLLBACK)
        EXPECT(p->rollback.part == v->part && p->rollback.index == v->index, "record_part",
               "part %u at %u", p->rollback.part, p->rollback.index);
}

/* The records that remain: reported alike in both answers. */
static void check_left(struct sim *w, uint32_t d, const struct session *s, const struct rec *r)
{
    const struct rec_session *of = recs_of(w, d, s);
    const struct reply *p = w->reply;
    uint32_t length = r->kind == RECORD_APPEND ? p->record_put.length : p->rollback.length,
             n = r->kind == RECORD_APPEND ? p->record_put.records : p->rollback.records;

    EXPECT(n == of->n && length == recorded(w->recs[d], of) * of->scale, "record_lengths",
           "%u records of %u tokens, the model has %u of %u", n, length, of->n,
           recorded(w->recs[d], of) * of->scale);
}

/* The model cannot know how much a transfer has fetched by now: the worker waits. */
static bool too_soon(const struct sim *w, uint32_t d, const struct session *s, const struct rec *r,
                     const struct verdict *v)
{
    if (!s || v->err != TERN_OK || r->kind != RECORD_ROLLBACK ||
        (s->turn != TURN_FETCHING && s->turn != TURN_LOADING))
        return false;
    return !v->ends || s->last_step > w->d[d].engine[s->engine].min_done;
}

bool record_work(struct sim *w, uint32_t d, uint32_t at)
{
    struct recs *m = w->recs[d];
    struct event ev = {.kind = EV_RECORD_CHECKED};
    struct session *s = NULL;
    struct verdict v;
    struct rec_job j;
    struct rec *r;

    if (m->njobs == 0)
        return false;
    at %= m->njobs;
    j = m->job[at];
    r = &m->rec[j.rec];
    if (r->state == REC_CHECKING && w->d[d].session[r->session].gate == GATE_CLAIMED)
        s = &w->d[d].session[r->session];
    look(w, d, &j, &ev.checked);
    v = judge(w, d, s, r, ev.checked.err == TERN_CORRUPT);
    if (too_soon(w, d, s, r, &v))
        return false;
    m->job[at] = m->job[--m->njobs];
    m->last = j.job.id;
    if (s)
        s->ending |= v.ends;
    if (r->session != NO && r->state == REC_CHECKING)
        w->d[d].session[r->session].rolling = 0;
    sim_step(w, d, &ev);
    answered(w, d, &j, s, r, &v);
    verdict_mark(w, &v);
    if (r->session != NO && w->d[d].session[r->session].live && r->state == REC_CHECKING)
        m->of[r->session].prepared = NO;
    if (s && v.err == TERN_OK && r->kind == RECORD_APPEND)
        append(w, d, recs_of(w, d, s), r);
    else if (s && v.err == TERN_OK)
        roll_back(w, d, s, &v, j.step);
    if (s)
        s->ending = 0;
    if (s && w->reply)
        check_left(w, d, s, r);
    if (r->state != REC_KEPT)
        rec_free(w, d, r);
    records_check(w, d);
    return true;
}

uint32_t records_pending(const struct sim *w, uint32_t d)
{
    return w->recs[d]->njobs;
}

struct record_id record_stale_id(struct sim *w, uint32_t d)
{
    const struct recs *m = w->recs[d];
    struct record_id id = m->last;

    if (chance(w, 30))
        id = (struct record_id){.slot = pick(w, 20), .gen = id.gen + pick(w, 3)};
    for (uint32_t i = 0; i < m->njobs; i++)
        if (m->job[i].job.id.slot == id.slot && m->job[i].job.id.gen == id.gen)
            return (struct record_id){.slot = NONE};
    return id;
}
