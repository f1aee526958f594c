/* The TCP transport and the faults of its bytes: tiny buffers, pages without memory, every split of
 * the stream, every flipped byte, every place to cut it. */
#include "seam/xfer/conn/data_conn.h"
#include "unit/rig/rig_lost.h"
#include "unit/seam/test_pulls_rig.h"

#define STILL_TURNS 500

/* The smallest buffers that the kernel gives: every send and receive is short. */
TEST(xfer_tiny_socket_buffers_change_nothing)
{
    struct rig_options o = {
        .page_bytes = {4096, 10000}, .units = 2, .regions = 2, .socket_buffer_bytes = 1};

    pull_and_check(&o, 120, 50);
}

static void options_are(const struct xfer *xfer, int buffer_bytes)
{
    static const int level[] = {IPPROTO_TCP, SOL_SOCKET, SOL_SOCKET};
    static const int name[] = {TCP_NODELAY, SO_SNDBUF, SO_RCVBUF};

    for (uint32_t i = 0; i < 3; i++) {
        int value = -1;
        socklen_t n = sizeof value;

        assert_int_equal(getsockopt(xfer->conns->conn[0].fd, level[i], name[i], &value, &n), 0);
        assert_int_equal(value, i == 0 ? 1 : 2 * buffer_bytes); /* the kernel doubles it */
    }
}

TEST(xfer_connections_send_at_once_and_have_the_buffers_asked_for)
{
    struct rig_options o = {.page_bytes = {4096}, .socket_buffer_bytes = 16384};

    rig_open_filled(&o, 40);
    pull_works(0);
    options_are(rig.dst.xfer, 16384);
    options_are(rig.src.xfer, 16384);
}

static uint64_t link_bytes(const char *transport)
{
    const char *word;
    uint64_t bytes;

    for (uint32_t i = 0; xfer_link_bytes(rig.dst.xfer, 0, i, &word, &bytes); i++)
        if (strcmp(word, transport) == 0)
            return bytes;
    fail_msg("there is no transport %s", transport);
    return 0;
}

TEST(xfer_links_count_the_bytes_of_their_pages)
{
    struct rig_options o = {.page_bytes = {4096}};
    struct xfer_stats stats;

    rig_open_filled(&o, 40);
    assert_int_equal(link_bytes("tcp"), 0);
    pull_works(0);
    xfer_stats(rig.dst.xfer, &stats);
    assert_int_equal(link_bytes("tcp"), 30 * 4096);
    assert_int_equal(stats.payload_bytes_in, 30 * 4096);
    assert_int_equal(link_bytes("local"), 0);
}

static void pull_arrives(struct pull_id pull, uint32_t first, uint32_t n)
{
    rig_pull(pull, 0, 0, first, n);
    rig_until(&rig.dst, 1);
    assert_int_equal(rig_check_pulled(&rig.dst.event[0], first, n), n);
    rig_stop(pull);
    rig_until(&rig.dst, 2);
    rig.dst.nevents = 0;
}

static void conns_are(uint32_t n)
{
    struct xfer_stats stats;

    xfer_stats(rig.dst.xfer, &stats);
    assert_int_equal(stats.conns, n);
}

static void seal_one(uint32_t index)
{
    struct page_at at = {.group = 0, .index = index, .gen = 1, .record = index};

    mem_seal(rig.src.mem, (struct seal_id){1, 2}, 0, &at, 1);
    mem_wait(rig.src.mem);
    mem_poll(rig.src.mem, rig_emit, &rig.src);
    assert_int_equal(rig.src.nevents, 1);
    rig.src.nevents = 0;
}

/* Fault 40 at the source: lost memory is not sent, nor is memory that was lost when it was sealed;
 * the connection's other traffic continues. */
TEST(xfer_source_page_without_memory_is_gone)
{
    struct rig_options o = {.page_bytes = {4096}};
    struct lost lost;

    rig_open(&o);
    lost_open(&lost, mem_page(rig.src.mem, 0, 0, 0, 17), 4096);
    rig_fill_source(301);
    pull_arrives(PULL(0), 1, 256);
    lost_cut(&lost);
    pull_breaks(PULL(1), 0, 0, 1, 256, TERN_GONE);
    pull_arrives(PULL(2), 18, 200);
    lost_back(&lost); /* as zeros */
    rig_pull(PULL(3), 0, 0, 1, 30);
    rig_until(&rig.dst, 1);
    assert_int_equal(rig_check_pulled(&rig.dst.event[0], 1, 30), 29);
    rig.dst.nevents = 0;
    lost_cut(&lost);
    seal_one(17);
    lost_back(&lost);
    pull_breaks(PULL(4), 0, 0, 1, 30, TERN_GONE);
    lost_is_one(&lost);
    rig_fill_source(301);
    pull_arrives(PULL(5), 1, 256);
    conns_are(1);
    lost_close(&lost);
}

/* And at the destination: the pull ends, the connection and its other pulls continue. */
TEST(xfer_destination_page_without_memory_is_corrupt)
{
    struct rig_options o = {.page_bytes = {4096}};
    struct lost lost;

    for (uint32_t index = 1; index < 256; index += 50) { /* at the edges of an operation, and not */
        rig_open_filled(&o, 301);
        lost_open(&lost, mem_page(rig.dst.mem, 0, 0, 0, index), 4096);
        lost_cut(&lost);
        rig_pull(PULL(0), 0, 0, 1, 256);
        rig_pull(PULL(1), 0, 0, 257, 20);
        rig_until(&rig.dst, 2);
        assert_int_equal(rig.dst.event[0].kind, EV_PULL_BROKEN);
        assert_true(pull_id_equal(rig.dst.event[0].broken.pull, PULL(0)));
        assert_int_equal(rig.dst.event[0].broken.err, TERN_CORRUPT);
        assert_int_equal(rig_check_pulled(&rig.dst.event[1], 257, 20), 20);
        rig_stop(PULL(0));
        rig_until(&rig.dst, 3);
        rig.dst.nevents = 0;
        lost_back(&lost);
        pull_arrives(PULL(2), 1, 256);
        lost_is_one(&lost);
        conns_are(1);
        lost_close(&lost);
        rig_close();
    }
}

/* The memory is lost when a part of a block has come, and its end lies elsewhere: the receive does
 * not notice it, the checksum does. */
TEST(xfer_memory_lost_before_it_is_hashed_is_a_wrong_page)
{
    struct rig_options o = {.page_bytes = {6144}, .by_proxy = true};
    struct mem_stats before, after;
    struct lost lost;
    uint64_t till;

    rig_open_filled(&o, 3);
    lost_open(&lost, (uint8_t *)mem_page(rig.dst.mem, 0, 0, 0, 0) + 4096, 4096);
    pull_arrives(PULL(0), 1, 1); /* from 6144 on: 2048 bytes lie there */
    mem_stats(rig.dst.mem, &before);
    till = rig.proxy.down + XFER_HEAD_BYTES + XFER_STATUS_BYTES(1) + sizeof(uint64_t) + 2048 + 100;
    rig.proxy.down_limit = till;
    rig_pull(PULL(1), 0, 0, 1, 1);
    while (rig.proxy.down < till)
        rig_turn();
    rig_take_all();
    assert_int_equal(rig.dst.nevents, 0);
    lost_cut(&lost);
    rig.proxy.down_limit = UINT64_MAX;
    rig_until(&rig.dst, 1);
    assert_int_equal(rig.dst.event[0].kind, EV_PULLED);
    assert_int_equal(rig_check_pulled(&rig.dst.event[0], 1, 1), 0);
    mem_stats(rig.dst.mem, &after);
    assert_int_equal(after.faults - before.faults, 1);
    rig.dst.nevents = 0;
    lost_back(&lost);
    pull_arrives(PULL(2), 1, 2);
    conns_are(1);
    lost_is_one(&lost);
    lost_close(&lost);
}

/* Fault 15: the stream down arrives in two parts, split at every place; then byte by byte. */
TEST(xfer_fault_15_every_split_is_the_same)
{
    struct rig_options o = {.page_bytes = {600}, .units = 2, .by_proxy = true};
    uint64_t total = 0;
    uint32_t runs = 0;

    rig_open_filled(&o, 4);
    for (uint64_t k = 0; k == 0 || k < total; k++, runs++) {
        uint64_t from = rig.proxy.down;

        rig.proxy.down_limit = k == 0 ? UINT64_MAX : from + k;
        rig_pull(PULL(0), 0, runs, 1, 3);
        while (rig.proxy.down_limit != UINT64_MAX && rig.proxy.down < rig.proxy.down_limit)
            rig_turn();
        rig_take_all();
        assert_int_equal(rig.dst.nevents, 0 + (k == 0 ? rig.dst.nevents : 0));
        rig.proxy.down_limit = UINT64_MAX;
        rig_until(&rig.dst, 1);
        assert_int_equal(rig_check_pulled(&rig.dst.event[0], 1, 3), 3);
        memset(mem_page(rig.dst.mem, 0, 0, 0, 0), 0, 4 * 600);
        rig.dst.nevents = 0;
        total = rig.proxy.down - from;
    }
    rig.proxy.chunk = 1;
    rig_pull(PULL(0), 0, 9, 1, 3);
    while (rig.dst.nevents == 0) {
        rig_turn();
        rig_take_all();
    }
    assert_int_equal(rig_check_pulled(&rig.dst.event[0], 1, 3), 3);
    assert_true(total > 1800);
    printf("fault=15 runs=%u injected=%u violations=0 splits=all offsets\n", runs, runs);
}

/* One event of the destination. After many turns without progress its time is over: by their
 * number, so that a machine that stands still causes no timeout, and with a pause in each for the
 * data threads. */
static void until_event_or_idle(void)
{
    uint64_t end = io_now_ns() + RIG_WAIT_NS, down = rig.proxy.down;

    for (uint32_t still = 0; rig.dst.nevents == 0; still++, down = rig.proxy.down) {
        assert_true(io_now_ns() < end);
        rig_turn();
        if (rig.proxy.down != down)
            still = 0;
        usleep(20);
        if (still == STILL_TURNS)
            xfer_tick(rig.dst.xfer, io_now_ns() + rig.idle_ns + 1);
    }
}

/* One bit of the stream down is flipped, at every byte: never a wrong page, always an end. */
TEST(xfer_every_flipped_byte_is_harmless)
{
    struct rig_options o = {.page_bytes = {300}, .by_proxy = true};
    uint32_t broken = 0, wrong = 0, right = 0;

    rig_open_filled(&o, 4);
    for (uint64_t k = 0; k < 32 + 16 + 24 + 900 + 40; k++) {
        rig.proxy.flip_at = rig.proxy.down + k;
        rig_pull((struct pull_id){0, (uint32_t)k + 1}, 0, 0, 1, 3);
        until_event_or_idle();
        if (rig.dst.event[0].kind == EV_PULL_BROKEN) {
            broken++;
        } else {
            uint32_t ok = rig_check_pulled(&rig.dst.event[0], 1, 3);

            right += ok == 3;
            wrong += ok < 3;
        }
        rig.dst.nevents = 0;
        rig.proxy.flip_at = UINT64_MAX;
        rig_stop((struct pull_id){0, (uint32_t)k + 1});
        rig_until(&rig.dst, 1);
        proxy_cut(&rig.proxy); /* a new connection each time */
        for (int i = 0; i < 3; i++)
            rig_turn();
        rig.dst.nevents = 0;
        memset(mem_page(rig.dst.mem, 0, 0, 0, 0), 0, 4 * 300);
    }
    assert_true(wrong >= 900);
    assert_true(broken >= 30);
    assert_true(right <= 40); /* padding, and verdicts of unrequested pages */
}

/* Fault 5: cut after every byte; PEER_LOST, and a later pull over a new connection is whole. */
TEST(xfer_fault_5_connection_cut_anywhere_ends_typed)
{
    struct rig_options o = {.page_bytes = {300}, .by_proxy = true};
    uint32_t runs = 0;

    rig_open_filled(&o, 4);
    for (uint64_t k = 1; k < 32 + 16 + 24 + 900 + 40; k += 7, runs++) {
        struct pull_id id = {0, (uint32_t)k + 1};

        rig.proxy.down_limit = k;
        rig_pull(id, 0, 0, 1, 3);
        while (rig.proxy.down < k)
            rig_turn();
        proxy_cut(&rig.proxy);
        expect_broken(id, TERN_PEER_LOST);
    }
    rig.proxy.down_limit = UINT64_MAX;
    rig_pull(PULL(0), 0, 0, 1, 3);
    rig_until(&rig.dst, 1);
    assert_int_equal(rig_check_pulled(&rig.dst.event[0], 1, 3), 3);
    printf("fault=5 runs=%u injected=%u violations=0\n", runs, runs);
}

TEST(xfer_listen_says_why_it_cannot)
{
    const struct rig_options o = {.page_bytes = {4096}, .units = 1};
    const char *why = "";
    uint16_t port = 0;

    rig_open(&o);
    assert_int_equal(xfer_listen(rig.dst.xfer, "127.0.0.1", rig.port, &port, &why), TERN_CONFLICT);
    assert_string_equal(why, "Address already in use");
    assert_int_equal(xfer_listen(rig.dst.xfer, "192.0.2.1", 0, &port, &why), TERN_INVALID);
    assert_string_equal(why, "Cannot assign requested address");
    assert_int_equal(port, 0);
}
