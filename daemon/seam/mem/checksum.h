/* X7: the checksum of a unit is XXH3-64 over the XXH3-64 values (little-endian) of its 4 KiB
 * sub-blocks; the last sub-block may be short. It is the same on the wire, on disk, on the CPU and
 * in a kernel. A receiver hashes each sub-block as soon as it is complete, while it is in cache.
 * Any thread. */
#ifndef SEAM_CHECKSUM_H
#define SEAM_CHECKSUM_H

#include "base/checksum_blocks.h"

uint64_t checksum_unit(const void *bytes, size_t n);

/* Stands in place of a checksum that does not exist, so no bytes agree with it. The few units whose
 * real checksum has this value are never shared. */
#define CHECKSUM_NONE 0

/* A unit that arrives in pieces of any length: begin, feed, end. If the end of a piece does not
 * fill a block, its bytes are copied until the block is whole. The struct is the caller's and needs
 * no clean-up. */
#define CHECKSUM_LEAVES     64  /* block values kept before they are folded into the state */
#define CHECKSUM_FOLD_BYTES 640 /* room for an XXH3 state, aligned by hand inside */
struct checksum {
    uint64_t leaf[CHECKSUM_LEAVES];
    uint32_t nleaves;
    uint32_t folded; /* the state below holds earlier leaves */
    uint8_t state[CHECKSUM_FOLD_BYTES];
    uint32_t npart; /* bytes of a block that is not whole yet */
    uint8_t part[CHECKSUM_BLOCK];
};

void checksum_begin(struct checksum *c);
void checksum_feed(struct checksum *c, const void *bytes, size_t n);
uint64_t checksum_end(struct checksum *c);

/* Returns the end of a page's unit k, which begins at *ret_from. Units are equal shares; the last
 * has the rest. */
static inline uint64_t checksum_unit_span(uint64_t page_bytes, uint32_t units, uint32_t k,
                                          uint64_t *ret_from)
{
    uint64_t share = page_bytes / units;

    *ret_from = share * k;
    return k + 1 == units ? page_bytes : share * (k + 1);
}

#endif
