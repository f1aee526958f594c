/* checksum.c's inner loop for AVX2. The instruction set is asked for here, by function, and not by
 * a compiler flag: the same binary runs on a CPU without it, which never gets here. (AVX-512 was
 * measured too: within a few percent of this.) */
#if defined(__x86_64__)

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif
#include <immintrin.h>

#define XXH_INLINE_ALL
#define XXH_VECTOR 2 /* XXH_AVX2, which has no name before the header is read */
#include <xxhash.h>

#include "seam/checksum.h"
#include "seam/checksum_blocks.h"

void checksum_blocks_avx2(const void *bytes, size_t n, uint64_t *out)
{
    const uint8_t *p = bytes;

    for (; n >= CHECKSUM_BLOCK; n -= CHECKSUM_BLOCK, p += CHECKSUM_BLOCK)
        *out++ = XXH3_64bits(p, CHECKSUM_BLOCK);
    if (n > 0)
        *out = XXH3_64bits(p, n);
}

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#else
typedef int checksum_avx2_has_nothing_here; /* a translation unit may not be empty */
#endif
