/* Memory limits of the process's control group and of each group above it, version 2: a service or
 * a container may have less than the machine's free memory. mem_region.c and the shell's
 * configuration call this at start. An unknown limit counts as none, and is never an error. */
#ifndef SEAM_CGROUP_H
#define SEAM_CGROUP_H

#include <stdint.h>

#define CGROUP_ROOT "" /* `root` below; a test passes a folder with its own proc and sys */

struct cgroup_memory {
    uint64_t most; /* the lowest limit; UINT64_MAX: none */
    uint64_t left; /* the least memory left under any limit; clean page cache counts as free */
};

void cgroup_memory(const char *root, struct cgroup_memory *ret);

#endif
