/* The NUMA nodes of memory, of the CPUs that we may run on, and of devices. Nodes are bits of a
 * mask; 0 and -1 mean not known (one node, an old kernel, a container that hides it), and are never
 * an error. Called at start by mem_host.c, cuda/mem_cuda.c and verbs/device/rail.c. Also reads
 * numbers from kernel files. */
#ifndef SEAM_NUMA_H
#define SEAM_NUMA_H

#include <stdbool.h>
#include <stdint.h>

#define NUMA_NODES_MAX 64
#define NUMA_SYS       "/sys" /* `sys` below, unless a test passes another */

uint64_t numa_of_memory(const uint8_t *base, uint64_t bytes); /* by samples */
uint64_t numa_of_cpus(const char *sys);
int numa_of_device(const char *folder);                /* in sysfs */
int numa_of_pci(const char *sys, const char *address); /* in upper or lower case */
int numa_of_rdma_device(const char *sys, const char *device);
/* Returns the distance that the firmware reports, 10 within a node. -1: not known. */
int numa_distance(const char *sys, int from, int to);
/* Returns the distance to the nearest of some nodes. */
int numa_nearest(const char *sys, int from, uint64_t nodes);

/* Gets the number after `key` at the start of a line. Returns false if there is none, as with
 * "max". */
bool file_number(const char *path, const char *key, int base, uint64_t *ret);

#endif
