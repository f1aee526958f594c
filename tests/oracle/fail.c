/* The way out of the oracle: see oracle.h. */
#include "oracle/oracle.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void (*oracle_fail_hook)(const char *text);

void oracle_fail(const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (oracle_fail_hook)
        oracle_fail_hook(text);
    fprintf(stderr, "oracle: %s\n", text);
    abort();
}
