/* Captures standard output of a part of a program. */
#ifndef RIG_PRINTED_H
#define RIG_PRINTED_H

#include <stdio.h>
#include <unistd.h>

#include "testing/test.h"

struct rig_printed {
    FILE *file;
    int before;
};

/* Begins to capture. */
static inline struct rig_printed rig_printed_begin(void)
{
    struct rig_printed p = {.file = tmpfile(), .before = dup(STDOUT_FILENO)};

    assert_non_null(p.file);
    fflush(stdout);
    dup2(fileno(p.file), STDOUT_FILENO);
    return p;
}

/* Ends the capture. *ret: the text, cut to fit `bytes`. */
static inline void rig_printed_end(struct rig_printed *p, char *ret, size_t bytes)
{
    size_t n;

    fflush(stdout);
    dup2(p->before, STDOUT_FILENO);
    close(p->before);
    rewind(p->file);
    n = fread(ret, 1, bytes - 1, p->file);
    ret[n] = '\0';
    fclose(p->file);
}

#endif
