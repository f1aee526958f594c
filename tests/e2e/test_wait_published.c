/* E10 through a real daemon: a waiter for a step gets its answer when the rank has published the
 * step, and the daemon reads the bell that the rank rings then. Rank and scheduler are connections
 * of this process. (test_steps of the core shows that the last of several ranks decides.) */
#include <fcntl.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
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
    assert_ok(scheduler, tern_join(scheduler, "e", TERN_SCHEDULER, 0, 1, NULL, RIG_WAIT_MS));
    rank = rig_connected(d.socket);
    assert_ok(rank, tern_join(rank, "e", TERN_WORKER, 0, 1, NULL, RIG_WAIT_MS));
    assert_ok(scheduler, tern_pool_open(scheduler, &layout, RIG_WAIT_MS, &pool, NULL));
    assert_ok(rank, tern_pool_map(rank, pool, RIG_WAIT_MS, &map));
}

/* Returns the client's end of the rank's bell: the one socket of this process that has no name and
 * does not block. */
static int bell(void)
{
    int found = -1;

    for (int fd = 3; fd < 256; fd++) {
        struct sockaddr_un at;
        socklen_t n = sizeof at;

        if (getpeername(fd, (struct sockaddr *)&at, &n) == 0 && at.sun_family == AF_UNIX &&
            n <= sizeof at.sun_family && (fcntl(fd, F_GETFL) & O_NONBLOCK)) {
            assert_int_equal(found, -1);
            found = fd;
        }
    }
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

/* Returns true if the bell's socket has something that the daemon has not read. */
static bool unheard(int fd)
{
    int left = -1;

    assert_int_equal(ioctl(fd, SIOCOUTQ, &left), 0);
    return left > 0;
}

/* A ring without a reason does no harm, and the daemon reads each: one byte, or the eight of a
 * library that takes the bell for an eventfd. */
TEST(bell_is_heard_by_the_daemon)
{
    const uint64_t one = 1;

    rig_start(&d, NULL, NULL);
    engine_up();
    for (uint32_t i = 0; i < 4; i++) {
        const size_t n = i % 2 ? sizeof one : 1;

        assert_int_equal(write(bell(), &one, n), n);
        wait_until(!unheard(bell()));
    }
    assert_ok(scheduler, tern_ping(scheduler, RIG_WAIT_MS));
}

/* Counts the daemon's descriptors once the number is stable. */
static uint32_t settled_fds(void)
{
    uint32_t n = rig_fds(&d);

    for (uint32_t same = 0; same < 20; same++) {
        usleep(10000);
        if (rig_fds(&d) != n)
            same = 0;
        n = rig_fds(&d);
    }
    return n;
}

/* A connection that has a bell gets no second one with a later mapping. A client that has closed
 * its bell harms nobody. */
TEST(bell_comes_once_a_connection)
{
    struct tern_pool *second;
    uint32_t before;

    rig_start(&d, NULL, NULL);
    engine_up();
    before = settled_fds();
    assert_ok(rank, tern_pool_map(rank, pool, RIG_WAIT_MS, &second));
    wait_until(rig_fds(&d) == before); /* the copies that it only sent are closed */
    tern_pool_unmap(&second);
    assert_int_equal(shutdown(bell(), SHUT_RDWR), 0);
    wait_until(rig_fds(&d) == before - 1);
    assert_ok(rank, tern_ping(rank, RIG_WAIT_MS)); /* the connection works without */
    assert_ok(rank, tern_done_step(map, 1));
}

FIXTURE(tear_down)
{
    tern_destroy(rank);
    tern_destroy(scheduler);
    return rig_stop(&d);
}

TEST_EACH(NULL, tear_down);
