/* The error table inside the daemon: names, texts, and TRY, the one macro that changes control
 * flow. TRY returns from the function with any value but 0: an error of the table, an errno, or a
 * fault or refusal of another enum. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include "base/tern_err.h"

const char *
err_name(enum tern_err err); /* "POOL_EXHAUSTED"; "UNKNOWN" for a number not in the table */
const char *err_text(enum tern_err err);
enum tern_err_category err_category(enum tern_err err);

#define TRY(expr)                                                                                  \
    do {                                                                                           \
        __typeof__(expr) try_err_ = (expr);                                                        \
        if (try_err_ != 0)                                                                         \
            return try_err_;                                                                       \
    } while (0)

#endif
