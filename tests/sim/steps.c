/* One Step request: an engine's operations on its sessions, the required results, and the dispatch
 * of the step that writes the allocated pages. Results are predicted in order, each from the state
 * after the operation before. */
#include "causes.h"
#include "core/busy.h"
#include "disk.h"
#include "leases.h"
#include "records.h"
#include "tickets.h"

#define OPS    4
#define PIECES 4096 /* of one Step */

struct plan {
    struct step_op op[OPS];
    uint8_t session[OPS], variant[OPS], wrote[OPS];
    uint8_t turn[OPS]; /* of the session, when the request was sent */
    struct assign assign[OPS];
    uint32_t n, taken; /* taken: leased pages that it names */
};

static bool extends(const struct step_op *op)
{
    return op->kind == STEP_EXTEND || op->kind == STEP_ASSIGN;
}

static uint32_t up(uint32_t n, uint32_t d)
{
    return (n + d - 1) / d;
}

/* --- what an engine would do next --- */

/* A long prefill takes a window's share of the pool at a time. */
static uint32_t piece_of(const struct sim *w, uint32_t left)
{
    return w->cfg.span && w->cfg.nstate && left > 12 * w->L ? 12 * w->L : left;
}

static void plan_extend(struct sim *w, const struct session *s, struct step_op *op,
                        uint8_t *ret_variant, uint8_t *ret_wrote)
{
    uint32_t n = s->ntokens, variant = s->variant, more = 0, a, spec;

    if (s->allocated >= s->ntokens && chance(w, 70))
        more = 1 + pick(w, 4);
    if (s->filled > s->ntokens) /* speculation that was accepted */
        more = s->filled - s->ntokens;
    if (n + more > w->span)
        more = w->span - n;
    op->kind = STEP_EXTEND;
    if (more) {
        if (s->filled <= s->ntokens && chance(w, 20)) { /* the sequences part here */
            uint32_t v = pick(w, w->cfg.variants);

            if (w->common[v][variant] >= n)
                variant = v;
        }
        op->tokens = tokens_of(w, variant, n, n + more);
    }
    spec = chance(w, 25) ? pick(w, 6) : 0;
    if (has_recurrent_state(w)) /* it would overwrite its only state */
        spec = 0;
    a = s->allocated > n + more + spec ? s->allocated : n + more + spec;
    if (chance(w, w->cfg.span && w->cfg.nstate ? 80 : 15) && s->allocated < n) /* in pieces */
        a = s->allocated + 1 + pick(w, piece_of(w, n - s->allocated));
    if (a > w->span + 8)
        a = w->span + 8;
    if (a < s->allocated)
        a = s->allocated;
    op->length = a == s->allocated && chance(w, 50) ? 0 : a;
    /* C now, before the step that writes it is queued, or with the next Step, after that. */
    *ret_wrote = (uint8_t)(chance(w, 60) || has_recurrent_state(w));
    op->written = a < n + more ? a : n + more;
    if (!*ret_wrote)
        op->written = s->filled < op->written ? s->filled : op->written;
    if (op->written < s->written)
        op->written = s->written;
    if (op->written == s->written && chance(w, 50))
        op->written = 0;
    *ret_variant = (uint8_t)variant;
}

/* A scheduler that ran out of pages ends a session, or waits. */
static bool plan_relief(struct sim *w, uint32_t d, const struct session *s, struct step_op *op)
{
    struct pool *p = &w->d[d].pool[s->pool];

    if (!p->pressure || s->allocated == 0 || !chance(w, 60))
        return false;
    p->pressure = 0;
    op->kind = s->written >= s->committed + w->L ? STEP_COMMIT
               : chance(w, 70)                   ? STEP_CLOSE
                                                 : STEP_ABORT;
    op->step = op->kind == STEP_COMMIT ? s->last_step : release_step(w, d, s);
    op->length = op->kind == STEP_COMMIT ? s->written / w->L * w->L : 0;
    return true;
}

static void plan_rest(struct sim *w, uint32_t d, const struct session *s, struct step_op *op)
{
    uint32_t r = pick(w, 100);

    op->step = release_step(w, d, s);
    if (r < 45) {
        op->kind = STEP_COMMIT;
        op->step = s->last_step;
        op->length = chance(w, 85) ? s->written / w->L * w->L : pick(w, s->written + 6);
        if (chance(w, 80))
            op->length -= op->length % w->L;
    } else if (r < 62) {
        op->kind = STEP_REWIND;
        op->length = s->written > s->committed
                         ? s->committed + pick(w, s->written - s->committed + 1)
                         : s->committed;
        if (chance(w, 40))
            op->length = s->written;
        if (chance(w, 4))
            op->length = pick(w, s->allocated + 3);
    } else if (r < 84) {
        op->kind = STEP_FINISH;
        op->length = s->committed + pick(w, s->allocated - s->committed + 1);
        if (chance(w, 10)) {
            op->length = pick(w, s->allocated + 3);
        } else if (chance(w, 20)) {
            op->kind = STEP_COMMIT;
            op->step = s->last_step;
            op->length = s->written / w->L * w->L;
        }
    } else if (r < 89) {
        op->kind = STEP_ABORT;
    } else {
        op->kind = STEP_CLOSE;
    }
}

/* A scheduler may commit what the step that it dispatches next will write. */
static void plan_commit_behind(struct sim *w, uint32_t d, struct plan *p)
{
    const struct step_op *extend = &p->op[p->n - 1];
    const struct session *s = &w->d[d].session[p->session[p->n - 1]];
    struct step_op *op = &p->op[p->n];

    if (extend->written < s->committed + w->L || p->n == OPS ||
        !chance(w, w->cfg.span && w->cfg.nstate ? 80 : 25))
        return;
    memset(op, 0, sizeof *op);
    op->kind = STEP_COMMIT;
    op->session = s->handle;
    op->step = w->d[d].engine[s->engine].step + 1;
    op->length = extend->written / w->L * w->L;
    p->session[p->n] = p->session[p->n - 1];
    p->variant[p->n] = p->variant[p->n - 1];
    p->n++;
}

static void plan_op(struct sim *w, uint32_t d, struct plan *p, uint32_t i, enum want want)
{
    struct session *s = &w->d[d].session[i];
    struct step_op *op = &p->op[p->n];

    memset(op, 0, sizeof *op);
    op->session = s->handle;
    op->barrier = chance(w, 5);
    p->session[p->n] = (uint8_t)i;
    p->variant[p->n] = s->variant;
    p->wrote[p->n] = 0;
    if ((s->turn == TURN_FETCHING || s->turn == TURN_LOADING) && (want != WANT_AUTO || s->deaf)) {
        /* The model cannot know what the transfer has pinned: end it when no step is in the way. */
        if (s->last_step > w->d[d].engine[s->engine].min_done)
            return;
        op->kind =
            want == WANT_ABORT || (want == WANT_AUTO && chance(w, 50)) ? STEP_ABORT : STEP_CLOSE;
    } else if (want != WANT_AUTO) {
        op->kind = want == WANT_CLOSE ? STEP_CLOSE : STEP_ABORT;
        op->step = release_step(w, d, s);
    } else if (s->turn >= TURN_AWAY && (may_be_undone(w, d, s) || chance(w, 92))) {
        if (s->turn == TURN_LOADING || !chance(w, s->lost ? 30 : 2))
            return;
        op->kind = chance(w, 50) ? STEP_ABORT : STEP_CLOSE;
        op->step = release_step(w, d, s);
    } else if (s->turn == TURN_NEW && chance(w, 80)) {
        return;
    } else if (s->turn == TURN_FINISHED && chance(w, 70)) {
        return;
    } else if (s->lame) {
        op->kind = chance(w, 50) ? STEP_ABORT : STEP_CLOSE;
        op->step = release_step(w, d, s);
    } else if (w->cfg.nstate && s->turn != TURN_NEW && chance(w, 5)) {
        op->kind = chance(w, 70) ? STEP_SLIDE : STEP_RELEASE;
        op->step = s->last_step;
        op->length = op->kind == STEP_SLIDE && chance(w, 40) ? s->committed + pick(w, 2 * w->L) : 0;
    } else if (plan_relief(w, d, s, op)) {
        p->n++;
        return;
    } else if (s->written < s->ntokens ? chance(w, 75) : chance(w, 35)) {
        plan_extend(w, s, op, &p->variant[p->n], &p->wrote[p->n]);
        if (w->cfg.leases)
            plan_assign(w, d, s, op, &p->assign[p->n], &p->taken);
        p->n++;
        plan_commit_behind(w, d, p);
        return;
    } else {
        plan_rest(w, d, s, op);
    }
    if (op->kind == STEP_ABORT && s->away && s->back_turn != TURN_OPEN &&
        (s->deaf || may_be_undone(w, d, s)))
        op->kind = STEP_CLOSE; /* the effect of an Abort depends on whether it is away */
    p->n++;
}

/* --- the required results, and their effects --- */

static void same_result(struct sim *w, const struct session *s, const struct op_result *r,
                        const char *what)
{
    same_lengths(w, s, &r->lengths, what);
    same_tokens(w, s, r->tokens, what);
}

/* Likewise for an operation that was refused. The lengths of a session that fetches move as its
 * chunks are published. */
static void unchanged(struct sim *w, const struct session *s, const struct op_result *r,
                      const char *what)
{
    if (s->turn != TURN_FETCHING)
        same_result(w, s, r, what);
}

void trim(struct sim *w, uint32_t d, struct session *s, uint32_t p, uint32_t step)
{
    if (p >= s->allocated)
        return;
    for (uint32_t g = 0; g < w->cfg.ngroups; g++)
        give_back(w, d, s, g, up(p, w->page_tokens[d][g]), up(s->allocated, w->page_tokens[d][g]),
                  step);
    state_trim(w, d, s, p, step);
    s->allocated = p;
    if (s->written > p)
        s->written = p;
    if (s->filled > p)
        s->filled = p;
}

/* T20: the operations before it in its Step may have been as much work as is allowed. */
static bool too_much(const struct sim *w, const struct op_result *r)
{
    return r->err == TERN_BUSY && w->cfg.give_back;
}

static void check_extend_busy(struct sim *w, uint32_t d, const struct session *s,
                              const struct step_op *op, bool alone, const char *text)
{
    if (w->cfg.give_back) /* pages that the Step released may not be free yet */
        return;
    /* With several refusals in one Step only the first has a text. */
    if (busy_for_stores(w, d, s->tenant, text) ||
        (!alone && !(text && *text) && disk_has_part(w, d, s->tenant))) {
        MARK(extend_waits_for_store);
        return;
    }
    if (w->cfg.host_behind && (w->d[d].njobs || !alone || op->tokens.n == 0)) {
        /* The next operation may have taken the pages that were to be copied. */
        EXPECT(w->d[d].njobs || !alone, "waits_for_nothing", "BUSY, and no copy is under way");
        MARK(extend_waits_for_copies);
        return;
    }
    if (w->d[d].njobs > 0 && (!text || strcmp(text, MAKING_ROOM) == 0))
        return; /* pages of a job become available by themselves */
    EXPECT(op->tokens.n > 0, "extend_busy", "BUSY for an extend without tokens: %s",
           text ? text : "");
    check_store_full(w, d, s, s->ntokens + op->tokens.n);
}

/* Pages of each group that an extend to `a` tokens takes; *all: the session's pages after it. */
static void extend_need(struct sim *w, uint32_t d, const struct session *s, uint32_t a,
                        uint32_t need[GROUPS], uint32_t all[GROUPS])
{
    for (uint32_t g = 0; g < w->cfg.ngroups; g++) {
        all[g] = up(a, w->page_tokens[d][g]);
        need[g] = all[g] - up(s->allocated, w->page_tokens[d][g]);
    }
    for (STATE_GROUPS(w, g))
        if (recurrent(w, g))
            need[g] = a > 0 && !s->top[g];
        else
            need[g] = up(a, w->page_tokens[d][g]) > s->top[g]
                          ? up(a, w->page_tokens[d][g]) - s->top[g]
                          : 0;
}

static void did_extend(struct sim *w, uint32_t d, struct session *s, const struct step_op *op,
                       uint32_t variant, bool alone, const struct op_result *r,
                       const struct table_run *runs)
{
    uint32_t a = op->length ? op->length : s->allocated, c = op->written ? op->written : s->written,
             need[GROUPS] = {0}, all[GROUPS] = {0};
    uint32_t given[GROUPS] = {0};
    bool needed = false;

    if (op->tokens.n > 0 && op->tokens.base != s->ntokens) {
        EXPECT(r->err == TERN_CONFLICT || too_much(w, r), "extend_base", "err %u", r->err);
        return;
    }
    if (a < s->allocated || c < s->written || c > a || c > s->ntokens + op->tokens.n) {
        EXPECT(r->err == TERN_INVALID || too_much(w, r), "extend_lengths", "err %u", r->err);
        return;
    }
    extend_need(w, d, s, a, need, all);
    if ((need[0] || need[1] || need[2] || need[3]) && op->kind == STEP_EXTEND &&
        check_never(w, d, s->pool, r, all))
        return;
    if (need[0] || need[1] || need[2] || need[3])
        needed = r->err == TERN_OK || r->err == TERN_BUSY; /* evictions for it are not undone */
    if (needed)
        note_need(w, d, s->pool, need);
    if (r->err == TERN_BUSY) {
        check_extend_busy(w, d, s, op, alone, r->text);
        return;
    }
    if (r->err == TERN_POOL_EXHAUSTED) {
        check_shortage(w, d, s->pool, &r->shortage, need);
        w->d[d].pool[s->pool].pressure = 1;
        return;
    }
    EXPECT(r->err == TERN_OK, "extend_refused", "err %u", r->err);
    for (uint32_t i = 0; i < r->nruns; i++) {
        const struct table_run *run = &runs[r->first_run + i];
        uint32_t first = run->group < w->cfg.ngroups
                             ? up(s->allocated, w->page_tokens[d][run->group])
                             : s->top[run->group];

        EXPECT(run->group < w->ngroups && run->first == first + given[run->group], "extend_run",
               "group %u starts at page %u", run->group, run->first);
        for (uint32_t k = 0; k < run->n; k++) {
            uint32_t at = hand_out(w, d, s->pool, run->group, run->refs[k], OWN_SESSION,
                                   (uint32_t)(s - w->d[d].session));

            EXPECT(run->first + k < TABLE, "table", "page %u", run->first + k);
            s->table[run->group][run->first + k] =
                (struct entry){.granule = (uint16_t)at, .gen = run->refs[k].gen, .mine = 1};
        }
        given[run->group] += run->n;
        if (run->group >= w->cfg.ngroups && recurrent(w, run->group))
            state_take_from(w, d, s, run);
    }
    for (uint32_t g = 0; g < w->ngroups; g++) {
        EXPECT(given[g] == need[g], "extend_count", "group %u: %u pages, needed %u", g, given[g],
               need[g]);
        if (g >= w->cfg.ngroups)
            s->top[g] += given[g];
    }
    check_cap(w, d, s->pool);
    s->allocated = a;
    s->written = c;
    s->ntokens += op->tokens.n;
    s->variant = (uint8_t)variant;
    s->turn = TURN_OPEN;
}

static const struct page_ref *run_page(const struct op_result *r, const struct table_run *runs,
                                       uint32_t group, uint32_t at)
{
    for (uint32_t i = 0; i < r->nruns; i++) {
        const struct table_run *run = &runs[r->first_run + i];

        if (run->group == group && at >= run->first && at < run->first + run->n)
            return &run->refs[at - run->first];
    }
    return NULL;
}

/* The canonical pages of chunk k replaced the session's: its own pages retire. */
static void did_adopt(struct sim *w, uint32_t d, struct session *s, uint32_t k,
                      const struct step_op *op, const struct op_result *r,
                      const struct table_run *runs)
{
    struct chunk *c = chunk_at(w, d, s->pool, s->space, s->variant, k);
    bool visible;

    chunk_publish(w, d, s->pool, c, runs + r->first_run, r->nruns);
    visible = chunk_visible(w, d, c);
    state_commit(w, d, s, c, (uint32_t)op->step, true, runs + r->first_run, r->nruns);
    EXPECT(visible || c->engine == s->engine, "adopt_pending",
           "depth %u waits for a step of another engine", k * w->L);
    if (visible)
        MARK(adopt_canonical);
    else
        MARK(adopt_pending_same_engine);
    c->evictions = w->d[d].pool[s->pool].evictions;
    if (s->filled < k * w->L)
        s->filled = k * w->L; /* nobody writes a page that others read */
    for (uint32_t g = 0; g < w->cfg.ngroups; g++)
        for (uint32_t i = 0, per = w->L / w->page_tokens[d][g]; i < per; i++) {
            uint32_t at = (k - 1) * per + i;
            struct granule *own = &w->d[d].granule[s->tenant][s->table[g][at].granule];

            for (uint32_t j = 0; j < w->page_granules[g]; j++) {
                own[j].own = OWN_FREE;
                if (op->step > own[j].busy[s->engine])
                    own[j].busy[s->engine] = (uint32_t)op->step;
            }
            borrow(w, d, s, g, at, c, i);
        }
}

/* The fresh page of a RECURRENT group may evict another prefix: it is allocated before the
 * session's duplicates are released. */
static void note_fresh_state(struct sim *w, uint32_t d, const struct session *s)
{
    uint32_t need[GROUPS] = {0};

    if (!has_recurrent_state(w))
        return;
    for (STATE_GROUPS(w, g))
        need[g] = recurrent(w, g);
    note_need(w, d, s->pool, need);
}

static void did_commit(struct sim *w, uint32_t d, struct session *s, const struct step_op *op,
                       const struct op_result *r, const struct table_run *runs)
{
    uint32_t k = s->committed / w->L, to = r->lengths.committed / w->L;
    bool nothing = op->length <= s->committed;
    uint32_t goal = nothing ? s->committed : op->length;

    if (op->length % w->L != 0 || op->length > s->written) {
        EXPECT(r->err == TERN_INVALID && r->align == (op->length % w->L ? w->L : 0), "commit_depth",
               "err %u, L %u for %u of %u tokens", r->err, r->align, op->length, s->written);
        MARK(commit_refused);
        same_lengths(w, s, &r->lengths, "commit_lengths");
        return;
    }

    EXPECT(r->lengths.committed >= s->committed &&
               r->lengths.committed <= (goal > s->committed ? goal : s->committed) &&
               r->lengths.committed % w->L == 0,
           "commit_depth", "committed %u, was %u, written %u, asked %u", r->lengths.committed,
           s->committed, s->written, op->length);
    uint32_t begin = s->committed;

    if (!nothing)
        note_fresh_state(w, d, s);
    while (k < to) {
        struct chunk *c = chunk_at(w, d, s->pool, s->space, s->variant, ++k);

        if (run_page(r, runs, 0, (k - 1) * (w->L / w->page_tokens[d][0])))
            did_adopt(w, d, s, k, op, r, runs);
        else {
            chunk_commit(w, d, s, k, (uint32_t)op->step);
            state_commit(w, d, s, c, (uint32_t)op->step, false, NULL, 0);
        }
        if (op->step > w->d[d].engine[s->engine].step)
            MARK(commit_before_dispatch);
        s->committed += w->L;
        state_give(w, d, s, (uint32_t)op->step, r->err == TERN_OK, runs + r->first_run, r->nruns);
        if (op->step > s->last_step)
            s->last_step =
                (uint32_t)op->step; /* it named that step as one that writes these pages */
    }
    if (s->committed >= LONG_CHUNKS * w->L)
        MARK(commit_long);
    if (s->committed > begin) {
        state_handed(w, d, s, runs + r->first_run, r->nruns);
        state_ended(w, d, s);
    }
    if (op->length > begin && r->err == TERN_OK)
        state_slide(w, d, s, s->committed + w->L, (uint32_t)op->step);
    if (s->committed == goal) {
        EXPECT(r->err == TERN_OK || r->err == TERN_BUSY, "commit_answer", "err %u at %u, asked %u",
               r->err, s->committed, op->length);
    } else if (r->err == TERN_BUSY) {
        if (w->cfg.tight == 1)
            MARK(nodes_full);
    } else { /* without an error only another engine's pending chunk stops it (T8), or a load */
        struct chunk *c = chunk_at(w, d, s->pool, s->space, s->variant, s->committed / w->L + 1);

        if (r->err == TERN_OK && chunk_loading(w, d, s->pool, c)) {
            MARK(commit_stopped_by_load);
            return;
        }
        EXPECT(r->err == TERN_OK && c->present && !chunk_visible(w, d, c) && c->engine != s->engine,
               "commit_stopped", "stopped at %u of %u, err %u", s->committed, goal, r->err);
        MARK(pending_other_engine_keeps_own);
    }
}

static void did_finish(struct sim *w, uint32_t d, struct session *s, const struct step_op *op,
                       const struct op_result *r)
{
    bool again = s->turn == TURN_FINISHED && op->length == s->finished;
    uint32_t before = s->allocated, keep = op->length < before ? op->length : before;

    if (op->length < s->committed || s->turn == TURN_NEW || (op->length > before && !again)) {
        EXPECT(r->err == TERN_INVALID, "finish_beyond", "err %u for %u of [%u, %u]", r->err,
               op->length, s->committed, before);
        MARK(finish_refused);
        return;
    }
    if (keep < s->written && has_recurrent_state(w))
        keep = s->committed;
    if (r->err == TERN_INVALID && state_may_refuse(w, d, s, keep)) {
        MARK(return_refused);
        return;
    }
    EXPECT(r->err == TERN_OK, "finish_refused", "err %u", r->err);
    trim(w, d, s, keep, (uint32_t)op->step);
    if (s->allocated < before)
        MARK(finish_trims);
    if (op->length < s->ntokens)
        follow_cut(w, d, s, op->length);
    if (op->length < s->ntokens)
        s->ntokens = op->length;
    s->finished = s->ntokens;
    s->turn = TURN_FINISHED;
    s->lame |= w->cfg.nstate && !state_window_whole(w, d, s, s->written);
}

/* `tokens`: length of the list that the core has kept. */
static void table_over(struct sim *w, uint32_t d, struct session *s, uint32_t step, uint32_t tokens)
{
    table_forget(w, d, s, step);
    s->live = 1;
    s->filled = 0;
    s->turn = TURN_NEW;
    if (tokens == 0 && s->finished > 0) { /* dropped for want of room in the token store */
        check_store_full(w, d, s, s->finished);
        s->finished = 0;
    }
    s->ntokens = s->finished;
}

static void did_abort(struct sim *w, uint32_t d, struct session *s, const struct step_op *op,
                      const struct op_result *r)
{
    uint32_t pages = up(s->allocated, w->page_tokens[d][0]);

    if (s->turn == TURN_FINISHED || s->turn == TURN_NEW) {
        EXPECT(r->err == TERN_OK, "abort_refused", "err %u", r->err);
        return;
    }
    EXPECT(r->err == TERN_OK, "abort_refused", "err %u", r->err);
    if (s->allocated > s->committed)
        MARK(abort_with_tail);
    if (pages && op->step > w->d[d].engine[s->engine].min_done && s->committed)
        MARK(pin_retires_with_step);
    table_over(w, d, s, (uint32_t)op->step, r->tokens);
}

void table_given_up(struct sim *w, uint32_t d, struct session *s, uint32_t step, uint32_t keep)
{
    struct session_view v;

    EXPECT(core_session_view(w->d[d].core, s->id.slot, &v) && session_id_equal(v.id, s->id) &&
               v.lengths.committed == 0 && v.lengths.allocated == 0,
           "table_kept", "session %u.%u: committed %u", s->id.slot, s->id.gen, v.lengths.committed);
    s->finished = s->finished < keep ? s->finished : keep;
    table_over(w, d, s, late_step(s, step), v.tokens);
    EXPECT(s->ntokens == v.tokens, "table_tokens", "%u tokens, not %u", v.tokens, s->ntokens);
}

static void did_rewind(struct sim *w, uint32_t d, struct session *s, const struct step_op *op,
                       const struct op_result *r)
{
    if (r->err == TERN_INVALID && state_may_refuse(w, d, s, op->length)) {
        MARK(return_refused);
        return;
    }
    if (op->length < s->committed || op->length > s->allocated) {
        EXPECT(r->err == TERN_INVALID, "rewind_range", "err %u", r->err);
        return;
    }
    EXPECT(r->err == TERN_OK, "rewind_refused", "err %u", r->err);
    if (!state_window_whole(w, d, s, op->length < s->written ? op->length : s->written))
        s->lame = 1;
    if (s->allocated > op->length)
        MARK(rewind_speculation);
    trim(w, d, s, op->length, (uint32_t)op->step);
    if (op->length < s->ntokens)
        follow_cut(w, d, s, op->length);
    if (op->length < s->ntokens)
        s->ntokens = op->length;
    if (s->finished > op->length)
        s->finished = op->length;
    if (s->filled > s->ntokens)
        s->filled = s->ntokens;
}

/* The last step that may touch what the session releases (E2). */
uint32_t late_step(const struct session *s, uint32_t step)
{
    if (s->away && step < s->away_step)
        step = s->away_step; /* the step of a Retract still counts */
    if (step < s->slid_step)
        step = s->slid_step;                          /* and that of a slide */
    return step < s->turn_step ? s->turn_step : step; /* and a turn's end */
}

static void did_slide(struct sim *w, uint32_t d, struct session *s, const struct step_op *op,
                      const struct op_result *r)
{
    if (op->length && op->length <= s->committed) {
        EXPECT(r->err == TERN_INVALID, "slide_range", "err %u", r->err);
        return;
    }
    EXPECT(r->err == TERN_OK, "slide_refused", "err %u", r->err);
    state_slide(w, d, s, op->length ? op->length : s->committed + w->L, (uint32_t)op->step);
}

static void did_one(struct sim *w, uint32_t d, const struct plan *p, uint32_t i,
                    const struct op_result *r, const struct table_run *runs)
{
    struct session *s = &w->d[d].session[p->session[i]];
    struct step_op late = p->op[i];
    const struct step_op *op = &late;
    uint32_t min_done = w->d[d].engine[s->engine].min_done;

    TRACE("    op %u on session %u: length %u written %u tokens %u step %llu -> err %u committed "
          "%u written %u A "
          "%u\n",
          op->kind, p->session[i], op->length, op->written, op->tokens.n,
          (unsigned long long)op->step, r->err, r->lengths.committed, r->lengths.written,
          r->lengths.allocated);
    if (op->kind == STEP_ABORT || op->kind == STEP_CLOSE)
        late.step = late_step(s, (uint32_t)late.step);
    else if (s->away && late.step < s->away_step)
        late.step = s->away_step;
    if (!s->live) {
        EXPECT(r->err == TERN_GONE, "closed_session_used", "err %u", r->err);
        return;
    }
    /* The session's turn when the Step came: a fetch or a load may have ended behind the Step's
     * operations, in the same step of the core, and the model has processed its answer by now. */
    if (p->turn[i] == TURN_FETCHING && op->kind != STEP_ABORT && op->kind != STEP_CLOSE) {
        EXPECT(r->err == TERN_BUSY || (s->fetch_host && r->err == TERN_INVALID),
               "op_while_fetching", "err %u", r->err);
        return;
    }
    if (p->turn[i] >= TURN_AWAY && op->kind != STEP_ABORT && op->kind != STEP_CLOSE) {
        EXPECT(r->err == (p->turn[i] == TURN_LOADING ? TERN_BUSY : TERN_INVALID) || too_much(w, r),
               "op_while_away", "op %u: err %u", op->kind, r->err);
        MARK(away_refused);
        return;
    }
    if (op->kind != STEP_EXTEND && too_much(w, r) && r->lengths.committed == s->committed) {
        MARK(step_too_much);
        unchanged(w, s, r, "too_much_lengths");
        return;
    }
    if (r->err == TERN_BUSY && !extends(op) && op->kind != STEP_COMMIT) {
        EXPECT(op->step > min_done || w->cfg.give_back, "release_busy",
               "BUSY for a release at step %llu, all have done %u", (unsigned long long)op->step,
               min_done);
        MARK(retires_full);
        unchanged(w, s, r, "busy_lengths");
        return;
    }
    switch (op->kind) {
    case STEP_EXTEND: did_extend(w, d, s, op, p->variant[i], p->n == 1, r, runs); break;
    case STEP_COMMIT: did_commit(w, d, s, op, r, runs); break;
    case STEP_FINISH: did_finish(w, d, s, op, r); break;
    case STEP_ABORT: did_abort(w, d, s, op, r); break;
    case STEP_RELEASE:
        EXPECT(r->err == TERN_OK, "release_refused", "err %u", r->err);
        state_release_point(w, d, s);
        break;
    case STEP_SLIDE: did_slide(w, d, s, op, r); break;
    case STEP_REWIND: did_rewind(w, d, s, op, r); break;
    case STEP_ASSIGN: did_assign(w, d, s, op, &p->assign[i], p->variant[i], r); break;
    case STEP_UNLEASE: /* leases.c */
    case STEP_WRITTEN: /* of older libraries */
    case STEP_KINDS: break;
    case STEP_CLOSE:
        EXPECT(r->err == TERN_OK, "close_refused", "err %u", r->err);
        if (s->committed && op->step > min_done)
            MARK(pin_retires_with_step);
        session_forget(w, d, s, (uint32_t)op->step);
        return;
    }
    same_result(w, s, r, "op_lengths");
}

/* --- the dispatch --- */

static void add_touch(struct sim *w, uint32_t d, struct work *k, const struct session *s,
                      uint32_t g, uint32_t page, uint32_t to, uint32_t junk_to)
{
    const struct window_page at = {s->table[g][page].granule, g, page, s->filled};
    uint32_t pt = w->page_tokens[d][g], pos = page * pt, end = pos + pt;
    struct touch *t;

#define WITHIN(n) ((uint8_t)((n) <= pos ? 0 : (n) >= end ? pt : (n)-pos))
    EXPECT(k->n + 2 <= TOUCHES, "sim_touches", "%u", k->n);
    t = &k->touch[k->n++];
    *t = (struct touch){.granule = s->table[g][page].granule,
                        .group = (uint8_t)g,
                        .ns = s->ns,
                        .variant = s->variant,
                        .pos = (uint16_t)pos,
                        .read_from =
                            (uint8_t)(g < w->cfg.ngroups ? 0 : window_skips(w, d, s->tenant, &at)),
                        .read_to = WITHIN(s->filled),
                        .write_from = WITHIN(s->filled),
                        .write_to = WITHIN(to)};
    if (junk_to <= to || WITHIN(junk_to) <= WITHIN(to))
        return;
    t = &k->touch[k->n++];
    *t = k->touch[k->n - 2];
    t->read_to = 0;
    t->write_from = WITHIN(to);
    t->write_to = WITHIN(junk_to);
    t->junk = 1;
#undef WITHIN
}

/* Reads the pages of a window that are needed to resume at `filled`, and writes the new ones. */
static void touch_window(struct sim *w, uint32_t d, struct work *k, const struct session *s,
                         uint32_t g, uint32_t to)
{
    for (uint32_t i = window_begin(w, d, g, s->filled), n = up(s->allocated, w->page_tokens[d][g]);
         i < n; i++) {
        EXPECT(
            i >= s->first[g] && i < s->top[g] && s->table[g][i].granule != HOLE, "window_hole",
            "session %u.%u goes on from %u, but group %u lacks page %u (committed %u written %u)",
            s->id.slot, s->id.gen, s->filled, g, i, s->committed, s->written);
        add_touch(w, d, k, s, g, i, to, s->allocated);
    }
}

/* Reads all that the session has, writes [filled, to), and speculation behind it. */
static void dispatch_session(struct sim *w, uint32_t d, struct work *k, struct session *s,
                             uint32_t step)
{
    uint32_t to = s->allocated < s->ntokens ? s->allocated : s->ntokens, ok = to;

    if (s->allocated > s->ntokens && s->ntokens >= s->filled &&
        to == s->ntokens) /* guesses: some of them right */
        ok = s->ntokens + pick(w, s->allocated - s->ntokens + 1);
    if (ok > w->span)
        ok = w->span;
    if (ok < s->filled)
        ok = s->filled;
    for (uint32_t g = 0; g < w->cfg.ngroups; g++)
        for (uint32_t i = 0, n = up(s->allocated, w->page_tokens[d][g]); i < n; i++)
            add_touch(w, d, k, s, g, i, ok, s->allocated);
    for (STATE_GROUPS(w, g))
        if (recurrent(w, g))
            state_touch_recurrent(w, d, k, s, g, ok, step);
        else
            touch_window(w, d, k, s, g, ok);
    s->filled = ok;
    s->last_step = step;
}

static void dispatch_op(struct sim *w, uint32_t d, struct work *k, const struct plan *p, uint32_t i)
{
    struct session *s = &w->d[d].session[p->session[i]];

    if (s->live && s->turn == TURN_OPEN && !s->lame)
        dispatch_session(w, d, k, s, w->d[d].engine[s->engine].step);
}

/* STATE that a commit made needless is superseded at once, and no other: the resume points around
 * it still exist. */
static void look_around(struct sim *w, uint32_t d, uint32_t e, const struct plan *p, uint32_t i)
{
    const struct session *s = &w->d[d].session[p->session[i]];

    if ((p->op[i].kind != STEP_COMMIT && p->op[i].kind != STEP_CLOSE) || !s->used)
        return;
    if (!chance(w, 40) || w->d[d].engine[e].pool != s->pool)
        return;
    peek_at(w, d, e, s->ns, s->variant, w->L * (1 + pick(w, 6)));
}

/* The operations from `from` on are answered: as many as were tried, of which the last may be
 * incomplete. Returns the index of the next one. */
static uint32_t take_results(struct sim *w, uint32_t d, const struct plan *p, uint32_t from,
                             struct work *k)
{
    const struct reply *reply = w->reply;
    uint32_t done = from;

    for (uint32_t i = 0; i < reply->step.n; i++, done++) {
        const struct op_result *r = &reply->step.results[i];

        did_one(w, d, p, done, r, reply->runs);
        if (k && extends(&p->op[done]) && !op_goes_on(r))
            dispatch_op(w, d, k, p, done);
        if (op_goes_on(r) || (p->op[done].barrier && r->err != TERN_OK)) {
            EXPECT(i + 1 == reply->step.n, "barrier_ignored", "%u of %u operations were tried",
                   reply->step.n, p->n - from);
            if (!op_goes_on(r) && done + 1 < p->n)
                MARK(barrier_stops);
        }
    }
    return done;
}

/* Sends the Step as libtern does, repeats the rest where one step of the core is too short, and
 * applies the results. Returns how many operations were done. */
static uint32_t send_all(struct sim *w, uint32_t d, uint32_t e, struct plan *p, bool dispatch,
                         struct work **ret_k)
{
    bool goes_on = true;
    uint32_t done = 0;

    for (uint32_t pieces = 0, from = 0; goes_on; from = done - 1, pieces++) {
        struct event ev;

        EXPECT(pieces < PIECES, "step_livelock", "an operation goes on for ever");
        for (uint32_t i = from; i < p->n; i++)
            p->turn[i] = w->d[d].session[p->session[i]].turn;
        request_init(w, d, &ev, OP_STEP, engine_conn(w, d, e));
        ev.request.step = (struct req_step){.ops = p->op + from, .n = p->n - from, .pieces = true};
        TRACE("  daemon %u engine %u Step of %u\n", d, e, p->n - from);
        sim_step(w, d, &ev);
        EXPECT(w->reply && w->reply->err == TERN_OK, "step_refused", "err %u",
               w->reply ? w->reply->err : 0);
        goes_on = w->reply->step.n > 0 && op_goes_on(&w->reply->step.results[w->reply->step.n - 1]);
        if (dispatch && !*ret_k) /* a commit behind an extend slides what that step still reads */
            *ret_k = engine_dispatch(w, d, e);
        done = take_results(w, d, p, from, *ret_k);
        if (goes_on)
            MARK(step_goes_on);
    }
    return done;
}

static void run(struct sim *w, uint32_t d, uint32_t e, struct plan *p)
{
    struct daemon *m = &w->d[d];
    struct work *k = NULL;
    bool wrote = false;
    uint32_t done;

    for (uint32_t i = 0; i < p->n; i++)
        wrote |= extends(&p->op[i]);
    if (wrote)
        engine_make_room(w, d, e);
    for (uint32_t i = 0; i < p->n; i++)
        m->session[p->session[i]].ending |=
            p->op[i].kind == STEP_ABORT || p->op[i].kind == STEP_CLOSE;
    done = send_all(w, d, e, p, wrote && w->cfg.nstate, &k);
    EXPECT(done == p->n || (done > 0 && p->op[done - 1].barrier), "step_short",
           "%u of %u operations", done, p->n);
    for (uint32_t i = 0; i < p->n; i++)
        m->session[p->session[i]].ending = 0;
    for (uint32_t i = 0; i < done && w->cfg.nstate; i++)
        look_around(w, d, e, p, i);
    if (k)
        leases_touch(w, d, e, k);
    if (!wrote || k)
        return;
    k = engine_dispatch(w, d, e);
    leases_touch(w, d, e, k);
    for (uint32_t i = 0; i < done; i++)
        if (extends(&p->op[i]))
            dispatch_op(w, d, k, p, i);
}

void step_request(struct sim *w, uint32_t d, uint32_t e, enum want want)
{
    struct daemon *m = &w->d[d];
    uint32_t conn = engine_conn(w, d, e),
             n = want != WANT_AUTO || chance(w, 65) ? 1 : 1 + pick(w, OPS - 1), at, set;
    struct plan p;

    if (conn == NO || m->engine[e].dying)
        return;
    give_back_all(w, d); /* a fetch may end in that */
    p.n = p.taken = 0;
    at = pick(w, SESSIONS);
    set = sessions_usable(m, TURNS_ALL, 1u << e);
    while (set && p.n < n) {
        uint32_t s = session_next(&set, at);

        if (m->session[s].turn != TURN_FETCHING || want != WANT_AUTO || chance(w, 5))
            plan_op(w, d, &p, s, want);
    }
    if (p.n > 0)
        run(w, d, e, &p);
}

/* Computes the rest of its list, or a piece of it, without new tokens. */
void step_compute(struct sim *w, uint32_t d, uint32_t i)
{
    const struct session *s = &w->d[d].session[i];
    struct plan p = {.n = 1, .session = {(uint8_t)i}, .variant = {s->variant}};
    uint32_t left = s->ntokens - s->written, to;

    if (engine_conn(w, d, s->engine) == NO || w->d[d].engine[s->engine].dying || s->lame ||
        (s->turn != TURN_OPEN && s->turn != TURN_FINISHED) || left == 0)
        return;
    to = s->written + (chance(w, 40) ? left : 1 + pick(w, left));
    if (to < s->allocated)
        to = s->allocated < s->ntokens ? s->allocated : s->ntokens;
    p.op[0] = (struct step_op){.kind = STEP_EXTEND,
                               .session = s->handle,
                               .length = to > s->allocated ? to : s->allocated,
                               .written = to};
    p.wrote[0] = 1;
    p.n = 1;
    plan_commit_behind(w, d, &p);
    run(w, d, s->engine, &p);
}

/* Commits the whole chunks that it has written. */
void step_commit(struct sim *w, uint32_t d, uint32_t i)
{
    const struct session *s = &w->d[d].session[i];
    struct plan p = {.n = 1, .session = {(uint8_t)i}, .variant = {s->variant}};

    if (engine_conn(w, d, s->engine) == NO || w->d[d].engine[s->engine].dying || s->lame)
        return;
    p.op[0] = (struct step_op){.kind = STEP_COMMIT,
                               .session = s->handle,
                               .step = s->last_step,
                               .length = s->written / w->L * w->L};
    run(w, d, s->engine, &p);
}

void step_one(struct sim *w, uint32_t d, uint32_t i, const struct step_op *op)
{
    const struct session *s = &w->d[d].session[i];
    struct plan p = {.n = 1, .op = {*op}, .session = {(uint8_t)i}, .variant = {s->variant}};

    run(w, d, s->engine, &p);
}
