/* The data port: peers call it for data connections. Who has not said the token of a link that is
 * up stands at the door (seam/io/door.h) and takes nothing that peers need. Called by the shell's
 * owner thread. */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/container.h"
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

static int listen_on(const struct addrinfo *ai)
{
    int one = 1, zero = 0, fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (ai->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    if (bind(fd, ai->ai_addr, ai->ai_addrlen) < 0 || listen(fd, DATA_BACKLOG) < 0) {
        int cause = errno;

        close(fd);
        errno = cause;
        return -1;
    }
    return fd;
}

/* For all addresses IPv6 comes first: its socket takes IPv4 too. */
static int listen_any(const struct addrinfo *list, bool all)
{
    int fd = -1;

    for (const struct addrinfo *ai = list; all && ai && fd < 0; ai = ai->ai_next)
        if (ai->ai_family == AF_INET6)
            fd = listen_on(ai);
    for (const struct addrinfo *ai = list; ai && fd < 0; ai = ai->ai_next)
        fd = listen_on(ai);
    return fd;
}

enum tern_err xfer_listen(struct xfer *xfer, const char *host, uint16_t port, uint16_t *ret_port,
                          const char **ret_why)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list = NULL;
    struct sockaddr_storage at;
    socklen_t len = sizeof at;
    char service[8];
    int rc, cause;

    if (xfer->conns->listen_fd >= 0) {
        *ret_why = "it listens already";
        return TERN_CONFLICT;
    }
    snprintf(service, sizeof service, "%u", port);
    rc = getaddrinfo(host, service, &hints, &list);
    if (rc != 0) {
        *ret_why = gai_strerror(rc);
        return TERN_INVALID;
    }
    xfer->conns->listen_fd = listen_any(list, host == NULL);
    cause = errno;
    freeaddrinfo(list);
    if (xfer->conns->listen_fd < 0) {
        *ret_why = strerror(cause);
        return cause == EADDRINUSE ? TERN_CONFLICT : TERN_INVALID;
    }
    if (getsockname(xfer->conns->listen_fd, (struct sockaddr *)&at, &len) == 0)
        *ret_port = ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                                                   : ((struct sockaddr_in *)&at)->sin_port);
    data_conns_accept(xfer);
    return TERN_OK;
}
