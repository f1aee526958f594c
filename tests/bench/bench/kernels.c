/* Kernels on a GPU: the measurement of tests/gpu/measure.h as a table or JSON. */
#include <stdio.h>

#include "bench/bench.h"
#include "engine/json.h"
#include "gpu/measure.h"

static json_t *row_json(const struct measure_row *r)
{
    json_t *o = json_object();

    json_object_set_new(o, "name", json_string(r->name));
    json_put_f64(o, "gb_s", r->gb_s);
    json_put_f64(o, "copy_gb_s", r->copy_gb_s);
    json_put_f64(o, "ratio", r->ratio);
    return o;
}

static void show(const struct measure *m, const struct gpu *g)
{
    printf("kernels: on %s, beside copies of %.0f MiB from device to device\n", g->name,
           (double)m->bytes / (1 << 20));
    for (size_t i = 0; i < m->n; i++)
        printf("  %-26s %12.1f GB/s       copy %.1f, ratio %.3f%s\n", m->row[i].name,
               m->row[i].gb_s, m->row[i].copy_gb_s, m->row[i].ratio,
               m->row[i].least > 0 ? "" : ", no limit");
}

int bench_kernels(const struct bench_args *args)
{
    json_t *o, *rows;
    struct driver_why why;
    struct measure m;
    struct gpu g;
    bool fast = true;

    if (!gpu_open(&g, &why)) {
        fprintf(stderr, "tern-bench kernels: it could not be measured: %s\n", why.text);
        return 2;
    }
    measure_kernels(&g, args->quick, &m);
    o = json_object();
    rows = json_array();
    for (size_t i = 0; i < m.n; i++) {
        json_array_append_new(rows, row_json(&m.row[i]));
        fast = bench_limit(m.row[i].ratio >= m.row[i].least, m.row[i].name) && fast;
    }
    json_object_set_new(o, "device", json_string(g.name));
    json_object_set_new(o, "rows", rows);
    if (args->json)
        json_print(o);
    else
        show(&m, &g);
    json_decref(o);
    gpu_close(&g);
    return fast ? 0 : 1;
}
