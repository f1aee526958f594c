/* Replaces libcuda.so.1: a device whose memory is the host's and whose kernels run on the CPU, so
 * that the programs for a GPU run without one. FAKE_CUDA_LACKS names a function that it claims to
 * find and returns NULL for, as the real library may; FAKE_CUDA_WRONG=1 makes every launch change a
 * byte of the last allocation. Timings on it mean nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/driver.h"
#include "unit/kernels/on_cpu_run.h"

#define FREE_BYTES (8u << 20)
#define EVENTS_MAX 8

CUresult cuGetProcAddress_v2(const char *name, void **ret, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *ret_found);

static struct timespec event_at[EVENTS_MAX];
static uint8_t *last;
static struct prng order = {{1, 2, 3, 4}};

static CUresult answer(void)
{
    return CUDA_SUCCESS;
}

static CUresult one(int *ret)
{
    *ret = 1;
    return CUDA_SUCCESS;
}

static CUresult first(int *ret, int ordinal)
{
    *ret = ordinal;
    return CUDA_SUCCESS;
}

static CUresult attribute(int *ret, CUdevice_attribute which, CUdevice device)
{
    (void)which;
    return one(ret) + (CUresult)device;
}

static CUresult device_name(char *ret, int bytes, CUdevice device)
{
    snprintf(ret, (size_t)bytes, "stand-in %d on a CPU", device);
    return CUDA_SUCCESS;
}

static CUresult mem_info(size_t *ret_free, size_t *ret_total)
{
    *ret_free = *ret_total = FREE_BYTES;
    return CUDA_SUCCESS;
}

static CUresult mem_alloc(CUdeviceptr *ret, size_t bytes)
{
    last = aligned_alloc(256, (bytes + 255) / 256 * 256);
    *ret = (CUdeviceptr)(uintptr_t)last;
    return last ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult mem_free(CUdeviceptr at)
{
    free((void *)(uintptr_t)at);
    return CUDA_SUCCESS;
}

static CUresult copy_in(CUdeviceptr to, const void *from, size_t bytes)
{
    memcpy((void *)(uintptr_t)to, from, bytes);
    return CUDA_SUCCESS;
}

static CUresult copy_out(void *to, CUdeviceptr from, size_t bytes)
{
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    return CUDA_SUCCESS;
}

static CUresult copy_async(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    (void)stream;
    return copy_out((void *)(uintptr_t)to, from, bytes);
}

/* A function's handle is its place in the table, from 1 on. */
static CUresult module_function(CUfunction *ret, CUmodule module, const char *name)
{
    static const char *const names[] = {
#define X(NAME, function, args) #function,
        KERNELS_TABLE(X)
#undef X
    };

    (void)module;
    for (uintptr_t k = 0; k < KERNELS_KINDS; k++)
        if (strcmp(names[k], name) == 0) {
            *ret = (CUfunction)(k + 1);
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_NOT_FOUND;
}

static CUresult launch(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                       CUstream stream, void **params, void **extra)
{
    const struct kernels_launch l = {.grid = grid_x, .block = block_x};

    (void)stream;
    if (grid_x == 0 || grid_y * grid_z * block_y * block_z != 1 || shared_bytes > 0 || extra)
        return CUDA_ERROR_NOT_SUPPORTED;
    on_cpu_launch((enum kernels_kind)((uintptr_t)function - 1), &l, params[0], &order);
    if (getenv("FAKE_CUDA_WRONG"))
        last[0]++;
    return CUDA_SUCCESS;
}

static CUresult event_create(CUevent *ret, unsigned flags)
{
    static uintptr_t made;

    (void)flags;
    *ret = (CUevent)(made++ % EVENTS_MAX + 1);
    return CUDA_SUCCESS;
}

static CUresult event_record(CUevent event, CUstream stream)
{
    (void)stream;
    clock_gettime(CLOCK_MONOTONIC, &event_at[(uintptr_t)event - 1]);
    return CUDA_SUCCESS;
}

static CUresult event_ms(float *ret, CUevent from, CUevent to)
{
    const struct timespec *a = &event_at[(uintptr_t)from - 1], *b = &event_at[(uintptr_t)to - 1];

    *ret = (float)((double)(b->tv_sec - a->tv_sec) * 1e3 + (double)(b->tv_nsec - a->tv_nsec) / 1e6);
    return CUDA_SUCCESS;
}

typedef void any_fn(void);

static const struct {
    const char *name;
    any_fn *function;
} own[] = {
    {"cuDriverGetVersion", (any_fn *)one},
    {"cuDeviceGetCount", (any_fn *)one},
    {"cuDeviceGet", (any_fn *)first},
    {"cuDeviceGetName", (any_fn *)device_name},
    {"cuDeviceGetAttribute", (any_fn *)attribute},
    {"cuMemGetInfo", (any_fn *)mem_info},
    {"cuMemAlloc", (any_fn *)mem_alloc},
    {"cuMemFree", (any_fn *)mem_free},
    {"cuMemcpyHtoD", (any_fn *)copy_in},
    {"cuMemcpyDtoH", (any_fn *)copy_out},
    {"cuMemcpyDtoDAsync", (any_fn *)copy_async},
    {"cuModuleGetFunction", (any_fn *)module_function},
    {"cuLaunchKernel", (any_fn *)launch},
    {"cuEventCreate", (any_fn *)event_create},
    {"cuEventRecord", (any_fn *)event_record},
    {"cuEventElapsedTime", (any_fn *)event_ms},
};

CUresult cuGetProcAddress_v2(const char *name, void **ret, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *ret_found)
{
    const char *lacks = getenv("FAKE_CUDA_LACKS");
    any_fn *function = (any_fn *)answer;

    (void)flags;
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (strcmp(own[i].name, name) == 0)
            function = own[i].function;
    if (lacks && strcmp(lacks, name) == 0)
        function = NULL;
    memcpy(ret, &function, sizeof function);
    *ret_found = CU_GET_PROC_ADDRESS_SUCCESS;
    return version > 12000 ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS; /* not in CUDA 12.0 */
}
