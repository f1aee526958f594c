/* Computes how much memory this process may lock, and how much registrations would lock: host
 * memory only, of tenants and of the rings of tenants on GPUs. Reported even if RDMA is not wanted
 * or not built in. Called at start. */
#include <sys/resource.h>

#include "seam/mem/numa.h"
#include "seam/xfer/flow/transfers.h"

#define CAP_IPC_LOCK_BIT 14

uint64_t xfer_ring_bytes(const struct xfer_rdma_config *c)
{
    return c->pulls > 0 ? XFER_RING_BYTES : 0;
}

void xfer_memlock(const struct xfer *xfer, struct xfer_rdma_view *view)
{
    const struct xfer_rdma_config *c = &xfer->config.rdma;
    uint32_t rails = view->rails_wanted ? view->rails_wanted : c->ndevices ? c->ndevices : 1;
    struct rlimit limit;
    uint64_t bytes, caps;

    view->memlock_bytes = UINT64_MAX;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        view->memlock_bytes = limit.rlim_cur;
    view->memlock_exempt = file_number("/proc/self/status", "CapEff:", 16, &caps) &&
                           (caps >> CAP_IPC_LOCK_BIT & 1) != 0;
    view->memlock_devices = rails;
    view->memlock_needed = c->self_test ? XFER_SELF_TEST_SCRATCH : 0; /* one rail at a time */
    for (uint32_t t = 0; t < c->tenants; t++) {
        if (mem_region_device(xfer->config.mem, t, 0, NULL, NULL))
            view->memlock_needed += xfer_ring_bytes(c) * rails;
        for (uint32_t r = 0; r < mem_region_count(xfer->config.mem, t); r++) {
            if (mem_region_device(xfer->config.mem, t, r, NULL, NULL))
                continue;
            mem_region_base(xfer->config.mem, t, r, &bytes);
            view->memlock_needed += bytes * rails;
        }
    }
}
