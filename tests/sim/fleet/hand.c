/* The choices for sessions of a fleet that compute in pieces, are handed over, and reach other
 * daemons by their tickets. tickets.c judges the answers to fetches. */
#include "world.h"

#define TICKETS_MOST (FLEET_TICKETS - 2 * FLEET) /* of choices; the last fetches need some, too */
#define BLOB_WORDS   9u
#define MS           1000000u
#define ASKS_AGAIN   30u

/* --- sessions that run --- */

static bool run_begins(struct fdaemon *d, struct frun *run)
{
    *run = (struct frun){.space = fpick(FLEET_SPACES),
                         .variant = fpick(FLEET_VARIANTS),
                         .to = 1 + fpick(FLEET_TOKENS)};
    if (fpick(4) == 0)
        run->to = run->to / FLEET_UNIT * FLEET_UNIT + FLEET_UNIT * (run->to < FLEET_UNIT);
    run->epoch = d->epoch[run->space];
    run->s = fopens(d, run->space);
    if (!run->s)
        return false;
    if (rig_match(run->s, fw.tokens[run->variant], run->to) != TERN_OK) {
        fsession_ends(run->s);
        run->s = NULL;
        return false;
    }
    return true;
}

static struct fticket *ticket_new(struct fdaemon *d, const struct frun *of,
                                  const struct ticket *ticket, uint32_t ms)
{
    struct fticket *t = &fw.ticket[fw.ntickets++];

    FEXPECT(ticket->incarnation == d->incarnation && ticket->id.gen, "ticket_made", "of gen %u",
            ticket->id.gen);
    *t = (struct fticket){.t = *ticket,
                          .until = d->rig->now_ns + (uint64_t)ms * MS,
                          .daemon = fdaemon_number(d),
                          .life = d->lives,
                          .space = of->space,
                          .variant = of->variant,
                          .epoch = of->epoch,
                          .length = ticket->length};
    return t;
}

static uint32_t some_deadline(void)
{
    return fpick(3) ? 0 : 10 + fpick(3000);
}

/* Opens a ticket, of an open length. */
static void promises(struct fdaemon *d, struct frun *run)
{
    struct request request = {.op = OP_TICKET_OPEN,
                              .ticket_open = {.session = run->s->id,
                                              .deadline_ms = some_deadline(),
                                              .key = {fw.ntickets + 1, fw.cfg.seed}}};
    const struct reply *r = rig_request(d->rig, run->s->conn, &request);

    FEXPECT(r && (r->err == TERN_OK || (r->err == TERN_GONE && run->epoch != d->epoch[run->space])),
            "ticket_open", "%s", r ? r->text : "no answer");
    if (r->err != TERN_OK)
        return;
    FEXPECT(r->ticket_open.ticket.length == 0, "ticket_made", "with a length");
    ticket_new(d, run, &r->ticket_open.ticket, r->ticket_open.deadline_ms);
    run->ticket = fw.ntickets;
    FTRACE("  daemon %u promises ticket %u\n", fdaemon_number(d), run->ticket);
}

static bool goes_on(struct fdaemon *d, struct frun *run, uint32_t to)
{
    uint32_t leased;
    bool ok;

    if (d->nleased == 0 && fpick(3) == 0)
        flease_more(d);
    leased = d->nleased;
    ok = fcomputes(d, run->s, run->space, run->variant, to < run->to ? to : run->to, run->epoch);

    run->leased |= d->nleased < leased; /* assigned */
    return ok;
}

bool do_prefill(void)
{
    struct fdaemon *d = &fw.d[fpick(FLEET)];
    struct frun *run = &d->run[fpick(FLEET_RUNS)];

    if (!run->s) {
        if (!run_begins(d, run))
            return false;
        if (fw.ntickets < TICKETS_MOST && fpick(4))
            promises(d, run);
        return true;
    }
    return goes_on(d, run, run->s->len.written + 1 + fpick(FLEET_TOKENS / 2));
}

/* --- handing over --- */

struct frun *frun_some(struct fdaemon *d)
{
    uint32_t at = fpick(FLEET_RUNS);

    return d->run[at].s ? &d->run[at] : &d->run[(at + 1) % FLEET_RUNS];
}

static void run_ends(struct frun *run)
{
    if (run->ticket)
        fw.ticket[run->ticket - 1].over = 1;
    fsession_ends(run->s);
    run->s = NULL;
}

/* The promised ticket gets its length, if it stood until now. */
static struct fticket *handed(struct fdaemon *d, const struct frun *run, const struct reply *r)
{
    const struct ticket *made = &r->handoff.ticket;
    struct fticket *t = run->ticket ? &fw.ticket[run->ticket - 1] : NULL;
    bool stood = t && !fticket_over(t) && d->rig->now_ns < t->until,
         same = t && memcmp(t->t.key, made->key, sizeof made->key) == 0;

    FEXPECT(made->length == run->s->len.written, "ticket_made", "%u tokens of %u", made->length,
            run->s->len.written);
    FEXPECT(same || !stood, "ticket_other", "ticket %u was promised", run->ticket);
    if (!same) {
        if (t)
            t->over = t->replaced = 1;
        return ticket_new(d, run, made, r->handoff.deadline_ms);
    }
    FEXPECT(!t->over, "ticket_other", "ticket %u was over", run->ticket);
    t->length = made->length;
    t->until = d->rig->now_ns + (uint64_t)r->handoff.deadline_ms * MS;
    return t;
}

static void check_refused(const struct fdaemon *d, const struct frun *run, const struct reply *r)
{
    const struct lengths *l = &run->s->len;

    FEXPECT((r->err == TERN_GONE && run->epoch != d->epoch[run->space]) ||
                (r->err == TERN_INVALID &&
                 (l->written == 0 || l->written - l->committed >= FLEET_UNIT)) ||
                ((r->err == TERN_BUSY || r->err == TERN_QUOTA) && !fw.cfg.ample),
            "handoff", "error %u %s", r->err, r->text);
}

/* Returns true if the session belongs to a ticket now. */
static bool hands_over(struct fdaemon *d, struct frun *run, uint32_t hops)
{
    uint32_t words[BLOB_WORDS], n = fpick(BLOB_WORDS + 1);
    const uint32_t number = fw.ntickets + 1;
    struct request request = {.op = OP_HANDOFF,
                              .handoff = {.session = run->s->id,
                                          .deadline_ms = some_deadline(),
                                          .blob_bytes = n * 4,
                                          .blob = {.v = words, .n = n},
                                          .key = {fw.ntickets + 1, fw.cfg.seed}}};
    const struct reply *r;
    struct fticket *t;

    if (fw.ntickets == FLEET_TICKETS)
        return false;
    for (uint32_t i = 0; i < n; i++)
        words[i] = fticket_word(number, i);
    r = rig_request(d->rig, run->s->conn, &request);
    FEXPECT(r, "handoff", "no answer");
    if (r->err != TERN_OK) {
        check_refused(d, run, r);
        return false;
    }
    t = handed(d, run, r);
    t->words = n;
    t->blob = number;
    t->hops = hops;
    t->leased = run->leased;
    t->recorded = run->nrecords > 0;
    FTRACE("  daemon %u hands %u tokens over, ticket %u\n", fdaemon_number(d), t->length,
           (uint32_t)(t - fw.ticket) + 1);
    rig_session_free(run->s);
    return true;
}

/* Hands over a session that came by a ticket, or by another fetch. */
static bool hands_on(struct fdaemon *d, struct fask *a)
{
    struct frun run;

    if (!a || a->s->len.written == 0)
        return false;
    run = (struct frun){.s = a->s, .space = a->space, .variant = a->variant, .epoch = a->epoch};
    if (!hands_over(d, &run,
                    a->ticket && fw.ticket[a->ticket - 1].won ? fw.ticket[a->ticket - 1].hops + 1
                                                              : 0))
        return false;
    a->s = NULL;
    return true;
}

bool do_handoff(void)
{
    struct fdaemon *d = &fw.d[fpick(FLEET)];
    struct frun *run = frun_some(d);

    if (fw.ntickets >= TICKETS_MOST)
        return false;
    if (fpick(3) == 0)
        return hands_on(d, fask_answered(d));
    if (!run->s)
        return false;
    if (fpick(16) == 0) { /* it ends without a ticket */
        run_ends(run);
        return false;
    }
    if (run->s->len.written < run->to && fpick(8) && !goes_on(d, run, run->to))
        return false;
    if (fpick(3) == 0)
        fturn(d, run);
    if (run->s->len.written == 0 || !hands_over(d, run, 0))
        return false;
    run->s = NULL;
    return true;
}

/* --- fetching --- */

/* Most often a standing one of the newest. 0: none. */
static uint32_t some_ticket(void)
{
    uint32_t n = 0, at;

    if (fw.ntickets == 0)
        return 0;
    do
        at = fw.ntickets - fpick(fw.ntickets < 6 ? fw.ntickets : 6);
    while (n++ < 4 && (fw.ticket[at - 1].won || fw.ticket[at - 1].over));
    return at;
}

/* Length of the list of the ticket's session, now or at its end. */
static uint32_t list_of(uint32_t ticket)
{
    const struct fticket *t = &fw.ticket[ticket - 1];

    for (uint32_t i = 0; i < FLEET * FLEET_RUNS && t->length == 0; i++) {
        const struct frun *run = &fw.d[i / FLEET_RUNS].run[i % FLEET_RUNS];

        if (run->s && run->ticket == ticket)
            return run->to;
    }
    return t->length;
}

static bool takes(struct fdaemon *d, uint32_t ticket, bool forge)
{
    const struct fticket *t = &fw.ticket[ticket - 1];
    struct fask *a = fask_free(d);
    uint32_t n = list_of(ticket);

    if (!a || n == 0)
        return false;
    *a = (struct fask){.space = t->space,
                       .variant = t->variant,
                       .epoch = d->epoch[t->space],
                       .ticket = ticket,
                       .length = n,
                       .forged = forge,
                       .follow = t->length == 0 ? fpick(5) > 0 : fpick(6) == 0};
    a->s = fopens(d, a->space);
    if (!a->s)
        return false;
    if (rig_match(a->s, fw.tokens[a->variant], n) != TERN_OK) {
        fsession_ends(a->s);
        a->s = NULL;
        return false;
    }
    a->from[0] = a->s->len.committed;
    fasks(d, a, t->daemon);
    return true;
}

bool do_take(void)
{
    uint32_t ticket = some_ticket(), at = fpick(FLEET), from;

    if (ticket == 0)
        return false;
    from = fw.ticket[ticket - 1].daemon;
    if (at == from && fpick(4))
        at = (at + 1 + fpick(FLEET - 1)) % FLEET;
    for (uint32_t n = 0; n < FLEET && at != from && !fw.up[at][from] && fpick(8); n++)
        at = (at + 1) % FLEET;
    return takes(&fw.d[at], ticket, fpick(16) == 0);
}

/* Y6. */
bool do_cancel(void)
{
    struct fdaemon *d = &fw.d[fpick(FLEET)];

    for (uint32_t i = 0; i < FLEET_ASKS; i++) {
        struct fask *a = &d->ask[i];
        enum tern_err err;

        if (!a->s || !a->request || rig_reply_to(d->rig, a->request))
            continue;
        a->cancelled = 1;
        err = rig_fetch_cancel(a->s);
        FEXPECT(err == TERN_OK, "cancel", "error %u", err);
        return true;
    }
    return false;
}

bool do_drop(void)
{
    uint32_t ticket = some_ticket();
    struct fticket *t = ticket ? &fw.ticket[ticket - 1] : NULL;
    struct request request = {.op = OP_TICKET_DROP};
    struct fdaemon *d = t ? &fw.d[t->daemon] : NULL;
    const struct reply *r;
    bool over;

    if (!t)
        return false;
    over = fticket_over(t);
    request.ticket_drop.ticket = t->t;
    r = rig_request(d->rig, d->e.conn[0], &request);
    FEXPECT(
        r && (r->err == TERN_OK || r->err == TERN_GONE || (r->err == TERN_DENIED && t->replaced)),
        "ticket_drop", "error %u", r ? r->err : 0);
    FEXPECT(r->err != TERN_OK || !over, "ticket_after_end", "ticket %u is dropped", ticket);
    FEXPECT(r->err == TERN_OK || over || t->won || t->length == 0 || t->asks > 0, "ticket_lost",
            "ticket %u stands, and dropping it is GONE", ticket);
    t->over = 1;
    return r->err == TERN_OK;
}

/* --- the end --- */

void fruns_end(void)
{
    for (uint32_t i = 0; i < FLEET * FLEET_RUNS; i++)
        if (fw.d[i / FLEET_RUNS].run[i % FLEET_RUNS].s)
            run_ends(&fw.d[i / FLEET_RUNS].run[i % FLEET_RUNS]);
}

void fruns_lost(struct fdaemon *d)
{
    for (uint32_t i = 0; i < FLEET_RUNS; i++)
        if (d->run[i].s && d->run[i].ticket)
            fw.ticket[d->run[i].ticket - 1].over = 1;
}

/* Repeats the fetch while the source is busy. */
static const struct reply *answered(const struct fdaemon *d, const struct fask *a)
{
    const struct reply *r = rig_reply_to(d->rig, a->request);

    for (uint32_t n = 0; n < ASKS_AGAIN && !r; n++) {
        while (!r && rig_jobs(d->rig, RIG_MSG) > 0) {
            rig_complete(d->rig, RIG_MSG);
            r = rig_reply_to(d->rig, a->request);
        }
        if (!r)
            rig_advance(d->rig, 100 * MS);
        r = rig_reply_to(d->rig, a->request);
    }
    return r;
}

/* Y6: the source ends the transfer before it learns that all has arrived. */
static void word_comes_late(struct fdaemon *d, const struct fdaemon *source)
{
    FTRACE("  daemon %u gives up what %u has\n", fdaemon_number(source), fdaemon_number(d));
    rig_advance(source->rig, source->rig->options.limits.transfer_deadline_ns);
    d->rig->automatic = RIG_ALL;
    fsettle();
    fticket_look();
    FMARK(ticket_word_late);
}

/* Y1: a ticket without a fetch goes to the first that asks. */
static void comes_last(uint32_t ticket)
{
    const struct fticket *t = &fw.ticket[ticket - 1];
    const struct reply *r;

    for (uint32_t i = 0; i < FLEET; i++) {
        struct fdaemon *d = &fw.d[i];
        struct fask *a = fask_free(d);

        if (i == t->daemon || !fw.up[i][t->daemon] || !a)
            continue;
        if (fw.cfg.by_hand)
            d->rig->automatic &= ~(uint32_t)RIG_MSG;
        r = takes(d, ticket, false) ? answered(d, a) : NULL;
        if (fw.cfg.by_hand && r && r->err == TERN_OK)
            word_comes_late(d, &fw.d[t->daemon]);
        d->rig->automatic = RIG_ALL;
        if (!a->s)
            continue;
        if (r && r->err == TERN_BUSY) /* of records, or of resets under way */
            return;
        FEXPECT(r && r->err == TERN_OK, "ticket_lost_last", "ticket %u: error %u %s", ticket,
                r ? r->err : 0, r ? r->text : "no answer");
        FMARK(ticket_last);
        return;
    }
}

void ftickets_last(void)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < fw.ntickets && n < 2 && fw.cfg.ample; i++) {
        const struct fticket *t = &fw.ticket[i];

        if (fticket_over(t) || t->length == 0 || t->asks > 0 ||
            t->epoch != fw.d[t->daemon].epoch[t->space])
            continue;
        comes_last(i + 1);
        n++;
    }
}
