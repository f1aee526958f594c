/* Both hashes use two lanes of 64 bits, and multiply the halves of each. */
#include "base/hash.h"

#include <string.h>

#include "base/keyed_hash.h"

#define LANES 4
#define QUAD  4 /* words of a vector */

typedef uint64_t pair __attribute__((vector_size(16))); /* two lanes */
typedef int32_t quad __attribute__((vector_size(16)));

/* Multiplies the low half of each lane by its high half. */
static inline pair halves(pair x)
{
#if __has_builtin(__builtin_ia32_pmuludq128) /* gcc by itself makes three multiplications of it */
    return (pair)__builtin_ia32_pmuludq128((quad)x, (quad)(x >> 32));
#else
    return (x & 0xffffffffu) * (x >> 32);
#endif
}

/* Multiply-accumulate over four lanes of 64 bits, then one mix. A lane's key changes with every
 * round, so that the order of the words matters. */
uint64_t hash_words(uint64_t seed, const uint32_t *words, size_t n)
{
    static const uint64_t start[LANES] = {0x9e3779b97f4a7c15u, 0xc2b2ae3d27d4eb4fu,
                                          0x165667b19e3779f9u, 0x27d4eb2f165667c5u};
    pair a0 = {seed, seed ^ start[1]}, a1 = {seed + start[2], ~seed};
    pair k0 = {start[0], start[1]}, k1 = {start[2], start[3]};
    uint64_t acc[LANES], h = hash_mix(seed, n);
    size_t i = 0;

    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        pair v0, v1; /* each loaded by itself: gcc would move an array of both through the stack */

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

/* Two products of words plus keys. */
static inline pair products(const uint32_t *words, const uint32_t *keys)
{
    typedef uint32_t words4 __attribute__((vector_size(16)));
    words4 m, k;

    memcpy(&m, words, sizeof m);
    memcpy(&k, keys, sizeof k);
    return halves((pair)(m + k));
}

uint64_t keyed_block(const struct hash_secret *k, const uint32_t *words, uint32_t n)
{
    pair a = {0, 0}, b = {0, 0};
    uint64_t sum;
    uint32_t i = 0;

    for (; i + 2 * QUAD <= n; i += 2 * QUAD) {
        a += products(words + i, k->block + i);
        b += products(words + i + QUAD, k->block + i + QUAD);
    }
    a += b;
    sum = a[0] + a[1];
    for (; i < n; i += 2) { /* the last pair's missing word is 0 in both of two equal lengths */
        uint32_t low = words[i] + k->block[i],
                 high = (i + 1 < n ? words[i + 1] : 0) + k->block[i + 1];

        sum += (uint64_t)low * high;
    }
    return sum;
}
