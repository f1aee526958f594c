/* Part of arena.h: checks that run only when their condition may have changed, not every event. */
#ifndef CORE_ARENA_LOOKS_H
#define CORE_ARENA_LOOKS_H

#include "core/arena/arena.h"

/* Entry i of the heap of tickets. */
static inline uint32_t *ticket_heap(const struct core *c, uint32_t i)
{
    ARENA_BOUND(i, c->limits.sessions);
    return (uint32_t *)((char *)(uintptr_t)c + (size_t)c->tickets_at * 64) + i;
}

/* The condition of a due ticket may be met now: check each of them once. */
static inline void ticket_looks(struct core *c)
{
    c->tickets_looks = c->tickets_due.n;
}

/* The passed step or the awaited steps have changed: waits_flush has to check. */
static inline void waits_look(struct core *c, struct engine *e)
{
    ticket_looks(c);
    if (e->nwaits == 0 && e->nfollowed == 0)
        return;
    e->waits_changed = c->waits_changed = 1;
    touch(c);
}

#endif
