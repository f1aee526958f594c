/* `ternctl doctor`: which RDMA devices this host has, which of them are used, for which regions of
 * memory, and what to do where they are not; and on which GPUs memory is, whether they run
 * kernels for it, and what else of them is known. Where RDMA is not wanted, it shows what it would
 * find. See admin_rows.h. */
#include <stdio.h>

#include "shell/admin/admin_rows.h"

static void devices(const struct xfer_rdma_view *v, struct text_out *out)
{
    TEXT(out, OPEN_ARRAY("devices"));
    for (uint32_t i = 0; i < v->ndevices; i++)
        TEXT(out, OBJECT(NULL, STR("device", v->found[i].name), STR("state", v->found[i].state)));
    TEXT(out, CLOSE_ARRAY);
}

/* Null: there is none. Readers of JSON take whole numbers up to 63 bits. */
static struct text_field limit(const char *key, uint64_t bytes)
{
    return text_or_null(bytes <= INT64_MAX, U64(key, bytes));
}

static struct text_field node(int numa)
{
    return text_or_null(numa >= 0, U64("numa_node", (uint64_t)numa));
}

static void rails(const struct xfer_rdma_view *v, struct text_out *out)
{
    TEXT(out, OPEN_ARRAY("rails"));
    for (uint32_t i = 0; i < v->nrails; i++) {
        const struct xfer_rail_view *r = &v->rail[i];

        TEXT(out,
             OBJECT(NULL, STR("device", r->device), node(r->node), U64("port", r->port),
                    U64("gid_index", r->gid_index), U64("pkey", r->pkey), U64("mtu", r->mtu),
                    BOOL("windows", r->memory_windows), BOOL("lost", r->lost),
                    U64("send_queue", v->send_queue), U64("completion_queue", r->completion_queue),
                    U64("registered_bytes", r->registered_bytes),
                    U64("registrations", r->registrations), U64("bytes_asked", r->bytes_asked),
                    limit("registration_bytes_max", r->max_mr_bytes)));
    }
    TEXT(out, CLOSE_ARRAY);
}

/* Null: that of the port, or none. */
static struct text_field number(const char *key, uint32_t value)
{
    return text_or_null(value != UINT32_MAX, U64(key, value));
}

/* Which device each region's pages go over, and why. */
static void regions(const struct admin_ctx *ctx, struct text_out *out)
{
    struct xfer_region_view r;

    static_assert(NONE == UINT32_MAX && XFER_BY_PORT == UINT32_MAX, "what `number` takes for none");
    TEXT(out, OPEN_ARRAY("regions"));
    for (uint32_t t = 0; ctx->daemon->xfer && t < ctx->config->ntenants; t++)
        for (uint32_t i = 0; i < ctx->config->tenants[t].regions; i++) {
            if (!xfer_region_view(ctx->daemon->xfer, &ctx->rdma, t, i, &r))
                continue;
            TEXT(out,
                 OBJECT(NULL, STR("tenant", config_tenant_word(ctx->config, t)), U64("region", i),
                        STR("gpu", r.gpu), STR("pci", r.pci), STR("device", r.device),
                        number("rail", r.rail), STR("reason", r.reason)));
        }
    TEXT(out, CLOSE_ARRAY);
}

/* What queue pairs are made with. */
static void tuning(const struct xfer_rdma_tuning *t, struct text_out *out)
{
    TEXT(out, OBJECT("tuning", number("gid_index", t->gid_index), number("mtu", t->mtu),
                     U64("pkey_index", t->pkey_index), U64("traffic_class", t->traffic_class),
                     U64("service_level", t->service_level), U64("timeout", t->timeout),
                     U64("retries", t->retries), U64("rnr_retries", t->rnr_retries),
                     U64("rnr_timer", t->rnr_timer)));
}

static void nodes(struct text_out *out, const char *key, uint64_t mask)
{
    TEXT(out, OPEN_ARRAY(key));
    for (uint64_t i = 0; i < 64; i++)
        if (mask >> i & 1)
            TEXT(out, U64(NULL, i));
    TEXT(out, CLOSE_ARRAY);
}

/* Memory, workers and devices belong on one NUMA node. An unknown node gives no warning. */
static void numa(const struct xfer_rdma_view *v, struct text_out *out)
{
    char text[200];

    TEXT(out, OPEN_OBJECT("numa"));
    nodes(out, "memory", v->memory_nodes);
    nodes(out, "workers", v->cpu_nodes);
    TEXT(out, OPEN_ARRAY("warnings"));
    for (uint32_t i = 0; i < v->nrails; i++) {
        int node = v->rail[i].node;

        if (node >= 0 && v->memory_nodes & ~((uint64_t)1 << node)) {
            snprintf(text, sizeof text,
                     "%s is on node %d and tenants' memory on another: start ternd under numactl "
                     "--membind=%d, or choose another device",
                     v->rail[i].device, node, node);
            TEXT(out, STR(NULL, text));
        }
        if (node >= 0 && v->cpu_nodes & ~((uint64_t)1 << node)) {
            snprintf(text, sizeof text,
                     "%s is on node %d and workers may run on another: start ternd under numactl "
                     "--cpunodebind=%d",
                     v->rail[i].device, node, node);
            TEXT(out, STR(NULL, text));
        }
    }
    TEXT(out, CLOSE_ARRAY, CLOSE_OBJECT);
}

/* Null: there was none. */
static void self_test(const struct xfer_self_test *test, uint64_t now_ns, struct text_out *out)
{
    if (!test || test->result == XFER_SELF_TEST_NONE) {
        TEXT(out, STR("self_test", NULL));
        return;
    }
    TEXT(out, OBJECT("self_test", STR("result", xfer_self_test_word[test->result]),
                     U64("bytes", test->bytes), U64("us", test->ns / 1000),
                     U64("age_ms", (now_ns - test->at_ns) / 1000000), STR("reason", test->why)));
}

/* Each region of memory of GPUs, and a tenant's of the host together, beside each NIC in use. */
static void memory(const struct admin_ctx *ctx, struct text_out *out)
{
    const struct xfer *xfer = ctx->daemon->xfer;
    struct xfer_registration_view v;

    TEXT(out, OPEN_ARRAY("memory"));
    for (uint32_t i = 0; xfer && xfer_registration_view(xfer, i, &v); i++) {
        TEXT(out, OPEN_OBJECT(NULL), STR("tenant", admin_tenant_name(ctx, v.tenant)),
             U64("region", v.region), U64("regions", v.regions),
             STR("kind", v.gpu ? "gpu" : "host"), STR("gpu", v.gpu), STR("device", v.device),
             STR("registered", xfer_registered_word[v.how]),
             STR("reason", v.device ? v.why : ctx->rdma.why), U64("ring_bytes", v.ring_bytes),
             STR("no_ring", v.no_ring));
        self_test(v.test, ctx->now_ns, out);
        TEXT(out, CLOSE_OBJECT);
    }
    TEXT(out, CLOSE_ARRAY);
}

/* The other ones, and whether copies between the two are the GPUs' own. */
static void peers(const struct admin_ctx *ctx, uint32_t device, struct text_out *out)
{
    struct mem_device_view other;

    TEXT(out, OPEN_ARRAY("peers"));
    for (uint32_t i = 0; mem_device_view(ctx->daemon->mem, i, &other); i++) {
        const char *why = i == device ? NULL : mem_no_peers(ctx->daemon->mem, device, i);

        if (i == device)
            continue;
        TEXT(out, OBJECT(NULL, STR("gpu", other.uuid), BOOL("peer_access", why == NULL),
                         STR("reason", why)));
    }
    TEXT(out, CLOSE_ARRAY);
}

static void gpus(const struct admin_ctx *ctx, struct text_out *out)
{
    struct mem_device_view v;

    TEXT(out, OPEN_ARRAY("gpus"));
    for (uint32_t i = 0; mem_device_view(ctx->daemon->mem, i, &v); i++) {
        TEXT(out, OPEN_OBJECT(NULL), STR("gpu", v.uuid), STR("lost", v.lost),
             BOOL("kernels", v.no_kernels == NULL), STR("reason", v.no_kernels), node(v.facts.node),
             text_or_null(v.facts.mps >= 0, BOOL("mps", v.facts.mps > 0)),
             U64("pool_bytes", v.facts.pool_bytes), U64("kernel_bytes", v.facts.kernel_bytes));
        peers(ctx, i, out);
        TEXT(out, CLOSE_OBJECT);
    }
    TEXT(out, CLOSE_ARRAY);
}

enum tern_err admin_doctor(const struct admin_ctx *ctx, struct text_out *out)
{
    const struct xfer_rdma_view *v = &ctx->rdma;

    TEXT(out, OPEN_OBJECT(NULL), OPEN_OBJECT("rdma"), BOOL("built", v->built),
         BOOL("wanted", v->wanted), BOOL("in_use", v->open), STR("reason", v->why));
    devices(v, out);
    rails(v, out);
    regions(ctx, out);
    tuning(&ctx->config->rdma, out);
    numa(v, out);
    memory(ctx, out);
    TEXT(out, limit("memlock_bytes", v->memlock_bytes), BOOL("memlock_exempt", v->memlock_exempt),
         U64("memlock_needed_bytes", v->memlock_needed), U64("memlock_devices", v->memlock_devices),
         CLOSE_OBJECT);
    gpus(ctx, out);
    TEXT(out, CLOSE_OBJECT);
    return text_whole(out) ? TERN_OK : TERN_BUSY;
}
