/* Shared state of mem_cuda.c (start, exports and end), cuda_copy.c (copies), cuda_peers.c (which
 * devices reach each other), cuda_kernels.c (kernels, checksums) and cuda_pack.c (many short
 * copies). */
#ifndef SEAM_CUDA_STATE_H
#define SEAM_CUDA_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "kernels/driver.h"
#include "kernels/kernels.h"
#include "seam/mem/cuda/mem_cuda.h"

#define CUDA_WHY_BYTES 160

/* One copy, or launch, at a time. */
struct cuda_lane {
    CUstream stream;
    CUevent done[2]; /* after the last copy of each piece */
    uint8_t *pinned; /* two pieces */
    bool taken;
};

struct cuda_device {
    struct cuda *cuda;
    char uuid[DRIVER_UUID_BYTES];
    char pci[MEM_PCI_BYTES]; /* its address; "": the driver does not report it */
    CUdevice device;
    CUcontext context; /* the primary one, retained; NULL: not yet */
    pthread_mutex_t lock;
    pthread_cond_t put; /* a lane was returned, or the device is lost */
    struct cuda_lane lane[CUDA_LANES];
    bool kernels;                    /* it has the kernels below; set before pages lie on it */
    char no_kernels[CUDA_WHY_BYTES]; /* why not */
    CUmodule module;
    CUfunction function[KERNELS_KINDS];
    CUdeviceptr scratch; /* each lane has a part */
    struct mem_device_facts facts;
    _Atomic bool lost;
    char why[CUDA_WHY_BYTES]; /* written before `lost` */
};

/* Two devices, and whether each can access the other's memory. */
struct cuda_pair {
    bool given, open;         /* given: access in at least one direction; open: copies use it */
    char why[CUDA_WHY_BYTES]; /* why copies do not use it */
};

struct cuda {
    struct driver driver;
    int event_fd;
    uint32_t wait_ms;
    struct mem_far far;
    _Atomic uint64_t sums_by_kernels, sums_by_copies;
    _Atomic uint64_t rows_by_kernels, rows_by_copies;
    _Atomic uint64_t moved_within, moved_by_peer, moved_staged; /* bytes */
    uint32_t ndevices, nregions;
    struct cuda_device device[CUDA_DEVICES_MAX];
    struct cuda_region region[CUDA_REGIONS_MAX]; /* not changed after the start */
    /* By the lower and the higher number. These do not change after the start either. */
    struct cuda_pair pair[CUDA_DEVICES_MAX][CUDA_DEVICES_MAX];
};

/* The device of the address; NULL: none. */
static inline struct cuda_device *cuda_device_at(struct cuda *c, const uint8_t *at)
{
    for (uint32_t i = 0; i < c->nregions; i++)
        if (at >= c->region[i].base && at < c->region[i].base + c->region[i].bytes)
            return &c->device[c->region[i].device];
    return NULL;
}

/* cuda_peers.c */
static inline struct cuda_pair *cuda_pair_of(struct cuda *c, const struct cuda_device *a,
                                             const struct cuda_device *b)
{
    return a < b ? &c->pair[a - c->device][b - c->device] : &c->pair[b - c->device][a - c->device];
}
/* Returns true if an unfinished copy of the device or of a peer may still access its memory. */
bool cuda_may_be_touched(struct cuda *c, const struct cuda_device *d);

/* The copies of struct mem_far, from cuda_copy.c; mem_cuda.c adds the context and the kernels. */
extern const struct mem_far cuda_far_calls;
bool cuda_far_pack(void *ctx, const struct iovec *v, uint64_t bytes, uint8_t *packed, bool put);
bool cuda_far_sums(void *ctx, const struct mem_far_pages *pages, uint64_t *ret);

/* A lane's parts of the scratch: input of kernels (lists, tables), their work, checksums. */
enum { SCRATCH_TOLD, SCRATCH_WORK, SCRATCH_SUMS, SCRATCH_PARTS };

/* cuda_kernels.c */
/* The device's context is current. A device without kernels is still used, and no_kernels says why;
 * the failed call is returned only for a lost device. */
const char *cuda_kernels_open(struct cuda_device *d, CUresult *ret);
void cuda_kernels_close(struct cuda_device *d);
CUdeviceptr cuda_scratch(const struct cuda_device *d, const struct cuda_lane *l, uint32_t part);
/* In the lane's stream. The arguments must suit kernels_prepare. Returns false as cuda_did. */
bool cuda_launch(struct cuda_device *d, const struct cuda_lane *l, enum kernels_kind kind,
                 union kernels_args *args);

/* cuda_copy.c */
/* Makes the lanes; the device's context is current. Returns the call that failed, or NULL. */
const char *cuda_lanes_create(struct cuda_device *d, CUresult *ret);
void cuda_lanes_destroy(struct cuda_device *d);
/* Copies by one call, in a lane of d, which has access to both. *ret: the driver's result. Returns
 * false if it was refused, which the caller judges, or the device is lost. */
bool cuda_copy_direct(struct cuda_device *d, uint8_t *to, const uint8_t *from, uint64_t n,
                      CUresult *ret);
/* Waits for a lane, and makes its context current: each holder returns its lane within wait_ms for
 * a piece, or the device is lost. NULL: lost. To take a lane of each of two devices, take that of
 * the lower number first, so that no two wait for each other. */
struct cuda_lane *cuda_lane_take(struct cuda_device *d);
/* A lost device's lane is not reused: its pinned memory may still be written. */
void cuda_lane_put(struct cuda_device *d, struct cuda_lane *l);
/* Waits for all work before that event. Returns false if the device is lost, in `what`. */
bool cuda_lane_wait(struct cuda_device *d, const struct cuda_lane *l, uint32_t half,
                    const char *what);
/* Returns false if the call failed, which loses the device. */
bool cuda_did(struct cuda_device *d, const char *call, CUresult result);
/* From now on nothing is submitted to the device. */
void cuda_lose(struct cuda_device *d, const char *call, const char *error);

#endif
