/* Fetches by ticket (Y2, Y4, Y6): the engine's requests, and the checks of their answers: the exact
 * length, every byte of the tail, the STATE to resume there, the blob, and no second winner of a
 * ticket. Also the answers to a ticket that is shown without a right to it. */
#include "causes.h"
#include "disk.h"
#include "tickets.h"

#include "oracle/oracle.h"

/* --- asking --- */

/* A session of that tenant and namespace whose list does not matter yet. */
static uint32_t empty_session(struct sim *w, uint32_t d, uint32_t tenant, uint32_t ns)
{
    uint32_t at = pick(w, SESSIONS), set = sessions_usable(&w->d[d], 1u << TURN_NEW, ENGINES_ALL);

    while (set) {
        uint32_t i = session_next(&set, at);
        const struct session *s = &w->d[d].session[i];

        if (s->tenant == tenant && s->ns == ns && s->allocated == 0 && !s->deaf &&
            space_current(w, d, tenant, s->space) && engine_conn(w, d, s->engine) != NO &&
            !w->d[d].engine[s->engine].dying)
            return i;
    }
    return NO;
}

/* A session that has some of the tokens already, and pages of its own behind them. */
static uint32_t begun_session(struct sim *w, uint32_t d, const struct shown *of, uint32_t n)
{
    uint32_t at = pick(w, SESSIONS),
             set = sessions_usable(&w->d[d], 1u << TURN_OPEN | 1u << TURN_FINISHED, ENGINES_ALL);

    while (set) {
        uint32_t i = session_next(&set, at);
        const struct session *s = &w->d[d].session[i];

        if (s->tenant == of->tenant && s->ns == of->ns && s->ntokens == n &&
            s->written < s->ntokens && w->common[s->variant][of->variant] >= s->ntokens)
            return i;
    }
    return NO;
}

static uint32_t find_session(struct sim *w, uint32_t d, uint32_t tenant, uint32_t ns)
{
    uint32_t i = empty_session(w, d, tenant, ns);

    for (uint32_t n = 0; n < 6 && i == NO; n++) {
        uint32_t e = pick(w, ENGINES);

        if (w->d[d].engine[e].used && w->d[d].engine[e].tenant == tenant)
            ask_open(w, d, e);
        i = empty_session(w, d, tenant, ns);
    }
    return i;
}

/* Forges the ticket that is shown. */
static void spoil(struct sim *w, struct tfetch *f)
{
    struct ticket *t = &f->of.ticket;

    f->forged = 1;
    switch (pick(w, t->length > 1 ? 4 : 3)) {
    case 0: t->key[pick(w, 2)] ^= 1ull << pick(w, 64); return;
    case 1: t->id.gen--; return;
    case 2: t->incarnation++; return;
    default: t->length = 1 + pick(w, t->length - 1); return;
    }
}

static void send(struct sim *w, uint32_t d, uint32_t i, struct tfetch *f)
{
    struct session *s = &w->d[d].session[i];
    uint32_t conn = engine_conn(w, d, s->engine);
    struct event ev;

    if (!s->live || conn == NO || w->d[d].engine[s->engine].dying || s->deaf || s->lame ||
        s->turn == TURN_NEW || s->turn >= TURN_FETCHING)
        return;
    for (STATE_GROUPS(w, g)) /* as for any fetch: see ask_fetch */
        if (s->allocated == s->committed && s->top[g] > s->base[g])
            return;
    give_back_all(w, d);
    f->local = f->of.ticket.incarnation == w->d[d].incarnation && !ticket_moves(w, d, s, f);
    f->want = f->local ? ticket_local_expected(w, d, s, f) : TERN_OK;
    w->tickets[d]->fetch[i] = *f;
    request_init(w, d, &ev, OP_FETCH, conn);
    ev.request.fetch =
        (struct req_fetch){.session = s->handle, .ticket = f->of.ticket, .follow = f->follow};
    s->fetch_prefetch = 0;
    s->fetch_host = s->fetch_disk = s->fetch_bad_peer = 0;
    s->fetch_at_least = 0;
    s->fetch_depth = s->ntokens;
    s->disk_depth = 0;
    TRACE("  daemon %u fetches session %u by ticket %u.%u of %u tokens%s%s\n", d, i,
          f->of.ticket.id.slot, f->of.ticket.id.gen, f->of.ticket.length,
          f->forged ? ", forged" : "", f->follow ? ", follows" : "");
    fetch_send(w, d, s, &ev, conn);
}

/* The sequence of the session behind the ticket. */
static uint32_t shown_variant(struct sim *w, uint32_t d, const struct shown *of)
{
    const struct tk *t = ticket_of(w, d, &of->ticket);

    return t ? ticket_session(w, d, t)->variant : of->variant;
}

/* A session at the other daemon, now and then at this one, fetches what the daemon has handed over,
 * or will. */
void ask_ticket(struct sim *w, uint32_t d, bool follow)
{
    const struct shown *of = ticket_pick(w, d);
    uint32_t to = sim_far(w, d), tenant, i = NO, variant, n;
    struct tfetch f = {.on = 1, .follow = follow};

    if (!of)
        return;
    f.of = *of;
    variant = shown_variant(w, d, of);
    n = ticket_length(w, d, of);
    tenant = w->cfg.tenants == 2 && chance(w, 15) ? 1 - of->tenant : of->tenant;
    if (chance(w, 15))
        to = d;
    if (tenant == of->tenant && chance(w, 12))
        spoil(w, &f);
    else if (tenant == of->tenant && chance(w, 6))
        variant = pick(w, w->cfg.variants);
    if (tenant == of->tenant && !f.forged && chance(w, 30))
        i = begun_session(w, to, of, n);
    if (i == NO) {
        i = find_session(w, to, tenant, of->ns);
        if (i == NO)
            return;
        match_these(w, to, i, variant, n + (chance(w, 3) ? 1 : 0));
    }
    send(w, to, i, &f);
}

/* An engine whose pool has the same ranks, or one whose layout pages are resharded to. */
static uint32_t engine_like(struct sim *w, uint32_t d, const struct session *of, uint32_t ranks)
{
    for (uint32_t e = 0; e < ENGINES; e++) {
        const struct engine *g = &w->d[d].engine[e];

        if (g->used && !g->dying && g->tenant == of->tenant && g->pool != NO &&
            g->mapped == (1u << g->nprocs) - 1 &&
            (w->cfg.heads > 0 || w->d[d].pool[g->pool].ranks == ranks) &&
            engine_conn(w, d, e) != NO)
            return e;
    }
    return NO;
}

uint32_t ticket_fetch_last(struct sim *w, uint32_t d, uint32_t i)
{
    const struct tk *t = &w->tickets[d]->tk[i];
    const struct session *from = &w->d[d].session[i];
    struct tfetch f = {.on = 1};
    uint32_t e, by = NO;

    if (!t->stands || t->promised || !ticket_ready(w, d, t) || t->ends ||
        w->d[sim_far(w, d)].draining)
        return NO;
    e = engine_like(w, sim_far(w, d), from, w->d[d].pool[from->pool].ranks);
    for (uint32_t n = 0; n < 8 && e != NO && by == NO; n++) {
        ask_open(w, sim_far(w, d), e);
        by = empty_session(w, sim_far(w, d), from->tenant, from->ns);
    }
    if (by == NO || w->d[sim_far(w, d)].session[by].engine != e)
        return NO;
    f.of = *shown_of(w, d, t);
    match_these(w, sim_far(w, d), by, from->variant, from->written);
    send(w, sim_far(w, d), by, &f);
    return by;
}

void ticket_came_last(struct sim *w, uint32_t d, uint32_t i, uint32_t by)
{
    const struct tk *t = &w->tickets[d]->tk[i];
    const struct session *s = &w->d[sim_far(w, d)].session[by];
    const struct asked *a =
        s->fetch_pull.slot == NONE ? NULL : ticket_asked(w, sim_far(w, d), s->fetch_pull);

    if (!t->stands) {
        MARK(ticket_came_last);
        return;
    }
    EXPECT(!a || a->answer == TERN_POOL_EXHAUSTED || a->answer == TERN_QUOTA ||
               a->answer == TERN_BUSY,
           "ticket_lost_last", "ticket %u.%u stands, and a fetch is told %u", t->serve.slot,
           t->serve.gen, a->answer);
    MARK(ticket_came_not);
}

/* Is the fetch still under way? */
static bool asked_now(const struct sim *w, uint32_t d, const struct asked *a)
{
    for (uint32_t i = 0; i < SESSIONS && a->pull.gen; i++)
        if (w->d[d].session[i].turn == TURN_FETCHING &&
            pull_id_equal(w->d[d].session[i].fetch_pull, a->pull))
            return true;
    return false;
}

void ticket_opened(struct sim *w, uint32_t d, const struct peer_msg *msg, const struct session *s)
{
    struct tickets *m = w->tickets[d];
    const struct tfetch *f = &m->fetch[s - w->d[d].session];
    struct asked *a = ticket_asked(w, d, msg->pull);

    if (!w->cfg.ticket_ms || msg->ticket.id.gen == 0 || a)
        return;
    EXPECT(msg->follow == (f->follow != 0), "follow_asked", "follow is %u", msg->follow);
    for (uint32_t i = 0; i < ASKED && asked_now(w, d, &m->asked[m->next_asked % ASKED]); i++)
        m->next_asked++;
    a = &m->asked[m->next_asked++ % ASKED];
    *a = (struct asked){.pull = msg->pull,
                        .of = f->of,
                        .to = msg->to,
                        .follow = f->follow,
                        .since = s->fetch_since,
                        .tenant = s->tenant,
                        .variant = s->variant,
                        .ns = s->ns,
                        .ranks = w->d[d].pool[s->pool].ranks,
                        .forged = f->forged};
}

/* The least timeout of a transfer by ticket. */
static uint64_t time_least(const struct sim *w)
{
    return w->limits.ticket_deadline_ns < w->limits.transfer_deadline_ns
               ? w->limits.ticket_deadline_ns
               : w->limits.transfer_deadline_ns;
}

void ticket_page_refused(struct sim *w, uint32_t d, struct pull_id pull)
{
    const uint64_t most = w->now + PULL_WORD_MS_MAX * NS_PER_MS;
    struct asked *a = ticket_asked(w, d, pull);

    if (!a)
        return;
    a->word_ns = a->since + time_least(w);
    a->word_ns = a->word_ns < most ? a->word_ns : most;
}

/* The source has not sent the cause of its refusal of a page, and the time for that is over. */
static bool unsaid(const struct sim *w, const struct asked *a)
{
    return a->word_ns > 0 && w->now >= a->word_ns;
}

struct asked *ticket_asked(struct sim *w, uint32_t d, struct pull_id pull)
{
    for (uint32_t i = 0; i < ASKED && w->cfg.ticket_ms; i++)
        if (w->tickets[d]->asked[i].pull.gen && pull_id_equal(w->tickets[d]->asked[i].pull, pull))
            return &w->tickets[d]->asked[i];
    return NULL;
}

/* The router's entry of the ticket. NULL: it was given long ago. */
static struct shown *shown_by(const struct sim *w, const struct shown *of)
{
    struct shown *at = w->tickets[of->daemon]->shown;

    for (uint32_t i = 0; i < SHOWN; i++)
        if (at[i].uid == of->uid)
            return &at[i];
    return NULL;
}

/* Has another fetch taken the ticket? */
static bool has_winner(const struct sim *w, const struct shown *of)
{
    const struct shown *known = shown_by(w, of);

    return known && known->won;
}

/* Y2: success consumes it. If the last message may be lost, the source does not know of it. */
static void check_winner(struct sim *w, const struct shown *taken)
{
    struct shown *of = shown_by(w, taken);
    uint32_t winner = sim_far(w, taken->daemon); /* the daemon that dialled */

    EXPECT(!has_winner(w, taken) || w->link[winner].lossy, "ticket_taken_twice", "ticket %u.%u",
           taken->ticket.id.slot, taken->ticket.id.gen);
    if (of)
        of->won = 1;
}

/* Y6: the source learns the same outcome as the engine. */
void ticket_done(struct sim *w, uint32_t d, const struct peer_msg *msg)
{
    const struct asked *a = ticket_asked(w, d, msg->pull);

    if (a && !a->answered && msg->err == TERN_OK) /* the engine learns it from its next Match */
        check_winner(w, &a->of);
    if (!a || !a->answered)
        return;
    EXPECT((msg->err == TERN_OK) == (a->answer == TERN_OK), "ticket_two_winners",
           "the engine was told %u, the source %u", a->answer, msg->err);
}

/* --- the answer --- */

/* Y5: a fetch that follows allocates its pages first. Did it reach that point? */
static bool began(const struct reply *r)
{
    return r->err == TERN_POOL_EXHAUSTED || r->err == TERN_QUOTA || r->err == TERN_TIMED_OUT ||
           busy_of_pull(r);
}

static void check_begun(struct sim *w, uint32_t d, const struct session *s, const struct reply *r)
{
    if (r->err == TERN_POOL_EXHAUSTED)
        MARK(follow_no_room);
    if (r->err == TERN_BUSY)
        check_busy_fetch(w, d, s, r);
    if (r->err == TERN_TIMED_OUT)
        EXPECT(w->now >= s->fetch_since + w->limits.ticket_deadline_ns, "follow_early", "%s",
               r->text);
}

/* The fetch was refused before a source was asked. */
static void refused(struct sim *w, uint32_t d, struct session *s, const struct tfetch *f,
                    const struct reply *r)
{
    const struct ticket *t = &f->of.ticket;
    s->turn = s->fetch_before;
    if (s->fetch_tail)
        fetch_tail_stays(w, s, r);
    if (f->follow && began(r)) {
        s->turn = TURN_OPEN;
        check_begun(w, d, s, r);
        return;
    }
    switch (r->err) {
    case TERN_INVALID:
        EXPECT(s->ntokens == 0 || (t->length != 0 && s->ntokens != t->length) ||
                   (s->fetch_tail && state_needs_own(w, d, s)),
               "ticket_fetch_invalid", "%s", r->text);
        return;
    case TERN_PEER_LOST:
        EXPECT(!w->link[d].up[0] && w->link[d].former != t->incarnation, "ticket_fetch_peer", "%s",
               r->text);
        return;
    case TERN_GONE:
        EXPECT(s->cancel_sent || !space_current(w, d, s->tenant, s->space) ||
                   has_winner(w, &f->of) ||
                   (w->link[d].up[0] && w->link[d].incarnation != t->incarnation) ||
                   w->link[d].former == t->incarnation,
               "ticket_fetch_gone", "%s", r->text);
        MARK(ticket_after_restart);
        return;
    case TERN_BUSY: check_busy_fetch(w, d, s, r); return;
    default: violation(w, "ticket_fetch_refused", "err %u %s", r->err, r->text);
    }
}

static void check_blob(struct sim *w, const struct shown *of, const struct reply *r)
{
    EXPECT(r->fetch.blob_bytes == of->blob_bytes && (of->blob_bytes == 0) == !r->fetch.blob,
           "ticket_blob", "%u bytes, not %u", r->fetch.blob_bytes, of->blob_bytes);
    for (uint32_t i = 0; i < (of->blob_bytes + 3) / 4; i++)
        EXPECT(r->fetch.blob[i] == blob_word(of->uid, i), "ticket_wrong_blob", "word %u", i);
    if (of->blob_bytes)
        MARK(ticket_with_blob);
}

void ticket_take(struct sim *w, uint32_t d, struct session *s, const struct tfetch *f,
                 const struct shown *of, uint32_t n, const struct reply *r)
{
    const struct lengths *l = &r->fetch.lengths;
    uint32_t before = s->committed;
    bool had = s->fetch_wrote >= n;

    EXPECT((!s->fetch_tail || had) && !f->forged && s->tenant == of->tenant && s->ntokens == n &&
               w->common[s->variant][of->variant] >= n,
           "ticket_given", "a fetch by a ticket that is not good is OK");
    EXPECT(l->written == n && l->allocated == n && r->fetch.tokens == n && l->committed <= n &&
               l->committed >= before && l->committed % w->L == 0,
           "ticket_length", "committed %u written %u allocated %u of %u tokens", l->committed,
           l->written, l->allocated, n);
    check_blob(w, of, r);
    check_winner(w, of);
    if (had) { /* only the blob has arrived */
        same_lengths(w, s, l, "ticket_had_all");
        MARK(ticket_had_all);
        return;
    }
    take_borrowed(w, d, s, before, l->committed, n, r->runs, r->nruns);
    state_arrived_at(w, d, s, before, l->committed, n, r->runs, r->nruns);
    if (!f->local && n > l->committed)
        state_whole_from(w, d, s, before, n);
    s->written = s->allocated = s->filled = n;
    fetch_owned(w, d, s, r);
    if (l->committed > before)
        state_fetched(w, d, s, l->committed / w->L);
    s->committed = l->committed;
    MARK(ticket_fetched);
    if (f->follow)
        MARK(follow_fetched);
    if (n > l->committed)
        MARK(ticket_with_tail);
    if (n > l->committed && w->cfg.nstate)
        MARK(ticket_with_state);
    if (f->follow && n > l->committed)
        MARK(follow_with_tail);
    if (f->follow && w->cfg.nstate)
        MARK(follow_with_state);
}

/* For a fetch that follows the model knows why it ended, and its deadline. */
static void check_followed(struct sim *w, uint32_t d, const struct session *s,
                           const struct asked *a, const struct reply *r)
{
    switch (r->err) {
    case TERN_GONE:
        EXPECT(s->cancel_sent || a->said == TERN_GONE || unsaid(w, a) || has_winner(w, &a->of) ||
                   a->of.ticket.incarnation != w->d[sim_far(w, d)].incarnation ||
                   !space_current(w, d, s->tenant, s->space),
               "follow_fetch_gone", "nobody said so");
        if (s->cancel_sent)
            MARK(follow_cancelled);
        return;
    case TERN_INVALID:
        EXPECT(a->said == TERN_INVALID && r->fetch.handed == a->handed, "follow_fetch_invalid",
               "the source said %u, and %u tokens, not %u", a->said, a->handed, r->fetch.handed);
        return;
    case TERN_TIMED_OUT:
        EXPECT(a->said == TERN_TIMED_OUT || w->now >= a->since + time_least(w),
               "follow_fetch_early", "after %llu ns", (unsigned long long)(w->now - a->since));
        MARK(follow_timed_out);
        return;
    case TERN_PEER_LOST: MARK(follow_peer_lost); return;
    case TERN_CORRUPT: MARK(follow_corrupt); return;
    default: return;
    }
}

/* The cause that the source sent, or an event on the way. */
static void check_failure(struct sim *w, uint32_t d, const struct session *s, const struct asked *a,
                          const struct reply *r)
{
    switch (r->err) {
    case TERN_GONE:
        if (has_winner(w, &a->of) && !s->cancel_sent)
            MARK(ticket_lost_to_another);
        EXPECT(s->cancel_sent || a->said == TERN_GONE || unsaid(w, a) || has_winner(w, &a->of) ||
                   !space_current(w, d, s->tenant, s->space),
               "ticket_fetch_gone", "nobody said so");
        if (s->cancel_sent)
            MARK(ticket_cancelled);
        return;
    case TERN_DENIED:
    case TERN_INVALID:
    case TERN_UNSUPPORTED:
        EXPECT(a->said == r->err, "ticket_fetch_err", "err %u, the source said %u", r->err,
               a->said);
        return;
    case TERN_PEER_LOST: MARK(ticket_peer_lost); return;
    case TERN_TIMED_OUT:
    case TERN_CORRUPT:
    case TERN_QUOTA:
    case TERN_POOL_EXHAUSTED:
        EXPECT(r->err != TERN_QUOTA || r->shortage.needed > r->shortage.free, "false_never", "%s",
               r->text);
        MARK(ticket_fetch_failed);
        return;
    default: EXPECT(r->err == TERN_BUSY, "ticket_fetch_err", "err %u %s", r->err, r->text);
    }
}

bool ticket_fetched(struct sim *w, uint32_t d, struct session *s, const struct reply *r)
{
    struct tfetch *of = &w->tickets[d]->fetch[s - w->d[d].session], f = *of;
    struct asked *a;

    if (!w->cfg.ticket_ms || !f.on)
        return false;
    of->on = 0;
    if (f.local) {
        ticket_local(w, d, s, &f, r);
        return true;
    }
    a = s->fetch_pull.slot == NONE ? NULL : ticket_asked(w, d, s->fetch_pull);
    if (!a) {
        refused(w, d, s, &f, r);
        return true;
    }
    a->answered = 1;
    a->answer = r->err;
    s->turn = TURN_OPEN;
    fetch_marks(w, d, s, r, s->committed);
    if (r->err == TERN_OK) {
        EXPECT(a->offered_all, "ticket_unoffered", "OK, and the source has not offered all of it");
        ticket_take(w, d, s, &f, &a->of, a->length, r);
        if (f.of.ticket.incarnation == w->d[d].incarnation)
            MARK(ticket_moved_here);
    } else {
        check_failure(w, d, s, a, r);
        if (f.follow)
            check_followed(w, d, s, a, r);
        if (f.follow && r->fetch.lengths.committed > s->committed)
            MARK(follow_keeps_part);
        fetch_take(w, d, s, r);
    }
    fetch_ended(w, d, s, r);
    return true;
}
