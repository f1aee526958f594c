/* Data connections: TCP connections between daemons, apart from the control connections, that carry
 * frames (data_wire.h) and, for the TCP transport, pages. Shared by the transports that need them:
 * slots, calling and being called, the token that lets a caller in, sending, the deadline of a peer
 * that is silent, and an end that waits for the kernel.
 *
 * What carries page bytes goes to a data thread as a task (seam/io/io_threads.h); heads, requests
 * and HELLO, which are small, stay on the owner's ring. In one direction one of the two is in
 * flight at a time, and while a task is away the fields marked so are the data thread's.
 *
 * Promise P2 rests on two fields: recv_pull names the pull whose pages the receive in flight may
 * write, send_serve the serve whose pages the send in flight may read. Each holds its record
 * until that operation has completed, and a slot is free only when neither is in flight. A task
 * that is away is in flight until it is back. */
#ifndef SEAM_DATA_CONN_H
#define SEAM_DATA_CONN_H

#include <sys/uio.h>

#include "seam/io/door.h"
#include "seam/xfer/flow/transfers.h"

/* The bytes of one receive of pages. It completes when all of it has come (data_conn_await), and
 * what came is verified while it is in cache. At 512 KiB a receive lost a third on the loopback. */
#ifndef DATA_RECV_BYTES
#define DATA_RECV_BYTES (256u << 10)
#endif
/* The size of a data connection's socket buffers, where the system allows so much: room for a
 * receive that waits to be whole, one that is verified, and a send. With half of that the source
 * waits for the window of TCP. */
#define DATA_SOCKET_BYTES (1 << 20)
#define DATA_IOVS         1024u /* of one send or receive: the kernel's limit */
/* Of one hand-over, so that an answer goes out whole: in halves of 512 KiB the source's core spent
 * a tenth on hand-overs. And of one send of it: what a peer must take before data_idle_ms. */
#define DATA_SEND_BYTES (2u << 20)
#ifndef DATA_SEND_PIECE
#define DATA_SEND_PIECE (512u << 10)
#endif
/* Stretches that are shorter than that, on average, are copied through a buffer of the connection's
 * own on their way, which stays in cache: to name each to the kernel costs more. Resharded pages of
 * rows of 128 bytes took two thirds of the time on cores so, of 256 nine tenths, of 512 a tenth
 * more (docs/programs.md, tern-bench reshard). Pages on a device go through it, too. */
#ifndef DATA_PACKED_STRETCH
#define DATA_PACKED_STRETCH 384u
#endif
#define DATA_PACKED_BYTES (64u << 10)
#define DATA_BUFFER_BYTES 16384u /* requests sent at once; requests received and not understood */
#define DATA_BACKLOG      256    /* that the kernel keeps for us: a burst costs nobody its turn */

static_assert(DATA_BUFFER_BYTES >= 2 * XFER_WRITE_BYTES,
              "a request in work and the next one read ahead");
static_assert(XFER_PIECE_PARTS < DATA_IOVS, "the rest is for heads, sums and tails");

/* Who called, and what it does with the connection. */
struct data_caller {
    /* It is open, HELLO is in the buffer, and what is to be said at once can follow. Later the
     * transport's pump is called when all that was in the buffer is with the kernel. */
    void (*opened)(struct data_conn *conn);
    void (*receive)(struct data_conn *conn); /* posts the next receive; none is in flight */
    /* On a data thread: n more bytes of a receive of pages lie where they were asked for. Verifies
     * what it can. NULL: it receives no pages. */
    void (*landed)(struct data_conn *conn, uint64_t n);
    /* n bytes lie where they were asked for. False: not our protocol, and the connection ends. */
    bool (*received)(struct data_conn *conn, uint64_t n);
    void (*lost)(struct data_conn *conn); /* it is shut down, and its path has no connection */
    /* Nothing is in flight any more: what was asked for on it is lost. NULL: `lost` did it. */
    void (*ended)(struct data_conn *conn);
    bool (*busy)(const struct data_conn *conn); /* the peer owes us something */
    bool (*idle)(const struct data_conn *conn); /* no pull needs it: its slot may go to another */
};

/* Where a receive or a send of pages is in conn->iov. It goes on in pieces. */
struct data_walk {
    uint32_t at, n;  /* stretches: the one that is next, and behind the last */
    uint32_t cut;    /* the stretch that the piece in flight has a part of; NONE */
    uint64_t length; /* all of that stretch */
    uint64_t left;   /* bytes that are still to be moved */
    uint64_t moved;
    bool packed;        /* through conn->packed */
    struct iovec whole; /* then: of that, what the piece in flight takes */
};

struct data_conn {
    struct xfer *xfer;
    enum data_conn_state state;
    struct transport *transport;      /* that called; NULL: a peer did */
    const struct data_caller *caller; /* NULL likewise */
    uint32_t peer_link; /* whom it calls; of one that was called: whose token it said, or NONE */
    uint32_t path;      /* of one that we call: its place in the lane */
    bool extra;         /* when it was called its lane had another one */
    int fd;
    struct io_op recv_op, send_op;       /* on the owner's ring */
    struct io_task recv_task, send_task; /* by a data thread: pages */
    bool receiving, sending;             /* one of the two is in flight */
    uint32_t recv_pull;                  /* whose pages the receive in flight may write; NONE */
    uint32_t send_serve;                 /* whose pages the send in flight may read; NONE */
    _Atomic int awaited; /* bytes that wake the receive in flight: SO_RCVLOWAT as it is set */
    _Atomic uint64_t progress_ns;
    struct iovec *iov;      /* owned, DATA_IOVS; away with the task that names it */
    struct data_walk walk;  /* in iov: away with the task, too */
    uint8_t *meta;          /* owned, data_conns.meta_bytes, aligned as a uint64_t */
    uint8_t *packed;        /* owned, DATA_PACKED_BYTES: away with the task, as the walk */
    uint8_t *buffer;        /* owned, DATA_BUFFER_BYTES: what we ask; what we are asked */
    uint32_t out_n, out_at; /* to be sent: of the buffer, or of meta at the source's side */
    void *own; /* owned, own_bytes: the caller's part, or the request; zeroed when it is taken */
    struct data_request *request; /* of one that was called: what the peer asks; else NULL */
};

/* All of one struct xfer. */
struct data_conns {
    struct data_conn *conn; /* owned, config.data_conns_max */
    size_t meta_bytes;
    uint32_t own_bytes;
    uint32_t end; /* all from there on are free: loops over those that are open end there */
    /* Of those that peers made and of those that we made. Neither takes the other's room. */
    uint32_t inbound, inbound_max, outbound_max;
    uint32_t extra;          /* of ours: beyond the first of their lanes */
    uint32_t inbound_min;    /* each peer link can always have so many */
    uint32_t inbound_common; /* in use beyond that, over all links */
    struct door *door;       /* owned; callers that have not said their token */
    int socket_bytes;        /* 0: as the kernel likes */
    int listen_fd;
    struct io_op accept_op;
    bool accepting, ending;
};

/* data_conns.c: accepts calls of peers, if it listens and is not at it already. */
void data_conns_accept(struct xfer *xfer);

uint64_t data_conns_bytes(const struct xfer_config *config, uint32_t sums_per_page,
                          const struct transport_ops *const *transports);
enum tern_err data_conns_create(struct xfer *xfer);
void data_conns_stop(struct xfer *xfer); /* runs the ring until nothing of theirs is in flight */
/* When the data threads have ended: one may still have to hear that a task, which is back, was
 * called back. */
void data_conns_destroy(struct xfer *xfer);
void data_conns_tick(struct xfer *xfer, uint64_t now_ns);
bool data_conns_evict(struct xfer *xfer); /* an idle one, for a link that has none to be had */
bool data_conns_write(const struct transport *t, uint32_t pull); /* a receive in flight may */
bool data_conns_read(const struct transport *t, uint32_t serve); /* a send in flight may */

/* Calls the peer for that path of the transport's lane of the link. `opened` comes when it is
 * there. Where no slot is to be had the lane waits for one, and the transport's pump comes again;
 * without a descriptor the pulls of the lane's queue break. If the lane has another path, this one
 * is retired instead. */
void data_conn_call(struct transport *t, uint32_t peer_link, uint32_t path,
                    const struct data_caller *caller);
/* Or NULL: no slot is free, or they are all being ended. */
struct data_conn *data_conn_take(struct xfer *xfer, struct transport *t, int fd);
void data_conn_options(const struct xfer *xfer, int fd);
void data_conn_fail(struct data_conn *conn); /* ends it; safe to call twice */
void data_conn_end(struct data_conn *conn);  /* the same, and its path has not failed */
void data_conn_reap(struct data_conn *conn); /* frees it once nothing is in flight */
void data_conn_progress(struct data_conn *conn);
/* It said the token of that link. False: no share has room for another one of it. */
bool data_conn_admitted(struct data_conn *conn, uint32_t peer_link);
void data_conn_await(struct data_conn *conn, uint64_t n); /* fewer than n bytes wake nobody */
/* What was in flight on send_op has ended, well or not. False: so has the connection. */
bool data_conn_sent(struct data_conn *conn, bool well);
void data_call_ended(const struct data_conn *conn, int error); /* of one that is called */
void data_conn_send_buffer(struct data_conn *conn); /* of a caller: what is in the buffer */
/* Some of n bytes that are no page's; all of them, if they are awaited. */
void data_conn_receive(struct data_conn *conn, void *at, uint32_t n, bool all);
/* By iov, n stretches of so many bytes; what may be written is recv_pull's. A data thread calls
 * `landed` as they come. */
void data_conn_receive_pages(struct data_conn *conn, uint32_t n, uint64_t bytes);
/* By iov, n stretches of so many bytes. `done` comes on the owner thread; walk.moved says how many
 * went out. */
void data_conn_send_pages(struct data_conn *conn, uint32_t n, uint64_t bytes,
                          void (*done)(struct io_task *task, int32_t res));
void data_conn_cancel_send(struct data_conn *conn);
void data_conn_stop_writing(struct xfer *xfer, uint32_t pull); /* cancels such receives */

struct data_conn *data_path_conn(const struct transport *t, uint32_t peer_link, uint32_t path);
/* Is one called, or up? */
bool data_paths_alive(const struct transport *t, uint32_t peer_link);
/* May a pull go on that lost its connection? */
bool data_paths_several(const struct xfer *xfer);
/* Work waits that no path has room for: calls one more, if one may be called. */
void data_paths_call(struct transport *t, uint32_t peer_link, const struct data_caller *caller);
void data_path_taken(struct transport *t, struct data_conn *conn); /* it calls for its path */
void data_path_up(struct data_conn *conn);
void data_path_carried(struct data_conn *conn); /* a whole answer: it works */
/* Its path has no connection. `failed`: and is retired for a while. */
void data_path_left(struct data_conn *conn, bool failed);
void data_path_put_off(struct data_path *path);               /* it could not be called */
void data_paths_reset(struct xfer *xfer, uint32_t peer_link); /* another peer may be there */

/* What of conn->meta precedes page bytes that go out, and a list of those. */
struct data_gather {
    struct iovec *iov;
    uint32_t n;
    uint64_t bytes, bytes_max;
};

/* Adds up to n bytes; returns how many fit. */
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

/* A request of a peer, and what was received behind it. */
struct data_request {
    enum data_request_state state;
    uint32_t rx_at, rx_n; /* received and not yet understood: buffer[rx_at .. rx_at + rx_n) */
    uint64_t frame_ns;    /* when the frame at the front of that began to come */
    struct transport *transport; /* that knows its frame; NULL: it was answered */
    uint16_t kind;               /* enum xfer_frame */
    struct serve_id serve;
    uint32_t n, seq;
    struct xfer_entry entry[XFER_PAGES_MAX];
    /* The pages of the entries given, one behind the other, and where each entry's begin. */
    struct page_ref page[XFER_PAGES_MAX];
    uint16_t page_at[XFER_PAGES_MAX];
    uint32_t npages;
    uint64_t given[XFER_MASK_WORDS]; /* pages that the answer gives */
    struct page_cursor cursor;
    uint64_t pages_left; /* page bytes still to be sent */
    bool over;           /* its serve has ended: what was promised goes out as zeros */
    /* Of REQUEST_WRITE. */
    uint32_t path, epoch, nruns, run; /* run: where in the runs the cursor is */
    uint64_t run_at;
    uint32_t last; /* the path's `posted` behind what was posted of it last */
    struct xfer_run runs[XFER_RUNS_MAX];
};

static inline const struct page_ref *data_request_pages(const struct data_request *r, uint32_t i)
{
    return &r->page[r->page_at[i]];
}

void data_source_start(struct data_conn *conn); /* a peer has called */
bool data_source_busy(const struct data_conn *conn, uint64_t now_ns);
void data_conns_serve_stopped(struct xfer *xfer, struct serve_id serve);
void data_conns_dismiss(struct xfer *xfer, uint32_t peer_link);

/* For services. An answer is made behind what meta holds: its head, a status for each page, and the
 * checksums of those that are given. `leaves`: pages may leave this way, if the core lets them.
 * False: there is no room, so the request is not one of ours. The caller moves the request to the
 * state that follows. */
bool data_answer_begin(struct data_conn *conn, uint16_t frame, bool leaves);
void data_answer_none(struct data_conn *conn, uint16_t frame, enum tern_err err); /* gives none */
uint32_t data_request_pool(const struct data_conn *conn); /* of its serve, which gave pages */
/* By whose plans they leave; NULL: as they are. */
const struct pair *data_request_pair(const struct data_conn *conn);
uint64_t data_request_bytes(const struct data_conn *conn, uint32_t i); /* that page i goes out as */
/* Sends what meta, and the service's `gather`, have; the next request comes when that is out. */
void data_source_send(struct data_conn *conn);

#endif
