/* Access of a copier's thread to pages on a GPU: by a stream and a piece of pinned memory of its
 * own, in the GPU's primary context, which is current only in such threads. */
#ifndef CLIENT_BLOCK_LANE_H
#define CLIENT_BLOCK_LANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/driver.h"

#define LANE_BYTES (256u << 10) /* the most bytes of one copy */

/* The GPU on which pages lie, and its driver. */
struct block_far {
    const struct driver *driver; /* borrowed while there are lanes */
    CUdevice device;
};

struct lane {
    const struct block_far *far; /* NULL: pages are memory of the host; no other field is used */
    CUstream stream;
    CUevent event;
    uint8_t *between; /* LANE_BYTES */
    bool failed;      /* a call of the driver has failed: no more copies are made */
    bool loose;       /* the last copy may still be under way: its memory stays allocated */
};

/* Call it in the thread that will use the lane. A lane that cannot be started has `failed` set. */
void lane_begin(struct lane *l, const struct block_far *far);
void lane_end(struct lane *l);
/* Copies n bytes from `between` to an address of the GPU, or back, and waits for the end of the
 * copy. */
void lane_put(struct lane *l, const uint8_t *to, size_t n);
void lane_get(struct lane *l, const uint8_t *from, size_t n);

#endif
