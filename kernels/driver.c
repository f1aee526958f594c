/* Asks the library for each function by its name and version: a plain lookup would give the oldest
 * of several. */
#include "kernels/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef CUresult find_fn(const char *name, void **ret, int version, cuuint64_t flags,
                         CUdriverProcAddressQueryResult *ret_found);

/* The library may say that it was successful, and still have found nothing. */
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
