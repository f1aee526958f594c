/* core_step: one event in, actions out. Each event goes to the machine that owns it; then whatever
 * waits for room in the actions is taken on, and core_deadline says "now" while something is left.
 */
#include "core/arena/machine.h"
#include "core/tier/host.h"

static void step_request(struct core *c, struct actions *out, const struct request *req,
                         struct reply *ret)
{
    struct engine *e;

    ret->err = engine_of_conn(c, req->conn, &e, &ret->text);
    ret->step.results = out->results;
    if (ret->err != TERN_OK)
        return;
    if (req->step.n > STEP_OPS_MAX) {
        ret->err = TERN_INVALID;
        ret->text = "a Step has at most 1,024 operations: send several";
        return;
    }
    for (uint32_t i = 0; i < req->step.n; i++) {
        const struct step_op *op = &req->step.ops[i];
        struct op_result *r = &out->results[ret->step.n++];

        *r = (struct op_result){0};
        session_op(c, out, e, op, r);
        c->errors[r->err]++;
        if (r->err != TERN_OK && op->barrier)
            break;
    }
}

static uint32_t pages_used(const struct core *c, enum tier tier)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < c->limits.pools; i++) {
        const struct pool *p = pool_at(c, i);

        if (p->state == POOL_EMPTY || p->tier != tier)
            continue;
        for (uint32_t g = 0; g < p->ngroups; g++)
            for (uint32_t s = 0; s < PAGE_STATES; s++)
                n += s == PAGE_FREE ? 0 : p->group[g].count[s];
    }
    return n;
}

static void evict_request(struct core *c, const struct request *req, struct reply *ret)
{
    const struct req_evict *r = &req->evict;
    uint32_t pages = pages_used(c, TIER_DEVICE), host_pages = pages_used(c, TIER_HOST);
    struct pool *only = r->pool.slot == NONE ? NULL : pool_find(c, r->pool);

    if (!conn_at(c, req->conn)->admin || (r->pool.slot != NONE && !only)) {
        ret->err = only ? TERN_DENIED : r->pool.slot == NONE ? TERN_DENIED : TERN_GONE;
        ret->text = "evicting is for the admin socket, and for a pool that is there";
        return;
    }
    for (uint32_t i = 0; i < c->limits.pools; i++) {
        struct pool *p = pool_at(c, i);

        if (p->state == POOL_EMPTY || (only && p != only))
            continue;
        while ((r->nodes == 0 || ret->evict.nodes < r->nodes) && evict_unheld(c, p))
            ret->evict.nodes++;
    }
    ret->evict.pages = pages - pages_used(c, TIER_DEVICE);
    ret->evict.host_pages = host_pages - pages_used(c, TIER_HOST);
}

static void drain_request(struct core *c, const struct request *req, struct reply *ret)
{
    if (!conn_at(c, req->conn)->admin) {
        ret->err = TERN_DENIED;
        ret->text = "draining is for the admin socket";
        return;
    }
    if (c->draining != req->drain.on)
        touch(c);
    c->draining = req->drain.on;
    ret->drain.sessions = c->limits.sessions - c->free_sessions.n;
}

static void reset_request(struct core *c, const struct request *req, struct reply *ret)
{
    struct engine *e;

    ret->err = engine_of_conn(c, req->conn, &e, &ret->text);
    if (ret->err == TERN_OK)
        ret->namespace_reset.nodes = spaces_reset(c, e->tenant, req->namespace_reset.ns);
}

static enum tern_err pin_check(const struct core *c, const struct request *req,
                               const char **ret_text)
{
    const struct req_pin *r = &req->pin;
    const struct node *n;

    *ret_text = "pinning is for the admin socket";
    if (!conn_at(c, req->conn)->admin)
        return TERN_DENIED;
    *ret_text = "no such node: it is gone, look at the tree again";
    if (r->node.slot >= c->limits.nodes)
        return TERN_GONE;
    n = node_at(c, r->node.slot);
    if (!n->used || n->gen != r->node.gen || n->depth == 0)
        return TERN_GONE;
    *ret_text = "the node has no pin of an operator";
    if (!r->on)
        return n->refs[REF_ADMIN] > 0 ? TERN_OK : TERN_CONFLICT;
    *ret_text = "the node is not on the device now: what is on the host alone is not pinned";
    return node_on_device(n) && node_visible(n) ? TERN_OK : TERN_INVALID;
}

static void pin_request(struct core *c, const struct request *req, struct reply *ret)
{
    const struct req_pin *r = &req->pin;
    struct node *n;

    ret->err = pin_check(c, req, &ret->text);
    if (ret->err != TERN_OK)
        return;
    ret->text = "";
    n = node_at(c, r->node.slot);
    if (r->on && n->refs[REF_ADMIN] == 0)
        n->admin_ns = c->now_ns;
    if (r->on)
        node_pin(c, r->node.slot, REF_ADMIN);
    ret->pin.refs = n->refs[REF_ADMIN] - !r->on;
    if (!r->on)
        node_unpin(c, r->node.slot, REF_ADMIN);
}

static void dispatch(struct core *c, struct actions *out, const struct request *req,
                     struct reply *ret, bool *ret_later)
{
    switch (req->op) {
    case OP_ENGINE_JOIN: engine_join(c, req, ret); return;
    case OP_ENGINE_LEAVE: engine_leave(c, out, req, ret); return;
    case OP_POOL_OPEN: pool_open(c, req, ret); return;
    case OP_POOL_MAP: pool_map(c, req, ret); return;
    case OP_POOL_CLOSE: pool_close(c, req, ret); return;
    case OP_SESSION_OPEN: session_open(c, req, ret); return;
    case OP_PEEK: session_peek(c, req, ret); return;
    case OP_MATCH: session_match(c, out, req, ret); return;
    case OP_STEP: step_request(c, out, req, ret); return;
    case OP_FETCH:
        if (req->fetch.peer == PEER_HOST)
            session_fetch_host(c, req, ret, ret_later);
        else
            pull_fetch(c, out, req, ret, ret_later);
        return;
    case OP_FETCH_CANCEL: pull_cancel(c, out, req, ret); return;
    case OP_EVICT: evict_request(c, req, ret); return;
    case OP_DRAIN: drain_request(c, req, ret); return;
    case OP_RETRACT: session_retract(c, req, ret); return;
    case OP_RECOVER: session_recover(c, out, req, ret, ret_later); return;
    case OP_NAMESPACE_RESET: reset_request(c, req, ret); return;
    case OP_PIN: pin_request(c, req, ret); return;
    case OP_NONE:
    case OP_COUNT: break;
    }
    ret->err = TERN_UNSUPPORTED;
    ret->text = "this build does not know that request";
}

static void request(struct core *c, struct actions *out, const struct request *req)
{
    struct reply *r;
    bool later = false;

    if (req->conn >= c->limits.conns || !conn_at(c, req->conn)->open)
        return;
    r = &action_add(out, ACT_REPLY)->reply;
    r->op = req->op;
    r->conn = req->conn;
    r->request_id = req->request_id;
    r->trace_id = req->trace_id;
    r->text = "";
    dispatch(c, out, req, r, &later);
    r->runs = out->runs;
    r->nruns = out->nruns;
    if (!later) {
        c->errors[r->err]++;
        return;
    }
    /* The answer comes when the transfer ends. The reply was the first action: what came after
     * takes its place. */
    out->n--;
    for (uint32_t i = 0; i < out->n; i++)
        out->v[i] = out->v[i + 1];
}

static void conn_opened(struct core *c, const struct event *ev)
{
    struct conn *cn;

    if (ev->conn.conn >= c->limits.conns ||
        (!ev->conn.admin && ev->conn.tenant >= c->limits.tenants))
        return;
    cn = conn_at(c, ev->conn.conn);
    cn->open = 1;
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
    engine_conn_closed(c, conn);
    pull_conn_closed(c, conn);
    load_conn_closed(c, conn);
}

static void link_event(struct core *c, const struct event *ev)
{
    struct link *l;

    if (ev->link.link >= c->limits.links)
        return;
    l = link_at(c, ev->link.link);
    touch(c);
    if (ev->kind == EV_LINK_UP) {
        l->up = 1;
        l->incarnation = ev->link.incarnation;
        return;
    }
    l->up = 0;
    if (ev->link.link < c->limits.peers)
        pull_link_down(c, ev->link.link);
    else
        serve_link_down(c, ev->link.link);
}

/* Each side of a link sends its own kinds of message only. */
static void peer_event(struct core *c, struct actions *out, const struct event *ev)
{
    const struct peer_msg *m = &ev->peer.msg;
    bool to_source = m->kind == PEER_PULL_OPEN || m->kind == PEER_PULL_DONE;
    bool to_puller = m->kind == PEER_PULL_OFFER || m->kind == PEER_PULL_ABORT;

    if (ev->peer.link >= c->limits.links || !link_at(c, ev->peer.link)->up)
        return;
    if (ev->peer.link >= c->limits.peers && to_source)
        serve_msg(c, out, ev->peer.link, m);
    else if (ev->peer.link < c->limits.peers && to_puller)
        pull_msg(c, out, ev->peer.link, m);
    else
        action_add(out, ACT_LINK_CLOSE)->link.link = ev->peer.link;
}

static void apply(struct core *c, struct actions *out, const struct event *ev)
{
    switch (ev->kind) {
    case EV_TIMER: return;
    case EV_CONN_OPENED: conn_opened(c, ev); return;
    case EV_CONN_CLOSED: conn_closed(c, ev->conn.conn); return;
    case EV_PROC_GONE: engine_proc_gone(c, out, ev->proc.proc); return;
    case EV_STEP_DONE:
        engine_step_done(c, ev->step_done.engine, ev->step_done.rank, ev->step_done.step);
        return;
    case EV_REQUEST: request(c, out, &ev->request); return;
    case EV_SEALED: seal_done(c, ev->sealed.job); return;
    case EV_ZEROED: pool_zeroed(c, ev->zeroed.pool); return;
    case EV_LINK_UP:
    case EV_LINK_DOWN: link_event(c, ev); return;
    case EV_PEER_MSG: peer_event(c, out, ev); return;
    case EV_PULLED: pull_arrived(c, ev); return;
    case EV_PULL_BROKEN: pull_broken(c, ev->broken.pull, ev->broken.err); return;
    case EV_PULL_QUIET: pull_proved_quiet(c, ev->pull_quiet.pull); return;
    case EV_SERVE_QUIET: serve_proved_quiet(c, ev->serve_quiet.serve); return;
    case EV_COPIED: copy_done(c, ev->copied.job, ev->copied.err); return;
    case EV_COUNT: return;
    }
}

void core_step(struct core *c, const struct event *ev, struct actions *out)
{
    bool all;

    out->n = out->nruns = out->nrefs = out->npages = 0;
    check(ev->now_ns >= c->now_ns);
    c->now_ns = ev->now_ns;
    c->touched = 0;
    apply(c, out, ev);
    all = serve_flush(c, out);
    all = pull_flush(c, out) && all;
    all = seal_flush(c, out) && all;
    all = away_flush(c, out) && all;
    all = copy_flush(c, out) && all;
    all = reset_flush(c) && all; /* these two wait for what the others let go */
    all = pool_flush(c, out) && all;
    c->left_over = !all;
    c->changes += c->touched;
}

uint64_t core_deadline(const struct core *c)
{
    uint64_t pulls, serves;

    if (c->left_over)
        return 0;
    pulls = pull_deadline(c);
    serves = serve_deadline(c);
    return pulls < serves ? pulls : serves;
}

bool core_waits_for_steps(const struct core *c)
{
    return c->nretires > 0 || c->away.n > 0;
}
