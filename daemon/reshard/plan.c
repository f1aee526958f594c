#include "reshard/plan.h"

#include <string.h>

#include "base/err.h"

#define RECENT_MAX  16 /* pieces between the same two pages that a new piece may adjoin */
#define PIECE_STEPS 16 /* the cost of a piece, besides the comparison of two pages */

struct planner {
    struct reshard_ready *ready;
    uint64_t span;
    struct reshard_plan *out;
    uint32_t nrecent;
    struct reshard_piece recent[RECENT_MAX];
};

/* A page of one end, and a piece's section in it. */
struct side {
    const struct reshard_layout *l;
    uint32_t rank, page; /* as in struct reshard_end */
    uint32_t pages;      /* of the span */
    const struct held_section *s;
};

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

/* A run of layers, tokens or parts of a section, numbered over the whole pool or span. */
struct run {
    uint64_t first, n;
};

/* Returns the page's part of an axis; for heads and channels, its part of the section. */
static struct run side_run(const struct side *s, const struct reshard_axis *a)
{
    const uint64_t layers = a->length / s->l->stages;

    switch (a->kind) {
    case AXIS_LAYER: return (struct run){s->rank / s->l->ranks * layers, layers};
    case AXIS_TOKEN: return (struct run){(uint64_t)s->page * a->length, a->length};
    case AXIS_HEAD:
    case AXIS_CHANNEL:
        return (struct run){(uint64_t)hold_first(&s->s->hold, s->rank % s->l->ranks) * s->s->width,
                            (uint64_t)s->s->hold.parts * s->s->width};
    default: return (struct run){0, a->length};
    }
}

/* Adds the part of an axis that both pages have to the box. Returns false if there is none. */
static bool box_add(const struct side *from, const struct side *to, const struct reshard_axis *b,
                    struct box *io, struct reshard_piece *io_piece)
{
    const struct reshard_axis *a = field_axis(from->s->f, b->kind);
    const struct run here = side_run(from, a), there = side_run(to, b);
    const uint64_t first = here.first > there.first ? here.first : there.first,
                   end_here = here.first + here.n, end_there = there.first + there.n,
                   end = end_here < end_there ? end_here : end_there;
    const bool channel = b->kind == AXIS_CHANNEL;

    io_piece->from.at += ((channel ? from->s->before : 0) + first - here.first) * a->stride;
    io_piece->to.at += ((channel ? to->s->before : 0) + first - there.first) * b->stride;
    if (end > first + 1)
        io->loop[io->nloops++] = (struct strided_loop){end - first, a->stride, b->stride};
    return end > first;
}

/* Finds the part of a section that both pages have. Returns false if there is none. */
static bool common_box(const struct side *from, const struct side *to, struct box *ret,
                       struct reshard_piece *ret_piece)
{
    const struct reshard_field *f = to->s->f;
    bool common = true;

    ret->row_bytes = f->element_bytes;
    ret->nloops = 0;
    ret_piece->from = (struct reshard_end){from->rank, from->page, from->s->f->offset};
    ret_piece->to = (struct reshard_end){to->rank, to->page, f->offset};
    for (uint32_t i = 0; common && i < f->naxes; i++)
        common = box_add(from, to, &f->axis[i], ret, ret_piece);
    return common;
}

/* Returns the sections, a bit each, that the rank transfers: ranks with the same data take
 * turns. */
static uint64_t takes_part(const uint64_t copies[RESHARD_COPIES], uint64_t span,
                           const struct side *s)
{
    uint64_t sections = 0;

    for (uint32_t k = 0; k < RESHARD_COPIES; k++)
        if (reshard_turn(span * s->pages + s->page, s->rank % s->l->ranks, k))
            sections |= copies[k];
    return sections;
}

/* Returns false if the plans of the pair have reached their limit of steps. */
static bool steps_take(struct planner *p, uint64_t n)
{
    p->ready->steps -= n < p->ready->steps ? n : p->ready->steps;
    return p->ready->steps > 0;
}

static void plan_section(struct planner *p, enum reshard_piece_kind kind, const struct side *from,
                         const struct side *to)
{
    struct reshard_piece piece = {.kind = kind};
    struct reshard_end whole_from, whole_to;
    struct box box;
    uint64_t parts;

    if (!steps_take(p, PIECE_STEPS) || !common_box(from, to, &box, &piece))
        return;
    box_join(&box);
    parts = box_parts(&box);
    whole_from = piece.from;
    whole_to = piece.to;
    for (uint64_t i = 0; i < parts && p->out->n <= RESHARD_PIECES_MAX; i++) {
        uint64_t from_at, to_at;

        if (i > 0 && !steps_take(p, PIECE_STEPS))
            return;
        piece.shape = box_part(&box, i, &from_at, &to_at);
        piece.from.at = whole_from.at + from_at;
        piece.to.at = whole_to.at + to_at;
        piece_add(p, &piece);
    }
}

/* Adds all sections, a bit each, that go from one page to another. */
static void plan_pages(struct planner *p, enum reshard_piece_kind kind, struct side from,
                       struct side to, uint64_t sections)
{
    const struct reshard_ready *r = p->ready;

    for (; sections; sections &= sections - 1) {
        uint32_t k = (uint32_t)__builtin_ctzll(sections);

        from.s = kind == PIECE_MOVE ? &r->from[k] : &r->to[k];
        to.s = &r->to[k];
        plan_section(p, kind, &from, &to);
    }
}

/* Adds the moves from one page to another. */
static void plan_moves(struct planner *p, const struct side *from, const struct side *to,
                       uint64_t sections)
{
    const struct reshard_ready *r = p->ready;

    if (sections && steps_take(p, 1))
        plan_pages(p, PIECE_MOVE, *from, *to,
                   sections & r->move[to->rank % to->l->ranks][from->rank % from->l->ranks]);
}

static void plan_page(struct planner *p, struct side from, struct side to)
{
    const struct reshard_ready *r = p->ready;
    const uint32_t to_ranks = to.l->ranks * to.l->stages;
    const uint32_t from_ranks = from.l->ranks * from.l->stages;

    for (to.rank = 0; to.rank < to_ranks; to.rank++) {
        const uint64_t gets = takes_part(r->to_copies, p->span, &to);

        for (from.page = 0; gets && from.page < from.pages; from.page++)
            for (from.rank = 0; from.rank < from_ranks; from.rank++)
                plan_moves(p, &from, &to, gets & takes_part(r->from_copies, p->span, &from));
    }
    from = to;
    for (to.rank = 0; to.rank < to_ranks; to.rank++)
        for (from.rank = to.rank / to.l->ranks * to.l->ranks;
             from.rank < (to.rank / to.l->ranks + 1) * to.l->ranks; from.rank++)
            plan_pages(p, PIECE_SPREAD, from, to,
                       r->spread[to.rank % to.l->ranks][from.rank % to.l->ranks] &
                           takes_part(r->to_copies, p->span, &from));
}

/* Adds the moves from a source page, whichever rank sends them. */
static void map_page(struct planner *p, struct side from, struct side to)
{
    for (to.page = 0; to.page < to.pages; to.page++)
        for (to.rank = 0; to.rank < to.l->ranks * to.l->stages; to.rank++)
            plan_moves(p, &from, &to, takes_part(p->ready->to_copies, p->span, &to));
}

static enum reshard_refusal plan_end(struct planner *p)
{
    recent_out(p, p->nrecent);
    if (p->ready->steps == 0)
        return RESHARD_VISITS;
    if (p->out->n > RESHARD_PIECES_MAX)
        return RESHARD_PIECES;
    return p->out->n > p->out->room ? RESHARD_ROOM : RESHARD_NONE;
}

enum reshard_refusal reshard_plan_ready(struct reshard_ready *r, uint64_t span,
                                        struct reshard_plan *io)
{
    struct planner p = {.ready = r, .span = span, .out = io};
    struct side from = {.l = r->pair.from, .pages = span_pages(r->pair.from, r->pair.to)};
    struct side to = {.l = r->pair.to, .pages = span_pages(r->pair.to, r->pair.from)};

    io->n = 0;
    for (to.page = 0; to.page < to.pages; to.page++)
        plan_page(&p, from, to);
    return plan_end(&p);
}

enum reshard_refusal reshard_map_ready(struct reshard_ready *r, uint64_t span,
                                       struct reshard_plan *io, uint32_t *ret_starts)
{
    struct planner p = {.ready = r, .span = span, .out = io};
    struct side from = {.l = r->pair.from, .pages = span_pages(r->pair.from, r->pair.to)};
    struct side to = {.l = r->pair.to, .pages = span_pages(r->pair.to, r->pair.from)};
    uint32_t k = 0;

    io->n = 0;
    for (from.page = 0; from.page < from.pages; from.page++)
        for (from.rank = 0; from.rank < from.l->ranks * from.l->stages; from.rank++) {
            ret_starts[k++] = io->n;
            map_page(&p, from, to);
            recent_out(&p, p.nrecent);
        }
    ret_starts[k] = io->n;
    return plan_end(&p);
}

static uint32_t section_number(const struct reshard_field *f, const struct reshard_section *s)
{
    uint32_t k = 0;

    while (k + 1 < f->nsections && strncmp(f->section[k].name, s->name, RESHARD_NAME_MAX) != 0)
        k++;
    return k;
}

/* Looks sections up by name once, and not for each two pages. */
static void sections_fill(struct reshard_ready *r)
{
    for (uint32_t i = 0; i < r->pair.to->nfields; i++) {
        const struct reshard_field *to = &r->pair.to->field[i],
                                   *from = layout_field(r->pair.from, to->name);

        for (uint32_t k = 0; k < field_sections(to); k++, r->n++) {
            const struct reshard_section s = field_section(to, k);
            const uint64_t bit = 1ull << r->n;

            r->to[r->n] = held_section(r->pair.to, to, k);
            r->from[r->n] = held_section(r->pair.from, from, section_number(from, &s));
            r->to_copies[__builtin_ctz(r->to[r->n].hold.copies)] |= bit;
            r->from_copies[__builtin_ctz(r->from[r->n].hold.copies)] |= bit;
        }
    }
}

/* Moves go between ranks that both have parts of the section. Spreads go from one rank of the
 * destination to each other rank with the same data. */
static void ranks_fill(struct reshard_ready *r, uint32_t k)
{
    const struct hold *from = &r->from[k].hold, *to = &r->to[k].hold;

    for (uint32_t there = 0; there < r->pair.to->ranks; there++) {
        const uint32_t first = hold_first(to, there);

        for (uint32_t here = 0; here < r->pair.from->ranks; here++)
            if (hold_first(from, here) < first + to->parts &&
                first < hold_first(from, here) + from->parts)
                r->move[there][here] |= 1ull << k;
        for (uint32_t here = 0; here < r->pair.to->ranks; here++)
            if (here != there && here / to->copies == there / to->copies)
                r->spread[there][here] |= 1ull << k;
    }
}

enum reshard_refusal reshard_prepare(const struct reshard_pair *pair, uint64_t steps,
                                     struct reshard_ready *ret)
{
    TRY(reshard_check(pair));
    *ret = (struct reshard_ready){.pair = *pair, .steps = steps};
    sections_fill(ret);
    for (uint32_t k = 0; k < ret->n; k++)
        ranks_fill(ret, k);
    return RESHARD_NONE;
}

static uint32_t copies_most(const struct reshard_layout *l)
{
    uint32_t most = 1;

    for (uint32_t i = 0; i < l->nfields; i++)
        for (uint32_t k = 0; k < field_sections(&l->field[i]); k++) {
            const uint32_t copies = held_section(l, &l->field[i], k).hold.copies;

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
