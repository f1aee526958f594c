/* The bytes of a plan as they travel where nobody packs them into slots: the rows of the pieces
 * that move, one behind the other, in the order of the plan. Both ends find each byte of that
 * stream by its number alone, so either may go on from any of them. Where a span lacks pages at the
 * source, what would move from them is left out. */
#ifndef RESHARD_STREAM_H
#define RESHARD_STREAM_H

#include <stdbool.h>

#include "reshard/plan.h"

/* The pages of a source's span that are there. Equally many bytes of each move. */
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

/* Behind the first `bytes` of the stream; all pages have reshard_plan_bytes(p, PIECE_MOVE). */
struct reshard_cursor reshard_cursor_at(const struct reshard_plan *p, struct reshard_part part,
                                        uint64_t bytes);
/* What is left of the row that the cursor is in, which it then leaves. False: there is no more. */
bool reshard_cursor_next(const struct reshard_plan *p, struct reshard_part part,
                         struct reshard_cursor *io, struct reshard_run *ret);

#endif
