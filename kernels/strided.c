#include "kernels/strided.h"

#include <string.h>

uint64_t strided_rows(const struct strided *s)
{
    uint64_t rows = 1;

    for (int k = 0; k < STRIDED_LOOPS_MAX; k++)
        rows *= s->loop[k].n;
    return rows;
}

uint64_t strided_from(const struct strided *s, uint64_t row)
{
    uint64_t at = 0;

    for (int k = STRIDED_LOOPS_MAX - 1; k >= 0; k--) {
        at += row % s->loop[k].n * s->loop[k].from_stride;
        row /= s->loop[k].n;
    }
    return at;
}

uint64_t strided_to(const struct strided *s, uint64_t row)
{
    uint64_t at = 0;

    for (int k = STRIDED_LOOPS_MAX - 1; k >= 0; k--) {
        at += row % s->loop[k].n * s->loop[k].to_stride;
        row /= s->loop[k].n;
    }
    return at;
}

void strided_copy(uint8_t *to, const uint8_t *from, const struct strided *s)
{
    const struct strided_loop *l = s->loop;

    for (uint64_t a = 0; a < l[0].n; a++)
        for (uint64_t b = 0; b < l[1].n; b++)
            for (uint64_t c = 0; c < l[2].n; c++)
                memcpy(to + a * l[0].to_stride + b * l[1].to_stride + c * l[2].to_stride,
                       from + a * l[0].from_stride + b * l[1].from_stride + c * l[2].from_stride,
                       s->row_bytes);
}

void strided_pack(uint8_t *packed, const uint8_t *from, const struct strided *s,
                  struct strided_rows rows)
{
    for (uint64_t i = 0; i < rows.n; i++)
        memcpy(packed + i * s->row_bytes, from + strided_from(s, rows.first + i), s->row_bytes);
}

void strided_unpack(uint8_t *to, const uint8_t *packed, const struct strided *s,
                    struct strided_rows rows)
{
    for (uint64_t i = 0; i < rows.n; i++)
        memcpy(to + strided_to(s, rows.first + i), packed + i * s->row_bytes, s->row_bytes);
}
