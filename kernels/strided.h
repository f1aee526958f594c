/* Strided copies: a device kernel's work on one piece of a page, and its reference on the CPU. A
 * shape is rows of equal length in three nested loops; a loop that a piece does not need runs once.
 * Packed, a piece is its rows one after the other, in the order of the loops, the last one fastest.
 * A range of rows can be packed on its own, so a piece may be longer than the packed buffer. Any
 * thread; the written rows of a shape must not overlap. */
#ifndef KERNELS_STRIDED_H
#define KERNELS_STRIDED_H

#include <stdint.h>

#define STRIDED_LOOPS_MAX 3

struct strided_loop {
    uint64_t n;                      /* 1 or more */
    uint64_t from_stride, to_stride; /* bytes; unused where n is 1 */
};

struct strided {
    uint64_t row_bytes;
    struct strided_loop loop[STRIDED_LOOPS_MAX]; /* outermost first: by their step at `to` */
};

uint64_t strided_rows(const struct strided *s);
static inline uint64_t strided_bytes(const struct strided *s)
{
    return strided_rows(s) * s->row_bytes;
}
/* The offset of a row from the first row. */
uint64_t strided_from(const struct strided *s, uint64_t row);
uint64_t strided_to(const struct strided *s, uint64_t row);

/* `from` and `to` point to the first row of the whole piece; `rows` [first, first + n). */
struct strided_rows {
    uint64_t first, n;
};

void strided_copy(uint8_t *to, const uint8_t *from, const struct strided *s);
void strided_pack(uint8_t *packed, const uint8_t *from, const struct strided *s,
                  struct strided_rows rows);
void strided_unpack(uint8_t *to, const uint8_t *packed, const struct strided *s,
                    struct strided_rows rows);

#endif
