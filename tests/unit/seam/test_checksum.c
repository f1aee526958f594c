/* X7: one-shot and piecewise forms agree with the definition computed by the plain library. */

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

#include "base/prng.h"
#include "seam/mem/checksum.h"
#include "testing/test.h"

#define BYTES_MAX (1u << 20)

static uint8_t *bytes;

/* The definition, by the library's own entry, without our code. */
static uint64_t by_definition(const uint8_t *p, size_t n)
{
    static uint64_t sub[BYTES_MAX / CHECKSUM_BLOCK + 1];
    size_t blocks = 0;

    for (size_t at = 0; at < n; at += CHECKSUM_BLOCK)
        sub[blocks++] =
            htole64(XXH3_64bits(p + at, n - at < CHECKSUM_BLOCK ? n - at : CHECKSUM_BLOCK));
    return XXH3_64bits(sub, blocks * sizeof sub[0]);
}

FIXTURE(make_bytes)
{
    struct prng p;

    bytes = malloc(BYTES_MAX);
    if (!bytes)
        return -1;
    prng_init(&p, 1);
    for (size_t i = 0; i < BYTES_MAX; i++)
        bytes[i] = (uint8_t)prng_u64(&p);
    return 0;
}

FIXTURE(free_bytes)
{
    free(bytes);
    return 0;
}

TEST_GROUP(make_bytes, free_bytes);

TEST(checksum_unit_agrees_with_the_definition)
{
    static const size_t sizes[] = {
        1, 7, 4095, 4096, 4097, 8192, 65536, 262143, 262144, 262145, 64 * 4096 + 8192, BYTES_MAX};

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        assert_int_equal(checksum_unit(bytes, sizes[i]), by_definition(bytes, sizes[i]));
}

/* Each variant that this machine can run gives the same result. */
TEST(checksum_variants_agree)
{
    static uint64_t a[BYTES_MAX / CHECKSUM_BLOCK + 1], b[BYTES_MAX / CHECKSUM_BLOCK + 1];
    static const size_t sizes[] = {1, 100, 240, 241, 4095, 4096, 4097, 262143, BYTES_MAX};

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t n = (sizes[i] + CHECKSUM_BLOCK - 1) / CHECKSUM_BLOCK * sizeof a[0];

        checksum_blocks_baseline(bytes, sizes[i], a);
#if defined(__x86_64__)
        if (__builtin_cpu_supports("avx2")) {
            checksum_blocks_avx2(bytes, sizes[i], b);
            assert_memory_equal(a, b, n);
        }
        if (__builtin_cpu_supports("avx512vbmi2")) {
            memset(b, 0, sizeof b);
            checksum_blocks_avx512(bytes, sizes[i], b);
            assert_memory_equal(a, b, n);
        }
#endif
    }
    (void)b;
}

TEST(checksum_known_value_stays)
{
    uint8_t zero[8192] = {0};

    /* Used on the wire and on disk: a change here breaks every peer. Computed by the library's
     * default entry. */
    assert_int_equal(checksum_unit(zero, sizeof zero), by_definition(zero, sizeof zero));
    assert_int_equal(checksum_unit(zero, sizeof zero), 0x895a5e2e268f1792u);
}

TEST(checksum_fed_in_pieces_is_the_same)
{
    struct prng p;
    struct checksum c;

    prng_init(&p, 7);
    for (int round = 0; round < 300; round++) {
        size_t n = 1 + prng_below(&p, BYTES_MAX), at = 0;

        checksum_begin(&c);
        while (at < n) {
            size_t piece = (1 + (size_t)prng_below(&p, 100)) * CHECKSUM_BLOCK;

            piece = piece < n - at ? piece : n - at;
            checksum_feed(&c, bytes + at, piece);
            at += piece;
        }
        assert_int_equal(checksum_end(&c), checksum_unit(bytes, n));
    }
}

TEST(checksum_sees_every_flipped_bit_position)
{
    const size_t n = 3 * CHECKSUM_BLOCK + 100;
    uint64_t right = checksum_unit(bytes, n);

    for (size_t i = 0; i < n; i += 37) {
        bytes[i] ^= (uint8_t)(1u << (i & 7));
        assert_int_not_equal(checksum_unit(bytes, n), right);
        bytes[i] ^= (uint8_t)(1u << (i & 7));
    }
    assert_int_equal(checksum_unit(bytes, n), right);
}

TEST(checksum_unit_spans_cover_the_page)
{
    for (uint32_t units = 1; units < 40; units++) {
        uint64_t end = 0;

        for (uint32_t k = 0; k < units; k++) {
            uint64_t from, to = checksum_unit_span(70272, units, k, &from);

            assert_int_equal(from, end);
            assert_true(to > from);
            end = to;
        }
        assert_int_equal(end, 70272);
    }
}

static double seconds(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static double gb_s(checksum_blocks_fn *fn)
{
    static uint64_t out[64];
    const size_t n = 256u << 10;
    double best = 0;

    for (int round = 0; round < 5; round++) {
        double from = seconds(), rate;

        for (int i = 0; i < 200; i++)
            fn(bytes, n, out);
        rate = 200 * (double)n / (seconds() - from) / 1e9;
        best = rate > best ? rate : best;
    }
    return best;
}

/* Printed, never asserted. */
TEST(checksum_speed_is_printed)
{
    printf("checksum: baseline=%d baseline_gb_s=%.1f", checksum_blocks == checksum_blocks_baseline,
           gb_s(checksum_blocks_baseline));
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        printf(" avx2_gb_s=%.1f", gb_s(checksum_blocks_avx2));
    if (__builtin_cpu_supports("avx512vbmi2"))
        printf(" avx512_gb_s=%.1f", gb_s(checksum_blocks_avx512));
#endif
    printf("\n");
}
