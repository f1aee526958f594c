/* The data port: peers call it for data connections. Who has not said the token of a link that is
 * up stands at the door (seam/io/door.h) and takes nothing that peers need. Called by the shell's
 * owner thread. */
#include <errno.h>

#include "base/container.h"
#include "seam/io/tcp_listen.h"
#include "seam/xfer/data_conn.h"

/* HELLO was meant for a daemon that was here before, or its token is of no link that is up. */
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

enum tern_err data_door_create(struct xfer *xfer)
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
        return; /* out of descriptors, say: the tick asks again */
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
    if (xfer->conns->listen_fd >= 0) {
        *ret_why = "it listens already";
        return TERN_CONFLICT;
    }
    xfer->conns->listen_fd = tcp_listen(host, port, DATA_BACKLOG, ret_port, ret_why);
    if (xfer->conns->listen_fd < 0)
        return errno == EADDRINUSE ? TERN_CONFLICT : TERN_INVALID;
    data_conns_accept(xfer);
    return TERN_OK;
}
