/* The two directions between the wire and the core: request.c turns frames of local clients into
 * events, dispatch.c carries out the actions of a step. daemon.c registers both. */
#ifndef SHELL_DISPATCH_H
#define SHELL_DISPATCH_H

#include "shell/daemon.h"

/* Carries out d->actions; `carry_out` in struct daemon. */
void dispatch_actions(struct daemon *d);
/* Sends an answer to its connection, and updates counters and the log. */
void dispatch_reply(struct daemon *d, const struct reply *r);

/* request.c: called for each frame of a local client's connection and at its end. */
extern const struct client_conn_ops request_ops;

/* ---- engine_log.c: logs engines that join and leave, with their processes and the pages that they
 * held; changes nothing in the core. ---- */

/* Logs that process `proc` has joined that engine. */
void engine_log_joined(const struct daemon *d, struct engine_id engine, uint32_t proc);
/* Logs that a process leaves the engine in that slot. Call it before the core receives that. */
void engine_log_leaves(const struct daemon *d, uint32_t slot, uint32_t proc);
/* Logs that a process has exited. Call it before the core receives that. */
void engine_log_exited(struct daemon *d, uint32_t proc);

#endif
