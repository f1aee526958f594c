/* The end by a bug: a fault, a failed check, a SIGABRT from whomever. It leaves the tape of the
 * last events and one line that says what happened and where the tape is; then the process ends by
 * that signal. Used by main.c. */
#ifndef SHELL_CRASH_H
#define SHELL_CRASH_H

#include "shell/config/config.h"
#include "shell/tape/tape.h"

/* First of all at start: what the seams watch themselves (SIGBUS) comes here when it is not theirs.
 */
void crash_watch(void);
/* From now on there is a tape to leave, until it is told NULL; both are borrowed. */
void crash_tape(const struct config *config, const struct tape *tape, uint64_t incarnation);

#endif
