/* The input of the streams, by share: the streams whose bytes wait for their turn, and those that
 * wait for a receive buffer. Each share has its own receive buffers in the ring, and a stream has
 * at most one of them, so a backlog never uses another share's buffers. See stream.h. Invariant: a
 * stream that waits for a buffer has bytes to read; meanwhile another stream of its share has a
 * buffer or was woken, and each stream that ends its wait wakes the next. */
#include "shell/stream/stream_internal.h"

void stream_input_ready(struct stream *s)
{
    stream_input_state_move(&s->input_state, STREAM_INPUT_READY);
    fifo_push(&s->pool->inputs[s->share].ready, &s->input_link);
    s->pool->nready++;
}

void stream_input_ask(struct stream *s)
{
    stream_input_state_move(&s->input_state, STREAM_INPUT_ASKED);
    fifo_push(&s->pool->asking, &s->input_link);
}

void stream_input_post(struct stream_pool *pool)
{
    struct stream *s;

    while ((s = fifo_pop(&pool->asking, struct stream, input_link)) != NULL)
        io_recv_buffers(pool->config.io, &s->recv, &s->client, s->fd, s->share);
}

void stream_input_wake(struct stream_pool *pool, uint32_t share)
{
    struct stream *s = fifo_pop(&pool->inputs[share].starved, struct stream, input_link);

    if (s)
        stream_input_ask(s);
}

void stream_input_keep(struct stream *s, uint32_t buffer, size_t n)
{
    s->input = io_buffer(s->pool->config.io, buffer);
    s->input_n = n;
    s->input_buffer = buffer;
    s->pool->inputs[s->share].kept++;
    stream_input_ready(s);
}

void stream_input_starve(struct stream *s)
{
    struct stream_inputs *in = &s->pool->inputs[s->share];

    stream_input_state_move(&s->input_state, STREAM_INPUT_STARVED);
    fifo_push(&in->starved, &s->input_link);
    if (in->kept == 0)
        stream_input_wake(s->pool, s->share);
}

struct stream *stream_input_serve(struct stream_pool *pool, uint32_t share)
{
    struct stream *s = fifo_pop(&pool->inputs[share].ready, struct stream, input_link);

    if (!s)
        return NULL;
    pool->nready--;
    stream_input_state_move(&s->input_state, STREAM_INPUT_SERVED);
    return s;
}

static void give_back(struct stream *s)
{
    if (!s->input)
        return;
    io_buffer_put(s->pool->config.io, s->input_buffer);
    s->pool->inputs[s->share].kept--;
    s->input = NULL;
    s->input_n = 0;
}

void stream_input_used(struct stream *s)
{
    give_back(s);
    stream_input_wake(s->pool, s->share); /* first, or `s` would take its own buffer again */
    if (s->state == STREAM_CLOSED)
        stream_input_state_move(&s->input_state, STREAM_INPUT_NONE);
    else
        stream_input_ask(s);
}

void stream_input_closed(struct stream *s)
{
    if (s->input_state != STREAM_INPUT_STARVED)
        return;
    fifo_remove(&s->pool->inputs[s->share].starved, &s->input_link);
    stream_input_ready(s);
}

bool stream_pool_has_input(const struct stream_pool *pool)
{
    return pool->nready > 0;
}
