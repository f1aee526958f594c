/* All definitions of CUDA's types in kernels/driver.h, as numbers. The array is made twice, from
 * driver.h and from cuda.h, by files that include this behind the one or the other. */
#ifndef TEST_KERNELS_DRIVER_FACTS_H
#define TEST_KERNELS_DRIVER_FACTS_H

#include <stddef.h>

struct driver_fact {
    const char *name;
    long long value;
};

#define DRIVER_FACTS(SIZE, PLACE, VALUE)                                                           \
    SIZE(CUresult)                                                                                 \
    SIZE(CUdevice_attribute)                                                                       \
    SIZE(CUmemAllocationType)                                                                      \
    SIZE(CUmemAllocationHandleType)                                                                \
    SIZE(CUmemLocationType)                                                                        \
    SIZE(CUmemAccess_flags)                                                                        \
    SIZE(CUmemAllocationGranularity_flags)                                                         \
    SIZE(CUmemRangeHandleType)                                                                     \
    SIZE(CUdriverProcAddressQueryResult)                                                           \
    SIZE(CUdevice)                                                                                 \
    SIZE(CUdeviceptr)                                                                              \
    SIZE(CUmemGenericAllocationHandle)                                                             \
    SIZE(cuuint64_t)                                                                               \
    SIZE(CUcontext)                                                                                \
    SIZE(CUmodule)                                                                                 \
    SIZE(CUfunction)                                                                               \
    SIZE(CUstream)                                                                                 \
    SIZE(CUevent)                                                                                  \
    SIZE(CUuuid)                                                                                   \
    SIZE(CUmemLocation)                                                                            \
    SIZE(CUmemAllocationProp)                                                                      \
    SIZE(CUmemAccessDesc)                                                                          \
    PLACE(CUmemLocation, type)                                                                     \
    PLACE(CUmemLocation, id)                                                                       \
    PLACE(CUmemAllocationProp, type)                                                               \
    PLACE(CUmemAllocationProp, requestedHandleTypes)                                               \
    PLACE(CUmemAllocationProp, location)                                                           \
    PLACE(CUmemAllocationProp, win32HandleMetaData)                                                \
    PLACE(CUmemAllocationProp, allocFlags.compressionType)                                         \
    PLACE(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable)                                    \
    PLACE(CUmemAllocationProp, allocFlags.usage)                                                   \
    PLACE(CUmemAccessDesc, location)                                                               \
    PLACE(CUmemAccessDesc, flags)                                                                  \
    VALUE(CUDA_SUCCESS)                                                                            \
    VALUE(CUDA_ERROR_INVALID_VALUE)                                                                \
    VALUE(CUDA_ERROR_INVALID_DEVICE)                                                               \
    VALUE(CUDA_ERROR_INVALID_CONTEXT)                                                              \
    VALUE(CUDA_ERROR_OUT_OF_MEMORY)                                                                \
    VALUE(CUDA_ERROR_NO_DEVICE)                                                                    \
    VALUE(CUDA_ERROR_NO_BINARY_FOR_GPU)                                                            \
    VALUE(CUDA_ERROR_ECC_UNCORRECTABLE)                                                            \
    VALUE(CUDA_ERROR_NOT_FOUND)                                                                    \
    VALUE(CUDA_ERROR_NOT_READY)                                                                    \
    VALUE(CUDA_ERROR_ILLEGAL_ADDRESS)                                                              \
    VALUE(CUDA_ERROR_LAUNCH_TIMEOUT)                                                               \
    VALUE(CUDA_ERROR_ASSERT)                                                                       \
    VALUE(CUDA_ERROR_HARDWARE_STACK_ERROR)                                                         \
    VALUE(CUDA_ERROR_ILLEGAL_INSTRUCTION)                                                          \
    VALUE(CUDA_ERROR_MISALIGNED_ADDRESS)                                                           \
    VALUE(CUDA_ERROR_INVALID_ADDRESS_SPACE)                                                        \
    VALUE(CUDA_ERROR_INVALID_PC)                                                                   \
    VALUE(CUDA_ERROR_LAUNCH_FAILED)                                                                \
    VALUE(CUDA_ERROR_NOT_SUPPORTED)                                                                \
    VALUE(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)                                                \
    VALUE(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)                                            \
    VALUE(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)                                            \
    VALUE(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)                                 \
    VALUE(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)                         \
    VALUE(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)                             \
    VALUE(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED)                                           \
    VALUE(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED)                                                   \
    VALUE(CU_DEVICE_ATTRIBUTE_MPS_ENABLED)                                                         \
    VALUE(CU_MEM_ALLOCATION_TYPE_PINNED)                                                           \
    VALUE(CU_MEM_HANDLE_TYPE_NONE)                                                                 \
    VALUE(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)                                                \
    VALUE(CU_MEM_LOCATION_TYPE_DEVICE)                                                             \
    VALUE(CU_MEM_ACCESS_FLAGS_PROT_NONE)                                                           \
    VALUE(CU_MEM_ACCESS_FLAGS_PROT_READ)                                                           \
    VALUE(CU_MEM_ACCESS_FLAGS_PROT_READWRITE)                                                      \
    VALUE(CU_MEM_ALLOC_GRANULARITY_MINIMUM)                                                        \
    VALUE(CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)                                                    \
    VALUE(CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD)                                                     \
    VALUE(CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE)                                             \
    VALUE(CU_STREAM_NON_BLOCKING)                                                                  \
    VALUE(CU_EVENT_DEFAULT)                                                                        \
    VALUE(CU_EVENT_DISABLE_TIMING)                                                                 \
    VALUE(CU_STREAM_WRITE_VALUE_DEFAULT)                                                           \
    VALUE(CU_GET_PROC_ADDRESS_SUCCESS)                                                             \
    VALUE(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND)                                                    \
    VALUE(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT)                                              \
    VALUE(CU_GET_PROC_ADDRESS_DEFAULT)                                                             \
    SIZE(CUstreamCaptureStatus)                                                                    \
    SIZE(CUhostFn)                                                                                 \
    VALUE(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)                                               \
    VALUE(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)                                                   \
    VALUE(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED)                                             \
    VALUE(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS)                                       \
    VALUE(CU_STREAM_CAPTURE_STATUS_NONE)                                                           \
    VALUE(CU_MEMHOSTREGISTER_PORTABLE)                                                             \
    VALUE(CU_MEMHOSTREGISTER_DEVICEMAP)

#define FACT_SIZE(type)         {"sizeof " #type, (long long)sizeof(type)},
#define FACT_PLACE(type, field) {#type "." #field, (long long)offsetof(type, field)},
#define FACT_VALUE(name)        {#name, (long long)(name)},

extern const struct driver_fact facts_ours[], facts_cuda[];
extern const size_t facts_ours_n, facts_cuda_n;

#endif
