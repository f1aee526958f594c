/* Links between daemons: their streams, the messages on them, how they begin and end. See link.h.
 * Invariant: the core receives LINK_UP once and LINK_DOWN once for each link that was up, and no
 * message twice or out of order. */
#include "shell/peers/link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/container.h"
#include "base/err.h"
#include "base/undumped.h"
#include "shell/daemon.h"
#include "shell/log/log.h"
#include "shell/peers/link_internal.h"

/* Returns true if the link has a stream to close: in all states between these two. */
static bool has_stream(const struct peer_link *l)
{
    return l->state >= PEER_LINK_SECURING && l->state <= PEER_LINK_OVERFLOWED;
}

static void on_closed(struct stream *s, const char *why)
{
    struct peer_link *l = container_of(s, struct peer_link, stream);
    struct daemon *d = l->d;
    bool known = link_up(l), changed = false;
    struct event ev = {.kind = EV_LINK_DOWN, .link = {.link = l->slot}};

    peer_link_state_move(&l->state, PEER_LINK_CLOSED);
    l->incarnation = 0;
    link_due(l, LINK_NEVER);
    link_listed(l);
    if (link_is_outbound(l)) {
        l->attempts += known ? 0 : 1;
        l->next_addr = known ? l->naddrs : l->next_addr + 1;
        changed = !l->cause_known && link_record_cause(l, why);
    }
    /* Strangers, however many, must not use up the log's rate for peers' links. */
    log_event(changed && !known ? LEVEL_WARN : LEVEL_INFO,
              l->peer == NONE ? "caller_left" : "link_down", "link=%u peer=%s dir=%s reason=%s",
              l->slot, link_peer_name(l), link_is_outbound(l) ? "out" : "in", why);
    if (!link_is_outbound(l))
        xfer_dismiss(d->xfer, l->slot);
    if (!known)
        return;
    if (link_is_outbound(l))
        xfer_link_down(d->xfer, l->slot);
    else
        xfer_peer_down(d->xfer, l->slot);
    daemon_later(d, &ev);
}

static void on_finished(struct stream *s)
{
    struct peer_link *l = container_of(s, struct peer_link, stream);

    peer_link_state_move(&l->state, PEER_LINK_IDLE);
    link_listed(l);
    tls_close(l->tls);
    l->tls = NULL;
    if (link_is_outbound(l))
        link_schedule_redial(l, io_now_ns());
    else
        l->peer = NONE;
    l->d->links.door_again = true;
}

void link_close(struct daemon *d, uint32_t slot, const char *why)
{
    struct peer_link *l = &d->links.v[slot];

    if (has_stream(l))
        stream_close(&l->stream, why);
}

/* Logs an error that a peer may not send; the core receives another error. */
static void word_refused(const struct peer_link *l, const struct peer_msg *msg, uint32_t word)
{
    links_faults(l->d, l->peer)->breaches++;
    log_event(LEVEL_WARN, "peer_word_refused",
              "peer=%s message=%u word=%u err=%s heard=%s " LOG_TRACE " reason=%s",
              link_peer_name(l), msg->kind, word, err_name((enum tern_err)word), err_name(msg->err),
              msg->trace_id,
              "no peer may send that error: this one runs another version, or is hostile");
}

/* Refuses the layout in the message: its hash becomes LAYOUT_NONE. */
static void layout_refused(const struct peer_link *l, struct peer_msg *io, const char *why)
{
    log_event(LEVEL_WARN, "peer_layout_refused",
              "peer=%s layout=%016" PRIx64 " " LOG_TRACE " reason=%s", link_peer_name(l),
              io->layout_hash, io->trace_id, why);
    io->layout_hash = LAYOUT_NONE;
}

static void tenant_refused(const struct peer_link *l, const char *tenant, const char *dir,
                           const char *reason)
{
    log_event(LEVEL_WARN, "tenant_refused", "peer=%s tenant=%s dir=%s reason=%s", link_peer_name(l),
              tenant, dir, reason);
}

/* Logs a refused tenant and the setting to change, before the core gets the message. "in": we
 * refuse the peer's request; "out": the peer refuses ours. */
static void log_tenant(const struct peer_link *l, const struct peer_msg *msg)
{
    const struct daemon *d = l->d;
    struct transfer_view t;
    uint32_t tenant;

    if (msg->kind == PEER_PULL_OPEN && msg->tenant == NONE) {
        const char *name = d->in.peer_tenant ? d->in.peer_tenant : "";
        bool known = config_tenant_slot(d->config, name, &tenant) == TERN_OK;

        tenant_refused(l, name, "in",
                       known ? "the peer may not ask for this tenant: on this host, add the tenant "
                               "to `tenants` of that peer's entry in `peers`"
                             : "no tenant of this host has this name: on this host, add the tenant "
                               "to `tenants`, and to `tenants` of that peer's entry in `peers`");
    } else if (msg->kind == PEER_PULL_OFFER && msg->err == TERN_DENIED &&
               core_pull_view(d->core, msg->pull.slot, &t) && pull_id_equal(t.pull, msg->pull) &&
               !t.ticket) {
        tenant_refused(l, d->config->tenants[t.tenant].name, "out",
                       "the peer denies this node the tenant: on the peer's host, add the tenant "
                       "to `tenants`, and to `tenants` of this node's entry in `peers`");
    }
}

static void message(struct peer_link *l, const struct frame_header *h, const uint8_t *body)
{
    struct daemon *d = l->d;
    struct event ev = {.kind = EV_PEER_MSG};
    const char *unkept = NULL;
    uint64_t sequence;

    if (wire_in_peer_msg(&d->in, h, body, d->config->peers[l->peer].tenants, &ev.peer.msg,
                         &sequence) != TERN_OK) {
        link_protocol_error(l, d->in.peer_unfit);
        return;
    }
    if (sequence != l->received + 1) {
        link_protocol_error(l, "a message was repeated or skipped");
        return;
    }
    l->received = sequence;
    if (d->in.nlayouts > 0 && ev.peer.msg.each == 0)
        unkept = xfer_peer_layouts(d->xfer, l->peer, ev.peer.msg.layout_hash, d->in.layouts,
                                   d->in.nlayouts);
    if (unkept)
        layout_refused(l, &ev.peer.msg, unkept);
    if (d->in.peer_word != ev.peer.msg.err)
        word_refused(l, &ev.peer.msg, d->in.peer_word);
    link_log_transfer(l, &ev.peer.msg, "in");
    log_tenant(l, &ev.peer.msg);
    ev.peer.link = l->slot;
    daemon_event(d, &ev);
}

static void path_message(struct peer_link *l, const struct frame_header *h, const uint8_t *body)
{
    uint64_t sequence = l->received + 1;

    if (link_path_read(l, h, body, sequence) != TERN_OK)
        link_protocol_error(l, "a message is malformed or out of order");
    else
        l->received = sequence;
}

static void on_frame(struct stream *s, const struct frame_header *h, const uint8_t *body)
{
    struct peer_link *l = container_of(s, struct peer_link, stream);

    if (l->state == PEER_LINK_GREETING) {
        link_greeting_frame(l, h, body);
        return;
    }
    l->heard_ns = io_now_ns();
    switch (h->type) {
    case FRAME_PEER_MSG: message(l, h, body); break;
    case FRAME_PEER_PATH: path_message(l, h, body); break;
    case FRAME_PING: link_send_ping(l, FRAME_PING_REPLY, h->request_id); break;
    case FRAME_PING_REPLY: break;
    default: link_protocol_error(l, "a frame that no peer sends"); break;
    }
}

static void on_body_refused(struct stream *s, const struct frame_header *h)
{
    (void)h;
    stream_close(s, "too many large messages arrive from peers at a time");
}

static void on_secured(struct stream *s)
{
    link_greet(container_of(s, struct peer_link, stream));
}

static void on_tls_refused(struct stream *s, enum tls_refusal why, const char *detail)
{
    link_tls_refused(container_of(s, struct peer_link, stream), why, detail);
}

static const struct stream_ops link_stream_ops = {.frame = on_frame,
                                                  .refused = on_body_refused,
                                                  .closed = on_closed,
                                                  .finished = on_finished,
                                                  .secured = on_secured,
                                                  .tls_refused = on_tls_refused,
                                                  .tls_met = link_tls_met};

static void open_stream(struct peer_link *l, int fd)
{
    int one = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    peer_link_state_move(&l->state, PEER_LINK_SECURING);
    link_due(l, LINK_NEVER);
    link_listed(l);
    l->opened_ns = io_now_ns();
    l->cause_known = false;
    l->data_token = 0;
    l->sent = l->received = l->pings = 0;
    stream_open(&l->stream, l->d->streams, &link_stream_ops, fd, l->d->config->ntenants + 1,
                HELLO_BODY_MAX, LINK_SEND_BUFFERS_MAX);
    if (l->d->links.tls)
        link_secure(l);
    else
        link_greet(l);
}

static void tick_up(struct peer_link *l, uint64_t now_ns)
{
    uint64_t silent_ns = l->heard_ns + LINK_SILENT_NS;

    if (l->state == PEER_LINK_OVERFLOWED) {
        stream_close(&l->stream, "reads too slowly: its send queue is full");
        return;
    }
    if (now_ns >= silent_ns) {
        stream_close(&l->stream, "silent for too long");
        return;
    }
    link_due(l, silent_ns);
    if (!link_is_outbound(l))
        return;
    if (now_ns - l->pinged_ns >= LINK_PING_NS) {
        l->pinged_ns = now_ns;
        link_send_ping(l, FRAME_PING, ++l->pings);
    }
    if (l->pinged_ns + LINK_PING_NS < silent_ns)
        link_due(l, l->pinged_ns + LINK_PING_NS);
}

/* Logs data connections that were refused, and those that exceeded their peer's share. */
static void log_data_refused(struct daemon *d)
{
    struct xfer_stats stats;

    xfer_stats(d->xfer, &stats);
    if (stats.refused != d->links.data_refused)
        log_event(LEVEL_WARN, "data_refused", "connections=%" PRIu64 " reason=%s", stats.refused,
                  "the connection has no token of a link that is up, or sent pages of another "
                  "link's transfer");
    if (stats.over_share != d->links.data_over_share)
        log_event(LEVEL_WARN, "data_over_share", "connections=%" PRIu64 " reason=%s",
                  stats.over_share,
                  "a peer's share of limits.data_conns_max and the shared remainder are in use");
    d->links.data_refused = stats.refused;
    d->links.data_over_share = stats.over_share;
    door_log_change(&stats.door, "data", &d->links.data_door_shown);
}

void link_data_dialled(void *ctx, uint32_t slot, uint16_t port, int error)
{
    struct daemon *d = ctx;
    struct peer_link *l = &d->links.v[slot];
    const char *peer = link_peer_name(l);
    char cause[LINK_CAUSE_BYTES];

    if (error == 0) {
        link_clear_cause(l);
        log_event(LEVEL_INFO, "data_dial_works", "peer=%s port=%u", peer, port);
        return;
    }
    snprintf(cause, sizeof cause, "its data port %u cannot be reached: %s", port, strerror(error));
    (void)link_record_cause(l, cause);
    l->no_data = true;
    log_event(LEVEL_WARN, "data_dial_failed", "peer=%s port=%u errno=%d reason=%s", peer, port,
              error, strerror(error));
}

void links_tick(struct daemon *d, uint64_t now_ns)
{
    struct peer_links *ls = &d->links;
    uint32_t first = ls->pace.next;

    log_data_refused(d);
    links_tls_tick(d);
    listen_tick(&ls->listener, now_ns);
    links_door_tick(d, now_ns);
    links_pace_tick(ls, now_ns);
    for (uint32_t n = 0; n < ls->n; n++) {
        uint32_t i = first + n < ls->n ? first + n : first + n - ls->n;

        if (ls->due_ns[i] > now_ns)
            continue;
        if (ls->due_ns[i] == LINK_WAITS && !links_pace_allows(ls, false))
            continue; /* does not even read the link's record: there may be thousands */
        if (link_up(&ls->v[i]))
            tick_up(&ls->v[i], now_ns);
        else
            link_dial_tick(&ls->v[i], now_ns);
    }
}

static void accepted(struct listener *listener, int fd)
{
    struct daemon *d = listener->ctx;

    if (d->state == DAEMON_STOPPED)
        close(fd);
    else
        door_arrived(d->links.door, fd, io_now_ns());
}

enum tern_err links_init(struct daemon *d, char *why, size_t cap)
{
    struct peer_links *ls = &d->links;

    ls->listener.fd = -1;
    ls->peers = d->limits.peers;
    ls->n = d->limits.links;
    check(d->config->npeers <= ls->peers && ls->n >= ls->peers);
    ls->connected = open_stream;
    prng_init(&ls->prng, d->incarnation);
    if (ls->n == 0)
        return TERN_OK;
    ls->due_ns = calloc(ls->n, sizeof(*ls->due_ns));
    ls->v = ls->due_ns ? undumped_take(ls->n * sizeof(*ls->v), false) : NULL;
    if (!ls->v)
        return fail_with(why, cap, TERN_INTERNAL, "no memory for %u links", ls->n);
    for (uint32_t i = 0; i < ls->n; i++) {
        ls->v[i].d = d;
        ls->v[i].slot = i;
        ls->v[i].peer = i < ls->peers ? i : NONE;
        ls->v[i].dial_fd = -1;
        ls->due_ns[i] = i < ls->peers ? 0 : LINK_NEVER;
        link_listed(&ls->v[i]);
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
    if (links_door_create(d) != TERN_OK)
        return fail_with(why, cap, TERN_INTERNAL,
                         "no memory or no descriptor to accept connections at the control port");
    listen_start(&d->links.listener, d->io, accepted, d);
    return TERN_OK;
}

void links_finish(struct daemon *d)
{
    struct peer_links *ls = &d->links;

    listen_stop(&ls->listener);
    for (uint32_t i = 0; ls->v && i < ls->n; i++) {
        if (ls->v[i].dial_fd >= 0)
            close(ls->v[i].dial_fd);
        if (has_stream(&ls->v[i]) || ls->v[i].state == PEER_LINK_CLOSED)
            close(ls->v[i].stream.fd);
    }
    tls_destroy(ls->tls);
    ls->tls = NULL;
    undumped_put(ls->v, ls->n * sizeof(*ls->v));
    free(ls->due_ns);
    ls->v = NULL;
    ls->due_ns = NULL;
}
