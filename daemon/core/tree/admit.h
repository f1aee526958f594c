/* Admission of pages to a pool, of whichever tier: the one place that decides whether room is made,
 * and that nothing is evicted where it can't be (T11). What is evicted, and in which order, is the
 * caller's: session/room.c for the device, tier/writeback.c for the host. */
#ifndef CORE_ADMIT_H
#define CORE_ADMIT_H

#include "core/arena/arena.h"

/* Frees something of `p`'s tree, since `group` lacks pages of need[]. BUSY: what goes next is
 * copied first, and nothing was freed. POOL_EXHAUSTED: there is nothing. */
typedef enum tern_err evictor(struct core *c, struct pool *p, const uint32_t *need, uint32_t group);

/* Makes need[g] pages of each group free in `room`, which is `p` or a tier of it. POOL_EXHAUSTED:
 * there is not so much to evict, and nothing was; *ret_short is a group that lacks some. BUSY: it
 * would take more than one step may do, or the evictor is; what was evicted stays so, and a
 * repetition goes on. */
enum tern_err pages_admit(struct core *c, struct pool *p, const struct pool *room,
                          const uint32_t *need, evictor *evict, uint32_t *ret_short);

#endif
