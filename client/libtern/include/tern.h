/* libtern: the API by which a model server uses the Tern daemon on its host.
 *
 * The daemon owns the KV pages. The engine maps them, and its kernels read and write them in place.
 * Requests carry tokens, page indices and lengths only. One struct tern is one connection of one
 * process. Each rank process of an engine makes its own connection, joins under the same engine
 * name, and maps its own region. docs/engine-guide.md shows the calls in their order.
 *
 * Include this header. It includes the others, one for each subject:
 *   tern_pool.h     layouts, pools, and the steps that devices have finished
 *   tern_session.h  prefixes, sessions, batches, turns, retract and recover
 *   tern_fetch.h    pages from other daemons, by name or by ticket, and from the disk
 *   tern_lease.h    pages leased ahead of need, so that decode does not wait
 *   tern_record.h   turn records: token ids, log-probabilities and blobs of turns
 *   tern_async.h    requests that are submitted and polled, and subscriptions
 *   tern_blocks.h   blocks by key, for engines that own their KV memory
 *
 * Words that all headers use:
 *   step          One iteration of the engine, by its number. A step has passed when the devices of
 *                 all ranks of the engine have finished it (tern_done_step).
 *   chunk         L tokens. Prefixes are committed and shared in whole chunks (tern_pool_open).
 *   resume point  A depth from which a session can continue, because all HISTORY and STATE that it
 *                 needs there exists (enum tern_family).
 *   away          A session is away from tern_retract until tern_recover.
 *   record        An entry of one of the daemon's tables, whose sizes the daemon's configuration
 *                 limits; a turn record is something else (tern_record.h).
 *
 * Threads. A struct tern and every object obtained from it belong to one thread at a time; another
 * thread may take over between two calls. Different connections are independent. If a thread calls
 * on a connection while another thread is in a call on it, the second call returns TERN_CONFLICT
 * and affects neither the connection nor the first call. The library starts only two kinds of
 * threads: one thread for a connection with leases (tern_lease.h), and the threads of a set or
 * queue of blocks (tern_blocks.h). It installs no signal handler and never logs.
 *
 * Blocking. A call with a deadline_ms (0: TERN_DEADLINE_DEFAULT_MS) blocks at most that long and
 * then returns TERN_TIMED_OUT. The request may still take effect. Retry if the function's
 * comment allows that. If a call on a session times out and leaves its result unchanged, no later
 * answer names the pages that the request may have added to the session. Then call tern_recover,
 * which returns the session's lengths and its whole table. The asynchronous form (tern_submit_* and
 * tern_poll) never blocks.
 *
 * Lost connections. After TERN_DAEMON_LOST the connection is dead: every later call on it returns
 * TERN_DAEMON_LOST. Only the library returns this error; a daemon never sends it. TERN_PEER_LOST is
 * different: the daemon of another host is not connected, and this connection stays usable.
 * TERN_MALFORMED means that the daemon sent an invalid message; the connection is dead then, too.
 * (The calls for turn records also use MALFORMED for another error.) The pools stay mapped until
 * tern_destroy, so that kernels in flight touch valid memory. After tern_destroy connect again. A
 * daemon that was restarted has another incarnation (tern_incarnation), and answers every handle
 * from before the restart with TERN_GONE.
 *
 * fork(). After a fork the connection belongs to the parent. Its pools and its record memory are
 * not mapped in the child, and the child may call tern_pool_unmap and tern_destroy on
 * it. Every other call in the child returns TERN_DAEMON_LOST, with an error text of
 * its own, and sends nothing: the child must make its own connection. The checks for a fork and for
 * another thread make no system call. */
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
/* The most asynchronous requests of a connection whose answers tern_poll has not returned yet. */
#define TERN_INFLIGHT_MAX    64
#define TERN_BATCH_OPS_MAX   1024        /* operations of one tern_batch */
#define TERN_KEYS_MAX        1024        /* extra keys of one token list */
#define TERN_EVENTS_KEPT     1024        /* changes of subscriptions that wait for tern_poll */
#define TERN_CHUNKS_KEPT     (8u << 20)  /* bytes of tokens and extra keys in these changes */
#define TERN_ENGINE_NAME_MAX 47          /* bytes of an engine's name */
#define TERN_ADMIN_JSON_MAX  (64u << 20) /* bytes of one admin answer */
/* For a `step`: nothing is in flight, so no kernel can still touch the pages. There is no default
 * step: a call that frees or publishes pages refuses 0 as a forgotten step. */
#define TERN_STEP_NONE UINT64_MAX
/* For a `peer`: the disk of this host's daemon. No peer can have that name. */
#define TERN_PEER_DISK "/disk"
/* For a `peer`: the peer that has most of the prefix. */
#define TERN_PEER_ANY "/any"

struct tern;      /* a connection; on the heap; tern_destroy frees it */
struct tern_pool; /* a mapped pool; its connection owns it */

/* The handle of a session, or of a turn of a session (tern_turn_begin). The session belongs to the
 * engine, and the handle is valid on each connection of that engine. */
typedef uint64_t tern_session;

/* ---- errors ----
 *
 * tern_err.h lists the errors. The comment of a function names only the errors that mean something
 * special for that function. In addition, any function may return these:
 *   DAEMON_LOST, TIMED_OUT, MALFORMED  See Blocking and Lost connections above.
 *   CONFLICT  Another thread is in a call on this connection: see Threads.
 *   INVALID   An argument is out of range, or does not fit the state of its object. Correct it.
 *   BUSY      A limit on concurrent work is reached, a turn of the session is in flight, or not
 *             every rank of the engine has joined yet. Retry after a pause.
 *   QUOTA     A limit of the tenant is reached. Release something, or have the limit raised.
 *   GONE      The handle names something that was closed or has ended, or a process of this engine
 *             died. Drop the handle; after a death, restart the engine.
 *   INTERNAL  This process is out of memory, or Tern has a bug: see tern_error_text. */

/* Returns the meaning of the error as a static text. Never NULL. Any thread may call it. */
TERN_API const char *tern_strerror(enum tern_err err);
/* Returns what to do about the error: correct, retry, wait, drop. Any thread may call it. */
TERN_API enum tern_err_category tern_category(enum tern_err err);
/* Returns the version of the library, such as "0.2.0". */
TERN_API const char *tern_version(void);
struct tern_result; /* tern_session.h */

/* Returns the text of an error: the cause and what to do; "" if there is none. With result NULL, it
 * is the error of the last call on this connection. With a result of a batch, it is the error of
 * that operation; the batch must be the last one that was run or whose answer tern_poll returned.
 * Any other result is treated as NULL. After tern_poll, NULL means the error of the answer that
 * tern_poll returned. With t NULL, it is the error of this thread's last tern_connect. The text is
 * borrowed until the next call. */
TERN_API const char *tern_error_text(struct tern *t, const struct tern_result *result);
/* Sets ret[0] and ret[1] to the numbers in the text that tern_error_text returns for the same
 * arguments, in the order of the text. Both are 0 unless a daemon refused the request and named
 * numbers. With QUOTA for a request that never fits, they are the amount needed and the most that
 * there can be. `t` is not NULL. */
TERN_API void tern_error_numbers(const struct tern *t, const struct tern_result *result,
                                 uint64_t ret[2]);

/* ---- connecting ---- */

/* Connects to a tenant's socket and agrees on a protocol version. *ret is owned by the caller; end
 * it with tern_destroy. tern_error_text(NULL, NULL) has the text of the error.
 *   DAEMON_LOST  No daemon listens on the socket, or the socket's mode forbids the connection;
 *                errno has the cause.
 *   UNSUPPORTED  The daemon and the library have no version in common. Update the older one.
 *   INVALID      The path is too long for a socket.
 *   BUSY         The daemon is draining. Connect to another one.
 *   QUOTA        The tenant has reached its limit of connections. Close one. */
TERN_API enum tern_err tern_connect(const char *socket_path, uint32_t deadline_ms,
                                    struct tern **ret);
/* Unmaps the pools of this connection, leaves the engine and closes. Once a connection has left its
 * engine, calls on the engine's other connections return GONE. So keep the connection of a helper
 * thread while the engine runs. A connection that is lost has not left the engine: after
 * tern_destroy the process may connect and join again. NULL is allowed. */
TERN_API void tern_destroy(struct tern *t);
/* Returns the daemon's incarnation, a number that is new at each start of the daemon. */
TERN_API uint64_t tern_incarnation(const struct tern *t);
/* Sets the trace id that later requests of this connection carry. The daemon's log lines about
 * these requests show the id as trace= and 16 hex digits; so does the log of the other daemon if
 * the request is a fetch. (Most of these lines are at log_level debug.) 0, the initial value: none.
 * The call sends no request. */
TERN_API void tern_trace(struct tern *t, uint64_t trace_id);

/* TERN_BOTH: a process that is a rank and also the scheduler. */
enum tern_role { TERN_SCHEDULER = 0, TERN_WORKER = 1, TERN_BOTH = 2 };

/* Makes this process a part of the engine `name`. `world` is the engine's number of ranks, and rank
 * is 0 to world - 1; for a pure scheduler rank is ignored. The engine can work once all `world`
 * ranks have joined. The same connection may repeat the call. Only one connection of the engine can
 * join as TERN_SCHEDULER: the connection of a process that is no rank (a pure scheduler), or a
 * second connection of a rank's process, for another thread.
 *
 * `device` names the device of this rank: its pages lie in the tenant's region of that device. It
 * is the device's UUID as the daemon's configuration has it, or the region's index ("0") if the
 * configuration names none, at most 47 bytes. NULL: the pages of rank r lie in region r. Engines on
 * different devices run side by side, each with all of its regions' memory. Engines can share a
 * pool if their ranks are on the same devices in the same order. A pure scheduler has no device.
 *   INVALID   world is above the number of the tenant's regions, rank is not below world, or the
 *             tenant has no region on that device.
 *   CONFLICT  The engine was joined with another world; another connection has the rank, or is the
 *             scheduler; this connection has already joined another engine or as another rank;
 *             another rank of the engine is on that device; or some ranks of the engine name their
 *             devices and others do not.
 *   BUSY      Processes of an earlier engine of that name have not exited yet. Wait for them. */
TERN_API enum tern_err tern_join(struct tern *t, const char *name, enum tern_role role,
                                 uint32_t rank, uint32_t world, const char *device,
                                 uint32_t deadline_ms);

/* ---- the rest, by subject ---- */

#include "tern_pool.h"

#include "tern_session.h"

#include "tern_fetch.h"

#include "tern_lease.h"

#include "tern_record.h"

#include "tern_async.h"

#include "tern_blocks.h"

/* ---- asking about the daemon ---- */

/* Returns the tenant's pools, its error counters, and the number of retracts that were undone, as
 * one JSON object. *ret_json is borrowed until the next call. */
TERN_API enum tern_err tern_stats(struct tern *t, uint32_t deadline_ms, const char **ret_json);
/* Makes one round trip to the daemon and does nothing else. */
TERN_API enum tern_err tern_ping(struct tern *t, uint32_t deadline_ms);

/* ---- operators: only on the daemon's admin socket, and DENIED elsewhere ---- */

/* Carries out one command of ternctl. args are "key=value". *ret_json is one JSON object, borrowed
 * until the next call. */
TERN_API enum tern_err tern_admin(struct tern *t, const char *command, const char *const *args,
                                  uint32_t nargs, uint32_t deadline_ms, const char **ret_json);

#ifdef __cplusplus
}
#endif
#endif
