/* Data connections: slots, calling, sending, receiving and the end. A connection that ends is shut
 * down at once, and its slot is free only when neither of its operations is in flight, because
 * until then the kernel may still read or write the pages that they name. See data_conn.h. */
#include "seam/xfer/data_conn.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/container.h"
#include "base/undumped.h"
#include "seam/io/tcp_listen.h"
#include "seam/mem/mem_pack.h"
#include "seam/mem/numa.h"

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

/* Of its tasks: both of a connection go to one thread, those of the next one to the next. */
static uint32_t lane_of(const struct data_conn *conn)
{
    return (uint32_t)(conn - conn->xfer->conns->conn);
}

static void cancel_receive(struct data_conn *conn)
{
    io_cancel(conn->xfer->config.io, &conn->recv_op);
    io_threads_cancel(conn->xfer->threads, &conn->recv_task);
}

void data_conn_cancel_send(struct data_conn *conn)
{
    io_cancel(conn->xfer->config.io, &conn->send_op);
    io_threads_cancel(conn->xfer->threads, &conn->send_task);
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
        conn->recv_inflow = conn->send_outflow = NONE;
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

static void end(struct data_conn *conn, bool failed)
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
        data_path_left(conn, failed);
        conn->caller->lost(conn);
    }
    data_conn_reap(conn);
}

void data_conn_fail(struct data_conn *conn)
{
    end(conn, true);
}

void data_conn_end(struct data_conn *conn)
{
    end(conn, false);
}

/* What was asked for on it, and came back with its last task, goes to another path. */
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
    check(conn->recv_inflow == NONE && conn->send_outflow == NONE);
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
        xfer_link_conn_end(xfer, conn->peer_link);
    for (uint32_t k = xfer->ntransports; k > 0; k--)
        for (uint32_t i = 0; i < xfer->config.links && xfer->lanes_waiting > 0; i++)
            if (xfer->link[i].lane[k - 1].waiting_ns != 0)
                xfer->transport[k - 1].ops->pump(&xfer->transport[k - 1], i);
    if (!xfer->conns->ending)
        door_again(xfer->conns->door);
    if (ended)
        go_on(transport, peer_link);
}

/* Nothing asked for, nothing queued: its slot may go to a link that needs one. */
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
            data_conn_end(conn);
            return true;
        }
    return false;
}

/* ------------------------------------------------------------------ pages, in pieces */

/* The next piece: stretches, and of the last one what there is room for. Returns its bytes. */
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

/* What was in flight on send_op has ended, well or not. False: so has the connection. */
static bool send_ended(struct data_conn *conn, bool well)
{
    conn->sending = false;
    if (conn->state == DATA_CONN_CLOSING) {
        data_conn_reap(conn);
        return false;
    }
    if (!well) {
        data_conn_fail(conn);
        return false;
    }
    data_conn_progress(conn);
    return true;
}

static void buffer_sent(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct data_conn *conn = container_of(op, struct data_conn, send_op);

    (void)flags, (void)buffer;
    if (!send_ended(conn, res > 0))
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
    io_threads_send(conn->xfer->threads, &conn->send_task, lane_of(conn), conn->fd);
}

/* ------------------------------------------------------------------ receiving */

/* n bytes have come, and the last operation ended with res. */
static void receive_ended(struct data_conn *conn, uint64_t n, int32_t res)
{
    struct xfer *xfer = conn->xfer;
    uint32_t inflow = conn->recv_inflow;
    bool lost = res == -EFAULT && inflow != NONE; /* a page has no memory behind it */

    conn->receiving = false;
    conn->recv_inflow = NONE;
    if (conn->state == DATA_CONN_OPEN) {
        bool well = res > 0 || res == -ECANCELED || lost;

        if (n > 0) {
            data_conn_progress(conn);
            well = conn->caller->received(conn, n) && well;
        }
        if (lost)
            inflow_break(xfer, inflow, TERN_CORRUPT);
        if (!well)
            data_conn_fail(conn);
    }
    if (inflow != NONE)
        inflow_release(xfer, inflow);
    if (conn->state != DATA_CONN_OPEN) {
        data_conn_reap(conn);
        return;
    }
    conn->caller->receive(conn);
    conn->transport->ops->pump(conn->transport, conn->peer_link); /* it has room to ask for more */
}

static void received(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct data_conn *conn = container_of(op, struct data_conn, recv_op);
    uint64_t n = res > 0 ? (uint64_t)res : 0;

    (void)flags, (void)buffer;
    conn->xfer->stats.socket_bytes_in += n;
    receive_ended(conn, n, res);
}

/* Fewer than n bytes wake nobody: a wake-up costs the source's core more than a segment does. Any
 * thread. The tick may lower it while a data thread sets it; then it lowers it again. */
static void await(struct data_conn *conn, uint64_t n)
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
    await(conn, all ? n : 1);
    io_recv(conn->xfer->config.io, &conn->recv_op, conn->fd, at, n, false);
}

static bool pages_landed(struct io_task *task, int32_t res)
{
    struct data_conn *conn = container_of(task, struct data_conn, recv_task);

    data_conn_progress(conn);
    if (conn->walk.packed) /* what a page that is gone did not take it does not agree with */
        (void)mem_unpack(conn->xfer->config.mem, conn->iov + conn->walk.at, conn->packed,
                         (uint64_t)res);
    walk_over(conn, (uint64_t)res);
    conn->caller->landed(conn, (uint64_t)res);
    atomic_fetch_add_explicit(&conn->xfer->landed_bytes, (uint64_t)res, memory_order_relaxed);
    if (conn->walk.left == 0)
        return false;
    await(conn, walk_piece(conn, task, DATA_RECV_BYTES));
    return true;
}

static void pages_received(struct io_task *task, int32_t res)
{
    struct data_conn *conn = container_of(task, struct data_conn, recv_task);

    receive_ended(conn, conn->walk.moved, res);
}

void data_conn_receive_pages(struct data_conn *conn, uint32_t n, uint64_t bytes)
{
    if (conn->recv_inflow != NONE)
        inflow_hold(conn->xfer, conn->recv_inflow);
    conn->walk = walk_begin(conn, n, bytes);
    conn->receiving = true;
    conn->recv_task.work = pages_landed;
    conn->recv_task.done = pages_received;
    conn->recv_task.msg.msg_flags = 0;
    await(conn, walk_piece(conn, &conn->recv_task, DATA_RECV_BYTES));
    io_threads_receive(conn->xfer->threads, &conn->recv_task, lane_of(conn), conn->fd);
}

void data_conn_stop_writing(struct xfer *xfer, uint32_t inflow)
{
    for (uint32_t i = 0; i < xfer->conns->end; i++) {
        struct data_conn *conn = &xfer->conns->conn[i];

        if (conn->state == DATA_CONN_OPEN && conn->recv_inflow == inflow)
            cancel_receive(conn);
    }
}

/* ------------------------------------------------------------------ calling */

/* How the call to the link's data port ended. The control port may well be open while this one is
 * not, so an operator has to hear of it; not where another connection shows that it is open. */
static void call_ended(const struct data_conn *conn, int error)
{
    const struct xfer_config *c = &conn->xfer->config;
    struct xfer_link *link = &conn->xfer->link[conn->peer_link];
    uint16_t port = tcp_port(&link->addr);

    if (link->call_errno == error || (error && conn->extra))
        return;
    link->call_errno = error;
    snprintf(link->call_text, sizeof link->call_text, "its data port %u cannot be reached: %s",
             port, strerror(error));
    if (c->data_dialled)
        c->data_dialled(c->ctx, conn->peer_link, port, error);
}

static void connected(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct data_conn *conn = container_of(op, struct data_conn, send_op);
    const struct xfer_link *link = &conn->xfer->link[conn->peer_link];

    (void)flags, (void)buffer;
    if (conn->state == DATA_CONN_CONNECTING)
        call_ended(conn, res < 0 ? -res : 0);
    if (!send_ended(conn, res >= 0))
        return;
    data_conn_state_move(&conn->state, DATA_CONN_OPEN);
    data_path_up(conn);
    xfer_put_head(
        conn->buffer,
        &(struct xfer_head){.type = XFER_HELLO, .a = link->peer_incarnation, .b = link->token});
    conn->out_n = XFER_HEAD_BYTES;
    if (conn->caller->opened)
        conn->caller->opened(conn);
    data_conn_send_buffer(conn);
    conn->caller->receive(conn);
}

/* No descriptor, or no slot. */
static void not_called(struct transport *t, uint32_t number, uint32_t path, bool slot)
{
    struct xfer *xfer = t->xfer;
    struct lane *lane = transport_lane(t, number);

    if (data_paths_alive(t, number)) {
        data_path_put_off(&lane->path[path]);
    } else if (slot) {
        if (lane->waiting_ns == 0)
            lane_wait(xfer, lane, io_now_ns());
        data_conns_evict(xfer);
    } else {
        queue_break(xfer, &lane->queue, TERN_BUSY); /* what has descriptors may let go */
    }
}

void data_conn_call(struct transport *t, uint32_t number, uint32_t path,
                    const struct data_caller *caller)
{
    struct xfer *xfer = t->xfer;
    struct xfer_link *link = &xfer->link[number];
    int fd = socket(link->addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct data_conn *conn;

    if (fd < 0) {
        not_called(t, number, path, false);
        return;
    }
    data_conn_options(xfer, fd);
    conn = data_conn_take(xfer, t, fd);
    if (!conn) {
        close(fd);
        not_called(t, number, path, true);
        return;
    }
    lane_wait(xfer, transport_lane(t, number), 0);
    conn->caller = caller;
    conn->peer_link = number;
    conn->path = path;
    data_path_taken(t, conn);
    conn->send_op.done = connected;
    conn->sending = true;
    io_connect(xfer->config.io, &conn->send_op, fd, (struct sockaddr *)&link->addr, link->addr_len);
}

/* ------------------------------------------------------------------ all of them */

bool data_conns_write(const struct xfer *xfer, uint32_t inflow)
{
    for (uint32_t i = 0; i < xfer->conns->end; i++)
        if (xfer->conns->conn[i].state != DATA_CONN_FREE &&
            xfer->conns->conn[i].recv_inflow == inflow)
            return true;
    return false;
}

bool data_conns_read(const struct xfer *xfer, uint32_t outflow)
{
    for (uint32_t i = 0; i < xfer->conns->end; i++)
        if (xfer->conns->conn[i].state != DATA_CONN_FREE &&
            xfer->conns->conn[i].send_outflow == outflow)
            return true;
    return false;
}

void data_conns_tick(struct xfer *xfer, uint64_t now_ns)
{
    for (uint32_t i = 0; i < xfer->conns->end; i++) {
        struct data_conn *conn = &xfer->conns->conn[i];
        uint64_t progress_ns = atomic_load_explicit(&conn->progress_ns, memory_order_relaxed);
        uint64_t still_ns = now_ns > progress_ns ? now_ns - progress_ns : 0;
        bool busy;

        if (conn->state != DATA_CONN_OPEN && conn->state != DATA_CONN_CONNECTING)
            continue;
        busy = conn->sending ||
               (conn->caller ? conn->caller->busy(conn) : data_source_busy(conn, now_ns));
        if (busy && still_ns > xfer->config.idle_ns) {
            if (conn->state == DATA_CONN_CONNECTING)
                call_ended(conn, ETIMEDOUT);
            data_conn_fail(conn);
        } else if (busy && conn->receiving && still_ns > xfer->config.idle_ns / 2)
            await(conn, 1); /* a slow peer is not a silent one: takes what there is */
    }
}

static size_t meta_bytes(uint32_t sums_per_page)
{
    uint32_t sums = sums_per_page > XFER_PIECE_SUMS ? sums_per_page : XFER_PIECE_SUMS;

    return XFER_TAIL_BYTES + XFER_ANSWER_HEAD_BYTES + (size_t)sums * sizeof(uint64_t) +
           XFER_REGION_BYTES(RANKS_MAX);
}

static uint32_t own_bytes(const struct transport_ops *const *transports)
{
    uint32_t bytes = sizeof(struct data_request);

    for (; *transports; transports++)
        if ((*transports)->conn_bytes > bytes)
            bytes = (*transports)->conn_bytes;
    return bytes;
}

uint64_t data_conns_bytes(const struct xfer_config *c, uint32_t sums_per_page,
                          const struct transport_ops *const *transports)
{
    uint64_t conn = sizeof(struct data_conn) + DATA_IOVS * sizeof(struct iovec) +
                    undumped_bytes(meta_bytes(sums_per_page)) + DATA_PACKED_BYTES +
                    DATA_BUFFER_BYTES + undumped_bytes(own_bytes(transports));

    return sizeof(struct data_conns) + c->data_conns_max * conn + door_bytes(c->strangers);
}

static bool system_allows(const char *path)
{
    uint64_t most;

    return file_number(path, "", 10, &most) && most >= DATA_SOCKET_BYTES;
}

/* A size that the system would cut down is not set at all: the kernel's own tuning goes further. */
static int socket_bytes(const struct xfer_config *c)
{
    if (c->socket_buffer_bytes > 0)
        return (int)c->socket_buffer_bytes;
    return system_allows("/proc/sys/net/core/rmem_max") &&
                   system_allows("/proc/sys/net/core/wmem_max")
               ? DATA_SOCKET_BYTES
               : 0;
}

static bool create_conn(struct xfer *xfer, struct data_conn *conn)
{
    conn->xfer = xfer;
    conn->fd = -1;
    conn->iov = calloc(DATA_IOVS, sizeof *conn->iov);
    conn->meta = undumped_take(xfer->conns->meta_bytes, false);
    conn->packed = undumped_take(DATA_PACKED_BYTES, false);
    conn->buffer = undumped_take(DATA_BUFFER_BYTES, false);
    conn->own = undumped_take(xfer->conns->own_bytes, false);
    return conn->iov && conn->meta && conn->packed && conn->buffer && conn->own;
}

enum tern_err data_conns_create(struct xfer *xfer)
{
    const struct xfer_config *c = &xfer->config;
    struct data_conns *conns = calloc(1, sizeof *conns);

    xfer->conns = conns;
    if (!conns)
        return TERN_INTERNAL;
    conns->listen_fd = -1;
    conns->socket_bytes = socket_bytes(c);
    conns->inbound_max = c->data_conns_max / 2;
    conns->outbound_max = c->data_conns_max - conns->inbound_max;
    conns->inbound_min = c->peers ? conns->inbound_max / c->peers : 0;
    if (conns->inbound_min > c->connections + 1) /* and one for RDMA */
        conns->inbound_min = c->connections + 1;
    conns->meta_bytes = meta_bytes(mem_sums_per_page(c->mem));
    conns->own_bytes = own_bytes(c->transports);
    conns->conn = calloc(c->data_conns_max, sizeof *conns->conn);
    for (uint32_t i = 0; conns->conn && i < c->data_conns_max; i++)
        if (!create_conn(xfer, &conns->conn[i]))
            return TERN_INTERNAL;
    return conns->conn ? data_door_create(xfer) : TERN_INTERNAL;
}

static bool tasks_away(const struct xfer *xfer)
{
    struct io_threads_stats stats = {0};

    if (xfer->threads)
        io_threads_stats(xfer->threads, &stats);
    return stats.away > 0;
}

/* Cancels all and runs the ring until nothing of ours is in flight and no task is away: neither the
 * kernel nor a data thread must be left with our memory. */
static void drain(struct xfer *xfer)
{
    struct data_conns *conns = xfer->conns;
    uint64_t deadline = io_now_ns() + XFER_DESTROY_WAIT_NS;
    bool busy = true;

    conns->ending = true;
    if (conns->accepting)
        io_cancel(xfer->config.io, &conns->accept_op);
    while (busy && io_now_ns() < deadline) {
        busy = conns->accepting || tasks_away(xfer);
        for (uint32_t i = 0; conns->conn && i < xfer->config.data_conns_max; i++) {
            data_conn_fail(&conns->conn[i]);
            busy = busy || conns->conn[i].state != DATA_CONN_FREE;
        }
        if (busy)
            io_run(xfer->config.io, deadline);
    }
    check(!busy);
}

void data_conns_stop(struct xfer *xfer)
{
    struct data_conns *conns = xfer->conns;

    if (!conns)
        return;
    drain(xfer);
    door_destroy(conns->door);
    if (conns->listen_fd >= 0)
        close(conns->listen_fd);
}

void data_conns_destroy(struct xfer *xfer)
{
    struct data_conns *conns = xfer->conns;

    if (!conns)
        return;
    for (uint32_t i = 0; conns->conn && i < xfer->config.data_conns_max; i++) {
        free(conns->conn[i].iov);
        undumped_put(conns->conn[i].meta, conns->meta_bytes);
        undumped_put(conns->conn[i].packed, DATA_PACKED_BYTES);
        undumped_put(conns->conn[i].buffer, DATA_BUFFER_BYTES);
        undumped_put(conns->conn[i].own, conns->own_bytes);
    }
    free(conns->conn);
    free(conns);
    xfer->conns = NULL;
}
