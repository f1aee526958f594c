/* One half of a transfer between two machines: an engine that commits prefixes, or one that fetches
 * them. Both make the same tokens and bytes from the same seed, so the machines exchange data by
 * the daemons alone, and every byte that arrives is compared. A pool outlives its engine: the
 * daemon's peers and `check` find what `commit` left.
 *
 *   rdma_half commit SOCKET ADMIN [OPTION...]   commits the prefixes
 *   rdma_half check SOCKET ADMIN [OPTION...]    all are resident, right and unpinned
 *   rdma_half fetch SOCKET ADMIN [OPTION...]    fetches them from --peer and compares every byte
 *   rdma_half gone SOCKET ADMIN --handles FILE  the handles of `commit --handles FILE` are GONE
 *
 * Exit status: 0 if all was as it should be. Run by the scripts of this folder. */
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "engine/admin.h"
#include "engine/bytes.h"
#include "engine/engine.h"
#include "engine/proc.h"
#include "engine/profile.h"
#include "engine/stats.h"

#define CALL_MS       60000 /* emulated machines are slow */
#define IN_FLIGHT_MAX 16
#define CHUNKS_MAX    1024 /* of a prefix */
#define AGAIN_MS      300
#define MS            UINT64_C(1000000)

struct options {
    const char *profile, *peer, *handles, *device;
    uint64_t page_bytes, seed;
    uint32_t prefixes, chunks, pool_pages;
    uint32_t in_flight;  /* fetches at a time */
    uint32_t settle_ms;  /* until no page is in quarantine or pinned */
    uint32_t ends_ms;    /* each fetch must end within this time; 0: any time is fine */
    uint64_t tell_bytes; /* print "in the middle" when that much more has arrived; 0: never */
    uint32_t tries;      /* of a fetch that loses its source or path: 1 or more */
    bool may_fail;       /* a fetch may end with an error that asks for a retry */
};

struct fetch {
    bool busy;
    uint32_t number;
    struct engine_session session;
    uint32_t tries;
    uint64_t begun_ns, again_ns; /* again_ns: time of the next try; 0: a try is under way */
};

struct half {
    struct options o;
    struct engine e;
    struct tern *admin;
    uint32_t tokens[CHUNKS_MAX * 256];
    struct fetch fetch[IN_FLIGHT_MAX];
    uint64_t pages, wrong_bytes, whole, again, by_err[TERN_ERR_COUNT], longest_ns;
};

static void die(const struct half *h, const char *format, ...)
    __attribute__((format(printf, 2, 3), noreturn));

static void die(const struct half *h, const char *format, ...)
{
    va_list args;

    printf("FAILED: ");
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("%s%s\n", h->e.tern ? ": " : "", h->e.tern ? engine_why(&h->e) : "");
    exit(1);
}

static void must(const struct half *h, const char *what, enum tern_err err)
{
    if (err != TERN_OK)
        die(h, "%s: %s", what, tern_strerror(err));
}

/* ---- the contents of prefix `number` ---- */

static uint32_t align_of(const struct half *h)
{
    return h->e.groups[0].page_tokens;
}

static uint32_t length_of(const struct half *h, uint32_t number)
{
    return (1 + (uint32_t)(hash_mix(h->o.seed, number) % h->o.chunks)) * align_of(h);
}

/* Puts the prefix's tokens into h->tokens. Returns how many. */
static uint32_t tokens_of(struct half *h, uint32_t number)
{
    uint32_t n = length_of(h, number);

    block_tokens(hash_mix(hash_mix(h->o.seed, 0x68616c66), number), 0, n, h->tokens);
    return n;
}

/* Compares the bytes needed to resume from n tokens. All pages up to there must be in the table. */
static void compare(struct half *h, const struct engine_session *s, uint32_t n)
{
    if (!table_covers(&s->table, n))
        die(h, "a page is missing at %u tokens", n);
    h->wrong_bytes += engine_wrong(s, n);
    h->pages += table_pages(&s->table);
}

/* ---- the engine ---- */

static void open_engine(struct half *h, const char *socket, const char *admin)
{
    const char *why;
    const struct profile *profile = profile_find(h->o.profile, &why);
    struct geometry g;

    if (!profile)
        die(h, "%s", why);
    why = geometry_init(&g, profile, h->o.page_bytes, 1, h->o.pool_pages);
    if (why || h->o.chunks > CHUNKS_MAX || profile->page_tokens > 256)
        die(h, "%s", why ? why : "that is too long");
    must(h, "connecting to the admin socket", tern_connect(admin, CALL_MS, &h->admin));
    h->e.ns = (struct tern_namespace){.model = "half", .salt = h->o.profile};
    must(h, "opening a pool",
         engine_open_on(&h->e, socket, "half", h->o.device, &g.layout, CALL_MS));
}

/* Returns a session that has matched the prefix of that number. */
static struct engine_session begin(struct half *h, uint32_t number)
{
    uint32_t n = tokens_of(h, number);
    struct engine_session s;

    must(h, "match", engine_begin(&s, &h->e, h->tokens, n));
    return s;
}

/* ---- commit, check, gone ---- */

static void write_handles(const struct half *h, tern_session s)
{
    FILE *f = fopen(h->o.handles, "we");

    if (!f || fprintf(f, "%" PRIu64 " %" PRIu64 "\n", s, h->e.pool) < 0 || fclose(f) != 0)
        die(h, "%s cannot be written", h->o.handles);
}

static void commit_all(struct half *h)
{
    for (uint32_t i = 0; i < h->o.prefixes; i++) {
        struct engine_session s = begin(h, i);

        if (s.matched > 0)
            die(h, "prefix %u is there already", i);
        must(h, "a commit", engine_run(&s));
        h->pages += table_pages(&s.table);
        if (h->o.handles && i == 0)
            write_handles(h, s.id);
        else
            must(h, "a close", engine_end(&s));
    }
    printf("committed: prefixes=%u pages=%" PRIu64 "\n", h->o.prefixes, h->pages);
}

/* Waits until nothing is pinned for a transfer and nothing waits for a proof. */
static void must_settle(struct half *h)
{
    uint64_t start = clock_ns(), until = start + h->o.settle_ms * MS;
    struct daemon_status s;

    do {
        if (!admin_status(h->admin, 0, &s))
            die(h, "no status");
        if (s.transfers_active == 0 && s.pages.quarantine == 0 && s.pages.transfer == 0) {
            printf("settled: transfers_active=0 quarantine=0 after_ms=%" PRIu64 "\n",
                   (clock_ns() - start) / MS);
            return;
        }
        sleep_ms(50);
    } while (clock_ns() < until);
    die(h, "not settled: transfers_active=%" PRIu64 " quarantine=%" PRIu64 " transfer=%" PRIu64,
        s.transfers_active, s.pages.quarantine, s.pages.transfer);
}

static void check_all(struct half *h)
{
    struct daemon_status status;

    must_settle(h);
    for (uint32_t i = 0; i < h->o.prefixes; i++) {
        struct engine_session s = begin(h, i);

        if (s.matched != s.ntokens)
            die(h, "prefix %u: %u tokens of %u are there", i, s.matched, s.ntokens);
        compare(h, &s, s.ntokens);
        must(h, "a close", engine_end(&s));
    }
    printf("checked: prefixes=%u pages=%" PRIu64 " wrong_bytes=%" PRIu64 "\n", h->o.prefixes,
           h->pages, h->wrong_bytes);
    if (!admin_empty(h->admin, 0, h->o.settle_ms, &status) ||
        status.pages.free != status.pages.total)
        die(h, "something is pinned still: %" PRIu64 " pages of %" PRIu64 " are free",
            status.pages.free, status.pages.total);
    printf("emptied: nothing was pinned\n");
}

static void check_gone(struct half *h)
{
    struct tern_tokens t = {.v = h->tokens, .n = tokens_of(h, 0)};
    struct tern_pool *map = NULL;
    struct tern_result r;
    tern_session s;
    uint64_t pool;
    FILE *f = h->o.handles ? fopen(h->o.handles, "re") : NULL;

    if (!f || fscanf(f, "%" SCNu64 " %" SCNu64, &s, &pool) != 2)
        die(h, "no handles in %s", h->o.handles ? h->o.handles : "--handles");
    fclose(f);
    if (tern_match(h->e.tern, s, &t, TERN_STEP_NONE, CALL_MS, &r) != TERN_GONE)
        die(h, "a session's handle from before the restart is not GONE");
    if (tern_pool_map(h->e.tern, pool, CALL_MS, &map) != TERN_GONE)
        die(h, "a pool's handle from before the restart is not GONE");
    printf("gone: both handles from before the restart\n");
}

/* ---- fetch ---- */

static void submit(struct half *h, struct fetch *f)
{
    f->again_ns = 0;
    f->tries++;
    must(h, "fetch",
         tern_submit_fetch(h->e.tern, f->session.id,
                           &(struct tern_fetch){.peer = h->o.peer, .step = TERN_STEP_NONE},
                           (uint64_t)(f - h->fetch)));
}

static void begin_fetch(struct half *h, struct fetch *f, uint32_t number)
{
    *f = (struct fetch){.busy = true, .number = number, .begun_ns = clock_ns()};
    f->session = begin(h, number);
    submit(h, f);
}

/* Compares all that arrived, in a session of its own. It is complete, or the error says why. */
static void end_fetch(struct half *h, const struct tern_answer *a)
{
    struct fetch *f = &h->fetch[a->cookie];
    uint64_t took = clock_ns() - f->begun_ns;
    enum tern_err err = a->err;
    struct engine_session s;

    if (err == TERN_PEER_LOST && f->tries < h->o.tries) {
        f->again_ns = clock_ns() + AGAIN_MS * MS;
        h->again++;
        return;
    }
    f->busy = false;
    h->by_err[err]++;
    h->longest_ns = took > h->longest_ns ? took : h->longest_ns;
    if (err != TERN_OK && !h->o.may_fail)
        die(h, "fetch of prefix %u: %s", f->number, tern_strerror(err));
    if (tern_category(err) == TERN_CAT_INTERNAL || tern_category(err) == TERN_CAT_BAD_REQUEST)
        die(h, "fetch of prefix %u: %s", f->number, tern_strerror(err));
    s = begin(h, f->number);
    if (err == TERN_OK && !h->o.may_fail && s.matched != s.ntokens)
        die(h, "prefix %u: %u tokens of %u came", f->number, s.matched, s.ntokens);
    compare(h, &s, s.matched);
    h->whole += s.matched == s.ntokens;
    must(h, "a close", engine_end(&s));
    must(h, "a close", engine_end(&f->session));
}

static void tell_middle(struct half *h)
{
    struct daemon_status s;

    if (h->o.tell_bytes == 0 || !admin_status(h->admin, 0, &s) ||
        s.transfers.payload_bytes_in < h->o.tell_bytes)
        return;
    h->o.tell_bytes = 0;
    printf("in the middle: %" PRIu64 " bytes are here\n", s.transfers.payload_bytes_in);
}

static void take_answers(struct half *h)
{
    enum tern_err err;
    struct tern_answer a;

    for (uint32_t wait_ms = 5; (err = answer_wait(h->e.tern, wait_ms, &a)) == TERN_OK; wait_ms = 0)
        end_fetch(h, &a);
    if (err != TERN_BUSY)
        die(h, "the daemon: %s", tern_strerror(err));
    tell_middle(h);
}

static void fetch_all(struct half *h)
{
    uint32_t next = 0, busy = 1;
    uint64_t start = clock_ns();
    struct daemon_status s;

    if (!admin_wait_peer(h->admin, h->o.peer, CALL_MS))
        die(h, "peer %s does not come up", h->o.peer);
    if (!admin_status(h->admin, 0, &s))
        die(h, "no status");
    h->o.tell_bytes += h->o.tell_bytes > 0 ? s.transfers.payload_bytes_in : 0;
    while (busy > 0) {
        busy = 0;
        for (uint32_t i = 0; i < h->o.in_flight; i++) {
            if (!h->fetch[i].busy && next < h->o.prefixes)
                begin_fetch(h, &h->fetch[i], next++);
            else if (h->fetch[i].again_ns > 0 && clock_ns() >= h->fetch[i].again_ns)
                submit(h, &h->fetch[i]);
            busy += h->fetch[i].busy;
        }
        take_answers(h);
    }
    printf("fetched: prefixes=%u whole=%" PRIu64 " again=%" PRIu64 " pages=%" PRIu64
           " wrong_bytes=%" PRIu64 " longest_ms=%" PRIu64 " elapsed_ms=%" PRIu64 "\n",
           h->o.prefixes, h->whole, h->again, h->pages, h->wrong_bytes, h->longest_ns / MS,
           (clock_ns() - start) / MS);
    for (uint32_t i = 0; i < TERN_ERR_COUNT; i++)
        if (h->by_err[i] > 0)
            printf("fetches that ended so: %" PRIu64 ": %s\n", h->by_err[i],
                   tern_strerror((enum tern_err)i));
    if (h->o.ends_ms > 0 && h->longest_ns > h->o.ends_ms * MS)
        die(h, "a fetch took longer than %u ms", h->o.ends_ms);
    must_settle(h);
}

/* ---- the command line ---- */

static const struct option table[] = {
    {"profile", 1, 0, 'p'},    {"page-bytes", 1, 0, 'b'},
    {"seed", 1, 0, 's'},       {"prefixes", 1, 0, 'n'},
    {"chunks", 1, 0, 'c'},     {"pool-pages", 1, 0, 'l'},
    {"peer", 1, 0, 'f'},       {"in-flight", 1, 0, 'i'},
    {"settle-ms", 1, 0, 't'},  {"ends-ms", 1, 0, 'e'},
    {"tell-bytes", 1, 0, 'm'}, {"may-fail", 0, 0, 'y'},
    {"handles", 1, 0, 'h'},    {"tries", 1, 0, 'r'},
    {"device", 1, 0, 'd'},     {0},
};

static uint32_t count(const char *text)
{
    return (uint32_t)strtoul(text, NULL, 10);
}

static bool read_options(int argc, char **argv, struct options *o)
{
    int c;

    while ((c = getopt_long(argc, argv, "", table, NULL)) >= 0) {
        switch (c) {
        case 'p': o->profile = optarg; break;
        case 'b': o->page_bytes = strtoull(optarg, NULL, 10); break;
        case 's': o->seed = strtoull(optarg, NULL, 10); break;
        case 'n': o->prefixes = count(optarg); break;
        case 'c': o->chunks = count(optarg); break;
        case 'l': o->pool_pages = count(optarg); break;
        case 'f': o->peer = optarg; break;
        case 'i': o->in_flight = count(optarg); break;
        case 't': o->settle_ms = count(optarg); break;
        case 'e': o->ends_ms = count(optarg); break;
        case 'm': o->tell_bytes = strtoull(optarg, NULL, 10); break;
        case 'y': o->may_fail = true; break;
        case 'r': o->tries = count(optarg); break;
        case 'h': o->handles = optarg; break;
        case 'd': o->device = optarg; break;
        default: return false;
        }
    }
    return argc - optind == 3 && o->chunks > 0 && o->in_flight > 0 && o->in_flight <= IN_FLIGHT_MAX;
}

int main(int argc, char **argv)
{
    static struct half h = {.o = {.profile = "tiny-state",
                                  .peer = "source",
                                  .seed = 1,
                                  .prefixes = 100,
                                  .chunks = 6,
                                  .pool_pages = 1000,
                                  .in_flight = 4,
                                  .tries = 1,
                                  .settle_ms = 10000}};
    static const struct {
        const char *name;
        void (*run)(struct half *h);
    } commands[] = {
        {"commit", commit_all}, {"check", check_all}, {"gone", check_gone}, {"fetch", fetch_all}};

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!read_options(argc, argv, &h.o)) {
        fprintf(stderr, "usage: rdma_half commit|check|fetch|gone SOCKET ADMIN [OPTION...]\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(argv[optind], commands[i].name) != 0)
            continue;
        open_engine(&h, argv[optind + 1], argv[optind + 2]);
        commands[i].run(&h);
        engine_close(&h.e);
        tern_destroy(h.admin);
        if (h.wrong_bytes > 0)
            die(&(struct half){0}, "%" PRIu64 " wrong bytes", h.wrong_bytes);
        return 0;
    }
    fprintf(stderr, "rdma_half: no such command\n");
    return 2;
}
