/* bf16 to e4m3 (OCP, finite only: 448 is the largest, 0x7f is NaN) and back, with integers alone,
 * so that a device and a host cannot differ. A scale is a power of two, stored as the exponent of
 * its float: 2^(exponent - 127). */
#ifndef KERNELS_FP8_H
#define KERNELS_FP8_H

#include "kernels/both.h"

#define BF16_MAGNITUDE 0x7fffu
#define BF16_INFINITY  0x7f80u
#define BF16_NAN       0x7fc0u
#define BF16_BIAS      127
#define E4M3_MOST      0x7eu /* 448 */
#define E4M3_NAN       0x7fu
#define E4M3_BIAS      7

/* The magnitude that counts for a scale: 0 for infinity and NaN. */
KERNELS_FN uint32_t fp8_counts(uint32_t bf16)
{
    uint32_t magnitude = bf16 & BF16_MAGNITUDE;

    return magnitude < BF16_INFINITY ? magnitude : 0;
}

/* The exponent of the scale for a largest magnitude: 448 is 1.75 * 2^8, and 96 stands for .75. */
KERNELS_FN int32_t fp8_exponent(uint32_t most)
{
    int32_t exponent = (int32_t)(most >> 7) - 8 + ((most & 0x7f) > 96);

    return exponent < 1 ? 1 : exponent;
}

/* v / 2^bits rounded to the nearest, and to the even one of two equally near. v < 2^16. */
KERNELS_FN uint32_t fp8_round(uint32_t v, int32_t bits)
{
    if (bits <= 0)
        return v;
    if (bits > 16)
        return 0;
    return (v + (1u << (bits - 1)) - 1 + (v >> bits & 1)) >> bits;
}

/* Normalizes a number other than 0, whose leading 1 is implicit where the exponent is above 0: the
 * digits with it are from 128 to 255. Returns the matching exponent. */
KERNELS_FN int32_t fp8_normal(uint32_t *digits, int32_t exponent)
{
    if (exponent > 0)
        *digits += 128;
    else
        exponent = 1;
    KERNELS_LOOP
    for (; *digits < 128; *digits <<= 1)
        exponent--;
    return exponent;
}

KERNELS_FN uint32_t fp8_from_bf16(uint32_t bf16, int32_t scale)
{
    uint32_t sign = bf16 >> 8 & 0x80, magnitude = bf16 & BF16_MAGNITUDE, code;
    uint32_t digits = magnitude & 0x7f;
    int32_t exponent = (int32_t)(magnitude >> 7); /* the value is digits / 128 * 2^exponent */

    if (magnitude > BF16_INFINITY)
        return sign | E4M3_NAN;
    if (magnitude == 0)
        return sign;
    exponent = fp8_normal(&digits, exponent);
    exponent += E4M3_BIAS - scale;
    if (exponent > 0)
        code = (uint32_t)(exponent - 1) * 8 + fp8_round(digits, 4);
    else
        code = fp8_round(digits, 5 - exponent);
    return sign | (code < E4M3_MOST ? code : E4M3_MOST);
}

KERNELS_FN uint32_t fp8_to_bf16(uint32_t code, int32_t scale)
{
    uint32_t sign = (code & 0x80) << 8, magnitude = code & 0x7f, digits = (code & 7) << 4, bits;
    int32_t exponent = (int32_t)(magnitude >> 3);

    if (magnitude == E4M3_NAN)
        return sign | BF16_NAN;
    if (magnitude == 0)
        return sign;
    exponent = fp8_normal(&digits, exponent);
    exponent += scale - E4M3_BIAS;
    if (exponent > 0)
        bits = (uint32_t)(exponent - 1) * 128 + digits;
    else
        bits = fp8_round(digits, 1 - exponent);
    return sign | (bits < BF16_INFINITY ? bits : BF16_INFINITY - 1);
}

#endif
