/* Messages of the wire made from the bytes of an input, by their descriptors: every such body can
 * be read, so the input varies the values behind that check. Small numbers come more often than
 * large ones, since slots, kinds and lengths are small. Header only. */
#ifndef FUZZ_MESSAGE_H
#define FUZZ_MESSAGE_H

#include <string.h>

#include "base/check.h"
#include "proto/codec.h"

#define MADE_BYTES    (256u << 10)
#define MADE_BLOB_MAX 255u /* bytes of a field */
#define MADE_REPEATED 4u   /* values of a repeated field, at most */
#define MADE_NESTED   8u   /* messages in messages; the schema has no more */
#define MADE_BODY_MAX (64u << 10)

struct fuzz_bytes {
    const uint8_t *v;
    size_t n;
};

static inline uint8_t fuzz_take(struct fuzz_bytes *in)
{
    uint8_t byte = in->n ? *in->v : 0;

    in->v += in->n > 0;
    in->n -= in->n > 0;
    return byte;
}

static _Alignas(16) uint8_t made_memory[MADE_BYTES];
static size_t made_used;

static inline void *made_take(size_t n)
{
    void *p = made_memory + made_used;

    n = (n + 15) & ~(size_t)15;
    if (n > sizeof made_memory - made_used)
        return NULL;
    made_used += n;
    return memset(p, 0, n);
}

static inline uint64_t made_number(struct fuzz_bytes *in, uint8_t how)
{
    static const uint8_t bytes[8] = {0, 1, 1, 1, 2, 4, 8, 1};
    uint64_t v = 0;

    for (uint8_t i = 0; i < bytes[how % 8]; i++)
        v = v << 8 | fuzz_take(in);
    return how % 8 == 7 ? ~v : v;
}

/* Names that tests configure, or the input's own bytes. */
static inline bool made_string(struct fuzz_bytes *in, char **ret)
{
    static const char *const names[] = {"", "a", "m", "e", "peer", "kv", "swa"};
    uint8_t which = fuzz_take(in), n;

    *ret = (char *)(uintptr_t)names[which % 7];
    if (which < 224)
        return true;
    n = fuzz_take(in);
    *ret = made_take(n + 1u);
    for (uint8_t i = 0; *ret && i < n; i++)
        (*ret)[i] = (char)(1 + fuzz_take(in) % 127);
    return *ret;
}

static inline bool made_blob(struct fuzz_bytes *in, ProtobufCBinaryData *ret)
{
    uint8_t n = fuzz_take(in);

    ret->len = n % 4 == 3 ? n : n & ~(size_t)3; /* whole tokens more often than not */
    ret->data = made_take(ret->len + 1);
    for (size_t i = 0; ret->data && i < ret->len; i++)
        ret->data[i] = fuzz_take(in);
    return ret->data;
}

static inline ProtobufCMessage *made_message(struct fuzz_bytes *in,
                                             const ProtobufCMessageDescriptor *d, uint32_t depth);

static inline bool made_value(struct fuzz_bytes *in, const ProtobufCFieldDescriptor *f,
                              void *member, uint8_t how, uint32_t depth)
{
    uint64_t v;

    switch (f->type) {
    case PROTOBUF_C_TYPE_STRING: return made_string(in, member);
    case PROTOBUF_C_TYPE_BYTES: return made_blob(in, member);
    case PROTOBUF_C_TYPE_MESSAGE:
        *(ProtobufCMessage **)member = made_message(in, f->descriptor, depth + 1);
        return *(ProtobufCMessage **)member;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        v = made_number(in, how);
        memcpy(member, &v, 8);
        return true;
    case PROTOBUF_C_TYPE_BOOL: *(protobuf_c_boolean *)member = how & 1; return true;
    default: *(uint32_t *)member = (uint32_t)made_number(in, how); return true;
    }
}

static inline bool made_field(struct fuzz_bytes *in, const ProtobufCFieldDescriptor *f,
                              uint8_t *base, uint32_t depth)
{
    uint8_t how = fuzz_take(in);

    if (how % 4 == 0) /* absent */
        return true;
    if (f->label == PROTOBUF_C_LABEL_REPEATED) {
        size_t n = how / 4 % (MADE_REPEATED + 1);
        void **array = made_take((n + 1) * sizeof *array);

        if (!array || (f->type != PROTOBUF_C_TYPE_MESSAGE && f->type != PROTOBUF_C_TYPE_STRING))
            return array;
        *(size_t *)(void *)(base + f->quantifier_offset) = n;
        *(void **)(void *)(base + f->offset) = array;
        for (size_t i = 0; i < n; i++)
            if (!made_value(in, f, &array[i], how, depth))
                return false;
        return true;
    }
    if (f->quantifier_offset)
        *(protobuf_c_boolean *)(void *)(base + f->quantifier_offset) = 1;
    return made_value(in, f, base + f->offset, how / 4, depth);
}

/* NULL: no room for it. */
static inline ProtobufCMessage *made_message(struct fuzz_bytes *in,
                                             const ProtobufCMessageDescriptor *d, uint32_t depth)
{
    ProtobufCMessage *m = depth < MADE_NESTED ? made_take(d->sizeof_message) : NULL;

    if (!m)
        return NULL;
    protobuf_c_message_init(d, m);
    for (unsigned i = 0; i < d->n_fields; i++)
        if (!made_field(in, &d->fields[i], (uint8_t *)m, depth))
            return NULL;
    return m;
}

/* A body of that frame type; 0: there is no such type, or it would be too long. */
static inline size_t made_body(struct fuzz_bytes *in, uint16_t type, uint8_t out[MADE_BODY_MAX])
{
    const ProtobufCMessageDescriptor *d = wire_descriptor(type);
    ProtobufCMessage *m;
    size_t n;

    made_used = 0;
    m = d ? made_message(in, d, 0) : NULL;
    n = m ? protobuf_c_message_get_packed_size(m) : 0;
    return n > 0 && n <= MADE_BODY_MAX ? protobuf_c_message_pack(m, out) : 0;
}

#endif
