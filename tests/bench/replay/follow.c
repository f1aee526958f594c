/* See follow.h. The bytes are in the pages before a pass begins: the compute that is played here
 * runs on a device and leaves the processors alone. */
#include "follow.h"

#include <argp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "engine/admin.h"
#include "engine/bytes.h"
#include "engine/daemon.h"
#include "engine/engine.h"
#include "engine/json.h"
#include "engine/proc.h"
#include "engine/profile.h"
#include "engine/stats.h"

#define PAGE_TOKENS  64u
#define PAGE_BYTES   (256u << 10)
#define CHUNK_TOKENS 2048u
#define CHUNKS       16u
#define QUICK_CHUNKS 4u
#define ROUNDS       5u
#define QUICK_ROUNDS 2u
#define EXPOSED_MAX  0.10 /* of the time that decode waits without following */
#define PEER_UP_MS   10000
#define EVICT_MS     10000
#define CALL_MS      60000
#define BLOB_BYTES   11u

enum { KEY_PACE = 256, KEY_CHUNKS, KEY_QUICK, KEY_JSON };

static const struct argp_option table[] = {
    {"pace", KEY_PACE, "X", 0,
     "A chunk computes X times as long as its share of a whole transfer takes (1.2)", 0},
    {"chunks", KEY_CHUNKS, "N", 0,
     "Chunks of a prompt, 1 to 64 (16). Fewer than 16 are not judged by the tenth, as the last one "
     "is a larger part",
     0},
    {"quick", KEY_QUICK, 0, 0,
     "A shorter prompt and fewer rounds: a test of the program. Times are not judged", 0},
    {"json", KEY_JSON, 0, 0, "One JSON object on standard output instead of a table", 0},
    {0}};

struct options {
    double pace;
    uint32_t chunks;
    bool quick, json;
};

struct follow {
    const struct options *options;
    char dir[64];
    struct daemon source, dest;
    struct engine prefill, decode;
    struct tern *admin[2]; /* source, dest; owned */
    uint32_t *tokens;      /* owned */
    uint32_t ntokens, passes;
    uint64_t chunk_ns; /* time to compute a chunk */
    uint64_t wrong;
    struct series whole, exposed, ratio;
};

/* Both ends of one request. */
struct hand {
    struct engine_session from, to;
    struct tern_ticket ticket;
    uint64_t done_ns; /* when the last step was done */
};

/* Reports what failed. Returns true if err is OK. */
static bool fine(const struct engine *e, const char *what, enum tern_err err)
{
    const char *text = e->tern ? engine_why(e) : "";

    if (err != TERN_OK)
        fprintf(stderr, "tern-replay: %s: %s%s%s\n", what, tern_strerror(err), *text ? ": " : "",
                text);
    return err == TERN_OK;
}

/* ---- daemons and engines ---- */

static bool start_daemons(struct follow *f)
{
    uint32_t pages = f->ntokens / PAGE_TOKENS;
    struct daemon_options o[2] = {{
        .node = "source",
        .memory_bytes = pool_bytes_for(2 * pages, PAGE_BYTES) + (2u << 20),
        .page_bytes_min = PAGE_BYTES,
        .token_blocks = 8u * pages + 65536,
        .core = proc_core(1), /* as in `transfer`: a host of its own has its own */
    }};
    char why[SPAWN_WHY_BYTES] = "";

    o[1] = o[0];
    o[1].node = "dest";
    o[1].core = proc_core(0);
    if (!tempdir_make(f->dir, sizeof f->dir, "tern-replay"))
        return false;
    if (daemon_start_pair(&f->source, &f->dest, f->dir, o, why))
        return true;
    fprintf(stderr, "tern-replay: %s\n", why);
    return false;
}

static bool start_engine(const struct follow *f, struct engine *e, const char *socket,
                         const char *name)
{
    struct geometry g;

    geometry_plain(&g, PAGE_TOKENS, PAGE_BYTES, 2 * f->ntokens / PAGE_TOKENS);
    *e = (struct engine){.ns = {.model = "follow"}};
    return fine(e, socket, engine_open(e, socket, name, &g.layout, CALL_MS));
}

static bool set_up(struct follow *f)
{
    f->source.pid = f->dest.pid = -1;
    f->tokens = mem_need(f->ntokens, sizeof *f->tokens);
    return start_daemons(f) && start_engine(f, &f->prefill, f->source.socket, "prefill") &&
           start_engine(f, &f->decode, f->dest.socket, "decode") &&
           tern_connect(f->source.admin, CALL_MS, &f->admin[0]) == TERN_OK &&
           tern_connect(f->dest.admin, CALL_MS, &f->admin[1]) == TERN_OK &&
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

/* Begins a prompt that no earlier pass had: its bytes are in the source's pages, and the daemon
 * knows nothing of them yet. */
static bool begin(struct follow *f, struct hand *h)
{
    block_tokens(9000 + f->passes++, 0, f->ntokens, f->tokens);
    if (!fine(&f->prefill, "a Match", engine_begin(&h->from, &f->prefill, f->tokens, f->ntokens)) ||
        !fine(&f->prefill, "an Extend", engine_extend(&h->from, f->ntokens, 0)))
        return false;
    engine_write(&h->from, 0, f->ntokens);
    return fine(&f->decode, "a Match", engine_begin(&h->to, &f->decode, f->tokens, f->ntokens));
}

static void until(uint64_t when_ns)
{
    for (uint64_t now = clock_ns(); now < when_ns; now = clock_ns())
        nanosleep(&(struct timespec){.tv_nsec = (long)(when_ns - now)}, NULL);
}

static bool hand_over(struct follow *f, struct hand *h)
{
    struct engine *e = &f->prefill;

    return fine(e, "a hand-over",
                tern_handoff(e->tern, h->from.id, e->step, "first token", BLOB_BYTES, 0, CALL_MS,
                             &h->ticket));
}

/* Computes the chunks one after the other, a step each. Like a scheduler it sends everything about
 * a chunk when it launches it: its commit, and with the last chunk the hand-over. Then the chunk
 * runs and its step is done. */
static bool compute(struct follow *f, struct hand *h)
{
    struct engine *e = &f->prefill;
    uint64_t start = clock_ns();

    for (uint32_t at = CHUNK_TOKENS; at <= f->ntokens; at += CHUNK_TOKENS) {
        e->step++;
        if (!fine(e, "an Extend", engine_extend(&h->from, 0, at)) ||
            !fine(e, "a commit", engine_commit(&h->from, at)) ||
            (at == f->ntokens && !hand_over(f, h)))
            return false;
        until(start + at / CHUNK_TOKENS * f->chunk_ns);
        h->done_ns = clock_ns();
        if (!fine(e, "a step", tern_done_step(e->map, e->step)))
            return false;
    }
    return true;
}

/* Waits for the answer of the fetch; *ret_ns counts from the last step. Compares everything. */
static bool arrive(struct follow *f, struct hand *h, uint64_t *ret_ns)
{
    struct tern_answer a;

    if (!fine(&f->decode, "a Fetch", answer_wait(f->decode.tern, CALL_MS, &a)))
        return false;
    *ret_ns = clock_ns() - h->done_ns;
    if (!fine(&f->decode, "a Fetch", a.err) ||
        !fine(&f->decode, "pages", engine_take(&h->to, &a.results[0])))
        return false;
    f->wrong += engine_wrong(&h->to, f->ntokens) + (a.results[0].blob_bytes != BLOB_BYTES);
    return true;
}

/* Cleans up, so that the next pass finds nothing. */
static bool end(struct follow *f, struct hand *h)
{
    struct daemon_status s;
    bool ok = fine(&f->decode, "closing a session", engine_end(&h->to));

    engine_free(&h->from); /* its session was handed over */
    for (uint32_t i = 0; i < 2; i++)
        ok = ok && admin_empty(f->admin[i], 0, EVICT_MS, &s) && s.pages.total == s.pages.free;
    return ok;
}

static bool pass(struct follow *f, bool follows, uint64_t *ret_ns)
{
    struct hand h;
    bool ok = begin(f, &h);

    if (ok && follows)
        ok = fine(&f->prefill, "an early ticket",
                  tern_ticket_open(f->prefill.tern, h.from.id, 0, CALL_MS, &h.ticket)) &&
             fine(&f->decode, "a Fetch",
                  tern_submit_fetch(f->decode.tern, h.to.id,
                                    &(struct tern_fetch){.ticket = h.ticket.text,
                                                         .follow = true,
                                                         .step = TERN_STEP_NONE},
                                    1));
    ok = ok && compute(f, &h);
    if (ok && !follows)
        ok = fine(&f->decode, "a Fetch",
                  tern_submit_fetch(
                      f->decode.tern, h.to.id,
                      &(struct tern_fetch){.ticket = h.ticket.text, .step = TERN_STEP_NONE}, 1));
    return ok && arrive(f, &h, ret_ns) && end(f, &h);
}

/* ---- all of it ---- */

/* Both ways alternate: the machine's speed drifts. */
static bool measure(struct follow *f)
{
    uint32_t rounds = f->options->quick ? QUICK_ROUNDS : ROUNDS;
    uint64_t whole = 0, exposed = 0;

    series_init(&f->whole, ROUNDS);
    series_init(&f->exposed, ROUNDS);
    series_init(&f->ratio, ROUNDS);
    if (!pass(f, false, &whole)) /* warms memory and connections */
        return false;
    for (uint32_t i = 0; i < rounds; i++) {
        if (!pass(f, false, &whole))
            return false;
        series_add(&f->whole, (double)whole);
    }
    f->chunk_ns =
        (uint64_t)(f->options->pace * series_median(&f->whole) * CHUNK_TOKENS / f->ntokens);
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

/* Returns the program's exit status. */
static int report(struct follow *f)
{
    const struct options *o = f->options;
    double exposed = series_median(&f->exposed) * 1e-3, whole = series_median(&f->whole) * 1e-3,
           ratio = series_median(&f->ratio), chunk = (double)f->chunk_ns * 1e-3;
    bool late = !o->quick && o->chunks >= CHUNKS && ratio > EXPOSED_MAX;

    if (o->json) {
        json_t *j = json_object();

        json_put_f64(j, "exposed_us", exposed);
        json_put_f64(j, "whole_us", whole);
        json_put_f64(j, "exposed_ratio", ratio);
        json_put_f64(j, "chunk_us", chunk);
        json_put_f64(j, "pace", o->pace);
        json_put_u64(j, "prompt_tokens", f->ntokens);
        json_put_u64(j, "wrong_bytes", f->wrong);
        json_print(j);
        json_decref(j);
    } else {
        printf("prompts of %u tokens in chunks of %u, %u KiB a page of %u, pace %.2g\n\n"
               "  %-28s %12.0f us\n  %-28s %12.0f us\n  %-28s %12.3f     at most %.2f\n"
               "  %-28s %12.0f us\n  %-28s %12llu\n",
               f->ntokens, CHUNK_TOKENS, PAGE_BYTES >> 10, PAGE_TOKENS, o->pace,
               "waited, following", exposed, "waited, not following", whole, "ratio", ratio,
               EXPOSED_MAX, "a chunk computes", chunk, "wrong bytes", (unsigned long long)f->wrong);
    }
    if (f->wrong > 0)
        fprintf(stderr, "tern-replay: bytes were wrong\n");
    if (late)
        fprintf(stderr, "tern-replay: more than a tenth of the transfer is waited for\n");
    return f->wrong > 0 || late;
}

/* ---- options ---- */

static uint32_t count_of(struct argp_state *state, const char *arg, const char *name,
                         uint32_t least, uint32_t most)
{
    char *end;
    unsigned long n = strtoul(arg, &end, 10);

    if (end == arg || *end || n < least || n > most)
        argp_error(state, "%s takes a number from %u to %u", name, least, most);
    return (uint32_t)n;
}

static error_t read_option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    char *end;

    switch (key) {
    case KEY_PACE:
        o->pace = strtod(arg, &end);
        if (end == arg || *end || !(o->pace > 0 && o->pace <= 100))
            argp_error(state, "--pace takes a number above 0, of at most 100");
        return 0;
    case KEY_CHUNKS: o->chunks = count_of(state, arg, "--chunks", 1, 64); return 0;
    case KEY_QUICK: o->quick = true; return 0;
    case KEY_JSON: o->json = true; return 0;
    case ARGP_KEY_ARG: argp_error(state, "\"%s\" is not an option", arg); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int follow_main(int argc, char **argv)
{
    static const struct argp parser = {
        .options = table,
        .parser = read_option,
        .doc = "Measures how much of a transfer decode waits for when it follows prefill by an "
               "early ticket, beside hand-overs whose transfer begins when all is computed, and "
               "compares every byte. Both are waited for from the last step of prefill to the "
               "answer of the fetch.\vPools of different sharding are followed by --reshard "
               "--follow. Exit status: 0 if no byte was wrong and at most a tenth of the transfer "
               "was waited for, 1 if not, 2 if it could not be measured."};
    struct options o = {.pace = 1.2, .chunks = CHUNKS};
    struct follow f = {.options = &o};
    int status = 2;

    argp_err_exit_status = 2;
    argp_parse(&parser, argc, argv, 0, NULL, &o);
    signal(SIGPIPE, SIG_IGN);
    if (o.quick && o.chunks > QUICK_CHUNKS)
        o.chunks = QUICK_CHUNKS;
    f.ntokens = o.chunks * CHUNK_TOKENS;
    if (set_up(&f) && measure(&f))
        status = report(&f);
    tear_down(&f);
    series_finish(&f.whole);
    series_finish(&f.exposed);
    series_finish(&f.ratio);
    return status;
}
