/* Making room in a pool by evicting. */
#ifndef CORE_ROOM_H
#define CORE_ROOM_H

#include "core/busy.h"
#include "core/tree/admit.h"

/* Why one that needs pages is QUOTA, with the numbers of the shortage. */
#define NEVER_FITS                                                                                 \
    "it never fits: # pages of a group would be needed at once, and there would be # if nobody "   \
    "else had any: ask for less, or open a larger pool (with a larger cap_pages or host_bytes)"

/* Makes `need[g]` pages of each group free, evicting. QUOTA, POOL_EXHAUSTED: as pages_admit, and
 * nothing was evicted (T11). BUSY: it would take more than one step may do, or what goes next is
 * copied to the host first, or is being written to the disk; what was evicted stays so, and a
 * repetition goes on. */
enum tern_err pages_make_room(struct core *c, struct engine *e, struct pool *p, struct page_need n,
                              struct shortage *ret);
/* Why a request that needs pages is refused: what is said otherwise than that it never fits. */
enum tern_err room_refused(struct reply *ret, enum tern_err err, const char *text);
/* The same for who cannot repeat: nothing is copied first. */
enum tern_err pages_make_room_now(struct core *c, struct pool *p, const uint32_t *need);

#endif
