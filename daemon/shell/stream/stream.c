/* Streams: gathering frames, the send queue, deadlines. See stream.h. What must stay true: a stream
 * is handed back (`finished`) only when the ring holds none of its operations, and `closed` comes
 * exactly once before that. */
#include "shell/stream/stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"

struct stream_pool {
    struct stream_config config;
    struct stream *open; /* list */
    struct stream **dirty;
    uint32_t ndirty;
    struct send_buffer *send_buffers, *send_buffers_free;
    uint32_t send_buffers_shared; /* free beyond the one that each stream is sure of */
    uint8_t *big;                 /* shares x STREAM_BIG_SHARE buffers of big_bytes */
    size_t big_size;
    uint8_t **big_free; /* a stack a share */
    uint32_t *nbig_free;
};

#define stream_of(op_ptr, member)                                                                  \
    ((struct stream *)(void *)((char *)(op_ptr)-offsetof(struct stream, member)))

uint64_t stream_pool_bytes(const struct stream_config *c)
{
    uint64_t big = (uint64_t)c->shares * STREAM_BIG_SHARE;

    return sizeof(struct stream_pool) + c->streams * sizeof(struct stream *) +
           ((uint64_t)c->streams + c->send_buffers_extra) * sizeof(struct send_buffer) +
           big * (sizeof(uint8_t *) + c->big_bytes) + c->shares * sizeof(uint32_t);
}

enum tern_err stream_pool_create(const struct stream_config *config, struct stream_pool **ret)
{
    struct stream_pool *pool = calloc(1, sizeof(*pool));
    uint32_t send_buffers = config->streams + config->send_buffers_extra;

    if (!pool)
        return TERN_INTERNAL;
    pool->config = *config;
    pool->big_size = (size_t)config->shares * STREAM_BIG_SHARE * config->big_bytes;
    pool->dirty = calloc(config->streams, sizeof(struct stream *));
    pool->send_buffers = calloc(send_buffers, sizeof(*pool->send_buffers));
    pool->big_free = calloc((size_t)config->shares * STREAM_BIG_SHARE, sizeof(uint8_t *));
    pool->nbig_free = calloc(config->shares, sizeof(*pool->nbig_free));
    pool->big = mmap(NULL, pool->big_size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pool->big == MAP_FAILED)
        pool->big = NULL;
    if (!pool->dirty || !pool->send_buffers || !pool->big_free || !pool->nbig_free || !pool->big) {
        stream_pool_destroy(pool);
        return TERN_INTERNAL;
    }
    for (uint32_t i = send_buffers; i-- > 0;) {
        pool->send_buffers[i].next = pool->send_buffers_free;
        pool->send_buffers_free = &pool->send_buffers[i];
    }
    pool->send_buffers_shared = config->send_buffers_extra;
    for (uint32_t i = 0; i < config->shares * STREAM_BIG_SHARE; i++)
        pool->big_free[i] = pool->big + (size_t)i * config->big_bytes;
    for (uint32_t i = 0; i < config->shares; i++)
        pool->nbig_free[i] = STREAM_BIG_SHARE;
    *ret = pool;
    return TERN_OK;
}

void stream_pool_destroy(struct stream_pool *pool)
{
    if (!pool)
        return;
    if (pool->big)
        munmap(pool->big, pool->big_size);
    free(pool->nbig_free);
    free(pool->big_free);
    free(pool->send_buffers);
    free(pool->dirty);
    free(pool);
}

/* ---- buffers ---- */

static uint8_t *big_take(struct stream *s)
{
    struct stream_pool *pool = s->pool;
    uint32_t *n = &pool->nbig_free[s->share];

    return *n ? pool->big_free[s->share * STREAM_BIG_SHARE + --*n] : NULL;
}

static void body_put(struct stream *s)
{
    struct stream_pool *pool = s->pool;

    if (s->body && s->body != s->small) {
        uint32_t *n = &pool->nbig_free[s->share];

        check(*n < STREAM_BIG_SHARE);
        pool->big_free[s->share * STREAM_BIG_SHARE + (*n)++] = s->body;
    }
    s->body = NULL;
    s->have_bytes = 0;
}

/* A stream's first send buffer is always there: the pool holds one for each. */
static struct send_buffer *send_buffer_take(struct stream *s)
{
    struct stream_pool *pool = s->pool;
    struct send_buffer *c = pool->send_buffers_free;

    if (s->send_buffers >= s->send_buffers_max ||
        (s->send_buffers > 0 && pool->send_buffers_shared == 0))
        return NULL;
    check(c);
    if (s->send_buffers > 0)
        pool->send_buffers_shared--;
    pool->send_buffers_free = c->next;
    c->next = NULL;
    c->used = c->sent = c->nfds = 0;
    if (s->last)
        s->last->next = c;
    else
        s->first = c;
    s->last = c;
    s->send_buffers++;
    return c;
}

static void send_buffer_put_first(struct stream *s)
{
    struct stream_pool *pool = s->pool;
    struct send_buffer *c = s->first;

    s->first = c->next;
    if (!s->first)
        s->last = NULL;
    c->next = pool->send_buffers_free;
    pool->send_buffers_free = c;
    s->send_buffers--;
    if (s->send_buffers > 0)
        pool->send_buffers_shared++;
}

/* What is queued has to leave: from now on progress is watched. */
static void start_send_deadline(struct stream *s)
{
    s->deadline_bytes = s->queued_bytes;
    if (!s->send_ns)
        s->send_ns = io_now_ns() + s->pool->config.slow_ns;
}

/* ---- closing ---- */

static void finish_if_quiet(struct stream *s)
{
    if (s->state != STREAM_CLOSED || s->recv_posted || s->send_posted)
        return;
    while (s->first)
        send_buffer_put_first(s);
    close(s->fd);
    s->fd = -1;
    s->state = STREAM_UNUSED;
    s->ops->finished(s);
}

void stream_close(struct stream *s, const char *why)
{
    if (s->state == STREAM_UNUSED || s->state == STREAM_CLOSED)
        return;
    if (s->state == STREAM_FLUSHING) {
        why = s->close_reason;
        s->peer_closed = false;
    }
    s->state = STREAM_CLOSED;
    body_put(s);
    s->skip_bytes = 0;
    if (s->prev)
        s->prev->next = s->next;
    else
        s->pool->open = s->next;
    if (s->next)
        s->next->prev = s->prev;
    s->prev = s->next = NULL;
    shutdown(s->fd, SHUT_RDWR); /* ends a receive and a send that are posted */
    s->ops->closed(s, why);
    finish_if_quiet(s);
}

static void close_by_peer(struct stream *s, const char *why)
{
    s->peer_closed = true;
    stream_close(s, why);
}

void stream_finish(struct stream *s, const char *why)
{
    if (s->state != STREAM_OPEN)
        return;
    if (!s->first) {
        stream_close(s, why);
        return;
    }
    s->state = STREAM_FLUSHING;
    s->close_reason = why;
    start_send_deadline(s);
    body_put(s);
    s->partial_ns = 0;
}

/* ---- receiving ---- */

static void deliver(struct stream *s, const struct frame_header *h, const uint8_t *body)
{
    s->partial_ns = 0;
    s->ops->frame(s, h, body);
}

/* The header of a frame in pieces is whole: find room for the body. */
static bool gather_begin(struct stream *s)
{
    enum tern_err err = frame_decode(s->head, s->body_max, &s->header);

    if (err != TERN_OK) {
        stream_close(s, err == TERN_UNSUPPORTED ? "frame version" : "frame length");
        return false;
    }
    s->body = s->header.length <= STREAM_SMALL_BYTES ? s->small : big_take(s);
    if (s->body)
        return true;
    s->skip_bytes = s->header.length;
    s->have_bytes = 0;
    s->ops->refused(s, &s->header);
    return s->state == STREAM_OPEN;
}

/* Takes bytes into the frame that is in pieces; returns how many. */
static size_t gather(struct stream *s, const uint8_t *in, size_t n)
{
    size_t want;

    if (s->have_bytes == 0)
        s->partial_ns = io_now_ns() + s->pool->config.partial_ns;
    if (s->have_bytes < FRAME_HEADER_BYTES) {
        want = FRAME_HEADER_BYTES - s->have_bytes;
        if (want > n)
            want = n;
        memcpy(s->head + s->have_bytes, in, want);
        s->have_bytes += (uint32_t)want;
        if (s->have_bytes == FRAME_HEADER_BYTES)
            gather_begin(s);
        return want;
    }
    want = FRAME_HEADER_BYTES + s->header.length - s->have_bytes;
    if (want > n)
        want = n;
    memcpy(s->body + (s->have_bytes - FRAME_HEADER_BYTES), in, want);
    s->have_bytes += (uint32_t)want;
    if (s->have_bytes == FRAME_HEADER_BYTES + s->header.length) {
        deliver(s, &s->header, s->body);
        body_put(s);
    }
    return want;
}

static size_t discard(struct stream *s, size_t n)
{
    uint32_t take = n < s->skip_bytes ? (uint32_t)n : s->skip_bytes;

    s->skip_bytes -= take;
    if (s->skip_bytes == 0)
        s->partial_ns = 0;
    return take;
}

static void feed(struct stream *s, const uint8_t *in, size_t n)
{
    while (n > 0 && s->state == STREAM_OPEN) {
        size_t took;

        if (s->skip_bytes) {
            took = discard(s, n);
        } else if (s->have_bytes == 0 && n >= FRAME_HEADER_BYTES) {
            struct frame_header h;
            enum tern_err err = frame_decode(in, s->body_max, &h);

            if (err != TERN_OK) {
                stream_close(s, err == TERN_UNSUPPORTED ? "frame version" : "frame length");
                return;
            }
            took = FRAME_HEADER_BYTES + (size_t)h.length;
            if (took <= n)
                deliver(s, &h, in + FRAME_HEADER_BYTES);
            else
                took = gather(s, in, n);
        } else {
            took = gather(s, in, n);
        }
        in += took;
        n -= took;
    }
}

/* ---- TLS ---- */

static void tls_refused(struct stream *s, enum tls_refusal why, const char *detail)
{
    s->ops->tls_refused(s, why, detail);
}

/* What was said last, an alert that names the reason, still leaves. */
static void tls_failed(struct stream *s)
{
    tls_refused(s, tls_refusal_of(s->tls), tls_detail(s->tls));
    stream_finish(s, "TLS failed");
}

/* Records in, frames out. */
static void feed_records(struct stream *s, const uint8_t *in, size_t n)
{
    while (s->state == STREAM_OPEN) {
        const uint8_t *plain = NULL;
        size_t plain_n = 0;

        switch (tls_take(s->tls, &in, &n, &plain, &plain_n)) {
        case TLS_WANTS: return;
        case TLS_SECURED:
            s->partial_ns = io_now_ns() + s->pool->config.partial_ns;
            s->ops->secured(s);
            break;
        case TLS_BYTES: feed(s, plain, plain_n); break;
        case TLS_ENDED: close_by_peer(s, "closed by the other side"); break;
        case TLS_FAILED: tls_failed(s); break;
        }
    }
}

static void recv_done(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct stream *s = stream_of(op, recv);

    if (flags & IO_BUFFER) {
        if (res > 0 && s->tls)
            feed_records(s, io_buffer(s->pool->config.io, buffer), (size_t)res);
        else if (res > 0)
            feed(s, io_buffer(s->pool->config.io, buffer), (size_t)res);
        io_buffer_put(s->pool->config.io, buffer);
    }
    if (!(flags & IO_LAST))
        return;
    if (s->state != STREAM_CLOSED && (res > 0 || res == -ENOBUFS)) {
        io_recv_buffers(s->pool->config.io, &s->recv, s->fd);
        return;
    }
    s->recv_posted = false;
    if (s->state != STREAM_CLOSED)
        close_by_peer(s, res == 0 ? "closed by the other side" : "receive failed");
    else
        finish_if_quiet(s);
}

/* ---- sending ---- */

static void send_start(struct stream *s)
{
    struct send_buffer *c = s->first;
    size_t n = 0;

    s->send_posted = true;
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
    io_sendmsg(s->pool->config.io, &s->send, s->fd, &s->msg);
}

static void send_done(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct stream *s = stream_of(op, send);
    uint64_t slow_ns = s->pool->config.slow_ns;

    (void)flags;
    (void)buffer;
    s->send_posted = false;
    if (s->state == STREAM_CLOSED) {
        finish_if_quiet(s);
        return;
    }
    if (res < 0) {
        close_by_peer(s, "send failed");
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
        s->send_ns = io_now_ns() + slow_ns;
    }
    if (s->sent_bytes >= s->deadline_bytes)
        s->send_ns = 0;
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
             shared = s->pool->send_buffers_shared + (s->send_buffers == 0);

    /* The room left in the last send buffer is not counted: a little less than there is. */
    if (s->tls)
        n += (n / TLS_PLAIN_BYTES + 1) * TLS_RECORD_OVERHEAD;
    return n <= sizeof(s->last->data) * (size_t)(own < shared ? own : shared);
}

/* Bytes as they go to the socket. False: no room for all of them; the stream is to be closed. */
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
        s->pool->dirty[s->pool->ndirty++] = s;
    }
    return true;
}

bool stream_tls_send(void *stream, const uint8_t *bytes, size_t n)
{
    struct stream *s = stream;

    if (s->state != STREAM_OPEN || !enqueue(s, bytes, n, NULL, 0))
        return false;
    start_send_deadline(s);
    return true;
}

static bool put(struct stream *s, const uint8_t *frame, size_t n, const int *fds, uint32_t nfds)
{
    if (s->state != STREAM_OPEN)
        return false;
    check(!s->tls || (nfds == 0 && tls_secured(s->tls)));
    if (s->tls ? tls_put(s->tls, frame, n) : enqueue(s, frame, n, fds, nfds))
        return true;
    stream_close(s, "reads too slowly: its send queue is full");
    return false;
}

bool stream_put(struct stream *s, const uint8_t *frame, size_t n, const int *fds, uint32_t nfds)
{
    if (!put(s, frame, n, fds, nfds))
        return false;
    start_send_deadline(s);
    return true;
}

bool stream_has_spare_buffer(const struct stream *s)
{
    const struct stream_pool *pool = s->pool;

    return s->send_buffers == 0 ||
           (s->send_buffers < s->send_buffers_max &&
            pool->send_buffers_shared > pool->config.send_buffers_extra / 2);
}

bool stream_put_no_deadline(struct stream *s, const uint8_t *frame, size_t n)
{
    return put(s, frame, n, NULL, 0);
}

void stream_pool_flush(struct stream_pool *pool)
{
    for (uint32_t i = 0; i < pool->ndirty; i++) {
        struct stream *s = pool->dirty[i];

        s->dirty = false;
        if ((s->state == STREAM_OPEN || s->state == STREAM_FLUSHING) && s->first && !s->send_posted)
            send_start(s);
    }
    pool->ndirty = 0;
}

/* ---- opening and deadlines ---- */

void stream_open(struct stream *s, struct stream_pool *pool, const struct stream_ops *ops, int fd,
                 uint32_t share, uint32_t body_max, uint32_t send_buffers_max)
{
    check(s->state == STREAM_UNUSED && !s->first);
    check(share < pool->config.shares && body_max <= pool->config.big_bytes);
    s->pool = pool;
    s->ops = ops;
    s->state = STREAM_OPEN;
    s->fd = fd;
    s->share = share;
    s->body_max = body_max;
    s->send_buffers_max = send_buffers_max;
    s->tls = NULL;
    s->peer_closed = false;
    s->have_bytes = s->skip_bytes = 0;
    s->body = NULL;
    s->send_ns = s->queued_bytes = s->sent_bytes = s->deadline_bytes = 0;
    s->partial_ns = io_now_ns() + pool->config.partial_ns;
    s->prev = NULL;
    s->next = pool->open;
    if (s->next)
        s->next->prev = s;
    pool->open = s;
    s->recv.done = recv_done;
    s->send.done = send_done;
    s->recv_posted = true;
    io_recv_buffers(pool->config.io, &s->recv, fd);
}

void stream_secure(struct stream *s, struct tls_session *tls)
{
    check(s->state == STREAM_OPEN && s->queued_bytes == 0);
    s->tls = tls;
    s->partial_ns = io_now_ns() + s->pool->config.handshake_ns;
    feed_records(s, NULL, 0); /* the one that begins says something first */
}

static bool is_past(uint64_t deadline_ns, uint64_t now_ns)
{
    return deadline_ns && now_ns >= deadline_ns;
}

static struct stream *find_overdue(const struct stream_pool *pool, uint64_t now_ns)
{
    struct stream *s = pool->open;

    while (s && !is_past(s->partial_ns, now_ns) && !is_past(s->send_ns, now_ns))
        s = s->next;
    return s;
}

static void overdue(struct stream *s, uint64_t now_ns)
{
    if (!is_past(s->partial_ns, now_ns)) {
        stream_close(s, "reads too slowly");
    } else if (s->tls && !tls_secured(s->tls)) {
        tls_refused(s, TLS_TIMEOUT, "");
        stream_close(s, "no TLS handshake within the deadline");
    } else {
        stream_close(s, "no whole frame within the deadline");
    }
}

/* From the front again after each: its end may have ended others. */
void stream_pool_sweep(struct stream_pool *pool, uint64_t now_ns)
{
    struct stream *s;

    while ((s = find_overdue(pool, now_ns)) != NULL)
        overdue(s, now_ns);
}
