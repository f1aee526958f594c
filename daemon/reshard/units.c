#include "reshard/units.h"

#include "reshard/holds.h"

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

/* Which steps [first, end) of a loop reach into a unit. The loop begins at `at`, and each of its
 * steps reaches over so many bytes. */
struct loop_part {
    uint64_t first, end;
};

static struct loop_part loop_in(const struct reshard_unit *u, const struct strided_loop *l,
                                uint64_t at, uint64_t reach)
{
    uint64_t unit_end = u->from + u->bytes;
    struct loop_part t = {.first = 0, .end = l->n};

    if (at >= unit_end || at + (l->n - 1) * l->from_stride + reach <= u->from)
        return (struct loop_part){.first = 0, .end = 0};
    if (l->n > 1 && at + reach <= u->from)
        t.first = (u->from - at - reach) / l->from_stride + 1;
    if (l->n > 1 && (unit_end - at - 1) / l->from_stride + 1 < l->n)
        t.end = (unit_end - at - 1) / l->from_stride + 1;
    return t;
}

static struct reshard_unit_run run_of_row(const struct reshard_piece *piece,
                                          const struct reshard_unit *u, uint64_t row)
{
    uint64_t at = piece->from.at + strided_from(&piece->shape, row);
    uint64_t first = at > u->from ? at : u->from;
    struct reshard_unit_run r = {.in_unit = first - u->from,
                                 .bytes = bytes_within(u, at, piece->shape.row_bytes),
                                 .to = piece->to};

    r.to.at += strided_to(&piece->shape, row) + (first - at);
    return r;
}

static void runs_of_piece(const struct reshard_piece *piece, const struct reshard_unit *u,
                          void (*run)(void *ctx, const struct reshard_unit_run *run), void *ctx)
{
    const struct strided_loop *l = piece->shape.loop;
    uint64_t row_bytes = piece->shape.row_bytes;
    uint64_t reach_c = row_bytes + (l[2].n - 1) * l[2].from_stride;
    uint64_t reach_b = reach_c + (l[1].n - 1) * l[1].from_stride;
    struct loop_part a = loop_in(u, &l[0], piece->from.at, reach_b);

    for (; a.first < a.end; a.first++) {
        uint64_t at_a = piece->from.at + a.first * l[0].from_stride;
        struct loop_part b = loop_in(u, &l[1], at_a, reach_c);

        for (; b.first < b.end; b.first++) {
            struct loop_part c = loop_in(u, &l[2], at_a + b.first * l[1].from_stride, row_bytes);

            for (; c.first < c.end; c.first++) {
                struct reshard_unit_run r =
                    run_of_row(piece, u, (a.first * l[1].n + b.first) * l[2].n + c.first);

                run(ctx, &r);
            }
        }
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
