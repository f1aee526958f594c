/* Data connections: TCP connections between daemons, separate from the control connections, that
 * carry frames (data_wire.h) and, for the TCP transport, pages. Shared by the transports that need
 * them: slots, outgoing and incoming calls, the token that admits a caller, sending, the deadline
 * of a silent peer, and closing, which waits for the kernel.
 *
 * Page bytes are sent and received by data threads as tasks (seam/io/io_threads.h); small transfers
 * (heads, requests, HELLO) stay on the owner's ring. Each direction has one operation in flight at
 * a time. Until a task returns, the fields marked as the task's belong to the data thread.
 *
 * Promise P2 rests on two fields: recv_pull names the pull whose pages the receive in flight may
 * write, send_serve the serve whose pages the send in flight may read. Each holds its record until
 * that operation has completed, and a slot is free only when neither is in flight. A task is in
 * flight until it returns. */
#ifndef SEAM_DATA_CONN_H
#define SEAM_DATA_CONN_H

#include <sys/uio.h>

#include "seam/io/door.h"
#include "seam/xfer/flow/transfers.h"

/* Bytes of one receive of pages. A receive completes when all of them have arrived
 * (data_conn_await), and they are verified while in cache. With 512 KiB the loopback lost a third
 * of its throughput. */
#ifndef DATA_RECV_BYTES
#define DATA_RECV_BYTES (256u << 10)
#endif
/* The size of a data connection's socket buffers, if the system allows it: room for a receive that
 * is incomplete, one under verification, and a send. With half of that the source waits for the TCP
 * window. */
#define DATA_SOCKET_BYTES (1 << 20)
#define DATA_IOVS         1024u /* of one send or receive: the kernel's limit */
/* DATA_SEND_BYTES: of one task, which sends a whole answer; sending it in halves of 512 KiB cost
 * the source's core a tenth for hand-overs. DATA_SEND_PIECE: of one send, which a peer must take
 * within `idle_ns` of the configuration. */
#define DATA_SEND_BYTES (2u << 20)
#ifndef DATA_SEND_PIECE
#define DATA_SEND_PIECE (512u << 10)
#endif
/* Stretches shorter than that, on average, are copied through a buffer of the connection, which
 * stays in cache, because passing each to the kernel costs more. The buffer cut the CPU time of
 * resharded pages to two thirds with rows of 128 bytes and nine tenths with 256, and added a tenth
 * with 512 (docs/programs.md, tern-bench reshard). Pages on a device use the buffer too. */
#ifndef DATA_PACKED_STRETCH
#define DATA_PACKED_STRETCH 384u
#endif
#define DATA_PACKED_BYTES (64u << 10)
#define DATA_BUFFER_BYTES 16384u /* requests sent at once; received bytes not yet parsed */
#define DATA_BACKLOG      256    /* calls that the kernel queues, so that a burst loses none */

static_assert(DATA_BUFFER_BYTES >= 2 * XFER_WRITE_BYTES,
              "a request in work and the next one read ahead");
static_assert(XFER_PIECE_PARTS < DATA_IOVS, "the rest is for heads, sums and tails");

/* The side that called, and its use of the connection. */
struct data_caller {
    /* The connection is open and the buffer has HELLO; the first requests can follow it. Later the
     * transport's pump is called when the kernel has all of the buffer. */
    void (*opened)(struct data_conn *conn);
    void (*receive)(struct data_conn *conn); /* posts the next receive; none is in flight */
    /* On a data thread: n more bytes of a receive of pages have arrived in place. Verifies what it
     * can. NULL: it receives no pages. */
    void (*landed)(struct data_conn *conn, uint64_t n);
    /* n bytes have arrived in place. Returns false on a protocol error; the connection ends. */
    bool (*received)(struct data_conn *conn, uint64_t n);
    void (*lost)(struct data_conn *conn); /* it is shut down and has left its path */
    /* Nothing is in flight any more: its open requests are lost. NULL: `lost` has handled them. */
    void (*ended)(struct data_conn *conn);
    bool (*busy)(const struct data_conn *conn); /* an answer of the peer is due */
    bool (*idle)(const struct data_conn *conn); /* no pull needs it: the slot may be reused */
};

/* Progress of a receive or send of pages through conn->iov, in pieces. */
struct data_walk {
    uint32_t at, n;  /* stretches: the next one, and the end */
    uint32_t cut;    /* the stretch that the piece in flight splits; NONE */
    uint64_t length; /* full length of that stretch */
    uint64_t left;   /* bytes still to move */
    uint64_t moved;
    bool packed;        /* through conn->packed */
    struct iovec whole; /* packed: the part that the piece in flight uses */
};

struct data_conn {
    struct xfer *xfer;
    enum data_conn_state state;
    struct transport *transport;      /* the one that called; NULL: a peer called */
    const struct data_caller *caller; /* NULL: a peer called */
    uint32_t peer_link; /* outgoing: the link called; incoming: the link of its token, or NONE */
    uint32_t path;      /* outgoing: its place in the lane */
    bool extra;         /* its lane had another connection when it was called */
    int fd;
    struct io_op recv_op, send_op;       /* on the owner's ring */
    struct io_task recv_task, send_task; /* by a data thread: pages */
    bool receiving, sending;             /* one of the two is in flight */
    uint32_t recv_pull;                  /* pull whose pages the current receive may write; NONE */
    uint32_t send_serve;                 /* serve whose pages the current send may read; NONE */
    _Atomic int awaited;                 /* the current SO_RCVLOWAT: bytes that wake the receive */
    _Atomic uint64_t progress_ns;
    struct data_walk walk;  /* in iov: the task's while it is away */
    uint8_t *meta;          /* owned, data_conns.meta_bytes, aligned as a uint64_t */
    uint32_t out_n, out_at; /* to send: of the buffer; at the source, of meta */
    void *own; /* owned, own_bytes: the caller's state, or the request; zeroed when taken */
    struct data_request *request; /* incoming: the peer's request; else NULL */
    struct iovec iov[DATA_IOVS];  /* the task's while it is away, and so is the next */
    uint8_t packed[DATA_PACKED_BYTES];
    uint8_t buffer[DATA_BUFFER_BYTES]; /* outgoing or incoming requests */
};

/* All data connections of one struct xfer. */
struct data_conns {
    struct data_conn *conn; /* owned, config.data_conns_max; undumped.h */
    size_t meta_bytes;
    uint32_t own_bytes;
    uint32_t end; /* all slots from there on are free; loops end there */
    /* Counts of incoming and outgoing connections. Neither uses the other's slots. */
    uint32_t inbound, inbound_max, outbound_max;
    uint32_t extra;          /* outgoing ones beyond the first of their lanes */
    uint32_t inbound_min;    /* slots guaranteed to each peer link */
    uint32_t inbound_common; /* in use beyond that, over all links */
    struct door *door;       /* owned; callers that have sent no token yet */
    int socket_bytes;        /* 0: the kernel's choice */
    int listen_fd;
    struct io_op accept_op;
    bool accepting, ending;
};

/* data_conns.c: accepts calls of peers, if it listens and no accept is under way. */
void data_conns_accept(struct xfer *xfer);

uint64_t data_conns_bytes(const struct xfer_config *config, uint32_t sums_per_page,
                          const struct transport_ops *const *transports);
enum tern_err data_conns_create(struct xfer *xfer);
void data_conns_stop(struct xfer *xfer); /* runs the ring until none is in flight */
/* Caller has ended the data threads: until then one may still wait for a task's callback. */
void data_conns_destroy(struct xfer *xfer);
void data_conns_tick(struct xfer *xfer, uint64_t now_ns);
bool data_conns_evict(struct xfer *xfer); /* ends an idle one for a link that waits */
/* Return true if a receive in flight may write pages of the pull, or a send read the serve's. */
bool data_conns_write(const struct transport *t, uint32_t pull);
bool data_conns_read(const struct transport *t, uint32_t serve);

/* Calls the peer for that path of the transport's lane of the link, and `opened` when it is
 * connected. If no slot is free, the lane waits for one, and the transport's pump is called again;
 * if no descriptor is free, the pulls of the lane's queue break. If the lane has another path, this
 * one is retired instead. */
void data_conn_call(struct transport *t, uint32_t peer_link, uint32_t path,
                    const struct data_caller *caller);
/* Returns NULL if no slot is free or all are being ended. */
struct data_conn *data_conn_take(struct xfer *xfer, struct transport *t, int fd);
void data_conn_options(const struct xfer *xfer, int fd);
void data_conn_end(struct data_conn *conn, bool failed); /* failed: its path. Safe to call twice */
void data_conn_reap(struct data_conn *conn);             /* frees it once nothing is in flight */
void data_conn_progress(struct data_conn *conn);
/* conn sent that link's token. Returns false if the link's share of slots is used up. */
bool data_conn_admitted(struct data_conn *conn, uint32_t peer_link);
void data_conn_await(struct data_conn *conn, uint64_t n); /* fewer than n bytes wake no receive */
/* The operation on send_op has ended. Returns false if the connection has ended too. */
bool data_conn_sent(struct data_conn *conn, bool well);
void data_call_ended(const struct data_conn *conn, int error); /* of an outgoing one */
void data_conn_send_buffer(struct data_conn *conn);            /* of a caller: sends the buffer */
/* Receives some of n bytes that are no page's; `all`: waits for all of them. */
void data_conn_receive(struct data_conn *conn, void *at, uint32_t n, bool all);
/* Receives `bytes` into the n stretches of iov, pages of recv_pull. A data thread calls `landed` as
 * bytes arrive. */
void data_conn_receive_pages(struct data_conn *conn, uint32_t n, uint64_t bytes);
/* Sends `bytes` from the n stretches of iov. The owner thread calls `done`; walk.moved is how many
 * bytes were sent. */
void data_conn_send_pages(struct data_conn *conn, uint32_t n, uint64_t bytes,
                          void (*done)(struct io_task *task, int32_t res));
void data_conn_cancel_send(struct data_conn *conn);
void data_conn_stop_writing(struct xfer *xfer, uint32_t pull); /* cancels receives for the pull */

static inline struct data_path *data_path_of(const struct data_conn *conn)
{
    return &transport_lane(conn->transport, conn->peer_link)->path[conn->path];
}

/* Returns the connection of that path. NULL: none is called or up. */
static inline struct data_conn *data_path_conn(const struct transport *t, uint32_t peer_link,
                                               uint32_t path)
{
    uint32_t number = transport_lane(t, peer_link)->path[path].conn;

    return number == NONE ? NULL : &t->xfer->conns->conn[number];
}

/* Returns true if a path of the lane is being called or up. */
bool data_paths_alive(const struct transport *t, uint32_t peer_link);
/* Calls one more path, if that is allowed, because work waits and no path has room for it. */
void data_paths_call(struct transport *t, uint32_t peer_link, const struct data_caller *caller);
/* The path failed, or could not be called: it may be called again after a pause. */
void data_path_pause(struct data_path *path);
void data_paths_reset(struct xfer *xfer, uint32_t peer_link); /* the peer may be a new one */

/* A list of bytes to send: first those of conn->meta, then page bytes. */
struct data_gather {
    struct iovec *iov;
    uint32_t n;
    uint64_t bytes, bytes_max;
};

/* Adds up to n bytes. Returns how many fit. */
static inline uint64_t data_gather_add(struct data_gather *g, void *at, uint64_t n)
{
    uint64_t room = g->bytes_max - g->bytes;

    n = n < room ? n : room;
    if (n == 0 || g->n == DATA_IOVS)
        return 0;
    if (g->n > 0 && (uint8_t *)g->iov[g->n - 1].iov_base + g->iov[g->n - 1].iov_len == at)
        g->iov[g->n - 1].iov_len += n;
    else
        g->iov[g->n++] = (struct iovec){at, n};
    g->bytes += n;
    return n;
}

/* A peer's request, and the bytes received after it. */
struct data_request {
    enum data_request_state state;
    uint32_t rx_at, rx_n;        /* received and not yet parsed: buffer[rx_at .. rx_at + rx_n) */
    uint64_t frame_ns;           /* when the first frame of these began to arrive */
    struct transport *transport; /* the one that answers its frame; NULL: answered */
    uint16_t kind;               /* enum xfer_frame */
    struct serve_id serve;
    uint32_t n, seq;
    struct xfer_entry entry[XFER_PAGES_MAX];
    /* The pages of all given entries in order, and where each entry's pages begin. */
    struct page_ref page[XFER_PAGES_MAX];
    uint16_t page_at[XFER_PAGES_MAX];
    uint32_t npages;
    uint64_t given[XFER_MASK_WORDS]; /* pages that the answer gives */
    struct page_cursor cursor;
    uint64_t pages_left; /* page bytes still to send */
    bool over;           /* its serve has ended: announced bytes are sent as zeros */
    /* For REQUEST_WRITE. */
    uint32_t path, epoch, nruns, run; /* run: the run at the cursor */
    uint64_t run_at;
    uint32_t last; /* the path's `posted` after its last posted write */
    struct xfer_run runs[XFER_RUNS_MAX];
};

static inline const struct page_ref *data_request_pages(const struct data_request *r, uint32_t i)
{
    return &r->page[r->page_at[i]];
}

void data_source_start(struct data_conn *conn); /* a peer called */
bool data_source_busy(const struct data_conn *conn, uint64_t now_ns);
void data_conns_serve_stopped(struct xfer *xfer, struct serve_id serve);
void data_conns_dismiss(struct xfer *xfer, uint32_t peer_link);

/* For services. Appends an answer to meta: its head, a status for each page, and the checksums of
 * the given pages. `leaves`: pages may leave this way, if the core allows. Returns false if there
 * is no room, which no correct request causes. Caller moves the request to its next state. */
bool data_answer_begin(struct data_conn *conn, uint16_t frame, bool leaves);
void data_answer_none(struct data_conn *conn, uint16_t frame, enum tern_err err); /* gives none */
uint32_t data_request_pool(const struct data_conn *conn); /* the pool of its serve */
/* Returns the pair whose plans the pages follow. NULL: they leave unchanged. */
const struct pair *data_request_pair(const struct data_conn *conn);
uint64_t data_request_bytes(const struct data_conn *conn, uint32_t i); /* sent for page i */
/* Sends meta and what the service's `gather` adds. The next request follows when that is sent. */
void data_source_send(struct data_conn *conn);

#endif
