/* XXH3-64 without a seed, by its published algorithm, for device and host: shared by a kernel and
 * its reference. One function hashes up to 240 bytes. More bytes go, 64 at a time, through eight
 * accumulators; a pair of neighbouring accumulators needs no data of the others until the end, so
 * four threads can hash together, each with its own pair. */
#ifndef KERNELS_XXH3_H
#define KERNELS_XXH3_H

#include "kernels/both.h"

#define XXH3_SHORT_MAX    240
#define XXH3_PAIRS        4    /* of accumulators */
#define XXH3_STRIPE       64   /* bytes: each pair has 16 of them */
#define XXH3_STRIPES      16   /* between two scrambles */
#define XXH3_SPAN         1024 /* their bytes */
#define XXH3_SECRET_WORDS 24
#define XXH3_AT_SCRAMBLE  128 /* offsets in the secret, of the keys of each step */
#define XXH3_AT_LAST      121
#define XXH3_AT_MERGE     11

#define XXH3_PRIME32_1 0x9e3779b1u
#define XXH3_PRIME32_2 0x85ebca77u
#define XXH3_PRIME32_3 0xc2b2ae3du
#define XXH3_PRIME64_1 0x9e3779b185ebca87u
#define XXH3_PRIME64_2 0xc2b2ae3d27d4eb4fu
#define XXH3_PRIME64_3 0x165667b19e3779f9u
#define XXH3_PRIME64_4 0x85ebca77c2b2ae63u
#define XXH3_PRIME64_5 0x27d4eb2f165667c5u
#define XXH3_PRIME_MID 0x9fb21c651e98df25u
#define XXH3_PRIME_END 0x165667919e3779f9u

/* The default secret, as little-endian words. */
KERNELS_CONST uint64_t xxh3_secret[XXH3_SECRET_WORDS] = {
    0xbe4ba423396cfeb8u, 0x1cad21f72c81017cu, 0xdb979083e96dd4deu, 0x1f67b3b7a4a44072u,
    0x78e5c0cc4ee679cbu, 0x2172ffcc7dd05a82u, 0x8e2443f7744608b8u, 0x4c263a81e69035e0u,
    0xcb00c391bb52283cu, 0xa32e531b8b65d088u, 0x4ef90da297486471u, 0xd8acdea946ef1938u,
    0x3f349ce33f76faa8u, 0x1d4f0bc7c7bbdcf9u, 0x3159b4cd4be0518au, 0x647378d9c97e9fc8u,
    0xc3ebd33483acc5eau, 0xeb6313faffa081c5u, 0x49daf0b751dd0d17u, 0x9e68d429265516d3u,
    0xfca1477d58be162bu, 0xce31d07ad1b8f88fu, 0x280416958f3acb45u, 0x7e404bbbcafbd7afu};

/* Eight bytes of the secret from byte `at` on. */
KERNELS_FN uint64_t xxh3_key(uint32_t at)
{
    uint32_t bits = at % 8 * 8;
    uint64_t low = xxh3_secret[at / 8] >> bits;

    return bits ? low | xxh3_secret[at / 8 + 1] << (64 - bits) : low;
}

KERNELS_FN uint64_t xxh3_read(const uint8_t *b, uint32_t bytes)
{
    uint64_t v = 0;

    for (uint32_t i = 0; i < bytes; i++)
        v |= (uint64_t)b[i] << 8 * i;
    return v;
}

KERNELS_FN uint64_t xxh3_read64(const uint8_t *b)
{
#ifdef __CUDACC__ /* eight loads of a byte are eight loads there */
    if (reinterpret_cast<uintptr_t>(b) % sizeof(uint64_t) == 0)
        return *reinterpret_cast<const uint64_t *>(b);
#endif
    return xxh3_read(b, 8);
}

/* The two halves of a product of 128 bits, combined by xor. */
KERNELS_FN uint64_t xxh3_fold(uint64_t a, uint64_t b)
{
#ifdef __CUDACC__
    return a * b ^ __umul64hi(a, b);
#else
    __extension__ unsigned __int128 product = (unsigned __int128)a * b;

    return (uint64_t)product ^ (uint64_t)(product >> 64);
#endif
}

KERNELS_FN uint64_t xxh3_turn(uint64_t v, uint32_t bits)
{
    return v << bits | v >> (64 - bits);
}

KERNELS_FN uint64_t xxh3_swap(uint64_t v)
{
    uint64_t swapped = 0;

    for (uint32_t i = 0; i < 8; i++)
        swapped |= (v >> 8 * i & 0xff) << (56 - 8 * i);
    return swapped;
}

KERNELS_FN uint64_t xxh3_avalanche(uint64_t h)
{
    h = (h ^ h >> 37) * XXH3_PRIME_END;
    return h ^ h >> 32;
}

KERNELS_FN uint64_t xxh3_avalanche_old(uint64_t h) /* of XXH64 */
{
    h = (h ^ h >> 33) * XXH3_PRIME64_2;
    h = (h ^ h >> 29) * XXH3_PRIME64_3;
    return h ^ h >> 32;
}

KERNELS_FN uint64_t xxh3_to_3(const uint8_t *b, uint32_t n)
{
    uint64_t key = (xxh3_key(0) ^ xxh3_key(0) >> 32) & 0xffffffffu;
    uint64_t v = (uint64_t)b[0] << 16 | (uint64_t)b[n >> 1] << 24 | b[n - 1] | (uint64_t)n << 8;

    return xxh3_avalanche_old(v ^ key);
}

KERNELS_FN uint64_t xxh3_to_8(const uint8_t *b, uint32_t n)
{
    uint64_t h = xxh3_read(b + n - 4, 4) + (xxh3_read(b, 4) << 32);

    h ^= xxh3_key(8) ^ xxh3_key(16);
    h ^= xxh3_turn(h, 49) ^ xxh3_turn(h, 24);
    h *= XXH3_PRIME_MID;
    h ^= (h >> 35) + n;
    h *= XXH3_PRIME_MID;
    return h ^ h >> 28;
}

KERNELS_FN uint64_t xxh3_to_16(const uint8_t *b, uint32_t n)
{
    uint64_t low = xxh3_read64(b) ^ xxh3_key(24) ^ xxh3_key(32);
    uint64_t high = xxh3_read64(b + n - 8) ^ xxh3_key(40) ^ xxh3_key(48);

    return xxh3_avalanche(n + xxh3_swap(low) + high + xxh3_fold(low, high));
}

KERNELS_FN uint64_t xxh3_mix(const uint8_t *b, uint32_t key_at)
{
    return xxh3_fold(xxh3_read64(b) ^ xxh3_key(key_at), xxh3_read64(b + 8) ^ xxh3_key(key_at + 8));
}

/* From both ends towards the middle. */
KERNELS_FN uint64_t xxh3_to_128(const uint8_t *b, uint32_t n)
{
    uint64_t h = n * XXH3_PRIME64_1;

    KERNELS_LOOP
    for (uint32_t i = 0; i <= (n - 1) / 32; i++)
        h += xxh3_mix(b + 16 * i, 32 * i) + xxh3_mix(b + n - 16 * (i + 1), 32 * i + 16);
    return xxh3_avalanche(h);
}

KERNELS_FN uint64_t xxh3_to_240(const uint8_t *b, uint32_t n)
{
    uint64_t h = n * XXH3_PRIME64_1;

    KERNELS_LOOP
    for (uint32_t i = 0; i < 8; i++)
        h += xxh3_mix(b + 16 * i, 16 * i);
    h = xxh3_avalanche(h);
    KERNELS_LOOP
    for (uint32_t i = 8; i < n / 16; i++)
        h += xxh3_mix(b + 16 * i, 16 * (i - 8) + 3);
    return xxh3_avalanche(h + xxh3_mix(b + n - 16, 136 - 17));
}

/* Hashes n <= XXH3_SHORT_MAX bytes. */
KERNELS_FN uint64_t xxh3_short(const uint8_t *b, uint32_t n)
{
    if (n == 0)
        return xxh3_avalanche_old(xxh3_key(56) ^ xxh3_key(64));
    if (n <= 3)
        return xxh3_to_3(b, n);
    if (n <= 8)
        return xxh3_to_8(b, n);
    if (n <= 16)
        return xxh3_to_16(b, n);
    return n <= 128 ? xxh3_to_128(b, n) : xxh3_to_240(b, n);
}

/* Accumulators 2 * pair and 2 * pair + 1. */
struct xxh3_pair {
    uint64_t even, odd;
};

KERNELS_FN struct xxh3_pair xxh3_begin(uint32_t pair)
{
    struct xxh3_pair acc;

    acc.even = pair == 0   ? XXH3_PRIME32_3
               : pair == 1 ? XXH3_PRIME64_2
               : pair == 2 ? XXH3_PRIME64_4
                           : XXH3_PRIME64_5;
    acc.odd = pair == 0   ? XXH3_PRIME64_1
              : pair == 1 ? XXH3_PRIME64_3
              : pair == 2 ? XXH3_PRIME32_2
                          : XXH3_PRIME32_1;
    return acc;
}

/* Adds a stripe's 16 bytes for the pair, with their keys. */
KERNELS_FN void xxh3_add(struct xxh3_pair *acc, struct xxh3_pair bytes, struct xxh3_pair keys)
{
    uint64_t even = bytes.even ^ keys.even, odd = bytes.odd ^ keys.odd;

    acc->even += bytes.odd + (even & 0xffffffffu) * (even >> 32);
    acc->odd += bytes.even + (odd & 0xffffffffu) * (odd >> 32);
}

KERNELS_FN struct xxh3_pair xxh3_keys(uint32_t at, uint32_t pair)
{
    struct xxh3_pair keys;

    keys.even = xxh3_key(at + 16 * pair);
    keys.odd = xxh3_key(at + 16 * pair + 8);
    return keys;
}

KERNELS_FN void xxh3_scramble(struct xxh3_pair *acc, uint32_t pair)
{
    struct xxh3_pair keys = xxh3_keys(XXH3_AT_SCRAMBLE, pair);

    acc->even = (acc->even ^ acc->even >> 47 ^ keys.even) * XXH3_PRIME32_1;
    acc->odd = (acc->odd ^ acc->odd >> 47 ^ keys.odd) * XXH3_PRIME32_1;
}

/* The pair's term of the sum that xxh3_end gets. */
KERNELS_FN uint64_t xxh3_merge(const struct xxh3_pair *acc, uint32_t pair)
{
    struct xxh3_pair keys = xxh3_keys(XXH3_AT_MERGE, pair);

    return xxh3_fold(acc->even ^ keys.even, acc->odd ^ keys.odd);
}

KERNELS_FN uint64_t xxh3_end(uint64_t sum, uint64_t n)
{
    return xxh3_avalanche(sum + n * XXH3_PRIME64_1);
}

#endif
