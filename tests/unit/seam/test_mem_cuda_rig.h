/* Memory of two GPUs of the stand-in, and of the host beside it, for tests of operations on pages
 * there: a pool on each of them, pages of two shapes, and a device that fails. Copies complete late
 * and in random order, and a CPU access to GPU memory ends the program. */
#ifndef TEST_MEM_CUDA_RIG_H
#define TEST_MEM_CUDA_RIG_H

#include "base/prng.h"
#include "seam/mem/checksum.h"
#include "seam/mem/mem_touch.h"
#include "standin/standin_open.h"
#include "testing/test.h"
#include "unit/rig/rig_mem.h"

#define MIB    (1u << 20)
#define PAGES  24u
#define DEVICE 0u /* pools: on two GPUs, their host tier, and one of the tenant without GPUs */
#define TIER   1u
#define NEAR   2u
#define PLACES 2u /* regions of the tenant on GPUs */

static const char uuids[RANKS_MAX][MEM_DEVICE_BYTES] = {STANDIN_UUID(0), STANDIN_UUID(1)};
static const struct group_layout groups[2] = {
    {.page_tokens = 64, .units = 3, .page_bytes = 600 * 1024}, /* units are no whole pieces */
    {.page_tokens = 64, .units = 1, .page_bytes = 4096},
};

static struct standin in;
static uint32_t wait_ms; /* limit for a device */
static struct mem *mem;
static struct taken back;

static inline struct mem_config config_of(const char *library)
{
    struct mem_config c = {.tenants = 2,
                           .engines = 1,
                           .pools = 3,
                           .page_records = 256,
                           .sums_per_page = 6,
                           .page_bytes_min = 4096,
                           .workers = 2,
                           .jobs = 16,
                           .cuda_library = library,
                           .device_wait_ms = wait_ms};

    c.tenant[0] = (struct tenant_config){
        .memory_bytes = 17 * MIB, .host_bytes = 17 * MIB, .regions = PLACES, .sessions_max = 1};
    c.tenant[1] = (struct tenant_config){.memory_bytes = 2 * MIB, .regions = 1, .sessions_max = 1};
    c.device[0] = uuids;
    return c;
}

static inline enum tern_err start(const char **ret_why)
{
    struct mem_config c = config_of(STANDIN_MEMORY);

    return mem_create(&c, &mem, ret_why);
}

static inline void pools_set(void)
{
    mem_pool_set(mem, DEVICE, TIER_DEVICE, 0, MIB, 16 * MIB, PLACES, NULL, PLACES, 2, groups);
    mem_pool_set(mem, TIER, TIER_HOST, 0, 0, 16 * MIB, PLACES, NULL, PLACES, 2, groups);
    mem_pool_set(mem, NEAR, TIER_DEVICE, 1, 0, 2 * MIB, 1, NULL, 1, 2, groups);
}

static inline void start_well(void)
{
    const char *why;

    assert_int_equal(start(&why), TERN_OK);
    pools_set();
}

static inline uint32_t left(void)
{
    struct standin_live live = in.live();

    return live.contexts + live.handles + live.maps + live.ranges + live.streams + live.events +
           live.pinned + live.modules;
}

/* Called before and after each case. */
static inline void rig_begin(void)
{
    in = standin_open(STANDIN_MEMORY);
    in.let_fail("", 0, CUDA_SUCCESS);
    memset(&back, 0, sizeof back);
    mem = NULL;
}

static inline void rig_end(void)
{
    mem_destroy(mem);
    mem = NULL;
    dlclose(in.library);
}

/* ---- pages ---- */

static uint8_t expected[PLACES][PAGES][600 * 1024];

static inline struct page_at page_of(uint32_t i)
{
    return (struct page_at){
        .group = i % 2, .index = i % 2 ? 3800 + i : 1 + i / 2, .gen = 1, .record = i};
}

static inline uint64_t bytes_of(uint32_t i)
{
    return groups[i % 2].page_bytes;
}

/* Writes random bytes to each page, by the daemon's own copies. */
static inline void pages_write(uint32_t pool)
{
    struct prng p;

    prng_init(&p, pool + 1);
    for (uint32_t i = 0; i < PAGES; i++)
        for (uint32_t r = 0; r < PLACES; r++) {
            struct page_at at = page_of(i);

            for (uint64_t b = 0; b < bytes_of(i); b++)
                expected[r][i][b] = (uint8_t)prng_u64(&p);
            assert_true(mem_put(mem, mem_page(mem, pool, r, at.group, at.index), expected[r][i],
                                bytes_of(i)));
        }
}

static inline void page_look(uint32_t i, uint32_t r, uint8_t *ret)
{
    struct page_at at = page_of(i);

    in.look(ret, (CUdeviceptr)(uintptr_t)mem_page(mem, DEVICE, r, at.group, at.index), bytes_of(i));
}

static inline void assert_device_pages(void)
{
    static uint8_t bytes[600 * 1024];

    for (uint32_t i = 0; i < PAGES; i++)
        for (uint32_t r = 0; r < PLACES; r++) {
            page_look(i, r, bytes);
            assert_memory_equal(bytes, expected[r][i], bytes_of(i));
        }
}

static inline uint64_t sum_expected(uint32_t i, uint32_t r, uint32_t unit)
{
    uint64_t from, to = checksum_unit_span(bytes_of(i), groups[i % 2].units, unit, &from);

    return checksum_unit(expected[r][i] + from, to - from);
}

static inline void pages_list(struct page_at *ret, uint32_t records)
{
    for (uint32_t i = 0; i < PAGES; i++) {
        ret[i] = page_of(i);
        ret[i].record += records;
    }
}

/* ---- a device that fails ---- */

static inline void assert_near_works(uint32_t events)
{
    struct page_at at = {.group = 1, .index = 1, .gen = 1, .record = 200};

    mem_seal(mem, (struct seal_id){9, events}, NEAR, &at, 1);
    take_events(mem, &back, events);
    assert_true(mem_sums(mem, 200)[0] != CHECKSUM_NONE);
}

static inline void assert_lost(const char *uuid, const char *reason)
{
    const char *which = NULL, *why = NULL;
    struct mem_stats stats;
    uint64_t bytes;
    bool lost;

    mem_stats(mem, &stats);
    assert_int_equal(stats.devices_lost, 1);
    assert_true(mem_device_lost(mem, &which, &why));
    assert_string_equal(which, uuid);
    assert_non_null(strstr(why, reason));
    assert_false(mem_device_lost(mem, &which, &why));
    mem_region_device(mem, 0, 0, &bytes, &lost);
    assert_int_equal(lost, strcmp(uuids[0], uuid) == 0);
}

#endif
