/* Words of the launch's own arguments. */
#include "kernels/device.h"

extern "C" __global__ void tern_tell(struct kernels_told a)
{
    for (uint32_t i = threadIdx.x; i < a.n; i += KERNELS_THREADS)
        memory<uint32_t>(a.to)[i] = a.word[i];
}
