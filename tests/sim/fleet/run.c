/* See run.h. */
#include "run.h"

#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "world.h"

#define HISTORY_S 60 /* of a busy processor; most take 10 ms */

struct fworld fw;

static const struct mark_row mark_table[] = {
#define X(name, weight, least) {#name, least},
    FLEET_KINDS(X)
#undef X
#define X(name, least) {#name, least},
        FLEET_MARKS(X)
#undef X
};
_Static_assert(FMARK_END <= MARKS_MAX, "the report counts each");

static bool running;

void fviolation(const char *what, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    history_broke(&fw.run, what, format, ap);
}

static void on_check(const char *text)
{
    if (running)
        fviolation("check", "%s", text);
}

/* For the audit, and the rig when a core breaks its contract. */
static void on_oracle(const char *text)
{
    if (running)
        fviolation("audit", "%s", text);
}

static void on_signal(int sig)
{
    if (!running) {
        signal(sig, SIG_DFL);
        raise(sig);
        return;
    }
    if (sig == SIGALRM)
        fviolation("hang", "a history takes longer than %u s", HISTORY_S);
    fviolation("crash", "signal %d inside a core", sig);
}

static bool play(const struct fhistory *h, uint64_t *ret_hash)
{
    void (*audit)(const char *) = oracle_fail_hook;
    static const int signals[] = {SIGSEGV, SIGBUS, SIGALRM};
    struct sigaction was[3];
    volatile bool ok = true;

    for (int i = 0; i < 3; i++)
        sigaction(signals[i], &(struct sigaction){.sa_handler = on_signal, .sa_flags = SA_NODEFER},
                  &was[i]);
    running = true;
    check_set_hook(on_check); /* a check that fails removes it */
    oracle_fail_hook = on_oracle;
    alarm(HISTORY_S);
    memset(fw.marks, 0, sizeof fw.marks);
    if (setjmp(fw.run.failed)) {
        ok = false;
    } else {
        fworld_begin(h);
        for (fw.run.at_choice = 0; fw.run.at_choice < h->n; fw.run.at_choice++) {
            FTRACE("choice %u: %s\n", fw.run.at_choice,
                   mark_table[h->choice[fw.run.at_choice].kind].name);
            fplay(&h->choice[fw.run.at_choice]);
        }
        fworld_end();
        *ret_hash = 0;
        for (uint32_t i = 0; i < FLEET; i++)
            *ret_hash = *ret_hash * 31 + core_hash(fw.d[i].rig->core);
    }
    alarm(0);
    running = false;
    rig_destroy_all();
    for (uint32_t i = 0; i < FLEET; i++)
        fw.d[i].rig = NULL;
    oracle_fail_hook = audit;
    for (int i = 0; i < 3; i++)
        sigaction(signals[i], &was[i], NULL);
    return ok;
}

/* --- shrinking --- */

static bool plays_again(void *h)
{
    uint64_t hash;

    return play(h, &hash);
}

static bool writes(const void *h, const char *path, const char *why)
{
    return fhistory_write(h, path, why);
}

static void keep(struct fhistory *h, const char *dir, const char *name, const char *why)
{
    history_keep(&(struct played){.h = h,
                                  .choice = h->choice,
                                  .n = &h->n,
                                  .size = sizeof h->choice[0],
                                  .plays = plays_again,
                                  .writes = writes,
                                  .run = &fw.run},
                 dir, name, why);
}

void fleet_begin(struct report *ret, uint64_t first, bool verbose)
{
    *ret = (struct report){.over = " of three daemons",
                           .first = first,
                           .mark_row = mark_table,
                           .marks = fw.marks,
                           .nmarks = FMARK_END};
    fw.run.verbose = verbose;
}

bool fleet_seed(struct report *r, uint64_t seed, bool twice, const char *shrink_to)
{
    static struct fhistory h;
    uint64_t events = fw.events, hash = 0, again = 0;
    char name[32];
    bool ok;

    r->seconds -= cpu_seconds();
    fhistory_make(seed, &h);
    fw.secret = 0;
    ok = play(&h, &hash);
    fw.secret = 1;
    if (ok && twice && (!play(&h, &again) || again != hash)) {
        ok = false;
        snprintf(fw.run.what, sizeof fw.run.what, "not_deterministic");
    }
    r->events += fw.events - events;
    r->seconds += cpu_seconds();
    report_history(r);
    if (ok)
        return true;
    report_failure(r, seed);
    fprintf(stderr, "seed %llu, fleet: %s: %s (at choice %u of %u)\n", (unsigned long long)seed,
            fw.run.what, fw.run.text, fw.run.at_choice, h.n);
    snprintf(name, sizeof name, "fleet-%llu", (unsigned long long)seed);
    if (shrink_to)
        keep(&h, shrink_to, name, NULL);
    return false;
}

bool fleet_plays(uint64_t seed, const char **ret_what)
{
    static struct fhistory h;
    uint64_t hash;

    fhistory_make(seed, &h);
    *ret_what = fw.run.what;
    return play(&h, &hash);
}

void fleet_keep(uint64_t seed, const char *dir, const char *name, const char *why)
{
    static struct fhistory h;
    uint64_t hash;

    fhistory_make(seed, &h);
    if (!play(&h, &hash))
        keep(&h, dir, name, why);
}

int fleet_tape(const char *path, bool verbose)
{
    static struct fhistory h;
    uint64_t hash;

    if (!fhistory_read(path, &h)) {
        fprintf(stderr, "tern-sim: %s is no history that this build can read\n", path);
        return 2;
    }
    fw.run.verbose = verbose;
    if (!play(&h, &hash)) {
        printf("%s: %s: %s (at choice %u of %u)\n", path, fw.run.what, fw.run.text,
               fw.run.at_choice, h.n);
        return 1;
    }
    printf("%s: %u choices, no violation, state %016llx\n", path, h.n, (unsigned long long)hash);
    return 0;
}
