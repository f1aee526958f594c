/* Admin answers: the commands, their arguments, and the paging of lists. admin_rows.c makes the
 * rows. Invariant: every answer is valid JSON: a row that does not fit is removed whole. */
#include "shell/admin/admin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tern_version.h>

#include "base/err.h"
#include "proto/shown.h"
#include "shell/admin/admin_rows.h"
#include "shell/log/log.h"

#define ARG_BYTES  41 /* of an argument, in an answer */
#define TAIL_BYTES 48 /* the end of a list: `],"next":4294967295}` */
#define SECOND_NS  1000000000u
#define MS_NS      1000000u

struct question {
    uint32_t from, limit, tenant; /* tenant: the asking tenant; NONE: an operator */
    struct admin_filter only;
    const char *only_tenant; /* its name; NULL: all */
    uint32_t core_hash;      /* 1: wanted */
};

/* ---- lists ---- */

enum { BY_TENANT = 1, BY_ENGINE = 2, BY_PEER = 4 };

struct list {
    const char *command;
    bool for_tenants;
    unsigned filters;
    size_t slots; /* offset of their number in struct core_limits */
    admin_row *row;
    /* Writes members before the rows, for that tenant or all; NULL: none. */
    void (*head)(const struct admin_ctx *ctx, uint32_t tenant, struct text_out *out);
};

/* Writes each tenant's use; a tenant sees only itself. */
static void status_tenants(const struct admin_ctx *ctx, uint32_t tenant, struct text_out *out)
{
    struct tickets_view tickets;
    struct records_view v;

    TEXT(out, OPEN_ARRAY("tenants"));
    for (uint32_t i = 0; i < ctx->config->ntenants; i++) {
        if ((tenant != NONE && tenant != i) || config_tenant_free(ctx->config, i))
            continue;
        v = core_tenant_view(ctx->core, i).records;
        TEXT(out, OPEN_OBJECT(NULL), STR("tenant", ctx->config->tenants[i].name),
             OBJECT("records", U64("pages", v.total), NUM(v, used), NUM(v, held), NUM(v, records),
                    U64("page_bytes", RECORD_PAGE_BYTES)));
        tickets = core_tenant_view(ctx->core, i).tickets;
        TEXT(out, OBJECT("tickets", NUM(tickets, standing), NUM(tickets, made), NUM(tickets, taken),
                         NUM(tickets, dropped), NUM(tickets, expired),
                         U64("ended", tickets.made - tickets.taken - tickets.dropped -
                                          tickets.expired - tickets.standing)));
        admin_spill_tenant(ctx, i, out);
        TEXT(out, CLOSE_OBJECT);
    }
    TEXT(out, CLOSE_ARRAY);
}

#define LIMIT(member) offsetof(struct core_limits, member)
static const struct list lists[] = {
    {"pools", true, BY_TENANT | BY_ENGINE, LIMIT(pools), admin_pool_row, NULL},
    {"sessions", true, BY_TENANT | BY_ENGINE, LIMIT(sessions), admin_session_row, NULL},
    {"records", true, BY_TENANT | BY_ENGINE, LIMIT(sessions), admin_record_row, status_tenants},
    {"tickets", true, BY_TENANT | BY_ENGINE, LIMIT(sessions), admin_ticket_row, status_tenants},
    {"engines", true, BY_TENANT | BY_ENGINE, LIMIT(engines), admin_engine_row, NULL},
    {"peers", false, BY_TENANT | BY_PEER, LIMIT(peers), admin_peer_row, admin_peers_head},
    {"transfers", false, BY_TENANT | BY_PEER, LIMIT(pulls), admin_transfer_row, NULL},
    {"tree", false, 0, LIMIT(nodes), admin_node_row, NULL},
    {"disk", false, BY_TENANT, LIMIT(disk_chunks), admin_disk_row, admin_spill},
    {"namespaces", true, BY_TENANT, LIMIT(namespaces), admin_namespace_row, NULL},
};

static uint32_t slots_of(const struct admin_ctx *ctx, const struct list *list)
{
    const struct core_limits *limits = core_limits_of(ctx->core);

    if (list->row == admin_peer_row)
        return ctx->config->npeers;
    if (list->row == admin_transfer_row) /* inbound transfers, then outbound ones */
        return limits->pulls + limits->serves;
    return *(const uint32_t *)((const char *)limits + list->slots);
}

/* One page of rows. *ret_next: the first slot after the page; `slots` at the end of the list. */
static enum tern_err rows(const struct admin_ctx *ctx, const struct list *list,
                          const struct question *q, struct text_out *out, uint32_t *ret_next)
{
    uint32_t slots = slots_of(ctx, list), n = 0, slot = q->from, end = slots;

    if (slot < slots && slots - slot > ADMIN_SCAN_MAX)
        end = slot + ADMIN_SCAN_MAX;
    for (; slot < end && n < q->limit; slot++) {
        struct text_out before = *out;

        if (!list->row(ctx, slot, &q->only, out))
            continue;
        if (out->overflow || out->cap - out->len < TAIL_BYTES) {
            *out = before;
            out->buf[out->len] = '\0';
            if (n == 0)
                return TERN_BUSY;
            break;
        }
        n++;
    }
    *ret_next = slot < slots ? slot : slots;
    return TERN_OK;
}

static enum tern_err answer_list(const struct admin_ctx *ctx, const struct list *list,
                                 const struct question *q, struct text_out *out)
{
    uint32_t next;

    TEXT(out, OPEN_OBJECT(NULL), U64("slots", slots_of(ctx, list)));
    if (list->head)
        list->head(ctx, q->only.tenant, out);
    TEXT(out, OPEN_ARRAY(list->command));
    TRY(rows(ctx, list, q, out, &next));
    TEXT(out, CLOSE_ARRAY, text_or_null(next < slots_of(ctx, list), U64("next", next)),
         CLOSE_OBJECT);
    return text_whole(out) ? TERN_OK : TERN_BUSY;
}

/* ---- status ---- */

static void error_counts(const uint64_t *errors, struct text_out *out)
{
    TEXT(out, OPEN_OBJECT("errors"));
    for (uint32_t i = TERN_OK + 1; i < TERN_ERR_COUNT; i++)
        TEXT(out, U64(err_name((enum tern_err)i), errors[i]));
    TEXT(out, CLOSE_OBJECT);
}

static void status_refusals(const struct admin_ctx *ctx, struct text_out *out)
{
    TEXT(out, OPEN_ARRAY("refusals"));
    for (uint32_t i = 0; i < ctx->config->ntenants; i++) {
        const struct refusals *r = &ctx->daemon->refusals[i];

        if (config_tenant_free(ctx->config, i))
            continue;
        TEXT(out, OPEN_OBJECT(NULL), STR("tenant", ctx->config->tenants[i].name));
        error_counts(r->errors, out);
        TEXT(out, STR("last", r->last == TERN_OK ? NULL : err_name(r->last)),
             STR("last_op", r->last == TERN_OK ? NULL : op_name(r->last_op)),
             STR("last_text", r->last_text[0] ? r->last_text : NULL),
             text_or_null(r->last != TERN_OK,
                          F64("last_s", ctx->now_ns > r->last_ns
                                            ? (double)(ctx->now_ns - r->last_ns) / SECOND_NS
                                            : 0)),
             CLOSE_OBJECT);
    }
    TEXT(out, CLOSE_ARRAY);
}

/* A tenant sees its own errors; operators see the sum and each tenant's. */
static void status_errors(const struct admin_ctx *ctx, uint32_t tenant, struct text_out *out)
{
    uint64_t errors[TERN_ERR_COUNT] = {0};

    for (uint32_t t = 0; t < ctx->config->ntenants; t++)
        for (uint32_t i = 0; i < TERN_ERR_COUNT && (tenant == NONE || tenant == t); i++)
            errors[i] += ctx->daemon->refusals[t].errors[i];
    error_counts(errors, out);
    if (tenant == NONE)
        status_refusals(ctx, out);
}

static void status_pools(const struct admin_ctx *ctx, uint32_t tenant, struct text_out *out)
{
    TEXT(out, OPEN_ARRAY("pools"));
    for (uint32_t i = 0; i < core_limits_of(ctx->core)->pools; i++)
        admin_pool_groups(ctx, i, tenant, out);
    TEXT(out, CLOSE_ARRAY);
}

/* Turns in flight, and the fate of turns that were never ended. */
static void status_turns(const struct admin_ctx *ctx, uint32_t tenant, struct text_out *out)
{
    struct turns_view all = {0}, t;

    for (uint32_t i = 0; i < ctx->config->ntenants; i++) {
        if (tenant != NONE && tenant != i)
            continue;
        t = core_tenant_view(ctx->core, i).turns;
        all.in_flight += t.in_flight;
        all.begun += t.begun;
        all.expired += t.expired;
        all.lost += t.lost;
    }
    TEXT(out, OBJECT("turns", U64("turns_in_flight", all.in_flight), U64("turns_begun", all.begun),
                     U64("turns_expired", all.expired), U64("turns_lost", all.lost)));
}

/* The host tier's contents and counters, or zeros. A pool's pages lie in each of its regions. */
static void status_host(const struct admin_ctx *ctx, const struct core_view *v,
                        struct text_out *out)
{
    uint64_t bytes = 0;
    struct pool_view p;

    for (uint32_t i = 0; i < core_limits_of(ctx->core)->pools; i++)
        if (core_pool_view(ctx->core, i, &p) && p.tier == TIER_HOST)
            bytes += p.bytes * p.regions;
    TEXT(out,
         OBJECT("host_tier", U64("bytes", bytes), NUM(*v, host_copies), NUM(*v, host_copies_failed),
                NUM(*v, host_copies_again), NUM(*v, host_uncopied), NUM(*v, host_loads),
                NUM(*v, copies), NUM(ctx->mem, copied_bytes), NUM(ctx->mem, copies_corrupt),
                NUM(*v, retracts), NUM(*v, retracts_undone), NUM(*v, recovers)));
}

/* NULL: no devices. */
static const char *device_checksums(const struct mem_stats *m)
{
    if (m->devices == 0)
        return NULL;
    if (m->devices_with_kernels == m->devices)
        return "kernels";
    return m->devices_with_kernels == 0 ? "copies" : "kernels and copies";
}

static void status_memory(const struct admin_ctx *ctx, struct text_out *out)
{
    TEXT(out,
         OBJECT("memory", STR("kind", "memfd"), NUM(ctx->mem, bytes), NUM(ctx->mem, device_bytes),
                NUM(ctx->mem, devices), NUM(ctx->mem, devices_lost),
                STR("device_checksums", device_checksums(&ctx->mem)),
                U64("checksums_by_kernels", ctx->mem.work.sums_by_kernels),
                U64("checksums_by_copies", ctx->mem.work.sums_by_copies),
                U64("checksums_by_engine", ctx->mem.work.sums_by_engine),
                NUM(ctx->mem.work, rows_by_kernels), NUM(ctx->mem.work, rows_by_copies),
                U64("moved_bytes_within", ctx->mem.work.moved_within),
                U64("moved_bytes_by_peer", ctx->mem.work.moved_by_peer),
                U64("moved_bytes_staged", ctx->mem.work.moved_staged),
                BOOL("huge_pages_wanted", ctx->config->huge_pages), NUM(ctx->mem, huge_page_bytes),
                NUM(ctx->mem, sealed_pages), NUM(ctx->mem, zeroed_bytes), NUM(ctx->mem, host_bytes),
                NUM(ctx->mem, record_bytes), NUM(ctx->mem, records_checked),
                NUM(ctx->mem, copied_pages), NUM(ctx->mem, copied_bytes),
                NUM(ctx->mem, copies_corrupt), NUM(ctx->mem, copies_spoilt),
                NUM(ctx->mem, queue_high_water), NUM(ctx->mem, faults),
                U64("with_holes", ctx->mem.holes.memories), NUM(ctx->mem.holes, waits),
                U64("waited_ms", ctx->mem.holes.waited_ns / 1000000), NUM(*ctx->config, workers)));
}

/* Counts pairs of a region on a GPU and a NIC in use: those that are registered, and those that are
 * not. If RDMA is wanted and no NIC is in use, each such region counts as not registered. `ternctl
 * doctor` names the pairs. */
static void status_regions(const struct admin_ctx *ctx, struct text_out *out)
{
    const struct daemon *d = ctx->daemon;
    struct xfer_registration_view v;
    uint64_t n[2] = {0, 0};

    for (uint32_t i = 0; d->xfer && xfer_registration_view(d->xfer, i, &v); i++)
        if (v.gpu && (v.device || ctx->rdma.wanted))
            n[!v.device || v.how == XFER_REGISTERED_NO]++;
    TEXT(out, U64("gpu_regions", n[0]), U64("gpu_regions_unregistered", n[1]));
}

static void status_data(const struct admin_ctx *ctx, struct text_out *out)
{
    const struct xfer_stats *x = &ctx->xfer;

    TEXT(out, OPEN_OBJECT("data"), U64("port", ctx->daemon->data_port), NUM(*x, conns),
         NUM(*x, pages_in), NUM(*x, pages_out), NUM(*x, payload_bytes_in),
         NUM(*x, payload_bytes_out), NUM(*x, socket_bytes_in), NUM(*x, socket_bytes_out),
         NUM(*x, corrupt_detected), NUM(*x, corrupt_injected), NUM(*x, gone_answers),
         NUM(*x, refused), NUM(*x, over_share), NUM(*x, conns_retired), NUM(*x, pages_again),
         OBJECT("threads", NUM(x->threads, threads), U64("tasks", x->threads.away),
                U64("tasks_done", x->threads.done)),
         OBJECT("from_peers", /* use against share: see limits.data_conns_max */
                U64("conns", x->inbound), U64("limit", x->inbound_max),
                U64("reserved", x->inbound_min), U64("common_used", x->inbound_common),
                U64("common", x->inbound_common_max)),
         OPEN_OBJECT("verbs"), NUM(*x, paths_up), NUM(*x, paths_made), NUM(*x, paths_failed),
         NUM(*x, pieces_again), NUM(*x, batches_moved), U64("pages_in", x->verbs_pages_in),
         U64("pages_out", x->verbs_pages_out), U64("bytes_in", x->verbs_bytes_in),
         NUM(*x, ring_bytes_in), NUM(*x, read_errors), NUM(*x, writes_posted),
         NUM(*x, grants_revoked), NUM(*x, late_writes), NUM(*x, windows_open),
         NUM(*x, stale_completions), NUM(*x, stale_answers), NUM(*x, cq_high_water),
         NUM(*x, cq_events));
    status_regions(ctx, out);
    TEXT(out, CLOSE_OBJECT, CLOSE_OBJECT);
}

/* The i-th door: the data port's, the control port's, the tenants' and the operators'. */
static bool door(const struct admin_ctx *ctx, uint32_t i, const char **ret_name,
                 struct door_stats *ret)
{
    const struct daemon *d = ctx->daemon;
    uint32_t tenants = ctx->config->ntenants;

    if (i > tenants + 2)
        return false;
    *ret_name = i == 0 ? "data" : i == 1 ? "peers" : "admin";
    *ret = (struct door_stats){0};
    if (i == 0)
        *ret = ctx->xfer.door;
    else if (i == 1 && d->links.door)
        door_stats(d->links.door, ret);
    else if (i > 1)
        door_stats(d->conns.share[i - 2].door, ret);
    if (i > 1 && i - 2 < tenants)
        *ret_name = ctx->config->tenants[i - 2].name;
    return true;
}

/* For each door: the connections without a name so far, the places, and the share of an address or
 * process. */
static void status_doors(const struct admin_ctx *ctx, struct text_out *out)
{
    struct door_stats s;
    const char *name;

    TEXT(out, OPEN_ARRAY("doors"));
    for (uint32_t i = 0; door(ctx, i, &name, &s); i++) {
        if (*name == '\0')
            continue; /* a free slot of tenants */
        TEXT(out, OBJECT(NULL, STR("door", name), NUM(s, waiting), NUM(s, places), NUM(s, share),
                         NUM(s, displaced), NUM(s, overdue), NUM(s, over_rate)));
    }
    TEXT(out, CLOSE_ARRAY);
}

/* Descriptors that clients send: how they are refused, and the number of connections ended because
 * of them. */
static void status_descriptors(const struct admin_ctx *ctx, struct text_out *out)
{
    TEXT(out, OBJECT("descriptors", STR("mode", ctx->descriptors),
                     U64("connections_ended", ctx->daemon->conns.brought),
                     NUM(ctx->closer, closing), U64("closed_apart", ctx->closer.closed)));
}

/* Send buffers of answers that wait for their readers, with each tenant's reserve and the shared
 * remainder. */
static void status_send_buffers(const struct admin_ctx *ctx, struct text_out *out)
{
    const uint32_t tenants = ctx->config->ntenants;
    struct stream_share s = {0};

    TEXT(out, OPEN_OBJECT("send_buffers"), U64("bytes", SEND_BUFFER_BYTES), OPEN_ARRAY("shares"));
    for (uint32_t i = 0; i < tenants + 2; i++) {
        const char *name = i < tenants    ? ctx->config->tenants[i].name
                           : i == tenants ? "operators"
                                          : "peers";

        stream_share_view(ctx->daemon->streams, i, &s);
        if (*name == '\0')
            continue;
        TEXT(out, OBJECT(NULL, STR("share", name), NUM(s, used), NUM(s, reserved)));
    }
    TEXT(out, CLOSE_ARRAY, NUM(s, common_used), NUM(s, common), U64("made_way", s.doomed),
         CLOSE_OBJECT);
}

/* This node's certificate; null in the clear. left_s is negative after it has expired. */
static void status_certificate(const struct admin_ctx *ctx, struct text_out *out)
{
    const struct tls_stats *own = ctx->tls;

    if (own == NULL) {
        TEXT(out, STR("certificate", NULL));
        return;
    }
    TEXT(out, OBJECT("certificate", WORD(own->own, not_after), F64("left_s", (double)own->left_s),
                     F64("life_s", (double)own->own.life_s), FLAG(own->own, own_ca)));
}

static void status_shell(const struct admin_ctx *ctx, struct text_out *out)
{
    TEXT(out, U64("conns", ctx->daemon->conns.open),
         U64("conns_refused", ctx->daemon->conns.refused),
         U64("engine_processes_exited", ctx->daemon->procs_exited),
         OBJECT("io", NUM(ctx->io, completions), NUM(ctx->io, cq_overflows), NUM(ctx->io, sq_waits),
                NUM(ctx->io, buffers_empty)),
         OBJECT("tape", NUM(ctx->tape, recorded), NUM(ctx->tape, dropped),
                NUM(ctx->tape, bytes_used),
                text_or_null(
                    ctx->tape.oldest_ns > 0,
                    F64("reaches_back_s", (double)(ctx->now_ns - ctx->tape.oldest_ns) / SECOND_NS)),
                BOOL("tokens_kept", ctx->config->tape_tokens)),
         OBJECT("log", U64("suppressed", log_suppressed()), U64("lost", log_lost()),
                STR("level", log_level_name(ctx->config->log_level))),
         FLAG(*ctx->config, insecure_peers));
    status_certificate(ctx, out);
    TEXT(out, OBJECT("fault_injection", U64("corrupt_pages", ctx->config->fault_corrupt_pages),
                     U64("copy_corrupt_every", ctx->config->fault_copy_corrupt_every),
                     BOOL("checks_on_owner", ctx->config->fault_checks_on_owner),
                     U64("disk_write_every", ctx->config->fault_disk_write_every),
                     U64("disk_full_after", ctx->config->fault_disk_full_after),
                     NUM(ctx->config->limits, step_visits)));
}

static void status_steps_over(const struct steps_over *v, struct text_out *out)
{
    TEXT(out, OBJECT("steps_over", NUM(*v, steps), NUM(*v, bound),
                     STR("longest_event", v->steps > 0 ? tape_event_word(v->kind) : NULL),
                     U64("longest_visits", v->visits)));
}

static void status_core(const struct core_view *v, struct text_out *out)
{
    TEXT(out, NUM(*v, evicted_nodes), NUM(*v, evicted_pages),
         U64("pages_corrupt", v->corrupt_detected), NUM(*v, pages_pulled), NUM(*v, pages_served),
         NUM(*v, dup_chunks), NUM(*v, token_blocks_free), NUM(*v, nodes_free),
         NUM(*v, retires_free));
}

/* One figure of a table for each tenant; a tenant sees only itself. */
static void status_by_tenant(const struct admin_ctx *ctx, struct share_of of, const char *key,
                             struct text_out *out)
{
    struct share_view v;

    TEXT(out, OPEN_OBJECT(key));
    for (uint32_t t = 0; t < ctx->config->ntenants; t++)
        if ((of.tenant == NONE || t == of.tenant) && !config_tenant_free(ctx->config, t) &&
            core_share_view(ctx->core, (struct share_of){of.table, t}, &v))
            TEXT(out,
                 U64(ctx->config->tenants[t].name, strcmp(key, "used") == 0 ? v.used : v.reserved));
    TEXT(out, CLOSE_OBJECT);
}

/* The tenants' use of the tables that they share. */
static void status_shares(const struct admin_ctx *ctx, uint32_t tenant, struct text_out *out)
{
    struct share_view v;

    TEXT(out, OPEN_ARRAY("shares"));
    for (uint32_t i = 0; core_share_view(ctx->core, (struct share_of){i, 0}, &v); i++) {
        TEXT(out, OPEN_OBJECT(NULL), STR("table", v.setting), WORD(v, records), NUM(v, limit),
             U64("common_free", v.rest));
        status_by_tenant(ctx, (struct share_of){i, tenant}, "reserved", out);
        status_by_tenant(ctx, (struct share_of){i, tenant}, "used", out);
        TEXT(out, CLOSE_OBJECT);
    }
    TEXT(out, CLOSE_ARRAY);
}

/* The age and the peer of the oldest quarantine, which an operator needs to end it. The age uses
 * the clock, not the core's last step, so that it grows while nothing happens. */
static void status_quarantine(const struct admin_ctx *ctx, const struct core_view *v,
                              struct text_out *out)
{
    uint64_t since_ns = v->oldest_quarantine_ns;
    struct transfer_view t = {.link = NONE};

    core_pull_view(ctx->core, since_ns ? v->oldest_quarantine.slot : NONE, &t);
    TEXT(out,
         U64("quarantine_oldest_ms",
             since_ns && ctx->now_ns > since_ns ? (ctx->now_ns - since_ns) / MS_NS : 0),
         OBJECT("quarantine_holder",
                STR("peer", t.link < ctx->config->npeers ? ctx->config->peers[t.link].name : ""),
                HEX("transfer", pull_id_pack(t.pull)), U64("pages", t.quarantined)));
}

/* The engines whose steps are overdue while a release waits for them (E8). */
static void status_overdue(const struct admin_ctx *ctx, uint32_t tenant, struct text_out *out)
{
    uint64_t limit_ns = (uint64_t)ctx->config->deadlines.step_alarm_ms * MS_NS;
    struct engine_view e;

    TEXT(out, OPEN_ARRAY("steps_overdue"));
    for (uint32_t i = 0; i < core_limits_of(ctx->core)->engines; i++) {
        if (!core_engine_view(ctx->core, i, &e) || (tenant != NONE && e.tenant != tenant) ||
            !engine_overdue(&e, limit_ns, ctx->now_ns))
            continue;
        TEXT(out,
             OBJECT(NULL, STR("engine", e.name), STR("tenant", ctx->config->tenants[e.tenant].name),
                    U64("rank", e.rank_behind), text_u63("done_step", e.done_step[e.rank_behind]),
                    text_u63("named_step", e.named), FLAG(e, jumped),
                    U64("waiting_ms", (ctx->now_ns - e.waits_since_ns) / MS_NS)));
    }
    TEXT(out, CLOSE_ARRAY);
}

/* The engines with an ended process and a live one: an engine keeps its pages until all its
 * processes have ended. */
static void status_stuck(const struct admin_ctx *ctx, uint32_t tenant, struct text_out *out)
{
    struct engine_view e;

    TEXT(out, OPEN_ARRAY("engines_stuck"));
    for (uint32_t i = 0; i < core_limits_of(ctx->core)->engines; i++) {
        if (!core_engine_view(ctx->core, i, &e) || (tenant != NONE && e.tenant != tenant) ||
            !e.dying)
            continue;
        TEXT(out, OPEN_OBJECT(NULL), STR("engine", e.name),
             STR("tenant", ctx->config->tenants[e.tenant].name));
        admin_engine_pids(ctx->daemon, &e, out);
        TEXT(out, CLOSE_OBJECT);
    }
    TEXT(out, CLOSE_ARRAY);
}

/* The number of active alarms of each kind, even if it is 0. */
static void status_alarm_counts(const struct admin_ctx *ctx, struct text_out *out)
{
    TEXT(out, OPEN_ARRAY("alarm_counts"));
    for (enum alarm_kind k = 0; k < ALARM_KINDS; k++)
        TEXT(out, OBJECT(NULL, STR("name", alarm_row[k].name),
                         STR("severity", log_level_name(alarm_row[k].severity)),
                         U64("on", ctx->daemon->alarms.on_of[k])));
    TEXT(out, CLOSE_ARRAY);
}

/* The alarms that are on, up to ALARMS_SHOWN. */
static void status_alarms(const struct admin_ctx *ctx, struct text_out *out)
{
    struct alarm_view v;
    uint32_t at = 0;

    TEXT(out, U64("alarms_on", ctx->daemon->alarms.on));
    status_alarm_counts(ctx, out);
    TEXT(out, OPEN_ARRAY("alarms"));
    for (uint32_t n = 0; n < ALARMS_SHOWN && alarms_view(ctx->daemon, &at, ctx->now_ns, &v); n++)
        TEXT(out,
             OBJECT(NULL, WORD(v, name), WORD(v, severity), WORD(v, subject),
                    F64("since_s", admin_age_s(ctx, v.since_ns)), WORD(v, text), WORD(v, action)));
    TEXT(out, CLOSE_ARRAY);
}

/* Changes of the tree; the kept ones are numbered [first, next). */
static void status_events(const struct admin_ctx *ctx, const struct core_view *v,
                          struct text_out *out)
{
    TEXT(out, OBJECT("events", U64("first", v->event_first), U64("next", v->event_next),
                     U64("limit", core_limits_of(ctx->core)->events), /* of each tenant */
                     U64("subscriptions", ctx->daemon->subs.n), U64("told", ctx->daemon->subs.sent),
                     NUM(ctx->daemon->subs, lost)));
}

/* Counts peers that this daemon can fetch from, and those whose pages use a fallback. The core's
 * links include the other direction. */
static void status_peers(const struct admin_ctx *ctx, struct text_out *out)
{
    uint32_t up = 0, fallback = 0;

    for (uint32_t i = 0; i < ctx->config->npeers; i++) {
        up += link_serves(&ctx->daemon->links.v[i]);
        fallback += link_falls_back(ctx->daemon, i);
    }
    TEXT(out, U64("peers", config_peers(ctx->config)), U64("peers_up", up),
         U64("peers_fallback", fallback));
}

static enum tern_err answer_status(const struct admin_ctx *ctx, const struct question *q,
                                   struct text_out *out)
{
    struct core_view v;

    core_view(ctx->core, &v);
    TEXT(out, OPEN_OBJECT(NULL), WORD(*ctx->config, node), STR("version", TERN_VERSION),
         HEX("incarnation", v.incarnation),
         U64("uptime_s", (ctx->now_ns - ctx->daemon->start_ns) / SECOND_NS), FLAG(v, draining),
         U64("sessions",
             q->tenant == NONE ? v.sessions : core_tenant_view(ctx->core, q->tenant).sessions));
    status_turns(ctx, q->tenant, out);
    status_tenants(ctx, q->tenant, out);
    admin_figures("figures", ctx, q->tenant, out);
    status_pools(ctx, q->tenant, out);
    status_shares(ctx, q->tenant, out);
    status_errors(ctx, q->tenant, out);
    status_overdue(ctx, q->tenant, out);
    status_stuck(ctx, q->tenant, out);
    if (q->tenant == NONE) {
        TEXT(out, NUM(v, engines), U64("prefix_nodes", v.nodes));
        status_peers(ctx, out);
        TEXT(out, NUM(v, links_up), U64("listen_port", ctx->daemon->control_port),
             U64("transfers_active", (uint64_t)v.pulls + v.serves), NUM(v, namespaces_reset),
             NUM(v, resets_spreading));
        status_alarms(ctx, out);
        status_steps_over(core_steps_over(ctx->core), out);
        status_core(&v, out);
        status_quarantine(ctx, &v, out);
        status_host(ctx, &v, out);
        admin_spill(ctx, q->tenant, out);
        status_memory(ctx, out);
        status_data(ctx, out);
        status_events(ctx, &v, out);
        status_doors(ctx, out);
        status_descriptors(ctx, out);
        status_send_buffers(ctx, out);
        status_shell(ctx, out);
    } else { /* a tenant may wait for its retracts, so it sees how many were undone */
        TEXT(out, OBJECT("host_tier", U64("retracts_undone",
                                          core_tenant_view(ctx->core, q->tenant).retracts_undone)));
    }
    /* The hash covers the whole arena and takes milliseconds, so it is computed only on request. */
    if (q->core_hash && q->tenant == NONE)
        TEXT(out, HEX("core_hash", core_hash(ctx->core)));
    TEXT(out, CLOSE_OBJECT);
    return text_whole(out) ? TERN_OK : TERN_BUSY;
}

/* ---- the door ---- */

static bool is_peer(const struct config *config, const char *name)
{
    for (uint32_t i = 0; i < config->npeers; i++)
        if (strcmp(config->peers[i].name, name) == 0)
            return true;
    return strcmp(name, WIRE_DISK) == 0;
}

/* Refuses a filter that the command does not have, and names that are not configured. Any name of
 * an engine is valid, because engines join and leave. */
static enum tern_err filters(const struct admin_ctx *ctx, const char *command, struct question *q,
                             char why[ADMIN_WHY_BYTES])
{
    unsigned wanted = (q->only_tenant ? BY_TENANT : 0) | (q->only.engine ? BY_ENGINE : 0) |
                      (q->only.peer ? BY_PEER : 0);
    unsigned known = 0;

    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        known |= strcmp(lists[i].command, command) == 0 ? lists[i].filters : 0;
    if (wanted & ~known)
        return admin_refuse(why, TERN_INVALID, "%.40s takes no '%s'", command,
                            wanted & ~known & BY_TENANT   ? "tenant"
                            : wanted & ~known & BY_ENGINE ? "engine"
                                                          : "peer");
    if (q->only_tenant && q->tenant == NONE &&
        config_tenant_slot(ctx->config, q->only_tenant, &q->only.tenant) != TERN_OK)
        return admin_refuse(why, TERN_INVALID,
                            "no tenant is called '%.40s': see tenants[].name of the configuration",
                            q->only_tenant);
    if (q->only.peer && !is_peer(ctx->config, q->only.peer))
        return admin_refuse(why, TERN_INVALID,
                            "no peer is called '%.40s': `ternctl peers` shows them", q->only.peer);
    return TERN_OK;
}

static enum tern_err answer(const struct admin_ctx *ctx, const char *command,
                            const struct question *q, struct text_out *out)
{
    if (strcmp(command, "status") == 0)
        return answer_status(ctx, q, out);
    if (strcmp(command, "stats") == 0)
        return admin_stats(ctx, q->tenant, out);
    if (strcmp(command, "doctor") == 0)
        return q->tenant == NONE ? admin_doctor(ctx, out) : TERN_DENIED;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        if (strcmp(lists[i].command, command) != 0)
            continue;
        if (q->tenant != NONE && !lists[i].for_tenants)
            return TERN_DENIED;
        return answer_list(ctx, &lists[i], q, out);
    }
    return TERN_UNSUPPORTED;
}

static bool number(const char *text, uint32_t max, uint32_t *ret)
{
    uint64_t v = strtoull(text, NULL, 10); /* ULLONG_MAX if too large */

    if (*text == '\0' || text[strspn(text, "0123456789")] != '\0' || v > max)
        return false;
    *ret = (uint32_t)v;
    return true;
}

static enum tern_err unknown(const char *command, const char *arg, const struct admin_arg *takes,
                             size_t ntakes, char why[ADMIN_WHY_BYTES])
{
    char key[ARG_BYTES], name[ARG_BYTES];
    size_t at;

    shown(key, sizeof key, arg);
    shown(name, sizeof name, command);
    at = (size_t)snprintf(why, ADMIN_WHY_BYTES, "%s takes no '%.*s': it takes", name,
                          (int)strcspn(key, "="), key);
    for (size_t i = 0; i < ntakes && at < ADMIN_WHY_BYTES; i++)
        at += (size_t)snprintf(why + at, ADMIN_WHY_BYTES - at, "%s %s=", i > 0 ? "," : "",
                               takes[i].key);
    if (ntakes == 0)
        snprintf(why + at, ADMIN_WHY_BYTES - at, " no argument");
    return TERN_INVALID;
}

enum tern_err admin_args(const char *command, char *const *args, size_t nargs,
                         const struct admin_arg *takes, size_t ntakes, char why[ADMIN_WHY_BYTES])
{
    for (size_t i = 0; i < nargs; i++) {
        size_t n = strcspn(args[i], "="), k = 0;
        char value[ARG_BYTES];

        while (k < ntakes && (args[i][n] != '=' || strlen(takes[k].key) != n ||
                              strncmp(args[i], takes[k].key, n) != 0))
            k++;
        if (k == ntakes)
            return unknown(command, args[i], takes, ntakes, why);
        if (!takes[k].number) {
            *takes[k].text = args[i] + n + 1;
        } else if (!number(args[i] + n + 1, takes[k].max, takes[k].number)) {
            shown(value, sizeof value, args[i] + n + 1);
            return admin_refuse(why, TERN_INVALID, "%s=%s: the value must be a number from 0 to %u",
                                takes[k].key, value, takes[k].max);
        }
    }
    return TERN_OK;
}

enum tern_err admin_answer(const struct admin_ctx *ctx, const char *command, char *const *args,
                           size_t nargs, uint32_t tenant, struct text_out *out,
                           char why[ADMIN_WHY_BYTES])
{
    struct question q = {
        .limit = ADMIN_ROWS_DEFAULT, .tenant = tenant, .only = {.tenant = tenant, .pool = NONE}};
    const struct admin_arg takes[] = {{.key = "from", .number = &q.from, .max = UINT32_MAX},
                                      {.key = "limit", .number = &q.limit, .max = ADMIN_ROWS_MAX},
                                      {.key = "pool", .number = &q.only.pool, .max = NONE - 1},
                                      {.key = "tenant", .text = &q.only_tenant},
                                      {.key = "engine", .text = &q.only.engine},
                                      {.key = "peer", .text = &q.only.peer},
                                      {.key = "hash", .number = &q.core_hash, .max = 1}};
    struct text_out before = *out;
    enum tern_err err;

    TRY(admin_args(command, args, nargs, takes, sizeof takes / sizeof *takes, why));
    if (q.limit == 0)
        return admin_refuse(why, TERN_INVALID, "limit must be a number of at least 1");
    TRY(filters(ctx, command, &q, why));
    why[0] = '\0';
    err = answer(ctx, command, &q, out);
    if (err == TERN_UNSUPPORTED)
        admin_refuse(why, err,
                     "this daemon does not know that command: its version is " TERN_VERSION
                     ", use the ternctl of that version");
    if (err != TERN_OK) {
        *out = before;
        out->buf[out->len] = '\0';
    }
    return err;
}
