/* Requests of operators, and Stats of tenants. request.c passes in the requests, dispatch.c passes
 * in the core's answers, and daemon.c passes in the results of a drain and of a reload. Operators
 * request a drain, a reload, acts of the core, and peers that join and leave: see the sections
 * below. Owner thread. */
#ifndef SHELL_OPERATOR_H
#define SHELL_OPERATOR_H

#include "shell/admin/admin.h"
#include "shell/daemon.h"

/* An operator's command. */
struct asked {
    struct client_conn *c;
    const struct frame_header *h;
    const Tern__Wire__Admin *m; /* NULL: Stats */
    struct text_out out;        /* in d->text; OK with an empty text: answered later */
    char why[ADMIN_WHY_BYTES];  /* why the command failed */
};
/* As admin_args, for an array. */
#define ASKED_ARGS(a, takes)                                                                       \
    admin_args((a)->m->command, (a)->m->args, (a)->m->n_args, takes,                               \
               sizeof(takes) / sizeof *(takes), (a)->why)

/* Processes an admin request, or Stats on a tenant's socket. */
void operator_request(struct daemon *d, struct client_conn *c, const struct frame_header *h,
                      const uint8_t *body);
/* Sends the core's answer to an operator. */
void operator_reply(struct daemon *d, struct client_conn *c, const struct reply *r);
/* Answers operators that wait for a drain: the last session ended, deadline, or drain undone. */
void operator_drained(struct daemon *d);
struct reload_result;
/* Answers the operator that requested the reload. */
void operator_reloaded(struct daemon *d, const struct reload_result *result);

/* ---- drain.c: the daemon accepts no new sessions; when the open ones have ended, it stores cached
 * pages on the disk and ends. An operator (operator.c) or a signal (daemon.c) requests a drain; an
 * operator may undo an operator's drain. ---- */

/* Begins a drain, unless one has begun: `to` is DRAINING, or LEAVING for a signal. The loop ends
 * when the last session has ended, or at the deadline. */
void drain_begin(struct daemon *d, enum daemon_state to);
/* Applies a changed deadlines.drain_ms to a drain in progress. */
void drain_reloaded(struct daemon *d);
/* Undoes a drain. CONFLICT: it cannot be undone; *ret_why is the reason, static. */
enum tern_err drain_undo(struct daemon *d, const char **ret_why);
/* Reports to the service manager that the daemon serves, with a remark. */
void drain_tell_serving(const struct daemon *d, const char *remark, const char *why);
uint32_t drain_sessions(const struct daemon *d); /* open sessions */
/* Returns true when operators that wait for the drain should be answered (operator_drained). */
bool drain_nears_end(const struct daemon *d, uint64_t now_ns);
/* Call this while the daemon drains and stores: it ends the loop when that is due. */
void drain_tick(struct daemon *d, uint64_t now_ns);

/* ---- core_acts.c: operators' acts in the core: evict, pin, close a session or a pool, kick an
 * engine. Each is one request of the core, so that tapes have it; operator.c logs it and sends the
 * result. ---- */

#define CORE_ACT_RESULT_BYTES 256

bool core_act_is(const char *command);
/* Sends the core the command's request. The answer is a reply of one of these operations:
 * operator_reply receives it during this call or later. INVALID, GONE: nothing was requested. */
enum tern_err core_act(struct daemon *d, struct asked *a);

/* The command of such an operation; NULL: another operation. */
const char *core_act_name(enum op op);
/* Writes the result as a text for the log. */
void core_act_result(const struct reply *r, char ret[CORE_ACT_RESULT_BYTES]);
/* Writes the fields of a successful answer. */
void core_act_answer(const struct daemon *d, const struct reply *r, struct text_out *out);

/* ---- reload.c: reads the configuration as at start and compares it with the one in force. Reports
 * each difference: done, needs a restart or failed, and why. SIGHUP (daemon.c) and an operator
 * (operator.c) request a reload. Invariant: a file with an error or with unusable certificates
 * changes nothing; d->config changes only in reload.c, in tenant_join.c and in shell/peers. ---- */

/* Called on the owner thread when the file has been read; calls reload_finish. */
typedef void reload_read_done(struct daemon *d);
enum tern_err reload_init(struct daemon *d, reload_read_done *read_done, char *why, size_t cap);
void reload_end(struct daemon *d); /* call before the ring ends */

/* Begins to read the file. Returns false if a reload is in progress. */
bool reload_begin(struct daemon *d, bool dry_run);
/* The same for a signal; if a reload is in progress, repeats it when that has ended. */
void reload_by_signal(struct daemon *d);
/* Removes a peer that a file or an operator added. */
void member_leave(struct daemon *d, uint32_t slot);

/* The result of a reload. */
struct reload_result {
    enum tern_err err;
    bool by_signal, dry_run; /* by_signal: a signal requested the reload */
    char why[CONFIG_WHY_BYTES];
    uint32_t done, restart, failed; /* differences; done in a dry run: would be done */
    size_t n;                       /* with OK: bytes of the answer in d->text */
};
/* Applies what can be applied, and reports it in the log and in the answer. */
void reload_finish(struct daemon *d, struct reload_result *ret);

#endif
