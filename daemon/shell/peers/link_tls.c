/* TLS of the links: sessions, counts of refusals, reload of certificates. See link.h. Invariant:
 * every refusal is logged and counted once. */
#include <arpa/inet.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/err.h"
#include "seam/io/tcp_listen.h"
#include "shell/daemon.h"
#include "shell/log/log.h"
#include "shell/peers/link_internal.h"

/* Stages of our certificate's expiry. 0: more than a tenth of its life is left, 1: at most a tenth,
 * 2: at most a hundredth, EXPIRY_STAGES: nothing. Not days: some certificates live for hours. */
#define EXPIRY_STAGES 3

#define CALLER_BYTES (INET6_ADDRSTRLEN + 8) /* [ADDRESS]:PORT */

static uint32_t expiry_stage(const struct tls_stats *own)
{
    return own->left_s <= 0                       ? EXPIRY_STAGES
           : own->left_s <= own->own.life_s / 100 ? 2
                                                  : own->left_s <= own->own.life_s / 10;
}

/* Logs the expiry once per stage and certificate. A link that is up outlives the certificate, so
 * nothing else shows that the next link will be refused. */
void links_tls_tick(struct daemon *d)
{
    struct tls_stats own;
    uint32_t stage;

    if (!d->links.tls)
        return;
    tls_stats(d->links.tls, &own);
    stage = expiry_stage(&own);
    if (stage > d->links.expiry_told)
        log_event(stage == EXPIRY_STAGES ? LEVEL_ERROR : LEVEL_WARN, "certificate_expires",
                  "cert=%s not_after=%s left_s=%" PRId64 " reason=%s", d->config->tls_cert,
                  own.own.not_after, own.left_s,
                  stage == EXPIRY_STAGES
                      ? "the certificate has expired: links that are up stay, and peers refuse "
                        "every new one; make a new certificate, then reload"
                      : "make a new certificate, then reload");
    d->links.expiry_told = stage;
}

/* Logs the certificate that was just loaded. */
static void log_own(struct daemon *d, const struct tls_files *files)
{
    struct tls_stats own;

    tls_stats(d->links.tls, &own);
    log_event(LEVEL_INFO, "tls", "cert=%s not_after=%s", files->cert, own.own.not_after);
    if (!own.own.own_ca)
        log_event(LEVEL_WARN, "certificate_foreign", "cert=%s ca=%s reason=%s", files->cert,
                  files->ca,
                  "no CA in that file has issued this node's certificate: peers that trust the "
                  "same CA refuse it");
    d->links.expiry_told = 0;
    links_tls_tick(d);
}

static struct tls_files files_of(const struct config *config)
{
    return (struct tls_files){config->tls_ca, config->tls_cert, config->tls_key};
}

enum tern_err links_tls_init(struct daemon *d, char *why, size_t cap)
{
    struct peer_links *ls = &d->links;
    struct tls_config config = {
        .files = files_of(d->config),
        .node = d->config->node,
        .peers = ls->names,
        .npeers = ls->peers,
        .sessions = ls->n,
    };

    if (!config.files.cert[0])
        return TERN_OK;
    for (uint32_t i = 0; i < ls->peers; i++)
        ls->names[i] = d->config->peers[i].name;
    TRY(tls_create(&config, &ls->tls, why, cap));
    log_own(d, &config.files);
    return TERN_OK;
}

enum tern_err links_reload(struct daemon *d, const struct config *from, bool dry_run,
                           struct tls_own *ret, char *why, size_t cap)
{
    const struct tls_files files = files_of(from->tls_cert[0] ? from : d->config);

    if (!d->links.tls)
        return TERN_OK;
    TRY(tls_reload(d->links.tls, &files, dry_run, ret, why, cap));
    if (!dry_run)
        log_own(d, &files);
    return TERN_OK;
}

/* The address of a caller; "" if the connection is gone. */
static void caller(const struct peer_link *l, char ret[CALLER_BYTES])
{
    struct sockaddr_storage addr;
    socklen_t len = sizeof addr;
    const void *ip = NULL;
    char text[INET6_ADDRSTRLEN];

    ret[0] = '\0';
    if (getpeername(l->stream.fd, (struct sockaddr *)&addr, &len) != 0)
        return;
    if (addr.ss_family == AF_INET)
        ip = &((struct sockaddr_in *)&addr)->sin_addr;
    else if (addr.ss_family == AF_INET6)
        ip = &((struct sockaddr_in6 *)&addr)->sin6_addr;
    if (ip && inet_ntop(addr.ss_family, ip, text, sizeof text))
        snprintf(ret, CALLER_BYTES, addr.ss_family == AF_INET ? "%s:%u" : "[%s]:%u", text,
                 tcp_port(&addr));
}

/* An outbound link is dialled again and meets the same refusal, so each cause on such a link is
 * logged as a warning only once. */
void link_tls_refused(struct peer_link *l, enum tls_refusal why, const char *detail)
{
    struct daemon *d = l->d;
    bool out = link_is_outbound(l), again;
    char from[CALLER_BYTES] = "";

    links_faults(d, l->peer)->refused[why]++;
    if (!out)
        caller(l, from);
    again = !link_set_cause(l, "TLS refused: %s: %s", tls_refusal_name(why), detail) && out;
    log_event(again ? LEVEL_DEBUG : LEVEL_WARN, "tls_refused",
              "link=%u peer=%s dir=%s from=%s reason=%s detail=%s", l->slot, link_peer_name(l),
              out ? "out" : "in", from, tls_refusal_name(why), detail);
}

void link_tls_silent(struct daemon *d, uint64_t callers)
{
    if (callers == 0)
        return;
    links_faults(d, NONE)->refused[TLS_TIMEOUT] += callers;
    log_event(LEVEL_WARN, "tls_refused", "dir=in reason=%s connections=%" PRIu64,
              tls_refusal_name(TLS_TIMEOUT), callers);
}

void link_secure(struct peer_link *l)
{
    struct daemon *d = l->d;
    bool out = link_is_outbound(l);

    if (tls_open(d->links.tls, out ? d->config->peers[l->peer].name : NULL, stream_tls_send,
                 &l->stream, &l->tls) != TERN_OK) {
        link_tls_refused(l, TLS_NO_ROOM, "too many handshakes at a time");
        stream_close(&l->stream, "no TLS session is free");
        return;
    }
    stream_secure(&l->stream, l->tls);
}

bool link_tls_peer(struct daemon *d, uint32_t peer, struct tls_peer *ret)
{
    const struct peer_link *l = &d->links.v[peer];

    if (!link_up(l) || !l->tls)
        return false;
    tls_peer(l->tls, ret);
    return true;
}
