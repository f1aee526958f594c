/* Fuzz target: a listed peer's messages behind an accepted greeting: messages between cores, RDMA
 * paths, pings and messages that no peer sends, through the link of the shell into a core that has
 * a pool, sessions and a fetch under way. The first byte chooses who dialled; with GREETS the
 * greeting itself is made of the input. A record is a frame: its sequence number is the next one
 * and its handles are living ones, unless its flags say otherwise. The audit runs behind each. The
 * linker puts this file's functions where the link would reach its stream, the data path and the
 * loop. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz/message.h"
#include "fuzz/passed.h"
#include "shell/daemon.h"
#include "shell/log/log.h"
#include "shell/peers/link_internal.h"
#include "unit/rig/rig.h"

#define RECORDS_MAX 24
#define DEPTH       24u
#define PEERS       2u
#define OUT         0u /* the link that this daemon dialled, and the peer's */
#define IN          PEERS
#define LINKS       (PEERS + 1)
#define SEQUENCE    16u /* the field of both messages */
#define KIND        1u
#define KINDS       (PEER_MSG_COUNT - 1u)
#define PATH_KINDS  3u
#define TAIL_BYTES  24u

enum { DIALS = 1, GREETS = 2 }; /* of the first byte */
enum {
    RAW = 1,
    OTHER_SEQUENCE = 2,
    OTHER_HANDLES = 4,
    HOLDS = 8,
    OTHER_KIND = 16
}; /* of a record */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static struct daemon d;
static struct peer_link links[LINKS];
static uint64_t due_ns[LINKS];
static uint8_t frame[FRAME_HEADER_BYTES + FRAME_BODY_MAX];
static const struct stream_ops *ops;
static bool ended, living;
static int dialled = -1;

static struct rig *rig[2];
static struct rig_engine engine[2];
static struct pool_id pool;
static uint64_t seen; /* so that every byte of a message is read */

/* ------------------------------------------------------------------ what the link reaches */

void __wrap_stream_open(struct stream *s, struct stream_pool *p, const struct stream_ops *o, int fd,
                        uint32_t share, uint32_t body_max, uint32_t send_buffers_max);
bool __wrap_stream_put(struct stream *s, const uint8_t *bytes, size_t n, const int *fds,
                       uint32_t nfds);
bool __wrap_stream_fits(const struct stream *s, size_t n);
void __wrap_stream_close(struct stream *s, const char *why);
void __wrap_stream_finish(struct stream *s, const char *why);
void __wrap_daemon_event(struct daemon *to, struct event *ev);
void __wrap_xfer_admit(struct xfer *xfer, uint32_t link, uint64_t token);
enum tern_err __wrap_xfer_link_up(struct xfer *xfer, uint32_t link, const struct sockaddr *addr,
                                  socklen_t len, uint64_t incarnation, uint64_t token);
void __wrap_xfer_link_transport(struct xfer *xfer, uint32_t link, enum xfer_transport transport,
                                uint64_t tenants, bool rdma);
void __wrap_xfer_path_msg(struct xfer *xfer, uint32_t link, const struct xfer_path_msg *msg);
const char *__wrap_xfer_peer_layouts(struct xfer *xfer, uint32_t link, uint64_t hash,
                                     const struct reshard_layout *v, uint32_t n);

void __wrap_stream_open(struct stream *s, struct stream_pool *p, const struct stream_ops *o, int fd,
                        uint32_t share, uint32_t body_max, uint32_t send_buffers_max)
{
    (void)p, (void)share, (void)body_max, (void)send_buffers_max;
    ops = o;
    s->fd = fd;
    s->state = STREAM_OPEN;
}

bool __wrap_stream_put(struct stream *s, const uint8_t *bytes, size_t n, const int *fds,
                       uint32_t nfds)
{
    struct frame_header h;

    (void)s, (void)fds;
    check(frame_decode(bytes, FRAME_BODY_MAX, &h) == TERN_OK && nfds == 0);
    check(n == FRAME_HEADER_BYTES + h.length);
    return true;
}

bool __wrap_stream_fits(const struct stream *s, size_t n)
{
    (void)s, (void)n;
    return true;
}

void __wrap_stream_close(struct stream *s, const char *why)
{
    (void)why;
    s->state = STREAM_CLOSED;
    ended = true;
}

void __wrap_stream_finish(struct stream *s, const char *why)
{
    __wrap_stream_close(s, why);
}

static void make_living(struct peer_msg *m)
{
    m->pull.slot %= 2;
    m->pull.gen = 1 + m->pull.gen % 2;
    if (m->each != 0 && m->kind == PEER_PULL_OFFER) /* of a question */
        m->pull.slot = rig[0]->options.limits.pulls;
    m->serve.slot %= 2;
    m->serve.gen = 1 + m->serve.gen % 2;
}

/* The core's links are up before the shell's: rig_link_up. */
void __wrap_daemon_event(struct daemon *to, struct event *ev)
{
    check(to == &d);
    if (ev->kind != EV_PEER_MSG)
        return;
    fuzz_passed();
    if (living)
        make_living(&ev->peer.msg);
    rig_event(rig[0], ev);
}

void __wrap_xfer_admit(struct xfer *xfer, uint32_t link, uint64_t token)
{
    (void)xfer, (void)link, (void)token;
}

enum tern_err __wrap_xfer_link_up(struct xfer *xfer, uint32_t link, const struct sockaddr *addr,
                                  socklen_t len, uint64_t incarnation, uint64_t token)
{
    (void)xfer, (void)link, (void)addr, (void)len, (void)incarnation, (void)token;
    return TERN_OK;
}

void __wrap_xfer_link_transport(struct xfer *xfer, uint32_t link, enum xfer_transport transport,
                                uint64_t tenants, bool rdma)
{
    (void)xfer, (void)link, (void)transport, (void)tenants, (void)rdma;
}

void __wrap_xfer_path_msg(struct xfer *xfer, uint32_t link, const struct xfer_path_msg *msg)
{
    (void)xfer;
    check(link == OUT || link == IN);
    check(msg->nmrs <= sizeof msg->mr / sizeof msg->mr[0]);
    check(msg->nmws <= sizeof msg->mw_rkey / sizeof msg->mw_rkey[0]);
    for (uint32_t i = 0; i < sizeof *msg; i++)
        seen += ((const uint8_t *)msg)[i];
    fuzz_passed();
}

const char *__wrap_xfer_peer_layouts(struct xfer *xfer, uint32_t link, uint64_t hash,
                                     const struct reshard_layout *v, uint32_t n)
{
    (void)xfer, (void)link;
    check(n <= GROUPS_MAX);
    seen += hash;
    for (uint32_t i = 0; i < n; i++)
        seen += strnlen(v[i].name, sizeof v[i].name);
    return NULL;
}

/* ------------------------------------------------------------------ the world */

/* A connection, for the address that the link asks for. */
static int dial(void)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof addr;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    check(bind(listener, (struct sockaddr *)&addr, len) == 0 && listen(listener, 1) == 0);
    check(getsockname(listener, (struct sockaddr *)&addr, &len) == 0);
    check(connect(fd, (struct sockaddr *)&addr, len) == 0);
    return fd;
}

static void set_up(void)
{
    static const char text[] = "node: self\ninsecure_peers: true\n"
                               "tenants:\n  - name: a\n    socket: /a\n    memory: 1M\n"
                               "  - name: m\n    socket: /m\n    memory: 1M\n"
                               "peers:\n  - name: peer\n    address: h:1\n    tenants: [a]\n"
                               "  - name: e\n    address: h:2\n    tenants: [m]\n";
    char why[CONFIG_WHY_BYTES];
    uint32_t npeers;

    if (d.config)
        return;
    check(config_load_text("fuzz", (const uint8_t *)text, sizeof text - 1, &d.config, why,
                           sizeof why) == TERN_OK);
    check(wire_in_init(&d.in, d.config, FRAME_BODY_MAX) == TERN_OK);
    log_init(LEVEL_ERROR, open("/dev/null", O_WRONLY | O_CLOEXEC), NULL);
    d.frame = frame;
    d.rdma = true;
    d.incarnation = 1;
    d.data_port = 1;
    dialled = dial();
    npeers = d.config->npeers;
    d.config->npeers = 0;
    check(links_init(&d, why, sizeof why) == TERN_OK); /* without links: these are this file's */
    d.config->npeers = npeers;
}

static void links_begin(void)
{
    memset(links, 0, sizeof links);
    d.links.v = links;
    d.links.due_ns = due_ns;
    d.links.n = LINKS;
    d.links.peers = PEERS;
    for (uint32_t i = 0; i < LINKS; i++) {
        links[i] = (struct peer_link){
            .d = &d, .slot = i, .peer = i < PEERS ? i : NONE, .list = LINKS_OTHER, .dial_fd = -1};
        links[i].state = i < PEERS ? PEER_LINK_DIALLING : PEER_LINK_IDLE;
    }
    ended = false;
}

static void world_begin(void)
{
    const struct group_layout groups[] = {rig_group(2, 64), rig_window(2, 9, 64)};
    struct rig_options o = rig_small();
    struct rig_session *s;

    for (uint32_t i = 0; i < 2; i++) {
        struct pool_id here;

        o.incarnation++;
        rig[i] = rig_create(&o);
        rig[i]->host_bytes = 2048;
        rig[i]->no_audit = true; /* an audit follows each record */
        engine[i] = rig_engine(rig[i], 0, "e", 1);
        check(rig_pool_open(rig[i], engine[i].conn[0], groups, 2, 4096, &here) == TERN_OK);
        rig_put(rig[i], &engine[i], here, 1 + i, DEPTH);
        if (i == 0)
            pool = here;
    }
    rig_link_up(rig[0], OUT, rig[1], IN);
    rig_link_up(rig[1], OUT, rig[0], IN);
    s = rig_session(rig[0], &engine[0], pool, 1);
    check(rig_match(s, rig_tokens(2, DEPTH), DEPTH) == TERN_OK);
    rig[0]->automatic = rig[1]->automatic = RIG_ALL & ~(uint32_t)(RIG_MSG | RIG_PULL);
    rig_fetch(s, 0, 0); /* the input answers for the other daemon, */
    s = rig_session(rig[0], &engine[0], pool, 1);
    check(rig_match(s, rig_tokens(3, DEPTH), DEPTH) == TERN_OK);
    rig_fetch(s, PEER_ANY, 0); /* and the question who has the tokens */
}

/* ------------------------------------------------------------------ the peer's side */

static void say(struct peer_link *l, uint16_t type, const uint8_t *body, size_t n)
{
    struct frame_header h = {
        .version = FRAME_VERSION, .type = type, .request_id = 1, .length = (uint32_t)n};
    uint8_t *copy = malloc(n ? n : 1); /* a copy: the sanitizer sees a byte too far */

    check(copy);
    memcpy(copy, body, n);
    ops->frame(&l->stream, &h, copy);
    free(copy);
}

static void greet(struct peer_link *l, bool by_input, struct fuzz_bytes *in)
{
    static uint8_t body[MADE_BODY_MAX];
    Tern__Wire__PeerHello hello = TERN__WIRE__PEER_HELLO__INIT;
    Tern__Wire__PeerHelloReply reply = TERN__WIRE__PEER_HELLO_REPLY__INIT;
    uint16_t type = link_is_outbound(l) ? FRAME_PEER_HELLO_REPLY : FRAME_PEER_HELLO;
    const ProtobufCMessage *m = link_is_outbound(l) ? &reply.base : &hello.base;

    hello.has_version_min = hello.has_version_max = hello.has_incarnation = hello.has_data_port =
        true;
    hello.version_min = hello.version_max = WIRE_VERSION;
    reply.has_version = reply.has_incarnation = reply.has_data_port = reply.has_rdma = true;
    reply.version = WIRE_VERSION;
    hello.node = reply.node = (char *)(uintptr_t) "peer";
    hello.incarnation = reply.incarnation = 2;
    hello.data_port = reply.data_port = 1;
    reply.rdma = true;
    say(l, type, body, by_input ? made_body(in, type, body) : protobuf_c_message_pack(m, body));
}

/* The last value of a repeated field counts. */
static size_t put_field(uint8_t *body, size_t n, uint32_t field, uint64_t v)
{
    uint32_t tag = field << 3;

    if (tag > 0x7f)
        body[n++] = (uint8_t)((tag & 0x7f) | 0x80);
    body[n++] = (uint8_t)(tag > 0x7f ? tag >> 7 : tag);
    for (; v > 0x7f; v >>= 7)
        body[n++] = (uint8_t)(v | 0x80);
    body[n++] = (uint8_t)v;
    return n;
}

static void one_record(struct peer_link *l, struct fuzz_bytes *in)
{
    static const uint16_t types[] = {FRAME_PEER_MSG,   FRAME_PEER_MSG,  FRAME_PEER_MSG,
                                     FRAME_PEER_PATH,  FRAME_PEER_PATH, FRAME_PING,
                                     FRAME_PING_REPLY, FRAME_MATCH};
    static uint8_t body[MADE_BODY_MAX + TAIL_BYTES];
    uint8_t which = fuzz_take(in);
    uint16_t type = types[which % 8];
    uint8_t what = fuzz_take(in);
    size_t length = fuzz_take(in) * 4u, n;
    struct fuzz_bytes from = {in->v, length < in->n ? length : in->n};

    in->v += from.n;
    in->n -= from.n;
    living = !(what & OTHER_HANDLES);
    rig[0]->automatic = what & HOLDS ? rig[1]->automatic : RIG_ALL & ~(uint32_t)RIG_MSG;
    n = what & RAW ? from.n : made_body(&from, type, body);
    if (what & RAW)
        memcpy(body, from.v, n);
    if (type == FRAME_PEER_MSG || type == FRAME_PEER_PATH) {
        if (!(what & OTHER_KIND))
            n = put_field(body, n, KIND,
                          1 + which / 8 % (type == FRAME_PEER_MSG ? KINDS : PATH_KINDS));
        if (!(what & OTHER_SEQUENCE))
            n = put_field(body, n, SEQUENCE, l->received + 1);
    }
    say(l, type, body, n);
    oracle_audit(rig[0]->core);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct fuzz_bytes in = {data, n};
    uint8_t first = fuzz_take(&in);
    struct peer_link *l = &links[first & DIALS ? IN : OUT];

    fuzz_begin();
    set_up();
    links_begin();
    world_begin();
    d.links.connected(l, dialled);
    greet(l, first & GREETS, &in);
    for (uint32_t i = 0; i < RECORDS_MAX && in.n > 0 && !ended; i++)
        one_record(l, &in);
    rig_destroy(rig[0]);
    rig_destroy(rig[1]);
    return 0;
}
