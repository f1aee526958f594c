/* Order statistics over measured values. Used by tern-bench and tern-replay; every figure that they
 * print as a median or a percentile comes from here. */
#ifndef ENGINE_STATS_H
#define ENGINE_STATS_H

#include <stddef.h>
#include <stdint.h>

/* A bounded list of values; heap, of fixed capacity. Values beyond it are dropped evenly: see
 * series_add. */
struct series {
    double *v;
    size_t n, cap;
    uint64_t seen, stride; /* keeps every stride-th value once full */
};

void series_init(struct series *s, size_t cap);
void series_finish(struct series *s);
void series_clear(struct series *s);

/* A full list drops every second value and from then on takes only every second one: a long run
 * keeps an even sample in bounded memory. */
void series_add(struct series *s, double value);

/* q in [0, 1]; nearest rank. Sorts the list. 0 for an empty one. */
double series_quantile(struct series *s, double q);
double series_median(struct series *s);

uint64_t clock_ns(void); /* CLOCK_MONOTONIC */

#endif
