/* Exports a region of a GPU's memory as a dma-buf, for NICs, which read it and never write it.
 * Called at start, on the owner thread. */
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

/* An error that the device does not recover from loses the device. */
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
