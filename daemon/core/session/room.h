/* Making room in a pool by evicting. */
#ifndef CORE_ROOM_H
#define CORE_ROOM_H

#include "core/busy.h"
#include "core/tree/obtain.h"

/* The reason why a request that needs pages is QUOTA, or BUSY. */
struct reason room_never(const struct shortage *s);
const char *room_busy(const struct shortage *s);

/* Makes `need[g]` pages of each group free, by evicting. QUOTA, POOL_EXHAUSTED: as pages_admit;
 * nothing was evicted (T11). BUSY: the rest exceeds one step, or the next evictions are first
 * copied to the host, or are being written to the disk; what was evicted stays evicted, and a
 * repetition continues, at once if ret->goes_on. */
enum tern_err pages_make_room(struct core *c, struct engine *e, struct pool *p, struct page_need n,
                              struct shortage *ret);
/* The same for callers that cannot repeat: evicts without a copy. */
enum tern_err pages_make_room_now(struct core *c, struct pool *p, const uint32_t *need);
/* Refuses a request that needs pages: with `text` if POOL_EXHAUSTED. */
enum tern_err room_refused(struct reply *ret, enum tern_err err, const char *text);

#endif
