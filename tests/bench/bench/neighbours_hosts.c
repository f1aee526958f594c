/* The daemons of `tern-bench neighbours`: see neighbours.h. Each has the tenants A and B and the
 * other one as its peer. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "engine/admin.h"
#include "engine/proc.h"
#include "neighbours.h"

#define PEER_UP_MS 10000

struct place {
    struct daemon *daemon;
    const char *other, *limits; /* the peer's name; what stands below `limits` */
    char *b_socket;
    uint16_t port, other_port;
};

static bool write_config(const struct place *p)
{
    struct daemon *d = p->daemon;
    FILE *f = fopen(d->config, "we");

    if (!f)
        return false;
    fprintf(f,
            "node: %s\nlog_level: warn\npage_bytes_min: %u\nlisten: 127.0.0.1:%u\n"
            "insecure_peers: true\nadmin:\n  socket: %s\n",
            d->node, NEIGHBOUR_PAGE_BYTES, p->port, d->admin);
    fprintf(f, "tenants:\n");
    fprintf(f, "  - name: " NEIGHBOUR_A "\n    socket: %s\n    memory: 16M\n    regions: 2\n",
            d->socket);
    fprintf(f, "  - name: " NEIGHBOUR_B "\n    socket: %s\n    memory: 16M\n", p->b_socket);
    fprintf(f,
            "peers:\n  - name: %s\n    address: 127.0.0.1:%u\n    tenants: [" NEIGHBOUR_A
            ", " NEIGHBOUR_B "]\n",
            p->other, p->other_port);
    if (p->limits)
        fprintf(f, "limits:\n%s", p->limits);
    return fclose(f) == 0;
}

static bool start(const struct place *p, char *why)
{
    if (!write_config(p)) {
        snprintf(why, SPAWN_WHY_BYTES, "%s: %s", p->daemon->config, strerror(errno));
        return false;
    }
    return daemon_launch(p->daemon, &(struct daemon_launch){.core = -1}, why);
}

bool hosts_start(struct hosts *h, const char *limits)
{
    char why[SPAWN_WHY_BYTES] = "";
    struct place here = {&h->here, "there", limits, h->b_here, port_free(), port_free()},
                 there = {&h->there, "here", NULL, h->b_there, here.other_port, here.port};

    *h = (struct hosts){.here.pid = -1, .there.pid = -1};
    if (!tempdir_make(h->dir, sizeof h->dir, "tern-bench"))
        return false;
    daemon_place(&h->here, h->dir, "here");
    daemon_place(&h->there, h->dir, "there");
    snprintf(h->b_here, sizeof h->b_here, "%s/here.b.sock", h->dir);
    snprintf(h->b_there, sizeof h->b_there, "%s/there.b.sock", h->dir);
    if (!start(&here, why) || !start(&there, why)) {
        fprintf(stderr, "tern-bench: %s\n", why);
        return false;
    }
    return tern_connect(h->here.admin, MEMBER_CALL_MS, &h->admin) == TERN_OK &&
           admin_wait_peer(h->admin, "there", PEER_UP_MS);
}

void hosts_stop(struct hosts *h)
{
    tern_destroy(h->admin);
    h->admin = NULL;
    daemon_stop(&h->here);
    daemon_stop(&h->there);
    if (h->dir[0])
        tempdir_remove(h->dir);
}
