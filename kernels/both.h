/* Functions and constants that a kernel and its reference share. */
#ifndef KERNELS_BOTH_H
#define KERNELS_BOTH_H

#include <stdint.h>

#ifdef __CUDACC__
#define KERNELS_FN    static __device__ __forceinline__
#define KERNELS_CONST static __constant__ const
#define KERNELS_LOOP  _Pragma("unroll 1") /* for a rare loop, whose code stays small */
/* Keeps the value of a 64-bit variable in a register, where nvcc would read a constant again. */
#define KERNELS_KEEP(v) asm volatile("" : "+l"(v))
#else
#define KERNELS_FN    static inline
#define KERNELS_CONST static const
#define KERNELS_LOOP
#define KERNELS_KEEP(v)
#endif

#endif
