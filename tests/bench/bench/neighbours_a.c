/* Tenant A of `tern-bench neighbours`: see neighbours.h. A's process asks A_PER_S times a second,
 * over its share or within it, until it receives another order. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "bench.h"
#include "engine/proc.h"
#include "neighbours_tables.h"

#define SECOND_NS UINT64_C(1000000000)
#define LATE_NS   UINT64_C(100000000) /* requests later than that are skipped */
#define FILL_NS   UINT64_C(30000000000)
#define SETTLED   32 /* requests at its rate, before B begins; within its share all succeed */
#define SETTLE_MS 1

struct a_report {
    struct a_tally tally;
    uint32_t ready;
};

bool a_join(struct tenant_a *a, uint32_t pages)
{
    return member_start(&a->engine, a->hosts->here.socket, "a-here", NEIGHBOUR_PAGE_TOKENS,
                        NEIGHBOUR_PAGE_BYTES, pages);
}

enum a_answer a_answer_of(const struct tenant_a *a, struct tern *t, enum tern_err err)
{
    if (err == TERN_OK)
        return A_DONE;
    if ((err == TERN_BUSY || err == TERN_QUOTA) && !a->table->costs &&
        (!a->table->says || strstr(tern_error_text(t, NULL), a->table->says)))
        return A_REFUSED;
    fprintf(stderr, "tern-bench: tenant A, %s: %s: %s\n", a->table->name, tern_strerror(err),
            tern_error_text(t, NULL));
    return A_FAILED;
}

static enum a_answer ask(struct tenant_a *a, bool over)
{
    enum a_answer answer = over ? a->table->over(a) : a->table->within(a);

    a->tally.requests++;
    a->tally.refused += answer == A_REFUSED;
    a->tally.failed += answer == A_FAILED;
    return answer;
}

/* Fills the table, then lets the daemon recover from the burst: B should see an A that asks at its
 * rate. */
static bool fill(struct tenant_a *a)
{
    uint64_t until = clock_ns() + FILL_NS;
    enum a_answer answer;

    do
        answer = ask(a, true);
    while (answer == A_DONE && clock_ns() < until);
    for (uint32_t i = 0; i < SETTLED && answer == A_REFUSED; i++, sleep_ms(SETTLE_MS))
        if (ask(a, true) == A_FAILED)
            return false;
    return answer == A_REFUSED;
}

/* A costly request is never refused: there is nothing to fill, or to wait for. */
static bool prepare(struct tenant_a *a, bool over)
{
    return (!a->table->prepare || a->table->prepare(a, over)) && ask(a, over) == A_DONE;
}

/* Releases what A holds, and waits until its requests within the share succeed. */
static bool settle(struct tenant_a *a)
{
    uint64_t until = clock_ns() + FILL_NS;
    uint32_t done = 0;

    if (!a->table->release(a))
        return false;
    for (; done < SETTLED && clock_ns() < until; sleep_ms(SETTLE_MS)) {
        enum a_answer answer = ask(a, false);

        if (answer == A_FAILED)
            return false;
        done = answer == A_DONE ? done + 1 : 0;
    }
    return done == SETTLED;
}

/* Returns true if an order arrives before `due`. */
static bool told(int fd, uint64_t due)
{
    uint64_t now = clock_ns(), wait = now < due ? due - now : 0;
    struct timespec t = {.tv_sec = (time_t)(wait / 1000000000),
                         .tv_nsec = (long)(wait % 1000000000)};
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return ppoll(&p, 1, &t, NULL) > 0;
}

static void go_on(struct tenant_a *a, int fd, bool over)
{
    uint64_t start = clock_ns(), due = start;

    /* Refusals while it filled the table count, too. */
    a->tally = (struct a_tally){.refused = over ? a->tally.refused : 0};
    while (!told(fd, due)) {
        uint64_t now = clock_ns();

        ask(a, over);
        due += SECOND_NS / a_per_s(a->table);
        if (now > due + LATE_NS)
            due = now;
    }
    a->tally.ns = clock_ns() - start;
}

static _Noreturn void a_main(struct tenant_a *a, int fd)
{
    struct a_report report = {0};
    uint8_t over;

    prctl(PR_SET_TIMERSLACK, 1); /* so that pauses have their intended length */
    report.ready = a->table->open(a);
    while (proc_recv(fd, &over, 1)) {
        struct a_tally before = a->tally;

        a->tally = (struct a_tally){0};
        report.ready = report.ready && (a->table->costs ? prepare(a, over)
                                        : over          ? fill(a)
                                                        : settle(a));
        report.tally = before;
        if (!proc_send(fd, &report, sizeof report) || !report.ready)
            break;
        go_on(a, fd, over);
    }
    _exit(0);
}

pid_t a_start(const struct hosts *h, const struct a_table *table, int *ret_fd)
{
    pid_t pid = proc_fork_linked(ret_fd);
    static struct tenant_a a;

    if (pid == 0) {
        a = (struct tenant_a){.table = table, .hosts = h};
        a_main(&a, *ret_fd);
    }
    return pid;
}

bool a_turn(int fd, bool over, struct a_tally *ret)
{
    struct a_report report;
    uint8_t order = over;

    if (!proc_send(fd, &order, 1) || !proc_recv(fd, &report, sizeof report))
        return false;
    *ret = report.tally;
    return report.ready;
}
