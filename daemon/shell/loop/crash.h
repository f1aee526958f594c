/* Crashes: a fault, a failed check, any SIGABRT. A crash writes the tape of the last events and a
 * line with the cause and the tape's path; then that signal ends the process. */
#ifndef SHELL_CRASH_H
#define SHELL_CRASH_H

#include "shell/config/config.h"
#include "shell/tape/tape.h"

/* Call this first at start: seams pass on the signals (SIGBUS) that they watch but do not own. */
void crash_watch(void);
/* Sets the tape that a crash writes; NULL: none. Both are borrowed. */
void crash_tape(const struct config *config, const struct tape *tape, uint64_t incarnation);
/* Writes the tape like a crash, and continues. Returns its path, or "none" if there is no tape or
 * the write failed. Owner thread. */
const char *crash_keep_tape(void);

#endif
