/* Answers with counts of prompts and pages, and with durations: the core's figures
 * (core/figures.h) and the time to answer requests; and the rows of namespaces. Figures, counts and
 * sums only grow while their subject exists, so two readings give a rate. */
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
        TEXT(out, U64(figure_keys[i], f->v[i]));
}

/* Writes the buckets up to the last one that is not 0: bucket i ends at 2^i microseconds. */
static void histogram_put(const char *key, const struct histogram *h, struct text_out *out)
{
    uint32_t n = HISTOGRAM_BUCKETS;

    while (n > 0 && h->bucket[n - 1] == 0)
        n--;
    TEXT(out, OPEN_OBJECT(key), U64("count", h->n), U64("sum_us", h->sum_ns / NS_PER_US),
         U64("p50_us", histogram_quantile_us(h, 500)), U64("p99_us", histogram_quantile_us(h, 990)),
         OPEN_ARRAY("buckets"));
    for (uint32_t i = 0; i < n; i++)
        TEXT(out, U64(NULL, h->bucket[i]));
    TEXT(out, CLOSE_ARRAY, CLOSE_OBJECT);
}

void admin_figures(const char *key, const struct admin_ctx *ctx, uint32_t tenant,
                   struct text_out *out)
{
    TEXT(out, OPEN_ARRAY(key));
    for (uint32_t i = 0; i < ctx->config->ntenants; i++) {
        if ((tenant != NONE && tenant != i) || config_tenant_free(ctx->config, i))
            continue;
        TEXT(out, OPEN_OBJECT(NULL), STR("tenant", ctx->config->tenants[i].name));
        put_counts(core_tenant_view(ctx->core, i).figures, out);
        TEXT(out, CLOSE_OBJECT);
    }
    TEXT(out, CLOSE_ARRAY);
}

static void stats_pools(const struct admin_ctx *ctx, uint32_t tenant, struct text_out *out)
{
    struct pool_view v;

    TEXT(out, OPEN_ARRAY("pools"));
    for (uint32_t i = 0; i < core_limits_of(ctx->core)->pools; i++) {
        if (!core_pool_view(ctx->core, i, &v) || v.tier != TIER_DEVICE ||
            (tenant != NONE && v.tenant != tenant))
            continue;
        TEXT(out, OPEN_OBJECT(NULL), HEX("pool", pool_id_pack(v.id)),
             STR("tenant", admin_tenant_name(ctx, v.tenant)));
        put_counts(core_pool_figures(ctx->core, i), out);
        TEXT(out, CLOSE_OBJECT);
    }
    TEXT(out, CLOSE_ARRAY);
}

/* The results of fetches from each peer, and the page bytes received from it, by transport. */
static void stats_peers(const struct admin_ctx *ctx, struct text_out *out)
{
    TEXT(out, OPEN_ARRAY("peers"));
    for (uint32_t i = 0; ctx->daemon->xfer && i < ctx->config->npeers; i++) {
        const struct peer_figures *f = core_peer_figures(ctx->core, i);
        const char *transport;
        uint64_t bytes;

        if (ctx->config->peers[i].name[0] == '\0')
            continue;
        TEXT(out, OPEN_OBJECT(NULL), STR("peer", ctx->config->peers[i].name),
             OPEN_OBJECT("bytes_in"));
        for (uint32_t k = 0; xfer_link_bytes(ctx->daemon->xfer, i, k, &transport, &bytes); k++)
            TEXT(out, U64(transport, bytes));
        TEXT(out, CLOSE_OBJECT, U64("fetched_tokens", f->tokens), U64("failed_fetches", f->failed));
        histogram_put("fetch", &f->brought, out);
        TEXT(out, CLOSE_OBJECT);
    }
    TEXT(out, CLOSE_ARRAY);
}

static void stats_times(const struct admin_ctx *ctx, struct text_out *out)
{
    TEXT(out, OPEN_OBJECT("latencies"));
    for (uint32_t i = 0; i < LATENCIES; i++)
        histogram_put(latency_keys[i], core_latency(ctx->core, (enum latency)i), out);
    TEXT(out, CLOSE_OBJECT, OPEN_OBJECT("requests"));
    for (uint32_t i = OP_NONE + 1; i < OP_COUNT; i++)
        if (ctx->daemon->answered[i].n > 0)
            histogram_put(op_name((enum op)i), &ctx->daemon->answered[i], out);
    TEXT(out, CLOSE_OBJECT);
}

enum tern_err admin_stats(const struct admin_ctx *ctx, uint32_t tenant, struct text_out *out)
{
    TEXT(out, OPEN_OBJECT(NULL),
         U64("uptime_s", (ctx->now_ns - ctx->daemon->start_ns) / 1000000000u));
    admin_figures("tenants", ctx, tenant, out);
    stats_pools(ctx, tenant, out);
    if (tenant == NONE) {
        stats_peers(ctx, out);
        stats_times(ctx, out);
    }
    TEXT(out, CLOSE_OBJECT);
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
    TEXT(out, OPEN_OBJECT(NULL));
    admin_namespace(out, v.ns);
    TEXT(out, STR("tenant", admin_tenant_name(ctx, v.tenant)), HEX("pool", pool_id_pack(p.id)),
         NUM(v, nodes), FLAG(v, held), FLAG(v, reset));
    put_counts(&v.figures, out);
    TEXT(out, CLOSE_OBJECT);
    return true;
}
