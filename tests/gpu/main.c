/* tern-gpu: compares every kernel with its reference on a real GPU; then, if all are right,
 * measures each; and last checks whether the driver keeps the rules of its stand-in. It prints one
 * JSON object and needs only libc and the driver's library, so that it can be copied to a machine
 * that has nothing else. Status: 0; 77: no GPU; 1: a kernel is slower than required on an H200; 2:
 * the device failed; 3: bytes were wrong; 4: the driver has another rule. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gpu/exporter.h"
#include "gpu/measure.h"
#include "gpu/rules.h"

#define ROUNDS           200
#define ROUNDS_QUICK     20
#define CASE_BYTES       (8u << 20)
#define CASE_BYTES_QUICK (256u << 10)

static const char *name_of(const struct gpu *g)
{
    static char name[GPU_NAME_MAX];

    snprintf(name, sizeof name, "%s", g->name);
    for (char *c = name; *c; c++)
        if (*c == '"' || *c == '\\' || *c < ' ')
            *c = '?';
    return name;
}

/* Returns the number of wrong geometries. */
static int case_run(struct gpu *g, const struct case_row *row, bool quick, uint64_t seed)
{
    struct case_size size = {.bytes = quick ? CASE_BYTES_QUICK : CASE_BYTES};
    int rounds = quick ? ROUNDS_QUICK : ROUNDS, wrong = 0;
    struct prng p;

    prng_init(&p, seed);
    for (int round = 0; round < rounds; round++) {
        struct case_result r = {.ok = false};

        row->run(&g->ops, size, &p, &r);
        if (r.ok)
            continue;
        if (wrong++ == 0)
            fprintf(stderr, "tern-gpu: %s, seed %llu, round %d: %s\n", row->name,
                    (unsigned long long)seed, round, r.text);
    }
    return wrong;
}

static int cases_run(struct gpu *g, bool quick)
{
    int wrong = 0;

    printf(" \"cases\": [");
    for (size_t i = 0; i < case_count; i++) {
        int bad = case_run(g, &case_table[i], quick, i);

        printf("%s\n  {\"name\": \"%s\", \"geometries\": %d, \"wrong\": %d}", i ? "," : "",
               case_table[i].name, quick ? ROUNDS_QUICK : ROUNDS, bad);
        fflush(stdout);
        wrong += bad;
    }
    printf("],\n");
    return wrong;
}

static bool rows_print(struct gpu *g, bool quick)
{
    struct measure m;

    measure_kernels(g, quick, &m);
    printf(" \"copy_bytes\": %llu,\n \"rows\": [", (unsigned long long)m.bytes);
    for (size_t i = 0; i < m.n; i++) {
        const struct measure_row *r = &m.row[i];

        printf("%s\n  {\"name\": \"%s\", \"gb_s\": %.4g, \"copy_gb_s\": %.4g, \"ratio\": %.4g, "
               "\"least\": %.2f}",
               i ? "," : "", r->name, r->gb_s, r->copy_gb_s, r->ratio, r->least);
        if (r->ratio < r->least)
            fprintf(stderr,
                    "tern-gpu: %s has %.3f of a copy's bytes a second, and must have %.2f\n",
                    r->name, r->ratio, r->least);
    }
    printf("],\n");
    return measure_holds(&m);
}

/* Returns the number of refuted rules. The GPU must be closed: a refuted rule may have lost it. */
static int rules_print(struct exporter *exporter)
{
    struct rules_answer answers[RULES_NAMES] = {{.word = RULES_NOT_TRIED}};
    struct driver_why why;
    struct driver d;
    int refuted = 0, exported = exporter->pid > 0 ? exporter_end(exporter) : -1;
    bool opened = driver_open(&d, DRIVER_LIBRARY, &why) == DRIVER_OK;

    if (opened && d.init(0) == CUDA_SUCCESS)
        rules_ask(&d, exported, answers);
    printf(" \"rules\": [");
    for (int i = 0; i < RULES_NAMES; i++) {
        const struct rules_answer *r = &answers[i];

        printf("%s\n  {\"rule\": \"%s\", \"answer\": \"%s\", \"seen\": \"%s\"}", i ? "," : "",
               rules_text((enum rules_name)i), rules_word(r->word), r->seen ? r->seen : "");
        refuted += r->word == RULES_REFUTED;
    }
    printf("],\n");
    if (opened)
        driver_close(&d);
    if (exported >= 0)
        close(exported);
    return refuted;
}

int main(int argc, char **argv)
{
    bool quick = argc == 2 && strcmp(argv[1], "--quick") == 0, fast;
    struct exporter exporter = {0};
    struct driver_why why;
    struct gpu g;
    int wrong, refuted;

    if (argc > 2 || (argc == 2 && !quick)) {
        fprintf(stderr, "usage: tern-gpu [--quick]\n");
        return 2;
    }
    if (!exporter_begin(&exporter, DRIVER_LIBRARY))
        exporter.pid = 0;
    if (!gpu_open(&g, &why)) {
        printf("skipped: %s\n", why.text);
        return 77;
    }
    printf("{\"device\": \"%s\", \"compute\": \"%d.%d\", \"processors\": %d, \"driver\": %d,\n",
           name_of(&g), g.major, g.minor, g.processors, g.driver_version);
    wrong = cases_run(&g, quick);
    fast = wrong == 0 && rows_print(&g, quick); /* a wrong kernel may write anywhere */
    gpu_close(&g);
    refuted = rules_print(&exporter);
    printf(" \"wrong\": %d, \"refuted\": %d, \"within\": %s}\n", wrong, refuted,
           fast ? "true" : "false");
    return wrong ? 3 : refuted ? 4 : !fast;
}
