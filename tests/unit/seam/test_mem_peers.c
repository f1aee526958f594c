/* Copies from GPU to GPU, on the stand-in: within one, between two that reach each other, and
 * through host memory; the start's test of each pair, and each call that can fail there; devices
 * that fail, and threads in opposite directions. Never run on GPUs. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/prng.h"
#include "seam/mem/cuda/mem_cuda.h"
#include "seam/mem/mem_touch.h"
#include "standin/standin_open.h"
#include "testing/test.h"

#define MIB        (1u << 20)
#define DEVICES    8u
#define REGION     (8 * MIB)
#define NEAR       DEVICES /* its place in `content`: the region of the tenant without GPUs */
#define WAIT_MS    2000u   /* of a device that hangs; of the others: */
#define PATIENT_MS 60000u
#define HANGS_S    100u /* then it is ended: here nobody waits for another */
#define THREADS    12u  /* in each direction: more than a device has lanes */
#define SHARE      (REGION / (2 * THREADS))

static const char uuids[RANKS_MAX][MEM_DEVICE_BYTES] = {
    STANDIN_UUID(0), STANDIN_UUID(1), STANDIN_UUID(2), STANDIN_UUID(3),
    STANDIN_UUID(4), STANDIN_UUID(5), STANDIN_UUID(6), STANDIN_UUID(7)};

static struct standin in;
static struct mem *mem;
static bool peers_off, two_each; /* two_each: both tenants have a region on each device */
static uint32_t wait_ms;
static uint8_t content[DEVICES + 1][REGION]; /* expected contents of each region */

FIXTURE(begin)
{
    setenv("STANDIN_CUDA_KERNELS", "0", 1);
    setenv("STANDIN_CUDA_DEVICES", "8", 1);
    unsetenv("STANDIN_CUDA_NO_PEERS");
    unsetenv("STANDIN_CUDA_SPOILS_PEERS");
    in = standin_open(STANDIN_MEMORY);
    in.let_fail("", 0, CUDA_SUCCESS);
    mem = NULL;
    peers_off = two_each = false;
    wait_ms = PATIENT_MS;
    alarm(HANGS_S);
    return 0;
}

FIXTURE(end)
{
    alarm(0);
    mem_destroy(mem);
    dlclose(in.library);
    return 0;
}

TEST_EACH(begin, end);

static uint8_t *base(uint32_t device)
{
    uint64_t bytes;

    return mem_region_base(mem, device == NEAR, device == NEAR ? 0 : device, &bytes);
}

static enum tern_err start(uint32_t devices)
{
    struct mem_config c = {.tenants = 2,
                           .engines = 1,
                           .pools = 1,
                           .page_records = 1,
                           .sums_per_page = DEVICES,
                           .page_bytes_min = 4096,
                           .workers = 1,
                           .jobs = 4,
                           .cuda_library = STANDIN_MEMORY,
                           .device_wait_ms = wait_ms,
                           .no_peers = peers_off};
    const char *why;

    c.tenant[0] =
        (struct tenant_config){.memory_bytes = REGION, .regions = devices, .sessions_max = 1};
    c.tenant[1] = (struct tenant_config){.memory_bytes = REGION, .regions = 1, .sessions_max = 1};
    c.device[0] = uuids;
    if (two_each) {
        c.tenant[1].regions = devices;
        c.device[1] = uuids;
    }
    return mem_create(&c, &mem, &why);
}

static void stop(void)
{
    mem_destroy(mem);
    mem = NULL;
}

static void start_well(uint32_t devices)
{
    assert_int_equal(start(devices), TERN_OK);
}

/* Fills all regions with random bytes. */
static void fill(uint32_t devices)
{
    struct prng p;

    prng_init(&p, 1);
    for (uint32_t i = 0; i <= DEVICES; i++) {
        if (i >= devices && i != NEAR)
            continue;
        for (uint32_t b = 0; b < REGION; b += 8) {
            uint64_t word = prng_u64(&p);

            memcpy(content[i] + b, &word, 8);
        }
        assert_true(mem_put(mem, base(i), content[i], REGION));
    }
}

/* The whole region: nothing beside the moved bytes has changed. */
static void assert_content(uint32_t i)
{
    static uint8_t seen[REGION];

    if (i == NEAR)
        memcpy(seen, base(i), REGION);
    else
        in.look(seen, (CUdeviceptr)(uintptr_t)base(i), REGION);
    assert_memory_equal(seen, content[i], REGION);
}

struct move {
    uint32_t to, from;
    uint64_t to_at, from_at, n;
};

static bool moved(struct move m)
{
    bool ok = mem_move(mem, base(m.to) + m.to_at, base(m.from) + m.from_at, m.n);

    if (ok)
        memmove(content[m.to] + m.to_at, content[m.from] + m.from_at, m.n);
    return ok;
}

static struct mem_far_work work(void)
{
    struct mem_stats stats;

    mem_stats(mem, &stats);
    return stats.work;
}

static uint32_t lost(void)
{
    struct mem_stats stats;

    mem_stats(mem, &stats);
    return stats.devices_lost;
}

static uint32_t left(void)
{
    struct standin_live live = in.live();

    return live.contexts + live.handles + live.maps + live.ranges + live.streams + live.events +
           live.pinned + live.modules;
}

/* ---- every pair ---- */

/* Sizes of no piece, of less than one, of one, and of several with a rest; none is aligned. */
static const uint64_t sizes[] = {
    0, 1, 4095, CUDA_PIECE_BYTES, CUDA_PIECE_BYTES + 1, 5 * CUDA_PIECE_BYTES + 777};
#define SIZES (sizeof sizes / sizeof *sizes)

/* Moves from each to each, in every size; *ret_bytes: of a pair. */
static void move_all(uint64_t *ret_bytes)
{
    struct prng p;

    prng_init(&p, 2);
    fill(DEVICES);
    for (uint32_t to = 0; to < DEVICES; to++)
        for (uint32_t from = 0; from < DEVICES; from++) {
            *ret_bytes = 0;
            for (size_t i = 0; i < SIZES; i++) {
                struct move m = {.to = to, .from = from, .n = sizes[i]};

                m.to_at = prng_below(&p, (uint32_t)(REGION / 2 - m.n / 2)) / 2;
                m.from_at = REGION - m.n - prng_below(&p, 1001);
                if (to == from) /* the ends do not overlap */
                    m.to_at %= REGION / 4, m.n /= 3;
                assert_true(moved(m));
                *ret_bytes += sizes[i];
            }
            assert_content(to);
        }
    for (uint32_t i = 0; i <= DEVICES; i++)
        if (i != NEAR)
            assert_content(i);
}

TEST(mem_peers_move_between_every_two_devices_by_themselves)
{
    uint32_t gets;
    uint64_t bytes;

    start_well(DEVICES);
    for (uint32_t a = 0; a < DEVICES; a++)
        for (uint32_t b = 0; b < DEVICES; b++)
            assert_true(a == b || !mem_no_peers(mem, a, b));
    assert_int_equal(in.live().peers, DEVICES * (DEVICES - 1));
    gets = in.calls("cuMemcpyDtoHAsync");
    move_all(&bytes);
    assert_int_equal(in.calls("cuMemcpyDtoHAsync"), gets); /* nothing passed through the host */
    assert_int_equal(work().moved_by_peer, DEVICES * (DEVICES - 1) * bytes);
    assert_int_equal(work().moved_staged, 0);
    assert_true(work().moved_within > 0);
    stop();
    assert_int_equal(left(), 0);
}

TEST(mem_peers_that_do_not_reach_each_other_move_through_the_host)
{
    uint64_t bytes;

    setenv("STANDIN_CUDA_NO_PEERS", "all", 1);
    start_well(DEVICES);
    for (uint32_t a = 0; a < DEVICES; a++)
        for (uint32_t b = 0; b < DEVICES; b++)
            assert_true(a == b ||
                        strcmp(mem_no_peers(mem, a, b), "cuDeviceCanAccessPeer: no") == 0);
    move_all(&bytes);
    assert_int_equal(in.calls("cuMemcpyDtoDAsync"), DEVICES * SIZES); /* within them */
    assert_int_equal(work().moved_staged, DEVICES * (DEVICES - 1) * bytes);
    assert_int_equal(work().moved_by_peer, 0);
    stop();
    assert_int_equal(left(), 0);
}

/* One direction is not enough. The others are peers all the same. */
TEST(mem_peers_are_those_alone_that_reach_each_other_both_ways)
{
    uint64_t bytes;

    setenv("STANDIN_CUDA_NO_PEERS", "0-1,6-3", 1);
    start_well(DEVICES);
    for (uint32_t a = 0; a < DEVICES; a++)
        for (uint32_t b = a + 1; b < DEVICES; b++) {
            bool none = (a == 0 && b == 1) || (a == 3 && b == 6);

            assert_int_equal(mem_no_peers(mem, a, b) != NULL, none);
            assert_int_equal(mem_no_peers(mem, b, a) != NULL, none);
            assert_true(!none || strstr(mem_no_peers(mem, a, b), "cuDeviceCanAccessPeer: no"));
        }
    move_all(&bytes);
    assert_int_equal(work().moved_staged, 4 * bytes);
    assert_int_equal(work().moved_by_peer, (DEVICES * (DEVICES - 1) - 4) * bytes);
}

TEST(mem_peers_memory_of_the_host_goes_to_devices_and_back)
{
    start_well(2);
    fill(2);
    for (size_t i = 0; i < SIZES; i++) {
        assert_true(moved((struct move){1, NEAR, 13, 4097, sizes[i]}));
        assert_true(moved((struct move){NEAR, 0, 4095, 7, sizes[i]}));
        assert_content(1);
        assert_content(NEAR);
    }
    assert_int_equal(work().moved_by_peer + work().moved_staged + work().moved_within, 0);
}

/* ---- start ---- */

/* Number of calls of a start with two devices until its regions are made, and then for its pair. */
static uint32_t calls_of(const char *name, const char *no_peers)
{
    uint32_t n;

    setenv("STANDIN_CUDA_NO_PEERS", no_peers, 1);
    in.let_fail("", 0, CUDA_SUCCESS);
    start_well(2);
    n = in.calls(name);
    stop();
    return n;
}

static void assert_zero(uint32_t device)
{
    memset(content[device], 0, REGION);
    assert_content(device);
}

/* No such call refuses the start. A device that failed at a copy of its own is lost, as ever; else
 * both are used, through the host. */
TEST(fault_20_each_call_for_peers_that_fails_at_start_leaves_the_way_through_the_host)
{
    static const char *const calls[] = {
        "cuDeviceCanAccessPeer", "cuMemSetAccess",    "cuCtxSetCurrent", "cuMemcpyHtoDAsync",
        "cuMemcpyDtoDAsync",     "cuMemcpyDtoHAsync", "cuMemsetD8Async", "cuEventRecord"};
    uint32_t points = 0, staged = 0;

    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        uint32_t first = i == 0 ? 0 : calls_of(calls[i], "all"), last = calls_of(calls[i], "");

        assert_true(last > first);
        for (uint32_t nth = first + 1; nth <= last; nth++, points++) {
            const uint32_t before = left(), peers = in.live().peers; /* of devices that are lost */
            const char *why;

            in.let_fail(calls[i], nth, CUDA_ERROR_INVALID_VALUE);
            start_well(2);
            why = mem_no_peers(mem, 0, 1);
            staged += why && strstr(why, lost() ? "a device was lost" : "CUDA_ERROR_INVALID_VALUE");
            assert_int_equal(lost() > 0, i > 1 && strcmp(calls[i], "cuMemcpyDtoDAsync") != 0);
            if (lost() == 0) {
                assert_int_equal(in.live().peers, peers); /* no half is left */
                assert_zero(0);
                assert_zero(1);
                fill(2);
                assert_true(moved((struct move){0, 1, 5, 9, 2 * CUDA_PIECE_BYTES}));
                assert_content(0);
                assert_int_equal(work().moved_staged, 2 * CUDA_PIECE_BYTES);
            }
            stop();
            in.let_fail("", 0, CUDA_SUCCESS);
            assert_true(left() >= before); /* a lost device keeps its memory */
        }
    }
    print_message("fault=20 runs=%u injected=%u violations=%u points %u/%u\n", points, points,
                  points - staged, staged, points);
    assert_int_equal(staged, points);
}

/* After access to one region has failed, access to no further region is given, and access given
 * before is revoked as far as possible, whatever one region does. */
TEST(fault_20_access_to_one_of_two_regions_that_fails_leaves_none_of_the_other)
{
    uint32_t own, peers;

    two_each = true;
    own = calls_of("cuMemSetAccess", "all"); /* of each region, to its own device */
    unsetenv("STANDIN_CUDA_NO_PEERS");
    in.let_fail("cuMemSetAccess", own + 1, CUDA_ERROR_INVALID_VALUE);
    start_well(2);
    assert_non_null(mem_no_peers(mem, 0, 1));
    assert_int_equal(in.calls("cuMemSetAccess"), own + 1 + 4); /* each revokes two */
    assert_int_equal(in.live().peers, 0);
    stop();
    setenv("STANDIN_CUDA_SPOILS_PEERS", "all", 1);
    in.let_fail("cuMemSetAccess", own + 4 + 1, CUDA_ERROR_INVALID_VALUE);
    start_well(2);
    assert_non_null(mem_no_peers(mem, 0, 1));
    peers = in.live().peers;
    stop();
    in.let_fail("", 0, CUDA_SUCCESS);
    assert_int_equal(peers, 1); /* the one that failed */
}

/* An error that a device does not recover from. */
TEST(fault_20_a_device_that_fails_at_the_try_is_lost_and_the_other_serves)
{
    start_well(2);
    stop();
    in.let_fail("cuMemcpyDtoDAsync", 1, CUDA_ERROR_ILLEGAL_ADDRESS);
    start_well(2);
    assert_int_equal(lost(), 1);
    assert_non_null(strstr(mem_no_peers(mem, 0, 1), "CUDA_ERROR_ILLEGAL_ADDRESS"));
    assert_false(mem_put(mem, base(0), content[0], 1));
    assert_true(mem_put(mem, base(1), content[1], 1));
    print_message("fault=20 runs=1 injected=1 violations=0 devices_lost=1\n");
}

TEST(fault_20_a_try_that_loses_a_device_is_the_last)
{
    in.let_fail("cuMemcpyDtoDAsync", 1, CUDA_ERROR_ILLEGAL_ADDRESS);
    start_well(DEVICES);
    assert_int_equal(lost(), 1);
    assert_int_equal(in.calls("cuMemcpyDtoDAsync"), 1);
    for (uint32_t i = 1; i < DEVICES; i++)
        for (uint32_t k = i + 1; k < DEVICES; k++)
            assert_non_null(strstr(mem_no_peers(mem, i, k), "lost a GPU: start with"));
    print_message("fault=20 runs=1 injected=1 violations=0 devices_lost=1\n");
}

TEST(mem_peers_that_are_off_are_not_tried)
{
    peers_off = true;
    start_well(2);
    assert_string_equal(mem_no_peers(mem, 0, 1), "not tried: peer_access is false");
    assert_int_equal(in.calls("cuMemcpyDtoDAsync") + in.calls("cuDeviceCanAccessPeer"), 0);
    fill(2);
    assert_true(moved((struct move){1, 0, 1, 2, 3 * CUDA_PIECE_BYTES}));
    assert_content(1);
    assert_int_equal(work().moved_staged, 3 * CUDA_PIECE_BYTES);
}

TEST(mem_peers_whose_bytes_come_wrong_move_through_the_host)
{
    static const char *const spoilt[] = {"0-1", "1-0", "all"};

    for (size_t i = 0; i < 3; i++) {
        setenv("STANDIN_CUDA_SPOILS_PEERS", spoilt[i], 1);
        start_well(2);
        assert_non_null(mem_no_peers(mem, 0, 1));
        assert_non_null(strstr(mem_no_peers(mem, 0, 1), "other bytes arrived"));
        assert_int_equal(in.live().peers, 0);
        assert_zero(0); /* no bytes of the test are left */
        assert_zero(1);
        fill(2);
        assert_true(moved((struct move){1, 0, 1, 2, 3 * CUDA_PIECE_BYTES}));
        assert_content(1);
        assert_int_equal(work().moved_staged, 3 * CUDA_PIECE_BYTES);
        assert_int_equal(lost(), 0);
        stop();
    }
}

/* ---- a device that fails ---- */

/* Failing moves lose that device alone: the other one, and a third, continue. */
static void assert_loses(uint32_t device, struct move m)
{
    const uint32_t other = device == m.to ? m.from : m.to;
    const char *uuid, *why;

    assert_false(moved(m));
    assert_int_equal(lost(), 1);
    assert_true(mem_device_lost(mem, &uuid, &why));
    assert_string_equal(uuid, uuids[device]);
    for (uint32_t i = 0; i < 2 * CUDA_LANES; i++) /* and they return their lanes */
        assert_false(moved(m));
    assert_true(moved((struct move){2, other, 1, 2, 3 * CUDA_PIECE_BYTES}));
    assert_true(moved((struct move){other, 2, 3, 4, 3 * CUDA_PIECE_BYTES}));
    assert_true(moved((struct move){other, other, MIB, 4, CUDA_PIECE_BYTES}));
    assert_content(2);
    assert_content(other);
    assert_int_equal(lost(), 1);
}

TEST(fault_21_a_copy_by_peer_access_that_fails_loses_the_device_that_copies)
{
    const struct move m = {.to = 1, .from = 0, .n = 3 * CUDA_PIECE_BYTES};

    start_well(3);
    fill(3);
    in.let_fail("cuMemcpyDtoDAsync", 1, CUDA_ERROR_LAUNCH_FAILED);
    assert_loses(1, m);
    print_message("fault=21 runs=1 injected=1 violations=0 devices_lost=1\n");
}

/* The copy of one device still uses the memory of the other one at the end. */
TEST(fault_21_a_copy_by_peer_access_that_does_not_end_loses_the_device_that_copies)
{
    const struct move m = {.to = 1, .from = 0, .n = 3 * CUDA_PIECE_BYTES};

    wait_ms = WAIT_MS;
    start_well(3);
    fill(3);
    in.hang(1);
    assert_loses(1, m);
    stop();
    in.go_on(1);
    print_message("fault=21 runs=1 injected=1 violations=0 devices_lost=1\n");
}

/* Reading it might lose the reading device. */
TEST(fault_21_memory_of_a_device_that_failed_is_read_by_no_other)
{
    uint32_t copies;
    uint8_t byte;

    start_well(2);
    fill(2);
    in.let_fail("cuMemcpyDtoHAsync", 1, CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_false(mem_get(mem, &byte, base(0), 1));
    assert_int_equal(lost(), 1);
    copies = in.calls("cuMemcpyDtoDAsync");
    assert_false(moved((struct move){1, 0, 0, 0, 1}));
    assert_int_equal(in.calls("cuMemcpyDtoDAsync"), copies);
    assert_true(moved((struct move){1, 1, MIB, 0, 1}));
    assert_int_equal(lost(), 1);
    print_message("fault=21 runs=1 injected=1 violations=0 devices_lost=1\n");
}

/* The 2nd piece of 4, on either side; and a device that does not answer. */
TEST(fault_21_a_copy_through_the_host_that_fails_loses_the_end_that_failed)
{
    const struct move m = {.to = 0, .from = 1, .n = 4 * CUDA_PIECE_BYTES};

    setenv("STANDIN_CUDA_NO_PEERS", "all", 1);
    for (uint32_t k = 0; k < 4; k++) {
        wait_ms = k < 2 ? PATIENT_MS : WAIT_MS;
        start_well(3);
        fill(3);
        if (k < 2)
            in.let_fail(k ? "cuMemcpyDtoHAsync" : "cuMemcpyHtoDAsync", 2,
                        CUDA_ERROR_ILLEGAL_ADDRESS);
        else
            in.hang(k - 2);
        assert_loses(k % 2, m);
        in.go_on(k % 2);
        stop();
        in.let_fail("", 0, CUDA_SUCCESS);
    }
    print_message("fault=21 runs=4 injected=4 violations=0 devices_lost=4\n");
}

/* ---- at once ---- */

/* A thread's part: copies its share of the first half of `from` to the second half of `to`. */
struct mover {
    pthread_t thread;
    uint32_t to, from, share;
    bool ok;
};

static void *mover_main(void *arg)
{
    struct mover *m = arg;
    uint64_t at = (uint64_t)m->share * SHARE;

    m->ok = true;
    for (uint32_t i = 0; i < 6; i++)
        m->ok = mem_move(mem, base(m->to) + REGION / 2 + at, base(m->from) + at, SHARE) && m->ok;
    return NULL;
}

static void move_at_once(void)
{
    static const uint32_t ring[3] = {1, 2, 0}; /* 0 to 1 to 2 to 0, and back */
    struct mover m[2][THREADS];

    fill(3);
    for (uint32_t back = 0; back < 2; back++)
        for (uint32_t i = 0; i < THREADS; i++) {
            uint32_t a = i % 3;

            m[back][i] =
                (struct mover){.to = back ? a : ring[a], .from = back ? ring[a] : a, .share = i};
            assert_int_equal(pthread_create(&m[back][i].thread, NULL, mover_main, &m[back][i]), 0);
        }
    for (uint32_t back = 0; back < 2; back++)
        for (uint32_t i = 0; i < THREADS; i++) {
            struct mover *one = &m[back][i];
            uint64_t at = (uint64_t)i * SHARE;

            pthread_join(one->thread, NULL);
            assert_true(one->ok);
            memcpy(content[one->to] + REGION / 2 + at, content[one->from] + at, SHARE);
        }
    for (uint32_t i = 0; i < 3; i++)
        assert_content(i);
}

TEST(mem_peers_many_threads_move_in_all_directions_at_once)
{
    for (uint32_t peers = 0; peers < 2; peers++) {
        setenv("STANDIN_CUDA_NO_PEERS", peers ? "" : "all", 1);
        start_well(3);
        move_at_once();
        assert_int_equal(peers ? work().moved_by_peer : work().moved_staged,
                         2ull * THREADS * 6 * SHARE);
        stop();
    }
}
