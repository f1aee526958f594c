/* Greetings: identify the other side, decide whether it may connect, and inform the core and the
 * data path when a link is up. See link.h. Invariant: no link comes up for a node that is not
 * configured, or that its certificate does not name. */
#include <netinet/in.h>
#include <string.h>
#include <sys/random.h>

#include "base/container.h"
#include "base/err.h"
#include "shell/daemon.h"
#include "shell/log/log.h"
#include "shell/peers/link_internal.h"
#include "shell/wire/wire_out.h"

#define OUR_NAME "another daemon uses this daemon's node name: give each its own `node`"
#define NOT_ITS_OWN                                                                                \
    "the peer sent the incarnation of this daemon or of another peer, which cannot be chance"

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
    link_send_message(l, FRAME_PEER_HELLO, 1, &m.base);
}

static void answer_hello(struct peer_link *l, uint64_t request_id, enum tern_err err,
                         const char *text, uint32_t version)
{
    struct daemon *d = l->d;
    Tern__Wire__PeerHelloReply m = TERN__WIRE__PEER_HELLO_REPLY__INIT;
    Tern__Wire__Status status;

    m.status = wire_out_status_in(&status, err, text);
    if (err == TERN_OK) {
        m.has_version = m.has_incarnation = m.has_data_port = m.has_data_token = m.has_rdma = true;
        m.data_token = l->data_token;
        m.rdma = d->rdma;
        m.version = version;
        m.node = (char *)(uintptr_t)d->config->node;
        m.incarnation = d->incarnation;
        m.data_port = d->data_port;
    }
    link_send_message(l, FRAME_PEER_HELLO_REPLY, request_id, &m.base);
}

/* Makes the token of an inbound link: a data connection that presents the token is that peer's. */
static bool admit(struct peer_link *l)
{
    if (getrandom(&l->data_token, sizeof(l->data_token), 0) != (ssize_t)sizeof(l->data_token))
        return false;
    l->data_token |= 1; /* 0 means none */
    xfer_admit(l->d->xfer, l->slot, l->data_token);
    return true;
}

/* Opens an outbound link's data path to the peer's port. Returns false if the link must close. */
static bool open_data_path(struct peer_link *l, uint64_t incarnation, uint32_t data_port)
{
    struct sockaddr_storage addr;
    socklen_t len = sizeof(addr);

    memset(&addr, 0, sizeof(addr));
    if (data_port == 0 || data_port > UINT16_MAX ||
        getpeername(l->stream.fd, (struct sockaddr *)&addr, &len) != 0) {
        stream_close(&l->stream, "the peer names no data port");
        return false;
    }
    if (addr.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)(void *)&addr)->sin6_port = htons((uint16_t)data_port);
    else
        ((struct sockaddr_in *)(void *)&addr)->sin_port = htons((uint16_t)data_port);
    if (xfer_link_up(l->d->xfer, l->slot, (struct sockaddr *)&addr, len, incarnation,
                     l->data_token) != TERN_OK) {
        stream_close(&l->stream, "the data path to the peer cannot be opened");
        return false;
    }
    return true;
}

static void come_up(struct peer_link *l, uint64_t incarnation, uint32_t data_port)
{
    struct event ev = {.kind = EV_LINK_UP,
                       .link = {.link = l->slot,
                                .peer = l->peer,
                                .incarnation = incarnation,
                                .tenants = l->d->config->peers[l->peer].tenants}};
    struct daemon *d = l->d;

    if (link_is_outbound(l) && !open_data_path(l, incarnation, data_port))
        return;
    peer_link_state_move(&l->state, PEER_LINK_UP);
    link_listed(l);
    link_clear_cause(l);
    l->incarnation = incarnation;
    l->up_ns = l->heard_ns = l->pinged_ns = io_now_ns();
    link_due(l, l->up_ns);
    l->stream.splitter.body_max = LINK_BODY_MAX;
    log_event(LEVEL_INFO, "link_up", "link=%u peer=%s dir=%s incarnation=%016" PRIx64, l->slot,
              link_peer_name(l), link_is_outbound(l) ? "out" : "in", incarnation);
    if (link_is_outbound(l)) {
        const struct config_peer *peer = &d->config->peers[l->peer];

        xfer_link_transport(d->xfer, l->slot, peer->transport, peer->tenants, l->rdma);
    }
    daemon_event(d, &ev);
}

/* Closes older links of the peer: a peer that was cut off dials again before we notice. */
static void replace_older(struct peer_link *l)
{
    struct peer_links *ls = &l->d->links;

    for (uint32_t i = ls->peers; i < ls->n; i++) {
        struct peer_link *other = &ls->v[i];

        if (other != l && link_up(other) && other->peer == l->peer)
            stream_close(&other->stream, "its node connected again");
    }
}

/* A restarted daemon never repeats an incarnation. A repeated incarnation means that two daemons
 * use one name, and each closes the other's link for ever. */
static void look_for_twin(const struct peer_link *l, uint64_t incarnation)
{
    uint64_t *lives = l->d->links.lives[l->peer];

    if (incarnation == lives[0])
        return;
    if (incarnation == lives[1])
        log_event(LEVEL_WARN, "peer_twice",
                  "peer=%s incarnation=%016" PRIx64 " other=%016" PRIx64 " reason=%s",
                  link_peer_name(l), incarnation, lives[0],
                  "two daemons use that node name and end each other's links: give each its own "
                  "`node` and certificate");
    lives[1] = lives[0];
    lives[0] = incarnation;
}

/* Returns true if another peer has sent this incarnation. */
static bool is_of_another(const struct daemon *d, uint32_t peer, uint64_t incarnation)
{
    for (uint32_t i = 0; i < d->config->npeers; i++)
        if (i != peer && d->config->peers[i].name[0] &&
            (d->links.lives[i][0] == incarnation || d->links.lives[i][1] == incarnation))
            return true;
    return false;
}

/* Returns why the other side cannot be the node that it names, or NULL if it can be. A daemon may
 * be its own peer, for moves between its pools. Invariant: an incarnation belongs to one name.
 * A false incarnation would be dangerous: it would receive the requests for another daemon's
 * tickets, with their keys. And pages of a link to this very daemon are copied as the peer's
 * messages specify. */
static const char *is_not(const struct peer_link *l, uint32_t peer, const char *node,
                          uint64_t incarnation)
{
    const struct daemon *d = l->d;
    bool our_name = strcmp(node, d->config->node) == 0;

    if (our_name && incarnation != d->incarnation)
        return OUR_NAME;
    if (our_name || (incarnation != d->incarnation && !is_of_another(d, peer, incarnation)))
        return NULL;
    log_event(LEVEL_WARN, "peer_twice", "peer=%s incarnation=%016" PRIx64 " reason=%s", node,
              incarnation, NOT_ITS_OWN);
    return NOT_ITS_OWN;
}

static void greeted(struct peer_link *l, const struct frame_header *h, const uint8_t *body)
{
    const Tern__Wire__PeerHello *m =
        h->type == FRAME_PEER_HELLO ? wire_in_message(&l->d->in, h, body) : NULL;
    const char *text = "", *not_it;
    uint32_t version = 0, peer = NONE;
    enum tern_err err;

    if (!m) {
        link_protocol_error(l, "the first message of a peer must be its hello");
        return;
    }
    err = wire_negotiate(m->version_min, m->version_max, &version);
    if (err != TERN_OK) {
        text = "no protocol version in common: update the older daemon";
    } else if (!m->node || config_peer_slot(l->d->config, m->node, &peer) != TERN_OK) {
        err = TERN_DENIED;
        text = "this node is not among the peers configured here";
    } else if (l->tls && !tls_names(l->tls, m->node)) {
        err = TERN_DENIED;
        text = "the certificate of this node names another node";
        link_tls_refused(l, TLS_WRONG_NAME, text);
    } else if ((not_it = is_not(l, peer, m->node, m->incarnation)) != NULL) {
        err = TERN_DENIED;
        text = not_it;
    } else if (!admit(l)) {
        err = TERN_BUSY;
        text = "the system has no random numbers";
    }
    answer_hello(l, h->request_id, err, text, version);
    if (err != TERN_OK) {
        stream_finish(&l->stream, text);
        return;
    }
    l->peer = peer;
    look_for_twin(l, m->incarnation);
    replace_older(l);
    link_redial_soon(&l->d->links.v[peer], io_now_ns());
    if (l->stream.state == STREAM_OPEN)
        come_up(l, m->incarnation, m->data_port);
}

static void hello_answered(struct peer_link *l, const struct frame_header *h, const uint8_t *body)
{
    const Tern__Wire__PeerHelloReply *m =
        h->type == FRAME_PEER_HELLO_REPLY ? wire_in_message(&l->d->in, h, body) : NULL;
    const char *not_it;

    if (!m) {
        link_protocol_error(l, "the peer answered hello with another message");
        return;
    }
    if (m->status && m->status->err != TERN_OK) {
        log_event(LEVEL_WARN, "peer_refused", "peer=%s err=%s text=%s", link_peer_name(l),
                  err_name((enum tern_err)m->status->err), m->status->text ? m->status->text : "");
        link_set_cause(l, "refused by the peer: %s",
                       m->status->text ? m->status->text : err_name((enum tern_err)m->status->err));
        stream_close(&l->stream, "the peer refused this daemon");
    } else if (!m->node || strcmp(m->node, link_peer_name(l)) != 0) {
        log_event(LEVEL_WARN, "peer_mismatch", "peer=%s node=%s", link_peer_name(l),
                  m->node ? m->node : "");
        link_set_cause(l, "another node answers at the peer's address: %s", m->node ? m->node : "");
        stream_close(&l->stream, "another node answers at the peer's address");
    } else if ((not_it = is_not(l, l->peer, m->node, m->incarnation)) != NULL) {
        link_set_cause(l, "%s", not_it);
        stream_close(&l->stream, not_it);
    } else {
        look_for_twin(l, m->incarnation);
        l->data_token = m->data_token;
        l->rdma = m->rdma;
        come_up(l, m->incarnation, m->data_port);
    }
}

void link_tls_met(struct stream *s)
{
    struct peer_link *l = container_of(s, struct peer_link, stream);
    static const char why[] = "the other side uses TLS, and this daemon does not: set `tls` here "
                              "in place of `insecure_peers`, or `insecure_peers` on both sides";
    bool out = link_is_outbound(l);

    log_event(LEVEL_WARN, "tls_unexpected", "link=%u peer=%s dir=%s reason=%s", l->slot,
              link_peer_name(l), out ? "out" : "in", why);
    link_set_cause(l, "%s", why);
    if (!out) /* a frame, so that the other side sees which node this is */
        answer_hello(l, 1, TERN_UNSUPPORTED, "this daemon does not use TLS", 0);
    stream_finish(&l->stream, "the other side uses TLS");
}

void link_greet(struct peer_link *l)
{
    peer_link_state_move(&l->state, PEER_LINK_GREETING);
    if (link_is_outbound(l))
        send_hello(l);
}

void link_greeting_frame(struct peer_link *l, const struct frame_header *h, const uint8_t *body)
{
    if (link_is_outbound(l))
        hello_answered(l, h, body);
    else
        greeted(l, h, body);
}
