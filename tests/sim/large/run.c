/* See run.h. */
#include "run.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../work.h"
#include "base/check.h"
#include "core/arena/arena.h"
#include "oracle/oracle.h"
#include "world.h"

#define HISTORY_S   60     /* of processor time; most take 50 ms */
#define AUDIT_NODES 30000u /* larger cores are audited in one of so many histories: */
#define AUDIT_EVERY 8u

static const struct mark_row mark_table[] = {
#define X(name, weight, least) {#name, least},
    LARGE_KINDS(X)
#undef X
};

static bool running;

/* The core's own check of its visits is this history's rule, too. */
static void on_check(const char *text)
{
    if (running && lw.core->visits > STEP_VISITS_MAX)
        lviolation("step_visits", "a step visited %u records, and STEP_VISITS_MAX is %u: %s",
                   lw.core->visits, STEP_VISITS_MAX, text);
    if (running)
        lviolation("check", "%s", text);
}

static void on_audit(const char *text)
{
    if (running)
        lviolation("audit", "%s", text);
}

static void on_signal(int sig)
{
    if (!running) {
        signal(sig, SIG_DFL);
        raise(sig);
        return;
    }
    if (sig == SIGPROF)
        lviolation("hang", "a history takes longer than %u s", HISTORY_S);
    lviolation("crash", "signal %d inside the core", sig);
}

static bool play(const struct lhistory *h)
{
    void (*audit)(const char *) = oracle_fail_hook;
    static const int signals[] = {SIGSEGV, SIGBUS, SIGPROF};
    struct sigaction was[3];
    volatile bool ok = true; /* survives the longjmp */

    for (int i = 0; i < 3; i++)
        sigaction(signals[i], &(struct sigaction){.sa_handler = on_signal, .sa_flags = SA_NODEFER},
                  &was[i]);
    running = true;
    work_hook = lruns_on;
    check_set_hook(on_check); /* a check that fails removes it */
    oracle_fail_hook = on_audit;
    history_watch(HISTORY_S);
    memset(lw.marks, 0, sizeof lw.marks);
    if (setjmp(lw.run.failed)) {
        ok = false;
    } else {
        lworld_begin(h);
        for (uint32_t i = 0; i < h->n; i++) {
            lw.run.at_choice = i;
            if (lw.run.verbose)
                fprintf(stderr, "choice %u: %s\n", i, mark_table[h->choice[i].kind].name);
            lplay(&h->choice[i]);
            if (lw.run.verbose)
                fprintf(stderr, "  by now at most %llu visits, %llu basic blocks\n",
                        (unsigned long long)lw.most_visits, (unsigned long long)lw.most_work);
        }
        lw.run.at_choice = h->n;
        if (h->cfg.lim_nodes + h->cfg.pages < AUDIT_NODES || h->seed % AUDIT_EVERY == 0)
            oracle_audit(lw.core);
    }
    history_watch(0);
    running = false;
    oracle_fail_hook = audit;
    for (int i = 0; i < 3; i++)
        sigaction(signals[i], &was[i], NULL);
    return ok;
}

/* --- shrinking --- */

static bool plays_again(void *h)
{
    return play(h);
}

static bool writes(const void *h, const char *path, const char *why)
{
    return lhistory_write(h, path, why);
}

static void keep(struct lhistory *h, const char *dir, const char *name, const char *why)
{
    history_keep(&(struct played){.h = h,
                                  .choice = h->choice,
                                  .n = &h->n,
                                  .size = sizeof h->choice[0],
                                  .plays = plays_again,
                                  .writes = writes,
                                  .run = &lw.run},
                 dir, name, why);
}

void large_begin(struct large_report *ret, uint64_t first, bool verbose)
{
    *ret = (struct large_report){.r = {.over = " with large geometries",
                                       .first = first,
                                       .mark_row = mark_table,
                                       .marks = lw.marks,
                                       .nmarks = LARGE_KIND_COUNT}};
    lw.run.verbose = verbose;
}

static void count(struct large_report *r, uint64_t seed)
{
    if (lw.most_visits > r->most_visits) {
        r->most_visits = lw.most_visits;
        r->visits_seed = seed;
    }
    if (lw.most_work > r->most_work) {
        r->most_work = lw.most_work;
        r->work_seed = seed;
        r->work_event = lw.most_event;
    }
}

bool large_seed(struct large_report *r, uint64_t seed, bool twice, const char *shrink_to)
{
    static struct lhistory h;
    uint64_t events = lw.events, hash = 0;
    char name[32];
    bool ok;

    r->r.seconds -= cpu_seconds();
    lhistory_make(seed, &h);
    ok = play(&h);
    if (ok && twice) {
        hash = core_hash(lw.core);
        lw.secret = 1;
        if (!play(&h) || core_hash(lw.core) != hash) {
            ok = false;
            snprintf(lw.run.what, sizeof lw.run.what, "not_deterministic");
        }
        lw.secret = 0;
    }
    r->r.events += lw.events - events;
    r->r.seconds += cpu_seconds();
    count(r, seed);
    report_history(&r->r);
    if (ok)
        return true;
    report_failure(&r->r, seed);
    fprintf(stderr, "seed %llu, large: %s: %s (at choice %u of %u)\n", (unsigned long long)seed,
            lw.run.what, lw.run.text, lw.run.at_choice, h.n);
    snprintf(name, sizeof name, "large-%llu", (unsigned long long)seed);
    if (shrink_to)
        keep(&h, shrink_to, name, NULL);
    return false;
}

void large_print_most(const struct large_report *r)
{
    printf("at most %llu visits in a step (seed %llu)", (unsigned long long)r->most_visits,
           (unsigned long long)r->visits_seed);
    if (work_counted)
        printf(", %llu basic blocks beside what it named (seed %llu, %s)",
               (unsigned long long)r->most_work, (unsigned long long)r->work_seed, r->work_event);
    putchar('\n');
}

static bool has_windows(const struct lconfig *c)
{
    for (uint32_t g = 0; g < c->ngroups; g++)
        if (c->window[g] > 1) /* 1: RECURRENT */
            return true;
    return false;
}

bool large_plays(uint64_t seed, struct large_needs needs, const char **ret_what)
{
    static struct lhistory h;

    lhistory_make(seed, &h);
    *ret_what = lw.run.what;
    return (needs.disk && h.cfg.disk_chunks == 0) || (needs.windows && !has_windows(&h.cfg)) ||
           play(&h);
}

void large_keep(uint64_t seed, const char *dir, const char *name, const char *why)
{
    static struct lhistory h;

    lhistory_make(seed, &h);
    if (!play(&h))
        keep(&h, dir, name, why);
}

int large_tape(const char *path, bool verbose)
{
    static struct lhistory h;

    if (!lhistory_read(path, &h)) {
        fprintf(stderr, "tern-sim: %s is no history that this build can read\n", path);
        return 2;
    }
    lw.run.verbose = verbose;
    if (!play(&h)) {
        printf("%s: %s: %s (at choice %u of %u)\n", path, lw.run.what, lw.run.text,
               lw.run.at_choice, h.n);
        return 1;
    }
    printf("%s: %u choices, no violation, state %016llx\n", path, h.n,
           (unsigned long long)core_hash(lw.core));
    return 0;
}
