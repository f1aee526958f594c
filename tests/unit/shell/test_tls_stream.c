/* A stream's promise of room: a frame that stream_fits accepts fits into the send queue, in the
 * clear and as TLS records, up to the last byte; and little of the queue stays unused. Two streams
 * on a socket pair, frames of every size around the queue's. */
#include <string.h>
#include <sys/socket.h>

#include "shell/stream/stream.h"
#include "testing/test.h"
#include "unit/rig/rig_tls.h"

#define BUFFERS_MAX 5
#define EXTRA       8 /* more than a stream may have */
#define BODY_MAX    (BUFFERS_MAX * SEND_BUFFER_BYTES)
#define WAIT_NS     30000000000u
#define ENDS        2

struct side {
    struct stream s; /* first: the callbacks cast */
    struct tls_session *tls;
    uint32_t got; /* bytes of the last frame, its header included */
    uint32_t frames;
    bool secured, closed, finished, late;
};

static struct io *io;
static struct stream_pool *pool;
static struct tls *tls[ENDS]; /* of the nodes a and b */
static struct side side[ENDS];

/* ---- two streams ---- */

static void on_frame(struct stream *s, const struct frame_header *h, const uint8_t *body)
{
    uint32_t wrong = 0;

    for (uint32_t i = 0; i < h->length; i++)
        wrong += body[i] != (uint8_t)(i * 7);
    assert_int_equal(wrong, 0);
    ((struct side *)(void *)s)->got = FRAME_HEADER_BYTES + h->length;
    ((struct side *)(void *)s)->frames++;
}

static void on_refused(struct stream *s, const struct frame_header *h)
{
    (void)s;
    fail_msg("a frame of %u bytes found no buffer", h->length);
}

static void on_closed(struct stream *s, const char *why)
{
    (void)why;
    ((struct side *)(void *)s)->closed = true;
}

static void on_finished(struct stream *s)
{
    ((struct side *)(void *)s)->finished = true;
}

static void on_secured(struct stream *s)
{
    ((struct side *)(void *)s)->secured = true;
}

static void on_tls_refused(struct stream *s, enum tls_refusal why, const char *detail)
{
    if (why == TLS_TIMEOUT)
        ((struct side *)(void *)s)->late = true;
    else
        fail_msg("tls_refused: %s: %s", tls_refusal_name(why), detail);
}

static const struct stream_ops ops = {.frame = on_frame,
                                      .refused = on_refused,
                                      .closed = on_closed,
                                      .finished = on_finished,
                                      .secured = on_secured,
                                      .tls_refused = on_tls_refused};

static void turn(uint64_t give_up_ns)
{
    assert_true(io_now_ns() < give_up_ns);
    stream_pool_flush(pool);
    io_run(io, stream_pool_has_input(pool) ? 0 : io_now_ns() + 10000000);
    stream_pool_serve(pool);
}

static void open_in_the_clear(uint32_t send_buffers_max)
{
    int fd[ENDS];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
    memset(side, 0, sizeof(side));
    for (uint32_t i = 0; i < ENDS; i++)
        stream_open(&side[i].s, pool, &ops, fd[i], 0, BODY_MAX, i ? BUFFERS_MAX : send_buffers_max);
}

static void begin_tls(uint32_t end)
{
    struct side *me = &side[end];

    assert_int_equal(tls_open(tls[end], end ? NULL : "b", stream_tls_send, &me->s, &me->tls),
                     TERN_OK);
    stream_secure(&me->s, me->tls);
}

static void open_ends(uint32_t send_buffers_max, bool secure)
{
    uint64_t end = io_now_ns() + WAIT_NS;

    open_in_the_clear(send_buffers_max);
    if (!secure)
        return;
    for (uint32_t i = 0; i < ENDS; i++)
        begin_tls(i);
    while (!side[0].secured || !side[1].secured || side[0].s.send_buffers || side[1].s.send_buffers)
        turn(end);
}

static void close_ends(void)
{
    uint64_t end = io_now_ns() + WAIT_NS;

    for (uint32_t i = 0; i < ENDS; i++)
        stream_close(&side[i].s, "the test is over");
    while (!side[0].finished || !side[1].finished)
        turn(end);
    for (uint32_t i = 0; i < ENDS; i++)
        tls_close(side[i].tls);
}

/* Puts a frame of n bytes, all of it, into the queue of end 0. */
static bool put(size_t n)
{
    static uint8_t frame[FRAME_HEADER_BYTES + BODY_MAX];
    struct frame_header h = {
        .length = (uint32_t)(n - FRAME_HEADER_BYTES), .version = FRAME_VERSION, .type = FRAME_PING};

    assert_true(n <= sizeof(frame));
    frame_encode(&h, frame);
    for (uint32_t i = 0; i < h.length; i++)
        frame[FRAME_HEADER_BYTES + i] = (uint8_t)(i * 7);
    return stream_put(&side[0].s, frame, n, NULL, 0);
}

static void arrives(size_t n)
{
    uint64_t end = io_now_ns() + WAIT_NS;

    while (side[1].got != n || side[0].s.send_buffers > 0)
        turn(end);
    assert_false(side[0].closed || side[1].closed);
}

static size_t most_that_fits(size_t n)
{
    while (n > 0 && !stream_fits(&side[0].s, n))
        n--;
    return n;
}

/* ---- set-up ---- */

FIXTURE(start)
{
    struct io_config ring = {.entries = 64, .groups = 1, .buffers = 16, .buffer_bytes = 16384};
    struct stream_config streams = {.streams = ENDS,
                                    .send_buffers_reserved = {EXTRA},
                                    .shares = 1,
                                    .bodies = {ENDS},
                                    .big_bytes = BODY_MAX,
                                    .partial_ns = WAIT_NS,
                                    .slow_ns = WAIT_NS};
    const char *why = "";

    tls_rig_certs();
    tls[0] = tls_rig_daemon("a", "a", "ca");
    tls[1] = tls_rig_daemon("b", "b", "ca");
    if (io_create(&ring, &io, &why) != TERN_OK)
        fail_msg("%s", why);
    streams.io = io;
    assert_int_equal(stream_pool_create(&streams, &pool), TERN_OK);
    return 0;
}

FIXTURE(stop)
{
    io_destroy(io);
    stream_pool_destroy(pool);
    tls_destroy(tls[0]);
    tls_destroy(tls[1]);
    tls_rig_remove();
    return 0;
}

/* ---- the tests ---- */

TEST_GROUP(start, stop);

TEST(stream_in_the_clear_fits_to_the_last_byte)
{
    for (uint32_t send_buffers = 1; send_buffers <= BUFFERS_MAX; send_buffers++) {
        size_t all = (size_t)send_buffers * SEND_BUFFER_BYTES;

        open_ends(send_buffers, false);
        assert_true(stream_fits(&side[0].s, all));
        assert_false(stream_fits(&side[0].s, all + 1));
        assert_true(put(all));
        assert_false(stream_fits(&side[0].s, 1));
        arrives(all);
        assert_true(stream_fits(&side[0].s, all)); /* and again */
        close_ends();
    }
}

/* Includes room for the records that the bytes are cut into. */
TEST(stream_with_tls_what_fits_can_be_put)
{
    for (uint32_t send_buffers = 1; send_buffers <= BUFFERS_MAX; send_buffers++) {
        size_t all = (size_t)send_buffers * SEND_BUFFER_BYTES, most;

        open_ends(send_buffers, true);
        most = most_that_fits(all);
        assert_true(most + (size_t)(send_buffers + 1) * TLS_RECORD_OVERHEAD >= all);
        assert_true(put(most));
        arrives(most);
        assert_true(put(100)); /* a partly filled send buffer is not counted */
        most = most_that_fits(all);
        assert_true(most <= all - SEND_BUFFER_BYTES);
        assert_true(send_buffers == 1 || put(most));
        arrives(send_buffers == 1 ? 100 : most);
        close_ends();
    }
}

/* All of them come in one record. */
TEST(stream_with_tls_hands_out_a_record_by_turns)
{
    static uint8_t bytes[500 * (FRAME_HEADER_BYTES + 1)];
    struct frame_header h = {.length = 1, .version = FRAME_VERSION, .type = FRAME_PING};
    uint32_t last = 0, turns = 0;

    open_ends(2, true);
    for (size_t at = 0; at < sizeof(bytes); at += FRAME_HEADER_BYTES + 1)
        frame_encode(&h, bytes + at);
    assert_true(stream_put(&side[0].s, bytes, sizeof(bytes), NULL, 0));
    while (side[1].frames < 500) {
        turn(io_now_ns() + WAIT_NS);
        assert_in_range(side[1].frames - last, 0, STREAM_TURN_FRAMES + 1024 / sizeof(h));
        turns += side[1].frames > last;
        last = side[1].frames;
    }
    assert_true(turns >= 500 / (STREAM_TURN_FRAMES + 1024 / sizeof(h)));
    close_ends();
}

TEST(stream_with_tls_what_does_not_fit_closes_it)
{
    open_ends(2, true);
    assert_false(stream_fits(&side[0].s, 2 * SEND_BUFFER_BYTES));
    assert_false(put(2 * SEND_BUFFER_BYTES));
    assert_true(side[0].closed);
    close_ends();
}

TEST(stream_whose_peer_does_not_answer_the_handshake_is_closed)
{
    open_in_the_clear(2);
    begin_tls(0);
    stream_pool_sweep(pool, io_now_ns());
    assert_false(side[0].closed);
    stream_pool_sweep(pool, io_now_ns() + 2 * WAIT_NS);
    assert_true(side[0].late && side[0].closed);
    close_ends();
}
