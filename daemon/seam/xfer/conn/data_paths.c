/* The paths of a lane: the data connections to a peer over which a transport spreads its transfers,
 * and the calls that make them. The first path of a lane is called when there is something to
 * request, another one when no path has room for the waiting work. A path that fails is retired:
 * the other paths continue, and the failed one is called again after a pause that doubles. If no
 * path is left, the pause does not apply, since waiting work has no other way. Called by the
 * transports and by data_conn.c. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/container.h"
#include "seam/io/tcp_listen.h"
#include "seam/xfer/conn/data_conn.h"

bool data_paths_alive(const struct transport *t, uint32_t peer_link)
{
    for (uint32_t i = 0; i < t->xfer->config.connections; i++)
        if (transport_lane(t, peer_link)->path[i].conn != NONE)
            return true;
    return false;
}

void data_paths_reset(struct xfer *xfer, uint32_t peer_link)
{
    for (uint32_t k = 0; k < xfer->ntransports; k++)
        for (uint32_t i = 0; i < xfer->config.connections; i++) {
            struct data_path *path = &xfer->link[peer_link].lane[k].path[i];

            check(path->conn == NONE);
            path->failures = 0;
            path->dial_ns = 0;
            if (path->state == DATA_PATH_RETIRED)
                data_path_state_move(&path->state, DATA_PATH_NONE);
        }
}

/* ------------------------------------------------------------------ calls */

/* Reports how the call to the link's data port ended. Operators must know, because the control port
 * may be open while this one is not. Not reported if another connection shows that this port is
 * open. */
void data_call_ended(const struct data_conn *conn, int error)
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
        data_call_ended(conn, res < 0 ? -res : 0);
    if (!data_conn_sent(conn, res >= 0))
        return;
    data_conn_state_move(&conn->state, DATA_CONN_OPEN);
    data_path_state_move(&data_path_of(conn)->state, DATA_PATH_UP);
    xfer_put_head(
        conn->buffer,
        &(struct xfer_head){.type = XFER_HELLO, .a = link->peer_incarnation, .b = link->token});
    conn->out_n = XFER_HEAD_BYTES;
    if (conn->caller->opened)
        conn->caller->opened(conn);
    data_conn_send_buffer(conn);
    conn->caller->receive(conn);
}

/* A call could not be made: no slot, or (slot false) no descriptor. */
static void not_called(struct transport *t, uint32_t number, uint32_t path, bool slot)
{
    struct xfer *xfer = t->xfer;
    struct lane *lane = transport_lane(t, number);

    if (data_paths_alive(t, number)) {
        data_path_pause(&lane->path[path]);
    } else if (slot) {
        if (lane->waiting_ns == 0)
            lane_wait(xfer, lane, io_now_ns());
        data_conns_evict(xfer);
    } else {
        queue_break(xfer, &lane->queue, TERN_BUSY); /* so users of descriptors may free some */
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
    conn->extra = data_paths_alive(t, number);
    xfer->conns->extra += conn->extra ? 1 : 0;
    data_path_state_move(&data_path_of(conn)->state, DATA_PATH_CALLING);
    data_path_of(conn)->conn = (uint32_t)(conn - xfer->conns->conn);
    conn->send_op.done = connected;
    conn->sending = true;
    io_connect(xfer->config.io, &conn->send_op, fd, (struct sockaddr *)&link->addr, link->addr_len);
}

/* Slots are reserved for the first connections of all peers; extra ones use the rest. */
static bool room_for_extra(const struct xfer *xfer)
{
    uint32_t lanes = 0;

    for (uint32_t i = 0; i < xfer->ntransports; i++)
        lanes += xfer->transport[i].own && xfer->transport[i].ops->conn_bytes > 0;
    return xfer->conns->extra + lanes * xfer->config.peers < xfer->conns->outbound_max;
}

/* Returns the unused path that may be called first. */
static uint32_t next_path(const struct xfer *xfer, const struct lane *lane)
{
    uint32_t next = NONE;

    for (uint32_t i = 0; i < xfer->config.connections; i++)
        if (lane->path[i].conn == NONE &&
            (next == NONE || lane->path[i].dial_ns < lane->path[next].dial_ns))
            next = i;
    return next;
}

static bool one_is_called(const struct xfer *xfer, const struct lane *lane)
{
    for (uint32_t i = 0; i < xfer->config.connections; i++)
        if (lane->path[i].state == DATA_PATH_CALLING)
            return true;
    return false;
}

void data_paths_call(struct transport *t, uint32_t peer_link, const struct data_caller *caller)
{
    const struct lane *lane = transport_lane(t, peer_link);
    uint32_t path = next_path(t->xfer, lane);

    if (path == NONE || one_is_called(t->xfer, lane))
        return;
    if (data_paths_alive(t, peer_link) &&
        (io_now_ns() < lane->path[path].dial_ns || !room_for_extra(t->xfer)))
        return;
    data_conn_call(t, peer_link, path, caller);
}
