/* The run with planted bugs: how many seeds until the simulator notices. Only in tern-sim-bugs. */
#ifndef SIM_BUGRUN_H
#define SIM_BUGRUN_H

#include <stdbool.h>
#include <stdint.h>

/* which: a number of bugs/bugs.h or "all". 0 only if each was found within `seeds` in every
 * repetition. */
int bugs_run(const char *which, uint64_t seeds, uint64_t first, bool json, const char *shrink_to);
/* Plants one for what follows. False: this build has none, or no such number. */
bool bug_plant(const char *which);

#endif
