/* What NICs need of a GPU's memory: a region as a dma-buf, and that what they have written is seen
 * by copies. Who writes last is the NIC's driver to say; a GPU may take those writes in later, and
 * then has to be told to (cuFlushGPUDirectRDMAWrites). Regions are asked about at start, on the
 * owner thread; cuda_nic_wrote is for the threads that copy. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>

#include "base/err.h"
#include "seam/mem/cuda/cuda_state.h"
#include "seam/own_threads.h"

static char why_text[CUDA_WHY_BYTES];

static enum tern_err refused(const char **ret_why)
{
    *ret_why = why_text;
    return TERN_UNSUPPORTED;
}

/* Of an error that the device does not recover from it is lost. */
static enum tern_err call_failed(struct cuda_device *d, const char *call, CUresult result,
                                 const char **ret_why)
{
    snprintf(why_text, sizeof why_text, "%s: %s", call,
             driver_error_name(&d->cuda->driver, result));
    if (driver_is_lost(result))
        cuda_lose(d, call, driver_error_name(&d->cuda->driver, result));
    return refused(ret_why);
}

static enum tern_err attribute(struct cuda_device *d, CUdevice_attribute which, int *ret,
                               const char **ret_why)
{
    CUresult result = d->cuda->driver.device_attribute(ret, which, d->device);

    return result == CUDA_SUCCESS ? TERN_OK
                                  : call_failed(d, "cuDeviceGetAttribute", result, ret_why);
}

/* Writes have to be ordered for whoever reads: the region's own GPU, and others that reach it. */
enum tern_err cuda_region_takes_nic(struct cuda *c, const struct cuda_region *r,
                                    const char **ret_why)
{
    struct cuda_device *d = &c->device[r->device];
    int ordered = 0, flushes = 0;

    TRY(attribute(d, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING, &ordered, ret_why));
    TRY(attribute(d, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS, &flushes, ret_why));
    d->flushes = ordered < (d->reached ? (int)CU_GPU_DIRECT_RDMA_WRITES_ORDERING_ALL_DEVICES
                                       : (int)CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER);
    if (!d->flushes || (flushes & CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST))
        return TERN_OK;
    snprintf(why_text, sizeof why_text,
             "the GPU neither orders the writes of NICs nor lets the host flush them");
    return refused(ret_why);
}

static enum tern_err export_range(struct cuda_device *d, const struct cuda_region *r, bool pcie,
                                  int *ret_fd, const char **ret_why)
{
    const struct driver *api = &d->cuda->driver;
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)r->base;
    CUresult result;
    int able = 0, fd = -1;

    TRY(attribute(d, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, &able, ret_why));
    if (!able) {
        snprintf(why_text, sizeof why_text,
                 "the GPU's driver exports none: NVIDIA's open kernel modules do");
        return refused(ret_why);
    }
    result = api->context_set(d->context);
    if (result != CUDA_SUCCESS)
        return call_failed(d, "cuCtxSetCurrent", result, ret_why);
    result = api->mem_range_handle(&fd, at, r->bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                                   pcie ? CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE : 0);
    if (result != CUDA_SUCCESS)
        return call_failed(d, "cuMemGetHandleForAddressRange", result, ret_why);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    *ret_fd = fd;
    return TERN_OK;
}

enum tern_err cuda_region_export(struct cuda *c, const struct cuda_region *r, bool pcie,
                                 int *ret_fd, const char **ret_why)
{
    sigset_t before;
    enum tern_err err;

    own_threads_mask(&before); /* as in cuda_region_create */
    err = export_range(&c->device[r->device], r, pcie, ret_fd, ret_why);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return err;
}

bool cuda_nic_wrote(void *ctx, const void *at)
{
    struct cuda_device *d = cuda_device_at(ctx, at);
    const struct driver *api = &d->cuda->driver;
    const char *call = "cuCtxSetCurrent";
    CUresult result;

    if (atomic_load(&d->lost))
        return false;
    if (!d->flushes)
        return true;
    result = api->context_set(d->context);
    if (result == CUDA_SUCCESS) {
        call = "cuFlushGPUDirectRDMAWrites";
        result = api->flush_writes(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                   d->reached ? CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES
                                              : CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
    }
    if (result != CUDA_SUCCESS)
        cuda_lose(d, call, driver_error_name(&d->cuda->driver, result));
    return result == CUDA_SUCCESS;
}
