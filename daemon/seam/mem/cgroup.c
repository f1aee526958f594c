/* See cgroup.h. A limit applies to all groups below it, so this walks from the process's group to
 * the root of the hierarchy. In a container /proc may show a path of the host that is not visible;
 * then the mounted root is the container's own group, and the walk ends there. */
#include "seam/mem/cgroup.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "seam/mem/numa.h"

static bool number(const char *folder, const char *name, const char *key, uint64_t *ret)
{
    char path[2 * PATH_MAX];

    return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path &&
           file_number(path, key, 10, ret);
}

static void look(const char *folder, struct cgroup_memory *ret)
{
    uint64_t most, used = 0, cache = 0, left;

    if (!number(folder, "memory.max", "", &most))
        return;
    number(folder, "memory.current", "", &used);
    number(folder, "memory.stat", "inactive_file ", &cache);
    used -= cache < used ? cache : used;
    left = used < most ? most - used : 0;
    ret->most = most < ret->most ? most : ret->most;
    ret->left = left < ret->left ? left : ret->left;
}

/* Writes the path of the process's group; "" if it is not known, or not visible in this
 * namespace. */
static void group_of_process(const char *root, char ret[PATH_MAX])
{
    char line[PATH_MAX], name[PATH_MAX];
    FILE *f = NULL;

    *ret = '\0';
    if (snprintf(name, sizeof name, "%s/proc/self/cgroup", root) < (int)sizeof name)
        f = fopen(name, "re");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "0::", 3) == 0 && !strstr(line, "/.."))
            snprintf(ret, PATH_MAX, "%.*s", (int)strcspn(line + 3, "\n"), line + 3);
    if (f)
        fclose(f);
}

void cgroup_memory(const char *root, struct cgroup_memory *ret)
{
    char group[PATH_MAX], folder[2 * PATH_MAX], *cut;

    *ret = (struct cgroup_memory){.most = UINT64_MAX, .left = UINT64_MAX};
    group_of_process(root, group);
    do {
        if (snprintf(folder, sizeof folder, "%s/sys/fs/cgroup%s", root, group) < (int)sizeof folder)
            look(folder, ret);
        cut = strrchr(group, '/');
        if (cut)
            *cut = '\0';
    } while (cut);
}
