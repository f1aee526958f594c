/* What became of prompts and pages, and how long things took: the figures of the core
 * (core/figures.h) and the time that requests were answered in, as numbers that only grow. Whoever
 * asks twice has rates. */
#include "shell/admin/admin_rows.h"

#define NS_PER_US 1000u

static const char *const figure_keys[] = {
#define X(name, key, text) key,
    FIGURE_TABLE(X)
#undef X
};

static const char *const latency_keys[] = {
#define X(name, key, text) key,
    LATENCY_TABLE(X)
#undef X
};

static void put_counts(const struct figure_counts *f, struct text_out *out)
{
    for (uint32_t i = 0; i < FIGURES; i++)
        text_u64(out, figure_keys[i], f->v[i]);
}

/* Buckets up to the last one that counts something: the i-th ends at 2^i microseconds. */
static void histogram_put(const char *key, const struct histogram *h, struct text_out *out)
{
    uint32_t n = HISTOGRAM_BUCKETS;

    while (n > 0 && h->bucket[n - 1] == 0)
        n--;
    text_object(out, key);
    text_u64(out, "count", h->n);
    text_u64(out, "sum_us", h->sum_ns / NS_PER_US);
    text_u64(out, "p50_us", histogram_quantile_us(h, 500));
    text_u64(out, "p99_us", histogram_quantile_us(h, 990));
    text_array(out, "buckets");
    for (uint32_t i = 0; i < n; i++)
        text_u64(out, NULL, h->bucket[i]);
    text_array_end(out);
    text_object_end(out);
}

void admin_figures(const char *key, const struct admin_ctx *ctx, uint32_t tenant,
                   struct text_out *out)
{
    text_array(out, key);
    for (uint32_t i = 0; i < ctx->config->ntenants; i++) {
        if ((tenant != NONE && tenant != i) || config_tenant_free(ctx->config, i))
            continue;
        text_object(out, NULL);
        text_str(out, "tenant", ctx->config->tenants[i].name);
        put_counts(core_tenant_figures(ctx->core, i), out);
        text_object_end(out);
    }
    text_array_end(out);
}

static void stats_pools(const struct admin_ctx *ctx, uint32_t tenant, struct text_out *out)
{
    struct pool_view v;

    text_array(out, "pools");
    for (uint32_t i = 0; i < core_limits_of(ctx->core)->pools; i++) {
        if (!core_pool_view(ctx->core, i, &v) || v.tier != TIER_DEVICE ||
            (tenant != NONE && v.tenant != tenant))
            continue;
        text_object(out, NULL);
        admin_id(out, "pool", true, pool_id_pack(v.id));
        text_str(out, "tenant", admin_tenant_name(ctx, v.tenant));
        put_counts(core_pool_figures(ctx->core, i), out);
        text_object_end(out);
    }
    text_array_end(out);
}

/* What each peer's fetches brought, and its page bytes by the transport that brought them. */
static void stats_peers(const struct admin_ctx *ctx, struct text_out *out)
{
    text_array(out, "peers");
    for (uint32_t i = 0; ctx->peer_bytes && i < ctx->config->npeers; i++) {
        const struct peer_figures *f = core_peer_figures(ctx->core, i);
        const char *transport;
        uint64_t bytes;

        if (ctx->config->peers[i].name[0] == '\0')
            continue;
        text_object(out, NULL);
        text_str(out, "peer", ctx->config->peers[i].name);
        text_object(out, "bytes_in");
        for (uint32_t k = 0; ctx->peer_bytes(ctx->ctx, i, k, &transport, &bytes); k++)
            text_u64(out, transport, bytes);
        text_object_end(out);
        text_u64(out, "fetched_tokens", f->tokens);
        text_u64(out, "failed_fetches", f->failed);
        histogram_put("fetch", &f->brought, out);
        text_object_end(out);
    }
    text_array_end(out);
}

static void stats_times(const struct admin_ctx *ctx, struct text_out *out)
{
    text_object(out, "latencies");
    for (uint32_t i = 0; i < LATENCIES; i++)
        histogram_put(latency_keys[i], core_latency(ctx->core, (enum latency)i), out);
    text_object_end(out);
    text_object(out, "requests");
    for (uint32_t i = OP_NONE + 1; ctx->answered && i < OP_COUNT; i++)
        if (ctx->answered[i].n > 0)
            histogram_put(op_name((enum op)i), &ctx->answered[i], out);
    text_object_end(out);
}

enum tern_err admin_stats(const struct admin_ctx *ctx, uint32_t tenant, struct text_out *out)
{
    text_object(out, NULL);
    text_u64(out, "uptime_s", (ctx->now_ns - ctx->start_ns) / 1000000000u);
    admin_figures("tenants", ctx, tenant, out);
    stats_pools(ctx, tenant, out);
    if (tenant == NONE) {
        stats_peers(ctx, out);
        stats_times(ctx, out);
    }
    text_object_end(out);
    return text_whole(out) ? TERN_OK : TERN_BUSY;
}

bool admin_namespace_row(const struct admin_ctx *ctx, uint32_t slot,
                         const struct admin_filter *only, struct text_out *out)
{
    struct space_view v;
    struct pool_view p;

    if (!core_space_view(ctx->core, slot, &v) ||
        (only->tenant != NONE && v.tenant != only->tenant) ||
        (only->pool != NONE && v.pool != only->pool) || !core_pool_view(ctx->core, v.pool, &p))
        return false;
    text_object(out, NULL);
    admin_namespace(out, v.ns);
    text_str(out, "tenant", admin_tenant_name(ctx, v.tenant));
    admin_id(out, "pool", true, pool_id_pack(p.id));
    text_u64(out, "nodes", v.nodes);
    text_bool(out, "held", v.held);
    text_bool(out, "reset", v.reset);
    put_counts(&v.figures, out);
    text_object_end(out);
    return true;
}
