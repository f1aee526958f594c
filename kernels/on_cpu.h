/* Kernels on the CPU: what a C++ compiler needs to read them. To run a kernel, the caller sets the
 * indices, and runs the threads of a block one after the other, each up to the next barrier: see
 * tests/unit/kernels/on_cpu.cc. `__shared__` is one memory for all blocks, since one block runs at
 * a time; it starts with the bytes of the previous block. */
#ifndef KERNELS_ON_CPU_H
#define KERNELS_ON_CPU_H

#include <stdint.h>
#include <string.h>

#define __global__
#define __device__
#define __constant__
#define __forceinline__ inline
#define __shared__      static

struct on_cpu_index {
    unsigned x; /* kernels have one dimension */
};

struct alignas(16) ulonglong2 {
    unsigned long long x, y;
};

extern struct on_cpu_index threadIdx, blockIdx, blockDim, gridDim;

void on_cpu_barrier();
#define __syncthreads on_cpu_barrier

#endif
