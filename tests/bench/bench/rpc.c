/* tern-bench rpc: a Match of 64 new tokens on a session of 49,152, over libtern to a real daemon,
 * beside an io_uring echo of as many bytes over the same kind of socket, alternating. First with
 * client and server on one core, then on two. Then one Step for 256 sessions, Matches in a
 * pipeline, a Match and an echo beside fetches at full rate into the same daemon, and decode steps
 * over a lease. */
#include <math.h>
#include <stdio.h>
#include <sys/ioctl.h>

#include "bench.h"
#include "decode.h"
#include "engine/bytes.h"
#include "engine/daemon.h"
#include "engine/json.h"
#include "engine/proc.h"
#include "engine/profile.h"
#include "engine/stats.h"
#include "fetches.h"
#include "member.h"
#include "proto/frame.h"
#include "proto/tern.pb-c.h"
#include "raw_echo.h"

#define PAGE_TOKENS  64
#define PAGE_BYTES   4096
#define DEPTH_TOKENS 49152 /* of the session */
#define NEW_TOKENS   64
#define SESSIONS     256
#define PIPELINE     16
#define POOL_PAGES   40000
#define SAMPLES_MAX  200000

#define BUSY_PAGE_BYTES  (256u << 10)
#define BUSY_BYTES       (128u << 20) /* fetched by one pass */
#define BUSY_QUICK_BYTES (32u << 20)
#define BUSY_GAP_MS      1
#define BUSY_S           10
#define BUSY_QUICK_S     1
#define BUSY_RATIO_MAX   2.0

struct rpc {
    const struct bench_args *args;
    char dir[64];
    struct daemon daemon[2]; /* the measured one, and the source of its fetches */
    struct raw_echo raw;
    struct engine engine;
    struct engine_session session;
    uint32_t *tokens; /* owned: DEPTH_TOKENS and NEW_TOKENS */
    struct series match, raw_rtt, match2, raw2, step, step_room, step_full, step_ratio, busy,
        busy_raw;
    double pipelined, raw_pipelined, busy_gb_s;
    struct decode_figures decode, decode_slept;
};

static uint64_t busy_bytes(const struct bench_args *args)
{
    return args->quick ? BUSY_QUICK_BYTES : BUSY_BYTES;
}

static struct tern_tokens new_tokens(const struct rpc *r)
{
    return (struct tern_tokens){
        .v = r->tokens + DEPTH_TOKENS, .n = NEW_TOKENS, .base = DEPTH_TOKENS};
}

/* The measured call: a resume, so it can be repeated unchanged. */
static bool match_once(struct rpc *r)
{
    struct tern_tokens tokens = new_tokens(r);
    struct tern_result result;

    return member_ok(&r->engine, "a Match",
                     tern_match(r->engine.tern, r->session.id, &tokens, TERN_STEP_NONE,
                                MEMBER_CALL_MS, &result)) &&
           result.tokens == DEPTH_TOKENS + NEW_TOKENS && result.lengths.written == DEPTH_TOKENS;
}

static bool make_session(struct rpc *r)
{
    block_tokens(7, 0, DEPTH_TOKENS + NEW_TOKENS, r->tokens);
    return member_ok(&r->engine, "the first Match",
                     engine_begin(&r->session, &r->engine, r->tokens, DEPTH_TOKENS)) &&
           member_ok(&r->engine, "an extend",
                     engine_extend(&r->session, DEPTH_TOKENS, DEPTH_TOKENS)) &&
           member_ok(&r->engine, "a commit", engine_commit(&r->session, DEPTH_TOKENS));
}

static bool wait_answer(struct rpc *r, struct tern_answer *ret)
{
    return answer_wait(r->engine.tern, MEMBER_CALL_MS, ret) == TERN_OK && ret->err == TERN_OK;
}

/* Bytes of a Match and of its answer, frame headers included: the raw side sends as many. */
static bool frame_sizes(struct rpc *r, uint32_t *ret_request, uint32_t *ret_reply)
{
    Tern__Wire__Tokens tokens = TERN__WIRE__TOKENS__INIT;
    Tern__Wire__Match match = TERN__WIRE__MATCH__INIT;
    struct tern_tokens v = new_tokens(r);
    struct tern_answer answer;
    int reply = 0;

    tokens.has_kept = tokens.has_tokens = 1;
    tokens.kept = DEPTH_TOKENS;
    tokens.tokens.len = NEW_TOKENS * sizeof(uint32_t);
    match.tokens = &tokens;
    *ret_request = FRAME_HEADER_BYTES + (uint32_t)tern__wire__match__get_packed_size(&match);
    if (tern_submit_match(r->engine.tern, r->session.id, &v, TERN_STEP_NONE, 1) != TERN_OK)
        return false;
    sleep_ms(100); /* until the whole answer lies in the socket */
    if (ioctl(tern_fd(r->engine.tern, NULL), FIONREAD, &reply) != 0 || reply <= 0)
        return false;
    *ret_reply = (uint32_t)reply;
    return wait_answer(r, &answer);
}

static bool measure_rtt(struct rpc *r, uint32_t rounds, struct series *match, struct series *raw)
{
    for (uint32_t round = 0; round < rounds; round++) {
        for (uint32_t i = 0; i < 500; i++) {
            uint64_t start = clock_ns();

            if (!match_once(r))
                return false;
            series_add(match, (double)(clock_ns() - start) / 1e3);
        }
        for (uint32_t i = 0; i < 500; i++) {
            uint64_t start = clock_ns();

            if (!raw_echo_ping(&r->raw))
                return false;
            series_add(raw, (double)(clock_ns() - start) / 1e3);
        }
    }
    return true;
}

static bool pipeline(struct rpc *r, uint32_t n)
{
    struct tern_tokens tokens = new_tokens(r);
    struct tern_answer answer;
    uint32_t sent = 0, answered = 0;

    while (answered < n) {
        enum tern_err err;

        while (sent < n && sent - answered < PIPELINE &&
               tern_submit_match(r->engine.tern, r->session.id, &tokens, TERN_STEP_NONE, sent) ==
                   TERN_OK)
            sent++;
        if (!wait_answer(r, &answer))
            return false;
        answered++;
        while ((err = tern_poll(r->engine.tern, &answer)) == TERN_OK) {
            if (answer.err != TERN_OK)
                return false;
            answered++;
        }
        if (err != TERN_BUSY)
            return false;
    }
    return true;
}

static bool measure_pipeline(struct rpc *r, uint32_t rounds)
{
    const uint32_t n = 20000;
    struct series real, raw;
    bool ok = true;

    series_init(&real, rounds);
    series_init(&raw, rounds);
    for (uint32_t i = 0; ok && i < rounds; i++) {
        uint64_t start = clock_ns();

        ok = pipeline(r, n);
        series_add(&real, n / ((double)(clock_ns() - start) / 1e9));
        start = clock_ns();
        ok = ok && raw_echo_pipeline(&r->raw, n, PIPELINE);
        series_add(&raw, n / ((double)(clock_ns() - start) / 1e9));
    }
    r->pipelined = series_median(&real);
    r->raw_pipelined = series_median(&raw);
    series_finish(&real);
    series_finish(&raw);
    return ok;
}

/* A decode iteration: every session gets one more token. */
static bool step_once(struct rpc *r, struct engine_op *ops, struct tern_result *results,
                      uint32_t tokens)
{
    static const uint32_t token = 42;
    uint64_t start;
    uint32_t done;
    enum tern_err err;

    for (uint32_t i = 0; i < SESSIONS; i++) {
        ops[i].length = ops[i].written = tokens + 1;
        ops[i].tokens = (struct tern_tokens){.v = &token, .n = 1, .base = tokens};
    }
    start = clock_ns();
    err = ops_run(r->engine.batch, ops, SESSIONS, MEMBER_CALL_MS, results, &done);
    series_add(&r->step, (double)(clock_ns() - start) / 1e3);
    if (!member_ok(&r->engine, "a Step", err))
        return false;
    for (uint32_t i = 0; i < SESSIONS; i++) {
        if (!member_ok(&r->engine, "an extend in a Step", results[i].err) || done != SESSIONS)
            return false;
    }
    return true;
}

/* Runs the same operation for all sessions; each must return `err`. */
static bool step_all(struct rpc *r, struct engine_op *ops, struct engine_op op, enum tern_err err,
                     double *ret_us)
{
    static struct tern_result results[SESSIONS];
    uint64_t start, end;
    uint32_t done;

    for (uint32_t i = 0; i < SESSIONS; i++) {
        op.session = ops[i].session;
        ops[i] = op;
    }
    start = clock_ns();
    if (!member_ok(&r->engine, "a Step",
                   ops_run(r->engine.batch, ops, SESSIONS, MEMBER_CALL_MS, results, &done)))
        return false;
    end = clock_ns();
    *ret_us = (double)(end - start) / 1e3;
    for (uint32_t i = 0; i < SESSIONS; i++)
        if (results[i].err != err)
            return member_ok(&r->engine, "an operation of a Step", results[i].err) && false;
    return done == SESSIONS;
}

static enum tern_err hog_do(struct rpc *r, struct engine_op op, struct tern_result *ret)
{
    return op_do(r->engine.tern, &op, MEMBER_CALL_MS, ret);
}

/* A page for each session: while there is room, and while another session has all pages. A round's
 * ratio is that of its shortest times, which other work on the machine does not lengthen. */
static bool measure_exhausted(struct rpc *r, struct engine_op *ops, uint32_t rounds)
{
    const struct engine_op page = {.kind = ENGINE_EXTEND, .length = PAGE_TOKENS},
                           back = {.kind = ENGINE_REWIND, .step = TERN_STEP_NONE};
    struct engine_op take = {.kind = ENGINE_EXTEND},
                     give = {.kind = ENGINE_REWIND, .step = TERN_STEP_NONE};
    struct tern_result last;
    double us = 0, unused;
    bool ok = member_ok(&r->engine, "opening a session",
                        tern_session_open(r->engine.tern, r->engine.pool, &r->engine.ns, NULL,
                                          MEMBER_CALL_MS, &take.session));

    give.session = take.session;
    for (uint32_t round = 0; ok && round < rounds; round++) {
        double least_room = INFINITY, least_full = INFINITY;

        for (uint32_t i = 0; ok && i < 20; i++) {
            ok = step_all(r, ops, page, TERN_OK, &us) && step_all(r, ops, back, TERN_OK, &unused);
            series_add(&r->step_room, us);
            least_room = fmin(least_room, us);
        }
        take.length = POOL_PAGES * PAGE_TOKENS; /* too many: the refusal reports the free ones */
        ok = ok && hog_do(r, take, &last) == TERN_QUOTA;
        take.length = last.shortage.free * PAGE_TOKENS; /* as many as the others leave */
        ok = ok && hog_do(r, take, &last) == TERN_POOL_EXHAUSTED;
        take.length = (last.shortage.free + last.shortage.evictable) * PAGE_TOKENS;
        ok = ok && member_ok(&r->engine, "taking every page", hog_do(r, take, &last));
        for (uint32_t i = 0; ok && i < 20; i++) {
            ok = step_all(r, ops, page, TERN_POOL_EXHAUSTED, &us);
            series_add(&r->step_full, us);
            least_full = fmin(least_full, us);
        }
        series_add(&r->step_ratio, least_full / least_room);
        ok = ok && member_ok(&r->engine, "giving them back", hog_do(r, give, &last));
    }
    give.kind = ENGINE_CLOSE;
    return ok && hog_do(r, give, &last) == TERN_OK;
}

static bool measure_steps(struct rpc *r, uint32_t rounds)
{
    static struct engine_op ops[SESSIONS];
    static struct tern_result results[SESSIONS];
    double unused;
    bool ok = true;

    for (uint32_t i = 0; ok && i < SESSIONS; i++) {
        ops[i] = (struct engine_op){.kind = ENGINE_EXTEND};
        ok = member_ok(&r->engine, "opening a session",
                       tern_session_open(r->engine.tern, r->engine.pool, &r->engine.ns, NULL,
                                         MEMBER_CALL_MS, &ops[i].session));
    }
    for (uint32_t i = 0; ok && i < rounds; i++)
        ok = step_once(r, ops, results, i);
    ok = ok &&
         step_all(r, ops, (struct engine_op){.kind = ENGINE_REWIND, .step = TERN_STEP_NONE},
                  TERN_OK, &unused) &&
         measure_exhausted(r, ops, r->args->quick ? 6 : 30);
    for (uint32_t i = 0; ok && i < SESSIONS; i++)
        ok = engine_do(&(struct engine_session){.engine = &r->engine, .id = ops[i].session},
                       (struct engine_op){.kind = ENGINE_CLOSE, .step = TERN_STEP_NONE}) == TERN_OK;
    return ok;
}

/* A Match and a raw echo, alternating, while the daemon receives pages as fast as they arrive. */
static bool measure_busy(struct rpc *r)
{
    struct fetch_flood flood = {.dest = &r->daemon[0], .source = &r->daemon[1]};
    struct fetch_load load = {.pid = -1, .fd = -1};
    uint64_t until;
    bool ok = fetch_load_start(&load, &flood, BUSY_PAGE_BYTES, busy_bytes(r->args));

    until = clock_ns() + (r->args->quick ? BUSY_QUICK_S : BUSY_S) * UINT64_C(1000000000);
    while (ok && clock_ns() < until) {
        uint64_t start = clock_ns();

        ok = match_once(r);
        series_add(&r->busy, (double)(clock_ns() - start) / 1e3);
        sleep_ms(BUSY_GAP_MS);
        start = clock_ns();
        ok = ok && raw_echo_ping(&r->raw);
        series_add(&r->busy_raw, (double)(clock_ns() - start) / 1e3);
        sleep_ms(BUSY_GAP_MS);
    }
    return fetch_load_stop(&load, &r->busy_gb_s) && ok;
}

static bool start_daemons(struct rpc *r, int core)
{
    char why[SPAWN_WHY_BYTES] = "";
    uint64_t fetched = busy_bytes(r->args) + (16u << 20);
    struct daemon_options o[2] = {
        {.node = "here",
         .memory_bytes = pool_bytes_for(POOL_PAGES, PAGE_BYTES) +
                         pool_bytes_for(DECODE_PAGES, PAGE_BYTES) + fetched,
         .page_bytes_min = PAGE_BYTES,
         .core = core},
        {.node = "there", .memory_bytes = fetched, .page_bytes_min = BUSY_PAGE_BYTES, .core = -1}};

    if (!tempdir_make(r->dir, sizeof r->dir, "tern-bench"))
        return false;
    if (daemon_start_pair(&r->daemon[0], &r->daemon[1], r->dir, o, why))
        return true;
    fprintf(stderr, "tern-bench: %s\n", why);
    return false;
}

static bool measure(struct rpc *r)
{
    uint32_t rounds = r->args->quick ? 2 : 40, steps = r->args->quick ? 50 : 1500,
             pipes = r->args->quick ? 1 : 9, passes = r->args->quick ? 1 : 5;
    int first = proc_core(0), second = proc_core(1);
    uint32_t request = 0, reply = 0;
    bool ok;

    if (!start_daemons(r, first) || !member_start(&r->engine, r->daemon[0].socket, "bench",
                                                  PAGE_TOKENS, PAGE_BYTES, POOL_PAGES - 16))
        return false;
    ok = make_session(r) && frame_sizes(r, &request, &reply) &&
         raw_echo_start(&r->raw, request, reply, first);
    ok = ok && proc_pin(first) && measure_rtt(r, rounds, &r->match, &r->raw_rtt) &&
         measure_pipeline(r, pipes) && measure_steps(r, steps);
    if (ok && second >= 0)
        ok = proc_pin(second) && measure_rtt(r, rounds, &r->match2, &r->raw2);
    ok = ok &&
         decode_measure(r->daemon[0].socket, PAGE_BYTES, passes, second, second < 0, &r->raw,
                        &r->decode) &&
         decode_measure(r->daemon[0].socket, PAGE_BYTES, passes, second, true, &r->raw,
                        &r->decode_slept);
    return ok && proc_pin(-1) && measure_busy(r);
}

static int show(struct rpc *r)
{
    double match = series_median(&r->match), raw = series_median(&r->raw_rtt),
           step = series_median(&r->step), room = series_median(&r->step_room),
           full = series_median(&r->step_full), ratio = series_median(&r->step_ratio),
           busy = series_quantile(&r->busy, 0.99), busy_raw = series_quantile(&r->busy_raw, 0.99),
           decode = series_quantile(&r->decode.step, 0.99),
           trips = (double)r->decode.round_trips / (double)r->decode.steps;
    const struct bench_figure figures[] = {
        {"match_rtt_us_p50", match, "match, p50", "us", "at most 5 us over raw"},
        {"match_rtt_us_p99", series_quantile(&r->match, 0.99), "match, p99", "us", NULL},
        {"raw_rtt_us_p50", raw, "raw, p50", "us", NULL},
        {"match_rtt_us_p50_2core", series_median(&r->match2), "match, p50, two cores", "us", NULL},
        {"match_rtt_us_p99_2core", series_quantile(&r->match2, 0.99), NULL, NULL, NULL},
        {"raw_rtt_us_p50_2core", series_median(&r->raw2), "raw, p50, two cores", "us", NULL},
        {"step_us_p50", step, "step of 256, p50", "us", "at most 150 us"},
        {"step_room_us_p50", room, "a page each, p50", "us", NULL},
        {"step_exhausted_us_p50", full, "no page left, p50", "us", NULL},
        {"step_exhausted_ratio", ratio, "no page left, to a page each", "times", "at most 2"},
        {"pipelined_per_s", r->pipelined, "pipelined", "a second", "at least half of raw"},
        {"raw_pipelined_per_s", r->raw_pipelined, "raw, pipelined", "a second", NULL},
        {"busy_match_rtt_us_p99", busy, "match, p99, busy", "us", "at most twice raw, busy"},
        {"busy_raw_rtt_us_p99", busy_raw, "raw, p99, busy", "us", NULL},
        {"busy_ratio", busy / busy_raw, NULL, NULL, NULL},
        {"busy_fetch_gb_s", r->busy_gb_s, "fetched, busy", "GB/s", NULL},
        {"decode_step_us_p50", series_median(&r->decode.step), "decode of 256, p50", "us", NULL},
        {"decode_step_us_p99", decode, "decode of 256, p99", "us", "at most 20 us"},
        {"decode_slept_step_us_p50", series_median(&r->decode_slept.step), "after sleep, p50", "us",
         NULL},
        {"decode_slept_step_us_p99", series_quantile(&r->decode_slept.step, 0.99),
         "after sleep, p99", "us", NULL},
        {"decode_told_us_p50", series_median(&r->decode.told), "its answers taken, p50", "us",
         NULL},
        {"decode_told_us_p99", series_quantile(&r->decode.told, 0.99), "its answers taken, p99",
         "us", NULL},
        {"block_pool_step_us_p99", series_quantile(&r->decode.pool_step, 0.99), "block pool, p99",
         "us", NULL},
        {"small_pages_us_p50", series_median(&r->decode.touch), "raw, 32 small pages, p50", "us",
         NULL},
        {"small_pages_us_p99", series_quantile(&r->decode.touch, 0.99), "raw, 32 small pages, p99",
         "us", NULL},
        {"raw_send_us_p50", series_median(&r->decode.raw_send), "raw, send alone, p50", "us", NULL},
        {"raw_send_us_p99", series_quantile(&r->decode.raw_send, 0.99), "raw, send alone, p99",
         "us", NULL},
        {"decode_round_trips_per_step", trips, "round trips a step", "", "at most 0.1"},
    };
    json_t *o = json_object();
    bool ok;

    if (!r->args->json)
        printf("rpc: %u B there, %u B back; one core unless said\n", r->raw.request_bytes,
               r->raw.reply_bytes);
    bench_show(r->args, o, figures, sizeof figures / sizeof figures[0]);
    json_put_u64(o, "request_bytes", r->raw.request_bytes);
    json_put_u64(o, "reply_bytes", r->raw.reply_bytes);
    if (r->args->json)
        json_print(o);
    json_decref(o);
    ok = bench_limit(match - raw <= 5, "match_rtt_us_p50 - raw_rtt_us_p50 <= 5");
    ok = bench_limit(r->pipelined * 2 >= r->raw_pipelined,
                     "pipelined_per_s >= raw_pipelined_per_s / 2") &&
         ok;
    ok = bench_limit(step <= 150, "step_us_p50 <= 150") && ok;
    ok = bench_count(ratio <= 2, "step_exhausted_ratio <= 2") && ok;
    ok = bench_limit(decode <= 20, "decode_step_us_p99 <= 20") && ok;
    ok = bench_count(trips <= 0.1, "decode_round_trips_per_step <= 0.1") && ok;
    ok = bench_limit(busy <= BUSY_RATIO_MAX * busy_raw,
                     "busy_match_rtt_us_p99 <= 2 * busy_raw_rtt_us_p99") &&
         ok;
    return ok ? 0 : 1;
}

int bench_rpc(const struct bench_args *args)
{
    static struct rpc r;
    struct series *all[] = {&r.match,     &r.raw_rtt,   &r.match2,     &r.raw2, &r.step,
                            &r.step_room, &r.step_full, &r.step_ratio, &r.busy, &r.busy_raw};
    int status = 2;

    r.args = args;
    r.daemon[0].pid = r.daemon[1].pid = -1;
    r.raw = (struct raw_echo){.pid = -1, .fd = -1};
    r.tokens = mem_need(DEPTH_TOKENS + NEW_TOKENS, sizeof *r.tokens);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        series_init(all[i], SAMPLES_MAX);
    decode_figures_init(&r.decode);
    decode_figures_init(&r.decode_slept);
    if (measure(&r))
        status = show(&r);
    else
        fprintf(stderr, "tern-bench rpc: it could not be measured\n");
    decode_figures_finish(&r.decode);
    decode_figures_finish(&r.decode_slept);
    engine_free(&r.session);
    engine_close(&r.engine);
    raw_echo_stop(&r.raw);
    daemon_stop(&r.daemon[0]);
    daemon_stop(&r.daemon[1]);
    tempdir_remove(r.dir);
    return status;
}
