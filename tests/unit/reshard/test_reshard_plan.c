/* N3, X5: pages of every pair of layouts, moved by their plan, are right byte for byte; each byte
 * is written once, and nothing moves twice. TERN_FULL=1: more sizes, gaps and turns. The expected
 * bytes come from unit/rig/rig_reshard.c, which knows no plan. */
#include "reshard_rig.h"

struct counts {
    uint64_t pairs, pieces, pieces_most, moved, needed, spread, wrong;
};

static struct pool source, wanted;
static uint8_t got[POOL_BYTES], staged[POOL_BYTES], writes[POOL_BYTES], slot[POOL_BYTES];
static struct reshard_piece pieces[PIECES_MAX];

static struct reshard_memory memory_at(uint8_t *page[POOL_PAGES * POOL_RANKS], uint8_t *bytes)
{
    for (uint32_t i = 0; i < wanted.pages * wanted.ranks; i++)
        page[i] = bytes + i * wanted.l.page_bytes;
    memset(bytes, GAP_BYTE, wanted.bytes);
    return (struct reshard_memory){.from = {.page = source.page, .ranks = source.ranks},
                                   .to = {.page = page, .ranks = wanted.ranks}};
}

static void fail_pair(const char *what)
{
    char a[96], b[96];

    fail_msg("%s: %s -> %s", what, end_text(&source.e, a), end_text(&wanted.e, b));
}

/* Each byte of a field of each page of the destination is written once, no other byte is, and reads
 * stay within fields too. */
static void check_writes(const struct reshard_plan *p)
{
    memset(writes, 0, wanted.bytes);
    for (uint32_t i = 0; i < p->n; i++) {
        const struct reshard_piece *x = &p->v[i];
        const struct pool *from = x->kind == PIECE_SPREAD ? &wanted : &source;
        uint8_t *to = writes + end_number(&x->to, &wanted) * wanted.l.page_bytes + x->to.at;

        (void)end_number(&x->from, from);
        EACH_ROW(&x->shape, a, b, c)
        {
            uint64_t at = x->from.at + shape_at(&x->shape, a, b, c);
            uint8_t *row = to + shape_to(&x->shape, a, b, c);

            if (at + x->shape.row_bytes > from->l.page_bytes ||
                memchr(from->held + at, 0, x->shape.row_bytes))
                fail_pair("a gap is read");
            for (uint64_t k = 0; k < x->shape.row_bytes; k++)
                row[k]++;
        }
    }
    for (uint64_t at = 0; at < wanted.bytes; at += wanted.l.page_bytes)
        if (memcmp(writes + at, wanted.held, wanted.l.page_bytes) != 0)
            fail_pair("a byte is not written once");
}

static bool rows_adjoin(const struct reshard_piece *a, const struct reshard_piece *b)
{
    for (int k = 0; k < STRIDED_LOOPS_MAX; k++)
        if (memcmp(&a->shape.loop[k], &b->shape.loop[k], sizeof a->shape.loop[k]) != 0)
            return false;
    return a->from.at + a->shape.row_bytes == b->from.at &&
           a->to.at + a->shape.row_bytes == b->to.at;
}

/* A loop with a larger step at the destination is farther out. */
static bool loops_in_order(const struct strided *s)
{
    uint64_t stride = UINT64_MAX;

    for (int k = 0; k < STRIDED_LOOPS_MAX; k++) {
        if (s->loop[k].n == 1)
            continue;
        if (s->loop[k].to_stride > stride)
            return false;
        stride = s->loop[k].to_stride;
    }
    return true;
}

/* The order that the header promises, with adjacent rows joined. */
static void check_order(const struct reshard_plan *p)
{
    for (uint32_t i = 0; i < p->n; i++)
        if (!loops_in_order(&p->v[i].shape))
            fail_pair("the loops are not in order");
    for (uint32_t i = 1; i < p->n; i++) {
        const struct reshard_piece *x = &p->v[i - 1], *y = &p->v[i];

        if (x->to.page > y->to.page)
            fail_pair("the pages are not in order");
        if (x->to.page == y->to.page && x->kind > y->kind)
            fail_pair("something moves behind what is spread");
        if (x->kind == y->kind && x->from.rank == y->from.rank && x->to.rank == y->to.rank &&
            x->from.page == y->from.page && x->to.page == y->to.page &&
            (rows_adjoin(x, y) || rows_adjoin(y, x)))
            fail_pair("two pieces adjoin");
    }
}

static uint64_t bytes_wrong(const uint8_t *bytes)
{
    uint64_t n = 0;

    if (memcmp(bytes, wanted.memory, wanted.bytes) == 0)
        return 0;
    for (uint64_t i = 0; i < wanted.bytes; i++)
        n += bytes[i] != wanted.memory[i];
    return n;
}

static void check_carried(const struct reshard_plan *p, uint64_t seed, struct counts *io)
{
    static const struct reshard_staging ways[] = {
        {UINT64_MAX, POOL_BYTES}, {UINT64_MAX, 100}, {24, 64}, {64, 1000}, {1, 64}};
    uint8_t *to[POOL_PAGES * POOL_RANKS];
    struct reshard_memory m = memory_at(to, got);

    reshard_carry(p, &m);
    io->wrong += bytes_wrong(got);
    m = memory_at(to, staged);
    reshard_carry_staged(p, &ways[seed % (sizeof ways / sizeof *ways)], &m, slot);
    if (memcmp(got, staged, wanted.bytes) != 0)
        fail_pair("packed and unpacked it is something else");
}

static void check_pair(uint64_t span, struct counts *io)
{
    struct reshard_pair pair = {.from = &source.l, .to = &wanted.l};
    struct reshard_plan p = {.v = NULL};
    uint64_t moved, needed;
    uint32_t n;

    assert_int_equal(RESHARD_ROOM, reshard_plan(&pair, span, &p));
    n = p.n;
    p = (struct reshard_plan){.v = pieces, .room = PIECES_MAX};
    if (reshard_plan(&pair, span, &p) != RESHARD_NONE || p.n != n)
        fail_pair("no plan, or another number of pieces");
    check_writes(&p);
    check_order(&p);
    check_carried(&p, io->pairs, io);
    moved = reshard_plan_bytes(&p, PIECE_MOVE);
    needed = world_bytes(wanted.e.kind, wanted.pages * wanted.e.page_tokens);
    if (moved * 100 > needed * 102)
        fail_pair("more moves than has to");
    io->pairs++;
    io->pieces += p.n;
    io->pieces_most = p.n > io->pieces_most ? p.n : io->pieces_most;
    io->moved += moved;
    io->needed += needed;
    io->spread += reshard_plan_bytes(&p, PIECE_SPREAD);
}

static const uint32_t ordinary_tokens[][2] = {{4, 4}, {4, 8}, {4, 16}, {8, 4}, {16, 4}};
static const uint32_t full_tokens[][2] = {{4, 4}, {4, 8},  {4, 16}, {8, 4}, {16, 4}, {1, 1},
                                          {1, 4}, {2, 16}, {3, 6},  {6, 3}, {16, 16}};

static void each_pair(enum world_kind kind, const uint32_t tokens[2], uint32_t gap,
                      struct counts *io)
{
    struct world_end from = {
        .kind = kind, .ranks = 1, .stages = 1, .units = 1, .page_tokens = tokens[0], .gap = gap};

    do {
        struct world_end to = from;

        to.ranks = to.stages = 1;
        to.order = 0;
        to.whole = to.reversed = false;
        to.page_tokens = tokens[1];
        to.gap = gap * 3;
        pool_fill(&source, &from, pages_of(&from, &to));
        do {
            pool_fill(&wanted, &to, pages_of(&to, &from));
            check_pair(io->pairs, io);
        } while (end_next(&to));
    } while (end_next(&from));
}

static void counts_print(const char *name, const struct counts *c)
{
    printf("%-16s %7lu pairs %6.1f pieces (most %4lu) moved/needed %.4f  spread/needed %.2f  "
           "wrong_bytes %lu\n",
           name, (unsigned long)c->pairs, (double)c->pieces / (double)c->pairs,
           (unsigned long)c->pieces_most, (double)c->moved / (double)c->needed,
           (double)c->spread / (double)c->needed, (unsigned long)c->wrong);
}

/* N3, X5 */
TEST(reshard_of_every_pair_of_layouts_gives_the_right_bytes_and_moves_each_once)
{
    bool full = getenv("TERN_FULL") != NULL;
    const uint32_t(*tokens)[2] = full ? full_tokens : ordinary_tokens;
    size_t ntokens = full ? sizeof full_tokens / sizeof *full_tokens
                          : sizeof ordinary_tokens / sizeof *ordinary_tokens;
    uint64_t wrong = 0, pairs = 0;

    for (int kind = 0; kind < WORLD_KINDS; kind++) {
        struct counts c = {.pairs = 0};

        for (size_t i = 0; i < (world_is_state((enum world_kind)kind) ? 1 : ntokens); i++)
            for (uint32_t gap = i == 0 || full ? 2 : 1; gap-- > 0;)
                each_pair((enum world_kind)kind, tokens[i], 8 * gap, &c);
        counts_print(world_name((enum world_kind)kind), &c);
        assert_true(c.moved * 100 <= c.needed * 102);
        wrong += c.wrong;
        pairs += c.pairs;
    }
    printf("pairs=%lu wrong_bytes=%lu\n", (unsigned long)pairs, (unsigned long)wrong);
    assert_int_equal(0, wrong);
}
