/* The end of a stream. See stream.h. Invariant: `finished` is called only when the ring has no
 * operation of the stream and the stream is in no list; `closed` is called exactly once before. */
#include <sys/socket.h>

#include "shell/stream/stream_internal.h"

void stream_start_send_deadline(struct stream *s)
{
    s->deadline_bytes = s->queued_bytes;
    if (!s->send_ns)
        s->send_ns = io_now_ns() + s->pool->config.slow_ns;
}

static void is_closed(void *ctx)
{
    struct stream *s = ctx;

    stream_state_move(&s->state, STREAM_UNUSED);
    s->ops->finished(s);
}

void stream_finish_if_quiet(struct stream *s)
{
    int fd = s->fd;

    if (s->state != STREAM_CLOSED || s->input_state != STREAM_INPUT_NONE || s->send_posted)
        return;
    while (s->first)
        send_buffer_put_first(s);
    s->fd = -1;
    if (closer_close(s->pool->config.closer, s->share, fd, is_closed, s))
        is_closed(s);
    else
        stream_state_move(&s->state, STREAM_CLOSING);
}

/* Ends a posted receive and a posted send. A shutdown would wake all waiters on a client's end, any
 * number of them, in this thread; the close wakes them in its own thread. */
static void end_operations(struct stream *s)
{
    if (!s->ops->aside) {
        shutdown(s->fd, SHUT_RDWR);
        return;
    }
    stream_input_post(s->pool); /* a receive that is not posted yet cannot be cancelled */
    io_cancel(s->pool->config.io, &s->recv);
    io_cancel(s->pool->config.io, &s->send);
}

void stream_close(struct stream *s, const char *why)
{
    if (s->state == STREAM_UNUSED || s->state == STREAM_CLOSED || s->state == STREAM_CLOSING)
        return;
    if (s->state == STREAM_FLUSHING || s->state == STREAM_DOOMED) {
        why = s->close_reason;
        s->peer_closed = false;
    }
    stream_state_move(&s->state, STREAM_CLOSED);
    stream_body_put(s);
    send_buffers_drop(s);
    stream_input_closed(s);
    LIST_REMOVE(s, open);
    end_operations(s);
    s->ops->closed(s, why);
    stream_finish_if_quiet(s);
}

void stream_close_by_peer(struct stream *s, const char *why)
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
    stream_state_move(&s->state, STREAM_FLUSHING);
    s->close_reason = why;
    stream_start_send_deadline(s);
    stream_body_put(s);
    s->partial_ns = 0;
}
