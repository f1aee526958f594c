/* See run.h. The same keys as the core's histories have. */
#include "run.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../enough.h"
#include "world.h"

#define FAILING_MAX 64
#define STOP_AFTER  8 /* violations */

struct totals {
    uint64_t violations, nfailing, failing[FAILING_MAX];
    double seconds;
};

static const struct {
    const char *name;
    uint32_t least;
} mark_table[] = {
#define X(name, least) {#name, least},
    RDMA_MARKS(X)
#undef X
};

static const char *const fault_name[] = {
#define X(name) #name,
    FAULT_NAMES(X)
#undef X
};

const bool rdma_built = true;

bool rdma_seed(uint64_t seed, const char **ret_what)
{
    uint64_t hash;
    bool ok = rw_seed(seed, &hash);

    *ret_what = rw.what;
    return ok;
}

static bool run_seed(const struct rdma_options *o, uint64_t seed)
{
    uint64_t hash, again;
    bool ok = rw_seed(seed, &hash);

    if (ok && o->twice && (!rw_seed(seed, &again) || again != hash)) {
        ok = false;
        snprintf(rw.what, sizeof rw.what, "not_deterministic");
        snprintf(rw.text, sizeof rw.text, "hashes %016llx and %016llx", (unsigned long long)hash,
                 (unsigned long long)again);
    }
    if (!ok)
        fprintf(stderr, "seed %llu: %s: %s (after %llu things, %.6f s)\n", (unsigned long long)seed,
                rw.what, rw.text, (unsigned long long)rw.events, (double)rw.now_ns * 1e-9);
    return ok;
}

static bool missed(uint32_t i)
{
    return mark_missed(rw.marks[i], mark_table[i].least, rw.histories);
}

static void print_json(const struct rdma_options *o, const struct totals *t)
{
    json_t *root = json_object(), *seeds = json_array(), *faults = json_object(),
           *marks = json_object(), *list = json_array();

    for (uint64_t i = 0; i < t->nfailing; i++)
        json_array_append_new(seeds, json_integer((json_int_t)t->failing[i]));
    for (uint32_t i = 0; i < RF_COUNT; i++)
        json_object_set_new(faults, fault_name[i], json_integer((json_int_t)rw.fault[i]));
    for (uint32_t i = 0; i < RM_COUNT; i++) {
        json_object_set_new(marks, mark_table[i].name, json_integer((json_int_t)rw.marks[i]));
        if (missed(i))
            json_array_append_new(list, json_string(mark_table[i].name));
    }
    json_object_set_new(root, "first", json_integer((json_int_t)o->first));
    json_object_set_new(root, "histories", json_integer((json_int_t)rw.histories));
    json_object_set_new(root, "events", json_integer((json_int_t)rw.events_all));
    json_object_set_new(root, "violations", json_integer((json_int_t)t->violations));
    json_object_set_new(root, "failing_seeds", seeds);
    json_object_set_new(root, "histories_per_s",
                        json_real((double)rw.histories / (t->seconds > 0 ? t->seconds : 1e-9)));
    json_object_set_new(root, "faults", faults);
    json_object_set_new(root, "marks", marks);
    json_object_set_new(root, "marks_missed", list);
    json_dumpf(root, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(root);
}

static double cpu_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int rdma_run(const struct rdma_options *o)
{
    struct totals t = {0};
    double start = cpu_seconds();
    bool any_missed = false;

    rw.verbose = o->verbose;
    for (uint64_t i = 0; i < o->seeds && (o->keep_going || t.violations < STOP_AFTER); i++) {
        if (run_seed(o, o->first + i))
            continue;
        t.violations++;
        if (t.nfailing < FAILING_MAX)
            t.failing[t.nfailing++] = o->first + i;
    }
    t.seconds = cpu_seconds() - start;
    for (uint32_t i = 0; i < RM_COUNT; i++) {
        any_missed = any_missed || missed(i);
        if (missed(i) && !o->json)
            printf("mark missed: %s %llu\n", mark_table[i].name, (unsigned long long)rw.marks[i]);
    }
    if (o->json)
        print_json(o, &t);
    else
        printf("%llu histories over RDMA from seed %llu, %llu events, %llu violations, %.0f "
               "histories a second\n",
               (unsigned long long)rw.histories, (unsigned long long)o->first,
               (unsigned long long)rw.events_all, (unsigned long long)t.violations,
               (double)rw.histories / (t.seconds + 1e-9));
    return t.violations || any_missed ? 1 : 0;
}
