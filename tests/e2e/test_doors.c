/* Strangers at every door: connections that send nothing, or only half of a message, to the data
 * port and the control port of a daemon, and to the sockets of its tenant and its operators. Then a
 * peer links up, an engine joins, and its first fetch succeeds. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "engine/engine.h"
#include "engine/proc.h"
#include "rig_daemon.h"
#include "testing/test.h"

#define STRANGERS 256 /* at each door */
#define PAGE      4096
#define TOKENS    640

enum { DOOR_DATA, DOOR_PEERS, DOOR_TENANT, DOOR_ADMIN, DOORS };

static struct daemon source, dest;
static struct daemon_options options[2] = {
    {.node = "source", .memory_bytes = 16u << 20, .page_bytes_min = PAGE, .core = -1},
    {.node = "dest", .memory_bytes = 16u << 20, .page_bytes_min = PAGE, .core = -1}};
static struct tern *admin; /* of the source */
static int stranger[DOORS * STRANGERS];
static uint32_t nstrangers;

/* Half of them send a little: not enough of anything. */
static void strangers_come(uint32_t door, uint16_t port)
{
    static const uint8_t little[9] = {22, 3, 1, 1};

    for (uint32_t i = 0; i < STRANGERS; i++) {
        int fd = door == DOOR_TENANT  ? rig_connect(source.socket)
                 : door == DOOR_ADMIN ? rig_connect(source.admin)
                                      : rig_connect_tcp(port);

        if (i % 2)
            rig_write(fd, little, sizeof little);
        stranger[nstrangers++] = fd;
    }
}

static void strangers_go(void)
{
    while (nstrangers > 0)
        close(stranger[--nstrangers]);
}

static void strangers_at_every_door(void)
{
    uint16_t data = (uint16_t)rig_figure(admin, "status", "data.port");
    uint16_t peers = (uint16_t)rig_figure(admin, "status", "listen_port");

    strangers_go();
    strangers_come(DOOR_DATA, data);
    strangers_come(DOOR_PEERS, peers);
    strangers_come(DOOR_TENANT, 0);
    strangers_come(DOOR_ADMIN, 0);
}

TEST(doors_full_of_strangers_keep_no_peer_and_no_engine_out)
{
    static const char *const name[DOORS] = {"data", "peers", SPAWN_TENANT, "admin"};
    struct rlimit files;
    char dir[RIG_DIR_BYTES], why[SPAWN_WHY_BYTES] = "", path[64];
    uint32_t tokens[TOKENS];
    struct engine_session from, to;
    struct engine a, b;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = files.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = i * 7 + 1;
    rig_start_pair(&source, &dest, dir, options);
    admin = rig_connected(source.admin);
    assert_int_equal(daemon_end(&dest, RIG_STOP_MS), 0);

    strangers_at_every_door();
    if (!daemon_start(&dest, dir, &options[1], why)) /* it dials, as a stranger first */
        fail_msg("%s", why);
    a = rig_engine(source.socket, "prefill", 64, 64 * PAGE);
    tern_destroy(rig_connected(source.admin)); /* another operator */
    assert_ok(a.tern, engine_begin(&from, &a, tokens, TOKENS));
    assert_ok(a.tern, engine_run(&from));
    assert_ok(a.tern, engine_publish(&a));
    b = rig_engine(dest.socket, "decode", 64, 64 * PAGE);
    assert_ok(b.tern, engine_begin(&to, &b, tokens, TOKENS));
    strangers_at_every_door();
    assert_ok(b.tern, engine_fetch(&to, "source", TOKENS, RIG_WAIT_MS));
    assert_int_equal(to.len.committed, TOKENS);
    assert_int_equal(engine_wrong(&to, TOKENS), 0);

    for (uint32_t i = 0; i < DOORS; i++) {
        snprintf(path, sizeof path, "doors.%u.displaced", i);
        printf("door %s: %llu of %u strangers made way\n", name[i],
               (unsigned long long)rig_figure(admin, "status", path), 2 * STRANGERS);
        assert_true(rig_figure(admin, "status", path) >= STRANGERS);
        snprintf(path, sizeof path, "doors.%u.waiting", i);
        assert_true(rig_figure(admin, "status", path) <= 64);
    }
    assert_ok(b.tern, engine_end(&to));
    assert_ok(a.tern, engine_end(&from));
    strangers_go();
    engine_close(&b);
    engine_close(&a);
    tern_destroy(admin);
    assert_true(daemon_stop(&dest));
    assert_true(daemon_stop(&source));
    tempdir_remove(dir);
}
