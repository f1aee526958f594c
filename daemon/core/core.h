/* The core implements every rule of Tern as a function over one arena. It makes no system call,
 * reads no clock, takes no lock and allocates nothing: an event carries all input, an action
 * requests all work. The shell, the simulator and the benchmarks drive the core through this header
 * alone. */
#ifndef CORE_CORE_H
#define CORE_CORE_H

#include <stddef.h>

#include "base/keyed_hash.h"
#include "core/disk.h"
#include "core/request.h"

struct core; /* the arena: without pointers, so a snapshot is a memcpy; the state hash covers the
                bytes that no secret decides */

/* Messages between daemons. A link is one connection: links [0, peers) lead to the configured peers
 * (this daemon pulls over them), links [peers, links) come from peers (they pull over them). */
enum peer_msg_kind {
    PEER_PULL_OPEN = 1, /* puller -> source: match these tokens and pin what is resident */
    PEER_PULL_OFFER,    /* source -> puller: depth and pages, or err */
    PEER_PULL_DONE,     /* puller -> source: finished or cancelled; unpin */
    PEER_PULL_ABORT,    /* source -> puller: this transfer is over, with err */
    PEER_RESET,         /* puller -> source: a namespace was reset: reset it, and tell your peers */
    PEER_RESET_DONE,    /* source -> puller: done; err if some of the source's peers were not
                           told */
    PEER_PULL_MORE,     /* source -> puller: tokens up to `at` match; send what follows */
    PEER_PULL_TOKENS,   /* puller -> source: the tokens that MORE asked for */
    PEER_PULL_NEXT,     /* puller -> source: name the pages from `at` on */
    PEER_PULL_EARLY,    /* source -> puller: sent by older versions, which offered units of pages
                           before their commit. No puller requests them; message 11 answered it */
    PEER_MSG_COUNT
};

#define LAYOUT_NONE UINT64_MAX

struct peer_msg {
    enum peer_msg_kind kind;
    struct pull_id pull;   /* the puller's id of the transfer */
    struct serve_id serve; /* the source's id; {0,0} in PULL_OPEN and in a failed offer */
    uint64_t trace_id;
    uint64_t reset;          /* RESET, RESET_DONE: the reset's id, equal on all its ways */
    uint64_t origin, number; /* RESET: incarnation of the daemon where the reset began, and the
                                reset's number there; origin 0: not stated */
    uint32_t hops;           /* RESET: hops from that daemon to the sender; 0: it is the sender */
    enum tern_err err;       /* OFFER, ABORT, RESET_DONE */
    uint32_t retry_ms;       /* OFFER with BUSY: delay until the next attempt; 0: do not retry */
    uint32_t tenant; /* OPEN, RESET: local slot, which the shell resolves from the name; NONE: not
                        allowed */
    struct namespace_id ns; /* OPEN, RESET */
    uint64_t layout_hash;   /* OPEN: layout of the destination's pool. OFFER: layout of the source's
                               pool where pages are resharded or cannot be; else 0. LAYOUT_NONE: the
                               data path has no room for this layout; the error is BUSY */
    uint64_t fields_hash;   /* OPEN: hash of what the fields of its pages hold; 0: not stated */
    /* OPEN, OFFER: of the sender's groups; 0: a recurrent state, or equal to the receiver's. */
    uint32_t page_tokens[GROUPS_MAX];
    uint32_t at_least;    /* OPEN: offer nothing until this many tokens are published */
    bool prefetch;        /* OPEN: no decode waits for it */
    struct ticket ticket; /* OPEN: ticket of the wanted session; id.gen 0: none. DONE: the ticket
                             that was used up */
    uint32_t blob_bytes;  /* OFFER, the first for a ticket: bytes of the ticket's blob in `tokens`;
                             zeros fill the last word. Answer with `each`: likewise */
    bool follow;        /* OPEN, with a ticket: offer chunk by chunk while its session still runs */
    uint32_t handed;    /* OFFER, ABORT with INVALID: the length handed over, where it differs from
                           `to` of the OPEN; else 0 */
    uint32_t busy;      /* OFFER with BUSY: why (TICKET_BUSY_TABLE), for a ticket; 0: not stated */
    uint32_t differs;   /* OFFER with INVALID: first token that differs, plus 1; else 0 */
    uint32_t each;      /* OPEN: only a question: how much is resident of each prefix of this many
                           tokens? OFFER: the answer; `tokens` has these lengths; 0: none */
    uint32_t history;   /* OPEN: the puller has HISTORY pages below this depth. OFFER: repeated */
    uint32_t from, to;  /* OPEN: the wanted tokens, [from, to). OFFER: the offered tokens */
    uint32_t at, until; /* OPEN, TOKENS, OFFER: carries the tokens, or names the pages, of [at,
                           until) only; until 0: up to `to`. MORE, NEXT: asks for what follows
                           `at` */
    const uint32_t *tokens; /* OPEN, TOKENS; OFFER: the blob */
    const struct extra_key *keys;
    uint32_t nkeys;
    const struct table_run *runs; /* OFFER: one run a group; `first` counts the source's pages, and
                                     refs name the first of each span (transfer/spans.h) */
    uint32_t nruns;
};

static inline uint32_t peer_msg_until(const struct peer_msg *m)
{
    return m->until ? m->until : m->to;
}

/* Tokens, or words of a blob, that the message carries. */
static inline uint32_t peer_msg_tokens(const struct peer_msg *m)
{
    bool carries = m->kind == PEER_PULL_OPEN || m->kind == PEER_PULL_TOKENS;

    if (m->kind == PEER_PULL_OFFER)
        return (m->blob_bytes + 3) / 4;
    return carries && peer_msg_until(m) > m->at ? peer_msg_until(m) - m->at : 0;
}

/* Hash of the first n token ids of a list. */
struct list_hash {
    uint64_t hi, lo;
};

/* The checks of a written turn record (M10). at: lengths whose hash is wanted, ascending, none
 * above the length of the list; the last one is that of the whole list. */
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
    uint32_t part, index; /* if MALFORMED */
    uint32_t nhashes;
    struct list_hash hash[BLOBS_KEPT_MAX + 1]; /* the hashes that the job wants, in its order */
};

/* X(NAME, word in tapes and logs). DISK_FOUND precedes all others, in ascending order of files, and
 * of offsets in a file. Before the first PEER_LEFT every slot has a peer. */
#define EVENT_TABLE(X)                                                                             \
    X(TIMER, timer)                                                                                \
    X(CONN_OPENED, conn_opened) /* conn, tenant, proc, admin */                                    \
    X(CONN_CLOSED, conn_closed) /* conn */                                                         \
    X(PROC_GONE, proc_gone)     /* proc: pidfd proves its exit, on a device with its context */    \
    X(STEP_DONE, step_done)     /* engine, rank, step */                                           \
    X(REQUEST, request)                                                                            \
    X(SEALED, sealed)       /* jobs: the checksums of their pages are known */                     \
    X(ZEROED, zeroed)       /* pool */                                                             \
    X(COPIED, copied)       /* job, err: CORRUPT if the bytes do not match their checksums */      \
    X(LINK_UP, link_up)     /* link, incarnation of the peer */                                    \
    X(LINK_DOWN, link_down) /* link */                                                             \
    X(PEER_MSG, peer_msg)   /* link, msg */                                                        \
    X(PULLED, pulled)       /* pull, batch: the pages that arrived and match their checksums */    \
    X(PULL_BROKEN, pull_broken)       /* pull, err: its data path failed; no PULLED follows */     \
    X(PULL_QUIET, pull_quiet)         /* pull: proof that nothing can write its pages any more */  \
    X(SERVE_QUIET, serve_quiet)       /* serve: proof that nothing reads its pages any more */     \
    X(RECORD_CHECKED, record_checked) /* job: result of checking a turn record */                  \
    X(DISK_FOUND, disk_found)         /* found: an extent from an earlier run */                   \
    X(DISK_READY, disk_ready)         /* ready: no further extent follows */                       \
    X(DISK_WRITTEN, disk_written) /* written: a file is durable; or err, and it does not exist */  \
    X(DISK_DROPPED, disk_dropped) /* dropped: a whole file is deleted */                           \
    X(SHUTDOWN, shutdown)         /* the daemon ends soon; the core first stores what is cached */ \
    X(PEER_LEFT, peer_left)       /* member: the slot has no peer any more; its link is down */    \
    X(PEER_JOINED, peer_joined)   /* member: a free slot has a new peer */                         \
    X(LOOK, look) /* an operator is about to query (query.h): do the deferred counting */

enum event_kind {
    EV_NONE,
#define X(NAME, word) EV_##NAME,
    EVENT_TABLE(X)
#undef X
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
            uint32_t link, peer; /* peer: the one that the link leads to, or comes from */
            uint64_t incarnation;
            uint64_t tenants; /* bit mask of the tenants that may be shared with that peer */
        } link;
        struct {
            uint32_t link;
            struct peer_msg msg;
        } peer;
        struct {
            struct pull_id pull;
            uint32_t batch;
            uint64_t ok[PULL_BATCH_PAGES / 64];
        } pulled; /* bit i: page or span i is correct */
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
            const uint32_t *tokens; /* extent.tokens token ids, extent.nkeys keys */
            const struct extra_key *keys;
        } found;
        struct {
            uint64_t next_file; /* every file of an earlier run has a lower number */
            uint64_t served_ns; /* the highest serving time found */
        } ready;
        struct {
            struct store_id store;
            enum tern_err err; /* POOL_EXHAUSTED: the disk is full; DISK: the disk failed; CORRUPT:
                                  a page in memory does not match its checksums */
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

/* A page that a seam works on. Its address: region base + pool offset + index * page bytes. */
struct page_at {
    uint32_t group, index, gen;
    uint32_t record; /* dense number over all pools; indexes the seam's per-page arrays */
    union {
        uint64_t step; /* SEAL: the step that the page's commit named: its engine may have supplied
                          checksums for that step (base/brought.h). 0: none can exist */
        uint32_t pool; /* DISK_WRITE: the page's pool, of the device tier or of the host tier */
    };
};

/* A span (transfer/spans.h) in a batch between pools of different page_tokens. The source has n
 * pages of the span, starting with page `first`. */
struct pull_span {
    uint8_t pages; /* local pages */
    uint8_t first, n;
};

enum action_kind {
    ACT_REPLY = 1,   /* reply */
    ACT_CLOSE_CONN,  /* conn: the connection broke the protocol */
    ACT_SEAL,        /* job, pool, pages (may be none): compute the checksums, then EV_SEALED */
    ACT_ZERO,        /* pool: zero its whole range in every region, then EV_ZEROED */
    ACT_COPY,        /* job, pools, pages: copy bytes and checksums from one tier to the other, hash
                        what was written, then EV_COPIED. Never cancelled */
    ACT_PEER_SEND,   /* link, msg */
    ACT_LINK_CLOSE,  /* link: the peer broke the protocol */
    ACT_PULL,        /* pull, batch, pages, refs: read them, verify, then EV_PULLED */
    ACT_PULL_STOP,   /* pull: stop, then EV_PULL_QUIET */
    ACT_SERVE_START, /* serve, pool: answer data requests for this id; core_serve_page decides about
                        each page */
    ACT_SERVE_STOP,  /* serve: stop answering, then EV_SERVE_QUIET when nothing is in flight */
    ACT_ENGINE_GONE, /* engine: zero its control page; its tenant may then reuse the page */
    ACT_ENGINE_STUCK, /* engine: a process of it died, others live on: only raise an alarm */
    ACT_RECORD_CHECK, /* record: check it, then EV_RECORD_CHECKED */
    ACT_DISK_WRITE,   /* disk_write: write the file, sync, name it, sync, then EV_DISK_WRITTEN */
    ACT_DISK_DROP,    /* disk_drop: free the bytes; for a whole file, then EV_DISK_DROPPED. Reads of
                         it were requested before, and may be reported as broken */
    ACT_STEP_WANTED,  /* engine, step: a caller waits for it: have the engine's ranks ring when they
                         reach it, and check at once whether they have. 0: no caller waits any
                         more */
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
            uint32_t from_pool, to_pool;     /* one of the two is of TIER_HOST */
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
            bool prefetch; /* others of its tenant precede it */
            struct pull_id pull;
            struct serve_id serve;         /* the source's */
            uint32_t link, pool, batch, n; /* n: pages, or spans */
            uint64_t layout_hash; /* layout of the source's pool if pages are resharded; else 0 */
            const struct page_at *pages; /* local pages, which the receive writes */
            const struct page_ref *refs; /* the source's, same order and groups; of a span the first
                                            page that exists */
            const struct pull_span *spans; /* NULL: each local page is one page of the source */
            const struct disk_page *from;  /* LINK_DISK: location of the pages, in place of refs */
        } pull;
        struct {
            struct pull_id pull;
            uint32_t link;
        } pull_stop;
        struct disk_write disk_write;
        struct disk_drop disk_drop;
        struct {
            struct serve_id serve;
            uint32_t pool, peer;  /* SERVE_START only */
            uint64_t layout_hash; /* SERVE_START: the destination's layout, as in `pull` */
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

/* The actions of one step. Owned by the caller and reused; some MiB (actions_bytes). */
struct actions {
    uint32_t n, nruns, nrefs, npages;
    uint32_t refs_max; /* of `refs`: see actions_init */
    bool opens;        /* one of the messages uses the arrays tokens and keys */
    struct action v[ACTIONS_MAX];
    struct table_run runs[REPLY_RUNS_MAX];
    struct page_at pages[(PULL_BATCHES_MAX + 4) * PULL_BATCH_PAGES + SEAL_PAGES_MAX];
    uint32_t nspans;
    struct pull_span spans[PULL_BATCHES_MAX * PULL_BATCH_PAGES];
    struct op_result results[STEP_OPS_MAX];
    struct record_body records[RECORDS_TOLD_MAX];
    uint32_t nhosts, hosts[HOSTS_TOLD_MAX]; /* slots of the peers that answers name */
    struct record_job checks[1];            /* from a request that puts a record */
    uint32_t nreads;
    struct disk_page reads[PULL_BATCHES_MAX * PULL_BATCH_PAGES];
    struct disk_extent extents[DISK_WRITE_EXTENTS]; /* of the single file that a step may write */
    uint32_t tokens[OPEN_TOKENS_MAX]; /* of the session's list, for a PULL_OPEN or PULL_TOKENS */
    struct extra_key keys[EXTRA_KEYS_MAX];
    struct page_ref refs[];
};

/* Size of a core's actions for these limits. The memory may have any content: see actions_init. */
size_t actions_bytes(const struct core_limits *limits);
void actions_init(struct actions *out, const struct core_limits *limits);

/* When a committed prefix is copied to the host tier: at once, or only when its device pages are
 * among the next to be evicted. */
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

/* Returns the size that core_init needs. Fails with INVALID if a limit is 0 or absurd. */
enum tern_err core_size(const struct core_limits *limits, size_t *ret_bytes);

/* `mem` is zeroed, 64-byte aligned, and core_size bytes long; it contains the core for the core's
 * whole life. The secret decides only in which bucket of its tables a record lies: equal events
 * produce equal actions under any secret. */
struct core *core_init(void *mem, const struct core_limits *limits,
                       const struct tenant_config *tenants, uint64_t incarnation,
                       const struct hash_secret *secret);

/* Clears `out`, applies the event and fills `out`. Never fails: a reply reports bad input. */
void core_step(struct core *core, const struct event *event, struct actions *out);

/* Latest time of the next EV_TIMER. UINT64_MAX: never; 0: now, because work is left over. */
uint64_t core_deadline(const struct core *core);

/* Returns true while something waits for an engine's step: the caller then polls done_step. */
bool core_waits_for_steps(const struct core *core);

/* Counts the events that changed anything but the clock. */
uint64_t core_changes(const struct core *core);

/* Hash of the arena's used bytes, without those that depend on the secret. */
uint64_t core_hash(const struct core *core);

/* Checks whether the session's turn and its end allow ret->conn to request ret->op. On BUSY or
 * GONE, *ret has the rest of the answer that core_step would give, so the request need not be
 * decoded. *ret is zero except for these two fields. */
enum tern_err core_gate(const struct core *core, struct session_id session, struct reply *ret);

/* For the source: may this page be sent now? GONE: the serve ended or the generation passed. */
enum tern_err core_serve_page(const struct core *core, struct serve_id serve, uint32_t group,
                              struct page_ref ref, uint32_t *ret_record);
/* Returns the page that follows a sendable page in the same chunk. GONE: none follows. */
enum tern_err core_serve_next(const struct core *core, struct serve_id serve, uint32_t group,
                              struct page_ref ref, struct page_ref *ret);

/* For the data path's table of layouts. Returns true if a transfer, in or out, is resharded between
 * a local layout and a peer's layout of that hash. */
bool core_layout_used(const struct core *core, uint64_t hash);

#endif
