/* See run.h. The keys are those of the core's histories. */
#include "run.h"

#include <stdio.h>

#include "../report.h"
#include "world.h"

static const struct mark_row mark_table[] = {
#define X(name, least) {#name, least},
    RDMA_MARKS(X)
#undef X
};
_Static_assert(RM_COUNT <= MARKS_MAX, "the report counts each");

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

/* The second run goes by the list of choices and faults of the first, as shrinking does. */
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

int rdma_run(const struct rdma_options *o)
{
    const char *fault_name[RF_COUNT];
    struct report r = {.over = " over RDMA",
                       .first = o->first,
                       .seconds = -cpu_seconds(),
                       .fault_name = fault_name,
                       .mark_row = mark_table,
                       .faults = rw.fault,
                       .marks = rw.marks,
                       .nfaults = RF_COUNT,
                       .nmarks = RM_COUNT};

    for (uint32_t i = 0; i < RF_COUNT; i++)
        fault_name[i] = ritem_name(i);
    rw.verbose = o->verbose;
    for (uint64_t i = 0; i < o->seeds && (o->keep_going || r.violations < STOP_AFTER); i++) {
        bool ok = run_seed(o, o->first + i);

        report_history(&r);
        if (!ok)
            report_failure(&r, o->first + i);
    }
    r.seconds += cpu_seconds();
    r.events = rw.events_all;
    return report_print(&r, NULL, o->json);
}
