/* Read-only views of the core for `ternctl`, metrics and tests. Each fills one struct for one slot
 * and returns false where that slot is empty; the caller walks the slots. None changes the core. */
#ifndef CORE_QUERY_H
#define CORE_QUERY_H

#include "base/rate.h"
#include "core/core.h"
#include "core/figures.h"
#include "core/transfer_times.h"

/* Pages of one group by where they are: all but `evictable` and `peak_*` add up to `total`. */
struct group_view {
    struct group_layout layout;
    uint32_t total, free, leased, session, snapshot, reclaimable, transfer, ticket, retiring,
        zeroing, quarantine;
    uint32_t evictable; /* of snapshot and reclaimable: what eviction could bring now (E4) */
    uint32_t peak_session, peak_snapshot; /* peak_snapshot: in use, reclaimable apart */
};

struct pool_view {
    struct pool_id id;
    uint32_t tenant, ngroups, align_tokens, slabs, slabs_free, nodes;
    uint32_t engine;           /* slot of one that maps it; NONE: none does */
    uint32_t regions;          /* ranks of the engines that use it */
    uint8_t region[RANKS_MAX]; /* of the tenant's, that of rank r */
    uint32_t moved;            /* of them by a transfer: 1 where all hold alike */
    uint64_t offset, bytes, slab_bytes;
    uint64_t layout_hash;
    bool closing, zeroing;
    enum tier tier;
    uint32_t other; /* slot of the pool that is its host tier, or whose host tier it is; NONE */
    enum supersede supersede;
    struct group_view group[GROUPS_MAX];
};

/* Why a node is held. Each kind pins it, and with it the path to the root, on one tier: HOST on the
 * host, the others on the device. */
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
    struct engine_id engine; /* {NONE, 0}: it was handed over, and is nobody's */
    uint32_t tenant;
    struct pool_id pool;
    struct namespace_id ns;
    const char *state_word; /* static */
    struct lengths lengths;
    uint32_t tokens, node;
    enum ref_kind ref; /* by which it holds `node`: DEVICE, RETRACTED or HOST */
    uint64_t ref_since_ns;
    uint64_t last_use_ns;
    const char *ticket_word; /* static; "" where it has no ticket */
    uint64_t ticket_left_ns; /* until it ends, if nobody fetches it */
    uint32_t blob_bytes;     /* of its ticket */
    const char *turn_word;   /* static; "" where no turn is in flight and no SessionClose waits */
    uint64_t turn_begun_ns;  /* while one is in flight; else 0 */
    uint32_t records, recorded; /* turn records, and the tokens of their list */
    uint32_t record_pages,
        blob_pages; /* of record memory, a prepared record's too; those of blobs */
};

/* Of a tenant: turns in flight now; and those that began, that ended because their time was over,
 * and with their connection, since the daemon began. */
struct turns_view {
    uint64_t in_flight, begun, expired, lost;
};

/* Of a tenant: pages of its record memory, and turn records of all its sessions. `held`: of `used`,
 * those that a turn which never ended may still touch. */
struct records_view {
    uint32_t total, used, held, records;
};

/* Of a tenant: tickets that stand, and what became of those that do not, since the daemon began. */
struct tickets_view {
    uint64_t standing, made, taken, dropped, expired;
};

/* Of a tenant: its part of the disk tier. Bytes are those of extents, with what fills up blocks. */
struct disk_view {
    uint64_t budget, used;                   /* bytes */
    uint32_t entries, chunks, files, stores; /* stores: under way, or waiting */
    struct disk_counts counts;
};

struct disk_entry_view {
    uint32_t tenant;
    struct namespace_id ns;
    uint64_t layout_hash, chain;
    uint32_t depth;
    enum disk_reason reason;
    uint32_t hits;
    uint64_t bytes;     /* of all that it needs */
    uint64_t own_bytes; /* of that, what no other entry needs */
    uint64_t age_ns;    /* serving time since it was stored, or used last */
    uint64_t score;     /* D7, in 1/2^24 tokens a byte: the lowest goes first */
    bool read;          /* a fetch reads it now */
};

struct engine_view {
    struct engine_id id;
    char name[ENGINE_NAME_MAX];
    const char *state_word;
    uint32_t tenant, world, procs_alive, sessions;
    uint32_t procs[PROCS_PER_ENGINE_MAX]; /* those that live, [rank], the pure scheduler last */
    uint64_t done_step[RANKS_MAX];        /* as the ranks show them */
    uint64_t retiring_until;
    uint64_t waits_since_ns; /* something waits for a step, and none has passed since; 0: nothing */
    uint32_t rank_behind;    /* the rank that it waits for */
    uint64_t named;          /* the highest step that a request of it named */
    bool dying;              /* a process of it died or left, and others live on */
    bool jumped;             /* a rank shows a step far beyond it, which does not count (E7) */
    uint32_t jumps;          /* how often one has */
};

/* E8: does something wait for its steps longer than `limit_ns`, or for a rank that jumped? */
static inline bool engine_overdue(const struct engine_view *e, uint64_t limit_ns, uint64_t now_ns)
{
    return e->waits_since_ns && (e->jumped || e->waits_since_ns + limit_ns <= now_ns);
}

struct transfer_view {
    bool outgoing;
    union {
        struct pull_id pull;   /* of one that comes in */
        struct serve_id serve; /* of one that goes out */
    };
    const char *state_word;
    uint32_t link, from, to, published;
    uint32_t node;         /* that it holds by a TRANSFER ref; NONE */
    uint32_t tenant, peer; /* peer NONE: its source is the disk */
    bool ticket;           /* of a session that was handed over */
    bool prefetch;         /* X8: no decode waits for it, as its engine said */
    uint64_t trace_id;
    uint32_t pages; /* of all that it brings; out: that the peer may ask for */
    /* In: what was asked for (again what came wrong), agrees with its checksum, and is published or
     * was here meanwhile. */
    uint32_t pages_asked, pages_verified, pages_published;
    uint64_t bytes, bytes_asked, bytes_verified, bytes_published; /* likewise */
    struct rate rate;                                             /* in: of the verified bytes */
    struct transfer_times times;
    uint32_t quarantined; /* pages of it that wait for the proof; 0 until it is stopping */
    uint64_t started_ns, deadline_ns;
    uint64_t quarantined_ns; /* since when; 0: none */
};

struct node_view {
    struct node_id id, parent_id; /* parent_id: with a parent */
    uint32_t slot, parent, depth, children, pages;
    uint32_t refs[REF_KINDS]; /* by kind */
    uint64_t admin_since_ns;  /* the first ADMIN ref, if there is one */
    uint64_t chain; /* hash of namespace and all tokens of the prefix: the same everywhere */
    uint32_t pool;
    struct namespace_id ns;
    bool visible, sealed; /* visible: every rank has passed the step that wrote it */
    /* STATE: pages of its segments (in `pages` too); superseded, so that whoever needs pages takes
     * them first; a session could go on from here, derived now (false where there is nothing to
     * resume: the root); who borrows it, sessions and transfers. */
    uint32_t state_pages, borrowers;
    bool reclaimable, resumable;
    bool on_device, on_host; /* all HISTORY pages are there, and a copy is acknowledged */
    bool copying;            /* from one tier to the other, now or when its turn comes */
    uint32_t host_pages;     /* of the host tier, not in `pages` */
    uint64_t last_use_ns;
};

enum tree_event_kind { TREE_STORED = 1, TREE_TIER, TREE_REMOVED };

/* A namespace in a pool. */
struct space_view {
    uint32_t tenant, pool;
    struct namespace_id ns;
    uint32_t nodes;
    bool held;  /* by a session, a transfer or an operator */
    bool reset; /* N1: nobody finds it, and it goes */
    struct figure_counts figures;
};

struct tree_event_view {
    uint64_t seq; /* 1 is the first; no number is left out */
    enum tree_event_kind kind;
    uint32_t tenant, pool, pool_gen, depth; /* the pool's handle is {pool, pool_gen} */
    struct namespace_id ns;
    uint64_t chain, parent_chain; /* as in node_view; the parent's, 0 at the first chunk */
    bool on_device, on_host;      /* after the change */
    struct node_id node;          /* whose tokens core_event_chunk reads */
};

#define CORE_SHARES 21 /* tables that tenants share */

struct share_of {
    uint32_t table, tenant;
};

/* A table that tenants share, and what one of them has of it. */
struct share_view {
    const char *setting; /* of `limits`; static */
    const char *records; /* what they are; static */
    uint32_t limit;
    uint32_t reserved; /* for the tenant; of transfers, with all peers together */
    uint32_t rest;     /* common records that nobody holds */
    uint32_t used;     /* by the tenant, with all peers */
};

struct core_view {
    uint64_t incarnation, now_ns;
    uint32_t pools, engines, sessions, nodes, pulls, serves, links_up;
    uint32_t token_blocks_free, nodes_free, retires_free;
    bool draining;
    uint64_t namespaces_reset;             /* also because a peer said so */
    uint32_t resets_spreading;             /* of which not all peers have heard */
    uint64_t evicted_nodes, evicted_pages; /* of all tenants: see figures.h */
    uint64_t corrupt_detected, pages_pulled, pages_served, dup_chunks;
    uint64_t oldest_quarantine_ns;    /* since when its pages wait; 0: none */
    struct pull_id oldest_quarantine; /* the pull that holds them; gen 0: none */
    uint64_t host_copies, host_copies_failed, host_loads; /* nodes copied to host memory, back */
    uint64_t host_copies_again;                           /* that failed and were begun anew */
    uint64_t
        host_uncopied; /* nodes that left the device without one, though there is a host tier */
    uint64_t retracts, recovers;
    uint64_t retracts_undone;         /* a copy was given up: those sessions run on */
    uint32_t copies;                  /* under way now, a node each */
    uint64_t event_first, event_next; /* as told: the oldest change kept, the next to come */
};

/* False: there is no such table, or no such tenant. Tables are numbered from 0. */
bool core_share_view(const struct core *c, struct share_of of, struct share_view *ret);
/* Is a reply's text (the pointer, no copy) the refusal of a share? Then *ret_table is its table. */
bool core_share_refusal(const char *text, uint32_t *ret_table);
/* core_share_view before there is a core, with nobody holding anything; `rest` is not filled in. */
bool core_share_plan(const struct core_limits *limits, const struct tenant_config *tenants,
                     struct share_of of, struct share_view *ret);
void core_view(const struct core *core, struct core_view *ret);
uint32_t core_tenant_sessions(const struct core *core, uint32_t tenant);
const struct figure_counts *core_tenant_figures(const struct core *core, uint32_t tenant);
const struct figure_counts *core_pool_figures(const struct core *core,
                                              uint32_t slot); /* NULL: empty */
bool core_space_view(const struct core *core, uint32_t slot, struct space_view *ret);
const struct histogram *core_latency(const struct core *core, enum latency latency);
/* Steps that looked at more records than a step may (T20): a fault of this daemon's own. */
struct steps_over {
    uint64_t steps;
    uint32_t bound;
    uint32_t kind, visits;           /* enum event_kind; of the longest */
    uint32_t last_kind, last_visits; /* of the last */
    uint32_t zero;
};
const struct steps_over *core_steps_over(const struct core *core);

const struct peer_figures *core_peer_figures(const struct core *core, uint32_t peer);
void core_turns(const struct core *core, uint32_t tenant, struct turns_view *ret);
void core_tickets(const struct core *core, uint32_t tenant, struct tickets_view *ret);
void core_records(const struct core *core, uint32_t tenant, struct records_view *ret);
void core_disk(const struct core *core, uint32_t tenant, struct disk_view *ret);
bool core_disk_entry_view(const struct core *core, uint32_t slot, struct disk_entry_view *ret);
/* Is nothing being stored, nor to be stored before the daemon ends (EV_SHUTDOWN)? */
bool core_disk_idle(const struct core *core);
uint32_t core_retracts_undone(const struct core *core, uint32_t tenant);
bool core_pool_view(const struct core *core, uint32_t slot, struct pool_view *ret);
bool core_session_view(const struct core *core, uint32_t slot, struct session_view *ret);
bool core_engine_view(const struct core *core, uint32_t slot, struct engine_view *ret);
bool core_pull_view(const struct core *core, uint32_t slot, struct transfer_view *ret);
bool core_serve_view(const struct core *core, uint32_t slot, struct transfer_view *ret);
bool core_node_view(const struct core *core, uint32_t slot, struct node_view *ret);
/* Does a link to or from that peer, or a transfer on one, still stand? */
bool core_peer_used(const struct core *core, uint32_t peer);
/* Numbers of the oldest change kept, of any tenant, and of the next one. Equal: none is kept. */
void core_event_range(const struct core *core, uint64_t *ret_first, uint64_t *ret_next);
/* X6: whoever stores a number has it with this added, which is another one in each life of the
 * daemon: sums of it are below 2^53, so they are exact as a double, too. */
uint64_t core_event_base(const struct core *core);
/* Adds the snapshot pages in running sessions' tables, each counted once, to *ret. `bits`: scratch
 * of one bit a node, (limits.nodes + 63) / 64 words, all 0 before and afterwards. *visits: the
 * nodes that may still be looked at; false where those were not enough. */
bool core_pool_borrowed(const struct core *core, uint32_t pool, uint64_t *bits, uint32_t *visits,
                        uint32_t ret[GROUPS_MAX]);
/* A tenant's own changes are counted apart, from 1: those that are kept are [first, next). */
void core_event_own_range(const struct core *core, uint32_t tenant, uint64_t *ret_first,
                          uint64_t *ret_next);
/* The first of them that is kept and has that number or a later one. */
uint64_t core_event_own_at(const struct core *core, uint32_t tenant, uint64_t seq);
/* How many from that number on were overwritten, at most; 0 if none was. */
uint64_t core_event_own_lost(const struct core *core, uint32_t tenant, uint64_t seq);
bool core_event_own_view(const struct core *core, uint32_t tenant, uint64_t own,
                         struct tree_event_view *ret);
/* How many tokens (L) and extra keys the chunk of that change has. False: the tree has it no more,
 * and a REMOVED follows or is `e` itself. */
bool core_event_chunk_size(const struct core *core, const struct tree_event_view *e,
                           uint32_t *ret_tokens, uint32_t *ret_keys);
/* Copies so many of them, in the same step of the caller. */
void core_event_chunk(const struct core *core, const struct tree_event_view *e,
                      uint32_t *ret_tokens, struct extra_key *ret_keys);
const struct core_limits *core_limits_of(const struct core *core);

#endif
