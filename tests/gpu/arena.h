/* The arena of a case, see cases.h. */
#ifndef GPU_ARENA_H
#define GPU_ARENA_H

#include "gpu/cases.h"

#define ARENA_GUARD 64   /* bytes between pieces of it */
#define ARENA_ROOM  8192 /* bytes for guards and alignment */

struct arena {
    const struct device *device;
    uint8_t *want, *got; /* owned, `bytes` each: the reference's, and the bytes from the device */
    uint64_t at;         /* address on the device */
    size_t bytes, used;
};

void arena_begin(struct arena *a, const struct device *d, size_t bytes, struct prng *p);
/* Returns an offset into the arena, a multiple of `align`. Ends the program if the arena is full.
 */
size_t arena_take(struct arena *a, size_t bytes, size_t align);
/* Copies the bytes as they are now to the device. */
void arena_put(struct arena *a);
/* Returns the arena's base address, on the device or in `want`. */
uint64_t arena_address(const struct arena *a, bool device);
/* Runs a kernel and its reference: `host` has addresses in `want`, `device` the device's. */
void arena_run(const struct arena *a, enum kernels_kind kind, union kernels_args *host,
               union kernels_args *device);
/* Compares all bytes after both have run, and frees the arena. */
void arena_end(struct arena *a, struct case_result *io);

/* Writes random bytes, quickly. */
void arena_random(uint8_t *to, size_t n, struct prng *p);

/* Cases that have files of their own. */
void case_reshard(const struct device *d, struct case_size size, struct prng *p,
                  struct case_result *ret);
void case_fp8(const struct device *d, struct case_size size, struct prng *p,
              struct case_result *ret);

#endif
