/* The TCP transport: pages travel on the data connection that requests them. ask.c has
 * the transport and its life, cuts batches into pieces and requests them; receive.c receives
 * answers, and answer.c is the source's side. data_conn.h has the connections. */
#ifndef SEAM_XFER_TCP_H
#define SEAM_XFER_TCP_H

#include "seam/xfer/conn/data_conn.h"
#include "seam/xfer/flow/transport.h"

extern const struct transport_ops tcp_transport;

/* Page bytes of one request, unless one page is larger. Less in the simulator. */
#ifndef TCP_PIECE_BYTES
#define TCP_PIECE_BYTES (512u << 10)
#endif
/* Page bytes requested on one connection and not yet received: enough that a source has the next
 * piece while it sends one, but little, so that the next tenant waits briefly. With twice as much,
 * 1 MiB beside a flood took 1.4 ms instead of 1.0, and no transfer was faster. At least one piece
 * is always requested. */
#ifndef TCP_PATH_BYTES
#define TCP_PATH_BYTES (1u << 20)
#endif
#define TCP_ASKED_MAX  64u         /* pieces requested and not yet answered, a power of two */
#define TCP_SCRATCH    (64u << 10) /* buffer for skipped bytes, and one of zeros */
#define TCP_SKIP_PARTS 16u         /* stretches in one receive of skipped bytes */

struct tcp {
    uint8_t *scratch, *zeros; /* owned, TCP_SCRATCH each */
};

/* A requested piece. */
struct tcp_asked {
    struct batch_part part; /* batch NONE: the pull has ended, skip the answer */
    uint32_t seq;
};

#define TCP_ANSWER_STATE_TABLE(X)                                                                  \
    X(TCP_ANSWER, HEAD, TO(TCP_ANSWER, BODY),                                                      \
      "the head of the next answer is being received, if an answer is due")                        \
    X(TCP_ANSWER, BODY, TO(TCP_ANSWER, HEAD),                                                      \
      "the checksums, the pages and the tail of the answer are being received")

STATE_MACHINE(tcp_answer, TCP_ANSWER, TCP_ANSWER_STATE_TABLE)

/* The destination's state of a connection. */
struct tcp_caller {
    struct tcp_asked asked[TCP_ASKED_MAX];
    uint32_t asked_at, nasked, seq; /* ring */
    uint64_t asked_bytes;           /* page bytes of those */
    enum tcp_answer_state state;
    uint32_t head_at;   /* bytes of the head received */
    uint32_t told;      /* leading pages of this piece that were reported to the batch */
    uint64_t body_then; /* body_left when the receive in flight was posted */
    /* The fields below belong to the data thread while its receive of pages is away. */
    struct batch_part part; /* as when it was posted; batch NONE: skip it */
    uint64_t body_left;
    uint32_t sums_bytes, sums_at, sum_next, tail_at;
    struct page_cursor cursor;       /* position of the stream in the piece's pages */
    uint64_t given[XFER_MASK_WORDS]; /* pages of this piece that the source gives */
    uint64_t right[XFER_MASK_WORDS]; /* of those, the ones that arrived and match */
    struct arrival arrival;          /* of the page at the cursor */
    uint8_t head[XFER_ANSWER_HEAD_BYTES];
    uint8_t tail[XFER_TAIL_BYTES];
};

static inline struct tcp_caller *tcp_caller_of(const struct data_conn *conn)
{
    return conn->own;
}

/* Adds `left` bytes in at most `parts` stretches of one scratch buffer. Returns true if all fit. */
static inline bool tcp_gather_again(struct data_gather *g, uint8_t *scratch, uint64_t left,
                                    uint32_t parts)
{
    for (uint64_t n; left > 0; left -= n) {
        n = left < TCP_SCRATCH ? left : TCP_SCRATCH;
        if (g->n >= parts || g->bytes_max - g->bytes < n)
            return false;
        g->iov[g->n++] = (struct iovec){scratch, n};
        g->bytes += n;
    }
    return true;
}

/* receive.c */
void tcp_receive(struct data_conn *conn);
void tcp_landed(struct data_conn *conn, uint64_t n);
bool tcp_received(struct data_conn *conn, uint64_t n);

/* answer.c */
extern const struct data_service tcp_service;

#endif
