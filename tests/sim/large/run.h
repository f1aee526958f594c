/* Histories with large geometries, beside those of sim.h: see world.h. */
#ifndef LARGE_RUN_H
#define LARGE_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "../report.h"

struct large_report {
    struct report r;
    uint64_t most_visits, most_work, work_seed, visits_seed; /* of one step, over all histories */
    const char *work_event;
};

void large_begin(struct large_report *ret, uint64_t first, bool verbose);
/* Plays one, twice if `twice`. Returns false, after a report, if it broke a promise. */
bool large_seed(struct large_report *r, uint64_t seed, bool twice, const char *shrink_to);
/* Prints the most expensive steps and their seeds. */
void large_print_most(const struct large_report *r);

#define LARGE_MAGIC "tern-sim large history 1" /* first line of its file */
int large_tape(const char *path, bool verbose);

/* Properties that a history needs to show a planted bug; without them, it is not played. */
struct large_needs {
    bool disk, windows;
};
/* For planted bugs. Returns false if the seed breaks a promise, which *ret_what names. */
bool large_plays(uint64_t seed, struct large_needs needs, const char **ret_what);
void large_keep(uint64_t seed, const char *dir, const char *name, const char *why);

#endif
