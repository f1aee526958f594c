/* E7, E8: an engine whose steps do not come while its pages wait, and an engine with garbage in its
 * control page. Both raise alarms in the log and in the status; neither frees a page. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/admin.h"
#include "engine/engine.h"
#include "engine/json.h"
#include "rig_daemon.h"
#include "tern.h"
#include "testing/test.h"

#define L             64
#define PAGE          4096
#define PAGES         16
#define CONTROL_BYTES 4096
#define STEP          5

static struct daemon rig;
static struct tern *admin;
static struct engine e;

/* Returns a second mapping of the engine's control page, to write garbage into. */
static volatile uint64_t *control_page(void)
{
    FILE *f = fopen("/proc/self/maps", "r");
    void *at = NULL, *second;
    char line[512];

    assert_non_null(f);
    while (!at && fgets(line, sizeof line, f))
        if (strstr(line, "memfd:tern-control"))
            at = (void *)(uintptr_t)strtoull(line, NULL, 16);
    fclose(f);
    assert_non_null(at);
    second = mremap(at, 0, CONTROL_BYTES, MREMAP_MAYMOVE);
    assert_ptr_not_equal(second, MAP_FAILED);
    return second;
}

static size_t overdue(void)
{
    json_t *status = admin_ask(admin, "status", NULL);
    size_t n = json_array_size(json_object_get(status, "steps_overdue"));

    json_decref(status);
    return n;
}

static const struct tern_group kv = {.name = "kv", .page_tokens = L, .page_bytes = PAGE};
static const struct tern_layout layout = {.groups = &kv, .ngroups = 1, .bytes = PAGES * PAGE};

static void starts(uint32_t alarm_ms)
{
    rig_deadlines.step_alarm_ms = alarm_ms;
    rig_start(&rig, NULL, NULL);
    assert_int_equal(tern_connect(rig.admin, RIG_WAIT_MS, &admin), TERN_OK);
    e = (struct engine){0};
    assert_ok(e.tern, engine_open(&e, rig.socket, "slow", &layout, RIG_WAIT_MS));
}

static void ends(void)
{
    engine_close(&e);
    tern_destroy(admin);
    assert_int_equal(rig_stop(&rig), 0);
}

/* Frees pages that wait for STEP. */
static void gives_back(void)
{
    static uint32_t tokens[4 * L];
    struct engine_session s;

    assert_ok(e.tern, engine_begin_with(&s, &e, tokens, 0, 4 * L));
    assert_ok(e.tern, engine_extend(&s, 4 * L, 0));
    e.step = STEP;
    assert_ok(e.tern, engine_end(&s));
}

static uint64_t retiring(void)
{
    struct daemon_status st;

    assert_true(admin_status(admin, 0, &st));
    return st.pages.retiring;
}

TEST(steps_that_do_not_come_are_an_alarm_that_ends_when_they_do)
{
    starts(RIG_AT_ONCE_MS / 8);
    gives_back();
    assert_true(
        rig_log_has(&rig, "level=warn event=step_overdue subject=t0/slow text=", RIG_WAIT_MS));
    assert_int_equal(overdue(), 1);
    assert_int_equal(retiring(), 4);
    assert_ok(e.tern, tern_done_step(e.map, STEP));
    assert_true(rig_log_has(&rig, "event=step_overdue_ended subject=t0/slow", RIG_WAIT_MS));
    assert_int_equal(overdue(), 0);
    assert_int_equal(retiring(), 0);
    assert_int_equal(daemon_log_count(&rig, "event=step_overdue ", 2, 0), 1); /* once */
    ends();
}

TEST(garbage_in_the_control_page_frees_nothing_and_is_an_alarm_at_once)
{
    volatile uint64_t *page;

    starts(10 * RIG_WAIT_MS);
    page = control_page();
    gives_back();
    *page = UINT64_MAX - 7;
    assert_true(rig_log_has(&rig, "that is impossible", RIG_WAIT_MS));
    assert_int_equal(overdue(), 1);
    assert_int_equal(retiring(), 4);
    *page = STEP - 1; /* repaired, and the step is not done */
    assert_true(rig_log_has(&rig, "event=step_overdue_ended", RIG_WAIT_MS));
    assert_int_equal(retiring(), 4);
    *page = STEP;
    wait_until(retiring() == 0);
    munmap((void *)(uintptr_t)page, CONTROL_BYTES);
    ends();
}
