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
        __m128i *out = (void *)(to + at), *copy = (void *)(between + at), line[4];

        _mm_prefetch((const void *)(from + at + ahead), _MM_HINT_T0);
        for (int i = 0; i < 4; i++)
            line[i] = _mm_loadu_si128(in + i);
        for (int i = 0; i < 4; i++)
            _mm_stream_si128(out + i, line[i]);
        for (int i = 0; i < 4; i++)
            _mm_store_si128(copy + i, line[i]);
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
