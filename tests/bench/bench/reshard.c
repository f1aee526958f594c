/* tern-bench reshard: a stream of pages whose pieces lie scattered at one end, moved as stretches
 * of one call or copied through a buffer that stays in cache, beside a plain stream of the same
 * bytes. The three alternate, once for the sending end and once for the receiving one. The daemon
 * packs stretches shorter than DATA_PACKED_STRETCH: this shows whether that limit is right on this
 * machine. */
#include <stdio.h>

#include "bench.h"
#include "engine/json.h"
#include "engine/proc.h"
#include "engine/stats.h"
#include "pieces.h"

#define PAGES        128u
#define QUICK_PAGES  16u
#define ROUNDS       15u
#define QUICK_ROUNDS 3u

enum way { RAW, SENT, SENT_PACKED, RECEIVED, RECEIVED_PACKED, WAYS };

static const struct pieces_way ways[WAYS] = {
    [RAW] = {PIECES_PLAIN, PIECES_PLAIN},
    [SENT] = {PIECES_STRETCHES, PIECES_PLAIN},
    [SENT_PACKED] = {PIECES_PACKED, PIECES_PLAIN},
    [RECEIVED] = {PIECES_PLAIN, PIECES_STRETCHES},
    [RECEIVED_PACKED] = {PIECES_PLAIN, PIECES_PACKED},
};

/* Medians over the rounds. */
struct row {
    uint32_t piece_bytes;
    double gb_s[WAYS], gb_core_s[WAYS];
    /* Packed to stretches, of neighbouring passes: by the clock, and by the core time. */
    double sent_ratio, sent_core_ratio, received_ratio, received_core_ratio;
};

struct rounds {
    struct series gb_s[WAYS], gb_core_s[WAYS], sent, sent_core, received, received_core;
};

static void rounds_init(struct rounds *r, uint32_t n)
{
    for (uint32_t w = 0; w < WAYS; w++) {
        series_init(&r->gb_s[w], n);
        series_init(&r->gb_core_s[w], n);
    }
    series_init(&r->sent, n);
    series_init(&r->sent_core, n);
    series_init(&r->received, n);
    series_init(&r->received_core, n);
}

static double taken(struct series *s)
{
    double median = series_median(s);

    series_finish(s);
    return median;
}

static void rounds_finish(struct rounds *r, struct row *row)
{
    for (uint32_t w = 0; w < WAYS; w++) {
        row->gb_s[w] = taken(&r->gb_s[w]);
        row->gb_core_s[w] = taken(&r->gb_core_s[w]);
    }
    row->sent_ratio = taken(&r->sent);
    row->sent_core_ratio = taken(&r->sent_core);
    row->received_ratio = taken(&r->received);
    row->received_core_ratio = taken(&r->received_core);
}

static bool round_pass(struct pieces *p, struct pieces_speed *ret, uint64_t *wrong)
{
    for (uint32_t w = 0; w < WAYS; w++) {
        if (!pieces_pass(p, ways[w], &ret[w]))
            return false;
        *wrong += pieces_wrong(p, ways[w]);
    }
    return true;
}

static void rounds_add(struct rounds *r, const struct pieces_speed *v)
{
    for (uint32_t w = 0; w < WAYS; w++) {
        series_add(&r->gb_s[w], v[w].gb_s);
        series_add(&r->gb_core_s[w], v[w].gb_core_s);
    }
    series_add(&r->sent, v[SENT_PACKED].gb_s / v[SENT].gb_s);
    series_add(&r->sent_core, v[SENT_PACKED].gb_core_s / v[SENT].gb_core_s);
    series_add(&r->received, v[RECEIVED_PACKED].gb_s / v[RECEIVED].gb_s);
    series_add(&r->received_core, v[RECEIVED_PACKED].gb_core_s / v[RECEIVED].gb_core_s);
}

static bool measure(const struct bench_args *args, struct row *row, uint64_t *wrong)
{
    uint32_t n = args->quick ? QUICK_ROUNDS : ROUNDS;
    struct pieces_speed v[WAYS];
    struct rounds rounds;
    struct pieces p;
    bool ok = pieces_start(&p, row->piece_bytes, args->quick ? QUICK_PAGES : PAGES) &&
              round_pass(&p, v, wrong); /* the first round warms up */

    rounds_init(&rounds, n);
    for (uint32_t i = 0; ok && i < n; i++) {
        ok = round_pass(&p, v, wrong);
        rounds_add(&rounds, v);
    }
    rounds_finish(&rounds, row);
    pieces_stop(&p);
    return ok;
}

static void show_json(const struct row *rows, size_t n, uint64_t wrong)
{
    json_t *o = json_object(), *list = json_array();

    for (size_t i = 0; i < n; i++) {
        const struct row *r = &rows[i];
        json_t *row = json_object();

        json_put_u64(row, "piece_bytes", r->piece_bytes);
        json_put_f64(row, "raw_gb_s", r->gb_s[RAW]);
        json_put_f64(row, "sent_gb_s", r->gb_s[SENT]);
        json_put_f64(row, "sent_packed_gb_s", r->gb_s[SENT_PACKED]);
        json_put_f64(row, "sent_ratio", r->sent_ratio);
        json_put_f64(row, "sent_core_ratio", r->sent_core_ratio);
        json_put_f64(row, "received_gb_s", r->gb_s[RECEIVED]);
        json_put_f64(row, "received_packed_gb_s", r->gb_s[RECEIVED_PACKED]);
        json_put_f64(row, "received_ratio", r->received_ratio);
        json_put_f64(row, "received_core_ratio", r->received_core_ratio);
        json_array_append_new(list, row);
    }
    json_object_set_new(o, "rows", list);
    json_put_u64(o, "wrong", wrong);
    json_print(o);
    json_decref(o);
}

static void show_table(const struct row *rows, size_t n, uint64_t wrong)
{
    printf("GB/s, and packed to stretches by the clock and by the time on a core\n");
    printf("reshard: %8s %7s | %9s %7s %5s %5s | %9s %7s %5s %5s\n", "piece", "raw", "sent",
           "packed", "ratio", "core", "received", "packed", "ratio", "core");
    for (size_t i = 0; i < n; i++) {
        const struct row *r = &rows[i];

        printf("         %8u %7.3f | %9.3f %7.3f %5.2f %5.2f | %9.3f %7.3f %5.2f %5.2f\n",
               r->piece_bytes, r->gb_s[RAW], r->gb_s[SENT], r->gb_s[SENT_PACKED], r->sent_ratio,
               r->sent_core_ratio, r->gb_s[RECEIVED], r->gb_s[RECEIVED_PACKED], r->received_ratio,
               r->received_core_ratio);
    }
    printf("pieces at the wrong place: %llu\n", (unsigned long long)wrong);
}

int bench_reshard(const struct bench_args *args)
{
    static struct row rows[] = {{.piece_bytes = 64},    {.piece_bytes = 256},
                                {.piece_bytes = 1024},  {.piece_bytes = 4096},
                                {.piece_bytes = 16384}, {.piece_bytes = 65536}};
    const size_t n = sizeof rows / sizeof rows[0];
    uint64_t wrong = 0;

    for (size_t i = 0; i < n; i++)
        if (!measure(args, &rows[i], &wrong)) {
            fprintf(stderr, "tern-bench: a pass of %u bytes a piece broke off\n",
                    rows[i].piece_bytes);
            return 2;
        }
    if (args->json)
        show_json(rows, n, wrong);
    else
        show_table(rows, n, wrong);
    return bench_count(wrong == 0, "every piece at its place") ? 0 : 1;
}
