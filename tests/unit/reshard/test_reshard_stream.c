/* N3: the bytes of a plan as they travel, and the number of plans. */
#include "base/prng.h"
#include "reshard/stream.h"
#include "reshard_rig.h"

static struct pool source, wanted;
static uint8_t got[POOL_BYTES], wire[POOL_BYTES];
static struct reshard_piece pieces[PIECES_MAX], others[PIECES_MAX];

static struct world_end end_of(uint32_t kind, uint32_t ranks, uint32_t order)
{
    return (struct world_end){.kind = (enum world_kind)kind,
                              .ranks = ranks,
                              .stages = 1,
                              .page_tokens = 4,
                              .order = order,
                              .units = 1};
}

static struct reshard_plan plan_of(const struct world_end *from, const struct world_end *to,
                                   uint64_t span)
{
    struct reshard_plan plan = {.v = pieces, .room = PIECES_MAX};
    struct reshard_pair pair = {.from = &source.l, .to = &wanted.l};

    pool_fill(&source, from, pages_of(from, to));
    pool_fill(&wanted, to, pages_of(to, from));
    assert_int_equal(RESHARD_NONE, reshard_plan(&pair, span, &plan));
    return plan;
}

/* Carries the plan in stretches of any length at either end; each begins at a byte's number
 * alone. */
static void carry_by_stream(const struct reshard_plan *plan, struct reshard_part part,
                            struct prng *p)
{
    uint64_t bytes = reshard_plan_bytes(plan, PIECE_MOVE) / source.pages * part.n;

    for (int end = 0; end < 2; end++)
        for (uint64_t at = 0, stop = 0; at < bytes; at = stop) {
            struct reshard_cursor c = reshard_cursor_at(plan, part, at);
            struct reshard_run run;

            stop = at + 1 + prng_below(p, 700);
            stop = stop < bytes ? stop : bytes;
            for (uint64_t n; at < stop; at += n) {
                assert_true(reshard_cursor_next(plan, part, &c, &run));
                n = run.bytes < stop - at ? run.bytes : stop - at;
                if (end == 0)
                    memcpy(wire + at, source.page[end_number(&run.from, &source)] + run.from.at, n);
                else
                    memcpy(got + end_number(&run.to, &wanted) * wanted.l.page_bytes + run.to.at,
                           wire + at, n);
            }
        }
}

static void spread(const struct reshard_plan *plan)
{
    for (uint32_t i = 0; i < plan->n; i++) {
        const struct reshard_piece *s = &plan->v[i];

        if (s->kind == PIECE_SPREAD)
            strided_copy(got + end_number(&s->to, &wanted) * wanted.l.page_bytes + s->to.at,
                         got + end_number(&s->from, &wanted) * wanted.l.page_bytes + s->from.at,
                         &s->shape);
    }
}

/* Carries out the plan for the existing pages, and checks that the stream ends behind them. */
static void carry(const struct reshard_plan *plan, struct reshard_part part, struct prng *p)
{
    struct reshard_cursor end =
        reshard_cursor_at(plan, part, reshard_plan_bytes(plan, PIECE_MOVE) / source.pages * part.n);
    struct reshard_run run;

    memset(got, GAP_BYTE, wanted.bytes);
    carry_by_stream(plan, part, p);
    assert_false(reshard_cursor_next(plan, part, &end, &run));
    spread(plan);
}

TEST(reshard_stream_carries_each_byte_that_moves)
{
    struct prng p;

    prng_init(&p, 5);
    for (uint32_t kind = 0; kind < WORLD_KINDS; kind++)
        for (uint32_t ranks = 1; ranks <= 8; ranks *= 2)
            for (uint32_t order = 0; order < WORLD_ORDERS; order++) {
                struct world_end from = end_of(kind, ranks, order),
                                 to = end_of(kind, 8 / ranks, (order + kind) % WORLD_ORDERS);
                struct reshard_plan plan = plan_of(&from, &to, 3);

                carry(&plan, (struct reshard_part){0, 1}, &p);
                assert_memory_equal(got, wanted.memory, wanted.bytes);
            }
}

static struct world_end any_end(struct prng *p, uint32_t kind, uint32_t page_tokens)
{
    struct world_end e = end_of(kind, 1u << prng_below(p, 4), prng_below(p, WORLD_ORDERS));

    e.stages = 1 + prng_below(p, 2);
    e.page_tokens = page_tokens;
    e.gap = 8 * prng_below(p, 2);
    e.whole = prng_below(p, 2) != 0;
    return e;
}

/* The bytes of the tokens [first, end) of the span are right, and no other bytes arrived. */
static void assert_tokens(uint32_t first, uint32_t end)
{
    static uint8_t token[WORLD_PAGE_MAX];

    for (uint32_t i = 0; i < wanted.pages * wanted.ranks; i++) {
        const uint8_t *is = got + i * wanted.l.page_bytes;

        world_tokens(&wanted.e, i % wanted.ranks, i / wanted.ranks, token);
        for (uint64_t k = 0; k < wanted.l.page_bytes; k++) {
            bool comes = token[k] > first && token[k] <= end;

            if (is[k] != (comes ? wanted.page[i][k] : GAP_BYTE))
                fail_msg("byte %lu of page %u, token %d of [%u, %u)", (unsigned long)k, i,
                         token[k] - 1, first, end);
        }
    }
}

/* N3: page_tokens that differ up to eight times, in both directions, over all shardings; and spans
 * without some of the source's pages, at the beginning or at the end. */
TEST(reshard_stream_of_other_page_tokens_brings_the_tokens_that_are_there)
{
    uint32_t parts = 0;
    struct prng p;

    prng_init(&p, 6);
    for (uint32_t i = 0; i < 4000; i++) {
        uint32_t ratio = 1u << prng_below(&p, 4), small = 1u << prng_below(&p, 2),
                 kind = prng_below(&p, WORLD_RECURRENT);
        bool larger = prng_below(&p, 2) != 0;
        struct world_end from = any_end(&p, kind, larger ? small * ratio : small),
                         to = any_end(&p, kind, larger ? small : small * ratio);
        struct reshard_plan plan = plan_of(&from, &to, prng_below(&p, 20));
        struct reshard_part part = {.first = prng_below(&p, source.pages)};

        part.n = 1 + prng_below(&p, source.pages - part.first);
        parts += part.n < source.pages;
        carry(&plan, part, &p);
        assert_tokens(part.first * from.page_tokens, (part.first + part.n) * from.page_tokens);
    }
    assert_true(parts > 500);
}

/* X5: the ranks take turns, and there are no more variants than that. */
TEST(reshard_variants_are_all_that_there_are)
{
    static const struct {
        uint32_t kind, from, to, variants;
    } cases[] = {{WORLD_MHA, 8, 4, 1}, {WORLD_MLA, 4, 8, 8}, {WORLD_GQA, 8, 1, 4},
                 {WORLD_GQA, 2, 8, 4}, {WORLD_XB1, 1, 8, 8}, {WORLD_MLA, 1, 1, 1}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct world_end from = end_of(cases[i].kind, cases[i].from, 0),
                         to = end_of(cases[i].kind, cases[i].to, 1);
        struct reshard_pair pair = {.from = &source.l, .to = &wanted.l};

        plan_of(&from, &to, 3);
        assert_int_equal(reshard_variants(&pair), cases[i].variants);
        for (uint64_t span = 0; span < 40; span++) {
            struct reshard_plan a = {.v = pieces, .room = PIECES_MAX},
                                b = {.v = others, .room = PIECES_MAX};

            memset(pieces, 0, sizeof pieces);
            memset(others, 0, sizeof others);
            assert_int_equal(RESHARD_NONE, reshard_plan(&pair, span, &a));
            assert_int_equal(RESHARD_NONE, reshard_plan(&pair, span % cases[i].variants, &b));
            assert_int_equal(a.n, b.n);
            assert_memory_equal(pieces, others, a.n * sizeof *pieces);
        }
    }
}
