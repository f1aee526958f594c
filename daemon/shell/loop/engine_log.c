/* See loop.h. */
#include "shell/loop/loop.h"

#include "shell/log/log.h"

void engine_log_joined(const struct daemon *d, struct engine_id engine, uint32_t proc)
{
    char pids[PROCS_PER_ENGINE_MAX * 12];
    struct engine_view e;

    if (!core_engine_view(d->core, engine.slot, &e))
        return;
    proc_pids(&d->procs, e.procs, pids, sizeof pids);
    log_event(LEVEL_INFO, "engine_joined", "engine=%s tenant=%s world=%u pid=%d alive=%u pids=%s",
              e.name, d->config->tenants[e.tenant].name, e.world, (int)proc_pid(&d->procs, proc),
              e.procs_alive, pids);
}

/* Pages that sessions of the engine's pools own or have released, and pages that it has leased. */
static uint32_t pages_of(const struct daemon *d, uint32_t engine)
{
    struct pool_view p;
    uint32_t pages = 0;

    for (uint32_t i = 0; i < d->limits.pools; i++) {
        if (!core_pool_view(d->core, i, &p) || p.engine != engine)
            continue;
        for (uint32_t g = 0; g < p.ngroups; g++)
            pages += p.group[g].session + p.group[g].leased + p.group[g].retiring;
    }
    return pages;
}

static void gone(const struct daemon *d, const struct engine_view *e, uint32_t proc,
                 const char *event, const char *reason)
{
    log_event(LEVEL_INFO, event, "engine=%s tenant=%s pid=%d sessions=%u pages=%u reason=%s",
              e->name, d->config->tenants[e->tenant].name, (int)proc_pid(&d->procs, proc),
              e->sessions, pages_of(d, e->id.slot), reason);
}

void engine_log_leaves(const struct daemon *d, uint32_t slot, uint32_t proc)
{
    struct engine_view e;

    if (core_engine_view(d->core, slot, &e))
        gone(d, &e, proc, "engine_process_left", "the process reported that it leaves");
}

void engine_log_exited(struct daemon *d, uint32_t proc)
{
    struct engine_view e;

    for (uint32_t i = 0; i < d->limits.engines; i++) {
        if (d->engines[i].state != ENGINE_WATCH_ACTIVE || !core_engine_view(d->core, i, &e))
            continue;
        for (uint32_t seat = 0; seat < PROCS_PER_ENGINE_MAX; seat++)
            if (e.procs[seat] == proc) {
                gone(d, &e, proc, "engine_process_exited",
                     "the process exited without leaving its engine: it was killed or crashed");
                d->procs_exited++;
            }
    }
}
