/* See cgroup.h. A limit holds for all that is below it, so the way from the process's group to the
 * root of the hierarchy is walked. In a container the path of /proc may be one of the host's that
 * cannot be seen; then the mounted root is the container's own group, and the walk ends there. */
#include "seam/mem/cgroup.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "seam/mem/numa.h"

#define LIMIT_NONE (UINT64_MAX / 4) /* version 1 has no word for it, only a very large number */

/* Where a hierarchy that may know of memory is mounted, and its files. */
struct hierarchy {
    const char *mount, *limit, *used, *cache;
    bool unified;
};

static const struct hierarchy hierarchies[] = {
    {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file ", true},
    {"/sys/fs/cgroup/unified", "memory.max", "memory.current", "inactive_file ", true},
    {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "total_inactive_file ", false},
};

static bool number(const char *folder, const char *name, const char *key, uint64_t *ret)
{
    char path[2 * PATH_MAX];

    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return false;
    return file_number(path, key, 10, ret);
}

static void look(const struct hierarchy *h, const char *folder, struct cgroup_memory *ret)
{
    uint64_t most, used = 0, cache = 0, left;

    if (!number(folder, h->limit, "", &most) || most >= LIMIT_NONE)
        return;
    number(folder, h->used, "", &used);
    number(folder, "memory.stat", h->cache, &cache);
    used -= cache < used ? cache : used;
    left = used < most ? most - used : 0;
    ret->most = most < ret->most ? most : ret->most;
    ret->left = left < ret->left ? left : ret->left;
}

/* `path` as in /proc/self/cgroup, "" or "/" for the root alone; it is cut up. */
static void walk(const struct hierarchy *h, const char *root, char *path, struct cgroup_memory *ret)
{
    char folder[2 * PATH_MAX];

    if (strstr(path, "/..")) /* outside of what this namespace shows */
        *path = '\0';
    for (;;) {
        char *cut;

        if (snprintf(folder, sizeof folder, "%s%s%s", root, h->mount, path) < (int)sizeof folder)
            look(h, folder, ret);
        cut = strrchr(path, '/');
        if (!cut)
            return;
        *cut = '\0';
    }
}

static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);

    for (const char *at = list; (at = strstr(at, word)) != NULL; at += n)
        if ((at == list || at[-1] == ',') && (at[n] == ',' || at[n] == '\0'))
            return true;
    return false;
}

/* A line NUMBER:CONTROLLERS:PATH; of version 2 the controllers are none. */
static bool path_of(const struct hierarchy *h, char *line, char **ret_path)
{
    char *controllers = strchr(line, ':'),
         *path = controllers ? strchr(controllers + 1, ':') : NULL;

    if (!path)
        return false;
    *controllers++ = '\0';
    *path++ = '\0';
    path[strcspn(path, "\n")] = '\0';
    *ret_path = path;
    return h->unified ? strcmp(line, "0") == 0 && *controllers == '\0'
                      : has_word(controllers, "memory");
}

void cgroup_memory(const char *root, struct cgroup_memory *ret)
{
    *ret = (struct cgroup_memory){.most = UINT64_MAX, .left = UINT64_MAX};
    for (size_t i = 0; i < sizeof hierarchies / sizeof *hierarchies; i++) {
        char line[PATH_MAX + 64], name[PATH_MAX], at_root[] = "", *path = at_root;
        bool found = false;
        FILE *f = NULL;

        if (snprintf(name, sizeof name, "%s/proc/self/cgroup", root) < (int)sizeof name)
            f = fopen(name, "re");
        while (f && !found && fgets(line, sizeof line, f))
            found = path_of(&hierarchies[i], line, &path);
        if (f)
            fclose(f);
        walk(&hierarchies[i], root, found ? path : at_root, ret);
    }
}
