/* core_step: applies one event and fills the actions. The event's machine handles it; then work
 * that waits for room in the actions continues. core_deadline is 0 while some is left. */
#include <string.h>

#include "core/arena/actions.h"
#include "core/disk/entries.h"
#include "core/disk/stores.h"
#include "core/fetch/asks.h"
#include "core/fetch/fetch.h"
#include "core/session/call.h"
#include "core/session/engines.h"
#include "core/session/record.h"
#include "core/session/resets.h"
#include "core/session/retires.h"
#include "core/session/sessions.h"
#include "core/session/tickets.h"
#include "core/tier/host.h"
#include "core/transfer/peer_words.h"
#include "core/transfer/pulls.h"
#include "core/transfer/serves.h"
#include "core/tree/nodes.h"
#include "core/turn/turns.h"

enum tern_err request_step(struct core *c, struct call *call, struct reply *ret)
{
    const struct req_step *r = &call->req->step;
    const uint32_t begun = c->visits;
    bool told = false; /* an answer has one text */

    ret->step.results = call->out->results;
    if (r->n > STEP_OPS_MAX)
        return refuse(ret, TERN_INVALID, "a Step has at most 1,024 operations: send several");
    for (uint32_t i = 0; i < r->n; i++) {
        const struct step_op *op = &r->ops[i];
        struct op_result *result = &call->out->results[ret->step.n++];

        *result = (struct op_result){0};
        piece_begin(c);
        if (c->visits >= batch_end(c))
            c->piece_end = c->visits; /* a Close frees nothing yet */
        if (op->kind == STEP_UNLEASE)
            result->err = lease_return(c, call->engine, op, result);
        else
            session_op(c, call->out, call->engine, op, result);
        if (told)
            result->text = NULL;
        told = told || result->text;
        result->shortage.goes_on &= c->visits > begun; /* else the client would repeat for ever */
        if ((r->pieces && op_goes_on(result)) || (result->err != TERN_OK && op->barrier))
            break;
    }
    return TERN_OK;
}

static enum tern_err fetch_from(struct core *c, struct call *call, struct reply *ret)
{
    const struct ticket *t = &call->req->fetch.ticket;

    if (t->id.gen != 0 && t->incarnation == c->incarnation && !fetch_moves_here(c, call))
        return fetch_from_here(c, call, ret);
    if (t->id.gen != 0)
        return fetch_from_peer(c, call, ret);
    if (call->req->fetch.peer == PEER_HOST)
        return fetch_from_host(c, call, ret);
    return call->req->fetch.peer == PEER_DISK ? fetch_from_disk(c, call, ret)
                                              : fetch_from_peer(c, call, ret);
}

enum tern_err request_fetch(struct core *c, struct call *call, struct reply *ret)
{
    reply_lengths(call->session, ret);
    TRY(fetch_from(c, call, ret));
    call->session->fetched = 1;
    return TERN_OK;
}

enum tern_err request_drain(struct core *c, struct call *call, struct reply *ret)
{
    if (c->draining != call->req->drain.on)
        touch(c);
    c->draining = call->req->drain.on;
    ret->drain.sessions = c->limits.sessions - c->free_sessions.n;
    return TERN_OK;
}

static enum tern_err pin_check(const struct core *c, const struct req_pin *r, struct reply *ret)
{
    static const char gone[] = "no such node: it was evicted; `ternctl tree` lists the nodes";
    const struct node *n;

    if (r->node.slot >= c->limits.nodes)
        return refuse(ret, TERN_GONE, gone);
    n = node_at(c, r->node.slot);
    if (!n->used || n->gen != r->node.gen || n->depth == 0)
        return refuse(ret, TERN_GONE, gone);
    if (!r->on && n->refs[REF_ADMIN] == 0)
        return refuse(ret, TERN_CONFLICT, "no operator has pinned the node: no pin to remove");
    if (r->on && node_pool(c, n)->state != POOL_OPEN)
        return refuse(ret, TERN_GONE, "the node's pool is being closed: it cannot be pinned");
    if (r->on && (!node_on_device(n) || !node_visible(n)))
        return refuse(ret, TERN_INVALID,
                      "the node is on the host tier alone: only nodes on the device can be pinned");
    return TERN_OK;
}

enum tern_err request_pin(struct core *c, struct call *call, struct reply *ret)
{
    const struct req_pin *r = &call->req->pin;
    struct node *n;

    TRY(pin_check(c, r, ret));
    n = node_at(c, r->node.slot);
    if (r->on && n->refs[REF_ADMIN] == 0) {
        n->admin_ns = c->now_ns;
        c->npinned++;
    }
    if (r->on)
        node_pin(c, r->node.slot, REF_ADMIN);
    ret->pin.refs = n->refs[REF_ADMIN] - !r->on;
    c->npinned -= ret->pin.refs == 0;
    if (!r->on)
        node_unpin(c, r->node.slot, REF_ADMIN);
    return TERN_OK;
}

enum asker { ASKER_ANY, ASKER_OPERATOR, ASKER_ENGINE, ASKER_SESSION, ASKER_RECORDS, ASKER_ANYHOW };

static const struct {
    enum tern_err (*answer)(struct core *c, struct call *call, struct reply *ret);
    enum asker asker;
    size_t session_at; /* from ASKER_SESSION on: offset of the session's handle in the request */
    bool may_wait;     /* the answer may follow the end of a transfer */
} requests[OP_COUNT] = {
#define ASKED_BY_ANY      .asker = ASKER_ANY
#define ASKED_BY_OPERATOR .asker = ASKER_OPERATOR
#define ASKED_BY_ENGINE   .asker = ASKER_ENGINE
#define ASKED_BY_SESSION(op)                                                                       \
    .asker = ASKER_SESSION, .session_at = offsetof(struct request, op.session)
#define ASKED_BY_RECORDS(op)                                                                       \
    .asker = ASKER_RECORDS, .session_at = offsetof(struct request, op.session)
#define ASKED_BY_ANYHOW(op)                                                                        \
    .asker = ASKER_ANYHOW, .session_at = offsetof(struct request, op.session)
#define ANSWERED_AT_ONCE false
#define ANSWERED_LATER   true
#define X(NAME, name, function, asked_by, answered)                                                \
    [OP_##NAME] = {.answer = (function), .may_wait = ANSWERED_##answered, ASKED_BY_##asked_by},
    OP_TABLE(X)
#undef X
};

/* Finds the session. Returns BUSY or GONE if the operation is not possible on it now. */
static enum tern_err session_asked(const struct core *c, enum op op, const struct engine *e,
                                   struct session_id id, struct session **ret,
                                   const char **ret_text)
{
    enum tern_err err = session_of(c, e, id, ret, ret_text);

    return err == TERN_BUSY && requests[op].asker == ASKER_ANYHOW ? TERN_OK : err;
}

/* The only place that finds the engine of a connection and the session that a request names. */
static enum tern_err call_resolve(const struct core *c, struct call *call, struct reply *ret)
{
    enum asker asker = requests[call->req->op].asker;
    const char *at = (const char *)call->req + requests[call->req->op].session_at;
    struct session_id id;
    const char *text;
    enum tern_err err;

    if (asker == ASKER_OPERATOR && !call->conn->admin)
        return refuse(ret, TERN_DENIED, "only operators may do this: use the admin socket");
    if (asker == ASKER_ANY || asker == ASKER_OPERATOR)
        return TERN_OK;
    TRY(engine_of_conn(c, call->conn, &call->engine, ret));
    if (asker == ASKER_ENGINE)
        return TERN_OK;
    memcpy(&id, at, sizeof id);
    err = session_asked(c, call->req->op, call->engine, id, &call->session, &text);
    if (err != TERN_OK)
        return refuse(ret, err, text);
    if (asker != ASKER_ANYHOW && call->session->releasing)
        return refuse(ret, TERN_BUSY, RELEASING);
    if (asker == ASKER_SESSION && session_rolls_back(c, call->session))
        return refuse(ret, TERN_BUSY, ROLLING_BACK);
    return TERN_OK;
}

enum tern_err core_gate(const struct core *c, struct session_id session, struct reply *ret)
{
    struct session *s = NULL;
    enum asker asker = ret->op < OP_COUNT ? requests[ret->op].asker : ASKER_ANY;

    ret->err = TERN_OK;
    if (asker < ASKER_SESSION || ret->conn >= c->limits.conns || !conn_at(c, ret->conn)->open ||
        conn_at(c, ret->conn)->engine == NONE ||
        engine_at(c, conn_at(c, ret->conn)->engine)->state != ENGINE_LIVE)
        return TERN_OK;
    ret->err = session_asked(c, ret->op, engine_at(c, conn_at(c, ret->conn)->engine), session, &s,
                             &ret->text);
    if (ret->err != TERN_OK && s)
        reply_lengths(s, ret);
    return ret->err;
}

static void answer(struct core *c, struct call *call, struct reply *ret)
{
    const struct request *req = call->req;

    ret->op = req->op;
    ret->conn = req->conn;
    ret->request_id = req->request_id;
    ret->trace_id = req->trace_id;
    ret->text = "";
    if (req->op >= OP_COUNT || !requests[req->op].answer) {
        ret->err = refuse(ret, TERN_UNSUPPORTED, "this daemon does not know that request");
        return;
    }
    ret->err = call_resolve(c, call, ret);
    if (ret->err != TERN_OK && call->session)
        reply_lengths(call->session, ret);
    if (ret->err == TERN_OK)
        ret->err = requests[req->op].answer(c, call, ret);
    if (call->engine)
        steps_count(c, call->engine);
    ret->runs = call->out->runs;
    ret->nruns = call->out->nruns;
}

static void request(struct core *c, struct actions *out, const struct request *req)
{
    struct call call = {.req = req, .out = out};
    struct reply aside;

    if (req->conn >= c->limits.conns || !conn_at(c, req->conn)->open)
        return;
    call.conn = conn_at(c, req->conn);
    if (req->op >= OP_COUNT || !requests[req->op].may_wait) {
        /* The first action: the asker receives it before its effects. */
        answer(c, &call, &action_add(out, ACT_REPLY)->reply);
        return;
    }
    memset(&aside, 0, sizeof aside);
    answer(c, &call, &aside);
    if (call.later)
        return;
    action_add(out, ACT_REPLY)->reply = aside;
}

static void conn_opened(struct core *c, const struct event *ev)
{
    struct conn *cn;

    if (ev->conn.conn >= c->limits.conns ||
        (!ev->conn.admin && ev->conn.tenant >= c->limits.tenants))
        return;
    cn = conn_at(c, ev->conn.conn);
    cn->open = 1;
    cn->gen = gen_next(cn->gen);
    cn->turns = LIST_EMPTY;
    cn->tenant = ev->conn.tenant;
    cn->proc = ev->conn.proc;
    cn->admin = ev->conn.admin;
    cn->engine = NONE;
    touch(c);
}

static void conn_closed(struct core *c, uint32_t conn)
{
    if (conn >= c->limits.conns || !conn_at(c, conn)->open)
        return;
    wait_end(c, conn_at(c, conn)); /* while the engine is known */
    engine_conn_closed(c, conn);
    session_turns_lost(c, conn);
}

static void link_event(struct core *c, const struct event *ev)
{
    uint32_t peers = c->limits.peers ? c->limits.peers : 1;
    struct link *l;

    if (ev->link.link >= c->limits.links || ev->link.peer >= peers)
        return;
    l = link_at(c, ev->link.link);
    if (ev->kind == EV_LINK_UP && c->limits.peers && link_at(c, ev->link.peer)->vacant)
        return;
    touch(c);
    if (ev->kind == EV_LINK_UP) {
        l->up = 1;
        if (l->incarnation != ev->link.incarnation)
            l->former = l->incarnation;
        l->incarnation = ev->link.incarnation;
        l->peer = ev->link.peer;
        l->tenants = ev->link.tenants;
        reset_link_up(c, ev->link.link);
        return;
    }
    l->up = 0;
    reset_link_down(c, ev->link.link);
    if (ev->link.link >= c->limits.peers) {
        serve_link_down(c, ev->link.link);
        return;
    }
    ask_link_down(c, ev->link.link);
    pull_link_down(c, ev->link.link);
}

/* A peer left its slot, or another one joined in it. */
static void member_event(struct core *c, uint32_t peer, bool joined)
{
    struct link *l;

    if (peer >= c->limits.peers)
        return;
    l = link_at(c, peer);
    if (l->up || !l->vacant != !joined)
        return;
    l->vacant = !joined;
    l->figures = (struct peer_figures){.tokens = 0};
    c->members += joined ? 1 : UINT32_MAX;
    reset_peer_changed(c, peer);
    touch(c);
}

/* Each side of a link may send only its own kinds of message. */
static void peer_event(struct core *c, struct actions *out, const struct event *ev)
{
    const struct peer_msg *m = &ev->peer.msg;
    const bool source = ev->peer.link < c->limits.peers; /* role of the other side */

    if (ev->peer.link >= c->limits.links || !link_at(c, ev->peer.link)->up)
        return;
    if (!peer_may_send(m->kind, source))
        action_add(out, ACT_LINK_CLOSE)->link.link = ev->peer.link;
    else if (m->kind == PEER_RESET || m->kind == PEER_RESET_DONE)
        reset_msg(c, out, ev->peer.link, m);
    else if (source)
        fetch_msg(c, out, ev->peer.link, m);
    else
        serve_msg(c, out, ev->peer.link, m);
}

/* The jobs share a piece: at its end seal_done leaves each further node to its next job. */
static void sealed(struct core *c, const struct event *ev)
{
    check(ev->sealed.n > 0 && ev->sealed.n <= SEALED_JOBS_MAX);
    piece_begin(c);
    for (uint32_t i = 0; i < ev->sealed.n; i++)
        if (ev->sealed.job[i].slot < c->limits.nodes)
            seal_done(c, ev->sealed.job[i]);
        else
            ticket_sealed(c, ev->sealed.job[i]);
}

static void apply(struct core *c, struct actions *out, const struct event *ev)
{
    switch (ev->kind) {
    case EV_TIMER:
    case EV_LOOK: return;
    case EV_CONN_OPENED: conn_opened(c, ev); return;
    case EV_CONN_CLOSED: conn_closed(c, ev->conn.conn); return;
    case EV_PROC_GONE: engine_proc_gone(c, out, ev->proc.proc); return;
    case EV_STEP_DONE:
        engine_step_done(c, ev->step_done.engine, ev->step_done.rank, ev->step_done.step);
        return;
    case EV_REQUEST: request(c, out, &ev->request); return;
    case EV_SEALED: sealed(c, ev); return;
    case EV_ZEROED: pool_zeroed(c, ev->zeroed.pool); return;
    case EV_LINK_UP:
    case EV_LINK_DOWN: link_event(c, ev); return;
    case EV_PEER_MSG: peer_event(c, out, ev); return;
    case EV_PULLED: fetch_arrived(c, ev); return;
    case EV_PULL_BROKEN: pull_broken(c, ev->broken.pull, ev->broken.err); return;
    case EV_PULL_QUIET: pull_proved_quiet(c, ev->pull_quiet.pull); return;
    case EV_SERVE_QUIET: serve_proved_quiet(c, ev->serve_quiet.serve); return;
    case EV_COPIED: copy_done(c, ev->copied.job, ev->copied.err); return;
    case EV_RECORD_CHECKED: record_checked(c, out, &ev->checked); return;
    case EV_DISK_FOUND: disk_found(c, ev); return;
    case EV_DISK_READY: disk_ready(c, ev->ready.next_file, ev->ready.served_ns); return;
    case EV_DISK_WRITTEN: disk_written(c, out, ev->written.store, ev->written.err); return;
    case EV_DISK_DROPPED: disk_file_dropped(c, ev->dropped.file); return;
    case EV_SHUTDOWN: disk_shutdown(c, ev->shutdown.deadline_ns); return;
    case EV_PEER_LEFT:
    case EV_PEER_JOINED: member_event(c, ev->member.peer, ev->kind == EV_PEER_JOINED); return;
    case EV_NONE:
    case EV_COUNT: return;
    }
}

/* Returns true if the event needs room for a whole fetch, load or lease, or is a Step that the
 * client will not repeat until it is complete. */
static bool needs_room(const struct event *ev)
{
    const struct request *r = &ev->request;

    return ev->kind == EV_PEER_MSG ||
           (ev->kind == EV_REQUEST &&
            (r->op == OP_FETCH || r->op == OP_RECOVER || r->op == OP_PAGE_LEASE ||
             (r->op == OP_STEP && !r->step.pieces)));
}

/* T20: the shell raises an alarm and keeps the tape; tests of the core fail here. */
static void step_over(struct core *c, enum event_kind kind)
{
    struct steps_over *o = &c->over;

    o->steps++;
    o->last_kind = kind;
    o->last_visits = c->visits;
    if (c->visits <= o->visits)
        return;
    o->kind = kind;
    o->visits = c->visits;
}

void core_step(struct core *c, const struct event *ev, struct actions *out)
{
    bool all;

    out->n = out->nruns = out->nrefs = out->npages = out->nspans = out->nreads = out->nhosts = 0;
    out->opens = false;
    check(ev->now_ns >= c->now_ns && out->refs_max == c->limits.table_pages);
    c->now_ns = ev->now_ns;
    c->touched = c->visits = 0;
    c->piece_most = needs_room(ev) ? ROOM_VISITS_MAX : PIECE_VISITS_MAX;
    piece_begin(c);
    all = turns_expire(c);          /* so that a request with an expired turn's handle is late, */
    all = tickets_expire(c) && all; /* and one with an expired ticket */
    apply(c, out, ev);
    /* The next request may need what a request frees. */
    c->piece_most = ev->kind == EV_REQUEST ? PIECE_VISITS_MAX
                    : ev->kind == EV_TIMER ? PIECE_VISITS_TIMER
                                           : 0;
    piece_begin(c);
    all = loads_flush(c) && all;
    all = sessions_flush(c) && all;
    all = retires_flush(c) && all;     /* retires wait for these sessions' pages */
    all = closes_flush(c, out) && all; /* closes wait for retire records */
    all = engines_flush(c, out) && all;
    all = evictions_flush(c, out) && all;
    all = reset_spread(c, out) && all; /* ahead of fetches on the same links */
    all = serve_flush(c, out, ev->kind == EV_SEALED) && all;
    all = tickets_flush(c, out) && all; /* removes tickets that no serve uses any more */
    all = fetch_flush(c, out) && all;
    all = asks_flush(c, out) && all;
    all = seal_flush(c, out) && all;
    all = away_flush(c, out) && all;
    all = disk_flush(c, out) && all;
    all = reset_flush(c) && all; /* the next steps wait for what the ones above free */
    all = pool_flush(c, out) && all;
    all = reserve_flush(c) && all;
    all = copy_flush(c, out) && all;
    all = obtain_flush(c, ev->kind == EV_LOOK || c->resets > 0 ? 0 : CHANGED_MAX) && all;
    all = waits_flush(c, out) && all; /* after everything that frees or names a step */
    stages_settle(c);
    c->left_over = !all;
    if (c->visits > c->over.bound)
        step_over(c, ev->kind);
    c->changes += c->touched;
}

uint64_t core_deadline(const struct core *c)
{
    static uint64_t (*const each[])(const struct core *c) = {
        pull_deadline, serve_deadline, turn_deadline, ticket_deadline, disk_deadline, ask_deadline};
    uint64_t at = c->resets_until_ns ? c->resets_until_ns : UINT64_MAX;

    if (c->left_over)
        return 0;
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        uint64_t next = each[i](c);

        at = next < at ? next : at;
    }
    return at;
}

bool core_waits_for_steps(const struct core *c)
{
    return c->nretires + c->away.n + c->nwaits + c->tickets_due.n > 0;
}
