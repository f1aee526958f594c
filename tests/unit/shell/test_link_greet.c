/* Greetings of two daemons: their contents, who is admitted, and what the core, the data path and
 * operators receive about a link that comes up or does not. The linker replaces the stream, the
 * core and the data path by this file. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "shell/daemon.h"
#include "shell/peers/link_internal.h"
#include "unit/rig/rig_log.h"

enum { WEST, EAST, IN_A, IN_B, LINKS, PEERS = 2 }; /* this daemon dials two, and two dial it */

static uint8_t mem[BUDGET_BYTES(FRAME_BODY_MAX)] __attribute__((aligned(64)));
static uint8_t frame[FRAME_HEADER_BYTES + FRAME_BODY_MAX];
static struct config config;
static struct daemon d;
static struct peer_link links[LINKS];
static uint64_t due_ns[LINKS];
static int listener, dialled;

static struct {
    struct frame_header h; /* of the last frame sent */
    uint8_t body[HELLO_BODY_MAX];
    struct stream *to;
    const char *closed[LINKS], *finished[LINKS];
    struct event event; /* the last one; kind 0: none */
    uint32_t opened, admitted, port, up, of_tenants;
    uint64_t token, admitted_token;
    bool rdma;
    enum tern_err path_err; /* fails the opening of the data path */
} seen;

bool __wrap_stream_put(struct stream *s, const uint8_t *bytes, size_t n, const int *fds,
                       uint32_t nfds);
void __wrap_stream_close(struct stream *s, const char *why);
void __wrap_stream_finish(struct stream *s, const char *why);
void __wrap_daemon_event(struct daemon *to, struct event *ev);
enum tern_err __wrap_door_create(const struct door_config *config, struct door **ret);
void __wrap_xfer_admit(struct xfer *xfer, uint32_t link, uint64_t token);
enum tern_err __wrap_xfer_link_up(struct xfer *xfer, uint32_t link, const struct sockaddr *addr,
                                  socklen_t len, uint64_t incarnation, uint64_t token);
void __wrap_xfer_link_transport(struct xfer *xfer, uint32_t link, enum xfer_transport transport,
                                uint64_t tenants, bool rdma);

static struct door_config door; /* as it was created */
static struct peer_link *entered;

enum tern_err __wrap_door_create(const struct door_config *c, struct door **ret)
{
    door = *c;
    *ret = NULL;
    return TERN_OK;
}

static void on_connected(struct peer_link *l, int fd)
{
    assert_int_equal(fd, dialled);
    entered = l;
}

static uint32_t slot_of(const struct stream *s)
{
    for (uint32_t i = 0; i < LINKS; i++)
        if (s == &links[i].stream)
            return i;
    fail();
    return 0;
}

bool __wrap_stream_put(struct stream *s, const uint8_t *bytes, size_t n, const int *fds,
                       uint32_t nfds)
{
    assert_true(!fds && nfds == 0);
    assert_int_equal(frame_decode(bytes, HELLO_BODY_MAX, &seen.h), TERN_OK);
    assert_int_equal(n, FRAME_HEADER_BYTES + seen.h.length);
    memcpy(seen.body, bytes + FRAME_HEADER_BYTES, seen.h.length);
    seen.to = s;
    return true;
}

void __wrap_stream_close(struct stream *s, const char *why)
{
    assert_null(seen.closed[slot_of(s)]);
    seen.closed[slot_of(s)] = why;
    s->state = STREAM_CLOSED;
}

void __wrap_stream_finish(struct stream *s, const char *why)
{
    assert_null(seen.finished[slot_of(s)]);
    seen.finished[slot_of(s)] = why;
}

void __wrap_daemon_event(struct daemon *to, struct event *ev)
{
    assert_ptr_equal(to, &d);
    assert_int_equal(seen.event.kind, 0);
    seen.event = *ev;
}

void __wrap_xfer_admit(struct xfer *xfer, uint32_t link, uint64_t token)
{
    (void)xfer;
    seen.admitted = link;
    seen.admitted_token = token;
}

enum tern_err __wrap_xfer_link_up(struct xfer *xfer, uint32_t link, const struct sockaddr *addr,
                                  socklen_t len, uint64_t incarnation, uint64_t token)
{
    (void)xfer, (void)incarnation;
    assert_int_equal(link, EAST);
    assert_int_equal(len, sizeof(struct sockaddr_in));
    seen.opened++;
    seen.port = ntohs(((const struct sockaddr_in *)(const void *)addr)->sin_port);
    seen.token = token;
    return seen.path_err;
}

void __wrap_xfer_link_transport(struct xfer *xfer, uint32_t link, enum xfer_transport transport,
                                uint64_t tenants, bool rdma)
{
    (void)xfer;
    seen.up = link;
    assert_int_equal(transport, XFER_TCP);
    seen.of_tenants = (uint32_t)tenants;
    seen.rdma = rdma;
}

/* A connection to a listener, since the socket is asked for the peer's address. */
static void dial(void)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof addr;

    listener = socket(AF_INET, SOCK_STREAM, 0);
    dialled = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&addr, sizeof addr), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&addr, &len), 0);
    assert_int_equal(connect(dialled, (struct sockaddr *)&addr, len), 0);
}

FIXTURE(start)
{
    memset(&config, 0, sizeof config);
    memset(&d, 0, sizeof d);
    memset(links, 0, sizeof links);
    memset(&seen, 0, sizeof seen);
    strcpy(config.node, "self");
    config.npeers = PEERS;
    strcpy(config.peers[WEST].name, "west");
    strcpy(config.peers[EAST].name, "east");
    config.peers[EAST].tenants = 5;
    config.peers[EAST].transport = XFER_TCP;
    d.config = &config;
    d.incarnation = 0x5e1f;
    d.data_port = 4711;
    d.rdma = true;
    d.frame = frame;
    d.links = (struct peer_links){.v = links, .due_ns = due_ns, .n = LINKS, .peers = PEERS};
    dial();
    for (uint32_t i = 0; i < LINKS; i++) {
        links[i].list = LINKS_OTHER;
        links[i].d = &d;
        links[i].slot = i;
        links[i].peer = i < PEERS ? i : NONE;
        links[i].state = PEER_LINK_GREETING;
        links[i].stream.state = STREAM_OPEN;
        links[i].stream.fd = dialled;
    }
    clock_ns = 1;
    log_start(LEVEL_DEBUG);
    return wire_in_init(&d.in, &config, FRAME_BODY_MAX) == TERN_OK ? 0 : -1;
}

FIXTURE(stop)
{
    wire_in_finish(&d.in);
    close(listener);
    close(dialled);
    return log_stop();
}

/* A message from the peer of a link. */
static void said(uint32_t link, uint16_t type, const ProtobufCMessage *m)
{
    static uint8_t out[FRAME_HEADER_BYTES + HELLO_BODY_MAX];
    struct frame_header h = {.version = FRAME_VERSION, .type = type, .request_id = 9};
    size_t n;

    assert_int_equal(wire_encode(&h, m, HELLO_BODY_MAX, out, sizeof out, &n), TERN_OK);
    h.length = (uint32_t)(n - FRAME_HEADER_BYTES);
    link_greeting_frame(&links[link], &h, out + FRAME_HEADER_BYTES);
}

static Tern__Wire__PeerHelloReply an_answer(void)
{
    Tern__Wire__PeerHelloReply m = TERN__WIRE__PEER_HELLO_REPLY__INIT;

    m.has_version = m.has_incarnation = m.has_data_port = m.has_data_token = m.has_rdma = true;
    m.version = WIRE_VERSION;
    m.node = (char *)(uintptr_t) "east";
    m.incarnation = 0xea57;
    m.data_port = 65535;
    m.data_token = 77;
    m.rdma = true;
    return m;
}

static Tern__Wire__PeerHello a_hello(const char *node)
{
    Tern__Wire__PeerHello m = TERN__WIRE__PEER_HELLO__INIT;

    m.has_version_min = m.has_version_max = m.has_incarnation = m.has_data_port = true;
    m.version_min = m.version_max = WIRE_VERSION;
    m.node = (char *)(uintptr_t)node;
    m.incarnation = strcmp(node, "west") == 0 ? 0x3e57 : 0xea57;
    return m;
}

/* The last frame that was sent. */
static const ProtobufCMessage *put(uint16_t type)
{
    const ProtobufCMessage *m;
    struct budget budget;

    assert_int_equal(seen.h.type, type);
    budget_init(&budget, mem, sizeof mem);
    assert_int_equal(wire_decode(&budget, seen.h.type, seen.body, seen.h.length, &m), TERN_OK);
    return m;
}

static const char *cause(uint32_t peer)
{
    return links[peer].cause[0] ? links[peer].cause : NULL;
}

/* ---- the side that dials ---- */

TEST_WITH(who_dials_says_who_it_is, start, stop)
{
    const Tern__Wire__PeerHello *m;

    links[EAST].state = PEER_LINK_SECURING;
    link_greet(&links[EAST]);
    assert_int_equal(links[EAST].state, PEER_LINK_GREETING);
    m = (const Tern__Wire__PeerHello *)(const void *)put(FRAME_PEER_HELLO);
    assert_ptr_equal(seen.to, &links[EAST].stream);
    assert_string_equal(m->node, "self");
    assert_true(m->incarnation == 0x5e1f && m->data_port == 4711 && m->rdma);
    assert_true(m->version_min == WIRE_VERSION_MIN && m->version_max == WIRE_VERSION);
    memset(&seen, 0, sizeof seen);
    links[IN_A].state = PEER_LINK_SECURING;
    link_greet(&links[IN_A]); /* the dialled side listens */
    assert_null(seen.to);
}

TEST_WITH(an_answer_brings_the_link_up, start, stop)
{
    Tern__Wire__PeerHelloReply m = an_answer();

    link_record_cause(&links[EAST], "it was away");
    said(EAST, FRAME_PEER_HELLO_REPLY, &m.base);
    assert_int_equal(links[EAST].state, PEER_LINK_UP);
    assert_null(cause(EAST));
    assert_int_equal(links[EAST].stream.splitter.body_max, LINK_BODY_MAX);
    assert_true(links[EAST].up_ns > 0 && links[EAST].heard_ns > 0 && links[EAST].pinged_ns > 0);
    assert_true(links[EAST].incarnation == 0xea57);
    assert_int_equal(seen.event.kind, EV_LINK_UP);
    assert_true(seen.event.link.link == EAST && seen.event.link.incarnation == 0xea57);
    assert_true(seen.opened == 1 && seen.port == 65535 && seen.token == 77);
    assert_true(seen.up == EAST && seen.of_tenants == 5 && seen.rdma);
    assert_null(seen.closed[EAST]);
}

/* Otherwise it would wait for its deadline, and keep the peer's place until then. */
TEST_WITH(a_peer_without_a_data_port_is_closed_at_once, start, stop)
{
    Tern__Wire__PeerHelloReply m = an_answer();

    m.data_port = 0;
    said(EAST, FRAME_PEER_HELLO_REPLY, &m.base);
    assert_string_equal(seen.closed[EAST], "the peer names no data port");
    seen.closed[EAST] = NULL;
    m.data_port = 65536;
    said(EAST, FRAME_PEER_HELLO_REPLY, &m.base);
    assert_string_equal(seen.closed[EAST], "the peer names no data port");
    seen.closed[EAST] = NULL;
    m.data_port = 1;
    seen.path_err = TERN_INTERNAL;
    said(EAST, FRAME_PEER_HELLO_REPLY, &m.base);
    assert_string_equal(seen.closed[EAST], "the data path to the peer cannot be opened");
    assert_true(seen.opened == 1 && seen.event.kind == 0);
    assert_int_equal(links[EAST].state, PEER_LINK_GREETING);
}

TEST_WITH(an_answer_of_another_node_or_a_refusal_is_told, start, stop)
{
    Tern__Wire__PeerHelloReply m = an_answer();
    Tern__Wire__Status status = TERN__WIRE__STATUS__INIT;
    Tern__Wire__PeerHello wrong = a_hello("east");

    m.node = (char *)(uintptr_t) "north";
    said(EAST, FRAME_PEER_HELLO_REPLY, &m.base);
    assert_string_equal(cause(EAST), "another node answers at the peer's address: north");
    assert_string_equal(seen.closed[EAST], "another node answers at the peer's address");
    m.status = &status;
    status.has_err = true;
    status.err = TERN_DENIED;
    said(WEST, FRAME_PEER_HELLO_REPLY, &m.base);
    assert_string_equal(cause(WEST), "refused by the peer: DENIED");
    assert_string_equal(seen.closed[WEST], "the peer refused this daemon");
    seen.closed[WEST] = NULL;
    said(WEST, FRAME_PEER_HELLO, &wrong.base);
    assert_string_equal(seen.closed[WEST], "the peer answered hello with another message");
    assert_true(links_faults(&d, WEST)->breaches == 1);
    assert_int_equal(seen.event.kind, 0);
}

static uint32_t said_so(const char *words)
{
    uint32_t n = 0;

    for (const char *at = logged_so_far(); (at = strstr(at, words)); at++)
        n++;
    return n;
}

TEST_WITH(a_refusal_of_tls_is_told_and_counted, start, stop)
{
    link_tls_refused(&links[EAST], TLS_WRONG_NAME, "it is west");
    assert_non_null(strstr(cause(EAST), "TLS refused: "));
    assert_non_null(strstr(cause(EAST), ": it is west"));
    assert_true(links_faults(&d, EAST)->refused[TLS_WRONG_NAME] == 1);
    links[EAST].cause_known = false; /* dialled again: counted, without a second warning */
    link_tls_refused(&links[EAST], TLS_WRONG_NAME, "it is west");
    assert_true(links_faults(&d, EAST)->refused[TLS_WRONG_NAME] == 2);
    links[EAST].cause_known = false;
    link_tls_refused(&links[EAST], TLS_EXPIRED, "since today");
    assert_int_equal(said_so("level=warn event=tls_refused"), 2);
    assert_int_equal(said_so("level=debug event=tls_refused"), 1);
    link_tls_refused(&links[IN_A], TLS_WRONG_NAME, "who is it");
    assert_true(links_faults(&d, NONE)->refused[TLS_WRONG_NAME] == 1);
}

/* ---- the side that is dialled ---- */

TEST_WITH(a_peer_that_is_configured_is_let_in, start, stop)
{
    Tern__Wire__PeerHello m = a_hello("east");
    const Tern__Wire__PeerHelloReply *answer;

    said(IN_A, FRAME_PEER_HELLO, &m.base);
    answer = (const Tern__Wire__PeerHelloReply *)(const void *)put(FRAME_PEER_HELLO_REPLY);
    assert_ptr_equal(seen.to, &links[IN_A].stream);
    assert_true(seen.h.request_id == 9 && !answer->status && answer->version == WIRE_VERSION);
    assert_string_equal(answer->node, "self");
    assert_true(answer->incarnation == 0x5e1f && answer->data_port == 4711 && answer->rdma);
    assert_true(answer->data_token != 0 && answer->data_token == seen.admitted_token);
    assert_int_equal(seen.admitted, IN_A);
    assert_int_equal(links[IN_A].state, PEER_LINK_UP);
    assert_int_equal(links[IN_A].peer, EAST);
    assert_int_equal(seen.event.kind, EV_LINK_UP);
    assert_int_equal(seen.event.link.link, IN_A);
    assert_int_equal(seen.opened, 0);
}

/* The peer was restarted, and our attempts had failed often enough for a pause of seconds. */
TEST_WITH(a_peer_that_dials_us_is_dialled_soon, start, stop)
{
    Tern__Wire__PeerHello east = a_hello("east");
    const uint64_t from_ns = io_now_ns(), later_ns = from_ns + 3600 * UINT64_C(1000000000);

    links[EAST].state = links[WEST].state = PEER_LINK_IDLE;
    links[EAST].pause_ns = links[WEST].pause_ns = LINK_REDIAL_MAX_NS;
    due_ns[EAST] = due_ns[WEST] = later_ns;
    said(IN_A, FRAME_PEER_HELLO, &east.base);
    assert_in_range(due_ns[EAST], from_ns, io_now_ns() + LINK_REDIAL_MIN_NS);
    assert_int_equal(due_ns[WEST], later_ns);
    link_schedule_redial(&links[EAST], from_ns); /* pauses grow from the shortest again */
    assert_in_range(due_ns[EAST], from_ns, from_ns + 2 * LINK_REDIAL_MIN_NS);
    due_ns[EAST] = 1; /* no greeting delays an attempt that is due */
    memset(&seen, 0, sizeof seen);
    said(IN_B, FRAME_PEER_HELLO, &east.base);
    assert_int_equal(due_ns[EAST], 1);
}

/* A peer that was cut off dials again before the daemon notices. */
TEST_WITH(a_peer_that_dials_again_replaces_its_older_link, start, stop)
{
    Tern__Wire__PeerHello east = a_hello("east"), west = a_hello("west");

    said(IN_A, FRAME_PEER_HELLO, &east.base);
    memset(&seen.event, 0, sizeof seen.event);
    said(IN_B, FRAME_PEER_HELLO, &east.base);
    assert_string_equal(seen.closed[IN_A], "its node connected again");
    assert_int_equal(links[IN_B].state, PEER_LINK_UP);
    assert_int_equal(seen.event.link.link, IN_B);
    memset(&seen, 0, sizeof seen);
    links[IN_A].state = PEER_LINK_GREETING;
    links[IN_A].stream.state = STREAM_OPEN;
    links[IN_A].peer = NONE;
    said(IN_A, FRAME_PEER_HELLO, &west.base);
    assert_null(seen.closed[IN_B]); /* it belongs to another peer */
}

/* A new incarnation is a restart; only a former one that returns shows a second daemon. */
TEST_WITH(two_daemons_of_one_name_are_told_from_one_that_restarts, start, stop)
{
    static const uint64_t lives[] = {11, 22, 33, 33, 22};
    Tern__Wire__PeerHello m = a_hello("east");

    for (uint32_t i = 0; i < 5; i++) {
        uint32_t slot = i % 2 ? IN_B : IN_A;

        memset(&seen, 0, sizeof seen);
        links[slot].state = PEER_LINK_GREETING;
        links[slot].stream.state = STREAM_OPEN;
        links[slot].peer = NONE;
        m.incarnation = lives[i];
        said(slot, FRAME_PEER_HELLO, &m.base);
        assert_int_equal(links[slot].state, PEER_LINK_UP);
        if (i == 4)
            assert_non_null(strstr(logged(), "level=warn event=peer_twice peer=east incarnation="
                                             "0000000000000016 other=0000000000000021 "));
        else
            assert_null(strstr(logged(), "peer_twice"));
    }
}

/* A peer may choose neither incarnation: tickets are fetched by incarnation, and the daemon copies
 * its own pages. */
TEST_WITH(a_peer_with_the_incarnation_of_another_is_not_let_in, start, stop)
{
    Tern__Wire__PeerHello west = a_hello("west"), east = a_hello("east");
    Tern__Wire__PeerHelloReply answer = an_answer();

    west.incarnation = answer.incarnation = d.incarnation;
    said(IN_A, FRAME_PEER_HELLO, &west.base);
    assert_non_null(strstr(seen.finished[IN_A], "the incarnation of this daemon"));
    assert_non_null(strstr(logged(), "level=warn event=peer_twice peer=west incarnation="
                                     "0000000000005e1f "));
    said(EAST, FRAME_PEER_HELLO_REPLY, &answer.base);
    assert_non_null(strstr(seen.closed[EAST], "the incarnation of this daemon"));
    assert_non_null(strstr(cause(EAST), "the incarnation of this daemon"));
    assert_true(links[IN_A].state == PEER_LINK_GREETING && seen.admitted_token == 0 &&
                links[EAST].state == PEER_LINK_GREETING && seen.opened == 0);

    memset(&seen, 0, sizeof seen);
    links[EAST].cause_known = false;
    answer = an_answer();
    said(EAST, FRAME_PEER_HELLO_REPLY, &answer.base); /* its own from here on */
    west.incarnation = east.incarnation = answer.incarnation;
    said(IN_A, FRAME_PEER_HELLO, &west.base);
    assert_non_null(strstr(seen.finished[IN_A], "of another peer"));
    memset(&seen, 0, sizeof seen);
    said(IN_B, FRAME_PEER_HELLO, &east.base);
    assert_int_equal(links[IN_B].state, PEER_LINK_UP);
    memset(&seen, 0, sizeof seen);
    config.peers[EAST].name[0] = '\0'; /* no peer any more: its daemon has another name */
    said(IN_A, FRAME_PEER_HELLO, &west.base);
    assert_int_equal(links[IN_A].state, PEER_LINK_UP);
}

TEST_WITH(a_stranger_is_told_why_it_is_not_let_in, start, stop)
{
    Tern__Wire__PeerHello m = a_hello("north");
    Tern__Wire__PeerHelloReply wrong = an_answer();
    const Tern__Wire__PeerHelloReply *answer;

    said(IN_A, FRAME_PEER_HELLO, &m.base);
    answer = (const Tern__Wire__PeerHelloReply *)(const void *)put(FRAME_PEER_HELLO_REPLY);
    assert_int_equal(answer->status->err, TERN_DENIED);
    assert_string_equal(answer->status->text, "this node is not among the peers configured here");
    assert_true(!answer->node && answer->data_port == 0 && !answer->has_data_token);
    assert_string_equal(seen.finished[IN_A], answer->status->text);
    seen.finished[IN_A] = NULL;
    m.node = NULL;
    said(IN_A, FRAME_PEER_HELLO, &m.base);
    assert_non_null(seen.finished[IN_A]);
    m = a_hello("east");
    m.version_min = m.version_max = WIRE_VERSION + 1;
    said(IN_B, FRAME_PEER_HELLO, &m.base);
    assert_string_equal(seen.finished[IN_B],
                        "no protocol version in common: update the older daemon");
    said(IN_B, FRAME_PEER_HELLO_REPLY, &wrong.base);
    assert_string_equal(seen.closed[IN_B], "the first message of a peer must be its hello");
    assert_true(links_faults(&d, NONE)->breaches == 1);
    assert_int_equal(seen.event.kind, 0);
    assert_true(seen.admitted_token == 0);
}

static struct peer_link *enters(enum peer_link_state a, enum peer_link_state b)
{
    bool let_in;

    links[IN_A].state = a;
    links[IN_B].state = b;
    link_listed(&links[IN_A]);
    link_listed(&links[IN_B]);
    entered = NULL;
    let_in = door.enter(door.ctx, dialled) == DOOR_ENTER;
    assert_int_equal(let_in, entered != NULL);
    return entered;
}

/* One handshake at a time, as there are as many inbound links as peers; an old one is closed. */
TEST_WITH(who_enters_has_a_link_that_is_free, start, stop)
{
    d.links.connected = on_connected;
    assert_int_equal(links_door_create(&d), TERN_OK);
    assert_ptr_equal(enters(PEER_LINK_IDLE, PEER_LINK_IDLE), &links[IN_A]);
    assert_ptr_equal(enters(PEER_LINK_UP, PEER_LINK_IDLE), &links[IN_B]);
    links[IN_B].opened_ns = io_now_ns();
    assert_null(enters(PEER_LINK_IDLE, PEER_LINK_GREETING));
    assert_null(seen.closed[IN_B]);
    links[IN_B].opened_ns = 0;
    assert_null(enters(PEER_LINK_IDLE, PEER_LINK_GREETING));
    assert_string_equal(seen.closed[IN_B], "its handshake took long, and other connections wait");
    assert_null(enters(PEER_LINK_UP, PEER_LINK_UP));
}
