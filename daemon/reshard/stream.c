#include "reshard/stream.h"

struct reshard_cursor reshard_cursor_at(const struct reshard_plan *p, struct reshard_part part,
                                        uint64_t bytes)
{
    struct reshard_cursor c = {.piece = 0};

    for (; c.piece < p->n; c.piece++) {
        const struct reshard_piece *piece = &p->v[c.piece];
        uint64_t here = strided_bytes(&piece->shape);

        if (!piece_moves(piece, part))
            continue;
        if (bytes < here) {
            c.row = bytes / piece->shape.row_bytes;
            c.in_row = bytes % piece->shape.row_bytes;
            break;
        }
        bytes -= here;
    }
    return c;
}

bool reshard_cursor_next(const struct reshard_plan *p, struct reshard_part part,
                         struct reshard_cursor *io, struct reshard_run *ret)
{
    const struct reshard_piece *piece;

    while (io->piece < p->n && !piece_moves(&p->v[io->piece], part))
        io->piece++;
    if (io->piece == p->n)
        return false;
    piece = &p->v[io->piece];
    *ret = (struct reshard_run){.from = piece->from, .to = piece->to};
    ret->from.at += strided_from(&piece->shape, io->row) + io->in_row;
    ret->to.at += strided_to(&piece->shape, io->row) + io->in_row;
    ret->bytes = piece->shape.row_bytes - io->in_row;
    io->in_row = 0;
    if (++io->row == strided_rows(&piece->shape)) {
        io->row = 0;
        io->piece++;
    }
    return true;
}
