/* See pages.h. */
#include "engine/pages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/bytes.h"
#include "engine/proc.h"
#include "kernels/driver.h"

/* Per process: the driver once needed, the GPUs in use, and one page in host memory. */
static struct driver driver;
static struct {
    char uuid[DRIVER_UUID_BYTES];
    CUcontext context;
    CUstream stream; /* NULL: not yet */
    CUevent behind;  /* made with it */
} gpu[TERN_RANKS_MAX];
static uint32_t gpus;
static uint8_t *room;
static size_t room_bytes;

static void must(CUresult result, const char *call)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "%s failed: %d\n", call, (int)result);
    exit(2);
}

static void driver_use(void)
{
    struct driver_why why;

    if (driver.library)
        return;
    if (driver_open(&driver, DRIVER_LIBRARY, &why) != DRIVER_OK) {
        fprintf(stderr, "%s\n", why.text);
        exit(2);
    }
    must(driver.init(0), "cuInit");
}

/* Makes the context of that GPU this thread's current one. Returns the GPU's index. */
static uint32_t gpu_use(const char *uuid)
{
    char seen[DRIVER_SEEN_BYTES];
    CUdevice device;
    uint32_t i = 0;

    driver_use();
    while (i < gpus && strcmp(gpu[i].uuid, uuid) != 0)
        i++;
    if (i == gpus) {
        must(driver_device_of(&driver, uuid, &device, seen), "finding the device");
        must(driver.context_retain(&gpu[i].context, device), "cuDevicePrimaryCtxRetain");
        snprintf(gpu[i].uuid, sizeof gpu[i].uuid, "%s", uuid);
        gpus++;
    }
    must(driver.context_set(gpu[i].context), "cuCtxSetCurrent");
    return i;
}

static uint8_t *room_for(size_t bytes)
{
    if (bytes > room_bytes) {
        room = mem_grow(room, bytes, 1);
        room_bytes = bytes;
    }
    return room;
}

void pool_bytes_put(const struct tern_pool *map, uint8_t *to, const void *from, size_t n)
{
    if (!tern_pool_info(map)->device) {
        memcpy(to, from, n);
        return;
    }
    gpu_use(tern_pool_info(map)->device);
    must(driver.copy_to_device((CUdeviceptr)(uintptr_t)to, from, n), "cuMemcpyHtoD");
}

void pool_bytes_get(const struct tern_pool *map, void *to, const uint8_t *from, size_t n)
{
    if (!tern_pool_info(map)->device) {
        memcpy(to, from, n);
        return;
    }
    gpu_use(tern_pool_info(map)->device);
    must(driver.copy_to_host(to, (CUdeviceptr)(uintptr_t)from, n), "cuMemcpyDtoH");
}

enum tern_err pool_bring(struct tern_pool *map, const struct tern_checksums *of)
{
    const char *uuid = tern_pool_info(map)->device;
    enum tern_err err;
    uint32_t i;

    if (!uuid)
        return tern_checksums_on_stream(map, of, NULL);
    i = gpu_use(uuid);
    if (!gpu[i].stream) {
        must(driver.stream_create(&gpu[i].stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
        must(driver.event_create(&gpu[i].behind, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    }
    err = tern_checksums_on_stream(map, of, gpu[i].stream);
    if (err != TERN_OK)
        return err;
    must(driver.event_record(gpu[i].behind, gpu[i].stream), "cuEventRecord");
    must(driver.event_wait(gpu[i].behind), "cuEventSynchronize");
    return TERN_OK;
}

void pool_page_fill(const struct tern_pool *map, uint8_t *page, size_t bytes, uint64_t seed)
{
    if (!tern_pool_info(map)->device) {
        page_fill(page, bytes, seed);
        return;
    }
    page_fill(room_for(bytes), bytes, seed);
    pool_bytes_put(map, page, room, bytes);
}

size_t pool_page_compare(const struct tern_pool *map, const uint8_t *page, size_t bytes,
                         uint64_t seed)
{
    if (!tern_pool_info(map)->device)
        return page_compare(page, bytes, seed);
    pool_bytes_get(map, room_for(bytes), page, bytes);
    return page_compare(room, bytes, seed);
}

void pool_page_copy(const struct tern_pool *map, uint8_t *to, const uint8_t *from, size_t bytes)
{
    if (!tern_pool_info(map)->device) {
        memcpy(to, from, bytes);
        return;
    }
    pool_bytes_get(map, room_for(bytes), from, bytes);
    pool_bytes_put(map, to, room, bytes);
}
