/* P7: descriptors that a client sends: the daemon never receives them, and a thread closes the
 * socket, where even a lingering TCP socket does not wait long. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "seam/io/client_fds.h"
#include "seam/io/closer.h"
#include "seam/io/door.h"
#include "testing/test.h"

#define BUFFER_BYTES 16
#define SOCKETS      24
#define LINGER_S     600
#define LATE_NS      60000000000u

static struct io *io;
static struct closer *closer;
static int fd[2]; /* the daemon's end, and the client's */
static struct io_client client;
static struct io_op op;
static int32_t res;
static uint32_t completions, flags, buffer, closed;

static void note(struct io_op *o, int32_t r, uint32_t f, uint32_t b)
{
    (void)o;
    res = r;
    flags = f;
    buffer = b;
    completions++;
}

static void on_closed(void *ctx)
{
    (void)ctx;
    closed++;
}

static void run_until(const uint32_t *n, uint32_t until)
{
    uint64_t deadline = io_now_ns() + LATE_NS;

    while (*n < until) {
        assert_true(io_now_ns() < deadline);
        io_run(io, deadline);
    }
}

FIXTURE(set_up)
{
    struct io_config ring = {
        .entries = 16, .groups = 1, .buffers = 4, .buffer_bytes = BUFFER_BYTES};
    struct closer_config config = {.lanes = 2, .sockets = SOCKETS, .lane_sockets = SOCKETS};
    const char *why = "";

    completions = closed = 0;
    memset(&op, 0, sizeof op);
    op.done = note;
    assert_int_equal(io_create(&ring, &io, &why), TERN_OK);
    config.io = io;
    assert_int_equal(closer_create(&config, &closer, &why), TERN_OK);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
    assert_true(client_fds_may_come(fd[0]));
    io_client_init(&client, fd[0]);
    assert_true(client.look);
    return 0;
}

FIXTURE(tear_down)
{
    closer_end(closer);
    closer_destroy(closer);
    io_destroy(io);
    close(fd[0]);
    close(fd[1]);
    return 0;
}

static void send_with(int sock, const char *bytes, int sent, int how)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof sent)] = {0};
    struct iovec iov = {(char *)(uintptr_t)bytes, strlen(bytes)};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *c = (struct cmsghdr *)(void *)control;

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof sent);
    memcpy(CMSG_DATA(c), &sent, sizeof sent);
    assert_int_equal(sendmsg(sock, &msg, how), (ssize_t)iov.iov_len);
}

/* Number of descriptors beside the next bytes of the daemon's end, which must be `bytes`. */
static uint32_t lie_beside(const char *bytes)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
    char in[BUFFER_BYTES];
    struct iovec iov = {in, sizeof in};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t n = recvmsg(fd[0], &msg, MSG_DONTWAIT);
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    int got;

    assert_int_equal(n, (ssize_t)strlen(bytes));
    assert_memory_equal(in, bytes, strlen(bytes));
    if (!c)
        return 0;
    memcpy(&got, CMSG_DATA(c), sizeof got);
    setsockopt(got, SOL_SOCKET, SO_LINGER, &(struct linger){0}, sizeof(struct linger));
    close(got); /* it would linger here, in the test */
    return 1;
}

static void receives(int32_t n, const char *bytes)
{
    uint32_t before = completions;

    io_recv_buffers(io, &op, &client, fd[0], 0);
    run_until(&completions, before + 1);
    assert_int_equal(res, n);
    if (n > 0)
        assert_memory_equal(io_buffer(io, buffer), bytes, (size_t)n);
    if (flags & IO_BUFFER)
        io_buffer_put(io, buffer);
}

/* Bytes alone are received as they come, a buffer at a time, and the end is reported. */
TEST_WITH(client_bytes_alone_are_received, set_up, tear_down)
{
    assert_int_equal(write(fd[1], "first", 5), 5);
    receives(5, "first");
    assert_int_equal(write(fd[1], "0123456789abcdefrest", 20), 20);
    receives(BUFFER_BYTES, "0123456789abcdef");
    receives(4, "rest");
    shutdown(fd[1], SHUT_WR);
    receives(0, "");
}

/* Neither the message nor those before it in the same look are received: they stay with their
 * descriptor. */
TEST_WITH(client_descriptors_are_told_and_left_where_they_are, set_up, tear_down)
{
    assert_int_equal(write(fd[1], "ab", 2), 2);
    send_with(fd[1], "cd", 0, 0);
    for (int i = 0; i < 3; i++)
        receives(-EBADMSG, "");
    assert_int_equal(lie_beside("abcd"), 1);
}

/* The bytes that a look saw are received, and none beyond. */
TEST_WITH(client_bytes_before_descriptors_are_taken_alone, set_up, tear_down)
{
    assert_int_equal(write(fd[1], "0123456789abcdefghi", 19), 19);
    receives(BUFFER_BYTES, "0123456789abcdef");
    send_with(fd[1], "x", 0, 0);
    receives(-EBADMSG, "");
    assert_int_equal(lie_beside("ghix"), 1);
}

/* An ordinary look skips an out-of-band byte, and reading it closes its descriptor. */
TEST_WITH(client_descriptors_out_of_band_are_told, set_up, tear_down)
{
    send_with(fd[1], "!", 0, MSG_OOB);
    assert_int_equal(write(fd[1], "more", 4), 4);
    receives(-EBADMSG, "");
    assert_int_equal(lie_beside("!"), 1);
    receives(4, "more");
    send_with(fd[1], "?", 0, MSG_OOB);
    assert_int_equal(send(fd[1], "!", 1, MSG_OOB), 1);
    receives(-EBADMSG, "");
    assert_int_equal(lie_beside("?"), 1);
    receives(1, "!");
}

/* If the kernel refuses descriptors, the daemon receives from the socket like from any other. A
 * thread still closes it, since the close wakes whoever waits on the other end. */
TEST_WITH(client_that_the_kernel_refuses_is_closed_by_a_thread_too, set_up, tear_down)
{
    char byte;

    if (!client_fds_refuse(fd[0]))
        skip();
    assert_false(client_fds_may_come(fd[0]));
    io_client_init(&client, fd[0]);
    assert_false(client.look);
    assert_false(closer_close(closer, 0, fd[0], on_closed, NULL));
    run_until(&closed, 1);
    assert_true(recv(fd[1], &byte, 1, MSG_DONTWAIT) == 0);
    fd[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_false(client_fds_may_come(fd[0]));
    assert_true(closer_close(closer, 0, fd[0], on_closed, NULL)); /* no client's */
    assert_int_equal(closed, 1);
    fd[0] = -1;
}

/* A TCP socket whose last close waits for LINGER_S. */
static int lingering(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct linger on = {1, LINGER_S};
    socklen_t len = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
        sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char bytes[4096] = "";

    assert_int_equal(bind(listener, (struct sockaddr *)&at, len), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &len), 0);
    assert_int_equal(connect(sock, (struct sockaddr *)&at, len), 0);
    assert_true(accept(listener, NULL, NULL) >= 0); /* and nobody reads */
    while (send(sock, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        ;
    assert_int_equal(setsockopt(sock, SOL_SOCKET, SO_LINGER, &on, sizeof on), 0);
    close(listener);
    return sock;
}

static void give(int sock, int n)
{
    while (n-- > 0) {
        int sent = lingering();

        send_with(sock, "x", sent, 0);
        close(sent);
    }
}

/* The owner continues at once, and one close ends the waits of all that it releases. */
TEST_WITH(closer_closes_what_lingers_in_little_time, set_up, tear_down)
{
    struct closer_stats stats;
    uint64_t from = io_now_ns();

    give(fd[1], 3);
    assert_false(closer_close(closer, 1, fd[0], on_closed, NULL));
    closer_stats(closer, &stats);
    assert_int_equal(stats.closing, 1);
    assert_int_equal(closed, 0);
    run_until(&closed, 1);
    assert_true(io_now_ns() - from < LATE_NS);
    closer_stats(closer, &stats);
    assert_int_equal(stats.closing, 0);
    assert_int_equal(stats.closed, 1);
    fd[0] = -1;
}

/* The exit of the process closes it, without a wait. */
TEST_WITH(closer_that_has_ended_closes_nothing_with_descriptors, set_up, tear_down)
{
    give(fd[1], 1);
    closer_end(closer);
    assert_true(closer_close(closer, 0, fd[0], on_closed, NULL));
    assert_int_equal(lie_beside("x"), 1);
    assert_int_equal(closed, 0);
}

/* ---- a door whose callers may send descriptors ---- */

static uint32_t freed;

static enum door_verdict look(void *ctx, const uint8_t *bytes, uint32_t n)
{
    (void)ctx, (void)bytes, (void)n;
    return DOOR_WAIT;
}

static void left(void *ctx)
{
    (void)ctx;
    freed++;
}

/* A caller that sent descriptors is dismissed by its first bytes, and its place is taken until it
 * is closed; no more arrive than there are places. */
TEST_WITH(door_place_is_taken_until_it_is_closed, set_up, tear_down)
{
    struct door_config config = {.io = io,
                                 .places = 2,
                                 .share = 2,
                                 .wait_ns = LATE_NS,
                                 .look_bytes = 8,
                                 .look = look,
                                 .left = left,
                                 .closer = closer};
    int pair[2], mine[2 + DOOR_LEAVING];
    uint32_t n = 0, full = 2 + DOOR_LEAVING;
    struct door *door;
    struct door_stats stats;

    freed = 0;
    assert_int_equal(door_create(&config, &door), TERN_OK);
    while (door_has_place(door)) {
        assert_true(n < full);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        send_with(pair[1], "x", 0, 0);
        mine[n++] = pair[1];
        if (n % 3)
            door_arrived(door, pair[0], 0);
        else
            door_turn_away(door, pair[0]);
    }
    assert_int_equal(n, full);
    door_stats(door, &stats);
    assert_int_equal(stats.waiting, 0);
    assert_int_equal(stats.brought, n - n / 3);
    assert_int_equal(stats.brought_by, getpid());
    assert_int_equal(freed, 0);
    run_until(&freed, full);
    assert_true(door_has_place(door));
    door_destroy(door);
    while (n > 0)
        close(mine[--n]);
}
