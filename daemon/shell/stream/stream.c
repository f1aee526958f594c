/* Opening, receiving and deadlines: delivers frames by turns, whole ones in place and gathered ones
 * from pieces, and decodes TLS records. See stream.h. Invariant: no frame is delivered after the
 * stream was closed or finished; a turn is bounded for any input; the next sweep closes a stream
 * that is past a deadline. */
#include "shell/stream/stream.h"

#include <errno.h>

#include "base/check.h"
#include "base/container.h"
#include "shell/stream/stream_internal.h"

/* The first bytes of a TLS record: its type, then 3.1 or 3.3. */
#define TLS_RECORD_MIN 20
#define TLS_RECORD_MAX 23
#define TLS_MAJOR      3
#define TLS_AS_LENGTH  0x10000u /* a record read as a frame's length is at least this */

/* A frame arrives in a few pieces, unless the client wants many reads. */
#define PIECE_BYTES 4096
#define PIECES_MAX  8u

/* Plain bytes taken from a TLS record at a time: a few small frames. */
#define TLS_BITE_BYTES 1024

static void deliver(struct stream *s, const struct frame_header *h, const uint8_t *body)
{
    s->partial_ns = 0;
    s->pieces = 0;
    s->ops->frame(s, h, body);
    stream_body_put(s);
}

/* Finds room for the body of a frame that arrives in pieces and whose header is complete. */
static void find_room(struct stream *s, const struct frame_header *h)
{
    struct stream_inputs *in = &s->pool->inputs[s->share];

    if (h->length <= STREAM_SMALL_BYTES)
        s->splitter.body = s->small;
    else
        s->splitter.body = in->nbodies ? in->bodies[--in->nbodies] : NULL;
    if (!s->splitter.body)
        s->ops->refused(s, h);
}

/* Returns true if a TLS record begins in place of a frame. Its bytes, read as a frame's length,
 * exceed the length of any frame before a greeting, so the first bytes suffice. (An alert is
 * shorter than a frame's head.) */
static bool meets_tls(const struct stream *s, const uint8_t *in, size_t n)
{
    const uint8_t *head = s->splitter.have > 0 ? s->splitter.head : in;
    size_t have = s->splitter.have > 0 ? s->splitter.have : n;

    return !s->tls && s->ops->tls_met && s->splitter.body_max < TLS_AS_LENGTH && have >= 3 &&
           head[0] >= TLS_RECORD_MIN && head[0] <= TLS_RECORD_MAX && head[1] == TLS_MAJOR &&
           (head[2] == 1 || head[2] == 3);
}

/* Consumes bytes until a frame ends or none is left. */
static void feed_frame(struct stream *s, const uint8_t **in, size_t *n)
{
    uint32_t before = s->pool->turn_frames;

    while (*n > 0 && s->state == STREAM_OPEN && s->pool->turn_frames == before) {
        bool begun = s->splitter.have > 0;
        struct frame_header h;
        const uint8_t *body;
        enum tern_err err;
        enum split split = splitter_next(&s->splitter, in, n, &h, &body, &err);

        if ((split == SPLIT_BAD || split == SPLIT_MORE) && meets_tls(s, *in, *n)) {
            s->ops->tls_met(s);
            return;
        }
        if (!begun && s->splitter.have > 0)
            s->partial_ns = io_now_ns() + s->pool->config.partial_ns;
        s->pool->turn_frames += split == SPLIT_FRAME || split == SPLIT_SKIPPED;
        switch (split) {
        case SPLIT_MORE: break;
        case SPLIT_FRAME: deliver(s, &h, body); break;
        case SPLIT_ROOM: find_room(s, &h); break;
        case SPLIT_SKIPPED: s->partial_ns = 0; break;
        case SPLIT_BAD:
            stream_close(s, err == TERN_UNSUPPORTED ? "frame version" : "frame length");
            break;
        }
    }
}

/* A long body is taken as it arrives, without any bytes after it. */
static size_t bite_bytes(const struct splitter *s)
{
    size_t missing =
        s->have < FRAME_HEADER_BYTES ? 0 : FRAME_HEADER_BYTES + s->header.length - s->have;

    return missing > TLS_BITE_BYTES ? missing : TLS_BITE_BYTES;
}

/* Consumes TLS records, or part of one, and delivers the frames in them; with no bytes, starts the
 * session. Returns false when all bytes are consumed. */
static bool feed_records(struct stream *s, const uint8_t **in, size_t *n)
{
    const uint8_t *plain = NULL;
    size_t plain_n = 0;

    if (!tls_secured(s->tls))
        s->pool->turn_frames = STREAM_TURN_FRAMES; /* a signature takes as long as many frames */
    switch (tls_take(s->tls, in, n, bite_bytes(&s->splitter), &plain, &plain_n)) {
    case TLS_WANTS: return false;
    case TLS_SECURED:
        s->partial_ns = io_now_ns() + s->pool->config.partial_ns;
        s->ops->secured(s);
        break;
    case TLS_BYTES:
        while (plain_n > 0 && s->state == STREAM_OPEN)
            feed_frame(s, &plain, &plain_n);
        break;
    case TLS_ENDED: stream_close_by_peer(s, "closed by the other side"); break;
    case TLS_FAILED: /* the last record is an alert that names the reason; it is still sent */
        s->ops->tls_refused(s, tls_refusal_of(s->tls), tls_detail(s->tls));
        stream_finish(s, "TLS failed");
        break;
    }
    return true;
}

/* Processes a frame, or the frames in a TLS record. Returns the bytes of requests and answers. */
static uint64_t serve(struct stream *s)
{
    uint64_t before = s->queued_bytes;
    size_t n = s->input_n;
    bool left = false;

    if (s->state == STREAM_OPEN && s->tls) {
        left = feed_records(s, &s->input, &s->input_n);
    } else if (s->state == STREAM_OPEN) {
        feed_frame(s, &s->input, &s->input_n);
        left = s->input_n > 0;
    }
    n = n - s->input_n + (size_t)(s->queued_bytes - before);
    if (left && s->state == STREAM_OPEN)
        stream_input_ready(s);
    else
        stream_input_used(s);
    stream_finish_if_quiet(s);
    return n;
}

static void share_turn(struct stream_pool *pool, uint32_t share)
{
    uint64_t bytes = 0, start = io_now_ns(), now = start;
    struct stream *s;

    pool->turn_frames = 0;
    while (pool->turn_frames < STREAM_TURN_FRAMES && bytes < STREAM_TURN_BYTES &&
           now - start < STREAM_TURN_NS && (s = stream_input_serve(pool, share)) != NULL) {
        bytes += serve(s);
        now = io_now_ns();
    }
    pool->inputs[share].slow = now - start > STREAM_SLOW_NS;
}

void stream_pool_serve(struct stream_pool *pool)
{
    uint32_t slow[STREAM_SHARES_MAX], n = 0;

    for (uint32_t share = 0; pool->nready > n && share < pool->config.shares; share++) {
        const struct stream_inputs *in = &pool->inputs[share];

        if (!fifo_first(&in->ready, struct stream, input_link))
            continue;
        if (in->slow)
            slow[n++] = share;
        else
            share_turn(pool, share);
    }
    if (n == 0)
        return;
    stream_pool_send(pool);
    io_submit(pool->config.io);
    for (uint32_t i = 0; i < n; i++)
        share_turn(pool, slow[i]);
}

static void recv_done(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct stream *s = container_of(op, struct stream, recv);
    struct stream_pool *pool = s->pool;

    if (pool->mute)
        return;
    if (res > 0) {
        check(flags & IO_BUFFER);
        if (res < PIECE_BYTES && ++s->pieces > PIECES_MAX)
            stream_aside(s, 0); /* many small reads, few answers */
        stream_input_keep(s, buffer, (size_t)res);
        return;
    }
    if (flags & IO_BUFFER)
        io_buffer_put(pool->config.io, buffer);
    if (res == -ENOBUFS && s->state != STREAM_CLOSED) {
        stream_input_starve(s);
        return;
    }
    stream_input_state_move(&s->input_state, STREAM_INPUT_NONE);
    stream_input_wake(pool, s->share);
    if (s->state == STREAM_CLOSED) {
        stream_finish_if_quiet(s);
    } else if (res == -EBADMSG) {
        s->ops->brought(s);
        stream_close(s, "the client sent descriptors, which the daemon never accepts");
    } else {
        stream_close_by_peer(s, res == 0 ? "closed by the other side" : "receive failed");
    }
}

void stream_open(struct stream *s, struct stream_pool *pool, const struct stream_ops *ops, int fd,
                 uint32_t share, uint32_t body_max, uint32_t send_buffers_max)
{
    check(s->state == STREAM_UNUSED && s->input_state == STREAM_INPUT_NONE && !s->first);
    check(share < pool->config.shares && body_max <= pool->config.big_bytes);
    s->pool = pool;
    s->ops = ops;
    stream_state_move(&s->state, STREAM_OPEN);
    s->fd = fd;
    s->client = (struct io_client){.look = false};
    if (pool->config.closer)
        io_client_init(&s->client, fd);
    s->share = share;
    s->splitter = (struct splitter){.body_max = body_max};
    s->send_buffers_max = send_buffers_max;
    s->tls = NULL;
    s->peer_closed = false;
    s->send_ns = s->queued_bytes = s->sent_bytes = s->deadline_bytes = 0;
    s->partial_ns = io_now_ns() + pool->config.partial_ns;
    LIST_INSERT_HEAD(&pool->open, s, open);
    s->recv.done = recv_done;
    s->send.done = stream_send_done;
    s->recv.aside = s->send.aside = ops->aside && io_now_ns() < pool->inputs[share].aside_until_ns;
    s->timed_ns = 0;
    s->strikes = s->pieces = 0;
    stream_input_ask(s);
}

void stream_secure(struct stream *s, struct tls_session *tls)
{
    const uint8_t *none = NULL;
    size_t n = 0;

    check(s->state == STREAM_OPEN && s->queued_bytes == 0);
    s->tls = tls;
    feed_records(s, &none, &n); /* the side that dialled sends first */
}

static bool is_past(uint64_t deadline_ns, uint64_t now_ns)
{
    return deadline_ns && now_ns >= deadline_ns;
}

/* Returns true if the rest of a frame is late. Received bytes that wait for this thread are not
 * late. */
static bool is_frame_late(const struct stream *s, uint64_t now_ns)
{
    return s->input_state == STREAM_INPUT_ASKED && is_past(s->partial_ns, now_ns);
}

static struct stream *find_overdue(const struct stream_pool *pool, uint64_t now_ns)
{
    struct stream *s;

    LIST_FOREACH (s, &pool->open, open)
        if (is_frame_late(s, now_ns) || is_past(s->send_ns, now_ns))
            break;
    return s;
}

static void overdue(struct stream *s, uint64_t now_ns)
{
    if (!is_frame_late(s, now_ns)) {
        stream_close(s, "reads too slowly");
    } else if (s->tls && !tls_secured(s->tls)) {
        s->ops->tls_refused(s, TLS_TIMEOUT,
                            "no TLS handshake within deadlines.progress_ms: the other daemon "
                            "hangs, or the network drops packets");
        stream_close(s, "no TLS handshake within the deadline");
    } else {
        stream_close(s, "no whole frame within the deadline");
    }
}

/* Starts from the front again after each stream: the end of one may have ended others. */
void stream_pool_sweep(struct stream_pool *pool, uint64_t now_ns)
{
    struct stream *s;

    while ((s = find_overdue(pool, now_ns)) != NULL)
        overdue(s, now_ns);
}
