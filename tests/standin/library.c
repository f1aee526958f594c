/* The stand-in as a library: devices, contexts, calls that fail, and the look-up of functions. See
 * standin.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin/standin_state.h"

#define NAMES_MAX 64

CUresult cuGetProcAddress_v2(const char *name, void **ret, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *ret_found);
#define X(member, name, ret, parameters) ret name parameters;
STANDIN_CALLS(X)
#undef X

pthread_mutex_t standin_lock = PTHREAD_MUTEX_INITIALIZER;
struct standin_devices standin_devices;
_Thread_local CUcontext standin_current;
_Thread_local bool standin_in_call;

static int visible[DEVICES_MAX], nvisible;
static struct {
    char name[64];
    uint32_t nth;
    CUresult result;
} failing;
static struct {
    char name[64];
    uint32_t calls;
} counted[NAMES_MAX];

static const char *setting(const char *name, const char *otherwise)
{
    const char *value = getenv(name);

    return value ? value : otherwise;
}

__attribute__((constructor)) static void settings(void)
{
    char list[64], *rest = list, *one;
    const char *seen = getenv("CUDA_VISIBLE_DEVICES"), *fail = getenv("STANDIN_CUDA_FAIL");
    int n = atoi(setting("STANDIN_CUDA_DEVICES", "2")), result;

    standin_devices.n = n < DEVICES_MAX ? n : DEVICES_MAX;
    standin_devices.bytes_each = (uint64_t)atoi(setting("STANDIN_CUDA_MIB", "1024")) << 20;
    for (int i = 0; i < standin_devices.n; i++)
        standin_devices.context[i].device = i;
    for (int i = 0; !seen && i < standin_devices.n; i++)
        visible[nvisible++] = i;
    snprintf(list, sizeof list, "%s", seen ? seen : "");
    while (seen && *rest && (one = strsep(&rest, ",")) && nvisible < DEVICES_MAX) {
        visible[nvisible++] = atoi(one);
        if (!rest)
            break;
    }
    if (fail && sscanf(fail, "%63[^:]:%u:%d", failing.name, &failing.nth, &result) == 3)
        failing.result = (CUresult)result;
}

/* ---- each call ---- */

_Noreturn void standin_broken(const char *rule)
{
    fprintf(stderr, "stand-in for libcuda: %s\n", rule);
    abort();
}

static uint32_t *count_of(const char *name)
{
    for (size_t i = 0; i < NAMES_MAX; i++) {
        if (!counted[i].name[0])
            snprintf(counted[i].name, sizeof counted[i].name, "%s", name);
        if (strcmp(counted[i].name, name) == 0)
            return &counted[i].calls;
    }
    standin_broken("it has no room for so many names");
}

CUresult standin_enter(const char *name)
{
    int device = standin_current ? standin_current->device : -1;

    if (standin_in_call)
        standin_broken("a function in a stream called the driver");
    pthread_mutex_lock(&standin_lock);
    ++*count_of(name);
    if (strcmp(name, failing.name) == 0 && failing.nth > 0 && --failing.nth == 0) {
        if (driver_is_lost(failing.result) && device >= 0)
            standin_devices.lost[device] = failing.result;
        return failing.result;
    }
    return device >= 0 ? standin_devices.lost[device] : CUDA_SUCCESS;
}

CUresult standin_leave(CUresult result)
{
    pthread_mutex_unlock(&standin_lock);
    return result;
}

bool driver_is_lost(CUresult result) /* the library has only its own files */
{
    return result >= CUDA_ERROR_ILLEGAL_ADDRESS && result <= CUDA_ERROR_LAUNCH_FAILED;
}

/* ---- devices and contexts ---- */

CUresult standin_init(unsigned int flags)
{
    CUresult result = standin_enter("cuInit");

    if (result == CUDA_SUCCESS && (flags || nvisible == 0))
        result = CUDA_ERROR_NO_DEVICE;
    return standin_leave(result);
}

CUresult standin_driver_version(int *ret)
{
    *ret = 12000;
    return CUDA_SUCCESS;
}

CUresult standin_error_name(CUresult error, const char **ret)
{
    *ret = error == CUDA_ERROR_OUT_OF_MEMORY       ? "CUDA_ERROR_OUT_OF_MEMORY"
           : error == CUDA_ERROR_ILLEGAL_ADDRESS   ? "CUDA_ERROR_ILLEGAL_ADDRESS"
           : error == CUDA_ERROR_NO_DEVICE         ? "CUDA_ERROR_NO_DEVICE"
           : error == CUDA_ERROR_INVALID_DEVICE    ? "CUDA_ERROR_INVALID_DEVICE"
           : error == CUDA_ERROR_INVALID_VALUE     ? "CUDA_ERROR_INVALID_VALUE"
           : error == CUDA_ERROR_INVALID_CONTEXT   ? "CUDA_ERROR_INVALID_CONTEXT"
           : error == CUDA_ERROR_LAUNCH_FAILED     ? "CUDA_ERROR_LAUNCH_FAILED"
           : error == CUDA_ERROR_NO_BINARY_FOR_GPU ? "CUDA_ERROR_NO_BINARY_FOR_GPU"
           : error == CUDA_ERROR_NOT_SUPPORTED     ? "CUDA_ERROR_NOT_SUPPORTED"
                                                   : "CUDA_ERROR_UNKNOWN";
    return CUDA_SUCCESS;
}

CUresult standin_device_count(int *ret)
{
    CUresult result = standin_enter("cuDeviceGetCount");

    *ret = nvisible;
    return standin_leave(result);
}

CUresult standin_device_get(CUdevice *ret, int ordinal)
{
    CUresult result = standin_enter("cuDeviceGet");

    if (result == CUDA_SUCCESS && (ordinal < 0 || ordinal >= nvisible))
        result = CUDA_ERROR_INVALID_DEVICE;
    if (result == CUDA_SUCCESS)
        *ret = visible[ordinal];
    return standin_leave(result);
}

CUresult standin_device_name(char *ret, int bytes, CUdevice device)
{
    snprintf(ret, (size_t)bytes, "stand-in %d", device);
    return CUDA_SUCCESS;
}

CUresult standin_device_uuid(CUuuid *ret, CUdevice device)
{
    CUresult result = standin_enter("cuDeviceGetUuid");

    memcpy(ret->bytes, "standin\0\0\0\0\0\0\0\0", sizeof ret->bytes);
    ret->bytes[15] = (char)device;
    return standin_leave(result);
}

bool standin_lacks(CUdevice_attribute attribute)
{
    char list[64], *rest = list, *one;

    snprintf(list, sizeof list, "%s", setting("STANDIN_CUDA_LACKS", ""));
    while ((one = strsep(&rest, ",")) != NULL)
        if (atoi(one) == (int)attribute)
            return true;
    return false;
}

static bool lists(const char *name, int device, int peer)
{
    char list[64], pair[16], *rest = list, *one;

    snprintf(list, sizeof list, "%s", setting(name, ""));
    snprintf(pair, sizeof pair, "%d-%d", device, peer);
    while ((one = strsep(&rest, ",")) != NULL)
        if (strcmp(one, pair) == 0 || strcmp(one, "all") == 0)
            return true;
    return false;
}

bool standin_reaches(int device, int peer)
{
    return device != peer && !lists("STANDIN_CUDA_NO_PEERS", device, peer);
}

bool standin_spoils(int device, int peer)
{
    return device != peer && lists("STANDIN_CUDA_SPOILS_PEERS", device, peer);
}

CUresult standin_device_reaches(int *ret, CUdevice device, CUdevice peer)
{
    CUresult result = standin_enter("cuDeviceCanAccessPeer");

    if (result == CUDA_SUCCESS &&
        (device < 0 || device >= standin_devices.n || peer < 0 || peer >= standin_devices.n))
        result = CUDA_ERROR_INVALID_DEVICE;
    if (result == CUDA_SUCCESS)
        *ret = standin_reaches(device, peer);
    return standin_leave(result);
}

/* Returns the PCI id in capital letters, as a driver may. */
CUresult standin_device_pci(char *ret, int bytes, CUdevice device)
{
    CUresult result = standin_enter("cuDeviceGetPCIBusId");

    if (result == CUDA_SUCCESS)
        snprintf(ret, (size_t)bytes, "0000:%02X:00.0", 0xaau + (unsigned)device);
    return standin_leave(result);
}

CUresult standin_device_attribute(int *ret, CUdevice_attribute attribute, CUdevice device)
{
    CUresult result = standin_enter("cuDeviceGetAttribute");

    (void)device;
    *ret = !standin_lacks(attribute);
    return standin_leave(result);
}

CUresult standin_context_retain(CUcontext *ret, CUdevice device)
{
    CUresult result = standin_enter("cuDevicePrimaryCtxRetain");

    if (result == CUDA_SUCCESS) {
        standin_devices.context[device].retained++;
        *ret = &standin_devices.context[device];
    }
    return standin_leave(result);
}

CUresult standin_context_release(CUdevice device)
{
    CUresult result = standin_enter("cuDevicePrimaryCtxRelease");

    if (result == CUDA_SUCCESS && standin_devices.context[device].retained == 0)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS)
        standin_devices.context[device].retained--;
    return standin_leave(result);
}

CUresult standin_context_set(CUcontext context)
{
    CUresult result = standin_enter("cuCtxSetCurrent");

    if (standin_current && result == standin_devices.lost[standin_current->device])
        result = CUDA_SUCCESS; /* a thread may leave a lost device */
    if (result == CUDA_SUCCESS && context && context->retained == 0)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS)
        standin_current = context;
    return standin_leave(result);
}

CUresult standin_context_device(CUdevice *ret)
{
    CUresult result = standin_enter("cuCtxGetDevice");

    if (result == CUDA_SUCCESS && !standin_current)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS)
        *ret = standin_current->device;
    return standin_leave(result);
}

CUresult standin_context_get(CUcontext *ret)
{
    CUresult result = standin_enter("cuCtxGetCurrent");

    if (result == CUDA_SUCCESS)
        *ret = standin_current;
    return standin_leave(result);
}

/* ---- calls of tests ---- */

void standin_let_fail(const char *name, uint32_t nth, CUresult result)
{
    pthread_mutex_lock(&standin_lock);
    snprintf(failing.name, sizeof failing.name, "%s", name);
    failing.nth = nth;
    failing.result = result;
    memset(counted, 0, sizeof counted);
    memset(standin_devices.lost, 0, sizeof standin_devices.lost);
    pthread_mutex_unlock(&standin_lock);
}

void standin_hang(uint32_t device)
{
    pthread_mutex_lock(&standin_lock);
    standin_devices.hangs[device] = true;
    pthread_mutex_unlock(&standin_lock);
}

void standin_hang_kernels(uint32_t device)
{
    pthread_mutex_lock(&standin_lock);
    standin_devices.kernels_hang[device] = true;
    pthread_mutex_unlock(&standin_lock);
}

uint32_t standin_calls(const char *name)
{
    uint32_t n;

    pthread_mutex_lock(&standin_lock);
    n = *count_of(name);
    pthread_mutex_unlock(&standin_lock);
    return n;
}

struct standin_live standin_live_now(void)
{
    struct standin_live live = {0};

    pthread_mutex_lock(&standin_lock);
    for (int i = 0; i < DEVICES_MAX; i++)
        live.contexts += standin_devices.context[i].retained;
    standin_memory_live(&live);
    standin_streams_live(&live);
    standin_host_live(&live);
    standin_modules_live(&live);
    pthread_mutex_unlock(&standin_lock);
    return live;
}

static uint8_t *look_at(CUdeviceptr at, size_t n)
{
    CUresult result;

    for (int i = 0; i < DEVICES_MAX; i++) {
        uint8_t *there = standin_reach(at, n, i, &result);

        if (there)
            return there;
    }
    standin_broken("a test looked where no memory is");
}

void standin_look(void *to, CUdeviceptr from, size_t n)
{
    pthread_mutex_lock(&standin_lock);
    memcpy(to, look_at(from, n), n);
    pthread_mutex_unlock(&standin_lock);
}

void standin_spoil(CUdeviceptr at)
{
    pthread_mutex_lock(&standin_lock);
    *look_at(at, 1) ^= 0x10;
    pthread_mutex_unlock(&standin_lock);
}

/* ---- the table ---- */

typedef void any_fn(void);

/* Stands for functions that no program calls. */
static CUresult not_here(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGetProcAddress_v2(const char *name, void **ret, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *ret_found)
{
    static const struct {
        const char *name;
        any_fn *function;
    } table[] = {
#define X(member, name, function, version, parameters) {name, (any_fn *)standin_##member},
        DRIVER_TABLE(X)
#undef X
    };
    any_fn *function = NULL;

    (void)flags;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strcmp(table[i].name, name) == 0)
            function = table[i].function ? table[i].function : (any_fn *)not_here;
    memcpy(ret, &function, sizeof function);
    *ret_found = function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return version > 12000 ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS; /* newer than CUDA 12.0 */
}
