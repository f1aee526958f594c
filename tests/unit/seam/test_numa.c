/* Nodes of memory, CPUs and devices, from a /sys of the test's own. */

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "seam/mem/numa.h"
#include "testing/test.h"

static char sys[64];

/* Makes the folders, too. */
static void put(const char *name, const char *text)
{
    char path[512];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", sys, name);
    for (char *c = path + strlen(sys) + 1; (c = strchr(c, '/')) != NULL; c++) {
        *c = '\0';
        assert_true(mkdir(path, 0777) == 0 || errno == EEXIST);
        *c = '/';
    }
    f = fopen(path, "we");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* Nodes 0, 1 and 3: one was taken out. */
FIXTURE(make_sys)
{
    strcpy(sys, "/tmp/tern-numa-XXXXXX");
    assert_non_null(mkdtemp(sys));
    put("devices/system/node/node0/distance", "10 21 31\n");
    put("devices/system/node/node1/distance", "21 10 21\n");
    put("devices/system/node/node3/distance", "31 21 10\n");
    put("devices/system/node/node0/cpulist", "\n");
    put("devices/system/node/node1/cpulist", "0-1023\n");
    put("devices/system/node/node3/cpulist", "100000,100002-100003\n");
    put("class/infiniband/near/device/numa_node", "1\n");
    put("class/infiniband/far/device/numa_node", "3\n");
    put("class/infiniband/virtual/device/numa_node", "-1\n");
    return 0;
}

FIXTURE(remove_sys)
{
    char command[128];

    snprintf(command, sizeof command, "rm -r %s", sys);
    return system(command);
}

TEST_GROUP(make_sys, remove_sys);

TEST(numa_device_is_on_the_node_that_sysfs_names)
{
    assert_int_equal(numa_of_rdma_device(sys, "near"), 1);
    assert_int_equal(numa_of_rdma_device(sys, "far"), 3);
    assert_int_equal(numa_of_rdma_device(sys, "virtual"), -1);
    assert_int_equal(numa_of_rdma_device(sys, "none"), -1);
}

TEST(numa_distance_counts_the_nodes_that_are_there)
{
    assert_int_equal(numa_distance(sys, 0, 0), 10);
    assert_int_equal(numa_distance(sys, 0, 1), 21);
    assert_int_equal(numa_distance(sys, 0, 3), 31);
    assert_int_equal(numa_distance(sys, 3, 1), 21);
    assert_int_equal(numa_distance(sys, 0, 2), -1);
    assert_int_equal(numa_distance(sys, 2, 0), -1);
    assert_int_equal(numa_distance(sys, -1, 0), -1);
    assert_int_equal(numa_nearest(sys, 0, 1u << 1 | 1u << 3), 21);
    assert_int_equal(numa_nearest(sys, 3, 1u << 3), 10);
    assert_int_equal(numa_nearest(sys, 3, 0), -1);
}

TEST(numa_of_cpus_is_where_we_may_run)
{
    assert_int_equal(numa_of_cpus(sys), 1u << 1);
    assert_int_equal(numa_of_cpus("/nowhere"), 0);
}

TEST(numa_of_memory_is_known_or_not)
{
    uint8_t *at = mmap(NULL, 1u << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(at, MAP_FAILED);
    assert_int_equal(numa_of_memory(at, 1u << 20), 0); /* nobody touched it */
    memset(at, 1, 1u << 20);
    if (numa_of_memory(at, 1u << 20) != 0) /* a container may not ask */
        assert_true(__builtin_popcountll(numa_of_memory(at, 1u << 20)) >= 1);
    assert_int_equal(numa_of_memory(at, 0), 0);
    munmap(at, 1u << 20);
}
