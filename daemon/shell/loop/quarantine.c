/* See quarantine.h. */
#include "shell/loop/quarantine.h"

#include "shell/log/log.h"

static void warn(const struct config *config, const struct transfer_view *t, uint64_t age_ns)
{
    log_event(LEVEL_WARN, "quarantine_old",
              "peer=%s transfer=%016" PRIx64 " pages=%u age_ms=%" PRIu64 " reason=%s",
              t->link < config->npeers ? config->peers[t->link].name : "", pull_id_pack(t->pull),
              t->quarantined, age_ns / 1000000,
              "a write of that peer may still arrive: look at it in `ternctl peers`; if its pages "
              "never come back, drain and restart this daemon");
}

uint64_t quarantine_warn(const struct core *core, const struct config *config, uint64_t seen_ns,
                         uint64_t now_ns)
{
    uint32_t pulls = core_limits_of(core)->pulls;
    struct transfer_view t;
    struct core_view view;

    core_view(core, &view);
    if (!view.oldest_quarantine_ns || view.oldest_quarantine_ns + QUARANTINE_WARN_NS > now_ns)
        return now_ns;
    for (uint32_t i = 0; i < pulls; i++) {
        if (!core_pull_view(core, i, &t) || !t.quarantined_ns)
            continue;
        if (t.quarantined_ns + QUARANTINE_WARN_NS > seen_ns &&
            t.quarantined_ns + QUARANTINE_WARN_NS <= now_ns)
            warn(config, &t, now_ns - t.quarantined_ns);
    }
    return now_ns;
}
