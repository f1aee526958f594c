/* Sending: the queue, one send in flight, TLS records. Invariant: a frame is queued whole or the
 * stream is closed; descriptors leave with its first byte. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/container.h"
#include "shell/stream/stream_internal.h"

#define ASIDE_FLUSH_NS 200000u   /* between two flushes whose sends are timed */
#define ASIDE_EVERY_NS 10000000u /* between two timed sends of one stream */
#define ASIDE_SEND_NS  100000u   /* of this thread's time, for a send and for each of its bytes */
#define ASIDE_BYTE_NS  2u
#define ASIDE_STRIKES  4u /* consecutive: a single one may be an interrupt */

/* Caller has checked that the queue is not empty and no send is in flight. */
static void send_start(struct stream *s)
{
    struct send_buffer *c = s->first;
    size_t n = 0;

    s->send_posted = true;
    s->send_buffers_posted = 1;
    if (!c->next && c->nfds == 0) {
        io_send(s->pool->config.io, &s->send, s->fd, c->data + c->sent, c->used - c->sent, false);
        return;
    }
    memset(&s->msg, 0, sizeof(s->msg));
    if (c->nfds) {
        struct cmsghdr *cm = (struct cmsghdr *)(void *)s->control;

        memset(s->control, 0, sizeof(s->control));
        cm->cmsg_level = SOL_SOCKET;
        cm->cmsg_type = SCM_RIGHTS;
        cm->cmsg_len = CMSG_LEN(c->nfds * sizeof(int));
        memcpy(CMSG_DATA(cm), c->fds, c->nfds * sizeof(int));
        s->msg.msg_control = s->control;
        s->msg.msg_controllen = CMSG_SPACE(c->nfds * sizeof(int));
    }
    for (; c && n < STREAM_IOV_MAX && (n == 0 || c->nfds == 0); c = c->next)
        s->iov[n++] = (struct iovec){c->data + c->sent, c->used - c->sent};
    s->msg.msg_iov = s->iov;
    s->msg.msg_iovlen = n;
    s->send_buffers_posted = (uint32_t)n;
    io_sendmsg(s->pool->config.io, &s->send, s->fd, &s->msg);
}

/* Replaces the queue's first frame by one without descriptors. Returns false if it cannot. */
static bool replace_first(struct stream *s)
{
    struct send_buffer *c = s->first;
    struct frame_header h;
    const uint8_t *frame;
    size_t old, n;

    if (!s->ops->fds_refused || !c->nfds ||
        frame_decode(c->data, s->splitter.body_max, &h) != TERN_OK)
        return false;
    old = FRAME_HEADER_BYTES + h.length;
    n = s->ops->fds_refused(s, &h, &frame);
    if (old > c->used || c->used - old + n > sizeof(c->data))
        return false;
    memmove(c->data + n, c->data + old, c->used - old);
    memcpy(c->data, frame, n);
    c->used = (uint32_t)(c->used - old + n);
    c->nfds = 0;
    s->queued_bytes += n - old;
    s->deadline_bytes += n - old;
    return true;
}

void stream_send_done(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct stream *s = container_of(op, struct stream, send);
    bool progress = false;

    (void)flags, (void)buffer;
    if (s->pool->mute)
        return;
    s->send_posted = false;
    if (s->state == STREAM_CLOSED) {
        stream_finish_if_quiet(s);
        return;
    }
    if (s->state == STREAM_DOOMED)
        return;
    if (res == -ETOOMANYREFS && replace_first(s)) {
        send_start(s);
        return;
    }
    if (res < 0) {
        stream_close_by_peer(s, "send failed");
        return;
    }
    s->sent_bytes += (uint32_t)res;
    for (uint32_t left = (uint32_t)res; left > 0;) {
        struct send_buffer *c = s->first;
        uint32_t n = c->used - c->sent < left ? c->used - c->sent : left;

        c->sent += n;
        c->nfds = 0;
        left -= n;
        if (c->sent < c->used)
            break;
        send_buffer_put_first(s);
        progress = true;
    }
    if (s->sent_bytes >= s->deadline_bytes)
        s->send_ns = 0;
    else if (progress)
        s->send_ns = io_now_ns() + s->pool->config.slow_ns;
    if (s->first) {
        send_start(s);
        return;
    }
    if (s->state == STREAM_FLUSHING)
        stream_close(s, s->close_reason);
}

bool stream_fits(const struct stream *s, size_t n)
{
    uint32_t own = s->send_buffers_max - s->send_buffers,
             shared = send_buffers_left(s) + (s->send_buffers == 0);

    /* Ignores the room in the last send buffer, so the result is slightly pessimistic. */
    if (s->tls)
        n += (n / TLS_PLAIN_BYTES + 1) * TLS_RECORD_OVERHEAD;
    return n <= sizeof(s->last->data) * (size_t)(own < shared ? own : shared);
}

/* Queues bytes that the socket sends unchanged. Returns false if not all fit: the caller closes. */
static bool enqueue(struct stream *s, const uint8_t *frame, size_t n, const int *fds, uint32_t nfds)
{
    while (n > 0) {
        struct send_buffer *c = s->last;
        uint32_t room;

        if (!c || c->used == sizeof(c->data) || nfds > 0)
            c = send_buffer_take(s);
        if (!c)
            return false;
        for (; nfds > 0; nfds--)
            c->fds[c->nfds++] = *fds++;
        room = (uint32_t)sizeof(c->data) - c->used;
        if (room > n)
            room = (uint32_t)n;
        memcpy(c->data + c->used, frame, room);
        c->used += room;
        s->queued_bytes += room;
        frame += room;
        n -= room;
    }
    if (!s->dirty) {
        s->dirty = true;
        fifo_push(&s->pool->dirty, &s->dirty_link);
    }
    return true;
}

bool stream_tls_send(void *stream, const uint8_t *bytes, size_t n)
{
    struct stream *s = stream;

    if (s->state != STREAM_OPEN || !enqueue(s, bytes, n, NULL, 0))
        return false;
    stream_start_send_deadline(s);
    return true;
}

static bool put(struct stream *s, const uint8_t *frame, size_t n, const int *fds, uint32_t nfds)
{
    if (s->state != STREAM_OPEN)
        return false;
    check(!s->tls || (nfds == 0 && tls_secured(s->tls)));
    if (s->tls ? tls_put(s->tls, frame, n) : enqueue(s, frame, n, fds, nfds))
        return true;
    stream_close(s, s->send_buffers < s->send_buffers_max && !s->tls
                        ? "the send buffers of its share are used up: raise "
                          "limits.send_buffers, or read faster"
                        : "reads too slowly: its send queue is full");
    return false;
}

bool stream_put(struct stream *s, const uint8_t *frame, size_t n, const int *fds, uint32_t nfds)
{
    if (!put(s, frame, n, fds, nfds))
        return false;
    stream_start_send_deadline(s);
    return true;
}

bool stream_has_spare_buffer(const struct stream *s)
{
    const struct stream_pool *pool = s->pool;

    return s->send_buffers == 0 ||
           (s->send_buffers < s->send_buffers_max &&
            pool->inputs[s->share].used < pool->config.send_buffers_reserved[s->share] / 2);
}

bool stream_put_no_deadline(struct stream *s, const uint8_t *frame, size_t n)
{
    return put(s, frame, n, NULL, 0);
}

static void close_doomed(struct stream_pool *pool)
{
    struct stream *s;

    pool->doomed = false;
    do {
        LIST_FOREACH (s, &pool->open, open)
            if (s->state == STREAM_DOOMED)
                break;
        if (s)
            stream_close(s, s->close_reason);
    } while (s);
}

void stream_aside(struct stream *s, uint64_t ns)
{
    if (s->send.aside || !s->ops->aside)
        return;
    s->send.aside = s->recv.aside = true;
    s->ops->aside(s, ns);
}

/* A send or a receive on a Unix socket wakes all waiters on the client's end and takes the caller's
 * time for that. A client can add thousands of epolls to its end, and to the ends of its next
 * connections. */
static void share_aside(struct stream *s, uint64_t ns)
{
    struct stream_pool *pool = s->pool;
    struct stream *t;

    pool->inputs[s->share].aside_until_ns = io_now_ns() + ASIDE_SHARE_NS;
    stream_aside(s, ns);
    LIST_FOREACH (t, &pool->open, open)
        if (t->share == s->share && t->ops->aside)
            t->send.aside = t->recv.aside = true;
}

static uint64_t own_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void send_timed(struct stream *s, uint64_t now_ns)
{
    uint64_t bytes = s->queued_bytes - s->sent_bytes, before, took;

    s->timed_ns = now_ns + ASIDE_EVERY_NS;
    s->pool->timed_ns = now_ns + ASIDE_FLUSH_NS;
    io_submit(s->pool->config.io);
    before = own_ns();
    send_start(s);
    io_submit(s->pool->config.io);
    took = own_ns() - before;
    s->strikes = took > ASIDE_SEND_NS + bytes * ASIDE_BYTE_NS ? s->strikes + 1 : 0;
    if (s->strikes >= ASIDE_STRIKES)
        share_aside(s, took);
}

void stream_pool_send(struct stream_pool *pool)
{
    const uint64_t now_ns = pool->dirty.first ? io_now_ns() : 0;
    const bool timed = now_ns >= pool->timed_ns;
    struct stream *s;

    while (pool->doomed)
        close_doomed(pool);
    while ((s = fifo_pop(&pool->dirty, struct stream, dirty_link)) != NULL) {
        s->dirty = false;
        if ((s->state != STREAM_OPEN && s->state != STREAM_FLUSHING) || !s->first || s->send_posted)
            continue;
        if (timed && now_ns >= s->timed_ns && s->ops->aside && !s->send.aside)
            send_timed(s, now_ns);
        else
            send_start(s);
    }
}

void stream_pool_flush(struct stream_pool *pool)
{
    stream_pool_send(pool);
    stream_input_post(pool);
}
