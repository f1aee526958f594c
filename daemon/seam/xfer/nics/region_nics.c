/* Which RDMA device the pages of each region use: the one that the configuration names for the
 * region, else the nearest (nic_choice.h). Host memory counts as one place; if rdma_device names
 * the rails, its pages use any of them. Called at start by verbs/device/rail.c. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "seam/mem/numa.h"
#include "seam/xfer/flow/transfers.h"
#include "seam/xfer/nics/nic_choice.h"

struct places {
    struct nic_place place[NIC_PLACES_MAX];
    uint32_t n;
};

/* Returns the index of a region's place, which regions at the same place share. */
static uint32_t place_of(struct places *p, const char *pci, uint64_t host_nodes)
{
    struct nic_place at = {.host = pci == NULL, .nodes = pci ? 0 : host_nodes};
    uint32_t i = 0;

    snprintf(at.pci, sizeof at.pci, "%s", pci ? pci : "");
    while (i < p->n && (p->place[i].host != at.host || strcmp(p->place[i].pci, at.pci) != 0))
        i++;
    if (i == p->n) {
        static_assert(MEM_GPUS_MAX + 1 <= NIC_PLACES_MAX, "all GPUs, and the host");
        check(p->n < NIC_PLACES_MAX);
        p->place[p->n++] = at;
    }
    return i;
}

static uint32_t found_number(const struct xfer_rdma_view *view, const char *name)
{
    for (uint32_t i = 0; i < view->ndevices; i++)
        if (strcmp(view->found[i].name, name) == 0)
            return i;
    return NONE;
}

static struct xfer_region region_of(const struct xfer *xfer, const struct xfer_rdma_view *view,
                                    const char *named, const struct nic_choice *choice, bool host)
{
    struct xfer_region r = {.answer = (uint8_t)choice->answer,
                            .path = (uint8_t)choice->path,
                            .named = named != NULL,
                            .binds = named || !host || xfer->config.rdma.ndevices == 0,
                            .device = NONE,
                            .rail = NONE};

    if (named)
        r.device = found_number(view, named);
    else if (r.binds && choice->answer == NIC_CHOSEN)
        r.device = choice->nic;
    return r;
}

bool regions_matter(const struct xfer *xfer)
{
    for (uint32_t t = 0; t < xfer->config.rdma.tenants; t++)
        if (xfer->config.rdma.region_device[t] || mem_region_pci(xfer->config.mem, t, 0))
            return true;
    return false;
}

uint32_t regions_choose(struct xfer *xfer, const struct xfer_rdma_view *view, uint32_t usable)
{
    const struct xfer_rdma_config *c = &xfer->config.rdma;
    const struct mem *mem = xfer->config.mem;
    struct nic_device device[XFER_DEVICES_MAX];
    struct nic_choice choice[NIC_PLACES_MAX];
    struct places places = {.n = 0};
    uint32_t got = 0;

    static_assert(XFER_DEVICES_MAX <= NIC_DEVICES_MAX, "all that are looked at");
    for (uint32_t i = 0; i < view->ndevices; i++)
        device[i] = (struct nic_device){view->found[i].name, usable >> i & 1};
    for (uint32_t t = 0; t < c->tenants; t++)
        for (uint32_t r = 0; r < mem_region_count(mem, t); r++)
            place_of(&places, mem_region_pci(mem, t, r), view->memory_nodes);
    nic_choose(&(struct nic_question){.sys = c->sys ? c->sys : NUMA_SYS,
                                      .device = device,
                                      .ndevices = view->ndevices,
                                      .place = places.place,
                                      .nplaces = places.n,
                                      .most = xfer_rails(c)},
               choice);
    for (uint32_t t = 0; t < c->tenants; t++)
        for (uint32_t r = 0; r < mem_region_count(mem, t); r++) {
            const char *pci = mem_region_pci(mem, t, r);
            struct xfer_region *region = &xfer->region[t][r];

            *region = region_of(xfer, view, c->region_device[t] ? c->region_device[t][r] : NULL,
                                &choice[place_of(&places, pci, view->memory_nodes)], pci == NULL);
            got |= region->device == NONE ? 0 : 1u << region->device;
        }
    return got;
}

static const char *reason_of(const struct xfer_region *r)
{
    if (r->unregistered)
        return "the tenant's memory is not registered with this device, so its pages use other "
               "devices or TCP";
    if (r->named)
        return r->device == NONE ? "tenants[].rdma_devices: no device has that name"
                                 : "named by tenants[].rdma_devices";
    if (!r->binds)
        return "host memory: its pages use any device that rdma_device names";
    return r->device == NONE ? nic_answer_words[r->answer] : nic_path_words[r->path];
}

bool xfer_region_view(const struct xfer *xfer, const struct xfer_rdma_view *rdma, uint32_t tenant,
                      uint32_t region, struct xfer_region_view *ret)
{
    const struct xfer_region *r = &xfer->region[tenant][region];
    const struct mem *mem = xfer->config.mem;

    if (!rdma->built)
        return false;
    *ret = (struct xfer_region_view){.gpu = mem_region_device(mem, tenant, region, NULL, NULL),
                                     .pci = mem_region_pci(mem, tenant, region),
                                     .reason = reason_of(r),
                                     .rail = r->rail};
    if (r->named)
        ret->device = xfer->config.rdma.region_device[tenant][region];
    else if (r->device != NONE)
        ret->device = rdma->found[r->device].name;
    return true;
}
