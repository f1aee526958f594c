/* Durations in fixed buckets: adding takes a few instructions and no memory. Bucket i counts
 * durations of at most 2^i us and more than the bucket before it; the last counts the rest. */
#ifndef BASE_HISTOGRAM_H
#define BASE_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_BUCKETS 32u /* the last but one ends at 2^30 us, 18 minutes */

struct histogram {
    uint64_t n, sum_ns, bucket[HISTOGRAM_BUCKETS];
};

static inline uint64_t histogram_bound_us(uint32_t bucket)
{
    return 1ull << bucket;
}

static inline uint32_t histogram_bucket(uint64_t ns)
{
    const uint64_t us = ns / 1000 + (ns % 1000 != 0);
    const uint32_t bits = us <= 1 ? 0 : 64 - (uint32_t)__builtin_clzll(us - 1);

    return bits < HISTOGRAM_BUCKETS - 1 ? bits : HISTOGRAM_BUCKETS - 1;
}

static inline void histogram_add(struct histogram *h, uint64_t ns)
{
    h->n++;
    h->sum_ns += ns;
    h->bucket[histogram_bucket(ns)]++;
}

/* The bound that `of_thousand` per mille of the values do not exceed; 0: no values. */
static inline uint64_t histogram_quantile_us(const struct histogram *h, uint32_t of_thousand)
{
    uint64_t below = 0;

    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        below += h->bucket[i];
        if (below > 0 && below * 1000 >= h->n * of_thousand)
            return histogram_bound_us(i);
    }
    return 0;
}

#endif
