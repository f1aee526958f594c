/* Frames are handed out by turns: a client that has sent thousands at once delays neither another
 * tenant's client nor another one of its own tenant until their end, and takes no receive buffer
 * that these need. */
#include "unit/shell/test_stream_rig.h"

#define STREAMS 16
#define BUSY    0
#define SAME    1             /* of the tenant of the busy one */
#define OTHER   (STREAMS - 1) /* of another tenant */
#define FLOOD   1000          /* frames */

FIXTURE(set_up)
{
    struct stream_config config = {.streams = STREAMS,
                                   .send_buffers_reserved = {4, 4},
                                   .shares = 2,
                                   .big_bytes = 65536,
                                   .partial_ns = WAIT_NS,
                                   .slow_ns = WAIT_NS};

    streams_open(&config, 1, 2);
    return 0;
}

FIXTURE(tear_down)
{
    streams_close(STREAMS);
    return streams_gone();
}

/* n frames from that id on, in one write. */
static void send_frames(uint32_t i, uint64_t id, uint32_t n, uint32_t length, uint16_t type)
{
    static uint8_t bytes[FLOOD * (FRAME_HEADER_BYTES + 1)];
    struct frame_header h = {.length = length, .version = FRAME_VERSION, .type = type};
    size_t at = 0;

    for (h.request_id = id; h.request_id < id + n; h.request_id++, at += length) {
        assert_true(at + FRAME_HEADER_BYTES + length <= sizeof bytes);
        frame_encode(&h, bytes + at);
        at += FRAME_HEADER_BYTES;
    }
    assert_int_equal(send(far_end[i], bytes, at, MSG_DONTWAIT | MSG_NOSIGNAL), at);
}

static void arrives(uint32_t i, uint32_t frames)
{
    uint64_t end = io_now_ns() + WAIT_NS;

    while (side[i].frames < frames && !side[i].closed && io_now_ns() < end)
        turn(0);
    assert_int_equal(side[i].frames, frames);
}

TEST_WITH(stream_with_a_backlog_lets_others_have_their_turn, set_up, tear_down)
{
    send_frames(BUSY, 1, FLOOD, 1, FRAME_PING);
    turn(0);
    assert_in_range(side[BUSY].frames, 1, STREAM_TURN_FRAMES);
    assert_true(stream_pool_has_input(pool));
    send_frames(SAME, 1, 3, 1, FRAME_PING);
    send_frames(OTHER, 1, 3, 1, FRAME_PING);
    turn(0);
    assert_int_equal(side[SAME].frames, 3);
    assert_int_equal(side[OTHER].frames, 3);
    assert_in_range(side[BUSY].frames, 2, 2 * STREAM_TURN_FRAMES);
    arrives(BUSY, FLOOD);
    assert_false(stream_pool_has_input(pool));
}

/* One large frame counts as much as many small ones. */
TEST_WITH(stream_turn_ends_after_as_many_bytes, set_up, tear_down)
{
    uint32_t length = RECV_BYTES - FRAME_HEADER_BYTES, frames = 0;

    for (uint32_t i = 0; i < RECV_BUFFERS; i++)
        send_frames(i, 1, 1, length, FRAME_PING);
    send_frames(OTHER, 1, 1, length, FRAME_PING);
    turn(0);
    for (uint32_t i = 0; i < RECV_BUFFERS; i++)
        frames += side[i].frames;
    assert_int_equal(frames, STREAM_TURN_BYTES / RECV_BYTES);
    assert_int_equal(side[OTHER].frames, 1);
    for (uint32_t i = 0; i < RECV_BUFFERS; i++)
        arrives(i, 1);
}

/* All of a tenant's streams have more bytes than its receive buffers have room for: each gets all
 * of its own, and the other tenant's frame is handed out in the first turn. */
TEST_WITH(stream_floods_of_one_share_leave_the_other_its_buffers, set_up, tear_down)
{
    struct io_stats stats;

    for (uint32_t i = 0; i < OTHER; i++)
        send_frames(i, 1, FLOOD, 1, FRAME_PING);
    io_run(io, 0);
    send_frames(OTHER, 1, 1, 1, FRAME_PING);
    turn(0);
    assert_int_equal(side[OTHER].frames, 1);
    for (uint32_t i = 0; i < OTHER; i++)
        arrives(i, FLOOD);
    io_stats(io, &stats);
    assert_true(stats.buffers_empty > 0);
}

/* Closed while its bytes wait, while it waits for a buffer, and by a frame of its own: its owner is
 * informed, no more of its frames are handed out, and its buffer goes to waiting streams. */
TEST_WITH(stream_that_is_closed_with_a_backlog_gives_its_buffer_back, set_up, tear_down)
{
    uint32_t gone = 0;

    for (uint32_t i = 0; i < OTHER; i++) {
        send_frames(i, 1, FLOOD / 2, 1, i % 3 ? FRAME_PING : FRAME_ENGINE_LEAVE);
        send_frames(i, FLOOD / 2 + 1, FLOOD / 2, 1, FRAME_PING);
    }
    turn(0);
    turn(0);
    for (uint32_t i = 1; i < OTHER; i += 3)
        stream_close(&side[i].s, "the client's process has exited");
    for (uint32_t i = 2; i < OTHER; i += 3)
        arrives(i, FLOOD);
    for (uint32_t i = 0; i < OTHER; i++)
        gone += side[i].finished;
    assert_int_equal(gone, 10);
    for (uint32_t i = 0; i < OTHER; i += 3)
        assert_int_equal(side[i].frames, 1);
}

/* Bytes that have arrived and wait for their turn are not late, however long that takes. */
TEST_WITH(stream_that_waits_for_its_turn_is_not_overdue, set_up, tear_down)
{
    send_frames(BUSY, 1, 1, 1, FRAME_PING);
    io_run(io, 0);
    stream_pool_sweep(pool, io_now_ns() + 2 * (uint64_t)WAIT_NS);
    assert_int_equal(side[BUSY].closed, 0);
    assert_int_equal(side[SAME].closed, 1);
    arrives(BUSY, 1);
}

/* The busy client's frames take long; the other tenant's are answered. */
static void take_long_or_answer(struct stream *s)
{
    struct frame_header h = {.version = FRAME_VERSION, .type = FRAME_PING, .request_id = 1};
    uint64_t end = io_now_ns() + 2 * STREAM_SLOW_NS;
    uint8_t frame[FRAME_HEADER_BYTES];
    const bool slow_before = side[BUSY].frames > 1;

    frame_encode(&h, frame);
    if (s == &side[OTHER].s) {
        assert_true(stream_put(s, frame, sizeof frame, NULL, 0));
        return;
    }
    while (io_now_ns() < end)
        ;
    assert_int_equal(side[OTHER].frames, slow_before ? 2 : 0);
    if (slow_before) /* both answers were sent before */
        for (uint32_t i = 0; i < 2; i++)
            assert_int_equal(recv(far_end[OTHER], frame, sizeof frame, MSG_DONTWAIT), sizeof frame);
}

TEST_WITH(stream_share_whose_turn_was_slow_comes_last, set_up, tear_down)
{
    on_each = take_long_or_answer;
    for (uint64_t id = 1; id <= 2; id++) {
        send_frames(BUSY, id, 1, 1, FRAME_PING);
        send_frames(OTHER, id, 1, 1, FRAME_PING);
        turn(0);
        assert_int_equal(side[BUSY].frames, id);
    }
}
