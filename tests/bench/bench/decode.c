/* A decode step of 256 sequences with 4 speculative tokens each. Most of those are rejected, so a
 * step yields one or two tokens, and a sequence needs a page every dozen steps. Timed is the work
 * of the scheduler's thread between two steps of the device. A pause plays the device: in it the
 * thread polls the clock, as CUDA's driver has it poll for the end of a step, or sleeps. Timed
 * apart is the thread's work while the device computes, which is to take the answers. */
#include "decode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "base/prng.h"
#include "engine/bytes.h"
#include "engine/proc.h"
#include "member.h"

#define HUGE_BYTES  ((size_t)2 << 20)
#define SEQUENCES   256
#define DRAFT       4
#define PROMPT      64   /* tokens at the start, and up to a page more: they cross apart */
#define LONGEST     1024 /* a pass ends once a sequence is that long */
#define STEPS       600  /* of a pass */
#define RIGHT       25   /* of 100 drafted tokens; a wrong one ends the row */
#define DEVICE_US   500
#define LOW         512
#define HIGH        1024
#define SAMPLES_MAX 100000
#define SMALL_PAGES 32 /* the code, stacks and sockets of a step take as many */
#define SMALL_BYTES 4096
#define BLOCKS      (LONGEST / DECODE_PAGE_TOKENS + 1)

/* An engine's record of a sequence, for either source of blocks. */
struct sequence {
    uint32_t tokens, allocated, nblocks;
    uint32_t block[BLOCKS], token[LONGEST + DRAFT + 1];
};

/* The textbook's: a stack of free blocks. */
struct block_pool {
    uint32_t nfree, free[DECODE_PAGES];
    struct sequence sequence[SEQUENCES];
};

struct decode {
    struct engine engine;
    struct tern_lease *lease;
    tern_session session[SEQUENCES];
    uint32_t at[SEQUENCES];
    struct sequence sequence[SEQUENCES];
    uint8_t *small_pages;
    uint32_t accepted[SEQUENCES], drafted[DRAFT + 1];
    struct prng prng;
    struct decode_figures *figures;
    const struct raw_echo *raw;
    bool sleeps;
};

void decode_figures_init(struct decode_figures *f)
{
    *f = (struct decode_figures){.steps = 0};
    series_init(&f->step, SAMPLES_MAX);
    series_init(&f->told, SAMPLES_MAX);
    series_init(&f->pool_step, SAMPLES_MAX);
    series_init(&f->raw_send, SAMPLES_MAX);
    series_init(&f->touch, SAMPLES_MAX);
}

void decode_figures_finish(struct decode_figures *f)
{
    series_finish(&f->step);
    series_finish(&f->told);
    series_finish(&f->pool_step);
    series_finish(&f->raw_send);
    series_finish(&f->touch);
}

static void draw(struct decode *d)
{
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        d->accepted[i] = 1;
        while (d->accepted[i] <= DRAFT && prng_below(&d->prng, 100) < RIGHT)
            d->accepted[i]++;
    }
    for (uint32_t i = 0; i <= DRAFT; i++)
        d->drafted[i] = prng_below(&d->prng, 32000);
}

/* Adds the tokens of a step. Returns what the table must cover: these, one more and a draft. */
static uint32_t advance(struct sequence *q, const uint32_t *tokens, uint32_t n)
{
    memcpy(q->token + q->tokens, tokens, n * sizeof *tokens);
    q->tokens += n;
    return q->tokens + 1 + DRAFT;
}

/* ---- the block pool ---- */

static void pool_step(struct block_pool *p, const struct decode *d)
{
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        struct sequence *q = &p->sequence[i];
        uint32_t want = advance(q, d->drafted, d->accepted[i]);

        for (; q->allocated < want; q->allocated += DECODE_PAGE_TOKENS)
            q->block[q->nblocks++] = p->free[--p->nfree];
    }
}

static void pool_begin(struct block_pool *p, const struct decode *d)
{
    p->nfree = 0;
    for (uint32_t i = DECODE_PAGES; i-- > 1;)
        p->free[p->nfree++] = i;
    memcpy(p->sequence, d->sequence, sizeof p->sequence);
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        p->sequence[i].nblocks = p->sequence[i].allocated = 0;
        for (; p->sequence[i].allocated < p->sequence[i].tokens;
             p->sequence[i].allocated += DECODE_PAGE_TOKENS)
            p->sequence[i].block[p->sequence[i].nblocks++] = p->free[--p->nfree];
    }
}

/* ---- the lease ---- */

static void take_runs(struct sequence *q, const struct tern_run *runs, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++)
        for (uint32_t i = 0; i < runs[r].n; i++)
            q->block[q->nblocks++] = runs[r].pages[i].index;
}

static enum tern_err wait_for_pages(struct decode *d)
{
    enum tern_err err = tern_lease_submit(d->lease, 0);

    d->figures->round_trips++;
    return err == TERN_OK || err == TERN_BUSY ? tern_lease_wait(d->lease, MEMBER_CALL_MS) : err;
}

static enum tern_err extend(struct decode *d, uint32_t i)
{
    struct sequence *q = &d->sequence[i];
    uint32_t want = advance(q, d->drafted, d->accepted[i]), nruns;
    const struct tern_run *runs;
    enum tern_err err;

    want = want > q->allocated ? want : q->allocated;
    while ((err = tern_lease_extend(d->lease, d->at[i], d->drafted, d->accepted[i], q->tokens, want,
                                    &runs, &nruns)) == TERN_BUSY)
        if ((err = wait_for_pages(d)) != TERN_OK)
            break;
    if (err != TERN_OK)
        return err;
    take_runs(q, runs, nruns);
    q->allocated = want;
    return TERN_OK;
}

static enum tern_err lease_step(struct decode *d)
{
    enum tern_err err = TERN_OK;

    for (uint32_t i = 0; i < SEQUENCES && err == TERN_OK; i++)
        err = extend(d, i);
    if (err == TERN_OK)
        err = tern_lease_submit(d->lease, 0);
    if (err == TERN_BUSY) /* nothing is lost: it is sent with the next step */
        err = TERN_OK;
    return err;
}

static bool begin_one(struct decode *d, uint32_t i)
{
    struct sequence *q = &d->sequence[i];
    uint32_t prompt = PROMPT + i % DECODE_PAGE_TOKENS;
    struct tern_tokens list = {.v = q->token, .n = prompt};
    struct tern *t = d->engine.tern;
    struct tern_result r;

    *q = (struct sequence){.tokens = prompt, .allocated = prompt};
    block_tokens(i + 1, 0, prompt, q->token);
    return member_ok(&d->engine, "opening a session",
                     tern_session_open(t, d->engine.pool, &d->engine.ns, NULL, MEMBER_CALL_MS,
                                       &d->session[i])) &&
           member_ok(&d->engine, "a Match",
                     tern_match(t, d->session[i], &list, TERN_STEP_NONE, MEMBER_CALL_MS, &r)) &&
           member_ok(&d->engine, "an extend",
                     tern_extend(t, d->session[i], NULL, prompt, prompt, MEMBER_CALL_MS, &r)) &&
           member_ok(&d->engine, "a session in the lease",
                     tern_lease_add(d->lease, d->session[i], &r, &d->at[i]));
}

/* Brings the daemon up to date and ends the session of one sequence. */
static bool end_one(struct decode *d, uint32_t i)
{
    struct tern *t = d->engine.tern;
    struct tern_result r;

    if (!member_ok(&d->engine, "the last extend",
                   tern_extend(t, d->session[i], NULL, 0, 0, MEMBER_CALL_MS, &r)))
        return false;
    if (r.tokens != d->sequence[i].tokens || r.lengths.allocated != d->sequence[i].allocated) {
        fprintf(stderr, "tern-bench: a session has %u tokens and %u are allocated, not %u and %u\n",
                r.tokens, r.lengths.allocated, d->sequence[i].tokens, d->sequence[i].allocated);
        return false;
    }
    return member_ok(&d->engine, "a close",
                     tern_session_close(t, d->session[i], TERN_STEP_NONE, MEMBER_CALL_MS, &r));
}

static void device_pause(const struct decode *d)
{
    const uint64_t until = clock_ns() + DEVICE_US * UINT64_C(1000);

    if (d->sleeps)
        usleep(DEVICE_US);
    while (clock_ns() < until)
        ;
}

/* Times touching one byte of each small page, after a pause of its own. */
static void timed_touch(struct decode *d)
{
    uint64_t start;

    device_pause(d);
    start = clock_ns();
    for (uint32_t i = 0; i < SMALL_PAGES; i++)
        d->small_pages[i * SMALL_BYTES]++;
    series_add(&d->figures->touch, (double)(clock_ns() - start) / 1e3);
}

static bool timed_raw(struct decode *d)
{
    uint64_t start;
    bool ok;

    device_pause(d);
    start = clock_ns();
    ok = raw_echo_send(d->raw);
    series_add(&d->figures->raw_send, (double)(clock_ns() - start) / 1e3);
    return ok && raw_echo_receive(d->raw);
}

/* Times taking the answers. Nothing was committed and nothing refused, so there is no news. */
static bool timed_told(struct decode *d)
{
    struct tern_lease_told told;
    uint64_t start = clock_ns();
    enum tern_err err = tern_lease_told(d->lease, &told);

    series_add(&d->figures->told, (double)(clock_ns() - start) / 1e3);
    return err == TERN_BUSY ||
           member_ok(&d->engine, "an operation of a Step", err == TERN_OK ? told.result.err : err);
}

static uint8_t *small_pages_need(void)
{
    uint8_t *p = aligned_alloc(SMALL_BYTES, (size_t)SMALL_PAGES * SMALL_BYTES);

    check(p);
    (void)madvise(p, (size_t)SMALL_PAGES * SMALL_BYTES, MADV_NOHUGEPAGE);
    return memset(p, 0, (size_t)SMALL_PAGES * SMALL_BYTES);
}

static enum tern_err timed_lease(struct decode *d)
{
    uint64_t start;
    enum tern_err err;

    device_pause(d);
    draw(d);
    start = clock_ns();
    err = lease_step(d);
    series_add(&d->figures->step, (double)(clock_ns() - start) / 1e3);
    return err;
}

/* The same step with the block pool, after a pause of its own. */
static void timed_pool(struct decode *d, struct block_pool *pool)
{
    uint64_t start;

    device_pause(d);
    start = clock_ns();
    pool_step(pool, d);
    series_add(&d->figures->pool_step, (double)(clock_ns() - start) / 1e3);
}

static bool timed_step(struct decode *d, struct block_pool *pool)
{
    enum tern_err err = timed_lease(d);
    bool ok = member_ok(&d->engine, "a step over the lease", err) && timed_told(d);

    d->figures->steps++;
    timed_pool(d, pool);
    timed_touch(d);
    return ok && timed_raw(d);
}

static bool room_left(const struct decode *d)
{
    for (uint32_t i = 0; i < SEQUENCES; i++)
        if (d->sequence[i].tokens + 2 * (DRAFT + 1) > LONGEST)
            return false;
    return true;
}

static bool pass(struct decode *d, struct block_pool *pool)
{
    bool ok = true;

    for (uint32_t i = 0; ok && i < SEQUENCES; i++)
        ok = begin_one(d, i);
    pool_begin(pool, d);
    for (uint32_t step = 0; ok && step < STEPS && room_left(d); step++)
        ok = timed_step(d, pool);
    for (uint32_t i = 0; ok && i < SEQUENCES; i++)
        ok = member_ok(&d->engine, "leaving the lease",
                       tern_lease_remove(d->lease, d->at[i], TERN_STEP_NONE));
    ok = ok && member_ok(&d->engine, "the last Step", wait_for_pages(d)) &&
         member_ok(&d->engine, "the last Step", wait_for_pages(d));
    d->figures->round_trips -= 2; /* nobody decodes there */
    for (uint32_t i = 0; ok && i < SEQUENCES; i++)
        ok = end_one(d, i);
    return ok;
}

static bool begin_lease(struct decode *d)
{
    const struct tern_lease_marks marks = {.low = LOW, .high = HIGH};
    const struct tern_layout layout = {
        .groups = d->engine.groups, .ngroups = d->engine.ngroups, .bytes = DECODE_PAGES};

    return member_ok(&d->engine, "a lease",
                     tern_lease_begin(d->engine.tern, d->engine.pool, &layout, &marks, SEQUENCES,
                                      &d->lease)) &&
           member_ok(&d->engine, "its first pages", tern_lease_wait(d->lease, MEMBER_CALL_MS));
}

/* Allocates zeroed memory in large pages, for the lease's sequences and the block pool's alike: in
 * a virtual machine remapping a small page may take a hundred microseconds, and a step touches
 * hundreds. */
static void *huge_need(size_t bytes)
{
    size_t all = (bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
    void *p = aligned_alloc(HUGE_BYTES, all);

    check(p);
    (void)madvise(p, all, MADV_HUGEPAGE);
    return memset(p, 0, all);
}

bool decode_measure(const char *socket, uint64_t page_bytes, uint32_t passes, int core, bool sleeps,
                    const struct raw_echo *raw, struct decode_figures *ret)
{
    struct decode *d = huge_need(sizeof *d);
    struct block_pool *pool = huge_need(sizeof *pool);
    bool ok;

    d->figures = ret;
    d->raw = raw;
    d->sleeps = sleeps;
    d->small_pages = small_pages_need();
    prng_init(&d->prng, 1);
    ok = member_start(&d->engine, socket, sleeps ? "decode-sleeps" : "decode", DECODE_PAGE_TOKENS,
                      page_bytes, DECODE_PAGES - 16) &&
         proc_pin(-1) && begin_lease(d) && proc_pin(core);
    for (uint32_t i = 0; ok && i < passes; i++)
        ok = pass(d, pool);
    ok = ok &&
         member_ok(&d->engine, "the end of the lease", tern_lease_end(&d->lease, MEMBER_CALL_MS));
    engine_close(&d->engine);
    free(pool);
    free(d->small_pages);
    free(d);
    return ok;
}
