/* With NVIDIA's header. The compiler checks that the functions of the table have NVIDIA's
 * declarations, since each is declared here a second time. */
#include <cuda.h>

#include "kernels/driver.h"
#include "unit/kernels/driver_facts.h"

#if CUDA_VERSION < 12080 /* it has no counterpart */
#define CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE 1
#endif

#define X(member, name, function, version, parameters) CUresult CUDAAPI function parameters;
DRIVER_TABLE(X)
#undef X

const struct driver_fact facts_cuda[] = {DRIVER_FACTS(FACT_SIZE, FACT_PLACE, FACT_VALUE)};
const size_t facts_cuda_n = sizeof facts_cuda / sizeof facts_cuda[0];
