/* See admin_rows.h. Ids are hexadecimal strings of (generation, slot) as on the wire; "slot" is
 * added where a command takes a slot as an argument. */
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
    TEXT(out, STR("namespace", text));
}

static const char *const ref_names[] = {[REF_DEVICE] = "device", [REF_TRANSFER] = "transfer",
                                        [REF_JOB] = "job",       [REF_RETRACTED] = "retracted",
                                        [REF_ADMIN] = "admin",   [REF_HANDOFF] = "handoff",
                                        [REF_HOST] = "host"};

static_assert(sizeof ref_names / sizeof *ref_names == REF_KINDS, "each kind has a name");

static const char *const tier_names[] = {[TIER_DEVICE] = "device", [TIER_HOST] = "host"};

/* NULL: no name. */
static const char *group_name(const struct admin_ctx *ctx, uint32_t pool, uint32_t group)
{
    const struct pool_watch *w;
    struct pool_view view;

    if (!core_pool_view(ctx->core, pool, &view))
        return NULL;
    /* A host tier has the groups of the pool that it serves, which also has their names. */
    if (view.tier == TIER_HOST && !core_pool_view(ctx->core, view.other, &view))
        return NULL;
    w = &ctx->daemon->pools[view.id.slot];
    return view.id.gen == w->gen && w->names[group][0] ? w->names[group] : NULL;
}

static void group_counts(const struct admin_ctx *ctx, const struct pool_view *p, uint32_t slot,
                         uint32_t group, const uint32_t *borrowed, struct text_out *out)
{
    const struct group_view *g = &p->group[group];
    static const char *const families[] = {
        [FAMILY_HISTORY] = "history", [FAMILY_WINDOW] = "window", [FAMILY_RECURRENT] = "recurrent"};
    const char *name = group_name(ctx, slot, group);
    char numbered[16];

    snprintf(numbered, sizeof numbered, "group%u", group);
    TEXT(out, STR("group", name != NULL ? name : numbered),
         STR("family", families[g->layout.family]), NUM(g->layout, page_tokens),
         NUM(g->layout, page_bytes), NUM(g->layout, window), NUM(*g, total), NUM(*g, free),
         NUM(*g, leased), NUM(*g, session), NUM(*g, snapshot), NUM(*g, reclaimable),
         NUM(*g, evictable));
    TEXT(out, text_or_null(borrowed, U64("borrowed", borrowed ? borrowed[group] : 0)));
    TEXT(out, NUM(*g, transfer), NUM(*g, ticket), NUM(*g, retiring), NUM(*g, zeroing),
         NUM(*g, quarantine), NUM(*g, peak_session), NUM(*g, peak_snapshot));
}

void admin_pool_groups(const struct admin_ctx *ctx, uint32_t slot, uint32_t tenant,
                       struct text_out *out)
{
    uint32_t borrowed[GROUPS_MAX] = {0};
    struct pool_view p;
    bool known;

    if (!core_pool_view(ctx->core, slot, &p) || (tenant != NONE && p.tenant != tenant))
        return;
    known = core_pool_borrowed(ctx->core, slot, ctx->daemon->node_bits, ctx->visits, borrowed);
    for (uint32_t i = 0; i < p.ngroups; i++) {
        TEXT(out, OPEN_OBJECT(NULL), HEX("pool", pool_id_pack(p.id)),
             STR("tenant", admin_tenant_name(ctx, p.tenant)), STR("tier", tier_names[p.tier]),
             BOOL("device_memory",
                  p.tier == TIER_DEVICE && ctx->config->tenants[p.tenant].device_memory),
             U64("ranks", p.regions), NUM(p, bytes));
        group_counts(ctx, &p, slot, i, known ? borrowed : NULL, out);
        TEXT(out, CLOSE_OBJECT);
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
    char device[CONFIG_NAME_BYTES];
    bool has_other, known;

    if (!core_pool_view(ctx->core, slot, &p) ||
        (only->tenant != NONE && p.tenant != only->tenant) || !of_engine(ctx, only, p.engine))
        return false;
    known = core_pool_borrowed(ctx->core, slot, ctx->daemon->node_bits, ctx->visits, borrowed);
    TEXT(out, OPEN_OBJECT(NULL), HEX("pool", pool_id_pack(p.id)), U64("slot", slot),
         STR("tenant", admin_tenant_name(ctx, p.tenant)),
         STR("engine", core_engine_view(ctx->core, p.engine, &engine) ? engine.name : NULL),
         STR("state", p.zeroing   ? "zeroing"
                      : p.closing ? "closing"
                                  : "open"),
         STR("tier", tier_names[p.tier]));
    has_other = core_pool_view(ctx->core, p.other, &other);
    TEXT(out, text_or_null(has_other, HEX("other_tier", pool_id_pack(other.id))),
         OPEN_ARRAY("devices") /* of ranks 0, 1 and so on */
    );
    for (uint32_t i = 0; i < p.regions; i++) {
        config_region_name(ctx->config, p.tenant, p.region[i], device);
        TEXT(out, STR(NULL, device));
    }
    TEXT(out, CLOSE_ARRAY, NUM(p, offset), NUM(p, bytes), NUM(p, slab_bytes), NUM(p, slabs),
         NUM(p, slabs_free), NUM(p, nodes), NUM(p, align_tokens),
         STR("supersede", modes[p.supersede]), OPEN_ARRAY("groups"));
    for (uint32_t i = 0; i < p.ngroups; i++) {
        TEXT(out, OPEN_OBJECT(NULL));
        group_counts(ctx, &p, slot, i, known ? borrowed : NULL, out);
        TEXT(out, U64("units", p.group[i].layout.units), U64("reserve", p.group[i].layout.reserve),
             U64("cap_pages", p.group[i].layout.cap_pages), CLOSE_OBJECT);
    }
    TEXT(out, CLOSE_ARRAY, CLOSE_OBJECT);
    return true;
}

/* The node that a session or transfer pins, the kind of its ref and its age. */
static void session_hold(const struct admin_ctx *ctx, const struct session_view *s,
                         struct text_out *out)
{
    struct node_view node = {0};
    bool there = core_node_view(ctx->core, s->node, &node);

    TEXT(out, text_or_null(s->node != NONE, NUM(*s, node)),
         text_or_null(there, HEX("node_id", node_id_pack(node.id))),
         STR("ref", there ? ref_names[s->ref] : NULL),
         text_or_null(there, F64("ref_s", admin_age_s(ctx, s->ref_since_ns))));
}

static bool own_session(const struct admin_ctx *ctx, uint32_t slot, const struct admin_filter *only,
                        struct session_view *ret)
{
    return core_session_view(ctx->core, slot, ret) &&
           (only->tenant == NONE || ret->tenant == only->tenant) &&
           of_engine(ctx, only, ret->engine.slot);
}

/* The session's id and its owner. */
static void session_named(const struct admin_ctx *ctx, const struct session_view *s,
                          struct text_out *out)
{
    struct engine_view engine;
    bool has_engine = core_engine_view(ctx->core, s->engine.slot, &engine);

    TEXT(out, HEX("session", session_id_pack(s->id)),
         STR("tenant", admin_tenant_name(ctx, s->tenant)),
         STR("engine", has_engine ? engine.name : NULL), HEX("pool", pool_id_pack(s->pool)));
}

static void session_turn(const struct admin_ctx *ctx, const struct session_view *s,
                         struct text_out *out)
{
    TEXT(out, STR("turn", s->turn_word[0] ? s->turn_word : NULL),
         text_or_null(s->turn_begun_ns, F64("turn_s", admin_age_s(ctx, s->turn_begun_ns))));
}

bool admin_session_row(const struct admin_ctx *ctx, uint32_t slot, const struct admin_filter *only,
                       struct text_out *out)
{
    struct session_view s;

    if (!own_session(ctx, slot, only, &s))
        return false;
    TEXT(out, OPEN_OBJECT(NULL));
    session_named(ctx, &s, out);
    admin_namespace(out, s.ns);
    TEXT(out, STR("state", s.state_word), NUM(s.lengths, committed), NUM(s.lengths, written),
         NUM(s.lengths, allocated), NUM(s, tokens));
    session_hold(ctx, &s, out);
    session_turn(ctx, &s, out);
    TEXT(out, NUM(s, records), NUM(s, recorded), F64("idle_s", admin_age_s(ctx, s.last_use_ns)),
         CLOSE_OBJECT);
    return true;
}

/* A row for each handed-over session. Never shows the ticket's text, which is enough to fetch. */
bool admin_ticket_row(const struct admin_ctx *ctx, uint32_t slot, const struct admin_filter *only,
                      struct text_out *out)
{
    struct session_view s;

    if (!own_session(ctx, slot, only, &s) || !s.ticket_word[0])
        return false;
    TEXT(out, OPEN_OBJECT(NULL));
    session_named(ctx, &s, out);
    admin_namespace(out, s.ns);
    TEXT(out, STR("ticket", s.ticket_word), U64("length", s.lengths.written),
         NUM(s.lengths, committed), NUM(s, blob_bytes),
         F64("age_s", admin_age_s(ctx, s.ref_since_ns)),
         F64("left_s", (double)s.ticket_left_ns / 1e9), CLOSE_OBJECT);
    return true;
}

/* A row for each session with turn records, or with pages for one. */
bool admin_record_row(const struct admin_ctx *ctx, uint32_t slot, const struct admin_filter *only,
                      struct text_out *out)
{
    struct session_view s;

    if (!own_session(ctx, slot, only, &s) || (s.records == 0 && s.record_pages == 0))
        return false;
    TEXT(out, OPEN_OBJECT(NULL));
    session_named(ctx, &s, out);
    TEXT(out, NUM(s, records), NUM(s, recorded), U64("pages", s.record_pages), NUM(s, blob_pages));
    session_turn(ctx, &s, out);
    TEXT(out, CLOSE_OBJECT);
    return true;
}

void admin_engine_pids(const struct daemon *d, const struct engine_view *e, struct text_out *out)
{
    TEXT(out, OPEN_ARRAY("pids")); /* of ranks 0, 1 and so on, then of the pure scheduler */
    for (uint32_t i = 0; i < PROCS_PER_ENGINE_MAX; i++)
        if (e->procs[i] != NONE)
            TEXT(out, U64(NULL, (uint64_t)proc_pid(&d->procs, e->procs[i])));
    TEXT(out, CLOSE_ARRAY);
}

bool admin_engine_row(const struct admin_ctx *ctx, uint32_t slot, const struct admin_filter *only,
                      struct text_out *out)
{
    struct engine_view e;

    if (!core_engine_view(ctx->core, slot, &e) ||
        (only->tenant != NONE && e.tenant != only->tenant) || !of_engine(ctx, only, slot))
        return false;
    TEXT(out, OPEN_OBJECT(NULL), HEX("engine", engine_id_pack(e.id)), WORD(e, name),
         STR("tenant", admin_tenant_name(ctx, e.tenant)), STR("state", e.state_word), NUM(e, world),
         NUM(e, procs_alive));
    admin_engine_pids(ctx->daemon, &e, out);
    TEXT(out, NUM(e, sessions), OPEN_ARRAY("done_step"));
    for (uint32_t i = 0; i < e.world && i < RANKS_MAX; i++)
        TEXT(out, text_u63(NULL, e.done_step[i]));
    TEXT(out, CLOSE_ARRAY, text_u63("retiring_until", e.retiring_until),
         text_u63("named_step", e.named), NUM(e, jumps), CLOSE_OBJECT);
    return true;
}

static void refused(const struct admin_ctx *ctx, const char *key, uint32_t peer,
                    struct text_out *out)
{
    const uint64_t *n = links_faults(ctx->daemon, peer)->refused;

    TEXT(out, OPEN_OBJECT(key));
    for (uint32_t i = 0; i < TLS_REFUSALS; i++)
        TEXT(out, U64(tls_refusal_name((enum tls_refusal)i), n[i]));
    TEXT(out, CLOSE_OBJECT);
}

void admin_peers_head(const struct admin_ctx *ctx, uint32_t tenant, struct text_out *out)
{
    (void)tenant;
    TEXT(out, U64("breaches_unnamed", links_faults(ctx->daemon, NONE)->breaches));
    if (ctx->tls == NULL) {
        TEXT(out, STR("tls", NULL));
        return;
    }
    TEXT(out, OPEN_OBJECT("tls"), WORD(ctx->tls->own, not_after), NUM(*ctx->tls, reloads),
         NUM(*ctx->tls, reloads_failed), NUM(*ctx->tls, handshakes), NUM(*ctx->tls, memory_bytes),
         NUM(*ctx->tls, memory_used_max), NUM(*ctx->tls, memory_refused));
    refused(ctx, "refused_unnamed", NONE, out);
    TEXT(out, CLOSE_OBJECT);
}

/* Null if peers talk in the clear. The version and the fields after it describe the current
 * link. */
static void peer_tls(const struct admin_ctx *ctx, uint32_t slot, struct text_out *out)
{
    struct tls_peer p = {.version = NULL};
    bool up = ctx->tls != NULL && link_tls_peer(ctx->daemon, slot, &p);

    if (ctx->tls == NULL) {
        TEXT(out, STR("tls", NULL));
        return;
    }
    TEXT(out, OPEN_OBJECT("tls"), WORD(p, version), WORD(p, cipher),
         STR("peer_name", up ? ctx->config->peers[slot].name : NULL),
         STR("not_after", up ? p.not_after : NULL));
    refused(ctx, "refused", slot, out);
    TEXT(out, CLOSE_OBJECT);
}

/* Shows only the first paths, because a row must fit. */
static void peer_paths(const struct admin_ctx *ctx, uint32_t slot, struct text_out *out)
{
    struct xfer_path_view path;

    TEXT(out, OPEN_ARRAY("paths"));
    for (uint32_t i = 0; i < PEER_PATHS_MAX; i++) {
        if (!xfer_path_view(ctx->daemon->xfer, slot, i, &path))
            break;
        TEXT(out,
             OBJECT(NULL, WORD(path, device), STR("tenant", ctx->config->tenants[path.tenant].name),
                    STR("state", path.state_word), WORD(path, reason)));
    }
    TEXT(out, CLOSE_ARRAY);
}

bool admin_peer_row(const struct admin_ctx *ctx, uint32_t slot, const struct admin_filter *only,
                    struct text_out *out)
{
    const struct config_peer *p = &ctx->config->peers[slot];
    const struct peer_link *l = &ctx->daemon->links.v[slot];
    struct xfer_link_view link = {.reason = ""};
    bool failed;

    if (p->name[0] == '\0' || (only->tenant != NONE && (p->tenants >> only->tenant & 1) == 0) ||
        (only->peer && strcmp(p->name, only->peer) != 0))
        return false;
    xfer_link_view(ctx->daemon->xfer, slot, &link);
    failed = l->cause[0] != '\0'; /* the link is not up */
    TEXT(out, OPEN_OBJECT(NULL), STR("peer", p->name), WORD(p->address, host),
         NUM(p->address, port), STR("origin", config_peer_origin(p)),
         STR("state", p->leaving ? "leaving" : link_state_name(l)),
         U64("breaches", links_faults(ctx->daemon, slot)->breaches),
         STR("last_error", failed ? l->cause : NULL), NUM(*l, attempts),
         text_or_null(failed, F64("since_s", admin_age_s(ctx, l->down_ns))),
         HEX("incarnation", l->incarnation), WORD(link, transport),
         STR("moves", link.push ? "push" : "pull"), STR("transport_reason", link.reason),
         BOOL("fallback", link_falls_back(ctx->daemon, slot)),
         OBJECT("connections", /* data connections */
                U64("limit", link.connections), U64("up", link.conns_up),
                U64("calling", link.conns_calling), U64("retired", link.conns_retired)),
         OPEN_ARRAY("tenants"));
    for (uint32_t i = 0; i < ctx->config->ntenants; i++)
        if (p->tenants >> i & 1)
            TEXT(out, STR(NULL, ctx->config->tenants[i].name));
    TEXT(out, CLOSE_ARRAY);
    peer_paths(ctx, slot, out);
    peer_tls(ctx, slot, out);
    TEXT(out, CLOSE_OBJECT);
    return true;
}

static const char *tier_of(const struct node_view *n)
{
    if (n->on_device)
        return n->on_host ? "both" : "device";
    return n->on_host ? "host" : NULL;
}

static void node_place(const struct admin_ctx *ctx, const struct node_view *n, struct text_out *out)
{
    TEXT(out, STR("tier", tier_of(n)), FLAG(*n, copying), NUM(*n, host_pages), OPEN_OBJECT("refs"));
    for (uint32_t i = 0; i < REF_KINDS; i++)
        TEXT(out, U64(ref_names[i], n->refs[i]));
    TEXT(out, CLOSE_OBJECT,
         text_or_null(n->refs[REF_ADMIN] > 0, F64("admin_s", admin_age_s(ctx, n->admin_since_ns))));
}

bool admin_node_row(const struct admin_ctx *ctx, uint32_t slot, const struct admin_filter *only,
                    struct text_out *out)
{
    struct node_view n;

    if (!core_node_view(ctx->core, slot, &n) || (only->pool != NONE && n.pool != only->pool))
        return false;
    TEXT(out, OPEN_OBJECT(NULL), NUM(n, slot), HEX("id", node_id_pack(n.id)),
         text_or_null(n.parent != NONE, NUM(n, parent)),
         text_or_null(n.parent != NONE, HEX("parent_id", node_id_pack(n.parent_id))), NUM(n, pool));
    admin_namespace(out, n.ns);
    TEXT(out, HEX("chain", n.chain), NUM(n, depth), NUM(n, children), NUM(n, pages));
    node_place(ctx, &n, out);
    TEXT(out, F64("age_s", admin_age_s(ctx, n.last_use_ns)), FLAG(n, visible), FLAG(n, sealed),
         NUM(n, state_pages), FLAG(n, reclaimable), FLAG(n, resumable), NUM(n, borrowers),
         CLOSE_OBJECT);
    return true;
}
