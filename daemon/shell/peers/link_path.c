/* The messages between the RDMA ends of two daemons, on their control connection. Only this file of
 * the shell reads keys and addresses of registered memory. Invariant: none of them reaches the
 * core, a tape or a log. This file refuses tenants that the peer may not request. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "proto/shown.h"
#include "shell/daemon.h"
#include "shell/log/log.h"
#include "shell/peers/link_internal.h"
#include "shell/wire/wire_out.h"

static_assert(WIRE_CHUNK_BYTES == sizeof(struct xfer_mr), "chunks travel as they are");
static_assert(WIRE_CHUNKS_MAX == XFER_MRS_MAX, "as many as fit");
static_assert(WIRE_WINDOW_BYTES == sizeof(uint32_t) && WIRE_WINDOWS_MAX == XFER_MWS_MAX,
              "so do windows");
static_assert(WIRE_GID_BYTES == XFER_PATH_GID_BYTES, "a GID");

/* Never closes the link within this call by the seam: if there is no room, the next tick closes the
 * link. */
static void send_message(struct peer_link *l, const struct xfer_path_msg *msg, const char *tenant)
{
    struct daemon *d = l->d;
    Tern__Wire__PeerPath m = TERN__WIRE__PEER_PATH__INIT;
    size_t n;

    m.has_kind = m.has_epoch = m.has_rail = m.has_sequence = true;
    m.kind = msg->kind;
    m.epoch = msg->epoch;
    m.rail = msg->rail;
    m.tenant = (char *)(uintptr_t)tenant;
    m.sequence = l->sent + 1;
    m.has_push = msg->push;
    m.push = msg->push;
    if (msg->kind == XFER_PATH_REFUSE) {
        m.text = (char *)(uintptr_t)msg->text;
    } else {
        m.has_qpn = m.has_psn = m.has_mtu = m.has_lid = m.has_gid = m.has_rd_atomic = true;
        m.qpn = msg->qpn;
        m.psn = msg->psn;
        m.mtu = msg->mtu;
        m.lid = msg->lid;
        m.rd_atomic = 1; /* older daemons, which could read, need this value */
        m.gid = wire_bytes(msg->gid, sizeof msg->gid);
        m.has_chunks = true;
        m.chunks = wire_bytes(msg->mr, msg->nmrs * sizeof *msg->mr);
        m.has_windows = msg->nmws > 0;
        m.windows = wire_bytes(msg->mw_rkey, msg->nmws * sizeof *msg->mw_rkey);
    }
    n = wire_out_message(FRAME_PEER_PATH, 0, &m.base, FRAME_BODY_MAX, d->frame);
    check(n > 0);
    if (l->state == PEER_LINK_OVERFLOWED)
        return;
    if (!stream_fits(&l->stream, n)) {
        peer_link_state_move(&l->state, PEER_LINK_OVERFLOWED);
        link_due(l, 0);
        return;
    }
    l->sent++;
    stream_put(&l->stream, d->frame, n, NULL, 0);
}

void link_path_send(void *ctx, uint32_t slot, const struct xfer_path_msg *msg)
{
    struct daemon *d = ctx;
    struct peer_link *l = &d->links.v[slot];

    if (link_up(l))
        send_message(l, msg, d->config->tenants[msg->tenant].name);
}

/* Warns when a fallback begins. A fallback that was in use before the link was lost is not new. */
void link_path_note(void *ctx, uint32_t slot, const struct xfer_note *note)
{
    struct daemon *d = ctx;
    struct peer_link *l = &d->links.v[slot];
    const uint64_t bit = (uint64_t)1 << note->tenant;
    const bool begins = note->kind == XFER_NOTE_FALLBACK && !(l->fallen & bit);

    if (note->kind == XFER_NOTE_FALLBACK)
        l->fallen |= bit;
    else if (note->kind == XFER_NOTE_WAY)
        l->fallen &= ~bit;
    log_event(begins || !note->transport ? LEVEL_WARN : LEVEL_INFO, "transport",
              "peer=%s tenant=%s transport=%s reason=%s", d->config->peers[l->peer].name,
              d->config->tenants[note->tenant].name, note->transport ? note->transport : "none",
              note->reason);
}

bool link_falls_back(const struct daemon *d, uint32_t peer)
{
    return link_up(&d->links.v[peer]) && d->links.v[peer].fallen != 0;
}

void link_path_changed(void *ctx, uint32_t slot, const struct xfer_path_view *path)
{
    struct daemon *d = ctx;
    const struct peer_link *l = &d->links.v[slot];

    if (!link_up(l))
        return; /* the path ended with its link, whose end was logged */
    log_event(path->ready ? LEVEL_INFO : LEVEL_WARN, path->ready ? "path_ready" : "path_failed",
              "peer=%s tenant=%s device=%s way=%s reason=%s", d->config->peers[l->peer].name,
              d->config->tenants[path->tenant].name, path->device, path->reads ? "in" : "out",
              path->reason);
}

static void refuse(struct peer_link *l, const Tern__Wire__PeerPath *m)
{
    struct xfer_path_msg no = {.kind = XFER_PATH_REFUSE, .rail = m->rail, .epoch = m->epoch};

    snprintf(no.text, sizeof no.text, "the peer may not ask for that tenant");
    if (m->tenant)
        send_message(l, &no, m->tenant);
}

/* Copies the elements of a field; the codec has checked that they fit. */
static uint32_t copy_elements(const ProtobufCBinaryData *bytes, uint32_t element_bytes, void *ret)
{
    if (bytes->len > 0)
        memcpy(ret, bytes->data, bytes->len);
    return (uint32_t)(bytes->len / element_bytes);
}

/* Copies the message as it was sent; the caller fills in the tenant. */
static void decode(const Tern__Wire__PeerPath *m, struct xfer_path_msg *ret)
{
    *ret = (struct xfer_path_msg){.kind = (enum xfer_path_kind)m->kind,
                                  .rail = m->rail,
                                  .epoch = m->epoch,
                                  .qpn = m->qpn,
                                  .psn = m->psn,
                                  .mtu = m->mtu,
                                  .lid = m->lid,
                                  .push = m->push};
    if (m->has_gid)
        memcpy(ret->gid, m->gid.data, sizeof ret->gid);
    ret->nmrs = copy_elements(&m->chunks, WIRE_CHUNK_BYTES, ret->mr);
    ret->nmws = copy_elements(&m->windows, WIRE_WINDOW_BYTES, ret->mw_rkey);
    shown(ret->text, sizeof ret->text, m->text ? m->text : "");
}

enum tern_err link_path_read(struct peer_link *l, const struct frame_header *h, const uint8_t *body,
                             uint64_t sequence)
{
    struct daemon *d = l->d;
    const Tern__Wire__PeerPath *m = wire_in_message(&d->in, h, body);
    struct xfer_path_msg got;
    uint32_t tenant = NONE;

    if (!m || m->kind < XFER_PATH_OFFER || m->kind >= XFER_PATH_KINDS || m->sequence != sequence)
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
    decode(m, &got);
    got.tenant = tenant;
    xfer_path_msg(d->xfer, l->slot, &got);
    return TERN_OK;
}
