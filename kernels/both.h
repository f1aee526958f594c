/* Functions and constants that a kernel and its reference share. */
#ifndef KERNELS_BOTH_H
#define KERNELS_BOTH_H

#include <stdint.h>

#ifdef __CUDACC__
#define KERNELS_FN    static __device__ __forceinline__
#define KERNELS_CONST static __constant__ const
#define KERNELS_LOOP  _Pragma("unroll 1") /* one that is rare, and stays small */
#else
#define KERNELS_FN    static inline
#define KERNELS_CONST static const
#define KERNELS_LOOP
#endif

#endif
