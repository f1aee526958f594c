/* All kernels as one module. */
#include "kernels/checksum.cu"
#include "kernels/fp8.cu"
#include "kernels/pages.cu"
#include "kernels/reshard.cu"
#include "kernels/tell.cu"
