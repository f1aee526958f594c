/* mem over memfd: geometry, sealing, zeroing, checksums, control pages, and what a hostile mapper
 * can do. */
#include "testing/test.h"
#include "unit/rig/rig_holes.h"
#include "unit/rig/rig_lost.h"
#include "unit/rig/rig_mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/prng.h"
#include "seam/mem/checksum.h"
#include "seam/mem/mem_fault.h"
#include "seam/mem/mem_region.h"
#include "seam/mem/workers.h"
#include "shell/config/config_table.h"

#define MIB (1u << 20)

static struct rig {
    struct mem *mem;
    struct taken back;
} rig;

static const struct group_layout groups[2] = {
    {.page_tokens = 64, .units = 2, .page_bytes = 16384},
    {.page_tokens = 64, .units = 3, .page_bytes = 4096},
};

static struct mem_config config_small(void)
{
    struct mem_config c = {.tenants = 2,
                           .engines = 3,
                           .pools = 2,
                           .page_records = 2048,
                           .page_bytes_min = 4096,
                           .sums_per_page = 6,
                           .workers = 2,
                           .jobs = 8,
                           .incarnation = 0x1234567890abcdefu};

    c.tenant[0] = (struct tenant_config){.memory_bytes = 4 * MIB, .regions = 2, .sessions_max = 1};
    c.tenant[1] = (struct tenant_config){.memory_bytes = 5 * MIB, .regions = 1, .sessions_max = 1};
    return c;
}

static void rig_init(void)
{
    struct mem_config c = config_small();
    const char *why = NULL;

    memset(&rig, 0, sizeof rig);
    assert_int_equal(mem_create(&c, &rig.mem, &why), TERN_OK);
    mem_pool_set(rig.mem, 0, TIER_DEVICE, 0, MIB, 2 * MIB, 2, NULL, 2, 2, groups);
}

/* Destroys the case's memory, if it has one. */
FIXTURE(rig_drop)
{
    mem_destroy(rig.mem);
    rig.mem = NULL;
    return 0;
}

TEST_EACH(NULL, rig_drop);

TEST(mem_page_lies_where_the_layout_says)
{
    uint8_t *base, *other;

    rig_init();
    base = mem_page(rig.mem, 0, 0, 0, 0);
    other = mem_page(rig.mem, 0, 1, 0, 0);
    assert_ptr_equal(mem_page(rig.mem, 0, 0, 0, 3), base + 3 * 16384);
    assert_ptr_equal(mem_page(rig.mem, 0, 1, 1, 5), other + 5 * 4096);
    assert_int_equal(mem_group(rig.mem, 0, 1)->page_bytes, 4096);
    assert_int_equal(mem_group(rig.mem, 0, 1)->units, 3);
    assert_int_equal(mem_place(rig.mem, 0)->transfer_regions, 2);
}

/* All memory is touched at the start: missing memory fails the start, and not a transfer. */
TEST(mem_regions_are_resident_from_the_start)
{
    const long page = sysconf(_SC_PAGESIZE);
    static unsigned char there[5 * MIB / 4096];

    rig_init();
    for (uint32_t t = 0; t < 2; t++)
        for (uint32_t r = 0; r < 2 - t; r++) {
            uint64_t bytes;
            uint8_t *base = mem_region_base(rig.mem, t, r, &bytes);

            assert_int_equal(bytes, (4 + t) * MIB);
            assert_true(page >= 4096);
            assert_int_equal(mincore(base, bytes, there), 0);
            for (uint64_t i = 0; i < bytes / (uint64_t)page; i++)
                assert_true(there[i] & 1);
        }
}

/* Ranks with equal data: pages for the first are copied to the others, with their checksums. */
TEST(mem_page_of_ranks_that_hold_alike_is_spread_with_its_checksums)
{
    const struct page_at at = {.group = 1, .index = 5, .gen = 1, .record = 7};
    uint8_t *first, *second;

    rig_init();
    mem_pool_set(rig.mem, 0, TIER_DEVICE, 0, MIB, 2 * MIB, 2, NULL, 1, 2, groups);
    first = mem_page(rig.mem, 0, 0, 1, 5);
    second = mem_page(rig.mem, 0, 1, 1, 5);
    for (uint32_t i = 0; i < groups[1].page_bytes; i++)
        first[i] = (uint8_t)(i * 7 >> 2);
    for (uint32_t u = 0; u < groups[1].units; u++)
        mem_sums(rig.mem, 7)[u] = 1000 + u;
    assert_true(mem_spread(rig.mem, 0, &at));
    assert_memory_equal(first, second, groups[1].page_bytes);
    for (uint32_t u = 0; u < 2 * groups[1].units; u++)
        assert_int_equal(mem_sums(rig.mem, 7)[u], 1000 + u % groups[1].units);
}

TEST(mem_region_fd_maps_the_same_bytes)
{
    uint8_t *map;

    rig_init();
    map = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, mem_region_fd(rig.mem, 0, 1), 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    map[MIB + 2 * 16384] = 0x5a; /* the pool starts at 1 MiB */
    assert_int_equal(*(uint8_t *)mem_page(rig.mem, 0, 1, 0, 2), 0x5a);
    assert_int_equal(*(uint8_t *)mem_page(rig.mem, 0, 0, 0, 2), 0);
    munmap(map, 4 * MIB);
}

TEST(mem_seal_computes_each_unit_of_each_region)
{
    struct prng p;
    struct page_at pages[200];

    rig_init();
    prng_init(&p, 3);
    for (uint32_t i = 0; i < 200; i++) {
        pages[i] = (struct page_at){.group = i & 1, .index = 1 + i / 2, .gen = 1, .record = 10 + i};
        if (pages[i].group == 1)
            pages[i].index += 408; /* beyond group 0's bytes: 102 * 16384 / 4096 */
        for (uint32_t r = 0; r < 2; r++) {
            uint8_t *at = mem_page(rig.mem, 0, r, pages[i].group, pages[i].index);

            for (uint32_t b = 0; b < groups[pages[i].group].page_bytes; b++)
                at[b] = (uint8_t)prng_u64(&p);
        }
    }
    mem_seal(rig.mem, (struct seal_id){4, 9}, 0, pages, 200);
    take_events(rig.mem, &rig.back, 1);
    assert_int_equal(rig.back.got[0].kind, EV_SEALED);
    assert_true(seal_id_equal(rig.back.got[0].sealed.job[0], (struct seal_id){4, 9}));
    for (uint32_t i = 0; i < 200; i++) {
        const struct group_layout *g = &groups[pages[i].group];

        for (uint32_t r = 0; r < 2; r++) {
            for (uint32_t u = 0; u < g->units; u++) {
                const uint8_t *at = mem_page(rig.mem, 0, r, pages[i].group, pages[i].index);
                uint64_t from, to = checksum_unit_span(g->page_bytes, g->units, u, &from);

                assert_int_equal(mem_sums(rig.mem, pages[i].record)[r * g->units + u],
                                 checksum_unit(at + from, to - from));
            }
        }
    }
    assert_int_equal(mem_sums(rig.mem, 9)[0], 0);
    assert_int_equal(mem_sums(rig.mem, 210)[0], 0);
}

TEST(mem_zero_touches_the_pool_and_nothing_else)
{
    uint8_t *map[2];

    rig_init();
    for (uint32_t r = 0; r < 2; r++) {
        map[r] = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED,
                      mem_region_fd(rig.mem, 0, r), 0);
        assert_ptr_not_equal(map[r], MAP_FAILED);
        memset(map[r], 0xee, 4 * MIB);
    }
    mem_zero(rig.mem, (struct pool_id){0, 77});
    take_events(rig.mem, &rig.back, 1);
    assert_int_equal(rig.back.got[0].kind, EV_ZEROED);
    assert_true(pool_id_equal(rig.back.got[0].zeroed.pool, (struct pool_id){0, 77}));
    for (uint32_t r = 0; r < 2; r++) {
        for (uint32_t i = 0; i < 4 * MIB; i++)
            assert_int_equal(map[r][i], i >= MIB && i < 3 * MIB ? 0 : 0xee);
        munmap(map[r], 4 * MIB);
    }
}

/* T22: memory that one tenant frees does not delay another tenant's memory. */
TEST(mem_zeroing_takes_turns_among_tenants)
{
    struct mem_config c = config_small();
    const char *why = NULL;

    memset(&rig, 0, sizeof rig);
    c.workers = 1;
    c.tenant[0].memory_bytes = 64 * MIB;
    assert_int_equal(mem_create(&c, &rig.mem, &why), TERN_OK);
    mem_pool_set(rig.mem, 0, TIER_DEVICE, 0, 0, 64 * MIB, 1, NULL, 1, 2, groups);
    mem_pool_set(rig.mem, 1, TIER_DEVICE, 1, 0, 4 * MIB, 1, NULL, 1, 2, groups);
    for (uint32_t gen = 1; gen <= 3; gen++)
        mem_zero(rig.mem, (struct pool_id){0, gen});
    mem_zero(rig.mem, (struct pool_id){1, 1});
    take_events(rig.mem, &rig.back, 4);
    assert_int_equal(rig.back.got[0].zeroed.pool.slot, 1);
    for (uint32_t i = 1; i < 4; i++)
        assert_true(pool_id_equal(rig.back.got[i].zeroed.pool, (struct pool_id){0, i}));
}

/* Memory is freed while there is always a page to be sealed. */
TEST(mem_zeroing_does_not_wait_for_the_last_seal)
{
    const struct group_layout large = {.page_tokens = 64, .units = 1, .page_bytes = MIB};
    struct mem_config c = config_small();
    struct page_at pages[60];
    const char *why = NULL;

    memset(&rig, 0, sizeof rig);
    c.workers = 1;
    c.tenant[0].memory_bytes = 64 * MIB;
    c.tenant[1].memory_bytes = 8 * MIB;
    assert_int_equal(mem_create(&c, &rig.mem, &why), TERN_OK);
    mem_pool_set(rig.mem, 0, TIER_DEVICE, 0, 0, 64 * MIB, 1, NULL, 1, 1, &large);
    mem_pool_set(rig.mem, 1, TIER_DEVICE, 1, 0, 8 * MIB, 1, NULL, 1, 1, &large);
    for (uint32_t i = 0; i < 60; i++)
        pages[i] = (struct page_at){.index = 1 + i, .gen = 1, .record = 1 + i};
    for (uint32_t j = 0; j < 6; j++)
        mem_seal(rig.mem, (struct seal_id){j, 1}, 0, pages, 60);
    mem_zero(rig.mem, (struct pool_id){1, 1});
    take_events(rig.mem, &rig.back, 7);
    assert_int_equal(rig.back.got[6].kind, EV_SEALED);
}

/* As many jobs as are allowed at once, and again from where they stopped; none lost, none twice. */
TEST(mem_jobs_to_the_limit_all_come_back)
{
    rig_init();
    mem_pool_set(rig.mem, 1, TIER_DEVICE, 1, 0, 2 * MIB, 1, NULL, 1, 2,
                 groups); /* as in the daemon, none seals what another zeroes */
    for (uint32_t round = 0; round < 50; round++) {
        uint64_t seen = 0;

        rig.back.ngot = 0;
        for (uint32_t j = 0; j < 7; j++) {
            struct page_at page = {.group = 0, .index = 1 + j, .gen = 1, .record = 1 + j};

            mem_seal(rig.mem, (struct seal_id){j, round}, 0, &page, j == 3 ? 0 : 1);
        }
        mem_zero(rig.mem, (struct pool_id){1, round});
        take_events(rig.mem, &rig.back, 8);
        for (uint32_t i = 0; i < 8; i++) {
            bool zeroed = rig.back.got[i].kind == EV_ZEROED;
            uint32_t slot =
                zeroed ? rig.back.got[i].zeroed.pool.slot : rig.back.got[i].sealed.job[0].slot;
            uint32_t gen =
                zeroed ? rig.back.got[i].zeroed.pool.gen : rig.back.got[i].sealed.job[0].gen;

            assert_int_equal(gen, round);
            assert_false(seen & 1u << (zeroed ? 8 : slot));
            seen |= 1u << (zeroed ? 8 : slot);
        }
        assert_int_equal(seen, 0x17f);
    }
}

/* M13: the workers are joined at shutdown. */
TEST(mem_destroy_with_jobs_running_joins_cleanly)
{
    for (int i = 0; i < 20; i++) {
        rig_init();
        for (uint32_t j = 0; j < 8; j++)
            mem_zero(rig.mem, (struct pool_id){0, j});
        rig_drop(NULL);
    }
}

/* Fault 40. */
TEST(mem_fault_40_truncation_is_refused_and_holes_are_survived)
{
    struct page_at page = {.group = 0, .index = 2, .gen = 1, .record = 1};
    uint8_t zero[8192] = {0};
    int fd;

    holes_refused(false);
    rig_init();
    holes_refused(true);
    fd = mem_region_fd(rig.mem, 0, 0);
    assert_int_equal(ftruncate(fd, 0), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(fd, 64 * MIB), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(mem_control_fd(rig.mem, 0, 1), 0), -1);
    memset(mem_page(rig.mem, 0, 0, 0, 2), 0x77, 16384);
    assert_int_equal(fallocate(fd, HOLE, 0, 4 * MIB), 0);
    assert_int_equal(fallocate(mem_control_fd(rig.mem, 0, 0), HOLE, 0, 4096), 0);
    mem_seal(rig.mem, (struct seal_id){1, 1}, 0, &page, 1);
    mem_zero(rig.mem, (struct pool_id){0, 1});
    take_events(rig.mem, &rig.back, 2);
    assert_int_equal(mem_sums(rig.mem, 1)[0], checksum_unit(zero, sizeof zero));
    assert_int_equal(mem_done_step(rig.mem, 0, 0, 3), 0);
    printf("fault=40 runs=1 injected=5 violations=0 daemon_alive=1\n");
}

static uint64_t faults_of(const struct mem *mem)
{
    struct mem_stats stats;

    mem_stats(mem, &stats);
    return stats.faults;
}

static void seal_two(uint32_t job)
{
    struct page_at pages[] = {{.group = 0, .index = 2, .gen = 1, .record = 1},
                              {.group = 0, .index = 3, .gen = 1, .record = 2}};

    rig.back.ngot = 0;
    mem_seal(rig.mem, (struct seal_id){job, 1}, 0, pages, 2);
    take_events(rig.mem, &rig.back, 1);
}

/* A hole in huge pages that cannot be filled again: no checksum of lost pages, everything else
 * continues, and the refilled memory is still shared with the engines. */
TEST(mem_sigbus_in_a_pool_leaves_the_daemon_alive)
{
    struct checksum sum;
    struct lost lost;
    uint64_t before;

    rig_init();
    before = faults_of(rig.mem);
    lost_open(&lost, mem_page(rig.mem, 0, 1, 0, 2), 16384);
    memset(mem_page(rig.mem, 0, 0, 0, 2), 0x77, 2 * 16384);
    memset(mem_page(rig.mem, 0, 1, 0, 3), 0x78, 16384);
    seal_two(1);
    for (uint32_t k = 0; k < 4; k++)
        assert_int_not_equal(mem_sums(rig.mem, 1)[k], CHECKSUM_NONE);
    lost_cut(&lost);
    seal_two(2); /* on a worker */
    assert_int_equal(faults_of(rig.mem) - before, 2);
    for (uint32_t k = 0; k < 4; k++) {
        uint8_t *unit = (uint8_t *)mem_page(rig.mem, 0, k / 2, 0, 3) + k % 2 * 8192;

        if (k < 2) /* of region 0 */
            assert_int_equal(mem_sums(rig.mem, 1)[k], mem_sums(rig.mem, 2)[k]);
        else
            assert_int_equal(mem_sums(rig.mem, 1)[k], CHECKSUM_NONE);
        assert_int_equal(mem_sums(rig.mem, 2)[k], checksum_unit(unit, 8192));
    }
    checksum_begin(&sum); /* and here, again and again: the signal does not stay blocked */
    for (uint32_t i = 0; i < 3; i++)
        assert_false(mem_fault_feed(&sum, lost.at + 4096, 4096));
    assert_true(mem_fault_feed(&sum, mem_page(rig.mem, 0, 0, 0, 2), 4096));
    assert_int_equal(faults_of(rig.mem) - before, 5);
    lost_back(&lost);
    lost_is_one(&lost);
    seal_two(3);
    for (uint32_t k = 2; k < 4; k++)
        assert_int_equal(mem_sums(rig.mem, 1)[k],
                         checksum_unit(lost.view + (size_t)(k - 2) * 8192, 8192));
    assert_int_equal(faults_of(rig.mem) - before, 5);
    lost_close(&lost);
}

TEST(mem_zero_passes_by_what_is_not_there)
{
    struct lost lost;

    rig_init();
    for (uint32_t r = 0; r < 2; r++)
        memset(mem_page(rig.mem, 0, r, 0, 0), 0xee, 2 * MIB);
    lost_open(&lost, mem_page(rig.mem, 0, 1, 0, 50), 16384);
    memset(lost.view, 0xee, 16384);
    lost_cut(&lost);
    mem_zero(rig.mem, (struct pool_id){0, 1});
    take_events(rig.mem, &rig.back, 1);
    assert_int_equal(rig.back.got[0].kind, EV_ZEROED);
    lost_back(&lost);
    for (uint32_t r = 0; r < 2; r++) {
        const uint8_t *at = mem_page(rig.mem, 0, r, 0, 0);

        for (uint32_t i = 0; i < 2 * MIB; i++)
            assert_int_equal(at[i], 0);
    }
    lost_is_one(&lost);
    lost_close(&lost);
}

/* The address at which this process has the file mapped. */
static void *mapping_of(int fd)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    void *at = NULL;
    struct stat file;
    char line[256];

    assert_non_null(maps);
    assert_int_equal(fstat(fd, &file), 0);
    while (!at && fgets(line, sizeof line, maps)) {
        unsigned long inode;
        void *from;

        if (sscanf(line, "%p-%*x %*s %*x %*x:%*x %lu", &from, &inode) == 2 && inode == file.st_ino)
            at = from;
    }
    fclose(maps);
    assert_non_null(at);
    return at;
}

/* ---- turn records ---- */

#define LIST_TOKENS (1u << 22) /* a worker has to do with it for a millisecond */
#define LIST_BYTES  (LIST_TOKENS * 4)

/* Memory for turn records, which one worker checks. */
static void records_init(uint32_t tenant)
{
    struct mem_config c = config_small();
    const char *why = NULL;

    c.workers = 1;
    c.tenant[tenant].record_bytes = LIST_BYTES;
    memset(&rig, 0, sizeof rig);
    assert_int_equal(mem_create(&c, &rig.mem, &why), TERN_OK);
    mem_pool_set(rig.mem, 0, TIER_DEVICE, 0, MIB, 2 * MIB, 2, NULL, 2, 2, groups);
}

/* The mapping of an engine. */
static uint32_t *records_map(uint32_t tenant)
{
    uint32_t *map = mmap(NULL, LIST_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
                         mem_record_fd(rig.mem, tenant), 0);

    assert_ptr_not_equal(map, MAP_FAILED);
    return map;
}

/* A job for a list of that many tokens at the beginning of the memory. */
static struct record_job record_job(uint32_t slot, uint32_t tenant, uint32_t tokens)
{
    return (struct record_job){.id = {.slot = slot, .gen = 7},
                               .tenant = tenant,
                               .kind = RECORD_APPEND,
                               .length = tokens,
                               .nat = 1,
                               .at = {tokens},
                               .own = {.nruns = 1, .run = {{0, LIST_BYTES / RECORD_PAGE_BYTES}}}};
}

TEST(mem_check_record_sees_what_its_engine_wrote)
{
    struct record_job job = record_job(3, 1, 5000);
    const struct record_checked *found = &rig.back.got[0].checked;
    struct mem_stats stats;
    XXH128_hash_t hash;
    uint32_t *map;

    records_init(1);
    map = records_map(1);
    for (uint32_t i = 0; i < 5000; i++)
        map[i] = i * 7;
    hash = XXH3_128bits(map, 5000 * sizeof *map);
    mem_check_record(rig.mem, &job);
    memset(&job, 0, sizeof job); /* it was copied */
    take_events(rig.mem, &rig.back, 1);
    assert_int_equal(rig.back.got[0].kind, EV_RECORD_CHECKED);
    assert_true(record_id_equal(found->id, (struct record_id){3, 7}));
    assert_int_equal(found->err, TERN_OK);
    assert_int_equal(found->nhashes, 1);
    assert_true(found->hash[0].lo == hash.low64 && found->hash[0].hi == hash.high64);
    map[4097] = 1u << 31;
    job = record_job(4, 1, 5000);
    mem_check_record(rig.mem, &job);
    take_events(rig.mem, &rig.back, 2);
    assert_true(record_id_equal(found[0].id, (struct record_id){3, 7}));
    found = &rig.back.got[1].checked;
    assert_true(record_id_equal(found->id, (struct record_id){4, 7}));
    assert_int_equal(found->err, TERN_MALFORMED);
    assert_int_equal(found->part, PART_TOKENS);
    assert_int_equal(found->index, 4097);
    mem_stats(rig.mem, &stats);
    assert_int_equal(stats.records_checked, 2);
    assert_int_equal(stats.record_bytes, LIST_BYTES);
    munmap(map, LIST_BYTES);
}

/* While the worker is busy, a seal that comes last is done first: a transfer waits for it. If the
 * first record was done before the seal came, the order proves nothing: tried again. */
TEST(mem_seals_go_before_records)
{
    struct page_at page = {.group = 0, .index = 2, .gen = 1, .record = 1};
    struct pollfd done = {.events = POLLIN};
    bool busy = false;

    records_init(0);
    done.fd = mem_event_fd(rig.mem);
    for (uint32_t tries = 0; !busy && tries < 1000; tries++) {
        rig.back.ngot = 0;
        for (uint32_t i = 0; i < 3; i++) {
            struct record_job job = record_job(i, 0, LIST_TOKENS);

            mem_check_record(rig.mem, &job);
        }
        mem_seal(rig.mem, (struct seal_id){1, 1}, 0, &page, 1);
        mem_start(rig.mem);
        busy = poll(&done, 1, 0) == 0;
        take_events(rig.mem, &rig.back, 4);
    }
    assert_true(busy);
    assert_true(rig.back.got[0].kind == EV_SEALED || rig.back.got[1].kind == EV_SEALED);
}

/* A lost record page affects only that tenant: the next record is checked. */
TEST(mem_check_record_survives_memory_that_is_gone)
{
    struct record_job job = record_job(1, 0, 2 * RECORD_PAGE_BYTES / 4);
    uint64_t before;
    struct lost lost;

    records_init(0);
    before = faults_of(rig.mem);
    lost_open(&lost, (uint8_t *)mapping_of(mem_record_fd(rig.mem, 0)) + RECORD_PAGE_BYTES,
              RECORD_PAGE_BYTES);
    lost_cut(&lost);
    mem_check_record(rig.mem, &job);
    take_events(rig.mem, &rig.back, 1);
    assert_int_equal(rig.back.got[0].checked.err, TERN_CORRUPT);
    job = record_job(2, 0, RECORD_PAGE_BYTES / 4); /* ends before it */
    mem_check_record(rig.mem, &job);
    take_events(rig.mem, &rig.back, 2);
    assert_int_equal(rig.back.got[1].checked.err, TERN_OK);
    assert_int_equal(faults_of(rig.mem) - before, 1);
    lost_close(&lost);
}

TEST(mem_control_page_without_memory_has_no_step_done)
{
    struct lost lost;
    uint64_t value = 41;

#ifdef __SANITIZE_THREAD__
    skip(); /* its atomic store takes a lock of its own, which the jump would leave locked */
#endif
    rig_init();
    lost_open(&lost, mapping_of(mem_control_fd(rig.mem, 1, 2)), CONTROL_BYTES);
    memcpy(lost.view + 64 * 5, &value, sizeof value);
    assert_int_equal(mem_done_step(rig.mem, 1, 2, 5), 41);
    lost_cut(&lost);
    assert_int_equal(mem_done_step(rig.mem, 1, 2, 5), 0);
    mem_control_reset(rig.mem, 1, 2);
    lost_back(&lost);
    assert_int_equal(mem_done_step(rig.mem, 1, 2, 5), 0);
    lost_is_one(&lost);
    mem_control_reset(rig.mem, 1, 2);
    memcpy(&value, lost.view + 64 * RANKS_MAX, sizeof value);
    assert_int_equal(value, 0x1234567890abcdefu);
    lost_close(&lost);
}

/* A control page that could not be touched when an engine joined is zeroed before it is read. */
TEST(mem_control_page_that_was_not_there_is_reset_before_it_is_read)
{
    struct lost lost;
    uint64_t value = 41;

#ifdef __SANITIZE_THREAD__
    skip(); /* as above */
#endif
    rig_init();
    lost_open(&lost, mapping_of(mem_control_fd(rig.mem, 1, 2)), CONTROL_BYTES);
    lost_cut(&lost);
    mem_control_reset(rig.mem, 1, 2);
    lost_back(&lost);
    memcpy(lost.view + 64 * 5, &value, sizeof value); /* of the former engine */
    assert_int_equal(mem_done_step(rig.mem, 1, 2, 5), 0);
    memcpy(&value, lost.view + 64 * RANKS_MAX, sizeof value);
    assert_int_equal(value, 0x1234567890abcdefu);
    value = 42;
    memcpy(lost.view + 64 * 5, &value, sizeof value);
    assert_int_equal(mem_done_step(rig.mem, 1, 2, 5), 42);
    lost_close(&lost);
}

TEST(mem_control_pages_carry_steps_and_incarnation)
{
    uint8_t *map;
    uint64_t value = 41;

    rig_init();
    map = mmap(NULL, CONTROL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
               mem_control_fd(rig.mem, 0, 2), 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    memcpy(map + 64 * 5, &value, sizeof value);
    assert_int_equal(mem_done_step(rig.mem, 0, 2, 5), 41);
    assert_int_equal(mem_done_step(rig.mem, 0, 2, 4), 0);
    assert_int_equal(mem_done_step(rig.mem, 0, 1, 5), 0);
    memcpy(&value, map + 64 * RANKS_MAX, sizeof value);
    assert_int_equal(value, 0x1234567890abcdefu);
    mem_control_reset(rig.mem, 0, 2);
    assert_int_equal(mem_done_step(rig.mem, 0, 2, 5), 0);
    memcpy(&value, map + 64 * RANKS_MAX, sizeof value);
    assert_int_equal(value, 0x1234567890abcdefu);
    munmap(map, CONTROL_BYTES);
}

TEST(mem_control_pages_never_change_tenant)
{
    struct stat a, b;
    uint64_t value = 41;

    rig_init();
    for (uint32_t engine = 0; engine < 3; engine++) {
        assert_int_equal(fstat(mem_control_fd(rig.mem, 0, engine), &a), 0);
        assert_int_equal(fstat(mem_control_fd(rig.mem, 1, engine), &b), 0);
        assert_int_not_equal(a.st_ino, b.st_ino);
        assert_int_equal(pwrite(mem_control_fd(rig.mem, 0, engine), &value, sizeof value, 64 * 15),
                         8);
        assert_int_equal(mem_done_step(rig.mem, 0, engine, 15), 41);
        assert_int_equal(mem_done_step(rig.mem, 1, engine, 15), 0);
        mem_control_reset(rig.mem, 1, engine);
        assert_int_equal(mem_done_step(rig.mem, 0, engine, 15), 41);
    }
}

TEST(mem_create_takes_as_many_workers_as_the_configuration)
{
    struct mem_config c = config_small();
    const char *why = NULL;
    struct mem *mem = NULL;

    c.workers = 0;
    for (size_t i = 0; i < config_settings_n; i++)
        if (strcmp(config_settings[i].key, "workers") == 0)
            c.workers = (uint32_t)config_settings[i].max;
    assert_true(c.workers >= 16);
    assert_int_equal(mem_create(&c, &mem, &why), TERN_OK);
    mem_destroy(mem);
}

TEST(mem_create_with_too_little_memory_says_so)
{
    struct mem_config c = config_small();
    struct mem *mem = NULL;
    const char *why = NULL;

    c.tenant[0].memory_bytes = 1ull << 45;
    assert_int_equal(mem_create(&c, &mem, &why), TERN_INVALID);
    assert_null(mem);
    assert_non_null(strstr(why, "too little memory"));
    c = config_small();
    c.tenant[1].regions = 0;
    assert_int_equal(mem_create(&c, &mem, &why), TERN_INVALID);
}

/* Refuses each descriptor that mem_create opens once; each time the error names it and no
 * descriptor is left open. */
TEST(mem_create_without_descriptors_says_so)
{
    struct mem_config c = config_small();
    struct rlimit old, few;
    int first_free = dup(0), runs = 0;
    const char *why;

    close(first_free);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    for (rlim_t n = (rlim_t)first_free;; n++) {
        struct mem *mem = NULL;
        enum tern_err err;
        int probe;

        few = old;
        few.rlim_cur = n;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        why = NULL;
        err = mem_create(&c, &mem, &why);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
        if (err == TERN_OK) {
            mem_destroy(mem);
            break;
        }
        assert_non_null(why);
        probe = dup(0);
        assert_int_equal(probe, first_free);
        close(probe);
        runs++;
    }
    assert_true(runs >= 7);
}

/* Number of other threads that accept only the signals raised by their own access. */
static uint32_t threads_of_own_signals(void)
{
    static const int theirs[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGABRT},
                     ours[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *entry;
    uint32_t threads = 0;

    assert_non_null(tasks);
    while ((entry = readdir(tasks)) != NULL) {
        unsigned long long blocked = 0;
        char path[300], line[256];
        bool as_told = entry->d_name[0] != '.' && atoi(entry->d_name) != getpid();
        FILE *f;

        snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        f = as_told ? fopen(path, "re") : NULL;
        while (f && fgets(line, sizeof line, f) && sscanf(line, "SigBlk: %llx", &blocked) != 1)
            ;
        if (f)
            fclose(f);
        for (size_t i = 0; i < sizeof theirs / sizeof theirs[0]; i++)
            as_told = as_told && !(blocked >> (theirs[i] - 1) & 1);
        for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
            as_told = as_told && blocked >> (ours[i] - 1) & 1;
        threads += as_told;
    }
    closedir(tasks);
    return threads;
}

/* A thread that has just begun blocks all of them for a moment. */
TEST(mem_workers_take_only_the_signals_of_their_own_access)
{
    struct mem_stats stats = {0};
    struct workers *w;
    const char *why;
    uint32_t tries = 0;

    assert_int_equal(workers_create(2, 1, -1, &stats, &w, &why), TERN_OK);
    while (threads_of_own_signals() < 2 && tries++ < 20000)
        usleep(1000);
    assert_int_equal(threads_of_own_signals(), 2);
    workers_destroy(w);
}

/* Each refusal of the system, with advice. */
TEST(mem_refusals_of_the_system_say_what_to_do)
{
    static const struct {
        int err;
        const char *hint;
    } cases[] = {{EMFILE, "raise RLIMIT_NOFILE"},       {ENFILE, "raise RLIMIT_NOFILE"},
                 {ENOMEM, "lower the tenants' memory"}, {ENOSPC, "lower the tenants' memory"},
                 {EFAULT, "lower the tenants' memory"}, {ENOSYS, "memfd_create is denied"},
                 {EPERM, "memfd_create is denied"},     {EACCES, "memfd_create is denied"},
                 {EIO, "see the system's log"}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *why = NULL;

        errno = cases[i].err;
        assert_int_equal(region_why("what was tried", &why), TERN_INTERNAL);
        assert_ptr_equal(strstr(why, "what was tried: "), why);
        assert_non_null(strstr(why, strerror(cases[i].err)));
        assert_non_null(strstr(why, cases[i].hint));
    }
}

TEST(mem_regions_that_do_not_fit_say_which_memory)
{
    static const struct {
        enum region_kind kind;
        const char *what;
    } cases[] = {{REGION_SHARED, "page memory: "},
                 {REGION_CONTROL, "control page: "},
                 {REGION_SUMS, "memory for checksums of engines: "},
                 {REGION_PRIVATE, "host memory: "}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *why = "";
        struct region r;

        assert_int_equal(region_create(&r, cases[i].kind, 1ull << 47, false, NULL, &why),
                         TERN_INTERNAL);
        assert_int_equal(strncmp(why, cases[i].what, strlen(cases[i].what)), 0);
        region_close(&r);
    }
}

/* Every tenant has its own control page of each engine. */
TEST(mem_bytes_count_the_control_pages_of_each_tenant)
{
    struct mem_config c = config_small();
    uint64_t pages, host, records, one, two;

    c.tenants = 1;
    mem_bytes(&c, &pages, &host, &records, &one);
    c.tenants = 2;
    mem_bytes(&c, &pages, &host, &records, &two);
    assert_true(two - one >= c.engines * CONTROL_BYTES);
    c.engines++;
    mem_bytes(&c, &pages, &host, &records, &one);
    assert_true(one - two >= 2 * CONTROL_BYTES);
}

static uint64_t huge_pages_free(void)
{
    unsigned long long n = 0;
    char line[128];
    FILE *f = fopen("/proc/meminfo", "r");

    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "HugePages_Free: %llu", &n) == 1)
            break;
    fclose(f);
    return n;
}

/* Huge pages of this process, as the kernel counts them. */
static uint64_t huge_kib(void)
{
    FILE *f = fopen("/proc/self/smaps_rollup", "re");
    unsigned long long kib;
    uint64_t sum = 0;
    char line[256];

    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "AnonHugePages: %llu", &kib) == 1 ||
            sscanf(line, "ShmemPmdMapped: %llu", &kib) == 1)
            sum += kib;
    if (f)
        fclose(f);
    return sum;
}

/* All of it where the machine has set enough aside: the RDMA lab does. */
TEST(mem_huge_pages_are_tried_and_reported)
{
    const uint64_t set_aside = huge_pages_free() * 2 * MIB, before_kib = huge_kib();
    struct mem_config c = config_small();
    struct mem *mem = NULL;
    struct mem_stats stats;
    const char *why = NULL;

    c.huge_pages = true;
    c.tenant[0].memory_bytes = 8 * MIB;
    assert_int_equal(mem_create(&c, &mem, &why), TERN_OK);
    mem_stats(mem, &stats);
    assert_true(stats.bytes >= 8 * MIB * 2 + 5 * MIB);
    assert_true(stats.huge_page_bytes <= stats.bytes);
    if (set_aside >= stats.bytes)
        assert_int_equal(stats.huge_page_bytes, stats.bytes);
    if (huge_kib() >= before_kib + (8 << 10)) /* more than threads' stacks may have */
        assert_true(stats.huge_page_bytes > 0);
    printf("mem: bytes=%llu huge_page_bytes=%llu\n", (unsigned long long)stats.bytes,
           (unsigned long long)stats.huge_page_bytes);
    mem_destroy(mem);
}

/* Hashing a page on the owner thread ends the program, in every build. */
TEST(mem_bytes_of_pages_are_not_for_the_owner_thread)
{
    static const uint8_t page[64];
    struct checksum sum;
    pid_t child;
    int status;

    checksum_begin(&sum);
    assert_true(mem_fault_feed(&sum, page, sizeof page));
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        mem_fault_decides();
        (void)!freopen("/dev/null", "w", stderr);
        mem_fault_feed(&sum, page, sizeof page);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}
