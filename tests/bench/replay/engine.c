/* The common part of both engines: see engine.h. One thread, one connection; all memory is taken at
 * the start but for the list of page jobs, which grows to what one step touches. */
#include "engine.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "spawn.h"
#include "stats.h"

#define BACKOFF_MAX_MS 5

void engine_says(struct engine *e, const char *format, ...)
{
    va_list args;

    if (e->why[0])
        return;
    va_start(args, format);
    vsnprintf(e->why, BOARD_WHY_BYTES, format, args);
    va_end(args);
}

static bool make_turns(struct engine *e)
{
    uint32_t pages = PROMPT_TOKENS_MAX / e->page_tokens + 1;

    e->turns = calloc(e->nturns, sizeof *e->turns);
    e->ops = calloc(2 * (size_t)e->nturns, sizeof *e->ops);
    e->results = calloc(2 * (size_t)e->nturns, sizeof *e->results);
    e->op_turn = calloc(2 * (size_t)e->nturns, sizeof *e->op_turn);
    if (!e->turns || !e->ops || !e->results || !e->op_turn)
        return false;
    for (uint32_t i = 0; i < e->nturns; i++) {
        struct turn *turn = &e->turns[i];

        turn->tokens = malloc(PROMPT_TOKENS_MAX * sizeof *turn->tokens);
        turn->prefix = malloc(pages * sizeof *turn->prefix);
        turn->table = malloc(pages * sizeof *turn->table);
        if (!prompt_init(&turn->prompt) || !turn->tokens || !turn->prefix || !turn->table)
            return false;
    }
    return true;
}

static bool fail(struct engine *e, const char *what, enum tern_err err)
{
    const char *text = e->tern ? tern_error_text(e->tern) : "";

    engine_says(e, "%s: %s%s%s", what, tern_strerror(err), *text ? ": " : "", text);
    return false;
}

static bool open_pool(struct engine *e, const char *socket, const char *name)
{
    uint32_t align = 0;
    enum tern_err err = tern_connect(socket, CALL_MS, &e->tern);

    if (err != TERN_OK) {
        engine_says(e, "%s: %s", socket, tern_strerror(err));
        return false;
    }
    err = tern_join(e->tern, name, TERN_BOTH, 0, e->geometry.ranks, CALL_MS);
    if (err != TERN_OK)
        return fail(e, "joining", err);
    err = tern_pool_open(e->tern, &e->geometry.layout, CALL_MS, &e->pool, &align);
    if (err != TERN_OK)
        return fail(e, "opening a pool", err);
    if (align != e->page_tokens) {
        engine_says(e, "the daemon aligns commits to %u tokens where %u were asked for", align,
                    e->page_tokens);
        return false;
    }
    err = tern_pool_map(e->tern, e->pool, CALL_MS, &e->map);
    return err == TERN_OK ? true : fail(e, "mapping the pool", err);
}

bool engine_start(struct engine *e, const struct options *o, struct board *board, char *why,
                  const char *socket, const char *name, uint32_t pool_pages)
{
    const char *reason;

    *e = (struct engine){.options = o, .board = board, .why = why, .nturns = o->concurrency};
    e->page_tokens = o->profile->page_tokens;
    e->ns = (struct tern_namespace){.model = o->profile->name, .revision = "1", .salt = "replay"};
    e->root = content_root(SPAWN_TENANT, e->ns.model, e->ns.salt, o->profile->group);
    reason = geometry_init(&e->geometry, o->profile, o->page_bytes, o->ranks, pool_pages);
    if (!reason)
        reason = team_start(&e->team, socket, name, &e->geometry);
    if (!reason && !make_turns(e))
        reason = "no memory";
    if (reason) {
        engine_says(e, "%s", reason);
        return false;
    }
    if (!open_pool(e, socket, name))
        return false;
    reason = team_map(&e->team, e->pool, e->map);
    if (reason)
        engine_says(e, "%s", reason);
    return reason == NULL;
}

void engine_finish(struct engine *e)
{
    team_end(&e->team);
    tern_destroy(e->tern);
    for (uint32_t i = 0; e->turns && i < e->nturns; i++) {
        prompt_finish(&e->turns[i].prompt);
        free(e->turns[i].tokens);
        free(e->turns[i].prefix);
        free(e->turns[i].table);
    }
    free(e->turns);
    free(e->ops);
    free(e->results);
    free(e->op_turn);
    free(e->jobs);
}

void turn_load(struct engine *e, struct turn *turn)
{
    uint32_t pt = e->page_tokens, n = turn->prompt.input_length;
    uint64_t h = e->root;

    prompt_tokens(&turn->prompt, turn->tokens);
    turn->whole_pages = n / pt;
    turn->pages = (n + pt - 1) / pt;
    turn->target = turn->whole_pages * pt;
    for (uint32_t i = 0; i < turn->pages; i++) {
        h = content_chain(h, turn->tokens + i * pt, i < turn->whole_pages ? pt : n - turn->target);
        turn->prefix[i] = h;
    }
    turn->tries = 0;
    turn->outcome = TERN_OK;
}

bool turn_runs(struct turn *turn, const struct tern_result *result, uint32_t *ret_pages)
{
    for (uint32_t r = 0; r < result->nruns; r++) {
        const struct tern_run *run = &result->runs[r];

        if (run->group != 0 || run->first > turn->pages || run->n > turn->pages - run->first)
            return false;
        for (uint32_t i = 0; i < run->n; i++)
            turn->table[run->first + i] = run->pages[i].index;
        *ret_pages += run->n;
    }
    return true;
}

enum tern_err turn_begin(struct engine *e, struct turn *turn, uint64_t *ret_match_ns)
{
    struct tern_tokens tokens = {.v = turn->tokens, .n = turn->prompt.input_length};
    struct tern_result result;
    uint64_t start;
    enum tern_err err;

    turn->session = 0;
    turn->step = 0;
    turn->matched = turn->hits = turn->arrived = 0;
    memset(turn->table, 0,
           turn->pages * sizeof *turn->table); /* 0 is no page: a gap is seen when it is compared */
    err = tern_session_open(e->tern, e->pool, &e->ns, CALL_MS, &turn->session);
    if (err != TERN_OK)
        return err;
    start = clock_ns();
    err = tern_match(e->tern, turn->session, &tokens, 0, CALL_MS, &result);
    *ret_match_ns = clock_ns() - start;
    if (err != TERN_OK)
        return err;
    turn->matched = result.matched;
    turn->state = TURN_MATCHED;
    if (result.matched > turn->target || result.matched % e->page_tokens ||
        !turn_runs(turn, &result, &turn->hits) || turn->hits != result.matched / e->page_tokens) {
        engine_says(e, "request %llu: the answer to a Match names %u pages for %u tokens",
                    (unsigned long long)turn->prompt.index, turn->hits, result.matched);
        return TERN_INTERNAL;
    }
    return TERN_OK;
}

bool turn_may_begin(const struct engine *e, const struct turn *turn, uint64_t now_ns)
{
    bool alone = true;

    if (turn->state != TURN_WAITING || now_ns < turn->not_before_ns)
        return false;
    for (uint32_t i = 0; i < e->nturns; i++)
        alone = alone && (e->turns[i].state == TURN_IDLE || e->turns[i].state == TURN_WAITING);
    return alone || turn->tries == 0 || e->finished != turn->seen_finished;
}

bool turn_retry(struct engine *e, struct turn *turn, enum tern_err err)
{
    enum tern_err_category cat = tern_category(err);
    uint32_t ms = turn->tries < BACKOFF_MAX_MS ? turn->tries + 1 : BACKOFF_MAX_MS;
    bool again = (cat == TERN_CAT_RETRY || cat == TERN_CAT_BUSY || err == TERN_CORRUPT) &&
                 ++turn->tries < TRIES_MAX;

    if (again && err == TERN_PEER_LOST)
        ms = 50;
    turn->seen_finished = e->finished;
    turn->not_before_ns = clock_ns() + ms * UINT64_C(1000000);
    if (turn->session)
        turn->state = again ? TURN_ABORTING : TURN_CLOSING;
    else
        turn->state = again ? TURN_WAITING : TURN_CLOSING;
    if (again)
        return false;
    engine_says(e, "request %llu failed after %u tries: %s", (unsigned long long)turn->prompt.index,
                turn->tries, tern_strerror(err));
    turn->outcome = err;
    return true;
}

bool engine_add_job(struct engine *e, const struct turn *turn, uint32_t page)
{
    if (e->njobs == e->jobs_cap) {
        uint32_t cap = e->jobs_cap ? e->jobs_cap * 2 : 4096;
        struct page_job *jobs = realloc(e->jobs, cap * sizeof *jobs);

        if (!jobs) {
            engine_says(e, "no memory");
            return false;
        }
        e->jobs = jobs;
        e->jobs_cap = cap;
    }
    e->jobs[e->njobs++] = (struct page_job){turn->prefix[page], page, turn->table[page]};
    return true;
}

void engine_add_op(struct engine *e, const struct turn *turn, struct tern_op op)
{
    op.session = turn->session;
    e->op_turn[e->nops] = (uint32_t)(turn - e->turns);
    e->ops[e->nops++] = op;
}

bool engine_step(struct engine *e)
{
    uint32_t done = 0;
    enum tern_err err = tern_step(e->tern, e->ops, e->nops, CALL_MS, e->results, &done);

    if (err != TERN_OK)
        return fail(e, "a step", err);
    if (done != e->nops) {
        engine_says(e, "a step of %u operations was answered for %u", e->nops, done);
        return false;
    }
    return true;
}
