/* Peers that join, change and leave while the daemon runs. See link.h. Invariant: a slot is reused
 * only when its link is idle, no link from that peer is left and the core has no transfer with the
 * peer. (A transfer ends only after the data path's proof that no writer is left.) The core is
 * informed at that time; no other link is affected. */
#include <string.h>

#include "base/check.h"
#include "shell/daemon.h"
#include "shell/log/log.h"
#include "shell/peers/link_internal.h"

static const char left_text[] = "it was removed", changed_text[] = "its entry was changed";

static void tell_core(struct daemon *d, uint32_t slot, bool joined)
{
    struct event ev = {.kind = joined ? EV_PEER_JOINED : EV_PEER_LEFT, .member = {.peer = slot}};

    daemon_event(d, &ev);
}

static bool is_of(const struct peer_link *l, uint32_t slot)
{
    return l->peer == slot && l->state != PEER_LINK_IDLE && l->state != PEER_LINK_VACANT;
}

/* Ends every link to and from the peer; links that are already ending continue to end. */
static void end_links(struct daemon *d, uint32_t slot, const char *why)
{
    struct peer_links *ls = &d->links;

    link_give_up(&ls->v[slot]);
    link_close(d, slot, why);
    for (uint32_t i = ls->peers; i < ls->n; i++)
        if (is_of(&ls->v[i], slot))
            link_close(d, i, why);
}

static uint32_t free_slot(const struct daemon *d)
{
    uint32_t i = 0;

    while (i < d->links.peers && d->links.v[i].state != PEER_LINK_VACANT)
        i++;
    return i;
}

uint32_t links_free(const struct daemon *d)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < d->links.peers; i++)
        n += d->links.v[i].state == PEER_LINK_VACANT;
    return n;
}

const char *links_unfit(const struct daemon *d, const struct config_peer *peer)
{
    struct xfer_rdma_view rdma;

    if (!d->links.tls && !d->config->insecure_peers)
        return "this daemon started without `tls` and `insecure_peers`, so it connects to no peer";
    if (xfer_transport_kind[peer->transport].by_paths) {
        xfer_rdma_view(d->xfer, &rdma);
        if (!rdma.wanted)
            return "no peer had transport auto or verbs at start, so no memory is registered for "
                   "RDMA";
    }
    return NULL;
}

void links_join(struct daemon *d, const struct config_peer *peer)
{
    uint32_t slot = free_slot(d);
    struct peer_links *ls = &d->links;
    struct peer_link *l = &ls->v[slot];

    check(slot < ls->peers);
    d->config->peers[slot] = *peer;
    if (slot >= d->config->npeers)
        d->config->npeers = slot + 1;
    memset(ls->lives[slot], 0, sizeof ls->lives[slot]);
    *links_faults(d, slot) = (struct link_faults){.breaches = 0};
    xfer_link_forget(d->xfer, slot);
    peer_link_state_move(&l->state, PEER_LINK_IDLE);
    l->moved = true;
    l->pause_ns = l->up_ns = 0;
    link_due(l, 0);
    tell_core(d, slot, true);
    log_event(LEVEL_INFO, "peer_joined", "peer=%s host=%s port=%u origin=%s", peer->name,
              peer->address.host, peer->address.port, config_peer_origin(peer));
}

void links_change(struct daemon *d, uint32_t slot, const struct config_peer *to)
{
    struct peer_link *l = &d->links.v[slot];

    check(strcmp(d->config->peers[slot].name, to->name) == 0);
    d->config->peers[slot] = *to;
    l->fallen &= to->tenants;
    l->moved = true;
    l->pause_ns = 0;
    end_links(d, slot, changed_text);
    if (l->state == PEER_LINK_IDLE)
        link_due(l, 0);
}

static bool is_quiet(const struct daemon *d, uint32_t slot)
{
    const struct peer_links *ls = &d->links;

    if (ls->v[slot].state != PEER_LINK_IDLE)
        return false;
    for (uint32_t i = ls->peers; i < ls->n; i++)
        if (is_of(&ls->v[i], slot))
            return false;
    return !core_peer_used(d->core, slot);
}

static void leave_step(struct daemon *d, uint32_t slot)
{
    struct config_peer *peer = &d->config->peers[slot];
    struct peer_link *l = &d->links.v[slot];

    end_links(d, slot, left_text);
    if (!is_quiet(d, slot))
        return;
    tell_core(d, slot, false);
    log_event(LEVEL_INFO, "peer_left", "peer=%s", peer->name);
    memset(peer, 0, sizeof *peer);
    link_clear_cause(l);
    l->fallen = 0;
    peer_link_state_move(&l->state, PEER_LINK_VACANT);
    link_due(l, LINK_NEVER);
}

void links_leave(struct daemon *d, uint32_t slot)
{
    d->config->peers[slot].leaving = true;
    d->links.v[slot].moved = true;
    d->links.leaving++;
    end_links(d, slot, left_text);
}

void links_members_tick(struct daemon *d)
{
    for (uint32_t i = 0; d->links.leaving > 0 && i < d->config->npeers; i++)
        if (d->config->peers[i].leaving) {
            leave_step(d, i);
            d->links.leaving -= !d->config->peers[i].leaving;
        }
}

void links_members_init(struct daemon *d)
{
    for (uint32_t i = d->config->npeers; i < d->links.peers; i++) {
        peer_link_state_move(&d->links.v[i].state, PEER_LINK_VACANT);
        link_due(&d->links.v[i], LINK_NEVER);
        tell_core(d, i, false);
    }
}
