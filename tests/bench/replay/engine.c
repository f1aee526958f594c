/* The common part of both engines: see engine.h. One thread, one connection. All memory is
 * allocated at the start, except the list of page jobs, which grows to what a step touches. */
#include "engine.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/admin.h"
#include "engine/bytes.h"
#include "engine/daemon.h"
#include "engine/proc.h"
#include "engine/stats.h"

#define LOAD_CHUNKS 32 /* of a fetch from the host tier */

#define BACKOFF_MAX_MS 5
#define OPS_OF_TURN    3 /* in one Step */
#define POOL_TRIES     100u
#define POOL_PAUSE_US  50000u

void engine_says(struct engine *e, const char *format, ...)
{
    va_list args;

    if (e->why[0])
        return;
    va_start(args, format);
    vsnprintf(e->why, BOARD_WHY_BYTES, format, args);
    va_end(args);
}

static void make_turns(struct engine *e)
{
    e->turns = mem_need(e->nturns, sizeof *e->turns);
    e->ops = mem_need(OPS_OF_TURN * (size_t)e->nturns, sizeof *e->ops);
    e->results = mem_need(OPS_OF_TURN * (size_t)e->nturns, sizeof *e->results);
    e->op_turn = mem_need(OPS_OF_TURN * (size_t)e->nturns, sizeof *e->op_turn);
    for (uint32_t i = 0; i < e->nturns; i++) {
        struct turn *turn = &e->turns[i];

        turn->tokens = mem_need(PROMPT_TOKENS_MAX, sizeof *turn->tokens);
        table_init(&turn->table, e->geometry.groups, e->geometry.ngroups, PROMPT_TOKENS_MAX);
    }
}

/* The text of the daemon's last error; "" if it sent only the error code. */
static const char *daemon_words(const struct engine *e)
{
    return e->tern ? tern_error_text(e->tern, NULL) : "";
}

static bool fail(struct engine *e, const char *what, enum tern_err err)
{
    const char *text = daemon_words(e);

    engine_says(e, "%s: %s%s%s", what, tern_strerror(err), *text ? ": " : "", text);
    return false;
}

/* Opens the pool; a pool of an earlier run is freed within a moment. */
static enum tern_err ask_for_pool(struct engine *e, uint32_t *ret_align)
{
    enum tern_err err = TERN_BUSY;

    for (uint32_t i = 0; i < POOL_TRIES && err == TERN_BUSY; i++) {
        if (i > 0)
            usleep(POOL_PAUSE_US);
        err = tern_pool_open(e->tern, &e->geometry.layout, CALL_MS, &e->pool, ret_align);
    }
    return err;
}

static bool open_pool(struct engine *e, const char *socket, const char *name)
{
    uint32_t align = 0;
    enum tern_err err = tern_connect(socket, CALL_MS, &e->tern);

    if (err != TERN_OK) {
        engine_says(e, "%s: %s", socket, connect_why(err));
        return false;
    }
    err = tern_batch_create(e->tern, &e->batch);
    if (err != TERN_OK)
        return fail(e, "making a batch", err);
    err = rank_join(e->tern, name, TERN_BOTH, 0, e->geometry.ranks, CALL_MS);
    if (err != TERN_OK)
        return fail(e, "joining", err);
    err = ask_for_pool(e, &align);
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

static void take_groups(struct engine *e, const uint32_t *group_pages)
{
    geometry_caps(&e->geometry, group_pages, e->options->host_pages);
    e->geometry.layout.supersede = e->options->supersede;
    e->recurrent = -1;
    for (uint32_t g = 0; g < e->geometry.ngroups; g++) {
        const struct tern_group *group = &e->geometry.groups[g];

        e->root[g] = content_root(SPAWN_TENANT, e->ns.model, e->ns.salt, group->name);
        e->nhistory += group->family == TERN_HISTORY;
        if (group->family == TERN_RECURRENT)
            e->recurrent = (int)g;
    }
}

bool engine_start(struct engine *e, const struct options *o, struct board *board, char *why,
                  const char *socket, const char *name, const uint32_t *group_pages)
{
    const char *reason;

    *e = (struct engine){.options = o, .board = board, .why = why, .nturns = o->concurrency};
    e->page_tokens = o->profile->page_tokens;
    e->ns = (struct tern_namespace){.model = o->profile->name, .revision = "1", .salt = "replay"};
    reason = geometry_init(&e->geometry, o->profile, o->page_bytes, o->ranks, 1);
    if (!reason)
        take_groups(e, group_pages);
    if (!reason)
        reason = team_start(&e->team, socket, name, &e->geometry, o->checksums);
    if (reason) {
        engine_says(e, "%s", reason);
        return false;
    }
    make_turns(e);
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
    tern_batch_destroy(e->batch);
    tern_destroy(e->tern);
    for (uint32_t i = 0; e->turns && i < e->nturns; i++) {
        prompt_finish(&e->turns[i].prompt);
        free(e->turns[i].tokens);
        table_finish(&e->turns[i].table);
    }
    free(e->turns);
    free(e->ops);
    free(e->results);
    free(e->op_turn);
    free(e->jobs);
}

void turn_load(struct engine *e, struct turn *turn)
{
    uint32_t chunks = turn->prompt.input_length / e->page_tokens;

    prompt_tokens(&turn->prompt, turn->tokens);
    table_load(&turn->table, e->root, turn->tokens, turn->prompt.input_length);
    turn->whole_pages = chunks * e->nhistory;
    turn->target = chunks * e->page_tokens;
    turn->tries = 0;
    turn->handed = HANDED_NO;
    turn->handoff = 0;
    turn->trouble = TROUBLE_NONE;
    turn->fate = FATE_STANDS;
    turn->excuse = EXCUSE_NONE;
    turn->due_ns = 0;
    turn->ticket[0] = 0;
    turn->order = ++e->orders;
    turn->outcome = TERN_OK;
}

/* `depth` tokens are in the tree and pinned. */
static void turn_found(const struct engine *e, struct turn *turn, uint32_t depth)
{
    turn->matched = turn->committed = turn->written = turn->room = turn->ready = depth;
    turn->hits = depth / e->page_tokens * e->nhistory;
}

/* Returns true if a Match named every page of `at` tokens, of a window those needed to resume. */
static bool runs_cover(const struct engine *e, const uint32_t *got, uint32_t at)
{
    for (uint32_t g = 0; g < e->geometry.ngroups; g++) {
        const struct tern_group *group = &e->geometry.groups[g];

        if (group->family != TERN_RECURRENT &&
            got[g] != at / group->page_tokens - table_window_first(group, at))
            return false;
    }
    return true;
}

bool turn_extended(struct engine *e, struct turn *turn, const struct tern_result *result,
                   uint32_t from, uint32_t to)
{
    bool stateless = e->recurrent >= 0 && turn->table.group[e->recurrent].index[0] == 0;
    uint32_t got[PROFILE_GROUPS_MAX] = {0};
    bool right = table_take(&turn->table, result, got);

    for (uint32_t g = 0; g < e->geometry.ngroups; g++) {
        const struct tern_group *group = &e->geometry.groups[g];
        uint32_t want = div_up(to, group->page_tokens) - from / group->page_tokens;

        if (group->family != TERN_RECURRENT)
            right = right && got[g] == want;
        else /* the first extend returns the page, with the page whose state it copies */
            right = right && got[g] == stateless &&
                    (!stateless || (turn->table.group[g].from != 0) == (from > 0));
    }
    if (!right)
        engine_says(e, "request %llu: an extend does not name what is missing behind %u tokens",
                    (unsigned long long)turn->prompt.index, from);
    return right;
}

/* Resets the turn to an empty table with nothing found. */
static void turn_clear(struct turn *turn)
{
    turn->session = 0;
    turn->step = 0;
    turn->matched = turn->host_depth = turn->committed = turn->written = turn->room = turn->ready =
        0;
    turn->hits = turn->arrived = turn->waits = 0;
    turn->not_before_ns = 0;
    table_forget(&turn->table);
}

enum tern_err turn_begin(struct engine *e, struct turn *turn, uint64_t *ret_match_ns)
{
    struct tern_tokens tokens = {.v = turn->tokens, .n = turn->prompt.input_length};
    uint32_t got[PROFILE_GROUPS_MAX] = {0};
    struct tern_result result;
    uint64_t start;
    enum tern_err err;

    turn_clear(turn);
    err = tern_session_open(e->tern, e->pool, &e->ns, NULL, CALL_MS, &turn->session);
    if (err != TERN_OK)
        return err;
    start = clock_ns();
    err = tern_match(e->tern, turn->session, &tokens, TERN_STEP_NONE, CALL_MS, &result);
    *ret_match_ns = clock_ns() - start;
    if (err != TERN_OK)
        return err;
    turn->state = TURN_MATCHED;
    if (result.matched > turn->target || result.matched % e->page_tokens ||
        !table_take(&turn->table, &result, got) || !runs_cover(e, got, result.matched)) {
        engine_says(e, "request %llu: the answer to a Match does not name the pages of %u tokens",
                    (unsigned long long)turn->prompt.index, result.matched);
        return TERN_INTERNAL;
    }
    turn_found(e, turn, result.matched);
    if (result.host_depth > result.matched)
        turn->host_depth = result.host_depth < turn->target ? result.host_depth : turn->target;
    return TERN_OK;
}

/* A long prefix is loaded in pieces, so the pages it displaces and the host pages it frees need no
 * room twice. With STATE not every depth is a resume point, so the prefix is loaded whole. */
static uint32_t load_depth(const struct engine *e, const struct turn *turn)
{
    uint32_t piece = LOAD_CHUNKS * e->page_tokens;

    if (e->nhistory < e->geometry.ngroups || turn->host_depth - turn->matched <= piece)
        return turn->host_depth;
    return turn->matched + piece;
}

bool turn_load_host(struct engine *e, struct turn *turn)
{
    if (turn->host_depth <= turn->matched ||
        tern_submit_fetch(
            e->tern, turn->session,
            &(struct tern_fetch){.depth = load_depth(e, turn), .step = TERN_STEP_NONE},
            (uint64_t)(turn - e->turns)) != TERN_OK) {
        turn->host_depth = 0;
        return false;
    }
    turn->state = TURN_LOADING;
    return true;
}

bool turn_loaded(struct engine *e, struct turn *turn, const struct tern_answer *a)
{
    uint32_t got[PROFILE_GROUPS_MAX] = {0}, was = turn->matched, now;
    const struct tern_result *r = a->results;

    turn->state = TURN_MATCHED;
    now = a->n == 0 ? was : r->lengths.committed;
    if (now == was) {
        turn->host_depth = 0; /* no room, or evicted meanwhile: it is computed instead */
        return true;
    }
    if (now < was || now > turn->target || !table_take(&turn->table, r, got) ||
        !table_covers(&turn->table, now)) {
        engine_says(e, "request %llu: the host tier brought %u tokens, and does not name them",
                    (unsigned long long)turn->prompt.index, now);
        return false;
    }
    turn_found(e, turn, now);
    count(e->counts.host_hit_tokens, now - was);
    engine_add_table(e, turn, was, now);
    return engine_run_jobs(e, 0, "pages of the host tier");
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

void turn_give_up(struct engine *e, struct turn *turn, enum tern_err err)
{
    enum tern_err_category cat = tern_category(err);
    uint32_t ms = turn->tries < BACKOFF_MAX_MS ? turn->tries + 1 : BACKOFF_MAX_MS;
    const char *text = daemon_words(e);
    bool again = (cat == TERN_CAT_RETRY || cat == TERN_CAT_BUSY || err == TERN_CORRUPT) &&
                 ++turn->tries < TRIES_MAX;

    if (again && err == TERN_PEER_LOST)
        ms = 50;
    turn->seen_finished = e->finished;
    turn->waits = 0;
    turn->not_before_ns = clock_ns() + ms * UINT64_C(1000000);
    if (turn->session)
        turn->state = again ? TURN_ABORTING : TURN_CLOSING;
    else
        turn->state = again ? TURN_WAITING : TURN_CLOSING;
    count(again ? e->counts.retries : e->counts.failed, 1);
    if (again)
        return;
    engine_says(e, "request %llu failed after %u repetitions: %s%s%s",
                (unsigned long long)turn->prompt.index, turn->tries, tern_strerror(err),
                *text ? ": " : "", text);
    turn->outcome = err;
}

bool engine_idle(const struct engine *e)
{
    for (uint32_t i = 0; i < e->nturns; i++) {
        if (e->turns[i].state != TURN_IDLE)
            return false;
    }
    return true;
}

void engine_add_op(struct engine *e, const struct turn *turn, struct engine_op op)
{
    op.session = turn->session;
    op.step = op.step ? op.step : TERN_STEP_NONE; /* nothing of the turn has been launched */
    e->op_turn[e->nops] = (uint32_t)(turn - e->turns);
    e->ops[e->nops++] = op;
}

bool engine_step(struct engine *e)
{
    uint32_t done = 0;
    enum tern_err err = ops_run(e->batch, e->ops, e->nops, CALL_MS, e->results, &done);

    if (err != TERN_OK)
        return fail(e, "a step", err);
    if (done != e->nops) {
        engine_says(e, "a step of %u operations was answered for %u", e->nops, done);
        return false;
    }
    return true;
}
