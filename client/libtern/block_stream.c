/* See block_stream.h. */
#include "block_stream.h"

#if defined(__x86_64__)

#include <emmintrin.h>

#define LINE 64 /* bytes of a cache line */

_Static_assert(CHECKSUM_BLOCK % LINE == 0, "a block has whole lines");

bool block_stream_to(const uint8_t *to)
{
    return (uintptr_t)to % sizeof(__m128i) == 0;
}

void block_stream(uint8_t *to, const uint8_t *from, uint8_t *between, size_t ahead)
{
    for (size_t at = 0; at < CHECKSUM_BLOCK; at += LINE) {
        const __m128i *in = (const void *)(from + at);
        __m128i *out = (void *)(to + at), *copy = (void *)(between + at);
        __m128i a, b, c, d; /* named, because an array of them would go through the stack */

        _mm_prefetch((const void *)(from + at + ahead), _MM_HINT_T0);
        a = _mm_loadu_si128(in);
        b = _mm_loadu_si128(in + 1);
        c = _mm_loadu_si128(in + 2);
        d = _mm_loadu_si128(in + 3);
        _mm_stream_si128(out, a);
        _mm_stream_si128(out + 1, b);
        _mm_stream_si128(out + 2, c);
        _mm_stream_si128(out + 3, d);
        _mm_store_si128(copy, a);
        _mm_store_si128(copy + 1, b);
        _mm_store_si128(copy + 2, c);
        _mm_store_si128(copy + 3, d);
    }
}

void block_stream_end(void)
{
    _mm_sfence();
}

#else

bool block_stream_to(const uint8_t *to)
{
    (void)to;
    return false;
}

void block_stream(uint8_t *to, const uint8_t *from, uint8_t *between, size_t ahead)
{
    (void)ahead;
    __builtin_memcpy(between, from, CHECKSUM_BLOCK);
    __builtin_memcpy(to, between, CHECKSUM_BLOCK);
}

void block_stream_end(void)
{
}

#endif
