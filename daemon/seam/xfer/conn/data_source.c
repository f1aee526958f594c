/* The source's side of a data connection. The caller sends its token, then requests. Requests are
 * answered in order, each by the transport that knows its frame. The core is asked about every page
 * right before the answer begins, and again by the transport when the page's bytes have left. If a
 * page's generation changed in between, the answer names the page, and the destination discards it.
 *
 * Invariant: an answer that was begun is sent whole, or the connection ends, so that the stream
 * stays in step. If a serve ends while its pages are being sent, the transport is informed and the
 * send in flight is cancelled. */
#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/container.h"
#include "seam/xfer/conn/data_conn.h"

#define SOURCE_RX_BYTES (2 * XFER_WRITE_BYTES) /* the current request, and one read ahead */

static void receive(struct data_conn *conn);

/* ------------------------------------------------------------------ an answer */

uint32_t data_request_pool(const struct data_conn *conn)
{
    return conn->xfer->serve[conn->request->serve.slot].pool;
}

const struct pair *data_request_pair(const struct data_conn *conn)
{
    const struct data_request *r = conn->request;

    return r->kind == XFER_REQUEST_PLAN ? conn->xfer->serve[r->serve.slot].pair : NULL;
}

uint64_t data_request_bytes(const struct data_conn *conn, uint32_t i)
{
    const struct xfer_entry *e = &conn->request->entry[i];
    const struct pair *pair = data_request_pair(conn);

    if (pair)
        return pair_plan_of(pair, e->group, e->index)->bytes * e->n;
    return mem_transfer_bytes(conn->xfer->config.mem, data_request_pool(conn), e->group);
}

/* Returns the number of checksums of one page. */
static uint32_t page_sums(const struct data_conn *conn, uint32_t group)
{
    const struct pair *pair = data_request_pair(conn);

    if (pair)
        return pair->group[group].sums;
    return mem_transfer_sums(conn->xfer->config.mem, data_request_pool(conn), group);
}

/* Appends the sums of an entry's pages. Returns false if there is no room. */
static bool answer_page(struct data_conn *conn, uint32_t i, const uint32_t *records,
                        uint64_t *ret_sums_bytes)
{
    struct data_request *r = conn->request;
    uint32_t n = page_sums(conn, r->entry[i].group);

    if (conn->out_n + r->entry[i].n * n * sizeof(uint64_t) > conn->xfer->conns->meta_bytes)
        return false;
    for (uint32_t p = 0; p < r->entry[i].n; p++) {
        const uint64_t *sums = mem_sums(conn->xfer->config.mem, records[p]);

        for (uint32_t k = 0; k < n; k++, conn->out_n += 8)
            xfer_put64(conn->meta + conn->out_n, sums[k]);
        *ret_sums_bytes += n * sizeof *sums;
    }
    r->npages += r->entry[i].n;
    r->pages_left += data_request_bytes(conn, i);
    xfer_set_bit(r->given, i);
    return true;
}

/* Appends zeros where older daemons expect region numbers. Returns false if there is no room. */
static bool answer_regions(struct data_conn *conn, uint64_t *ret_bytes)
{
    uint32_t bytes = XFER_REGION_BYTES(
        mem_place(conn->xfer->config.mem, data_request_pool(conn))->transfer_regions);

    if (conn->out_n + bytes > conn->xfer->conns->meta_bytes)
        return false;
    memset(conn->meta + conn->out_n, 0, bytes);
    conn->out_n += bytes;
    *ret_bytes += bytes;
    return true;
}

/* Returns true if an entry names one page, or pages within a span. */
static bool entry_fits(const struct data_conn *conn, const struct xfer_entry *e)
{
    const struct pair *pair = data_request_pair(conn);
    const uint32_t most = pair && e->group < pair->ngroups ? pair->group[e->group].from_pages : 1;

    return e->n > 0 && (uint32_t)e->first + e->n <= most &&
           conn->request->npages + e->n <= XFER_PAGES_MAX;
}

/* Returns true if all pages of an entry may leave, and records them in the request. */
static bool pages_leave(struct data_conn *conn, uint32_t i,
                        uint32_t ret_records[RESHARD_SPAN_PAGES_MAX])
{
    struct data_request *r = conn->request;
    struct xfer_entry e = r->entry[i];

    if (!entry_fits(conn, &e))
        return false;
    r->page_at[i] = (uint16_t)r->npages;
    for (uint32_t k = 0; k < r->entry[i].n; k++) {
        if ((k > 0 && !serve_next_page(conn->xfer, r->serve, &e)) ||
            !serve_page_leaves(conn->xfer, r->serve, &e, &ret_records[k]) ||
            !mem_sums_known(conn->xfer->config.mem, ret_records[k], page_sums(conn, e.group)))
            return false;
        r->page[r->npages + k] = (struct page_ref){e.index, e.gen};
    }
    return true;
}

/* A plan request needs a plan; pages leave unchanged only if both layouts are equal. */
static bool frame_suits(const struct data_conn *conn)
{
    const struct data_request *r = conn->request;
    const struct pair *pair;

    if (!serve_active(conn->xfer, r->serve))
        return false;
    pair = conn->xfer->serve[r->serve.slot].pair;
    if (r->kind == XFER_REQUEST_PLAN)
        return pair != NULL;
    return !pair || pair->alike;
}

bool data_answer_begin(struct data_conn *conn, uint16_t frame, bool leaves)
{
    struct data_request *r = conn->request;
    uint32_t head_at = conn->out_n, records[RESHARD_SPAN_PAGES_MAX];
    struct xfer_head head = {.type = frame, .n = r->n, .seq = r->seq};

    memset(conn->meta + head_at, 0, XFER_HEAD_BYTES + XFER_STATUS_BYTES(r->n));
    conn->out_n += XFER_HEAD_BYTES + XFER_STATUS_BYTES(r->n);
    memset(r->given, 0, sizeof r->given);
    r->pages_left = r->npages = 0;
    r->over = false;
    r->cursor = (struct page_cursor){0};
    for (uint32_t i = 0; i < r->n; i++) {
        if (leaves && frame_suits(conn) && pages_leave(conn, i, records)) {
            if (!answer_page(conn, i, records, &head.b))
                return false;
            continue;
        }
        xfer_put32(conn->meta + head_at + XFER_HEAD_BYTES + 4 * i, TERN_GONE);
        conn->xfer->stats.gone_answers++;
    }
    if (frame == XFER_ANSWER_WRITE && head.b > 0 && !answer_regions(conn, &head.b))
        return false;
    if (frame == XFER_ANSWER)
        head.a = r->pages_left;
    else
        r->pages_left = 0; /* their bytes do not use this connection */
    xfer_put_head(conn->meta + head_at, &head);
    return true;
}

void data_answer_none(struct data_conn *conn, uint16_t frame, enum tern_err err)
{
    const struct data_request *r = conn->request;
    struct xfer_head head = {.type = frame, .n = r->n, .seq = r->seq};

    xfer_put_head(conn->meta, &head);
    conn->out_n = XFER_HEAD_BYTES + XFER_STATUS_BYTES(r->n);
    for (uint32_t i = 0; i < r->n; i++)
        xfer_put32(conn->meta + XFER_HEAD_BYTES + 4 * i, err);
}

/* ------------------------------------------------------------------ requests */

/* Returns the transport that answers the frame. NULL: the frame is not a request. */
static struct transport *transport_of(struct xfer *xfer, uint16_t frame)
{
    for (uint32_t i = 0; i < xfer->ntransports; i++)
        for (uint32_t k = 0; xfer->transport[i].ops->service && k < DATA_SERVICE_FRAMES; k++)
            if (xfer->transport[i].ops->service->frame[k] == frame)
                return &xfer->transport[i];
    return NULL;
}

static uint32_t runs_of(const struct xfer_head *head)
{
    return (uint32_t)head->b;
}

/* Returns the bytes of the next frame; 0: incomplete. *ret_bad: not a frame of ours. Sets the
 * request's transport. */
static uint32_t frame_bytes(const struct data_conn *conn, struct xfer_head *ret, bool *ret_bad)
{
    struct data_request *r = conn->request;
    uint32_t need;

    *ret_bad = false;
    if (r->rx_n < XFER_HEAD_BYTES)
        return 0;
    if (!xfer_get_head(conn->buffer + r->rx_at, ret) ||
        (r->state == DATA_REQUEST_HELLO ? ret->type != XFER_HELLO
                                        : !(r->transport = transport_of(conn->xfer, ret->type))) ||
        (ret->type == XFER_HELLO ? ret->n != 0 : ret->n == 0 || ret->n > XFER_PAGES_MAX) ||
        (ret->type == XFER_REQUEST_WRITE && runs_of(ret) > XFER_RUNS_MAX)) {
        *ret_bad = true;
        return 0;
    }
    need = XFER_HEAD_BYTES + ret->n * XFER_ENTRY_BYTES;
    if (ret->type == XFER_REQUEST_WRITE)
        need += runs_of(ret) * XFER_RUN_BYTES;
    return r->rx_n >= need ? need : 0;
}

/* Moves no bytes, because a receive may be in flight after them. `receive` closes the gap. */
static void frame_taken(struct data_request *r, uint32_t n)
{
    r->rx_at += n;
    r->rx_n -= n;
    r->frame_ns = io_now_ns();
}

/* Returns false if the caller is not admitted: HELLO names an earlier incarnation of this daemon,
 * no link that is up has its token, or the link has used its share of connections. */
static bool hello(struct data_conn *conn, const struct xfer_head *head)
{
    struct xfer *xfer = conn->xfer;

    uint32_t link = xfer_link_admitted(xfer, head->b);

    if (head->a != xfer->config.incarnation || link == NONE) {
        xfer->stats.refused++;
        return false;
    }
    if (!data_conn_admitted(conn, link)) {
        xfer->stats.over_share++;
        return false;
    }
    return true;
}

static void take_request(struct data_conn *conn, const struct xfer_head *head)
{
    struct data_request *r = conn->request;
    const uint8_t *at = conn->buffer + r->rx_at + XFER_HEAD_BYTES;

    r->kind = head->type;
    r->n = head->n;
    r->seq = head->seq;
    r->serve = serve_id_unpack(head->a);
    for (uint32_t i = 0; i < head->n; i++, at += XFER_ENTRY_BYTES)
        xfer_get_entry(at, &r->entry[i]);
    if (head->type != XFER_REQUEST_WRITE)
        return;
    r->nruns = runs_of(head);
    r->epoch = (uint32_t)(head->b >> 32);
    for (uint32_t i = 0; i < r->nruns; i++, at += XFER_RUN_BYTES)
        xfer_get_run(at, &r->runs[i]);
}

/* Begins the next request, if it is complete. */
static void next_request(struct data_conn *conn)
{
    struct data_request *r = conn->request;
    struct xfer_head head;
    uint32_t bytes;
    bool bad;

    if (r->state == DATA_REQUEST_WAITS)
        return; /* called again after its answer */
    bytes = frame_bytes(conn, &head, &bad);
    if (!bad && bytes > 0 && r->state == DATA_REQUEST_HELLO) {
        bad = !hello(conn, &head);
        data_request_state_move(&r->state, DATA_REQUEST_NONE);
        frame_taken(r, bytes);
        if (!bad)
            bytes = frame_bytes(conn, &head, &bad);
    }
    if (bad) {
        data_conn_end(conn, true);
        return;
    }
    if (bytes == 0)
        return;
    take_request(conn, &head);
    frame_taken(r, bytes);
    data_conn_progress(conn); /* the timeout for our answer starts now */
    if (!serve_allows(conn->xfer, r->serve, conn->peer_link) ||
        !r->transport->ops->service->begin(r->transport, conn))
        data_conn_end(conn, true);
}

/* ------------------------------------------------------------------ sending */

static void task_sent(struct io_task *task, int32_t res);

/* A data thread sends page bytes, and the meta before them. */
static void send_post(struct data_conn *conn)
{
    struct data_request *r = conn->request;
    struct data_gather g = {.iov = conn->iov, .bytes_max = DATA_SEND_BYTES};
    bool pages = r->state == DATA_REQUEST_PAGES && r->pages_left > 0;

    check(!conn->sending && conn->send_serve == NONE);
    data_gather_add(&g, conn->meta + conn->out_at, conn->out_n - conn->out_at);
    if (pages)
        r->transport->ops->service->gather(conn, &g);
    if (conn->send_serve != NONE)
        serve_hold(conn->xfer, conn->send_serve);
    conn->sending = true;
    if (pages) {
        data_conn_send_pages(conn, g.n, g.bytes, task_sent);
    } else {
        conn->send_task.msg =
            (struct msghdr){.msg_iov = conn->iov, .msg_iovlen = g.n, .msg_flags = MSG_WAITALL};
        io_sendmsg(conn->xfer->config.io, &conn->send_op, conn->fd, &conn->send_task.msg);
    }
}

void data_source_send(struct data_conn *conn)
{
    const enum data_request_state state = conn->request->state;

    if (conn->state == DATA_CONN_OPEN && !conn->sending &&
        (state == DATA_REQUEST_PAGES || state == DATA_REQUEST_META))
        send_post(conn);
}

static void sent_bytes(struct data_conn *conn, uint64_t n)
{
    struct data_request *r = conn->request;
    uint64_t meta = conn->out_n - conn->out_at;
    bool more = r->state == DATA_REQUEST_PAGES && r->pages_left > 0;

    conn->xfer->stats.socket_bytes_out += n;
    meta = meta < n ? meta : n;
    conn->out_at += (uint32_t)meta;
    if (n > meta)
        more = r->transport->ops->service->sent(conn, n - meta);
    if (conn->out_at < conn->out_n || more) {
        send_post(conn);
        return;
    }
    conn->out_n = conn->out_at = 0;
    if (r->state == DATA_REQUEST_PAGES) { /* the next answer carries the tail */
        r->transport->ops->service->end(conn);
        data_request_state_move(&r->state, DATA_REQUEST_META);
    } else {
        data_request_state_move(&r->state, DATA_REQUEST_NONE);
    }
    next_request(conn);
    data_source_send(conn);
}

/* n bytes were sent, and the last operation ended with res. */
static void send_ended(struct data_conn *conn, uint64_t n, int32_t res)
{
    struct xfer *xfer = conn->xfer;
    struct data_request *r = conn->request;
    uint32_t serve = conn->send_serve;
    bool lost = res == -EFAULT && serve != NONE; /* a page has no memory behind it */

    conn->sending = false;
    conn->send_serve = NONE;
    if (conn->state == DATA_CONN_OPEN) {
        if (n > 0)
            data_conn_progress(conn);
        if (lost)
            r->transport->ops->service->over(r->transport, conn, true);
        if (res <= 0 && res != -ECANCELED && !lost)
            data_conn_end(conn, true);
        else if (n > 0)
            sent_bytes(conn, n);
        else
            send_post(conn);
    }
    if (serve != NONE)
        serve_release(xfer, serve);
    if (conn->state == DATA_CONN_CLOSING)
        data_conn_reap(conn);
    else if (conn->state == DATA_CONN_OPEN && conn->request)
        receive(conn);
}

static void send_done(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    (void)flags, (void)buffer;
    send_ended(container_of(op, struct data_conn, send_op), res > 0 ? (uint64_t)res : 0, res);
}

static void task_sent(struct io_task *task, int32_t res)
{
    struct data_conn *conn = container_of(task, struct data_conn, send_task);

    send_ended(conn, conn->walk.moved, res);
}

/* ------------------------------------------------------------------ receiving */

static void received(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct data_conn *conn = container_of(op, struct data_conn, recv_op);
    struct data_request *r = conn->request;

    (void)flags, (void)buffer;
    conn->receiving = false;
    if (conn->state == DATA_CONN_OPEN && res <= 0) {
        data_conn_end(conn, true);
    } else if (conn->state == DATA_CONN_OPEN) {
        if (r->rx_n == 0)
            r->frame_ns = io_now_ns();
        r->rx_n += (uint32_t)res;
        conn->xfer->stats.socket_bytes_in += (uint64_t)res;
        if (!conn->sending) {
            next_request(conn);
            data_source_send(conn);
        }
    }
    if (conn->state == DATA_CONN_OPEN)
        receive(conn);
    else
        data_conn_reap(conn);
}

static void receive(struct data_conn *conn)
{
    struct data_request *r = conn->request;

    if (conn->receiving || r->rx_n == SOURCE_RX_BYTES)
        return; /* buffer full: the peer has sent more than we read ahead, and waits */
    memmove(conn->buffer, conn->buffer + r->rx_at, r->rx_n);
    r->rx_at = 0;
    conn->receiving = true;
    io_recv(conn->xfer->config.io, &conn->recv_op, conn->fd, conn->buffer + r->rx_n,
            SOURCE_RX_BYTES - r->rx_n, false);
}

/* ------------------------------------------------------------------ life */

void data_source_start(struct data_conn *conn)
{
    conn->request->frame_ns = io_now_ns();
    conn->recv_op.done = received;
    conn->send_op.done = send_done;
    receive(conn);
}

/* Returns true if a frame is overdue since its first byte, so that a peer that sends single bytes
 * cannot keep a slot. */
bool data_source_busy(const struct data_conn *conn, uint64_t now_ns)
{
    const struct data_request *r = conn->request;

    if (r->state != DATA_REQUEST_HELLO && r->rx_n == 0)
        return false;
    return now_ns > r->frame_ns && now_ns - r->frame_ns > conn->xfer->config.idle_ns;
}

void data_conns_serve_stopped(struct xfer *xfer, struct serve_id serve)
{
    for (uint32_t i = 0; i < xfer->config.data_conns_max; i++) {
        struct data_conn *conn = &xfer->conns->conn[i];
        const struct data_request *r = conn->request;

        if (conn->state == DATA_CONN_FREE || !r)
            continue;
        if ((r->state == DATA_REQUEST_PAGES ||
             (r->state == DATA_REQUEST_WAITS && conn->state == DATA_CONN_OPEN)) &&
            serve_id_equal(r->serve, serve))
            r->transport->ops->service->over(r->transport, conn, false);
        if (conn->send_serve == serve.slot)
            data_conn_cancel_send(conn);
    }
}

void data_conns_dismiss(struct xfer *xfer, uint32_t peer_link)
{
    for (uint32_t i = 0; i < xfer->config.data_conns_max; i++) {
        struct data_conn *conn = &xfer->conns->conn[i];

        if (conn->state == DATA_CONN_OPEN && conn->request && conn->peer_link == peer_link)
            data_conn_end(conn, true);
    }
}
