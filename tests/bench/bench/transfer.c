/* tern-bench transfer: fetches of populated prefixes between two daemons, checksums on, beside one
 * plain TCP stream between equally large regions. Tern and raw alternate, and every page that Tern
 * delivered is compared outside the measured time. A TCP connection may keep a rate of its own for
 * long, so each page size is measured in several sittings, with daemons and a stream of their own.
 * Then fetches from several peers at once, beside as many from one. In the last pass pages are
 * corrupted on the way: all must be detected, and the engine may see none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "engine/admin.h"
#include "engine/json.h"
#include "engine/proc.h"
#include "engine/stats.h"
#include "fair.h"
#include "fetches.h"
#include "raw_stream.h"

#define REGION_BYTES     (256u << 20)
#define QUICK_BYTES      (32u << 20)
#define PEERS_BYTES      (128u << 20) /* at each of several peers */
#define PEERS_PAGE_BYTES (256u << 10)
#define PEERS_RATIO      0.9
#define FAIR_RATIO       2.0
#define SITTINGS         3
#define SITTING_PAIRS    7
#define PEERS_PAIRS      15
#define QUICK_PAIRS      3
#define CORRUPT_PAGES    100
#define TABLE_PAGES      "pages"
#define SENT_MAX         1.01 /* heads and checksums included, for each byte of a page */

/* The judged speed, its baseline, and the ratio of the two: medians over pairs of passes. */
struct speed {
    double gb_s, base_gb_s, ratio;
};

struct row {
    uint32_t page_bytes;
    double least_ratio;
    struct speed speed; /* beside the raw stream */
    double sent;        /* bytes on the sockets for each byte of a page, at most */
};

/* Several peers at once, beside a single one. */
struct peers_row {
    uint32_t peers;
    struct speed speed;
};

/* Over that many connections, beside the raw stream, which is one connection. */
struct paths_row {
    uint32_t connections;
    struct speed speed;
};

/* Pairs of passes, one after the other. */
struct pairs {
    struct series gb_s, base_gb_s, ratio;
};

struct transfer {
    const struct bench_args *args;
    uint32_t connections; /* 0: the daemon's own default */
    char dir[64];
    struct daemon daemon[1 + FETCH_SOURCES_MAX]; /* the destination, then the sources */
    struct fetches fetches;
};

struct figures {
    struct row *rows;
    struct peers_row *peers;
    struct paths_row *paths;
    size_t nrows, npeers, npaths;
    struct fair_figures fair;
    uint64_t found, wrong; /* corrupted pages found; wrong bytes that an engine saw */
    bool pages_only;       /* only the rows were measured */
};

/* ---- daemons and engines ---- */

static bool start_daemons(struct transfer *x, uint32_t sources, uint32_t corrupt)
{
    static const char *const names[FETCH_SOURCES_MAX] = {"source", "source2", "source3", "source4"};
    struct daemon_options o[1 + FETCH_SOURCES_MAX];
    char why[SPAWN_WHY_BYTES] = "";

    for (uint32_t i = 0; i <= sources; i++)
        o[i] = (struct daemon_options){
            .node = i ? names[i - 1] : "dest",
            .memory_bytes = fetches_memory(&x->fetches),
            .page_bytes_min = x->fetches.page_bytes,
            .token_blocks = fetches_token_blocks(&x->fetches),
            .connections = x->connections,
            .core = proc_core(i == 0), /* a host of its own has its own; as raw_stream */
        };
    o[0].corrupt_pages = corrupt;
    if (!tempdir_make(x->dir, sizeof x->dir, "tern-bench"))
        return false;
    if (daemon_start_star(x->daemon, 1 + sources, x->dir, o, why))
        return true;
    fprintf(stderr, "tern-bench: %s\n", why);
    return false;
}

static bool set_up(struct transfer *x, uint32_t page_bytes, uint64_t bytes, uint32_t sources,
                   uint32_t corrupt)
{
    bool ok;

    *x = (struct transfer){.args = x->args, .connections = x->connections};
    for (uint32_t i = 0; i <= FETCH_SOURCES_MAX; i++)
        x->daemon[i].pid = -1;
    fetches_init(&x->fetches, page_bytes, x->args->quick ? QUICK_BYTES : bytes);
    ok = start_daemons(x, sources, corrupt);
    for (uint32_t i = 1; ok && i <= sources; i++)
        ok = fetches_add_source(&x->fetches, &x->daemon[i]);
    return ok && fetches_open(&x->fetches, &x->daemon[0]);
}

static void tear_down(struct transfer *x, struct figures *all)
{
    all->wrong += x->fetches.wrong;
    fetches_close(&x->fetches);
    for (uint32_t i = 0; i <= FETCH_SOURCES_MAX; i++)
        daemon_stop(&x->daemon[i]);
    if (x->dir[0])
        tempdir_remove(x->dir);
}

static bool pass(struct transfer *x, uint32_t sources, double *ret_gb_s)
{
    return fetches_pass(&x->fetches, sources, true, ret_gb_s);
}

/* ---- measuring ---- */

/* Returns the read size that is best in three passes each. */
static bool best_read(struct raw_stream *raw, size_t *ret)
{
    double best = 0, gb_s, median;
    struct series s;

    series_init(&s, 3);
    for (uint32_t i = 0; i < RAW_READ_SIZES; i++) {
        series_clear(&s);
        for (uint32_t k = 0; k < 3; k++) {
            if (!raw_stream_pass(raw, raw_read_sizes[i], &gb_s))
                return false;
            series_add(&s, gb_s);
        }
        median = series_median(&s);
        if (median > best) {
            best = median;
            *ret = raw_read_sizes[i];
        }
    }
    series_finish(&s);
    return true;
}

static void pairs_init(struct pairs *p)
{
    series_init(&p->gb_s, SITTINGS * SITTING_PAIRS);
    series_init(&p->base_gb_s, SITTINGS * SITTING_PAIRS);
    series_init(&p->ratio, SITTINGS * SITTING_PAIRS);
}

static void pairs_add(struct pairs *p, double gb_s, double base_gb_s)
{
    series_add(&p->gb_s, gb_s);
    series_add(&p->base_gb_s, base_gb_s);
    series_add(&p->ratio, gb_s / base_gb_s);
}

static struct speed pairs_finish(struct pairs *p)
{
    struct speed speed = {.gb_s = series_median(&p->gb_s),
                          .base_gb_s = series_median(&p->base_gb_s),
                          .ratio = series_median(&p->ratio)};

    series_finish(&p->gb_s);
    series_finish(&p->base_gb_s);
    series_finish(&p->ratio);
    return speed;
}

static bool sit(struct transfer *x, struct raw_stream *raw, struct pairs *pairs)
{
    uint32_t n = x->args->quick ? QUICK_PAIRS : SITTING_PAIRS;
    size_t read_bytes = 0;
    double a = 0, b = 0;
    bool ok = best_read(raw, &read_bytes) && pass(x, 1, &a);

    for (uint32_t i = 0; ok && i < n; i++) {
        ok = pass(x, 1, &a) && raw_stream_pass(raw, read_bytes, &b);
        if (ok)
            pairs_add(pairs, a, b);
    }
    return ok;
}

static bool measure_sitting(struct transfer *x, struct row *row, struct pairs *pairs,
                            struct figures *all)
{
    struct raw_stream raw = {.pid = -1, .fd = -1};
    struct daemon_status s = {0};
    bool ok = set_up(x, row->page_bytes, REGION_BYTES, 1, 0) &&
              raw_stream_start(&raw, row->page_bytes, FETCH_SESSIONS * x->fetches.pages) &&
              sit(x, &raw, pairs) && admin_status(x->fetches.admin, 0, &s) &&
              s.transfers.payload_bytes_in > 0;

    if (ok) {
        double sent = (double)s.transfers.socket_bytes_in / (double)s.transfers.payload_bytes_in;

        row->sent = sent > row->sent ? sent : row->sent;
    }
    raw_stream_stop(&raw);
    tear_down(x, all);
    return ok;
}

static bool measure_row(struct transfer *x, struct row *row, struct figures *all)
{
    uint32_t sittings = x->args->quick ? 1 : SITTINGS;
    struct pairs pairs;
    bool ok = true;

    pairs_init(&pairs);
    for (uint32_t i = 0; ok && i < sittings; i++)
        ok = measure_sitting(x, row, &pairs, all);
    row->speed = pairs_finish(&pairs);
    return ok;
}

static bool measure_peers_row(struct transfer *x, struct peers_row *row)
{
    uint32_t n = x->args->quick ? QUICK_PAIRS : PEERS_PAIRS;
    struct pairs pairs;
    double a = 0, b = 0;
    bool ok = true;

    pairs_init(&pairs);
    for (uint32_t i = 0; ok && i < n; i++) {
        ok = pass(x, row->peers, &a) && pass(x, 1, &b);
        if (ok)
            pairs_add(&pairs, a, b);
    }
    row->speed = pairs_finish(&pairs);
    return ok;
}

/* The same sessions from one peer, then from several; each row in turns of its own. */
static bool measure_peers(struct transfer *x, struct figures *all)
{
    double gb_s;
    bool ok = set_up(x, PEERS_PAGE_BYTES, PEERS_BYTES, FETCH_SOURCES_MAX, 0) &&
              pass(x, FETCH_SOURCES_MAX, &gb_s);

    for (size_t k = 0; ok && k < all->npeers; k++)
        ok = measure_peers_row(x, &all->peers[k]);
    tear_down(x, all);
    return ok;
}

static bool measure_paths_row(struct transfer *x, struct paths_row *row, struct figures *all)
{
    struct row as_row = {.page_bytes = PEERS_PAGE_BYTES};
    struct pairs pairs;
    bool ok;

    pairs_init(&pairs);
    x->connections = row->connections;
    ok = measure_sitting(x, &as_row, &pairs, all);
    x->connections = 0;
    row->speed = pairs_finish(&pairs);
    return ok;
}

/* Every corrupted page is found by its checksum and fetched again; the engine sees right bytes
 * only. */
static bool measure_corrupt(struct transfer *x, struct figures *all)
{
    struct daemon_status s = {0};
    double gb_s;
    bool ok = set_up(x, 64 << 10, REGION_BYTES, 1, CORRUPT_PAGES) && pass(x, 1, &gb_s) &&
              admin_status(x->fetches.admin, 0, &s);

    all->found = s.transfers.corrupt_detected;
    tear_down(x, all);
    return ok;
}

/* ---- the report ---- */

static bool judge_row(const struct row *r)
{
    char limit[64];
    bool ok;

    snprintf(limit, sizeof limit, "ratio >= %.1f at %u bytes", r->least_ratio, r->page_bytes);
    ok = bench_limit(r->speed.ratio >= r->least_ratio, limit);
    snprintf(limit, sizeof limit, "sent / payload <= %.2f at %u bytes", SENT_MAX, r->page_bytes);
    return bench_count(r->sent >= 1 && r->sent <= SENT_MAX, limit) && ok;
}

static bool judge_peers(const struct peers_row *r)
{
    char limit[64];

    snprintf(limit, sizeof limit, "%u peers at once: at least %.1f of one peer's GB/s", r->peers,
             PEERS_RATIO);
    return bench_limit(r->speed.ratio >= PEERS_RATIO, limit);
}

static bool judge_fair(const struct fair *f, const char *what)
{
    char limit[96];

    snprintf(limit, sizeof limit, "%s: p99 beside <= %.0f x p99 alone", what, FAIR_RATIO);
    return bench_limit(f->ratio <= FAIR_RATIO, limit);
}

static json_t *fair_json(const struct fair *f)
{
    json_t *o = json_object();

    json_put_f64(o, "alone_p50_ms", f->alone_p50_ms);
    json_put_f64(o, "alone_p99_ms", f->alone_p99_ms);
    json_put_f64(o, "beside_p50_ms", f->beside_p50_ms);
    json_put_f64(o, "beside_p99_ms", f->beside_p99_ms);
    json_put_f64(o, "flood_gb_s", f->flood_gb_s);
    return o;
}

static void fair_table(const struct fair *f, const char *what)
{
    printf("          %-34s p50 %6.2f ms, p99 %6.2f ms; alone %6.2f and %6.2f; ratio %.2f   %.0f\n",
           what, f->beside_p50_ms, f->beside_p99_ms, f->alone_p50_ms, f->alone_p99_ms, f->ratio,
           FAIR_RATIO);
}

static json_t *paths_json(const struct figures *all)
{
    json_t *list = json_array();

    for (size_t i = 0; i < all->npaths; i++) {
        json_t *row = json_object();

        json_put_u64(row, "connections", all->paths[i].connections);
        json_put_u64(row, "page_bytes", PEERS_PAGE_BYTES);
        json_put_f64(row, "gb_s", all->paths[i].speed.gb_s);
        json_put_f64(row, "raw_gb_s", all->paths[i].speed.base_gb_s);
        json_put_f64(row, "ratio", all->paths[i].speed.ratio);
        json_array_append_new(list, row);
    }
    return list;
}

/* Puts everything but the rows. */
static void put_others(const struct figures *all, json_t *o)
{
    json_t *peers = json_array();

    for (size_t i = 0; i < all->npeers; i++) {
        json_t *row = json_object();

        json_put_u64(row, "peers", all->peers[i].peers);
        json_put_u64(row, "page_bytes", PEERS_PAGE_BYTES);
        json_put_f64(row, "gb_s", all->peers[i].speed.gb_s);
        json_put_f64(row, "one_gb_s", all->peers[i].speed.base_gb_s);
        json_put_f64(row, "ratio", all->peers[i].speed.ratio);
        json_array_append_new(peers, row);
    }
    json_object_set_new(o, "peers", peers);
    json_object_set_new(o, "paths", paths_json(all));
    json_put_f64(o, "fair_p99_ratio", all->fair.tenants.ratio);
    json_object_set_new(o, "fair", fair_json(&all->fair.tenants));
    json_put_f64(o, "urgent_p99_ratio", all->fair.urgent.ratio);
    json_object_set_new(o, "urgent", fair_json(&all->fair.urgent));
    json_put_u64(o, "corrupt_injected", CORRUPT_PAGES);
    json_put_u64(o, "corrupt_detected", all->found);
}

static void show_json(const struct figures *all)
{
    json_t *o = json_object(), *list = json_array();

    for (size_t i = 0; i < all->nrows; i++) {
        json_t *row = json_object();

        json_put_u64(row, "page_bytes", all->rows[i].page_bytes);
        json_put_f64(row, "gb_s", all->rows[i].speed.gb_s);
        json_put_f64(row, "raw_gb_s", all->rows[i].speed.base_gb_s);
        json_put_f64(row, "ratio", all->rows[i].speed.ratio);
        json_put_f64(row, "sent_ratio", all->rows[i].sent);
        json_array_append_new(list, row);
    }
    json_object_set_new(o, "rows", list);
    json_put_u64(o, "wrong_bytes", all->wrong);
    if (!all->pages_only)
        put_others(all, o);
    json_print(o);
    json_decref(o);
}

static void show_table(const struct figures *all)
{
    printf("transfer: %12s %10s %10s %8s   limit\n", "page bytes", "GB/s", "raw GB/s", "ratio");
    for (size_t i = 0; i < all->nrows; i++)
        printf("          %12u %10.3f %10.3f %8.3f   %.1f\n", all->rows[i].page_bytes,
               all->rows[i].speed.gb_s, all->rows[i].speed.base_gb_s, all->rows[i].speed.ratio,
               all->rows[i].least_ratio);
    if (all->pages_only)
        return;
    printf("          %12s %10s %10s %8s\n", "peers", "GB/s", "one's GB/s", "ratio");
    for (size_t i = 0; i < all->npeers; i++)
        printf("          %12u %10.3f %10.3f %8.3f   %.1f\n", all->peers[i].peers,
               all->peers[i].speed.gb_s, all->peers[i].speed.base_gb_s, all->peers[i].speed.ratio,
               PEERS_RATIO);
    printf("          %12s %10s %10s %8s\n", "connections", "GB/s", "raw GB/s", "ratio");
    for (size_t i = 0; i < all->npaths; i++)
        printf("          %12u %10.3f %10.3f %8.3f\n", all->paths[i].connections,
               all->paths[i].speed.gb_s, all->paths[i].speed.base_gb_s, all->paths[i].speed.ratio);
    printf("1 MiB every 20 ms\n");
    fair_table(&all->fair.tenants, "beside another tenant's fetches:");
    fair_table(&all->fair.urgent, "beside prefetches of the tenant:");
    printf("corrupted on the way: %u, found: %llu, wrong bytes seen by the engine: %llu\n",
           CORRUPT_PAGES, (unsigned long long)all->found, (unsigned long long)all->wrong);
}

static int show(const struct bench_args *args, const struct figures *all)
{
    bool ok = true;

    if (args->json)
        show_json(all);
    else
        show_table(all);
    for (size_t i = 0; i < all->nrows; i++)
        ok = judge_row(&all->rows[i]) && ok;
    ok = bench_count(all->wrong == 0, "no wrong byte is published") && ok;
    if (all->pages_only)
        return ok ? 0 : 1;
    for (size_t i = 0; i < all->npeers; i++)
        ok = judge_peers(&all->peers[i]) && ok;
    ok = judge_fair(&all->fair.tenants, "a tenant beside another's flood") && ok;
    ok = judge_fair(&all->fair.urgent, "a fetch beside prefetches") && ok;
    return bench_count(all->found == CORRUPT_PAGES, "every corrupted page is found") && ok ? 0 : 1;
}

int bench_transfer(const struct bench_args *args)
{
    struct row rows[] = {
        {.page_bytes = 16 << 10, .least_ratio = 0.8},
        {.page_bytes = 64 << 10, .least_ratio = 0.9},
        {.page_bytes = 256 << 10, .least_ratio = 0.9},
        {.page_bytes = 1 << 20, .least_ratio = 0.9},
    };
    struct peers_row peers[] = {{.peers = 2}, {.peers = 4}};
    struct paths_row paths[] = {{.connections = 1}, {.connections = 2}, {.connections = 4}};
    struct figures all = {.rows = rows,
                          .peers = peers,
                          .paths = paths,
                          .npaths = sizeof paths / sizeof paths[0],
                          .nrows = sizeof rows / sizeof rows[0],
                          .npeers = sizeof peers / sizeof peers[0]};
    static struct transfer x;
    bool ok = true;

    if (args->table && strcmp(args->table, TABLE_PAGES) != 0) {
        fprintf(stderr, "tern-bench transfer: no table is called \"%s\", but \"" TABLE_PAGES "\"\n",
                args->table);
        return 2;
    }
    x.args = args;
    all.pages_only = args->table;
    for (size_t i = 0; ok && i < all.nrows; i++)
        ok = measure_row(&x, &rows[i], &all);
    for (size_t i = 0; ok && !all.pages_only && i < all.npaths; i++)
        ok = measure_paths_row(&x, &paths[i], &all);
    if (ok && !all.pages_only)
        ok = measure_peers(&x, &all) && fair_measure(args, &all.fair, &all.wrong) &&
             measure_corrupt(&x, &all);
    if (ok)
        return show(args, &all);
    fprintf(stderr, "tern-bench transfer: it could not be measured\n");
    return 2;
}
