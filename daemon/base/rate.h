/* What came within the last second, from a clock that its owner gives: whole in the second that
 * runs, and of the one before it the part that is not older than a second, taken as spread evenly.
 * All zero: nothing came. */
#ifndef BASE_RATE_H
#define BASE_RATE_H

#include <stdint.h>

#define RATE_SPAN_NS UINT64_C(1000000000)

struct rate {
    uint64_t second;      /* number of the one that runs */
    uint64_t now, before; /* what came in it, and in the one before */
};

/* As of that time, which is not before the last one. */
static inline struct rate rate_at(struct rate r, uint64_t now_ns)
{
    uint64_t second = now_ns / RATE_SPAN_NS;

    if (second <= r.second)
        return r;
    return (struct rate){.second = second, .before = second == r.second + 1 ? r.now : 0};
}

static inline void rate_add(struct rate *r, uint64_t now_ns, uint64_t n)
{
    *r = rate_at(*r, now_ns);
    r->now += n;
}

/* How much came in the second that ends now. */
static inline uint64_t rate_of(struct rate r, uint64_t now_ns)
{
    uint64_t left_ns = RATE_SPAN_NS - now_ns % RATE_SPAN_NS;

    r = rate_at(r, now_ns);
    return r.now + (uint64_t)((double)r.before * ((double)left_ns / RATE_SPAN_NS));
}

#endif
