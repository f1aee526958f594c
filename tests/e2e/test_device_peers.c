/* One daemon that is its own peer, with memory on 8 GPUs of the stand-in: tickets go from pools of
 * each GPU to those of others: by peer access, through host memory between two GPUs that do not
 * reach each other, and within a GPU. Every byte is compared, and counted by its way. */
#include <stdlib.h>

#include "engine/admin.h"
#include "engine/pages.h"
#include "engine/proc.h"
#include "rig_daemon.h"
#include "standin/standin.h"
#include "testing/test.h"

#define L      64
#define PAGES  12u
#define TOKENS (PAGES * L - 5) /* the last page is not full */
#define POOL   (4u << 20)
#define GPUS   8
#define FAR    "event=device_peers "

static const char *const gpu[GPUS] = {STANDIN_UUID(0), STANDIN_UUID(1), STANDIN_UUID(2),
                                      STANDIN_UUID(3), STANDIN_UUID(4), STANDIN_UUID(5),
                                      STANDIN_UUID(6), STANDIN_UUID(7)};
static struct daemon rig;
static struct tern *admin;
static struct driver driver;
static struct engine engine[GPUS + 1]; /* one on each GPU, and a second one on the first */

/* Opens an engine whose thread works on that GPU. */
static void open_on(struct engine *e, uint32_t on, const char *name)
{
    struct tern_group kv = {.name = "kv", .page_tokens = L, .page_bytes = RIG_PAGE};
    struct tern_layout layout = {.groups = &kv, .ngroups = 1, .bytes = POOL};
    CUcontext context;

    assert_int_equal(driver.context_retain(&context, (CUdevice)on), CUDA_SUCCESS);
    assert_int_equal(driver.context_set(context), CUDA_SUCCESS);
    assert_ok(e->tern, engine_open_on(e, rig.socket, name, gpu[on], &layout, RIG_WAIT_MS));
    assert_string_equal(tern_pool_info(e->map)->device, gpu[on]);
}

/* no_peers: value of STANDIN_CUDA_NO_PEERS. */
static void start(const char *no_peers)
{
    struct driver_why why;
    char extra[1024], name[16];
    uint16_t port = port_free();
    int n;

    setenv("STANDIN_CUDA_NO_PEERS", no_peers, 1);
    n = snprintf(extra, sizeof extra,
                 "    regions: %d\n    device_memory: true\n    devices: ", GPUS);
    for (uint32_t i = 0; i < GPUS; i++)
        n += snprintf(extra + n, sizeof extra - (size_t)n, "%s%s", i ? "+" : "", gpu[i]);
    snprintf(extra + n, sizeof extra - (size_t)n,
             "\nlisten: 127.0.0.1:%u\ninsecure_peers: true\n"
             "peers:\n  - {name: e2e, address: \"127.0.0.1:%u\", tenants: [t0]}\n",
             port, port);
    rig_start(&rig, extra, NULL);
    rig_wait_linked(&rig, "e2e");
    admin = rig_connected(rig.admin);
    assert_int_equal(driver_open(&driver, DRIVER_LIBRARY, &why), DRIVER_OK);
    assert_int_equal(driver.init(0), CUDA_SUCCESS);
    for (uint32_t i = 0; i <= GPUS; i++) {
        snprintf(name, sizeof name, "e%u", i);
        open_on(&engine[i], i % GPUS, name);
    }
}

FIXTURE(begin)
{
    setenv("STANDIN_CUDA_DEVICES", "8", 1);
    return 0;
}

FIXTURE(stop)
{
    for (uint32_t i = 0; i <= GPUS; i++)
        engine_close(&engine[i]);
    tern_destroy(admin);
    driver.context_set(NULL);
    for (int i = 0; i <= GPUS; i++)
        driver.context_release(i % GPUS);
    driver_close(&driver);
    assert_int_equal(rig_stop(&rig), 0);
    return 0;
}

TEST_EACH(begin, stop);

/* Hands a session of `a` over by ticket, which `b` fetches. */
static void hand_over(struct engine *a, struct engine *b, uint32_t id)
{
    struct engine_session from, to;
    struct tern_ticket ticket;
    struct tern_result r;
    uint32_t tokens[TOKENS];

    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = id * 100000 + i;
    assert_ok(a->tern, engine_begin(&from, a, tokens, TOKENS));
    assert_ok(a->tern, engine_extend(&from, TOKENS, TOKENS));
    engine_write(&from, 0, TOKENS);
    a->step++;
    assert_ok(a->tern, engine_commit(&from, TOKENS / L * L));
    assert_ok(a->tern, tern_handoff(a->tern, from.id, a->step, "blob", 4, 0, RIG_WAIT_MS, &ticket));
    assert_ok(a->tern, tern_done_step(a->map, a->step));
    engine_free(&from);
    assert_ok(b->tern, engine_begin(&to, b, tokens, TOKENS));
    assert_ok(b->tern, rig_fetch_ticket(&to, &ticket, &r));
    assert_int_equal(to.len.written, TOKENS);
    assert_int_equal(engine_wrong(&to, TOKENS), 0);
    assert_ok(b->tern, engine_end(&to));
}

#define PAIRS (GPUS * 3u)

/* From each GPU to three others; the last two also send back. */
static void hand_over_all(void)
{
    for (uint32_t i = 0; i < PAIRS; i++)
        hand_over(&engine[i % GPUS], &engine[(i + 1 + 2 * (i / GPUS)) % GPUS], i + 1);
}

/* Checks the pages that went in each way; none may have arrived wrong. */
static void assert_moved(uint64_t within, uint64_t by_peer, uint64_t staged)
{
    assert_int_equal(rig_figure(admin, "status", "memory.moved_bytes_within"), within * RIG_PAGE);
    assert_int_equal(rig_figure(admin, "status", "memory.moved_bytes_by_peer"), by_peer * RIG_PAGE);
    assert_int_equal(rig_figure(admin, "status", "memory.moved_bytes_staged"), staged * RIG_PAGE);
    assert_int_equal(rig_figure(admin, "status", "data.payload_bytes_in"),
                     (within + by_peer + staged) * RIG_PAGE);
    assert_int_equal(rig_figure(admin, "status", "data.corrupt_detected"), 0);
    assert_int_equal(rig_figure(admin, "status", "memory.devices_lost"), 0);
    printf("pages within %lu, by_peer %lu, staged %lu; wrong_bytes 0\n", within, by_peer, staged);
}

TEST(device_peers_hand_over_by_peer_access)
{
    start("");
    hand_over_all();
    assert_moved(0, PAIRS * PAGES, 0);
    hand_over(&engine[0], &engine[GPUS], 1000); /* two pools of one GPU */
    assert_moved(PAGES, PAIRS * PAGES, 0);
    assert_true(rig_ctl_says(&rig, "doctor", "peer access with 7 of the 7 other GPUs"));
    assert_false(rig_ctl_says(&rig, "doctor", "no peer access"));
    assert_true(rig_ctl_says(&rig, "status",
                             "copied between GPUs: 1.1 MiB by peer access, 0 B through memory of "
                             "the host; within a GPU: 48.0 KiB"));
    assert_int_equal(daemon_log_count(&rig, FAR, 1, 0), 0);
}

TEST(device_peers_that_do_not_reach_each_other_hand_over_through_the_host)
{
    start("all");
    hand_over_all();
    assert_moved(0, 0, PAIRS * PAGES);
    assert_true(rig_ctl_says(&rig, "doctor", "peer access with 0 of the 7 other GPUs"));
    assert_int_equal(daemon_log_count(&rig, FAR, GPUS - 1, RIG_WAIT_MS), GPUS - 1);
    assert_int_equal(daemon_log_count(&rig, " more=6 way=staged", 1, RIG_WAIT_MS), 1);
}

TEST(device_peers_that_reach_some_hand_over_to_each_in_its_way)
{
    start("2-5");
    hand_over_all();
    assert_moved(0, (PAIRS - 2) * PAGES, 2 * PAGES);
    assert_true(rig_ctl_says(
        &rig, "doctor",
        "no peer access with " STANDIN_UUID(5) ": copies go through memory of "
                                               "the host (cuDeviceCanAccessPeer: no)"));
    assert_int_equal(
        daemon_log_count(&rig,
                         FAR "device=" STANDIN_UUID(2) " other=" STANDIN_UUID(
                             5) " more=0 way=staged reason=\"cuDeviceCanAccessPeer: no\"",
                         1, RIG_WAIT_MS),
        1);
    assert_int_equal(daemon_log_count(&rig, FAR, 2, 0), 1);
}
