/* A pool on a GPU: CUDA's driver, loaded for the first such pool, imports the daemon's descriptor
 * and maps the memory for its GPU. The engine owns the context: this file creates and changes none.
 * Invariant: nothing stays imported or reserved after a call fails or the mapping ends. */
#include "device.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

struct device_map {
    struct driver driver;
    char uuid[DRIVER_UUID_BYTES];
    CUdevice device;
    int ordinal;
    CUdeviceptr at;
    uint64_t bytes;
};

/* Bytes of the text around the list of devices, including a UUID. */
#define DISAGREES_BYTES 144
static_assert(DISAGREES_BYTES + DRIVER_SEEN_BYTES <= QUICK_TEXT_MAX,
              "an error has room for all of them");

static enum tern_err call_failed(struct tern *t, const struct device_map *m, const char *call,
                                 CUresult result)
{
    char text[QUICK_TEXT_MAX];

    snprintf(text, sizeof text, "the pool on %s could not be mapped: %s: %s", m->uuid, call,
             driver_error_name(&m->driver, result));
    return set_error(t, TERN_INTERNAL, text);
}

/* Checks that this process sees the GPU, and that its current context is not on another GPU. */
static enum tern_err device_agrees(struct tern *t, const struct device_map *m, CUdevice *ret)
{
    char text[QUICK_TEXT_MAX], seen[DRIVER_SEEN_BYTES], name[DRIVER_UUID_BYTES];
    CUdevice current;
    CUuuid uuid;
    CUresult result = driver_device_of(&m->driver, m->uuid, ret, seen);

    if (result == CUDA_ERROR_NOT_FOUND) {
        snprintf(text, sizeof text,
                 "the pool lies on %s, which this process does not see: correct "
                 "CUDA_VISIBLE_DEVICES, or join with one of: %s",
                 m->uuid, seen);
        return set_error(t, TERN_INVALID, text);
    }
    if (result != CUDA_SUCCESS)
        return call_failed(t, m, "search for the device", result);
    if (m->driver.context_device(&current) != CUDA_SUCCESS || current == *ret)
        return TERN_OK;
    result = m->driver.device_uuid(&uuid, current);
    if (result != CUDA_SUCCESS)
        return call_failed(t, m, "cuDeviceGetUuid", result);
    driver_uuid_text(&uuid, name);
    snprintf(text, sizeof text,
             "the pool lies on %s, and this thread uses %s: set the pool's context, or join with "
             "the thread's device",
             m->uuid, name);
    return set_error(t, TERN_INVALID, text);
}

/* Ordinals count the devices that this process sees. */
static CUresult ordinal_of(const struct driver *d, CUdevice device, int *ret)
{
    CUdevice other;
    int n;
    CUresult result = d->device_count(&n);

    for (int i = 0; result == CUDA_SUCCESS && i < n; i++) {
        result = d->device_get(&other, i);
        if (result == CUDA_SUCCESS && other == device) {
            *ret = i;
            return CUDA_SUCCESS;
        }
    }
    return result == CUDA_SUCCESS ? CUDA_ERROR_NOT_FOUND : result;
}

static enum tern_err map_handle(struct tern *t, struct device_map *m,
                                CUmemGenericAllocationHandle handle)
{
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = m->device},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = m->driver.address_reserve(&m->at, m->bytes, 0, 0, 0);

    if (result != CUDA_SUCCESS)
        return call_failed(t, m, "cuMemAddressReserve", result);
    result = m->driver.mem_map(m->at, m->bytes, 0, handle, 0);
    if (result != CUDA_SUCCESS) {
        m->driver.address_free(m->at, m->bytes);
        return call_failed(t, m, "cuMemMap", result);
    }
    result = m->driver.mem_access(m->at, m->bytes, &access, 1);
    if (result != CUDA_SUCCESS) {
        m->driver.mem_unmap(m->at, m->bytes);
        m->driver.address_free(m->at, m->bytes);
        return call_failed(t, m, "cuMemSetAccess", result);
    }
    return TERN_OK;
}

static enum tern_err map_fd(struct tern *t, int fd, struct device_map *m)
{
    CUmemGenericAllocationHandle handle;
    CUresult result = m->driver.init(0);
    enum tern_err err;

    if (result != CUDA_SUCCESS)
        return call_failed(t, m, "cuInit", result);
    TRY(device_agrees(t, m, &m->device));
    result = ordinal_of(&m->driver, m->device, &m->ordinal);
    if (result != CUDA_SUCCESS)
        return call_failed(t, m, "cuDeviceGet", result);
    result = m->driver.mem_import(&handle, (void *)(intptr_t)fd,
                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (result != CUDA_SUCCESS)
        return call_failed(t, m, "cuMemImportFromShareableHandle", result);
    err = map_handle(t, m, handle);
    m->driver.mem_release(handle); /* the mapping keeps the memory */
    return err;
}

enum tern_err device_map_create(struct tern *t, int fd, const struct device_range *range,
                                struct device_map **ret)
{
    struct device_map *m;
    struct driver_why why;
    enum tern_err err;

    if (range->region_bytes == 0 || strlen(range->uuid) >= sizeof m->uuid)
        return set_error(t, TERN_MALFORMED,
                         "the pool lies on a GPU whose name the daemon does not know");
    m = calloc(1, sizeof *m);
    if (!m)
        return set_error(t, TERN_INTERNAL, "no memory");
    snprintf(m->uuid, sizeof m->uuid, "%s", range->uuid);
    m->bytes = range->region_bytes;
    if (driver_open(&m->driver, DRIVER_LIBRARY, &why) != DRIVER_OK) {
        char text[QUICK_TEXT_MAX];

        snprintf(text, sizeof text, "the pool lies on %s: %s", m->uuid, why.text);
        err = set_error(t, TERN_UNSUPPORTED, text);
        goto out_free;
    }
    err = map_fd(t, fd, m);
    if (err != TERN_OK)
        goto out_close;
    *ret = m;
    return TERN_OK;

out_close:
    driver_close(&m->driver);
out_free:
    free(m);
    return err;
}

void device_map_destroy(struct device_map *m, bool owner)
{
    if (owner) { /* a forked child must not call the driver */
        m->driver.mem_unmap(m->at, m->bytes);
        m->driver.address_free(m->at, m->bytes);
        driver_close(&m->driver);
    }
    free(m);
}

uint8_t *device_map_base(const struct device_map *m)
{
    return (uint8_t *)(uintptr_t)m->at;
}

const char *device_map_uuid(const struct device_map *m)
{
    return m->uuid;
}

int device_map_ordinal(const struct device_map *m)
{
    return m->ordinal;
}

CUdevice device_map_device(const struct device_map *m)
{
    return m->device;
}

const struct driver *device_map_driver(const struct device_map *m)
{
    return &m->driver;
}
