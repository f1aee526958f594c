/* What the units of a source's pages send and where it comes to lie, counted row by row of a plan
 * and its map: the reference for what reshard/units.h finds from the layout alone. */
#ifndef ORACLE_UNITS_COUNTED_H
#define ORACLE_UNITS_COUNTED_H

#include "reshard/units.h"

struct counted_unit {
    struct reshard_unit at;
    uint32_t unit;               /* of its page */
    uint64_t moved;              /* bytes of it that its rank sends */
    uint64_t there;              /* bytes of it that the destination gets */
    uint64_t to_ranks, to_pages; /* where they lie there, a bit each */
};

struct units_counted {
    const struct reshard_pair *pair;
    const struct reshard_plan *plan, *map; /* of the same span */
};

/* All units of the span: ret[(page * all ranks + rank) * units + unit]. Returns how many. */
uint32_t units_count(const struct units_counted *of, struct counted_unit *ret);

#endif
