/* Writes a protobuf body field by field, for messages that are written without the generated code:
 * one bounded cursor over the caller's memory, and one formula for the size of each kind of field.
 * The daemon's answers and libtern's requests use it; codec.h encodes every other message.
 *
 * Invariant: no byte is written beyond the end; a write that does not fit fails, and the failure
 * sticks, so that one writer_ok at the end covers all writes. The size of an inner message precedes
 * it: put_end computes the size from the bytes written, and callers of put_message compute it from
 * the same fields. */
#ifndef PROTO_WRITER_H
#define PROTO_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "arrays and fixed numbers travel as little-endian bytes and are copied as they are"
#endif

struct writer {
    uint8_t *p, *end;
    bool failed;
};

#define VARINT_BYTES_MAX 10u

/* Field 100, a varint of 0, which no message has. It is the body of a message without fields,
 * because a body is never empty. */
#define WRITER_PAD_BYTES 3u
static const uint8_t writer_pad[WRITER_PAD_BYTES] = {0xa0, 0x06, 0x00};

static inline struct writer writer_of(uint8_t *body, size_t n)
{
    return (struct writer){.p = body, .end = body + n};
}

static inline bool writer_ok(const struct writer *w)
{
    return !w->failed;
}

/* ---- sizes ---- */

static inline size_t varint_size(uint64_t v)
{
    return ((size_t)(63 - __builtin_clzll(v | 1)) * 9 + 73) / 64;
}

/* For a number whose absence means 0. */
static inline size_t number_size(uint64_t v)
{
    return v ? 1 + varint_size(v) : 0;
}

static inline size_t fixed64_size(void)
{
    return 1 + sizeof(uint64_t);
}

/* For bytes, a string, or a message of n bytes. */
static inline size_t bytes_size(size_t n)
{
    return 1 + varint_size(n) + n;
}

/* ---- writing ---- */

static inline bool writer_room(struct writer *w, size_t n)
{
    if (w->failed || (size_t)(w->end - w->p) < n)
        w->failed = true;
    return !w->failed;
}

/* Writes a field number below 16 with its wire type, and a varint. */
static inline void writer_head(struct writer *w, uint32_t field, uint32_t type, uint64_t v)
{
    if (!writer_room(w, 1 + varint_size(v)))
        return;
    *w->p++ = (uint8_t)(field << 3 | type);
    for (; v >= 0x80; v >>= 7)
        *w->p++ = (uint8_t)(v | 0x80);
    *w->p++ = (uint8_t)v;
}

/* Writes nothing for 0. */
static inline void put_number(struct writer *w, uint32_t field, uint64_t v)
{
    if (v)
        writer_head(w, field, 0, v);
}

static inline void put_fixed64(struct writer *w, uint32_t field, uint64_t v)
{
    if (!writer_room(w, fixed64_size()))
        return;
    *w->p++ = (uint8_t)(field << 3 | 1);
    memcpy(w->p, &v, sizeof(v));
    w->p += sizeof(v);
}

static inline void put_bytes(struct writer *w, uint32_t field, const void *bytes, size_t n)
{
    if (!writer_room(w, bytes_size(n)))
        return;
    writer_head(w, field, 2, n);
    if (n)
        memcpy(w->p, bytes, n);
    w->p += n;
}

/* Begins a message of n bytes inside this one. */
static inline void put_message(struct writer *w, uint32_t field, size_t n)
{
    if (writer_room(w, bytes_size(n)))
        writer_head(w, field, 2, n);
}

/* Begins an inner message of unknown size. `about`: a guess; a good guess saves moving the message.
 * Returns the start of its fields, for put_end. */
static inline uint8_t *put_begin(struct writer *w, uint32_t field, size_t about)
{
    size_t n = 1 + varint_size(about);

    if (!writer_room(w, n))
        return w->p;
    *w->p = (uint8_t)(field << 3 | 2);
    w->p += n;
    return w->p;
}

static inline void put_end(struct writer *w, uint8_t *from, size_t about)
{
    size_t n = (size_t)(w->p - from), had = varint_size(about), needs = varint_size(n);
    uint8_t *at = from - had;

    if (w->failed || (needs > had && !writer_room(w, needs - had)))
        return;
    if (needs != had)
        memmove(at + needs, from, n);
    w->p = at + needs + n;
    for (; n >= 0x80; n >>= 7)
        *at++ = (uint8_t)(n | 0x80);
    *at = (uint8_t)n;
}

/* Writes the padding field, which every reader ignores, if nothing was written since `body`. */
static inline void put_pad(struct writer *w, const uint8_t *body)
{
    if (w->p != body || !writer_room(w, WRITER_PAD_BYTES))
        return;
    memcpy(w->p, writer_pad, WRITER_PAD_BYTES);
    w->p += WRITER_PAD_BYTES;
}

#endif
