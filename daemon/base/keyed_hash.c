/* See keyed_hash.h. */
#include "base/keyed_hash.h"

#include <string.h>

#include "base/lanes.h"

#define QUAD 4 /* words of a vector */

/* Two products. */
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
    for (; i < n; i += 2) { /* what is missing of the last pair is 0 in both of two equal lengths */
        uint32_t low = words[i] + k->block[i],
                 high = (i + 1 < n ? words[i + 1] : 0) + k->block[i + 1];

        sum += (uint64_t)low * high;
    }
    return sum;
}
