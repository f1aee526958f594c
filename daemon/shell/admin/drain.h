/* Draining: the daemon takes no new sessions and, when those that are open have ended, stores what
 * is cached on the disk and ends. An operator (operator.c) or a signal (daemon.c) asks for it. */
#ifndef SHELL_DRAIN_H
#define SHELL_DRAIN_H

#include "shell/daemon.h"

/* Begins to drain, unless that has begun. The loop ends when the last session has ended, or at the
 * deadline. */
void drain_begin(struct daemon *d);
/* Call this while the daemon drains and stores: it ends the loop when it is time. */
void drain_tick(struct daemon *d, uint64_t now_ns);

#endif
