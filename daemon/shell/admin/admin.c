/* Admin answers: the commands and their arguments, and the paging of lists. The rows themselves are
 * made in admin_rows.c. A row that does not fit is taken back whole, so that every answer is valid
 * JSON. */
#include "shell/admin/admin.h"

#include <stdio.h>
#include <string.h>
#include <tern_version.h>

#include "base/err.h"
#include "shell/admin/admin_rows.h"
#include "shell/log/log.h"

#define TAIL_BYTES 48 /* what ends a list: `],"next":4294967295}` */
#define SECOND_NS  1000000000u
#define MS_NS      1000000u

struct question {
    uint32_t from, limit, tenant; /* tenant: who asks; NONE: an operator */
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
    uint32_t (*slots)(const struct admin_ctx *ctx);
    admin_row *row;
    /* What stands before the rows, of that tenant or of all; NULL: nothing. */
    void (*head)(const struct admin_ctx *ctx, uint32_t tenant, struct text_out *out);
};

static uint32_t pool_slots(const struct admin_ctx *ctx)
{
    return core_limits_of(ctx->core)->pools;
}

static uint32_t session_slots(const struct admin_ctx *ctx)
{
    return core_limits_of(ctx->core)->sessions;
}

static uint32_t engine_slots(const struct admin_ctx *ctx)
{
    return core_limits_of(ctx->core)->engines;
}

static uint32_t peer_slots(const struct admin_ctx *ctx)
{
    return ctx->config->npeers;
}

static uint32_t transfer_slots(const struct admin_ctx *ctx)
{
    return core_limits_of(ctx->core)->pulls + core_limits_of(ctx->core)->serves;
}

static uint32_t disk_slots(const struct admin_ctx *ctx)
{
    return core_limits_of(ctx->core)->disk_chunks;
}

static uint32_t namespace_slots(const struct admin_ctx *ctx)
{
    return core_limits_of(ctx->core)->namespaces;
}

static uint32_t node_slots(const struct admin_ctx *ctx)
{
    return core_limits_of(ctx->core)->nodes;
}

/* What each tenant has; a tenant hears of itself alone. */
static void status_tenants(const struct admin_ctx *ctx, uint32_t tenant, struct text_out *out)
{
    struct tickets_view tickets;
    struct records_view v;

    text_array(out, "tenants");
    for (uint32_t i = 0; i < ctx->config->ntenants; i++) {
        if ((tenant != NONE && tenant != i) || config_tenant_free(ctx->config, i))
            continue;
        core_records(ctx->core, i, &v);
        text_object(out, NULL);
        text_str(out, "tenant", ctx->config->tenants[i].name);
        text_object(out, "records");
        text_u64(out, "pages", v.total);
        text_u64(out, "used", v.used);
        text_u64(out, "held", v.held);
        text_u64(out, "records", v.records);
        text_u64(out, "page_bytes", RECORD_PAGE_BYTES);
        text_object_end(out);
        core_tickets(ctx->core, i, &tickets);
        text_object(out, "tickets");
        text_u64(out, "standing", tickets.standing);
        text_u64(out, "made", tickets.made);
        text_u64(out, "taken", tickets.taken);
        text_u64(out, "dropped", tickets.dropped);
        text_u64(out, "expired", tickets.expired);
        text_u64(out, "ended",
                 tickets.made - tickets.taken - tickets.dropped - tickets.expired -
                     tickets.standing);
        text_object_end(out);
        admin_spill_tenant(ctx, i, out);
        text_object_end(out);
    }
    text_array_end(out);
}

static const struct list lists[] = {
    {"pools", true, BY_TENANT | BY_ENGINE, pool_slots, admin_pool_row, NULL},
    {"sessions", true, BY_TENANT | BY_ENGINE, session_slots, admin_session_row, NULL},
    {"records", true, BY_TENANT | BY_ENGINE, session_slots, admin_record_row, status_tenants},
    {"tickets", true, BY_TENANT | BY_ENGINE, session_slots, admin_ticket_row, status_tenants},
    {"engines", true, BY_TENANT | BY_ENGINE, engine_slots, admin_engine_row, NULL},
    {"peers", false, BY_TENANT | BY_PEER, peer_slots, admin_peer_row, admin_peers_head},
    {"transfers", false, BY_TENANT | BY_PEER, transfer_slots, admin_transfer_row, NULL},
    {"tree", false, 0, node_slots, admin_node_row, NULL},
    {"disk", false, BY_TENANT, disk_slots, admin_disk_row, admin_disk_head},
    {"namespaces", true, BY_TENANT, namespace_slots, admin_namespace_row, NULL},
};

/* One page of rows. *ret_next is the first slot that is not in it; `slots` at the end of the list.
 */
static enum tern_err rows(const struct admin_ctx *ctx, const struct list *list,
                          const struct question *q, struct text_out *out, uint32_t *ret_next)
{
    uint32_t slots = list->slots(ctx), n = 0, slot = q->from, end = slots;

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

    text_object(out, NULL);
    text_u64(out, "slots", list->slots(ctx));
    if (list->head)
        list->head(ctx, q->only.tenant, out);
    text_array(out, list->command);
    TRY(rows(ctx, list, q, out, &next));
    text_array_end(out);
    if (next < list->slots(ctx))
        text_u64(out, "next", next);
    else
        text_str(out, "next", NULL);
    text_object_end(out);
    return text_whole(out) ? TERN_OK : TERN_BUSY;
}

/* ---- status ---- */

static void error_counts(const uint64_t *errors, struct text_out *out)
{
    text_object(out, "errors");
    for (uint32_t i = TERN_OK + 1; i < TERN_ERR_COUNT; i++)
        text_u64(out, err_name((enum tern_err)i), errors[i]);
    text_object_end(out);
}

static void status_refusals(const struct admin_ctx *ctx, struct text_out *out)
{
    text_array(out, "refusals");
    for (uint32_t i = 0; ctx->refusals != NULL && i < ctx->config->ntenants; i++) {
        const struct refusals *r = ctx->refusals(ctx->ctx, i);

        if (config_tenant_free(ctx->config, i))
            continue;
        text_object(out, NULL);
        text_str(out, "tenant", ctx->config->tenants[i].name);
        error_counts(r->errors, out);
        text_str(out, "last", r->last == TERN_OK ? NULL : err_name(r->last));
        text_str(out, "last_op", r->last == TERN_OK ? NULL : op_name(r->last_op));
        text_str(out, "last_text", r->last_text[0] ? r->last_text : NULL);
        if (r->last == TERN_OK)
            text_str(out, "last_s", NULL);
        else
            text_f64(out, "last_s",
                     ctx->now_ns > r->last_ns ? (double)(ctx->now_ns - r->last_ns) / SECOND_NS : 0);
        text_object_end(out);
    }
    text_array_end(out);
}

/* A tenant hears of its own errors; operators of all, and of each tenant's. */
static void status_errors(const struct admin_ctx *ctx, uint32_t tenant, struct text_out *out)
{
    uint64_t errors[TERN_ERR_COUNT] = {0};

    for (uint32_t t = 0; ctx->refusals != NULL && t < ctx->config->ntenants; t++)
        for (uint32_t i = 0; i < TERN_ERR_COUNT && (tenant == NONE || tenant == t); i++)
            errors[i] += ctx->refusals(ctx->ctx, t)->errors[i];
    error_counts(errors, out);
    if (tenant == NONE)
        status_refusals(ctx, out);
}

static void status_pools(const struct admin_ctx *ctx, uint32_t tenant, struct text_out *out)
{
    text_array(out, "pools");
    for (uint32_t i = 0; i < pool_slots(ctx); i++)
        admin_pool_groups(ctx, i, tenant, out);
    text_array_end(out);
}

static uint32_t status_sessions(const struct admin_ctx *ctx, const struct core_view *v,
                                uint32_t tenant)
{
    return tenant == NONE ? v->sessions : core_tenant_sessions(ctx->core, tenant);
}

/* Turns in flight, and what became of those that nobody ended. */
static void status_turns(const struct admin_ctx *ctx, uint32_t tenant, struct text_out *out)
{
    struct turns_view all = {0}, t;

    for (uint32_t i = 0; i < ctx->config->ntenants; i++) {
        if (tenant != NONE && tenant != i)
            continue;
        core_turns(ctx->core, i, &t);
        all.in_flight += t.in_flight;
        all.begun += t.begun;
        all.expired += t.expired;
        all.lost += t.lost;
    }
    text_object(out, "turns");
    text_u64(out, "turns_in_flight", all.in_flight);
    text_u64(out, "turns_begun", all.begun);
    text_u64(out, "turns_expired", all.expired);
    text_u64(out, "turns_lost", all.lost);
    text_object_end(out);
}

/* What the host tier holds and did; all values are 0 where there is none. Pages of a pool lie in
 * each of its regions. */
static void status_host(const struct admin_ctx *ctx, const struct core_view *v,
                        struct text_out *out)
{
    uint64_t bytes = 0;
    struct pool_view p;

    for (uint32_t i = 0; i < pool_slots(ctx); i++) {
        if (core_pool_view(ctx->core, i, &p) && p.tier == TIER_HOST)
            bytes += p.bytes * p.regions;
    }
    text_object(out, "host_tier");
    text_u64(out, "bytes", bytes);
    text_u64(out, "host_copies", v->host_copies);
    text_u64(out, "host_copies_failed", v->host_copies_failed);
    text_u64(out, "host_copies_again", v->host_copies_again);
    text_u64(out, "host_uncopied", v->host_uncopied);
    text_u64(out, "host_loads", v->host_loads);
    text_u64(out, "copies", v->copies);
    text_u64(out, "copied_bytes", ctx->mem.copied_bytes);
    text_u64(out, "copies_corrupt", ctx->mem.copies_corrupt);
    text_u64(out, "retracts", v->retracts);
    text_u64(out, "retracts_undone", v->retracts_undone);
    text_u64(out, "recovers", v->recovers);
    text_object_end(out);
}

/* NULL: there are no devices. */
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
    text_object(out, "memory");
    text_str(out, "kind", "memfd");
    text_u64(out, "bytes", ctx->mem.bytes);
    text_u64(out, "device_bytes", ctx->mem.device_bytes);
    text_u64(out, "devices", ctx->mem.devices);
    text_u64(out, "devices_lost", ctx->mem.devices_lost);
    text_str(out, "device_checksums", device_checksums(&ctx->mem));
    text_u64(out, "checksums_by_kernels", ctx->mem.work.sums_by_kernels);
    text_u64(out, "checksums_by_copies", ctx->mem.work.sums_by_copies);
    text_u64(out, "checksums_by_engine", ctx->mem.work.sums_by_engine);
    text_u64(out, "rows_by_kernels", ctx->mem.work.rows_by_kernels);
    text_u64(out, "rows_by_copies", ctx->mem.work.rows_by_copies);
    text_u64(out, "moved_bytes_within", ctx->mem.work.moved_within);
    text_u64(out, "moved_bytes_by_peer", ctx->mem.work.moved_by_peer);
    text_u64(out, "moved_bytes_staged", ctx->mem.work.moved_staged);
    text_bool(out, "huge_pages_wanted", ctx->config->huge_pages);
    text_u64(out, "huge_page_bytes", ctx->mem.huge_page_bytes);
    text_u64(out, "sealed_pages", ctx->mem.sealed_pages);
    text_u64(out, "zeroed_bytes", ctx->mem.zeroed_bytes);
    text_u64(out, "host_bytes", ctx->mem.host_bytes);
    text_u64(out, "record_bytes", ctx->mem.record_bytes);
    text_u64(out, "records_checked", ctx->mem.records_checked);
    text_u64(out, "copied_pages", ctx->mem.copied_pages);
    text_u64(out, "copied_bytes", ctx->mem.copied_bytes);
    text_u64(out, "copies_corrupt", ctx->mem.copies_corrupt);
    text_u64(out, "copies_spoilt", ctx->mem.copies_spoilt);
    text_u64(out, "queue_high_water", ctx->mem.queue_high_water);
    text_u64(out, "faults", ctx->mem.faults);
    text_u64(out, "workers", ctx->config->workers);
    text_object_end(out);
}

/* Pairs of a region on a GPU and a NIC in use; where RDMA is asked for and none is in use, regions
 * that no NIC knows. `ternctl doctor` names them. */
static void status_regions(const struct admin_ctx *ctx, struct text_out *out)
{
    struct xfer_registration_view v;
    uint64_t n[2] = {0, 0};

    for (uint32_t i = 0; ctx->registration && ctx->registration(ctx->ctx, i, &v); i++)
        if (v.gpu && (v.device || ctx->rdma.wanted))
            n[!v.device || v.how == XFER_REGISTERED_NO]++;
    text_u64(out, "gpu_regions", n[0]);
    text_u64(out, "gpu_regions_unregistered", n[1]);
}

static void status_data(const struct admin_ctx *ctx, struct text_out *out)
{
    const struct xfer_stats *x = &ctx->xfer;

    text_object(out, "data");
    text_u64(out, "port", ctx->data_port);
    text_u64(out, "conns", x->conns);
    text_u64(out, "pages_in", x->pages_in);
    text_u64(out, "pages_out", x->pages_out);
    text_u64(out, "payload_bytes_in", x->payload_bytes_in);
    text_u64(out, "payload_bytes_out", x->payload_bytes_out);
    text_u64(out, "socket_bytes_in", x->socket_bytes_in);
    text_u64(out, "socket_bytes_out", x->socket_bytes_out);
    text_u64(out, "corrupt_detected", x->corrupt_detected);
    text_u64(out, "corrupt_injected", x->corrupt_injected);
    text_u64(out, "gone_answers", x->gone_answers);
    text_u64(out, "refused", x->refused);
    text_u64(out, "over_share", x->over_share);
    text_u64(out, "conns_retired", x->conns_retired);
    text_u64(out, "pages_again", x->pages_again);
    text_object(out, "threads");
    text_u64(out, "threads", x->threads.threads);
    text_u64(out, "tasks", x->threads.away);
    text_u64(out, "tasks_done", x->threads.done);
    text_object_end(out);
    text_object(out, "from_peers"); /* use against share: see limits.data_conns_max */
    text_u64(out, "conns", x->inbound);
    text_u64(out, "limit", x->inbound_max);
    text_u64(out, "reserved", x->inbound_min);
    text_u64(out, "common_used", x->inbound_common);
    text_u64(out, "common", x->inbound_common_max);
    text_object_end(out);
    text_object(out, "verbs");
    text_u64(out, "paths_up", x->paths_up);
    text_u64(out, "paths_made", x->paths_made);
    text_u64(out, "paths_failed", x->paths_failed);
    text_u64(out, "pieces_again", x->pieces_again);
    text_u64(out, "batches_moved", x->batches_moved);
    text_u64(out, "pages_in", x->verbs_pages_in);
    text_u64(out, "pages_out", x->verbs_pages_out);
    text_u64(out, "bytes_in", x->verbs_bytes_in);
    text_u64(out, "ring_bytes_in", x->ring_bytes_in);
    text_u64(out, "ring_bytes_out", x->ring_bytes_out);
    text_u64(out, "reads_posted", x->reads_posted);
    text_u64(out, "read_errors", x->read_errors);
    text_u64(out, "late_reads", x->late_reads);
    text_u64(out, "writes_posted", x->writes_posted);
    text_u64(out, "grants_revoked", x->grants_revoked);
    text_u64(out, "late_writes", x->late_writes);
    text_u64(out, "windows_open", x->windows_open);
    text_u64(out, "stale_completions", x->stale_completions);
    text_u64(out, "stale_answers", x->stale_answers);
    text_u64(out, "cq_high_water", x->cq_high_water);
    text_u64(out, "cq_events", x->cq_events);
    status_regions(ctx, out);
    text_object_end(out);
    text_object_end(out);
}

/* Who has connected and has not said who it is: against the places at that socket, and the share
 * of one address or process. */
static void status_doors(const struct admin_ctx *ctx, struct text_out *out)
{
    struct door_stats s;
    const char *name;

    text_array(out, "doors");
    for (uint32_t i = 0; ctx->door && ctx->door(ctx->ctx, i, &name, &s); i++) {
        if (*name == '\0')
            continue; /* of a tenant that is free */
        text_object(out, NULL);
        text_str(out, "door", name);
        text_u64(out, "waiting", s.waiting);
        text_u64(out, "places", s.places);
        text_u64(out, "share", s.share);
        text_u64(out, "displaced", s.displaced);
        text_u64(out, "overdue", s.overdue);
        text_object_end(out);
    }
    text_array_end(out);
}

/* Descriptors that clients send: how they are kept out, and the connections that ended for them. */
static void status_descriptors(const struct admin_ctx *ctx, struct text_out *out)
{
    text_object(out, "descriptors");
    text_str(out, "mode", ctx->descriptors);
    text_u64(out, "connections_ended", ctx->descriptors_brought);
    text_u64(out, "closing", ctx->closer.closing);
    text_u64(out, "closed_apart", ctx->closer.closed);
    text_object_end(out);
}

/* Answers that wait to be read: against what is reserved for a tenant, and the common rest. */
static void status_send_buffers(const struct admin_ctx *ctx, struct text_out *out)
{
    struct stream_share s = {0};
    const char *name;

    text_object(out, "send_buffers");
    text_u64(out, "bytes", SEND_BUFFER_BYTES);
    text_array(out, "shares");
    for (uint32_t i = 0; ctx->send_share && ctx->send_share(ctx->ctx, i, &name, &s); i++) {
        if (*name == '\0')
            continue;
        text_object(out, NULL);
        text_str(out, "share", name);
        text_u64(out, "used", s.used);
        text_u64(out, "reserved", s.reserved);
        text_object_end(out);
    }
    text_array_end(out);
    text_u64(out, "common_used", s.common_used);
    text_u64(out, "common", s.common);
    text_u64(out, "made_way", s.doomed);
    text_object_end(out);
}

/* This node's own; null in the clear. left_s is negative once it has expired. */
static void status_certificate(const struct admin_ctx *ctx, struct text_out *out)
{
    const struct tls_stats *own = ctx->tls;

    if (own == NULL) {
        text_str(out, "certificate", NULL);
        return;
    }
    text_object(out, "certificate");
    text_str(out, "not_after", own->own.not_after);
    text_f64(out, "left_s", (double)own->left_s);
    text_f64(out, "life_s", (double)own->own.life_s);
    text_bool(out, "own_ca", own->own.own_ca);
    text_object_end(out);
}

static void status_shell(const struct admin_ctx *ctx, struct text_out *out)
{
    text_u64(out, "conns", ctx->conns);
    text_u64(out, "conns_refused", ctx->conns_refused);
    text_u64(out, "engine_processes_exited", ctx->procs_exited);
    text_object(out, "io");
    text_u64(out, "completions", ctx->io.completions);
    text_u64(out, "cq_overflows", ctx->io.cq_overflows);
    text_u64(out, "sq_waits", ctx->io.sq_waits);
    text_u64(out, "buffers_empty", ctx->io.buffers_empty);
    text_object_end(out);
    text_object(out, "tape");
    text_u64(out, "recorded", ctx->tape.recorded);
    text_u64(out, "dropped", ctx->tape.dropped);
    text_u64(out, "bytes_used", ctx->tape.bytes_used);
    text_bool(out, "tokens_kept", ctx->config->tape_tokens);
    text_object_end(out);
    text_object(out, "log");
    text_u64(out, "suppressed", log_suppressed());
    text_u64(out, "lost", log_lost());
    text_str(out, "level", log_level_name(log_level_now()));
    if (ctx->log_level_ns > ctx->now_ns)
        text_f64(out, "level_left_s", (double)(ctx->log_level_ns - ctx->now_ns) / SECOND_NS);
    else
        text_str(out, "level_left_s", NULL);
    text_object_end(out);
    text_bool(out, "insecure_peers", ctx->config->insecure_peers);
    status_certificate(ctx, out);
    text_object(out, "fault_injection");
    text_u64(out, "corrupt_pages", ctx->config->fault_corrupt_pages);
    text_u64(out, "copy_corrupt_every", ctx->config->fault_copy_corrupt_every);
    text_bool(out, "checks_on_owner", ctx->config->fault_checks_on_owner);
    text_u64(out, "disk_write_every", ctx->config->fault_disk_write_every);
    text_u64(out, "disk_full_after", ctx->config->fault_disk_full_after);
    text_u64(out, "step_visits", ctx->config->limits.step_visits);
    text_object_end(out);
}

static void status_steps_over(const struct steps_over *v, struct text_out *out)
{
    text_object(out, "steps_over");
    text_u64(out, "steps", v->steps);
    text_u64(out, "bound", v->bound);
    text_str(out, "longest_event", v->steps > 0 ? tape_event_word(v->kind) : NULL);
    text_u64(out, "longest_visits", v->visits);
    text_object_end(out);
}

static void status_core(const struct core_view *v, struct text_out *out)
{
    text_u64(out, "evicted_nodes", v->evicted_nodes);
    text_u64(out, "evicted_pages", v->evicted_pages);
    text_u64(out, "pages_corrupt", v->corrupt_detected);
    text_u64(out, "pages_pulled", v->pages_pulled);
    text_u64(out, "pages_served", v->pages_served);
    text_u64(out, "dup_chunks", v->dup_chunks);
    text_u64(out, "early_told", v->early_told);
    text_u64(out, "early_pages", v->early_pages);
    text_u64(out, "early_again", v->early_again);
    text_u64(out, "token_blocks_free", v->token_blocks_free);
    text_u64(out, "nodes_free", v->nodes_free);
    text_u64(out, "retires_free", v->retires_free);
}

/* One figure of a table for each tenant; a tenant hears of itself alone. */
static void status_by_tenant(const struct admin_ctx *ctx, struct share_of of, const char *key,
                             struct text_out *out)
{
    struct share_view v;

    text_object(out, key);
    for (uint32_t t = 0; t < ctx->config->ntenants; t++)
        if ((of.tenant == NONE || t == of.tenant) && !config_tenant_free(ctx->config, t) &&
            core_share_view(ctx->core, (struct share_of){of.table, t}, &v))
            text_u64(out, ctx->config->tenants[t].name,
                     strcmp(key, "used") == 0 ? v.used : v.reserved);
    text_object_end(out);
}

/* What tenants hold of the tables that they share. */
static void status_shares(const struct admin_ctx *ctx, uint32_t tenant, struct text_out *out)
{
    struct share_view v;

    text_array(out, "shares");
    for (uint32_t i = 0; core_share_view(ctx->core, (struct share_of){i, 0}, &v); i++) {
        text_object(out, NULL);
        text_str(out, "table", v.setting);
        text_str(out, "records", v.records);
        text_u64(out, "limit", v.limit);
        text_u64(out, "common_free", v.rest);
        status_by_tenant(ctx, (struct share_of){i, tenant}, "reserved", out);
        status_by_tenant(ctx, (struct share_of){i, tenant}, "used", out);
        text_object_end(out);
    }
    text_array_end(out);
}

/* How long a quarantine has lasted and for whom, which an operator needs to end it. The age goes by
 * the clock and not by the core's last step, so that it grows while nothing happens. */
static void status_quarantine(const struct admin_ctx *ctx, const struct core_view *v,
                              struct text_out *out)
{
    uint64_t since_ns = v->oldest_quarantine_ns;
    struct transfer_view t = {.link = NONE};

    core_pull_view(ctx->core, since_ns ? v->oldest_quarantine.slot : NONE, &t);
    text_u64(out, "quarantine_oldest_ms",
             since_ns && ctx->now_ns > since_ns ? (ctx->now_ns - since_ns) / MS_NS : 0);
    text_object(out, "quarantine_holder");
    text_str(out, "peer", t.link < ctx->config->npeers ? ctx->config->peers[t.link].name : "");
    text_hex(out, "transfer", pull_id_pack(t.pull));
    text_u64(out, "pages", t.quarantined);
    text_object_end(out);
}

/* The engines whose steps do not come, while something waits for them (E8). */
static void status_overdue(const struct admin_ctx *ctx, uint32_t tenant, struct text_out *out)
{
    uint64_t limit_ns = (uint64_t)ctx->config->deadlines.step_alarm_ms * MS_NS;
    struct engine_view e;

    text_array(out, "steps_overdue");
    for (uint32_t i = 0; i < core_limits_of(ctx->core)->engines; i++) {
        if (!core_engine_view(ctx->core, i, &e) || (tenant != NONE && e.tenant != tenant) ||
            !engine_overdue(&e, limit_ns, ctx->now_ns))
            continue;
        text_object(out, NULL);
        text_str(out, "engine", e.name);
        text_str(out, "tenant", ctx->config->tenants[e.tenant].name);
        text_u64(out, "rank", e.rank_behind);
        text_u63(out, "done_step", e.done_step[e.rank_behind]);
        text_u63(out, "named_step", e.named);
        text_bool(out, "jumped", e.jumped);
        text_u64(out, "waiting_ms", (ctx->now_ns - e.waits_since_ns) / MS_NS);
        text_object_end(out);
    }
    text_array_end(out);
}

/* The engines of which a process ended while others live on: they keep their pages till then. */
static void status_stuck(const struct admin_ctx *ctx, uint32_t tenant, struct text_out *out)
{
    struct engine_view e;

    text_array(out, "engines_stuck");
    for (uint32_t i = 0; i < core_limits_of(ctx->core)->engines; i++) {
        if (!core_engine_view(ctx->core, i, &e) || (tenant != NONE && e.tenant != tenant) ||
            !e.dying)
            continue;
        text_object(out, NULL);
        text_str(out, "engine", e.name);
        text_str(out, "tenant", ctx->config->tenants[e.tenant].name);
        admin_engine_pids(ctx, &e, out);
        text_object_end(out);
    }
    text_array_end(out);
}

/* How many of each kind are on, also where none is. */
static void status_alarm_counts(const struct admin_ctx *ctx, struct text_out *out)
{
    text_array(out, "alarm_counts");
    for (enum alarm_kind k = 0; ctx->alarms_of && k < ALARM_KINDS; k++) {
        text_object(out, NULL);
        text_str(out, "name", alarm_row(k)->name);
        text_str(out, "severity", log_level_name(alarm_row(k)->severity));
        text_u64(out, "on", ctx->alarms_of[k]);
        text_object_end(out);
    }
    text_array_end(out);
}

/* Those that are on, as many as are shown. */
static void status_alarms(const struct admin_ctx *ctx, struct text_out *out)
{
    struct alarm_view v;
    uint32_t at = 0;

    text_u64(out, "alarms_on", ctx->alarms_on);
    status_alarm_counts(ctx, out);
    text_array(out, "alarms");
    for (uint32_t n = 0; n < ALARMS_SHOWN && ctx->alarm && ctx->alarm(ctx->ctx, &at, &v); n++) {
        text_object(out, NULL);
        text_str(out, "name", v.name);
        text_str(out, "severity", v.severity);
        text_str(out, "subject", v.subject);
        text_f64(out, "since_s", admin_age_s(ctx, v.since_ns));
        text_str(out, "text", v.text);
        text_str(out, "action", v.action);
        text_object_end(out);
    }
    text_array_end(out);
}

/* Changes of the tree; those that are kept are numbered [first, next). */
static void status_events(const struct admin_ctx *ctx, const struct core_view *v,
                          struct text_out *out)
{
    text_object(out, "events");
    text_u64(out, "first", v->event_first);
    text_u64(out, "next", v->event_next);
    text_u64(out, "limit", core_limits_of(ctx->core)->events); /* of each tenant */
    text_u64(out, "subscriptions", ctx->subscriptions);
    text_u64(out, "told", ctx->events_sent);
    text_u64(out, "lost", ctx->events_lost);
    text_object_end(out);
}

/* Counts the peers that this daemon can fetch from; the core's count of links includes the other
 * direction. */
static uint32_t peers_up(const struct admin_ctx *ctx)
{
    uint64_t incarnation = 0;
    uint32_t n = 0;

    for (uint32_t i = 0; ctx->peer_state_word != NULL && i < ctx->config->npeers; i++) {
        const char *state = ctx->peer_state_word(ctx->ctx, i, &incarnation);

        n += state != NULL && strcmp(state, "up") == 0;
    }
    return n;
}

/* Whose pages come by TCP where RDMA is asked for first. */
static uint32_t peers_fallback(const struct admin_ctx *ctx)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < ctx->config->npeers; i++)
        n += admin_falls_back(ctx, i);
    return n;
}

static enum tern_err answer_status(const struct admin_ctx *ctx, const struct question *q,
                                   struct text_out *out)
{
    struct core_view v;

    core_view(ctx->core, &v);
    text_object(out, NULL);
    text_str(out, "node", ctx->config->node);
    text_str(out, "version", TERN_VERSION);
    text_hex(out, "incarnation", v.incarnation);
    text_u64(out, "uptime_s", (ctx->now_ns - ctx->start_ns) / SECOND_NS);
    text_bool(out, "draining", v.draining);
    text_u64(out, "sessions", status_sessions(ctx, &v, q->tenant));
    status_turns(ctx, q->tenant, out);
    status_tenants(ctx, q->tenant, out);
    admin_figures("figures", ctx, q->tenant, out);
    status_pools(ctx, q->tenant, out);
    status_shares(ctx, q->tenant, out);
    status_errors(ctx, q->tenant, out);
    status_overdue(ctx, q->tenant, out);
    status_stuck(ctx, q->tenant, out);
    if (q->tenant == NONE) {
        text_u64(out, "engines", v.engines);
        text_u64(out, "prefix_nodes", v.nodes);
        text_u64(out, "peers", config_peers(ctx->config));
        text_u64(out, "peers_up", peers_up(ctx));
        text_u64(out, "peers_fallback", peers_fallback(ctx));
        text_u64(out, "links_up", v.links_up);
        text_u64(out, "listen_port", ctx->listen_port);
        text_u64(out, "transfers_active", (uint64_t)v.pulls + v.serves);
        text_u64(out, "namespaces_reset", v.namespaces_reset);
        text_u64(out, "resets_spreading", v.resets_spreading);
        status_alarms(ctx, out);
        status_steps_over(core_steps_over(ctx->core), out);
        status_core(&v, out);
        status_quarantine(ctx, &v, out);
        status_host(ctx, &v, out);
        admin_spill(ctx, out);
        status_memory(ctx, out);
        status_data(ctx, out);
        status_events(ctx, &v, out);
        status_doors(ctx, out);
        status_descriptors(ctx, out);
        status_send_buffers(ctx, out);
        status_shell(ctx, out);
    } else { /* a tenant hears how many of its retracts came to nothing: it may wait for them */
        text_object(out, "host_tier");
        text_u64(out, "retracts_undone", core_retracts_undone(ctx->core, q->tenant));
        text_object_end(out);
    }
    /* The hash covers the whole arena and takes milliseconds, so it is made only when asked for. */
    if (q->core_hash && q->tenant == NONE)
        text_hex(out, "core_hash", core_hash(ctx->core));
    text_object_end(out);
    return text_whole(out) ? TERN_OK : TERN_BUSY;
}

/* ---- the door ---- */

static uint32_t tenant_named(const struct config *config, const char *name)
{
    uint32_t slot;

    return config_tenant_slot(config, name, &slot) == TERN_OK ? slot : NONE;
}

static bool is_peer(const struct config *config, const char *name)
{
    for (uint32_t i = 0; i < config->npeers; i++)
        if (strcmp(config->peers[i].name, name) == 0)
            return true;
    return strcmp(name, WIRE_DISK) == 0;
}

/* Refuses a filter that the command does not know, and the name of what is not configured. Engines
 * come and go, so any name of one will do. */
static enum tern_err filters(const struct admin_ctx *ctx, const char *command, struct question *q,
                             char why[ADMIN_WHY_BYTES])
{
    unsigned wanted = (q->only_tenant ? BY_TENANT : 0) | (q->only.engine ? BY_ENGINE : 0) |
                      (q->only.peer ? BY_PEER : 0);
    unsigned known = 0;

    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        known |= strcmp(lists[i].command, command) == 0 ? lists[i].filters : 0;
    if (wanted & ~known) {
        snprintf(why, ADMIN_WHY_BYTES, "%.40s takes no '%s'", command,
                 wanted & ~known & BY_TENANT   ? "tenant"
                 : wanted & ~known & BY_ENGINE ? "engine"
                                               : "peer");
        return TERN_INVALID;
    }
    if (q->only_tenant && q->tenant == NONE) {
        q->only.tenant = tenant_named(ctx->config, q->only_tenant);
        snprintf(why, ADMIN_WHY_BYTES,
                 "no tenant is called '%.40s': see tenants[].name of the "
                 "configuration",
                 q->only_tenant);
        if (q->only.tenant == NONE)
            return TERN_INVALID;
    }
    snprintf(why, ADMIN_WHY_BYTES, "no peer is called '%.40s': `ternctl peers` shows them",
             q->only.peer ? q->only.peer : "");
    return q->only.peer && !is_peer(ctx->config, q->only.peer) ? TERN_INVALID : TERN_OK;
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
    snprintf(why, ADMIN_WHY_BYTES, "limit is a number from 1 on");
    if (q.limit == 0)
        return TERN_INVALID;
    TRY(filters(ctx, command, &q, why));
    why[0] = '\0';
    err = answer(ctx, command, &q, out);
    if (err == TERN_UNSUPPORTED)
        snprintf(why, ADMIN_WHY_BYTES,
                 "this daemon knows no such command: its version is " TERN_VERSION
                 ", use the ternctl that came with it");
    if (err != TERN_OK) {
        *out = before;
        out->buf[out->len] = '\0';
    }
    return err;
}
