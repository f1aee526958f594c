/* `ternctl doctor`: the RDMA devices of this host, the device that each region of memory uses, and
 * what to do about unused devices; the GPUs with memory of the daemon, whether they run its
 * kernels, and their other properties. If RDMA is not wanted, the command shows what RDMA would
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

/* Null: no limit. Readers of JSON accept integers up to 63 bits. */
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

        TEXT(out, OBJECT(NULL, WORD(*r, device), node(r->node), NUM(*r, port), NUM(*r, gid_index),
                         NUM(*r, pkey), NUM(*r, mtu), BOOL("windows", r->memory_windows),
                         FLAG(*r, lost), NUM(*v, send_queue), NUM(*r, completion_queue),
                         NUM(*r, registered_bytes), NUM(*r, registrations), NUM(*r, bytes_asked),
                         limit("registration_bytes_max", r->max_mr_bytes)));
    }
    TEXT(out, CLOSE_ARRAY);
}

/* Writes null for UINT32_MAX: the port's value, or none. */
static struct text_field number(const char *key, uint32_t value)
{
    return text_or_null(value != UINT32_MAX, U64(key, value));
}

/* The device that each region's pages use, and why. */
static void regions(const struct admin_ctx *ctx, struct text_out *out)
{
    struct xfer_region_view r;

    static_assert(NONE == UINT32_MAX && XFER_BY_PORT == UINT32_MAX, "what `number` takes for none");
    TEXT(out, OPEN_ARRAY("regions"));
    for (uint32_t t = 0; ctx->daemon->xfer && t < ctx->config->ntenants; t++)
        for (uint32_t i = 0; i < ctx->config->tenants[t].regions; i++) {
            if (!xfer_region_view(ctx->daemon->xfer, &ctx->rdma, t, i, &r))
                continue;
            TEXT(out, OBJECT(NULL, STR("tenant", config_tenant_word(ctx->config, t)),
                             U64("region", i), WORD(r, gpu), WORD(r, pci), WORD(r, device),
                             number("rail", r.rail), WORD(r, reason)));
        }
    TEXT(out, CLOSE_ARRAY);
}

/* The attributes of queue pairs. */
static void tuning(const struct xfer_rdma_tuning *t, struct text_out *out)
{
    TEXT(out, OBJECT("tuning", number("gid_index", t->gid_index), number("mtu", t->mtu),
                     NUM(*t, pkey_index), NUM(*t, traffic_class), NUM(*t, service_level),
                     NUM(*t, timeout), NUM(*t, retries)));
}

static void nodes(struct text_out *out, const char *key, uint64_t mask)
{
    TEXT(out, OPEN_ARRAY(key));
    for (uint64_t i = 0; i < 64; i++)
        if (mask >> i & 1)
            TEXT(out, U64(NULL, i));
    TEXT(out, CLOSE_ARRAY);
}

/* Memory, workers and devices should be on one NUMA node. An unknown node gives no warning. */
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

/* Null: no self-test ran. */
static void self_test(const struct xfer_self_test *test, uint64_t now_ns, struct text_out *out)
{
    if (!test || test->result == XFER_SELF_TEST_NONE) {
        TEXT(out, STR("self_test", NULL));
        return;
    }
    TEXT(out, OBJECT("self_test", STR("result", xfer_self_test_word[test->result]),
                     NUM(*test, bytes), U64("us", test->ns / 1000),
                     U64("age_ms", (now_ns - test->at_ns) / 1000000), STR("reason", test->why)));
}

/* Each region on a GPU, and all host regions of a tenant together, with each NIC in use. */
static void memory(const struct admin_ctx *ctx, struct text_out *out)
{
    const struct xfer *xfer = ctx->daemon->xfer;
    struct xfer_registration_view v;

    TEXT(out, OPEN_ARRAY("memory"));
    for (uint32_t i = 0; xfer && xfer_registration_view(xfer, i, &v); i++) {
        TEXT(out, OPEN_OBJECT(NULL), STR("tenant", admin_tenant_name(ctx, v.tenant)),
             NUM(v, region), NUM(v, regions), STR("kind", v.gpu ? "gpu" : "host"), WORD(v, gpu),
             WORD(v, device), STR("registered", xfer_registered_word[v.how]),
             STR("reason", v.device ? v.why : ctx->rdma.why), NUM(v, ring_bytes), WORD(v, no_ring));
        self_test(v.test, ctx->now_ns, out);
        TEXT(out, CLOSE_OBJECT);
    }
    TEXT(out, CLOSE_ARRAY);
}

/* The other GPUs, and whether each copies directly to and from `device`. */
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
        TEXT(out, OPEN_OBJECT(NULL), STR("gpu", v.uuid), WORD(v, lost),
             BOOL("kernels", v.no_kernels == NULL), STR("reason", v.no_kernels), node(v.facts.node),
             text_or_null(v.facts.mps >= 0, BOOL("mps", v.facts.mps > 0)), NUM(v.facts, pool_bytes),
             NUM(v.facts, kernel_bytes));
        peers(ctx, i, out);
        TEXT(out, CLOSE_OBJECT);
    }
    TEXT(out, CLOSE_ARRAY);
}

enum tern_err admin_doctor(const struct admin_ctx *ctx, struct text_out *out)
{
    const struct xfer_rdma_view *v = &ctx->rdma;

    TEXT(out, OPEN_OBJECT(NULL), OPEN_OBJECT("rdma"), FLAG(*v, built), FLAG(*v, wanted),
         BOOL("in_use", v->open), STR("reason", v->why));
    devices(v, out);
    rails(v, out);
    regions(ctx, out);
    tuning(&ctx->config->rdma, out);
    numa(v, out);
    memory(ctx, out);
    TEXT(out, limit("memlock_bytes", v->memlock_bytes), FLAG(*v, memlock_exempt),
         U64("memlock_needed_bytes", v->memlock_needed), NUM(*v, memlock_devices), CLOSE_OBJECT);
    gpus(ctx, out);
    TEXT(out, CLOSE_OBJECT);
    return text_whole(out) ? TERN_OK : TERN_BUSY;
}
