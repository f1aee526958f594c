/* What the RDMA ends of two daemons say to each other, on their control connection: the only place
 * of the shell where keys and addresses of registered memory are seen. Nothing of it reaches the
 * core, a tape or a log. A tenant that the peer may not ask for is refused here. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "shell/daemon.h"
#include "shell/log.h"
#include "shell/wire_out.h"

static_assert(WIRE_CHUNK_BYTES == sizeof(struct xfer_chunk), "chunks travel as they are");
static_assert(WIRE_CHUNKS_MAX == XFER_CHUNKS_MAX, "as many as fit");
static_assert(WIRE_GID_BYTES == XFER_PATH_GID_BYTES, "a GID");

static void send_message(struct link *l, const struct xfer_path_msg *msg, const char *tenant)
{
    struct daemon *d = l->d;
    Tern__Wire__PeerPath m = TERN__WIRE__PEER_PATH__INIT;
    struct frame_header h = {.version = FRAME_VERSION, .type = FRAME_PEER_PATH};
    size_t n;

    m.has_kind = m.has_epoch = m.has_sequence = true;
    m.kind = msg->kind;
    m.epoch = msg->epoch;
    m.tenant = (char *)(uintptr_t)tenant;
    m.sequence = link_next_sequence(l);
    if (msg->kind == XFER_PATH_REFUSE) {
        m.text = (char *)(uintptr_t)msg->text;
    } else {
        m.has_qpn = m.has_psn = m.has_mtu = m.has_lid = m.has_gid = m.has_rd_atomic = true;
        m.qpn = msg->qpn;
        m.psn = msg->psn;
        m.mtu = msg->mtu;
        m.lid = msg->lid;
        m.rd_atomic = msg->rd_atomic;
        m.gid = wire_bytes(msg->gid, sizeof msg->gid);
        m.has_chunks = true;
        m.chunks = wire_bytes(msg->chunk, msg->nchunks * sizeof *msg->chunk);
    }
    check(wire_encode(&h, &m.base, FRAME_BODY_MAX, d->frame, FRAME_HEADER_BYTES + FRAME_BODY_MAX,
                      &n) == TERN_OK);
    stream_put(&l->stream, d->frame, n, NULL, 0);
}

void link_path_send(void *ctx, uint32_t slot, const struct xfer_path_msg *msg)
{
    struct daemon *d = ctx;
    struct link *l = &d->links.v[slot];

    if (link_up(l))
        send_message(l, msg, d->config->tenants[msg->tenant].name);
}

void link_path_note(void *ctx, uint32_t slot, uint32_t tenant, bool verbs, const char *reason)
{
    struct daemon *d = ctx;
    const struct link *l = &d->links.v[slot];
    const struct config_peer *peer = &d->config->peers[l->peer];
    bool forced = peer->transport == XFER_VERBS && !verbs;

    log_event(forced ? LEVEL_WARN : LEVEL_INFO, "transport",
              "peer=%s tenant=%s transport=%s reason=%s", peer->name,
              d->config->tenants[tenant].name,
              verbs    ? "verbs"
              : forced ? "none"
                       : "tcp",
              reason);
}

static void refuse(struct link *l, const Tern__Wire__PeerPath *m)
{
    struct xfer_path_msg no = {.kind = XFER_PATH_REFUSE, .epoch = m->epoch};

    snprintf(no.text, sizeof no.text, "not a tenant that this peer may ask for");
    if (m->tenant)
        send_message(l, &no, m->tenant);
}

/* As it was sent, but for who it is about. */
static enum tern_err decode(struct daemon *d, const Tern__Wire__PeerPath *m,
                            struct xfer_path_msg *ret)
{
    const void *chunks;

    *ret = (struct xfer_path_msg){.kind = (enum xfer_path_kind)m->kind,
                                  .epoch = m->epoch,
                                  .qpn = m->qpn,
                                  .psn = m->psn,
                                  .mtu = m->mtu,
                                  .lid = m->lid,
                                  .rd_atomic = m->rd_atomic};
    if (m->has_gid)
        memcpy(ret->gid, m->gid.data, sizeof ret->gid);
    TRY(wire_array(&d->in.budget, &m->chunks, WIRE_CHUNK_BYTES, &chunks, &ret->nchunks));
    memcpy(ret->chunk, chunks, ret->nchunks * sizeof *ret->chunk);
    if (m->text)
        snprintf(ret->text, sizeof ret->text, "%s", m->text);
    for (char *c = ret->text; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?'; /* it goes to logs and terminals */
    return TERN_OK;
}

enum tern_err link_path_read(struct link *l, const struct frame_header *h, const uint8_t *body,
                             uint64_t *ret_sequence)
{
    struct daemon *d = l->d;
    const Tern__Wire__PeerPath *m;
    const ProtobufCMessage *msg;
    struct xfer_path_msg got;
    uint32_t tenant = NONE;

    TRY(wire_in_message(&d->in, h, body, &msg));
    m = (const Tern__Wire__PeerPath *)(const void *)msg;
    if (m->kind < XFER_PATH_OFFER || m->kind >= XFER_PATH_KINDS || m->sequence != *ret_sequence)
        return TERN_MALFORMED;
    if (m->tenant)
        (void)config_tenant_slot(d->config, m->tenant, &tenant);
    if (tenant == NONE || !(d->config->peers[l->peer].tenants >> tenant & 1)) {
        log_event(LEVEL_WARN, "path_denied", "peer=%s link=%u", d->config->peers[l->peer].name,
                  l->slot);
        if (m->kind == XFER_PATH_OFFER)
            refuse(l, m);
        return TERN_OK;
    }
    TRY(decode(d, m, &got));
    got.tenant = tenant;
    xfer_path_msg(d->xfer, l->slot, &got);
    return TERN_OK;
}
