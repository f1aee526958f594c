/* Delays that transfers cause each other: fetches of 1 MiB every 20 ms, alone and beside a flood of
 * another tenant's fetches, or of their own tenant's prefetches; and a transfer over several
 * connections beside one over one. Part of `tern-bench transfer`. */
#ifndef BENCH_FAIR_H
#define BENCH_FAIR_H

#include "bench.h"

#define PATHS_ROWS 2

/* Milliseconds; the ratio is the median over neighbouring turns. */
struct fair {
    double alone_p50_ms, alone_p99_ms, beside_p50_ms, beside_p99_ms, ratio;
    double flood_gb_s;
};

struct fair_figures {
    struct fair tenants; /* beside another tenant's fetches */
    struct fair urgent;  /* beside prefetches of the same tenant */
};

/* Returns false if it could not be measured. *ret_wrong: bytes that arrived wrong. */
bool fair_measure(const struct bench_args *args, struct fair_figures *ret, uint64_t *ret_wrong);

#endif
