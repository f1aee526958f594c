/* See conn.h. A read wakes all waiters on the client's end and takes the reader's time for that,
 * and a client can add thousands of epolls to its end. A read also releases descriptors that a
 * client sent. So a thread of the kernel reads, and the owner only polls. */
#include "shell/conn/conn.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/sockios.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/container.h"
#include "seam/io/client_fds.h"
#include "shell/config/plan.h"
#include "shell/daemon.h"
#include "shell/log/log.h"

static void rung(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer);
static void drained(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer);

static struct client_conn *conn_of(struct io_op *op)
{
    return container_of(op, struct client_conn, bell.op);
}

static void bell_closed(void *ctx)
{
    struct client_conn *c = ctx;

    bell_state_move(&c->bell.state, BELL_NONE);
    c->d->conns.quiet(c);
}

static void bell_close(struct client_conn *c)
{
    int fd = c->bell.fd;

    bell_state_move(&c->bell.state, BELL_CLOSING);
    c->bell.fd = -1;
    if (closer_close(c->d->closer, c->tenant, fd, bell_closed, c))
        bell_closed(c);
}

static void listen_to(struct client_conn *c)
{
    bell_state_move(&c->bell.state, BELL_LISTENING);
    c->bell.op.done = rung;
    c->bell.op.aside = false;
    io_poll_in(c->d->io, &c->bell.op, c->bell.fd, false);
}

/* Returns true if the client has closed its end, or shut it down. */
static bool client_left(const struct client_bell *b)
{
    struct pollfd p = {.fd = b->fd, .events = POLLRDHUP};

    return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLRDHUP));
}

/* A rank of the connection's engine has reached the wanted step, or rings without a reason. */
static void rung(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct client_conn *c = conn_of(op);

    (void)flags, (void)buffer;
    if (c->engine != NONE && c->bell.state == BELL_LISTENING)
        engine_watch_rung(c->d, c->engine);
    if (c->bell.state == BELL_ENDING || res < 0 || (res & POLLHUP)) {
        bell_close(c);
        return;
    }
    bell_state_move(&c->bell.state, BELL_DRAINING);
    if (c->share->reads.n++ == 0)
        c->share->reads.since_ns = io_now_ns();
    op->done = drained;
    op->aside = true;
    io_recv(c->d->io, op, c->bell.fd, &c->bell.byte, sizeof c->bell.byte, false);
}

/* Accounts for an ended read of one of the tenant's bells. Returns true if this bell must rest
 * until the tick. */
static bool read_ended(struct bell_reads *r)
{
    uint64_t now_ns = io_now_ns();

    r->passed_ns += now_ns - r->since_ns;
    r->since_ns = now_ns;
    r->n--;
    return r->passed_ns > BELL_TICK_NS;
}

static void drained(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct client_conn *c = conn_of(op);
    bool rests = read_ended(&c->share->reads);

    (void)flags, (void)buffer;
    if (c->bell.state == BELL_ENDING || (res == 0 && client_left(&c->bell))) {
        bell_close(c);
    } else if (res < 0) {
        bell_state_move(&c->bell.state, BELL_DEAF);
        log_event(LEVEL_WARN, "bell_lost", "conn=%u pid=%d reason=%s", c->slot, c->pid,
                  strerror(-res));
    } else if (rests) {
        bell_state_move(&c->bell.state, BELL_RESTING);
    } else {
        listen_to(c);
    }
}

void bell_tick(struct client_conn *c)
{
    if (c->bell.state == BELL_RESTING)
        listen_to(c);
}

void bell_end(struct client_conn *c)
{
    if (c->bell.state == BELL_DEAF || c->bell.state == BELL_RESTING)
        bell_close(c);
    if (c->bell.state == BELL_NONE || c->bell.state == BELL_CLOSING)
        return;
    bell_state_move(&c->bell.state, BELL_ENDING);
    io_cancel(c->d->io, &c->bell.op);
}

static void close_given(struct client_conn *c)
{
    if (c->fds.given >= 0)
        close(c->fds.given);
    c->fds.given = -1;
}

static enum tern_err no_bell(const struct client_conn *c, char why[BELL_WHY_BYTES])
{
    struct rlimit files = {0};
    int error = errno;

    (void)getrlimit(RLIMIT_NOFILE, &files);
    return fail_with(why, BELL_WHY_BYTES, TERN_BUSY,
                     "the daemon has no descriptor for a bell: %s: its limit is %" PRIu64
                     " and it needs %" PRIu64 ": raise LimitNOFILE= or ulimit -Hn",
                     strerror(error), (uint64_t)files.rlim_cur, plan_descriptors(c->d->config));
}

enum tern_err bell_give(struct client_conn *c, int *ret_fd, char why[BELL_WHY_BYTES])
{
    const bool closing = c->bell.state == BELL_ENDING || c->bell.state == BELL_CLOSING;
    int pair[2];

    close_given(c); /* left by an answer that could not be encoded */
    if (c->bell.state != BELL_NONE && !closing && !client_left(&c->bell)) {
        c->fds.given = open("/dev/null", O_WRONLY | O_CLOEXEC);
    } else if (c->bell.state == BELL_NONE &&
               socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0) {
        (void)client_fds_refuse(pair[0]);          /* otherwise the kernel's thread releases them */
        (void)fcntl(pair[1], F_SETFL, O_NONBLOCK); /* a client may ring by write(2) */
        c->bell.fd = pair[0];
        c->fds.given = pair[1];
        listen_to(c);
    } else {
        errno = c->bell.state == BELL_NONE ? errno : EAGAIN; /* the old bell is still ending */
    }
    if (c->fds.given < 0)
        return no_bell(c, why);
    *ret_fd = c->fds.given;
    return TERN_OK;
}

void conn_fds_queued(struct client_conn *c)
{
    c->fds.unread_at = c->stream.queued_bytes;
    if (c->fds.given < 0)
        return;
    c->fds.next = c->d->conns.giving;
    c->d->conns.giving = c;
}

void conn_fds_unsent(struct client_conn *c)
{
    struct rlimit files = {0};

    (void)getrlimit(RLIMIT_NOFILE, &files);
    c->fds.unread_at = 0;
    log_event(LEVEL_WARN, "descriptors_in_flight",
              "tenant=%s pid=%d limit=%" PRIu64 " in_flight=%" PRIu64 " reason=%s",
              config_tenant_word(c->d->config, c->tenant), c->pid, (uint64_t)files.rlim_cur,
              plan_descriptors_in_flight(c->d->config),
              "processes of the daemon's user have more descriptors in unread messages than the "
              "limit: raise LimitNOFILE= above `in_flight`, and run only ternd as that user");
}

/* Returns true if the other side has read all: a Unix socket counts unread bytes as outgoing. */
static bool all_read(int fd)
{
    int left = 0;

    return ioctl(fd, SIOCOUTQ, &left) == 0 && left == 0;
}

bool conn_fds_unread(struct client_conn *c)
{
    if (c->fds.unread_at && stream_sent(&c->stream, c->fds.unread_at) && all_read(c->stream.fd))
        c->fds.unread_at = 0;
    return c->fds.unread_at != 0;
}

void conn_fds_sent(struct daemon *d)
{
    struct client_conn **at = &d->conns.giving, *c;

    while ((c = *at) != NULL) {
        if (c->state != CLIENT_CONN_CLOSED && !stream_sent(&c->stream, c->fds.unread_at)) {
            at = &c->fds.next;
            continue;
        }
        *at = c->fds.next;
        close_given(c);
    }
}

void conn_fds_end(struct client_conn *c)
{
    conn_fds_sent(c->d);
    if (c->fds.unread_at == 0 || all_read(c->stream.fd))
        return;
    c->fds.ended = fcntl(c->stream.fd, F_DUPFD_CLOEXEC, 0);
    if (c->fds.ended < 0) {
        log_event(LEVEL_WARN, "descriptors_unowned", "conn=%u pid=%d reason=%s", c->slot, c->pid,
                  strerror(errno));
        return;
    }
    c->share->unread++;
}

static void ended_closed(void *ctx)
{
    struct client_conn *c = ctx;

    c->fds.closing = false;
    c->share->unread--;
    c->d->conns.quiet(c);
}

void conn_fds_look(struct client_conn *c)
{
    int fd = c->fds.ended;

    if (fd < 0 || !all_read(fd))
        return;
    c->fds.ended = -1;
    c->fds.closing = true;
    if (closer_close(c->d->closer, c->tenant, fd, ended_closed, c))
        ended_closed(c);
}
