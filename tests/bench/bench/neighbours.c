/* tern-bench neighbours: how tenant A affects tenant B when A exhausts a table that tenants share.
 * For each table A fills it until it is refused and continues to ask 1,000 times a second, while
 * B's operations run. Turns of this kind alternate with turns in which A asks as often but stays
 * within its share. None of B's operations may fail, and their p99 may at most double: the median
 * of the ratios over pairs of turns. Every table has a pair of daemons of its own. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "engine/json.h"
#include "engine/proc.h"
#include "neighbours_tables.h"

#define TURNS          11
#define TURN_OPS       1000 /* of B; so each row has more than 10,000 beside a full table */
#define QUICK_TURNS    3
#define QUICK_OPS      300 /* p99 leaves out what happens once a turn, like the joining engine */
#define RATIO_MAX      2.0
#define WATCH_NS       UINT64_C(2000000000)
#define QUICK_WATCH_NS UINT64_C(250000000)
#define RATE_LEAST     0.9 /* of the rate that A should ask at */

struct row {
    const struct a_table *table;
    uint64_t b_operations, b_failed, b_wrong;
    struct a_tally a[2]; /* within its share, over it: sums of the turns */
    double p99_us, p99_us_within, p99_ratio;
    double kind_us[B_KINDS][2]; /* p99 of all turns: beside a full table, within the share */
};

static const struct a_table *const tables[] = {
    &a_retires,      &a_namespaces,   &a_nodes,     &a_token_blocks, &a_extra_keys,
    &a_engines,      &a_pools,        &a_sessions,  &a_pulls,        &a_serves,
    &a_send_buffers, &a_events,       &a_data_door, &a_control_door, &a_socket_door,
    &a_commits,      &a_publishing,   &a_evictions, &a_stores,       &a_tickets,
    &a_collisions,   &a_layouts,      &a_bell,      &a_holes,        &a_descriptors,
    &a_unread,       &a_peer_layouts, &a_steps,     &a_finds};

#define TABLES (sizeof tables / sizeof tables[0])

struct neighbours {
    const struct bench_args *args;
    struct hosts hosts;
    struct tenant_b b;
    pid_t a;
    int a_fd;
    struct series kind[B_KINDS][2];
};

/* Runs B's operations of one turn; *ret_p99_us is their p99. */
static void b_turn(struct neighbours *n, bool over, bool costs, double *ret_p99_us)
{
    struct tenant_b *b = &n->b;
    uint64_t until = b->operations + (n->args->quick ? QUICK_OPS : TURN_OPS);

    if (b_begin(b)) {
        if (costs)
            b_watch(b, n->args->quick ? QUICK_WATCH_NS : WATCH_NS);
        while (!costs && b->operations < until)
            b_round(b);
        b_leave(b);
    }
    *ret_p99_us = series_quantile(&b->slice, 0.99);
    for (uint32_t k = 0; k < B_KINDS; k++) {
        for (size_t i = 0; i < b->kind[k].n; i++)
            series_add(&n->kind[k][over], b->kind[k].v[i]);
        series_clear(&b->kind[k]);
    }
}

static void a_was(struct row *row, bool over, const struct a_tally *turn)
{
    struct a_tally *a = &row->a[over];

    a->requests += turn->requests;
    a->refused += turn->refused;
    a->failed += turn->failed;
    a->ns += turn->ns;
}

static double per_s(const struct a_tally *a)
{
    return a->ns ? (double)a->requests / ((double)a->ns / 1e9) : 0;
}

/* A stays within its share, then exceeds it: `turns` of each. */
static bool by_turns(struct neighbours *n, struct row *row, uint32_t turns)
{
    struct series p99[2], ratio;
    struct a_tally tally;
    bool ok = true;

    series_init(&ratio, turns);
    for (uint32_t i = 0; i < 2; i++)
        series_init(&p99[i], turns);
    for (uint32_t i = 0; ok && i < 2 * turns; i++) {
        bool over = i % 2;
        uint64_t before = n->b.operations;
        double us = 0;

        ok = a_turn(n->a_fd, over, &tally);
        if (ok && i > 0)
            a_was(row, !over, &tally);
        if (!ok)
            break;
        b_turn(n, over, row->table->costs, &us);
        row->b_operations += over ? n->b.operations - before : 0;
        series_add(&p99[over], us);
        if (over)
            series_add(&ratio, us / p99[0].v[p99[0].n - 1]);
    }
    ok = ok && a_turn(n->a_fd, false, &tally);
    if (ok)
        a_was(row, true, &tally);
    row->p99_us = series_median(&p99[1]);
    row->p99_us_within = series_median(&p99[0]);
    row->p99_ratio = series_median(&ratio);
    series_finish(&ratio);
    series_finish(&p99[0]);
    series_finish(&p99[1]);
    return ok;
}

static bool measure(struct neighbours *n, struct row *row)
{
    bool ok;

    n->a = -1;
    n->a_fd = -1;
    for (uint32_t k = 0; k < 2 * B_KINDS; k++)
        series_init(&n->kind[k / 2][k % 2], 20000);
    ok = hosts_start(&n->hosts, &(struct hosts_needs){.limits = row->table->limits,
                                                      .mute = row->table->mute,
                                                      .large = row->table->costs,
                                                      .spills = row->table->spills}) &&
         b_start(&n->b, &n->hosts);
    if (ok) {
        n->a = a_start(&n->hosts, row->table, &n->a_fd);
        ok = n->a > 0 && by_turns(n, row, n->args->quick ? QUICK_TURNS : TURNS);
    }
    row->b_failed = n->b.failed;
    row->b_wrong = n->b.wrong;
    for (uint32_t k = 0; k < 2 * B_KINDS; k++) {
        row->kind_us[k / 2][k % 2] = series_quantile(&n->kind[k / 2][k % 2], 0.99);
        series_finish(&n->kind[k / 2][k % 2]);
    }
    if (n->a_fd >= 0)
        close(n->a_fd);
    proc_end(&n->a);
    b_stop(&n->b);
    hosts_stop(&n->hosts);
    if (!ok)
        fprintf(stderr, "tern-bench neighbours: %s: it could not be measured\n", row->table->name);
    return ok;
}

static json_t *row_json(const struct row *r)
{
    json_t *o = json_object();
    char key[48];

    json_object_set_new(o, "table", json_string(r->table->name));
    json_put_u64(o, "a_refused", r->a[1].refused);
    json_put_u64(o, "a_refused_within", r->a[0].refused);
    json_put_f64(o, "a_per_s", per_s(&r->a[1]));
    json_put_f64(o, "a_per_s_within", per_s(&r->a[0]));
    json_put_u64(o, "b_operations", r->b_operations);
    json_put_u64(o, "b_failed", r->b_failed);
    json_put_u64(o, "wrong_bytes", r->b_wrong);
    json_put_f64(o, "p99_us", r->p99_us);
    json_put_f64(o, "p99_us_within", r->p99_us_within);
    json_put_f64(o, "p99_ratio", r->p99_ratio);
    for (uint32_t k = 0; k < B_KINDS; k++)
        for (uint32_t over = 0; over < 2; over++) {
            snprintf(key, sizeof key, "%s_us_p99%s", b_kind_name(k), over ? "" : "_within");
            json_put_f64(o, key, r->kind_us[k][over]);
        }
    return o;
}

static bool judge(const struct row *r)
{
    const double rate = RATE_LEAST * a_per_s(r->table);
    char limit[96];
    bool ok;

    if (r->table->costs)
        snprintf(limit, sizeof limit, "%s: A is not refused", r->table->name);
    else
        snprintf(limit, sizeof limit, "%s: A is refused beyond its share, and there alone",
                 r->table->name);
    ok = bench_count((r->a[1].refused > 0) != r->table->costs && r->a[0].refused == 0 &&
                         r->a[0].failed + r->a[1].failed == 0,
                     limit);
    snprintf(limit, sizeof limit, "%s: none of B's operations fails", r->table->name);
    ok = bench_count(r->b_failed == 0 && r->b_operations > 0, limit) && ok;
    snprintf(limit, sizeof limit, "%s: B gets no wrong byte", r->table->name);
    ok = bench_count(r->b_wrong == 0, limit) && ok;
    /* A costly request may take A itself longer. */
    snprintf(limit, sizeof limit, "%s: A asks at least %.0f times a second", r->table->name, rate);
    ok = bench_limit(per_s(&r->a[0]) >= rate && (r->table->costs || per_s(&r->a[1]) >= rate),
                     limit) &&
         ok;
    snprintf(limit, sizeof limit, "%s: p99_ratio <= %.0f", r->table->name, RATIO_MAX);
    return bench_limit(r->p99_ratio <= RATIO_MAX, limit) && ok;
}

static void row_print(const struct row *r)
{
    printf("            %-14s %10llu %10.0f %10llu %9llu %9.0f %11.0f %7.2f   %.0f\n",
           r->table->name, (unsigned long long)r->a[1].refused, per_s(&r->a[1]),
           (unsigned long long)r->b_operations, (unsigned long long)r->b_failed, r->p99_us,
           r->p99_us_within, r->p99_ratio, RATIO_MAX);
    fflush(stdout);
}

/* A row that cannot be measured leaves the others unchanged; the exit status reports it. */
int bench_neighbours(const struct bench_args *args)
{
    static struct neighbours n;
    json_t *o = json_object(), *list = json_array(), *unmeasured = json_array();
    uint32_t nrows = 0;
    bool ok = true;
    int status;

    n.args = args;
    if (!args->json)
        printf("neighbours: %-14s %10s %10s %10s %9s %9s %11s %7s   limit\n", "table", "A refused",
               "A a second", "B done", "B failed", "p99 us", "A in share", "ratio");
    for (uint32_t i = 0; i < TABLES; i++) {
        struct row row = {.table = tables[i]};

        if (args->table && strcmp(args->table, tables[i]->name) != 0)
            continue;
        nrows++;
        if (!measure(&n, &row)) {
            json_array_append_new(unmeasured, json_string(row.table->name));
            continue;
        }
        json_array_append_new(list, row_json(&row));
        if (!args->json)
            row_print(&row);
        ok = judge(&row) && ok;
    }
    status = json_array_size(unmeasured) > 0 ? 2 : !ok;
    json_object_set_new(o, "rows", list);
    json_object_set_new(o, "unmeasured", unmeasured);
    if (args->json)
        json_print(o);
    json_decref(o);
    if (nrows == 0) {
        fprintf(stderr, "tern-bench neighbours: no table is called \"%s\"\n", args->table);
        return 2;
    }
    return status;
}
