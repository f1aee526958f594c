/* `tern-sim --rdma`, and the seam's planted bugs. A build without libibverbs has neither. */
#ifndef RDMA_RUN_H
#define RDMA_RUN_H

#include <stdbool.h>
#include <stdint.h>

struct rdma_options {
    uint64_t seeds, first;
    bool json, twice, verbose, keep_going;
};

extern const bool rdma_built;

int rdma_run(const struct rdma_options *options);

/* False: the seed broke a promise; what is said in *ret_what. */
bool rdma_seed(uint64_t seed, const char **ret_what);

#endif
