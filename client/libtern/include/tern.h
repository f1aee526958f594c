/* libtern: how a model server talks to the Tern daemon on its host.
 *
 * The daemon owns the KV pages. The engine maps them, and its kernels read and write them in place.
 * Requests carry tokens, page indices and lengths only. One struct tern is one connection of one
 * process. Each rank process of an engine makes its own connection, joins under the same engine
 * name, and maps its own region. docs/engine-guide.md shows the calls in their order.
 *
 * Include this header: it includes the others, one a subject.
 *   tern_pool.h     layouts, pools, and steps that are done
 *   tern_session.h  prefixes, sessions, batches, turns, giving way
 *   tern_fetch.h    pages from other daemons, by name or by ticket, and from the disk
 *   tern_lease.h    decode without waiting
 *   tern_record.h   what turns leave beside KV
 *   tern_async.h    requests that nobody waits for, and subscriptions
 *   tern_blocks.h   blocks by key, for engines that own their KV memory
 *
 * Threads. A struct tern and everything got from it belong to one thread at a time, and may be
 * handed on between two calls; different connections are independent. A call while another thread
 * is in one is refused (TERN_CONFLICT), and both connection and the other call are as if it had not
 * been made. The library starts no thread but that of a connection with leases
 * (tern_lease.h) and those that copy for a set of blocks (tern_blocks.h), installs no signal
 * handler and never logs.
 *
 * Blocking. A call with a deadline_ms (0: TERN_DEADLINE_DEFAULT_MS) blocks at most that long and
 * then returns TERN_TIMED_OUT. The request may still take effect, so repeat it; those that may be
 * repeated say so. No later answer names the pages that such a request of a session gave it: after
 * TIMED_OUT with a result that was left as it was, tern_recover tells the session's lengths and its
 * whole table. The asynchronous form (tern_submit_* and tern_poll) never blocks.
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
 * on it. Every other call there is refused as TERN_DAEMON_LOST, with words of its own, and nothing
 * is sent: the child makes a connection of its own. Neither check makes a system call. */
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
#define TERN_CHUNKS_KEPT     (8u << 20)  /* bytes of tokens and extra keys that they may have */
#define TERN_ENGINE_NAME_MAX 47          /* bytes of an engine's name */
#define TERN_ADMIN_JSON_MAX  (64u << 20) /* bytes of one admin answer */
/* For a `step`: nothing is in flight, so no kernel can still touch the pages. It is no default: a
 * call that gives pages back or publishes them refuses 0 as a step that was forgotten. */
#define TERN_STEP_NONE UINT64_MAX
/* For a `peer`: the disk of this host's daemon. No peer can have that name. */
#define TERN_PEER_DISK "/disk"
/* Likewise: whichever peer has most of it. */
#define TERN_PEER_ANY "/any"

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
 *   CONFLICT   Another thread is in a call on this connection: see Threads.
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
/* The numbers of that text, in its order, where a daemon refused the request and named any; else 0.
 * With QUOTA for what never fits: what is needed, and what there can be at most. */
TERN_API void tern_error_numbers(const struct tern *t, uint64_t ret[2]);

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
 *   INVALID   world is above the number of the tenant's regions, or rank is not below it.
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

/* ---- the rest, by subject ---- */

#include "tern_pool.h"

#include "tern_session.h"

#include "tern_fetch.h"

#include "tern_lease.h"

#include "tern_record.h"

#include "tern_async.h"

#include "tern_blocks.h"

/* ---- asking about the daemon ---- */

/* The tenant's pools, its error counters, and how many retracts came to nothing, as one JSON
 * object. *ret_json is borrowed until the next call. */
TERN_API enum tern_err tern_stats(struct tern *t, uint32_t deadline_ms, const char **ret_json);
/* One round trip to the daemon, and nothing else. */
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
