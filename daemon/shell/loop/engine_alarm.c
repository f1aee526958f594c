/* See engine_alarm.h. */
#include "shell/loop/engine_alarm.h"

#include <stdio.h>

#include "shell/log/log.h"

void engine_alarm_exited(struct daemon *d, uint32_t proc)
{
    struct engine_view e;

    for (uint32_t i = 0; i < d->limits.engines; i++) {
        if (d->engines[i].state != ENGINE_WATCH_ACTIVE || !core_engine_view(d->core, i, &e))
            continue;
        for (uint32_t seat = 0; seat < PROCS_PER_ENGINE_MAX; seat++)
            if (e.procs[seat] == proc)
                log_event(LEVEL_INFO, "engine_process_exited",
                          "engine=%s tenant=%s pid=%d sessions=%u reason=%s", e.name,
                          d->config->tenants[e.tenant].name, (int)proc_pid(&d->procs, proc),
                          e.sessions, "it had not left its engine: it was killed or crashed");
    }
}

void engine_alarm_stuck(struct daemon *d, struct engine_id engine)
{
    struct engine_view e;
    char pids[PROCS_PER_ENGINE_MAX * 12] = "";
    size_t at = 0;

    if (!core_engine_view(d->core, engine.slot, &e))
        return;
    for (uint32_t seat = 0; seat < PROCS_PER_ENGINE_MAX; seat++)
        if (e.procs[seat] != NONE)
            at += (size_t)snprintf(pids + at, sizeof pids - at, "%s%d", at ? "," : "",
                                   (int)proc_pid(&d->procs, e.procs[seat]));
    log_event(LEVEL_WARN, "engine_stuck", "engine=%s tenant=%s alive=%u pids=%s reason=%s", e.name,
              d->config->tenants[e.tenant].name, e.procs_alive, pids,
              "a process of it exited; its pages stay its own until the others have: end them");
}

static void warn_overdue(const struct daemon *d, const struct engine_view *e, uint64_t now_ns)
{
    log_event(LEVEL_WARN, "step_overdue",
              "engine=%s rank=%u tenant=%s pid=%d done_step=%" PRIu64 " named_step=%" PRIu64
              " jumped=%d"
              " waiting_ms=%" PRIu64 " reason=%s",
              e->name, e->rank_behind, d->config->tenants[e->tenant].name,
              (int)proc_pid(&d->procs, e->procs[e->rank_behind]), e->done_step[e->rank_behind],
              e->named, e->jumped, (now_ns - e->waits_since_ns) / 1000000,
              e->jumped ? "the rank shows a step that its engine cannot have reached, which is not "
                          "believed: look what overwrites its control page, and restart the engine"
                        : "pages wait for a step of that rank: look whether it hangs, and if it "
                          "does, end all processes of the engine");
}

void engine_alarm_overdue(struct daemon *d, uint64_t now_ns)
{
    uint64_t limit_ns = (uint64_t)d->config->deadlines.step_alarm_ms * 1000000;
    struct engine_view e;

    for (uint32_t i = 0; i < d->limits.engines; i++) {
        struct engine_watch *w = &d->engines[i];
        bool overdue = w->state == ENGINE_WATCH_ACTIVE && core_engine_view(d->core, i, &e) &&
                       engine_overdue(&e, limit_ns, now_ns);

        if (overdue == w->overdue)
            continue;
        w->overdue = overdue;
        if (overdue)
            warn_overdue(d, &e, now_ns);
        else
            log_event(LEVEL_INFO, "step_overdue_ended", "engine=%s tenant=%s", w->name,
                      d->config->tenants[w->tenant].name);
    }
}
