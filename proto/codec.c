/* Decoding under limits, encoding into the caller's memory, version ranges. protobuf-c does the
 * parsing; it recurses only as deep as the schema (no type contains itself) and supports no groups,
 * so nesting in unknown fields is skipped or refused, never followed. */
#include "proto/codec.h"

#include <assert.h>
#include <string.h>

#include "base/err.h"
#include "proto/reader.h"
#include "proto/writer.h"

static_assert(sizeof(struct wire_event) == WIRE_EVENT_BYTES, "an event is copied as it is");

/* ---- limits, checked after unpacking ---- */

/* Counts over all parts of one message. */
struct sums {
    uint64_t n[LIMIT_SUMS];
};

static enum tern_err within(struct sums *sums, const struct field_limit *limit, uint64_t n)
{
    uint64_t *sum = limit && limit->sum != SUM_NONE ? &sums->n[limit->sum] : &n;

    if (sum != &n)
        *sum += n;
    return *sum <= (limit ? limit->most : 0) && n >= (limit ? limit->least : 0) ? TERN_OK
                                                                                : TERN_MALFORMED;
}

static enum tern_err check_bytes(struct sums *sums, const struct field_limit *limit,
                                 const ProtobufCBinaryData *bytes)
{
    if (limit && bytes->len % limit->element_bytes != 0)
        return TERN_MALFORMED;
    return within(sums, limit, limit ? bytes->len / limit->element_bytes : bytes->len);
}

static enum tern_err check_string(const struct field_limit *limit, const char *s)
{
    uint32_t most = limit && limit->element_bytes ? limit->most : WIRE_STRING_MAX;

    return most == WIRE_ANY || !s || strnlen(s, most + 1u) <= most ? TERN_OK : TERN_MALFORMED;
}

static enum tern_err check_message(struct sums *sums, const ProtobufCMessage *msg);

/* Checks one value of a field. Numbers need no limit here. */
static enum tern_err check_value(struct sums *sums, const ProtobufCFieldDescriptor *f,
                                 const struct field_limit *limit, const void *value)
{
    const ProtobufCMessage *inner;
    const char *string;

    if (f->type == PROTOBUF_C_TYPE_STRING) {
        memcpy(&string, value, sizeof(string));
        return check_string(limit, string);
    }
    memcpy(&inner, value, sizeof(inner));
    return inner ? check_message(sums, inner) : TERN_OK;
}

static enum tern_err check_list(struct sums *sums, const ProtobufCFieldDescriptor *f,
                                const struct field_limit *limit, const uint8_t *msg)
{
    const uint8_t *values;
    size_t n;

    memcpy(&n, msg + f->quantifier_offset, sizeof(n));
    memcpy(&values, msg + f->offset, sizeof(values));
    TRY(within(sums, limit, n));
    for (size_t i = 0; i < n; i++)
        TRY(check_value(sums, f, limit, values + i * sizeof(void *)));
    return TERN_OK;
}

/* An absent bytes field is no array, so it cannot be too short. */
static enum tern_err check_array(struct sums *sums, const ProtobufCFieldDescriptor *f,
                                 const struct field_limit *limit, const uint8_t *msg)
{
    ProtobufCBinaryData bytes;
    protobuf_c_boolean has;

    memcpy(&has, msg + f->quantifier_offset, sizeof(has));
    memcpy(&bytes, msg + f->offset, sizeof(bytes));
    return has ? check_bytes(sums, limit, &bytes) : TERN_OK;
}

/* Recursion is as deep as the schema, in which no type contains itself. */
static enum tern_err check_message(struct sums *sums, const ProtobufCMessage *msg)
{
    const ProtobufCMessageDescriptor *d = msg->descriptor;
    const uint8_t *base = (const uint8_t *)msg;

    for (unsigned i = 0; i < d->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &d->fields[i];
        bool list = f->label == PROTOBUF_C_LABEL_REPEATED;

        if (list)
            TRY(check_list(sums, f, message_limit(d, f), base));
        else if (f->type == PROTOBUF_C_TYPE_BYTES)
            TRY(check_array(sums, f, message_limit(d, f), base));
        else if (f->type == PROTOBUF_C_TYPE_STRING)
            TRY(check_value(sums, f, message_limit(d, f), base + f->offset));
        else if (f->type == PROTOBUF_C_TYPE_MESSAGE)
            TRY(check_value(sums, f, NULL, base + f->offset));
    }
    return TERN_OK;
}

/* Subtracts the fields of the message and of its inner messages from *left. The decoder refuses
 * bytes that are no message. */
static bool fields_fit(const ProtobufCMessageDescriptor *d, struct reader r, uint32_t *left)
{
    struct field f;

    while (reader_next(&r, &f)) {
        const ProtobufCFieldDescriptor *in =
            f.type == FIELD_BYTES ? protobuf_c_message_descriptor_get_field(d, f.number) : NULL;

        if (*left == 0)
            return false;
        --*left;
        if (in && in->type == PROTOBUF_C_TYPE_MESSAGE &&
            !fields_fit(in->descriptor, reader_of(f.bytes, (size_t)f.v), left))
            return false;
    }
    return true;
}

enum tern_err wire_begin(struct budget *budget, uint16_t type, const uint8_t *body, size_t n)
{
    const ProtobufCMessageDescriptor *descriptor = wire_descriptor(type);
    uint32_t left = WIRE_BODY_FIELDS;

    if (!descriptor)
        return TERN_UNSUPPORTED;
    budget_start(budget, n);
    return n <= WIRE_SHORT_BYTES || fields_fit(descriptor, reader_of(body, n), &left)
               ? TERN_OK
               : TERN_MALFORMED;
}

enum tern_err wire_decode(struct budget *budget, uint16_t type, const uint8_t *body, size_t n,
                          const ProtobufCMessage **ret)
{
    const ProtobufCMessage *msg;

    TRY(wire_begin(budget, type, body, n));
    msg = protobuf_c_message_unpack(wire_descriptor(type), &budget->allocator, n, body);
    if (!msg)
        return TERN_MALFORMED;
    TRY(check_message(&(struct sums){{0}}, msg));
    *ret = msg;
    return TERN_OK;
}

enum tern_err wire_encode(const struct frame_header *header, const ProtobufCMessage *msg,
                          uint32_t body_max, uint8_t *out, size_t cap, size_t *ret_n)
{
    struct frame_header h = *header;
    size_t n = protobuf_c_message_get_packed_size(msg);
    size_t body = n ? n : WRITER_PAD_BYTES;

    if (body > body_max || cap < FRAME_HEADER_BYTES || body > cap - FRAME_HEADER_BYTES)
        return TERN_INVALID;
    h.length = (uint32_t)body;
    frame_encode(&h, out);
    if (n)
        protobuf_c_message_pack(msg, out + FRAME_HEADER_BYTES);
    else
        memcpy(out + FRAME_HEADER_BYTES, writer_pad, WRITER_PAD_BYTES);
    *ret_n = FRAME_HEADER_BYTES + body;
    return TERN_OK;
}

enum tern_err wire_array(struct budget *budget, const ProtobufCBinaryData *bytes,
                         uint32_t element_bytes, const void **ret, uint32_t *ret_n)
{
    const void *array = bytes->data;

    if (bytes->len % element_bytes != 0 || bytes->len > UINT32_MAX)
        return TERN_MALFORMED;
    if ((uintptr_t)array % sizeof(uint64_t) != 0) {
        void *copy = budget_take(budget, bytes->len);

        if (!copy)
            return TERN_MALFORMED;
        memcpy(copy, array, bytes->len);
        array = copy;
    }
    *ret = array;
    *ret_n = (uint32_t)(bytes->len / element_bytes);
    return TERN_OK;
}

enum tern_err wire_negotiate(uint32_t their_min, uint32_t their_max, uint32_t *ret_version)
{
    uint32_t version = their_max < WIRE_VERSION ? their_max : WIRE_VERSION;

    if (their_min > their_max)
        return TERN_INVALID;
    if (version < their_min || version < WIRE_VERSION_MIN)
        return TERN_UNSUPPORTED;
    *ret_version = version;
    return TERN_OK;
}
