/* Pulls over TCP: what both sides share. Connections are slots taken and put back; a connection
 * that ends is shut down at once and its slot is free only when neither of its operations is in
 * flight, because until then the kernel may still read or write the pages that they name. Called by
 * the shell's owner thread. */
#include "seam/xfer/tcp/tcp.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "base/err.h"

/* ------------------------------------------------------------------ connections */

void conn_options(const struct xfer *xfer, int fd)
{
    int one = 1, bytes = xfer->socket_bytes;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (bytes > 0) {
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    }
}

void conn_progress(struct xfer_conn *conn)
{
    conn->progress_ns = io_now_ns();
}

struct xfer_conn *conn_take(struct xfer *xfer, bool outbound, int fd)
{
    if (!outbound && xfer->conns_in == xfer->conns_in_max)
        return NULL;
    for (uint32_t i = 0; i < xfer->config.data_conns_max; i++) {
        struct xfer_conn *conn = &xfer->conn[i];

        if (conn->state != CONN_FREE)
            continue;
        conn->state = CONN_OPEN;
        conn->outbound = outbound;
        conn->reads = false;
        conn->fd = fd;
        conn->receiving = conn->sending = false;
        conn->recv_pull = conn->send_serve = NONE;
        conn->awaited = 1;
        conn_progress(conn);
        xfer->stats.conns++;
        xfer->conns_in += outbound ? 0 : 1;
        return conn;
    }
    return NULL;
}

void conn_fail(struct xfer_conn *conn)
{
    if (conn->state == CONN_CLOSING || conn->state == CONN_FREE)
        return;
    conn->state = CONN_CLOSING;
    shutdown(conn->fd, SHUT_RDWR);
    if (conn->receiving)
        io_cancel(conn->xfer->config.io, &conn->recv_op);
    if (conn->sending)
        io_cancel(conn->xfer->config.io, &conn->send_op);
    if (conn->reads)
        verbs_conn_lost(conn);
    else if (conn->outbound)
        out_lost(conn);
    conn_reap(conn);
}

void conn_reap(struct xfer_conn *conn)
{
    struct xfer *xfer = conn->xfer;

    if (conn->state != CONN_CLOSING || conn->receiving || conn->sending)
        return;
    check(conn->recv_pull == NONE && conn->send_serve == NONE);
    close(conn->fd);
    conn->fd = -1;
    conn->state = CONN_FREE;
    xfer->stats.conns--;
    xfer->conns_in -= conn->outbound ? 0 : 1;
    for (uint32_t i = 0; i < xfer->config.links; i++)
        if (xfer->link[i].waiting_ns != 0) /* waited for a slot */
            link_pump(xfer, i);
    for (uint32_t i = 0; i < xfer->config.links; i++)
        if (xfer->link[i].reads_waiting_ns != 0)
            verbs_pump(xfer, i);
}

void conn_connect(struct xfer_conn *conn, uint32_t number,
                  void (*done)(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer))
{
    struct xfer_link *link = &conn->xfer->link[number];

    conn->state = CONN_CONNECTING;
    conn->send_op.done = done;
    conn->sending = true;
    io_connect(conn->xfer->config.io, &conn->send_op, conn->fd, (struct sockaddr *)&link->addr,
               link->addr_len);
}

uint32_t conn_hello(const struct xfer *xfer, uint32_t number, uint8_t *tx)
{
    const struct xfer_link *link = &xfer->link[number];

    xfer_put_head(
        tx, &(struct xfer_head){.type = XFER_HELLO, .a = link->peer_incarnation, .b = link->token});
    return XFER_HEAD_BYTES;
}

bool conn_sent(struct xfer_conn *conn, bool well)
{
    conn->sending = false;
    if (conn->state == CONN_CLOSING) {
        conn_reap(conn);
        return false;
    }
    if (!well) {
        conn_fail(conn);
        return false;
    }
    conn_progress(conn);
    return true;
}

/* ------------------------------------------------------------------ listening */

static void accept_done(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct xfer *xfer = (struct xfer *)((char *)op - offsetof(struct xfer, accept_op));

    (void)buffer;
    if (flags & IO_LAST)
        xfer->accepting = false; /* out of descriptors, say: xfer_tick asks again */
    if (res >= 0) {
        struct xfer_conn *conn = conn_take(xfer, false, res);

        if (conn) {
            conn_options(xfer, res);
            in_start(conn);
        } else {
            close(res);
        }
    }
}

static void accept_start(struct xfer *xfer)
{
    if (xfer->listen_fd < 0 || xfer->accepting)
        return;
    xfer->accepting = true;
    xfer->accept_op.done = accept_done;
    io_accept(xfer->config.io, &xfer->accept_op, xfer->listen_fd);
}

static int listen_on(const struct addrinfo *ai)
{
    int one = 1, zero = 0, fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (ai->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    if (bind(fd, ai->ai_addr, ai->ai_addrlen) < 0 || listen(fd, XFER_BACKLOG) < 0) {
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

    if (xfer->listen_fd >= 0) {
        *ret_why = "it listens already";
        return TERN_CONFLICT;
    }
    snprintf(service, sizeof service, "%u", port);
    rc = getaddrinfo(host, service, &hints, &list);
    if (rc != 0) {
        *ret_why = gai_strerror(rc);
        return TERN_INVALID;
    }
    xfer->listen_fd = listen_any(list, host == NULL);
    cause = errno;
    freeaddrinfo(list);
    if (xfer->listen_fd < 0) {
        *ret_why = strerror(cause);
        return cause == EADDRINUSE ? TERN_CONFLICT : TERN_INVALID;
    }
    if (getsockname(xfer->listen_fd, (struct sockaddr *)&at, &len) == 0)
        *ret_port = ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                                                   : ((struct sockaddr_in *)&at)->sin_port);
    accept_start(xfer);
    return TERN_OK;
}

/* ------------------------------------------------------------------ create */

static long sysctl_number(const char *path)
{
    long value = 0;
    FILE *f = fopen(path, "re");

    if (!f)
        return 0;
    if (fscanf(f, "%ld", &value) != 1)
        value = 0;
    fclose(f);
    return value;
}

/* A size that the system would cut down is not set at all: the kernel's own tuning goes further. */
static int socket_bytes(const struct xfer_config *c)
{
    if (c->socket_buffer_bytes > 0)
        return (int)c->socket_buffer_bytes;
    if (sysctl_number("/proc/sys/net/core/rmem_max") < XFER_SOCKET_BYTES ||
        sysctl_number("/proc/sys/net/core/wmem_max") < XFER_SOCKET_BYTES)
        return 0;
    return XFER_SOCKET_BYTES;
}

static size_t meta_bytes(uint32_t sums_per_page)
{
    uint32_t sums = sums_per_page > XFER_PIECE_SUMS ? sums_per_page : XFER_PIECE_SUMS;

    return XFER_TAIL_BYTES + XFER_ANSWER_HEAD_BYTES + (size_t)sums * sizeof(uint64_t);
}

void xfer_bytes(const struct xfer_config *c, uint32_t page_records, uint32_t sums_per_page,
                uint64_t *ret_tcp, uint64_t *ret_rdma)
{
    uint64_t conn =
        sizeof(struct xfer_conn) + XFER_IOVS * sizeof(struct iovec) + meta_bytes(sums_per_page);

    *ret_tcp =
        sizeof(struct xfer) + c->data_conns_max * conn + c->links * sizeof(struct xfer_link) +
        c->pulls * (sizeof(struct xfer_pull_slot) + PULL_BATCHES_MAX * sizeof(struct xfer_batch)) +
        c->serves * sizeof(struct xfer_serve_slot) + 2 * XFER_SCRATCH;
    if (c->fault_corrupt_pages > 0)
        *ret_tcp += page_records * sizeof(uint64_t);
    *ret_rdma = verbs_bytes(c, sums_per_page);
}

static bool create_conns(struct xfer *xfer)
{
    const struct xfer_config *c = &xfer->config;

    xfer->meta_bytes = meta_bytes(mem_sums_per_page(c->mem));
    xfer->conn = calloc(c->data_conns_max, sizeof *xfer->conn);
    if (!xfer->conn)
        return false;
    for (uint32_t i = 0; i < c->data_conns_max; i++) {
        struct xfer_conn *conn = &xfer->conn[i];

        conn->xfer = xfer;
        conn->fd = -1;
        conn->iov = calloc(XFER_IOVS, sizeof *conn->iov);
        conn->meta = calloc(1, xfer->meta_bytes);
        if (!conn->iov || !conn->meta)
            return false;
    }
    return true;
}

static bool create_tables(struct xfer *xfer)
{
    const struct xfer_config *c = &xfer->config;

    xfer->link = calloc(c->links, sizeof *xfer->link);
    xfer->pull = calloc(c->pulls, sizeof *xfer->pull);
    xfer->batch = calloc((size_t)c->pulls * PULL_BATCHES_MAX, sizeof *xfer->batch);
    xfer->serve = calloc(c->serves, sizeof *xfer->serve);
    xfer->scratch = calloc(1, XFER_SCRATCH);
    xfer->zeros = calloc(1, XFER_SCRATCH);
    if (c->fault_corrupt_pages > 0)
        xfer->injected = calloc(mem_page_records(c->mem), sizeof *xfer->injected);
    if (!xfer->link || !xfer->pull || !xfer->batch || !xfer->serve || !xfer->scratch ||
        !xfer->zeros || (c->fault_corrupt_pages > 0 && !xfer->injected))
        return false;
    for (uint32_t i = 0; i < c->links; i++)
        xfer->link[i] = (struct xfer_link){
            .conn = NONE, .read_conn = NONE, .queue = {NONE, NONE}, .reads = {NONE, NONE}};
    return true;
}

enum tern_err xfer_create(const struct xfer_config *config, struct xfer **ret, const char **ret_why)
{
    struct xfer *xfer;

    if (!config->io || !config->mem || config->links == 0 || config->pulls == 0 ||
        config->serves == 0 || config->data_conns_max < 2 || config->idle_ns == 0) {
        *ret_why = "transfers: a limit is 0, or data_conns_max is below 2";
        return TERN_INVALID;
    }
    xfer = calloc(1, sizeof *xfer);
    if (!xfer) {
        *ret_why = "no memory for the tables of the transfers";
        return TERN_INTERNAL;
    }
    xfer->config = *config;
    xfer->listen_fd = -1;
    xfer->socket_bytes = socket_bytes(config);
    xfer->conns_in_max =
        config->data_conns_max / 2; /* peers that call us leave room for our own calls */
    if (!create_tables(xfer) || !create_conns(xfer)) {
        xfer_destroy(xfer);
        *ret_why = "no memory for the tables of the transfers";
        return TERN_INTERNAL;
    }
    if (verbs_create(xfer) != TERN_OK) {
        xfer_destroy(xfer);
        *ret_why = "no memory for the tables of the RDMA paths";
        return TERN_INTERNAL;
    }
    *ret = xfer;
    return TERN_OK;
}

/* Cancels all and runs the ring until nothing of ours is in flight: the kernel must not be left
 * with our memory. */
static void drain(struct xfer *xfer)
{
    uint64_t deadline = io_now_ns() + XFER_DESTROY_WAIT_NS;
    bool busy = true;

    for (uint32_t i = 0; xfer->link && i < xfer->config.links; i++)
        xfer->link[i].waiting_ns = xfer->link[i].reads_waiting_ns = 0;
    if (xfer->accepting)
        io_cancel(xfer->config.io, &xfer->accept_op);
    while (busy && io_now_ns() < deadline) {
        busy = xfer->accepting;
        for (uint32_t i = 0; xfer->conn && i < xfer->config.data_conns_max; i++) {
            conn_fail(&xfer->conn[i]); /* one may still have been accepted */
            busy = busy || xfer->conn[i].state != CONN_FREE;
        }
        if (busy)
            io_run(xfer->config.io, deadline);
    }
    check(!busy);
}

void xfer_destroy(struct xfer *xfer)
{
    if (!xfer)
        return;
    drain(xfer);
    verbs_destroy(xfer);
    if (xfer->listen_fd >= 0)
        close(xfer->listen_fd);
    for (uint32_t i = 0; xfer->conn && i < xfer->config.data_conns_max; i++) {
        free(xfer->conn[i].iov);
        free(xfer->conn[i].meta);
    }
    free(xfer->conn);
    free(xfer->link);
    free(xfer->pull);
    free(xfer->batch);
    free(xfer->serve);
    free(xfer->injected);
    free(xfer->scratch);
    free(xfer->zeros);
    free(xfer);
}

/* ------------------------------------------------------------------ time and figures */

void xfer_tick(struct xfer *xfer, uint64_t now_ns)
{
    for (uint32_t i = 0; i < xfer->config.data_conns_max; i++) {
        struct xfer_conn *conn = &xfer->conn[i];
        uint64_t still_ns = now_ns > conn->progress_ns ? now_ns - conn->progress_ns : 0;
        bool busy;

        if (conn->state != CONN_OPEN && conn->state != CONN_CONNECTING)
            continue;
        busy = conn->reads      ? verbs_conn_busy(conn)
               : conn->outbound ? out_busy(conn)
                                : in_busy(conn, now_ns);
        if (busy && still_ns > xfer->config.idle_ns)
            conn_fail(conn);
        else if (busy && conn->receiving && still_ns > xfer->config.idle_ns / 2)
            out_await(conn, 1); /* a slow peer is not a silent one: takes what there is */
    }
    for (uint32_t i = 0; i < xfer->config.links; i++)
        link_tick(xfer, i, now_ns);
    verbs_tick(xfer, now_ns);
    accept_start(xfer);
}

void xfer_stats(const struct xfer *xfer, struct xfer_stats *ret)
{
    *ret = xfer->stats;
}
