/* The send buffers of streams: who reads nothing ends itself, and neither another tenant's
 * connection nor one of its own tenant's that reads. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shell/stream/stream.h"
#include "testing/test.h"

#define SILENT   8 /* of tenant A, that read nothing */
#define STREAMS  (SILENT + 2)
#define READS    SILENT       /* of tenant A, too */
#define OTHER    (SILENT + 1) /* of tenant B */
#define COMMON   64
#define RESERVED 16
#define MOST     60 /* of one stream */
#define WAIT_NS  5000000000u
#define FRAME    60000

struct side {
    struct stream s; /* first: the callbacks cast */
    uint32_t closed, finished;
    char why[160];
};

static struct io *io;
static struct stream_pool *pool;
static struct side side[STREAMS];
static int far_end[STREAMS];
static uint8_t frame[FRAME];

static void on_frame(struct stream *s, const struct frame_header *h, const uint8_t *body)
{
    (void)s, (void)h, (void)body;
    fail_msg("nobody sends");
}

static void on_closed(struct stream *s, const char *why)
{
    struct side *me = (struct side *)(void *)s;

    me->closed++;
    snprintf(me->why, sizeof me->why, "%s", why);
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
                                    .send_buffers = COMMON,
                                    .send_buffers_reserved = {RESERVED, RESERVED},
                                    .shares = 2,
                                    .big_bytes = 65536,
                                    .partial_ns = 1000 * (uint64_t)WAIT_NS,
                                    .slow_ns = 1000 * (uint64_t)WAIT_NS};
    const char *why = "";
    int fd[2];

    assert_int_equal(io_create(&config, &io, &why), TERN_OK);
    streams.io = io;
    assert_int_equal(stream_pool_create(&streams, &pool), TERN_OK);
    memset(side, 0, sizeof side);
    for (uint32_t i = 0; i < STREAMS; i++) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
        far_end[i] = fd[1];
        stream_open(&side[i].s, pool, &ops, fd[0], i == OTHER, 4096, MOST);
    }
    return 0;
}

static void turn(void)
{
    stream_pool_flush(pool);
    io_run(io, 0);
}

FIXTURE(tear_down)
{
    uint64_t end = io_now_ns() + WAIT_NS;
    struct stream_share share;

    for (uint32_t i = 0; i < STREAMS; i++) {
        stream_close(&side[i].s, "the test is over");
        while (!side[i].finished && io_now_ns() < end)
            io_run(io, end);
        assert_int_equal(side[i].finished, 1);
        assert_int_equal(side[i].closed, 1);
        assert_int_equal(side[i].s.send_buffers, 0);
        close(far_end[i]);
    }
    for (uint32_t i = 0; i < 2; i++) { /* all of them came back, to whom they belong */
        stream_share_view(pool, i, &share);
        assert_int_equal(share.used, 0);
        assert_int_equal(share.common_used, 0);
    }
    io_destroy(io);
    stream_pool_destroy(pool);
    return 0;
}

/* Reads all of what is under way to that client. */
static void drain(uint32_t i)
{
    uint8_t bytes[65536];
    uint64_t end = io_now_ns() + WAIT_NS;

    while (side[i].s.first && !side[i].closed && io_now_ns() < end) {
        turn();
        while (recv(far_end[i], bytes, sizeof bytes, MSG_DONTWAIT) > 0)
            ;
    }
}

/* Each of the silent ones is answered in turn, and the one that reads. Returns the most buffers
 * that tenant A had; it always leaves as many of the common ones as it takes. */
static uint32_t answer_silent(uint32_t rounds, uint32_t reader)
{
    struct stream_share share;
    uint32_t most = 0;

    for (uint32_t round = 0; round < rounds; round++) {
        for (uint32_t i = 0; i < SILENT; i++)
            if (!side[i].closed)
                stream_put(&side[i].s, frame, 16000, NULL, 0);
        stream_share_view(pool, 0, &share);
        assert_true(share.common_used <= COMMON / 2);
        most = share.used > most ? share.used : most;
        assert_true(stream_put(&side[reader].s, frame, FRAME, NULL, 0));
        drain(reader);
        assert_int_equal(side[reader].closed, 0);
    }
    return most;
}

TEST_WITH(stream_of_another_tenant_has_its_buffers_however_many_are_unread, set_up, tear_down)
{
    assert_true(answer_silent(200, OTHER) >= RESERVED + COMMON / 2 - 1);
    for (uint32_t i = 0; i < SILENT; i++)
        if (side[i].closed)
            assert_true(strstr(side[i].why, "reads too slowly") ||
                        strstr(side[i].why, "limits.send_buffers_reserved"));
}

TEST_WITH(stream_that_reads_outlives_those_of_its_tenant_that_do_not, set_up, tear_down)
{
    struct stream_share share;
    uint32_t closed = 0;

    assert_true(answer_silent(200, READS) > RESERVED);
    for (uint32_t i = 0; i < SILENT; i++)
        closed += side[i].closed;
    stream_share_view(pool, 0, &share);
    assert_true(closed > 0);
    assert_true(share.doomed > 0);
}

/* Exactly what is reserved and half of the rest: not a buffer more for the one, nor for the other.
 */
TEST_WITH(stream_share_takes_what_is_reserved_and_half_of_the_rest, set_up, tear_down)
{
    uint32_t taken = 0;

    for (uint32_t i = 0; i < SILENT; i++)
        while (!side[i].closed && side[i].s.send_buffers < 8 &&
               stream_put(&side[i].s, frame, SEND_BUFFER_BYTES, NULL, 0))
            ;
    for (uint32_t i = 0; i < SILENT; i++)
        taken += side[i].closed ? 0 : side[i].s.send_buffers - 1;
    assert_true(taken <= RESERVED + COMMON / 2);
    assert_true(stream_fits(&side[OTHER].s, SEND_BUFFER_BYTES * (RESERVED + 1)));
    assert_false(stream_fits(&side[OTHER].s, SEND_BUFFER_BYTES * (RESERVED + COMMON)));
}
