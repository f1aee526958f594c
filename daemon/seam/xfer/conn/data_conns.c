/* All data connections: the port that peers call, their tables, their deadline and their end. A
 * caller that has not sent the token of a link that is up waits at the door (seam/io/door.h) and
 * uses nothing that peers need. Called by the shell's owner thread. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/container.h"
#include "base/undumped.h"
#include "seam/io/tcp_listen.h"
#include "seam/mem/numa.h"
#include "seam/xfer/conn/data_conn.h"

/* ------------------------------------------------------------------ the port */

/* Refuses HELLO for an earlier incarnation, or with a token of no link that is up. */
static enum door_verdict look(void *ctx, const uint8_t *bytes, uint32_t n)
{
    struct xfer *xfer = ctx;
    struct xfer_head head;

    if (n < XFER_HEAD_BYTES)
        return DOOR_WAIT;
    if (!xfer_get_head(bytes, &head) || head.type != XFER_HELLO || head.n != 0)
        return DOOR_REFUSE;
    if (head.a == xfer->config.incarnation && xfer_link_admitted(xfer, head.b) != NONE)
        return DOOR_ENTER;
    xfer->stats.refused++;
    return DOOR_REFUSE;
}

static enum door_verdict enter(void *ctx, int fd)
{
    struct data_conn *conn = data_conn_take(ctx, NULL, fd);

    if (!conn)
        return DOOR_WAIT;
    data_source_start(conn);
    return DOOR_ENTER;
}

static enum tern_err create_door(struct xfer *xfer)
{
    const struct xfer_config *c = &xfer->config;
    const struct door_config config = {.io = c->io,
                                       .places = c->strangers,
                                       .wait_ns = c->hello_ns ? c->hello_ns : c->idle_ns,
                                       .look_bytes = XFER_HEAD_BYTES,
                                       .look = look,
                                       .enter = enter,
                                       .ctx = xfer};

    return door_create(&config, &xfer->conns->door);
}

static void accept_done(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct data_conns *conns = container_of(op, struct data_conns, accept_op);
    struct xfer *xfer = conns->conn[0].xfer;

    (void)flags, (void)buffer;
    conns->accepting = false;
    if (res < 0)
        return; /* for instance, out of descriptors; the tick retries */
    data_conn_options(xfer, res);
    door_arrived(conns->door, res, io_now_ns());
    if (!conns->ending)
        data_conns_accept(xfer);
}

void data_conns_accept(struct xfer *xfer)
{
    struct data_conns *conns = xfer->conns;

    if (conns->listen_fd < 0 || conns->accepting)
        return;
    conns->accepting = true;
    conns->accept_op.done = accept_done;
    io_accept(xfer->config.io, &conns->accept_op, conns->listen_fd);
}

enum tern_err xfer_listen(struct xfer *xfer, const char *host, uint16_t port, uint16_t *ret_port,
                          const char **ret_why)
{
    check(xfer->conns->listen_fd < 0);
    xfer->conns->listen_fd = tcp_listen(host, port, DATA_BACKLOG, ret_port, ret_why);
    if (xfer->conns->listen_fd < 0)
        return errno == EADDRINUSE ? TERN_CONFLICT : TERN_INVALID;
    data_conns_accept(xfer);
    return TERN_OK;
}

/* ------------------------------------------------------------------ all of them */

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
                data_call_ended(conn, ETIMEDOUT);
            data_conn_end(conn, true);
        } else if (busy && conn->receiving && still_ns > xfer->config.idle_ns / 2)
            data_conn_await(conn, 1); /* slow, not silent: take what arrived */
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
    uint64_t conn = sizeof(struct data_conn) + undumped_bytes(meta_bytes(sums_per_page)) +
                    undumped_bytes(own_bytes(transports));

    return sizeof(struct data_conns) + c->data_conns_max * conn + door_bytes(c->strangers);
}

static bool system_allows(const char *path)
{
    uint64_t most;

    return file_number(path, "", 10, &most) && most >= DATA_SOCKET_BYTES;
}

/* A size that the system would reduce is not set, because the kernel's own tuning allows larger
 * buffers. */
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
    conn->meta = undumped_take(xfer->conns->meta_bytes, false);
    conn->own = undumped_take(xfer->conns->own_bytes, false);
    return conn->meta && conn->own;
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
    if (conns->inbound_min > c->connections + 1) /* plus one for RDMA */
        conns->inbound_min = c->connections + 1;
    conns->meta_bytes = meta_bytes(mem_sums_per_page(c->mem));
    conns->own_bytes = own_bytes(c->transports);
    conns->conn = undumped_take(c->data_conns_max * sizeof *conns->conn, false);
    for (uint32_t i = 0; conns->conn && i < c->data_conns_max; i++)
        if (!create_conn(xfer, &conns->conn[i]))
            return TERN_INTERNAL;
    return conns->conn ? create_door(xfer) : TERN_INTERNAL;
}

static bool tasks_away(const struct xfer *xfer)
{
    struct io_threads_stats stats = {0};

    if (xfer->threads)
        io_threads_stats(xfer->threads, &stats);
    return stats.away > 0;
}

/* Cancels all and runs the ring until nothing is in flight and no task is away: afterwards neither
 * the kernel nor a data thread uses our memory. */
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
            data_conn_end(&conns->conn[i], true);
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
        undumped_put(conns->conn[i].meta, conns->meta_bytes);
        undumped_put(conns->conn[i].own, conns->own_bytes);
    }
    undumped_put(conns->conn, xfer->config.data_conns_max * sizeof *conns->conn);
    free(conns);
    xfer->conns = NULL;
}
