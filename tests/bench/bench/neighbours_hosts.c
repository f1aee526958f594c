/* The daemons of `tern-bench neighbours`: see neighbours.h. Each has the tenants A and B, and the
 * other daemon as its peer. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench.h"
#include "engine/admin.h"
#include "engine/json.h"
#include "engine/proc.h"
#include "neighbours.h"

#define PEER_UP_MS       10000
#define LARGE_PAGE_BYTES 256

struct place {
    struct daemon *daemon;
    const char *other; /* the peer's name */
    const struct hosts_needs *needs;
    const char *dir;
    char *b_socket;
    uint16_t port, other_port, mute_port; /* mute_port 0: no mute peer */
};

static bool write_config(const struct place *p)
{
    struct daemon *d = p->daemon;
    const struct hosts_needs *n = p->needs;
    FILE *f = fopen(d->config, "we");

    if (!f)
        return false;
    fprintf(f,
            "node: %s\nlog_level: warn\npage_bytes_min: %u\nlisten: 127.0.0.1:%u\n"
            "insecure_peers: true\nadmin:\n  socket: %s\n"
            "deadlines:\n  progress_ms: 120000\n  transfer_ms: 120000\n",
            d->node, n->large ? LARGE_PAGE_BYTES : NEIGHBOUR_PAGE_BYTES, p->port, d->admin);
    if (n->spills)
        fprintf(f, "spill:\n  dir: %s/spill\n  bytes: 64M\n  headroom: 0\n  threads: 1\n", p->dir);
    fprintf(f, "tenants:\n");
    fprintf(f, "  - name: " NEIGHBOUR_A "\n    socket: %s\n    memory: %s\n    regions: 2\n",
            d->socket, n->large ? "96M" : "16M");
    if (n->spills)
        fprintf(f, "    spill_bytes: 32M\n");
    fprintf(f, "  - name: " NEIGHBOUR_B "\n    socket: %s\n    memory: 16M\n", p->b_socket);
    fprintf(f,
            "peers:\n  - name: %s\n    address: 127.0.0.1:%u\n    tenants: [" NEIGHBOUR_A
            ", " NEIGHBOUR_B "]\n",
            p->other, p->other_port);
    if (p->mute_port)
        fprintf(f, "  - name: mute\n    address: 127.0.0.1:%u\n    tenants: [" NEIGHBOUR_A "]\n",
                p->mute_port);
    if (n->limits)
        fprintf(f, "limits:\n%s", n->limits);
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

/* Listens before the daemon starts, so that the first dial succeeds. */
static bool listen_mute(struct hosts *h)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;

    h->mute_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (h->mute_fd < 0 || bind(h->mute_fd, (struct sockaddr *)&at, len) != 0 ||
        listen(h->mute_fd, 16) != 0 || getsockname(h->mute_fd, (struct sockaddr *)&at, &len) != 0) {
        fprintf(stderr, "tern-bench: a port for a peer: %s\n", strerror(errno));
        return false;
    }
    h->mute_port = ntohs(at.sin_port);
    return true;
}

static bool start_both(struct hosts *h, const struct hosts_needs *needs)
{
    static const struct hosts_needs none;
    char why[SPAWN_WHY_BYTES] = "";
    struct place here = {.daemon = &h->here,
                         .other = "there",
                         .needs = needs,
                         .dir = h->dir,
                         .b_socket = h->b_here,
                         .port = port_free(),
                         .other_port = port_free(),
                         .mute_port = h->mute_port},
                 there = {.daemon = &h->there,
                          .other = "here",
                          .needs = &none,
                          .dir = h->dir,
                          .b_socket = h->b_there,
                          .port = here.other_port,
                          .other_port = here.port};

    daemon_place(&h->here, h->dir, "here");
    daemon_place(&h->there, h->dir, "there");
    snprintf(h->b_here, sizeof h->b_here, "%s/here.b.sock", h->dir);
    snprintf(h->b_there, sizeof h->b_there, "%s/there.b.sock", h->dir);
    h->control_port = here.port;
    if (start(&here, why) && start(&there, why))
        return true;
    fprintf(stderr, "tern-bench: %s\n", why);
    return false;
}

static bool find_data_port(struct hosts *h)
{
    json_t *status = admin_ask(h->admin, "status", NULL);

    h->data_port = (uint16_t)json_get_u64(json_object_get(status, "data"), "port");
    json_decref(status);
    return h->data_port != 0;
}

static bool make_spill(const struct hosts *h)
{
    char dir[96];

    snprintf(dir, sizeof dir, "%s/spill", h->dir);
    return mkdir(dir, 0700) == 0;
}

bool hosts_start(struct hosts *h, const struct hosts_needs *needs)
{
    *h = (struct hosts){.here.pid = -1, .there.pid = -1, .mute_fd = -1};
    return tempdir_make(h->dir, sizeof h->dir, "tern-bench") && (!needs->mute || listen_mute(h)) &&
           (!needs->spills || make_spill(h)) && start_both(h, needs) &&
           tern_connect(h->here.admin, MEMBER_CALL_MS, &h->admin) == TERN_OK && find_data_port(h) &&
           admin_wait_peer(h->admin, "there", PEER_UP_MS);
}

void hosts_stop(struct hosts *h)
{
    tern_destroy(h->admin);
    h->admin = NULL;
    daemon_stop(&h->here);
    daemon_stop(&h->there);
    if (h->mute_fd >= 0)
        close(h->mute_fd);
    if (h->dir[0])
        tempdir_remove(h->dir);
}
