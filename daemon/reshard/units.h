/* By which checksums of the source a destination verifies what it got (X3, X7). A unit is bytes of
 * one page of one rank, in the order of that page, and its checksum is of all of them. So it can be
 * verified when all of them are at the destination, in whatever ranks and pages they lie there, and
 * also where another rank has sent some of them that holds the same: if the two do not hold the
 * same the unit does not agree.
 *
 * A destination gets every byte of every field of whole spans. So every unit that sends something
 * can be verified, unless it holds fields beside bytes of no field, which never move: UNIT_PADDED.
 * The pool of the source has to declare units that end where its fields do; it is refused when it
 * is opened. What is refused must not be fetched: nothing is published unverified.
 *
 * What a unit holds follows from the layout alone. The fields of a page do not overlap, and each
 * axis steps over all that those below it reach, so a field's bytes and the gaps between them are
 * boxes. A box whose gaps are smaller than a unit covers all units that it reaches into. */
#ifndef RESHARD_UNITS_H
#define RESHARD_UNITS_H

#include "reshard/plan.h"

#define UNIT_PADDED 0x80u /* of reshard_units: it holds bytes of no field */

/* ret_held[unit of a rank's page]: bit k, it holds bytes of a section that 2^k ranks hold alike.
 * UNIT_PADDED, or VISITS where more runs of bytes lie apart than *io_runs, which are counted off:
 * what it costs. */
enum reshard_refusal reshard_units(const struct reshard_layout *l, uint32_t *io_runs,
                                   uint8_t *ret_held);

/* Whether the unit sends something where it is that page's turn (plan.h). */
static inline bool reshard_unit_moves(uint8_t held, uint64_t turn, uint32_t rank)
{
    bool moves = false;

    for (uint32_t k = 0; k < RESHARD_COPIES; k++)
        moves = moves || (held >> k & 1 && reshard_turn(turn, rank, k));
    return moves;
}

/* Some bytes of a page of the source, such as a unit. */
struct reshard_unit {
    uint32_t rank, page;  /* as in struct reshard_end */
    uint64_t from, bytes; /* where in the page it lies */
};

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
