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

const bool rdma_built = true;

static struct rhistory kept;

bool rdma_seed(uint64_t seed, const char **ret_what)
{
    uint64_t hash;
    bool ok = rw_play(seed, NULL, &hash);

    *ret_what = rw.what;
    return ok;
}

void rdma_keep(const char *dir, const char *name, const char *why)
{
    char path[4096];
    uint32_t n = rw.happened.n;

    kept = rw.happened;
    if (!rhistory_shrink(&kept)) {
        fprintf(stderr, "  does not fail when it is played again\n");
        return;
    }
    snprintf(path, sizeof path, "%s/%s-%s.tape", dir, name, rw.what);
    if (rhistory_write(&kept, path, why ? why : rw.text))
        fprintf(stderr, "  shrunk from %u to %u choices and faults: %s (%s)\n", n, kept.n, path,
                rw.text);
    else
        perror(path);
}

static void tell(uint64_t seed)
{
    fprintf(stderr, "seed %llu: %s: %s (after %llu things, %.6f s)\n", (unsigned long long)seed,
            rw.what, rw.text, (unsigned long long)rw.events, (double)rw.now_ns * 1e-9);
}

/* The second time as its list of choices and faults says, which is what shrinking begins with. */
static bool run_seed(const struct rdma_options *o, uint64_t seed)
{
    uint64_t hash, again;
    char name[32];

    if (!rw_play(seed, NULL, &hash)) {
        tell(seed);
        snprintf(name, sizeof name, "rdma-%llu", (unsigned long long)seed);
        if (o->shrink_to)
            rdma_keep(o->shrink_to, name, NULL);
        return false;
    }
    if (!o->twice)
        return true;
    kept = rw.happened;
    if (rw_play(seed, &kept, &again) && again == hash)
        return true;
    snprintf(rw.what, sizeof rw.what, "not_deterministic");
    snprintf(rw.text, sizeof rw.text, "hashes %016llx and %016llx", (unsigned long long)hash,
             (unsigned long long)again);
    tell(seed);
    return false;
}

int rdma_tape(const char *path, bool verbose)
{
    uint64_t hash;

    if (!rhistory_read(path, &kept)) {
        fprintf(stderr, "tern-sim: %s is no history that this build can read\n", path);
        return 2;
    }
    rw.verbose = verbose;
    if (!rw_play(kept.seed, &kept, &hash)) {
        printf("%s: %s: %s (after %llu things, %.6f s)\n", path, rw.what, rw.text,
               (unsigned long long)rw.events, (double)rw.now_ns * 1e-9);
        return 1;
    }
    printf("%s: %u choices and faults, no violation, hash %016llx\n", path, kept.n,
           (unsigned long long)hash);
    return 0;
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
        json_object_set_new(faults, ritem_name(i), json_integer((json_int_t)rw.fault[i]));
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
