/* Receiving: frames are handed out in place where they came whole and gathered where they came in
 * pieces; TLS records on their way in. See stream.h. What must stay true: no frame is handed out
 * after the stream was closed or finished. */
#include <errno.h>
#include <string.h>

#include "shell/stream/stream_internal.h"

static void deliver(struct stream *s, const struct frame_header *h, const uint8_t *body)
{
    s->partial_ns = 0;
    s->ops->frame(s, h, body);
    stream_body_put(s);
}

/* The header of a frame that comes in pieces is there: finds room for the body. */
static void find_room(struct stream *s, const struct frame_header *h)
{
    s->splitter.body = h->length <= STREAM_SMALL_BYTES ? s->small : stream_body_take(s);
    if (!s->splitter.body)
        s->ops->refused(s, h);
}

static void feed(struct stream *s, const uint8_t *in, size_t n)
{
    while (n > 0 && s->state == STREAM_OPEN) {
        bool begun = s->splitter.have > 0;
        struct frame_header h;
        const uint8_t *body;
        enum tern_err err;
        enum split split = splitter_next(&s->splitter, &in, &n, &h, &body, &err);

        if (!begun && s->splitter.have > 0)
            s->partial_ns = io_now_ns() + s->pool->config.partial_ns;
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
