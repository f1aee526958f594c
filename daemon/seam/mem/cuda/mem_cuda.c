/* See mem_cuda.h. The driver's calls of a start, and those that undo them at the end. A region is
 * made in stages, so that its end undoes exactly what was done. Nothing is undone for a lost
 * device, or for memory that a lost device can access, since a copy may still use it. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "seam/mem/cuda/cuda_state.h"
#include "seam/mem/numa.h"

#define MIB_SHIFT 20

/* Used only at start, by one thread. The longest text lists the devices of the host. */
static char why_text[DRIVER_SEEN_BYTES + 256];

static enum tern_err refused(const char **ret_why)
{
    *ret_why = why_text;
    return TERN_UNSUPPORTED;
}

/* Reports a driver's error, and what to do. Too little memory is the configuration's: INVALID. */
static enum tern_err called(const struct cuda *c, const char *who, const char *call,
                            CUresult result, const char **ret_why)
{
    const char *hint = "see nvidia-smi and the kernel's log";

    if (result == CUDA_SUCCESS)
        return TERN_OK;
    if (driver_is_lost(result))
        hint = "the device has failed: reset it, or remove it from `devices`";
    else if (result == CUDA_ERROR_OUT_OF_MEMORY)
        hint = "lower tenants[].memory, or stop other programs that use that device";
    else if (result == CUDA_ERROR_NO_DEVICE)
        hint = "the driver shows no GPU to this process: check nvidia-smi and "
               "CUDA_VISIBLE_DEVICES, and give the container or the service its /dev/nvidia*";
    snprintf(why_text, sizeof why_text, "%s: %s: %s: %s", who, call,
             driver_error_name(&c->driver, result), hint);
    *ret_why = why_text;
    return result == CUDA_ERROR_OUT_OF_MEMORY ? TERN_INVALID : TERN_INTERNAL;
}

uint64_t cuda_staging_bytes(uint32_t devices)
{
    return (uint64_t)devices * CUDA_LANES * 2 * CUDA_PIECE_BYTES;
}

enum tern_err cuda_create(const char *library, int event_fd, uint32_t wait_ms, struct cuda **ret,
                          const char **ret_why)
{
    struct cuda *c = calloc(1, sizeof *c);
    struct driver_why why;
    enum tern_err err;

    if (!c) {
        *ret_why = "no memory for the tables of devices";
        return TERN_INTERNAL;
    }
    c->event_fd = event_fd;
    c->wait_ms = wait_ms;
    c->far = cuda_far_calls;
    c->far.ctx = c;
    c->far.pack = cuda_far_pack;
    c->far.sums = cuda_far_sums;
    if (driver_open(&c->driver, library, &why) != DRIVER_OK) {
        snprintf(why_text, sizeof why_text,
                 "a tenant's memory is on devices (device_memory): %s; or leave device_memory out",
                 why.text);
        free(c);
        return refused(ret_why);
    }
    err = called(c, library, "cuInit", c->driver.init(0), ret_why);
    if (err != TERN_OK) {
        driver_close(&c->driver);
        free(c);
        return err;
    }
    *ret = c;
    return TERN_OK;
}

static void device_close(struct cuda_device *d)
{
    const struct driver *api = &d->cuda->driver;

    if (d->context && !atomic_load(&d->lost)) {
        api->context_set(d->context);
        cuda_kernels_close(d);
        cuda_lanes_destroy(d);
        api->context_set(NULL);
        api->context_release(d->device);
    }
    pthread_cond_destroy(&d->put);
    pthread_mutex_destroy(&d->lock);
}

enum { STAGE_NONE, STAGE_MADE, STAGE_RESERVED, STAGE_MAPPED };

static void region_close(struct cuda *c, const struct cuda_region *r)
{
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)r->base;
    uint32_t stage = cuda_may_be_touched(c, &c->device[r->device]) ? STAGE_NONE : r->stage;

    if (r->fd >= 0)
        close(r->fd);
    if (stage >= STAGE_MAPPED)
        c->driver.mem_unmap(at, r->bytes);
    if (stage >= STAGE_RESERVED)
        c->driver.address_free(at, r->bytes);
    if (stage >= STAGE_MADE)
        c->driver.mem_release(r->handle);
}

void cuda_destroy(struct cuda *c)
{
    if (!c)
        return;
    for (uint32_t i = 0; i < c->nregions; i++)
        region_close(c, &c->region[i]);
    for (uint32_t i = 0; i < c->ndevices; i++)
        device_close(&c->device[i]);
    driver_close(&c->driver);
    free(c);
}

/* The attributes that a device must have. */
static const struct {
    CUdevice_attribute attribute;
    const char *what;
} needs[] = {
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, "virtual memory management"},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
     "memory that other processes can map by a file descriptor"},
};

static enum tern_err device_suits(const struct cuda_device *d, const char **ret_why)
{
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
        int value = 0;

        TRY(called(d->cuda, d->uuid, "cuDeviceGetAttribute",
                   d->cuda->driver.device_attribute(&value, needs[i].attribute, d->device),
                   ret_why));
        if (value)
            continue;
        snprintf(why_text, sizeof why_text,
                 "%s has no %s: use another device, or leave device_memory out", d->uuid,
                 needs[i].what);
        return refused(ret_why);
    }
    return TERN_OK;
}

static enum tern_err device_start(struct cuda_device *d, const char **ret_why)
{
    const struct driver *api = &d->cuda->driver;
    const char *call = "cuCtxSetCurrent";
    CUcontext context;
    CUresult result;

    TRY(called(d->cuda, d->uuid, "cuDevicePrimaryCtxRetain",
               api->context_retain(&context, d->device), ret_why));
    d->context = context;
    result = api->context_set(context);
    if (result == CUDA_SUCCESS)
        call = cuda_lanes_create(d, &result);
    return called(d->cuda, d->uuid, call, result, ret_why);
}

/* Facts for reports alone. Whether contexts go through MPS is settled when they are made; a driver
 * without that attribute refuses the query. */
static void facts_ask(struct cuda_device *d)
{
    const struct driver *api = &d->cuda->driver;
    int mps;

    if (api->device_pci(d->pci, sizeof d->pci, d->device) != CUDA_SUCCESS)
        d->pci[0] = '\0'; /* still usable, but no NIC is nearest to it */
    d->facts.node = numa_of_pci(NUMA_SYS, d->pci);
    d->facts.mps = -1;
    if (api->device_attribute(&mps, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, d->device) == CUDA_SUCCESS)
        d->facts.mps = mps != 0;
}

/* Finds and opens the device of the UUID. */
static enum tern_err device_of(struct cuda *c, const char *uuid, struct cuda_device **ret,
                               const char **ret_why)
{
    struct cuda_device *d = &c->device[c->ndevices];
    char seen[DRIVER_SEEN_BYTES];
    CUresult result;

    for (uint32_t i = 0; i < c->ndevices; i++)
        if (strcmp(c->device[i].uuid, uuid) == 0) {
            *ret = &c->device[i];
            return TERN_OK;
        }
    if (c->ndevices == CUDA_DEVICES_MAX || strlen(uuid) >= sizeof d->uuid) {
        snprintf(why_text, sizeof why_text,
                 "%.64s is one device too many, or not a UUID as `nvidia-smi -L` shows it", uuid);
        return refused(ret_why);
    }
    result = driver_device_of(&c->driver, uuid, &d->device, seen);
    if (result == CUDA_ERROR_NOT_FOUND) {
        snprintf(why_text, sizeof why_text,
                 "there is no device %s here; the driver shows: %s. Correct `devices`, or "
                 "CUDA_VISIBLE_DEVICES",
                 uuid, seen);
        return refused(ret_why);
    }
    TRY(called(c, uuid, "search for the device", result, ret_why));
    d->cuda = c;
    facts_ask(d);
    snprintf(d->uuid, sizeof d->uuid, "%s", uuid);
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->put, NULL);
    c->ndevices++;
    TRY(device_suits(d, ret_why));
    *ret = d;
    return device_start(d, ret_why);
}

static CUmemAllocationProp prop_of(const struct cuda_device *d)
{
    CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = d->device},
    };
    int direct = 0;

    /* For registration with NICs. If the driver does not answer, the memory is still usable. */
    if (d->cuda->driver.device_attribute(
            &direct, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, d->device) ==
            CUDA_SUCCESS &&
        direct)
        prop.allocFlags.gpuDirectRDMACapable = 1;
    return prop;
}

/* If memory was too little, adds to the text how much the device has. Another context may become
 * current. */
static enum tern_err create_failed(const struct cuda_device *d, const struct cuda_region *r,
                                   CUresult result, const char **ret_why)
{
    size_t has = 0, total = 0;
    enum tern_err err = called(d->cuda, d->uuid, "cuMemCreate", result, ret_why);
    size_t n = strlen(why_text);

    if (result == CUDA_ERROR_OUT_OF_MEMORY &&
        d->cuda->driver.context_set(d->context) == CUDA_SUCCESS &&
        d->cuda->driver.mem_info(&has, &total) == CUDA_SUCCESS)
        snprintf(why_text + n, sizeof why_text - n,
                 " (%llu MiB were requested, %zu of %zu MiB are free)",
                 (unsigned long long)(r->bytes >> MIB_SHIFT), has >> MIB_SHIFT, total >> MIB_SHIFT);
    return err;
}

/* Creates memory, reserves addresses, maps and grants access; *r records each stage. */
static enum tern_err region_map(struct cuda_device *d, struct cuda_region *r, const char **ret_why)
{
    const struct driver *api = &d->cuda->driver;
    CUmemAllocationProp prop = prop_of(d);
    CUmemAccessDesc access = {.location = prop.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    size_t granule;
    CUresult result;

    TRY(called(d->cuda, d->uuid, "cuMemGetAllocationGranularity",
               api->mem_granularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
               ret_why));
    r->bytes = (r->bytes + granule - 1) / granule * granule;
    result = api->mem_create(&handle, r->bytes, &prop, 0);
    if (result != CUDA_SUCCESS)
        return create_failed(d, r, result, ret_why);
    r->handle = handle;
    r->stage = STAGE_MADE;
    TRY(called(d->cuda, d->uuid, "cuMemAddressReserve",
               api->address_reserve(&at, r->bytes, granule, 0, 0), ret_why));
    r->base = (uint8_t *)(uintptr_t)at;
    r->stage = STAGE_RESERVED;
    TRY(called(d->cuda, d->uuid, "cuMemMap", api->mem_map(at, r->bytes, 0, handle, 0), ret_why));
    r->stage = STAGE_MAPPED;
    return called(d->cuda, d->uuid, "cuMemSetAccess", api->mem_access(at, r->bytes, &access, 1),
                  ret_why);
}

enum tern_err cuda_region_create(struct cuda *c, const char *uuid, uint64_t bytes,
                                 const struct cuda_region **ret, const char **ret_why)
{
    struct cuda_region *r = &c->region[c->nregions];
    struct cuda_device *d = NULL;
    const char *call;
    CUresult result;

    if (c->nregions == CUDA_REGIONS_MAX) {
        snprintf(why_text, sizeof why_text, "there are at most %u regions on devices",
                 CUDA_REGIONS_MAX);
        return refused(ret_why);
    }
    TRY(device_of(c, uuid, &d, ret_why));
    c->nregions++;
    *r = (struct cuda_region){.fd = -1, .bytes = bytes};
    r->device = (uint32_t)(d - c->device);
    TRY(region_map(d, r, ret_why));
    result = c->driver.mem_export(&r->fd, r->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result != CUDA_SUCCESS)
        r->fd = -1;
    TRY(called(c, uuid, "cuMemExportToShareableHandle", result, ret_why));
    fcntl(r->fd, F_SETFD, FD_CLOEXEC);
    if (!c->far.zero(c, r->base, r->bytes)) {
        snprintf(why_text, sizeof why_text, "%s: its memory could not be zeroed: %s", uuid, d->why);
        return refused(ret_why);
    }
    call = d->kernels || d->no_kernels[0] ? NULL : cuda_kernels_open(d, &result);
    if (call)
        return called(c, uuid, call, result, ret_why);
    d->facts.pool_bytes += r->bytes;
    *ret = r;
    return TERN_OK;
}

/* For an export. An error that the device does not recover from loses the device. */
static enum tern_err asked(struct cuda_device *d, const char *call, CUresult result,
                           const char **ret_why)
{
    if (result == CUDA_SUCCESS)
        return TERN_OK;
    snprintf(why_text, sizeof why_text, "%s: %s", call,
             driver_error_name(&d->cuda->driver, result));
    if (driver_is_lost(result))
        cuda_lose(d, call, driver_error_name(&d->cuda->driver, result));
    return refused(ret_why);
}

enum tern_err cuda_region_export(struct cuda *c, const struct cuda_region *r, bool pcie,
                                 int *ret_fd, const char **ret_why)
{
    struct cuda_device *d = &c->device[r->device];
    const struct driver *api = &c->driver;
    int able = 0, fd = -1;

    TRY(asked(d, "cuDeviceGetAttribute",
              api->device_attribute(&able, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, d->device),
              ret_why));
    if (!able) {
        snprintf(why_text, sizeof why_text,
                 "the GPU's driver exports no dma-buf: use NVIDIA's open kernel modules");
        return refused(ret_why);
    }
    TRY(asked(d, "cuCtxSetCurrent", api->context_set(d->context), ret_why));
    TRY(asked(d, "cuMemGetHandleForAddressRange",
              api->mem_range_handle(&fd, (CUdeviceptr)(uintptr_t)r->base, r->bytes,
                                    CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                                    pcie ? CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE : 0),
              ret_why));
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    *ret_fd = fd;
    return TERN_OK;
}

const struct mem_far *cuda_far(const struct cuda *c)
{
    return &c->far;
}

bool cuda_device_view(struct cuda *c, uint32_t device, struct mem_device_view *ret)
{
    struct cuda_device *d = &c->device[device];

    if (device >= c->ndevices)
        return false;
    *ret = (struct mem_device_view){.uuid = d->uuid,
                                    .pci = d->pci,
                                    .lost = atomic_load(&d->lost) ? d->why : NULL,
                                    .no_kernels = d->kernels ? NULL : d->no_kernels,
                                    .facts = d->facts};
    return true;
}

void cuda_work(const struct cuda *c, struct mem_far_work *ret)
{
    ret->sums_by_kernels = atomic_load(&c->sums_by_kernels);
    ret->sums_by_copies = atomic_load(&c->sums_by_copies);
    ret->rows_by_kernels = atomic_load(&c->rows_by_kernels);
    ret->rows_by_copies = atomic_load(&c->rows_by_copies);
    ret->moved_within = atomic_load(&c->moved_within);
    ret->moved_by_peer = atomic_load(&c->moved_by_peer);
    ret->moved_staged = atomic_load(&c->moved_staged);
}
