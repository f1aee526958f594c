/* Counts what happened to prompts and pages (core/figures.h). */
#ifndef CORE_COUNT_H
#define CORE_COUNT_H

#include "core/arena/arena.h"

/* Adds to the figures of a namespace, of its pool and of its tenant. */
static inline void count(struct core *c, uint32_t space, enum figure f, uint64_t n)
{
    struct space *s = space_at(c, space);
    struct pool *p = pool_at(c, s->pool);

    s->figures.v[f] += n;
    p->figures.v[f] += n;
    tenant_at(c, p->tenant)->figures.v[f] += n;
}

static inline void count_time(struct core *c, enum latency l, uint64_t ns)
{
    histogram_add(&c->latency[l], ns);
}

static inline void count_since(struct core *c, enum latency l, uint64_t since_ns)
{
    count_time(c, l, c->now_ns - since_ns);
}

#endif
