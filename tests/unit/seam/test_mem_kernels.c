/* Checksums of pages on GPUs by their kernels, which the stand-in runs: seals, copies, arriving
 * pages; a device without kernels, with its reason; kernels that fail and kernels that never end.
 * Never run on a GPU. */
#include <stdlib.h>

#include "seam/mem/mem_pack.h"
#include "seam/mem/mem_verify.h"
#include "unit/seam/test_mem_cuda_rig.h"

#define SUMS (PAGES / 2 * PLACES * 4) /* of all pages: 3 units of one shape, 1 of the other */

FIXTURE(begin)
{
    unsetenv("STANDIN_CUDA_KERNELS");
    rig_begin();
    wait_ms = 60000; /* kernels are slow on a CPU */
    return 0;
}

FIXTURE(end)
{
    rig_end();
    return 0;
}

TEST_EACH(begin, end);

static struct mem_stats stats_now(void)
{
    struct mem_stats stats;

    mem_stats(mem, &stats);
    return stats;
}

static void seal_all(uint32_t events)
{
    struct page_at pages[PAGES];

    pages_list(pages, 0);
    mem_seal(mem, (struct seal_id){events, 1}, DEVICE, pages, PAGES);
    take_events(mem, &back, events);
}

static void assert_sealed(void)
{
    for (uint32_t i = 0; i < PAGES; i++)
        for (uint32_t r = 0; r < PLACES; r++)
            for (uint32_t u = 0; u < groups[i % 2].units; u++)
                assert_int_equal(mem_sums(mem, i)[r * groups[i % 2].units + u],
                                 sum_expected(i, r, u));
}

/* ---- checksums ---- */

TEST(mem_kernels_seal_and_no_page_is_copied)
{
    uint32_t copies;

    start_well();
    pages_write(DEVICE);
    copies = in.calls("cuMemcpyDtoHAsync");
    seal_all(1);
    assert_sealed();
    assert_int_equal(stats_now().work.sums_by_kernels, SUMS);
    assert_int_equal(stats_now().work.sums_by_copies, 0);
    assert_int_equal(stats_now().devices_with_kernels, 2);
    /* Each launch copies only its checksums. */
    assert_int_equal(in.calls("cuMemcpyDtoHAsync") - copies, in.calls("cuLaunchKernel") / 2);
    mem_destroy(mem);
    mem = NULL;
    assert_int_equal(left(), 0);
}

TEST(mem_kernels_device_says_what_it_holds_and_whether_mps_is_on)
{
    struct mem_device_view view;

    for (int on = 1; on >= 0; on--) {
        if (!on)
            setenv("STANDIN_CUDA_LACKS", "133", 1); /* CU_DEVICE_ATTRIBUTE_MPS_ENABLED */
        start_well();
        assert_true(mem_device_view(mem, 1, &view));
        assert_int_equal(view.facts.mps, on);
        assert_int_equal(view.facts.node, -1);             /* not in sysfs */
        assert_int_equal(view.facts.pool_bytes, 18 * MIB); /* whole granules */
        assert_int_equal(view.facts.kernel_bytes, 3 * MIB);
        mem_destroy(mem);
        mem = NULL;
    }
    unsetenv("STANDIN_CUDA_LACKS");
    in.let_fail("cuDeviceGetAttribute", 1, CUDA_ERROR_INVALID_VALUE); /* a driver before it */
    start_well();
    assert_true(mem_device_view(mem, 0, &view));
    assert_int_equal(view.facts.mps, -1);
}

/* Two tenants have memory on the first device, which is asked once, with or without kernels. */
TEST(mem_kernels_are_loaded_once_a_device)
{
    struct mem_config c = config_of(STANDIN_MEMORY);
    const char *why;

    c.device[1] = uuids;
    for (uint32_t refused = 0; refused < 2; refused++) {
        in.let_fail("cuModuleLoadData", refused, CUDA_ERROR_NO_BINARY_FOR_GPU);
        assert_int_equal(mem_create(&c, &mem, &why), TERN_OK);
        assert_int_equal(in.calls("cuModuleLoadData"), 2);
        assert_int_equal(stats_now().devices_with_kernels, 2 - refused);
        mem_destroy(mem);
        mem = NULL;
        assert_int_equal(left(), 0);
    }
}

/* Pages that reach the device are hashed there, in whatever unit a byte is wrong. */
TEST(mem_kernels_find_copies_that_are_spoilt)
{
    struct mem_config c = config_of(STANDIN_MEMORY);
    struct page_at device[PAGES], host[PAGES];
    const char *why;

    c.fault_copy_corrupt_every = 3;
    assert_int_equal(mem_create(&c, &mem, &why), TERN_OK);
    pools_set();
    pages_write(DEVICE);
    pages_list(device, 0);
    pages_list(host, PAGES);
    seal_all(1);
    for (uint32_t i = 0; i < 3; i++) {
        mem_copy(mem, (struct copy_id){i, 1}, i ? TIER : DEVICE, i ? DEVICE : TIER,
                 i ? host : device, i ? device : host, PAGES);
        take_events(mem, &back, 2 + i);
        assert_int_equal(back.got[1 + i].copied.err, i == 2 ? TERN_CORRUPT : TERN_OK);
        if (i == 1)
            assert_device_pages();
    }
    assert_int_equal(stats_now().work.sums_by_copies, 0);
    assert_int_equal(stats_now().work.sums_by_kernels, 3 * SUMS);
}

/* A page arrives as in a transfer. */
static bool arrives(uint32_t i, const uint64_t *sums)
{
    struct page_at at = page_of(i);
    struct mem_verify v;

    mem_verify_begin(&v, mem, DEVICE, &at, sums);
    for (uint32_t r = 0; r < PLACES; r++) {
        mem_verify_arrived(&v, r, v.page_bytes / 2);
        mem_verify_arrived(&v, r, v.page_bytes);
    }
    return mem_verify_landed(&v);
}

TEST(mem_kernels_verify_pages_that_arrive)
{
    uint64_t sums[PLACES * 3];
    struct page_at at = page_of(2);
    CUdeviceptr wrong;

    start_well();
    pages_write(DEVICE);
    for (uint32_t k = 0; k < PLACES * 3; k++)
        sums[k] = sum_expected(2, k / 3, k % 3);
    wrong = (CUdeviceptr)(uintptr_t)mem_page(mem, DEVICE, 1, at.group, at.index);
    assert_true(arrives(2, sums));
    assert_int_equal(stats_now().work.sums_by_kernels, PLACES * 3);
    assert_memory_equal(mem_sums(mem, at.record), sums, sizeof sums);
    in.spoil(wrong + 250 * 1024); /* in unit 1 */
    assert_false(arrives(2, sums));
    assert_int_equal(stats_now().work.sums_by_copies, 0);
}

/* More pages than a lane has room for, and a page that is too large for a lane. */
TEST(mem_kernels_take_what_they_have_room_for_at_a_time)
{
    static uint32_t list[600];
    static uint64_t sums[600 * 64];
    struct mem_far_pages pages = {.list = list, .page_bytes = 4096, .n = 600, .units = 64};
    struct mem_config c = config_of(STANDIN_MEMORY);
    const char *why;
    uint64_t bytes;

    c.tenant[0] = (struct tenant_config){.memory_bytes = 130 * MIB, .regions = 1};
    assert_int_equal(mem_create(&c, &mem, &why), TERN_OK);
    pages.base = mem_region_base(mem, 0, 0, &bytes);
    in.spoil((CUdeviceptr)(uintptr_t)(pages.base + 4096)); /* the last of the list differs */
    list[599] = 1;
    assert_true(mem_far(mem)->sums(mem_far(mem)->ctx, &pages, sums));
    assert_int_equal(in.calls("cuLaunchKernel"), 4);
    assert_int_equal(stats_now().work.sums_by_kernels, 600 * 64);
    for (uint32_t k = 0; k < 600 * 64; k++) {
        const uint8_t unit[64] = {k == 599 * 64 ? 0x10 : 0};

        assert_int_equal(sums[k], checksum_unit(unit, sizeof unit));
    }
    pages.n = pages.units = 1;
    pages.page_bytes = 129ull * MIB;
    assert_true(mem_far(mem)->sums(mem_far(mem)->ctx, &pages, sums));
    assert_int_equal(stats_now().work.sums_by_copies, 1);
    assert_int_equal(in.calls("cuLaunchKernel"), 4);
}

/* ---- a device without kernels ---- */

static void assert_by_copies(uint32_t from, const char *reason)
{
    struct mem_device_view view;

    start_well();
    pages_write(DEVICE);
    seal_all(from);
    assert_sealed();
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(mem_device_view(mem, i, &view));
        assert_string_equal(view.uuid, uuids[i]);
        assert_null(view.lost);
        if (i == 0) {
            assert_string_equal(view.no_kernels, reason);
            assert_int_equal(view.facts.kernel_bytes, 0);
        }
    }
    assert_false(mem_device_view(mem, 2, &view));
    assert_true(stats_now().work.sums_by_copies >= SUMS / 2);
    mem_destroy(mem);
    mem = NULL;
    assert_int_equal(left(), 0);
}

/* A device without a module, or without something that the module needs, still hashes. */
TEST(mem_kernels_that_cannot_be_had_are_done_without)
{
    static const struct {
        const char *call;
        CUresult result;
        const char *reason;
    } fails[] = {
        {"cuModuleLoadData", CUDA_ERROR_OUT_OF_MEMORY,
         "cuModuleLoadData: CUDA_ERROR_OUT_OF_MEMORY"},
        {"cuModuleGetFunction", CUDA_ERROR_NOT_SUPPORTED,
         "cuModuleGetFunction: CUDA_ERROR_NOT_SUPPORTED"},
        {"cuMemAlloc", CUDA_ERROR_OUT_OF_MEMORY, "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY"},
    };

    for (uint32_t i = 0; i < sizeof fails / sizeof fails[0]; i++) {
        in.let_fail(fails[i].call, 1, fails[i].result);
        assert_by_copies(1 + i, fails[i].reason);
    }
    setenv("STANDIN_CUDA_KERNELS", "0", 1);
    start_well();
    assert_int_equal(stats_now().devices_with_kernels, 0);
    mem_destroy(mem);
    assert_by_copies(4, "cuModuleLoadData: CUDA_ERROR_NO_BINARY_FOR_GPU");
}

/* ---- a device that fails ---- */

TEST(fault_20_a_device_that_is_lost_by_a_module_refuses_the_start)
{
    const char *why = NULL;

    in.let_fail("cuModuleLoadData", 2, CUDA_ERROR_LAUNCH_FAILED);
    assert_int_equal(start(&why), TERN_INTERNAL);
    assert_non_null(strstr(why, "cuModuleLoadData: CUDA_ERROR_LAUNCH_FAILED"));
    assert_non_null(strstr(why, uuids[1]));
    print_message("fault=20 runs=1 injected=1 violations=0\n");
}

static void seal_one(uint32_t record, uint32_t events)
{
    struct page_at at = page_of(2);

    at.record = record;
    mem_seal(mem, (struct seal_id){record, 1}, DEVICE, &at, 1);
    take_events(mem, &back, events);
}

/* Fails each call of a seal to the first GPU, or to the second, whichever comes first. */
TEST(fault_21_a_kernel_that_fails_fences_its_device)
{
    static const char *const calls[] = {"cuMemcpyHtoDAsync", "cuLaunchKernel", "cuMemcpyDtoHAsync",
                                        "cuEventRecord", "cuEventQuery"};
    const uint32_t n = sizeof calls / sizeof calls[0];

    for (uint32_t i = 0; i < n; i++) {
        uint8_t byte;

        memset(&back, 0, sizeof back);
        in.let_fail("", 0, CUDA_SUCCESS);
        start_well();
        pages_write(DEVICE);
        in.let_fail(calls[i], 1, CUDA_ERROR_LAUNCH_FAILED);
        seal_one(1, 1);
        assert_false(mem_sums_known(mem, 1, 6));
        assert_int_equal(mem_get(mem, &byte, mem_page(mem, DEVICE, 0, 0, 2), 1) +
                             mem_get(mem, &byte, mem_page(mem, DEVICE, 1, 0, 2), 1),
                         1);
        assert_lost(uuids[mem_sums(mem, 1)[0] != CHECKSUM_NONE], "CUDA_ERROR_LAUNCH_FAILED");
        assert_near_works(2);
        mem_destroy(mem);
        mem = NULL;
    }
    print_message("fault=21 runs=%u injected=%u violations=0 devices_lost=1\n", n, n);
}

TEST(fault_21_a_kernel_that_never_ends_loses_its_device_in_time)
{
    wait_ms = 2000;
    start_well();
    pages_write(DEVICE);
    in.hang_kernels(1);
    seal_one(1, 1);
    assert_near_works(2);
    assert_lost(uuids[1], "a kernel: the call did not end in time");
    assert_int_equal(mem_sums(mem, 1)[0], sum_expected(2, 0, 0)); /* the other one continued */
    assert_int_equal(mem_sums(mem, 1)[3], CHECKSUM_NONE);
}

/* ---- rows ---- */

#define ROWS 600u

/* Rows of random lengths in order of their addresses, alternately on two devices, some in host
 * memory between them, and sometimes some at equal distances. */
static uint32_t rows_draw(struct prng *p, struct iovec *ret, uint8_t *near, uint64_t *ret_bytes)
{
    uint32_t n = 0;

    *ret_bytes = 0;
    while (n < ROWS) {
        uint32_t r = prng_below(p, PLACES + 1), many = 1 + prng_below(p, 40);
        uint32_t bytes = 1 + prng_below(p, 200), stride = bytes + prng_below(p, 3) * 24;
        uint8_t *from = r == PLACES ? near : mem_page(mem, DEVICE, r, 0, 2);

        from += prng_below(p, 500 * 1024);
        for (uint32_t k = 0; k < many && n < ROWS; k++) {
            ret[n++] = (struct iovec){from + (uint64_t)k * stride, bytes};
            *ret_bytes += bytes;
        }
    }
    return n;
}

static void row_expected(const struct iovec *row, const uint8_t *near, uint8_t *ret)
{
    const uint8_t *at = row->iov_base;

    if (at >= near && at < near + 600 * 1024)
        memcpy(ret, at, row->iov_len);
    else
        in.look(ret, (CUdeviceptr)(uintptr_t)at, row->iov_len);
}

TEST(mem_kernels_pack_and_unpack_many_rows)
{
    static uint8_t near[600 * 1024], packed[ROWS * 200], expected_rows[ROWS * 200], row[256];
    static struct iovec rows[ROWS];
    struct prng p;

    start_well();
    pages_write(DEVICE);
    for (uint32_t seed = 0; seed < 10; seed++) {
        uint64_t bytes, at = 0, cut;
        uint32_t n;

        prng_init(&p, seed);
        n = rows_draw(&p, rows, near, &bytes);
        cut = bytes - prng_below(&p, 150);
        for (uint32_t i = 0; i < n; at += rows[i++].iov_len)
            row_expected(&rows[i], near, expected_rows + at);
        memset(packed, 0, sizeof packed);
        assert_true(mem_pack(mem, packed, rows, cut));
        assert_memory_equal(packed, expected_rows, cut);
        assert_int_equal(packed[cut], 0);
        for (uint64_t i = 0; i < bytes; i++)
            packed[i] = (uint8_t)(expected_rows[i] ^ 0x55);
        n = 1 + prng_below(&p, 30); /* rows that do not overlap */
        for (uint32_t i = 0; i < n; i++)
            rows[i] = (struct iovec){
                (uint8_t *)mem_page(mem, DEVICE, i < n / 2, 0, 3) + (uint64_t)i * 311, 1 + i * 7};
        at = n + (uint64_t)n * (n - 1) / 2 * 7;
        assert_true(mem_unpack(mem, rows, packed, at));
        for (uint32_t i = 0; i < n; i++) {
            at -= rows[n - 1 - i].iov_len;
            row_expected(&rows[n - 1 - i], near, row);
            assert_memory_equal(row, packed + at, rows[n - 1 - i].iov_len);
        }
    }
    assert_true(stats_now().work.rows_by_kernels > 10 * ROWS / 3);
    assert_true(stats_now().work.rows_by_copies < 100); /* the single ones */
}

/* Rows at equal distances are one piece of one launch, and one copy moves them. */
TEST(mem_kernels_move_a_column_at_once)
{
    static uint8_t packed[256 * 128];
    struct iovec rows[256];
    uint32_t copies, page = 2;

    start_well();
    pages_write(DEVICE);
    for (uint32_t i = 0; i < 256; i++)
        rows[i] = (struct iovec){(uint8_t *)mem_page(mem, DEVICE, 1, 0, 2) + 64 + i * 2048ull, 128};
    copies = in.calls("cuMemcpyDtoHAsync");
    assert_true(mem_pack(mem, packed, rows, sizeof packed));
    assert_int_equal(in.calls("cuMemcpyDtoHAsync") - copies, 1);
    assert_int_equal(in.calls("cuLaunchKernel"), 1);
    for (uint32_t i = 0; i < 256; i++)
        assert_memory_equal(packed + i * 128ull, expected[1][page] + 64 + i * 2048ull, 128);
    /* And without kernels, one by one. */
    mem_destroy(mem);
    setenv("STANDIN_CUDA_KERNELS", "0", 1);
    start_well();
    pages_write(DEVICE);
    for (uint32_t i = 0; i < 256; i++)
        rows[i] = (struct iovec){(uint8_t *)mem_page(mem, DEVICE, 1, 0, 2) + 64 + i * 2048ull, 128};
    memset(packed, 0, sizeof packed);
    assert_true(mem_pack(mem, packed, rows, sizeof packed));
    for (uint32_t i = 0; i < 256; i++)
        assert_memory_equal(packed + i * 128ull, expected[1][page] + 64 + i * 2048ull, 128);
    assert_int_equal(stats_now().work.rows_by_copies, 256);
    assert_int_equal(in.calls("cuLaunchKernel"), 1);
}

TEST(fault_21_a_kernel_that_packs_and_fails_fences_its_device)
{
    uint8_t packed[64];
    struct iovec rows[4];

    start_well();
    for (uint32_t i = 0; i < 4; i++)
        rows[i] = (struct iovec){(uint8_t *)mem_page(mem, DEVICE, i / 2, 0, 2) + i * 100ull, 16};
    in.let_fail("cuLaunchKernel", 1, CUDA_ERROR_LAUNCH_FAILED);
    memset(packed, 0xff, sizeof packed);
    assert_false(mem_pack(mem, packed, rows, sizeof packed));
    assert_lost(uuids[0], "CUDA_ERROR_LAUNCH_FAILED");
    assert_int_equal(packed[31], 0xff); /* nothing of this one, all of the other */
    assert_int_equal(packed[32], 0);
    print_message("fault=21 runs=1 injected=1 violations=0 devices_lost=1\n");
}
