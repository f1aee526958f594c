/* Which devices reach each other's memory by themselves (peer access). It is asked, given and tried
 * at start, once all regions are there, on the owner thread; what fails then leaves the two to
 * copies through memory of the host, with what was given taken back, and is no reason to refuse the
 * start.
 *
 * Rules of the driver. Memory of cuMemCreate is reached by the devices alone that cuMemSetAccess
 * was told of for its addresses, its own among them (cuda.h, at cuMemMap: it "does not make the
 * address accessible"); cuCtxEnablePeerAccess has no part in it. A copy by cuMemcpyDtoDAsync is
 * made by the device of its stream's context, which needs that access to both ends: what was not
 * given it is refused (openucx/ucx, pull request 11265, met that between two devices of one
 * process). What cuDeviceCanAccessPeer says is not all: behind an IOMMU, or a PCIe switch with ACS,
 * copies between devices may arrive wrong, which a try shows. Only the stand-in has kept these
 * rules so far. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "seam/mem/cuda/cuda_state.h"
#include "seam/own_threads.h"

#define TRY_BYTES  4096u /* no region is smaller */
#define TRY_FACTOR 167u  /* neighbours differ in what is tried with */

static bool pair_closed(struct cuda_pair *p, const char *call, const char *error)
{
    snprintf(p->why, sizeof p->why, "%s: %s", call, error);
    return false;
}

static bool pair_did(const struct cuda *c, struct cuda_pair *p, const char *call, CUresult result)
{
    return result == CUDA_SUCCESS || pair_closed(p, call, driver_error_name(&c->driver, result));
}

/* By the device itself. */
static bool reaches(struct cuda *c, struct cuda_pair *p, const struct cuda_device *d,
                    const struct cuda_device *other)
{
    int can = 0;

    return pair_did(c, p, "cuDeviceCanAccessPeer",
                    c->driver.device_reaches(&can, d->device, other->device)) &&
           (can || pair_closed(p, "cuDeviceCanAccessPeer", "no"));
}

/* To all regions of the other one, which keeps its own access. What is given ends with the first
 * that fails; what is taken back, with the last. */
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

/* Takes access back from both devices of a closed pair. False: the driver refused. */
static bool access_take(struct cuda *c, const struct cuda_device *a, const struct cuda_device *b)
{
    bool there = access_set(c, a, b, CU_MEM_ACCESS_FLAGS_PROT_NONE) == CUDA_SUCCESS;
    bool back = access_set(c, b, a, CU_MEM_ACCESS_FLAGS_PROT_NONE) == CUDA_SUCCESS;

    return there && back;
}

/* Its first region. */
static uint8_t *region_of(const struct cuda *c, const struct cuda_device *d)
{
    uint32_t i = 0;

    while (&c->device[c->region[i].device] != d)
        i++;
    return (uint8_t *)(uintptr_t)c->region[i].base;
}

/* Copies bytes of the other one's first region to that of the device, and zeroes both again. */
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
    ok = cuda_zero(d, here, sizeof bytes) && ok;
    ok = cuda_zero(other, there, sizeof bytes) && ok;
    if (result != CUDA_SUCCESS)
        return pair_did(c, p, "cuMemcpyDtoDAsync", result);
    if (!ok)
        return pair_closed(p, "a try", "a device was lost");
    return memcmp(bytes, came, sizeof bytes) == 0 ||
           pair_closed(p, "a try",
                       "other bytes came: look at the IOMMU, and at ACS of PCIe switches");
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
    if (!p->open && !atomic_load(&a->lost) && !atomic_load(&b->lost)) /* no copy is at either */
        p->given = !access_take(c, a, b);
}

/* A try that costs a device may cost the next one, too: it is the last. */
void cuda_peers_open(struct cuda *c, bool off)
{
    const char *not_tried = off ? "peer_access is false" : NULL;
    sigset_t before;

    own_threads_mask(&before); /* as in cuda_region_create */
    for (uint32_t a = 0; a < c->ndevices; a++)
        for (uint32_t b = a + 1; b < c->ndevices; b++) {
            pair_open(c, &c->device[a], &c->device[b], not_tried);
            if (!not_tried && (atomic_load(&c->device[a].lost) || atomic_load(&c->device[b].lost)))
                not_tried = "a try between others has lost a GPU: start with peer_access: false";
        }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
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
