/* Every message: the first byte is the frame type, the rest a body; or the first byte is MADE, the
 * second the type, and a readable body is made of the rest. A decoded body must encode, and the
 * encoded one must decode to the same; nothing may take more memory than the budget of its body. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "fuzz/message.h"
#include "fuzz/passed.h"
#include "proto/codec.h"
#include "proto/in_place.h"

#define ARENA_BYTES BUDGET_BYTES(FRAME_BODY_MAX)
#define MADE        0xffu /* in place of a type */
#define FRAME_CAP   (FRAME_HEADER_BYTES + 2 * FRAME_BODY_MAX)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static struct budget budget, hand_budget;
static void *hand_arena;
static uint8_t *first, *second; /* frames */

static void set_up(void)
{
    void *arena;

    if (first)
        return;
    arena = aligned_alloc(BUDGET_ALIGN, ARENA_BYTES);
    hand_arena = aligned_alloc(BUDGET_ALIGN, ARENA_BYTES);
    first = malloc(FRAME_CAP);
    second = malloc(FRAME_CAP);
    check(arena && hand_arena && first && second);
    budget_init(&budget, arena, ARENA_BYTES);
}

static size_t encode(uint16_t type, const ProtobufCMessage *msg, uint8_t *out)
{
    struct frame_header h = {.version = FRAME_VERSION, .type = type};
    size_t n = 0;

    check(wire_encode(&h, msg, 2 * FRAME_BODY_MAX, out, FRAME_CAP, &n) == TERN_OK);
    return n - FRAME_HEADER_BYTES;
}

static void forget_unknown(ProtobufCMessage *msg);

static void forget_in(const ProtobufCFieldDescriptor *f, ProtobufCMessage *msg)
{
    uint8_t *base = (uint8_t *)msg;
    void *member = base + f->offset;

    if (f->label != PROTOBUF_C_LABEL_REPEATED) {
        if (*(ProtobufCMessage **)member)
            forget_unknown(*(ProtobufCMessage **)member);
        return;
    }
    for (size_t i = 0; i < *(size_t *)(void *)(base + f->quantifier_offset); i++)
        forget_unknown((*(ProtobufCMessage ***)member)[i]);
}

/* Fields that the schema does not name are encoded unchanged, even where protobuf-c would not read
 * them again (a field number of 0 in two bytes). Nobody forwards received messages, so they are
 * left out here. */
static void forget_unknown(ProtobufCMessage *msg)
{
    msg->n_unknown_fields = 0;
    for (unsigned i = 0; i < msg->descriptor->n_fields; i++)
        if (msg->descriptor->fields[i].type == PROTOBUF_C_TYPE_MESSAGE)
            forget_in(&msg->descriptor->fields[i], msg);
}

/* A Step is also read by hand: protobuf-c accepts what that reader accepts, with the same values;
 * what it refuses is not what protobuf-c writes. */
static void hold_in_place(uint16_t type, const uint8_t *body, size_t n)
{
    const ProtobufCMessage *msg, *by_hand;
    enum tern_err err;
    size_t once;

    budget_init(&hand_budget, hand_arena, ARENA_BYTES);
    err = wire_decode_in_place(&hand_budget, type, body, n, &by_hand);
    check(err == TERN_OK || err == TERN_MALFORMED);
    check(hand_budget.used <= BUDGET_BYTES(n));
    if (wire_decode(&budget, type, body, n, &msg) != TERN_OK) {
        check(err != TERN_OK || budget.exceeded);
        return;
    }
    forget_unknown((ProtobufCMessage *)(uintptr_t)msg);
    once = encode(type, msg, first);
    if (err != TERN_OK) { /* stricter: a u32 that is sent as more, and a list sent twice */
        check(once != n || memcmp(first + FRAME_HEADER_BYTES, body, n) != 0);
        return;
    }
    check(encode(type, by_hand, second) == once);
    check(memcmp(first + FRAME_HEADER_BYTES, second + FRAME_HEADER_BYTES, once) == 0);
}

static void one_body(uint16_t type, const uint8_t *bytes, size_t n)
{
    const ProtobufCMessage *msg;
    enum tern_err err;
    size_t once, twice;
    uint8_t *body =
        malloc(n + 1); /* a copy: the sanitizer sees a byte too far, and a kept pointer */

    check(body);
    memcpy(body, bytes, n);
    if (type == FRAME_STEP)
        hold_in_place(type, body, n);
    err = wire_decode(&budget, type, body, n, &msg);
    check(budget.used <= BUDGET_BYTES(n));
    free(body);
    if (err != TERN_OK) {
        check(err == TERN_MALFORMED || !wire_descriptor(type));
        return;
    }
    fuzz_passed();
    forget_unknown((ProtobufCMessage *)(uintptr_t)msg);
    once = encode(type, msg, first);
    err = wire_decode(&budget, type, first + FRAME_HEADER_BYTES, once, &msg);
    if (err != TERN_OK) { /* a shorter body has a smaller budget; there is no other reason */
        check(budget.exceeded && once < n);
        return;
    }
    forget_unknown((ProtobufCMessage *)(uintptr_t)msg); /* the padding of an empty message */
    twice = encode(type, msg, second);
    check(once == twice);
    check(memcmp(first + FRAME_HEADER_BYTES, second + FRAME_HEADER_BYTES, once) == 0);
}

/* Can the body be read? */
bool fuzz_gets_past(const uint8_t *data, size_t n)
{
    const ProtobufCMessage *msg;

    set_up();
    if (n > 1 && data[0] == MADE)
        return wire_descriptor(data[1]) != NULL;
    return n > 0 && wire_decode(&budget, data[0], data + 1, n - 1, &msg) == TERN_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static uint8_t made[MADE_BODY_MAX];
    struct fuzz_bytes in;

    fuzz_begin();
    if (n < 1 || n - 1 > FRAME_BODY_MAX)
        return 0;
    set_up();
    in = (struct fuzz_bytes){data + 2, n - 2};
    if (n > 1 && data[0] == MADE)
        one_body(data[1], made, made_body(&in, data[1], made));
    else
        one_body(data[0], data + 1, n - 1);
    return 0;
}
