/* The door of the control port (seam/io/door.h): callers wait there until their first message is
 * whole, a Hello or, with TLS, the first record. Behind the door a handshake takes a link, and TLS
 * a session. Both are few, so a long handshake is closed when other callers wait. See link.h.
 * Invariant: handshakes leave an inbound link for each configured peer. */
#include "shell/config/plan.h"
#include "shell/daemon.h"
#include "shell/peers/link_internal.h"

#define TLS_HEAD_BYTES 5 /* head of a record: type, version and length */
#define TLS_HANDSHAKE  22

#define ADDRESS_HANDSHAKES_PER_S 16u

static enum door_verdict look_at_record(const uint8_t *bytes, uint32_t n)
{
    uint32_t length;

    if (n < TLS_HEAD_BYTES)
        return DOOR_WAIT;
    length = (uint32_t)bytes[3] << 8 | bytes[4];
    /* TLS refuses records that are no handshake or too long to examine here. */
    if (bytes[0] != TLS_HANDSHAKE || length > DOOR_LOOK_BYTES - TLS_HEAD_BYTES)
        return DOOR_ENTER;
    return n - TLS_HEAD_BYTES >= length ? DOOR_ENTER : DOOR_WAIT;
}

static enum door_verdict look(void *ctx, const uint8_t *bytes, uint32_t n)
{
    const struct daemon *d = ctx;

    return d->links.tls ? look_at_record(bytes, n) : frame_at_door(ctx, bytes, n);
}

/* The most inbound links that may be in a handshake at a time. */
static uint32_t handshakes_max(const struct peer_links *ls)
{
    uint32_t inbound = ls->n - ls->peers, most = inbound > ls->peers ? inbound - ls->peers : 1;

    return ls->tls && most > TLS_HANDSHAKES_MAX ? TLS_HANDSHAKES_MAX : most;
}

/* Closes the oldest handshake if it has lasted LINK_HANDSHAKE_NS or longer. */
static void make_way(struct daemon *d, uint64_t now_ns)
{
    struct peer_links *ls = &d->links;
    struct peer_link *oldest = fifo_first(&ls->list[LINKS_SHAKING].links, struct peer_link, listed);

    if (oldest && now_ns - oldest->opened_ns >= LINK_HANDSHAKE_NS)
        stream_close(&oldest->stream, "its handshake took long, and other connections wait");
}

static enum door_verdict enter(void *ctx, int fd)
{
    struct daemon *d = ctx;
    struct peer_links *ls = &d->links;
    struct peer_link *idle = fifo_first(&ls->list[LINKS_IDLE].links, struct peer_link, listed);
    uint32_t busy = ls->list[LINKS_SHAKING].n + ls->list[LINKS_ENDED].n;

    if (!idle || busy >= handshakes_max(ls)) {
        make_way(d, io_now_ns());
        return DOOR_WAIT;
    }
    ls->connected(idle, fd);
    return DOOR_ENTER;
}

enum tern_err links_door_create(struct daemon *d)
{
    const struct door_config config = {.io = d->io,
                                       .places = CONFIG_STRANGERS,
                                       .per_s = d->links.tls ? ADDRESS_HANDSHAKES_PER_S : 0,
                                       .wait_ns = plan_hello_ns(d->config),
                                       .look_bytes = DOOR_LOOK_BYTES,
                                       .look = look,
                                       .enter = enter,
                                       .ctx = d};

    return door_create(&config, &d->links.door);
}

void links_door_again(struct daemon *d)
{
    if (!d->links.door_again || !d->links.door)
        return;
    d->links.door_again = false;
    door_again(d->links.door);
}

void links_door_tick(struct daemon *d, uint64_t now_ns)
{
    struct door_stats now;

    if (!d->links.door)
        return;
    door_tick(d->links.door, now_ns);
    door_stats(d->links.door, &now);
    if (d->links.tls)
        link_tls_silent(d, now.overdue - d->links.door_shown.overdue);
    door_log_change(&now, "peers", &d->links.door_shown);
}
