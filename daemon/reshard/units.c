#include "reshard/units.h"

#include <stddef.h>

#include "reshard/shares.h"

/* What [at, at + bytes) has of the unit. */
static uint64_t bytes_within(const struct reshard_unit *u, uint64_t at, uint64_t bytes)
{
    uint64_t first = at > u->from ? at : u->from, unit_end = u->from + u->bytes;
    uint64_t last = at + bytes < unit_end ? at + bytes : unit_end;

    return last > first ? last - first : 0;
}

static void units_begin(const struct reshard_layout *l, uint32_t pages, struct reshard_units *io)
{
    uint32_t ranks = l->ranks * l->stages, n = 0;

    for (uint32_t page = 0; page < pages; page++)
        for (uint32_t rank = 0; rank < ranks; rank++)
            for (uint32_t unit = 0; unit < l->units; unit++) {
                uint64_t from = reshard_unit_from(l, unit);

                io->v[n++] = (struct reshard_unit){.rank = rank,
                                                   .page = page,
                                                   .unit = unit,
                                                   .from = from,
                                                   .bytes = reshard_unit_end(l, unit) - from};
            }
}

/* A row that the units of a page have. */
static void units_row(const struct reshard_layout *l, const struct reshard_piece *piece,
                      uint64_t row, bool is_map, struct reshard_unit *page_units)
{
    uint64_t at = piece->from.at + strided_from(&piece->shape, row);
    uint64_t end = at + piece->shape.row_bytes, share = l->page_bytes / l->units;

    while (at < end) {
        struct reshard_unit *u = &page_units[at / share < l->units ? at / share : l->units - 1];
        uint64_t n = bytes_within(u, at, end - at);

        at += n;
        if (!is_map) {
            u->moved += n;
            continue;
        }
        u->there += n;
        u->to_ranks |= 1ull << piece->to.rank;
        u->to_pages |= 1ull << piece->to.page;
    }
}

static void units_count(const struct reshard_way *way, bool is_map, struct reshard_units *io)
{
    const struct reshard_layout *l = way->pair->from;
    const struct reshard_plan *p = is_map ? way->map : way->plan;

    for (uint32_t i = 0; i < p->n; i++) {
        const struct reshard_piece *piece = &p->v[i];
        uint64_t rows = piece->kind == PIECE_MOVE ? strided_rows(&piece->shape) : 0;
        uint32_t page = piece->from.page * l->ranks * l->stages + piece->from.rank;

        for (uint64_t row = 0; row < rows; row++)
            units_row(l, piece, row, is_map, &io->v[page * l->units]);
    }
}

enum reshard_refusal reshard_units(const struct reshard_way *way, struct reshard_units *io,
                                   uint32_t *ret_bad)
{
    const struct reshard_layout *l = way->pair->from;
    uint32_t pages = span_pages(l, way->pair->to);

    io->n = pages * l->ranks * l->stages * l->units;
    if (io->n > io->room)
        return RESHARD_ROOM;
    units_begin(l, pages, io);
    units_count(way, false, io);
    units_count(way, true, io);
    for (uint32_t i = 0; i < io->n; i++) {
        if (io->v[i].moved == 0 || io->v[i].there == io->v[i].bytes)
            continue;
        if (ret_bad)
            *ret_bad = i;
        return RESHARD_UNIT_PADDED;
    }
    return RESHARD_NONE;
}

enum reshard_refusal reshard_units_within(const struct reshard_units *units, uint64_t pages)
{
    for (uint32_t i = 0; i < units->n; i++) {
        const struct reshard_unit *u = &units->v[i];

        if (u->moved > 0 && (u->to_pages & pages) != 0 && (u->to_pages & ~pages) != 0)
            return RESHARD_UNIT_COARSE;
    }
    return RESHARD_NONE;
}

static void runs_of_piece(const struct reshard_piece *piece, const struct reshard_unit *u,
                          void (*run)(void *ctx, const struct reshard_unit_run *run), void *ctx)
{
    uint64_t rows = strided_rows(&piece->shape);

    for (uint64_t row = 0; row < rows; row++) {
        uint64_t at = piece->from.at + strided_from(&piece->shape, row);
        uint64_t first = at > u->from ? at : u->from;
        struct reshard_unit_run r = {.in_unit = first - u->from,
                                     .bytes = bytes_within(u, at, piece->shape.row_bytes),
                                     .to = piece->to};

        if (r.bytes == 0)
            continue;
        r.to.at += strided_to(&piece->shape, row) + (first - at);
        run(ctx, &r);
    }
}

void reshard_unit_runs(const struct reshard_plan *map, const struct reshard_unit *unit,
                       void (*run)(void *ctx, const struct reshard_unit_run *run), void *ctx)
{
    for (uint32_t i = 0; i < map->n; i++) {
        const struct reshard_piece *piece = &map->v[i];

        if (piece->from.rank == unit->rank && piece->from.page == unit->page)
            runs_of_piece(piece, unit, run, ctx);
    }
}
