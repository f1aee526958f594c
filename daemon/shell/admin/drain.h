/* Draining: the daemon takes no new sessions and, when those that are open have ended, stores what
 * is cached on the disk and ends. An operator (operator.c) or a signal (daemon.c) asks for it; an
 * operator may take back what an operator asked for. */
#ifndef SHELL_DRAIN_H
#define SHELL_DRAIN_H

#include "shell/daemon.h"

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

#endif
