/* Paths: from the offer to a usable queue pair, and from an error to a destroyed one. A queue pair
 * that ends is moved to the error state, its work requests are flushed, and then it is destroyed;
 * if the flushed completions do not arrive in time, it is destroyed anyway. Destruction is the
 * proof that the device writes no page for the path any more. A path that the destination still
 * wants is made again after a pause, which doubles up to a cap. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/random.h>

#include "base/check.h"
#include "seam/xfer/verbs/verbs.h"

static bool with_thread(const struct verbs_path *p)
{
    return p->job != JOB_NONE;
}

static const struct xfer_rdma_config *rdma(const struct verbs *v)
{
    return &v->xfer->config.rdma;
}

/* Caller reports before a failure changes the state. */
static void tell(struct verbs *v, const struct verbs_path *p, bool ready)
{
    struct xfer_path_view view;

    if (!rdma(v)->path_changed)
        return;
    path_view(v, p, &view);
    view.ready = ready;
    rdma(v)->path_changed(v->xfer->config.ctx, p->link, &view);
}

static void send_to_peer(struct verbs *v, const struct verbs_path *p,
                         const struct xfer_path_msg *msg)
{
    rdma(v)->path_send(v->xfer->config.ctx, p->link, msg);
}

/* ------------------------------------------------------------------ messages to the peer */

static void fill_mrs(struct verbs *v, const struct verbs_path *p, struct xfer_path_msg *msg)
{
    const struct verbs_domain *d = &rail_of(v, p)->domain[p->tenant];
    bool ring = path_bounces(v, p);
    const struct verbs_mr *mr = ring ? &d->ring : d->mr;

    msg->nmrs = ring ? 1 : d->n;
    for (uint32_t i = 0; i < msg->nmrs; i++)
        msg->mr[i] = (struct xfer_mr){.addr = (uintptr_t)mr[i].base,
                                      .bytes = mr[i].bytes,
                                      .offset = mr[i].offset,
                                      .region = mr[i].region};
}

static void fill_end(const struct verbs_path *p, struct xfer_path_msg *msg)
{
    msg->tenant = p->tenant;
    msg->rail = p->rail;
    msg->qpn = p->ours.qpn;
    msg->psn = p->ours.psn;
    msg->mtu = p->ours.mtu;
    msg->lid = p->ours.lid;
    msg->push = true;
    memcpy(msg->gid, p->ours.gid.raw, sizeof msg->gid);
}

static void offer(struct verbs *v, const struct verbs_path *p)
{
    struct xfer_path_msg msg = {.kind = XFER_PATH_OFFER, .epoch = p->epoch};

    fill_end(p, &msg);
    fill_mrs(v, p, &msg);
    msg.nmws = VERBS_MWS;
    for (uint32_t i = 0; i < VERBS_MWS; i++)
        msg.mw_rkey[i] = p->mw[i]->rkey & ~0xffu;
    send_to_peer(v, p, &msg);
}

static void answer(struct verbs *v, const struct verbs_path *p)
{
    struct xfer_path_msg msg = {.kind = XFER_PATH_ANSWER, .epoch = p->their_epoch};

    fill_end(p, &msg);
    send_to_peer(v, p, &msg);
}

/* push: the refused offer was to read; the peer may offer again, to be pushed to. */
static void refuse(struct verbs *v, const struct verbs_path *p, uint32_t epoch, bool push,
                   const char *text)
{
    struct xfer_path_msg msg = {.kind = XFER_PATH_REFUSE,
                                .tenant = p->tenant,
                                .rail = p->rail,
                                .epoch = epoch,
                                .push = push};

    snprintf(msg.text, sizeof msg.text, "%s", text);
    send_to_peer(v, p, &msg);
}

/* ------------------------------------------------------------------ making */

static bool our_endpoint(struct verbs *v, struct verbs_path *p)
{
    const struct verbs_rail *rail = rail_of(v, p);
    uint32_t psn;

    if (getrandom(&psn, sizeof psn, GRND_NONBLOCK) != (ssize_t)sizeof psn)
        return false;
    p->ours = (struct qp_endpoint){
        .psn = psn & 0xffffffu, .mtu = rail->mtu, .lid = rail->lid, .gid = rail->gid};
    p->epoch = ++v->epoch & 0xffffffu;
    p->posted = p->completed = 0;
    check(p->writes_n == 0 && p->held == 0);
    p->since_ns = io_now_ns();
    v->xfer->stats.paths_made++;
    return true;
}

static void path_make(struct verbs *v, struct verbs_path *p)
{
    check(!p->qp && !p->source);
    if (rail_of(v, p)->view.lost) {
        path_failed(v, p, "%s is lost", rail_of(v, p)->view.device);
        p->retry_ns = UINT64_MAX; /* not again until the link comes up again */
        return;
    }
    if (!our_endpoint(v, p))
        return; /* the tick tries again */
    if (!places_hold(v, p)) {
        path_failed(v, p, "the completion queue has no room for another path");
        return;
    }
    path_state_move(&p->state, PATH_MAKING);
    setup_give(v, p, JOB_MAKE);
}

static struct qp_endpoint peer_endpoint(const struct xfer_path_msg *msg)
{
    struct qp_endpoint end = {
        .qpn = msg->qpn & 0xffffffu, .psn = msg->psn & 0xffffffu, .mtu = msg->mtu, .lid = msg->lid};

    memcpy(end.gid.raw, msg->gid, sizeof msg->gid);
    return end;
}

/* Accepts p->offer. */
static void path_accept(struct verbs *v, struct verbs_path *p)
{
    check(!p->qp && p->source);
    if (rail_of(v, p)->view.lost) {
        refuse(v, p, p->offer.epoch, false, "the source has lost the device");
        return;
    }
    if (!our_endpoint(v, p)) {
        refuse(v, p, p->offer.epoch, false, "the source has no random number for it");
        return;
    }
    p->their_epoch = p->offer.epoch;
    p->theirs = p->offer.end;
    p->wanted = true;
    path_state_move(&p->state, PATH_MAKING);
    setup_give(v, p, JOB_ACCEPT);
}

/* ------------------------------------------------------------------ ending */

static void path_rest(struct verbs *v, struct verbs_path *p)
{
    places_unhold(v, p);
    if (p->state != PATH_NONE)
        path_state_move(&p->state, PATH_NONE);
    if (p->source && p->offer.waits) {
        p->offer.waits = false;
        path_accept(v, p);
    } else if (!p->source && p->wanted) {
        path_state_move(&p->state, PATH_PAUSED);
        if (p->pause_ns == 0)
            p->retry_ns = 0; /* it ended because the link came up again */
    }
}

/* A stopping source informs the destination, because no request that the destination posts would
 * fail. */
static void path_stop(struct verbs *v, struct verbs_path *p)
{
    bool was_ready = p->state == PATH_READY;

    if (was_ready)
        v->xfer->stats.paths_up--;
    if (!p->source)
        pieces_forgotten(v, p);
    if (!p->qp) {
        path_rest(v, p);
        return;
    }
    path_state_move(&p->state, PATH_STOPPING);
    setup_give(v, p, JOB_STOP);
    if (!was_ready || !p->source)
        return;
    if (!p->offer.waits)
        refuse(v, p, p->their_epoch, false, p->reason);
    path_mark(v, p);
}

void path_failed(struct verbs *v, struct verbs_path *p, const char *format, ...)
{
    bool was_ready = p->state == PATH_READY;
    uint64_t now = io_now_ns();
    char reason[sizeof p->reason];
    va_list args;

    check(!with_thread(p));
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    v->xfer->stats.paths_failed++;
    if (was_ready || strcmp(p->reason, reason) != 0) { /* report a repeated reason only once */
        memcpy(p->reason, reason, sizeof p->reason);
        tell(v, p, false);
    }
    p->doubted = !p->source;
    if (was_ready && now - p->ready_ns > VERBS_RETRY_MAX_NS)
        p->pause_ns = 0; /* it was ready for a while */
    p->pause_ns = p->pause_ns == 0 ? VERBS_RETRY_MIN_NS : p->pause_ns * 2;
    if (p->pause_ns > VERBS_RETRY_MAX_NS)
        p->pause_ns = VERBS_RETRY_MAX_NS;
    p->retry_ns = now + p->pause_ns;
    path_stop(v, p);
    if (!p->source)
        pieces_lost(v, p);
}

static void path_close(struct verbs *v, struct verbs_path *p, const char *why)
{
    p->wanted = p->offer.waits = false;
    if (!p->doubted) /* otherwise the reason of the failure stays until a page arrives */
        snprintf(p->reason, sizeof p->reason, "%s", why);
    if (p->state == PATH_PAUSED)
        path_state_move(&p->state, PATH_NONE);
    else if (p->state == PATH_MAKING || p->state == PATH_CONNECTING)
        path_state_move(&p->state, PATH_ABANDONED);
    else if (p->state == PATH_READY || p->state == PATH_OFFERED)
        path_stop(v, p);
}

void path_advance(struct verbs *v, struct verbs_path *p)
{
    if (p->state != PATH_DRAINING)
        return;
    if (p->posted != p->completed && io_now_ns() - p->since_ns < VERBS_DRAIN_NS)
        return;
    path_state_move(&p->state, PATH_ENDING);
    setup_give(v, p, JOB_END);
}

/* ------------------------------------------------------------------ what the threads have done */

static bool job_failed(struct verbs *v, struct verbs_path *p)
{
    if (p->job_errno == 0)
        return false;
    if (p->source)
        refuse(v, p, p->their_epoch, false, "the source could not make or connect a queue pair");
    path_failed(v, p, "%s: %s", p->job_what, strerror(p->job_errno));
    return true;
}

static void made(struct verbs *v, struct verbs_path *p)
{
    if (job_failed(v, p))
        return;
    if (p->source && p->offer.waits) {
        path_stop(v, p);
    } else if (p->source) {
        path_state_move(&p->state, PATH_READY);
        p->ready_ns = io_now_ns();
        v->xfer->stats.paths_up++;
        answer(v, p);
    } else {
        path_state_move(&p->state, PATH_OFFERED);
        p->since_ns = io_now_ns();
        offer(v, p);
    }
}

/* Describes the ready path in p->reason: device, port, GID, MTU, memory windows. */
static void describe(struct verbs *v, struct verbs_path *p)
{
    const struct verbs_rail *rail = rail_of(v, p);

    snprintf(p->reason, sizeof p->reason,
             "%s port %u, gid %u, mtu %u, %u memory windows for pushes%s", rail->view.device,
             rail->view.port, rail->view.gid_index,
             128u << (p->ours.mtu < p->theirs.mtu ? p->ours.mtu : p->theirs.mtu), VERBS_MWS,
             path_bounces(v, p) ? ", over a ring whose pages are copied to memory of GPUs" : "");
}

static void proven(struct verbs *v, struct verbs_path *p)
{
    p->doubted = false;
    describe(v, p);
    tell(v, p, true);
    transport_note(v, p->link, p->tenant, true, p->reason);
}

void path_carried(struct verbs *v, struct verbs_path *p)
{
    if (p->doubted && p->state == PATH_READY)
        proven(v, p);
}

static void connected(struct verbs *v, struct verbs_path *p)
{
    if (job_failed(v, p))
        return;
    path_state_move(&p->state, PATH_READY);
    p->ready_ns = io_now_ns();
    v->xfer->stats.paths_up++;
    if (!p->doubted)
        proven(v, p); /* trusted until it fails */
    path_mark(v, p);
}

/* A queue pair that cannot be destroyed may still write, so its pages stay held. */
static void not_ended(struct verbs *v, struct verbs_path *p)
{
    struct xfer *xfer = v->xfer;

    p->since_ns = io_now_ns();
    if (p->state == PATH_STUCK || p->job_errno == EIO) /* already reported, or a lost device */
        return;
    path_state_move(&p->state, PATH_STUCK);
    snprintf(p->reason, sizeof p->reason,
             "%s: %s: tried again, and its pages are not freed until it succeeds", p->job_what,
             strerror(p->job_errno));
    if (xfer->config.rdma.device_alarm)
        xfer->config.rdma.device_alarm(xfer->config.ctx, rail_of(v, p)->view.device, p->reason);
}

void rail_lost(struct verbs_rail *rail, const char *why)
{
    struct verbs *v = rail->v;
    const struct xfer_config *c = &v->xfer->config;

    if (rail->view.lost)
        return;
    rail->view.lost = true;
    for (uint32_t i = 0; i < v->view.ndevices; i++)
        if (strcmp(v->view.found[i].name, rail->view.device) == 0)
            snprintf(v->view.found[i].state, sizeof v->view.found[i].state, "lost: %s", why);
    if (c->rdma.device_alarm)
        c->rdma.device_alarm(c->ctx, rail->view.device, why);
    for (uint32_t i = 0; i < v->npaths; i++) {
        struct verbs_path *p = &v->path[i];

        if (rail_of(v, p) == rail && (p->state == PATH_READY || p->state == PATH_OFFERED))
            path_failed(v, p, "%s is lost: %s", rail->view.device, why);
    }
}

/* The kernel returns EIO for a device that was removed. */
static bool went_with_device(struct verbs *v, struct verbs_path *p)
{
    struct verbs_rail *rail = rail_of(v, p);

    if (p->job_errno != EIO)
        return false;
    rail_lost(rail, "its driver was unloaded; restart the daemon");
    if (!rail_gone(rail))
        return false;
    memset(p->mw, 0, sizeof p->mw); /* the library's structs cannot be freed */
    p->qp = NULL;
    return true;
}

static void ended(struct verbs *v, struct verbs_path *p)
{
    if (p->job_errno && !went_with_device(v, p)) {
        not_ended(v, p);
        return;
    }
    rail_of(v, p)->cq_used -= p->posted - p->completed;
    rail_of(v, p)->cq_freed = true;
    p->completed = p->posted;
    if (p->source)
        writes_done(v, p);
    else
        pieces_ended(v, p);
    path_rest(v, p);
}

void path_finished(struct verbs *v, struct verbs_path *p)
{
    if (rail_of(v, p)->view.lost && p->job_errno == 0 &&
        (p->state == PATH_MAKING || p->state == PATH_CONNECTING || p->state == PATH_ABANDONED)) {
        p->job_errno = EIO;
        p->job_what = "the device is lost";
    }
    switch (p->state) {
    case PATH_MAKING: made(v, p); break;
    case PATH_CONNECTING: connected(v, p); break;
    case PATH_ABANDONED:
        if (!job_failed(v, p))
            path_stop(v, p);
        break;
    case PATH_STOPPING:
        path_state_move(&p->state, PATH_DRAINING);
        p->since_ns = io_now_ns();
        path_advance(v, p);
        break;
    case PATH_ENDING:
    case PATH_STUCK: ended(v, p); break;
    default: check_failed("a path that a thread had", __FILE__, __LINE__);
    }
}

/* Returns how long requests may make no progress. A source allows half of idle_ns: while its writes
 * are stuck, its connection answers nothing, and the destination waits at most idle_ns for an
 * answer. */
static uint64_t stuck_ns(const struct verbs *v, const struct verbs_path *p)
{
    return v->xfer->config.idle_ns / (p->source ? 2 : 1);
}

static void path_tick(struct verbs *v, struct verbs_path *p, uint64_t now_ns)
{
    if (p->state == PATH_PAUSED && now_ns >= p->retry_ns)
        path_make(v, p);
    else if (p->state == PATH_OFFERED && now_ns - p->since_ns > VERBS_SETUP_NS)
        path_failed(v, p, "the peer did not answer the offer of a path in time");
    else if (p->state == PATH_READY && p->posted != p->completed && now_ns > p->progress_ns &&
             now_ns - p->progress_ns > stuck_ns(v, p))
        path_failed(v, p, "work requests did not complete in time");
    else if ((p->state == PATH_ENDING || p->state == PATH_STUCK) &&
             (p->job_errno == EIO || now_ns - p->since_ns >= VERBS_DRAIN_NS))
        setup_give(v, p, JOB_END);
    else
        path_advance(v, p);
}

void paths_tick(struct verbs *v, uint64_t now_ns)
{
    for (uint32_t i = 0; i < v->npaths; i++)
        if (v->path[i].state != PATH_NONE && !with_thread(&v->path[i]))
            path_tick(v, &v->path[i], now_ns);
}

/* ------------------------------------------------------------------ messages from the peer */

static bool mrs_sound(const struct xfer_path_msg *msg)
{
    if (msg->nmrs == 0 || msg->nmrs > XFER_MRS_MAX)
        return false;
    for (uint32_t i = 0; i < msg->nmrs; i++) {
        const struct xfer_mr *c = &msg->mr[i];

        if (c->bytes == 0 || c->addr + c->bytes < c->addr || c->offset + c->bytes < c->offset ||
            c->region >= RANKS_MAX)
            return false;
    }
    return true;
}

void path_offered(struct verbs *v, struct verbs_path *p, const struct xfer_path_msg *msg)
{
    const struct verbs_domain *d = &rail_of(v, p)->domain[p->tenant];

    if (!msg->push) {
        refuse(v, p, msg->epoch, true,
               "the source pushes pages by RDMA, and lets no peer read them");
        return;
    }
    if (!rdma(v)->serves || v->xfer->link[p->link].up || msg->mtu < IBV_MTU_256 ||
        msg->mtu > IBV_MTU_4096 || !mrs_sound(msg) || msg->nmws == 0 || msg->nmws > XFER_MWS_MAX) {
        refuse(v, p, msg->epoch, false,
               "the source serves nothing by RDMA, or not with that offer");
        return;
    }
    if (d->n == 0) {
        refuse(v, p, msg->epoch, false,
               "the source has not registered the tenant's memory: see `ternctl doctor` there");
        return;
    }
    p->source = true;
    p->offer = (struct path_offer){
        .waits = p->offer.waits, .end = peer_endpoint(msg), .epoch = msg->epoch};
    p->npeer_mrs = msg->nmrs; /* nothing is written by the old path from here on */
    memcpy(p->peer_mr, msg->mr, sizeof p->peer_mr);
    p->nmws = msg->nmws;
    memcpy(p->mw_rkey, msg->mw_rkey, sizeof p->mw_rkey);
    if (p->state == PATH_NONE) {
        path_accept(v, p);
        return;
    }
    p->offer.waits = true; /* the peer made its end again; ours must end first */
    if (p->state == PATH_READY)
        path_stop(v, p);
}

void path_answered(struct verbs *v, struct verbs_path *p, const struct xfer_path_msg *msg)
{
    bool refused = msg->kind == XFER_PATH_REFUSE;

    if (p->source || msg->epoch != p->epoch) {
        v->xfer->stats.stale_answers++; /* it answers an offer that was abandoned, or never made */
        return;
    }
    if (with_thread(p))
        return;
    if (refused && (p->state == PATH_OFFERED || p->state == PATH_READY))
        path_failed(v, p, "the peer refused: %s", msg->text);
    if (refused || p->state != PATH_OFFERED)
        return;
    if (!msg->push) {
        path_failed(v, p, "the peer cannot push pages, and this daemon does not read them by RDMA");
        p->retry_ns = UINT64_MAX; /* not again until the link comes up again */
        return;
    }
    if (msg->mtu < IBV_MTU_256 || msg->mtu > IBV_MTU_4096) {
        path_failed(v, p, "the peer's answer has an MTU that does not exist");
        return;
    }
    p->theirs = peer_endpoint(msg);
    path_state_move(&p->state, PATH_CONNECTING);
    setup_give(v, p, JOB_CONNECT);
}

/* ------------------------------------------------------------------ the link */

void path_want(struct verbs_path *p)
{
    p->wanted = true;
    p->pause_ns = p->retry_ns = 0;
    if (p->state == PATH_NONE)
        path_state_move(&p->state, PATH_PAUSED); /* no pause: the next tick makes it */
}

void xfer_peer_down(struct xfer *xfer, uint32_t link)
{
    struct verbs *v = verbs_of(xfer);

    check(link < xfer->config.links);
    for (uint32_t i = 0; v && v->path && i < v->tenants * v->rails; i++)
        path_close(v, path_of(v, link, 0, 0) + i, "the link ended");
}

void verbs_link_down(struct transport *t, uint32_t link)
{
    const struct verbs *v = t->own;

    if (v->link[link].piece)
        xfer_peer_down(t->xfer, link);
}
