/* See admin_rows.h. Ids are hexadecimal strings of (generation, slot) as on the wire; "slot" stands
 * beside them where a command takes one as an argument. */
#include "shell/admin/admin_rows.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define PEER_PATHS_MAX 16
#define SECOND_NS      1000000000.0

const char *admin_tenant_name(const struct admin_ctx *ctx, uint32_t tenant)
{
    return tenant < ctx->config->ntenants ? ctx->config->tenants[tenant].name : NULL;
}

double admin_age_s(const struct admin_ctx *ctx, uint64_t then_ns)
{
    return ctx->now_ns > then_ns ? (double)(ctx->now_ns - then_ns) / SECOND_NS : 0;
}

void admin_namespace(struct text_out *out, struct namespace_id ns)
{
    char text[40];

    snprintf(text, sizeof text, "%016llx%016llx", (unsigned long long)ns.hi,
             (unsigned long long)ns.lo);
    text_str(out, "namespace", text);
}

void admin_id(struct text_out *out, const char *key, bool there, uint64_t packed)
{
    if (there)
        text_hex(out, key, packed);
    else
        text_str(out, key, NULL);
}

static void node_or_null(struct text_out *out, const char *key, uint32_t node)
{
    if (node == NONE)
        text_str(out, key, NULL);
    else
        text_u64(out, key, node);
}

static const char *const ref_names[] = {[REF_DEVICE] = "device", [REF_TRANSFER] = "transfer",
                                        [REF_JOB] = "job",       [REF_RETRACTED] = "retracted",
                                        [REF_ADMIN] = "admin",   [REF_HANDOFF] = "handoff",
                                        [REF_HOST] = "host"};

static_assert(sizeof ref_names / sizeof *ref_names == REF_KINDS, "each kind has a name");

/* ---- pools ---- */

static const char *const tier_names[] = {[TIER_DEVICE] = "device", [TIER_HOST] = "host"};

static void group_counts(const struct admin_ctx *ctx, const struct pool_view *p, uint32_t slot,
                         uint32_t group, const uint32_t *borrowed, struct text_out *out)
{
    const struct group_view *g = &p->group[group];
    static const char *const families[] = {
        [FAMILY_HISTORY] = "history", [FAMILY_WINDOW] = "window", [FAMILY_RECURRENT] = "recurrent"};
    const char *name = ctx->group_name == NULL ? NULL : ctx->group_name(ctx->ctx, slot, group);
    char numbered[16];

    snprintf(numbered, sizeof numbered, "group%u", group);
    text_str(out, "group", name != NULL ? name : numbered);
    text_str(out, "family", families[g->layout.family]);
    text_u64(out, "page_tokens", g->layout.page_tokens);
    text_u64(out, "page_bytes", g->layout.page_bytes);
    text_u64(out, "window", g->layout.window);
    text_u64(out, "total", g->total);
    text_u64(out, "free", g->free);
    text_u64(out, "leased", g->leased);
    text_u64(out, "session", g->session);
    text_u64(out, "snapshot", g->snapshot);
    text_u64(out, "reclaimable", g->reclaimable);
    text_u64(out, "evictable", g->evictable);
    if (borrowed)
        text_u64(out, "borrowed", borrowed[group]);
    else
        text_str(out, "borrowed", NULL);
    text_u64(out, "transfer", g->transfer);
    text_u64(out, "ticket", g->ticket);
    text_u64(out, "retiring", g->retiring);
    text_u64(out, "zeroing", g->zeroing);
    text_u64(out, "quarantine", g->quarantine);
    text_u64(out, "peak_session", g->peak_session);
    text_u64(out, "peak_snapshot", g->peak_snapshot);
}

void admin_pool_groups(const struct admin_ctx *ctx, uint32_t slot, uint32_t tenant,
                       struct text_out *out)
{
    uint32_t borrowed[GROUPS_MAX] = {0};
    struct pool_view p;
    bool known;

    if (!core_pool_view(ctx->core, slot, &p) || (tenant != NONE && p.tenant != tenant))
        return;
    known = core_pool_borrowed(ctx->core, slot, ctx->node_bits, ctx->visits, borrowed);
    for (uint32_t i = 0; i < p.ngroups; i++) {
        text_object(out, NULL);
        text_hex(out, "pool", pool_id_pack(p.id));
        text_str(out, "tenant", admin_tenant_name(ctx, p.tenant));
        text_str(out, "tier", tier_names[p.tier]);
        text_u64(out, "ranks", p.regions);
        text_u64(out, "bytes", p.bytes);
        group_counts(ctx, &p, slot, i, known ? borrowed : NULL, out);
        text_object_end(out);
    }
}

static bool of_engine(const struct admin_ctx *ctx, const struct admin_filter *only, uint32_t engine)
{
    struct engine_view e;

    return !only->engine ||
           (core_engine_view(ctx->core, engine, &e) && strcmp(e.name, only->engine) == 0);
}

bool admin_pool_row(const struct admin_ctx *ctx, uint32_t slot, const struct admin_filter *only,
                    struct text_out *out)
{
    static const char *const modes[] = {
        [SUPERSEDE_LAZY] = "lazy", [SUPERSEDE_EAGER] = "eager", [SUPERSEDE_OFF] = "off"};
    struct engine_view engine;
    struct pool_view p, other = {0};
    uint32_t borrowed[GROUPS_MAX] = {0};
    char device[CONFIG_DEVICE_BYTES];
    bool has_other, known;

    if (!core_pool_view(ctx->core, slot, &p) ||
        (only->tenant != NONE && p.tenant != only->tenant) || !of_engine(ctx, only, p.engine))
        return false;
    known = core_pool_borrowed(ctx->core, slot, ctx->node_bits, ctx->visits, borrowed);
    text_object(out, NULL);
    text_hex(out, "pool", pool_id_pack(p.id));
    text_u64(out, "slot", slot);
    text_str(out, "tenant", admin_tenant_name(ctx, p.tenant));
    text_str(out, "engine", core_engine_view(ctx->core, p.engine, &engine) ? engine.name : NULL);
    text_str(out, "state", p.zeroing ? "zeroing" : p.closing ? "closing" : "open");
    text_str(out, "tier", tier_names[p.tier]);
    has_other = core_pool_view(ctx->core, p.other, &other);
    admin_id(out, "other_tier", has_other, pool_id_pack(other.id));
    text_array(out, "devices"); /* of rank 0, 1 and so on */
    for (uint32_t i = 0; i < p.regions; i++) {
        config_region_name(ctx->config, p.tenant, p.region[i], device);
        text_str(out, NULL, device);
    }
    text_array_end(out);
    text_u64(out, "offset", p.offset);
    text_u64(out, "bytes", p.bytes);
    text_u64(out, "slab_bytes", p.slab_bytes);
    text_u64(out, "slabs", p.slabs);
    text_u64(out, "slabs_free", p.slabs_free);
    text_u64(out, "nodes", p.nodes);
    text_u64(out, "align_tokens", p.align_tokens);
    text_str(out, "supersede", modes[p.supersede]);
    text_array(out, "groups");
    for (uint32_t i = 0; i < p.ngroups; i++) {
        text_object(out, NULL);
        group_counts(ctx, &p, slot, i, known ? borrowed : NULL, out);
        text_u64(out, "units", p.group[i].layout.units);
        text_u64(out, "reserve", p.group[i].layout.reserve);
        text_u64(out, "cap_pages", p.group[i].layout.cap_pages);
        text_object_end(out);
    }
    text_array_end(out);
    text_object_end(out);
    return true;
}

/* ---- sessions and engines ---- */

/* The node that a session or transfer pins, by which kind of ref and for how long. */
static void session_hold(const struct admin_ctx *ctx, const struct session_view *s,
                         struct text_out *out)
{
    struct node_view node = {0};
    bool there = core_node_view(ctx->core, s->node, &node);

    node_or_null(out, "node", s->node);
    admin_id(out, "node_id", there, node_id_pack(node.id));
    text_str(out, "ref", there ? ref_names[s->ref] : NULL);
    if (there)
        text_f64(out, "ref_s", admin_age_s(ctx, s->ref_since_ns));
    else
        text_str(out, "ref_s", NULL);
}

static bool own_session(const struct admin_ctx *ctx, uint32_t slot, const struct admin_filter *only,
                        struct session_view *ret)
{
    return core_session_view(ctx->core, slot, ret) &&
           (only->tenant == NONE || ret->tenant == only->tenant) &&
           of_engine(ctx, only, ret->engine.slot);
}

/* Which session it is, and whose. */
static void session_named(const struct admin_ctx *ctx, const struct session_view *s,
                          struct text_out *out)
{
    struct engine_view engine;
    bool has_engine = core_engine_view(ctx->core, s->engine.slot, &engine);

    text_hex(out, "session", session_id_pack(s->id));
    text_str(out, "tenant", admin_tenant_name(ctx, s->tenant));
    text_str(out, "engine", has_engine ? engine.name : NULL);
    text_hex(out, "pool", pool_id_pack(s->pool));
}

static void session_turn(const struct admin_ctx *ctx, const struct session_view *s,
                         struct text_out *out)
{
    text_str(out, "turn", s->turn_word[0] ? s->turn_word : NULL);
    if (s->turn_begun_ns)
        text_f64(out, "turn_s", admin_age_s(ctx, s->turn_begun_ns));
    else
        text_str(out, "turn_s", NULL);
}

bool admin_session_row(const struct admin_ctx *ctx, uint32_t slot, const struct admin_filter *only,
                       struct text_out *out)
{
    struct session_view s;

    if (!own_session(ctx, slot, only, &s))
        return false;
    text_object(out, NULL);
    session_named(ctx, &s, out);
    admin_namespace(out, s.ns);
    text_str(out, "state", s.state_word);
    text_u64(out, "committed", s.lengths.committed);
    text_u64(out, "written", s.lengths.written);
    text_u64(out, "allocated", s.lengths.allocated);
    text_u64(out, "tokens", s.tokens);
    session_hold(ctx, &s, out);
    session_turn(ctx, &s, out);
    text_u64(out, "records", s.records);
    text_u64(out, "recorded", s.recorded);
    text_f64(out, "idle_s", admin_age_s(ctx, s.last_use_ns));
    text_object_end(out);
    return true;
}

/* Of a session that was handed over. The ticket's text is not shown: who has it can fetch. */
bool admin_ticket_row(const struct admin_ctx *ctx, uint32_t slot, const struct admin_filter *only,
                      struct text_out *out)
{
    struct session_view s;

    if (!own_session(ctx, slot, only, &s) || !s.ticket_word[0])
        return false;
    text_object(out, NULL);
    session_named(ctx, &s, out);
    admin_namespace(out, s.ns);
    text_str(out, "ticket", s.ticket_word);
    text_u64(out, "length", s.lengths.written);
    text_u64(out, "committed", s.lengths.committed);
    text_u64(out, "blob_bytes", s.blob_bytes);
    text_f64(out, "age_s", admin_age_s(ctx, s.ref_since_ns));
    text_f64(out, "left_s", (double)s.ticket_left_ns / 1e9);
    text_object_end(out);
    return true;
}

/* Of a session that has turn records, or pages for one. */
bool admin_record_row(const struct admin_ctx *ctx, uint32_t slot, const struct admin_filter *only,
                      struct text_out *out)
{
    struct session_view s;

    if (!own_session(ctx, slot, only, &s) || (s.records == 0 && s.record_pages == 0))
        return false;
    text_object(out, NULL);
    session_named(ctx, &s, out);
    text_u64(out, "records", s.records);
    text_u64(out, "recorded", s.recorded);
    text_u64(out, "pages", s.record_pages);
    text_u64(out, "blob_pages", s.blob_pages);
    session_turn(ctx, &s, out);
    text_object_end(out);
    return true;
}

void admin_engine_pids(const struct admin_ctx *ctx, const struct engine_view *e,
                       struct text_out *out)
{
    text_array(out, "pids"); /* of rank 0, 1 and so on, then of the pure scheduler */
    for (uint32_t i = 0; i < PROCS_PER_ENGINE_MAX; i++)
        if (e->procs[i] != NONE && ctx->proc_pid != NULL)
            text_u64(out, NULL, ctx->proc_pid(ctx->ctx, e->procs[i]));
    text_array_end(out);
}

bool admin_engine_row(const struct admin_ctx *ctx, uint32_t slot, const struct admin_filter *only,
                      struct text_out *out)
{
    struct engine_view e;

    if (!core_engine_view(ctx->core, slot, &e) ||
        (only->tenant != NONE && e.tenant != only->tenant) || !of_engine(ctx, only, slot))
        return false;
    text_object(out, NULL);
    text_hex(out, "engine", engine_id_pack(e.id));
    text_str(out, "name", e.name);
    text_str(out, "tenant", admin_tenant_name(ctx, e.tenant));
    text_str(out, "state", e.state_word);
    text_u64(out, "world", e.world);
    text_u64(out, "procs_alive", e.procs_alive);
    admin_engine_pids(ctx, &e, out);
    text_u64(out, "sessions", e.sessions);
    text_array(out, "done_step");
    for (uint32_t i = 0; i < e.world && i < RANKS_MAX; i++)
        text_u63(out, NULL, e.done_step[i]);
    text_array_end(out);
    text_u63(out, "retiring_until", e.retiring_until);
    text_u63(out, "named_step", e.named);
    text_u64(out, "jumps", e.jumps);
    text_object_end(out);
    return true;
}

/* ---- peers ---- */

static void refused(const struct admin_ctx *ctx, const char *key, uint32_t peer,
                    struct text_out *out)
{
    const uint64_t *n = ctx->peer_refused(ctx->ctx, peer);

    text_object(out, key);
    for (uint32_t i = 0; i < TLS_REFUSALS; i++)
        text_u64(out, tls_refusal_name((enum tls_refusal)i), n[i]);
    text_object_end(out);
}

static uint64_t breaches(const struct admin_ctx *ctx, uint32_t slot)
{
    return ctx->peer_protocol_errors ? ctx->peer_protocol_errors(ctx->ctx, slot) : 0;
}

bool admin_falls_back(const struct admin_ctx *ctx, uint32_t slot)
{
    return ctx->peer_falls_back && ctx->peer_falls_back(ctx->ctx, slot);
}

void admin_peers_head(const struct admin_ctx *ctx, uint32_t tenant, struct text_out *out)
{
    (void)tenant;
    text_u64(out, "breaches_unnamed", breaches(ctx, NONE));
    if (ctx->tls == NULL) {
        text_str(out, "tls", NULL);
        return;
    }
    text_object(out, "tls");
    text_str(out, "not_after", ctx->tls->own.not_after);
    text_u64(out, "reloads", ctx->tls->reloads);
    text_u64(out, "reloads_failed", ctx->tls->reloads_failed);
    text_u64(out, "handshakes", ctx->tls->handshakes);
    text_u64(out, "memory_bytes", ctx->tls->memory_bytes);
    text_u64(out, "memory_used_max", ctx->tls->memory_used_max);
    text_u64(out, "memory_refused", ctx->tls->memory_refused);
    refused(ctx, "refused_unnamed", NONE, out);
    text_object_end(out);
}

/* The value is null in the clear. The version and what follows describe the link as it is now. */
static void peer_tls(const struct admin_ctx *ctx, uint32_t slot, struct text_out *out)
{
    struct tls_peer p = {.version = NULL};
    bool up = ctx->tls != NULL && ctx->peer_tls(ctx->ctx, slot, &p);

    if (ctx->tls == NULL) {
        text_str(out, "tls", NULL);
        return;
    }
    text_object(out, "tls");
    text_str(out, "version", p.version);
    text_str(out, "cipher", p.cipher);
    text_str(out, "peer_name", up ? ctx->config->peers[slot].name : NULL);
    text_str(out, "not_after", up ? p.not_after : NULL);
    refused(ctx, "refused", slot, out);
    text_object_end(out);
}

/* Only the first paths are shown, because a row has to fit. */
static void peer_paths(const struct admin_ctx *ctx, uint32_t slot, struct text_out *out)
{
    struct xfer_path_view path;

    text_array(out, "paths");
    for (uint32_t i = 0; ctx->peer_path != NULL && i < PEER_PATHS_MAX; i++) {
        if (!ctx->peer_path(ctx->ctx, slot, i, &path))
            break;
        text_object(out, NULL);
        text_str(out, "device", path.device);
        text_str(out, "tenant", ctx->config->tenants[path.tenant].name);
        text_str(out, "state", path.state_word);
        text_str(out, "reason", path.reason);
        text_object_end(out);
    }
    text_array_end(out);
}

/* Why the link is not up; null, 0 and null while it is. */
static void peer_down_cause(const struct admin_ctx *ctx, uint32_t slot, struct text_out *out)
{
    const char *error = NULL;
    uint32_t attempts = 0;
    uint64_t since_ns = 0;

    if (ctx->peer_down_cause != NULL)
        error = ctx->peer_down_cause(ctx->ctx, slot, &attempts, &since_ns);
    text_u64(out, "breaches", breaches(ctx, slot));
    text_str(out, "last_error", error);
    text_u64(out, "attempts", attempts);
    if (error != NULL)
        text_f64(out, "since_s", admin_age_s(ctx, since_ns));
    else
        text_str(out, "since_s", NULL);
}

bool admin_peer_row(const struct admin_ctx *ctx, uint32_t slot, const struct admin_filter *only,
                    struct text_out *out)
{
    const struct config_peer *p = &ctx->config->peers[slot];
    uint64_t incarnation = 0;
    struct xfer_link_view link = {.reason = ""};
    const char *state;

    if (p->name[0] == '\0' || (only->tenant != NONE && (p->tenants >> only->tenant & 1) == 0) ||
        (only->peer && strcmp(p->name, only->peer) != 0))
        return false;
    if (ctx->peer_link != NULL)
        ctx->peer_link(ctx->ctx, slot, &link);
    state =
        ctx->peer_state_word == NULL ? NULL : ctx->peer_state_word(ctx->ctx, slot, &incarnation);
    text_object(out, NULL);
    text_str(out, "peer", p->name);
    text_str(out, "host", p->address.host);
    text_u64(out, "port", p->address.port);
    text_str(out, "origin", config_peer_origin(p));
    text_str(out, "state", p->leaving ? "leaving" : state);
    peer_down_cause(ctx, slot, out);
    text_hex(out, "incarnation", incarnation);
    text_str(out, "transport", link.transport);
    text_str(out, "moves", link.push ? "push" : "pull");
    text_str(out, "transport_reason", link.reason);
    text_bool(out, "fallback", admin_falls_back(ctx, slot));
    text_object(out, "connections"); /* for pages */
    text_u64(out, "limit", link.connections);
    text_u64(out, "up", link.conns_up);
    text_u64(out, "calling", link.conns_calling);
    text_u64(out, "retired", link.conns_retired);
    text_object_end(out);
    text_array(out, "tenants");
    for (uint32_t i = 0; i < ctx->config->ntenants; i++)
        if (p->tenants >> i & 1)
            text_str(out, NULL, ctx->config->tenants[i].name);
    text_array_end(out);
    peer_paths(ctx, slot, out);
    peer_tls(ctx, slot, out);
    text_object_end(out);
    return true;
}

/* ---- the prefix tree ---- */

static const char *tier_of(const struct node_view *n)
{
    if (n->on_device)
        return n->on_host ? "both" : "device";
    return n->on_host ? "host" : NULL;
}

static void node_place(const struct admin_ctx *ctx, const struct node_view *n, struct text_out *out)
{
    text_str(out, "tier", tier_of(n));
    text_bool(out, "copying", n->copying);
    text_u64(out, "host_pages", n->host_pages);
    text_object(out, "refs");
    for (uint32_t i = 0; i < REF_KINDS; i++)
        text_u64(out, ref_names[i], n->refs[i]);
    text_object_end(out);
    if (n->refs[REF_ADMIN] > 0)
        text_f64(out, "admin_s", admin_age_s(ctx, n->admin_since_ns));
    else
        text_str(out, "admin_s", NULL);
}

bool admin_node_row(const struct admin_ctx *ctx, uint32_t slot, const struct admin_filter *only,
                    struct text_out *out)
{
    struct node_view n;

    if (!core_node_view(ctx->core, slot, &n) || (only->pool != NONE && n.pool != only->pool))
        return false;
    text_object(out, NULL);
    text_u64(out, "slot", n.slot);
    text_hex(out, "id", node_id_pack(n.id));
    node_or_null(out, "parent", n.parent);
    admin_id(out, "parent_id", n.parent != NONE, node_id_pack(n.parent_id));
    text_u64(out, "pool", n.pool);
    admin_namespace(out, n.ns);
    text_hex(out, "chain", n.chain);
    text_u64(out, "depth", n.depth);
    text_u64(out, "children", n.children);
    text_u64(out, "pages", n.pages);
    node_place(ctx, &n, out);
    text_f64(out, "age_s", admin_age_s(ctx, n.last_use_ns));
    text_bool(out, "visible", n.visible);
    text_bool(out, "sealed", n.sealed);
    text_u64(out, "state_pages", n.state_pages);
    text_bool(out, "reclaimable", n.reclaimable);
    text_bool(out, "resumable", n.resumable);
    text_u64(out, "borrowers", n.borrowers);
    text_object_end(out);
    return true;
}
