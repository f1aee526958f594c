/* The engines that have joined, and the steps that their ranks have finished. This file reads the
 * steps from the control pages that the engines write and reports them to the core, at once if a
 * rank rings because a request waits. See daemon.h. Invariant: bytes that the slot's previous
 * engine wrote count for no engine. */
#include <string.h>

#include "base/check.h"
#include "shell/daemon.h"
#include "shell/log/log.h"

/* Zeroes the control page now and not when the previous engine ended, so that bytes written since
 * then count for no engine. The new engine has not mapped the page yet. */
void engine_watch_begin(struct daemon *d, struct engine_id engine)
{
    struct engine_watch *w = &d->engines[engine.slot];
    struct engine_view view;

    if (w->state == ENGINE_WATCH_ACTIVE && w->gen == engine.gen)
        return;
    check(core_engine_view(d->core, engine.slot, &view));
    engine_watch_state_move(&w->state, ENGINE_WATCH_ACTIVE);
    w->gen = engine.gen;
    w->tenant = view.tenant;
    w->world = view.world;
    memcpy(w->name, view.name, sizeof w->name);
    memset(w->last, 0, sizeof(w->last));
    w->joined_ns = io_now_ns();
    mem_control_reset(d->mem, w->tenant, engine.slot);
}

bool engine_watch_end(struct daemon *d, struct engine_id engine)
{
    struct engine_watch *w = &d->engines[engine.slot];

    if (w->state != ENGINE_WATCH_ACTIVE || w->gen != engine.gen)
        return false;
    engine_watch_state_move(&w->state, ENGINE_WATCH_NONE);
    log_event(LEVEL_INFO, "engine_gone", "engine=%s tenant=%s lived_ms=%" PRIu64, w->name,
              d->config->tenants[w->tenant].name, (io_now_ns() - w->joined_ns) / 1000000);
    return true;
}

void daemon_poll_engine(struct daemon *d, uint32_t slot)
{
    struct engine_watch *w = &d->engines[slot];

    for (uint32_t r = 0; w->state == ENGINE_WATCH_ACTIVE && r < w->world; r++) {
        uint64_t done = mem_done_step(d->mem, w->tenant, slot, r);
        struct event ev = {.kind = EV_STEP_DONE};

        if (done == w->last[r])
            continue; /* the core decides what counts (E2, E7) */
        w->last[r] = done;
        ev.step_done.engine = (struct engine_id){.slot = slot, .gen = w->gen};
        ev.step_done.rank = r;
        ev.step_done.step = done;
        daemon_event(d, &ev);
    }
}

void daemon_poll_engines(struct daemon *d)
{
    for (uint32_t i = 0; i < d->limits.engines; i++)
        if (d->engines[i].state == ENGINE_WATCH_ACTIVE)
            daemon_poll_engine(d, i);
}

/* Called within a step. The loop's next turn reads steps that finished before the ranks learned of
 * the request to ring. */
void engine_watch_want(struct daemon *d, struct engine_id engine, uint64_t step)
{
    struct engine_watch *w = &d->engines[engine.slot];

    if (w->state != ENGINE_WATCH_ACTIVE || w->gen != engine.gen)
        return;
    mem_want_step(d->mem, w->tenant, engine.slot, step);
    d->step_poll_ns = 0;
}

void engine_watch_rung(struct daemon *d, uint32_t slot)
{
    d->rung = d->engines[slot].rung = true;
}

void engine_watch_hear(struct daemon *d)
{
    for (uint32_t i = 0; d->rung && i < d->limits.engines; i++) {
        if (!d->engines[i].rung)
            continue;
        d->engines[i].rung = false;
        daemon_poll_engine(d, i);
    }
    d->rung = false;
}
