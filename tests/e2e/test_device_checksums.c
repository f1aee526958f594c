/* An engine on memory of a GPU of the stand-in (LD_LIBRARY_PATH of the test) brings the checksums
 * of its commits, by kernels in its own stream, to a daemon from which another daemon fetches: the
 * first daemon computes none. Wrong checksums make the fetch CORRUPT, and checksums of another
 * commit are not trusted. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/bytes.h"
#include "engine/pages.h"
#include "engine/proc.h"
#include "rig_daemon.h"
#include "standin/standin_open.h"
#include "testing/test.h"

#define L      64
#define PAGES  12u
#define UNITS  4u
#define SUMS   (PAGES * UNITS)
#define TOKENS (PAGES * L)
#define POOL   (4u << 20)
#define SPOILT 5u /* the page written after its checksums */

static struct daemon source, dest;
static char dir[RIG_DIR_BYTES];
static struct standin in; /* that of this process; the daemons have their own */
static struct driver d;
static CUcontext context[2];
static CUstream stream;
static uint8_t *pinned; /* PAGES pages */
static struct engine e;
static struct tern *admin;

static const struct tern_group kv = {
    .name = "kv", .page_tokens = L, .page_bytes = RIG_PAGE, .units = UNITS};

static struct engine opened(const char *socket, const char *name)
{
    struct tern_layout layout = {.groups = &kv, .ngroups = 1, .bytes = POOL};
    struct engine ret = {0};

    assert_ok(ret.tern, engine_open(&ret, socket, name, &layout, RIG_WAIT_MS));
    return ret;
}

FIXTURE(start_all)
{
    struct daemon_options o[2] = {{.node = "source"}, {.node = "dest"}};
    void *room;

    setenv("TERN_DEVICE_MEMORY", STANDIN_UUID(0), 1);
    for (int i = 0; i < 2; i++) {
        o[i].memory_bytes = RIG_MEMORY;
        o[i].page_bytes_min = RIG_PAGE;
        o[i].sums_per_page = UNITS;
        o[i].core = -1;
    }
    rig_start_pair(&source, &dest, dir, o);
    admin = rig_connected(source.admin);
    e = opened(source.socket, "prefill");
    standin_driver_open(DRIVER_LIBRARY, &in, &d, context);
    assert_int_equal(d.stream_create(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(d.host_alloc(&room, (size_t)PAGES * RIG_PAGE, 0), CUDA_SUCCESS);
    pinned = room;
    return 0;
}

FIXTURE(stop_all)
{
    struct standin_live live;

    in.go_on(0);
    in.let_fail("", 0, CUDA_SUCCESS);
    engine_close(&e); /* waits for the stream */
    tern_destroy(admin);
    live = in.live();
    assert_int_equal(live.registered + live.modules, 0);
    d.context_set(context[0]);
    d.host_free(pinned);
    d.stream_destroy(stream);
    standin_driver_close(&in, &d);
    assert_true(daemon_stop(&dest));
    assert_true(daemon_stop(&source));
    tempdir_remove(dir);
    return 0;
}

TEST_EACH(start_all, stop_all);

static struct engine_session begun(struct engine *of, uint32_t id)
{
    struct engine_session s;
    uint32_t tokens[TOKENS];

    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = id * 100000 + i;
    assert_ok(of->tern, engine_begin(&s, of, tokens, TOKENS));
    return s;
}

/* Copies the bytes into the page, in the stream. */
static void put(const struct engine_session *s, uint32_t i)
{
    uint8_t *page = engine_page(&e, 0, s->table.group[0].index[i]);

    assert_int_equal(
        d.put_async((CUdeviceptr)(uintptr_t)page, pinned + i * RIG_PAGE, RIG_PAGE, stream),
        CUDA_SUCCESS);
}

static void put_all(struct engine_session *s)
{
    assert_ok(e.tern, engine_extend(s, TOKENS, TOKENS));
    for (uint32_t i = 0; i < PAGES; i++) {
        page_fill(pinned + i * RIG_PAGE, RIG_PAGE, page_seed(s->table.group[0].prefix[i], i, 0));
        put(s, i);
    }
}

/* Brings the checksums of pages [0, n) for that step. */
static enum tern_err bring(const struct engine_session *s, uint32_t n, uint64_t step)
{
    struct tern_page pages[PAGES];
    const struct tern_checksums of = {
        .step = step, .page_bytes = RIG_PAGE, .units = UNITS, .n = n, .pages = pages};

    for (uint32_t i = 0; i < n; i++)
        pages[i] = (struct tern_page){.index = s->table.group[0].index[i],
                                      .generation = s->table.group[0].gen[i]};
    return tern_checksums_on_stream(e.map, &of, stream);
}

static void stream_done(void)
{
    CUevent event;

    assert_int_equal(d.event_create(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    assert_int_equal(d.event_record(event, stream), CUDA_SUCCESS);
    assert_int_equal(d.event_wait(event), CUDA_SUCCESS);
    d.event_destroy(event);
}

static void step_and_commit(struct engine_session *s)
{
    assert_ok(e.tern, tern_done_step_on_stream(e.map, ++e.step, stream, NULL));
    assert_ok(e.tern, engine_commit(s, TOKENS));
}

static uint64_t sums_by(const char *who)
{
    char path[64];

    snprintf(path, sizeof path, "memory.checksums_by_%s", who);
    return rig_figure(admin, "status", path);
}

/* Waits until all pages have checksums, then checks where these come from. */
static void assert_sums(uint64_t by_engine, uint64_t by_kernels)
{
    assert_ok(e.tern, tern_wait_published(e.tern, e.step, RIG_WAIT_MS));
    wait_until(rig_figure(admin, "status", "memory.sealed_pages") == PAGES);
    assert_int_equal(sums_by("engine"), by_engine);
    assert_int_equal(sums_by("kernels"), by_kernels);
    assert_int_equal(sums_by("copies"), 0);
}

/* Fetches the prompt by the other daemon and compares what arrived. Returns the fetch's error. */
static enum tern_err fetched(uint32_t id, uint32_t *ret_committed)
{
    struct engine decode = opened(dest.socket, "decode");
    struct engine_session s = begun(&decode, id);
    struct tern_result r = {0};
    enum tern_err err;

    err = tern_fetch(
        decode.tern, s.id,
        &(struct tern_fetch){.peer = "source", .at_least = TOKENS, .step = TERN_STEP_NONE},
        RIG_WAIT_MS, &r);
    assert_int_equal(engine_take(&s, &r), TERN_OK);
    *ret_committed = s.len.committed;
    assert_int_equal(engine_wrong(&s, s.len.committed), 0);
    assert_ok(decode.tern, engine_end(&s));
    engine_close(&decode);
    return err;
}

static void assert_fetched_whole(uint32_t id)
{
    uint32_t committed;

    assert_err(TERN_OK, fetched(id, &committed));
    assert_int_equal(committed, TOKENS);
}

/* Nobody waits for the stream, which is blocked at first. */
TEST(device_commit_brings_its_checksums_and_the_daemon_computes_none)
{
    struct engine_session s = begun(&e, 1);

    in.hang(0);
    put_all(&s);
    assert_ok(e.tern, bring(&s, PAGES, e.step + 1));
    step_and_commit(&s);
    assert_err(TERN_TIMED_OUT, tern_wait_published(e.tern, e.step, 50));
    in.go_on(0);
    assert_sums(SUMS, 0);
    assert_fetched_whole(1);
    assert_ok(e.tern, engine_end(&s));
}

/* The page is written after its checksums, so these are wrong: the fetch reports it, and everything
 * before that page is right. */
TEST(device_checksums_that_are_wrong_are_corrupt_at_the_fetch)
{
    struct engine_session s = begun(&e, 2);
    uint32_t committed;

    put_all(&s);
    assert_ok(e.tern, bring(&s, PAGES, e.step + 1));
    stream_done();
    pinned[SPOILT * RIG_PAGE + 7] ^= 1;
    put(&s, SPOILT);
    step_and_commit(&s);
    assert_sums(SUMS, 0);
    assert_err(TERN_CORRUPT, fetched(2, &committed));
    assert_true(committed <= SPOILT * L);
    assert_ok(e.tern, engine_end(&s));
}

/* The checksums belong to another step: the pages may have been written again since. */
TEST(device_checksums_of_another_step_are_not_believed)
{
    struct engine_session s = begun(&e, 3);

    put_all(&s);
    stream_done();
    pinned[SPOILT * RIG_PAGE + 7] ^= 1;
    put(&s, SPOILT);
    assert_ok(e.tern, bring(&s, PAGES, e.step + 1));
    assert_ok(e.tern, tern_done_step_on_stream(e.map, ++e.step, stream, NULL));
    stream_done();
    put_all(&s); /* written again, by the next step */
    step_and_commit(&s);
    assert_sums(0, SUMS);
    assert_fetched_whole(3);
    assert_ok(e.tern, engine_end(&s));
}

/* Checksums of some pages, in two calls; the daemon computes the others. */
TEST(device_checksums_of_some_pages_leave_the_others_to_the_daemon)
{
    struct engine_session s = begun(&e, 4);

    put_all(&s);
    assert_ok(e.tern, bring(&s, 2, e.step + 1));
    assert_ok(e.tern, bring(&s, 5, e.step + 1));
    step_and_commit(&s);
    assert_sums(5 * UNITS, (PAGES - 5) * UNITS);
    assert_fetched_whole(4);
    assert_ok(e.tern, engine_end(&s));
}

/* Whatever the driver refuses, the commit continues, and the daemon computes the checksums. */
TEST(device_checksums_that_fail_are_computed_by_the_daemon)
{
    static const struct {
        const char *call;
        uint32_t nth;
        enum tern_err want;
    } rows[] = {
        {"cuDeviceGetAttribute", 1, TERN_INTERNAL},
        {"cuModuleLoadData", 1, TERN_UNSUPPORTED},
        {"cuModuleGetFunction", 3, TERN_INTERNAL},
        {"cuEventCreate", 1, TERN_INTERNAL},
        {"cuMemAlloc", 1, TERN_INTERNAL},
        {"cuMemHostRegister", 1, TERN_INTERNAL},
        {"cuMemHostGetDevicePointer", 1, TERN_INTERNAL},
        {"cuStreamIsCapturing", 1, TERN_INTERNAL},
        {"cuLaunchKernel", 1, TERN_INTERNAL},
        {"cuLaunchKernel", 3, TERN_INTERNAL},
        {"cuStreamWaitEvent", 1, TERN_INTERNAL},
    };
    struct engine_session s = begun(&e, 5);

    put_all(&s);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        in.let_fail(rows[i].call, rows[i].nth, CUDA_ERROR_OUT_OF_MEMORY);
        if (bring(&s, PAGES, e.step + 1) != rows[i].want ||
            !strstr(tern_error_text(e.tern, NULL), rows[i].call))
            fail_msg("%s: %s", rows[i].call, tern_error_text(e.tern, NULL));
    }
    assert_ok(e.tern, bring(&s, PAGES, e.step + 1));
    in.let_fail("cuLaunchKernel", 2, CUDA_ERROR_OUT_OF_MEMORY);
    assert_err(TERN_INTERNAL, bring(&s, PAGES, e.step + 1)); /* the brought ones no longer count */
    step_and_commit(&s);
    assert_sums(0, SUMS);
    assert_fetched_whole(5);
    assert_ok(e.tern, engine_end(&s));
}

TEST(device_checksums_say_what_they_need)
{
    struct engine_session s = begun(&e, 6);
    struct tern_page page = {.generation = 1};
    struct tern_checksums of = {
        .step = 9, .page_bytes = RIG_PAGE, .units = UNITS, .n = 1, .pages = &page};

    assert_ok(e.tern, engine_extend(&s, TOKENS, TOKENS));
    assert_err(TERN_INVALID,
               tern_checksums_on_stream(
                   e.map, &(struct tern_checksums){.step = 9, .page_bytes = RIG_PAGE}, stream));
    page.index = POOL / RIG_PAGE;
    assert_err(TERN_INVALID, tern_checksums_on_stream(e.map, &of, stream));
    page.index = 1;
    of.page_bytes = RIG_PAGE / 2;
    assert_err(TERN_INVALID, tern_checksums_on_stream(e.map, &of, stream));
    of.page_bytes = RIG_PAGE;
    of.units = UNITS + 1;
    assert_err(TERN_UNSUPPORTED, tern_checksums_on_stream(e.map, &of, stream));
    assert_non_null(strstr(tern_error_text(e.tern, NULL), "sums_per_page"));
    assert_err(TERN_INVALID, bring(&s, PAGES, TERN_STEP_NONE));
    assert_ok(e.tern, tern_done_step_on_stream(e.map, ++e.step, stream, NULL));
    assert_err(TERN_INVALID, bring(&s, PAGES, e.step));
    setenv("STANDIN_CUDA_KERNELS", "0", 1);
    assert_err(TERN_UNSUPPORTED, bring(&s, PAGES, e.step + 1));
    assert_non_null(strstr(tern_error_text(e.tern, NULL), "CUDA_ERROR_NO_BINARY_FOR_GPU"));
    unsetenv("STANDIN_CUDA_KERNELS");
    in.capture(stream, 1);
    assert_err(TERN_INVALID, bring(&s, PAGES, e.step + 1));
    in.capture(stream, 0);
    d.context_set(context[1]);
    assert_err(TERN_INVALID, bring(&s, PAGES, e.step + 1));
    d.context_set(NULL);
    assert_err(TERN_INVALID, bring(&s, PAGES, e.step + 1));
    d.context_set(context[0]);
    assert_ok(e.tern, bring(&s, PAGES, e.step + 1));
    assert_ok(e.tern, engine_end(&s));
}

/* Unblocks the kernels once libtern has asked whether they have run. */
static void *goes_on(void *with)
{
    (void)with;
    for (uint64_t end = rig_now_ms() + RIG_WAIT_MS;
         in.calls("cuEventQuery") == 0 && rig_now_ms() < end; usleep(100))
        ;
    in.go_on(0);
    return NULL;
}

/* The stand-in ends the program if the entries, the module or the pages go before a kernel has
 * run. */
TEST(device_mapping_ends_when_its_kernels_have_run)
{
    struct engine_session s = begun(&e, 7);
    pthread_t other;

    put_all(&s);
    in.hang_kernels(0);
    assert_ok(e.tern, bring(&s, PAGES, e.step + 1));
    assert_int_equal(pthread_create(&other, NULL, goes_on, NULL), 0);
    tern_pool_unmap(&e.map);
    assert_null(e.map);
    assert_int_equal(pthread_join(other, NULL), 0);
    engine_free(&s);
}
