/* Part of arena.h: what is looked at when something of it may have changed, not at every event. */
#ifndef CORE_ARENA_LOOKS_H
#define CORE_ARENA_LOOKS_H

#include "core/arena/arena.h"

/* The i-th of the heap. */
static inline uint32_t *ticket_heap(const struct core *c, uint32_t i)
{
    ARENA_BOUND(i, c->limits.sessions);
    return (uint32_t *)((char *)(uintptr_t)c + (size_t)c->tickets_at * 64) + i;
}

/* What a ticket waits for may have come: each that is due is looked at once, and not before. */
static inline void ticket_looks(struct core *c)
{
    c->tickets_looks = c->tickets_due.n;
}

/* What counts as passed, or what is waited for, is another: waits_flush looks. */
static inline void waits_look(struct core *c, struct engine *e)
{
    ticket_looks(c);
    if (e->nwaits == 0 && e->nfollowed == 0)
        return;
    e->waits_changed = c->waits_changed = 1;
    touch(c);
}

#endif
