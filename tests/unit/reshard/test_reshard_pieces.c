/* N3, X5: the small number of pieces of a plan, which ranks send and receive data that several
 * ranks have, and that a page of the destination, or a slot of the staging ring, can be carried out
 * alone. */
#include "reshard_rig.h"

static struct pool source, wanted;
static uint8_t got[POOL_BYTES], slot[POOL_BYTES];
static struct reshard_piece pieces[PIECES_MAX];
static struct reshard_plan plan;

static struct world_end end_of(enum world_kind kind, uint32_t ranks, uint32_t order)
{
    return (struct world_end){
        .kind = kind, .ranks = ranks, .stages = 1, .page_tokens = 4, .order = order, .units = 1};
}

static void plan_of(const struct world_end *from, const struct world_end *to, uint64_t span)
{
    struct reshard_pair pair = {.from = &source.l, .to = &wanted.l};

    pool_fill(&source, from, pages_of(from, to));
    pool_fill(&wanted, to, pages_of(to, from));
    plan = (struct reshard_plan){.v = pieces, .room = PIECES_MAX};
    assert_int_equal(RESHARD_NONE, reshard_plan(&pair, span, &plan));
}

static void assert_whole_page(const struct reshard_piece *p)
{
    assert_int_equal(1, strided_rows(&p->shape));
    assert_int_equal(0, p->from.at);
    assert_int_equal(0, p->to.at);
    assert_int_equal(wanted.l.page_bytes, p->shape.row_bytes);
}

/* N3 */
TEST(reshard_between_equal_layouts_is_one_row_a_page)
{
    for (int kind = 0; kind < WORLD_KINDS; kind++)
        for (uint32_t order = 0; order < WORLD_ORDERS; order++) {
            struct world_end e = end_of((enum world_kind)kind, 1, order);

            plan_of(&e, &e, 0);
            assert_int_equal(1, plan.n);
            assert_whole_page(&plan.v[0]);
        }
}

/* X5: MLA */
TEST(reshard_of_replicated_pages_moves_one_and_copies_it_at_the_destination)
{
    struct world_end from = end_of(WORLD_MLA, 4, 0), to = end_of(WORLD_MLA, 8, 0);
    uint32_t has = 0;

    plan_of(&from, &to, 5);
    assert_int_equal(8, plan.n);
    assert_int_equal(PIECE_MOVE, plan.v[0].kind);
    assert_int_equal(5 % 4, plan.v[0].from.rank);
    assert_int_equal(5, plan.v[0].to.rank);
    for (uint32_t i = 0; i < plan.n; i++) {
        assert_whole_page(&plan.v[i]);
        if (i > 0) {
            assert_int_equal(PIECE_SPREAD, plan.v[i].kind);
            assert_int_equal(plan.v[0].to.rank, plan.v[i].from.rank);
        }
        has |= 1u << plan.v[i].to.rank;
    }
    assert_int_equal(0xff, has);
}

TEST(reshard_of_heads_between_token_rows_takes_a_row_for_each_token)
{
    struct world_end from = end_of(WORLD_MHA, 1, 0), to = end_of(WORLD_MHA, 2, 0);

    plan_of(&from, &to, 0);
    assert_int_equal(2, plan.n);
    for (uint32_t i = 0; i < 2; i++) {
        const struct reshard_piece *p = &plan.v[i];

        /* 4 heads of 4 elements of 2 bytes; layers, K and V, and tokens step alike: one loop */
        assert_int_equal(32, p->shape.row_bytes);
        assert_int_equal(WORLD_LAYERS * 2 * 4, strided_rows(&p->shape));
        assert_int_equal(WORLD_LAYERS * 2 * 4, p->shape.loop[STRIDED_LOOPS_MAX - 1].n);
        assert_int_equal(64, p->shape.loop[STRIDED_LOOPS_MAX - 1].from_stride);
        assert_int_equal(32 * i, p->from.at);
        assert_int_equal(i, p->to.rank);
    }
}

/* With heads outermost a range of heads is one run at both ends, of each layer. */
TEST(reshard_of_heads_between_head_rows_takes_long_rows)
{
    struct world_end from = end_of(WORLD_MHA, 4, 1), to = end_of(WORLD_MHA, 2, 1);

    plan_of(&from, &to, 0);
    assert_int_equal(4, plan.n);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(2 * 4 * 8, plan.v[i].shape.row_bytes); /* heads, tokens, dim */
        assert_int_equal(i, plan.v[i].from.rank);
        assert_int_equal(i / 2, plan.v[i].to.rank);
    }
}

/* Layer, K and V, token and head all have different steps: one loop too many, and the shortest of
 * them is unrolled. */
TEST(reshard_with_more_loops_than_a_shape_has_takes_the_fewest_pieces)
{
    struct world_end from = end_of(WORLD_MHA, 1, 0), to = end_of(WORLD_MHA, 1, 2);

    plan_of(&from, &to, 0);
    assert_int_equal(2, plan.n);
    assert_int_equal(plan.v[0].shape.row_bytes, plan.v[1].shape.row_bytes);
    assert_int_equal(wanted.l.page_bytes / 2, plan.v[1].to.at - plan.v[0].to.at);
}

/* Sections that are adjacent at both ends are one row, and others are not. */
TEST(reshard_joins_sections_that_adjoin_and_no_others)
{
    struct world_end from = end_of(WORLD_XBC, 1, 1), to = from;

    plan_of(&from, &to, 0);
    assert_int_equal(1, plan.n);
    to.reversed = true;
    plan_of(&from, &to, 0);
    assert_int_equal(3, plan.n);
    to.reversed = false;
    to.ranks = 2;
    plan_of(&from, &to, 0);
    assert_int_equal(6, plan.n);
}

/* X5: over a transfer all ranks that have a page take part. */
static void assert_all_take_their_share(enum world_kind kind, uint32_t from_tokens,
                                        uint32_t to_tokens)
{
    struct world_end from = end_of(kind, 8, 0), to = end_of(kind, 4, 0);
    uint64_t sent[8] = {0}, received[4] = {0}, copied[4] = {0};

    from.page_tokens = from_tokens;
    to.page_tokens = to_tokens;
    for (uint64_t span = 0; span < 8; span++) {
        plan_of(&from, &to, span);
        for (uint32_t i = 0; i < plan.n; i++) {
            const struct reshard_piece *p = &plan.v[i];
            uint64_t bytes = strided_bytes(&p->shape);

            if (p->kind == PIECE_MOVE) {
                sent[p->from.rank] += bytes;
                received[p->to.rank] += bytes;
            } else {
                copied[p->from.rank] += bytes;
            }
        }
    }
    for (uint32_t r = 0; r < 8; r++)
        assert_int_equal(sent[0], sent[r]);
    for (uint32_t r = 0; r < 4; r++) {
        assert_int_equal(received[0], received[r]);
        assert_int_equal(copied[0], copied[r]);
    }
    assert_true(sent[0] > 0 && copied[0] > 0);
}

TEST(reshard_of_what_several_ranks_hold_goes_round_among_them)
{
    assert_all_take_their_share(WORLD_MLA, 4, 4);
    assert_all_take_their_share(WORLD_MLA, 16, 4);
    assert_all_take_their_share(WORLD_MLA, 4, 16);
    assert_all_take_their_share(WORLD_GQA, 4, 4);
    assert_all_take_their_share(WORLD_XBC, 4, 4);
}

/* The pieces of one page of the destination are enough for it. */
TEST(reshard_of_one_page_needs_no_piece_of_another)
{
    struct world_end from = end_of(WORLD_GQA, 2, 0), to = end_of(WORLD_GQA, 8, 1);
    uint8_t *to_page[POOL_PAGES * POOL_RANKS];
    uint64_t page_bytes;
    struct reshard_memory m;

    from.page_tokens = 16;
    plan_of(&from, &to, 3);
    page_bytes = wanted.l.page_bytes;
    for (uint32_t i = 0; i < wanted.pages * wanted.ranks; i++)
        to_page[i] = got + i * page_bytes;
    m = (struct reshard_memory){{source.page, source.ranks}, {to_page, wanted.ranks}};
    assert_int_equal(4, wanted.pages);
    for (uint32_t page = 0; page < wanted.pages; page++) {
        struct reshard_plan one = {.v = plan.v};
        uint64_t at = page * wanted.ranks * page_bytes, n = wanted.ranks * page_bytes;

        while (one.v < plan.v + plan.n && one.v->to.page != page)
            one.v++;
        while (one.v + one.n < plan.v + plan.n && one.v[one.n].to.page == page)
            one.n++;
        memset(got, GAP_BYTE, wanted.bytes);
        reshard_carry(&one, &m);
        assert_memory_equal(got + at, wanted.memory + at, n);
        for (uint64_t i = 0; i < wanted.bytes; i++)
            assert_true((i >= at && i < at + n) || got[i] == GAP_BYTE);
    }
}

TEST(reshard_plan_without_room_says_how_many_pieces_and_writes_no_more_than_fit)
{
    struct world_end from = end_of(WORLD_HYBRID, 2, 0), to = end_of(WORLD_HYBRID, 8, 2);
    struct reshard_pair pair = {.from = &source.l, .to = &wanted.l};
    struct reshard_plan p = {.v = pieces};
    struct reshard_piece behind;
    uint32_t n;

    plan_of(&from, &to, 0);
    n = plan.n;
    assert_true(n > 2);
    for (p.room = 0; p.room < n; p.room++) {
        memset(&pieces[p.room], 0x77, sizeof pieces[0]);
        behind = pieces[p.room];
        assert_int_equal(RESHARD_ROOM, reshard_plan(&pair, 0, &p));
        assert_int_equal(n, p.n);
        assert_memory_equal(&behind, &pieces[p.room], sizeof behind);
    }
    assert_int_equal(RESHARD_NONE, reshard_plan(&pair, 0, &p));
}

/* A slot takes as many rows as fit, also a part of a piece, and at most its declared bytes. */
TEST(reshard_staging_fills_its_slots)
{
    static const struct reshard_staging ways[] = {{UINT64_MAX, 8}, {UINT64_MAX, 20},      {9, 1000},
                                                  {17, 64},        {UINT64_MAX, 1 << 16}, {0, 64}};
    struct world_end from = end_of(WORLD_MHA, 2, 0), to = end_of(WORLD_MHA, 4, 1);

    plan_of(&from, &to, 0);
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        const struct reshard_staging *s = &ways[w];
        struct reshard_parcel parcel = {.bytes = 0};
        uint64_t bytes = 0, staged = 0, before = s->slot_bytes;
        struct reshard_pages pages = {source.page, source.ranks};

        for (uint32_t i = 0; i < plan.n; i++)
            staged += piece_is_staged(s, &plan.v[i]) ? strided_bytes(&plan.v[i].shape) : 0;
        while (reshard_parcel_next(&plan, s, &parcel)) {
            assert_true(parcel.bytes <= s->slot_bytes);
            assert_true(before + plan.v[parcel.first.piece].shape.row_bytes > s->slot_bytes);
            memset(slot, GAP_BYTE, sizeof slot);
            reshard_pack(&plan, s, &parcel, &pages, slot);
            for (uint64_t i = parcel.bytes; i < parcel.bytes + 64; i++)
                assert_int_equal(GAP_BYTE, slot[i]);
            bytes += parcel.bytes;
            before = parcel.bytes;
        }
        assert_int_equal(staged, bytes);
    }
}

static void without_layers(struct reshard_layout *l)
{
    struct reshard_field *f = &l->field[0];
    uint32_t i = 0;

    while (f->axis[i].kind != AXIS_LAYER)
        i++;
    f->axis[i] = f->axis[--f->naxes];
}

/* A group of one layer needs no such axis. */
TEST(reshard_of_a_field_without_layers_goes_to_each_rank)
{
    struct world_end from = end_of(WORLD_MHA, 2, 0), to = end_of(WORLD_MHA, 4, 1);
    struct reshard_pair pair = {.from = &source.l, .to = &wanted.l};
    uint64_t bytes[POOL_RANKS] = {0};

    pool_fill(&source, &from, 1);
    pool_fill(&wanted, &to, 1);
    without_layers(&source.l);
    without_layers(&wanted.l);
    plan = (struct reshard_plan){.v = pieces, .room = PIECES_MAX};
    assert_int_equal(RESHARD_NONE, reshard_plan(&pair, 0, &plan));
    for (uint32_t i = 0; i < plan.n; i++) {
        assert_true(plan.v[i].from.rank < 2 && plan.v[i].to.rank < 4);
        bytes[plan.v[i].to.rank] += strided_bytes(&plan.v[i].shape);
    }
    for (uint32_t r = 0; r < 4; r++)
        assert_int_equal(world_bytes(WORLD_MHA, 4) / WORLD_LAYERS / 4, bytes[r]);
}
