/* Making room in a pool by evicting. */
#ifndef CORE_ROOM_H
#define CORE_ROOM_H

#include "core/arena/arena.h"

/* Why an operation that needs pages is BUSY. */
#define MAKING_ROOM                                                                                \
    "more has to be evicted, copied to the host or given back first than one step does: repeat "   \
    "in a moment, it goes on"

/* Makes `need[g]` pages of each group free, evicting. POOL_EXHAUSTED: there is not so much to
 * evict, and nothing was (T11). BUSY: it would take more than one step may do, or what goes next is
 * copied to the host first, or is being written to the disk; what was evicted stays so, and a
 * repetition goes on. */
enum tern_err pages_make_room(struct core *c, struct engine *e, struct pool *p,
                              const uint32_t *need, struct shortage *ret);
/* The same for who cannot repeat: nothing is copied first. */
enum tern_err pages_make_room_now(struct core *c, struct pool *p, const uint32_t *need);

#endif
