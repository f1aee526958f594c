/* The tables of the core that tenant A of `tern-bench neighbours` fills with requests over
 * libtern: releases that wait for a step, engines, pools and sessions. */
#include <stdio.h>
#include <string.h>

#include "engine/proc.h"
#include "engine/profile.h"
#include "neighbours_tables.h"

#define POOL_PAGES 1024
#define LEAVES_MS  100 /* within which pools of an engine that left are free */
#define LIMITS     "  retires: 256\n  engines: 16\n  pools: 16\n  sessions: 64\n  pulls: 16\n"

static bool join(struct tenant_a *a)
{
    return a_join(a, POOL_PAGES);
}

/* ---- releases that wait for a step: one session that gets a page and frees it ---- */

static bool retires_open(struct tenant_a *a)
{
    return join(a) && member_ok(&a->engine, "opening a session",
                                tern_session_open(a->engine.tern, a->engine.pool, &a->engine.ns,
                                                  NULL, MEMBER_CALL_MS, &a->held[0]));
}

/* The free waits for a step that has not ended. */
static enum a_answer get_and_give(struct tenant_a *a)
{
    struct engine_op ops[] = {
        {.kind = ENGINE_EXTEND, .session = a->held[0], .length = NEIGHBOUR_PAGE_TOKENS},
        {.kind = ENGINE_REWIND,
         .session = a->held[0],
         .step = a->engine.step + 1,
         .barrier = true}};
    struct tern_result results[2];
    uint32_t done;
    enum tern_err err = ops_run(a->engine.batch, ops, 2, MEMBER_CALL_MS, results, &done);

    if (err == TERN_OK)
        err = results[0].err != TERN_OK ? results[0].err : results[1].err;
    return a_answer_of(a, a->engine.tern, err);
}

static bool publish(struct tenant_a *a)
{
    return engine_publish(&a->engine) == TERN_OK;
}

static enum a_answer get_and_give_in_time(struct tenant_a *a)
{
    enum a_answer answer = get_and_give(a);

    return publish(a) ? answer : A_FAILED;
}

/* ---- engines: names with one of two ranks joined, the first name for good ---- */

static enum a_answer join_as(struct tenant_a *a, struct tern *t, const char *name)
{
    return a_answer_of(a, t, tern_join(t, name, TERN_BOTH, 0, 2, NULL, MEMBER_CALL_MS));
}

static bool connect_one(struct tenant_a *a)
{
    return a->nconns < A_HOLDS_MAX &&
           tern_connect(a->hosts->here.socket, MEMBER_CALL_MS, &a->conns[a->nconns++]) == TERN_OK;
}

static bool engines_open(struct tenant_a *a)
{
    return join(a) && connect_one(a) && connect_one(a);
}

static enum a_answer join_half(struct tenant_a *a)
{
    char name[32];
    enum a_answer answer;

    snprintf(name, sizeof name, "half-%llu", (unsigned long long)a->serial);
    answer = join_as(a, a->conns[a->nconns - 1], name);
    if (answer != A_DONE)
        return answer;
    a->serial++;
    return connect_one(a) ? A_DONE : A_FAILED;
}

static bool conns_leave(struct tenant_a *a)
{
    while (a->nconns > 1)
        tern_destroy(a->conns[--a->nconns]);
    return connect_one(a);
}

static enum a_answer join_again(struct tenant_a *a)
{
    return join_as(a, a->conns[0], "again");
}

/* ---- pools: they are free again once the engine that closed them has left ---- */

static enum a_answer pool_open(struct tenant_a *a)
{
    struct geometry g;
    enum a_answer answer;

    geometry_plain(&g, NEIGHBOUR_PAGE_TOKENS, NEIGHBOUR_PAGE_BYTES, 1);
    answer = a_answer_of(
        a, a->engine.tern,
        tern_pool_open(a->engine.tern, &g.layout, MEMBER_CALL_MS, &a->held[a->nheld], NULL));
    a->nheld += answer == A_DONE;
    return answer;
}

static enum a_answer pool_map(struct tenant_a *a)
{
    struct tern_pool *map;
    enum a_answer answer = a_answer_of(
        a, a->engine.tern, tern_pool_map(a->engine.tern, a->engine.pool, MEMBER_CALL_MS, &map));

    if (answer == A_DONE)
        tern_pool_unmap(&map);
    return answer;
}

static bool pools_open(struct tenant_a *a)
{
    struct geometry g;
    char name[32];

    snprintf(name, sizeof name, "pools-%llu", (unsigned long long)a->serial++);
    geometry_plain(&g, NEIGHBOUR_PAGE_TOKENS, NEIGHBOUR_PAGE_BYTES, POOL_PAGES);
    return member_ok(
        &a->engine, "opening a pool",
        engine_open_pool(&a->engine, a->hosts->here.socket, name, &g.layout, MEMBER_CALL_MS));
}

static bool pools_close(struct tenant_a *a)
{
    bool ok = tern_pool_close(a->engine.tern, a->engine.pool, MEMBER_CALL_MS) == TERN_OK;

    while (ok && a->nheld > 0)
        ok = tern_pool_close(a->engine.tern, a->held[--a->nheld], MEMBER_CALL_MS) == TERN_OK;
    engine_close(&a->engine);
    sleep_ms(LEAVES_MS);
    return ok && pools_open(a);
}

/* ---- sessions ---- */

static enum a_answer session_open(struct tenant_a *a)
{
    enum a_answer answer =
        a_answer_of(a, a->engine.tern,
                    tern_session_open(a->engine.tern, a->engine.pool, &a->engine.ns, NULL,
                                      MEMBER_CALL_MS, &a->held[a->nheld]));

    a->nheld += answer == A_DONE;
    return answer;
}

static enum a_answer session_close(struct tenant_a *a)
{
    struct engine_op op = {
        .kind = ENGINE_CLOSE, .step = TERN_STEP_NONE, .session = a->held[--a->nheld]};
    struct tern_result r;

    return a_answer_of(a, a->engine.tern, op_do(a->engine.tern, &op, MEMBER_CALL_MS, &r));
}

static enum a_answer session_open_and_close(struct tenant_a *a)
{
    return a->nheld > 0 ? session_close(a) : session_open(a);
}

static bool sessions_close(struct tenant_a *a)
{
    while (a->nheld > 0)
        if (session_close(a) != A_DONE)
            return false;
    return true;
}

const struct a_table a_retires = {.name = "retires",
                                  .limits = LIMITS,
                                  .open = retires_open,
                                  .over = get_and_give,
                                  .within = get_and_give_in_time,
                                  .release = publish};

const struct a_table a_engines = {.name = "engines",
                                  .limits = LIMITS,
                                  .says = "limits.engines",
                                  .open = engines_open,
                                  .over = join_half,
                                  .within = join_again,
                                  .release = conns_leave};

const struct a_table a_pools = {.name = "pools",
                                .limits = LIMITS,
                                .says = "limits.pools",
                                .open = pools_open,
                                .over = pool_open,
                                .within = pool_map,
                                .release = pools_close};

const struct a_table a_sessions = {.name = "sessions",
                                   .limits = LIMITS,
                                   .says = "limits.sessions",
                                   .open = join,
                                   .over = session_open,
                                   .within = session_open_and_close,
                                   .release = sessions_close};
