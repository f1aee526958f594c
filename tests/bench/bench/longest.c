/* Evicting a full pool: see longest.h. Called by index.c on one thread. The core evicts in pieces,
 * a step each, and a daemon serves others between two pieces; so others wait for one step. */
#include "longest.h"

#include <stdlib.h>

#include "core_rig.h"
#include "engine/bytes.h"
#include "engine/proc.h"
#include "engine/stats.h"

#define PAGE_TOKENS   16
#define SESSION_NODES 20000
#define STEPS_MAX     100000

static const struct req_pool_open layout = {.ngroups = 1, .group = {{.page_tokens = PAGE_TOKENS}}};

static bool fill(struct core_rig *rig, uint32_t nodes, uint32_t *tokens)
{
    struct session_id session;
    double unused;

    for (uint32_t seed = 1; seed <= nodes / SESSION_NODES; seed++) {
        block_tokens(seed, 0, SESSION_NODES * PAGE_TOKENS, tokens);
        if (!core_rig_open(rig, &session) ||
            !core_rig_turn(rig, session, tokens, 0, SESSION_NODES * PAGE_TOKENS, &unused))
            return false;
        core_rig_settle(rig);
        if (!core_rig_close(rig, session))
            return false;
    }
    return true;
}

static void note(struct longest_figures *f, uint64_t start_ns)
{
    double ms = (double)(clock_ns() - start_ns) / 1e6;

    f->step_ms = ms > f->step_ms ? ms : f->step_ms;
    f->all_ms += ms;
    f->steps++;
}

static bool evict_all(struct core_rig *rig, struct longest_figures *f)
{
    struct request evict = {.op = OP_EVICT, .conn = CORE_RIG_ADMIN, .evict.pool.slot = NONE};
    struct pool_view pool;
    uint64_t start = clock_ns();

    core_rig_ask(rig, &evict);
    note(f, start);
    while (core_deadline(rig->core) <= rig->now_ns && f->steps < STEPS_MAX) {
        struct event timer = {.kind = EV_TIMER, .now_ns = ++rig->now_ns};

        start = clock_ns();
        core_step(rig->core, &timer, rig->out);
        note(f, start);
    }
    return core_pool_view(rig->core, rig->pool.slot, &pool) && pool.nodes == 0;
}

bool longest_measure(struct longest_figures *f, uint32_t nodes)
{
    struct core_rig rig;
    uint32_t *tokens = mem_need(SESSION_NODES * PAGE_TOKENS, sizeof *tokens);
    struct pool_view pool = {0};
    bool ok = core_rig_init(&rig, &layout, nodes + nodes / 16) && fill(&rig, nodes, tokens) &&
              core_pool_view(rig.core, rig.pool.slot, &pool) && pool.nodes == nodes;

    *f = (struct longest_figures){.nodes = nodes};
    ok = ok && evict_all(&rig, f);
    core_rig_finish(&rig);
    free(tokens);
    return ok;
}

void longest_show(const struct longest_figures *f, const struct bench_args *args, json_t *o)
{
    const struct bench_figure figures[] = {
        {"evicted_nodes", f->nodes, NULL, NULL, NULL},
        {"evict_steps", f->steps, NULL, NULL, NULL},
        {"evict_all_ms", f->all_ms, "evict a full pool", "ms", NULL},
        {"evict_step_ms_max", f->step_ms, "its longest step", "ms", NULL},
    };

    bench_show(args, o, figures, sizeof figures / sizeof figures[0]);
}
