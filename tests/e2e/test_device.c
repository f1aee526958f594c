/* A daemon whose tenant's memory lies on the GPUs of the stand-in, which this program and the
 * daemon load in place of libcuda.so.1 (LD_LIBRARY_PATH of the test): an engine maps, writes by
 * copies, commits and matches; one is killed; one works on another GPU; a GPU fails. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/admin.h"
#include "engine/json.h"
#include "engine/pages.h"
#include "engine/proc.h"
#include "rig_daemon.h"
#include "standin/standin.h"
#include "testing/test.h"

#define L      64
#define PAGES  12u
#define TOKENS (PAGES * L)
#define POOL   (4u << 20)

#define ON_FIRST "    devices: " STANDIN_UUID(0) "\n    device_memory: true\n"

static struct daemon rig;

FIXTURE(stop_rig)
{
    return rig_end(&rig);
}

TEST_EACH(NULL, stop_rig);

/* A child's answer to a pool map, with its text. `visible`: CUDA_VISIBLE_DEVICES; NULL: its context
 * is on the second GPU. */
struct told {
    enum tern_err err;
    char text[300];
};

static struct told mapped_elsewhere(const char *visible)
{
    struct tern_group kv = {.name = "kv", .page_tokens = L, .page_bytes = RIG_PAGE};
    struct tern_layout layout = {.groups = &kv, .ngroups = 1, .bytes = POOL};
    struct told told = {.err = TERN_OK};
    int tell[2];
    pid_t pid;

    assert_int_equal(pipe(tell), 0);
    pid = fork();
    if (pid == 0) {
        struct driver_why why;
        struct driver d;
        struct engine e = {0};
        CUcontext context;

        if (visible)
            setenv("CUDA_VISIBLE_DEVICES", visible, 1);
        else if (driver_open(&d, DRIVER_LIBRARY, &why) != DRIVER_OK || d.init(0) ||
                 d.context_retain(&context, 1) || d.context_set(context))
            _exit(1);
        told.err = engine_open(&e, rig.socket, "elsewhere", &layout, RIG_WAIT_MS);
        snprintf(told.text, sizeof told.text, "%s", engine_why(&e));
        (void)!write(tell[1], &told, sizeof told);
        _exit(0);
    }
    assert_int_equal(read(tell[0], &told, sizeof told), sizeof told);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close(tell[0]);
    close(tell[1]);
    return told;
}

/* Must be the first case: which GPUs this program sees is settled once it has loaded the driver. */
TEST(device_engine_on_another_gpu_is_refused_with_both_names)
{
    struct told told;

    rig_start(&rig, ON_FIRST, NULL);
    told = mapped_elsewhere("1");
    assert_err(TERN_INVALID, told.err);
    assert_non_null(strstr(told.text, STANDIN_UUID(0)));
    assert_non_null(strstr(told.text, STANDIN_UUID(1)));
    assert_non_null(strstr(told.text, "CUDA_VISIBLE_DEVICES"));
    told = mapped_elsewhere(NULL);
    assert_err(TERN_INVALID, told.err);
    assert_non_null(strstr(told.text, STANDIN_UUID(0)));
    assert_non_null(strstr(told.text, STANDIN_UUID(1)));
    assert_non_null(strstr(told.text, "context"));
}

static void tokens_of(uint32_t id, uint32_t ret[TOKENS])
{
    for (uint32_t i = 0; i < TOKENS; i++)
        ret[i] = id * 100000 + i;
}

/* Writes and commits all tokens of a session. Returns what it matched before. */
static uint32_t talk(struct engine *e, uint32_t id)
{
    struct engine_session s;
    uint32_t tokens[TOKENS], matched;

    tokens_of(id, tokens);
    assert_ok(e->tern, engine_begin(&s, e, tokens, TOKENS));
    matched = s.matched;
    assert_ok(e->tern, engine_run(&s));
    assert_int_equal(engine_wrong(&s, TOKENS), 0);
    assert_ok(e->tern, engine_end(&s));
    return matched;
}

/* Returns the signal that kills a child which touches the mapping. */
static int touched_by_the_cpu(const struct engine *e)
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        signal(SIGSEGV, SIG_DFL);
        *(volatile uint8_t *)tern_pool_info(e->map)->base = 1;
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

/* Two pools of one region: each lies where the daemon reports, so neither has the other's bytes. */
TEST(device_pools_lie_side_by_side)
{
    struct engine first, second;

    rig_start(&rig, ON_FIRST, NULL);
    first = rig_engine(rig.socket, "first", L, POOL);
    second = rig_engine(rig.socket, "second", L / 2, POOL);
    assert_int_equal(talk(&first, 1), 0);
    assert_int_equal(talk(&second, 2), 0);
    assert_int_equal(talk(&first, 1), TOKENS); /* compares every byte */
    assert_int_equal(talk(&second, 2), TOKENS);
    engine_close(&first);
    engine_close(&second);
}

TEST(device_engine_maps_commits_and_matches)
{
    struct tern *admin;
    struct daemon_status st;
    struct engine e;

    rig_start(&rig, ON_FIRST, NULL);
    admin = rig_connected(rig.admin);
    e = rig_engine(rig.socket, "e", L, POOL);
    assert_string_equal(tern_pool_info(e.map)->device, STANDIN_UUID(0));
    assert_int_equal(tern_pool_info(e.map)->ordinal, 0);
    assert_int_equal(touched_by_the_cpu(&e), SIGSEGV);
    assert_int_equal(talk(&e, 1), 0);
    wait_until(rig_figure(admin, "status", "memory.sealed_pages") == PAGES);
    assert_int_equal(talk(&e, 1), TOKENS);
    assert_int_equal(talk(&e, 2), 0);
    assert_int_equal(rig_figure(admin, "status", "memory.device_bytes"), RIG_MEMORY);
    assert_int_equal(rig_figure(admin, "status", "memory.devices"), 1);
    assert_true(admin_empty(admin, e.pool, RIG_WAIT_MS, &st));
    assert_int_equal(st.pages.free, st.pages.total);
    engine_close(&e);
    tern_destroy(admin);
}

/* Opens a pool of nearly all the memory. */
static enum tern_err open_all(struct engine *e)
{
    struct tern_group kv = {.name = "kv", .page_tokens = L / 2, .page_bytes = RIG_PAGE};
    struct tern_layout layout = {.groups = &kv, .ngroups = 1, .bytes = RIG_MEMORY - (1u << 20)};
    enum tern_err err = engine_open(e, rig.socket, "next", &layout, RIG_WAIT_MS);

    if (err != TERN_OK)
        engine_close(e);
    return err;
}

/* Once the engine is gone another one gets the pool's range, which is zero then (P3). */
TEST(device_engine_that_is_killed_leaves_pages_that_are_zeroed_before_others_have_them)
{
    static uint8_t bytes[POOL];
    int tell[2];
    struct engine e;
    struct tern *admin;
    enum tern_err err;
    uint64_t size;
    char done;
    pid_t pid;

    rig_start(&rig, ON_FIRST, NULL);
    admin = rig_connected(rig.admin);
    assert_int_equal(pipe(tell), 0);
    pid = fork();
    if (pid == 0) {
        e = rig_engine(rig.socket, "killed", L, POOL);
        memset(bytes, 0x5a, sizeof bytes);
        pool_bytes_put(e.map, tern_pool_info(e.map)->base, bytes, tern_pool_info(e.map)->bytes);
        if (talk(&e, 1) == 0)
            (void)!write(tell[1], "x", 1);
        pause();
        _exit(0);
    }
    assert_int_equal(read(tell[0], &done, 1), 1);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    wait_until(rig_figure(admin, "status", "engines") == 0);
    wait_until((err = open_all(&e)) != TERN_BUSY); /* the unmapped pool is freed */
    assert_err(TERN_OK, err);
    size = tern_pool_info(e.map)->bytes;
    for (uint64_t at = 0; at < size; at += sizeof bytes) {
        uint64_t n = size - at < sizeof bytes ? size - at : sizeof bytes;

        pool_bytes_get(e.map, bytes, tern_pool_info(e.map)->base + at, n);
        for (uint64_t i = 0; i < n; i++)
            if (bytes[i])
                fail_msg("byte %llu of the pool is not zero", (unsigned long long)(at + i));
    }
    assert_int_equal(rig_figure(admin, "status", "memory.devices_lost"), 0);
    close(tell[0]);
    close(tell[1]);
    engine_close(&e);
    tern_destroy(admin);
}

/* The alarm of the GPU is on for good, with the driver's error; that of the other GPU is off. */
static void assert_alarm(struct tern *admin)
{
    json_t *status = admin_ask(admin, "status", NULL), *row,
           *counts = json_object_get(status, "alarm_counts");

    assert_int_equal(json_integer_value(json_object_get(status, "alarms_on")), 1);
    row = json_array_get(json_object_get(status, "alarms"), 0);
    assert_true(json_says(row, "name", "device_lost"));
    assert_true(json_says(row, "severity", "error"));
    assert_true(json_says(row, "subject", STANDIN_UUID(0)));
    assert_non_null(strstr(json_string_value(json_object_get(row, "text")), "CUDA_ERROR_"));
    assert_non_null(strstr(json_string_value(json_object_get(row, "action")), "dmesg"));
    row = json_row(counts, "name", "device_lost");
    assert_non_null(row);
    assert_int_equal(json_integer_value(json_object_get(row, "on")), 1);
    json_decref(status);
}

/* The GPU fails at a call of sealing. The GPU's pages are no longer served; the daemon and its
 * tenant without GPUs continue. */
static void fails_under_the_daemon(const char *call)
{
    char other[SPAWN_PATH_BYTES];
    struct tern *admin;
    struct engine e, near;
    struct tern_pool *again;

    setenv("STANDIN_CUDA_FAIL", call, 1);
    rig_start_two(&rig, other, ON_FIRST); /* the second GPU's is */
    unsetenv("STANDIN_CUDA_FAIL");
    admin = rig_connected(rig.admin);
    e = rig_engine(other, "e", L, POOL);
    assert_int_equal(talk(&e, 1), 0);
    assert_true(rig_log_has(
        &rig, "level=error event=device_lost subject=" STANDIN_UUID(0) " text=", RIG_WAIT_MS));
    assert_int_equal(rig_figure(admin, "status", "memory.devices_lost"), 1);
    assert_alarm(admin);
    assert_err(TERN_GONE, tern_pool_map(e.tern, e.pool, RIG_WAIT_MS, &again));
    assert_non_null(strstr(engine_why(&e), "GPU"));
    near = rig_engine(rig.socket, "near", L, POOL);
    assert_null(tern_pool_info(near.map)->device);
    assert_int_equal(tern_pool_info(near.map)->ordinal, -1);
    assert_int_equal(talk(&near, 1), 0);
    assert_int_equal(talk(&near, 1), TOKENS);
    assert_true(rig_alive(&rig));
    printf("fault=21 runs=1 injected=1 violations=0 devices_lost=1\n");
    engine_close(&near);
    engine_close(&e);
    tern_destroy(admin);
}

TEST(fault_21_device_fails_under_the_daemon)
{
    fails_under_the_daemon("cuMemcpyDtoHAsync:1:719");
}

TEST(fault_21_kernel_fails_under_the_daemon)
{
    fails_under_the_daemon("cuLaunchKernel:2:719");
}
