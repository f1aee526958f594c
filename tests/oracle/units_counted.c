#include "oracle/units_counted.h"

#include "reshard/holds.h"

static uint32_t units_begin(const struct reshard_layout *l, uint32_t pages,
                            struct counted_unit *ret)
{
    const uint32_t ranks = l->ranks * l->stages;
    uint32_t n = 0;

    for (uint32_t page = 0; page < pages; page++)
        for (uint32_t rank = 0; rank < ranks; rank++)
            for (uint32_t unit = 0; unit < l->units; unit++) {
                uint64_t from = reshard_unit_from(l, unit);

                ret[n++] = (struct counted_unit){
                    .at = {rank, page, from, reshard_unit_end(l, unit) - from}, .unit = unit};
            }
    return n;
}

/* Counts a row that the units of a page have. */
static void count_row(const struct reshard_layout *l, const struct reshard_piece *piece,
                      uint64_t row, bool is_map, struct counted_unit *page_units)
{
    uint64_t at = piece->from.at + strided_from(&piece->shape, row);
    uint64_t end = at + piece->shape.row_bytes, share = l->page_bytes / l->units;

    while (at < end) {
        struct counted_unit *u = &page_units[at / share < l->units ? at / share : l->units - 1];
        uint64_t unit_end = u->at.from + u->at.bytes, n = (end < unit_end ? end : unit_end) - at;

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

static void count_plan(const struct reshard_layout *l, const struct reshard_plan *p, bool is_map,
                       struct counted_unit *units)
{
    for (uint32_t i = 0; i < p->n; i++) {
        const struct reshard_piece *piece = &p->v[i];
        uint64_t rows = piece->kind == PIECE_MOVE ? strided_rows(&piece->shape) : 0;
        uint32_t page = piece->from.page * l->ranks * l->stages + piece->from.rank;

        for (uint64_t row = 0; row < rows; row++)
            count_row(l, piece, row, is_map, &units[page * l->units]);
    }
}

uint32_t units_count(const struct units_counted *of, struct counted_unit *ret)
{
    const struct reshard_layout *l = of->pair->from;
    const uint32_t n = units_begin(l, span_pages(l, of->pair->to), ret);

    count_plan(l, of->plan, false, ret);
    count_plan(l, of->map, true, ret);
    return n;
}
