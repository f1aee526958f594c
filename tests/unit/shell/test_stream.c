/* The deadlines of streams: one sweep closes all overdue ones, whatever the end of one of them does
 * to the others. */
#include <sys/epoll.h>
#include <sys/resource.h>

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

FIXTURE(set_up_clients)
{
    closes_apart = true;
    return set_up(NULL);
}

FIXTURE(tear_down)
{
    closes_apart = false;
    streams_close(STREAMS);
    return streams_gone();
}

/* Whichever comes next when one is closed, in either order of the list. */
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

/* Queued bytes are sent first; then the stream ends at once, with the given reason. */
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
    while (!side[0].finished && io_now_ns() < end)
        io_run(io, end);
    assert_int_equal(side[0].closed, 1);
    assert_int_equal(side[0].finished, 1);
    assert_string_equal(side[0].why, "it was refused");
    assert_int_equal(recv(far_end[0], got, sizeof got, 0), sizeof got);
    assert_memory_equal(got, frame, sizeof frame);
    assert_int_equal(recv(far_end[0], got, sizeof got, 0), 0);
}

/* The far end closes one, and one has queued bytes that nobody receives. */
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

static void send_descriptor(uint32_t i, const void *bytes, size_t n)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec iov = {(void *)(uintptr_t)bytes, n};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *c = (struct cmsghdr *)(void *)control;

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memset(CMSG_DATA(c), 0, sizeof(int));
    assert_int_equal(sendmsg(far_end[i], &msg, 0), (ssize_t)n);
}

/* Frames arrive as usual, until one carries a descriptor: it is not handed out, and the slot is
 * free again when a thread has closed the socket. */
TEST_WITH(stream_of_a_client_that_sends_a_descriptor_ends, set_up_clients, tear_down)
{
    struct frame_header h = {
        .version = FRAME_VERSION, .type = FRAME_PING, .request_id = 1, .length = 1};
    uint8_t frame[FRAME_HEADER_BYTES + 1] = {0};
    uint64_t end = io_now_ns() + WAIT_NS;
    struct closer_stats stats;

    for (uint32_t i = 0; i < 2; i++) {
        h.request_id = i + 1;
        frame_encode(&h, frame);
        if (i == 0)
            assert_int_equal(send(far_end[0], frame, sizeof frame, 0), sizeof frame);
        else
            send_descriptor(0, frame, sizeof frame);
        while (side[0].frames + side[0].closed <= i && io_now_ns() < end)
            turn(end);
    }
    assert_int_equal(side[0].frames, 1);
    assert_int_equal(side[0].brought, 1);
    assert_string_equal(side[0].why, "the client sent descriptors, which the daemon never accepts");
    assert_int_equal(side[0].s.state, STREAM_CLOSING);
    stream_close(&side[0].s, "again");
    while (!side[0].finished && io_now_ns() < end)
        io_run(io, end);
    assert_int_equal(side[0].s.state, STREAM_UNUSED);
    closer_stats(closer, &stats);
    assert_int_equal(stats.closed, 1);
}

/* Sends the bytes on stream i, and lets it read them. */
static void hears(uint32_t i, const void *bytes, size_t n)
{
    uint64_t end = io_now_ns() + WAIT_NS / 100;

    assert_int_equal(send(far_end[i], bytes, n, 0), n);
    while (!side[i].closed && io_now_ns() < end)
        turn(end);
}

/* An alert, which is shorter than a frame's head, in pieces; and the beginning of a whole
 * ClientHello. */
TEST_WITH(stream_that_meets_tls_in_place_of_a_frame_says_so, set_up, tear_down)
{
    static const uint8_t alert[] = {21, 3, 3, 0, 2, 2, 70},
                         hello[64] = {22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3};

    hears(0, alert, 2);
    assert_int_equal(side[0].closed, 0);
    hears(0, alert + 2, sizeof alert - 2);
    assert_string_equal(side[0].why, "it speaks TLS");
    hears(1, hello, sizeof hello);
    assert_string_equal(side[1].why, "it speaks TLS");
}

/* Bytes that are no TLS either, and the first bytes of a frame as long as a greeted peer's. */
TEST_WITH(stream_that_meets_no_tls_does_not_say_so, set_up, tear_down)
{
    static const uint8_t other[FRAME_HEADER_BYTES] = {22, 3, 7, 0}, frame[] = {22, 3, 1, 0, 1, 0};

    hears(0, other, sizeof other);
    assert_string_equal(side[0].why, "frame length");
    side[1].s.splitter.body_max = 1u << 20;
    hears(1, frame, sizeof frame);
    assert_int_equal(side[1].closed, 0);
}

/* The owner reads whole frames, however many, and a frame in few pieces. */
TEST_WITH(stream_that_sends_byte_after_byte_is_set_aside, set_up, tear_down)
{
    struct frame_header h = {
        .length = 8, .version = FRAME_VERSION, .type = FRAME_PING, .request_id = 1};
    uint8_t frame[FRAME_HEADER_BYTES + 8] = {0};

    for (; h.request_id <= 20; h.request_id++) {
        frame_encode(&h, frame);
        hears(0, frame, 10);
        hears(0, frame + 10, sizeof frame - 10);
    }
    assert_int_equal(side[0].frames, 20);
    assert_int_equal(side[0].aside, 0);
    h.request_id = 1;
    frame_encode(&h, frame);
    for (size_t i = 0; i < sizeof frame; i++)
        hears(1, frame + i, 1);
    assert_int_equal(side[1].aside, 1);
    assert_int_equal(side[1].frames, 1); /* it is served all the same */
}

#define WAITERS 4000u /* each takes 60 ns or more of a send */

static void flush_a_frame(uint32_t i, uint64_t id)
{
    struct frame_header h = {.version = FRAME_VERSION, .type = FRAME_PING, .request_id = id};
    uint8_t frame[FRAME_HEADER_BYTES];
    uint64_t end = io_now_ns() + WAIT_NS;

    frame_encode(&h, frame);
    assert_true(stream_put(&side[i].s, frame, sizeof frame, NULL, 0));
    stream_pool_flush(pool);
    while (side[i].s.send_posted && io_now_ns() < end)
        io_run(io, end);
    assert_int_equal(recv(far_end[i], frame, sizeof frame, MSG_WAITALL), sizeof frame);
    usleep(12000); /* the next flush is timed again */
}

TEST_WITH(stream_whose_far_end_many_wait_on_is_set_aside, set_up, tear_down)
{
    struct rlimit files;
    int epoll = epoll_create1(EPOLL_CLOEXEC), most = 0, copies[WAITERS];

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = files.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    for (; most < (int)WAITERS && (copies[most] = dup(far_end[0])) >= 0; most++)
        assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, copies[most],
                                   &(struct epoll_event){.events = EPOLLIN | EPOLLOUT}),
                         0);
    for (uint64_t id = 1; id <= 8; id++) {
        flush_a_frame(0, id);
        flush_a_frame(1, id);
    }
    assert_int_equal(side[0].aside, 1);
    assert_int_equal(side[1].aside, 0);
    assert_true(side[1].s.send.aside && side[1].s.recv.aside); /* it belongs to the same share */
    while (most > 0)
        close(copies[--most]);
    close(epoll);
}
