/* The bytes that the units of a source's pages send, and their places at the destination, counted
 * row by row of a plan and its map: the reference for reshard/units.h, which uses only the layout.
 */
#ifndef ORACLE_UNITS_COUNTED_H
#define ORACLE_UNITS_COUNTED_H

#include "reshard/units.h"

struct counted_unit {
    struct reshard_unit at;
    uint32_t unit;               /* number in its page */
    uint64_t moved;              /* bytes that its rank sends */
    uint64_t there;              /* bytes that the destination gets */
    uint64_t to_ranks, to_pages; /* their places there, one bit each */
};

struct units_counted {
    const struct reshard_pair *pair;
    const struct reshard_plan *plan, *map; /* of the same span */
};

/* Counts all units of the span: ret[(page * all ranks + rank) * units + unit]. Returns their
 * number. */
uint32_t units_count(const struct units_counted *of, struct counted_unit *ret);

#endif
