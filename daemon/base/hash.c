/* Multiply-accumulate over four lanes of 64 bits, then one mix. A lane's key goes on with every
 * round, so that the order of the words counts. */
#include "base/hash.h"

#include <string.h>

#define LANES 4

uint64_t hash_words(uint64_t seed, const uint32_t *words, size_t n)
{
    static const uint64_t start[LANES] = {0x9e3779b97f4a7c15u, 0xc2b2ae3d27d4eb4fu,
                                          0x165667b19e3779f9u, 0x27d4eb2f165667c5u};
    uint64_t acc[LANES] = {seed, seed ^ start[1], seed + start[2], ~seed}, key[LANES];
    uint64_t h = hash_mix(seed, n);
    size_t i = 0;

    memcpy(key, start, sizeof key);
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        uint64_t v[LANES];

        memcpy(v, words + i, sizeof v);
        for (int l = 0; l < LANES; l++) {
            uint64_t x = v[l] ^ key[l];

            acc[l] += v[l] + (x & 0xffffffffu) * (x >> 32);
            key[l] += start[0];
        }
    }
    for (; i < n; i++)
        acc[i % LANES] = hash_mix(acc[i % LANES], words[i]);
    for (int l = 0; l < LANES; l++)
        h = hash_mix(h ^ acc[l], start[l]);
    return h;
}
