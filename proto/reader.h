/* Reads a protobuf body field by field, for messages that arrive hundreds of thousands of times a
 * second: one bounded cursor, nothing allocated, nothing copied. The daemon and libtern use it;
 * codec.h decodes every other message.
 *
 * Invariant: every value is checked before use (a length that exceeds its message, a varint that
 * does not end, a field of a wrong type). A failure sticks: the first one ends the walk, and
 * reader_ok reports it at the end. */
#ifndef PROTO_READER_H
#define PROTO_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct reader {
    const uint8_t *p, *end;
    bool failed;
};

/* The bytes of a 32-bit varint. protobuf reads a tag and a length as a varint of 32 bits; a longer
 * varint is a 64-bit number with leading zeros, and the generated code refuses it. */
#define READER_TAG_BYTES    5
#define READER_LENGTH_BYTES 5

enum field_type {
    FIELD_VARINT = 0,
    FIELD_FIXED64 = 1,
    FIELD_BYTES = 2,
    FIELD_FIXED32 = 5,
};

struct field {
    uint32_t number;
    enum field_type type;
    uint64_t v;           /* VARINT, FIXED64, FIXED32: the value. BYTES: their number */
    const uint8_t *bytes; /* BYTES: borrowed from the body */
};

static inline struct reader reader_of(const uint8_t *body, size_t n)
{
    return (struct reader){.p = body, .end = body + n};
}

/* Returns true if the message was read to its end and no read failed. */
static inline bool reader_ok(const struct reader *r)
{
    return !r->failed;
}

static inline bool reader_fail(struct reader *r)
{
    r->failed = true;
    return false;
}

static inline bool reader_varint(struct reader *r, uint64_t *ret)
{
    uint64_t v = 0;

    if (r->p < r->end && *r->p < 0x80) {
        *ret = *r->p++;
        return true;
    }
    for (uint32_t shift = 0; shift < 64 && r->p < r->end; shift += 7) {
        uint8_t b = *r->p++;

        v |= (uint64_t)(b & 0x7f) << shift;
        if (b < 0x80) {
            *ret = v;
            return true;
        }
    }
    return reader_fail(r);
}

static inline bool reader_fixed(struct reader *r, size_t n, uint64_t *ret)
{
    if ((size_t)(r->end - r->p) < n)
        return reader_fail(r);
    *ret = 0;
    memcpy(ret, r->p, n);
    r->p += n;
    return true;
}

static inline bool reader_bytes(struct reader *r, struct field *f)
{
    const uint8_t *start = r->p;

    if (!reader_varint(r, &f->v) || r->p - start > READER_LENGTH_BYTES ||
        f->v > (uint64_t)(r->end - r->p))
        return reader_fail(r);
    f->bytes = r->p;
    r->p += f->v;
    return true;
}

/* Reads the next field. Returns false if the message has ended, or the bytes are no message;
 * reader_ok distinguishes the two.
 */
static inline bool reader_next(struct reader *r, struct field *f)
{
    const uint8_t *start = r->p;
    uint64_t tag;

    if (r->failed || r->p == r->end)
        return false;
    if (!reader_varint(r, &tag) || r->p - start > READER_TAG_BYTES || tag >> 3 == 0 ||
        tag > UINT32_MAX)
        return reader_fail(r);
    f->number = (uint32_t)(tag >> 3);
    f->type = (enum field_type)(tag & 7);
    f->bytes = r->p;
    switch (f->type) {
    case FIELD_VARINT: return reader_varint(r, &f->v);
    case FIELD_FIXED64: return reader_fixed(r, 8, &f->v);
    case FIELD_FIXED32: return reader_fixed(r, 4, &f->v);
    case FIELD_BYTES: return reader_bytes(r, f);
    default: return reader_fail(r);
    }
}

/* ---- the value of a field; each fails if the field has another type ---- */

static inline void reader_u32(struct reader *r, const struct field *f, uint32_t *ret)
{
    if (f->type != FIELD_VARINT || f->v > UINT32_MAX)
        r->failed = true;
    else
        *ret = (uint32_t)f->v;
}

static inline void reader_u64(struct reader *r, const struct field *f, uint64_t *ret)
{
    if (f->type != FIELD_VARINT)
        r->failed = true;
    else
        *ret = f->v;
}

/* Enters the message inside a field; it is empty if there is none. reader_leave ends it. */
static inline struct reader reader_enter(struct reader *r, const struct field *f)
{
    if (f->type != FIELD_BYTES)
        r->failed = true;
    return (struct reader){
        .p = f->bytes, .end = f->bytes + (r->failed ? 0 : f->v), .failed = r->failed};
}

/* A failure of the inner message is a failure of the outer one. */
static inline void reader_leave(struct reader *r, const struct reader *inside)
{
    r->failed |= inside->failed;
}

#endif
