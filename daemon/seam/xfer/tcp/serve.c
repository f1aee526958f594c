/* The source's side: answers requests in order, each page straight from where it lies. The core is
 * asked for every page right before its answer is begun and again when the last byte was handed to
 * the kernel; a page whose generation passed in between is named in the tail and the destination
 * throws it away.
 *
 * Stopping a serve cancels the send in flight that reads its pages; what had been promised and not
 * sent goes out as zeros, with every page named in the tail. So the stream stays in step, the
 * connection serves on, and nothing reads the pages once EV_SERVE_QUIET was emitted. What a device
 * was told to write from them is waited for (verbs/write.c). */
#include <errno.h>
#include <stdlib.h>

#include "base/check.h"
#include "seam/xfer/tcp/tcp.h"

static void send_post(struct xfer_conn *conn);
static void rx_post(struct xfer_conn *conn);

/* ------------------------------------------------------------------ serves */

static struct xfer_serve_slot *serve_slot(struct xfer *xfer, struct serve_id id)
{
    check(id.slot < xfer->config.serves);
    return &xfer->serve[id.slot];
}

void serve_quiet(struct xfer *xfer, uint32_t slot)
{
    struct xfer_serve_slot *serve = &xfer->serve[slot];
    struct event event;

    if (serve->state != SERVING_STOPPING || serve->sending > 0 || serve->writing > 0)
        return;
    for (uint32_t i = 0; i < xfer->config.data_conns_max; i++)
        check(xfer->conn[i].state == CONN_FREE || xfer->conn[i].outbound ||
              xfer->conn[i].send_serve != slot);
    serve->state = SERVING_NONE;
    memset(&event, 0, sizeof event);
    event.kind = EV_SERVE_QUIET;
    event.serve_quiet.serve = (struct serve_id){slot, serve->gen};
    xfer->config.emit(xfer->config.ctx, &event);
}

void xfer_serve_start(struct xfer *xfer, const struct action *act)
{
    struct xfer_serve_slot *serve = serve_slot(xfer, act->serve.serve);

    check(serve->sending == 0 && serve->writing == 0);
    *serve = (struct xfer_serve_slot){
        .state = SERVING, .gen = act->serve.serve.gen, .pool = act->serve.pool};
}

void xfer_serve_stop(struct xfer *xfer, const struct action *act)
{
    struct xfer_serve_slot *serve = serve_slot(xfer, act->serve.serve);
    uint32_t slot = act->serve.serve.slot;

    serve->gen = act->serve.serve.gen;
    serve->state = SERVING_STOPPING;
    for (uint32_t i = 0; i < xfer->config.data_conns_max; i++) {
        struct xfer_conn *conn = &xfer->conn[i];

        if (conn->state == CONN_FREE || conn->outbound)
            continue;
        if (conn->in.stage == SERVE_ANSWER && serve_id_equal(conn->in.serve, act->serve.serve))
            conn->in.serve_over = true;
        if (conn->state == CONN_OPEN && conn->in.stage == SERVE_WRITE &&
            serve_id_equal(conn->in.serve, act->serve.serve))
            in_write(conn);
        if (conn->send_serve == slot)
            io_cancel(xfer->config.io, &conn->send_op);
    }
    serve_quiet(xfer, slot);
}

/* ------------------------------------------------------------------ an answer */

/* False for a page that may not leave; else where it lies is known. */
static bool page_may_leave(struct xfer *xfer, struct serve_id id, const struct xfer_entry *e,
                           uint32_t *ret_record)
{
    const struct xfer_serve_slot *serve;

    if (id.slot >= xfer->config.serves)
        return false;
    serve = &xfer->serve[id.slot];
    if (serve->state != SERVING || serve->gen != id.gen)
        return false;
    return xfer->config.serve_page(xfer->config.ctx, id, e->group,
                                   (struct page_ref){e->index, e->gen}, ret_record) == TERN_OK;
}

/* Where the pool of a serve that lives begins in its tenant's regions, if those can be read. */
static bool serve_readable(const struct xfer *xfer, struct serve_id id, uint64_t *ret_offset)
{
    const struct xfer_serve_slot *serve;

    if (id.slot >= xfer->config.serves)
        return false;
    serve = &xfer->serve[id.slot];
    return serve->state == SERVING && serve->gen == id.gen &&
           verbs_exposes(xfer, serve->pool, ret_offset);
}

static uint32_t serve_pool(const struct xfer_conn *conn)
{
    return conn->xfer->serve[conn->in.serve.slot].pool;
}

/* False: it could not be read when it was sealed. */
static bool sums_known(const struct xfer_conn *conn, uint32_t group, uint32_t record)
{
    struct mem *mem = conn->xfer->config.mem;
    uint32_t n = mem_moved_sums(mem, serve_pool(conn), group);
    const uint64_t *sums = mem_sums(mem, record);

    for (uint32_t k = 0; k < n; k++)
        if (sums[k] == CHECKSUM_NONE)
            return false;
    return true;
}

/* The page's sums go behind the statuses. False: there is no room, so the request is not one of
 * ours. */
static bool answer_page(struct xfer_conn *conn, uint32_t i, uint32_t record,
                        uint64_t *ret_sums_bytes)
{
    struct mem *mem = conn->xfer->config.mem;
    const struct xfer_entry *e = &conn->in.entry[i];
    uint32_t pool = serve_pool(conn), n = mem_moved_sums(mem, pool, e->group);
    const uint64_t *sums = mem_sums(mem, record);

    if (conn->in.tx_n + n * sizeof *sums > conn->xfer->meta_bytes)
        return false;
    for (uint32_t k = 0; k < n; k++, conn->in.tx_n += 8)
        xfer_put64(conn->meta + conn->in.tx_n, sums[k]);
    *ret_sums_bytes += n * sizeof *sums;
    conn->in.pages_left += mem_moved_bytes(mem, pool, e->group);
    xfer_set_bit(conn->in.sent, i);
    return true;
}

/* Starts the answer to the request whose entries are in place; conn->meta may begin with the last
 * tail. False: the request breaks the protocol. */
static bool answer_begin(struct xfer_conn *conn)
{
    struct conn_in *in = &conn->in;
    uint32_t head_at = in->tx_n, record = 0;
    struct xfer_head head = {.type = XFER_ANSWER, .n = in->n, .seq = in->seq};
    bool by_rdma = in->kind != XFER_REQUEST, leaves = true;

    if (by_rdma) {
        head.type = XFER_ANSWER_READ;
        leaves = serve_readable(conn->xfer, in->serve, &head.a);
    }
    memset(conn->meta + head_at, 0, XFER_HEAD_BYTES + XFER_STATUS_BYTES(in->n));
    in->tx_n += XFER_HEAD_BYTES + XFER_STATUS_BYTES(in->n);
    memset(in->sent, 0, sizeof in->sent);
    in->pages_left = 0;
    in->serve_over = false;
    for (uint32_t i = 0; i < in->n; i++) {
        if (leaves && page_may_leave(conn->xfer, in->serve, &in->entry[i], &record) &&
            sums_known(conn, in->entry[i].group, record)) {
            if (!answer_page(conn, i, record, &head.b))
                return false;
            continue;
        }
        xfer_put32(conn->meta + head_at + XFER_HEAD_BYTES + 4 * i, TERN_GONE);
        conn->xfer->stats.gone_answers++;
    }
    if (by_rdma)
        in->pages_left = 0; /* they don't go over this connection */
    else
        head.a = in->pages_left;
    xfer_put_head(conn->meta + head_at, &head);
    in->cursor = (struct cursor){0};
    in->stage = by_rdma ? SERVE_TAIL : SERVE_ANSWER;
    return true;
}

/* The peer has read these pages: whose generation passed meanwhile? Nothing is kept from the
 * request to here: a page that may leave now is the one that might leave then, for generations do
 * not come back. */
static void confirm(struct xfer_conn *conn)
{
    struct conn_in *in = &conn->in;
    struct xfer_head head = {.type = XFER_CONFIRMED, .n = in->n, .seq = in->seq};
    uint64_t stale[XFER_MASK_WORDS] = {0};
    uint32_t record;

    for (uint32_t i = 0; i < in->n; i++) {
        if (page_may_leave(conn->xfer, in->serve, &in->entry[i], &record)) {
            conn->xfer->stats.pages_out++;
            conn->xfer->stats.verbs_pages_out++;
        } else {
            xfer_set_bit(stale, i);
        }
    }
    xfer_put_head(conn->meta + in->tx_n, &head);
    xfer_put_tail(conn->meta + in->tx_n + XFER_HEAD_BYTES, in->seq, stale);
    in->tx_n += XFER_HEAD_BYTES + XFER_TAIL_BYTES;
    in->stage = SERVE_TAIL;
}

static bool has_to_send(const struct conn_in *in)
{
    return in->stage == SERVE_ANSWER || in->stage == SERVE_TAIL;
}

/* Every byte is with the kernel: whose generation passed meanwhile? The tail goes out with the next
 * answer, or alone if nobody asked for one. */
static void answer_end(struct xfer_conn *conn)
{
    struct conn_in *in = &conn->in;
    uint64_t stale[XFER_MASK_WORDS] = {0};
    uint32_t record;

    for (uint32_t i = 0; i < in->n; i++) {
        if (!xfer_bit(in->sent, i))
            continue;
        if (in->serve_over || !page_may_leave(conn->xfer, in->serve, &in->entry[i], &record))
            xfer_set_bit(stale, i);
        else
            conn->xfer->stats.pages_out++;
    }
    xfer_put_tail(conn->meta, in->seq, stale);
    in->tx_n = XFER_TAIL_BYTES;
    in->tx_at = 0;
    in->stage = SERVE_TAIL;
}

/* ------------------------------------------------------------------ sending */

struct gather {
    struct iovec *iov;
    uint32_t n;
    uint64_t bytes;
};

static uint64_t gather_add(struct gather *g, void *at, uint64_t n)
{
    uint64_t room = XFER_SEND_BYTES - g->bytes;

    n = n < room ? n : room;
    if (n == 0 || g->n == XFER_IOVS)
        return 0;
    if (g->n > 0 && (uint8_t *)g->iov[g->n - 1].iov_base + g->iov[g->n - 1].iov_len == at)
        g->iov[g->n - 1].iov_len += n;
    else
        g->iov[g->n++] = (struct iovec){at, n};
    g->bytes += n;
    return n;
}

static void gather_zeros(struct xfer_conn *conn, struct gather *g)
{
    uint64_t left = conn->in.pages_left;

    while (left > 0) {
        uint64_t n = left < XFER_SCRATCH ? left : XFER_SCRATCH;

        if (g->n == XFER_IOVS_PAGES || XFER_SEND_BYTES - g->bytes < n)
            return;
        g->iov[g->n++] = (struct iovec){conn->xfer->zeros, n};
        g->bytes += n;
        left -= n;
    }
}

static void gather_pages(struct xfer_conn *conn, struct gather *g)
{
    const struct conn_in *in = &conn->in;
    const struct mem *mem = conn->xfer->config.mem;
    uint32_t pool = serve_pool(conn), regions = mem_moved_regions(mem, pool);
    struct cursor c = in->cursor;

    for (; c.page < in->n; c.page++, c.region = 0, c.at = 0) {
        const struct xfer_entry *e = &in->entry[c.page];
        uint64_t bytes;

        if (!xfer_bit(in->sent, c.page))
            continue;
        bytes = mem_page_bytes(mem, pool, e->group);
        for (; c.region < regions; c.region++, c.at = 0) {
            uint8_t *at = mem_page(mem, pool, c.region, e->group, e->index);

            conn->send_serve = in->serve.slot;
            if (gather_add(g, at + c.at, bytes - c.at) < bytes - c.at)
                return;
        }
    }
}

static void send_post(struct xfer_conn *conn)
{
    struct conn_in *in = &conn->in;
    struct gather g = {.iov = conn->iov};

    check(!conn->sending && conn->send_serve == NONE);
    gather_add(&g, conn->meta + in->tx_at, in->tx_n - in->tx_at);
    if (in->stage == SERVE_ANSWER && in->pages_left > 0) {
        if (in->serve_over)
            gather_zeros(conn, &g);
        else
            gather_pages(conn, &g);
    }
    if (conn->send_serve != NONE)
        conn->xfer->serve[conn->send_serve].sending++;
    conn->msg.msg_iov = conn->iov;
    conn->msg.msg_iovlen = g.n;
    conn->msg.msg_flags = MSG_WAITALL;
    conn->sending = true;
    io_sendmsg(conn->xfer->config.io, &conn->send_op, conn->fd, &conn->msg);
}

/* Moves the cursor over n page bytes. A serve that is over has no cursor to move. */
static void pages_sent(struct xfer_conn *conn, uint64_t n)
{
    struct conn_in *in = &conn->in;
    const struct mem *mem = conn->xfer->config.mem;
    uint32_t pool = serve_pool(conn), regions = mem_moved_regions(mem, pool);

    in->pages_left -= n;
    conn->xfer->stats.payload_bytes_out += n;
    while (n > 0 && !in->serve_over) {
        uint64_t left;

        if (!xfer_bit(in->sent, in->cursor.page)) {
            in->cursor.page++;
            continue;
        }
        left = mem_page_bytes(mem, pool, in->entry[in->cursor.page].group) - in->cursor.at;
        if (n < left) {
            in->cursor.at += n;
            return;
        }
        n -= left;
        in->cursor.at = 0;
        if (++in->cursor.region == regions) {
            in->cursor.region = 0;
            in->cursor.page++;
        }
    }
}

static void send_what_is_there(struct xfer_conn *conn)
{
    if (conn->state == CONN_OPEN && !conn->sending && has_to_send(&conn->in))
        send_post(conn);
}

/* The next request, if a whole one has come. */
static void next_request(struct xfer_conn *conn);

static void sent_bytes(struct xfer_conn *conn, uint64_t n)
{
    struct conn_in *in = &conn->in;
    uint64_t meta = in->tx_n - in->tx_at;

    conn->xfer->stats.socket_bytes_out += n;
    meta = meta < n ? meta : n;
    in->tx_at += (uint32_t)meta;
    if (n > meta)
        pages_sent(conn, n - meta);
    if (in->tx_at < in->tx_n || (in->stage == SERVE_ANSWER && in->pages_left > 0)) {
        send_post(conn);
        return;
    }
    if (in->stage == SERVE_ANSWER) {
        answer_end(conn);
        next_request(conn);
        if (conn->state == CONN_OPEN)
            send_post(conn);
        return;
    }
    in->stage = SERVE_IDLE;
    in->tx_n = in->tx_at = 0;
    next_request(conn);
    send_what_is_there(conn);
}

static void send_done(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct xfer_conn *conn = conn_of_send(op);
    struct xfer *xfer = conn->xfer;
    uint32_t serve = conn->send_serve;

    (void)flags, (void)buffer;
    conn->sending = false;
    conn->send_serve = NONE;
    if (serve != NONE)
        xfer->serve[serve].sending--;
    if (conn->state == CONN_OPEN) {
        if (res > 0) {
            conn_progress(conn);
            sent_bytes(conn, (uint64_t)res);
        } else if (res == -EFAULT && serve != NONE) {
            conn->in.serve_over = true; /* a page has no memory behind it: the tail says GONE */
            send_post(conn);
        } else if (res == -ECANCELED) {
            send_post(conn);
        } else {
            conn_fail(conn);
        }
    }
    if (serve != NONE)
        serve_quiet(xfer, serve);
    if (conn->state == CONN_CLOSING)
        conn_reap(conn);
    else if (conn->state == CONN_OPEN && !conn->outbound)
        rx_post(conn);
}

/* ------------------------------------------------------------------ writing by RDMA */

/* The answer that was begun says that no page comes, and why. */
static void answer_none(struct xfer_conn *conn, enum tern_err err)
{
    struct conn_in *in = &conn->in;
    struct xfer_head head = {.type = XFER_ANSWER_READ, .n = in->n, .seq = in->seq};

    xfer_put_head(conn->meta, &head);
    in->tx_n = XFER_HEAD_BYTES + XFER_STATUS_BYTES(in->n);
    for (uint32_t i = 0; i < in->n; i++)
        xfer_put32(conn->meta + XFER_HEAD_BYTES + 4 * i, err);
    in->stage = SERVE_TAIL;
}

static bool serve_lives(const struct xfer_conn *conn)
{
    const struct xfer_serve_slot *serve = &conn->xfer->serve[conn->in.serve.slot];

    return serve->state == SERVING && serve->gen == conn->in.serve.gen;
}

/* False: the request breaks the protocol. */
static bool write_settle(struct xfer_conn *conn, enum verbs_written written)
{
    switch (written) {
    case WRITTEN_ALL: conn->in.stage = SERVE_TAIL; return true;
    case WRITTEN_SOME: conn->in.stage = SERVE_WRITE; return true;
    case WRITTEN_LOST: answer_none(conn, TERN_PEER_LOST); return true;
    case WRITTEN_NOT: break;
    }
    return false;
}

/* All pages of the request or none. False: it breaks the protocol. */
static bool write_begin(struct xfer_conn *conn)
{
    struct conn_in *in = &conn->in;

    if (in->tx_n > 0 || !answer_begin(conn))
        return false; /* the answer to something else is not out: nobody asks so */
    for (uint32_t i = 0; i < in->n; i++) {
        if (xfer_bit(in->sent, i))
            continue;
        answer_none(conn, TERN_GONE);
        return true;
    }
    return write_settle(conn, verbs_write_begin(conn));
}

/* GONE says that nothing comes any more: the destination closes its windows on hearing it. */
void in_write(struct xfer_conn *conn)
{
    check(conn->in.stage == SERVE_WRITE);
    if (!serve_lives(conn) && verbs_writing(conn))
        return;
    conn->in.stage = SERVE_IDLE; /* a path that fails while this posts does not call again */
    if (!serve_lives(conn))
        answer_none(conn, TERN_GONE);
    else if (!write_settle(conn, verbs_write(conn)))
        conn_fail(conn);
    send_what_is_there(conn);
}

/* ------------------------------------------------------------------ requests */

static bool is_request(uint16_t type)
{
    return type == XFER_REQUEST || type == XFER_REQUEST_READ || type == XFER_REQUEST_WRITE ||
           type == XFER_CONFIRM;
}

static uint32_t runs_of(const struct xfer_head *head)
{
    return (uint32_t)head->b;
}

/* Bytes of the frame at the front of rx; 0: not all of it is there. *ret_bad: it is none of ours.
 */
static uint32_t frame_bytes(const struct conn_in *in, struct xfer_head *ret, bool *ret_bad)
{
    uint32_t need;

    *ret_bad = false;
    if (in->rx_n < XFER_HEAD_BYTES)
        return 0;
    if (!xfer_get_head(in->rx + in->rx_at, ret) ||
        (in->stage == SERVE_HELLO ? ret->type != XFER_HELLO : !is_request(ret->type)) ||
        (ret->type == XFER_HELLO ? ret->n != 0 : ret->n == 0 || ret->n > XFER_PAGES_MAX) ||
        (ret->type == XFER_REQUEST_WRITE && runs_of(ret) > XFER_RUNS_MAX)) {
        *ret_bad = true;
        return 0;
    }
    need = XFER_HEAD_BYTES + ret->n * XFER_ENTRY_BYTES;
    if (ret->type == XFER_REQUEST_WRITE)
        need += runs_of(ret) * XFER_RUN_BYTES;
    return in->rx_n >= need ? need : 0;
}

/* Nothing moves here: a receive may be in flight behind these bytes. rx_post closes the gap. */
static void rx_consume(struct conn_in *in, uint32_t n)
{
    in->rx_at += n;
    in->rx_n -= n;
    in->frame_ns = io_now_ns();
}

/* Who is it? False: nobody that may be here; HELLO was meant for a daemon that was here before, or
 * its token is of no link that is up. */
static bool hello(struct xfer_conn *conn, const struct xfer_head *head)
{
    struct xfer *xfer = conn->xfer;

    for (uint32_t i = 0; head->b && i < xfer->config.links; i++)
        if (xfer->link[i].admitted == head->b)
            conn->in.link = i;
    if (head->a == xfer->config.incarnation && conn->in.link != NONE)
        return true;
    xfer->stats.refused++;
    return false;
}

static bool may_ask(struct xfer_conn *conn)
{
    const struct xfer_config *config = &conn->xfer->config;

    if (!config->serve_allowed || config->serve_allowed(config->ctx, conn->in.serve, conn->in.link))
        return true;
    conn->xfer->stats.refused++;
    return false;
}

static void take_request(struct conn_in *in, const struct xfer_head *head)
{
    const uint8_t *at = in->rx + in->rx_at + XFER_HEAD_BYTES;

    in->kind = head->type;
    in->n = head->n;
    in->seq = head->seq;
    in->serve = serve_id_unpack(head->a);
    for (uint32_t i = 0; i < head->n; i++, at += XFER_ENTRY_BYTES)
        xfer_get_entry(at, &in->entry[i]);
    if (head->type != XFER_REQUEST_WRITE)
        return;
    in->nruns = runs_of(head);
    in->epoch = (uint32_t)(head->b >> 32);
    for (uint32_t i = 0; i < in->nruns; i++, at += XFER_RUN_BYTES)
        xfer_get_run(at, &in->runs[i]);
}

static void next_request(struct xfer_conn *conn)
{
    struct conn_in *in = &conn->in;
    struct xfer_head head;
    uint32_t bytes;
    bool bad;

    if (in->stage == SERVE_WRITE)
        return; /* comes again when that was answered */
    bytes = frame_bytes(in, &head, &bad);
    if (!bad && bytes > 0 && in->stage == SERVE_HELLO) {
        bad = !hello(conn, &head);
        in->stage = SERVE_IDLE;
        rx_consume(in, bytes);
        if (!bad)
            bytes = frame_bytes(in, &head, &bad);
    }
    if (bad) {
        conn_fail(conn);
        return;
    }
    if (bytes == 0)
        return;
    take_request(in, &head);
    rx_consume(in, bytes);
    conn_progress(conn); /* our time to answer starts now */
    if (!may_ask(conn))
        conn_fail(conn);
    else if (head.type == XFER_CONFIRM)
        confirm(conn);
    else if (!(head.type == XFER_REQUEST_WRITE ? write_begin : answer_begin)(conn))
        conn_fail(conn);
}

static void rx_post(struct xfer_conn *conn)
{
    struct conn_in *in = &conn->in;

    if (conn->receiving || in->rx_n == XFER_RX_BYTES)
        return; /* in the latter case the peer waits: it asked for more than we read ahead */
    memmove(in->rx, in->rx + in->rx_at, in->rx_n);
    in->rx_at = 0;
    conn->receiving = true;
    io_recv(conn->xfer->config.io, &conn->recv_op, conn->fd, in->rx + in->rx_n,
            XFER_RX_BYTES - in->rx_n, false);
}

static void rx_done(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct xfer_conn *conn = conn_of_recv(op);
    struct conn_in *in = &conn->in;

    (void)flags, (void)buffer;
    conn->receiving = false;
    if (conn->state == CONN_OPEN && res <= 0) {
        conn_fail(conn);
    } else if (conn->state == CONN_OPEN) {
        if (in->rx_n == 0)
            in->frame_ns = io_now_ns();
        in->rx_n += (uint32_t)res;
        conn->xfer->stats.socket_bytes_in += (uint64_t)res;
        if (!conn->sending) {
            next_request(conn);
            send_what_is_there(conn);
        }
    }
    if (conn->state == CONN_OPEN)
        rx_post(conn);
    else
        conn_reap(conn);
}

/* ------------------------------------------------------------------ life of a connection */

void in_start(struct xfer_conn *conn)
{
    memset(&conn->in, 0, offsetof(struct conn_in, rx));
    conn->in.link = NONE;
    conn->in.frame_ns = io_now_ns();
    conn->recv_op.done = rx_done;
    conn->send_op.done = send_done;
    rx_post(conn);
}

/* Busy: it has to send, or owes us the rest of a frame. For the latter the time runs from the
 * frame's first byte, so that one byte now and then does not hold a slot. */
bool in_busy(const struct xfer_conn *conn, uint64_t now_ns)
{
    const struct conn_in *in = &conn->in;

    if (conn->sending)
        return true;
    if (in->stage != SERVE_HELLO && in->rx_n == 0)
        return false;
    return now_ns > in->frame_ns && now_ns - in->frame_ns > conn->xfer->config.idle_ns;
}

/* ------------------------------------------------------------------ who may ask */

void xfer_admit(struct xfer *xfer, uint32_t number, uint64_t token)
{
    check(number < xfer->config.links && token != 0);
    xfer_dismiss(xfer, number);
    xfer->link[number].admitted = token;
}

void xfer_dismiss(struct xfer *xfer, uint32_t number)
{
    check(number < xfer->config.links);
    if (!xfer->link[number].admitted)
        return;
    xfer->link[number].admitted = 0;
    for (uint32_t i = 0; i < xfer->config.data_conns_max; i++) {
        struct xfer_conn *conn = &xfer->conn[i];

        if (conn->state == CONN_OPEN && !conn->outbound && conn->in.link == number)
            conn_fail(conn);
    }
}
