/* E10 through a real daemon: who waits for a step is told when the rank has published it, and the
 * daemon hears the bell that the rank rings then. Rank and scheduler are connections of this
 * process. (That the last of several ranks decides, test_steps of the core shows.) */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rig_daemon.h"
#include "tern.h"
#include "testing/test.h"

#define PAGE 4096u
#define L    64u

static struct daemon d;
static struct tern *scheduler, *rank;
static struct tern_pool *map;
static uint64_t pool;

static void engine_up(void)
{
    const struct tern_group kv = {.name = "kv", .page_tokens = L, .page_bytes = PAGE};
    const struct tern_layout layout = {.groups = &kv, .ngroups = 1, .bytes = 64 * PAGE};

    scheduler = rig_connected(d.socket);
    assert_ok(scheduler, tern_join(scheduler, "e", TERN_SCHEDULER, 0, 1, RIG_WAIT_MS));
    rank = rig_connected(d.socket);
    assert_ok(rank, tern_join(rank, "e", TERN_WORKER, 0, 1, RIG_WAIT_MS));
    assert_ok(scheduler, tern_pool_open(scheduler, &layout, RIG_WAIT_MS, &pool, NULL));
    assert_ok(rank, tern_pool_map(rank, pool, RIG_WAIT_MS, &map));
}

/* The eventfd of this process: the daemon has its own ones. */
static int bell(void)
{
    char path[PATH_MAX], target[64];
    DIR *fds = opendir("/proc/self/fd");
    int found = -1;

    for (struct dirent *e; (e = readdir(fds)) && found < 0;) {
        ssize_t n;

        snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
        n = readlink(path, target, sizeof target - 1);
        if (n > 0 && strncmp(target, "anon_inode:[eventfd]", (size_t)n) == 0)
            found = atoi(e->d_name);
    }
    closedir(fds);
    assert_true(found >= 0);
    return found;
}

static bool answered(uint64_t cookie)
{
    struct tern_answer a;

    if (tern_poll(scheduler, &a) != TERN_OK)
        return false;
    assert_int_equal(a.cookie, cookie);
    assert_int_equal(a.err, TERN_OK);
    return true;
}

static void waits_for_answer(uint64_t cookie)
{
    uint64_t until = rig_now_ms() + RIG_WAIT_MS;

    while (!answered(cookie)) {
        assert_true(rig_now_ms() < until);
        usleep(100);
    }
}

TEST(wait_published_is_told_when_the_rank_has_published)
{
    rig_start(&d, NULL, NULL);
    engine_up();
    assert_int_equal(tern_wait_published(scheduler, 0, RIG_WAIT_MS), TERN_INVALID);
    for (uint64_t step = 10; step < 200; step += 2) {
        assert_ok(scheduler, tern_submit_wait_published(scheduler, step, step));
        assert_ok(rank, tern_done_step(map, step - 1));
        assert_ok(scheduler, tern_ping(scheduler, RIG_WAIT_MS)); /* the daemon had its turn */
        assert_false(answered(step));
        assert_ok(rank, tern_done_step(map, step));
        waits_for_answer(step);
    }
    assert_ok(scheduler, tern_wait_published(scheduler, 10, RIG_WAIT_MS));
    assert_err(TERN_TIMED_OUT, tern_wait_published(scheduler, 1000, 10));
    assert_err(TERN_TIMED_OUT, tern_wait_published(scheduler, 1000, 10)); /* it may be repeated */
}

/* How often it was rung and not heard. */
static unsigned unheard(int fd)
{
    char path[64], line[128];
    unsigned n = UINT_MAX;
    FILE *f;

    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "eventfd-count: %x", &n) == 1)
            break;
    fclose(f);
    return n;
}

/* Rung without a reason it does no harm, and it is heard each time. */
TEST(bell_is_heard_by_the_daemon)
{
    uint64_t one = 1;

    rig_start(&d, NULL, NULL);
    engine_up();
    for (uint32_t i = 0; i < 3; i++) {
        uint64_t until = rig_now_ms() + RIG_WAIT_MS;

        assert_int_equal(write(bell(), &one, sizeof one), sizeof one);
        while (unheard(bell()) > 0)
            assert_true(rig_now_ms() < until);
    }
    assert_ok(scheduler, tern_ping(scheduler, RIG_WAIT_MS));
}

FIXTURE(tear_down)
{
    tern_destroy(rank);
    tern_destroy(scheduler);
    return rig_stop(&d);
}

TEST_EACH(NULL, tear_down);
