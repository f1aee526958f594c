/* libtern: how a model server talks to the Tern daemon on its host.
 *
 * The daemon owns the KV pages; the engine maps them and its kernels read and write them in place.
 * Requests carry tokens, page indices and lengths only. One struct tern is one connection of one
 * process. Each rank process of an engine makes its own, joins under the same engine name, and maps
 * its own region.
 *
 * Threads: a struct tern and everything got from it belong to one thread at a time; different
 * connections are independent. The library starts no thread, installs no signal handler and never
 * logs. Blocking: every call with a deadline_ms blocks at most that long and then returns
 * TERN_TIMED_OUT; the request itself may still take effect (repeat it: requests that may be
 * repeated say so). deadline_ms 0 is TERN_DEADLINE_DEFAULT_MS. The asynchronous form
 * (tern_submit_*, tern_poll) never blocks. After TERN_PEER_LOST (or TERN_MALFORMED: the daemon sent
 * nonsense) the connection is dead: every later call answers TERN_PEER_LOST. Its pools stay mapped,
 * so that kernels in flight touch valid memory, until tern_destroy; then connect again if you wish.
 * A daemon that was restarted has another incarnation, and every handle from before is answered
 * TERN_GONE. After fork() a connection is the parent's: it is not mapped in the child, which may
 * call tern_pool_unmap and tern_destroy on it, and nothing else. */
#ifndef TERN_H
#define TERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tern_err.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TERN_API __attribute__((visibility("default")))

#define TERN_DEADLINE_DEFAULT_MS 5000
#define TERN_GROUPS_MAX          8
#define TERN_RANKS_MAX           16
#define TERN_INFLIGHT_MAX                                                                          \
    64 /* asynchronous requests of a connection that were not yet handed out by tern_poll */
#define TERN_STEP_OPS_MAX    1024        /* operations of one tern_step */
#define TERN_KEYS_MAX        1024        /* extra keys of one token list */
#define TERN_EVENTS_KEPT     1024        /* changes of a subscription that wait for tern_poll */
#define TERN_ENGINE_NAME_MAX 47          /* bytes of an engine's name */
#define TERN_ADMIN_JSON_MAX  (64u << 20) /* bytes of one admin answer */

struct tern;      /* a connection; heap */
struct tern_pool; /* a mapped pool; heap, owned by its connection */

typedef uint64_t
    tern_session; /* handle of a session: belongs to the engine, valid on each of its connections */

/* tern_err.h explains each error; a function names those that mean something of its own. Besides,
 * any may answer PEER_LOST, TIMED_OUT and MALFORMED as above; INVALID: an argument; BUSY: a limit
 * on concurrent work, or not every rank of the engine has joined yet; QUOTA: a limit of the
 * tenant's; GONE: a handle of something that was closed, or a process of the engine died; INTERNAL:
 * no memory.
 *
 * Static texts; never NULL; any thread. */
TERN_API const char *tern_strerror(enum tern_err err);
TERN_API enum tern_err_category tern_category(enum tern_err err); /* what to do about it */
TERN_API const char *tern_version(void);                          /* of the library: "0.1.0" */

/* What went wrong last on this connection, in words that say what to do; "" after a success.
 * Borrowed until the next call. NULL: the same of this thread's last tern_connect. */
TERN_API const char *tern_error_text(const struct tern *t);

/* Connects to the tenant's socket and agrees on a version. PEER_LOST: nobody listens there, or the
 * socket's mode forbids it (errno says which). UNSUPPORTED: no common version. INVALID: the path is
 * too long for a socket. BUSY: the daemon is draining: connect to another one. QUOTA: the tenant
 * has as many connections as it may. Any other is the daemon's own; tern_error_text(NULL) has its
 * words. */
TERN_API enum tern_err tern_connect(const char *socket_path, uint32_t deadline_ms,
                                    struct tern **ret);
/* Unmaps this connection's pools, leaves the engine and closes. NULL is fine. In a forked child it
 * frees the child's copy and nothing else. */
TERN_API void tern_destroy(struct tern *t);
/* Of the daemon that is connected: another number after each of its starts. */
TERN_API uint64_t tern_incarnation(const struct tern *t);
/* From now on this connection's requests carry that id: the daemon's log lines about them have it
 * as trace= and 16 hex digits, and for a fetch the peer's log, too (most of them at log_level
 * debug). 0, as at first: none. Asks nobody. */
TERN_API void tern_trace(struct tern *t, uint64_t trace_id);

enum tern_role { TERN_SCHEDULER = 0, TERN_WORKER = 1, TERN_BOTH = 2 };

/* Makes this process part of the engine `name`. TERN_BOTH is a process that is a rank and schedules
 * too. rank: 0 to world - 1, which a pure scheduler is not asked for. An engine serves once all
 * ranks have joined. CONFLICT: another world size, that rank is taken, or this connection has
 * joined already as another. BUSY: processes of an engine of that name still have to exit. May be
 * repeated by the same process. */
TERN_API enum tern_err tern_join(struct tern *t, const char *name, enum tern_role role,
                                 uint32_t rank, uint32_t world, uint32_t deadline_ms);

/* HISTORY: KV of every token. STATE groups hold what is needed to go on from a depth, and no more:
 * WINDOW the pages of the last `window` tokens; RECURRENT one page that is the whole state at one
 * depth, overwritten in place as the session runs. */
enum tern_family { TERN_HISTORY = 0, TERN_WINDOW = 1, TERN_RECURRENT = 2 };
/* What happens to STATE pages that a deeper resume point of the same conversation has made
 * needless: they are the first to be taken by whoever needs pages (LAZY), freed at once (EAGER), or
 * kept for as long as the prefix that they belong to (OFF). */
enum tern_supersede { TERN_SUPERSEDE_LAZY = 0, TERN_SUPERSEDE_EAGER = 1, TERN_SUPERSEDE_OFF = 2 };
/* Which axis the ranks divide a page along. Tern does not look into pages: it keeps pools of
 * different shards apart, as it does with different axes. REPLICATED promises that all ranks write
 * the same bytes: a transfer moves those of rank 0, once, and gives them to every rank. */
enum tern_shard {
    TERN_SHARD_NONE = 0,
    TERN_SHARD_HEADS,
    TERN_SHARD_REPLICATED,
    TERN_SHARD_LAYERS,
    TERN_SHARD_TOKENS
};

/* How a page is laid out; at most 8 of them in a group. */
struct tern_axis {
    const char *name; /* "layer", "kv", "token", "head", "dim" */
    uint64_t length, stride_bytes;
};

struct tern_group {
    const char *name;
    enum tern_family family;
    uint32_t page_tokens;         /* tokens of a page */
    uint64_t page_bytes;          /* bytes of a page in one region: a multiple of 8 */
    uint32_t units;               /* checksummed pieces of a page; 0 is 1 */
    uint32_t cap_pages;           /* 0: no cap below the pool's bytes */
    const struct tern_axis *axes; /* outermost first; may be NULL */
    uint32_t naxes;
    uint32_t window;  /* WINDOW: tokens; else 0 */
    uint32_t reserve; /* WINDOW: tokens of the largest rewind, at least 1; else 0 */
};

struct tern_layout {
    const struct tern_group *groups;
    uint32_t ngroups;
    enum tern_shard shard;
    uint64_t bytes; /* of the pool in one region; rounded down to whole slabs */
    enum tern_supersede supersede;
    uint64_t host_bytes; /* of the pool's host tier in one region; rounded down likewise. 0: none */
};

/* Carves a pool from the tenant's memory: once for an engine, by the process that schedules.
 * *ret_pool is the pool's handle, to be passed to tern_pool_map here and in the other ranks. QUOTA:
 * the tenant has not that much left. INVALID: the layout.
 *
 * With host_bytes the pool has a host tier: host memory of the daemon that no engine maps.
 * Committed prefixes are copied there behind the engine's back and outlive their device pages;
 * tern_fetch with peer NULL brings them back, and TERN_RETRACT_HOST puts running sessions there. */
TERN_API enum tern_err tern_pool_open(struct tern *t, const struct tern_layout *layout,
                                      uint32_t deadline_ms, uint64_t *ret_pool,
                                      uint32_t *ret_align_tokens);
/* The pool and its prefixes are given up; mappings stay valid until they are unmapped. Its memory
 * is free for other pools once every process that mapped it has exited or left. CONFLICT: sessions
 * are open in it, or another engine has mapped it. */
TERN_API enum tern_err tern_pool_close(struct tern *t, uint64_t pool, uint32_t deadline_ms);
/* Maps this rank's region of the pool (a pure scheduler maps region 0), readable and writable. *ret
 * belongs to the connection: tern_pool_unmap or tern_destroy ends it. A forked child does not
 * inherit the mapping; one that is forked while this call runs has at most an address range that it
 * cannot touch. INVALID: the pool was opened by an engine of another world size. */
TERN_API enum tern_err tern_pool_map(struct tern *t, uint64_t pool, uint32_t deadline_ms,
                                     struct tern_pool **ret);
/* Sets *pool to NULL, where it may be already. No kernel may touch the pages any more. */
TERN_API void tern_pool_unmap(struct tern_pool **pool);
TERN_API uint8_t *
tern_pool_base(const struct tern_pool *p); /* page i of a group: base + i * its page_bytes */
TERN_API uint64_t tern_pool_bytes(const struct tern_pool *p); /* that are mapped */

/* The last step that this rank's device has finished. One release store into the control page;
 * no system call. INVALID: it would go back; nothing is stored. DENIED: a pure scheduler is no rank
 * and has no step of its own. */
TERN_API enum tern_err tern_done_step(struct tern_pool *p, uint64_t step);

/* What keeps prefixes apart that have equal tokens; each part has at most 255 bytes. */
struct tern_namespace {
    const char *model, *revision, *kv_dtype, *lora, *salt; /* NULL is "" */
};

/* {position, 128 bits}: an image's hash, prompt embeddings. Absolute positions, ascending, among
 * the list's own tokens [base, base + n). `zero` is 0. */
struct tern_extra_key {
    uint32_t position, zero;
    uint64_t hi, lo;
};

struct tern_tokens {
    const uint32_t *v; /* borrowed for the call */
    uint32_t n;
    uint32_t base; /* the session's first `base` tokens stay, then v[0..n) */
    const struct tern_extra_key *keys;
    uint32_t nkeys;
};

struct tern_lengths {
    uint32_t committed, written, allocated; /* T <= C <= A, in tokens */
};

/* Page `index` of its group lies at index * page_bytes of the mapping; 0 is none. The generation
 * tells one use of a page from the next; an engine need not look at it. */
struct tern_page {
    uint32_t index, generation;
};

/* The session's table has at [group][first ...] these pages. What a WINDOW group has before its
 * window is not named. A RECURRENT group has one page, and first is 0; where from.index is not 0
 * the engine copies that page into it, in stream order, before it goes on: `from` is the state that
 * the tree keeps, and is never written. */
struct tern_run {
    uint32_t group, first, n;
    const struct tern_page *pages;
    struct tern_page from;
};

struct tern_shortage {
    uint32_t group, needed, free, reclaimable, retiring;
    uint64_t until_step; /* wait for it, then repeat; 0: no step will bring more */
};

/* An answer's arrays are borrowed until the next call on the connection. It is filled in whenever
 * the daemon answered, also with an error (lengths are what holds then; 0 if the session is GONE);
 * a call that got no answer leaves it as it was. */
struct tern_result {
    enum tern_err err;
    struct tern_lengths lengths;
    uint32_t tokens;      /* in the session's list */
    uint32_t matched;     /* Match: tokens found in the tree by this call */
    uint32_t fetched_kib; /* Fetch: page bytes that came over the network, or from the host tier.
                             Recover: from the host tier */
    uint32_t host_depth;  /* Match: what tern_fetch from the host tier would bring T to; 0 on a
                             resume */
    const struct tern_run *runs;
    uint32_t nruns;
    struct tern_shortage shortage; /* if err is TERN_POOL_EXHAUSTED */
};

/* A session is one request, or the turns of one conversation: a token list and a table of pages,
 * both empty at first. It ends with TERN_CLOSE, or with its engine. GONE: the pool was closed.
 * INVALID: no process of this engine has opened or mapped it. QUOTA: the tenant's sessions_max.
 * BUSY: the daemon drains, or is full. */
TERN_API enum tern_err tern_session_open(struct tern *t, uint64_t pool,
                                         const struct tern_namespace *ns, uint32_t deadline_ms,
                                         tern_session *ret);

/* How deep a prefix is in the tree, without any effect. */
TERN_API enum tern_err tern_peek(struct tern *t, uint64_t pool, const struct tern_namespace *ns,
                                 const struct tern_tokens *tokens, uint32_t deadline_ms,
                                 uint32_t *ret_depth);
/* The same, with the depth that HISTORY groups alone reach: an engine may prefer to compute the
 * state of a short tail again. */
TERN_API enum tern_err tern_peek_history(struct tern *t, uint64_t pool,
                                         const struct tern_namespace *ns,
                                         const struct tern_tokens *tokens, uint32_t deadline_ms,
                                         uint32_t *ret_depth, uint32_t *ret_history_depth);

/* All of it: what a Match would find, what HISTORY groups alone reach, and what a Match followed by
 * a tern_fetch from the host tier would find. In tokens; resumable is the least. */
struct tern_depths {
    uint32_t resumable, history, host;
};
TERN_API enum tern_err tern_peek_depths(struct tern *t, uint64_t pool,
                                        const struct tern_namespace *ns,
                                        const struct tern_tokens *tokens, uint32_t deadline_ms,
                                        struct tern_depths *ret);

/* First on an empty session: finds and pins the longest committed prefix. On a session that has
 * written tokens: resumes it at min(C, common prefix) and gives the tail behind it back. May be
 * repeated. INVALID: less than T tokens in common. GONE: the session was closed, or
 * is from before a restart. */
TERN_API enum tern_err tern_match(struct tern *t, tern_session s, const struct tern_tokens *tokens,
                                  uint64_t step, uint32_t deadline_ms, struct tern_result *ret);

enum tern_op_kind {
    TERN_EXTEND = 1,
    TERN_REWIND,
    TERN_COMMIT,
    TERN_FINISH,
    TERN_ABORT,
    TERN_CLOSE,
    TERN_SLIDE,
    TERN_SNAPSHOT_RELEASE
};

/* EXTEND: length = new A (0: as it is), written = new C (0: as it is), tokens =
 * appended (base must be the number of tokens that the session has). REWIND: length = p. COMMIT:
 * length = depth, step = the step that writes the pages, or the last one that was dispatched on
 * them if that is later: pages that the answer replaces are given back behind it. FINISH: length =
 * output tokens of this turn. SLIDE: STATE pages that have left the window leave the table (a
 * COMMIT does it by itself); length = the next commit's depth (0: T + L). SNAPSHOT_RELEASE: nobody
 * will come back to what was committed at T, so its STATE may go first. `step` of the others: the
 * last that may touch what they give back. */
struct tern_op {
    enum tern_op_kind kind;
    bool barrier; /* if it fails, the rest is not done */
    tern_session session;
    uint64_t step;
    uint32_t length, written;
    struct tern_tokens tokens;
};

/* All operations of one scheduler step, in order. Returns OK when the daemon answered: look at each
 * results[i].err. results: caller's array of n; *ret_done how many were tried (the first *ret_done
 * results are filled in). INVALID: n is 0 or above TERN_STEP_OPS_MAX, or all of it is larger than
 * one request can be. */
TERN_API enum tern_err tern_step(struct tern *t, const struct tern_op *ops, uint32_t n,
                                 uint32_t deadline_ms, struct tern_result *results,
                                 uint32_t *ret_done);
/* A Step of one: returns that operation's error. */
TERN_API enum tern_err tern_do(struct tern *t, const struct tern_op *op, uint32_t deadline_ms,
                               struct tern_result *ret);

/* Brings whole L-chunks of the session's tokens, up to `depth` (0: all), from the named peer; on
 * return T is how far it got and the pages are in the table. The session must hold nothing beyond
 * T. PEER_LOST, CORRUPT, TIMED_OUT: what came before stays. BUSY: the source is full. When
 * deadline_ms passes first, the fetch is cancelled.
 *
 * peer NULL: from the pool's own host tier. It pays when the session's Match said host_depth >
 * matched; where the host knows no more than the device it brings nothing, and is OK.
 * POOL_EXHAUSTED: no room on the device. BUSY: another copy of that prefix is under way. CORRUPT:
 * the host's copy is damaged; compute it again. */
TERN_API enum tern_err tern_fetch(struct tern *t, tern_session s, const char *peer, uint32_t depth,
                                  uint32_t deadline_ms, struct tern_result *ret);
/* Ends a fetch or a recover that was submitted; that one itself answers (OK if it had won, else
 * TERN_GONE). Harmless when repeated. */
TERN_API enum tern_err tern_fetch_cancel(struct tern *t, tern_session s, uint32_t deadline_ms);

/* ---- giving way: a running session gives its device pages up and comes back later ---- */

/* HOST: what the session has committed is copied to the pool's host tier and pinned there; when the
 * copies are there, its device pages can be taken by whoever needs some. For a session that will
 * not run for a while. DROP: nothing is copied; what is committed stays on the device, pinned, and
 * only what is not is given back (C = A = T). For a session that comes back within steps, and for
 * pools without a host tier. */
enum tern_retract_mode { TERN_RETRACT_HOST = 0, TERN_RETRACT_DROP = 1 };

/* Filled in whenever the daemon answered, also with an error. Numbers of device pages, all groups
 * together: free at once, and free when `step` has passed. What HOST makes evictable is in neither.
 */
struct tern_retracted {
    struct tern_lengths lengths; /* as they are when `step` has passed */
    uint32_t free_now, free_at_step;
    struct tern_shortage shortage; /* if POOL_EXHAUSTED: pages of the host tier */
};

/* Does not wait for copies or for the step. `step`: the last that may touch the session's pages; 0:
 * nothing is in flight. From now on only tern_recover, tern_retract, tern_fetch_cancel, TERN_ABORT
 * and TERN_CLOSE are for this session; everything else is INVALID until it is back. Its table is to
 * be forgotten: tern_recover says it anew. Where the copies cannot be made after all, the session
 * runs on by itself, and tern_recover answers at once; tern_stats counts it for the tenant
 * (host_tier.retracts_undone). Who waits for the memory repeats this call: a session that is away
 * stays as it is, one that runs on is retracted anew, or the answer says why not.
 * POOL_EXHAUSTED: the host tier has no room for the session's prefix; it runs on, untouched.
 * UNSUPPORTED: HOST, and the pool has no host tier. INVALID: DROP, and the session has run so far
 * beyond T that the STATE of T has left its table. BUSY: it is being fetched or recovered. GONE:
 * closed. */
TERN_API enum tern_err tern_retract(struct tern *t, tern_session s, enum tern_retract_mode mode,
                                    uint64_t step, uint32_t deadline_ms,
                                    struct tern_retracted *ret);

/* Brings a retracted session back: ret->lengths is what came back (T never moves; C may be less
 * than it was, so write again what is missing), ret->runs the whole table: what a WINDOW group has
 * before its window is not named, and a RECURRENT page is to be copied where `from` says so.
 * Answered when the pages are on the device again, at once where they never left it; a session that
 * was not away is told its table once more, so the call may be repeated.
 * After an error the session is retracted as before. POOL_EXHAUSTED: no room on the device,
 * ret->shortage says what to wait for. BUSY: another copy or commit of that prefix is under way,
 * repeat in a moment. TIMED_OUT: deadline_ms passed first, and the way back is cancelled. CORRUPT:
 * the host's copy is damaged: TERN_ABORT, and compute it again. */
TERN_API enum tern_err tern_recover(struct tern *t, tern_session s, uint32_t deadline_ms,
                                    struct tern_result *ret);

/* New weights under an old name: nothing that was committed under `ns`, in any pool of the tenant,
 * is found any more. Sessions that run on it finish. *ret_nodes (may be NULL): prefix nodes that
 * are still held, and go when nobody holds them. May be repeated. */
TERN_API enum tern_err tern_namespace_reset(struct tern *t, const struct tern_namespace *ns,
                                            uint32_t deadline_ms, uint32_t *ret_nodes);

/* The tenant's pools, error counters and retracts that came to nothing as one JSON object; borrowed
 * until the next call. */
TERN_API enum tern_err tern_stats(struct tern *t, uint32_t deadline_ms, const char **ret_json);
/* A round trip, and nothing else. */
TERN_API enum tern_err tern_ping(struct tern *t, uint32_t deadline_ms);

/* ---- asynchronous form: submit, wait for tern_fd to be readable, tern_poll ---- */

struct tern_events; /* below */

struct tern_answer {
    uint64_t cookie;                   /* as submitted */
    enum tern_err err;                 /* of the whole request */
    const struct tern_result *results; /* one for match, fetch and recover, one an operation
                                          for a step; borrowed until the next call */
    uint32_t n;
    const struct tern_events *events; /* of a subscription, else NULL; borrowed likewise */
};

/* BUSY: TERN_INFLIGHT_MAX requests are under way, or the socket is full: poll first. INVALID: as in
 * the synchronous form. */
TERN_API enum tern_err tern_submit_match(struct tern *t, tern_session s,
                                         const struct tern_tokens *tokens, uint64_t step,
                                         uint64_t cookie);
TERN_API enum tern_err tern_submit_step(struct tern *t, const struct tern_op *ops, uint32_t n,
                                        uint64_t cookie);
TERN_API enum tern_err tern_submit_fetch(struct tern *t, tern_session s, const char *peer,
                                         uint32_t depth, uint64_t cookie);
TERN_API enum tern_err tern_submit_recover(struct tern *t, tern_session s, uint64_t cookie);
TERN_API int tern_fd(
    const struct tern *t); /* borrowed; poll it for POLLIN (and POLLOUT while tern_wants_write) */
TERN_API bool tern_wants_write(const struct tern *t);
/* OK with an answer; BUSY: none is there yet. Call it until BUSY before waiting on tern_fd: one
 * read may bring several answers. Synchronous calls may be mixed in: answers to submitted requests
 * that come meanwhile are kept. When the connection is lost, each request under way is handed out
 * with err PEER_LOST first; then tern_poll says PEER_LOST. */
TERN_API enum tern_err tern_poll(struct tern *t, struct tern_answer *ret);

/* ---- what changes in the prefix tree: for routers and whoever else wants to know ---- */

/* STORED: a prefix can be matched for the first time. TIER: it came to device or host memory or
 * left one of them, and is still in the other. REMOVED: it is in neither any more. */
enum tern_event_kind { TERN_STORED = 1, TERN_TIER = 2, TERN_REMOVED = 3 };

/* One chunk of L tokens that ends at `depth`. `chain` stands for its namespace and for all tokens
 * and extra keys from the first to there: equal prefixes have equal numbers in all pools of equal L
 * and on all daemons of one version. */
struct tern_event {
    uint64_t number; /* ascending, from 1 at the daemon's start; those of other tenants and
                        namespaces are left out */
    enum tern_event_kind kind;
    uint32_t depth;
    uint64_t chain, parent_chain; /* parent: of the chunk before it; 0 for the first */
    uint64_t ns_hi, ns_lo;        /* hash of the namespace, as ternctl shows it */
    uint64_t pool;
    bool on_device, on_host; /* after the change */
    const char *tenant;      /* on the admin socket; else NULL, and where it has no name to tell */
};

struct tern_events {
    const struct tern_event *v;
    uint32_t n;    /* may be 0 */
    uint64_t lost; /* not 0: so many changes (of whatever namespace) were missed between the last
                      answer and v[0]. Forget what you know, or subscribe from a number anew */
    uint64_t next; /* `from` for going on behind this answer, with the same daemon incarnation */
};

/* Asks for the changes of one namespace, or of the whole tenant (NULL; on the admin socket: of all
 * tenants), from number `from` on; 0: from now. Needs no engine. Like a submitted request: the
 * first answer with this cookie says that it has begun, each later one brings changes; tern_poll
 * hands them out until one has an err, which is the last. Takes one of TERN_INFLIGHT_MAX.
 *
 * The daemon never waits for a subscriber: it keeps the last changes (limits.events in its
 * configuration) and what was overwritten before it could be sent is `lost`. So is what comes
 * beyond TERN_EVENTS_KEPT while tern_poll is not called.
 *
 * As an answer, INVALID: no change has the number `from` yet (the daemon was started anew); QUOTA:
 * too many subscriptions. Returned, BUSY: as for tern_submit_match; INTERNAL: no memory. */
TERN_API enum tern_err tern_subscribe(struct tern *t, const struct tern_namespace *ns,
                                      uint64_t from, uint64_t cookie);
/* The chains of a token list's whole chunks, shallowest first: tern_event.chain of the prefixes
 * that it runs through. align_tokens: L of the pools, as tern_pool_open tells it. `tokens` is whole
 * (base 0). Returns how many were written to ret, at most max; 0 for a list that points nowhere.
 * Asks nobody; any thread. */
TERN_API uint32_t tern_chains(const struct tern_namespace *ns, const struct tern_tokens *tokens,
                              uint32_t align_tokens, uint64_t *ret, uint32_t max);
/* Ends it: nothing with this cookie comes any more. GONE: there is no such subscription. */
TERN_API enum tern_err tern_unsubscribe(struct tern *t, uint64_t cookie, uint32_t deadline_ms);

/* ---- operators: on the daemon's admin socket only (elsewhere DENIED) ---- */

/* One command of ternctl; args are "key=value". *ret_json is one JSON object, borrowed until the
 * next call. */
TERN_API enum tern_err tern_admin(struct tern *t, const char *command, const char *const *args,
                                  uint32_t nargs, uint32_t deadline_ms, const char **ret_json);

#ifdef __cplusplus
}
#endif
#endif
