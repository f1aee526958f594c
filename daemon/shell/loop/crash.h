/* Crashes: a fault, a failed check, a SIGABRT from anybody. A crash leaves the tape of last events
 * and a line that says what happened and where the tape is; then that signal ends the process. */
#ifndef SHELL_CRASH_H
#define SHELL_CRASH_H

#include "shell/config/config.h"
#include "shell/tape/tape.h"

/* Call this before anything else at start: signals that the seams watch themselves (SIGBUS) come
 * here when they are not theirs. */
void crash_watch(void);
/* From now on a crash leaves this tape; NULL ends that. Both are borrowed. */
void crash_tape(const struct config *config, const struct tape *tape, uint64_t incarnation);
/* Writes the tape where a crash would, and goes on. Returns its path; "none" where there is no tape
 * or it could not be written. Owner thread. */
const char *crash_keep_tape(void);

#endif
