/* Each kernel beside its reference: random geometries from a seed, on whatever runs kernels. The
 * unit tests give a CPU that runs the kernels' source, tests/gpu a GPU. Everything that a kernel
 * may touch lies in one arena, with bytes around it that it may not; the reference runs in a copy
 * of it on the host, and the two arenas must be the same, byte by byte. */
#ifndef GPU_CASES_H
#define GPU_CASES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/prng.h"
#include "kernels/kernels.h"

/* What runs kernels. A call that fails ends the program with the reason. */
struct device {
    void *ctx;
    uint64_t (*take)(void *ctx, size_t bytes); /* memory, at a multiple of 256 */
    void (*give)(void *ctx, uint64_t at);
    void (*put)(void *ctx, uint64_t to, const void *from, size_t n);
    void (*get)(void *ctx, void *to, uint64_t from, size_t n); /* behind all that was launched */
    void (*launch)(void *ctx, enum kernels_kind kind, const struct kernels_launch *l,
                   const union kernels_args *args);
};

/* How large a geometry may become, in about the bytes of its arena. */
struct case_size {
    uint64_t bytes;
};

#define CASE_TEXT 256
struct case_result {
    bool ok;
    char text[CASE_TEXT]; /* what was compared, and the first byte that differs */
};

struct case_row {
    const char *name;
    void (*run)(const struct device *d, struct case_size size, struct prng *p,
                struct case_result *ret);
};

extern const struct case_row case_table[];
extern const size_t case_count;

#endif
