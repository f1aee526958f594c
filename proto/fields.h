/* Reading a protobuf body field by field, for the few messages of which there are hundreds of
 * thousands a second: one bounded cursor, nothing allocated, nothing copied. Nothing is believed
 * before it was checked: a length that leaves its message, a varint that does not end, a field of
 * the wrong type. Everything else is decoded by codec.h. */
#ifndef PROTO_FIELDS_H
#define PROTO_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct fields {
    const uint8_t *p, *end;
};

#define FIELD_TAG_BYTES 5 /* as many as 32 bits take */

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

static inline bool fields_varint(struct fields *c, uint64_t *ret)
{
    uint64_t v = 0;

    if (c->p < c->end && *c->p < 0x80) {
        *ret = *c->p++;
        return true;
    }
    for (uint32_t shift = 0; shift < 64 && c->p < c->end; shift += 7) {
        uint8_t b = *c->p++;

        v |= (uint64_t)(b & 0x7f) << shift;
        if (b < 0x80) {
            *ret = v;
            return true;
        }
    }
    return false;
}

static inline bool fields_fixed(struct fields *c, size_t n, uint64_t *ret)
{
    if ((size_t)(c->end - c->p) < n)
        return false;
    *ret = 0;
    memcpy(ret, c->p, n);
    c->p += n;
    return true;
}

/* 1: a field; 0: the message ended; -1: it is none. */
static inline int fields_next(struct fields *c, struct field *f)
{
    const uint8_t *start = c->p;
    uint64_t tag;
    bool ok;

    if (c->p == c->end)
        return 0;
    if (!fields_varint(c, &tag) || c->p - start > FIELD_TAG_BYTES || tag >> 3 == 0 ||
        tag > UINT32_MAX)
        return -1;
    f->number = (uint32_t)(tag >> 3);
    f->type = (enum field_type)(tag & 7);
    f->bytes = c->p;
    switch (f->type) {
    case FIELD_VARINT: ok = fields_varint(c, &f->v); break;
    case FIELD_FIXED64: ok = fields_fixed(c, 8, &f->v); break;
    case FIELD_FIXED32: ok = fields_fixed(c, 4, &f->v); break;
    case FIELD_BYTES:
        ok = fields_varint(c, &f->v) && f->v <= (uint64_t)(c->end - c->p);
        if (ok) {
            f->bytes = c->p;
            c->p += f->v;
        }
        break;
    default: ok = false; break;
    }
    return ok ? 1 : -1;
}

/* Empty for a field that is no message; who reads it refuses the type. */
static inline struct fields fields_inside(const struct field *f)
{
    return (struct fields){.p = f->bytes, .end = f->bytes + (f->type == FIELD_BYTES ? f->v : 0)};
}

static inline bool field_u32(const struct field *f, uint32_t *ret)
{
    if (f->type != FIELD_VARINT || f->v > UINT32_MAX)
        return false;
    *ret = (uint32_t)f->v;
    return true;
}

#endif
