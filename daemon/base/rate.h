/* A measured rate, and an enforced pace.
 *
 * struct rate: the amount within the last second, by a clock that the caller passes. It is all of
 * the current second, and the part of the second before it that is not older than a second, as if
 * that second's amount were spread evenly. All zero: none. */
#ifndef BASE_RATE_H
#define BASE_RATE_H

#include <stdbool.h>
#include <stdint.h>

#define RATE_SPAN_NS UINT64_C(1000000000)

struct rate {
    uint64_t second;      /* number of the current second */
    uint64_t now, before; /* amount in it, and in the one before */
};

/* The rate at now_ns, which is not before the last call's. */
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

/* The amount in the second that ends now. */
static inline uint64_t rate_of(struct rate r, uint64_t now_ns)
{
    uint64_t left_ns = RATE_SPAN_NS - now_ns % RATE_SPAN_NS;

    r = rate_at(r, now_ns);
    return r.now + (uint64_t)((double)r.before * ((double)left_ns / RATE_SPAN_NS));
}

/* Time up to `paid_ns` is spent. Returns true if that is at most `ahead_ns` in the future. */
static inline bool pace_kept(uint64_t paid_ns, uint64_t now_ns, uint64_t ahead_ns)
{
    return paid_ns <= now_ns + ahead_ns;
}

static inline void pace_spend(uint64_t *paid_ns, uint64_t now_ns, uint64_t cost_ns)
{
    *paid_ns = (*paid_ns > now_ns ? *paid_ns : now_ns) + cost_ns;
}

#endif
