/* Shared by the files of the RDMA transport. Layers, lowest first: device/, path/, move/, then
 * retry.c (the choice of a path for a piece, and the loss of that path), notices.c (the data
 * connection beside the paths), events.c (incoming events, and the run that ends each) and verbs.c
 * (start and end of the transport, and its functions for transport.h). This folder also has the
 * functions of xfer.h about paths and devices.
 *
 * A rail is one local device in use. A path is one end of a reliable connection (a queue pair). A
 * path belongs to one peer link, one tenant and one rail, and lies in the tenant's protection
 * domain of that rail. The source pushes: the destination's end allows remote writes, but only
 * through memory windows that the destination has bound. The source's end allows nothing. Neither
 * end reads.
 *
 * Promise P2 rests on three counters: path->posted and path->completed (work requests, in order),
 * and pull->holds, which counts each piece with incomplete work requests. path->completed advances
 * only on a completion of the same epoch, or to path->posted when the queue pair is destroyed. A
 * piece under verification also counts in pull->holds until its task returns, because the data
 * thread uses its pages and their checksums. */
#ifndef SEAM_XFER_VERBS_H
#define SEAM_XFER_VERBS_H

#include <infiniband/verbs.h>
#include <stdatomic.h>

#include "base/fifo.h"
#include "base/states.h"
#include "seam/xfer/conn/data_conn.h"
#include "seam/xfer/flow/transport.h"

extern const struct transport_ops verbs_transport;

#define VERBS_SEND_QUEUE       128u       /* requests outstanding on a queue pair */
#define VERBS_COMPLETION_QUEUE 4096u      /* requests outstanding on all queue pairs of a rail */
#define VERBS_UNASKED_MAX      65536u     /* room for receives beside them, at most */
#define VERBS_POST_MAX         64u        /* requests behind one doorbell */
#define VERBS_POLL_MAX         64         /* completions per poll */
#define VERBS_WRITE_BYTES      (1u << 20) /* of one request, which may span adjacent pages */
#define VERBS_PIECES           16u        /* of a link, requested and not yet confirmed */
#define VERBS_PIECE_TRIES      4u         /* of a piece; or one for each rail, if that is more */
#define VERBS_PIECE_SUMS       512u       /* checksums of a piece, unless one page has more */
#define VERBS_SPIN_NS          100000u    /* of polling without a wait, since the last completion */
#define VERBS_REGISTER_BYTES   (1ull << 30) /* minimum of one thread's registration */
#define VERBS_REGISTER_THREADS 16u
#define VERBS_REGISTER_TELL_NS 2000000000u  /* between progress reports */
#define VERBS_MWS              XFER_MWS_MAX /* of a path: runs of pages granted at a time */
#define VERBS_REVOKE_NS        100000000u   /* for granted pages to arrive after their pull ended */
#define VERBS_SETUP_NS         3000000000u /* from link up to a ready path; then TCP, or an error */
#define VERBS_DRAIN_NS         2000000000u /* for flushed completions; then the pair is destroyed */
#define VERBS_RETRY_MIN_NS     200000000u  /* first pause before a path is made again */
#define VERBS_RETRY_MAX_NS     10000000000u /* longest pause; each failure doubles the pause */

/* The state machines: a path is one end of a queue pair, and a piece is the pages of one request.
 * base/states.h explains the tables. */
#define PATH_STATE_TABLE(X)                                                                        \
    X(PATH, NONE, TO(PATH, MAKING) | TO(PATH, PAUSED),                                             \
      "there is no queue pair, and none is wanted")                                                \
    X(PATH, MAKING,                                                                                \
      TO(PATH, OFFERED) | TO(PATH, READY) | TO(PATH, ABANDONED) | TO(PATH, STOPPING) |             \
          TO(PATH, NONE),                                                                          \
      "a thread makes the queue pair, and at the source also connects it")                         \
    X(PATH, OFFERED, TO(PATH, CONNECTING) | TO(PATH, STOPPING),                                    \
      "this end is made; the peer's answer is due")                                                \
    X(PATH, CONNECTING, TO(PATH, READY) | TO(PATH, ABANDONED) | TO(PATH, STOPPING),                \
      "a thread connects the queue pair")                                                          \
    X(PATH, ABANDONED, TO(PATH, STOPPING) | TO(PATH, NONE),                                        \
      "its link ended while a thread makes or connects the queue pair, which is destroyed "        \
      "afterwards")                                                                                \
    X(PATH, READY, TO(PATH, STOPPING), "pages may travel")                                         \
    X(PATH, STOPPING, TO(PATH, DRAINING), "a thread moves the queue pair to the error state")      \
    X(PATH, DRAINING, TO(PATH, ENDING), "its work requests are flushed")                           \
    X(PATH, ENDING, TO(PATH, NONE) | TO(PATH, STUCK), "a thread destroys the queue pair")          \
    X(PATH, STUCK, TO(PATH, NONE),                                                                 \
      "the queue pair could not be destroyed, which the log reports; tried again from time to "    \
      "time")                                                                                      \
    X(PATH, PAUSED, TO(PATH, MAKING) | TO(PATH, NONE), "the queue pair is made again at retry_ns")

STATE_MACHINE(path, PATH, PATH_STATE_TABLE)

/* Usual order: BINDING, BOUND, ASKED, COMING or ARRIVED, CLOSING, CLOSED, CONFIRMING, VERIFYING.
 * When the pull ends, states before CLOSING change to CLOSING; when the path is lost, these and
 * CLOSING change to WAITING. */
#define PIECE_STATE_TABLE(X)                                                                       \
    X(PIECE, FREE, TO(PIECE, BINDING), "no piece has this slot")                                   \
    X(PIECE, BINDING, TO(PIECE, BOUND) | TO(PIECE, CLOSING) | TO(PIECE, WAITING),                  \
      "the device binds memory windows to its runs of pages")                                      \
    X(PIECE, BOUND, TO(PIECE, ASKED) | TO(PIECE, CLOSING) | TO(PIECE, WAITING),                    \
      "waits for room to send REQUEST_WRITE")                                                      \
    X(PIECE, ASKED,                                                                                \
      TO(PIECE, COMING) | TO(PIECE, ARRIVED) | TO(PIECE, CLOSING) | TO(PIECE, WAITING),            \
      "REQUEST_WRITE was queued; its answer is due")                                               \
    X(PIECE, WAITING, TO(PIECE, BINDING) | TO(PIECE, FREE),                                        \
      "waits for a path, and until a lost path cannot touch its pages any more")                   \
    X(PIECE, COMING, TO(PIECE, CLOSING) | TO(PIECE, WAITING),                                      \
      "the peer has posted all writes; some pages have not arrived yet")                           \
    X(PIECE, ARRIVED, TO(PIECE, CLOSING) | TO(PIECE, WAITING),                                     \
      "all pages have arrived; the answer is due")                                                 \
    X(PIECE, CLOSING, TO(PIECE, CLOSED) | TO(PIECE, WAITING) | TO(PIECE, FREE),                    \
      "the device closes the memory windows")                                                      \
    X(PIECE, CLOSED, TO(PIECE, CONFIRMING) | TO(PIECE, FREE), "waits for room to send CONFIRM")    \
    X(PIECE, CONFIRMING, TO(PIECE, VERIFYING) | TO(PIECE, FREE), "the answer to CONFIRM is due")   \
    X(PIECE, VERIFYING, TO(PIECE, FREE), "a data thread compares its pages with their checksums")

STATE_MACHINE(piece, PIECE, PIECE_STATE_TABLE)

enum verbs_job { JOB_NONE = 0, JOB_MAKE, JOB_ACCEPT, JOB_CONNECT, JOB_STOP, JOB_END };

struct qp_endpoint {
    uint32_t qpn, psn, mtu, lid;
    union ibv_gid gid;
};

/* The peer's offer, accepted at once or when the old queue pair has ended. */
struct path_offer {
    bool waits;
    struct qp_endpoint end;
    uint32_t epoch;
};

/* A list of writes from a serve's pages. */
struct verbs_write {
    uint32_t serve, last; /* path->posted after the list */
};

struct verbs_path {
    enum path_state state;
    bool source;                    /* we write to the peer; false: the peer writes to us */
    bool wanted;                    /* destination: make the path again when it ends */
    bool doubted;                   /* destination: the path failed and has carried no page since */
    bool short_of_places;           /* waits for places in the rail's completion queue */
    bool marked;                    /* in the link's list of paths whose waiters may resume */
    struct verbs_path *next_marked; /* of the link */
    uint32_t link, tenant, epoch;
    uint32_t rail;     /* in the destination's numbering: see rail_of */
    struct ibv_qp *qp; /* owned */
    struct qp_endpoint ours, theirs;
    uint32_t their_epoch;
    struct path_offer offer;                                      /* source: the latest */
    uint32_t posted, completed;                                   /* work requests */
    uint64_t since_ns, retry_ns, pause_ns, ready_ns, progress_ns; /* progress: of its requests */
    char reason[XFER_PATH_TEXT]; /* why it is not ready; ready: its device and port */
    uint32_t npeer_mrs;
    struct xfer_mr peer_mr[XFER_MRS_MAX]; /* source: the peer's memory that can be written */
    uint64_t pushed_ns; /* destination: when the peer last reported a piece as written */
    uint32_t held;      /* destination: reserved completion places whose requests are not posted */
    uint64_t mws_free;  /* destination: a bit each */
    struct ibv_mw *mw[VERBS_MWS]; /* destination: owned */
    uint32_t nmws;
    uint32_t mw_rkey[VERBS_MWS];  /* source: as offered */
    uint32_t writes_at, writes_n; /* source: ring of lists that are posted and not complete */
    struct verbs_write writes[VERBS_SEND_QUEUE];

    /* While job is not JOB_NONE, a thread owns qp, ours, theirs and the fields below. */
    struct io_task task;
    struct verbs *v; /* borrowed */
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
    uint32_t n;        /* 0: not registered, so no page of the tenant leaves by this rail */
    struct verbs_mr mr[XFER_MRS_MAX];
    bool far;             /* memory of GPUs; region[] describes how each is registered */
    struct verbs_mr ring; /* far: this rail's registration of the tenant's ring; mr NULL: none */
    char no_ring[XFER_REGISTRATION_TEXT]; /* why there is none; "": registered, or not needed */
    struct {
        enum xfer_registered how;
        char why[XFER_REGISTRATION_TEXT]; /* why better ways failed */
        /* The self-test's result (selftest.c). Results of all host memory are in region 0. */
        struct xfer_self_test test;
    } region[RANKS_MAX];
};

struct verbs_rail {
    struct verbs *v; /* borrowed, and so is the next */
    const struct xfer_rdma_tuning *tuning;
    struct ibv_context *ctx;     /* owned, and so are those that follow */
    struct verbs_domain *domain; /* config.rdma.tenants */
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    uint32_t cq_used; /* requests outstanding, of view.completion_queue */
    bool cq_short;    /* a piece of some path waits for a place in the queue */
    bool cq_freed;    /* places were freed since cq_short was set */
    struct io_op cq_op, async_op;
    bool cq_armed;    /* the next completion wakes the owner */
    uint64_t spin_ns; /* poll the queue until then, while requests are outstanding */
    union ibv_gid gid;
    uint32_t lid, mtu, max_msg;
    int alive_fd; /* a sysfs attribute, unreadable once the device is gone; -1: none */
    struct xfer_rail_view view;
    bool windows_refused; /* the self-test cleared view.memory_windows */
};

/* Host memory to which peers write the pages of a tenant on GPUs (bounce.c). */
struct verbs_ring {
    uint8_t *base;   /* owned; NULL: no ring */
    uint64_t taken;  /* slots, a bit each */
    bool waited_for; /* a piece found too few free slots */
    bool given;      /* slots were freed since waited_for was set */
};

/* The stretch of one registration that one memory window opens. */
struct verbs_run {
    const struct verbs_mr *mr; /* borrowed from the path's rail */
    uint64_t offset, bytes;    /* in the region, or in the ring */
    uint8_t mw;
};

struct verbs_piece {
    enum piece_state state;
    bool holds;     /* the piece counts in pull->holds: a device may write its pages */
    bool answered;  /* no answer on the data connection is due for the piece */
    uint32_t batch; /* NONE: the pull has ended */
    uint32_t tenant, pull, seq, first, n, tries;
    uint32_t tried; /* rails, a bit each */
    uint32_t path;  /* path of its requests; NONE: not bound yet */
    uint32_t last;  /* path->posted after its last request */
    uint64_t at_ns; /* when last granted, requested, closed, or its pull ended */
    struct xfer_entry entry[XFER_PAGES_MAX]; /* as requested, repeated in CONFIRM */
    struct serve_id serve;
    uint64_t *sums; /* owned, verbs->piece_sums of them: the source's checksums */
    bool revoked; /* closed, but the source may still write until it has refused or written, or the
                     path ends */
    uint32_t nruns;
    struct verbs_run run[XFER_RUNS_MAX];
    uint64_t slots;  /* of the tenant's ring that receive its pages, a bit each; 0: none */
    struct verbs *v; /* borrowed; v and link locate the piece */
    uint32_t link;

    /* For PIECE_VERIFYING. Until the task returns, the data thread owns these fields, `sums`,
     * `first` and `n`. The owner thread may set `batch` to NONE meanwhile. */
    struct io_task task;
    uint32_t verified;               /* the batch whose pages the thread verifies */
    uint64_t stale[XFER_MASK_WORDS]; /* pages to skip, by index in the piece */
    uint64_t right[XFER_MASK_WORDS]; /* pages that agree with their checksums */
};

struct verbs_link {
    bool peer_rdma;
    bool marked; /* queued: its pieces may resume, or it has something to send */
    struct fifo_link mark;
    struct verbs_path *marked_paths; /* head of the list */
    uint64_t tenants, up_ns;
    uint64_t noted, noted_verbs; /* tenants whose transport was reported; those reported as RDMA */
    uint32_t seq;
    struct verbs_piece *piece; /* owned, VERBS_PIECES; NULL until the link is used */
};

struct verbs {
    struct xfer *xfer;                  /* borrowed, and so is the next */
    struct transport *transport;        /* its entry in xfer->transport */
    struct xfer_rdma_view view;         /* without its rails */
    bool test_failed[XFER_DEVICES_MAX]; /* view.found[i]: with host memory (selftest.c) */
    uint32_t nrails;                    /* 0: no usable device */
    struct verbs_rail rail[XFER_RAILS_MAX];
    struct io_threads *threads; /* owned (setup.c) */
    atomic_bool closing;
    bool polls;         /* the owner calls xfer_poll */
    bool running;       /* inside verbs_run */
    struct fifo marked; /* links */
    uint32_t tenants, rails, npaths, epoch;
    struct verbs_path *path; /* owned, links x tenants x rails */
    struct verbs_link *link; /* owned, config.links */
    uint32_t piece_sums;
    struct verbs_ring ring[MEM_TENANTS_MAX];
};

/* Returns the state of the RDMA transport. NULL: not in use. */
static inline struct verbs *verbs_of(const struct xfer *xfer)
{
    for (uint32_t i = 0; i < xfer->ntransports; i++)
        if (xfer->transport[i].ops->rdma)
            return xfer->transport[i].own;
    return NULL;
}

static inline struct lane *verbs_lane(const struct verbs *v, uint32_t peer_link)
{
    return transport_lane(v->transport, peer_link);
}

/* State of a data connection that carries notices. */
struct verbs_notices {
    uint32_t rx_n; /* bytes received in conn->meta */
};

/* device/rail.c */
void rails_look(struct xfer *xfer); /* fills xfer->looked; leaves no device open */
void rails_open(struct verbs *v);   /* v->view reports why each device is in use or not */
void rails_close(struct verbs *v);  /* after their last queue pair is destroyed */
/* Returns true if the device is gone, and with it all its objects. EIO from a call is not enough:
 * the kernel refuses calls before it destroys queue pairs. */
bool rail_gone(const struct verbs_rail *rail);

/* device/port.c. Returns false if the port is not active or not as configured, with *ret_why. */
bool port_take(struct verbs_rail *rail, uint32_t port, char *ret_why, size_t cap);

/* device/regions.c */
bool memory_lockable(struct verbs *v, char *ret_why, size_t cap);
/* Registers all tenants' memory; after a failure memory_close unregisters the part that was
 * registered. */
bool memory_register(struct verbs *v, struct verbs_rail *rail, char *ret_why, size_t cap);
/* Returns true if RDMA may write pages of the pool to peers. */
bool memory_leaves(const struct verbs *v, uint32_t pool);
void memory_close(struct verbs *v, struct verbs_rail *rail);
const struct verbs_mr *local_mr(const struct verbs_domain *d, const uint8_t *at);

/* device/regions_far.c: registers the pieces of a far domain, and its ring. Pieces that cannot be
 * registered leave the domain; its regions report why. */
void memory_register_far(struct verbs *v, struct verbs_rail *rail, uint32_t tenant);
/* Returns true if the pool lies on a GPU that has failed, so none of its pages leaves. */
bool memory_far_lost(const struct verbs *v, uint32_t pool);
/* At start, after registration: `region` failed its self-test, so the rail uses no region of the
 * tenant. ring_unregister drops only the ring and its keys. */
void memory_unregister_far(struct verbs *v, struct verbs_rail *rail, uint32_t tenant,
                           uint32_t region, const char *why);
void ring_unregister(struct verbs_rail *rail, uint32_t tenant, const char *why);

/* device/bounce.c: rings of tenants on GPUs. If there is no ring, domain->no_ring has the reason.
 * The pieces of one link share a limited number of slots. */
void ring_open(struct verbs *v, struct verbs_rail *rail, uint32_t tenant);
void rings_close(struct verbs *v); /* after all rails have unregistered them */
/* Chooses free slots for `bytes`. Returns false if too few may be taken now. */
bool ring_fit(struct verbs *v, const struct verbs_path *p, uint64_t bytes, uint64_t *ret_slots);
/* Returns true if the path may use the whole ring now, so a piece that does not fit never will. */
bool ring_whole(struct verbs *v, const struct verbs_path *p);
/* Returns the address of byte `at` within these slots. *ret_bytes: contiguous bytes from there. */
uint8_t *ring_at(const struct verbs *v, uint32_t tenant, uint64_t slots, uint64_t at,
                 uint64_t *ret_bytes);
void slots_take(struct verbs *v, struct verbs_piece *piece); /* the slots of its runs */
void slots_give(struct verbs *v, struct verbs_piece *piece); /* nobody writes or reads them now */
/* On a data thread: copies the slots to the pages. Returns false if memory of a page is gone. */
bool slots_land(const struct verbs_piece *piece);

/* Returns true if the peer's writes go through the tenant's ring. */
static inline bool path_bounces(const struct verbs *v, const struct verbs_path *p)
{
    return !p->source && v->rail[p->rail % v->nrails].domain[p->tenant].far;
}

/* device/selftest.c: fills in the tests of the rail's domains. Unregisters regions of GPUs and
 * rings that fail. Returns false, with *ret_why, if host memory failed: the rail must not be used.
 */
#define VERBS_TEST_NS      5000000000u  /* for a work request, retried or not */
#define VERBS_TEST_RAIL_NS 15000000000u /* for a rail: no test begins later */
#define VERBS_TEST_POLL_NS 50000        /* between polls, after VERBS_SPIN_NS */
bool self_test(struct verbs *v, struct verbs_rail *rail, char *ret_why, size_t cap);

/* device/qp.c */
/* Makes a queue pair in INIT, on a thread that may wait. Returns 0, or the errno of the call named
 * in *ret_what. *ret is set also if only the move to INIT failed. */
struct qp_wish {
    struct ibv_pd *pd; /* borrowed, and so is the next */
    struct ibv_cq *cq;
    uint32_t sends;
    unsigned access;
};
int qp_make(const struct verbs_rail *rail, const struct qp_wish *wish, struct ibv_qp **ret,
            const char **ret_what);
int qp_connect(const struct verbs_rail *rail, struct ibv_qp *qp, const struct qp_endpoint *ours,
               const struct qp_endpoint *theirs, const char **ret_what);

/* path/setup.c */
uint64_t setup_bytes(uint32_t npaths);
enum tern_err setup_start(struct verbs *v);
void setup_stop(struct verbs *v); /* joins the threads; queued jobs are skipped */
/* Hands the path to a thread. path_back receives it when the job is done. */
void setup_give(struct verbs *v, struct verbs_path *p, enum verbs_job job);
int setup_end_now(struct verbs_path *p); /* destroys the queue pair; 0 or an errno */
int windows_make(struct verbs *v, struct verbs_path *p); /* on a thread; 0 or an errno */

/* path/path.c */
void path_failed(struct verbs *v, struct verbs_path *p, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void path_carried(struct verbs *v, struct verbs_path *p);  /* a page arrived over it */
void path_advance(struct verbs *v, struct verbs_path *p);  /* ends a drained path */
void path_finished(struct verbs *v, struct verbs_path *p); /* its thread's job is done */
void path_want(struct verbs_path *p);                      /* destination: the next tick makes it */
void path_offered(struct verbs *v, struct verbs_path *p, const struct xfer_path_msg *msg);
void path_answered(struct verbs *v, struct verbs_path *p, const struct xfer_path_msg *msg);
void paths_tick(struct verbs *v, uint64_t now_ns);
/* The device failed or was removed. Paths over it fail, and no new ones are made. */
void rail_lost(struct verbs_rail *rail, const char *why);

static inline struct verbs_path *path_of(const struct verbs *v, uint32_t link, uint32_t tenant,
                                         uint32_t rail)
{
    return &v->path[((size_t)link * v->tenants + tenant) * v->rails + rail];
}

/* Returns our rail that has our end of the path. */
static inline struct verbs_rail *rail_of(struct verbs *v, const struct verbs_path *p)
{
    return &v->rail[p->rail % v->nrails];
}

/* The path waits for credit. Completions of other paths free places in the completion queue. */
static inline void rail_full(struct verbs *v, struct verbs_path *p)
{
    struct verbs_rail *rail = rail_of(v, p);

    if (rail->view.completion_queue - rail->cq_used >= 2 * XFER_RUNS_MAX)
        return;
    rail->cq_short = p->short_of_places = true;
    rail->cq_freed = false;
}

/* Marks a link or a path for the run at the end of the event (events.c). */
static inline void link_mark(struct verbs *v, uint32_t number)
{
    struct verbs_link *link = &v->link[number];

    if (!link->marked)
        fifo_push(&v->marked, &link->mark);
    link->marked = true;
}

static inline void path_mark(struct verbs *v, struct verbs_path *p)
{
    struct verbs_link *link = &v->link[p->link];

    link_mark(v, p->link);
    if (p->marked)
        return;
    p->marked = true;
    p->next_marked = link->marked_paths;
    link->marked_paths = p;
}

/* path/peers.c */
/* Returns the ready path with the most credit, the least used of equals. NULL: none is ready. */
struct verbs_path *path_best(struct verbs *v, uint32_t link, uint32_t tenant);
/* Returns the path for a piece of a batch (NULL: a piece that has not begun). Prefers, in this
 * order: paths not in doubt (a piece that was never lost may test a doubted path once), paths on
 * rails where the piece was not tried, paths on the rails of its pages' regions. */
struct verbs_path *path_for(struct verbs *v, uint32_t link, uint32_t batch,
                            const struct verbs_piece *piece);

/* Returns true if a path that has not failed yet is being set up, so waiting is worthwhile. */
bool path_coming(const struct verbs *v, uint32_t link, uint32_t tenant);
void path_view(const struct verbs *v, const struct verbs_path *p, struct xfer_path_view *ret);
/* Reports the transport of the tenant's pages from now on, if it changed. */
void transport_note(struct verbs *v, uint32_t link, uint32_t tenant, bool verbs,
                    const char *reason);

/* Returns why no page of the link uses a path. "": pages may. */
const char *verbs_unwanted(const struct verbs *v, uint32_t link);
/* Returns why peers cannot push to the tenant's pages over that rail or, for tenant_pathless, over
 * any rail. NULL: they can. */
const char *rail_pathless(const struct verbs_rail *rail, uint32_t tenant);
const char *tenant_pathless(const struct verbs *v, uint32_t tenant);

/* A list of requests for one doorbell. */
struct verbs_wrs {
    struct ibv_send_wr wr[VERBS_POST_MAX];
    struct ibv_sge sge[VERBS_POST_MAX];
    uint32_t n, room;
};

/* path/requests.c */
/* Appends a request, or extends one that is adjacent on both sides. Returns false if full. */
bool wrs_extend(struct verbs_wrs *list, enum ibv_wr_opcode opcode, const struct ibv_sge *more,
                uint64_t remote, uint32_t rkey, uint32_t most);
/* Caller has checked the credit. Returns false (errno) if only the first list->n were posted. */
bool wrs_post(struct verbs *v, struct verbs_path *p, struct verbs_wrs *list);
const struct xfer_mr *peer_mr(const struct verbs_path *p, uint32_t region, uint64_t offset);
/* Returns what may be posted now. Source: writes. Destination: runs to grant. */
uint32_t path_credit(struct verbs *v, const struct verbs_path *p);
/* Reserves n places in the completion queue for later completions of the path. */
void places_take(struct verbs *v, struct verbs_path *p, uint32_t n);
/* Reserves the places of the path's receives. Returns false if the completion queue is too full. */
bool places_hold(struct verbs *v, struct verbs_path *p);
void places_unhold(struct verbs *v, struct verbs_path *p);
void writes_done(struct verbs *v, struct verbs_path *p); /* path->completed has advanced */
int receive_post(struct verbs *v, struct verbs_path *p); /* 0 or an errno */

/* path/grants.c */
/* Frees a piece whose pull has ended, unless it holds the pull, is revoked, or an answer is due. */
void piece_free(struct verbs_piece *piece);
void piece_done(struct verbs *v, struct verbs_piece *piece); /* no device can write its pages */
/* Frees the piece's windows. Caller has closed them or destroyed the queue pair. */
void mws_give(struct verbs *v, struct verbs_path *p, struct verbs_piece *piece);
void pieces_lost(struct verbs *v, struct verbs_path *p);            /* the path failed */
void pieces_forgotten(struct verbs *v, const struct verbs_path *p); /* no write arrives over it */
void pieces_ended(struct verbs *v, struct verbs_path *p); /* the queue pair was destroyed */

/* move/verify.c: starts verification of a piece that arrived and was confirmed, except its stale
 * pages. The piece ends when its task returns. */
void piece_verify(struct verbs *v, struct verbs_piece *piece, const uint64_t *stale);
void piece_verified(struct verbs_piece *piece);

/* Returns true if a device may write the piece's pages or a data thread uses them. */
static inline bool piece_held(const struct verbs_piece *piece)
{
    return piece->holds || piece->state == PIECE_VERIFYING;
}

static inline struct verbs_piece *piece_of(const struct verbs *v, uint32_t link, uint32_t i)
{
    return &v->link[link].piece[i];
}

/* Returns the link's piece after that one, or the first if `piece` is NULL. Returns NULL after the
 * last. */
static inline struct verbs_piece *piece_next(const struct verbs *v, uint32_t link,
                                             const struct verbs_piece *piece)
{
    struct verbs_piece *first = v->link[link].piece;
    ptrdiff_t next = piece ? piece - first + 1 : 0;

    return first && next < (ptrdiff_t)VERBS_PIECES ? first + next : NULL;
}

#define VERBS_RECEIVE ((uint64_t)1 << 63) /* marks the wr_id of a receive */

static inline uint32_t path_number(const struct verbs *v, const struct verbs_path *p)
{
    return (uint32_t)(p - v->path);
}

/* Names a request by path, epoch and count. Completions of a destroyed pair have an old epoch. */
static inline uint64_t path_wr_id(const struct verbs *v, const struct verbs_path *p, uint16_t mark)
{
    static_assert(XFER_PATHS_MAX <= VERBS_RECEIVE >> 40, "the bits above the epoch");
    return (uint64_t)(p - v->path) << 40 | (uint64_t)p->epoch << 16 | mark;
}

/* move/push.c: the destination of pushes. */
/* Returns how many of the n pages of a batch can be granted as one piece now, and fills piece->run.
 * *ret_most: waiting cannot raise the number. */
uint32_t push_fit(struct verbs *v, struct verbs_path *p, uint32_t batch, uint32_t first, uint32_t n,
                  struct verbs_piece *piece, bool *ret_most);
bool push_bind(struct verbs *v, struct verbs_path *p, struct verbs_piece *piece);
void push_asked(struct verbs_piece *piece);
void push_answered(struct verbs *v, struct verbs_piece *piece, bool given);
void push_received(struct verbs *v, struct verbs_path *p, const struct ibv_wc *wc);
/* The path broke. Counts it as a late write if a grant was revoked. */
void push_refused(struct verbs *v, struct verbs_path *p);
void pieces_done(struct verbs *v, struct verbs_path *p);     /* path->completed has advanced */
void piece_drop(struct verbs *v, struct verbs_piece *piece); /* the pull has ended */
void pieces_tick(struct verbs *v, uint32_t link, uint64_t now_ns);

/* move/source.c: the source of pushes. Resumes writes that wait for the path; fails them if it
 * ended. */
void writes_go_on(struct verbs *v, struct verbs_path *p);

/* retry.c */
void batch_other_way(struct verbs *v, uint32_t link, uint32_t batch); /* uses another transport */
void pieces_start(struct verbs *v, uint32_t link); /* starts pieces that wait for a path */
/* If the tenant has no path and none is being set up, moves its waiting batches to another
 * transport. */
void batches_settle(struct verbs *v, struct verbs_path *p);

/* notices.c: sends what is due on the link's data connection, or calls for a connection. */
void link_say(struct verbs *v, uint32_t link);

/* events.c */
void verbs_run(struct verbs *v); /* resumes marked links and paths */
void path_back(struct io_task *task, int32_t res);
void piece_back(struct io_task *task, int32_t res);
void rails_poll(struct verbs *v); /* starts polling their descriptors; rails_unpoll ends it */
void rails_unpoll(struct verbs *v);

/* verbs.c */
bool link_pieces(struct verbs *v, uint32_t link);

/* ------------------------------------------------------------------ functions for transport.h */

void verbs_pump(struct transport *t, uint32_t peer_link);
bool verbs_takes(const struct transport *t, uint32_t peer_link, uint32_t pool);
void verbs_drop(struct transport *t, uint32_t pull);
bool verbs_holds(const struct transport *t, uint32_t pull);
void verbs_link_down(struct transport *t, uint32_t peer_link);
void verbs_tick(struct transport *t, uint64_t now_ns);
bool verbs_poll(struct transport *t);
void verbs_link_view(const struct transport *t, uint32_t peer_link, struct xfer_link_view *ret);
extern const struct data_service verbs_service;
extern const struct data_caller verbs_caller;

#endif
