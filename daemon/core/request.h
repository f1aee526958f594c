/* Requests of engines and their answers, as the core sees them: ids, lengths and tokens; never a
 * pointer into a page, a file descriptor or a byte of KV. A request's arrays are borrowed for one
 * core_step; a reply's arrays lie in struct actions until its next use. */
#ifndef CORE_REQUEST_H
#define CORE_REQUEST_H

#include "base/tern_err.h"
#include "core/ids.h"
#include "core/limits.h"

/* The operations, in the tape's order: append new ones. Their requests and answers are below. An
 * ENGINE_LEAVE states that this process has unmapped everything; the last one ends the engine.
 * X(NAME, name in the log, function of the core that answers it, who may ask, when it is answered):
 *   ANY            any connection
 *   OPERATOR       a connection of the admin socket
 *   ENGINE         a connection that has joined an engine, once all ranks of the engine have joined
 *   SESSION(op)    as ENGINE, about the session that request.op.session names
 *   RECORDS(op)    as SESSION, but allowed also while a rollback of the session is being checked
 *   ANYHOW(op)     as RECORDS, but allowed also while pages that the session released are being
 *                  freed, and by the session's own handle while a turn is in flight
 *   AT_ONCE        by a reply of the same step
 *   LATER          by a reply of a later step, for instance after a transfer or a copy; as a
 *                  refusal, or if it has to wait for nothing, by a reply of the same step
 */
#define OP_TABLE(X)                                                                                \
    X(ENGINE_JOIN, "join", engine_join, ANY, AT_ONCE)                                              \
    X(ENGINE_LEAVE, "leave", engine_leave, ANY, AT_ONCE)                                           \
    X(POOL_OPEN, "pool_open", pool_open, ENGINE, AT_ONCE)                                          \
    X(POOL_MAP, "pool_map", pool_map, ENGINE, AT_ONCE)                                             \
    X(POOL_CLOSE, "pool_close", pool_close, ENGINE, AT_ONCE)                                       \
    X(SESSION_OPEN, "session_open", session_open, ENGINE, AT_ONCE)                                 \
    X(PEEK, "peek", session_peek, ENGINE, AT_ONCE)                                                 \
    X(MATCH, "match", session_match, SESSION(match), AT_ONCE)                                      \
    X(STEP, "step", request_step, ENGINE, AT_ONCE)                                                 \
    X(FETCH, "fetch", request_fetch, SESSION(fetch), LATER)                                        \
    X(FETCH_CANCEL, "fetch_cancel", fetch_cancel, SESSION(fetch_cancel), AT_ONCE)                  \
    X(EVICT, "evict", request_evict, OPERATOR, LATER)                                              \
    X(DRAIN, "drain", request_drain, OPERATOR, AT_ONCE)                                            \
    X(RETRACT, "retract", session_retract, SESSION(retract), AT_ONCE)                              \
    X(RECOVER, "recover", session_recover, SESSION(recover), LATER)                                \
    X(NAMESPACE_RESET, "namespace_reset", request_reset, ENGINE, LATER)                            \
    X(PIN, "pin", request_pin, OPERATOR, AT_ONCE)                                                  \
    X(WAIT_PUBLISHED, "wait_published", wait_published, ENGINE, LATER)                             \
    X(TURN_BEGIN, "turn_begin", turn_begin, SESSION(turn_begin), AT_ONCE)                          \
    X(TURN_END, "turn_end", turn_end, ANYHOW(turn_end), AT_ONCE)                                   \
    X(SESSION_CLOSE, "session_close", request_session_close, ANYHOW(session_close), LATER)         \
    X(RECORD_MAP, "record_map", record_map, ENGINE, AT_ONCE)                                       \
    X(RECORD_PREPARE, "record_prepare", record_prepare, RECORDS(record_prepare), AT_ONCE)          \
    X(RECORD_PUT, "record_put", record_put, RECORDS(record_put), LATER)                            \
    X(ROLLBACK, "rollback", record_rollback, RECORDS(rollback), LATER)                             \
    X(RECORD_GET, "record_get", record_get, RECORDS(record_get), AT_ONCE)                          \
    X(STORE, "store", request_store, SESSION(store), LATER)                                        \
    X(HANDOFF, "handoff", request_handoff, SESSION(handoff), AT_ONCE)                              \
    X(TICKET_RENEW, "ticket_renew", ticket_renew, ENGINE, AT_ONCE)                                 \
    X(TICKET_DROP, "ticket_drop", ticket_drop, ENGINE, AT_ONCE)                                    \
    X(PAGE_LEASE, "page_lease", page_lease, ENGINE, AT_ONCE)                                       \
    X(TICKET_OPEN, "ticket_open", ticket_open, SESSION(ticket_open), AT_ONCE)                      \
    X(FETCH_WAIT, "fetch_wait", fetch_wait, SESSION(fetch_wait), LATER)                            \
    X(SESSION_END, "session_end", request_session_end, OPERATOR, AT_ONCE)                          \
    X(ENGINE_KICK, "engine_kick", request_engine_kick, OPERATOR, AT_ONCE)                          \
    X(POOL_END, "pool_end", request_pool_end, OPERATOR, AT_ONCE)                                   \
    X(BLOCKS, "blocks", request_blocks, ENGINE, LATER)

enum op {
    OP_NONE = 0,
#define X(NAME, ...) OP_##NAME,
    OP_TABLE(X)
#undef X
        OP_COUNT
};

/* "" if there is no such operation. */
static inline const char *op_name(enum op op)
{
    static const char *const names[OP_COUNT] = {
#define X(NAME, name, ...) [OP_##NAME] = (name),
        OP_TABLE(X)
#undef X
    };

    return op > OP_NONE && op < OP_COUNT ? names[op] : "";
}

enum role {
    ROLE_SCHEDULER = 0,
    ROLE_WORKER = 1,
    ROLE_BOTH = 2
}; /* BOTH: a single process that is rank and scheduler */
/* HISTORY: KV of every token. WINDOW, RECURRENT: STATE groups, needed to resume from a depth. */
enum family { FAMILY_HISTORY = 0, FAMILY_WINDOW = 1, FAMILY_RECURRENT = 2 };
/* When to free STATE pages that a later resume point made needless (T10). */
enum supersede { SUPERSEDE_LAZY = 0, SUPERSEDE_EAGER = 1, SUPERSEDE_OFF = 2 };
enum tier { TIER_DEVICE = 0, TIER_HOST = 1, TIER_COUNT };
/* HOST: the committed prefix is copied to host memory and pinned there. DROP: it stays on the
 * device, pinned; the rest is freed. */
enum retract_mode { RETRACT_HOST = 0, RETRACT_DROP = 1 };
enum shard_axis { SHARD_NONE = 0, SHARD_HEADS, SHARD_REPLICATED, SHARD_LAYERS, SHARD_TOKENS };

/* The device that a rank named. The shell looks up which of the tenant's regions lies on it. */
struct req_device {
    bool named;      /* false: the rank named no device, and rank r uses region r */
    uint32_t region; /* NONE: the tenant has no region on such a device */
};

struct req_join {
    char name[ENGINE_NAME_MAX]; /* processes that give the same name are one engine */
    enum role role;
    uint32_t rank, world;     /* rank < world <= RANKS_MAX; rank is ignored for ROLE_SCHEDULER */
    struct req_device device; /* where this rank lives; ignored for ROLE_SCHEDULER */
};

struct group_layout {
    enum family family;
    uint32_t page_tokens;
    uint32_t window;     /* WINDOW: W in tokens. Else 0 */
    uint32_t reserve;    /* WINDOW: the largest rewind, at least 1 token. Else 0 */
    uint32_t units;      /* checksummed pieces of a page (X7), 1 or more */
    uint32_t cap_pages;  /* 0: no cap */
    uint64_t page_bytes; /* in one region */
};

struct reshard_layout; /* daemon/reshard: the core only passes the pointer on */

/* Attaches to a pool of the same layout and size that no engine has mapped any more; if there is
 * none, carves one. `shared`: attaches to any pool of that layout, of any size, mapped or not. */
struct req_pool_open {
    uint32_t ngroups;
    struct group_layout group[GROUPS_MAX];
    enum shard_axis shard;
    enum supersede supersede;
    uint32_t axes_hash;    /* hash, made by the shell, of the axes' names, order and strides, and of
                              the pages' fields */
    uint64_t fields_hash;  /* hash, likewise, of what the fields contain over all ranks: pages of
                              pools with equal hashes can be resharded (N3). 0: not stated */
    uint32_t copies;       /* 1: several ranks have the same part of the fields' contents (X5) */
    uint32_t align_tokens; /* L, if it is to be more than the groups need; 0: what they need */
    uint64_t bytes;        /* in one region; rounded down to whole slabs */
    uint64_t host_bytes;   /* the same for its host tier; 0: it has none */
    bool shared;
    /* Names of the groups, for operators; NULL: not known. Borrowed for the step. The core copies
     * the pointer to the answer and never reads the names, which are no part of a layout. */
    const char (*names)[GROUP_NAME_MAX];
    const struct reshard_layout *layouts; /* layout of each group; borrowed; NULL: not stated */
};

struct req_session_open {
    struct pool_id pool;
    struct namespace_id ns;
    uint32_t blobs_kept; /* M1: how many of its last turn records keep blobs; 0: BLOBS_KEPT */
    bool merging;        /* M2: several samples are merged: all records keep their blobs */
};

/* A token list: the first `base` tokens that the daemon has for this session, then v[0..n). */
struct req_tokens {
    const uint32_t *v;
    uint32_t n, base;
    const struct extra_key *keys; /* ascending positions, all >= base */
    uint32_t nkeys;
};

/* A Peek may come in pieces; each continues from the node that the last one reached. */
struct req_peek {
    struct pool_id pool;
    struct namespace_id ns;
    struct req_tokens tokens; /* base is the depth of `from` */
    struct node_id from;      /* {0, 0}: from the first token */
    bool pieces;              /* as `pieces` of a Match */
};

/* Blocks: prefixes of one chunk of L tokens each, in a pool of one group with one page a chunk. */
enum blocks_what { BLOCKS_FIND = 0, BLOCKS_TOUCH, BLOCKS_REMOVE, BLOCKS_ASK };

/* The result for a block without a page on the device: the page index in the answer is 0, and the
 * generation is one of these values. HELD: a removal found the block in use. ELSEWHERE + i: peer i
 * of the answer's hosts has the block. */
enum block_place { BLOCK_NOWHERE = 0, BLOCK_ON_HOST, BLOCK_ON_DISK, BLOCK_HELD, BLOCK_ELSEWHERE };

struct req_blocks {
    struct pool_id pool;
    struct namespace_id ns;
    enum blocks_what what;
    struct req_tokens keys; /* L tokens each; at most BLOCKS_MAX keys, for ASK BLOCKS_ASKED_MAX */
    uint32_t host;          /* ASK: the peer to ask; PEER_ANY: all peers */
};

/* A Match may come in pieces; each continues where the last ended. The last one has the result. */
struct req_match {
    struct session_id session;
    struct req_tokens tokens;
    uint32_t earlier; /* tokens of this Match that came in earlier pieces: at most tokens.base */
    bool more;        /* further pieces follow */
    bool pieces;      /* the core may process the first tokens alone, as a piece; `taken` of the
                         answer is their number */
    uint64_t step;    /* the last step that may touch pages that this frees (a resume frees the
                         tail) */
};

enum step_op_kind {
    STEP_EXTEND = 1,
    STEP_REWIND,
    STEP_COMMIT,
    STEP_FINISH,
    STEP_ABORT,
    STEP_CLOSE,
    STEP_SLIDE,   /* T5: removes STATE pages wholly below the window from the table. `length`: the
                     next commit target; 0: one chunk beyond the committed length. Commits slide
                     without this operation */
    STEP_RELEASE, /* SnapshotRelease: no session will return to this session's resume point, so its
                     STATE may be evicted first */
    STEP_ASSIGN,  /* an Extend whose pages are those in `runs`, which are leased to the engine: they
                     become the session's own */
    STEP_UNLEASE, /* frees the pages in `runs`, leased from `pool`. Names no session */
    STEP_WRITTEN, /* sent by older libraries, which named units of pages before their commit.
                     UNSUPPORTED */
    STEP_KINDS
};

/* "The session's table now has these pages at [group][first ...]." Extend: new pages. Match and
 * Fetch: borrowed pages. Commit: canonical pages that replace the session's duplicates. A RECURRENT
 * group has one page, and first is 0; if `from` is given (index not 0), the engine copies page
 * `from` into that page in stream order before it continues (T21). Assign: pages that the engine
 * put there. PageLease and Unlease: pages that are in no table; `first` is 0. */
struct table_run {
    uint32_t group, first, n;
    uint32_t zero; /* explicit padding: tests compare the steps of cores byte by byte */
    const struct page_ref *refs;
    struct page_ref from;
};

/* One operation of a Step: it takes effect wholly or not at all. A failed operation stops the rest
 * only if it is a `barrier`. */
struct step_op {
    enum step_op_kind kind;
    bool barrier;
    struct session_id session;
    uint64_t step;    /* REWIND, FINISH, ABORT, CLOSE, UNLEASE: the last step that may touch the
                         freed pages. COMMIT: the step that writes the pages, or a later step that
                         was dispatched on them; duplicates that canonical pages replace retire
                         behind that step (T8). 0: nothing is in flight */
    uint32_t length;  /* EXTEND, ASSIGN: tokens allocated, 0: unchanged. REWIND: p. COMMIT: depth.
                         FINISH: tokens that the session keeps */
    uint32_t written; /* EXTEND, ASSIGN: tokens written, 0: unchanged */
    struct req_tokens tokens; /* EXTEND, ASSIGN: appended tokens (base: the session's number of
                                 tokens, else CONFLICT) */
    struct pool_id pool;      /* UNLEASE: the pages' pool */
    uint32_t nruns; /* ASSIGN: one for each group that needs pages. UNLEASE: at most one a group */
    const struct table_run *runs;
};

struct req_step {
    const struct step_op *ops;
    uint32_t n;
    bool pieces; /* end the Step at the first operation for which op_goes_on is true */
};

/* E5: leases all of these pages of one group, or none. */
struct req_page_lease {
    struct pool_id pool;
    uint32_t group, pages; /* pages: at least one */
};

#define PEER_HOST 0xfffffffeu
#define PEER_DISK 0xfffffffdu
#define PEER_ANY  0xfffffffcu

struct req_fetch {
    struct session_id session;
    uint32_t peer;  /* index in the configured list; the shell resolves the name; NONE: unknown.
                       PEER_HOST: this daemon's own host tier; PEER_DISK: its disk; PEER_ANY: the
                       peer that reports most */
    uint32_t depth; /* fetch at most this many tokens of the session's list; 0: all */
    uint32_t
        at_least; /* wait until the source has published this many tokens; 0: take what it has */
    uint32_t wait_ms;     /* longest wait; 0: until shortly before the transfer's deadline */
    bool prefetch;        /* X8: no decode waits for it */
    uint64_t step;        /* the last that may touch the session's own pages, which are replaced */
    struct ticket ticket; /* Y2: fetch all that the ticket names from the peer that issued it; the
                             session's list is exactly the ticket's tokens. id.gen 0: no ticket;
                             `peer`, `depth` and `at_least` name what is wanted */
    bool follow;          /* Y4: with a ticket whose session may still run: begin now */
};

/* Y4: answered when the session's fetch has raised its written length above `above`, or ended. */
struct req_fetch_wait {
    struct session_id session;
    uint32_t above;
    bool pages; /* answer at once, with the pages that the fetch has filled or will fill */
};

struct req_fetch_cancel {
    struct session_id session;
};

/* Stores a prefix of the session on disk, as a cold entry (D2). Answered when it is durable. */
struct req_store {
    struct session_id session;
    uint32_t depth; /* length, at most the committed one, aligned down to L; 0: that of D2 */
};

/* Y1: closes the session. Whoever shows the ticket gets the session's contents at its written
 * length. */
struct req_handoff {
    struct session_id session;
    uint64_t step;          /* the last that may write the session's pages */
    uint32_t deadline_ms;   /* lifetime of the ticket; 0, or above the daemon's limit: that limit */
    uint32_t blob_bytes;    /* bytes that the engine attaches, at most TICKET_BLOB_BYTES */
    struct req_tokens blob; /* these bytes as words; zeros fill the last word */
    uint64_t key[2];        /* of the ticket: random numbers from the shell */
};

/* Y1: a ticket of a session that still runs. A later Handoff sets the ticket's length. */
struct req_ticket_open {
    struct session_id session;
    uint32_t deadline_ms; /* as of a Handoff */
    uint32_t zero;
    uint64_t key[2]; /* of the ticket, as in a Handoff */
};

/* A renewal or a drop of a ticket, by any engine of the tenant that shows the ticket. */
struct req_ticket {
    struct ticket ticket;
    uint32_t deadline_ms; /* RENEW: as of a Handoff, from now on */
    uint32_t zero;
};

/* A running session gives up its device pages. A Recover restores them. */
struct req_retract {
    struct session_id session;
    enum retract_mode mode;
    uint64_t step; /* the last step that may touch the session's pages; 0: nothing is in flight */
};

/* Answered when the session's pages are on the device again. */
struct req_recover {
    struct session_id session;
};

/* Makes everything in this namespace unmatchable. */
struct req_namespace_reset {
    struct namespace_id ns; /* in every pool of the engine's tenant */
};

/* Answered when every rank of the engine has passed the step. */
struct req_wait_published {
    uint64_t step;
};

/* Claims the session: until the turn ends, only the handle in the answer can use it. */
struct req_turn_begin {
    struct session_id session;
};

struct req_turn_end {
    struct session_id session; /* as TurnBegin returned it */
    uint64_t step;             /* the last step of the turn that may touch the session's pages */
};

/* Answered when the session is closed. A turn in flight ends first, unless that turn itself closes
 * the session. If the turn ends without a TurnEnd, its steps in flight are unknown: the answer is
 * BUSY, and the session stays open. */
struct req_session_close {
    struct session_id session;
    uint64_t step; /* the last step that may touch the freed pages; 0: nothing is in flight */
};

/* ---- turn records: what a turn leaves with its session beside KV (M1 to M11) ----
 *
 * Turn records lie in the tenant's record memory, which its engines map. A section is bytes in
 * consecutive runs of pages of RECORD_PAGE_BYTES; all pages but the last one are full. */

struct record_run {
    uint32_t first, n; /* pages of the tenant's record memory */
};

struct record_section {
    uint64_t bytes;
    uint32_t nruns, zero;
    struct record_run run[RECORD_RUNS_MAX];
};

struct record_blob {
    char name[BLOB_NAME_MAX];
    uint32_t dropped, zero; /* dropped: the blob was removed (M1), and `at` is empty */
    struct record_section at;
};

/* A turn record covers the tokens [from, length) of the session's recorded list.
 * - before: token ids of [0, from), u32 each; present while the record is prepared, to compare with
 * what is stored (M4). A rollback has the tokens of the whole prompt here.
 * - own: token ids of [from, length), u32 each, then a float log-probability for each, or for
 * none. */
struct record_body {
    uint32_t from, length, logprobs, nblobs;
    struct record_section before, own;
    struct record_blob blob[RECORD_BLOBS_MAX];
};

enum record_kind { RECORD_APPEND = 0, RECORD_ROLLBACK = 1 };

/* The part of a record that a refusal names (M10). */
enum record_part { PART_NONE = 0, PART_TOKENS, PART_LOGPROBS };

struct req_blob {
    char name[BLOB_NAME_MAX];
    uint64_t bytes;
};

struct req_blobs {
    uint32_t n, zero;
    struct req_blob v[RECORD_BLOBS_MAX];
};

/* Allocates pages into which the engine writes a record, or the prompt to roll back to. Frees pages
 * that this turn prepared earlier and did not put. */
struct req_record_prepare {
    struct session_id session;
    enum record_kind kind;
    uint32_t length;   /* tokens of the whole list */
    uint32_t logprobs; /* of the new tokens: one for each, or 0 */
    struct req_blobs blobs;
};

/* The prepared record is written: check it, and append it. */
struct req_record_put {
    struct session_id session;
};

/* M3: drops all records behind the deepest one whose list is a prefix of the prepared prompt. */
struct req_rollback {
    struct session_id session;
    uint64_t step; /* the last that may touch the session's pages */
};

struct req_record_get {
    struct session_id session;
    uint32_t first; /* record */
};

struct req_pin {
    struct node_id node; /* as ternctl tree shows it */
    bool on;
};

struct req_evict {
    struct pool_id pool; /* {NONE, 0}: every pool of every tenant */
    uint32_t nodes;      /* at most this many; 0: all that can be evicted */
};

/* The result of an eviction. A node evicted from both tiers counts twice. `pages` were freed on the
 * device, `host_pages` on the host. */
struct evicted {
    uint32_t nodes, pages, host_pages;
};

/* The request that a later step answers, and the generation of its connection, which gets no answer
 * once it is closed. gen 0: no request waits. */
struct reply_to {
    uint32_t conn, gen;
    uint64_t request_id, trace_id;
};

/* State that a request leaves with its session, for a late answer or a later request: fields of the
 * core's struct session, all 0 when a session is opened.
 * - load_*: the FETCH from the host tier, or the RECOVER, to answer.
 * - close_*: the SESSION_CLOSE to answer when its turn has ended; valid while the gate is CLOSING
 * or CLOSED.
 * - turn_step: TURN_END: the last step that may touch the session.
 * - away_step: RETRACT: the last step that may touch the freed pages.
 * - tail_step: FETCH from the host tier: the last step that may touch the replaced pages. */
#define SESSION_KEEPS                                                                              \
    struct reply_to load_reply, close_reply;                                                       \
    uint64_t close_step, away_step, turn_step, tail_step;                                          \
    uint32_t load_op;

struct request {
    enum op op;
    uint32_t conn;
    uint64_t request_id;
    uint64_t trace_id;
    union {
        struct req_join join;
        struct req_pool_open pool_open;
        struct {
            struct pool_id pool;
            bool sums; /* also map the place for checksums, if there is one */
        } pool_map;    /* the rank is the connection's */
        struct {
            struct pool_id pool;
        } pool_close; /* CONFLICT while sessions are open in it or another engine has mapped it */
        struct req_session_open session_open;
        struct req_peek peek;
        struct req_blocks blocks;
        struct req_match match;
        struct req_step step;
        struct req_fetch fetch;
        struct req_fetch_cancel fetch_cancel;
        struct req_evict evict;
        struct req_retract retract;
        struct req_recover recover;
        struct req_namespace_reset namespace_reset;
        struct req_pin pin;
        struct req_wait_published wait_published;
        struct req_turn_begin turn_begin;
        struct req_turn_end turn_end;
        struct req_session_close session_close;
        struct req_record_prepare record_prepare;
        struct req_record_put record_put;
        struct req_rollback rollback;
        struct req_record_get record_get;
        struct req_store store;
        struct req_handoff handoff;
        struct req_ticket ticket_renew, ticket_drop;
        struct req_page_lease page_lease;
        struct req_ticket_open ticket_open;
        struct req_fetch_wait fetch_wait;
        struct {
            bool on;
        } drain;
        struct {
            struct session_id session; /* its own handle, not a turn's */
        } session_end;
        struct {
            struct engine_id engine;
        } engine_kick;
        struct {
            struct pool_id pool;
        } pool_end;
    };
};

/* E4: what an answer of POOL_EXHAUSTED lacks, and what waiting would free, in pages of `group`. For
 * QUOTA `free` is the most that is possible, and `needed` exceeds that. */
struct shortage {
    uint32_t group, needed, free, evictable, retiring;
    uint64_t until_step; /* 0: no step will free more */
    bool goes_on;        /* BUSY: one step's work was done, and a repetition continues at once.
                            false: the jobs that keep the pages must end first */
    bool storing;        /* BUSY: stores to the disk keep pages that eviction could free */
};

#define REPLY_NUMBERS 2

/* The reason of a refusal: a static text, and the numbers that replace each # of the text. */
struct reason {
    const char *text;
    uint64_t number[REPLY_NUMBERS];
};

struct lengths {
    uint32_t committed, written, allocated; /* in ascending order (S1) */
};

struct op_result {
    enum tern_err err;
    struct lengths lengths;    /* after the operation, whether it failed or not */
    uint32_t tokens;           /* tokens in the session's list */
    uint32_t first_run, nruns; /* in reply.runs */
    uint32_t align; /* L, if a COMMIT is INVALID since its depth is no multiple of L; or 0 */
    struct shortage shortage; /* if err is POOL_EXHAUSTED or QUOTA; `goes_on`: if it is BUSY */
    const char *text;         /* static; of a Step's results only the first text stays, else NULL */
    uint64_t number[REPLY_NUMBERS]; /* as in struct reply */
};

static inline bool op_goes_on(const struct op_result *r)
{
    return r->err == TERN_BUSY && r->shortage.goes_on;
}

/* The session's records after a put or a rollback. */
struct recorded {
    uint32_t part, index; /* if MALFORMED: part of the record (enum record_part), and index of its
                             element. Else 0 */
    uint32_t length, records;
    struct lengths lengths; /* of the session; all 0 if a rollback freed its table */
    uint32_t tokens;        /* in the session's list */
};

struct reply {
    enum op op;
    enum tern_err err;
    uint32_t conn;
    uint64_t request_id, trace_id;
    const char *text; /* static: what to do about err; "" if there is nothing to add to err_text */
    uint64_t number[REPLY_NUMBERS]; /* replace each # of the text, in order */
    const struct table_run *runs;
    uint32_t nruns;
    struct shortage shortage; /* if err is POOL_EXHAUSTED or QUOTA; `goes_on`: if it is BUSY */
    union {
        struct {
            struct engine_id engine;
        } join;
        struct {
            struct pool_id pool;
            uint32_t align_tokens;
            uint64_t bytes;
            const char (*names)[GROUP_NAME_MAX]; /* the request's */
            const struct reshard_layout *layouts;
        } pool_open;
        struct {
            uint32_t region;
            uint64_t offset, bytes;
            bool sums; /* the request's */
        } pool_map;    /* in the tenant's memory of that region */
        struct {
            struct session_id session;
        } session_open;
        struct {
            struct session_id turn; /* the session's handle until the turn ends */
        } turn_begin;
        struct {
            uint32_t depth, history_depth; /* depth that a Match would reach; that of HISTORY alone,
                                              not smaller */
            uint32_t host_depth;           /* depth with a Fetch from PEER_HOST; >= depth */
            struct node_id reached; /* all chunks of these tokens were found: a Peek of the tokens
                                       behind them continues from this node; {0, 0}: not all were */
            uint32_t walked;        /* depth of `reached` */
            uint32_t disk_depth;    /* depth with a Fetch from PEER_DISK, looked up within these
                                       tokens; 0: not above depth */
            uint32_t taken;         /* number of tokens that the core processed; 0: all */
        } peek;
        struct {
            struct lengths lengths;
            uint32_t tokens;
            uint32_t matched;
            uint32_t host_depth; /* depth with a Fetch from PEER_HOST; 0 on a resume */
            uint32_t disk_depth; /* depth with a Fetch from PEER_DISK; 0: not above the present
                                    one */
            uint32_t taken;      /* number of tokens that the core processed; 0: all */
        } match;                 /* matched: tokens found in the tree now; 0 on a resume */
        struct {
            const struct op_result *results;
            uint32_t n;
        } step; /* n < ops if a barrier, or the end of a piece, stopped the Step */
        struct {
            struct lengths lengths;
            uint32_t kib;
            uint32_t retry_ms; /* if BUSY: when to ask the source again; 0: not stated */
            uint32_t tokens;   /* in the session's list */
            uint32_t blob_bytes;
            const uint32_t *blob; /* the ticket's blob; NULL: none */
            uint32_t handed;      /* if INVALID, by ticket: the length that was handed over; or 0 */
            uint32_t arriving; /* FETCH_WAIT: length once what is arriving has arrived; 0: nothing
                                  is arriving */
            /* If UNSUPPORTED: the layouts of the session's pool and of the source's; 0: not
             * stated. */
            uint64_t layout_hash, other_hash;
            const uint32_t *hosts; /* the source peer, if any */
            uint32_t nhosts;
        } fetch, fetch_wait;
        struct {
            const uint32_t *hosts; /* peers, as BLOCK_ELSEWHERE counts them */
            uint32_t nhosts;
        } blocks;
        struct {
            struct lengths lengths;
            uint32_t evictable; /* HOST: most device pages that can be evicted once copied */
            uint32_t free_now, free_at_step; /* device pages that are free now, and those that are
                                                when `step` has passed. Pages of the committed
                                                prefix are in neither: RETRACT_HOST makes them
                                                evictable when the copies exist */
        } retract;
        struct {
            struct lengths lengths; /* the recovered lengths */
            uint32_t tokens, kib;
        } recover; /* runs: the whole table, as after a Match */
        struct {
            uint32_t nodes;     /* nodes of the namespace; each is freed when its pins end */
            uint32_t unreached; /* peers that have not reset it, or some of whose peers have not */
        } namespace_reset;
        struct {
            uint64_t bytes; /* of the tenant's record memory */
        } record_map;
        struct {
            const struct record_body *body; /* NULL where there is none */
        } record_prepare;
        struct recorded record_put, rollback;
        struct {
            uint32_t records;               /* of the session */
            uint32_t n;                     /* in this answer */
            const struct record_body *list; /* [first, first + n) */
        } record_get;
        struct {
            uint32_t depth;   /* length of the durable prefix */
            uint64_t written; /* new bytes written for it */
        } store;
        struct {
            struct ticket ticket;
            uint32_t deadline_ms; /* remaining lifetime */
        } handoff, ticket_renew, ticket_open;
        struct {
            uint32_t leased; /* pages that the engine leases from that pool. runs: the new ones */
        } page_lease;
        struct {
            uint32_t refs; /* ADMIN refs of the node now */
        } pin;
        struct evicted evict;
        struct {
            uint32_t sessions;
        } drain; /* sessions still open */
        struct {
            uint64_t until_step; /* the pages are free when the engine has passed it; 0: now */
        } session_end;
        struct {
            struct engine_id engine;
            uint32_t alive; /* its live processes; its pages are free when they have exited */
        } engine_kick;
        struct {
            uint32_t nodes; /* nodes removed with the pool */
        } pool_end;
    };
};

#endif
