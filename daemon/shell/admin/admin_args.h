/* Arguments of admin commands; each text is one "KEY=VALUE". Used by admin.c and operator.c. */
#ifndef SHELL_ADMIN_ARGS_H
#define SHELL_ADMIN_ARGS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define ADMIN_WHY_BYTES 192

/* An argument that a command takes. If it is absent, the value stays what it was. */
struct admin_arg {
    const char *key;
    uint32_t *number;  /* decimal digits up to `max`; NULL: it is a text */
    const char **text; /* borrowed from the argument */
    uint32_t max;
};

/* INVALID: a key is not among `takes`, or a value is not the number that it must be; `why` is a
 * text for the answer that says which. Nothing is done then. */
enum tern_err admin_args(const char *command, char *const *args, size_t nargs,
                         const struct admin_arg *takes, size_t ntakes, char why[ADMIN_WHY_BYTES]);

#endif
