/* A build without libibverbs: there is no RDMA code to run. */
#include "run.h"

#include <stdio.h>

const bool rdma_built = false;

int rdma_run(const struct rdma_options *options)
{
    (void)options;
    fprintf(stderr, "tern-sim: this build has no RDMA (libibverbs was not found)\n");
    return 77;
}

bool rdma_seed(uint64_t seed, const char **ret_what)
{
    (void)seed;
    *ret_what = "";
    return true;
}
