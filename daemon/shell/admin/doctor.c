/* `ternctl doctor`: which RDMA devices this host has, which of them are used, for which regions of
 * memory, and what to do where they are not; and on which GPUs memory is, whether they run
 * kernels for it, and what else of them is known. Where RDMA is not wanted, it shows what it would
 * find. See admin_rows.h. */
#include <stdio.h>

#include "shell/admin/admin_rows.h"

static void devices(const struct xfer_rdma_view *v, struct text_out *out)
{
    text_array(out, "devices");
    for (uint32_t i = 0; i < v->ndevices; i++) {
        text_object(out, NULL);
        text_str(out, "device", v->found[i].name);
        text_str(out, "state", v->found[i].state);
        text_object_end(out);
    }
    text_array_end(out);
}

/* Writes a limit; null means that there is none. Readers of JSON take whole numbers up to 63 bits.
 */
static void limit(struct text_out *out, const char *key, uint64_t bytes)
{
    if (bytes > INT64_MAX)
        text_str(out, key, NULL);
    else
        text_u64(out, key, bytes);
}

static void node(struct text_out *out, int numa)
{
    if (numa >= 0)
        text_u64(out, "numa_node", (uint64_t)numa);
    else
        text_str(out, "numa_node", NULL);
}

static void rails(const struct xfer_rdma_view *v, struct text_out *out)
{
    text_array(out, "rails");
    for (uint32_t i = 0; i < v->nrails; i++) {
        const struct xfer_rail_view *r = &v->rail[i];

        text_object(out, NULL);
        text_str(out, "device", r->device);
        node(out, r->node);
        text_u64(out, "port", r->port);
        text_u64(out, "gid_index", r->gid_index);
        text_u64(out, "pkey", r->pkey);
        text_u64(out, "mtu", r->mtu);
        text_u64(out, "rd_atomic", r->rd_atomic);
        text_bool(out, "windows", r->memory_windows);
        text_bool(out, "lost", r->lost);
        text_u64(out, "send_queue", v->send_queue);
        text_u64(out, "completion_queue", r->completion_queue);
        text_u64(out, "registered_bytes", r->registered_bytes);
        text_u64(out, "registrations", r->registrations);
        text_u64(out, "bytes_asked", r->bytes_asked);
        limit(out, "registration_bytes_max", r->max_mr_bytes);
        text_object_end(out);
    }
    text_array_end(out);
}

/* Null: that of the port, or none. */
static void number(struct text_out *out, const char *key, uint32_t value)
{
    if (value == UINT32_MAX)
        text_str(out, key, NULL);
    else
        text_u64(out, key, value);
}

/* Which device each region's pages go over, and why. */
static void regions(const struct admin_ctx *ctx, struct text_out *out)
{
    struct xfer_region_view r;

    static_assert(NONE == UINT32_MAX && XFER_BY_PORT == UINT32_MAX, "what `number` takes for none");
    text_array(out, "regions");
    for (uint32_t t = 0; ctx->rdma_region && t < ctx->config->ntenants; t++)
        for (uint32_t i = 0; i < ctx->config->tenants[t].regions; i++) {
            if (!ctx->rdma_region(ctx->ctx, &ctx->rdma, t, i, &r))
                continue;
            text_object(out, NULL);
            text_str(out, "tenant", config_tenant_word(ctx->config, t));
            text_u64(out, "region", i);
            text_str(out, "gpu", r.gpu);
            text_str(out, "pci", r.pci);
            text_str(out, "device", r.device);
            number(out, "rail", r.rail);
            text_str(out, "reason", r.reason);
            text_object_end(out);
        }
    text_array_end(out);
}

/* What queue pairs are made with. */
static void tuning(const struct xfer_rdma_tuning *t, struct text_out *out)
{
    text_object(out, "tuning");
    number(out, "gid_index", t->gid_index);
    number(out, "mtu", t->mtu);
    text_u64(out, "pkey_index", t->pkey_index);
    text_u64(out, "traffic_class", t->traffic_class);
    text_u64(out, "service_level", t->service_level);
    text_u64(out, "timeout", t->timeout);
    text_u64(out, "retries", t->retries);
    text_u64(out, "rnr_retries", t->rnr_retries);
    text_u64(out, "rnr_timer", t->rnr_timer);
    text_object_end(out);
}

static void nodes(struct text_out *out, const char *key, uint64_t mask)
{
    text_array(out, key);
    for (uint64_t i = 0; i < 64; i++)
        if (mask >> i & 1)
            text_u64(out, NULL, i);
    text_array_end(out);
}

/* Memory, workers and devices belong on one NUMA node. There is no warning where a node is not
 * known. */
static void numa(const struct xfer_rdma_view *v, struct text_out *out)
{
    char text[200];

    text_object(out, "numa");
    nodes(out, "memory", v->memory_nodes);
    nodes(out, "workers", v->cpu_nodes);
    text_array(out, "warnings");
    for (uint32_t i = 0; i < v->nrails; i++) {
        int node = v->rail[i].node;

        if (node >= 0 && v->memory_nodes & ~((uint64_t)1 << node)) {
            snprintf(text, sizeof text,
                     "%s is on node %d and tenants' memory on another: start ternd under numactl "
                     "--membind=%d, or choose another device",
                     v->rail[i].device, node, node);
            text_str(out, NULL, text);
        }
        if (node >= 0 && v->cpu_nodes & ~((uint64_t)1 << node)) {
            snprintf(text, sizeof text,
                     "%s is on node %d and workers may run on another: start ternd under numactl "
                     "--cpunodebind=%d",
                     v->rail[i].device, node, node);
            text_str(out, NULL, text);
        }
    }
    text_array_end(out);
    text_object_end(out);
}

/* Null: there was none. */
static void self_test(const struct xfer_self_test *test, uint64_t now_ns, struct text_out *out)
{
    if (!test || test->result == XFER_SELF_TEST_NONE) {
        text_str(out, "self_test", NULL);
        return;
    }
    text_object(out, "self_test");
    text_str(out, "result", xfer_self_test_word[test->result]);
    text_u64(out, "bytes", test->bytes);
    text_u64(out, "us", test->ns / 1000);
    text_u64(out, "age_ms", (now_ns - test->at_ns) / 1000000);
    text_str(out, "reason", test->why);
    text_object_end(out);
}

/* Each region of memory of GPUs, and a tenant's of the host together, beside each NIC in use. */
static void memory(const struct admin_ctx *ctx, struct text_out *out)
{
    struct xfer_registration_view v;

    text_array(out, "memory");
    for (uint32_t i = 0; ctx->registration && ctx->registration(ctx->ctx, i, &v); i++) {
        text_object(out, NULL);
        text_str(out, "tenant", admin_tenant_name(ctx, v.tenant));
        text_u64(out, "region", v.region);
        text_u64(out, "regions", v.regions);
        text_str(out, "kind", v.gpu ? "gpu" : "host");
        text_str(out, "gpu", v.gpu);
        text_str(out, "device", v.device);
        text_str(out, "registered", xfer_registered_word[v.how]);
        text_str(out, "reason", v.device ? v.why : ctx->rdma.why);
        text_u64(out, "ring_bytes", v.ring_bytes);
        text_str(out, "no_ring", v.no_ring);
        self_test(v.test, ctx->now_ns, out);
        text_object_end(out);
    }
    text_array_end(out);
}

/* The other ones, and whether copies between the two are the GPUs' own. */
static void peers(const struct admin_ctx *ctx, uint32_t device, struct text_out *out)
{
    struct mem_device_view other;

    text_array(out, "peers");
    for (uint32_t i = 0; ctx->device(ctx->ctx, i, &other); i++) {
        const char *why = i == device ? NULL : ctx->no_peers(ctx->ctx, device, i);

        if (i == device)
            continue;
        text_object(out, NULL);
        text_str(out, "gpu", other.uuid);
        text_bool(out, "peer_access", why == NULL);
        text_str(out, "reason", why);
        text_object_end(out);
    }
    text_array_end(out);
}

static void gpus(const struct admin_ctx *ctx, struct text_out *out)
{
    struct mem_device_view v;

    text_array(out, "gpus");
    for (uint32_t i = 0; ctx->device && ctx->device(ctx->ctx, i, &v); i++) {
        text_object(out, NULL);
        text_str(out, "gpu", v.uuid);
        text_str(out, "lost", v.lost);
        text_bool(out, "kernels", v.no_kernels == NULL);
        text_str(out, "reason", v.no_kernels);
        node(out, v.facts.node);
        if (v.facts.mps < 0)
            text_str(out, "mps", NULL);
        else
            text_bool(out, "mps", v.facts.mps > 0);
        text_u64(out, "pool_bytes", v.facts.pool_bytes);
        text_u64(out, "kernel_bytes", v.facts.kernel_bytes);
        peers(ctx, i, out);
        text_object_end(out);
    }
    text_array_end(out);
}

enum tern_err admin_doctor(const struct admin_ctx *ctx, struct text_out *out)
{
    const struct xfer_rdma_view *v = &ctx->rdma;

    text_object(out, NULL);
    text_object(out, "rdma");
    text_bool(out, "built", v->built);
    text_bool(out, "wanted", v->wanted);
    text_bool(out, "in_use", v->open);
    text_str(out, "reason", v->why);
    text_bool(out, "wide_keys", ctx->config->rdma_wide_keys);
    devices(v, out);
    rails(v, out);
    regions(ctx, out);
    tuning(&ctx->config->rdma, out);
    numa(v, out);
    memory(ctx, out);
    limit(out, "memlock_bytes", v->memlock_bytes);
    text_bool(out, "memlock_exempt", v->memlock_exempt);
    text_u64(out, "memlock_needed_bytes", v->memlock_needed);
    text_u64(out, "memlock_devices", v->memlock_devices);
    text_object_end(out);
    gpus(ctx, out);
    text_object_end(out);
    return text_whole(out) ? TERN_OK : TERN_BUSY;
}
