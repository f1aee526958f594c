/* Secrets of the core's tables for tests: the same seed gives the same secret. 0 gives the weakest
 * one: under it all records of a table are in one bucket. */
#ifndef TESTING_SECRET_H
#define TESTING_SECRET_H

#include "base/keyed_hash.h"
#include "base/prng.h"

static inline struct hash_secret secret_from(uint64_t seed)
{
    struct hash_secret ret = {0};
    uint64_t *const words[] = {&ret.step, &ret.low,       &ret.high,       &ret.kind,
                               &ret.of,   &ret.place_low, &ret.place_high, &ret.place_plus};
    struct prng p;

    if (seed == 0)
        return ret;
    prng_init(&p, seed);
    for (uint32_t i = 0; i < KEYED_BLOCK; i++)
        ret.block[i] = (uint32_t)prng_u64(&p);
    for (uint32_t i = 0; i < sizeof words / sizeof words[0]; i++)
        *words[i] = prng_u64(&p);
    return ret;
}

#endif
