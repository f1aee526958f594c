/* The core: every rule of Tern as a function over one arena. It makes no system call, reads no
 * clock, takes no lock and allocates nothing; whatever it needs comes in an event, whatever it
 * wants done goes out as an action. The shell, the simulator and the benchmarks drive it through
 * this header alone. */
#ifndef CORE_CORE_H
#define CORE_CORE_H

#include <stddef.h>

#include "base/keyed_hash.h"
#include "core/disk.h"
#include "core/request.h"

struct core; /* the arena: pointer-free, so a snapshot is a memcpy and the state hash a hash of the
                bytes that no secret decides */

/* Between daemons. A link is one connection: links [0, peers) are ours to the configured peers (we
 * pull over them), links [peers, links) are theirs to us (they pull from us). */
enum peer_msg_kind {
    PEER_PULL_OPEN = 1, /* puller -> source: match these tokens and pin what is there */
    PEER_PULL_OFFER,    /* source -> puller: depth and pages, or err */
    PEER_PULL_DONE,     /* puller -> source: finished or cancelled; unpin */
    PEER_PULL_ABORT,    /* source -> puller: this transfer is over, with err */
    PEER_RESET,         /* puller -> source: a namespace was reset: reset it, and tell your peers */
    PEER_RESET_DONE,    /* source -> puller: it is; err if not all of those could be told */
    PEER_PULL_MORE,     /* source -> puller: all tokens up to `at` are here: which follow? */
    PEER_PULL_TOKENS,   /* puller -> source: these */
    PEER_PULL_NEXT,     /* puller -> source: which are the pages from `at` on? */
    PEER_PULL_EARLY,    /* source -> puller: of daemons of older versions, which offered units of
                           pages ahead of their commit. Nobody asks for them; 11 answered it */
    PEER_MSG_COUNT
};

#define LAYOUT_NONE UINT64_MAX

struct peer_msg {
    enum peer_msg_kind kind;
    struct pull_id pull;   /* the puller's id of the transfer */
    struct serve_id serve; /* the source's; {0,0} in PULL_OPEN and in an offer that failed */
    uint64_t trace_id;
    uint64_t reset;          /* RESET, RESET_DONE: the same on all its ways */
    uint64_t origin, number; /* RESET: the incarnation of the daemon where it began, and the how
                                manieth of that one it is; origin 0: the peer does not say */
    uint32_t hops;           /* RESET: how far the sender is from that daemon; 0: it is that one */
    enum tern_err err;       /* OFFER, ABORT, RESET_DONE */
    uint32_t retry_ms;       /* OFFER with BUSY: when to come back; 0: not to */
    uint32_t tenant; /* OPEN, RESET: local slot, resolved by the shell from the name; NONE: not
                        allowed */
    struct namespace_id ns; /* OPEN, RESET */
    uint64_t layout_hash;   /* OPEN: geometry of the destination's pool. OFFER: of the source's,
                               where pages are resharded, or cannot be; else 0. LAYOUT_NONE: the
                               data path has no room for it, which is BUSY */
    uint64_t fields_hash;   /* OPEN: what the fields of its pages hold; 0: it does not say */
    /* OPEN, OFFER: of the groups of the sender's pool; 0: a state, or as many as the receiver's. */
    uint32_t page_tokens[GROUPS_MAX];
    uint32_t at_least;    /* OPEN: offer nothing until so many tokens are published */
    bool prefetch;        /* OPEN: no decode waits for it */
    struct ticket ticket; /* OPEN: of the session that is wanted; id.gen 0: none. DONE: that was
                             used up */
    uint32_t blob_bytes;  /* OFFER, the first of a ticket: `tokens` has so many bytes of its blob,
                             and the last word is filled up with zeros. Of an answer with `each`,
                             likewise */
    bool follow;     /* OPEN, with a ticket: offer chunk by chunk while its session still runs */
    uint32_t handed; /* OFFER, ABORT with INVALID: the length that was handed over, where that is
                        another one than `to` of the OPEN; or 0 */
    uint32_t busy; /* OFFER with BUSY: why a ticket is not served (TICKET_BUSY_TABLE); 0: unsaid */
    uint32_t differs; /* OFFER with INVALID: the first token that differs, and 1; or 0 */
    uint32_t each;    /* OPEN: a question alone: how much of each prefix of so many of its tokens is
                         there? OFFER: the answer to one: `tokens` are these lengths; 0: none */
    uint32_t history; /* OPEN: HISTORY pages below this depth are there already. OFFER: repeated */
    uint32_t from, to; /* OPEN: the tokens wanted, [from, to). OFFER: [from, to) that is offered */
    uint32_t at,
        until; /* OPEN, TOKENS, OFFER: it has the tokens, or names the pages, of [at, until)
                  alone; until 0: up to `to`. MORE, NEXT: what follows `at` is wanted */
    const uint32_t *tokens; /* OPEN, TOKENS; OFFER: the blob */
    const struct extra_key *keys;
    uint32_t nkeys;
    const struct table_run *runs; /* OFFER: one run a group; `first` counts the source's pages, and
                                     refs are the first of each span (transfer/spans.h) */
    uint32_t nruns;
};

static inline uint32_t peer_msg_until(const struct peer_msg *m)
{
    return m->until ? m->until : m->to;
}

/* How many tokens it carries, or words of a blob. */
static inline uint32_t peer_msg_tokens(const struct peer_msg *m)
{
    bool carries = m->kind == PEER_PULL_OPEN || m->kind == PEER_PULL_TOKENS;

    if (m->kind == PEER_PULL_OFFER)
        return (m->blob_bytes + 3) / 4;
    return carries && peer_msg_until(m) > m->at ? peer_msg_until(m) - m->at : 0;
}

/* A hash of the first so many token ids of a list. */
struct list_hash {
    uint64_t hi, lo;
};

/* What is to be looked at in a turn record that was written (M10). at: lengths whose hash is
 * wanted, ascending, none above the length of the list; the whole list's comes last. */
struct record_job {
    struct record_id id;
    uint32_t tenant, kind; /* enum record_kind */
    uint32_t from, length, logprobs, nat;
    uint32_t at[BLOBS_KEPT_MAX + 1];
    struct record_section before, own;
};

struct record_checked {
    struct record_id id;
    enum tern_err err;    /* OK, or MALFORMED */
    uint32_t part, index; /* of MALFORMED */
    uint32_t nhashes;
    struct list_hash hash[BLOBS_KEPT_MAX + 1]; /* those that the job wants, in that order */
};

enum event_kind {
    EV_TIMER = 1,
    EV_CONN_OPENED, /* conn, tenant, proc, admin */
    EV_CONN_CLOSED, /* conn */
    EV_PROC_GONE,   /* proc: exit proven by pidfd (and, on a device, its context torn down) */
    EV_STEP_DONE,   /* engine, rank, step */
    EV_REQUEST,
    EV_SEALED,         /* jobs: the checksums of their pages are known */
    EV_ZEROED,         /* pool */
    EV_COPIED,         /* job, err: CORRUPT where the bytes do not agree with their checksums */
    EV_LINK_UP,        /* link, incarnation of the peer */
    EV_LINK_DOWN,      /* link */
    EV_PEER_MSG,       /* link, msg */
    EV_PULLED,         /* pull, batch: what arrived and agreed with its checksum */
    EV_PULL_BROKEN,    /* pull, err: the data path of this pull failed; no EV_PULLED follows */
    EV_PULL_QUIET,     /* pull: proof that nothing can write its pages any more */
    EV_SERVE_QUIET,    /* serve: proof that nothing reads its pages any more */
    EV_RECORD_CHECKED, /* job: what was found in a turn record */
    EV_DISK_FOUND,     /* found: an extent that an earlier run has left. Before anything else, in
                          ascending order of files, and of offsets in one */
    EV_DISK_READY,     /* ready: that was all */
    EV_DISK_WRITTEN, /* written: a file is durable, under its name; or err, and nothing is there */
    EV_DISK_DROPPED, /* dropped: a whole file is gone for good */
    EV_SHUTDOWN,     /* shutdown: the daemon is about to end; what is cached is stored first */
    EV_PEER_LEFT,    /* member: nobody has that slot of peers any more. Its link is down. Before
                        the first one every slot has a peer */
    EV_PEER_JOINED,  /* member: the slot, which was free, has another peer */
    EV_LOOK,         /* an operator is about to look (query.h): what is counted late is counted */
    EV_COUNT
};

struct event {
    enum event_kind kind;
    uint64_t now_ns; /* monotonic, never decreasing */
    union {
        struct {
            uint32_t conn, tenant, proc;
            bool admin;
        } conn;
        struct {
            uint32_t proc;
        } proc;
        struct {
            struct engine_id engine;
            uint32_t rank;
            uint64_t step;
        } step_done;
        struct request request;
        struct {
            struct seal_id job[SEALED_JOBS_MAX]; /* in the order in which they ended */
            uint32_t n;                          /* at least one */
        } sealed;
        struct {
            struct pool_id pool;
        } zeroed;
        struct {
            struct copy_id job;
            enum tern_err err;
        } copied;
        struct {
            uint32_t link, peer; /* peer: that it leads to, or comes from */
            uint64_t incarnation;
            uint64_t tenants; /* that may be shared with that peer, a bit each */
        } link;
        struct {
            uint32_t link;
            struct peer_msg msg;
        } peer;
        struct {
            struct pull_id pull;
            uint32_t batch;
            uint64_t ok[PULL_BATCH_PAGES / 64];
        } pulled; /* bit i: page, or span, i is right */
        struct {
            struct pull_id pull;
            enum tern_err err;
        } broken;
        struct {
            struct pull_id pull;
        } pull_quiet;
        struct {
            struct serve_id serve;
        } serve_quiet;
        struct record_checked checked;
        struct {
            struct disk_extent extent;
            const uint32_t *tokens; /* extent.tokens of them, and extent.nkeys */
            const struct extra_key *keys;
        } found;
        struct {
            uint64_t next_file; /* no file of an earlier run has this number or a higher one */
            uint64_t served_ns; /* the highest that was found */
        } ready;
        struct {
            struct store_id store;
            enum tern_err err; /* POOL_EXHAUSTED: the disk is full; DISK: it failed; CORRUPT: a page
                                  in memory does not agree with its checksums */
        } written;
        struct {
            uint64_t file;
        } dropped;
        struct {
            uint64_t deadline_ns;
        } shutdown;
        struct {
            uint32_t peer;
        } member;
    };
};

/* A page that a seam works on. It lies at region base + pool offset + index * page bytes. */
struct page_at {
    uint32_t group, index, gen;
    uint32_t record; /* dense number over all pools: the seam's own per-page arrays use it */
    union {
        uint64_t step; /* SEAL: what the commit of the page named: its engine may have brought the
                          checksums for that step (base/brought.h). 0: none may be there */
        uint32_t pool; /* DISK_WRITE: that it lies in, of the device tier or of the host tier */
    };
};

/* Of a batch between pools of other page_tokens: a span, as transfer/spans.h has it. Of the
 * source's pages of it those from `first` on are there, n of them. */
struct pull_span {
    uint8_t pages; /* of ours */
    uint8_t first, n;
};

enum action_kind {
    ACT_REPLY = 1,   /* reply */
    ACT_CLOSE_CONN,  /* conn: the connection broke the protocol */
    ACT_SEAL,        /* job, pool, pages, if any: compute the checksums, then EV_SEALED */
    ACT_ZERO,        /* pool: zero its whole range in every region, then EV_ZEROED */
    ACT_COPY,        /* job, pools, pages: copy bytes and checksums from one tier to the other, hash
                        what was written, then EV_COPIED. Never cancelled */
    ACT_PEER_SEND,   /* link, msg */
    ACT_LINK_CLOSE,  /* link: the peer broke the protocol */
    ACT_PULL,        /* pull, batch, pages, refs: read them, verify, then EV_PULLED */
    ACT_PULL_STOP,   /* pull: stop, then EV_PULL_QUIET */
    ACT_SERVE_START, /* serve, pool: data requests for this id may be answered (core_serve_page says
                        which) */
    ACT_SERVE_STOP,  /* serve: answer no more, then EV_SERVE_QUIET once nothing is in flight */
    ACT_ENGINE_GONE, /* engine: its control page may be zeroed, and used again by its tenant */
    ACT_ENGINE_STUCK, /* engine: a process of it died, others live on: an alarm, nothing to do */
    ACT_RECORD_CHECK, /* record: look at it, then EV_RECORD_CHECKED */
    ACT_DISK_WRITE,   /* disk_write: write the file, sync, name it, sync, then EV_DISK_WRITTEN */
    ACT_DISK_DROP,    /* disk_drop: give the bytes back; of a whole file then EV_DISK_DROPPED. What
                         is read of it was asked for before, and may come as broken */
    ACT_STEP_WANTED, /* engine, step: somebody waits for it: have its ranks ring when they reach it,
                        and look at once whether they have. 0: nobody waits any more */
};

struct action {
    enum action_kind kind;
    union {
        struct reply reply;
        struct {
            uint32_t conn;
        } conn;
        struct {
            struct seal_id job;
            uint32_t pool;
            const struct page_at *pages;
            uint32_t n;
        } seal;
        struct {
            struct pool_id pool;
        } zero;
        struct {
            struct copy_id job;
            uint32_t from_pool, to_pool;     /* one of them of TIER_HOST */
            const struct page_at *from, *to; /* same order and groups */
            uint32_t n;
        } copy;
        struct {
            uint32_t link;
            struct peer_msg msg;
        } peer;
        struct {
            uint32_t link;
        } link;
        struct {
            bool prefetch; /* others of its tenant go first */
            struct pull_id pull;
            struct serve_id serve;         /* the source's */
            uint32_t link, pool, batch, n; /* n: pages, or spans */
            uint64_t layout_hash; /* of the source's pool, where pages are resharded; else 0 */
            const struct page_at *pages; /* ours, written by the receive */
            const struct page_ref *refs; /* the source's, same order and group; of a span the first
                                            that is there */
            const struct pull_span *spans; /* NULL: each is one page of ours, from one of theirs */
            const struct disk_page *from;  /* of LINK_DISK: where they lie, in place of refs */
        } pull;
        struct {
            struct pull_id pull;
            uint32_t link;
        } pull_stop;
        struct disk_write disk_write;
        struct disk_drop disk_drop;
        struct {
            struct serve_id serve;
            uint32_t pool, peer;  /* of a SERVE_START */
            uint64_t layout_hash; /* of a SERVE_START: the destination's, as in `pull` */
        } serve;
        struct {
            struct engine_id engine;
        } engine;
        struct {
            struct engine_id engine;
            uint64_t step;
        } wanted;
        const struct record_job *record; /* in these actions */
    };
};

/* Where one step puts what it wants done. Owned by the caller, some MiB (actions_bytes), reused. */
struct actions {
    uint32_t n, nruns, nrefs, npages;
    uint32_t refs_max; /* of `refs`: see actions_init */
    bool opens;        /* a message among them has the arrays tokens and keys */
    struct action v[ACTIONS_MAX];
    struct table_run runs[REPLY_RUNS_MAX];
    struct page_at pages[(PULL_BATCHES_MAX + 4) * PULL_BATCH_PAGES + SEAL_PAGES_MAX];
    uint32_t nspans;
    struct pull_span spans[PULL_BATCHES_MAX * PULL_BATCH_PAGES];
    struct op_result results[STEP_OPS_MAX];
    struct record_body records[RECORDS_TOLD_MAX];
    uint32_t nhosts, hosts[HOSTS_TOLD_MAX]; /* slots of peers that answers name */
    struct record_job checks[1];            /* of a request that puts one */
    uint32_t nreads;
    struct disk_page reads[PULL_BATCHES_MAX * PULL_BATCH_PAGES];
    struct disk_extent extents[DISK_WRITE_EXTENTS]; /* of the one file that a step may write */
    uint32_t tokens[OPEN_TOKENS_MAX]; /* of the session's list, for a PULL_OPEN or PULL_TOKENS */
    struct extra_key keys[EXTRA_KEYS_MAX];
    struct page_ref refs[];
};

/* Bytes of a core's actions with these limits. The memory may hold anything: see actions_init. */
size_t actions_bytes(const struct core_limits *limits);
void actions_init(struct actions *out, const struct core_limits *limits);

/* When a committed prefix is copied to the host tier: at once, or behind the device, when it is
 * among those that would be evicted next. */
enum host_write { HOST_WRITE_THROUGH, HOST_WRITE_BEHIND };

/* The link of a transfer whose source is this daemon's own disk. */
static inline uint32_t link_disk(const struct core_limits *limits)
{
    return limits->links;
}

struct tenant_config {
    uint64_t memory_bytes; /* of one region */
    uint64_t disk_bytes;   /* its share of the disk tier; 0: none */
    uint64_t host_bytes;   /* of one region's host tier; 0: none */
    uint64_t record_bytes; /* record memory, one region for the whole tenant; 0: none */
    uint32_t regions;
    uint32_t sessions_max; /* QUOTA above it */
    uint32_t host_write;   /* enum host_write */
    uint32_t zero;
};

/* Bytes that core_init needs for these limits. Fails with INVALID where a limit is 0 or absurd. */
enum tern_err core_size(const struct core_limits *limits, size_t *ret_bytes);

/* `mem` is zeroed, 64-byte aligned, of core_size bytes; the core lives in it until it is thrown
 * away. The secret decides in which bucket of its tables a record lies and nothing else: equal
 * events give equal actions under any secret. */
struct core *core_init(void *mem, const struct core_limits *limits,
                       const struct tenant_config *tenants, uint64_t incarnation,
                       const struct hash_secret *secret);

/* Empties `out`, applies the event, fills `out`. Never fails: bad input is answered by a reply. */
void core_step(struct core *core, const struct event *event, struct actions *out);

/* When the core needs an EV_TIMER at the latest. UINT64_MAX: never; 0: now, work is left over. */
uint64_t core_deadline(const struct core *core);

/* True while something waits for an engine's step: the caller then looks at done_step often. */
bool core_waits_for_steps(const struct core *core);

/* Counts the events that changed anything but the clock. */
uint64_t core_changes(const struct core *core);

/* Of the arena's used bytes, without what depends on the secret. */
uint64_t core_hash(const struct core *core);

/* May ret->conn ask for ret->op about the session, as far as the session's turn and its end allow?
 * BUSY or GONE, with the rest of the answer: the request needs not be decoded; core_step would
 * answer the same. *ret is zeroed but for these two. */
enum tern_err core_gate(const struct core *core, struct session_id session, struct reply *ret);

/* For the source: may this page leave now? GONE: the serve ended or the generation passed. */
enum tern_err core_serve_page(const struct core *core, struct serve_id serve, uint32_t group,
                              struct page_ref ref, uint32_t *ret_record);
/* The page that comes behind one that may leave, in the same chunk. GONE: there is none. */
enum tern_err core_serve_next(const struct core *core, struct serve_id serve, uint32_t group,
                              struct page_ref ref, struct page_ref *ret);

/* For what the data path knows of layouts: is a transfer, in or out, resharded between one of ours
 * and a peer's layout of that hash? */
bool core_layout_used(const struct core *core, uint64_t hash);

#endif
