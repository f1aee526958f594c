/* Tenant B of `tern-bench neighbours`: see neighbours.h. B's engines keep within the reserve of B,
 * so nothing that A does may make an operation fail. Every operation is timed, and every fetched
 * byte is compared outside the measured time. */
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "engine/bytes.h"
#include "engine/profile.h"
#include "neighbours.h"

#define PAGES_HERE    256 /* fewer than the prefixes there take, so that each must be fetched */
#define PAGES_THERE   1024
#define SHARED_TOKENS (2 * NEIGHBOUR_PAGE_TOKENS)
#define OWN_TOKENS    (SHARED_TOKENS + NEIGHBOUR_PAGE_TOKENS / 2) /* the close frees half a page */
#define SAMPLES_MAX   200000
#define SAYS_MAX      5 /* failures that are printed */
#define HEARS_EVERY   8 /* rounds whose changes fit the ring and the socket */
#define WATCH_TOKENS  512
#define WATCH_NS      UINT64_C(1000000)
#define KEPT_ID       1000000u
#define OWN_ID        2000000u

const char *b_kind_name(enum b_kind kind)
{
    static const char *const names[B_KINDS] = {
        [B_JOIN] = "join",     [B_CONNECT] = "connect",  [B_MATCH] = "match",
        [B_EXTEND] = "extend", [B_COMMIT] = "commit",    [B_FETCH] = "fetch",
        [B_CLOSE] = "close",   [B_TRANSFER] = "transfer"};

    return names[kind];
}

/* Ends one operation, which began at `start`. */
static bool timed(struct tenant_b *b, const struct engine *e, enum b_kind kind, uint64_t start,
                  enum tern_err err)
{
    double us = (double)(clock_ns() - start) / 1e3;

    b->operations++;
    series_add(&b->slice, us);
    series_add(&b->kind[kind], us);
    if (err == TERN_OK)
        return true;
    if (b->failed++ < SAYS_MAX)
        member_ok(e, b_kind_name(kind), err);
    return false;
}

static bool begin(struct tenant_b *b, struct engine *e, struct engine_session *s, uint32_t id,
                  uint32_t n)
{
    uint32_t tokens[OWN_TOKENS];
    uint64_t start;

    block_tokens(id, 0, n, tokens);
    start = clock_ns();
    return timed(b, e, B_MATCH, start, engine_begin(s, e, tokens, n));
}

/* The engine is at a step that has not ended when it closes the session, as with a running
 * kernel. */
static void end(struct tenant_b *b, struct engine_session *s)
{
    struct engine *e = s->engine;
    uint64_t start = clock_ns();

    timed(b, e, B_CLOSE, start,
          engine_do(s, (struct engine_op){.kind = ENGINE_CLOSE, .step = e->step + 1}));
    engine_free(s);
    engine_publish(e);
}

/* Computes and commits a conversation here. */
static bool converse(struct tenant_b *b, uint32_t id)
{
    struct engine_session s;
    struct engine *e = &b->here;
    bool ok = begin(b, e, &s, id, OWN_TOKENS);
    uint64_t start = clock_ns();

    ok = ok && timed(b, e, B_EXTEND, start, engine_extend(&s, OWN_TOKENS, OWN_TOKENS));
    if (ok)
        engine_write(&s, 0, OWN_TOKENS);
    start = clock_ns();
    ok = ok && timed(b, e, B_COMMIT, start,
                     engine_do(&s, (struct engine_op){.kind = ENGINE_COMMIT,
                                                      .length = SHARED_TOKENS,
                                                      .step = e->step + 1}));
    end(b, &s);
    return ok;
}

/* Fetches a prefix: all of it must arrive, and none of it may have been resident. */
static void bring(struct tenant_b *b, struct engine *e, enum b_kind kind, const char *peer,
                  uint32_t id)
{
    struct engine_session s;
    bool ok = begin(b, e, &s, id, SHARED_TOKENS);
    uint64_t start = clock_ns();

    ok = ok && timed(b, e, kind, start, engine_fetch(&s, peer, SHARED_TOKENS, MEMBER_CALL_MS));
    if (ok && (s.matched != 0 || s.len.committed != SHARED_TOKENS)) {
        fprintf(stderr, "tern-bench: %s: %u tokens were there and %u came of %u\n",
                b_kind_name(kind), s.matched, s.len.committed - s.matched, SHARED_TOKENS);
        b->failed++;
    }
    if (ok)
        b->wrong += engine_wrong(&s, s.len.committed);
    end(b, &s);
}

/* A new client of tenant B connects and leaves. */
static void come(struct tenant_b *b)
{
    struct engine e = {0};
    uint64_t start = clock_ns();

    timed(b, &e, B_CONNECT, start, tern_connect(b->hosts->b_here, MEMBER_CALL_MS, &e.tern));
    tern_destroy(e.tern);
}

/* None of B's changes is lost, whatever A does to its own. */
static void hear(struct tenant_b *b)
{
    struct tern_answer a;
    enum tern_err err;

    while ((err = tern_poll(b->changes, &a)) == TERN_OK) {
        if (a.err == TERN_OK && a.events->lost == 0)
            continue;
        fprintf(stderr, "tern-bench: B's subscriber: %s, %llu changes lost\n", tern_strerror(a.err),
                a.err == TERN_OK ? (unsigned long long)a.events->lost : 0);
        b->failed++;
        if (a.err != TERN_OK)
            return;
    }
    b->failed += err != TERN_BUSY;
}

static bool subscribe(struct tenant_b *b)
{
    struct tern_answer a;

    return tern_connect(b->hosts->b_here, MEMBER_CALL_MS, &b->changes) == TERN_OK &&
           tern_subscribe(b->changes, NULL, 1) == TERN_OK &&
           answer_wait(b->changes, MEMBER_CALL_MS, &a) == TERN_OK && a.err == TERN_OK;
}

void b_round(struct tenant_b *b)
{
    uint32_t id = b->serial++;

    come(b);
    converse(b, OWN_ID + id);
    bring(b, &b->here, B_FETCH, "there", KEPT_ID + id % B_PREFIXES);
    bring(b, &b->there, B_TRANSFER, "here", OWN_ID + id);
    if (id % HEARS_EVERY == 0)
        hear(b);
}

/* Sends tokens with a key in a namespace of its own. */
static void newcomer_asks(struct tenant_b *b)
{
    uint32_t tokens[SHARED_TOKENS];
    struct tern_extra_key key = {.position = 1, .hi = b->serial};
    struct tern_tokens list = {.v = tokens, .n = SHARED_TOKENS, .keys = &key, .nkeys = 1};
    struct engine *e = &b->here;
    struct engine_session s = {.engine = e};
    struct tern_namespace ns = {.model = "bench"};
    char salt[32];
    uint64_t start;

    block_tokens(OWN_ID, 0, SHARED_TOKENS, tokens);
    snprintf(salt, sizeof salt, "%u", b->serial);
    ns.salt = salt;
    start = clock_ns();
    timed(b, e, B_JOIN, start,
          tern_session_open(e->tern, e->pool, &ns, NULL, MEMBER_CALL_MS, &s.id));
    start = clock_ns();
    timed(b, e, B_MATCH, start,
          tern_match(e->tern, s.id, &list, TERN_STEP_NONE, MEMBER_CALL_MS, &s.last));
    end(b, &s);
}

bool b_begin(struct tenant_b *b)
{
    struct engine *e = &b->here;
    struct geometry g;
    char name[32];
    uint64_t start;

    series_clear(&b->slice);
    geometry_plain(&g, NEIGHBOUR_PAGE_TOKENS, NEIGHBOUR_PAGE_BYTES, PAGES_HERE);
    snprintf(name, sizeof name, "b-here-%u", b->serial);
    e->ns = (struct tern_namespace){.model = "bench"};
    start = clock_ns();
    if (!timed(b, e, B_JOIN, start,
               engine_open(e, b->hosts->b_here, name, &g.layout, MEMBER_CALL_MS))) {
        engine_close(e);
        return false;
    }
    newcomer_asks(b);
    return true;
}

static void wait_until(uint64_t due)
{
    uint64_t now = clock_ns(), ns = now < due ? due - now : 0;
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};

    if (ns > 0)
        nanosleep(&t, NULL);
}

/* Returns how long the calling thread has waited for a processor, ns; 0 if the kernel does not
 * count it. */
static uint64_t processor_waits(void)
{
    static int fd = -1;
    unsigned long long ran, waited;
    char text[96] = "";

    if (fd < 0)
        fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || pread(fd, text, sizeof text - 1, 0) <= 0 ||
        sscanf(text, "%llu %llu", &ran, &waited) != 2)
        return 0;
    return waited;
}

/* Leaves out the time that B's thread waits for a processor while A and the workers use them
 * all. */
void b_watch(struct tenant_b *b, uint64_t ns)
{
    uint32_t tokens[WATCH_TOKENS];
    struct tern_tokens list = {.v = tokens, .n = WATCH_TOKENS};
    struct engine *e = &b->here;
    struct engine_session s;
    uint64_t due = clock_ns(), until = due + ns;
    struct tern_result r;

    block_tokens(KEPT_ID, 0, WATCH_TOKENS, tokens);
    if (!timed(b, e, B_MATCH, due, engine_begin(&s, e, tokens, WATCH_TOKENS)))
        return;
    for (; due < until; due += WATCH_NS) {
        uint64_t waited = processor_waits();
        enum tern_err err;

        wait_until(due);
        err = tern_match(e->tern, s.id, &list, TERN_STEP_NONE, MEMBER_CALL_MS, &r);
        timed(b, e, B_MATCH, due + (processor_waits() - waited), err);
    }
    end(b, &s);
}

void b_leave(struct tenant_b *b)
{
    struct engine *e = &b->here;

    member_ok(e, "closing a pool", tern_pool_close(e->tern, e->pool, MEMBER_CALL_MS));
    engine_close(e);
}

bool b_start(struct tenant_b *b, const struct hosts *h)
{
    uint32_t tokens[SHARED_TOKENS];
    bool ok;

    *b = (struct tenant_b){.hosts = h};
    series_init(&b->slice, SAMPLES_MAX);
    for (uint32_t k = 0; k < B_KINDS; k++)
        series_init(&b->kind[k], SAMPLES_MAX);
    ok = subscribe(b) && member_start(&b->there, h->b_there, "b-there", NEIGHBOUR_PAGE_TOKENS,
                                      NEIGHBOUR_PAGE_BYTES, PAGES_THERE);
    for (uint32_t i = 0; ok && i < B_PREFIXES; i++) {
        block_tokens(KEPT_ID + i, 0, SHARED_TOKENS, tokens);
        ok = member_ok(&b->there, "a Match",
                       engine_begin(&b->kept[i], &b->there, tokens, SHARED_TOKENS)) &&
             member_ok(&b->there, "a commit", engine_run(&b->kept[i]));
    }
    return ok;
}

void b_stop(struct tenant_b *b)
{
    for (uint32_t i = 0; i < B_PREFIXES; i++)
        engine_free(&b->kept[i]);
    tern_destroy(b->changes);
    b->changes = NULL;
    engine_close(&b->here);
    engine_close(&b->there);
    series_finish(&b->slice);
    for (uint32_t k = 0; k < B_KINDS; k++)
        series_finish(&b->kind[k]);
}
