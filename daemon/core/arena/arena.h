/* The core's internal records. transfer_records.h has the records of transfers, disk_records.h
 * those of the disk tier. Only daemon/core/ and the tests that audit it use this file. Records
 * refer to each other by index (NONE: none), never by address. Invariant: equal histories give
 * equal bytes, so records are written field by field in zeroed memory and no implicit padding
 * matters. */
#ifndef CORE_ARENA_H
#define CORE_ARENA_H

#include <assert.h>

#include "base/check.h"
#include "base/err.h"
#include "core/arena/disk_records.h"
#include "core/arena/list.h"
#include "core/arena/node_states.h"
#include "core/arena/page_states.h"
#include "core/arena/record_states.h"
#include "core/arena/shares.h"
#include "core/arena/transfer_records.h"
#include "core/core.h"
#include "core/query.h"

#define POOLS_LIMIT 64 /* an engine's pools are one 64-bit set */
#define ENGINES_LIMIT                                                                              \
    64 /* one process may belong to all engines: its exit is one event with an action for each */
#define SLABS_PER_POOL 1024 /* target; a pool may have slightly more */

static_assert(RANKS_MAX <= 64, "regions are the bits of a set");

struct page {
    uint32_t gen;
    struct list_links in_list; /* its owner's list; `next` also: a free page, or one of a node's */
    uint32_t chain; /* RESERVED: next in its batch or in the retry list. LEASED: session/leases.c */
    uint32_t index; /* within its group */
    uint32_t owner; /* by state: slot of the engine, session, node, retire record or pull */
    union {
        struct page_ref source; /* RESERVED: the page to request from the peer, if `named` */
        uint64_t step; /* COMMITTED by an engine: its commit's step; 0: nothing in flight */
    };
    uint8_t state, group, tries;
    uint8_t seal;  /* enum page_seal_state */
    uint8_t named; /* RESERVED: 1: offered by the source; in a span only the first page is */
    uint8_t zero;
    uint16_t pool;
};

struct slab {
    struct list_links in_list; /* `partial` while pages are FREE; unassigned: `free_slabs` */
    uint32_t free_head, nfree;
    uint32_t group;      /* the group that its page records are formatted for; NONE: never used */
    uint32_t assigned;   /* 1: it belongs to the group */
    uint32_t obtainable; /* pages that eviction would free: see tree/obtain.h */
};

struct group {
    struct group_layout layout;
    uint32_t pages_per_slab, held; /* slabs */
    struct list partial;           /* the group's slabs that have free pages */
    uint32_t count[PAGE_STATES];   /* FREE: free pages in the group's slabs */
    uint32_t peak_owned, peak_committed;
    uint32_t segment;     /* pages in one node's segment */
    uint32_t reach;       /* STATE: number of nodes whose segments make up a window; HISTORY: 0 */
    uint32_t reclaimable; /* COMMITTED pages that no resume point needs (T10) */
    uint32_t obtainable;  /* pages that eviction would free; below: the slabs that it would */
    uint32_t loose;       /* empty: see tree/obtain.h */
    uint32_t promised;    /* free pages promised to sessions that retract or recover */
    uint32_t index;       /* in pool.group */
};

/* A pool's heaps. LEAF: device leaves that may be evicted. STATE: nodes whose STATE alone may be
 * dropped. HOST: leaves of the host tier. ALONE: leaves of the tree that are not on the device.
 * RESET: nodes of a namespace that was reset, leaves on both tiers. Only with write-behind: CLEAN:
 * leaves of the reserve that have a host copy. NEXT: nodes that may join the reserve. SPARE: host
 * copies of nodes that stay on the device, most recently used first. A node's heap: CLAIM: children
 * with a claim at or below them, nearest claim first. */
enum heap_kind {
    HEAP_LEAF,
    HEAP_STATE,
    HEAP_HOST,
    HEAP_ALONE,
    HEAP_RESET,
    HEAP_CLEAN,
    HEAP_NEXT,
    HEAP_SPARE,
    POOL_HEAPS,
    HEAP_CLAIM = POOL_HEAPS,
    HEAPS
};

struct heap_links { /* while the node is in this heap */
    uint32_t left, right, up;
};

struct pool {
    uint32_t gen, state, tenant, ngroups;
    uint32_t align;   /* L */
    uint32_t engines; /* engines that opened or mapped it and still exist */
    uint32_t opener;  /* for views: slot of one of them, the first while it exists; NONE */
    uint32_t sessions, nodes, serves;
    uint32_t page_base, pages_per_slab_max; /* records */
    uint32_t slab_base, nslabs;
    struct list free_slabs;
    uint32_t heap[POOL_HEAPS]; /* enum heap_kind */
    struct list reclaim;       /* nodes with superseded STATE, oldest first */
    struct list changed;       /* nodes whose counters are out of date: see tree/obtain.h */
    uint32_t nstate, reach, window_max; /* STATE groups; their largest reach and window */
    uint32_t resumed_anew;              /* nodes in SUCCESSOR_EARLIER */
    uint32_t supersede;
    uint32_t close_at;  /* CLOSING: the next node to check for a pin; NONE: all are checked */
    struct list spaces; /* namespaces */
    struct list keyed;  /* nodes with extra keys, the next one to evict first */
    uint32_t node_keys; /* number of extra keys of its nodes */
    uint32_t regions;   /* ranks of the engines that use it: one region for each */
    uint32_t transfer_regions; /* regions that a transfer moves; 1 if all have equal bytes (X5) */
    uint32_t tier;
    uint32_t tiers[TIER_COUNT]; /* its tiers' pools, each with this array; NONE */
    uint32_t host_write;        /* enum host_write */
    uint32_t resident;          /* nodes that are on the device */
    uint32_t reserved;          /* resident nodes that are in the reserve */
    uint32_t loads;             /* loads that wait for copies from the host */
    uint32_t writebacks;        /* copies to the host, queued or running */
    uint32_t host_stores;       /* stores that read host copies */
    uint32_t stores_due;        /* due stores for which a copy is kept: see node_due */
    struct node_id going;       /* where the last piece of a subtree's eviction stopped */
    uint32_t ahead[TIER_COUNT]; /* next node to leave the tier, and its generation, as of when */
    uint32_t ahead_gen[TIER_COUNT]; /* it was stored on the disk for that, or was already there */
    uint64_t copy_moved_ns;         /* when a writeback was queued or ended last */
    uint64_t offset, bytes, slab_bytes; /* same in each of its regions, and only there */
    uint64_t region_set;                /* one bit for each region of the tenant */
    uint8_t region[RANKS_MAX];          /* region of rank r */
    uint64_t layout_hash, opened_seq;
    uint64_t fields_hash; /* 0: it exchanges pages with pools of equal layout only */
    uint64_t copies;      /* 1: resharding to a pool of equal layout, too, moves less data (X5) */
    struct figure_counts figures;
    struct group group[GROUPS_MAX];
};

struct space { /* a namespace within a pool */
    struct namespace_id ns;
    uint32_t pool, root, used;
    struct list_links in_pool;
    uint32_t reset; /* N1: 1: lookups never find it again; its nodes are freed as their pins end */
    uint32_t nodes; /* nodes, not counting the root */
    uint32_t held;  /* pins of its nodes, on any tier */
    struct list_links idle; /* in its tenant's `idle` list while nothing pins it */
    struct figure_counts figures;
};

/* Bits of node.residency: the tiers that have all of a node's HISTORY; the host's counts once it is
 * acknowledged. With a node on the device, all its ancestors are there. An ancestor of a node on
 * the host may be on either tier. */
#define ON_DEVICE (1u << TIER_DEVICE)
#define ON_HOST   (1u << TIER_HOST)

/* A node's STATE: who needs its segment (state.c). Invariant: whether a session can resume at the
 * node is derived each time and never stored. */
struct node_state {
    uint8_t resume, successor; /* enum resume_state, enum successor_state */
    uint8_t claims_window;     /* 1: a resume point that needs the nodes of its window */
    uint16_t refilling;        /* bits of the groups whose refill waits for its step */
    uint32_t claim;        /* depth of the nearest claim at or below it, within reach; 0: none */
    uint32_t claims_below; /* root of its HEAP_CLAIM */
    uint32_t bound;        /* scratch of a walk: see state_arrived */
    uint32_t borrowers;
    uint32_t host_borrowers;   /* borrowers for which the host's copy is enough */
    struct list_links reclaim; /* in the pool's `reclaim` list while superseded */
};

/* Work in progress on a node: its commit's step, its checksums, its copy to the other tier. */
struct node_work {
    uint64_t publish_step; /* its commit's step; of a refill, 0 until its commit has ended */
    uint64_t since_ns;     /* start of its commit, then when others see it; 0: neither is timed */
    uint32_t publish_next; /* in the list of a retire record */
    uint32_t copy_gen;
    struct list_links seal_queue, copy_queue;
    uint8_t seal, copy;         /* enum seal_state, enum copy_state */
    uint8_t copy_from, copy_to; /* enum tier, while there is a copy */
    uint8_t copy_tries;         /* writebacks of it that failed consecutively */
    uint32_t loaders;           /* loads that need this node on the device */
    uint32_t stores_due;        /* stores that keep its last copy, or STATE: see node_due */
};

/* Reasons that keep a node on a tier, as the counters have them: see tree/obtain.h. */
struct node_room {
    struct list_links changed; /* in its pool's list */
    uint32_t kept[TIER_COUNT];
    uint16_t counted[TIER_COUNT]; /* groups, as bits */
    uint8_t own[TIER_COUNT], in[TIER_COUNT], passes[TIER_COUNT];
    /* Used while obtain_later counts, otherwise 0: whether the node was counted, and how many of
     * its children were. */
    uint8_t looked;
    uint16_t looked_below;
};

/* The size of a node's path on the disk and its chunk there, as last looked up. */
struct node_disk {
    uint64_t bytes; /* of HISTORY */
    uint32_t keys;
    uint32_t chunk, gen, round; /* gen 0: none; round: the value of disk_round when it was found */
};

/* A node's pages in one group: list heads, in page_tokens order, L / page_tokens pages each. */
struct node_group {
    uint32_t pages[TIER_COUNT]; /* acknowledged pages */
    uint32_t copying;           /* COPYING pages, on the copy's destination tier */
};

struct node { /* one chunk of L tokens; a root has depth 0, no tokens and no pages */
    /* A match reads only the first cache line, besides the pages. */
    _Alignas(64) uint32_t parent;
    uint32_t depth;
    struct list children;    /* newest first */
    uint32_t tokens, keys;   /* heads in the token store and the extra-key store */
    uint32_t pending_engine; /* engine whose step it waits for; NONE: its step has passed */
    uint32_t children_on[TIER_COUNT];
    uint32_t gen, space;
    uint16_t pool;
    uint8_t residency;    /* ON_DEVICE, ON_HOST */
    uint8_t host_corrupt; /* 1: the pages on the host tier do not match their checksums */
    uint8_t used;
    uint8_t announced; /* what subscribers were sent about it: see events.c */
    uint8_t reserved;  /* 1: in the reserve: its host copy exists or is under way */
    uint32_t jump;     /* an ancestor further up: see node_above */
    uint32_t refs[REF_KINDS], nrefs;
    struct node_room room;
    struct list_links sibling; /* `next` also links a free record */
    struct list_links keyed;   /* in the pool's `keyed` list while it has extra keys */
    struct list_links due; /* in a list of its tenant while a cold store of it waits for a record */
    uint64_t due_ns;       /* when it entered disk_due; 0: it is in disk_late, or in neither */
    struct node_disk disk;
    uint64_t seq;
    uint64_t chain; /* public hash of all tokens up to its end; never used as an index */
    uint64_t last_use, last_use_ns; /* last_use: T13's tick, `changes` at that event */
    uint64_t admin_ns;
    struct node_work work;
    struct node_state state;
    uint32_t reserved_children;
    uint8_t heap_rank[HEAPS]; /* as in any leftist heap, 1 or more; 0: it is not in this heap */
    struct heap_links heap[HEAPS];
    struct node_group group[]; /* limits.groups */
};

/* The path from the root down to `node`, with the STATE of its nodes deeper than `state_from`: what
 * a session or a transfer borrows, or needs on a tier. */
struct path {
    uint32_t node, state_from;
};

struct token_block {
    uint32_t v[TOKEN_BLOCK];
};

struct key_record {
    uint32_t next, position; /* absolute */
    uint64_t hi, lo;
};

/* A session's load from the host tier. */
struct load {
    uint32_t state; /* enum load_state */
    uint32_t at;    /* where its walk continues; RETRACTING: where copies begin; NONE: all have */
    uint32_t state_from, low; /* needs STATE deeper than state_from; walks up to depth `low` */
    uint32_t from; /* committed length before it; deeper STATE of nodes that it loads is borrowed */
    uint32_t pin, host; /* on the device already, pinned TRANSFER; pinned HOST by a fetch */
    uint32_t kib;
    struct path hold;  /* nodes that count it as a loader; node NONE: none */
    struct list begun; /* begun copies, highest node first; all are queued together */
};

struct session {
    uint32_t gen, state, engine, pool, space;
    uint32_t gen_last;  /* last generation of a handle of this slot, the session's or a turn's */
    uint32_t gate;      /* enum gate_state */
    uint32_t turn_gen;  /* generation of the turn in flight */
    uint32_t turn_conn; /* connection of the turn in flight */
    struct list_links
        in_turns; /* CLAIMED, CLOSING: in the core's `turns`; CLOSED: in its tenant's `closes` */
    uint64_t turn_begun_ns;
    struct list_links in_engine, in_conn;
    uint32_t node; /* pinned DEVICE; the table borrows the path to it. NONE: empty table */
    uint32_t committed, written, allocated; /* tokens, each at least the one before */
    uint32_t state_from;        /* it borrows the STATE of its path's nodes deeper than this */
    uint32_t base[GROUPS_MAX];  /* first owned logical page; HISTORY: committed / page_tokens */
    uint32_t first[GROUPS_MAX]; /* WINDOW: the first logical page still in the table (T5, T7) */
    /* The windows are whole from this length on, since a fetch from smaller pages filled the first
     * window only in part (N3). 0: they are whole at every length. */
    uint32_t whole_from;
    uint32_t finished;  /* tokens at the last Finish */
    uint32_t releasing; /* 1: pages behind the allocated length, or the rest of a load or of an
                           aborted operation, are still to be released in pieces */
    uint32_t pull;
    SESSION_KEEPS
    struct token_buf tokens;
    struct list owned[GROUPS_MAX];
    struct list records;      /* KEPT turn records, in the order of their turns */
    uint32_t prepared;        /* the turn record that is PREPARED or CHECKING; NONE */
    uint32_t rolled;          /* records rolled back since the last append (M3) */
    uint32_t blobs_kept;      /* M1: this many of the last records keep blobs; 0: all */
    uint32_t records_lent;    /* 1: the turn in flight received pages of records */
    uint32_t records_exposed; /* tokens recorded when such a turn ended without a TurnEnd: dropped
                                 records of them become HELD */
    uint32_t record_pages;    /* pages of its turn records, the prepared one included */
    uint32_t blob_pages;      /* of these, pages of blobs */
    uint32_t fetched;         /* 1: a fetch has begun since the last Match */
    uint64_t last_use_ns;
    uint64_t ref_since_ns;
    /* RETRACTING, RETRACTED, LOADING: in `away`, over all engines. */
    struct list_links in_away; /* CLOSING, or releasing: in `closing` */
    uint32_t record; /* CLOSING, or releasing: the retire record that receives what is released;
                        NONE: freed at once */
    uint32_t held;   /* enum ref_kind of its pin of `node` */
    uint32_t disk_stored; /* D1: the last boundary at which it was, or is being, stored */
    uint32_t disk_cold;   /* D2: where a cold store is due; 0: none */
    uint32_t back_to;     /* the state before */
    uint32_t target; /* LOADING: the node to reach. RETRACTING: the path's nodes below `target` are
                        on the host */
    struct load load;
    uint32_t lent_from; /* below this depth it borrows the host's copies of its path's STATE, but
                           for nodes that it loads; UINT32_MAX: none */
    struct path left;   /* ended by an Abort, still pinned by left_kind; node NONE: nothing */
    uint32_t left_kind; /* enum ref_kind */
    uint32_t promised[GROUPS_MAX]; /* pages. RETRACTING: on the host tier; LOADING: on the device */
    uint32_t copies_lost;          /* the core's `copies_lost` when the session was last checked */
    uint64_t slid_step; /* last step that may touch borrowed pages that it slid over: the rest of
                           its borrows of their nodes lasts at least until then */
    /* See session/tickets.h. HANDED: `engine` is NONE from QUEUED on. */
    struct list_links in_tickets; /* in the list of due tickets */
    uint32_t ticket_at;           /* its index in the heap of tickets, while it has a ticket */
    uint32_t follower; /* the transfer out that follows it and has not been offered its end; NONE */
    uint32_t ticket_state;
    uint32_t ticket_ends; /* 1: taken, dropped or expired: it ends when nothing reads it */
    uint32_t blob_bytes;
    uint64_t ticket_key[2], ticket_step, ticket_until_ns;
    struct token_buf blob;
};

/* A span of record pages. Each field is the span's size minus the length of a free run, in pages:
 * the run at its head, the run at its tail, and its longest run. Zeroed memory is therefore a free
 * span. */
struct record_runs {
    uint32_t head, tail, longest;
};

struct turn_record { /* see memory/record_pages.h */
    uint32_t gen, state, tenant, kind;
    uint32_t session;          /* its session; NONE: LEAVING or HELD */
    uint32_t turn_gen;         /* the turn that prepared it */
    uint32_t pages;            /* pages of all its sections */
    struct list_links in_list; /* KEPT: its session's list; HELD: its engine's; CHECKING, LEAVING:
                                  `checks`. `next` also: a free record */
    struct reply_to reply;     /* CHECKING, LEAVING */
    uint64_t step;
    struct list_hash hash; /* KEPT: hash of the token list up to its length */
    struct record_body body;
};

struct retire { /* what waits until every rank of an engine has passed a step */
    uint64_t step;
    struct list_links in_engine;
    struct path pin;  /* a DEVICE pin to end, together with its borrows of STATE; node NONE: none */
    uint32_t pending; /* nodes to make visible */
    uint32_t pool; /* the pool of its pages; below: pages of each group, which a shortage reports */
    uint32_t pages_of[GROUPS_MAX];
    struct list pages;
    uint32_t session; /* a session that is CLOSING or releasing and adds its pages here; NONE */
    uint32_t turned;  /* 1: the nodes are in the order in which they become visible */
};

struct proc_of {
    uint32_t proc, alive;
};

struct engine {
    uint32_t gen, state, tenant, world;
    char name[ENGINE_NAME_MAX];
    struct proc_of procs[PROCS_PER_ENGINE_MAX]; /* indexed by rank; the pure scheduler is last */
    uint32_t conns[PROCS_PER_ENGINE_MAX];
    uint32_t alive, joined; /* alive: processes; joined: ranks */
    struct list sessions, retires;
    struct list held_records;        /* turn records */
    struct list leased;              /* leased pages of any pool and group */
    uint32_t leased_of[POOLS_LIMIT]; /* leased pages of each pool */
    uint64_t pools;
    uint64_t region_set;       /* regions of its ranks, one bit for each region of the tenant */
    uint8_t region[RANKS_MAX]; /* region of rank r, once it has joined */
    uint32_t devices_named;    /* 1: its ranks name their devices; 0: region r belongs to rank r */
    uint32_t nwaits;           /* its connections that wait for a step */
    uint32_t nfollowed;        /* its sessions that a transfer out follows (Y4) */
    uint32_t drop_at; /* ENDING: the first retire record whose pages and pin are not free yet */
    uint32_t leases;  /* 1: it has leased pages, so it may use a session before it reports that */
    uint32_t zero;
    uint64_t named;            /* highest step that one of its requests named */
    uint64_t shown[RANKS_MAX]; /* each rank's done_step as last read */
    uint64_t done[RANKS_MAX];  /* each rank's last valid one: `shown` unless that jumped (E7) */
    uint64_t passed;           /* the last step that every rank has passed */
    uint64_t done_min;         /* the same, and everything that waited for it has been released */
    uint64_t waits_since_ns; /* while it has retire records: since when no step of it has passed */
    uint64_t wanted;         /* lowest step that is waited for, as last reported; 0: none */
    uint32_t jumps;          /* done_step values read that no rank can have reached */
    uint32_t waits_changed;  /* 1: some waits may be over, or the lowest step may have changed */
};

struct conn {
    uint32_t open, tenant, proc, admin;
    uint32_t gen, zero;    /* generation of the open connection; later answers name it */
    struct list turns;     /* sessions whose turn in flight began on this connection */
    uint32_t engine, seat; /* seat: index in engine.procs; engine NONE: not joined */
    uint64_t wait_step;    /* step that it waits for; 0: none */
    struct reply_to wait;
};

struct reset { /* see session/resets.c */
    uint32_t state, tenant;
    struct namespace_id ns;
    uint64_t id;
    uint64_t origin, number; /* incarnation where it began; its sequence number there */
    struct reply_to reply;
    uint32_t link; /* link of the peer that sent the reset and waits for an answer; NONE */
    uint32_t nodes, zero;
    uint32_t own;      /* 1: it began on this daemon */
    uint32_t due;      /* 1: the peers that have it or are connected have changed: reset_spread */
    uint32_t hops;     /* distance from the origin to the peer that sent it */
    uint64_t until_ns; /* ASKED: then a peer without an answer counts as PARTLY. OVER: since then */
};

struct heard { /* what one peer knows about one reset */
    uint32_t state;
};

struct tree_event { /* see nodes.h */
    uint64_t seq;
    struct namespace_id ns;
    uint64_t chain, parent_chain;
    uint16_t kind, tiers; /* tiers: a bit for each tier that has the node after the change */
    uint32_t pool, pool_gen, depth;
    uint32_t node, node_gen; /* its tokens can be read while this is its generation */
};

struct tenant {
    struct tenant_config config;
    uint32_t sessions;
    uint32_t undone;     /* retracts that failed because a copy was abandoned */
    uint32_t pull_turn;  /* the link of its last page request */
    uint32_t room_kept;  /* as in struct link */
    uint32_t batches;    /* batches of its transfers */
    uint32_t urgent_run; /* its consecutive batches that belonged to no prefetch */
    struct list closes;  /* sessions whose gate is CLOSED, in the order of their closing */
    struct turns_view turns;
    struct tickets_view tickets;
    struct figure_counts figures;
    struct list idle; /* namespaces that nothing pins, the first one released first */
    struct list seals_queued, copies_queued; /* nodes that wait for a job, oldest first */
    /* Record memory. Its bitmap, one bit for each page, begins at word record_word; a binary tree
     * over the words of the bitmap, with its root at index 1, begins at 2 * record_word. */
    uint32_t record_word, record_pages, record_used, record_held;
    /* The tenant's share of the disk. */
    struct list disk_entries; /* chunks that are entries, in the order in which they were stored */
    struct list disk_roots;   /* chunks of depth 0 */
    struct list disk_bare;    /* chunks that may be unneeded: they are removed in pieces */
    /* Nodes whose cold stores wait for records, oldest first. disk_due: the last copy is kept for
     * the store; disk_late: it was kept for DISK_KEEP_MS_MAX and no longer is. */
    struct list disk_due, disk_late;
    uint32_t disk_writing; /* the store that is writing a file; NONE */
    uint32_t disk_sweep;   /* at shutdown: next node to check; NONE: all are checked, or no sweep */
    uint32_t disk_pins;    /* pins of all its chunks */
    uint32_t disk_leaving; /* files in LEAVING, not removed yet */
    uint32_t disk_resets;  /* its reset roots, and files of reset namespaces, that still exist */
    uint64_t disk_used;    /* bytes of extents that are needed or are being written */
    struct disk_counts disk;
    uint64_t bytes_in_flight;
    uint64_t event_next; /* number of its next change, counted from 1 */
    uint64_t event_lost; /* number of its last change that was overwritten; 0: none */
};

struct eviction { /* see evictions.c */
    uint32_t on, zero;
    struct reply_to reply;
    struct pool_id pool; /* {NONE, 0}: all pools */
    uint32_t nodes_max;
    struct evicted told;
};

/* The records that each table finds, and their keys. TABLE_NODES: a prefix node, by its path and
 * parent. TABLE_SPACES: a namespace, with its pool. TABLE_CHUNKS: a chunk of the disk's index, by
 * its path and root; a root, by its namespace, tenant and layout. TABLE_EXTENTS: a chunk, by where
 * its HISTORY extent lies. */
enum hash_table { TABLE_NODES, TABLE_SPACES, TABLE_CHUNKS, TABLE_EXTENTS, HASH_TABLES };

struct table_place { /* see hashed.h */
    uint32_t records, mask, hashed_at, buckets_at;
};

/* The arena's arrays, in their order. `l`: the limits; `c`: the core.
 * R(name, limit): records of struct `name`, as many as that field of the limits. N: the same, but
 *   a record is larger than its struct.
 * A(type, name, at, limit): an array without ids, whose place is the field `at`. */
#define ARENA_TABLE(R, N, A)                                                                       \
    R(tenant, tenants)                                                                             \
    R(conn, conns)                                                                                 \
    R(engine, engines)                                                                             \
    R(pool, pools)                                                                                 \
    R(session, sessions)                                                                           \
    N(node, nodes)                                                                                 \
    R(space, namespaces)                                                                           \
    /* The tokens and extra keys of sessions and nodes, and of the disk's index. */                \
    A(struct token_block, block_at, blocks_at, l->token_blocks + l->disk_blocks)                   \
    A(uint32_t, block_next, block_next_at, l->token_blocks + l->disk_blocks)                       \
    A(struct key_record, key_at, keys_at, l->extra_keys + l->disk_keys)                            \
    R(page, pages)                                                                                 \
    R(slab, slabs)                                                                                 \
    R(retire, retires)                                                                             \
    /* Links to and from peers, and the link whose source is the disk. */                          \
    A(struct link, link_at, links_at, l->links + 1)                                                \
    R(pull, pulls)                                                                                 \
    R(ask, asks)                                                                                   \
    R(serve, serves)                                                                               \
    R(turn_record, turn_records)                                                                   \
    /* One bit for each page of record memory; 1: in use. */                                       \
    A(uint64_t, record_bits, record_bits_at, l->record_pages / 64)                                 \
    A(struct record_runs, record_runs, record_runs_at, l->record_pages / 64 * 2)                   \
    A(struct reset, reset_at, resets_at, l->resets)                                                \
    A(struct heard, heard_at, heards_at, (uint64_t)l->resets *(l->peers + 1))                      \
    A(struct tree_event, tree_event_at, tree_events_at, l->events * l->tenants)                    \
    R(disk_chunk, disk_chunks)                                                                     \
    R(disk_file, disk_files)                                                                       \
    A(struct disk_gone, disk_gone_at, disk_gones_at, disk_gone_most(l))                            \
    R(disk_store, disk_stores)                                                                     \
    A(struct share_holder, share_holder_at, share_holders_at, shares_holders(c->share))            \
    A(uint32_t, ticket_heap, tickets_at, l->sessions) /* sessions */                               \
    A(struct flow, flow_at, flows_at, c->share[SHARE_PULLS].holders)

struct core {
    struct core_limits limits;
    uint64_t incarnation, now_ns, changes, seq, bytes;
    uint32_t touched, draining, left_over;
    uint32_t node_bytes;           /* bytes of a node's record, with its groups */
    uint32_t visits;               /* records that this step has visited: see visits_left */
    uint32_t piece_most;           /* visits that the pieces share: see PIECE_VISITS_MAX */
    uint32_t piece_end;            /* visits at which a piece of work stops: see piece_begin */
    uint32_t nchanged;             /* nodes in the `changed` lists of all pools */
    uint32_t npinned;              /* nodes that operators pinned */
    uint32_t ask_turn;             /* the peer that the next question is sent to first */
    uint32_t nwaits;               /* connections that wait for a step */
    uint32_t nbehind;              /* engines with done_min below `passed` */
    uint32_t sweep_at, sweep_left; /* next node that reset_flush visits; how many are left */
    uint32_t nending;              /* engines that are ENDING */
    struct eviction eviction[EVICTIONS_MAX];
#define R(name, limit)                uint32_t name##s_at;
#define A(type, name, at, limit, ...) uint32_t at;
    ARENA_TABLE(R, R, A) /* offsets / 64 */
#undef A
#undef R
    uint32_t secret_at; /* offset / 64; from there to the end all depends on the secret */
    struct table_place table[HASH_TABLES];
    struct share_of_table share[SHARE_TABLES];
#define X(record, ...) struct free_list free_##record##s;
    ARENA_FREE_TABLE(X, X)
#undef X
    struct list checks;                /* turn records that are CHECKING or LEAVING */
    struct list seals_out, copies_out; /* nodes whose job is running */
    struct list copies_come; /* nodes whose load-back is acknowledged but not attached yet */
    uint32_t seals_queued, copies_queued; /* nodes in the lists of all tenants */
    uint32_t seals_running, copies_running;
    uint32_t seal_turn, copy_turn; /* the tenants whose nodes got the last jobs */
    uint64_t seal_bytes;           /* bytes of the nodes whose checksums are being computed */
    uint32_t host_corrupt;         /* nodes whose host pages do not match their checksums */
    uint32_t copies_lost;    /* copies lost so far; away sessions compare their own value with it */
    uint32_t away_looks;     /* how many of the `away` sessions to check, from the first on */
    struct list away;        /* sessions */
    struct list closing;     /* sessions */
    struct list tickets_due; /* sessions handed over that wait for what steps check, or end */
    uint32_t tickets_looks;  /* how many due tickets to check: see ticket_looks */
    uint32_t tickets;        /* sessions with a ticket, in a heap: the earliest expiry first */
    struct list turns;   /* sessions with a turn in flight: the turn that began first ends first */
    uint64_t ncloses;    /* sessions whose gate is CLOSED */
    uint32_t resets;     /* namespaces that were reset and still have a record */
    uint32_t members;    /* peer slots that are not vacant */
    uint32_t nspreading; /* resets that have not reached all peers */
    uint32_t resets_due; /* spreading resets that are due */
    uint64_t resets_until_ns; /* when the first reset that waits for peers ends; 0: none waits */
    uint64_t resets_begun;
    uint32_t disk_gone_first, disk_gone_last; /* in the order of their removal */
    struct list disk_stores;                  /* in the order in which they began */
    uint32_t disk_lost;                       /* files that are lost */
    struct list disk_leaving;                 /* files, in the order in which they are removed */
    uint32_t disk_turn;                       /* the tenant that wrote a file last */
    uint32_t disk_ready;                 /* 1: everything that an earlier run left was reported */
    uint32_t disk_file_found;            /* before that: the last file reported; NONE */
    uint32_t disk_checked;               /* after that: the next chunk to check */
    uint32_t disk_trimmed;               /* 1: what exceeded the budgets at recovery is removed */
    uint32_t disk_resets_over;           /* 1: the resets of a tenant are over */
    uint32_t disk_spared;                /* see disk/entries.c */
    uint32_t disk_bad;                   /* number of bad chunks and of roots that were reset */
    uint32_t disk_round;                 /* changes whenever another chunk turns bad */
    uint32_t disk_bad_at, disk_bad_left; /* next one that disk_bad_flush checks; how many left */
    uint32_t disk_let_go; /* changes when a chunk is unpinned or a file is gone for good; never 0 */
    uint64_t disk_next_file, disk_served_ns, disk_began_ns;
    uint64_t disk_pause_ns;    /* the last store failed: none begins before this time */
    uint64_t disk_shutdown_ns; /* the time when the daemon ends; 0: it does not */
    uint64_t event_next;
    struct list pulls_active, serves_active; /* in the order in which they began */
    struct list asks;
    uint32_t pull_turn; /* the tenant of the last page request */
    uint32_t nretires;
    uint32_t waits_changed; /* 1: an engine has waits_changed set */
    uint32_t nengines, npools, nclosing;
    struct steps_over over;
    struct histogram latency[LATENCIES];
    struct core_view counts; /* the counts that only grow; all else in it is 0 */
};

/* Each extent can be removed once before its chunk's record is used again, and each file once. */
static inline uint32_t disk_gone_most(const struct core_limits *l)
{
    return l->disk_chunks ? l->disk_chunks * DISK_PARTS + l->disk_files : 0;
}

static inline void *arena_part(const struct core *c, uint32_t at)
{
    return (char *)(uintptr_t)c + (size_t)at * 64;
}

/* NAME_at finds record i. An array's function finds element i. */
#define ARENA_FOUND(name, limit)                                                                   \
    static inline struct name *name##_at(const struct core *c, uint32_t i)                         \
    {                                                                                              \
        ARENA_BOUND(i, c->limits.limit);                                                           \
        return (struct name *)(void *)((char *)arena_part(c, c->name##s_at) +                      \
                                       i * name##_bytes(c));                                       \
    }                                                                                              \
    static inline uint32_t name##_limit(const struct core *c)                                      \
    {                                                                                              \
        return c->limits.limit;                                                                    \
    }
#define R(name, limit)                                                                             \
    static inline size_t name##_bytes(const struct core *c)                                        \
    {                                                                                              \
        (void)c;                                                                                   \
        return sizeof(struct name);                                                                \
    }                                                                                              \
    ARENA_FOUND(name, limit)                                                                       \
    static inline uint32_t name##_slot(const struct core *c, const struct name *record)            \
    {                                                                                              \
        return (uint32_t)(record - name##_at(c, 0));                                               \
    }
#define N(name, limit)                                                                             \
    static inline size_t name##_bytes(const struct core *c)                                        \
    {                                                                                              \
        return c->name##_bytes;                                                                    \
    }                                                                                              \
    ARENA_FOUND(name, limit)
#define A(type, name, at, limit)                                                                   \
    static inline type *name(const struct core *c, uint32_t i)                                     \
    {                                                                                              \
        const struct core_limits *l = &c->limits;                                                  \
                                                                                                   \
        (void)l;                                                                                   \
        ARENA_BOUND(i, limit);                                                                     \
        return (type *)arena_part(c, c->at) + i;                                                   \
    }
ARENA_TABLE(R, N, A)
#undef A
#undef N
#undef R

/* For records whose id is a slot and a generation. NAME_find returns NULL if the id is stale. */
#define ARENA_IDS(name, empty)                                                                     \
    static inline struct name##_id name##_id(const struct core *c, const struct name *record)      \
    {                                                                                              \
        return (struct name##_id){.slot = name##_slot(c, record), .gen = record->gen};             \
    }                                                                                              \
    static inline struct name *name##_find(const struct core *c, struct name##_id id)              \
    {                                                                                              \
        struct name *r = id.slot < name##_limit(c) ? name##_at(c, id.slot) : NULL;                 \
                                                                                                   \
        return r && r->state != (empty) && r->gen == id.gen ? r : NULL;                            \
    }

ARENA_IDS(engine, ENGINE_EMPTY)
ARENA_IDS(pull, PULL_EMPTY)
ARENA_IDS(serve, SERVE_EMPTY)

static inline uint32_t block_limit(const struct core *c)
{
    return c->limits.token_blocks + c->limits.disk_blocks;
}

static inline uint32_t key_limit(const struct core *c)
{
    return c->limits.extra_keys + c->limits.disk_keys;
}

static inline uint32_t disk_gone_limit(const struct core *c)
{
    return disk_gone_most(&c->limits);
}

/* Each tenant has a ring of limits.events changes. */
static inline struct tree_event *event_at(const struct core *c, uint32_t tenant, uint64_t own)
{
    return tree_event_at(c, tenant * c->limits.events + (uint32_t)(own % c->limits.events));
}

/* Returns the next tenant after `last`, in turn, whose list at offset `list` is not empty. At least
 * one must exist. */
static inline uint32_t next_tenant(const struct core *c, uint32_t last, size_t list)
{
    const struct list *l;

    do {
        last = (last + 1) % c->limits.tenants;
        l = (const struct list *)(const void *)((const char *)tenant_at(c, last) + list);
    } while (l->n == 0);
    return last;
}

/* Returns the peer's record of reset `r`. */
static inline struct heard *heard_of(const struct core *c, const struct reset *r, uint32_t peer)
{
    return heard_at(c, (uint32_t)(r - reset_at(c, 0)) * c->limits.peers + peer);
}

ARENA_LIST(page_list, page, in_list)
ARENA_LIST(slab_list, slab, in_list)
ARENA_LIST(space_list, space, in_pool)
ARENA_LIST(idle_list, space, idle)
ARENA_LIST(keyed_list, node, keyed)
ARENA_LIST(due_list, node, due)
ARENA_LIST(child_list, node, sibling)
ARENA_LIST(reclaim_list, node, state.reclaim)
ARENA_LIST(changed_list, node, room.changed)
ARENA_LIST(seal_list, node, work.seal_queue)
ARENA_LIST(copy_list, node, work.copy_queue)
ARENA_LIST(session_list, session, in_engine)
ARENA_LIST(away_list, session, in_away)
ARENA_LIST(closing_list, session, in_away)
ARENA_LIST(ticket_list, session, in_tickets)
ARENA_LIST(turn_list, session, in_turns)
ARENA_LIST(closes_list, session, in_turns)
ARENA_LIST(conn_turn_list, session, in_conn)
ARENA_LIST(retire_list, retire, in_engine)
ARENA_LIST(pull_list, pull, active)
ARENA_LIST(ask_list, ask, active)
ARENA_LIST(serve_list, serve, active)
ARENA_LIST(record_list, turn_record, in_list)
ARENA_LIST(disk_child_list, disk_chunk, sibling)
ARENA_LIST(disk_entry_list, disk_chunk, in_entries)
ARENA_LIST(disk_store_list, disk_store, in_list)
ARENA_LIST(disk_leaving_list, disk_file, in_list)

/* Generation 0 is never valid. */
static inline uint32_t gen_next(uint32_t gen)
{
    return gen + 1 ? gen + 1 : 1;
}

static inline void touch(struct core *c)
{
    c->touched = 1;
}

/* Returns how many records this step may still visit, for loops whose length is not bounded by the
 * request: evicting, counting, closing, sweeping. Such a loop adds to c->visits for every record,
 * stops when this returns 0, and continues in the next step. core_step checks the sum. */
static inline uint32_t visits_left(const struct core *c)
{
    return c->visits < STEP_VISITS_MAX - STEP_PATH_MAX ? STEP_VISITS_MAX - STEP_PATH_MAX - c->visits
                                                       : 0;
}

/* Counts the visits of a walk that changes nothing and that a path bounds. */
static inline void walked(struct core *c, uint32_t nodes)
{
    c->visits += nodes / NODES_A_VISIT;
}

/* Begins a piece of work. The piece stops at the returned end and continues in a later step or
 * request. */
static inline uint32_t piece_begin(struct core *c)
{
    uint32_t end = c->visits + (visits_left(c) > 0 ? PIECE_VISITS_LEAST : 0);

    return c->piece_end = end > c->piece_most ? end : c->piece_most;
}

/* Returns the end of a piece that frees what this step or an earlier one released. */
static inline uint32_t give_back_end(const struct core *c)
{
    return c->limits.give_back_visits ? c->limits.give_back_visits : c->piece_end;
}

static inline uint32_t give_back_begin(struct core *c)
{
    uint32_t end = piece_begin(c), given = c->limits.give_back_visits;

    return given ? c->visits + given : end;
}

/* Returns the number of visits after which the operations of a Step are BUSY, except a Close. */
static inline uint32_t batch_end(const struct core *c)
{
    return c->limits.give_back_visits ? c->limits.give_back_visits : BATCH_VISITS_MAX;
}

static inline bool piece_over(const struct core *c)
{
    return c->visits >= c->piece_end;
}

/* For work that is never repeated: only the end of the step stops it. Returns the end of the
 * enclosing piece, which the caller restores. */
static inline uint32_t piece_whole(struct core *c)
{
    uint32_t end = c->piece_end;

    c->piece_end = STEP_TURNS_MAX;
    return end;
}

/* Returns true if something that was released is still to be freed. */
static inline bool gives_back(const struct core *c)
{
    return c->nbehind + c->closing.n + c->nending > 0;
}

static inline uint32_t div_up(uint32_t n, uint32_t d)
{
    return n / d + (n % d != 0);
}

#include "core/arena/held_shares.h"

/* Returns the deepest node of the path not below state_from, in hops logarithmic in its depth. */
uint32_t node_above(const struct core *c, struct path path);

/* The condition of a due ticket may be met now: check each of them once. */
static inline void ticket_looks(struct core *c)
{
    c->tickets_looks = c->tickets_due.n;
}

/* The passed step or the awaited steps have changed: waits_flush has to check. */
static inline void waits_look(struct core *c, struct engine *e)
{
    ticket_looks(c);
    if (e->nwaits == 0 && e->nfollowed == 0)
        return;
    e->waits_changed = c->waits_changed = 1;
    touch(c);
}

/* Adds to the figures of a namespace, of its pool and of its tenant. */
static inline void count_figure(struct core *c, uint32_t space, enum figure f, uint64_t n)
{
    struct space *s = space_at(c, space);
    struct pool *p = pool_at(c, s->pool);

    s->figures.v[f] += n;
    p->figures.v[f] += n;
    tenant_at(c, p->tenant)->figures.v[f] += n;
}

static inline void count_time(struct core *c, enum latency l, uint64_t ns)
{
    histogram_add(&c->latency[l], ns);
}

static inline void count_since(struct core *c, enum latency l, uint64_t since_ns)
{
    count_time(c, l, c->now_ns - since_ns);
}

#endif
