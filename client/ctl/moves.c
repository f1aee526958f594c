/* The commands for moves between hosts: transfers, and tickets. */
#include <stdio.h>
#include <string.h>

#include "ctl.h"

static void add_ticket(struct table *t, const json_t *row)
{
    table_add(t, PLAIN, "%s", j_str(row, "session"));
    table_add(t, BOLD, "%s", j_str(row, "tenant"));
    table_add(t, PLAIN, "%s",
              json_is_string(json_object_get(row, "engine")) ? j_str(row, "engine") : "-");
    table_add(t, PLAIN, "%s", j_str(row, "pool"));
    table_add(t, PLAIN, "%s", j_str(row, "ticket"));
    table_num(t, row, "length");
    table_num(t, row, "committed");
    table_num(t, row, "blob_bytes");
    table_add(t, PLAIN, "%s", human_age(j_f64(row, "age_s")));
    table_add(t, PLAIN, "%s", human_age(j_f64(row, "left_s")));
}

static int run_tickets(struct ctl *ctl)
{
    static const char *const titles[] = {"=SESSION", "<TENANT",   "<ENGINE", "+=POOL", "<TICKET",
                                         "LENGTH",   "COMMITTED", "BLOB",    "AGE",    "LEFT"};
    json_t *answer = ctl_list(ctl, "tickets", NULL), *row;
    struct table t;
    size_t i;

    if (!ctl_print_json(ctl, answer)) {
        json_array_foreach(json_object_get(answer, "tenants"), i, row)
        {
            const json_t *of = json_object_get(row, "tickets");

            printf("tenant %s: %s created, %s fetched, %s dropped, %s expired, %s ended with their "
                   "session\n",
                   j_str(row, "tenant"), num(of, "made"), num(of, "taken"), num(of, "dropped"),
                   num(of, "expired"), num(of, "ended"));
        }
        table_init(&t, ctl, titles, TITLES_N(titles));
        json_array_foreach(json_object_get(answer, "tickets"), i, row) add_ticket(&t, row);
        table_print(&t, "no ticket is valid");
    }
    json_decref(answer);
    return CTL_OK;
}

/* Two tables: each transfer's work and what it waits for, and the bytes moved. */
static void add_transfer(struct table *t, const json_t *row)
{
    bool waits = json_is_string(json_object_get(row, "waits_for"));

    table_add(t, PLAIN, "%s", j_str(row, "transfer"));
    table_add(t, PLAIN, "%s", j_str(row, "direction"));
    table_add(t, BOLD, "%s", j_str(row, "peer"));
    table_add(t, PLAIN, "%s", j_str(row, "tenant"));
    table_add(t, PLAIN, "%s", j_str(row, "stage"));
    table_add(t, waits ? YELLOW : DIM, "%s", waits ? j_str(row, "waits_for") : "-");
    table_add(t, PLAIN, "%s", human_age(j_f64(row, "waited_s")));
    table_add(t, PLAIN, "%s", human_age(j_f64(row, "age_s")));
    table_add(t, j_f64(row, "left_s") < 1 ? YELLOW : PLAIN, "%s", human_age(j_f64(row, "left_s")));
}

static void add_transferred(struct table *t, const json_t *row)
{
    bool out = strcmp(j_str(row, "direction"), "out") == 0;

    table_add(t, PLAIN, "%s", j_str(row, "transfer"));
    table_add(t, PLAIN, "%s", j_bool(row, "ticket") ? "yes" : "-");
    table_add(t, PLAIN, "%s", j_str(row, "class"));
    if (out)
        table_num(t, row, "to");
    else
        table_part(t, PLAIN, j_u64(row, "published"), j_u64(row, "to"));
    table_part(t, PLAIN, j_u64(row, out ? "pages_sent" : "pages_verified"), j_u64(row, "pages"));
    table_add(t, PLAIN, "%s", human_bytes(j_u64(row, out ? "bytes_sent" : "bytes_verified")));
    table_add(t, PLAIN, "%s/s", human_bytes(j_u64(row, "bytes_per_s")));
    table_add(t, PLAIN, "%s/s", human_bytes(j_u64(row, "mean_bytes_per_s")));
}

static int run_transfers(struct ctl *ctl)
{
    static const char *const does[] = {"=TRANSFER",  "<DIRECTION", "<PEER", "<TENANT", "<STAGE",
                                       "<WAITS FOR", "WAITED",     "AGE",   "LEFT"};
    static const char *const moved[] = {"=TRANSFER", "+<TICKET", "<CLASS", "TOKENS",
                                        "PAGES",     "BYTES",    "RATE",   "MEAN RATE"};
    json_t *answer = ctl_list(ctl, "transfers", NULL), *row;
    struct table first, second;
    size_t i;

    if (!ctl_print_json(ctl, answer)) {
        table_init(&first, ctl, does, TITLES_N(does));
        table_init(&second, ctl, moved, TITLES_N(moved));
        json_array_foreach(json_object_get(answer, "transfers"), i, row)
        {
            add_transfer(&first, row);
            add_transferred(&second, row);
        }
        table_print(&first, "no transfer is under way");
        if (second.cells) {
            printf("\n");
            table_print(&second, "");
        }
    }
    json_decref(answer);
    return CTL_OK;
}

/* ---- the rows ---- */

static const struct argp_option by_engine[] = {OPTION_TENANT, OPTION_ENGINE, OPTION_WIDE, {0}};
static const struct argp_option by_peer[] = {OPTION_TENANT, OPTION_PEER, OPTION_WIDE, {0}};

const struct command moves_commands[] = {
    {"tickets", "", "Valid tickets, and how earlier ones ended", "  ternctl tickets\n", by_engine,
     0, run_tickets},
    {"transfers", "", "Page transfers under way, in both directions", "  ternctl transfers\n",
     by_peer, 0, run_transfers},
    {0},
};
