/* Dialling: addresses of peers, connects, pauses between attempts, and the rate over all peers. See
 * link.h. A name is resolved before each round of attempts, because machines change addresses while
 * the daemon runs. Invariant: every attempt begins in `dial` and ends once, in attempt_failed or
 * dial_done, which count it; the owner thread never waits for a name service. An unknown name
 * delays no other peer; if RESOLVE_THREADS names get no answer, the others wait at most
 * LINK_RESOLVE_NS. If the service does not answer, the last addresses are tried, soon if a link
 * over them was lost just now; if the name does not exist, they are discarded. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/container.h"
#include "base/err.h"
#include "shell/daemon.h"
#include "shell/log/log.h"
#include "shell/peers/link_internal.h"

#define DIAL_EACH_NS ((uint64_t)1000000000 / LINK_DIALS_PER_S)

static_assert(RESOLVE_HOST_BYTES >= CONFIG_HOST_BYTES, "every host is asked for whole");

void link_schedule_redial(struct peer_link *l, uint64_t now_ns)
{
    uint64_t quarter;

    if (l->pause_ns == 0 || (l->up_ns && now_ns - l->up_ns >= LINK_STEADY_NS))
        l->pause_ns = LINK_REDIAL_MIN_NS;
    else
        l->pause_ns *= 2;
    if (l->pause_ns > LINK_REDIAL_MAX_NS)
        l->pause_ns = LINK_REDIAL_MAX_NS;
    l->up_ns = 0;
    quarter = l->pause_ns / 4;
    link_due(l, now_ns + l->pause_ns - quarter + prng_u64(&l->d->links.prng) % (2 * quarter));
}

void link_redial_soon(struct peer_link *l, uint64_t now_ns)
{
    uint64_t at_ns = now_ns + LINK_REDIAL_MIN_NS;

    l->pause_ns = 0;
    if (l->state == PEER_LINK_IDLE && l->d->links.due_ns[l->slot] > at_ns)
        link_due(l, at_ns);
}

/* Counts a failed attempt, records its cause and schedules the next one. text: why an address
 * failed; if there is no address, the name is the cause. */
static void attempt_failed(struct peer_link *l, const char *text)
{
    char cause[LINK_CAUSE_BYTES];

    if (l->naddrs == 0)
        snprintf(cause, sizeof cause, "the name does not resolve: %s", l->resolve_error);
    else if (l->resolve_error[0])
        snprintf(cause, sizeof cause, "%s; the name does not resolve: %s", text, l->resolve_error);
    else
        snprintf(cause, sizeof cause, "%s", text);
    l->attempts++;
    l->d->links.pace.under_way--;
    link_record_cause(l, cause);
    if (l->state != PEER_LINK_IDLE)
        peer_link_state_move(&l->state, PEER_LINK_IDLE);
    link_schedule_redial(l, io_now_ns());
}

/* Each cause is logged as a warning once; `ternctl peers` shows what repeats. */
static void dial_failed(struct peer_link *l, uint32_t address, int cause, const char *text)
{
    const struct config_peer *peer = &l->d->config->peers[l->peer];
    bool logged = l->dial_errno[address] == cause;

    l->dial_errno[address] = cause;
    attempt_failed(l, text);
    log_event(logged ? LEVEL_DEBUG : LEVEL_WARN, "dial_failed",
              "peer=%s host=%s port=%u errno=%d reason=%s attempts=%u pause_ms=%u", peer->name,
              peer->address.host, peer->address.port, cause, text, l->attempts,
              (unsigned)(l->pause_ns / 1000000));
}

static void dial_done(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct peer_link *l = container_of(op, struct peer_link, dial);
    uint32_t i = l->next_addr % l->naddrs;
    int fd = l->dial_fd;

    (void)flags, (void)buffer;
    l->dial_fd = -1;
    if (res < 0 || l->moved) {
        close(fd);
        res = res < 0 ? res : -ECANCELED;
        l->next_addr++;
        dial_failed(l, i, -res,
                    l->moved            ? "its entry was changed"
                    : res == -ECANCELED ? "no answer in time"
                                        : strerror(-res));
        return;
    }
    l->dial_errno[i] = 0;
    l->d->links.pace.under_way--;
    l->d->links.connected(l, fd);
}

/* Connects to the next address; all addresses are numbers by now. */
static void connect_next(struct peer_link *l, uint64_t now_ns)
{
    uint32_t i = l->next_addr % l->naddrs;

    l->dial_fd = socket(l->addr[i].ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (l->dial_fd < 0) {
        dial_failed(l, i, errno, strerror(errno));
        return;
    }
    peer_link_state_move(&l->state, PEER_LINK_DIALLING);
    link_due(l, now_ns + LINK_DIAL_NS);
    l->dial.done = dial_done;
    io_connect(l->d->io, &l->dial, l->dial_fd, (struct sockaddr *)&l->addr[i], l->addr_len[i]);
}

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

/* Each cause is logged as a warning once. Addresses that the name had before are tried again. */
static void resolve_failed(struct peer_link *l, const struct resolve_answer *a, uint64_t now_ns)
{
    bool logged = strcmp(l->resolve_error, a->text) == 0;

    snprintf(l->resolve_error, sizeof l->resolve_error, "%s", a->text);
    if (a->err == TERN_INVALID)
        l->naddrs = 0;
    l->next_addr = 0;
    if (l->naddrs == 0)
        attempt_failed(l, "");
    log_event(logged ? LEVEL_DEBUG : LEVEL_WARN, "resolve_failed",
              "peer=%s host=%s err=%s reason=%s attempts=%u last_addresses=%u",
              l->d->config->peers[l->peer].name, address_of(l)->host, err_name(a->err), a->text,
              l->attempts, l->naddrs);
    if (l->naddrs > 0)
        connect_next(l, now_ns);
}

static void resolve_timed_out(struct peer_link *l, uint64_t now_ns)
{
    const struct resolve_answer a = {.err = TERN_TIMED_OUT,
                                     .text = "no answer from the name service"};

    resolve_failed(l, &a, now_ns);
}

static void resolve_peer(struct peer_link *l, uint64_t now_ns)
{
    const struct config_endpoint *at = address_of(l);

    if (!resolver_ask(l->d->links.resolver, l->slot, at->host, at->port)) {
        resolve_timed_out(l, now_ns);
        return;
    }
    peer_link_state_move(&l->state, PEER_LINK_RESOLVING);
    link_due(l, now_ns +
                    (l->naddrs > 0 && l->attempts == 0 ? LINK_RESOLVE_AGAIN_NS : LINK_RESOLVE_NS));
}

void links_pace_tick(struct peer_links *ls, uint64_t now_ns)
{
    uint64_t more = (now_ns - ls->pace.filled_ns) / DIAL_EACH_NS;

    ls->pace.filled_ns += more * DIAL_EACH_NS;
    more += ls->pace.may_begin;
    ls->pace.may_begin = more < LINK_DIALS_PER_S ? (uint32_t)more : LINK_DIALS_PER_S;
}

/* A quarter of the attempts is reserved for links that were up just now, so that these do not wait
 * behind absent peers. */
static bool was_lost(const struct peer_link *l)
{
    return l->down_ns != 0 && l->attempts == 0;
}

bool links_pace_allows(const struct peer_links *ls, bool lost)
{
    return ls->pace.may_begin > (lost ? 0 : LINK_DIALS_PER_S / 4) &&
           ls->pace.under_way < (lost ? LINK_DIALS_MAX : LINK_DIALS_MAX / 4 * 3);
}

/* No operation of the ring reads the addresses while the link is idle. A numeric address is
 * resolved like a name, since parsing it here would allocate. */
static void forget_addresses(struct peer_link *l)
{
    l->naddrs = l->next_addr = 0;
    l->named = true;
    l->moved = false;
    link_clear_cause(l);
}

/* Tries the next address; after a round of all addresses, resolves the name first. The link stays
 * due while it must wait. */
static void dial(struct peer_link *l, uint64_t now_ns)
{
    struct dial_pace *pace = &l->d->links.pace;

    if (l->d->config->peers[l->peer].leaving) {
        link_due(l, LINK_NEVER);
        return;
    }
    if (l->moved)
        forget_addresses(l);
    if (!links_pace_allows(&l->d->links, was_lost(l))) {
        if (!was_lost(l))
            link_due(l, LINK_WAITS);
        return;
    }
    pace->may_begin--;
    pace->under_way++;
    pace->next = l->slot + 1;
    if (l->named && l->next_addr >= l->naddrs)
        resolve_peer(l, now_ns);
    else
        connect_next(l, now_ns);
}

void link_give_up(struct peer_link *l)
{
    if (l->state == PEER_LINK_RESOLVING) {
        resolver_cancel(l->d->links.resolver, l->slot);
        attempt_failed(l, "its entry was changed");
    } else if (l->state == PEER_LINK_DIALLING) {
        link_due(l, LINK_NEVER);
        peer_link_state_move(&l->state, PEER_LINK_CANCELLING);
        io_cancel(l->d->io, &l->dial);
    }
}

void link_dial_tick(struct peer_link *l, uint64_t now_ns)
{
    if (l->state == PEER_LINK_IDLE) {
        dial(l, now_ns);
    } else if (l->state == PEER_LINK_RESOLVING) {
        resolver_cancel(l->d->links.resolver, l->slot);
        resolve_timed_out(l, now_ns);
    } else {
        link_give_up(l);
    }
}

static void resolved(void *ctx, uint32_t slot, const struct resolve_answer *answer)
{
    struct daemon *d = ctx;
    struct peer_link *l = &d->links.v[slot];

    check(l->state == PEER_LINK_RESOLVING);
    if (answer->err != TERN_OK) {
        resolve_failed(l, answer, io_now_ns());
        return;
    }
    l->resolve_error[0] = '\0';
    take_addresses(l, answer);
    l->next_addr = 0;
    connect_next(l, io_now_ns());
}

enum tern_err links_names_init(struct daemon *d, char *why, size_t cap)
{
    struct peer_links *ls = &d->links;
    const struct resolver_config resolver = {
        .io = d->io, .slots = ls->peers, .lookup = resolve_system, .answered = resolved, .ctx = d};
    bool named = d->config->npeers < ls->peers; /* a peer that joins may have a name */

    for (uint32_t i = 0; i < d->config->npeers; i++) {
        struct peer_link *l = &ls->v[i];
        struct resolve_answer a;

        l->named = !resolve_number(address_of(l)->host, address_of(l)->port, &a);
        named = named || l->named;
        if (!l->named)
            take_addresses(l, &a);
    }
    if (!named)
        return TERN_OK;
    if (resolver_create(&resolver, &ls->resolver) == TERN_OK)
        return TERN_OK;
    return fail_with(why, cap, TERN_INTERNAL,
                     "the threads that resolve peers' names cannot be started, for lack of memory, "
                     "descriptors or permission");
}

void links_names_finish(struct daemon *d)
{
    resolver_destroy(d->links.resolver);
    d->links.resolver = NULL;
}
