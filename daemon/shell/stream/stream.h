/* A stream turns a socket into frames; connections of clients and links to peers are built on it.
 * It receives into a buffer of its share (a tenant, the operators, the peers) and hands out whole
 * frames in place. Only a frame that comes in pieces is gathered, in a small buffer of the stream's
 * own or in a large one that it borrows. Frames are handed out by turns (stream_pool_serve), so a
 * backlog on one stream makes nobody else wait for its end. It sends from a bounded queue of
 * buffers with one send in flight, and closes a reader that makes no progress. Who fills the send
 * buffers of its share ends itself and no other: see stream_buffers.c. With stream_secure the
 * socket carries TLS records and the frames are what they hold; nothing else changes for the owner.
 * Owner thread only; nothing here allocates after stream_pool_create. */
#ifndef SHELL_STREAM_H
#define SHELL_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
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
      "frames come and go")                                                                        \
    X(STREAM, FLUSHING, TO(STREAM, DOOMED) | TO(STREAM, CLOSED),                                   \
      "it reads no more and closes when what is queued has been sent")                             \
    X(STREAM, DOOMED, TO(STREAM, CLOSED),                                                          \
      "what it had not begun to send was taken from it: the next flush closes it")                 \
    X(STREAM, CLOSED, TO(STREAM, UNUSED) | TO(STREAM, CLOSING),                                    \
      "the owner was told; the ring still holds operations of it")                                 \
    X(STREAM, CLOSING, TO(STREAM, UNUSED), "a thread closes its descriptor")

STATE_MACHINE(stream, STREAM, STREAM_STATE_TABLE)

/* What arrives on a stream: it receives again only when it has handed out what had come. */
#define STREAM_INPUT_STATE_TABLE(X)                                                                \
    X(STREAM_INPUT, NONE, TO(STREAM_INPUT, ASKED),                                                 \
      "nothing: it is not open, or the other side has ended it")                                   \
    X(STREAM_INPUT, ASKED,                                                                         \
      TO(STREAM_INPUT, READY) | TO(STREAM_INPUT, STARVED) | TO(STREAM_INPUT, NONE),                \
      "the ring receives when there is something to read")                                         \
    X(STREAM_INPUT, READY, TO(STREAM_INPUT, SERVED),                                               \
      "its bytes wait in a receive buffer for their turn; or it was closed, and waits to be told") \
    X(STREAM_INPUT, SERVED,                                                                        \
      TO(STREAM_INPUT, READY) | TO(STREAM_INPUT, ASKED) | TO(STREAM_INPUT, NONE),                  \
      "its frames are being handed out")                                                           \
    X(STREAM_INPUT, STARVED, TO(STREAM_INPUT, ASKED) | TO(STREAM_INPUT, READY),                    \
      "has something to read, and waits for a receive buffer of its share")

STATE_MACHINE(stream_input, STREAM_INPUT, STREAM_INPUT_STATE_TABLE)

#define SEND_BUFFER_BYTES  16384  /* of the send queue */
#define STREAM_IOV_MAX     8      /* send buffers of one send */
#define STREAM_FDS_MAX     4      /* descriptors beside one frame */
#define STREAM_SMALL_BYTES 4096   /* a partial body up to this needs no borrowed buffer */
#define STREAM_TURN_FRAMES 32     /* that a share hands out in its turn, a frame of each stream */
#define STREAM_TURN_NS     250000 /* a turn that has lasted so long ends: small frames may be dear */
#define STREAM_SLOW_NS     100000 /* a share whose turn took longer is served last in the next one */
#define STREAM_TURN_BYTES  16384  /* asked and answered in a turn: what is large ends it earlier */
#define STREAM_SHARES_MAX  66     /* tenants, the operators, the peers */

struct stream;

struct stream_ops {
    /* Takes a whole frame; header and body are borrowed for the call. It may close the stream. */
    void (*frame)(struct stream *s, const struct frame_header *h, const uint8_t *body);
    /* A large frame came, and its body is thrown away because its share has no free buffer. */
    void (*refused)(struct stream *s, const struct frame_header *h);
    /* The kernel takes no descriptors from us now, so this frame was not sent. Returns the bytes of
     * another frame that goes in its place without any, in *ret_frame. */
    size_t (*fds_refused)(struct stream *s, const struct frame_header *h,
                          const uint8_t **ret_frame);
    /* Calls on the socket take long, `ns` of the owner's time: a thread of the kernel carries them
     * out from now on, and those of all streams of its share that are open or are opened within a
     * minute, of which no more is told. NULL: they are never timed. */
    void (*aside)(struct stream *s, uint64_t ns);
    /* Called once, from inside stream_close or a completion: no frame follows. `why` is static. */
    void (*closed)(struct stream *s, const char *why);
    /* Called once, after `closed`: the ring is done with it and the descriptor is closed. */
    void (*finished)(struct stream *s);
    /* The client has sent descriptors; `closed` follows. NULL: no client's stream. */
    void (*brought)(struct stream *s);
    /* For streams with TLS only. `secured` is called once, before the first frame: the other side
     * is who it must be, and frames may be put. `tls_refused` at most once, before `closed`. */
    void (*secured)(struct stream *s);
    void (*tls_refused)(struct stream *s, enum tls_refusal why, const char *detail);
    /* For streams in the clear that may meet TLS; NULL: it is a frame of a wrong length. A TLS
     * record came in place of a frame: say so, and end the stream. */
    void (*tls_met)(struct stream *s);
};

struct send_buffer {
    struct send_buffer *next;
    uint32_t used, sent;
    uint32_t nfds; /* that go with the first byte */
    int fds[STREAM_FDS_MAX];
    uint8_t data[SEND_BUFFER_BYTES];
};

struct stream {
    struct stream_pool *pool;
    const struct stream_ops *ops;
    enum stream_state state;
    int fd;
    struct io_op recv, send;
    struct io_client client;    /* how it is received */
    uint64_t timed_ns;          /* its sends are not timed before */
    uint32_t strikes;           /* timed sends in a row that took long */
    uint32_t pieces;            /* small ones received since the last whole frame */
    bool send_posted;           /* the ring still holds that operation */
    struct stream *prev, *next; /* those that are open, for the deadlines */
    struct tls_session *tls;    /* borrowed until `finished`; NULL: in the clear */
    const char *close_reason;   /* static; valid in STREAM_FLUSHING and STREAM_DOOMED */
    bool peer_closed;           /* the other side ended the stream */

    enum stream_input_state input_state;
    struct fifo_link input_link; /* of those that are READY, or STARVED, in its share */
    const uint8_t *input;        /* received and not handed out yet; NULL: it holds no buffer */
    size_t input_n;
    uint32_t input_buffer;

    /* What arrives. The owner may raise splitter.body_max; splitter.body is small, or a big one. */
    struct splitter splitter;
    uint32_t share;      /* whose big buffers and send buffers are counted */
    uint64_t partial_ns; /* the frame has to be whole by then; 0: nothing is expected */

    /* What waits to be sent. */
    struct send_buffer *first, *last;
    uint32_t send_buffers, send_buffers_max;
    uint32_t send_buffers_posted;      /* the first ones, that the send in flight reads */
    uint64_t queued_bytes, sent_bytes; /* since the stream was opened; sent: the kernel took them */
    uint64_t deadline_bytes;           /* of queued_bytes: those up to here have a deadline */
    uint64_t send_ns;                  /* they have to make progress by then; 0: none waits */
    bool dirty;                        /* stands in pool->dirty */
    struct msghdr msg;
    struct iovec iov[STREAM_IOV_MAX];
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(STREAM_FDS_MAX * sizeof(int))];

    uint8_t small[STREAM_SMALL_BYTES];
};

struct stream_config {
    struct io *io;         /* with a group of receive buffers for each share */
    struct closer *closer; /* borrowed, a lane a share; NULL: no stream is a client's */
    uint32_t streams;      /* open at a time: each can always queue one send buffer */
    uint32_t send_buffers; /* beyond that, for whoever comes first */
    uint32_t shares;
    uint32_t send_buffers_reserved[STREAM_SHARES_MAX]; /* beyond that, for each share alone */
    uint32_t bodies[STREAM_SHARES_MAX];                /* buffers for large bodies, of each share */
    uint32_t big_bytes;                                /* the largest body of any stream */
    uint64_t partial_ns, slow_ns, handshake_ns;
};

struct stream_pool;

uint64_t stream_pool_bytes(const struct stream_config *config); /* what it takes, at the most */
enum tern_err stream_pool_create(const struct stream_config *config, struct stream_pool **ret);
void stream_pool_destroy(struct stream_pool *pool); /* after io_destroy */

/* Takes fd over. The first frame has to come within the deadline of a partial frame. `s` is the
 * caller's, zeroed before its first use and otherwise as `finished` left it. */
void stream_open(struct stream *s, struct stream_pool *pool, const struct stream_ops *ops, int fd,
                 uint32_t share, uint32_t body_max, uint32_t send_buffers_max);
/* Puts a TLS session under the stream, which was made with stream_tls_send and this stream. Call it
 * directly after stream_open. The handshake has a deadline of its own; the deadline of the first
 * frame begins after it. */
void stream_secure(struct stream *s, struct tls_session *tls);
bool stream_tls_send(void *stream, const uint8_t *bytes, size_t n);

/* Queues one whole frame; it leaves at the next stream_pool_flush. False: there was no room and the
 * stream is closed now. fds are borrowed for as long as the frame is queued. */
bool stream_put(struct stream *s, const uint8_t *frame, size_t n, const int *fds, uint32_t nfds);

/* Queues a frame that the other side may leave unread for as long as it likes: at most one send
 * buffer of bytes, and only if stream_has_spare_buffer says so. */
bool stream_put_no_deadline(struct stream *s, const uint8_t *frame, size_t n);
/* Is there a send buffer that may be held for ever? It is the stream's own, or one of its share's
 * reserved ones while half of those are left for answers. */
bool stream_has_spare_buffer(const struct stream *s);

/* Has the kernel taken everything up to that value of `queued_bytes`? */
static inline bool stream_sent(const struct stream *s, uint64_t queued_bytes)
{
    return s->sent_bytes >= queued_bytes;
}

/* Would a frame of n bytes find room in the queue now? */
bool stream_fits(const struct stream *s, size_t n);

/* Reads no more, sends the queue, then closes. `why` (static) stays the reason, whoever closes. */
void stream_finish(struct stream *s, const char *why);
void stream_close(struct stream *s, const char *why);

/* Send buffers of a share beyond the one that each stream always has, and of the common rest. */
struct stream_share {
    uint32_t used, reserved, common_used, common;
    uint64_t doomed; /* streams that were ended, as they held most of a share that was used up */
};
void stream_share_view(const struct stream_pool *pool, uint32_t share, struct stream_share *ret);

/* Gives each share that has received something its turn: its streams hand out a frame each, one
 * after the other, until STREAM_TURN_FRAMES, _BYTES or _NS are used up. What is left waits
 * for the next call. Shares whose last turn was slow come last, and the answers to the others leave
 * before them. Call it after each io_run. */
void stream_pool_serve(struct stream_pool *pool);
/* Is something left for the next call? Then the loop must not wait. */
bool stream_pool_has_input(const struct stream_pool *pool);

/* From here on no owner hears of a stream: what the ring still reports is dropped, and no stream is
 * handed back. For a daemon that is being taken apart, whose other parts still run the ring. */
void stream_pool_mute(struct stream_pool *pool);
/* Another slow_ns, from the next progress of each stream on. */
void stream_pool_slow(struct stream_pool *pool, uint64_t slow_ns);

/* Closes the streams whose buffers were taken. Starts a send for each stream that had something
 * queued since the last call, then a receive for each whose input was used. */
void stream_pool_flush(struct stream_pool *pool);
/* Closes streams that are past a deadline. Call it every 100 ms or so. */
void stream_pool_sweep(struct stream_pool *pool, uint64_t now_ns);

#endif
