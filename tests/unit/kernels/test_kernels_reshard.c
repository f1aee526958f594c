/* The daemon's plans of resharding as the kernel takes them: the reference, and the kernel on the
 * CPU where it is built, give the daemon's result for every kind of pool. */
#include "unit/reshard/reshard_rig.h"

#include "base/prng.h"
#include "kernels/reference.h"
#ifdef TERN_ON_CPU
#include "unit/kernels/on_cpu_run.h"
#endif

#define PAGES_MAX (POOL_PAGES * POOL_RANKS)
#define ROUNDS    400

static struct pool source, wanted;
static struct reshard_piece pieces[PIECES_MAX];
static struct kernels_piece ready[PIECES_MAX];
static struct kernels_tile tiles[PIECES_MAX * 4];
static _Alignas(16) uint8_t from_bytes[POOL_BYTES + 16 * PAGES_MAX],
    got[POOL_BYTES + 16 * PAGES_MAX];
static uint64_t from_pages[PAGES_MAX], to_pages[PAGES_MAX];

static uint64_t address(const void *p)
{
    return (uint64_t)(uintptr_t)p;
}

/* A pool's pages, each at a multiple of 16. */
static void pages_place(const struct pool *pool, uint8_t *bytes, uint64_t *page)
{
    uint64_t step = (pool->l.page_bytes + 15) / 16 * 16;

    for (uint32_t i = 0; i < pool->pages * pool->ranks; i++) {
        page[i] = i * step;
        memcpy(bytes + page[i], pool->page[i], pool->l.page_bytes);
    }
}

/* The pieces of one kind, as one launch. */
static void run_kind(const struct reshard_plan *plan, enum reshard_piece_kind kind, struct prng *p)
{
    const struct pool *from = kind == PIECE_SPREAD ? &wanted : &source;
    union kernels_args a = {
        .reshard = {.from = address(kind == PIECE_SPREAD ? got : from_bytes),
                    .to = address(got),
                    .from_pages = address(kind == PIECE_SPREAD ? to_pages : from_pages),
                    .to_pages = address(to_pages),
                    .from_width = from->pages * from->ranks,
                    .to_width = wanted.pages * wanted.ranks,
                    .pieces = address(ready),
                    .tiles = address(tiles),
                    .spans = 1}};
    struct kernels_launch l;

    for (uint32_t i = 0; i < plan->n; i++) {
        const struct reshard_piece *x = &plan->v[i];
        struct kernels_end f = {.page = x->from.page * from->ranks + x->from.rank,
                                .at = x->from.at};
        struct kernels_end t = {.page = x->to.page * wanted.ranks + x->to.rank, .at = x->to.at};

        if (x->kind == kind)
            assert_int_equal(kernels_piece_make(&x->shape, &f, &t, &ready[a.reshard.npieces++]),
                             KERNELS_REFUSED_NONE);
    }
    if (a.reshard.npieces == 0)
        return;
    a.reshard.ntiles =
        (uint32_t)kernels_tiles(ready, a.reshard.npieces, tiles, sizeof tiles / sizeof tiles[0]);
    assert_true(a.reshard.ntiles <= sizeof tiles / sizeof tiles[0]);
    assert_int_equal(kernels_prepare(KERNELS_RESHARD, &a, &l), KERNELS_REFUSED_NONE);
    if (!p)
        reference_run(KERNELS_RESHARD, &a);
#ifdef TERN_ON_CPU
    else
        on_cpu_launch(KERNELS_RESHARD, &l, &a, p);
#endif
}

static void run(const struct reshard_plan *plan, struct prng *p)
{
    memset(got, GAP_BYTE, sizeof got);
    for (uint32_t i = 0; i < wanted.pages * wanted.ranks; i++)
        to_pages[i] = i * ((wanted.l.page_bytes + 15) / 16 * 16);
    run_kind(plan, PIECE_MOVE, p);
    run_kind(plan, PIECE_SPREAD, p);
    for (uint32_t i = 0; i < wanted.pages * wanted.ranks; i++)
        if (memcmp(got + to_pages[i], wanted.page[i], wanted.l.page_bytes) != 0) {
            char a[96], b[96];

            fail_msg("%s: %s -> %s", p ? "kernel" : "reference", end_text(&source.e, a),
                     end_text(&wanted.e, b));
        }
}

static struct world_end end_random(enum world_kind kind, struct prng *p)
{
    return (struct world_end){.kind = kind,
                              .ranks = 1u << prng_below(p, 4),
                              .stages = 1 + prng_below(p, 2),
                              .page_tokens = world_is_state(kind) ? 0 : 4u << prng_below(p, 2),
                              .order = prng_below(p, WORLD_ORDERS),
                              .gap = prng_below(p, 3) ? 0 : 4 * prng_below(p, 5),
                              .units = 1,
                              .whole = kind == WORLD_WHOLE && prng_below(p, 2),
                              .reversed = kind >= WORLD_XBC && prng_below(p, 2)};
}

TEST(plans_of_the_daemon_are_carried_out)
{
    struct prng p, order;
    uint32_t carried = 0;

    prng_init(&p, 7);
    prng_init(&order, 8);
    for (int round = 0; round < ROUNDS; round++) {
        enum world_kind kind = (enum world_kind)prng_below(&p, WORLD_KINDS);
        struct world_end from = end_random(kind, &p), to = end_random(kind, &p);
        struct reshard_plan plan = {.v = pieces, .room = PIECES_MAX};
        struct reshard_pair pair = {.from = &source.l, .to = &wanted.l};

        pool_fill(&source, &from, pages_of(&from, &to));
        pool_fill(&wanted, &to, pages_of(&to, &from));
        if (reshard_plan(&pair, (uint64_t)round, &plan) != RESHARD_NONE)
            continue;
        pages_place(&source, from_bytes, from_pages);
        run(&plan, NULL);
#ifdef TERN_ON_CPU
        run(&plan, &order);
#endif
        carried++;
    }
    print_message("%u plans\n", carried);
    assert_true(carried > ROUNDS / 2);
}

TEST(pieces_and_tiles_that_make_no_sense_are_refused)
{
    static const struct strided good = {
        .row_bytes = 6,
        .loop = {{.n = 2, .from_stride = 100, .to_stride = 100}, {.n = 1}, {.n = 1}}};
    static const struct kernels_end end = {.page = 0, .at = 4};
    struct strided bad = good;
    struct kernels_piece x;
    union kernels_args a = {.reshard = {.npieces = 2, .ntiles = 1, .from_width = 1, .to_width = 1}};
    struct kernels_launch l;

    assert_int_equal(kernels_piece_make(&good, &end, &end, &x), KERNELS_REFUSED_NONE);
    assert_int_equal(x.width, 2);
    assert_int_equal(x.row_vectors.by, 3);
    bad.loop[1].n = 0;
    assert_int_equal(kernels_piece_make(&bad, &end, &end, &x), KERNELS_REFUSED_ROWS);
    bad.loop[1].n = 1ull << 30;
    assert_int_equal(kernels_piece_make(&bad, &end, &end, &x), KERNELS_REFUSED_ROWS);
    bad = good;
    bad.row_bytes = 0;
    assert_int_equal(kernels_piece_make(&bad, &end, &end, &x), KERNELS_REFUSED_ROWS);
    bad.row_bytes = 1ull << 33;
    assert_int_equal(kernels_piece_make(&bad, &end, &end, &x), KERNELS_REFUSED_ROWS);
    assert_int_equal(kernels_prepare(KERNELS_RESHARD, &a, &l), KERNELS_REFUSED_TILES);
    a.reshard.ntiles = 2;
    assert_int_equal(kernels_prepare(KERNELS_RESHARD, &a, &l), KERNELS_REFUSED_NONE);
    assert_int_equal(l.grid, 0);
    a.reshard.from = 8;
    assert_int_equal(kernels_prepare(KERNELS_RESHARD, &a, &l), KERNELS_REFUSED_ALIGNED);
}
