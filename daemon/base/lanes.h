/* Two lanes of 64 bits, whose halves are multiplied: what hash.c and keyed_hash.c are made of. */
#ifndef BASE_LANES_H
#define BASE_LANES_H

#include <stdint.h>

typedef uint64_t pair __attribute__((vector_size(16))); /* two lanes */
typedef int32_t quad __attribute__((vector_size(16)));

/* The low half of each lane by its high half. */
static inline pair halves(pair x)
{
#if __has_builtin(__builtin_ia32_pmuludq128) /* gcc by itself makes three multiplications of it */
    return (pair)__builtin_ia32_pmuludq128((quad)x, (quad)(x >> 32));
#else
    return (x & 0xffffffffu) * (x >> 32);
#endif
}

#endif
