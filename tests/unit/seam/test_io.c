/* io over io_uring: every operation once, a full submission queue, an overflowing completion queue,
 * cancellation at each stage, buffers that run out. One thread, sockets of its own. */

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "seam/io/io.h"
#include "testing/test.h"

struct seen {
    struct io_op op; /* first: the callback casts */
    int32_t res[64];
    uint32_t flags[64], buffer[64], n;
};

static void note(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct seen *s = (struct seen *)op;

    assert_true(s->n < 64);
    s->res[s->n] = res;
    s->flags[s->n] = flags;
    s->buffer[s->n++] = buffer;
}

static uint32_t fault_sq_full;

/* The case's io, and a pair of sockets if it wants one; its teardown closes them. */
static struct io *io;
static int fd[2] = {-1, -1};

FIXTURE(close_all)
{
    close(fd[0]);
    close(fd[1]);
    fd[0] = fd[1] = -1;
    io_destroy(io);
    io = NULL;
    return 0;
}

TEST_EACH(NULL, close_all);

static void open_io(uint32_t entries, uint32_t buffers, uint32_t buffer_bytes)
{
    struct io_config c = {.entries = entries,
                          .groups = 2,
                          .buffers = buffers,
                          .buffer_bytes = buffer_bytes,
                          .fault_sq_full = fault_sq_full};
    const char *why = "";

    if (io_create(&c, &io, &why) != TERN_OK)
        fail_msg("%s", why);
}

/* Runs until *n reaches `until`, 30 s at most. */
static void run_until(const uint32_t *n, uint32_t until)
{
    uint64_t deadline = io_now_ns() + 30000000000u;

    while (*n < until) {
        assert_true(io_now_ns() < deadline);
        io_run(io, deadline);
    }
}

/* The n-th completion of `s` has this result. */
static void completes(struct seen *s, uint32_t n, int32_t res)
{
    run_until(&s->n, n);
    assert_int_equal(s->res[n - 1], res);
}

static void open_pair(void)
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
}

TEST(io_run_returns_at_its_deadline)
{
    uint64_t from = io_now_ns();

    open_io(8, 0, 0);
    assert_int_equal(io_run(io, 0), 0);
    assert_true(io_now_ns() - from < 10000000000u);
    assert_int_equal(io_run(io, io_now_ns() + 20000000u), 0);
    assert_true(io_now_ns() - from >= 20000000u);
    assert_int_equal(io_run(io, 1), 0); /* long past */
}

TEST(io_connect_accept_send_recv_work)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof addr;
    int lfd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), c[3];
    struct seen acc = {.op.done = note}, con = {.op.done = note}, s = {.op.done = note},
                r = {.op.done = note};
    char in[8] = {0};

    open_io(8, 0, 0);
    assert_int_equal(bind(lfd, (struct sockaddr *)&addr, len), 0);
    assert_int_equal(listen(lfd, 8), 0);
    assert_int_equal(getsockname(lfd, (struct sockaddr *)&addr, &len), 0);
    for (uint32_t i = 0; i < 3; i++) {
        io_accept(io, &acc.op, lfd);
        c[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        io_connect(io, &con.op, c[i], (struct sockaddr *)&addr, len);
        run_until(&con.n, i + 1);
        run_until(&acc.n, i + 1);
        assert_int_equal(con.res[i], 0);
        assert_true(acc.res[i] > 0);
        assert_int_equal(acc.flags[i], IO_LAST);
    }
    io_recv(io, &r.op, acc.res[1], in, 6, true);
    io_send(io, &s.op, c[1], "abc", 3, true);
    run_until(&s.n, 1);
    io_run(io, 0);
    assert_int_equal(r.n, 0); /* waits for all six */
    io_send(io, &s.op, c[1], "def", 3, true);
    completes(&r, 1, 6);
    assert_int_equal(r.flags[0], IO_LAST);
    assert_memory_equal(in, "abcdef", 6);
    io_accept(io, &acc.op, lfd);
    io_cancel(io, &acc.op);
    completes(&acc, 4, -ECANCELED);
    assert_int_equal(acc.flags[3], IO_LAST);
    for (int i = 0; i < 3; i++) {
        close(c[i]);
        close(acc.res[i]);
    }
    close(lfd);
}

TEST(io_sendmsg_and_recvmsg_scatter_and_gather)
{
    struct seen s = {.op.done = note}, r = {.op.done = note};
    char a[4] = {0}, b[8] = {0};
    struct iovec out[2] = {{"hello ", 6}, {"world", 5}}, in[2] = {{a, 4}, {b, 7}};
    struct msghdr mo = {.msg_iov = out, .msg_iovlen = 2},
                  mi = {.msg_iov = in, .msg_iovlen = 2, .msg_flags = MSG_WAITALL};

    open_io(8, 0, 0);
    open_pair();
    io_recvmsg(io, &r.op, fd[0], &mi);
    io_sendmsg(io, &s.op, fd[1], &mo);
    completes(&r, 1, 11);
    assert_memory_equal(a, "hell", 4);
    assert_memory_equal(b, "o world", 7);
}

/* One receive fills one buffer; a group that is used up leaves the other group's buffers. */
TEST(io_recv_brings_a_buffer_until_the_group_has_none_left)
{
    struct seen r = {.op.done = note}, other = {.op.done = note};
    struct io_client plain = {0};
    struct io_stats stats;

    open_io(8, 4, 16);
    open_pair();
    for (uint32_t i = 0; i < 4; i++) {
        io_recv_buffers(io, &r.op, &plain, fd[0], 1);
        io_run(io, 0);
        assert_int_equal(r.n, i);
        assert_int_equal(write(fd[1], &"0123"[i], 1), 1);
        completes(&r, i + 1, 1);
        assert_int_equal(r.flags[i], IO_BUFFER | IO_LAST);
        assert_int_equal(*(const char *)io_buffer(io, r.buffer[i]), '0' + (char)i);
    }
    assert_int_equal(write(fd[1], "45", 2), 2);
    io_recv_buffers(io, &r.op, &plain, fd[0], 1);
    completes(&r, 5, -ENOBUFS);
    assert_int_equal(r.flags[4], IO_LAST);
    io_recv_buffers(io, &other.op, &plain, fd[0], 0);
    completes(&other, 1, 2); /* nothing was lost */
    assert_memory_equal(io_buffer(io, other.buffer[0]), "45", 2);
    io_buffer_put(io, r.buffer[2]);
    io_recv_buffers(io, &r.op, &plain, fd[0], 1);
    assert_int_equal(write(fd[1], "6", 1), 1);
    completes(&r, 6, 1);
    assert_int_equal(r.buffer[5], r.buffer[2]);
    assert_int_equal(*(const char *)io_buffer(io, r.buffer[5]), '6');
    io_recv_buffers(io, &other.op, &plain, fd[0], 0);
    close(fd[1]);
    completes(&other, 2, 0);
    io_stats(io, &stats);
    assert_int_equal(stats.buffers_empty, 1);
}

TEST(io_poll_reports_an_eventfd)
{
    struct seen p = {.op.done = note};
    int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    uint64_t v = 1;

    open_io(8, 0, 0);
    io_poll_in(io, &p.op, event, true);
    io_run(io, 0);
    for (uint32_t i = 1; i < 5; i++) {
        assert_int_equal(write(event, &v, sizeof v), sizeof v);
        run_until(&p.n, i);
        assert_int_equal(p.flags[i - 1], 0);
        assert_int_equal(read(event, &v, sizeof v), sizeof v);
    }
    close(event);
}

/* Threads that the kernel has made for rings of this process. */
static uint32_t kernel_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    uint32_t n = 0;

    for (struct dirent *e; (e = readdir(tasks)) != NULL;) {
        char path[PATH_MAX], name[32] = "";
        FILE *f;

        snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
        f = fopen(path, "r");
        if (f && fgets(name, sizeof name, f))
            n += strncmp(name, "iou-wrk", 7) == 0;
        if (f)
            fclose(f);
    }
    closedir(tasks);
    return n;
}

/* Such a thread reads data that has arrived already, and the caller does not. */
TEST(io_aside_reads_on_a_thread_of_the_kernel)
{
    struct seen r = {.op = {.done = note, .aside = true}};
    char bytes[4];
    int pair[2];

    open_io(8, 0, 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_int_equal(write(pair[1], "abcdef", 6), 6);
    assert_int_equal(kernel_threads(), 0);
    io_recv(io, &r.op, pair[0], bytes, sizeof bytes, false);
    run_until(&r.n, 1);
    assert_int_equal(r.res[0], 4);
    assert_memory_equal(bytes, "abcd", 4);
    assert_int_not_equal(kernel_threads(), 0);
    close(pair[0]);
    close(pair[1]);
}

/* Fault 13: a queue of 4, 500 operations at once, each completes exactly once. */
static uint32_t total;

static void count(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct seen *s = (struct seen *)op;

    (void)buffer;
    assert_int_equal(flags, IO_LAST);
    s->res[0] = res;
    s->n++;
    total++;
}

static void full_queues_lose_nothing(uint32_t every)
{
    static struct seen s[500], r[500];
    static char in[500], out[500];
    struct io_stats stats;

    fault_sq_full = every;
    open_io(4, 0, 0);
    memset(s, 0, sizeof s);
    memset(r, 0, sizeof r);
    total = 0;
    open_pair();
    for (int i = 0; i < 500; i++) {
        s[i].op.done = r[i].op.done = count;
        out[i] = (char)i;
        io_recv(io, &r[i].op, fd[0], &in[i], 1, false);
    }
    for (int i = 0; i < 500; i++)
        io_send(io, &s[i].op, fd[1], &out[i], 1, false);
    run_until(&total, 1000);
    assert_int_equal(io_run(io, io_now_ns() + 5000000u), 0);
    for (int i = 0; i < 500; i++) {
        assert_int_equal(s[i].n, 1);
        assert_int_equal(r[i].n, 1);
        assert_int_equal(s[i].res[0], 1);
        assert_int_equal(r[i].res[0], 1);
    }
    io_stats(io, &stats);
    assert_int_equal(stats.completions, 1000);
    assert_true(every != 0 || stats.cq_overflows > 0);
    assert_true(every == 0 || stats.sq_waits > 0);
    printf("fault=13 runs=1 injected=%u violations=0 lost_cqe=0\n",
           (unsigned)(stats.cq_overflows + stats.sq_waits));
    fault_sq_full = 0;
    close_all(NULL);
}

TEST(io_fault_13_full_queues_lose_nothing)
{
    full_queues_lose_nothing(0);
    full_queues_lose_nothing(2); /* 1 would never let anything through */
    full_queues_lose_nothing(3);
    full_queues_lose_nothing(50);
}

/* Cancels of operations that are in the ring, of ones that wait for room, and of ones that complete
 * at the same time: always exactly one final completion. */
static void cancel_at_any_stage(uint32_t every)
{
    static struct seen r[300];
    static char in[300];
    uint32_t cancelled = 0;

    fault_sq_full = every;
    open_io(4, 0, 0);
    memset(r, 0, sizeof r);
    total = 0;
    open_pair();
    for (int i = 0; i < 300; i++) {
        r[i].op.done = count;
        io_recv(io, &r[i].op, fd[0], &in[i], 1, false);
        if (i % 3 == 0)
            io_cancel(io, &r[i].op);
        if (i % 7 == 0)
            assert_int_equal(write(fd[1], "x", 1), 1);
    }
    io_run(io, 0);
    for (int i = 0; i < 300; i++) {
        io_cancel(io, &r[i].op);
        io_cancel(io, &r[i].op); /* a second changes nothing */
    }
    run_until(&total, 300);
    assert_int_equal(io_run(io, io_now_ns() + 5000000u), 0);
    for (int i = 0; i < 300; i++) {
        assert_int_equal(r[i].n, 1);
        assert_true(r[i].res[0] == 1 || r[i].res[0] == -ECANCELED);
        cancelled += r[i].res[0] == -ECANCELED;
    }
    assert_true(cancelled >= 200 && cancelled < 300);
    fault_sq_full = 0;
    close_all(NULL);
}

TEST(io_cancel_at_any_stage_completes_once)
{
    cancel_at_any_stage(0);
    cancel_at_any_stage(2);
    cancel_at_any_stage(3);
    cancel_at_any_stage(50);
}

/* xfer's stop depends on this: a cancelled receive with some bytes returns their number. */
TEST(io_cancelled_receive_says_how_much_it_took)
{
    struct seen r = {.op.done = note};
    char in[64] = {0}, rest[64] = {0};

    open_io(8, 0, 0);
    open_pair();
    io_recv(io, &r.op, fd[0], in, sizeof in, true);
    io_run(io, 0);
    assert_int_equal(write(fd[1], "0123456789", 10), 10);
    io_run(io, 0);
    io_cancel(io, &r.op);
    completes(&r, 1, 10);
    assert_memory_equal(in, "0123456789", 10);
    assert_int_equal(write(fd[1], "abc", 3), 3);
    assert_int_equal(recv(fd[0], rest, sizeof rest, 0), 3);
    assert_memory_equal(rest, "abc", 3);
}

TEST(io_signals_are_not_seen)
{
    struct seen r = {.op.done = note};
    char in[4];
    pid_t self = getpid(), child;

    open_io(8, 0, 0);
    open_pair();
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        for (int i = 0; i < 50; i++) {
            kill(self, SIGWINCH); /* interrupts the wait, has no handler to run */
            usleep(1000);
        }
        _exit(write(fd[1], "done", 4) == 4 ? 0 : 1);
    }
    io_recv(io, &r.op, fd[0], in, 4, true);
    completes(&r, 1, 4);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

TEST(io_create_refuses_bad_limits_and_says_why)
{
    struct io_config c = {.entries = 0};
    const char *why = NULL;
    struct rlimit old, none;

    assert_int_equal(io_create(&c, &io, &why), TERN_INVALID);
    c = (struct io_config){.entries = 8, .groups = 1, .buffers = 3, .buffer_bytes = 16};
    assert_int_equal(io_create(&c, &io, &why), TERN_INVALID);
    c = (struct io_config){.entries = 8};
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    none = old;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(io_create(&c, &io, &why), TERN_INTERNAL);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_non_null(strstr(why, "RLIMIT_NOFILE"));
    assert_null(io);
}

/* A single poll waits for its event, reports it once, and is over. */
TEST(io_poll_once_waits_and_reports_once)
{
    struct seen p = {.op.done = note};
    int event = eventfd(0, EFD_CLOEXEC);
    uint64_t v = 1;

    open_io(8, 0, 0);
    io_poll_in(io, &p.op, event, false);
    for (uint32_t i = 0; i < 3; i++)
        io_run(io, io_now_ns() + 1000000u);
    assert_int_equal(p.n, 0);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(write(event, &v, sizeof v), sizeof v);
        run_until(&p.n, 1);
        io_run(io, 0);
    }
    assert_int_equal(p.n, 1);
    assert_int_equal(p.flags[0], IO_LAST);
    assert_true(p.res[0] > 0);
    close(event);
}
