/* What the files of the streams share, lowest first: stream_pool.c (bodies), stream_buffers.c (of
 * the send queues), stream_input.c (who is served next, and who receives next), stream_close.c (the
 * end), stream_send.c, stream_recv.c, stream.c (opening and deadlines). Each calls those before it
 * alone. */
#ifndef SHELL_STREAM_INTERNAL_H
#define SHELL_STREAM_INTERNAL_H

#include "shell/stream/stream.h"

/* The input of a share: its streams that have bytes, and the buffers for large bodies. */
struct stream_inputs {
    struct fifo ready, starved;
    uint32_t kept;    /* receive buffers that its streams hold */
    uint8_t **bodies; /* free buffers for large bodies: a stack */
    uint32_t nbodies;
    uint64_t aside_until_ns; /* whatever is opened before is set aside */
    bool slow;               /* its last turn took longer than STREAM_SLOW_NS */
};

struct stream_pool {
    struct stream_config config;
    struct stream *open; /* list */
    struct stream **dirty;
    uint32_t ndirty;
    struct send_buffer *send_buffers, *send_buffers_free;
    uint32_t common_free;         /* of config.send_buffers */
    uint32_t *used;               /* of each share, beyond the one that each stream is sure of */
    struct stream_inputs *inputs; /* of each share */
    struct fifo asking;           /* streams whose receive is posted with the next flush */
    uint32_t nready;              /* streams in all lists of those that are ready */
    uint32_t turn_frames;         /* handed out in the turn that is under way */
    bool doomed;                  /* some stream is */
    uint64_t timed_ns;            /* when the sends of a flush are timed next */
    bool mute;                    /* no owner hears of a stream any more */
    uint64_t ndoomed;
    uint8_t *big; /* the buffers for large bodies, of big_bytes each */
    size_t big_size;
    uint8_t **big_free; /* room for the stacks of the shares */
};

/* A large buffer for the body of the frame that is arriving; NULL: the share holds no free one. */
uint8_t *stream_body_take(struct stream *s);
/* Gives the body's buffer back, if it has one: no frame is arriving any more. */
void stream_body_put(struct stream *s);

/* Appends an empty buffer to the send queue. NULL: there is none. */
struct send_buffer *send_buffer_take(struct stream *s);
void send_buffer_put_first(struct stream *s);
void send_buffers_drop(struct stream *s); /* all that no send in flight reads */

/* How many more the share lets a stream take. */
uint32_t send_buffers_left(const struct stream *s);

/* The ring receives for it when there is something to read, from stream_input_post on: the answers
 * of a turn leave before the receives that follow them are posted. */
void stream_input_ask(struct stream *s);
void stream_input_post(struct stream_pool *pool);
/* It has received that. */
void stream_input_keep(struct stream *s, uint32_t buffer, size_t n);
/* It found no buffer of its share: it receives when one has come back. */
void stream_input_starve(struct stream *s);
/* A stream that waits for a buffer may try: one was given back, or was not needed. */
void stream_input_wake(struct stream_pool *pool, uint32_t share);
/* Whose turn it is; NULL: none of the share has input. The turn ends with one of the next two. */
struct stream *stream_input_serve(struct stream_pool *pool, uint32_t share);
void stream_input_ready(struct stream *s); /* something is left, or has come */
void stream_input_used(struct stream *s);  /* nothing is, or nobody wants it any more */
/* The stream is closed: no buffer will come, so it is served next, to be handed back. */
void stream_input_closed(struct stream *s);

/* What is queued has to leave: from now on its progress is watched. */
void stream_start_send_deadline(struct stream *s);
/* The other side has ended it. */
void stream_close_by_peer(struct stream *s, const char *why);
/* Hands a closed stream back to its owner once the ring holds none of its operations. */
void stream_finish_if_quiet(struct stream *s);

/* Closes the streams whose buffers were taken, and starts a send for each that has queued bytes. */
void stream_pool_send(struct stream_pool *pool);
void stream_send_done(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer);

#define ASIDE_SHARE_NS UINT64_C(60000000000) /* the streams of who made one take long */

/* From now on a thread of the kernel works on the socket. */
void stream_aside(struct stream *s, uint64_t ns);

void stream_recv_done(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer);
/* Takes TLS records, or what there is of one, and hands out the frames in it; with none, lets the
 * session begin. False: all has been taken. */
bool stream_feed_records(struct stream *s, const uint8_t **in, size_t *n);

#endif
