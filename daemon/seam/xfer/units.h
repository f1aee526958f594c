/* Which units of a page move (Y4): all of it, or those of a mask. Both ends go through them in this
 * order, in each region. */
#ifndef SEAM_XFER_UNITS_H
#define SEAM_XFER_UNITS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/core.h"

/* One region of a page of such a group. */
struct unit_walk {
    uint64_t page_bytes, mask; /* mask: of the units that move, where not all do */
    uint32_t units;
    bool whole;
};

static inline uint64_t unit_walk_bytes(const struct unit_walk *w)
{
    return w->whole ? w->page_bytes
                    : w->page_bytes / w->units * (uint32_t)__builtin_popcountll(w->mask);
}

/* Where byte `at` of what moves lies in the region, and how many follow. at: less than all. */
static inline uint64_t unit_walk_at(const struct unit_walk *w, uint64_t at, uint64_t *ret_bytes)
{
    uint64_t share = w->page_bytes / w->units, from;
    uint32_t k = 0, end;

    if (w->whole) {
        *ret_bytes = w->page_bytes - at;
        return at;
    }
    for (; !(w->mask >> k & 1) || at >= share; k++)
        at -= w->mask >> k & 1 ? share : 0;
    from = k * share + at;
    for (end = k; end < w->units && (w->mask >> end & 1);)
        end++;
    *ret_bytes = end * share - from;
    return from;
}

/* Stretches that lie apart. */
static inline uint32_t unit_walk_stretches(const struct unit_walk *w)
{
    return w->whole ? 1 : (uint32_t)__builtin_popcountll(w->mask & ~(w->mask << 1));
}

#endif
