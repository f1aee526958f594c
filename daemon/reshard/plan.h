/* From two layouts to the pieces of pages that have to move: a pure function, so both ends of a
 * transfer find the same plan in the same order, and a later device kernel and the CPU carry out
 * the same one.
 *
 * A plan is for a span: as many tokens as the larger of the two pages has, or one state. It names
 * pages by their place in the span, so it holds for every span of a transfer; nothing is
 * assumed of where pages lie. Every byte of a field of each destination page is
 * written exactly once. What several ranks of the source hold moves from one of them, and what
 * several ranks of the destination hold moves to one of them and is copied to the others there
 * (X5). Which ones that are goes round with the pages and the spans, so that over a transfer all
 * take part; a page takes all that is replicated from one of them, so that whole units move.
 */
#ifndef RESHARD_PLAN_H
#define RESHARD_PLAN_H

#include "kernels/strided.h"
#include "reshard/holds.h"

/* MOVE: from a page of the source to one of the destination. SPREAD: from a rank's page to the same
 * page of another rank, both of the destination; it reads what moved, and so comes after the bytes
 * were verified. */
enum reshard_piece_kind { PIECE_MOVE, PIECE_SPREAD };

struct reshard_end {
    uint32_t rank; /* of the pool: stage * ranks + rank of the stage */
    uint32_t page; /* of the span */
    uint64_t at;   /* where in the page the first row begins */
};

struct reshard_piece {
    enum reshard_piece_kind kind;
    struct reshard_end from, to;
    struct strided shape;
};

/* In the order of the destination's pages: of each first what moves, then what is spread. So the
 * pieces of a page are a run of the list, which can be carried out without the others. */
struct reshard_plan {
    struct reshard_piece *v; /* the caller's; NULL with room 0: only to be counted */
    uint32_t room;
    uint32_t n; /* how many there are, also if there is no room for them: ROOM */
};

#define RESHARD_SECTIONS_ALL (RESHARD_FIELDS_MAX * RESHARD_SECTIONS_MAX) /* of a page */
#define RESHARD_COPIES       4 /* ranks that hold the same: 1, 2, 4 or 8 */

/* What all plans of a pair share. A set of sections has a bit for each, by its number here. */
struct reshard_ready {
    struct reshard_pair pair;
    uint64_t steps; /* that are left to the plans; 0: they are too many */
    uint32_t n;     /* sections of the destination, in the order of its fields */
    struct held_section from[RESHARD_SECTIONS_ALL], to[RESHARD_SECTIONS_ALL];
    uint64_t from_copies[RESHARD_COPIES], to_copies[RESHARD_COPIES]; /* that 2^k ranks hold */
    uint64_t move[RESHARD_RANKS_MAX][RESHARD_RANKS_MAX]; /* to, from: that both have parts of */
    uint64_t spread[RESHARD_RANKS_MAX][RESHARD_RANKS_MAX];
};

/* steps: what all plans and maps that are made of it may cost together, one for each two pages that
 * are looked at and more for a piece. The other refusals are those of reshard_check. */
enum reshard_refusal reshard_prepare(const struct reshard_pair *pair, uint64_t steps,
                                     struct reshard_ready *ret);

/* span: its number in the transfer. VISITS: no steps are left. */
enum reshard_refusal reshard_plan_ready(struct reshard_ready *ready, uint64_t span,
                                        struct reshard_plan *io);

/* Where each byte of the source comes to lie at the destination, whichever rank sent it: like the
 * pieces that move, but from every rank that holds what they move. For checks of what came
 * (units.h). They are in the order of the source's pages: those of rank r of page p are
 * [ret_starts[k], ret_starts[k + 1]), where k is p * all ranks + r. */
enum reshard_refusal reshard_map_ready(struct reshard_ready *ready, uint64_t span,
                                       struct reshard_plan *io, uint32_t *ret_starts);

/* Is it this rank's turn, of the 2^k that hold the same? turn: the number of the page. */
static inline bool reshard_turn(uint64_t turn, uint32_t rank, uint32_t k)
{
    return ((turn ^ rank) & ((1u << k) - 1)) == 0;
}

/* Plans and maps repeat after so many spans: a power of two, RESHARD_RANKS_MAX at most. */
uint32_t reshard_variants(const struct reshard_pair *pair);

/* Bytes of a span that move, and those that are copied at the destination. */
uint64_t reshard_plan_bytes(const struct reshard_plan *p, enum reshard_piece_kind kind);

/* A piece as few rows: what lies next to each other at both ends becomes one row, loops that step
 * alike at both ends become one loop, and pieces that adjoin at both ends become one piece. */
/* The box of elements that a piece moves: one loop for each axis, in any order. */
struct box {
    uint64_t row_bytes; /* an element, then what adjoins it */
    uint32_t nloops;
    struct strided_loop loop[AXIS_KINDS];
};

/* Joins loops where it can, and orders them by stride at the destination, outermost first. */
void box_join(struct box *b);

/* A part of the box that is a piece: box_parts says how many there are, box_part where part i
 * begins. There is more than one only if more loops were left than a shape has. */
uint64_t box_parts(const struct box *b);
struct strided box_part(const struct box *b, uint64_t i, uint64_t *ret_from, uint64_t *ret_to);

/* `next` comes to be part of `p`, if their rows adjoin at both ends. */
bool piece_join(struct reshard_piece *p, const struct reshard_piece *next);

#endif
