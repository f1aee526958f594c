#include "reshard/plan.h"

#include <string.h>

#include "base/err.h"
#include "reshard/holds.h"

#define RECENT_MAX 16 /* pieces between the same two pages that a new one may adjoin */

/* The number that each field and section of the destination has at the source. */
struct numbers {
    uint8_t field[RESHARD_FIELDS_MAX], section[RESHARD_FIELDS_MAX][RESHARD_SECTIONS_MAX];
};

struct planner {
    struct numbers source;
    uint64_t span;
    bool from_all; /* a map, with pieces from every rank that holds something */
    struct reshard_plan *out;
    uint32_t nrecent;
    struct reshard_piece recent[RECENT_MAX];
};

/* A page of one end, with what of its field a piece is about. */
struct side {
    const struct reshard_layout *l;
    uint32_t rank, page; /* as in struct reshard_end */
    uint32_t pages;      /* of the span */
    const struct reshard_field *f;
    uint32_t section; /* its number in f */
};

/* ---- pieces on their way into the list ---- */

static void recent_out(struct planner *p, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++, p->out->n++)
        if (p->out->n < p->out->room)
            p->out->v[p->out->n] = p->recent[i];
    p->nrecent -= n;
    memmove(p->recent, p->recent + n, p->nrecent * sizeof *p->recent);
}

static bool same_pages(const struct reshard_piece *a, const struct reshard_piece *b)
{
    return a->kind == b->kind && a->from.rank == b->from.rank && a->from.page == b->from.page &&
           a->to.rank == b->to.rank && a->to.page == b->to.page;
}

static void piece_add(struct planner *p, const struct reshard_piece *piece)
{
    if (p->nrecent > 0 && !same_pages(&p->recent[0], piece))
        recent_out(p, p->nrecent);
    if (p->nrecent == RECENT_MAX)
        recent_out(p, 1);
    p->recent[p->nrecent++] = *piece;
    while (p->nrecent > 1 && piece_join(&p->recent[p->nrecent - 2], &p->recent[p->nrecent - 1]))
        p->nrecent--;
}

/* ---- what two pages have in common ---- */

/* A run of layers, tokens or parts of a section, in the numbers of the whole pool or span. */
struct run {
    uint64_t first, n;
};

static struct run run_common(const struct run *a, const struct run *b)
{
    uint64_t first = a->first > b->first ? a->first : b->first;
    uint64_t end_a = a->first + a->n, end_b = b->first + b->n;
    uint64_t end = end_a < end_b ? end_a : end_b;

    return (struct run){.first = first, .n = end > first ? end - first : 0};
}

/* Which part of an axis the page has; of heads and channels, which part of the section. */
static struct run side_run(const struct side *s, const struct reshard_axis *a)
{
    uint64_t local = axis_local(s->l, s->f, a);

    if (a->kind == AXIS_LAYER)
        return (struct run){.first = s->rank / s->l->ranks * local, .n = local};
    if (a->kind == AXIS_TOKEN)
        return (struct run){.first = s->page * local, .n = local};
    if (a->kind == AXIS_HEAD || a->kind == AXIS_CHANNEL) {
        struct reshard_section section = field_section(s->f, s->section);
        struct hold hold = hold_of(s->l, s->f, &section);

        return (struct run){.first =
                                (uint64_t)hold_first(&hold, s->rank % s->l->ranks) * section.width,
                            .n = (uint64_t)hold.parts * section.width};
    }
    return (struct run){.first = 0, .n = local};
}

/* Where along the axis the page has what is number `first` of the pool. */
static uint64_t side_at(const struct side *s, const struct reshard_axis *a, uint64_t first)
{
    uint64_t before = a->kind == AXIS_CHANNEL ? hold_before(s->l, s->f, s->section) : 0;
    struct run run = side_run(s, a);

    return (before + first - run.first) * a->stride;
}

/* The part of a section that both pages have. False: none. */
static bool common_box(const struct side *from, const struct side *to, struct box *ret,
                       struct reshard_piece *ret_piece)
{
    *ret = (struct box){.row_bytes = to->f->element_bytes};
    ret_piece->from = (struct reshard_end){from->rank, from->page, from->f->offset};
    ret_piece->to = (struct reshard_end){to->rank, to->page, to->f->offset};
    for (uint32_t i = 0; i < to->f->naxes; i++) {
        const struct reshard_axis *b = &to->f->axis[i], *a = field_axis(from->f, b->kind);
        struct run here = side_run(from, a), there = side_run(to, b);
        struct run common = run_common(&here, &there);

        if (common.n == 0)
            return false;
        ret_piece->from.at += side_at(from, a, common.first);
        ret_piece->to.at += side_at(to, b, common.first);
        ret->loop[ret->nloops++] =
            (struct strided_loop){.n = common.n, .from_stride = a->stride, .to_stride = b->stride};
    }
    return true;
}

/* ---- which ranks ---- */

/* Which of so many ranks that hold the same takes part in a transfer of this page. */
static uint32_t who_takes_part(const struct planner *p, const struct side *s, uint32_t copies)
{
    return (uint32_t)((p->span * s->pages + s->page) % copies);
}

static uint32_t section_copies(const struct side *s)
{
    struct reshard_section section = field_section(s->f, s->section);

    return hold_of(s->l, s->f, &section).copies;
}

static bool takes_part(const struct planner *p, const struct side *s)
{
    uint32_t copies = section_copies(s);

    return s->rank % s->l->ranks % copies == who_takes_part(p, s, copies);
}

/* Whether both ranks have parts of the section. */
static bool section_meets(const struct side *from, const struct side *to)
{
    const struct reshard_section s = field_section(to->f, to->section);
    const struct hold here = hold_of(from->l, from->f, &s), there = hold_of(to->l, to->f, &s);
    const uint32_t first = hold_first(&here, from->rank % from->l->ranks),
                   other = hold_first(&there, to->rank % to->l->ranks);

    return first < other + there.parts && other < first + here.parts;
}

/* Whether the section goes between these two ranks. What moves does so between the ranks that take
 * part; what is spread comes from the one of the destination, to each other that holds the same. */
static bool section_goes(const struct planner *p, enum reshard_piece_kind kind,
                         const struct side *from, const struct side *to)
{
    uint32_t copies = section_copies(to);

    if (kind == PIECE_MOVE)
        return (p->from_all || takes_part(p, from)) && takes_part(p, to);
    return from->rank != to->rank && from->rank / copies == to->rank / copies &&
           takes_part(p, from);
}

static uint32_t section_number(const struct reshard_field *f, const struct reshard_section *s)
{
    uint32_t k = 0;

    while (k + 1 < f->nsections && strncmp(f->section[k].name, s->name, RESHARD_NAME_MAX) != 0)
        k++;
    return k;
}

static void plan_section(struct planner *p, enum reshard_piece_kind kind, const struct side *from,
                         const struct side *to)
{
    struct reshard_piece whole = {.kind = kind};
    struct box box;
    uint64_t parts;

    if (!section_meets(from, to) || !section_goes(p, kind, from, to) ||
        !common_box(from, to, &box, &whole))
        return;
    box_join(&box);
    parts = box_parts(&box);
    for (uint64_t i = 0; i < parts && p->out->n <= RESHARD_PIECES_MAX; i++) {
        struct reshard_piece piece = whole;
        uint64_t from_at, to_at;

        piece.shape = box_part(&box, i, &from_at, &to_at);
        piece.from.at += from_at;
        piece.to.at += to_at;
        piece_add(p, &piece);
    }
}

/* Looked up once, and not by its name for each two pages. */
static void numbers_fill(const struct reshard_pair *pair, struct numbers *ret)
{
    for (uint32_t i = 0; i < pair->to->nfields; i++) {
        const struct reshard_field *to = &pair->to->field[i],
                                   *from = layout_field(pair->from, to->name);

        ret->field[i] = (uint8_t)(from - pair->from->field);
        for (uint32_t k = 0; k < field_sections(to); k++) {
            const struct reshard_section s = field_section(to, k);

            ret->section[i][k] = (uint8_t)section_number(from, &s);
        }
    }
}

/* All that goes from one page to another. */
static void plan_pages(struct planner *p, enum reshard_piece_kind kind, struct side from,
                       struct side to)
{
    for (uint32_t i = 0; i < to.l->nfields; i++) {
        to.f = &to.l->field[i];
        from.f = &from.l->field[kind == PIECE_MOVE ? p->source.field[i] : i];
        for (to.section = 0; to.section < field_sections(to.f); to.section++) {
            from.section = kind == PIECE_MOVE ? p->source.section[i][to.section] : to.section;
            plan_section(p, kind, &from, &to);
        }
    }
}

static void plan_page(struct planner *p, struct side from, struct side to)
{
    uint32_t to_ranks = to.l->ranks * to.l->stages, from_ranks = from.l->ranks * from.l->stages;

    for (to.rank = 0; to.rank < to_ranks; to.rank++)
        for (from.page = 0; from.page < from.pages; from.page++)
            for (from.rank = 0; from.rank < from_ranks; from.rank++)
                plan_pages(p, PIECE_MOVE, from, to);
    if (p->from_all)
        return;
    from = to;
    for (to.rank = 0; to.rank < to_ranks; to.rank++)
        for (from.rank = 0; from.rank < to_ranks; from.rank++)
            plan_pages(p, PIECE_SPREAD, from, to);
}

static enum reshard_refusal plan_span(struct planner *p, const struct reshard_pair *pair)
{
    struct side from = {.l = pair->from}, to = {.l = pair->to};

    TRY(reshard_check(pair));
    numbers_fill(pair, &p->source);
    p->out->n = 0;
    from.pages = span_pages(pair->from, pair->to);
    to.pages = span_pages(pair->to, pair->from);
    for (to.page = 0; to.page < to.pages; to.page++)
        plan_page(p, from, to);
    recent_out(p, p->nrecent);
    if (p->out->n > RESHARD_PIECES_MAX)
        return RESHARD_PIECES;
    return p->out->n > p->out->room ? RESHARD_ROOM : RESHARD_NONE;
}

enum reshard_refusal reshard_plan(const struct reshard_pair *pair, uint64_t span,
                                  struct reshard_plan *io)
{
    struct planner p = {.span = span, .out = io};

    return plan_span(&p, pair);
}

enum reshard_refusal reshard_map(const struct reshard_pair *pair, uint64_t span,
                                 struct reshard_plan *io)
{
    struct planner p = {.span = span, .out = io, .from_all = true};

    return plan_span(&p, pair);
}

uint64_t reshard_visits(const struct reshard_pair *pair)
{
    const struct reshard_layout *from = pair->from, *to = pair->to;
    const uint64_t from_ranks = from->ranks * from->stages, to_ranks = to->ranks * to->stages;
    uint64_t sections = 0;

    for (uint32_t i = 0; i < to->nfields; i++)
        sections += field_sections(&to->field[i]);
    return span_pages(to, from) * to_ranks * sections *
           (span_pages(from, to) * from_ranks + to_ranks);
}

static uint32_t copies_most(const struct reshard_layout *l)
{
    uint32_t most = 1;

    for (uint32_t i = 0; i < l->nfields; i++)
        for (uint32_t k = 0; k < field_sections(&l->field[i]); k++) {
            struct reshard_section s = field_section(&l->field[i], k);
            uint32_t copies = hold_of(l, &l->field[i], &s).copies;

            most = copies > most ? copies : most;
        }
    return most;
}

uint32_t reshard_variants(const struct reshard_pair *pair)
{
    uint32_t from = copies_most(pair->from), to = copies_most(pair->to);

    return from > to ? from : to;
}

uint64_t reshard_plan_bytes(const struct reshard_plan *p, enum reshard_piece_kind kind)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < p->n; i++)
        if (p->v[i].kind == kind)
            bytes += strided_bytes(&p->v[i].shape);
    return bytes;
}
