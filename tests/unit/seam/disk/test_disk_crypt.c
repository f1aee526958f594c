/* Bodies under AES-256-GCM: the standard's own figures, pieces of any length, and nothing opens
 * that is not what was sealed. Once a context is made nothing allocates. */
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

/* Before OpenSSL allocates anything, else it refuses. */
__attribute__((constructor)) static void count_allocations(void)
{
    if (CRYPTO_set_mem_functions(count_malloc, count_realloc, count_free) != 1)
        abort();
}

static struct disk_crypt *crypt_of(const uint8_t *key)
{
    struct disk_crypt *c;
    const char *why;

    assert_true(disk_crypt_built());
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
    disk_seal_begin(c, nonce, associated, sizeof associated);
    update(c, sealed, BYTES, piece);
    assert_true(disk_seal_end(c, tag));
}

static bool opens(struct disk_crypt *c, const uint8_t *nonce, size_t piece, const uint8_t *tag)
{
    memcpy(bytes, sealed, BYTES);
    disk_open_begin(c, nonce, associated, sizeof associated);
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

/* Test cases 13 and 14 of the GCM specification by McGrew and Viega. */
TEST(gcm_gives_the_standards_figures)
{
    static const uint8_t empty_tag[] = {0x53, 0x0f, 0x8a, 0xfb, 0xc7, 0x45, 0x36, 0xb9,
                                        0xa9, 0x63, 0xb4, 0xf1, 0xc4, 0xcb, 0x73, 0x8b};
    static const uint8_t cipher[] = {0xce, 0xa7, 0x40, 0x3d, 0x4d, 0x60, 0x6b, 0x6e,
                                     0x07, 0x4e, 0xc5, 0xd3, 0xba, 0xf3, 0x9d, 0x18};
    static const uint8_t tag[] = {0xd0, 0xd1, 0xc8, 0xa7, 0x99, 0x99, 0x6b, 0xf0,
                                  0x26, 0x5b, 0x98, 0xb5, 0xd4, 0x8a, 0xb9, 0x19};
    struct disk_crypt *c = crypt_of(zero_key);
    uint8_t body[16] = {0}, is[DISK_TAG_BYTES];

    disk_seal_begin(c, zero_nonce, associated, 0);
    assert_true(disk_seal_end(c, is));
    assert_memory_equal(is, empty_tag, sizeof is);
    disk_seal_begin(c, zero_nonce, associated, 0);
    disk_crypt_update(c, body, sizeof body);
    assert_true(disk_seal_end(c, is));
    assert_memory_equal(body, cipher, sizeof body);
    assert_memory_equal(is, tag, sizeof is);
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
