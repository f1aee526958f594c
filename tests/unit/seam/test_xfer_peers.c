/* Peers that are absent, of another incarnation, too slow, too many, or that send no valid
 * frame. */
#include "seam/xfer/conn/data_conn.h"
#include "seam/xfer/flow/transport.h"
#include "unit/seam/test_pulls_rig.h"

#define HALVES  7
#define SILENT  256
#define BYTE_NS (IDLE_NS / 16)
#define IDLE_NS 2000000000u /* long enough that a stalled machine causes no timeout */

static const struct rig_options options = {.page_bytes = {4096}, .idle_ns = IDLE_NS};
/* With these limits, connections close or stay for other reasons than their deadline. */
static const struct rig_options patient = {.page_bytes = {4096}, .idle_ns = 4 * RIG_WAIT_NS};

TEST(xfer_nobody_listens_ends_peer_lost)
{
    uint16_t port;

    rig_open(&options);
    close(rig_listen(&port));
    rig_link(port, RIG_SRC_INC);
    rig_pull(PULL(0), 0, 0, 1, 30);
    pull_breaks(PULL(0), 0, 1, 31, 30, TERN_PEER_LOST);
}

/* The control port is open and the data port is not: an operator is informed, once, and at the
 * end. */
TEST(xfer_data_port_that_cannot_be_reached_is_told)
{
    struct xfer_link_view view;
    char text[XFER_CALL_TEXT];
    const char *why = "";
    uint16_t port;

    rig_open_filled(&options, 40);
    close(rig_listen(&port));
    rig_link(port, RIG_SRC_INC);
    snprintf(text, sizeof text, "its data port %u cannot be reached: Connection refused", port);
    for (uint32_t i = 0; i < 2; i++) {
        rig_pull(PULL(i), 0, 0, 1, 30);
        pull_breaks(PULL(i), 0, 1, 31, 30, TERN_PEER_LOST);
        xfer_link_view(rig.dst.xfer, 0, &view);
        assert_string_equal(view.reason, text);
        assert_int_equal(rig.dst.dialled, 1);
        assert_int_equal(rig.dst.dial_error, ECONNREFUSED);
    }
    assert_int_equal(xfer_listen(rig.dst.xfer, "127.0.0.1", port, &port, &why), TERN_OK);
    rig_pull(PULL(2), 0, 0, 1, 30);
    pull_breaks(PULL(2), 0, 1, 31, 30, TERN_PEER_LOST); /* it reaches the wrong daemon */
    xfer_link_view(rig.dst.xfer, 0, &view);
    assert_string_equal(view.reason, "");
    assert_int_equal(rig.dst.dialled, 2);
    assert_int_equal(rig.dst.dial_error, 0);
}

/* A firewall that drops packets: here the kernel drops the call, as the listener has no room. */
TEST(xfer_data_port_that_does_not_answer_is_told)
{
    struct rig_options o = options;
    int fd, waiting[16];
    uint16_t port;

    o.idle_ns = IDLE_NS / 4;
    rig_open(&o);
    fd = rig_listen(&port);
    for (uint32_t i = 0; i < 16; i++) {
        struct sockaddr_in to = {.sin_family = AF_INET,
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                 .sin_port = htons(port)};

        waiting[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        connect(waiting[i], (struct sockaddr *)&to, sizeof to);
    }
    rig_link(port, RIG_SRC_INC);
    pull_breaks(PULL(0), 0, 0, 1, 30, TERN_PEER_LOST);
    assert_int_equal(rig.dst.dialled, 1);
    assert_int_equal(rig.dst.dial_error, ETIMEDOUT);
    for (uint32_t i = 0; i < 16; i++)
        close(waiting[i]);
    close(fd);
}

TEST(xfer_silent_source_is_given_up_after_idle)
{
    uint64_t from = io_now_ns();
    uint16_t port;
    int fd;

    rig_open(&options);
    fd = rig_listen(&port); /* the kernel accepts, nobody answers */
    rig_link(port, RIG_SRC_INC);
    pull_breaks(PULL(0), 0, 0, 1, 30, TERN_PEER_LOST);
    assert_true(io_now_ns() - from >= IDLE_NS);
    close(fd);
}

/* The bytes take far longer than the limit, and too few arrive at a time to wake a thread. */
TEST(xfer_slow_source_is_waited_for)
{
    struct rig_options o = options;
    uint64_t from = io_now_ns();

    o.by_proxy = true;
    o.idle_ns = IDLE_NS / 2;
    rig_open_filled(&o, 40);
    rig.proxy.chunk = 16384;
    rig.proxy.pause_ns = o.idle_ns / 4;
    pull_works(0);
    assert_true(io_now_ns() - from > o.idle_ns + o.idle_ns / 2);
}

static void pumped(struct transport *t, uint32_t peer_link)
{
    (void)t, (void)peer_link;
}

/* The peer's time to answer begins when the kernel has the whole request, which a slow reader
 * delays. */
TEST(xfer_time_of_a_peer_begins_when_it_was_asked)
{
    static const struct transport_ops ops = {.pump = pumped};
    uint8_t got[1000];
    struct xfer xfer = {.config = {.idle_ns = IDLE_NS}};
    struct transport transport = {.ops = &ops, .xfer = &xfer};
    struct data_conn conn = {.xfer = &xfer,
                             .state = DATA_CONN_OPEN,
                             .transport = &transport,
                             .out_n = DATA_BUFFER_BYTES,
                             .progress_ns = 1};
    const int small = 1;
    int fd[2];

    rig_open(&options);
    xfer.config.io = rig.io;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    assert_int_equal(setsockopt(fd[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
    conn.fd = fd[0];
    data_conn_send_buffer(&conn);
    for (uint32_t i = 0; i < 5; i++)
        rig_turn();
    assert_true(conn.sending);
    assert_int_equal(conn.progress_ns, 1);
    while (conn.sending) {
        (void)recv(fd[1], got, sizeof got, MSG_DONTWAIT);
        rig_turn();
    }
    assert_true(conn.progress_ns > 1);
    assert_int_equal(xfer.stats.socket_bytes_out, DATA_BUFFER_BYTES);
    close(fd[0]);
    close(fd[1]);
}

TEST(xfer_idle_connection_makes_room_for_another_link)
{
    struct rig_options o = options;

    o.conns = 2;
    rig_open_filled(&o, 40);
    for (uint32_t k = 0; k < 9; k++) {
        struct xfer_stats stats;

        rig.link = k % 3;
        if (k < 3)
            rig_link(rig.port, RIG_SRC_INC);
        /* The source has room for one inbound connection: it takes the next when the last has
         * gone. */
        rig_pull((struct pull_id){0, k + 1}, 0, 0, 1, 30);
        rig_until(&rig.dst, 1);
        if (rig.dst.event[0].kind == EV_PULLED)
            assert_int_equal(rig_check_pulled(&rig.dst.event[0], 1, 30), 30);
        else
            assert_int_equal(rig.dst.event[0].kind, EV_PULL_BROKEN);
        rig.dst.nevents = 0;
        xfer_stats(rig.dst.xfer, &stats);
        assert_true(stats.conns <= 2);
        xfer_stats(rig.src.xfer, &stats);
        assert_true(stats.conns <= 1);
    }
}

/* Nothing is queued or being sent on it, but its answer is outstanding. */
TEST(xfer_connection_that_waits_for_an_answer_makes_no_room)
{
    struct rig_options o = options;
    struct xfer_stats stats;
    uint16_t port;
    int fd;

    o.conns_dst = 2;
    rig_open_filled(&o, 40);
    fd = rig_listen(&port);
    for (rig.link = 0; rig.link < 2; rig.link++) {
        rig_link(rig.link == 0 ? port : rig.port, RIG_SRC_INC);
        rig_pull(PULL(rig.link), 0, 0, 1, 30);
        for (uint32_t i = 0; i < 50; i++)
            rig_turn();
    }
    xfer_stats(rig.dst.xfer, &stats);
    assert_int_equal(stats.conns, 1);
    assert_int_equal(rig.dst.nevents, 0);
    close(fd);
}

/* The source closes the connection. */
static void expect_closed(int fd)
{
    uint64_t deadline = io_now_ns() + RIG_WAIT_NS;
    char buf[64];

    for (;;) {
        ssize_t n = recv(fd, buf, sizeof buf, MSG_DONTWAIT);

        if (n == 0 || (n < 0 && errno != EAGAIN))
            break;
        assert_true(io_now_ns() < deadline);
        rig_turn();
    }
    close(fd);
}

static void hello(uint8_t *p)
{
    xfer_put_head(p, &(struct xfer_head){.type = XFER_HELLO, .a = RIG_SRC_INC, .b = RIG_TOKEN});
}

/* A caller with only the port and the incarnation gets nothing; an admitted one ends with its
 * link. */
TEST(xfer_only_the_token_of_a_link_that_is_up_lets_in)
{
    static const uint64_t wrong[] = {0, RIG_TOKEN - 1, RIG_SRC_INC, UINT64_MAX};
    struct xfer_stats stats;
    uint8_t head[32];
    int fd;

    rig_open_filled(&patient, 40);
    for (uint32_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        fd = rig_dial(rig.port);
        xfer_put_head(head,
                      &(struct xfer_head){.type = XFER_HELLO, .a = RIG_SRC_INC, .b = wrong[i]});
        assert_int_equal(send(fd, head, sizeof head, MSG_NOSIGNAL), sizeof head);
        expect_closed(fd);
    }
    pull_works(0);
    fd = rig_dial(rig.port);
    hello(head);
    assert_int_equal(send(fd, head, sizeof head, MSG_NOSIGNAL), sizeof head);
    for (uint32_t i = 0; i < 5; i++)
        rig_turn();
    assert_int_equal(recv(fd, head, 1, MSG_DONTWAIT), -1); /* it stays */
    xfer_dismiss(rig.src.xfer, 0);
    expect_closed(fd);
    for (uint32_t i = 0; i < 20; i++)
        rig_turn(); /* the destination's own connection has gone too, and it notices */
    xfer_admit(rig.src.xfer, 0, RIG_TOKEN);
    pull_works(0);
    xfer_stats(rig.src.xfer, &stats);
    assert_int_equal(stats.refused, sizeof wrong / sizeof wrong[0]);
}

TEST(xfer_serve_of_another_link_is_not_given)
{
    uint8_t buf[64 + XFER_ENTRY_BYTES];
    uint32_t answers;
    int fd;

    rig_open_filled(&patient, 40);
    pull_works(0);
    answers = rig.answers;
    rig.other_link = true;
    fd = rig_dial(rig.port);
    hello(buf);
    xfer_put_head(buf + 32, &(struct xfer_head){.type = XFER_REQUEST, .n = 1});
    xfer_put_entry(buf + 64, &(struct xfer_entry){.group = 0});
    assert_int_equal(send(fd, buf, sizeof buf, MSG_NOSIGNAL), sizeof buf);
    expect_closed(fd);
    assert_int_equal(rig.answers, answers); /* the source did not even look up a page */
    rig.other_link = false;
    pull_works(0);
}

/* Faults 24 and 25 on the data port: each is closed, the others are served. */
TEST(xfer_malformed_frames_close_the_connection)
{
    static const struct xfer_head bad[] = {
        {.type = XFER_HELLO, .n = 0},
        {.type = XFER_ANSWER, .n = 1},
        {.type = XFER_REQUEST, .n = 0},
        {.type = XFER_REQUEST, .n = 257},
        {.type = XFER_REQUEST, .n = UINT32_MAX},
        {.type = XFER_REQUEST_WRITE, .n = 1, .b = XFER_RUNS_MAX + 1},
        {.type = XFER_REQUEST_WRITE, .n = 1, .b = UINT32_MAX},
        {.type = XFER_REQUEST_PLAN + 1, .n = 1}, /* of daemons that moved units of pages */
    };
    uint8_t buf[4096];
    uint32_t runs = 0;
    struct prng p;

    rig_open_filled(&patient, 40);
    pull_works(0);
    for (uint32_t i = 0; i < sizeof bad / sizeof bad[0]; i++, runs++) {
        int fd = rig_dial(rig.port);

        hello(buf);
        xfer_put_head(buf + 32, &bad[i]);
        assert_int_equal(send(fd, buf, 64, MSG_NOSIGNAL), 64);
        expect_closed(fd);
        pull_works(0);
    }
    prng_init(&p, 5);
    for (uint32_t i = 0; i < 200; i++, runs++) {
        int fd = rig_dial(rig.port);
        uint32_t n = 33 + prng_below(&p, 4000), from = prng_below(&p, 2) * 32;

        hello(buf);
        for (uint32_t k = from; k < n; k++)
            buf[k] = (uint8_t)prng_u64(&p);
        assert_int_equal(send(fd, buf, n, MSG_NOSIGNAL), n);
        expect_closed(fd);
    }
    pull_works(0);
    printf("fault=25 runs=%u injected=%u violations=0 crashes=0\n", runs, runs);
}

/* A source without a device answers that nothing comes this way, and continues to serve. */
TEST(xfer_write_asked_of_a_source_without_rdma_gives_nothing)
{
    uint8_t buf[XFER_WRITE_BYTES];
    struct xfer_head head = {.type = XFER_REQUEST_WRITE,
                             .n = 1,
                             .seq = 7,
                             .a = serve_id_pack((struct serve_id){0, 7}),
                             .b = 1 | (uint64_t)5 << 32};
    uint32_t n = 2 * XFER_HEAD_BYTES, got = 0;
    uint64_t deadline;
    int fd;

    rig_open_filled(&options, 40);
    deadline = io_now_ns() + RIG_WAIT_NS;
    fd = rig_dial(rig.port);
    hello(buf);
    xfer_put_head(buf + XFER_HEAD_BYTES, &head);
    xfer_put_entry(buf + n, &(struct xfer_entry){.index = 1, .gen = 101});
    n += XFER_ENTRY_BYTES;
    xfer_put_run(buf + n, &(struct xfer_run){.bytes = 4096});
    n += XFER_RUN_BYTES;
    assert_int_equal(send(fd, buf, n, MSG_NOSIGNAL), n);
    while (got < XFER_HEAD_BYTES + XFER_STATUS_BYTES(1)) {
        ssize_t r = recv(fd, buf + got, sizeof buf - got, MSG_DONTWAIT);

        assert_true(r > 0 || errno == EAGAIN);
        assert_true(io_now_ns() < deadline);
        got += r > 0 ? (uint32_t)r : 0;
        rig_turn();
    }
    assert_true(xfer_get_head(buf, &head));
    assert_int_equal(head.type, XFER_ANSWER_WRITE);
    assert_int_equal(head.seq, 7);
    assert_int_equal(head.b, 0);
    assert_int_not_equal(xfer_get32(buf + XFER_HEAD_BYTES), TERN_OK);
    close(fd);
    pull_works(0);
}

/* The source stops reading when it would have two requests of the largest size, and resumes. */
TEST(xfer_more_requests_than_are_read_ahead_are_all_answered)
{
    enum { ONE = XFER_HEAD_BYTES + XFER_ENTRY_BYTES, N = 16 * XFER_WRITE_BYTES / ONE };
    static uint8_t buf[XFER_HEAD_BYTES + N * ONE], answer[65536];
    struct xfer_head head = {
        .type = XFER_REQUEST, .n = 1, .a = serve_id_pack((struct serve_id){0, 7})};
    struct rig_options o = options;
    uint8_t *at = buf + XFER_HEAD_BYTES;
    uint64_t deadline;
    int fd;

    o.socket_buffer_bytes = 4096; /* so that answers wait in the queue */
    rig_open_filled(&o, 40);
    deadline = io_now_ns() + RIG_WAIT_NS;
    fd = rig_dial(rig.port);
    hello(buf);
    for (; head.seq < N; head.seq++, at += ONE) {
        xfer_put_head(at, &head);
        xfer_put_entry(at + XFER_HEAD_BYTES, &(struct xfer_entry){.index = 1, .gen = 101});
    }
    assert_int_equal(send(fd, buf, sizeof buf, MSG_NOSIGNAL), sizeof buf);
    for (uint32_t i = 0; i < 50; i++)
        rig_turn();
    while (rig.answers < N) {
        assert_true(recv(fd, answer, sizeof answer, MSG_DONTWAIT) > 0 || errno == EAGAIN);
        assert_true(io_now_ns() < deadline);
        rig_turn();
    }
    close(fd);
}

/* Faults 22 and 23: half a frame for ever, and one byte now and then. */
TEST(xfer_half_frames_are_closed_at_the_deadline)
{
    static const size_t half[HALVES] = {0, 9, 18, 27, 45, 54, 63};
    struct rig_options o = options;
    uint64_t from = io_now_ns();
    int fd, fds[HALVES];
    uint8_t buf[96];
    size_t n;

    o.conns = 2 * HALVES + 2; /* half of them inbound */
    rig_open_filled(&o, 40);
    hello(buf);
    xfer_put_head(buf + 32, &(struct xfer_head){.type = XFER_REQUEST, .n = 2});
    for (uint32_t i = 0; i < HALVES; i++) {
        fds[i] = rig_dial(rig.port);
        if (half[i] > 0)
            assert_int_equal(send(fds[i], buf, half[i], MSG_NOSIGNAL), (ssize_t)half[i]);
    }
    for (uint32_t i = 0; i < HALVES; i++) {
        expect_closed(fds[i]);
        assert_true(io_now_ns() - from >= IDLE_NS / 2);
    }
    fd = rig_dial(rig.port);
    for (n = 0; n < 32; n++) { /* a byte each 125 ms: progress, and yet too slow */
        uint64_t next = io_now_ns() + BYTE_NS;

        if (send(fd, buf + n, 1, MSG_NOSIGNAL) < 0)
            break;
        while (io_now_ns() < next)
            rig_turn();
    }
    assert_in_range(n, 2, 31);
    expect_closed(fd);
    pull_works(0);
    printf("fault=23 runs=9 injected=9 violations=0\n");
}

/* Callers without a word, or with half a HELLO, from a peer's address: the peer is admitted. */
TEST(xfer_silent_callers_keep_no_peer_out)
{
    struct xfer_stats stats;
    static int fd[SILENT];
    uint8_t head[32];

    rig_open_filled(&patient, 40); /* 8 connections: 4 of them inbound */
    hello(head);
    for (uint32_t i = 0; i < SILENT; i++) {
        fd[i] = rig_dial(rig.port);
        if (i % 2)
            assert_int_equal(send(fd[i], head, 9, MSG_NOSIGNAL), 9);
        rig_turn();
    }
    xfer_stats(rig.src.xfer, &stats);
    assert_int_equal(stats.conns, 0);
    assert_int_equal(stats.door.waiting, DOOR_PLACES / DOOR_SHARES);
    assert_int_equal(stats.door.displaced, SILENT - DOOR_PLACES / DOOR_SHARES);
    pull_works(0);
    xfer_stats(rig.src.xfer, &stats);
    assert_int_equal(stats.conns, 1);
    assert_true(stats.door.waiting <= DOOR_PLACES / DOOR_SHARES);
    for (uint32_t i = 0; i < SILENT; i++)
        close(fd[i]);
}

static bool still_open(int fd)
{
    char byte;

    return recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

TEST(xfer_peer_with_its_share_of_connections_leaves_the_others_theirs)
{
    struct rig_options o = patient;
    struct xfer_head head = {.type = XFER_HELLO, .a = RIG_SRC_INC};
    struct xfer_stats stats;
    uint8_t buf[32];
    uint32_t open = 0;
    int fd[12];

    o.conns = 16; /* 8 inbound: 2 for each of 3 peers, and 2 for whoever comes first */
    o.peers = 3;
    rig_open(&o);
    for (uint64_t i = 1; i < 3; i++)
        xfer_admit(rig.src.xfer, (uint32_t)i, RIG_TOKEN + i);
    for (uint64_t i = 0; i < 12; i++) {
        head.b = RIG_TOKEN + (i < 8 ? 0 : i < 10 ? 1 : 2);
        xfer_put_head(buf, &head);
        fd[i] = rig_dial(rig.port);
        assert_int_equal(send(fd[i], buf, sizeof buf, MSG_NOSIGNAL), sizeof buf);
        for (uint32_t k = 0; k < 5; k++)
            rig_turn();
    }
    for (uint32_t i = 0; i < 12; i++)
        open += still_open(fd[i]);
    for (uint32_t i = 8; i < 12; i++)
        assert_true(still_open(fd[i]));
    xfer_stats(rig.src.xfer, &stats);
    assert_int_equal(open, 8);
    assert_int_equal(stats.conns, 8);
    assert_int_equal(stats.over_share, 4);
    assert_int_equal(stats.inbound_common, 2);
    for (uint32_t i = 0; i < 12; i++)
        close(fd[i]);
}

/* A source that sends more than was requested. */
TEST(xfer_unasked_bytes_from_a_source_close_the_connection)
{
    uint16_t port;
    int fd, peer = -1;

    rig_open(&options);
    fd = rig_listen(&port);
    rig_link(port, RIG_SRC_INC);
    rig_pull(PULL(0), 0, 0, 1, 1);
    while (peer < 0) {
        rig_turn();
        peer = accept(fd, NULL, NULL);
    }
    rig_stop(PULL(0));
    rig_until(&rig.dst, 1);
    assert_int_equal(rig.dst.event[0].kind, EV_PULL_QUIET);
    for (int i = 0; i < 64; i++) {
        if (send(peer, "this is not an answer to anything", 33, MSG_NOSIGNAL) < 0)
            break;
        rig_turn();
    }
    assert_true(send(peer, "x", 1, MSG_NOSIGNAL) < 0);
    assert_int_equal(rig.dst.nevents, 1);
    close(peer);
    close(fd);
}

TEST(xfer_create_refuses_bad_limits_and_says_why)
{
    struct xfer_config c = {.links = 1};
    struct xfer *xfer = NULL;
    const char *why = NULL;

    assert_int_equal(xfer_create(&c, &xfer, &why), TERN_INVALID);
    assert_null(xfer);
    assert_non_null(why);
    xfer_destroy(NULL);
}
