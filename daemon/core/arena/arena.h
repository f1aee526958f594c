/* The inside of the core: the records of the arena; those of transfers are in transfer_records.h,
 * those of the disk tier in disk_records.h.
 * Used by daemon/core/ alone, and by tests that audit it. Records refer to each other by index
 * (NONE for none), never by address, and hold no implicit padding that matters: they are written
 * field by field in zeroed memory, so equal histories give equal bytes. */
#ifndef CORE_ARENA_H
#define CORE_ARENA_H

#include <assert.h>

#include "base/check.h"
#include "base/err.h"
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
    64 /* one process may be in all of them, and its exit is one event with an action for each */
#define SLABS_PER_POOL 1024 /* a pool aims at this many slabs or a little more */

static_assert(RANKS_MAX <= 64, "regions are the bits of a set");

struct page {
    uint32_t gen;
    struct list_links in_list; /* its owner's; `next` too where it is free, or one of a node's */
    uint32_t chain;            /* RESERVED: next page of the same pull batch, or of the retry list.
                                  LEASED: see session/leases.c */
    uint32_t index;            /* within its group */
    uint32_t owner; /* slot of the engine, session, node, retire record or pull, by state */
    union {
        struct page_ref source; /* RESERVED: what to ask the peer for, if `named` */
        uint64_t step; /* COMMITTED by an engine: what its commit named; 0: nothing was in flight */
    };
    uint8_t state, group, tries;
    uint8_t seal;  /* enum page_seal_state */
    uint8_t named; /* RESERVED: 1: the source has offered it. Of spans, the first page is */
    uint8_t zero;
    uint16_t pool;
};

struct slab {
    struct list_links in_list; /* its group's partial ones where it has FREE pages, or the pool's
                                  free ones where it is unassigned */
    uint32_t free_head, nfree;
    uint32_t group;      /* whose pages its records are formatted for; NONE: never used */
    uint32_t assigned;   /* 1 while the group holds it */
    uint32_t obtainable; /* pages that eviction would free: see tree/obtain.h */
};

struct group {
    struct group_layout layout;
    uint32_t pages_per_slab, held; /* slabs */
    struct list partial;           /* slabs with free pages */
    uint32_t count[PAGE_STATES];   /* FREE counts pages in held slabs */
    uint32_t peak_owned, peak_committed;
    uint32_t segment;     /* pages of a node's segment */
    uint32_t reach;       /* STATE: nodes whose segments make a window. HISTORY: 0 */
    uint32_t reclaimable; /* COMMITTED pages that no resume point needs any more (T10) */
    uint32_t obtainable;  /* pages that eviction would free, and the slabs that it would */
    uint32_t loose;       /* empty: see tree/obtain.h */
    uint32_t promised;    /* free pages that sessions will take which retract or come back */
    uint32_t index;       /* in pool.group */
};

/* Of a pool: LEAF: leaves of the device tier that may go. STATE: nodes whose STATE may go alone.
 * HOST: leaves of the host tier. ALONE: leaves of the tree that are not on the device. RESET:
 * leaves on both of a namespace that was reset. Where the host is written behind: CLEAN: leaves of
 * the reserve whose copy is there. NEXT: nodes that may join the reserve. SPARE: host copies of
 * what the device has, too, and keeps; the most recently used comes first. Of a node: CLAIM: the
 * children at or below which there is a claim, the nearest first. */
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

struct heap_links { /* rank: of a leftist heap, 1 or more; 0: the node is in none */
    uint32_t left, right, up, rank;
};

struct pool {
    uint32_t gen, state, tenant, ngroups;
    uint32_t align;   /* L */
    uint32_t engines; /* engines that opened or mapped it and are not gone */
    uint32_t opener;  /* for views: slot of one of those engines, the first if it is there; NONE */
    uint32_t sessions, nodes, serves;
    uint32_t page_base, pages_per_slab_max; /* records */
    uint32_t slab_base, nslabs;
    struct list free_slabs;
    uint32_t
        heap[POOL_HEAPS]; /* HEAP_LEAF: evictable leaves. HEAP_STATE: nodes whose STATE may go */
    struct list reclaim;  /* nodes with superseded STATE, oldest first */
    struct list changed;  /* nodes of which the counters know too little */
    uint32_t nstate, reach, window_max; /* STATE groups; the largest reach and window of them */
    uint32_t resumed_anew;              /* nodes of SUCCESSOR_EARLIER */
    uint32_t supersede;
    uint32_t close_at;         /* CLOSING: the next node to look at for a pin; NONE: all were */
    struct list spaces;        /* namespaces */
    struct list keyed;         /* nodes with extra keys: who is to make way next comes first */
    uint32_t node_keys;        /* extra keys of its nodes */
    uint32_t regions;          /* ranks of the engines that use it: each has one */
    uint32_t transfer_regions; /* that a transfer moves: 1 where all hold the same bytes (X5) */
    uint32_t tier;
    uint32_t tiers[TIER_COUNT]; /* the pools that are its tiers, each with this array; NONE */
    uint32_t host_write;        /* enum host_write */
    uint32_t resident;          /* nodes that are on the device */
    uint32_t reserved;          /* of those, the ones of the reserve */
    uint32_t loads;             /* that wait for copies from the host */
    uint32_t writebacks;        /* copies to the host that are queued or run */
    uint32_t host_stores;       /* stores that read what the host has */
    uint32_t stores_due;        /* stores for which something is kept: see node_due */
    struct node_id going;       /* of a subtree that goes in pieces: where the last one stopped */
    uint32_t ahead[TIER_COUNT]; /* the node that leaves the tier next, and its generation, as of */
    uint32_t ahead_gen[TIER_COUNT];     /* when it was stored on the disk for that, or was there */
    uint64_t copy_moved_ns;             /* when one of them was queued or ended last */
    uint64_t offset, bytes, slab_bytes; /* the same in each of its regions, and only there */
    uint64_t region_set;                /* bit a region of the tenant */
    uint8_t region[RANKS_MAX];          /* of rank r */
    uint64_t layout_hash, opened_seq;
    uint64_t fields_hash; /* 0: transfers go to and from pools of the same layout alone */
    uint64_t copies; /* 1: resharded to a pool of the same layout, too, less of it moves (X5) */
    struct figure_counts figures;
    struct group group[GROUPS_MAX];
};

struct space { /* a namespace within a pool */
    struct namespace_id ns;
    uint32_t pool, root, used;
    struct list_links in_pool;
    uint32_t reset;         /* N1: never found again; its nodes go as their pins end */
    uint32_t nodes;         /* without the root */
    uint32_t held;          /* pins of its nodes, on any tier */
    struct list_links idle; /* in its tenant's list while nobody holds it */
    struct figure_counts figures;
};

/* The tiers that have all of a node's HISTORY, as bits of node.residency; on the host it has been
 * acknowledged. The device is closed towards the root. On the host an ancestor may be on either
 * tier. */
#define ON_DEVICE (1u << TIER_DEVICE)
#define ON_HOST   (1u << TIER_HOST)

/* STATE of a node: who needs its segment (state.c). Whether one can resume here is derived each
 * time, never stored. */
struct node_state {
    uint32_t resume, successor; /* enum resume_state, enum successor_state */
    uint32_t claims_window;     /* 1: a resume point that needs the nodes of its window */
    uint32_t claim; /* the depth of the nearest claim at or below it, within the pool's reach; 0 */
    uint32_t claims_below; /* its HEAP_CLAIM */
    uint32_t bound;        /* of a walk: see state_resumable */
    uint32_t borrowers;
    uint32_t host_borrowers;   /* of those, the ones that are content with the host's copy */
    uint32_t refilling;        /* groups, as bits, whose refill waits for its step */
    struct list_links reclaim; /* superseded: in the pool's list */
};

/* What a node has on one tier, beside its pages. */
struct node_tier {
    uint32_t children; /* that are there */
    uint32_t corrupt;  /* 1: these pages do not agree with their checksums */
};

/* What is under way with a node: its commit's step, its checksums, its copy to the other tier. */
struct node_work {
    uint64_t publish_step; /* of a refill: 0 until its commit has ended */
    uint64_t since_ns;     /* of a commit; then, that others see it. 0: neither is timed */
    uint32_t publish_next; /* in the list of a retire record */
    uint32_t seal;         /* enum seal_state */
    struct list_links seal_queue;
    uint32_t copy, copy_gen; /* enum copy_state */
    struct list_links copy_queue;
    uint8_t copy_from, copy_to; /* enum tier, while there is a copy */
    uint8_t copy_tries;         /* writebacks of it that failed in a row */
    uint32_t loaders;           /* loads that need this node on the device */
    uint32_t stores_due;        /* that keep the last copy of it, or of its STATE: see node_due */
};

/* What keeps a node where it is, as the counters know it: see tree/obtain.h. */
struct node_room {
    struct list_links changed; /* in its pool's list */
    uint32_t kept[TIER_COUNT];
    uint32_t counted[TIER_COUNT]; /* groups, as bits */
    uint8_t own[TIER_COUNT], in[TIER_COUNT], passes[TIER_COUNT];
    /* While obtain_later counts, else 0: it was counted, and its children that were. */
    uint8_t looked;
    uint16_t looked_below;
};

/* The size of a node's path on the disk, and its chunk there, as far as that was looked for. */
struct node_disk {
    uint64_t bytes; /* of HISTORY */
    uint32_t keys;
    uint32_t chunk, gen, round; /* gen 0: none; round: disk_round when it was found */
};

/* The pages of a node in one group: heads, in page_tokens order, L / page_tokens each. */
struct node_group {
    uint32_t pages[TIER_COUNT]; /* acknowledged */
    uint32_t copying;           /* COPYING, of the tier that is written */
};

struct node { /* one L-chunk under its parent; a root has depth 0 and neither tokens nor pages */
    /* The first cache line is all that a match reads, beside the pages. */
    _Alignas(64) uint32_t parent;
    uint32_t depth;
    struct list children;    /* newest first */
    uint32_t residency;      /* ON_DEVICE, ON_HOST */
    uint32_t tokens, keys;   /* heads in the token store and the extra-key store */
    uint32_t pending_engine; /* NONE: its step has passed */
    struct node_tier tier[TIER_COUNT];
    uint32_t gen, pool, space, used;
    uint32_t refs[REF_KINDS], nrefs;
    struct node_room room;
    struct list_links sibling; /* `next` too where the record is free */
    struct list_links keyed;   /* in its pool's list while it has extra keys */
    struct list_links due; /* in a list of its tenant while a cold store of it waits for a record */
    uint8_t announced;     /* what subscribers know of it: see events.c */
    uint8_t reserved;      /* 1: of the reserve: its copy is on the host, or on its way there */
    uint64_t due_ns;       /* since it is in disk_due; 0: it is in disk_late, or in neither */
    uint32_t reserved_children;
    uint32_t jump; /* an ancestor further up: see node_above */
    struct node_disk disk;
    uint64_t seq;
    uint64_t chain;                 /* of all tokens up to here, public; it indexes nothing */
    uint64_t last_use, last_use_ns; /* last_use: T13's tick, the core's changes at that event */
    uint64_t admin_ns;
    struct heap_links heap[HEAPS];
    struct node_state state;
    struct node_work work;
    struct node_group group[]; /* limits.groups */
};

/* The path from the root down to `node`, with the STATE of those of its nodes that are deeper than
 * `state_from`: what a session or a transfer borrows, or needs on a tier. */
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

/* A load of a session from the host tier. */
struct load {
    uint32_t state; /* enum load_state */
    uint32_t at;    /* where its walk goes on; RETRACTING: where copies begin; NONE: all have */
    uint32_t state_from, low; /* it needs STATE deeper than that, and walks as far up as `low` */
    uint32_t from;      /* the committed length before: it borrows deeper STATE of held nodes */
    uint32_t pin, host; /* what is on the device already, pinned TRANSFER; what a fetch pins HOST */
    uint32_t kib;
    struct path hold;  /* the nodes that have it among their loaders; node NONE: none has */
    struct list begun; /* copies: all of them are queued together, the highest node first */
};

struct session {
    uint32_t gen, state, engine, pool, space;
    uint32_t gen_last;  /* the last generation that a handle of this slot got: the session's own, or
                           that of a turn */
    uint32_t gate;      /* enum gate_state */
    uint32_t turn_gen;  /* of the turn in flight */
    uint32_t turn_conn; /* whose turn that is */
    struct list_links
        in_turns; /* CLAIMED, CLOSING: of all turns; CLOSED: of its tenant's `closes` */
    uint64_t turn_begun_ns;
    struct list_links in_engine, in_conn;
    uint32_t node; /* pinned DEVICE; the path to it is the borrowed part of the table. NONE: empty
                      table */
    uint32_t committed, written, allocated; /* tokens; each at least what the one before is */
    uint32_t state_from;        /* it borrows the STATE of the nodes of its path deeper than this */
    uint32_t base[GROUPS_MAX];  /* first owned logical page; HISTORY: committed / page_tokens */
    uint32_t first[GROUPS_MAX]; /* WINDOW: the first that has not left the table (T5, T7) */
    /* From this length on its windows are whole: a fetch from smaller pages has filled its first
     * one only in part (N3). 0: they are at every length. */
    uint32_t whole_from;
    uint32_t finished;  /* tokens at the last Finish */
    uint32_t releasing; /* pages behind what is allocated, what is left of a load, or of what an
                           Abort ended, are still to be given back, in pieces */
    uint32_t pull;
    SESSION_KEEPS
    struct token_buf tokens;
    struct list owned[GROUPS_MAX];
    struct list records;      /* KEPT turn records, in the order of their turns */
    uint32_t prepared;        /* the turn record that is PREPARED or CHECKING; NONE */
    uint32_t rolled;          /* records that were rolled back since the last append (M3) */
    uint32_t blobs_kept;      /* M1: of the last so many records; 0: of all */
    uint32_t records_lent;    /* 1: the turn in flight was told pages of records */
    uint32_t records_exposed; /* tokens that were recorded when such a turn ended without saying
                                 so: what goes of their records is HELD */
    uint32_t record_pages;    /* of its turn records, the one that is prepared with them */
    uint32_t blob_pages;      /* of these, those of blobs */
    uint32_t fetched;         /* 1: a fetch was begun since the last Match */
    uint64_t last_use_ns;
    uint64_t ref_since_ns;
    /* RETRACTING, RETRACTED, LOADING; in one list over all engines. */
    struct list_links in_away; /* CLOSING, or releasing: in the list of those that are */
    uint32_t record;           /* likewise: the release that takes what goes; NONE: that is free */
    uint32_t held;             /* enum ref_kind by which it holds `node` */
    uint32_t disk_stored;      /* D1: the last boundary at which it was stored, or is being */
    uint32_t disk_cold;        /* D2: where a cold store is due; 0: none */
    uint32_t back_to;          /* the state that it had */
    uint32_t target; /* LOADING: the node to be reached. RETRACTING: the nodes of the path below
                        the target are on the host */
    struct load load;
    uint32_t lent_from; /* it borrows the host's copies of the STATE of the nodes of its path
                           deeper than this, but for those that have it among their loaders;
                           UINT32_MAX: of none */
    struct path left;   /* what an Abort ended, and is still held by a pin of that kind; node NONE:
                           nothing */
    uint32_t left_kind; /* enum ref_kind */
    uint32_t promised[GROUPS_MAX]; /* RETRACTING: of the host tier. LOADING: of the device */
    uint32_t copies_lost;          /* what the core's was when it was looked at */
    uint64_t slid_step; /* the last that may touch borrowed pages which it slid over: what it still
                           borrows of their nodes does not end before that */
    /* See session/tickets.h. HANDED: its engine is NONE from QUEUED on. */
    struct list_links in_tickets; /* of those that are due */
    uint32_t ticket_at;           /* in the heap of tickets, while there is one */
    uint32_t follower;            /* the transfer out that follows it, and was not offered its end;
                                     NONE */
    uint32_t ticket_state;
    uint32_t ticket_due;  /* 1: it is in the list of those that are due */
    uint32_t ticket_ends; /* 1: taken, dropped or too late: it goes when nothing reads it */
    uint32_t blob_bytes;
    uint64_t ticket_key[2], ticket_step, ticket_until_ns;
    struct token_buf blob;
};

/* A span of pages of record memory: by how many pages the free run at its head, that at its tail
 * and its longest one are shorter than the span. Zeroed memory is a free span. */
struct record_runs {
    uint32_t head, tail, longest;
};

struct turn_record { /* see memory/record_pages.h */
    uint32_t gen, state, tenant, kind;
    uint32_t session;          /* that it is of; NONE: LEAVING or HELD */
    uint32_t turn_gen;         /* the turn that prepared it */
    uint32_t pages;            /* of all its sections */
    uint32_t conn;             /* CHECKING, LEAVING: whom to answer; NONE: nobody */
    struct list_links in_list; /* KEPT: of its session's; HELD: of its engine's; CHECKING and
                                  LEAVING: of those that are checked. `next` too where it is free */
    uint64_t request_id, trace_id, step;
    struct list_hash hash; /* KEPT: of the list up to its length */
    struct record_body body;
};

struct retire { /* what waits until every rank of an engine has passed a step */
    uint64_t step;
    struct list_links in_engine;
    struct path pin; /* a DEVICE pin that ends, and its borrows of STATE with it; node NONE: none */
    uint32_t pending; /* nodes that become visible */
    uint32_t pool;    /* that its pages are of, and how many of each group: a shortage tells them */
    uint32_t pages_of[GROUPS_MAX];
    struct list pages;
    uint32_t session; /* that is CLOSING or releasing, and puts its pages here; NONE */
    uint32_t turned;  /* 1: the nodes are in the order in which they become visible */
};

struct proc_of {
    uint32_t proc, alive;
};

struct engine {
    uint32_t gen, state, tenant, world;
    char name[ENGINE_NAME_MAX];
    struct proc_of procs[PROCS_PER_ENGINE_MAX]; /* [rank], and the pure scheduler last */
    uint32_t conns[PROCS_PER_ENGINE_MAX];
    uint32_t alive, joined; /* processes; ranks */
    struct list sessions, retires;
    struct list held_records;        /* turn records */
    struct list leased;              /* pages, of whatever pool and group */
    uint32_t leased_of[POOLS_LIMIT]; /* how many of them are of each pool */
    uint64_t pools;
    uint64_t region_set;       /* those that its ranks live in, bit a region of the tenant */
    uint8_t region[RANKS_MAX]; /* of rank r, once it has joined */
    uint32_t devices_named;    /* 1: its ranks name their devices. 0: region r is rank r's */
    uint32_t nwaits;           /* connections of it that wait for a step */
    uint32_t nfollowed;        /* sessions of it that a transfer out follows (Y4) */
    uint32_t drop_at; /* ENDING: the first retire record whose pages and pin are not free */
    uint32_t leases;  /* 1: it has had pages leased, and so may use a session before it says so */
    uint32_t zero;
    uint64_t named;            /* the highest step that a request of it named */
    uint64_t shown[RANKS_MAX]; /* what each rank's done_step was when it was last read */
    uint64_t done[RANKS_MAX];  /* the last one that counts: shown, where that did not jump (E7) */
    uint64_t passed;           /* the last step that every rank has passed */
    uint64_t done_min;         /* likewise; and all that waited for it was given back */
    uint64_t waits_since_ns; /* while it has retire records: since when no step of it has passed */
    uint64_t wanted;         /* the lowest step that is waited for, as was last told; 0 */
    uint32_t jumps;          /* readings that no rank can have reached */
    uint32_t waits_changed;  /* 1: some may be over, or the lowest be another */
};

struct conn {
    uint32_t open, tenant, proc, admin;
    uint32_t gen, zero;    /* of what is open here: whom to answer later is named with it */
    struct list turns;     /* sessions whose turn in flight began on it */
    uint32_t engine, seat; /* index in engine.procs; engine NONE: has not joined */
    uint64_t wait_step;    /* that it waits for; 0: for none */
    uint64_t wait_request, wait_trace;
};

struct reset { /* see session/resets.c */
    uint32_t state, tenant;
    struct namespace_id ns;
    uint64_t id;
    uint64_t origin, number; /* the incarnation where it began; the how manieth there */
    uint32_t conn;           /* of the engine that waits for the answer; NONE */
    uint32_t link;           /* of the peer that told us and is to be answered; NONE */
    uint64_t request_id, trace_id;
    uint32_t nodes;
    uint32_t own;  /* 1: it began here */
    uint32_t due;  /* 1: who has heard of it, or who is connected, has changed: see reset_spread */
    uint32_t hops; /* how far the peer that told us is from the origin */
    uint64_t until_ns; /* ASKED: who has not answered by then counts as one that heard in part.
                          OVER: since then */
};

struct heard { /* of a reset, by a peer */
    uint32_t state;
};

struct tree_event { /* see events.h */
    uint64_t seq;
    struct namespace_id ns;
    uint64_t chain, parent_chain;
    uint16_t kind, tiers; /* tiers: a bit each, after the change */
    uint32_t pool, pool_gen, depth;
    uint32_t node, node_gen; /* whose tokens may still be read, while that is its generation */
};

struct tenant {
    struct tenant_config config;
    uint32_t sessions;
    uint32_t undone;     /* retracts that came to nothing, since a copy was given up */
    uint32_t pull_turn;  /* the link over which it asked for pages last */
    uint32_t room_kept;  /* as a link's */
    uint32_t batches;    /* those of its transfers */
    uint32_t urgent_run; /* of its batches: how many in a row were none of a prefetch */
    struct list closes;  /* sessions whose gate is CLOSED, in the order in which they are closed */
    uint64_t turns, turns_begun, turns_expired, turns_lost; /* see struct turns_view */
    struct tickets_view tickets;
    struct figure_counts figures;
    struct list idle; /* namespaces that nobody holds: who was given up first comes first */
    struct list seals_queued, copies_queued; /* nodes that wait for a job, the oldest first */
    /* The bitmap of its record memory begins at record_word, a bit a page; a binary tree over these
     * words, whose root is 1, begins at twice that. */
    uint32_t record_word, record_pages, record_used, record_held;
    /* Its part of the disk. */
    struct list disk_entries; /* chunks: what was stored first comes first */
    struct list disk_roots;   /* chunks of depth 0 */
    struct list disk_bare;    /* chunks that perhaps nobody needs: they go in pieces */
    /* Nodes whose cold stores wait for records, the oldest first: those whose last copy is kept for
     * that, and those of which it was kept for DISK_KEEP_MS_MAX. */
    struct list disk_due, disk_late;
    uint32_t disk_writing; /* the store that writes a file now; NONE */
    uint32_t disk_sweep;   /* at shutdown: the next node to look at; NONE: all were, or none */
    uint32_t disk_pins;    /* of all its chunks */
    uint32_t disk_leaving; /* files that are not gone yet */
    uint32_t disk_resets; /* roots of it that were reset, and files of such that are not gone yet */
    uint64_t disk_used;   /* bytes of extents that are needed, or are being written */
    struct disk_counts disk;
    uint64_t bytes_in_flight;
    uint64_t event_next; /* which of its changes is the next, from 1 */
    uint64_t event_lost; /* number of the last of its changes that was overwritten; 0: none was */
};

struct eviction {      /* see evictions.c */
    uint32_t on, conn; /* conn NONE: nobody waits for the answer */
    uint64_t request_id, trace_id;
    struct pool_id pool; /* {NONE, 0}: all */
    uint32_t nodes_max;
    struct evicted told;
};

/* TABLE_NODES: a prefix node by its path, with its parent. TABLE_SPACES: a namespace, with its
 * pool. TABLE_CHUNKS: a chunk of the disk's index by its path, with its root; a root by its
 * namespace, tenant and layout. TABLE_EXTENTS: such a chunk by where its HISTORY lies. */
enum hash_table { TABLE_NODES, TABLE_SPACES, TABLE_CHUNKS, TABLE_EXTENTS, HASH_TABLES };

struct table_place { /* see hashed.h */
    uint32_t records, mask, hashed_at, buckets_at;
};

struct core {
    struct core_limits limits;
    uint64_t incarnation, now_ns, changes, seq, bytes;
    uint32_t touched, draining, left_over;
    uint32_t node_bytes;           /* of a node's record, with its groups */
    uint32_t visits;               /* records that this step has looked at: see visits_left */
    uint32_t piece_most;           /* visits that the pieces share: see PIECE_VISITS_MAX */
    uint32_t piece_end;            /* visits at which a piece of work stops: see piece_begin */
    uint32_t nchanged;             /* nodes in the `changed` lists of all pools */
    uint32_t npinned;              /* nodes that operators pinned */
    uint32_t ask_turn;             /* the peer that the next question begins at */
    uint32_t nwaits;               /* connections that wait for a step */
    uint32_t nbehind;              /* engines with done_min below `passed` */
    uint32_t sweep_at, sweep_left; /* the next node that reset_flush looks at, and how many */
    uint32_t nending;              /* engines that are ENDING */
    struct eviction eviction[EVICTIONS_MAX];
    uint32_t tenants_at, conns_at, engines_at, pools_at, sessions_at, nodes_at, spaces_at,
        blocks_at, block_next_at, keys_at, pages_at, slabs_at, retires_at, links_at, pulls_at,
        asks_at, serves_at, turn_records_at, record_bits_at, record_runs_at, share_holders_at,
        flows_at;       /* offsets / 64 */
    uint32_t secret_at; /* likewise: of what depends on the secret, up to the end */
    uint32_t tables_zero;
    struct table_place table[HASH_TABLES];
    struct share_of_table share[SHARE_TABLES];
    struct free_list free_sessions, free_nodes, free_spaces, free_blocks, free_keys, free_retires,
        free_pulls, free_asks, free_serves, free_turn_records;
    struct list checks;                /* turn records that are CHECKING or LEAVING */
    struct list seals_out, copies_out; /* nodes of which a job runs */
    struct list copies_come; /* nodes whose load-back is acknowledged, and not taken in yet */
    uint32_t seals_queued, copies_queued; /* in the lists of all tenants */
    uint32_t seals_running, copies_running;
    uint32_t seal_turn, copy_turn; /* the tenants whose nodes jobs began with last */
    uint64_t seal_bytes;           /* of the nodes whose checksums are being computed */
    uint32_t host_corrupt;         /* nodes whose host pages do not agree with their checksums */
    uint32_t copies_lost;    /* copies that will not come, counted: those away look for them */
    uint32_t away_looks;     /* so many of those away are to be looked at, from the first on */
    struct list away;        /* sessions */
    struct list closing;     /* likewise */
    struct list tickets_due; /* sessions that were handed over and wait for something that a step
                                looks for, or end */
    uint32_t tickets_looks;  /* so many of them are to be looked at: see ticket_looks */
    uint32_t tickets;    /* sessions with a ticket, in a heap: whose time is over first is first */
    uint32_t tickets_at; /* offset / 64 */
    uint32_t tickets_zero;
    struct list turns;        /* sessions with a turn in flight: what began first ends first */
    uint64_t ncloses;         /* sessions whose gate is CLOSED */
    uint32_t resets;          /* namespaces that are being swept */
    uint32_t members;         /* slots of peers that are not vacant */
    uint32_t nspreading;      /* resets of which not all peers have heard */
    uint32_t resets_due;      /* those of them that are due */
    uint64_t resets_until_ns; /* when the first that waits for peers is over; 0: none waits */
    uint64_t resets_begun, namespaces_reset;
    uint32_t resets_at, heard_at;                                          /* offsets / 64 */
    uint32_t disk_chunks_at, disk_files_at, disk_stores_at, disk_gones_at; /* likewise */
    struct free_list free_disk_chunks, free_disk_files, free_disk_stores, free_disk_gones;
    uint32_t disk_gone_first, disk_gone_last; /* in the order in which they went */
    struct list disk_stores;                  /* in the order in which they began */
    uint32_t disk_lost;                       /* files that are lost */
    struct list disk_leaving;                 /* files, in the order in which they are given back */
    uint32_t disk_turn;                       /* the tenant that wrote a file last */
    uint32_t disk_ready;                      /* 1: what an earlier run has left was told */
    uint32_t disk_file_found;                 /* before: the file that it was told of last; NONE */
    uint32_t disk_checked;                    /* after: the next chunk to look at */
    uint32_t disk_trimmed;                    /* 1: of that, what was over the budgets has gone */
    uint32_t disk_resets_over;                /* 1: of some tenant */
    uint32_t disk_spared;                     /* see disk/entries.c */
    uint32_t disk_bad;                        /* chunks that are bad, and roots that were reset */
    uint32_t disk_round;                      /* other when one more chunk is bad */
    uint32_t disk_bad_at, disk_bad_left;      /* the next chunk to look at for what leads through
                                                 one, and how many are left of this round */
    uint32_t disk_let_go; /* changes when a chunk is let go, or a file is gone for good; never 0 */
    uint64_t disk_next_file, disk_served_ns, disk_began_ns;
    uint64_t disk_pause_ns;    /* no store begins before that: the last one failed */
    uint64_t disk_shutdown_ns; /* the daemon ends then; 0: it does not */
    uint32_t events_at;        /* offset / 64 */
    uint64_t event_next;
    struct list pulls_active, serves_active; /* in the order in which they began */
    struct list asks;
    uint32_t pull_turn; /* the tenant that asked for pages last */
    uint32_t nretires;
    uint32_t waits_changed; /* 1: of some engine */
    uint32_t nengines, npools, nclosing;
    struct steps_over over;
    struct histogram latency[LATENCIES];
    uint64_t corrupt_detected, pages_pulled, pages_served, dup_chunks;
    uint64_t host_copies, host_copies_failed, host_copies_again, host_uncopied, host_loads,
        retracts, recovers;
};

#define ARENA_RECORDS(type, name, limit)                                                           \
    static inline struct type *name##_at(const struct core *c, uint32_t i)                         \
    {                                                                                              \
        ARENA_BOUND(i, c->limits.limit);                                                           \
        return (struct type *)((char *)(uintptr_t)c + (size_t)c->name##s_at * 64) + i;             \
    }                                                                                              \
    static inline size_t name##_bytes(const struct core *c)                                        \
    {                                                                                              \
        (void)c;                                                                                   \
        return sizeof(struct type);                                                                \
    }                                                                                              \
    static inline uint32_t name##_limit(const struct core *c)                                      \
    {                                                                                              \
        return c->limits.limit;                                                                    \
    }                                                                                              \
    static inline uint32_t name##_slot(const struct core *c, const struct type *record)            \
    {                                                                                              \
        return (uint32_t)(record - name##_at(c, 0));                                               \
    }

ARENA_RECORDS(tenant, tenant, tenants)
ARENA_RECORDS(conn, conn, conns)
ARENA_RECORDS(engine, engine, engines)
ARENA_RECORDS(pool, pool, pools)
ARENA_RECORDS(session, session, sessions)
ARENA_RECORDS(space, space, namespaces)
ARENA_RECORDS(page, page, pages)
ARENA_RECORDS(slab, slab, slabs)
ARENA_RECORDS(retire, retire, retires)
ARENA_RECORDS(pull, pull, pulls)
ARENA_RECORDS(ask, ask, asks)
ARENA_RECORDS(serve, serve, serves)
ARENA_RECORDS(turn_record, turn_record, turn_records)

/* Records with an id of a slot and a generation; NULL: it is stale. */
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

/* An array of the arena without those: the function NAME(core, i) finds element i. */
#define ARENA_ARRAY(type, name, place, limit)                                                      \
    static inline type *name(const struct core *c, uint32_t i)                                     \
    {                                                                                              \
        ARENA_BOUND(i, limit);                                                                     \
        return (type *)(void *)((char *)(uintptr_t)c + (size_t)c->place * 64) + i;                 \
    }

/* Those of sessions and nodes, and those of the disk's index. */
static inline uint32_t block_limit(const struct core *c)
{
    return c->limits.token_blocks + c->limits.disk_blocks;
}

static inline uint32_t key_limit(const struct core *c)
{
    return c->limits.extra_keys + c->limits.disk_keys;
}

ARENA_ARRAY(struct token_block, block_at, blocks_at, block_limit(c))
ARENA_ARRAY(uint32_t, block_next, block_next_at, block_limit(c))
ARENA_ARRAY(struct key_record, key_at, keys_at, key_limit(c))
/* Links to peers and from them, and the one whose source is the disk. */
ARENA_ARRAY(struct link, link_at, links_at, c->limits.links + 1)
ARENA_ARRAY(struct reset, reset_at, resets_at, c->limits.resets)
ARENA_ARRAY(struct flow, flow_at, flows_at, c->share[SHARE_PULLS].holders)
/* A bit a page of record memory; 1: it is in use. */
ARENA_ARRAY(uint64_t, record_bits, record_bits_at, c->limits.record_pages / 64)
ARENA_ARRAY(struct record_runs, record_runs, record_runs_at, c->limits.record_pages / 32)

static inline struct node *node_at(const struct core *c, uint32_t i)
{
    ARENA_BOUND(i, c->limits.nodes);
    return (struct node *)(void *)((char *)(uintptr_t)c + (size_t)c->nodes_at * 64 +
                                   (size_t)i * c->node_bytes);
}

static inline size_t node_bytes(const struct core *c)
{
    return c->node_bytes;
}

static inline uint32_t node_limit(const struct core *c)
{
    return c->limits.nodes;
}

/* A ring of limits.events for each tenant. */
static inline struct tree_event *event_at(const struct core *c, uint32_t tenant, uint64_t own)
{
    ARENA_BOUND(tenant, c->limits.tenants);
    return (struct tree_event *)((char *)(uintptr_t)c + (size_t)c->events_at * 64) +
           (size_t)tenant * c->limits.events + own % c->limits.events;
}

/* The tenant whose turn follows that of `last`, among those whose list at that offset is not empty.
 * There is one. */
static inline uint32_t next_tenant(const struct core *c, uint32_t last, size_t list)
{
    const struct list *l;

    do {
        last = (last + 1) % c->limits.tenants;
        l = (const struct list *)(const void *)((const char *)tenant_at(c, last) + list);
    } while (l->n == 0);
    return last;
}

/* What a peer has heard of reset i. */
static inline struct heard *heard_of(const struct core *c, const struct reset *r, uint32_t peer)
{
    return (struct heard *)((char *)(uintptr_t)c + (size_t)c->heard_at * 64) +
           (size_t)(r - reset_at(c, 0)) * c->limits.peers + peer;
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

ARENA_FREE_LIST(session, free_sessions, session_at(c, i)->in_engine.next)
ARENA_FREE_LIST(node, free_nodes, node_at(c, i)->sibling.next)
ARENA_FREE_LIST(space, free_spaces, space_at(c, i)->in_pool.next)
ARENA_FREE_LIST(block, free_blocks, *block_next(c, i))
ARENA_FREE_LIST(key, free_keys, key_at(c, i)->next)
ARENA_FREE_LIST(retire, free_retires, retire_at(c, i)->in_engine.next)
ARENA_FREE_LIST(pull, free_pulls, pull_at(c, i)->active.next)
ARENA_FREE_LIST(ask, free_asks, ask_at(c, i)->active.next)
ARENA_FREE_LIST(serve, free_serves, serve_at(c, i)->active.next)
ARENA_FREE_LIST(turn_record, free_turn_records, turn_record_at(c, i)->in_list.next)

/* Generation 0 names nothing. */
static inline uint32_t gen_next(uint32_t gen)
{
    return gen + 1 ? gen + 1 : 1;
}

static inline void touch(struct core *c)
{
    c->touched = 1;
}

/* Records that this step may still look at, in loops whose length is not that of the request:
 * evicting, counting, closing, sweeping. Each of them adds to c->visits for every record, stops
 * when this is 0, and goes on in the next step. core_step checks the sum. */
static inline uint32_t visits_left(const struct core *c)
{
    return c->visits < STEP_VISITS_MAX - STEP_PATH_MAX ? STEP_VISITS_MAX - STEP_PATH_MAX - c->visits
                                                       : 0;
}

/* A walk that changes nothing, whose length a path bounds. */
static inline void walked(struct core *c, uint32_t nodes)
{
    c->visits += nodes / NODES_A_VISIT;
}

/* Begins a piece of work. It stops at the returned end and goes on in a later step or request. */
static inline uint32_t piece_begin(struct core *c)
{
    uint32_t end = c->visits + (visits_left(c) > 0 ? PIECE_VISITS_LEAST : 0);

    return c->piece_end = end > c->piece_most ? end : c->piece_most;
}

/* Where one stops in which what is released comes free: in the step that released it, and later. */
static inline uint32_t give_back_end(const struct core *c)
{
    return c->limits.give_back_visits ? c->limits.give_back_visits : c->piece_end;
}

static inline uint32_t give_back_begin(struct core *c)
{
    uint32_t end = piece_begin(c), given = c->limits.give_back_visits;

    return given ? c->visits + given : end;
}

/* Behind so many visits the operations of a Step are BUSY, but for a Close. */
static inline uint32_t batch_end(const struct core *c)
{
    return c->limits.give_back_visits ? c->limits.give_back_visits : BATCH_VISITS_MAX;
}

static inline bool piece_over(const struct core *c)
{
    return c->visits >= c->piece_end;
}

/* For work that nobody repeats: only the end of the step stops it. Returns the end of the piece
 * that it is a part of, which is to be set again. */
static inline uint32_t piece_whole(struct core *c)
{
    uint32_t end = c->piece_end;

    c->piece_end = STEP_TURNS_MAX;
    return end;
}

/* Is something still to be given back, of what was released already? */
static inline bool gives_back(const struct core *c)
{
    return c->nbehind + c->closing.n + c->nending > 0;
}

static inline uint32_t div_up(uint32_t n, uint32_t d)
{
    return n / d + (n % d != 0);
}

#include "core/arena/held_shares.h"
#include "core/arena/looks.h"

/* The deepest node of the path not below state_from, in hops logarithmic in its depth. */
uint32_t node_above(const struct core *c, struct path path);

#endif
