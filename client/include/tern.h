/* libtern: how a model server talks to the Tern daemon on its host.
 *
 * The daemon owns the KV pages. The engine maps them, and its kernels read and write them in place.
 * Requests carry tokens, page indices and lengths only. One struct tern is one connection of one
 * process. Each rank process of an engine makes its own connection, joins under the same engine
 * name, and maps its own region. docs/engine-guide.md shows the calls in their order.
 *
 * Threads. A struct tern and everything got from it belong to one thread at a time; different
 * connections are independent. The library starts no thread but that of a connection with leases
 * (below), installs no signal handler and never logs.
 *
 * Blocking. A call with a deadline_ms (0: TERN_DEADLINE_DEFAULT_MS) blocks at most that long and
 * then returns TERN_TIMED_OUT. The request may still take effect, so repeat it; those that may be
 * repeated say so. The asynchronous form (tern_submit_* and tern_poll) never blocks.
 *
 * Lost connections. After TERN_DAEMON_LOST, which the library says and no daemon does, the
 * connection is dead: every later call on it returns the same. TERN_PEER_LOST is something else:
 * the daemon of another host is not connected, and this connection lives on. TERN_MALFORMED means
 * that the daemon sent nonsense; it ends the connection likewise. (The calls of turn records give
 * it another meaning, too.) The mapped pools stay mapped until tern_destroy, so that kernels in
 * flight touch valid memory; then connect again. A daemon that was restarted has another
 * incarnation, and it answers every handle from before with TERN_GONE.
 *
 * fork(). After a fork the connection is the parent's. Its pools and its record memory are not
 * mapped in the child, and the child may call tern_pool_unmap, tern_records_unmap and tern_destroy
 * on it, and nothing else. */
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
#define TERN_GROUPS_MAX          16
#define TERN_RANKS_MAX           64
/* A connection has at most so many asynchronous requests that tern_poll has not handed out yet. */
#define TERN_INFLIGHT_MAX    64
#define TERN_BATCH_OPS_MAX   1024        /* operations of one tern_batch */
#define TERN_KEYS_MAX        1024        /* extra keys of one token list */
#define TERN_EVENTS_KEPT     1024        /* changes of a subscription that wait for tern_poll */
#define TERN_ENGINE_NAME_MAX 47          /* bytes of an engine's name */
#define TERN_ADMIN_JSON_MAX  (64u << 20) /* bytes of one admin answer */
/* For a `step`: nothing is in flight, so no kernel can still touch the pages. It is no default: a
 * call that gives pages back or publishes them refuses 0 as a step that was forgotten. */
#define TERN_STEP_NONE UINT64_MAX
/* For a `peer`: the disk of this host's daemon. No peer can have that name. */
#define TERN_PEER_DISK "/disk"

struct tern;         /* a connection; it lives on the heap, and tern_destroy frees it */
struct tern_pool;    /* a mapped pool; its connection owns it */
struct tern_records; /* mapped record memory; its connection owns it */

/* The handle of a session, or of a turn of one (tern_turn_begin). The session belongs to the
 * engine, and the handle is valid on each connection of that engine. */
typedef uint64_t tern_session;

/* ---- errors ----
 *
 * tern_err.h lists the errors. The comment of a function names those that mean something of its
 * own. Besides, any function may return these:
 *   DAEMON_LOST, TIMED_OUT, MALFORMED   see above.
 *   INVALID    An argument is out of range. Correct it.
 *   BUSY       A limit on concurrent work is reached, a turn of the session is in flight, or not
 *              every rank of the engine has joined yet. Repeat the call after a pause.
 *   QUOTA      A limit of the tenant is reached. Release something, or have the limit raised.
 *   GONE       The handle names something that was closed or has ended, or a process of this engine
 *              died. Drop the handle; after a death, restart the engine.
 *   INTERNAL   This process has no memory. */

/* What the error means, as a static text. Never NULL. Any thread may call it. */
TERN_API const char *tern_strerror(enum tern_err err);
/* What the caller does about the error: correct, repeat, wait, drop. Any thread may call it. */
TERN_API enum tern_err_category tern_category(enum tern_err err);
/* The version of the library, such as "0.1.0". */
TERN_API const char *tern_version(void);
/* Says what went wrong last on this connection, in words that tell what to do; "" after a success.
 * With NULL it says the same of this thread's last tern_connect. The text is borrowed until the
 * next call. */
TERN_API const char *tern_error_text(const struct tern *t);

/* ---- connecting ---- */

/* Connects to a tenant's socket and agrees on a protocol version. *ret is owned by the caller, who
 * ends it with tern_destroy. Other errors than these are the daemon's own; tern_error_text(NULL)
 * has its words.
 *   DAEMON_LOST  Nobody listens there, or the mode of the socket forbids it; errno says which.
 *   UNSUPPORTED  The daemon and the library have no version in common. Update the older one.
 *   INVALID      The path is too long for a socket.
 *   BUSY         The daemon is draining. Connect to another one.
 *   QUOTA        The tenant has as many connections as it may. Close one. */
TERN_API enum tern_err tern_connect(const char *socket_path, uint32_t deadline_ms,
                                    struct tern **ret);
/* Unmaps the pools of this connection, leaves the engine and closes. A connection that has joined
 * and ends, in whatever way, ends the engine: the calls of its other connections are GONE. So keep
 * those of helper threads for as long as the engine is to live. NULL is allowed. */
TERN_API void tern_destroy(struct tern *t);
/* The number of the daemon's life: it is another one after each start. */
TERN_API uint64_t tern_incarnation(const struct tern *t);
/* From now on the requests of this connection carry this id. The daemon's log shows it as trace=
 * and 16 hex digits in the lines about them, and so does the peer's log for a fetch (most of these
 * lines are at log_level debug). 0, as at first, means none. It sends no request. */
TERN_API void tern_trace(struct tern *t, uint64_t trace_id);

/* TERN_BOTH is a process that is a rank and schedules too. */
enum tern_role { TERN_SCHEDULER = 0, TERN_WORKER = 1, TERN_BOTH = 2 };

/* Makes this process a part of the engine `name`. rank is 0 to world - 1; for a pure scheduler it
 * is ignored. The engine can work once all `world` ranks have joined. The same connection may
 * repeat the call. A further connection of the same process, for another thread, joins as
 * TERN_SCHEDULER, of which an engine has one.
 *   CONFLICT  The engine was joined with another world, the rank is taken, or this connection has
 *             joined as another engine or rank already.
 *   BUSY      Processes of an earlier engine of that name have not exited yet. Wait for them. */
TERN_API enum tern_err tern_join(struct tern *t, const char *name, enum tern_role role,
                                 uint32_t rank, uint32_t world, uint32_t deadline_ms);
/* The same, and says which device this rank lives on: its pages lie in the tenant's region of that
 * device. `device` is the device's UUID as the daemon's configuration has it, or the region's index
 * ("0") where it names none. At most 47 bytes. With NULL, as in tern_join, region r is rank r's.
 * Engines on different devices live side by side, each with all of its regions' memory; a pool can
 * be shared by engines whose ranks live on the same devices in the same order. A pure scheduler has
 * no device.
 *   INVALID   The tenant has no region on that device.
 *   CONFLICT  As for tern_join; another rank of the engine lives on that device; or some ranks of
 *             the engine name their devices and others do not. */
TERN_API enum tern_err tern_join_device(struct tern *t, const char *name, enum tern_role role,
                                        uint32_t rank, uint32_t world, const char *device,
                                        uint32_t deadline_ms);

/* ---- pools ---- */

/* HISTORY is full attention KV, needed for every token. The other two are STATE, needed to continue
 * from one depth and no more. WINDOW is sliding-window KV: the pages of the last `window` tokens.
 * RECURRENT is SSM or linear-attention state: one page holds the whole state at one depth, and the
 * engine overwrites it in place as the session runs. */
enum tern_family { TERN_HISTORY = 0, TERN_WINDOW = 1, TERN_RECURRENT = 2 };
/* What happens to STATE pages that a deeper resume point of the same conversation has made
 * needless. LAZY: whoever needs pages takes these first. EAGER: they are freed at once. OFF: they
 * stay for as long as their prefix does. */
enum tern_supersede { TERN_SUPERSEDE_LAZY = 0, TERN_SUPERSEDE_EAGER = 1, TERN_SUPERSEDE_OFF = 2 };
/* The axis along which the ranks divide a page. Tern does not look into pages; it keeps pools of
 * different shards apart, as it does with different axes. With REPLICATED the engine promises that
 * all ranks write the same bytes: a transfer moves those of rank 0, once, and gives them to every
 * rank. */
enum tern_shard {
    TERN_SHARD_NONE = 0,
    TERN_SHARD_HEADS,
    TERN_SHARD_REPLICATED,
    TERN_SHARD_LAYERS,
    TERN_SHARD_TOKENS
};

/* One axis of a page. A group has at most 8 of them. */
struct tern_axis {
    const char *name; /* "layer", "kv", "token", "head", "dim"; at most 255 bytes */
    uint64_t length, stride_bytes;
};

/* A run of equal parts of the channels of a field, which is divided over the ranks by itself: such
 * as x, B and C of a convolution state, or q, k and v. A part stays whole. A field has at most 8.
 */
struct tern_channels {
    const char *name;      /* at most 31 bytes, and another one in each section of a field */
    uint32_t count, width; /* parts, and channels of a part */
};

/* DIVIDED: each rank has an equal run of the heads, or of the parts of each section; where there
 * are fewer of them than ranks, neighbouring ranks hold the same one. REPLICATED: each has all. */
enum tern_over { TERN_OVER_DIVIDED = 0, TERN_OVER_REPLICATED = 1 };

/* An array in the pages of a group, as all ranks together see it. Its axes are named "layer", "kv",
 * "token", "head", "channel", "dim" and "state", each once at most, in any order. Their lengths are
 * those of the whole pool, over all ranks and stages (of "token", page_tokens); the offset and the
 * strides are those in the page of one rank. Layers are divided over the stages; "head", or
 * "channel" by its sections, over the ranks of a stage. */
struct tern_field {
    const char *name; /* at most 31 bytes, and another one in each field of a group */
    enum tern_over over;
    uint32_t element_bytes;
    uint64_t offset; /* of its first element in a page */
    const struct tern_axis *axes;
    uint32_t naxes;
    const struct tern_channels *sections; /* with "channel"; else NULL */
    uint32_t nsections;
};

struct tern_group {
    const char *name; /* at most 255 bytes, and another one in each group of a layout */
    enum tern_family family;
    uint32_t page_tokens;         /* tokens that one page covers, 1 to 4096 */
    uint64_t page_bytes;          /* bytes of a page in one region: a multiple of 8 */
    uint32_t units;               /* checksummed pieces of a page; 0 stands for 1 */
    uint32_t cap_pages;           /* most pages that the group may have; 0: only the pool's bytes
                                     limit it */
    const struct tern_axis *axes; /* outermost first; may be NULL */
    uint32_t naxes;
    uint32_t window;  /* WINDOW: tokens; else 0 */
    uint32_t reserve; /* WINDOW: tokens of the largest rewind, at least 1; else 0 */
    /* What its pages are made of: at most 8 fields. With them pages can be fetched from, and by,
     * pools that have the same fields over another number of ranks or stages, or in another order.
     * All groups of a layout have fields, or none has: then pages are fetched between pools of
     * equal layout alone. The name of a group with fields has at most 31 bytes. */
    const struct tern_field *fields;
    uint32_t nfields;
};

struct tern_layout {
    const struct tern_group *groups; /* borrowed for the call */
    uint32_t ngroups;
    enum tern_shard shard;
    uint64_t bytes; /* of the pool in one region; it is rounded down to whole slabs */
    enum tern_supersede supersede;
    uint64_t host_bytes; /* of the pool's host tier in one region, rounded down likewise; 0: none */
    uint32_t stages;     /* of a pipeline: rank r is rank r % (ranks / stages) of stage r / (ranks /
                            stages). 0 stands for 1; counts where groups have fields */
};

/* Carves a pool from the tenant's memory. The scheduling process calls it once for its engine.
 * *ret_pool is the pool's handle, for tern_pool_map here and in the other ranks. *ret_align_tokens
 * (may be NULL) is L: prefixes are shared in whole multiples of L tokens.
 *
 * With host_bytes the pool has a host tier, which is memory of the daemon that no engine maps.
 * Committed prefixes are copied there in the background and outlive their device pages. tern_fetch
 * with peer NULL brings them back, and TERN_RETRACT_HOST puts running sessions there.
 *   QUOTA    The tenant has not that much memory left in the regions of this engine's ranks.
 *   INVALID  The layout; tern_error_text says what of it.
 *   BUSY     An older pool that nobody maps is being cleared to make room. Repeat in a moment. */
TERN_API enum tern_err tern_pool_open(struct tern *t, const struct tern_layout *layout,
                                      uint32_t deadline_ms, uint64_t *ret_pool,
                                      uint32_t *ret_align_tokens);
/* Gives up the pool and its prefixes. Mappings stay valid until they are unmapped. The memory can
 * be used by other pools once every process that mapped it has exited or left.
 *   CONFLICT  Sessions are open in it, or another engine has mapped it. */
TERN_API enum tern_err tern_pool_close(struct tern *t, uint64_t pool, uint32_t deadline_ms);
/* Maps this rank's region of the pool, readable and writable; a pure scheduler gets that of rank 0.
 * The connection owns *ret, and tern_pool_unmap or tern_destroy ends it. A child that is forked
 * while this call runs has at most an address range that it cannot touch.
 *   INVALID  The pool was opened by an engine of another world, or on other devices. */
TERN_API enum tern_err tern_pool_map(struct tern *t, uint64_t pool, uint32_t deadline_ms,
                                     struct tern_pool **ret);
/* Unmaps and sets *pool to NULL, which it may be already. No kernel may touch the pages any more.
 */
TERN_API void tern_pool_unmap(struct tern_pool **pool);
/* Where the mapping begins. Page i of a group lies at base + i * the group's page_bytes. */
TERN_API uint8_t *tern_pool_base(const struct tern_pool *p);
/* How many bytes are mapped. */
TERN_API uint64_t tern_pool_bytes(const struct tern_pool *p);

/* Publishes the last step that this rank's device has finished. It is one release store into the
 * shared control page, without a request, and without a system call unless somebody waits for that
 * step (tern_wait_published). Call it when the device is done, not when the host has queued the
 * work.
 *   INVALID  The number would go back, or it is TERN_STEP_NONE. Nothing is stored.
 *   DENIED   A pure scheduler is no rank and has no step of its own. */
TERN_API enum tern_err tern_done_step(struct tern_pool *p, uint64_t step);

/* Waits until every rank of the engine has passed `step`, as the daemon sees it. Then what was
 * committed at that step or before can be matched by everybody on this host, and by peers a moment
 * later (tern_fetch's at_least waits for that). What was given back at it is free: it is also what
 * to do with tern_shortage.until_step. A rank that calls tern_done_step wakes the daemon at once;
 * steps that a device writes by itself are noticed within a millisecond. A connection waits for one
 * step at a time. The call may be repeated.
 *   INVALID   `step` is 0 or TERN_STEP_NONE.
 *   CONFLICT  A later wait of this connection took the place of this one.
 *   GONE      A process of this engine died, or this one has left it. */
TERN_API enum tern_err tern_wait_published(struct tern *t, uint64_t step, uint32_t deadline_ms);

/* ---- prefixes and sessions ---- */

/* What keeps prefixes apart that have equal tokens. Each part has at most 255 bytes, and NULL
 * stands for "". */
struct tern_namespace {
    const char *model, *revision, *kv_dtype, *lora, *salt;
};

/* Something beside a token that belongs to the prefix: an image's hash, prompt embeddings.
 * Positions are absolute, ascending, and among the list's own tokens [base, base + n). `zero`
 * is 0. */
struct tern_extra_key {
    uint32_t position, zero;
    uint64_t hi, lo;
};

struct tern_tokens {
    const uint32_t *v; /* borrowed for the call */
    uint32_t n;
    uint32_t base; /* the session's first `base` tokens stay, and v[0..n) follows them */
    const struct tern_extra_key *keys; /* borrowed for the call */
    uint32_t nkeys;                    /* at most TERN_KEYS_MAX */
};

/* The three lengths of a session, in tokens: committed <= written <= allocated. Committed tokens
 * were given to the prefix tree, written ones have KV that the session keeps, and allocated ones
 * are covered by pages. */
struct tern_lengths {
    uint32_t committed, written, allocated;
};

/* A page of a group lies at index * page_bytes of the mapping. Index 0 means none. The generation
 * tells one use of a page from the next; an engine need not look at it. */
struct tern_page {
    uint32_t index, generation;
};

/* A change of the session's table: at [group][first ...] it now has these pages. Those of a WINDOW
 * group before its window are neither named nor taken back by name: valid are those of the tokens
 * from written - window on, as far as pages are allocated. What lies before is the session's no
 * more when the step of the commit or slide has passed. A RECURRENT group has one page, and first
 * is 0. Where from.index is not 0, the engine copies page `from` into that page, in stream order,
 * before it continues; `from` is a state that the tree keeps, and it is never written. */
struct tern_run {
    uint32_t group, first, n;
    const struct tern_page *pages;
    struct tern_page from;
};

/* Why pages ran out, and what waiting would bring. The numbers are pages of `group`. */
struct tern_shortage {
    uint32_t group, needed, free, evictable, retiring;
    uint64_t until_step; /* let all ranks pass it, then repeat; 0: no step will bring more */
};

/* An answer. Its arrays are borrowed until the next call on the connection. It is filled in
 * whenever the daemon answered, also with an error: then lengths and tokens are what the session
 * has now. Where all of these are 0 with an error, nothing was looked at, as for a handle that is
 * GONE; keep what you have of the session, if it lives on. (A fetch that was cancelled is GONE,
 * too, and tells them.) A call that got no answer leaves the result as it was. */
struct tern_result {
    enum tern_err err;
    struct tern_lengths lengths;
    uint32_t tokens;  /* in the session's list */
    uint32_t matched; /* Match: tokens that this call found in the tree; 0 on a resume, which looks
                         for none: lengths.written is what need not be computed */
    uint32_t fetched_kib; /* Fetch: KiB of pages that came over the network, from the disk or from
                             the host tier. Recover: KiB from the host tier */
    uint32_t retry_ms;   /* Fetch, if err is TERN_BUSY: repeat it after so many milliseconds. 0: the
                            daemon does not know */
    uint32_t host_depth; /* Match: the committed length that a tern_fetch from the host tier would
                            bring; 0 on a resume */
    uint32_t disk_depth; /* the same from the disk; 0, too, where that is no more than `matched` */
    const struct tern_run *runs;
    uint32_t nruns;
    uint32_t
        blob_bytes;   /* Fetch by ticket: what tern_handoff was given along; borrowed as `runs` */
    const void *blob; /* NULL: none */
    struct tern_shortage shortage; /* if err is TERN_POOL_EXHAUSTED */
    uint32_t align; /* L, if err is TERN_INVALID because the depth of a commit is no multiple of it;
                       else 0 */
    uint32_t handed;   /* Fetch by ticket, if err is TERN_INVALID: the length that was handed over,
                          where that is another one than the session's list has; else 0 */
    uint32_t arriving; /* tern_fetch_wait, _pages: what is still coming brings the session to so
                          many tokens; 0: nothing is coming */
};

/* Opens a session: one request, or all turns of one conversation. It has a token list and a table
 * of pages, both empty at first. It ends with tern_session_close, or with its engine.
 *   GONE     The pool was closed.
 *   INVALID  No process of this engine has opened or mapped the pool.
 *   QUOTA    The tenant has sessions_max sessions. Close one.
 *   BUSY     The daemon is draining, or all session slots are in use. */
TERN_API enum tern_err tern_session_open(struct tern *t, uint64_t pool,
                                         const struct tern_namespace *ns, uint32_t deadline_ms,
                                         tern_session *ret);
/* What a session does with its turn records; zeroed is what tern_session_open opens. */
struct tern_session_options {
    uint32_t blobs_kept; /* so many of its last records keep their blobs, 1 to 16; 0 stands for 2 */
    bool merging;        /* all records keep their blobs, for several samples that are merged */
};
/* The same with options, which are borrowed for the call; NULL: as tern_session_open. Besides:
 *   INVALID  merging and blobs_kept exclude each other, or blobs_kept is above 16. */
TERN_API enum tern_err tern_session_open_with(struct tern *t, uint64_t pool,
                                              const struct tern_namespace *ns,
                                              const struct tern_session_options *options,
                                              uint32_t deadline_ms, tern_session *ret);

/* Tells how deep a prefix is in the tree, in tokens, without any effect. tokens->base is 0. A list
 * longer than one request can be is sent in pieces.
 *   BUSY  What the first pieces found was evicted again and again. Repeat the call. */
TERN_API enum tern_err tern_peek(struct tern *t, uint64_t pool, const struct tern_namespace *ns,
                                 const struct tern_tokens *tokens, uint32_t deadline_ms,
                                 uint32_t *ret_depth);
/* Tells, besides, how deep HISTORY alone reaches. */
TERN_API enum tern_err tern_peek_history(struct tern *t, uint64_t pool,
                                         const struct tern_namespace *ns,
                                         const struct tern_tokens *tokens, uint32_t deadline_ms,
                                         uint32_t *ret_depth, uint32_t *ret_history_depth);

/* Depths of one prefix, in tokens. `resumable` is the least of them, but for `disk`. */
struct tern_depths {
    uint32_t resumable; /* what a Match would find */
    uint32_t history;   /* of HISTORY alone: the STATE of a short tail may be computed anew */
    uint32_t host;      /* what a Match and a tern_fetch from the host tier would find */
    uint32_t disk; /* the same with a tern_fetch from the disk; 0: no more than `resumable`. Of a
                      list longer than one request can be, it may be more: it is looked for as
                      far as the request in which memory's part ends. A Match tells all */
};
TERN_API enum tern_err tern_peek_depths(struct tern *t, uint64_t pool,
                                        const struct tern_namespace *ns,
                                        const struct tern_tokens *tokens, uint32_t deadline_ms,
                                        struct tern_depths *ret);

/* Begins a turn. On an empty session it finds and pins the longest committed prefix, and ret->runs
 * names its pages. On a session that has written tokens it resumes at the shorter of the written
 * length and the common prefix, and it gives the pages behind that back. `step` is the last step
 * that may still touch them, or TERN_STEP_NONE. Either way the tokens behind ret->lengths.written
 * are left to compute. The call may be repeated.
 * A list longer than one request can be is sent in pieces, others being served between them. The
 * answer is that of one request at the time of the last piece; if the call fails before that, call
 * it again, or abort or close the session: nothing else works on it.
 *   INVALID   The request has fewer tokens in common with the session than are committed. A session
 *             is append-only: close it and open another. Or the session is retracted, or the STATE
 *             that is needed at the common length has left its table: abort it, then match anew.
 *   CONFLICT  tokens->base is beyond the tokens that the session has.
 *   BUSY      A fetch of this session is under way, or a table of the daemon is full. */
TERN_API enum tern_err tern_match(struct tern *t, tern_session s, const struct tern_tokens *tokens,
                                  uint64_t step, uint32_t deadline_ms, struct tern_result *ret);

/* ---- what a session does: one operation, or a batch of them ----
 *
 * All lengths are of the whole session, in tokens, and never relative to a turn or to each other.
 * `step` is the last step that may touch the pages that the operation gives back, or
 * TERN_STEP_NONE; 0 is refused. Each operation takes effect wholly or not at all. *ret is filled in
 * whenever the daemon answered, also with an error; tern_error_text says why it was refused, with
 * the numbers. The errors that operations have in common:
 *   POOL_EXHAUSTED  There are not enough pages. ret->shortage says what to wait for. The session is
 *                   as it was, and nothing was evicted for this request. What an earlier one
 *                   evicted that was answered BUSY stays evicted.
 *   INVALID         The lengths do not fit the session, or the session is retracted.
 *   BUSY            A record that the daemon needs is not free, for instance because too many
 *                   releases wait for a step: repeat the operation after the next step. Or more has
 *                   to be evicted than one request may, or is copied to the host tier first: repeat
 *                   it in a millisecond.
 *
 * What a session is before and after; C, W, A: committed, written and allocated length; T: tokens
 * in its list. C <= W <= A and W <= T hold always.
 *
 *   call                   needs              committed  written        allocated    tokens
 *   tern_session_open                         0          0              0            0
 *   tern_match, empty      W = 0              matched    matched        matched      the prompt
 *   tern_match, resumed    common >= C        C          min(W, common) as written   the prompt
 *   tern_extend            no length shrinks  C          `written`      `allocated`  T + append
 *   tern_commit            C <= depth <= W    depth      W              A            T
 *   tern_rewind            C <= length <= A   C          min(W, length) length       min(T, length)
 *   tern_finish            C <= length <= A   C          min(W, length) length       min(T, length)
 *   tern_slide             next_commit > C    C          W              A            T
 *   tern_snapshot_release                     C          W              A            T
 *   tern_record_rollback   C > what is left   0          0              0            of the last
 *                                                                                    finished turn
 *   tern_record_rollback   else               C          W              A            T
 *   tern_fetch, it came    matched            what came  as committed   as committed T
 *   tern_fetch, it did not                    C          W              A            T
 *   tern_abort, in a turn  (always)           0          0              0            of the last
 *                                                                                    finished turn
 *   tern_abort, no turn    (always)           C          W              A            T
 *   tern_session_close     no turn in flight  the handle is GONE
 *   tern_retract, DROP     no fetch under way C          C              C; away      T
 *   tern_retract, HOST     no fetch under way C          W              A; away      T
 *   tern_recover           away               C          what is there  as written   T
 *
 * While a session is away, or a fetch or a recover is under way, only tern_recover, tern_retract,
 * tern_fetch_cancel, tern_abort and tern_session_close may be used on it. */

/* Gets pages, and says what is written and what the tokens are: a decode loop does all three in one
 * call. append: tokens behind the session's list, whose base is the number of tokens that it has;
 * NULL: none. written, allocated: the new lengths; 0 leaves one as it is. Neither can become less.
 *   CONFLICT  The tokens begin at another base than the session's list ends at. */
TERN_API enum tern_err tern_extend(struct tern *t, tern_session s, const struct tern_tokens *append,
                                   uint32_t written, uint32_t allocated, uint32_t deadline_ms,
                                   struct tern_result *ret);
/* Gives whole chunks of L tokens to the prefix tree, up to `depth`, a multiple of L. step: the step
 * that writes the pages, or a later one if that was dispatched on them, because pages that the
 * answer replaces are given back behind it. TERN_STEP_NONE: they are written already. So says a
 * step that all ranks have passed, too: the commit is published at once. It cannot be taken back.
 * ret->lengths.committed says how far it got; a depth that was committed before changes nothing. */
TERN_API enum tern_err tern_commit(struct tern *t, tern_session s, uint32_t depth, uint64_t step,
                                   uint32_t deadline_ms, struct tern_result *ret);
/* Gives back the pages behind `length`, and cuts the list of tokens there, also where no page comes
 * free: speculative tokens that were rejected. */
TERN_API enum tern_err tern_rewind(struct tern *t, tern_session s, uint32_t length, uint64_t step,
                                   uint32_t deadline_ms, struct tern_result *ret);
/* Ends a turn and keeps the session for the next one. length: the tokens that it keeps, from the
 * first on; pages behind them are given back. The written length does not grow by it. With a
 * RECURRENT group, whose one state is that of the written length, a length below that takes the
 * session's pages back to the committed length. */
TERN_API enum tern_err tern_finish(struct tern *t, tern_session s, uint32_t length, uint64_t step,
                                   uint32_t deadline_ms, struct tern_result *ret);
/* Takes STATE pages that have left the window out of the table; a commit does so by itself.
 * next_commit: the depth of the next commit; 0 stands for the committed length + L. */
TERN_API enum tern_err tern_slide(struct tern *t, tern_session s, uint32_t next_commit,
                                  uint64_t step, uint32_t deadline_ms, struct tern_result *ret);
/* Says that nobody will come back to the committed length, so its STATE may be the first to go. */
TERN_API enum tern_err tern_snapshot_release(struct tern *t, tern_session s, uint32_t deadline_ms,
                                             struct tern_result *ret);
/* Drops what is not committed, unpins the rest and empties the table. The session stays open: it
 * may be matched again, and finds what it had committed as anybody else would. Its list is cut to
 * what the last tern_finish kept, as far as later matches and rewinds left that; it is empty if no
 * turn was finished, and where the daemon had no room to keep it (ret->tokens says so).
 * Between tern_finish and the next tern_match or tern_extend there is no turn. Then nothing is
 * dropped: list, lengths and table stay as tern_finish left them. */
TERN_API enum tern_err tern_abort(struct tern *t, tern_session s, uint64_t step,
                                  uint32_t deadline_ms, struct tern_result *ret);
/* Ends the session. Its committed prefix stays in the tree for others, as long as there is room.
 * Of *ret only err is filled in. While a turn is in flight, the session's own handle is GONE at
 * once, and the call waits for the end of that turn, in the daemon also when deadline_ms has passed
 * (tern_batch_session_close is BUSY). What the session held is free when the steps that both of
 * them named have passed. The turn's handle closes the session at once.
 *   BUSY  The turn ended without tern_turn_end, so nobody knows what it had in flight. The session
 *         is open as before: close it by the last step that may touch its pages. */
TERN_API enum tern_err tern_session_close(struct tern *t, tern_session s, uint64_t step,
                                          uint32_t deadline_ms, struct tern_result *ret);

/* ---- turns: two requests race on one session ----
 *
 * An engine may have several clients for one conversation: a user who sends again before the answer
 * is there, or an agent that asks twice. A turn is what one of them does with the session while
 * nobody else can use it. A single scheduler that runs one request of a session after the other
 * begins no turn, and uses the session's own handle all the time. */

/* Claims the session. *ret is the turn's handle: use it as the session, in every call and on every
 * connection of the engine, until the turn ends. Meanwhile the session's own handle is BUSY at
 * once, before any work is done. The turn ends by tern_turn_end, at deadlines.turn_ms of the
 * daemon's configuration, with the connection that began it, with the engine, and when the session
 * is closed. From then on the turn's handle is GONE, so a call that comes late releases nothing.
 * The end changes nothing but who may use the session: pages, lengths and what is under way stay.
 * After TIMED_OUT the turn may begin all the same, for nobody; the library ends it in the next call
 * on this connection after the late answer, or deadlines.turn_ms does.
 *   BUSY      Another turn of this session is in flight. Wait for that, or answer your client so.
 *   GONE      The session was closed, or is to be closed when the turn in flight has ended.
 *   CONFLICT  This is the handle of a turn. */
TERN_API enum tern_err tern_turn_begin(struct tern *t, tern_session s, uint32_t deadline_ms,
                                       tern_session *ret);
/* Ends the turn. `step` is the last step that may touch the session's pages, or TERN_STEP_NONE: no
 * page that the session gives back, at a close or an abort, is free before that step has passed.
 * Only whoever has the turn's handle can end it. The call may be repeated: then it is GONE.
 *   GONE     The turn has ended already, or the session was closed.
 *   BUSY     This is the session's own handle, and a turn is in flight.
 *   INVALID  This is the session's own handle, and no turn is in flight. */
TERN_API enum tern_err tern_turn_end(struct tern *t, tern_session turn, uint64_t step,
                                     uint32_t deadline_ms);

/* ---- turn records: what a turn leaves beside KV ----
 *
 * A turn may leave a record: the token ids of its new tokens, a log-probability of each, and up to
 * TERN_BLOBS_MAX named blobs, such as hidden states of the whole list. The records of a session
 * follow each other: record 0 begins at token 0, and each one where the record before it ends.
 * Token ids and log-probabilities stay until a rollback or the session's end. Of the blobs those of
 * the last records stay (blobs_kept of tern_session_open_with); each append drops those of the
 * record that is now one too many.
 *
 * Records lie in the tenant's record memory (record_memory in the daemon's configuration), which
 * every process of an engine can map. The engine writes their bytes there, and they stay where they
 * are: the daemon looks at them, and never copies them.
 *
 * Records are written and read within a turn, by the turn's handle. What the calls below have in
 * common:
 *   INVALID      This is the session's own handle: begin a turn.
 *   UNSUPPORTED  The tenant has no record memory. */

#define TERN_BLOBS_MAX        4  /* blobs of a record */
#define TERN_BLOB_NAME_MAX    31 /* bytes of a blob's name, of which there is at least one */
#define TERN_RECORD_SPANS_MAX 8  /* spans of a section */

/* Maps the tenant's record memory, readable and writable. The connection owns *ret, and
 * tern_records_unmap or tern_destroy ends it. This process has joined an engine before. */
TERN_API enum tern_err tern_records_map(struct tern *t, uint32_t deadline_ms,
                                        struct tern_records **ret);
/* Unmaps and sets *m to NULL, which it may be already. Spans point nowhere from then on. */
TERN_API void tern_records_unmap(struct tern_records **m);
/* How many bytes are mapped. */
TERN_API uint64_t tern_records_bytes(const struct tern_records *m);

/* Bytes that lie side by side in the mapping. Token ids and log-probabilities lie whole in one. */
struct tern_span {
    uint8_t *at;
    uint64_t bytes;
};

/* A range of bytes: one span behind the other. The spans of a record that was prepared are the
 * caller's to write until it is put. Those of one that was got may be read until the turn ends, and
 * those of its blobs until the next append or rollback of the turn. */
struct tern_section {
    uint64_t bytes; /* of all spans together; 0: it is empty */
    uint32_t nspans;
    struct tern_span span[TERN_RECORD_SPANS_MAX];
};

struct tern_record_blob {
    char name[TERN_BLOB_NAME_MAX + 1];
    bool dropped; /* it is no longer there, and `at` is empty */
    struct tern_section at;
};

/* Where a record lies. It is of the tokens [from, length) of the list that the session's records
 * have. */
struct tern_record {
    uint32_t from, length;
    struct tern_section before;   /* uint32_t: token ids of [0, from), while it is prepared; else
                                     empty */
    struct tern_section tokens;   /* uint32_t: token ids of [from, length) */
    struct tern_section logprobs; /* float: one of each of those, or empty */
    uint32_t nblobs;
    struct tern_record_blob blobs[TERN_BLOBS_MAX];
};

/* A blob of a record that is to be. */
struct tern_blob {
    const char *name; /* borrowed for the call; another one in each blob of a record */
    uint64_t bytes;   /* at least 1 */
    const void *from; /* tern_records_append copies it from here; else it is not looked at */
};

enum tern_record_part { TERN_PART_NONE = 0, TERN_PART_TOKENS = 1, TERN_PART_LOGPROBS = 2 };

/* What the session has recorded now. It is filled in whenever the daemon answered, also with an
 * error; then the two numbers are 0 if the session is not the turn's any more, or if nothing was
 * looked at. */
struct tern_recorded {
    uint32_t length;             /* tokens of all its records together */
    uint32_t records;            /* of the session */
    enum tern_record_part part;  /* with MALFORMED: what is wrong is element `index` of this part */
    uint32_t index;              /* a token of the whole list, a log-probability of the new ones */
    struct tern_lengths lengths; /* of the session: all 0 where a rollback gave its table up */
    uint32_t tokens;             /* in the session's list */
};

/* ---- turn records by hand: prepare, write, put ---- */

/* Gets pages for a record of a list of `length` tokens. logprobs: how many there will be, which is
 * 0 or the number of tokens behind the last record. *ret is the caller's and says where each
 * section is to be written; write all of it, `before` included, because the daemon compares the
 * whole list. What was prepared in this turn before, and not put, is given back, also by a prepare
 * that is refused.
 *   CONFLICT   The list is no longer than the one that is recorded. Roll back first.
 *   QUOTA      The record memory has no room. Close sessions, or have record_memory raised.
 *   MALFORMED  logprobs is neither 0 nor the number of new tokens.
 *   BUSY       A record that was put is still looked at, or all turn records are in use. */
TERN_API enum tern_err tern_record_prepare(struct tern_records *m, tern_session turn,
                                           uint32_t length, uint32_t logprobs,
                                           const struct tern_blob *blobs, uint32_t nblobs,
                                           uint32_t deadline_ms, struct tern_record *ret);
/* The same for the list to roll back to: all of it, `length` tokens, goes to ret->before, and the
 * record has nothing else. */
TERN_API enum tern_err tern_record_prepare_rollback(struct tern_records *m, tern_session turn,
                                                    uint32_t length, uint32_t deadline_ms,
                                                    struct tern_record *ret);
/* Appends the record that was prepared and written. The daemon looks at its bytes first. Whatever
 * the answer, what was prepared is used up by it, but for BUSY.
 *   INVALID    Nothing is prepared.
 *   CONFLICT   The recorded list is no prefix of this one. Nothing was stored: roll back to what
 *              the two have in common.
 *   MALFORMED  A token id is 2^31 or more, or a log-probability is not finite. Nothing was stored.
 *              tern_error_text and *ret say which one it is. The connection lives on.
 *   GONE       The turn is over, or the session is closed. Nothing was stored.
 *   CORRUPT    A page of the record memory was gone. Nothing was stored: prepare it anew.
 *   BUSY       The daemon looks at as many records as it may (limits.record_jobs). Repeat the put.
 *
 * After TIMED_OUT or DAEMON_LOST tern_record_get tells whether the record is there. A put that is
 * repeated appends nothing twice: it is INVALID, or BUSY while the first is still looked at. */
TERN_API enum tern_err tern_record_put(struct tern_records *m, tern_session turn,
                                       uint32_t deadline_ms, struct tern_recorded *ret);
/* Takes the session back to the deepest record whose whole list of tokens the prepared list begins
 * with, or to none: the records behind it go. Where the session has committed more than what is
 * left, its table is given up: it is free when `step` has passed, the last step that may touch its
 * pages (or TERN_STEP_NONE). What was prepared is used up as by a put. Until the answer has come,
 * all other calls on the session but tern_abort and closing it are BUSY. Then call tern_match with
 * the prompt, whether the table went or not: ret->lengths say. The call may be repeated after a new
 * prepare.
 *   INVALID    Nothing is prepared that could be rolled back to. Or more than blobs_kept - 1
 *              records would go, counted together since the last append (of a session that merges:
 *              more than 15). Nothing was changed.
 *   MALFORMED  A token id is 2^31 or more. Nothing was changed. The connection lives on.
 *   GONE, CORRUPT, BUSY  As for tern_record_put. */
TERN_API enum tern_err tern_record_rollback(struct tern_records *m, tern_session turn,
                                            uint64_t step, uint32_t deadline_ms,
                                            struct tern_recorded *ret);
/* Says where the records from `first` on lie, `max` of them or all that there are. A blob that was
 * dropped is named too. ret[0..*ret_n) are the caller's. *ret_records (may be NULL): how many the
 * session has; with max 0 that is all. The call may be repeated.
 *   INVALID  `first` is above the number of records. */
TERN_API enum tern_err tern_record_get(struct tern_records *m, tern_session turn, uint32_t first,
                                       struct tern_record *ret, uint32_t max, uint32_t deadline_ms,
                                       uint32_t *ret_n, uint32_t *ret_records);

/* Copy n bytes, from byte `at` of the section on, whatever its spans are. Any thread may call them.
 *   INVALID  The section has not that many bytes there. Nothing is copied. */
TERN_API enum tern_err tern_section_write(const struct tern_section *s, uint64_t at,
                                          const void *from, uint64_t n);
TERN_API enum tern_err tern_section_read(const struct tern_section *s, uint64_t at, void *to,
                                         uint64_t n);

/* ---- turn records as a whole ---- */

struct tern_new_record {
    const uint32_t *tokens; /* the whole list, from the first token on */
    uint32_t ntokens;
    uint32_t nlogprobs;    /* 0, or the number of tokens behind the last record */
    const float *logprobs; /* of the last nlogprobs tokens */
    const struct tern_blob *blobs;
    uint32_t nblobs;
};

/* Prepares a record, copies all of it from the caller's memory into the record memory, and puts it.
 * Everything is borrowed for the call. The errors are those of tern_record_prepare and
 * tern_record_put. An append that is repeated appends nothing twice: it is CONFLICT if the record
 * is there. */
TERN_API enum tern_err tern_records_append(struct tern_records *m, tern_session turn,
                                           const struct tern_new_record *record,
                                           uint32_t deadline_ms, struct tern_recorded *ret);
/* The same for a rollback to a list of n tokens; with 0 all records go. The errors are those of
 * tern_record_prepare and tern_record_rollback. It may be repeated. */
TERN_API enum tern_err tern_records_rollback(struct tern_records *m, tern_session turn,
                                             const uint32_t *tokens, uint32_t n, uint64_t step,
                                             uint32_t deadline_ms, struct tern_recorded *ret);

/* The operations of one scheduler iteration, in order, for one request to the daemon. A batch
 * belongs to its connection; destroy it before that. */
struct tern_batch;

/* *ret is owned by the caller, who ends it with tern_batch_destroy. NULL is allowed there. */
TERN_API enum tern_err tern_batch_create(struct tern *t, struct tern_batch **ret);
TERN_API void tern_batch_destroy(struct tern_batch *b);
/* Empties it. One that was sent is empty already. */
TERN_API void tern_batch_clear(struct tern_batch *b);
/* How many operations it has: the next one's result will be results[count]. */
TERN_API uint32_t tern_batch_count(const struct tern_batch *b);
/* Each adds one operation, with the arguments of the function of that name above. Tokens and keys
 * are copied. The batch is as it was after an error:
 *   INVALID  No step is named, the batch has TERN_BATCH_OPS_MAX operations, or all of it would be
 *            larger than one request can be: run it, and begin the next. */
TERN_API enum tern_err tern_batch_extend(struct tern_batch *b, tern_session s,
                                         const struct tern_tokens *append, uint32_t written,
                                         uint32_t allocated);
TERN_API enum tern_err tern_batch_commit(struct tern_batch *b, tern_session s, uint32_t depth,
                                         uint64_t step);
TERN_API enum tern_err tern_batch_rewind(struct tern_batch *b, tern_session s, uint32_t length,
                                         uint64_t step);
TERN_API enum tern_err tern_batch_finish(struct tern_batch *b, tern_session s, uint32_t length,
                                         uint64_t step);
TERN_API enum tern_err tern_batch_slide(struct tern_batch *b, tern_session s, uint32_t next_commit,
                                        uint64_t step);
TERN_API enum tern_err tern_batch_snapshot_release(struct tern_batch *b, tern_session s);
TERN_API enum tern_err tern_batch_abort(struct tern_batch *b, tern_session s, uint64_t step);
TERN_API enum tern_err tern_batch_session_close(struct tern_batch *b, tern_session s,
                                                uint64_t step);
/* If the operation that was added last fails, those behind it are not tried. */
TERN_API void tern_batch_barrier(struct tern_batch *b);
/* Carries out all of it. The call returns OK when the daemon has answered; each (*ret_results)[i]
 * has the err of its operation, and tern_result_text(t, i) says why. *ret_done: how many were
 * tried; so many results there are, borrowed until the next call on the connection. Afterwards the
 * batch is empty, also when no answer came; it is as it was if nothing was sent.
 *   INVALID  The batch has no operation. */
TERN_API enum tern_err tern_batch_run(struct tern_batch *b, uint32_t deadline_ms,
                                      const struct tern_result **ret_results, uint32_t *ret_done);
/* What became of result i of the batch that was run last, or of the batch whose answer tern_poll
 * handed out last: what was asked, what the session has, and what to do. "" if it is OK, or there
 * is none. Of any other answer that tern_poll hands out, tern_error_text has the words, until the
 * next call. Borrowed until the next call on the connection. */
TERN_API const char *tern_result_text(struct tern *t, uint32_t i);

/* ---- decode without waiting: pages that are held ahead of need ----
 *
 * A decode step that crosses a page boundary needs a page, and tern_extend waits for the daemon to
 * name it. A lease holds pages before they are needed. The scheduler's thread takes them from its
 * stock, and one Step tells the daemon afterwards, which nobody waits for. The stock is filled up
 * in the background.
 *
 * tern_lease_submit makes no system call in the common case. A thread of the library's,
 * "tern-lease", sends: it looks each millisecond for what was submitted, so the daemon has a Step a
 * millisecond later at most (later where no processor is free). After a second without one it
 * sleeps, and the next submit wakes it. It begins with the first lease of a connection, ends with
 * the last, handles no signal, and touches nothing but what is to be sent. Any other call on the
 * connection that asks the daemon something sends what lies before it first. So the order is kept
 * on one connection; on another one, use a session that left the lease after tern_lease_wait.
 * tern_lease_told takes the answers: call it in each step, while the device computes.
 *
 * Speculation: keep `allocated` ahead of what is accepted, and let rejected tokens be: the next
 * step writes over them. There is nothing to rewind and to give back in each step; what is left at
 * the end goes back by tern_finish or tern_session_close.
 *
 * A lease belongs to its connection and to the thread of that. The other calls of the connection
 * keep their order with what the lease has submitted. While a session is in a lease its lengths are
 * the lease's. So any other call on it is CONFLICT, and nothing is sent; and BUSY once it has left
 * the lease, until that is submitted. Pages of the stock stay the engine's until tern_lease_end, or
 * until the engine is gone. */
struct tern_lease;

#define TERN_LEASE_SESSIONS_MAX 4096 /* of one lease */
#define TERN_LEASE_TOKENS_MAX   24   /* of one tern_lease_extend; of more, call it again */

/* For a group: the stock is filled up to `high` pages, at most 4,096, when it has `low` or fewer.
 * `high` should last for as many steps as an answer may take; twice as many are leased at most.
 * Both are 0 for a RECURRENT group, whose pages are not leased. */
struct tern_lease_marks {
    uint32_t low, high;
};

/* Begins a lease of pages of a pool that this engine has opened or mapped, for so many sessions at
 * a time. marks: one for each group of the layout, which is borrowed for the call. It asks for the
 * first pages and does not wait for them: tern_lease_wait does. *ret is the connection's, and ends
 * with tern_lease_end or tern_destroy. How much an engine may hold is limits.lease_pages of the
 * daemon's configuration; marks above that are not reached, and neither are those for which the
 * pool has no room.
 *   INTERNAL  The sending thread cannot be begun, or this process has no memory. */
TERN_API enum tern_err tern_lease_begin(struct tern *t, uint64_t pool,
                                        const struct tern_layout *layout,
                                        const struct tern_lease_marks *marks, uint32_t sessions,
                                        struct tern_lease **ret);
/* Gives all that the stock has back, and sets *l to NULL, which it may be already. Nothing of it
 * was written, so no step is named. After an error the lease is as it was.
 *   CONFLICT  Sessions are in it. Remove them. */
TERN_API enum tern_err tern_lease_end(struct tern_lease **l, uint32_t deadline_ms);

/* A session comes under the lease. `now`: what the last call on it has answered; its lengths and
 * tokens count. With a RECURRENT group, the session has been extended in its turn before. *ret is
 * the session's number in the calls below.
 *   BUSY      The lease has as many sessions as it was begun for.
 *   CONFLICT  It is in a lease of this connection already. */
TERN_API enum tern_err tern_lease_add(struct tern_lease *l, tern_session s,
                                      const struct tern_result *now, uint32_t *ret);
/* The session leaves the lease: what the daemon has not heard of it yet is gathered, and behind the
 * next tern_lease_submit that is OK it can be used by all calls again. Its pages stay its own.
 * `step`: the last that may touch pages which it took and which the daemon refused to assign; they
 * are given back behind it. */
TERN_API enum tern_err tern_lease_remove(struct tern_lease *l, uint32_t session, uint64_t step);

/* What tern_extend does, with pages of the stock and without a request: n tokens behind the list,
 * and the new lengths, neither of which shrinks. The runs are the pages that the table gained,
 * borrowed until the next tern_lease_submit; the engine may write them at once.
 *   BUSY            The stock has not so many pages, and more are on their way: tern_lease_submit,
 *                   then tern_lease_wait. Or one Step is full: tern_lease_submit. Nothing was
 *                   taken.
 *   POOL_EXHAUSTED  The same, and the pool has not so many: retract a session.
 *   INVALID         The lengths do not fit, or n is above TERN_LEASE_TOKENS_MAX.
 *   any other       An earlier operation of this session was refused: remove it from the lease. */
TERN_API enum tern_err tern_lease_extend(struct tern_lease *l, uint32_t session,
                                         const uint32_t *tokens, uint32_t n, uint32_t written,
                                         uint32_t allocated, const struct tern_run **ret_runs,
                                         uint32_t *ret_nruns);
/* As tern_rewind. What is given back does not come to the stock: it is free when `step` has passed.
 * The errors are those of tern_lease_extend. */
TERN_API enum tern_err tern_lease_rewind(struct tern_lease *l, uint32_t session, uint32_t length,
                                         uint64_t step);
/* As tern_commit, and tern_lease_told brings the answer. The runs in it take the place of pages of
 * the table, which are given back behind `step`. So `step` is the last step that may be dispatched
 * before that answer was applied: name one some steps ahead, and tern_lease_submit holds to it.
 *   BUSY  A commit of this session is under way, or a rewind is not answered yet. */
TERN_API enum tern_err tern_lease_commit(struct tern_lease *l, uint32_t session, uint32_t depth,
                                         uint64_t step);
/* Leaves what was gathered to the sending thread, as one Step, and asks for more pages if the stock
 * is low. It waits for nothing, and takes answers only where too many were not taken by
 * tern_lease_told. `step`: the one that the engine dispatches next; 0: none. After an error all
 * stays gathered, and goes with the next call.
 *   BUSY  The daemon has not answered the last Steps yet, or the socket is full. Or the answer to a
 *         commit which named a step before `step` was not taken: tern_lease_wait, then
 *         tern_lease_told. */
TERN_API enum tern_err tern_lease_submit(struct tern_lease *l, uint64_t step);
/* Sends what was submitted, and waits until all of it is answered. */
TERN_API enum tern_err tern_lease_wait(struct tern_lease *l, uint32_t deadline_ms);
/* Pages of a group that the stock has. */
TERN_API uint32_t tern_lease_stock(const struct tern_lease *l, uint32_t group);

struct tern_lease_told {
    uint32_t slot; /* the session's number in the lease */
    tern_session session;
    bool failed;               /* an operation was refused: every further call on it returns that */
    struct tern_result result; /* of that operation, or else of a commit, which may be refused, too,
                                  and the session goes on */
    const char *text;          /* what was refused, what the daemon has, what to do, why; or "" */
};

/* Takes what the daemon has answered, and hands out one answer to a commit, or tells of an
 * operation that was refused later than the call that gathered it. It waits for nothing. Call it
 * until it says BUSY, in each step behind the launch: what comes meanwhile is also where pages for
 * the stock come from. *ret is borrowed until the next call of this function. Pages that were not
 * assigned stay the engine's until the session is removed.
 *   BUSY  There is none. */
TERN_API enum tern_err tern_lease_told(struct tern_lease *l, struct tern_lease_told *ret);

/* Brings whole chunks of the session's tokens, up to `depth` tokens (0: all of them), from the peer
 * of that name. On return the committed length says how far it got, and the pages are in the table.
 * Call tern_match before, which gives the tokens. When deadline_ms passes first the fetch is
 * cancelled.
 *
 * It brings only what reaches beyond the written length; if the source has no more, the session
 * stays as it is. What comes takes the place of all pages that the session owns behind its
 * committed length. Until enough has come for that, they and the lengths stay as they are, whatever
 * error the fetch ends with. Then they are free when `step` has passed: it is the last step that
 * may touch them, or TERN_STEP_NONE. Take ret->lengths and ret->runs over in either case, also with
 * an error: where nothing came there are no runs, and what came may be just as long as what it
 * replaces. Less than was written is left only by a transfer that breaks off later than that: with
 * a WINDOW or RECURRENT group, whose STATE was still to come, or because the daemon ran out of
 * records (BUSY).
 *   INVALID  The session was never matched, or it is retracted. Or, with a WINDOW or RECURRENT
 *            group, the STATE of the committed length has left its table: go on with what the
 *            session has, or abort it and match anew.
 *
 * `at_least`: tokens that must be there on return, such as all whole chunks of a prompt of n
 * tokens, n / L * L (0: as many as the source has). What the source has committed it shows a moment
 * after the step has passed. The call waits for that, up to three quarters of deadline_ms (a
 * submitted fetch: seven eighths of deadlines.transfer_ms in the daemon's configuration). Then it
 * brings what the source has, and returns TIMED_OUT if that is less. More than the whole chunks of
 * the session's tokens up to `depth`, and more than what is written, is INVALID.
 *   PEER_LOST, CORRUPT, TIMED_OUT  What came before stays. Repeat, or compute the rest.
 *   GONE         It was cancelled, or at_least cannot come since the namespace was reset.
 *   BUSY         The source was full for 2 s, although the daemon came back each time that it said,
 *                or prefixes that make way here are copied to the host tier first. What came before
 *                stays. Repeat after ret->retry_ms.
 *   UNSUPPORTED  The source has the namespace only in pools of another layout or world.
 *   DENIED       The peer does not let this daemon ask for the tenant.
 *
 * peer NULL: from the pool's own host tier. That pays when the session's Match said that host_depth
 * is above matched. Where the host tier has no more than the device the call brings nothing and
 * returns OK, or INVALID if that is less than at_least: there is nothing to wait for.
 *   POOL_EXHAUSTED  The device has no room; ret->shortage says what to wait for.
 *   BUSY            That prefix is being copied, or what makes way for it. Repeat in a moment.
 *   CORRUPT         The host's copy is damaged. Compute the prefix again.
 *
 * peer TERN_PEER_DISK: from the daemon's disk, also what was stored before the daemon was started
 * anew. That pays when the session's Match said that disk_depth is above matched and host_depth.
 * It goes like a fetch from a peer. at_least above what is there is INVALID.
 *   UNSUPPORTED     The daemon has no disk tier.
 *   DISK            The disk could not read it. What came before stays; compute the rest.
 *   CORRUPT         What lies there is damaged, and is given up. Compute the rest. */
TERN_API enum tern_err tern_fetch(struct tern *t, tern_session s, const char *peer,
                                  uint32_t at_least, uint32_t depth, uint64_t step,
                                  uint32_t deadline_ms, struct tern_result *ret);
/* The same, and no decode waits for it: what is brought ahead of need. Other fetches of the tenant
 * go first, at both hosts, and find room when prefetches are all that is under way. A prefetch is
 * never kept waiting for good: of 8 batches of pages one is a prefetch's.
 *   BUSY  As many are under way as leave room for fetches that a decode waits for. Repeat later. */
TERN_API enum tern_err tern_prefetch(struct tern *t, tern_session s, const char *peer,
                                     uint32_t at_least, uint32_t depth, uint64_t step,
                                     uint32_t deadline_ms, struct tern_result *ret);
/* Ends a fetch or a recover that is under way. That request itself is answered: with OK if it was
 * complete already, else with TERN_GONE. Repeating the call does no harm. */
TERN_API enum tern_err tern_fetch_cancel(struct tern *t, tern_session s, uint32_t deadline_ms);

/* ---- hand-off: prefill ends here, decode begins elsewhere ---- */

#define TERN_TICKET_BYTES 256   /* of a ticket's text, with the NUL */
#define TERN_BLOB_BYTES   65536 /* of what an engine gives along, at most */

struct tern_ticket {
    char text[TERN_TICKET_BYTES]; /* for a router to pass on; whoever has it can fetch */
    uint32_t stands_ms;           /* from now on: then the pages are given back */
};

/* Closes the session and makes a ticket of it: all that it has at its written length waits for
 * whoever shows the ticket: committed pages and those behind them, the STATE of that very length,
 * and a blob of the engine's own (such as the first token), which the daemon never looks into.
 * Commit all whole chunks first. Tokens that are not written stay behind: put them into the blob.
 * Afterwards the session's handle is GONE, as after tern_session_close, and its pages are not to be
 * touched by any step behind `step`, the last that writes them. A fetch is answered when that has
 * passed. `stands_ms`: how long the ticket stands if nobody fetches it; 0, or more than the
 * daemon's deadlines.ticket_ms: so long. If this call's own deadline passes, close the session.
 *   INVALID      A whole chunk is not committed, nothing is written, the session is away, or
 *                blob_bytes is more than TERN_BLOB_BYTES.
 *   BUSY         A fetch of it is under way, or records have run out. Repeat in a moment.
 *   GONE         Its namespace was reset.
 *   UNSUPPORTED  It has more than 256 pages behind its committed length. */
TERN_API enum tern_err tern_handoff(struct tern *t, tern_session s, uint64_t step, const void *blob,
                                    uint32_t blob_bytes, uint32_t stands_ms, uint32_t deadline_ms,
                                    struct tern_ticket *ret);
/* Brings the session what the ticket names, from the daemon that gave it: a configured peer of this
 * one, or this one itself, where the session is of the same pool, and the pages only change hands.
 * The session must have matched just the tokens that were handed over. It then has exactly these
 * tokens written, ret->runs are what it gained, and ret->blob came along. A session that has all of
 * these tokens written already gets the blob alone. Otherwise it goes like tern_fetch from a peer.
 * Success uses the ticket up; after anything else it stands until its time is over, and the fetch
 * may be repeated.
 *   GONE       Somebody fetched it, its time was over, it was dropped, its daemon was restarted, or
 *              this fetch was cancelled. Compute what is missing.
 *   DENIED     It is forged, or another tenant's.
 *   INVALID    The session has other tokens than those that were handed over.
 *   PEER_LOST  The daemon that gave it is not connected.
 *   BUSY       Another fetch of it is under way, or the step that writes its pages has not passed.
 *              Or it is an early one, and its session still runs: the text says how far it is.
 *   UNSUPPORTED  The pool there has another layout; or this very daemon gave it, and it is of
 *                another pool. */
TERN_API enum tern_err tern_fetch_ticket(struct tern *t, tern_session s, const char *ticket,
                                         uint64_t step, uint32_t deadline_ms,
                                         struct tern_result *ret);

/* ---- following: decode begins while prefill still computes ---- */

/* Makes a ticket of a session that runs on. tern_handoff of that session gives it its length, and
 * answers the same ticket; it may be passed on before. Until then it holds nothing, and it is GONE
 * when the session is closed or aborted, when its engine dies, and when its time is over, which
 * tern_ticket_renew puts off. While somebody follows it, its time waits. A repetition answers the
 * same ticket, and counts as a renewal. `stands_ms`: as of tern_handoff.
 *   INVALID  Only some pieces of its tern_match have come.
 *   GONE     Its namespace was reset. */
TERN_API enum tern_err tern_ticket_open(struct tern *t, tern_session s, uint32_t stands_ms,
                                        uint32_t deadline_ms, struct tern_ticket *ret);
/* tern_fetch_ticket of a ticket whose session may still run there: it must have matched these very
 * tokens, and be handed over at their end. The pages for all of them are taken at once, as by
 * tern_extend, and chunks arrive as they are committed; tern_fetch_wait tells how far. It is
 * answered when all is here: chunks that the window of the end lies in, the STATE, what is behind
 * the last whole chunk, and the blob come when the session was handed over. While the source
 * computes, it waits for deadlines.ticket_ms of either daemon, from the last chunk on. What was
 * written before an error stays, as after tern_fetch_ticket. Errors besides those of
 * tern_fetch_ticket:
 *   POOL_EXHAUSTED  There are not that many free pages: ret->shortage. Nothing has begun.
 *   GONE            Also: its session was closed or aborted before it was handed over.
 *   INVALID         Also: it was handed over at another length (ret->handed), or went back behind
 *                   what was compared.
 *   BUSY            Also: the session has not matched these tokens yet.
 *   TIMED_OUT       The source has committed nothing for too long. Repeat it.
 *   UNSUPPORTED     Also: this very daemon gave it, and its session still runs; or more than 16,384
 *                   pages of STATE belong to its end. */
TERN_API enum tern_err tern_fetch_follow(struct tern *t, tern_session s, const char *ticket,
                                         uint64_t step, uint32_t deadline_ms,
                                         struct tern_result *ret);
/* While a fetch of the session from a peer or from the disk is under way (tern_submit_fetch and the
 * like, or another thread's connection): waits until more than `above` of its tokens are written,
 * or the fetch has ended. ret->lengths are those of the session now; ret->runs are the pages of
 * what it gained beyond `above`, which take the place of what tern_fetch_pages said: somebody else
 * may have committed the same chunk. Kernels may read those pages now, where the pool has no STATE
 * group; else what came may yet be taken back if the fetch fails. ret->arriving 0: nothing is
 * coming any more; the answer of the fetch itself says how it ended. A fetch has one wait at once.
 *   INVALID    No fetch of the session was begun since its last Match.
 *   CONFLICT   A later wait took its place.
 *   TIMED_OUT  This call's deadline passed. The fetch goes on, and the wait may be repeated. */
TERN_API enum tern_err tern_fetch_wait(struct tern *t, tern_session s, uint32_t above,
                                       uint32_t deadline_ms, struct tern_result *ret);
/* Where the pages lie that are still to come: ret->runs. They are the session's from the beginning
 * of a tern_fetch_follow on, and are not to be touched before tern_fetch_wait or the fetch says
 * that they are written. Of other fetches they are known once the source has answered. */
TERN_API enum tern_err tern_fetch_pages(struct tern *t, tern_session s, uint32_t deadline_ms,
                                        struct tern_result *ret);
/* At the daemon that gave it, by any engine of the tenant: it stands for so long from now on, as
 * tern_handoff says, or no longer. A fetch that has begun goes on.
 *   GONE, DENIED  As of tern_fetch_ticket. */
TERN_API enum tern_err tern_ticket_renew(struct tern *t, const char *ticket, uint32_t stands_ms,
                                         uint32_t deadline_ms, uint32_t *ret_stands_ms);
TERN_API enum tern_err tern_ticket_drop(struct tern *t, const char *ticket, uint32_t deadline_ms);

/* ---- giving way: a running session gives up its device pages and comes back later ---- */

/* HOST: what the session has committed is copied to the pool's host tier and pinned there; then
 * whoever needs device pages can take its. It is for a session that will not run for a while.
 * DROP: nothing is copied. What is committed stays on the device, pinned, and only the rest is
 * given back. It is for a session that comes back within a few steps, and for pools without a host
 * tier.
 */
enum tern_retract_mode { TERN_RETRACT_HOST = 0, TERN_RETRACT_DROP = 1 };

/* Filled in whenever the daemon answered, also with an error. The two numbers are device pages of
 * all groups together: free at once, and free when `step` has passed. Pages that HOST makes
 * evictable are in neither. */
struct tern_retracted {
    struct tern_lengths lengths; /* as they are when `step` has passed */
    uint32_t free_now, free_at_step;
    struct tern_shortage shortage; /* if POOL_EXHAUSTED: pages of the host tier */
};

/* Takes a session off the device. It waits neither for copies nor for the step. `step` is the last
 * step that may touch the session's pages, or TERN_STEP_NONE. Forget its table; tern_recover tells
 * it anew.
 *
 * If the copies cannot be made after all, the session runs on by itself and tern_recover answers at
 * once; tern_stats counts it for the tenant (host_tier.retracts_undone). A caller who waits for the
 * memory repeats this call: a session that is away stays away, and one that runs on is retracted
 * anew or the answer says why not.
 *   POOL_EXHAUSTED  The host tier has no room for the prefix. The session runs on, untouched.
 *   UNSUPPORTED     HOST was asked for, and the pool has no host tier.
 *   INVALID         DROP was asked for, and the session has run so far beyond its committed length
 *                   that the STATE of that length has left its table. Use HOST, or abort.
 *   BUSY            The session is being fetched or recovered. Wait for that, or cancel it. */
TERN_API enum tern_err tern_retract(struct tern *t, tern_session s, enum tern_retract_mode mode,
                                    uint64_t step, uint32_t deadline_ms,
                                    struct tern_retracted *ret);

/* Brings a retracted session back. ret->lengths says what came back: the committed length is as it
 * was, the written one may be shorter, so write again what is missing. ret->runs is the whole
 * table, as tern_run describes it. The call returns when the pages are on the device again, at once
 * where they never left it. For a session that is not away it tells the table once more, so it may
 * be repeated. After an error the session is retracted as before.
 *   POOL_EXHAUSTED  The device has no room. ret->shortage says what to wait for.
 *   BUSY            Another copy or commit of that prefix is under way, or a copy of what makes way
 *                   for it. Repeat in a moment.
 *   TIMED_OUT       deadline_ms passed first, and the way back is cancelled.
 *   CORRUPT         The host's copy is damaged. Use tern_abort, and compute the prefix again. */
TERN_API enum tern_err tern_recover(struct tern *t, tern_session s, uint32_t deadline_ms,
                                    struct tern_result *ret);

/* ---- the disk tier ---- */

/* What a store made durable. */
struct tern_stored {
    uint32_t depth;   /* tokens of the session's list that the disk holds now */
    uint64_t written; /* bytes that this call wrote; 0: all of it was there */
};

/* Stores a prefix of the session's committed tokens on the disk and returns when it is durable:
 * a Match finds it again (disk_depth) until it is evicted there, also after the daemon was killed
 * or the host lost power. The daemon stores by itself what it takes for worth it; this is for a
 * prefix that many will share, such as a system prompt, and for one that must not be lost. `depth`:
 * where it ends, in tokens, rounded down to whole chunks, at most the committed length. 0: the
 * daemon chooses, a little less than what is committed, so that others who share it find it. In a
 * pool with STATE groups it ends at the deepest resume point at or above that depth or, where there
 * is none, at the first one behind it. The call waits for the step of the commit to pass; the
 * session can be used meanwhile. It may be repeated. If deadline_ms passes, the store goes on.
 *   INVALID         So much is not committed, or not one whole chunk is, or there is no resume
 *                   point in all that is.
 *   UNSUPPORTED     The daemon has no disk tier, or the tenant has no part of it.
 *   POOL_EXHAUSTED  The file system is full.
 *   QUOTA           It does not fit into the tenant's part of the disk, with what may not go.
 *   BUSY            As many prefixes as may be are being stored. Repeat the call in a moment.
 *   GONE            The prefix left memory before it was written, or its namespace was reset.
 *   DISK            The disk failed. Nothing was stored.
 *   CORRUPT         A page in memory does not agree with its checksum. Nothing was stored. */
TERN_API enum tern_err tern_store(struct tern *t, tern_session s, uint32_t depth,
                                  uint32_t deadline_ms, struct tern_stored *ret);

/* Forgets a namespace, for new weights under an old name: nothing that was committed under `ns`, in
 * any pool of the tenant, is found from now on, here, on the disk or by a fetch from a peer.
 * Sessions that run on it finish. *ret_nodes (may be NULL): the prefix nodes that are still held
 * and go when nobody holds them. The call may be repeated. It waits until the peers that are
 * connected have forgotten the namespace, too, and so have theirs.
 *   BUSY  Too many resets wait for peers that are not connected. Nothing was reset. */
TERN_API enum tern_err tern_namespace_reset(struct tern *t, const struct tern_namespace *ns,
                                            uint32_t deadline_ms, uint32_t *ret_nodes);
/* *ret_unreached (may be NULL): how many peers are not connected and are told when they are, or are
 * themselves waiting for such a peer. With 0 the old content is gone for good. Else it stays gone
 * while this daemon lives; if it restarts before they were told, repeat the reset. */
TERN_API enum tern_err tern_namespace_reset_peers(struct tern *t, const struct tern_namespace *ns,
                                                  uint32_t deadline_ms, uint32_t *ret_nodes,
                                                  uint32_t *ret_unreached);

/* The tenant's pools, its error counters, and how many retracts came to nothing, as one JSON
 * object. *ret_json is borrowed until the next call. */
TERN_API enum tern_err tern_stats(struct tern *t, uint32_t deadline_ms, const char **ret_json);
/* One round trip to the daemon, and nothing else. */
TERN_API enum tern_err tern_ping(struct tern *t, uint32_t deadline_ms);

/* ---- asynchronous form: submit, wait until tern_fd is readable, tern_poll ---- */

struct tern_events; /* below */

struct tern_answer {
    uint64_t cookie;                   /* as it was submitted */
    enum tern_err err;                 /* of the whole request */
    const struct tern_result *results; /* one an operation of a batch, one for everything else (of a
                                          wait or a store, only its err); borrowed until the next
                                          call */
    uint32_t n;
    struct tern_stored stored;        /* of a store that was made, else zeroed */
    const struct tern_events *events; /* of a subscription, else NULL; borrowed likewise */
};

/* Each of these queues a request and returns at once. The answer comes through tern_poll with the
 * same cookie.
 *   BUSY  TERN_INFLIGHT_MAX requests are under way, or the socket is full. Call tern_poll first. */
TERN_API enum tern_err tern_submit_match(struct tern *t, tern_session s,
                                         const struct tern_tokens *tokens, uint64_t step,
                                         uint64_t cookie);
/* The batch is empty afterwards, and as it was after an error. */
TERN_API enum tern_err tern_batch_submit(struct tern_batch *b, uint64_t cookie);
TERN_API enum tern_err tern_submit_fetch(struct tern *t, tern_session s, const char *peer,
                                         uint32_t at_least, uint32_t depth, uint64_t step,
                                         uint64_t cookie);
TERN_API enum tern_err tern_submit_prefetch(struct tern *t, tern_session s, const char *peer,
                                            uint32_t at_least, uint32_t depth, uint64_t step,
                                            uint64_t cookie);
TERN_API enum tern_err tern_submit_fetch_ticket(struct tern *t, tern_session s, const char *ticket,
                                                uint64_t step, uint64_t cookie);
TERN_API enum tern_err tern_submit_fetch_follow(struct tern *t, tern_session s, const char *ticket,
                                                uint64_t step, uint64_t cookie);
TERN_API enum tern_err tern_submit_fetch_wait(struct tern *t, tern_session s, uint32_t above,
                                              uint64_t cookie);
TERN_API enum tern_err tern_submit_recover(struct tern *t, tern_session s, uint64_t cookie);
/* It is answered when the prefix is durable, however long that takes. */
TERN_API enum tern_err tern_submit_store(struct tern *t, tern_session s, uint32_t depth,
                                         uint64_t cookie);
TERN_API enum tern_err tern_submit_wait_published(struct tern *t, uint64_t step, uint64_t cookie);
/* The descriptor to wait on, for POLLIN, and for POLLOUT while tern_wants_write is true. It is
 * borrowed: do not read from it, and do not close it. */
TERN_API int tern_fd(const struct tern *t);
TERN_API bool tern_wants_write(const struct tern *t);
/* Hands out one answer. OK: *ret is filled in. BUSY: there is none yet. Call it until it says BUSY
 * before you wait on tern_fd, since one read may bring several answers. Synchronous calls may be
 * mixed in: answers to submitted requests that come meanwhile are kept, and are older than what the
 * call returned. When the connection is lost, each request under way is first handed out with err
 * DAEMON_LOST; then tern_poll itself returns DAEMON_LOST. */
TERN_API enum tern_err tern_poll(struct tern *t, struct tern_answer *ret);

/* ---- what changes in the prefix tree: for routers and whoever else wants to know ---- */

/* STORED: a prefix can be matched for the first time. TIER: it came to device or host memory, or
 * left one of them and is still in the other. REMOVED: it is in neither any more. */
enum tern_event_kind { TERN_STORED = 1, TERN_TIER = 2, TERN_REMOVED = 3 };

/* A change of one chunk of L tokens that ends at `depth`. `chain` stands for its namespace and for
 * all tokens and extra keys from the first to there. Equal prefixes have equal chains in all pools
 * of equal L and on all daemons of one version. */
struct tern_event {
    uint64_t number; /* ascending, from 1 at the daemon's start; the numbers of other tenants and
                        namespaces are missing here */
    enum tern_event_kind kind;
    uint32_t depth;
    uint64_t chain, parent_chain; /* parent: of the chunk before it; 0 for the first chunk */
    uint64_t ns_hi, ns_lo;        /* hash of the namespace, as ternctl shows it */
    uint64_t pool;
    bool on_device, on_host; /* after the change */
    const char *tenant;      /* on the admin socket; else NULL, and where it has no name to tell */
};

struct tern_events {
    const struct tern_event *v;
    uint32_t n;    /* may be 0 */
    uint64_t lost; /* if not 0: so many changes of the tenant (at the first answer: at most so
                      many) were missed before v[0]. Forget what you know, or subscribe anew */
    uint64_t next; /* pass it as `from` to go on behind this answer, with the same incarnation */
};

/* Asks for the changes of one namespace; ns NULL: of the whole tenant, and on the admin socket of
 * all tenants. `from` is the number of the first change that is wanted; 0: from now on. No engine
 * is needed. It works like a submitted request (one of TERN_INFLIGHT_MAX): the first answer with
 * this cookie says that the subscription has begun, and each later one brings changes, until one
 * has an err, which is the last.
 *
 * The daemon never waits for a subscriber. It keeps the last changes of each tenant (limits.events
 * in its configuration), and what is overwritten before it could be sent is counted as `lost`. So
 * is what exceeds TERN_EVENTS_KEPT while tern_poll is not called. BUSY is as for tern_submit_match.
 * In an answer:
 *   INVALID   No change has the number `from` yet, because the daemon was started anew.
 *   QUOTA     There are as many subscriptions as there may be. End one. */
TERN_API enum tern_err tern_subscribe(struct tern *t, const struct tern_namespace *ns,
                                      uint64_t from, uint64_t cookie);
/* Computes the chains of a token list's whole chunks, shallowest first, as tern_event.chain has
 * them. align_tokens: L of the pools. `tokens` is the whole list (base 0). Returns how many were
 * written to ret, at most max. It sends no request, and any thread may call it. */
TERN_API uint32_t tern_chains(const struct tern_namespace *ns, const struct tern_tokens *tokens,
                              uint32_t align_tokens, uint64_t *ret, uint32_t max);
/* Ends a subscription: nothing with this cookie comes any more.
 *   GONE  There is no such subscription. */
TERN_API enum tern_err tern_unsubscribe(struct tern *t, uint64_t cookie, uint32_t deadline_ms);

/* ---- operators: only on the daemon's admin socket, and DENIED elsewhere ---- */

/* Carries out one command of ternctl. args are "key=value". *ret_json is one JSON object, borrowed
 * until the next call. */
TERN_API enum tern_err tern_admin(struct tern *t, const char *command, const char *const *args,
                                  uint32_t nargs, uint32_t deadline_ms, const char **ret_json);

#ifdef __cplusplus
}
#endif
#endif
