/* Moves pages between daemons. In a pull the destination requests pages by the source's (group,
 * index, generation) and receives straight into its own pages. The source asks the core whether
 * each page may leave, and sends from the page. Checksums travel beside the bytes, and the memory
 * verifies them before the page is reported to the core. Transports move the bytes: transport.h,
 * tcp/, verbs/. Owner thread only; no allocation after create. */
#ifndef SEAM_XFER_H
#define SEAM_XFER_H

#include "base/rate.h"
#include "core/core.h"
#include "reshard/layout.h"
#include "seam/io/door.h"
#include "seam/io/io.h"
#include "seam/io/io_threads.h"
#include "seam/mem/mem.h"

struct transport_ops;
struct xfer;
struct xfer_registration_view;

/* Transports that an operator may configure for the pages of a peer (peers[].transport), as X(name,
 * its word, may pages use RDMA paths). AUTO uses the best one that both ends have. Each other word
 * allows one transport only. A word may name a transport that this build lacks. */
#define XFER_TRANSPORT_TABLE(X)                                                                    \
    X(AUTO, "auto", true)                                                                          \
    X(VERBS, "verbs", true)                                                                        \
    X(TCP, "tcp", false)

enum xfer_transport {
#define X(name, word, by_paths) XFER_##name,
    XFER_TRANSPORT_TABLE(X)
#undef X
        XFER_TRANSPORTS
};

extern const struct xfer_transport_kind {
    const char *word, *configured; /* configured: why a link uses no other */
    bool by_paths;
} xfer_transport_kind[XFER_TRANSPORTS];

/* Messages between the two ends of an RDMA path, on the peer's control connection alone. A path
 * belongs to one link, to one tenant (a key opens one tenant's memory alone) and to one rail, which
 * is a device of the destination. The destination offers; the source answers or refuses. The source
 * uses its own device of that number, modulo its number of devices. */
#define XFER_MRS_MAX        64 /* registrations of one tenant's memory */
#define XFER_THREADS_MAX    64
#define XFER_PATH_TEXT      160
#define XFER_CALL_TEXT      128
#define XFER_DEVICE_BYTES   64
#define XFER_PATH_GID_BYTES 16
#define XFER_RAILS_MAX      16 /* local devices in use; at most one path each per (link, tenant) */
#define XFER_RAILS_INITIAL  4
#define XFER_PATHS_MAX      (1u << 23) /* links x tenants x rails */
#define XFER_MWS_MAX        64         /* memory windows of a destination's path */

/* Data connections to one peer over which its TCP transfers are spread. */
#define XFER_CONNECTIONS_MAX 16

enum xfer_path_kind { XFER_PATH_OFFER = 1, XFER_PATH_ANSWER, XFER_PATH_REFUSE, XFER_PATH_KINDS };

/* A memory region (MR): a stretch of a tenant's memory registered with a device. */
struct xfer_mr {
    uint64_t addr, bytes;
    uint64_t offset; /* in its region */
    uint32_t rkey, region;
};

struct xfer_path_msg {
    enum xfer_path_kind kind;
    uint32_t tenant; /* one that this peer may use: the shell refuses others */
    uint32_t rail;   /* the destination's */
    uint32_t epoch;  /* the destination's; an answer repeats it */
    uint32_t qpn, psn, mtu, lid;
    uint8_t gid[XFER_PATH_GID_BYTES];
    /* The source writes, so the offer has the destination's memory regions, without keys, and the
     * keys of its memory windows. push is set in offers and repeated in answers. A daemon of an
     * older version, which wants to read or can only be read, does not set it and is refused. A
     * refusal sets it if the refused offer was to read: an offer to be pushed to may follow. */
    bool push;
    uint32_t nmrs;
    struct xfer_mr mr[XFER_MRS_MAX];
    uint32_t nmws;
    uint32_t mw_rkey[XFER_MWS_MAX]; /* the constant part of each key; the rest is 0 */
    char text[XFER_PATH_TEXT];      /* reason of a refusal */
};

/* One end of a path. Texts are static, or borrowed until the next call into xfer. */
struct xfer_path_view {
    uint32_t tenant;
    const char *device, *state_word, *reason;
    bool ready, reads; /* reads: pages move to us; false: to the peer */
};

#define XFER_BY_PORT UINT32_MAX

/* The settings of ports and queue pairs that a fabric requires: equal on all hosts, except the GID
 * index. */
struct xfer_rdma_tuning {
    uint32_t gid_index;  /* BY_PORT: of RoCE v2 over IPv4, else of RoCE v2, else any */
    uint32_t pkey_index; /* in the port's table */
    uint32_t mtu;        /* of a path, in bytes; BY_PORT: the port's */
    uint32_t traffic_class, service_level;
    uint32_t timeout; /* before a retry: 4.096 us x 2^timeout */
    uint32_t retries; /* before an error; for soft-RoCE 7 means without limit */
};
extern const struct xfer_rdma_tuning xfer_rdma_tuning_initial;

/* The transport of a link's pulls of a tenant from now on, and why; for the log and operators. */
struct xfer_note {
    uint32_t tenant;
    const char *transport; /* its word; NULL: nothing */
    const char *reason;
    enum xfer_note_kind {
        XFER_NOTE_WAY,      /* the configured one, or none */
        XFER_NOTE_FALLBACK, /* not RDMA, although `auto` prefers RDMA */
        XFER_NOTE_PART      /* of some pages only: unchanged for the others */
    } kind;
};

struct xfer_rdma_config {
    uint32_t pulls; /* links [0, pulls): their peers write to us the pages that we pull */
    bool serves;    /* peers pull from us */
    /* Names of the devices to use as rails, in this order; none: those nearest to the GPUs with
     * memory of tenants, and the one nearest to host memory. */
    char device[XFER_RAILS_MAX][XFER_DEVICE_BYTES];
    uint32_t ndevices;
    /* By tenant, the device of each region; NULL: the nearest. Borrowed for the xfer's life. */
    const char (*region_device[MEM_TENANTS_MAX])[XFER_DEVICE_BYTES];
    uint32_t rails; /* maximum of our rails, and of a peer's that we use; 0: XFER_RAILS_INITIAL */
    const struct xfer_rdma_tuning *tuning; /* borrowed; NULL: xfer_rdma_tuning_initial */
    const char *sys;                       /* NULL: /sys, unless a test has another */
    uint64_t mr_bytes_max;                 /* of one registration; 0: what the device takes */
    uint32_t tenants;
    uint32_t on_gpus; /* tenants on GPUs: each gets a ring to receive pushes */
    void (*path_send)(void *ctx, uint32_t link, const struct xfer_path_msg *msg);
    void (*path_note)(void *ctx, uint32_t link, const struct xfer_note *note);
    /* Called while a device registers memory, and at its end: `done` of `all` bytes, after ns. */
    void (*progress)(void *ctx, const char *device, uint64_t done, uint64_t all, uint32_t threads,
                     uint64_t ns);
    /* A path of a link became ready, or failed; for the log. */
    void (*path_changed)(void *ctx, uint32_t link, const struct xfer_path_view *path);
    /* At start, tests each pair of a region and a device by moving known bytes
     * (verbs/device/selftest.c). Other tests do without. */
    bool self_test;
    /* Reports each row that did not pass; then, with tenant NONE, one row for all regions of the
     * device that passed, with their number and sums. For the log. */
    void (*self_tested)(void *ctx, const struct xfer_registration_view *row);
    /* A device was lost, or does not destroy a queue pair: an operator must know. */
    void (*device_alarm)(void *ctx, const char *device, const char *text);
};

struct xfer_config {
    struct io *io;
    struct mem *mem;
    uint32_t links, pulls, serves; /* as in core_limits */
    uint32_t pools;                /* as in core_limits; 0: no layouts are known */
    uint32_t pairs;          /* most pairs of layouts with transfers; 0: nothing is resharded */
    uint32_t batches;        /* the core's limit; 0: as many as pulls can have */
    uint32_t data_threads;   /* threads that move and verify page bytes: seam/io/io_threads.h */
    uint32_t data_conns_max; /* both ways together, half of them from peers */
    uint32_t peers;          /* connection slots are reserved for each of them */
    uint32_t connections;    /* most for one link's transfers; 0: one */
    /* Callers at the data port that have sent no token: how many may wait, how many of one address,
     * and for how long. 0: as in seam/io/door.h, and idle_ns. */
    uint32_t strangers;
    uint64_t hello_ns;
    uint64_t idle_ns; /* a connection with work due and no progress for that long is broken */
    uint32_t fault_corrupt_pages; /* fault injection: flips a bit in that many received pages */
    uint32_t socket_buffer_bytes; /* SO_SNDBUF and SO_RCVBUF; 0: 1 MiB, or the kernel's choice if
                                     net.core.rmem_max or wmem_max is below that */
    uint64_t incarnation;         /* ours: data connections that name another are refused */
    struct xfer_rdma_config rdma; /* all zero: no RDMA */
    /* An outbound link's data port cannot be reached (error: an errno), or can be again (0). For
     * the log, and only on a change. NULL: not reported. */
    void (*data_dialled)(void *ctx, uint32_t link, uint16_t port, int error);
    /* Borrowed, best first, ends with NULL. NULL: all of this build (transport.h). */
    const struct transport_ops *const *transports;
    /* Receives EV_PULLED, EV_PULL_BROKEN (PEER_LOST: the connection ended; GONE: the source gave up
     * a page or the serve; BUSY: no data connection is available; UNSUPPORTED: a page lies in too
     * many registrations to be pushed, and TCP is not allowed), EV_PULL_QUIET and EV_SERVE_QUIET.
     * May be called inside xfer_* calls, so the shell queues. The shell sets now_ns. */
    void (*emit)(void *ctx, struct event *event);
    /* core_serve_next on the live core. NULL: no entry names several pages. */
    enum tern_err (*serve_next)(void *ctx, struct serve_id serve, uint32_t group,
                                struct page_ref ref, struct page_ref *ret);
    /* core_serve_page on the live core. */
    enum tern_err (*serve_page)(void *ctx, struct serve_id serve, uint32_t group,
                                struct page_ref ref, uint32_t *ret_record);
    /* Returns true if connections admitted by that link may request pages of that serve. False only
     * for a live serve of another link. NULL: each may request all. */
    bool (*serve_allowed)(void *ctx, struct serve_id serve, uint32_t link);
    /* core_layout_used on the live core: a peer's layout in use is kept. NULL: none is in use. */
    bool (*layout_used)(void *ctx, uint64_t hash);
    void *ctx;
};

/* Returns the bytes that xfer_create allocates: shared ones, and those of RDMA without those that a
 * device's library allocates. page_records and sums_per_page are those of the page memory. */
void xfer_bytes(const struct xfer_config *config, uint32_t page_records, uint32_t sums_per_page,
                uint64_t *ret_shared, uint64_t *ret_rdma);
enum tern_err xfer_create(const struct xfer_config *config, struct xfer **ret,
                          const char **ret_why);
void xfer_destroy(struct xfer *xfer); /* before io and mem; runs the ring until all has ended */

/* Listens for data connections; *ret_port is the port used (for port 0). host NULL: all. CONFLICT:
 * the port is taken; INVALID: not an address of this host. *ret_why: the system's text. */
enum tern_err xfer_listen(struct xfer *xfer, const char *host, uint16_t port, uint16_t *ret_port,
                          const char **ret_why);

/* An outbound link is up, with its peer's data address and incarnation, and the token that the peer
 * issued on it. xfer_link_down breaks its pulls. */
enum tern_err xfer_link_up(struct xfer *xfer, uint32_t link, const struct sockaddr *addr,
                           socklen_t len, uint64_t peer_incarnation, uint64_t token);
void xfer_link_down(struct xfer *xfer, uint32_t link);
/* Another peer will use the link, which is down: forgets the last peer's byte counts and errors. */
void xfer_link_forget(struct xfer *xfer, uint32_t link);
/* After xfer_link_up: the configured transport, and the tenants (a bit each) that may use paths.
 * Without this call pages do not use paths. peer_rdma: the peer understands paths. */
void xfer_link_transport(struct xfer *xfer, uint32_t link, enum xfer_transport transport,
                         uint64_t tenants, bool peer_rdma);
/* A message from the peer's end of a path. */
void xfer_path_msg(struct xfer *xfer, uint32_t link, const struct xfer_path_msg *msg);
/* An inbound link ended: nothing more is written to its peer. */
void xfer_peer_down(struct xfer *xfer, uint32_t link);

struct xfer_link_view {
    const char *transport; /* the word of a transport, "setting up" or "none" */
    const char *reason;    /* borrowed until the next call into xfer */
    bool push;             /* the peer writes the pages (RDMA) */
    /* Data connections for pages: how many there may be (0: none is needed), and those up, calling
     * and retired. */
    uint32_t connections, conns_up, conns_calling, conns_retired;
};
void xfer_link_view(const struct xfer *xfer, uint32_t link, struct xfer_link_view *ret);
/* Page bytes over that link since start by transport i, and its word. Returns false if none. */
bool xfer_link_bytes(const struct xfer *xfer, uint32_t link, uint32_t i, const char **ret_transport,
                     uint64_t *ret_bytes);
/* The i-th path of a link. Returns false if it has fewer. */
bool xfer_path_view(const struct xfer *xfer, uint32_t link, uint32_t i, struct xfer_path_view *ret);

#define XFER_DEVICES_MAX 32 /* that are examined */
struct xfer_rail_view {
    char device[XFER_DEVICE_BYTES];
    int node; /* NUMA; -1: not known */
    uint32_t port, gid_index, pkey, mtu, completion_queue;
    uint64_t registered_bytes, registrations, max_mr_bytes;
    bool memory_windows;  /* of type 2B, bound to a queue pair: peers can push to us */
    bool lost;            /* until the daemon restarts: no path is made over it */
    uint64_t bytes_asked; /* of the device so far, whether moved or not */
};

struct xfer_rdma_view {
    bool built, open;
    bool wanted;   /* by the configuration; false: devices as they were at start */
    char why[320]; /* how the devices were chosen, or why there is none */
    uint32_t nrails, ndevices;
    uint32_t rails_wanted;                      /* for regions; 0: as rdma_device names, or one */
    struct xfer_rail_view rail[XFER_RAILS_MAX]; /* in use */
    struct {
        char name[XFER_DEVICE_BYTES], state[160]; /* state: as which rail, or why not */
        int node, distance;                       /* to the memory's nearest node; -1: not known */
    } found[XFER_DEVICES_MAX];
    uint64_t memory_nodes, cpu_nodes; /* NUMA: of the tenants' memory; where we may run */
    uint64_t memlock_bytes;           /* RLIMIT_MEMLOCK; UINT64_MAX: none */
    bool memlock_exempt;              /* CAP_IPC_LOCK */
    uint64_t memlock_needed;          /* bytes that registrations lock on memlock_devices devices */
    uint32_t memlock_devices;         /* devices asked for, or one if there is none */
    uint32_t send_queue;
};
void xfer_rdma_view(const struct xfer *xfer, struct xfer_rdma_view *ret);
/* Returns the most host memory that each tenant on GPUs gets for its ring and that RDMA locks, for
 * any devices and any number of them (verbs/device/bounce.c). */
uint64_t xfer_ring_bytes(const struct xfer_rdma_config *config);

/* How a NIC has a region of a tenant's memory registered, as X(name, its word). NO: not at all. */
#define XFER_REGISTERED_TABLE(X)                                                                   \
    X(NO, "no")                                                                                    \
    X(MEMORY, "memory")            /* of the host */                                               \
    X(DMABUF, "dma-buf")           /* a GPU's, exported by its driver */                           \
    X(DMABUF_PCIE, "dma-buf-pcie") /* the same, through its BAR although there is another way */   \
    X(PEERMEM, "nvidia-peermem")   /* a GPU's, by its address */

enum xfer_registered {
#define X(name, word) XFER_REGISTERED_##name,
    XFER_REGISTERED_TABLE(X)
#undef X
        XFER_REGISTERED_WAYS
};

extern const char *const xfer_registered_word[XFER_REGISTERED_WAYS];

/* The self-test's result for that memory and the NIC at start, as X(name, word). */
#define XFER_SELF_TEST_TABLE(X)                                                                    \
    X(NONE, "none")                                                                                \
    X(PASSED, "passed")                                                                            \
    X(NOT_POSSIBLE, "not possible") /* it is used, but untested */                                 \
    X(PART, "failed in part")       /* it is used without pushes: its ring or a window failed */   \
    X(FAILED, "failed")             /* that memory is not used with that NIC */

enum xfer_self_test_result {
#define X(name, word) XFER_SELF_TEST_##name,
    XFER_SELF_TEST_TABLE(X)
#undef X
        XFER_SELF_TEST_RESULTS
};

extern const char *const xfer_self_test_word[XFER_SELF_TEST_RESULTS];

#define XFER_SELF_TEST_SCRATCH 8192u /* of host memory, registered during a test */
#define XFER_SELF_TEST_TEXT    192
struct xfer_self_test {
    enum xfer_self_test_result result;
    uint64_t at_ns;                /* when, by io_now_ns */
    uint64_t bytes, ns;            /* bytes moved and compared; duration of the test */
    char why[XFER_SELF_TEST_TEXT]; /* why it did not pass */
};

#define XFER_REGISTRATION_TEXT 256
struct xfer_registration_view {
    uint32_t tenant, region, regions; /* `regions` equal regions, from that one on */
    const char *gpu;                  /* its UUID; NULL: memory of the host */
    const char *device;               /* the NIC; NULL: none is in use */
    enum xfer_registered how;
    const char *why; /* why better ways failed; borrowed */
    /* For a GPU: host memory that receives pushes; 0: peers do not push, and no_ring says why. */
    uint64_t ring_bytes;
    const char *no_ring;
    const struct xfer_self_test *test; /* borrowed; NULL: there is none */
};
/* The i-th pair of a region and a NIC in use (or region without NIC). Returns false if none. */
bool xfer_registration_view(const struct xfer *xfer, uint32_t i,
                            struct xfer_registration_view *ret);
/* The device that a region's pages use, if the device is ready and the pages lie in no other
 * region. Texts are static, or valid as long as the xfer. */
struct xfer_region_view {
    const char *gpu, *pci; /* its UUID and its PCI address; NULL: memory of the host */
    const char *device;    /* NULL: any */
    const char *reason;    /* how near the device is, or why it was chosen, or why any */
    uint32_t rail;         /* NONE: not in use */
};
/* Returns false if this build has no RDMA. */
bool xfer_region_view(const struct xfer *xfer, const struct xfer_rdma_view *rdma, uint32_t tenant,
                      uint32_t region, struct xfer_region_view *ret);

/* An inbound link issued that token (not 0): data connections that send it belong to that link
 * until xfer_dismiss, which ends them. Only these may request pages, and none of a serve of another
 * link. */
void xfer_admit(struct xfer *xfer, uint32_t link, uint64_t token);
void xfer_dismiss(struct xfer *xfer, uint32_t link);

/* Sets the layout of a pool of ours, with the core's hash of it. Call once the pool is open, and
 * again for each pool that opens in that slot. n 0: no layout. Copied. */
void xfer_pool_layouts(struct xfer *xfer, uint32_t pool, uint64_t hash,
                       const struct reshard_layout *l, uint32_t n);
/* Called before xfer_pool_layouts. Returns why resharded pages of such a pool could not be
 * verified, and for which group. NONE: they can. Costs at most PAIR_RUNS_MAX runs (units.h). */
enum reshard_refusal xfer_pool_refusal(struct xfer *xfer, const struct reshard_layout *l,
                                       uint32_t n, char ret_group[RESHARD_NAME_MAX]);
/* Returns the layouts of a pool of ours with that hash, to send to a peer. NULL: none. */
const struct reshard_layout *xfer_layouts_of(const struct xfer *xfer, uint64_t hash,
                                             uint32_t *ret_n);
/* A peer has sent the layouts of a pool of its own, which passed reshard_check_layout. Call this
 * before the core gets the message that brought them. Another layout may replace them only while
 * the core has no transfer between pages of that hash. Returns NULL if they are kept, else why not
 * (a static text): the peer has sent another layout under that hash and a transfer needs that one;
 * or transfers need all known layouts (so a peer has at most the pairs that the core has counted);
 * or the plans for the peer's layouts have reached their cost limit. */
const char *xfer_peer_layouts(struct xfer *xfer, uint32_t peer, uint64_t hash,
                              const struct reshard_layout *l, uint32_t n);
/* Returns why pages of a pool with the peer's layout cannot move into ours, and for which group.
 * NONE: they can, one of the two layouts is not known, or the answer cannot be found now. */
enum reshard_refusal xfer_layouts_refusal(struct xfer *xfer, uint64_t own_hash, uint64_t other_hash,
                                          char ret_group[RESHARD_NAME_MAX]);

void xfer_pull(struct xfer *xfer, const struct action *act); /* ACT_PULL; copies what it needs */
void xfer_pull_stop(struct xfer *xfer, const struct action *act);   /* ACT_PULL_STOP */
void xfer_serve_start(struct xfer *xfer, const struct action *act); /* ACT_SERVE_START */
void xfer_serve_stop(struct xfer *xfer, const struct action *act);  /* ACT_SERVE_STOP */
/* Call before each io_run. Returns true if io_run should not wait, because requests in flight may
 * complete in a moment. Without these calls the ring reports each completion. */
bool xfer_poll(struct xfer *xfer);
void xfer_tick(struct xfer *xfer, uint64_t now_ns); /* enforces idle_ns; call about every 100 ms */

struct xfer_stats {
    uint64_t payload_bytes_in, payload_bytes_out; /* page bytes */
    uint64_t socket_bytes_in, socket_bytes_out;   /* all bytes on data connections, with heads */
    uint64_t pages_in, pages_out, corrupt_detected, corrupt_injected, gone_answers, conns;
    uint64_t refused;       /* connections without a valid token, or requesting another's serve */
    uint64_t over_share;    /* connections of a link that had used its share */
    uint64_t conns_retired; /* outgoing ones that failed */
    uint64_t pages_again;   /* requested again, because their connection failed */
    uint32_t inbound, inbound_max, inbound_common, inbound_common_max, inbound_min;
    struct door_stats door;
    struct io_threads_stats threads;
    /* Pages by RDMA, and events of queue pairs. */
    uint64_t verbs_pages_in, verbs_bytes_in, verbs_pages_out;
    uint64_t read_errors; /* failed work requests of either end; the name is historical */
    uint64_t stale_completions, cq_high_water;
    uint64_t stale_answers; /* of paths: to an offer that is no longer valid */
    uint64_t cq_events;     /* how often a completion queue woke the owner */
    uint64_t paths_up, paths_made, paths_failed;
    /* Writes posted by us; grants revoked from a slow peer when their pull ended; and late writes,
     * which a peer wrote, or tried to, for an ended pull. */
    uint64_t writes_posted, grants_revoked, late_writes;
    uint64_t ring_bytes_in; /* page bytes that arrived through rings for GPU memory */
    uint64_t windows_open;  /* memory windows that are bound, or may be: peers have their keys */
    uint64_t pieces_again;  /* requested again over another path, because theirs was lost */
    uint64_t batches_moved; /* handed to another transport, because no path was left */
};
void xfer_stats(const struct xfer *xfer, struct xfer_stats *ret);

/* Statistics of one transfer. In: pages that arrived, right or not. Out: pages that left. */
struct xfer_flow_view {
    uint64_t pages, bytes;
    struct rate rate; /* of the bytes */
};
/* Returns false if nothing of it was requested or served. */
bool xfer_pull_view(const struct xfer *xfer, struct pull_id pull, struct xfer_flow_view *ret);
bool xfer_serve_view(const struct xfer *xfer, struct serve_id serve, struct xfer_flow_view *ret);

#endif
