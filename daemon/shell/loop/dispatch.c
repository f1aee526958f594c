/* Carries out the actions of a step of the core: replies to connections, work for the seams,
 * messages to peers. shell/step/step.c calls dispatch_actions after each step as `carry_out`. See
 * daemon.h. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "shell/admin/operator.h"
#include "shell/log/log.h"
#include "shell/loop/loop.h"
#include "shell/wire/wire_out.h"

#define STEP_OVER_TELL_NS UINT64_C(10000000000)

static void pool_known(struct daemon *d, uint32_t slot)
{
    struct pool_watch *w = &d->pools[slot];
    struct group_layout layouts[GROUPS_MAX];
    struct pool_view view;

    check(core_pool_view(d->core, slot, &view));
    if (w->gen == view.id.gen)
        return;
    w->gen = view.id.gen;
    memset(w->names, 0, sizeof(w->names));
    for (uint32_t g = 0; g < view.ngroups; g++)
        layouts[g] = view.group[g].layout;
    mem_pool_set(d->mem, slot, view.tier, view.tenant, view.offset, view.bytes, view.regions,
                 view.region, view.moved, view.ngroups, layouts);
    xfer_pool_layouts(d->xfer, slot, view.layout_hash, NULL, 0);
}

static void pool_layouts(struct daemon *d, uint32_t slot, const struct reshard_layout *layouts)
{
    struct reshard_layout *told = d->in.layouts;
    struct pool_view view;

    check(layouts == told && core_pool_view(d->core, slot, &view));
    for (uint32_t g = 0; g < view.ngroups; g++)
        told[g].align_tokens = view.align_tokens;
    xfer_pool_layouts(d->xfer, slot, view.layout_hash, told, view.ngroups);
}

/* The text for a fetch between pools of different layout, if both ends have sent their layouts: the
 * obstacle and its group. Borrowed until the next call. */
static const char *layouts_text(struct daemon *d, const struct reply *r)
{
    static char text[RESHARD_NAME_MAX + 384];
    char group[RESHARD_NAME_MAX];
    enum reshard_refusal refusal;

    if (r->fetch.layout_hash == 0 || r->fetch.other_hash == 0)
        return r->text;
    refusal = xfer_layouts_refusal(d->xfer, r->fetch.layout_hash, r->fetch.other_hash, group);
    if (refusal == RESHARD_NONE)
        return r->text;
    for (char *c = group; *c; c++)
        *c = *c == '#' ? '?' : *c; /* # stands for a number in a reply's text */
    snprintf(text, sizeof(text),
             "the peer has these tokens in a pool of another layout, and its pages cannot be "
             "resharded: group '%.*s': %s. Compute the tokens, or open pools of layouts that fit",
             RESHARD_NAME_MAX - 1, group, reshard_text(refusal));
    return text;
}

/* Ends the engine's connections, as if its processes had exited. */
static void engine_kicked(struct daemon *d, struct engine_id engine)
{
    for (uint32_t i = 0; i < d->conns.n; i++) {
        struct client_conn *c = conn_for_reply(d, i);

        if (c && !conn_is_admin(c) && c->engine == engine.slot)
            stream_finish(&c->stream, "the engine was kicked by an operator");
    }
}

static void engine_log_joined(const struct daemon *d, struct engine_id engine, uint32_t proc)
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

/* Updates the shell's records for an answer before it is sent. */
static void note_reply(struct daemon *d, const struct reply *r, struct client_conn *c)
{
    uint32_t slot;

    if (r->err != TERN_OK)
        return;
    if (r->op == OP_POOL_OPEN) {
        slot = r->pool_open.pool.slot;
        pool_known(d, slot);
        if (r->pool_open.names)
            memcpy(d->pools[slot].names, r->pool_open.names, sizeof(d->pools[slot].names));
        if (r->pool_open.layouts)
            pool_layouts(d, slot, r->pool_open.layouts);
    } else if (r->op == OP_ENGINE_JOIN) {
        engine_watch_begin(d, r->join.engine);
        if (c) {
            c->engine = r->join.engine.slot;
            engine_log_joined(d, r->join.engine, c->proc);
        }
    } else if (r->op == OP_ENGINE_KICK) {
        engine_kicked(d, r->engine_kick.engine);
    }
}

static void log_failure(const struct reply *r)
{
    bool ours = err_category(r->err) == TERN_CAT_IO || err_category(r->err) == TERN_CAT_INTERNAL;

    log_event(ours ? LEVEL_WARN : LEVEL_DEBUG, "request_failed", "conn=%u op=%s err=%s " LOG_TRACE,
              r->conn, op_name(r->op), err_name(r->err), r->trace_id);
}

/* Returns false if the region was to be mapped and is lost. */
static bool region_known(const struct daemon *d, uint32_t tenant, const struct reply *r,
                         struct wire_region *ret)
{
    bool lost = false;

    ret->bytes = d->config->tenants[tenant].memory_bytes;
    ret->sums.fd = -1;
    if (r->err != TERN_OK)
        return true;
    ret->device = mem_region_device(d->mem, tenant, r->pool_map.region, &ret->bytes, &lost);
    if (r->pool_map.sums)
        ret->sums = mem_brought(d->mem, tenant, r->pool_map.region, r->pool_map.offset);
    return !lost;
}

/* Returns the descriptors of an answer. Fails with `why` if one cannot be made. */
static enum tern_err fds_of(struct client_conn *c, const struct reply *r,
                            const struct wire_region *region, int fds[STREAM_FDS_MAX],
                            uint32_t *ret_n, char why[BELL_WHY_BYTES])
{
    const struct mem *mem = c->d->mem;
    uint32_t n = 0;
    int bell;

    if (r->op == OP_POOL_MAP && r->err == TERN_OK) {
        check(c->engine != NONE);
        TRY(bell_give(c, &bell, why));
        fds[n++] = mem_region_fd(mem, c->tenant, r->pool_map.region);
        fds[n++] = mem_control_fd(mem, c->tenant, c->engine);
        fds[n++] = bell;
        if (region->sums.fd >= 0)
            fds[n++] = region->sums.fd;
    }
    if (r->op == OP_RECORD_MAP && r->err == TERN_OK)
        fds[n++] = mem_record_fd(mem, c->tenant);
    *ret_n = n;
    return TERN_OK;
}

static void reply_send(struct daemon *d, const struct reply *r)
{
    struct client_conn *c = conn_for_reply(d, r->conn);
    uint32_t tenant = c && !conn_is_admin(c) ? c->tenant : 0;
    struct wire_region region = {.peers = d->config->peers};
    int fds[STREAM_FDS_MAX];
    uint32_t nfds = 0;
    char why[BELL_WHY_BYTES];
    struct reply told;
    size_t n;

    note_reply(d, r, c);
    if (r->err != TERN_OK)
        log_failure(r);
    if (!c)
        return;
    if (!conn_is_admin(c))
        refusals_note(&d->refusals[tenant], r, io_now_ns());
    if (wire_out_type(r->op) == 0) {
        operator_reply(d, c, r);
        return;
    }
    if (r->op == OP_POOL_MAP && !region_known(d, tenant, r, &region)) {
        told = *r;
        told.err = TERN_GONE;
        told.text = "the GPU that the pool lies on has failed: see the daemon's log";
        r = &told;
    }
    if (fds_of(c, r, &region, fds, &nfds, why) != TERN_OK) {
        told = *r;
        told.err = TERN_BUSY;
        told.text = why;
        r = &told;
        log_failure(r);
    }
    if (r->op == OP_FETCH && r->err == TERN_UNSUPPORTED) {
        told = *r;
        told.text = layouts_text(d, r);
        r = &told;
    }
    n = wire_out_reply(r, &region, d->config->frame_body_max, d->frame);
    if (n == 0) {
        struct frame_header h = {.type = (uint16_t)(wire_out_type(r->op) - 1),
                                 .request_id = r->request_id};

        log_event(LEVEL_ERROR, "answer_too_large", "conn=%u op=%s " LOG_TRACE, r->conn,
                  op_name(r->op), r->trace_id);
        conn_send_status(
            c, &h, TERN_INTERNAL,
            "the answer is larger than frame_body_max: raise that, or ask for less at a time");
        return;
    }
    if (conn_send(c, n, fds, nfds) && nfds > 0)
        conn_fds_queued(c);
}

void dispatch_reply(struct daemon *d, const struct reply *r)
{
    char words[WIRE_OUT_WORDS];
    struct reply said;

    if (r->err == TERN_OK) {
        reply_send(d, r);
        return;
    }
    said = *r;
    said.text = wire_out_text(r->text, r->number, words);
    reply_send(d, &said);
}

/* Ends the engine's watch, and clears it in all connections. */
static void engine_gone(struct daemon *d, struct engine_id engine)
{
    alarms_engine_gone(d, engine.slot, io_now_ns());
    if (!engine_watch_end(d, engine))
        return;
    for (uint32_t i = 0; i < d->conns.n; i++)
        if (d->conns.v[i].engine == engine.slot)
            d->conns.v[i].engine = NONE;
}

/* Starts a pull from the disk or from a peer. */
static void pull(struct daemon *d, const struct action *a)
{
    if (a->pull.link == link_disk(&d->limits))
        disk_read(d->disk, a);
    else
        xfer_pull(d->xfer, a);
}

static void pull_stop(struct daemon *d, const struct action *a)
{
    if (a->pull_stop.link == link_disk(&d->limits))
        disk_read_stop(d->disk, a->pull_stop.pull);
    else
        xfer_pull_stop(d->xfer, a);
}

static void dispatch(struct daemon *d, const struct action *a)
{
    struct client_conn *c;

    switch (a->kind) {
    case ACT_REPLY: dispatch_reply(d, &a->reply); break;
    case ACT_CLOSE_CONN:
        c = conn_for_reply(d, a->conn.conn);
        if (c)
            stream_finish(&c->stream, "broke the protocol");
        break;
    case ACT_SEAL: mem_seal(d->mem, a->seal.job, a->seal.pool, a->seal.pages, a->seal.n); break;
    case ACT_RECORD_CHECK: mem_check_record(d->mem, a->record); break;
    case ACT_ZERO:
        pool_known(d, a->zero.pool.slot);
        mem_zero(d->mem, a->zero.pool);
        break;
    case ACT_COPY:
        pool_known(d, a->copy.from_pool);
        pool_known(d, a->copy.to_pool);
        mem_copy(d->mem, a->copy.job, a->copy.from_pool, a->copy.to_pool, a->copy.from, a->copy.to,
                 a->copy.n);
        break;
    case ACT_DISK_WRITE: disk_write(d->disk, &a->disk_write); break;
    case ACT_DISK_DROP: disk_drop(d->disk, &a->disk_drop); break;
    case ACT_PEER_SEND: link_send(d, a->peer.link, &a->peer.msg); break;
    case ACT_LINK_CLOSE: link_close(d, a->link.link, "broke the protocol"); break;
    case ACT_PULL: pull(d, a); break;
    case ACT_PULL_STOP: pull_stop(d, a); break;
    case ACT_SERVE_START: xfer_serve_start(d->xfer, a); break;
    case ACT_SERVE_STOP: xfer_serve_stop(d->xfer, a); break;
    case ACT_ENGINE_GONE: engine_gone(d, a->engine.engine); break;
    case ACT_ENGINE_STUCK: alarms_engine(d, a->engine.engine.slot, io_now_ns()); break;
    case ACT_STEP_WANTED: engine_watch_want(d, a->wanted.engine, a->wanted.step); break;
    }
}

/* T20: keeps the tape of the first step that was too long, and logs at most one every 10 s. */
static void step_bounded(struct daemon *d)
{
    const struct steps_over *over = core_steps_over(d->core);
    const char *tape = "none";

    if (over->steps == d->over.steps)
        return;
    if (d->over.steps == 0)
        tape = crash_keep_tape();
    if (d->over.told_ns == 0 || d->last_ns - d->over.told_ns >= STEP_OVER_TELL_NS) {
        log_event(LEVEL_ERROR, "step_over", "by=%s visits=%u bound=%u steps=%" PRIu64 " tape=%s",
                  tape_event_word(over->last_kind), over->last_visits, over->bound, over->steps,
                  tape);
        d->over.told_ns = d->last_ns;
    }
    d->over.steps = over->steps;
    d->over.last_ns = d->last_ns;
}

void dispatch_actions(struct daemon *d)
{
    step_bounded(d);
    for (uint32_t i = 0; i < d->actions->n; i++)
        dispatch(d, &d->actions->v[i]);
}
