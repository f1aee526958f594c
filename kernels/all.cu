/* All kernels as one module. */
#include "kernels/pages.cu"
