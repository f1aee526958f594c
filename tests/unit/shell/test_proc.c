/* Processes at the other end of a socket: an exit is reported once it is proven, and not before.
 * The test can make poll, which proves it, fail. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shell/conn/proc.h"
#include "testing/test.h"

#define WAIT_NS 20000000000u

int __real_poll(struct pollfd *fds, nfds_t n, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int ms);

static uint32_t failures; /* failures of the next calls */

int __wrap_poll(struct pollfd *fds, nfds_t n, int ms)
{
    if (failures == 0)
        return __real_poll(fds, n, ms);
    failures--;
    errno = EINTR;
    return -1;
}

struct rig {
    struct io *io;
    struct proc_table table;
    int listener, sock, hold; /* hold: closed, the child exits */
    pid_t child;
    uint32_t gone;
};

static void on_gone(void *ctx, uint32_t slot)
{
    struct rig *rig = ctx;

    assert_int_equal(slot, 0);
    rig->gone++;
}

static void child_run(const struct sockaddr_un *addr, socklen_t len, int hold)
{
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    char c;

    if (connect(fd, (const struct sockaddr *)addr, len) == 0)
        (void)!read(hold, &c, 1);
    _exit(0);
}

/* A child that is connected. */
static void rig_init(struct rig *rig)
{
    struct io_config config = {.entries = 16};
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    socklen_t len = sizeof addr;
    const char *why = "";
    int pipe_fd[2];

    *rig = (struct rig){.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    assert_int_equal(bind(rig->listener, (struct sockaddr *)&addr, sizeof addr.sun_family), 0);
    assert_int_equal(listen(rig->listener, 1), 0);
    assert_int_equal(getsockname(rig->listener, (struct sockaddr *)&addr, &len), 0);
    assert_int_equal(pipe(pipe_fd), 0);
    rig->child = fork();
    assert_true(rig->child >= 0);
    if (rig->child == 0) {
        close(pipe_fd[1]);
        child_run(&addr, len, pipe_fd[0]);
    }
    close(pipe_fd[0]);
    rig->hold = pipe_fd[1];
    rig->sock = accept(rig->listener, NULL, NULL);
    assert_true(rig->sock >= 0);
    assert_int_equal(io_create(&config, &rig->io, &why), TERN_OK);
    assert_int_equal(proc_table_init(&rig->table, rig->io, 2, on_gone, rig), TERN_OK);
}

static void rig_finish(struct rig *rig)
{
    failures = 0;
    io_destroy(rig->io);
    proc_table_finish(&rig->table);
    close(rig->sock);
    close(rig->listener);
}

static void child_end(struct rig *rig)
{
    int status;

    close(rig->hold);
    assert_int_equal(waitpid(rig->child, &status, 0), rig->child);
}

TEST(proc_exit_that_cannot_be_told_is_no_exit)
{
    uint64_t end = io_now_ns() + WAIT_NS;
    const char *why = "";
    uint32_t slot = 99;
    struct rig rig;

    rig_init(&rig);
    assert_int_equal(proc_take(&rig.table, rig.sock, 0, 2, &slot, &why), TERN_OK);
    assert_int_equal(slot, 0);
    assert_int_equal(proc_pid(&rig.table, slot), rig.child);
    child_end(&rig);
    failures = 2;
    while (failures > 0 && io_now_ns() < end) {
        assert_int_equal(rig.gone, 0);
        io_run(rig.io, end);
    }
    assert_int_equal(rig.gone, 0);
    while (!rig.gone && io_now_ns() < end)
        io_run(rig.io, end);
    assert_int_equal(rig.gone, 1);
    assert_int_equal(proc_pid(&rig.table, slot), 0);
    rig_finish(&rig);
}

TEST(proc_take_without_a_proof_of_life_is_refused)
{
    const char *why = "";
    uint32_t slot = 99;
    struct rig rig;

    rig_init(&rig);
    failures = 4;
    assert_int_equal(proc_take(&rig.table, rig.sock, 0, 2, &slot, &why), TERN_GONE);
    assert_int_equal(slot, 99);
    child_end(&rig);
    failures = 0;
    assert_int_equal(proc_take(&rig.table, rig.sock, 0, 2, &slot, &why), TERN_GONE);
    rig_finish(&rig);
}

/* A process counts until it has exited, with or without its connection; the processes of one tenant
 * do not reduce another's share. */
TEST(proc_of_a_tenant_beyond_its_share_is_refused)
{
    const char *why = "";
    uint32_t slot = 99;
    struct rig rig;

    rig_init(&rig);
    rig.table.v[1] = (struct proc){.state = PROC_WATCHED, .pid = 1, .tenant = 5};
    assert_int_equal(proc_take(&rig.table, rig.sock, 5, 1, &slot, &why), TERN_BUSY);
    assert_int_equal(slot, 99);
    assert_non_null(strstr(why, "conns_max"));
    assert_int_equal(proc_take(&rig.table, rig.sock, 4, 1, &slot, &why), TERN_OK);
    assert_int_equal(slot, 0);
    slot = 99;
    assert_int_equal(proc_take(&rig.table, rig.sock, 4, 1, &slot, &why), TERN_OK);
    assert_int_equal(slot, 0); /* it exists already */
    rig.table.v[1].state = PROC_FREE;
    child_end(&rig);
    rig_finish(&rig);
}
