/* Making room in a pool by evicting. */
#ifndef CORE_ROOM_H
#define CORE_ROOM_H

#include "core/arena/arena.h"

/* Makes `need[g]` pages of each group free, evicting; all or nothing but for what was evicted. */
enum tern_err pages_make_room(struct core *c, struct engine *e, struct pool *p,
                              const uint32_t *need, struct shortage *ret);

#endif
