/* The deadlines of streams: one sweep closes all that are past theirs, whatever the end of one of
 * them does to the others. */
#include "unit/shell/test_stream_rig.h"

#define STREAMS 3

FIXTURE(set_up)
{
    struct stream_config config = {.streams = STREAMS,
                                   .send_buffers_reserved = {4},
                                   .shares = 1,
                                   .big_bytes = 65536,
                                   .partial_ns = 1,
                                   .slow_ns = WAIT_NS};

    streams_open(&config, 0, 2);
    return 0;
}

FIXTURE(tear_down)
{
    streams_close(STREAMS);
    return streams_gone();
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

/* One is closed by the far end, and one has something queued that nobody will take. */
TEST_WITH(stream_of_a_mute_pool_tells_its_owner_nothing, set_up, NULL)
{
    struct frame_header h = {.version = FRAME_VERSION, .type = FRAME_PING, .request_id = 1};
    uint8_t frame[FRAME_HEADER_BYTES];

    frame_encode(&h, frame);
    assert_int_equal(send(far_end[1], frame, sizeof frame, 0), sizeof frame);
    assert_true(stream_put(&side[2].s, frame, sizeof frame, NULL, 0));
    close(far_end[0]);
    close(far_end[2]);
    stream_pool_flush(pool);
    stream_pool_mute(pool);
    for (uint32_t i = 0; i < STREAMS; i++)
        io_run(io, io_now_ns() + 10000000);
    stream_pool_serve(pool);
    for (uint32_t i = 0; i < STREAMS; i++) {
        assert_int_equal(side[i].frames + side[i].closed + side[i].finished, 0);
        close(side[i].s.fd);
    }
    close(far_end[1]);
    assert_int_equal(streams_gone(), 0);
}
