/* Wrong input of a peer on the control connection: a raw socket plays the other daemon. Faults 11
 * and 27 of the fault table. Messages about RDMA paths are handled alike in a build without RDMA,
 * on a host without a device and on one with a device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/core.h"
#include "engine/admin.h"
#include "engine/json.h"
#include "rig_daemon.h"
#include "seam/xfer/xfer.h"
#include "shell/peers/link.h"
#include "testing/test.h"

#define STORM_MS    3000
#define STORM_DIALS 8 /* pauses of 100, 200, 400, 800, 1600 ms, each a quarter shorter at most */
#define SILENT_MS   15000 /* by then a silent peer is given up; the daemon's limit is 5 s */

#define SLACK_MS    3500 /* over a deadline, on a busy machine; the daemon's own are longer */
#define RSS_SLACK   2048 /* KiB that the daemon may grow by */
#define DEEP_LEVELS 100000
#define MANY        20     /* peers that send half a message each */
#define LONG        200000 /* tokens of a message in several pieces */

#define EPOCH    41u /* of paths: any number */
#define NOT_READ "peer=other dir=in reason=\"a message is malformed or out of order\""

static struct daemon rig;
static struct rig_answer answer;
static int listener; /* where the daemon dials its peer */
static uint16_t listener_port;
static struct tern *admin;
static uint32_t unread; /* links of this daemon that ended as NOT_READ says */

/* The peer may ask for one of the daemon's two tenants. */
static int start_with(const char *transport)
{
    char extra[512 + MANY * 80];

    listener_port = 0;
    listener = rig_listen(&listener_port);
    snprintf(extra, sizeof(extra),
             "  - name: t2\n    socket: /tmp/tern-e2e-t2-%d.sock\n    memory: 1M\n"
             "listen: 127.0.0.1:0\ninsecure_peers: true\npeers:\n  - name: other\n"
             "    address: 127.0.0.1:%u\n    tenants: [t0]\n    transport: %s\n",
             (int)getpid(), listener_port, transport);
    rig_start(&rig, extra, NULL);
    unread = 0;
    assert_true(rig.control_port != 0 && rig.data_port != 0);
    admin = rig_connected(rig.admin);
    return 0;
}

FIXTURE(start)
{
    return start_with("tcp");
}

/* MANY peers besides `other`, which the daemon cannot dial. */
FIXTURE(start_many)
{
    char peers[MANY * 80 + 80] = "tcp\n";
    size_t n = strlen(peers);

    for (uint32_t i = 0; i < MANY; i++)
        n += (size_t)snprintf(peers + n, sizeof(peers) - n,
                              "  - {name: p%u, address: \"127.0.0.1:1\", tenants: [t0]}\n", i);
    return start_with(peers);
}

/* For tests that wait for a deadline to pass. */
FIXTURE(start_short)
{
    rig_deadlines.progress_ms = RIG_PARTIAL_MS;
    return start(state);
}

FIXTURE(start_auto)
{
    return start_with("auto");
}

FIXTURE(stop)
{
    close(listener);
    tern_destroy(admin);
    assert_int_equal(rig_stop(&rig), 0);
    return 0;
}

static int greeted(void)
{
    int fd = rig_peer_dials(&rig, "other", &answer);

    assert_int_equal(rig_status(&answer), TERN_OK);
    return fd;
}

/* Sends a message that names nothing that exists: the core ignores it. */
static bool send_kind(int fd, enum peer_msg_kind kind, uint64_t sequence)
{
    Tern__Wire__PeerMsg m = TERN__WIRE__PEER_MSG__INIT;

    m.has_kind = m.has_pull = m.has_sequence = true;
    m.has_serve = kind == PEER_PULL_DONE;
    m.has_err = kind == PEER_PULL_OFFER;
    m.kind = kind;
    m.pull = 0x500000001;
    m.serve = 0x600000001;
    m.err = TERN_GONE;
    m.sequence = sequence;
    return rig_message(fd, FRAME_PEER_MSG, 0, 0, &m.base);
}

static bool send_done(int fd, uint64_t sequence)
{
    return send_kind(fd, PEER_PULL_DONE, sequence);
}

TEST_GROUP(start, stop);

TEST(peer_of_another_name_is_denied)
{
    int fd = rig_peer_dials(&rig, "stranger", &answer);

    assert_int_equal(rig_status(&answer), TERN_DENIED);
    assert_closed_at_once(fd);
}

TEST(peer_message_before_hello_is_closed)
{
    int fd = rig_connect_tcp(rig.control_port);

    assert_true(send_done(fd, 1));
    assert_closed_at_once(fd);
}

TEST(peer_large_frame_before_hello_is_closed)
{
    struct frame_header h = {
        .length = 5000, .version = FRAME_VERSION, .type = FRAME_PEER_HELLO, .request_id = 1};
    uint8_t head[FRAME_HEADER_BYTES];
    int fd = rig_connect_tcp(rig.control_port);

    frame_encode(&h, head);
    assert_true(rig_write(fd, head, sizeof(head)));
    assert_closed(fd, RIG_AT_ONCE_MS);
}

/* ---- no frame, or half of one; a client is served meanwhile, and memory does not grow */

static void client_is_served(uint64_t most_rss_kib)
{
    int fd = rig_greeted(rig.socket);

    assert_true(rig_ping(fd, 2, RIG_AT_ONCE_MS));
    assert_true(rig_rss_kib(&rig) <= most_rss_kib);
    close(fd);
}

/* The daemon closes within ms; the connection is greeted first, or not. */
static void ends_within(bool greet, const void *bytes, size_t n, uint32_t ms)
{
    int fd = greet ? greeted() : rig_connect_tcp(rig.control_port);

    assert_true(rig_write(fd, bytes, n));
    assert_closed(fd, ms);
}

TEST(peer_impossible_header_is_closed_at_once)
{
    static const uint32_t lengths[] = {0, LINK_BODY_MAX + 1, UINT32_MAX};
    uint64_t rss = rig_rss_kib(&rig) + RSS_SLACK;

    for (uint32_t i = 0; i < 6; i++) {
        struct frame_header h = {
            .length = lengths[i % 3], .version = FRAME_VERSION, .type = FRAME_PEER_MSG};
        uint8_t head[FRAME_HEADER_BYTES];

        frame_encode(&h, head);
        ends_within(i >= 3, head, sizeof head, RIG_AT_ONCE_MS);
        client_is_served(rss);
    }
}

/* Field 15 of a PeerMsg is a list of messages: a hundred thousand nested in one another, or as many
 * empty ones as fit a body. Neither has a kind, and both end the link. */
TEST(peer_hostile_message_ends_the_link)
{
    uint64_t rss = UINT64_MAX;
    uint8_t *frame = malloc(FRAME_HEADER_BYTES + LINK_BODY_MAX);
    struct frame_header h = {.version = FRAME_VERSION, .type = FRAME_PEER_MSG};

    assert_non_null(frame);
    for (uint32_t i = 0; i < 10; i++) {
        uint8_t *end = frame + FRAME_HEADER_BYTES + LINK_BODY_MAX, *body;
        size_t n = i % 2 ? rig_nest(end, 15, DEEP_LEVELS) : LINK_BODY_MAX;

        body = end - n;
        for (size_t k = 0; i % 2 == 0 && k < n; k += 2) {
            body[k] = 15 << 3 | 2;
            body[k + 1] = 0;
        }
        h.length = (uint32_t)n;
        frame_encode(&h, body - FRAME_HEADER_BYTES);
        ends_within(true, body - FRAME_HEADER_BYTES, FRAME_HEADER_BYTES + n, RIG_AT_ONCE_MS);
        client_is_served(rss);
        if (i == 1) /* the first of each kind touched all the memory that such a message uses */
            rss = rig_rss_kib(&rig) + RSS_SLACK;
    }
    free(frame);
}

TEST(peer_messages_in_order_keep_the_link)
{
    Tern__Wire__Empty m = TERN__WIRE__EMPTY__INIT;
    int fd = greeted();

    for (uint64_t i = 1; i <= 20; i++)
        assert_true(send_done(fd, i));
    assert_true(rig_message(fd, FRAME_PING, 9, 0, &m.base));
    assert_int_equal(rig_read(fd, RIG_WAIT_MS, &answer), RIG_FRAME);
    assert_int_equal(answer.h.type, FRAME_PING_REPLY);
    close(fd);
}

/* Fault 27. */
TEST(peer_message_out_of_order_ends_the_link)
{
    static const uint64_t wrong[] = {0, 2, 3, 5, UINT64_MAX};

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        int fd = greeted();

        assert_true(send_done(fd, 1));
        assert_true(send_done(fd, 2));
        assert_true(send_done(fd, 3));
        assert_true(send_done(fd, wrong[i]));
        assert_closed(fd, RIG_AT_ONCE_MS);
    }
    assert_true(rig_alive(&rig));
    printf("fault=27 runs=5 injected=5 violations=0 applied=0\n");
}

TEST(peer_that_connects_anew_replaces_its_old_link)
{
    int old = greeted(), fresh = greeted();

    assert_true(rig_until_closed(old, RIG_AT_ONCE_MS) != UINT32_MAX);
    assert_true(send_done(fresh, 1));
    assert_true(rig_until_closed(fresh, 300) == UINT32_MAX);
    close(old);
    close(fresh);
}

TEST(peer_message_of_the_wrong_side_ends_the_link)
{
    int fd = greeted();

    assert_true(send_kind(fd, PEER_PULL_OFFER, 1)); /* the dialler pulls; the source offers */
    assert_closed(fd, RIG_AT_ONCE_MS);
}

/* Reads the next frame, except pings of the daemon. */
static void read_frame(int fd)
{
    do
        assert_int_equal(rig_read(fd, RIG_WAIT_MS, &answer), RIG_FRAME);
    while (answer.h.type == FRAME_PING);
}

static const Tern__Wire__PeerMsg *open_pull_at(int fd, const char *tenant, uint64_t sequence)
{
    static const uint32_t tokens[64] = {1, 2, 3};
    Tern__Wire__PeerMsg m = TERN__WIRE__PEER_MSG__INIT;

    m.has_kind = m.has_pull = m.has_sequence = m.has_to = m.has_tokens = true;
    m.kind = PEER_PULL_OPEN;
    m.pull = 0x100000001;
    m.sequence = sequence;
    m.tenant = (char *)(uintptr_t)tenant;
    m.to = 64;
    m.tokens = wire_bytes(tokens, sizeof(tokens));
    assert_true(rig_message(fd, FRAME_PEER_MSG, 0, 0, &m.base));
    read_frame(fd);
    return rig_decoded(&answer, FRAME_PEER_MSG);
}

static const Tern__Wire__PeerMsg *open_pull(int fd, const char *tenant)
{
    return open_pull_at(fd, tenant, 1);
}

TEST(peer_gets_no_tenant_that_is_not_allowed)
{
    int fd = greeted();
    const Tern__Wire__PeerMsg *offer = open_pull(fd, "t1");

    assert_int_equal(offer->kind, PEER_PULL_OFFER);
    assert_int_equal(offer->err, TERN_DENIED);
    assert_int_equal(offer->pull, 0x100000001);
    assert_int_equal(offer->sequence, 1);
    close(fd);
    fd = greeted();
    offer = open_pull(fd, "t0"); /* allowed, and found nothing */
    assert_int_equal(offer->kind, PEER_PULL_OFFER);
    assert_int_not_equal(offer->err, TERN_DENIED);
    close(fd);
}

/* Fault 11: a peer that hangs up at once. */
TEST(dials_of_a_peer_that_hangs_up_are_few)
{
    uint64_t end;
    int dials = 0, fd;

    close(rig_accept_fresh(listener)); /* whatever the pause was before */
    end = rig_now_ms() + STORM_MS;
    while (rig_now_ms() < end) {
        fd = rig_accept(listener, 50);
        if (fd < 0)
            continue;
        dials++;
        close(fd);
    }
    printf("fault=11 runs=1 injected=%d violations=0 attempts_per_s=%.1f\n", dials,
           dials * 1000.0 / STORM_MS);
    assert_true(dials <= STORM_DIALS);
}

/* Lets the daemon dial and answers as `node`. */
static int answer_dial(const char *node, bool understands_rdma)
{
    int fd = rig_accept_fresh(listener);

    rig_answer_hello(fd, node, listener_port, understands_rdma);
    return fd;
}

TEST(dial_that_another_node_answers_is_closed)
{
    int fd = answer_dial("stranger", false);

    assert_true(rig_until_closed(fd, RIG_AT_ONCE_MS) != UINT32_MAX);
    assert_true(rig_log_has(&rig, "event=peer_mismatch", RIG_WAIT_MS));
    close(fd);
}

/* ---- messages about RDMA paths ---- */

/* Every field is valid. */
static Tern__Wire__PeerPath path_of(enum xfer_path_kind kind, uint64_t sequence)
{
    static uint8_t gid[WIRE_GID_BYTES] = {0xfe, 0x80};
    static struct xfer_mr chunk = {.addr = 4096, .bytes = 4096, .rkey = 7};
    Tern__Wire__PeerPath m = TERN__WIRE__PEER_PATH__INIT;

    m.has_kind = m.has_epoch = m.has_rail = m.has_mtu = m.has_sequence = true;
    m.has_gid = m.has_chunks = true;
    m.kind = kind;
    m.tenant = (char *)(uintptr_t) "t0";
    m.epoch = EPOCH;
    m.mtu = 3;
    m.gid = wire_bytes(gid, sizeof gid);
    m.chunks = wire_bytes(&chunk, sizeof chunk);
    m.sequence = sequence;
    return m;
}

static bool say(int fd, const Tern__Wire__PeerPath *m)
{
    return rig_message(fd, FRAME_PEER_PATH, 0, 0, &m->base);
}

/* The daemon has taken all earlier messages, and the link is up. The daemon may offer paths. */
static void lives(int fd)
{
    Tern__Wire__Empty m = TERN__WIRE__EMPTY__INIT;

    assert_true(rig_message(fd, FRAME_PING, 9, 0, &m.base));
    do
        read_frame(fd);
    while (answer.h.type == FRAME_PEER_PATH);
    assert_int_equal(answer.h.type, FRAME_PING_REPLY);
}

/* The link ends and is counted, and the log has the reason: once a link. */
static void ends_unread(int fd)
{
    assert_true(rig_until_closed(fd, RIG_AT_ONCE_MS) != UINT32_MAX);
    assert_int_equal(rig_figure(admin, "peers", "peers.0.breaches"), unread + 1);
    assert_true(rig_log_has_times(&rig, NOT_READ, ++unread, RIG_WAIT_MS));
    assert_false(rig_log_has_times(&rig, NOT_READ, unread + 1, 0));
    assert_true(rig_alive(&rig));
    close(fd);
}

/* Sent as the second message of a valid link. */
static void breaks(const Tern__Wire__PeerPath *wrong)
{
    Tern__Wire__PeerPath good = path_of(XFER_PATH_ANSWER, 1);
    int fd = greeted();

    assert_true(say(fd, &good));
    assert_true(say(fd, wrong));
    ends_unread(fd);
}

/* Checks the answer to an offer; the link continues with the next numbers of both sides. */
static void offered(const char *tenant, const char *reason)
{
    Tern__Wire__PeerPath m = path_of(XFER_PATH_OFFER, 1);
    const Tern__Wire__PeerMsg *pull;
    const Tern__Wire__PeerPath *back;
    int fd = greeted();

    m.tenant = (char *)(uintptr_t)tenant;
    assert_true(say(fd, &m));
    read_frame(fd);
    back = rig_decoded(&answer, FRAME_PEER_PATH);
    assert_string_equal(back->tenant, tenant);
    assert_int_equal(back->epoch, EPOCH);
    assert_int_equal(back->sequence, 1);
    if (reason) {
        assert_int_equal(back->kind, XFER_PATH_REFUSE);
        assert_string_equal(back->text, reason);
        assert_false(back->has_qpn || back->has_gid || back->has_chunks || back->has_windows);
    }
    pull = open_pull_at(fd, "t0", 2);
    assert_int_equal(pull->kind, PEER_PULL_OFFER);
    assert_int_not_equal(pull->err, TERN_DENIED);
    assert_int_equal(pull->sequence, 2);
    lives(fd);
    close(fd);
}

/* The peer's paths in `ternctl peers`: counts them; none may be past its offer. */
static size_t paths_waiting(void)
{
    json_t *peers = admin_ask(admin, "peers", NULL), *row = json_at(peers, "peers.0"),
           *paths = json_object_get(row, "paths"), *path;
    size_t i, n = json_array_size(paths);

    assert_true(json_says(row, "state", "up"));
    assert_false(json_says(row, "transport", "verbs"));
    json_array_foreach(paths, i, path)
    {
        assert_true(json_says(path, "state", "making") || json_says(path, "state", "offered"));
    }
    json_decref(peers);
    return n;
}

/* Returns the daemon's own link, on which it offers paths if it has a device. */
static int dialled(void)
{
    int fd = answer_dial("other", true);

    assert_true(rig_log_has(&rig, "event=link_up link=0 peer=other dir=out", RIG_WAIT_MS));
    return fd;
}

TEST_GROUP(NULL, NULL);

TEST_WITH(peer_that_goes_silent_is_given_up, start, stop)
{
    int fd = rig_accept_fresh(listener);
    uint64_t start_ms = rig_now_ms();

    rig_answer_hello(fd, "other", listener_port, false);
    assert_true(rig_log_has(&rig, "event=link_up link=0 peer=other dir=out", RIG_WAIT_MS));
    assert_true(rig_until_closed(fd, SILENT_MS) != UINT32_MAX);
    assert_true(rig_now_ms() - start_ms >= 3000);
    close(fd);
}

TEST_WITH(path_message_in_order_keeps_the_link, start_auto, stop)
{
    Tern__Wire__PeerPath answered = path_of(XFER_PATH_ANSWER, 2);
    Tern__Wire__PeerPath refused = path_of(XFER_PATH_REFUSE, 3);
    int fd = greeted();

    assert_true(send_done(fd, 1)); /* both kinds are counted together */
    assert_true(say(fd, &answered));
    assert_true(say(fd, &refused));
    assert_true(send_done(fd, 4));
    lives(fd);
    close(fd);
}

TEST_WITH(path_message_of_no_kind_ends_the_link, start_auto, stop)
{
    static const uint32_t kinds[] = {0, XFER_PATH_KINDS, 77, UINT32_MAX};
    Tern__Wire__PeerPath m = path_of(XFER_PATH_ANSWER, 2);

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        m.kind = kinds[i];
        breaks(&m);
    }
    m.has_kind = false;
    breaks(&m);
}

TEST_WITH(path_message_of_wrong_lengths_ends_the_link, start_auto, stop)
{
    static uint8_t bytes[WIRE_CHUNK_BYTES * (WIRE_CHUNKS_MAX + 1)];
    static const size_t gid[] = {0, WIRE_GID_BYTES - 1, WIRE_GID_BYTES + 1},
                        chunks[] = {WIRE_CHUNK_BYTES - 1, WIRE_CHUNK_BYTES + 1, sizeof bytes},
                        windows[] = {WIRE_WINDOW_BYTES - 1, WIRE_WINDOW_BYTES + 1,
                                     WIRE_WINDOW_BYTES * (WIRE_WINDOWS_MAX + 1)};

    for (size_t i = 0; i < sizeof gid / sizeof gid[0]; i++) {
        Tern__Wire__PeerPath m = path_of(XFER_PATH_ANSWER, 2);

        m.gid = wire_bytes(bytes, gid[i]);
        breaks(&m);
        m = path_of(XFER_PATH_ANSWER, 2);
        m.chunks = wire_bytes(bytes, chunks[i]);
        breaks(&m);
        m = path_of(XFER_PATH_ANSWER, 2);
        m.has_windows = true;
        m.windows = wire_bytes(bytes, windows[i]);
        breaks(&m);
    }
}

TEST_WITH(path_message_of_long_texts_ends_the_link, start_auto, stop)
{
    static char text[WIRE_TEXT_MAX + 2];
    Tern__Wire__PeerPath m = path_of(XFER_PATH_REFUSE, 2);

    memset(text, 'x', sizeof text - 1);
    m.text = text;
    breaks(&m);
    m = path_of(XFER_PATH_REFUSE, 2);
    m.tenant = text;
    breaks(&m);
}

TEST_WITH(path_message_that_is_none_ends_the_link, start_auto, stop)
{
    int fd = greeted();

    assert_true(rig_frame(fd, FRAME_PEER_PATH, 0, "\xff\xff\xff", 3));
    ends_unread(fd);
}

/* Fault 27: also for an offer; a second one would make another queue pair. */
TEST_WITH(path_message_out_of_order_ends_the_link, start_auto, stop)
{
    static const uint64_t wrong[] = {0, 1, 3, UINT64_MAX};

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        Tern__Wire__PeerPath m = path_of(XFER_PATH_ANSWER, wrong[i]);

        breaks(&m);
        m = path_of(XFER_PATH_OFFER, wrong[i]);
        breaks(&m);
    }
}

TEST_WITH(path_message_and_peer_message_of_one_number_end_the_link, start_auto, stop)
{
    Tern__Wire__PeerPath m = path_of(XFER_PATH_ANSWER, 1);
    int fd = greeted();

    assert_true(send_done(fd, 1));
    assert_true(say(fd, &m));
    ends_unread(fd);
    fd = greeted();
    assert_true(say(fd, &m));
    assert_true(send_done(fd, 1));
    assert_closed(fd, RIG_AT_ONCE_MS);
}

TEST_WITH(path_of_a_tenant_that_is_not_allowed_is_refused, start_auto, stop)
{
    static const char *const why = "the peer may not ask for that tenant";

    assert_false(rig_log_has(&rig, "event=path_denied", 0));
    offered("t2", why); /* a tenant that this peer may not ask for */
    assert_true(rig_log_has_times(&rig, "event=path_denied peer=other", 1, RIG_WAIT_MS));
    offered("t1", why); /* a tenant that does not exist */
    assert_true(rig_log_has_times(&rig, "event=path_denied peer=other", 2, RIG_WAIT_MS));
    offered("t0", NULL); /* with a device it may be accepted */
    assert_false(rig_log_has_times(&rig, "event=path_denied", 3, 0));
}

TEST_WITH(answer_of_no_offer_changes_nothing, start_auto, stop)
{
    static const enum xfer_path_kind kinds[] = {XFER_PATH_ANSWER, XFER_PATH_REFUSE};
    int fd = dialled();
    uint64_t sequence = 0;
    const Tern__Wire__PeerPath *offer;
    uint32_t epoch = EPOCH;
    uint64_t stale;
    size_t paths = paths_waiting();

    if (paths > 0) {
        read_frame(fd);
        offer = rig_decoded(&answer, FRAME_PEER_PATH);
        epoch = offer->epoch;
    }
    stale = rig_figure(admin, "status", "data.verbs.stale_answers");
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        const uint32_t none[] = {epoch + 1000, epoch - 1000, 0, epoch};

        for (size_t k = 0; k < sizeof none / sizeof none[0]; k++) {
            Tern__Wire__PeerPath m = path_of(kinds[i], ++sequence);

            m.epoch = none[k];
            m.rail = none[k] == epoch ? XFER_RAILS_INITIAL - 1 : 0; /* no device has that number */
            assert_true(say(fd, &m));
        }
    }
    assert_true(send_kind(fd, PEER_PULL_OFFER, ++sequence));
    lives(fd);
    assert_int_equal(paths_waiting(), paths);
    assert_int_equal(rig_figure(admin, "status", "data.verbs.paths_up"), 0);
    assert_int_equal(rig_figure(admin, "status", "data.verbs.paths_failed"), 0);
    assert_int_equal(rig_figure(admin, "status", "data.verbs.stale_answers"),
                     stale + (paths > 0 ? 8 : 0));
    assert_true(send_kind(fd, PEER_PULL_OFFER, ++sequence));
    lives(fd);
    close(fd);
}

/* Half large messages of many peers neither stop their links nor keep a large message of another
 * peer from being answered. */
TEST_WITH(peers_half_messages_end_no_link, start_many, stop)
{
    static uint32_t tokens[LONG];
    struct frame_header h = {
        .length = LINK_BODY_MAX, .version = FRAME_VERSION, .type = FRAME_PEER_MSG};
    Tern__Wire__PeerMsg m = TERN__WIRE__PEER_MSG__INIT;
    uint8_t half[FRAME_HEADER_BYTES + 5000] = {0};
    int fd[MANY], other;
    char name[16];

    frame_encode(&h, half);
    for (uint32_t i = 0; i < MANY; i++) {
        snprintf(name, sizeof(name), "p%u", i);
        fd[i] = rig_peer_dials(&rig, name, &answer);
        assert_int_equal(rig_status(&answer), TERN_OK);
        assert_true(rig_write(fd[i], half, sizeof(half)));
    }
    other = greeted();
    m.has_kind = m.has_pull = m.has_sequence = m.has_to = m.has_tokens = true;
    m.kind = PEER_PULL_OPEN;
    m.pull = 0x100000001;
    m.sequence = 1;
    m.tenant = (char *)(uintptr_t) "t0";
    m.to = LONG;
    m.tokens = wire_bytes(tokens, sizeof(tokens));
    assert_true(rig_message(other, FRAME_PEER_MSG, 0, 0, &m.base));
    read_frame(other);
    assert_int_equal(answer.h.type, FRAME_PEER_MSG);
    for (uint32_t i = 0; i < MANY; i++) {
        assert_true(rig_until_closed(fd[i], 1) == UINT32_MAX);
        close(fd[i]);
    }
    close(other);
}

TEST_GROUP(start_short, stop);

TEST(peer_half_frame_is_closed_at_its_deadline)
{
    static const uint32_t cuts[] = {1, FRAME_HEADER_BYTES, 100000};
    struct frame_header h = {.length = 200000, .version = FRAME_VERSION, .type = FRAME_PEER_MSG};
    uint64_t rss = rig_rss_kib(&rig) + RSS_SLACK;
    uint8_t *frame = calloc(1, h.length);

    assert_non_null(frame);
    frame_encode(&h, frame);
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        ends_within(true, frame, cuts[i], RIG_PARTIAL_MS + SLACK_MS);
        client_is_served(rss);
    }
    ends_within(false, frame, 1, RIG_PARTIAL_MS + SLACK_MS);
    free(frame);
}

TEST(peer_one_byte_at_a_time_is_closed_at_its_deadline)
{
    static const uint8_t head[FRAME_HEADER_BYTES] = {200, 0, 0, 0, FRAME_VERSION};
    uint64_t rss = rig_rss_kib(&rig) + RSS_SLACK, end = rig_now_ms() + 3 * RIG_PARTIAL_MS;
    int fd = greeted();
    bool open = true;

    end += SLACK_MS;
    for (uint32_t i = 0; open && rig_now_ms() < end; i++) {
        open = rig_write(fd, &head[i % sizeof head], 1);
        client_is_served(rss);
        usleep(50000);
    }
    assert_false(open);
    close(fd);
}
