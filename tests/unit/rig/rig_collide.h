/* Inputs that collide under the public hashes; anybody can write them down. Header only. */
#ifndef TEST_RIG_COLLIDE_H
#define TEST_RIG_COLLIDE_H

#include "core/ids.h"

#define COLLIDE_TOKENS 16

/* Chunks of 16 tokens that all have one hash_words(0, ..): a lane's product is 0 if the upper half
 * of (v ^ key) is, so the lane adds x in one round and 0xffffffff - x in the next. */
static inline void colliding_chunk(uint32_t x, uint32_t v[COLLIDE_TOKENS])
{
    static const uint64_t start[4] = {0x9e3779b97f4a7c15u, 0xc2b2ae3d27d4eb4fu, 0x165667b19e3779f9u,
                                      0x27d4eb2f165667c5u};

    for (uint32_t round = 0; round < 2; round++)
        for (uint32_t lane = 0; lane < 4; lane++) {
            uint64_t key = start[lane] + round * start[0];
            uint32_t *to = v + 8 * round + 2 * lane;

            to[0] = lane > 0 ? 5 : round == 0 ? x : UINT32_MAX - x;
            to[1] = (uint32_t)(key >> 32);
        }
}

/* Pairs that all have one hash_mix(hi, lo): namespaces with one chain, and extra keys that add the
 * same value to a chain. */
static inline struct namespace_id colliding_pair(uint64_t x)
{
    return (struct namespace_id){
        .hi = (77 - x * 0xd6e8feb86659fd93u) ^ 0x9e3779b97f4a7c15u,
        .lo = x,
    };
}

#endif
