/* Read-only views of the core for `ternctl`, metrics and tests. Each fills one struct for one slot
 * and returns false if that slot is empty; the caller iterates over the slots. */
#ifndef CORE_QUERY_H
#define CORE_QUERY_H

#include "base/rate.h"
#include "core/core.h"
#include "core/figures.h"

/* The stages of a transfer, what it waits for, and for how long: views for operators (query.h).
 * Derived from its state (transfer/stages.c), never decided upon. */

/* As X(name, its word, valid in, valid out). QUEUED: nothing is in flight. WIRE: pages are in
 * flight. PUBLISHED: all its pages are published. WALKING: the source looks up the peer's tokens.
 * SEALING: its pages are pinned, and checksums are missing. OFFERED: the peer reads. RELEASED: the
 * peer has what it wanted. ENDING: it failed, or was cancelled. */
#define TRANSFER_STAGE_TABLE(X)                                                                    \
    X(QUEUED, "queued", true, false)                                                               \
    X(WIRE, "wire", true, false)                                                                   \
    X(PUBLISHED, "published", true, false)                                                         \
    X(WALKING, "walking", false, true)                                                             \
    X(SEALING, "sealing", false, true)                                                             \
    X(OFFERED, "offered", false, true)                                                             \
    X(RELEASED, "released", false, true)                                                           \
    X(ENDING, "ending", true, true)

/* The waits, in the same form. SOURCE: the source has not answered. BUSY: the source is busy, and
 * is asked again later. COMMIT: the source has not committed as much as the fetch needs. CREDIT:
 * its peer or its tenant has as much in flight as it may. TOKENS: the peer owes the following
 * tokens. SEAL: checksums. PROOF: proof that nothing writes or reads its pages any more. */
#define TRANSFER_WAIT_TABLE(X)                                                                     \
    X(NOTHING, "nothing", true, true)                                                              \
    X(SOURCE, "source", true, false)                                                               \
    X(BUSY, "busy_source", true, false)                                                            \
    X(COMMIT, "commit", true, false)                                                               \
    X(CREDIT, "credit", true, false)                                                               \
    X(TOKENS, "tokens", false, true)                                                               \
    X(SEAL, "seal", false, true)                                                                   \
    X(PROOF, "proof", true, true)

enum transfer_stage {
#define X(name, word, in, out) STAGE_##name,
    TRANSFER_STAGE_TABLE(X)
#undef X
        TRANSFER_STAGES
};

enum transfer_wait {
#define X(name, word, in, out) WAIT_##name,
    TRANSFER_WAIT_TABLE(X)
#undef X
        TRANSFER_WAITS
};

/* The sums exclude the present stage and wait. */
struct transfer_times {
    uint32_t stage, wait; /* enum transfer_stage, enum transfer_wait */
    uint64_t stage_since_ns, wait_since_ns;
    uint64_t stage_ns[TRANSFER_STAGES], wait_ns[TRANSFER_WAITS];
};

/* The sum with the present stage or wait, as of a time not before the last event. */
static inline uint64_t transfer_stage_ns(const struct transfer_times *t, enum transfer_stage stage,
                                         uint64_t now_ns)
{
    return t->stage_ns[stage] +
           (t->stage == stage && now_ns > t->stage_since_ns ? now_ns - t->stage_since_ns : 0);
}

static inline uint64_t transfer_wait_ns(const struct transfer_times *t, enum transfer_wait wait,
                                        uint64_t now_ns)
{
    return t->wait_ns[wait] +
           (t->wait == wait && now_ns > t->wait_since_ns ? now_ns - t->wait_since_ns : 0);
}

/* Pages of one group by state: all counts but `evictable` and `peak_*` add up to `total`. */
struct group_view {
    struct group_layout layout;
    uint32_t total, free, leased, session, snapshot, reclaimable, transfer, ticket, retiring,
        zeroing, quarantine;
    uint32_t evictable; /* of snapshot and reclaimable: pages that eviction could free now (E4) */
    uint32_t peak_session, peak_snapshot; /* peak_snapshot: in use, without reclaimable ones */
};

struct pool_view {
    struct pool_id id;
    uint32_t tenant, ngroups, align_tokens, slabs, slabs_free, nodes;
    uint32_t engine;           /* slot of an engine that maps it; NONE: no engine does */
    uint32_t regions;          /* ranks of an engine that uses it */
    uint8_t region[RANKS_MAX]; /* region of rank r, among the tenant's regions */
    uint32_t moved;            /* regions that a transfer moves: 1 if all hold the same */
    uint64_t offset, bytes, slab_bytes;
    uint64_t layout_hash;
    bool closing, zeroing;
    enum tier tier;
    uint32_t other; /* slot of its host tier, or of the pool that it is the host tier of; NONE */
    enum supersede supersede;
    struct group_view group[GROUPS_MAX];
};

/* Why a node is pinned. Each kind pins the node and its path to the root on one tier: HOST on the
 * host, all others on the device. */
enum ref_kind {
    REF_DEVICE,
    REF_TRANSFER,
    REF_JOB,
    REF_RETRACTED,
    REF_ADMIN,
    REF_HANDOFF,
    REF_HOST,
    REF_KINDS
};

struct session_view {
    struct session_id id;
    struct engine_id engine; /* {NONE, 0}: the session was handed over, and has no engine */
    uint32_t tenant;
    struct pool_id pool;
    struct namespace_id ns;
    const char *state_word; /* static */
    struct lengths lengths;
    uint32_t tokens, node;
    enum ref_kind ref; /* kind of its pin of `node`: DEVICE, RETRACTED or HOST */
    uint64_t ref_since_ns;
    uint64_t last_use_ns;
    const char *ticket_word; /* static; "" where it has no ticket */
    uint64_t ticket_left_ns; /* until the ticket ends unfetched */
    uint32_t blob_bytes;     /* of its ticket */
    const char *turn_word;   /* static; "" where no turn is in flight and no SessionClose waits */
    uint64_t turn_begun_ns;  /* while one is in flight; else 0 */
    uint32_t records, recorded; /* turn records, and the tokens of their list */
    uint32_t record_pages,
        blob_pages; /* of record memory, including a prepared record; those of blobs */
};

/* Turns of a tenant: in flight now; and since the daemon began: begun, ended by their deadline,
 * ended with their connection. */
struct turns_view {
    uint64_t in_flight, begun, expired, lost;
};

/* Record memory of a tenant in pages, and turn records of all its sessions. `held`: those of `used`
 * that a turn which never ended may still touch. */
struct records_view {
    uint32_t total, used, held, records;
};

/* Tickets of a tenant: valid now; and since the daemon began, how others ended. */
struct tickets_view {
    uint64_t standing, made, taken, dropped, expired;
};

struct tenant_view {
    uint32_t sessions;
    uint32_t retracts_undone; /* as in core_view */
    struct turns_view turns;
    struct tickets_view tickets;
    struct records_view records;
    const struct figure_counts *figures; /* borrowed */
};

/* A tenant's part of the disk tier. Bytes are those of extents, including the padding of blocks. */
struct disk_view {
    uint64_t budget, used;                   /* bytes */
    uint32_t entries, chunks, files, stores; /* stores: running or waiting */
    struct disk_counts counts;
};

struct disk_entry_view {
    uint32_t tenant;
    struct namespace_id ns;
    uint64_t layout_hash, chain;
    uint32_t depth;
    enum disk_reason reason;
    uint32_t hits;
    uint64_t bytes;     /* of everything that the entry needs */
    uint64_t own_bytes; /* of these, bytes that no other entry needs */
    uint64_t age_ns;    /* serving time since its store or last use */
    uint64_t score;     /* D7, in 1/2^24 tokens a byte: the lowest is evicted first */
    bool read;          /* a fetch reads it now */
};

struct engine_view {
    struct engine_id id;
    char name[ENGINE_NAME_MAX];
    const char *state_word;
    uint32_t tenant, world, procs_alive, sessions;
    uint32_t procs[PROCS_PER_ENGINE_MAX]; /* live ones, [rank], the pure scheduler last */
    uint64_t done_step[RANKS_MAX];        /* as the ranks publish them */
    uint64_t retiring_until;
    uint64_t waits_since_ns; /* something waits since then, and no step passed; 0: nothing waits */
    uint32_t rank_behind;    /* the rank that the engine waits for */
    uint64_t named;          /* highest step that the engine's requests named */
    bool dying;              /* a process of it died or left, and others live on */
    bool jumped;             /* a rank shows a step far beyond `named`, which does not count (E7) */
    uint32_t jumps;          /* number of such jumps */
};

/* E8: true if something waits for its steps above `limit_ns`, or for a rank that jumped. */
static inline bool engine_overdue(const struct engine_view *e, uint64_t limit_ns, uint64_t now_ns)
{
    return e->waits_since_ns && (e->jumped || e->waits_since_ns + limit_ns <= now_ns);
}

struct transfer_view {
    bool outgoing;
    union {
        struct pull_id pull;   /* if incoming */
        struct serve_id serve; /* if outgoing */
    };
    const char *state_word;
    uint32_t link, from, to, published;
    uint32_t node;         /* node that it pins with a TRANSFER ref; NONE */
    uint32_t tenant, peer; /* peer NONE: the source is the disk */
    bool ticket;           /* of a session that was handed over */
    bool prefetch;         /* X8: the engine stated that no decode waits for it */
    uint64_t trace_id;
    uint32_t pages; /* total; out: those that the peer may request */
    /* In: pages requested (again after a failed checksum), verified by checksum, and published or
     * resident meanwhile. */
    uint32_t pages_asked, pages_verified, pages_published;
    uint64_t bytes, bytes_asked, bytes_verified, bytes_published; /* the same in bytes */
    struct rate rate;                                             /* in: of the verified bytes */
    struct transfer_times times;
    uint32_t quarantined; /* its pages that wait for the proof; 0 until it is stopping */
    uint64_t started_ns, deadline_ns;
    uint64_t quarantined_ns; /* since when; 0: none are quarantined */
};

struct node_view {
    struct node_id id, parent_id; /* parent_id: if it has a parent */
    uint32_t slot, parent, depth, children, pages;
    uint32_t refs[REF_KINDS]; /* by kind */
    uint64_t admin_since_ns;  /* time of the first ADMIN ref, if any */
    uint64_t chain; /* hash of namespace and all tokens of the prefix: equal on all daemons */
    uint32_t pool;
    struct namespace_id ns;
    bool visible, sealed; /* visible: every rank has passed the step that wrote it */
    /* STATE: pages of its segments (included in `pages`); borrowing sessions and transfers.
     * reclaimable: superseded, so its STATE is evicted first. resumable: a session could resume
     * here, derived now (false at the root, which has nothing to resume). */
    uint32_t state_pages, borrowers;
    bool reclaimable, resumable;
    bool on_device, on_host; /* all HISTORY pages are resident, and a copy is acknowledged */
    bool copying;            /* from one tier to the other, now or queued */
    uint32_t host_pages;     /* of the host tier, not in `pages` */
    uint64_t last_use_ns;
};

enum tree_event_kind { TREE_STORED = 1, TREE_TIER, TREE_REMOVED };

/* A namespace in a pool. */
struct space_view {
    uint32_t tenant, pool;
    struct namespace_id ns;
    uint32_t nodes;
    bool held;  /* pinned by a session, a transfer or an operator */
    bool reset; /* N1: nothing matches it, and it is being removed */
    struct figure_counts figures;
};

struct tree_event_view {
    uint64_t seq; /* from 1 on, without gaps */
    enum tree_event_kind kind;
    uint32_t tenant, pool, pool_gen, depth; /* the pool's handle is {pool, pool_gen} */
    struct namespace_id ns;
    uint64_t chain, parent_chain; /* as in node_view; the parent's is 0 at the first chunk */
    bool on_device, on_host;      /* after the change */
    struct node_id node;          /* the node whose tokens core_event_chunk copies */
};

#define CORE_SHARES 21 /* tables that tenants share */

struct share_of {
    uint32_t table, tenant;
};

/* A table that tenants share, and one tenant's part of it. */
struct share_view {
    const char *setting; /* name of the setting in `limits`; static */
    const char *records; /* name of the table's records; static */
    uint32_t limit;
    uint32_t reserved; /* for the tenant; for transfers, over all peers */
    uint32_t rest;     /* common records that no tenant has */
    uint32_t used;     /* by the tenant, over all peers */
};

struct core_view {
    uint64_t incarnation, now_ns;
    uint32_t pools, engines, sessions, nodes, pulls, serves, links_up;
    uint32_t token_blocks_free, nodes_free, retires_free;
    bool draining;
    uint64_t namespaces_reset;             /* including resets that peers sent */
    uint32_t resets_spreading;             /* resets that some peers have not confirmed */
    uint64_t evicted_nodes, evicted_pages; /* of all tenants: see figures.h */
    uint64_t corrupt_detected, pages_pulled, pages_served, dup_chunks;
    uint64_t oldest_quarantine_ns;    /* since when the oldest pages wait; 0: none */
    struct pull_id oldest_quarantine; /* the pull that has these pages; gen 0: none */
    uint64_t host_copies, host_copies_failed, host_loads; /* nodes copied to the host, failed,
                                                             loaded */
    uint64_t host_copies_again;                           /* failed copies that were retried */
    uint64_t host_uncopied; /* nodes evicted from the device without a copy, despite a host tier */
    uint64_t retracts, recovers;
    uint64_t retracts_undone;         /* cancelled with their copy; the sessions run on */
    uint32_t copies;                  /* running now, each of one node */
    uint64_t event_first, event_next; /* as reported: the oldest change kept, the next to come */
};

/* Returns false if the table or the tenant does not exist. Tables are numbered from 0. */
bool core_share_view(const struct core *c, struct share_of of, struct share_view *ret);
/* Returns true if a reply's text (this pointer) refuses a share; *ret_table is then its table. */
bool core_share_refusal(const char *text, uint32_t *ret_table);
/* As core_share_view before a core exists, with nothing in use; `rest` is not filled in. */
bool core_share_plan(const struct core_limits *limits, const struct tenant_config *tenants,
                     struct share_of of, struct share_view *ret);
void core_view(const struct core *core, struct core_view *ret);
struct tenant_view core_tenant_view(const struct core *core, uint32_t tenant);
const struct figure_counts *core_pool_figures(const struct core *core,
                                              uint32_t slot); /* NULL: empty */
bool core_space_view(const struct core *core, uint32_t slot, struct space_view *ret);
const struct histogram *core_latency(const struct core *core, enum latency latency);
/* Steps that visited more records than the bound (T20): a fault of this daemon itself. */
struct steps_over {
    uint64_t steps;
    uint32_t bound;
    uint32_t kind, visits;           /* of the longest; kind: enum event_kind */
    uint32_t last_kind, last_visits; /* of the last */
    uint32_t zero;
};
const struct steps_over *core_steps_over(const struct core *core);

const struct peer_figures *core_peer_figures(const struct core *core, uint32_t peer);
void core_disk(const struct core *core, uint32_t tenant, struct disk_view *ret);
bool core_disk_entry_view(const struct core *core, uint32_t slot, struct disk_entry_view *ret);
/* Returns true if nothing is or will be stored before the daemon ends (EV_SHUTDOWN). */
bool core_disk_idle(const struct core *core);
bool core_pool_view(const struct core *core, uint32_t slot, struct pool_view *ret);
bool core_session_view(const struct core *core, uint32_t slot, struct session_view *ret);
bool core_engine_view(const struct core *core, uint32_t slot, struct engine_view *ret);
bool core_pull_view(const struct core *core, uint32_t slot, struct transfer_view *ret);
bool core_serve_view(const struct core *core, uint32_t slot, struct transfer_view *ret);
bool core_node_view(const struct core *core, uint32_t slot, struct node_view *ret);
/* Returns true while a link to or from that peer, or a transfer on such a link, exists. */
bool core_peer_used(const struct core *core, uint32_t peer);
/* Numbers of the oldest change kept, of any tenant, and of the next one. Equal: none is kept. */
void core_event_range(const struct core *core, uint64_t *ret_first, uint64_t *ret_next);
/* X6: offset that callers add to numbers before they store them; it differs in each life of the
 * daemon. Sums are below 2^53, so they are exact as a double. */
uint64_t core_event_base(const struct core *core);
/* Adds the snapshot pages in running sessions' tables to *ret, each page once. `bits`: scratch of
 * one bit a node, (limits.nodes + 63) / 64 words, all 0 before and after. *visits: remaining nodes
 * to visit. Returns false if these did not suffice. */
bool core_pool_borrowed(const struct core *core, uint32_t pool, uint64_t *bits, uint32_t *visits,
                        uint32_t ret[GROUPS_MAX]);
/* A tenant's own changes are numbered separately, from 1. [first, next) are kept. */
void core_event_own_range(const struct core *core, uint32_t tenant, uint64_t *ret_first,
                          uint64_t *ret_next);
/* Own number of the first kept change whose number is `seq` or later. */
uint64_t core_event_own_at(const struct core *core, uint32_t tenant, uint64_t seq);
/* Upper bound of the changes from `seq` on that were overwritten; 0 if none was. */
uint64_t core_event_own_lost(const struct core *core, uint32_t tenant, uint64_t seq);
bool core_event_own_view(const struct core *core, uint32_t tenant, uint64_t own,
                         struct tree_event_view *ret);
/* Number of tokens (L) and extra keys of the change's chunk. Returns false if the tree no longer
 * has it: a REMOVED follows, or `e` is that one. */
bool core_event_chunk_size(const struct core *core, const struct tree_event_view *e,
                           uint32_t *ret_tokens, uint32_t *ret_keys);
/* Copies these tokens and keys. Call in the same step as core_event_chunk_size. */
void core_event_chunk(const struct core *core, const struct tree_event_view *e,
                      uint32_t *ret_tokens, struct extra_key *ret_keys);
const struct core_limits *core_limits_of(const struct core *core);

#endif
