/* The running daemon: one owner thread, one ring, one core. main.c creates it, runs it and destroys
 * it; request.c, conn.c, link.c and proc.c make events, shell/step/step.c steps the core,
 * dispatch.c carries out its actions, subscribe.c sends changes to subscribers. Invariant: all
 * actions of one step are carried out before the next step; events that a seam reports during a
 * step wait in `queue`; after "ready" nothing here allocates. */
#ifndef SHELL_DAEMON_H
#define SHELL_DAEMON_H

#include "base/states.h"
#include "seam/disk/disk.h"
#include "seam/io/closer.h"
#include "seam/xfer/xfer.h"
#include "shell/alarm/alarms.h"
#include "shell/config/config.h"
#include "shell/conn/conn.h"
#include "shell/conn/proc.h"
#include "shell/conn/subscribe.h"
#include "shell/peers/link.h"
#include "shell/stream/listen.h"
#include "shell/stream/stream.h"
#include "shell/tape/tape.h"
#include "shell/wire/wire_in.h"

/* The states of an engine's watch. */
#define ENGINE_WATCH_STATE_TABLE(X)                                                                \
    X(ENGINE_WATCH, NONE, TO(ENGINE_WATCH, ACTIVE), "no engine has the slot")                      \
    X(ENGINE_WATCH, ACTIVE, TO(ENGINE_WATCH, NONE),                                                \
      "an engine has joined, and the daemon reads its done steps")

STATE_MACHINE(engine_watch, ENGINE_WATCH, ENGINE_WATCH_STATE_TABLE)

/* The states of the daemon. */
#define DAEMON_STATE_TABLE(X)                                                                      \
    X(DAEMON, STARTING, TO(DAEMON, SERVING) | TO(DAEMON, STOPPED),                                 \
      "memory, core and sockets are being created; a failure ends the daemon")                     \
    X(DAEMON, SERVING, TO(DAEMON, DRAINING) | TO(DAEMON, LEAVING) | TO(DAEMON, STOPPED),           \
      "the daemon is ready")                                                                       \
    X(DAEMON, DRAINING, TO(DAEMON, SERVING) | TO(DAEMON, STORING) | TO(DAEMON, STOPPED),           \
      "an operator began a drain: new sessions are refused, and the daemon waits until the open "  \
      "ones have ended")                                                                           \
    X(DAEMON, LEAVING, TO(DAEMON, STORING) | TO(DAEMON, STOPPED),                                  \
      "a signal began a drain, which cannot be cancelled")                                         \
    X(DAEMON, STORING, TO(DAEMON, STOPPED), "the cache is being stored on the disk")               \
    X(DAEMON, STOPPED, 0, "the loop ends, and no step of the core follows")

STATE_MACHINE(daemon, DAEMON, DAEMON_STATE_TABLE)

#define IO_ENTRIES       1024
#define IO_BUFFERS       16 /* receive buffers for the streams of a share; a power of two */
#define IO_BUFFER_BYTES  65536
#define ADMIN_TEXT_BYTES (4u << 20) /* one admin answer */
#define STEP_POLL_NS     1000000u   /* interval of reading done_step while releases wait */
#define TICK_NS          100000000u /* deadlines, pauses, redials */

/* Events that a seam emits while a step runs or from inside its own calls. A ring of fixed size. */
struct event_queue {
    struct event *v; /* owned */
    uint32_t cap, head, n;
    bool stepping; /* for a check that no code steps the core during a step */
};

/* An engine that joined, whose done_step the shell reads. */
struct engine_watch {
    enum engine_watch_state state;
    uint32_t gen, tenant, world;
    char name[ENGINE_NAME_MAX];
    uint64_t last[RANKS_MAX]; /* last done step of each rank that the core received */
    uint64_t joined_ns;
    bool rung; /* a bell rang since the last turn of the loop */
};

/* A pool as operators see it. */
struct pool_watch {
    uint32_t gen;
    char names[GROUPS_MAX][GROUP_NAME_MAX];
};

#define REFUSAL_TEXT_BYTES 256 /* longer texts are cut */

/* Refusals of a tenant, for operators: counts by error, and the text of the last one. */
struct refusals {
    uint64_t errors[TERN_ERR_COUNT]; /* answers and operations of a Step; [TERN_OK] stays 0 */
    enum tern_err last;              /* TERN_OK: none so far */
    enum op last_op;
    char last_text[REFUSAL_TEXT_BYTES]; /* "": the error alone */
    uint64_t last_ns;
    /* Time of the last refusal of each kind; 0: none. share_ns: for the tenant's share of a table;
     * exhausted_ns: POOL_EXHAUSTED, except the disk's; quota_ns: QUOTA. */
    uint64_t share_ns[CORE_SHARES], exhausted_ns, quota_ns;
};

/* The disk tier as the log and operators see it. */
struct spill_watch {
    struct io_op op;
    struct disk_recovery recovery; /* result of this start */
    uint32_t faults_logged;
    uint64_t bad;    /* count of damage that the log has reported */
    uint64_t failed; /* failed stores when the daemon began to end */
};

/* The reload of the configuration. */
struct reload_watch {
    struct reload_reader *reader; /* owned */
    bool dry_run, by_signal;      /* of the reload in progress */
    bool again;                   /* a signal arrived during the reload */
};

/* Steps of the core that examined more records than a step may, and the time at which the log last
 * reported them. */
struct steps_watch {
    uint64_t steps, last_ns, told_ns;
};

struct daemon {
    struct config *config; /* borrowed; see shell/admin/operator.h for who changes it */
    enum daemon_state state;
    uint64_t incarnation, start_ns, last_ns;
    uint64_t tick_ns, step_poll_ns;
    uint64_t drain_began_ns, drain_ns; /* drain_ns: its end, even if sessions are left */
    uint64_t faults_seen, waits_seen;  /* counts of mem_stats that the log has reported */
    uint64_t procs_exited;             /* processes that exited without leaving their engine */
    struct alarms alarms;
    struct steps_watch over;

    struct reload_watch reload;

    struct io *io;
    struct mem *mem;
    struct xfer *xfer;
    struct disk *disk; /* NULL: there is no disk tier */
    struct spill_watch spill;
    struct tape *tape;
    struct core_limits limits; /* the configuration's */
    void *arena;
    struct core *core; /* lies in the arena */
    struct actions *actions;
    struct event_queue queue;
    void (*carry_out)(struct daemon *d); /* carries out d->actions after each step */

    struct closer *closer; /* of clients' sockets */
    struct stream_pool *streams;
    struct client_conns conns;
    struct peer_links links;
    struct subscriptions subs;
    struct proc_table procs;
    struct wire_in in;
    uint8_t *frame;      /* buffer for encoding an answer: FRAME_HEADER_BYTES + the largest body */
    char *text;          /* buffer for an admin answer: ADMIN_TEXT_BYTES */
    uint64_t *node_bits; /* for admin answers: one bit per node */

    struct engine_watch *engines;
    struct refusals refusals[CONFIG_TENANTS_MAX]; /* by tenant */
    struct histogram answered[OP_COUNT]; /* time from a whole request until the core has processed
                                            it: most are answered then */
    struct pool_watch *pools;
    struct io_op mem_op, signal_op;
    bool rung; /* an engine_watch has `rung` set */
    int signal_fd;
    uint16_t control_port, data_port;
    bool rdma; /* an RDMA device is in use */
};

/* On failure `why` receives what failed and what to do. Blocks SIGTERM, SIGINT and SIGHUP in this
 * thread first, so that the workers inherit the mask. */
enum tern_err daemon_create(struct config *config, struct daemon **ret, char *why, size_t cap);
int daemon_run(struct daemon *d); /* runs until drained; returns the exit status */
void daemon_destroy(struct daemon *d);

/* Steps the core with the queued events, then with `ev`, and carries out all actions before it
 * returns. Arrays in the event are borrowed for the call. Never call this within a step or a seam's
 * call: pass events that can occur there, such as a connection's end, to daemon_later. */
void daemon_event(struct daemon *d, struct event *ev);
/* Queues the event, which must borrow nothing. The core receives it before any event that is not
 * queued, at the latest in the next turn of the loop; until then the loop does not wait. */
void daemon_later(struct daemon *d, const struct event *ev);
void daemon_emit(void *daemon, struct event *ev); /* the same, for a seam */
void daemon_run_queue(struct daemon *d);
/* The most batches of pages that fetches may have outstanding at a time. */
uint32_t daemon_batches_bound(const struct core_limits *l);
/* The most queued events: each outstanding operation reports each kind of event once. */
uint32_t daemon_queue_bound(const struct core_limits *l, uint32_t procs);

/* Counts the refusals of an answer: its own, or those of a Step's operations. */
void refusals_note(struct refusals *refusals, const struct reply *reply, uint64_t now_ns);

/* Begins to watch an engine that joined; a second call for the same engine does nothing. */
void engine_watch_begin(struct daemon *d, struct engine_id engine);
/* Ends the watch of an engine. Returns false if the engine was not watched. */
bool engine_watch_end(struct daemon *d, struct engine_id engine);
/* Requests a bell when ranks of that engine finish `step`. */
void engine_watch_want(struct daemon *d, struct engine_id engine, uint64_t step);
/* Call engine_watch_rung when a bell of the engine in that slot rang. engine_watch_hear reads the
 * steps of each such engine, once a turn of the loop, however many bells rang. */
void engine_watch_rung(struct daemon *d, uint32_t slot);
void engine_watch_hear(struct daemon *d);
/* Sends the core the steps that ranks of that engine, or of all engines, have finished since the
 * last call. */
void daemon_poll_engine(struct daemon *d, uint32_t slot);
void daemon_poll_engines(struct daemon *d);

#endif
