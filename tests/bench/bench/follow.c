/* tern-bench follow: how much of a transfer decode waits for when it follows the prefill engine by
 * an early ticket (Y4), beside a hand-over whose transfer begins when all is computed. Both wait
 * from the source's last done step to the answer of the fetch. Prompts of 32,768 tokens, chunks of
 * 2,048, 256 KiB a page of 64 tokens. A chunk computes `pace` times as long as its share of the
 * whole transfer takes, which is measured first. The bytes are in the pages before a pass begins:
 * what computes here is a device, and leaves the processors alone. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "bench.h"
#include "engine/admin.h"
#include "engine/bytes.h"
#include "engine/daemon.h"
#include "engine/json.h"
#include "engine/proc.h"
#include "engine/profile.h"
#include "engine/stats.h"
#include "member.h"

#define PAGE_TOKENS  64u
#define PAGE_BYTES   (256u << 10)
#define CHUNK_TOKENS 2048u
#define CHUNKS       16u
#define QUICK_CHUNKS 4u
#define ROUNDS       5u
#define QUICK_ROUNDS 2u
#define PACE         1.2
#define EXPOSED_MAX  0.10 /* of what is waited for without following */
#define PEER_UP_MS   10000
#define EVICT_MS     10000
#define BLOB_BYTES   11u

struct follow {
    const struct bench_args *args;
    char dir[64];
    struct daemon source, dest;
    struct engine prefill, decode;
    struct tern *admin[2]; /* source, dest; owned */
    uint32_t *tokens;      /* owned */
    uint32_t ntokens, passes;
    uint64_t chunk_ns; /* what a chunk computes */
    uint64_t wrong;
    struct series whole, exposed, ratio;
};

/* Both ends of one request. */
struct hand {
    struct engine_session from, to;
    struct tern_ticket ticket;
    uint64_t done_ns; /* the last step was done */
};

/* ---- daemons and engines ---- */

static bool start_daemons(struct follow *f)
{
    uint32_t pages = f->ntokens / PAGE_TOKENS;
    struct daemon_options o[2] = {{
        .node = "source",
        .memory_bytes = pool_bytes_for(2 * pages, PAGE_BYTES) + (2u << 20),
        .page_bytes_min = PAGE_BYTES,
        .token_blocks = 8u * pages + 65536,
        .core = proc_core(1), /* as in `transfer`: a host of its own would have its own */
    }};
    char why[SPAWN_WHY_BYTES] = "";

    o[1] = o[0];
    o[1].node = "dest";
    o[1].core = proc_core(0);
    if (!tempdir_make(f->dir, sizeof f->dir, "tern-bench"))
        return false;
    if (daemon_start_pair(&f->source, &f->dest, f->dir, o, why))
        return true;
    fprintf(stderr, "tern-bench: %s\n", why);
    return false;
}

static bool set_up(struct follow *f)
{
    uint32_t pages = 2 * f->ntokens / PAGE_TOKENS;

    f->source.pid = f->dest.pid = -1;
    f->tokens = mem_need(f->ntokens, sizeof *f->tokens);
    return start_daemons(f) &&
           member_start(&f->prefill, f->source.socket, "prefill", PAGE_TOKENS, PAGE_BYTES, pages) &&
           member_start(&f->decode, f->dest.socket, "decode", PAGE_TOKENS, PAGE_BYTES, pages) &&
           tern_connect(f->source.admin, MEMBER_CALL_MS, &f->admin[0]) == TERN_OK &&
           tern_connect(f->dest.admin, MEMBER_CALL_MS, &f->admin[1]) == TERN_OK &&
           admin_wait_peer(f->admin[1], "source", PEER_UP_MS);
}

static void tear_down(struct follow *f)
{
    engine_close(&f->prefill);
    engine_close(&f->decode);
    for (uint32_t i = 0; i < 2; i++)
        tern_destroy(f->admin[i]);
    daemon_stop(&f->source);
    daemon_stop(&f->dest);
    if (f->dir[0])
        tempdir_remove(f->dir);
    free(f->tokens);
}

/* ---- one pass ---- */

/* A prompt that no pass had, with its bytes in the source's pages, of which nothing is told yet. */
static bool begin(struct follow *f, struct hand *h)
{
    block_tokens(9000 + f->passes++, 0, f->ntokens, f->tokens);
    if (!member_ok(&f->prefill, "a Match",
                   engine_begin(&h->from, &f->prefill, f->tokens, f->ntokens)) ||
        !member_ok(&f->prefill, "an Extend", engine_extend(&h->from, f->ntokens, 0)))
        return false;
    engine_write(&h->from, 0, f->ntokens);
    return member_ok(&f->decode, "a Match",
                     engine_begin(&h->to, &f->decode, f->tokens, f->ntokens));
}

static void until(uint64_t when_ns)
{
    for (uint64_t now = clock_ns(); now < when_ns; now = clock_ns())
        nanosleep(&(struct timespec){.tv_nsec = (long)(when_ns - now)}, NULL);
}

static bool hand_over(struct follow *f, struct hand *h)
{
    struct engine *e = &f->prefill;

    return member_ok(e, "a hand-over",
                     tern_handoff(e->tern, h->from.id, e->step, "first token", BLOB_BYTES, 0,
                                  MEMBER_CALL_MS, &h->ticket));
}

/* The chunks are computed one after the other. As a scheduler does it, all of a step is told when
 * it is launched: its commit, and with the last one the hand-over. Then it runs, and is done. */
static bool compute(struct follow *f, struct hand *h)
{
    struct engine *e = &f->prefill;
    uint64_t start = clock_ns();

    for (uint32_t at = CHUNK_TOKENS; at <= f->ntokens; at += CHUNK_TOKENS) {
        e->step++;
        if (!member_ok(e, "an Extend", engine_extend(&h->from, 0, at)) ||
            !member_ok(e, "a commit", engine_commit(&h->from, at)) ||
            (at == f->ntokens && !hand_over(f, h)))
            return false;
        until(start + at / CHUNK_TOKENS * f->chunk_ns);
        h->done_ns = clock_ns();
        if (!member_ok(e, "a step", tern_done_step(e->map, e->step)))
            return false;
    }
    return true;
}

/* The answer of the fetch: *ret_ns from the last step on. All of it is compared. */
static bool arrive(struct follow *f, struct hand *h, uint64_t *ret_ns)
{
    struct tern_answer a;

    if (!member_ok(&f->decode, "a Fetch", answer_wait(f->decode.tern, MEMBER_CALL_MS, &a)))
        return false;
    *ret_ns = clock_ns() - h->done_ns;
    if (!member_ok(&f->decode, "a Fetch", a.err) ||
        !member_ok(&f->decode, "pages", engine_take(&h->to, &a.results[0])))
        return false;
    f->wrong += engine_wrong(&h->to, f->ntokens) + (a.results[0].blob_bytes != BLOB_BYTES);
    return true;
}

/* The next pass finds nothing. */
static bool end(struct follow *f, struct hand *h)
{
    struct daemon_status s;
    bool ok = member_ok(&f->decode, "closing a session", engine_end(&h->to));

    engine_free(&h->from); /* it was handed over */
    for (uint32_t i = 0; i < 2; i++)
        ok = ok && admin_empty(f->admin[i], 0, EVICT_MS, &s) && s.pages.total == s.pages.free;
    return ok;
}

static bool pass(struct follow *f, bool follows, uint64_t *ret_ns)
{
    struct hand h;
    bool ok = begin(f, &h);

    if (ok && follows)
        ok =
            member_ok(&f->prefill, "an early ticket",
                      tern_ticket_open(f->prefill.tern, h.from.id, 0, MEMBER_CALL_MS, &h.ticket)) &&
            member_ok(&f->decode, "a Fetch",
                      tern_submit_fetch_follow(f->decode.tern, h.to.id, h.ticket.text,
                                               TERN_STEP_NONE, 1));
    ok = ok && compute(f, &h);
    if (ok && !follows)
        ok = member_ok(
            &f->decode, "a Fetch",
            tern_submit_fetch_ticket(f->decode.tern, h.to.id, h.ticket.text, TERN_STEP_NONE, 1));
    return ok && arrive(f, &h, ret_ns) && end(f, &h);
}

/* ---- all of it ---- */

static bool measure(struct follow *f, double pace)
{
    uint32_t rounds = f->args->quick ? QUICK_ROUNDS : ROUNDS;
    uint64_t whole = 0, exposed = 0;

    series_init(&f->whole, ROUNDS);
    series_init(&f->exposed, ROUNDS);
    series_init(&f->ratio, ROUNDS);
    for (uint32_t i = 0; i < rounds + 1; i++) { /* the first warms memory and connections */
        series_clear(&f->whole);
        for (uint32_t k = 0; k < (i ? 0 : rounds); k++) {
            if (!pass(f, false, &whole))
                return false;
            series_add(&f->whole, (double)whole);
        }
        if (i == 0)
            f->chunk_ns = (uint64_t)(pace * series_median(&f->whole) * CHUNK_TOKENS / f->ntokens);
    }
    series_clear(&f->whole);
    for (uint32_t i = 0; i < rounds; i++) {
        if (!pass(f, false, &whole) || !pass(f, true, &exposed))
            return false;
        series_add(&f->whole, (double)whole);
        series_add(&f->exposed, (double)exposed);
        series_add(&f->ratio, (double)exposed / (double)whole);
    }
    return true;
}

static bool show(struct follow *f, double pace)
{
    double ratio = series_median(&f->ratio), us = 1e-3;
    struct bench_figure v[] = {
        {"exposed_us", series_median(&f->exposed) * us, "waited, following", "us", NULL},
        {"whole_us", series_median(&f->whole) * us, "waited, not following", "us", NULL},
        {"exposed_ratio", ratio, "ratio", "", "0.10"},
        {"chunk_us", (double)f->chunk_ns * us, "a chunk computes", "us", NULL},
        {"pace", pace, NULL, NULL, NULL},
        {"wrong_bytes", (double)f->wrong, "wrong bytes", "", "0"},
    };
    json_t *o = json_object();
    bool ok;

    bench_show(f->args, o, v, sizeof v / sizeof v[0]);
    if (f->args->json)
        json_print(o);
    json_decref(o);
    ok = bench_count(f->wrong == 0, "bytes were wrong");
    return bench_limit(f->args->quick || ratio <= EXPOSED_MAX,
                       "more than a tenth of the transfer is waited for") &&
           ok;
}

int bench_follow(const struct bench_args *args)
{
    struct follow f = {.args = args,
                       .ntokens = (args->quick ? QUICK_CHUNKS : CHUNKS) * CHUNK_TOKENS};
    double pace = args->pace > 0 ? args->pace : PACE;
    int status = 2;

    if (set_up(&f) && measure(&f, pace))
        status = show(&f, pace) ? 0 : 1;
    tear_down(&f);
    series_finish(&f.whole);
    series_finish(&f.exposed);
    series_finish(&f.ratio);
    return status;
}
