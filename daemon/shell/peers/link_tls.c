/* TLS of the links: their sessions, the counts of refusals, the reload of certificates. See link.h.
 * What must stay true: every refusal is logged and counted once. */
#include <stdio.h>

#include "base/err.h"
#include "shell/daemon.h"
#include "shell/log/log.h"
#include "shell/peers/link_internal.h"

enum tern_err links_tls_init(struct daemon *d, char *why, size_t cap)
{
    struct peer_links *ls = &d->links;
    struct tls_config config = {
        .ca = d->config->tls_ca,
        .cert = d->config->tls_cert,
        .key = d->config->tls_key,
        .node = d->config->node,
        .peers = ls->names,
        .npeers = ls->peers,
        .sessions = ls->n,
    };
    struct tls_stats stats;

    if (!config.cert[0])
        return TERN_OK;
    for (uint32_t i = 0; i < ls->peers; i++)
        ls->names[i] = d->config->peers[i].name;
    TRY(tls_create(&config, &ls->tls, why, cap));
    tls_stats(ls->tls, &stats);
    log_event(LEVEL_INFO, "tls", "cert=%s not_after=%s", config.cert, stats.not_after);
    return TERN_OK;
}

enum tern_err links_reload(struct daemon *d, char *why, size_t cap)
{
    struct tls_stats stats;
    enum tern_err err;

    if (!d->links.tls) {
        snprintf(why, cap, "there is nothing to reload: no certificate is configured");
        log_event(LEVEL_INFO, "reload_ignored", "reason=%s", why);
        return TERN_UNSUPPORTED;
    }
    err = tls_reload(d->links.tls, why, cap);
    if (err != TERN_OK) {
        log_event(LEVEL_ERROR, "reload_failed", "err=%s reason=%s kept=%s", err_name(err), why,
                  "the certificates that were in force");
        return err;
    }
    tls_stats(d->links.tls, &stats);
    log_event(LEVEL_INFO, "reloaded", "cert=%s not_after=%s", d->config->tls_cert, stats.not_after);
    return TERN_OK;
}

static uint32_t row_of(uint32_t peer)
{
    return peer == NONE ? CONFIG_PEERS_MAX : peer;
}

void link_tls_refused(struct peer_link *l, enum tls_refusal why, const char *detail)
{
    struct daemon *d = l->d;
    bool out = link_is_outbound(l);

    d->links.refused[row_of(l->peer)][why]++;
    log_event(LEVEL_WARN, "tls_refused", "link=%u peer=%s dir=%s reason=%s detail=%s", l->slot,
              link_peer_name(l), out ? "out" : "in", tls_refusal_name(why), detail);
    link_set_cause(l, "TLS refused: %s: %s", tls_refusal_name(why), detail);
}

void link_tls_silent(struct daemon *d, uint64_t callers)
{
    if (callers == 0)
        return;
    d->links.refused[row_of(NONE)][TLS_TIMEOUT] += callers;
    log_event(LEVEL_WARN, "tls_refused", "dir=in reason=%s connections=%" PRIu64,
              tls_refusal_name(TLS_TIMEOUT), callers);
}

bool link_secure(struct peer_link *l)
{
    struct daemon *d = l->d;
    bool out = link_is_outbound(l);

    if (tls_open(d->links.tls, out ? d->config->peers[l->peer].name : NULL, stream_tls_send,
                 &l->stream, &l->tls) != TERN_OK) {
        link_tls_refused(l, TLS_NO_ROOM, "too many handshakes at a time");
        stream_close(&l->stream, "no TLS session is free");
        return false;
    }
    stream_secure(&l->stream, l->tls);
    return true;
}

bool link_tls_peer(struct daemon *d, uint32_t peer, struct tls_peer *ret)
{
    const struct peer_link *l = &d->links.v[peer];

    if (!link_up(l) || !l->tls)
        return false;
    tls_peer(l->tls, ret);
    return true;
}

const uint64_t *links_refused(const struct daemon *d, uint32_t peer)
{
    return d->links.refused[row_of(peer)];
}
