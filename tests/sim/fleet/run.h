/* Histories of three daemons, beside those of sim.h: see world.h. */
#ifndef FLEET_RUN_H
#define FLEET_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "../report.h"

void fleet_begin(struct report *ret, uint64_t first, bool verbose);
/* Plays one, twice if `twice`. Returns false, after a report, if it broke a promise. */
bool fleet_seed(struct report *r, uint64_t seed, bool twice, const char *shrink_to);

#define FLEET_MAGIC "tern-sim fleet history 1" /* first line of its file */
int fleet_tape(const char *path, bool verbose);

/* For planted bugs. Returns false if the seed breaks a promise, which *ret_what names. */
bool fleet_plays(uint64_t seed, const char **ret_what);
void fleet_keep(uint64_t seed, const char *dir, const char *name, const char *why);

#endif
