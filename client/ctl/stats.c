/* The commands that tell what became of prompts, and how long things took: stats, namespaces. */
#include "ctl.h"

#include <stdio.h>

#define TITLES_N(titles) (sizeof(titles) / sizeof((titles)[0]))

/* What sessions did not have to compute, of the prompts' tokens. */
static uint64_t found(const json_t *row)
{
    return j_u64(row, "matched_device_tokens") + j_u64(row, "matched_host_tokens") +
           j_u64(row, "matched_disk_tokens") + j_u64(row, "fetched_peer_tokens") +
           j_u64(row, "handed_over_tokens");
}

static void add_found(struct table *t, const json_t *row)
{
    uint64_t prompt = j_u64(row, "prompt_tokens");

    if (prompt == 0)
        table_add(t, DIM, "-");
    else
        table_add(t, BOLD, "%.1f %%", 100.0 * (double)found(row) / (double)prompt);
}

static const char *const figure_titles[] = {"<OF",    "PROMPTS",  "TOKENS", "FOUND",
                                            "DEVICE", "HOST",     "DISK",   "PEER",
                                            "TICKET", "COMPUTED", "EVICTED"};

static void add_figures(struct table *t, const char *of, const json_t *row)
{
    static const char *const keys[] = {"matched_device_tokens", "matched_host_tokens",
                                       "matched_disk_tokens",   "fetched_peer_tokens",
                                       "handed_over_tokens",    "committed_tokens",
                                       "evicted_nodes"};

    table_add(t, PLAIN, "%s", of);
    table_add(t, PLAIN, "%s", human_tokens(j_u64(row, "prompts")));
    table_add(t, PLAIN, "%s", human_tokens(j_u64(row, "prompt_tokens")));
    add_found(t, row);
    for (size_t i = 0; i < TITLES_N(keys); i++)
        table_add(t, PLAIN, "%s", human_tokens(j_u64(row, keys[i])));
}

static void figures_of(struct table *t, const json_t *answer, const char *list, const char *name)
{
    json_t *row;
    size_t i;

    json_array_foreach(json_object_get(answer, list), i, row) add_figures(t, j_str(row, name), row);
}

static void add_times(struct table *t, const json_t *times, const char *kind)
{
    const char *key;
    json_t *h;

    json_object_foreach((json_t *)(uintptr_t)times, key, h)
    {
        uint64_t n = j_u64(h, "count");

        if (n == 0)
            continue;
        table_add(t, PLAIN, "%s%s", kind, key);
        table_add(t, PLAIN, "%s", human_tokens(n));
        table_add(t, PLAIN, "%s", human_us(j_u64(h, "sum_us") / n));
        table_add(t, PLAIN, "%s", human_us(j_u64(h, "p50_us")));
        table_add(t, PLAIN, "%s", human_us(j_u64(h, "p99_us")));
    }
}

static void peers(const json_t *answer)
{
    const char *transport;
    json_t *row, *bytes;
    size_t i;

    json_array_foreach(json_object_get(answer, "peers"), i, row)
    {
        printf("peer %s brought", j_str(row, "peer"));
        json_object_foreach(json_object_get(row, "bytes_in"), transport, bytes)
            printf(" %s by %s", human_bytes((uint64_t)json_integer_value(bytes)), transport);
        printf("\n");
    }
}

static int run_stats(struct ctl *ctl)
{
    static const char *const time_titles[] = {"<WHAT", "COUNT", "MEAN", "HALF WITHIN",
                                              "99 OF 100 WITHIN"};
    json_t *answer = ctl_ask(ctl, "stats", NULL, 0);
    struct table t;

    if (!ctl_print_json(ctl, answer)) {
        printf("tokens of tenants since the daemon began %s ago, and of pools since they were "
               "opened\n",
               human_age((double)j_u64(answer, "uptime_s")));
        table_init(&t, ctl, figure_titles, TITLES_N(figure_titles));
        figures_of(&t, answer, "tenants", "tenant");
        figures_of(&t, answer, "pools", "pool");
        table_print(&t, "there is no tenant");
        peers(answer);
        printf("\n");
        table_init(&t, ctl, time_titles, TITLES_N(time_titles));
        add_times(&t, json_object_get(answer, "latencies"), "");
        add_times(&t, json_object_get(answer, "requests"), "request ");
        table_print(&t, "nothing was timed yet");
    }
    json_decref(answer);
    return CTL_OK;
}

static int run_namespaces(struct ctl *ctl)
{
    static const char *const titles[] = {"<NAMESPACE", "<TENANT", "<POOL", "NODES",  "<STATE",
                                         "PROMPTS",    "TOKENS",  "FOUND", "EVICTED"};
    json_t *answer = ctl_list(ctl, "namespaces", ctl_pool_arg(ctl)), *row;
    struct table t;
    size_t i;

    if (!ctl_print_json(ctl, answer)) {
        table_init(&t, ctl, titles, TITLES_N(titles));
        json_array_foreach(json_object_get(answer, "namespaces"), i, row)
        {
            table_add(&t, PLAIN, "%s", j_str(row, "namespace"));
            table_add(&t, PLAIN, "%s", j_str(row, "tenant"));
            table_add(&t, PLAIN, "%s", j_str(row, "pool"));
            table_add(&t, PLAIN, "%s", num(row, "nodes"));
            table_add(&t, PLAIN, "%s",
                      j_bool(row, "reset")  ? "reset"
                      : j_bool(row, "held") ? "held"
                                            : "idle");
            table_add(&t, PLAIN, "%s", num(row, "prompts"));
            table_add(&t, PLAIN, "%s", num(row, "prompt_tokens"));
            add_found(&t, row);
            table_add(&t, PLAIN, "%s", num(row, "evicted_nodes"));
        }
        table_print(&t, "no pool knows a namespace");
    }
    json_decref(answer);
    return CTL_OK;
}

static const struct argp_option namespaces_options[] = {
    {"pool", OPT_POOL, "POOL", 0, "Only this pool: its handle or its slot (ternctl pools)", 0},
    OPTION_TENANT,
    {0},
};

const struct command stats_commands[] = {
    {"stats", "", "What became of prompts, and how long things took",
     "  ternctl stats\n  ternctl stats --json | jq '.tenants[] | {tenant, prompt_tokens}'\n", NULL,
     false, run_stats},
    {"namespaces", "", "Namespaces of pools, and what was found of their prompts",
     "  ternctl namespaces\n  ternctl namespaces --json | jq '.namespaces | length'\n",
     namespaces_options, false, run_namespaces},
    {0},
};
