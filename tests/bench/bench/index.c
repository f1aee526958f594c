/* tern-bench index. It measures a full hit of 49,152 tokens in a tree 50 turns deep, answered with
 * all 768 page handles, against memcmp of the same bytes; pinning and unpinning a leaf near the
 * root and one at the bottom; one more commit of a session with a window, at three depths
 * (supersede.h); and the longest step while a full pool is evicted (longest.h). Both sides of a
 * comparison alternate within one run, so that a change of clock speed hits both. */
#include <stdio.h>
#include <string.h>

#include "core/tree/nodes.h"
#include "core_rig.h"
#include "engine/bytes.h"
#include "engine/json.h"
#include "engine/proc.h"
#include "engine/stats.h"
#include "longest.h"
#include "supersede.h"

#define PAGE_TOKENS 64
#define PAGES       768
#define TOKENS      (PAGES * PAGE_TOKENS)
#define TURNS       50
#define TOUCH_BYTES (64u << 20)
#define PIN_PAIRS   4000 /* in one measured run */
#define SAMPLES_MAX 4096

/* Called through a pointer that the compiler must read, so that it leaves out no comparison. */
static int (*volatile compare)(const void *, const void *, size_t) = memcmp;

struct figures {
    struct series match_warm, memcmp_warm, match_cold, memcmp_cold, insert, pin_shallow, pin_deep;
    struct supersede_figures supersede;
    struct longest_figures longest;
};

struct index_bench {
    struct core_rig rig;
    struct figures f;
    uint32_t *tokens, *copy, *other; /* owned: the sequence, the same again, and another one */
    uint8_t *touched;                /* owned: TOUCH_BYTES */
};

static bool insert_turn(struct index_bench *b, struct session_id session, const uint32_t *tokens,
                        uint32_t from, uint32_t to)
{
    double us;

    if (!core_rig_turn(&b->rig, session, tokens, from, to, &us))
        return false;
    series_add(&b->f.insert, us);
    core_rig_settle(&b->rig);
    return true;
}

static bool grow_tree(struct index_bench *b)
{
    struct session_id session;
    uint32_t from = 0;

    if (!core_rig_open(&b->rig, &session))
        return false;
    for (uint32_t turn = 1; turn <= TURNS; turn++) {
        uint32_t to = PAGES * turn / TURNS * PAGE_TOKENS;

        if (!insert_turn(b, session, b->tokens, from, to))
            return false;
        from = to;
    }
    if (!core_rig_close(&b->rig, session) || !core_rig_open(&b->rig, &session))
        return false;
    b->f.insert.n = TURNS; /* the leaf near the root is not one of the turns */
    if (!insert_turn(b, session, b->other, 0, PAGE_TOKENS))
        return false;
    b->f.insert.n = TURNS;
    return core_rig_close(&b->rig, session);
}

/* Reads and writes as much as the caches hold, so that both sides start from memory. */
static void touch_memory(struct index_bench *b)
{
    for (size_t i = 0; i < TOUCH_BYTES; i += 64)
        b->touched[i]++;
}

/* Runs a Match in a session of its own. Fails unless every token is found and every handle is in
 * the answer. */
static bool match_once(struct index_bench *b, bool cold, double *ret_us)
{
    struct session_id session;
    struct request match = {.op = OP_MATCH, .match.tokens = {.v = b->tokens, .n = TOKENS}};
    const struct reply *r;
    uint64_t start;
    uint32_t handles = 0;

    if (!core_rig_open(&b->rig, &session))
        return false;
    match.match.session = session;
    if (cold)
        touch_memory(b);
    start = clock_ns();
    r = core_rig_ask(&b->rig, &match);
    *ret_us = (double)(clock_ns() - start) / 1e3;
    if (!r || r->err != TERN_OK || r->match.matched != TOKENS)
        return false;
    for (uint32_t i = 0; i < r->nruns; i++)
        handles += r->runs[i].n;
    return handles == PAGES && core_rig_close(&b->rig, session);
}

static bool memcmp_once(struct index_bench *b, bool cold, double *ret_us)
{
    uint64_t start;
    int differs;

    if (cold)
        touch_memory(b);
    start = clock_ns();
    differs = compare(b->tokens, b->copy, TOKENS * sizeof *b->tokens);
    *ret_us = (double)(clock_ns() - start) / 1e3;
    return differs == 0;
}

/* Warm is the second Match in a row. */
static bool measure_match(struct index_bench *b, uint32_t rounds, bool cold, struct series *match,
                          struct series *raw)
{
    double us;

    for (uint32_t i = 0; i < rounds; i++) {
        if ((!cold && !match_once(b, cold, &us)) || !match_once(b, cold, &us))
            return false;
        series_add(match, us);
        if ((!cold && !memcmp_once(b, cold, &us)) || !memcmp_once(b, cold, &us))
            return false;
        series_add(raw, us);
    }
    return true;
}

static uint32_t find_leaf(const struct index_bench *b, uint32_t depth)
{
    struct node_view v;

    for (uint32_t slot = 0; slot < core_limits_of(b->rig.core)->nodes; slot++) {
        if (core_node_view(b->rig.core, slot, &v) && v.depth == depth && v.children == 0)
            return slot;
    }
    return NONE;
}

static double pin_pairs_ns(struct core *core, uint32_t node)
{
    uint64_t start = clock_ns();

    for (uint32_t i = 0; i < PIN_PAIRS; i++) {
        node_pin(core, node, REF_DEVICE);
        node_unpin(core, node, REF_DEVICE);
    }
    return (double)(clock_ns() - start) / PIN_PAIRS;
}

static bool measure_pins(struct index_bench *b, uint32_t rounds)
{
    uint32_t shallow = find_leaf(b, PAGE_TOKENS), deep = find_leaf(b, TOKENS);

    if (shallow == NONE || deep == NONE)
        return false;
    pin_pairs_ns(b->rig.core, shallow);
    pin_pairs_ns(b->rig.core, deep);
    for (uint32_t i = 0; i < rounds; i++) {
        series_add(&b->f.pin_shallow, pin_pairs_ns(b->rig.core, shallow));
        series_add(&b->f.pin_deep, pin_pairs_ns(b->rig.core, deep));
    }
    return true;
}

static bool set_up(struct index_bench *b)
{
    static const struct req_pool_open layout = {.ngroups = 1,
                                                .group = {{.page_tokens = PAGE_TOKENS}}};
    struct series *all[] = {&b->f.match_warm,  &b->f.memcmp_warm, &b->f.match_cold,
                            &b->f.memcmp_cold, &b->f.insert,      &b->f.pin_shallow,
                            &b->f.pin_deep};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        series_init(all[i], SAMPLES_MAX);
    b->tokens = mem_need(TOKENS, sizeof *b->tokens);
    b->copy = mem_need(TOKENS, sizeof *b->copy);
    b->other = mem_need(PAGE_TOKENS, sizeof *b->other);
    b->touched = mem_need(1, TOUCH_BYTES);
    block_tokens(1, 0, TOKENS, b->tokens);
    memcpy(b->copy, b->tokens, TOKENS * sizeof *b->tokens);
    block_tokens(2, 0, PAGE_TOKENS, b->other);
    return core_rig_init(&b->rig, &layout, 4 * PAGES) && grow_tree(b);
}

static int show(struct index_bench *b, const struct bench_args *args)
{
    double match_warm = series_median(&b->f.match_warm),
           memcmp_warm = series_median(&b->f.memcmp_warm);
    double match_cold = series_median(&b->f.match_cold),
           memcmp_cold = series_median(&b->f.memcmp_cold);
    double shallow = series_median(&b->f.pin_shallow), deep = series_median(&b->f.pin_deep);
    const struct bench_figure figures[] = {
        {"match_warm_us", match_warm, "match, warm", "us", "at most 4 x memcmp"},
        {"memcmp_warm_us", memcmp_warm, "memcmp, warm", "us", NULL},
        {"match_cold_us", match_cold, "match, cold", "us", "at most 5 x memcmp"},
        {"memcmp_cold_us", memcmp_cold, "memcmp, cold", "us", NULL},
        {"insert_us", series_median(&b->f.insert), "insert, one turn", "us", NULL},
        {"pin_shallow_ns", shallow, "pin + unpin, depth 64", "ns", NULL},
        {"pin_deep_ns", deep, "pin + unpin, depth 49,152", "ns", "at most 3 ns more"},
    };
    json_t *o = json_object();
    bool ok;

    if (!args->json)
        puts("index: 49,152 tokens in 50 turns, 64 a page, full hit with 768 handles");
    bench_show(args, o, figures, sizeof figures / sizeof figures[0]);
    supersede_show(&b->f.supersede, args, o);
    longest_show(&b->f.longest, args, o);
    if (args->json)
        json_print(o);
    json_decref(o);
    ok = bench_limit(match_warm <= 4 * memcmp_warm, "match_warm_us <= 4 x memcmp_warm_us");
    ok = bench_limit(match_cold <= 5 * memcmp_cold, "match_cold_us <= 5 x memcmp_cold_us") && ok;
    ok = bench_limit(deep - shallow <= 3, "pin_deep_ns - pin_shallow_ns <= 3") && ok;
    ok = supersede_limit(&b->f.supersede) && ok;
    return ok ? 0 : 1;
}

int bench_index(const struct bench_args *args)
{
    static struct index_bench b;
    uint32_t warm = args->quick ? 20 : 1000, cold = args->quick ? 5 : 60,
             pins = args->quick ? 20 : 400, sessions = args->quick ? 3 : 100;
    int status = 2;

    if (set_up(&b) && measure_match(&b, warm, false, &b.f.match_warm, &b.f.memcmp_warm) &&
        measure_match(&b, cold, true, &b.f.match_cold, &b.f.memcmp_cold) &&
        measure_pins(&b, pins) && supersede_measure(&b.f.supersede, sessions) &&
        longest_measure(&b.f.longest, args->quick ? 20000 : 460000))
        status = show(&b, args);
    else
        fprintf(stderr, "tern-bench index: the core did not answer as it must\n");
    core_rig_finish(&b.rig);
    return status;
}
