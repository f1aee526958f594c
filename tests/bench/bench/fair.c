/* Fairness of transfers: see fair.h. Two daemons with two tenants. Tenant B's engine fetches a
 * session of 1 MiB every 20 ms, by turns alone and beside a load, each turn of a few seconds; the
 * load is a process of its own, so that B's engine waits for the daemons alone. */
#include "fair.h"

#include <stdio.h>
#include <string.h>

#include "engine/proc.h"
#include "engine/stats.h"
#include "fetches.h"

#define PAGE_BYTES   (64u << 10)
#define B_BYTES      (FETCH_SESSIONS << 20) /* 1 MiB a session */
#define FLOOD_BYTES  (128u << 20)
#define B_PERIOD_NS  20000000u
#define TURNS        5
#define TURN_PASSES  16 /* of FETCH_SESSIONS fetches each: 2.6 s */
#define QUICK_TURNS  1
#define QUICK_PASSES 2

struct rig {
    char dir[64];
    struct daemon daemon[2]; /* the destination and the source, with the first tenant's sockets */
    struct daemon other[2];  /* the same with the second tenant's */
    struct fetches b;
};

static bool start_daemons(struct rig *r)
{
    struct fetches flood;
    struct daemon_options o[2];
    char why[SPAWN_WHY_BYTES] = "";
    bool ok;

    fetches_init(&flood, PAGE_BYTES, FLOOD_BYTES);
    for (uint32_t i = 0; i < 2; i++)
        o[i] = (struct daemon_options){
            .node = i ? "source" : "dest",
            .second_tenant = true,
            .memory_bytes = fetches_memory(&flood) + (uint64_t)B_BYTES + (4u << 20),
            .page_bytes_min = PAGE_BYTES,
            .token_blocks = 2 * fetches_token_blocks(&flood),
            .core = proc_core(i == 0),
        };
    ok = tempdir_make(r->dir, sizeof r->dir, "tern-bench") &&
         daemon_start_star(r->daemon, 2, r->dir, o, why);
    fetches_close(&flood);
    if (*why)
        fprintf(stderr, "tern-bench: %s\n", why);
    for (uint32_t i = 0; ok && i < 2; i++) {
        r->other[i] = r->daemon[i];
        snprintf(r->other[i].socket, sizeof r->other[i].socket, "%s", r->daemon[i].second);
    }
    return ok;
}

/* One turn of B, in milliseconds. */
static bool turn(struct rig *r, uint32_t passes, struct series *ms)
{
    for (uint32_t i = 0; i < passes; i++)
        if (!fetches_paced(&r->b, B_PERIOD_NS, ms))
            return false;
    return true;
}

static bool turn_beside(struct rig *r, const struct fetch_flood *flood, uint32_t passes,
                        struct series *ms, double *ret_gb_s)
{
    struct fetch_load load;
    bool ok = fetch_load_start(&load, flood, PAGE_BYTES, FLOOD_BYTES) && turn(r, passes, ms);

    return fetch_load_stop(&load, ret_gb_s) && ok;
}

/* Measures B alone and beside the flood, alternating. */
static bool measure(struct rig *r, const struct fetch_flood *flood, bool quick, struct fair *ret)
{
    uint32_t turns = quick ? QUICK_TURNS : TURNS, passes = quick ? QUICK_PASSES : TURN_PASSES;
    struct series alone, beside, all[2], ratio, flooded;
    double gb_s;
    bool ok = true;

    series_init(&alone, 4096), series_init(&beside, 4096), series_init(&ratio, TURNS);
    series_init(&all[0], 16384), series_init(&all[1], 16384), series_init(&flooded, TURNS);
    for (uint32_t i = 0; ok && i < turns; i++) {
        series_clear(&alone), series_clear(&beside);
        ok = turn(r, passes, &alone) && turn_beside(r, flood, passes, &beside, &gb_s);
        if (!ok)
            break;
        series_add(&flooded, gb_s);
        series_add(&ratio, series_quantile(&beside, 0.99) / series_quantile(&alone, 0.99));
        for (size_t k = 0; k < alone.n; k++)
            series_add(&all[0], alone.v[k]);
        for (size_t k = 0; k < beside.n; k++)
            series_add(&all[1], beside.v[k]);
    }
    *ret = (struct fair){.alone_p50_ms = series_quantile(&all[0], 0.5),
                         .alone_p99_ms = series_quantile(&all[0], 0.99),
                         .beside_p50_ms = series_quantile(&all[1], 0.5),
                         .beside_p99_ms = series_quantile(&all[1], 0.99),
                         .ratio = series_median(&ratio),
                         .flood_gb_s = series_median(&flooded)};
    series_finish(&alone), series_finish(&beside), series_finish(&ratio);
    series_finish(&all[0]), series_finish(&all[1]), series_finish(&flooded);
    return ok;
}

bool fair_measure(const struct bench_args *args, struct fair_figures *ret, uint64_t *ret_wrong)
{
    struct rig r = {.daemon = {{.pid = -1}, {.pid = -1}}};
    struct fetch_flood theirs = {.dest = &r.daemon[0], .source = &r.daemon[1]},
                       own = {.dest = &r.other[0], .source = &r.other[1], .prefetch = true};
    bool ok;

    fetches_init(&r.b, PAGE_BYTES, B_BYTES);
    ok = start_daemons(&r) && fetches_add_source(&r.b, &r.other[1]) &&
         fetches_open(&r.b, &r.other[0]) && measure(&r, &theirs, args->quick, &ret->tenants) &&
         measure(&r, &own, args->quick, &ret->urgent);
    *ret_wrong += r.b.wrong;
    fetches_close(&r.b);
    for (uint32_t i = 0; i < 2; i++)
        daemon_stop(&r.daemon[i]);
    if (r.dir[0])
        tempdir_remove(r.dir);
    return ok;
}
