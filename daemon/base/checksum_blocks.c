/* Chooses a variant. See checksum_blocks.h. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/checksum_blocks.h"

checksum_blocks_fn *checksum_blocks = checksum_blocks_baseline;

void checksum_blocks_baseline(const void *bytes, size_t n, uint64_t *out)
{
    checksum_blocks_loop(bytes, n, out);
}

uint64_t checksum_fold(const uint64_t *values, size_t n)
{
    return XXH3_64bits(values, n * sizeof *values);
}

/* Before main, so that no thread sees the choice change. AVX-512 only with VBMI2, which came with
 * Ice Lake and Zen 4: on older CPUs AVX-512 slows the whole core down. */
__attribute__((constructor)) static void choose_variant(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vbmi2"))
        checksum_blocks = checksum_blocks_avx512;
    else if (__builtin_cpu_supports("avx2"))
        checksum_blocks = checksum_blocks_avx2;
#endif
}
