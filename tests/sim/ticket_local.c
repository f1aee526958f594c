/* Fetches by ticket at the daemon that gave it (Y2): no byte moves. The session borrows the path of
 * the one that was handed over, and its pages change their owner, in the step of the request. */
#include "disk.h"
#include "tickets.h"

#define LOCAL_OWNER 0xfdu /* of pages that change their owner in this step */

static const struct session *handed_session(struct sim *w, uint32_t d, const struct tfetch *f)
{
    const struct tk *t = ticket_of(w, d, &f->of.ticket);

    return t ? ticket_session(w, d, t) : NULL;
}

bool ticket_moves(struct sim *w, uint32_t d, const struct session *s, const struct tfetch *f)
{
    return w->cfg.own && w->link[d].up[0] &&
           shown_expected(w, d, &f->of.ticket, s->tenant) == TERN_OK &&
           handed_session(w, d, f)->pool != s->pool;
}

enum tern_err ticket_local_expected(struct sim *w, uint32_t d, const struct session *s,
                                    const struct tfetch *f)
{
    enum tern_err shown = shown_expected(w, d, &f->of.ticket, s->tenant);
    const struct tk *t = ticket_of(w, d, &f->of.ticket);
    const struct session *from = handed_session(w, d, f);

    if (shown != TERN_OK)
        return shown;
    if (from->pool != s->pool || (t->promised && f->follow))
        return TERN_UNSUPPORTED;
    if (!space_current(w, d, from->tenant, from->space))
        return TERN_GONE;
    if (!ticket_ready(w, d, t))
        return TERN_BUSY;
    if (!space_current(w, d, s->tenant, s->space))
        return TERN_GONE;
    return s->space == from->space && s->ntokens == from->written &&
                   w->common[s->variant][from->variant] >= from->written
               ? TERN_OK
               : TERN_INVALID;
}

/* The session's own pages change as if a transfer had just fetched them. */
static void pages_let_go(struct sim *w, uint32_t d, struct session *from)
{
    struct granule *g = w->d[d].granule[from->tenant];
    uint32_t slot = (uint32_t)(from - w->d[d].session);

    for (uint32_t i = 0; i < w->granules; i++) {
        if (g[i].own != OWN_SESSION || g[i].owner != slot)
            continue;
        EXPECT(!g[i].serves && !g[i].sealing, "ticket_read", "granule %u is read by %u and %u", i,
               g[i].serves, g[i].sealing);
        g[i].own = OWN_PULL;
        g[i].owner = LOCAL_OWNER;
        g[i].verified = 1;
        g[i].sealed = 0; /* it is written again */
    }
}

static void check_taken(struct sim *w, uint32_t d, const struct session *s)
{
    const struct granule *g = w->d[d].granule[s->tenant];

    for (uint32_t i = 0; i < w->granules; i++)
        EXPECT(g[i].own != OWN_PULL || g[i].owner != LOCAL_OWNER, "ticket_page_lost",
               "granule %u of the ticket is in no table", i);
}

/* The session is closed. If its pages have changed their owner, its table has no own pages left. */
static void from_ends(struct sim *w, uint32_t d, struct session *from, const struct tk *t, bool had)
{
    if (had) {
        session_forget(w, d, from, t->left ? 0 : t->step);
        ticket_forget(w, d, (uint32_t)(from - w->d[d].session));
        w->tickets[d]->closing = 1;
        return;
    }
    from->allocated = from->written = from->committed;
    for (STATE_GROUPS(w, g)) {
        for (uint32_t at = from->first[g]; at < from->top[g]; at++)
            if (from->table[g][at].mine)
                from->table[g][at].granule = HOLE;
        if (from->top[g] > from->base[g])
            from->top[g] = from->base[g];
    }
    session_forget(w, d, from, 0);
    ticket_forget(w, d, (uint32_t)(from - w->d[d].session));
    w->tickets[d]->closing = 1;
}

static void refused(struct sim *w, uint32_t d, struct session *s, const struct tfetch *f,
                    const struct reply *r)
{
    bool tail = r->err == TERN_INVALID && s->fetch_tail && state_needs_own(w, d, s);
    bool waits = r->err == TERN_BUSY && f->want == TERN_OK && s->fetch_tail &&
                 s->fetch_step > w->d[d].engine[s->engine].min_done;

    EXPECT(r->err == f->want || tail || waits, "ticket_local_refused", "err %u, not %u: %s", r->err,
           f->want, r->text);
    s->turn = s->fetch_before;
    if (s->fetch_tail)
        fetch_tail_stays(w, s, r);
    if (r->err == TERN_UNSUPPORTED && f->follow)
        MARK(ticket_here_followed);
    else if (r->err == TERN_UNSUPPORTED)
        MARK(ticket_here_other_pool);
    else
        MARK(ticket_here_refused);
}

void ticket_local(struct sim *w, uint32_t d, struct session *s, const struct tfetch *f,
                  const struct reply *r)
{
    struct tk *t = ticket_of(w, d, &f->of.ticket);
    struct session *from = t ? ticket_session(w, d, t) : NULL;
    struct shown of;
    bool had;

    if (r->err != TERN_OK) {
        refused(w, d, s, f, r);
        return;
    }
    EXPECT(f->want == TERN_OK && t, "ticket_local_given", "OK, and not %u", f->want);
    of = *shown_of(w, d, t);
    had = s->fetch_wrote >= from->written;
    s->turn = TURN_OPEN;
    if (!had)
        pages_let_go(w, d, from);
    ticket_take(w, d, s, f, &of, from->written, r);
    check_taken(w, d, s);
    w->tickets[d]->taken[from->tenant]++;
    from_ends(w, d, from, t, had);
    MARK(ticket_taken_here);
}
