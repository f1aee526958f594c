/* RDMA transport events: completions, finished tasks, ticks, messages of the link and of its peer.
 * An event changes the states of paths and pieces and marks the paths and links that can resume.
 * The run at the end of the event resumes these until no mark is left.
 *
 * Invariant: only the run binds pieces, hands batches on and sends requests to the peer, so no
 * function finds its tables changed by a call that it made. */
#include <stdio.h>

#include "base/check.h"
#include "base/container.h"
#include "seam/xfer/verbs/verbs.h"

/* ------------------------------------------------------------------ the run */

/* If slots of a ring or places in a completion queue were freed, marks the links and paths that
 * wait for them. The links that freed them have already run. Returns true if there are marks. */
static bool waiters_mark(struct verbs *v)
{
    for (uint32_t i = 0; i < v->nrails; i++) {
        struct verbs_rail *rail = &v->rail[i];

        if (!rail->cq_short || !rail->cq_freed)
            continue;
        rail->cq_short = false; /* until one of them finds it full again */
        for (uint32_t k = 0; k < v->npaths; k++) {
            struct verbs_path *p = &v->path[k];

            if (!p->short_of_places || rail_of(v, p) != rail)
                continue;
            p->short_of_places = false;
            path_mark(v, p);
        }
    }
    for (uint32_t t = 0; t < v->tenants; t++) {
        struct verbs_ring *ring = &v->ring[t];

        if (!ring->waited_for || !ring->given)
            continue;
        ring->waited_for = false; /* until a piece finds too few again */
        for (uint32_t link = 0; link < v->xfer->config.links; link++)
            link_mark(v, link);
    }
    return v->marked.first != NULL;
}

static void link_run(struct verbs *v, struct verbs_link *link)
{
    const uint32_t number = (uint32_t)(link - v->link);

    link->marked = false;
    pieces_start(v, number);
    while (link->marked_paths) {
        struct verbs_path *p = link->marked_paths;

        link->marked_paths = p->next_marked;
        p->marked = false;
        (p->source ? writes_go_on : batches_settle)(v, p);
    }
    link_say(v, number);
    transports_pump_after(v->xfer, v->transport, number);
}

void verbs_run(struct verbs *v)
{
    if (v->running)
        return; /* the outer call runs until no mark is left */
    v->running = true;
    while (v->marked.first || waiters_mark(v))
        link_run(v, fifo_pop(&v->marked, struct verbs_link, mark));
    v->running = false;
}

void verbs_pump(struct transport *t, uint32_t link)
{
    link_mark(t->own, link);
    verbs_run(t->own);
}

/* ------------------------------------------------------------------ completions */

static uint32_t wc_path(const struct ibv_wc *wc)
{
    return (uint32_t)((wc->wr_id & ~VERBS_RECEIVE) >> 40);
}

static void completion(struct verbs_rail *rail, const struct ibv_wc *wc)
{
    struct verbs *v = rail->v;
    uint32_t number = wc_path(wc);
    struct verbs_path *p;
    uint16_t newly;

    if (number >= v->npaths || v->path[number].epoch != (wc->wr_id >> 16 & 0xffffffu)) {
        v->xfer->stats.stale_completions++;
        return;
    }
    p = &v->path[number];
    if (wc->wr_id & VERBS_RECEIVE) {
        push_received(v, p, wc);
        return;
    }
    newly = (uint16_t)((uint16_t)wc->wr_id - (uint16_t)p->completed);
    if (newly == 0 || newly > p->posted - p->completed) {
        v->xfer->stats.stale_completions++;
        return;
    }
    p->completed += newly;
    p->progress_ns = io_now_ns();
    rail->cq_used -= newly;
    if (wc->status != IBV_WC_SUCCESS) {
        v->xfer->stats.read_errors++;
        if (p->state != PATH_READY)
            return;
        if (!p->source)
            push_refused(v, p);
        path_failed(v, p, "a %s failed: %s",
                    p->source ? "write" : "binding or closing of a memory window",
                    ibv_wc_status_str(wc->status));
    }
}

/* Returns true if there was a completion. */
static bool cq_drain(struct verbs_rail *rail)
{
    struct verbs *v = rail->v;
    struct ibv_wc wc[VERBS_POLL_MAX];
    bool some = false;
    int n;

    while ((n = ibv_poll_cq(rail->cq, VERBS_POLL_MAX, wc)) > 0) {
        some = true;
        for (int i = 0; i < n; i++) {
            uint32_t number = wc_path(&wc[i]);

            completion(rail, &wc[i]);
            if (number >= v->npaths)
                continue;
            pieces_done(v, &v->path[number]);
            path_advance(v, &v->path[number]);
        }
    }
    if (n < 0)
        rail_lost(rail, "its completion queue cannot be read");
    if (some) {
        rail->spin_ns = io_now_ns() + VERBS_SPIN_NS;
        rail->cq_freed = true;
    }
    return some;
}

/* ------------------------------------------------------------------ devices */

static void cq_arm(struct verbs_rail *rail)
{
    if (ibv_req_notify_cq(rail->cq, 0) != 0)
        rail_lost(rail, "its completion queue cannot be armed");
    rail->cq_armed = true;
}

/* Returns true if the queue must be polled again, or a completion was found. A completion that
 * arrives before the queue is armed wakes nobody, so drain once more after arming. */
static bool rail_poll(struct verbs_rail *rail)
{
    if (rail->cq_used > 0 && (cq_drain(rail) || io_now_ns() < rail->spin_ns))
        return true;
    if (rail->cq_armed)
        return false;
    cq_arm(rail);
    return cq_drain(rail);
}

bool verbs_poll(struct transport *t)
{
    struct verbs *v = t->own;
    bool again = false;

    for (uint32_t i = 0; i < v->nrails; i++)
        again = rail_poll(&v->rail[i]) || again;
    v->polls = true;
    verbs_run(v);
    return again;
}

static void cq_ready(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct verbs_rail *rail = container_of(op, struct verbs_rail, cq_op);
    struct ibv_cq *cq;
    unsigned events = 0;
    void *ctx;

    (void)res, (void)flags, (void)buffer;
    if (rail->v->closing)
        return;
    while (ibv_get_cq_event(rail->channel, &cq, &ctx) == 0)
        events++;
    if (events > 0) {
        ibv_ack_cq_events(rail->cq, events);
        rail->cq_armed = false;
        rail->v->xfer->stats.cq_events += events;
    }
    cq_drain(rail);
    if (!rail->cq_armed && (!rail->v->polls || rail->cq_used == 0)) {
        cq_arm(rail);
        cq_drain(rail);
    }
    verbs_run(rail->v);
}

/* Completions report these failures too. Each event must still be read, because until then its
 * queue pair cannot be destroyed. */
static void async_ready(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct verbs_rail *rail = container_of(op, struct verbs_rail, async_op);
    struct ibv_async_event event;
    bool fatal = false;

    (void)res, (void)flags, (void)buffer;
    if (rail->v->closing)
        return;
    while (ibv_get_async_event(rail->ctx, &event) == 0) {
        fatal = fatal || event.event_type == IBV_EVENT_DEVICE_FATAL;
        ibv_ack_async_event(&event);
    }
    if (fatal)
        rail_lost(rail, "it failed, or its driver was unloaded; restart the daemon");
    verbs_run(rail->v);
}

void rails_poll(struct verbs *v)
{
    struct io *io = v->xfer->config.io;

    for (uint32_t i = 0; i < v->nrails; i++) {
        struct verbs_rail *rail = &v->rail[i];

        rail->cq_op.done = cq_ready;
        rail->cq_armed = true;
        rail->async_op.done = async_ready;
        io_poll_in(io, &rail->cq_op, rail->channel->fd, true);
        io_poll_in(io, &rail->async_op, rail->ctx->async_fd, true);
    }
}

void rails_unpoll(struct verbs *v)
{
    for (uint32_t i = 0; i < v->nrails; i++) {
        io_stop(v->xfer->config.io, &v->rail[i].cq_op);
        io_stop(v->xfer->config.io, &v->rail[i].async_op);
    }
}

/* ------------------------------------------------------------------ tasks that returned */

/* A destroyed pair completes nothing more: first count the completions already in the queue. */
void path_back(struct io_task *task, int32_t res)
{
    struct verbs_path *p = container_of(task, struct verbs_path, task);

    (void)res;
    p->job = JOB_NONE;
    if (atomic_load(&p->v->closing))
        return;
    if (p->state == PATH_ENDING || p->state == PATH_STUCK)
        cq_drain(rail_of(p->v, p));
    path_finished(p->v, p);
    verbs_run(p->v);
}

void piece_back(struct io_task *task, int32_t res)
{
    struct verbs_piece *piece = container_of(task, struct verbs_piece, task);

    (void)res;
    piece_verified(piece);
    verbs_run(piece->v);
}

/* ------------------------------------------------------------------ the link and its peer */

void xfer_link_transport(struct xfer *xfer, uint32_t link, enum xfer_transport transport,
                         uint64_t tenants, bool peer_rdma)
{
    struct verbs *v = verbs_of(xfer);
    struct verbs_link *l;
    const char *why, *missing;

    check(link < xfer->config.links);
    xfer->link[link].wanted = transport;
    if (xfer_link_is_own(xfer, link)) /* it needs no paths and no fallback */
        tenants = 0;
    if (!v || !v->link[link].piece)
        return;
    l = &v->link[link];
    l->peer_rdma = peer_rdma;
    l->tenants = tenants;
    l->up_ns = io_now_ns();
    l->noted = 0;
    why = verbs_unwanted(v, link);
    for (uint32_t tenant = 0; tenant < v->tenants; tenant++) {
        if (!(tenants >> tenant & 1))
            continue;
        missing = *why ? why : tenant_pathless(v, tenant);
        if (missing)
            transport_note(v, link, tenant, false, missing);
        for (uint32_t i = 0; !missing && i < v->nrails; i++)
            if (!rail_pathless(&v->rail[i], tenant))
                path_want(path_of(v, link, tenant, i));
    }
    paths_tick(v, l->up_ns);
    verbs_run(v);
}

void xfer_path_msg(struct xfer *xfer, uint32_t link, const struct xfer_path_msg *msg)
{
    struct verbs *v = verbs_of(xfer);

    check(link < xfer->config.links);
    if (!v || v->nrails == 0 || msg->tenant >= v->tenants || msg->rail >= v->rails) {
        struct xfer_path_msg no = {.kind = XFER_PATH_REFUSE,
                                   .tenant = msg->tenant,
                                   .rail = msg->rail,
                                   .epoch = msg->epoch};

        if (v && v->nrails > 0 && msg->rail >= v->rails)
            snprintf(no.text, sizeof no.text,
                     "limits.rdma_rails of the source is %u, too low for rail number %u of the "
                     "destination: raise it",
                     v->rails, msg->rail);
        else
            snprintf(no.text, sizeof no.text, "the source has no RDMA device");
        if (msg->kind == XFER_PATH_OFFER && xfer->config.rdma.path_send)
            xfer->config.rdma.path_send(xfer->config.ctx, link, &no);
        return;
    }
    (msg->kind == XFER_PATH_OFFER ? path_offered : path_answered)(
        v, path_of(v, link, msg->tenant, msg->rail), msg);
    verbs_run(v);
}

void verbs_tick(struct transport *t, uint64_t now_ns)
{
    const struct xfer *xfer = t->xfer;
    struct verbs *v = t->own;

    if (v->nrails == 0)
        return;
    paths_tick(v, now_ns);
    for (uint32_t i = 0; i < xfer->config.rdma.pulls && i < xfer->config.links; i++)
        pieces_tick(v, i, now_ns);
    for (uint32_t i = 0; i < v->npaths; i++) {
        struct verbs_path *p = &v->path[i];

        if (!p->source && p->wanted && p->state != PATH_READY && xfer->link[p->link].up &&
            verbs_lane(v, p->link)->queue.head != NONE)
            path_mark(v, p);
    }
    verbs_run(v);
}
