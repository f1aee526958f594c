/* Memory of the stand-in: see standin.h. The bytes lie in a memfd that the stand-in has mapped for
 * itself; a program gets addresses that it cannot access. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "standin/standin_state.h"

#define FD_NAME "standin-gpu-"

static struct memory memories[HANDLES_MAX];
static struct range ranges[RANGES_MAX];
static struct {
    uint8_t *at;
    size_t bytes;
} pinned[PINNED_MAX];

/* ---- handles ---- */

static CUmemGenericAllocationHandle handle_of(const struct memory *m)
{
    return (uint64_t)m->gen << 32 | (uint64_t)(m - memories + 1);
}

/* Returns the memory of a handle; NULL: it is no handle, or was released. */
static struct memory *memory_of(CUmemGenericAllocationHandle handle)
{
    uint64_t at = handle & 0xffffffff;
    struct memory *m = at >= 1 && at <= HANDLES_MAX ? &memories[at - 1] : NULL;

    return m && m->used && m->handles > 0 && m->gen == handle >> 32 ? m : NULL;
}

static void memory_end(struct memory *m)
{
    if (m->handles > 0 || m->maps > 0)
        return;
    munmap(m->bytes_at, m->bytes);
    close(m->fd);
    standin_devices.bytes_used[m->device] -= m->bytes;
    m->used = false;
    m->gen++;
}

/* Takes ownership of fd. */
static CUresult memory_take(CUmemGenericAllocationHandle *ret, int fd, uint64_t bytes, int device)
{
    struct memory *m = memories;

    while (m < memories + HANDLES_MAX && m->used)
        m++;
    if (m == memories + HANDLES_MAX) {
        close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *m = (struct memory){
        .used = true, .handles = 1, .gen = m->gen, .device = device, .fd = fd, .bytes = bytes};
    m->bytes_at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (m->bytes_at == MAP_FAILED) {
        m->used = false;
        close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    standin_devices.bytes_used[device] += bytes;
    *ret = handle_of(m);
    return CUDA_SUCCESS;
}

static CUresult create(CUmemGenericAllocationHandle *ret, size_t bytes,
                       const CUmemAllocationProp *prop, unsigned long long flags)
{
    int device = prop->location.id, fd;
    CUresult result;
    char name[32];

    if (bytes == 0 || bytes % GRANULE || flags || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE || device < 0 || device >= DEVICES_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (bytes > standin_devices.bytes_each - standin_devices.bytes_used[device])
        return CUDA_ERROR_OUT_OF_MEMORY;
    snprintf(name, sizeof name, FD_NAME "%d", device);
    fd = memfd_create(name, MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0) {
        if (fd >= 0)
            close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    result = memory_take(ret, fd, bytes, device);
    if (result == CUDA_SUCCESS) /* the first content of a GPU's memory is undefined */
        memset(memory_of(*ret)->bytes_at, 0xa5, bytes);
    return result;
}

CUresult standin_mem_create(CUmemGenericAllocationHandle *ret, size_t bytes,
                            const CUmemAllocationProp *prop, unsigned long long flags)
{
    CUresult result = standin_enter("cuMemCreate");

    if (result == CUDA_SUCCESS)
        result = create(ret, bytes, prop, flags);
    return standin_leave(result);
}

CUresult standin_mem_release(CUmemGenericAllocationHandle handle)
{
    CUresult result = standin_enter("cuMemRelease");
    struct memory *m = memory_of(handle);

    if (result == CUDA_SUCCESS && !m)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        m->handles--;
        memory_end(m);
    }
    return standin_leave(result);
}

CUresult standin_mem_export(void *ret, CUmemGenericAllocationHandle handle,
                            CUmemAllocationHandleType type, unsigned long long flags)
{
    CUresult result = standin_enter("cuMemExportToShareableHandle");
    struct memory *m = memory_of(handle);

    if (result == CUDA_SUCCESS && (!m || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *(int *)ret = dup(m->fd); /* without FD_CLOEXEC, as the driver's */
    return standin_leave(result);
}

/* Imports a descriptor. The memfd's name has the device. */
static CUresult import(CUmemGenericAllocationHandle *ret, int fd)
{
    char path[64], link[128], *name;
    struct stat st;
    ssize_t n;

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    n = readlink(path, link, sizeof link - 1);
    if (n < 0 || fstat(fd, &st) < 0)
        return CUDA_ERROR_INVALID_VALUE;
    link[n] = '\0';
    name = strstr(link, FD_NAME);
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    return memory_take(ret, fcntl(fd, F_DUPFD_CLOEXEC, 0), (uint64_t)st.st_size,
                       atoi(name + strlen(FD_NAME)));
}

CUresult standin_mem_import(CUmemGenericAllocationHandle *ret, void *handle,
                            CUmemAllocationHandleType type)
{
    CUresult result = standin_enter("cuMemImportFromShareableHandle");

    if (result == CUDA_SUCCESS && type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = import(ret, (int)(intptr_t)handle);
    return standin_leave(result);
}

CUresult standin_mem_granularity(size_t *ret, const CUmemAllocationProp *prop,
                                 CUmemAllocationGranularity_flags which)
{
    CUresult result = standin_enter("cuMemGetAllocationGranularity");

    (void)prop, (void)which;
    *ret = GRANULE;
    return standin_leave(result);
}

CUresult standin_mem_info(size_t *ret_free, size_t *ret_total)
{
    CUresult result = standin_enter("cuMemGetInfo");

    if (result == CUDA_SUCCESS && !standin_current)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS) {
        *ret_total = standin_devices.bytes_each;
        *ret_free =
            standin_devices.bytes_each - standin_devices.bytes_used[standin_current->device];
    }
    return standin_leave(result);
}

/* ---- addresses ---- */

/* Returns the range with exactly that place; NULL: none. */
static struct range *range_at(uint64_t base, uint64_t bytes)
{
    for (struct range *r = ranges; r < ranges + RANGES_MAX; r++)
        if (r->bytes > 0 && r->base == base && r->bytes == bytes)
            return r;
    return NULL;
}

static CUresult reserve(CUdeviceptr *ret, size_t bytes, size_t align)
{
    struct range *r = ranges;
    void *at;

    if (bytes == 0 || bytes % GRANULE || (align & (align - 1)))
        return CUDA_ERROR_INVALID_VALUE;
    align = align > GRANULE ? align : GRANULE;
    while (r < ranges + RANGES_MAX && r->bytes > 0)
        r++;
    at = r == ranges + RANGES_MAX ? MAP_FAILED
                                  : mmap(NULL, bytes + align, PROT_NONE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *r = (struct range){.base = ((uintptr_t)at + align - 1) / align * align,
                        .bytes = bytes,
                        .reserved_at = (uintptr_t)at,
                        .reserved_bytes = bytes + align};
    *ret = r->base;
    return CUDA_SUCCESS;
}

CUresult standin_address_reserve(CUdeviceptr *ret, size_t bytes, size_t align, CUdeviceptr at,
                                 unsigned long long flags)
{
    CUresult result = standin_enter("cuMemAddressReserve");

    if (result == CUDA_SUCCESS && (at || flags))
        result = CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_SUCCESS)
        result = reserve(ret, bytes, align);
    return standin_leave(result);
}

CUresult standin_address_free(CUdeviceptr at, size_t bytes)
{
    CUresult result = standin_enter("cuMemAddressFree");
    struct range *r = range_at(at, bytes);

    if (result == CUDA_SUCCESS && (!r || r->memory))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        munmap((void *)(uintptr_t)r->reserved_at, r->reserved_bytes);
        r->bytes = 0;
    }
    return standin_leave(result);
}

CUresult standin_mem_map(CUdeviceptr at, size_t bytes, size_t offset,
                         CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    CUresult result = standin_enter("cuMemMap");
    struct range *r = range_at(at, bytes);
    struct memory *m = memory_of(handle);

    if (result == CUDA_SUCCESS && (!r || !m || r->memory || offset || flags || m->bytes != bytes))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        r->memory = m;
        memset(r->access, 0, sizeof r->access);
        m->maps++;
    }
    return standin_leave(result);
}

CUresult standin_mem_unmap(CUdeviceptr at, size_t bytes)
{
    CUresult result = standin_enter("cuMemUnmap");
    struct range *r = range_at(at, bytes);

    if (result == CUDA_SUCCESS && (!r || !r->memory))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        if (standin_in_flight(at, bytes) || standin_launched(r->memory->device))
            standin_broken("memory was unmapped while a copy or a kernel was at it");
        r->memory->maps--;
        memory_end(r->memory);
        r->memory = NULL;
    }
    return standin_leave(result);
}

CUresult standin_mem_access(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *v, size_t n)
{
    CUresult result = standin_enter("cuMemSetAccess");
    struct range *r = range_at(at, bytes);

    for (size_t i = 0; result == CUDA_SUCCESS && i < n; i++)
        if (!r || !r->memory || v[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
            v[i].location.id < 0 || v[i].location.id >= DEVICES_MAX)
            result = CUDA_ERROR_INVALID_VALUE;
        else if (v[i].location.id != r->memory->device &&
                 !standin_reaches(v[i].location.id, r->memory->device))
            result = CUDA_ERROR_INVALID_DEVICE;
        else
            r->access[v[i].location.id] = v[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return standin_leave(result);
}

uint8_t *standin_reach(CUdeviceptr at, size_t n, int device, CUresult *ret)
{
    for (struct range *r = ranges; r < ranges + RANGES_MAX; r++) {
        if (r->bytes == 0 || !r->memory || at < r->base || at - r->base >= r->bytes ||
            n > r->bytes - (at - r->base))
            continue;
        *ret = r->access[device] ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
        return r->access[device] ? r->memory->bytes_at + (at - r->base) : NULL;
    }
    *ret = CUDA_ERROR_INVALID_VALUE;
    return NULL;
}

int standin_device_of(CUdeviceptr at)
{
    for (struct range *r = ranges; r < ranges + RANGES_MAX; r++)
        if (r->bytes > 0 && r->memory && at >= r->base && at - r->base < r->bytes)
            return r->memory->device;
    return -1;
}

/* Allocates whole granules of the context's device. After an error nothing of it remains. */
static CUresult alloc(CUdeviceptr *ret, size_t bytes, int device)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    CUmemGenericAllocationHandle handle;
    struct memory *m;
    CUresult result;

    bytes = (bytes + GRANULE - 1) / GRANULE * GRANULE;
    result = create(&handle, bytes, &prop, 0);
    if (result != CUDA_SUCCESS)
        return result;
    m = memory_of(handle);
    m->handles = 0; /* the memory ends with its range */
    m->maps = 1;
    result = reserve(ret, bytes, GRANULE);
    if (result != CUDA_SUCCESS) {
        m->maps = 0;
        memory_end(m);
        return result;
    }
    for (struct range *r = ranges; r < ranges + RANGES_MAX; r++)
        if (r->bytes > 0 && r->base == *ret) {
            r->memory = m;
            memset(r->access, 0, sizeof r->access);
            r->access[device] = true;
        }
    return CUDA_SUCCESS;
}

CUresult standin_mem_alloc(CUdeviceptr *ret, size_t bytes)
{
    CUresult result = standin_enter("cuMemAlloc");

    if (result == CUDA_SUCCESS && !standin_current)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS)
        result = alloc(ret, bytes, standin_current->device);
    return standin_leave(result);
}

CUresult standin_mem_free(CUdeviceptr at)
{
    CUresult result = standin_enter("cuMemFree");
    struct range *r = ranges;

    while (r < ranges + RANGES_MAX && (r->bytes == 0 || r->base != at))
        r++;
    if (result == CUDA_SUCCESS &&
        (r == ranges + RANGES_MAX || !r->memory || r->memory->handles > 0))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        if (standin_in_flight(at, r->bytes) || standin_launched(r->memory->device))
            standin_broken("memory was freed while a copy or a kernel was at it");
        r->memory->maps--;
        memory_end(r->memory);
        r->memory = NULL;
        munmap((void *)(uintptr_t)r->reserved_at, r->reserved_bytes);
        r->bytes = 0;
    }
    return standin_leave(result);
}

/* ---- descriptors for NICs ---- */

/* A dma-buf begins where its range does, and a memfd cannot be cut: only whole ranges have one. */
static CUresult export_range(int *ret, CUdeviceptr at, size_t bytes)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

    if (bytes == 0 || at % page || bytes % page)
        return CUDA_ERROR_INVALID_VALUE;
    for (struct range *r = ranges; r < ranges + RANGES_MAX; r++) {
        if (r->bytes == 0 || !r->memory || at < r->base || at - r->base >= r->bytes)
            continue;
        if (bytes > r->bytes - (at - r->base))
            return CUDA_ERROR_INVALID_VALUE;
        if (at != r->base)
            return CUDA_ERROR_NOT_SUPPORTED;
        *ret = dup(r->memory->fd); /* without FD_CLOEXEC, as above */
        return *ret < 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

/* As in CUDA 12.0, which has no flags here. */
CUresult standin_mem_range_handle(void *ret, CUdeviceptr at, size_t bytes,
                                  CUmemRangeHandleType type, unsigned long long flags)
{
    CUresult result = standin_enter("cuMemGetHandleForAddressRange");

    if (result == CUDA_SUCCESS && !standin_current)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS && (flags || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = export_range(ret, at, bytes);
    return standin_leave(result);
}

/* ---- pinned memory of the host ---- */

bool standin_pinned(const void *at, size_t n)
{
    const uint8_t *from = at;

    for (size_t i = 0; i < PINNED_MAX; i++)
        if (pinned[i].at && from >= pinned[i].at && from + n <= pinned[i].at + pinned[i].bytes)
            return true;
    return false;
}

CUresult standin_host_alloc(void **ret, size_t bytes, unsigned int flags)
{
    CUresult result = standin_enter("cuMemHostAlloc");
    size_t i = 0;

    (void)flags;
    while (i < PINNED_MAX && pinned[i].at)
        i++;
    if (result == CUDA_SUCCESS && !standin_current)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS && i == PINNED_MAX)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        pinned[i].at = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
        pinned[i].bytes = bytes;
        *ret = pinned[i].at;
    }
    return standin_leave(result);
}

CUresult standin_host_free(void *at)
{
    CUresult result = standin_enter("cuMemFreeHost");
    size_t i = 0;

    while (i < PINNED_MAX && pinned[i].at != at)
        i++;
    if (result == CUDA_SUCCESS && (!at || i == PINNED_MAX))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        if (standin_in_flight((uintptr_t)at, pinned[i].bytes))
            standin_broken("pinned memory was freed while a copy was at it");
        free(at);
        pinned[i].at = NULL;
    }
    return standin_leave(result);
}

/* Frees what a program left behind, when the library is unloaded. */
__attribute__((destructor)) static void pinned_end(void)
{
    for (size_t i = 0; i < PINNED_MAX; i++)
        free(pinned[i].at);
}

void standin_memory_live(struct standin_live *ret)
{
    for (size_t i = 0; i < HANDLES_MAX; i++) {
        ret->handles += memories[i].used ? memories[i].handles : 0;
        ret->maps += memories[i].used ? memories[i].maps : 0;
    }
    for (size_t i = 0; i < RANGES_MAX; i++) {
        ret->ranges += ranges[i].bytes > 0;
        for (int d = 0; ranges[i].bytes > 0 && ranges[i].memory && d < DEVICES_MAX; d++)
            ret->peers += ranges[i].access[d] && d != ranges[i].memory->device;
    }
    for (size_t i = 0; i < PINNED_MAX; i++)
        ret->pinned += pinned[i].at != NULL;
}
