/* The commands for counts of prompts and for latencies: stats, namespaces. */
#include "ctl.h"

#include <stdio.h>
#include <string.h>

#define NAMESPACE_SHOWN 16 /* digits */

uint64_t found_tokens(const json_t *row)
{
    return j_u64(row, "matched_device_tokens") + j_u64(row, "matched_host_tokens") +
           j_u64(row, "matched_disk_tokens") + j_u64(row, "fetched_peer_tokens") +
           j_u64(row, "handed_over_tokens");
}

static void add_found(struct table *t, const json_t *row, uint64_t tokens)
{
    uint64_t prompt = j_u64(row, "prompt_tokens");

    if (prompt == 0)
        table_add(t, DIM, "-");
    else
        table_add(t, BOLD, "%.1f %%", 100.0 * (double)tokens / (double)prompt);
}

static const char *const figure_titles[] = {"<NAME",   "PROMPTS",  "TOKENS", "HITS",
                                            "DEVICE",  "HOST",     "DISK",   "PEER",
                                            "+TICKET", "COMPUTED", "EVICTED"};

static void add_figures(struct table *t, const char *of, const json_t *row)
{
    static const char *const keys[] = {"matched_device_tokens", "matched_host_tokens",
                                       "matched_disk_tokens",   "fetched_peer_tokens",
                                       "handed_over_tokens",    "committed_tokens",
                                       "evicted_nodes"};

    table_add(t, PLAIN, "%s", of);
    table_count(t, PLAIN, j_u64(row, "prompts"));
    table_count(t, PLAIN, j_u64(row, "prompt_tokens"));
    add_found(t, row, found_tokens(row));
    for (size_t i = 0; i < TITLES_N(keys); i++)
        table_count(t, PLAIN, j_u64(row, keys[i]));
}

static void figures_of(struct table *t, const json_t *answer, const char *list, const char *name)
{
    json_t *row;
    size_t i;

    json_array_foreach(json_object_get(answer, list), i, row) add_figures(t, j_str(row, name), row);
}

static void add_time(struct table *t, const char *kind, const char *key, const json_t *h)
{
    uint64_t n = j_u64(h, "count");

    if (n == 0)
        return;
    table_add(t, PLAIN, "%s%s", kind, key);
    table_count(t, PLAIN, n);
    table_add(t, PLAIN, "%s", human_us(j_u64(h, "sum_us") / n));
    table_add(t, PLAIN, "%s", human_us(j_u64(h, "p50_us")));
    table_add(t, PLAIN, "%s", human_us(j_u64(h, "p99_us")));
}

static void add_times(struct table *t, const json_t *times, const char *kind)
{
    const char *key;
    json_t *h;

    json_object_foreach((json_t *)(uintptr_t)times, key, h) add_time(t, kind, key, h);
}

static void add_peers(struct table *t, const json_t *answer)
{
    json_t *row;
    size_t i;

    json_array_foreach(json_object_get(answer, "peers"), i, row)
        add_time(t, "fetch from ", j_str(row, "peer"), json_object_get(row, "fetch"));
}

static void peers(const json_t *answer)
{
    const char *transport;
    json_t *row, *bytes;
    size_t i;

    json_array_foreach(json_object_get(answer, "peers"), i, row)
    {
        printf("peer %s: %s tokens fetched", j_str(row, "peer"),
               human_count(j_u64(row, "fetched_tokens")));
        json_object_foreach(json_object_get(row, "bytes_in"), transport, bytes)
            printf(", %s by %s", human_bytes((uint64_t)json_integer_value(bytes)), transport);
        printf("; failed fetches: %llu\n", (unsigned long long)j_u64(row, "failed_fetches"));
    }
}

static int run_stats(struct ctl *ctl)
{
    static const char *const time_titles[] = {"<LATENCY", "COUNT", "MEAN", "MEDIAN",
                                              "99TH PERCENTILE"};
    json_t *answer = ctl_ask(ctl, "stats", NULL, 0);
    struct table t;

    if (!ctl_print_json(ctl, answer)) {
        printf("tokens of tenants since the daemon started (%s ago), and of pools since they were "
               "opened\n",
               human_age((double)j_u64(answer, "uptime_s")));
        table_init(&t, ctl, figure_titles, TITLES_N(figure_titles));
        figures_of(&t, answer, "tenants", "tenant");
        figures_of(&t, answer, "pools", "pool");
        table_print(&t, "no tenant is configured");
        peers(answer);
        printf("\n");
        table_init(&t, ctl, time_titles, TITLES_N(time_titles));
        add_times(&t, json_object_get(answer, "latencies"), "");
        add_peers(&t, answer);
        add_times(&t, json_object_get(answer, "requests"), "request ");
        table_print(&t, "no latency was measured yet");
    }
    json_decref(answer);
    return CTL_OK;
}

static int run_namespaces(struct ctl *ctl)
{
    static const char *const titles[] = {"=NAMESPACE", "<TENANT", "=POOL", "NODES",  "<STATE",
                                         "PROMPTS",    "TOKENS",  "HITS",  "EVICTED"};
    json_t *answer = ctl_list(ctl, "namespaces", ctl_pool_arg(ctl)), *row;
    struct table t;
    size_t i;

    if (!ctl_print_json(ctl, answer)) {
        table_init(&t, ctl, titles, TITLES_N(titles));
        json_array_foreach(json_object_get(answer, "namespaces"), i, row)
        {
            table_hex(&t, j_str(row, "namespace"), NAMESPACE_SHOWN);
            table_add(&t, PLAIN, "%s", j_str(row, "tenant"));
            table_add(&t, PLAIN, "%s", j_str(row, "pool"));
            table_num(&t, row, "nodes");
            table_add(&t, PLAIN, "%s",
                      j_bool(row, "reset")  ? "reset"
                      : j_bool(row, "held") ? "held"
                                            : "idle");
            table_num(&t, row, "prompts");
            table_num(&t, row, "prompt_tokens");
            add_found(&t, row, found_tokens(row));
            table_num(&t, row, "evicted_nodes");
        }
        table_print(&t, "no pool has a namespace");
    }
    json_decref(answer);
    return CTL_OK;
}

/* ---- tenants: the data of `status` for each, in one row ---- */

/* Returns a tenant's use of the table of that setting. */
static uint64_t share_of(const json_t *status, const char *setting, const char *tenant)
{
    json_t *share;
    size_t i;

    json_array_foreach(json_object_get(status, "shares"), i, share)
    {
        if (strcmp(j_str(share, "table"), setting) == 0)
            return j_u64(json_object_get(share, "used"), tenant);
    }
    return 0;
}

/* Returns bytes in one region, over all groups of the tenant's pools on that tier: all, free and
 * evictable. */
static json_t *memory_of(const json_t *status, const char *tenant, const char *tier)
{
    uint64_t total = 0, free_bytes = 0, evictable = 0;
    json_t *g;
    size_t i;

    json_array_foreach(json_object_get(status, "pools"), i, g)
    {
        uint64_t each = j_u64(g, "page_bytes");

        if (strcmp(j_str(g, "tenant"), tenant) != 0 || strcmp(j_str(g, "tier"), tier) != 0)
            continue;
        total += each * j_u64(g, "total");
        free_bytes += each * j_u64(g, "free");
        evictable += each * j_u64(g, "evictable");
    }
    return json_pack("{s:I, s:I, s:I, s:I}", "bytes", (json_int_t)total, "live_bytes",
                     (json_int_t)(total - free_bytes - evictable), "evictable_bytes",
                     (json_int_t)evictable, "free_bytes", (json_int_t)free_bytes);
}

static json_t *tenants_of(const json_t *status)
{
    json_t *answer = json_object(), *rows = json_array(), *figures;
    size_t i;

    json_object_set_new(answer, "tenants", rows);
    json_array_foreach(json_object_get(status, "figures"), i, figures)
    {
        const char *name = j_str(figures, "tenant");

        json_array_append_new(
            rows,
            json_pack("{s:s, s:I, s:I, s:I, s:o, s:o, s:I, s:I, s:I}", "tenant", name, "engines",
                      (json_int_t)share_of(status, "engines", name), "sessions",
                      (json_int_t)share_of(status, "sessions", name), "nodes",
                      (json_int_t)share_of(status, "nodes", name), "device",
                      memory_of(status, name, "device"), "host", memory_of(status, name, "host"),
                      "prompts", (json_int_t)j_u64(figures, "prompts"), "prompt_tokens",
                      (json_int_t)j_u64(figures, "prompt_tokens"), "found_tokens",
                      (json_int_t)found_tokens(figures)));
    }
    return answer;
}

static void add_tenant(struct table *t, const json_t *row)
{
    const json_t *device = json_object_get(row, "device");

    table_add(t, BOLD, "%s", j_str(row, "tenant"));
    table_num(t, row, "engines");
    table_num(t, row, "sessions");
    table_num(t, row, "nodes");
    table_add(t, PLAIN, "%s", human_bytes(j_u64(device, "bytes")));
    table_add(t, PLAIN, "%s", human_bytes(j_u64(device, "live_bytes")));
    table_add(t, PLAIN, "%s", human_bytes(j_u64(device, "evictable_bytes")));
    table_add(t, PLAIN, "%s", human_bytes(j_u64(json_object_get(row, "host"), "bytes")));
    add_found(t, row, j_u64(row, "found_tokens"));
}

static int run_tenants(struct ctl *ctl)
{
    static const char *const titles[] = {"<TENANT", "ENGINES",   "SESSIONS", "NODES", "POOLS",
                                         "LIVE",    "EVICTABLE", "HOST",     "HITS"};
    json_t *status = ctl_ask(ctl, "status", NULL, 0), *answer = tenants_of(status), *row;
    struct table t;
    size_t i;

    if (!ctl_print_json(ctl, answer)) {
        table_init(&t, ctl, titles, TITLES_N(titles));
        json_array_foreach(json_object_get(answer, "tenants"), i, row) add_tenant(&t, row);
        table_print(&t, "no tenant is configured");
    }
    json_decref(answer);
    json_decref(status);
    return CTL_OK;
}

static const struct argp_option namespaces_options[] = {
    {"pool", OPT_POOL, "POOL", 0, "Only this pool: its handle or its slot (ternctl pools)", 0},
    OPTION_TENANT,
    OPTION_WIDE,
    {0},
};

static const struct argp_option wide[] = {OPTION_WIDE, {0}};

const struct command stats_commands[] = {
    {"stats", "", "Cache hits of prompts, and latencies of requests",
     "  ternctl stats\n  ternctl stats --json | jq '.tenants[] | {tenant, prompt_tokens}'\n", wide,
     0, run_stats},
    {"tenants", "", "Memory of each tenant, and the hit rate of its prompts",
     "  ternctl tenants\n  ternctl tenants --json | jq '.tenants[] | {tenant, live: "
     ".device.live_bytes}'\n\nPOOLS is the memory of the tenant's pools on the device, in one "
     "region. LIVE is the part of it that is in use, EVICTABLE the part that can be evicted when "
     "pages are needed. HOST is the memory of the tenant's pools on the host tier.\n",
     wide, 0, run_tenants},
    {"namespaces", "", "Namespaces of pools, and the hit rate of their prompts",
     "  ternctl namespaces\n  ternctl namespaces --json | jq '.namespaces | length'\n",
     namespaces_options, 0, run_namespaces},
    {0},
};
