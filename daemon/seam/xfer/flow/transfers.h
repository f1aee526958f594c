/* Transfers: what all transports share, seen from inside. pulls.c (pulls, batches and the pages
 * that arrive), serves.c (serves), links.c (who may call us, and which transport a batch goes
 * over). The transports use it, and nobody outside seam/xfer. Owner thread only.
 *
 * Promise P2 rests on two counts. pull->holds: receives, requests to a device and tasks of data
 * threads that may still touch the pages of a pull. serve->holds: sends and requests to a device
 * that may still read the pages of a serve. EV_PULL_QUIET and EV_SERVE_QUIET are emitted in one
 * place each, with the count at 0. */
#ifndef SEAM_XFER_TRANSFERS_H
#define SEAM_XFER_TRANSFERS_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "seam/mem/mem_verify.h"
#include "seam/xfer/flow/data_wire.h"
#include "seam/xfer/flow/pairs.h"
#include "seam/xfer/flow/states.h"
#include "seam/xfer/flow/transport.h"
#include "seam/xfer/xfer.h"

/* Page bytes of a piece, unless a page is larger; TCP has TCP_PIECE_BYTES. The simulator: fewer. */
#ifndef XFER_PIECE_BYTES
#define XFER_PIECE_BYTES (1u << 20)
#endif
/* A tenant on GPUs has a ring of slots in memory of the host, for its peers to write to. Smaller in
 * the simulator. */
#ifndef XFER_SLOT_BYTES
#define XFER_SLOT_BYTES XFER_PIECE_BYTES
#define XFER_RING_SLOTS 32u /* of a ring, which one piece may have all of */
#define XFER_RING_SHARE 16u /* of these, that several pieces of one link have at most */
#endif
#define XFER_RING_BYTES  ((uint64_t)XFER_RING_SLOTS * XFER_SLOT_BYTES)
#define XFER_PIECE_SUMS  8192u /* checksums of a piece, unless one page has more */
#define XFER_PIECE_PARTS 1000u /* stretches of memory of a piece: pages times regions */
/* For operations that were cancelled: they end at once or something is wrong. */
#define XFER_DESTROY_WAIT_NS 2000000000u
/* How long a connection that failed is not called again while another one is there. */
#define XFER_REDIAL_MS_MIN 100u
#define XFER_REDIAL_MS_MAX 5000u
/* How often pages of a batch may be lost with the last connection that was there. */
#define XFER_LOST_MAX 3u

/* Batches not wholly asked for, in the order in which their pulls began; for batch_in_turn. */
struct batch_queue {
    uint32_t head;
};

/* A place for a data connection, with what became of those that had it. */
struct data_path {
    enum data_path_state state;
    uint32_t conn;     /* NONE, unless it is called or up */
    uint32_t failures; /* in a row: none of them has carried a whole answer */
    uint64_t dial_ns;  /* of RETIRED: from then on it may be called again */
};

/* What one transport has of one peer link. */
struct lane {
    struct batch_queue queue;
    uint32_t turn;                               /* the tenant that asked last */
    struct data_path path[XFER_CONNECTIONS_MAX]; /* config.connections of them are used */
    uint64_t bytes_in;                           /* page bytes that it brought */
    uint64_t waiting_ns; /* since when the queue wants one and none is to be had; 0: it does not.
                            Set by lane_wait alone */
};

/* A connection between daemons, as the shell numbers them. */
struct xfer_link {
    bool up;
    bool by_tcp; /* it has RDMA, and yet some pages came otherwise, since they are resharded */
    struct sockaddr_storage addr;
    socklen_t addr_len;
    uint64_t peer_incarnation;
    uint64_t token;    /* outbound: what we say */
    uint64_t admitted; /* inbound: what its data connections have to say; 0: nothing does */
    uint32_t conns;    /* inbound: data connections that said it */
    int call_errno;    /* outbound: of the last call to its data port; 0: it got through */
    char call_text[XFER_CALL_TEXT]; /* the same in words, for operators */
    enum xfer_transport wanted;
    struct lane lane[XFER_TRANSPORTS_MAX];
};

struct xfer_pull {
    enum xfer_pull_state state;
    uint32_t gen, peer_link;
    uint32_t holds;    /* what may still touch its pages */
    uint64_t began;    /* ascending */
    struct pair *pair; /* held: the source's pages are resharded; NULL: they come as they are */
    bool decided;      /* which of the two: with its first batch */
    /* Its batches; NONE. One that was dropped stays the pull's until that is idle, because a data
     * thread or a request to a device may still name it. */
    uint32_t batch[PULL_BATCHES_MAX];
    struct xfer_flow_view seen;
};

struct batch_span {
    uint16_t page;    /* the first of its pages in the batch */
    uint8_t first, n; /* as in struct pull_span */
};

struct batch {
    enum batch_state state;
    bool gone;     /* the source gave a page up */
    bool prefetch; /* others of its tenant go first */
    uint32_t lane; /* of the transport that has it */
    uint32_t pull, pool, tenant, number;
    /* Pages, or spans of pages where those of the source have other page_tokens. Also where this
     * struct and its functions say `page`, of what is asked for and verified at once. */
    uint32_t n;
    uint32_t asked, answered;
    uint32_t lost; /* how often it lost pages with the last connection there was */
    uint64_t again[XFER_MASK_WORDS]; /* of the pages asked for: lost, and to be asked for again */
    uint32_t next;                   /* in the queue */
    struct serve_id serve;
    uint64_t ok[XFER_MASK_WORDS];
    struct page_at page[PULL_BATCH_PAGES]; /* ours, of all spans */
    struct page_ref ref[PULL_BATCH_PAGES]; /* the source's, the first of each span */
    struct batch_span span[PULL_BATCH_PAGES];
};

/* Our pages of what is asked for as number i. */
static inline const struct page_at *batch_pages(const struct batch *b, uint32_t i)
{
    return &b->page[b->span[i].page];
}

struct xfer_serve {
    enum xfer_serve_state state;
    uint32_t gen, pool;
    uint32_t holds;    /* what may still read its pages */
    bool lost;         /* between different layouts, and there is no plan: it gives nothing */
    struct pair *pair; /* held: they leave resharded; NULL: as they are */
    struct xfer_flow_view seen;
};

/* The device of a region's pages, as found at start. */
struct xfer_region {
    uint8_t answer, path; /* enum nic_answer, enum nic_path */
    bool named;           /* by the configuration, and not chosen */
    bool binds;           /* pages go over it where that can be; else over any */
    uint32_t device;      /* in the view's `found`; NONE */
    uint32_t rail;        /* NONE: it is not in use */
    bool unregistered;    /* with that rail, which therefore has no path for its tenant */
};

struct xfer {
    struct xfer_config config;
    struct transport transport[XFER_TRANSPORTS_MAX];
    uint32_t ntransports;
    struct xfer_link *link; /* owned, config.links */
    struct xfer_pull *pull; /* owned, config.pulls */
    uint64_t pulls_begun;
    uint32_t urgent_run[MEM_TENANTS_MAX]; /* pieces in a row that were of no prefetch */
    uint32_t lanes_waiting;               /* no walk over the links while there is none */
    struct batch *batch;                  /* owned, xfer_batches of them */
    uint32_t batch_free;                  /* the first that no pull has, linked by `next`; NONE */
    struct xfer_serve *serve;             /* owned, config.serves */
    uint64_t *injected; /* owned, a record's generation + 1 where a bit was flipped; NULL */
    _Atomic uint32_t injections;   /* so far; data threads count them */
    _Atomic uint64_t landed_bytes; /* that data threads have received and verified */
    struct io_threads *threads;    /* owned */
    struct data_conns *conns;      /* owned */
    struct pairs *pairs;           /* owned */
    struct xfer_stats stats;
    struct xfer_rdma_view looked; /* what there is where it is not wanted, or not built */
    struct xfer_region region[MEM_TENANTS_MAX][RANKS_MAX];
};

static inline void lane_wait(struct xfer *xfer, struct lane *lane, uint64_t since_ns)
{
    xfer->lanes_waiting += since_ns != 0;
    xfer->lanes_waiting -= lane->waiting_ns != 0;
    lane->waiting_ns = since_ns;
}

/* Where in a list of pages somebody is. */
struct page_cursor {
    uint32_t page, region; /* page: n at the end */
    uint64_t at;
};

uint32_t xfer_batches(const struct xfer_config *config);

static inline uint32_t xfer_rails(const struct xfer_rdma_config *c)
{
    return c->rails ? c->rails : XFER_RAILS_INITIAL;
}

/* region_nics.c: gives each region a device. `usable` and returned: bits of view->found. */
bool regions_matter(const struct xfer *xfer); /* else all of it is memory of the host */
uint32_t regions_choose(struct xfer *xfer, const struct xfer_rdma_view *view, uint32_t usable);

/* memlock.c */
void xfer_memlock(const struct xfer *xfer, struct xfer_rdma_view *view);

/* All pulls are idle, all batches free. */
void pulls_init(struct xfer *xfer);
/* Something may write pages of the pull from here on, and no more. Each hold is released once;
 * the last release says QUIET if the pull was stopped. */
void pull_hold(struct xfer *xfer, uint32_t pull);
void pull_release(struct xfer *xfer, uint32_t pull);
/* Its pull cannot go on: tells the core, once, and forgets its batches. */
void pull_break(struct xfer *xfer, uint32_t pull, enum tern_err err);

static inline bool batch_used(const struct batch *b)
{
    return b->state != BATCH_FREE;
}

/* Pages of a batch that are asked for together. */
struct batch_part {
    uint32_t batch, first, n;
    uint32_t sums_bytes;
    uint64_t page_bytes;
};

/* Cuts the batch's next piece: at least one page, else at most so many bytes and checksums. */
struct batch_part batch_cut(const struct xfer *xfer, uint32_t batch, uint64_t bytes_max,
                            uint32_t sums_max);
/* The queued batch whose turn it is: tenants in turn, of each those that a decode waits for before
 * prefetches, then the pull that began first. `ready`: may that tenant ask now? NULL: each may.
 * NONE: there is none. */
uint32_t batch_in_turn(const struct transport *t, uint32_t peer_link,
                       bool (*ready)(const struct transport *t, uint32_t peer_link,
                                     uint32_t tenant));
/* n more pages were asked for; out of the queue with the last of them. Its tenant had its turn. */
void batch_asked(struct xfer *xfer, uint32_t batch, uint32_t n);
/* The source gave one of its pages up. */
void batch_gone(struct xfer *xfer, uint32_t batch);
/* n more pages were answered, and those that came were handed to the memory. */
void batch_answered(struct xfer *xfer, uint32_t batch, uint32_t n);
/* Pages [first, first + n) of what was asked for, and not answered, were lost with a connection:
 * they are asked for again. Nothing writes them any more. */
void batch_again(struct xfer *xfer, uint32_t batch, uint32_t first, uint32_t n);
/* What page i of a batch has, over all regions that transfers carry. */
uint64_t batch_page_bytes(const struct xfer *xfer, const struct batch *batch, uint32_t i);
uint32_t batch_page_sums(const struct xfer *xfer, const struct batch *batch, uint32_t i);

/* Another transport may take it: by its link's transport, and in the order of transports.c. */
bool batch_has_another_way(struct xfer *xfer, uint32_t batch);
/* The transport that has it gives it up: all that was asked for is forgotten and another one asks
 * anew. Where none takes it, its pull breaks with err. Nothing of the old one writes its pages any
 * more. transports_pump_after is for when the caller's own tables are in order again. */
void batch_hand_on(struct xfer *xfer, uint32_t batch, enum tern_err err);
void transports_pump_after(struct xfer *xfer, const struct transport *t, uint32_t peer_link);

/* The pulls of all that is queued break. */
void queue_break(struct xfer *xfer, const struct batch_queue *queue, enum tern_err err);

/* One page of a batch while its bytes come. The struct is the transport's and needs no clean-up.
 * All but arrival_end may run on a data thread, which works on the page while something holds its
 * pull: neither the batch's list of pages nor their pool changes meanwhile. */
struct arrival {
    struct xfer *xfer;
    uint32_t batch, i;
    uint64_t at; /* bytes of the region in work that have come */
    struct mem_verify verify;
};

/* sums: the source's, [region * units + unit], borrowed until arrival_landed. */
void arrival_begin(struct arrival *a, struct xfer *xfer, uint32_t batch, uint32_t i,
                   const uint64_t *sums);
/* The bytes [0, to) of that region lie where mem.h says. Regions come in order. */
void arrival_reached(struct arrival *a, uint32_t region, uint64_t to);
/* All bytes lie there. False: they are not right. */
bool arrival_landed(struct arrival *a);
/* The same of a resharded span, whose bytes came by its plan; sums: the source's, of its pages. */
bool arrival_resharded(struct xfer *xfer, uint32_t batch, uint32_t i, const uint64_t *sums);
/* On the owner thread, for page i of a batch that is in use: what arrival_landed said. */
void arrival_end(struct xfer *xfer, uint32_t batch, uint32_t i, bool right);

void serve_hold(struct xfer *xfer, uint32_t serve);
void serve_release(struct xfer *xfer, uint32_t serve);
/* The core stopped it. The caller releases it when its transports know, which may say QUIET. */
void serve_stop(struct xfer *xfer, struct serve_id serve);
bool serve_active(const struct xfer *xfer, struct serve_id serve);
/* May that page leave now? Then *ret_record is where its checksums are. Asked before its bytes are
 * read, and again behind that: who is refused then has read what may be another page's. */
bool serve_page_leaves(const struct xfer *xfer, struct serve_id serve, const struct xfer_entry *e,
                       uint32_t *ret_record);
/* Goes on to the page that follows this one. False: there is none. */
bool serve_next_page(const struct xfer *xfer, struct serve_id serve, struct xfer_entry *io);
/* So many pages have left, as so many bytes. */
void serve_sent(struct xfer *xfer, struct serve_id serve, uint32_t pages, uint64_t bytes);
/* May who came by that peer link ask for pages of that serve? */
bool serve_allows(struct xfer *xfer, struct serve_id serve, uint32_t peer_link);

/* Breaks pulls whose data connection never came. */
void xfer_link_tick(struct xfer *xfer, uint32_t peer_link, uint64_t now_ns);
/* The peer link whose token that is; NONE: it is of no link that is up. */
uint32_t xfer_link_admitted(const struct xfer *xfer, uint64_t token);
/* The transport that a new batch goes over, or one that `after` gives up; NULL: none takes it. */
struct transport *transport_for(struct xfer *xfer, uint32_t peer_link, uint32_t pool,
                                const struct transport *after);

/* The one that carries pages that are resharded, whatever was asked for: all daemons have it. */
struct transport *transport_reshards(struct xfer *xfer);
/* A pull's pages do, of a link whose others come by RDMA: operators are told, once. */
void xfer_link_resharded(struct xfer *xfer, uint32_t peer_link, uint32_t pool);

/* Why that transport may not carry the link's pages, though it could; NULL: it may. */
const char *xfer_link_unwanted(const struct xfer *xfer, uint32_t peer_link,
                               const struct transport *t);
/* Tells of the transport that the link has where `after` can't carry its pages: of no other one
 * than is asked for, but under `auto`. Tenant and reason are said; there is a path_note. */
void xfer_note_fallback(const struct xfer *xfer, uint32_t peer_link, const struct transport *after,
                        struct xfer_note *note);

/* The link is up, and the daemon's to itself. */
bool xfer_link_is_own(const struct xfer *xfer, uint32_t peer_link);

static inline struct lane *transport_lane(const struct transport *t, uint32_t peer_link)
{
    return &t->xfer->link[peer_link].lane[t->lane];
}

#endif
