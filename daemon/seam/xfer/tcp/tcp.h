/* What the files of the TCP transport share, and the few places where RDMA meets it: tcp/tcp.c
 * (create, listen, connections, time), tcp/ask.c and tcp/receive.c (the destination's side)
 * and tcp/serve.c (the source's side). Owner thread only.
 *
 * Promise P2 rests on one pair of fields: conn->recv_pull names the pull whose pages the receive in
 * flight may write, and pull->receiving counts those receives. EV_PULL_QUIET is emitted in one
 * place, with the count at 0. */
#ifndef SEAM_XFER_TCP_H
#define SEAM_XFER_TCP_H

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "seam/mem/checksum.h"
#include "seam/xfer/xfer.h"
#include "seam/xfer/data_wire.h"

/* Page bytes asked for at once, unless one page is larger. Less in the simulator. */
#ifndef XFER_PIECE_BYTES
#define XFER_PIECE_BYTES (1u << 20)
#endif

#define XFER_PIECE_SUMS 8192u /* checksums of a piece, unless one page has more */
/* Of one receive and of one send. A receive wakes the owner when all of it has come (out_await),
 * and what came is hashed while it is in cache; a send is twice that, so the source never waits for
 * the destination to hash. At 512 KiB a receive lost a third on the loopback. */
#define XFER_RECV_BYTES (256u << 10)
#define XFER_SEND_BYTES (512u << 10)
/* Of a data connection's buffers, where the system allows so much: room for a receive that waits to
 * be whole, one that is hashed, and a send. With half of that the source waits for the window. */
#define XFER_SOCKET_BYTES (1 << 20)
#define XFER_IOVS         1024u /* of one send or receive: the kernel's limit */
#define XFER_IOVS_PAGES   1000u /* of those for pages; the rest for heads, sums and tails */
#define XFER_ASKED_MAX                                                                             \
    64u /* pieces asked for and not yet answered on a connection, a power of two */
#define XFER_TX_BYTES 16384u                 /* requests sent at once */
#define XFER_RX_BYTES (2 * XFER_WRITE_BYTES) /* a request in work and the next one read ahead */
#define XFER_SCRATCH  (64u << 10) /* where bytes go that nobody wants, and zeros come from */
#define XFER_BACKLOG  64
/* For operations that were cancelled: they end at once or something is wrong. */
#define XFER_DESTROY_WAIT_NS 2000000000u

enum conn_state {
    CONN_FREE = 0,
    CONN_CONNECTING, /* outbound: connect in flight (on send_op) */
    CONN_OPEN,
    CONN_CLOSING, /* shut down; waits until neither operation is in flight */
};

/* A piece that was asked for. */
struct asked {
    uint32_t batch; /* NONE: its pull has ended, skip the answer */
    uint32_t first, n, seq;
    uint32_t sums_bytes_max;
    uint64_t page_bytes_max;
};

enum answer_stage { ANSWER_HEAD = 0, ANSWER_BODY };

/* Where in a piece's pages the stream is. */
struct cursor {
    uint32_t page, region; /* page: of the piece; n at the end */
    uint64_t at;
};

/* The destination's side of a connection. */
struct conn_out {
    uint32_t link;
    struct asked asked[XFER_ASKED_MAX];
    uint32_t asked_at, nasked, seq; /* ring */
    uint32_t tx_n, tx_at;
    enum answer_stage stage;
    uint32_t head_at; /* bytes of the head that are there */
    uint64_t body_left;
    uint32_t sums_bytes, sums_at, sum_next, tail_at;
    struct cursor cursor;
    uint64_t sent[XFER_MASK_WORDS];  /* pages of this piece whose bytes come */
    uint64_t right[XFER_MASK_WORDS]; /* of those, the ones whose checksums agree */
    struct checksum sum;
    uint32_t unit;
    uint64_t hashed; /* bytes of the current page and region */
    bool page_wrong;
    uint8_t head[XFER_ANSWER_HEAD_BYTES];
    uint8_t tail[XFER_TAIL_BYTES];
    uint8_t tx[XFER_TX_BYTES];
};

#define READ_TX_BYTES 16384u

/* The destination's side of the connection beside an RDMA path. What comes in is collected in
 * conn->meta until a frame is whole. */
struct conn_read {
    uint32_t link, rx_n;
    uint32_t tx_n, tx_at;
    uint8_t tx[READ_TX_BYTES];
};

enum serve_stage {
    SERVE_HELLO = 0,
    SERVE_IDLE,
    SERVE_ANSWER,
    SERVE_TAIL,
    SERVE_WRITE, /* some of what was asked for is not posted: it goes on when the path has credit,
                    or its serve has ended, and what was posted of it has not */
};

/* The source's side of a connection. */
struct conn_in {
    enum serve_stage stage;
    uint32_t link;        /* whose token it said; NONE before HELLO */
    uint32_t rx_at, rx_n; /* what was received and not yet understood: rx[rx_at .. rx_at + rx_n) */
    uint64_t frame_ns;    /* when the frame at the front of rx began to come */
    uint16_t kind;        /* enum xfer_frame of the request in work */
    struct serve_id serve;
    bool serve_over; /* its pages are no longer ours to read: what was promised is sent as zeros */
    uint32_t n, seq;
    struct xfer_entry entry[XFER_PAGES_MAX];
    uint64_t sent[XFER_MASK_WORDS];
    uint32_t tx_n, tx_at; /* of conn->meta: tail of the last answer, head, sums */
    uint64_t pages_left;  /* page bytes still to be sent */
    struct cursor cursor;
    uint32_t path, epoch, nruns, run; /* of REQUEST_WRITE; run: where in the runs the cursor is */
    uint64_t run_at;
    uint32_t last; /* the path's `posted` behind what was posted of it last */
    struct xfer_run runs[XFER_RUNS_MAX];
    uint8_t rx[XFER_RX_BYTES];
};

struct xfer_conn {
    struct xfer *xfer;
    enum conn_state state;
    bool outbound;
    bool reads; /* outbound: conn_read, else conn_out */
    int fd;
    struct io_op recv_op, send_op;
    bool receiving, sending; /* the operation is in flight */
    uint32_t recv_pull;      /* whose pages the receive in flight may write; NONE */
    uint32_t send_serve;     /* whose pages the send in flight may read; NONE */
    int awaited;             /* bytes that wake the receive in flight: SO_RCVLOWAT as it is set */
    uint64_t progress_ns;
    struct msghdr msg; /* outbound: of the receive; inbound: of the send */
    struct iovec *iov; /* owned, XFER_IOVS */
    uint8_t
        *meta; /* owned, xfer->meta_bytes: sums that come in; what precedes the pages that go out */
    union {
        struct conn_out out;
        struct conn_read read;
        struct conn_in in;
    };
};

struct xfer_queue {
    uint32_t head, tail; /* batches not wholly asked for */
};

struct xfer_link {
    bool up;
    uint32_t conn; /* NONE: none yet */
    struct sockaddr_storage addr;
    socklen_t addr_len;
    uint64_t peer_incarnation;
    uint64_t token;    /* outbound: what we say */
    uint64_t admitted; /* inbound: what its data connections have to say; 0: nothing does */
    enum xfer_transport transport;
    struct xfer_queue queue, reads; /* for TCP; for RDMA */
    uint32_t read_conn;             /* NONE: none yet */
    uint64_t waiting_ns;            /* since when the queue has no connection; 0: it has */
    uint64_t reads_waiting_ns;      /* and `reads` */
};

enum pull_state {
    PULL_IDLE = 0,
    PULL_ACTIVE,
    PULL_BROKEN,   /* EV_PULL_BROKEN was emitted; nothing but QUIET follows */
    PULL_STOPPING, /* asked to stop, a receive may still write */
};

struct xfer_pull_slot {
    enum pull_state state;
    uint32_t gen, link, receiving;
    uint32_t reading; /* pieces with reads in flight */
};

struct xfer_batch {
    bool used, queued, gone; /* gone: the source gave a page up */
    bool reads;              /* by RDMA */
    uint32_t pull, pool, number, n;
    uint32_t asked, answered; /* pages */
    uint32_t next;            /* link's queue */
    struct serve_id serve;
    uint64_t ok[XFER_MASK_WORDS];
    struct page_at page[PULL_BATCH_PAGES];
    struct page_ref ref[PULL_BATCH_PAGES];
};

enum serve_state { SERVING_NONE = 0, SERVING, SERVING_STOPPING };

struct xfer_serve_slot {
    enum serve_state state;
    uint32_t gen, pool, sending;
    uint32_t writing; /* lists of writes from its pages that a device may still work on */
};

struct xfer {
    struct xfer_config config;
    struct xfer_conn *conn;        /* owned, config.data_conns_max */
    struct xfer_link *link;        /* owned, config.links */
    struct xfer_pull_slot *pull;   /* owned, config.pulls */
    struct xfer_batch *batch;      /* owned, PULL_BATCHES_MAX a pull */
    struct xfer_serve_slot *serve; /* owned, config.serves */
    uint64_t *injected;       /* owned, a record's generation + 1 where a byte was flipped; NULL */
    uint8_t *scratch, *zeros; /* owned, XFER_SCRATCH each */
    size_t meta_bytes;
    uint32_t conns_in, conns_in_max;
    int socket_bytes; /* 0: as the kernel likes */
    int listen_fd;
    struct io_op accept_op;
    bool accepting;
    struct xfer_stats stats;
    struct verbs *verbs;          /* owned; NULL: TCP alone */
    struct xfer_rdma_view looked; /* what there is where it is not wanted, or not built */
};

/* memlock.c */
void xfer_memlock(const struct xfer *xfer, struct xfer_rdma_view *view);

/* tcp/tcp.c */
struct xfer_conn *conn_take(struct xfer *xfer, bool outbound, int fd);
void conn_fail(struct xfer_conn *conn); /* ends it; safe to call twice */
void conn_reap(struct xfer_conn *conn); /* frees it once nothing is in flight */
void conn_options(const struct xfer *xfer, int fd);
void conn_progress(struct xfer_conn *conn);
/* Outbound: `done` comes on send_op when it is there; conn_hello is what is to be said first, its
 * bytes. */
void conn_connect(struct xfer_conn *conn, uint32_t link,
                  void (*done)(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer));
uint32_t conn_hello(const struct xfer *xfer, uint32_t link, uint8_t *tx);
/* Outbound: what was in flight on send_op has ended, well or not. False: so has the connection. */
bool conn_sent(struct xfer_conn *conn, bool well);

static inline struct xfer_conn *conn_of_send(struct io_op *op)
{
    return (struct xfer_conn *)(void *)((char *)op - offsetof(struct xfer_conn, send_op));
}

static inline struct xfer_conn *conn_of_recv(struct io_op *op)
{
    return (struct xfer_conn *)(void *)((char *)op - offsetof(struct xfer_conn, recv_op));
}

/* verbs/, or verbs/off.c in a build without libibverbs. */
enum tern_err
verbs_create(struct xfer *xfer); /* TERN_OK without a device, too: xfer_rdma_view says why */
void verbs_destroy(struct xfer *xfer);
uint64_t verbs_bytes(const struct xfer_config *config, uint32_t sums_per_page);
void verbs_link_down(struct xfer *xfer, uint32_t link);
/* True: the batch is, or will be, RDMA's. *ret_err: it can go over neither. */
bool verbs_takes(struct xfer *xfer, uint32_t link, uint32_t pool, enum tern_err *ret_err);
void verbs_pump(struct xfer *xfer, uint32_t link);
void verbs_drop(struct xfer *xfer, uint32_t pull);        /* forgets what the pull asked for */
bool verbs_reads(const struct xfer *xfer, uint32_t pull); /* a read of its may be in flight */
void verbs_conn_lost(struct xfer_conn *conn);
bool verbs_conn_busy(const struct xfer_conn *conn);
bool verbs_conn_idle(const struct xfer_conn *conn); /* no pull needs it */
void verbs_tick(struct xfer *xfer, uint64_t now_ns);
bool verbs_exposes(const struct xfer *xfer, uint32_t pool, uint64_t *ret_offset);

enum verbs_written {
    WRITTEN_ALL = 0,
    WRITTEN_SOME, /* no credit for the rest: in_write will be called */
    WRITTEN_LOST, /* the path went, or is not the one that was asked for */
    WRITTEN_NOT,  /* the request makes no sense */
};

/* REQUEST_WRITE's runs and cursor are in conn->in; all its pages may leave. Posts what it can. */
enum verbs_written verbs_write_begin(struct xfer_conn *conn);
enum verbs_written verbs_write(struct xfer_conn *conn);
/* Some of it was posted and is under way yet, over a path that will say when it is not. */
bool verbs_writing(const struct xfer_conn *conn);

/* tcp/ask.c */
void out_start(struct xfer_conn *conn, uint32_t link);
void out_lost(struct xfer_conn *conn); /* the connection ended: breaks the pulls that it carried */
bool out_busy(const struct xfer_conn *conn);
void link_pump(struct xfer *xfer, uint32_t link); /* asks for what can be asked for now */
void link_tick(struct xfer *xfer, uint32_t link, uint64_t now_ns);
bool evict_idle(struct xfer *xfer); /* a connection, for a link that has none to be had */
void queue_break(struct xfer *xfer, const struct xfer_queue *queue,
                 enum tern_err err);               /* the pulls of what is queued */
void pull_quiet(struct xfer *xfer, uint32_t pull); /* says QUIET if that is so */
void batch_done(struct xfer *xfer, uint32_t batch);
void pull_break(struct xfer *xfer, uint32_t pull, enum tern_err err);
void queue_push(struct xfer *xfer, struct xfer_queue *queue, uint32_t batch);
void queue_remove(struct xfer *xfer, struct xfer_queue *queue, uint32_t batch);
/* How many of the batch's next pages go into one piece of at most so many checksums. */
struct asked piece_cut(const struct xfer *xfer, uint32_t batch, uint32_t sums_max);
/* Of page i of a batch, over all regions. */
uint64_t batch_page_bytes(const struct xfer *xfer, const struct xfer_batch *batch, uint32_t i);
uint32_t batch_page_sums(const struct xfer *xfer, const struct xfer_batch *batch, uint32_t i);

/* tcp/receive.c */
void out_recv(struct xfer_conn *conn); /* posts the receive, if none is in flight */
/* Fewer than n bytes wake nobody: a wake-up costs the source's core more than a segment does. */
void out_await(struct xfer_conn *conn, uint64_t n);
void page_inject(struct xfer *xfer, const struct page_at *page, uint32_t regions, uint32_t region,
                 uint8_t *base, uint64_t page_bytes, uint64_t from, uint64_t to);
void out_recv_done(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer);

/* tcp/serve.c */
void in_start(struct xfer_conn *conn);
void in_write(struct xfer_conn *conn); /* of stage SERVE_WRITE: its path has credit, or went */
void serve_quiet(struct xfer *xfer, uint32_t slot); /* says QUIET if that is so */
bool in_busy(const struct xfer_conn *conn, uint64_t now_ns);

#endif
