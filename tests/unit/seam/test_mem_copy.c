/* The host tier behind the seam: the place of its memory, copies between the tiers, and wrong bytes
 * on either side. */
#include "testing/test.h"
#include "unit/rig/rig_holes.h"
#include "unit/rig/rig_lost.h"
#include "unit/rig/rig_mem.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/brought.h"
#include "base/prng.h"
#include "seam/mem/checksum.h"

#define MIB        (1u << 20)
#define REGIONS    2
#define DEVICE     0 /* pool slots */
#define HOST       1
#define SPARE      2 /* of tenant 1 */
#define PAGES      30
#define DEVICE_AT  MIB
#define HOST_AT    (MIB / 2)
#define POOL_BYTES (2 * MIB)
#define BIG        200008 /* a unit of several blocks and a short one */

static struct rig {
    struct mem *mem;
    struct taken back;
    struct page_at device[PAGES], host[PAGES], other[PAGES]; /* other: of the device as well */
} rig;

static const struct group_layout groups[3] = {
    {.page_tokens = 64, .units = 2, .page_bytes = 16384},
    {.page_tokens = 64, .units = 3, .page_bytes = 4096}, /* the last unit is longer */
    {.page_tokens = 64, .units = 1, .page_bytes = BIG},
};

static struct mem_config config_small(void)
{
    struct mem_config c = {.tenants = 2,
                           .engines = 1,
                           .pools = 3,
                           .page_records = 256,
                           .page_bytes_min = 4096,
                           .sums_per_page = 6,
                           .workers = 3,
                           .jobs = 24,
                           .incarnation = 5};

    c.tenant[0] = (struct tenant_config){
        .memory_bytes = 4 * MIB, .host_bytes = 3 * MIB, .regions = REGIONS, .sessions_max = 1};
    c.tenant[1] = (struct tenant_config){.memory_bytes = 64 * MIB, .regions = 1, .sessions_max = 1};
    return c;
}

/* Twelve pages of group 0, twelve of group 1, six of group 2, in ranges of the pool that do not
 * overlap; the lists name other places in another order. */
static void list_pages(void)
{
    for (uint32_t i = 0; i < PAGES; i++) {
        uint32_t g = i < 12 ? 0 : i < 24 ? 1 : 2, k = i < 12 ? i : i < 24 ? i - 12 : i - 24;
        uint32_t n = g == 2 ? 6 : 12, first = g == 0 ? 0 : g == 1 ? 128 : 4;
        struct page_at page = {.group = g, .gen = 1};

        page.index = first + k;
        page.record = 1 + i;
        rig.device[i] = page;
        page.index = first + (k + 5) % n;
        page.record = 200 - i;
        rig.host[i] = page;
        page.index = first + (g == 2 ? (k + 1) % n : n + k);
        page.record = 40 + i;
        rig.other[i] = page;
    }
}

static void places(void)
{
    mem_pool_set(rig.mem, DEVICE, TIER_DEVICE, 0, DEVICE_AT, POOL_BYTES, REGIONS, NULL, REGIONS, 3,
                 groups);
    mem_pool_set(rig.mem, HOST, TIER_HOST, 0, HOST_AT, POOL_BYTES, REGIONS, NULL, REGIONS, 3,
                 groups);
}

static void rig_init_of(const struct mem_config *c)
{
    const char *why = NULL;

    memset(&rig, 0, sizeof rig);
    assert_int_equal(mem_create(c, &rig.mem, &why), TERN_OK);
    places();
    mem_pool_set(rig.mem, SPARE, TIER_DEVICE, 1, 0, 64 * MIB, 1, NULL, 1, 3, groups);
    list_pages();
}

static void rig_init(void)
{
    struct mem_config c = config_small();

    rig_init_of(&c);
}

/* Destroys the case's memory, if it has one. */
FIXTURE(rig_drop)
{
    mem_destroy(rig.mem);
    rig.mem = NULL;
    return 0;
}

TEST_EACH(NULL, rig_drop);

static uint8_t *at(uint32_t pool, uint32_t region, const struct page_at *p)
{
    return mem_page(rig.mem, pool, region, p->group, p->index);
}

/* A seed determines the contents of a page; each region's bytes differ. */
static void fill(uint32_t pool, const struct page_at *p, uint64_t seed)
{
    for (uint32_t r = 0; r < REGIONS; r++) {
        struct prng rng;
        uint64_t *words = (uint64_t *)(void *)at(pool, r, p);

        prng_init(&rng, seed * REGIONS + r);
        for (uint64_t b = 0; b < groups[p->group].page_bytes / 8; b++)
            words[b] = prng_u64(&rng);
    }
}

static bool holds(uint32_t pool, const struct page_at *p, uint64_t seed)
{
    for (uint32_t r = 0; r < REGIONS; r++) {
        struct prng rng;
        const uint64_t *words = (const uint64_t *)(const void *)at(pool, r, p);

        prng_init(&rng, seed * REGIONS + r);
        for (uint64_t b = 0; b < groups[p->group].page_bytes / 8; b++)
            if (words[b] != prng_u64(&rng))
                return false;
    }
    return true;
}

static void fill_and_seal(void)
{
    rig.back.ngot = 0;
    for (uint32_t i = 0; i < PAGES; i++)
        fill(DEVICE, &rig.device[i], 100 + i);
    mem_seal(rig.mem, (struct seal_id){1, 1}, DEVICE, rig.device, PAGES);
    take_events(rig.mem, &rig.back, 1);
    rig.back.ngot = 0;
}

static void rig_filled(void)
{
    rig_init();
    fill_and_seal();
}

static enum tern_err copy(uint32_t from_pool, uint32_t to_pool, const struct page_at *from,
                          const struct page_at *to, uint32_t n)
{
    struct copy_id job = {n, 77};

    rig.back.ngot = 0;
    mem_copy(rig.mem, job, from_pool, to_pool, from, to, n);
    take_events(rig.mem, &rig.back, 1);
    assert_int_equal(rig.back.got[0].kind, EV_COPIED);
    assert_true(copy_id_equal(rig.back.got[0].copied.job, job));
    return rig.back.got[0].copied.err;
}

/* The bytes of a whole region of a tier. */
static uint8_t *region_of(uint32_t pool, uint32_t region)
{
    return (uint8_t *)mem_page(rig.mem, pool, region, 0, 0) -
           (pool == DEVICE ? DEVICE_AT : HOST_AT);
}

/* ---- copies ---- */

TEST(mem_copy_there_and_back_keeps_bytes_and_checksums)
{
    struct mem_stats stats;
    uint64_t bytes = 0;

    rig_filled();
    assert_int_equal(copy(DEVICE, HOST, rig.device, rig.host, PAGES), TERN_OK);
    for (uint32_t i = 0; i < PAGES; i++) {
        assert_true(holds(HOST, &rig.host[i], 100 + i));
        assert_memory_equal(mem_sums(rig.mem, rig.host[i].record),
                            mem_sums(rig.mem, rig.device[i].record),
                            groups[rig.host[i].group].units * REGIONS * sizeof(uint64_t));
        fill(DEVICE, &rig.device[i], 7); /* reused by now */
        memset(mem_sums(rig.mem, rig.device[i].record), 0, 6 * sizeof(uint64_t));
        bytes += groups[rig.host[i].group].page_bytes * REGIONS;
    }
    assert_int_equal(copy(HOST, DEVICE, rig.host, rig.other, PAGES), TERN_OK);
    for (uint32_t i = 0; i < PAGES; i++) {
        assert_true(holds(DEVICE, &rig.other[i], 100 + i));
        assert_memory_equal(mem_sums(rig.mem, rig.other[i].record),
                            mem_sums(rig.mem, rig.host[i].record),
                            groups[rig.host[i].group].units * REGIONS * sizeof(uint64_t));
    }
    mem_stats(rig.mem, &stats);
    assert_int_equal(stats.copied_pages, 2 * PAGES);
    assert_int_equal(stats.copied_bytes, 2 * bytes);
    assert_int_equal(stats.copies_corrupt, 0);
}

TEST(mem_copy_writes_its_pages_and_nothing_else)
{
    static uint8_t touched[3 * MIB];

    rig_filled();
    for (uint32_t r = 0; r < REGIONS; r++)
        memset(region_of(HOST, r), 0xee, 3 * MIB);
    for (uint32_t i = 0; i < PAGES; i += 2)
        assert_int_equal(copy(DEVICE, HOST, &rig.device[i], &rig.host[i], 1), TERN_OK);
    memset(touched, 0, sizeof touched);
    for (uint32_t i = 0; i < PAGES; i += 2)
        memset(touched + (at(HOST, 0, &rig.host[i]) - region_of(HOST, 0)), 1,
               groups[rig.host[i].group].page_bytes);
    for (uint32_t r = 0; r < REGIONS; r++)
        for (uint32_t b = 0; b < 3 * MIB; b++)
            if (!touched[b])
                assert_int_equal(region_of(HOST, r)[b], 0xee);
    for (uint32_t i = 0; i < PAGES; i++) {
        assert_true(holds(DEVICE, &rig.device[i], 100 + i));
        if (i & 1)
            assert_int_equal(mem_sums(rig.mem, rig.host[i].record)[0], 0);
    }
}

/* Flips a byte in each unit of each region of a page of each group: the first, then the last. */
static uint32_t spoil_everywhere(uint32_t from_pool, const struct page_at *from, uint32_t to_pool,
                                 const struct page_at *to)
{
    uint32_t runs = 0;

    for (uint32_t i = 0; i < PAGES; i += 12) {
        const struct group_layout *g = &groups[from[i].group];

        for (uint32_t k = 0; k < REGIONS * g->units * 2; k++) {
            uint32_t region = k / 2 / g->units, unit = k / 2 % g->units;
            uint64_t begin, end = checksum_unit_span(g->page_bytes, g->units, unit, &begin);
            uint8_t *byte = at(from_pool, region, &from[i]) + (k & 1 ? end - 1 : begin);

            *byte ^= 0x10;
            assert_int_equal(copy(from_pool, to_pool, from, to, PAGES), TERN_CORRUPT);
            *byte ^= 0x10;
            runs++;
        }
    }
    assert_int_equal(copy(from_pool, to_pool, from, to, PAGES), TERN_OK);
    return runs;
}

TEST(mem_copy_of_corrupt_bytes_is_found_on_either_tier)
{
    struct mem_stats stats;
    uint32_t runs;

    rig_filled();
    runs = spoil_everywhere(DEVICE, rig.device, HOST, rig.host);
    runs += spoil_everywhere(HOST, rig.host, DEVICE, rig.other);
    mem_stats(rig.mem, &stats);
    assert_int_equal(runs, 2 * 2 * REGIONS * (2 + 3 + 1));
    assert_int_equal(stats.copies_corrupt, runs);
    assert_int_equal(stats.copied_pages, 2 * PAGES);
    for (uint32_t i = 0; i < PAGES; i++)
        assert_true(holds(DEVICE, &rig.other[i], 100 + i));
}

/* ---- checksums that an engine brings ---- */

/* Stores the pages' checksums, for that step, as the tenant's process would. */
static void bring(uint32_t region, uint64_t step, uint64_t wrong)
{
    struct mem_brought to = mem_brought(rig.mem, 0, region, DEVICE_AT);
    size_t bytes = to.offset + POOL_BYTES / to.page_bytes * to.entry_bytes;
    uint8_t *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, to.fd, 0);

    assert_ptr_not_equal(map, MAP_FAILED);
    for (uint32_t i = 0; i < PAGES; i++) {
        const struct page_at *p = &rig.device[i];
        const struct group_layout *g = &groups[p->group];
        struct brought_head *head =
            (void *)(map + to.offset +
                     brought_entry(p->index * g->page_bytes, to.page_bytes) * to.entry_bytes);
        uint64_t *sums = (uint64_t *)(head + 1);

        *head = (struct brought_head){step, p->gen, g->units};
        for (uint32_t u = 0; u < g->units; u++) {
            uint64_t from, end = checksum_unit_span(g->page_bytes, g->units, u, &from);

            sums[u] = checksum_unit(at(DEVICE, region, p) + from, end - from) ^ wrong;
        }
    }
    munmap(map, bytes);
}

/* Seals the pages of a commit that named that step. Returns the number of brought checksums. */
static uint64_t sealed(uint64_t step)
{
    struct page_at pages[PAGES];
    struct mem_stats stats;

    memcpy(pages, rig.device, sizeof pages);
    for (uint32_t i = 0; i < PAGES; i++) {
        pages[i].step = step;
        memset(mem_sums(rig.mem, pages[i].record), 0, 6 * sizeof(uint64_t));
    }
    rig.back.ngot = 0;
    mem_seal(rig.mem, (struct seal_id){1, 2}, DEVICE, pages, PAGES);
    take_events(rig.mem, &rig.back, 1);
    mem_stats(rig.mem, &stats);
    return stats.work.sums_by_engine;
}

#define SUMS_OF_A_REGION (12 * 2 + 12 * 3 + 6)

TEST(mem_brought_checksums_of_host_pages_are_taken_unit_by_unit)
{
    rig_filled();
    bring(0, 7, 0);
    assert_int_equal(sealed(6), 0);
    assert_int_equal(sealed(0), 0);
    assert_int_equal(sealed(7), SUMS_OF_A_REGION);
    assert_int_equal(copy(DEVICE, HOST, rig.device, rig.host, PAGES), TERN_OK);
    for (uint32_t i = 0; i < PAGES; i++)
        assert_true(holds(HOST, &rig.host[i], 100 + i));
}

/* A page must agree with its brought checksums: no copy of a page with wrong ones is kept. */
TEST(mem_brought_checksums_that_are_wrong_make_the_page_corrupt)
{
    struct mem_stats stats;

    rig_filled();
    bring(1, 7, 1);
    assert_int_equal(sealed(7), SUMS_OF_A_REGION);
    for (uint32_t i = 0; i < PAGES; i++)
        assert_int_equal(copy(DEVICE, HOST, &rig.device[i], &rig.host[i], 1), TERN_CORRUPT);
    mem_stats(rig.mem, &stats);
    assert_int_equal(stats.copies_corrupt, PAGES);
}

/* The next user of the memory counts steps and generations anew. */
TEST(mem_brought_checksums_of_host_pages_are_gone_with_the_pool)
{
    rig_filled();
    bring(0, 7, 0);
    mem_zero(rig.mem, (struct pool_id){DEVICE, 1});
    take_events(rig.mem, &rig.back, 1);
    assert_int_equal(sealed(7), 0);
}

/* Fault 40 for copies: the client punched a hole, or a page of either tier is lost. */
TEST(mem_copy_of_pages_whose_backing_is_gone_is_corrupt)
{
    struct mem_stats stats;
    int fd = memfd_create("short", MFD_CLOEXEC);
    uint64_t before;
    uint8_t *page;

    holes_refused(false);
    rig_filled();
    holes_refused(true);
    mem_stats(rig.mem, &stats);
    before = stats.faults;
    assert_int_equal(copy(DEVICE, HOST, rig.device, rig.host, PAGES), TERN_OK);
    assert_int_equal(fallocate(mem_region_fd(rig.mem, 0, 1), HOLE, 0, 4 * MIB), 0);
    assert_int_equal(copy(DEVICE, HOST, rig.device, rig.host, PAGES), TERN_CORRUPT);
    for (uint32_t i = 0; i < PAGES; i++)
        fill(DEVICE, &rig.device[i], 100 + i);
    assert_int_equal(copy(DEVICE, HOST, rig.device, rig.host, PAGES), TERN_OK);
    page = at(HOST, 1, &rig.host[3]);
    assert_ptr_equal(mmap(page, 16384, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0),
                     page);
    for (uint32_t i = 0; i < 3; i++) /* nobody else has seen it: replaced by fresh pages */
        assert_int_equal(copy(HOST, DEVICE, rig.host, rig.other, PAGES), TERN_CORRUPT);
    mem_stats(rig.mem, &stats);
    assert_int_equal(stats.faults - before, 4);
    fill_and_seal(); /* `other` overlaps some of it */
    assert_int_equal(copy(DEVICE, HOST, rig.device, rig.host, PAGES), TERN_OK);
    assert_int_equal(copy(HOST, DEVICE, rig.host, rig.other, PAGES), TERN_OK);
    for (uint32_t i = 0; i < PAGES; i++)
        assert_true(holds(DEVICE, &rig.other[i], 100 + i));
    close(fd);
}

/* On the device the mapping stays the engines': a lost page fails every copy from or to it, and
 * everything that was sealed meanwhile, however the page is restored. */
TEST(mem_copy_believes_no_page_that_was_lost)
{
    struct lost lost;

    rig_filled();
    assert_int_equal(copy(DEVICE, HOST, rig.device, rig.host, PAGES), TERN_OK);
    lost_open(&lost, at(DEVICE, 1, &rig.device[3]), 16384);
    lost_cut(&lost);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(copy(DEVICE, HOST, &rig.device[3], &rig.host[3], 1), TERN_CORRUPT);
        assert_int_equal(copy(HOST, DEVICE, &rig.host[0], &rig.device[3], 1), TERN_CORRUPT);
    }
    mem_seal(rig.mem, (struct seal_id){1, 2}, DEVICE, &rig.device[3], 1);
    rig.back.ngot = 0;
    take_events(rig.mem, &rig.back, 1);
    lost_back(&lost);
    assert_int_equal(copy(DEVICE, HOST, &rig.device[3], &rig.host[3], 1), TERN_CORRUPT);
    lost_is_one(&lost);
    fill_and_seal();
    assert_int_equal(copy(DEVICE, HOST, rig.device, rig.host, PAGES), TERN_OK);
    assert_int_equal(copy(HOST, DEVICE, rig.host, rig.device, PAGES), TERN_OK);
    lost_is_one(&lost);
    lost_close(&lost);
}

TEST(mem_fault_copy_corrupt_spoils_every_so_many_th_copy)
{
    struct mem_config c = config_small();
    struct mem_stats stats;

    c.fault_copy_corrupt_every = 3;
    rig_init_of(&c);
    fill_and_seal();
    for (uint32_t k = 1; k <= 30; k++)
        assert_int_equal(copy(DEVICE, HOST, &rig.device[k % 7], &rig.host[k % 7], 1 + k % 9),
                         k % 3 == 0 ? TERN_CORRUPT : TERN_OK);
    mem_stats(rig.mem, &stats);
    assert_int_equal(stats.copies_spoilt, 10);
    assert_int_equal(stats.copies_corrupt, 10);
    for (uint32_t i = 0; i < PAGES; i++)
        assert_true(holds(DEVICE, &rig.device[i], 100 + i));
}

/* ---- many jobs ---- */

TEST(mem_copy_jobs_to_the_limit_all_come_back)
{
    rig_filled();
    for (uint32_t round = 0; round < 40; round++) {
        uint32_t seen = 0;

        rig.back.ngot = 0;
        /* Every job has pages of its own: out in even rounds, back in odd ones. */
        for (uint32_t j = 0; j < 22; j++) {
            uint32_t n = j == 21 ? PAGES - 21 : 1;
            struct copy_id job = {j, round};

            if (round & 1)
                mem_copy(rig.mem, job, HOST, DEVICE, &rig.host[j], &rig.device[j], n);
            else
                mem_copy(rig.mem, job, DEVICE, HOST, &rig.device[j], &rig.host[j], n);
        }
        mem_copy(rig.mem, (struct copy_id){22, round}, DEVICE, HOST, rig.device, rig.host, 0);
        mem_zero(rig.mem, (struct pool_id){SPARE, round});
        take_events(rig.mem, &rig.back, 24);
        for (uint32_t i = 0; i < 24; i++) {
            bool zeroed = rig.back.got[i].kind == EV_ZEROED;
            uint32_t slot =
                zeroed ? rig.back.got[i].zeroed.pool.slot : rig.back.got[i].copied.job.slot;
            uint32_t gen =
                zeroed ? rig.back.got[i].zeroed.pool.gen : rig.back.got[i].copied.job.gen;

            assert_int_equal(gen, round);
            assert_true(zeroed || rig.back.got[i].copied.err == TERN_OK);
            seen |= 1u << (zeroed ? 23 : slot);
        }
        assert_int_equal(seen, (1u << 24) - 1);
        for (uint32_t i = 0; i < PAGES; i++) {
            assert_true(round & 1 ? holds(DEVICE, &rig.device[i], 100 + i)
                                  : holds(HOST, &rig.host[i], 100 + i));
            if (round == 38) /* the last round copies back from there */
                fill(DEVICE, &rig.device[i], 9);
        }
    }
}

/* Pools of other places open in both slots while the jobs run: the copies go to the old places. */
TEST(mem_copy_goes_where_its_pools_lay_when_it_was_submitted)
{
    rig_filled();
    for (uint32_t round = 0; round < 50; round++) {
        for (uint32_t r = 0; r < REGIONS; r++)
            memset(region_of(HOST, r), 0xee, 3 * MIB);
        rig.back.ngot = 0;
        for (uint32_t j = 0; j < 10; j++)
            mem_copy(rig.mem, (struct copy_id){j, 1}, DEVICE, HOST, &rig.device[3 * j],
                     &rig.host[3 * j], 3);
        mem_pool_set(rig.mem, DEVICE, TIER_DEVICE, 1, 0, 4 * MIB, 1, NULL, 1, 1, groups);
        mem_pool_set(rig.mem, HOST, TIER_DEVICE, 1, 8 * MIB, 4 * MIB, 1, NULL, 1, 2, groups);
        take_events(rig.mem, &rig.back, 10);
        for (uint32_t j = 0; j < 10; j++)
            assert_int_equal(rig.back.got[j].copied.err, TERN_OK);
        for (uint32_t b = 0; b < 4 * MIB; b += 4096)
            assert_int_equal(((uint8_t *)mem_page(rig.mem, HOST, 0, 0, 0))[b], 0);
        places();
        for (uint32_t i = 0; i < PAGES; i++)
            assert_true(holds(HOST, &rig.host[i], 100 + i));
    }
}

/* With one thread, jobs submitted in the wrong order. Sometimes the thread ends one job before the
 * next comes, so not every round shows the order; a wrong order would show in none. */
TEST(mem_seals_go_before_copies_and_copies_before_zeroing)
{
    struct mem_config c = config_small();
    uint32_t right = 0;

    c.workers = 1;
    rig_init_of(&c);
    fill_and_seal();
    for (uint32_t round = 0; round < 20; round++) {
        rig.back.ngot = 0;
        mem_zero(rig.mem, (struct pool_id){SPARE, round});
        for (uint32_t j = 0; j < 10; j++)
            mem_copy(rig.mem, (struct copy_id){j, round}, DEVICE, HOST, rig.device, rig.host,
                     PAGES);
        mem_seal(rig.mem, (struct seal_id){0, round}, DEVICE, rig.other, 12);
        take_events(rig.mem, &rig.back, 12);
        right += rig.back.got[0].kind == EV_SEALED && rig.back.got[11].kind == EV_ZEROED;
    }
    assert_true(right > 0);
}

/* Jobs without pages end at once, so the order of their ends is known. */
TEST(mem_seals_that_ended_one_after_the_other_come_in_one_event)
{
    const enum event_kind kinds[] = {EV_SEALED, EV_SEALED, EV_COPIED, EV_SEALED};
    const uint32_t jobs = SEALED_JOBS_MAX + 8;
    struct mem_config c = config_small();

    c.jobs = jobs;
    rig_init_of(&c);
    for (uint32_t i = 0; i < jobs; i++)
        mem_seal(rig.mem, (struct seal_id){i, 1}, DEVICE, rig.device, 0);
    mem_start(rig.mem);
    mem_poll(rig.mem, taken_add, &rig.back);
    assert_int_equal(rig.back.emitted, 1);
    assert_int_equal(rig.back.ngot, SEALED_JOBS_MAX);
    mem_wait(rig.mem);
    mem_poll(rig.mem, taken_add, &rig.back);
    assert_int_equal(rig.back.emitted, 2);
    assert_int_equal(rig.back.ngot, jobs);
    for (uint32_t i = 0; i < jobs; i++)
        assert_true(seal_id_equal(rig.back.got[i].sealed.job[0], (struct seal_id){i, 1}));

    rig.back = (struct taken){.ngot = 0};
    for (uint32_t i = 0; i < 4; i++)
        if (kinds[i] == EV_SEALED)
            mem_seal(rig.mem, (struct seal_id){i, 2}, DEVICE, rig.device, 0);
        else
            mem_copy(rig.mem, (struct copy_id){i, 2}, DEVICE, HOST, rig.device, rig.host, 0);
    take_events(rig.mem, &rig.back, 4);
    assert_int_equal(rig.back.emitted, 3);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(rig.back.got[i].kind, kinds[i]);
    assert_int_equal(rig.back.got[3].sealed.job[0].slot, 3);
}

TEST(mem_destroy_with_copies_running_joins_cleanly)
{
    for (uint32_t i = 0; i < 20; i++) {
        rig_init();
        for (uint32_t j = 0; j < 24; j++)
            mem_copy(rig.mem, (struct copy_id){j, 1}, DEVICE, HOST, &rig.device[j], &rig.host[j],
                     1);
        rig_drop(NULL);
    }
}

/* ---- where it lies ---- */

/* The line of the kernel's list of mappings that contains `p`. */
static void mapping_of(const void *p, char *ret, int cap)
{
    FILE *f = fopen("/proc/self/maps", "re");
    unsigned long long from, to;

    assert_non_null(f);
    while (fgets(ret, cap, f))
        if (sscanf(ret, "%llx-%llx", &from, &to) == 2 && (uintptr_t)p >= from && (uintptr_t)p < to)
            break;
    fclose(f);
}

TEST(mem_host_tier_is_memory_that_nobody_can_map)
{
    struct mem_config c = config_small();
    struct mem_stats stats;

    for (uint32_t huge = 0; huge < 2; huge++) {
        c.huge_pages = huge;
        rig_init_of(&c);
        for (uint32_t r = 0; r < REGIONS; r++) {
            uint8_t *base = region_of(HOST, r);
            unsigned char there[3 * MIB / 4096];
            char line[512];

            mapping_of(region_of(DEVICE, r), line, sizeof line);
            assert_non_null(strstr(line, " rw-s "));
            mapping_of(base, line, sizeof line);
            assert_non_null(strstr(line, " rw-p "));
            assert_null(strstr(line, "memfd"));
            assert_int_equal(mincore(base, 3 * MIB, there), 0); /* populated at start */
            for (uint32_t i = 0; i < sizeof there; i++)
                assert_true(there[i] & 1);
            for (uint32_t b = 0; b < 3 * MIB; b++)
                assert_int_equal(base[b], 0);
        }
        assert_ptr_not_equal(region_of(HOST, 0), region_of(HOST, 1));
        mem_stats(rig.mem, &stats);
        assert_true(stats.bytes >= (4 * REGIONS + 64) * MIB);
        assert_true(stats.host_bytes >= 3 * REGIONS * MIB);
        assert_true(stats.host_bytes < 5 * REGIONS * MIB);
        assert_true(stats.huge_page_bytes <= stats.bytes + stats.host_bytes);
        assert_true(huge || stats.huge_page_bytes == 0);
        printf("mem: host_bytes=%llu huge_page_bytes=%llu\n", (unsigned long long)stats.host_bytes,
               (unsigned long long)stats.huge_page_bytes);
        rig_drop(NULL);
    }
}

TEST(mem_zero_of_a_host_pool_touches_nothing_else)
{
    rig_filled();
    for (uint32_t r = 0; r < REGIONS; r++)
        memset(region_of(HOST, r), 0xee, 3 * MIB);
    mem_zero(rig.mem, (struct pool_id){HOST, 3});
    take_events(rig.mem, &rig.back, 1);
    assert_int_equal(rig.back.got[0].kind, EV_ZEROED);
    for (uint32_t r = 0; r < REGIONS; r++)
        for (uint32_t b = 0; b < 3 * MIB; b++)
            assert_int_equal(region_of(HOST, r)[b],
                             b >= HOST_AT && b < HOST_AT + POOL_BYTES ? 0 : 0xee);
    for (uint32_t i = 0; i < PAGES; i++)
        assert_true(holds(DEVICE, &rig.device[i], 100 + i));
}

TEST(mem_create_with_too_large_a_host_tier_says_so)
{
    struct mem_config c = config_small();
    struct mem *mem = NULL;
    const char *why = NULL;

    c.tenant[1].host_bytes = 1ull << 45;
    assert_int_equal(mem_create(&c, &mem, &why), TERN_INVALID);
    assert_null(mem);
    assert_non_null(strstr(why, "host_memory"));
    c.tenant[1].host_bytes = UINT64_MAX;
    assert_int_equal(mem_create(&c, &mem, &why), TERN_INVALID);
    assert_null(mem);
}
