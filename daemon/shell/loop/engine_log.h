/* What the log says of engines that come and go, with their processes and what they held. It
 * changes nothing in the core. Owner thread. */
#ifndef SHELL_ENGINE_LOG_H
#define SHELL_ENGINE_LOG_H

#include "shell/daemon.h"

/* A process of that engine has joined, the one that has this connection. */
void engine_log_joined(const struct daemon *d, struct engine_id engine, uint32_t proc);
/* A process leaves the engine in that slot; called before the core hears of it. */
void engine_log_leaves(const struct daemon *d, uint32_t slot, uint32_t proc);
/* A process has exited; likewise. */
void engine_log_exited(struct daemon *d, uint32_t proc);

#endif
