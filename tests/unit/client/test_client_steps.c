/* Steps that a CUDA stream writes to the control page, with the stand-in in place of libcuda.so.1
 * (LD_LIBRARY_PATH of the test). The daemon is the test's own; the pool is memory of the host, and
 * the streams copy into memory of a device. */
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "client/libtern/internal.h"
#include "standin/standin_open.h"
#include "unit/rig/rig_fds.h"

#define RANK    2u
#define BYTES   (32u << 10)
#define GRANULE (2u << 20)
#define ROUNDS  100u
#define LATE    256u /* steps in streams that a driver's thread writes */

static struct {
    int region, control, bell, ear; /* the two ends of the bell */
    uint8_t *control_at;
    atomic_bool left; /* EngineLeave has come */
} memory;

static struct standin in;
static struct driver d;
static CUcontext context[2];
static CUstream stream[2];
static CUmemGenericAllocationHandle block_handle;
static CUdeviceptr block;
static uint64_t *pinned; /* ROUNDS words */
static struct tern_pool *pool;
static uint32_t kept_events; /* that are never returned */

static void serve_pools(struct fake *f)
{
    Tern__Wire__PoolMapReply reply = TERN__WIRE__POOL_MAP_REPLY__INIT;
    const int fds[3] = {memory.region, memory.control, memory.bell};
    uint8_t frame[256];

    reply.has_offset = reply.has_bytes = 1;
    reply.bytes = BYTES;
    while (fake_read(f)) {
        if (f->h.type == FRAME_POOL_MAP) {
            size_t n =
                fake_pack(FRAME_POOL_MAP_REPLY, f->h.request_id, &reply, frame, sizeof frame);

            send_fds(f, frame, n, fds, 3);
            continue;
        }
        if (f->h.type == FRAME_ENGINE_LEAVE)
            atomic_store(&memory.left, true);
        fake_reply_empty(f);
    }
}

static void memory_init(void)
{
    int pair[2];

    memory.region = memfd_create("region", MFD_CLOEXEC);
    memory.control = memfd_create("control", MFD_CLOEXEC);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    memory.bell = pair[0];
    memory.ear = pair[1];
    assert_int_equal(ftruncate(memory.region, BYTES), 0);
    assert_int_equal(ftruncate(memory.control, CONTROL_BYTES), 0);
    memory.control_at =
        mmap(NULL, CONTROL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memory.control, 0);
    *(uint64_t *)(void *)(memory.control_at + CONTROL_INCARNATION_AT) = FAKE_INCARNATION;
    atomic_store(&memory.left, false);
}

static void memory_finish(void)
{
    munmap(memory.control_at, CONTROL_BYTES);
    close(memory.region);
    close(memory.control);
    close(memory.bell);
    close(memory.ear);
}

/* Allocates a granule of the first device's memory, and its streams. */
static void device_init(void)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes =
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    const CUmemAccessDesc access = {.location = prop.location,
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    void *room;

    standin_driver_open(DRIVER_LIBRARY, &in, &d, context);
    for (int i = 0; i < 2; i++)
        assert_int_equal(d.stream_create(&stream[i], CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(d.mem_create(&block_handle, GRANULE, &prop, 0), CUDA_SUCCESS);
    assert_int_equal(d.address_reserve(&block, GRANULE, 0, 0, 0), CUDA_SUCCESS);
    assert_int_equal(d.mem_map(block, GRANULE, 0, block_handle, 0), CUDA_SUCCESS);
    assert_int_equal(d.mem_access(block, GRANULE, &access, 1), CUDA_SUCCESS);
    assert_int_equal(d.host_alloc(&room, (ROUNDS + 1) * sizeof *pinned, 0), CUDA_SUCCESS);
    pinned = room;
}

/* Frees all of it, and checks that no other event, stream or registration is left. */
static void device_finish(void)
{
    struct standin_live live;

    in.let_fail("", 0, CUDA_SUCCESS);
    d.context_set(context[0]);
    for (int i = 0; i < 2; i++)
        d.stream_destroy(stream[i]);
    d.host_free(pinned);
    d.mem_unmap(block, GRANULE);
    d.address_free(block, GRANULE);
    d.mem_release(block_handle);
    d.context_set(NULL);
    d.context_release(0);
    d.context_release(1);
    live = in.live();
    assert_int_equal(live.events, kept_events);
    assert_int_equal(live.registered + live.contexts + live.streams, 0);
    driver_close(&d);
    dlclose(in.library);
}

static void start_as(enum tern_role role)
{
    memory_init();
    start(serve_pools, NULL);
    assert_ok(tern_join(t, "engine", role, role == TERN_SCHEDULER ? 0 : RANK, 4, NULL, 2000));
    assert_ok(tern_pool_map(t, 1, 2000, &pool));
}

FIXTURE(setup)
{
    client_setup(NULL);
    setenv("STANDIN_CUDA_DELAY_US", "200", 1);
    device_init();
    start_as(TERN_WORKER);
    return 0;
}

FIXTURE(teardown)
{
    in.go_on(0);
    client_stop(NULL);
    memory_finish();
    device_finish();
    unsetenv("STANDIN_CUDA_LACKS");
    return 0;
}

TEST_EACH(setup, teardown);

static uint64_t published(void)
{
    const uint8_t *at = memory.control_at + RANK * CONTROL_RANK_STRIDE;

    return atomic_load((const _Atomic uint64_t *)(const void *)at);
}

static void until_published(uint64_t step)
{
    for (uint32_t ms = 0; published() < step; ms++) {
        assert_true(ms < 60000);
        usleep(1000);
    }
}

static uint64_t rung(void)
{
    char bytes[64];
    ssize_t n = recv(memory.ear, bytes, sizeof bytes, MSG_DONTWAIT);

    return n > 0 ? (uint64_t)n : 0;
}

/* The stream `by` sets word i of the device's memory to i, some time later. */
static void ask_word(uint64_t i, CUstream by)
{
    pinned[i] = i;
    assert_int_equal(d.put_async(block + i * sizeof i, &pinned[i], sizeof i, by), CUDA_SUCCESS);
}

static uint64_t word_now(uint64_t i)
{
    uint64_t value;

    in.look(&value, block + i * sizeof i, sizeof value);
    return value;
}

/* ---- when a step is published ---- */

static void check_behind_copies(enum tern_step_by want)
{
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        enum tern_step_by by = TERN_STEP_BY_HOST + 1;

        ask_word(i, stream[0]);
        assert_ok(tern_done_step_on_stream(pool, i, stream[0], &by));
        assert_int_equal(by, want);
        until_published(i);
        assert_int_equal(word_now(i), i);
    }
}

TEST(stream_step_is_published_when_the_copies_before_it_are_done)
{
    check_behind_copies(TERN_STEP_BY_DEVICE);
    assert_int_equal(in.calls("cuMemHostRegister"), 1);
    assert_int_equal(in.calls("cuStreamWriteValue64"), ROUNDS);
}

TEST(stream_step_is_written_by_the_host_where_the_device_cannot)
{
    setenv("STANDIN_CUDA_LACKS", "122", 1); /* 64-bit writes in streams */
    check_behind_copies(TERN_STEP_BY_HOST);
    assert_int_equal(in.calls("cuMemHostRegister"), 0);
}

TEST(stream_step_is_written_by_the_host_where_no_memory_of_it_can_be_registered)
{
    setenv("STANDIN_CUDA_LACKS", "99", 1);
    check_behind_copies(TERN_STEP_BY_HOST);
}

/* The first device has done nothing yet; the second call does not wait. */
TEST(stream_step_is_not_published_before_the_stream_comes_to_it)
{
    in.hang(0);
    ask_word(1, stream[0]);
    assert_ok(tern_done_step_on_stream(pool, 1, stream[0], NULL));
    assert_ok(tern_done_step_on_stream(pool, 2, stream[0], NULL));
    assert_ok(tern_done_step_on_stream(pool, 2, stream[0], NULL)); /* already queued */
    assert_string_equal(tern_error_text(t, NULL), "");
    assert_int_equal(published(), 0);
    assert_int_equal(in.calls("cuStreamWriteValue64"), 2);
    in.go_on(0);
    until_published(2);
    assert_int_equal(word_now(1), 1);
}

/* The stand-in chooses the next stream at random: without an order between streams the word would
 * go back, or a step would be published before the copies of the step before. */
static void check_order(void)
{
    uint64_t seen = 0;

    for (uint64_t i = 1; i <= ROUNDS; i++) {
        ask_word(i, stream[i % 2]);
        assert_ok(tern_done_step_on_stream(pool, i, stream[i % 2], NULL));
    }
    while (seen < ROUNDS) {
        uint64_t now = published();

        assert_true(now >= seen);
        for (uint64_t i = 1; i <= now; i++)
            assert_int_equal(word_now(i), i);
        seen = now;
    }
}

TEST(stream_steps_of_two_streams_are_published_in_order)
{
    check_order();
}

TEST(stream_steps_of_two_streams_that_the_host_writes_are_published_in_order)
{
    setenv("STANDIN_CUDA_LACKS", "122", 1);
    check_order();
}

TEST(stream_step_that_the_host_writes_rings_for_who_waits)
{
    setenv("STANDIN_CUDA_LACKS", "122", 1);
    *(uint64_t *)(void *)(memory.control_at + CONTROL_WANTED_AT) = 2;
    for (uint64_t i = 1; i <= 3; i++)
        assert_ok(tern_done_step_on_stream(pool, i, stream[0], NULL));
    until_published(3);
    tern_pool_unmap(&pool); /* the driver's thread has ended its work */
    assert_int_equal(rung(), 1);
}

/* The places of unfinished steps are not used for others. */
TEST(stream_steps_that_the_host_writes_are_so_many_at_a_time)
{
    setenv("STANDIN_CUDA_LACKS", "122", 1);
    in.hang(0);
    for (uint64_t i = 1; i <= LATE; i++)
        assert_ok(tern_done_step_on_stream(pool, i, stream[0], NULL));
    assert_err(TERN_BUSY, tern_done_step_on_stream(pool, LATE + 1, stream[0], NULL));
    assert_non_null(strstr(tern_error_text(t, NULL), "wait"));
    in.go_on(0);
    until_published(LATE);
    assert_ok(tern_done_step_on_stream(pool, LATE + 1, stream[0], NULL));
    until_published(LATE + 1);
}

/* ---- refusals ---- */

TEST(stream_step_and_one_of_the_host_do_not_pass_each_other)
{
    assert_ok(tern_done_step(pool, 1));
    in.hang(0);
    assert_ok(tern_done_step_on_stream(pool, 2, stream[0], NULL));
    assert_err(TERN_CONFLICT, tern_done_step(pool, 3));
    assert_non_null(strstr(tern_error_text(t, NULL), "in a stream"));
    assert_err(TERN_INVALID, tern_done_step_on_stream(pool, 1, stream[0], NULL));
    assert_non_null(strstr(tern_error_text(t, NULL), "step 1 cannot be published"));
    assert_err(TERN_INVALID, tern_done_step_on_stream(pool, TERN_STEP_NONE, stream[0], NULL));
    in.let_fail("cuStreamWaitEvent", 1, CUDA_ERROR_OUT_OF_MEMORY);
    assert_err(TERN_INTERNAL, tern_done_step_on_stream(pool, 3, stream[1], NULL));
    assert_int_equal(published(), 1);
    in.go_on(0);
    until_published(2);
    assert_ok(tern_done_step(pool, 3));
    assert_int_equal(published(), 3);
}

TEST(stream_step_needs_the_context_of_its_stream)
{
    assert_int_equal(d.context_set(NULL), CUDA_SUCCESS);
    assert_err(TERN_INVALID, tern_done_step_on_stream(pool, 1, stream[0], NULL));
    assert_non_null(strstr(tern_error_text(t, NULL), "no CUDA context"));
    assert_int_equal(d.context_set(context[0]), CUDA_SUCCESS);
    assert_ok(tern_done_step_on_stream(pool, 1, stream[0], NULL));
    assert_int_equal(d.context_set(context[1]), CUDA_SUCCESS);
    assert_err(TERN_INVALID, tern_done_step_on_stream(pool, 2, stream[0], NULL));
    assert_non_null(strstr(tern_error_text(t, NULL), "another CUDA context"));
    until_published(1); /* it ends with another context */
}

TEST(stream_step_goes_into_no_graph)
{
    in.capture(stream[0], 1);
    assert_err(TERN_INVALID, tern_done_step_on_stream(pool, 1, stream[0], NULL));
    assert_non_null(strstr(tern_error_text(t, NULL), "after the graph's launch"));
    in.capture(stream[0], 0);
    assert_ok(tern_done_step_on_stream(pool, 1, stream[0], NULL));
}

TEST(stream_step_of_a_pure_scheduler_denied)
{
    client_stop(NULL);
    memory_finish();
    start_as(TERN_SCHEDULER);
    assert_err(TERN_DENIED, tern_done_step_on_stream(pool, 1, stream[0], NULL));
}

/* Each call fails once: nothing is queued in the stream, and the next try succeeds. */
TEST(stream_step_whose_call_fails_is_not_published)
{
    static const char *const calls[] = {"cuCtxGetCurrent",     "cuEventCreate",
                                        "cuCtxGetDevice",      "cuDeviceGetAttribute",
                                        "cuMemHostRegister",   "cuMemHostGetDevicePointer",
                                        "cuStreamIsCapturing", "cuStreamWriteValue64"};

    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        in.let_fail(calls[i], 1, CUDA_ERROR_OUT_OF_MEMORY);
        assert_err(TERN_INTERNAL, tern_done_step_on_stream(pool, 1, stream[0], NULL));
        assert_non_null(strstr(tern_error_text(t, NULL), calls[i]));
        assert_non_null(strstr(tern_error_text(t, NULL), "OUT_OF_MEMORY"));
        assert_int_equal(in.calls("cuEventRecord"), 0);
        in.let_fail("", 0, CUDA_SUCCESS);
    }
    assert_int_equal(published(), 0);
    assert_ok(tern_done_step_on_stream(pool, 1, stream[0], NULL));
    until_published(1);
}

/* The place of a failed call is not waited for: its step may never be written. */
TEST(stream_step_that_the_host_writes_goes_behind_one_that_failed)
{
    setenv("STANDIN_CUDA_LACKS", "122", 1);
    in.let_fail("cuLaunchHostFunc", 1, CUDA_ERROR_OUT_OF_MEMORY);
    assert_err(TERN_INTERNAL, tern_done_step_on_stream(pool, 1, stream[0], NULL));
    assert_non_null(strstr(tern_error_text(t, NULL), "cuLaunchHostFunc"));
    assert_int_equal(published(), 0);
    assert_ok(tern_done_step_on_stream(pool, 1, stream[0], NULL));
    until_published(1);
}

/* The step is in the stream, but no event marks its place: the next one could pass it. */
TEST(stream_step_behind_one_that_has_no_mark_waits_for_it)
{
    in.hang(0);
    in.let_fail("cuEventRecord", 1, CUDA_ERROR_OUT_OF_MEMORY);
    assert_ok(tern_done_step_on_stream(pool, 1, stream[0], NULL));
    assert_err(TERN_INTERNAL, tern_done_step_on_stream(pool, 2, stream[1], NULL));
    assert_int_equal(published(), 0);
    in.go_on(0);
    until_published(1);
    assert_ok(tern_done_step_on_stream(pool, 2, stream[1], NULL));
    until_published(2);
}

/* ---- the end of a mapping ---- */

/* As if the daemon was started anew: the stream writes the old daemon's page. */
TEST(stream_step_of_a_lost_connection_is_written_and_waited_for_all_the_same)
{
    in.hang(0);
    assert_ok(tern_done_step_on_stream(pool, 1, stream[0], NULL));
    shutdown(fake.fd, SHUT_RDWR);
    assert_err(TERN_DAEMON_LOST, tern_ping(t, 1000));
    assert_ok(tern_done_step_on_stream(pool, 2, stream[0], NULL));
    assert_int_equal(published(), 0);
    in.go_on(0);
    tern_destroy(t);
    t = NULL;
    assert_int_equal(published(), 2);
    assert_int_equal(in.live().registered, 0);
}

/* The stand-in aborts a program that unmaps the page before a later write to it. */
static void check_unmap(void)
{
    struct tern_pool *second;

    assert_ok(tern_pool_map(t, 1, 2000, &second));
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        ask_word(i, stream[0]);
        assert_ok(tern_done_step_on_stream(i % 2 ? pool : second, i, stream[0], NULL));
    }
    assert_int_equal(d.context_set(NULL), CUDA_SUCCESS);
    tern_pool_unmap(&pool);
    assert_int_equal(published(), ROUNDS);
    tern_destroy(t);
    t = NULL;
    assert_int_equal(in.live().registered, 0);
    assert_true(atomic_load(&memory.left));
}

TEST(pool_unmap_waits_for_steps_in_streams)
{
    check_unmap();
}

TEST(pool_unmap_waits_for_steps_in_streams_that_the_host_writes)
{
    setenv("STANDIN_CUDA_LACKS", "122", 1);
    check_unmap();
}

/* The device has failed, and may or may not write later. So the page stays mapped, and this process
 * does not leave its engine. */
TEST(pool_unmap_leaves_the_page_to_a_stream_that_does_not_come_to_its_step)
{
    static struct stream_steps *kept; /* for leak checkers */
    const uint8_t *base = tern_pool_info(pool)->base;
    uint8_t *control = pool->control;

    in.hang(0);
    assert_ok(tern_done_step_on_stream(pool, 1, stream[0], NULL));
    kept = t->by_stream;
    in.let_fail("cuEventQuery", 1, CUDA_ERROR_ILLEGAL_ADDRESS);
    tern_pool_unmap(&pool);
    assert_string_not_equal(flags_of(base), "");
    assert_string_not_equal(flags_of(control), "");
    tern_destroy(t);
    t = NULL;
    assert_non_null(kept);
    in.let_fail("", 0, CUDA_SUCCESS);
    in.go_on(0);
    until_published(1); /* it was written all the same, to its own page */
    fake_stop(&fake);
    fake.listener = 0;
    assert_false(atomic_load(&memory.left));
    assert_int_equal(d.host_unregister(control), CUDA_SUCCESS);
    kept_events = 1;
}
