/* tern-bench publish: from the store of tern_done_step to the answer of a scheduler that waits for
 * that step, beside an io_uring echo of as many bytes over the same kind of socket, alternating.
 * Also the cost of tern_done_step while nobody waits. Scheduler and rank are two connections, as in
 * an engine of several processes. */
#include <poll.h>
#include <stdio.h>

#include "bench.h"
#include "engine/daemon.h"
#include "engine/json.h"
#include "engine/proc.h"
#include "engine/profile.h"
#include "engine/stats.h"
#include "member.h"
#include "proto/frame.h"
#include "raw_echo.h"

#define PAGE_BYTES    4096
#define PAGES         64
#define SAMPLES_MAX   100000
#define UNHEARD       1000000 /* steps that nobody waits for */
#define REQUEST_BYTES (FRAME_HEADER_BYTES + 4)
#define REPLY_BYTES   FRAME_HEADER_BYTES

struct publish {
    char dir[64];
    struct daemon daemon;
    struct raw_echo raw;
    struct engine scheduler; /* only its connection: it opens no pool through struct engine */
    struct tern *rank;
    struct tern_pool *map;
    uint64_t step;
    struct series wait, echo;
    double unheard_ns;
};

static bool start_engine(struct publish *p)
{
    struct geometry g;
    struct tern *t = NULL;
    uint64_t pool;

    geometry_plain(&g, 64, PAGE_BYTES, PAGES);
    if (tern_connect(p->daemon.socket, MEMBER_CALL_MS, &t) != TERN_OK ||
        tern_connect(p->daemon.socket, MEMBER_CALL_MS, &p->rank) != TERN_OK)
        return member_ok(&p->scheduler, "connecting", TERN_DAEMON_LOST);
    p->scheduler.tern = t;
    return member_ok(&p->scheduler, "joining as scheduler",
                     tern_join(t, "publish", TERN_SCHEDULER, 0, 1, NULL, MEMBER_CALL_MS)) &&
           member_ok(&p->scheduler, "joining as rank",
                     tern_join(p->rank, "publish", TERN_WORKER, 0, 1, NULL, MEMBER_CALL_MS)) &&
           member_ok(&p->scheduler, "opening the pool",
                     tern_pool_open(t, &g.layout, MEMBER_CALL_MS, &pool, NULL)) &&
           member_ok(&p->scheduler, "mapping it",
                     tern_pool_map(p->rank, pool, MEMBER_CALL_MS, &p->map));
}

/* The wait reaches the daemon before the clock starts: a ping after it has been answered. */
static bool wait_once(struct publish *p)
{
    struct tern *t = p->scheduler.tern;
    struct pollfd fd = {.fd = tern_fd(t, NULL), .events = POLLIN};
    struct tern_answer a = {.err = TERN_BUSY};
    enum tern_err err;
    uint64_t start;

    p->step++;
    if (!member_ok(&p->scheduler, "waiting", tern_submit_wait_published(t, p->step, p->step)) ||
        !member_ok(&p->scheduler, "a ping", tern_ping(t, MEMBER_CALL_MS)))
        return false;
    start = clock_ns();
    err = tern_done_step(p->map, p->step);
    while (err == TERN_OK && (err = tern_poll(t, &a)) == TERN_BUSY)
        err = poll(&fd, 1, MEMBER_CALL_MS) == 1 ? TERN_OK : TERN_TIMED_OUT;
    series_add(&p->wait, (double)(clock_ns() - start) / 1e3);
    return member_ok(&p->scheduler, "the answer", err == TERN_OK ? a.err : err) &&
           a.cookie == p->step;
}

static bool measure_waits(struct publish *p, uint32_t rounds)
{
    for (uint32_t round = 0; round < rounds; round++) {
        for (uint32_t i = 0; i < 100; i++)
            if (!wait_once(p))
                return false;
        for (uint32_t i = 0; i < 100; i++) {
            uint64_t start = clock_ns();

            if (!raw_echo_ping(&p->raw))
                return false;
            series_add(&p->echo, (double)(clock_ns() - start) / 1e3);
        }
    }
    return true;
}

static bool measure_unheard(struct publish *p)
{
    uint64_t start = clock_ns();

    for (uint32_t i = 0; i < UNHEARD; i++)
        if (tern_done_step(p->map, ++p->step) != TERN_OK)
            return false;
    p->unheard_ns = (double)(clock_ns() - start) / UNHEARD;
    return true;
}

static bool measure(struct publish *p, bool quick)
{
    const struct daemon_options o = {.node = "publish",
                                     .memory_bytes = pool_bytes_for(PAGES, PAGE_BYTES) + (4u << 20),
                                     .page_bytes_min = PAGE_BYTES,
                                     .core = proc_core(0)};
    char why[SPAWN_WHY_BYTES] = "";

    if (!tempdir_make(p->dir, sizeof p->dir, "tern-bench") ||
        !daemon_start(&p->daemon, p->dir, &o, why)) {
        fprintf(stderr, "tern-bench: %s\n", why);
        return false;
    }
    return raw_echo_start(&p->raw, REQUEST_BYTES, REPLY_BYTES, proc_core(0)) && start_engine(p) &&
           proc_pin(proc_core(1)) && measure_waits(p, quick ? 3 : 100) && measure_unheard(p);
}

static int show(const struct bench_args *args, struct publish *p)
{
    double p99 = series_quantile(&p->wait, 0.99);
    const struct bench_figure figures[] = {
        {"publish_wait_us_p50", series_median(&p->wait), "told, p50", "us", NULL},
        {"publish_wait_us_p99", p99, "told, p99", "us", "at most 200 us"},
        {"raw_rtt_us_p50", series_median(&p->echo), "raw, p50", "us", NULL},
        {"raw_rtt_us_p99", series_quantile(&p->echo, 0.99), "raw, p99", "us", NULL},
        {"done_step_ns", p->unheard_ns, "nobody waits", "ns", NULL},
    };
    json_t *o = json_object();

    if (!args->json)
        printf("publish: from tern_done_step to the answer of who waits\n");
    bench_show(args, o, figures, sizeof figures / sizeof figures[0]);
    if (args->json)
        json_print(o);
    json_decref(o);
    return bench_limit(p99 <= 200, "publish_wait_us_p99 <= 200") ? 0 : 1;
}

int bench_publish(const struct bench_args *args)
{
    static struct publish p;
    int status = 2;

    p.daemon.pid = -1;
    p.raw = (struct raw_echo){.pid = -1, .fd = -1};
    series_init(&p.wait, SAMPLES_MAX);
    series_init(&p.echo, SAMPLES_MAX);
    if (measure(&p, args->quick))
        status = show(args, &p);
    else
        fprintf(stderr, "tern-bench publish: it could not be measured\n");
    tern_destroy(p.rank);
    tern_destroy(p.scheduler.tern);
    raw_echo_stop(&p.raw);
    daemon_stop(&p.daemon);
    tempdir_remove(p.dir);
    return status;
}
