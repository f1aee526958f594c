/* Order statistics over measured values: see stats.h. Called by every benchmark, on one thread. A
 * series never grows past its capacity, and a quantile is always a value that was measured. */
#include "engine/stats.h"

#include <stdlib.h>
#include <time.h>

#include "engine/proc.h"

void series_init(struct series *s, size_t cap)
{
    *s = (struct series){.v = mem_need(cap, sizeof *s->v), .cap = cap, .stride = 1};
}

void series_finish(struct series *s)
{
    free(s->v);
    s->v = NULL;
}

void series_clear(struct series *s)
{
    s->n = 0;
    s->seen = 0;
    s->stride = 1;
}

void series_add(struct series *s, double value)
{
    if (s->seen++ % s->stride)
        return;
    if (s->n == s->cap) {
        for (size_t i = 0; i < s->cap / 2; i++)
            s->v[i] = s->v[2 * i];
        s->n = s->cap / 2;
        s->stride *= 2;
        if ((s->seen - 1) % s->stride)
            return;
    }
    s->v[s->n++] = value;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double series_quantile(struct series *s, double q)
{
    size_t at;

    if (s->n == 0)
        return 0;
    qsort(s->v, s->n, sizeof *s->v, by_value);
    at = (size_t)(q * (double)s->n);
    return s->v[at < s->n ? at : s->n - 1];
}

double series_median(struct series *s)
{
    return series_quantile(s, 0.5);
}

uint64_t clock_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}
