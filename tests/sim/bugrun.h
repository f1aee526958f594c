/* The run with planted bugs: how many seeds until the simulator notices. Only in tern-sim-bugs. */
#ifndef SIM_BUGRUN_H
#define SIM_BUGRUN_H

#include <stdbool.h>
#include <stdint.h>

#define BUG_RUNS_MAX 5u

/* Looks for each bug `runs` times, from first seeds far apart, in at most `seeds` histories each
 * time. */
struct bug_search {
    const char *which; /* a number of bugs/bugs.h, or "all" */
    uint64_t seeds, first, runs;
    const char *shrink_to;
    bool json;
};
/* Returns 0 only if each bug was found in every run. */
int bugs_run(const struct bug_search *how);
/* Turns the bug on for what follows. Returns false if this build has none, or no such number. */
bool bug_plant(const char *which);

#endif
