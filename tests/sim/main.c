/* tern-sim: seeds in, violations out. Also replays its own shrunk histories and the tapes of a
 * daemon. */
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdlib.h>
#include <tern_version.h>
#include <time.h>

#include "bugrun.h"
#include "enough.h"
#include "rdma/run.h"
#include "replay.h"
#include "sim.h"

#define FAILING_MAX 64

struct options {
    uint64_t seeds, first, audit_every;
    const char *tape, *shrink_to, *bug;
    bool json, twice, verbose, keep_going, rdma;
};

struct totals {
    uint64_t histories, violations, failing[FAILING_MAX], nfailing, states;
    double seconds;
    uint64_t *seen; /* open addressing: distinct final hashes */
    uint64_t seen_mask;
};

static double cpu_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void count_state(struct totals *t, uint64_t hash)
{
    uint64_t at = hash & t->seen_mask;

    hash |= 1;
    while (t->seen[at] && t->seen[at] != hash)
        at = (at + 1) & t->seen_mask;
    if (!t->seen[at]) {
        t->seen[at] = hash;
        t->states++;
    }
}

static void report_failure(struct sim *w, struct history *h, const struct options *o)
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

static bool run_seed(struct sim *w, struct history *h, const struct options *o, struct totals *t,
                     uint64_t seed)
{
    uint64_t hash = 0, again = 0;
    bool ok;

    history_make(seed, h);
    ok = sim_run(w, h, &hash);
    if (ok && o->twice && (!sim_run(w, h, &again) || again != hash)) {
        ok = false;
        snprintf(w->what, sizeof w->what, "not_deterministic");
        snprintf(w->text, sizeof w->text, "hashes %016llx and %016llx", (unsigned long long)hash,
                 (unsigned long long)again);
    }
    t->histories++;
    if (ok) {
        count_state(t, hash);
        return true;
    }
    t->violations++;
    if (t->nfailing < FAILING_MAX)
        t->failing[t->nfailing++] = seed;
    report_failure(w, h, o);
    return false;
}

static const struct {
    const char *name;
    uint32_t least;
} mark_table[] = {
#define X(name, least) {#name, least},
    MARKS(X)
#undef X
};

static const char *const fault_name[] = {
#define X(name) #name,
    FAULTS(X)
#undef X
};

static uint32_t marks_missed(const struct sim *w, const struct totals *t, json_t *list)
{
    uint32_t missed = 0;

    for (uint32_t i = 0; i < MARK_COUNT; i++)
        if (mark_missed(w->marks[i], mark_table[i].least, t->histories)) {
            missed++;
            if (list)
                json_array_append_new(list, json_string(mark_table[i].name));
            else
                printf("mark missed: %s %llu\n", mark_table[i].name,
                       (unsigned long long)w->marks[i]);
        }
    return missed;
}

static int print_json(const struct sim *w, const struct totals *t, const struct options *o)
{
    json_t *root = json_object(), *seeds = json_array(), *faults = json_object(),
           *marks = json_object();
    json_t *missed = json_array();
    uint32_t n = marks_missed(w, t, missed);

    for (uint64_t i = 0; i < t->nfailing; i++)
        json_array_append_new(seeds, json_integer((json_int_t)t->failing[i]));
    for (uint32_t i = 0; i < FAULT_COUNT; i++)
        json_object_set_new(faults, fault_name[i], json_integer((json_int_t)w->faults[i]));
    for (uint32_t i = 0; i < MARK_COUNT; i++)
        json_object_set_new(marks, mark_table[i].name, json_integer((json_int_t)w->marks[i]));
    json_object_set_new(root, "first", json_integer((json_int_t)o->first));
    json_object_set_new(root, "histories", json_integer((json_int_t)t->histories));
    json_object_set_new(root, "events", json_integer((json_int_t)w->events));
    json_object_set_new(root, "states", json_integer((json_int_t)t->states));
    json_object_set_new(root, "violations", json_integer((json_int_t)t->violations));
    json_object_set_new(root, "failing_seeds", seeds);
    json_object_set_new(root, "histories_per_s",
                        json_real((double)t->histories / (t->seconds > 0 ? t->seconds : 1e-9)));
    json_object_set_new(root, "faults", faults);
    json_object_set_new(root, "marks", marks);
    json_object_set_new(root, "marks_missed", missed);
    json_dumpf(root, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(root);
    return t->violations || n ? 1 : 0;
}

static int run_seeds(const struct options *o)
{
    static struct sim w;
    static struct history h;
    struct totals t = {.seen_mask = 1023};
    double start;

    while (t.seen_mask < o->seeds * 2)
        t.seen_mask = t.seen_mask * 2 + 1;
    t.seen = calloc(t.seen_mask + 1, sizeof *t.seen);
    if (!t.seen) {
        perror("tern-sim");
        return 2;
    }
    sim_create(&w);
    w.verbose = o->verbose;
    w.audit_every = (uint32_t)o->audit_every;
    start = cpu_seconds();
    for (uint64_t i = 0; i < o->seeds; i++)
        if (!run_seed(&w, &h, o, &t, o->first + i) && !o->keep_going && t.violations >= 8)
            break;
    t.seconds = cpu_seconds() - start;
    free(t.seen);
    sim_destroy(&w);
    if (o->json)
        return print_json(&w, &t, o);
    printf("%llu histories from seed %llu, %llu events, %llu states, %llu violations, %.0f "
           "histories a second\n",
           (unsigned long long)t.histories, (unsigned long long)o->first,
           (unsigned long long)w.events, (unsigned long long)t.states,
           (unsigned long long)t.violations, (double)t.histories / (t.seconds + 1e-9));
    return marks_missed(&w, &t, NULL) || t.violations ? 1 : 0;
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

static void usage(void)
{
    puts("tern-sim - plays histories of two Tern cores under faults and checks every promise after "
         "every event\n"
         "\n"
         "  --seeds N      play N histories (default 1000)\n"
         "  --first SEED   the first seed (default 1); seed S is the same history everywhere\n"
         "  --json         one JSON object on standard output\n"
         "  --twice        play each history twice and compare the state hashes\n"
         "  --shrink DIR   write each failing history to DIR, shrunk\n"
         "  --tape FILE    replay a shrunk history, or a tape that a daemon recorded\n"
         "  --verbose      print every choice and what it did\n"
         "  --audit N      look into the cores' memory after each N-th step (default 256; 0: "
         "never)\n"
         "  --keep-going   do not stop after 8 failing seeds\n"
         "  --rdma         histories of the transfers alone, over modelled NICs and sockets; --bug "
         "N plants\n"
         "                 one of the seam's bugs\n"
         "  --version      print the version\n"
         "  --bug N|all    with a planted bug (only in tern-sim-bugs): the seeds it took to find "
         "it;\n"
         "                 --shrink DIR keeps a short history of each, --tape FILE replays one\n"
         "\n"
         "histories_per_s counts processor time of this process. Exit status: 0 no violation and "
         "no mark missed,\n1 if not, 2 a wrong command line or an unreadable file, 77 --rdma in a "
         "build without it.");
}

static bool tape_is_rdmas(const char *path)
{
    char line[sizeof RDMA_MAGIC] = "";
    FILE *f = fopen(path, "r");

    if (!f)
        return false;
    if (!fgets(line, sizeof line, f))
        line[0] = '\0';
    fclose(f);
    return strcmp(line, RDMA_MAGIC) == 0;
}

/* A mistyped number must not end in a run of nothing that passes. */
static bool number(const char *text, uint64_t least, uint64_t *ret)
{
    char *end;

    errno = 0;
    *ret = strtoull(text, &end, 0);
    return *text >= '0' && *text <= '9' && *end == '\0' && errno == 0 && *ret >= least;
}

static bool parse(int argc, char **argv, struct options *o)
{
    static const struct option longs[] = {{"seeds", 1, NULL, 'n'},   {"first", 1, NULL, 'f'},
                                          {"json", 0, NULL, 'j'},    {"twice", 0, NULL, '2'},
                                          {"shrink", 1, NULL, 's'},  {"tape", 1, NULL, 't'},
                                          {"verbose", 0, NULL, 'v'}, {"keep-going", 0, NULL, 'k'},
                                          {"bug", 1, NULL, 'b'},     {"rdma", 0, NULL, 'r'},
                                          {"audit", 1, NULL, 'a'},   {"help", 0, NULL, 'h'},
                                          {"version", 0, NULL, 'V'}, {NULL, 0, NULL, 0}};
    int c;

    while ((c = getopt_long(argc, argv, "hV", longs, NULL)) != -1)
        switch (c) {
        case 'n':
            if (!number(optarg, 1, &o->seeds))
                return false;
            break;
        case 'f':
            if (!number(optarg, 0, &o->first))
                return false;
            break;
        case 'a':
            if (!number(optarg, 0, &o->audit_every))
                return false;
            break;
        case 'j': o->json = true; break;
        case '2': o->twice = true; break;
        case 's': o->shrink_to = optarg; break;
        case 't': o->tape = optarg; break;
        case 'v': o->verbose = true; break;
        case 'k': o->keep_going = true; break;
        case 'b': o->bug = optarg; break;
        case 'r': o->rdma = true; break;
        case 'h': usage(); exit(0);
        case 'V': puts("tern-sim " TERN_VERSION); exit(0);
        default: return false;
        }
    return optind == argc;
}

int main(int argc, char **argv)
{
    struct options o = {.seeds = 1000, .first = 1};

    if (!parse(argc, argv, &o)) {
        fprintf(stderr, "tern-sim: try --help\n");
        return 2;
    }
    if (o.bug && !o.tape && !o.rdma)
        return bugs_run(o.bug, o.seeds, o.first, o.json, o.shrink_to);
    if (o.bug && !bug_plant(o.bug)) {
        fprintf(stderr, "tern-sim: no such bug in this build\n");
        return 2;
    }
    if (o.tape && tape_is_rdmas(o.tape))
        return rdma_tape(o.tape, o.verbose);
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
