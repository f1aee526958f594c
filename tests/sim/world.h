/* The simulated world as data, one struct sim: memory, sessions, engines and transfers as the model
 * has them, and the messages and jobs under way between and below the two cores. All table sizes
 * are here; sim.h declares the functions. */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

#include <setjmp.h>

#include "core/core.h"
#include "core/query.h"

#include "config.h"
#include "marks.h"

#define DAEMONS       2
#define TENANTS       2
#define ENGINES       3 /* engine names of a daemon: 0 and 1 of tenant 0, 2 of the last tenant */
#define RANKS         4
#define PROCS         (RANKS + 1) /* of an engine: its ranks and perhaps a separate scheduler */
#define POOLS         3           /* pool slots of a daemon */
#define GROUPS        4           /* of a pool: those of HISTORY first, then those of STATE */
#define SESSIONS      12 /* session records of a daemon, closed ones kept for stale handles */
#define NAMESPACES    2
#define SPACES        4   /* of a pool: a namespace that was reset is another one from then on */
#define VARIANTS      6   /* token sequences; each session's list is a prefix of one */
#define SPAN          80  /* tokens of a sequence: a little more than a block of the token store */
#define TOKENS        248 /* tokens of a long one: see make_long */
#define CHUNKS        64  /* L-chunks of a sequence */
#define LONG_CHUNKS   32  /* a session of that many counts as a long one */
#define CHUNK_RECORDS (SPACES * VARIANTS * CHUNKS)
#define CHUNK_PAGES   8     /* pages of a group in a chunk */
#define GRANULES      64    /* smallest pages in a region of a tenant's memory */
#define HOSTS         48    /* smallest pages in a region of its host memory */
#define HOMES         RANKS /* possible lowest regions of pools: see struct pool */
#define GRANULE_BYTES 4096u
#define SLOTS         4   /* tokens of a page, at most */
#define TABLE         264 /* pages of a group in a session's table */
#define STEPS         8   /* dispatched steps that a rank has not run yet */
#define TOUCHES       512 /* pages that one step reads or writes, at most */
#define CONNS         16
#define QUEUE         16 /* messages under way in one direction */
#define LINKS         4  /* 0: ours to the other daemon; others: theirs to us */
#define JOBS          32
#define PULLS         4
#define BATCHES       PULL_BATCHES_MAX
#define BATCH_PAGES   128
#define SERVES        4
#define OPS_MAX       1200
#define RECORDS       640
#define NO            0xffu
#define HOLE          0xffffu /* table entry without a page */
#define LOAD_OWNER    0xfeu   /* owner of a page that a copy from the host writes */
#define PINS          4
#define NO_SPACE      0xff
#define RESETS        4  /* resets of a daemon that wait for an answer */
#define LEASES        16 /* pages that an engine has leased, at most */
#define OPENS         8  /* transfers that a peer asked for, by its own number */

#define MS 1000000ull

enum mark {
#define X(name, least) MARK_##name,
    MARKS(X)
#undef X
        MARK_COUNT
};

/* ---- memory: what the bytes are, and what the model knows about each granule ---- */

struct tag { /* one per token of the page */
    uint32_t v[SLOTS];
};

/* OWN_STATE: of a chunk's STATE, which may have been dropped. OWN_RESET: of a namespace that was
 * reset long ago: no pin and no answer may refer to it. */
enum own {
    OWN_FREE = 0,
    OWN_SESSION,
    OWN_CHUNK,
    OWN_PULL,
    OWN_ORPHAN,
    OWN_STATE,
    OWN_RESET,
    OWN_LEASE
};

struct granule {
    uint8_t own;      /* owner of the page in the model */
    uint8_t owner;    /* session or pull slot; for OWN_CHUNK see chunk */
    uint8_t borrows;  /* live sessions whose table borrows it */
    uint8_t serves;   /* transfers out that read it */
    uint8_t writers;  /* receives under way into it */
    uint8_t verified; /* OWN_PULL: arrived with the right checksum, as the core knows */
    uint8_t group, pool;
    uint8_t sealed; /* its checksum is known, as the core knows */
    uint8_t tries;  /* OWN_PULL: times that it was asked for */
    uint8_t space;  /* OWN_PULL: space of the session which fetches it */
    uint8_t loaded; /* OWN_ORPHAN: it came from the host, a page of `chunk` */
    uint8_t lacks;  /* tokens at its beginning that did not come: a source with smaller pages (N3)
                     * sent only those of the window */
    uint16_t chunk;
    uint16_t sealing; /* checksum jobs that read it */
    uint32_t index, gen;
    uint32_t busy[ENGINES]; /* last step of that engine that may touch it; 0: none */
};

/* An L-chunk of a prefix, as committed. Valid only while its bit in the daemon's `known` is set. */
struct chunk {
    uint32_t evictions; /* the pool's count at the last proof that it exists */
    uint8_t present, engine, space, variant, depth, sealed;
    uint32_t step; /* of the commit */
    uint16_t granule[GROUPS][CHUNK_PAGES];
    uint32_t gen[GROUPS][CHUNK_PAGES];
    /* STATE: its pages as last known, and whether the model would bet that they still exist. maybe:
     * it existed, and no answer named the pages. */
    uint8_t has[GROUPS], maybe[GROUPS], lost[GROUPS], state_engine[GROUPS], made, passed, listed,
        must;
    uint32_t state_step[GROUPS], state_evictions[GROUPS];
    uint8_t hbad;         /* the host's copy did not agree with its checksums */
    uint8_t hfailed;      /* copies to the host that failed since the last good one */
    uint8_t hhas[GROUPS]; /* acknowledged on the host, as last known */
    uint8_t hgranule[GROUPS][CHUNK_PAGES];
};

enum host_own { HOST_FREE = 0, HOST_MOVING, HOST_NODE };

struct hpage { /* of a granule of host memory */
    uint8_t own, pool, group, readers, lacks;
    uint16_t chunk;
    uint32_t index, gen;
};

struct entry { /* of a session's table */
    uint16_t granule;
    uint8_t mine; /* STATE: owned, not borrowed */
    uint32_t gen;
};

/* AWAY: retracted, or about to be. LOADING: a recovery is under way. HANDED: only its ticket finds
 * it (tickets.c). */
enum turn {
    TURN_NEW = 0,
    TURN_OPEN,
    TURN_FINISHED,
    TURN_FETCHING,
    TURN_AWAY,
    TURN_LOADING,
    TURN_HANDED
};
enum away { AWAY_NO = 0, AWAY_DROP, AWAY_HOST };
/* See turns.c. From CLOSED on nobody may use the session. */
enum gate { GATE_OPEN = 0, GATE_CLAIMED, GATE_CLOSING, GATE_CLOSED, GATE_UNCLOSED };

struct session {
    uint8_t used, live, engine, pool, ns, space, variant, turn, tenant;
    uint8_t cancel_sent, fetch_before, fetch_bad_peer;
    uint8_t fetch_prefetch;    /* no decode waits for it */
    uint8_t fetch_waited;      /* the source had fewer tokens than `at_least` */
    uint8_t fetch_source_busy; /* the source has reported BUSY, whatever else it reported */
    uint8_t fetch_behind;      /* earlier fetches of its tenant came first */
    uint8_t piece_variant;     /* sequence of the Match under way */
    uint32_t piece_end;        /* end of the pieces that were accepted; 0: none */
    uint8_t piece_holds; /* the last piece was refused: the path of those before may be pinned */
    uint8_t deaf;        /* the connection that waited for the fetch was closed */
    uint8_t fetch_host;  /* from the host tier */
    uint8_t fetch_disk;  /* from the disk */
    uint8_t ask_disk;    /* 1: its next fetch is from there */
    uint8_t fetch_any;   /* it names no peer */
    uint8_t fetch_asked; /* and peers were asked for it */
    uint8_t away, back_turn;
    uint8_t unpinned; /* the host has all that it needs: its path may leave the device */
    uint8_t undone;   /* a copy failed: the core may have resumed it */
    uint8_t untold;   /* its fetch ended with it: no answer names what that had found */
    uint8_t lost;     /* the host's copy is known to be bad */
    uint32_t away_step;
    uint32_t slid_step; /* named for borrowed pages that left the table alone: it pins the rest */
    uint8_t ending;     /* the request under way aborts or closes it */
    uint8_t gate, turn_conn;
    uint8_t rolling;        /* 1: a worker looks at a rollback of it */
    uint32_t turn_step;     /* highest step of its TurnEnds */
    uint32_t close_step;    /* step of its SessionClose */
    uint32_t close_conn;    /* connection that waits for the answer; NO: closed */
    uint64_t close_request; /* 0: answered */
    uint64_t turn_begun;
    struct session_id handle;   /* its handle in requests: its id, or that of the turn in flight */
    struct session_id old_turn; /* of a turn that is over; {0, 0}: none */
    struct session_id id;
    uint32_t committed, written, allocated, ntokens, finished;
    uint32_t filled; /* bytes of [0, filled) are right once the dispatched steps have run; >= c */
    uint32_t last_step; /* last dispatched step that touches its pages */
    uint32_t fetch_depth, fetch_conn;
    uint32_t fetch_at_least; /* of its tokens, if the fetch ends well */
    uint32_t disk_depth;     /* end of a successful fetch from the disk */
    uint32_t fetch_step;     /* the last step that may touch its tail */
    uint32_t fetch_wrote;    /* written length at its beginning */
    uint8_t fetch_tail;      /* it still has the tail that it had when the fetch began */
    uint64_t fetch_request;
    struct pull_id fetch_pull; /* {NONE, 0}: nothing was asked of the peer */
    uint64_t fetch_since;
    uint8_t lame; /* it lacks STATE to resume at its committed length: it can only abort or close */
    /* STATE of shape WINDOW: the table has logical pages [first, top), and owns those from base on.
     * RECURRENT: top 1: it owns one page, at 0; `copy`: the page to be copied into it first. */
    uint32_t first[GROUPS], base[GROUPS], top[GROUPS];
    uint32_t resumed;     /* an answer resumed it at that depth: all STATE of it exists */
    uint32_t whole_from;  /* at less its windows lack what a fetch from smaller pages left out */
    uint32_t gap[GROUPS]; /* end of what a fetch by ticket left out: it resumes behind that */
    struct entry copy[GROUPS];
    struct entry table[GROUPS][TABLE];
};

struct touch {
    uint16_t granule;
    uint16_t pos; /* token at slot 0 */
    uint8_t group, ns, variant;
    uint8_t read_from, read_to, write_from, write_to; /* slots */
    uint8_t junk; /* writes tokens that no sequence has: rejected speculation */
    uint8_t copy; /* copies page `from`, whole */
    uint16_t from;
};

struct work {
    uint32_t n;
    struct touch touch[TOUCHES];
};

/* A page that an engine has leased, of its pool. */
struct leased {
    uint16_t granule;
    uint8_t group;
    struct page_ref ref;
};

enum proc_state { PROC_NONE = 0, PROC_LIVE, PROC_DEAD };

struct proc {
    uint8_t state, conn; /* conn NO: none */
    uint8_t seat_conn_closing;
    uint32_t number; /* the shell's */
};

struct engine {
    uint8_t used, tenant, world, nprocs, dying,
        known;      /* known: the core has joined at least one process */
    uint8_t pool;   /* NO: none yet */
    uint8_t joined; /* bit a seat: on an open connection */
    uint8_t seen;   /* bit a seat: the core has known a process there */
    uint8_t mapped; /* bit a seat, of `pool` */
    uint8_t jumped; /* bit a rank: it shows a step that it has not finished */
    struct engine_id id;
    uint32_t step, exec[RANKS], done[RANKS], min_done;
    uint32_t untold_step; /* up to that step it may pin paths that no answer named: see untold */
    struct proc proc[PROCS];
    uint32_t nlease, lease_step; /* lease_step: the last step that may touch some of them */
    struct leased lease[LEASES];
    struct leased past; /* a former lease; generation 0: none */
    struct work work[STEPS];
};

enum slow_source { SLOW_NONE = 0, SLOW_PEER, SLOW_DISK };

struct pool {
    uint8_t open, closing, tenant, pressure;
    uint8_t unheard; /* a fetch continued whose answer nobody receives: it ends at this depth or
                      * above; 0: none */
    uint8_t ranks;   /* regions with its bytes: the world of the engine that opened it */
    uint8_t region[RANKS]; /* region of the tenant of each rank */
    uint8_t engines;       /* engines: bit each that opened or mapped it */
    struct pool_id id;
    /* base: its first granule. Pools that have no region in common may lie at the same place, so
     * granules are counted for each region that is the lowest of a pool, its home: granule i of
     * home h is number h * cfg.granules + i, and it lies at i in all the pool's regions. Host
     * granules are counted alike. */
    uint32_t granules, base;
    uint32_t evictions;                   /* times that something may have been evicted */
    uint32_t host_slot, hgranules, hbase; /* its host tier: NONE, 0: it has none */
};

struct conn {
    uint8_t open, engine, seat, admin, tenant, closing;
    uint32_t wait_step;
    uint64_t wait_request, replaced; /* waits for a step, to be answered; 0: none */
};

enum job_kind { JOB_SEAL = 1, JOB_ZERO, JOB_COPY };

struct job {
    uint8_t kind, pool, n;
    uint8_t back;   /* COPY: to the host */
    uint16_t chunk; /* COPY */
    uint64_t id;    /* the handle of the seal, the pool or the copy, packed */
    uint16_t granule[BATCH_PAGES * 2];
    uint16_t record[BATCH_PAGES * 2];
    uint16_t hgranule[BATCH_PAGES * 2], hrecord[BATCH_PAGES * 2];
    uint8_t group[BATCH_PAGES * 2];
};

/* Part of a batch: pages of the span at the destination, which are [at, at + pages) of the batch,
 * and pages at the source. With equal page_tokens a span is one page. */
struct span {
    uint8_t at, pages, group, seen;
    uint8_t first, n;    /* existing pages of the source's part of the span */
    struct page_ref ref; /* the first of them */
};

struct batch {
    uint8_t used, n, npages, moved, done; /* n: spans; done: EV_PULLED was sent */
    uint32_t number;
    uint64_t ok;
    struct span span[BATCH_PAGES];
    uint16_t granule[BATCH_PAGES];
    uint16_t record[BATCH_PAGES];
    uint8_t group[BATCH_PAGES];
    uint16_t ext[BATCH_PAGES]; /* from the disk: the extent, and the number of the page in it */
    uint8_t nth[BATCH_PAGES];
    uint32_t uid[BATCH_PAGES];
};

struct pull {
    uint8_t used, pool, space, stopping, broken, over, orphaned;
    uint8_t disk;      /* its source is the disk */
    uint8_t resharded; /* its pages go by a plan */
    uint8_t silent;    /* nothing comes over its data path any more */
    uint8_t tenant;    /* TENANTS: not known */
    struct pull_id id;
    struct serve_id serve;
    uint64_t source_incarnation;
    struct batch batch[BATCHES];
};

struct reset_asked {
    uint64_t request_id; /* 0: none */
    uint32_t tenant, ns, number;
};

/* A question to a peer about the first `to` tokens of a sequence. */
#define QUESTIONS 8
struct question {
    struct pull_id id; /* gen 0: none */
    uint8_t tenant, ns, variant;
    uint32_t to;
};

/* A transfer in, from the question to the peer on. */
struct opened {
    struct pull_id id; /* slot NONE: it is over */
    uint64_t order;    /* number of the request that began it; 0: none */
    uint32_t unasked;  /* pages that were offered and are still to be asked for, some again */
    uint32_t tenant, asks, ns;
    uint32_t disk;       /* 1: of the disk */
    uint32_t awaits;     /* 1: the peer must offer at least that much or nothing */
    uint32_t prefetch;   /* 1: no decode waits for it */
    uint32_t need;       /* the offer has to be younger than that reset */
    uint32_t content;    /* the offer is younger than this one */
    uint64_t not_before; /* the peer was busy: earliest time of the next question */
    uint64_t since;      /* when its fetch was asked for */
};

struct serve {
    uint8_t used, stopping, pool, npages; /* pool NO: not started yet */
    uint8_t resharded;                    /* its pages go by a plan */
    uint32_t resets;                      /* of the daemon, when the peer asked */
    struct serve_id id;
    uint8_t group[96];
    struct page_ref ref[96];
};

struct message {
    struct peer_msg msg;
    uint32_t tokens[TOKENS];
    struct extra_key keys[4];
    struct table_run runs[GROUPS * 2];
    struct page_ref refs[96];
};

struct link {        /* the connection of daemon d's outbound link */
    uint8_t alive;   /* bytes get through */
    uint8_t one_way; /* bit 0: initiator's messages vanish, bit 1: the acceptor's */
    uint8_t up[2];   /* that side knows that it is up; [0] initiator */
    uint8_t lossy;   /* it was cut or lost a message in this history: the acceptor may pin what the
                      * initiator has released */
    uint8_t number;  /* the acceptor's link number */
    uint64_t incarnation; /* of the acceptor, as the initiator learned when it came up */
    uint64_t former;      /* the one before that */
    uint8_t head[2], n[2];
    struct message queue[2][QUEUE];
};

/* STATE that was passed and must stay: that of a fork point, or of another window. */
struct kept {
    uint8_t used, engine, pool, ns, variant, depth;
};

/* A pin of an operator. */
struct pin {
    uint8_t used, pool, tenant, space, variant, depth;
    struct node_id node;
};

struct daemon {
    struct kept kept;
    uint8_t space_of[TENANTS][NAMESPACES]; /* present meaning of a name */
    struct core *core;
    void *arena;
    size_t arena_bytes;
    uint64_t incarnation, changes_before;
    uint32_t next_request;
    uint32_t next_proc, procs_used;
    uint8_t draining, restarts;
    uint8_t inbound_busy[LINKS]; /* acceptor link numbers not yet reported down */
    struct conn conn[CONNS];
    struct engine engine[ENGINES];
    struct session session[SESSIONS];
    struct pool pool[POOLS];
    struct job job[JOBS];
    uint32_t njobs;
    struct pull pull[PULLS * 2];
    uint32_t npulls;               /* used */
    struct pull_id walking[OPENS]; /* the peer's: the path of its tokens so far is pinned here */
    struct opened opened[OPENS];
    struct question question[QUESTIONS]; /* the last ones */
    uint32_t nquestions;
    uint8_t fetched;              /* a bit a tenant that has fetched since the start */
    uint32_t urgent_row[TENANTS]; /* batches in a row without a prefetch */
    struct serve serve[SERVES * 2];
    struct chunk chunk[POOLS][CHUNK_RECORDS];
    uint64_t known[POOLS][CHUNK_RECORDS / 64]; /* bit a chunk */
    struct granule granule[TENANTS][HOMES * GRANULES];
    struct hpage host[TENANTS][HOMES * HOSTS];
    struct pin pin[PINS];
    struct copy_id last_copy; /* acknowledged last */
    uint32_t resets, open_resets[OPENS], spoilt, copies_failed;
    struct reset_asked reset_asked[RESETS]; /* by engines, not yet answered */
    /* Resets are numbered over all daemons. For each namespace: the reset that all its content is
     * younger than; the last one that was asked for here; the last one that all daemons know. */
    uint32_t content[TENANTS][NAMESPACES], own_reset[TENANTS][NAMESPACES],
        heard_reset[TENANTS][NAMESPACES];
    uint8_t waiting;          /* a session may wait for a fetch or a load; 0: none */
    uint8_t pulled;           /* a transfer was active when the event began */
    uint32_t backing[GROUPS]; /* by group: pages that a job or transfer began to read since */
    uint8_t host_left;        /* a chunk has left the host since then */
    uint8_t follower_left;    /* one ended since then: it pinned a path to the end of that step */
    uint8_t host_unsure;      /* copies under way were given up */
    struct tag tag[TENANTS][RANKS][GRANULES]; /* contents of each region: see tag_at */
    struct tag htag[TENANTS][RANKS][HOSTS];
    struct tag sum[RECORDS][RANKS]; /* page contents of the checksum of a record */
    uint8_t sum_known[RECORDS];
    struct session_id old_session; /* handles from before the last restart */
    struct pool_id old_pool;
    struct engine_id old_engine;
};

struct sim {
    struct config cfg;
    bool ample; /* see records_ample */
    struct core_limits limits;
    uint32_t L, page_tokens[DAEMONS][GROUPS], page_granules[GROUPS];
    uint32_t span; /* tokens of a sequence */
    uint32_t ngroups, slab, window[GROUPS], reserve[GROUPS], reach, window_max; /* all groups */
    uint32_t world[DAEMONS][ENGINES], ranks;
    uint32_t regions, granules, hosts; /* of a tenant; granules of all homes */
    /* Regions of the ranks of each engine, and whether they name them. */
    uint8_t region[DAEMONS][ENGINES][RANKS], named[DAEMONS][ENGINES];
    uint64_t now, rng;
    uint64_t secret; /* of the tables of every core: see testing/secret.h */
    uint32_t resets; /* of all daemons */
    uint32_t verbose, quiet_phase;
    uint32_t audit_every, steps; /* the oracle audits each audit_every-th step's core; 0: never */
    uint64_t events;
    struct daemon d[DAEMONS];
    struct recs *recs[DAEMONS];       /* see records.c */
    struct tickets *tickets[DAEMONS]; /* see tickets.h */
    struct disks *disk[DAEMONS];      /* see disk.c */
    struct link link[DAEMONS];        /* [d]: opened by d */
    uint32_t tokens[VARIANTS][TOKENS];
    struct extra_key keys[VARIANTS];     /* at most one each; position NONE: none */
    uint8_t common[VARIANTS][VARIANTS];  /* tokens that two sequences share */
    uint8_t canon[VARIANTS][CHUNKS + 1]; /* smallest sequence with the same first k chunks */
    uint32_t prefix[TENANTS][NAMESPACES][VARIANTS][TOKENS + 1];
    struct actions *out;
    const struct reply *reply; /* to the request of this step; NULL if it comes later */
    uint64_t faults[FAULT_COUNT];
    bool marks[MARK_COUNT]; /* reached in this history */
    uint32_t at_choice;
    jmp_buf failed;
    char what[48], text[400];
};

#endif
