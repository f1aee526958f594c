/* See alarms.h. The conditions of alarm.h are asked here of what the daemon has; a row of `sources`
 * says for each kind of alarm how. */
#include "shell/alarm/alarms.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shell/daemon.h"

#define MS_NS 1000000u
#define MIB   (1024.0 * 1024.0)

/* What one alarm is about: the i-th of what its kind is one each of. */
struct source {
    enum alarm_fact (*fact)(struct daemon *d, uint32_t i, uint64_t now_ns);
    /* Adds what is known of it now; NULL: there is nothing to add. */
    void (*detail)(struct daemon *d, uint32_t i, uint64_t now_ns, char ret[ALARM_DETAIL_BYTES]);
};

/* ---- of the daemon ---- */

static enum alarm_fact quarantine(struct daemon *d, uint32_t i, uint64_t now_ns)
{
    struct core_view v;

    (void)i;
    core_view(d->core, &v);
    return alarm_quarantine(&v, now_ns);
}

static void quarantine_detail(struct daemon *d, uint32_t i, uint64_t now_ns,
                              char ret[ALARM_DETAIL_BYTES])
{
    struct transfer_view t;
    struct core_view v;

    (void)i;
    core_view(d->core, &v);
    if (v.oldest_quarantine_ns && core_pull_view(d->core, v.oldest_quarantine.slot, &t))
        snprintf(ret, ALARM_DETAIL_BYTES,
                 "%u pages for %" PRIu64 " ms, transfer %016" PRIx64 " from peer %s", t.quarantined,
                 (now_ns - v.oldest_quarantine_ns) / MS_NS, pull_id_pack(t.pull),
                 t.link < d->config->npeers ? d->config->peers[t.link].name : "(the disk)");
}

static enum alarm_fact backlog(struct daemon *d, uint32_t i, uint64_t now_ns)
{
    struct core_view v;

    (void)i;
    (void)now_ns;
    core_view(d->core, &v);
    return alarm_backlog(&v, d->limits.retires);
}

static void backlog_detail(struct daemon *d, uint32_t i, uint64_t now_ns,
                           char ret[ALARM_DETAIL_BYTES])
{
    struct core_view v;

    (void)i;
    (void)now_ns;
    core_view(d->core, &v);
    snprintf(ret, ALARM_DETAIL_BYTES, "%u of %u in use", d->limits.retires - v.retires_free,
             d->limits.retires);
}

static enum alarm_fact full(struct daemon *d, uint32_t i, uint64_t now_ns)
{
    struct disk_stats v = {0};

    (void)i;
    (void)now_ns;
    if (d->disk)
        disk_stats(d->disk, &v);
    return alarm_full(&v);
}

static void full_detail(struct daemon *d, uint32_t i, uint64_t now_ns, char ret[ALARM_DETAIL_BYTES])
{
    struct disk_stats v;

    (void)i;
    (void)now_ns;
    disk_stats(d->disk, &v);
    snprintf(ret, ALARM_DETAIL_BYTES,
             "%.1f MiB are free in %.256s, and %.1f MiB have to stay so (spill.headroom)",
             (double)v.free_bytes / MIB, d->config->spill_dir,
             (double)d->config->spill_headroom / MIB);
}

static enum alarm_fact failing(struct daemon *d, uint32_t i, uint64_t now_ns)
{
    struct disk_stats v = {0};

    (void)i;
    (void)now_ns;
    if (d->disk)
        disk_stats(d->disk, &v);
    return alarm_failing(&v);
}

static void failing_detail(struct daemon *d, uint32_t i, uint64_t now_ns,
                           char ret[ALARM_DETAIL_BYTES])
{
    struct disk_stats v;

    (void)i;
    (void)now_ns;
    disk_stats(d->disk, &v);
    snprintf(ret, ALARM_DETAIL_BYTES, "%" PRIu64 " writes and %" PRIu64 " reads, the last: %s",
             v.write_errors, v.read_errors, v.error ? strerror(v.error) : "wrong bytes");
}

static enum alarm_fact tape(struct daemon *d, uint32_t i, uint64_t now_ns)
{
    struct tape_stats v = {0};

    (void)i;
    if (d->tape)
        tape_stats(d->tape, &v);
    return alarm_tape(&d->alarms.tape, &v, now_ns);
}

static void tape_detail(struct daemon *d, uint32_t i, uint64_t now_ns, char ret[ALARM_DETAIL_BYTES])
{
    struct tape_stats v;

    (void)i;
    (void)now_ns;
    tape_stats(d->tape, &v);
    snprintf(ret, ALARM_DETAIL_BYTES, "%" PRIu64 " events are on it, of %" PRIu64,
             v.recorded - v.dropped, v.recorded);
}

static enum alarm_fact over(struct daemon *d, uint32_t i, uint64_t now_ns)
{
    (void)i;
    return alarm_refused(d->over.last_ns, now_ns);
}

static void over_detail(struct daemon *d, uint32_t i, uint64_t now_ns, char ret[ALARM_DETAIL_BYTES])
{
    const struct steps_over *v = core_steps_over(d->core);

    (void)i;
    (void)now_ns;
    snprintf(ret, ALARM_DETAIL_BYTES, "%" PRIu64 " steps, the longest with %u of %u records, by %s",
             v->steps, v->visits, v->bound, tape_event_word(v->kind));
}

/* ---- of an engine ---- */

/* False: no engine has the slot. */
static bool engine_of(const struct daemon *d, uint32_t i, struct engine_view *ret)
{
    return d->engines[i].state == ENGINE_WATCH_ACTIVE && core_engine_view(d->core, i, ret);
}

static enum alarm_fact step(struct daemon *d, uint32_t i, uint64_t now_ns)
{
    uint64_t limit_ns = (uint64_t)d->config->deadlines.step_alarm_ms * MS_NS;
    struct engine_view e;

    return engine_of(d, i, &e) ? alarm_step(&e, limit_ns, now_ns) : ALARM_IS_NOT;
}

static void step_detail(struct daemon *d, uint32_t i, uint64_t now_ns, char ret[ALARM_DETAIL_BYTES])
{
    struct engine_view e;

    if (engine_of(d, i, &e) && e.waits_since_ns)
        snprintf(ret, ALARM_DETAIL_BYTES,
                 "rank %u (pid %d) has finished step %" PRIu64 " of %" PRIu64 "%s, and %" PRIu64
                 " ms have passed",
                 e.rank_behind, (int)proc_pid(&d->procs, e.procs[e.rank_behind]),
                 e.done_step[e.rank_behind], e.named, e.jumped ? ", which is not believed" : "",
                 (now_ns - e.waits_since_ns) / MS_NS);
}

static enum alarm_fact stuck(struct daemon *d, uint32_t i, uint64_t now_ns)
{
    struct engine_view e;

    (void)now_ns;
    return engine_of(d, i, &e) ? alarm_stuck(&e) : ALARM_IS_NOT;
}

static void stuck_detail(struct daemon *d, uint32_t i, uint64_t now_ns,
                         char ret[ALARM_DETAIL_BYTES])
{
    struct engine_view e;

    (void)now_ns;
    if (!engine_of(d, i, &e))
        return;
    snprintf(ret, ALARM_DETAIL_BYTES, "pids ");
    proc_pids(&d->procs, e.procs, ret + strlen(ret), ALARM_DETAIL_BYTES - strlen(ret));
}

/* ---- of a tenant, and of its share of a table ---- */

static enum alarm_fact memory(struct daemon *d, uint32_t i, uint64_t now_ns)
{
    return alarm_refused(d->refusals[i].exhausted_ns, now_ns);
}

static enum alarm_fact quota(struct daemon *d, uint32_t i, uint64_t now_ns)
{
    return alarm_refused(d->refusals[i].quota_ns, now_ns);
}

/* The words of the last refusal, if that was it. */
static void refusal_detail(const struct refusals *r, enum tern_err err,
                           char ret[ALARM_DETAIL_BYTES])
{
    if (r->last == err && r->last_text[0])
        snprintf(ret, ALARM_DETAIL_BYTES, "%s", r->last_text);
}

static void memory_detail(struct daemon *d, uint32_t i, uint64_t now_ns,
                          char ret[ALARM_DETAIL_BYTES])
{
    (void)now_ns;
    refusal_detail(&d->refusals[i], TERN_POOL_EXHAUSTED, ret);
}

static void quota_detail(struct daemon *d, uint32_t i, uint64_t now_ns,
                         char ret[ALARM_DETAIL_BYTES])
{
    (void)now_ns;
    refusal_detail(&d->refusals[i], TERN_QUOTA, ret);
}

static enum alarm_fact share(struct daemon *d, uint32_t i, uint64_t now_ns)
{
    return alarm_refused(d->refusals[i / CORE_SHARES].share_ns[i % CORE_SHARES], now_ns);
}

static bool share_of(const struct daemon *d, uint32_t i, struct share_view *ret)
{
    return core_share_view(d->core, (struct share_of){i % CORE_SHARES, i / CORE_SHARES}, ret);
}

static void share_detail(struct daemon *d, uint32_t i, uint64_t now_ns,
                         char ret[ALARM_DETAIL_BYTES])
{
    struct share_view v;

    (void)now_ns;
    if (share_of(d, i, &v))
        snprintf(ret, ALARM_DETAIL_BYTES, "%u %s, %u of them reserved, of %u in all", v.used,
                 v.records, v.reserved, v.limit);
}

/* ---- of a peer ---- */

static enum alarm_fact peer(struct daemon *d, uint32_t i, uint64_t now_ns)
{
    (void)now_ns;
    if (i >= d->config->npeers || !d->config->peers[i].name[0] || d->config->peers[i].leaving)
        return ALARM_IS_NOT;
    return link_serves(&d->links.v[i]) ? ALARM_IS_NOT : ALARM_IS;
}

static void peer_detail(struct daemon *d, uint32_t i, uint64_t now_ns, char ret[ALARM_DETAIL_BYTES])
{
    uint64_t since_ns;
    uint32_t attempts;
    const char *cause = link_down_cause(d, i, &attempts, &since_ns);

    (void)now_ns;
    if (cause && attempts == 0)
        snprintf(ret, ALARM_DETAIL_BYTES, "%s", cause);
    else if (cause)
        snprintf(ret, ALARM_DETAIL_BYTES, "%s (%u attempts)", cause, attempts);
}

/* ---- of a GPU ---- */

static enum alarm_fact gpu(struct daemon *d, uint32_t i, uint64_t now_ns)
{
    struct mem_device_view v;

    (void)now_ns;
    return mem_device_view(d->mem, i, &v) && v.lost ? ALARM_IS : ALARM_IS_NOT;
}

static void gpu_detail(struct daemon *d, uint32_t i, uint64_t now_ns, char ret[ALARM_DETAIL_BYTES])
{
    struct mem_device_view v;

    (void)now_ns;
    if (mem_device_view(d->mem, i, &v) && v.lost)
        snprintf(ret, ALARM_DETAIL_BYTES, "%s", v.lost);
}

/* All of them are known when memory has been made; NULL: a daemon of tests, without. */
static uint32_t gpus_of(const struct daemon *d)
{
    struct mem_device_view v;
    uint32_t n = 0;

    while (d->mem && mem_device_view(d->mem, n, &v))
        n++;
    return n;
}

static const struct source sources[ALARM_KINDS] = {
    [ALARM_KIND_QUARANTINE_OLD] = {quarantine, quarantine_detail},
    [ALARM_KIND_STEP_OVERDUE] = {step, step_detail},
    [ALARM_KIND_ENGINE_STUCK] = {stuck, stuck_detail},
    [ALARM_KIND_RETIRE_BACKLOG] = {backlog, backlog_detail},
    [ALARM_KIND_SPILL_FULL] = {full, full_detail},
    [ALARM_KIND_SPILL_FAILING] = {failing, failing_detail},
    [ALARM_KIND_TAPE_LOST] = {tape, tape_detail},
    [ALARM_KIND_STEP_OVER] = {over, over_detail},
    [ALARM_KIND_SHARE_EXHAUSTED] = {share, share_detail},
    [ALARM_KIND_MEMORY_EXHAUSTED] = {memory, memory_detail},
    [ALARM_KIND_QUOTA_REACHED] = {quota, quota_detail},
    [ALARM_KIND_PEER_DOWN] = {peer, peer_detail},
    [ALARM_KIND_DEVICE_LOST] = {gpu, gpu_detail},
};

/* ---- all of them ---- */

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
        a->n += count_of(d, alarm_row(k)->of);
    }
    a->next = a->n;
    a->v = calloc(a->n, sizeof *a->v);
    if (!a->v)
        return TERN_INTERNAL;
    for (enum alarm_kind k = 0; k < ALARM_KINDS; k++)
        for (uint32_t i = count_of(d, alarm_row(k)->of); i > 0; i--)
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
    switch (alarm_row(a->kind)->of) {
    case ALARM_OF_DAEMON: break;
    case ALARM_OF_ENGINE:
        snprintf(ret, ALARM_SUBJECT_BYTES, "%s/%s", c->tenants[d->engines[i].tenant].name,
                 d->engines[i].name);
        break;
    case ALARM_OF_TENANT: snprintf(ret, ALARM_SUBJECT_BYTES, "%s", c->tenants[i].name); break;
    case ALARM_OF_SHARE:
        share_of(d, i, &v);
        snprintf(ret, ALARM_SUBJECT_BYTES, "%s/limits.%s", c->tenants[i / CORE_SHARES].name,
                 v.setting);
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
    const struct alarm_row *row = alarm_row(a->kind);
    char detail[ALARM_DETAIL_BYTES] = "";

    *ret = (struct alarm_view){.name = row->name,
                               .severity = log_level_name(row->severity),
                               .action = row->action,
                               .since_ns = a->since_ns};
    if (sources[a->kind].detail)
        sources[a->kind].detail(d, i, now_ns, detail);
    snprintf(ret->text, sizeof ret->text, "%s%s%s", row->means, detail[0] ? ": " : "", detail);
    if (a->state == ALARM_FALLING)
        snprintf(ret->text, sizeof ret->text,
                 "it has been over for %" PRIu64 " ms; the alarm ends when that is %" PRIu64 " ms",
                 (now_ns - a->falling_ns) / MS_NS, row->end_ns / MS_NS);
    subject_of(d, a, ret->subject);
}

static void tell(struct daemon *d, const struct alarm *a, enum alarm_news news, uint64_t now_ns)
{
    const struct alarm_row *row = alarm_row(a->kind);
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

    tell(d, a,
         alarm_look(a, sources[a->kind].fact(d, at - d->alarms.first[a->kind], now_ns), now_ns),
         now_ns);
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

void alarms_engine_gone(struct daemon *d, uint32_t slot, uint64_t now_ns)
{
    static const enum alarm_kind kinds[] = {ALARM_KIND_STEP_OVERDUE, ALARM_KIND_ENGINE_STUCK};

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct alarm *a = &d->alarms.v[d->alarms.first[kinds[i]] + slot];

        tell(d, a, alarm_end(a), now_ns);
    }
}

void alarms_peer_left(struct daemon *d, uint32_t slot, uint64_t now_ns)
{
    struct alarm *a = &d->alarms.v[d->alarms.first[ALARM_KIND_PEER_DOWN] + slot];

    tell(d, a, alarm_end(a), now_ns);
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
