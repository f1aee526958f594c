/* Admission of pages to a pool, of whichever tier: the one place that decides whether room is made,
 * and that nothing is evicted where it can't be (T11). What is evicted, and in which order, is the
 * caller's: session/room.c for the device, tier/writeback.c for the host. */
#ifndef CORE_ADMIT_H
#define CORE_ADMIT_H

#include "core/arena/arena.h"
#include "core/request.h"

/* Frees something of `p`'s tree, since `group` lacks pages of need[]. BUSY: what goes next is
 * copied first, and nothing was freed. POOL_EXHAUSTED: there is nothing. */
typedef enum tern_err evictor(struct core *c, struct pool *p, const uint32_t *need, uint32_t group);

/* A request's pages of each group, and those that the asker has beside them (NULL: none). */
struct page_need {
    const uint32_t *need, *held;
};

/* Makes need[g] pages of each group free in `room`, which is `p` or a tier of it. QUOTA: together
 * with `held` they would not fit if there was nothing else, so they never do; ret->free is how many
 * would. POOL_EXHAUSTED: there is not so much to evict, and nothing was. Of both ret->group is a
 * group that lacks some, and ret->needed what it needs. BUSY: it would take more than one step may
 * do, or the evictor is; what was evicted stays so, and a repetition goes on: at once if
 * ret->goes_on. */
enum tern_err pages_admit(struct core *c, struct pool *p, const struct pool *room,
                          struct page_need n, evictor *evict, struct shortage *ret);

#endif
