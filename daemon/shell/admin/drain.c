/* See operator.h. */
#include "shell/admin/operator.h"

#include "shell/log/log.h"

#define DRAIN_GRACE_NS 50000000u                  /* to send the last answers */
#define DRAIN_TELL_NS  (TICK_NS + DRAIN_GRACE_NS) /* before the deadline, to answer waiters */

uint32_t drain_sessions(const struct daemon *d)
{
    struct core_view view;

    core_view(d->core, &view);
    return view.sessions;
}

static void tell_core(struct daemon *d, bool on)
{
    struct event ev = {.kind = EV_REQUEST};

    ev.request.op = OP_DRAIN;
    ev.request.conn = d->conns.internal;
    ev.request.drain.on = on;
    daemon_event(d, &ev);
}

void drain_tell_serving(const struct daemon *d, const char *remark, const char *why)
{
    notify_status("serving %" PRIu32 " tenants, %" PRIu32 " peers%s%s", config_tenants(d->config),
                  config_peers(d->config), remark, why);
}

static void set_deadline(struct daemon *d)
{
    d->drain_ns = d->drain_began_ns + (uint64_t)d->config->deadlines.drain_ms * 1000000;
}

void drain_reloaded(struct daemon *d)
{
    bool drains = d->state == DAEMON_DRAINING || d->state == DAEMON_LEAVING;

    if (drains && drain_sessions(d) > 0)
        set_deadline(d);
}

/* A service manager ends a daemon once it has reported STOPPING. So a drain reports that only when
 * it cannot be undone. */
void drain_begin(struct daemon *d, enum daemon_state to)
{
    if (d->state != DAEMON_SERVING)
        return;
    daemon_state_move(&d->state, to);
    d->drain_began_ns = io_now_ns();
    set_deadline(d);
    tell_core(d, true);
    log_event(LEVEL_INFO, "draining", "drain_ms=%u", d->config->deadlines.drain_ms);
    if (to == DAEMON_LEAVING)
        notify_state("STOPPING=1");
    notify_status("draining for at most %u s", d->config->deadlines.drain_ms / 1000);
}

enum tern_err drain_undo(struct daemon *d, const char **ret_why)
{
    if (d->state == DAEMON_SERVING)
        return TERN_OK;
    if (d->state != DAEMON_DRAINING) {
        *ret_why = d->state == DAEMON_LEAVING
                       ? "a signal is ending this daemon, as by `systemctl stop`: start it again"
                       : "this daemon is storing its cache and exiting: start it again";
        return TERN_CONFLICT;
    }
    daemon_state_move(&d->state, DAEMON_SERVING);
    tell_core(d, false);
    log_event(LEVEL_INFO, "undrained", "left_ms=%" PRIu64, (d->drain_ns - io_now_ns()) / 1000000);
    drain_tell_serving(d, "", "");
    return TERN_OK;
}

struct ending {
    uint64_t stored, failed;
};

static struct ending ending(const struct daemon *d)
{
    struct ending all = {0};

    for (uint32_t t = 0; t < d->config->ntenants; t++) {
        struct disk_view v;

        core_disk(d->core, t, &v);
        all.stored += v.counts.stored[DISK_SHUTDOWN];
        all.failed += v.counts.failed;
    }
    return all;
}

/* Ends the loop, after storing cached pages if there is a disk. */
static void end(struct daemon *d, uint64_t now_ns)
{
    struct event ev = {.kind = EV_SHUTDOWN};

    if (d->state == DAEMON_DRAINING)
        notify_state("STOPPING=1");
    if (!d->disk) {
        daemon_state_move(&d->state, DAEMON_STOPPED);
        return;
    }
    daemon_state_move(&d->state, DAEMON_STORING);
    d->drain_ns = now_ns + (uint64_t)d->config->deadlines.shutdown_ms * 1000000;
    ev.shutdown.deadline_ns = d->drain_ns;
    d->spill.failed = ending(d).failed;
    log_event(LEVEL_INFO, "storing", "shutdown_ms=%u", d->config->deadlines.shutdown_ms);
    notify_status("storing the cached prefixes");
    daemon_event(d, &ev);
}

static void store_tick(struct daemon *d, uint64_t now_ns)
{
    bool done = core_disk_idle(d->core) && disk_idle(d->disk);
    struct ending all;

    if (!done && now_ns < d->drain_ns)
        return;
    all = ending(d);
    all.failed -= d->spill.failed;
    log_event(done && all.failed == 0 ? LEVEL_INFO : LEVEL_WARN, done ? "stored" : "store_deadline",
              "entries=%" PRIu64 " failed=%" PRIu64 " ms_left=%" PRIu64, all.stored, all.failed,
              now_ns < d->drain_ns ? (d->drain_ns - now_ns) / 1000000 : 0);
    daemon_state_move(&d->state, DAEMON_STOPPED);
}

bool drain_nears_end(const struct daemon *d, uint64_t now_ns)
{
    return d->state != DAEMON_STORING &&
           (drain_sessions(d) == 0 || now_ns + DRAIN_TELL_NS >= d->drain_ns);
}

void drain_tick(struct daemon *d, uint64_t now_ns)
{
    uint32_t sessions;

    if (d->state == DAEMON_STORING) {
        store_tick(d, now_ns);
        return;
    }
    sessions = drain_sessions(d);
    if (sessions == 0 && now_ns + DRAIN_GRACE_NS < d->drain_ns) {
        log_event(LEVEL_INFO, "drained", "sessions=0");
        d->drain_ns = now_ns + DRAIN_GRACE_NS;
    }
    if (now_ns < d->drain_ns)
        return;
    if (sessions)
        log_event(LEVEL_WARN, "drain_deadline", "sessions=%u", sessions);
    end(d, now_ns);
}
