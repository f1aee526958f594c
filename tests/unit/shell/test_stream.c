/* The deadlines of streams: one sweep closes all that are past theirs, whatever the end of one of
 * them does to the others. */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shell/stream/stream.h"
#include "testing/test.h"

#define STREAMS 3
#define WAIT_NS 5000000000u

struct side {
    struct stream s;    /* first: the callbacks cast */
    struct side *other; /* closed with this one; NULL: none */
    uint32_t closed, finished;
    const char *why;
};

static struct io *io;
static struct stream_pool *pool;
static struct side side[STREAMS];
static int far_end[STREAMS];

static void on_frame(struct stream *s, const struct frame_header *h, const uint8_t *body)
{
    (void)s, (void)h, (void)body;
    fail_msg("nobody sends");
}

static void on_closed(struct stream *s, const char *why)
{
    struct side *me = (struct side *)(void *)s;

    me->closed++;
    me->why = why;
    if (me->other)
        stream_close(&me->other->s, "with another one");
}

static void on_finished(struct stream *s)
{
    ((struct side *)(void *)s)->finished++;
}

static const struct stream_ops ops = {
    .frame = on_frame, .closed = on_closed, .finished = on_finished};

FIXTURE(set_up)
{
    struct io_config config = {.entries = 64, .buffers = 8, .buffer_bytes = 4096};
    struct stream_config streams = {.streams = STREAMS,
                                    .send_buffers_reserved = {4},
                                    .shares = 1,
                                    .big_bytes = 65536,
                                    .partial_ns = 1,
                                    .slow_ns = WAIT_NS};
    const char *why = "";
    int fd[2];

    assert_int_equal(io_create(&config, &io, &why), TERN_OK);
    streams.io = io;
    assert_int_equal(stream_pool_create(&streams, &pool), TERN_OK);
    memset(side, 0, sizeof side);
    for (uint32_t i = 0; i < STREAMS; i++) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
        far_end[i] = fd[1];
        stream_open(&side[i].s, pool, &ops, fd[0], 0, 4096, 2);
    }
    return 0;
}

FIXTURE(tear_down)
{
    uint64_t end = io_now_ns() + WAIT_NS;

    for (uint32_t i = 0; i < STREAMS; i++) {
        stream_close(&side[i].s, "the test is over");
        while (!side[i].finished && io_now_ns() < end)
            io_run(io, end);
        assert_int_equal(side[i].finished, 1);
        close(far_end[i]);
    }
    io_destroy(io);
    stream_pool_destroy(pool);
    return 0;
}

/* Whichever is looked at next when one is closed, in either order of the list. */
TEST_WITH(stream_sweep_with_a_neighbour_closed_meanwhile_closes_the_rest, set_up, tear_down)
{
    side[0].other = side[2].other = &side[1];
    stream_pool_sweep(pool, io_now_ns() + WAIT_NS);
    for (uint32_t i = 0; i < STREAMS; i++)
        assert_int_equal(side[i].closed, 1);
}

TEST_WITH(stream_sweep_before_a_deadline_closes_nothing, set_up, tear_down)
{
    stream_pool_sweep(pool, 0);
    for (uint32_t i = 0; i < STREAMS; i++)
        assert_int_equal(side[i].closed, 0);
}

/* What is queued leaves first; then it ends at once, for the reason that was given. */
TEST_WITH(stream_finish_sends_what_is_queued_and_closes, set_up, tear_down)
{
    struct frame_header h = {.version = FRAME_VERSION, .type = FRAME_PING, .request_id = 7};
    uint8_t frame[FRAME_HEADER_BYTES], got[FRAME_HEADER_BYTES];
    uint64_t end = io_now_ns() + WAIT_NS / 2;

    frame_encode(&h, frame);
    assert_true(stream_put(&side[0].s, frame, sizeof frame, NULL, 0));
    stream_finish(&side[0].s, "it was refused");
    assert_int_equal(side[0].closed, 0);
    stream_pool_flush(pool);
    while (!side[0].closed && io_now_ns() < end)
        io_run(io, end);
    assert_int_equal(side[0].closed, 1);
    assert_string_equal(side[0].why, "it was refused");
    assert_int_equal(recv(far_end[0], got, sizeof got, 0), sizeof got);
    assert_memory_equal(got, frame, sizeof frame);
    assert_int_equal(recv(far_end[0], got, sizeof got, 0), 0);
}
