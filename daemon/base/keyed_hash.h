/* The hash that indexes tables in memory. Clients and peers choose what is hashed, so the hash
 * depends on a secret that the daemon draws at its start and never shows: nobody can compute inputs
 * that share a bucket. base/hash.h has the public hash for identities that are visible outside.
 *
 * The input is a sequence of symbols (a 64-bit value and a kind); each chunk of tokens adds some
 * symbols to the hash of its parent:
 *
 *   keyed_block   a block of up to KEYED_BLOCK words to the value of a symbol: NH of UMAC, the sum
 *                 of (m[2i] + k[2i] mod 2^32) * (m[2i+1] + k[2i+1] mod 2^32) mod 2^64. Every word
 *                 has a key word of its own. For two different blocks of one length and any d, at
 *                 most 2^-32 of the keys give values that differ by d.
 *   keyed_fold    h * step + low * a + high * b + kind * c mod P, P = 2^61 - 1: a polynomial in
 *                 `step`, with secret weights for the halves of the value and for the kind.
 *   keyed_place   h * of + low * d + high * e + plus mod P: which bucket, by its low bits.
 *
 * Bound. Sequences start from 1, so the polynomials of two lengths differ in their highest
 * coefficient; kinds say what a symbol is and how many words it has, so two different paths never
 * give equal sequences. Two different sequences of up to n symbols have equal hashes for at most
 * 2^-32 + (n + 1) / P of the secrets: some block pair agrees in NH, or else the weighted sums of a
 * differing symbol agree (1 / P), or `step` is a root of their difference (n / P). keyed_place is
 * pairwise independent: different inputs share one of m buckets with a probability of 1/m + m/P at
 * most. A lookup among n records in m >= n buckets thus meets n/m + n * 2^-32 others on average,
 * whatever they are, as long as their author sees no hash. n is at most 2^30, so this is less than
 * 1.3.
 *
 * There is no need for a faster function of the same kind, or for one without a proof: for 16 or 64
 * tokens a block costs a load, an add, a shift, a multiplication and an add for each four words,
 * and the fold four multiplications. */
#ifndef BASE_KEYED_HASH_H
#define BASE_KEYED_HASH_H

#include <stdint.h>

#define KEYED_BLOCK 64 /* words */
#define KEYED_PRIME ((1ull << 61) - 1)

/* Random bytes of any value. Invariant: no tape, log, answer or dump contains the secret. */
struct hash_secret {
    uint32_t block[KEYED_BLOCK];
    uint64_t step, low, high, kind;                 /* of keyed_fold */
    uint64_t of, place_low, place_high, place_plus; /* of keyed_place */
};

#define KEYED_START 1ull /* where a sequence starts */

__extension__ typedef unsigned __int128 keyed_wide;

/* n <= KEYED_BLOCK words, at any address that words may have. */
uint64_t keyed_block(const struct hash_secret *k, const uint32_t *words, uint32_t n);

/* The least residue of x mod P. */
static inline uint64_t keyed_residue(keyed_wide x)
{
    uint64_t r = (uint64_t)(x & KEYED_PRIME) + (uint64_t)(x >> 61);

    r = (r & KEYED_PRIME) + (r >> 61);
    return r >= KEYED_PRIME ? r - KEYED_PRIME : r;
}

static inline keyed_wide keyed_times(uint64_t secret, uint64_t by)
{
    return (keyed_wide)(secret & KEYED_PRIME) * by;
}

/* h: KEYED_START, or a result of keyed_fold. kind < 2^34. The sum stays below 2^123. */
static inline uint64_t keyed_fold(const struct hash_secret *k, uint64_t h, uint64_t value,
                                  uint64_t kind)
{
    return keyed_residue(keyed_times(k->step, h) + keyed_times(k->low, (uint32_t)value) +
                         keyed_times(k->high, value >> 32) + keyed_times(k->kind, kind));
}

/* The low bits are the bucket of (h, with). */
static inline uint64_t keyed_place(const struct hash_secret *k, uint64_t h, uint64_t with)
{
    return keyed_residue(keyed_times(k->of, h) + keyed_times(k->place_low, (uint32_t)with) +
                         keyed_times(k->place_high, with >> 32) + (k->place_plus & KEYED_PRIME));
}

#endif
