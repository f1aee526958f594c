/* Work requests: lists for one doorbell, and the resources of its device that a path may use:
 * places in the completion queue, room in its send queue, memory windows. Called by every file that
 * posts. */
#include <errno.h>

#include "base/check.h"
#include "seam/xfer/verbs/verbs.h"

const struct xfer_mr *peer_mr(const struct verbs_path *p, uint32_t region, uint64_t offset)
{
    for (uint32_t i = 0; i < p->npeer_mrs; i++)
        if (p->peer_mr[i].region == region && offset >= p->peer_mr[i].offset &&
            offset - p->peer_mr[i].offset < p->peer_mr[i].bytes)
            return &p->peer_mr[i];
    return NULL;
}

bool wrs_extend(struct verbs_wrs *r, enum ibv_wr_opcode opcode, const struct ibv_sge *more,
                uint64_t remote, uint32_t rkey, uint32_t most)
{
    /* The pages of a pool lie in one region per rank, and each region has a run of its own. */
    for (uint32_t i = r->n; i > 0 && r->n - i < RANKS_MAX; i--) {
        struct ibv_sge *sge = &r->sge[i - 1];
        struct ibv_send_wr *wr = &r->wr[i - 1];

        if (sge->lkey == more->lkey && wr->wr.rdma.rkey == rkey &&
            sge->addr + sge->length == more->addr &&
            wr->wr.rdma.remote_addr + sge->length == remote &&
            (uint64_t)sge->length + more->length <= most) {
            sge->length += more->length;
            return true;
        }
    }
    if (r->n == r->room)
        return false;
    r->sge[r->n] = *more;
    r->wr[r->n] = (struct ibv_send_wr){.sg_list = &r->sge[r->n], .num_sge = 1, .opcode = opcode};
    r->wr[r->n].wr.rdma.remote_addr = remote;
    r->wr[r->n].wr.rdma.rkey = rkey;
    r->n++;
    return true;
}

/* Only the last request of a list is signaled; its completion counts for all before it. */
bool wrs_post(struct verbs *v, struct verbs_path *p, struct verbs_wrs *r)
{
    struct verbs_rail *rail = rail_of(v, p);
    struct ibv_send_wr *bad = NULL;
    int rc;

    check(r->n > 0);
    for (uint32_t i = 0; i < r->n; i++) {
        r->wr[i].next = i + 1 < r->n ? &r->wr[i + 1] : NULL;
        r->wr[i].wr_id = path_wr_id(v, p, (uint16_t)(p->posted + i + 1));
    }
    r->wr[r->n - 1].send_flags = IBV_SEND_SIGNALED;
    rc = ibv_post_send(p->qp, r->wr, &bad);
    if (rc && bad) /* the requests before the bad one were posted */
        r->n = (uint32_t)(bad - r->wr);
    if (p->posted == p->completed) { /* the timeout of the requests starts now */
        p->progress_ns = io_now_ns();
        rail->spin_ns = p->progress_ns + VERBS_SPIN_NS;
    }
    p->posted += r->n;
    rail->cq_used += r->n;
    for (uint32_t i = 0; i < r->n; i++)
        rail->view.bytes_asked += r->sge[i].length;
    if (rail->cq_used > v->xfer->stats.cq_high_water)
        v->xfer->stats.cq_high_water = rail->cq_used;
    if (rc)
        errno = rc; /* some providers do not set it */
    return rc == 0;
}

uint32_t path_credit(struct verbs *v, const struct verbs_path *p)
{
    const struct verbs_rail *rail = rail_of(v, p);
    uint32_t cq = rail->view.completion_queue - rail->cq_used;
    uint32_t own = VERBS_SEND_QUEUE - (p->posted - p->completed);

    if (!p->source) {
        own = (uint32_t)__builtin_popcountll(p->mws_free);
        cq /= 2; /* one to bind, one to close */
    }
    return own < cq ? own : cq;
}

void places_take(struct verbs *v, struct verbs_path *p, uint32_t more)
{
    struct verbs_rail *rail = rail_of(v, p);

    p->held += more;
    rail->cq_used += more;
    check(rail->cq_used <= rail->view.completion_queue);
}

bool places_hold(struct verbs *v, struct verbs_path *p)
{
    const struct verbs_rail *rail = rail_of(v, p);

    /* Keep places for the bindings of at least one piece, or pieces would wait forever. */
    if (rail->view.completion_queue - rail->cq_used < VERBS_PIECES + 2 * XFER_RUNS_MAX)
        return false;
    places_take(v, p, VERBS_PIECES);
    p->mws_free = ~(uint64_t)0 >> (64 - VERBS_MWS);
    return true;
}

void places_unhold(struct verbs *v, struct verbs_path *p)
{
    struct verbs_rail *rail = rail_of(v, p);

    rail->cq_used -= p->held;
    rail->cq_freed |= p->held > 0;
    p->held = 0;
}

void writes_done(struct verbs *v, struct verbs_path *p)
{
    while (p->writes_n > 0 && (int32_t)(p->completed - p->writes[p->writes_at].last) >= 0) {
        uint32_t serve = p->writes[p->writes_at].serve;

        p->writes_at = (p->writes_at + 1) % VERBS_SEND_QUEUE;
        p->writes_n--;
        serve_release(v->xfer, serve);
    }
}

int receive_post(struct verbs *v, struct verbs_path *p)
{
    struct ibv_recv_wr *bad, wr = {.wr_id = path_wr_id(v, p, 0) | VERBS_RECEIVE};

    return ibv_post_recv(p->qp, &wr, &bad);
}
