/* A folder of the test below /tmp, and files in it. Header only. */
#ifndef TEST_RIG_DIR_H
#define TEST_RIG_DIR_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "testing/test.h"

static char dir[64];

FIXTURE(make_dir)
{
    strcpy(dir, "/tmp/tern-test-XXXXXX");
    assert_non_null(mkdtemp(dir));
    return 0;
}

FIXTURE(remove_dir)
{
    char command[128];

    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

/* The path is valid for the next three calls. */
static inline const char *in_dir(const char *name)
{
    static char path[4][512];
    static uint32_t at;
    char *p = path[at++ % 4];

    snprintf(p, sizeof path[0], "%s/%s", dir, name);
    return p;
}

/* Writes a file, and creates the folders on its path. */
static inline void put_file(const char *name, const char *text)
{
    char *path = strdup(in_dir(name));
    FILE *f;

    for (char *c = path + strlen(dir) + 1; (c = strchr(c, '/')) != NULL; c++) {
        *c = '\0';
        assert_true(mkdir(path, 0777) == 0 || errno == EEXIST);
        *c = '/';
    }
    f = fopen(path, "we");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    free(path);
}

#endif
