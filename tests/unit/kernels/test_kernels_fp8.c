/* e4m3 against a search among all of its values, every bf16 against every scale, and the error that
 * kernels.h states. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/prng.h"
#include "kernels/fp8.h"
#include "kernels/reference.h"
#include "testing/test.h"

#define ROUNDS       300
#define ELEMENTS_MAX 4096
#define E4M3_FINITES 127 /* of one sign */
#define SCALE_LEAST  (-126)

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double bf16_value(uint32_t bits)
{
    uint32_t wide = bits << 16;
    float f;

    memcpy(&f, &wide, sizeof f);
    return (double)f;
}

static double e4m3_value(uint32_t code)
{
    uint32_t exponent = code >> 3 & 15, digits = code & 7;
    double v = exponent ? ldexp(1 + digits / 8.0, (int)exponent - E4M3_BIAS)
                        : ldexp(digits / 8.0, 1 - E4M3_BIAS);

    return code & 0x80 ? -v : v;
}

/* The nearest value, of two the even one: a number between two codes is above or below their
 * mean. */
static uint32_t e4m3_search(double v)
{
    uint32_t code = 0;

    while (code < E4M3_MOST) {
        double mean = (e4m3_value(code) + e4m3_value(code + 1)) / 2;

        if (v < mean || (v == mean && code % 2 == 0))
            break;
        code++;
    }
    return code;
}

TEST(e4m3_of_every_bf16_is_the_nearest)
{
    for (int scale = 1; scale <= 247; scale += scale < 8 || scale > 238 ? 1 : 23)
        for (uint32_t bits = 0; bits < BF16_INFINITY; bits++) {
            double v = ldexp(bf16_value(bits), BF16_BIAS - scale);
            uint32_t want = e4m3_search(v);

            if (fp8_from_bf16(bits, scale) != want ||
                fp8_from_bf16(bits | 0x8000, scale) != (want | 0x80))
                fail_msg("%#x with scale exponent %d", bits, scale);
        }
    assert_int_equal(fp8_from_bf16(BF16_INFINITY, 127), E4M3_MOST);
    assert_int_equal(fp8_from_bf16(BF16_INFINITY | 0x8000, 127), E4M3_MOST | 0x80);
    assert_int_equal(fp8_from_bf16(BF16_INFINITY + 1, 127), E4M3_NAN);
    assert_int_equal(fp8_to_bf16(E4M3_NAN, 127), BF16_NAN);
    assert_true(e4m3_value(E4M3_MOST) == 448);
}

TEST(scales_are_the_least_that_will_do)
{
    for (uint32_t most = 0; most < BF16_INFINITY; most++) {
        int32_t scale = fp8_exponent(most);
        double v = ldexp(bf16_value(most), BF16_BIAS - scale);

        if (v > 448 || (v <= 224 && scale != SCALE_LEAST + BF16_BIAS))
            fail_msg("of %#x: %d", most, scale);
    }
}

TEST(bf16_of_every_e4m3_is_exact)
{
    for (int scale = 3; scale <= 246; scale++)
        for (uint32_t code = 0; code < 256; code++) {
            double v = ldexp(e4m3_value(code), scale - BF16_BIAS), back;

            if ((code & 0x7f) == E4M3_NAN)
                continue;
            back = bf16_value(fp8_to_bf16(code, scale));
            if (back != v || signbit(back) != signbit(v))
                fail_msg("%#x with scale exponent %d: %g is %g", code, scale, v, back);
        }
}

/* One head, whose elements are of about one size, or of any. */
static uint32_t page_make(uint16_t *v, struct prng *p)
{
    uint32_t n = 8 * (1 + prng_below(p, ELEMENTS_MAX / 8)), middle = prng_below(p, 255);

    for (uint32_t i = 0; i < n; i++) {
        uint32_t exponent = middle + prng_below(p, 12), bits = (uint32_t)prng_u64(p) & 0xffff;

        v[i] = (uint16_t)((bits & 0x807f) | (exponent > 254 ? 254 : exponent) << 7);
        if (middle % 4 == 0 && (bits & BF16_MAGNITUDE) < BF16_INFINITY)
            v[i] = (uint16_t)bits;
    }
    return n;
}

static double largest(const uint16_t *v, uint32_t n)
{
    double most = 0;

    for (uint32_t i = 0; i < n; i++)
        most = larger(most, fabs(bf16_value(v[i])));
    return most;
}

TEST(what_comes_back_differs_by_no_more_than_is_stated)
{
    static _Alignas(16) uint16_t page[ELEMENTS_MAX], was[ELEMENTS_MAX];
    static _Alignas(16) uint8_t packed[ELEMENTS_MAX];
    double worst = 0;
    struct prng p;

    prng_init(&p, 3);
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t n = page_make(page, &p), list = 0;
        float scale;
        union kernels_args a = {.fp8 = {.pool = (uint64_t)(uintptr_t)page,
                                        .packed = (uint64_t)(uintptr_t)packed,
                                        .scales = (uint64_t)(uintptr_t)&scale,
                                        .list = (uint64_t)(uintptr_t)&list,
                                        .page_bytes = n * 2,
                                        .n = 1,
                                        .heads = 1,
                                        .outer = 1,
                                        .rows = 1,
                                        .row_elements = n}};
        struct kernels_launch l;
        double most = largest(page, n);

        memcpy(was, page, sizeof page);
        assert_int_equal(kernels_prepare(KERNELS_FP8_PACK, &a, &l), KERNELS_REFUSED_NONE);
        reference_run(KERNELS_FP8_PACK, &a);
        reference_run(KERNELS_FP8_UNPACK, &a);
        assert_true(most <= 448 * (double)scale);
        assert_true((double)scale < most / 224 || (double)scale == ldexp(1, SCALE_LEAST));
        for (uint32_t i = 0; i < n; i++) {
            double x = bf16_value(was[i]), off = fabs(bf16_value(page[i]) - x);
            double may = larger(fabs(x) / 16, (double)scale / 1024);

            if (off > may)
                fail_msg("%g came back as %g, scale %g", x, bf16_value(page[i]), (double)scale);
            worst = larger(worst, may > 0 ? off / may : 0);
        }
    }
    print_message("at worst %.3f of the error that is stated\n", worst);
    assert_true(worst > 0.9);
}

TEST(heads_that_are_not_all_of_a_page_are_refused)
{
    static const struct kernels_fp8 good = {.page_bytes = 2 * 4 * 3 * 16 * 2,
                                            .n = 1,
                                            .heads = 4,
                                            .outer = 2,
                                            .rows = 3,
                                            .row_elements = 16,
                                            .head_stride = 16,
                                            .row_stride = 64,
                                            .outer_stride = 192};
    union kernels_args a = {.fp8 = good};
    struct kernels_launch l;

#define REFUSED(field, value, why)                                                                 \
    a.fp8 = good;                                                                                  \
    a.fp8.field = value;                                                                           \
    assert_int_equal(kernels_prepare(KERNELS_FP8_PACK, &a, &l), KERNELS_REFUSED_##why)
    REFUSED(n, 1, NONE);
    REFUSED(page_bytes, good.page_bytes + 16, HEADS);
    REFUSED(page_bytes, good.page_bytes + 2, PAGE_BYTES);
    REFUSED(row_elements, 12, HEADS);
    REFUSED(heads, 0, HEADS);
    REFUSED(row_stride, 32, HEADS);
    REFUSED(outer_stride, 64, HEADS);
    REFUSED(pool, 8, ALIGNED);
    REFUSED(packed, 4, ALIGNED);
    REFUSED(scales, 2, ALIGNED);
#undef REFUSED
}
