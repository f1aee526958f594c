/* Computes the pieces of pages to move, from two layouts: a pure function, so both ends of a
 * transfer get the same plan in the same order, and a later device kernel and the CPU execute the
 * same plan.
 *
 * A plan is for a span: as many tokens as the larger of the two pages has, or one state. It names
 * pages by their place in the span, so it applies to every span of a transfer; it assumes nothing
 * about the addresses of pages. Every byte of a field of each destination page is written exactly
 * once. Data that several source ranks have moves from one of them, and data for several
 * destination ranks moves to one of them and is copied to the others there (X5). The choice rotates
 * with the pages and the spans, so that over a transfer all ranks take part; a page takes all its
 * replicated data from one rank, so that whole units move. */
#ifndef RESHARD_PLAN_H
#define RESHARD_PLAN_H

#include "kernels/strided.h"
#include "reshard/holds.h"

/* MOVE: from a page of the source to one of the destination. SPREAD: from a rank's page to the same
 * page of another rank, both of the destination; it reads moved bytes, and so follows their
 * verification. */
enum reshard_piece_kind { PIECE_MOVE, PIECE_SPREAD };

struct reshard_end {
    uint32_t rank; /* of the pool: stage * ranks + rank of the stage */
    uint32_t page; /* of the span */
    uint64_t at;   /* offset of the first row in the page */
};

struct reshard_piece {
    enum reshard_piece_kind kind;
    struct reshard_end from, to;
    struct strided shape;
};

/* In the order of the destination's pages: first the moves of each page, then its spreads. So the
 * pieces of a page are a run of the list, which can be executed without the others. */
struct reshard_plan {
    struct reshard_piece *v; /* owned by the caller; NULL with room 0: to count only */
    uint32_t room;
    uint32_t n; /* number of pieces, even if there is no room for them (ROOM) */
};

#define RESHARD_SECTIONS_ALL (RESHARD_FIELDS_MAX * RESHARD_SECTIONS_MAX) /* of a page */
#define RESHARD_COPIES       4 /* ranks with the same data: 1, 2, 4 or 8 */

/* Shared by all plans of a pair. A set of sections has a bit for each, by its number here. */
struct reshard_ready {
    struct reshard_pair pair;
    uint64_t steps; /* left for the plans; 0: they need too many */
    uint32_t n;     /* sections of the destination, in the order of its fields */
    struct held_section from[RESHARD_SECTIONS_ALL], to[RESHARD_SECTIONS_ALL];
    uint64_t from_copies[RESHARD_COPIES], to_copies[RESHARD_COPIES]; /* sections on 2^k ranks */
    uint64_t move[RESHARD_RANKS_MAX][RESHARD_RANKS_MAX]; /* [to][from]: sections in part on both */
    uint64_t spread[RESHARD_RANKS_MAX][RESHARD_RANKS_MAX];
};

/* steps: the limit on the cost of all plans and maps from `ret`: one for each two pages that are
 * compared, and more for a piece. The other refusals are those of reshard_check. */
enum reshard_refusal reshard_prepare(const struct reshard_pair *pair, uint64_t steps,
                                     struct reshard_ready *ret);

/* span: its number in the transfer. VISITS: no steps are left. */
enum reshard_refusal reshard_plan_ready(struct reshard_ready *ready, uint64_t span,
                                        struct reshard_plan *io);

/* Finds the destination of each byte of the source, whichever rank sent it. The pieces are like the
 * MOVE pieces, but from every rank that has the data. For checks of arrived bytes (units.h). In the
 * order of the source's pages: the pieces of rank r of page p are [ret_starts[k], ret_starts[k +
 * 1]), where k is p * all ranks + r. */
enum reshard_refusal reshard_map_ready(struct reshard_ready *ready, uint64_t span,
                                       struct reshard_plan *io, uint32_t *ret_starts);

/* Returns true if it is the rank's turn among the 2^k ranks with the same data. turn: number of the
 * page. */
static inline bool reshard_turn(uint64_t turn, uint32_t rank, uint32_t k)
{
    return ((turn ^ rank) & ((1u << k) - 1)) == 0;
}

/* Returns after how many spans plans and maps repeat: a power of two, at most RESHARD_RANKS_MAX. */
uint32_t reshard_variants(const struct reshard_pair *pair);

/* Returns the bytes of a span that move, or those that are copied at the destination. */
uint64_t reshard_plan_bytes(const struct reshard_plan *p, enum reshard_piece_kind kind);

/* Makes pieces of few rows: bytes that adjoin at both ends become one row, loops that step alike at
 * both ends become one loop, and pieces that adjoin at both ends become one piece. */
/* The box of elements that a piece moves: one loop for each axis, in any order. */
struct box {
    uint64_t row_bytes; /* an element, then the bytes that adjoin it */
    uint32_t nloops;
    struct strided_loop loop[AXIS_KINDS];
};

/* Joins loops where possible, and orders them by stride at the destination, outermost first. */
void box_join(struct box *b);

/* The pieces of a box: box_parts returns how many, box_part where part i begins. There is more than
 * one only if more loops are left than a shape has. */
uint64_t box_parts(const struct box *b);
struct strided box_part(const struct box *b, uint64_t i, uint64_t *ret_from, uint64_t *ret_to);

/* Adds `next` to `p` and returns true, if their rows adjoin at both ends. */
bool piece_join(struct reshard_piece *p, const struct reshard_piece *next);

#endif
