/* Every limit of the core: first those fixed at build time, then those fixed at start. */
#ifndef CORE_LIMITS_H
#define CORE_LIMITS_H

#include <stdint.h>

#define GROUPS_MAX           16              /* groups of a pool */
#define GROUPS_DEFAULT       8               /* unless core_limits says otherwise */
#define RANKS_MAX            64              /* rank processes of an engine, regions of a tenant */
#define PROCS_PER_ENGINE_MAX (RANKS_MAX + 1) /* the ranks and one scheduler */
#define ENGINE_NAME_MAX      48              /* bytes with the NUL */
#define GROUP_NAME_MAX       32              /* the same; longer names are cut off */
#define PAGE_TOKENS_MAX      4096            /* tokens of a page */
#define ALIGN_TOKENS_MAX     16384           /* the commit alignment L */
#define TOKEN_BLOCK          64              /* tokens of a block of the token store */
#define SESSION_TOKENS_MAX   (1u << 22)
#define EXTRA_KEYS_MAX       1024   /* extra keys of one request */
#define STEP_OPS_MAX         1024   /* operations of one Step */
#define BLOCKS_MAX           4096   /* keys of one Blocks */
#define TABLE_PAGES          122880 /* pages of a session's table, as many as 1 MiB can name */
#define TABLE_PAGES_MIN      32768
#define TABLE_PAGES_MAX      (1u << 22)
#define REPLY_RUNS_MAX       4096       /* table runs that one answer can hold */
#define ACTIONS_MAX          80         /* actions that one step of the core can emit */
#define SEAL_PAGES_MAX       256        /* pages of one checksum job */
#define SEALED_JOBS_MAX      32         /* checksum jobs whose ends one event reports */
#define SEAL_BYTES_MAX       (2u << 20) /* of the nodes that jobs read at a time; two may be more */
#define PULL_BATCH_PAGES     256 /* pages of one pull batch: as many bits as struct pulled.ok has */
#define PULL_BATCHES_MAX     8   /* batches of one transfer in flight */
#define PULL_TRIES_MAX       2   /* requests for a page before CORRUPT */
#define NS_PER_MS            1000000ull
#define PULL_ASKS_MAX        64   /* requests to a busy source for one transfer */
#define PULL_RETRY_MS_MAX    1000 /* longest pause that a busy source may require */
#define PULL_WORD_MS_MAX     1000 /* time for a source that refused a page to name the reason */
#define PULL_BUSY_MS_MAX     2000 /* longest wait of a transfer for a busy source */
#define PREFETCH_EVERY       8 /* of this many batches of a tenant, one is a waiting prefetch's */
#define PREFETCH_LEAVES      4 /* a prefetch leaves one part in 4 of each limit to other fetches */
#define RESET_WAIT_MS_MAX    30000 /* longest wait of a reset for its peers' answers */
#define PULL_WAIT_MS_MAX     16    /* longest pause between questions whether enough is published */
#define RESHARD_PAIRS_MAX    8     /* pairs of layouts that transfers reshard between, at a time */
#define RESHARD_PEER_PAIRS   4     /* of these pairs, those with one peer */
#define COPY_TRIES_MAX       3     /* consecutive attempts to copy a node to the host */
#define COPY_WAIT_MS_MAX                                                                           \
    1000 /* after this time without a copy that begins or ends, waits for room end */
#define ASK_PEERS_MAX    64     /* peers that receive a question who has some tokens */
#define ASK_MS           100    /* wait for their answers */
#define ASK_TOKENS_MAX   65536  /* tokens of a prefix in a question */
#define ASK_TOKENS_SENT  524288 /* for all peers together: a step copies the tokens for each */
#define BLOCKS_ASKED_MAX 1024   /* keys of a Blocks that asks peers */
#define HOSTS_TOLD_MAX   256    /* names of peers in the answers of one step */
#define OPEN_TOKENS_MAX  245760 /* tokens of one message between daemons: as many as fit a frame */
#define OFFER_PAGES_MAX  16384  /* pages of one message between daemons, or those of one chunk */
/* T20: most records that one step of the core visits. A loop continues up to STEP_TURNS_MAX; its
 * last turn may add STEP_PATH_MAX, which a request takes on the longest table that moves. */
#define STEP_TURNS_MAX  131072
#define STEP_TABLE_MAX  131072 /* chunks of a session (T20); for a fetch, also pages of a group */
#define TRANSFERS_MAX   65536  /* in and out: each event visits the active ones */
#define DISK_FILES_MAX  262144 /* a reset of a namespace visits all of them */
#define DISK_ROOTS_MAX  65536  /* namespaces, by layout, of a tenant: a reset visits all */
#define DISK_PATH_MAX   65536  /* chunks of a prefix on the disk */
#define STEP_PATH_MAX   (4 * STEP_TABLE_MAX)
#define STEP_VISITS_MAX (STEP_TURNS_MAX + STEP_PATH_MAX)
/* The pieces of work in a request's step share this many visits, 0.2 to 0.4 ms, and continue in the
 * next step. A piece may always visit PIECE_VISITS_LEAST, however many those before it took. The
 * rest continues in a timer's step, with PIECE_VISITS_TIMER. After any other event each such piece
 * has the least, since many events may arrive in one turn of the daemon's loop. ROOM_VISITS_MAX
 * bounds new work: a fetch, a load, a lease, a Step not in pieces, freed tails, ending claims. */
#define PIECE_VISITS_MAX     2048
#define PIECE_VISITS_TIMER   512
#define PIECE_VISITS_LEAST   64
#define ROOM_VISITS_MAX      16384
#define BATCH_VISITS_MAX     32768 /* after this many visits a Step's operations are BUSY */
#define TAIL_PAGES_MAX       32768 /* of a session that fetches or retracts: freed in one step */
#define TAIL_CHUNKS_MAX      4096  /* of a session that fetches: replaced in one step */
#define BELOW_LOOKS_MAX      2048  /* nodes below a depth visited to find a resume point */
#define SLAB_LOOKS_MAX       16    /* slabs of a group compared to find the cheapest */
#define NODE_VISITS          4     /* visits counted for a node that is created or published */
#define RECORDS_A_VISIT      32    /* allocated pages or blocks, or skipped blocks, for one visit */
#define NODES_A_VISIT        8     /* walked nodes, or freed blocks of tokens, for one visit */
#define KEPT_CHUNKS_MAX      32768 /* in the tree, whose tokens an Abort copies for the session */
#define GIVE_AT_ONCE_PAGES   64    /* of one operation, even above BATCH_VISITS_MAX */
#define EVICTIONS_MAX        4     /* operators' evictions that run at a time */
#define CHANGED_MAX          1024  /* nodes that may wait to be counted after a step */
#define RETIRE_LOOKS_MAX     256   /* releases of later steps that a release is inserted before */
#define SHORTAGE_RETIRES_MAX 32    /* releases examined for one shortage answer */
#define TURNS_ENDED_MAX      4096  /* turns that expire in one step of the core */
#define TURNS_OF_CONN_MAX    65536 /* turns in flight that began on one connection */
#define TICKETS_ENDED_MAX    4096  /* tickets that expire, or are examined, in one step */
#define CLOSES_LOOKS_MAX     64    /* a tenant's closes behind turns tried in one step */
#define STEPS_UNNAMED_MAX    (1u << 24) /* steps that an engine may finish and name none (E7) */
#define RESERVE_NODES_MAX    512        /* nodes that join a pool's reserve in one step */
#define RECORD_PAGE_BYTES    16384u     /* of a tenant's record memory */
#define RECORD_RUNS_MAX      8          /* runs of pages of one section of a turn record */
#define RECORD_BLOBS_MAX     4          /* blobs of a turn record */
#define RECORDS_TOLD_MAX     64         /* turn records of one answer */
#define BLOB_NAME_MAX        32         /* bytes of a blob's name, with the NUL */
#define BLOBS_KEPT           2 /* records that keep blobs, unless the session sets a number */
#define BLOBS_KEPT_MAX       16
#define LEASE_PAGES          16384 /* leased to an engine from one pool, unless limits set less */
#define TICKET_BLOB_BYTES    65536 /* data that an engine attaches to a ticket */
#define TICKET_WORDS         (TICKET_BLOB_BYTES / 4)
#define DISK_WRITE_EXTENTS   512                      /* of one file */
#define DISK_WRITE_PAGES     2048                     /* of one file */
#define DISK_WINDOW_MAX      (DISK_WRITE_EXTENTS - 2) /* chunks whose STATE an entry needs */
/* Bytes that a store may use beyond the budget, until the pruned bytes are freed (D5). */
#define DISK_PRUNE_BYTES (256ull << 20)
#define DISK_PAUSE_MS    1000 /* pause before the next store, after the disk refused one */
#define DISK_PUT_OFF_MS  100  /* time without pins for a store that yielded to others' need */
#define DISK_KEEP_MS_MAX 2000 /* longest time that a due store keeps the last copy in memory */
#define DISK_AHEAD_PART                                                                            \
    16 /* with less than that part of a tier free, what leaves it next is stored */
/* Entries of a tenant, oldest stores first, compared to find the next eviction; and the chunks of
 * their windows. */
#define DISK_ENTRIES_LOOKED 4096
#define DISK_CHUNKS_LOOKED  16384
#define DISK_TRIES_MAX      8              /* stores tried in one step: each visits its path */
#define DISK_DROPS_MAX      32             /* drops reported in one step */
#define DISK_FILE_BYTES     (256ull << 20) /* a file ends when it has reached this size */

struct core_limits {
    uint32_t tenants, conns, engines, pools, sessions, nodes, namespaces;
    uint32_t token_blocks; /* TOKEN_BLOCK tokens each: prefixes and session tails */
    uint32_t extra_keys;
    uint32_t pages, slabs; /* records, over all pools */
    uint32_t retires;      /* releases that wait for a step */
    uint32_t turn_records; /* turn records of all sessions */
    uint32_t record_pages; /* of all tenants' record memory, each tenant's rounded up to 64 */
    uint32_t record_jobs;  /* turn records checked at a time */
    uint32_t asks;         /* questions to peers who has some tokens, open at a time */
    uint32_t resets;       /* resets of namespaces that some peers have not confirmed */
    uint32_t links;        /* connections between daemons: outbound [0, peers), then inbound */
    uint32_t peers;
    uint32_t pulls, serves;            /* transfers in, transfers out */
    uint32_t open_tokens, offer_pages; /* in one message about a transfer, in whole chunks and at
                                          least one; 0: the largest number */
    uint32_t table_pages;   /* pages in a session's table, all groups, and page refs of one answer;
                               0: TABLE_PAGES */
    uint32_t seal_jobs;     /* checksum jobs in flight */
    uint32_t copy_jobs;     /* copies between device and host memory in flight, a node each */
    uint32_t events;        /* changes of the prefix tree kept for subscribers, of each tenant */
    uint32_t sums_per_page; /* checksums kept for a page: its units times its regions */
    uint32_t busy_retry_ms; /* delay that a full source returns to its peer */
    uint32_t lease_pages;   /* pages that an engine may lease from one pool, all groups; at most
                               LEASE_PAGES, which 0 means */
    uint32_t reserved_percent; /* of each table that tenants share (arena/shares.h) */
    uint32_t groups;           /* of a pool; 0: GROUPS_DEFAULT */
    /* The disk tier; disk_chunks 0: there is none. */
    uint32_t disk_chunks, disk_files;
    uint32_t disk_stores;   /* prefixes being written, or waiting for that */
    uint32_t disk_interval; /* D1: tokens between continued stores, a multiple of disk_align */
    uint32_t disk_align, disk_trim, disk_least; /* D2, tokens */
    uint32_t disk_blocks, disk_keys;            /* token blocks and extra keys of its index */
    /* Visits of a piece that frees released pages, and nodes that join a reserve in one step. 0:
     * those of any piece, and RESERVE_NODES_MAX. */
    uint32_t give_back_visits;
    uint32_t step_visits;          /* fault injection: steps with more visits count as too long; 0:
                                      STEP_VISITS_MAX */
    uint64_t page_bytes_min;       /* of a pool's pages, in one region */
    uint64_t peer_bytes_in_flight; /* X8: requested and not yet received, per peer */
    uint64_t tenant_bytes_in_flight;
    uint64_t flow_bytes_in_flight; /* X8: of one tenant from one peer, or from the disk; 0: what the
                                      two limits before this one allow */
    uint32_t prefetch_every;       /* 0: PREFETCH_EVERY */
    uint32_t tenant_batches; /* X8: a tenant's batches of pages in the data path; 0: as many as its
                                transfers may have */
    uint64_t turn_deadline_ns;     /* from a turn's beginning to its end; 0: as long as its
                                      connection */
    uint64_t transfer_deadline_ns; /* from the start of a transfer to its terminal state */
    uint64_t ticket_deadline_ns;   /* Y3: longest lifetime of a ticket, from when it was made or
                                      last renewed */
};

#endif
