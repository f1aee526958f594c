/* The stand-in in a test: its own calls, and the driver's. */
#ifndef STANDIN_OPEN_H
#define STANDIN_OPEN_H

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "standin/standin.h"

/* library: STANDIN_MEMORY, the path from the build. */
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

/* Opens the driver too, and retains both contexts; the first one is current. */
static inline void standin_driver_open(const char *library, struct standin *in, struct driver *d,
                                       CUcontext context[2])
{
    struct driver_why why;

    *in = standin_open(library);
    assert_int_equal(driver_open(d, library, &why), DRIVER_OK);
    in->let_fail("", 0, CUDA_SUCCESS);
    assert_int_equal(d->init(0), CUDA_SUCCESS);
    for (int i = 0; i < 2; i++)
        assert_int_equal(d->context_retain(&context[i], i), CUDA_SUCCESS);
    assert_int_equal(d->context_set(context[0]), CUDA_SUCCESS);
}

static inline void standin_driver_close(const struct standin *in, struct driver *d)
{
    d->context_set(NULL);
    d->context_release(0);
    d->context_release(1);
    driver_close(d);
    dlclose(in->library);
}

#endif
