/* See alarms.h. The condition of each kind of alarm is a function named like the kind's row in
 * alarm_table.h. */
#include "shell/alarm/alarms.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shell/config/config_table.h"
#include "shell/daemon.h"

#define MS_NS UINT64_C(1000000)
#define MIB   (1024.0 * 1024.0)

static void follow(struct alarm *a, enum alarm_fact fact, uint64_t now_ns)
{
    if (a->state == ALARM_CLEAR && fact == ALARM_IS) {
        alarm_state_move(&a->state, ALARM_RISING);
        a->since_ns = now_ns;
    } else if (a->state == ALARM_RISING && fact != ALARM_IS) {
        alarm_state_move(&a->state, ALARM_CLEAR);
    } else if (a->state == ALARM_ON && fact == ALARM_IS_NOT) {
        alarm_state_move(&a->state, ALARM_FALLING);
        a->falling_ns = now_ns;
    } else if (a->state == ALARM_FALLING && fact != ALARM_IS_NOT) {
        alarm_state_move(&a->state, ALARM_ON);
    }
}

enum alarm_news alarm_look(struct alarm *a, enum alarm_fact fact, uint64_t now_ns)
{
    const struct alarm_row *row = &alarm_row[a->kind];

    follow(a, fact, now_ns);
    if (a->state == ALARM_RISING && now_ns - a->since_ns >= row->begin_ns) {
        alarm_state_move(&a->state, ALARM_ON);
        return ALARM_BEGAN;
    }
    if (a->state == ALARM_FALLING && now_ns - a->falling_ns >= row->end_ns) {
        alarm_state_move(&a->state, ALARM_CLEAR);
        return ALARM_ENDED;
    }
    return ALARM_NO_NEWS;
}

enum alarm_news alarm_end(struct alarm *a)
{
    bool was_on = alarm_on(a);

    if (a->state == ALARM_ON)
        alarm_state_move(&a->state, ALARM_FALLING);
    if (a->state != ALARM_CLEAR)
        alarm_state_move(&a->state, ALARM_CLEAR);
    return was_on ? ALARM_ENDED : ALARM_NO_NEWS;
}

enum alarm_fact alarm_quarantine(const struct core_view *v, uint64_t now_ns)
{
    uint64_t since_ns = v->oldest_quarantine_ns;

    if (since_ns != 0 && since_ns + ALARM_QUARANTINE_NS <= now_ns)
        return ALARM_IS;
    return since_ns != 0 && since_ns + ALARM_QUARANTINE_NS / 2 <= now_ns ? ALARM_IS_NEARLY
                                                                         : ALARM_IS_NOT;
}

enum alarm_fact alarm_backlog(const struct core_view *v, uint32_t retires)
{
    uint64_t used = (uint64_t)(retires - v->retires_free) * ALARM_BACKLOG_PARTS;

    if (used >= (uint64_t)retires * 3)
        return ALARM_IS;
    return used >= (uint64_t)retires * 2 ? ALARM_IS_NEARLY : ALARM_IS_NOT;
}

enum alarm_fact alarm_refused(uint64_t last_ns, uint64_t now_ns)
{
    return alarm_fact_of(last_ns != 0 && now_ns - last_ns < ALARM_REFUSED_NS);
}

/* ---- the conditions ---- */

/* The arguments of a condition: the daemon, and the i-th subject (such as a tenant or an engine) of
 * the kind. */
struct alarm_asked {
    struct daemon *d;
    uint32_t i;
    uint64_t now_ns;
    char *detail; /* receives current details, ALARM_DETAIL_BYTES; NULL: not wanted */
};

__attribute__((format(printf, 2, 3))) static void say(const struct alarm_asked *a,
                                                      const char *format, ...)
{
    va_list args;

    if (!a->detail)
        return;
    va_start(args, format);
    vsnprintf(a->detail, ALARM_DETAIL_BYTES, format, args);
    va_end(args);
}

static enum alarm_fact quarantine_old(const struct alarm_asked *a)
{
    const struct config *c = a->d->config;
    struct transfer_view t;
    struct core_view v;

    core_view(a->d->core, &v);
    if (v.oldest_quarantine_ns && core_pull_view(a->d->core, v.oldest_quarantine.slot, &t))
        say(a, "%u pages for %" PRIu64 " ms, transfer %016" PRIx64 " from peer %s", t.quarantined,
            (a->now_ns - v.oldest_quarantine_ns) / MS_NS, pull_id_pack(t.pull),
            t.link < c->npeers ? c->peers[t.link].name : "(the disk)");
    return alarm_quarantine(&v, a->now_ns);
}

static enum alarm_fact retire_backlog(const struct alarm_asked *a)
{
    uint32_t retires = a->d->limits.retires;
    struct core_view v;

    core_view(a->d->core, &v);
    say(a, "%u of %u in use", retires - v.retires_free, retires);
    return alarm_backlog(&v, retires);
}

static enum alarm_fact spill_full(const struct alarm_asked *a)
{
    const struct config *c = a->d->config;
    struct disk_stats v = {0};

    if (a->d->disk)
        disk_stats(a->d->disk, &v);
    say(a, "%.1f MiB are free in %.256s, and %.1f MiB must stay free (spill.headroom)",
        (double)v.free_bytes / MIB, c->spill_dir, (double)c->spill_headroom / MIB);
    return alarm_fact_of(v.full);
}

static enum alarm_fact spill_failing(const struct alarm_asked *a)
{
    struct disk_stats v = {0};

    if (a->d->disk)
        disk_stats(a->d->disk, &v);
    say(a, "%" PRIu64 " writes and %" PRIu64 " reads have failed; the last error: %s",
        v.write_errors, v.read_errors,
        v.gone    ? "the folder is missing: the next store creates it again"
        : v.error ? strerror(v.error)
                  : "wrong bytes");
    return alarm_fact_of(v.failing);
}

static enum alarm_fact step_over_bound(const struct alarm_asked *a)
{
    const struct steps_over *v = core_steps_over(a->d->core);

    if (v->steps > 0)
        say(a,
            "%" PRIu64 " steps exceeded the bound; the longest visited %u records (the bound is "
            "%u) for the event %s",
            v->steps, v->visits, v->bound, tape_event_word(v->kind));
    return alarm_refused(a->d->over.last_ns, a->now_ns);
}

/* Returns false if no engine has the slot. */
static bool engine_of(const struct alarm_asked *a, struct engine_view *ret)
{
    return a->d->engines[a->i].state == ENGINE_WATCH_ACTIVE &&
           core_engine_view(a->d->core, a->i, ret);
}

static enum alarm_fact step_overdue(const struct alarm_asked *a)
{
    uint64_t limit_ns = (uint64_t)a->d->config->deadlines.step_alarm_ms * MS_NS;
    struct engine_view e;

    if (!engine_of(a, &e))
        return ALARM_IS_NOT;
    if (e.waits_since_ns)
        say(a,
            "rank %u (pid %d) has finished step %" PRIu64 ", and the engine has named step %" PRIu64
            "%s, and no step has passed for %" PRIu64 " ms",
            e.rank_behind, (int)proc_pid(&a->d->procs, e.procs[e.rank_behind]),
            e.done_step[e.rank_behind], e.named, e.jumped ? ": that is impossible" : "",
            (a->now_ns - e.waits_since_ns) / MS_NS);
    return alarm_fact_of(engine_overdue(&e, limit_ns, a->now_ns));
}

static enum alarm_fact engine_stuck(const struct alarm_asked *a)
{
    struct engine_view e;

    if (!engine_of(a, &e))
        return ALARM_IS_NOT;
    say(a, "pids ");
    if (a->detail)
        proc_pids(&a->d->procs, e.procs, a->detail + strlen(a->detail),
                  ALARM_DETAIL_BYTES - strlen(a->detail));
    return alarm_fact_of(e.dying);
}

/* The detail is the text of the last refusal, if that had this error. */
static enum alarm_fact refusal(const struct alarm_asked *a, enum tern_err err, uint64_t last_ns)
{
    const struct refusals *r = &a->d->refusals[a->i];

    if (r->last == err)
        say(a, "%s", r->last_text);
    return alarm_refused(last_ns, a->now_ns);
}

static enum alarm_fact memory_exhausted(const struct alarm_asked *a)
{
    return refusal(a, TERN_POOL_EXHAUSTED, a->d->refusals[a->i].exhausted_ns);
}

static enum alarm_fact quota_reached(const struct alarm_asked *a)
{
    return refusal(a, TERN_QUOTA, a->d->refusals[a->i].quota_ns);
}

static bool share_of(const struct daemon *d, uint32_t i, struct share_view *ret)
{
    return core_share_view(d->core, (struct share_of){i % CORE_SHARES, i / CORE_SHARES}, ret);
}

static enum alarm_fact share_exhausted(const struct alarm_asked *a)
{
    struct share_view v;

    if (a->detail && share_of(a->d, a->i, &v))
        say(a, "the tenant uses %u %s; %u are reserved for it, and all tenants share %u", v.used,
            v.records, v.reserved, v.limit);
    return alarm_refused(a->d->refusals[a->i / CORE_SHARES].share_ns[a->i % CORE_SHARES],
                         a->now_ns);
}

static enum alarm_fact peer_down(const struct alarm_asked *a)
{
    const struct config *c = a->d->config;
    const struct peer_link *l;

    if (a->i >= c->npeers || !c->peers[a->i].name[0] || c->peers[a->i].leaving)
        return ALARM_IS_NOT;
    l = &a->d->links.v[a->i];
    if (l->cause[0] && l->attempts == 0)
        say(a, "%s", l->cause);
    else if (l->cause[0])
        say(a, "%s (%u attempts)", l->cause, l->attempts);
    return link_serves(l) ? ALARM_IS_NOT : ALARM_IS;
}

static enum alarm_fact device_lost(const struct alarm_asked *a)
{
    struct mem_device_view v;

    if (!mem_device_view(a->d->mem, a->i, &v) || !v.lost)
        return ALARM_IS_NOT;
    say(a, "%s", v.lost);
    return ALARM_IS;
}

/* All GPUs are known when `mem` exists; NULL: a test's daemon without GPUs. */
static uint32_t gpus_of(const struct daemon *d)
{
    struct mem_device_view v;
    uint32_t n = 0;

    while (d->mem && mem_device_view(d->mem, n, &v))
        n++;
    return n;
}

const struct alarm_row alarm_row[ALARM_KINDS] = {
#define X(NAME, word, of, severity, begin_ms, end_ms, begins, ends, means, action)                 \
    [ALARM_KIND_##NAME] = {#word, #word "_ended",   ALARM_OF_##of,  LEVEL_##severity,              \
                           word,  begin_ms * MS_NS, end_ms * MS_NS, means,                         \
                           action},
    ALARM_TABLE(X)
#undef X
};

static uint32_t count_of(const struct daemon *d, enum alarm_of of)
{
    switch (of) {
    case ALARM_OF_DAEMON: return 1;
    case ALARM_OF_ENGINE: return d->limits.engines;
    case ALARM_OF_TENANT: return d->config->ntenants;
    case ALARM_OF_SHARE: return d->config->ntenants * CORE_SHARES;
    case ALARM_OF_PEER: return d->limits.peers;
    case ALARM_OF_GPU: return gpus_of(d);
    }
    return 0;
}

enum tern_err alarms_init(struct daemon *d)
{
    struct alarms *a = &d->alarms;
    uint32_t at = 0;

    for (enum alarm_kind k = 0; k < ALARM_KINDS; k++) {
        a->first[k] = a->n;
        a->n += count_of(d, alarm_row[k].of);
    }
    a->next = a->n;
    a->v = calloc(a->n, sizeof *a->v);
    if (!a->v)
        return TERN_INTERNAL;
    for (enum alarm_kind k = 0; k < ALARM_KINDS; k++)
        for (uint32_t i = count_of(d, alarm_row[k].of); i > 0; i--)
            a->v[at++].kind = k;
    return TERN_OK;
}

void alarms_finish(struct daemon *d)
{
    free(d->alarms.v);
    d->alarms.v = NULL;
}

static void subject_of(const struct daemon *d, const struct alarm *a, char ret[ALARM_SUBJECT_BYTES])
{
    uint32_t i = (uint32_t)(a - d->alarms.v) - d->alarms.first[a->kind];
    const struct config *c = d->config;
    struct share_view v = {.setting = ""};
    struct mem_device_view device;

    ret[0] = '\0';
    switch (alarm_row[a->kind].of) {
    case ALARM_OF_DAEMON: break;
    case ALARM_OF_ENGINE:
        snprintf(ret, ALARM_SUBJECT_BYTES, "%s/%s", c->tenants[d->engines[i].tenant].name,
                 d->engines[i].name);
        break;
    case ALARM_OF_TENANT: snprintf(ret, ALARM_SUBJECT_BYTES, "%s", c->tenants[i].name); break;
    case ALARM_OF_SHARE:
        share_of(d, i, &v); /* some tables have no setting: other limits size them */
        snprintf(ret, ALARM_SUBJECT_BYTES, "%s/%s%s", c->tenants[i / CORE_SHARES].name,
                 loader_row("limits", v.setting) < config_settings_n ? "limits." : "", v.setting);
        break;
    case ALARM_OF_PEER: snprintf(ret, ALARM_SUBJECT_BYTES, "%s", c->peers[i].name); break;
    case ALARM_OF_GPU:
        if (mem_device_view(d->mem, i, &device))
            snprintf(ret, ALARM_SUBJECT_BYTES, "%s", device.uuid);
        break;
    }
}

static void view_of(struct daemon *d, const struct alarm *a, uint64_t now_ns,
                    struct alarm_view *ret)
{
    uint32_t i = (uint32_t)(a - d->alarms.v) - d->alarms.first[a->kind];
    const struct alarm_row *row = &alarm_row[a->kind];
    char detail[ALARM_DETAIL_BYTES] = "";

    *ret = (struct alarm_view){.name = row->name,
                               .severity = log_level_name(row->severity),
                               .action = row->action,
                               .since_ns = a->since_ns};
    (void)alarm_row[a->kind].fact(&(struct alarm_asked){d, i, now_ns, detail});
    snprintf(ret->text, sizeof ret->text, "%s%s%s", row->means, detail[0] ? ": " : "", detail);
    if (a->state == ALARM_FALLING)
        snprintf(ret->text, sizeof ret->text,
                 "the cause ended %" PRIu64 " ms ago, and the alarm ends %" PRIu64
                 " ms after the cause",
                 (now_ns - a->falling_ns) / MS_NS, row->end_ns / MS_NS);
    subject_of(d, a, ret->subject);
}

static void tell(struct daemon *d, const struct alarm *a, enum alarm_news news, uint64_t now_ns)
{
    const struct alarm_row *row = &alarm_row[a->kind];
    struct alarm_view v;

    if (news == ALARM_BEGAN) {
        d->alarms.on++;
        d->alarms.on_of[a->kind]++;
        view_of(d, a, now_ns, &v);
        log_event(row->severity, row->name, "subject=%s text=%s action=%s", v.subject, v.text,
                  v.action);
    } else if (news == ALARM_ENDED) {
        d->alarms.on--;
        d->alarms.on_of[a->kind]--;
        subject_of(d, a, v.subject);
        log_event(LEVEL_INFO, row->ended, "subject=%s lasted_ms=%" PRIu64, v.subject,
                  (now_ns - a->since_ns) / MS_NS);
    }
}

static void look(struct daemon *d, uint32_t at, uint64_t now_ns)
{
    struct alarm *a = &d->alarms.v[at];
    const struct alarm_asked asked = {d, at - d->alarms.first[a->kind], now_ns, NULL};

    tell(d, a, alarm_look(a, alarm_row[a->kind].fact(&asked), now_ns), now_ns);
}

void alarms_tick(struct daemon *d, uint64_t now_ns)
{
    struct alarms *a = &d->alarms;

    if (a->next == a->n && now_ns < a->pass_ns)
        return;
    if (a->next == a->n) {
        a->pass_ns = now_ns + ALARM_PASS_NS;
        a->next = 0;
    }
    for (uint32_t n = 0; n < ALARM_LOOKS && a->next < a->n; n++)
        look(d, a->next++, now_ns);
}

void alarms_engine(struct daemon *d, uint32_t slot, uint64_t now_ns)
{
    look(d, d->alarms.first[ALARM_KIND_STEP_OVERDUE] + slot, now_ns);
    look(d, d->alarms.first[ALARM_KIND_ENGINE_STUCK] + slot, now_ns);
}

void alarms_gpus(struct daemon *d, uint64_t now_ns)
{
    for (uint32_t i = d->alarms.first[ALARM_KIND_DEVICE_LOST], n = gpus_of(d); n > 0; n--)
        look(d, i++, now_ns);
}

static void end(struct daemon *d, enum alarm_kind kind, uint32_t slot, uint64_t now_ns)
{
    struct alarm *a = &d->alarms.v[d->alarms.first[kind] + slot];

    tell(d, a, alarm_end(a), now_ns);
}

void alarms_engine_gone(struct daemon *d, uint32_t slot, uint64_t now_ns)
{
    end(d, ALARM_KIND_STEP_OVERDUE, slot, now_ns);
    end(d, ALARM_KIND_ENGINE_STUCK, slot, now_ns);
}

void alarms_peer_left(struct daemon *d, uint32_t slot, uint64_t now_ns)
{
    end(d, ALARM_KIND_PEER_DOWN, slot, now_ns);
}

bool alarms_view(struct daemon *d, uint32_t *at, uint64_t now_ns, struct alarm_view *ret)
{
    const struct alarms *a = &d->alarms;

    while (*at < a->n && !alarm_on(&a->v[*at]))
        (*at)++;
    if (*at == a->n)
        return false;
    view_of(d, &a->v[(*at)++], now_ns, ret);
    return true;
}
