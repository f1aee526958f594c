/* Arguments of admin commands: "KEY=VALUE", one a text. Used by admin.c and operator.c. */
#ifndef SHELL_ADMIN_ARGS_H
#define SHELL_ADMIN_ARGS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define ADMIN_WHY_BYTES 192

/* One that a command takes. Absent, it leaves what stands there. */
struct admin_arg {
    const char *key;
    uint32_t *number;  /* decimal digits up to `max`; NULL: it is a text */
    const char **text; /* borrowed from the argument */
    uint32_t max;
};

/* INVALID: a key that is not among `takes`, or a value that is no number as it must be: whoever
 * mistypes one is told which, and nothing is done without it. why: a text for the answer. */
enum tern_err admin_args(const char *command, char *const *args, size_t nargs,
                         const struct admin_arg *takes, size_t ntakes, char why[ADMIN_WHY_BYTES]);

#endif
