/* The part of CUDA's driver API that kernels and device memory need. Only NVIDIA's toolkit has
 * cuda.h, so the needed part of cuda.h is declared here, under the names of cuda.h; a test compares
 * the declarations with cuda.h where cuda.h exists. The library, which comes with a GPU's driver,
 * is loaded by driver_open: a program needs neither cuda.h to be built nor the library to start.
 *
 * The caller decides what a CUresult means for its call; driver_is_lost names those from which a
 * context does not recover. */
#ifndef KERNELS_DRIVER_H
#define KERNELS_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef CUDA_VERSION /* else cuda.h was included before */

typedef enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
    CUDA_ERROR_ECC_UNCORRECTABLE = 214,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    CUDA_ERROR_LAUNCH_TIMEOUT = 702,
    CUDA_ERROR_ASSERT = 710,
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
    CUDA_ERROR_HARDWARE_STACK_ERROR = 714,
    CUDA_ERROR_ILLEGAL_INSTRUCTION = 715,
    CUDA_ERROR_MISALIGNED_ADDRESS = 716,
    CUDA_ERROR_INVALID_ADDRESS_SPACE = 717,
    CUDA_ERROR_INVALID_PC = 718,
    CUDA_ERROR_LAUNCH_FAILED = 719,
    CUDA_ERROR_NOT_SUPPORTED = 801,
} CUresult;

typedef enum {
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED = 99,
    CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED = 103,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED = 110,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED = 116,
    CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS = 122,
    CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED = 124,
    CU_DEVICE_ATTRIBUTE_MPS_ENABLED = 133,
} CUdevice_attribute;

typedef enum { CU_MEM_ALLOCATION_TYPE_PINNED = 1 } CUmemAllocationType;
typedef enum {
    CU_MEM_HANDLE_TYPE_NONE = 0,
    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 1
} CUmemAllocationHandleType;
typedef enum { CU_MEM_LOCATION_TYPE_DEVICE = 1 } CUmemLocationType;
typedef enum {
    CU_MEM_ACCESS_FLAGS_PROT_NONE = 0,
    CU_MEM_ACCESS_FLAGS_PROT_READ = 1,
    CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3
} CUmemAccess_flags;
typedef enum {
    CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0,
    CU_MEM_ALLOC_GRANULARITY_RECOMMENDED = 1
} CUmemAllocationGranularity_flags;
typedef enum { CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD = 1 } CUmemRangeHandleType;
typedef enum { CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE = 1 } CUmemRangeFlags; /* CUDA 12.8 */
typedef enum { CU_STREAM_NON_BLOCKING = 1 } CUstream_flags;
typedef enum { CU_EVENT_DEFAULT = 0, CU_EVENT_DISABLE_TIMING = 2 } CUevent_flags;
typedef enum { CU_STREAM_WRITE_VALUE_DEFAULT = 0 } CUstreamWriteValue_flags;
typedef enum {
    CU_STREAM_CAPTURE_STATUS_NONE = 0,
    CU_STREAM_CAPTURE_STATUS_ACTIVE = 1,
    CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2
} CUstreamCaptureStatus;
enum { CU_MEMHOSTREGISTER_PORTABLE = 1, CU_MEMHOSTREGISTER_DEVICEMAP = 2 };
typedef enum {
    CU_GET_PROC_ADDRESS_SUCCESS = 0,
    CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND = 1,
    CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT = 2
} CUdriverProcAddressQueryResult;
typedef enum { CU_GET_PROC_ADDRESS_DEFAULT = 0 } CUdriverProcAddress_flags;

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef uint64_t cuuint64_t;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef void (*CUhostFn)(void *with);

typedef struct {
    char bytes[16];
} CUuuid;

typedef struct {
    CUmemLocationType type;
    int id; /* of the device */
} CUmemLocation;

typedef struct {
    CUmemAllocationType type;
    CUmemAllocationHandleType requestedHandleTypes;
    CUmemLocation location;
    void *win32HandleMetaData; /* NULL */
    struct {
        unsigned char compressionType;
        unsigned char gpuDirectRDMACapable;
        unsigned short usage;
        unsigned char reserved[4];
    } allocFlags;
} CUmemAllocationProp;

typedef struct {
    CUmemLocation location;
    CUmemAccess_flags flags;
} CUmemAccessDesc;

#endif

/* X(member, name, function, version, parameters). name: the name to look up in the library.
 * function: cuda.h's name of the function in that version. version: the version of CUDA since which
 * the function has this declaration. The oldest usable driver is of the newest of these
 * versions. */
#define DRIVER_TABLE(X)                                                                            \
    X(init, "cuInit", cuInit, 2000, (unsigned int flags))                                          \
    X(driver_version, "cuDriverGetVersion", cuDriverGetVersion, 2020, (int *ret))                  \
    X(error_name, "cuGetErrorName", cuGetErrorName, 6000, (CUresult error, const char **ret))      \
    X(device_count, "cuDeviceGetCount", cuDeviceGetCount, 2000, (int *ret))                        \
    X(device_get, "cuDeviceGet", cuDeviceGet, 2000, (CUdevice * ret, int ordinal))                 \
    X(device_name, "cuDeviceGetName", cuDeviceGetName, 2000,                                       \
      (char *ret, int bytes, CUdevice device))                                                     \
    X(device_uuid, "cuDeviceGetUuid", cuDeviceGetUuid_v2, 11040, (CUuuid * ret, CUdevice device))  \
    X(device_pci, "cuDeviceGetPCIBusId", cuDeviceGetPCIBusId, 4010,                                \
      (char *ret, int bytes, CUdevice device))                                                     \
    X(device_attribute, "cuDeviceGetAttribute", cuDeviceGetAttribute, 2000,                        \
      (int *ret, CUdevice_attribute attribute, CUdevice device))                                   \
    X(device_reaches, "cuDeviceCanAccessPeer", cuDeviceCanAccessPeer, 4000,                        \
      (int *ret, CUdevice device, CUdevice peer))                                                  \
    X(context_retain, "cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain, 7000,                  \
      (CUcontext * ret, CUdevice device))                                                          \
    X(context_release, "cuDevicePrimaryCtxRelease", cuDevicePrimaryCtxRelease_v2, 11000,           \
      (CUdevice device))                                                                           \
    X(context_set, "cuCtxSetCurrent", cuCtxSetCurrent, 4000, (CUcontext context))                  \
    X(context_device, "cuCtxGetDevice", cuCtxGetDevice, 2000, (CUdevice * ret))                    \
    X(mem_info, "cuMemGetInfo", cuMemGetInfo_v2, 3020, (size_t * ret_free, size_t * ret_total))    \
    X(mem_alloc, "cuMemAlloc", cuMemAlloc_v2, 3020, (CUdeviceptr * ret, size_t bytes))             \
    X(mem_free, "cuMemFree", cuMemFree_v2, 3020, (CUdeviceptr at))                                 \
    X(copy_to_device, "cuMemcpyHtoD", cuMemcpyHtoD_v2, 3020,                                       \
      (CUdeviceptr to, const void *from, size_t bytes))                                            \
    X(copy_to_host, "cuMemcpyDtoH", cuMemcpyDtoH_v2, 3020,                                         \
      (void *to, CUdeviceptr from, size_t bytes))                                                  \
    X(put_async, "cuMemcpyHtoDAsync", cuMemcpyHtoDAsync_v2, 3020,                                  \
      (CUdeviceptr to, const void *from, size_t bytes, CUstream stream))                           \
    X(get_async, "cuMemcpyDtoHAsync", cuMemcpyDtoHAsync_v2, 3020,                                  \
      (void *to, CUdeviceptr from, size_t bytes, CUstream stream))                                 \
    X(set_async, "cuMemsetD8Async", cuMemsetD8Async, 3020,                                         \
      (CUdeviceptr at, unsigned char value, size_t n, CUstream stream))                            \
    X(host_alloc, "cuMemHostAlloc", cuMemHostAlloc, 2020,                                          \
      (void **ret, size_t bytes, unsigned int flags))                                              \
    X(host_free, "cuMemFreeHost", cuMemFreeHost, 2000, (void *at))                                 \
    X(copy_async, "cuMemcpyDtoDAsync", cuMemcpyDtoDAsync_v2, 3020,                                 \
      (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))                           \
    X(mem_create, "cuMemCreate", cuMemCreate, 10020,                                               \
      (CUmemGenericAllocationHandle * ret, size_t bytes, const CUmemAllocationProp *prop,          \
       unsigned long long flags))                                                                  \
    X(mem_release, "cuMemRelease", cuMemRelease, 10020, (CUmemGenericAllocationHandle handle))     \
    X(address_reserve, "cuMemAddressReserve", cuMemAddressReserve, 10020,                          \
      (CUdeviceptr * ret, size_t bytes, size_t align, CUdeviceptr at, unsigned long long flags))   \
    X(address_free, "cuMemAddressFree", cuMemAddressFree, 10020, (CUdeviceptr at, size_t bytes))   \
    X(mem_map, "cuMemMap", cuMemMap, 10020,                                                        \
      (CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,           \
       unsigned long long flags))                                                                  \
    X(mem_unmap, "cuMemUnmap", cuMemUnmap, 10020, (CUdeviceptr at, size_t bytes))                  \
    X(mem_access, "cuMemSetAccess", cuMemSetAccess, 10020,                                         \
      (CUdeviceptr at, size_t bytes, const CUmemAccessDesc *v, size_t n))                          \
    X(mem_granularity, "cuMemGetAllocationGranularity", cuMemGetAllocationGranularity, 10020,      \
      (size_t * ret, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags which))     \
    X(mem_export, "cuMemExportToShareableHandle", cuMemExportToShareableHandle, 10020,             \
      (void *ret, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,             \
       unsigned long long flags))                                                                  \
    X(mem_import, "cuMemImportFromShareableHandle", cuMemImportFromShareableHandle, 10020,         \
      (CUmemGenericAllocationHandle * ret, void *handle, CUmemAllocationHandleType type))          \
    X(mem_range_handle, "cuMemGetHandleForAddressRange", cuMemGetHandleForAddressRange, 11070,     \
      (void *ret, CUdeviceptr at, size_t bytes, CUmemRangeHandleType type,                         \
       unsigned long long flags))                                                                  \
    X(module_load, "cuModuleLoadData", cuModuleLoadData, 2000,                                     \
      (CUmodule * ret, const void *image))                                                         \
    X(module_unload, "cuModuleUnload", cuModuleUnload, 2000, (CUmodule module))                    \
    X(module_function, "cuModuleGetFunction", cuModuleGetFunction, 2000,                           \
      (CUfunction * ret, CUmodule module, const char *name))                                       \
    X(launch, "cuLaunchKernel", cuLaunchKernel, 4000,                                              \
      (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,         \
       unsigned int block_x, unsigned int block_y, unsigned int block_z,                           \
       unsigned int shared_bytes, CUstream stream, void **params, void **extra))                   \
    X(stream_create, "cuStreamCreate", cuStreamCreate, 2000, (CUstream * ret, unsigned int flags)) \
    X(stream_destroy, "cuStreamDestroy", cuStreamDestroy_v2, 4000, (CUstream stream))              \
    X(stream_wait, "cuStreamSynchronize", cuStreamSynchronize, 2000, (CUstream stream))            \
    X(stream_wait_event, "cuStreamWaitEvent", cuStreamWaitEvent, 3020,                             \
      (CUstream stream, CUevent event, unsigned int flags))                                        \
    X(stream_write64, "cuStreamWriteValue64", cuStreamWriteValue64_v2, 11070,                      \
      (CUstream stream, CUdeviceptr at, cuuint64_t value, unsigned int flags))                     \
    X(event_create, "cuEventCreate", cuEventCreate, 2000, (CUevent * ret, unsigned int flags))     \
    X(event_destroy, "cuEventDestroy", cuEventDestroy_v2, 4000, (CUevent event))                   \
    X(event_record, "cuEventRecord", cuEventRecord, 2000, (CUevent event, CUstream stream))        \
    X(event_query, "cuEventQuery", cuEventQuery, 2000, (CUevent event))                            \
    X(event_wait, "cuEventSynchronize", cuEventSynchronize, 2000, (CUevent event))                 \
    X(event_ms, "cuEventElapsedTime", cuEventElapsedTime, 2000,                                    \
      (float *ret, CUevent from, CUevent to))                                                      \
    X(context_get, "cuCtxGetCurrent", cuCtxGetCurrent, 4000, (CUcontext * ret))                    \
    X(host_register, "cuMemHostRegister", cuMemHostRegister_v2, 6050,                              \
      (void *at, size_t bytes, unsigned int flags))                                                \
    X(host_unregister, "cuMemHostUnregister", cuMemHostUnregister, 4000, (void *at))               \
    X(host_device_at, "cuMemHostGetDevicePointer", cuMemHostGetDevicePointer_v2, 3020,             \
      (CUdeviceptr * ret, void *at, unsigned int flags))                                           \
    X(host_call, "cuLaunchHostFunc", cuLaunchHostFunc, 10000,                                      \
      (CUstream stream, CUhostFn call, void *with))                                                \
    X(stream_capturing, "cuStreamIsCapturing", cuStreamIsCapturing, 10000,                         \
      (CUstream stream, CUstreamCaptureStatus * ret))

/* All functions are set once driver_open has returned DRIVER_OK. */
struct driver {
    void *library; /* owned */
#define X(member, name, function, version, parameters) CUresult(*member) parameters;
    DRIVER_TABLE(X)
#undef X
};

#define DRIVER_LIBRARY "libcuda.so.1"

enum driver_result {
    DRIVER_OK,
    DRIVER_NO_LIBRARY, /* there is no NVIDIA driver, or the container lacks its library */
    DRIVER_TOO_OLD,    /* a driver from before CUDA 12: it has no cuGetProcAddress_v2 */
    DRIVER_LACKS       /* a function of the table is missing */
};

#define DRIVER_TEXT 160
struct driver_why {
    char text[DRIVER_TEXT]; /* what is missing, and what to do */
};

/* library: DRIVER_LIBRARY, or a stand-in of tests. May allocate and read files: call it at start
 * only. */
enum driver_result driver_open(struct driver *ret, const char *library, struct driver_why *ret_why);
void driver_close(struct driver *d);

/* Returns true if the device is of no more use to this process (fault 21). */
bool driver_is_lost(CUresult result);
/* The driver's name of the error; a static text. */
const char *driver_error_name(const struct driver *d, CUresult result);

/* A device's name in nvidia-smi's form: "GPU-" and a UUID in lower case. */
#define DRIVER_UUID_BYTES 41 /* with the NUL */
void driver_uuid_text(const CUuuid *uuid, char ret[DRIVER_UUID_BYTES]);
/* cuInit has succeeded. NOT_FOUND: this process sees no such device; ret_seen lists the devices
 * that it sees, as many as a host usually has, and says how many more exist and what shows them. */
#define DRIVER_SEEN_MAX   8
#define DRIVER_SEEN_BYTES (DRIVER_SEEN_MAX * DRIVER_UUID_BYTES + 40)
CUresult driver_device_of(const struct driver *d, const char *uuid, CUdevice *ret,
                          char ret_seen[DRIVER_SEEN_BYTES]);

#endif
