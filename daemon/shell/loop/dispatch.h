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

#endif
