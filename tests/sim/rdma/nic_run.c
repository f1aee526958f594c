/* The behaviour of queue pairs: requests start in order, move their bytes in pieces, several at a
 * time, and complete in order. In the error state posted requests are flushed in order; a read that
 * had begun may write until its own flushed completion and never after it. A destroyed queue pair
 * does nothing more. See nic.c for which of this was measured. */
#include "nic.h"

#include <arpa/inet.h>
#include <errno.h>

#include "base/check.h"

#define CHUNK_MAX 4096u

void nic_due(struct nqp *q, uint64_t delay)
{
    if (q->due)
        return;
    q->due = true;
    rw_post(delay, T_QP, (uint32_t)(q - nic_qp), q->gen);
}

void nic_error(struct nqp *q)
{
    q->state = IBV_QPS_ERR;
    q->stuck = q->n > 0 && rw_fault(RF_flush_stuck);
    if (q->stuck)
        rw_mark(RM_flush_timed_out);
    q->due = false; /* one that waits for a silent peer stops waiting */
    nic_due(q, rw_soon());
}

/* ------------------------------------------------------------------ posting */

static const struct ncontext *context_of(const struct nqp *q)
{
    return (const struct ncontext *)(const void *)q->qp.context;
}

static bool nic_refuses(const struct nqp *q)
{
    return context_of(q)->lost && !context_of(q)->careless;
}

static bool nic_is_gone(const struct nqp *q)
{
    return context_of(q)->gone;
}

static const struct nmr *local_key(const struct nqp *q, uint64_t addr, uint64_t n, uint32_t lkey)
{
    for (uint32_t i = 0; i < NIC_KEYS; i++) {
        const struct nmr *m = &nic_mr[i];
        uint64_t base = (uintptr_t)m->mr.addr;

        if (m->used && m->mr.lkey == lkey && m->mr.pd == q->qp.pd && addr >= base &&
            addr + n <= base + m->mr.length)
            return m;
    }
    return NULL;
}

static bool overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes)
{
    return a < b + b_bytes && b < a + a_bytes;
}

/* May the queue pair write there, through a window that is open or will be? */
static bool pair_writes(const struct nqp *q, uint64_t at, uint64_t n)
{
    for (uint32_t i = 0; i < q->n; i++) {
        const struct nwr *w = &q->send[(q->head + i) % NIC_QUEUE];

        if (w->opcode == IBV_WR_BIND_MW && overlap(w->bind.addr, w->bind.length, at, n))
            return true;
    }
    return false;
}

/* A page has one writer at a time: with two, the slower one may write after the page was
 * accepted with the bytes of the faster one. `but`: the queue pair that is about to write; NULL:
 * a socket. */
void nic_one_writer(const void *to, uint64_t n, const struct nqp *but, const char *by)
{
    for (uint32_t i = 0; i < NIC_PAIRS; i++) {
        const struct nqp *q = &nic_qp[i];

        if (q->used && q != but && pair_writes(q, (uintptr_t)to, n))
            rw_fail("two_writers", "%s: queue pair %x of node %u may write there", by, q->qp.qp_num,
                    q->node);
    }
    for (uint32_t i = 0; i < nic_windows; i++) {
        const struct nmw *m = &nic_mw[i];

        if (m->used && m->bound && overlap(m->addr, m->length, (uintptr_t)to, n))
            rw_fail("two_writers", "%s: a window is open there", by);
    }
    if (but && rnet_receives(to, n))
        rw_fail("two_writers", "%s: a receive may write there", by);
}

static void take_rdma(const struct nqp *q, const struct ibv_send_wr *wr, struct nwr *w)
{
    const struct ibv_sge *sge = wr->sg_list;
    const struct nmr *m = local_key(q, sge->addr, sge->length, sge->lkey);

    check(wr->num_sge == 1 && sge->length > 0);
    check(wr->opcode != IBV_WR_RDMA_READ); /* the daemon reads only in its self-test */
    if (!m)
        rw_fail("bad_local_key", "node %u posts a request over memory that its key does not open",
                q->node);
    if (sge->length > rw.cfg.max_msg)
        rw_fail("message_too_long", "node %u posts %u bytes", q->node, sge->length);
    w->local = (uint8_t *)(uintptr_t)sge->addr;
    w->length = sge->length;
    w->remote = wr->wr.rdma.remote_addr;
    w->rkey = wr->wr.rdma.rkey;
    w->imm = wr->imm_data;
    if (w->length > rw.cfg.page_bytes[0] && w->length > rw.cfg.page_bytes[1])
        rw_mark(RM_writes_merged);
}

static void take_window(const struct nqp *q, const struct ibv_send_wr *wr, struct nwr *w)
{
    if (wr->opcode == IBV_WR_LOCAL_INV) {
        w->rkey = wr->invalidate_rkey;
        return;
    }
    w->mw = (struct nmw *)(void *)wr->bind_mw.mw;
    w->rkey = wr->bind_mw.rkey;
    w->bind = wr->bind_mw.bind_info;
    if (!(((const struct nmr *)(const void *)w->bind.mr)->access & IBV_ACCESS_MW_BIND))
        rw_fail("bind_without_access", "a window over a region that allows none");
    w->owner = rmem_owner((const void *)(uintptr_t)w->bind.addr);
    if (w->owner == 0)
        rw_fail("grant_of_live_page", "a window is bound to a page of no pull");
    for (uint64_t at = 0; at < w->bind.length; at += 64) /* pages are a multiple of that */
        if (rmem_owner((const void *)(uintptr_t)(w->bind.addr + at)) != w->owner)
            rw_fail("grant_beyond_its_pages", "a window of %llu bytes opens more than the pull's",
                    (unsigned long long)w->bind.length);
    nic_one_writer((const void *)(uintptr_t)w->bind.addr, w->bind.length, q, "a window");
}

/* Does the request close the windows of a grant that the seam counts as revoked? */
static bool revokes(const struct nqp *q, const struct ibv_send_wr *wr)
{
    struct rnode *node = &rw.node[q->node];
    struct xfer_stats stats;
    bool news;

    if (wr->opcode != IBV_WR_LOCAL_INV)
        return false;
    xfer_stats(node->xfer, &stats);
    news = stats.grants_revoked > node->revoked;
    node->revoked = stats.grants_revoked;
    return news;
}

int nic_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct nqp *q = nqp_of(qp);
    bool revoke = revokes(q, wr);

    check(q->used);
    if (nic_refuses(q)) {
        *bad = wr;
        return EIO;
    }
    if (nic_is_gone(q))
        return 0;
    if (q->n == 0 && ((struct ncq *)(void *)q->qp.send_cq)->n == 0)
        q->begun_ns = rw.now_ns;
    for (; wr; wr = wr->next) {
        struct nwr *w = &q->send[(q->head + q->n) % NIC_QUEUE];

        if (q->n == q->send_max)
            rw_fail("send_queue_over", "node %u posts more than %u requests", q->node, q->n);
        if (q->state != IBV_QPS_RTS && q->state != IBV_QPS_ERR) {
            *bad = wr;
            return EINVAL;
        }
        if (rw_fault(RF_post_fails)) {
            *bad = wr;
            errno = 0;
            nic_due(q, rw_soon()); /* those before it are accepted */
            return ENOMEM;
        }
        *w = (struct nwr){.opcode = wr->opcode,
                          .wr_id = wr->wr_id,
                          .revokes = revoke,
                          .signaled = (wr->send_flags & IBV_SEND_SIGNALED) != 0};
        if (wr->opcode == IBV_WR_BIND_MW || wr->opcode == IBV_WR_LOCAL_INV)
            take_window(q, wr, w);
        else
            take_rdma(q, wr, w);
        q->n++;
    }
    nic_due(q, rw_soon());
    return 0;
}

int nic_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct nqp *q = nqp_of(qp);

    check(q->used);
    if (nic_refuses(q)) {
        *bad = wr;
        return EIO;
    }
    if (nic_is_gone(q))
        return 0;
    for (; wr; wr = wr->next) {
        if (q->rn == q->recv_max)
            rw_fail("receive_queue_over", "node %u posts more than %u receives", q->node, q->rn);
        if (q->state == IBV_QPS_RESET) {
            *bad = wr;
            return EINVAL;
        }
        q->recv[(q->rhead + q->rn++) % NIC_QUEUE] = wr->wr_id;
    }
    if (q->state == IBV_QPS_ERR)
        nic_due(q, rw_soon());
    return 0;
}

/* ------------------------------------------------------------------ completing */

static void complete(struct nqp *q, enum ibv_wc_status status)
{
    const struct nwr *w = &q->send[q->head];
    struct ibv_wc wc = {.wr_id = w->wr_id, .status = status, .qp_num = q->qp.qp_num};

    wc.opcode = w->opcode == IBV_WR_BIND_MW     ? IBV_WC_BIND_MW
                : w->opcode == IBV_WR_LOCAL_INV ? IBV_WC_LOCAL_INV
                                                : IBV_WC_RDMA_WRITE;
    q->head = (q->head + 1) % NIC_QUEUE;
    q->n--;
    q->last_id = wc.wr_id;
    if (w->signaled || status != IBV_WC_SUCCESS)
        nic_complete(q, q->qp.send_cq, &wc);
}

static void complete_receive(struct nqp *q, enum ibv_wc_status status, uint32_t imm)
{
    struct ibv_wc wc = {.wr_id = q->recv[q->rhead],
                        .status = status,
                        .opcode = IBV_WC_RECV_RDMA_WITH_IMM,
                        .imm_data = imm,
                        .wc_flags = IBV_WC_WITH_IMM,
                        .qp_num = q->qp.qp_num};

    q->rhead = (q->rhead + 1) % NIC_QUEUE;
    q->rn--;
    nic_complete(q, q->qp.recv_cq, &wc);
}

/* ------------------------------------------------------------------ the peer */

static struct nqp *peer_of(const struct nqp *q)
{
    uint32_t i = (q->dest_qpn >> 8) - 1;
    struct nqp *p = i < NIC_PAIRS ? &nic_qp[i] : NULL;

    if (!p || !p->used || p->qp.qp_num != q->dest_qpn || p->node != q->dest_node ||
        p->rail != q->dest_rail || p->dest_qpn != q->qp.qp_num ||
        (p->state != IBV_QPS_RTR && p->state != IBV_QPS_RTS) ||
        rw.cut_until[q->node][p->node] > rw.now_ns || rw.cut_until[p->node][q->node] > rw.now_ns ||
        rw.rail_cut_until[q->node][q->rail] > rw.now_ns ||
        rw.rail_cut_until[p->node][p->rail] > rw.now_ns)
        return NULL;
    return p;
}

static struct nmw *window_of(uint32_t rkey)
{
    uint32_t i = (rkey - NIC_WINDOW_KEY) >> 8;

    return rkey >= NIC_WINDOW_KEY && i < NIC_WINDOWS && nic_mw[i].used ? &nic_mw[i] : NULL;
}

/* A window may be closed while writes to it are under way only if it is revoked: such writes break
 * both queue pairs. */
static void met_closed(const struct nqp *p, const struct nmw *window, uint32_t rkey)
{
    rw_mark(RM_closed_window_refused);
    if (!(window->revoked[(rkey & 0xff) / 64] >> (rkey % 64) & 1))
        rw_fail("closed_under_the_writer", "node %u closed a window and had not revoked it",
                p->node);
}

/* Returns false if the request fails. *ret_owner: for a write, the owner of the target. */
static bool may_access(const struct nqp *p, const struct nwr *w, uint64_t *ret_owner)
{
    bool read = w->opcode == IBV_WR_RDMA_READ;
    int need = read ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;

    const struct nmw *window = window_of(w->rkey);

    if (!((int)p->access & need))
        return false;
    if (window) {
        *ret_owner = window->owner;
        if (window->qp == p && (window->key != w->rkey || !window->bound)) /* not freed since */
            met_closed(p, window, w->rkey);
        return window->key == w->rkey && window->bound && window->qp == p &&
               ((int)window->access & need) && w->remote >= window->addr &&
               w->remote + w->length <= window->addr + window->length;
    }
    for (uint32_t i = 0; i < NIC_KEYS; i++) {
        const struct nmr *m = &nic_mr[i];
        uint64_t base = (uintptr_t)m->mr.addr;

        if (!m->used || m->mr.rkey != w->rkey || m->mr.pd != p->qp.pd)
            continue;
        *ret_owner = rmem_owner((const void *)(uintptr_t)w->remote);
        return (m->access & need) && w->remote >= base &&
               w->remote + w->length <= base + m->mr.length;
    }
    return false;
}

/* No key of the node may be readable by a peer, over any queue pair. */
void rnic_audit_reads(uint32_t node)
{
    uint64_t owner;

    for (uint32_t i = 0; i < NIC_PAIRS; i++)
        for (uint32_t k = 0; nic_qp[i].used && nic_qp[i].node == node && k < NIC_KEYS; k++) {
            const struct ibv_mr *mr = &nic_mr[k].mr;
            struct nwr w = {.opcode = IBV_WR_RDMA_READ,
                            .rkey = mr->rkey,
                            .remote = (uintptr_t)mr->addr,
                            .length = 1};

            if (nic_mr[k].used && may_access(&nic_qp[i], &w, &owner))
                rw_fail("wide_key", "node %u: a key reads %zu bytes", node, mr->length);
        }
}

/* ------------------------------------------------------------------ moving bytes */

/* Delays the visibility of the bytes; until then the page may be reported wrong. */
static bool hold(uint8_t *to, const uint8_t *from, uint32_t n, uint64_t owner, uint64_t qp)
{
    uint32_t i = 0;

    while (i < NIC_HELD && nic_held[i].used)
        i++;
    if (i == NIC_HELD || n > sizeof nic_held[i].bytes)
        return false;
    nic_held[i].used = true;
    nic_held[i].gen++;
    nic_held[i].to = to;
    nic_held[i].n = n;
    nic_held[i].owner = owner;
    nic_held[i].qp = qp;
    memcpy(nic_held[i].bytes, from, n);
    rw_post(rw_soon() + (qp || rw_one_in(4) ? 0 : 1000ull * rw_below(5000)), T_HELD, i,
            nic_held[i].gen);
    return true;
}

static void show(struct nheld *h)
{
    h->used = false;
    if (h->qp)
        rmem_land(h->to, h->bytes, h->n, h->owner, "a write");
    else
        rmem_land_late(h->to, h->bytes, h->n, h->owner);
}

void rnic_held(uint32_t i, uint32_t gen)
{
    struct nheld *h = &nic_held[i];

    if (h->used && h->gen == gen)
        show(h);
}

void nic_held_now(const struct nqp *q)
{
    for (uint32_t i = 0; i < NIC_HELD; i++)
        if (nic_held[i].used && nic_held[i].qp == nqp_id(q))
            show(&nic_held[i]);
}

static void move_write(struct nqp *q, struct nqp *p, struct nwr *w, uint32_t n, uint64_t owner)
{
    const uint8_t *from = w->local + w->moved;
    uint8_t *to = (uint8_t *)(uintptr_t)w->remote + w->moved, bytes[CHUNK_MAX];
    bool last = w->moved + n == w->length, page = owner != OWNER_RING;

    p->landed = true;
    rmem_taken(from, n);
    rmem_read_for(to, from, n);
    w->moved += n;
    if (pulls_stopping(owner))
        rw_mark(RM_landed_after_stop);
    if (page && rw_fault(RF_bit_flip)) {
        memcpy(bytes, from, n);
        bytes[rw_below(n)] ^= (uint8_t)(1u << rw_below(8));
        rmem_excuse(to, n, EXCUSE_FLIP);
        from = bytes;
        last = false;
    }
    /* Fault 8: the peer gets the completion now, the bytes come later. */
    if (page && last && q->state == IBV_QPS_RTS && rw_fault(RF_early_completion) &&
        hold(to, from, n, owner, 0)) {
        rmem_excuse(to, n, EXCUSE_LATE);
        return;
    }
    if (rw_one_in(4) && hold(to, from, n, owner, nqp_id(p))) {
        rw_mark(RM_told_before_it_was_there);
        return;
    }
    rmem_land(to, from, n, owner, "a write");
    rw_mark(RM_landed_by_write);
}

static void move(struct nqp *q, struct nqp *p, struct nwr *w, uint64_t owner)
{
    uint32_t n = w->length - w->moved;

    n = n < CHUNK_MAX ? n : CHUNK_MAX;
    n = rw_one_in(2) ? rw_between(1, n) : n;
    move_write(q, p, w, n, owner);
}

/* ------------------------------------------------------------------ running */

/* Returns false if it waits for a silent peer. */
static bool peer_answers(struct nqp *q, struct nqp *p)
{
    if (p) {
        q->silent_ns = 0;
        return true;
    }
    if (q->silent_ns == 0)
        q->silent_ns = rw.now_ns;
    if (rw.now_ns - q->silent_ns < q->timeout_ns) {
        nic_due(q, 50 * MS + 1000ull * rw_below(100000));
        return false;
    }
    rw_mark(RM_retries_exhausted);
    complete(q, IBV_WC_RETRY_EXC_ERR);
    nic_error(q);
    return false;
}

static void run_window(struct nqp *q, const struct nwr *w)
{
    if (w->opcode == IBV_WR_BIND_MW) {
        struct nmw was = *w->mw;

        *w->mw = (struct nmw){.mw = w->mw->mw,
                              .used = true,
                              .bound = true,
                              .mr = (const struct nmr *)(const void *)w->bind.mr,
                              .qp = q,
                              .addr = w->bind.addr,
                              .length = w->bind.length,
                              .owner = w->owner,
                              .access = w->bind.mw_access_flags};
        w->mw->key = w->rkey;
        memcpy(w->mw->revoked, was.revoked, sizeof was.revoked);
        w->mw->revoked[(w->rkey & 0xff) / 64] &= ~((uint64_t)1 << w->rkey % 64);
    } else {
        struct nmw *m = window_of(w->rkey);

        nic_held_now(q); /* what has arrived is placed first */
        if (!m || m->key != w->rkey || m->qp != q || !m->bound)
            rw_fail("bad_invalidation", "node %u closes a window that is not open", q->node);
        m->bound = false;
        m->revoked[(w->rkey & 0xff) / 64] |= (uint64_t)w->revokes << w->rkey % 64;
    }
    complete(q, IBV_WC_SUCCESS);
}

static void no_receive(struct nqp *q)
{
    if (q->rnr_retries == 7 || q->rnr_tries++ < q->rnr_retries) {
        nic_due(q, MS);
        return;
    }
    complete(q, IBV_WC_RNR_RETRY_EXC_ERR);
    nic_error(q);
}

/* Completes the finished requests at the head. */
static void finish_heads(struct nqp *q, struct nqp *p)
{
    while (q->n > 0) {
        const struct nwr *w = &q->send[q->head];

        if (w->length == 0 || w->moved < w->length)
            return;
        if (w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
            if (p->rn <= p->nimm || p->nimm == NIC_IMMS) {
                no_receive(q);
                return;
            }
            q->rnr_tries = 0;
            p->imm[p->nimm++] = w->imm; /* the writer may complete first */
            nic_due(p, rw_soon());
        }
        complete(q, IBV_WC_SUCCESS);
    }
}

static void run(struct nqp *q)
{
    struct nwr *w = &q->send[q->head];
    uint64_t owner = 0;
    struct nqp *p;

    if (w->length == 0) {
        run_window(q, w);
        return;
    }
    p = peer_of(q);
    if (!peer_answers(q, p))
        return;
    if (w->moved < w->length && w->failed == IBV_WC_SUCCESS &&
        (!may_access(p, w, &owner) || rw_fault(RF_access_refused)))
        w->failed = IBV_WC_REM_ACCESS_ERR;
    if (w->failed != IBV_WC_SUCCESS) {
        rw_mark(RM_access_refused);
        complete(q, w->failed);
        nic_error(q);
        nic_error(p);
        return;
    }
    if (w->moved < w->length) {
        w->started = true;
        move(q, p, w, owner);
    }
    finish_heads(q, p);
}

static void flush(struct nqp *q)
{
    struct nqp *p = peer_of(q);
    uint64_t owner = 0;

    if (q->stuck)
        return;
    if (q->n > 0) {
        struct nwr *w = &q->send[q->head];

        if (p && w->started && w->moved < w->length && !rw_one_in(3) && may_access(p, w, &owner)) {
            move(q, p, w, owner);
            return;
        }
        rw_mark(RM_flushed);
        complete(q, IBV_WC_WR_FLUSH_ERR);
    } else if (q->rn > 0) {
        complete_receive(q, IBV_WC_WR_FLUSH_ERR, 0);
    }
}

/* Bytes written before an immediate are visible with it. */
static void tell_arrivals(struct nqp *q)
{
    nic_held_now(q);
    for (uint32_t i = 0; i < q->nimm; i++)
        complete_receive(q, IBV_WC_SUCCESS, q->imm[i]);
    q->told += q->nimm;
    q->last_imm = q->imm[q->nimm - 1];
    q->nimm = 0;
}

/* A write of no bytes needs no key, so the peer may send any number at any time: here one that it
 * sent before. */
static void unasked(struct nqp *q)
{
    if (q->state != IBV_QPS_RTS || q->nimm > 0 || q->rn == 0 || q->told == 0 ||
        !rw_fault(RF_immediate_unasked))
        return;
    rw_mark(RM_immediate_again);
    q->imm[q->nimm++] = q->last_imm;
}

void rnic_qp(uint32_t number, uint32_t gen)
{
    struct nqp *q = &nic_qp[number];

    if (!q->used || q->gen != gen || !q->due)
        return;
    q->due = false;
    unasked(q);
    if (q->nimm > 0 && !(q->state == IBV_QPS_RTS && q->n > 0 && rw_one_in(4)))
        tell_arrivals(q); /* or behind requests posted since */
    else if (q->state == IBV_QPS_ERR)
        flush(q);
    else if (q->state == IBV_QPS_RTS && q->n > 0)
        run(q);
    if (q->stuck)
        return;
    if (q->n > 0 && q->state == IBV_QPS_RTS && rw_fault(RF_nic_stalls))
        nic_due(q, MS * rw_between(1, 400));
    if (q->n > 0 || (q->state == IBV_QPS_ERR && q->rn > 0) || q->nimm > 0)
        nic_due(q, rw_one_in(4) ? rw_soon() : 1000ull * rw_between(0, 5) * rw.cfg.drag);
}

/* ------------------------------------------------------------------ for the driver */

bool rnic_is_whole(uint32_t node, uint32_t rail, uint32_t peer)
{
    for (uint32_t i = 0; i < NIC_PAIRS; i++) {
        const struct nqp *q = &nic_qp[i];

        if (q->used && q->node == node && q->rail == rail && q->dest_node == peer &&
            (q->state != IBV_QPS_RTS || !peer_of(q)))
            return false;
    }
    return true;
}

/* ------------------------------------------------------------------ faults */

/* A completion of a queue pair that is gone. */
void rnic_stale(uint32_t number, uint32_t gen)
{
    struct ncq *cq = &nic_cq[number];
    struct ibv_wc wc = {.wr_id = cq->stale_id, .status = IBV_WC_SUCCESS};

    if (!cq->used || cq->gen != gen)
        return;
    rw_mark(RM_stale_completion);
    rw.node[((struct ncontext *)cq->cq.context)->node].strays++;
    nic_complete(NULL, &cq->cq, &wc);
}

/* Breaks a queue pair with outstanding requests, if there is one. */
void rnic_spoil(void)
{
    uint32_t from = rw_below(NIC_PAIRS);
    struct nqp *found = NULL;

    for (uint32_t k = 0; k < NIC_PAIRS && !(found && found->n > 0); k++) {
        struct nqp *q = &nic_qp[(from + k) % NIC_PAIRS];

        if (q->used && q->state == IBV_QPS_RTS && (!found || q->n > 0))
            found = q;
    }
    if (!found)
        return;
    rw.fault[RF_qp_error]++;
    nic_error(found);
}
