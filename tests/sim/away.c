/* Retract and recover (T14, S8, S10): the engine's requests, the required answers, and the contents
 * of the session when it runs again: its own bytes, up to the length in the answer. Until every
 * copy is acknowledged and the step has passed, the session pins the device as before. */
#include "causes.h"
#include "tickets.h"

/* --- leaving --- */

/* Queues the copy of the state page before the engine gives up its pages. */
void queue_copies(struct sim *w, uint32_t d, struct session *s)
{
    struct work *k = NULL;

    for (STATE_GROUPS(w, g)) {
        if (!recurrent(w, g) || !s->top[g] || !s->copy[g].gen)
            continue;
        if (!k) {
            engine_make_room(w, d, s->engine);
            k = engine_dispatch(w, d, s->engine);
            s->last_step = w->d[d].engine[s->engine].step;
        }
        state_touch_recurrent(w, d, k, s, g, s->filled, s->last_step);
    }
}

/* Is the whole path on the host, as far as answers have shown? */
static bool path_copied(struct sim *w, uint32_t d, const struct session *s)
{
    for (uint32_t k = 1; k * w->L <= s->committed; k++) {
        const struct chunk *c = chunk_at(w, d, s->pool, s->space, s->variant, k);

        for (uint32_t g = 0; g < w->cfg.ngroups; g++)
            if (!c->hhas[g] || c->hbad)
                return false;
    }
    for (STATE_GROUPS(w, g))
        if (!recurrent(w, g) && !state_copied(w, d, s, g))
            return false;
    return true;
}

static struct granule *entry_granule(struct sim *w, uint32_t d, const struct session *s, uint32_t g,
                                     uint32_t at)
{
    return &w->d[d].granule[s->tenant][s->table[g][at].granule];
}

/* The session's device pages may be evicted: the host has them, and no step reads them any more. */
static void unpin_device(struct sim *w, uint32_t d, struct session *s)
{
    TRACE("    session %u.%u is retracted: its path may leave the device\n", s->id.slot, s->id.gen);
    for (uint32_t g = 0; g < w->cfg.ngroups; g++)
        for (uint32_t i = 0; i < s->committed / w->page_tokens[d][g]; i++)
            for (uint32_t k = 0; k < w->page_granules[g]; k++)
                entry_granule(w, d, s, g, i)[k].borrows--;
    for (STATE_GROUPS(w, g))
        if (!recurrent(w, g))
            state_leave_device(w, d, s, g);
    s->unpinned = 1;
    MARK(retracted_host);
}

void away_settle(struct sim *w, uint32_t d)
{
    for (uint32_t i = 0; i < SESSIONS; i++) {
        struct session *s = &w->d[d].session[i];

        if (s->live && s->away == AWAY_HOST && !s->unpinned &&
            s->away_step <= w->d[d].engine[s->engine].min_done && path_copied(w, d, s))
            unpin_device(w, d, s);
    }
}

static uint32_t up(uint32_t n, uint32_t by)
{
    return (n + by - 1) / by;
}

/* Pages that a trim to p releases. */
static uint32_t tail_pages(const struct sim *w, uint32_t d, const struct session *s, uint32_t p)
{
    uint32_t n = 0;

    for (uint32_t g = 0; p < s->allocated && g < w->cfg.ngroups; g++)
        n += up(s->allocated, w->page_tokens[d][g]) - up(p, w->page_tokens[d][g]);
    for (STATE_GROUPS(w, g)) {
        uint32_t end = up(p, w->page_tokens[d][g]);

        if (recurrent(w, g)) {
            n += s->top[g] && !(p >= s->written && p > 0);
            continue;
        }
        if (end < s->base[g])
            end = s->base[g];
        n += s->top[g] > end ? s->top[g] - end : 0;
    }
    return p < s->allocated ? n : 0;
}

static void check_no_host_room(struct sim *w, uint32_t d, const struct session *s,
                               const struct shortage *sh)
{
    uint32_t need[GROUPS] = {0};

    for (uint32_t k = 1; k * w->L <= s->committed; k++) {
        const struct chunk *c = chunk_at(w, d, s->pool, s->space, s->variant, k);

        for (uint32_t g = 0; g < w->ngroups; g++)
            need[g] += host_has(c) ? 0 : chunk_pages(w, d, g, c);
    }
    EXPECT(sh->group < w->ngroups && sh->needed > 0, "host_shortage", "group %u needs %u",
           sh->group, sh->needed);
    for (uint32_t i = 0; i < SESSIONS; i++) /* other retracts have reserved room */
        if (w->d[d].session[i].live && w->d[d].session[i].away == AWAY_HOST &&
            !w->d[d].session[i].unpinned)
            return;
    if (w->d[d].spoilt) /* a corrupt copy keeps its room until it is replaced */
        return;
    EXPECT(w->cfg.nstate || w->d[d].njobs || w->d[d].host_unsure || !host_fits(w, d, s->pool, need),
           "false_host_shortage", "session %u.%u: committed %u fits the host's free slabs",
           s->id.slot, s->id.gen, s->committed);
    MARK(retract_host_no_room);
}

/* A Retract of a session that cannot, or need not, be retracted. `came`: a fetch or a recovery was
 * under way, which may have ended in this step. Returns true if nothing is left to do. */
static bool retract_refused(struct sim *w, uint32_t d, struct session *s, enum retract_mode mode,
                            uint32_t step, bool came)
{
    const struct reply *r = w->reply;

    if (s->turn == TURN_FETCHING || s->turn == TURN_LOADING) {
        EXPECT(r->err == TERN_BUSY, "retract_while_fetching", "err %u", r->err);
        return true;
    }
    if (r->err == TERN_BUSY) {
        EXPECT(came || step > w->d[d].engine[s->engine].min_done ||
                   busy_for_stores(w, d, s->tenant, r->text),
               "retract_busy", "step %u has passed", step);
        return true;
    }
    if (s->turn == TURN_AWAY) {
        EXPECT(r->err == TERN_OK && r->retract.free_now == 0 && r->retract.free_at_step == 0,
               "retract_repeated", "err %u, %u now, %u at a step", r->err, r->retract.free_now,
               r->retract.free_at_step);
        same_lengths(w, s, &r->retract.lengths, "retract_repeated");
        MARK(retract_repeated);
        return true;
    }
    if (mode == RETRACT_HOST && !w->d[d].pool[s->pool].hgranules) {
        EXPECT(r->err == TERN_UNSUPPORTED, "retract_no_tier", "err %u", r->err);
        return true;
    }
    if (r->err == TERN_POOL_EXHAUSTED && mode == RETRACT_HOST) {
        check_no_host_room(w, d, s, &r->shortage);
        return true;
    }
    if (r->err == TERN_QUOTA && mode == RETRACT_HOST) {
        EXPECT(r->shortage.needed > r->shortage.free, "false_never", "%s", r->text);
        MARK(retract_host_no_room);
        return true;
    }
    if (r->err == TERN_INVALID &&
        (s->turn == TURN_NEW || s->lame ||
         state_may_refuse(w, d, s, mode == RETRACT_HOST ? s->written : s->committed)))
        return true;
    EXPECT(r->err == TERN_OK, "retract_refused", "err %u %s", r->err, r->text);
    return false;
}

/* Steps up to `step` may read the session's prefix, whatever the session does meanwhile. */
static void hold_until(struct sim *w, uint32_t d, const struct session *s, uint32_t step)
{
    for (uint32_t g = 0; g < w->cfg.ngroups; g++)
        for (uint32_t i = 0; i < s->committed / w->page_tokens[d][g]; i++)
            for (uint32_t k = 0; k < w->page_granules[g]; k++) {
                struct granule *p = entry_granule(w, d, s, g, i) + k;

                if (step > p->busy[s->engine])
                    p->busy[s->engine] = step;
            }
}

/* STATE to resume at p: in the table, or that of the resume point. */
static bool can_return(struct sim *w, uint32_t d, const struct session *s, uint32_t p)
{
    if (!state_window_whole(w, d, s, p))
        return false;
    for (STATE_GROUPS(w, g))
        if (recurrent(w, g) && p > 0 && p != s->written &&
            !state_certain(w, d, s->pool, chunk_at(w, d, s->pool, s->space, s->variant, p / w->L),
                           g))
            return false;
    return true;
}

void ask_retract(struct sim *w, uint32_t d, uint32_t i)
{
    struct session *s = &w->d[d].session[i];
    uint32_t conn = engine_conn(w, d, s->engine), step, pages, p;
    bool tier = w->d[d].pool[s->pool].hgranules > 0;
    bool lame, came = s->turn == TURN_FETCHING || s->turn == TURN_LOADING;
    enum retract_mode mode = chance(w, tier ? 75 : 5) ? RETRACT_HOST : RETRACT_DROP;
    struct event ev;

    if (!s->live || conn == NO || w->d[d].engine[s->engine].dying || s->deaf ||
        may_be_undone(w, d, s))
        return;
    queue_copies(w, d, s);
    step = release_step(w, d, s);
    request_init(w, d, &ev, OP_RETRACT, conn);
    ev.request.retract.session = s->handle;
    ev.request.retract.mode = mode;
    ev.request.retract.step = step;
    TRACE("  daemon %u retracts session %u to %s, step %u (committed %u written %u allocated %u)\n",
          d, i, mode == RETRACT_HOST ? "the host" : "its prefix", step, s->committed, s->written,
          s->allocated);
    do
        sim_ask(w, d, &ev, "retract_answer");
    while (w->reply->err == TERN_BUSY && w->reply->shortage.goes_on);
    TRACE("    err %u %s\n", w->reply->err, w->reply->text);
    if (retract_refused(w, d, s, mode, step, came))
        return;
    p = mode == RETRACT_HOST ? s->written : s->committed;
    pages = tail_pages(w, d, s, p);
    lame = s->lame; /* it may have pages that no answer named */
    s->lame |= !can_return(w, d, s, p);
    EXPECT(lame || (w->cfg.nstate && w->cfg.tight == 3) ||
               w->reply->retract.free_now + w->reply->retract.free_at_step == pages,
           "retract_frees", "%u now, %u at step %u; the table gives %u pages back",
           w->reply->retract.free_now, w->reply->retract.free_at_step, step, pages);
    EXPECT((step <= w->d[d].engine[s->engine].min_done ? w->reply->retract.free_at_step
                                                       : w->reply->retract.free_now) == 0,
           "retract_frees", "%u now, %u at step %u; the table gives %u pages back",
           w->reply->retract.free_now, w->reply->retract.free_at_step, step, pages);
    trim(w, d, s, p, step);
    same_lengths(w, s, &w->reply->retract.lengths, "retract_lengths");
    s->away = mode == RETRACT_HOST ? AWAY_HOST : AWAY_DROP;
    s->away_step = step > s->slid_step ? step : s->slid_step;
    s->unpinned = 0;
    s->back_turn = s->turn;
    s->turn = TURN_AWAY;
    if (mode == RETRACT_HOST)
        host_sync(w, d, s);
    else
        hold_until(w, d, s, step);
    if (mode == RETRACT_HOST)
        MARK(retract_host);
    else
        MARK(retract_drop);
    away_settle(w, d);
}

/* --- coming back --- */

void ask_recover(struct sim *w, uint32_t d, uint32_t i)
{
    struct session *s = &w->d[d].session[i];
    uint32_t conn = engine_conn(w, d, s->engine);
    struct event ev;

    if (!s->live || conn == NO || w->d[d].engine[s->engine].dying || s->deaf)
        return;
    request_init(w, d, &ev, OP_RECOVER, conn);
    ev.request.recover.session = s->handle;
    TRACE("  daemon %u recovers session %u (committed %u written %u allocated %u)\n", d, i,
          s->committed, s->written, s->allocated);
    if (s->turn != TURN_AWAY) { /* it runs, or recovers already */
        sim_step(w, d, &ev);
        EXPECT(w->reply && (w->reply->err == TERN_OK || w->reply->err == TERN_BUSY ||
                            w->reply->err == TERN_INVALID),
               "recover_repeated", "err %u", w->reply ? w->reply->err : 99);
        return;
    }
    s->fetch_request = ev.request.request_id;
    s->fetch_since = w->now;
    s->fetch_conn = conn;
    s->cancel_sent = 0;
    s->turn = TURN_LOADING;
    w->d[d].waiting = 1;
    w->d[d].pool[s->pool].evictions += s->away == AWAY_HOST;
    sim_step(w, d, &ev);
    EXPECT(w->reply == NULL, "recover_unknown", "an answer to another request");
    if (s->live && s->turn == TURN_LOADING)
        TRACE("    it is being loaded\n");
}

/* The table in the answer is the one that the session had. */
static void check_table(struct sim *w, uint32_t d, const struct session *s, const struct reply *r)
{
    uint32_t n[GROUPS] = {0};

    for (uint32_t i = 0; i < r->nruns; i++)
        for (uint32_t k = 0; k < r->runs[i].n; k++) {
            const struct table_run *run = &r->runs[i];
            const struct entry *e = &s->table[run->group][run->first + k];

            /* A page of a segment that is in the table only in part, or the session has its own
             * page there. */
            if (run->group >= w->cfg.ngroups &&
                (run->first + k < s->first[run->group] || run->first + k >= s->top[run->group] ||
                 e->granule == HOLE || e->mine))
                continue;
            EXPECT(run->group < w->ngroups && run->first + k < TABLE &&
                       run->refs[k].gen == e->gen &&
                       page_granule(w, d, s->pool, run->group, run->refs[k].index) ==
                           &w->d[d].granule[s->tenant][e->granule],
                   "recover_pages", "group %u page %u is not the session's", run->group,
                   run->first + k);
            n[run->group]++;
        }
    for (uint32_t g = 0; g < w->cfg.ngroups; g++)
        EXPECT(n[g] == up(s->allocated, w->page_tokens[d][g]), "recover_page_count",
               "group %u: %u pages for allocated %u", g, n[g], s->allocated);
}

/* After a load: the borrowed part is the tree's, with the bytes of this prefix; the session's own
 * pages never left. */
static void rebuild_table(struct sim *w, uint32_t d, struct session *s, const struct reply *r)
{
    for (uint32_t k = 1; k * w->L <= s->committed; k++) {
        struct chunk *c = chunk_at(w, d, s->pool, s->space, s->variant, k);

        chunk_publish(w, d, s->pool, c, r->runs, r->nruns);
        EXPECT(chunk_visible(w, d, c) || c->engine == s->engine, "recover_pending",
               "depth %u waits for a step of another engine", k * w->L);
        for (uint32_t g = 0; g < w->cfg.ngroups; g++)
            for (uint32_t i = 0, per = w->L / w->page_tokens[d][g]; i < per; i++) {
                borrow(w, d, s, g, (k - 1) * per + i, c, i);
                if (chunk_visible(w, d, c))
                    check_page(w, d, s->tenant, c->granule[g][i], g, s->ns, s->variant,
                               (k - 1) * w->L + i * w->page_tokens[d][g], w->page_tokens[d][g],
                               "recover_wrong_bytes");
            }
    }
    for (STATE_GROUPS(w, g))
        if (!recurrent(w, g))
            state_come_back(w, d, s, g, r->runs, r->nruns);
}

static void recover_failed(struct sim *w, uint32_t d, struct session *s, const struct reply *r)
{
    s->turn = TURN_AWAY;
    switch (r->err) {
    case TERN_POOL_EXHAUSTED:
        EXPECT(s->unpinned, "recover_no_room_held", "its pages are on the device");
        EXPECT(!recover_fits(w, d, s), "false_recover_shortage",
               "session %u.%u: committed %u fits the free pages", s->id.slot, s->id.gen,
               s->committed);
        MARK(recover_no_room);
        break;
    case TERN_CORRUPT: /* the copy is bad, so nothing is recovered */
        EXPECT(s->unpinned, "recover_corrupt_held", "its pages are on the device");
        s->lost = 1;
        MARK(recover_corrupt);
        break;
    case TERN_GONE:
        EXPECT(s->cancel_sent, "recover_gone", "%s", r->text);
        MARK(load_cancelled);
        break;
    case TERN_BUSY: check_busy_recover(w, d, s, r); break;
    default: violation(w, "recover_refused", "err %u %s", r->err, r->text);
    }
}

bool session_recovered(struct sim *w, uint32_t d, const struct reply *r)
{
    struct session *s = NULL;
    const struct lengths *l = &r->recover.lengths;

    for (uint32_t i = 0; i < SESSIONS && !s; i++)
        if (w->d[d].session[i].used && w->d[d].session[i].turn == TURN_LOADING &&
            w->d[d].session[i].fetch_request == r->request_id)
            s = &w->d[d].session[i];
    if (!s)
        return false;
    TRACE("  recover of session %u answered: err %u committed %u written %u allocated %u %s\n",
          (unsigned)(s - w->d[d].session), r->err, l->committed, l->written, l->allocated, r->text);
    if (session_ends(w, d, s)) { /* aborted or closed during the recovery */
        EXPECT(r->err != TERN_OK, "recover_of_closed", "err %u", r->err);
        s->turn = TURN_AWAY;
        MARK(load_aborted);
        return true;
    }
    if (r->err != TERN_OK) {
        recover_failed(w, d, s, r);
        return true;
    }
    same_lengths(w, s, l, "recover_lengths");
    same_tokens(w, s, r->recover.tokens, "recover_lengths");
    if (!s->unpinned) {
        check_table(w, d, s, r);
        w->d[d].host_unsure |= s->away == AWAY_HOST;
        if (s->away == AWAY_HOST)
            MARK(recover_cancelled);
        else
            MARK(recover_at_once);
    } else {
        rebuild_table(w, d, s, r);
        if (s->committed >= LONG_CHUNKS / 2 * w->L)
            MARK(recover_long);
        if (s->fetch_since == w->now - 1000)
            MARK(recover_at_once);
        else
            MARK(recover_loaded);
    }
    s->turn = s->back_turn;
    s->away = AWAY_NO;
    s->unpinned = s->lost = s->undone = 0;
    return true;
}
