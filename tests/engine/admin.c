/* The admin client of the benchmarks: see admin.h. It reads the daemon's own counters, so a run
 * reports what the working side counted. */
#include "engine/admin.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/json.h"
#include "engine/proc.h"
#include "engine/stats.h"

#define ASK_MS 20000

const char *connect_why(enum tern_err err)
{
    if (err != TERN_DAEMON_LOST)
        return tern_strerror(err);
    return errno == ECONNRESET ? "the daemon closed the connection: its log says why"
                               : strerror(errno);
}

json_t *admin_ask(struct tern *admin, const char *command, const char *arg)
{
    const char *text = NULL;

    if (tern_admin(admin, command, &arg, arg ? 1 : 0, ASK_MS, &text) != TERN_OK)
        return NULL;
    return json_loads(text, 0, NULL);
}

static uint64_t max_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void add_group(const json_t *g, struct page_counts *sum)
{
    sum->total += json_get_u64(g, "total");
    sum->free += json_get_u64(g, "free");
    sum->session += json_get_u64(g, "session");
    sum->snapshot += json_get_u64(g, "snapshot");
    sum->reclaimable += json_get_u64(g, "reclaimable");
    sum->transfer += json_get_u64(g, "transfer");
    sum->retiring += json_get_u64(g, "retiring");
    sum->quarantine += json_get_u64(g, "quarantine");
    if (!json_says(g, "family", "history")) {
        sum->state_peak += json_get_u64(g, "peak_snapshot");
        return;
    }
    sum->history_used +=
        json_get_u64(g, "session") + json_get_u64(g, "snapshot") + json_get_u64(g, "transfer");
    sum->peak += max_of(json_get_u64(g, "peak_session"), json_get_u64(g, "peak_snapshot"));
}

static uint64_t id_at(const json_t *row, const char *key)
{
    const char *text = json_string_value(json_object_get(row, key));

    return text ? strtoull(text, NULL, 16) : 0;
}

/* Returns the pool that is the host tier of this one; 0: none. */
static uint64_t host_tier_of(struct tern *admin, uint64_t pool)
{
    json_t *answer = pool ? admin_ask(admin, "pools", NULL) : NULL;
    char name[24];
    uint64_t host;

    snprintf(name, sizeof name, "%016" PRIx64, pool);
    host = id_at(json_row(json_object_get(answer, "pools"), "pool", name), "other_tier");
    json_decref(answer);
    return host;
}

/* `pools` of a status: one entry a group. pool 0: all pools. */
static void add_pools(const json_t *pools, uint64_t pool, uint64_t host, struct daemon_status *sum)
{
    json_t *g;
    size_t i;

    json_array_foreach(pools, i, g)
    {
        bool of_host = json_says(g, "tier", "host");

        if (pool == 0 || id_at(g, "pool") == (of_host ? host : pool))
            add_group(g, of_host ? &sum->host : &sum->pages);
    }
}

bool admin_status(struct tern *admin, uint64_t pool, struct daemon_status *ret)
{
    json_t *status = admin_ask(admin, "status", NULL), *data = json_object_get(status, "data");
    struct daemon_status s = {0};

    if (!json_is_object(data)) {
        json_decref(status);
        return false;
    }
    add_pools(json_object_get(status, "pools"), pool, host_tier_of(admin, pool), &s);
    s.sessions = json_get_u64(status, "sessions");
    s.transfers_active = json_get_u64(status, "transfers_active");
    s.transfers.payload_bytes_in = json_get_u64(data, "payload_bytes_in");
    s.transfers.socket_bytes_in = json_get_u64(data, "socket_bytes_in");
    s.transfers.pages_in = json_get_u64(data, "pages_in");
    s.transfers.corrupt_detected = json_get_u64(data, "corrupt_detected");
    json_decref(status);
    *ret = s;
    return true;
}

bool admin_tickets(struct tern *admin, struct ticket_counts *ret)
{
    json_t *answer = admin_ask(admin, "tickets", NULL), *row;
    const json_t *tenants = json_object_get(answer, "tenants");
    struct ticket_counts n = {0};
    size_t i;

    json_array_foreach(tenants, i, row)
    {
        const json_t *t = json_object_get(row, "tickets");

        n.standing += json_get_u64(t, "standing");
        n.made += json_get_u64(t, "made");
        n.taken += json_get_u64(t, "taken");
        n.dropped += json_get_u64(t, "dropped");
        n.expired += json_get_u64(t, "expired");
    }
    json_decref(answer);
    if (i == 0)
        return false;
    *ret = n;
    return true;
}

bool admin_peer_up(struct tern *admin, const char *peer)
{
    json_t *answer = admin_ask(admin, "peers", NULL);
    bool up = json_says(json_row(json_object_get(answer, "peers"), "peer", peer), "state", "up");

    json_decref(answer);
    return up;
}

bool admin_wait_peer(struct tern *admin, const char *peer, uint32_t wait_ms)
{
    uint64_t until = clock_ns() + (uint64_t)wait_ms * 1000000u;

    while (!admin_peer_up(admin, peer)) {
        if (clock_ns() >= until)
            return false;
        sleep_ms(10);
    }
    return true;
}

static bool peer_pushes(struct tern *admin, const char *peer, char *ret_why, size_t cap)
{
    json_t *answer = admin_ask(admin, "peers", NULL),
           *row = json_row(json_object_get(answer, "peers"), "peer", peer);
    const char *transport = json_string_value(json_object_get(row, "transport")),
               *reason = json_string_value(json_object_get(row, "transport_reason"));
    bool pushes = json_says(row, "transport", "verbs") && json_says(row, "moves", "push");

    if (row)
        snprintf(ret_why, cap, "pages of %s go by %s, not by push: %s", peer,
                 transport ? transport : "none", reason ? reason : "");
    else
        snprintf(ret_why, cap, "no peer %s is configured", peer);
    json_decref(answer);
    return pushes;
}

bool admin_wait_push(struct tern *admin, const char *peer, uint32_t wait_ms, char *ret_why,
                     size_t cap)
{
    uint64_t until = clock_ns() + (uint64_t)wait_ms * 1000000u;

    while (!peer_pushes(admin, peer, ret_why, cap)) {
        if (clock_ns() >= until)
            return false;
        sleep_ms(10);
    }
    return true;
}

bool admin_empty(struct tern *admin, uint64_t pool, uint32_t wait_ms, struct daemon_status *ret)
{
    uint64_t until = clock_ns() + (uint64_t)wait_ms * 1000000u;
    char arg[32];

    snprintf(arg, sizeof arg, "pool=%u", (uint32_t)pool);
    for (;;) {
        json_t *answer = admin_ask(admin, "evict", pool ? arg : NULL);

        if (!answer)
            return false;
        json_decref(answer);
        if (!admin_status(admin, pool, ret))
            return false;
        if ((ret->pages.total == ret->pages.free && ret->host.total == ret->host.free) ||
            clock_ns() >= until)
            return true;
        sleep_ms(20);
    }
}
