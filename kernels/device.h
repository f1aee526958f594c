/* Included first by the sources of kernels. nvcc has all of this built in; a C++ compiler gets it
 * from on_cpu.h. Only *.cu include this. */
#ifndef KERNELS_DEVICE_H
#define KERNELS_DEVICE_H

#ifndef __CUDACC__
#include "kernels/on_cpu.h"
#endif

#include "kernels/kernels.h"

static __device__ __forceinline__ uint32_t divide(const struct kernels_divisor *d, uint32_t n)
{
    return (uint32_t)((uint64_t)n * d->times >> d->shift);
}

/* Memory at an address of the arguments, such as a list. */
template <typename T> static __device__ __forceinline__ T *memory(uint64_t at)
{
    return reinterpret_cast<T *>(static_cast<uintptr_t>(at));
}

#endif
