/* Opening streams, and the deadlines of those that are open. See stream.h. Invariant: the next
 * sweep closes a stream that is past a deadline. */
#include "shell/stream/stream.h"

#include "base/check.h"
#include "shell/stream/stream_internal.h"

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
    s->prev = NULL;
    s->next = pool->open;
    if (s->next)
        s->next->prev = s;
    pool->open = s;
    s->recv.done = stream_recv_done;
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
    stream_feed_records(s, &none, &n); /* the side that dialled sends first */
}

static bool is_past(uint64_t deadline_ns, uint64_t now_ns)
{
    return deadline_ns && now_ns >= deadline_ns;
}

/* Returns true if the rest of a frame is late, not if received bytes wait for us. */
static bool is_frame_late(const struct stream *s, uint64_t now_ns)
{
    return s->input_state == STREAM_INPUT_ASKED && is_past(s->partial_ns, now_ns);
}

static struct stream *find_overdue(const struct stream_pool *pool, uint64_t now_ns)
{
    struct stream *s = pool->open;

    while (s && !is_frame_late(s, now_ns) && !is_past(s->send_ns, now_ns))
        s = s->next;
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
