/* A peer's transfers by ticket, and the source's answers (Y2, Y4). Each answer is compared with the
 * outcome that the model expected before the source received the question. */
#include "disk.h"
#include "tickets.h"

/* Y6: no other fetch is served before the source knows the end of this one, nothing reads it, or
 * its connection has ended. */
static void served_no_more(struct tk *t)
{
    t->served = t->started = t->started && !(t->still && (t->told || t->ends || !t->all));
}

void ticket_accepted(struct sim *w, uint32_t d)
{
    struct tickets *m = w->tickets[d];
    struct tk *t = ticket_of(w, d, &m->judged->of.ticket);

    EXPECT(m->may_serve && t, "ticket_served",
           "pull %u.%u is served by ticket %u.%u, which it must not be", m->judged->pull.slot,
           m->judged->pull.gen, m->judged->of.ticket.id.slot, m->judged->of.ticket.id.gen);
    TRACE("  daemon %u serves pull %u.%u by ticket %u.%u\n", d, m->judged->pull.slot,
          m->judged->pull.gen, m->judged->of.ticket.id.slot, m->judged->of.ticket.id.gen);
    t->served = 1;
    t->started = t->all = t->still = t->told = 0;
    t->follows = m->judged->follow;
    t->server = m->judged->pull;
    t->link = m->link;
    if (t->follows)
        follow_accepted(w, d, t, m->judged);
    m->judged = NULL;
}

bool ticket_ready(struct sim *w, uint32_t d, const struct tk *t)
{
    const struct session *s = ticket_session(w, d, t);

    return !t->promised && t->left && (t->sealed || !t->own) && !t->served &&
           space_current(w, d, s->tenant, s->space);
}

static bool same_list(struct sim *w, uint32_t d, const struct asked *a, const struct tk *t)
{
    const struct session *s = ticket_session(w, d, t);

    return a->ns == s->ns && a->to == s->written && w->common[a->variant][s->variant] >= s->written;
}

bool ticket_suits(const struct sim *w, uint32_t d, const struct asked *a, const struct session *s)
{
    return w->cfg.heads > 0 || a->ranks == w->d[d].pool[s->pool].ranks;
}

struct tk *ticket_server(struct sim *w, uint32_t d, struct pull_id pull)
{
    for (uint32_t i = 0; i < SESSIONS; i++) {
        struct tk *t = &w->tickets[d]->tk[i];

        if (t->stands && t->served && pull_id_equal(t->server, pull))
            return t;
    }
    return NULL;
}

/* Called before the core receives it. */
void ticket_heard(struct sim *w, uint32_t d, const struct peer_msg *msg, uint32_t link)
{
    struct tickets *m = w->tickets[d];
    struct asked *a = ticket_asked(w, sim_far(w, d), msg->pull);
    struct tk *t;

    if (!w->cfg.ticket_ms || !a)
        return;
    t = ticket_of(w, d, &a->of.ticket);
    if (msg->kind == PEER_PULL_DONE) {
        a->walking = 0;
        if (t && msg->err == TERN_OK && !t->ends) {
            t->ends = 1;
            m->taken[ticket_session(w, d, t)->tenant]++;
            if (!t->served || !pull_id_equal(t->server, a->pull) || t->still)
                MARK(ticket_taken_late);
            if (t->served && !pull_id_equal(t->server, a->pull))
                follow_promise_over(w, d, t); /* the later fetch gets nothing */
        }
        if (!t || !t->served || !pull_id_equal(t->server, a->pull))
            return;
        t->failed |= msg->err != TERN_OK;
        t->told = 1;
        served_no_more(t);
        follow_over(w, d, msg->pull);
        return;
    }
    if (a->follow && msg->kind != PEER_PULL_OPEN) {
        follow_heard(w, d, msg, a);
        return;
    }
    if (msg->kind != PEER_PULL_OPEN && (msg->kind != PEER_PULL_TOKENS || !a->walking))
        return;
    a->walking = a->refused = 0;
    m->judged = a;
    m->unsure = false;
    m->told = false;
    m->link = link;
    if (a->follow)
        m->may_serve = follow_heard(w, d, msg, a);
    else
        m->may_serve = t && shown_expected(w, d, &a->of.ticket, a->tenant) == TERN_OK &&
                       ticket_ready(w, d, t) && same_list(w, d, a, t) &&
                       ticket_suits(w, d, a, ticket_session(w, d, t));
}

/* Checks the cause of a refused fetch by ticket. */
static void check_refusal(struct sim *w, uint32_t d, const struct asked *a,
                          const struct peer_msg *msg)
{
    enum tern_err shown = shown_expected(w, d, &a->of.ticket, a->tenant);
    const struct tk *t = ticket_of(w, d, &a->of.ticket);
    const struct session *s = t ? ticket_session(w, d, t) : NULL;

    switch (msg->err) {
    case TERN_GONE:
        EXPECT(shown == TERN_GONE || (s && !space_current(w, d, s->tenant, s->space)) ||
                   (s && w->d[d].pool[s->pool].closing),
               "ticket_lost", "ticket %u.%u stands, but a fetch is told GONE", a->of.ticket.id.slot,
               a->of.ticket.id.gen);
        MARK(ticket_gone);
        if (s && !t->ends)
            MARK(ticket_of_reset);
        return;
    case TERN_DENIED:
        EXPECT(shown == TERN_DENIED, "ticket_denied", "ticket %u.%u", a->of.ticket.id.slot,
               a->of.ticket.id.gen);
        MARK(ticket_denied);
        if (a->tenant != a->of.tenant)
            MARK(ticket_foreign);
        return;
    case TERN_INVALID:
        EXPECT(shown == TERN_OK && !same_list(w, d, a, t), "ticket_tokens",
               "ticket %u.%u: its tokens are refused", a->of.ticket.id.slot, a->of.ticket.id.gen);
        MARK(ticket_other_tokens);
        return;
    case TERN_UNSUPPORTED:
        EXPECT(shown == TERN_OK && !ticket_suits(w, d, a, s), "ticket_layout", "%u ranks",
               a->ranks);
        return;
    default: EXPECT(msg->err == TERN_BUSY, "ticket_refused", "err %u", msg->err); MARK(ticket_busy);
    }
    if (t && t->promised)
        MARK(promise_busy);
}

/* A transfer that was accepted is over before its offer. */
static void server_ended(struct sim *w, uint32_t d, struct pull_id pull)
{
    struct tk *t = ticket_server(w, d, pull);

    if (t && !t->started)
        t->served = 0;
}

static struct tk *server_started(struct sim *w, uint32_t d, const struct peer_msg *msg)
{
    struct tk *t = ticket_server(w, d, msg->pull);

    if (!t)
        return NULL;
    t->started = 1;
    t->all = !t->follows || peer_msg_until(msg) == msg->to;
    t->serve = msg->serve;
    return t;
}

/* All of the ticket is offered now, or will be. */
static void offered_all(struct sim *w, uint32_t d, const struct tk *t, struct asked *a)
{
    struct ticket as_shown = a->of.ticket;

    a->of = *shown_of(w, d, t);
    a->of.ticket = as_shown;
    a->length = ticket_session(w, d, t)->written;
    a->offered_all = 1;
}

bool ticket_offered(struct sim *w, uint32_t d, const struct peer_msg *msg)
{
    struct tickets *m = w->tickets[d];
    struct asked *a = ticket_asked(w, sim_far(w, d), msg->pull);
    bool asked = a && m->judged == a;
    struct tk *t;

    if (msg->kind == PEER_PULL_ABORT) {
        follow_over(w, d, msg->pull);
        return true;
    }
    if (msg->kind == PEER_PULL_OFFER && msg->err != TERN_OK)
        server_ended(w, d, msg->pull);
    else if (msg->kind == PEER_PULL_OFFER && !a) /* the asking daemon has been restarted since */
        return server_started(w, d, msg) != NULL;
    if (!w->cfg.ticket_ms || !a)
        return false;
    if (msg->kind == PEER_PULL_MORE) {
        if (asked && a->follow)
            ticket_accepted(w, d);
        else
            m->told |= asked;
        a->walking = 1;
        MARK(ticket_walked_in_pieces);
        return true;
    }
    if (msg->err != TERN_OK) {
        t = ticket_of(w, d, &a->of.ticket);
        a->refused = asked;
        if (asked && a->follow)
            follow_refused(w, d, a, msg);
        else if (asked)
            check_refusal(w, d, a, msg);
        a->walking = 0;
        m->told |= asked;
        return msg->err != TERN_BUSY || (asked && m->unsure) ||
               (a->follow ? !m->may_serve : !t || !ticket_ready(w, d, t));
    }
    if (asked)
        ticket_accepted(w, d);
    t = server_started(w, d, msg);
    EXPECT(t && t == ticket_of(w, d, &a->of.ticket), "ticket_offer",
           "pull %u.%u is offered a ticket that does not serve it", msg->pull.slot, msg->pull.gen);
    if (a->follow)
        follow_offered(w, d, t, a, msg);
    else
        EXPECT(msg->to == ticket_session(w, d, t)->written, "ticket_offer_length",
               "%u tokens of %u", msg->to, ticket_session(w, d, t)->written);
    if (!a->follow || peer_msg_until(msg) == msg->to)
        offered_all(w, d, t, a);
    if (t->failed)
        MARK(ticket_offered_again);
    return true;
}

/* For a window that moves whole, pages that have left the table cannot be compared. */
static bool in_table(const struct sim *w, uint32_t d, const struct session *s,
                     const struct granule *g, uint32_t group, uint32_t at)
{
    const struct entry *e = &s->table[group][at];

    if (group >= w->cfg.ngroups && recurrent(w, group) && !s->top[group])
        return g->own != OWN_SESSION;
    if (group >= w->cfg.ngroups && !recurrent(w, group) &&
        (at < s->first[group] || e->granule == HOLE))
        return g->own != OWN_SESSION;
    return at < TABLE && &w->d[d].granule[s->tenant][e->granule] == g && e->gen == g->gen;
}

bool ticket_page(struct sim *w, uint32_t d, struct pull_id pull, const struct granule *g,
                 uint32_t group, uint32_t at)
{
    const struct tk *t = ticket_server(w, d, pull);

    if (t && t->promised)
        return follow_page(w, d, t, g, group, at);
    return t && in_table(w, d, ticket_session(w, d, t), g, group, at);
}

bool ticket_serves(struct sim *w, uint32_t d, struct serve_id serve, const struct granule *g)
{
    const struct tk *t = &w->tickets[d]->tk[g->owner % SESSIONS];

    return t->stands && !t->promised && t->served && t->started && !t->still &&
           serve_id_equal(t->serve, serve);
}

void ticket_quiet(struct sim *w, uint32_t d, struct serve_id serve)
{
    for (uint32_t i = 0; i < SESSIONS; i++) {
        struct tk *t = &w->tickets[d]->tk[i];

        if (!t->stands || !t->served || !t->started || !serve_id_equal(t->serve, serve))
            continue;
        t->still = 1;
        served_no_more(t);
        if (t->served)
            MARK(ticket_end_awaited);
    }
}

void ticket_link_down(struct sim *w, uint32_t d, uint32_t link)
{
    for (uint32_t i = 0; i < ASKED; i++)
        w->tickets[sim_far(w, d)]->asked[i].walking = 0;
    for (uint32_t i = 0; i < SESSIONS; i++) {
        struct tk *t = &w->tickets[d]->tk[i];

        if (!t->stands || !t->served || t->link != link)
            continue;
        t->failed = t->told = 1;
        follow_over(w, d, t->server);
        served_no_more(t);
        MARK(ticket_link_down);
    }
}
