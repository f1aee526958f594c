/* tern-bench transfer: Fetches of populated prefixes between two daemons, checksums on, beside one
 * plain TCP stream between equally large regions. For each page size a pair of daemons of its own;
 * Tern and raw alternate, and every page that Tern brought is compared outside the measured time. A
 * last pass has pages corrupted on the way: all must be found, none may be seen by the engine. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench.h"
#include "engine/admin.h"
#include "engine/bytes.h"
#include "engine/daemon.h"
#include "engine/json.h"
#include "engine/proc.h"
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
#define PEER_UP_MS    10000

struct row {
    uint32_t page_bytes;
    double least_ratio;
    double gb_s, raw_gb_s, ratio;
};

struct transfer {
    const struct bench_args *args;
    uint32_t page_bytes, pages; /* of each session */
    char dir[64];
    struct daemon source, dest;
    pid_t filler; /* the engine at the source */
    int filler_fd;
    struct member member; /* the engine at the destination */
    struct tern *admin;
    uint32_t *tokens; /* owned: of one session */
    uint64_t *prefix; /* owned: [session * pages + page] */
    uint32_t *table;  /* owned: index, likewise */
    uint64_t wrong;   /* bytes that were not as they must be, over all passes */
};

static struct tern_tokens session_tokens(const struct transfer *x, uint32_t session)
{
    block_tokens(1000 + session, 0, x->pages * PAGE_TOKENS, x->tokens);
    return (struct tern_tokens){.v = x->tokens, .n = x->pages * PAGE_TOKENS};
}

static bool allocate(struct transfer *x)
{
    size_t all = (size_t)SESSIONS * x->pages;

    x->tokens = malloc((size_t)x->pages * PAGE_TOKENS * sizeof *x->tokens);
    x->prefix = malloc(all * sizeof *x->prefix);
    x->table = malloc(all * sizeof *x->table);
    if (!x->tokens || !x->prefix || !x->table)
        return false;
    for (uint32_t s = 0; s < SESSIONS; s++) {
        uint64_t h = content_root(SPAWN_TENANT, "bench", "", "kv");

        session_tokens(x, s);
        for (uint32_t i = 0; i < x->pages; i++) {
            h = content_chain(h, x->tokens + i * PAGE_TOKENS, PAGE_TOKENS);
            x->prefix[s * x->pages + i] = h;
        }
    }
    return true;
}

static bool take_runs(const struct transfer *x, uint32_t session, const struct tern_result *r)
{
    uint32_t got = 0;

    for (uint32_t i = 0; i < r->nruns; i++) {
        for (uint32_t k = 0; k < r->runs[i].n && r->runs[i].first + k < x->pages; k++, got++)
            x->table[session * x->pages + r->runs[i].first + k] = r->runs[i].pages[k].index;
    }
    return got == x->pages;
}

/* ---- the engine at the source: fills its pages once and keeps them pinned ---- */

static bool fill_session(struct transfer *x, struct member *m, uint32_t session)
{
    struct tern_tokens tokens = session_tokens(x, session);
    uint32_t depth = tokens.n;
    struct tern_result r;
    tern_session s;
    enum tern_err err;

    if (!member_open(m, &s))
        return false;
    err = tern_match(m->tern, s, &tokens, 0, MEMBER_CALL_MS, &r);
    if (err != TERN_OK)
        return member_fails(m, "a Match at the source", err);
    if (!member_do(
            m,
            (struct tern_op){.kind = TERN_EXTEND, .session = s, .length = depth, .written = depth},
            &r) ||
        !take_runs(x, session, &r))
        return false;
    for (uint32_t i = session * x->pages; i < (session + 1) * x->pages; i++)
        page_fill(tern_pool_base(m->map) + (uint64_t)x->table[i] * x->page_bytes, x->page_bytes,
                  x->prefix[i]);
    return member_do(m, (struct tern_op){.kind = TERN_COMMIT, .session = s, .length = depth}, NULL);
}

_Noreturn static void filler_main(struct transfer *x, int fd)
{
    struct member m;
    bool ok = member_start(&m, x->source.socket, "source", PAGE_TOKENS, x->page_bytes,
                           SESSIONS * x->pages);
    char byte = 0;

    for (uint32_t s = 0; ok && s < SESSIONS; s++)
        ok = fill_session(x, &m, s);
    if (ok && proc_send(fd, &byte, 1))
        proc_recv(fd, &byte, 1);
    member_finish(&m);
    _exit(ok ? 0 : 1);
}

static bool start_filler(struct transfer *x)
{
    int pair[2];
    char byte;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return false;
    x->filler = proc_fork();
    if (x->filler == 0) {
        close(pair[0]);
        filler_main(x, pair[1]);
    }
    close(pair[1]);
    x->filler_fd = pair[0];
    return x->filler > 0 && proc_recv(pair[0], &byte, 1);
}

/* ---- the engine at the destination ---- */

static bool begin_sessions(struct transfer *x, tern_session *sessions)
{
    struct tern_result r;

    for (uint32_t s = 0; s < SESSIONS; s++) {
        struct tern_tokens tokens = session_tokens(x, s);
        enum tern_err err;

        if (!member_open(&x->member, &sessions[s]))
            return false;
        err = tern_match(x->member.tern, sessions[s], &tokens, 0, MEMBER_CALL_MS, &r);
        if (err != TERN_OK || r.matched != 0)
            return member_fails(&x->member, "a Match that must find nothing", err);
    }
    return true;
}

static bool next_answer(struct transfer *x, struct tern_answer *ret)
{
    enum tern_err err;

    while ((err = tern_poll(x->member.tern, ret)) == TERN_BUSY) {
        struct pollfd fd = {.fd = tern_fd(x->member.tern), .events = POLLIN};

        if (tern_wants_write(x->member.tern))
            fd.events |= POLLOUT;
        poll(&fd, 1, -1);
    }
    if (err == TERN_OK && ret->err == TERN_OK)
        return true;
    return member_fails(&x->member, "a Fetch", err != TERN_OK ? err : ret->err);
}

static bool fetch_all(struct transfer *x, const tern_session *sessions)
{
    uint32_t submitted = 0, answered = 0;
    struct tern_answer a;

    while (answered < SESSIONS) {
        for (; submitted < SESSIONS && submitted - answered < FETCHES; submitted++) {
            enum tern_err err =
                tern_submit_fetch(x->member.tern, sessions[submitted], "source", 0, submitted);

            if (err != TERN_OK)
                return member_fails(&x->member, "a Fetch", err);
        }
        if (!next_answer(x, &a) || !take_runs(x, (uint32_t)a.cookie, &a.results[0]))
            return false;
        answered++;
    }
    return true;
}

static bool end_sessions(struct transfer *x, const tern_session *sessions)
{
    struct daemon_status status;

    for (uint32_t s = 0; s < SESSIONS; s++) {
        if (!member_do(&x->member, (struct tern_op){.kind = TERN_CLOSE, .session = sessions[s]},
                       NULL))
            return false;
    }
    return admin_empty(x->admin, x->member.pool, 5000, &status) &&
           status.pages.total == status.pages.free;
}

/* All sessions fetched once, compared, and evicted again. */
static bool tern_pass(struct transfer *x, double *ret_gb_s)
{
    uint64_t bytes = (uint64_t)SESSIONS * x->pages * x->page_bytes, start;
    tern_session sessions[SESSIONS];

    if (!begin_sessions(x, sessions))
        return false;
    start = clock_ns();
    if (!fetch_all(x, sessions))
        return false;
    *ret_gb_s = (double)bytes / (double)(clock_ns() - start);
    for (uint32_t i = 0; i < SESSIONS * x->pages; i++)
        x->wrong +=
            page_compare(tern_pool_base(x->member.map) + (uint64_t)x->table[i] * x->page_bytes,
                         x->page_bytes, x->prefix[i]);
    return end_sessions(x, sessions);
}

/* ---- two daemons and two engines ---- */

static bool start_daemons(struct transfer *x, uint32_t corrupt)
{
    char why[SPAWN_WHY_BYTES] = "";
    uint16_t port = port_free();
    struct daemon_options d = {
        .node = "source",
        .port = port_free(),
        .peer = "dest",
        .memory_bytes = pool_bytes_for((uint64_t)SESSIONS * x->pages, x->page_bytes) + (2u << 20),
        .regions = 1,
        .page_bytes_min = x->page_bytes,
        .token_blocks = 3u * SESSIONS * x->pages + 65536,
        .core = proc_core(0), /* a host of its own would have its own; raw_stream does likewise */
    };

    d.peer_port = port;
    if (!tempdir_make(x->dir, sizeof x->dir, "tern-bench"))
        return false;
    if (daemon_start(&x->source, x->dir, &d, why)) {
        d.node = "dest";
        d.peer = "source";
        d.peer_port = d.port;
        d.port = port;
        d.corrupt_pages = corrupt;
        d.core = proc_core(1);
        if (daemon_start(&x->dest, x->dir, &d, why))
            return true;
    }
    fprintf(stderr, "tern-bench: %s\n", why);
    return false;
}

static bool set_up(struct transfer *x, uint32_t page_bytes, uint32_t corrupt)
{
    const struct bench_args *args = x->args;

    *x = (struct transfer){.args = args, .page_bytes = page_bytes, .filler = -1, .filler_fd = -1};
    x->source.pid = x->dest.pid = -1;
    x->pages = (args->quick ? QUICK_BYTES : REGION_BYTES) / SESSIONS / page_bytes;
    return allocate(x) && start_daemons(x, corrupt) && start_filler(x) &&
           member_start(&x->member, x->dest.socket, "dest", PAGE_TOKENS, page_bytes,
                        SESSIONS * x->pages) &&
           tern_connect(x->dest.admin, MEMBER_CALL_MS, &x->admin) == TERN_OK &&
           admin_wait_peer(x->admin, "source", PEER_UP_MS);
}

static void tear_down(struct transfer *x)
{
    member_finish(&x->member);
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
    free(x->prefix);
    free(x->table);
    x->tokens = NULL;
    x->prefix = NULL;
    x->table = NULL;
}

/* ---- measuring ---- */

/* The read size that is best in three passes each. */
static bool best_read(struct raw_stream *raw, size_t *ret)
{
    double best = 0, gb_s, median;
    struct series s;

    if (series_init(&s, 3) != 0)
        return false;
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
    bool ok = series_init(&tern_gb_s, PAIRS) == 0 && series_init(&raw_gb_s, PAIRS) == 0 &&
              series_init(&ratio, PAIRS) == 0 && best_read(raw, &read_bytes) && tern_pass(x, &a);

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
    bool ok = set_up(x, row->page_bytes, 0) &&
              raw_stream_start(&raw, row->page_bytes, SESSIONS * x->pages) &&
              measure_pairs(x, &raw, row);

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
    }
    if (!args->json)
        printf("corrupted on the way: %u, found: %llu, wrong bytes seen by the engine: %llu\n",
               CORRUPT_PAGES, (unsigned long long)found, (unsigned long long)wrong);
    json_decref(o);
    ok = bench_limit(found == CORRUPT_PAGES, "every corrupted page is found") && ok;
    return bench_limit(wrong == 0, "no wrong byte is published") && ok ? 0 : 1;
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
