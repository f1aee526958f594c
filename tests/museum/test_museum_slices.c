/* Prefill and decode have different numbers of ranks, and pages are cut in the wrong places: a
 * convolution's state as one piece although it has three sections, and heads that are assigned to
 * ranks round-robin (sglang 30997, and 23744 and 23746 before it). docs/museum.md has the stories.
 *
 * unit/rig/rig_reshard.h says what each byte of a page should be, and knows no plan. */
#include "oracle/units_counted.h"
#include "unit/reshard/reshard_rig.h"

static struct pool source, wanted;
static uint8_t got[POOL_BYTES];
static uint8_t *page[POOL_PAGES * POOL_RANKS];
static struct reshard_piece moves[PIECES_MAX], maps[PIECES_MAX];
static struct counted_unit units[POOL_PAGES * POOL_RANKS];

/* Both pools of one kind, without gaps, with a layer outermost; one span. */
static void pools_of(enum world_kind kind, uint32_t from_ranks, uint32_t to_ranks)
{
    struct world_end from = {
        .kind = kind, .ranks = from_ranks, .stages = 1, .page_tokens = 4, .units = 1};
    struct world_end to = from;

    to.ranks = to_ranks;
    pool_fill(&source, &from, 1);
    pool_fill(&wanted, &to, 1);
    memset(got, GAP_BYTE, wanted.bytes);
    for (uint32_t r = 0; r < to_ranks; r++)
        page[r] = got + r * wanted.l.page_bytes;
}

static uint32_t ranks_wrong(void)
{
    uint32_t n = 0;

    for (uint32_t r = 0; r < wanted.ranks; r++)
        n += memcmp(page[r], wanted.page[r], wanted.l.page_bytes) != 0;
    return n;
}

/* ---- the textbook's cut: one rank sends to many ---- */

struct textbook_cut {
    bool sections_apart;       /* each section's channels are cut by themselves */
    bool neighbours_are_alike; /* ranks that share a head stand side by side */
};

/* Each rank gets a part of the channels of each layer, with all states of those channels. */
static void cut_channels(struct textbook_cut fixed)
{
    const struct reshard_field *f = &source.l.field[0];
    const uint64_t channel = 3 * f->element_bytes, of_layer = source.l.page_bytes / WORLD_LAYERS;
    const struct reshard_section whole = {"", (uint32_t)(of_layer / channel), 1};
    const struct reshard_section *sections = fixed.sections_apart ? f->section : &whole;
    const uint32_t nsections = fixed.sections_apart ? f->nsections : 1;

    for (uint32_t layer = 0; layer < WORLD_LAYERS; layer++)
        for (uint32_t r = 0; r < wanted.ranks; r++) {
            const uint8_t *from = source.page[0] + layer * of_layer;
            uint8_t *to = page[r] + layer * of_layer / wanted.ranks;

            for (uint32_t k = 0; k < nsections; k++) {
                uint64_t all = sections[k].count * sections[k].width * channel;
                uint64_t part = all / wanted.ranks;

                memcpy(to, from + r * part, part);
                from += all;
                to += part;
            }
        }
}

/* Each rank gets one head. For each (layer, K or V, token) the source has as many rows side by side
 * as there are heads. */
static void cut_heads(struct textbook_cut fixed, uint32_t heads)
{
    const uint64_t row = wanted.l.page_bytes / (WORLD_LAYERS * 2 * wanted.e.page_tokens);

    for (uint32_t r = 0; r < wanted.ranks; r++) {
        uint32_t head = fixed.neighbours_are_alike ? r * heads / wanted.ranks : r % heads;

        for (uint64_t i = 0; i < WORLD_LAYERS * 2 * wanted.e.page_tokens; i++)
            memcpy(page[r] + i * row, source.page[0] + (i * heads + head) * row, row);
    }
}

TEST(textbook_cuts_a_convolution_state_as_one_piece)
{
    for (uint32_t ranks = 2; ranks <= 4; ranks *= 2) {
        pools_of(WORLD_QKV, 1, ranks);
        cut_channels((struct textbook_cut){0});
        assert_int_equal(ranks_wrong(), ranks);
        cut_channels((struct textbook_cut){.sections_apart = true});
        assert_int_equal(ranks_wrong(), 0);
    }
}

/* 2 heads on 4 and on 8 ranks. A rank with the wrong head gets KV of the same tokens, of the same
 * size and plausible: nothing looks wrong. */
TEST(textbook_counts_heads_round_where_ranks_share_them)
{
    for (uint32_t ranks = 4; ranks <= 8; ranks *= 2) {
        pools_of(WORLD_GQA, 1, ranks);
        cut_heads((struct textbook_cut){0}, 2);
        assert_int_equal(ranks_wrong(), ranks / 2);
        cut_heads((struct textbook_cut){.neighbours_are_alike = true}, 2);
        assert_int_equal(ranks_wrong(), 0);
    }
    pools_of(WORLD_GQA, 1, 2); /* as many heads as ranks: both counts agree */
    cut_heads((struct textbook_cut){0}, 2);
    assert_int_equal(ranks_wrong(), 0);
}

/* ---- Tern's plan ---- */

static struct reshard_plan planned(struct reshard_piece *v)
{
    const struct reshard_pair pair = {.from = &source.l, .to = &wanted.l};
    struct reshard_plan p = {.v = v, .room = PIECES_MAX};
    uint32_t starts[POOL_PAGES * POOL_RANKS + 1];
    struct reshard_ready ready;

    assert_int_equal(reshard_prepare(&pair, UINT64_MAX, &ready), RESHARD_NONE);
    assert_int_equal(v == moves ? reshard_plan_ready(&ready, 0, &p)
                                : reshard_map_ready(&ready, 0, &p, starts),
                     RESHARD_NONE);
    return p;
}

static void carried(void)
{
    const struct reshard_memory m = {.from = {.page = source.page, .ranks = source.ranks},
                                     .to = {.page = page, .ranks = wanted.ranks}};
    struct reshard_plan p = planned(moves);

    reshard_carry(&p, &m);
}

/* N3: by heads, by channels within each section, and both in one page, in both directions. */
TEST(tern_state_and_heads_come_as_each_rank_has_them)
{
    static const enum world_kind kinds[] = {WORLD_QKV, WORLD_XBC, WORLD_RECURRENT, WORLD_HYBRID,
                                            WORLD_GQA};

    for (uint32_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (uint32_t from = 1; from <= 8; from *= 2)
            for (uint32_t to = 1; to <= 8; to *= 2) {
                pools_of(kinds[k], from, to);
                carried();
                if (ranks_wrong() > 0)
                    fail_msg("%s from %u to %u ranks", world_name(kinds[k]), from, to);
            }
}

/* Copies a run of a unit at the destination to its place in the unit. */
static void gather(void *ctx, const struct reshard_unit_run *run)
{
    memcpy((uint8_t *)ctx + run->in_unit, page[run->to.rank] + run->to.at, run->bytes);
}

/* Counts the units whose bytes at the destination differ from those that the source checksummed. */
static uint32_t units_that_disagree(void)
{
    static uint8_t there[WORLD_PAGE_MAX];
    const struct reshard_pair pair = {.from = &source.l, .to = &wanted.l};
    struct reshard_plan plan = planned(moves), map = planned(maps);
    const uint32_t nunits = units_count(&(struct units_counted){&pair, &plan, &map}, units);
    uint32_t n = 0;

    for (uint32_t i = 0; i < nunits; i++) {
        const struct reshard_unit *u = &units[i].at;

        assert_int_equal(units[i].there, u->bytes);
        reshard_unit_runs(&map, u, gather, there);
        n += memcmp(there, source.page[u->rank] + u->from, u->bytes) != 0;
    }
    return n;
}

/* X3, X7: the bytes under each unit's checksum are gathered from wherever they lie at the
 * destination. A cut in the wrong place would not be published, whoever made it. */
TEST(tern_a_wrong_cut_does_not_agree_with_the_checksums)
{
    pools_of(WORLD_QKV, 1, 4);
    cut_channels((struct textbook_cut){0});
    assert_int_equal(units_that_disagree(), 1);
    carried();
    assert_int_equal(units_that_disagree(), 0);

    pools_of(WORLD_GQA, 1, 4);
    cut_heads((struct textbook_cut){0}, 2);
    assert_int_equal(units_that_disagree(), 1);
    carried();
    assert_int_equal(units_that_disagree(), 0);
}

/* N3: a pair of layouts that cannot be cut is refused by name before a byte moves. */
TEST(tern_what_cannot_be_cut_is_refused_by_name)
{
    struct reshard_plan none = {.v = NULL};
    struct reshard_pair pair = {.from = &source.l, .to = &wanted.l};

    pools_of(WORLD_QKV, 1, 4);
    wanted.l.field[0].section[0].count = 6; /* q of 6 parts on 4 ranks */
    assert_int_equal(reshard_plan(&pair, 0, &none), RESHARD_SECTION_DIVIDES);
    pools_of(WORLD_QKV, 1, 4);
    strcpy(wanted.l.field[0].section[1].name, "g");
    assert_int_equal(reshard_plan(&pair, 0, &none), RESHARD_OTHER_SECTIONS);
}
