/* Work requests: lists of them for one doorbell, the credit that they take, and their completions,
 * by which pieces and writes go on, and end. */
#include <errno.h>

#include "base/check.h"
#include "seam/xfer/verbs/verbs.h"

const struct verbs_mr *local_mr(const struct verbs_domain *d, const uint8_t *at)
{
    for (uint32_t i = 0; i < d->n; i++)
        if (at >= d->mr[i].base && (uint64_t)(at - d->mr[i].base) < d->mr[i].bytes)
            return &d->mr[i];
    return NULL;
}

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
    /* The pages of a pool lie in as many regions as it has ranks, each with a run of its own. */
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

/* Only the last of a list reports, and stands for those before. */
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
    if (rc && bad) /* those before the bad one are the device's */
        r->n = (uint32_t)(bad - r->wr);
    if (p->posted == p->completed) { /* the device's time to do them starts now */
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
        errno = rc; /* not every provider sets it */
    return rc == 0;
}

uint32_t path_credit(struct verbs *v, const struct verbs_path *p)
{
    const struct verbs_rail *rail = rail_of(v, p);
    uint32_t queue = VERBS_SEND_QUEUE - (p->posted - p->completed);
    uint32_t cq = rail->view.completion_queue - rail->cq_used;

    if (!p->source)
        return push_credit(v, p);
    return queue < cq ? queue : cq;
}

/* ------------------------------------------------------------------ pieces */

void piece_free(struct verbs_piece *piece)
{
    if (piece->state != PIECE_FREE && piece->state != PIECE_VERIFYING && piece->batch == NONE &&
        !piece->holds && piece->answered && !piece->revoked) {
        piece_state_move(&piece->state, PIECE_FREE);
        slots_give(piece->v, piece);
    }
}

void piece_drop(struct verbs *v, struct verbs_piece *piece)
{
    piece->batch = NONE;
    if (piece->holds)
        push_drop(v, piece);
    piece_free(piece);
}

void verbs_drop(struct transport *t, uint32_t inflow)
{
    struct verbs *v = t->own;
    struct verbs_link *l = &v->link[t->xfer->inflow[inflow].peer_link];

    for (uint32_t i = 0; l->piece && i < VERBS_PIECES; i++)
        if (l->piece[i].state != PIECE_FREE && l->piece[i].batch != NONE &&
            l->piece[i].pull == inflow)
            piece_drop(v, &l->piece[i]);
}

bool verbs_holds(const struct transport *t, uint32_t inflow)
{
    const struct verbs *v = t->own;

    for (uint32_t n = 0; n < t->xfer->config.links; n++)
        for (uint32_t i = 0; v->link[n].piece && i < VERBS_PIECES; i++)
            if (piece_held(&v->link[n].piece[i]) && v->link[n].piece[i].pull == inflow)
                return true;
    return false;
}

void piece_done(struct verbs *v, struct verbs_piece *piece)
{
    uint32_t pull = piece->pull;

    piece->holds = false;
    if (piece->batch != NONE && piece->state == PIECE_CLOSING)
        piece_state_move(&piece->state, PIECE_CLOSED);
    piece_free(piece);
    inflow_release(v->xfer, pull);
}

void pieces_done(struct verbs *v, struct verbs_path *p)
{
    if (p->source)
        writes_done(v, p);
    else
        pushes_done(v, p);
}

/* Those that waited for credit go on. */
static void pieces_go_on(struct verbs *v, struct verbs_path *p)
{
    if (p->source) {
        writes_go_on(v, p);
        return;
    }
    pieces_start(v, p->link);
    verbs_pump(v->transport, p->link);
}

void paths_go_on(struct verbs_rail *rail)
{
    struct verbs *v = rail->v;

    if (!rail->cq_short || rail->cq_used == rail->view.completion_queue)
        return;
    rail->cq_short = false; /* until one of them finds it full again */
    for (uint32_t i = 0; i < v->npaths && !rail->cq_short; i++)
        if (rail_of(v, &v->path[i]) == rail)
            pieces_go_on(v, &v->path[i]);
}

/* Since when a granted piece waits: pieces are written and answered in turn, over all paths of the
 * link, so each that arrives, and each that is answered, gives the others time. */
static uint64_t granted_ns(const struct verbs *v, uint32_t link, const struct verbs_piece *piece)
{
    const struct verbs_path *p = &v->path[piece->path];
    const struct data_conn *conn = data_conn_of_lane(v->transport, link);
    uint64_t since_ns = piece->at_ns > p->pushed_ns ? piece->at_ns : p->pushed_ns;

    if (!piece->answered && conn && conn->progress_ns > since_ns)
        since_ns = conn->progress_ns;
    return since_ns;
}

/* A peer that neither writes what it was granted nor refuses to: its grants end with the path. */
void pieces_tick(struct verbs *v, uint32_t link, uint64_t now_ns)
{
    for (uint32_t i = 0; v->link[link].piece && i < VERBS_PIECES; i++) {
        struct verbs_piece *piece = piece_of(v, link, i);
        struct verbs_path *p;
        uint64_t since_ns;

        if (!piece->holds && !piece->revoked)
            continue;
        p = &v->path[piece->path];
        push_tick(v, piece, now_ns);
        since_ns = granted_ns(v, link, piece);
        if (p->state == PATH_READY && now_ns > since_ns &&
            now_ns - since_ns > v->xfer->config.idle_ns)
            path_failed(v, p, "pages were neither pushed nor refused in time");
    }
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

bool cq_drain(struct verbs_rail *rail)
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
            pieces_go_on(v, &v->path[number]);
            verbs_pump(v->transport, v->path[number].link);
        }
    }
    if (n < 0)
        rail_lost(rail, "its completion queue cannot be read");
    if (some)
        rail->spin_ns = io_now_ns() + VERBS_SPIN_NS;
    paths_go_on(rail);
    rings_go_on(v);
    return some;
}
