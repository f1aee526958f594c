/* The stand-in as a test has it: its own calls, and the driver's. */
#ifndef STANDIN_OPEN_H
#define STANDIN_OPEN_H

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "standin/standin.h"

/* library: STANDIN_MEMORY, the path that the build gives. */
static inline struct standin standin_open(const char *library)
{
    struct standin s = {.library = dlopen(library, RTLD_NOW | RTLD_LOCAL)};
    void *symbol;

    assert_non_null(s.library);
#define X(member, name, ret, parameters)                                                           \
    symbol = dlsym(s.library, #name);                                                              \
    assert_non_null(symbol);                                                                       \
    memcpy(&s.member, &symbol, sizeof symbol);
    STANDIN_CALLS(X)
#undef X
    return s;
}

#endif
