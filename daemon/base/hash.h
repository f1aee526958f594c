/* A 64-bit hash of 32-bit words without a secret, for identities that are visible outside: chains,
 * layouts, fields. Anybody can compute inputs that collide, so no table in memory is indexed by it:
 * see keyed_hash.h. It is no checksum of page bytes (XXH3 is) and no key. Four independent lanes,
 * so that the compiler may vectorise. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

static inline uint64_t hash_mix(uint64_t a, uint64_t b)
{
    uint64_t x = (a ^ 0x9e3779b97f4a7c15u) + b * 0xd6e8feb86659fd93u;

    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    return x ^ (x >> 32);
}

/* Words that follow one another may be hashed in pieces: pass the previous result as seed. Both
 * sides of a comparison must use the same pieces. */
uint64_t hash_words(uint64_t seed, const uint32_t *words, size_t n);

#endif
