/* Limits of memory from control groups, in a /proc and a /sys of the test's own. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "seam/mem/cgroup.h"
#include "testing/test.h"

#define V1_NONE "9223372036854771712\n"

static char root[64];

/* Makes the folders, too. */
static void put(const char *name, const char *text)
{
    char path[512];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *c = path + strlen(root) + 1; (c = strchr(c, '/')) != NULL; c++) {
        *c = '\0';
        assert_true(mkdir(path, 0777) == 0 || errno == EEXIST);
        *c = '/';
    }
    f = fopen(path, "we");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

FIXTURE(make_root)
{
    strcpy(root, "/tmp/tern-cgroup-XXXXXX");
    assert_non_null(mkdtemp(root));
    return 0;
}

FIXTURE(remove_root)
{
    char command[128];

    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

static void expect(uint64_t most, uint64_t left)
{
    struct cgroup_memory got;

    cgroup_memory(root, &got);
    assert_int_equal(got.most, most);
    assert_int_equal(got.left, left);
}

TEST_WITH(cgroup_unknown_is_no_limit, make_root, remove_root)
{
    expect(UINT64_MAX, UINT64_MAX);
    put("proc/self/cgroup", "0::/system.slice/ternd.service\n");
    expect(UINT64_MAX, UINT64_MAX);
    put("sys/fs/cgroup/system.slice/ternd.service/memory.max", "max\n");
    expect(UINT64_MAX, UINT64_MAX);
}

TEST_WITH(cgroup_own_namespace_is_the_root, make_root, remove_root)
{
    put("sys/fs/cgroup/memory.max", "1000000\n");
    put("sys/fs/cgroup/memory.current", "250000\n");
    expect(1000000, 750000); /* without a /proc, too */
    put("proc/self/cgroup", "0::/\n");
    expect(1000000, 750000);
}

TEST_WITH(cgroup_v2_least_limit_on_the_way_up, make_root, remove_root)
{
    put("proc/self/cgroup", "0::/a.slice/b.slice/c.service\n");
    put("sys/fs/cgroup/a.slice/b.slice/c.service/memory.max", "900000\n");
    put("sys/fs/cgroup/a.slice/b.slice/c.service/memory.current", "100000\n");
    expect(900000, 800000);
    put("sys/fs/cgroup/a.slice/memory.max", "500000\n");
    put("sys/fs/cgroup/a.slice/memory.current", "100000\n");
    expect(500000, 400000);
    put("sys/fs/cgroup/a.slice/b.slice/memory.max", "max\n");
    put("sys/fs/cgroup/other.slice/memory.max", "1\n");
    expect(500000, 400000);
    /* A larger limit that others have nearly used up leaves the least. */
    put("sys/fs/cgroup/a.slice/b.slice/memory.max", "2000000\n");
    put("sys/fs/cgroup/a.slice/b.slice/memory.current", "1990000\n");
    expect(500000, 10000);
    put("sys/fs/cgroup/a.slice/b.slice/memory.current", "2100000\n");
    expect(500000, 0);
}

TEST_WITH(cgroup_clean_page_cache_is_free, make_root, remove_root)
{
    put("proc/self/cgroup", "0::/s\n");
    put("sys/fs/cgroup/s/memory.max", "1000000\n");
    put("sys/fs/cgroup/s/memory.current", "950000\n");
    put("sys/fs/cgroup/s/memory.stat", "anon 50000\ninactive_anon 7\ninactive_file 800000\n");
    expect(1000000, 850000);
}

TEST_WITH(cgroup_v1_memory_controller, make_root, remove_root)
{
    put("proc/self/cgroup", "5:devices:/d\n4:cpu,memory:/job/x\n3:notmemory:/n\n0::/u\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", V1_NONE);
    put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", V1_NONE);
    put("sys/fs/cgroup/memory/n/memory.limit_in_bytes", "1\n");
    expect(UINT64_MAX, UINT64_MAX);
    put("sys/fs/cgroup/memory/job/x/memory.limit_in_bytes", "600000\n");
    put("sys/fs/cgroup/memory/job/x/memory.usage_in_bytes", "300000\n");
    put("sys/fs/cgroup/memory/job/x/memory.stat", "inactive_file 5\ntotal_inactive_file 100000\n");
    expect(600000, 400000);
    put("sys/fs/cgroup/unified/u/memory.max", "70000\n"); /* whichever hierarchy has memory */
    expect(70000, 70000);
}

/* The host's path is not there, and the mounted root is the container's own group. */
TEST_WITH(cgroup_path_of_another_namespace_falls_back_to_the_root, make_root, remove_root)
{
    put("proc/self/cgroup", "4:memory:/docker/0123\n0::/../../host.slice\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "400000\n");
    put("sys/host.slice/memory.max", "1\n");
    expect(400000, 400000);
}
