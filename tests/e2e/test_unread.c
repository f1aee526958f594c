/* Unread answers, many times the size of the buffers: eight connections of tenant t0 send requests
 * and never read. Those of tenant t1 are served meanwhile, and the end of t0's is reported with its
 * reason. And one connection that asks much at once: a later asker is answered before that
 * connection has all its answers. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "engine/engine.h"
#include "rig_daemon.h"
#include "testing/test.h"

#define UNREAD    8
#define ROUNDS    4000
#define ASK_EVERY 20 /* rounds from one request of t1's to the next */
#define BACKLOG   100
#define TRIES     100 /* this process may be too late to see it in some */

static struct daemon rig;
static char other[SPAWN_PATH_BYTES]; /* t1's socket */

TEST(unread_answers_of_one_tenant_cost_another_nothing)
{
    Tern__Wire__Empty m = TERN__WIRE__EMPTY__INIT;
    uint32_t open = UNREAD, asked = 0, most = 0;
    struct tern *t, *admin;
    int fd[UNREAD];

    rig_start_two(&rig, other, NULL);
    t = rig_connected(other);
    admin = rig_connected(rig.admin);
    for (uint32_t i = 0; i < UNREAD; i++)
        fd[i] = rig_greeted(rig.socket);
    for (uint32_t round = 0; round < ROUNDS && open > 0; round++) {
        for (uint32_t i = 0; i < UNREAD; i++) {
            if (fd[i] < 0 || rig_message(fd[i], FRAME_STATS, round + 2, 0, &m.base))
                continue;
            close(fd[i]);
            fd[i] = -1;
            open--;
        }
        if (round % ASK_EVERY == 0) {
            const char *json;
            uint32_t used = (uint32_t)rig_figure(admin, "status", "send_buffers.shares.0.used");

            most = used > most ? used : most;
            assert_ok(t, tern_stats(t, RIG_WAIT_MS, &json));
            asked++;
        }
    }
    printf("t0 held %u send buffers at the most, %u of its %u connections were closed; t1 was "
           "answered %u times\n",
           most, UNREAD - open, UNREAD, asked);
    assert_true(most > rig_figure(admin, "status", "send_buffers.shares.0.reserved"));
    assert_true(open < UNREAD);
    assert_true(rig_log_has(&rig, "event=conn_closed", RIG_WAIT_MS));
    assert_true(rig_log_has(&rig, "limits.send_buffers", 0) ||
                rig_log_has(&rig, "reads too slowly", 0));
    for (uint32_t i = 0; i < UNREAD; i++)
        if (fd[i] >= 0)
            close(fd[i]);
    tern_destroy(t);
    tern_destroy(admin);
    assert_int_equal(rig_stop(&rig), 0);
}

/* Sends the backlog on `busy` and then a Ping on `after`, while the daemon is stopped. Returns
 * the bytes of the backlog's answers that have arrived when the Ping is answered, and *ret_all
 * of them. */
static uint64_t answered_before(int busy, int after, uint64_t id, uint64_t *ret_all)
{
    static uint8_t frames[BACKLOG * RIG_STATS_BYTES];
    static struct rig_answer answer;
    Tern__Wire__Empty m = TERN__WIRE__EMPTY__INIT;
    int there = 0;

    rig_stats_frames(frames, BACKLOG, id);
    assert_int_equal(kill(rig.pid, SIGSTOP), 0);
    assert_true(rig_write(busy, frames, sizeof frames));
    assert_true(rig_message(busy, FRAME_PING, id + BACKLOG, 0, &m.base));
    assert_true(rig_message(after, FRAME_PING, id, 0, &m.base));
    assert_int_equal(kill(rig.pid, SIGCONT), 0);
    assert_int_equal(rig_read(after, RIG_WAIT_MS, &answer), RIG_FRAME);
    assert_int_equal(ioctl(busy, FIONREAD, &there), 0);
    *ret_all = 0;
    do {
        assert_int_equal(rig_read(busy, RIG_WAIT_MS, &answer), RIG_FRAME);
        *ret_all += FRAME_HEADER_BYTES + answer.h.length;
    } while (answer.h.request_id < id + BACKLOG);
    return (uint64_t)there;
}

TEST(unread_backlog_of_one_tenant_is_answered_between_the_requests_of_another)
{
    uint64_t before = 0, all = 0, id = 2;
    uint32_t tries = 0;
    int busy, after;

    rig_start_two(&rig, other, NULL);
    busy = rig_greeted(rig.socket);
    after = rig_greeted(other);
    do {
        before = answered_before(busy, after, id, &all);
        id += BACKLOG + 1;
    } while (before > all / 2 && ++tries < TRIES);
    printf("%llu of %llu bytes were answered before the other tenant, in try %u\n",
           (unsigned long long)before, (unsigned long long)all, tries + 1);
    assert_true(before <= all / 2);
    close(busy);
    close(after);
    assert_int_equal(rig_stop(&rig), 0);
}
