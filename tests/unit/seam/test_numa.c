/* Nodes of memory, CPUs and devices, from a /sys of the test's own. */

#include <sys/mman.h>

#include "seam/mem/numa.h"
#include "unit/rig/rig_dir.h"

/* Nodes 0, 1 and 3: one was removed. */
FIXTURE(make_sys)
{
    make_dir(NULL);
    put_file("devices/system/node/node0/distance", "10 21 31\n");
    put_file("devices/system/node/node1/distance", "21 10 21\n");
    put_file("devices/system/node/node3/distance", "31 21 10\n");
    put_file("devices/system/node/node0/cpulist", "\n");
    put_file("devices/system/node/node1/cpulist", "0-1023\n");
    put_file("devices/system/node/node3/cpulist", "100000,100002-100003\n");
    put_file("devices/system/node/node4/cpulist", "100000,0-1023\n");
    put_file("class/infiniband/near/device/numa_node", "1\n");
    put_file("class/infiniband/far/device/numa_node", "3\n");
    put_file("class/infiniband/virtual/device/numa_node", "-1\n");
    put_file("bus/pci/devices/0000:aa:00.0/numa_node", "3\n");
    return 0;
}

TEST_GROUP(make_sys, remove_dir);

TEST(numa_device_is_on_the_node_that_sysfs_names)
{
    assert_int_equal(numa_of_rdma_device(dir, "near"), 1);
    assert_int_equal(numa_of_rdma_device(dir, "far"), 3);
    assert_int_equal(numa_of_rdma_device(dir, "virtual"), -1);
    assert_int_equal(numa_of_rdma_device(dir, "none"), -1);
}

TEST(numa_address_is_found_in_either_case_of_letters)
{
    assert_int_equal(numa_of_pci(dir, "0000:AA:00.0"), 3);
    assert_int_equal(numa_of_pci(dir, "0000:aa:00.0"), 3);
    assert_int_equal(numa_of_pci(dir, "0000:ab:00.0"), -1);
    assert_int_equal(numa_of_pci(dir, ""), -1);
}

TEST(numa_distance_counts_the_nodes_that_are_there)
{
    assert_int_equal(numa_distance(dir, 0, 0), 10);
    assert_int_equal(numa_distance(dir, 0, 1), 21);
    assert_int_equal(numa_distance(dir, 0, 3), 31);
    assert_int_equal(numa_distance(dir, 3, 1), 21);
    assert_int_equal(numa_distance(dir, 0, 2), -1);
    assert_int_equal(numa_distance(dir, 2, 0), -1);
    assert_int_equal(numa_distance(dir, -1, 0), -1);
    assert_int_equal(numa_nearest(dir, 0, 1u << 1 | 1u << 3), 21);
    assert_int_equal(numa_nearest(dir, 3, 1u << 3), 10);
    assert_int_equal(numa_nearest(dir, 3, 0), -1);
}

TEST(numa_of_cpus_is_where_we_may_run)
{
    assert_int_equal(numa_of_cpus(dir), 1u << 1 | 1u << 4);
    assert_int_equal(numa_of_cpus("/nowhere"), 0);
}

TEST(numa_of_memory_is_known_or_not)
{
    uint8_t *at = mmap(NULL, 1u << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(at, MAP_FAILED);
    assert_int_equal(numa_of_memory(at, 1u << 20), 0); /* nobody has touched it */
    memset(at, 1, 1u << 20);
    if (numa_of_memory(at, 1u << 20) != 0) /* a container may not ask */
        assert_true(__builtin_popcountll(numa_of_memory(at, 1u << 20)) >= 1);
    assert_int_equal(numa_of_memory(at, 0), 0);
    munmap(at, 1u << 20);
}
