/* Data connections: slots, sending, receiving and closing. A connection that ends is shut down at
 * once. The slot is free only when neither of its operations is in flight, because until then the
 * kernel may still read or write the pages that they name. See data_conn.h. */
#include "seam/xfer/conn/data_conn.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/container.h"
#include "seam/mem/mem_pack.h"

/* ------------------------------------------------------------------ slots */

void data_conn_options(const struct xfer *xfer, int fd)
{
    int one = 1, bytes = xfer->conns->socket_bytes;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (bytes > 0) {
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    }
}

void data_conn_progress(struct data_conn *conn)
{
    atomic_store_explicit(&conn->progress_ns, io_now_ns(), memory_order_relaxed);
}

/* Returns the lane of its tasks: both tasks of a connection use the same thread, and those of the
 * next connection use the next thread. */
static uint32_t lane_of(const struct data_conn *conn)
{
    return (uint32_t)(conn - conn->xfer->conns->conn);
}

static void cancel_receive(struct data_conn *conn)
{
    io_cancel(conn->xfer->config.io, &conn->recv_op);
    io_threads_cancel(&conn->recv_task);
}

void data_conn_cancel_send(struct data_conn *conn)
{
    io_cancel(conn->xfer->config.io, &conn->send_op);
    io_threads_cancel(&conn->send_task);
}

struct data_conn *data_conn_take(struct xfer *xfer, struct transport *t, int fd)
{
    struct data_conns *conns = xfer->conns;

    if (conns->ending || (t ? xfer->stats.conns - conns->inbound == conns->outbound_max
                            : conns->inbound == conns->inbound_max))
        return NULL;
    for (uint32_t i = 0; i < xfer->config.data_conns_max; i++) {
        struct data_conn *conn = &conns->conn[i];

        if (conn->state != DATA_CONN_FREE)
            continue;
        conns->end = i < conns->end ? conns->end : i + 1;
        data_conn_state_move(&conn->state, t ? DATA_CONN_CONNECTING : DATA_CONN_OPEN);
        conn->transport = t;
        conn->caller = NULL;
        conn->peer_link = NONE;
        conn->path = NONE;
        conn->extra = false;
        conn->fd = fd;
        conn->receiving = conn->sending = false;
        conn->recv_pull = conn->send_serve = NONE;
        conn->awaited = 1;
        conn->out_n = conn->out_at = 0;
        memset(conn->own, 0, conns->own_bytes);
        conn->request = t ? NULL : conn->own;
        data_conn_progress(conn);
        xfer->stats.conns++;
        conns->inbound += t ? 0 : 1;
        return conn;
    }
    return NULL;
}

bool data_conn_admitted(struct data_conn *conn, uint32_t number)
{
    struct xfer *xfer = conn->xfer;
    struct data_conns *conns = xfer->conns;
    struct xfer_link *link = &xfer->link[number];

    if (link->conns >= conns->inbound_min) {
        if (conns->inbound_common + xfer->config.peers * conns->inbound_min >= conns->inbound_max)
            return false;
        conns->inbound_common++;
    }
    link->conns++;
    conn->peer_link = number;
    return true;
}

/* number NONE: the connection had sent no token. */
static void share_give(struct xfer *xfer, uint32_t number)
{
    if (number == NONE)
        return;
    if (xfer->link[number].conns-- > xfer->conns->inbound_min)
        xfer->conns->inbound_common--;
}

void data_path_pause(struct data_path *path)
{
    uint64_t ms = XFER_REDIAL_MS_MIN;

    check(path->conn == NONE);
    for (uint32_t i = 0; i < path->failures && ms < XFER_REDIAL_MS_MAX; i++)
        ms *= 2;
    path->failures++;
    path->dial_ns = io_now_ns() + (ms < XFER_REDIAL_MS_MAX ? ms : XFER_REDIAL_MS_MAX) * NS_PER_MS;
}

static void path_left(struct data_conn *conn, bool failed)
{
    struct data_path *path = data_path_of(conn);

    path->conn = NONE;
    data_path_state_move(&path->state, failed ? DATA_PATH_RETIRED : DATA_PATH_NONE);
    if (!failed)
        return;
    conn->xfer->stats.conns_retired++;
    data_path_pause(path);
}

void data_conn_end(struct data_conn *conn, bool failed)
{
    if (conn->state == DATA_CONN_CLOSING || conn->state == DATA_CONN_FREE)
        return;
    data_conn_state_move(&conn->state, DATA_CONN_CLOSING);
    shutdown(conn->fd, SHUT_RDWR);
    if (conn->receiving)
        cancel_receive(conn);
    if (conn->sending)
        data_conn_cancel_send(conn);
    if (conn->caller) {
        path_left(conn, failed);
        conn->caller->lost(conn);
    }
    data_conn_reap(conn);
}

/* The last task of an ended connection has returned: its open requests move to another path. */
static void go_on(struct transport *t, uint32_t peer_link)
{
    if (t && t->xfer->link[peer_link].up && !t->xfer->conns->ending)
        t->ops->pump(t, peer_link);
}

void data_conn_reap(struct data_conn *conn)
{
    struct xfer *xfer = conn->xfer;
    struct transport *transport = conn->transport; /* another link may take the slot below */
    uint32_t peer_link = conn->peer_link;
    bool ended = conn->caller && conn->caller->ended;

    if (conn->state != DATA_CONN_CLOSING || conn->receiving || conn->sending)
        return;
    check(conn->recv_pull == NONE && conn->send_serve == NONE);
    if (ended)
        conn->caller->ended(conn);
    close(conn->fd);
    conn->fd = -1;
    data_conn_state_move(&conn->state, DATA_CONN_FREE);
    while (xfer->conns->end > 0 && xfer->conns->conn[xfer->conns->end - 1].state == DATA_CONN_FREE)
        xfer->conns->end--;
    xfer->stats.conns--;
    xfer->conns->inbound -= conn->transport ? 0 : 1;
    xfer->conns->extra -= conn->extra ? 1 : 0;
    if (!conn->transport)
        share_give(xfer, conn->peer_link);
    for (uint32_t k = xfer->ntransports; k > 0; k--)
        for (uint32_t i = 0; i < xfer->config.links && xfer->lanes_waiting > 0; i++)
            if (xfer->link[i].lane[k - 1].waiting_ns != 0)
                xfer->transport[k - 1].ops->pump(&xfer->transport[k - 1], i);
    if (!xfer->conns->ending)
        door_again(xfer->conns->door);
    if (ended)
        go_on(transport, peer_link);
}

/* Returns a connection with no open request and an empty queue, whose slot may be reused. */
static struct data_conn *idle_of(const struct transport *t, uint32_t peer_link)
{
    if (transport_lane(t, peer_link)->queue.head != NONE)
        return NULL;
    for (uint32_t i = t->xfer->config.connections; i > 0; i--) {
        struct data_conn *conn = data_path_conn(t, peer_link, i - 1);

        if (conn && !conn->sending && conn->caller->idle(conn))
            return conn;
    }
    return NULL;
}

bool data_conns_evict(struct xfer *xfer)
{
    for (uint32_t i = 0; i < xfer->config.links; i++)
        for (uint32_t k = xfer->ntransports; k > 0; k--) {
            struct data_conn *conn = idle_of(&xfer->transport[k - 1], i);

            if (!conn)
                continue;
            data_conn_end(conn, false);
            return true;
        }
    return false;
}

/* ------------------------------------------------------------------ pages, in pieces */

/* Cuts the next piece into stretches, of which the last is shortened to fit. Returns the bytes of
 * the piece. */
static uint64_t walk_piece(struct data_conn *conn, struct io_task *task, uint64_t bytes_max)
{
    struct data_walk *w = &conn->walk;
    uint32_t i = w->at;
    uint64_t bytes = 0;

    if (w->packed && bytes_max > DATA_PACKED_BYTES)
        bytes_max = DATA_PACKED_BYTES;
    w->cut = NONE;
    while (i < w->n && bytes < bytes_max) {
        struct iovec *part = &conn->iov[i++];
        uint64_t room = bytes_max - bytes;

        if (part->iov_len > room) {
            w->cut = i - 1;
            w->length = part->iov_len;
            part->iov_len = room;
        }
        bytes += part->iov_len;
    }
    w->whole = (struct iovec){conn->packed, bytes};
    task->msg.msg_iov = w->packed ? &w->whole : conn->iov + w->at;
    task->msg.msg_iovlen = w->packed ? 1 : i - w->at;
    return bytes;
}

static struct data_walk walk_begin(const struct data_conn *conn, uint32_t n, uint64_t bytes)
{
    return (struct data_walk){.n = n,
                              .left = bytes,
                              .packed = (n > 1 && bytes / n < DATA_PACKED_STRETCH) ||
                                        mem_pack_needed(conn->xfer->config.mem, conn->iov, n)};
}

/* n bytes of the piece have moved. */
static void walk_over(struct data_conn *conn, uint64_t n)
{
    struct data_walk *w = &conn->walk;

    if (w->cut != NONE)
        conn->iov[w->cut].iov_len = w->length;
    w->left -= n;
    w->moved += n;
    while (n > 0) {
        struct iovec *part = &conn->iov[w->at];
        uint64_t step = part->iov_len < n ? part->iov_len : n;

        part->iov_base = (uint8_t *)part->iov_base + step;
        part->iov_len -= step;
        n -= step;
        if (part->iov_len == 0)
            w->at++;
    }
}

/* ------------------------------------------------------------------ sending */

bool data_conn_sent(struct data_conn *conn, bool well)
{
    conn->sending = false;
    if (conn->state == DATA_CONN_CLOSING) {
        data_conn_reap(conn);
        return false;
    }
    if (!well) {
        data_conn_end(conn, true);
        return false;
    }
    data_conn_progress(conn);
    return true;
}

static void buffer_sent(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct data_conn *conn = container_of(op, struct data_conn, send_op);

    (void)flags, (void)buffer;
    if (!data_conn_sent(conn, res > 0))
        return;
    conn->xfer->stats.socket_bytes_out += (uint64_t)res;
    conn->out_at += (uint32_t)res;
    if (conn->out_at < conn->out_n)
        data_conn_send_buffer(conn);
    else
        conn->transport->ops->pump(conn->transport, conn->peer_link);
}

void data_conn_send_buffer(struct data_conn *conn)
{
    conn->sending = true;
    conn->send_op.done = buffer_sent;
    io_send(conn->xfer->config.io, &conn->send_op, conn->fd, conn->buffer + conn->out_at,
            conn->out_n - conn->out_at, true);
}

static bool pages_packed(struct io_task *task)
{
    struct data_conn *conn = container_of(task, struct data_conn, send_task);

    return !conn->walk.packed || mem_pack(conn->xfer->config.mem, conn->packed,
                                          conn->iov + conn->walk.at, conn->walk.whole.iov_len);
}

static bool pages_gone(struct io_task *task, int32_t res)
{
    struct data_conn *conn = container_of(task, struct data_conn, send_task);

    data_conn_progress(conn);
    walk_over(conn, (uint64_t)res);
    if (conn->walk.left == 0)
        return false;
    walk_piece(conn, task, DATA_SEND_PIECE);
    return true;
}

void data_conn_send_pages(struct data_conn *conn, uint32_t n, uint64_t bytes,
                          void (*done)(struct io_task *task, int32_t res))
{
    conn->walk = walk_begin(conn, n, bytes);
    conn->send_task.ready = pages_packed;
    conn->send_task.work = pages_gone;
    conn->send_task.done = done;
    conn->send_task.msg.msg_flags = MSG_WAITALL;
    walk_piece(conn, &conn->send_task, DATA_SEND_PIECE);
    io_threads_submit(conn->xfer->threads, &conn->send_task, IO_TASK_SEND, lane_of(conn), conn->fd);
}

/* ------------------------------------------------------------------ receiving */

/* n bytes have arrived, and the last operation ended with res. */
static void receive_ended(struct data_conn *conn, uint64_t n, int32_t res)
{
    struct xfer *xfer = conn->xfer;
    uint32_t pull = conn->recv_pull;
    bool lost = res == -EFAULT && pull != NONE; /* a page has no memory behind it */

    conn->receiving = false;
    conn->recv_pull = NONE;
    if (conn->state == DATA_CONN_OPEN) {
        bool well = res > 0 || res == -ECANCELED || lost;

        if (n > 0) {
            data_conn_progress(conn);
            well = conn->caller->received(conn, n) && well;
        }
        if (lost)
            pull_break(xfer, pull, TERN_CORRUPT);
        if (!well)
            data_conn_end(conn, true);
    }
    if (pull != NONE)
        pull_release(xfer, pull);
    if (conn->state != DATA_CONN_OPEN) {
        data_conn_reap(conn);
        return;
    }
    conn->caller->receive(conn);
    conn->transport->ops->pump(conn->transport, conn->peer_link); /* it may request more now */
}

static void received(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct data_conn *conn = container_of(op, struct data_conn, recv_op);
    uint64_t n = res > 0 ? (uint64_t)res : 0;

    (void)flags, (void)buffer;
    conn->xfer->stats.socket_bytes_in += n;
    receive_ended(conn, n, res);
}

/* Fewer than n bytes wake no receive: a wake-up costs the source's core more than a segment. Safe
 * on any thread. If the tick lowers the value while a data thread sets it, the next tick repeats
 * that. */
void data_conn_await(struct data_conn *conn, uint64_t n)
{
    int bytes = (int)n;

    if (atomic_exchange_explicit(&conn->awaited, bytes, memory_order_relaxed) == bytes)
        return;
    setsockopt(conn->fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
}

void data_conn_receive(struct data_conn *conn, void *at, uint32_t n, bool all)
{
    conn->receiving = true;
    conn->recv_op.done = received;
    data_conn_await(conn, all ? n : 1);
    io_recv(conn->xfer->config.io, &conn->recv_op, conn->fd, at, n, false);
}

static bool pages_landed(struct io_task *task, int32_t res)
{
    struct data_conn *conn = container_of(task, struct data_conn, recv_task);

    data_conn_progress(conn);
    if (conn->walk.packed) /* if a page is gone, its checksum will not match */
        (void)mem_unpack(conn->xfer->config.mem, conn->iov + conn->walk.at, conn->packed,
                         (uint64_t)res);
    walk_over(conn, (uint64_t)res);
    conn->caller->landed(conn, (uint64_t)res);
    atomic_fetch_add_explicit(&conn->xfer->landed_bytes, (uint64_t)res, memory_order_relaxed);
    if (conn->walk.left == 0)
        return false;
    data_conn_await(conn, walk_piece(conn, task, DATA_RECV_BYTES));
    return true;
}

static void pages_received(struct io_task *task, int32_t res)
{
    struct data_conn *conn = container_of(task, struct data_conn, recv_task);

    receive_ended(conn, conn->walk.moved, res);
}

void data_conn_receive_pages(struct data_conn *conn, uint32_t n, uint64_t bytes)
{
    if (conn->recv_pull != NONE)
        pull_hold(conn->xfer, conn->recv_pull);
    conn->walk = walk_begin(conn, n, bytes);
    conn->receiving = true;
    conn->recv_task.work = pages_landed;
    conn->recv_task.done = pages_received;
    conn->recv_task.msg.msg_flags = 0;
    data_conn_await(conn, walk_piece(conn, &conn->recv_task, DATA_RECV_BYTES));
    io_threads_submit(conn->xfer->threads, &conn->recv_task, IO_TASK_RECEIVE, lane_of(conn),
                      conn->fd);
}

void data_conn_stop_writing(struct xfer *xfer, uint32_t pull)
{
    for (uint32_t i = 0; i < xfer->conns->end; i++) {
        struct data_conn *conn = &xfer->conns->conn[i];

        if (conn->state == DATA_CONN_OPEN && conn->recv_pull == pull)
            cancel_receive(conn);
    }
}

/* ------------------------------------------------------------------ all of them */

bool data_conns_write(const struct transport *t, uint32_t pull)
{
    const struct xfer *xfer = t->xfer;

    for (uint32_t i = 0; i < xfer->conns->end; i++)
        if (xfer->conns->conn[i].state != DATA_CONN_FREE && xfer->conns->conn[i].recv_pull == pull)
            return true;
    return false;
}

bool data_conns_read(const struct transport *t, uint32_t serve)
{
    const struct xfer *xfer = t->xfer;

    for (uint32_t i = 0; i < xfer->conns->end; i++)
        if (xfer->conns->conn[i].state != DATA_CONN_FREE &&
            xfer->conns->conn[i].send_serve == serve)
            return true;
    return false;
}
