/* `ternd --plan`: what a host needs for a configuration, before there is such a host. The figures
 * are those of plan.h, which the start keeps to. One line a figure: its key, its value, and what to
 * do with it. */
#include <inttypes.h>

#include "seam/xfer/xfer.h"
#include "shell/config/plan.h"

#define KEY_WIDTH 18

static void figure(FILE *out, const char *key, uint64_t value, const char *remark)
{
    fprintf(out, "%-*s %16" PRIu64 "%s%s\n", KEY_WIDTH, key, value, *remark ? "  " : "", remark);
}

uint64_t plan_pinned(const struct config *config)
{
    struct xfer_config xfer;
    uint64_t bytes = 0;

    plan_xfer(config, &xfer);
    if (xfer.rdma.pulls == 0 && !xfer.rdma.serves)
        return 0;
    for (uint32_t i = 0; i < config->ntenants; i++)
        bytes += config->tenants[i].device_memory
                     ? xfer_ring_bytes(&xfer.rdma)
                     : config->tenants[i].memory_bytes * config->tenants[i].regions;
    return bytes * plan_rails(config) + (xfer.rdma.self_test ? XFER_SELF_TEST_SCRATCH : 0);
}

static void rails(const struct config *config, FILE *out)
{
    struct xfer_config xfer;
    bool wanted;

    plan_xfer(config, &xfer);
    wanted = xfer.rdma.pulls > 0 || xfer.rdma.serves;
    fprintf(out, "%-*s ", KEY_WIDTH, "rails");
    if (!wanted)
        fprintf(out, "%16s  no peer has transport auto or verbs: pages go over TCP", "none");
    else if (config->rdma_device.n == 0)
        fprintf(out,
                "%16" PRIu32 "  at the most, nearest to the memory: `ternctl doctor` names them",
                plan_rails(config));
    else
        fprintf(out, "%16" PRIu32 " ", config->rdma_device.n);
    for (uint32_t i = 0; wanted && i < config->rdma_device.n; i++)
        fprintf(out, " %s", config->rdma_device.name[i]);
    fputc('\n', out);
}

void plan_report(const struct config *config, FILE *out)
{
    uint64_t pinned = plan_pinned(config), bytes;
    struct plan_memory m;
    const char *name;

    plan_memory(config, &m);
    figure(out, "memory_bytes", m.total, "at the most; reserved and touched at start");
    for (size_t i = 0; plan_part(&m, i, &name, &bytes); i++) {
        fprintf(out, "  ");
        fprintf(out, "%-*s %16" PRIu64 "\n", KEY_WIDTH - 2, name, bytes);
    }
    figure(out, "device_bytes", plan_device_bytes(config),
           plan_device_bytes(config) > 0 ? "of memory of GPUs, those of tenants[].devices" : "");
    figure(out, "pinned_bytes", pinned,
           pinned > 0 ? "of these, on all rails: LimitMEMLOCK=, ulimit -l, or CAP_IPC_LOCK" : "");
    rails(config, out);
    figure(out, "descriptors", plan_descriptors(config),
           "at the most: LimitNOFILE= or ulimit -Hn, or more");
    figure(out, "in_flight", plan_descriptors_in_flight(config),
           "descriptors in unread answers at the most: LimitNOFILE= is to be no less");
    figure(out, "spill_bytes", config->spill_dir[0] ? config->spill_bytes : 0,
           config->spill_dir[0] ? "on the disk, beside spill.headroom that stays free" : "");
    figure(out, "machine_bytes", plan_machine_bytes(),
           m.total > plan_machine_bytes() ? "of memory has this machine: too little"
                                          : "of memory has this machine");
}
