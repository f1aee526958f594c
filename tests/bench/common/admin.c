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
        sum->quarantine += json_get_u64(at, "quarantine");
        return;
    }
    json_array_foreach(at, i, v) add_pages(v, sum);
    json_object_foreach((json_t *)(uintptr_t)at, key, v) add_pages(v, sum);
}

/* The first number of that name, however deep. */
static bool find_number(const json_t *at, const char *name, uint64_t *ret)
{
    const char *key;
    json_t *v;
    size_t i;

    if (json_is_object(at) && json_is_integer(json_object_get(at, name))) {
        *ret = json_get_u64(at, name);
        return true;
    }
    json_array_foreach(at, i, v)
    {
        if (find_number(v, name, ret))
            return true;
    }
    json_object_foreach((json_t *)(uintptr_t)at, key, v)
    {
        if (find_number(v, name, ret))
            return true;
    }
    return false;
}

bool admin_status(struct tern *admin, struct daemon_status *ret)
{
    json_t *status = admin_ask(admin, "status", NULL);
    struct daemon_status s = {0};
    bool ok;

    if (!status)
        return false;
    add_pages(json_object_get(status, "pools"), &s.pages);
    s.sessions = json_get_u64(status, "sessions");
    s.transfers_active = json_get_u64(status, "transfers_active");
    ok = find_number(status, "payload_bytes_in", &s.transfers.payload_bytes_in) &&
         find_number(status, "socket_bytes_in", &s.transfers.socket_bytes_in) &&
         find_number(status, "pages_in", &s.transfers.pages_in) &&
         find_number(status, "corrupt_detected", &s.transfers.corrupt_detected);
    json_decref(status);
    if (ok)
        *ret = s;
    return ok;
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
