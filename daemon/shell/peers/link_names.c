/* Peers' addresses: a number is used as it is, a name is asked for before each round of tries, as
 * machines get other addresses while we run. See link.h. What must stay true: the owner thread
 * never waits for a name service; a name that is not known holds up no other peer, and where
 * RESOLVE_THREADS of them hear nothing the others wait LINK_RESOLVE_NS at the most; where the name
 * service is silent the addresses that it gave last are tried, soon if a link over them was lost
 * just now; where it says that there is no such name they are forgotten. */
#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "shell/daemon.h"
#include "shell/log/log.h"

static_assert(RESOLVE_HOST_BYTES >= CONFIG_HOST_BYTES, "every host is asked for whole");

static const struct config_endpoint *address_of(const struct peer_link *l)
{
    return &l->d->config->peers[l->peer].address;
}

static void take_addresses(struct peer_link *l, const struct resolve_answer *a)
{
    check(a->n > 0 && a->n <= LINK_ADDRS_MAX);
    if (a->n != l->naddrs || memcmp(l->addr_len, a->len, a->n * sizeof a->len[0]) != 0 ||
        memcmp(l->addr, a->addr, a->n * sizeof a->addr[0]) != 0)
        memset(l->dial_errno, 0, sizeof l->dial_errno);
    l->naddrs = a->n;
    memcpy(l->addr, a->addr, sizeof l->addr);
    memcpy(l->addr_len, a->len, sizeof l->addr_len);
}

/* The first time of each cause is told; what repeats is in `ternctl peers`. */
static void failed(struct peer_link *l, const struct resolve_answer *a, uint64_t now_ns)
{
    bool told = strcmp(l->name_trouble, a->text) == 0;

    snprintf(l->name_trouble, sizeof l->name_trouble, "%s", a->text);
    if (a->err == TERN_INVALID)
        l->naddrs = 0;
    l->next_addr = 0;
    if (l->naddrs == 0)
        link_attempt_failed(l, "");
    log_event(told ? LEVEL_DEBUG : LEVEL_WARN, "resolve_failed",
              "peer=%s host=%s err=%s reason=%s attempts=%u last_addresses=%u",
              l->d->config->peers[l->peer].name, address_of(l)->host, err_name(a->err), a->text,
              l->attempts, l->naddrs);
    if (l->naddrs > 0)
        link_dial(l, now_ns);
}

static void answered(struct peer_link *l, const struct resolve_answer *a, uint64_t now_ns)
{
    check(l->state == PEER_LINK_RESOLVING);
    if (a->err != TERN_OK) {
        failed(l, a, now_ns);
        return;
    }
    l->name_trouble[0] = '\0';
    take_addresses(l, a);
    l->next_addr = 0;
    link_dial(l, now_ns);
}

static void nothing_heard(struct peer_link *l, uint64_t now_ns)
{
    const struct resolve_answer a = {.err = TERN_TIMED_OUT,
                                     .text = "no answer from the name service"};

    failed(l, &a, now_ns);
}

void link_ask_name(struct peer_link *l, uint64_t now_ns)
{
    const struct config_endpoint *at = address_of(l);

    if (!resolver_ask(l->d->links.resolver, l->slot, at->host, at->port)) {
        nothing_heard(l, now_ns);
        return;
    }
    l->state = PEER_LINK_RESOLVING;
    l->give_up_ns =
        now_ns + (l->naddrs > 0 && l->attempts == 0 ? LINK_RESOLVE_AGAIN_NS : LINK_RESOLVE_NS);
}

void link_name_timed_out(struct peer_link *l, uint64_t now_ns)
{
    resolver_forget(l->d->links.resolver, l->slot);
    nothing_heard(l, now_ns);
}

/* ---- the beginning and the end ---- */

static void resolved(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct peer_links *ls =
        (struct peer_links *)(void *)((char *)op - offsetof(struct peer_links, resolved));
    struct resolve_answer answer;
    uint32_t slot;

    (void)res;
    (void)buffer;
    while (resolver_take(ls->resolver, &slot, &answer))
        answered(&ls->v[slot], &answer, io_now_ns());
    if (flags & IO_LAST)
        io_poll_in(ls->v[0].d->io, &ls->resolved, resolver_event_fd(ls->resolver), true);
}

enum tern_err links_names_init(struct daemon *d, char *why, size_t cap)
{
    struct peer_links *ls = &d->links;
    bool named = false;

    for (uint32_t i = 0; i < ls->peers; i++) {
        struct peer_link *l = &ls->v[i];
        struct resolve_answer a;

        l->named = !resolve_number(address_of(l)->host, address_of(l)->port, &a);
        named = named || l->named;
        if (!l->named)
            take_addresses(l, &a);
    }
    if (!named)
        return TERN_OK;
    if (resolver_create(ls->peers, resolve_system, &ls->resolver) != TERN_OK) {
        snprintf(why, cap, "no memory or no right to start the threads that resolve peers' names");
        return TERN_INTERNAL;
    }
    ls->resolved.done = resolved;
    io_poll_in(d->io, &ls->resolved, resolver_event_fd(ls->resolver), true);
    return TERN_OK;
}

void links_names_finish(struct daemon *d)
{
    resolver_destroy(d->links.resolver);
    d->links.resolver = NULL;
}
