/* Random plans: pieces of three loops, in any order at the source and in nested order at the
 * destination, with gaps everywhere, and with rows of any multiple of any width. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/arena.h"

#define PIECES_MAX 5
#define SPANS_MAX  4

struct plan_shape {
    uint32_t npieces, spans, from_width;
    uint64_t from_bytes, to_bytes; /* least bytes of a page */
    struct kernels_piece piece[PIECES_MAX];
    struct kernels_tile *tiles; /* owned */
    uint64_t ntiles;
    size_t from, to, from_pages, to_pages, pieces, tiles_at; /* offsets in the arena */
};

static uint64_t round16(uint64_t n)
{
    return (n + KERNELS_VECTOR - 1) / KERNELS_VECTOR * KERNELS_VECTOR;
}

/* Makes strides of loops that nest in this order, innermost first. Returns their extent in bytes.
 */
static uint64_t strides_make(const struct strided *s, const int order[STRIDED_LOOPS_MAX],
                             uint64_t granule, struct prng *p, uint64_t ret[STRIDED_LOOPS_MAX])
{
    uint64_t reach = s->row_bytes;

    for (int i = 0; i < STRIDED_LOOPS_MAX; i++) {
        int k = order[i];

        ret[k] = reach + prng_below(p, 3) * granule;
        reach += (s->loop[k].n - 1) * ret[k];
    }
    return reach;
}

static void piece_make(struct plan_shape *plan, uint32_t i, struct case_size size, struct prng *p)
{
    static const int orders[][STRIDED_LOOPS_MAX] = {{2, 1, 0}, {2, 0, 1}, {1, 2, 0},
                                                    {1, 0, 2}, {0, 1, 2}, {0, 2, 1}};
    uint64_t granule = 1u << prng_below(p, 5), left = size.bytes / 8 / PIECES_MAX / granule;
    uint64_t from[STRIDED_LOOPS_MAX], to[STRIDED_LOOPS_MAX], from_reach, to_reach;
    struct kernels_end from_end = {.page = prng_below(p, plan->from_width),
                                   .at = granule * prng_below(p, 9)};
    struct kernels_end to_end = {.page = i, .at = granule * prng_below(p, 9)};
    struct strided s;

    s.row_bytes = granule * (1 + prng_below(p, (uint32_t)left >> prng_below(p, 12)));
    left = size.bytes / 8 / PIECES_MAX / s.row_bytes;
    for (int k = 0; k < STRIDED_LOOPS_MAX; k++) {
        s.loop[k].n = 1 + prng_below(p, (uint32_t)(left < 40 ? left : 40) + 1);
        left /= s.loop[k].n;
    }
    from_reach = strides_make(&s, orders[prng_below(p, 6)], granule, p, from);
    to_reach = strides_make(&s, orders[0], granule, p, to);
    for (int k = 0; k < STRIDED_LOOPS_MAX; k++) {
        s.loop[k].from_stride = from[k];
        s.loop[k].to_stride = to[k];
    }
    if (kernels_piece_make(&s, &from_end, &to_end, &plan->piece[i]) != KERNELS_REFUSED_NONE) {
        fprintf(stderr, "cases: a piece was refused\n");
        exit(2);
    }
    from_reach = round16(from_reach + from_end.at);
    to_reach = round16(to_reach + to_end.at);
    plan->from_bytes = from_reach > plan->from_bytes ? from_reach : plan->from_bytes;
    plan->to_bytes = to_reach > plan->to_bytes ? to_reach : plan->to_bytes;
}

static void plan_make(struct plan_shape *plan, struct case_size size, struct prng *p)
{
    *plan = (struct plan_shape){.npieces = 1 + prng_below(p, PIECES_MAX),
                                .spans = prng_below(p, SPANS_MAX + 1),
                                .from_width = 1 + prng_below(p, 3)};
    for (uint32_t i = 0; i < plan->npieces; i++)
        piece_make(plan, i, size, p);
    plan->ntiles = kernels_tiles(plan->piece, plan->npieces, NULL, 0);
    plan->tiles = malloc(plan->ntiles * sizeof *plan->tiles);
    if (!plan->tiles ||
        kernels_tiles(plan->piece, plan->npieces, plan->tiles, plan->ntiles) != plan->ntiles)
        abort();
}

/* Puts the pages of the tables into random order. */
static void pages_shuffle(uint64_t *page, uint32_t n, uint64_t bytes, struct prng *p)
{
    for (uint32_t i = 0; i < n; i++)
        page[i] = i * bytes;
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = prng_below(p, i);
        uint64_t was = page[i - 1];

        page[i - 1] = page[j];
        page[j] = was;
    }
}

static void plan_place(struct plan_shape *plan, struct arena *a, struct prng *p)
{
    uint32_t from = plan->spans * plan->from_width, to = plan->spans * plan->npieces;

    plan->from = arena_take(a, from * plan->from_bytes, KERNELS_VECTOR);
    plan->to = arena_take(a, to * plan->to_bytes, KERNELS_VECTOR);
    plan->from_pages = arena_take(a, from * sizeof(uint64_t), sizeof(uint64_t));
    plan->to_pages = arena_take(a, to * sizeof(uint64_t), sizeof(uint64_t));
    plan->pieces = arena_take(a, sizeof plan->piece, sizeof(uint64_t));
    plan->tiles_at = arena_take(a, plan->ntiles * sizeof *plan->tiles, sizeof(uint32_t));
    pages_shuffle((uint64_t *)(void *)(a->want + plan->from_pages), from, plan->from_bytes, p);
    pages_shuffle((uint64_t *)(void *)(a->want + plan->to_pages), to, plan->to_bytes, p);
    memcpy(a->want + plan->pieces, plan->piece, sizeof plan->piece);
    memcpy(a->want + plan->tiles_at, plan->tiles, plan->ntiles * sizeof *plan->tiles);
}

void case_reshard(const struct device *d, struct case_size size, struct prng *p,
                  struct case_result *ret)
{
    union kernels_args args[2];
    struct plan_shape plan;
    struct arena a;

    plan_make(&plan, size, p);
    snprintf(ret->text, sizeof ret->text, "%u spans of %u pieces, the first in vectors of %u bytes",
             plan.spans, plan.npieces, plan.piece[0].width);
    arena_begin(&a, d,
                plan.spans * (plan.from_width * (plan.from_bytes + sizeof(uint64_t)) +
                              plan.npieces * (plan.to_bytes + sizeof(uint64_t))) +
                    plan.ntiles * sizeof *plan.tiles + sizeof plan.piece + ARENA_ROOM,
                p);
    plan_place(&plan, &a, p);
    arena_put(&a);
    for (int device = 0; device < 2; device++) {
        uint64_t at = arena_address(&a, device);

        args[device].reshard = (struct kernels_reshard){.from = at + plan.from,
                                                        .to = at + plan.to,
                                                        .from_pages = at + plan.from_pages,
                                                        .to_pages = at + plan.to_pages,
                                                        .from_width = plan.from_width,
                                                        .to_width = plan.npieces,
                                                        .pieces = at + plan.pieces,
                                                        .tiles = at + plan.tiles_at,
                                                        .npieces = plan.npieces,
                                                        .ntiles = (uint32_t)plan.ntiles,
                                                        .spans = plan.spans};
    }
    arena_run(&a, KERNELS_RESHARD, &args[0], &args[1]);
    arena_end(&a, ret);
    free(plan.tiles);
}
