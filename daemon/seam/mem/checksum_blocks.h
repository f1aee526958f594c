/* The inner loop of checksum.c, compiled once for each instruction set; only checksum*.c include
 * this, after xxhash.h. XXH_INLINE_ALL gives each of them a private copy of XXH3 that the compiler
 * specialises for 4 KiB. */
#ifndef SEAM_CHECKSUM_BLOCKS_H
#define SEAM_CHECKSUM_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

#include "seam/mem/checksum.h"

/* Hashes n bytes in blocks of CHECKSUM_BLOCK, the last of which may be short: a value each. */
typedef void checksum_blocks_fn(const void *bytes, size_t n, uint64_t *out);

checksum_blocks_fn checksum_blocks_baseline;
#if defined(__x86_64__)
checksum_blocks_fn checksum_blocks_avx2;   /* only where the CPU has AVX2 */
checksum_blocks_fn checksum_blocks_avx512; /* only where it has AVX-512 F, BW and VL */
#endif

static inline void checksum_blocks_loop(const void *bytes, size_t n, uint64_t *out)
{
    const uint8_t *p = bytes;

    for (; n >= CHECKSUM_BLOCK; n -= CHECKSUM_BLOCK, p += CHECKSUM_BLOCK)
        *out++ = XXH3_64bits(p, CHECKSUM_BLOCK);
    if (n > 0)
        *out = XXH3_64bits(p, n);
}

#endif
