/* See bugrun.h. The figure of a bug is the median of its runs. */
#include "bugrun.h"

#include <stdlib.h>

#include "bugs/bugs.h"
#include "fleet/run.h"
#include "large/run.h"
#include "rdma/run.h"
#include "report.h"
#include "sim.h"

#ifndef TERN_BUGS
bool bug_plant(const char *which)
{
    (void)which;
    return false;
}

int bugs_run(const struct bug_search *how)
{
    (void)how;
    fprintf(stderr, "tern-sim: this build has no planted bugs; use tern-sim-bugs\n");
    return 2;
}
#else

unsigned planted_bug;

static bool bug_of_seam(unsigned bug)
{
    return BUG_IS_SEAM(bug);
}

static const char *bug_text(unsigned n)
{
    switch (n) {
#define X(number, name, what)                                                                      \
    case number:                                                                                   \
        return what;
        BUG_TABLE(X)
#undef X
    default: return NULL;
    }
}

bool bug_plant(const char *which)
{
    planted_bug = (unsigned)atoi(which);
    return bug_text(planted_bug) != NULL;
}

struct found {
    uint64_t took[BUG_RUNS_MAX]; /* sorted; 0: not found */
    uint64_t seed;
    char what[48];
};

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* Can a history with this configuration show the planted bug? Those that cannot are not played, and
 * count as histories that did not show it. Only bugs that take thousands of histories have a case
 * here. */
static bool can_show(const struct config *c)
{
    switch (planted_bug) {
    case BUG_SUPERSEDE_FORK: return c->nstate > 0 && c->supersede != SUPERSEDE_OFF;
    case BUG_ROLLBACK_STRIPPED: return c->records > 0;
    default: return !BUG_IS_OF_DISK(planted_bug) || c->disk != 0;
    }
}

static uint64_t seeds_until(struct sim *w, struct history *h, uint64_t first, uint64_t seeds,
                            const char **what)
{
    const struct large_needs needs = {.disk = planted_bug == BUG_REACH_COUNTED,
                                      .windows = planted_bug == BUG_UNHOLD_UNCOUNTED};
    uint64_t hash;

    for (uint64_t i = 0; i < seeds; i++) {
        if (bug_of_seam(planted_bug)) {
            if (!rdma_seed(first + i, what))
                return i + 1;
            continue;
        }
        if (BUG_IS_FLEET(planted_bug)) {
            if (!fleet_plays(first + i, what))
                return i + 1;
            continue;
        }
        if (BUG_IS_LARGE(planted_bug)) {
            if (!large_plays(first + i, needs, what))
                return i + 1;
            continue;
        }
        history_make(first + i, h);
        *what = w->what;
        if (can_show(&h->cfg) && !sim_run(w, h, &hash))
            return i + 1;
    }
    return 0;
}

static void bug_find(struct sim *w, struct history *h, unsigned bug, const struct bug_search *how,
                     struct found *ret)
{
    planted_bug = bug;
    ret->seed = 0;
    ret->what[0] = 0;
    for (uint64_t r = 0; r < how->runs; r++) {
        uint64_t from = how->first + r * 1000003u;
        const char *what = "";

        ret->took[r] = seeds_until(w, h, from, how->seeds, &what);
        if (ret->took[r] && !ret->seed) {
            ret->seed = from + ret->took[r] - 1;
            snprintf(ret->what, sizeof ret->what, "%s", what);
        }
    }
    qsort(ret->took, how->runs, sizeof ret->took[0], by_value);
    planted_bug = 0;
}

/* A short history that fails with the bug and passes without it. */
static void bug_keep(struct sim *w, struct history *h, unsigned bug, const struct found *f,
                     const char *dir)
{
    char path[4096];
    const char *what;
    uint64_t hash;

    planted_bug = bug;
    if (bug_of_seam(bug)) {
        snprintf(path, sizeof path, "bug-%u", bug);
        if (!rdma_seed(f->seed, &what))
            rdma_keep(dir, path, bug_text(bug));
        planted_bug = 0;
        return;
    }
    if (BUG_IS_FLEET(bug)) {
        snprintf(path, sizeof path, "bug-%u", bug);
        fleet_keep(f->seed, dir, path, bug_text(bug));
        planted_bug = 0;
        return;
    }
    if (BUG_IS_LARGE(bug)) {
        snprintf(path, sizeof path, "bug-%u", bug);
        large_keep(f->seed, dir, path, bug_text(bug));
        planted_bug = 0;
        return;
    }
    history_make(f->seed, h);
    if (!sim_run(w, h, &hash)) {
        history_shrink(w, h);
        snprintf(path, sizeof path, "%s/bug-%u-%s.tape", dir, bug, w->what);
        if (!history_write(h, path, bug_text(bug)))
            perror(path);
    }
    planted_bug = 0;
}

static json_t *found_json(unsigned bug, const struct found *f, uint64_t runs)
{
    json_t *o = json_object(), *all = json_array();

    for (uint64_t r = 0; r < runs; r++)
        json_array_append_new(all, json_integer((json_int_t)f->took[r]));
    json_put(o, "bug", bug);
    json_object_set_new(o, "text", json_string(bug_text(bug)));
    json_object_set_new(o, "found", json_boolean(f->took[0] != 0));
    json_put(o, "seeds_median", f->took[runs / 2]);
    json_object_set_new(o, "seeds", all);
    json_put(o, "failing_seed", f->seed);
    json_object_set_new(o, "violation", json_string(f->what));
    return o;
}

int bugs_run(const struct bug_search *how)
{
    static struct sim w;
    static struct history h;
    unsigned from = 1, to = BUG_END - 1;
    json_t *rows = json_array();
    int missed = 0;

    if (strcmp(how->which, "all") != 0)
        from = to = (unsigned)atoi(how->which);
    if (from < 1 || to >= BUG_END || (from == to && !bug_text(from))) {
        fprintf(stderr, "tern-sim: bugs are numbered 1 to %u\n", BUG_END - 1);
        return 2;
    }
    sim_create(&w);
    for (unsigned bug = from; bug <= to; bug++) {
        struct found f;

        if (!bug_text(bug))
            continue;
        bug_find(&w, &h, bug, how, &f);
        if (how->shrink_to && f.seed)
            bug_keep(&w, &h, bug, &f, how->shrink_to);
        missed += f.took[0] == 0; /* sorted: a run without a find comes first */
        json_array_append_new(rows, found_json(bug, &f, how->runs));
        if (!how->json)
            printf("%2u  %-46s %s median %llu seeds, worst %llu  (%s)\n", bug, bug_text(bug),
                   f.took[0] ? "found," : "MISSED,", (unsigned long long)f.took[how->runs / 2],
                   (unsigned long long)f.took[how->runs - 1], f.what);
    }
    sim_destroy(&w);
    if (how->json) {
        json_t *root = json_object();

        json_object_set_new(root, "bugs", rows);
        json_put(root, "missed", (uint64_t)missed);
        json_end(root);
    } else {
        json_decref(rows);
    }
    return missed ? 1 : 0;
}
#endif
