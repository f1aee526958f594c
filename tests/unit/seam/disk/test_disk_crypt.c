/* Bodies and heads under AES-256-GCM: values of another implementation, pieces of any length, and
 * nothing opens that differs from what was sealed. After a context is made nothing allocates. */
#include "testing/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>

#include "base/prng.h"
#include "seam/disk/disk_crypt.h"

#define BYTES 70001

static const uint8_t zero_key[DISK_KEY_BYTES];
static const uint8_t zero_nonce[DISK_NONCE_BYTES];
static uint8_t plain[BYTES], sealed[BYTES], bytes[BYTES];
static uint8_t associated[600];
static long allocations;

static void *count_malloc(size_t n, const char *file, int line)
{
    (void)file;
    (void)line;
    allocations++;
    return malloc(n);
}

static void *count_realloc(void *p, size_t n, const char *file, int line)
{
    (void)file;
    (void)line;
    allocations++;
    return realloc(p, n);
}

static void count_free(void *p, const char *file, int line)
{
    (void)file;
    (void)line;
    free(p);
}

/* Runs before OpenSSL allocates anything, otherwise OpenSSL refuses. */
__attribute__((constructor)) static void count_allocations(void)
{
    if (CRYPTO_set_mem_functions(count_malloc, count_realloc, count_free) != 1)
        abort();
}

static struct disk_crypt *crypt_of(const uint8_t *key)
{
    struct disk_crypt *c;
    const char *why;

    assert_int_equal(disk_crypt_create(key, &c, &why), TERN_OK);
    return c;
}

/* piece 0: all at once. */
static void update(struct disk_crypt *c, uint8_t *v, size_t n, size_t piece)
{
    for (size_t at = 0; at < n;) {
        size_t take = piece == 0 || n - at < piece ? n - at : piece;

        disk_crypt_update(c, v + at, take);
        at += take;
    }
}

static void seal(struct disk_crypt *c, const uint8_t *nonce, size_t piece, uint8_t *tag)
{
    memcpy(sealed, plain, BYTES);
    disk_crypt_begin(c, DISK_KEY_BODIES, DISK_SEAL, nonce, associated, sizeof associated);
    update(c, sealed, BYTES, piece);
    assert_true(disk_seal_end(c, tag));
}

static bool opens(struct disk_crypt *c, const uint8_t *nonce, size_t piece, const uint8_t *tag)
{
    memcpy(bytes, sealed, BYTES);
    disk_crypt_begin(c, DISK_KEY_BODIES, DISK_OPEN, nonce, associated, sizeof associated);
    update(c, bytes, BYTES, piece);
    return disk_open_end(c, tag);
}

FIXTURE(fill)
{
    struct prng p;

    prng_init(&p, 4);
    for (uint32_t i = 0; i < BYTES; i++)
        plain[i] = (uint8_t)prng_u64(&p);
    for (uint32_t i = 0; i < sizeof associated; i++)
        associated[i] = (uint8_t)prng_u64(&p);
    return 0;
}

FIXTURE(nothing)
{
    return 0;
}

TEST_GROUP(fill, nothing);

/* AES-256-GCM under HMAC-SHA256 of the key's label, as computed by a separate implementation that
 * agrees with cases 13 and 14 of the GCM specification: a daemon must read other daemons' files. */
static const struct figure_counts {
    enum disk_key key;
    uint8_t cipher[40], tag[DISK_TAG_BYTES];
} figures[] = {
    {DISK_KEY_BODIES,
     {0x4a, 0x9b, 0xfc, 0xfd, 0x83, 0x25, 0x4b, 0xc4, 0x35, 0x96, 0xdb, 0x81, 0xf5, 0xbc,
      0xf1, 0x21, 0x7d, 0xdf, 0xc1, 0x74, 0x49, 0x4c, 0x5a, 0xa5, 0xf3, 0x26, 0xda, 0x57,
      0xbb, 0x54, 0x58, 0xd5, 0xe3, 0x6a, 0x1b, 0x5b, 0x34, 0x77, 0x83, 0x2f},
     {0x29, 0x18, 0x67, 0x62, 0x2c, 0xbb, 0xd2, 0xfc, 0x7a, 0x76, 0xda, 0xa9, 0x67, 0xab, 0xd1,
      0x6b}},
    {DISK_KEY_HEADS,
     {0x34, 0xef, 0x7a, 0x6f, 0xbe, 0x2b, 0x7e, 0x2e, 0xcf, 0x77, 0xda, 0x91, 0xa4, 0xbf,
      0xcd, 0x2d, 0x79, 0xca, 0x06, 0x6b, 0x49, 0x8f, 0xa5, 0xef, 0xdd, 0xf9, 0xde, 0xad,
      0xe8, 0xea, 0x0f, 0xad, 0x3d, 0x13, 0xf3, 0xca, 0x33, 0x46, 0x9d, 0xd8},
     {0x2d, 0x20, 0xb2, 0xa5, 0x21, 0xba, 0x0b, 0xc2, 0x53, 0xc9, 0x72, 0xe0, 0x8d, 0xdb, 0x8f,
      0x43}},
};

TEST(each_derived_key_gives_its_figures)
{
    static const char beside[] = "beside it";
    uint8_t key[DISK_KEY_BYTES], nonce[DISK_NONCE_BYTES], body[40], is[DISK_TAG_BYTES];
    struct disk_crypt *c;

    for (uint8_t i = 0; i < sizeof key; i++)
        key[i] = i;
    for (uint8_t i = 0; i < sizeof nonce; i++)
        nonce[i] = (uint8_t)(100 + i);
    c = crypt_of(key);
    assert_true(disk_crypt_key_id(c) == 0xaf32f48760fbd893);
    for (uint32_t k = 0; k < DISK_KEYS; k++) {
        for (uint8_t i = 0; i < sizeof body; i++)
            body[i] = i;
        disk_crypt_begin(c, figures[k].key, DISK_SEAL, nonce, (const uint8_t *)beside,
                         sizeof beside - 1);
        disk_crypt_update(c, body, sizeof body);
        assert_true(disk_seal_end(c, is));
        assert_memory_equal(body, figures[k].cipher, sizeof body);
        assert_memory_equal(is, figures[k].tag, sizeof is);
    }
    disk_crypt_destroy(c);
}

TEST(what_one_key_sealed_no_other_opens)
{
    struct disk_crypt *c = crypt_of(zero_key);
    uint8_t tag[DISK_TAG_BYTES];

    seal(c, zero_nonce, 0, tag);
    memcpy(bytes, sealed, BYTES);
    disk_crypt_begin(c, DISK_KEY_HEADS, DISK_OPEN, zero_nonce, associated, sizeof associated);
    disk_crypt_update(c, bytes, BYTES);
    assert_false(disk_open_end(c, tag));
    assert_true(opens(c, zero_nonce, 0, tag));
    disk_crypt_destroy(c);
}

TEST(pieces_of_any_length_are_one_body)
{
    static const size_t pieces[] = {0, 1, 15, 16, 17, 4096, 65535};
    struct disk_crypt *c = crypt_of(zero_key);
    uint8_t tag[DISK_TAG_BYTES], first[DISK_TAG_BYTES];
    static uint8_t whole[BYTES];

    seal(c, zero_nonce, 0, first);
    memcpy(whole, sealed, BYTES);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        seal(c, zero_nonce, pieces[i], tag);
        assert_memory_equal(sealed, whole, BYTES);
        assert_memory_equal(tag, first, sizeof tag);
        assert_true(opens(c, zero_nonce, pieces[i], tag));
        assert_memory_equal(bytes, plain, BYTES);
    }
    disk_crypt_destroy(c);
}

TEST(nothing_opens_that_is_not_what_was_sealed)
{
    struct disk_crypt *c = crypt_of(zero_key), *other;
    uint8_t nonce[DISK_NONCE_BYTES], tag[DISK_TAG_BYTES], key[DISK_KEY_BYTES] = {0};
    uint32_t flips = 0;
    uint64_t id;

    assert_true(disk_crypt_fresh(c, &id, nonce));
    seal(c, nonce, 0, tag);
    for (uint32_t bit = 0; bit < sizeof nonce * 8; bit++, flips++) {
        nonce[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_false(opens(c, nonce, 0, tag));
        nonce[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (uint32_t bit = 0; bit < sizeof tag * 8; bit++, flips++) {
        tag[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_false(opens(c, nonce, 0, tag));
        tag[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (uint32_t at = 0; at < sizeof associated; at++, flips++) {
        associated[at] ^= 0x10;
        assert_false(opens(c, nonce, 0, tag));
        associated[at] ^= 0x10;
    }
    for (uint32_t at = 0; at < BYTES; at += 97, flips++) {
        sealed[at] ^= 1;
        assert_false(opens(c, nonce, 0, tag));
        sealed[at] ^= 1;
    }
    for (uint32_t bit = 0; bit < sizeof key * 8; bit += 5, flips++) {
        key[bit / 8] ^= (uint8_t)(1u << bit % 8);
        other = crypt_of(key);
        assert_false(opens(other, nonce, 0, tag));
        assert_true(disk_crypt_key_id(other) != disk_crypt_key_id(c));
        disk_crypt_destroy(other);
        key[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_true(opens(c, nonce, 0, tag));
    printf("flips=%u opened=0\n", flips);
    disk_crypt_destroy(c);
}

TEST(nonces_are_random_and_the_keys_id_is_the_keys)
{
    enum { N = 2000 };
    static uint8_t nonce[N][DISK_NONCE_BYTES];
    struct disk_crypt *c = crypt_of(zero_key), *again = crypt_of(zero_key);
    uint32_t ones = 0;
    uint64_t id;

    for (uint32_t i = 0; i < N; i++) {
        assert_true(disk_crypt_fresh(i % 2 ? c : again, &id, nonce[i]));
        assert_true(id == disk_crypt_key_id(c) && id != 0);
        for (uint32_t k = 0; k < i; k++)
            assert_memory_not_equal(nonce[i], nonce[k], sizeof nonce[i]);
        for (uint32_t k = 0; k < sizeof nonce[i]; k++)
            ones += (uint32_t)__builtin_popcount(nonce[i][k]);
    }
    assert_in_range(ones, N * 96 * 49 / 100, N * 96 * 51 / 100);
    disk_crypt_destroy(c);
    disk_crypt_destroy(again);
}

TEST(nothing_allocates_once_a_context_is_made)
{
    struct disk_crypt *c = crypt_of(zero_key);
    uint8_t nonce[DISK_NONCE_BYTES], tag[DISK_TAG_BYTES];
    long before;
    uint64_t id;

    assert_true(allocations > 0);
    before = allocations;
    for (uint32_t i = 0; i < 100; i++) {
        assert_true(disk_crypt_fresh(c, &id, nonce));
        seal(c, nonce, 4096, tag);
        assert_true(opens(c, nonce, 1000, tag));
        tag[0] ^= 1;
        assert_false(opens(c, nonce, 1000, tag));
    }
    printf("allocations=%ld\n", allocations - before);
    assert_int_equal(allocations, before);
    disk_crypt_destroy(c);
}
