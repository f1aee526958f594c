/* Listening sockets: simultaneous connections are accepted by turns of the loop. */
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/err.h"
#include "shell/stream/listen.h"
#include "testing/test.h"

#define CALLERS 20
#define LATE_NS 5000000000u

static uint32_t accepted;

static void take(struct listener *l, int fd)
{
    (void)l;
    accepted++;
    close(fd);
}

/* A storm of connections costs the daemon's other work one connection a turn. */
TEST(listen_accepts_one_connection_a_turn)
{
    struct io_config ring = {.entries = 64};
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    uint64_t end = io_now_ns() + LATE_NS;
    int caller[CALLERS];
    struct listener l;
    struct io *io;
    char why[256] = "";
    const char *text;

    snprintf(at.sun_path, sizeof at.sun_path, "/tmp/tern-listen.%d", (int)getpid());
    assert_int_equal(io_create(&ring, &io, &text), TERN_OK);
    assert_int_equal(listen_unix(&l, at.sun_path, 0600, why, sizeof why), TERN_OK);
    for (uint32_t i = 0; i < CALLERS; i++) {
        caller[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(caller[i], (struct sockaddr *)&at, sizeof at), 0);
    }
    l.refuses = true; /* like a listener without places */
    listen_start(&l, io, take, NULL);
    while (accepted < CALLERS && io_now_ns() < end) {
        uint32_t before = accepted;

        io_run(io, end);
        assert_true(accepted - before <= 1);
    }
    assert_int_equal(accepted, CALLERS);
    io_cancel(io, &l.op);
    while (!l.resume_ns && io_now_ns() < end)
        io_run(io, end);
    listen_stop(&l);
    io_destroy(io);
    for (uint32_t i = 0; i < CALLERS; i++)
        close(caller[i]);
}
