/* The cost of one more turn on a session that is 10, 100 and 1,000 turns deep, where each commit
 * supersedes exactly one earlier segment of a window (T10). Part of `tern-bench index`. */
#ifndef BENCH_SUPERSEDE_H
#define BENCH_SUPERSEDE_H

#include <stdint.h>

#include "bench.h"

#define SUPERSEDE_DEPTHS 3

struct supersede_figures {
    double us[SUPERSEDE_DEPTHS]; /* medians */
};

/* Runs `sessions` sessions, each with tokens of its own, through all depths. Returns false with a
 * line on standard error if the core refused or a measured commit did not supersede one segment. */
bool supersede_measure(struct supersede_figures *f, uint32_t sessions);

void supersede_show(const struct supersede_figures *f, const struct bench_args *args, json_t *o);
bool supersede_limit(const struct supersede_figures *f);

#endif
