/* XXH3-64 of each 4 KiB of some bytes: the inner loop of every page checksum, of the daemon
 * (seam/mem/checksum.h) and of libtern, compiled once for each instruction set. Any thread. */
#ifndef BASE_CHECKSUM_BLOCKS_H
#define BASE_CHECKSUM_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

#define CHECKSUM_BLOCK 4096

/* Hashes n bytes in blocks of CHECKSUM_BLOCK, the last of which may be short: one value each. */
typedef void checksum_blocks_fn(const void *bytes, size_t n, uint64_t *out);

/* The checksum of a unit (X7) from the values of its blocks, which are little-endian in memory. */
uint64_t checksum_fold(const uint64_t *values, size_t n);

extern checksum_blocks_fn *checksum_blocks; /* the fastest variant for this machine */
checksum_blocks_fn checksum_blocks_baseline;
#if defined(__x86_64__)
checksum_blocks_fn checksum_blocks_avx2;   /* only where the CPU has AVX2 */
checksum_blocks_fn checksum_blocks_avx512; /* only where it has AVX-512 F, BW and VL */
#endif

/* Each variant includes this behind xxhash.h, whose XXH_INLINE_ALL gives it a private copy of XXH3
 * that the compiler specialises for 4 KiB. */
#ifdef XXH_INLINE_ALL
static inline void checksum_blocks_loop(const void *bytes, size_t n, uint64_t *out)
{
    const uint8_t *p = bytes;

    for (; n >= CHECKSUM_BLOCK; n -= CHECKSUM_BLOCK, p += CHECKSUM_BLOCK)
        *out++ = XXH3_64bits(p, CHECKSUM_BLOCK);
    if (n > 0)
        *out = XXH3_64bits(p, n);
}
#endif

#endif
