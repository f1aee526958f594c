/* See numa.h. */
#include "seam/mem/numa.h"

#include <ctype.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE_BYTES 4096u
#define SAMPLES    256u
#define PATH_BYTES 1024u /* of a file in sysfs */

uint64_t numa_of_memory(const uint8_t *base, uint64_t bytes)
{
    uint64_t pages = bytes / PAGE_BYTES, n = pages < SAMPLES ? pages : SAMPLES, nodes = 0;
    const void *at[SAMPLES];
    int status[SAMPLES];

    for (uint64_t i = 0; i < n; i++)
        at[i] = base + pages / n * i * PAGE_BYTES;
    if (n == 0 || syscall(SYS_move_pages, 0, n, at, NULL, status, 0) < 0)
        return 0;
    for (uint64_t i = 0; i < n; i++)
        if (status[i] >= 0 && status[i] < NUMA_NODES_MAX)
            nodes |= (uint64_t)1 << status[i];
    return nodes;
}

bool file_number(const char *path, const char *key, int base, uint64_t *ret)
{
    char line[256], *end;
    bool found = false;
    FILE *f = fopen(path, "re");

    if (!f)
        return false;
    while (!found && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0) {
            unsigned long long value = strtoull(line + strlen(key), &end, base);

            found = end != line + strlen(key);
            *ret = found ? value : *ret;
        }
    fclose(f);
    return found;
}

static FILE *node_file(const char *sys, int node, const char *name)
{
    char path[256];

    snprintf(path, sizeof path, "%s/devices/system/node/node%d/%s", sys, node, name);
    return fopen(path, "re");
}

/* Parses a list such as "0-3,8-11". */
static int list_meets(FILE *f, const cpu_set_t *set)
{
    int first, last, c = ',';

    while (c == ',' && fscanf(f, "%d", &first) == 1) {
        last = first;
        c = fgetc(f);
        if (c == '-') {
            if (fscanf(f, "%d", &last) != 1)
                return 0;
            c = fgetc(f);
        }
        for (int cpu = first < 0 ? 0 : first; cpu <= last && cpu < CPU_SETSIZE; cpu++)
            if (CPU_ISSET((size_t)cpu, set))
                return 1;
    }
    return 0;
}

uint64_t numa_of_cpus(const char *sys)
{
    uint64_t nodes = 0;
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 0;
    for (int node = 0; node < NUMA_NODES_MAX; node++) {
        FILE *f = node_file(sys, node, "cpulist");

        if (!f)
            continue;
        if (list_meets(f, &set))
            nodes |= (uint64_t)1 << node;
        fclose(f);
    }
    return nodes;
}

int numa_of_device(const char *folder)
{
    char path[PATH_BYTES];
    uint64_t node; /* -1, read as a large number: not known */

    return snprintf(path, sizeof path, "%s/numa_node", folder) < (int)sizeof path &&
                   file_number(path, "", 10, &node) && node < NUMA_NODES_MAX
               ? (int)node
               : -1;
}

int numa_of_pci(const char *sys, const char *address)
{
    char folder[PATH_BYTES / 2];
    size_t at = (size_t)snprintf(folder, sizeof folder, "%s/bus/pci/devices/", sys);

    for (; *address && at + 1 < sizeof folder; at++, address++)
        folder[at] = (char)tolower((unsigned char)*address);
    folder[at < sizeof folder ? at : sizeof folder - 1] = '\0';
    return numa_of_device(folder);
}

int numa_of_rdma_device(const char *sys, const char *device)
{
    char folder[PATH_BYTES / 2];

    snprintf(folder, sizeof folder, "%s/class/infiniband/%s/device", sys, device);
    return numa_of_device(folder);
}

/* The file has a number for each existing node, in their order. */
int numa_distance(const char *sys, int from, int to)
{
    int distance = -1;
    FILE *f, *there;

    f = from >= 0 && to >= 0 ? node_file(sys, from, "distance") : NULL;
    for (int node = 0; f && node <= to; node++) {
        there = node_file(sys, node, "distance");
        if (there && fscanf(f, "%d", &distance) != 1)
            distance = -1;
        if (!there && node == to)
            distance = -1;
        if (there)
            fclose(there);
    }
    if (f)
        fclose(f);
    return distance;
}

int numa_nearest(const char *sys, int from, uint64_t nodes)
{
    int nearest = -1;

    for (int node = 0; node < NUMA_NODES_MAX; node++) {
        int d = nodes >> node & 1 ? numa_distance(sys, from, node) : -1;

        if (d >= 0 && (nearest < 0 || d < nearest))
            nearest = d;
    }
    return nearest;
}
