/* Memory of GPUs, on the stand-in: the start and each call that can fail there, zeroing, checksums,
 * copies, arriving pages, and a device that fails; kernels have a test of their own. Never run on a
 * GPU. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "seam/mem/mem_pack.h"
#include "seam/mem/mem_verify.h"
#include "unit/seam/test_mem_cuda_rig.h"

FIXTURE(begin)
{
    setenv("STANDIN_CUDA_KERNELS", "0", 1);
    rig_begin();
    wait_ms = 60000; /* for a machine that stands still */
    return 0;
}

FIXTURE(end)
{
    rig_end();
    return 0;
}

TEST_EACH(begin, end);

/* ---- start ---- */

TEST(mem_cuda_starts_zeroed_and_ends_without_a_rest)
{
    static uint8_t bytes[17 * MIB];
    struct mem_stats stats;
    uint64_t size;
    bool lost;

    start_well();
    mem_stats(mem, &stats);
    assert_int_equal(stats.device_bytes, PLACES * 18 * MIB); /* whole granules */
    assert_int_equal(stats.bytes, PLACES * 18 * MIB + 2 * MIB);
    assert_int_equal(stats.devices, 2);
    assert_int_equal(stats.devices_lost, 0);
    for (uint32_t r = 0; r < PLACES; r++) {
        uint8_t *base = mem_region_base(mem, 0, r, &size);

        in.look(bytes, (CUdeviceptr)(uintptr_t)base, sizeof bytes);
        for (size_t i = 0; i < sizeof bytes; i++)
            if (bytes[i])
                fail_msg("byte %zu of region %u is not zero", i, r);
        assert_true(fcntl(mem_region_fd(mem, 0, r), F_GETFD) & FD_CLOEXEC);
        assert_string_equal(mem_region_device(mem, 0, r, &size, &lost), uuids[r]);
        assert_int_equal(size, 18 * MIB);
        assert_false(lost);
    }
    assert_null(mem_region_device(mem, 1, 0, &size, &lost));
    assert_true(mem_far_at(mem, mem_page(mem, DEVICE, 0, 0, 0)) &&
                !mem_far_at(mem, mem_page(mem, TIER, 0, 0, 0)) &&
                !mem_far_at(mem, mem_page(mem, NEAR, 0, 0, 0)));
    mem_destroy(mem);
    mem = NULL;
    assert_int_equal(left(), 0);
}

TEST(mem_cuda_is_not_loaded_for_tenants_without_devices)
{
    struct mem_config c = config_of("libnone-of-cuda.so.1");
    const char *why;

    c.device[0] = NULL;
    assert_int_equal(mem_create(&c, &mem, &why), TERN_OK);
    assert_null(mem_far(mem));
}

TEST(mem_cuda_says_what_is_missing)
{
    static const char wrong[RANKS_MAX][MEM_DEVICE_BYTES] = {STANDIN_UUID(0), "GPU-none"};
    struct mem_config c = config_of("libnone-of-cuda.so.1");
    const char *why;

    assert_int_equal(mem_create(&c, &mem, &why), TERN_UNSUPPORTED);
    assert_non_null(strstr(why, "libnone-of-cuda.so.1"));
    assert_non_null(strstr(why, "device_memory"));
    c = config_of(STANDIN_MEMORY);
    c.device[0] = wrong;
    assert_int_equal(mem_create(&c, &mem, &why), TERN_UNSUPPORTED);
    assert_non_null(strstr(why, "GPU-none"));
    assert_non_null(strstr(why, STANDIN_UUID(0) " " STANDIN_UUID(1)));
    setenv("STANDIN_CUDA_LACKS", "103", 1); /* file descriptors */
    assert_int_equal(start(&why), TERN_UNSUPPORTED);
    assert_non_null(strstr(why, "file descriptor"));
    unsetenv("STANDIN_CUDA_LACKS");
    assert_int_equal(left(), 0);
}

/* Too little memory is no bug of Tern's, and the figures are those of the named GPU: of two, the
 * one with less memory, whichever the start had reached. */
TEST(mem_cuda_too_little_memory_says_of_which_gpu_how_much_is_free_and_was_asked_for)
{
    static const char other[RANKS_MAX][MEM_DEVICE_BYTES] = {STANDIN_UUID(1)};
    struct mem_config c = config_of(STANDIN_MEMORY);
    const char *why;

    c.tenant[0].memory_bytes = 2048ull * MIB;
    assert_int_equal(mem_create(&c, &mem, &why), TERN_INVALID);
    assert_non_null(strstr(why, "2048 MiB were requested, 1024 of 1024 MiB are free"));
    assert_non_null(strstr(why, STANDIN_UUID(0) ": "));
    assert_non_null(strstr(why, "lower tenants[].memory"));
    c = config_of(STANDIN_MEMORY);
    c.tenants = 3;
    c.tenant[0].regions = 1;
    c.tenant[1] = c.tenant[2] = c.tenant[0];
    c.tenant[1].memory_bytes = 100 * MIB;
    c.tenant[2].memory_bytes = 2048ull * MIB;
    c.device[1] = other;
    c.device[2] = uuids;
    assert_int_equal(mem_create(&c, &mem, &why), TERN_INVALID);
    assert_non_null(strstr(why, STANDIN_UUID(0) ": "));
    assert_non_null(strstr(why, "2048 MiB were requested, 1006 of 1024 MiB are free"));
    assert_int_equal(left(), 0);
}

/* Fails each driver call of a start, each time it is made. The cleanup makes other calls, which may
 * fail. */
TEST(fault_20_each_call_that_fails_at_start_is_refused_by_its_name)
{
    static const char *const calls[] = {"cuInit",
                                        "cuDeviceGetCount",
                                        "cuDeviceGet",
                                        "cuDeviceGetUuid",
                                        "cuDevicePrimaryCtxRetain",
                                        "cuCtxSetCurrent",
                                        "cuStreamCreate",
                                        "cuEventCreate",
                                        "cuMemHostAlloc",
                                        "cuMemGetAllocationGranularity",
                                        "cuMemCreate",
                                        "cuMemAddressReserve",
                                        "cuMemMap",
                                        "cuMemSetAccess",
                                        "cuMemExportToShareableHandle",
                                        "cuMemsetD8Async",
                                        "cuEventRecord"};
    const size_t n = sizeof calls / sizeof calls[0];
    uint32_t points = 0, refused = 0;
    uint32_t times[sizeof calls / sizeof calls[0]];
    const char *why;

    setenv("STANDIN_CUDA_NO_PEERS", "all",
           1); /* a failing peer call refuses no start: test_mem_peers */
    start_well();
    for (size_t i = 0; i < n; i++)
        times[i] = in.calls(calls[i]);
    mem_destroy(mem);
    for (size_t i = 0; i < n; i++) {
        assert_true(times[i] > 0);
        if (strcmp(calls[i], "cuCtxSetCurrent") == 0)
            times[i] -= 1; /* the end of the last start */
        for (uint32_t nth = 1; nth <= times[i]; nth++, points++) {
            const uint32_t before = left();

            mem = NULL;
            in.let_fail(calls[i], nth, CUDA_ERROR_OUT_OF_MEMORY);
            why = NULL;
            if (start(&why) != TERN_OK && why && strstr(why, "CUDA_ERROR_OUT_OF_MEMORY"))
                refused++;
            else
                print_message("%s, %u: %s\n", calls[i], nth, why ? why : "no refusal");
            assert_null(mem);
            if (why && !strstr(why, "zeroed")) /* else the device was lost, and its memory stays */
                assert_int_equal(left(), before);
        }
    }
    print_message("fault=20 runs=%u injected=%u violations=%u points %u/%u\n", points, points,
                  points - refused, refused, points);
    assert_int_equal(refused, points);
    unsetenv("STANDIN_CUDA_NO_PEERS");
}

/* ---- pages ---- */

TEST(mem_cuda_seals_with_the_checksums_of_the_bytes_on_the_device)
{
    struct page_at pages[PAGES];

    start_well();
    pages_write(DEVICE);
    assert_device_pages();
    pages_list(pages, 0);
    mem_seal(mem, (struct seal_id){1, 1}, DEVICE, pages, PAGES);
    take_events(mem, &back, 1);
    for (uint32_t i = 0; i < PAGES; i++)
        for (uint32_t r = 0; r < PLACES; r++)
            for (uint32_t u = 0; u < groups[i % 2].units; u++)
                assert_int_equal(mem_sums(mem, i)[r * groups[i % 2].units + u],
                                 sum_expected(i, r, u));
}

TEST(mem_cuda_copies_to_the_host_tier_and_back)
{
    struct page_at device[PAGES], host[PAGES];
    struct mem_stats stats;

    start_well();
    pages_write(DEVICE);
    pages_list(device, 0);
    pages_list(host, PAGES);
    mem_seal(mem, (struct seal_id){1, 1}, DEVICE, device, PAGES);
    take_events(mem, &back, 1);
    mem_copy(mem, (struct copy_id){1, 1}, DEVICE, TIER, device, host, PAGES);
    take_events(mem, &back, 2);
    assert_int_equal(back.got[1].copied.err, TERN_OK);
    for (uint32_t i = 0; i < PAGES; i++)
        for (uint32_t r = 0; r < PLACES; r++)
            assert_memory_equal(mem_page(mem, TIER, r, host[i].group, host[i].index),
                                expected[r][i], bytes_of(i));
    mem_zero(mem, (struct pool_id){DEVICE, 1});
    take_events(mem, &back, 3);
    mem_copy(mem, (struct copy_id){2, 1}, TIER, DEVICE, host, device, PAGES);
    take_events(mem, &back, 4);
    assert_int_equal(back.got[3].copied.err, TERN_OK);
    assert_device_pages();
    in.spoil((CUdeviceptr)(uintptr_t)mem_page(mem, DEVICE, 1, 0, device[2].index) + 599 * 1024);
    mem_copy(mem, (struct copy_id){3, 1}, DEVICE, TIER, device, host, PAGES);
    take_events(mem, &back, 5);
    assert_int_equal(back.got[4].copied.err, TERN_CORRUPT);
    mem_stats(mem, &stats);
    assert_int_equal(stats.copied_pages, 2 * PAGES);
    assert_int_equal(stats.copies_corrupt, 1);
}

/* Fault injection: a byte changed during a copy is detected, in both directions. */
TEST(mem_cuda_finds_copies_that_are_spoilt)
{
    struct mem_config c = config_of(STANDIN_MEMORY);
    struct page_at device[PAGES], host[PAGES];
    const char *why;

    c.fault_copy_corrupt_every = 2;
    assert_int_equal(mem_create(&c, &mem, &why), TERN_OK);
    pools_set();
    pages_write(DEVICE);
    pages_list(device, 0);
    pages_list(host, PAGES);
    mem_seal(mem, (struct seal_id){1, 1}, DEVICE, device, PAGES);
    take_events(mem, &back, 1);
    for (uint32_t i = 0; i < 4; i++) {
        bool out = i != 1;

        mem_copy(mem, (struct copy_id){i, 1}, out ? DEVICE : TIER, out ? TIER : DEVICE,
                 out ? device : host, out ? host : device, 3);
        take_events(mem, &back, 2 + i);
        assert_int_equal(back.got[1 + i].copied.err, i % 2 ? TERN_CORRUPT : TERN_OK);
        pages_write(DEVICE); /* unchanged */
    }
    assert_int_not_equal(*(uint8_t *)mem_page(mem, TIER, 0, 0, host[0].index), expected[0][0][0]);
}

/* P3: the whole range is zeroed, and nothing beside it is touched. */
TEST(mem_cuda_zeroes_the_pool_and_nothing_else)
{
    static uint8_t region[17 * MIB];
    uint64_t bytes;

    start_well();
    for (uint32_t r = 0; r < PLACES; r++) {
        uint8_t *base = mem_region_base(mem, 0, r, &bytes);

        memset(region, 0x77, sizeof region);
        assert_true(mem_put(mem, base, region, sizeof region));
    }
    mem_pool_set(mem, DEVICE, TIER_DEVICE, 0, MIB, 9 * MIB, PLACES, NULL, PLACES, 2, groups);
    mem_zero(mem, (struct pool_id){DEVICE, 2});
    take_events(mem, &back, 1);
    assert_int_equal(back.got[0].kind, EV_ZEROED);
    for (uint32_t r = 0; r < PLACES; r++) {
        in.look(region, (CUdeviceptr)(uintptr_t)mem_region_base(mem, 0, r, &bytes), sizeof region);
        for (size_t i = 0; i < sizeof region; i++)
            if (region[i] != (i >= MIB && i < 10 * MIB ? 0 : 0x77))
                fail_msg("byte %zu of region %u is %u", i, r, region[i]);
    }
}

/* As for transfers: bytes arrive in pieces, packed, and are verified in place. */
TEST(mem_cuda_verifies_a_page_that_arrives_on_the_device)
{
    struct page_at at = page_of(2);
    struct mem_verify v;
    uint64_t sums[PLACES * 3];

    start_well();
    pages_write(DEVICE);
    for (uint32_t k = 0; k < PLACES * 3; k++)
        sums[k] = sum_expected(2, k / 3, k % 3);
    mem_zero(mem, (struct pool_id){DEVICE, 1});
    take_events(mem, &back, 1);
    for (uint32_t wrong = 0; wrong < 2; wrong++) {
        mem_verify_begin(&v, mem, DEVICE, &at, sums);
        for (uint32_t r = 0; r < PLACES; r++)
            for (uint64_t from = 0, n; from < bytes_of(2); from += n) {
                uint8_t *to_at = (uint8_t *)mem_page(mem, DEVICE, r, at.group, at.index) + from;
                struct iovec to;

                n = bytes_of(2) - from < 65000 ? bytes_of(2) - from : 65000;
                to = (struct iovec){to_at, n};
                assert_true(mem_unpack(mem, &to, expected[r][2] + from, n));
                if (wrong && r == 1 && from == 0)
                    mem_verify_spoil(mem, DEVICE, &at, r, 64999);
                mem_verify_arrived(&v, r, from + n);
            }
        assert_int_equal(mem_verify_landed(&v), !wrong);
    }
}

TEST(mem_cuda_packs_memory_of_both_kinds)
{
    uint8_t near[3] = {1, 2, 3}, packed[64];
    struct iovec parts[3];

    start_well();
    pages_write(DEVICE);
    parts[0] = (struct iovec){near, 3};
    parts[1] = (struct iovec){(uint8_t *)mem_page(mem, DEVICE, 1, 0, 2) + 17, 20};
    parts[2] = (struct iovec){mem_page(mem, DEVICE, 0, 0, 2), 20};
    assert_true(mem_pack(mem, packed, parts, 40));
    assert_memory_equal(packed, near, 3);
    assert_memory_equal(packed + 3, expected[1][2] + 17, 20);
    assert_memory_equal(packed + 23, expected[0][2], 17);
}

/* All ranks have equal pages: one for the first goes to the other device, and is hashed there. */
TEST(mem_cuda_spreads_a_page_to_the_other_device)
{
    static uint8_t bytes[600 * 1024];
    const uint32_t units = groups[4 % 2].units;
    struct page_at at = page_of(4);

    start_well();
    mem_pool_set(mem, DEVICE, TIER_DEVICE, 0, MIB, 16 * MIB, PLACES, NULL, 1, 2, groups);
    pages_write(DEVICE);
    for (uint32_t u = 0; u < units; u++)
        mem_sums(mem, at.record)[u] = sum_expected(4, 0, u);
    assert_true(mem_spread(mem, DEVICE, &at));
    page_look(4, 1, bytes);
    assert_memory_equal(bytes, expected[0][4], bytes_of(4));
    assert_memory_equal(mem_sums(mem, at.record) + units, mem_sums(mem, at.record),
                        units * sizeof(uint64_t));
    setenv("STANDIN_CUDA_SPOILS_PEERS", "all", 1); /* from now on; the start found no fault */
    assert_false(mem_spread(mem, DEVICE, &at));
    unsetenv("STANDIN_CUDA_SPOILS_PEERS");
    assert_true(mem_spread(mem, DEVICE, &at));
}

/* ---- a device that fails ---- */

TEST(fault_21_a_device_that_fails_is_fenced_and_the_others_serve)
{
    struct page_at pages[PAGES];
    uint8_t byte = 0;
    uint32_t before;

    start_well();
    pages_write(DEVICE);
    pages_list(pages, 0);
    in.let_fail("cuMemcpyDtoHAsync", 5, CUDA_ERROR_ILLEGAL_ADDRESS);
    mem_seal(mem, (struct seal_id){1, 1}, DEVICE, pages, 1);
    take_events(mem, &back, 1); /* it still ends: with the checksum of nothing */
    if (!mem_get(mem, &byte, mem_page(mem, DEVICE, 0, 0, 2), 1))
        assert_lost(uuids[0], "CUDA_ERROR_ILLEGAL_ADDRESS");
    else
        assert_lost(uuids[1], "CUDA_ERROR_ILLEGAL_ADDRESS");
    assert_false(mem_sums_known(mem, 0, 6));
    before = in.calls("cuMemcpyDtoHAsync");
    assert_int_equal(mem_get(mem, &byte, mem_page(mem, DEVICE, 0, 0, 2), 1) +
                         mem_get(mem, &byte, mem_page(mem, DEVICE, 1, 0, 2), 1),
                     1);
    assert_int_equal(in.calls("cuMemcpyDtoHAsync"), before + 1); /* the lost one gets no call */
    assert_near_works(2);
    print_message("fault=21 runs=1 injected=1 violations=0 devices_lost=1\n");
}

/* The second query of an event is the end of a copy of one piece; its other event was never
 * recorded, so it is done. */
TEST(fault_21_a_copy_that_fails_at_its_end_is_told)
{
    uint8_t byte = 1;

    start_well();
    in.let_fail("cuEventQuery", 2, CUDA_ERROR_INVALID_VALUE);
    assert_false(mem_put(mem, mem_page(mem, DEVICE, 1, 0, 2), &byte, 1));
    assert_lost(uuids[1], "CUDA_ERROR_INVALID_VALUE");
}

TEST(fault_21_a_device_that_does_not_answer_is_lost_in_time)
{
    struct page_at pages[PAGES];

    wait_ms = 2000;
    start_well();
    pages_list(pages, 0);
    in.hang(1);
    mem_seal(mem, (struct seal_id){1, 1}, DEVICE, pages, PAGES);
    assert_near_works(1);
    take_events(mem, &back, 2);
    assert_lost(uuids[1], "did not end in time");
}
