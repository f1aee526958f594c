/* Memory limits of the process's control group and of each one above it, version 2: what is free on
 * the machine says nothing where a service or a container has a limit. mem_region.c and the shell's
 * configuration call this at start. A limit that is not known is none, never an error. */
#ifndef SEAM_CGROUP_H
#define SEAM_CGROUP_H

#include <stdint.h>

#define CGROUP_ROOT "" /* `root` below; a test has a folder with a proc and a sys of its own */

struct cgroup_memory {
    uint64_t most; /* the least limit; UINT64_MAX: none */
    uint64_t left; /* the least that one of them leaves; clean page cache counts as free */
};

void cgroup_memory(const char *root, struct cgroup_memory *ret);

#endif
