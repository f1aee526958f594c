/* Shared by the files of the streams, lowest first: stream_pool.c (buffers), stream_input.c (which
 * stream is served or receives next), stream_close.c (the end), stream_send.c, stream.c (opening,
 * receiving and deadlines). Each calls those before it. */
#ifndef SHELL_STREAM_INTERNAL_H
#define SHELL_STREAM_INTERNAL_H

#include "shell/stream/stream.h"

/* A share: its streams with input, its buffers for large bodies, its send buffers. */
struct stream_inputs {
    struct fifo ready, starved;
    uint32_t kept;    /* receive buffers in use by its streams */
    uint8_t **bodies; /* free buffers for large bodies: a stack */
    uint32_t nbodies;
    uint32_t used;           /* send buffers, beyond one per stream */
    uint64_t aside_until_ns; /* streams opened before this time use a thread of the kernel */
    bool slow;               /* its last turn took longer than STREAM_SLOW_NS */
};

struct stream_pool {
    struct stream_config config;
    LIST_HEAD(, stream) open;
    struct fifo dirty; /* streams with bytes queued since the last flush */
    struct send_buffer *send_buffers, *send_buffers_free;
    uint32_t common_free;         /* of config.send_buffers */
    struct stream_inputs *inputs; /* by share */
    struct fifo asking;           /* streams whose receive the next flush posts */
    uint32_t nready;              /* streams in all `ready` lists */
    uint32_t turn_frames;         /* frames delivered in the current turn */
    bool doomed;                  /* a stream is DOOMED */
    uint64_t timed_ns;            /* next time at which a flush times its sends */
    bool mute;                    /* stream_ops are not called any more */
    uint64_t ndoomed;
    uint8_t *big; /* buffers for large bodies, big_bytes each */
    size_t big_size;
    uint8_t **big_free; /* memory of the shares' stacks */
};

/* Returns the large buffer, if the stream has one, when no frame is arriving any more. */
void stream_body_put(struct stream *s);

/* Appends an empty buffer to the send queue. NULL: no buffer is free. */
struct send_buffer *send_buffer_take(struct stream *s);
void send_buffer_put_first(struct stream *s);
void send_buffers_drop(struct stream *s); /* all that no send in flight reads */

/* Returns how many more buffers the stream may take from its share. */
uint32_t send_buffers_left(const struct stream *s);

/* Requests a receive, which stream_input_post posts after the answers of a turn are sent. */
void stream_input_ask(struct stream *s);
void stream_input_post(struct stream_pool *pool);
/* Call it when the stream has received n bytes into that buffer. */
void stream_input_keep(struct stream *s, uint32_t buffer, size_t n);
/* Call it when the share had no receive buffer: the stream receives once a buffer was returned. */
void stream_input_starve(struct stream *s);
/* Lets a stream that waits for a buffer try again: a buffer was returned or not needed. */
void stream_input_wake(struct stream_pool *pool, uint32_t share);
/* Returns the stream whose turn it is; NULL: no stream of the share has input. End the turn with
 * one of the next two functions. */
struct stream *stream_input_serve(struct stream_pool *pool, uint32_t share);
void stream_input_ready(struct stream *s); /* input is left, or was received */
void stream_input_used(struct stream *s);  /* no input is left, or the stream is closed */
/* Call it when the stream is closed and will get no buffer: the next turn serves it, to finish
 * it. */
void stream_input_closed(struct stream *s);

/* Starts the deadline for progress of all queued bytes. */
void stream_start_send_deadline(struct stream *s);
/* Closes a stream that the other side has ended. */
void stream_close_by_peer(struct stream *s, const char *why);
/* Calls `finished` for a closed stream once the ring has none of its operations. */
void stream_finish_if_quiet(struct stream *s);

/* Closes the streams whose buffers were taken, and starts a send for each with queued bytes. */
void stream_pool_send(struct stream_pool *pool);
void stream_send_done(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer);

#define ASIDE_SHARE_NS UINT64_C(60000000000) /* for new streams of a slow share */

/* Lets a thread of the kernel make the calls on the socket from now on. */
void stream_aside(struct stream *s, uint64_t ns);

#endif
