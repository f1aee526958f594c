/* The codec: every message there and back, and everything else that a peer may send: truncated,
 * deeply nested, full of empty submessages, above a limit, of a later version. Bodies and the
 * budget's memory end at a page without access, so that one byte too far is a crash. */
#include <stdlib.h>
#include <string.h>

#include "proto/in_place.h"
#include "testing/test.h"
#include "unit/rig/rig_wire.h"

#define NESTED 100000u

TEST_GROUP(rig_wire_set_up, NULL);

TEST(wire_every_message_comes_back_as_sent)
{
    for (const uint16_t *type = rig_wire_types; *type; type++) {
        for (size_t repeat = 0; repeat < 5; repeat++) {
            const ProtobufCMessage *msg;
            size_t n = rig_wire_encode(*type, rig_wire_sample(*type, *type + repeat, repeat));
            uint8_t *sent = malloc(n);

            assert_non_null(sent);
            memcpy(sent, rig_frame + FRAME_HEADER_BYTES, n);
            assert_int_equal(rig_wire_decode(*type, sent, n, &msg), TERN_OK);
            assert_int_equal(rig_wire_encode(*type, msg), n);
            assert_memory_equal(rig_frame + FRAME_HEADER_BYTES, sent, n);
            free(sent);
        }
    }
}

TEST(wire_types_without_message_are_unsupported)
{
    const uint16_t *known = rig_wire_types;

    for (uint32_t type = 0; type <= UINT16_MAX; type++) {
        const uint8_t body[] = {0x08, 0x01};

        if (type == *known && *known) {
            known++;
            assert_non_null(wire_descriptor((uint16_t)type));
        } else {
            assert_int_equal(rig_wire_decode((uint16_t)type, body, sizeof body, NULL),
                             TERN_UNSUPPORTED);
        }
    }
    assert_int_equal(*known, 0);
}

TEST(wire_message_cut_anywhere_is_harmless)
{
    for (const uint16_t *type = rig_wire_types; *type; type++) {
        size_t n = rig_wire_encode(*type, rig_wire_sample(*type, 7, 2)), refused = 0;

        for (size_t cut = 0; cut < n; cut++) {
            enum tern_err err = rig_wire_decode(*type, rig_frame + FRAME_HEADER_BYTES, cut, NULL);

            assert_true(err == TERN_OK || err == TERN_MALFORMED);
            refused += err == TERN_MALFORMED;
        }
        assert_true(refused > n / 4); /* only a cut between two fields leaves a message */
    }
}

/* The hand-written reader agrees with the generated code on whole bodies and on truncated ones. */
TEST(wire_in_place_reads_what_the_generated_code_reads)
{
    static const uint16_t types[] = {FRAME_MATCH, FRAME_STEP, FRAME_PEEK};
    static _Alignas(BUDGET_ALIGN) uint8_t memory[BUDGET_BYTES(1 << 16)];
    struct budget budget;

    budget_init(&budget, memory, sizeof memory);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        for (size_t repeat = 0; repeat < 5; repeat++) {
            size_t n = rig_wire_encode(types[i], rig_wire_sample(types[i], 11 + repeat, repeat));
            uint8_t *body = rig_guarded(n);
            const ProtobufCMessage *msg;

            memcpy(body, rig_frame + FRAME_HEADER_BYTES, n);
            assert_int_equal(wire_decode_in_place(&budget, types[i], body, n, &msg), TERN_OK);
            assert_int_equal(rig_wire_encode(types[i], msg), n);
            assert_memory_equal(rig_frame + FRAME_HEADER_BYTES, body, n);
            for (size_t cut = 0; cut < n; cut++) {
                uint8_t *part = rig_guarded(cut ? cut : 1);

                memcpy(part, body, cut);
                assert_int_equal(wire_decode_in_place(&budget, types[i], part, cut, &msg),
                                 rig_wire_decode(types[i], body, cut, NULL));
                rig_release(part, cut ? cut : 1);
            }
            rig_release(body, n);
        }
    }
}

/* A length is a varint of 32 bits: five bytes at most for either reader, leading zeros included. */
TEST(wire_in_place_refuses_the_lengths_that_the_generated_code_refuses)
{
    static const uint16_t types[] = {FRAME_MATCH, FRAME_STEP};
    static _Alignas(BUDGET_ALIGN) uint8_t memory[BUDGET_BYTES(64)];
    struct budget budget;

    budget_init(&budget, memory, sizeof memory);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        for (size_t bytes = 1; bytes <= 10; bytes++)
            for (uint8_t inside = 0; inside <= 2; inside += 2) {
                uint8_t body[16] = {0x0a, inside}; /* field 1, a message */
                enum tern_err want = bytes <= 5 ? TERN_OK : TERN_MALFORMED;
                size_t n = 1 + bytes;
                const ProtobufCMessage *msg;

                for (size_t k = 1; k < bytes; k++) {
                    body[k] |= 0x80;
                    body[k + 1] = 0;
                }
                body[n] = 0x08; /* its field 1: 5 */
                body[n + 1] = 5;
                n += inside;
                assert_int_equal(rig_wire_decode(types[i], body, n, NULL), want);
                assert_int_equal(wire_decode_in_place(&budget, types[i], body, n, &msg), want);
            }
}

TEST(wire_unknown_fields_are_ignored)
{
    static const uint8_t later[] = {0xb8, 0x3e, 0x2a, /* field 999: varint */
                                    0xc1, 0x3e, 1,    2,   3,   4,   5, 6, 7, 8, /* 1000: 64 bits */
                                    0xca, 0x3e, 3,    'n', 'e', 'w',             /* 1001: bytes */
                                    0xd5, 0x3e, 1,    2,   3,   4};              /* 1002: 32 bits */

    for (const uint16_t *type = rig_wire_types; *type; type++) {
        const ProtobufCMessage *msg;
        ProtobufCMessage *known;
        size_t n = rig_wire_encode(*type, rig_wire_sample(*type, 3, 2));
        struct rig_bytes b = {0};

        rig_pb(&b, later, sizeof later); /* before and behind the known fields */
        rig_pb(&b, rig_frame + FRAME_HEADER_BYTES, n);
        rig_pb(&b, later, sizeof later);
        assert_int_equal(rig_wire_decode(*type, b.v, b.n, &msg), TERN_OK);
        known = (ProtobufCMessage *)(uintptr_t)msg;
        known->n_unknown_fields = 0;
        assert_int_equal(rig_wire_encode(*type, known), n);
        assert_memory_equal(rig_frame + FRAME_HEADER_BYTES, b.v + sizeof later, n);
        rig_bytes_finish(&b);
    }
}

TEST(wire_deep_nesting_is_skipped_not_followed)
{
    for (const uint16_t *type = rig_wire_types; *type; type++) {
        const ProtobufCMessageDescriptor *d = wire_descriptor(*type);

        for (uint32_t field = 1; field <= d->n_fields + 1; field++) {
            struct rig_bytes b = {0};
            enum tern_err err;

            rig_pb_nested(&b, field, NESTED);
            err = rig_wire_decode_bytes(*type, &b);
            assert_true(err == TERN_OK || err == TERN_MALFORMED);
            rig_bytes_finish(&b);
        }
    }
}

TEST(wire_deep_groups_are_malformed)
{
    for (const uint16_t *type = rig_wire_types; *type; type++) {
        struct rig_bytes b = {0};

        for (size_t i = 0; i < NESTED; i++)
            rig_pb_tag(&b, 200, 3);
        for (size_t i = 0; i < NESTED; i++)
            rig_pb_tag(&b, 200, 4);
        assert_int_equal(rig_wire_decode_bytes(*type, &b), TERN_MALFORMED);
        rig_bytes_finish(&b);
    }
}

/* A body of one field, as often as it may occur, each empty. */
static void empty_pieces(uint16_t type, uint32_t field)
{
    struct rig_bytes b = {0};
    enum tern_err err;

    for (uint32_t i = 0; i < WIRE_BODY_FIELDS; i++)
        rig_pb_field(&b, field, "", 0);
    rig_budget.high_water = 0;
    err = rig_wire_decode_bytes(type, &b);
    assert_true(err == TERN_MALFORMED || err == TERN_OK);
    assert_true(rig_budget.high_water <= BUDGET_BYTES(b.n));
    rig_bytes_finish(&b);
}

TEST(wire_most_empty_submessages_stay_in_budget)
{
    for (const uint16_t *type = rig_wire_types; *type; type++) {
        const ProtobufCMessageDescriptor *d = wire_descriptor(*type);

        for (unsigned i = 0; i < d->n_fields; i++)
            if (d->fields[i].type == PROTOBUF_C_TYPE_MESSAGE ||
                d->fields[i].type == PROTOBUF_C_TYPE_STRING)
                empty_pieces(*type, d->fields[i].id);
        empty_pieces(*type, 999);
    }
    assert_int_equal(rig_budget.exceeded, true); /* the last one needed too much memory */
}

TEST(wire_longest_prompt_of_a_frame_passes)
{
    Tern__Wire__Tokens tokens = TERN__WIRE__TOKENS__INIT;
    Tern__Wire__Match match = TERN__WIRE__MATCH__INIT;
    uint32_t *prompt = calloc(1, FRAME_BODY_MAX);
    const ProtobufCMessage *msg;
    const void *array;
    uint32_t n;

    assert_non_null(prompt);
    for (size_t i = 0; i < FRAME_BODY_MAX / 4; i++)
        prompt[i] = (uint32_t)i * 2654435761u;
    match.tokens = &tokens;
    tokens.has_tokens = 1;
    tokens.tokens = wire_bytes(prompt, FRAME_BODY_MAX - 16);
    assert_int_equal(rig_wire_decode(FRAME_MATCH, rig_frame + FRAME_HEADER_BYTES,
                                     rig_wire_encode(FRAME_MATCH, &match.base), &msg),
                     TERN_OK);
    assert_int_equal(wire_array(&rig_budget, &((const Tern__Wire__Match *)msg)->tokens->tokens,
                                WIRE_TOKEN_BYTES, &array, &n),
                     TERN_OK);
    assert_int_equal(n, FRAME_BODY_MAX / 4 - 4);
    assert_memory_equal(array, prompt, n * 4u);
    free(prompt);
}

/* ---- encoding ---- */

TEST(wire_encode_writes_only_what_fits)
{
    struct frame_header h = {.version = FRAME_VERSION, .type = FRAME_STEP};
    size_t whole =
        FRAME_HEADER_BYTES + rig_wire_encode(FRAME_STEP, rig_wire_sample(FRAME_STEP, 1, 3));

    for (size_t cap = 0; cap < whole; cap++) {
        uint8_t *out = rig_guarded(cap ? cap : 1);
        const ProtobufCMessage *msg = rig_wire_sample(FRAME_STEP, 1, 3);
        size_t n = 12345;

        memset(out, 0xee, cap);
        assert_int_equal(wire_encode(&h, msg, FRAME_BODY_MAX, out, cap, &n), TERN_INVALID);
        assert_int_equal(n, 12345);
        for (size_t i = 0; i < cap; i++)
            assert_int_equal(out[i], 0xee);
        rig_release(out, cap ? cap : 1);
    }
}

TEST(wire_encode_respects_the_readers_cap)
{
    struct frame_header h = {.version = FRAME_VERSION, .type = FRAME_STEP};
    const ProtobufCMessage *msg = rig_wire_sample(FRAME_STEP, 1, 3);
    uint32_t body = (uint32_t)rig_wire_encode(FRAME_STEP, msg);
    size_t n;

    assert_int_equal(wire_encode(&h, msg, body - 1, rig_frame, RIG_FRAME_CAP, &n), TERN_INVALID);
    assert_int_equal(wire_encode(&h, msg, body, rig_frame, RIG_FRAME_CAP, &n), TERN_OK);
}

TEST(wire_empty_message_has_a_body_that_readers_ignore)
{
    Tern__Wire__Empty empty = TERN__WIRE__EMPTY__INIT;
    const ProtobufCMessage *msg;
    size_t n = rig_wire_encode(FRAME_PING, &empty.base);

    assert_true(n > 0);
    assert_int_equal(rig_wire_decode(FRAME_PING, rig_frame + FRAME_HEADER_BYTES, n, &msg), TERN_OK);
    assert_null(((const Tern__Wire__Empty *)msg)->status);
    assert_int_equal(((const Tern__Wire__Empty *)msg)->has_trace_id, 0);
}

/* ---- arrays, budget, versions, schema ---- */

TEST(wire_array_is_in_place_where_it_can_be)
{
    static _Alignas(8) uint8_t bytes[64];
    ProtobufCBinaryData data = wire_bytes(bytes, 32);
    const void *array;
    uint32_t n;

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)i;
    budget_start(&rig_budget, 0);
    assert_int_equal(wire_array(&rig_budget, &data, WIRE_REF_BYTES, &array, &n), TERN_OK);
    assert_ptr_equal(array, bytes);
    assert_int_equal(n, 4);
    data = wire_bytes(bytes + 1, 32);
    assert_int_equal(wire_array(&rig_budget, &data, WIRE_REF_BYTES, &array, &n), TERN_OK);
    assert_int_equal((uintptr_t)array % 8, 0);
    assert_memory_equal(array, bytes + 1, 32);
    data = wire_bytes(bytes, 30);
    assert_int_equal(wire_array(&rig_budget, &data, WIRE_REF_BYTES, &array, &n), TERN_MALFORMED);
    data = wire_bytes(NULL, 0);
    assert_int_equal(wire_array(&rig_budget, &data, WIRE_REF_BYTES, &array, &n), TERN_OK);
    assert_int_equal(n, 0);
    while (budget_take(&rig_budget, 16))
        ;
    data = wire_bytes(bytes + 1, 32);
    assert_int_equal(wire_array(&rig_budget, &data, WIRE_REF_BYTES, &array, &n), TERN_MALFORMED);
}

TEST(budget_gives_aligned_pieces_up_to_its_limit)
{
    uint8_t *last = NULL;
    size_t taken = 0;

    budget_start(&rig_budget, 100);
    assert_int_equal(rig_budget.limit, BUDGET_BYTES(100));
    for (size_t n = 0; n < 64; n++) {
        uint8_t *p = budget_take(&rig_budget, n);

        assert_non_null(p);
        assert_int_equal((uintptr_t)p % BUDGET_ALIGN, 0);
        assert_true(!last || p >= last + (n ? n - 1 : 0));
        last = p;
    }
    assert_null(budget_take(&rig_budget, SIZE_MAX));
    assert_true(rig_budget.exceeded);
    assert_null(budget_take(&rig_budget, BUDGET_BYTES(100)));
    budget_start(&rig_budget, 100);
    assert_false(rig_budget.exceeded);
    for (uint8_t *p; (p = budget_take(&rig_budget, 1000)) != NULL; taken += 1000)
        memset(p, 1, 1000);
    assert_true(taken <= BUDGET_BYTES(100) && taken > BUDGET_BYTES(100) - 3000 - taken / 60);
    budget_start(&rig_budget, 101);
    assert_non_null(budget_take(&rig_budget, rig_budget.limit - 20));
    assert_true(rig_budget.limit - rig_budget.used < BUDGET_ALIGN);
    assert_null(budget_take(&rig_budget, 1)); /* some bytes, but no aligned piece */
    assert_true(rig_budget.used <= rig_budget.limit);
    budget_start(&rig_budget, SIZE_MAX); /* a cap above the arena's size is that size */
    assert_int_equal(rig_budget.limit, rig_budget.cap);
}

TEST(wire_negotiate_takes_the_highest_common_version)
{
    static const struct {
        uint32_t min, max;
        enum tern_err err;
    } cases[] = {
        {WIRE_VERSION, WIRE_VERSION, TERN_OK},
        {WIRE_VERSION_MIN, WIRE_VERSION + 5, TERN_OK},
        {0, UINT32_MAX, TERN_OK},
        {0, WIRE_VERSION, TERN_OK},
        {WIRE_VERSION + 1, WIRE_VERSION + 2, TERN_UNSUPPORTED},
        {WIRE_VERSION + 1, UINT32_MAX, TERN_UNSUPPORTED},
        {0, WIRE_VERSION_MIN - 1, TERN_UNSUPPORTED},
        {0, 0, TERN_UNSUPPORTED}, /* a Hello without a range */
        {WIRE_VERSION + 1, WIRE_VERSION, TERN_INVALID},
        {UINT32_MAX, 0, TERN_INVALID},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t version = 77;

        assert_int_equal(wire_negotiate(cases[i].min, cases[i].max, &version), cases[i].err);
        assert_int_equal(version, cases[i].err == TERN_OK ? WIRE_VERSION : 77);
    }
}

/* The bound of unpack's recursion: no path in the descriptor graph is longer than this. */
static void walk(const ProtobufCMessageDescriptor *d, int depth)
{
    assert_true(depth < 6);
    for (unsigned i = 0; i < d->n_fields; i++) {
        assert_true(d->fields[i].label != PROTOBUF_C_LABEL_REQUIRED);
        assert_true(d->fields[i].id < 100); /* 100 is the padding field */
        if (d->fields[i].type == PROTOBUF_C_TYPE_MESSAGE)
            walk(d->fields[i].descriptor, depth + 1);
    }
}

TEST(wire_schema_has_no_recursion_and_nothing_required)
{
    for (const uint16_t *type = rig_wire_types; *type; type++)
        walk(wire_descriptor(*type), 0);
}

/* protobuf would join the two lists of an operation. No client sends two. */
TEST(wire_a_list_of_tokens_sent_twice_is_refused)
{
    static const uint8_t step[] = {0x0a, 4, 0x3a, 2, 0x12, 0, /* one list */
                                   0x0a, 8, 0x3a, 2, 0x12, 0, 0x3a, 2, 0x12, 0};
    static _Alignas(max_align_t) uint8_t memory[BUDGET_BYTES(64)];
    const ProtobufCMessage *m = NULL;
    struct budget budget;

    budget_init(&budget, memory, sizeof memory);
    assert_int_equal(wire_decode_in_place(&budget, FRAME_STEP, step, 6, &m), TERN_OK);
    assert_int_equal(wire_decode_in_place(&budget, FRAME_STEP, step, sizeof step, &m),
                     TERN_MALFORMED);
}

/* A client newer than the daemon may add fields to a Match, and to its list of tokens. */
TEST(wire_unknown_fields_of_a_match_are_ignored)
{
    static const uint8_t body[] = {0x0a, 9,    0x12, 4, 1, 0, 0, 0, /* tokens: one */
                                   0xa0, 0x06, 7,                   /* field 100 of the list */
                                   0x10, 5,                         /* step */
                                   0xa0, 0x06, 7};                  /* field 100 of the Match */
    const ProtobufCMessage *m = NULL;
    static _Alignas(max_align_t) uint8_t memory[BUDGET_BYTES(sizeof body)];
    struct budget budget;

    budget_init(&budget, memory, sizeof memory);
    assert_int_equal(wire_decode_in_place(&budget, FRAME_MATCH, body, sizeof body, &m), TERN_OK);
    assert_int_equal(((const Tern__Wire__Match *)m)->tokens->tokens.len, 4);
    assert_int_equal(((const Tern__Wire__Match *)m)->step, 5);
}
