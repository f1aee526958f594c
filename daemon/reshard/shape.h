/* A piece as few rows: what lies next to each other at both ends becomes one row, loops that step
 * alike at both ends become one loop, and pieces that adjoin at both ends become one piece. */
#ifndef RESHARD_SHAPE_H
#define RESHARD_SHAPE_H

#include "reshard/plan.h"

/* The box of elements that a piece moves: one loop for each axis, in any order. */
struct box {
    uint64_t row_bytes; /* an element, then what adjoins it */
    uint32_t nloops;
    struct strided_loop loop[AXIS_KINDS];
};

/* Joins what can be. What is left has its loops by their stride at the destination, outermost
 * first. */
void box_join(struct box *b);

/* A part of the box that is a piece: box_parts says how many there are, box_part where part i
 * begins. There is more than one only if more loops were left than a shape has. */
uint64_t box_parts(const struct box *b);
struct strided box_part(const struct box *b, uint64_t i, uint64_t *ret_from, uint64_t *ret_to);

/* `next` comes to be part of `p`, if their rows adjoin at both ends. */
bool piece_join(struct reshard_piece *p, const struct reshard_piece *next);

#endif
