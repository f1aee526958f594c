/* tern-bench health (M-e): does the daemon still serve others while turn records are checked? 64
 * clients in a closed loop each put a record of 1.3 MiB of token ids and log-probabilities, roll it
 * back, and put it again. Meanwhile another client pings, and an operator queries the status. Runs
 * with the workers alternate with runs of a daemon whose owner thread does their work. The bodies
 * lie in the record memory from the beginning: writing them is not measured. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "engine/daemon.h"
#include "engine/json.h"
#include "engine/proc.h"
#include "engine/profile.h"
#include "engine/stats.h"
#include "member.h"

#define CLIENTS      64
#define BODY_BYTES   1363148u          /* 1.3 MiB */
#define BODY_TOKENS  (BODY_BYTES / 8u) /* an id and a log-probability each */
#define RECORD_BYTES (2u << 20)        /* of record memory for a client: whole pages */
#define PATTERN      0x3f000000u       /* a token id, and as a float 0.5 */
#define PING_MS      10
#define SAMPLES_MAX  100000
#define RUNS         5
#define RUN_MS       6000
#define QUICK_RUN_MS 600
#define IDLE_OVER_MS 2.0
#define P95_PART     0.25
#define BODIES_PART  0.95

enum mode { WITH_WORKERS, ON_OWNER, MODES };

struct client {
    struct side *side;
    struct tern *tern;
    tern_session session, turn;
    uint32_t number;
    pthread_t thread;
    bool ok;
};

struct side { /* a daemon with its clients */
    struct daemon daemon;
    struct tern *pinger, *admin;
    struct client client[CLIENTS];
    uint32_t clients; /* clients whose threads run */
    atomic_bool runs, stop;
    atomic_uint_fast64_t bodies;
    struct series ping_ms, status_ms, idle_ms;           /* of one run */
    struct series p50, p95, p99, status, idle, bodies_s; /* of all runs: their medians are judged */
};

struct health {
    const struct bench_args *args;
    char dir[64];
    struct side side[MODES];
    bool failed;
};

/* ---- a client ---- */

static enum tern_err one_body(struct client *c)
{
    struct tern_record record;
    struct tern_recorded told;
    enum tern_err err = tern_record_prepare(
        c->tern, c->turn,
        &(struct tern_new_record){.ntokens = BODY_TOKENS, .nlogprobs = BODY_TOKENS}, MEMBER_CALL_MS,
        &record);

    if (err == TERN_OK)
        err = tern_record_put(c->tern, c->turn, NULL, MEMBER_CALL_MS, &told);
    if (err == TERN_OK)
        err = tern_record_prepare(c->tern, c->turn, &(struct tern_new_record){.rollback = true},
                                  MEMBER_CALL_MS, &record);
    if (err == TERN_OK)
        err = tern_record_rollback(c->tern, c->turn, NULL, TERN_STEP_NONE, MEMBER_CALL_MS, &told);
    return err;
}

static void *client_main(void *arg)
{
    struct client *c = arg;
    enum tern_err err = TERN_OK;

    while (err == TERN_OK && !atomic_load(&c->side->stop)) {
        if (!atomic_load(&c->side->runs)) {
            sleep_ms(1);
            continue;
        }
        err = one_body(c);
        if (err == TERN_OK)
            atomic_fetch_add(&c->side->bodies, 1);
    }
    c->ok = err == TERN_OK;
    if (!c->ok)
        fprintf(stderr, "tern-bench: client %u: %s: %s\n", c->number, tern_strerror(err),
                tern_error_text(c->tern, NULL));
    return NULL;
}

static bool is_ok(struct tern *t, const char *what, enum tern_err err)
{
    if (err != TERN_OK)
        fprintf(stderr, "tern-bench: %s: %s: %s\n", what, tern_strerror(err),
                tern_error_text(t, NULL));
    return err == TERN_OK;
}

static bool client_join(struct side *s, uint32_t i)
{
    struct client *c = &s->client[i];

    c->side = s;
    c->number = i;
    return is_ok(NULL, "connecting", tern_connect(s->daemon.socket, MEMBER_CALL_MS, &c->tern)) &&
           is_ok(c->tern, "joining",
                 tern_join(c->tern, "health", i == 0 ? TERN_BOTH : TERN_WORKER, i, CLIENTS, NULL,
                           MEMBER_CALL_MS));
}

static bool client_ready(struct client *c, uint64_t pool)
{
    const struct tern_namespace ns = {.model = "health"};

    return is_ok(c->tern, "opening a session",
                 tern_session_open(c->tern, pool, &ns, NULL, MEMBER_CALL_MS, &c->session)) &&
           is_ok(c->tern, "beginning a turn",
                 tern_turn_begin(c->tern, c->session, MEMBER_CALL_MS, &c->turn));
}

/* Fills the record memory with pairs of a token id and a log-probability, so that a body is already
 * written in whichever pages it gets. */
static bool fill(struct client *c)
{
    struct tern_record all;
    uint32_t words[1024];
    bool ok;

    for (uint32_t i = 0; i < 1024; i++)
        words[i] = PATTERN;
    ok = is_ok(c->tern, "preparing all of the record memory",
               tern_record_prepare(
                   c->tern, c->turn,
                   &(struct tern_new_record){
                       .ntokens = 1,
                       .blobs = &(struct tern_blob){.name = "all",
                                                    .bytes = CLIENTS * (uint64_t)RECORD_BYTES -
                                                             (64u << 10)},
                       .nblobs = 1},
                   MEMBER_CALL_MS, &all));
    for (uint32_t s = 0; ok && s < all.blobs[0].at.nspans; s++)
        for (uint64_t at = 0; at < all.blobs[0].at.span[s].bytes; at += sizeof words[0])
            memcpy(all.blobs[0].at.span[s].at + at, words, sizeof words[0]);
    for (uint32_t s = 0; ok && s < all.tokens.nspans; s++)
        memcpy(all.tokens.span[s].at, words, all.tokens.span[s].bytes);
    /* Preparing a rollback drops the prepared record: its pages are freed with their content. */
    return ok &&
           is_ok(c->tern, "giving it back",
                 tern_record_prepare(c->tern, c->turn, &(struct tern_new_record){.rollback = true},
                                     MEMBER_CALL_MS, &all));
}

static bool side_start(struct side *s)
{
    struct geometry g;
    uint64_t pool = 0;
    bool ok =
        is_ok(NULL, "connecting", tern_connect(s->daemon.socket, MEMBER_CALL_MS, &s->pinger)) &&
        is_ok(NULL, "connecting to the admin socket",
              tern_connect(s->daemon.admin, MEMBER_CALL_MS, &s->admin));

    geometry_plain(&g, 64, 4096, 8);
    for (uint32_t i = 0; ok && i < CLIENTS; i++)
        ok = client_join(s, i);
    ok = ok && is_ok(s->client[0].tern, "opening a pool",
                     tern_pool_open(s->client[0].tern, &g.layout, MEMBER_CALL_MS, &pool, NULL));
    for (uint32_t i = 0; ok && i < CLIENTS; i++)
        ok = client_ready(&s->client[i], pool);
    ok = ok && fill(&s->client[0]);
    for (; ok && s->clients < CLIENTS; s->clients += ok)
        ok = pthread_create(&s->client[s->clients].thread, NULL, client_main,
                            &s->client[s->clients]) == 0;
    return ok;
}

static bool side_end(struct side *s)
{
    bool ok = true;

    atomic_store(&s->stop, true);
    for (uint32_t i = 0; i < s->clients; i++) {
        pthread_join(s->client[i].thread, NULL);
        ok = ok && s->client[i].ok;
    }
    for (uint32_t i = 0; i < CLIENTS; i++)
        tern_destroy(s->client[i].tern);
    tern_destroy(s->pinger);
    tern_destroy(s->admin);
    return ok;
}

/* ---- the other clients ---- */

static bool timed(struct series *to, struct tern *t, bool status)
{
    const char *json;
    uint64_t start = clock_ns();
    enum tern_err err = status ? tern_admin(t, "status", NULL, 0, MEMBER_CALL_MS, &json)
                               : tern_ping(t, MEMBER_CALL_MS);

    series_add(to, (double)(clock_ns() - start) / 1e6);
    return is_ok(t, status ? "a status" : "a ping", err);
}

static bool pings(struct side *s, struct series *to, uint32_t run_ms)
{
    uint64_t until = clock_ns() + run_ms * UINT64_C(1000000), rounds = 0;
    bool ok = true;

    series_clear(to);
    series_clear(&s->status_ms);
    while (ok && clock_ns() < until) {
        ok = timed(to, s->pinger, false);
        if (ok && rounds++ % 20 == 0)
            ok = timed(&s->status_ms, s->admin, true);
        sleep_ms(PING_MS);
    }
    return ok;
}

static bool run(struct side *s, uint32_t run_ms)
{
    uint64_t start, before;
    double seconds;
    bool ok = pings(s, &s->idle_ms, run_ms / 3);

    series_add(&s->idle, series_quantile(&s->idle_ms, 0.95));
    atomic_store(&s->runs, true);
    sleep_ms(run_ms / 10);
    before = atomic_load(&s->bodies);
    start = clock_ns();
    ok = ok && pings(s, &s->ping_ms, run_ms);
    seconds = (double)(clock_ns() - start) / 1e9;
    series_add(&s->bodies_s, (double)(atomic_load(&s->bodies) - before) / seconds);
    atomic_store(&s->runs, false);
    sleep_ms(run_ms / 10);
    series_add(&s->p50, series_quantile(&s->ping_ms, 0.5));
    series_add(&s->p95, series_quantile(&s->ping_ms, 0.95));
    series_add(&s->p99, series_quantile(&s->ping_ms, 0.99));
    series_add(&s->status, series_quantile(&s->status_ms, 0.95));
    return ok;
}

static bool measure(struct health *h)
{
    uint32_t runs = h->args->quick ? 1 : RUNS;
    char why[SPAWN_WHY_BYTES] = "";
    bool ok = tempdir_make(h->dir, sizeof h->dir, "tern-bench");

    for (int m = 0; ok && m < MODES; m++) {
        struct daemon_options o = {.node = m == ON_OWNER ? "owner" : "workers",
                                   .memory_bytes = 1u << 20,
                                   .record_bytes = CLIENTS * (uint64_t)RECORD_BYTES,
                                   .checks_on_owner = m == ON_OWNER,
                                   .regions = CLIENTS,
                                   .page_bytes_min = 4096,
                                   .core = -1};

        ok = daemon_start(&h->side[m].daemon, h->dir, &o, why);
        if (!ok)
            fprintf(stderr, "tern-bench: %s\n", why);
        ok = ok && side_start(&h->side[m]);
    }
    for (uint32_t i = 0; ok && i < runs * MODES; i++)
        ok = run(&h->side[i % MODES], h->args->quick ? QUICK_RUN_MS : RUN_MS);
    return ok;
}

static int show(struct health *h)
{
    struct side *w = &h->side[WITH_WORKERS], *o = &h->side[ON_OWNER];
    double p95 = series_median(&w->p95), owner95 = series_median(&o->p95),
           idle = series_median(&w->idle), bodies = series_median(&w->bodies_s),
           owner_bodies = series_median(&o->bodies_s);
    const struct bench_figure figures[] = {
        {"ping_ms_p50", series_median(&w->p50), "ping, p50", "ms", NULL},
        {"ping_ms_p95", p95, "ping, p95", "ms", "a quarter of the owner's; 2 ms over idle"},
        {"ping_ms_p99", series_median(&w->p99), "ping, p99", "ms", NULL},
        {"status_ms_p95", series_median(&w->status), "status, p95", "ms", NULL},
        {"bodies_per_s", bodies, "bodies", "a second", "at least 0.95 of the owner's"},
        {"owner_ping_ms_p50", series_median(&o->p50), "on the owner: ping, p50", "ms", NULL},
        {"owner_ping_ms_p95", owner95, "on the owner: ping, p95", "ms", NULL},
        {"owner_ping_ms_p99", series_median(&o->p99), "on the owner: ping, p99", "ms", NULL},
        {"owner_status_ms_p95", series_median(&o->status), NULL, NULL, NULL},
        {"owner_bodies_per_s", owner_bodies, "on the owner: bodies", "a second", NULL},
        {"idle_ping_ms_p95", idle, "idle: ping, p95", "ms", NULL},
        {"p95_ratio", p95 / owner95, NULL, NULL, NULL},
        {"bodies_ratio", bodies / owner_bodies, NULL, NULL, NULL},
    };
    json_t *json = json_object();
    bool ok;

    if (!h->args->json)
        printf("health: %u clients, bodies of %u B\n", CLIENTS, BODY_BYTES);
    bench_show(h->args, json, figures, sizeof figures / sizeof figures[0]);
    json_put_u64(json, "clients", CLIENTS);
    json_put_u64(json, "body_bytes", BODY_BYTES);
    if (h->args->json)
        json_print(json);
    json_decref(json);
    ok = bench_limit(p95 <= P95_PART * owner95, "ping_ms_p95 <= owner_ping_ms_p95 / 4");
    ok = bench_limit(p95 <= idle + IDLE_OVER_MS, "ping_ms_p95 <= idle_ping_ms_p95 + 2") && ok;
    ok = bench_limit(bodies >= BODIES_PART * owner_bodies,
                     "bodies_per_s >= 0.95 * owner_bodies_per_s") &&
         ok;
    ok = bench_count(bodies > 0 && owner_bodies > 0, "bodies are looked at") && ok;
    return ok ? 0 : 1;
}

static struct series *series_of(struct side *s, size_t i)
{
    struct series *all[] = {&s->ping_ms, &s->status_ms, &s->idle_ms, &s->p50,     &s->p95,
                            &s->p99,     &s->status,    &s->idle,    &s->bodies_s};

    return i < sizeof all / sizeof *all ? all[i] : NULL;
}

int bench_health(const struct bench_args *args)
{
    static struct health h;
    bool ok;
    int status = 2;

    h.args = args;
    for (int m = 0; m < MODES; m++) {
        h.side[m].daemon.pid = -1;
        for (size_t i = 0; series_of(&h.side[m], i); i++)
            series_init(series_of(&h.side[m], i), SAMPLES_MAX);
    }
    ok = measure(&h);
    for (int m = 0; m < MODES; m++)
        ok = side_end(&h.side[m]) && ok;
    if (ok)
        status = show(&h);
    for (int m = 0; m < MODES; m++) {
        daemon_stop(&h.side[m].daemon);
        for (size_t i = 0; series_of(&h.side[m], i); i++)
            series_finish(series_of(&h.side[m], i));
    }
    tempdir_remove(h.dir);
    return status;
}
