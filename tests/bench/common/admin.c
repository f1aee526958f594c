/* The admin client of the benchmarks: see admin.h. Reads the daemon's own counters, so that what a
 * run reports was counted by the side that did the work. */
#include "admin.h"

#include <string.h>

#include "json.h"
#include "proc.h"
#include "stats.h"

#define ASK_MS 20000

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

/* Adds up every object below `at` that has page counts, wherever the answer keeps its groups. */
static void add_pages(const json_t *at, struct page_counts *sum)
{
    const char *key;
    json_t *v;
    size_t i;

    if (json_is_object(at) && json_object_get(at, "total") && json_object_get(at, "retiring")) {
        sum->total += json_get_u64(at, "total");
        sum->free += json_get_u64(at, "free");
        sum->session += json_get_u64(at, "session");
        sum->snapshot += json_get_u64(at, "snapshot");
        sum->reclaimable += json_get_u64(at, "reclaimable");
        sum->transfer += json_get_u64(at, "transfer");
        sum->retiring += json_get_u64(at, "retiring");
        sum->peak = max_of(sum->peak, json_get_u64(at, "peak_session"));
        sum->peak = max_of(sum->peak, json_get_u64(at, "peak_snapshot"));
        sum->quarantine += json_get_u64(at, "quarantine");
        return;
    }
    json_array_foreach(at, i, v) add_pages(v, sum);
    json_object_foreach((json_t *)(uintptr_t)at, key, v) add_pages(v, sum);
}

bool admin_status(struct tern *admin, struct daemon_status *ret)
{
    json_t *status = admin_ask(admin, "status", NULL), *data = json_object_get(status, "data");
    struct daemon_status s = {0};

    if (!json_is_object(data)) {
        json_decref(status);
        return false;
    }
    add_pages(json_object_get(status, "pools"), &s.pages);
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

bool admin_peer_up(struct tern *admin, const char *peer)
{
    json_t *answer = admin_ask(admin, "peers", NULL), *row;
    bool up = false;
    size_t i;

    json_array_foreach(json_object_get(answer, "peers"), i, row)
    {
        const char *name = json_string_value(json_object_get(row, "peer"));
        const char *state = json_string_value(json_object_get(row, "state"));

        up = up || (name && state && strcmp(name, peer) == 0 && strcmp(state, "up") == 0);
    }
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

bool admin_empty(struct tern *admin, uint32_t wait_ms, struct daemon_status *ret)
{
    uint64_t until = clock_ns() + (uint64_t)wait_ms * 1000000u;

    for (;;) {
        json_t *answer = admin_ask(admin, "evict", NULL);

        if (!answer)
            return false;
        json_decref(answer);
        if (!admin_status(admin, ret))
            return false;
        if (ret->pages.total == ret->pages.free || clock_ns() >= until)
            return true;
        sleep_ms(20);
    }
}
