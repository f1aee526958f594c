/* Registration of GPU memory with a NIC. Each region is registered in the first way that works: as
 * a dma-buf that the GPU's driver exports, with keys that use the region's address; or by its
 * address alone, which takes the kernel's module nvidia-peermem. Why earlier ways failed is kept
 * for operators. If one region of a tenant cannot be registered, none of its regions is registered:
 * that NIC then transfers none of the tenant's pages, and stays in use for other tenants. Called by
 * regions.c at start, on the owner thread, because it calls the GPU driver. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "seam/xfer/verbs/verbs.h"

static const struct way {
    enum xfer_registered how;
    bool exported, pcie;
} ways[] = {
    {.how = XFER_REGISTERED_DMABUF, .exported = true},
    {.how = XFER_REGISTERED_DMABUF_PCIE, .exported = true, .pcie = true},
    {.how = XFER_REGISTERED_PEERMEM},
};

static void region_drop(struct verbs_domain *d, uint32_t region)
{
    for (uint32_t i = 0; i < d->n; i++)
        if (d->mr[i].region == region && d->mr[i].mr) {
            (void)ibv_dereg_mr(d->mr[i].mr); /* fails if the device is lost */
            d->mr[i].mr = NULL;
        }
}

/* Registers a region's pieces. fd: its dma-buf, or -1. NICs read the region and never write it:
 * pushes go through the ring. Without a dma-buf the registration still requests local writes: with
 * read-only access, a kernel without nvidia-peermem may pin pages of zeros instead of the GPU's
 * memory. Returns 0, or the errno of the piece that failed. */
static int region_pieces(struct verbs_domain *d, uint32_t region, int fd)
{
    for (uint32_t i = 0; i < d->n; i++) {
        struct verbs_mr *mr = &d->mr[i];

        if (mr->region != region)
            continue;
        errno = 0;
        mr->mr = fd >= 0
                     ? ibv_reg_dmabuf_mr(d->pd, mr->offset, mr->bytes, (uintptr_t)mr->base, fd, 0)
                     : (ibv_reg_mr)(d->pd, mr->base, mr->bytes, IBV_ACCESS_LOCAL_WRITE);
        if (!mr->mr) {
            int error = errno ? errno : EIO;

            region_drop(d, region);
            return error;
        }
    }
    return 0;
}

/* Appends why a way failed. */
static void failed(char *why, const struct way *way, const char *call, const char *text)
{
    size_t n = strlen(why);

    snprintf(why + n, XFER_REGISTRATION_TEXT - n, "%s%s: %s%s", n ? "; " : "",
             xfer_registered_word[way->how], call, text);
}

static bool region_by(struct verbs *v, struct verbs_domain *d,
                      const struct xfer_registration_view *at, const struct way *way)
{
    char *why = d->region[at->region].why;
    const char *text;
    int fd = -1, error;

    if (way->exported && mem_region_export(v->xfer->config.mem, at->tenant, at->region, way->pcie,
                                           &fd, &text) != TERN_OK) {
        failed(why, way, "", text);
        return false;
    }
    error = region_pieces(d, at->region, fd);
    if (fd >= 0)
        close(fd); /* the registration keeps the dma-buf */
    if (error)
        failed(why, way, way->exported ? "ibv_reg_dmabuf_mr: " : "ibv_reg_mr: ", strerror(error));
    return error == 0;
}

static bool region_register(struct verbs *v, struct verbs_domain *d,
                            const struct xfer_registration_view *at)
{
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
        if (region_by(v, d, at, &ways[i])) {
            d->region[at->region].how = ways[i].how;
            return true;
        }
    return false;
}

static void domain_drop(struct verbs_domain *d, uint32_t regions, uint32_t failed_region)
{
    for (uint32_t r = 0; r < regions; r++) {
        region_drop(d, r);
        d->region[r].how = XFER_REGISTERED_NO;
        if (r != failed_region)
            snprintf(d->region[r].why, XFER_REGISTRATION_TEXT, "region %u cannot be registered",
                     failed_region);
    }
    d->n = 0;
}

void memory_register_far(struct verbs *v, struct verbs_rail *rail, uint32_t tenant)
{
    struct verbs_domain *d = &rail->domain[tenant];
    uint32_t regions = mem_region_count(v->xfer->config.mem, tenant), r = 0;

    while (r < regions &&
           region_register(v, d, &(struct xfer_registration_view){.tenant = tenant, .region = r}))
        r++;
    if (r < regions)
        domain_drop(d, regions, r);
    rail->view.registrations += d->n;
    for (uint32_t i = 0; i < d->n; i++)
        rail->view.registered_bytes += d->mr[i].bytes;
    if (v->xfer->config.rdma.pulls > 0)
        ring_open(v, rail, tenant);
}

void memory_unregister_far(struct verbs *v, struct verbs_rail *rail, uint32_t tenant,
                           uint32_t region, const char *why)
{
    struct verbs_domain *d = &rail->domain[tenant];
    char *text = d->region[region].why;
    size_t n = strlen(text);

    snprintf(text + n, XFER_REGISTRATION_TEXT - n, "%s%s: self-test: %s", n ? "; " : "",
             xfer_registered_word[d->region[region].how], why);
    rail->view.registrations -= d->n;
    for (uint32_t i = 0; i < d->n; i++)
        rail->view.registered_bytes -= d->mr[i].bytes;
    domain_drop(d, mem_region_count(v->xfer->config.mem, tenant), region);
}

bool memory_far_lost(const struct verbs *v, uint32_t pool)
{
    const struct mem *mem = v->xfer->config.mem;
    const uint32_t tenant = mem_place(mem, pool)->tenant;
    const uint8_t *region = mem_place(mem, pool)->region;
    bool lost = false;

    if (v->rail[0].domain[tenant].far)
        for (uint32_t r = 0; !lost && r < mem_place(mem, pool)->regions; r++)
            (void)mem_region_device(mem, tenant, region[r], NULL, &lost);
    return lost;
}

/* Fills in how the region ret->region of ret->tenant is registered with the rail. */
static void registration_row(const struct verbs_rail *rail, struct xfer_registration_view *ret)
{
    const struct verbs_domain *d = &rail->domain[ret->tenant];

    ret->device = rail->view.device;
    ret->how = d->far ? d->region[ret->region].how : XFER_REGISTERED_MEMORY;
    ret->why = d->far ? d->region[ret->region].why : "";
    ret->ring_bytes = d->ring.mr ? d->ring.bytes : 0;
    ret->no_ring = d->no_ring;
    ret->test = &d->region[ret->region].test;
}

bool xfer_registration_view(const struct xfer *xfer, uint32_t i, struct xfer_registration_view *ret)
{
    const struct mem *mem = xfer->config.mem;
    const struct verbs *v = verbs_of(xfer);
    const uint32_t rails = v ? v->nrails : 0, rows = rails > 0 ? rails : 1;

    for (uint32_t t = 0; t < xfer->config.rdma.tenants; t++) {
        uint32_t regions = mem_region_count(mem, t), alike;

        for (uint32_t r = 0; r < regions; r += alike, i -= rows) {
            const char *gpu = mem_region_device(mem, t, r, NULL, NULL);

            alike = gpu ? 1 : regions - r;
            if (i >= rows)
                continue;
            *ret = (struct xfer_registration_view){
                .tenant = t, .region = r, .regions = alike, .gpu = gpu, .why = ""};
            if (rails > 0)
                registration_row(&v->rail[i], ret);
            return true;
        }
    }
    return false;
}
