/* The network: one connection from each daemon to the other, a queue of messages each way. Messages
 * arrive in order or, once the connection has died, not at all; each side learns of the death at
 * its own time. */
#include "data.h"
#include "disk.h"
#include "tickets.h"

static void link_event(struct sim *w, uint32_t d, uint32_t number, bool up)
{
    struct event ev = {.kind = up ? EV_LINK_UP : EV_LINK_DOWN};

    ev.link.link = number;
    ev.link.incarnation = w->d[sim_far(w, d)].incarnation;
    ev.link.tenants = tenants_shared(w);
    if (number == 0 && up) {
        if (w->link[d].incarnation != ev.link.incarnation)
            w->link[d].former = w->link[d].incarnation;
        w->link[d].incarnation = ev.link.incarnation;
    }
    sim_step(w, d, &ev);
}

void net_connect(struct sim *w, uint32_t d)
{
    struct link *l = &w->link[d];
    uint32_t n;

    if (l->alive || l->up[0])
        return;
    for (n = 1; n < LINKS && w->d[sim_far(w, d)].inbound_busy[n]; n++)
        ;
    if (n == LINKS || l->up[1]) /* this record still has the other end of the old connection */
        return;
    l->alive = 1;
    l->one_way = 0;
    l->number = (uint8_t)n;
    l->head[0] = l->head[1] = l->n[0] = l->n[1] = 0;
    l->up[0] = l->up[1] = 1;
    w->d[sim_far(w, d)].inbound_busy[n] = 1;
    TRACE("  link %u up\n", d);
    link_event(w, sim_far(w, d), n, true);
    link_event(w, d, 0, true);
}

static void copy_arrays(struct message *m, const struct peer_msg *msg)
{
    uint32_t at = 0;

    m->msg = *msg;
    if (msg->kind == PEER_PULL_OFFER && peer_msg_tokens(msg) > 0)
        memcpy(m->tokens, msg->tokens, peer_msg_tokens(msg) * sizeof m->tokens[0]);
    else if (peer_msg_tokens(msg) > 0) {
        memcpy(m->tokens, msg->tokens, peer_msg_tokens(msg) * sizeof m->tokens[0]);
        memcpy(m->keys, msg->keys, msg->nkeys * sizeof m->keys[0]);
        m->msg.tokens = m->tokens;
        m->msg.keys = m->keys;
        m->msg.nruns = 0;
        return;
    }
    m->msg.tokens = msg->kind == PEER_PULL_OFFER ? m->tokens : NULL;
    m->msg.keys = NULL;
    m->msg.nkeys = 0;
    if (msg->kind != PEER_PULL_OFFER)
        m->msg.nruns = 0;
    for (uint32_t i = 0; i < m->msg.nruns; i++) {
        m->runs[i] = msg->runs[i];
        memcpy(m->refs + at, msg->runs[i].refs, msg->runs[i].n * sizeof m->refs[0]);
        m->runs[i].refs = m->refs + at;
        at += msg->runs[i].n;
    }
    m->msg.runs = m->runs;
}

static void check_fits(struct sim *w, const struct peer_msg *msg)
{
    uint32_t refs = 0, tokens = peer_msg_tokens(msg);

    if (msg->kind == PEER_PULL_OPEN || msg->kind == PEER_PULL_TOKENS)
        EXPECT(msg->to <= w->span && msg->nkeys <= 4 && tokens <= w->span &&
                   (w->cfg.open_tokens == 0 || tokens <= w->cfg.open_tokens),
               "open_too_long", "%u tokens of %u, %u keys", tokens, msg->to, msg->nkeys);
    if (msg->kind == PEER_PULL_TOKENS)
        MARK(fetch_sends_more_tokens);
    if (msg->kind == PEER_PULL_NEXT)
        MARK(fetch_asks_next_piece);
    if (msg->kind != PEER_PULL_OFFER)
        return;
    EXPECT(msg->nruns <= GROUPS, "offer_runs", "%u runs", msg->nruns);
    for (uint32_t i = 0; i < msg->nruns; i++)
        refs += msg->runs[i].n;
    EXPECT(refs <= 96, "offer_pages", "%u pages", refs);
}

/* A source that asks for more tokens pins the path of those it has until it offers something, or
 * learns that the transfer is over. */
static void walk(struct sim *w, uint32_t d, struct pull_id id, bool on)
{
    struct pull_id *at = &w->d[d].walking[id.slot % OPENS];

    if (on || pull_id_equal(*at, id))
        *at = on ? id : (struct pull_id){0};
}

void net_send(struct sim *w, uint32_t d, const struct action *act)
{
    bool mine = act->peer.link == 0;
    struct link *l = &w->link[mine ? d : sim_far(w, d)];
    uint32_t dir = mine ? 0 : 1, at;
    const struct peer_msg *msg = &act->peer.msg;

    TRACE("  daemon %u sends %u on link %u, err %u, pull %u.%u\n", d, msg->kind, act->peer.link,
          msg->err, msg->pull.slot, msg->pull.gen);
    EXPECT(act->peer.link < LINKS, "link_number", "a message for link %u", act->peer.link);
    EXPECT(l->up[dir] && (mine || l->number == act->peer.link), "send_on_dead_link",
           "daemon %u sends %u on link %u, which it knows is down", d, msg->kind, act->peer.link);
    check_fits(w, msg);
    if (msg->kind == PEER_PULL_OFFER && msg->each != 0)
        question_answered(w, d, msg);
    else if (msg->kind == PEER_PULL_OFFER)
        serve_offered(w, d, act->peer.link, msg);
    if (!mine && msg->err == TERN_TIMED_OUT)
        MARK(serve_deadline);
    if (msg->kind == PEER_PULL_OPEN && msg->history > msg->from)
        MARK(fetch_history_reused);
    if (msg->kind == PEER_PULL_OPEN && msg->each != 0)
        question_asked(w, d, msg);
    else if (msg->kind == PEER_PULL_OPEN)
        pull_opened(w, d, msg);
    if (msg->kind == PEER_PULL_DONE) {
        pull_ended(w, d, msg->pull);
        ticket_done(w, d, msg);
    }
    if (msg->kind == PEER_PULL_MORE || msg->kind == PEER_PULL_ABORT)
        ticket_offered(w, d, msg);
    if (msg->kind == PEER_PULL_MORE || msg->kind == PEER_PULL_OFFER)
        walk(w, d, msg->pull, msg->kind == PEER_PULL_MORE);
    if (!l->alive || (l->one_way >> dir & 1)) {
        FAULT(message_lost);
        l->lossy = 1;
        return;
    }
    if (msg->kind == PEER_RESET_DONE && chance(w, 10)) {
        FAULT(answer_kept);
        return;
    }
    if (l->n[dir] == QUEUE) { /* a send buffer that is full for ever ends the connection */
        net_cut(w, mine ? d : sim_far(w, d));
        return;
    }
    at = (l->head[dir] + l->n[dir]++) % QUEUE;
    copy_arrays(&l->queue[dir][at], msg);
}

void net_deliver(struct sim *w, uint32_t conn, uint32_t dir)
{
    struct link *l = &w->link[conn];
    struct event ev;
    uint32_t to = dir == 0 ? sim_far(w, conn) : conn;
    struct core_view before, after;
    struct message *m;

    if (!l->alive || l->n[dir] == 0 || !l->up[1 - dir])
        return;
    m = &l->queue[dir][l->head[dir]];
    l->head[dir] = (uint8_t)((l->head[dir] + 1) % QUEUE);
    l->n[dir]--;
    ev = (struct event){.kind = EV_PEER_MSG};
    ev.peer.link = dir == 0 ? l->number : 0;
    ev.peer.msg = m->msg;
    TRACE("  daemon %u receives %u\n", to, m->msg.kind);
    if (w->cfg.early) /* a promise ends with its engine */
        give_back_all(w, to);
    if (m->msg.kind == PEER_PULL_OPEN && m->msg.each == 0)
        w->d[to].open_resets[m->msg.pull.slot % OPENS] = w->d[to].resets;
    for (uint32_t p = 0; p < POOLS && m->msg.kind == PEER_PULL_OFFER; p++)
        w->d[to].pool[p].evictions++; /* room is made at once for all that is offered */
    if (m->msg.kind == PEER_PULL_OFFER)
        pull_offered(w, to, &m->msg);
    follow_told(w, to, &m->msg);
    if (m->msg.kind == PEER_PULL_DONE)
        walk(w, to, m->msg.pull, false);
    if (dir == 0)
        ticket_heard(w, to, &m->msg, l->number);
    core_view(w->d[to].core, &before);
    disk_reset_told(w, to, &ev.peer.msg, true);
    sim_step(w, to, &ev);
    disk_reset_told(w, to, &ev.peer.msg, false);
    core_view(w->d[to].core, &after);
    if (after.namespaces_reset != before.namespaces_reset)
        reset_heard(w, to, &ev.peer.msg);
}

void net_cut(struct sim *w, uint32_t conn)
{
    struct link *l = &w->link[conn];

    if (!l->alive)
        return;
    TRACE("  link %u cut\n", conn);
    l->alive = 0;
    l->lossy = 1;
    l->n[0] = l->n[1] = 0;
}

void net_notice(struct sim *w, uint32_t conn, uint32_t side)
{
    struct link *l = &w->link[conn];
    uint32_t d = side == 0 ? conn : sim_far(w, conn);

    if (!l->up[side])
        return;
    net_cut(w, conn);
    l->up[side] = 0;
    TRACE("  daemon %u learns that link %u is down\n", d, conn);
    if (side == 1) {
        w->d[d].inbound_busy[l->number] = 0;
        memset(w->d[d].walking, 0, sizeof w->d[d].walking);
        ticket_link_down(w, d, l->number);
    }
    link_event(w, d, side == 0 ? 0 : l->number, false);
    for (uint32_t i = 0; i < SESSIONS && side == 0; i++) {
        const struct session *x = &w->d[d].session[i];

        EXPECT(!x->live || x->turn != TURN_FETCHING || x->fetch_host || x->fetch_disk || x->deaf,
               "fetch_outlives_link", "session %u still waits for a peer that is known to be lost",
               i);
    }
}

void net_closed_by(struct sim *w, uint32_t d, uint32_t link)
{
    uint32_t conn = link == 0 ? d : sim_far(w, d);

    (void)link;
    net_cut(w, conn);
}
