/* The two ways between the wire and the core: request.c turns the frames of local clients into
 * events, dispatch.c carries out the actions of a step. daemon.c registers both. */
#ifndef SHELL_DISPATCH_H
#define SHELL_DISPATCH_H

#include "shell/daemon.h"

/* Carries out d->actions; struct daemon has it as `carry_out`. */
void dispatch_actions(struct daemon *d);
/* An answer goes to who asked, and into the counters and the log. */
void dispatch_reply(struct daemon *d, const struct reply *r);

/* request.c: connections of local clients call these for each frame and at their end. */
extern const struct client_conn_ops request_ops;

/* ---- engine_log.c: what the log says of engines that come and go, with their processes and what
 * they held. It changes nothing in the core. ---- */

/* A process of that engine has joined, the one that has this connection. */
void engine_log_joined(const struct daemon *d, struct engine_id engine, uint32_t proc);
/* A process leaves the engine in that slot; called before the core hears of it. */
void engine_log_leaves(const struct daemon *d, uint32_t slot, uint32_t proc);
/* A process has exited; likewise. */
void engine_log_exited(struct daemon *d, uint32_t proc);

#endif
