/* Checksums of units: one sub-block after the other. */
#include "kernels/reference.h"
#include "kernels/xxh3.h"

static struct xxh3_pair pair_at(const uint8_t *b)
{
    return (struct xxh3_pair){.even = xxh3_read64(b), .odd = xxh3_read64(b + 8)};
}

static uint64_t long_part(const uint8_t *b, uint64_t n, uint32_t pair)
{
    struct xxh3_pair acc = xxh3_begin(pair);
    uint64_t stripes = (n - 1) / XXH3_STRIPE;

    b += 16 * pair;
    for (uint64_t k = 0; k < stripes; k++) {
        uint32_t key = (uint32_t)(k % XXH3_STRIPES) * 8;

        xxh3_add(&acc, pair_at(b + k * XXH3_STRIPE), xxh3_keys(key, pair));
        if (k % XXH3_STRIPES == XXH3_STRIPES - 1)
            xxh3_scramble(&acc, pair);
    }
    xxh3_add(&acc, pair_at(b + n - XXH3_STRIPE), xxh3_keys(XXH3_AT_LAST, pair));
    return xxh3_merge(&acc, pair);
}

uint64_t reference_xxh3(const void *bytes, uint64_t n)
{
    uint64_t sum = 0;

    if (n <= XXH3_SHORT_MAX)
        return xxh3_short(bytes, (uint32_t)n);
    for (uint32_t pair = 0; pair < XXH3_PAIRS; pair++)
        sum += long_part(bytes, n, pair);
    return xxh3_end(sum, n);
}

/* The bytes [*ret_from, returned end) of unit k. */
static uint64_t unit_span(const struct kernels_checksum *a, uint32_t k, uint64_t *ret_from)
{
    uint64_t share = a->page_bytes / a->units;

    *ret_from = share * k;
    return k + 1 == a->units ? a->page_bytes : share * (k + 1);
}

void reference_checksum_blocks(const struct kernels_checksum *a)
{
    const uint32_t *list = (const uint32_t *)(uintptr_t)a->list;
    uint64_t *value = (uint64_t *)(uintptr_t)a->blocks, at;

    for (uint32_t i = 0; i < a->n; i++) {
        const uint8_t *page = (const uint8_t *)(uintptr_t)a->pool + list[i] * a->page_bytes;

        for (uint32_t k = 0; k < a->units; k++)
            for (uint64_t end = unit_span(a, k, &at); at < end; at += KERNELS_BLOCK)
                *value++ =
                    reference_xxh3(page + at, end - at < KERNELS_BLOCK ? end - at : KERNELS_BLOCK);
    }
}

void reference_checksum_units(const struct kernels_checksum *a)
{
    const uint64_t *value = (const uint64_t *)(uintptr_t)a->blocks;
    const uint32_t *places = (const uint32_t *)(uintptr_t)a->places;
    uint64_t from;

    for (uint32_t i = 0; i < a->n; i++) {
        uint64_t at = places ? places[i] * a->place_bytes : i * (a->units * sizeof(uint64_t));
        uint64_t *sum = (uint64_t *)(uintptr_t)(a->sums + at);

        for (uint32_t k = 0; k < a->units; k++) {
            uint64_t end = unit_span(a, k, &from);
            uint64_t n = (end - from + KERNELS_BLOCK - 1) / KERNELS_BLOCK;

            sum[k] = reference_xxh3(value, n * sizeof *value);
            value += n;
        }
    }
}
