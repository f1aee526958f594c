/* The rules that the stand-in for libcuda.so.1 keeps: tests of device memory depend on these. */
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/exporter.h"
#include "gpu/rules.h"
#include "standin/standin_open.h"
#include "testing/test.h"

#define GRANULE (2u << 20)
#define ORDERS  200u

static struct standin in;
static struct driver d;
static CUcontext context[2];

FIXTURE(open_all)
{
    setenv("STANDIN_CUDA_DELAY_US", "200", 1);
    standin_driver_open(STANDIN_MEMORY, &in, &d, context);
    return 0;
}

FIXTURE(close_all)
{
    standin_driver_close(&in, &d);
    return 0;
}

TEST_EACH(open_all, close_all);

struct block {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
};

static const CUmemAllocationProp on_first = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
};

static void set_access(const struct block *b, int device)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

    assert_int_equal(d.mem_access(b->at, GRANULE, &access, 1), CUDA_SUCCESS);
}

/* Mapped, and without access. */
static struct block block_map(CUmemGenericAllocationHandle handle)
{
    struct block b = {.handle = handle};

    assert_int_equal(d.address_reserve(&b.at, GRANULE, GRANULE, 0, 0), CUDA_SUCCESS);
    assert_int_equal(d.mem_map(b.at, GRANULE, 0, handle, 0), CUDA_SUCCESS);
    return b;
}

static struct block block_take(void)
{
    CUmemGenericAllocationHandle handle;

    assert_int_equal(d.mem_create(&handle, GRANULE, &on_first, 0), CUDA_SUCCESS);
    return block_map(handle);
}

static void block_give(struct block b)
{
    assert_int_equal(d.mem_unmap(b.at, GRANULE), CUDA_SUCCESS);
    assert_int_equal(d.address_free(b.at, GRANULE), CUDA_SUCCESS);
    assert_int_equal(d.mem_release(b.handle), CUDA_SUCCESS);
}

/* The signal that kills the child. */
static int dies_of(void (*what)(const struct block *b), const struct block *b)
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        signal(SIGSEGV, SIG_DFL);
        signal(SIGABRT, SIG_DFL);
        what(b);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void touch(const struct block *b)
{
    *(volatile uint8_t *)(uintptr_t)b->at = 1;
}

TEST(standin_address_cannot_be_touched_by_the_cpu)
{
    struct block b = block_take();

    set_access(&b, 0);
    assert_int_equal(dies_of(touch, &b), SIGSEGV);
    block_give(b);
}

TEST(standin_takes_whole_granules_alone)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    size_t granule = 0;
    struct block b;

    assert_int_equal(d.mem_granularity(&granule, &on_first, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                     CUDA_SUCCESS);
    assert_int_equal(granule, GRANULE);
    assert_int_equal(d.mem_create(&handle, GRANULE + 4096, &on_first, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(d.address_reserve(&at, 4096, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(d.mem_create(&handle, 2048ull << 20, &on_first, 0), CUDA_ERROR_OUT_OF_MEMORY);
    b = block_take();
    assert_int_equal(d.mem_map(b.at, GRANULE, 0, b.handle, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(d.address_free(b.at, GRANULE), CUDA_ERROR_INVALID_VALUE); /* it is mapped */
    block_give(b);
}

TEST(standin_memory_needs_access_and_loses_the_device_without)
{
    struct block b = block_take();
    uint64_t word = 7;

    assert_int_equal(d.copy_to_device(b.at, &word, sizeof word), CUDA_ERROR_ILLEGAL_ADDRESS);
    set_access(&b, 1); /* another device's access is not ours */
    assert_int_equal(d.copy_to_device(b.at, &word, sizeof word), CUDA_ERROR_ILLEGAL_ADDRESS);
    set_access(&b, 0);
    assert_int_equal(d.copy_to_device(b.at, &word, sizeof word), CUDA_SUCCESS);
    word = 0;
    assert_int_equal(d.copy_to_host(&word, b.at, sizeof word), CUDA_SUCCESS);
    assert_int_equal(word, 7);
    assert_int_equal(d.copy_to_host(&word, b.at + GRANULE, sizeof word), CUDA_ERROR_INVALID_VALUE);
    block_give(b);
    assert_int_equal(d.copy_to_host(&word, b.at, sizeof word), CUDA_ERROR_INVALID_VALUE);
}

TEST(standin_handle_ends_with_its_release_and_memory_with_its_last_map)
{
    struct block b = block_take();
    uint8_t byte = 3;
    int fd;

    set_access(&b, 0);
    assert_int_equal(d.mem_release(b.handle), CUDA_SUCCESS);
    assert_int_equal(d.mem_release(b.handle), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(d.mem_export(&fd, b.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(d.copy_to_device(b.at, &byte, 1), CUDA_SUCCESS);
    assert_int_equal(in.live().maps, 1);
    assert_int_equal(d.mem_unmap(b.at, GRANULE), CUDA_SUCCESS);
    assert_int_equal(d.address_free(b.at, GRANULE), CUDA_SUCCESS);
    assert_int_equal(in.live().maps + in.live().handles + in.live().ranges, 0);
}

TEST(standin_memory_is_the_same_for_who_imports_it)
{
    struct block b = block_take(), other;
    CUmemGenericAllocationHandle handle;
    uint32_t word = 0x600d;
    int fd;

    set_access(&b, 0);
    assert_int_equal(d.mem_export(&fd, b.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                     CUDA_SUCCESS);
    assert_int_equal(
        d.mem_import(&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        CUDA_SUCCESS);
    close(fd);
    other = block_map(handle);
    set_access(&other, 0);
    assert_int_equal(d.copy_to_device(b.at + 64, &word, sizeof word), CUDA_SUCCESS);
    word = 0;
    assert_int_equal(d.copy_to_host(&word, other.at + 64, sizeof word), CUDA_SUCCESS);
    assert_int_equal(word, 0x600d);
    block_give(other);
    block_give(b);
    fd = memfd_create("other", MFD_CLOEXEC);
    assert_int_equal(
        d.mem_import(&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        CUDA_ERROR_INVALID_VALUE);
    close(fd);
}

/* A dma-buf begins where its range does; other refusals of CUDA 12.0. */
TEST(standin_range_is_a_descriptor_of_its_memory)
{
    struct block b = block_take();
    uint8_t seen[16], *map;
    int fd = -1;

    set_access(&b, 0);
    assert_int_equal(
        d.mem_range_handle(&fd, b.at + 512, GRANULE / 2, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
        CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(
        d.mem_range_handle(&fd, b.at, 2 * GRANULE, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
        CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(d.mem_range_handle(&fd, b.at, GRANULE, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                                        CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(fd, -1);
    assert_int_equal(d.mem_range_handle(&fd, b.at, GRANULE, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
                     CUDA_SUCCESS);
    map = mmap(NULL, GRANULE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    memcpy(map + GRANULE - 16, "what a NIC wrote", 16);
    in.look(seen, b.at + GRANULE - 16, 16);
    assert_memory_equal(seen, "what a NIC wrote", 16);
    munmap(map, GRANULE);
    close(fd);
    block_give(b);
}

TEST(standin_stream_works_in_its_own_context_and_with_pinned_memory)
{
    struct block b = block_take();
    CUstream stream;
    void *pinned;
    uint8_t byte = 1;

    set_access(&b, 0);
    assert_int_equal(d.stream_create(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(d.host_alloc(&pinned, 64, 0), CUDA_SUCCESS);
    assert_int_equal(d.put_async(b.at, &byte, 1, stream), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(d.put_async(b.at, pinned, 65, stream), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(d.context_set(context[1]), CUDA_SUCCESS);
    assert_int_equal(d.put_async(b.at, pinned, 1, stream), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(d.context_set(NULL), CUDA_SUCCESS);
    assert_int_equal(d.put_async(b.at, pinned, 1, stream), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(d.context_set(context[0]), CUDA_SUCCESS);
    assert_int_equal(d.host_free(pinned), CUDA_SUCCESS);
    assert_int_equal(d.stream_destroy(stream), CUDA_SUCCESS);
    block_give(b);
}

/* Number of calls of both streams that ran before the last one of each. */
static _Atomic uint32_t calls_done, done_before[2];

static void note_place(void *with)
{
    *(_Atomic uint32_t *)with = calls_done++;
}

/* A copy in each of two streams, many times. The copies are delayed, so that the schedule of
 * threads does not decide: neither is done when its call returns, and then either may be the
 * first. */
TEST(standin_copies_come_late_and_in_any_order_between_streams)
{
    struct block b = block_take();
    uint32_t first = 0;
    CUstream stream[2];
    CUevent event[2];
    void *pinned;

    set_access(&b, 0);
    assert_int_equal(d.host_alloc(&pinned, 64, 0), CUDA_SUCCESS);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(d.stream_create(&stream[i], CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
        assert_int_equal(d.event_create(&event[i], CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
        assert_int_equal(d.event_query(event[i]), CUDA_SUCCESS); /* nothing was recorded */
    }
    for (uint32_t k = 0; k < ORDERS; k++) {
        in.hang(0);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(d.get_async((uint8_t *)pinned + 8 * i, b.at, 8, stream[i]),
                             CUDA_SUCCESS);
            assert_int_equal(d.host_call(stream[i], note_place, &done_before[i]), CUDA_SUCCESS);
            assert_int_equal(d.event_record(event[i], stream[i]), CUDA_SUCCESS);
            assert_int_equal(d.event_query(event[i]), CUDA_ERROR_NOT_READY);
        }
        in.go_on(0);
        for (int i = 0; i < 2; i++)
            assert_int_equal(d.event_wait(event[i]), CUDA_SUCCESS);
        first += done_before[0] < done_before[1];
    }
    assert_in_range(first, ORDERS / 10, ORDERS - ORDERS / 10);
    for (int i = 0; i < 2; i++) {
        d.event_destroy(event[i]);
        d.stream_destroy(stream[i]);
    }
    assert_int_equal(d.host_free(pinned), CUDA_SUCCESS);
    block_give(b);
}

/* ---- from device to device ---- */

static CUmemGenericAllocationHandle handle_on(int device)
{
    CUmemAllocationProp prop = on_first;
    CUmemGenericAllocationHandle handle;

    prop.location.id = device;
    assert_int_equal(d.mem_create(&handle, GRANULE, &prop, 0), CUDA_SUCCESS);
    return handle;
}

TEST(standin_devices_reach_each_other_but_where_told_not_to)
{
    int can = 0;

    for (int a = 0; a < 2; a++) {
        assert_int_equal(d.device_reaches(&can, a, 1 - a), CUDA_SUCCESS);
        assert_int_equal(can, 1);
    }
    setenv("STANDIN_CUDA_NO_PEERS", "1-0", 1);
    for (int a = 0; a < 2; a++) {
        assert_int_equal(d.device_reaches(&can, a, 1 - a), CUDA_SUCCESS);
        assert_int_equal(can, a == 0);
    }
    setenv("STANDIN_CUDA_NO_PEERS", "all", 1);
    assert_int_equal(d.device_reaches(&can, 0, 1), CUDA_SUCCESS);
    assert_int_equal(can, 0);
    unsetenv("STANDIN_CUDA_NO_PEERS");
    assert_int_equal(d.device_reaches(&can, 0, 2), CUDA_ERROR_INVALID_DEVICE);
}

/* Each end alone, in either order; no stream is needed then. */
TEST(standin_copy_between_devices_needs_access_to_both_ends)
{
    struct block b[2] = {block_map(handle_on(0)), block_map(handle_on(1))};
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    uint8_t bytes[64], seen[64];
    CUstream stream;
    CUevent event;

    memset(bytes, 0x5e, sizeof bytes);
    assert_int_equal(d.stream_create(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(d.event_create(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    set_access(&b[0], 0);
    set_access(&b[1], 1); /* its own device's access is no other device's */
    for (int to = 0; to < 2; to++)
        assert_int_equal(d.copy_async(b[to].at, b[1 - to].at, 64, stream),
                         CUDA_ERROR_INVALID_VALUE);
    setenv("STANDIN_CUDA_NO_PEERS", "0-1", 1);
    assert_int_equal(d.mem_access(b[1].at, GRANULE, &access, 1), CUDA_ERROR_INVALID_DEVICE);
    unsetenv("STANDIN_CUDA_NO_PEERS");
    set_access(&b[1], 0);
    assert_int_equal(d.context_set(context[1]), CUDA_SUCCESS);
    assert_int_equal(d.copy_to_device(b[1].at + 5, bytes, 64), CUDA_SUCCESS); /* still its own */
    assert_int_equal(d.copy_async(b[0].at, b[1].at, 64, stream), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(d.context_set(context[0]), CUDA_SUCCESS);
    assert_int_equal(d.copy_async(b[0].at + 3, b[1].at + 5, 64, stream), CUDA_SUCCESS);
    assert_int_equal(d.event_record(event, stream), CUDA_SUCCESS);
    assert_int_equal(d.event_wait(event), CUDA_SUCCESS);
    in.look(seen, b[0].at + 3, 64);
    assert_memory_equal(seen, bytes, 64);
    d.event_destroy(event);
    d.stream_destroy(stream);
    block_give(b[1]);
    block_give(b[0]);
}

/* The checks of tern-gpu on a real driver: whoever corrects a rule there corrects it here. */
TEST(standin_answers_for_rules_as_tern_gpu_has_them)
{
    struct rules_answer answers[RULES_NAMES];
    struct exporter exporter;
    int exported;

    assert_true(exporter_begin(&exporter, STANDIN_MEMORY));
    exported = exporter_end(&exporter);
    assert_true(exported >= 0);
    for (int peers = 1; peers >= 0; peers--) {
        setenv("STANDIN_CUDA_NO_PEERS", peers ? "" : "all", 1);
        rules_ask(&d, exported, answers);
        for (int i = 0; i < RULES_NAMES; i++) {
            bool tried = i == RULES_OWN_NEEDED || i == RULES_EXPORT_LIVES ||
                         (i == RULES_PEER_REFUSED) != peers;

            assert_string_equal(rules_word(answers[i].word), tried ? "confirmed" : "not tried");
        }
        assert_int_equal(in.live().maps + in.live().handles + in.live().ranges + in.live().streams +
                             in.live().events,
                         0);
        assert_int_equal(in.live().contexts, 2); /* those of this test */
    }
    close(exported);
    unsetenv("STANDIN_CUDA_NO_PEERS");
    assert_int_equal(d.context_set(context[0]), CUDA_SUCCESS);
}

TEST(standin_spoils_what_goes_between_devices_where_told_to)
{
    struct block b[2] = {block_map(handle_on(0)), block_map(handle_on(1))};
    uint8_t bytes[64] = {0}, seen[64];
    CUstream stream;
    CUevent event;

    assert_int_equal(d.stream_create(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(d.event_create(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    setenv("STANDIN_CUDA_SPOILS_PEERS", "0-1", 1);
    set_access(&b[0], 0);
    set_access(&b[1], 0);
    for (int from = 0; from < 2; from++) {
        assert_int_equal(d.copy_to_device(b[from].at, bytes, 64), CUDA_SUCCESS);
        assert_int_equal(d.copy_async(b[0].at + 64, b[from].at, 64, stream), CUDA_SUCCESS);
        assert_int_equal(d.event_record(event, stream), CUDA_SUCCESS);
        assert_int_equal(d.event_wait(event), CUDA_SUCCESS);
        in.look(seen, b[0].at + 64, 64);
        assert_int_equal(memcmp(seen, bytes, 64) != 0, from == 1); /* not within a device */
    }
    unsetenv("STANDIN_CUDA_SPOILS_PEERS");
    d.event_destroy(event);
    d.stream_destroy(stream);
    block_give(b[1]);
    block_give(b[0]);
}

/* The source counts as much as the destination. */
static void unmap_under_a_move(const struct block *b)
{
    CUstream stream;

    in.hang(0);
    if (d.stream_create(&stream, 0) || d.copy_async(b[1].at, b[0].at, 8, stream))
        _exit(1);
    d.mem_unmap(b[0].at, GRANULE);
}

static void unmap_at_work(const struct block *b)
{
    CUstream stream;
    void *pinned;

    in.hang(0);
    if (d.stream_create(&stream, 0) || d.host_alloc(&pinned, 8, 0) ||
        d.put_async(b->at, pinned, 8, stream))
        _exit(1);
    d.mem_unmap(b->at, GRANULE);
}

static void unpin_at_work(const struct block *b)
{
    CUstream stream;
    void *pinned;

    in.hang(0);
    if (d.stream_create(&stream, 0) || d.host_alloc(&pinned, 8, 0) ||
        d.get_async(pinned, b->at, 8, stream))
        _exit(1);
    d.host_free(pinned);
}

TEST(standin_ends_who_takes_memory_from_a_copy)
{
    struct block b = block_take();

    set_access(&b, 0);
    assert_int_equal(dies_of(unmap_at_work, &b), SIGABRT);
    assert_int_equal(dies_of(unpin_at_work, &b), SIGABRT);
    block_give(b);
}

TEST(standin_ends_who_takes_memory_from_a_copy_between_devices)
{
    struct block b[2] = {block_take(), block_take()};

    set_access(&b[0], 0);
    set_access(&b[1], 0);
    assert_int_equal(dies_of(unmap_under_a_move, b), SIGABRT);
    block_give(b[1]);
    block_give(b[0]);
}

TEST(standin_fails_the_call_that_was_asked_for_and_a_sticky_error_stays)
{
    CUmemGenericAllocationHandle handle;
    struct block b = block_take();
    uint8_t byte = 1;

    set_access(&b, 0);
    in.let_fail("cuMemCreate", 2, CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(d.mem_create(&handle, GRANULE, &on_first, 0), CUDA_SUCCESS);
    d.mem_release(handle);
    assert_int_equal(d.mem_create(&handle, GRANULE, &on_first, 0), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(d.mem_create(&handle, GRANULE, &on_first, 0), CUDA_SUCCESS);
    d.mem_release(handle);
    assert_int_equal(in.calls("cuMemCreate"), 3);
    in.let_fail("cuMemcpyHtoD", 1, CUDA_ERROR_LAUNCH_FAILED);
    assert_int_equal(d.copy_to_device(b.at, &byte, 1), CUDA_ERROR_LAUNCH_FAILED);
    assert_int_equal(d.copy_to_host(&byte, b.at, 1), CUDA_ERROR_LAUNCH_FAILED);
    assert_int_equal(d.context_set(context[1]), CUDA_SUCCESS); /* the other one is not */
    assert_int_equal(d.copy_to_host(&byte, b.at, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(d.context_set(context[0]), CUDA_SUCCESS);
    assert_int_equal(d.copy_to_host(&byte, b.at, 1), CUDA_ERROR_LAUNCH_FAILED);
    in.let_fail("", 0, CUDA_SUCCESS);
    block_give(b);
}

/* ---- registered memory of the host, and what else goes into a stream ---- */

#define PAGE 4096u

static uint64_t *page_take(void)
{
    void *at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(at, MAP_FAILED);
    return at;
}

static CUdeviceptr register_page(uint64_t *page)
{
    CUdeviceptr at = 0;

    assert_int_equal(d.host_register(page, PAGE, CU_MEMHOSTREGISTER_DEVICEMAP), CUDA_SUCCESS);
    assert_int_equal(d.host_device_at(&at, page, 0), CUDA_SUCCESS);
    return at;
}

TEST(standin_registered_memory_has_another_address_and_is_registered_once)
{
    uint64_t *page = page_take();
    CUdeviceptr at = register_page(page);
    CUstream stream;

    assert_true(at != (uintptr_t)page);
    assert_int_equal(d.host_register(page, PAGE, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    assert_int_equal(d.host_register(page, PAGE + 8, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(d.stream_create(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(d.stream_write64(stream, (uintptr_t)page, 1, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(d.stream_write64(stream, at + 4, 1, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(d.stream_write64(stream, at + PAGE, 1, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(d.host_unregister(page), CUDA_SUCCESS);
    assert_int_equal(d.host_unregister(page), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    assert_int_equal(d.stream_write64(stream, at, 1, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(d.host_register(page, PAGE, 0), CUDA_SUCCESS); /* for no device */
    assert_int_equal(d.host_device_at(&at, page, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(d.host_unregister(page), CUDA_SUCCESS);
    assert_int_equal(d.stream_destroy(stream), CUDA_SUCCESS);
    munmap(page, PAGE);
}

static void note(void *with)
{
    ++*(_Atomic uint32_t *)with;
}

/* The other stream waits for the write, and the call comes behind its wait. */
TEST(standin_stream_waits_for_the_event_of_another)
{
    static _Atomic uint32_t called;
    uint64_t *page = page_take();
    CUdeviceptr at = register_page(page);
    CUstream stream[2];
    CUevent event[2];

    for (int i = 0; i < 2; i++) {
        assert_int_equal(d.stream_create(&stream[i], CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
        assert_int_equal(d.event_create(&event[i], CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    }
    for (uint32_t k = 1; k <= ORDERS; k++) {
        assert_int_equal(d.stream_write64(stream[0], at, k, 0), CUDA_SUCCESS);
        assert_int_equal(d.event_record(event[0], stream[0]), CUDA_SUCCESS);
        assert_int_equal(d.stream_wait_event(stream[1], event[0], 0), CUDA_SUCCESS);
        assert_int_equal(d.host_call(stream[1], note, &called), CUDA_SUCCESS);
        assert_int_equal(d.event_record(event[1], stream[1]), CUDA_SUCCESS);
        assert_int_equal(d.event_wait(event[1]), CUDA_SUCCESS);
        assert_true(*(volatile uint64_t *)page == k);
        assert_int_equal(called, k);
    }
    assert_int_equal(d.host_unregister(page), CUDA_SUCCESS);
    for (int i = 0; i < 2; i++) {
        d.event_destroy(event[i]);
        d.stream_destroy(stream[i]);
    }
    munmap(page, PAGE);
}

static void unregister_at_work(const struct block *b)
{
    uint64_t *page = page_take();
    CUstream stream;
    CUdeviceptr at;

    (void)b;
    in.hang(0);
    if (d.host_register(page, PAGE, CU_MEMHOSTREGISTER_DEVICEMAP) ||
        d.host_device_at(&at, page, 0) || d.stream_create(&stream, 0) ||
        d.stream_write64(stream, at, 1, 0))
        _exit(1);
    d.host_unregister(page);
}

static void unmap_registered(const struct block *b)
{
    uint64_t *page = page_take();

    (void)b;
    if (d.host_register(page, PAGE, CU_MEMHOSTREGISTER_DEVICEMAP))
        _exit(1);
    munmap(page, PAGE);
    d.host_unregister(page);
}

static void call_the_driver(void *with)
{
    (void)with;
    d.context_set(NULL);
}

static void call_in_a_stream(const struct block *b)
{
    CUstream stream;
    CUevent event;

    (void)b;
    if (d.stream_create(&stream, 0) || d.event_create(&event, 0) ||
        d.host_call(stream, call_the_driver, NULL) || d.event_record(event, stream))
        _exit(1);
    d.event_wait(event);
}

static void write_into_a_graph(const struct block *b)
{
    CUstream stream;

    if (d.stream_create(&stream, 0))
        _exit(1);
    in.capture(stream, 1);
    d.stream_write64(stream, b->at, 1, 0);
}

TEST(standin_ends_who_breaks_the_rules_of_streams_and_registered_memory)
{
    struct block b = block_take();

    set_access(&b, 0);
    assert_int_equal(dies_of(unregister_at_work, &b), SIGABRT);
    assert_int_equal(dies_of(unmap_registered, &b), SIGABRT);
    assert_int_equal(dies_of(call_in_a_stream, &b), SIGABRT);
    assert_int_equal(dies_of(write_into_a_graph, &b), SIGABRT);
    block_give(b);
}
