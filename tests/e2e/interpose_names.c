/* Preloaded into a daemon: a name service for names that end in .test, whose answers a test can
 * change or withhold. A name is a file of that name in INTERPOSE_NAMES, which has an address;
 * "again": the service does not answer for now; "hang": the call blocks until the file changes. No
 * file: no such name. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int lookup(const char *, const char *, const struct addrinfo *, struct addrinfo **);

static int line_of(const char *name, char line[64])
{
    char path[PATH_MAX];
    FILE *f;
    int there;

    snprintf(path, sizeof path, "%s/%s", getenv("INTERPOSE_NAMES"), name);
    f = fopen(path, "re");
    if (!f)
        return 0;
    there = fgets(line, 64, f) != NULL;
    fclose(f);
    line[strcspn(line, "\n")] = '\0';
    return there;
}

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **ret)
{
    lookup *system = (lookup *)dlsym(RTLD_NEXT, "getaddrinfo");
    size_t n = node ? strlen(node) : 0;
    char line[64] = "";

    if (n < 5 || strcmp(node + n - 5, ".test") != 0 || (hints->ai_flags & AI_NUMERICHOST))
        return system(node, service, hints, ret);
    do {
        if (!line_of(node, line))
            return EAI_NONAME;
    } while (strcmp(line, "hang") == 0 && usleep(10000) == 0);
    return strcmp(line, "again") == 0 ? EAI_AGAIN : system(line, service, hints, ret);
}
