/* The doors of the Unix sockets (seam/io/door.h): a client whose Hello is not whole yet waits at
 * its tenant's door, with a share for each process, and uses none of the tenant's connections. */
#include <inttypes.h>

#include "base/err.h"
#include "shell/config/plan.h"
#include "shell/daemon.h"
#include "shell/log/log.h"

enum door_verdict frame_at_door(void *ctx, const uint8_t *bytes, uint32_t n)
{
    struct frame_header h;

    (void)ctx;
    if (n < FRAME_HEADER_BYTES)
        return DOOR_WAIT;
    if (frame_decode(bytes, HELLO_BODY_MAX, &h) != TERN_OK)
        return DOOR_ENTER; /* the stream reports the fault */
    return n - FRAME_HEADER_BYTES >= h.length ? DOOR_ENTER : DOOR_WAIT;
}

static void left(void *ctx)
{
    struct conn_share *s = ctx;

    listen_again(&s->listener);
}

const char *conn_share_name(const struct conn_share *s)
{
    return s->tenant == NONE ? LISTEN_ADMIN : s->d->config->tenants[s->tenant].name;
}

enum tern_err conn_doors_create(struct daemon *d, enum door_verdict (*enter)(void *share, int fd))
{
    const struct config *c = d->config;

    for (uint32_t i = 0; i <= c->ntenants; i++) {
        struct conn_share *s = &d->conns.share[i];
        const struct door_config config = {.io = d->io,
                                           .places = CONFIG_STRANGERS,
                                           .wait_ns = plan_hello_ns(c),
                                           .look_bytes = FRAME_HEADER_BYTES + HELLO_BODY_MAX,
                                           .look = frame_at_door,
                                           .enter = enter,
                                           .left = left,
                                           .ctx = s,
                                           .closer = d->closer,
                                           .lane = i};

        TRY(door_create(&config, &s->door));
    }
    return TERN_OK;
}

void conn_doors_destroy(struct daemon *d)
{
    for (uint32_t i = 0; i <= CONFIG_TENANTS_MAX; i++) {
        door_destroy(d->conns.share[i].door);
        d->conns.share[i].door = NULL;
    }
}

void log_descriptors_sent(const char *name, uint64_t connections, int32_t pid)
{
    log_event(LEVEL_WARN, "descriptors_sent", "door=%s connections=%" PRIu64 " pid=%d reason=%s",
              name, connections, pid,
              "a client sent descriptors, which the daemon never accepts: its connection ends");
}

void door_log_change(const struct door_stats *now, const char *name, struct door_stats *shown)
{
    if (now->displaced != shown->displaced)
        log_event(LEVEL_WARN, "strangers_displaced",
                  "door=%s connections=%" PRIu64 " share=%u reason=%s", name,
                  now->displaced - shown->displaced, now->share,
                  "they had sent no Hello when others connected: each address, or process, may use "
                  "a quarter of the places at a door");
    if (now->overdue != shown->overdue)
        log_event(LEVEL_INFO, "strangers_overdue", "door=%s connections=%" PRIu64 " reason=%s",
                  name, now->overdue - shown->overdue, "no whole frame within the deadline");
    if (now->over_rate != shown->over_rate)
        log_event(LEVEL_WARN, "handshakes_over_rate", "door=%s connections=%" PRIu64 " reason=%s",
                  name, now->over_rate - shown->over_rate,
                  "their address began more TLS handshakes than one address may in a second");
    if (now->brought != shown->brought)
        log_descriptors_sent(name, now->brought - shown->brought, (int32_t)now->brought_by);
    *shown = *now;
}

void conn_doors_tick(struct daemon *d, uint64_t now_ns)
{
    for (uint32_t i = 0; i <= d->config->ntenants; i++) {
        struct conn_share *s = &d->conns.share[i];
        struct door_stats now;

        door_tick(s->door, now_ns);
        door_stats(s->door, &now);
        d->conns.brought += now.brought - s->shown.brought;
        door_log_change(&now, conn_share_name(s), &s->shown);
    }
}

void conn_doors_again(struct daemon *d)
{
    for (uint32_t i = 0; i <= d->config->ntenants; i++) {
        if (!d->conns.share[i].again)
            continue;
        d->conns.share[i].again = false;
        door_again(d->conns.share[i].door);
    }
}
