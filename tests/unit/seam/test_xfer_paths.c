/* A transfer over several connections (X8). Between the two daemons stands a relay that knows each
 * connection and can hold it back, slow it down or cut it after any byte. A path that fails is
 * retired, another path carries what it did not deliver, and no page is written by both. */
#include "seam/xfer/tcp/tcp.h"
#include "unit/seam/test_pulls_rig.h"

#define PAGE_BYTES (64u << 10)
#define CREDIT     (TCP_PATH_BYTES / PAGE_BYTES) /* pages asked for on one path */
#define PAGES      240u /* of one batch: 15 MiB, more than any path's credit */
#define RELAYS     16
#define IDLE_NS    2000000000u
#define BATCH      ((struct pull_id){0, 5})

/* A connection that came, and its connection to the source. */
struct relay {
    int client, server; /* -1: cut */
    uint64_t down;      /* bytes to the destination so far */
    uint64_t down_max;  /* it is cut after so many */
    bool held;          /* nothing goes down */
    uint64_t pause_ns, next_ns;
};

static struct {
    int listen_fd;
    uint16_t port;
    struct relay relay[RELAYS];
    uint32_t n;
    uint64_t down_max[RELAYS]; /* of new ones; UINT64_MAX: not cut */
    bool held[RELAYS];
    bool refuses; /* new ones are cut at once */
} net;

static void relay_cut(struct relay *r)
{
    if (r->client >= 0)
        close(r->client);
    if (r->server >= 0)
        close(r->server);
    r->client = r->server = -1;
}

static void relay_new(int fd)
{
    struct relay *r = &net.relay[net.n];

    assert_true(net.n < RELAYS);
    *r = (struct relay){.client = fd,
                        .server = net.refuses ? -1 : rig_dial(rig.port),
                        .down_max = net.down_max[net.n],
                        .held = net.held[net.n]};
    net.n++;
    if (net.refuses)
        relay_cut(r);
}

/* Returns false if it ended, or has to. */
static bool relay_copy(struct relay *r, int from, int to, bool down)
{
    static uint8_t buf[65536];
    uint64_t want = sizeof buf;
    ssize_t n, at = 0;

    if (down && r->pause_ns > 0)
        want = 1;
    if (down && r->down_max - r->down < want)
        want = r->down_max - r->down;
    if (want == 0)
        return false;
    if (down && (r->held || io_now_ns() < r->next_ns))
        return true;
    n = recv(from, buf, want, MSG_DONTWAIT);
    if (n <= 0)
        return n < 0 && errno == EAGAIN;
    for (ssize_t s; at < n; at += s)
        if ((s = send(to, buf + at, (size_t)(n - at), MSG_NOSIGNAL)) < 0)
            return false;
    if (down) {
        r->down += (uint64_t)n;
        r->next_ns = io_now_ns() + r->pause_ns;
    }
    return true;
}

static void turn(void)
{
    int fd = net.listen_fd < 0 ? -1 : accept(net.listen_fd, NULL, NULL);

    if (fd >= 0)
        relay_new(fd);
    for (uint32_t i = 0; i < net.n; i++) {
        struct relay *r = &net.relay[i];

        if (r->client >= 0 && (!relay_copy(r, r->client, r->server, false) ||
                               !relay_copy(r, r->server, r->client, true)))
            relay_cut(r);
    }
    rig_step();
    xfer_tick(rig.src.xfer, io_now_ns());
    xfer_tick(rig.dst.xfer, io_now_ns());
}

static void turn_until_events(uint32_t n)
{
    uint64_t deadline = io_now_ns() + RIG_WAIT_NS;

    while (rig.dst.nevents < n) {
        assert_true(io_now_ns() < deadline);
        turn();
    }
}

static void net_open(uint32_t connections, uint64_t idle_ns)
{
    struct rig_options o = {
        .page_bytes = {PAGE_BYTES}, .idle_ns = idle_ns, .conns = 32, .connections = connections};

    rig_open_filled(&o, PAGES + 41);
    memset(&net, 0, sizeof net);
    for (uint32_t i = 0; i < RELAYS; i++)
        net.down_max[i] = UINT64_MAX;
    net.listen_fd = rig_listen(&net.port);
    rig_link(net.port, RIG_SRC_INC);
}

static void net_close(void)
{
    for (uint32_t i = 0; i < net.n; i++)
        relay_cut(&net.relay[i]);
    if (net.listen_fd >= 0)
        close(net.listen_fd);
    rig_close();
}

static void poison(void)
{
    memset(mem_page(rig.dst.mem, 0, 0, 0, 1), 0xa5, (size_t)PAGES * PAGE_BYTES);
}

/* The transfer arrived whole, and ends. */
static void batch_came(void)
{
    assert_int_equal(rig.dst.nevents, 1);
    assert_int_equal(rig_check_pulled(&rig.dst.event[0], 1, PAGES), PAGES);
    rig_stop(BATCH);
    assert_int_equal(rig.dst.nevents, 2);
    assert_int_equal(rig.dst.event[1].kind, EV_PULL_QUIET);
}

/* A transfer of n pages from `first` on, which arrives whole. */
static void comes(struct pull_id pull, uint32_t first, uint32_t n)
{
    rig.dst.nevents = 0;
    rig_pull(pull, 0, 0, first, n);
    turn_until_events(1);
    assert_int_equal(rig.dst.event[0].pulled.pull.slot, pull.slot);
    assert_int_equal(rig_check_pulled(&rig.dst.event[0], first, n), n);
}

/* The transfer is stopped: QUIET comes, not at once if something `waits`, and from then on nothing
 * is written or reported. */
static void stops_for_good(bool waits)
{
    const uint8_t *first_page;

    rig_stop(BATCH);
    assert_true(!waits || rig.dst.nevents == 0);
    turn_until_events(1);
    assert_int_equal(rig.dst.event[0].kind, EV_PULL_QUIET);
    poison();
    first_page = mem_page(rig.dst.mem, 0, 0, 0, 1);
    for (uint32_t i = 0; i < 100; i++)
        turn();
    for (uint64_t i = 0; i < (uint64_t)PAGES * PAGE_BYTES; i += 64)
        assert_int_equal(first_page[i], 0xa5);
    assert_int_equal(rig.dst.nevents, 1);
}

/* The first of two delivers nothing; the other delivers all that the first was not asked for. */
static void first_holds_its_credit(uint64_t idle_ns)
{
    net_open(2, idle_ns);
    net.held[0] = true;
    rig_pull(BATCH, 0, 0, 1, PAGES);
    while (net.n < 2 || net.relay[1].down < (uint64_t)(PAGES - CREDIT) * PAGE_BYTES)
        turn();
}

/* The first of two delivers more than a page, and then nothing: a data thread has its receive. */
static void first_stops_within_a_page(void)
{
    net_open(2, IDLE_NS / 4);
    poison();
    rig_pull(BATCH, 0, 0, 1, PAGES);
    while (net.n == 0 || net.relay[0].down < PAGE_BYTES)
        turn();
    net.relay[0].held = true;
}

static struct xfer_stats stats_now(void)
{
    struct xfer_stats stats;

    xfer_stats(rig.dst.xfer, &stats);
    return stats;
}

TEST(xfer_paths_what_one_has_no_credit_for_goes_over_another)
{
    struct xfer_link_view view;

    net_open(3, IDLE_NS);
    net.held[0] = true; /* all requests on it are open */
    rig_pull(BATCH, 0, 0, 1, PAGES);
    while (net.n < 3 || net.relay[1].down + net.relay[2].down < 8u << 20)
        turn();
    assert_int_equal(rig.dst.nevents, 0);
    assert_int_equal(net.relay[0].down, 0);
    net.relay[0].held = false;
    turn_until_events(1);
    batch_came();
    assert_true(net.relay[0].down >= TCP_PATH_BYTES);
    assert_int_equal(stats_now().pages_again, 0);
    xfer_link_view(rig.dst.xfer, 0, &view);
    assert_int_equal(view.connections, 3);
    assert_true(view.conns_up >= 2 && view.conns_up == net.n);
    assert_int_equal(view.conns_retired, 0);
    net_close();
}

TEST(xfer_paths_small_transfer_calls_one)
{
    net_open(4, IDLE_NS);
    for (uint32_t i = 0; i < 5; i++)
        comes((struct pull_id){i, 5}, 1, 16);
    assert_int_equal(net.n, 1);
    net_close();
}

/* Cuts the path with that number after so many bytes from it. Until then the other delivers
 * nothing, which could otherwise deliver all pages first. */
static void dies_after(uint32_t path, uint64_t bytes)
{
    const uint64_t deadline = io_now_ns() + RIG_WAIT_NS;
    const uint32_t other = 1 - path;
    struct xfer_stats stats;

    net_open(2, IDLE_NS);
    net.down_max[path] = bytes;
    net.held[other] = true;
    poison();
    rig_pull(BATCH, 0, 0, 1, PAGES);
    while (net.n <= path || net.relay[path].client >= 0) {
        assert_true(io_now_ns() < deadline);
        turn();
    }
    net.held[other] = net.relay[other].held = false;
    turn_until_events(1);
    batch_came();
    stats = stats_now();
    assert_true(net.n >= 2);
    assert_int_equal(stats.conns_retired, 1);
    assert_true(stats.pages_again > 0);
    assert_int_equal(stats.pages_in, PAGES);
    assert_int_equal(stats.corrupt_detected, 0);
    net_close();
}

/* Cut after the request; within the head, the sums, a page; after all pages of a piece without a
 * tail; after the tail, and so a whole answer; then the same in a later piece, and anywhere. */
TEST(xfer_paths_one_dies_at_every_point_and_all_comes)
{
    enum {
        PIECE = TCP_PIECE_BYTES / PAGE_BYTES,
        SUMS = PIECE * 8,
        HEAD = XFER_HEAD_BYTES + XFER_STATUS_BYTES(PIECE),
        BODY = TCP_PIECE_BYTES
    };
    static const uint64_t points[] = {1,
                                      HEAD - 1,
                                      HEAD,
                                      HEAD + SUMS / 2,
                                      HEAD + SUMS,
                                      HEAD + SUMS + PAGE_BYTES / 2,
                                      HEAD + SUMS + PAGE_BYTES,
                                      HEAD + SUMS + 5 * PAGE_BYTES + 7,
                                      HEAD + SUMS + BODY - 1,
                                      HEAD + SUMS + BODY,
                                      HEAD + SUMS + BODY + XFER_TAIL_BYTES / 2,
                                      HEAD + SUMS + BODY + XFER_TAIL_BYTES,
                                      2 * (HEAD + SUMS + BODY) + XFER_TAIL_BYTES};
    struct prng p;

    for (uint32_t i = 0; i < 2 * sizeof points / sizeof points[0]; i++)
        dies_after(i % 2, points[i / 2]);
    prng_init(&p, 3);
    for (uint32_t i = 0; i < 10; i++)
        dies_after(i % 2, 1 + prng_below(&p, 3u << 20));
}

/* The only path: the next one is dialled at once, and the transfer continues. */
TEST(xfer_paths_last_one_dies_and_another_is_called)
{
    net_open(2, IDLE_NS);
    net.down_max[0] = 300000;
    comes(BATCH, 1, 16);
    assert_int_equal(net.n, 2);
    net_close();
}

/* Each connection breaks after a few bytes: the transfer ends instead of lasting for ever. */
TEST(xfer_paths_all_die_again_and_again_ends_peer_lost)
{
    net_open(2, IDLE_NS);
    for (uint32_t i = 0; i < RELAYS; i++)
        net.down_max[i] = 100;
    rig_pull(BATCH, 0, 0, 1, 16); /* two pieces, which are lost together */
    turn_until_events(1);
    assert_int_equal(rig.dst.event[0].kind, EV_PULL_BROKEN);
    assert_int_equal(rig.dst.event[0].broken.err, TERN_PEER_LOST);
    assert_true(net.n > XFER_LOST_MAX && net.n < RELAYS);
    rig_stop(BATCH);
    turn_until_events(2);
    assert_int_equal(rig.dst.event[1].kind, EV_PULL_QUIET);
    net_close();
}

/* A failed path is dialled again, after a pause; meanwhile the link reports the remaining ones. */
TEST(xfer_paths_retired_one_is_called_again)
{
    uint64_t deadline = io_now_ns() + RIG_WAIT_NS, gen = 6;
    struct xfer_link_view view;

    net_open(2, IDLE_NS);
    net.down_max[1] = 200000;
    rig_pull(BATCH, 0, 0, 1, PAGES);
    while (stats_now().conns_retired == 0)
        turn();
    xfer_link_view(rig.dst.xfer, 0, &view);
    assert_int_equal(view.conns_retired, 1);
    assert_int_equal(view.conns_up, 1);
    turn_until_events(1);
    batch_came();
    for (; net.n < 3; gen++) {
        assert_true(io_now_ns() < deadline);
        comes((struct pull_id){1, (uint32_t)gen}, 1, PAGES);
    }
    for (uint32_t i = 0; i < 200; i++)
        turn();
    xfer_link_view(rig.dst.xfer, 0, &view);
    assert_int_equal(view.conns_up, 2);
    assert_int_equal(view.conns_retired, 0);
    net_close();
}

/* A silent path blocks only its credit; the rest arrives, and that after the limit. */
TEST(xfer_paths_silent_one_holds_its_credit_alone)
{
    first_holds_its_credit(IDLE_NS / 4);
    assert_int_equal(rig.dst.nevents, 0);
    turn_until_events(1);
    batch_came();
    assert_int_equal(net.relay[0].down, 0);
    assert_int_equal(stats_now().pages_again, CREDIT);
    net_close();
}

/* One byte now and then, for ever: other transfers use the other path. */
TEST(xfer_paths_slow_one_holds_no_other_transfer_up)
{
    first_holds_its_credit(IDLE_NS);
    net.relay[0].held = false;
    net.relay[0].pause_ns = IDLE_NS / 50;
    for (uint32_t i = 1; i < 6; i++)
        comes((struct pull_id){i, 5}, PAGES + 1, 40);
    assert_true(net.relay[0].client >= 0);
    rig.dst.nevents = 0;
    rig_stop(BATCH);
    turn_until_events(1);
    assert_int_equal(rig.dst.event[0].kind, EV_PULL_QUIET);
    net_close();
}

/* A pull is stopped just after its path died: QUIET waits for the receive, and nothing is requested
 * again. */
TEST(xfer_paths_stop_of_a_pull_whose_path_died)
{
    struct prng p;

    prng_init(&p, 9);
    for (uint32_t k = 0; k < 12; k++) {
        net_open(2, IDLE_NS);
        net.down_max[k % 2] = 1000 + prng_below(&p, 2u << 20);
        rig_pull(BATCH, 0, 0, 1, PAGES);
        while (stats_now().conns_retired == 0 && rig.dst.nevents == 0)
            turn();
        rig.dst.nevents = 0;
        stops_for_good(false);
        net_close();
    }
}

/* X1. The path fails while a data thread has its receive, in the middle of a page: only the
 * returned receive proves that nothing writes the pages any more, not its cancel. */
TEST(xfer_paths_quiet_waits_for_the_receive_of_a_dead_one)
{
    first_stops_within_a_page();
    while (stats_now().conns_retired == 0)
        turn(); /* the tick that fails the path ends it */
    assert_true(net.n == 2 && net.relay[0].down < 4u << 20);
    stops_for_good(true);
    net_close();
}

/* The same, and the transfer continues: the dead path's pages are requested again, and arrive. */
TEST(xfer_paths_one_dies_with_its_receive_away_and_all_comes)
{
    first_stops_within_a_page();
    turn_until_events(1);
    batch_came();
    assert_int_equal(stats_now().conns_retired, 1);
    assert_true(stats_now().pages_again > 0);
    net_close();
}

/* A destination that requests much and reads almost nothing delays only its own connection. */
TEST(xfer_paths_destination_that_does_not_read_holds_nobody_up)
{
    enum { ONE = XFER_HEAD_BYTES + 16 * XFER_ENTRY_BYTES };
    uint8_t buf[XFER_HEAD_BYTES + 8 * ONE], byte;
    struct xfer_head head = {
        .type = XFER_REQUEST, .n = 16, .a = serve_id_pack((struct serve_id){0, 7})};
    int fd;

    net_open(1, IDLE_NS);
    fd = rig_dial(rig.port);
    xfer_put_head(buf, &(struct xfer_head){.type = XFER_HELLO, .a = RIG_SRC_INC, .b = RIG_TOKEN});
    for (uint8_t *at = buf + XFER_HEAD_BYTES; head.seq < 8; head.seq++, at += ONE) {
        xfer_put_head(at, &head);
        for (uint32_t i = 0; i < 16; i++)
            xfer_put_entry(at + XFER_HEAD_BYTES + i * XFER_ENTRY_BYTES,
                           &(struct xfer_entry){.index = 1 + i, .gen = 101 + i});
    }
    assert_int_equal(send(fd, buf, sizeof buf, MSG_NOSIGNAL), sizeof buf);
    for (uint32_t i = 0; i < 5; i++) {
        comes((struct pull_id){i, 5}, 1, PAGES);
        assert_true(recv(fd, &byte, 1, MSG_DONTWAIT) == 1);
    }
    close(fd);
    net_close();
}
