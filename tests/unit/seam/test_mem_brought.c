/* Checksums that engines bring (base/brought.h), for pages on GPUs of the stand-in: a seal takes
 * the right ones, and reads no page then. */
#include <sys/mman.h>

#include "base/brought.h"
#include "unit/seam/test_mem_cuda_rig.h"

#define STEP 7u

static uint8_t *entries[PLACES]; /* those of the pool */
static uint32_t entry_bytes;

/* Maps the entries like a process of the tenant. */
static void entries_map(void)
{
    for (uint32_t r = 0; r < PLACES; r++) {
        struct mem_brought at = mem_brought(mem, 0, r, MIB);
        size_t bytes = at.offset + 16 * MIB / at.page_bytes * at.entry_bytes;

        assert_true(at.fd >= 0);
        entries[r] = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, at.fd, 0);
        assert_ptr_not_equal(entries[r], MAP_FAILED);
        entries[r] += at.offset;
        entry_bytes = at.entry_bytes;
    }
}

FIXTURE(begin)
{
    rig_begin();
    wait_ms = 60000;
    start_well();
    pages_write(DEVICE);
    entries_map();
    return 0;
}

FIXTURE(end)
{
    rig_end();
    return 0;
}

TEST_EACH(begin, end);

static struct brought_head *head_of(uint32_t i, uint32_t region)
{
    return (void *)(entries[region] +
                    brought_entry(page_of(i).index * bytes_of(i), 4096) * entry_bytes);
}

/* Values that no page has, so that a taken value is recognized. */
static uint64_t sum_brought(uint32_t i, uint32_t region, uint32_t unit)
{
    return 1000 + i * 100 + region * 10 + unit;
}

static void bring(uint32_t i)
{
    for (uint32_t r = 0; r < PLACES; r++) {
        struct brought_head *head = head_of(i, r);
        uint64_t *sums = (uint64_t *)(head + 1);

        *head = (struct brought_head){STEP, page_of(i).gen, groups[i % 2].units};
        for (uint32_t u = 0; u < head->units; u++)
            sums[u] = sum_brought(i, r, u);
    }
}

/* Seals all pages, of a commit that named that step. */
static struct mem_stats sealed(uint64_t step)
{
    struct page_at pages[PAGES];
    struct mem_stats stats;

    pages_list(pages, 0);
    for (uint32_t i = 0; i < PAGES; i++)
        pages[i].step = step;
    mem_seal(mem, (struct seal_id){1, 1}, DEVICE, pages, PAGES);
    take_events(mem, &back, back.ngot + 1);
    mem_stats(mem, &stats);
    return stats;
}

static void assert_sums(uint32_t i, bool brought)
{
    for (uint32_t r = 0; r < PLACES; r++)
        for (uint32_t u = 0; u < groups[i % 2].units; u++)
            assert_int_equal(mem_sums(mem, i)[r * groups[i % 2].units + u],
                             brought ? sum_brought(i, r, u) : sum_expected(i, r, u));
}

TEST(mem_brought_checksums_are_taken_and_no_page_is_read)
{
    uint32_t copies = in.calls("cuMemcpyDtoHAsync");
    struct mem_stats stats;

    for (uint32_t i = 0; i < PAGES; i++)
        bring(i);
    stats = sealed(STEP);
    for (uint32_t i = 0; i < PAGES; i++)
        assert_sums(i, true);
    assert_int_equal(stats.work.sums_by_engine, PAGES / 2 * PLACES * 4);
    assert_int_equal(stats.work.sums_by_kernels + stats.work.sums_by_copies, 0);
    assert_int_equal(in.calls("cuMemcpyDtoHAsync"), copies);
    assert_int_equal(in.calls("cuLaunchKernel"), 0);
}

/* Checksums of another step, generation or shape of the page; or of one region. */
TEST(mem_brought_checksums_that_are_not_of_the_commit_are_computed)
{
    struct mem_stats stats;

    for (uint32_t i = 0; i < 5; i++)
        bring(i);
    head_of(0, 0)->step = head_of(0, 1)->step = STEP - 1;
    head_of(1, 0)->gen = head_of(1, 1)->gen = 2;
    head_of(2, 0)->units = head_of(2, 1)->units = 2;
    head_of(3, 0)->step = 0;
    stats = sealed(STEP);
    for (uint32_t i = 0; i < PAGES; i++)
        if (i != 3)
            assert_sums(i, i == 4);
    assert_int_equal(mem_sums(mem, 3)[0], sum_expected(3, 0, 0));
    assert_int_equal(mem_sums(mem, 3)[1], sum_brought(3, 1, 0));
    assert_int_equal(stats.work.sums_by_engine, 3 * PLACES + 1);
}

/* A commit without a step takes nothing, whatever the entries contain. */
TEST(mem_brought_checksums_need_a_step)
{
    for (uint32_t i = 0; i < PAGES; i++) {
        bring(i);
        head_of(i, 0)->step = head_of(i, 1)->step = 0;
    }
    assert_int_equal(sealed(0).work.sums_by_engine, 0);
    for (uint32_t i = 0; i < PAGES; i++)
        assert_sums(i, false);
}

/* The next user of the memory counts steps and generations anew. */
TEST(mem_brought_checksums_are_gone_with_the_pool)
{
    for (uint32_t i = 0; i < PAGES; i++)
        bring(i);
    mem_zero(mem, (struct pool_id){DEVICE, 1});
    take_events(mem, &back, 1);
    for (uint32_t i = 0; i < PAGES; i++)
        for (uint32_t r = 0; r < PLACES; r++)
            assert_int_equal(head_of(i, r)->step, 0);
    assert_int_equal(sealed(STEP).work.sums_by_engine, 0);
}

/* A pool that begins elsewhere has other entries. */
TEST(mem_brought_entries_of_pools_lie_apart)
{
    struct mem_brought first = mem_brought(mem, 0, 0, 0), second = mem_brought(mem, 0, 0, MIB);

    assert_int_equal(first.offset, 0);
    assert_int_equal(second.offset, MIB / 4096 * entry_bytes);
    assert_int_equal(entry_bytes, brought_entry_bytes(3));
    assert_int_equal(first.page_bytes, 4096);
}
