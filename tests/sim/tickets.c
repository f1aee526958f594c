/* Sessions that were handed over, or will be, in the model of the daemon that gave the ticket (Y1
 * to Y3): how a ticket is made, when it leaves its engine, which fetches it may serve, and when it
 * ends. Each answer to a fetch is compared with the outcome that the model expected before the
 * daemon received the question. */
#include "tickets.h"

#include <stdlib.h>

#include "base/check.h"
#include "causes.h"
#include "disk.h"
#include "oracle/oracle.h"
#include "records.h"
#include "state.h"

void tickets_create(struct sim *w)
{
    for (uint32_t d = 0; d < DAEMONS; d++) {
        w->tickets[d] = calloc(1, sizeof *w->tickets[d]);
        check(w->tickets[d] != NULL);
    }
}

void tickets_destroy(struct sim *w)
{
    for (uint32_t d = 0; d < DAEMONS; d++)
        free(w->tickets[d]);
}

/* A daemon that starts knows no ticket; a router may still show an earlier one. */
void tickets_clear(struct sim *w, uint32_t d)
{
    struct tickets *m = w->tickets[d];
    struct shown shown[SHOWN];
    uint32_t uid = w->d[d].restarts > 0 ? m->uid : 0;

    memcpy(shown, m->shown, sizeof shown);
    memset(m, 0, offsetof(struct tickets, coming));
    m->uid = uid;
    if (w->d[d].restarts > 0)
        memcpy(m->shown, shown, sizeof shown);
}

/* --- lookup --- */

struct session *ticket_session(struct sim *w, uint32_t d, const struct tk *t)
{
    return &w->d[d].session[t - w->tickets[d]->tk];
}

struct shown *shown_of(struct sim *w, uint32_t d, const struct tk *t)
{
    return &w->tickets[d]->shown[t->shown];
}

struct tk *ticket_of(struct sim *w, uint32_t d, const struct ticket *shown)
{
    if (shown->incarnation != w->d[d].incarnation)
        return NULL;
    for (uint32_t i = 0; i < SESSIONS; i++)
        if (w->tickets[d]->tk[i].stands && session_id_equal(w->d[d].session[i].id, shown->id))
            return &w->tickets[d]->tk[i];
    return NULL;
}

struct shown *ticket_pick(struct sim *w, uint32_t d)
{
    struct tickets *m = w->tickets[d];
    uint32_t at = pick(w, SHOWN);
    bool stands = m->n > 0 && chance(w, 90);

    for (uint32_t i = 0; i < SHOWN; i++, at = (at + 1) % SHOWN)
        if (m->shown[at].uid && (!stands || ticket_of(w, d, &m->shown[at].ticket)))
            return &m->shown[at];
    return NULL;
}

uint32_t ticket_length(struct sim *w, uint32_t d, const struct shown *of)
{
    const struct tk *t = ticket_of(w, d, &of->ticket);

    if (!t)
        return of->ticket.length ? of->ticket.length : 1;
    return t->promised ? ticket_session(w, d, t)->ntokens : ticket_session(w, d, t)->written;
}

uint32_t blob_word(uint32_t uid, uint32_t i)
{
    return (uid * 0x9e3779b1u) ^ (i * 0x85ebca6bu);
}

uint32_t ticket_blocks(const struct sim *w, uint32_t d, uint32_t tenant)
{
    uint32_t each = (BLOB_WORDS + 63) / 64, n = 0;

    for (uint32_t i = 0; i < SESSIONS && w->cfg.ticket_ms; i++) {
        const struct session *s = &w->d[d].session[i];

        if (s->live && s->tenant == tenant)
            n += (w->tickets[d]->tk[i].stands || s->turn == TURN_FETCHING) * each;
    }
    return n;
}

uint64_t tickets_until(const struct sim *w)
{
    uint64_t last = 0;

    for (uint32_t d = 0; d < DAEMONS; d++)
        for (uint32_t i = 0; i < SESSIONS; i++)
            if (w->tickets[d]->tk[i].stands && w->tickets[d]->tk[i].until > last)
                last = w->tickets[d]->tk[i].until;
    return last;
}

/* --- its life --- */

void ticket_forget(struct sim *w, uint32_t d, uint32_t i)
{
    w->tickets[d]->tk[i].stands = 0;
    w->tickets[d]->n--;
}

void promise_over(struct sim *w, uint32_t d, const struct session *s)
{
    uint32_t i = (uint32_t)(s - w->d[d].session);
    struct tk *t = &w->tickets[d]->tk[i];

    if (!t->stands || !t->promised)
        return;
    TRACE("  daemon %u: the ticket of session %u.%u is forgotten\n", d, s->id.slot, s->id.gen);
    follow_promise_over(w, d, t);
    ticket_forget(w, d, i);
    MARK(promise_over);
}

/* Counts the session's own pages as released: the answer of this step was made before their
 * release. */
static void count_let_go(struct sim *w, uint32_t d, const struct session *s)
{
    for (uint32_t i = 0; i < w->granules; i++) {
        const struct granule *g = &w->d[d].granule[s->tenant][i];

        if (g->own == OWN_SESSION && &w->d[d].session[g->owner] == s)
            w->tickets[d]->let_go[g->group]++;
    }
}

/* Nothing reads it: it is closed like any session. */
static void end(struct sim *w, uint32_t d, struct tk *t)
{
    struct session *s = ticket_session(w, d, t);

    TRACE("  daemon %u: ticket %u.%u ends\n", d, s->id.slot, s->id.gen);
    follow_promise_over(w, d, t);
    count_let_go(w, d, s);
    session_forget(w, d, s, t->left ? 0 : t->step);
    ticket_forget(w, d, (uint32_t)(t - w->tickets[d]->tk));
    w->tickets[d]->closing = 1;
}

/* If pages become free in pieces, the core may be behind, by as many steps as it takes: the model
 * follows the core's view here, and tickets_check verifies that the core catches up. */
static bool core_has_left(struct sim *w, uint32_t d, const struct session *s)
{
    struct session_view v;

    return !w->cfg.give_back || (core_session_view(w->d[d].core, s->id.slot, &v) &&
                                 session_id_equal(v.id, s->id) && v.engine.slot == NONE);
}

/* The borrowed part of its window may be a refill (T18). */
static bool state_passed(struct sim *w, uint32_t d, const struct session *s)
{
    for (STATE_GROUPS(w, g))
        for (uint32_t at = window_begin(w, d, g, s->written); at < s->base[g]; at++)
            if (!recurrent(w, g) && at >= s->first[g] && s->table[g][at].granule != HOLE &&
                !state_visible_of(w, d,
                                  chunk_at(w, d, s->pool, s->space, s->variant,
                                           at * w->page_tokens[d][g] / w->L + 1),
                                  g))
                return false;
    return true;
}

static bool step_passed(struct sim *w, uint32_t d, const struct tk *t)
{
    const struct session *s = ticket_session(w, d, t);

    if (t->step > w->d[d].engine[s->engine].min_done || !state_passed(w, d, s))
        return false;
    return s->committed == 0 ||
           chunk_visible(w, d, chunk_at(w, d, s->pool, s->space, s->variant, s->committed / w->L));
}

static bool pool_closes(const struct sim *w, uint32_t d, const struct session *s)
{
    const struct pool_id id = w->d[d].pool[s->pool].id;
    struct pool_view v;

    return core_pool_view(w->d[d].core, id.slot, &v) && pool_id_equal(v.id, id) && v.closing;
}

/* The ticket's pages wait for a step, and there is no record for that now. The model does not count
 * which releases use the few records, so it takes the core's view, for this step alone. */
static bool waits_for_record(struct sim *w, uint32_t d, const struct tk *t)
{
    const struct session *s = ticket_session(w, d, t);
    struct session_view v;

    return w->cfg.tight == 3 && !t->left && t->step > w->d[d].engine[s->engine].min_done &&
           core_session_view(w->d[d].core, s->id.slot, &v) && session_id_equal(v.id, s->id) &&
           strcmp(v.state_word, "handed_over") == 0;
}

static void expire(struct sim *w, uint32_t d, struct tk *t)
{
    t->ends = 1;
    w->tickets[d]->expired[ticket_session(w, d, t)->tenant]++;
    MARK(ticket_expired);
    if (t->served)
        MARK(ticket_expired_while_served);
}

/* The deadline of a promise waits while somebody follows it. */
static void promise_after(struct sim *w, uint32_t d, struct tk *t)
{
    if (session_ends(w, d, ticket_session(w, d, t)))
        return; /* the abort or the close of this step came first */
    if (!t->ends && w->now >= t->until && t->served)
        MARK(promise_outlasts_its_time);
    if (!t->ends && w->now >= t->until && !t->served)
        expire(w, d, t);
    if (t->ends)
        promise_over(w, d, ticket_session(w, d, t));
}

static void after(struct sim *w, uint32_t d, struct tk *t)
{
    struct session *s = ticket_session(w, d, t);

    if (t->promised) {
        promise_after(w, d, t);
        return;
    }
    if (!t->left && (!t->ends || t->served) && step_passed(w, d, t) && core_has_left(w, d, s)) {
        t->left = 1;
        TRACE("  daemon %u: ticket %u.%u leaves its engine\n", d, s->id.slot, s->id.gen);
        records_session_over(w, d, s);
    }
    if (!t->ends && w->now >= t->until)
        expire(w, d, t);
    EXPECT(!pool_closes(w, d, s), "ticket_pool_closed", "pool %u closes under ticket %u.%u",
           s->pool, s->id.slot, s->id.gen);
    if (t->ends && t->still)
        t->served = 0;
    if (t->ends && !t->served && !t->sealing && !waits_for_record(w, d, t))
        end(w, d, t);
}

void tickets_after(struct sim *w, uint32_t d)
{
    struct tickets *m = w->tickets[d];

    if (!w->cfg.ticket_ms)
        return;
    if (m->judged && !m->told)
        ticket_accepted(w, d);
    m->judged = NULL;
    memset(m->let_go, 0, sizeof m->let_go);
    for (uint32_t i = 0; i < SESSIONS && m->n > 0; i++)
        if (m->tk[i].stands)
            after(w, d, &m->tk[i]);
}

bool ticket_outlives(struct sim *w, uint32_t d, uint32_t i)
{
    if (!w->tickets[d]->tk[i].stands)
        return false;
    if (w->tickets[d]->tk[i].promised) {
        w->tickets[d]->outlasted[w->d[d].session[i].tenant] +=
            w->cfg.give_back && w->now >= w->tickets[d]->tk[i].until;
        MARK(promise_ends_with_engine);
        return false;
    }
    if (w->tickets[d]->tk[i].left) {
        MARK(ticket_outlives_engine);
        return true;
    }
    MARK(ticket_ends_with_engine);
    follow_promise_over(w, d, &w->tickets[d]->tk[i]);
    ticket_forget(w, d, i);
    return false;
}

/* E3: no checksum of pages that a step may still write. */
void ticket_seal(struct sim *w, uint32_t d, const struct action *act)
{
    for (uint32_t i = 0; i < SESSIONS; i++) {
        struct tk *t = &w->tickets[d]->tk[i];
        const struct session *s = &w->d[d].session[i];

        if (!t->stands || t->promised || s->id.slot + w->limits.nodes != act->seal.job.slot)
            continue;
        EXPECT(t->left || step_passed(w, d, t), "ticket_sealed_early",
               "ticket %u.%u waits for step %u", s->id.slot, s->id.gen, t->step);
        t->sealing = 1;
        return;
    }
    w->tickets[d]->early = act->seal.job; /* the answer to the Handoff is in the same step */
}

void ticket_sealed_now(struct sim *w, uint32_t d, uint64_t job)
{
    uint32_t slot = seal_id_unpack(job).slot - w->limits.nodes;

    for (uint32_t i = 0; i < SESSIONS; i++)
        if (w->tickets[d]->tk[i].stands && !w->tickets[d]->tk[i].promised &&
            w->d[d].session[i].id.slot == slot) {
            w->tickets[d]->tk[i].sealing = 0;
            w->tickets[d]->tk[i].sealed = 1;
        }
}

/* --- handing over --- */

/* Why the session cannot be handed over, as far as the model is sure. */
static enum tern_err handoff_expected(struct sim *w, uint32_t d, const struct session *s)
{
    if (s->turn == TURN_FETCHING || s->turn == TURN_LOADING)
        return TERN_BUSY;
    if (s->turn == TURN_AWAY)
        return TERN_INVALID;
    if (!space_current(w, d, s->tenant, s->space))
        return TERN_GONE;
    if (s->turn == TURN_NEW || s->written == 0 || s->written - s->committed >= w->L)
        return TERN_INVALID;
    return TERN_OK;
}

/* Does the table lack a part of the STATE at the written length? It must be whole segments of the
 * path, and the session's own pages behind them. */
static bool lacks_window(struct sim *w, uint32_t d, const struct session *s, uint32_t g)
{
    uint32_t first = window_begin(w, d, g, s->written), chunk = first * w->page_tokens[d][g] / w->L,
             whole = seg_first(w, d, g, chunk + 1),
             needed = s->written % w->L == 0 && whole < first ? whole : first;

    if (needed * w->page_tokens[d][g] + w->window[g] < s->whole_from)
        return true; /* its first page arrived only in part */
    if (s->base[g] > first)
        return s->base[g] * w->page_tokens[d][g] % w->L != 0;
    return s->written % w->L == 0 && s->base[g] > seg_first(w, d, g, chunk + 1);
}

/* `surely`: STATE that may exist counts, though no answer has named it. */
static bool lacks_state(struct sim *w, uint32_t d, const struct session *s, bool surely)
{
    const struct chunk *c =
        s->committed == 0 ? NULL
                          : chunk_at(w, d, s->pool, s->space, s->variant, s->committed / w->L);

    if (w->cfg.nstate && !state_window_whole(w, d, s, s->written))
        return true;
    for (STATE_GROUPS(w, g)) {
        if (recurrent(w, g) && !s->top[g] && (!c || s->written != s->committed))
            return true;
        /* A refill is not readable before its step; STATE that came with the chunk is. */
        if (recurrent(w, g) && !s->top[g] && s->resumed != s->committed &&
            (c->has[g] ? chunk_visible(w, d, c) && !state_visible_of(w, d, c, g)
                       : !surely || !c->maybe[g]))
            return true;
        if (!recurrent(w, g) && lacks_window(w, d, s, g))
            return true;
    }
    return false;
}

/* The uid of the next ticket. */
static uint32_t uid_next(const struct sim *w)
{
    return w->tickets[0]->uid + w->tickets[1]->uid + 1;
}

static void blob_choose(struct sim *w, struct req_handoff *r, uint32_t *words, uint32_t uid)
{
    uint32_t n = chance(w, 40) ? 0 : 1 + pick(w, BLOB_WORDS);

    for (uint32_t i = 0; i < n; i++)
        words[i] = blob_word(uid, i);
    r->blob_bytes = n * 4 - (n > 0 ? pick(w, 4) : 0);
    r->blob = (struct req_tokens){.v = words, .n = n};
    if (chance(w, 1)) /* more than a blob may have */
        r->blob_bytes = TICKET_BLOB_BYTES + 1;
}

/* The last step that writes its pages; now and then a later one. */
static uint32_t handoff_step(struct sim *w, uint32_t d, const struct session *s)
{
    if (chance(w, 12))
        return w->d[d].engine[s->engine].step + 1;
    return release_step(w, d, s);
}

static uint32_t stands_ms(const struct sim *w, uint32_t wanted)
{
    return wanted == 0 || wanted > w->cfg.ticket_ms ? w->cfg.ticket_ms : wanted;
}

static struct shown *shown_take(struct sim *w, uint32_t d)
{
    struct tickets *m = w->tickets[d];
    uint32_t at;

    while (m->shown[m->next_shown].uid && ticket_of(w, d, &m->shown[m->next_shown].ticket))
        m->next_shown = (m->next_shown + 1) % SHOWN;
    at = m->next_shown;
    m->next_shown = (at + 1) % SHOWN; /* a fetch by an ended one may still be answered */
    return &m->shown[at];
}

static bool has_own(const struct sim *w, const struct session *s)
{
    bool own = s->written > s->committed;

    for (STATE_GROUPS(w, g))
        own |= s->top[g] > s->base[g] || (recurrent(w, g) && s->top[g]);
    return own;
}

static void check_made(struct sim *w, uint32_t d, const struct session *s,
                       const struct ticket *made, uint32_t length, const uint64_t key[2])
{
    EXPECT(session_id_equal(made->id, s->id) && made->incarnation == w->d[d].incarnation &&
               made->length == length && made->key[0] == key[0] && made->key[1] == key[1],
           "ticket_made", "ticket %u.%u of %u tokens for session %u.%u of %u", made->id.slot,
           made->id.gen, made->length, s->id.slot, s->id.gen, length);
}

/* The ticket exists: a new one, or the promised one. */
static struct tk *made(struct sim *w, uint32_t d, struct session *s, const struct ticket *ticket)
{
    struct tickets *m = w->tickets[d];
    struct tk *t = &m->tk[s - w->d[d].session];
    struct shown *shown;

    if (t->stands)
        return t;
    shown = shown_take(w, d);
    *shown = (struct shown){.ticket = *ticket,
                            .uid = uid_next(w),
                            .daemon = (uint8_t)d,
                            .tenant = s->tenant,
                            .ns = s->ns};
    *t = (struct tk){.stands = 1, .shown = (uint8_t)(shown - m->shown)};
    m->n++;
    m->uid++;
    m->made[s->tenant]++;
    return t;
}

static void handed(struct sim *w, uint32_t d, struct session *s, const struct req_handoff *r)
{
    struct tickets *m = w->tickets[d];
    struct tk *t = &m->tk[s - w->d[d].session];
    const struct reply *p = w->reply;
    uint32_t step = late_step(s, (uint32_t)r->step);

    /* The promise ended before the request arrived: it had expired, and its last follower had left
     * in the step before. The peer learns of that in this step. */
    if (t->stands && t->promised && !t->served && w->now >= t->until &&
        p->handoff.ticket.key[0] == r->key[0]) {
        expire(w, d, t);
        promise_over(w, d, s);
    }
    check_made(w, d, s, &p->handoff.ticket, s->written,
               t->stands ? shown_of(w, d, t)->ticket.key : r->key);
    EXPECT(p->handoff.deadline_ms == stands_ms(w, r->deadline_ms), "ticket_deadline",
           "%u ms for %u", p->handoff.deadline_ms, r->deadline_ms);
    if (s->gate == GATE_CLAIMED || s->gate == GATE_CLOSING) {
        records_turn_over(w, d, s, true);
        s->old_turn = s->handle;
    }
    s->handle = s->id;
    s->gate = GATE_OPEN;
    s->close_request = 0;
    trim(w, d, s, s->written, step);
    state_hand_over(w, d, s, step);
    if (s->ntokens > s->written)
        follow_cut(w, d, s, s->written);
    s->ntokens = s->written;
    s->turn = TURN_HANDED;
    if (t->stands)
        MARK(promise_kept);
    t = made(w, d, s, &p->handoff.ticket);
    shown_of(w, d, t)->blob_bytes = r->blob_bytes;
    shown_of(w, d, t)->variant = s->variant;
    t->promised = 0;
    t->own = has_own(w, s);
    t->step = step;
    t->until = w->now + p->handoff.deadline_ms * MS;
    t->sealing = m->early.gen == s->id.gen && m->early.slot == s->id.slot + w->limits.nodes;
    EXPECT(!t->sealing || step_passed(w, d, t), "ticket_sealed_early",
           "ticket %u.%u waits for step %u", s->id.slot, s->id.gen, step);
    after(w, d, t);
    MARK(handoff);
    if (step > w->d[d].engine[s->engine].step)
        MARK(handoff_step_to_come);
    if (s->written > s->committed)
        MARK(handoff_with_tail);
}

bool ask_ticket_open(struct sim *w, uint32_t d, uint32_t i)
{
    struct session *s = &w->d[d].session[i];
    uint32_t conn = engine_conn(w, d, s->engine), wanted = chance(w, 50) ? 0 : 1 + pick(w, 400);
    struct tk *t = &w->tickets[d]->tk[i];
    const struct reply *p;
    struct event ev;

    if (!s->live || conn == NO || w->d[d].engine[s->engine].dying || s->deaf)
        return false;
    request_init(w, d, &ev, OP_TICKET_OPEN, conn);
    ev.request.ticket_open = (struct req_ticket_open){
        .session = s->handle, .deadline_ms = wanted, .key = {pick(w, NONE) + 1ull, pick(w, NONE)}};
    if (t->stands && space_current(w, d, s->tenant, s->space)) /* its follower may end there */
        t->until = w->now + STEP_NS + stands_ms(w, wanted) * MS;
    sim_ask(w, d, &ev, "ticket_open_answer");
    p = w->reply;
    TRACE("  daemon %u opens a ticket of session %u.%u (committed %u written %u): err %u\n", d,
          s->id.slot, s->id.gen, s->committed, s->written, p->err);
    if (!space_current(w, d, s->tenant, s->space)) {
        EXPECT(p->err == TERN_GONE, "ticket_open_of_reset", "err %u", p->err);
        return false;
    }
    EXPECT(p->err == TERN_OK, "ticket_open_refused", "err %u %s", p->err, p->text);
    check_made(w, d, s, &p->ticket_open.ticket, 0,
               t->stands ? shown_of(w, d, t)->ticket.key : ev.request.ticket_open.key);
    EXPECT(p->ticket_open.deadline_ms == stands_ms(w, wanted), "ticket_deadline", "%u ms for %u",
           p->ticket_open.deadline_ms, wanted);
    if (t->stands)
        MARK(promise_repeated);
    t = made(w, d, s, &p->ticket_open.ticket);
    t->promised = 1;
    t->until = w->now + p->ticket_open.deadline_ms * MS;
    MARK(promise);
    return true;
}

bool ask_handoff(struct sim *w, uint32_t d, uint32_t i)
{
    struct session *s = &w->d[d].session[i];
    const struct tk *t = &w->tickets[d]->tk[i];
    uint32_t conn = engine_conn(w, d, s->engine), words[BLOB_WORDS];
    enum tern_err want;
    bool unsure;
    struct event ev;

    if (!s->live || conn == NO || w->d[d].engine[s->engine].dying || s->deaf || s->lame ||
        may_be_undone(w, d, s))
        return false;
    queue_copies(w, d, s);
    request_init(w, d, &ev, OP_HANDOFF, conn);
    ev.request.handoff = (struct req_handoff){.session = s->handle,
                                              .step = handoff_step(w, d, s),
                                              .deadline_ms = chance(w, 60) ? 0 : 1 + pick(w, 400),
                                              .key = {pick(w, NONE) + 1ull, pick(w, NONE)}};
    blob_choose(w, &ev.request.handoff, words, t->stands ? shown_of(w, d, t)->uid : uid_next(w));
    want = handoff_expected(w, d, s);
    if (want == TERN_OK &&
        (lacks_state(w, d, s, true) || ev.request.handoff.blob_bytes > TICKET_BLOB_BYTES))
        want = TERN_INVALID;
    unsure = want == TERN_OK && lacks_state(w, d, s, false);
    /* The hand-over ends a turn, so a waiting close is answered. A session that fetches is not
     * handed over: its fetch may end in this step. */
    s->ending = s->turn != TURN_FETCHING;
    if (ev.request.handoff.blob_bytes > 0 && !w->ample)
        w->d[d].pool[s->pool].evictions++;
    sim_ask(w, d, &ev, "handoff_answer");
    s->ending = 0;
    TRACE("  daemon %u hands session %u.%u over (committed %u written %u), step %u: err %u %s\n", d,
          s->id.slot, s->id.gen, s->committed, s->written, (uint32_t)ev.request.handoff.step,
          w->reply->err, w->reply->text);
    if (w->reply->err == TERN_BUSY && want == TERN_OK) {
        check_busy_handoff(w, d, s, &ev.request.handoff, w->reply);
        return false;
    }
    if (unsure && w->reply->err == TERN_INVALID)
        want = TERN_INVALID;
    EXPECT(w->reply->err == want, "handoff_refused", "err %u %s, not %u: committed %u written %u",
           w->reply->err, w->reply->text, want, s->committed, s->written);
    if (want == TERN_OK)
        handed(w, d, s, &ev.request.handoff);
    else
        MARK(handoff_refused);
    return want == TERN_OK;
}

/* --- renewing and dropping --- */

static void forge(struct sim *w, struct ticket *t)
{
    switch (pick(w, 4)) {
    case 0: t->key[pick(w, 2)] ^= 1ull << pick(w, 64); break;
    case 1: t->id.gen--; break;
    case 2: t->incarnation++; break;
    default: t->length++; break;
    }
}

/* The answer to a request that shows this ticket. */
enum tern_err shown_expected(struct sim *w, uint32_t d, const struct ticket *t, uint32_t tenant)
{
    const struct tk *tk = ticket_of(w, d, t);
    const struct ticket *mine;

    if (!tk)
        return TERN_GONE;
    mine = &shown_of(w, d, tk)->ticket;
    if (mine->key[0] != t->key[0] || mine->key[1] != t->key[1] ||
        shown_of(w, d, tk)->tenant != tenant)
        return TERN_DENIED;
    if (t->length != 0 && (tk->promised || t->length != ticket_session(w, d, tk)->written))
        return TERN_DENIED;
    if (tk->promised &&
        !space_current(w, d, shown_of(w, d, tk)->tenant, ticket_session(w, d, tk)->space))
        return TERN_GONE; /* Y1 */
    return tk->ends ? TERN_GONE : TERN_OK;
}

static uint32_t engine_of_tenant(struct sim *w, uint32_t d, uint32_t tenant)
{
    for (uint32_t e = pick(w, ENGINES), i = 0; i < ENGINES; i++, e = (e + 1) % ENGINES) {
        const struct engine *g = &w->d[d].engine[e];

        if (engine_conn(w, d, e) != NO && !g->dying && g->tenant == tenant &&
            g->seen == (1u << g->nprocs) - 1)
            return e;
    }
    return NO;
}

/* Shows the ticket in a request of its own. `ret_want`: the required answer. */
static bool show(struct sim *w, uint32_t d, bool forged, struct event *ev, enum op op,
                 enum tern_err *ret_want)
{
    const struct shown *shown = ticket_pick(w, d);
    uint32_t e, tenant;

    if (!shown)
        return false;
    tenant = forged && w->cfg.tenants == 2 && chance(w, 40) ? 1 - shown->tenant : shown->tenant;
    e = engine_of_tenant(w, d, tenant);
    if (e == NO)
        return false;
    request_init(w, d, ev, op, engine_conn(w, d, e));
    ev->request.ticket_renew = (struct req_ticket){.ticket = shown->ticket};
    if (forged && tenant == shown->tenant)
        forge(w, &ev->request.ticket_renew.ticket);
    *ret_want = shown_expected(w, d, &ev->request.ticket_renew.ticket, tenant);
    return true;
}

static void told_marks(struct sim *w, enum tern_err err)
{
    if (err == TERN_DENIED)
        MARK(ticket_denied);
    if (err == TERN_GONE)
        MARK(ticket_gone);
}

void ask_renew(struct sim *w, uint32_t d, bool forged)
{
    uint32_t wanted = chance(w, 50) ? 0 : 1 + pick(w, 400), ms = stands_ms(w, wanted);
    enum tern_err want;
    struct event ev;
    struct tk *t;

    if (!show(w, d, forged, &ev, OP_TICKET_RENEW, &want))
        return;
    ev.request.ticket_renew.deadline_ms = wanted;
    t = want == TERN_OK ? ticket_of(w, d, &ev.request.ticket_renew.ticket) : NULL;
    if (t)
        t->until = w->now + STEP_NS + ms * MS;
    sim_ask(w, d, &ev, "renew_answer");
    EXPECT(w->reply->err == want, "renew_refused", "err %u, not %u: %s", w->reply->err, want,
           w->reply->text);
    told_marks(w, want);
    if (!t)
        return;
    EXPECT(w->reply->ticket_renew.deadline_ms == ms, "ticket_deadline", "%u ms for %u",
           w->reply->ticket_renew.deadline_ms, wanted);
    MARK(ticket_renewed);
}

void ask_drop(struct sim *w, uint32_t d, bool forged)
{
    enum tern_err want;
    struct event ev;
    struct tk *t;

    if (!show(w, d, forged, &ev, OP_TICKET_DROP, &want))
        return;
    t = want == TERN_OK ? ticket_of(w, d, &ev.request.ticket_drop.ticket) : NULL;
    if (t) {
        w->tickets[d]->dropped[ticket_session(w, d, t)->tenant]++;
        t->ends = 1;
        if (t->promised)
            follow_promise_over(w, d, t);
        if (t->served)
            MARK(ticket_dropped_while_served);
        MARK(ticket_dropped);
    }
    sim_ask(w, d, &ev, "drop_answer");
    EXPECT(w->reply->err == want, "drop_refused", "err %u, not %u: %s", w->reply->err, want,
           w->reply->text);
    told_marks(w, want);
}

uint64_t ticket_near(const struct sim *w, uint64_t from, uint64_t to)
{
    uint64_t last = from;

    for (uint32_t d = 0; d < DAEMONS && w->cfg.ticket_ms; d++)
        for (uint32_t i = 0; i < SESSIONS && w->tickets[d]->n > 0; i++) {
            const struct tk *t = &w->tickets[d]->tk[i];

            if (t->stands && !t->ends && t->until <= to && t->until > last)
                last = t->until;
        }
    return last;
}

bool ticket_done_comes(const struct sim *w, uint32_t source)
{
    const struct link *l = &w->link[1 - source];

    for (uint32_t i = 0; i < l->n[0]; i++) {
        const struct peer_msg *m = &l->queue[0][(l->head[0] + i) % QUEUE].msg;

        if (m->kind == PEER_PULL_DONE && m->err == TERN_OK && m->ticket.id.gen != 0)
            return true;
    }
    return false;
}

/* --- tickets in the core, when no work is left over --- */

static void check_pages(struct sim *w, uint32_t d)
{
    struct pool_view v;

    for (uint32_t p = 0; p < POOLS; p++) {
        const struct pool *pl = &w->d[d].pool[p];
        uint32_t n[GROUPS] = {0};

        if (!pl->open || pl->closing || pl->base == UINT32_MAX ||
            !core_pool_view(w->d[d].core, pl->id.slot, &v))
            continue;
        for (uint32_t i = pl->base; i < pl->base + pl->granules; i++) {
            const struct granule *g = &w->d[d].granule[pl->tenant][i];

            if (g->own == OWN_SESSION && w->tickets[d]->tk[g->owner].stands &&
                !w->tickets[d]->tk[g->owner].promised)
                n[g->group]++;
        }
        for (uint32_t g = 0; g < w->ngroups; g++)
            EXPECT(v.group[g].ticket * w->page_granules[g] == n[g], "ticket_pages",
                   "pool %u group %u: %u pages are tickets', the model has %u granules", p, g,
                   v.group[g].ticket, n[g]);
    }
}

void tickets_check(struct sim *w, uint32_t d)
{
    const struct tickets *m = w->tickets[d];
    uint32_t standing[TENANTS] = {0};
    struct tickets_view v;

    if (core_deadline(w->d[d].core) <= w->now)
        return;
    for (uint32_t i = 0; i < SESSIONS; i++) {
        const struct tk *t = &m->tk[i];

        standing[w->d[d].session[i].tenant] += t->stands;
        EXPECT(!t->stands || t->promised || t->left || t->ends || !step_passed(w, d, t),
               "ticket_leaves_late", "session %u: its step has passed, and an engine has it", i);
    }
    for (uint32_t t = 0; t < w->cfg.tenants; t++) {
        v = core_tenant_view(w->d[d].core, t).tickets;
        EXPECT(v.standing == standing[t] && v.made == m->made[t] && v.taken == m->taken[t] &&
                   v.dropped == m->dropped[t] && v.expired >= m->expired[t] &&
                   v.expired <= m->expired[t] + m->outlasted[t],
               "ticket_counts",
               "tenant %u: %u stand, %u made, %u taken, %u dropped, %u expired; the model has %u, "
               "%u, %u, %u, %u",
               t, (unsigned)v.standing, (unsigned)v.made, (unsigned)v.taken, (unsigned)v.dropped,
               (unsigned)v.expired, standing[t], (unsigned)m->made[t], (unsigned)m->taken[t],
               (unsigned)m->dropped[t], (unsigned)m->expired[t]);
    }
    check_pages(w, d);
}
