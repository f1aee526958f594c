/* Requests of operators, and Stats of tenants: request.c brings them, dispatch.c brings back what
 * the core answers, daemon.c what came of a drain and of a reload. Operators ask for a drain, a
 * reload, for what the core does, and for peers that join and leave: the files of those are below.
 * Owner thread. */
#ifndef SHELL_OPERATOR_H
#define SHELL_OPERATOR_H

#include "shell/admin/text_out.h"
#include "shell/daemon.h"

/* An admin request or, with a tenant's name behind it, Stats. */
void operator_request(struct daemon *d, struct client_conn *c, const struct frame_header *h,
                      const uint8_t *body);
/* What the core answered to an operator. */
void operator_reply(struct daemon *d, struct client_conn *c, const struct reply *r);
/* Answers who waits for a drain: the last session ended, the deadline came, or it was undone. */
void operator_drained(struct daemon *d);
struct reload_result;
/* Answers who asked for the reload that has ended so. */
void operator_reloaded(struct daemon *d, const struct reload_result *result);

/* ---- drain.c: the daemon takes no new sessions and, when those that are open have ended, stores
 * what is cached on the disk and ends. An operator (operator.c) or a signal (daemon.c) asks for it;
 * an operator may take back what an operator asked for. ---- */

/* Begins to drain, unless that has begun: `to` is DRAINING, or LEAVING for a signal. The loop ends
 * when the last session has ended, or at the deadline. */
void drain_begin(struct daemon *d, enum daemon_state to);
/* deadlines.drain_ms may be another: a drain that is under way ends by that, too. */
void drain_reloaded(struct daemon *d);
/* Serves again. CONFLICT: there is no way back, and *ret_why is a static text that tells why. */
enum tern_err drain_undo(struct daemon *d, const char **ret_why);
/* Tells the service manager that the daemon serves, with a remark behind that. */
void drain_tell_serving(const struct daemon *d, const char *remark, const char *why);
uint32_t drain_sessions(const struct daemon *d); /* that are open */
/* It is time for those who wait for the end of the drain to hear of it (operator_drained). */
bool drain_nears_end(const struct daemon *d, uint64_t now_ns);
/* Call this while the daemon drains and stores: it ends the loop when it is time. */
void drain_tick(struct daemon *d, uint64_t now_ns);

/* ---- members.c: peers that operators add and remove, `peer-add` and `peer-remove` of the admin
 * socket. What they add stands in no file: it is gone with the daemon, and a reload leaves it
 * alone. ---- */

/* *ret_text is borrowed for this one answer. */
enum tern_err member_command(struct daemon *d, const Tern__Wire__Admin *m, struct text_out *out,
                             const char **ret_text);
/* A peer of a file or of an operator leaves. */
void member_leave(struct daemon *d, uint32_t slot);

/* ---- core_acts.c: what an operator does that the core answers: evict, pin, close a session or a
 * pool, kick an engine. Each becomes one request of the core, so that a tape has it; operator.c
 * logs it and sends what comes back. ---- */

#define CORE_ACT_RESULT_BYTES 256

bool core_act_is(const char *command);
/* Hands the core the request that the command says. Its answer comes back as a reply of one of
 * these operations, in this call or later. INVALID, GONE: nothing was asked, and *ret_text, which
 * is borrowed until the next call, says why. */
enum tern_err core_act(struct daemon *d, const struct client_conn *c, const struct frame_header *h,
                       const Tern__Wire__Admin *m, const char **ret_text);

/* The command of such an operation; NULL: it is none. */
const char *core_act_name(enum op op);
/* What came of it, in words for the log. */
void core_act_result(const struct reply *r, char ret[CORE_ACT_RESULT_BYTES]);
/* The fields of the answer; it was carried out. */
void core_act_answer(const struct daemon *d, const struct reply *r, struct text_out *out);

/* ---- reload.c: the configuration is read anew, as at start, and compared with what is in force.
 * Each difference is told: done, needs a restart or failed, and why. SIGHUP (daemon.c) and an
 * operator (operator.c) ask for it. What must stay true: a file with an error, or certificates that
 * cannot be used, change nothing; only there, in tenant_join.c and in shell/peers does d->config
 * change. ---- */

/* When the file has been read, `read_done` is called on the owner thread, and calls
 * reload_finish. */
typedef void reload_read_done(struct daemon *d);
enum tern_err reload_init(struct daemon *d, reload_read_done *read_done, char *why, size_t cap);
void reload_end(struct daemon *d); /* before the ring's end */

/* Begins to read the file. False: that is under way. */
bool reload_begin(struct daemon *d, bool dry_run);
/* A signal asks: likewise, or once more when the reading that is under way has ended. */
void reload_by_signal(struct daemon *d);

/* How a reading ended. */
struct reload_result {
    enum tern_err err;
    bool by_signal, dry_run; /* by_signal: a signal had asked for it */
    char why[CONFIG_WHY_BYTES];
    uint32_t done, restart, failed; /* differences; of a dry run: that would be done */
    size_t n;                       /* with OK: bytes of the answer in d->text */
};
/* Does what can be done, and tells it in the log and in the answer. */
void reload_finish(struct daemon *d, struct reload_result *ret);
/* After that: a signal that came meanwhile has its turn. */
void reload_again(struct daemon *d);

#endif
