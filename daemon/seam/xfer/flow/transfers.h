/* The parts of transfers that all transports share. pulls.c has pulls, batches and arriving pages;
 * serves.c has serves; links.c decides who may call us and which transport a batch uses. Used by
 * the transports, and by nobody outside seam/xfer. Owner thread only.
 *
 * Promise P2 rests on two counts. pull->holds counts receives, device requests and tasks of data
 * threads that may still touch the pages of a pull. serve->holds counts sends and device requests
 * that may still read the pages of a serve. EV_PULL_QUIET and EV_SERVE_QUIET are emitted in one
 * place each, with the count at 0. */
#ifndef SEAM_XFER_TRANSFERS_H
#define SEAM_XFER_TRANSFERS_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "base/states.h"
#include "seam/mem/mem_verify.h"
#include "seam/xfer/flow/data_wire.h"
#include "seam/xfer/flow/pairs.h"
#include "seam/xfer/flow/transport.h"
#include "seam/xfer/xfer.h"

/* Page bytes of a piece, unless a page is larger; TCP has TCP_PIECE_BYTES. The simulator uses
 * fewer. */
#ifndef XFER_PIECE_BYTES
#define XFER_PIECE_BYTES (1u << 20)
#endif
/* A tenant on GPUs has a ring of slots in host memory, to which its peers write. The simulator has
 * a smaller one. */
#ifndef XFER_SLOT_BYTES
#define XFER_SLOT_BYTES XFER_PIECE_BYTES
#define XFER_RING_SLOTS 32u /* of a ring; one piece may take all */
#define XFER_RING_SHARE 16u /* maximum that several pieces of one link may have */
#endif
#define XFER_RING_BYTES  ((uint64_t)XFER_RING_SLOTS * XFER_SLOT_BYTES)
#define XFER_PIECE_SUMS  8192u /* checksums of a piece, unless one page has more */
#define XFER_PIECE_PARTS 1000u /* stretches of memory of a piece: pages times regions */
/* For cancelled operations: they end at once or something is wrong. */
#define XFER_DESTROY_WAIT_NS 2000000000u
/* Pause before a failed connection is called again while another one is up. */
#define XFER_REDIAL_MS_MIN 100u
#define XFER_REDIAL_MS_MAX 5000u
/* How often pages of a batch may be lost with the last connection that was up. */
#define XFER_LOST_MAX 3u

/* The state machines that all transports share. base/states.h explains the tables. */

/* The seam's pull at its destination; the core has another machine for it. */
#define XFER_PULL_STATE_TABLE(X)                                                                   \
    X(XFER_PULL, IDLE, TO(XFER_PULL, ACTIVE) | TO(XFER_PULL, STOPPING),                            \
      "no page is requested and none arrives")                                                     \
    X(XFER_PULL, ACTIVE, TO(XFER_PULL, BROKEN) | TO(XFER_PULL, STOPPING) | TO(XFER_PULL, IDLE),    \
      "its batches are being requested; becomes idle at once if the slot's next pull begins")      \
    X(XFER_PULL, BROKEN, TO(XFER_PULL, STOPPING) | TO(XFER_PULL, IDLE),                            \
      "it failed, and the core was informed; it requests nothing more")                            \
    X(XFER_PULL, STOPPING, TO(XFER_PULL, IDLE),                                                    \
      "the core has stopped it; becomes idle when nothing can write its pages any more")

STATE_MACHINE(xfer_pull, XFER_PULL, XFER_PULL_STATE_TABLE)

/* The seam's serve at its source; the core has another machine for it. */
#define XFER_SERVE_STATE_TABLE(X)                                                                  \
    X(XFER_SERVE, NONE, TO(XFER_SERVE, SERVING) | TO(XFER_SERVE, STOPPING),                        \
      "no serve has this slot")                                                                    \
    X(XFER_SERVE, SERVING, TO(XFER_SERVE, STOPPING) | TO(XFER_SERVE, NONE),                        \
      "the peer may request its pages")                                                            \
    X(XFER_SERVE, STOPPING, TO(XFER_SERVE, NONE),                                                  \
      "the core has stopped it; the slot is free when nothing can read its pages any more")

STATE_MACHINE(xfer_serve, XFER_SERVE, XFER_SERVE_STATE_TABLE)

/* Pages of one pull that the core requested by one action. */
#define BATCH_STATE_TABLE(X)                                                                       \
    X(BATCH, FREE, TO(BATCH, QUEUED), "no batch has this slot")                                    \
    X(BATCH, QUEUED, TO(BATCH, ASKED) | TO(BATCH, QUEUED) | TO(BATCH, FREE),                       \
      "in the queue of a transport, which has not requested all of its pages; queued again if "    \
      "another transport takes over")                                                              \
    X(BATCH, ASKED, TO(BATCH, FREE) | TO(BATCH, QUEUED),                                           \
      "all of its pages were requested, and some have not been answered; queued again if some "    \
      "were lost with their connection, or if another transport takes over")

STATE_MACHINE(batch, BATCH, BATCH_STATE_TABLE)

/* A connection for frames about pages and, over TCP, for the pages; separate from the control
 * connection between the same daemons. */
#define DATA_CONN_STATE_TABLE(X)                                                                   \
    X(DATA_CONN, FREE, TO(DATA_CONN, CONNECTING) | TO(DATA_CONN, OPEN),                            \
      "no connection has this slot")                                                               \
    X(DATA_CONN, CONNECTING, TO(DATA_CONN, OPEN) | TO(DATA_CONN, CLOSING),                         \
      "this daemon connects to a peer")                                                            \
    X(DATA_CONN, OPEN, TO(DATA_CONN, CLOSING), "frames and pages may travel")                      \
    X(DATA_CONN, CLOSING, TO(DATA_CONN, FREE),                                                     \
      "shut down; free when the kernel uses none of its memory any more")

STATE_MACHINE(data_conn, DATA_CONN, DATA_CONN_STATE_TABLE)

/* A place for one of a transport's data connections to a peer, whichever connection is in it. */
#define DATA_PATH_STATE_TABLE(X)                                                                   \
    X(DATA_PATH, NONE, TO(DATA_PATH, CALLING), "not dialled, because nothing has needed it")       \
    X(DATA_PATH, CALLING, TO(DATA_PATH, UP) | TO(DATA_PATH, RETIRED) | TO(DATA_PATH, NONE),        \
      "its connection is being made")                                                              \
    X(DATA_PATH, UP, TO(DATA_PATH, RETIRED) | TO(DATA_PATH, NONE), "requests may use it")          \
    X(DATA_PATH, RETIRED, TO(DATA_PATH, CALLING) | TO(DATA_PATH, NONE),                            \
      "it failed: the other paths continue, and it is dialled again after a pause")

STATE_MACHINE(data_path, DATA_PATH, DATA_PATH_STATE_TABLE)

/* A peer's request on a data connection, at the source; not a request of the protocol. */
#define DATA_REQUEST_STATE_TABLE(X)                                                                \
    X(DATA_REQUEST, HELLO, TO(DATA_REQUEST, NONE), "the caller has not sent its token")            \
    X(DATA_REQUEST, NONE,                                                                          \
      TO(DATA_REQUEST, PAGES) | TO(DATA_REQUEST, META) | TO(DATA_REQUEST, WAITS),                  \
      "no request is being answered")                                                              \
    X(DATA_REQUEST, PAGES, TO(DATA_REQUEST, META), "an answer is being sent, now the page bytes")  \
    X(DATA_REQUEST, META,                                                                          \
      TO(DATA_REQUEST, NONE) | TO(DATA_REQUEST, PAGES) | TO(DATA_REQUEST, META),                   \
      "the rest of an answer is being sent, without page bytes; the next request may begin")       \
    X(DATA_REQUEST, WAITS, TO(DATA_REQUEST, NONE),                                                 \
      "its transport waits for something before it answers")

STATE_MACHINE(data_request, DATA_REQUEST, DATA_REQUEST_STATE_TABLE)

/* Batches with pages left to request, oldest pull first; for batch_in_turn. */
struct batch_queue {
    uint32_t head;
};

/* A place for a data connection, and how its connections ended. */
struct data_path {
    enum data_path_state state;
    uint32_t conn;     /* NONE unless CALLING or UP */
    uint32_t failures; /* in a row, each without a complete answer */
    uint64_t dial_ns;  /* RETIRED: may be called again from then on */
};

/* State of one transport for one peer link. */
struct lane {
    struct batch_queue queue;
    uint32_t turn;                               /* tenant of the last request */
    struct data_path path[XFER_CONNECTIONS_MAX]; /* config.connections of them are used */
    uint64_t bytes_in;                           /* page bytes received */
    uint64_t waiting_ns; /* since when the queue waits for a connection and none can be made; 0:
                            does not wait. Set by lane_wait alone */
};

/* A connection between daemons, numbered as in the shell. */
struct xfer_link {
    bool up;
    bool by_tcp; /* it has RDMA, but resharded pages arrive by TCP */
    struct sockaddr_storage addr;
    socklen_t addr_len;
    uint64_t peer_incarnation;
    uint64_t token;    /* outbound: sent in HELLO */
    uint64_t admitted; /* inbound: token that its data connections must send; 0: none is admitted */
    uint32_t conns;    /* inbound: data connections that sent it */
    int call_errno;    /* outbound: of the last call to its data port; 0: connected */
    char call_text[XFER_CALL_TEXT]; /* the same in words, for operators */
    enum xfer_transport wanted;
    struct lane lane[XFER_TRANSPORTS_MAX];
};

struct xfer_pull {
    enum xfer_pull_state state;
    uint32_t gen, peer_link;
    uint32_t holds;    /* number of operations that may still touch its pages */
    uint64_t began;    /* ascending */
    struct pair *pair; /* held: pages are resharded; NULL: pages arrive unchanged */
    bool decided;      /* pair was chosen, with the first batch */
    /* Batches of the pull, or NONE. A dropped batch stays with the pull until the pull is idle,
     * because a data thread or a request to a device may still name the batch. */
    uint32_t batch[PULL_BATCHES_MAX];
    struct xfer_flow_view seen;
};

struct batch_span {
    uint16_t page;    /* index of its first page in the batch */
    uint8_t first, n; /* as in struct pull_span */
};

struct batch {
    enum batch_state state;
    bool gone;     /* the source gave up a page */
    bool prefetch; /* other batches of its tenant go first */
    uint32_t lane; /* of its transport */
    uint32_t pull, pool, tenant, number;
    /* Pages, or spans of pages if the source's pages have other page_tokens. In this struct and its
     * functions `page` means either one: the unit that is requested and verified. */
    uint32_t n;
    uint32_t asked, answered;
    uint32_t lost; /* how often it lost pages with the last connection that was up */
    uint64_t again[XFER_MASK_WORDS]; /* requested pages that were lost, to be requested again */
    uint32_t next;                   /* in the queue */
    struct serve_id serve;
    uint64_t ok[XFER_MASK_WORDS];
    struct page_at page[PULL_BATCH_PAGES]; /* ours, of all spans */
    struct page_ref ref[PULL_BATCH_PAGES]; /* the source's, the first of each span */
    struct batch_span span[PULL_BATCH_PAGES];
};

/* Returns our pages of page or span i. */
static inline const struct page_at *batch_pages(const struct batch *b, uint32_t i)
{
    return &b->page[b->span[i].page];
}

struct xfer_serve {
    enum xfer_serve_state state;
    uint32_t gen, pool;
    uint32_t holds;    /* number of operations that may still read its pages */
    bool lost;         /* layouts differ and there is no plan, so it gives no page */
    struct pair *pair; /* held: pages leave resharded; NULL: unchanged */
    struct xfer_flow_view seen;
};

/* The device of a region's pages, found at start. */
struct xfer_region {
    uint8_t answer, path; /* enum nic_answer, enum nic_path */
    bool named;           /* named by the configuration, not chosen */
    bool binds;           /* pages use the device if possible; false: any device */
    uint32_t device;      /* in the view's `found`; NONE */
    uint32_t rail;        /* NONE: the device is not in use */
    bool unregistered;    /* with that rail, so it has no path for the tenant */
};

struct xfer {
    struct xfer_config config;
    struct transport transport[XFER_TRANSPORTS_MAX];
    uint32_t ntransports;
    struct xfer_link *link; /* owned, config.links */
    struct xfer_pull *pull; /* owned, config.pulls */
    uint64_t pulls_begun;
    uint32_t urgent_run[MEM_TENANTS_MAX]; /* pieces in a row that were no prefetch */
    uint32_t lanes_waiting;               /* 0: then no loop over the links is needed */
    struct batch *batch;                  /* owned, xfer_batches of them */
    uint32_t batch_free;                  /* first free one, linked by `next`; NONE */
    struct xfer_serve *serve;             /* owned, config.serves */
    uint64_t *injected; /* owned, by record: generation + 1 of the page with a flipped bit; NULL */
    _Atomic uint32_t injections;   /* so far; counted by data threads */
    _Atomic uint64_t landed_bytes; /* received and verified by data threads */
    struct io_threads *threads;    /* owned */
    struct data_conns *conns;      /* owned */
    struct pairs *pairs;           /* owned */
    struct xfer_stats stats;
    struct xfer_rdma_view looked; /* the devices, if RDMA is not wanted or not built */
    struct xfer_region region[MEM_TENANTS_MAX][RANKS_MAX];
};

static inline void lane_wait(struct xfer *xfer, struct lane *lane, uint64_t since_ns)
{
    xfer->lanes_waiting += since_ns != 0;
    xfer->lanes_waiting -= lane->waiting_ns != 0;
    lane->waiting_ns = since_ns;
}

/* A position in a list of pages. */
struct page_cursor {
    uint32_t page, region; /* page: n at the end */
    uint64_t at;
};

uint32_t xfer_batches(const struct xfer_config *config);

static inline uint32_t xfer_rails(const struct xfer_rdma_config *c)
{
    return c->rails ? c->rails : XFER_RAILS_INITIAL;
}

/* region_nics.c: gives each region a device. `usable` and the result: bits of view->found. */
bool regions_matter(const struct xfer *xfer); /* false: all is host memory */
uint32_t regions_choose(struct xfer *xfer, const struct xfer_rdma_view *view, uint32_t usable);

/* memlock.c */
void xfer_memlock(const struct xfer *xfer, struct xfer_rdma_view *view);

/* Makes all pulls idle and all batches free. */
void pulls_init(struct xfer *xfer);
/* Between pull_hold and pull_release something may write pages of the pull. Each hold is released
 * once; the last release emits EV_PULL_QUIET if the pull was stopped. */
void pull_hold(struct xfer *xfer, uint32_t pull);
void pull_release(struct xfer *xfer, uint32_t pull);
/* The pull cannot continue: reports that to the core, once, and forgets its batches. */
void pull_break(struct xfer *xfer, uint32_t pull, enum tern_err err);

static inline bool batch_used(const struct batch *b)
{
    return b->state != BATCH_FREE;
}

/* Pages of a batch that are requested together. */
struct batch_part {
    uint32_t batch, first, n;
    uint32_t sums_bytes;
    uint64_t page_bytes;
};

/* Cuts the batch's next piece: at least one page, else at most bytes_max and sums_max checksums. */
struct batch_part batch_cut(const struct xfer *xfer, uint32_t batch, uint64_t bytes_max,
                            uint32_t sums_max);
/* Returns the queued batch whose turn it is: tenants take turns; within a tenant, batches that a
 * decode waits for go before prefetches, then the pull that began first. `ready` says whether a
 * tenant may request now; NULL: each may. Returns NONE if there is none. */
uint32_t batch_in_turn(const struct transport *t, uint32_t peer_link,
                       bool (*ready)(const struct transport *t, uint32_t peer_link,
                                     uint32_t tenant));
/* n more pages were requested, which counts as its tenant's turn. The last page takes the batch off
 * the queue. */
void batch_asked(struct xfer *xfer, uint32_t batch, uint32_t n);
/* The source gave up one of its pages. */
void batch_gone(struct xfer *xfer, uint32_t batch);
/* n more pages were answered, and those that arrived were verified. */
void batch_answered(struct xfer *xfer, uint32_t batch, uint32_t n);
/* Requested, unanswered pages [first, first + n) were lost with a connection and are requested
 * again. Caller has made sure that nothing writes them any more. */
void batch_again(struct xfer *xfer, uint32_t batch, uint32_t first, uint32_t n);
/* Returns the bytes (checksums) of page i of a batch over all regions that transfers carry. */
uint64_t batch_page_bytes(const struct xfer *xfer, const struct batch *batch, uint32_t i);
uint32_t batch_page_sums(const struct xfer *xfer, const struct batch *batch, uint32_t i);

/* Returns true if a later transport that the link may use can take the batch. */
bool batch_has_another_way(struct xfer *xfer, uint32_t batch);
/* The batch's transport gives it up: all requests are forgotten, and another transport starts from
 * the beginning. If none takes it, its pull breaks with err. The old transport must not write its
 * pages any more; it calls transports_pump_after when its own tables are consistent. */
void batch_hand_on(struct xfer *xfer, uint32_t batch, enum tern_err err);
void transports_pump_after(struct xfer *xfer, const struct transport *t, uint32_t peer_link);

/* Breaks the pulls of all queued batches. */
void queue_break(struct xfer *xfer, const struct batch_queue *queue, enum tern_err err);

/* One page of a batch while its bytes arrive. The transport keeps the struct, which needs no
 * clean-up. All functions but arrival_end may run on a data thread, while something holds the pull:
 * neither the batch's list of pages nor their pool changes meanwhile. */
struct arrival {
    struct xfer *xfer;
    uint32_t batch, i;
    uint64_t at; /* bytes received in the current region */
    struct mem_verify verify;
};

/* sums: the source's checksums, [region * units + unit], borrowed until mem_verify_landed. */
void arrival_begin(struct arrival *a, struct xfer *xfer, uint32_t batch, uint32_t i,
                   const uint64_t *sums);
/* The bytes [0, to) of that region have arrived at the addresses that mem.h gives. Regions arrive
 * in order. */
void arrival_reached(struct arrival *a, uint32_t region, uint64_t to);
/* Verifies a resharded span, whose bytes arrived by its plan; sums: of the source's pages. Other
 * pages are verified by mem_verify_landed. */
bool arrival_resharded(struct xfer *xfer, uint32_t batch, uint32_t i, const uint64_t *sums);
/* On the owner thread, for page i of a batch in use. right: its bytes match their checksums. */
void arrival_end(struct xfer *xfer, uint32_t batch, uint32_t i, bool right);

void serve_hold(struct xfer *xfer, uint32_t serve);
void serve_release(struct xfer *xfer, uint32_t serve);
/* Stops the serve and holds it. Caller informs the transports and then releases it; that may emit
 * QUIET. */
void serve_stop(struct xfer *xfer, struct serve_id serve);
bool serve_active(const struct xfer *xfer, struct serve_id serve);
/* Returns true if that page may leave now; *ret_record locates its checksums. Ask before reading
 * the bytes, and again after: a refusal then means that the bytes may be another page's. */
bool serve_page_leaves(const struct xfer *xfer, struct serve_id serve, const struct xfer_entry *e,
                       uint32_t *ret_record);
/* Moves *io to the next page. Returns false if there is none. */
bool serve_next_page(const struct xfer *xfer, struct serve_id serve, struct xfer_entry *io);
/* Counts pages and bytes that have left. */
void serve_sent(struct xfer *xfer, struct serve_id serve, uint32_t pages, uint64_t bytes);
/* Returns true if the peer of that link may request pages of that serve. */
bool serve_allows(struct xfer *xfer, struct serve_id serve, uint32_t peer_link);

/* Breaks pulls whose data connection was never made. */
void xfer_link_tick(struct xfer *xfer, uint32_t peer_link, uint64_t now_ns);
/* Returns the peer link of that token. NONE: no link that is up has it. */
uint32_t xfer_link_admitted(const struct xfer *xfer, uint64_t token);
/* Returns the transport for a new batch, or for one that `after` gives up. NULL: none takes it. */
struct transport *transport_for(struct xfer *xfer, uint32_t peer_link, uint32_t pool,
                                const struct transport *after);

/* Returns the transport for resharded pages, whatever is configured: all daemons have it. */
struct transport *transport_reshards(struct xfer *xfer);
/* Informs operators, once, that a pull's pages are resharded on a link that otherwise uses RDMA. */
void xfer_link_resharded(struct xfer *xfer, uint32_t peer_link, uint32_t pool);

/* Returns why that transport may not carry the link's pages, although it can. NULL: it may. */
const char *xfer_link_unwanted(const struct xfer *xfer, uint32_t peer_link,
                               const struct transport *t);
/* Reports the transport that carries the link's pages instead of `after`: the configured one, or
 * any under `auto`. Caller has set tenant and reason; path_note is not NULL. */
void xfer_note_fallback(const struct xfer *xfer, uint32_t peer_link, const struct transport *after,
                        struct xfer_note *note);

/* Returns true if the link is up and leads to this daemon. */
bool xfer_link_is_own(const struct xfer *xfer, uint32_t peer_link);

static inline struct lane *transport_lane(const struct transport *t, uint32_t peer_link)
{
    return &t->xfer->link[peer_link].lane[t->lane];
}

#endif
