/* A stream reads and writes frames on a socket; connections of clients and links to peers use it. A
 * stream receives into a buffer of its share (a tenant, the operators, the peers) and delivers
 * whole frames in place; a frame in pieces is gathered in the stream's small buffer or in a large
 * one that it borrows. Frames are delivered by turns (stream_pool_serve), so a backlog on one
 * stream does not block the others. A stream sends from a bounded queue of buffers with one send in
 * flight, and closes a reader that makes no progress. A stream that fills the send buffers of its
 * share ends itself and no other: see stream_pool.c. With stream_secure the socket carries TLS
 * records that contain the frames; nothing else changes for the owner. Owner thread only.
 * Invariant: nothing here allocates after stream_pool_create. */
#ifndef SHELL_STREAM_H
#define SHELL_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/fifo.h"
#include "base/states.h"
#include "base/tern_err.h"
#include "proto/frame.h"
#include "seam/io/closer.h"
#include "shell/tls/tls.h"

/* The states of a stream, and of what arrives on it. */
#define STREAM_STATE_TABLE(X)                                                                      \
    X(STREAM, UNUSED, TO(STREAM, OPEN), "its owner may open it")                                   \
    X(STREAM, OPEN, TO(STREAM, FLUSHING) | TO(STREAM, DOOMED) | TO(STREAM, CLOSED),                \
      "frames are sent and received")                                                              \
    X(STREAM, FLUSHING, TO(STREAM, DOOMED) | TO(STREAM, CLOSED),                                   \
      "it reads no more and closes when its queue has been sent")                                  \
    X(STREAM, DOOMED, TO(STREAM, CLOSED),                                                          \
      "its unsent frames were dropped: the next flush closes it")                                  \
    X(STREAM, CLOSED, TO(STREAM, UNUSED) | TO(STREAM, CLOSING),                                    \
      "its owner was notified; the ring still has operations of it")                               \
    X(STREAM, CLOSING, TO(STREAM, UNUSED), "a thread closes its descriptor")

STATE_MACHINE(stream, STREAM, STREAM_STATE_TABLE)

/* The input of a stream: it receives again only when it has delivered all received bytes. */
#define STREAM_INPUT_STATE_TABLE(X)                                                                \
    X(STREAM_INPUT, NONE, TO(STREAM_INPUT, ASKED),                                                 \
      "nothing: the stream is not open, or the other side has ended it")                           \
    X(STREAM_INPUT, ASKED,                                                                         \
      TO(STREAM_INPUT, READY) | TO(STREAM_INPUT, STARVED) | TO(STREAM_INPUT, NONE),                \
      "a receive is in the ring")                                                                  \
    X(STREAM_INPUT, READY, TO(STREAM_INPUT, SERVED),                                               \
      "received bytes wait in a receive buffer for their turn, or an end waits to be reported")    \
    X(STREAM_INPUT, SERVED,                                                                        \
      TO(STREAM_INPUT, READY) | TO(STREAM_INPUT, ASKED) | TO(STREAM_INPUT, NONE),                  \
      "its frames are being delivered")                                                            \
    X(STREAM_INPUT, STARVED, TO(STREAM_INPUT, ASKED) | TO(STREAM_INPUT, READY),                    \
      "has something to read, and waits for a receive buffer of its share")

STATE_MACHINE(stream_input, STREAM_INPUT, STREAM_INPUT_STATE_TABLE)

#define SEND_BUFFER_BYTES  16384  /* one buffer of the send queue */
#define STREAM_IOV_MAX     8      /* buffers per send */
#define STREAM_FDS_MAX     4      /* descriptors with one frame */
#define STREAM_SMALL_BYTES 4096   /* a partial body up to this size needs no borrowed buffer */
#define STREAM_TURN_FRAMES 32     /* frames that a share delivers in its turn */
#define STREAM_TURN_NS     250000 /* longest turn: small frames may be expensive */
#define STREAM_SLOW_NS     100000 /* a share whose turn took longer is served last next time */
#define STREAM_TURN_BYTES  16384  /* bytes of requests and answers in a turn */
#define STREAM_SHARES_MAX  66     /* tenants, the operators, the peers */

struct stream;

struct stream_ops {
    /* Processes a whole frame; header and body are borrowed for the call. May close the stream. */
    void (*frame)(struct stream *s, const struct frame_header *h, const uint8_t *body);
    /* The body of a large frame is discarded because its share has no free buffer. */
    void (*refused)(struct stream *s, const struct frame_header *h);
    /* The kernel accepts no descriptors from us now, so this frame was not sent. Returns the size
     * of the frame in *ret_frame, which replaces this one and has no descriptors. */
    size_t (*fds_refused)(struct stream *s, const struct frame_header *h,
                          const uint8_t **ret_frame);
    /* Calls on the socket take long, `ns` of the owner's time. From now on a thread of the kernel
     * makes them, also for all streams of the share that are open now or opened within a minute;
     * these are not reported again. NULL: calls are never timed. */
    void (*aside)(struct stream *s, uint64_t ns);
    /* Called once, within stream_close or a completion: no frame follows. `why` is static. */
    void (*closed)(struct stream *s, const char *why);
    /* Called once, after `closed`: no operation is on the ring, and the descriptor is closed. */
    void (*finished)(struct stream *s);
    /* The client has sent descriptors; `closed` follows. NULL: not a client's stream. */
    void (*brought)(struct stream *s);
    /* With TLS only. `secured` is called once, before the first frame: the other side's name is
     * verified, frames may be queued. `tls_refused` is called at most once, before `closed`. */
    void (*secured)(struct stream *s);
    void (*tls_refused)(struct stream *s, enum tls_refusal why, const char *detail);
    /* For streams in the clear that may receive TLS: a TLS record arrived in place of a frame;
     * report that and end the stream. NULL: the record is a frame of a wrong length. */
    void (*tls_met)(struct stream *s);
};

struct send_buffer {
    struct send_buffer *next;
    uint32_t used, sent;
    uint32_t nfds; /* descriptors that leave with the first byte */
    int fds[STREAM_FDS_MAX];
    uint8_t data[SEND_BUFFER_BYTES];
};

struct stream {
    struct stream_pool *pool;
    const struct stream_ops *ops;
    enum stream_state state;
    int fd;
    struct io_op recv, send;
    struct io_client client;  /* settings of receives */
    uint64_t timed_ns;        /* its sends are not timed before then */
    uint32_t strikes;         /* consecutive timed sends that took long */
    uint32_t pieces;          /* small pieces received since the last whole frame */
    bool send_posted;         /* the ring has the send operation */
    LIST_ENTRY(stream) open;  /* in the list of open streams, for deadlines */
    struct tls_session *tls;  /* borrowed until `finished`; NULL: in the clear */
    const char *close_reason; /* static; valid in STREAM_FLUSHING and STREAM_DOOMED */
    bool peer_closed;         /* the other side ended the stream */

    enum stream_input_state input_state;
    struct fifo_link input_link; /* in its share's list of READY or STARVED streams */
    const uint8_t *input;        /* received bytes not delivered yet; NULL: no receive buffer */
    size_t input_n;
    uint32_t input_buffer;

    /* Input. The owner may raise splitter.body_max; splitter.body is `small` or a large buffer. */
    struct splitter splitter;
    uint32_t share;      /* share that the large buffers and send buffers count for */
    uint64_t partial_ns; /* deadline of a whole frame; 0: none expected */

    /* Output. */
    struct send_buffer *first, *last;
    uint32_t send_buffers, send_buffers_max;
    uint32_t send_buffers_posted;      /* first buffers, which the send in flight reads */
    uint64_t queued_bytes, sent_bytes; /* since the stream was opened; sent: to the kernel */
    uint64_t deadline_bytes; /* position in queued_bytes up to which bytes have a deadline */
    uint64_t send_ns;        /* deadline of their progress; 0: none wait */
    bool dirty;              /* is in pool->dirty */
    struct fifo_link dirty_link;
    struct msghdr msg;
    struct iovec iov[STREAM_IOV_MAX];
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(STREAM_FDS_MAX * sizeof(int))];

    uint8_t small[STREAM_SMALL_BYTES];
};

struct stream_config {
    struct io *io;         /* has a group of receive buffers for each share */
    struct closer *closer; /* borrowed, one lane per share; NULL: no clients' streams */
    uint32_t streams;      /* streams open at a time: each can always queue one send buffer */
    uint32_t send_buffers; /* more send buffers, common to all shares */
    uint32_t shares;
    uint32_t send_buffers_reserved[STREAM_SHARES_MAX]; /* more, reserved for each share */
    uint32_t bodies[STREAM_SHARES_MAX];                /* buffers for large bodies, by share */
    uint32_t big_bytes;                                /* the largest body of any stream */
    uint64_t partial_ns, slow_ns;                      /* partial_ns: of a handshake, too */
};

struct stream_pool;

uint64_t stream_pool_bytes(const struct stream_config *config); /* the most memory it takes */
enum tern_err stream_pool_create(const struct stream_config *config, struct stream_pool **ret);
void stream_pool_destroy(struct stream_pool *pool); /* call after io_destroy */

/* Takes over fd. The first frame must arrive within the deadline of a partial frame. The caller
 * owns `s`, zeroed before its first use and later as `finished` left it. */
void stream_open(struct stream *s, struct stream_pool *pool, const struct stream_ops *ops, int fd,
                 uint32_t share, uint32_t body_max, uint32_t send_buffers_max);
/* Starts TLS with a session made with stream_tls_send and this stream. Call it directly after
 * stream_open. The deadline of the first frame begins anew after the handshake. */
void stream_secure(struct stream *s, struct tls_session *tls);
bool stream_tls_send(void *stream, const uint8_t *bytes, size_t n);

/* Queues one whole frame, sent by the next stream_pool_flush. Returns false if there was no room;
 * then the stream is closed. fds are borrowed while the frame is queued. */
bool stream_put(struct stream *s, const uint8_t *frame, size_t n, const int *fds, uint32_t nfds);

/* Queues a frame without a deadline for the reader: at most one send buffer of bytes, and only if
 * stream_has_spare_buffer returns true. */
bool stream_put_no_deadline(struct stream *s, const uint8_t *frame, size_t n);
/* Returns true if a send buffer may stay in use for any length of time: the stream's own, or a
 * reserved one of its share while half of the reserved ones are left for answers. */
bool stream_has_spare_buffer(const struct stream *s);

/* Returns true if the kernel has accepted all bytes up to that value of `queued_bytes`. */
static inline bool stream_sent(const struct stream *s, uint64_t queued_bytes)
{
    return s->sent_bytes >= queued_bytes;
}

/* Returns true if the queue has room for a frame of n bytes now. */
bool stream_fits(const struct stream *s, size_t n);

/* Stops reading, sends the queue, then closes. `why` (static) stays the reason. */
void stream_finish(struct stream *s, const char *why);
void stream_close(struct stream *s, const char *why);

/* Send buffers of a share beyond one per stream, and of the shared remainder. */
struct stream_share {
    uint32_t used, reserved, common_used, common;
    uint64_t doomed; /* streams ended because they had the most buffers of a full share */
};
void stream_share_view(const struct stream_pool *pool, uint32_t share, struct stream_share *ret);

/* Serves each share with received bytes in turn: its streams deliver one frame each, round robin,
 * until STREAM_TURN_FRAMES, _BYTES or _NS are used up. The rest waits for the next call. Shares
 * with a slow last turn come last, after the others' answers. Call it after each io_run. */
void stream_pool_serve(struct stream_pool *pool);
/* Returns true if input is left for the next call: then the loop must not wait. */
bool stream_pool_has_input(const struct stream_pool *pool);

/* Stops all calls of stream_ops: completions are dropped, and no stream is `finished`. For a daemon
 * that is being destroyed while other parts still run the ring. */
void stream_pool_mute(struct stream_pool *pool);

/* Closes the streams whose buffers were taken. Starts a send for each stream with frames queued
 * since the last call, then a receive for each whose input was used. */
void stream_pool_flush(struct stream_pool *pool);
/* Closes streams that are past a deadline. Call it every 100 ms or so. */
void stream_pool_sweep(struct stream_pool *pool, uint64_t now_ns);

#endif
