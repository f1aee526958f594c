/* Admission of pages to a pool of either tier: the only place that decides whether room is made.
 * Invariant: nothing is evicted where enough room cannot be made (T11). The caller chooses what is
 * evicted, and in which order: session/room.c for the device, tier/writeback.c for the host. */
#ifndef CORE_ADMIT_H
#define CORE_ADMIT_H

#include "core/arena/arena.h"
#include "core/request.h"

/* Evicts from `p`'s tree because `group` lacks pages of need[]. BUSY: the next victim is copied
 * first, and nothing was freed. POOL_EXHAUSTED: there is nothing to evict. */
typedef enum tern_err evictor(struct core *c, struct pool *p, const uint32_t *need, uint32_t group);

/* Pages of each group: those requested, and those that the requester already has (NULL: none). */
struct page_need {
    const uint32_t *need, *held;
};

/* Makes need[g] pages of each group free in `room`, which is `p` or a tier of it. ret->group is a
 * group that lacks pages and ret->needed its need. QUOTA: `need` and `held` together would not fit
 * even if the pool were empty; ret->free is the number of pages that would. POOL_EXHAUSTED: too
 * little can be evicted, and nothing was. BUSY: it would take more than one step may do, or the
 * evictor returned BUSY; evicted pages stay evicted, and a repetition continues: at once if
 * ret->goes_on. */
enum tern_err pages_admit(struct core *c, struct pool *p, const struct pool *room,
                          struct page_need n, evictor *evict, struct shortage *ret);

#endif
