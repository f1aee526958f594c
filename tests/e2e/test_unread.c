/* Answers that nobody reads, many times what the buffers hold: eight connections of tenant t0 ask
 * and never read. Those of tenant t1 are answered meanwhile, and what becomes of t0's is told with
 * its reason. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/engine.h"
#include "rig_daemon.h"
#include "testing/test.h"

#define UNREAD    8
#define ROUNDS    4000
#define ASK_EVERY 20 /* rounds from one request of t1's to the next */

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
    assert_true(rig_log_has(&rig, "limits.send_buffers_reserved", 0) ||
                rig_log_has(&rig, "reads too slowly", 0));
    for (uint32_t i = 0; i < UNREAD; i++)
        if (fd[i] >= 0)
            close(fd[i]);
    tern_destroy(t);
    tern_destroy(admin);
    assert_int_equal(rig_stop(&rig), 0);
}
