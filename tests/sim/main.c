/* tern-sim: takes seeds and reports violations. Also replays its own shrunk histories and the tapes
 * of a daemon. */
#include <stdlib.h>

#include "bugrun.h"
#include "fleet/run.h"
#include "large/run.h"
#include "options.h"
#include "rdma/run.h"
#include "replay.h"
#include "report.h"
#include "sim.h"

/* Distinct final hashes: open addressing. */
struct states {
    uint64_t *seen, mask;
};

static void count_state(struct states *t, struct report *r, uint64_t hash)
{
    uint64_t at = hash & t->mask;

    hash |= 1;
    while (t->seen[at] && t->seen[at] != hash)
        at = (at + 1) & t->mask;
    r->states += !t->seen[at];
    t->seen[at] = hash;
}

static void tell_failure(struct sim *w, struct history *h, const struct options *o)
{
    char path[4096];

    fprintf(stderr, "seed %llu: %s: %s (at choice %u of %u)\n", (unsigned long long)h->seed,
            w->what, w->text, w->at_choice, h->n);
    if (!o->shrink_to)
        return;
    history_shrink(w, h);
    snprintf(path, sizeof path, "%s/%s-%llu.tape", o->shrink_to, w->what,
             (unsigned long long)h->seed);
    if (history_write(h, path, w->text))
        fprintf(stderr, "  shrunk to %u choices: %s (%s)\n", h->n, path, w->text);
    else
        perror(path);
}

static void run_seed(struct sim *w, struct history *h, const struct options *o, struct report *r,
                     struct states *states, uint64_t seed)
{
    uint64_t hash = 0, again = 0;
    bool ok;

    history_make(seed, h);
    w->secret = 1;
    ok = sim_run(w, h, &hash);
    w->secret = seed % 2 ? 0 : seed; /* under 0 every lookup meets all records of its table */
    if (ok && o->twice && (!sim_run(w, h, &again) || again != hash)) {
        ok = false;
        snprintf(w->what, sizeof w->what, "not_deterministic");
        snprintf(w->text, sizeof w->text, "hashes %016llx and %016llx", (unsigned long long)hash,
                 (unsigned long long)again);
    }
    report_history(r);
    if (ok) {
        count_state(states, r, hash);
        return;
    }
    report_failure(r, seed);
    tell_failure(w, h, o);
}

static const struct mark_row mark_table[] = {
#define X(name, least) {#name, least},
    MARKS(X)
#undef X
};
_Static_assert(MARK_COUNT <= MARKS_MAX, "the report counts each");

static const char *const fault_name[] = {
#define X(name) #name,
    FAULTS(X)
#undef X
};

static int run_large(const struct options *o)
{
    static struct large_report large;

    large_begin(&large, o->first, o->verbose);
    for (uint64_t i = 0; i < o->seeds && (o->keep_going || large.r.violations < STOP_AFTER); i++)
        large_seed(&large, o->first + i, o->twice, o->shrink_to);
    if (!o->json)
        large_print_most(&large);
    return report_print(&large.r, NULL, o->json);
}

static int run_fleet(const struct options *o)
{
    struct report r;

    fleet_begin(&r, o->first, o->verbose);
    for (uint64_t i = 0; i < o->seeds && (o->keep_going || r.violations < STOP_AFTER); i++)
        fleet_seed(&r, o->first + i, o->twice, o->shrink_to);
    return report_print(&r, NULL, o->json);
}

#define LARGE_EVERY 8 /* each such seed has a history with a large geometry, too */

static int run_seeds(const struct options *o)
{
    static struct large_report large;
    static struct sim w;
    static struct history h;
    struct states states = {.mask = 1023};
    struct report r = {.over = "",
                       .first = o->first,
                       .seconds = -cpu_seconds(),
                       .fault_name = fault_name,
                       .mark_row = mark_table,
                       .faults = w.faults,
                       .marks = w.marks,
                       .nfaults = FAULT_COUNT,
                       .nmarks = MARK_COUNT};

    while (states.mask < o->seeds * 2)
        states.mask = states.mask * 2 + 1;
    states.seen = calloc(states.mask + 1, sizeof *states.seen);
    if (!states.seen) {
        perror("tern-sim");
        return 2;
    }
    sim_create(&w);
    w.verbose = o->verbose;
    w.audit_every = (uint32_t)o->audit_every;
    large_begin(&large, o->first, o->verbose);
    for (uint64_t i = 0;
         i < o->seeds && (o->keep_going || r.violations + large.r.violations < STOP_AFTER); i++) {
        run_seed(&w, &h, o, &r, &states, o->first + i);
        if ((o->first + i) % LARGE_EVERY == 0)
            large_seed(&large, o->first + i, o->twice, o->shrink_to);
    }
    r.seconds += cpu_seconds() - large.r.seconds;
    r.events = w.events;
    free(states.seen);
    sim_destroy(&w);
    return report_print(&r, large.r.histories ? &large.r : NULL, o->json);
}

static int run_history(const struct options *o)
{
    static struct sim w;
    static struct history h;
    uint64_t hash = 0;
    bool ok;

    if (!history_read(o->tape, &h)) {
        fprintf(stderr, "tern-sim: %s is no history that this build can read\n", o->tape);
        return 2;
    }
    sim_create(&w);
    w.verbose = o->verbose;
    w.audit_every = (uint32_t)o->audit_every;
    ok = sim_run(&w, &h, &hash);
    sim_destroy(&w);
    if (ok)
        printf("%s: %u choices, no violation, state %016llx\n", o->tape, h.n,
               (unsigned long long)hash);
    else
        printf("%s: %s: %s (at choice %u of %u)\n", o->tape, w.what, w.text, w.at_choice, h.n);
    return ok ? 0 : 1;
}

static bool tape_begins(const char *path, const char *magic)
{
    char line[64] = "";
    FILE *f = fopen(path, "r");

    if (!f)
        return false;
    if (!fgets(line, sizeof line, f))
        line[0] = '\0';
    fclose(f);
    line[strcspn(line, "\n")] = '\0';
    return strcmp(line, magic) == 0;
}

int main(int argc, char **argv)
{
    struct options o;

    options_read(argc, argv, &o);
    if (o.bug && !o.tape && !o.rdma && !o.large && !o.fleet)
        return bugs_run(&(struct bug_search){.which = o.bug,
                                             .seeds = o.seeds,
                                             .first = o.first,
                                             .runs = o.runs,
                                             .shrink_to = o.shrink_to,
                                             .json = o.json});
    if (o.bug && !bug_plant(o.bug)) {
        fprintf(stderr, "tern-sim: no such bug in this build\n");
        return 2;
    }
    if (o.tape && tape_begins(o.tape, RDMA_MAGIC))
        return rdma_tape(o.tape, o.verbose);
    if (o.tape && tape_begins(o.tape, LARGE_MAGIC))
        return large_tape(o.tape, o.verbose);
    if (o.tape && tape_begins(o.tape, FLEET_MAGIC))
        return fleet_tape(o.tape, o.verbose);
    if (o.fleet)
        return run_fleet(&o);
    if (o.large)
        return run_large(&o);
    if (o.rdma)
        return rdma_run(&(struct rdma_options){.seeds = o.seeds,
                                               .first = o.first,
                                               .shrink_to = o.shrink_to,
                                               .json = o.json,
                                               .twice = o.twice,
                                               .verbose = o.verbose,
                                               .keep_going = o.keep_going});
    if (o.tape)
        return tape_is_daemons(o.tape) ? tape_replay(o.tape, o.json) : run_history(&o);
    return run_seeds(&o);
}
