/* Making room in a pool by evicting. */
#ifndef CORE_ROOM_H
#define CORE_ROOM_H

#include "core/busy.h"
#include "core/tree/admit.h"

/* Why one that needs pages is QUOTA, and why BUSY. */
struct reason room_never(const struct shortage *s);
const char *room_busy(const struct shortage *s);

/* Makes `need[g]` pages of each group free, evicting. QUOTA, POOL_EXHAUSTED: as pages_admit, and
 * nothing was evicted (T11). BUSY: it would take more than one step may do, or what goes next is
 * copied to the host first, or is being written to the disk; what was evicted stays so, and a
 * repetition goes on, at once if ret->goes_on. */
enum tern_err pages_make_room(struct core *c, struct engine *e, struct pool *p, struct page_need n,
                              struct shortage *ret);
/* The same for who cannot repeat: nothing is copied first. */
enum tern_err pages_make_room_now(struct core *c, struct pool *p, const uint32_t *need);
/* Refuses a request that needs pages: with `text` where it is POOL_EXHAUSTED. */
enum tern_err room_refused(struct reply *ret, enum tern_err err, const char *text);

#endif
