#include "reshard/units.h"

#include <string.h>

#include "reshard/holds.h"

/* The axes of a rank's page with more than one step, by ascending stride. */
struct field_box {
    uint64_t at, bytes; /* of the first row */
    uint32_t nloops;
    struct {
        uint64_t n, stride;
    } loop[AXIS_KINDS];
};

struct marks {
    const struct reshard_layout *l;
    uint32_t *runs;
    uint8_t *held, mark;
    bool too_many;
};

static void mark_run(struct marks *m, uint64_t at, uint64_t bytes)
{
    const uint64_t share = m->l->page_bytes / m->l->units, last = m->l->units - 1;
    uint64_t first = at / share < last ? at / share : last,
             end = (at + bytes - 1) / share < last ? (at + bytes - 1) / share : last;

    m->too_many = m->too_many || *m->runs == 0;
    if (m->too_many)
        return;
    *m->runs -= 1;
    for (; first <= end; first++)
        m->held[first] |= m->mark;
}

/* Marks the units in which the box has bytes. The inner loops with gaps smaller than a unit make
 * one run, and each step of the other loops begins another run. */
static void mark_box(struct marks *m, struct field_box b)
{
    const uint64_t share = m->l->page_bytes / m->l->units;
    uint64_t step[AXIS_KINDS] = {0};
    uint32_t inner = 0, k;

    for (; inner < b.nloops && b.loop[inner].stride - b.bytes < share; inner++)
        b.bytes += (b.loop[inner].n - 1) * b.loop[inner].stride;
    do {
        mark_run(m, b.at, b.bytes);
        for (k = inner; k < b.nloops && step[k] + 1 == b.loop[k].n; k++) {
            b.at -= step[k] * b.loop[k].stride;
            step[k] = 0;
        }
        if (k < b.nloops) {
            b.at += b.loop[k].stride;
            step[k]++;
        }
    } while (k < b.nloops && !m->too_many);
}

/* Returns the part of a field in a rank's page. If s is not NULL, it has only the channels of
 * section s. */
static struct field_box box_of(const struct reshard_layout *l, const struct reshard_field *f,
                               const struct held_section *s)
{
    struct field_box b = {.at = f->offset, .bytes = f->element_bytes};

    for (uint32_t i = 0; i < f->naxes; i++) {
        const struct reshard_axis *a = &f->axis[i];
        const bool section = s && a->kind == AXIS_CHANNEL;
        uint64_t n = section ? (uint64_t)s->hold.parts * s->width : axis_local(l, f, a);
        uint32_t k = b.nloops;

        b.at += section ? s->before * a->stride : 0;
        if (n == 1)
            continue;
        for (; k > 0 && b.loop[k - 1].stride > a->stride; k--)
            b.loop[k] = b.loop[k - 1];
        b.loop[k].n = n;
        b.loop[k].stride = a->stride;
        b.nloops++;
    }
    return b;
}

/* Marks the gaps after the steps of each loop. Returns the end of the field. */
static uint64_t mark_gaps(struct marks *m, const struct field_box *field)
{
    struct field_box b = *field;

    while (b.nloops > 0) {
        const uint64_t reach = b.bytes, n = b.loop[0].n, stride = b.loop[0].stride;

        b.at += reach;
        b.bytes = stride - reach;
        b.loop[0].n = n - 1;
        if (b.bytes > 0)
            mark_box(m, b);
        b.at -= reach;
        b.bytes = reach + (n - 1) * stride;
        b.nloops--;
        for (uint32_t k = 0; k < b.nloops; k++)
            b.loop[k] = b.loop[k + 1];
    }
    return b.at + b.bytes;
}

/* Marks the bytes between the fields, which may be in any order. */
static void mark_between(struct marks *m, const uint64_t *end)
{
    const struct reshard_layout *l = m->l;

    for (uint32_t i = 0; i <= l->nfields; i++) {
        const uint64_t from = i < l->nfields ? end[i] : 0;
        uint64_t to = l->page_bytes;

        for (uint32_t k = 0; k < l->nfields; k++)
            if (l->field[k].offset >= from && l->field[k].offset < to)
                to = l->field[k].offset;
        if (to > from)
            mark_run(m, from, to - from);
    }
}

enum reshard_refusal reshard_units(const struct reshard_layout *l, uint32_t *io_runs,
                                   uint8_t *ret_held)
{
    struct marks m = {.l = l, .runs = io_runs, .held = ret_held};
    uint64_t end[RESHARD_FIELDS_MAX];

    memset(ret_held, 0, l->units);
    for (uint32_t i = 0; i < l->nfields; i++) {
        const struct reshard_field *f = &l->field[i];
        const struct field_box whole = box_of(l, f, NULL);

        for (uint32_t k = 0; k < field_sections(f); k++) {
            const struct held_section s = held_section(l, f, k);

            m.mark = (uint8_t)s.hold.copies; /* 2^k */
            mark_box(&m, box_of(l, f, &s));
        }
        m.mark = UNIT_PADDED;
        end[i] = mark_gaps(&m, &whole);
    }
    mark_between(&m, end);
    for (uint32_t unit = 0; unit < l->units && !m.too_many; unit++)
        if (ret_held[unit] > UNIT_PADDED)
            return RESHARD_UNIT_PADDED;
    return m.too_many ? RESHARD_VISITS : RESHARD_NONE;
}

/* Returns the number of bytes of the unit in [at, at + bytes). */
static uint64_t bytes_within(const struct reshard_unit *u, uint64_t at, uint64_t bytes)
{
    uint64_t first = at > u->from ? at : u->from, unit_end = u->from + u->bytes;
    uint64_t last = at + bytes < unit_end ? at + bytes : unit_end;

    return last > first ? last - first : 0;
}

/* The steps [first, end) of a loop that reach into a unit. The loop begins at `at`, and each step
 * covers `reach` bytes. */
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
