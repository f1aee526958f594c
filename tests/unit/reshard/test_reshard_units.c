/* X3, X7: a destination with another sharding verifies its data by the units of the source, or the
 * pair of layouts is refused by name. TERN_FULL=1: more units, and more different page_tokens. */
#include "reshard_rig.h"

#include "oracle/units_counted.h"
#include "seam/mem/checksum.h"

#define UNITS_ROOM 65536

static struct pool source, wanted;
static uint8_t got[POOL_BYTES];
static struct reshard_piece pieces[PIECES_MAX], map_pieces[PIECES_MAX];
static struct counted_unit units[UNITS_ROOM];
static struct reshard_plan plan, map;
static uint32_t nunits, starts[POOL_PAGES * POOL_RANKS + 1];
static uint8_t held[UNITS_ROOM];

static void plan_of(uint64_t span)
{
    struct reshard_pair pair = {.from = &source.l, .to = &wanted.l};
    uint8_t *to[POOL_PAGES * POOL_RANKS];
    struct reshard_memory m = {{source.page, source.ranks}, {to, wanted.ranks}};
    struct reshard_ready ready;

    for (uint32_t i = 0; i < wanted.pages * wanted.ranks; i++)
        to[i] = got + i * wanted.l.page_bytes;
    plan = (struct reshard_plan){.v = pieces, .room = PIECES_MAX};
    assert_int_equal(RESHARD_NONE, reshard_plan(&pair, span, &plan));
    map = (struct reshard_plan){.v = map_pieces, .room = PIECES_MAX};
    assert_int_equal(RESHARD_NONE, reshard_prepare(&pair, UINT64_MAX, &ready));
    assert_int_equal(RESHARD_NONE, reshard_map_ready(&ready, span, &map, starts));
    reshard_carry(&plan, &m);
    nunits = units_count(&(struct units_counted){&pair, &plan, &map}, units);
}

static enum reshard_refusal units_of(void)
{
    uint32_t runs = UINT32_MAX;

    memset(held, 0x77, sizeof held);
    return reshard_units(&source.l, &runs, held);
}

/* The required refusal, found by looking at every byte of every unit. */
static enum reshard_refusal refusal_due(void)
{
    for (uint32_t k = 0; k < source.l.units; k++) {
        uint64_t from, end = checksum_unit_span(source.l.page_bytes, source.l.units, k, &from);
        uint64_t n = 0;

        for (uint64_t at = from; at < end; at++)
            n += source.held[at];
        if (n > 0 && n < end - from)
            return RESHARD_UNIT_PADDED;
    }
    return RESHARD_NONE;
}

/* A unit's bytes at the destination, in the order of the source. */
struct gather {
    uint8_t bytes[WORLD_PAGE_MAX];
    uint64_t n, to_ranks, to_pages;
};

static void gather_run(void *ctx, const struct reshard_unit_run *run)
{
    struct gather *g = ctx;

    assert_true(run->bytes > 0 && run->in_unit + run->bytes <= WORLD_PAGE_MAX);
    memcpy(g->bytes + run->in_unit,
           got + end_number(&run->to, &wanted) * wanted.l.page_bytes + run->to.at, run->bytes);
    g->n += run->bytes;
    g->to_ranks |= 1ull << run->to.rank;
    g->to_pages |= 1ull << run->to.page;
}

/* Do the bytes at the destination agree with the source's checksum? */
static bool unit_agrees(const struct counted_unit *u)
{
    static struct gather g;
    const uint8_t *page = source.page[u->at.page * source.ranks + u->at.rank];

    memset(&g, 0, sizeof g);
    reshard_unit_runs(&map, &u->at, gather_run, &g);
    assert_int_equal(u->there, g.n);
    assert_true(u->to_ranks == g.to_ranks && u->to_pages == g.to_pages);
    return checksum_unit(page + u->at.from, u->at.bytes) == checksum_unit(g.bytes, u->at.bytes);
}

/* Number of units to be verified that do not agree. */
static uint32_t units_wrong(void)
{
    uint32_t wrong = 0;

    for (uint32_t i = 0; i < nunits; i++)
        wrong += units[i].moved > 0 && !unit_agrees(&units[i]);
    return wrong;
}

struct counts {
    uint32_t pairs, apart, together, padded;
};

/* Every byte that moved belongs to a verified unit, that of its sending rank. */
static void check_change(uint64_t seed)
{
    const struct reshard_piece *p = NULL;
    uint64_t to, from, a, b, c, k;
    uint32_t unit;

    for (uint32_t i = (uint32_t)(seed % plan.n); !p || p->kind != PIECE_MOVE; i = (i + 1) % plan.n)
        p = &plan.v[i];
    a = seed % p->shape.loop[0].n;
    b = seed % p->shape.loop[1].n;
    c = seed % p->shape.loop[2].n;
    k = seed % p->shape.row_bytes;
    to = end_number(&p->to, &wanted) * wanted.l.page_bytes + p->to.at +
         shape_to(&p->shape, a, b, c) + k;
    from = p->from.at + shape_at(&p->shape, a, b, c) + k;
    unit = (uint32_t)(from / (source.l.page_bytes / source.l.units));
    unit = unit < source.l.units ? unit : source.l.units - 1;
    got[to] ^= 1;
    assert_false(unit_agrees(&units[end_number(&p->from, &source) * source.l.units + unit]));
    got[to] ^= 1;
}

static void check_pair(uint64_t seed, struct counts *io)
{
    enum reshard_refusal is;
    uint64_t moved = 0;
    bool together = false;

    plan_of(seed);
    is = units_of();
    assert_int_equal(refusal_due(), is);
    io->pairs++;
    io->padded += is == RESHARD_UNIT_PADDED;
    if (is != RESHARD_NONE)
        return;
    assert_int_equal(source.pages * source.ranks * source.l.units, nunits);
    for (uint32_t i = 0; i < nunits; i++) {
        const struct counted_unit *u = &units[i];

        assert_int_equal(i, (u->at.page * source.ranks + u->at.rank) * source.l.units + u->unit);
        assert_int_equal(reshard_unit_moves(held[u->unit], seed * source.pages + u->at.page,
                                            u->at.rank % source.l.ranks),
                         u->moved > 0);
        assert_true(u->moved == 0 || u->there == u->at.bytes);
        moved += u->moved;
        together = together || (u->to_ranks & (u->to_ranks - 1)) != 0 ||
                   (u->to_pages & (u->to_pages - 1)) != 0;
    }
    for (uint32_t k = 0; k < source.pages * source.ranks; k++)
        for (uint32_t i = starts[k]; i < starts[k + 1]; i++)
            assert_int_equal(end_number(&map.v[i].from, &source), k);
    assert_int_equal(starts[source.pages * source.ranks], map.n);
    assert_int_equal(reshard_plan_bytes(&plan, PIECE_MOVE), moved);
    assert_int_equal(0, units_wrong());
    check_change(seed);
    io->together += together;
    io->apart += !together;
}

/* Every pair of a kind with so many units to the source's pages, in the orders with heads behind
 * and before tokens. */
static struct counts each_pair(enum world_kind kind, const uint32_t tokens[2], uint32_t shares,
                               uint32_t gap)
{
    struct world_end from = {.kind = kind, .ranks = 1, .stages = 1, .units = shares, .gap = gap};
    struct counts c = {.pairs = 0};

    from.page_tokens = tokens[0];
    do {
        struct world_end to = from;

        to.ranks = to.stages = 1;
        to.order = 0;
        to.whole = to.reversed = false;
        to.units = 1;
        to.page_tokens = tokens[1];
        pool_fill(&source, &from, pages_of(&from, &to));
        do {
            if (to.order == 2 || to.reversed)
                continue;
            pool_fill(&wanted, &to, pages_of(&to, &from));
            check_pair(c.pairs, &c);
        } while (end_next(&to));
    } while (end_next(&from));
    return c;
}

/* X3, X7 */
TEST(reshard_is_verified_by_units_of_the_source_or_refused)
{
    static const uint32_t tokens[][2] = {{4, 4}, {4, 8}, {8, 4}};
    static const uint32_t shares[] = {1, 8, 5};
    bool full = getenv("TERN_FULL") != NULL;

    for (int k = 0; k < WORLD_KINDS; k++)
        for (size_t t = 0; t < (world_is_state((enum world_kind)k) ? 1 : full ? 3 : 2); t++)
            for (size_t u = 0; u < (full ? 3 : 2); u++)
                for (uint32_t gap = 0; gap < (full || (t == 0 && u == 1) ? 2u : 1u); gap++) {
                    enum world_kind kind = (enum world_kind)k;
                    uint32_t turned = t == 1 && u == 1 && !full ? 2 : (uint32_t)t;
                    struct counts c = each_pair(kind, tokens[turned], shares[u], 2 * gap);

                    printf("%-16s units %u page_tokens %u -> %u%s: %u pairs, verified apart %u, "
                           "together %u, refused: padded %u\n",
                           world_name(kind), shares[u], tokens[turned][0], tokens[turned][1],
                           gap ? " with gaps" : "", c.pairs, c.apart, c.together, c.padded);
                    assert_int_equal(c.pairs, c.apart + c.together + c.padded);
                }
}

static void units_between(const struct world_end *from, const struct world_end *to)
{
    pool_fill(&source, from, pages_of(from, to));
    pool_fill(&wanted, to, pages_of(to, from));
    plan_of(0);
}

/* X7: one head and K or V of one layer to a unit, with heads outermost: a destination that divides
 * heads and layers otherwise verifies each unit in place. */
TEST(reshard_verifies_a_unit_of_one_head_and_one_layer_in_one_rank)
{
    struct world_end from = {.kind = WORLD_MHA, .stages = 1, .page_tokens = 4, .order = 1};

    for (from.ranks = 1; from.ranks <= 8; from.ranks *= 2) {
        struct world_end to = {.kind = WORLD_MHA, .page_tokens = 4, .units = 1, .order = 0};

        from.units = WORLD_LAYERS * 2 * 8 / from.ranks;
        for (to.stages = 1; to.stages <= 2; to.stages++)
            for (to.ranks = 1; to.ranks <= 8; to.ranks *= 2) {
                units_between(&from, &to);
                assert_int_equal(RESHARD_NONE, units_of());
                for (uint32_t i = 0; i < nunits; i++) {
                    assert_int_equal(units[i].at.bytes, units[i].moved);
                    assert_true((units[i].to_ranks & (units[i].to_ranks - 1)) == 0);
                }
            }
    }
}

/* Each rank has its own x, and both ranks have B and C, which they take turns at sending. The unit
 * of the other rank is still verified, by B and C as they arrived. */
TEST(reshard_verifies_a_unit_that_another_rank_has_sent_a_part_of)
{
    struct world_end from = {.kind = WORLD_XB1, .ranks = 2, .stages = 1, .order = 0, .units = 1};
    struct world_end to = from;

    to.ranks = 1;
    units_between(&from, &to);
    assert_int_equal(RESHARD_NONE, units_of());
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(units[rank].at.bytes, units[rank].there);
        assert_int_equal(rank == 1, units[rank].moved < units[rank].at.bytes);
    }
    assert_int_equal(0, units_wrong());
    /* The last channel of the page belongs to C: the two ranks differ. */
    source.page[1][source.l.page_bytes - 1] ^= 1;
    assert_int_equal(1, units_wrong());
}

TEST(reshard_refuses_a_unit_with_bytes_of_no_field)
{
    struct world_end from = {
        .kind = WORLD_MHA, .ranks = 1, .stages = 1, .page_tokens = 4, .units = 4, .gap = 8};
    struct world_end to = from;

    units_between(&from, &to);
    assert_int_equal(RESHARD_UNIT_PADDED, units_of());
    /* A gap, a layer's keys and values, a gap and so on: units of the size of a gap are whole. */
    from.units = (uint32_t)source.l.page_bytes / 8;
    units_between(&from, &to);
    assert_int_equal(RESHARD_NONE, units_of());
    assert_int_equal(0, units_wrong());
}

/* X7: with larger pages at the source a unit goes to several pages of the destination, which are
 * fetched together. If units are ranges of tokens it goes to one. */
TEST(reshard_of_larger_pages_verifies_units_over_several_pages)
{
    struct world_end from = {
        .kind = WORLD_MLA, .ranks = 2, .stages = 1, .page_tokens = 16, .units = WORLD_LAYERS};
    struct world_end to = from;

    to.page_tokens = 4;
    units_between(&from, &to);
    assert_int_equal(RESHARD_NONE, units_of());
    assert_int_equal(0, units_wrong());
    for (uint32_t i = 0; i < nunits; i++)
        assert_int_equal(0xf, units[i].to_pages);
    from.order = 1; /* tokens outermost: two of them to a unit */
    from.units = 8;
    units_between(&from, &to);
    assert_int_equal(RESHARD_NONE, units_of());
    assert_int_equal(0, units_wrong());
    for (uint32_t i = 0; i < nunits; i++)
        assert_int_equal(1 << units[i].unit / 2, units[i].to_pages);
}

/* With smaller pages at the source each of its units is within one page, and each page has as many
 * moving bytes as the others. */
TEST(reshard_of_smaller_pages_verifies_each_page_alone)
{
    struct world_end from = {
        .kind = WORLD_GQA, .ranks = 4, .stages = 1, .page_tokens = 4, .units = 1};
    struct world_end to = from;
    uint64_t moved[4] = {0};

    to.page_tokens = 16;
    units_between(&from, &to);
    assert_int_equal(RESHARD_NONE, units_of());
    assert_int_equal(0, units_wrong());
    for (uint32_t i = 0; i < nunits; i++)
        moved[units[i].at.page] += units[i].moved;
    for (uint32_t i = 0; i < 4; i++)
        assert_true(moved[i] > 0 && moved[i] == moved[0]);
}

/* Rows of a byte, each in a unit of its own: their bytes cost a run each, and no more. */
TEST(reshard_units_cost_no_more_runs_than_they_may)
{
    struct reshard_layout l = {.ranks = 1,
                               .stages = 1,
                               .units = 4096,
                               .page_bytes = 4096,
                               .nfields = 1,
                               .field[0] = {.name = "s",
                                            .over = OVER_REPLICATED,
                                            .element_bytes = 1,
                                            .naxes = 1,
                                            .axis = {{AXIS_STATE, 2048, 2}}}};
    uint32_t runs = 2048 + 2047 + 1;

    assert_int_equal(RESHARD_NONE, reshard_check_layout(&l));
    assert_int_equal(RESHARD_NONE, reshard_units(&l, &runs, held));
    assert_int_equal(runs, 0);
    for (uint32_t k = 0; k < l.units; k++)
        assert_int_equal(held[k], k % 2 ? UNIT_PADDED : 1);
    runs = 2048 + 2047;
    assert_int_equal(RESHARD_VISITS, reshard_units(&l, &runs, held));
    l.units = 1024;
    runs = 3;
    assert_int_equal(RESHARD_UNIT_PADDED, reshard_units(&l, &runs, held));
    assert_int_equal(runs, 0);
}

/* Tokens of heads there, heads of tokens here: a million rows of two bytes, in a piece or two. */
TEST(reshard_costs_by_loops_and_not_by_rows)
{
    struct reshard_layout from = {
        .ranks = 1,
        .stages = 1,
        .page_tokens = 1024,
        .align_tokens = 1024,
        .units = 64,
        .page_bytes = 2u << 20,
        .nfields = 1,
        .field[0] = {.name = "kv",
                     .over = OVER_REPLICATED,
                     .element_bytes = 2,
                     .naxes = 2,
                     .axis = {{AXIS_HEAD, 1024, 2}, {AXIS_TOKEN, 1024, 2048}}}};
    struct reshard_layout to = from;
    struct reshard_ready ready;
    uint32_t runs = 1;

    to.field[0].axis[0].stride = 2048;
    to.field[0].axis[1].stride = 2;
    plan = (struct reshard_plan){.v = pieces, .room = PIECES_MAX};
    map = (struct reshard_plan){.v = map_pieces, .room = PIECES_MAX};
    assert_int_equal(RESHARD_NONE,
                     reshard_prepare(&(struct reshard_pair){&from, &to}, 2 * 17 + 1, &ready));
    assert_int_equal(RESHARD_NONE, reshard_plan_ready(&ready, 0, &plan));
    assert_int_equal(RESHARD_NONE, reshard_map_ready(&ready, 0, &map, starts));
    assert_int_equal(strided_rows(&plan.v[0].shape), 1u << 20);
    assert_int_equal(RESHARD_NONE, reshard_units(&from, &runs, held));
    assert_int_equal(RESHARD_NONE,
                     reshard_prepare(&(struct reshard_pair){&from, &to}, 2 * 17, &ready));
    assert_int_equal(RESHARD_NONE, reshard_plan_ready(&ready, 0, &plan));
    assert_int_equal(RESHARD_VISITS, reshard_map_ready(&ready, 0, &map, starts));
}

/* A unit has the same bytes here as where a pool's checksums are made. */
TEST(reshard_units_are_those_of_the_checksums)
{
    struct reshard_layout l = {.page_bytes = 0};

    for (l.page_bytes = 1; l.page_bytes < 300; l.page_bytes++)
        for (l.units = 1; l.units <= l.page_bytes; l.units++)
            for (uint32_t k = 0; k < l.units; k++) {
                uint64_t from, end = checksum_unit_span(l.page_bytes, l.units, k, &from);

                assert_int_equal(from, reshard_unit_from(&l, k));
                assert_int_equal(end, reshard_unit_end(&l, k));
            }
}
