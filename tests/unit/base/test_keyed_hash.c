/* base/keyed_hash: it equals, word by word, the function that its head proves; every part of a
 * sequence counts; inputs that collide under the public hash are inputs like any others here. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/keyed_hash.h"
#include "testing/secret.h"
#include "testing/test.h"
#include "unit/rig/rig_collide.h"

/* The same hash without vectors. */
static uint64_t plainly(const struct hash_secret *k, const uint32_t *words, uint32_t n)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < n; i += 2) {
        uint32_t low = words[i] + k->block[i], high = k->block[i + 1];

        if (i + 1 < n)
            high += words[i + 1];
        sum += (uint64_t)low * high;
    }
    return sum;
}

/* x * y mod P by doubling, without a product longer than a word. */
static uint64_t times(uint64_t x, uint64_t y)
{
    uint64_t sum = 0;

    for (x %= KEYED_PRIME; y > 0; y >>= 1, x = x * 2 % KEYED_PRIME)
        sum = (sum + (y & 1) * x) % KEYED_PRIME;
    return sum;
}

static void random_words(struct prng *p, uint32_t v[KEYED_BLOCK])
{
    for (uint32_t i = 0; i < KEYED_BLOCK; i++)
        v[i] = (uint32_t)prng_u64(p);
}

TEST(keyed_block_is_the_sum_of_products_at_every_length_and_address)
{
    uint32_t v[KEYED_BLOCK], shifted[KEYED_BLOCK + 1];
    struct hash_secret k = secret_from(7);
    struct prng p;

    prng_init(&p, 3);
    random_words(&p, v);
    memcpy(shifted + 1, v, sizeof v);
    for (uint32_t n = 0; n <= KEYED_BLOCK; n++) {
        assert_true(keyed_block(&k, v, n) == plainly(&k, v, n));
        assert_true(keyed_block(&k, shifted + 1, n) == plainly(&k, v, n));
    }
}

TEST(keyed_fold_and_place_are_what_they_are_mod_p)
{
    struct prng p;

    prng_init(&p, 5);
    for (uint32_t i = 0; i < 2000; i++) {
        struct hash_secret k = secret_from(i + 1);
        uint64_t h = prng_u64(&p) % KEYED_PRIME, v = prng_u64(&p), kind = prng_u64(&p) >> 30;
        uint64_t fold, place;

        if (i % 4 == 0) /* the largest values */
            k.step = k.low = k.high = k.kind = k.of = k.place_plus = v = UINT64_MAX;
        if (i % 8 == 0)
            h = KEYED_PRIME - 1;
        fold = (times(k.step & KEYED_PRIME, h) + times(k.low & KEYED_PRIME, (uint32_t)v) +
                times(k.high & KEYED_PRIME, v >> 32) + times(k.kind & KEYED_PRIME, kind)) %
               KEYED_PRIME;
        place = (times(k.of & KEYED_PRIME, h) + times(k.place_low & KEYED_PRIME, (uint32_t)v) +
                 times(k.place_high & KEYED_PRIME, v >> 32) + (k.place_plus & KEYED_PRIME)) %
                KEYED_PRIME;
        assert_true(keyed_fold(&k, h, v, kind) == fold);
        assert_true(keyed_place(&k, h, v) == place);
    }
}

TEST(keyed_every_bit_counts_and_so_do_kind_length_and_order)
{
    struct hash_secret k = secret_from(9);
    uint32_t v[KEYED_BLOCK] = {0};
    uint64_t before = keyed_block(&k, v, KEYED_BLOCK), once, twice;

    for (uint32_t bit = 0; bit < KEYED_BLOCK * 32; bit++) {
        v[bit / 32] ^= 1u << bit % 32;
        assert_true(keyed_block(&k, v, KEYED_BLOCK) != before);
        v[bit / 32] ^= 1u << bit % 32;
    }
    for (uint32_t bit = 0; bit < 64; bit++)
        assert_true(keyed_fold(&k, KEYED_START, 1ull << bit, 0) !=
                    keyed_fold(&k, KEYED_START, 0, 0));
    for (uint32_t bit = 0; bit < 34; bit++)
        assert_true(keyed_fold(&k, KEYED_START, 0, 1ull << bit) !=
                    keyed_fold(&k, KEYED_START, 0, 0));
    once = keyed_fold(&k, KEYED_START, 0, 0);
    twice = keyed_fold(&k, once, 0, 0); /* of zeros alone the number counts */
    assert_true(once != KEYED_START && twice != once && twice != KEYED_START);
    assert_true(keyed_fold(&k, keyed_fold(&k, KEYED_START, 1, 0), 2, 0) !=
                keyed_fold(&k, keyed_fold(&k, KEYED_START, 2, 0), 1, 0));
    assert_true(keyed_place(&k, 1, 2) != keyed_place(&k, 2, 1));
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

enum { N = 38400, BUCKETS = 65536 };

/* The records in the fullest bucket, for N chunks with one public hash. */
static uint32_t fullest_of_colliding(const struct hash_secret *k)
{
    uint8_t *count = calloc(BUCKETS, 1);
    uint64_t *seen = malloc(N * sizeof *seen);
    uint32_t most = 0, v[COLLIDE_TOKENS];

    assert_true(count && seen);
    for (uint32_t i = 0; i < N; i++) {
        uint8_t *n;

        colliding_chunk(i, v);
        seen[i] = keyed_fold(k, KEYED_START, keyed_block(k, v, COLLIDE_TOKENS), COLLIDE_TOKENS);
        n = &count[keyed_place(k, seen[i], 0) & (BUCKETS - 1)];
        most = ++*n > most ? *n : most;
        assert_true(*n < UINT8_MAX);
    }
    qsort(seen, N, sizeof *seen, by_value);
    for (uint32_t i = 1; i < N; i++)
        assert_true(seen[i - 1] != seen[i]);
    free(seen);
    free(count);
    return most;
}

TEST(keyed_chunks_that_collide_in_public_are_spread_under_every_secret)
{
    uint32_t v[COLLIDE_TOKENS];
    uint64_t public;

    colliding_chunk(0, v);
    public = hash_words(0, v, COLLIDE_TOKENS);
    for (uint32_t i = 1; i < N; i++) {
        colliding_chunk(i, v);
        assert_true(hash_words(0, v, COLLIDE_TOKENS) == public);
    }
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct hash_secret k = secret_from(seed);

        assert_in_range(fullest_of_colliding(&k), 1, 10); /* 11 once in 10^7 times by chance */
    }
}
