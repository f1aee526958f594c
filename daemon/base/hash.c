/* Multiply-accumulate over four lanes of 64 bits, then one mix. A lane's key goes on with every
 * round, so that the order of the words counts. */
#include "base/hash.h"

#include <string.h>

#include "base/lanes.h"

#define LANES 4

uint64_t hash_words(uint64_t seed, const uint32_t *words, size_t n)
{
    static const uint64_t start[LANES] = {0x9e3779b97f4a7c15u, 0xc2b2ae3d27d4eb4fu,
                                          0x165667b19e3779f9u, 0x27d4eb2f165667c5u};
    pair a0 = {seed, seed ^ start[1]}, a1 = {seed + start[2], ~seed};
    pair k0 = {start[0], start[1]}, k1 = {start[2], start[3]};
    uint64_t acc[LANES], h = hash_mix(seed, n);
    size_t i = 0;

    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        pair v0, v1; /* each loaded by itself: gcc takes an array of both through the stack */

        memcpy(&v0, words + i, sizeof v0);
        memcpy(&v1, words + i + LANES, sizeof v1);
        a0 += v0 + halves(v0 ^ k0);
        a1 += v1 + halves(v1 ^ k1);
        k0 += start[0];
        k1 += start[0];
    }
    memcpy(acc, &a0, sizeof a0);
    memcpy(acc + 2, &a1, sizeof a1);
    for (; i < n; i++)
        acc[i % LANES] = hash_mix(acc[i % LANES], words[i]);
    for (int l = 0; l < LANES; l++)
        h = hash_mix(h ^ acc[l], start[l]);
    return h;
}
