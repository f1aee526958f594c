#include "gpu/gpu.h"

#include <stdio.h>
#include <stdlib.h>

void gpu_must(const struct gpu *g, CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "gpu: %s failed: %s (%d)%s\n", what, driver_error_name(&g->driver, result),
            (int)result, driver_is_lost(result) ? ": the device is lost to this process" : "");
    exit(2);
}

static uint64_t gpu_take(void *ctx, size_t bytes)
{
    const struct gpu *g = ctx;
    CUdeviceptr at;

    gpu_must(g, g->driver.mem_alloc(&at, bytes), "cuMemAlloc");
    return at;
}

static void gpu_give(void *ctx, uint64_t at)
{
    const struct gpu *g = ctx;

    gpu_must(g, g->driver.mem_free(at), "cuMemFree");
}

/* Uses the default stream; the kernels' stream waits for it by itself. */
static void gpu_put(void *ctx, uint64_t to, const void *from, size_t n)
{
    const struct gpu *g = ctx;

    gpu_must(g, g->driver.copy_to_device(to, from, n), "cuMemcpyHtoD");
}

static void gpu_get(void *ctx, void *to, uint64_t from, size_t n)
{
    const struct gpu *g = ctx;

    gpu_must(g, g->driver.stream_wait(g->stream), "a kernel");
    gpu_must(g, g->driver.copy_to_host(to, from, n), "cuMemcpyDtoH");
}

static void gpu_launch(void *ctx, enum kernels_kind kind, const struct kernels_launch *l,
                       const union kernels_args *args)
{
    const struct gpu *g = ctx;
    union kernels_args copy = *args;
    void *params[] = {&copy};

    gpu_must(g,
             g->driver.launch(g->function[kind], l->grid, 1, 1, l->block, 1, 1, 0, g->stream,
                              params, NULL),
             l->function);
}

static void module_open(struct gpu *g, const void *module)
{
    gpu_must(g, g->driver.module_load(&g->module, module), "cuModuleLoadData");
    for (int k = 0; k < KERNELS_KINDS; k++) {
        const char *name = kernels_function((enum kernels_kind)k);

        gpu_must(g, g->driver.module_function(&g->function[k], g->module, name), name);
    }
}

static void device_open(struct gpu *g)
{
    const struct driver *d = &g->driver;

    gpu_must(g, d->device_get(&g->device, 0), "cuDeviceGet");
    gpu_must(g, d->device_name(g->name, sizeof g->name, g->device), "cuDeviceGetName");
    gpu_must(g, d->driver_version(&g->driver_version), "cuDriverGetVersion");
    gpu_must(
        g, d->device_attribute(&g->major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, g->device),
        "cuDeviceGetAttribute");
    gpu_must(
        g, d->device_attribute(&g->minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, g->device),
        "cuDeviceGetAttribute");
    gpu_must(
        g, d->device_attribute(&g->processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, g->device),
        "cuDeviceGetAttribute");
    gpu_must(g, d->context_retain(&g->context, g->device), "cuDevicePrimaryCtxRetain");
    gpu_must(g, d->context_set(g->context), "cuCtxSetCurrent");
    gpu_must(g, d->stream_create(&g->stream, 0), "cuStreamCreate");
}

bool gpu_open(struct gpu *ret, struct driver_why *ret_why)
{
    size_t bytes;
    const void *module = kernels_fatbin(&bytes);
    int devices = 0;
    CUresult result;

    *ret = (struct gpu){.ops = {.ctx = ret,
                                .take = gpu_take,
                                .give = gpu_give,
                                .put = gpu_put,
                                .get = gpu_get,
                                .launch = gpu_launch}};
    if (driver_open(&ret->driver, DRIVER_LIBRARY, ret_why) != DRIVER_OK)
        return false;
    result = ret->driver.init(0);
    if (result == CUDA_SUCCESS)
        result = ret->driver.device_count(&devices);
    if (result != CUDA_SUCCESS || devices == 0 || !module) {
        snprintf(ret_why->text, sizeof ret_why->text, "%s",
                 module ? "the driver finds no GPU: look at nvidia-smi"
                        : "this build has no kernels for a GPU: build it where nvcc is");
        driver_close(&ret->driver);
        return false;
    }
    device_open(ret);
    module_open(ret, module);
    return true;
}

void gpu_close(struct gpu *g)
{
    gpu_must(g, g->driver.stream_destroy(g->stream), "cuStreamDestroy");
    gpu_must(g, g->driver.module_unload(g->module), "cuModuleUnload");
    gpu_must(g, g->driver.context_release(g->device), "cuDevicePrimaryCtxRelease");
    driver_close(&g->driver);
}
