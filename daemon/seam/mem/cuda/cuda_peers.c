/* Decides which devices access each other's memory directly (peer access), which is queried,
 * granted and tried at start, after all regions are made, on the owner thread. After a failure the
 * two use copies through memory of the host, and the grant is revoked; the start still succeeds.
 *
 * Rules of the driver. Memory of cuMemCreate is accessible only to the devices that cuMemSetAccess
 * named for its addresses, its own device included (cuda.h, at cuMemMap: it "does not make the
 * address accessible"); cuCtxEnablePeerAccess has no part in it. The device of the stream's context
 * executes cuMemcpyDtoDAsync, and needs that access to both ends: otherwise the call is refused
 * (seen in openucx/ucx, pull request 11265, between two devices of one process). It is not enough
 * that cuDeviceCanAccessPeer says yes: behind an IOMMU, or a PCIe switch with ACS, copies between
 * devices may arrive wrong, which a try shows. So far these rules were tested only with the
 * stand-in. */
#include <stdio.h>
#include <string.h>

#include "seam/mem/cuda/cuda_state.h"

#define TRY_BYTES  4096u /* no region is smaller */
#define TRY_FACTOR 167u  /* makes neighbouring bytes of the try differ */

static bool pair_closed(struct cuda_pair *p, const char *call, const char *error)
{
    snprintf(p->why, sizeof p->why, "%s: %s", call, error);
    return false;
}

static bool pair_did(const struct cuda *c, struct cuda_pair *p, const char *call, CUresult result)
{
    return result == CUDA_SUCCESS || pair_closed(p, call, driver_error_name(&c->driver, result));
}

/* Asks whether d can access the other's memory directly. */
static bool reaches(struct cuda *c, struct cuda_pair *p, const struct cuda_device *d,
                    const struct cuda_device *other)
{
    int can = 0;

    return pair_did(c, p, "cuDeviceCanAccessPeer",
                    c->driver.device_reaches(&can, d->device, other->device)) &&
           (can || pair_closed(p, "cuDeviceCanAccessPeer", "no"));
}

/* Sets d's access to all regions of the other device, which keeps its own access. A grant stops at
 * the first region that fails; a revocation continues to the last region. */
static CUresult access_set(struct cuda *c, const struct cuda_device *d,
                           const struct cuda_device *other, CUmemAccess_flags flags)
{
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = d->device}, .flags = flags};
    CUresult result = CUDA_SUCCESS, one;

    for (uint32_t i = 0; i < c->nregions; i++) {
        if (&c->device[c->region[i].device] != other)
            continue;
        if (result != CUDA_SUCCESS && flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
            break;
        one = c->driver.mem_access((CUdeviceptr)(uintptr_t)c->region[i].base, c->region[i].bytes,
                                   &access, 1);
        result = result == CUDA_SUCCESS ? one : result;
    }
    return result;
}

static bool access_give(struct cuda *c, struct cuda_pair *p, const struct cuda_device *d,
                        const struct cuda_device *other)
{
    return pair_did(c, p, "cuMemSetAccess",
                    access_set(c, d, other, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
}

/* Revokes the access of both devices of a closed pair. Returns false if the driver refused. */
static bool access_take(struct cuda *c, const struct cuda_device *a, const struct cuda_device *b)
{
    bool there = access_set(c, a, b, CU_MEM_ACCESS_FLAGS_PROT_NONE) == CUDA_SUCCESS;
    bool back = access_set(c, b, a, CU_MEM_ACCESS_FLAGS_PROT_NONE) == CUDA_SUCCESS;

    return there && back;
}

/* The device's first region. */
static uint8_t *region_of(const struct cuda *c, const struct cuda_device *d)
{
    uint32_t i = 0;

    while (&c->device[c->region[i].device] != d)
        i++;
    return c->region[i].base;
}

/* Copies bytes of the other's first region to the device's own, and zeroes both again. */
static bool tried(struct cuda *c, struct cuda_pair *p, struct cuda_device *d,
                  struct cuda_device *other)
{
    uint8_t *here = region_of(c, d), *there = region_of(c, other);
    uint8_t bytes[TRY_BYTES], came[TRY_BYTES] = {0};
    CUresult result = CUDA_SUCCESS;
    bool ok;

    for (uint32_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * TRY_FACTOR >> 3);
    ok = mem_far_put(&c->far, there, bytes, sizeof bytes) &&
         cuda_copy_direct(d, here, there, sizeof bytes, &result) &&
         mem_far_get(&c->far, came, here, sizeof came);
    ok = c->far.zero(c, here, sizeof bytes) && ok;
    ok = c->far.zero(c, there, sizeof bytes) && ok;
    if (result != CUDA_SUCCESS)
        return pair_did(c, p, "cuMemcpyDtoDAsync", result);
    if (!ok)
        return pair_closed(p, "a try", "a device was lost");
    return memcmp(bytes, came, sizeof bytes) == 0 ||
           pair_closed(
               p, "a try",
               "other bytes arrived than were sent: check the IOMMU, and ACS of PCIe switches");
}

static void pair_open(struct cuda *c, struct cuda_device *a, struct cuda_device *b,
                      const char *not_tried)
{
    struct cuda_pair *p = cuda_pair_of(c, a, b);

    if (not_tried) {
        (void)pair_closed(p, "not tried", not_tried);
        return;
    }
    if (!reaches(c, p, a, b) || !reaches(c, p, b, a))
        return;
    p->given = access_give(c, p, a, b) && access_give(c, p, b, a);
    p->open = p->given && tried(c, p, a, b) && tried(c, p, b, a);
    if (!p->open && !atomic_load(&a->lost) && !atomic_load(&b->lost)) /* no copy uses either */
        p->given = !access_take(c, a, b);
}

/* A try that loses a device could lose another, so it is the last. */
void cuda_peers_open(struct cuda *c, bool off)
{
    const char *not_tried = off ? "peer_access is false" : NULL;

    for (uint32_t a = 0; a < c->ndevices; a++)
        for (uint32_t b = a + 1; b < c->ndevices; b++) {
            pair_open(c, &c->device[a], &c->device[b], not_tried);
            if (!not_tried && (atomic_load(&c->device[a].lost) || atomic_load(&c->device[b].lost)))
                not_tried = "a try between other GPUs lost a GPU: start with peer_access: false";
        }
}

const char *cuda_no_peers(struct cuda *c, uint32_t device, uint32_t other)
{
    const struct cuda_pair *p = cuda_pair_of(c, &c->device[device], &c->device[other]);

    return p->open ? NULL : p->why;
}

bool cuda_may_be_touched(struct cuda *c, const struct cuda_device *d)
{
    for (uint32_t i = 0; i < c->ndevices; i++) {
        const struct cuda_device *by = &c->device[i];

        if (atomic_load(&by->lost) && (by == d || cuda_pair_of(c, by, d)->given))
            return true;
    }
    return false;
}
