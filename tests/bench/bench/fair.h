/* Who waits for whom when transfers meet: fetches of 1 MiB that come every 20 ms, alone and beside
 * a flood of another tenant's fetches, or of prefetches of their own tenant; and a transfer over
 * several connections beside one. Part of `tern-bench transfer`. */
#ifndef BENCH_FAIR_H
#define BENCH_FAIR_H

#include "bench.h"

#define PATHS_ROWS 2

/* Milliseconds; the ratio is the median of those of neighbouring turns. */
struct fair {
    double alone_p50_ms, alone_p99_ms, beside_p50_ms, beside_p99_ms, ratio;
    double flood_gb_s;
};

struct fair_figures {
    struct fair tenants; /* beside another tenant's fetches */
    struct fair urgent;  /* beside prefetches of the same tenant */
};

/* False: it could not be measured. *ret_wrong: bytes that were not as they must be. */
bool fair_measure(const struct bench_args *args, struct fair_figures *ret, uint64_t *ret_wrong);

#endif
