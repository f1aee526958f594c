/* Each kernel beside its reference: random geometries from a seed, on any device that runs kernels.
 * The unit tests use a CPU that runs the kernels' source, tests/gpu a GPU. All memory that a kernel
 * may touch lies in one arena, with guard bytes around it. The reference runs in a copy of the
 * arena on the host, and the two must be equal, byte by byte. */
#ifndef GPU_CASES_H
#define GPU_CASES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/prng.h"
#include "kernels/kernels.h"

/* A device that runs kernels. A call that fails ends the program with the reason. */
struct device {
    void *ctx;
    uint64_t (*take)(void *ctx, size_t bytes); /* allocates, at a multiple of 256 */
    void (*give)(void *ctx, uint64_t at);
    void (*put)(void *ctx, uint64_t to, const void *from, size_t n);
    void (*get)(void *ctx, void *to, uint64_t from, size_t n); /* after all launches */
    void (*launch)(void *ctx, enum kernels_kind kind, const struct kernels_launch *l,
                   const union kernels_args *args);
};

/* The largest geometry, as the approximate bytes of its arena. */
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
