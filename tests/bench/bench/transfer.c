/* tern-bench transfer: Fetches of populated prefixes between two daemons, checksums on, beside one
 * plain TCP stream between equally large regions. For each page size a pair of daemons of its own;
 * Tern and raw alternate, and every page that Tern brought is compared outside the measured time. A
 * last pass has pages corrupted on the way: all must be found, none may be seen by the engine. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench.h"
#include "engine/admin.h"
#include "engine/bytes.h"
#include "engine/daemon.h"
#include "engine/json.h"
#include "engine/proc.h"
#include "engine/profile.h"
#include "engine/stats.h"
#include "member.h"
#include "raw_stream.h"

#define PAGE_TOKENS   64
#define SESSIONS      8
#define FETCHES       4 /* under way at a time */
#define REGION_BYTES  (256u << 20)
#define QUICK_BYTES   (32u << 20)
#define PAIRS         9 /* at least seven are asked for */
#define CORRUPT_PAGES 100
#define SENT_MAX      1.01 /* heads and checksums beside the pages */
#define PEER_UP_MS    10000

struct row {
    uint32_t page_bytes;
    double least_ratio;
    double gb_s, raw_gb_s, ratio;
    double sent; /* bytes on the sockets for each byte of a page */
};

struct transfer {
    const struct bench_args *args;
    uint32_t page_bytes, pages; /* of each session */
    char dir[64];
    struct daemon source, dest;
    pid_t filler; /* the engine at the source */
    int filler_fd;
    struct engine engine; /* at the destination */
    struct tern *admin;
    uint32_t *tokens; /* owned: of one session */
    uint64_t wrong;   /* bytes that were not as they must be, over all passes */
};

static enum tern_err begin(struct transfer *x, struct engine *e, uint32_t number,
                           struct engine_session *ret)
{
    block_tokens(1000 + number, 0, x->pages * PAGE_TOKENS, x->tokens);
    return engine_begin(ret, e, x->tokens, x->pages * PAGE_TOKENS);
}

/* ---- the engine at the source: fills its pages once and keeps them pinned ---- */

_Noreturn static void filler_main(struct transfer *x, int fd)
{
    struct engine e;
    bool ok = member_start(&e, x->source.socket, "source", PAGE_TOKENS, x->page_bytes,
                           SESSIONS * x->pages);
    char byte = 0;

    for (uint32_t i = 0; ok && i < SESSIONS; i++) {
        struct engine_session s;

        ok = member_ok(&e, "a Match at the source", begin(x, &e, i, &s)) &&
             member_ok(&e, "a commit at the source", engine_run(&s));
        engine_free(&s); /* it stays open, and pins its pages */
    }
    if (ok && proc_send(fd, &byte, 1))
        proc_recv(fd, &byte, 1);
    engine_close(&e);
    _exit(ok ? 0 : 1);
}

static bool start_filler(struct transfer *x)
{
    char byte;

    x->filler = proc_fork_linked(&x->filler_fd);
    if (x->filler == 0)
        filler_main(x, x->filler_fd);
    return x->filler > 0 && proc_recv(x->filler_fd, &byte, 1);
}

/* ---- the engine at the destination ---- */

static bool begin_sessions(struct transfer *x, struct engine_session *sessions)
{
    for (uint32_t i = 0; i < SESSIONS; i++) {
        enum tern_err err = begin(x, &x->engine, i, &sessions[i]);

        if (!member_ok(&x->engine, "a Match", err) || sessions[i].matched != 0)
            return false;
    }
    return true;
}

static bool fetch_all(struct transfer *x, struct engine_session *sessions)
{
    uint32_t submitted = 0, answered = 0;
    struct tern_answer a;

    for (; answered < SESSIONS; answered++) {
        for (; submitted < SESSIONS && submitted - answered < FETCHES; submitted++)
            if (!member_ok(&x->engine, "a Fetch",
                           tern_submit_fetch(x->engine.tern, sessions[submitted].id, "source", 0,
                                             submitted)))
                return false;
        if (!member_ok(&x->engine, "a Fetch", answer_wait(x->engine.tern, MEMBER_CALL_MS, &a)) ||
            !member_ok(&x->engine, "a Fetch", a.err) ||
            !member_ok(&x->engine, "pages", engine_take(&sessions[a.cookie], &a.results[0])))
            return false;
    }
    return true;
}

static bool end_sessions(struct transfer *x, struct engine_session *sessions)
{
    struct daemon_status status;

    for (uint32_t i = 0; i < SESSIONS; i++)
        if (!member_ok(&x->engine, "closing a session", engine_end(&sessions[i])))
            return false;
    return admin_empty(x->admin, x->engine.pool, 5000, &status) &&
           status.pages.total == status.pages.free;
}

/* All sessions fetched once, compared, and evicted again. */
static bool tern_pass(struct transfer *x, double *ret_gb_s)
{
    uint64_t bytes = (uint64_t)SESSIONS * x->pages * x->page_bytes, start;
    struct engine_session sessions[SESSIONS];

    if (!begin_sessions(x, sessions))
        return false;
    start = clock_ns();
    if (!fetch_all(x, sessions))
        return false;
    *ret_gb_s = (double)bytes / (double)(clock_ns() - start);
    for (uint32_t i = 0; i < SESSIONS; i++)
        x->wrong += engine_wrong(&sessions[i], sessions[i].ntokens);
    return end_sessions(x, sessions);
}

/* ---- two daemons and two engines ---- */

static bool start_daemons(struct transfer *x, uint32_t corrupt)
{
    char why[SPAWN_WHY_BYTES] = "";
    struct daemon_options o[2] = {{
        .node = "source",
        .memory_bytes = pool_bytes_for((uint64_t)SESSIONS * x->pages, x->page_bytes) + (2u << 20),
        .page_bytes_min = x->page_bytes,
        .token_blocks = 3u * SESSIONS * x->pages + 65536,
        .core = proc_core(0), /* a host of its own would have its own; raw_stream does likewise */
    }};

    o[1] = o[0];
    o[1].node = "dest";
    o[1].corrupt_pages = corrupt;
    o[1].core = proc_core(1);
    if (!tempdir_make(x->dir, sizeof x->dir, "tern-bench"))
        return false;
    if (daemon_start_pair(&x->source, &x->dest, x->dir, o, why))
        return true;
    fprintf(stderr, "tern-bench: %s\n", why);
    return false;
}

static bool set_up(struct transfer *x, uint32_t page_bytes, uint32_t corrupt)
{
    const struct bench_args *args = x->args;

    *x = (struct transfer){.args = args, .page_bytes = page_bytes, .filler = -1, .filler_fd = -1};
    x->source.pid = x->dest.pid = -1;
    x->pages = (args->quick ? QUICK_BYTES : REGION_BYTES) / SESSIONS / page_bytes;
    x->tokens = mem_need((size_t)x->pages * PAGE_TOKENS, sizeof *x->tokens);
    return start_daemons(x, corrupt) && start_filler(x) &&
           member_start(&x->engine, x->dest.socket, "dest", PAGE_TOKENS, page_bytes,
                        SESSIONS * x->pages) &&
           tern_connect(x->dest.admin, MEMBER_CALL_MS, &x->admin) == TERN_OK &&
           admin_wait_peer(x->admin, "source", PEER_UP_MS);
}

static void tear_down(struct transfer *x)
{
    engine_close(&x->engine);
    tern_destroy(x->admin);
    x->admin = NULL;
    if (x->filler_fd >= 0)
        close(x->filler_fd);
    proc_end(&x->filler);
    daemon_stop(&x->dest);
    daemon_stop(&x->source);
    if (x->dir[0])
        tempdir_remove(x->dir);
    free(x->tokens);
    x->tokens = NULL;
}

/* ---- measuring ---- */

/* The read size that is best in three passes each. */
static bool best_read(struct raw_stream *raw, size_t *ret)
{
    double best = 0, gb_s, median;
    struct series s;

    series_init(&s, 3);
    for (uint32_t i = 0; i < RAW_READ_SIZES; i++) {
        series_clear(&s);
        for (uint32_t k = 0; k < 3; k++) {
            if (!raw_stream_pass(raw, raw_read_sizes[i], &gb_s))
                return false;
            series_add(&s, gb_s);
        }
        median = series_median(&s);
        if (median > best) {
            best = median;
            *ret = raw_read_sizes[i];
        }
    }
    series_finish(&s);
    return true;
}

static bool measure_pairs(struct transfer *x, struct raw_stream *raw, struct row *row)
{
    uint32_t pairs = x->args->quick ? 1 : PAIRS;
    struct series tern_gb_s, raw_gb_s, ratio;
    size_t read_bytes = 0;
    double a = 0, b = 0;
    bool ok = best_read(raw, &read_bytes) && tern_pass(x, &a);

    series_init(&tern_gb_s, PAIRS);
    series_init(&raw_gb_s, PAIRS);
    series_init(&ratio, PAIRS);
    for (uint32_t i = 0; ok && i < pairs; i++) {
        ok = tern_pass(x, &a) && raw_stream_pass(raw, read_bytes, &b);
        series_add(&tern_gb_s, a);
        series_add(&raw_gb_s, b);
        series_add(&ratio, b > 0 ? a / b : 0);
    }
    row->gb_s = series_median(&tern_gb_s);
    row->raw_gb_s = series_median(&raw_gb_s);
    row->ratio = series_median(&ratio);
    series_finish(&tern_gb_s);
    series_finish(&raw_gb_s);
    series_finish(&ratio);
    return ok;
}

static bool measure_row(struct transfer *x, struct row *row, uint64_t *wrong)
{
    struct raw_stream raw = {.pid = -1, .fd = -1};
    struct daemon_status s = {0};
    bool ok = set_up(x, row->page_bytes, 0) &&
              raw_stream_start(&raw, row->page_bytes, SESSIONS * x->pages) &&
              measure_pairs(x, &raw, row) && admin_status(x->admin, 0, &s) &&
              s.transfers.payload_bytes_in > 0;

    if (ok)
        row->sent = (double)s.transfers.socket_bytes_in / (double)s.transfers.payload_bytes_in;
    *wrong += x->wrong;
    raw_stream_stop(&raw);
    tear_down(x);
    return ok;
}

/* Every corrupted page is found by its checksum and fetched again; the engine sees right bytes
 * alone. */
static bool measure_corrupt(struct transfer *x, uint64_t *ret_found, uint64_t *wrong)
{
    struct daemon_status s = {0};
    double gb_s;
    bool ok =
        set_up(x, 64 << 10, CORRUPT_PAGES) && tern_pass(x, &gb_s) && admin_status(x->admin, 0, &s);

    *ret_found = s.transfers.corrupt_detected;
    *wrong += x->wrong;
    tear_down(x);
    return ok;
}

static int show(const struct bench_args *args, const struct row *rows, size_t n, uint64_t found,
                uint64_t wrong)
{
    json_t *o = json_object(), *list = json_array();
    bool ok = true;

    for (size_t i = 0; i < n; i++) {
        json_t *row = json_object();

        json_put_u64(row, "page_bytes", rows[i].page_bytes);
        json_put_f64(row, "gb_s", rows[i].gb_s);
        json_put_f64(row, "raw_gb_s", rows[i].raw_gb_s);
        json_put_f64(row, "ratio", rows[i].ratio);
        json_put_f64(row, "sent_ratio", rows[i].sent);
        json_array_append_new(list, row);
    }
    json_object_set_new(o, "rows", list);
    json_put_u64(o, "corrupt_injected", CORRUPT_PAGES);
    json_put_u64(o, "corrupt_detected", found);
    json_put_u64(o, "wrong_bytes", wrong);
    if (args->json)
        json_print(o);
    else
        printf("transfer: %12s %10s %10s %8s   limit\n", "page bytes", "GB/s", "raw GB/s", "ratio");
    for (size_t i = 0; i < n; i++) {
        char limit[64];

        if (!args->json)
            printf("          %12u %10.3f %10.3f %8.3f   %.1f\n", rows[i].page_bytes, rows[i].gb_s,
                   rows[i].raw_gb_s, rows[i].ratio, rows[i].least_ratio);
        snprintf(limit, sizeof limit, "ratio >= %.1f at %u bytes", rows[i].least_ratio,
                 rows[i].page_bytes);
        ok = bench_limit(rows[i].ratio >= rows[i].least_ratio, limit) && ok;
        snprintf(limit, sizeof limit, "sent / payload <= %.2f at %u bytes", SENT_MAX,
                 rows[i].page_bytes);
        ok = bench_count(rows[i].sent >= 1 && rows[i].sent <= SENT_MAX, limit) && ok;
    }
    if (!args->json)
        printf("corrupted on the way: %u, found: %llu, wrong bytes seen by the engine: %llu\n",
               CORRUPT_PAGES, (unsigned long long)found, (unsigned long long)wrong);
    json_decref(o);
    ok = bench_count(found == CORRUPT_PAGES, "every corrupted page is found") && ok;
    return bench_count(wrong == 0, "no wrong byte is published") && ok ? 0 : 1;
}

int bench_transfer(const struct bench_args *args)
{
    struct row rows[] = {
        {.page_bytes = 16 << 10, .least_ratio = 0.8},
        {.page_bytes = 64 << 10, .least_ratio = 0.9},
        {.page_bytes = 256 << 10, .least_ratio = 0.9},
        {.page_bytes = 1 << 20, .least_ratio = 0.9},
    };
    static struct transfer x;
    uint64_t found = 0, wrong = 0;
    bool ok = true;

    x.args = args;
    for (size_t i = 0; ok && i < sizeof rows / sizeof rows[0]; i++)
        ok = measure_row(&x, &rows[i], &wrong);
    ok = ok && measure_corrupt(&x, &found, &wrong);
    if (ok)
        return show(args, rows, sizeof rows / sizeof rows[0], found, wrong);
    fprintf(stderr, "tern-bench transfer: it could not be measured\n");
    return 2;
}
