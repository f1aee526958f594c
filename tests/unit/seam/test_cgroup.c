/* Memory limits of control groups, in a /proc and a /sys of the test's own. */
#include "seam/mem/cgroup.h"
#include "unit/rig/rig_dir.h"

static void expect(uint64_t most, uint64_t left)
{
    struct cgroup_memory got;

    cgroup_memory(dir, &got);
    assert_int_equal(got.most, most);
    assert_int_equal(got.left, left);
}

TEST_WITH(cgroup_unknown_is_no_limit, make_dir, remove_dir)
{
    expect(UINT64_MAX, UINT64_MAX);
    put_file("proc/self/cgroup", "0::/system.slice/ternd.service\n");
    expect(UINT64_MAX, UINT64_MAX);
    put_file("sys/fs/cgroup/system.slice/ternd.service/memory.max", "max\n");
    expect(UINT64_MAX, UINT64_MAX);
}

TEST_WITH(cgroup_own_namespace_is_the_root, make_dir, remove_dir)
{
    put_file("sys/fs/cgroup/memory.max", "1000000\n");
    put_file("sys/fs/cgroup/memory.current", "250000\n");
    expect(1000000, 750000); /* without a /proc, too */
    put_file("proc/self/cgroup", "0::/\n");
    expect(1000000, 750000);
}

TEST_WITH(cgroup_v2_least_limit_on_the_way_up, make_dir, remove_dir)
{
    put_file("proc/self/cgroup", "0::/a.slice/b.slice/c.service\n");
    put_file("sys/fs/cgroup/a.slice/b.slice/c.service/memory.max", "900000\n");
    put_file("sys/fs/cgroup/a.slice/b.slice/c.service/memory.current", "100000\n");
    expect(900000, 800000);
    put_file("sys/fs/cgroup/a.slice/memory.max", "500000\n");
    put_file("sys/fs/cgroup/a.slice/memory.current", "100000\n");
    expect(500000, 400000);
    put_file("sys/fs/cgroup/a.slice/b.slice/memory.max", "max\n");
    put_file("sys/fs/cgroup/other.slice/memory.max", "1\n");
    expect(500000, 400000);
    /* A larger limit that is nearly used up leaves the least. */
    put_file("sys/fs/cgroup/a.slice/b.slice/memory.max", "2000000\n");
    put_file("sys/fs/cgroup/a.slice/b.slice/memory.current", "1990000\n");
    expect(500000, 10000);
    put_file("sys/fs/cgroup/a.slice/b.slice/memory.current", "2100000\n");
    expect(500000, 0);
}

TEST_WITH(cgroup_clean_page_cache_is_free, make_dir, remove_dir)
{
    put_file("proc/self/cgroup", "0::/s\n");
    put_file("sys/fs/cgroup/s/memory.max", "1000000\n");
    put_file("sys/fs/cgroup/s/memory.current", "950000\n");
    put_file("sys/fs/cgroup/s/memory.stat", "anon 50000\ninactive_anon 7\ninactive_file 800000\n");
    expect(1000000, 850000);
}

/* The host's path does not exist, and the mounted root is the container's own group. */
TEST_WITH(cgroup_path_of_another_namespace_falls_back_to_the_root, make_dir, remove_dir)
{
    put_file("proc/self/cgroup", "1:name=systemd:/docker/0123\n0::/../../host.slice\n");
    put_file("sys/fs/cgroup/memory.max", "400000\n");
    put_file("sys/host.slice/memory.max", "1\n");
    expect(400000, 400000);
}
