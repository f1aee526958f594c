/* By which checksums of the source a destination verifies what it got (X3, X7). A unit is bytes of
 * one page of one rank, in the order of that page, and its checksum is of all of them. So it can be
 * verified when all of them are at the destination, in whatever ranks and pages they lie there, and
 * also where another rank has sent some of them that holds the same: if the two do not hold the
 * same the unit does not agree.
 *
 * Of whole spans, which is what is fetched, every unit that sends something can be verified, but
 * for this: UNIT_PADDED  A unit holds fields beside bytes of no field, which never move. The pool
 * of the source has to declare units that end where its fields do; it is refused when it is opened.
 * What is refused must not be fetched: nothing is published unverified. */
#ifndef RESHARD_UNITS_H
#define RESHARD_UNITS_H

#include "reshard/plan.h"

struct reshard_unit {
    uint32_t rank, page;  /* of the source, as in struct reshard_end */
    uint32_t unit;        /* of that page */
    uint64_t from, bytes; /* where in the page it lies */
    uint64_t moved;       /* bytes of it that its rank sends. 0: there is nothing to verify */
    uint64_t there;       /* bytes of it that the destination gets */
    uint64_t to_ranks, to_pages; /* where they lie there, a bit each: one of each, or they wait for
                                    each other */
};

struct reshard_units {
    struct reshard_unit *v; /* the caller's; NULL with room 0: only to be counted */
    uint32_t room;
    uint32_t n; /* of all pages of all ranks: v[(page * all ranks + rank) * units + unit] */
};

/* A plan of layouts whose source is this one, and the map of the same pair and span. */
struct reshard_way {
    const struct reshard_pair *pair;
    const struct reshard_plan *plan, *map;
};

/* All units of the source. ROOM, UNIT_PADDED: *ret_bad (may be NULL) is the unit that is refused.
 */
enum reshard_refusal reshard_units(const struct reshard_way *way, struct reshard_units *io,
                                   uint32_t *ret_bad);
/* Equal shares of a rank's page; what is left over goes to the last. */
static inline uint64_t reshard_unit_from(const struct reshard_layout *l, uint32_t unit)
{
    return l->page_bytes / l->units * unit;
}
static inline uint64_t reshard_unit_end(const struct reshard_layout *l, uint32_t unit)
{
    return unit + 1 == l->units ? l->page_bytes : reshard_unit_from(l, unit + 1);
}

/* A run of a unit's bytes, and where at the destination they lie. */
struct reshard_unit_run {
    uint64_t in_unit, bytes;
    struct reshard_end to;
};

/* Calls `run` for each run of a unit, in the order of the map's pieces. */
void reshard_unit_runs(const struct reshard_plan *map, const struct reshard_unit *unit,
                       void (*run)(void *ctx, const struct reshard_unit_run *run), void *ctx);

#endif
