/* The socket of a connection and its two buffers. It uses plain send, recv and poll: the library
 * must work inside any engine process, so it needs no io_uring and no signal. */
#include "socket.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"

uint64_t client_socket_now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void set_timeout(int fd, int option, uint32_t ms)
{
    struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = (ms % 1000) * 1000};

    /* Cannot fail for an open socket; if it did, client_socket_wait would bound the waits.
     */
    (void)setsockopt(fd, SOL_SOCKET, option, &tv, sizeof(tv));
}

static enum tern_err alloc_buffers(struct client_socket *c, uint32_t body_max)
{
    uint32_t recv_max = body_max > FRAME_BODY_MAX ? body_max : FRAME_BODY_MAX;
    uint32_t in_cap = FRAME_HEADER_BYTES + recv_max + CLIENT_IN_EXTRA;
    uint32_t out_cap = FRAME_HEADER_BYTES + body_max;
    uint8_t *in = malloc(in_cap), *out = malloc(out_cap);

    if (!in || !out) {
        free(in);
        free(out);
        return TERN_INTERNAL;
    }
    free(c->in);
    free(c->out);
    c->in = in;
    c->out = out;
    c->in_cap = in_cap;
    c->out_cap = out_cap;
    c->body_max = body_max;
    c->recv_max = recv_max;
    return TERN_OK;
}

enum tern_err client_socket_adopt(struct client_socket *c, int fd)
{
    enum tern_err err;

    *c = (struct client_socket){.fd = fd, .out_lock = PTHREAD_MUTEX_INITIALIZER};
    client_socket_state_move(&c->state, CLIENT_SOCKET_UP);
    err = alloc_buffers(c, FRAME_BODY_MAX);
    if (err != TERN_OK)
        client_socket_close(c);
    return err;
}

/* A full backlog makes connect wait; for Unix sockets the send timeout bounds that wait. If a
 * signal interrupts it, connect is repeated with the rest of the time. */
static int connect_within(int fd, const struct sockaddr_un *addr, uint32_t ms)
{
    uint64_t end_ns = client_socket_now_ns() + (uint64_t)ms * 1000000u, now_ns;
    int rc;

    set_timeout(fd, SO_SNDTIMEO, ms);
    while ((rc = connect(fd, (const struct sockaddr *)addr, sizeof(*addr))) < 0 && errno == EINTR) {
        now_ns = client_socket_now_ns();
        if (now_ns >= end_ns) {
            errno = EAGAIN;
            break;
        }
        set_timeout(fd, SO_SNDTIMEO, (uint32_t)((end_ns - now_ns + 999999) / 1000000));
    }
    return rc;
}

enum tern_err client_socket_open(struct client_socket *c, const char *path, uint32_t deadline_ms)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    size_t len = strlen(path);
    int fd;

    if (len == 0 || len >= sizeof(addr.sun_path))
        return TERN_INVALID;
    memcpy(addr.sun_path, path, len);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return TERN_INTERNAL;
    if (connect_within(fd, &addr, deadline_ms) < 0) {
        int saved = errno;

        close(fd);
        errno = saved;
        return saved == EAGAIN ? TERN_TIMED_OUT : TERN_DAEMON_LOST;
    }
    return client_socket_adopt(c, fd);
}

void client_socket_close(struct client_socket *c)
{
    client_socket_drop_fds(c);
    if (c->fd >= 0)
        close(c->fd);
    free(c->in);
    free(c->out);
    client_socket_state_move(&c->state, CLIENT_SOCKET_CLOSED);
    *c = (struct client_socket){.fd = -1}; /* and CLOSED, which is 0 */
}

static void out_empty(struct client_socket *c)
{
    atomic_store(&c->out_head, 0);
    atomic_store(&c->out_tail, 0);
}

static void out_drop(struct client_socket *c)
{
    (void)pthread_mutex_lock(&c->out_lock);
    out_empty(c);
    (void)pthread_mutex_unlock(&c->out_lock);
}

void client_socket_lose(struct client_socket *c)
{
    if (c->state == CLIENT_SOCKET_UP)
        client_socket_state_move(&c->state, CLIENT_SOCKET_LOST);
    out_drop(c);
    client_socket_drop_fds(c);
    /* The other side notices at once; the descriptor stays open, so that nobody polls a reused one.
     */
    (void)shutdown(c->fd, SHUT_RDWR);
}

enum tern_err client_socket_set_body_max(struct client_socket *c, uint32_t body_max)
{
    if (body_max == 0 || body_max == c->body_max)
        return TERN_OK;
    if (body_max < CLIENT_BODY_MIN)
        return TERN_UNSUPPORTED;
    if (body_max > CLIENT_BODY_MAX)
        body_max = CLIENT_BODY_MAX;
    if (c->in_head != c->in_tail || client_socket_has_out(c))
        return TERN_MALFORMED; /* the daemon sent more than was requested */
    c->in_head = c->in_tail = 0;
    out_empty(c);
    return alloc_buffers(c, body_max);
}

bool client_socket_has_out(const struct client_socket *c)
{
    return atomic_load(&c->out_head) != atomic_load(&c->out_tail);
}

/* Moves the queued bytes to the front. Not while they are being sent. */
static void out_settle(struct client_socket *c)
{
    uint32_t head, tail;

    if (pthread_mutex_trylock(&c->out_lock) != 0)
        return;
    head = atomic_load(&c->out_head);
    tail = atomic_load(&c->out_tail);
    memmove(c->out, c->out + head, tail - head);
    atomic_store(&c->out_head, 0);
    atomic_store(&c->out_tail, tail - head);
    (void)pthread_mutex_unlock(&c->out_lock);
}

enum tern_err client_socket_room(struct client_socket *c, uint64_t body, uint8_t **ret_frame)
{
    uint32_t need, tail = atomic_load(&c->out_tail);

    if (body > c->body_max)
        return TERN_INVALID;
    need = FRAME_HEADER_BYTES + (uint32_t)body;
    if (tail > 0 && (c->out_cap - tail < need || !client_socket_has_out(c)))
        out_settle(c);
    tail = atomic_load(&c->out_tail);
    if (c->out_cap - tail < need)
        return TERN_BUSY;
    *ret_frame = c->out + tail;
    return TERN_OK;
}

void client_socket_queue(struct client_socket *c, uint32_t frame_bytes)
{
    uint32_t tail = atomic_load(&c->out_tail);

    check(frame_bytes <= c->out_cap - tail);
    atomic_store(&c->out_tail, tail + frame_bytes);
}

/* Caller holds out_lock. OK: all is sent, or the other side has closed. */
static enum tern_err out_send(struct client_socket *c)
{
    uint32_t head = atomic_load(&c->out_head), tail = atomic_load(&c->out_tail);

    while (head < tail) {
        ssize_t n = send(c->fd, c->out + head, tail - head, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n >= 0) {
            head += (uint32_t)n;
            atomic_store(&c->out_head, head);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return TERN_BUSY;
        } else if (errno != EINTR) {
            /* EPIPE, ECONNRESET: frames sent before the other side closed can still be received,
             * then the end. */
            if (errno != EPIPE && errno != ECONNRESET)
                atomic_store(&c->out_broken, true);
            atomic_store(&c->out_head, tail);
            break;
        }
    }
    return TERN_OK;
}

bool client_socket_push(struct client_socket *c)
{
    if (!client_socket_has_out(c))
        return false;
    (void)pthread_mutex_lock(&c->out_lock);
    (void)out_send(c);
    (void)pthread_mutex_unlock(&c->out_lock);
    return true;
}

/* Returns true if the connection is usable for a call. */
static bool is_up(struct client_socket *c)
{
    if (c->state == CLIENT_SOCKET_UP && atomic_load(&c->out_broken))
        client_socket_lose(c);
    return c->state == CLIENT_SOCKET_UP;
}

enum tern_err client_socket_send(struct client_socket *c)
{
    enum tern_err err;

    if (!is_up(c))
        return TERN_DAEMON_LOST;
    c->out_left = false;
    (void)pthread_mutex_lock(&c->out_lock);
    err = out_send(c);
    if (err == TERN_OK)
        out_empty(c);
    (void)pthread_mutex_unlock(&c->out_lock);
    return is_up(c) ? err : TERN_DAEMON_LOST;
}

enum tern_err client_socket_frame(struct client_socket *c, struct frame_header *ret,
                                  const uint8_t **ret_body)
{
    uint32_t have = c->in_tail - c->in_head;
    struct frame_header h;
    enum tern_err err;

    if (have < FRAME_HEADER_BYTES)
        return TERN_BUSY;
    err = frame_decode(c->in + c->in_head, c->recv_max, &h);
    if (err != TERN_OK) {
        client_socket_lose(c);
        c->in_head = c->in_tail = 0; /* the start of the next frame is unknown now */
        return err;
    }
    if (have - FRAME_HEADER_BYTES < h.length)
        return TERN_BUSY;
    *ret = h;
    *ret_body = c->in + c->in_head + FRAME_HEADER_BYTES;
    c->in_head += FRAME_HEADER_BYTES + h.length;
    return TERN_OK;
}

/* Collects descriptors from a control message. Returns false if there are more than one answer can
 * carry. */
static bool collect_fds(struct client_socket *c, struct msghdr *msg)
{
    bool fits = !(msg->msg_flags & MSG_CTRUNC);

    for (struct cmsghdr *m = CMSG_FIRSTHDR(msg); m; m = CMSG_NXTHDR(msg, m)) {
        size_t n;

        if (m->cmsg_level != SOL_SOCKET || m->cmsg_type != SCM_RIGHTS)
            continue;
        n = (m->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(m) + i * sizeof(int), sizeof(fd));
            if (c->nfds < CLIENT_FDS_MAX) {
                c->fds[c->nfds++] = fd;
            } else {
                close(fd);
                fits = false;
            }
        }
    }
    return fits;
}

static ssize_t recv_with_fds(struct client_socket *c, void *buf, size_t n, int flags)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * (CLIENT_FDS_MAX + 1))];
    } control;
    struct iovec iov = {.iov_base = buf, .iov_len = n};
    struct msghdr msg = {
        .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes),
    };
    ssize_t got = recvmsg(c->fd, &msg, flags | MSG_CMSG_CLOEXEC);

    if (got >= 0 && !collect_fds(c, &msg)) {
        errno = EPROTO;
        return -1;
    }
    return got;
}

/* Makes room behind in_tail for the rest of the arriving frame. A frame never exceeds in_cap, so
 * moving the remaining bytes to the front always makes room. */
static void make_room(struct client_socket *c)
{
    if (c->in_head == c->in_tail) {
        c->in_head = c->in_tail = 0;
    } else if (c->in_cap - c->in_tail < CLIENT_IN_EXTRA) {
        memmove(c->in, c->in + c->in_head, c->in_tail - c->in_head);
        c->in_tail -= c->in_head;
        c->in_head = 0;
    }
}

enum tern_err client_socket_recv(struct client_socket *c, uint32_t wait_ms)
{
    int flags = wait_ms ? 0 : MSG_DONTWAIT;
    ssize_t n;

    if (!is_up(c))
        return TERN_DAEMON_LOST;
    make_room(c);
    if (wait_ms && c->recv_ms != wait_ms) {
        set_timeout(c->fd, SO_RCVTIMEO, wait_ms);
        c->recv_ms = wait_ms;
    }
    if (c->fds_expected)
        n = recv_with_fds(c, c->in + c->in_tail, c->in_cap - c->in_tail, flags);
    else
        n = recv(c->fd, c->in + c->in_tail, c->in_cap - c->in_tail, flags);
    if (n > 0) {
        c->in_tail += (uint32_t)n;
        return TERN_OK;
    }
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return wait_ms ? TERN_TIMED_OUT : TERN_BUSY;
    client_socket_lose(c);
    return TERN_DAEMON_LOST;
}

enum tern_err client_socket_wait(struct client_socket *c, uint64_t deadline_ns)
{
    for (;;) {
        struct pollfd p = {.fd = c->fd, .events = POLLIN};
        uint64_t now = client_socket_now_ns(), left_ms;
        int rc;

        if (now >= deadline_ns)
            return TERN_TIMED_OUT;
        left_ms = (deadline_ns - now + 999999) / 1000000;
        if (client_socket_wants_write(c))
            p.events |= POLLOUT;
        rc = poll(&p, 1, left_ms > INT32_MAX ? INT32_MAX : (int)left_ms);
        if (rc > 0)
            return TERN_OK;
        if (rc < 0 && errno != EINTR)
            return TERN_TIMED_OUT; /* no memory for poll: the caller may retry, too */
    }
}

enum tern_err client_socket_take_fds(struct client_socket *c, int *ret, uint32_t n, uint32_t *ret_n)
{
    if (c->nfds == 0 || c->nfds > n) {
        client_socket_drop_fds(c);
        return TERN_MALFORMED;
    }
    memcpy(ret, c->fds, c->nfds * sizeof(*ret));
    *ret_n = c->nfds;
    c->nfds = 0;
    return TERN_OK;
}

void client_socket_drop_fds(struct client_socket *c)
{
    while (c->nfds > 0)
        close(c->fds[--c->nfds]);
}
