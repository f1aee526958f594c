/* What the log says of engines that need an operator: processes that ended, and steps that do not
 * come. It changes nothing in the core. Owner thread. */
#ifndef SHELL_ENGINE_ALARM_H
#define SHELL_ENGINE_ALARM_H

#include "shell/daemon.h"

/* A process has exited; called before the core hears of it. */
void engine_alarm_exited(struct daemon *d, uint32_t proc);
/* A process of that engine has exited, and others live on. */
void engine_alarm_stuck(struct daemon *d, struct engine_id engine);
/* Says which engines have become overdue (E8), and which are so no more. */
void engine_alarm_overdue(struct daemon *d, uint64_t now_ns);

#endif
