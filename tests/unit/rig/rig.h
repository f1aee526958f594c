/* A rig around one core, for unit tests and fuzzers, in place of the shell. It turns calls into
 * events, keeps the replies, answers the core's jobs (seal, zero, pull, stop) at once or when the
 * test wants, and has real bytes for every page, so that a test can compare contents. Links can
 * join two rigs. After every event the audit of tests/oracle runs. Anything that the core must
 * never do ends in rig_fail. */
#ifndef TEST_RIG_H
#define TEST_RIG_H

#include "core/query.h"
#include "oracle/oracle.h"

#define RIG_TENANTS_MAX 4
#define RIG_JOBS_MAX    512
#define RIG_REPLIES_MAX 1024
#define RIG_LINKS_MAX   32
#define RIG_TOKENS_MAX  65536
#define RIG_TABLE_MAX   4608
#define RIG_KEYS_MAX    16
#define RIG_SERVES_MAX  128
#define RIG_SPAN_PAGES  64 /* pages of one end in a page of the other */

enum rig_job_kind {
    RIG_SEAL = 1,
    RIG_ZERO = 2,
    RIG_PULL = 4,
    RIG_PULL_STOP = 8,
    RIG_SERVE_STOP = 16,
    RIG_MSG = 32, /* a message to the other rig of a link */
    RIG_COPY = 64,
    RIG_RECORD = 128, /* a look at a turn record */
    RIG_DISK_WRITE = 256,
    RIG_DISK_DROP = 512,
    RIG_ALL = 1023
};

struct rig;

struct rig_job {
    enum rig_job_kind kind;
    union { /* by kind */
        struct seal_id seal;
        struct pool_id zero;
        struct copy_id copy;
        struct pull_id pull;
    };
    struct serve_id serve; /* SERVE_STOP; PULL: at the source */
    uint32_t link, pool, batch, n;
    struct page_at *pages; /* owned */
    uint32_t to_pool;      /* COPY: `pages` are read, `to` is written */
    struct page_at *to;    /* owned */
    struct page_ref *refs; /* owned */
    bool resharded;        /* a PULL between pools of other layout */
    struct pull_span
        *spans;          /* owned: of a PULL between pools of other page_tokens; `pages` then has
                          * those of all spans, and page_bytes are in the ratio of page_tokens */
    struct peer_msg msg; /* its arrays owned */
    struct record_job record;
    struct disk_page *from;  /* owned: of a PULL from the disk */
    struct disk_write write; /* its arrays owned */
    struct disk_drop drop;
};

struct spill; /* rig_spill.h */

struct rig_reply {
    struct reply reply; /* its arrays owned */
    bool used;
};

struct rig_options {
    struct core_limits limits;
    struct tenant_config tenant[RIG_TENANTS_MAX];
    uint64_t incarnation;
    uint64_t secret; /* of the tables: see testing/secret.h */
};

/* Pages that a PULL moves to a pool of another layout. The source has n of them, from `first`
 * on. */
struct rig_move {
    struct rig *from, *to;
    uint32_t from_pool, to_pool, group, first, n, pages;
    uint32_t there[RIG_SPAN_PAGES], here[RIG_SPAN_PAGES]; /* their indices */
};

struct rig {
    struct rig *next_live;        /* in the list of rigs that were not destroyed */
    struct rig_session *sessions; /* owned: those of rig_session */
    void (*on_event)(void *ctx,
                     const struct event *event); /* called before each step; NULL: none */
    void *on_event_ctx;
    void (*reshard)(const struct rig_move *move); /* NULL: rank 0's bytes are copied, in order */
    struct core *core;
    void *mem;
    size_t mem_bytes;
    struct rig_options options;
    struct actions *out; /* shared by all rigs */
    uint64_t now_ns;
    uint64_t next_request;
    uint32_t next_conn, next_proc;
    uint32_t automatic; /* kinds of jobs that complete by themselves */
    bool no_audit;
    enum supersede supersede;                    /* of the pools that rig_pool_open opens */
    uint64_t host_bytes;                         /* of these pools; 0: no host tier */
    uint8_t *bytes[RIG_TENANTS_MAX];             /* region 0 of each tenant */
    uint8_t *region[RIG_TENANTS_MAX][RANKS_MAX]; /* the others, once one was asked for */
    uint8_t *host[RIG_TENANTS_MAX];              /* the host tier of each */
    uint8_t *records[RIG_TENANTS_MAX];           /* the record memory of each */
    uint64_t *sums;         /* of each page record, once its checksum is known */
    enum tern_err copy_err; /* result of the next `copies_to_fail` copies */
    uint32_t copies_to_fail, copies_back, copies_up;
    struct rig_job jobs[RIG_JOBS_MAX];
    uint32_t njobs;
    struct rig_reply replies[RIG_REPLIES_MAX]; /* by request id modulo */
    struct reply *last;                        /* the newest reply, NULL before the first */
    struct op_result res;                      /* result of the last rig_op */
    uint32_t free_now, free_at_step;           /* of the last rig_retract */
    struct {
        struct rig *rig; /* the other end; NULL: down */
        uint32_t link;
    } link[RIG_LINKS_MAX];
    struct {
        struct serve_id id;
        uint32_t pool;
        bool live;
    } serve[RIG_SERVES_MAX];
    struct spill *spill;                 /* its disk, borrowed; NULL: none */
    uint32_t corrupt_pages;              /* pages still to be corrupted at the receive */
    uint32_t corrupt_group_index;        /* 0: any; else only this index */
    uint64_t pulled_pages, pulled_bytes; /* that arrived; bytes: without spans */
    uint64_t step_wanted;                /* as the core last set it */
    uint32_t replies_seen, closes_seen, engines_gone, engines_stuck, link_closes;
    struct engine_id engine_gone; /* the newest */
    uint32_t max_pages_in_flight, pages_in_flight;
};

struct rig_engine {
    struct engine_id id;
    uint32_t tenant, world;
    uint32_t conn[RANKS_MAX], proc[RANKS_MAX]; /* [0] is the scheduler, too */
};

/* The engine's picture of a session, kept up to date by the answers. */
struct rig_session {
    struct rig *rig;
    struct rig_session *next; /* of rig->sessions */
    struct session_id id;
    struct pool_id pool;
    uint32_t conn, tenant;
    struct namespace_id ns;
    struct lengths len;
    uint32_t ntokens, nkeys;
    uint32_t tokens[RIG_TOKENS_MAX];
    struct extra_key keys[RIG_KEYS_MAX];
    struct page_ref table[GROUPS_MAX][RIG_TABLE_MAX];
    uint32_t matched;           /* by the last Match */
    uint64_t fetch;             /* the request id of the last Fetch */
    uint32_t at_least, wait_ms; /* of the next Fetch */
    bool prefetch;
    uint64_t fetch_step;
    /* T5. Own pages of a WINDOW group below `slid` have left the table, and borrowed ones below
     * `low` tokens, since chunks are borrowed as a whole. */
    uint32_t slid[GROUPS_MAX], low;
};

/* Limits that fit small tests. A test changes those that it is about. */
struct rig_options rig_defaults(void);
/* Limits so small that each table is full now and then. */
struct rig_options rig_small(void);
struct rig *rig_create(const struct rig_options *options); /* NULL: the defaults */
/* Destroys its sessions, too. After each case rig_destroy_all does this. */
void rig_destroy(struct rig *rig);
void rig_destroy_all(void);

/* Applies one event, processes the actions, and completes automatic jobs until nothing is left to
 * do (on linked rigs, too). */
void rig_event(struct rig *rig, const struct event *event);
void rig_advance(struct rig *rig, uint64_t ns); /* time passes, with an EV_TIMER */
void rig_timers(struct rig *rig);               /* EV_TIMERs while the core's deadline has passed */
void rig_settle(struct rig *rig);               /* completes automatic jobs */

/* Jobs that wait because their kind is not automatic. */
uint32_t rig_jobs(const struct rig *rig, enum rig_job_kind kind);
struct rig_job *rig_job(struct rig *rig, enum rig_job_kind kind, uint32_t nth);
void rig_complete(struct rig *rig, enum rig_job_kind kind); /* the oldest of that kind */
/* The oldest n checksum jobs, in one event. */
void rig_complete_seals(struct rig *rig, uint32_t n);
void rig_complete_nth(struct rig *rig, enum rig_job_kind kind, uint32_t nth);
void rig_drop(struct rig *rig, enum rig_job_kind kind); /* the oldest is forgotten */

uint32_t rig_connect(struct rig *rig, uint32_t tenant, uint32_t *ret_proc);
uint32_t rig_connect_admin(struct rig *rig);
void rig_disconnect(struct rig *rig, uint32_t conn);
void rig_proc_gone(struct rig *rig, uint32_t proc);
void rig_step_done(struct rig *rig, struct engine_id engine, uint32_t rank, uint64_t step);
void rig_engine_done(struct rig *rig, const struct rig_engine *e, uint64_t step); /* every rank */

/* Sends a request; the reply that came within the event, NULL if it comes later. Borrowed until
 * RIG_REPLIES_MAX requests later. */
const struct reply *rig_request(struct rig *rig, uint32_t conn, struct request *request);
const struct reply *rig_reply_to(struct rig *rig, uint64_t request_id);

enum tern_err rig_join(struct rig *rig, uint32_t conn, const char *name, enum role role,
                       uint32_t rank, uint32_t world);
enum tern_err rig_leave(struct rig *rig, uint32_t conn);
struct rig_engine rig_engine(struct rig *rig, uint32_t tenant, const char *name, uint32_t world);
/* Rank r lives in region first + r, which it names when it joins. */
struct rig_engine rig_engine_at(struct rig *rig, uint32_t tenant, const char *name, uint32_t world,
                                uint32_t first);
enum tern_err rig_join_at(struct rig *rig, uint32_t conn, const char *name, uint32_t rank,
                          uint32_t world, uint32_t region);
void rig_engine_kill(struct rig *rig, const struct rig_engine *e, uint32_t rank);

struct group_layout rig_group(uint32_t page_tokens, uint64_t page_bytes);
/* A WINDOW group with a reserve of one token; a RECURRENT one (page_tokens only has to divide L).
 */
struct group_layout rig_window(uint32_t page_tokens, uint32_t window, uint64_t page_bytes);
struct group_layout rig_recurrent(uint32_t page_tokens, uint64_t page_bytes);
enum tern_err rig_pool_open(struct rig *rig, uint32_t conn, const struct group_layout *groups,
                            uint32_t n, uint64_t bytes, struct pool_id *ret);
enum tern_err rig_map(struct rig *rig, uint32_t conn, struct pool_id pool);
enum tern_err rig_pool_map(struct rig *rig, uint32_t conn, struct pool_id pool);
enum tern_err rig_pool_close(struct rig *rig, uint32_t conn, struct pool_id pool);
/* A pool with one HISTORY group that has exactly `usable` pages to hand out. */
struct pool_id rig_pool_pages(struct rig *rig, const struct rig_engine *e, uint32_t page_tokens,
                              uint32_t usable);

enum tern_err rig_session_open(struct rig *rig, uint32_t conn, struct pool_id pool, uint64_t ns,
                               struct rig_session *ret);
/* Opened, checked, and owned by the rig. rig_session_free frees it earlier, without a request. */
struct rig_session *rig_session(struct rig *rig, const struct rig_engine *e, struct pool_id pool,
                                uint64_t ns);
void rig_session_free(struct rig_session *s);

/* Tokens of a made-up sequence: one seed has one sequence, and sequences share no prefix. */
const uint32_t *rig_tokens(uint32_t seed, uint32_t n);
extern const uint32_t *const seq1; /* sequence 1, at an address that never changes */

enum tern_err rig_match(struct rig_session *s, const uint32_t *tokens, uint32_t n);
enum tern_err rig_match_full(struct rig_session *s, const struct req_tokens *tokens, uint64_t step);
enum tern_err rig_peek(struct rig_session *like, const uint32_t *tokens, uint32_t n,
                       uint32_t *ret_depth);
enum tern_err rig_peek_keys(struct rig_session *like, const struct req_tokens *tokens,
                            uint32_t *ret_depth);
uint32_t rig_depth(struct rig_session *like, const uint32_t *tokens,
                   uint32_t n); /* Peek that must succeed */

enum tern_err rig_op(struct rig_session *s, struct step_op op);
enum tern_err rig_extend(struct rig_session *s, uint32_t allocated, uint32_t written,
                         const uint32_t *tokens, uint32_t n);
/* Grows to `to` tokens of `tokens`, writes their pages (rig_write) and reports them: A = C = to. */
enum tern_err rig_run_to(struct rig_session *s, const uint32_t *tokens, uint32_t to);
enum tern_err rig_rewind(struct rig_session *s, uint32_t p, uint64_t step);
enum tern_err rig_commit(struct rig_session *s, uint32_t depth, uint64_t step);
enum tern_err rig_finish(struct rig_session *s, uint32_t length, uint64_t step);
enum tern_err rig_abort(struct rig_session *s, uint64_t step);
enum tern_err rig_close(struct rig_session *s, uint64_t step);
enum tern_err rig_slide(struct rig_session *s, uint32_t next, uint64_t step);
enum tern_err rig_snapshot_release(struct rig_session *s);
const struct reply *rig_step_ops(struct rig *rig, uint32_t conn, const struct step_op *ops,
                                 uint32_t n);
/* Applies an operation's answer to the session's table. */
void rig_take(struct rig_session *s, const struct reply *reply, const struct op_result *result);

/* Match, run, commit and (rig_put) close: tokens [0, depth) of `seed` are in the tree then. */
struct rig_session *rig_committed(struct rig *rig, const struct rig_engine *e, struct pool_id pool,
                                  uint32_t seed, uint32_t depth);
void rig_put(struct rig *rig, const struct rig_engine *e, struct pool_id pool, uint32_t seed,
             uint32_t depth);

uint32_t rig_evict(struct rig *rig, uint32_t admin_conn, struct pool_id pool, uint32_t nodes);

/* The engine forgets the session's table; the answer to Recover has it. */
enum tern_err rig_retract(struct rig_session *s, enum retract_mode mode, uint64_t step);
uint64_t rig_recover(struct rig_session *s); /* the request id */
/* Applies the answer to a Recover to the session. Returns its error, BUSY if there is none yet. */
enum tern_err rig_recovered(struct rig_session *s, uint64_t request_id);
enum tern_err rig_recover_now(struct rig_session *s); /* which must be answered already */
enum tern_err rig_reset(struct rig *rig, uint32_t conn, uint64_t ns, uint32_t *ret_nodes);
enum tern_err rig_pin(struct rig *rig, uint32_t admin_conn, struct node_id node, bool on);

uint64_t rig_fetch(struct rig_session *s, uint32_t peer, uint32_t depth); /* the request id */
/* Applies the answer to a fetch to the session. Returns its error, BUSY if there is none yet. */
enum tern_err rig_fetched(struct rig_session *s, uint64_t request_id);
enum tern_err rig_fetch_cancel(struct rig_session *s);
void rig_link_up(struct rig *a, uint32_t link_a, struct rig *b, uint32_t link_b);
void rig_link_down(struct rig *a, uint32_t link_a);     /* at both ends */
void rig_lose_messages(struct rig *rig, uint32_t link); /* those not delivered yet */
/* The serve's pool at the source; NONE if the serve never started. */
uint32_t rig_serve_pool(const struct rig *rig, struct serve_id serve);

/* Bytes. A whole page of a session has a pattern of (namespace, tokens up to its end, group), a
 * RECURRENT page the pattern of the length whose state it is. */
uint8_t *rig_page(struct rig *rig, uint32_t pool, uint32_t group, uint32_t index,
                  uint64_t *ret_bytes);
uint8_t *rig_region(struct rig *rig, uint32_t tenant, uint32_t region);
/* In the rank's region; rig_page: in that of rank 0. */
uint8_t *rig_page_at(struct rig *rig, uint32_t pool, uint32_t rank, struct page_at at,
                     uint64_t *ret_bytes);
void rig_write(struct rig_session *s, uint32_t from, uint32_t to);
uint32_t
rig_wrong(struct rig_session *s,
          uint32_t upto); /* pages with wrong bytes, of those needed to run on from `upto` */

struct pool_view rig_pool_view(struct rig *rig, struct pool_id pool);
struct pool_view rig_host_view(struct rig *rig, struct pool_id pool); /* the host tier's */
struct group_view rig_group_view(struct rig *rig, struct pool_id pool, uint32_t group);
uint32_t rig_free(struct rig *rig, struct pool_id pool);     /* of group 0 */
uint32_t rig_retiring(struct rig *rig, struct pool_id pool); /* of group 0 */
struct core_view rig_view(struct rig *rig);
/* The change with that number, of any tenant. Returns false if it was lost, or has not happened. */
bool rig_event_view(const struct core *core, uint64_t seq, struct tree_event_view *ret);

/* The core broke its contract with the shell, or a test used the rig wrongly: as oracle_fail. */
_Noreturn void rig_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
