/* Samples by reflection: a new field or message of the schema is tested without a line here; a new
 * frame type needs one entry in rig_wire_types. */
#include "unit/rig/rig_wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/hash.h"

#define SAMPLE_BYTES (4u << 20)
#define PAGE         4096u
#define FIELD_BYTES  48u /* whole tokens, references and keys; `events` are longer */

uint16_t rig_wire_types[RIG_WIRE_TYPES];

/* Lists the table's rows in order. */
__attribute__((constructor)) static void list_types(void)
{
    uint32_t n = 0;

    for (uint32_t type = 1; type < FRAME_TYPES_END; type++) {
        for (uint32_t i = 0; i < messages_n; i++) {
            const struct message *m = &messages[i];

            if (m->type == type || (m->reply && m->type + 1u == type))
                rig_wire_types[n++] = (uint16_t)type;
        }
    }
    check(n < RIG_WIRE_TYPES);
}

static _Alignas(16) uint8_t sample_memory[SAMPLE_BYTES];
static size_t sample_used;

static void *take(size_t n)
{
    void *p = sample_memory + sample_used;

    n = (n + 15) & ~(size_t)15;
    check(n <= SAMPLE_BYTES - sample_used);
    sample_used += n;
    return p;
}

static ProtobufCMessage *make(const ProtobufCMessageDescriptor *d, uint64_t seed, size_t repeat);

static char *make_string(const ProtobufCFieldDescriptor *f, uint64_t seed)
{
    char *s = take(64);

    snprintf(s, 64, "%s-%u", f->name, (unsigned)(seed % 1000));
    return s;
}

static size_t bytes_of(const ProtobufCFieldDescriptor *f)
{
    if (strcmp(f->name, "events") == 0)
        return 2 * (size_t)WIRE_EVENT_BYTES;
    if (strcmp(f->name, "chunks") == 0)
        return 2 * (size_t)WIRE_CHUNK_BYTES;
    if (strcmp(f->name, "windows") == 0)
        return 3 * (size_t)WIRE_WINDOW_BYTES;
    return strcmp(f->name, "gid") == 0 ? WIRE_GID_BYTES : FIELD_BYTES;
}

static void make_value(const ProtobufCFieldDescriptor *f, void *member, uint64_t seed,
                       size_t repeat)
{
    ProtobufCBinaryData *bytes = member;

    switch (f->type) {
    case PROTOBUF_C_TYPE_UINT32: *(uint32_t *)member = (uint32_t)(seed | 1); break;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64: *(uint64_t *)member = seed | 1; break;
    case PROTOBUF_C_TYPE_BOOL: *(protobuf_c_boolean *)member = 1; break;
    case PROTOBUF_C_TYPE_STRING: *(char **)member = make_string(f, seed); break;
    case PROTOBUF_C_TYPE_BYTES:
        bytes->len = bytes_of(f);
        bytes->data = take(bytes->len);
        for (size_t i = 0; i < bytes->len; i++)
            bytes->data[i] = (uint8_t)(seed + i);
        break;
    case PROTOBUF_C_TYPE_MESSAGE:
        *(ProtobufCMessage **)member = make(f->descriptor, seed, repeat);
        break;
    default: check(f->type == PROTOBUF_C_TYPE_MESSAGE); /* a type that the samples do not know */
    }
}

static size_t member_bytes(const ProtobufCFieldDescriptor *f)
{
    check(f->type == PROTOBUF_C_TYPE_MESSAGE || f->type == PROTOBUF_C_TYPE_STRING);
    return sizeof(void *);
}

static ProtobufCMessage *make(const ProtobufCMessageDescriptor *d, uint64_t seed, size_t repeat)
{
    ProtobufCMessage *m = take(d->sizeof_message);

    protobuf_c_message_init(d, m);
    for (unsigned i = 0; i < d->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &d->fields[i];
        uint8_t *base = (uint8_t *)m;
        uint64_t value = hash_mix(seed, f->id);

        if (f->label == PROTOBUF_C_LABEL_REPEATED) {
            uint8_t *array = take(repeat * member_bytes(f));

            *(size_t *)(void *)(base + f->quantifier_offset) = repeat;
            *(void **)(void *)(base + f->offset) = array;
            for (size_t k = 0; k < repeat; k++)
                make_value(f, array + k * member_bytes(f), hash_mix(value, k), repeat);
        } else {
            if (f->quantifier_offset)
                *(protobuf_c_boolean *)(void *)(base + f->quantifier_offset) = 1;
            make_value(f, base + f->offset, value, repeat);
        }
    }
    return m;
}

const ProtobufCMessage *rig_wire_sample(uint16_t type, uint64_t seed, size_t repeat)
{
    sample_used = 0;
    return make(wire_descriptor(type), seed, repeat);
}

void rig_bytes_finish(struct rig_bytes *b)
{
    free(b->v);
    *b = (struct rig_bytes){0};
}

void rig_pb(struct rig_bytes *b, const void *bytes, size_t n)
{
    if (n > b->cap - b->n) {
        b->cap = (b->n + n) * 2;
        b->v = realloc(b->v, b->cap);
        check(b->v);
    }
    if (n)
        memcpy(b->v + b->n, bytes, n);
    b->n += n;
}

void rig_pb_varint(struct rig_bytes *b, uint64_t v)
{
    do {
        uint8_t byte = (uint8_t)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));

        rig_pb(b, &byte, 1);
        v >>= 7;
    } while (v);
}

void rig_pb_tag(struct rig_bytes *b, uint32_t field, uint32_t wire_type)
{
    rig_pb_varint(b, (uint64_t)field << 3 | wire_type);
}

void rig_pb_uint(struct rig_bytes *b, uint32_t field, uint64_t v)
{
    rig_pb_tag(b, field, 0);
    rig_pb_varint(b, v);
}

void rig_pb_field(struct rig_bytes *b, uint32_t field, const void *bytes, size_t n)
{
    rig_pb_tag(b, field, 2);
    rig_pb_varint(b, n);
    rig_pb(b, bytes, n);
}

static size_t varint_bytes(uint64_t v)
{
    size_t n = 1;

    while (v >>= 7)
        n++;
    return n;
}

void rig_pb_nested(struct rig_bytes *b, uint32_t field, size_t depth)
{
    size_t *inner = calloc(depth + 1, sizeof *inner), tag = varint_bytes((uint64_t)field << 3);

    check(inner);
    for (size_t d = 1; d <= depth; d++) /* inner[d]: bytes of d levels */
        inner[d] = tag + varint_bytes(inner[d - 1]) + inner[d - 1];
    for (size_t d = depth; d > 0; d--) {
        rig_pb_tag(b, field, 2);
        rig_pb_varint(b, inner[d - 1]);
    }
    free(inner);
}

uint8_t *rig_guarded(size_t n)
{
    size_t whole = (n + PAGE - 1) / PAGE * PAGE;
    uint8_t *p =
        mmap(NULL, whole + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    check(p != MAP_FAILED);
    check(mprotect(p + whole, PAGE, PROT_NONE) == 0);
    return p + whole - n;
}

void rig_release(uint8_t *p, size_t n)
{
    size_t whole = (n + PAGE - 1) / PAGE * PAGE;

    munmap(p + n - whole, whole + PAGE);
}

struct budget rig_budget;
uint8_t *rig_frame;

int rig_wire_set_up(void **state)
{
    size_t n = BUDGET_BYTES(FRAME_BODY_MAX);

    (void)state;
    budget_init(&rig_budget, rig_guarded(n), n);
    rig_frame = rig_guarded(RIG_FRAME_CAP);
    return 0;
}

size_t rig_wire_encode(uint16_t type, const ProtobufCMessage *msg)
{
    struct frame_header h = {.version = FRAME_VERSION, .type = type, .request_id = 1}, back;
    size_t n = 0;

    check(wire_encode(&h, msg, FRAME_BODY_MAX, rig_frame, RIG_FRAME_CAP, &n) == TERN_OK);
    check(frame_decode(rig_frame, FRAME_BODY_MAX, &back) == TERN_OK);
    check(back.length + FRAME_HEADER_BYTES == n && back.type == type);
    return back.length;
}

enum tern_err rig_wire_decode(uint16_t type, const void *bytes, size_t n,
                              const ProtobufCMessage **ret)
{
    uint8_t *body = rig_guarded(n ? n : 1);
    const ProtobufCMessage *msg = NULL;
    enum tern_err err;

    memcpy(body, bytes, n);
    err = wire_decode(&rig_budget, type, body, n, &msg);
    check(rig_budget.used <= BUDGET_BYTES(n));
    rig_release(body, n ? n : 1);
    check((msg != NULL) == (err == TERN_OK));
    if (ret && msg)
        *ret = msg;
    return err;
}

enum tern_err rig_wire_decode_message(uint16_t type, const void *msg)
{
    return rig_wire_decode(type, rig_frame + FRAME_HEADER_BYTES, rig_wire_encode(type, msg), NULL);
}

enum tern_err rig_wire_decode_bytes(uint16_t type, const struct rig_bytes *b)
{
    return rig_wire_decode(type, b->v, b->n, NULL);
}
