/* The state of a link for operators: whether it is up, why not, the peer's breaches. See link.h. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/shown.h"
#include "shell/daemon.h"
#include "shell/peers/link_internal.h"

bool link_up(const struct peer_link *l)
{
    return l->state == PEER_LINK_UP || l->state == PEER_LINK_OVERFLOWED;
}

bool link_serves(const struct peer_link *l)
{
    return link_up(l) && !l->no_data;
}

bool link_is_outbound(const struct peer_link *l)
{
    return l->slot < l->d->links.peers;
}

void link_due(const struct peer_link *l, uint64_t at_ns)
{
    l->d->links.due_ns[l->slot] = at_ns;
}

static enum link_list_kind list_of(const struct peer_link *l)
{
    if (link_is_outbound(l) || link_up(l))
        return LINKS_OTHER;
    return l->state == PEER_LINK_IDLE     ? LINKS_IDLE
           : l->state == PEER_LINK_CLOSED ? LINKS_ENDED
                                          : LINKS_SHAKING;
}

/* Removing is cheap: the first idle link is taken, and few links are in a handshake. */
void link_listed(struct peer_link *l)
{
    enum link_list_kind kind = list_of(l);
    struct link_list *list = l->d->links.list;

    if (kind == l->list)
        return;
    if (l->list == LINKS_IDLE || l->list == LINKS_SHAKING)
        fifo_remove(&list[l->list].links, &l->listed);
    if (kind == LINKS_IDLE || kind == LINKS_SHAKING)
        fifo_push(&list[kind].links, &l->listed);
    list[l->list].n -= l->list != LINKS_OTHER;
    list[kind].n += kind != LINKS_OTHER;
    l->list = kind;
}

const char *link_peer_name(const struct peer_link *l)
{
    return l->peer == NONE ? "" : l->d->config->peers[l->peer].name;
}

const char *link_state_name(const struct peer_link *l)
{
    static const char *const names[PEER_LINK_STATES] = {
        [PEER_LINK_IDLE] = "waiting",
        [PEER_LINK_RESOLVING] = "resolving",
        [PEER_LINK_DIALLING] = "dialling",
        [PEER_LINK_CANCELLING] = "dialling",
        [PEER_LINK_SECURING] = "securing",
        [PEER_LINK_GREETING] = "greeting",
        [PEER_LINK_UP] = "up",
        [PEER_LINK_OVERFLOWED] = "up",
        [PEER_LINK_CLOSED] = "closing",
        [PEER_LINK_VACANT] = "vacant",
    };

    return link_up(l) && l->no_data ? "no_data" : names[l->state];
}

struct link_faults *links_faults(struct daemon *d, uint32_t peer)
{
    return &d->links.faults[peer == NONE ? CONFIG_PEERS_MAX : peer];
}

void link_protocol_error(struct peer_link *l, const char *why)
{
    links_faults(l->d, l->peer)->breaches++;
    stream_close(&l->stream, why);
}

/* The text may be the peer's, so it passes through `shown`. */
bool link_record_cause(struct peer_link *l, const char *text)
{
    char cause[LINK_CAUSE_BYTES];
    bool changed;

    shown(memset(cause, 0, sizeof cause), sizeof cause, text);
    changed = strcmp(cause, l->cause) != 0;
    if (!l->down_ns)
        l->down_ns = io_now_ns();
    memcpy(l->cause, cause, sizeof cause);
    return changed;
}

void link_clear_cause(struct peer_link *l)
{
    l->cause[0] = '\0';
    l->no_data = false;
    l->attempts = 0;
    l->down_ns = 0;
    l->resolve_error[0] = '\0';
    memset(l->dial_errno, 0, sizeof l->dial_errno);
}

bool link_set_cause(struct peer_link *l, const char *format, ...)
{
    char text[LINK_CAUSE_BYTES];
    va_list args;

    if (!link_is_outbound(l) || l->cause_known)
        return false;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    l->cause_known = true;
    return link_record_cause(l, text);
}
