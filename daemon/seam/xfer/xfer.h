/* Moving pages between daemons: a pull. The destination asks for pages by the source's (group,
 * index, generation) and receives straight into its own pages; the source asks the core whether
 * each page may leave, and sends from the page. Checksums travel beside the bytes, and the memory
 * verifies them before the core hears of a page. Owner thread only; no allocation after create.
 * How the pages travel is a transport's affair: transport.h, tcp/, verbs/. */
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

/* How an operator asks for the pages of a peer to come (peers[].transport), as X(name, its word,
 * may they come by RDMA paths). AUTO takes what is best of what both ends have, each other word one
 * transport or nothing. A word needs no transport of this build behind it. */
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

extern const char *const xfer_transport_word[XFER_TRANSPORTS];
extern const bool xfer_transport_by_paths[XFER_TRANSPORTS];

/* What the two ends of an RDMA path say to each other, on the peer's control connection and nowhere
 * else: a path is of one link, one tenant, because a key is good for one tenant's memory alone, and
 * one rail, a device of the destination's. The destination offers, the source answers or refuses;
 * its end is at its device of that number, modulo as many as it has. */
#define XFER_MRS_MAX        64 /* registrations of one tenant's memory */
#define XFER_THREADS_MAX    64
#define XFER_PATH_TEXT      160
#define XFER_CALL_TEXT      128
#define XFER_DEVICE_BYTES   64
#define XFER_PATH_GID_BYTES 16
#define XFER_RAILS_MAX      16 /* local devices in use; a path of each, at most, a (link, tenant) */
#define XFER_RAILS_INITIAL  4
#define XFER_PATHS_MAX      (1u << 23) /* links x tenants x rails */
#define XFER_MWS_MAX        64         /* memory windows of a path that is written to */

/* Data connections to one peer that its transfers are spread over, where they go by TCP. */
#define XFER_CONNECTIONS_MAX 16

enum xfer_path_kind { XFER_PATH_OFFER = 1, XFER_PATH_ANSWER, XFER_PATH_REFUSE, XFER_PATH_KINDS };

/* A memory region (MR): a stretch of a tenant's memory that is registered with a device. */
struct xfer_mr {
    uint64_t addr, bytes;
    uint64_t offset; /* in its region */
    uint32_t rkey, region;
};

struct xfer_path_msg {
    enum xfer_path_kind kind;
    uint32_t tenant; /* one that this peer may ask for: the shell refuses others */
    uint32_t rail;   /* the destination's */
    uint32_t epoch;  /* the destination's; an answer repeats it */
    uint32_t qpn, psn, mtu, lid;
    uint8_t gid[XFER_PATH_GID_BYTES];
    /* The source writes, so the offer says where: memory regions without keys, and the keys of
     * memory windows. An answer repeats it. Without it a daemon of an older version wants to read,
     * or says that it can only be read, and either is refused. A refusal has it where the offer was
     * to read: an offer to be pushed to may follow. */
    bool push;
    uint32_t nmrs;
    struct xfer_mr mr[XFER_MRS_MAX];
    uint32_t nmws;
    uint32_t mw_rkey[XFER_MWS_MAX]; /* the part of a key that stays; the rest is 0 */
    char text[XFER_PATH_TEXT];      /* why it was refused */
};

/* One end of a path; texts are static, or borrowed until the next call into xfer. */
struct xfer_path_view {
    uint32_t tenant;
    const char *device, *state_word, *reason;
    bool ready, reads; /* reads: pages come to us; else they go to the peer */
};

#define XFER_BY_PORT UINT32_MAX

/* What a fabric may ask of the ports and queue pairs; alike on all hosts, but for the GID index. */
struct xfer_rdma_tuning {
    uint32_t gid_index;  /* BY_PORT: that of RoCE v2 over IPv4, else of RoCE v2, else any */
    uint32_t pkey_index; /* in the port's table */
    uint32_t mtu;        /* of a path, in bytes; BY_PORT: the port's */
    uint32_t traffic_class, service_level;
    uint32_t timeout; /* until a request is repeated: 4.096 us x 2^timeout */
    uint32_t retries; /* repeats; then an error. To soft-RoCE 7 means without end */
};
extern const struct xfer_rdma_tuning xfer_rdma_tuning_initial;

/* What a link's pulls of a tenant go over from now on, and why; for the log and for operators. */
struct xfer_note {
    uint32_t tenant;
    const char *transport; /* its word; NULL: nothing */
    const char *reason;
    enum xfer_note_kind {
        XFER_NOTE_WAY,      /* that which is asked for, or nothing */
        XFER_NOTE_FALLBACK, /* another one than RDMA, where `auto` asks for that first */
        XFER_NOTE_PART      /* a part of them alone: what holds of the others does not change */
    } kind;
};

struct xfer_rdma_config {
    uint32_t pulls; /* the peers of links [0, pulls) write to us what we pull */
    bool serves;    /* peers pull from us */
    /* By name, each a rail, in this order; none: those that are nearest to the GPUs with memory
     * of tenants, and the one that is nearest to memory of the host. */
    char device[XFER_RAILS_MAX][XFER_DEVICE_BYTES];
    uint32_t ndevices;
    /* Of a tenant, the device that each region is to use; NULL: the nearest. Borrowed for good. */
    const char (*region_device[MEM_TENANTS_MAX])[XFER_DEVICE_BYTES];
    uint32_t rails; /* ours at most, and those of a peer that are known; 0: XFER_RAILS_INITIAL */
    const struct xfer_rdma_tuning *tuning; /* borrowed; NULL: xfer_rdma_tuning_initial */
    const char *sys;                       /* NULL: /sys, unless a test has another */
    uint64_t mr_bytes_max;                 /* of one registration; 0: what the device takes */
    uint32_t tenants;
    uint32_t on_gpus; /* of these, those on GPUs: each gets a ring to be pushed to */
    void (*path_send)(void *ctx, uint32_t link, const struct xfer_path_msg *msg);
    void (*path_note)(void *ctx, uint32_t link, const struct xfer_note *note);
    /* While a device registers memory, and when it has: of so many bytes, since so long. */
    void (*progress)(void *ctx, const char *device, uint64_t done, uint64_t all, uint32_t threads,
                     uint64_t ns);
    /* A path of a link became ready, or failed; for the log. */
    void (*path_changed)(void *ctx, uint32_t link, const struct xfer_path_view *path);
    /* Before it is used, each pair of a region and a device moves bytes that are known, at start
     * (verbs/device/selftest.h). Tests of other things do without. */
    bool self_test;
    /* What became of each row that did not pass; then, with tenant NONE, of those of the device
     * that did, `regions` of them, together. For the log. */
    void (*self_tested)(void *ctx, const struct xfer_registration_view *row);
    /* A device was lost, or does not destroy a queue pair: an operator has to know. */
    void (*device_alarm)(void *ctx, const char *device, const char *text);
};

struct xfer_config {
    struct io *io;
    struct mem *mem;
    uint32_t links, pulls, serves; /* as in core_limits */
    uint32_t pools;                /* likewise; 0: nothing is known of layouts */
    uint32_t pairs; /* of layouts that there are transfers between at most; 0: none is resharded */
    uint32_t batches;        /* that the core has under way at most; 0: as many as pulls can have */
    uint32_t data_threads;   /* that move and verify page bytes: seam/io/io_threads.h */
    uint32_t data_conns_max; /* both ways together, half of them from peers */
    uint32_t peers;          /* each can always have one from us, or two where there are many */
    uint32_t connections;    /* that a link's transfers may be spread over; 0: one */
    /* At the data port, of callers that have not said who they are: how many wait, how many of one
     * address, and for how long. 0: as in seam/io/door.h, and idle_ns. */
    uint32_t strangers;
    uint64_t hello_ns;
    uint64_t idle_ns; /* a data connection that makes no progress with work outstanding is broken */
    uint32_t fault_corrupt_pages; /* fault injection: flips a byte in so many pages on receive */
    uint32_t socket_buffer_bytes; /* SO_SNDBUF and SO_RCVBUF; 0: 1 MiB, or what the kernel makes of
                                     it where net.core.rmem_max and wmem_max are below that */
    uint64_t incarnation;         /* ours: a data connection that names another is refused */
    struct xfer_rdma_config rdma; /* all zero: no RDMA */
    /* An outbound link's data port could not be reached, and why (an errno); or, with 0, it can be
     * reached again. For the log, and only when that changes. NULL: nothing. */
    void (*data_dialled)(void *ctx, uint32_t link, uint16_t port, int error);
    /* Borrowed, best first, ends with NULL; NULL: all that are built in (transport.h). */
    const struct transport_ops *const *transports;
    /* EV_PULLED, EV_PULL_BROKEN (PEER_LOST: the connection ended; GONE: the source gave a page or
     * the serve up; BUSY: no data connection to be had; UNSUPPORTED: a page lies in too many
     * registrations to be pushed, and TCP is not allowed), EV_PULL_QUIET, EV_SERVE_QUIET; may be
     * called from inside xfer_* calls: the shell queues. now_ns is the shell's to set. */
    void (*emit)(void *ctx, struct event *event);
    /* core_serve_next on the live core. NULL: nobody asks for several pages at once. */
    enum tern_err (*serve_next)(void *ctx, struct serve_id serve, uint32_t group,
                                struct page_ref ref, struct page_ref *ret);
    /* core_serve_page on the live core. */
    enum tern_err (*serve_page)(void *ctx, struct serve_id serve, uint32_t group,
                                struct page_ref ref, uint32_t *ret_record);
    /* May who was admitted by that link ask for pages of that serve? False only for one that lives
     * and is another link's. NULL: each may ask for all. */
    bool (*serve_allowed)(void *ctx, struct serve_id serve, uint32_t link);
    /* core_layout_used on the live core: what a peer told of that layout stays. NULL: nothing. */
    bool (*layout_used)(void *ctx, uint64_t hash);
    void *ctx;
};

/* What xfer_create will take: for the tables and connections, and for those of RDMA, but for what a
 * device's library allocates. The other two numbers are those of the page memory. */
void xfer_bytes(const struct xfer_config *config, uint32_t page_records, uint32_t sums_per_page,
                uint64_t *ret_shared, uint64_t *ret_rdma);
enum tern_err xfer_create(const struct xfer_config *config, struct xfer **ret,
                          const char **ret_why);
void xfer_destroy(struct xfer *xfer); /* before io and mem: runs the ring until all has ended */

/* Listens for data connections; *ret_port is the port taken (for port 0). host NULL: all. CONFLICT:
 * the port is taken; INVALID: it is no address of this host. *ret_why: the system's words. */
enum tern_err xfer_listen(struct xfer *xfer, const char *host, uint16_t port, uint16_t *ret_port,
                          const char **ret_why);

/* An outbound link is up: its peer's data address, its incarnation, and the token that the peer
 * gave out on it. xfer_link_down breaks its pulls. */
enum tern_err xfer_link_up(struct xfer *xfer, uint32_t link, const struct sockaddr *addr,
                           socklen_t len, uint64_t peer_incarnation, uint64_t token);
void xfer_link_down(struct xfer *xfer, uint32_t link);
/* Another peer is to have the link, which is down: nothing is said of the last one any more. */
void xfer_link_forget(struct xfer *xfer, uint32_t link);
/* After xfer_link_up: how its pages are to come, and of which tenants (a bit each). Without this
 * call they do not come by paths. peer_rdma: the peer understands paths. */
void xfer_link_transport(struct xfer *xfer, uint32_t link, enum xfer_transport transport,
                         uint64_t tenants, bool peer_rdma);
/* What the peer's end of a path says. */
void xfer_path_msg(struct xfer *xfer, uint32_t link, const struct xfer_path_msg *msg);
/* An inbound link ended: nothing is written to its peer any more. */
void xfer_peer_down(struct xfer *xfer, uint32_t link);

struct xfer_link_view {
    const char *transport; /* the word of a transport, "setting up" or "none" */
    const char *reason;    /* borrowed until the next call into xfer */
    bool push;             /* the peer writes them (RDMA) */
    /* Data connections for pages: how many there may be (0: it needs none), and of those that were
     * called. */
    uint32_t connections, conns_up, conns_calling, conns_retired;
};
void xfer_link_view(const struct xfer *xfer, uint32_t link, struct xfer_link_view *ret);
/* Page bytes over that link since the start, by the i-th transport, and its word. False: none. */
bool xfer_link_bytes(const struct xfer *xfer, uint32_t link, uint32_t i, const char **ret_transport,
                     uint64_t *ret_bytes);
/* The i-th path of a link. False: it has no more. */
bool xfer_path_view(const struct xfer *xfer, uint32_t link, uint32_t i, struct xfer_path_view *ret);

#define XFER_DEVICES_MAX 32 /* that are looked at */
struct xfer_rail_view {
    char device[XFER_DEVICE_BYTES];
    int node; /* NUMA; -1: not known */
    uint32_t port, gid_index, pkey, mtu, completion_queue;
    uint64_t registered_bytes, registrations, max_mr_bytes;
    bool memory_windows;  /* of type 2B, bound to a queue pair: pages can be pushed to us */
    bool lost;            /* for good: no path is made over it until the daemon starts again */
    uint64_t bytes_asked; /* of the device so far, whatever became of them */
};

struct xfer_rdma_view {
    bool built, open;
    bool wanted;   /* by the configuration: else the devices are as they were at start */
    char why[320]; /* how the devices were chosen, or why there is none */
    uint32_t nrails, ndevices;
    uint32_t rails_wanted;                      /* for regions; 0: those of rdma_device, or one */
    struct xfer_rail_view rail[XFER_RAILS_MAX]; /* in use */
    struct {
        char name[XFER_DEVICE_BYTES], state[160]; /* in use as which rail, or why not */
        int node, distance;                       /* to the memory's nearest node; -1: not known */
    } found[XFER_DEVICES_MAX];
    uint64_t memory_nodes, cpu_nodes; /* NUMA: of the tenants' memory, and where we may run */
    uint64_t memlock_bytes;           /* RLIMIT_MEMLOCK; UINT64_MAX: none */
    bool memlock_exempt;              /* CAP_IPC_LOCK */
    uint64_t memlock_needed;  /* what registrations lock, on so many devices: all of those */
    uint32_t memlock_devices; /* that are asked for, or one where none is there */
    uint32_t send_queue;
};
void xfer_rdma_view(const struct xfer *xfer, struct xfer_rdma_view *ret);
/* Memory of the host that each tenant on GPUs gets for its ring, and that RDMA locks, at the most,
 * on whichever and however many devices (verbs/device/bounce.c). */
uint64_t xfer_ring_bytes(const struct xfer_rdma_config *config);

/* How a NIC knows a region of a tenant's memory, as X(name, its word), NO for "not at all". */
#define XFER_REGISTERED_TABLE(X)                                                                   \
    X(NO, "no")                                                                                    \
    X(MEMORY, "memory")            /* of the host */                                               \
    X(DMABUF, "dma-buf")           /* a GPU's, exported by its driver */                           \
    X(DMABUF_PCIE, "dma-buf-pcie") /* likewise, through its BAR where there is another way */      \
    X(PEERMEM, "nvidia-peermem")   /* a GPU's, by its address */

enum xfer_registered {
#define X(name, word) XFER_REGISTERED_##name,
    XFER_REGISTERED_TABLE(X)
#undef X
        XFER_REGISTERED_WAYS
};

extern const char *const xfer_registered_word[XFER_REGISTERED_WAYS];

/* What moving known bytes between that memory and the NIC showed at start, as X(name, word). */
#define XFER_SELF_TEST_TABLE(X)                                                                    \
    X(NONE, "none")                                                                                \
    X(PASSED, "passed")                                                                            \
    X(NOT_POSSIBLE, "not possible") /* it is used, and whether that works is not known */          \
    X(PART, "failed in part")       /* it is used, not pushed to: its ring or a window failed */   \
    X(FAILED, "failed")             /* that memory is not used with that NIC */

enum xfer_self_test_result {
#define X(name, word) XFER_SELF_TEST_##name,
    XFER_SELF_TEST_TABLE(X)
#undef X
        XFER_SELF_TEST_RESULTS
};

extern const char *const xfer_self_test_word[XFER_SELF_TEST_RESULTS];

#define XFER_SELF_TEST_SCRATCH 8192u /* of the host's memory, registered meanwhile */
#define XFER_SELF_TEST_TEXT    192
struct xfer_self_test {
    enum xfer_self_test_result result;
    uint64_t at_ns;                /* when, by io_now_ns */
    uint64_t bytes, ns;            /* that were moved and looked at, and how long all of it took */
    char why[XFER_SELF_TEST_TEXT]; /* it did not pass */
};

#define XFER_REGISTRATION_TEXT 256
struct xfer_registration_view {
    uint32_t tenant, region, regions; /* so many from that one on are alike */
    const char *gpu;                  /* its UUID; NULL: memory of the host */
    const char *device;               /* the NIC; NULL: none is in use */
    enum xfer_registered how;
    const char *why; /* it is not known in a better way: what became of those; borrowed */
    /* Of a GPU's: host memory that pushes come through; 0: peers do not push, and why. */
    uint64_t ring_bytes;
    const char *no_ring;
    const struct xfer_self_test *test; /* borrowed; NULL: there is none */
};
/* The i-th pair of a region and a NIC in use, or region, where there is no NIC. False: none. */
bool xfer_registration_view(const struct xfer *xfer, uint32_t i,
                            struct xfer_registration_view *ret);
/* Which device a region's pages go over, where that is ready and they lie in no other region. Texts
 * are static, or valid as long as the xfer. */
struct xfer_region_view {
    const char *gpu, *pci; /* its UUID and its PCI address; NULL: memory of the host */
    const char *device;    /* NULL: any */
    const char *reason;    /* how near it is, or why it is that one, or any */
    uint32_t rail;         /* NONE: it is not in use */
};
/* False: this build has no RDMA. */
bool xfer_region_view(const struct xfer *xfer, const struct xfer_rdma_view *rdma, uint32_t tenant,
                      uint32_t region, struct xfer_region_view *ret);

/* An inbound link gave that token out (not 0): data connections that say it are that link's, until
 * xfer_dismiss, which ends them. Nobody else may ask for a page, nor they for one of a serve of
 * another link's. */
void xfer_admit(struct xfer *xfer, uint32_t link, uint64_t token);
void xfer_dismiss(struct xfer *xfer, uint32_t link);

/* What the pages of a pool of ours are made of, with the hash that the core has of it: once it is
 * open, and again for each pool that opens in that slot. n 0: it does not say. Copied. */
void xfer_pool_layouts(struct xfer *xfer, uint32_t pool, uint64_t hash,
                       const struct reshard_layout *l, uint32_t n);
/* Before that: why no pages of such a pool could be verified after they were resharded, and the
 * group that it is about. NONE: they can. It costs at most PAIR_RUNS_MAX runs (units.h). */
enum reshard_refusal xfer_pool_refusal(struct xfer *xfer, const struct reshard_layout *l,
                                       uint32_t n, char ret_group[RESHARD_NAME_MAX]);
/* Those of a pool of ours that has that hash, to tell a peer; NULL. */
const struct reshard_layout *xfer_layouts_of(const struct xfer *xfer, uint64_t hash,
                                             uint32_t *ret_n);
/* What a peer has told of a pool of its own; each has passed reshard_check_layout. Before the core
 * hears of the message that told it. It makes way for another only while no transfer in the core is
 * between pages of that hash. Returns why it is not kept, which is static; NULL: it is. The peer
 * has told another layout under that hash, and a transfer needs that one, or transfers need all
 * that are known: so one peer has no more pairs than the core has counted. Or the plans that its
 * layouts needed have cost all that they may now. */
const char *xfer_peer_layouts(struct xfer *xfer, uint32_t peer, uint64_t hash,
                              const struct reshard_layout *l, uint32_t n);
/* Why pages of a pool of that peer's layout cannot come into one of ours, and the group that it is
 * about. NONE: they can, one of the two is not known, or it is not to be found out now. */
enum reshard_refusal xfer_layouts_refusal(struct xfer *xfer, uint64_t own_hash, uint64_t other_hash,
                                          char ret_group[RESHARD_NAME_MAX]);

void xfer_pull(struct xfer *xfer, const struct action *act); /* ACT_PULL; copies what it needs */
void xfer_pull_stop(struct xfer *xfer, const struct action *act);   /* ACT_PULL_STOP */
void xfer_serve_start(struct xfer *xfer, const struct action *act); /* ACT_SERVE_START */
void xfer_serve_stop(struct xfer *xfer, const struct action *act);  /* ACT_SERVE_STOP */
/* Before each io_run: true where it should not wait, as reads are in flight that may well be done
 * in a moment. Who never calls this hears of each completion by the ring. */
bool xfer_poll(struct xfer *xfer);
void xfer_tick(struct xfer *xfer, uint64_t now_ns); /* enforces idle_ns; call about every 100 ms */

struct xfer_stats {
    uint64_t payload_bytes_in, payload_bytes_out; /* page bytes */
    uint64_t socket_bytes_in, socket_bytes_out;   /* all on data connections, heads included */
    uint64_t pages_in, pages_out, corrupt_detected, corrupt_injected, gone_answers, conns;
    uint64_t refused; /* data connections with no token of a link that is up, or another's serve */
    uint64_t over_share;    /* of a link that had its share of them */
    uint64_t conns_retired; /* of those to peers: how often one failed */
    uint64_t pages_again;   /* asked for once more, as their connection had failed */
    uint32_t inbound, inbound_max, inbound_common, inbound_common_max, inbound_min;
    struct door_stats door;
    struct io_threads_stats threads;
    /* Of those, by RDMA; what the queue pairs did. */
    uint64_t verbs_pages_in, verbs_bytes_in, verbs_pages_out;
    uint64_t read_errors; /* of work requests of either end, under the name that it always had */
    uint64_t stale_completions, cq_high_water;
    uint64_t stale_answers; /* of paths: to an offer that is none any more */
    uint64_t cq_events;     /* how often a completion queue had to wake us */
    uint64_t paths_up, paths_made, paths_failed;
    /* Writes: posted by us; of grants that their pull's end took back from a peer that was slow;
     * and what it wrote, or tried to, for a pull that had ended. */
    uint64_t writes_posted, grants_revoked, late_writes;
    uint64_t ring_bytes_in; /* of those that came, through rings to memory of GPUs */
    uint64_t windows_open;  /* memory windows that are bound, or may be: what peers have keys to */
    uint64_t pieces_again;  /* asked for once more, over another path than the one that was lost */
    uint64_t batches_moved; /* asked for anew by another transport, as no path was left */
};
void xfer_stats(const struct xfer *xfer, struct xfer_stats *ret);

/* What operators see of one transfer. In: pages that came, right or not. Out: pages that left. */
struct xfer_flow_view {
    uint64_t pages, bytes;
    struct rate rate; /* of the bytes */
};
/* False: nothing of it was asked for or served. */
bool xfer_pull_view(const struct xfer *xfer, struct pull_id pull, struct xfer_flow_view *ret);
bool xfer_serve_view(const struct xfer *xfer, struct serve_id serve, struct xfer_flow_view *ret);

#endif
