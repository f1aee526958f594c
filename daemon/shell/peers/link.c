/* Links between daemons. See link.h. What must stay true: the core hears PEER_LINK_UP once and
 * LINK_DOWN once for each link that was up; no message reaches it from a node that is not
 * configured, nor twice, nor out of order. */
#include "shell/peers/link.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/check.h"
#include "base/err.h"
#include "shell/conn/conn.h"
#include "shell/daemon.h"
#include "shell/log/log.h"
#include "shell/wire/wire_out.h"

static_assert(PEER_LINK_SECURING < PEER_LINK_GREETING && PEER_LINK_GREETING < PEER_LINK_UP &&
                  PEER_LINK_UP < PEER_LINK_CLOSED,
              "from PEER_LINK_SECURING on a stream is open");

static struct peer_link *link_of(struct stream *s)
{
    return (struct peer_link *)(void *)((char *)s - offsetof(struct peer_link, stream));
}

static bool outbound(const struct peer_link *l)
{
    return l->slot < l->d->links.peers;
}

static const char *peer_name(const struct peer_link *l)
{
    return l->peer == NONE ? "" : l->d->config->peers[l->peer].name;
}

const char *link_state_name(struct daemon *d, uint32_t peer, uint64_t *ret_incarnation)
{
    static const char *const names[] = {"waiting",  "resolving", "dialling", "securing",
                                        "greeting", "up",        "closing"};
    const struct peer_link *l = &d->links.v[peer];

    *ret_incarnation = l->state == PEER_LINK_UP ? l->incarnation : 0;
    return names[l->state];
}

bool link_up(const struct peer_link *l)
{
    return l->state == PEER_LINK_UP;
}

/* ---- why a peer is not there ---- */

uint64_t links_protocol_errors(const struct daemon *d, uint32_t peer)
{
    return d->links.protocol_errors[peer == NONE ? CONFIG_PEERS_MAX : peer];
}

static void protocol_error(struct peer_link *l, const char *why)
{
    l->d->links.protocol_errors[l->peer == NONE ? CONFIG_PEERS_MAX : l->peer]++;
    stream_close(&l->stream, why);
}

const char *link_trouble(const struct daemon *d, uint32_t peer, uint32_t *ret_attempts,
                         uint64_t *ret_since_ns)
{
    const struct peer_link *l = &d->links.v[peer];

    *ret_attempts = l->attempts;
    *ret_since_ns = l->down_ns;
    return l->cause[0] ? l->cause : NULL;
}

/* It goes to logs and terminals, and may be the peer's words. True: another cause than before. */
static bool record_cause(struct peer_link *l, const char *text)
{
    char cause[LINK_CAUSE_BYTES];
    bool other;

    snprintf(cause, sizeof cause, "%s", text);
    for (char *c = cause; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
    other = strcmp(cause, l->cause) != 0;
    if (!l->down_ns)
        l->down_ns = io_now_ns();
    memcpy(l->cause, cause, sizeof cause);
    return other;
}

static void clear_cause(struct peer_link *l)
{
    l->cause[0] = '\0';
    l->attempts = 0;
    l->down_ns = 0;
    l->name_trouble[0] = '\0';
    memset(l->dial_errno, 0, sizeof l->dial_errno);
}

void link_set_cause(struct peer_link *l, const char *format, ...)
{
    char text[LINK_CAUSE_BYTES];
    va_list args;

    if (!outbound(l) || l->cause_known)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    record_cause(l, text);
    l->cause_known = true;
}

/* ---- sending ---- */

static bool send_message(struct peer_link *l, uint16_t type, uint64_t request_id,
                         const ProtobufCMessage *m)
{
    struct frame_header h = {.version = FRAME_VERSION, .type = type, .request_id = request_id};
    size_t n;

    check(wire_encode(&h, m, HELLO_BODY_MAX, l->d->frame, FRAME_HEADER_BYTES + HELLO_BODY_MAX,
                      &n) == TERN_OK);
    return stream_put(&l->stream, l->d->frame, n, NULL, 0);
}

static void send_ping(struct peer_link *l, uint16_t type, uint64_t request_id)
{
    Tern__Wire__Empty m = TERN__WIRE__EMPTY__INIT;

    send_message(l, type, request_id, &m.base);
}

/* One line a transfer on each side, so that a trace id can be followed from daemon to daemon. */
static void log_transfer(const struct peer_link *l, const struct peer_msg *msg, const char *dir)
{
    if (msg->kind == PEER_PULL_OPEN)
        log_event(LEVEL_DEBUG, "pull_open", "peer=%s dir=%s from=%u to=%u " LOG_TRACE, peer_name(l),
                  dir, msg->from, msg->to, msg->trace_id);
    else if (msg->err != TERN_OK)
        log_event(LEVEL_DEBUG, "pull_refused", "peer=%s dir=%s err=%s " LOG_TRACE, peer_name(l),
                  dir, err_name(msg->err), msg->trace_id);
}

/* The peer has as many requests with their tokens to read as may wait for it: the fetch ends as the
 * peer itself would end it, and the link lives. */
static void refuse_open(struct daemon *d, uint32_t slot, const struct peer_msg *msg)
{
    struct event ev = {.kind = EV_PEER_MSG};

    log_event(LEVEL_WARN, "link_full", "link=%u " LOG_TRACE, slot, msg->trace_id);
    ev.peer.link = slot;
    ev.peer.msg.kind = PEER_PULL_OFFER;
    ev.peer.msg.pull = msg->pull;
    ev.peer.msg.trace_id = msg->trace_id;
    ev.peer.msg.err = TERN_BUSY;
    ev.peer.msg.retry_ms = d->config->limits.busy_retry_ms;
    daemon_later(d, &ev);
}

void link_send(struct daemon *d, uint32_t slot, const struct peer_msg *msg)
{
    struct peer_link *l = &d->links.v[slot];
    const char *tenant = NULL;
    size_t n;

    if (l->state != PEER_LINK_UP)
        return;
    if (msg->kind == PEER_PULL_OPEN && msg->tenant < d->config->ntenants)
        tenant = d->config->tenants[msg->tenant].name;
    n = wire_out_peer_msg(msg, tenant, l->sent + 1, LINK_BODY_MAX, d->frame);
    check(n > 0);
    if (msg->kind == PEER_PULL_OPEN && !stream_fits(&l->stream, n)) {
        refuse_open(d, slot, msg);
        return;
    }
    log_transfer(l, msg, "out");
    l->sent++;
    stream_put(&l->stream, d->frame, n, NULL, 0);
}

/* ---- up and down ---- */

static void pause_before_redial(struct peer_link *l, uint64_t now_ns)
{
    uint64_t quarter;

    if (l->pause_ns == 0 || (l->up_ns && now_ns - l->up_ns >= LINK_STEADY_NS))
        l->pause_ns = LINK_REDIAL_MIN_NS;
    else
        l->pause_ns *= 2;
    if (l->pause_ns > LINK_REDIAL_MAX_NS)
        l->pause_ns = LINK_REDIAL_MAX_NS;
    l->up_ns = 0;
    quarter = l->pause_ns / 4;
    l->redial_ns = now_ns + l->pause_ns - quarter + prng_u64(&l->d->links.prng) % (2 * quarter);
}

/* Inbound: whoever says that token on a data connection is the one whom this link gave it to. */
static bool admit(struct peer_link *l)
{
    if (getrandom(&l->data_token, sizeof(l->data_token), 0) != (ssize_t)sizeof(l->data_token))
        return false;
    l->data_token |= 1; /* 0 means none */
    xfer_admit(l->d->xfer, l->slot, l->data_token);
    return true;
}

static void up(struct peer_link *l, uint64_t incarnation, uint32_t data_port)
{
    struct event ev = {.kind = EV_LINK_UP, .link = {.link = l->slot, .incarnation = incarnation}};
    struct daemon *d = l->d;
    struct sockaddr_storage addr;
    socklen_t len = sizeof(addr);

    if (outbound(l)) {
        memset(&addr, 0, sizeof(addr));
        if (data_port == 0 || data_port > UINT16_MAX ||
            getpeername(l->stream.fd, (struct sockaddr *)&addr, &len) != 0) {
            stream_close(&l->stream, "the peer names no data port");
            return;
        }
        if (addr.ss_family == AF_INET6)
            ((struct sockaddr_in6 *)(void *)&addr)->sin6_port = htons((uint16_t)data_port);
        else
            ((struct sockaddr_in *)(void *)&addr)->sin_port = htons((uint16_t)data_port);
        if (xfer_link_up(d->xfer, l->slot, (struct sockaddr *)&addr, len, incarnation,
                         l->data_token) != TERN_OK) {
            stream_close(&l->stream, "the data path to the peer cannot be opened");
            return;
        }
    }
    l->state = PEER_LINK_UP;
    clear_cause(l);
    l->incarnation = incarnation;
    l->up_ns = l->heard_ns = l->pinged_ns = io_now_ns();
    l->stream.body_max = LINK_BODY_MAX;
    log_event(LEVEL_INFO, "link_up", "link=%u peer=%s dir=%s incarnation=%016" PRIx64, l->slot,
              peer_name(l), outbound(l) ? "out" : "in", incarnation);
    if (outbound(l)) {
        const struct config_peer *peer = &d->config->peers[l->peer];

        xfer_link_push(d->xfer, l->slot, peer->push);
        xfer_link_transport(d->xfer, l->slot, peer->transport, peer->tenants, l->rdma);
    }
    daemon_event(d, &ev);
}

static void on_closed(struct stream *s, const char *why)
{
    struct peer_link *l = link_of(s);
    struct daemon *d = l->d;
    bool known = l->state == PEER_LINK_UP, other = false;
    struct event ev = {.kind = EV_LINK_DOWN, .link = {.link = l->slot}};

    l->state = PEER_LINK_CLOSED;
    if (outbound(l)) {
        l->attempts += known ? 0 : 1;
        l->next_addr = known ? l->naddrs : l->next_addr + 1;
        other = !l->cause_known && record_cause(l, why);
    }
    log_event(other && !known ? LEVEL_WARN : LEVEL_INFO, "link_down",
              "link=%u peer=%s dir=%s reason=%s", l->slot, peer_name(l), outbound(l) ? "out" : "in",
              why);
    if (!outbound(l))
        xfer_dismiss(d->xfer, l->slot);
    if (!known)
        return;
    if (outbound(l))
        xfer_link_down(d->xfer, l->slot);
    else
        xfer_peer_down(d->xfer, l->slot);
    daemon_later(d, &ev);
}

static void on_finished(struct stream *s)
{
    struct peer_link *l = link_of(s);

    l->state = PEER_LINK_IDLE;
    l->full = false;
    tls_close(l->tls);
    l->tls = NULL;
    if (outbound(l))
        pause_before_redial(l, io_now_ns());
    else
        l->peer = NONE;
}

void link_close(struct daemon *d, uint32_t slot, const char *why)
{
    struct peer_link *l = &d->links.v[slot];

    if (l->state >= PEER_LINK_SECURING && l->state <= PEER_LINK_UP)
        stream_close(&l->stream, why);
}

/* ---- greetings ---- */

static void send_hello(struct peer_link *l)
{
    struct daemon *d = l->d;
    Tern__Wire__PeerHello m = TERN__WIRE__PEER_HELLO__INIT;

    m.has_version_min = m.has_version_max = m.has_incarnation = m.has_data_port = true;
    m.has_rdma = true;
    m.rdma = d->rdma;
    m.version_min = WIRE_VERSION_MIN;
    m.version_max = WIRE_VERSION;
    m.node = (char *)(uintptr_t)d->config->node;
    m.incarnation = d->incarnation;
    m.data_port = d->data_port;
    send_message(l, FRAME_PEER_HELLO, 1, &m.base);
}

static void answer_hello(struct peer_link *l, uint64_t request_id, enum tern_err err,
                         const char *text, uint32_t version)
{
    struct daemon *d = l->d;
    Tern__Wire__PeerHelloReply m = TERN__WIRE__PEER_HELLO_REPLY__INIT;
    Tern__Wire__Status status = TERN__WIRE__STATUS__INIT;

    status.has_err = true;
    status.err = err;
    status.text = *text ? (char *)(uintptr_t)text : NULL;
    m.status = err == TERN_OK ? NULL : &status;
    if (err == TERN_OK) {
        m.has_version = m.has_incarnation = m.has_data_port = m.has_data_token = m.has_rdma = true;
        m.data_token = l->data_token;
        m.rdma = d->rdma;
        m.version = version;
        m.node = (char *)(uintptr_t)d->config->node;
        m.incarnation = d->incarnation;
        m.data_port = d->data_port;
    }
    send_message(l, FRAME_PEER_HELLO_REPLY, request_id, &m.base);
}

/* A peer that was cut off dials again before we notice: what it had counts no more. */
static void replace_older(struct peer_link *l)
{
    struct peer_links *ls = &l->d->links;

    for (uint32_t i = ls->peers; i < ls->n; i++) {
        struct peer_link *other = &ls->v[i];

        if (other != l && other->state == PEER_LINK_UP && other->peer == l->peer)
            stream_close(&other->stream, "its node connected anew");
    }
}

static void greeted(struct peer_link *l, const struct frame_header *h, const uint8_t *body)
{
    const Tern__Wire__PeerHello *m;
    const ProtobufCMessage *msg;
    const char *text = "";
    uint32_t version = 0, peer = NONE;
    enum tern_err err;

    if (h->type != FRAME_PEER_HELLO || wire_in_message(&l->d->in, h, body, &msg) != TERN_OK) {
        protocol_error(l, "a peer says hello first");
        return;
    }
    m = (const Tern__Wire__PeerHello *)(const void *)msg;
    err = wire_negotiate(m->version_min, m->version_max, &version);
    if (err != TERN_OK) {
        text = "no version in common: update the older daemon";
    } else if (!m->node || config_peer_slot(l->d->config, m->node, &peer) != TERN_OK) {
        err = TERN_DENIED;
        text = "this node is not among the peers that are configured here";
    } else if (l->tls && !tls_names(l->tls, m->node)) {
        err = TERN_DENIED;
        text = "this node is not the one that its certificate names";
        link_tls_refused(l, TLS_WRONG_NAME, text);
    } else if (!admit(l)) {
        err = TERN_BUSY;
        text = "no random numbers are to be had";
    }
    answer_hello(l, h->request_id, err, text, version);
    if (err != TERN_OK) {
        stream_finish(&l->stream, text);
        return;
    }
    l->peer = peer;
    replace_older(l);
    if (l->stream.state == STREAM_OPEN)
        up(l, m->incarnation, m->data_port);
}

static void hello_answered(struct peer_link *l, const struct frame_header *h, const uint8_t *body)
{
    const Tern__Wire__PeerHelloReply *m;
    const ProtobufCMessage *msg;

    if (h->type != FRAME_PEER_HELLO_REPLY || wire_in_message(&l->d->in, h, body, &msg) != TERN_OK) {
        protocol_error(l, "the peer does not answer hello");
        return;
    }
    m = (const Tern__Wire__PeerHelloReply *)(const void *)msg;
    if (m->status && m->status->err != TERN_OK) {
        log_event(LEVEL_WARN, "peer_refused", "peer=%s err=%s text=%s", peer_name(l),
                  err_name((enum tern_err)m->status->err), m->status->text ? m->status->text : "");
        link_set_cause(l, "refused by the peer: %s",
                       m->status->text ? m->status->text : err_name((enum tern_err)m->status->err));
        stream_close(&l->stream, "the peer refused us");
    } else if (!m->node || strcmp(m->node, peer_name(l)) != 0) {
        log_event(LEVEL_WARN, "peer_mismatch", "peer=%s node=%s", peer_name(l),
                  m->node ? m->node : "");
        link_set_cause(l, "another node answers at the peer's address: %s", m->node ? m->node : "");
        stream_close(&l->stream, "another node answers at the peer's address");
    } else {
        l->data_token = m->data_token;
        l->rdma = m->rdma;
        up(l, m->incarnation, m->data_port);
    }
}

/* ---- messages ---- */

static void message(struct peer_link *l, const struct frame_header *h, const uint8_t *body)
{
    struct daemon *d = l->d;
    struct event ev = {.kind = EV_PEER_MSG};
    uint64_t sequence;

    if (wire_in_peer_msg(&d->in, h, body, d->config->peers[l->peer].tenants, &ev.peer.msg,
                         &sequence) != TERN_OK) {
        protocol_error(l, "a message that cannot be read");
        return;
    }
    if (sequence != l->received + 1) {
        protocol_error(l, "a message was repeated or skipped");
        return;
    }
    l->received = sequence;
    log_transfer(l, &ev.peer.msg, "in");
    ev.peer.link = l->slot;
    daemon_event(d, &ev);
}

static void path(struct peer_link *l, const struct frame_header *h, const uint8_t *body)
{
    uint64_t sequence = l->received + 1;

    if (link_path_read(l, h, body, sequence) != TERN_OK)
        protocol_error(l, "a message that cannot be read, or not in its turn");
    else
        l->received = sequence;
}

static void on_frame(struct stream *s, const struct frame_header *h, const uint8_t *body)
{
    struct peer_link *l = link_of(s);

    if (l->state == PEER_LINK_GREETING) {
        if (outbound(l))
            hello_answered(l, h, body);
        else
            greeted(l, h, body);
        return;
    }
    l->heard_ns = io_now_ns();
    switch (h->type) {
    case FRAME_PEER_MSG: message(l, h, body); break;
    case FRAME_PEER_PATH: path(l, h, body); break;
    case FRAME_PING: send_ping(l, FRAME_PING_REPLY, h->request_id); break;
    case FRAME_PING_REPLY: break;
    default: protocol_error(l, "a frame that no peer sends"); break;
    }
}

static void on_refused(struct stream *s, const struct frame_header *h)
{
    (void)h;
    stream_close(s, "as many large messages are arriving as peers may send at a time");
}

static void begin(struct peer_link *l)
{
    l->state = PEER_LINK_GREETING;
    if (outbound(l))
        send_hello(l);
}

static void on_secured(struct stream *s)
{
    begin(link_of(s));
}

static void on_tls_refused(struct stream *s, enum tls_refusal why, const char *detail)
{
    link_tls_refused(link_of(s), why, detail);
}

static const struct stream_ops link_stream_ops = {.frame = on_frame,
                                                  .refused = on_refused,
                                                  .closed = on_closed,
                                                  .finished = on_finished,
                                                  .secured = on_secured,
                                                  .tls_refused = on_tls_refused};

static void open_stream(struct peer_link *l, int fd)
{
    int one = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    l->state = PEER_LINK_SECURING;
    l->cause_known = false;
    l->data_token = 0;
    l->sent = l->received = l->pings = 0;
    l->incarnation = 0;
    stream_open(&l->stream, l->d->streams, &link_stream_ops, fd, l->d->config->ntenants + 1,
                HELLO_BODY_MAX, LINK_SEND_BUFFERS_MAX);
    if (l->d->links.tls)
        link_secure(l);
    else
        begin(l);
}

/* ---- dialling ---- */

void link_attempt_failed(struct peer_link *l, const char *text)
{
    char cause[LINK_CAUSE_BYTES];

    if (l->naddrs == 0)
        snprintf(cause, sizeof cause, "the name does not resolve: %s", l->name_trouble);
    else if (l->name_trouble[0])
        snprintf(cause, sizeof cause, "%s; the name does not resolve: %s", text, l->name_trouble);
    else
        snprintf(cause, sizeof cause, "%s", text);
    l->attempts++;
    record_cause(l, cause);
    l->state = PEER_LINK_IDLE;
    pause_before_redial(l, io_now_ns());
}

/* The first time of each cause is told; what repeats is in `ternctl peers`. */
static void dial_failed(struct peer_link *l, uint32_t address, int cause, const char *text)
{
    const struct config_peer *peer = &l->d->config->peers[l->peer];
    bool told = l->dial_errno[address] == cause;

    l->dial_errno[address] = cause;
    link_attempt_failed(l, text);
    log_event(told ? LEVEL_DEBUG : LEVEL_WARN, "dial_failed",
              "peer=%s host=%s port=%u errno=%d reason=%s attempts=%u pause_ms=%u", peer->name,
              peer->address.host, peer->address.port, cause, text, l->attempts,
              (unsigned)(l->pause_ns / 1000000));
}

static void dial_done(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct peer_link *l =
        (struct peer_link *)(void *)((char *)op - offsetof(struct peer_link, dial));
    uint32_t i = l->next_addr % l->naddrs;
    int fd = l->dial_fd;

    (void)flags;
    (void)buffer;
    l->dial_fd = -1;
    if (res < 0) {
        close(fd);
        l->next_addr++;
        dial_failed(l, i, -res, res == -ECANCELED ? "no answer in time" : strerror(-res));
        return;
    }
    l->dial_errno[i] = 0;
    open_stream(l, fd);
}

void link_dial(struct peer_link *l, uint64_t now_ns)
{
    uint32_t i;

    if (l->named && l->next_addr >= l->naddrs) {
        link_ask_name(l, now_ns);
        return;
    }
    i = l->next_addr % l->naddrs;
    l->dial_fd = socket(l->addr[i].ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (l->dial_fd < 0) {
        dial_failed(l, i, errno, strerror(errno));
        return;
    }
    l->state = PEER_LINK_DIALLING;
    l->give_up_ns = now_ns + LINK_DIAL_NS;
    l->dial.done = dial_done;
    io_connect(l->d->io, &l->dial, l->dial_fd, (struct sockaddr *)&l->addr[i], l->addr_len[i]);
}

static void tick_up(struct peer_link *l, uint64_t now_ns)
{
    if (l->full) {
        stream_close(&l->stream, "reads too slowly: its send queue is full");
    } else if (now_ns - l->heard_ns >= LINK_SILENT_NS) {
        stream_close(&l->stream, "silent for too long");
    } else if (outbound(l) && now_ns - l->pinged_ns >= LINK_PING_NS) {
        l->pinged_ns = now_ns;
        send_ping(l, FRAME_PING, ++l->pings);
    }
}

/* Whoever knows the data port and nothing else. */
static void log_data_refused(struct daemon *d)
{
    struct xfer_stats stats;

    xfer_stats(d->xfer, &stats);
    if (stats.refused == d->links.data_refused)
        return;
    d->links.data_refused = stats.refused;
    log_event(LEVEL_WARN, "data_refused", "connections=%" PRIu64 " reason=%s", stats.refused,
              "no token of a link that is up, or pages of another link's transfer");
}

void links_tick(struct daemon *d, uint64_t now_ns)
{
    struct peer_links *ls = &d->links;

    log_data_refused(d);

    listen_tick(&ls->listener, now_ns);
    for (uint32_t i = 0; i < ls->n; i++) {
        struct peer_link *l = &ls->v[i];

        if (l->state == PEER_LINK_UP)
            tick_up(l, now_ns);
        else if (l->state == PEER_LINK_IDLE && outbound(l) && now_ns >= l->redial_ns)
            link_dial(l, now_ns);
        else if (l->state == PEER_LINK_RESOLVING && now_ns >= l->give_up_ns)
            link_name_timed_out(l, now_ns);
        else if (l->state == PEER_LINK_DIALLING && now_ns >= l->give_up_ns) {
            l->give_up_ns = UINT64_MAX;
            io_cancel(d->io, &l->dial);
        }
    }
}

/* ---- the beginning and the end ---- */

static void accepted(struct listener *listener, int fd)
{
    struct daemon *d = listener->ctx;
    struct peer_links *ls = &d->links;

    for (uint32_t i = ls->peers; i < ls->n; i++) {
        if (ls->v[i].state == PEER_LINK_IDLE) {
            open_stream(&ls->v[i], fd);
            return;
        }
    }
    log_event(LEVEL_WARN, "link_limit", "inbound=%u", ls->n - ls->peers);
    close(fd);
}

enum tern_err links_init(struct daemon *d, char *why, size_t cap)
{
    struct peer_links *ls = &d->links;

    ls->listener.fd = -1;
    ls->peers = d->config->npeers;
    ls->n = d->limits.links;
    check(d->limits.peers == ls->peers && ls->n >= ls->peers);
    prng_init(&ls->prng, d->incarnation);
    if (ls->n == 0)
        return TERN_OK;
    ls->v = calloc(ls->n, sizeof(*ls->v));
    if (!ls->v) {
        snprintf(why, cap, "no memory for %u links", ls->n);
        return TERN_INTERNAL;
    }
    for (uint32_t i = 0; i < ls->n; i++) {
        ls->v[i].d = d;
        ls->v[i].slot = i;
        ls->v[i].peer = i < ls->peers ? i : NONE;
        ls->v[i].dial_fd = -1;
    }
    TRY(links_names_init(d, why, cap));
    return links_tls_init(d, why, cap);
}

enum tern_err links_listen(struct daemon *d, char *why, size_t cap)
{
    const struct config_endpoint *at = &d->config->listen;

    if (!at->host[0])
        return TERN_OK;
    TRY(listen_tcp(&d->links.listener, at->host, at->port, &d->control_port, why, cap));
    listen_start(&d->links.listener, d->io, accepted, d, 0);
    return TERN_OK;
}

void links_finish(struct daemon *d)
{
    struct peer_links *ls = &d->links;

    listen_stop(&ls->listener);
    for (uint32_t i = 0; ls->v && i < ls->n; i++) {
        if (ls->v[i].dial_fd >= 0)
            close(ls->v[i].dial_fd);
        if (ls->v[i].state >= PEER_LINK_SECURING)
            close(ls->v[i].stream.fd);
    }
    links_names_finish(d);
    tls_destroy(ls->tls);
    ls->tls = NULL;
    free(ls->v);
    ls->v = NULL;
}
