/* What the files of the RDMA transport share: xfer_verbs.c (device, memory, figures),
 * xfer_verbs_path.c (queue pairs: made, connected, drained, destroyed), xfer_verbs_setup.c (the
 * thread that makes the calls which allocate or sleep), xfer_verbs_link.c (which way a batch goes),
 * xfer_verbs_pull.c (reading) and xfer_verbs_side.c (the connection beside a path). One path is
 * one RC queue pair, of one link and one tenant, in the tenant's protection domain. The source's
 * end allows remote reads and posts nothing; the destination's end allows nothing.
 *
 * Promise P2 rests on three counters: path->posted and path->done (work requests, in order), and
 * pull->reading (pieces of a pull some of whose requests are not done). `done` moves on a
 * completion of the same epoch, or to the end when the queue pair is destroyed; nowhere else. */
#ifndef SEAM_XFER_VERBS_H
#define SEAM_XFER_VERBS_H

#include <infiniband/verbs.h>
#include <pthread.h>

#include "seam/xfer_tcp.h"

#define VERBS_SEND_QUEUE       128u       /* requests outstanding on a queue pair */
#define VERBS_COMPLETION_QUEUE 4096u      /* requests outstanding over all of them */
#define VERBS_POST_MAX         64u        /* requests behind one doorbell */
#define VERBS_POLL_MAX         64         /* completions taken at once */
#define VERBS_READ_BYTES       (1u << 20) /* of one request, adjacent pages together */
#define VERBS_PIECES           16u        /* of a link, asked for and not yet confirmed */
#define VERBS_PIECE_SUMS       512u       /* checksums of a piece, unless one page has more */
#define VERBS_TIMEOUT          16         /* 4.096 us x 2^16: 268 ms until a request is repeated */
#define VERBS_RETRIES          6 /* repeats; then an error, after 2 s. 7 is "for ever" to rxe */
#define VERBS_SETUP_NS         3000000000u /* from the link's up to a path; then TCP, or an error */
#define VERBS_DRAIN_NS         2000000000u /* for flushed completions; then the pair is destroyed */
#define VERBS_RETRY_MIN_NS     200000000u  /* pause before a path is made anew; doubled up to */
#define VERBS_RETRY_MAX_NS     10000000000u

enum path_state {
    PATH_NONE = 0,
    PATH_MAKING,     /* the thread makes the queue pair; the source's is connected at once */
    PATH_OFFERED,    /* ours is there; the peer's answer is due */
    PATH_CONNECTING, /* the thread connects it */
    PATH_READY,
    PATH_STOPPING, /* the thread moves it to the error state */
    PATH_DRAINING, /* its requests are flushed */
    PATH_ENDING,   /* the thread destroys it */
    PATH_PAUSED,   /* made again at retry_ns */
};

enum verbs_job { JOB_MAKE, JOB_ACCEPT, JOB_CONNECT, JOB_STOP, JOB_END };

struct path_end {
    uint32_t qpn, psn, mtu, lid, rd_atomic;
    union ibv_gid gid;
};

struct verbs_path {
    enum path_state state;
    bool source; /* the peer reads; else we do */
    bool wanted; /* destination: made again when it ends */
    bool again;  /* source: the offer in `next` waits for the old queue pair's end */
    uint32_t link, tenant, epoch;
    struct ibv_qp *qp;                  /* owned */
    struct path_end ours, theirs, next; /* next: of an offer that waits or is being taken */
    uint32_t their_epoch, next_epoch;
    uint32_t posted, done; /* work requests */
    uint64_t since_ns, retry_ns, pause_ns, ready_ns;
    char reason[XFER_PATH_TEXT]; /* why it is not ready */
    uint32_t nchunks;
    struct xfer_chunk chunk[XFER_CHUNKS_MAX]; /* what can be read at the peer */

    /* While `working` is set the queue pair, both ends and what follows are the thread's. */
    bool working;
    enum verbs_job job;
    int job_errno; /* 0: done */
    const char *job_what;
};

struct verbs_mr {
    struct ibv_mr *mr; /* owned */
    uint32_t region;
    uint64_t offset, bytes;
    uint8_t *base;
};

struct verbs_domain {
    struct ibv_pd *pd; /* owned */
    uint32_t n;
    struct verbs_mr mr[XFER_CHUNKS_MAX];
};

enum piece_state {
    PIECE_FREE = 0,
    PIECE_ASKED,      /* REQUEST_READ was queued; its answer is due */
    PIECE_READING,    /* some pages are not asked of the device yet, or not there yet */
    PIECE_READ,       /* waits for room to say CONFIRM */
    PIECE_CONFIRMING, /* the answer to CONFIRM is due */
};

struct verbs_piece {
    enum piece_state state;
    bool counted;   /* in pull->reading */
    bool heard;     /* no answer of the connection is due for it */
    uint32_t batch; /* NONE: its pull has ended */
    uint32_t pull, seq, first, n;
    uint32_t path, last;                     /* whose requests; path->posted behind its last one */
    uint64_t at_ns;                          /* when its first read was posted */
    uint64_t offset;                         /* where the source's pool begins */
    struct cursor cursor;                    /* of what is posted */
    uint64_t sent[XFER_MASK_WORDS];          /* pages that the source gives */
    struct xfer_entry entry[XFER_PAGES_MAX]; /* as asked, to be confirmed */
    struct id serve;
    uint64_t *sums; /* owned, verbs->piece_sums: the source's */
};

struct verbs_link {
    enum xfer_transport transport;
    bool peer_rdma;
    uint64_t tenants, up_ns;
    uint64_t told, told_verbs; /* tenants whose transport was noted, and as what */
    uint32_t seq;
    struct verbs_piece *piece; /* owned, VERBS_PIECES; NULL until the link is used */
};

struct verbs {
    struct xfer *xfer;
    struct ibv_context *ctx; /* owned */
    struct xfer_rdma_view view;
    union ibv_gid gid;
    uint32_t lid, mtu, rd_init, rd_resp, max_msg;
    struct verbs_domain *domain; /* owned, config.rdma.tenants */
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    uint32_t cq_used; /* requests outstanding */
    struct io_op cq_op, async_op, setup_op;
    bool cq_polling, async_polling, setup_polling, closing;
    uint32_t tenants, npaths, epoch;
    struct verbs_path *path; /* owned, links x tenants */
    struct verbs_link *link; /* owned, config.links */
    uint32_t piece_sums;

    /* The thread. */
    pthread_t thread;
    bool started, stop;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    uint32_t *todo, *finished; /* owned rings, npaths: a path is in at most one */
    uint32_t todo_at, todo_n, finished_at, finished_n;
    int event_fd;
};

/* xfer_verbs_setup.c */
enum tern_err setup_start(struct verbs *v);
void setup_stop(struct verbs *v); /* joins the thread; what was queued is not done */
void setup_give(struct verbs *v, struct verbs_path *p, enum verbs_job job);
struct verbs_path *setup_take(struct verbs *v); /* NULL: none is finished */
void setup_end_now(struct verbs_path *p);       /* destroys a queue pair, at the end */

/* xfer_verbs_path.c */
void path_failed(struct verbs *v, struct verbs_path *p, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void path_advance(struct verbs *v, struct verbs_path *p); /* a draining one may be quiet */
void paths_finished(struct verbs *v);
void paths_tick(struct verbs *v, uint64_t now_ns);
void path_close(struct verbs *v, struct verbs_path *p, const char *why);

static inline struct verbs_path *path_of(const struct verbs *v, uint32_t link, uint32_t tenant)
{
    return &v->path[(size_t)link * v->tenants + tenant];
}

/* xfer_verbs_link.c */
bool link_pieces(struct verbs *v, uint32_t link);
struct verbs_path *path_of_batch(struct verbs *v, uint32_t link, uint32_t batch);
void path_lost(struct verbs *v, struct verbs_path *p);   /* its pulls break */
void path_usable(struct verbs *v, struct verbs_path *p); /* it became ready, or will not for now */

/* xfer_verbs_pull.c */
void cq_drain(struct verbs *v);
void pieces_done(struct verbs *v, const struct verbs_path *p); /* path->done moved */
void pieces_tick(struct verbs *v, uint32_t link, uint64_t now_ns);
/* Frees a piece of a pull that has ended, unless reads of it are in flight or an answer is due. */
void piece_free(struct verbs_piece *piece);
void piece_drop(struct verbs_piece *piece); /* its pull has ended */
void piece_end(struct verbs *v, struct verbs_piece *piece);
/* Posts what there is credit for. False: the path failed, or the connection. */
bool piece_post(struct verbs *v, struct verbs_piece *piece);
/* stale: by place among the pages that were confirmed. */
void piece_verify(struct verbs *v, struct verbs_piece *piece, const uint64_t *stale);

static inline struct verbs_piece *piece_of(struct verbs *v, uint32_t link, uint32_t i)
{
    return &v->link[link].piece[i];
}

/* xfer_verbs_side.c */
void read_start(struct xfer_conn *conn, uint32_t link);

#endif
