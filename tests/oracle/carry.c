#include "oracle/carry.h"

#include <stddef.h>

static uint8_t *place_of(const struct reshard_pages *pages, const struct reshard_end *end)
{
    return pages->page[end->page * pages->ranks + end->rank] + end->at;
}

static void carry_piece(const struct reshard_piece *piece, const struct reshard_memory *m)
{
    const struct reshard_pages *from = piece->kind == PIECE_SPREAD ? &m->to : &m->from;

    strided_copy(place_of(&m->to, &piece->to), place_of(from, &piece->from), &piece->shape);
}

void reshard_carry(const struct reshard_plan *p, const struct reshard_memory *m)
{
    for (uint32_t i = 0; i < p->n; i++)
        carry_piece(&p->v[i], m);
}

bool reshard_parcel_next(const struct reshard_plan *p, const struct reshard_staging *s,
                         struct reshard_parcel *io)
{
    struct reshard_parcel parcel = {.first = io->end, .end = io->end};

    while (parcel.end.piece < p->n) {
        const struct reshard_piece *piece = &p->v[parcel.end.piece];
        uint64_t left = strided_rows(&piece->shape) - parcel.end.row;
        uint64_t fit = (s->slot_bytes - parcel.bytes) / piece->shape.row_bytes;

        if (piece_is_staged(s, piece)) {
            parcel.bytes += (fit < left ? fit : left) * piece->shape.row_bytes;
            if (fit < left) {
                parcel.end.row += fit;
                break;
            }
        }
        parcel.end.piece++;
        parcel.end.row = 0;
    }
    *io = parcel;
    return parcel.bytes > 0;
}

/* Returns the rows of piece i that belong to the parcel. */
static struct strided_rows parcel_rows(const struct reshard_plan *p,
                                       const struct reshard_parcel *parcel, uint32_t i)
{
    uint64_t first = i == parcel->first.piece ? parcel->first.row : 0;
    uint64_t end = i == parcel->end.piece ? parcel->end.row : strided_rows(&p->v[i].shape);

    return (struct strided_rows){.first = first, .n = end - first};
}

/* Returns the parcel's first staged piece from number *io_i on; NULL: none. */
static const struct reshard_piece *parcel_piece(const struct reshard_plan *p,
                                                const struct reshard_staging *s,
                                                const struct reshard_parcel *parcel, uint32_t *io_i)
{
    for (; *io_i < p->n && *io_i <= parcel->end.piece; ++*io_i)
        if (piece_is_staged(s, &p->v[*io_i]))
            return &p->v[*io_i];
    return NULL;
}

void reshard_pack(const struct reshard_plan *p, const struct reshard_staging *s,
                  const struct reshard_parcel *parcel, const struct reshard_pages *from,
                  uint8_t *slot)
{
    uint32_t i = parcel->first.piece;
    const struct reshard_piece *piece;

    for (; (piece = parcel_piece(p, s, parcel, &i)); i++) {
        struct strided_rows rows = parcel_rows(p, parcel, i);

        strided_pack(slot, place_of(from, &piece->from), &piece->shape, rows);
        slot += rows.n * piece->shape.row_bytes;
    }
}

void reshard_unpack(const struct reshard_plan *p, const struct reshard_staging *s,
                    const struct reshard_parcel *parcel, const struct reshard_pages *to,
                    const uint8_t *slot)
{
    uint32_t i = parcel->first.piece;
    const struct reshard_piece *piece;

    for (; (piece = parcel_piece(p, s, parcel, &i)); i++) {
        struct strided_rows rows = parcel_rows(p, parcel, i);

        strided_unpack(place_of(to, &piece->to), slot, &piece->shape, rows);
        slot += rows.n * piece->shape.row_bytes;
    }
}

void reshard_carry_staged(const struct reshard_plan *p, const struct reshard_staging *s,
                          const struct reshard_memory *m, uint8_t *slot)
{
    struct reshard_parcel parcel = {.bytes = 0};

    while (reshard_parcel_next(p, s, &parcel)) {
        reshard_pack(p, s, &parcel, &m->from, slot);
        reshard_unpack(p, s, &parcel, &m->to, slot);
    }
    for (uint32_t i = 0; i < p->n; i++)
        if (p->v[i].kind == PIECE_MOVE && !piece_is_staged(s, &p->v[i]))
            carry_piece(&p->v[i], m);
    for (uint32_t i = 0; i < p->n; i++)
        if (p->v[i].kind == PIECE_SPREAD)
            carry_piece(&p->v[i], m);
}
