/* X3, X7: bytes that arrive by a plan are compared with the source's checksums, unit by unit,
 * before they are used; replicated data is copied; and the page gets its own checksums. In host
 * memory, and on two GPUs of the stand-in, with kernels and without. */
#include <stdlib.h>
#include <string.h>

#include "reshard/stream.h"
#include "reshard/units.h"
#include "seam/mem/checksum.h"
#include "seam/mem/mem_reshard.h"
#include "seam/mem/mem_touch.h"
#include "standin/standin.h"
#include "testing/test.h"
#include "unit/rig/rig_reshard.h"

#define RANKS      8u
#define PIECES_MAX 4096u
#define UNITS_MAX  64u
#define POOL       0u
#define INDEX      3u
#define TURN       1u /* of the page at the source */
#ifdef TERN_ON_CPU
#define KERNELS_RUN 2u
#else
#define KERNELS_RUN 1u /* no C++ compiler has compiled them */
#endif

static struct {
    struct mem *mem;
    struct reshard_layout from, to;
    struct world_end to_end;
    struct reshard_piece pieces[PIECES_MAX], mapped[PIECES_MAX];
    struct reshard_plan plan, map;
    uint32_t map_of[RANKS + 1];
    uint8_t held[UNITS_MAX];
    uint64_t sums[UNITS_MAX];
    uint8_t source[RANKS][WORLD_PAGE_MAX], like[WORLD_PAGE_MAX];
} rig;

static const char on_gpus[RANKS_MAX][MEM_DEVICE_BYTES] = {
    STANDIN_UUID(0), STANDIN_UUID(1), STANDIN_UUID(0), STANDIN_UUID(1),
    STANDIN_UUID(0), STANDIN_UUID(1), STANDIN_UUID(0), STANDIN_UUID(1)};
static bool on_device;
static const struct reshard_part whole = {0, 1};
static const struct page_at page = {.group = 0, .index = INDEX, .gen = 1, .record = 7};

FIXTURE(rig_drop)
{
    on_device = false;
    mem_destroy(rig.mem);
    rig.mem = NULL;
    return 0;
}

TEST_EACH(NULL, rig_drop);

static void memory(void)
{
    struct mem_config c = {.tenants = 1,
                           .engines = 1,
                           .pools = 1,
                           .page_records = 64,
                           .sums_per_page = UNITS_MAX,
                           .page_bytes_min = rig.to.page_bytes,
                           .workers = 1,
                           .jobs = 2};
    struct group_layout group = {
        .page_tokens = 16, .units = rig.to.units, .page_bytes = rig.to.page_bytes};
    const char *why = NULL;

    mem_destroy(rig.mem);
    if (on_device) {
        c.device[0] = on_gpus;
        c.cuda_library = STANDIN_MEMORY;
        c.device_wait_ms = 60000; /* kernels are slow on a CPU */
    }
    c.tenant[0] = (struct tenant_config){.memory_bytes = 1u << 20, .regions = RANKS};
    assert_int_equal(mem_create(&c, &rig.mem, &why), TERN_OK);
    mem_pool_set(rig.mem, POOL, TIER_DEVICE, 0, 0, 1u << 20, rig.to.ranks, NULL, rig.to.ranks, 1,
                 &group);
}

static void open_pair(enum world_kind kind, uint32_t from_ranks, uint32_t to_ranks)
{
    struct world_end from = {
        .kind = kind, .ranks = from_ranks, .stages = 1, .page_tokens = 16, .order = 0, .units = 4};
    struct reshard_pair pair = {&rig.from, &rig.to};
    struct reshard_ready ready;
    uint32_t runs = UNITS_MAX;

    rig.to_end = from;
    rig.to_end.ranks = to_ranks;
    rig.to_end.order = 1;
    rig.to_end.units = 2;
    world_layout(&from, &rig.from);
    world_layout(&rig.to_end, &rig.to);
    rig.plan = (struct reshard_plan){.v = rig.pieces, .room = PIECES_MAX};
    rig.map = (struct reshard_plan){.v = rig.mapped, .room = PIECES_MAX};
    assert_int_equal(RESHARD_NONE, reshard_prepare(&pair, UINT64_MAX, &ready));
    assert_int_equal(RESHARD_NONE, reshard_plan_ready(&ready, TURN, &rig.plan));
    assert_int_equal(RESHARD_NONE, reshard_map_ready(&ready, TURN, &rig.map, rig.map_of));
    assert_int_equal(RESHARD_NONE, reshard_units(&rig.from, &runs, rig.held));
    for (uint32_t r = 0; r < from_ranks; r++) {
        world_fill(&from, r, 0, rig.source[r], NULL);
        for (uint32_t u = 0; u < rig.from.units; u++)
            rig.sums[r * rig.from.units + u] =
                checksum_unit(rig.source[r] + reshard_unit_from(&rig.from, u),
                              reshard_unit_end(&rig.from, u) - reshard_unit_from(&rig.from, u));
    }
    memory();
}

static void arrive(void)
{
    struct reshard_cursor c = {.piece = 0};
    struct reshard_run run;

    memset(rig.like, 0x77, rig.to.page_bytes);
    for (uint32_t r = 0; r < rig.to.ranks; r++)
        assert_true(
            mem_put(rig.mem, mem_page(rig.mem, POOL, r, 0, INDEX), rig.like, rig.to.page_bytes));
    while (reshard_cursor_next(&rig.plan, whole, &c, &run))
        assert_true(mem_put(rig.mem,
                            (uint8_t *)mem_page(rig.mem, POOL, run.to.rank, 0, INDEX) + run.to.at,
                            rig.source[run.from.rank] + run.from.at, run.bytes));
}

static bool landed(void)
{
    const struct mem_reshard way = {.from = &rig.from,
                                    .plan = &rig.plan,
                                    .map = &rig.map,
                                    .map_of = rig.map_of,
                                    .held = rig.held,
                                    .turn = TURN,
                                    .part = whole,
                                    .pages = 1};

    return mem_reshard_landed(rig.mem, POOL, &page, &way, rig.sums);
}

static void assert_pages(void)
{
    static uint8_t at[WORLD_PAGE_MAX];

    for (uint32_t r = 0, n = 0; r < rig.to.ranks; r++) {
        assert_true(mem_get(rig.mem, at, mem_page(rig.mem, POOL, r, 0, INDEX), rig.to.page_bytes));
        world_fill(&rig.to_end, r, 0, rig.like, NULL);
        assert_memory_equal(at, rig.like, rig.to.page_bytes);
        for (uint32_t u = 0; u < rig.to.units; u++, n++) {
            uint64_t first, end = checksum_unit_span(rig.to.page_bytes, rig.to.units, u, &first);

            assert_true(mem_sums(rig.mem, page.record)[n] ==
                        checksum_unit(at + first, end - first));
        }
    }
}

TEST(mem_reshard_what_is_right_is_copied_to_all_ranks_and_sealed_anew)
{
    static const enum world_kind kinds[] = {WORLD_MHA, WORLD_GQA, WORLD_MLA};

    for (size_t k = 0; k < 3; k++)
        for (uint32_t from = 1; from <= RANKS; from *= 2)
            for (uint32_t to = 1; to <= RANKS; to *= 2) {
                open_pair(kinds[k], from, to);
                arrive();
                assert_true(landed());
                assert_pages();
            }
}

/* Also with a wrong bit in the last row that arrived. */
static void lands_on_devices(enum world_kind kind, uint32_t from_ranks, uint32_t to_ranks)
{
    struct reshard_cursor c = {.piece = 0};
    struct reshard_run run = {.bytes = 0}, last = run;
    uint8_t *at, byte;

    open_pair(kind, from_ranks, to_ranks);
    arrive();
    assert_true(landed());
    assert_pages();
    while (reshard_cursor_next(&rig.plan, whole, &c, &run))
        last = run;
    at = (uint8_t *)mem_page(rig.mem, POOL, last.to.rank, 0, INDEX) + last.to.at;
    assert_true(mem_get(rig.mem, &byte, at, 1));
    byte ^= 1;
    assert_true(mem_put(rig.mem, at, &byte, 1));
    assert_false(landed());
}

TEST(mem_reshard_on_devices_is_the_same_with_kernels_and_without)
{
    struct mem_stats stats;

    on_device = true;
    for (uint32_t kernels = 0; kernels < KERNELS_RUN; kernels++) {
        setenv("STANDIN_CUDA_KERNELS", kernels ? "1" : "0", 1);
        lands_on_devices(WORLD_MHA, 4, 2);
        lands_on_devices(WORLD_GQA, 2, 8);
        lands_on_devices(WORLD_MLA, 4, 4);
        mem_stats(rig.mem, &stats);
        assert_int_equal(stats.work.rows_by_kernels > 0, kernels);
        assert_int_equal(stats.work.sums_by_kernels > 0, kernels);
        assert_int_equal(stats.work.sums_by_copies > 0, !kernels);
    }
    unsetenv("STANDIN_CUDA_KERNELS");
}

/* Every 61st byte of all that moved, each with another bit. */
TEST(mem_reshard_a_bit_that_is_wrong_anywhere_is_noticed)
{
    static const uint32_t ranks[][2] = {{1, 4}, {8, 2}, {4, 8}, {2, 2}};

    for (size_t k = 0; k < sizeof ranks / sizeof ranks[0]; k++) {
        uint64_t bytes, at = 0;

        open_pair(k % 2 ? WORLD_GQA : WORLD_MHA, ranks[k][0], ranks[k][1]);
        bytes = reshard_plan_bytes(&rig.plan, PIECE_MOVE);
        for (; at < bytes; at += 61) {
            struct reshard_cursor c = reshard_cursor_at(&rig.plan, whole, at);
            struct reshard_run run;

            arrive();
            assert_true(reshard_cursor_next(&rig.plan, whole, &c, &run));
            ((uint8_t *)mem_page(rig.mem, POOL, run.to.rank, 0, INDEX))[run.to.at] ^=
                (uint8_t)(1u << at % 8);
            assert_false(landed());
        }
        arrive();
        assert_true(landed());
    }
}

/* A rank of the source with the same data that does not agree sends nothing and gets no request. A
 * checksum of sent data counts, and one that the source never made is none. */
TEST(mem_reshard_checksums_count_where_their_rank_has_sent_something)
{
    open_pair(WORLD_MLA, 4, 2);
    for (uint32_t i = 0; i < 4 * rig.from.units; i++) {
        bool counts = i / rig.from.units == TURN;
        uint64_t right = rig.sums[i];

        arrive();
        rig.sums[i] ^= 1;
        assert_int_equal(landed(), !counts);
        rig.sums[i] = CHECKSUM_NONE;
        assert_int_equal(landed(), !counts);
        rig.sums[i] = right;
        assert_true(landed());
    }
}
