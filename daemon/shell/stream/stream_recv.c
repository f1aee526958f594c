/* Receiving: frames are handed out in place where they came whole and gathered where they came in
 * pieces; TLS records on their way in. See stream.h. What must stay true: no frame is handed out
 * after the stream was closed or finished. */
#include <errno.h>
#include <string.h>

#include "shell/stream/stream_internal.h"

#define stream_of(op_ptr, member)                                                                  \
    ((struct stream *)(void *)((char *)(op_ptr)-offsetof(struct stream, member)))

static void deliver(struct stream *s, const struct frame_header *h, const uint8_t *body)
{
    s->partial_ns = 0;
    s->ops->frame(s, h, body);
}

/* The header of a frame that comes in pieces is whole: finds room for the body. */
static bool gather_begin(struct stream *s)
{
    enum tern_err err = frame_decode(s->head, s->body_max, &s->header);

    if (err != TERN_OK) {
        stream_close(s, err == TERN_UNSUPPORTED ? "frame version" : "frame length");
        return false;
    }
    s->body = s->header.length <= STREAM_SMALL_BYTES ? s->small : stream_body_take(s);
    if (s->body)
        return true;
    s->skip_bytes = s->header.length;
    s->have_bytes = 0;
    s->ops->refused(s, &s->header);
    return s->state == STREAM_OPEN;
}

/* Takes bytes into the frame that comes in pieces, and returns how many it took. */
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
        stream_body_put(s);
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

/* The last record is an alert that names the reason; it still leaves. */
static void tls_failed(struct stream *s)
{
    s->ops->tls_refused(s, tls_refusal_of(s->tls), tls_detail(s->tls));
    stream_finish(s, "TLS failed");
}

/* Takes TLS records and hands out the frames in them. */
void stream_feed_records(struct stream *s, const uint8_t *in, size_t n)
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
        case TLS_ENDED: stream_close_by_peer(s, "closed by the other side"); break;
        case TLS_FAILED: tls_failed(s); break;
        }
    }
}

/* ---- the ring ---- */

void stream_recv_done(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct stream *s = stream_of(op, recv);

    if (flags & IO_BUFFER) {
        if (res > 0 && s->tls)
            stream_feed_records(s, io_buffer(s->pool->config.io, buffer), (size_t)res);
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
        stream_close_by_peer(s, res == 0 ? "closed by the other side" : "receive failed");
    else
        stream_finish_if_quiet(s);
}
