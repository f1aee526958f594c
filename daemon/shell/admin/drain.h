/* Draining: the daemon takes no new sessions and ends when the rest has ended. Asked for by an
 * operator (operator.c) or by a signal (daemon.c). */
#ifndef SHELL_DRAIN_H
#define SHELL_DRAIN_H

#include "shell/daemon.h"

/* Begins it, unless it has begun. The loop ends when the last session has, or at the deadline. */
void drain_begin(struct daemon *d);
/* While it lasts: is it over? */
void drain_tick(struct daemon *d, uint64_t now_ns);

#endif
