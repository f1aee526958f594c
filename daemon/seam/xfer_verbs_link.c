/* Links as RDMA sees them: which way a batch goes, what becomes of those that wait for a path that
 * comes or does not, and what operators are told. Called by xfer_tcp*.c and xfer_verbs*.c. */
#include <stdlib.h>

#include "base/check.h"
#include "seam/xfer_verbs.h"

bool link_pieces(struct verbs *v, uint32_t link)
{
    struct verbs_link *l = &v->link[link];

    l->piece = calloc(VERBS_PIECES, sizeof *l->piece);
    for (uint32_t i = 0; l->piece && i < VERBS_PIECES; i++) {
        l->piece[i].sums = calloc(v->piece_sums, sizeof *l->piece[i].sums);
        if (!l->piece[i].sums)
            return false;
    }
    return l->piece != NULL;
}

struct verbs_path *path_of_batch(struct verbs *v, uint32_t link, uint32_t batch)
{
    uint32_t tenant;
    uint64_t offset;

    check(mem_pool_place(v->xfer->config.mem, v->xfer->batch[batch].pool, &tenant, &offset));
    return path_of(v, link, tenant);
}

/* ------------------------------------------------------------------ which way */

static bool path_coming(const struct verbs *v, const struct verbs_path *p, uint64_t now_ns)
{
    return p->wanted && p->state != PATH_READY && p->pause_ns == 0 &&
           now_ns - v->link[p->link].up_ns < VERBS_SETUP_NS;
}

bool verbs_takes(struct xfer *xfer, uint32_t link, uint32_t pool, enum tern_err *ret_err)
{
    struct verbs *v = xfer->verbs;
    const struct verbs_path *p;
    uint32_t tenant;
    uint64_t offset;

    if (!v || !v->link[link].piece || v->link[link].transport == XFER_TCP)
        return false;
    if (mem_pool_place(xfer->config.mem, pool, &tenant, &offset)) {
        p = path_of(v, link, tenant);
        if (p->state == PATH_READY || path_coming(v, p, io_now_ns()))
            return true;
    }
    if (v->link[link].transport == XFER_VERBS)
        *ret_err = TERN_PEER_LOST;
    return false;
}

static void note(struct verbs *v, const struct verbs_path *p, bool verbs, const char *reason)
{
    struct verbs_link *l = &v->link[p->link];
    uint64_t bit = (uint64_t)1 << p->tenant;

    if ((l->told & bit) && ((l->told_verbs & bit) != 0) == verbs)
        return;
    l->told |= bit;
    l->told_verbs = verbs ? l->told_verbs | bit : l->told_verbs & ~bit;
    if (v->xfer->config.rdma.path_note)
        v->xfer->config.rdma.path_note(v->xfer->config.ctx, p->link, p->tenant, verbs, reason);
}

static const char *why_not(const struct verbs *v, const struct verbs_link *l)
{
    if (l->transport == XFER_TCP)
        return "transport: tcp is configured";
    if (!v->ctx)
        return v->view.why;
    return l->peer_rdma ? "" : "the peer knows no RDMA, or has no device";
}

void xfer_link_transport(struct xfer *xfer, uint32_t link, enum xfer_transport transport,
                         uint64_t tenants, bool peer_rdma)
{
    struct verbs *v = xfer->verbs;
    struct verbs_link *l;

    check(link < xfer->config.links);
    if (!v || !v->link[link].piece)
        return;
    l = &v->link[link];
    l->transport = transport;
    l->peer_rdma = peer_rdma;
    l->tenants = tenants;
    l->up_ns = io_now_ns();
    l->told = 0;
    for (uint32_t t = 0; t < v->tenants; t++) {
        struct verbs_path *p = path_of(v, link, t);

        if (!(tenants >> t & 1))
            continue;
        if (*why_not(v, l)) {
            note(v, p, false, why_not(v, l));
            continue;
        }
        p->wanted = true;
        p->pause_ns = p->retry_ns = 0;
        if (p->state == PATH_NONE && !p->working)
            p->state = PATH_PAUSED; /* with no pause: the tick makes it */
    }
    paths_tick(v, l->up_ns);
}

/* ------------------------------------------------------------------ paths that come and go */

/* What was asked for by this path is lost with it. */
void path_lost(struct verbs *v, struct verbs_path *p)
{
    struct xfer *xfer = v->xfer;

    for (uint32_t b = 0; b < xfer->config.pulls * PULL_BATCHES_MAX; b++) {
        struct xfer_batch *batch = &xfer->batch[b];

        if (batch->used && batch->reads && batch->asked > 0 &&
            xfer->pull[batch->pull].link == p->link && path_of_batch(v, p->link, b) == p)
            pull_break(xfer, batch->pull, TERN_PEER_LOST);
    }
}

void path_usable(struct verbs *v, struct verbs_path *p)
{
    struct xfer *xfer = v->xfer;
    struct xfer_link *link = &xfer->link[p->link];
    uint32_t next;

    if (!link->up)
        return;
    if (p->state == PATH_READY) {
        note(v, p, true, p->reason);
        verbs_pump(xfer, p->link);
        return;
    }
    note(v, p, false, p->reason);
    for (uint32_t b = link->reads.head; b != NONE; b = next) {
        struct xfer_batch *batch = &xfer->batch[b];

        next = batch->next;
        if (path_of_batch(v, p->link, b) != p)
            continue;
        if (v->link[p->link].transport == XFER_VERBS) {
            pull_break(xfer, batch->pull, TERN_PEER_LOST);
            next = link->reads.head; /* others of that pull went with it */
            continue;
        }
        queue_remove(xfer, &link->reads, b);
        batch->reads = false;
        queue_push(xfer, &link->queue, b);
    }
    link_pump(xfer, p->link);
}

void verbs_link_down(struct xfer *xfer, uint32_t link)
{
    struct verbs *v = xfer->verbs;

    if (v && v->link[link].piece)
        xfer_peer_down(xfer, link);
}

void verbs_tick(struct xfer *xfer, uint64_t now_ns)
{
    struct verbs *v = xfer->verbs;

    if (!v || !v->ctx)
        return;
    paths_tick(v, now_ns);
    for (uint32_t i = 0; i < xfer->config.rdma.pulls && i < xfer->config.links; i++)
        pieces_tick(v, i, now_ns);
    for (uint32_t i = 0; i < v->npaths; i++) {
        struct verbs_path *p = &v->path[i];

        if (!p->source && p->wanted && p->state != PATH_READY && xfer->link[p->link].up &&
            xfer->link[p->link].reads.head != NONE && !path_coming(v, p, now_ns))
            path_usable(v, p);
    }
}

/* ------------------------------------------------------------------ for operators */

void xfer_link_view(const struct xfer *xfer, uint32_t link, struct xfer_link_view *ret)
{
    const struct verbs *v = xfer->verbs;
    const struct verbs_link *l;

    check(link < xfer->config.links);
    *ret = (struct xfer_link_view){xfer->link[link].up ? "tcp" : "none", ""};
    if (!xfer->link[link].up)
        return;
    if (!v || !v->link[link].piece) {
        ret->reason = "transport: tcp is configured";
        return;
    }
    l = &v->link[link];
    ret->reason = why_not(v, l);
    for (uint32_t t = 0; !*ret->reason && t < v->tenants; t++) {
        const struct verbs_path *p = path_of(v, link, t);

        if (!(l->tenants >> t & 1))
            continue;
        ret->transport = p->state == PATH_READY           ? "verbs"
                         : path_coming(v, p, io_now_ns()) ? "setting up"
                         : l->transport == XFER_VERBS     ? "none"
                                                          : "tcp";
        if (p->state != PATH_READY) {
            ret->reason = p->reason;
            return;
        }
        ret->reason = p->reason;
        return;
    }
    if (l->transport == XFER_VERBS)
        ret->transport = "none";
}
