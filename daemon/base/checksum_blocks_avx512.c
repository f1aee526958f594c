/* The inner loop of checksums for AVX-512: 59 GB/s where AVX2 reaches 45. The build passes the
 * flags to this file alone: nothing here may be called on a CPU without it. */
#if defined(__x86_64__)

#define XXH_INLINE_ALL
#define XXH_VECTOR 3 /* XXH_AVX512, which has no name before the header is read */
#include <xxhash.h>

#include "base/checksum_blocks.h"

void checksum_blocks_avx512(const void *bytes, size_t n, uint64_t *out)
{
    checksum_blocks_loop(bytes, n, out);
}

#else
typedef int checksum_avx512_has_nothing_here; /* a translation unit may not be empty */
#endif
