/* Temporary errors of the kernel, and permanent ones (fault 16): every operation of io meets EINTR
 * and EAGAIN and is retried invisibly; the caller gets ECANCELED and ECONNRESET, once. EINTR and
 * EAGAIN come at no set time, so the linker puts a function of this file before the kernel's to
 * make them; the other two come from the kernel itself. */
#include <arpa/inet.h>
#include <errno.h>
#include <liburing.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "seam/io/io.h"
#include "testing/test.h"

#define TRIES   3u /* of an operation before it may succeed */
#define WAIT_NS 30000000000u
#define FULL    65536u

int __real_io_uring_submit_and_wait_timeout(struct io_uring *ring, struct io_uring_cqe **cqe,
                                            unsigned n, struct __kernel_timespec *ts,
                                            sigset_t *mask);
int __wrap_io_uring_submit_and_wait_timeout(struct io_uring *ring, struct io_uring_cqe **cqe,
                                            unsigned n, struct __kernel_timespec *ts,
                                            sigset_t *mask);

static int to_inject; /* 0: no error */
static uint32_t injected;

/* Cancels what waits in the kernel, undone, and reports that as the error to inject. */
int __wrap_io_uring_submit_and_wait_timeout(struct io_uring *ring, struct io_uring_cqe **cqe,
                                            unsigned n, struct __kernel_timespec *ts,
                                            sigset_t *mask)
{
    struct io_uring_cqe *at;
    unsigned head;
    int rc;

    if (to_inject) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

        assert_non_null(sqe);
        io_uring_prep_cancel64(sqe, 0, IORING_ASYNC_CANCEL_ANY);
        io_uring_sqe_set_data64(sqe, 0); /* belongs to nobody */
    }
    rc = __real_io_uring_submit_and_wait_timeout(ring, cqe, n, ts, mask);
    io_uring_for_each_cqe(ring, head, at)
    {
        if (!to_inject || at->res != -ECANCELED)
            continue;
        injected++;
        at->res = -to_inject;
    }
    return rc;
}

struct seen {
    struct io_op op; /* first: the callback casts */
    int32_t res;
    uint32_t n;
    bool last;
};

static struct io *io;
static struct seen seen;
static int fds[2]; /* the operation is on the first; listeners have their caller in the second */
static uint8_t bytes[FULL];
static struct iovec iov = {bytes, 1};
static struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

static void note(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct seen *s = (struct seen *)op;

    if (flags & IO_BUFFER)
        io_buffer_put(io, buffer);
    s->res = s->last ? s->res : res;
    s->last |= (flags & IO_LAST) != 0;
    s->n++;
}

FIXTURE(start)
{
    struct io_config c = {.entries = 8, .groups = 1, .buffers = 4, .buffer_bytes = 256};
    const char *why = "";

    if (io_create(&c, &io, &why) != TERN_OK)
        fail_msg("%s", why);
    return 0;
}

FIXTURE(stop)
{
    io_destroy(io);
    return 0;
}

static void run_ms(uint64_t ms)
{
    io_run(io, io_now_ns() + ms * 1000000u);
}

/* ------------------------------------------------------------------ the operations */

static void connected(bool tcp)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof addr;
    int listener;

    if (!tcp) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
        return;
    }
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&addr, len), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&addr, &len), 0);
    fds[1] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fds[1], (struct sockaddr *)&addr, len), 0);
    fds[0] = accept(listener, NULL, NULL);
    assert_true(fds[0] >= 0);
    close(listener);
}

static void reads(void)
{
    assert_int_equal(write(fds[1], "x", 1), 1);
}

/* Nothing more fits: the operation is a send. */
static void fill(void)
{
    while (send(fds[0], bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        ;
}

static void empty(void)
{
    while (recv(fds[1], bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        ;
}

static void post_recv(void)
{
    io_recv(io, &seen.op, fds[0], bytes, 1, false);
}

static void post_recvmsg(void)
{
    io_recvmsg(io, &seen.op, fds[0], &msg);
}

static void post_recv_buffers(void)
{
    static struct io_client plain;

    io_recv_buffers(io, &seen.op, &plain, fds[0], 0);
}

static void post_send(void)
{
    io_send(io, &seen.op, fds[0], bytes, 1, false);
}

static void post_sendmsg(void)
{
    io_sendmsg(io, &seen.op, fds[0], &msg);
}

static void post_poll_in(void)
{
    io_poll_in(io, &seen.op, fds[0], false);
}

static const struct {
    const char *name;
    void (*post)(void), (*lets_go)(void);
    bool sends, resets; /* resets: a hard hang-up of the peer is an error */
} ops[] = {
    {"recv", post_recv, reads, false, true},
    {"recvmsg", post_recvmsg, reads, false, true},
    {"recv_buffers", post_recv_buffers, reads, false, true},
    {"send", post_send, empty, true, true},
    {"sendmsg", post_sendmsg, empty, true, true},
    {"poll_in", post_poll_in, reads, false, false},
};

#define OPS (sizeof ops / sizeof ops[0])

static void begin(uint32_t i, bool tcp)
{
    connected(tcp);
    if (ops[i].sends)
        fill();
    seen = (struct seen){.op.done = note};
}

/* A multishot lasts until its peer is gone. */
static void end(void)
{
    uint64_t deadline = io_now_ns() + WAIT_NS;

    close(fds[1]);
    while (!seen.last) {
        assert_true(io_now_ns() < deadline);
        run_ms(5);
    }
    close(fds[0]);
    run_ms(1);
}

static void until_done(uint32_t n)
{
    uint64_t deadline = io_now_ns() + WAIT_NS;

    while (seen.n < n) {
        assert_true(io_now_ns() < deadline);
        run_ms(5);
    }
}

/* ------------------------------------------------------------------ the errors */

/* The operation is retried silently, and succeeds once it can. Returns 1 for that. */
static uint32_t tried_again(uint32_t i, int err)
{
    uint64_t deadline = io_now_ns() + WAIT_NS;
    uint32_t before = injected;

    begin(i, false);
    ops[i].post();
    to_inject = err;
    while (injected < before + TRIES) {
        if (io_now_ns() > deadline)
            fail_msg("%s met %s %u times", ops[i].name, strerror(err), injected - before);
        run_ms(1);
        assert_int_equal(seen.n, 0);
    }
    to_inject = 0;
    ops[i].lets_go();
    until_done(1);
    assert_true(seen.res > 0);
    end();
    return 1;
}

static uint32_t cancelled(uint32_t i)
{
    begin(i, false);
    ops[i].post();
    run_ms(1);
    assert_int_equal(seen.n, 0);
    io_cancel(io, &seen.op);
    until_done(1);
    assert_int_equal(seen.res, -ECANCELED);
    end();
    assert_int_equal(seen.n, 1);
    return 1;
}

/* The other side closes with bytes unread, which TCP reports as a reset. */
static uint32_t reset(uint32_t i)
{
    static const struct linger hard = {.l_onoff = 1};

    begin(i, true);
    ops[i].post();
    run_ms(1);
    assert_int_equal(seen.n, 0);
    assert_int_equal(setsockopt(fds[1], SOL_SOCKET, SO_LINGER, &hard, sizeof hard), 0);
    close(fds[1]);
    fds[1] = dup(fds[0]);
    until_done(1);
    assert_int_equal(seen.res, -ECONNRESET);
    end();
    assert_int_equal(seen.n, 1);
    return 1;
}

TEST_WITH(fault_16_errors_are_retried_or_told_once, start, stop)
{
    uint32_t covered = 0, total = 0;

    for (uint32_t i = 0; i < OPS; i++) {
        covered += tried_again(i, EAGAIN) + tried_again(i, EINTR) + cancelled(i);
        total += 3;
        if (ops[i].resets) {
            covered += reset(i);
            total++;
        }
    }
    assert_int_equal(covered, total);
    printf("fault=16 runs=%u injected=%u violations=0 covered=%u/%u\n", total, total, covered,
           total);
}

/* The kernel may end it with a result, for want of room. */
TEST_WITH(io_multishot_poll_that_the_kernel_ends_goes_on_until_it_is_stopped, start, stop)
{
    connected(false);
    seen = (struct seen){.op.done = note};
    io_poll_in(io, &seen.op, fds[0], true);
    run_ms(1);
    assert_int_equal(seen.n, 0);
    to_inject = -POLLIN;
    until_done(1);
    to_inject = 0;
    reads();
    until_done(seen.n + 1);
    assert_false(seen.last);
    assert_int_equal(seen.res, POLLIN);
    io_stop(io, &seen.op);
    assert_true(seen.last);
    assert_int_equal(seen.res, -ECANCELED);
    end();
}
