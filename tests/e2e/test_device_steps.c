/* An engine on memory of a GPU of the stand-in (LD_LIBRARY_PATH of the test) writes by copies in a
 * stream and puts all its steps into that stream: nothing is published or freed before the stream
 * reaches the step (E2, E3). */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/admin.h"
#include "engine/bytes.h"
#include "engine/pages.h"
#include "rig_daemon.h"
#include "standin/standin_open.h"
#include "testing/test.h"

#define L      64
#define PAGES  12u
#define TOKENS (PAGES * L)
#define POOL   (4u << 20)
#define TURNS  20u

#define ON_FIRST "    devices: " STANDIN_UUID(0) "\n    device_memory: true\n"

static struct daemon rig;
static struct standin in; /* that of this process; the daemon has its own */
static struct driver d;
static CUstream stream;
static uint8_t *pinned; /* PAGES pages */
static struct engine e;
static struct tern *admin;

FIXTURE(start_all)
{
    struct driver_why why;
    CUcontext context;
    void *room;

    rig_start(&rig, ON_FIRST, NULL);
    admin = rig_connected(rig.admin);
    e = rig_engine(rig.socket, "e", L, POOL);
    in = standin_open(DRIVER_LIBRARY);
    assert_int_equal(driver_open(&d, DRIVER_LIBRARY, &why), DRIVER_OK);
    assert_int_equal(d.init(0), CUDA_SUCCESS);
    assert_int_equal(d.context_retain(&context, 0), CUDA_SUCCESS);
    assert_int_equal(d.context_set(context), CUDA_SUCCESS);
    assert_int_equal(d.stream_create(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(d.host_alloc(&room, (size_t)PAGES * RIG_PAGE, 0), CUDA_SUCCESS);
    pinned = room;
    return 0;
}

FIXTURE(stop_all)
{
    in.go_on(0);
    engine_close(&e); /* waits for the stream */
    tern_destroy(admin);
    d.host_free(pinned);
    d.stream_destroy(stream);
    d.context_set(NULL);
    d.context_release(0);
    driver_close(&d);
    dlclose(in.library);
    return rig_end(&rig);
}

TEST_EACH(start_all, stop_all);

static void tokens_of(uint32_t id, uint32_t ret[TOKENS])
{
    for (uint32_t i = 0; i < TOKENS; i++)
        ret[i] = id * 100000 + i;
}

static struct engine_session begun(uint32_t id)
{
    struct engine_session s;
    uint32_t tokens[TOKENS];

    tokens_of(id, tokens);
    assert_ok(e.tern, engine_begin_with(&s, &e, tokens, TOKENS, L));
    return s;
}

/* Puts the copies of the session's pages, and then the step, into the stream; the commit waits for
 * neither. One more page is for a draft, which is freed uncommitted. */
static void launch(struct engine_session *s)
{
    enum tern_step_by by = TERN_STEP_BY_HOST;

    assert_ok(e.tern, engine_extend(s, TOKENS + L, TOKENS));
    for (uint32_t i = 0; i < PAGES; i++) {
        uint8_t *page = engine_page(&e, 0, s->table.group[0].index[i]);

        page_fill(pinned + i * RIG_PAGE, RIG_PAGE, page_seed(s->table.group[0].prefix[i], i, 0));
        assert_int_equal(
            d.put_async((CUdeviceptr)(uintptr_t)page, pinned + i * RIG_PAGE, RIG_PAGE, stream),
            CUDA_SUCCESS);
    }
    assert_ok(e.tern, tern_done_step_on_stream(e.map, ++e.step, stream, &by));
    assert_int_equal(by, TERN_STEP_BY_DEVICE);
    assert_ok(e.tern, engine_commit(s, TOKENS));
}

/* Depth that others would find. */
static uint32_t peeked(uint32_t id)
{
    const struct tern_namespace ns = e.ns;
    uint32_t tokens[TOKENS];
    struct tern_depths depths;

    tokens_of(id, tokens);
    assert_ok(e.tern, tern_peek(e.tern, e.pool, &ns,
                                &(struct tern_tokens){.v = tokens, .n = TOKENS}, 0, &depths));
    return depths.resumable;
}

static uint64_t retiring(void)
{
    struct daemon_status st;

    assert_true(admin_status(admin, e.pool, &st));
    return st.pages.retiring;
}

/* The copies and the step are in the stream, which is blocked: until it runs nobody finds the
 * prefix, and the session's freed pages stay retiring. */
TEST(device_step_in_a_stream_publishes_and_frees_when_the_stream_comes_to_it)
{
    struct engine_session s = begun(1);

    in.hang(0);
    launch(&s);
    assert_err(TERN_TIMED_OUT, tern_wait_published(e.tern, e.step, 50));
    assert_int_equal(peeked(1), 0);
    assert_ok(e.tern, engine_end(&s));
    assert_err(TERN_TIMED_OUT, tern_wait_published(e.tern, e.step, 50));
    assert_int_equal(retiring(), 1);
    in.go_on(0);
    assert_ok(e.tern, tern_wait_published(e.tern, e.step, RIG_WAIT_MS));
    assert_int_equal(peeked(1), TOKENS);
    wait_until(retiring() == 0);
}

/* All steps go through the stream, and no turn waits for it: a Match after the wait finds every
 * byte. */
TEST(device_engine_with_all_steps_in_its_stream_reads_what_it_wrote)
{
    setenv("STANDIN_CUDA_DELAY_US", "20", 1);
    for (uint32_t id = 1; id <= TURNS; id++) {
        struct engine_session s = begun(id), again;

        launch(&s);
        assert_ok(e.tern, engine_end(&s));
        assert_ok(e.tern, tern_wait_published(e.tern, e.step, RIG_WAIT_MS));
        again = begun(id);
        assert_int_equal(again.matched, TOKENS);
        assert_int_equal(engine_wrong(&again, TOKENS), 0);
        assert_ok(e.tern, engine_end(&again));
    }
    assert_int_equal(e.step, TURNS);
    assert_int_equal(in.calls("cuStreamWriteValue64"), TURNS);
}
