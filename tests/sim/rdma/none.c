/* A build without libibverbs: there is no RDMA code to run. */
#include "run.h"

#include <stdio.h>

const bool rdma_built = false;

static int none(void)
{
    fprintf(stderr, "tern-sim: this build has no RDMA (libibverbs was not found)\n");
    return 77;
}

int rdma_run(const struct rdma_options *options)
{
    (void)options;
    return none();
}

int rdma_tape(const char *path, bool verbose)
{
    (void)path, (void)verbose;
    return none();
}

void rdma_keep(const char *dir, const char *name, const char *why)
{
    (void)dir, (void)name, (void)why;
}

bool rdma_seed(uint64_t seed, const char **ret_what)
{
    (void)seed;
    *ret_what = "";
    return true;
}
