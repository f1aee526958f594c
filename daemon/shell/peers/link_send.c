/* Sending on a link: pings and the core's messages. See link.h. Invariant: messages are numbered
 * without a gap; a message without room ends its transfer, not the link. */

#include "base/check.h"
#include "base/err.h"
#include "core/transfer/peer_words.h"
#include "shell/daemon.h"
#include "shell/log/log.h"
#include "shell/peers/link_internal.h"
#include "shell/wire/wire_out.h"

bool link_send_message(struct peer_link *l, uint16_t type, uint64_t request_id,
                       const ProtobufCMessage *m)
{
    size_t n = wire_out_message(type, request_id, m, HELLO_BODY_MAX, l->d->frame);

    check(n > 0);
    return stream_put(&l->stream, l->d->frame, n, NULL, 0);
}

void link_send_ping(struct peer_link *l, uint16_t type, uint64_t request_id)
{
    Tern__Wire__Empty m = TERN__WIRE__EMPTY__INIT;

    link_send_message(l, type, request_id, &m.base);
}

/* Logs one line per transfer on each side, to follow a trace id from daemon to daemon. */
void link_log_transfer(const struct peer_link *l, const struct peer_msg *msg, const char *dir)
{
    if (msg->kind == PEER_PULL_OPEN)
        log_event(LEVEL_DEBUG, "pull_open", "peer=%s dir=%s from=%u to=%u " LOG_TRACE,
                  link_peer_name(l), dir, msg->from, msg->to, msg->trace_id);
    else if (msg->err != TERN_OK)
        log_event(LEVEL_DEBUG, "pull_refused", "peer=%s dir=%s err=%s " LOG_TRACE,
                  link_peer_name(l), dir, err_name(msg->err), msg->trace_id);
}

/* The queue is full of requests with tokens: ends the fetch, as the peer would, and keeps the
 * link. */
static void refuse_tokens(struct daemon *d, uint32_t slot, const struct peer_msg *msg)
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
    struct wire_layouts layouts = {0};
    const char *tenant = NULL;
    size_t n;

    if (!link_up(l))
        return;
    check(peer_err_heard(msg->kind, msg->err) == msg->err);
    if ((msg->kind == PEER_PULL_OPEN || msg->kind == PEER_RESET) &&
        msg->tenant < d->config->ntenants)
        tenant = d->config->tenants[msg->tenant].name;
    if (msg->layout_hash != 0 && (msg->fields_hash != 0 || msg->kind == PEER_PULL_OFFER))
        layouts.v = xfer_layouts_of(d->xfer, msg->layout_hash, &layouts.n);
    n = wire_out_peer_msg(msg, tenant, &layouts, l->sent + 1, LINK_BODY_MAX, d->frame);
    check(n > 0);
    if ((msg->kind == PEER_PULL_OPEN || msg->kind == PEER_PULL_TOKENS) &&
        !stream_fits(&l->stream, n)) {
        refuse_tokens(d, slot, msg);
        return;
    }
    link_log_transfer(l, msg, "out");
    l->sent++;
    stream_put(&l->stream, d->frame, n, NULL, 0);
}
