/* Ends a process that found a bug of its own. */
#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>

static void (*check_hook)(const char *text);

void check_set_hook(void (*hook)(const char *text))
{
    check_hook = hook;
}

_Noreturn void check_failed(const char *expr, const char *file, int line)
{
    void (*hook)(const char *) = check_hook;
    char text[256];

    snprintf(text, sizeof text, "%s:%d: check failed: %s", file, line, expr);
    fprintf(stderr, "%s\n", text);
    check_hook = NULL; /* a check that fails inside the hook must not call it again */
    if (hook)
        hook(text);
    abort();
}
