/* xoshiro256** by Blackman and Vigna (public domain algorithm), seeded by splitmix64. For tests,
 * the simulator and generators: never for keys. */
#ifndef BASE_PRNG_H
#define BASE_PRNG_H

#include <stdint.h>

struct prng {
    uint64_t s[4];
};

static inline uint64_t prng_splitmix(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline void prng_init(struct prng *p, uint64_t seed)
{
    for (int i = 0; i < 4; i++)
        p->s[i] = prng_splitmix(&seed);
}

static inline uint64_t prng_u64(struct prng *p)
{
    uint64_t *s = p->s, x = s[1] * 5, result = ((x << 7) | (x >> 57)) * 9, t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = (s[3] << 45) | (s[3] >> 19);
    return result;
}

/* Uniform in [0, n), n > 0. The bias is below 2^-32 for every n that fits 32 bits. */
static inline uint32_t prng_below(struct prng *p, uint32_t n)
{
    return (uint32_t)(((prng_u64(p) >> 32) * n) >> 32);
}

#endif
