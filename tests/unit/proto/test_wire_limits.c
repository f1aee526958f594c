/* The limits of a decoded message: the largest valid one is accepted, one more is MALFORMED. */
#include <string.h>

#include "proto/in_place.h"
#include "testing/test.h"
#include "unit/rig/rig_wire.h"

#define STEP_OPS_TAG 0x0a /* field 1, bytes */

TEST_GROUP(rig_wire_set_up, NULL);

TEST(wire_step_of_most_operations_passes)
{
    static Tern__Wire__StepOp ops[WIRE_OPS_MAX + 1];
    static Tern__Wire__StepOp *list[WIRE_OPS_MAX + 1];
    static Tern__Wire__Tokens tokens[WIRE_OPS_MAX + 1];
    Tern__Wire__Step step = TERN__WIRE__STEP__INIT;

    for (size_t i = 0; i <= WIRE_OPS_MAX; i++) {
        tern__wire__step_op__init(&ops[i]);
        tern__wire__tokens__init(&tokens[i]);
        ops[i].tokens = &tokens[i];
        list[i] = &ops[i];
    }
    step.ops = list;
    step.n_ops = WIRE_OPS_MAX; /* the smallest body with so many: the budget's base must suffice */
    assert_int_equal(rig_wire_decode_message(FRAME_STEP, &step), TERN_OK);
    step.n_ops = WIRE_OPS_MAX + 1;
    assert_int_equal(rig_wire_decode_message(FRAME_STEP, &step), TERN_MALFORMED);
}

/* Writes n unknown fields of three bytes each. Returns their bytes. */
static size_t put_unknown(uint8_t *to, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        memcpy(to + (size_t)3 * i, "\xc0\x3e\x01", 3);
    return (size_t)3 * n;
}

/* A decoder spends little time on unknown fields, on any level. */
TEST(wire_fields_are_limited_over_all_levels)
{
    static uint8_t body[3 * (WIRE_BODY_FIELDS + 1) + 8];
    static const uint16_t types[] = {FRAME_STEP, FRAME_MATCH, FRAME_POOL_OPEN, FRAME_PEER_MSG};
    const size_t head = 5; /* an operation and its length */
    const ProtobufCMessage *msg;
    size_t n = put_unknown(body, WIRE_BODY_FIELDS + 1);

    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        assert_int_equal(wire_decode_in_place(&rig_budget, types[i], body, n, &msg),
                         TERN_MALFORMED);
        assert_int_equal(rig_budget.used, 0); /* refused before decoding */
    }
    assert_int_equal(wire_decode_in_place(&rig_budget, FRAME_STEP, body, n - 3, &msg), TERN_OK);
    for (uint32_t more = 0; more < 2; more++) {
        n = put_unknown(body + head, WIRE_BODY_FIELDS - 1 + more);
        body[0] = STEP_OPS_TAG;
        body[1] = (uint8_t)(n | 0x80);
        body[2] = (uint8_t)(n >> 7 | 0x80);
        body[3] = (uint8_t)(n >> 14 | 0x80);
        body[4] = (uint8_t)(n >> 21);
        assert_int_equal(wire_decode_in_place(&rig_budget, FRAME_STEP, body, head + n, &msg),
                         more ? TERN_MALFORMED : TERN_OK);
    }
}

TEST(wire_step_reply_of_most_results_passes)
{
    static Tern__Wire__OpResult results[WIRE_OPS_MAX + 1];
    static Tern__Wire__OpResult *list[WIRE_OPS_MAX + 1];
    static Tern__Wire__Run *runs[WIRE_RUNS_MAX / WIRE_OPS_MAX];
    Tern__Wire__Run run = TERN__WIRE__RUN__INIT;
    Tern__Wire__Status status = TERN__WIRE__STATUS__INIT;
    Tern__Wire__Shortage shortage = TERN__WIRE__SHORTAGE__INIT;
    Tern__Wire__StepReply reply = TERN__WIRE__STEP_REPLY__INIT;

    status.shortage = &shortage;
    for (size_t i = 0; i < WIRE_RUNS_MAX / WIRE_OPS_MAX; i++)
        runs[i] = &run;
    for (size_t i = 0; i <= WIRE_OPS_MAX; i++) {
        tern__wire__op_result__init(&results[i]);
        results[i].runs = runs;
        results[i].n_runs = WIRE_RUNS_MAX / WIRE_OPS_MAX;
        results[i].status = &status;
        list[i] = &results[i];
    }
    reply.results = list;
    reply.n_results = WIRE_OPS_MAX;
    assert_int_equal(rig_wire_decode_message(FRAME_STEP_REPLY, &reply), TERN_OK);
    for (size_t i = 0; i <= WIRE_OPS_MAX; i++)
        results[i].n_runs = 0;
    reply.n_results = WIRE_OPS_MAX + 1;
    assert_int_equal(rig_wire_decode_message(FRAME_STEP_REPLY, &reply), TERN_MALFORMED);
}

TEST(wire_runs_are_limited_over_all_results)
{
    Tern__Wire__Run one = TERN__WIRE__RUN__INIT;
    Tern__Wire__Run *many[WIRE_RUNS_MAX + 1];
    Tern__Wire__OpResult a = TERN__WIRE__OP_RESULT__INIT, b = TERN__WIRE__OP_RESULT__INIT;
    Tern__Wire__OpResult *results[] = {&a, &b};
    Tern__Wire__StepReply reply = TERN__WIRE__STEP_REPLY__INIT;
    Tern__Wire__MatchReply match = TERN__WIRE__MATCH_REPLY__INIT;

    reply.results = results;
    reply.n_results = 2;
    for (size_t i = 0; i <= WIRE_RUNS_MAX; i++)
        many[i] = &one;
    a.runs = b.runs = match.runs = many;
    a.n_runs = b.n_runs = WIRE_RUNS_MAX / 2;
    assert_int_equal(rig_wire_decode_message(FRAME_STEP_REPLY, &reply), TERN_OK);
    b.n_runs++;
    assert_int_equal(rig_wire_decode_message(FRAME_STEP_REPLY, &reply), TERN_MALFORMED);
    match.n_runs = WIRE_RUNS_MAX;
    assert_int_equal(rig_wire_decode_message(FRAME_MATCH_REPLY, &match), TERN_OK);
    match.n_runs++;
    assert_int_equal(rig_wire_decode_message(FRAME_MATCH_REPLY, &match), TERN_MALFORMED);
}

TEST(wire_pool_open_is_limited_in_groups_and_axes)
{
    Tern__Wire__Axis axis = TERN__WIRE__AXIS__INIT;
    Tern__Wire__Axis *axes[WIRE_AXES_MAX + 1];
    Tern__Wire__Group group = TERN__WIRE__GROUP__INIT;
    Tern__Wire__Group *groups[WIRE_GROUPS_MAX + 1];
    Tern__Wire__PoolOpen open = TERN__WIRE__POOL_OPEN__INIT;

    for (size_t i = 0; i <= WIRE_AXES_MAX; i++)
        axes[i] = &axis;
    for (size_t i = 0; i <= WIRE_GROUPS_MAX; i++)
        groups[i] = &group;
    group.axes = axes;
    group.n_axes = WIRE_AXES_MAX;
    open.groups = groups;
    open.n_groups = WIRE_GROUPS_MAX;
    assert_int_equal(rig_wire_decode_message(FRAME_POOL_OPEN, &open), TERN_OK);
    open.n_groups++;
    assert_int_equal(rig_wire_decode_message(FRAME_POOL_OPEN, &open), TERN_MALFORMED);
    open.n_groups--;
    group.n_axes++;
    assert_int_equal(rig_wire_decode_message(FRAME_POOL_OPEN, &open), TERN_MALFORMED);
}

TEST(wire_token_lists_are_whole_elements_and_limited)
{
    static uint8_t bytes[(WIRE_KEYS_MAX + 1) * WIRE_KEY_BYTES];
    Tern__Wire__Tokens tokens = TERN__WIRE__TOKENS__INIT;
    Tern__Wire__Match match = TERN__WIRE__MATCH__INIT;
    Tern__Wire__PeerMsg peer = TERN__WIRE__PEER_MSG__INIT;

    match.tokens = &tokens;
    tokens.has_tokens = tokens.has_keys = peer.has_tokens = peer.has_keys = 1;
    for (size_t n = 0; n <= 2 * WIRE_KEY_BYTES; n++) {
        enum tern_err keys_ok = n % WIRE_KEY_BYTES ? TERN_MALFORMED : TERN_OK;
        enum tern_err tokens_ok = n % WIRE_TOKEN_BYTES ? TERN_MALFORMED : TERN_OK;

        tokens.tokens = peer.tokens = wire_bytes(bytes, n);
        tokens.keys = peer.keys = wire_bytes(bytes, 0);
        assert_int_equal(rig_wire_decode_message(FRAME_MATCH, &match), tokens_ok);
        assert_int_equal(rig_wire_decode_message(FRAME_PEER_MSG, &peer), tokens_ok);
        tokens.tokens = peer.tokens = wire_bytes(bytes, 0);
        tokens.keys = peer.keys = wire_bytes(bytes, n);
        assert_int_equal(rig_wire_decode_message(FRAME_MATCH, &match), keys_ok);
        assert_int_equal(rig_wire_decode_message(FRAME_PEER_MSG, &peer), keys_ok);
    }
    tokens.keys = peer.keys = wire_bytes(bytes, WIRE_KEYS_MAX * WIRE_KEY_BYTES);
    assert_int_equal(rig_wire_decode_message(FRAME_MATCH, &match), TERN_OK);
    tokens.keys = peer.keys = wire_bytes(bytes, sizeof bytes);
    assert_int_equal(rig_wire_decode_message(FRAME_MATCH, &match), TERN_MALFORMED);
    assert_int_equal(rig_wire_decode_message(FRAME_PEER_MSG, &peer), TERN_MALFORMED);
}

static char text[WIRE_TEXT_MAX + 2];

static void text_of(size_t n)
{
    memset(text, 'x', n);
    text[n] = '\0';
}

TEST(wire_strings_pass_up_to_their_limit)
{
    Tern__Wire__Hello hello = TERN__WIRE__HELLO__INIT;
    Tern__Wire__Status status = TERN__WIRE__STATUS__INIT;
    Tern__Wire__Empty empty = TERN__WIRE__EMPTY__INIT;
    static const size_t sizes[] = {
        0, 1, WIRE_STRING_MAX, WIRE_STRING_MAX + 1, WIRE_TEXT_MAX, WIRE_TEXT_MAX + 1};

    hello.client = status.text = text;
    empty.status = &status;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        text_of(sizes[i]);
        assert_int_equal(rig_wire_decode_message(FRAME_HELLO, &hello),
                         sizes[i] > WIRE_STRING_MAX ? TERN_MALFORMED : TERN_OK);
        assert_int_equal(rig_wire_decode_message(FRAME_PING_REPLY, &empty),
                         sizes[i] > WIRE_TEXT_MAX ? TERN_MALFORMED : TERN_OK);
    }
}

/* One field of a sample, with an invalid value. */
struct field {
    ProtobufCMessage *parent;
    const ProtobufCFieldDescriptor *f;
    void *value; /* the char * or ProtobufCBinaryData */
};

#define FIELDS_MAX 512

static size_t collect(ProtobufCMessage *m, struct field *fields, size_t n)
{
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
        uint8_t *base = (uint8_t *)m, *member = base + f->offset;
        bool repeated = f->label == PROTOBUF_C_LABEL_REPEATED;
        size_t count = repeated ? *(size_t *)(void *)(base + f->quantifier_offset) : 1;

        for (size_t k = 0; k < count; k++) {
            uint8_t *value = repeated ? *(uint8_t **)(void *)member + k * sizeof(void *) : member;

            if (f->type == PROTOBUF_C_TYPE_MESSAGE)
                n = collect(*(ProtobufCMessage **)(void *)value, fields, n);
            else if (f->type == PROTOBUF_C_TYPE_STRING || f->type == PROTOBUF_C_TYPE_BYTES)
                fields[n++] = (struct field){m, f, value};
            assert_true(n < FIELDS_MAX);
        }
    }
    return n;
}

/* Every string and every array of every message, at any depth, by reflection, so that none is left
 * out. */
TEST(wire_every_string_and_array_of_every_message_is_checked)
{
    static struct field fields[FIELDS_MAX];
    static uint8_t many[WIRE_BLOB_MAX + 1];
    size_t spoiled = 0;

    text_of(WIRE_TEXT_MAX + 1);
    for (const uint16_t *type = rig_wire_types; *type; type++) {
        ProtobufCMessage *m = (ProtobufCMessage *)(uintptr_t)rig_wire_sample(*type, 9, 2);
        size_t n = collect(m, fields, 0);

        assert_int_equal(rig_wire_decode_message(*type, m), TERN_OK);
        for (size_t i = 0; i < n; i++) {
            enum tern_err expected = TERN_MALFORMED;

            if (fields[i].f->type == PROTOBUF_C_TYPE_BYTES) {
                ProtobufCBinaryData *bytes = fields[i].value, before = *bytes;

                const struct field_limit *limit =
                    message_limit(fields[i].parent->descriptor, fields[i].f);

                bytes->len = limit->element_bytes == 1 ? limit->most + 1 : 3;
                bytes->data = many;
                assert_int_equal(rig_wire_decode_message(*type, m), expected);
                *bytes = before;
            } else {
                char **string = fields[i].value, *before = *string;

                if (strcmp(fields[i].f->name, "json") == 0)
                    expected = TERN_OK; /* the frame is the limit */
                *string = text;
                assert_int_equal(rig_wire_decode_message(*type, m), expected);
                *string = before;
            }
            spoiled++;
        }
    }
    assert_true(spoiled > 60);
}

TEST(wire_admin_is_limited_in_arguments)
{
    char *args[WIRE_ARGS_MAX + 1];
    Tern__Wire__Admin admin = TERN__WIRE__ADMIN__INIT;

    for (size_t i = 0; i <= WIRE_ARGS_MAX; i++)
        args[i] = "a=b";
    admin.args = args;
    admin.n_args = WIRE_ARGS_MAX;
    assert_int_equal(rig_wire_decode_message(FRAME_ADMIN, &admin), TERN_OK);
    admin.n_args++;
    assert_int_equal(rig_wire_decode_message(FRAME_ADMIN, &admin), TERN_MALFORMED);
}

TEST(wire_subscribe_reply_is_limited_in_events_and_tenants)
{
    static uint8_t events[(WIRE_EVENTS_MAX + 1) * WIRE_EVENT_BYTES];
    char *tenants[WIRE_NAMES_MAX + 1];
    Tern__Wire__SubscribeReply reply = TERN__WIRE__SUBSCRIBE_REPLY__INIT;

    for (size_t i = 0; i <= WIRE_NAMES_MAX; i++)
        tenants[i] = "t";
    reply.tenants = tenants;
    reply.n_tenants = WIRE_NAMES_MAX;
    reply.has_events = 1;
    reply.events = wire_bytes(events, sizeof events - WIRE_EVENT_BYTES);
    assert_int_equal(rig_wire_decode_message(FRAME_SUBSCRIBE_REPLY, &reply), TERN_OK);
    reply.events.len = sizeof events;
    assert_int_equal(rig_wire_decode_message(FRAME_SUBSCRIBE_REPLY, &reply), TERN_MALFORMED);
    reply.events.len = 0;
    reply.n_tenants++;
    assert_int_equal(rig_wire_decode_message(FRAME_SUBSCRIBE_REPLY, &reply), TERN_MALFORMED);
}

TEST(wire_peer_path_is_limited_in_chunks_and_windows)
{
    static uint8_t chunks[(WIRE_CHUNKS_MAX + 1) * WIRE_CHUNK_BYTES],
        windows[(WIRE_WINDOWS_MAX + 1) * WIRE_WINDOW_BYTES];
    Tern__Wire__PeerPath path = TERN__WIRE__PEER_PATH__INIT;

    path.has_chunks = path.has_windows = 1;
    path.chunks = wire_bytes(chunks, sizeof chunks - WIRE_CHUNK_BYTES);
    path.windows = wire_bytes(windows, sizeof windows - WIRE_WINDOW_BYTES);
    assert_int_equal(rig_wire_decode_message(FRAME_PEER_PATH, &path), TERN_OK);
    path.windows.len = sizeof windows;
    assert_int_equal(rig_wire_decode_message(FRAME_PEER_PATH, &path), TERN_MALFORMED);
    path.windows.len = 0;
    path.chunks.len = sizeof chunks;
    assert_int_equal(rig_wire_decode_message(FRAME_PEER_PATH, &path), TERN_MALFORMED);
}
