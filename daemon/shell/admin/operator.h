/* Requests of operators, and Stats of tenants: request.c brings them, dispatch.c brings back what
 * the core answers. */
#ifndef SHELL_OPERATOR_H
#define SHELL_OPERATOR_H

#include "core/core.h"
#include "shell/conn/conn.h"

/* An admin request or, with a tenant's name behind it, Stats. */
void operator_request(struct daemon *d, struct client_conn *c, const struct frame_header *h,
                      const uint8_t *body);
/* What the core answered to an operator. */
void operator_reply(struct daemon *d, struct client_conn *c, const struct reply *r);
/* Answers those who wait for the end of a drain: the last session has ended, the deadline comes, or
 * the daemon serves again. */
void operator_drained(struct daemon *d);
struct reload_result;
/* Answers who asked for the reload that has ended so. */
void operator_reloaded(struct daemon *d, const struct reload_result *result);

#endif
