/* Looks up each function by its name and version: a lookup by name alone would return the oldest of
 * several versions. */
#include "kernels/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef CUresult find_fn(const char *name, void **ret, int version, cuuint64_t flags,
                         CUdriverProcAddressQueryResult *ret_found);

/* The library may report success without a function. */
static bool find(find_fn *lookup, const char *name, int version, void *ret)
{
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    void *function = NULL;
    CUresult result = lookup(name, &function, version, CU_GET_PROC_ADDRESS_DEFAULT, &found);

    if (result != CUDA_SUCCESS || found != CU_GET_PROC_ADDRESS_SUCCESS || !function)
        return false;
    memcpy(ret, &function, sizeof function);
    return true;
}

static const char *find_all(find_fn *lookup, struct driver *d)
{
#define X(member, name, function, version, parameters)                                             \
    if (!find(lookup, name, version, &d->member))                                                  \
        return name;
    DRIVER_TABLE(X)
#undef X
    return NULL;
}

enum driver_result driver_open(struct driver *ret, const char *library, struct driver_why *ret_why)
{
    struct driver d = {.library = dlopen(library, RTLD_NOW | RTLD_LOCAL)};
    const char *lacks;
    find_fn *lookup = NULL;
    void *symbol;

    if (!d.library) {
        snprintf(ret_why->text, sizeof ret_why->text,
                 "%s cannot be loaded: install NVIDIA's driver, or give the container its library",
                 library);
        return DRIVER_NO_LIBRARY;
    }
    symbol = dlsym(d.library, "cuGetProcAddress_v2");
    memcpy(&lookup, &symbol, sizeof symbol);
    if (!lookup) {
        snprintf(ret_why->text, sizeof ret_why->text,
                 "%s is older than CUDA 12: install a driver of version 525 or newer", library);
        dlclose(d.library);
        return DRIVER_TOO_OLD;
    }
    lacks = find_all(lookup, &d);
    if (lacks) {
        snprintf(ret_why->text, sizeof ret_why->text, "%s has no %s: install a newer driver",
                 library, lacks);
        dlclose(d.library);
        return DRIVER_LACKS;
    }
    *ret = d;
    return DRIVER_OK;
}

void driver_close(struct driver *d)
{
    if (d->library)
        dlclose(d->library);
    d->library = NULL;
}

bool driver_is_lost(CUresult result)
{
    switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED: return true;
    default: return false;
    }
}

void driver_uuid_text(const CUuuid *uuid, char ret[DRIVER_UUID_BYTES])
{
    char *at = ret + sprintf(ret, "GPU");

    for (size_t i = 0; i < sizeof uuid->bytes; i++)
        at += sprintf(at, "%s%02x", i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                      (unsigned char)uuid->bytes[i]);
}

CUresult driver_device_of(const struct driver *d, const char *uuid, CUdevice *ret,
                          char ret_seen[DRIVER_SEEN_BYTES])
{
    size_t n = 0;
    int devices;
    CUresult result = d->device_count(&devices);

    snprintf(ret_seen, DRIVER_SEEN_BYTES, "none");
    for (int i = 0; result == CUDA_SUCCESS && i < devices; i++) {
        char name[DRIVER_UUID_BYTES];
        CUdevice device;
        CUuuid of;

        result = d->device_get(&device, i);
        if (result == CUDA_SUCCESS)
            result = d->device_uuid(&of, device);
        if (result != CUDA_SUCCESS)
            break;
        driver_uuid_text(&of, name);
        if (strcmp(name, uuid) == 0) {
            *ret = device;
            return CUDA_SUCCESS;
        }
        if (i < DRIVER_SEEN_MAX)
            n += (size_t)snprintf(ret_seen + n, DRIVER_SEEN_BYTES - n, "%s%s", i ? " " : "", name);
    }
    if (result == CUDA_SUCCESS && devices > DRIVER_SEEN_MAX)
        snprintf(ret_seen + n, DRIVER_SEEN_BYTES - n, " and %d more (`nvidia-smi -L`)",
                 devices - DRIVER_SEEN_MAX);
    return result == CUDA_SUCCESS ? CUDA_ERROR_NOT_FOUND : result;
}

const char *driver_error_name(const struct driver *d, CUresult result)
{
    const char *name = NULL;

    d->error_name(result, &name);
    return name ? name : "an error without a name";
}
