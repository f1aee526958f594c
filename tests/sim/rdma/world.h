/* The RDMA half of the simulator: the seam's own code (xfer*.c) of two or three nodes, over
 * modelled NICs (nic*.c), sockets (net.c), data threads (tasks.c) and memory (memory.c), in one
 * thread and from one seed. The driver (drive*.c) plays the core's part; its view and the models'
 * are checked against rules of their own, which take nothing from the seam.
 *
 * One history is: make a configuration, run with faults, stop the faults, check that all converges,
 * probe every link, destroy all and compare every byte of every node. Time jumps from one event of
 * the heap to the next.
 *
 * A random number is hashed from the seed and its purpose: for a choice or a fault its number among
 * its kind, otherwise the moment. So a history can be played without some choices and faults, and
 * the rest stays the same except for their consequences (shrink.c). */
#ifndef RDMA_WORLD_H
#define RDMA_WORLD_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/prng.h"
#include "core/core.h"
#include "marks.h"
#include "seam/io/io.h"
#include "seam/mem/mem.h"
#include "seam/xfer/xfer.h"

#define NODES      3u
#define TENANTS    2u
#define GROUPS     2u
#define REGIONS    2u
#define PAGES      48u /* pages of a pool, all groups */
#define PULLS      3u
#define SERVES     8u
#define LINKS      (2 * (NODES - 1))
#define PULL_PAGES 24u
#define UNITS      4u
#define MEMORY     (32u << 10) /* bytes of one tenant's region */
#define HEAP       4096u
#define MS         1000000ull
#define SEC        1000000000ull
#define STALL_NS   (1500 * MS)
#define RAILS      4u /* of a node, at most */
/* Longest time without a page: a piece's four tries, each 3 s without progress or 2 s at a NIC, and
 * 2 s of draining. */
#define CONVERGE_NS (20 * SEC)
#define RECOVER_NS  (16 * SEC) /* the longest pause before a path is made anew, and its set-up */
#define NONE32      UINT32_MAX
#define ITEMS       8192u /* of one history: choices and faults that occurred */
#define CHOICES_MAX 200u

#define FAULT_NAMES(X)                                                                             \
    X(conn_refused)                                                                                \
    X(conn_reset)                                                                                  \
    X(accept_fails)                                                                                \
    X(poll_ends)                                                                                   \
    X(stall)                                                                                       \
    X(nic_stalls)                                                                                  \
    X(cut)                                                                                         \
    X(rail_cut)                                                                                    \
    X(link_down)                                                                                   \
    X(node_killed)                                                                                 \
    X(bit_flip)                                                                                    \
    X(early_completion)                                                                            \
    X(stale_completion)                                                                            \
    X(qp_error)                                                                                    \
    X(access_refused)                                                                              \
    X(post_fails)                                                                                  \
    X(immediate_unasked)                                                                           \
    X(flush_stuck)                                                                                 \
    X(job_fails)                                                                                   \
    X(slow_connect)                                                                                \
    X(destroy_fails)                                                                               \
    X(device_lost)                                                                                 \
    X(page_recycled)                                                                               \
    X(serve_given_up)                                                                              \
    X(pull_stopped)                                                                                \
    X(path_silent)

enum rfault {
#define X(name) RF_##name,
    FAULT_NAMES(X)
#undef X
        RF_COUNT
};

/* Items that can be left out, by their number among their kind: faults, choices of the driver. */
#define ITEM_choice RF_COUNT
#define ITEM_KINDS  (RF_COUNT + 1)

struct ritem {
    uint32_t kind, n;
};

struct rhistory {
    uint64_t seed;
    uint32_t choices, n; /* choices: until the faults end, with those left out */
    struct ritem item[ITEMS];
};

/* Purposes of random numbers; those below are an item's own. */
enum chance_for { FOR_CONFIG = ITEM_KINDS, FOR_DRIVER, FOR_MOMENT };

enum rmark {
#define X(name, least) RM_##name,
    RDMA_MARKS(X)
#undef X
        RM_COUNT
};

/* Events of the heap. a and b: an index and its generation. */
enum thing {
    T_TASK, /* a task of the data threads continues */
    T_TASK_CANCEL,
    T_OP,      /* an operation of the ring tries */
    T_OP_DONE, /* its result is reported */
    T_DELIVER, /* bytes of a socket arrive */
    T_QP,      /* a queue pair does something */
    T_HELD,    /* completed bytes become visible */
    T_STALE,   /* a completion that nobody waits for */
    T_GONE,    /* the objects of a removed device are destroyed */
    T_TICK,    /* a node's clock */
    T_CORE,    /* a node's core processes the seam's events */
    T_CONTROL, /* a message of a control connection arrives */
    T_PULL,    /* a pull takes its next action */
    T_SERVE,   /* the source learns that a pull is over */
    T_LINK,    /* a link changes */
    T_NODE,    /* a node that was killed starts again */
    T_HEAL,    /* a cut ends */
    T_POLL,    /* a node is about to sleep */
    T_CHOICE,  /* the driver chooses something */
};

struct thing_at {
    uint64_t at, order;
    enum thing kind;
    uint32_t a, b;
};

struct rconfig {
    uint32_t nodes, tenants, regions, groups;
    uint32_t transfer_regions; /* number of regions in a transfer: all, or 1 where all are equal */
    uint32_t rails[NODES];     /* devices in use; 0: none */
    uint32_t page_bytes[GROUPS], units[GROUPS], first[GROUPS],
        pages[GROUPS];    /* index in the pool */
    uint32_t connections; /* TCP connections to a peer that transfers are spread over */
    uint32_t max_msg, cqe, mr_bytes, choices;
    uint32_t busy;       /* a node polls its completions up to so many microseconds late */
    uint32_t slow, drag; /* delays of the machine, and of a NIC for a piece of a request */
    bool purge;          /* destroying a queue pair drops its completions */
    enum xfer_transport transport[NODES][NODES]; /* puller, source */
    bool old[NODES];            /* an old version, which wants to read and can only be read */
    bool far[NODES];            /* its pages lie on GPUs, whose memory takes no windows */
    bool bare[NODES];           /* and no NIC knows that memory: they leave by TCP */
    uint64_t idle_ns, pause_ns; /* pause: between choices, on average */
    uint32_t rate[RF_COUNT];    /* one in so many; 0: never */
};

enum page_kind {
    PG_FREE,      /* its core's, which rewrites it at any time */
    PG_COMMITTED, /* may be asked for, with its generation */
    PG_RESERVED,  /* a pull's: the one kind that a NIC or a socket may write */
    PG_VERIFIED,  /* arrived and reported right; the pull runs on */
};

struct rpage {
    enum page_kind kind;
    uint32_t gen;
    uint64_t tag;   /* source of its bytes */
    uint64_t owner; /* uid of the pull */
    /* Reserved: the page that was asked for. */
    uint32_t from_node, from_place, from_gen;
    uint64_t from_tag;
    bool stale;       /* some bytes were read after the source's page had changed */
    uint8_t excused;  /* EXCUSE_*: it may be reported wrong */
    uint64_t came_by; /* the socket by which bytes of it came since the request; 0: none */
};

struct rpool { /* one a tenant */
    uint64_t offset;
    struct rpage page[PAGES];
};

struct rserve {
    bool used, live; /* used and not live: it is stopping */
    bool quiet;      /* reported quiet */
    uint32_t gen, pool, link, n;
    uint32_t place[PULL_PAGES], page_gen[PULL_PAGES];
};

enum pull_phase { PULL_NOT = 0, PULL_RUNS, PULL_STOPS };

struct rbatch {
    bool used;
    uint32_t number, n;
    uint32_t at[PULL_PAGES]; /* number among the pull's pages */
};

struct rpull {
    enum pull_phase phase;
    bool broken, heard_broken, quiet, calm; /* calm: started after the faults had stopped */
    enum tern_err err;
    uint64_t uid;
    uint32_t gen, link, source, pool, n, asked, right, failed, batches;
    uint32_t step; /* generation of its T_PULL */
    uint32_t place[PULL_PAGES], from_place[PULL_PAGES], from_gen[PULL_PAGES];
    uint64_t from_tag[PULL_PAGES];
    uint8_t tries[PULL_PAGES];
    uint32_t todo[PULL_PAGES * 2], ntodo; /* pages to be asked for */
    struct serve_id serve;
    struct rbatch batch[PULL_BATCHES_MAX];
};

struct rlink {                /* puller -> source */
    uint32_t epoch, changing; /* changing: changes under way */
    bool up_here, up_there;   /* at the puller, at the source */
    uint64_t token, last_ns[2];
};

#define EMITTED 64u

struct rnode {
    uint32_t number, life;
    bool alive;
    uint64_t incarnation;
    uint16_t port;
    struct xfer *xfer;
    struct rpool pool[TENANTS];
    uint64_t sums[TENANTS * PAGES][UNITS * REGIONS];
    struct rpull pull[PULLS];
    struct rserve serve[SERVES];
    struct event emitted[EMITTED];
    uint32_t nemitted;
    uint64_t revoked;                   /* grants, as its seam counts them */
    uint64_t strays;                    /* completions put into its queue that belong to nobody */
    bool failed[LINKS][TENANTS][RAILS]; /* paths that it reported as failed, without a page since */
    bool core_due;
    bool polls, poll_due; /* calls xfer_poll before it sleeps, as the daemon does */
    _Alignas(64) uint8_t memory[TENANTS][REGIONS][MEMORY];
};

struct control {
    bool used;
    uint32_t epoch, from, to; /* puller and source of the link */
    bool back;                /* the source sends */
    struct xfer_path_msg msg;
};
#define CONTROLS 128u

struct rworld {
    uint64_t chance; /* state of a prng_splitmix */
    struct rconfig cfg;
    uint64_t now_ns, order, hash, events, seed;
    uint32_t heap_n;
    struct thing_at heap[HEAP];
    bool faults, failed, verbose, over;
    char what[48], text[256];
    jmp_buf out;
    struct rnode node[NODES];
    struct rlink link[NODES][NODES];
    uint64_t cut_until[NODES][NODES];
    uint64_t rail_cut_until[NODES][RAILS]; /* nothing leaves its cable, without a sign */
    struct control control[CONTROLS];
    uint64_t uids, tags;
    uint32_t pulls_open, choices_left, current;   /* current: the node whose device is opened */
    uint32_t together;                            /* events of this moment */
    const struct rhistory *only;                  /* the items that occur; NULL: random */
    struct rhistory happened;                     /* the items that occurred, if random */
    uint32_t asked[ITEM_KINDS], next[ITEM_KINDS]; /* next: in *only */
    bool marks[RM_COUNT];                         /* reached in this history */
    uint64_t fault[RF_COUNT], events_all;
};

extern struct rworld rw;

/* world.c */
_Noreturn void rw_fail(const char *what, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void rw_post(uint64_t delay_ns, enum thing kind, uint32_t a, uint32_t b);
bool rw_step(uint64_t until_ns); /* the next event, if it is due by then; else time moves there */
void rw_chance(uint32_t what, uint64_t n); /* from here on it is for that purpose */
uint64_t rw_u64(void);
uint32_t rw_below(uint32_t n);
uint32_t rw_between(uint32_t least, uint32_t most);
bool rw_one_in(uint32_t n);
bool rw_happens(uint32_t kind); /* the next item of the kind, with random numbers of its own */
bool rw_fault(enum rfault f);   /* does it occur now? */
uint64_t rw_soon(void);         /* a delay of the machine: mostly microseconds */
void *rw_alloc(size_t n);       /* zeroed, until the end of the history */
bool rw_play(uint64_t seed, const struct rhistory *only, uint64_t *ret_hash);
void rw_mix(uint64_t v);
static inline void rw_mark(enum rmark m)
{
    rw.marks[m] = true;
}

/* config.c */
void config_make(struct rconfig *c);

/* shrink.c */
const char *ritem_name(uint32_t kind);
bool rhistory_shrink(struct rhistory *h); /* of one that failed; false: it no longer fails */
bool rhistory_write(const struct rhistory *h, const char *path, const char *why);
bool rhistory_read(const char *path, struct rhistory *h);

/* tasks.c */
void tasks_reset(void);
void tasks_run(uint32_t task, uint32_t gen);
void tasks_cancel(uint32_t task, uint32_t gen);
void tasks_kill(uint32_t node);
bool tasks_working(void);      /* a data thread is running */
void tasks_sleep(uint64_t ns); /* its task returns that much later */

/* net.c */
void rnet_reset(void);
void rnet_op(uint32_t op, uint32_t gen);
void rnet_op_done(uint32_t op, uint32_t gen);
void rnet_deliver(uint32_t sock, uint32_t gen);
void rnet_kill(uint32_t node);    /* all its sockets and operations end without a result */
void rnet_readable(int fd);       /* a descriptor of the model became readable */
int rnet_event_fd(uint32_t node); /* rnet_signal makes it readable, rnet_clear unreadable */
void rnet_signal(int fd);
void rnet_clear(int fd);
void rnet_close(int fd);
uint32_t rnet_open(uint32_t node); /* number of its descriptors */
void rnet_reset_random(void);      /* a connection is reset */
void rnet_silence_random(void);    /* nothing arrives over it for some time, without a sign */
struct io *rnet_io(uint32_t node);
void rnet_heal(void);
void rnet_completed(uint32_t node);             /* its ring has reported a result */
bool rnet_receives(const void *to, uint64_t n); /* a receive in flight may write there */

/* nic.c, nic_run.c */
void rnic_reset(void);
void rnic_qp(uint32_t qp, uint32_t gen);
void rnic_held(uint32_t held, uint32_t gen);
void rnic_stale(uint32_t cq, uint32_t gen);
void rnic_kill(uint32_t node);
void rnic_lose(uint32_t node, uint32_t rail); /* for good, until the node starts again */
void rnic_gone(uint32_t context, uint32_t gen);
bool rnic_may_write(uint64_t owner); /* by a request or an open window of some queue pair */
uint32_t rnic_windows_open(uint32_t node);
void rnic_audit_reads(uint32_t node); /* no key of the node may be used to read */
bool rnic_is_lost(uint32_t node, uint32_t rail);
bool rnic_is_whole(uint32_t node, uint32_t rail, uint32_t peer); /* its pairs to that peer work */
bool rnic_is_going(uint32_t node); /* it loses a device whose objects still exist */
void rnic_spoil(void);             /* a queue pair goes to the error state by itself */
uint32_t rnic_objects(uint32_t node);
uint32_t rnic_outstanding(uint32_t node);
bool rnic_has_just_begun(uint32_t node, uint64_t ns); /* a queue pair got a request not done yet */
void rnic_receive(const void *to, size_t n);          /* a socket will write there */

/* memory.c. A page's place: its number among all pages of its pool. */
struct mem *rmem_of(uint32_t node);
void rmem_start(uint32_t node); /* fresh memory */
uint32_t rmem_group(uint32_t place);
uint32_t rmem_index(uint32_t place);
uint32_t rmem_place(uint32_t group, uint32_t index); /* NONE32: no such page */
uint32_t rmem_places(void);
void rmem_write(uint32_t node, uint32_t pool, uint32_t place, uint64_t tag); /* bytes of the tag */
void rmem_commit(uint32_t node, uint32_t pool, uint32_t place);              /* and its checksums */
bool rmem_holds(uint32_t node, uint32_t pool, uint32_t place, uint64_t tag); /* exactly those */
bool rmem_sums_right(uint32_t node, uint32_t pool, uint32_t place);
void rmem_audit(uint32_t node);
#define OWNER_RING UINT64_MAX
/* The owner of the page that a receive is posted for; 0: none. OWNER_RING: it is in the seam's
 * memory for GPU pages. */
uint64_t rmem_owner(const void *at);
/* A device or a socket writes what may be a page. */
void rmem_land(void *to, const void *bytes, size_t n, uint64_t owner, const char *by);
/* The bytes were completed before they were visible, which is a cache's doing, not the device's: if
 * the page has another owner meanwhile, that owner wrote last. */
void rmem_land_late(void *to, const void *bytes, size_t n, uint64_t owner);
#define EXCUSE_FLIP 1u
#define EXCUSE_LATE 2u
#define EXCUSE_RING 4u
bool rmem_came_by(const void *at, uint64_t socket);      /* another socket also wrote the page */
void rmem_excuse(const void *at, size_t n, uint8_t why); /* a fault: it may be reported wrong */
void rmem_taken(const void *from, size_t n);             /* a socket reads at the source */
void rmem_read_for(void *to, const void *from,
                   size_t n); /* by RDMA: to will have the bytes at from */
bool rmem_is_memory(const void *at);
bool rmem_is_far(const void *at); /* in memory of GPUs, at least in part */

/* drive.c */
void drive_start(void);
void drive_choice(void);
void drive_core(uint32_t node);
void drive_tick(uint32_t node, uint32_t life);
void drive_poll(uint32_t node, uint32_t life);
void drive_turned(uint32_t node); /* something of the node ran */
void drive_node_start(uint32_t node);
void drive_emit(void *ctx, struct event *event);
void drive_converge(void);

/* pulls.c */
struct rpull *pulls_start(uint32_t node, uint32_t source, uint32_t pool, uint32_t pages);
void pulls_step(uint32_t at, uint32_t step);
void pulls_heard(struct rnode *node, const struct event *event); /* the core receives it */
void pulls_stop(struct rnode *node, struct rpull *pull);
void pulls_link_down(uint32_t node, uint32_t link);
void pulls_node_gone(uint32_t node);
bool pulls_stopping(uint64_t owner);
void pulls_recycle(uint32_t node, uint32_t pool, uint32_t place);

/* serves.c */
struct rserve *serves_start(const struct rpull *pull, uint32_t puller);
void serves_stop(struct rnode *node, struct rserve *serve);
void serves_pull_over(uint32_t at, uint32_t gen);
void serves_link_down(uint32_t node, uint32_t link);
bool serves_cover(uint32_t node, uint32_t pool, uint32_t place, bool stopping_too);
enum tern_err serves_page(void *ctx, struct serve_id serve, uint32_t group, struct page_ref ref,
                          uint32_t *ret_record);
bool serves_allowed(void *ctx, struct serve_id serve, uint32_t link);

/* model.c: the seam's events, at their moment. */
void model_said(struct rnode *node, const struct event *event);

/* audit.c: the seam's resources; rest: nothing is under way, so none may be in use. */
void audit_node(uint32_t node, bool rest);
void audit_tick(uint32_t node); /* calls the tick */
void audit_path_changed(void *ctx, uint32_t link, const struct xfer_path_view *view);

/* links.c */
uint32_t link_out(uint32_t puller, uint32_t source); /* its number at the puller */
uint32_t link_in(uint32_t puller, uint32_t source);  /* and at the source */
uint32_t link_peer(uint32_t node, uint32_t link);
void links_change(uint32_t a, uint32_t epoch);
void links_down(uint32_t puller, uint32_t source);
void links_node(uint32_t node, bool started);
void links_control(uint32_t slot);
void links_path_send(void *ctx, uint32_t link, const struct xfer_path_msg *msg);
void links_path_note(void *ctx, uint32_t link, const struct xfer_note *note);

#endif
