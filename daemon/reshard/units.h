/* Finds the checksums of the source by which a destination verifies the received bytes (X3, X7). A
 * unit is bytes of one page of one rank, in the order of that page, and its checksum covers all of
 * them. So a unit can be verified when all its bytes are at the destination, in any ranks and
 * pages, and even if another rank with the same data sent some of them: if the two ranks differ,
 * the unit does not agree.
 *
 * A destination receives every byte of every field of whole spans. So every unit that sends bytes
 * can be verified, unless it has bytes of fields and also bytes of no field, which never move:
 * UNIT_PADDED. The source's pool must declare units that end where its fields do; otherwise it is
 * refused when it is opened. Do not fetch from a refused pool: nothing is published unverified.
 *
 * The contents of a unit follow from the layout alone. The fields of a page do not overlap, and
 * each axis steps over all that the axes below it reach, so a field's bytes and the gaps between
 * them are boxes. A box with gaps smaller than a unit covers all units that it reaches into. */
#ifndef RESHARD_UNITS_H
#define RESHARD_UNITS_H

#include "reshard/plan.h"

#define UNIT_PADDED 0x80u /* of reshard_units: the unit has bytes of no field */

/* ret_held[unit of a rank's page]: bit k: the unit has bytes of a section that 2^k ranks share.
 * Refuses with UNIT_PADDED, or with VISITS if there are more separate runs of bytes than *io_runs,
 * which is reduced by the runs used: the cost. */
enum reshard_refusal reshard_units(const struct reshard_layout *l, uint32_t *io_runs,
                                   uint8_t *ret_held);

/* Returns true if the unit sends bytes at that page's turn (plan.h). */
static inline bool reshard_unit_moves(uint8_t held, uint64_t turn, uint32_t rank)
{
    bool moves = false;

    for (uint32_t k = 0; k < RESHARD_COPIES; k++)
        moves = moves || (held >> k & 1 && reshard_turn(turn, rank, k));
    return moves;
}

/* Some bytes of a source page, such as a unit. */
struct reshard_unit {
    uint32_t rank, page;  /* as in struct reshard_end */
    uint64_t from, bytes; /* place in the page */
};

/* Equal shares of a rank's page; the last has the rest. */
static inline uint64_t reshard_unit_from(const struct reshard_layout *l, uint32_t unit)
{
    return l->page_bytes / l->units * unit;
}
static inline uint64_t reshard_unit_end(const struct reshard_layout *l, uint32_t unit)
{
    return unit + 1 == l->units ? l->page_bytes : reshard_unit_from(l, unit + 1);
}

/* A run of a unit's bytes, and its place at the destination. */
struct reshard_unit_run {
    uint64_t in_unit, bytes;
    struct reshard_end to;
};

/* Calls `run` for each run of a unit, in the order of the map's pieces. */
void reshard_unit_runs(const struct reshard_plan *map, const struct reshard_unit *unit,
                       void (*run)(void *ctx, const struct reshard_unit_run *run), void *ctx);

#endif
