/* Prepares a plan for the device: the widest usable vectors of each piece, and tiles of all
 * pieces. */
#include "kernels/kernels.h"

static uint32_t width_of(const struct strided *s, const struct kernels_end *from,
                         const struct kernels_end *to)
{
    uint64_t all = s->row_bytes | from->at | to->at | KERNELS_VECTOR;

    for (int k = 0; k < STRIDED_LOOPS_MAX; k++)
        if (s->loop[k].n > 1)
            all |= s->loop[k].from_stride | s->loop[k].to_stride;
    return (uint32_t)(all & -all);
}

enum kernels_refusal kernels_piece_make(const struct strided *s, const struct kernels_end *from,
                                        const struct kernels_end *to, struct kernels_piece *ret)
{
    uint32_t width = width_of(s, from, to);
    struct kernels_piece p = {.from_at = from->at,
                              .to_at = to->at,
                              .from_page = from->page,
                              .to_page = to->page,
                              .width = width};

    for (int k = 0; k < STRIDED_LOOPS_MAX; k++) {
        if (s->loop[k].n == 0 || s->loop[k].n > KERNELS_ROWS_MAX)
            return KERNELS_REFUSED_ROWS;
        p.from_stride[k] = s->loop[k].from_stride;
        p.to_stride[k] = s->loop[k].to_stride;
    }
    if (s->row_bytes == 0 || s->row_bytes / width > KERNELS_ROWS_MAX ||
        s->loop[0].n * s->loop[1].n > KERNELS_ROWS_MAX || strided_rows(s) > KERNELS_ROWS_MAX)
        return KERNELS_REFUSED_ROWS;
    p.outer = (uint32_t)s->loop[0].n;
    p.loops[0] = kernels_divide_by((uint32_t)s->loop[1].n);
    p.loops[1] = kernels_divide_by((uint32_t)s->loop[2].n);
    p.row_vectors = kernels_divide_by((uint32_t)(s->row_bytes / width));
    *ret = p;
    return KERNELS_REFUSED_NONE;
}

uint64_t kernels_tiles(const struct kernels_piece *pieces, uint32_t n, struct kernels_tile *ret,
                       uint64_t room)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < n; i++) {
        const struct kernels_piece *p = &pieces[i];
        uint64_t rows = (uint64_t)p->outer * p->loops[0].by * p->loops[1].by;
        uint64_t vectors = rows * p->row_vectors.by;

        for (uint64_t at = 0; at < vectors; at += KERNELS_TILE, count++)
            if (count < room)
                ret[count] = (struct kernels_tile){.piece = i,
                                                   .row = (uint32_t)(at / p->row_vectors.by),
                                                   .column = (uint32_t)(at % p->row_vectors.by),
                                                   .vectors = vectors - at < KERNELS_TILE
                                                                  ? (uint32_t)(vectors - at)
                                                                  : KERNELS_TILE};
    }
    return count;
}
