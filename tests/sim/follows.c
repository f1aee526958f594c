/* Transfers out that follow a session (Y4), in the model of the daemon that gave the ticket: the
 * allowed questions, what may be offered and when, and why a transfer ends. The source's last
 * message is judged when the destination receives it: the model knows the effect of a request on
 * the session only after its answer, and the source may send in the same step. */
#include "disk.h"
#include "tickets.h"

/* The last question that was accepted, which may be over: it ends in the step of the request whose
 * answer the model has not processed yet. */
static struct asked *asked_of(struct sim *w, uint32_t d, const struct tk *t)
{
    return t->stands && t->follows ? ticket_asked(w, sim_far(w, d), t->server) : NULL;
}

/* --- changes of the session --- */

void follow_cut(struct sim *w, uint32_t d, const struct session *s, uint32_t n)
{
    struct asked *a = asked_of(w, d, &w->tickets[d]->tk[s - w->d[d].session]);

    if (a && n < a->led.cut)
        a->led.cut = n;
}

void follow_unsure(struct sim *w, uint32_t d, const struct session *s)
{
    struct asked *a = asked_of(w, d, &w->tickets[d]->tk[s - w->d[d].session]);

    if (a)
        a->led.unsure = 1;
}

void follow_promise_over(struct sim *w, uint32_t d, const struct tk *t)
{
    struct asked *a = asked_of(w, d, t);

    if (!a)
        return;
    a->led.gone = 1;
    w->d[d].follower_left = 1;
}

void follow_over(struct sim *w, uint32_t d, struct pull_id pull)
{
    struct asked *a = ticket_asked(w, sim_far(w, d), pull);

    if (a)
        a->led.over = 1;
}

/* No answer has named the session's present length or pages. */
static bool unsure(const struct session *s)
{
    return s->turn == TURN_FETCHING || s->turn == TURN_LOADING || s->deaf;
}

static void look(struct sim *w, uint32_t d, const struct tk *t, struct led *led)
{
    const struct session *s = ticket_session(w, d, t);

    led->unsure |= unsure(s);
    EXPECT(led->told <= s->committed || led->unsure || !t->promised || led->cut < led->heard ||
               led->over,
           "follow_beyond_committed", "%u tokens are offered, session %u.%u has committed %u",
           led->told, s->id.slot, s->id.gen, s->committed);
    led->beyond |= s->committed > led->to;
    led->reset |= !space_current(w, d, s->tenant, s->space);
    if (!t->promised && s->written != led->to)
        led->handed = s->written;
    if (s->turn == TURN_AWAY)
        MARK(follow_source_retracted);
}

void follows_look(struct sim *w, uint32_t d)
{
    for (uint32_t i = 0; w->cfg.early && w->tickets[d]->n > 0 && i < SESSIONS; i++) {
        struct tk *t = &w->tickets[d]->tk[i];
        struct asked *a = asked_of(w, d, t);

        if (a)
            look(w, d, t, &a->led);
    }
}

/* --- what is asked --- */

static bool agrees(const struct sim *w, const struct asked *a, const struct session *s,
                   uint32_t until)
{
    return a->ns == s->ns && w->common[a->variant][s->variant] >= until;
}

/* The expected immediate refusal of a question, as far as the model is sure; OK: none. */
static enum tern_err expected(struct sim *w, uint32_t d, const struct asked *a)
{
    enum tern_err shown = shown_expected(w, d, &a->of.ticket, a->tenant);
    const struct tk *t = ticket_of(w, d, &a->of.ticket);
    const struct session *s = t ? ticket_session(w, d, t) : NULL;

    if (shown != TERN_OK)
        return shown;
    if (!space_current(w, d, s->tenant, s->space))
        return TERN_GONE;
    if (t->served)
        return TERN_BUSY;
    if (!ticket_suits(w, d, a, s))
        return TERN_UNSUPPORTED;
    if ((!t->promised && s->written != a->led.to) || s->committed > a->led.to)
        return TERN_INVALID;
    if (s->ntokens < a->led.to)
        return TERN_BUSY;
    return agrees(w, a, s, a->led.heard) ? TERN_OK : TERN_INVALID;
}

static bool asked_unsure(struct sim *w, uint32_t d, const struct asked *a)
{
    const struct tk *t = ticket_of(w, d, &a->of.ticket);

    return t && unsure(ticket_session(w, d, t));
}

/* The source receives more of the tokens, or a request for the pages that follow. */
static void heard_more(struct sim *w, uint32_t d, const struct peer_msg *msg, struct asked *a)
{
    const struct tk *t = ticket_server(w, d, a->pull);

    if (!t || !t->follows || a->led.over)
        return;
    if (msg->kind == PEER_PULL_NEXT) {
        a->led.wants = 1;
        a->led.since = w->now;
    } else if (msg->kind == PEER_PULL_TOKENS && msg->at == a->led.heard) {
        a->led.heard = peer_msg_until(msg);
        a->led.differs |= !agrees(w, a, ticket_session(w, d, t), a->led.heard);
        if (a->led.heard == a->led.to) /* from then on the source waits for the session */
            a->led.since = w->now;
    }
}

bool follow_heard(struct sim *w, uint32_t d, const struct peer_msg *msg, struct asked *a)
{
    if (msg->kind != PEER_PULL_OPEN) {
        heard_more(w, d, msg, a);
        return false;
    }
    a->led = (struct led){.from = msg->from,
                          .history = msg->history,
                          .to = msg->to,
                          .heard = peer_msg_until(msg),
                          .cut = UINT32_MAX};
    w->tickets[d]->unsure = asked_unsure(w, d, a);
    return expected(w, d, a) == TERN_OK || w->tickets[d]->unsure;
}

void follow_accepted(struct sim *w, uint32_t d, struct tk *t, struct asked *a)
{
    (void)d;
    a->led.since = w->now;
    if (t->promised)
        MARK(follow_begins_early);
    else
        MARK(follow_begins_handed);
    if (t->failed)
        MARK(follow_begins_again);
}

static void refused_marks(struct sim *w, const struct tk *t, const struct peer_msg *msg)
{
    switch (msg->err) {
    case TERN_BUSY:
        if (t->served)
            MARK(follow_second);
        else
            MARK(follow_unmatched);
        return;
    case TERN_INVALID:
        if (msg->handed)
            MARK(follow_other_length);
        else
            MARK(follow_other_tokens);
        return;
    case TERN_GONE: MARK(ticket_gone); return;
    case TERN_DENIED: MARK(ticket_denied); return;
    default: return;
    }
}

void follow_refused(struct sim *w, uint32_t d, struct asked *a, const struct peer_msg *msg)
{
    enum tern_err want = expected(w, d, a);
    const struct tk *t = ticket_of(w, d, &a->of.ticket);
    uint32_t written = t && !t->promised ? ticket_session(w, d, t)->written : a->led.to;

    if (w->tickets[d]->unsure || asked_unsure(w, d, a))
        return;
    EXPECT(msg->err == want || (want == TERN_OK && msg->err == TERN_BUSY), "follow_refused",
           "err %u, not %u: ticket %u.%u, %u tokens", msg->err, want, a->of.ticket.id.slot,
           a->of.ticket.id.gen, a->led.to);
    EXPECT(msg->handed == (want == TERN_INVALID && written != a->led.to ? written : 0),
           "follow_handed", "%u tokens are said to be handed over, not %u", msg->handed, written);
    if (t && want != TERN_OK)
        refused_marks(w, t, msg);
}

/* --- what is offered --- */

/* The last chunk, STATE, the pages behind it and the blob: the whole hand-over. */
static void offered_end(struct sim *w, uint32_t d, const struct tk *t, const struct peer_msg *msg)
{
    const struct session *s = ticket_session(w, d, t);

    EXPECT(
        !t->promised && t->left && (t->sealed || !t->own) && s->written == msg->to,
        "follow_offer_unready",
        "ticket %u.%u of %u tokens: the end at %u is offered (promised %u, left %u, sealed %u, own "
        "%u)",
        s->id.slot, s->id.gen, s->written, msg->to, t->promised, t->left, t->sealed, t->own);
    EXPECT(msg->blob_bytes == shown_of(w, d, t)->blob_bytes, "follow_blob", "%u bytes, not %u",
           msg->blob_bytes, shown_of(w, d, t)->blob_bytes);
}

static void offered_chunks(struct sim *w, const struct peer_msg *msg, uint32_t until)
{
    EXPECT(until <= (msg->to - 1) / w->L * w->L && until % w->L == 0, "follow_offer_end",
           "%u of %u tokens", until, msg->to);
    EXPECT(msg->blob_bytes == 0, "follow_blob", "%u bytes before the end", msg->blob_bytes);
    for (uint32_t i = 0; i < msg->nruns; i++)
        EXPECT(msg->runs[i].group < w->cfg.ngroups || msg->runs[i].n == 0, "follow_state_early",
               "group %u: %u pages of STATE before the end", msg->runs[i].group, msg->runs[i].n);
}

void follow_offered(struct sim *w, uint32_t d, struct tk *t, struct asked *a,
                    const struct peer_msg *msg)
{
    const struct session *s = ticket_session(w, d, t);
    uint32_t until = peer_msg_until(msg);
    struct led *led = &a->led;

    EXPECT(msg->from == led->from && msg->history == led->history && msg->to == led->to &&
               msg->at == led->told && until > msg->at && until <= msg->to,
           "follow_offer_range", "[%u, %u) of [%u, %u), %u were told", msg->at, until, msg->from,
           msg->to, led->told);
    EXPECT(led->offers == 0 || led->wants, "follow_offer_unasked", "[%u, %u)", msg->at, until);
    EXPECT(led->heard == led->to && led->cut >= led->heard && !led->differs && !led->over &&
               agrees(w, a, s, until),
           "follow_wrong_tokens", "[%u, %u): %u tokens were compared, %u of them are left", msg->at,
           until, led->heard, led->cut);
    if (until == msg->to)
        offered_end(w, d, t, msg);
    else
        offered_chunks(w, msg, until);
    led->told = until;
    led->wants = 0;
    led->since = w->now;
    if (++led->offers > 1)
        MARK(follow_offered_on);
    if (t->promised)
        MARK(follow_offered_early);
}

bool follow_page(struct sim *w, uint32_t d, const struct tk *t, const struct granule *g,
                 uint32_t group, uint32_t at)
{
    const struct session *s = ticket_session(w, d, t);
    const struct chunk *c =
        chunk_at(w, d, s->pool, s->space, s->variant, at * w->page_tokens[d][group] / w->L + 1);

    if (group >= w->cfg.ngroups)
        return false;
    return g->own != OWN_CHUNK || (g->pool == s->pool && g->chunk == c - w->d[d].chunk[s->pool]);
}

/* --- how it ends --- */

static void judge_invalid(struct sim *w, const struct led *led, uint32_t handed)
{
    EXPECT(led->cut < led->heard || led->beyond || led->handed || led->differs || led->unsure ||
               led->gone, /* it ended in this step, at its deadline: the model saw no more */
           "follow_invalid", "the session has kept %u of %u tokens that were compared", led->cut,
           led->heard);
    EXPECT(handed == 0 || handed == led->handed || handed == led->to, "follow_handed",
           "%u tokens are said to be handed over, not %u", handed, led->handed);
    if (led->handed && handed == led->handed)
        MARK(follow_other_length);
    if (led->cut < led->heard)
        MARK(follow_source_cut);
    if (led->beyond)
        MARK(follow_source_beyond);
}

static void judge(struct sim *w, const struct led *led, const struct peer_msg *msg)
{
    uint64_t least = w->limits.ticket_deadline_ns < w->limits.transfer_deadline_ns
                         ? w->limits.ticket_deadline_ns
                         : w->limits.transfer_deadline_ns;

    switch (msg->err) {
    case TERN_INVALID: judge_invalid(w, led, msg->handed); return;
    case TERN_GONE:
        EXPECT(led->gone || led->reset, "follow_gone", "its session is there");
        if (led->reset)
            MARK(follow_of_reset);
        else
            MARK(follow_source_gone);
        return;
    case TERN_TIMED_OUT:
        EXPECT(w->now >= led->since + least, "follow_source_early", "after %llu ns",
               (unsigned long long)(w->now - led->since));
        MARK(follow_source_timed_out);
        return;
    default: violation(w, "follow_ended", "err %u", msg->err);
    }
}

void follow_goes_on(struct sim *w, uint32_t d, struct pull_id pull)
{
    for (uint32_t i = 0; i < SESSIONS && w->cfg.early; i++)
        if (w->d[d].session[i].turn == TURN_FETCHING &&
            pull_id_equal(w->d[d].session[i].fetch_pull, pull))
            w->d[d].session[i].fetch_since = w->now;
}

void follow_told(struct sim *w, uint32_t d, const struct peer_msg *msg)
{
    bool offer = msg->kind == PEER_PULL_OFFER, ends = msg->kind == PEER_PULL_ABORT;
    struct asked *a = offer || ends ? ticket_asked(w, d, msg->pull) : NULL;

    if (!w->cfg.early || !a || !a->follow)
        return;
    follows_look(w, sim_far(w, d));
    if (offer && msg->err == TERN_OK) {
        a->delivered = peer_msg_until(msg);
        a->since = w->now;
        follow_goes_on(w, d, a->pull);
        return;
    }
    a->said = msg->err;
    a->handed = msg->handed;
    if (!a->refused)
        judge(w, &a->led, msg);
}

/* --- is one forgotten? --- */

/* Also the STATE that was refilled last. */
static bool chunk_sealed(struct sim *w, uint32_t d, const struct session *s, const struct chunk *c)
{
    for (uint32_t g = 0; g < w->ngroups; g++)
        for (uint32_t i = 0; (g < w->cfg.ngroups || c->has[g]) && i < chunk_pages(w, d, g, c); i++)
            if (c->gen[g][i] && !w->d[d].granule[s->tenant][c->granule[g][i]].sealed)
                return false;
    return state_visible(w, d, c);
}

/* Can the source offer another chunk: are all up to it present, visible and sealed? */
static bool has_more(struct sim *w, uint32_t d, const struct session *s, const struct led *led)
{
    uint32_t have = led->told > led->history ? led->told : led->history,
             next = (have / w->L + 1) * w->L;

    if (next > (led->to - 1) / w->L * w->L || next > s->committed)
        return false;
    for (uint32_t k = 1; k * w->L <= next; k++) {
        const struct chunk *c = chunk_at(w, d, s->pool, s->space, s->variant, k);

        if (!c->present || !chunk_visible(w, d, c) ||
            (k * w->L > led->history && !chunk_sealed(w, d, s, c)))
            return false;
    }
    return true;
}

void follows_check(struct sim *w, uint32_t d)
{
    if (!w->cfg.early || core_deadline(w->d[d].core) <= w->now)
        return;
    follows_look(w, d);
    for (uint32_t i = 0; w->tickets[d]->n > 0 && i < SESSIONS; i++) {
        const struct tk *t = &w->tickets[d]->tk[i];
        const struct session *s = &w->d[d].session[i];
        const struct asked *a = asked_of(w, d, t);
        const struct led *led = a ? &a->led : NULL;

        if (!a || !t->served || led->over || led->unsure)
            continue;
        /* A session that was handed over is served like any ticket. */
        EXPECT(
            !t->promised || (led->cut >= led->heard && !led->beyond && !led->handed &&
                             !led->reset && !led->differs),
            "follow_not_ended",
            "session %u.%u is followed, but: %u of %u tokens are left, beyond %u, handed over at "
            "%u, reset %u, differs %u",
            s->id.slot, s->id.gen, led->cut, led->heard, led->beyond, led->handed, led->reset,
            led->differs);
        if (t->promised && (s->turn == TURN_OPEN || s->turn == TURN_FINISHED) &&
            (led->offers == 0 ? led->heard == led->to : led->wants))
            EXPECT(!has_more(w, d, s, led), "follow_forgotten",
                   "session %u.%u has committed %u, %u were offered", s->id.slot, s->id.gen,
                   s->committed, led->told);
    }
}
