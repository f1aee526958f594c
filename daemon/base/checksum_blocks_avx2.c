/* The inner loop of checksums for AVX2. The build passes -mavx2 to this file alone: nothing here
 * may be called on a CPU without it. */
#if defined(__x86_64__)

#define XXH_INLINE_ALL
#define XXH_VECTOR 2 /* XXH_AVX2, which has no name before the header is read */
#include <xxhash.h>

#include "base/checksum_blocks.h"

void checksum_blocks_avx2(const void *bytes, size_t n, uint64_t *out)
{
    checksum_blocks_loop(bytes, n, out);
}

#else
typedef int checksum_avx2_has_nothing_here; /* a translation unit may not be empty */
#endif
