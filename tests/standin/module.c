/* The module of the programs that link this file, in place of the build's own module, if any: tests
 * that use kernels are the same with nvcc and without. */
#include "standin/module.h"
#include "kernels/kernels.h"

const void *kernels_fatbin(size_t *ret_bytes)
{
    *ret_bytes = sizeof STANDIN_MODULE;
    return STANDIN_MODULE;
}
