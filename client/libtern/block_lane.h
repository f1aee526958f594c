/* How a thread of a copier reaches pages on a GPU: by a stream and a piece of pinned memory of its
 * own, in the GPU's primary context, which is current in such threads alone. */
#ifndef CLIENT_BLOCK_LANE_H
#define CLIENT_BLOCK_LANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/driver.h"

#define LANE_BYTES (256u << 10) /* of one copy at most */

/* Where the pages lie. */
struct block_far {
    const struct driver *driver; /* borrowed for as long as there are lanes */
    CUdevice device;
};

struct lane {
    const struct block_far *far; /* NULL: pages are memory of the host, and nothing else is used */
    CUstream stream;
    CUevent event;
    uint8_t *between; /* LANE_BYTES */
    bool failed;      /* a call of the driver has failed: nothing is copied any more */
    bool loose;       /* and whether the last copy is over nobody knows: what it uses stays */
};

/* In the thread that will use it. A lane that cannot be begun has `failed`. */
void lane_begin(struct lane *l, const struct block_far *far);
void lane_end(struct lane *l);
/* Copies n bytes from `between` to an address of the GPU, or back, and returns when they are
 * there. */
void lane_put(struct lane *l, const uint8_t *to, size_t n);
void lane_get(struct lane *l, const uint8_t *from, size_t n);

#endif
