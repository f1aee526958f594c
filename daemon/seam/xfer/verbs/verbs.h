/* What the files of the RDMA transport share. device/ is below path/, that below move/, and on top
 * are retry.c (which path a piece takes, and what happens if that is lost), notices.c (the data
 * connection beside the paths), events.c (what comes, and the run at the end of each event) and
 * verbs.c (the transport behind the door and its life).
 *
 * A rail is one local device in use. A path is one end of a reliable connection (a queue pair), and
 * belongs to one peer link, one tenant and one rail: it lies in the tenant's protection domain of
 * that rail. The source pushes: the destination's end allows remote writes, which only the memory
 * windows that it has bound let in, and the source's end allows nothing. Nobody reads.
 *
 * Promise P2 rests on three counters: path->posted and path->completed (work requests, in order),
 * and pull->holds, in which each piece counts while some of its work requests are not completed.
 * `completed` goes up on a completion of the same epoch, or to the end when the queue pair is
 * destroyed; nowhere else. A piece that is verified counts in pull->holds too, until its task is
 * back: the data thread works on its pages and on their checksums. */
#ifndef SEAM_XFER_VERBS_H
#define SEAM_XFER_VERBS_H

#include <infiniband/verbs.h>
#include <stdatomic.h>

#include "seam/xfer/conn/data_conn.h"
#include "seam/xfer/flow/transport.h"
#include "seam/xfer/verbs/states.h"

extern const struct transport_ops verbs_transport;

#define VERBS_SEND_QUEUE       128u       /* requests outstanding on a queue pair */
#define VERBS_COMPLETION_QUEUE 4096u      /* requests outstanding over all of them */
#define VERBS_UNASKED_MAX      65536u     /* and what may come unasked */
#define VERBS_POST_MAX         64u        /* requests behind one doorbell */
#define VERBS_POLL_MAX         64         /* completions taken at once */
#define VERBS_WRITE_BYTES      (1u << 20) /* of one request, adjacent pages together */
#define VERBS_PIECES           16u        /* of a link, asked for and not yet confirmed */
#define VERBS_PIECE_TRIES      4u   /* of a piece, each over a path that was ready; or one a rail */
#define VERBS_PIECE_SUMS       512u /* checksums of a piece, unless one page has more */
#define VERBS_SPIN_NS          100000u /* of polling without a wait, from the last completion */
#define VERBS_REGISTER_BYTES   (1ull << 30) /* at least, of one thread's registration */
#define VERBS_REGISTER_THREADS 16u
#define VERBS_REGISTER_TELL_NS 2000000000u  /* between two reports of progress */
#define VERBS_MWS              XFER_MWS_MAX /* of a path: runs of pages granted at a time */
#define VERBS_REVOKE_NS        100000000u /* for what was granted to arrive when its pull has ended */
#define VERBS_SETUP_NS         3000000000u /* from the link's up to a path; then TCP, or an error */
#define VERBS_DRAIN_NS         2000000000u /* for flushed completions; then the pair is destroyed */
#define VERBS_RETRY_MIN_NS     200000000u  /* pause before a path is made anew; doubled up to */
#define VERBS_RETRY_MAX_NS     10000000000u

enum verbs_job { JOB_NONE = 0, JOB_MAKE, JOB_ACCEPT, JOB_CONNECT, JOB_STOP, JOB_END };

struct qp_endpoint {
    uint32_t qpn, psn, mtu, lid;
    union ibv_gid gid;
};

/* An offer of the peer, which is taken at once or when the old queue pair has ended. */
struct path_offer {
    bool waits;
    struct qp_endpoint end;
    uint32_t epoch;
};

/* A list of writes from a serve's pages. */
struct verbs_write {
    uint32_t serve, last; /* path->posted behind it */
};

struct verbs_path {
    enum path_state state;
    bool source;          /* we write to the peer; else it writes to us */
    bool wanted;          /* destination: made again when it ends */
    bool doubted;         /* destination: it failed, and no page has come over it since */
    bool short_of_places; /* something of it waits for places in the rail's completion queue */
    bool marked;          /* what waits for it may go on */
    struct verbs_path *next_marked; /* of the link */
    uint32_t link, tenant, epoch;
    uint32_t rail;     /* as the destination numbers them: see rail_of */
    struct ibv_qp *qp; /* owned */
    struct qp_endpoint ours, theirs;
    uint32_t their_epoch;
    struct path_offer offer;                                      /* source: the last one */
    uint32_t posted, completed;                                   /* work requests */
    uint64_t since_ns, retry_ns, pause_ns, ready_ns, progress_ns; /* progress: of its requests */
    char reason[XFER_PATH_TEXT]; /* why it is not ready; of a ready one, as what it was made */
    uint32_t npeer_mrs;
    struct xfer_mr peer_mr[XFER_MRS_MAX]; /* source: what can be written at the peer */
    uint64_t pushed_ns; /* destination: when the peer last said that a piece is there */
    uint32_t held;      /* destination: completions that have a place and are not posted */
    uint64_t mws_free;  /* destination: a bit each */
    struct ibv_mw *mw[VERBS_MWS]; /* destination: owned */
    uint32_t nmws;
    uint32_t mw_rkey[VERBS_MWS];  /* source: as offered */
    uint32_t writes_at, writes_n; /* source: a ring of what is posted and not done */
    struct verbs_write writes[VERBS_SEND_QUEUE];

    /* While a thread has a job of it, the queue pair, both ends and what follows are its. */
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
    uint32_t n; /* 0: the tenant's memory is not registered, so none of its pages leave here */
    struct verbs_mr mr[XFER_MRS_MAX];
    bool far;             /* memory of GPUs, whose regions tell how they are registered */
    struct verbs_mr ring; /* far: the tenant's ring, as this rail knows it; mr NULL: not at all */
    char no_ring[XFER_REGISTRATION_TEXT]; /* why not; "": nothing goes through one */
    struct {
        enum xfer_registered how;
        char why[XFER_REGISTRATION_TEXT]; /* what became of better ways */
        /* What was found at start (selftest.h). Of memory of the host all of it is in region 0. */
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
    bool cq_short;    /* a piece waits for one of those to be done, of whichever path */
    bool cq_freed;    /* and since then some were */
    struct io_op cq_op, async_op;
    bool cq_polling, async_polling;
    bool cq_armed;    /* the next completion wakes us */
    uint64_t spin_ns; /* until when the queue is polled, while requests are outstanding */
    union ibv_gid gid;
    uint32_t lid, mtu, max_msg;
    int alive_fd; /* an attribute of the device, which cannot be read once it is gone; -1: none */
    struct xfer_rail_view view;
    bool windows_refused; /* by the self-test, in which view.memory_windows ended */
};

/* Memory of the host that peers write the pages of a tenant on GPUs to (bounce.c). */
struct verbs_ring {
    uint8_t *base;   /* owned; NULL: there is none */
    uint64_t taken;  /* slots, a bit each */
    bool waited_for; /* a piece found too few */
    bool given;      /* and since then some were given back */
};

/* What one memory window opens: a stretch of one registration. */
struct verbs_run {
    const struct verbs_mr *mr; /* borrowed from the path's rail */
    uint64_t offset, bytes;    /* in the region, or in the ring */
    uint8_t mw;
};

struct verbs_piece {
    enum piece_state state;
    bool holds;     /* it holds its pull: a device may write its pages */
    bool answered;  /* no answer of the connection is due for it */
    uint32_t batch; /* NONE: its pull has ended */
    uint32_t tenant, pull, seq, first, n, tries;
    uint32_t tried; /* rails, a bit each */
    uint32_t path;  /* whose requests; NONE before */
    uint32_t last;  /* path->posted behind its last one */
    uint64_t at_ns; /* when it was granted, asked for, closed, or its pull ended */
    struct xfer_entry entry[XFER_PAGES_MAX]; /* as asked, to be confirmed */
    struct serve_id serve;
    uint64_t *sums; /* owned, verbs->piece_sums: the source's */
    bool revoked;   /* closed; the source may write until it says not, did, or the path ends */
    uint32_t nruns;
    struct verbs_run run[XFER_RUNS_MAX];
    uint64_t slots;  /* of its tenant's ring, a bit each, that its pages come through; 0: none */
    struct verbs *v; /* borrowed; with `link` where the piece is */
    uint32_t link;

    /* Of PIECE_VERIFYING. While the task is away these, `sums`, `first` and `n` are the
     * data thread's, and the owner may take the batch from the piece: see `batch`. */
    struct io_task task;
    uint32_t verified;               /* the batch whose pages are looked at */
    uint64_t stale[XFER_MASK_WORDS]; /* by place in it */
    uint64_t right[XFER_MASK_WORDS]; /* pages that agree with their checksums */
};

struct verbs_link {
    bool peer_rdma;
    bool marked; /* its pieces may go on, or something is to be sent */
    struct verbs_link *next_marked;
    struct verbs_path *marked_paths; /* the first */
    uint64_t tenants, up_ns;
    uint64_t noted, noted_verbs; /* tenants whose transport was noted, and as what */
    uint32_t seq;
    struct verbs_piece *piece; /* owned, VERBS_PIECES; NULL until the link is used */
};

struct verbs {
    struct xfer *xfer;                  /* borrowed, and so is the next */
    struct transport *transport;        /* what it is behind the door */
    struct xfer_rdma_view view;         /* but for its rails */
    bool test_failed[XFER_DEVICES_MAX]; /* of those found: with memory of the host (selftest.h) */
    uint32_t nrails;                    /* 0: there is no device to use */
    struct verbs_rail rail[XFER_RAILS_MAX];
    struct io_threads *threads; /* owned (setup.c) */
    atomic_bool closing;
    bool polls;                                    /* the owner calls xfer_poll */
    bool running;                                  /* the run is under way */
    struct verbs_link *marked_first, *marked_last; /* in the order of their marks */
    uint32_t tenants, rails, npaths, epoch;
    struct verbs_path *path; /* owned, links x tenants x rails */
    struct verbs_link *link; /* owned, config.links */
    uint32_t piece_sums;
    struct verbs_ring ring[MEM_TENANTS_MAX];
};

/* The state of the RDMA transport; NULL: it is not in use. */
static inline struct verbs *verbs_of(const struct xfer *xfer)
{
    for (uint32_t i = 0; i < xfer->ntransports; i++)
        if (xfer->transport[i].ops == &verbs_transport)
            return xfer->transport[i].own;
    return NULL;
}

static inline struct lane *verbs_lane(const struct verbs *v, uint32_t peer_link)
{
    return transport_lane(v->transport, peer_link);
}

/* What is kept for a connection that carries notices. */
struct verbs_notices {
    uint32_t rx_n; /* bytes of conn->meta that are there */
};

/* device/rail.c */
void rails_look(struct xfer *xfer); /* as it, in xfer->looked, and leaves none open */
void rails_open(struct verbs *v);   /* says in v->view why each device is, or is not, in use */
void rails_close(struct verbs *v);  /* after their last queue pair */
/* What the device had was destroyed with it. A call's EIO alone does not say so: the kernel refuses
 * calls before it takes queue pairs down. */
bool rail_gone(const struct verbs_rail *rail);

/* device/port.c: that port is active and has what the configuration asks for; else *ret_why. */
bool port_take(struct verbs_rail *rail, uint32_t port, char *ret_why, size_t cap);

/* device/regions.c */
bool memory_lockable(struct verbs *v, char *ret_why, size_t cap);
/* Registers all tenants' memory; on failure what was registered stays until memory_close. */
bool memory_register(struct verbs *v, struct verbs_rail *rail, char *ret_why, size_t cap);
/* Pages of that pool may be written to peers. */
bool memory_leaves(const struct verbs *v, uint32_t pool);
void memory_close(struct verbs *v, struct verbs_rail *rail);
const struct verbs_mr *local_mr(const struct verbs_domain *d, const uint8_t *at);

/* device/regions_far.c: the pieces of a domain that is far, and its ring. Those that cannot be
 * registered are gone from it when this returns, which says in its regions why. */
void memory_register_far(struct verbs *v, struct verbs_rail *rail, uint32_t tenant);
/* The pool lies on a GPU that has failed, so no page of it leaves. */
bool memory_far_lost(const struct verbs *v, uint32_t tenant, uint32_t pool);
bool verbs_registration_view(const struct transport *t, uint32_t i,
                             struct xfer_registration_view *ret);
/* At start, when they were registered: no region of the tenant is used with that rail, as that one
 * failed in its test; or not the ring, whose keys go with it. */
void memory_unregister_far(struct verbs *v, struct verbs_rail *rail, uint32_t tenant,
                           uint32_t region, const char *why);
void ring_unregister(struct verbs_rail *rail, uint32_t tenant, const char *why);

/* device/bounce.c. Of a tenant on GPUs; where there is no ring the domain says why. Only so
 * many slots are for what comes over one link. */
void ring_open(struct verbs *v, struct verbs_rail *rail, uint32_t tenant);
void rings_close(struct verbs *v); /* no rail has them registered any more */
/* Slots for so many bytes that may be taken now. False: there are too few. */
bool ring_fit(struct verbs *v, const struct verbs_path *p, uint64_t bytes, uint64_t *ret_slots);
/* More than fits now fits never. */
bool ring_whole(struct verbs *v, const struct verbs_path *p);
/* Byte `at` of what lies in these slots, and how many follow it there. */
uint8_t *ring_at(const struct verbs *v, uint32_t tenant, uint64_t slots, uint64_t at,
                 uint64_t *ret_bytes);
void slots_take(struct verbs *v, struct verbs_piece *piece); /* those of its runs */
void slots_give(struct verbs *v, struct verbs_piece *piece); /* nothing writes or reads them */
/* On a data thread: what has come is copied to the pages. False: memory of one is gone. */
bool slots_land(const struct verbs_piece *piece);

/* What its peer writes goes through the ring of its tenant. */
static inline bool path_bounces(const struct verbs *v, const struct verbs_path *p)
{
    return !p->source && v->rail[p->rail % v->nrails].domain[p->tenant].far;
}

/* device/qp.c */
/* A queue pair of a rail in INIT, on a thread that may wait. 0, or an errno of *ret_what; *ret is
 * the pair also where only its move failed. */
struct qp_wish {
    struct ibv_pd *pd; /* borrowed, and so is the next */
    struct ibv_cq *cq;
    uint32_t sends;
    unsigned access;
};
int qp_make(const struct verbs_rail *rail, const struct qp_wish *wish, struct ibv_qp **ret,
            const char **ret_what);
/* Connects it. */
int qp_connect(const struct verbs_rail *rail, struct ibv_qp *qp, const struct qp_endpoint *ours,
               const struct qp_endpoint *theirs, const char **ret_what);

/* path/setup.c */
uint64_t setup_bytes(uint32_t npaths);
enum tern_err setup_start(struct verbs *v);
void setup_stop(struct verbs *v); /* joins the threads; what was queued is not done */
/* It comes back by path_back. */
void setup_give(struct verbs *v, struct verbs_path *p, enum verbs_job job);
int setup_end_now(struct verbs_path *p); /* destroys a queue pair, or 0 is not what it says */
int windows_make(struct verbs *v, struct verbs_path *p); /* a thread's; 0 or an errno */

/* path/path.c */
void path_failed(struct verbs *v, struct verbs_path *p, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void path_carried(struct verbs *v, struct verbs_path *p);  /* a page has come over it */
void path_advance(struct verbs *v, struct verbs_path *p);  /* a draining one may be quiet */
void path_finished(struct verbs *v, struct verbs_path *p); /* a thread has done its job of it */
void path_want(struct verbs_path *p);                      /* the destination; the tick makes it */
void path_offered(struct verbs *v, struct verbs_path *p, const struct xfer_path_msg *msg);
void path_answered(struct verbs *v, struct verbs_path *p, const struct xfer_path_msg *msg);
void paths_tick(struct verbs *v, uint64_t now_ns);
/* The device failed, or was taken away: its paths fail, and no other is made over it. */
void rail_lost(struct verbs_rail *rail, const char *why);

static inline struct verbs_path *path_of(const struct verbs *v, uint32_t link, uint32_t tenant,
                                         uint32_t rail)
{
    return &v->path[((size_t)link * v->tenants + tenant) * v->rails + rail];
}

/* Ours that the path's end is at. */
static inline struct verbs_rail *rail_of(struct verbs *v, const struct verbs_path *p)
{
    return &v->rail[p->rail % v->nrails];
}

/* The path waits for credit: places in the completion queue come by other paths' completions. */
static inline void rail_full(struct verbs *v, struct verbs_path *p)
{
    struct verbs_rail *rail = rail_of(v, p);

    if (rail->view.completion_queue - rail->cq_used >= 2 * XFER_RUNS_MAX)
        return;
    rail->cq_short = p->short_of_places = true;
    rail->cq_freed = false;
}

/* Marks for the run at the end of the event (events.c). */
static inline void link_mark(struct verbs *v, uint32_t number)
{
    struct verbs_link *link = &v->link[number];

    if (link->marked)
        return;
    link->marked = true;
    link->next_marked = NULL;
    *(v->marked_first ? &v->marked_last->next_marked : &v->marked_first) = link;
    v->marked_last = link;
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
/* The ready path with the most credit, in turn where that is equal; NULL: none is ready. */
struct verbs_path *path_best(struct verbs *v, uint32_t link, uint32_t tenant);
/* Likewise for a piece of a batch. One that is in doubt comes last, but for a piece that was never
 * lost (NULL: one that is not begun), then those that this piece was tried over, then those that
 * are on none of the rails of the regions that its pages lie in. */
struct verbs_path *path_for(struct verbs *v, uint32_t link, uint32_t batch,
                            const struct verbs_piece *piece);

/* One that has not failed yet may be worth waiting for. */
bool path_coming(const struct verbs *v, uint32_t link, uint32_t tenant);
void path_view(const struct verbs *v, const struct verbs_path *p, struct xfer_path_view *ret);
/* What that tenant's pages come over from now on; told if it is news. */
void transport_note(struct verbs *v, uint32_t link, uint32_t tenant, bool verbs,
                    const char *reason);

/* Why no page of the link comes over paths at all; "": they may. */
const char *verbs_unwanted(const struct verbs *v, uint32_t link);
/* Why nothing can be pushed over that rail to pages of that tenant, or over any; NULL: it can. */
const char *rail_pathless(const struct verbs_rail *rail, uint32_t tenant);
const char *tenant_pathless(const struct verbs *v, uint32_t tenant);

/* A list of requests for one doorbell. */
struct verbs_wrs {
    struct ibv_send_wr wr[VERBS_POST_MAX];
    struct ibv_sge sge[VERBS_POST_MAX];
    uint32_t n, room;
};

/* path/requests.c */
/* Adds one, or makes an earlier one longer if memory is adjacent on both sides. False: no room. */
bool wrs_extend(struct verbs_wrs *list, enum ibv_wr_opcode opcode, const struct ibv_sge *more,
                uint64_t remote, uint32_t rkey, uint32_t most);
/* There has to be credit. False: only the first list->n were posted, and errno says why. */
bool wrs_post(struct verbs *v, struct verbs_path *p, struct verbs_wrs *list);
const struct xfer_mr *peer_mr(const struct verbs_path *p, uint32_t region, uint64_t offset);
/* What the path takes now: writes of a source; runs that a destination can grant. */
uint32_t path_credit(struct verbs *v, const struct verbs_path *p);
/* Places in the completion queue, for what a path completes later. */
void places_take(struct verbs *v, struct verbs_path *p, uint32_t n);
/* Those for what a path completes unasked. False: the completion queue is too full. */
bool places_hold(struct verbs *v, struct verbs_path *p);
void places_unhold(struct verbs *v, struct verbs_path *p);
void writes_done(struct verbs *v, struct verbs_path *p); /* path->completed has gone up */
int receive_post(struct verbs *v, struct verbs_path *p); /* 0 or an errno */

/* path/grants.c */
/* Frees a piece of a pull that has ended, unless it is counted, revoked, or an answer is due. */
void piece_free(struct verbs_piece *piece);
void piece_done(struct verbs *v, struct verbs_piece *piece); /* no device writes its pages more */
/* Its windows open nothing any more: they were closed, or went with the queue pair. */
void mws_give(struct verbs *v, struct verbs_path *p, struct verbs_piece *piece);
void pieces_lost(struct verbs *v, struct verbs_path *p);            /* it failed */
void pieces_forgotten(struct verbs *v, const struct verbs_path *p); /* no write comes over it */
void pieces_ended(struct verbs *v, struct verbs_path *p); /* the queue pair was destroyed */

/* move/verify.c: all of it is here and was confirmed, but for the stale ones. It ends when its
 * task is back. */
void piece_verify(struct verbs *v, struct verbs_piece *piece, const uint64_t *stale);
void piece_verified(struct verbs_piece *piece);

/* A device may write its pages, or a data thread looks at them. */
static inline bool piece_held(const struct verbs_piece *piece)
{
    return piece->holds || piece->state == PIECE_VERIFYING;
}

static inline struct verbs_piece *piece_of(struct verbs *v, uint32_t link, uint32_t i)
{
    return &v->link[link].piece[i];
}

#define VERBS_RECEIVE ((uint64_t)1 << 63) /* in a receive's name */

static inline uint32_t path_number(const struct verbs *v, const struct verbs_path *p)
{
    return (uint32_t)(p - v->path);
}

/* Names a request by path, epoch and count; a completion of a destroyed pair has an old epoch. */
static inline uint64_t path_wr_id(const struct verbs *v, const struct verbs_path *p, uint16_t mark)
{
    static_assert(XFER_PATHS_MAX <= VERBS_RECEIVE >> 40, "the bits above the epoch");
    return (uint64_t)(p - v->path) << 40 | (uint64_t)p->epoch << 16 | mark;
}

/* move/push.c: the destination of pushes. */
/* How many of the n pages of a batch can be granted as one piece now: fills piece->run. *ret_most:
 * nor will it be more later. */
uint32_t push_fit(struct verbs *v, struct verbs_path *p, uint32_t batch, uint32_t first, uint32_t n,
                  struct verbs_piece *piece, bool *ret_most);
bool push_bind(struct verbs *v, struct verbs_path *p, struct verbs_piece *piece);
uint32_t push_mw_name(const struct verbs_path *p, const struct verbs_run *run); /* xfer_run */
void push_asked(struct verbs_piece *piece);
void push_answered(struct verbs *v, struct verbs_piece *piece, bool given);
void push_lost(struct verbs *v, struct verbs_piece *piece); /* the source has no such path */
void push_received(struct verbs *v, struct verbs_path *p, const struct ibv_wc *wc);
/* It broke: by a write to a closed grant? */
void push_refused(struct verbs *v, struct verbs_path *p);
void pieces_done(struct verbs *v, struct verbs_path *p);     /* path->completed has gone up */
void piece_drop(struct verbs *v, struct verbs_piece *piece); /* its pull has ended */
void pieces_tick(struct verbs *v, uint32_t link, uint64_t now_ns);

/* move/source.c: the source of pushes. Writes that wait for the path go on, or fail if it ended. */
void writes_go_on(struct verbs *v, struct verbs_path *p);

/* retry.c */
void batch_other_way(struct verbs *v, uint32_t link, uint32_t batch); /* not by RDMA */
void pieces_start(struct verbs *v, uint32_t link); /* those that wait for a path */
/* Where its tenant has no path and none comes, what waits for one goes another way. */
void batches_settle(struct verbs *v, struct verbs_path *p);

/* notices.c: says on the link's connection what is to be said, or calls for one. */
void link_say(struct verbs *v, uint32_t link);

/* events.c */
void verbs_run(struct verbs *v); /* what is marked goes on */
void path_back(struct io_task *task, int32_t res);
void piece_back(struct io_task *task, int32_t res);
void rails_poll(struct verbs *v); /* begins to listen to them */
void rails_cancel(struct verbs *v);
bool rails_polling(const struct verbs *v);

/* verbs.c */
bool link_pieces(struct verbs *v, uint32_t link);

/* ------------------------------------------------------------------ behind the door */

void verbs_pump(struct transport *t, uint32_t peer_link);
bool verbs_takes(const struct transport *t, uint32_t peer_link, uint32_t pool);
void verbs_drop(struct transport *t, uint32_t pull);
bool verbs_holds(const struct transport *t, uint32_t pull);
void verbs_link_down(struct transport *t, uint32_t peer_link);
void verbs_tick(struct transport *t, uint64_t now_ns);
bool verbs_poll(struct transport *t);
void verbs_link_transport(struct transport *t, uint32_t peer_link, uint64_t tenants,
                          bool peer_rdma);
void verbs_path_msg(struct transport *t, uint32_t peer_link, const struct xfer_path_msg *msg);
void verbs_peer_down(struct transport *t, uint32_t peer_link);
void verbs_link_view(const struct transport *t, uint32_t peer_link, struct xfer_link_view *ret);
bool verbs_path_view(const struct transport *t, uint32_t peer_link, uint32_t i,
                     struct xfer_path_view *ret);
extern const struct data_service verbs_service;
extern const struct data_caller verbs_caller;

#endif
