/* base/hash: every word counts, wherever it stands; no obvious collisions; equal input has an equal
 * hash. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "testing/test.h"

#define WORDS 67 /* not a multiple of any lane count */

static void ramp(uint32_t v[WORDS])
{
    for (uint32_t i = 0; i < WORDS; i++)
        v[i] = 1000 + i;
}

/* The same hash, word by word and without vectors. */
static uint64_t plainly(uint64_t seed, const uint32_t *words, size_t n)
{
    static const uint64_t start[4] = {0x9e3779b97f4a7c15u, 0xc2b2ae3d27d4eb4fu, 0x165667b19e3779f9u,
                                      0x27d4eb2f165667c5u};
    uint64_t acc[4] = {seed, seed ^ start[1], seed + start[2], ~seed}, h = hash_mix(seed, n);

    for (size_t i = 0; i < n; i++)
        if (i >= n / 8 * 8)
            acc[i % 4] = hash_mix(acc[i % 4], words[i]);
        else if (i % 2 == 0) {
            uint64_t v = words[i] | (uint64_t)words[i + 1] << 32;
            uint64_t x = v ^ (start[i / 2 % 4] + i / 8 * start[0]);

            acc[i / 2 % 4] += v + (x & 0xffffffffu) * (x >> 32);
        }
    for (int l = 0; l < 4; l++)
        h = hash_mix(h ^ acc[l], start[l]);
    return h;
}

TEST(hash_is_what_it_is_without_vectors)
{
    uint32_t v[WORDS];

    for (uint32_t i = 0; i < WORDS; i++)
        v[i] = (uint32_t)hash_mix(i, 77);
    for (size_t n = 0; n <= WORDS; n++)
        assert_true(hash_words(n * 31, v, n) == plainly(n * 31, v, n));
}

TEST(hash_same_words_same_result)
{
    uint32_t a[WORDS], b[WORDS];

    ramp(a);
    ramp(b);
    for (size_t n = 0; n <= WORDS; n++)
        assert_true(hash_words(5, a, n) == hash_words(5, b, n));
}

TEST(hash_unaligned_words_same_result)
{
    uint32_t a[WORDS], shifted[WORDS + 1];

    ramp(a);
    memcpy(shifted + 1, a, sizeof a);
    for (size_t n = 0; n <= WORDS; n++)
        assert_true(hash_words(5, a, n) == hash_words(5, shifted + 1, n));
}

TEST(hash_any_bit_flipped_changes_the_result)
{
    uint32_t a[WORDS];
    uint64_t before;

    ramp(a);
    before = hash_words(9, a, WORDS);
    for (uint32_t bit = 0; bit < WORDS * 32; bit++) {
        a[bit / 32] ^= 1u << bit % 32;
        assert_true(hash_words(9, a, WORDS) != before);
        a[bit / 32] ^= 1u << bit % 32;
    }
}

TEST(hash_length_order_and_seed_change_the_result)
{
    uint32_t zeros[WORDS] = {0}, a[WORDS];
    uint64_t seen[WORDS + 1];

    for (size_t n = 0; n <= WORDS; n++) {
        seen[n] = hash_words(0, zeros, n);
        for (size_t k = 0; k < n; k++)
            assert_true(seen[k] != seen[n]);
    }
    ramp(a);
    for (uint32_t i = 0; i < WORDS; i++)
        for (uint32_t k = i + 1; k < WORDS; k++) {
            uint64_t before = hash_words(1, a, WORDS), after;
            uint32_t t = a[i];

            a[i] = a[k];
            a[k] = t;
            after = hash_words(1, a, WORDS);
            assert_true(after != before);
            a[k] = a[i];
            a[i] = t;
        }
    assert_true(hash_words(1, a, WORDS) != hash_words(2, a, WORDS));
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* 60,000 short similar inputs: by chance alone a 64-bit hash collides once in 10^10 such sets. */
TEST(hash_similar_inputs_do_not_collide)
{
    enum { N = 60000 };
    uint64_t *seen = malloc(N * sizeof *seen);

    assert_non_null(seen);
    for (uint32_t i = 0; i < N; i++) {
        uint32_t v[16] = {0};

        v[i % 16] = i / 16;
        v[(i + 7) % 16] = ~i;
        seen[i] = hash_words(3, v, 16);
    }
    qsort(seen, N, sizeof *seen, by_value);
    for (uint32_t i = 1; i < N; i++)
        assert_true(seen[i - 1] != seen[i]);
    free(seen);
}

/* The low bits pick a bucket: they must spread consecutive token chunks evenly. */
TEST(hash_low_bits_fill_buckets_evenly)
{
    enum { BUCKETS = 256, N = 256 * 64 };
    uint32_t count[BUCKETS] = {0};

    for (uint32_t i = 0; i < N; i++) {
        uint32_t v[64];

        for (uint32_t k = 0; k < 64; k++)
            v[k] = i * 64 + k;
        count[hash_words(0, v, 64) % BUCKETS]++;
    }
    for (uint32_t b = 0; b < BUCKETS; b++)
        assert_in_range(count[b], 24, 112); /* mean 64, deviation 8: five deviations and more */
}

TEST(hash_mix_is_not_symmetric_and_changes_with_each_argument)
{
    assert_true(hash_mix(1, 2) != hash_mix(2, 1));
    assert_true(hash_mix(0, 0) != hash_mix(0, 1));
    assert_true(hash_mix(0, 0) != hash_mix(1, 0));
}
