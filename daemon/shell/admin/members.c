/* See operator.h. */
#include "shell/admin/operator.h"

#include <string.h>

#include "base/err.h"

#define OPERATOR   "operator"
#define MEMBERSHIP "membership"

static void put(const struct daemon *d, const struct config_peer *peer, struct text_out *out)
{
    TEXT(out,
         OBJECT(NULL, STR("peer", peer->name), WORD(peer->address, host), NUM(peer->address, port),
                STR("origin", config_peer_origin(peer)), FLAG(*peer, leaving),
                U64("peers", config_peers(d->config)), U64("limit", d->limits.peers)));
}

enum tern_err member_add(struct daemon *d, struct asked *a)
{
    struct config_peer_text text = {.name = NULL};
    const char *origin = OPERATOR;
    const struct admin_arg takes[] = {{.key = "name", .text = &text.name},
                                      {.key = "address", .text = &text.address},
                                      {.key = "transport", .text = &text.transport},
                                      {.key = "tenants", .text = &text.tenants},
                                      {.key = "origin", .text = &origin}};
    struct config_peer peer;
    const char *unfit;
    uint32_t slot;

    TRY(ASKED_ARGS(a, takes));
    if (strcmp(origin, OPERATOR) != 0 && strcmp(origin, MEMBERSHIP) != 0)
        return admin_refuse(a->why, TERN_INVALID,
                            "origin is " OPERATOR " or " MEMBERSHIP ", not '%.64s'", origin);
    TRY(config_peer_read(d->config, &text, &peer, a->why));
    if (config_peer_slot(d->config, peer.name, &slot) == TERN_OK)
        return admin_refuse(a->why, TERN_CONFLICT, "%s is already a peer, from %s: remove it first",
                            peer.name,
                            d->config->peers[slot].by_member     ? "tern-member"
                            : d->config->peers[slot].by_operator ? "an operator"
                                                                 : "the configuration");
    unfit = links_unfit(d, &peer);
    if (unfit)
        return admin_refuse(a->why, TERN_UNSUPPORTED, "the change needs a restart: %s", unfit);
    if (links_free(d) == 0)
        return admin_refuse(a->why, TERN_BUSY,
                            "all %u slots of limits.peers are in use or closing: remove a peer, "
                            "retry in a moment, or raise limits.peers and restart",
                            d->limits.peers);
    peer.by_operator = true;
    peer.by_member = strcmp(origin, MEMBERSHIP) == 0;
    links_join(d, &peer);
    put(d, &peer, &a->out);
    return TERN_OK;
}

enum tern_err member_remove(struct daemon *d, struct asked *a)
{
    const char *name = "";
    const struct admin_arg takes[] = {{.key = "name", .text = &name}};
    uint32_t slot;

    TRY(ASKED_ARGS(a, takes));
    if (config_peer_slot(d->config, name, &slot) != TERN_OK)
        return admin_refuse(a->why, TERN_INVALID,
                            "no peer is called '%.64s': `ternctl peers` shows them", name);
    member_leave(d, slot);
    put(d, &d->config->peers[slot], &a->out);
    return TERN_OK;
}

void member_leave(struct daemon *d, uint32_t slot)
{
    alarms_peer_left(d, slot, io_now_ns());
    links_leave(d, slot);
}
