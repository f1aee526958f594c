/* Another level of the log for a while, at an operator's word: it goes back by itself, so that
 * nobody forgets a daemon that tells everything. Owner thread. */
#ifndef SHELL_LOG_LEVEL_H
#define SHELL_LOG_LEVEL_H

#include "shell/daemon.h"

#define LOG_LEVEL_S     60    /* where nobody says for how long */
#define LOG_LEVEL_S_MAX 86400 /* the longest */

/* The configuration's level ends an earlier change. */
void log_level_change(struct daemon *d, enum log_level level, uint32_t for_s);
/* The configuration's level is another now. One that an operator asked for stays for its time. */
void log_level_configured(struct daemon *d);
void log_level_tick(struct daemon *d, uint64_t now_ns);

#endif
