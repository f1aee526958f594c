/* See operator.h. */
#include "shell/admin/operator.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "shell/admin/admin.h"

#define OPERATOR   "operator"
#define MEMBERSHIP "membership"

static void put(const struct daemon *d, const struct config_peer *peer, struct text_out *out)
{
    TEXT(out,
         OBJECT(NULL, STR("peer", peer->name), WORD(peer->address, host), NUM(peer->address, port),
                STR("origin", config_peer_origin(peer)), FLAG(*peer, leaving),
                U64("peers", config_peers(d->config)), U64("limit", d->limits.peers)));
}

static enum tern_err add(struct daemon *d, const Tern__Wire__Admin *m, struct text_out *out,
                         char *why)
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

    TRY(admin_args(m->command, m->args, m->n_args, takes, sizeof takes / sizeof *takes, why));
    if (strcmp(origin, OPERATOR) != 0 && strcmp(origin, MEMBERSHIP) != 0) {
        snprintf(why, CONFIG_WHY_BYTES, "origin is " OPERATOR " or " MEMBERSHIP ", not '%.64s'",
                 origin);
        return TERN_INVALID;
    }
    TRY(config_peer_read(d->config, &text, &peer, why));
    if (config_peer_slot(d->config, peer.name, &slot) == TERN_OK) {
        snprintf(why, CONFIG_WHY_BYTES, "%s is already a peer, from %s: remove it first", peer.name,
                 d->config->peers[slot].by_member     ? "tern-member"
                 : d->config->peers[slot].by_operator ? "an operator"
                                                      : "the configuration");
        return TERN_CONFLICT;
    }
    unfit = links_unfit(d, &peer);
    if (unfit) {
        snprintf(why, CONFIG_WHY_BYTES, "the change needs a restart: %s", unfit);
        return TERN_UNSUPPORTED;
    }
    if (links_free(d) == 0) {
        snprintf(why, CONFIG_WHY_BYTES,
                 "all %u slots of limits.peers are in use or closing: remove a peer, retry in a "
                 "moment, or raise limits.peers and restart",
                 d->limits.peers);
        return TERN_BUSY;
    }
    peer.by_operator = true;
    peer.by_member = strcmp(origin, MEMBERSHIP) == 0;
    links_join(d, &peer);
    put(d, &peer, out);
    return TERN_OK;
}

static enum tern_err take_away(struct daemon *d, const Tern__Wire__Admin *m, struct text_out *out,
                               char *why)
{
    const char *name = "";
    const struct admin_arg takes[] = {{.key = "name", .text = &name}};
    uint32_t slot;

    TRY(admin_args(m->command, m->args, m->n_args, takes, 1, why));
    if (config_peer_slot(d->config, name, &slot) != TERN_OK) {
        snprintf(why, CONFIG_WHY_BYTES, "no peer is called '%.64s': `ternctl peers` shows them",
                 name);
        return TERN_INVALID;
    }
    member_leave(d, slot);
    put(d, &d->config->peers[slot], out);
    return TERN_OK;
}

void member_leave(struct daemon *d, uint32_t slot)
{
    alarms_peer_left(d, slot, io_now_ns());
    links_leave(d, slot);
}

enum tern_err member_command(struct daemon *d, const Tern__Wire__Admin *m, struct text_out *out,
                             const char **ret_text)
{
    static char why[CONFIG_WHY_BYTES];

    *ret_text = why;
    return strcmp(m->command, "peer-add") == 0 ? add(d, m, out, why) : take_away(d, m, out, why);
}
