/* `tern-sim --rdma`, and the seam's planted bugs. */
#ifndef RDMA_RUN_H
#define RDMA_RUN_H

#include <stdbool.h>
#include <stdint.h>

#define RDMA_MAGIC "tern-sim rdma history 1" /* first line of its file */

struct rdma_options {
    uint64_t seeds, first;
    const char *shrink_to;
    bool json, twice, verbose, keep_going;
};

int rdma_run(const struct rdma_options *options);
int rdma_tape(const char *path, bool verbose);

/* Returns false if the seed broke a promise; *ret_what names it. */
bool rdma_seed(uint64_t seed, const char **ret_what);
/* Shrinks the history that has just failed and stores it in DIR/NAME-WHAT.tape. */
void rdma_keep(const char *dir, const char *name, const char *why);

#endif
