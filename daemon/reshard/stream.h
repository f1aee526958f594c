/* The bytes of a plan on the wire, if they are not packed into slots: the rows of the MOVE pieces,
 * one after the other, in the order of the plan. Both ends find each byte of that stream by its
 * number alone, so either may resume at any byte. If a span lacks pages at the source, their moves
 * are left out. */
#ifndef RESHARD_STREAM_H
#define RESHARD_STREAM_H

#include <stdbool.h>

#include "reshard/plan.h"

/* The existing pages of a source's span. The same number of bytes of each moves. */
struct reshard_part {
    uint32_t first, n;
};

static inline bool piece_moves(const struct reshard_piece *p, struct reshard_part part)
{
    return p->kind == PIECE_MOVE && p->from.page - part.first < part.n;
}

/* A place in the stream: in a row of a piece. */
struct reshard_cursor {
    uint32_t piece;
    uint64_t row, in_row;
};

/* Bytes that follow each other in the stream, in the source's page and in the destination's. */
struct reshard_run {
    struct reshard_end from, to;
    uint64_t bytes;
};

/* The place after `bytes` of the stream; all pages have reshard_plan_bytes(p, PIECE_MOVE). */
struct reshard_cursor reshard_cursor_at(const struct reshard_plan *p, struct reshard_part part,
                                        uint64_t bytes);
/* Returns the rest of the cursor's row, and moves past it. Returns false if there is no more. */
bool reshard_cursor_next(const struct reshard_plan *p, struct reshard_part part,
                         struct reshard_cursor *io, struct reshard_run *ret);

#endif
