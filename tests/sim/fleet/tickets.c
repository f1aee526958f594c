/* How a fetch by ticket may end (Y1 to Y6), by the knowledge of an engine: who got the ticket, when
 * its time is over, and the answers to other fetches. One fetch gets the whole ticket, or the
 * answer has a true cause. */
#include "core/arena/shares.h"
#include "core/busy.h"
#include "world.h"

static bool former_life(const struct fticket *t)
{
    return fw.d[t->daemon].lives != t->life;
}

static uint32_t under_way(const struct fticket *t)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < FLEET * FLEET_ASKS; i++) {
        const struct fask *a = &fw.d[i / FLEET_ASKS].ask[i % FLEET_ASKS];

        n += a->s && a->request && a->ticket && &fw.ticket[a->ticket - 1] == t;
    }
    return n;
}

/* While its session runs, the deadline of a ticket waits for its follower. */
static bool expired(const struct fticket *t)
{
    return fw.d[t->daemon].rig->now_ns >= t->until && (t->length > 0 || under_way(t) == 0);
}

bool fticket_over(const struct fticket *t)
{
    return former_life(t) || t->over || (t->won && t->heard) || expired(t);
}

uint32_t fticket_word(uint32_t blob, uint32_t i)
{
    return blob * 1000003u + i;
}

void fticket_asked(struct fdaemon *d, struct fask *a)
{
    struct fticket *t = &fw.ticket[a->ticket - 1];

    a->over = fticket_over(t);
    a->early = t->length == 0;
    a->lost = !fw.up[fdaemon_number(d)][t->daemon];
    a->asked_ns = d->rig->now_ns;
    t->asks++;
    FTRACE("  daemon %u fetches by ticket %u of daemon %u%s%s\n", fdaemon_number(d), a->ticket,
           t->daemon, a->follow ? ", follows" : "", a->forged ? ", forged" : "");
}

void fticket_link_down(uint32_t from, uint32_t to)
{
    for (uint32_t n = 0; n < FLEET_ASKS; n++) {
        struct fask *a = &fw.d[from].ask[n];

        if (a->s && a->request && a->peer == to)
            a->lost = 1;
    }
    /* Y6: the winner's message may have been under way. */
    for (uint32_t i = 0; i < fw.ntickets; i++)
        if (fw.ticket[i].daemon == to && fw.ticket[i].won && !fw.ticket[i].heard)
            fw.ticket[i].lossy = 1;
}

void fticket_done(const struct peer_msg *m)
{
    uint32_t ticket = fw.of_trace[m->trace_id % FLEET_TRACES];

    if (ticket && m->err == TERN_OK)
        fw.ticket[ticket - 1].heard = 1;
}

/* Y2, Y6: the message that a fetch succeeded uses the ticket up, whatever the source did with the
 * fetch meanwhile. */
static void proves_used(struct fticket *t)
{
    struct fdaemon *d = &fw.d[t->daemon];
    struct request request = {.op = OP_TICKET_DROP, .ticket_drop.ticket = t->t};
    const struct reply *r = rig_request(d->rig, d->e.conn[0], &request);

    FEXPECT(r && r->err == TERN_GONE, "ticket_after_end", "ticket %u is used up: error %u",
            (uint32_t)(t - fw.ticket) + 1, r ? r->err : 0);
    t->proved = 1;
}

void fticket_look(void)
{
    for (uint32_t i = 0; i < fw.ntickets; i++)
        if (fw.ticket[i].heard && !fw.ticket[i].proved && !former_life(&fw.ticket[i]))
            proves_used(&fw.ticket[i]);
}

/* --- the answer --- */

static void marks_of_one(const struct fdaemon *d, const struct fticket *t, const struct fask *a)
{
    const struct fdaemon *from = &fw.d[t->daemon];
    bool other = from->page_tokens != d->page_tokens || from->ranks != d->ranks;

    FMARK(ticket_fetched);
    if (t->length % FLEET_UNIT)
        FMARK(ticket_with_tail);
    if (from == d)
        FMARK(ticket_here);
    if (t->hops)
        FMARK(ticket_two_hops);
    if (t->orphan)
        FMARK(ticket_survives_fetcher);
    if (a->follow && a->early)
        FMARK(followed);
    if (a->follow && t->failed)
        FMARK(followed_after_other);
    if (t->leased)
        FMARK(lease_handed);
    if (t->leased && t->recorded && from->spill && other)
        FMARK(all_together);
}

/* Y2: exactly the session that was handed over arrives, once. */
static void check_came(const struct fdaemon *d, const struct fask *a, const struct reply *r)
{
    struct fticket *t = &fw.ticket[a->ticket - 1];
    const struct lengths *l = &r->fetch.lengths;

    FEXPECT(!a->forged, "ticket_given", "a key that is another one is good");
    FEXPECT(!a->over, "ticket_after_end", "ticket %u", a->ticket);
    FEXPECT(t->length > 0, "ticket_unhanded", "ticket %u, and its session runs", a->ticket);
    FEXPECT(t->wins++ == 0 || t->lossy, "ticket_taken_twice", "ticket %u", a->ticket);
    FEXPECT(l->written == t->length && l->allocated >= l->written &&
                l->committed >= l->written / FLEET_UNIT * FLEET_UNIT,
            "ticket_length", "%u committed, %u written of %u", l->committed, l->written, t->length);
    FEXPECT(r->fetch.blob_bytes == t->words * 4, "ticket_blob", "%u bytes", r->fetch.blob_bytes);
    for (uint32_t i = 0; i < t->words; i++)
        FEXPECT(r->fetch.blob[i] == fticket_word(t->blob, i), "ticket_blob", "word %u", i);
    t->won = 1;
    marks_of_one(d, t, a);
}

static bool said(const struct reply *r, const char *text)
{
    return strcmp(r->text, text) == 0;
}

static void check_busy(const struct fask *a, const struct fticket *t, const struct reply *r)
{
#define X(name, text) text,
    static const char *const of_ticket[] = {TICKET_BUSY_TABLE(X)};
#undef X

    FMARK(ticket_busy);
    if (said(r, of_ticket[TICKET_BUSY_TAKEN])) {
        FEXPECT(t->asks > 1, "busy_for_nothing", "ticket %u: nobody else fetches it", a->ticket);
        if (a->follow && a->early && under_way(t) > 0)
            FMARK(followed_by_two);
    } else if (said(r, TICKET_STILL_RUNS) || said(r, of_ticket[TICKET_BUSY_RUNS])) {
        FEXPECT(a->early, "busy_for_nothing", "ticket %u was handed over", a->ticket);
    } else {
        FEXPECT(!said(r, of_ticket[TICKET_BUSY_STEP]) && !said(r, of_ticket[TICKET_BUSY_UNMATCHED]),
                "busy_for_nothing", "%s", r->text);
    }
}

static bool was_reset(const struct fdaemon *d, const struct fask *a, const struct fticket *t)
{
    return a->epoch != d->epoch[a->space] ||
           (!former_life(t) && t->epoch != fw.d[t->daemon].epoch[t->space]);
}

static void check_gone(const struct fdaemon *d, const struct fask *a, const struct fticket *t)
{
    const struct rig *from = fw.d[t->daemon].rig;
    bool reset = was_reset(d, a, t), ends = from->now_ns >= t->until,
         late = d->rig->now_ns - a->asked_ns >= d->rig->options.limits.transfer_deadline_ns;

    FEXPECT(a->over || fticket_over(t) || ends || t->won || a->cancelled || a->lost || reset ||
                late,
            "ticket_lost", "ticket %u of daemon %u stands, and %u is told GONE", a->ticket,
            t->daemon, fdaemon_number(d));
    if (former_life(t))
        FMARK(ticket_of_former_life);
    else if (t->won)
        FMARK(ticket_taken_once);
    else if (reset)
        FMARK(ticket_of_reset);
    else if (!t->over && ends)
        FMARK(ticket_expired);
}

void fticket_judge(struct fdaemon *d, const struct fask *a, const struct reply *r)
{
    struct fticket *t = &fw.ticket[a->ticket - 1];
    uint64_t ns = d->rig->now_ns - a->asked_ns;

    FTRACE("  by ticket %u: error %u %s\n", a->ticket, r->err, r->text);
    t->failed |= r->err != TERN_OK && a->follow && a->early;
    switch (r->err) {
    case TERN_OK: check_came(d, a, r); return;
    case TERN_GONE: check_gone(d, a, t); return;
    case TERN_BUSY: check_busy(a, t, r); return;
    case TERN_DENIED:
        FEXPECT(a->forged || t->replaced, "ticket_denied", "ticket %u", a->ticket);
        FMARK(ticket_denied);
        return;
    case TERN_INVALID: /* the hand-over had another length */
        FEXPECT(t->length > 0 && t->length != a->length, "ticket_tokens", "%s", r->text);
        return;
    case TERN_PEER_LOST: FEXPECT(a->lost || former_life(t), "peer_lost", "%s", r->text); return;
    case TERN_TIMED_OUT:
        FEXPECT(ns >= d->rig->options.limits.transfer_deadline_ns, "timed_out", "after %llu ns",
                (unsigned long long)ns);
        return;
    case TERN_UNSUPPORTED: /* Y4: at the daemon that gave it, from another pool alone */
        FEXPECT(a->follow && d == &fw.d[t->daemon], "ticket_layout", "%s", r->text);
        return;
    default:
        FEXPECT((r->err == TERN_POOL_EXHAUSTED || r->err == TERN_QUOTA) && !fw.cfg.ample,
                "ticket_refused", "error %u %s", r->err, r->text);
    }
}
