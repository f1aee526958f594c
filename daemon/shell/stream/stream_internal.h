/* What the files of the streams share, lowest first: stream_pool.c (bodies), stream_buffers.c (of
 * the send queues), stream_close.c (the end), stream_send.c, stream_recv.c, stream.c (opening and
 * deadlines). Each calls those before it alone. */
#ifndef SHELL_STREAM_INTERNAL_H
#define SHELL_STREAM_INTERNAL_H

#include "shell/stream/stream.h"

struct stream_pool {
    struct stream_config config;
    struct stream *open; /* list */
    struct stream **dirty;
    uint32_t ndirty;
    struct send_buffer *send_buffers, *send_buffers_free;
    uint32_t common_free; /* of config.send_buffers */
    uint32_t *used;       /* of each share, beyond the one that each stream is sure of */
    bool doomed;          /* some stream is */
    uint64_t ndoomed;
    uint8_t *big; /* shares x STREAM_BIG_SHARE buffers of big_bytes */
    size_t big_size;
    uint8_t **big_free; /* a stack a share */
    uint32_t *nbig_free;
};

#define stream_of(op_ptr, member)                                                                  \
    ((struct stream *)(void *)((char *)(op_ptr)-offsetof(struct stream, member)))

/* ---- stream_pool.c ---- */

/* A large buffer for the body of the frame that is arriving; NULL: the share holds no free one. */
uint8_t *stream_body_take(struct stream *s);
/* Gives the body's buffer back, if it has one: no frame is arriving any more. */
void stream_body_put(struct stream *s);

/* ---- stream_buffers.c ---- */

/* Appends an empty buffer to the send queue. NULL: there is none. */
struct send_buffer *send_buffer_take(struct stream *s);
void send_buffer_put_first(struct stream *s);
void send_buffers_drop(struct stream *s); /* all that no send in flight reads */

/* How many more the share lets a stream take. */
uint32_t send_buffers_left(const struct stream *s);

/* ---- stream_close.c ---- */

/* What is queued has to leave: from now on its progress is watched. */
void stream_start_send_deadline(struct stream *s);
/* The other side has ended it. */
void stream_close_by_peer(struct stream *s, const char *why);
/* Hands a closed stream back to its owner once the ring holds none of its operations. */
void stream_finish_if_quiet(struct stream *s);

/* ---- stream_send.c ---- */

void stream_send_start(struct stream *s); /* something is queued, and no send is in flight */
void stream_send_done(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer);

/* ---- stream_recv.c ---- */

void stream_recv_done(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer);
/* Takes TLS records and hands out the frames in them; with none, lets the session begin. */
void stream_feed_records(struct stream *s, const uint8_t *in, size_t n);

#endif
