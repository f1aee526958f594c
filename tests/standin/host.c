/* Host memory that is registered with the stand-in: see standin.h. Devices see it at other
 * addresses, which the CPU cannot touch, so that a program that confuses the two is noticed. */
#include <sys/mman.h>

#include "standin/standin_state.h"

#define PAGE 4096u

static struct {
    uint8_t *host, *device; /* NULL: free */
    size_t bytes;
    bool mapped; /* for devices */
} registered[PAGES_MAX];

/* Returns the range that begins at that address; PAGES_MAX: none. */
static size_t find(const uint8_t *host)
{
    size_t i = 0;

    while (i < PAGES_MAX && (!host || registered[i].host != host))
        i++;
    return i;
}

static bool overlaps(const uint8_t *at, size_t bytes)
{
    for (size_t i = 0; i < PAGES_MAX; i++)
        if (registered[i].host && at < registered[i].host + registered[i].bytes &&
            registered[i].host < at + bytes)
            return true;
    return false;
}

static bool is_mapped(size_t i)
{
    return msync(registered[i].host, registered[i].bytes, MS_ASYNC) == 0;
}

CUresult standin_host_register(void *at, size_t bytes, unsigned int flags)
{
    CUresult result = standin_enter("cuMemHostRegister");
    size_t i = 0;
    void *device;

    while (i < PAGES_MAX && registered[i].host)
        i++;
    if (result == CUDA_SUCCESS && !standin_current)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS && (!at || (uintptr_t)at % PAGE || bytes == 0 || bytes % PAGE))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && standin_lacks(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED))
        result = CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_SUCCESS && overlaps(at, bytes))
        result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    if (result != CUDA_SUCCESS)
        return standin_leave(result);
    device = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (i == PAGES_MAX || device == MAP_FAILED)
        return standin_leave(CUDA_ERROR_OUT_OF_MEMORY);
    registered[i].host = at;
    registered[i].device = device;
    registered[i].bytes = bytes;
    registered[i].mapped = (flags & CU_MEMHOSTREGISTER_DEVICEMAP) != 0;
    return standin_leave(CUDA_SUCCESS);
}

CUresult standin_host_unregister(void *at)
{
    CUresult result = standin_enter("cuMemHostUnregister");
    size_t i = find(at);

    if (result == CUDA_SUCCESS && !standin_current)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS && i == PAGES_MAX)
        result = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    if (result != CUDA_SUCCESS)
        return standin_leave(result);
    if (!is_mapped(i))
        standin_broken("memory was unmapped before it was unregistered");
    if (standin_in_flight((uintptr_t)registered[i].device, registered[i].bytes))
        standin_broken("memory was unregistered while a write to it was to come");
    if (standin_launched(standin_current->device))
        standin_broken("memory was unregistered while a kernel was to run");
    munmap(registered[i].device, registered[i].bytes);
    registered[i].host = registered[i].device = NULL;
    return standin_leave(CUDA_SUCCESS);
}

CUresult standin_host_device_at(CUdeviceptr *ret, void *at, unsigned int flags)
{
    CUresult result = standin_enter("cuMemHostGetDevicePointer");
    size_t i = find(at);

    if (result == CUDA_SUCCESS && (flags || i == PAGES_MAX || !registered[i].mapped))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *ret = (uintptr_t)registered[i].device;
    return standin_leave(result);
}

void *standin_registered(CUdeviceptr at, size_t n)
{
    for (size_t i = 0; i < PAGES_MAX; i++) {
        CUdeviceptr from = (uintptr_t)registered[i].device;

        if (!registered[i].host || at < from || at - from > registered[i].bytes ||
            n > registered[i].bytes - (at - from))
            continue;
        if (!is_mapped(i))
            standin_broken("registered memory was unmapped");
        return registered[i].host + (at - from);
    }
    return NULL;
}

void standin_host_live(struct standin_live *ret)
{
    for (size_t i = 0; i < PAGES_MAX; i++)
        ret->registered += registered[i].host != NULL;
}
