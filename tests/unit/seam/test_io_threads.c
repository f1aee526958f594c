/* Data threads: who runs what, a receive that continues piece by piece, cancels at any moment, and
 * an end that leaves no thread behind. The interleavings are random; the assertions hold in all. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "seam/io/io_threads.h"
#include "testing/test.h"

#define PAIRS       8u
#define PIECE_BYTES 1000u
#define ROUNDS      300u

static struct io *io;
static struct io_threads *threads;
static struct pair {
    struct io_task receive; /* first: the callbacks cast */
    struct iovec iov;
    int fd[2];
    uint8_t bytes[4 * PIECE_BYTES];
    uint32_t pieces, back;
    int32_t res;
    bool on_owner;   /* the owner did some of the work */
    char name[16];   /* of the thread that worked */
    uint32_t wanted; /* pieces */
} pair[PAIRS];
static pthread_t owner;

static bool piece_came(struct io_task *task, int32_t res)
{
    struct pair *p = (struct pair *)task;

    p->on_owner = p->on_owner || pthread_equal(pthread_self(), owner);
    pthread_getname_np(pthread_self(), p->name, sizeof p->name);
    if (res > 0)
        p->iov.iov_base = (uint8_t *)p->iov.iov_base + res;
    return ++p->pieces < p->wanted;
}

static void came_back(struct io_task *task, int32_t res)
{
    struct pair *p = (struct pair *)task;

    assert_true(pthread_equal(pthread_self(), owner));
    p->back++;
    p->res = res;
}

static void receive(struct pair *p, uint32_t pieces)
{
    p->iov = (struct iovec){p->bytes, PIECE_BYTES};
    p->wanted = pieces;
    p->pieces = 0;
    p->receive.work = piece_came;
    p->receive.done = came_back;
    p->receive.msg = (struct msghdr){.msg_iov = &p->iov, .msg_iovlen = 1};
    p->receive.msg.msg_flags = MSG_WAITALL;
    io_threads_submit(threads, &p->receive, IO_TASK_RECEIVE, (uint32_t)(p - pair), p->fd[0]);
}

static void until_back(const struct pair *p, uint32_t times)
{
    uint64_t deadline = io_now_ns() + 30000000000u;

    while (p->back < times) {
        assert_true(io_now_ns() < deadline);
        io_run(io, deadline);
    }
    assert_int_equal(p->back, times);
}

static void open_threads(uint32_t n)
{
    struct io_config ring = {.entries = 64};
    struct io_threads_config config = {.threads = n, .tasks = PAIRS, .name = "tern-data"};
    const char *why = "";

    memset(pair, 0, sizeof pair);
    owner = pthread_self();
    assert_int_equal(io_create(&ring, &io, &why), TERN_OK);
    config.io = io;
    assert_int_equal(io_threads_create(&config, &threads, &why), TERN_OK);
    for (uint32_t i = 0; i < PAIRS; i++)
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair[i].fd), 0);
}

FIXTURE(close_all)
{
    io_threads_destroy(threads);
    threads = NULL;
    io_destroy(io);
    io = NULL;
    for (uint32_t i = 0; i < PAIRS; i++) {
        close(pair[i].fd[0]);
        close(pair[i].fd[1]);
    }
    return 0;
}

TEST_EACH(NULL, close_all);

/* The owner is informed once, when all pieces have arrived, and did none of the work. */
TEST(io_threads_receive_in_pieces_off_the_owner)
{
    uint8_t bytes[3 * PIECE_BYTES];

    open_threads(2);
    for (uint32_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 7);
    receive(&pair[0], 3);
    assert_int_equal(write(pair[0].fd[1], bytes, sizeof bytes), sizeof bytes);
    until_back(&pair[0], 1);
    assert_int_equal(pair[0].pieces, 3);
    assert_int_equal(pair[0].res, PIECE_BYTES);
    assert_memory_equal(pair[0].bytes, bytes, sizeof bytes);
    assert_false(pair[0].on_owner);
    assert_string_equal(pair[0].name, "tern-data");
}

/* In a program that has closed its input, the owner's event descriptor is 0. */
TEST(io_threads_are_told_by_whatever_descriptor_there_is)
{
    struct io_threads_config config = {.threads = 1, .tasks = PAIRS, .name = "tern-data"};
    const char *why;
    int input;

    open_threads(1);
    io_threads_destroy(threads);
    threads = NULL;
    config.io = io;
    input = dup(STDIN_FILENO);
    close(STDIN_FILENO);
    assert_int_equal(io_threads_create(&config, &threads, &why), TERN_OK);
    receive(&pair[0], 1);
    assert_int_equal(write(pair[0].fd[1], pair[1].bytes, PIECE_BYTES), PIECE_BYTES);
    until_back(&pair[0], 1);
    io_threads_destroy(threads);
    threads = NULL;
    assert_int_equal(dup2(input, STDIN_FILENO), STDIN_FILENO);
    close(input);
}

/* A cancelled task returns, once, and then writes nothing more. */
TEST(io_threads_cancel_brings_a_task_back)
{
    open_threads(1);
    receive(&pair[0], 2);
    io_threads_cancel(&pair[0].receive);
    io_threads_cancel(&pair[0].receive);
    until_back(&pair[0], 1);
    assert_int_equal(pair[0].res, -ECANCELED);
    io_threads_cancel(&pair[0].receive); /* it has returned already */
    assert_int_equal(write(pair[0].fd[1], "x", 1), 1);
    for (int i = 0; i < 100; i++)
        io_run(io, 0);
    assert_int_equal(pair[0].back, 1);
    assert_int_equal(pair[0].bytes[0], 0);
}

/* Cancels before, beside and behind the bytes, and a cancel that is left over when the task is
 * handed over again: each hand-over has one return. */
TEST(io_threads_each_task_comes_back_once_whatever_is_cancelled)
{
    static const uint8_t bytes[2 * PIECE_BYTES];
    uint32_t cancelled = 0, whole = 0;

    open_threads(3);
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        for (uint32_t i = 0; i < PAIRS; i++)
            receive(&pair[i], 2);
        for (uint32_t i = 0; i < PAIRS; i++) {
            if ((round + i) % 3 != 0)
                assert_true(write(pair[i].fd[1], bytes, sizeof bytes) == sizeof bytes);
            if ((round + i) % 3 != 1)
                io_threads_cancel(&pair[i].receive);
        }
        for (uint32_t i = 0; i < PAIRS; i++) {
            uint8_t rest[sizeof bytes];

            until_back(&pair[i], round);
            cancelled += pair[i].res == -ECANCELED;
            whole += pair[i].pieces == 2;
            while (recv(pair[i].fd[0], rest, sizeof rest, MSG_DONTWAIT) > 0)
                ;
        }
    }
    assert_true(cancelled >= ROUNDS * PAIRS / 3);
    assert_true(whole >= ROUNDS * PAIRS / 3);
}

static sem_t begun, go_on;

static bool block(struct io_task *task, int32_t res)
{
    (void)task, (void)res;
    sem_post(&begun);
    while (sem_wait(&go_on) != 0)
        ;
    return false;
}

/* While the thread is busy, a piece arrives and the task is cancelled, so the thread finds both:
 * the cancel has no receive to cancel, and the task must not continue with the next piece. */
TEST(io_threads_cancel_holds_beside_a_piece_that_has_come)
{
    static const uint8_t bytes[PIECE_BYTES];
    struct pair busy = {.receive = {.work = block, .done = came_back}};

    open_threads(1);
    assert_int_equal(sem_init(&begun, 0, 0) | sem_init(&go_on, 0, 0), 0);
    receive(&pair[0], 2);
    io_threads_submit(threads, &busy.receive, IO_TASK_WORK, 0, -1);
    while (sem_wait(&begun) != 0)
        ;
    assert_int_equal(write(pair[0].fd[1], bytes, sizeof bytes), sizeof bytes);
    io_threads_cancel(&pair[0].receive);
    sem_post(&go_on);
    until_back(&pair[0], 1);
    until_back(&busy, 1);
}

/* Also checks the figures for operators. */
TEST(io_threads_plain_work_is_counted_until_it_is_back)
{
    struct io_threads_stats stats;

    open_threads(2);
    for (uint32_t i = 0; i < PAIRS; i++) {
        pair[i].receive.work = piece_came;
        pair[i].receive.done = came_back;
        io_threads_submit(threads, &pair[i].receive, IO_TASK_WORK, i, -1);
    }
    io_threads_stats(threads, &stats);
    assert_int_equal(stats.threads, 2);
    assert_int_equal(stats.away, PAIRS);
    assert_int_equal(stats.done, 0);
    for (uint32_t i = 0; i < PAIRS; i++) {
        until_back(&pair[i], 1);
        assert_int_equal(pair[i].pieces, 1);
        assert_false(pair[i].on_owner);
    }
    io_threads_stats(threads, &stats);
    assert_int_equal(stats.away, 0);
    assert_int_equal(stats.done, PAIRS);
}

TEST(io_threads_end_leaves_what_is_away_and_waits_for_what_comes)
{
    open_threads(1);
    receive(&pair[0], 1);
    assert_false(io_threads_end(threads, io_now_ns()));
    assert_int_equal(pair[0].back, 0);
    io_threads_cancel(&pair[0].receive);
    assert_true(io_threads_end(threads, UINT64_MAX));
    threads = NULL;
    assert_int_equal(pair[0].back, 1);
}
