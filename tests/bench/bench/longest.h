/* The longest step of the core while a pool that is full of prefixes is evicted (T20). Part of
 * `tern-bench index`. */
#ifndef BENCH_LONGEST_H
#define BENCH_LONGEST_H

#include <stdint.h>

#include "bench.h"

struct longest_figures {
    double step_ms, all_ms; /* the longest step, and all of them together */
    uint32_t nodes, steps;
};

/* Fills a pool with that many prefixes of a page each, and evicts all. Returns false if refused. */
bool longest_measure(struct longest_figures *f, uint32_t nodes);
void longest_show(const struct longest_figures *f, const struct bench_args *args, json_t *o);

#endif
